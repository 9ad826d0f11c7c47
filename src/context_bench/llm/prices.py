"""Prices of tokens and rules of prompt caches, by model.

Prices come from the dated, offline table of `genai-prices`, or are the user's own. Loading the table takes as long as a
short run, so its answers of a day are cached in the user's cache folder: one small file for each version of the table
and day of prices. It can be removed at any time; without it, the table is asked. Cache rules stand in a dated file of
our own (`cache_rules.toml`), with prices from the table on top.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.lazy import version_of
from context_bench.core.machine import cache_folder
from context_bench.core.numbers import count, money
from context_bench.core.protocols import Prices
from context_bench.core.records import Usage

if TYPE_CHECKING:
    from context_bench.wire.cache import CacheProfile

MOST = 200  # models in a file
#: Five rates and the model's window (`None`: not known).
Rates = tuple[float, float, float, float, float, int | None]
_LARGEST = 100_000  # bytes


def recalled(version: str, day: str, model: str) -> tuple[bool, Rates | None]:
    """(whether that table was asked about this model for that day, its rates). No rates: the table does not have it."""
    with contextlib.suppress(OSError, BadInput):  # no home, not readable
        told = _read(_file(version, day))
        if model in told:
            return (True, None) if told[model] is None else _checked(told[model])
    return False, None


def keep(version: str, day: str, model: str, rates: Rates | None) -> None:
    """Remember it; files of other days and versions go."""
    with contextlib.suppress(OSError, BadInput):
        file = _file(version, day)
        told = _read(file)
        if len(told) >= MOST:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, prefix=".prices-", delete=False, encoding="utf-8"
        ) as part:
            json.dump({**told, model: rates}, part)
        Path(part.name).replace(file)  # whole at every moment, whoever else writes
        for old in set(file.parent.glob("prices-*.json")) - {file}:
            old.unlink(missing_ok=True)


def _file(version: str, day: str) -> Path:
    return cache_folder() / f"prices-{version}-{day}.json"


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text("utf-8")) if file.stat().st_size <= _LARGEST else {}
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _checked(told: Any) -> tuple[bool, Rates | None]:
    """As it was kept, or as if it had not been: a file in a cache can be anything."""
    if not isinstance(told, list) or len(told) != 6:
        return False, None
    *rates, window = told
    known = [rate for told in rates if (rate := money(told)) is not None]
    if len(known) < len(rates) or not (window is None or count(window)):
        return False, None
    return True, (known[0], known[1], known[2], known[3], known[4], window)


#: Output tokens assumed at worst when a request sets no maximum and the model's window is larger.
UNLIMITED_OUTPUT = 16_384
_RATES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """US dollars per million tokens. `None` for the cache: cached tokens cost as much as other input; for writes that
    last an hour: as much as other writes.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def cost(self, usage: Usage) -> float:
        """US dollars for `usage`; cached parts beyond the whole prompt do not count."""
        total = usage.input_tokens or 0
        read = min(usage.cache_read or 0, total)
        write = min(usage.cache_write or 0, total - read)
        plain = total - read - write
        hour = min(usage.cache_write_1h or 0, write)
        *_, reading, writing, writing_1h = self.rates
        cached = read * reading + (write - hour) * writing + hour * writing_1h
        return (plain * self.input + cached + (usage.output_tokens or 0) * self.output) / 1e6

    @property
    def rates(self) -> tuple[float, float, float, float, float]:
        """Input, output, cache read, cache write, cache write for an hour."""
        write = self._rate(self.cache_write)
        hour = write if self.cache_write_1h is None else self.cache_write_1h
        return self.input, self.output, self._rate(self.cache_read), write, hour

    def _rate(self, cached: float | None) -> float:
        return self.input if cached is None else cached


@dataclass(frozen=True, slots=True)
class _ModelPrice:
    """A price as five rates (`None`: it is not that simple), the model's window, and where the table has it."""

    flat: OwnPrice | None
    window: int | None = None
    listed: tuple[Any, ...] = ()  # (provider, model)


