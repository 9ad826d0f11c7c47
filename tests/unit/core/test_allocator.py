"""The C allocator of a command: one heap, however many threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_HEAPS = """
import ctypes, os, sys, tempfile, threading
from context_bench.core.allocator import bound_arenas
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


def _heaps(**environment: str) -> int:
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | environment
    done = subprocess.run([sys.executable, "-c", _HEAPS], env=known, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_threads_share_one_heap_unless_the_user_says_otherwise() -> None:
    assert _heaps() == 1
    assert _heaps(MALLOC_ARENA_MAX="8") > 1
