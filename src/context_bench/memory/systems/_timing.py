"""How long a memory takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from context_bench.core import calling
from context_bench.core.clock import Clock


async def timed(clock: Clock, function: Callable[..., Any], *args: Any, **told: Any) -> tuple[Any, float]:
    """What `function` gives and the seconds it took, without the way into its thread."""

    def measured() -> tuple[Any, float]:
        before = clock.monotonic()
        return function(*args, **told), clock.monotonic() - before

    if asyncio.iscoroutinefunction(function):
        before = clock.monotonic()
        return await function(*args, **told), clock.monotonic() - before
    found, seconds = await calling.call(measured)
    if inspect.isawaitable(found):
        before = clock.monotonic()
        return await found, seconds + clock.monotonic() - before
    return found, seconds