class GenaiPrices:
    """Prices of public models, from the table inside the installed `genai-prices`; nothing is fetched.

    `overrides`: model name → `{"input", "output", "cache_read", "cache_write", "cache_write_1h"}` in US dollars per
    million tokens; they win over the table, `*` holds for every model not named. Of the last three, those left out
    follow from the input price by the cache rules of the model (`cache_rules.toml`). `on`: the day whose prices hold
    (default: today). `source` and `date` say in the manifest where the money figures come from.
    """

    def __init__(
        self, overrides: Mapping[str, Mapping[str, float] | OwnPrice] | None = None, on: datetime.date | None = None
    ) -> None:
        self.overrides = {model: _own(model, price) for model, price in (overrides or {}).items()}
        self._on = datetime.datetime.combine(
            on or datetime.datetime.now(datetime.UTC).date(), datetime.time(12), datetime.UTC
        )
        self._of_model = lru_cache(maxsize=256)(self._look_up)

    def __getstate__(self) -> dict[str, Any]:
        """On its way to another process: what was looked up stays."""
        return {name: value for name, value in self.__dict__.items() if name != "_of_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._of_model = lru_cache(maxsize=256)(self._look_up)

    @property
    def source(self) -> str:
        """Name of the table, with a note if own prices are in force."""
        own = f" with own prices for {', '.join(sorted(self.overrides))}" if self.overrides else ""
        return f"genai-prices {version_of('genai-prices')}{own}"

    @property
    def date(self) -> str:
        """The day whose prices hold, as an ISO date."""
        return self._on.date().isoformat()

    def cost(self, usage: Usage, model: str) -> float | None:
        """US dollars for `usage` on `model`; `None` when no price is known, or the usage leaves out tokens that have a
        price.
        """
        if usage.input_tokens is None:
            return None
        known = self._of_model(model)
        if known is None:
            return None
        if usage.output_tokens is None and (known.flat is None or known.flat.output):
            return None
        return known.flat.cost(usage) if known.flat else self._by_table(usage, *known.listed)

    def worst_case(self, model: str, prompt_tokens: int, max_tokens: int | None) -> float | None:
        """The most that one call can cost: the whole prompt at its dearest rate (cache writes cost more on some), all
        output used.

        Without `max_tokens` the rest of the model's window counts, at most 16,384 tokens. `None` when no price is
        known.
        """
        output = self._most_output(model, prompt_tokens) if max_tokens is None else max_tokens
        plain = Usage(prompt_tokens, output)
        costs = [self.cost(usage, model) for usage in (plain, Usage(prompt_tokens, output, 0, prompt_tokens))]
        known = [cost for cost in costs if cost is not None]
        return max(known) if known else None

    def has_price(self, model: str) -> bool:
        """True if a price is known for `model`."""
        return self._of_model(model) is not None

    def is_own(self, model: str) -> bool:
        """True if the price of `model` is not the table's."""
        return model in self.overrides or "*" in self.overrides

    def _most_output(self, model: str, prompt_tokens: int) -> int:
        known = self._of_model(model)
        window = known.window if known else None
        return max(1, min(UNLIMITED_OUTPUT, window - prompt_tokens)) if window else UNLIMITED_OUTPUT

    def _look_up(self, model: str) -> _ModelPrice | None:
        """Own price, or what the table says. `openai/gpt-4o` is `gpt-4o` of `openai`, as routers write it."""
        for name in (model, "*"):
            if name in self.overrides:
                return _ModelPrice(_by_rule(self.overrides[name], model))
        if "genai_prices" in sys.modules:  # loaded, and perhaps given prices of its owner's
            return self._listed(model)
        table = str(version_of("genai-prices"))
        seen, rates = recalled(table, self.date, model)
        if seen:
            return None if rates is None else _ModelPrice(OwnPrice(*rates[:5]), rates[5])
        known = self._listed(model)
        if known is None:
            keep(table, self.date, model, None)
        elif known.flat is not None:
            keep(table, self.date, model, (*known.flat.rates, known.window))
        return known

    def _listed(self, model: str) -> _ModelPrice | None:
        from genai_prices.data_snapshot import get_snapshot

        provider, _, bare = model.rpartition("/")
        for reference, provider_id in ((model, None), (bare, provider.rpartition("/")[2] or None), (bare, None)):
            try:
                listed = get_snapshot().find_provider_model(reference, None, provider_id, None)
            except LookupError:
                continue
            return _ModelPrice(self._flat(*listed), listed[1].context_window, listed)
        return None

    def _flat(self, provider: Any, model: Any) -> OwnPrice | None:
        """The listed price as five rates, if it is no more than that (no tiers, no fee per request).

        To ask the table for every call would take longer than all else that is done for the call.
        """
        million = 10**6
        asked = [
            Usage(million, 0),
            Usage(0, million),
            Usage(million, 0, cache_read=million),
            Usage(million, 0, cache_write=million),
        ]
        asked.append(Usage(million, 0, cache_write=million, cache_write_1h=million))
        flat = OwnPrice(*(self._by_table(usage, provider, model) for usage in asked))
        probes = [Usage(0, 0), Usage(7, 3, 2, 1), Usage(3 * million, 900_000, million, million, cache_write_1h=7)]
        same = all(
            math.isclose(flat.cost(usage), self._by_table(usage, provider, model), rel_tol=1e-9, abs_tol=1e-15)
            for usage in probes
        )
        return flat if same else None

    def _by_table(self, usage: Usage, provider: Any, model: Any) -> float:
        from genai_prices import Usage as Billed

        total = usage.input_tokens or 0
        read = min(usage.cache_read or 0, total)
        write = min(usage.cache_write or 0, total - read)
        billed = Billed(
            input_tokens=total, output_tokens=usage.output_tokens or 0, cache_read_tokens=read, cache_write_tokens=write
        )
        if hour := min(usage.cache_write_1h or 0, write):
            billed.cache_write_1h_tokens = hour
        price = model.calc_price(billed, provider, genai_request_timestamp=self._on, auto_update_timestamp=None)
        return float(price.total_price)


def _own(model: str, price: Mapping[str, float] | OwnPrice) -> OwnPrice:
    if isinstance(price, OwnPrice):
        return price
    if not isinstance(price, Mapping):
        raise BadInput(f"price of {model!r} is {price!r:.40}; expected input and output in $/1M tokens")
    unknown = sorted(set(map(str, price)) - set(_RATES))
    missing = [name for name in ("input", "output") if name not in price]
    bad = [name for name in _RATES if name in price and money(price[name]) is None]
    if unknown or missing or bad:
        faults = (
            [f"unknown {unknown}"] * bool(unknown)
            + [f"missing {missing}"] * bool(missing)
            + [f"no number ≥ 0: {bad}"] * bool(bad)
        )
        raise BadInput(
            f"price of {model!r}: {'; '.join(faults)}; "
            "give input and output, and cache_read, cache_write, cache_write_1h if you like, in $/1M tokens"
        )
    return OwnPrice(**dict(price))


def _by_rule(price: OwnPrice, model: str) -> OwnPrice:
    """A price with what its owner left open of the cache, as the model's rules have it: what a run is billed and what a
    cache is reckoned to save then agree.
    """
    rule = rule_for(model)
    read = price.input * rule.read if price.cache_read is None else price.cache_read
    write = price.input * (rule.write or 1.0) if price.cache_write is None else price.cache_write
    hour = price.cache_write_1h
    if hour is None and rule.trigger == "marked":
        hour = price.input * _HOUR_WRITE
    return OwnPrice(price.input, price.output, read, write, hour)


class PricedAs:
    """All money as if one named model had answered: what a small or local model's traffic would cost elsewhere.

    Relative money, then: the tokens billed are those of the model that really answered.
    """

    def __init__(self, prices: GenaiPrices, model: str) -> None:
        if not prices.has_price(model):
            raise BadInput(
                f"no price is known for {model!r}; name another model, or give one with --price MODEL=INPUT,OUTPUT"
            )
        self._prices, self.model = prices, model
        self.source, self.date = prices.source, prices.date  # of the table

    def cost(self, usage: Usage, model: str) -> float | None:
        """US dollars for `usage` at the named model's price, whatever `model` is."""
        return self._prices.cost(usage, self.model)

    def worst_case(self, model: str, prompt_tokens: int, max_tokens: int | None) -> float | None:
        """The most that one call can cost at the named model's price."""
        return self._prices.worst_case(self.model, prompt_tokens, max_tokens)

    def has_price(self, model: str) -> bool:
        """Always: the named model's price holds for all."""
        return True

    def is_own(self, model: str) -> bool:
        """True if the named model's price is not the table's."""
        return self._prices.is_own(self.model)


_OTHER = "any other model"  # the rule that holds where no other does
_FILE = Path(__file__).with_name("cache_rules.toml")
_SOME = 1_000  # tokens whose price is asked for: few enough for the lowest tier of every model
#: Names of families of rules, with the model that stands for each where no other is named.
FAMILIES = {
    "openai": "gpt-5",
    "openai-5.6": "gpt-5.6",
    "anthropic": "claude-sonnet-5",
    "vllm": "vllm",
    "deepseek": "deepseek-chat",
}
_HOUR = 3600.0  # seconds that Anthropic keeps what was written for an hour
_HOUR_WRITE = 2.0  # multiple of the input price, where the price table has none


@dataclass(frozen=True, slots=True)
class CacheRule:
    """One provider's rules. `trigger` "marked": only what a request marks with `cache_control` is stored.

    `read`, `write`: multiples of the input price (`write = None`: free). `lifetime` in seconds (`None`: not
    documented). `sure`: sources agree; if not, `note` says about what.
    """

    name: str
    mode: Literal["block", "unit"]
    minimum: int
    step: int = 1
    trigger: Literal["automatic", "marked"] = "automatic"
    read: float = 0.1
    write: float | None = None
    lifetime: float | None = None
    sure: bool = True
    note: str = ""


@lru_cache(maxsize=1)
def _rules() -> tuple[str, list[tuple[str, CacheRule]]]:
    import tomllib  # not paid for by runs that ask for no rule

    found = tomllib.loads(_FILE.read_text("utf-8"))
    rules: list[tuple[str, CacheRule]] = []
    for entry in found["rules"]:
        prefixes = entry.pop("models")
        rule = CacheRule(**{**entry, "write": None if entry["write"] == "free" else entry["write"]})
        rules += [(_spelling(prefix), rule) for prefix in prefixes]
    return str(found["date"]), rules


def rules_date() -> str:
    """The day on which the rules were last checked, as an ISO date."""
    return _rules()[0]


def rule_for(model: str) -> CacheRule:
    """The rules for `model`: of all rules the first whose prefix fits, with or without a router's prefix
    (`openai/gpt-5`).
    """
    name = _spelling(model.rpartition("/")[2])
    if "claude" in name:  # clouds write us.anthropic.claude-…
        name = name[name.index("claude") :]
    return next(rule for prefix, rule in _rules()[1] if name.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules and prices that a session is billed by. `own`: they are those of the model that was recorded."""

    rule: CacheRule
    profile: CacheProfile
    priced: bool
    own: bool


def rules_of(model: str, prices: Prices | None = None, *, named: str | None = None, hour: bool = False) -> Rules:
    """Rules for a session recorded with `model`, or those `named` instead: a model, or a family (`FAMILIES`), which
    bills by its own rules at the recorded model's prices. `hour`: the session stored its cache entries for an hour.
    """
    if named is None or named == model:
        rule = rule_for(model)
        return Rules(rule, profile_for(model, prices, hour=hour), is_priced(prices, model), own=True)
    if named not in FAMILIES:
        return Rules(rule_for(named), profile_for(named, prices, hour=hour), is_priced(prices, named), own=False)
    recorded = rule_for(model)
    rule = recorded if recorded.name.lower().startswith(named) else rule_for(FAMILIES[named])
    if rule is recorded:
        return Rules(rule, profile_for(model, prices, hour=hour), is_priced(prices, model), own=True)
    own = profile_for(model, prices)
    profile = _profile(rule, own.p_in, own.p_out, rule.read, rule.write, hour)
    return Rules(rule, profile, is_priced(prices, model), own=False)


def check_profile(name: str, prices: Prices | None) -> None:
    """Refuse a name of neither a family nor a model with rules or prices. Raises `BadInput`."""
    if name not in FAMILIES and rule_for(name).name == _OTHER and not is_priced(prices, name):
        raise BadInput(
            f"--profile {name}: no cache rules and no price are known by that name; expected a family "
            f"({', '.join(FAMILIES)}) or a model's name, such as claude-sonnet-4-5"
        )


def is_priced(prices: Prices | None, model: str) -> bool:
    """A price is known for `model`."""
    return _rate(prices, model, Usage(_SOME, 0)) is not None


def profile_for(model: str, prices: Prices | None = None, *, hour: bool = False) -> CacheProfile:
    """The cache model to count `model`'s prompts with, in US dollars where `prices` knows the model.

    Where it does not, input counts 1 and output 0 dollars per million tokens, so that only ratios of prompt cost mean
    anything. Whether a write is billed at all is the rule's to say, how much it costs the price table's. Entries of
    rules with `trigger = "marked"` exist only for marked prompts: the caller says which (see
    `wire.cache.LiveCache`). `hour`: what is written stays for an hour, at that price, where the provider offers it.
    """
    rule = rule_for(model)
    p_in, p_out = _rate(prices, model, Usage(_SOME, 0)), _rate(prices, model, Usage(0, _SOME))
    read, write = _rate(prices, model, Usage(_SOME, 0, _SOME, 0)), _rate(prices, model, Usage(_SOME, 0, 0, _SOME))
    r, w = rule.read, rule.write
    long = _rate(prices, model, Usage(_SOME, 0, 0, _SOME, cache_write_1h=_SOME)) if hour else None
    if p_in:
        own = isinstance(prices, GenaiPrices | PricedAs) and prices.is_own(model)
        if read is not None and (0 < read < p_in or (own and read)):  # the table's own of no discount: it knows none
            r = read / p_in
        if w is not None and write is not None and write > p_in:
            w = write / p_in
        if long is not None and write is not None and long > write:
            return _profile(rule, p_in, p_out or 0.0, r, long / p_in, hour=True, price=long / p_in)
    known = p_in is not None
    return _profile(rule, 1.0 if p_in is None else p_in, (p_out or 0.0) if known else 0.0, r, w, hour)


def _profile(
    rule: CacheRule, p_in: float, p_out: float, read: float, write: float | None, hour: bool, price: float = _HOUR_WRITE
) -> CacheProfile:
    """The rule as a cache model; `hour` only where its entries are marked. `price`: of its writes, in input prices."""
    from context_bench.wire.cache import CacheProfile

    long = hour and rule.trigger == "marked"
    write = price if long else write
    return CacheProfile(
        mode=rule.mode,
        m=rule.minimum,
        b=rule.step,
        p_in=p_in,
        p_out=p_out,
        r=round(read, 6),
        w=None if write is None else round(write, 6),
        ttl=_HOUR if long else rule.lifetime,
    )


def _rate(prices: Prices | None, model: str, usage: Usage) -> float | None:
    cost = prices.cost(usage, model) if prices is not None else None
    return None if cost is None else cost * 1e6 / _SOME


def _spelling(name: str) -> str:
    return name.lower().replace(".", "-")
