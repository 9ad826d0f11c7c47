"""Compactions that a session recorded: their size and cost, and what was lost by them that the session needed later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from context_bench.compression.probes import CompressionPoint, tokens_of
from context_bench.compression.session_rules.losses import Loss, facts_of, losses
from context_bench.core.protocols import Prices
from context_bench.core.records import Usage
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.session import Compaction, Session, SessionRequest, spoken
from context_bench.wire.conversation import ChatMessage

if TYPE_CHECKING:
    from context_bench.reports.table import Grid


@dataclass(slots=True)
class CompactionAudit:
    """One compaction.

    `before`, `after`: tokens of the last prompt with its reply and of the first prompt after it, as billed; of the
    messages, counted here, where the log states none (`counted`). `stated`: what the client noted as these sizes.
    `cost`: USD of the call that made the summary, `predicted` where the log does not have that call. `prefix_cost`: USD
    that the first request after it paid beyond reading all of its prompt from the cache. `full_again`: requests, and
    `full_again_seconds`, until the prompt was as long as before; `None`: it never was. `facts`: facts of the history by
    kind; `losses`: those lost, the needed ones first.
    """

    session: str
    number: int
    request: int
    trigger: str | None
    before: int
    after: int
    counted: bool
    stated: tuple[int | None, int | None]
    summary_tokens: int
    seconds: float | None
    cost: float | None
    predicted: bool
    prefix_cost: float | None
    full_again: int | None
    full_again_seconds: float | None
    facts: dict[str, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)

    @property
    def needed(self) -> list[Loss]:
        """The losses that the session shows to have been missed."""
        return [loss for loss in self.losses if loss.need is not None]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def audit(
    session: Session, *, prices: Prices | None = None, counter: TokenCounter | None = None
) -> list[CompactionAudit]:
    """The compactions of a session, in order. `prices`: for the money, which is `None` without them."""
    count = counter or counter_for(_model(session))
    return [_audited(session, number, prices, count) for number in range(len(session.compactions))]


def segment_after(session: Session, number: int) -> list[ChatMessage]:
    """The messages that came after a compaction, up to the next one, without those that stand for the history."""
    opening = spoken(session.compactions[number].make_opening())
    rest = session.compactions[number + 1 :]
    whole = spoken(rest[0].make_before() if rest else session.messages)
    if whole[: len(opening)] == opening:
        return whole[len(opening) :]
    return [message for message in whole if message not in opening]


def recorded_points(session: Session) -> list[tuple[CompressionPoint, list[ChatMessage]]]:
    """The places where the session's client compressed it: the history before and what came after, as one session; and
    the messages that the client put in the place of the history.
    """
    found = []
    for number, compaction in enumerate(session.compactions):
        before, after = spoken(compaction.make_before()), segment_after(session, number)
        if before and compaction.summary:
            name = session.id if len(session.compactions) == 1 else f"{session.id}/{number + 1}"
            point = CompressionPoint(name, len(before), "recorded", before, after)
            found.append((point, spoken(compaction.make_opening())))
    return found


# Size and money
# ------------------------------------------------------------------------


def _audited(session: Session, number: int, prices: Prices | None, counter: TokenCounter) -> CompactionAudit:
    compaction = session.compactions[number]
    before, opening = spoken(compaction.make_before()), spoken(compaction.make_opening())
    last, first = _around(session, compaction)
    billed = (_prompt(last) or 0) + _output(last), _prompt(first) or 0
    counted = not all(billed)
    size = (tokens_of(before, counter), tokens_of(opening, counter)) if counted else billed
    cost, predicted = _cost(session, compaction, last, size[0], counter, prices)
    again, seconds = _full_again(session, number, size[0]) if not counted else (None, None)
    after = segment_after(session, number)
    facts = facts_of(before, cwd=session.meta.get("cwd"))
    kinds: dict[str, int] = {}
    for fact in facts:
        kinds[fact.kind] = kinds.get(fact.kind, 0) + 1
    return CompactionAudit(
        session.id,
        number + 1,
        compaction.request,
        compaction.trigger,
        size[0],
        size[1],
        counted,
        (compaction.stated_before, compaction.stated_after),
        counter.count(compaction.summary),
        compaction.seconds,
        cost,
        predicted,
        _prefix_cost(first, prices),
        again,
        seconds,
        kinds,
        losses(facts, before, opening, after, cwd=session.meta.get("cwd"), counter=counter),
    )


def _model(session: Session) -> str | None:
    found = next(
        (r.recorded_reply.model for r in session.requests if r.recorded_reply and r.recorded_reply.model), None
    )
    return found or None


def _around(session: Session, compaction: Compaction) -> tuple[SessionRequest | None, SessionRequest | None]:
    """The last request before a compaction that did not ask for the summary, and the first one after."""
    held = [r for n, r in enumerate(session.requests[: compaction.request]) if n != compaction.made]
    rest = session.requests[compaction.request :]
    return held[-1] if held else None, rest[0] if rest else None


def _usage(request: SessionRequest | None) -> Usage | None:
    return request.recorded_reply.usage if request is not None and request.recorded_reply is not None else None


def _prompt(request: SessionRequest | None) -> int | None:
    usage = _usage(request)
    return usage.input_tokens or None if usage is not None else None


def _output(request: SessionRequest | None) -> int:
    usage = _usage(request)
    return (usage.output_tokens or 0) if usage is not None else 0


def _priced(prices: Prices | None, request: SessionRequest | None, usage: Usage) -> float | None:
    model = request.recorded_reply.model if request is not None and request.recorded_reply is not None else None
    return prices.cost(usage, model) if prices is not None and model else None


def _cost(
    session: Session,
    compaction: Compaction,
    last: SessionRequest | None,
    size: int,
    counter: TokenCounter,
    prices: Prices | None,
) -> tuple[float | None, bool]:
    """USD of the call that made the summary; predicted where it is not recorded: the whole prompt is read from the
    cache, the summary is written.
    """
    if not compaction.summary:
        return None, False
    made = session.requests[compaction.made] if compaction.made is not None else None
    usage = _usage(made)
    if usage is not None and usage.input_tokens:
        return _priced(prices, made, usage), False
    read = Usage(size, counter.count(compaction.summary), size)
    return _priced(prices, last, read), True


def _prefix_cost(first: SessionRequest | None, prices: Prices | None) -> float | None:
    usage = _usage(first)
    if usage is None or not usage.input_tokens:
        return None
    paid = _priced(prices, first, usage)
    read = replace(usage, cache_read=usage.input_tokens, cache_write=0, cache_write_1h=0)
    least = _priced(prices, first, read)
    return max(0.0, paid - least) if paid is not None and least is not None else None


def _full_again(session: Session, number: int, size: int) -> tuple[int | None, float | None]:
    compaction, rest = session.compactions[number], session.compactions[number + 1 :]
    until = rest[0].request if rest else len(session.requests)
    for place, request in enumerate(session.requests[compaction.request : until], 1):
        if (_prompt(request) or 0) + _output(request) >= size:
            began = compaction.at
            return place, request.at - began if request.at is not None and began is not None else None
    return None, None


# Tables
# ------------------------------------------------------------------------


def compaction_grids(audits: Sequence[CompactionAudit]) -> list[Grid]:
    """Tables of recorded compactions: their sizes and money, the facts lost by kind, and what was missed later."""
    from context_bench.reports.table import Grid

    head = ("compaction", "why", "tokens before", "after", "summary USD", "prefix USD", "full again after")
    rows = [
        (
            f"{one.session} #{one.number}",
            one.trigger or "—",
            f"{_about(one.counted)}{one.before:,}",
            f"{_about(one.counted)}{one.after:,}",
            "—" if one.cost is None else f"{_about(one.predicted)}{one.cost:.4f}",
            "—" if one.prefix_cost is None else f"{one.prefix_cost:.4f}",
            _again(one),
        )
        for one in audits
    ]
    sizes = Grid("Compactions that happened", head, list(rows), "≈ counted or predicted, for the log does not say it")
    kinds = dict.fromkeys(kind for one in audits for kind in one.facts)
    by_kind = [
        (
            kind,
            f"{sum(one.facts.get(kind, 0) for one in audits):,}",
            f"{sum(loss.kind == kind for one in audits for loss in one.losses):,}",
            f"{sum(loss.kind == kind for one in audits for loss in one.needed):,}",
        )
        for kind in kinds
    ]
    about = "Lost: named in neither the summary nor what was kept. Missed: the session shows that it was needed later."
    lost = Grid("What they lost", ("facts", "before", "lost", "missed"), list(by_kind), about)
    missed = [
        (f"{one.session} #{one.number}", loss.kind, loss.text[:120], loss.need or "", loss.evidence[:120])
        for one in audits
        for loss in one.needed
    ]
    shown = Grid("Missed afterwards", ("compaction", "kind", "fact", "how", "seen in"), list(missed), words=True)
    return [Grid(answer(audits), ()), sizes, lost, *([shown] if missed else [])] if audits else []


def answer(audits: Sequence[CompactionAudit]) -> str:
    """Say in a sentence what the compactions lost and what of that was missed."""
    facts = sum(sum(one.facts.values()) for one in audits)
    missed = Counter(loss.kind for one in audits for loss in one.needed)
    lost = sum(len(one.losses) for one in audits)
    told = f"{len(audits):,} compaction{'s' * (len(audits) != 1)} lost {lost:,} of {facts:,} facts; "
    if not missed:
        return f"{told}none of them was missed afterwards."
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in missed.items())
    return f"{told}{missed.total():,} of them were missed afterwards ({kinds})."


def _about(uncertain: bool) -> str:
    return "≈" if uncertain else ""


def _again(one: CompactionAudit) -> str:
    if one.full_again is None:
        return "never"
    seconds = "" if one.full_again_seconds is None else f", {one.full_again_seconds / 60:,.0f} min"
    return f"{one.full_again:,} requests{seconds}"
