"""The child of `_symbols`: reads `[wanted, given]` as JSON, one a line, and writes 1 or 0. Run as a script, never
imported.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys

MEMORY = 2 << 30  # bytes of address space


def main() -> None:
    """Load, say that we are ready, answer until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    seconds = float(sys.argv[1])
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig()]

    def read(formula: str) -> list[object]:
        return list(parse(f"${formula}$", extraction_config=config, fallback_mode="no_fallback", parsing_timeout=None))

    verify(read("x+1"), read("1+x"), timeout_seconds=None)  # tables that are built on first use
    _limit_memory()
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        wanted, given = json.loads(line)
        _allow(seconds)
        same = False
        with contextlib.suppress(Exception):
            gold, made = read(wanted), read(given)
            same = bool(gold and made and verify(gold, made, timeout_seconds=None))
        _allow(0)
        answers.write(f"{int(same)}\n")
        answers.flush()


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow(seconds: float) -> None:
    """Let the system end this process after so many seconds of processor time; no handler, which a long multiplication
    would not run.
    """
    import signal

    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    main()
