"""Calls that end in time: whatever a memory does, a suite goes on."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

from context_bench.core.errors import TimedOut


class Lane:
    """One caller of a memory: a thread of its own for plain functions, the running loop for async ones.

    A call that outlives `deadline` seconds is `TimedOut`. A thread that is stuck then is left behind (it cannot be ended, and does not keep
    the process alive) and the next call gets a new one.
    """

    def __init__(self, deadline: float, name: str = "ops") -> None:
        self.deadline, self._name = deadline, name
        self._work: queue.SimpleQueue[Callable[[], None] | None] | None = None

    async def call(self, function: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Any:
        """What `function` gives, awaited if need be; its own errors are raised. `seconds`: another deadline for this call."""
        limit = self.deadline if seconds is None else seconds
        try:
            async with asyncio.timeout(limit) as timer:
                found = function(*args, **kwargs) if inspect.iscoroutinefunction(function) else await self._away(function, args, kwargs)
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            if not timer.expired():  # the memory's own
                raise
            self.close()
            name = getattr(function, "__name__", type(function).__name__)
            raise TimedOut(f"{name}() had not come back after {limit:g} s") from None

    def close(self) -> None:
        """Let the thread end when it is done with what it does."""
        if self._work is not None:
            self._work.put(None)
            self._work = None

    async def _away(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            try:
                found, error = function(*args, **kwargs), None
            except BaseException as raised:  # handed over, whatever it is
                found, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop may be over when a stuck call comes back
                loop.call_soon_threadsafe(_settle, done, found, error)

        if self._work is None:
            self._work = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._work,), name=self._name, daemon=True).start()
        self._work.put(work)
        return await done


def _serve(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := work.get()) is not None:
        job()


def _settle(done: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if isinstance(error, StopIteration):  # cannot be raised into a future
        error = RuntimeError(f"StopIteration: {error}")
    if error is None:
        done.set_result(found)
    else:
        done.set_exception(error)
