"""Calls by the work that made them: a ledger is open while one work item runs, and takes every call made meanwhile.

The current ledger lives in a context variable, so concurrent work does not mix, and a system written by a user need not
know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.protocols import Spend
from context_bench.core.records import Account, Call, Usage


@dataclass(frozen=True, slots=True)
class Mark:
    """A sign by which the calls of one conversation are recognised behind a proxy.

    `mode` "key": `token` is sent as the API key (the tap swaps in the real one); "header": as `x-context-bench`;
    "serial": nothing is sent, the tap attributes by time.
    """

    mode: str
    token: str


@dataclass(frozen=True, slots=True)
class BaselinePairing:
    """The way in which one piece of work goes with the baseline's on the same example, for a tap that both pass.

    `example`: names the example, its trial and the baseline. `first`: the work is the baseline's own, whose replies are
    remembered. `copies`: a request that arrives as one of the baseline's did is answered with the reply to that one.
    `aside`: text that we ourselves put in front of each request of this arm; it is left out when requests are compared.
    `evidence`: pieces of the context; a request in which all of them arrived is taken for the baseline's only one.
    """

    example: str
    first: bool = False
    copies: bool = True
    aside: str = ""
    evidence: Sequence[str] = ()


@dataclass(slots=True)
class Ledger:
    """The calls of one piece of work on one account, and the rules that hold for them.

    `replies`: what a `ReplyCache` is to remember, by key; kept together with the calls that paid for it, never before
    them. `waiting`: who is told of a wait for an endpoint that gives no answer. `brief`: somebody stands by, so what
    looks down is asked once more at most. `in_full`: tokens of the request as it would have been sent, where a system
    of this process shortens before it asks.
    """

    account: Account = "system"
    mark: Mark | None = None
    spend: Spend | None = None
    deadline: float | None = None  # on the clock's monotonic(); the whole example's, not one attempt's
    calls: list[Call] = field(default_factory=list)
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: Callable[[str], None] | None = None
    brief: bool = False
    in_full: int | None = None

    def record(self, call: Call) -> None:
        """Write one attempt down."""
        self.calls.append(call)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for a slot or in back-off."""
        return sum(call.waited for call in self.calls)

    @property
    def usage(self) -> Usage | None:
        """Billed tokens of all attempts, or `None` if no reply told."""
        known = [call.usage for call in self.calls if call.usage]
        return sum(known[1:], known[0]) if known else None

    @property
    def cost(self) -> float | None:
        """US dollars of all attempts, or `None` if no price is known."""
        known = [call.cost for call in self.calls if call.cost is not None]
        return sum(known) if known else None


_current: ContextVar[Ledger | None] = ContextVar("context_bench_ledger", default=None)


def current_ledger() -> Ledger | None:
    """The ledger that calls made right here belong to, if one is open."""
    return _current.get()


class open_ledger:
    """Make `ledger` the current one for the block (and for tasks and threads started with its context)."""

    __slots__ = ("_ledger", "_token")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> Ledger:
        self._token: Token[Ledger | None] = _current.set(self._ledger)
        return self._ledger

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
