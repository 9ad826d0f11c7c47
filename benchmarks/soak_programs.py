"""The programs of a soak run: `context-bench` commands that are started, looked at and ended; no other process is
touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import soak_watch


class Broken(Exception):
    """The soak cannot go on."""


class Programs:
    """Commands by name. `watched`: all that were started to be looked at; `broken`: what went wrong with ending
    them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.living: dict[str, asyncio.subprocess.Process] = {}
        self.watched: list[soak_watch.Watched] = []
        self.broken: list[str] = []

    async def start(self, name: str, *arguments: str, look: bool = True) -> asyncio.subprocess.Process:
        """Start `context-bench` with arguments; its words go to a file of its own."""
        known = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with (self.folder / f"{name}.log").open("ab") as words:
            command, pipe = [sys.executable, "-m", "context_bench", *arguments], asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *command, stdout=pipe, stderr=words, env=known, cwd=self.folder
            )
        self.living[name] = process
        if look:
            self.watched.append(soak_watch.Watched(name, process.pid))
        return process

    async def said(self, name: str, *arguments: str) -> str:
        """What a command prints, which must end well."""
        process = await self.start(name, *arguments, look=False)
        out, _ = await process.communicate()
        del self.living[name]
        if process.returncode:
            raise Broken(f"{' '.join(arguments)} ended with {process.returncode}")
        return out.decode()

    async def end(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a program that was started here."""
        process = self.living.pop(name, None)
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
        try:
            await asyncio.wait_for(process.wait(), 30)  # who started it may be reading what it says
        except TimeoutError:
            self.broken.append(f"{name} did not end within 30 s of signal {how}")
            process.kill()
            await process.wait()

    async def end_all(self) -> None:
        """End what still lives."""
        for name in list(self.living):
            await self.end(name)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended, in seconds; 0 of one that is gone."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


async def listening(port: int, seconds: float = 60.0) -> None:
    """Wait until somebody listens on a port of loopback."""
    for _ in range(int(10 * seconds)):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        await asyncio.sleep(0.1)
    raise Broken(f"nobody listens on port {port} after {seconds:g} s")


def free_port() -> int:
    """A port on loopback that nobody has."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])
