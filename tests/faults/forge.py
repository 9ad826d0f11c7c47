"""A program that tests start once, with the address of a model: it imports everything, then forks a child for every order.

Orders are lines of JSON on stdin. `{"start": SCENE, "arguments": {…}, "fault": {…}}` answers `{"pid": N}`; `{"wait": N}` answers with
`status` (an exit code, or minus the signal), `said` (what the scene returned) and `out` (what was printed).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import injected
import scenes


def child(order, place):
    """The forked child: arms its fault, plays its scene, and ends without any clean-up of the program it was forked from."""
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
    places = {}
    with tempfile.TemporaryDirectory() as folder:
        scenes.warm(sys.argv[1], Path(folder))
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
                    child(order, place)
                places[pid] = place
                answer = {"pid": pid}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
