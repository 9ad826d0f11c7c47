"""Breaks of the prompt cache in a session: each with its cause, the tokens that had to be paid anew, and the money.

After turn t - 1 the cache holds H tokens: what was read and written (where writes are free, the prompt in whole steps
of the rule). Turn t shares S tokens with the prompt before it and was served R. H - S tokens were lost because the
prompt *changed*, S - R although it did not. Each part beyond a tolerance is a break of its own; it costs its tokens
times the price they were paid at (a write, or plain input), less the price of a read.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from context_bench.transcripts.itemised import Itemised
from context_bench.transcripts.prompt_items import BilledTurn

#: Causes in the order in which they are shown, with what can be done about each.
CAUSES = {
    "expired": "Answer sooner, keep pauses out of long sessions, or store entries for an hour.",
    "tools changed": "Fix the set and the order of tools for a session; load others through a search tool.",
    "system changed": "Move dates, counters and file lists from the system prompt to the end of the conversation.",
    "head changed": "Tools or system prompt changed, which the log does not hold: record the requests with watch.",
    "settings changed": "Keep thinking, tool choice and output format as they are within a session.",
    "model switched": "Each model has a cache of its own: switch at the beginning, or in a sub-agent.",
    "history edited": "Edit as little and as late as possible, in few large steps rather than many small ones.",
    "rewind": "Going back re-writes what comes after; a fork early in the conversation is cheap, a late one is not.",
    "compaction": "Compact seldom: each time all that follows the head is written anew.",
    "resume": "Resume within the lifetime of the cache, or begin anew with a short summary.",
    "mark moved": "Keep a cache mark on the last message, and one within 20 blocks before it.",
    "proxy": "Something between client and provider rewrote a prefix that the client had left alone.",
    "unknown": "The provider served less than its rules promise: evicted, or another machine answered.",
}
_LEAST, _SHARE = 256, 0.02  # tokens, and share of what was held, up to which a difference is no break
_BLOCKS = 20  # blocks before a mark in which the provider looks for an entry (Anthropic's documentation)
_HOUR, _HOUR_WRITE = 3_600.0, 2.0
_AROUND, _STEPS = 25, 3  # turns on each side by which a step is judged, and the fewest of them
_MIX = 0.25  # share by which a step may differ because code, prose and data are counted in other proportions


@dataclass(frozen=True, slots=True)
class CacheBreak:
    """One break. `lost`: billed tokens that the cache held and did not serve; `usd`: what that cost (`None`: no price).
    `idle`: seconds since the turn before, where known. `detail`: the evidence, without any text of the session.
    """

    turn: int
    cause: str
    lost: int
    usd: float | None
    detail: str = ""
    idle: float | None = None


@dataclass(slots=True)
class CacheReport:
    """The breaks of one or more sessions (`+=`). `predicted`, `stated`: tokens that the rules would have served of the
    turns whose log states what was served, and those stated.

    `hour_saves`: dollars of breaks that entries of an hour would have spared; `hour_costs`: what dearer writes would
    have cost.
    """

    breaks: list[CacheBreak] = field(default_factory=list)
    predicted: int = 0
    stated: int = 0
    prompt: int = 0
    hour_saves: float = 0.0
    hour_costs: float = 0.0

    def __iadd__(self, other: CacheReport) -> CacheReport:
        self.breaks += other.breaks
        for name in ("predicted", "stated", "prompt", "hour_saves", "hour_costs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def by_cause(self) -> dict[str, dict[str, Any]]:
        """Cause → `breaks`, `lost`, `usd`, the dearest first."""
        found: defaultdict[str, dict[str, Any]] = defaultdict(lambda: {"breaks": 0, "lost": 0, "usd": 0.0})
        for one in self.breaks:
            row = found[one.cause]
            row["breaks"] += 1
            row["lost"] += one.lost
            row["usd"] = None if one.usd is None or row["usd"] is None else row["usd"] + one.usd
        return dict(sorted(found.items(), key=lambda pair: (-(pair[1]["usd"] or 0), -pair[1]["lost"], pair[0])))


def cache_breaks(made: Itemised, sent: Itemised | None = None) -> CacheReport:
    """The breaks of a session. `sent`: the same session before a proxy, turn by turn, where that is known."""
    found = CacheReport()
    profile = made.rules.profile
    price = profile.p_in * ((1.0 if profile.w is None else profile.w) - profile.r) / 1e6
    for number, turn in enumerate(made.turns):
        if turn.stated and turn.usage.cache_read is not None:
            found.predicted += turn.predicted_read
            found.stated += turn.usage.cache_read
            found.prompt += turn.usage.input_tokens or 0
        before = sent.turns[number] if sent is not None and number < len(sent.turns) else None
        for cause, lost, detail in _of(made, number, before):
            idle = _idle(made, number)
            usd = lost * price if made.rules.priced else None
            found.breaks.append(CacheBreak(number, cause, lost, usd, detail, idle))
            if cause == "expired" and idle is not None and idle <= _HOUR:
                found.hour_saves += usd or 0.0
    if made.rules.rule.trigger == "marked" and not made.account.hour and profile.w is not None and made.rules.priced:
        written = sum(turn.usage.cache_write or 0 for turn in made.turns)
        found.hour_costs = written * profile.p_in * (_HOUR_WRITE - profile.w) / 1e6
    return found


def _of(made: Itemised, number: int, sent: BilledTurn | None) -> Iterator[tuple[str, int, str]]:
    turn, least = made.turns[number], made.rules.profile.m
    if number == 0:
        yield from _resumed(made, turn)
        return
    before = made.turns[number - 1]
    held, read = _held(made, before), turn.usage.cache_read or 0
    tolerance = max(_LEAST, _SHARE * held)
    if held < least or held - read <= tolerance:
        return
    if turn.model != before.model:
        yield "model switched", held - read, f"from {before.model[:60]} to {turn.model[:60]}"
        return
    kept = before.ours - sum(made.items[place].tokens for place in turn.dropped)
    shared = min(held, round(turn.missing + turn.scale * (kept + turn.shared))) if turn.dropped else held
    changed, served = held - max(shared, read), max(0, shared - read)
    idle, ttl = _idle(made, number), made.rules.profile.ttl
    if changed > tolerance:
        yield (*_changed(made, number, sent, changed),)
    if served > tolerance:
        expired = ttl is not None and idle is not None and idle > ttl
        if not expired and changed > tolerance:  # the same change, before a mark or a step that was held
            return
        yield (
            ("expired", served, f"idle {idle:,.0f} s, lifetime {ttl:,.0f} s")
            if expired
            else _unserved(made, number, served)
        )


def _held(made: Itemised, turn: BilledTurn) -> int:
    profile, usage = made.rules.profile, turn.usage
    total = usage.input_tokens or 0
    if profile.w is None:
        return profile.b * (total // profile.b) if total >= profile.m else 0
    return (usage.cache_read or 0) + (usage.cache_write or 0)


def _idle(made: Itemised, number: int) -> float | None:
    now, then = made.turns[number].at, made.turns[number - 1].at if number else None
    return now - then if now is not None and then is not None else None


def _resumed(made: Itemised, turn: BilledTurn) -> Iterator[tuple[str, int, str]]:
    """A first request that carries an earlier conversation, which no cache served."""
    spoken = [made.items[place] for place in turn.added if made.items[place].source.kind in ("assistant", "calls")]
    total, read = turn.usage.input_tokens or 0, turn.usage.cache_read or 0
    if spoken and total >= made.rules.profile.m and total - read > max(_LEAST, _SHARE * total):
        yield "resume", total - read, f"{len(spoken):,} earlier answers and calls were in the first prompt"


def _changed(made: Itemised, number: int, sent: BilledTurn | None, lost: int) -> tuple[str, int, str]:
    """The cause of a change in the prompt, by the first item that differs."""
    turn, before = made.turns[number], made.turns[number - 1]
    if sent is not None and not sent.dropped and sent.head == made.turns[number - 1].head:
        return "proxy", lost, "the client sent the prompt before, and more"
    if turn.head[0] != before.head[0]:
        return "tools changed", lost, _tools(before.head[0], turn.head[0])
    first = made.items[turn.dropped[0]].source.kind if turn.dropped else ""
    if turn.head[1] != before.head[1] or first == "system":
        return "system changed", lost, _bytes(made, turn)
    coming = [made.items[place].source.kind for place in turn.added[:4]]
    if "summary" in coming:
        return "compaction", lost, f"{len(turn.dropped):,} items gave way to a summary"
    again = set(turn.dropped) & set(turn.added)
    if not again and "user" in coming[:2] and first in ("user", "memory"):
        return "rewind", lost, f"the last {len(turn.dropped):,} items were taken back"
    return "history edited", lost, f"from item {turn.kept + 1:,} on; {len(again):,} of {len(turn.dropped):,} came again"


def _tools(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    gone, come = set(before) - set(after), set(after) - set(before)
    if not gone and not come:
        return f"{len(after):,} tools, in another order"
    return f"{len(come):,} new or changed, {len(gone):,} gone or changed, of {len(before):,}"


def _bytes(made: Itemised, turn: BilledTurn) -> str:
    """The bytes in which the system prompt differs."""
    old = next((t for p in turn.dropped if (t := made.items[p].text) is not None), None)
    new = next((t for p in turn.added if (t := made.items[p].text) is not None), None)
    if old is None or new is None:
        return "a part came or went"
    one, other = old.encode("utf-8", "replace"), new.encode("utf-8", "replace")
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return f"bytes {start:,} to {len(one) - end:,} of {len(one):,} became {len(other) - end - start:,} bytes"


def _unserved(made: Itemised, number: int, lost: int) -> tuple[str, int, str]:
    """The cause where the prompt began as the one before, and the entry was alive."""
    turn, before = made.turns[number], made.turns[number - 1]
    if turn.settings != before.settings:
        return "settings changed", lost, "fields of the request that belong to the cached prefix differ"
    if made.exact and made.rules.rule.trigger == "marked":
        if not turn.marks:
            return "mark moved", lost, "no part of the prompt was marked"
        reach = [mark for mark in turn.marks for old in before.marks if 0 <= mark - old <= _BLOCKS]
        if before.marks and not reach:
            return "mark moved", lost, f"no mark within {_BLOCKS} blocks after item {max(before.marks):,}"
    if not made.exact:
        unseen = max(turn.missing - before.missing, _unseen_growth(made, number), key=abs)
        if abs(unseen) > _LEAST:
            return "head changed", lost, f"what the log does not hold went by {unseen:+,.0f} tokens"
    return "unknown", lost, "same beginning, within the lifetime"


def _unseen_growth(made: Itemised, number: int) -> float:
    """Tokens by which a stated prompt grew beyond what came into the log, at the rate of the turns around; 0 where that
    may be another mix of texts. The slope over a whole session leans towards a jump in it, a median of steps does not.
    """
    steps = []
    for place in range(max(1, number - _AROUND), min(len(made.turns), number + _AROUND + 1)):
        turn, before = made.turns[place], made.turns[place - 1]
        if turn.stated and before.stated and turn.ours > before.ours:
            grown = (turn.usage.input_tokens or 0) - (before.usage.input_tokens or 0)
            steps.append((place, grown, turn.ours - before.ours))
    mine = next(((grown, ours) for place, grown, ours in steps if place == number), None)
    if mine is None or len(steps) < _STEPS:
        return 0.0
    expected = mine[1] * statistics.median(grown / ours for _, grown, ours in steps)
    return mine[0] - expected if abs(mine[0] - expected) > _MIX * abs(expected) else 0.0
