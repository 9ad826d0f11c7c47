"""The first thing that runs in a sandbox that is tried: whether it contains. Sent inside, like `inside.py`."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def main(data: dict[str, str]) -> None:
    """Raises `AssertionError` with what is open that should not be."""
    assert not _writes("/probe"), "the root folder can be written"
    assert _writes("/tmp/probe"), "/tmp cannot be written"
    assert {name for _, name in socket.if_nameindex()} <= {"lo", "tunl0", "sit0", "ip6tnl0"}, (
        "there is a network interface"
    )
    foreign = set(os.environ) - {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_CTYPE",
        "PYTHONHASHSEED",
        "PWD",
        "HOSTNAME",
        "container",
    }
    assert not {name for name in foreign if not name.startswith(("PYTHON", "GPG_KEY"))}, "the environment is visible"


def _writes(path: str) -> bool:
    try:
        Path(path).write_text("x")
    except OSError:
        return False
    return True
