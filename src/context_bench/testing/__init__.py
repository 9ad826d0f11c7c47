"""For people who test things that stand between a client and a model: loopback proxies with habits, a hostile provider,
contracts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from context_bench.core.errors import describe
from context_bench.core.protocols import call, method


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not kept to: the name of the check, and what it met."""

    check: str
    problem: str

    def __str__(self) -> str:
        return f"{self.check}: {self.problem}"


async def findings(
    make: Callable[[], Any], checks: Iterable[Callable[..., Awaitable[list[str]]]], *given: Any, seconds: float
) -> list[Finding]:
    """Run the checks, each with one of its own that `make()` gives, `given`, and `seconds` of time."""
    found: list[Finding] = []
    for check in checks:
        name = check.__name__.lstrip("_")
        try:
            async with asyncio.timeout(seconds), _open(make) as subject:
                found += [Finding(name, problem) for problem in await check(subject, *given)]
        except TimeoutError:
            found.append(Finding(name, f"took more than {seconds:g} s"))
        except Exception as error:
            found.append(Finding(name, f"raised {describe(error)}"))
    return found


def insist(found: Sequence[Finding], what: str) -> None:
    """`AssertionError` with every finding about `what`, if there are any."""
    if found:
        raise AssertionError(
            "\n".join([f"the {what} does not keep the contract:", *(f"  - {finding}" for finding in found)])
        )


@asynccontextmanager
async def _open(make: Callable[[], Any]) -> AsyncIterator[Any]:
    subject = await call(make)
    try:
        yield subject
    finally:
        close = method(subject, "aclose", "close")
        if close is not None:
            await call(close)
