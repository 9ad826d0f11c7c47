"""A process with more open files than `select.select` takes, 1,024, works on: servers and long runs have as many."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import aiohttp

from context_bench.session import interrupts
from context_bench.tap import Tap


@contextlib.contextmanager
def many_descriptors(many: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 500), hard))
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        first = os.open(os.devnull, os.O_RDONLY)
        opened.callback(os.close, first)
        for _ in range(many):
            opened.callback(os.close, os.dup(first))
        yield


async def test_the_tap_records_on_and_stops():
    large, small = (
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"%b"}]}' % (b"Hi. " * many)
        for many in (200_000, 1)
    )
    with many_descriptors(1_100):
        async with asyncio.timeout(20), Tap("echo", record="meta") as tap, aiohttp.ClientSession() as client:
            for body in (large, small):
                async with client.post(f"{tap.url}/v1/chat/completions", data=body) as reply:
                    await reply.read()
            await tap.settle()
            assert tap._reader._apart._process is not None
            records = tap.records
    assert [record.facts.get("unread") for record in records] == [None, None]
    assert all(record.tokens for record in records)


def test_a_program_left_running_is_ended(capsys):
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with many_descriptors(1_100):
        interrupts._end(left.pid, "a program")
    assert left.wait(5) != 0
    assert "ended a program that was left running" in capsys.readouterr().err
