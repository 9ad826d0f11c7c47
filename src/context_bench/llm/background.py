"""One event loop in a thread of its own, so that plain functions can use async code from a script, a thread, or inside
a running loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

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
                self._loop = runner.get_loop()
                self._loop.call_soon(ready.set)
                self._loop.run_forever()

        self._pid, self._nested = os.getpid(), None
        self._thread = threading.Thread(target=serve, name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def _inner(self) -> Background:
        with self._lock:
            if self._nested is None:
                self._nested = Background(f"{self._name}-inner")
            return self._nested


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
