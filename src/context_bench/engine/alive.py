"""Signs of life of a run, for processes on other machines that would take it up if it were dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from context_bench.core.errors import Stop

#: Seconds between two of them; a run that has shown none for six times as long is taken for dead.
EVERY = 20.0


@asynccontextmanager
async def signs_of_life(show: Callable[[], Awaitable[object]], every: float = EVERY) -> AsyncIterator[None]:
    """Call `show` again and again for the block, however long an example takes. If it fails, so does the work, and says so."""

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
