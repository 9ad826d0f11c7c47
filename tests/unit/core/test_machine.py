"""The C allocator of a command: one heap, however many threads, and its free pages given back."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import subprocess
import sys
import weakref
from typing import Any

import pytest

from context_bench.core import machine
from context_bench.session import interrupts

_HEAPS = """
import ctypes, os, sys, tempfile, threading
from context_bench.core.machine import bound_arenas
bound_arenas()
barrier = threading.Barrier(8)
def work():
    barrier.wait()
    kept = [bytearray(4000) for _ in range(200)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
with tempfile.NamedTemporaryFile() as report:
    file = libc.fopen(report.name.encode(), b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
    print(open(report.name).read().count("<heap nr="))
"""


def _said(program: str, **environment: str) -> str:
    """Run a program in a process of its own, whose allocator nobody has set; returns what it prints."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | environment
    return subprocess.run(
        [sys.executable, "-c", program], env=known, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_threads_share_one_heap_unless_the_user_says_otherwise() -> None:
    assert int(_said(_HEAPS)) == 1
    assert int(_said(_HEAPS, MALLOC_ARENA_MAX="8")) > 1


_HOLES = """
import re
from context_bench.core.machine import bound_arenas, give_back
bound_arenas()
def memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
kept = [bytearray(10_000) for _ in range(6_000)]
full = memory()
kept = kept[::10]  # a hole of nine blocks before each one that stays
print(full - memory(), give_back(), full - memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the call is glibc's")
def test_holes_in_the_heap_are_given_back_to_the_system() -> None:
    by_itself, found, after = _said(_HOLES).split()
    assert float(by_itself) < 5
    assert found == "True"
    assert float(after) > 40


_LARGE_BLOCKS = """
import re
from context_bench.core.machine import return_large_blocks
print(return_large_blocks())
def memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
first = bytearray(20_000_000)
del first  # from now on glibc takes such blocks from its heap
second = bytearray(20_000_000)
above = [bytearray(100_000) for _ in range(20)]
full = memory()
del second
print(full - memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_a_large_block_is_given_back_when_it_is_freed_unless_the_user_says_otherwise() -> None:
    done, freed = _said(_LARGE_BLOCKS).split()
    assert (done, float(freed) > 15) == ("True", True)
    done, freed = _said(_LARGE_BLOCKS, MALLOC_MMAP_THRESHOLD_="30000000").split()
    assert (done, float(freed) < 5) == ("False", True)


def test_without_glibc_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert not machine.give_back()
    assert not machine.bound_arenas()


def test_a_command_gives_memory_back_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def thrice(given: asyncio.Semaphore) -> bool:
        return all([await given.acquire() for _ in range(3)])

    monkeypatch.setattr(interrupts, "_TIDY", 0.0)
    for run in (interrupts.looped, interrupts.run):
        given = asyncio.Semaphore(0)
        monkeypatch.setattr(machine, "give_back", given.release)
        assert run(thrice(given))


def test_what_failed_in_a_command_that_runs_for_days_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    class Circle:
        itself: Any = None

    async def made() -> bool:
        circle = Circle()
        circle.itself = circle
        seen = weakref.ref(circle)
        del circle
        for _ in range(1_000):
            await asyncio.sleep(0)
            if seen() is None:
                return True
        return False

    monkeypatch.setattr(interrupts, "_TIDY", 0.0)
    gc.unfreeze()
    gc.disable()  # as rarely as a command looks of itself
    try:
        assert interrupts.looped(made())
    finally:
        gc.enable()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_circles_are_collected_only_where_that_takes_no_time(monkeypatch: pytest.MonkeyPatch, frozen: bool) -> None:
    collected: list[int] = []
    given = asyncio.Event()

    async def given_back() -> bool:
        return await given.wait()

    monkeypatch.setattr(interrupts, "_TIDY", 0.0)
    monkeypatch.setattr(machine, "give_back", given.set)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: int(frozen))
    assert interrupts.looped(given_back())
    assert bool(collected) == frozen


@pytest.mark.parametrize(
    ("before", "first", "later"),
    [(700, machine.FIRST, machine.YOUNG), (0, 0, 0), (machine.YOUNG * 5, machine.YOUNG * 5, machine.YOUNG * 5)],
)
def test_garbage_is_looked_for_seldom_but_never_more_often_than_somebody_asked_for(
    before: int, first: int, later: int, monkeypatch: pytest.MonkeyPatch
):
    usual, heard, at_exit = gc.get_threshold(), list(gc.callbacks), []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    try:
        gc.set_threshold(before, 10, 10)
        machine.collect_seldom()
        assert gc.get_threshold() == (first, 10, 10)
        assert at_exit == ([gc.freeze] if first == machine.FIRST else [])
        gc.collect()
        assert gc.get_threshold() == (later, 10, 10)
        assert gc.callbacks == heard
    finally:
        gc.set_threshold(*usual)


def test_how_long_threads_spin_is_the_users_choice(monkeypatch):
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "1")  # so that it is put back whatever it was
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT")
    machine.sleep_when_idle()
    assert int(os.environ["OPENBLAS_THREAD_TIMEOUT"]) < 26  # the library's own
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "30")
    machine.sleep_when_idle()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "30"


def test_a_file_that_the_user_names_is_a_file(tmp_path):
    for name, said in (("/dev/zero", "a device"), (tmp_path, "directory"), (tmp_path / "none", "No such file")):
        with pytest.raises(OSError, match=said) as told:
            machine.opened(name)
        assert str(name) in str(told.value)
    assert machine.file_bytes("/dev/null") == b""
    assert machine.file_bytes("/proc/self/comm").endswith(b"\n")


def test_lines_and_whole_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "LINE_LIMIT", 100_000)
    path = tmp_path / "f.jsonl"
    lines = [b"a" * 99_999 + b"\n", b"\n", b"\xff\n", b"no end"]
    path.write_bytes(b"".join(lines))
    with machine.opened(path) as file:
        assert list(file) == lines
    assert machine.file_bytes(path) == b"".join(lines)
    path.write_bytes(b"one\n" + b"b" * 100_001)
    with machine.opened(path) as file, pytest.raises(OSError, match="a line of more than") as told:
        list(file)
    assert str(path) in str(told.value)
    with pytest.raises(OSError, match="more than 0 MiB"):
        machine.file_bytes(path, 100_000)
    with path.open("r+b") as sparse:
        sparse.truncate(2**33)
    with pytest.raises(OSError, match="more than 1,024 MiB"):
        machine.file_bytes(path)


