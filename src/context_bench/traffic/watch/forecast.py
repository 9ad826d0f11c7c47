"""What prompt caches would make of live prompts: one cache per session and model, by the dated rules and prices."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from context_bench.core.tokens import counter_for
from context_bench.llm.prices import Priced, profile_for, rule_for
from context_bench.wire.cache import CacheProfile, LiveCache, Prompts, marks, segments
from context_bench.wire.request import WireRequest


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


class Forecast:
    """Predicts request by request. Texts are held in memory only, packed, in at most `room` bytes: the sessions longest unused go first."""

    def __init__(self, prices: Priced | None, *, counter_model: str | None = None, room: int = 12_000_000) -> None:
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
        priced = self._prices is not None and _knows(self._prices, model)
        live = LiveCache(profile_for(model, self._prices))
        made = self._caches[session, model] = _Cache(Prompts(counter.count), live, rule_for(model).trigger == "marked", priced)
        return made

    def _account(self, cache: _Cache) -> None:
        self._room -= cache.prompts.held - cache.held
        cache.held = cache.prompts.held
        while self._room < 0 and len(self._caches) > 1:
            _, dropped = self._caches.popitem(last=False)
            self._room += dropped.held


def _knows(prices: Priced, model: str) -> bool:
    from context_bench.core.records import Usage

    return prices.cost(Usage(1, 0), model) is not None


def _prompt_cost(profile: CacheProfile, length: int, read: int, written: int) -> float:
    write = 1.0 if profile.w is None else profile.w
    return profile.p_in * (length - read - written + profile.r * read + write * written) / 1e6
