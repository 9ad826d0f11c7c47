"""Started in front of a command that has no sandbox around it: becomes the parent of whatever the command leaves, and
ends it.

Run as a program, not imported. It only helps against what is left by mistake: a command of the same user can end this
process as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def _children() -> list[int]:
    children, own = [], str(os.getpid()).encode()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    if file.read().rpartition(b")")[2].split()[1] == own:
                        children.append(int(name))
            except OSError:
                continue
    return children


def main(argv: list[str]) -> int:
    """Run `argv`; its exit status, 128 + the signal that ended it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        try:
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(127)
    status = os.waitpid(child, 0)[1]
    while left := _children():
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for _ in left:
            os.waitpid(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
