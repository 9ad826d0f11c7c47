"""Pair calls at the provider with the client's requests behind them: by time, and where several are under way at once,
by what they say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.jsontext import MOST_BYTES
from context_bench.llm.coding import decode
from context_bench.tap.exchanges import LATE_SECONDS, Exchange, header
from context_bench.tap.record_writer import words
from context_bench.wire.apis.read import parse_request
from context_bench.wire.apis.shared import load_body
from context_bench.wire.request import WireRequest

#: Bytes of a body that is read before its answer is over.
_MOST_EARLY = 2**20

#: A request, or its words.
Content = WireRequest | frozenset[str] | None


class Paired(Protocol):
    """Is told what belongs together."""

    def turn(self, front: SeenExchange, calls: list[SeenExchange], pending: int) -> None:
        """A client's request is over, and so are its calls. `pending`: calls that may be its own and are not over after
        all patience.
        """

    def late(self, front: int, call: SeenExchange) -> None:
        """A call ended, or arrived, after its turn was told; `front` is the number of the client's exchange."""

    def stray(self, call: SeenExchange) -> None:
        """A call that came while no client was waiting."""


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

    @classmethod
    def of(cls, exchange: Exchange) -> SeenExchange:
        """Facts to keep of an exchange that a tap has just finished."""
        reply = exchange.reply.pieces[0][1][:4096] if exchange.reply.pieces else b""
        return cls(exchange, exchange.request, exchange.whole or exchange.body.data, reply, exchange.words)

    def read(self) -> None:
        """Read the request again that was read apart."""
        if self.request is None and self.exchange.apart and self.raw:
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


class Pairing:
    """Told of exchanges by the front and the back tap (on one loop), tells `paired` what belongs together.

    Call `settle` from time to time: it gives up waiting for calls that outlive their client by more than `patience`
    seconds.
    """

    def __init__(self, paired: Paired, *, clock: Clock = SYSTEM_CLOCK, patience: float = LATE_SECONDS) -> None:
        self._paired, self._clock, self._patience = paired, clock, patience
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
        candidates = [turn for turn in self._open.values() if turn.front.finished == 0.0]
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
            if turn.seen is not None and turn.waiting and (everything or turn.front.finished < oldest):
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
        candidates = [turn for turn in self._recent if turn.front.finished >= since]
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
    """How much a call has of what is special about each request, 0 to 1: of the words that not all of the requests
    have.

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


def _request(exchange: Exchange, raw: bytes, most: int = MOST_BYTES) -> WireRequest | None:
    try:
        body = load_body(decode(raw, header(exchange.headers, "content-encoding"), most))
        return parse_request(exchange.wire, body) if isinstance(body, dict) else None
    except (ValueError, RecursionError):
        return None
