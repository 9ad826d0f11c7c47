"""What several of these tests need: a program that forks runs to be killed, a provider that keeps what it was asked."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer


@dataclass
class Forks:
    """A program of this folder that forks a run for every line on its stdin (`forking.py`)."""

    process: asyncio.subprocess.Process

    @classmethod
    async def of(cls, program, *arguments):
        command = (sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments))
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        )

    async def start(self):
        """Begin a run; its pid."""
        self.process.stdin.write(b"go\n")
        await self.process.stdin.drain()
        return int(await self.process.stdout.readline())

    async def all_of(self, *words):
        """Let one run for each of these last arguments go on at once; their exit codes."""
        self.process.stdin.write(f"go {' '.join(words)}\n".encode())
        await self.process.stdin.drain()
        assert len((await self.process.stdout.readline()).split()) == len(words)
        return list(map(int, (await self.process.stdout.readline()).split()[1:]))

    async def ended(self):
        """Wait for the run to be gone; its exit code."""
        word, code = (await self.process.stdout.readline()).split()
        assert word == b"ended"
        return int(code)

    async def close(self):
        """Let the program end, which it does without an error."""
        self.process.stdin.close()
        assert await self.process.wait() == 0


@pytest.fixture
def forks():
    """(program, arguments) → `Forks`."""
    return Forks.of


@pytest.fixture
def provider(data):
    """The address of a provider that answers by the answer key `data[1]` of a test, and the requests that it got."""
    asked = []

    class Counting(Scripted):
        async def reply(self, request, headers):
            asked.append(request)
            return await super().reply(request, headers)

    server = ModelServer(Counting({"answer_key": data[1], "default": "Nobody"}))
    run_sync(server.start())
    yield server.url, asked
    run_sync(server.stop())
