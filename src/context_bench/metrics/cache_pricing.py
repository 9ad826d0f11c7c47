"""Prompt caching in recorded sessions: cache hits as sent and as forwarded, and the cost with and without a system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.measures import percent
from context_bench.core.records import Usage
from context_bench.core.tokens import TokenCounter
from context_bench.transcripts.account import LEAST_REBUILT, MOST_APART, Account
from context_bench.wire.cache import CacheProfile, LiveCache, Prompts, marks, segments
from context_bench.wire.request import WireRequest


@dataclass(slots=True)
class CacheFigures:
    """Cache metrics of one session, or sums over several (`+`). All counts are tokens but `requests`, `pairs` and
    `prefix_breaks`.

    `read + write + uncached = tokens`. `later` are the tokens from the second request of each session on, `stability`
    the sum over `pairs` (a request and the one before it) of the share of the earlier prompt that the later one repeats
    at its start.
    """

    requests: int = 0
    tokens: int = 0
    read: int = 0
    write: int = 0
    later: int = 0
    pairs: int = 0
    stability: float = 0.0
    prefix_breaks: int = 0
    rewritten_tokens: int = 0

    def __add__(self, other: CacheFigures) -> CacheFigures:
        return CacheFigures(*(getattr(self, name) + getattr(other, name) for name in CacheFigures.__slots__))

    @property
    def uncached(self) -> int:
        """Prompt tokens at the plain input price."""
        return self.tokens - self.read - self.write

    @property
    def prefix_stability(self) -> float | None:
        """Mean share of the previous prompt that the next one repeats at its start; `None` without two requests in a
        session.
        """
        return self.stability / self.pairs if self.pairs else None

    @property
    def cacheable_prefix_share(self) -> float | None:
        """Tokens read from the cache over all tokens, from the second request of a session on."""
        return self.read / self.later if self.later else None

    def as_dict(self) -> dict[str, Any]:
        """All figures by name; undefined ones are left out."""
        found: dict[str, Any] = {
            "prefix_stability": self.prefix_stability,
            "cacheable_prefix_share": self.cacheable_prefix_share,
            "prefix_breaks": self.prefix_breaks,
            "rewritten_tokens": self.rewritten_tokens,
            "read": self.read,
            "write": self.write,
            "uncached": self.uncached,
        }
        return {name: value for name, value in found.items() if value is not None}

    def prompt_cost(self, profile: CacheProfile) -> float:
        """US dollars for the prompts by the rules that read and written tokens were counted with."""
        return profile.p_in * (self.uncached + profile.r * self.read + (profile.w or 0.0) * self.write) / 1e6


@dataclass(slots=True)
class SessionCache:
    """One session's prompts in order, run through a cache model. `marked`: only prefixes that a request marks are
    stored; `warm`: tokens of the first prompt that an earlier session had left in the cache.
    """

    profile: CacheProfile
    counter: TokenCounter
    marked: bool = False
    timed: bool = True
    warm: int = 0
    figures: CacheFigures = field(default_factory=CacheFigures)
    read_per_request: list[int] = field(default_factory=list)
    parts: tuple[int, int, int] = (0, 0, 0)  # of the latest prompt: see `add`
    prompts: Prompts = field(init=False)
    _cache: LiveCache = field(init=False)

    def __post_init__(self) -> None:
        self.prompts, self._cache = Prompts(self.counter.count, again=True), LiveCache(self.profile)

    def add(self, request: WireRequest, at: float | None = None) -> int:
        """Take the session's next prompt in, sent `at` seconds; returns its tokens.

        `parts` then says what they are: read from the cache; rewritten (as much as the prompt before had there, and
        neither begins like it nor was read); the rest, which is new or what the cache's rules do not hold.
        """
        t = len(self.prompts.lengths)
        length = self.prompts.add(segments(request))
        stops: Sequence[int] | None = [self.prompts.before(t, end) for end in marks(request)] if self.marked else None
        moment = at if at is not None and self.timed else 0.0
        read, written = self._cache.add(
            length, lambda s: self.prompts.shared(s, t), at=moment, stops=stops, warm=0 if t else self.warm
        )
        self.read_per_request.append(read)
        self.figures += CacheFigures(requests=1, tokens=length, read=read, write=written)
        rewritten = self._compare(t, length, read) if t else 0
        self.parts = (read, rewritten, length - read - rewritten)
        return length

    def _compare(self, t: int, length: int, read: int) -> int:
        before, shared = self.prompts.lengths[t - 1], self.prompts.shared(t - 1, t)
        self.figures += CacheFigures(
            later=length,
            pairs=1 if before else 0,
            stability=shared / before if before else 0.0,
            prefix_breaks=shared < before,
            rewritten_tokens=before - shared,
        )
        return max(0, min(before, length) - max(shared, read))


Price = Callable[[Usage], float | None]


@dataclass(frozen=True, slots=True)
class SessionCost:
    """One session's bill in US dollars (or relative to an input price of 1 per million tokens), `alone` and through the
    system.

    `alone`: the prompts as they were sent, had nothing stood in between; same cache rules, same replies. `extra`: the
    system's own calls to the provider, part of `through`. `sent`, `forwarded`: prompt tokens, those of extra calls
    included.
    """

    sent: int
    forwarded: int
    alone: float
    through: float
    extra: float = 0.0

    @property
    def net_cost_ratio(self) -> float | None:
        """Below 1: the system makes the session cheaper."""
        return self.through / self.alone if self.alone else None

    @property
    def token_saving(self) -> float | None:
        """Share of the prompt tokens that was saved."""
        return 1 - self.forwarded / self.sent if self.sent else None

    def billed(self, stated: float | None) -> SessionCost:
        """The same session where the log states what it cost as sent: the ratio stays, the dollars are the log's."""
        if not stated or not self.alone:
            return self
        factor = stated / self.alone
        return SessionCost(self.sent, self.forwarded, stated, self.through * factor, self.extra * factor)


