"""The executor on the nodes of a Ray cluster, and what travels to them. The one of this process is `execution.Local`.

An executor does what it is handed and keeps nothing: the schedule, the plan, the limits, the money and the store stay
with the driver. Nodes ask it for slots of the rate limits, money, and the replies that the store remembers; its own
limiter and limit decide. So the sum over all nodes is what one limiter says, a refusal for quota on one node cuts all,
and pauses and paces hold for everybody.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from context_bench.core.errors import Stop
from context_bench.core.keys import forget_oldest
from context_bench.core.ledger import current_ledger
from context_bench.core.protocols import ReplyCache, Spend
from context_bench.llm.limits import Limiter, Quota, RequestEnd as Ended

#: ("ask", ticket, what, number, argument), ("told", ticket, value or Stop), ("drop", ticket), ("free", ticket,
#: arguments), ("done", …)
Message = tuple[Any, ...]


class DriverLink:
    """A node's end: questions to the driver from any of the node's event loops."""

    def __init__(self, loop: asyncio.AbstractEventLoop, post: Callable[[Message], None]) -> None:
        self._loop, self._post, self._thread = loop, post, threading.get_ident()
        self._tickets = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}

    async def ask(self, what: str, number: int, argument: Any) -> tuple[int, Any]:
        """The ticket and the driver's answer; raises the `Stop` it answers with."""
        ticket, answer = self._asked(what, number, argument)
        try:
            return ticket, await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self.say(("drop", ticket))
            raise
        finally:
            self._open.pop(ticket, None)

    def ask_from_thread(self, what: str, argument: Any) -> Any:
        """The driver's answer, waited for in a thread; `None` in the loop's own, where nothing could be heard
        meanwhile.
        """
        if threading.get_ident() == self._thread:
            return None
        ticket, answer = self._asked(what, 0, argument)
        try:
            return answer.result()
        finally:
            self._open.pop(ticket, None)

    def _asked(self, what: str, number: int, argument: Any) -> tuple[int, Future[Any]]:
        ticket, answer = next(self._tickets), Future[Any]()
        self._open[ticket] = answer
        self.say(("ask", ticket, what, number, argument))
        return ticket, answer

    def say(self, message: Message) -> None:
        """Tell the driver, without an answer."""
        self._loop.call_soon_threadsafe(self._post, message)

    def answered(self, ticket: int, value: Any) -> None:
        """The driver has answered."""
        answer = self._open.get(ticket)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if isinstance(value, Stop):
            answer.set_exception(value)
        else:
            answer.set_result(value)


class SharedLimiter:
    """A limiter of the driver's, as a node sees it. Which slot is given back does not matter, only how many are out."""

    def __init__(self, line: DriverLink, number: int) -> None:
        self._line, self._number = line, number
        self._held: list[int] = []

    async def acquire(self, tokens: int = 0) -> int:
        """Wait for a slot of the run's; returns how many requests of all nodes are under way then."""
        ticket, under_way = await self._line.ask("slot", self._number, tokens)
        self._held.append(ticket)
        return int(under_way)

    def release(self, outcome: Ended, pause: float = 0.0, *, tokens: int = 0, quotas: Sequence[Quota] = ()) -> None:
        """Give a slot back and tell how the request ended."""
        self._line.say(("free", self._held.pop(), (outcome, pause, tokens, tuple(quotas))))


class SharedSpend:
    """The driver's money limit, as a node sees it."""

    def __init__(self, line: DriverLink) -> None:
        self._line = line

    async def reserve(self, worst: float) -> int:
        """See `SpendLimit.reserve`."""
        return (await self._line.ask("money", 0, worst))[0]

    def settle(self, ticket: int, actual: float | None) -> None:
        """See `SpendLimit.settle`."""
        self._line.say(("free", ticket, actual))


class NodeReplies:
    """A `ReplyCache` of one node: it remembers what it asked itself, and asks the driver for what is in the store.

    A reply goes to the store with the row that paid for it.
    """

    def __init__(self, line: DriverLink) -> None:
        self._line = line
        self._recent: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply to a request of that key, if this node has seen it or the store has it."""
        recent = self._recent.get(key)
        found = self._line.ask_from_thread("reply", key) if recent is None else recent
        return found if isinstance(found, dict) else None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Remember a reply."""
        forget_oldest(self._recent, 1_000)
        self._recent[key] = reply
        if (ledger := current_ledger()) is not None:
            ledger.replies[key] = reply


@dataclass(slots=True)
class _Given:
    """A loan of a node: a slot of a limiter, or money under the limit's own ticket."""

    limiter: Limiter | None = None
    money: int = 0


class Desk:
    """The driver's end of one node's line."""

    def __init__(
        self,
        limiters: Sequence[Limiter],
        spend: Spend | None,
        answer: Callable[[Message], None],
        replies: ReplyCache | None = None,
    ) -> None:
        self._limiters, self._spend, self._answer, self._replies = limiters, spend, answer, replies
        self._given: dict[int, _Given] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    def hear(self, message: Message) -> None:
        """Do what a node asks for or tells."""
        match message:
            case ("ask", ticket, what, number, argument):
                self._asking[ticket] = asyncio.create_task(self._give(ticket, what, number, argument))
            case ("free", ticket, told):
                self._take_back(ticket, told)
            case ("drop", ticket):
                if (asking := self._asking.get(ticket)) is not None:
                    asking.cancel()
                self._recover(ticket)

    def close(self) -> None:
        """The node is gone: nobody waits for it, its slots are free again, and what its calls may have cost counts as
        spent.
        """
        for asking in list(self._asking.values()):
            asking.cancel()
        for ticket in list(self._given):
            self._recover(ticket)

    async def _give(self, ticket: int, what: str, number: int, argument: Any) -> None:
        try:
            value: Any
            if what == "reply":
                value = None if self._replies is None else await asyncio.to_thread(self._replies.get, argument)
            elif what == "slot":
                limiter = self._limiters[number]
                value = await limiter.acquire(argument)
                self._given[ticket] = _Given(limiter)
            else:
                assert self._spend is not None
                value = await self._spend.reserve(argument)
                self._given[ticket] = _Given(money=value)
            self._answer(("told", ticket, value))
        except Stop as stop:
            self._answer(("told", ticket, stop))
        finally:
            self._asking.pop(ticket, None)

    def _take_back(self, ticket: int, told: Any) -> None:
        given = self._given.pop(ticket, None)
        if given is None:
            return
        if given.limiter is not None:
            ended, pause, tokens, quotas = told
            given.limiter.release(ended, pause, tokens=tokens, quotas=quotas)
        elif self._spend is not None:
            self._spend.settle(given.money, told)

    def _recover(self, ticket: int) -> None:
        given = self._given.get(ticket)
        if given is not None:
            self._take_back(ticket, None if given.limiter is None else (Ended.NEUTRAL, 0.0, 0, ()))
