"""Work beside the caller: an event loop in a thread of its own, or a process of its own.

The loop lets plain functions use async code from a script, a thread, or inside a running loop. A process is for work
that would hold up others: the interpreter lets one thread work at a time, so another thread is not enough. As long as
all there is to do is small it is done here, since a way to another process and back costs more. With the first large
piece the object that does the work, and remembers what it must, is handed over; all later work is done there, in order.
Several such objects may share a process: then only one of them holds a large body at a time, and libraries and
vocabularies are loaded once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import logging
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, TypeVar

from context_bench.core.machine import give_back, return_large_blocks

T = TypeVar("T")


class Background:
    """An event loop that runs in a daemon thread, started when first used.

    The caller's context variables (the open ledger among them) hold inside the coroutine. A call made from this very
    loop, by sync code that async code of ours has called, is done on a second loop of the same kind: it blocks the
    first one but never locks up.
    """

    def __init__(self, name: str = "context-bench") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._nested: Background | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` to its end and give back its result or raise its error. Ctrl-C cancels it."""
        loop = self.loop()
        if self.inside:
            return self._inner().run(coroutine)
        future: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(lambda done: _transfer(done, future))

        loop.call_soon_threadsafe(start, context=contextvars.copy_context())
        try:
            return future.result()
        except BaseException:
            if not future.done():
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise

    def close(self) -> None:
        """End the thread and its loop; what still runs on it is cancelled."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def inside(self) -> bool:
        """True for code that runs in this loop's own thread."""
        return threading.current_thread() is self._thread

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running. A forked child gets a new one, since threads do not survive a fork."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid() or self._thread is None or not self._thread.is_alive():
                self._start()
            assert self._loop is not None
            return self._loop

    def _start(self) -> None:
        ready = threading.Event()

        def serve() -> None:
            with asyncio.Runner() as runner:
                self._loop = loop = runner.get_loop()
                loop.call_soon(ready.set)
                _serve(loop, lambda: self._loop is loop)

        self._pid, self._nested = os.getpid(), None
        self._thread = threading.Thread(target=serve, name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def _inner(self) -> Background:
        with self._lock:
            if self._nested is None:
                self._nested = Background(f"{self._name}-inner")
            return self._nested


def _serve(loop: asyncio.AbstractEventLoop, wanted: Callable[[], bool]) -> None:
    """Run `loop` for as long as it is wanted. A task that raises one of the two below has it as its own error, but
    `asyncio` lets it out of the loop as well: the loop goes on, for the tasks of others run on it.
    """
    while True:
        try:
            loop.run_forever()
            return
        except (SystemExit, KeyboardInterrupt):
            if not wanted():
                return


def _transfer(task: asyncio.Task[T], future: Future[T]) -> None:
    if task.cancelled():
        future.cancel()
        return
    error = task.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


BACKGROUND = Background()


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` on the one background loop of this process, from anywhere, and wait for its result."""
    return BACKGROUND.run(coroutine)


#: Seconds after which a thread that computes lets another one work, in short turns.
_TURN = 0.0005
_turns_lock, _turns, _usual_turn = threading.Lock(), 0, 0.0


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """For work in threads of this process that others should not wait for: the interpreter lets them in ten times as
    often.
    """
    global _turns, _usual_turn
    with _turns_lock:
        if not _turns:
            _usual_turn = sys.getswitchinterval()
            sys.setswitchinterval(min(_TURN, _usual_turn))
        _turns += 1
    try:
        yield
    finally:
        with _turns_lock:
            _turns -= 1
            if not _turns:
                sys.setswitchinterval(_usual_turn)


_log = logging.getLogger("context_bench.tap")

#: Bytes of a body from which on work at it is large.
LARGE = 512 * 1024
#: Bytes that the process may take beyond what it has when it begins, and seconds that one piece of work may take.
_MEMORY, _SECONDS = 768 * 2**20, 60.0
_CHILD = "import sys; sys.path[:] = {path!r}; from context_bench.llm.background import main; main({pipe}, {memory})"


class Lost(Exception):
    """A piece of work could not be done; the text says how the process failed, or the type of the exception.

    `too_large`: it ended, ran out of memory or took too long.
    """

    def __init__(self, how: str, *, too_large: bool = False) -> None:
        super().__init__(how)
        self.too_large = too_large


class WorkProcess:
    """A process that does work for one `Apart` or for several, one piece after the other: what it needs at its most is
    what one piece needs.

    It starts with the first piece. `seconds` that one piece may take, and `memory`: bytes that the process may take
    beyond what it has when it begins.
    """

    def __init__(self, seconds: float = _SECONDS, memory: int = _MEMORY) -> None:
        self._seconds, self._memory, self._free = seconds, memory, threading.Lock()
        self._workers = itertools.count()
        self._taken: set[int] = set()  # workers that the process has
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection[Any, Any] | None = None

    @property
    def runs(self) -> bool:
        """True once it has started, until it ends."""
        return self._process is not None

    def number(self) -> int:
        """A number for one more worker."""
        return next(self._workers)

    def do(self, number: int, worker: bytes, method: str, work: Any) -> Any:
        """Have a method of a numbered worker called. Raises `Lost`."""
        with self._free:
            try:
                failure, answer = self._asked(number, worker, method, work)
            except (
                Exception
            ) as error:  # whatever it is, the pipes may hold half a message: the next piece of work gets a new process
                lost = self._lost(error)
                self._end()
                raise lost from None
        if failure is not None:
            raise _lost(failure)
        return answer

    def _asked(self, number: int, worker: bytes, method: str, work: Any) -> tuple[str | None, Any]:
        if self._process is None or self._pipe is None:
            self._process, self._pipe = _started(self._memory)
        until, watchdog = time.monotonic() + self._seconds, threading.Timer(self._seconds, self._process.kill)
        watchdog.start()  # a process that hangs may do so before it has taken its work, or in the middle of its answer
        try:
            self._pipe.send((number, None if number in self._taken else worker, method, work))
            self._taken.add(number)
            found: tuple[str | None, Any] = self._pipe.recv()  # our own bytes: the pipe has no other end
        except (EOFError, OSError) as error:
            raise TimeoutError if time.monotonic() >= until else error from None
        finally:
            watchdog.cancel()
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
        """End the process, once it is through with its piece of work."""
        with self._free:
            self._end()

    def _end(self) -> None:
        process, pipe, self._process, self._pipe = self._process, self._pipe, None, None
        self._taken.clear()
        if process is not None and pipe is not None:
            process.kill()  # it keeps nothing that is not in memory
            pipe.close()
            process.wait()


class Apart:
    """Does the work of `worker`: its public methods of one argument, which must be picklable, as it is itself.

    A worker that cannot be handed over stays here. For one thread at a time. `process`: one that works for others too,
    and that its maker closes; what they work at is waited for. If it ends, all of them begin again as they were when
    they were handed over.
    """

    def __init__(self, worker: Any, process: WorkProcess | None = None) -> None:
        self._worker, self._process, self._own = worker, process or WorkProcess(), process is None
        self._number = self._process.number()
        self._handed: bytes | None = (
            None  # the worker as it was when it was handed over; a new process begins with it again
        )
        self._bound = False

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
        if self._handed is not None:
            return self._process.do(self._number, self._handed, method, work)
        try:
            return getattr(self._worker, method)(work)
        except Exception as error:
            raise _lost(type(error).__name__) from error

    def close(self) -> None:
        """End the process, unless others use it too."""
        if self._own:
            self._process.close()


def _lost(kind: str) -> Lost:
    return Lost(kind, too_large=kind == "MemoryError")


def _started(memory: int) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    ours, theirs = Pipe()
    code = _CHILD.format(path=sys.path, pipe=theirs.fileno(), memory=memory)
    nowhere = subprocess.DEVNULL  # tracebacks and panics can quote a body
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            pass_fds=(theirs.fileno(),),
            process_group=0,  # Ctrl-C is not for it
        )
    return process, ours


def main(pipe: int, memory: int) -> None:
    """Be the process: take pieces of work until there are no more, each worker with its first one."""
    orders: Connection[Any, Any] = Connection(pipe)
    _limit_memory(memory)
    return_large_blocks()
    workers: dict[int, Any] = {}
    while True:
        try:
            data = orders.recv_bytes()
        except EOFError:
            return
        large = len(data) > LARGE
        number, worker, method, work = pickle.loads(data)  # our own bytes: the pipe has no other end
        del data
        if worker is not None:
            workers[number] = pickle.loads(worker)
        orders.send_bytes(_answer(workers[number], method, work))
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
