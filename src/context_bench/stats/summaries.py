"""Putting the numbers of several metrics together: no key is lost, and systems are ranked by two of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from context_bench.core.records import Estimate


def combined(metrics: Sequence[Any], numbers: Sequence[Mapping[str, float]], primary: str | None = None) -> dict[str, float]:
    """The numbers of `metrics`, in their order, as one mapping; keys are named by `key_names`."""
    names = key_names(metrics, numbers, primary)
    return {own[key]: value for own, given in zip(names, numbers, strict=True) for key, value in given.items()}


def key_names(metrics: Sequence[Any], numbers: Sequence[Iterable[str]], primary: str | None = None) -> list[dict[str, str]]:
    """For each metric: its key → how that key is called among the numbers of all.

    Where two metrics on different scores or pass marks give the same key, the one on the score `primary` (else the first) keeps it, and
    the other's carries its settings: `mean_score` of `exact_match` is `mean_exact_match`, a second pass mark gives `pass_rate_0.5`.
    A metric that reads no score replaces what it names.
    """
    owners: dict[str, Any] = {}
    names: list[dict[str, str]] = [{} for _ in metrics]
    first_primary = sorted(
        range(len(metrics)), key=lambda i: primary is not None and getattr(metrics[i], "score_field", primary) != primary
    )
    for i in first_primary:
        for key in numbers[i]:
            names[i][key] = _own_name(key, metrics[i], owners.setdefault(key, metrics[i]))
    return names


def _own_name(key: str, metric: Any, owner: Any) -> str:
    own, held = _settings(metric), _settings(owner)
    if "score_field" not in own or "score_field" not in held:
        return key
    parts = {name: value for name, value in own.items() if name in held and value != held[name]}
    if key == "mean_score" and "score_field" in parts:
        return f"mean_{parts['score_field']}"
    return "_".join([key, *(str(value) for value in parts.values())])


def _settings(metric: Any) -> dict[str, Any]:
    return {name: getattr(metric, name) for name in ("score_field", "threshold") if hasattr(metric, name)}


def rank_systems(
    summary: Mapping[str, Mapping[str, float]],
    quality: str = "mean_score",
    cost: str = "cost_of_pass",
    *,
    missing: bool = True,
    estimates: Mapping[str, Mapping[str, Estimate]] | None = None,
) -> dict[str, int]:
    """System → 1 + number of systems that dominate it (quality no lower, cost no higher, one of them strictly). Equal systems share a rank.

    `missing`: a missing quality counts as 0 and a missing cost as infinite; else systems without both are left out. With `estimates`,
    differences that lie within both systems' intervals are none.
    """
    from context_bench.stats.pareto import Reading, beats

    def reading(system: str, name: str, default: float, sign: int) -> Reading:
        value = sign * _or(summary[system].get(name), default)
        known = (estimates or {}).get(system, {}).get(name)
        if known is None or known.low is None or known.high is None:
            return Reading(value)
        return Reading(value, *sorted((sign * known.low, sign * known.high)))

    points = {
        system: (reading(system, quality, 0.0, -1), reading(system, cost, math.inf, 1))
        for system, values in summary.items()
        if missing or (quality in values and cost in values)
    }
    return {system: 1 + sum(beats(other, own) for other in points.values()) for system, own in points.items()}


def _or(value: float | None, default: float) -> float:
    return default if value is None or math.isnan(value) else float(value)
