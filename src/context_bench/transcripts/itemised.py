"""The itemised bill of a session: every billed token of every turn, by the item of the prompt that it belongs to.

An *item* (`transcripts.prompt_items`) is *new* in the turn that first sent it and *carried* in each later one. Each
turn's prompt is, in order: tokens read from the cache, tokens written to it, tokens at the plain price; an item's share
of each follows from its place.

Turn t is billed T tokens (as its log states; predicted by the cache rules where it does not), of which our count of the
items explains O. With `Account.scale` s (the provider's tokens for one of ours), items count f = min(s, T / O) for each
of our tokens, where whole bodies were recorded f = min(1.2 · s, T / O). The rest, T - f · O, is *not in the log*; it
stands before all items, as the parts do that logs leave out. So sums over items equal T exactly. Replies are taken
apart alike: texts and calls by count, what is billed beyond them is thinking where the session thinks, else not in the
log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.core.protocols import Prices
from context_bench.core.records import Usage
from context_bench.llm.prices import GenaiPrices, Rules, rules_of
from context_bench.transcripts.account import Account, fit, stated_usage
from context_bench.transcripts.prompt_items import Amounts, BilledTurn, PromptItem, PromptItems
from context_bench.transcripts.session import UNNAMED, Session
from context_bench.transcripts.sources import TokenSource
from context_bench.wire.cache import LiveCache

MISSING = TokenSource("missing")
#: A recorded body holds all that was billed. Up to so many times the session's scale a turn's own is due to the
#: provider's tokenizer, which counts definitions, prose and code in other proportions than ours.
_OTHER_COUNT = 1.2
_SOME = 1_000  # tokens whose price is asked for: few enough for the lowest step of every model


@dataclass(slots=True)
class Itemised:
    """The account of one session. `part`: `main`, `sub-agent`, or `side call` (one request beside a conversation).

    `sources`: billed amounts by source, sums of the items and replies; with `MISSING` they add up to `billed`.
    `unpriced`: turns of a model without a known price, which are in no dollars.
    """

    id: str
    source: str
    part: str
    model: str
    account: Account
    rules: Rules
    turns: list[BilledTurn] = field(default_factory=list)
    items: list[PromptItem] = field(default_factory=list)
    sources: dict[TokenSource, Amounts] = field(default_factory=dict)
    exact: bool = False
    timed: bool = False
    unpriced: int = 0
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def billed(self) -> Amounts:
        """All of it."""
        whole = Amounts()
        for amounts in self.sources.values():
            whole += amounts
        return whole

    @property
    def approximate(self) -> bool:
        """True if items are our count scaled to the bill, or a bill was predicted."""
        return any(not turn.stated or abs(turn.scale - 1) > 1e-9 for turn in self.turns)


def itemised(session: Session, prices: Prices | None = None, *, texts: bool = False) -> Itemised:
    """The account of `session`. `texts`: items keep their texts (for bounds that rewrite them)."""
    reading = PromptItems(session, texts)
    for request in session.requests:
        reading.add(request)
    reading.close()
    own = prices or GenaiPrices()
    model = next((turn.model for turn in reading.turns if turn.model), "")
    account = _account(session, reading)
    made = Itemised(
        session.id,
        session.source,
        _part(session),
        model,
        account,
        rules_of(model, own, hour=account.hour),
        reading.turns,
        reading.items,
        exact=all(request.exact for request in session.requests),
        timed=bool(reading.turns) and all(turn.at is not None for turn in reading.turns),
        meta={
            key: session.meta[key]
            for key in ("format", "compactions", "rewinds", "unseen", "skipped", "began", UNNAMED)
            if key in session.meta
        },
    )
    _Billing(made, session, own, reading).run()
    return made


def _account(session: Session, reading: PromptItems) -> Account:
    """Facts on the bill in the session's log; of one that was sent again, the log's from which it was rebuilt. The text
    that stood in for its head is counted then.
    """
    if "replayed" in session.meta:
        known = Account.of(session.meta["replayed"])
        return replace(known, head=max(0, known.head - known.text_tokens))
    return fit(session, [turn.ours for turn in reading.turns], reading.count, with_text=False)


def _part(session: Session) -> str:
    if session.meta.get("sidechain") or session.meta.get("parent"):
        return "sub-agent"
    if session.meta.get("beside"):
        return "side call"
    first = session.requests[0] if session.requests else None
    alone = len(session.requests) == 1 and first is not None and first.exact and not first.body.get("tools")
    return "side call" if alone else "main"


@dataclass(slots=True)
class _Rates:
    """US dollars for one token of each kind."""

    plain: float = 0.0
    read: float = 0.0
    written: float = 0.0
    output: float = 0.0

    @classmethod
    def of(
        cls, usage: Usage, model: str, prices: Prices, known: dict[tuple[str, bool], _Rates]
    ) -> tuple[_Rates, float | None]:
        """The rates of one turn, such that they give exactly what it cost, and that cost.

        Where prices go by steps, the rates are to one another as they are for a short prompt.
        """
        cost = prices.cost(usage, model)
        if cost is None:
            return cls(), None
        hour = bool(usage.cache_write_1h)
        base = known.get((model, hour))
        if base is None:
            single = (
                Usage(_SOME, 0),
                Usage(_SOME, 0, _SOME, 0),
                Usage(_SOME, 0, 0, _SOME, cache_write_1h=_SOME if hour else None),
                Usage(0, _SOME),
            )
            base = known[model, hour] = cls(*((prices.cost(each, model) or 0.0) / _SOME for each in single))
        read, written, output = usage.cache_read or 0, usage.cache_write or 0, usage.output_tokens or 0
        plain = (usage.input_tokens or 0) - read - written
        total = plain * base.plain + read * base.read + written * base.written + output * base.output
        factor = cost / total if total else 0.0
        return cls(base.plain * factor, base.read * factor, base.written * factor, base.output * factor), cost


class _Billing:
    """The turns once more, now with their bills, each shared out over what stood in the prompt."""

    def __init__(self, made: Itemised, session: Session, prices: Prices, reading: PromptItems) -> None:
        self.made, self.session, self.prices, self.count = made, session, prices, reading.count
        self.stack: list[int] = []
        self.ends = array("q", [0])  # our tokens before each item of the stack, and in all
        self.since: list[int] = []  # turn since which each item stands
        self.opened: list[tuple[float, float]] = []  # `_scales` and `_reads` when it was pushed
        self.kinds: defaultdict[str, int] = defaultdict(int)
        self.cache = LiveCache(made.rules.profile)
        self.rates: dict[tuple[str, bool], _Rates] = {}
        self._scales = self._reads = 0.0  # sums over turns of the scale, and of scale times the price of a read

    def run(self) -> None:
        made = self.made
        sources: defaultdict[TokenSource, Amounts] = defaultdict(Amounts)
        for number, (turn, request) in enumerate(zip(made.turns, self.session.requests, strict=True)):
            self._move(number, turn)
            predicted = self._predicted(number, turn, stated_usage(self.session, request))
            rates, turn.usd = _Rates.of(turn.usage, turn.model or made.model, self.prices, self.rates)
            made.unpriced += turn.usd is None
            self._share(number, turn, rates, sources[MISSING])
            self._reply(number, turn, rates, sources)
            turn.predicted_read = predicted
        for place in range(len(self.stack)):
            self._settle(place, len(made.turns))
        for item in made.items:
            sources[item.source] += item.billed
        made.sources = dict(sources)

    def _move(self, number: int, turn: BilledTurn) -> None:
        items = self.made.items
        for place in range(turn.kept, len(self.stack)):
            self._settle(place, number)
            self.kinds[items[self.stack[place]].source.kind] -= items[self.stack[place]].tokens
        del self.stack[turn.kept :], self.since[turn.kept :], self.opened[turn.kept :], self.ends[turn.kept + 1 :]
        for added in turn.added:
            self.stack.append(added)
            self.since.append(number)
            self.opened.append((self._scales, self._reads))
            self.ends.append(self.ends[-1] + items[added].tokens)
            self.kinds[items[added].source.kind] += items[added].tokens

    def _settle(self, place: int, number: int) -> None:
        """Book what an item was read from the cache in the turns that it stood in, up to this one."""
        item = self.made.items[self.stack[place]]
        scales, reads = self.opened[place]
        turns = number - self.since[place]
        item.billed.read += item.tokens * (self._scales - scales)
        item.billed.usd += item.tokens * (self._reads - reads)
        item.billed.carried += item.tokens * (self._scales - scales)
        if turns and self.since[place] == item.first:
            new = item.tokens * self.made.turns[item.first].scale
            item.billed.new += new
            item.billed.carried -= new
        item.turns += turns
        item.last = max(item.last, number - 1)

    def _predicted(self, number: int, turn: BilledTurn, stated: Usage | None) -> int:
        """Fill in the turn's usage and scale; returns what the cache rules would have served."""
        made, account = self.made, self.made.account
        known = stated is not None and stated.input_tokens
        guess = round((turn.ours + account.head) * account.scale)
        total = int(stated.input_tokens or 0) if known and stated else guess
        most = account.scale * (_OTHER_COUNT if made.exact and known and not account.head else 1.0)
        turn.scale = min(most, total / turn.ours) if turn.ours else account.scale
        turn.missing = max(0.0, total - turn.scale * turn.ours)
        read, written = self._by_rules(number, turn, total)
        replied = sum(tokens for _, tokens in turn.replied)
        turn.output_stated = stated is not None and stated.output_tokens is not None
        output = stated.output_tokens if stated is not None and turn.output_stated else replied
        if known and stated is not None:
            turn.usage = replace(stated, output_tokens=output)
            served = min(stated.cache_read or 0, total)
            turn.usage.cache_read, turn.usage.cache_write = served, min(stated.cache_write or 0, total - served)
        else:
            turn.stated = False
            turn.usage = Usage(total, output, read, written if made.rules.profile.w is not None else 0)
        return read

    def _by_rules(self, number: int, turn: BilledTurn, total: int) -> tuple[int, int]:
        """Tokens that the cache rules would read and write, counted as ours are, then in the turn's scale."""
        made, head = self.made, self.made.account.head

        def shared(s: int) -> int:
            """Tokens at the start that stood there since turn s."""
            more = turn.shared if s == number - 1 else 0
            return head + self.ends[bisect_right(self.since, s)] + more

        def billed(ours: int) -> int:
            return min(total, round(turn.missing + turn.scale * (ours - head))) if ours > head else min(total, ours)

        stops, length = None, head + turn.ours
        if made.rules.rule.trigger == "marked" and self.session.wire == "anthropic":
            stops = sorted({head + self.ends[place] for place in turn.marks} if made.exact else {head, length} - {0})
        at = turn.at if turn.at is not None and made.timed else 0.0
        warm = 0 if number else made.account.warm
        read, written = self.cache.add(length, shared, at=at, stops=stops, warm=warm, falling=True)
        return billed(read), billed(read + written) - billed(read)

    def _share(self, number: int, turn: BilledTurn, rates: _Rates, missing: Amounts) -> None:
        """Share the prompt's bill out over its items: what is read is booked for all, and taken back of the rest."""
        usage, scale = turn.usage, turn.scale
        read, written = float(usage.cache_read or 0), float(usage.cache_write or 0)
        self._scales += scale
        self._reads += scale * rates.read
        self._book(missing, 0.0, turn.missing, read, written, rates)
        if number == 0:
            missing.new += turn.missing
        else:
            before = self.made.turns[number - 1].missing
            missing.new += max(0.0, turn.missing - before)
            missing.carried += min(turn.missing, before)
        first = bisect_right(self.ends, (read - turn.missing) / scale) - 1 if scale and read > turn.missing else 0
        for place in range(max(0, first), len(self.stack)):
            item = self.made.items[self.stack[place]]
            tokens = item.tokens * scale
            item.billed.read -= tokens
            item.billed.usd -= tokens * rates.read
            start = turn.missing + scale * self.ends[place]
            self._book(item.billed, start, start + tokens, read, written, rates)
        turn.by_kind = {kind: tokens * scale for kind, tokens in self.kinds.items() if tokens}
        if turn.missing:
            turn.by_kind["missing"] = turn.by_kind.get("missing", 0.0) + turn.missing

    @staticmethod
    def _book(billed: Amounts, start: float, end: float, read: float, written: float, rates: _Rates) -> None:
        """Book the tokens from `start` to `end` of a prompt whose first `read` were read, and the next `written`."""
        in_read = max(0.0, min(end, read) - start)
        in_written = max(0.0, min(end, read + written) - max(start, read))
        plain = max(0.0, end - start - in_read - in_written)
        billed.read += in_read
        billed.written += in_written
        billed.plain += plain
        billed.usd += in_read * rates.read + in_written * rates.written + plain * rates.plain

    def _reply(self, number: int, turn: BilledTurn, rates: _Rates, sources: defaultdict[TokenSource, Amounts]) -> None:
        output = turn.usage.output_tokens or 0
        counted = sum(tokens for _, tokens in turn.replied)
        scale = min(self.made.account.scale, output / counted) if counted else 0.0
        shares = [(source, tokens * scale) for source, tokens in turn.replied]
        if (rest := output - counted * scale) > 1e-6:
            shares.append((TokenSource("thinking") if self._thought(number, turn) else MISSING, rest))
        for source, tokens in shares:
            sources[source].output += tokens
            sources[source].usd += tokens * rates.output
            turn.output[source.kind] = turn.output.get(source.kind, 0.0) + tokens

    def _thought(self, number: int, turn: BilledTurn) -> bool:
        """True if the reply was thought about: by its usage, or by what the next prompt repeats of it."""
        after = self.made.turns[number + 1].added if number + 1 < len(self.made.turns) else []
        thinks = any(self.made.items[place].source.kind == "thinking" for place in after)
        return bool(turn.usage.reasoning_tokens) or thinks


def amounts_of(made: Itemised) -> Iterator[tuple[TokenSource, Amounts]]:
    """Sources with what they were billed, the dearest first."""
    yield from sorted(made.sources.items(), key=lambda pair: (-pair[1].usd, -pair[1].input - pair[1].output, pair[0]))
