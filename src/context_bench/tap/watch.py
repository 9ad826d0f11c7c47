"""One tap before a proxy and one behind it, paired by session and turn: live figures of somebody's own traffic.

Both relay untouched; client authentication passes through and is never kept. Without a proxy in between there is one tap, which records a
baseline. Figures are told in `Turn`s, in batches, so that whoever keeps them can keep many with one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.records import Forwarded, Usage
from context_bench.core.violations import Violation, compare_requests, repeated_requests, silent_truncation
from context_bench.core.watching import Turn
from context_bench.core.wire import WireRequest
from context_bench.tap.forecast import Forecast
from context_bench.tap.matching import Headers
from context_bench.tap.pairing import Pairing, Seen, likeness
from context_bench.tap.reading import Sink
from context_bench.tap.records import Exchange
from context_bench.tap.server import Tap
from context_bench.tap.sessions import Place, Sessions

PROMPTS = ("openai-chat", "openai-responses", "anthropic")
_DETAILS = 50  # of one turn
_log = logging.getLogger("context_bench.tap")

Keep = Callable[[list[Turn]], Awaitable[None]]
ArmName = Literal["main", "shadow"]


class Money(Protocol):
    """What a watch asks of prices."""

    def cost(self, usage: Usage, model: str) -> float | None:
        """US dollars for `usage` on `model`; `None` when no price is known."""

    def worst_case(self, model: str, prompt_tokens: int, max_tokens: int | None) -> float | None:
        """The most that one call can cost."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A turn that another arm may be sent too: exactly what the client sent."""

    method: str
    target: str
    headers: Headers
    body: bytes
    place: Place
    turn: Turn
    max_tokens: int | None


@dataclass(slots=True)
class _Event:
    arm: ArmName
    kind: Literal["turn", "late", "stray"]
    front: Seen | None
    number: int  # of the front exchange
    calls: list[Seen]
    place: Place | None = None  # given for mirrored requests


class Watch:
    """Watches traffic between `front` (where clients are pointed) and the provider at `upstream`.

    `via`: base URL of the proxy in between, whose own upstream must be `back_url`; without it clients reach the provider directly. Ports
    0 = any free one. `record`: the recording policy of both taps. `keep` gets every batch of finished records; only after it returns do
    they count in what `seen` is told. `sink`: gets the front tap's own records as they come. `mirror`: gets each finished turn that is
    no repeat, after it was kept. Use as `async with`.
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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.record, self.via, self._clock = record, via, clock
        self._prices, self._keep, self._seen, self._mirror = prices, keep, seen, mirror
        self._queue: asyncio.Queue[_Event] = asyncio.Queue()
        self._measure = Measure(record, prices, counter_model, clock)
        self._main = Arm("main", self._queue.put_nowait, clock, self._tap_options(record, counter_model), front, back, upstream, via, sink)
        self._arms = [self._main]
        self._closing = contextlib.AsyncExitStack()
        self.fault: Exception | None = None  # why records could not be kept
        self.failed = asyncio.Event()

    @staticmethod
    def _tap_options(record: str, counter_model: str | None) -> dict[str, Any]:
        return {"record": record, "counter_model": counter_model, "remember": False}

    @property
    def url(self) -> str:
        """Where clients are to be pointed: `http://127.0.0.1:PORT`, without `/v1`."""
        return self._main.url

    @property
    def back_url(self) -> str | None:
        """What the proxy's own upstream must be; `None` without a proxy."""
        return self._main.back_url

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opened:
            pool = ThreadPoolExecutor(1, thread_name_prefix="context-bench-watch")
            opened.callback(pool.shutdown, wait=True)
            worker = asyncio.create_task(self._work(pool))
            opened.push_async_callback(self._finish, worker)
            await opened.enter_async_context(self._main)
            self._closing = opened.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._closing.aclose()

    async def add_arm(self, arm: Arm) -> None:
        """Take in another arm's turns; it ends with the watch."""
        await self._closing.enter_async_context(arm)
        self._arms.append(arm)

    def new_arm(self, upstream: str, *, via: str, back: int | None, record: str, counter_model: str | None = None) -> Arm:
        """A `shadow` arm: `via` gets what its front tap is sent; with `back`, a tap on that port stands behind it."""
        options = self._tap_options(record, counter_model)
        if back is None:
            return Arm("shadow", self._queue.put_nowait, self._clock, options, 0, 0, via, None, None)
        return Arm("shadow", self._queue.put_nowait, self._clock, options, 0, back, upstream, via, None)

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
        loop = asyncio.get_running_loop()
        while True:
            events = [await self._queue.get()]
            while not self._queue.empty():
                events.append(self._queue.get_nowait())
            try:
                measured = await loop.run_in_executor(pool, self._measure.all, events)
                await self._hand_on([turn for turn, _ in measured])
                for turn, mirror in measured:
                    self._tell(turn, mirror)
            except Exception as error:  # the relay goes on whatever happens to the records
                self._fail(error)
            finally:
                for _ in events:
                    self._queue.task_done()

    async def _hand_on(self, turns: list[Turn]) -> None:
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


