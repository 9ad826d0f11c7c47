"""Figures of a turn: tokens, money, changes on the way, and a forecast of prompt caches.

The forecast keeps one cache for each session and model, by the dated rules and prices.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cachetools import FIFOCache

from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.protocols import Prices
from context_bench.core.records import Forwarded, Usage
from context_bench.core.tokens import counter_for
from context_bench.llm.prices import is_priced, profile_for, rule_for
from context_bench.tap.exchange import SOCKET, Headers
from context_bench.tap.masking import failure_of, mask_text
from context_bench.traffic.watch.paired_taps import ArmName, OwnCall, PairedEvent, SeenExchange, likeness
from context_bench.traffic.watch.session_context import SessionPlace, Sessions
from context_bench.wire.apis.shared import Reply, as_dict, load_json
from context_bench.wire.cache import CacheProfile, LiveCache, Prompts, marks, segments
from context_bench.wire.needles import LineOwners
from context_bench.wire.request import WireRequest, by_lower_name
from context_bench.wire.turns import Turn, plus
from context_bench.wire.violations import (
    Violation,
    closest_reply,
    compare_requests,
    cost_stated,
    lint_changes,
    lint_request,
    names_of,
    repeated_requests,
    silent_truncation,
    stream_past_end,
    tools_of,
)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Tokens read from and written to the cache, and US dollars of the whole prompt (`None`: no price is known)."""

    read: int
    written: int
    cost: float | None


@dataclass(slots=True)
class _Cache:
    prompts: Prompts
    live: LiveCache
    marked: bool  # only what is marked is stored
    priced: bool
    held: int = 0


class CacheForecast:
    """Predicts request by request. Texts are held in memory only, packed, in at most `room` bytes: the sessions longest
    unused go first.
    """

    def __init__(self, prices: Prices | None, *, counter_model: str | None = None, room: int = 12_000_000) -> None:
        self._prices, self._counter_model, self._room = prices, counter_model, room
        self._caches: OrderedDict[tuple[str, str], _Cache] = OrderedDict()

    def add(self, session: str, request: WireRequest, at: float) -> Predicted:
        """The next request of `session`, made at `at` seconds."""
        model = request.model or ""
        cache = self._caches.get((session, model)) or self._open(session, model)
        self._caches.move_to_end((session, model))
        prompt = segments(request)
        length = cache.prompts.add(prompt)
        self._account(cache)
        t = len(cache.prompts.lengths) - 1
        stops = [cache.prompts.before(t, whole) for whole in marks(request)] if cache.marked else None
        read, written = cache.live.add(length, lambda s: cache.prompts.shared(s, t), at=at, stops=stops)
        cost = _prompt_cost(cache.live.profile, length, read, written) if cache.priced else None
        return Predicted(read, written, cost)

    def _open(self, session: str, model: str) -> _Cache:
        counter = counter_for(self._counter_model or model)
        priced = is_priced(self._prices, model)
        live = LiveCache(profile_for(model, self._prices))
        made = self._caches[session, model] = _Cache(
            Prompts(counter.count), live, rule_for(model).trigger == "marked", priced
        )
        return made

    def _account(self, cache: _Cache) -> None:
        self._room -= cache.prompts.held - cache.held
        cache.held = cache.prompts.held
        while self._room < 0 and len(self._caches) > 1:
            _, dropped = self._caches.popitem(last=False)
            self._room += dropped.held


def _prompt_cost(profile: CacheProfile, length: int, read: int, written: int) -> float:
    write = 1.0 if profile.w is None else profile.w
    return profile.p_in * (length - read - written + profile.r * read + write * written) / 1e6


PROMPTS = ("openai-chat", "openai-responses", "anthropic")
_DETAILS = 50  # of one turn
_TOOLS = 20  # of one turn and kind
_LINTED = 2**20  # bytes of a body that is looked at again
_SESSIONS = 24  # whose last bodies are kept
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
_log = logging.getLogger("context_bench.tap")


