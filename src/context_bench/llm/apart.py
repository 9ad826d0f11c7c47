"""Work that would hold up others, in a process of its own: the interpreter lets one thread work at a time, so another
thread is not enough.

As long as all there is to do is small it is done here, since a way to another process and back costs more. With the
first large piece the object that does the work, and remembers what it must, is handed over; all later work is done
there, in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import resource
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from context_bench.core.allocator import give_back

_log = logging.getLogger("context_bench.tap")

#: Bytes of a body from which on work at it is large.
LARGE = 512 * 1024
#: Bytes that the process may take beyond what it has when it begins, and seconds that one piece of work may take.
_MEMORY, _SECONDS = 768 * 2**20, 60.0
_CHILD = "import sys; sys.path[:] = {path!r}; from context_bench.llm.apart import main; main({memory})"


class Lost(Exception):
    """A piece of work could not be done; the text says how the process failed, or the type of the exception.

    `too_large`: it ended, ran out of memory or took too long.
    """

    def __init__(self, how: str, *, too_large: bool = False) -> None:
        super().__init__(how)
        self.too_large = too_large


class Apart:
    """Does the work of `worker`: its public methods of one argument, which must be picklable, as it is itself.

    A worker that cannot be handed over stays here. For one thread at a time. `seconds` that one piece of work may take,
    and `memory`: bytes that the process may take beyond what it has when it begins.
    """

    def __init__(self, worker: Any, seconds: float = _SECONDS, memory: int = _MEMORY) -> None:
        self._worker, self._seconds, self._memory = worker, seconds, memory
        self._handed: bytes | None = (
            None  # the worker as it was when it was handed over; a new process begins with it again
        )
        self._bound = False
        self._process: subprocess.Popen[bytes] | None = None

    def away(self, *, large: bool) -> bool:
        """Hand the worker over to its process if the next piece is `large`. Returns True if the process does that
        piece.
        """
        if large and self._handed is None and not self._bound:
            try:
                self._handed = pickle.dumps(self._worker, pickle.HIGHEST_PROTOCOL)
                self._worker = None
            except Exception as error:  # somebody's own prices or clock, say
                _log.warning("what reads bodies stays in this process: it cannot be pickled (%s)", type(error).__name__)
                self._bound = True
        return self._handed is not None

    def do(self, method: str, work: Any) -> Any:
        """Call the worker's method. Raises `Lost`."""
        if self._handed is None:
            try:
                return getattr(self._worker, method)(work)
            except Exception as error:
                raise _lost(type(error).__name__) from error
        try:
            failure, answer = self._asked(self._handed, method, work)
        except (
            Exception
        ) as error:  # whatever it is, the pipes may hold half a message: the next piece of work gets a new process
            lost = self._lost(error)
            self.close()
            raise lost from None
        if failure is not None:
            raise _lost(failure)
        return answer

    def _asked(self, worker: bytes, method: str, work: Any) -> tuple[str | None, Any]:
        if self._process is None:
            self._process = _started(self._memory)
            _send(_pipe(self._process.stdin), worker)
        _give(_pipe(self._process.stdin), (method, work))
        found: tuple[str | None, Any] = _taken(_pipe(self._process.stdout), self._seconds)
        return found

    def _lost(self, error: Exception) -> Lost:
        if not isinstance(error, OSError | EOFError):
            return _lost(type(error).__name__)
        if self._process is None:
            return Lost(f"the process that reads could not be started: {type(error).__name__}")
        return Lost(
            f"the process that read it {'took too long' if isinstance(error, TimeoutError) else 'ended'}",
            too_large=True,
        )

    def stop(self) -> None:
        """From any thread: what the process does now is lost."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # it keeps nothing that is not in memory
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                _pipe(pipe).close()
        process.wait()


def _lost(kind: str) -> Lost:
    return Lost(kind, too_large=kind == "MemoryError")


def _started(memory: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _CHILD.format(path=sys.path, memory=memory)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL  # tracebacks and panics can quote a body
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=nowhere, process_group=0, bufsize=0
    )  # Ctrl-C is not for it


def main(memory: int) -> None:
    """Be the process: take the worker, then pieces of work until there are no more."""
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints is no answer
    _limit_memory(memory)
    worker = _taken(orders)
    while True:
        try:
            data = _message(orders)
        except EOFError:
            return
        large, (method, work) = len(data) > LARGE, pickle.loads(data)
        del data
        _send(answers, _answer(worker, method, work))
        del work
        if large:
            give_back()  # there may be several such processes, and none should hold what only its last body needed


def _answer(worker: Any, method: str, work: Any) -> bytes:
    """The type of the exception, or `None`, and what the method returned; pickled.

    An exception itself may not unpickle, and its text may quote a body.
    """
    try:
        return pickle.dumps((None, getattr(worker, method)(work)), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # a panic of a library written in Rust is no `Exception`
        return pickle.dumps((type(error).__name__, None), pickle.HIGHEST_PROTOCOL)


def _limit_memory(memory: int) -> None:
    with contextlib.suppress(OSError, ValueError):  # a system without such limits
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + memory, held + memory))


def _pipe(pipe: Any) -> BinaryIO:
    assert pipe is not None
    found: BinaryIO = pipe
    return found


def _give(pipe: BinaryIO, value: Any) -> None:
    _send(pipe, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _send(pipe: BinaryIO, data: bytes) -> None:
    for part in (len(data).to_bytes(8, "big"), data):
        left = memoryview(part)
        while left:
            left = left[pipe.write(left) or 0 :]
    pipe.flush()


def _taken(pipe: BinaryIO, seconds: float | None = None) -> Any:
    return pickle.loads(_message(pipe, seconds))  # our own bytes: the pipe has no other end


def _message(pipe: BinaryIO, seconds: float | None = None) -> bytearray:
    until = None if seconds is None else time.monotonic() + seconds
    size = int.from_bytes(_read(pipe, 8, until), "big")
    return _read(pipe, size, until)


def _read(pipe: BinaryIO, size: int, until: float | None) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        if until is not None and not _readable(pipe, until - time.monotonic()):
            raise TimeoutError
        got = pipe.readinto(left)  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        left = left[got:]
    return data


def _readable(pipe: BinaryIO, seconds: float) -> bool:
    waiting = select.poll()  # `select.select` takes no descriptor above 1,023
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))
