"""From the stored traffic of a replay to its figures, system by system: cache, money, violations, agreement with
passthrough.

The store is read item by item; memory holds the texts of one session at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.keys import canonical_json, without_nulls
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.metrics.cache_pricing import (
    CacheFigures,
    Costs,
    Price,
    SessionCache,
    SessionCost,
    StatedBill,
    recorded_facts,
    session_cost,
)
from context_bench.transcripts.account import STAND_IN, Account, made_text, weighing
from context_bench.transcripts.session import reply_tokens
from context_bench.wire.apis import Reply, parse_reply, seen_at
from context_bench.wire.apis.shared import dump
from context_bench.wire.cache import CacheProfile
from context_bench.wire.diff import RepeatedRuns
from context_bench.wire.fidelity import AtomCounts, Fidelity, Original, Summary, summarise
from context_bench.wire.needles import LineOwners
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import (
    Violation,
    closest,
    closest_reply,
    compare_requests,
    count_tools,
    lint_changes,
    repeated_requests,
    silent_truncation,
    tools_of,
)
from context_bench.wire.violations.linter.forms import RequestBody, SessionItems


def _unpriced(usage: Usage) -> None:
    """No price is known."""


Item = Mapping[str, Any]  # `row`, `example`, `output`, `calls`, `forwarded`, as `engine.export` gives them
Messages = list[dict[str, str]]  # role and content
_CHAT = ("openai-chat", "openai-responses", "anthropic")
_MOST_TURNS = 600  # of a session that are summed up by their number
_EXAMPLES = 20  # of lost and invented atoms that are kept by name
_CERTAIN = ("token_saving", "sessions")  # of the cost, what can be said where money cannot
_SHORTENED = 0.99  # of a conversation's tokens: what keeps more has not shortened it
_SHARES = (
    *("retained", "recoverable", "lost", "macro", "fabricated"),
    *("near_misses", "word_damage", "coverage", "density", "keep"),
)


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Cache rules of a model's provider: `marked` = only prefixes that a request marks; `priced`: dollars, not relative
    figures. `own`: the rules and prices are the recorded model's; `price` gives the US dollars of a usage of that
    model.
    """

    profile: CacheProfile
    marked: bool = False
    priced: bool = False
    own: bool = False
    price: Price = _unpriced


@dataclass(slots=True)
class _Exchange:
    """One request of a session as it was sent, and as it arrived behind the system."""

    size: int  # bytes of the body as sent
    sent: RequestBody
    main: Mapping[str, Any]
    arrived: RequestBody
    extra: Sequence[Mapping[str, Any]]
    records: Sequence[Mapping[str, Any]]
    output: Mapping[str, Any]  # what the client made of the reply, its usage as `usage`


@dataclass(slots=True)
class _Session:
    """One session through one system."""

    name: str
    rules: CacheRules
    sent: SessionCache
    forwarded: SessionCache
    account: Account
    bill: StatedBill = field(default_factory=StatedBill)
    moved: int = 0
    at: float | None = None
    output: int = 0
    extra_tokens: int = 0
    extra_output: int = 0
    last: _Exchange | None = None

    def cost(self) -> SessionCost:
        cost = session_cost(
            self.sent.figures,
            self.forwarded.figures,
            self.output,
            self.rules.profile,
            extra_tokens=self.extra_tokens,
            extra_output=self.extra_output,
            scale=self.account.scale,
        )
        return cost.billed(self.bill.usd) if self.rules.own and self.bill.whole else cost


@dataclass(slots=True)
class _Measured:
    """Cache figures that providers reported."""

    requests: int = 0
    input_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def add(self, usage: Mapping[str, Any]) -> None:
        if usage.get("cache_read") is None and usage.get("cache_write") is None:
            return
        self.requests += 1
        for name in ("input_tokens", "cache_read", "cache_write"):
            setattr(self, name, getattr(self, name) + (usage.get(name) or 0))


