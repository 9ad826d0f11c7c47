"""CPU time of `context-bench replay` on generated sessions, without a proxy.

    python benchmarks/replay_speed.py [--sessions 220 300] [--repeats 3] [--tree SRC ...] [--keep FOLDER]

Sessions are logs in Claude Code's form, of 15 requests that hold 2,500 tokens in the mean, with tools whose results are
JSON, code and prose cut out of this repository's own files. Each is sent through `--controls minify` to the tap's echo.
Two numbers of sessions are replayed in turn; a figure is the CPU time that the command takes for each request that the
second has more. Both are above 200, up to which a report tells the bill by source, so that nothing is reckoned up that
is done for few. `--tree`: `src` folders of other states of this repository, measured in turn with this one. `--keep`:
where sessions and stores go, and stay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from explain_speed import ARGUMENTS, TOOLS, corpus

ROOT = Path(__file__).parents[1]
REQUESTS = 15


def session(draw: random.Random, texts: str, number: int) -> str:
    """One session as lines of its log."""
    lines: list[str] = []
    name = f"{draw.getrandbits(128):032x}"

    def cut(size: int) -> str:
        start = draw.randrange(len(texts) - size)
        return texts[start : start + size]

    def result(size: int) -> str:
        if draw.random() < 0.6:
            return cut(size)
        rows = [{"path": cut(20), "line": draw.randrange(999), "text": cut(60)} for _ in range(max(1, size // 130))]
        return json.dumps({"found": rows}, indent=2)

    def line(kind: str, message: dict[str, Any], **more: Any) -> None:
        stamp = f"2026-10-{1 + number % 28:02d}T{number // 28 % 24:02d}:{len(lines) // 3:02d}:00.000Z"
        told = {"type": kind, "sessionId": name, "uuid": f"{name}-{len(lines)}", "isSidechain": False}
        told |= {"parentUuid": f"{name}-{len(lines) - 1}" if lines else None, "cwd": "/home/me/p", "timestamp": stamp}
        lines.append(json.dumps({**told, "version": "2.1.197", "message": {"role": kind, **message}, **more}))

    line("user", {"content": cut(1_600)})
    context, held = 900, 0
    for turn in range(REQUESTS):
        tool, said, found = draw.choice(TOOLS), cut(200), result(draw.choice((300, 600, 1_200)))
        usage = {"input_tokens": 3, "cache_read_input_tokens": held, "cache_creation_input_tokens": context - held}
        about = {"id": f"m{number}-{turn}", "model": "claude-sonnet-4-5", "usage": {**usage, "output_tokens": 80}}
        call = {"type": "tool_use", "id": f"t{turn}", "name": tool, "input": ARGUMENTS[tool]}
        for block in ({"type": "text", "text": said}, call):
            line("assistant", {**about, "content": [block], "stop_reason": "tool_use"})
        answer = {"tool_use_id": f"t{turn}", "type": "tool_result", "content": found}
        line("user", {"content": [answer]}, toolUseResult={"stdout": found, "stderr": ""})
        held, context = context, context + (len(found) + len(said) + 120) // 4
    return "\n".join(lines) + "\n"


def write_sessions(folder: Path, count: int) -> None:
    """Fill a folder with sessions."""
    draw, texts = random.Random(11), corpus()
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:05d}.jsonl").write_text(session(draw, texts, number), "utf-8")


def replayed(tree: Path, sessions: Path, store: Path) -> float:
    """CPU seconds of one replay."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "context_bench", "replay", str(sessions), "--controls", "minify"]
    command += ["--upstream", "echo", "--tap", "0", "--quiet", "--store", str(store), "--out", f"{store}.txt"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path, given: argparse.Namespace) -> None:
    """Write sessions, replay them with each tree in turn, and print what that took."""
    few, many = given.sessions
    write_sessions(folder / "few", few)
    write_sessions(folder / "many", many)
    took: dict[Path, list[float]] = {tree: [] for tree in (ROOT / "src", *given.tree)}
    for turn in range(given.repeats):
        for place, (tree, figures) in enumerate(took.items()):
            one, other = (
                replayed(tree, folder / which, folder / f"{which}-{place}-{turn}.db") for which in ("few", "many")
            )
            figures.append((other - one) / (many - few) / REQUESTS)
            print(f"{tree}: {few} sessions {one:.1f}, {many} sessions {other:.1f} CPU s", file=sys.stderr)
    for tree, figures in took.items():
        middle = statistics.median(figures)
        load = " ".join(f"{each:.1f}" for each in os.getloadavg())
        print(
            f"{tree}: {1000 * middle:.2f} CPU ms a request ({1000 * min(figures):.2f} to {1000 * max(figures):.2f}), "
            f"10,000 sessions in {middle * REQUESTS * 10_000 / 60:.1f} CPU min; load {load}"
        )


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs=2, default=(220, 300))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tree", type=Path, nargs="*", default=[])
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(given.keep or Path(temporary), given)


if __name__ == "__main__":
    main()
