"""Errors that nobody foresaw: one sentence for the reader, the traceback in a file for whoever mends it.

Everything that would end in a traceback on the terminal comes here: the command itself, threads, tasks of an event loop
whose exception nobody asked for, finalizers, functions called at exit, and what libraries log as an error. Foreseen
errors are those of `core.errors`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from context_bench.core.errors import ContextBenchError
from context_bench.session import interrupts

#: Exit code of a command that ended by a fault: what Python itself gives for an exception that nobody caught.
CODE = 1
#: Files of earlier faults that are kept, and the length of one.
MOST_FILES, MOST_BYTES = 20, 256_000
#: Sentences of one process; a fault that comes again and again is not worth more.
_MOST_SENTENCES = 10
_PREFIX = "context-bench-fault-"
_MESSAGE = 500  # characters of an error's message in the sentence

_seen: set[tuple[str, str]] = set()  # (class, place) of faults that were reported
_lock = threading.RLock()


@contextmanager
def noticed(*, for_good: bool = False) -> Iterator[None]:
    """For as long as a command runs, faults outside its own call stack are reported too; `for_good`: until the process
    ends.
    """
    before = sys.excepthook, threading.excepthook, sys.unraisablehook, logging.lastResort
    _seen.clear()
    sys.excepthook = _uncaught
    threading.excepthook = _in_thread
    sys.unraisablehook = _unraisable
    logging.lastResort = _Logged(logging.WARNING)
    try:
        yield
    finally:
        if not for_good:
            sys.excepthook, threading.excepthook, sys.unraisablehook, logging.lastResort = before


def exit_code_of(error: BaseException) -> int:
    """Report the fault that ended the command: its sentence, what was kept, where the traceback is. Returns the exit
    code.
    """
    with suppress(Exception):
        left = interrupts.left_behind()
        report(error, more=f"\n{left}" if left else "", last=True)
    return CODE


def report(error: BaseException, *, where: str = "", more: str = "", last: bool = False) -> None:
    """One sentence about a fault on stderr, once for each kind and place; the traceback goes to a file of its own.

    `where`: what was going on ("in thread X"). `more`: what is said besides. `last`: the command ends with it, so it is
    said however often, and after however many others, it was said before. Never raises: there is nobody to catch it.
    """
    try:
        if isinstance(error, ContextBenchError):  # foreseen, but nobody was there to meet it
            _print(f"context-bench: {_shown(str(error), 4_000)}{f' ({_shown(where, 200)})' if where else ''}{more}")
            return
        with _lock:
            kind = (type(error).__name__, _place(error))
            if not last and (kind in _seen or len(_seen) >= _MOST_SENTENCES):
                return
            _seen.add(kind)
            sentence = _sentence(error, where)
            file = _written(error, where)
        place = f"; its traceback is in {_shown(str(file), 1_000)}, please report it" if file else ""
        _print(f"context-bench: {sentence}{place}.{more}")
    except Exception:  # no memory, no disk, no stderr: the least that can be said, without any help
        _print(f"context-bench: this is a fault of context-bench ({type(error).__name__}){more}")


def _sentence(error: BaseException, where: str) -> str:
    message = _shown(" ".join(str(error).split()), _MESSAGE)
    name = _shown(type(error).__name__, 100)
    told = f"{name}: {message}" if message else name
    going_on = f" ({_shown(where, 200)})" if where else ""
    foreign = _foreign(error.__traceback__)
    if foreign:
        return f"the plug-in {_shown(foreign, 400)} failed{going_on}: {told}"
    return f"this is a fault of context-bench{going_on}: {told}"


def _shown(text: str, limit: int) -> str:
    """`text` without keys and without anything that steers a terminal."""
    from context_bench.reports.visible_text import visible

    return visible(_masked(text[: 4 * limit]), limit)


def _masked(text: str) -> str:
    from context_bench.engine.encoding import secrets_of
    from context_bench.llm.redact import redact

    return redact(secrets_of(()).text(text))


# --- the file
# ------------------------------------------------------------------------


def _written(error: BaseException, where: str) -> Path | None:
    """The traceback in a file that its owner alone may read: in the cache folder, else among the temporary files, else
    nowhere.
    """
    from context_bench import __version__

    facts = (
        f"context-bench {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n{interrupts.again()}\n{where}\n"
    )
    text = "".join(traceback.TracebackException(type(error), error, error.__traceback__, limit=-60).format())
    data = _masked(f"{facts}\n{text[-MOST_BYTES:]}").encode("utf-8", "backslashreplace")[-MOST_BYTES:]
    for folder in _trace_places():
        with suppress(OSError):  # no room
            return _new_file(_made(folder), data)
    return None


def _trace_places() -> Iterator[Path]:
    import tempfile

    from context_bench.core.machine import cache_folder

    with suppress(RuntimeError):  # nobody's home
        yield cache_folder() / "faults"
    with suppress(OSError):
        yield Path(tempfile.gettempdir())


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = [file for file in folder.glob(f"{_PREFIX}*.txt") if file.stat().st_uid == os.getuid()]
    for old in sorted(mine, key=lambda file: file.stat().st_mtime)[: -(MOST_FILES - 1)]:
        old.unlink(missing_ok=True)
    return folder


def _new_file(folder: Path, data: bytes) -> Path:
    import tempfile

    handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=".txt", dir=folder)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


# --- whose fault, and where
# ---------------------------------------------------------------------------------------------------


def _place(error: BaseException) -> str:
    last = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        last = f"{frame.f_code.co_filename}:{line}"
    return last or ""


def _foreign(trace: TracebackType | None) -> str:
    """File and line of the plug-in in whose code it happened, "" where that is ours or a library's that we called."""
    import sysconfig

    ours = str(Path(__file__).parents[1]) + os.sep
    libraries = tuple(
        str(path) + os.sep
        for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    )
    found = ""
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if file.startswith(ours):
            found = ""
        elif file.startswith(os.sep) and not file.startswith(libraries):
            found = f"{file}:{line}"
    return found if found and "/bin/" not in found else ""


# --- hooks
# ------------------------------------------------------------------------


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        _print(interrupts.outcome())
        return
    report(error.with_traceback(trace))


def _in_thread(args: Any) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        report(args.exc_value, where=f"in thread {args.thread.name}" if args.thread is not None else "in a thread")


def _unraisable(args: Any) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, KeyboardInterrupt):
        name = getattr(args.object, "__qualname__", type(args.object).__name__)
        report(args.exc_value, where=f"{args.err_msg or 'cleaning up'}: {name}")


class _Logged(logging.Handler):
    """Handle log records without a handler of their own: of asyncio's forgotten tasks, web servers, libraries."""

    def emit(self, record: logging.LogRecord) -> None:
        """A sentence, and the traceback in a file if there is one."""
        with suppress(Exception):
            error = record.exc_info[1] if record.exc_info else None
            message = record.getMessage().partition("\n")[0]
            if error is None:
                _print(f"context-bench: {_shown(message, 2_000)}")
            else:
                report(error, where=f"{record.name}: {message}")


def _print(text: str) -> None:
    with suppress(Exception):
        print(text, file=sys.stderr)
        sys.stderr.flush()