@dataclass(slots=True)
class SystemFigures:
    """Everything that is summed up about one system. Feed it the system's items in plan order, then ask for `as_dict`.

    `truncate(messages, tokens, model)` gives a conversation cut to a size; with it, `against_truncation` holds for each
    conversation that the system shortened (session, share of its atoms kept, share that truncation to the same size
    keeps).
    """

    rules_for: Callable[[str, bool], CacheRules]
    clean: Callable[[Any], Any] = lambda body: body
    truncate: Callable[[Messages, int, str | None], Messages] | None = None
    repeats: RepeatedRuns = field(default_factory=RepeatedRuns)
    against_truncation: list[tuple[str, float, float]] = field(default_factory=list)
    requests: int = 0
    unseen: int = 0
    failed: int = 0
    exact: bool = True
    priced: bool = True
    untimed: int = 0
    sent: CacheFigures = field(default_factory=CacheFigures)
    forwarded: CacheFigures = field(default_factory=CacheFigures)
    costs: Costs = field(default_factory=Costs)
    bill: StatedBill = field(default_factory=StatedBill)
    moved: int = 0
    own_rules: bool = True
    measured: _Measured = field(default_factory=_Measured)
    violations: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    tools: dict[str, dict[str, int]] = field(default_factory=dict)
    by_session: list[dict[str, Any]] = field(default_factory=list)
    by_turn: list[list[int]] = field(default_factory=list)
    by_turn_alone: list[list[int]] = field(default_factory=list)
    by_turn_measured: list[list[int]] = field(default_factory=list)
    _accounts: dict[str, Account] = field(default_factory=dict)
    _pairs: list[Fidelity] = field(default_factory=list)
    _open: dict[tuple[str, int], _Session] = field(default_factory=dict)
    _conversations: LineOwners = field(default_factory=LineOwners)
    _items: SessionItems = field(default_factory=SessionItems)  # of the sessions that are open

    def add(self, item: Item) -> None:
        """Take in one request of a session."""
        row = item["row"]
        group = str(row.get("group") or row["example_id"])
        for key in [key for key in self._open if key[0] != group]:
            self._close(key)
            self._items = SessionItems()
        self.requests += 1
        if "system" in (row.get("errors") or {}):
            self.failed += 1
            return
        exchange = self._exchange(item)
        if exchange is None:
            self.unseen += 1
            return
        session = self._session(group, int(row.get("trial") or 0), exchange, item["example"] or {})
        before = session.last
        self._count(session, exchange, item["example"] or {})
        ident, run = str(row["example_id"]), int(row.get("trial") or 0)
        found = self._conversations.leaks(group, exchange.sent.neutral, exchange.arrived.neutral)
        found += self.repeats.changes(ident, run, exchange.main, session.rules.profile)
        self._check(exchange, before, found)

    def as_dict(self) -> dict[str, Any]:
        """The figures of all sessions, JSON-ready."""
        for key in list(self._open):
            self._close(key)
        recorded = recorded_facts(self.bill, list(self._accounts.values()), moved=self.moved, own_rules=self.own_rules)
        cost = self.costs.as_dict()
        if "no_verdict" in recorded:
            cost = {name: value for name, value in cost.items() if name.startswith(_CERTAIN)}
        found: dict[str, Any] = {
            "requests": self.requests,
            "failed": self.failed,
            "unseen": self.unseen,
            "sessions": len(self.by_session),
            "exact": self.exact,
            "priced": self.priced,
            "tokens": {"sent": self.sent.tokens, "forwarded": self.forwarded.tokens},
            "cache": self.forwarded.as_dict(),
            "cache_alone": self.sent.as_dict(),
            "cost": cost,
            "recorded": recorded,
            "violations": {kind: self._times(kind) for kind in sorted(self.violations)},
            "fidelity": _fidelity(summarise(self._pairs, examples=_EXAMPLES)),
            "by_session": self.by_session,
            "by_turn": self.by_turn,
            "by_turn_alone": self.by_turn_alone,
        }
        found |= {"repeats": self.repeats.as_dict(self.priced)} if self.repeats.runs > 1 else {}
        if self.measured.requests:
            found["measured"] = {name: getattr(self.measured, name) for name in _Measured.__slots__}
            found["by_turn_told"] = self.by_turn_measured
        return found

    def _exchange(self, item: Item) -> _Exchange | None:
        """The request as sent and as it arrived; `None` where the tap did not see it, or its body was not kept."""
        sent = next(
            (call for call in reversed(item["calls"]) if call["account"] == "system" and call.get("error") is None),
            None,
        )
        recorded = (item["example"] or {}).get("request")
        if sent is None or recorded is None or not isinstance(sent.get("request"), Mapping):
            return None
        wire, known = recorded["wire"], self._items
        body = known.body(sent["request"], wire, self.clean)
        records = [record for record in item["forwarded"] if record["wire"] in _CHAT]
        landed = [
            (record, RequestBody(known.body(record["request"], record["wire"]), record["wire"], known))
            for record in records
            if record.get("error") is None
            and (record.get("status") or 200) < 400
            and isinstance(record.get("request"), Mapping)
        ]
        if not landed:
            return None
        front = RequestBody(body, wire, known)
        best = closest(front.neutral, [arrived.neutral for _, arrived in landed])
        main, back = landed[best]
        extra = [record for place, (record, _) in enumerate(landed) if place != best]
        output = {**self.clean(item["output"] or {}), "usage": sent.get("usage")}
        return _Exchange(len(dump(sent["request"])), front, main, back, extra, records, output)

    def _session(self, group: str, trial: int, exchange: _Exchange, example: Mapping[str, Any]) -> _Session:
        found = self._open.get((group, trial))
        if found is None:
            model = exchange.sent.neutral.model or ""
            account = self._accounts.setdefault(group, Account.of(example.get("account")))
            rules, counter = self.rules_for(model, account.hour), weighing(counter_for(model), account)
            marked, timed = rules.marked and exchange.sent.wire == "anthropic", example.get("at") is not None
            sent, forwarded = (SessionCache(rules.profile, counter, marked, timed, account.warm) for _ in range(2))
            found = self._open[group, trial] = _Session(group, rules, sent, forwarded, account)
            self.own_rules = self.own_rules and rules.own
            self.exact, self.priced = self.exact and counter.exact, self.priced and rules.priced
            self.untimed += not timed
        return found

    def _count(self, session: _Session, exchange: _Exchange, example: Mapping[str, Any]) -> None:
        session.at = example.get("at", session.at)
        breaks = session.sent.figures.prefix_breaks
        session.sent.add(exchange.sent.neutral, session.at)
        if session.last is not None and session.sent.figures.prefix_breaks > breaks:
            self._lose(session, session.last)  # the session itself went on without what it had said
        session.last = exchange
        session.forwarded.add(exchange.arrived.neutral, session.at)
        usage = exchange.main.get("usage") or {}
        place = session.forwarded.figures.requests - 1
        _add_turn(self.by_turn_alone, place, session.sent.parts)
        _add_turn(self.by_turn, place, session.forwarded.parts)
        if (told := _measured_parts(usage, session.forwarded.parts)) is not None:
            _add_turn(self.by_turn_measured, place, told)
        output = _reply_tokens(example, session.sent.counter.count)
        session.output += output
        usage_stated = Usage(**recorded) if (recorded := (example.get("recorded") or {}).get("usage")) else None
        price = self.rules_for(exchange.sent.neutral.model or "", session.account.hour).price
        session.bill.add(
            usage_stated, output, price, session.sent.prompts.lengths[-1], session.sent.read_per_request[-1]
        )
        session.moved += bool(session.account.head) and not _stands(exchange.arrived.neutral, session.account)
        for record in exchange.extra:
            session.extra_tokens += record.get("tokens") or 0
            session.extra_output += (record.get("usage") or {}).get("output_tokens") or 0
        self.measured.add(usage)

    def _check(self, exchange: _Exchange, before: _Exchange | None, again: Sequence[Violation]) -> None:
        found = [*_violations(exchange, before), *again]
        kinds = [violation.kind for violation in found]
        self.violations.update(kinds)
        self.violated.update(set(kinds))
        count_tools(self.tools, tools_of(found))

    def _times(self, kind: str) -> dict[str, Any]:
        """Counts of each kind of change: times, requests, and requests by tool."""
        tools = {"tools": self.tools[kind]} if kind in self.tools else {}
        return {"times": self.violations[kind], "requests": self.violated[kind], **tools}

    def _lose(self, session: _Session, exchange: _Exchange) -> None:
        """The part of a whole conversation that no longer arrived, without the text that stands for a missing system
        prompt.
        """
        model, words = exchange.sent.neutral.model, session.account.words
        made = made_text(words).split("\n") if words else []
        sent, received = (
            [{"role": message.role, "content": _without(message.text, made)} for message in each.messages]
            for each in (exchange.sent.neutral, exchange.arrived.neutral)
        )
        original, counter = Original(sent), counter_for(model)
        found = original.against(received, counter=counter)
        if (
            self.truncate is not None
            and found.tokens_after < _SHORTENED * found.tokens_before
            and (kept := _retained(found.kinds)) is not None
        ):
            cut = original.atoms_kept(self.truncate(sent, found.tokens_after, model))
            self.against_truncation.append((session.name, kept, _retained(cut) or 0.0))
        for listed in (found.lost, found.invented, found.near_misses):
            del listed[_EXAMPLES:]
        self._pairs.append(found)

    def _close(self, key: tuple[str, int]) -> None:
        session = self._open.pop(key)
        if session.last is not None:
            self._lose(session, session.last)
        sent, forwarded, cost = session.sent.figures, session.forwarded.figures, session.cost()
        self.sent, self.forwarded = self.sent + sent, self.forwarded + forwarded
        self.costs.sessions.append(cost)
        self.bill += session.bill
        self.moved += session.moved
        told = {
            "net_cost_ratio": cost.net_cost_ratio,
            "token_saving": cost.token_saving,
            "prefix_stability": forwarded.prefix_stability,
        }
        self.by_session.append(
            {
                "session": session.name,
                **({"trial": key[1]} if key[1] else {}),
                "requests": sent.requests,
                "sent": sent.tokens,
                "forwarded": cost.forwarded,
                "prefix_breaks": forwarded.prefix_breaks,
                **{name: value for name, value in told.items() if value is not None},
            }
        )


