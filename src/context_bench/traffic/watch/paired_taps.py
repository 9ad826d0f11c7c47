"""An arm of a watch: a tap in front, one behind if a proxy stands between the two, and their records paired as
events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from context_bench.core.clock import Clock
from context_bench.tap.exchanges import Exchange
from context_bench.tap.record_writer import Observer, Sink
from context_bench.tap.tap_server import Tap
from context_bench.traffic.watch.pairing import Pairing, SeenExchange
from context_bench.traffic.watch.session_context import SessionPlace

#: Seconds for which the end of an answer waits for calls that are still being answered behind it.
_MOMENT = 0.1
ArmName = Literal["main", "shadow"]
#: A part of a watch, and the numbers of the turns that it takes long for; 0 for one whose turn is not found yet.
Slow = Callable[[str, Collection[int]], None]


@dataclass(slots=True)
class PairedEvent:
    """Records of an arm's taps that belong together: a client's request with its calls, or a call that came late or for
    nobody.
    """

    arm: ArmName
    kind: Literal["turn", "late", "stray"]
    front: SeenExchange | None
    number: int  # of the front exchange
    calls: list[SeenExchange]
    place: SessionPlace | None = None  # given for mirrored requests
    pending: int = 0  # calls that may belong to it and were still being answered

    @property
    def seen(self) -> list[SeenExchange]:
        """All that belongs together, each once."""
        return [
            *([self.front] if self.front is not None else []),
            *(call for call in self.calls if call is not self.front),
        ]

    @property
    def large(self) -> bool:
        """A part of it was so large that a process of its own read it."""
        return any(seen.exchange.apart for seen in self.seen)

    def travelling(self) -> PairedEvent:
        """The event without what its exchanges have to do with others."""
        alone = {id(seen): replace(seen, exchange=seen.exchange.alone()) for seen in self.seen}
        front = None if self.front is None else alone[id(self.front)]
        return replace(self, front=front, calls=[alone[id(call)] for call in self.calls])


class Arm:
    """A front tap, and a back tap if something stands between the two. Tells `tell` what belongs together.

    `arrived` is shown each request of a client as it comes, and may have the end of its answer wait until it is kept
    (`Exchange.kept`). `slow` is given a part of the arm and the clients' requests whose large bodies it begins to read;
    none of them once it has read them.
    """

    def __init__(
        self,
        name: ArmName,
        tell: Callable[[PairedEvent], None],
        clock: Clock,
        options: dict[str, Any],
        front: int,
        back: int,
        upstream: str,
        via: str | None,
        sink: Sink | None,
        arrived: Callable[[Exchange], None] | None = None,
        slow: Slow = lambda part, turns: None,
    ) -> None:
        self.name, self._tell, self._clock = name, tell, clock
        self.place: SessionPlace | None = None  # of the request that is mirrored now
        self._pairing = Pairing(self, clock=clock)
        self._arrived = arrived
        before = Observer(
            self._front_arrived, self._front_finished, lambda large: slow("front", [each.number for each in large])
        )
        behind = Observer(
            self._pairing.back_arrived, self._pairing.back_finished, lambda large: slow("back", [0] * len(large))
        )
        self._front = Tap(via or upstream, port=front, observer=before, sink=sink, clock=clock, **options)
        self._back = Tap(upstream, port=back, observer=behind, clock=clock, **options) if via is not None else None
        self._closing = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """The front tap's address."""
        return self._front.url

    @property
    def back_url(self) -> str | None:
        """The back tap's address, if there is one."""
        return self._back.url if self._back is not None else None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opened:
            opened.callback(self._pairing.settle, everything=True)
            if self._back is not None:
                await opened.enter_async_context(self._back)
            opened.push_async_callback(_cancelled, asyncio.create_task(self._give_up()))
            await opened.enter_async_context(self._front)
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._closing.aclose()

    async def settle(self) -> None:
        """Wait until the taps have told of every request that is answered."""
        for tap in (self._back, self._front):
            if tap is not None:
                await tap.settle()

    async def _give_up(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._close_answered()
            self._pairing.settle()

    @property
    def pairing(self) -> Pairing:
        """The pairing to which both taps report."""
        return self._pairing

    @property
    def paired(self) -> bool:
        """A second tap stands behind the proxy."""
        return self._back is not None

    def _front_arrived(self, exchange: Exchange) -> None:
        if self._arrived is not None:
            self._arrived(exchange)
        self._pairing.front_arrived(exchange)

    def _close_answered(self) -> None:
        """Have calls recorded whose answers are whole, once a client of theirs has its own: connections may stay open
        for long.

        Not before: what a provider says after the end must be recorded where a client could see it, too.
        """
        if self._back is not None:
            for call in self._pairing.waited_for():
                self._back.close_answered(call)

    def _front_finished(self, exchange: Exchange) -> None:
        self._pairing.front_finished(exchange)
        self._close_answered()
        if exchange.kept is not None and self._pairing.waits_for_calls(
            exchange
        ):  # what goes on for long holds up nobody's answer
            asyncio.get_running_loop().call_later(_MOMENT, exchange.kept.set)

    # What the pairing tells

    def turn(self, front: SeenExchange, calls: list[SeenExchange], pending: int) -> None:
        seen = calls if self.paired else [front]
        self._tell(PairedEvent(self.name, "turn", front, front.exchange.number, seen, self.place, pending))

    def late(self, front: int, call: SeenExchange) -> None:
        self._tell(PairedEvent(self.name, "late", None, front, [call]))

    def stray(self, call: SeenExchange) -> None:
        self._tell(PairedEvent(self.name, "stray", None, 0, [call]))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
