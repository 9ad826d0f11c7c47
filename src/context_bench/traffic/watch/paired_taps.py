"""An arm of a watch: a tap in front, one behind if a proxy stands between the two, and their records paired as
events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from context_bench.core.keys import MOST_BYTES
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.llm.background import WorkProcess
from context_bench.llm.coding import decode
from context_bench.tap.exchange import LATE_SECONDS, SOCKET, Exchange, Headers, header
from context_bench.tap.record_writer import Observer, Sink, unpacked_answer, words
from context_bench.traffic.watch.session_context import BackSteering, FrontSteering, SessionPlace
from context_bench.wire.apis import Reply, parse_request
from context_bench.wire.apis.shared import load_body
from context_bench.wire.request import WireRequest

if TYPE_CHECKING:
    from context_bench.tap.tap_server import Tap

#: Bytes of a body that is read before its answer is over.
_MOST_EARLY = 2**20

#: A request, or its words.
Content = WireRequest | frozenset[str] | None


@dataclass(slots=True)
class SeenExchange:
    """An exchange that is over, with what it said and its body as it came: the exchange itself forgets both.

    The body of an increment (see `joining`) is the full request it stands for.
    """

    exchange: Exchange
    request: WireRequest | None
    raw: bytes
    reply: bytes = b""  # its beginning
    words: frozenset[str] | None = None  # of a request that was read apart
    answer: Reply | None = None
    packed_answer: bytes = b""  # of one that was read apart

    @classmethod
    def of(cls, exchange: Exchange) -> SeenExchange:
        """Facts to keep of an exchange that a tap has just finished."""
        reply = exchange.reply.pieces[0][1][:4096] if exchange.reply.pieces else b""
        return cls(
            exchange,
            exchange.request,
            exchange.whole or exchange.body.data,
            reply,
            exchange.words,
            exchange.answer,
            exchange.packed_answer,
        )

    def share(self, other: SeenExchange) -> None:
        """Hold one copy of a body that went on as it came."""
        ours, theirs = self.exchange, other.exchange
        if ours.digest == theirs.digest != b"" and SOCKET not in (ours.method, theirs.method):
            self.raw = other.raw

    def read(self, before: SeenExchange | None = None) -> None:
        """Read what was read apart again: the answer, and the request unless it is the one that was read `before` and
        went on as it came.
        """
        if self.packed_answer:
            self.answer, self.packed_answer = unpacked_answer(self.packed_answer), b""
        if self.request is not None or not self.exchange.apart or not self.raw:
            return
        if before is not None and self.raw is before.raw and _reading(self.exchange) == _reading(before.exchange):
            self.request = before.request
        else:
            self.request = _request(self.exchange, self.raw)

    @property
    def content(self) -> Content:
        """The request, or the words of one that was read apart."""
        return self.request if self.request is not None else self.words


@dataclass(slots=True)
class _Open:
    """A client's request that is under way, or waits for calls that began in its time."""

    front: Exchange
    calls: list[SeenExchange] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    seen: SeenExchange | None = None  # once it is over
    _early: WireRequest | None = None
    _read_at: int = -1  # bytes of the body that `_early` was read from

    def content(self) -> Content:
        """The request, read early if it is not over yet."""
        if self.seen is not None:
            return self.seen.content
        if (
            self._early is None and self._read_at != self.front.body.size
        ):  # an unreadable body is read again only if it has grown
            self._early, self._read_at = request_of(self.front), self.front.body.size
        return self._early


@dataclass(frozen=True, slots=True)
class OwnCall:
    """The call that stands for the client's own at the provider. `tokens` by our count, `billed` by the provider's."""

    wire: str
    target: str
    headers: Headers = field(repr=False)
    tokens: int | None
    billed: int | None