def test_texts_have_one_end_of_line(tmp_path):
    (tmp_path / "t").write_bytes("a\r\nb\rc\n\u00e9".encode())
    assert machine.file_text(tmp_path / "t") == (tmp_path / "t").read_text("utf-8") == "a\nb\nc\n\u00e9"
    (tmp_path / "t").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        machine.file_text(tmp_path / "t")
    assert machine.file_text(tmp_path / "t", "replace") == "\ufffd"


def test_a_pipe_is_read_to_its_end_or_refused(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(machine, "_WRITER", 0.01)
    monkeypatch.setattr(machine, "_SILENCE", 0.01)
    with pytest.raises(OSError, match="nobody writes into"):
        machine.opened(pipe)
    with pytest.raises(OSError, match="nobody reads"):
        machine.opener(str(pipe), os.O_WRONLY)
    reads, writes = os.pipe()
    with pytest.raises(OSError, match="says nothing"):
        machine.opened(f"/dev/fd/{reads}")
    os.write(writes, b"one\ntwo\n")
    os.close(writes)
    with machine.opened(f"/dev/fd/{reads}") as file:
        assert list(file) == [b"one\n", b"two\n"]
    with machine.opened(f"/dev/fd/{reads}") as file:  # its writer has been and gone
        assert file.read() == b""
    os.close(reads)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open(pipe, "wb", opener=machine.opener) as file:
        file.write(b"told")
    assert os.read(held, 100) == b"told"
    os.close(held)
    monkeypatch.setattr(machine, "LINE_LIMIT", 10)
    reads, writes = os.pipe()
    os.write(writes, b"more than ten bytes")
    with pytest.raises(OSError, match="keep it as a file"):
        machine.opened(f"/dev/fd/{reads}")
    os.close(reads)
    os.close(writes)
