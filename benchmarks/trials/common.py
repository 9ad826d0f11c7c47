"""What the trials share: a provider that keeps its own log, the program started as a user starts it, and the table at
the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from context_bench.llm.responders import counted
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the soak's own modules
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "props"))

#: What no command may print, whatever is done to it.
NOISE = re.compile(r"Traceback|Unclosed|never retrieved|never awaited|Exception ignored|Fatal Python")


class Answers:
    """A provider that answers `word7` to question 7 after a short while, and logs each question as it arrives."""

    name = "answers"

    def __init__(self, delay: float = 0.02) -> None:
        self.delay = delay
        self.log: Counter[str] = Counter()
        self.seen = 0
        self._changed = asyncio.Event()

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """The answer, `delay` seconds after the question was logged."""
        text = "\n".join(message.text for message in request.messages)
        asked = re.findall(r"Box (\d+)\?", text)
        number = asked[-1] if asked else ""
        if asked:  # the short request before a run is nobody's row
            self.log[number] += 1
            self.seen += 1
            self._changed.set()
            await asyncio.sleep(self.delay)
        reply = Reply(text=f"word{number}", finish_reason="stop", model=request.model)
        reply.usage = counted(reply, request)
        return reply

    async def until(self, total: int) -> None:
        """Return when so many questions have come in all."""
        while self.seen < total:
            self._changed.clear()
            await self._changed.wait()


def questions(path: Path, count: int, first: int = 0) -> Path:
    """Write a data set of `count` questions that `Answers` can answer, numbered from `first` on."""
    rows = (
        {
            "id": number,
            "context": f"Box {number} holds word{number}. " * 20,
            "question": f"Box {number}?",
            "answer": f"word{number}",
        }
        for number in range(first, first + count)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def opened(folder: str) -> Path:
    """A folder that other users of this machine may look into."""
    found = Path(folder)
    found.chmod(0o755)
    return found


@dataclass
class Ended:
    """A command that is over: its exit code (negative: the signal that ended it) and what it printed."""

    code: int
    out: str
    err: str

    @property
    def noise(self) -> list[str]:
        """Lines that no command may print."""
        return [line for line in (self.out + "\n" + self.err).splitlines() if NOISE.search(line)]


@dataclass
class Command:
    """`context-bench` with arguments, in a folder, with variables besides those of this process."""

    folder: Path
    arguments: list[str]
    more: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    python: str = sys.executable
    process: asyncio.subprocess.Process | None = None
    reading: asyncio.Task[tuple[bytes, bytes]] | None = None

    async def start(self) -> Command:
        """Start it; what it prints is kept until it ends."""
        kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        pipe = asyncio.subprocess.PIPE
        line = [*self.before, self.python, "-m", "context_bench", *self.arguments]
        self.process = await asyncio.create_subprocess_exec(
            *line,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env={**kept, **self.more},
            cwd=self.folder,
        )
        self.reading = asyncio.create_task(self.process.communicate())
        return self

    @property
    def over(self) -> bool:
        """Tell whether it has ended."""
        return self.reading is not None and self.reading.done()

    def signal(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless it is over."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)

    async def ended(self, seconds: float = 300.0) -> Ended:
        """Wait for its end; killed after so many seconds."""
        assert self.process is not None
        assert self.reading is not None
        try:
            out, err = await asyncio.wait_for(asyncio.shield(self.reading), seconds)
        except TimeoutError:
            self.process.kill()
            out, err = await self.reading
            err += f"\n(ended by the trial after {seconds:g} s)".encode()
        return Ended(int(self.process.returncode or 0), out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


async def done(folder: Path, *arguments: str, seconds: float = 300.0, **more: str) -> Ended:
    """Run a command to its end."""
    return await (await Command(folder, list(arguments), more).start()).ended(seconds)


class Table:
    """Promises and what became of them, as Markdown; `broken` are those that did not hold."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, list[tuple[str, str, str, bool]]()

    def add(self, promise: str, tried: str, found: str, held: bool) -> None:
        """Add a line, and print it at once as progress."""
        self.rows.append((promise, tried, found, held))
        print(f"  {'held ' if held else 'BROKE'}  {promise}: {tried}: {found}", file=sys.stderr, flush=True)

    @property
    def broken(self) -> int:
        """Count the lines that did not hold."""
        return sum(not held for *_, held in self.rows)

    def __str__(self) -> str:
        head = [f"## {self.title}", "", "| promised | tried | found | |", "|---|---|---|---|"]
        return "\n".join(
            [
                *head,
                *(
                    f"| {promise} | {tried} | {found} | {'held' if held else '**broke**'} |"
                    for promise, tried, found, held in self.rows
                ),
            ]
        )

    def ended(self) -> int:
        """Print the table; the exit code: 1 if a promise did not hold."""
        print(self)
        return 1 if self.broken else 0
