"""Exchanges on their way through a tap, and the conversation that each belongs to.

A *mark* is a token that names one conversation. It travels as the API key, as a header, or not at all (then time
decides). A *window* is the time between `begin` and `end` of one piece of work of that conversation; what arrives in it
belongs to it. An *exchange* is one request with its answer, as they came. *Steering* sends a request past the server
that the tap relays to, or on with another body; only a watch with `--holdout` or `--needles` asks for it (decision 13).
Pure bookkeeping, no I/O.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import quote

from context_bench.core.errors import BadInput
from context_bench.core.keys import MOST_BYTES
from context_bench.core.ledger import BaselinePairing, Mark
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.records import Forwarded
from context_bench.wire.apis import Reply, wire_of
from context_bench.wire.request import WireRequest

_log = logging.getLogger("context_bench.tap")
MARKERS = ("key", "header", "serial")
MARK_HEADER = "x-context-bench"
#: Where providers read a key; values here are swapped, a mark anywhere else is dropped.
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
LATE_SECONDS = 5.0
#: Bytes of one body that are kept for the record; a longer body is relayed all the same and counted as bytes.
BODY_LIMIT = MOST_BYTES
#: The method of a request that came over a WebSocket, and its wire.
SOCKET, SOCKET_WIRE = "WEBSOCKET", "openai-responses"

_MARK = re.compile(r"cb-[0-9a-f]{40}")

Headers = list[tuple[str, str]]
MatchedBy = Literal["key", "header", "serial", "none"]


@dataclass(slots=True)
class MarkWindow:
    """One piece of work of a conversation. `arrivals` are the requests that came in it, in order; `collected` once
    `end` has given them. `pairing`: how it goes with the baseline's window on the same example.
    """

    number: int
    mark: Mark
    owner: str
    pairing: BaselinePairing | None = None
    closed: float | None = None  # on the clock's monotonic()
    collected: bool = False
    arrivals: list[Exchange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MarkMatch:
    """The conversation of a request.

    `authorization`: did the mark come in as the key we sent it as (`None` = it was not sent as a key). `ours`: the
    request belongs to a window or carries a mark this tap has made, so that the upstream's key may be spent on it.
    """

    window: MarkWindow | None
    by: MatchedBy
    token: str | None = None
    late: bool = False
    authorization: bool | None = None
    ours: bool = False


UNMATCHED = MarkMatch(None, "none")


@dataclass(frozen=True, slots=True)
class FoundMark:
    """The marks a request carries: as keys, and in our header."""

    keys: frozenset[str]
    named: frozenset[str]


def find_marks(headers: Iterable[tuple[str, str]], target: str = "") -> FoundMark:
    """All marks in the headers (any header, since proxies move keys about) and in the query of `target`."""
    keys: set[str] = set(_MARK.findall(target))
    named: set[str] = set()
    for name, value in headers:
        if name.lower() == MARK_HEADER:
            named.add(value.strip())
        else:
            keys.update(_MARK.findall(value))
    return FoundMark(frozenset(keys), frozenset(named))


def without_marks(headers: Iterable[tuple[str, str]], key: str | None) -> Headers:
    """The headers as the provider shall see them: no mark left, in the order they came.

    With a `key`, it stands in every key header that is present, also in place of one that the proxy put there itself.
    Without, a header that holds a mark goes, and other keys stay. No header is ever added.
    """
    kept: Headers = []
    for name, value in headers:
        low, marked = name.lower(), _MARK.search(value) is not None
        if low == MARK_HEADER or (marked and (low not in KEY_HEADERS or not key)):
            continue
        kept.append((name, _keyed(low, value, key) if key and low in KEY_HEADERS else value))
    return kept


def _keyed(name: str, value: str, key: str) -> str:
    if name != "authorization":
        return key
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {key}" if space else key


def unmarked_target(target: str, key: str | None) -> str:
    """The request target without marks in its query (`?key=…`, as Google's clients send it)."""
    path, mark, query = target.partition("?")
    if not mark or not _MARK.search(query):
        return target
    if key:
        return f"{path}?{_MARK.sub(quote(key, safe=''), query)}"
    kept = "&".join(item for item in query.split("&") if not _MARK.search(item))
    return f"{path}?{kept}" if kept else path


@dataclass(slots=True)
class BodyBudget:
    """Memory that all bodies of one tap may use together, in bytes."""

    most: int = 128 * 2**20
    held: int = 0


@dataclass(slots=True)
class Body:
    """The bytes of one body as they came, with their times; of one longer than `BODY_LIMIT`, or that the budget has no
    place for, none are kept.
    """

    size: int = 0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    whole: bool = True
    crowded: bool = False  # the budget had no place for it
    kept: int = 0  # bytes that are kept
    budget: BodyBudget = field(default_factory=BodyBudget)

    def add(self, at: float, data: bytes) -> None:
        """Take one piece that arrived at `at` (monotonic seconds)."""
        self.size += len(data)
        if not self.whole:
            return
        self.crowded = self.size <= BODY_LIMIT and self.budget.held + len(data) > self.budget.most
        if self.size > BODY_LIMIT or self.crowded:
            self.whole = False
            self.drop()
            return
        self.pieces.append((at, data))
        self.kept += len(data)
        self.budget.held += len(data)

    def drop(self) -> None:
        """Keep none of it."""
        self.budget.held -= self.kept
        self.kept, self.pieces = 0, []

    def replace(self, at: float, data: bytes) -> None:
        """Keep `data` in the place of what came."""
        self.drop()
        self.size, self.whole, self.crowded = 0, True, False
        self.add(at, data)

    def join(self) -> None:
        """Keep it as one piece from now on, with the time of the first: in any thread, also while more is coming."""
        pieces, count = self.pieces, len(self.pieces)
        if count > 1:
            pieces[:count] = [(pieces[0][0], b"".join(piece for _, piece in pieces[:count]))]

    @property
    def data(self) -> bytes:
        """All that was kept."""
        return b"".join(piece for _, piece in self.pieces)


@dataclass(slots=True)
class Steered:
    """Record of what a watch did to a request on its way, or found in it (`Steering`).

    `unit`: a keyed hash of its conversation, empty if it names none. `reply`: of the reply that a later request
    may go on from. `held_out`: it went past the proxy. `planted`: the
    needles that were put in at the front, each with the turns since its tool result came; `without` says why there are
    none. `removed`: those that were found whole at the back; `damaged`: what was left of others there.
    """

    unit: str = ""
    reply: str = ""
    held_out: bool = False
    planted: tuple[tuple[str, int], ...] = ()
    without: str = ""
    removed: frozenset[str] = frozenset()
    damaged: int = 0


@dataclass(slots=True)
class Exchange:
    """One request on its way through the tap. `arrived`, `finished` in monotonic seconds; `started` since the epoch.

    `answered`: when the answer was whole, if it has been: its connection may stay open after that. `finished` is set
    when the exchange is over for the tap, to the moment at which its answer was whole or broke off; what comes later is
    relayed and not recorded.
    """

    number: int
    id: str
    method: str
    target: str
    headers: Headers
    match: MarkMatch
    started: float
    arrived: float
    finished: float = 0.0
    answered: float = 0.0
    body: Body = field(default_factory=Body)
    reply: Body = field(default_factory=Body)
    status: int | None = None
    reply_headers: Headers = field(default_factory=list)
    error: str | None = None
    ending: bool = False  # the upstream has said its last byte
    kept: asyncio.Event | None = (
        None  # an observer keeps the record before the client has the end of the answer; set when that is done
    )
    record: Forwarded | None = None
    apart: bool = False  # it is read in a process of its own, from which `request` does not come back
    request: WireRequest | None = None  # as read for the record; kept for an observer only, and never written down
    words: frozenset[str] | None = None  # of a request that was read apart
    answer: Reply | None = None  # as the request: for an observer only
    packed_answer: bytes = b""  # pickled, of an exchange that was read apart
    digest: bytes = b""  # of the body as it came, for an observer
    meaning: bytes = b""  # of what the body says, whatever the order of its keys, for an observer
    whole: bytes = b""  # the full request, where the body is an increment, for an observer
    arrived_as: str = ""  # what arrived, as a digest, where the window is paired with the baseline's
    copied: bool = False  # it was answered with the reply that the baseline got
    assumed: bool = False  # not because the same arrived, but all evidence in it
    steered: Steered = field(default_factory=Steered)

    @property
    def wire(self) -> str:
        """The API that it is a request of."""
        return SOCKET_WIRE if self.method == SOCKET else wire_of(self.method, self.target)

    def alone(self) -> Exchange:
        """The exchange as it can travel to another process: without the others of its window, and nobody waits for it
        there.
        """
        window = self.match.window
        match = self.match if window is None else replace(self.match, window=replace(window, arrivals=[]))
        return replace(self, match=match, kept=None)

    @property
    def held(self) -> int:
        """Bytes of its bodies that are in memory."""
        return self.body.kept + self.reply.kept

    @property
    def window(self) -> MarkWindow | None:
        return self.match.window

    @property
    def pairing(self) -> BaselinePairing | None:
        """The pairing of its window with the baseline's; `None` for one that came after its window was closed."""
        return None if self.window is None or self.match.late else self.window.pairing


def header(headers: Headers, name: str) -> str:
    """All values of a header, joined by commas; empty if it is not there."""
    return ", ".join(value for key, value in headers if key.lower() == name)


class Windows:
    """Opens and closes windows and says which one a request belongs to. Times are the clock's monotonic seconds."""

    def __init__(self, marker: str = "key", *, clock: Clock = SYSTEM_CLOCK, late: float = LATE_SECONDS) -> None:
        self.marker = _checked(marker)
        self._clock = clock
        self._late = late
        self._secret = secrets.token_bytes(32)
        self._count = 0
        self._latest: dict[str, MarkWindow] = {}  # by token: open, or closed not longer than `late` ago
        self._open: dict[int, MarkWindow] = {}
        self._closing: deque[MarkWindow] = deque()

    @property
    def open(self) -> int:
        """The number of open windows."""
        return len(self._open)

    def begin(
        self, conversation: str, *, owner: str = "", marker: str | None = None, pairing: BaselinePairing | None = None
    ) -> tuple[Mark, MarkWindow | None]:
        """Open a window; gives its mark, and the conversation's earlier window if that was never closed (it is now).

        The same conversation of the same owner always gets the same token, so nothing has to be remembered for it.
        """
        name = self._keyed_hash(f"name:{len(owner)}:{owner}{conversation}")[:24]
        token = f"cb-{name}{self._signature(name)}"
        before = self._latest.get(token)
        abandoned = self.close(before.mark) if before is not None and before.closed is None else None
        self._count += 1
        window = MarkWindow(self._count, Mark(_checked(marker or self.marker), token), owner, pairing)
        self._latest[token] = self._open[window.number] = window
        return window.mark, abandoned

    def close(self, mark: Mark) -> MarkWindow:
        """Close the mark's window and give it. Raises `BadInput` when none is open."""
        window = self._latest.get(mark.token)
        if window is None or window.closed is not None:
            raise BadInput(
                "the tap has no open window for this mark: it was ended already, or the tap was restarted during the "
                "run"
            )
        window.closed = self._clock.monotonic()
        del self._open[window.number]
        self._closing.append(window)
        return window

    def arrivals(self, mark: Mark) -> list[Exchange]:
        """Exchanges that came in the mark's window so far; the list goes on growing. Empty when none is open."""
        window = self._latest.get(mark.token)
        return [] if window is None else window.arrivals

    def match(self, found: FoundMark) -> MarkMatch:
        """The request's conversation, by key, else by header, else by being the only possible one; `none` when unknown
        or contradictory.
        """
        self._forget()
        tokens = found.keys | found.named
        if not tokens:
            return self._by_time()
        first = min(tokens)
        window = self._latest.get(first) if len(tokens) == 1 else None
        if window is None:
            ours = all(map(self.made, tokens))
            return MarkMatch(None, "none", first if ours and len(tokens) == 1 else None, ours=ours)
        return _matched(window, "key" if first in found.keys else "header")

    def made(self, token: str) -> bool:
        """True if this tap made the token, however long ago: a token carries its own signature, so none has to be
        remembered.
        """
        return _MARK.fullmatch(token) is not None and hmac.compare_digest(token[27:], self._signature(token[3:27]))

    def _signature(self, name: str) -> str:
        return self._keyed_hash(f"sign:{name}")[:16]

    def _keyed_hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def _by_time(self) -> MarkMatch:
        candidates = list(self._open.values()) or [w for w in self._closing if self._latest.get(w.mark.token) is w]
        return _matched(candidates[0], "serial") if len(candidates) == 1 else UNMATCHED

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - self._late
        while self._closing and (self._closing[0].closed or 0.0) < oldest:
            window = self._closing.popleft()
            if self._latest.get(window.mark.token) is window:
                del self._latest[window.mark.token]


def _matched(window: MarkWindow, by: MatchedBy) -> MarkMatch:
    authorization = by == "key" if window.mark.mode == "key" else None
    return MarkMatch(window, by, window.mark.token, window.closed is not None, authorization, ours=True)


def _checked(marker: str) -> str:
    if marker not in MARKERS:
        raise BadInput(f"marker {marker!r} is not known; expected one of: {', '.join(MARKERS)}")
    return marker


#: Bytes of a body that are sent on at once; in between others are served.
_AT_ONCE = 256 * 1024
_Data = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Onward:
    """Way of a request from here: by default it goes on as it came.

    `around`: the base URL of another tap on this machine that it goes to instead, with `mark` in our own header, which
    that tap takes out. `body`: sent in the place of the one that came; `recorded`: it is also what is written down as
    having come. `plain`: the body is no longer packed.
    """

    around: str | None = None
    mark: str | None = None
    body: bytes | None = None
    recorded: bool = False
    plain: bool = False

    def headers(self, came: Headers) -> Headers:
        """The request's headers as they go on."""
        kept = [(name, self._value(name.lower(), value)) for name, value in came if not self._drops(name.lower())]
        return kept if self.mark is None else [*kept, (MARK_HEADER, self.mark)]

    def _value(self, name: str, value: str) -> str:
        return value if self.body is None or name != "content-length" else str(len(self.body))

    def _drops(self, name: str) -> bool:
        return self.plain and name == "content-encoding"


AS_IT_CAME = Onward()


class Steering:
    """Is asked about each request of a tap, on the tap's loop. This one lets all go on as they came."""

    def by_head(self, exchange: Exchange) -> Onward | None:
        """Decide by the headers; `None` if the body is wanted, too."""
        return AS_IT_CAME

    def by_body(self, exchange: Exchange, body: bytes | None) -> Onward:
        """Decide by the whole body; `None` is one that is longer than is read."""
        return AS_IT_CAME


def by_head(steering: Steering | None, exchange: Exchange, *, bodiless: bool = False) -> Onward | None:
    """Ask `steering` about a request by its headers; `None` if it wants the body, which none that is `bodiless` has.
    Its mistakes stop no request.
    """
    try:
        onward = AS_IT_CAME if steering is None else steering.by_head(exchange)
        return AS_IT_CAME if onward is None and bodiless else onward
    except Exception:
        _log.exception("a request could not be steered by its headers; it goes on as it came")
        return AS_IT_CAME


async def by_body(steering: Steering | None, exchange: Exchange, coming: _Data) -> tuple[_Data, Onward]:
    """Ask `steering` about a request by its body; also the body to send. A body that has no length keeps none."""
    whole, rest = (coming, None) if not isinstance(coming, AsyncIterator) else await _gathered(coming)
    try:
        assert steering is not None, "it wanted the body"
        onward = steering.by_body(exchange, None if rest is not None else whole or b"")
    except Exception:
        _log.exception("a request could not be steered by its body; it goes on as it came")
        onward = AS_IT_CAME
    if rest is not None:
        return _in_turn(whole or b"", rest), onward
    if onward.body is not None:
        whole = onward.body
        if onward.recorded:
            exchange.body.replace(exchange.arrived, whole)
    unsized = not header(exchange.headers, "content-length")
    return (_in_turn(whole) if whole and (unsized or len(whole) > _AT_ONCE) else whole), onward


async def _gathered(coming: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes] | None]:
    """The whole body; of one that is longer than is read its beginning, and what comes after that."""
    pieces = bytearray()
    async for piece in coming:
        pieces += piece
        if len(pieces) > BODY_LIMIT:
            return bytes(pieces), coming
    return bytes(pieces), None


async def _in_turn(first: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(first), _AT_ONCE):
        yield first[start : start + _AT_ONCE]
    if rest is not None:
        async for piece in rest:
            yield piece