class Pairing:
    """Told of exchanges by the front and the back tap (on one loop), tells `paired` what belongs together.

    Call `settle` from time to time: it gives up waiting for calls that outlive their client by more than `patience`
    seconds. Calls that are over and still being read are waited for: reading ends.
    """

    def __init__(
        self,
        paired: TapPair,
        *,
        clock: Clock = SYSTEM_CLOCK,
        patience: float = LATE_SECONDS,
        went_past: Callable[[Exchange], bool] = lambda call: False,
    ) -> None:
        self._paired, self._clock, self._patience, self._went_past = paired, clock, patience, went_past
        self._open: dict[int, _Open] = {}
        self._candidates: dict[int, list[_Open]] = {}
        self._recent: deque[_Open] = deque(maxlen=256)
        self._calls: dict[int, Exchange] = {}  # that have not been told of

    def front_arrived(self, front: Exchange) -> None:
        """A client's request has begun."""
        self._open[front.number] = _Open(front)

    def front_finished(self, front: Exchange) -> None:
        """It has been answered and read."""
        turn = self._open[front.number]
        turn.seen = SeenExchange.of(front)
        self._tell(turn)

    def back_arrived(self, call: Exchange) -> None:
        """A request has begun to reach the provider: it can only be of clients who are waiting now."""
        past = self._went_past(call)
        candidates = [
            turn for turn in self._open.values() if turn.front.finished == 0.0 and turn.front.steered.held_out == past
        ]
        self._candidates[call.number] = candidates
        self._calls[call.number] = call
        for turn in candidates:
            turn.waiting.add(call.number)

    def back_finished(self, exchange: Exchange) -> None:
        """The provider has answered it."""
        candidates = self._candidates.pop(exchange.number, [])
        self._calls.pop(exchange.number, None)
        call = SeenExchange.of(exchange)
        open_ones = [turn for turn in candidates if turn.front.number in self._open]
        if candidates:
            chosen = self._choose(candidates, call)
            if chosen in open_ones:
                chosen.calls.append(call)
            else:
                self._paired.late(chosen.front.number, call)
        else:
            self._without_client(call)
        for turn in open_ones:
            turn.waiting.discard(exchange.number)
            self._tell(turn)

    def waits_for_calls(self, front: Exchange) -> bool:
        """True if calls that began in the time of a client's request are still being answered."""
        turn = self._open.get(front.number)
        return turn is not None and any(
            self._calls[number].finished == 0.0 for number in turn.waiting if number in self._calls
        )

    def waited_for(self) -> list[Exchange]:
        """Calls that a request of a client waits for that is itself over."""
        waiting = {number for turn in self._open.values() if turn.seen is not None for number in turn.waiting}
        return [self._calls[number] for number in sorted(waiting) if number in self._calls]

    def settle(self, *, everything: bool = False) -> None:
        """Tell of turns whose client has been gone for long, without waiting for calls still under way."""
        oldest = self._clock.monotonic() - self._patience
        for turn in list(self._open.values()):
            under_way = not any(self._calls[number].finished for number in turn.waiting if number in self._calls)
            if turn.seen is not None and turn.waiting and (everything or (under_way and turn.front.finished < oldest)):
                pending = len(turn.waiting)
                turn.waiting.clear()
                self._tell(turn, pending)

    def _tell(self, turn: _Open, pending: int = 0) -> None:
        if turn.seen is not None and not turn.waiting and turn.front.number in self._open:
            del self._open[turn.front.number]
            turn.calls.sort(key=lambda call: call.exchange.number)
            self._paired.turn(turn.seen, turn.calls, pending)
            turn.seen, turn.calls = SeenExchange(turn.front, turn.seen.request, b"", words=turn.seen.words), []
            self._recent.append(turn)
            self._forget()

    def _forget(self) -> None:
        """Late calls are looked for among the latest turns only."""
        oldest = self._clock.monotonic() - 2 * self._patience
        while self._recent and self._recent[0].front.finished < oldest:
            self._recent.popleft()

    def _without_client(self, call: SeenExchange) -> None:
        since = call.exchange.arrived - self._patience
        past = self._went_past(call.exchange)
        candidates = [
            turn for turn in self._recent if turn.front.finished >= since and turn.front.steered.held_out == past
        ]
        if candidates:
            self._paired.late(self._choose(candidates[::-1], call).front.number, call)
        else:
            self._paired.stray(call)

    def _choose(self, candidates: Sequence[_Open], call: SeenExchange) -> _Open:
        """The most alike; of equals one that has no call yet, then the one that came first."""
        if len(candidates) == 1:
            return candidates[0]
        special = alike(call.content, [turn.content() for turn in candidates])
        order = range(len(candidates))
        return candidates[max(order, key=lambda i: (special[i], not candidates[i].calls, -i))]


def alike(call: Content, requests: Sequence[Content]) -> list[float]:
    """The share of each request's own words that a call has, 0 to 1. Own words are those that not all requests have.

    Whatever stands in between may have shortened or rewritten texts, so single words are what is left to compare.
    """
    if call is None:
        return [0.0 for _ in requests]
    in_call, in_requests = _words(call), [_words(request) for request in requests]
    in_all = frozenset.intersection(*in_requests) if in_requests else frozenset()
    special = [found - in_all for found in in_requests]
    nothing_special = 0.05  # such a request is meant when nothing special of the others is in the call
    return [len(found & in_call) / len(found) if found else nothing_special for found in special]


