"""Settings of the C allocator, made once when a command starts."""

from __future__ import annotations

import os
import sys

_M_ARENA_MAX = -8  # of glibc's malloc.h
_ARENAS = 1


def bound_arenas() -> bool:
    """Let all threads of this process allocate from one heap; returns False where the allocator has no such setting.

    By default glibc gives each thread a heap of its own (up to eight a core), and a hole that a reply left in one is
    never filled by another thread: the memory of a tap or a viewer creeps up for hours although nothing is kept.
    `MALLOC_ARENA_MAX` in the environment is the user's choice and stands.
    """
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_M_ARENA_MAX, _ARENAS))
