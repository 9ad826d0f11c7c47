"""Speed and memory of `context-bench explain` on a folder of generated logs in Claude Code's form.

    python benchmarks/explain_speed.py [--megabytes 1000] [--folder FOLDER]

Prints seconds, CPU seconds, the peak of the memory of all its processes (proportional set size) and the load of the
machine, for a first call and for the next one, which reads nothing anew. Texts are cut out of this repository's own
files, sessions have 40 to 300 turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOOLS = ("Read", "Bash", "Grep", "Edit", "mcp__files__list")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Read": {"file_path": "/a/b.py"},
    "Bash": {"command": "git log --oneline"},
    "Grep": {"pattern": "x"},
    "Edit": {"file_path": "/a", "old_string": "one", "new_string": "two"},
    "mcp__files__list": {"q": 1},
}


def corpus() -> str:
    """Texts to cut from."""
    files = sorted((ROOT / "src" / "context_bench").glob("*/*.py")) + sorted((ROOT / "docs").rglob("*.md"))
    return "\n".join(file.read_text("utf-8") for file in files)


def session(draw: random.Random, texts: str, number: int) -> str:
    """One session as lines."""
    lines: list[str] = []
    name = f"{draw.getrandbits(128):032x}"

    def cut(size: int) -> str:
        start = draw.randrange(len(texts) - size)
        return texts[start : start + size]

    def line(kind: str, message: dict[str, Any], **more: Any) -> None:
        at = 1_760_000_000 + 1_000 * number + 10 * len(lines)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
        told = {"type": kind, "sessionId": name, "uuid": f"{name}-{len(lines)}", "isSidechain": False}
        told |= {"parentUuid": f"{name}-{len(lines) - 1}" if lines else None, "cwd": "/home/me/p", "timestamp": stamp}
        lines.append(
            json.dumps(
                {**told, "version": "2.1.197", "message": {"role": kind, **message}, **more}, separators=(",", ":")
            )
        )

    line("user", {"content": cut(1_500)})
    context, held = 18_000, 0
    for turn in range(draw.choice((40, 80, 150, 300))):
        tool, said, result = draw.choice(TOOLS), cut(400), cut(draw.choice((800, 3_000, 9_000)))
        usage = {"input_tokens": 3, "cache_read_input_tokens": held, "cache_creation_input_tokens": context - held}
        about = {"id": f"m{number}-{turn}", "model": "claude-sonnet-4-5", "usage": {**usage, "output_tokens": 200}}
        for block in (
            {"type": "text", "text": said},
            {"type": "tool_use", "id": f"t{turn}", "name": tool, "input": ARGUMENTS[tool]},
        ):
            line("assistant", {**about, "content": [block], "stop_reason": "tool_use"})
        answer = {"tool_use_id": f"t{turn}", "type": "tool_result", "content": result}
        line("user", {"content": [answer]}, toolUseResult={"stdout": result, "stderr": ""})
        held, context = context, context + (len(result) + len(said) + 300) // 4
        if context > 180_000:
            break
    return "\n".join(lines) + "\n"


def write_logs(folder: Path, megabytes: float) -> int:
    """Fill a folder with sessions; returns how many."""
    draw, texts, size, number = random.Random(7), corpus(), 0, 0
    while size < megabytes * 1e6:
        data = session(draw, texts, number).encode()
        file = folder / f"project-{number % 20}" / f"{number}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        size, number = size + len(data), number + 1
    return number


def memory(process: int) -> int:
    """Proportional set size of a process and of those that it started, in kilobytes."""
    try:
        told = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in told.splitlines() if line.startswith("Pss:")), 0)
    return own + sum(memory(int(child)) for child in children)


def measured(folder: Path, cache: Path) -> str:
    """One call, in words."""
    command = [
        sys.executable,
        "-m",
        "context_bench",
        "explain",
        str(folder),
        "--quiet",
        "--out",
        str(cache / "out.txt"),
    ]
    began, before, peak = time.monotonic(), os.times(), 0
    process = subprocess.Popen(command, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.2)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"{time.monotonic() - began:.1f} s, {cpu:.1f} CPU s, peak {peak / 1024:.0f} MB, load {load}"


def main() -> None:
    """Generate, then measure twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, cache = given.folder or Path(temporary) / "logs", Path(temporary) / "cache"
        cache.mkdir()
        count = write_logs(folder, given.megabytes)
        print(f"{count:,} sessions, {given.megabytes:,.0f} MB")
        print(f"first call: {measured(folder, cache)}")
        print(f"next call:  {measured(folder, cache)}")


if __name__ == "__main__":
    main()