def session_cost(
    sent: CacheFigures,
    forwarded: CacheFigures,
    output_tokens: int,
    profile: CacheProfile,
    *,
    extra_tokens: int = 0,
    extra_output: int = 0,
    scale: float = 1.0,
) -> SessionCost:
    """The bill of one session. Both sides pay for the same replies (`output_tokens`); extra calls find nothing in the
    cache. `scale`: the provider's prompt tokens for one of ours.
    """
    replies = profile.p_out * output_tokens / 1e6
    extra = (profile.p_in * extra_tokens * scale + profile.p_out * extra_output) / 1e6
    return SessionCost(
        sent=sent.tokens,
        forwarded=forwarded.tokens + extra_tokens,
        alone=sent.prompt_cost(profile) * scale + replies,
        through=forwarded.prompt_cost(profile) * scale + replies + extra,
        extra=extra,
    )


@dataclass(slots=True)
class StatedBill:
    """Usage that logs state, and the prediction of the cache rules for the same requests. Tokens; `usd` in US dollars.

    `requests`, of which `stated` state their prompt tokens; `predicted_outputs`: replies whose output tokens are our
    own count. `usd` is the price of the stated usage, `None` where a request states none or its price is not known.
    `predicted`, `predicted_read`: tokens by our count of the requests whose log states what the cache served, and what
    the rules would have served of them; `stated_tokens`, `stated_read`: the same as stated.
    """

    requests: int = 0
    stated: int = 0
    predicted_outputs: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    predicted: int = 0
    predicted_read: int = 0
    stated_tokens: int = 0
    stated_read: int = 0

    def add(self, usage: Usage | None, output_tokens: int, price: Price, tokens: int, read: int) -> None:
        """Take in a request: what its log states, tokens of its reply, its tokens by our count and those that the cache
        would serve.
        """
        self.requests += 1
        self.predicted_outputs += usage is None or usage.output_tokens is None
        if usage is None or not usage.input_tokens:
            self.usd = None
            return
        self.stated += 1
        self.usage += usage
        cost = price(
            Usage(
                usage.input_tokens,
                output_tokens,
                usage.cache_read,
                usage.cache_write,
                cache_write_1h=usage.cache_write_1h,
            )
        )
        self.usd = None if self.usd is None or cost is None else self.usd + cost
        if usage.cache_read is not None:
            self.predicted += tokens
            self.predicted_read += read
            self.stated_tokens += usage.input_tokens
            self.stated_read += usage.cache_read

    def __iadd__(self, other: StatedBill) -> StatedBill:
        for name in (
            "requests",
            "stated",
            "predicted_outputs",
            "predicted",
            "predicted_read",
            "stated_tokens",
            "stated_read",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.usage += other.usage
        self.usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return self

    @property
    def whole(self) -> bool:
        """Every request states what was billed."""
        return bool(self.requests) and self.stated == self.requests

    @property
    def reads(self) -> tuple[float, float] | None:
        """Share of the prompt read from the cache, predicted and stated; `None` where no log states it."""
        return (
            (self.predicted_read / self.predicted, self.stated_read / self.stated_tokens)
            if self.predicted and self.stated_tokens
            else None
        )


def recorded_facts(
    bill: StatedBill, accounts: Sequence[Account], *, moved: int = 0, own_rules: bool = True
) -> dict[str, Any]:
    """Facts that a report shows beside the money of recorded sessions, JSON-ready; unknown keys are left out.

    `rebuilt_share`: billed prompt tokens that the logs' own texts explain; `after_head_share`: the same of what follows
    each first request. `moved`: requests behind the system in which the stand-in for the head was gone. `own_rules`:
    the bill is by the recorded models' rules, so that it can be held against what the logs state. `no_verdict` gives
    the reason why nothing can be said about money.
    """
    billed, after = bill.usage.input_tokens or 0, sum(account.after for account in accounts)
    missing = sorted({part for account in accounts for part in account.missing})
    found: dict[str, Any] = {
        "requests": bill.requests,
        "stated": bill.stated,
        "predicted_outputs": bill.predicted_outputs,
        "input_tokens": bill.usage.input_tokens,
        "cache_read": bill.usage.cache_read,
        "cache_write": bill.usage.cache_write,
        "output_tokens": bill.usage.output_tokens,
        "usd": bill.usd if bill.whole else None,
        "rebuilt_share": sum(account.rebuilt for account in accounts) / billed if billed else None,
        "after_head_share": min(1.0, sum(account.rebuilt_after for account in accounts) / after) if after else None,
        "head_tokens": sum(account.head for account in accounts) or None,
        "missing": missing,
        "clients": sorted({account.client for account in accounts if account.client}),
    }
    if bill.reads is not None:
        found |= {"predicted_read_share": bill.reads[0], "stated_read_share": bill.reads[1]}
    reason = _no_verdict(bill, missing, found, moved, own_rules)
    if reason is None and any(account.unguarded for account in accounts):
        reason = (
            "where a model answers, nothing is sent in the place of the system prompt that the log leaves out; "
            "replay with --upstream echo for the money"
        )
    if reason is not None:
        found["no_verdict"] = reason
    return {name: value for name, value in found.items() if value not in (None, [])}


def _no_verdict(
    bill: StatedBill, missing: Sequence[str], found: dict[str, Any], moved: int, own_rules: bool
) -> str | None:
    """Reason for which the money cannot be known; `None` where it can."""
    if missing and bill.stated < bill.requests:
        return (
            f"the log leaves out {', '.join(missing)}, and {bill.requests - bill.stated:,} of its {bill.requests:,} "
            "replies do not state "
            "the tokens that were billed"
        )
    if missing and (share := found["after_head_share"]) is not None and share < LEAST_REBUILT:
        return f"only {percent(share)} of the tokens billed after the first request could be rebuilt from the log"
    if missing and moved:
        return (
            f"in {moved:,} of {bill.requests:,} requests the system changed what stands for the parts that the log "
            "leaves out "
            f"({', '.join(missing)}), so what it does to the real ones is not known"
        )
    if own_rules and bill.reads is not None and abs(bill.reads[0] - bill.reads[1]) > MOST_APART:
        predicted, stated = map(percent, bill.reads)
        return (
            f"the log states that {stated} of the prompts came from the cache, but the rules predict "
            f"{predicted} of the same requests"
        )
    return None


@dataclass(slots=True)
class Costs:
    """Bills of many sessions: ratios of sums (what the invoice says) and means of the sessions' ratios (what a session
    may expect).
    """

    sessions: list[SessionCost] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """`net_cost_ratio`, `token_saving`, `cache_penalty` and their `…_mean`s, dollars, tokens; undefined ones are
        left out.
        """
        whole = SessionCost(
            *(
                sum(getattr(each, name) for each in self.sessions)
                for name in ("sent", "forwarded", "alone", "through", "extra")
            )
        )
        ratio, saving = whole.net_cost_ratio, whole.token_saving
        mean_ratio = _mean([each.net_cost_ratio for each in self.sessions])
        mean_saving = _mean([each.token_saving for each in self.sessions])
        found: dict[str, Any] = {
            "net_cost_ratio": ratio,
            "token_saving": saving,
            "cache_penalty": _penalty(ratio, saving),
            "net_cost_ratio_mean": mean_ratio,
            "token_saving_mean": mean_saving,
            "cache_penalty_mean": _penalty(mean_ratio, mean_saving),
            "alone_usd": whole.alone,
            "through_usd": whole.through,
            "extra_calls_usd": whole.extra,
            "sessions": len(self.sessions),
        }
        return {name: value for name, value in found.items() if value is not None}


def _penalty(ratio: float | None, saving: float | None) -> float | None:
    """Ratio of what is paid to what the saved tokens promise."""
    return None if ratio is None or saving is None else ratio - (1 - saving)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
