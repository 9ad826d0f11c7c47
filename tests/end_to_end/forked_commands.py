"""Commands of one program that was imported once: a fork for each, with the standard streams that the test wants, and
Python's own end.

Reads one JSON list `[argv, stdout, stderr]` a line (streams: "full", "unread", or the path of a file) and answers
`[exit code, seconds]`.
"""

import importlib
import json
import os
import pkgutil
import sys
import time
import traceback

from context_bench import datasets, engine, evaluators, metrics, reports, runner, systems  # noqa: F401 - here, so that forks need not
from context_bench.__main__ import main

for room in ("preflight", "arms", "reporting", "run_session", "run_parts", "runs"):
    importlib.import_module(f"context_bench.session.{room}")
for place in (importlib.import_module("context_bench.engine.store"), reports):
    for module in pkgutil.iter_modules(place.__path__):
        importlib.import_module(f"{place.__name__}.{module.name}")


def opened(stream):
    """A descriptor of such a stream."""
    if stream == "unread":
        reading, writing = os.pipe()
        os.close(reading)
        return writing
    return os.open(
        "/dev/full" if stream == "full" else stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o600
    )


def carry_out(argv, stdout, stderr):
    """Be the command."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(opened(stdout), 1)
    os.dup2(opened(stderr), 2)
    sys.argv = ["context-bench", *argv]
    sys.exit(main())


def serve():
    """Carry out what is asked for, in order."""
    for line in sys.stdin:
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([code, time.monotonic() - began]), flush=True)
    return None


asked = serve()
if asked is not None:
    try:
        carry_out(*asked)
    except Exception:
        traceback.print_exc()
        raise
