"""One tap before a proxy and one behind it, paired by session and turn: live figures of somebody's own traffic.

Both relay untouched; client authentication passes through and is never kept. Without a proxy in between there is one
tap, which records a baseline. Figures are told in `Turn`s, in batches, so that whoever keeps them can keep many with
one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.llm.background import Apart, Lost, WorkProcess, short_turns
from context_bench.tap.exchange import Exchange
from context_bench.tap.record_writer import Sink
from context_bench.traffic.watch.measure import PROMPTS, Mirror, Money, TurnMeasure, unmeasured
from context_bench.traffic.watch.paired_taps import PairedEvent, TapPair
from context_bench.traffic.watch.session_context import FrontSteering
from context_bench.wire.turns import Turn

_log = logging.getLogger("context_bench.tap")
Keep = Callable[[list[Turn]], Awaitable[None]]
_BEHIND = "behind"  # what holds up clients after large bodies: turns that were not waited for


class Watch:
    """Watches traffic between `front` (where clients are pointed) and the provider at `upstream`.

    The end of an answer is given to its client once its record is kept, or cannot be, or would have to wait for large
    bodies of others. `under_way` says how many turns that have begun are not kept yet, and `moved` is called whenever
    that changes. `lost` counts records that could not be kept.

    `via`: base URL of the proxy in between, whose own upstream must be `back_url`; without it clients reach the
    provider directly. Ports 0 = any free one. `record`: the recording policy of both taps. `keep` gets every batch of
    finished records; only after it returns do they count in what `seen` is told. `sink`: gets the front tap's own
    records as they come. `mirror`: gets each finished turn that is no repeat, after it was kept. `steering`: holds
    conversations out or plants needles, which needs `via`. Use as `async with`.
    """

    def __init__(
        self,
        upstream: str,
        *,
        via: str | None = None,
        front: int = 0,
        back: int = 0,
        record: str = "meta",
        prices: Money | None = None,
        counter_model: str | None = None,
        keep: Keep | None = None,
        seen: Callable[[Turn], None] | None = None,
        sink: Sink | None = None,
        mirror: Callable[[Mirror], None] | None = None,
        moved: Callable[[], None] | None = None,
        steering: FrontSteering | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.record, self.via, self._clock = record, via, clock
        self._prices, self._keep, self._seen, self._mirror, self._moved = prices, keep, seen, mirror, moved
        self._under_way: dict[int, Exchange] = {}
        self._slow: dict[str, Collection[int]] = {}  # what works at large bodies now, and of which turns
        self.lost = 0
        self._queue: asyncio.Queue[PairedEvent] = asyncio.Queue()
        self._process = WorkProcess()  # one for all parts of the watch: a large body is in it once
        self._apart, self._number = Apart(TurnMeasure(record, prices, counter_model, clock), self._process), 0
        options = self._tap_options(record, counter_model)
        self._main = TapPair(
            "main",
            self._queue.put_nowait,
            clock,
            options,
            front,
            back,
            upstream,
            via,
            sink,
            self._arrived,
            self._takes_long,
            steering,
            self._process,
        )
        self._arms = [self._main]
        self._closing = contextlib.AsyncExitStack()
        self.fault: Exception | None = None  # why records could not be kept
        self.failed = asyncio.Event()

    @staticmethod
    def _tap_options(record: str, counter_model: str | None) -> dict[str, Any]:
        return {"record": record, "counter_model": counter_model, "remember": False}

    @property
    def url(self) -> str:
        """The address for clients: `http://127.0.0.1:PORT`, without `/v1`."""
        return self._main.url

    @property
    def back_url(self) -> str | None:
        """The URL that the proxy's own upstream must be; `None` without a proxy."""
        return self._main.back_url

    @property
    def under_way(self) -> int:
        """Turns of clients that have begun and are not kept."""
        return len(self._under_way)

    def _arrived(self, exchange: Exchange) -> None:
        if exchange.wire not in PROMPTS or self._keep is None:
            return
        exchange.kept = asyncio.Event()
        if self._slow:
            exchange.kept.set()
        self._under_way[exchange.number] = exchange
        self._tell_moved()

    def _takes_long(self, part: str, turns: Collection[int]) -> None:
        """While a part of the watch works at large bodies of some turns, no other turn's client waits for it: those are
        under way.
        """
        if turns:
            self._slow[part] = turns
            for exchange in self._under_way.values():
                if exchange.kept is not None and exchange.number not in turns:
                    exchange.kept.set()
        elif self._slow.pop(part, None) is not None and self._slow.keys() <= {_BEHIND}:
            self._catch_up(math.inf)

    def _catch_up(self, before: float) -> None:
        """Turns that were let go must be kept now, and those that follow come after them: as long as they become fewer,
        clients do not wait for them either. Those that wait for calls of their own, for long maybe, do not count.

        `before`: how many they were at the last look.
        """
        self._slow.pop(_BEHIND, None)
        over = (exchange for exchange in self._under_way.values() if exchange.finished)
        behind = {exchange.number for exchange in over if not self._main.waits_for_calls(exchange)}
        if 0 < len(behind) < before:
            self._slow[_BEHIND] = behind
            return
        for exchange in self._under_way.values():
            if exchange.kept is not None and not exchange.finished:
                exchange.kept.clear()

    def _let_go(self, events: list[PairedEvent]) -> None:
        """Nothing more is to be waited for: clients may have the ends of their answers."""
        for event in events:
            if (
                event.arm == "main"
                and event.kind == "turn"
                and (exchange := self._under_way.pop(event.number, None)) is not None
            ):
                assert exchange.kept is not None
                exchange.kept.set()
        behind = self._slow.get(_BEHIND)
        if behind is not None and len(self._slow) == 1 and self._under_way.keys().isdisjoint(behind):
            self._catch_up(len(behind))
        self._tell_moved()

    def _tell_moved(self) -> None:
        if self._moved is not None:
            self._moved()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opened:
            pool = ThreadPoolExecutor(1, thread_name_prefix="context-bench-watch")
            opened.enter_context(short_turns())  # a busy relay would give each turn's record its threads too seldom
            opened.callback(self._process.close)
            opened.callback(pool.shutdown, wait=True)
            worker = asyncio.create_task(self._work(pool))
            opened.push_async_callback(self._finish, worker)
            await opened.enter_async_context(self._main)
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._closing.aclose()

    async def add_arm(self, arm: TapPair) -> None:
        """Take in another arm's turns; it ends with the watch."""
        await self._closing.enter_async_context(arm)
        self._arms.append(arm)

    def new_arm(
        self, upstream: str, *, via: str, back: int | None, record: str, counter_model: str | None = None
    ) -> TapPair:
        """A `shadow` arm: `via` gets what its front tap is sent; with `back`, a tap on that port stands behind it."""
        options = self._tap_options(record, counter_model)
        to, between = (via, None) if back is None else (upstream, via)
        return TapPair(
            "shadow",
            self._queue.put_nowait,
            self._clock,
            options,
            0,
            back or 0,
            to,
            between,
            None,
            process=self._process,
        )

    async def drain(self) -> None:
        """Wait until everything that is over is kept."""
        for arm in self._arms:
            await arm.settle()
        await self._queue.join()

    async def _finish(self, worker: asyncio.Task[None]) -> None:
        await self._queue.join()
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    async def _work(self, pool: ThreadPoolExecutor) -> None:
        while True:
            events = [await self._queue.get()]
            while not self._queue.empty():
                events.append(self._queue.get_nowait())
            try:
                self._takes_long(
                    "measuring", [event.number if event.arm == "main" else 0 for event in events if event.large]
                )
                measured = await self._measured(pool, events)
                await self._store([turn for turn, _ in measured])
                self._let_go(events)
                for turn, mirror in measured:
                    self._tell(turn, mirror)
            except Exception as error:  # the relay goes on whatever happens to the records
                self.lost += len(events)
                self._fail(error)
            finally:
                self._takes_long("measuring", ())
                self._let_go(events)
                for _ in events:
                    self._queue.task_done()

    async def _measured(self, pool: ThreadPoolExecutor, events: list[PairedEvent]) -> list[tuple[Turn, Mirror | None]]:
        """Figures of events; of each that cannot be measured, what the taps themselves wrote down."""
        numbered = list(enumerate(events, self._number + 1))
        self._number += len(events)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, self._measure, numbered)
        except Exception as error:  # no thread to be had, say
            return [self._unread(number, event, error) for number, event in numbered]

    def _measure(self, numbered: list[tuple[int, PairedEvent]]) -> list[tuple[Turn, Mirror | None]]:
        """In the other thread; from the first large event on it is another process that measures."""
        if not self._apart.away(large=any(event.large for _, event in numbered)):
            found: list[tuple[Turn, Mirror | None]] = self._apart.do("all", numbered)
            return found
        return [self._measured_apart(number, event) for number, event in numbered]

    def _measured_apart(self, number: int, event: PairedEvent) -> tuple[Turn, Mirror | None]:
        try:
            [(turn, mirror)] = self._apart.do("apart", [(number, event.travelling())])
        except Exception as error:
            return self._unread(number, event, error)
        return turn, mirror and replace(mirror, body=event.front.raw if event.front is not None else b"")

    def _unread(self, number: int, event: PairedEvent, error: Exception) -> tuple[Turn, None]:
        how = str(error) if isinstance(error, Lost) else type(error).__name__  # its text could quote the body
        _log.warning("record %d could not be measured: %s", number, how)
        return unmeasured(number, event, self._clock), None

    async def _store(self, turns: list[Turn]) -> None:
        if self._keep is not None and turns:
            await self._keep(turns)

    def _tell(self, turn: Turn, mirror: Mirror | None) -> None:
        if self._seen is not None:
            self._seen(turn)
        if mirror is not None and self._mirror is not None:
            self._mirror(mirror)

    def _fail(self, error: Exception) -> None:
        if self.fault is None:
            self.fault = error
            self.failed.set()
            _log.error("what was seen cannot be kept: %s: %s", type(error).__name__, error)
