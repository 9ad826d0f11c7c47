"""For programs that tests start: import once, then fork a run for every line on stdin, so that 20 kills do not cost 20
imports.

Answers each line with the pid of the run, and `ended` with its exit code when it is gone. Words of a line are one more
argument each for a run of its own: then several run at once.
"""

import asyncio
import os
import sys

from context_bench.core.tokens import count_tokens
from context_bench.engine import open_store
from context_bench.engine.store import reading  # noqa: F401 - imported here so that forks need not


def main(run):
    """`run`: an async function of the command line's words, the second of which is a store, that gives an exit code."""
    arguments = sys.argv[1:]
    count_tokens("load the vocabulary")
    open_store(arguments[1]).close()
    for line in sys.stdin:
        pids = [_forked(run, [*arguments, *more]) for more in [[word] for word in line.split()[1:]] or [[]]]
        print(*pids, flush=True)
        print("ended", *(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids), flush=True)


def _forked(run, arguments):
    pid = os.fork()
    if pid == 0:
        os._exit(asyncio.run(run(*arguments)))
    return pid
