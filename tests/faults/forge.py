"""A program that tests start once: it imports everything, then forks a child for every order. Its arguments: the
process id of who starts it, with whom it dies, and its children with it, so that killed tests leave nothing running;
the address of a model (without one nothing is warmed up).

Orders are lines of JSON on stdin. `{"start": SCENE, "arguments": {…}, "fault": {…}}` answers `{"pid": N}`;
`{"wait": N}` answers with `status` (an exit code, or minus the signal), `said` (what the scene returned) and `out`
(what was printed).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import injected
import scenes

_PDEATHSIG = 1


def die_with(parent):
    """Be killed when the process `parent`, which started this one, is gone; now if it is gone already."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def child(order, place, parent):
    """The forked child: arms its fault, plays its scene, and ends without any clean-up of the program it was forked
    from.
    """
    die_with(parent)
    heard = os.open(place / "out", os.O_CREAT | os.O_WRONLY)
    for number in (1, 2):
        os.dup2(heard, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setpgid(0, 0)
    code, told = 0, {}
    try:
        told = injected.arm(order.get("fault") or {})
        found = scenes.SCENES[order["start"]](**order.get("arguments", {}))
        (place / "said").write_text(json.dumps({**(found or {}), **told}))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        (place / "said").write_text(json.dumps(told))
    except BaseException:
        traceback.print_exc()
        code = 70
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the scene may have closed it
            stream.flush()
    os._exit(code)


def main():
    die_with(int(sys.argv[1]))
    places, own = {}, os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[2:]:
            scenes.warm(sys.argv[2], Path(folder))
        gc.collect()
        gc.freeze()  # pages that nobody touches are shared by all children
        for line in sys.stdin:
            order = json.loads(line)
            if "wait" in order:
                pid, place = order["wait"], places.pop(order["wait"])
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                said = place / "said"
                answer = {
                    "status": status,
                    "said": json.loads(said.read_text()) if said.exists() else None,
                    "out": (place / "out").read_text(errors="replace") if (place / "out").exists() else "",
                }
            else:
                place = Path(tempfile.mkdtemp(dir=folder))
                pid = os.fork()
                if pid == 0:
                    child(order, place, own)
                places[pid] = place
                answer = {"pid": pid}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
