"""Settings of the whole process during a run: open connections, threads, heartbeat, garbage collection, and the line
about waiting.

Worker threads: a thread past its deadline is abandoned and replaced. Heartbeat: other machines do not take over a live
run. Garbage collection: long-lived objects are frozen, and collections are rare. A terminal line tells that an endpoint
is asked again, since a wait looks like work.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from context_bench.core.errors import Stop
from context_bench.core.machine import FIRST, YOUNG

#: Descriptors a run needs besides those of its workers: store, logs, pipes, listening sockets.
_SPARE = 64
#: Descriptors of one worker: to the proxy; with an own tap, from it, and on to the provider.
_EACH = 4


def enough_descriptors(workers: int) -> tuple[int, list[str]]:
    """The number of workers that fits, after raising the soft limit of open files as far as needed; and what there is
    to say about it.
    """
    try:
        import resource
    except ImportError:  # no such limit on this system
        return workers, []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = workers * _EACH + _SPARE
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return workers, []
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    fits = max(1, (soft - _SPARE) // _EACH)
    if fits >= workers:
        return workers, []
    return fits, [
        f"{workers} workers need about {needed} open files, this system allows {soft}: running with {fits} (ulimit -n "
        "raises it)"
    ]


class OneThread(Executor):
    """An executor with a single daemon thread, started when first used: the interpreter can end while a call hangs in
    it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` in the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the thread end when it is done with what it does."""
        self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, function = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:  # carried to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, function  # nothing of a finished call is kept alive


#: Seconds between two of them; a run that has shown none for six times as long is taken for dead.
EVERY = 20.0


@asynccontextmanager
async def heartbeat(show: Callable[[], Awaitable[object]], every: float = EVERY) -> AsyncIterator[None]:
    """Call `show` again and again for the block, however long an example takes. If it fails, so does the work, and says
    so.
    """

    async def going() -> None:
        with suppress(Stop):
            while True:
                await asyncio.sleep(every)
                await show()

    task = asyncio.create_task(going())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


#: Seconds in which one fault is said once, and kinds of fault that are remembered.
_EVERY, _MOST = 30.0, 100


class Waiting:
    """Called with each fault; passes it to `say` at first, and again only if it is still there much later."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._say, self._monotonic = say, monotonic
        self._said: dict[str, float] = {}

    def __call__(self, fault: str) -> None:
        """One attempt failed with `fault`, and another one will be made."""
        now = self._monotonic()
        known = self._said.get(fault)
        if (known is not None and now - known < _EVERY) or len(self._said) >= _MOST:
            return
        self._said[fault] = now
        self._say(f"{fault}: trying again")


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom, and leave alone what exists now (modules, plans): a tenth of a run's CPU otherwise. As it was
    before, afterwards.

    Does nothing where somebody has turned the collector off or slowed it down further.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not 0 < before[0] <= FIRST:
        yield
        return
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