def likeness(a: Content, b: Content) -> float:
    """Likeness of two requests, 0 to 1: the share of their words that both have."""
    one, other = _words(a), _words(b)
    return len(one & other) / len(one | other) if one or other else 0.0


def _words(content: Content) -> frozenset[str]:
    return words(content) if isinstance(content, WireRequest) else content or frozenset()


def request_of(exchange: Exchange) -> WireRequest | None:
    """The request of an exchange still being answered; `None` above 1 MB."""
    if exchange.body.kept > _MOST_EARLY:
        return None
    return _request(exchange, exchange.body.data, _MOST_EARLY)


def _reading(exchange: Exchange) -> tuple[str, str]:
    """API and coding of a body, by which it is read."""
    return exchange.wire, header(exchange.headers, "content-encoding")


def _request(exchange: Exchange, raw: bytes, most: int = MOST_BYTES) -> WireRequest | None:
    wire, coding = _reading(exchange)
    try:
        body = load_body(decode(raw, coding, most))
        return parse_request(wire, body) if isinstance(body, dict) else None
    except (ValueError, RecursionError):
        return None


#: Seconds for which the end of an answer waits for calls that are still being answered behind it.
_MOMENT = 0.1
ArmName = Literal["main", "shadow", "holdout"]
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


class TapPair:
    """A front tap, and a back tap if something stands between the two. Tells `tell` what belongs together.

    `arrived` is shown each request of a client as it comes, and may have the end of its answer wait until it is kept
    (`Exchange.kept`). `slow` is given a part of the arm and the clients' requests whose large bodies it begins to read;
    none of them once it has read them. `steering` may send clients' requests past what stands between, or with needles.
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
        steering: FrontSteering | None = None,
        process: WorkProcess | None = None,
    ) -> None:
        from context_bench.tap.tap_server import Tap  # not for the process that measures: it needs no server

        self.name, self._tell, self._clock, self._steering = name, tell, clock, steering
        self.place: SessionPlace | None = None  # of the request that is mirrored now
        went_past = steering.went_past if steering is not None else lambda call: False
        self._pairing = Pairing(self, clock=clock, went_past=went_past)
        self._arrived = arrived
        before = Observer(
            self._front_arrived,
            self._front_finished,
            lambda large: slow("front", [each.number for each in large]),
            steering,
            process,
        )
        needles = steering.needles if steering is not None else None
        behind = Observer(
            self._pairing.back_arrived,
            self._pairing.back_finished,
            lambda large: slow("back", [0] * len(large)),
            BackSteering(needles) if needles is not None else None,
            process,
        )
        self._front = Tap(via or upstream, port=front, witness=before, sink=sink, clock=clock, **options)
        self._back: Tap | None = None
        if via is not None:
            self._back = Tap(upstream, port=back, witness=behind, clock=clock, **options)
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
            if self._steering is not None:
                self._steering.back_url = self.back_url
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

    def _front_arrived(self, exchange: Exchange) -> None:
        if self._steering is not None:
            self._steering.note_socket_request(exchange)
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
        if self._steering is not None and self._steering.conversations is not None:
            self._steering.conversations.answered(exchange)
        self._pairing.front_finished(exchange)
        self._close_answered()
        if exchange.kept is not None and self._pairing.waits_for_calls(
            exchange
        ):  # what goes on for long holds up nobody's answer
            asyncio.get_running_loop().call_later(_MOMENT, exchange.kept.set)

    def waits_for_calls(self, front: Exchange) -> bool:
        """True if calls that began in the time of a client's request are still being answered."""
        return self._pairing.waits_for_calls(front)

    # Findings of the pairing

    def turn(self, front: SeenExchange, calls: list[SeenExchange], pending: int) -> None:
        """A client's request is over, and so are its calls. `pending`: calls that may be its own and are not over after
        all patience.
        """
        for call in calls:
            call.share(front)
        seen = [front] if self._back is None else calls
        self._tell(PairedEvent(self.name, "turn", front, front.exchange.number, seen, self.place, pending))

    def late(self, front: int, call: SeenExchange) -> None:
        """A call ended, or arrived, after its turn was told; `front` is the number of the client's exchange."""
        self._tell(PairedEvent(self.name, "late", None, front, [call]))

    def stray(self, call: SeenExchange) -> None:
        """A call that came while no client was waiting."""
        self._tell(PairedEvent(self.name, "stray", None, 0, [call]))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
