"""Which rules a provider's prompt cache follows, by model: a dated file of our own, with prices from the price table on top."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from context_bench.core.errors import BadInput
from context_bench.core.records import Usage
from context_bench.wire.cache import CacheProfile

_OTHER = "any other model"  # the rule that holds where no other does
_FILE = Path(__file__).with_name("cache_rules.toml")
_SOME = 1_000  # tokens whose price is asked for: few enough for the lowest tier of every model
#: Names of families of rules, with the model that stands for each where no other is named.
FAMILIES = {"openai": "gpt-5", "openai-5.6": "gpt-5.6", "anthropic": "claude-sonnet-5", "vllm": "vllm", "deepseek": "deepseek-chat"}
_HOUR = 3600.0  # seconds that Anthropic keeps what was written for an hour
_HOUR_WRITE = 2.0  # multiple of the input price, where the price table has none


class Priced(Protocol):
    """What prices are asked for: `GenaiPrices`, `PricedAs`, or alike."""

    def cost(self, usage: Usage, model: str) -> float | None:
        """US dollars for `usage` on `model`; `None` when no price is known."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """One provider's rules. `trigger` "marked": only what a request marks with `cache_control` is stored.

    `read`, `write`: multiples of the input price (`write = None`: free). `lifetime` in seconds (`None`: not documented). `sure`: sources
    agree; if not, `note` says about what.
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
    """The rules for `model`: of all rules the first whose prefix fits, with or without a router's prefix (`openai/gpt-5`)."""
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


def rules_of(model: str, prices: Priced | None = None, *, named: str | None = None, hour: bool = False) -> Rules:
    """Rules for a session recorded with `model`, or those `named` instead: a model, or a family (`FAMILIES`), which bills by its own rules
    at the recorded model's prices. `hour`: the session stored its cache entries for an hour.
    """
    if named is None or named == model:
        rule = rule_for(model)
        return Rules(rule, profile_for(model, prices, hour=hour), _is_priced(prices, model), own=True)
    if named not in FAMILIES:
        return Rules(rule_for(named), profile_for(named, prices, hour=hour), _is_priced(prices, named), own=False)
    recorded = rule_for(model)
    rule = recorded if recorded.name.lower().startswith(named) else rule_for(FAMILIES[named])
    if rule is recorded:
        return Rules(rule, profile_for(model, prices, hour=hour), _is_priced(prices, model), own=True)
    own = profile_for(model, prices)
    profile = _profile(rule, own.p_in, own.p_out, rule.read, rule.write, hour)
    return Rules(rule, profile, _is_priced(prices, model), own=False)


def check_profile(name: str, prices: Priced | None) -> None:
    """Refuse a name of neither a family nor a model with rules or prices. Raises `BadInput`."""
    if name not in FAMILIES and rule_for(name).name == _OTHER and not _is_priced(prices, name):
        raise BadInput(
            f"--profile {name}: no cache rules and no price are known by that name; expected a family "
            f"({', '.join(FAMILIES)}) or a model's name, such as claude-sonnet-4-5"
        )


def _is_priced(prices: Priced | None, model: str) -> bool:
    return _rate(prices, model, Usage(_SOME, 0)) is not None


def profile_for(model: str, prices: Priced | None = None, *, hour: bool = False) -> CacheProfile:
    """The cache model to count `model`'s prompts with, in US dollars where `prices` knows the model.

    Where it does not, input counts 1 and output 0 dollars per million tokens, so that only ratios of prompt cost mean anything. Whether a
    write is billed at all is the rule's to say, how much it costs the price table's. Entries of rules with `trigger = "marked"` exist only
    for marked prompts: the caller says which (see `core.cachecost.LiveCache`). `hour`: what is written stays for an hour, at that price,
    where the provider offers it.
    """
    rule = rule_for(model)
    p_in, p_out = _rate(prices, model, Usage(_SOME, 0)), _rate(prices, model, Usage(0, _SOME))
    read, write = _rate(prices, model, Usage(_SOME, 0, _SOME, 0)), _rate(prices, model, Usage(_SOME, 0, 0, _SOME))
    r, w = rule.read, rule.write
    long = _rate(prices, model, Usage(_SOME, 0, 0, _SOME, cache_write_1h=_SOME)) if hour else None
    if p_in:
        if read is not None and 0 < read < p_in:
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
    """The rule as a cache model; `hour` only where its entries are marked, with `price` times the input price for a write."""
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


def _rate(prices: Priced | None, model: str, usage: Usage) -> float | None:
    cost = prices.cost(usage, model) if prices is not None else None
    return None if cost is None else cost * 1e6 / _SOME


def _spelling(name: str) -> str:
    return name.lower().replace(".", "-")