def _without(text: str, lines: Sequence[str]) -> str:
    """The text without these lines, wherever they stand in it."""
    for line in lines:
        text = text.replace(line, "")
    return text


def _stands(request: WireRequest, account: Account) -> bool:
    """Look for stand-ins for what the log does not hold in the request as it was sent."""
    if STAND_IN not in canonical_json(request.tools):
        return False
    made = made_text(account.words) if account.words else ""
    return any(part.text is not None and made in part.text for message in request.messages for part in message.parts)


def _retained(kinds: Mapping[str, AtomCounts]) -> float | None:
    """The share of a conversation's atoms that still arrive; `None` where it has none."""
    total = sum(each.total for each in kinds.values())
    return sum(each.retained for each in kinds.values()) / total if total else None


def _add_turn(sums: list[list[int]], place: int, parts: tuple[int, int, int]) -> None:
    """Add a prompt, `SessionCache.parts`, to the sums of its number in the session: requests, then tokens."""
    if place < _MOST_TURNS:
        sums += [[0, 0, 0, 0] for _ in range(place + 1 - len(sums))]
        sums[place] = [a + b for a, b in zip(sums[place], (1, *parts), strict=True)]


def _measured_parts(usage: Mapping[str, Any], parts: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """The parts of a prompt with the provider's own count of what its cache served; `None` if it told none.

    No provider tells how much of the rest had been sent before: that is our count, in the provider's tokens, and no
    more than the rest.
    """
    whole, read = usage.get("input_tokens"), usage.get("cache_read")
    if not whole or read is None:
        return None
    rest = max(0, whole - read)
    rewritten = min(rest, round(parts[1] * whole / (sum(parts) or 1)))
    return read, rewritten, rest - rewritten


def _fidelity(summary: Summary) -> dict[str, Any]:
    """Loss in JSON: shares, tallies by kind, role, tenth of the text and script, and some of what was lost or made
    up.
    """

    def counts(by: Mapping[Any, AtomCounts]) -> dict[str, dict[str, int]]:
        return {
            str(key): {"atoms": each.total, "retained": each.retained, "lost": each.lost}
            for key, each in sorted(by.items())
        }

    metrics = summary.metrics
    damage = {name.partition(".")[2]: value for name, value in metrics.items() if name.startswith("word_damage.")}
    return {
        "pairs": summary.pairs,
        **{name: metrics[name] for name in _SHARES if name in metrics},
        **{name: counts(getattr(summary, name)) for name in ("kinds", "roles", "deciles", "scripts")},
        "word_damage_by_script": damage,
        "lost_atoms": [{"kind": each.kind, "atom": each.atom, "role": each.role} for each in summary.lost],
        "invented_atoms": [{"kind": kind, "atom": atom} for kind, atom in summary.invented],
    }


def _reply_tokens(example: Mapping[str, Any], count: Callable[[str], int]) -> int:
    """Tokens of the recorded reply: as billed then, else by our count."""
    recorded = example.get("recorded") or {}
    billed = (recorded.get("usage") or {}).get("output_tokens")
    if isinstance(billed, int):
        return billed
    return reply_tokens(recorded.get("text"), recorded.get("tool_calls") or [], count)


def _violations(exchange: _Exchange, before: _Exchange | None) -> list[Violation]:
    found = compare_requests(exchange.sent.neutral, exchange.arrived.neutral)
    main = exchange.main
    if len(exchange.records) > 1:
        found += repeated_requests([(dump(each.get("request")), each.get("status")) for each in exchange.records])
    usage = main.get("usage") or {}
    cut = silent_truncation(usage.get("input_tokens"), main.get("tokens") or 0, exact=bool(main.get("exact")))
    earlier = (before.sent, before.arrived) if before is not None else None
    wrong = lint_changes(
        exchange.sent, exchange.arrived, sent_wire=exchange.sent.wire, wire=main["wire"], earlier=earlier, known=found
    )
    return [*found, *wrong, *([cut] if cut else []), *_respelt(exchange), *_reply_changes(exchange)]


def _reply_changes(exchange: _Exchange) -> list[Violation]:
    """Changes to the reply on its way to the client: to what the output and the tap's record both hold of it."""
    output, usage = exchange.output, exchange.output["usage"]
    backs = [reply for record in (exchange.main, *exchange.extra) if (reply := _reply_of(record)) is not None]
    if not backs or "response" not in output:
        return []
    front = Reply(
        text=output["response"] or None,
        tool_calls=list(output.get("tool_calls") or []),
        finish_reason=output.get("finish_reason"),
        usage=Usage(**usage) if usage else None,
        streamed=exchange.sent.neutral.stream,
    )
    found = closest_reply(seen_at(front, exchange.sent.wire, 200, {}), backs, asked=exchange.sent.neutral)[1]
    own = (exchange.main.get("facts") or {}).get("reply_faults") or []
    faults = [kind for kind in output.get("reply_faults") or [] if kind not in {*own, *(one.kind for one in found)}]
    return found + [Violation(kind, "shown by the reply itself") for kind in faults]


def _reply_of(record: Mapping[str, Any]) -> Reply | None:
    """A reply as a tap kept it: what a client's output holds of it, too."""
    try:
        reply = parse_reply(record["wire"], record.get("reply"))
    except BadReply:
        return None
    reply.text, reply.refusal, reply.reasoning = reply.text or None, None, None
    reply.stop, reply.signatures, reply.blocks = None, [], []
    reply.streamed = bool(record.get("stream"))
    return seen_at(reply, record["wire"], 200, {})


def _respelt(exchange: _Exchange) -> list[Violation]:
    """The same body in other bytes, told by its length (uncompressed bodies only)."""
    main, coded = exchange.main, ((exchange.main.get("facts") or {}).get("headers") or {}).get("content-encoding")
    if coded or not main.get("bytes_in") or exchange.sent.wire != main["wire"]:
        return []
    if exchange.size == main["bytes_in"] or without_nulls(main.get("request")) != without_nulls(exchange.sent.raw):
        return []
    return [Violation("json_reserialised", f"{exchange.size} bytes became {main['bytes_in']}, the meaning is the same")]
