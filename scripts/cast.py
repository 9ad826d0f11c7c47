"""Record a terminal cast of real commands: `python scripts/cast.py` writes docs/pictures/first-minutes.cast.

The commands are two of scripts/jobs.py, on its logs, at 80 columns; what they print is theirs, the pace is ours (an
asciicast of version 2: `asciinema play docs/pictures/first-minutes.cast`). A test holds the cast to the program.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jobs

from context_bench.__main__ import main as context_bench

CAST = Path(__file__).parents[1] / "docs" / "pictures" / "first-minutes.cast"
#: The jobs that are shown.
SHOWN = ("compaction", "reading")
WIDTH, HEIGHT = 80, 30
_KEY, _LINE, _PAUSE = 0.04, 0.03, 1.5  # seconds


def main() -> None:
    """Write the cast."""
    with tempfile.TemporaryDirectory() as folder:
        CAST.write_text(recorded(Path(folder)), encoding="utf-8")


def recorded(folder: Path) -> str:
    """The cast as text; commands run in `folder`, which has no store and no index of counts."""
    head = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "context-bench: what do my agent's logs say?"}
    events: list[str] = []
    clock = 0.0
    for name in SHOWN:
        job = jobs.JOBS[name]
        job.has(folder)
        for text, wait in _typed(job, folder):
            clock += wait
            events.append(json.dumps([round(clock, 2), "o", text], ensure_ascii=False))
    return "\n".join([json.dumps(head, ensure_ascii=False), *events]) + "\n"


def _typed(job: jobs.Job, folder: Path) -> Iterator[tuple[str, float]]:
    """What appears, and after how many seconds: the question, each command as it is typed, what it prints."""
    yield f"\x1b[2m# {job.question}\x1b[0m\r\n$ ", _PAUSE
    for command in job.commands:
        for letter in command:
            yield letter, _KEY
        yield "\r\n", _PAUSE / 2
        for line in printed(shlex.split(command)[1:], folder).splitlines():
            yield f"{line}\r\n", _LINE
        yield "$ ", _PAUSE


def printed(words: list[str], folder: Path) -> str:
    """What one of our commands prints, in this process."""
    said = io.StringIO()
    before = {name: os.environ.get(name) for name in ("COLUMNS", "XDG_CACHE_HOME", "NO_COLOR")}
    os.environ.update(COLUMNS=str(WIDTH), XDG_CACHE_HOME=str(folder / "cache"), NO_COLOR="1")
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(said):
            if code := context_bench(words):
                raise SystemExit(f"cast: {shlex.join(words)}: exit code {code}")
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return said.getvalue()


if __name__ == "__main__":
    main()