class Arm:
    """A front tap, and a back tap if something stands between the two. Tells `tell` what belongs together."""

    def __init__(
        self,
        name: ArmName,
        tell: Callable[[_Event], None],
        clock: Clock,
        options: dict[str, Any],
        front: int,
        back: int,
        upstream: str,
        via: str | None,
        sink: Sink | None,
    ) -> None:
        self.name, self._tell, self._clock = name, tell, clock
        self.place: Place | None = None  # of the request that is mirrored now
        self._pairing = Pairing(self, clock=clock)
        self._front = Tap(via or upstream, port=front, witness=_Front(self), sink=sink, clock=clock, **options)
        self._back = Tap(upstream, port=back, witness=_Back(self), clock=clock, **options) if via is not None else None
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
            opened.push_async_callback(_ended, asyncio.create_task(self._give_up()))
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
            self._pairing.settle()

    @property
    def pairing(self) -> Pairing:
        """Where both taps report."""
        return self._pairing

    @property
    def paired(self) -> bool:
        """Whether there is a tap behind."""
        return self._back is not None

    # What the pairing tells

    def turn(self, front: Seen, calls: list[Seen]) -> None:
        self._tell(_Event(self.name, "turn", front, front.exchange.number, calls if self.paired else [front], self.place))

    def late(self, front: int, call: Seen) -> None:
        self._tell(_Event(self.name, "late", None, front, [call]))

    def stray(self, call: Seen) -> None:
        self._tell(_Event(self.name, "stray", None, 0, [call]))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class _Front:
    def __init__(self, arm: Arm) -> None:
        self._arm = arm

    def arrived(self, exchange: Exchange) -> None:
        self._arm.pairing.front_arrived(exchange)

    def finished(self, exchange: Exchange) -> None:
        self._arm.pairing.front_finished(exchange)


class _Back:
    def __init__(self, arm: Arm) -> None:
        self._arm = arm

    def arrived(self, exchange: Exchange) -> None:
        self._arm.pairing.back_arrived(exchange)

    def finished(self, exchange: Exchange) -> None:
        self._arm.pairing.back_finished(exchange)


