"""What the prompts of one recorded session get out of a provider's prompt cache, as sent and as forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.tokens import TokenCounter
from context_bench.wire.cache import CacheProfile, LiveCache, Prompts, marks, segments
from context_bench.wire.request import WireRequest


@dataclass(slots=True)
class CacheFigures:
    """Cache metrics of one session, or sums over several (`+`). All counts are tokens but `requests`, `pairs` and `prefix_breaks`.

    `read + write + uncached = tokens`. `later` are the tokens from the second request of each session on, `stability` the sum over `pairs`
    (a request and the one before it) of the share of the earlier prompt that the later one repeats at its start.
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
        """Mean share of the previous prompt that the next one repeats at its start; `None` without two requests in a session."""
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
    """One session's prompts in order, run through a cache model. `marked`: only prefixes that a request marks are stored; `warm`: tokens of
    the first prompt that an earlier session had left in the cache.
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
        self.prompts, self._cache = Prompts(self.counter.count), LiveCache(self.profile)

    def add(self, request: WireRequest, at: float | None = None) -> int:
        """Take the session's next prompt in, sent `at` seconds; returns its tokens.

        `parts` then says what they are: read from the cache; rewritten (as much as the prompt before had there, and neither begins like it
        nor was read); the rest, which is new or what the cache's rules do not hold.
        """
        t = len(self.prompts.lengths)
        length = self.prompts.add(segments(request))
        stops: Sequence[int] | None = [self.prompts.before(t, end) for end in marks(request)] if self.marked else None
        moment = at if at is not None and self.timed else 0.0
        read, written = self._cache.add(length, lambda s: self.prompts.shared(s, t), at=moment, stops=stops, warm=0 if t else self.warm)
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
