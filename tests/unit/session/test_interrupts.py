"""What a command that is interrupted knows of the processes it started."""

import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.session.interrupts import children


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads what Linux says of processes")
def test_a_thread_that_ends_meanwhile_hides_no_child(monkeypatch):
    listed = Path.glob
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: [folder / "0" / "children", *listed(folder, pattern)])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.pid in children()
        child.communicate(b"\n")
    assert child.pid not in children()


_STRUCK = """
import asyncio, collections, signal, sys
from context_bench.session import interrupts

woken, struck = [], []

class Ready(collections.deque):
    def popleft(self):
        handle = super().popleft()  # the loop's next step has been taken out, and is not run yet
        if woken and not struck:
            struck.append(1)
            signal.raise_signal(signal.SIGTERM)
        return handle

async def answering(event):
    await event.wait()
    await asyncio.sleep(60)

async def main():
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    answer = asyncio.create_task(answering(event))
    await asyncio.sleep(0)
    loop._ready = Ready(loop._ready)
    loop.call_soon(lambda: (event.set(), woken.append(1)))
    try:
        await asyncio.sleep(60)
    finally:
        print("taken down", flush=True)

with interrupts.noticed(["view"]):
    try:
        interrupts.looped(main())
    except KeyboardInterrupt:
        sys.exit("ended")
"""


def test_sigterm_between_two_steps_of_the_loop_ends_a_server_all_the_same():
    ended = subprocess.run([sys.executable, "-c", _STRUCK], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("taken down\n", "ended\n", 1)