class Money(Prices, Protocol):
    """Prices of a watch, which must know the worst case for what it sends itself."""

    def worst_case(self, model: str, prompt_tokens: int, max_tokens: int | None) -> float | None:
        """The most that one call can cost."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A turn that another arm may be sent too: exactly what the client sent, or the full request that its increment
    stands for. `own`: what reached the provider of it, where something stands in between.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    place: SessionPlace
    turn: Turn
    max_tokens: int | None
    own: OwnCall | None = None


def unmeasured(number: int, event: PairedEvent, clock: Clock) -> Turn:
    """The record of an event by what the taps themselves wrote down."""
    records = _records(event.seen)
    turn = Turn(number, event.kind, records[0].started if records else clock.now(), arm=event.arm)
    turn.calls, turn.violations = _records(event.calls), {"not_measured": 1}
    return turn


class TurnMeasure:
    """From what belongs together to figures. Works in one thread of its own: it remembers sessions and their
    prompts.
    """

    def __init__(
        self, record: str, prices: Money | None, counter_model: str | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._record, self._prices, self._clock = record, prices, clock
        self._sessions = Sessions()
        self._forwarded = CacheForecast(prices, counter_model=counter_model)
        self._alone = CacheForecast(prices, counter_model=counter_model)
        self._places: FIFOCache[tuple[ArmName, int], SessionPlace] = FIFOCache(1024)
        self._drawn: FIFOCache[tuple[ArmName, int], tuple[ArmName, str]] = FIFOCache(1024)
        self._earlier: FIFOCache[tuple[str, str], tuple[bytes, bytes]] = FIFOCache(_SESSIONS)
        self._conversations = LineOwners()
        self._number = 0

    def all(self, events: list[tuple[int, PairedEvent]]) -> list[tuple[Turn, Mirror | None]]:
        """The records of some numbered events, and what may be mirrored of each."""
        return [self._safely(number, event) for number, event in events]

    def apart(self, events: list[tuple[int, PairedEvent]]) -> list[tuple[Turn, Mirror | None]]:
        """The same in another process; mirrors come without their bodies."""
        return [(turn, mirror and replace(mirror, body=b"")) for turn, mirror in self.all(events)]

    def _safely(self, number: int, event: PairedEvent) -> tuple[Turn, Mirror | None]:
        """Hostile bodies are relayed like all others: what cannot be measured is recorded by what the taps themselves
        wrote down.
        """
        self._number = number
        try:
            for seen in event.seen:
                seen.read(event.front if seen is not event.front else None)
            return self._one(event)
        except BaseException as error:  # a panic of a library written in Rust is no `Exception`
            _log.warning("record %d could not be measured (%s)", number, type(error).__name__)
            return unmeasured(number, event, self._clock), None

    def _one(self, event: PairedEvent) -> tuple[Turn, Mirror | None]:
        if event.kind == "turn" and event.front is not None:
            return self._turn(event, event.front)
        place = self._places.get((event.arm, event.number))
        first = event.calls[0].exchange
        arm, unit = self._drawn.get((event.arm, event.number), (event.arm, ""))
        turn = Turn(self._number, event.kind, first.started, arm=arm, unit=unit)
        self._identify(turn, place)
        self._sum_up(turn, event.calls, place)
        turn.status = first.status
        return turn, None

    def _turn(self, event: PairedEvent, front: SeenExchange) -> tuple[Turn, Mirror | None]:
        record, request = front.exchange.record, front.request
        assert record is not None, "the tap shows exchanges only after it has recorded them"
        steered = front.exchange.steered
        arm: ArmName = "holdout" if steered.held_out else event.arm
        self._drawn[event.arm, event.number] = arm, steered.unit
        if record.wire not in PROMPTS:
            turn = Turn(self._number, "other", record.started, arm=arm, wire=record.wire, status=record.status)
            turn.calls = _records(event.calls)
            return turn, None
        place = event.place or (
            self._sessions.place(front.exchange, request, front.reply) if request is not None else None
        )
        turn = Turn(
            self._number,
            "turn",
            record.started,
            arm=arm,
            unit=steered.unit,
            model=record.model,
            wire=record.wire,
            status=record.status,
        )
        turn.sent, turn.exact, turn.seconds, turn.ttft = record.tokens, record.exact, record.seconds, record.ttft
        turn.failure, turn.pending = failure_of(record), event.pending
        turn.reply = steered.reply
        turn.needles_without, turn.needles_shown = steered.without, record.facts.get("needles_shown", 0)
        self._identify(turn, place)
        if place is not None:
            self._places[event.arm, event.number] = place
        self._sum_up(turn, event.calls, place)
        if not (event.calls and event.calls[0] is front):  # with one tap only, the front's own record is the provider's
            turn.front = record
            self._compare(turn, front, event.calls)
            turn.alone_cost = self._alone_cost(front, turn.calls, place)
            turn.bill_alone = _sum(turn.alone_cost, turn.bill_alone)
            if not _answered(record) and turn.bill_through == 0:  # nobody was asked
                turn.bill_alone = 0.0
        else:
            turn.alone_cost, turn.bill_alone = turn.predicted_cost, turn.bill_through
            self._tell(turn, front, self._faults(turn, front, front))
        return turn, self._mirrored(event, front, turn, place)

    @staticmethod
    def _identify(turn: Turn, place: SessionPlace | None) -> None:
        if place is not None:
            turn.session, turn.turn, turn.repeat = place.session.label, place.turn, place.repeat
            turn.context, turn.after = place.context, place.after

    def _sum_up(self, turn: Turn, calls: list[SeenExchange], place: SessionPlace | None) -> None:
        """Add the requests that reached the provider, its bill, and the bill by the cache rules."""
        turn.calls = _records(calls)
        turn.bill_alone = 0.0 if turn.kind == "late" else None
        turn.bill_through = 0.0 if calls or turn.pending or turn.failure is not None else None
        for seen, record in zip(calls, turn.calls, strict=True):
            turn.forwarded = plus(turn.forwarded, record.tokens)
            turn.exact = turn.exact and record.exact if turn.kind == "turn" else record.exact
            predicted = None
            if place is not None and seen.request is not None and record.wire in PROMPTS and _answered(record):
                predicted = self._forwarded.add(
                    f"{turn.arm} {place.session.identity}", seen.request, seen.exchange.arrived
                )
                turn.predicted_read = plus(turn.predicted_read, predicted.read)
                turn.predicted_write = plus(turn.predicted_write, predicted.written)
                turn.predicted_cost = plus(turn.predicted_cost, predicted.cost)
            self._bill(turn, record, predicted)
            if record.wire in PROMPTS and _answered(record):
                asked = predicted.cost if predicted is not None else None
                turn.bill_through = _sum(turn.bill_through, asked, self._reply_cost(record))

    def _bill(self, turn: Turn, record: Forwarded, predicted: Predicted | None) -> None:
        if record.usage is not None:
            cost = self._cost(record.usage, record.model)
            turn.usage, turn.cost = plus(turn.usage, record.usage), plus(turn.cost, cost)
        elif record.wire in PROMPTS and _answered(record):
            cost = self._guess(record, predicted)
            turn.guessed = plus(turn.guessed, cost)
        else:
            return
        turn.unpriced += cost is None

    def _guess(self, record: Forwarded, predicted: Predicted | None) -> float | None:
        """Estimate the cost of an answered call without a usage: by our count of tokens, its prompt by the rules of the
        cache.
        """
        if predicted is None:
            return self._cost(Usage(record.tokens or 0, record.facts.get("reply_tokens", 0)), record.model)
        return _sum(predicted.cost, self._reply_cost(record))

    def _reply_cost(self, record: Forwarded) -> float | None:
        stated = record.usage.output_tokens if record.usage is not None else None
        return self._cost(Usage(0, record.facts.get("reply_tokens", 0) if stated is None else stated), record.model)

    def _cost(self, usage: Usage, model: str | None) -> float | None:
        return self._prices.cost(usage, model or "") if self._prices is not None else None

    def _alone_cost(self, front: SeenExchange, calls: list[Forwarded], place: SessionPlace | None) -> float | None:
        """The prompt's cost had nothing stood in between; also where a client left whose call was answered behind."""
        if place is None or front.request is None or not any(map(_answered, (front.exchange.record, *calls))):
            return None
        return self._alone.add(place.session.identity, front.request, front.exchange.arrived).cost

    def _compare(self, turn: Turn, front: SeenExchange, calls: list[SeenExchange]) -> None:
        """The client's own call among those that reached the provider, and what was done to it."""
        again = repeated_requests([(call.raw, call.exchange.status) for call in calls]) if len(calls) > 1 else []
        turn.retries = len(again)
        turn.extra = max(0, len(calls) - 1 - turn.retries)
        turn.cost_stated = cost_stated(front.answer.headers) if front.answer is not None else None
        if not calls:
            turn.unchanged = None
            if _answered(front.exchange.record) and not turn.pending:
                turn.violations = {"answered_without_provider": 1}
            return
        main = _own_call(front, calls)
        record = main.exchange.record
        assert record is not None, "as above"
        _count_needles(turn, front.exchange.steered.planted, main.exchange.steered.removed)
        turn.needles_damaged = sum(call.exchange.steered.damaged for call in calls)
        turn.bill_alone = self._reply_cost(record)  # the prompt's part is added to it
        others = _records([call for call in calls if call is not main])
        turn.refusals = dict(Counter(failure for one in others if (failure := failure_of(one)) is not None))
        digests = main.exchange.digest, front.exchange.digest
        turn.unchanged = digests[0] == digests[1] if all(digests) else None
        found = self._violations(front, main) if front.request is not None and main.request is not None else []
        billed = silent_truncation(
            record.usage.input_tokens if record.usage else None, record.tokens or 0, exact=record.exact
        )
        found += [] if billed is None else [billed]
        found += self._faults(turn, front, main, found)
        found += self._reply_changes(turn, front, calls, record)
        self._tell(turn, front, [*again, *found])
        if turn.status is not None and turn.failure in (None, str(turn.status)):  # else its client did not wait for it
            turn.added = _apart(turn.seconds, record.seconds)
        turn.added_ttft = _apart(turn.ttft, record.ttft)

    def _tell(self, turn: Turn, front: SeenExchange, found: list[Violation]) -> None:
        """Write down what was found, by kind; in words only where texts are kept."""
        turn.violations = dict(sorted(Counter(one.kind for one in found).items()))
        turn.tools = self._tools(front, found)
        if self._record in ("redacted", "full"):
            turn.details = [f"{one.kind}: {one.detail}" for one in found][:_DETAILS]

    def _faults(
        self, turn: Turn, front: SeenExchange, main: SeenExchange, known: Sequence[Violation] = ()
    ) -> list[Violation]:
        """Faults that the provider refuses, answers worse or bills more for: all of them where there is one tap,
        else those that are not the client's own.
        """
        wires = [one.exchange.record.wire for one in (front, main) if one.exchange.record is not None]
        if len(wires) < 2 or front.request is None or main.request is None or len(main.raw) > _LINTED:
            return []
        earlier = self._earlier.get((turn.arm, f"{turn.session} {turn.context}"))
        self._earlier[turn.arm, f"{turn.session} {turn.context}"] = front.raw, main.raw
        if front is main:
            before = _body(earlier[1]) if earlier else None
            return list(lint_request(_body(main.raw), wires[1], earlier=before))
        same = front.exchange.digest == main.exchange.digest
        headers = (by_lower_name(each.exchange.headers) for each in (front, main))
        keys = [next((told[name] for name in _KEY_HEADERS if name in told), None) for told in headers]
        arrived = None if same else main.request
        leaks = self._conversations.leaks(turn.session or "", front.request, arrived, keys=(keys[0], keys[1]))
        if same:
            return leaks
        pair = (_body(earlier[0]), _body(earlier[1])) if earlier else None
        bodies = _body(front.raw), _body(main.raw)
        return [*leaks, *lint_changes(*bodies, sent_wire=wires[0], wire=wires[1], earlier=pair, known=known)]

    @staticmethod
    def _reply_changes(
        turn: Turn, front: SeenExchange, calls: list[SeenExchange], record: Forwarded
    ) -> list[Violation]:
        """Changes to the reply on its way back, and what was added to its times. Replies too large to be read are
        compared by what the taps noted.
        """
        answers = [call.answer for call in calls]
        if front.answer is None or not (backs := [answer for answer in answers if answer is not None]):
            twice = stream_past_end(turn.front.facts, record.facts) if turn.front is not None else None
            return [] if twice is None else [twice]
        place, found = closest_reply(front.answer, backs, asked=front.request)
        turn.first_byte, turn.pause = front.answer.first_byte, front.answer.longest_pause
        turn.added_first_byte = _apart(turn.first_byte, backs[place].first_byte)
        if front.answer.streamed and backs[place].streamed and turn.failure is None:
            turn.added_pause = _apart(turn.pause, backs[place].longest_pause)
        return found

    def _tools(self, front: SeenExchange, found: list[Violation]) -> dict[str, list[str]]:
        """The tools that were touched, by kind. Where no text is kept: what was added, if it is a word and not the
        client's own.
        """
        named = {kind: [mask_text(name) for name in names[:_TOOLS]] for kind, names in tools_of(found).items()}
        if self._record in ("redacted", "full"):
            return named
        own = names_of(front.request.tools) if front.request is not None else []
        added = [
            name
            for name in named.get("tool_added", [])
            if _WORD.fullmatch(name) and not any(other in name for other in own)
        ]
        return {"tool_added": added} if added else {}

    @staticmethod
    def _violations(front: SeenExchange, main: SeenExchange) -> list[Violation]:
        assert front.request is not None
        assert main.request is not None
        sent, received = by_lower_name(front.exchange.headers), by_lower_name(main.exchange.headers)
        if front.exchange.digest == main.exchange.digest:
            ours, theirs = _bodiless(front.request), _bodiless(main.request)
            return compare_requests(ours, theirs, sent_headers=sent, received_headers=received)
        if SOCKET in (front.exchange.method, main.exchange.method):  # put together by the tap: their bytes are nobody's
            return compare_requests(front.request, main.request, sent_headers=sent, received_headers=received)
        raw = {"sent_raw": front.raw, "received_raw": main.raw}
        return compare_requests(front.request, main.request, sent_headers=sent, received_headers=received, **raw)

    @staticmethod
    def _mirrored(event: PairedEvent, front: SeenExchange, turn: Turn, place: SessionPlace | None) -> Mirror | None:
        if turn.arm != "main" or place is None or turn.repeat or front.request is None:
            return None
        exchange, params = front.exchange, front.request.params
        asked = (params.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
        most = next((value for value in asked if isinstance(value, int) and value > 0), None)
        own = _own_of(front, event.calls) if turn.unchanged is False else None
        method, headers = exchange.method, exchange.headers
        if method == SOCKET:
            method, headers = "POST", [*headers, ("Content-Type", "application/json")]
        return Mirror(method, exchange.target, headers, front.raw, place, turn, most, own)


def _own_of(front: SeenExchange, calls: list[SeenExchange]) -> OwnCall | None:
    exchange = _own_call(front, calls).exchange
    if (record := exchange.record) is None:
        return None
    billed = record.usage.input_tokens if record.usage is not None and _answered(record) else None
    return OwnCall(record.wire, exchange.target, exchange.headers, record.tokens, billed)


def _own_call(front: SeenExchange, calls: list[SeenExchange]) -> SeenExchange:
    """The call that stands for the client's own among those that a proxy made for it: answered, the only one whose
    reply the client was given, else the one most like the client's request. A call that sums the conversation up is
    like it too.
    """
    given = [call for call in calls if _says_the_same(front.answer, call.answer)]
    chosen = given if len(given) == 1 else calls
    if len(chosen) == 1:
        return chosen[0]
    return max(chosen, key=lambda call: (_answered(call.exchange.record), likeness(front.request, call.request)))


def _says_the_same(a: Reply | None, b: Reply | None) -> bool:
    if a is None or b is None or not (a.text or a.tool_calls):
        return False
    names = [[call.get("name") for call in reply.tool_calls] for reply in (a, b)]
    return (a.text or "") == (b.text or "") and names[0] == names[1]


def _body(raw: bytes) -> dict[str, Any]:
    try:
        return as_dict(load_json(raw))
    except ValueError:
        return {}


def _count_needles(turn: Turn, planted: Sequence[tuple[str, int]], removed: frozenset[str]) -> None:
    for name, age in planted:
        counts = turn.needle_ages.setdefault(str(age), {"planted": 0, "kept": 0})
        counts["planted"] += 1
        counts["kept"] += name in removed
    turn.needles_planted = len(planted)
    turn.needles_lost = sum(name not in removed for name, _ in planted)


def _records(calls: list[SeenExchange]) -> list[Forwarded]:
    return [call.exchange.record for call in calls if call.exchange.record is not None]


def _sum(*amounts: float | None) -> float | None:
    """The sum, if all of it is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _answered(record: Forwarded | None) -> bool:
    return record is not None and record.status is not None and record.status < 400


def _bodiless(request: WireRequest) -> WireRequest:
    """Only what is not in the body can differ: nothing need be read."""
    return WireRequest(request.wire, None, [])


def _apart(whole: float | None, inner: float | None) -> float | None:
    return whole - inner if whole is not None and inner is not None else None