class Measure:
    """From what belongs together to figures. Works in one thread of its own: it remembers sessions and their prompts."""

    def __init__(self, record: str, prices: Money | None, counter_model: str | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._record, self._prices, self._clock = record, prices, clock
        self._sessions = Sessions()
        self._forwarded = Forecast(prices, counter_model=counter_model)
        self._alone = Forecast(prices, counter_model=counter_model)
        self._places: dict[tuple[ArmName, int], Place] = {}
        self._number = 0

    def all(self, events: list[_Event]) -> list[tuple[Turn, Mirror | None]]:
        """The records of some events, and what may be mirrored of each."""
        return [self._safely(event) for event in events]

    def _safely(self, event: _Event) -> tuple[Turn, Mirror | None]:
        """Hostile bodies are relayed like all others: what cannot be measured is recorded by what the taps themselves wrote down."""
        self._number += 1
        try:
            return self._one(event)
        except Exception as error:
            _log.warning("record %d could not be measured (%s)", self._number, type(error).__name__)
            records = _records(([event.front] if event.front else []) + event.calls)
            turn = Turn(self._number, event.kind, records[0].started if records else self._clock.now(), arm=event.arm)
            turn.calls, turn.violations = _records(event.calls), {"not_measured": 1}
            return turn, None

    def _one(self, event: _Event) -> tuple[Turn, Mirror | None]:
        if event.kind == "turn" and event.front is not None:
            return self._turn(event, event.front)
        place = self._places.get((event.arm, event.number))
        first = event.calls[0].exchange
        turn = Turn(self._number, event.kind, first.started, arm=event.arm)
        self._identify(turn, place)
        self._sum_up(turn, event.calls, place)
        turn.status = first.status
        return turn, None

    def _turn(self, event: _Event, front: Seen) -> tuple[Turn, Mirror | None]:
        record, request = front.exchange.record, front.request
        assert record is not None, "the tap shows exchanges only after it has recorded them"
        if record.wire not in PROMPTS:
            turn = Turn(self._number, "other", record.started, arm=event.arm, wire=record.wire, status=record.status)
            turn.calls = _records(event.calls)
            return turn, None
        place = event.place or (self._sessions.place(front.exchange, request, front.reply) if request is not None else None)
        turn = Turn(self._number, "turn", record.started, arm=event.arm, model=record.model, wire=record.wire, status=record.status)
        turn.sent, turn.exact, turn.seconds, turn.ttft = record.tokens, record.exact, record.seconds, record.ttft
        self._identify(turn, place)
        if place is not None:
            self._places[event.arm, event.number] = place
            while len(self._places) > 1024:
                del self._places[next(iter(self._places))]
        self._sum_up(turn, event.calls, place)
        if not (event.calls and event.calls[0] is front):  # with one tap only, the front's own record is the provider's
            turn.front = record
            self._compare(turn, front, event.calls)
            turn.alone_cost = self._alone_cost(front, place)
        else:
            turn.alone_cost = turn.predicted_cost
        return turn, self._mirrored(event, front, turn, place)

    @staticmethod
    def _identify(turn: Turn, place: Place | None) -> None:
        if place is not None:
            turn.session, turn.turn, turn.repeat = place.session.label, place.turn, place.repeat

    def _sum_up(self, turn: Turn, calls: list[Seen], place: Place | None) -> None:
        """What reached the provider, what it billed, and what the cache rules say of it."""
        turn.calls = _records(calls)
        for seen, record in zip(calls, turn.calls, strict=True):
            turn.forwarded = _plus(turn.forwarded, record.tokens)
            turn.exact = turn.exact and record.exact if turn.kind == "turn" else record.exact
            self._bill(turn, record)
            if place is not None and seen.request is not None and record.wire in PROMPTS and _answered(record):
                predicted = self._forwarded.add(f"{turn.arm} {place.session.identity}", seen.request, seen.exchange.arrived)
                turn.predicted_read = _plus(turn.predicted_read, predicted.read)
                turn.predicted_write = _plus(turn.predicted_write, predicted.written)
                turn.predicted_cost = _plus(turn.predicted_cost, predicted.cost)

    def _bill(self, turn: Turn, record: Forwarded) -> None:
        if record.usage is None:
            return
        turn.usage = record.usage if turn.usage is None else turn.usage + record.usage
        cost = self._prices.cost(record.usage, record.model or "") if self._prices is not None else None
        turn.unpriced += cost is None
        turn.cost = _plus(turn.cost, cost)

    def _alone_cost(self, front: Seen, place: Place | None) -> float | None:
        if place is None or front.request is None or not _answered(front.exchange.record):
            return None
        return self._alone.add(place.session.identity, front.request, front.exchange.arrived).cost

    def _compare(self, turn: Turn, front: Seen, calls: list[Seen]) -> None:
        """The client's own call among those that reached the provider, and what was done to it."""
        again = repeated_requests([(call.raw, call.exchange.status) for call in calls]) if len(calls) > 1 else []
        turn.retries = len(again)
        turn.extra = max(0, len(calls) - 1 - turn.retries)
        kinds: Counter[str] = Counter(violation.kind for violation in again)
        if not calls:
            turn.unchanged = None
            return
        main = max(calls, key=lambda call: (_answered(call.exchange.record), likeness(front.request, call.request)))
        record = main.exchange.record
        assert record is not None, "as above"
        turn.unchanged = main.exchange.digest == front.exchange.digest
        found = self._violations(front, main) if front.request is not None and main.request is not None else []
        billed = silent_truncation(record.usage.input_tokens if record.usage else None, record.tokens or 0, exact=record.exact)
        found = [*found, *([billed] if billed else [])]
        kinds.update(violation.kind for violation in found)
        turn.violations = dict(sorted(kinds.items()))
        if self._record in ("redacted", "full"):
            turn.details = [f"{one.kind}: {one.detail}" for one in [*again, *found]][:_DETAILS]
        turn.added = _apart(turn.seconds, record.seconds)
        turn.added_ttft = _apart(turn.ttft, record.ttft)

    @staticmethod
    def _violations(front: Seen, main: Seen) -> list[Violation]:
        assert front.request is not None
        assert main.request is not None
        sent, received = _by_name(front.exchange.headers), _by_name(main.exchange.headers)
        if front.exchange.digest == main.exchange.digest:
            ours, theirs = _bodiless(front.request), _bodiless(main.request)
            return compare_requests(ours, theirs, sent_headers=sent, received_headers=received)
        raw = {"sent_raw": front.raw, "received_raw": main.raw}
        return compare_requests(front.request, main.request, sent_headers=sent, received_headers=received, **raw)

    @staticmethod
    def _mirrored(event: _Event, front: Seen, turn: Turn, place: Place | None) -> Mirror | None:
        if event.arm != "main" or place is None or turn.repeat or front.request is None:
            return None
        exchange, params = front.exchange, front.request.params
        asked = (params.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
        most = next((value for value in asked if isinstance(value, int) and value > 0), None)
        return Mirror(exchange.method, exchange.target, exchange.headers, front.raw, place, turn, most)


def _records(calls: list[Seen]) -> list[Forwarded]:
    return [call.exchange.record for call in calls if call.exchange.record is not None]


def _answered(record: Forwarded | None) -> bool:
    return record is not None and record.status is not None and record.status < 400


def _bodiless(request: WireRequest) -> WireRequest:
    """Only what is not in the body can differ: nothing need be read."""
    return WireRequest(request.wire, None, [])


def _by_name(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


def _apart(whole: float | None, inner: float | None) -> float | None:
    return whole - inner if whole is not None and inner is not None else None


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b
