"""A tap on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol


class Startable(Protocol):
    """What is served: a tap."""

    async def start(self) -> object:
        """Serve on the running loop."""

    async def stop(self) -> None:
        """Serve no more."""


class TapThread(threading.Thread):
    """Runs a tap on an event loop of its own."""

    def __init__(self, tap: Startable) -> None:
        super().__init__(name="context-bench-tap", daemon=True)
        self._tap = tap
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    def start(self) -> None:
        """Start it and wait until it serves; raises what went wrong."""
        super().start()
        self._ready.wait()
        if self._fault is not None:
            self.join()
            raise self._fault

    def finish(self) -> None:
        """Stop the tap and wait for it."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self.join()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._tap.start()
        except BaseException as error:
            self._fault = error
            return
        finally:
            self._ready.set()
        await self._over.wait()
        await self._tap.stop()
