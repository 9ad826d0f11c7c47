"""Every number of one system with its interval, failures and bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from context_bench.core.records import Estimate
from context_bench.engine.aggregates import Columns, Gatherer, averaged, compact
from context_bench.stats.bootstrap import bootstrap_mean, ratio_intervals_of, rests_on_few, skewed_upper_end
from context_bench.stats.intervals import bounded, quantile_interval
from context_bench.stats.means import MIN_CLUSTERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: A ratio of sums: tops, bottoms, and which rows know both. Made when it is asked for: of many rows one at a time
    #: is enough to hold.
    Part = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
    Parts = dict[str, Callable[[], Part]]


def estimates_of(
    columns: Columns,
    gatherer: Gatherer,
    seed: int,
    metrics: Sequence[Any] = (),
    names: Sequence[Mapping[str, str]] = (),
) -> dict[str, Estimate]:
    """Scores by their names; what `metrics` compute of them under the `names` their keys have in the summary;
    `compression_ratio`, `mean_input_tokens`, `mean_output_tokens`, `cost_usd` (per row), `latency_mean`, and median,
    p95, p99 of latency and time to first token. What no row knows is absent.
    """
    found = {
        name: estimate
        for name in sorted(columns.scores, key=_counting)
        if (estimate := score_estimate(columns, gatherer, name, seed)) is not None
    }
    parts = _amounts(columns)
    for metric, own in zip(metrics, names, strict=True):
        scored = {
            key: each for key, each in _of_metric(metric, found, columns, gatherer, seed).items() if each is not None
        }
        found |= {own[key]: each for key, each in scored.items() if key in own}
        if getattr(metric, "name", None) == "cost_of_pass":
            parts |= {own[key]: part for key, part in _cost_of_pass(metric, columns).items() if key in own}
    return found | _ratios(parts, columns, seed) | _times(columns)


def _counting(name: str) -> list[tuple[int, str]]:
    """The order in which a person lists names: `hit_at_5` before `hit_at_10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _of_metric(
    metric: Any, known: Mapping[str, Estimate], columns: Columns, gatherer: Gatherer, seed: int
) -> dict[str, Estimate | None]:
    """The keys of a metric over scores, each with its uncertainty. Metrics of one's own have none but what their scores
    have.
    """
    kind, read = getattr(metric, "name", None), getattr(metric, "score_field", None)
    if not isinstance(read, str) or read not in known:
        return {}
    if kind == "pass_rate" and isinstance(threshold := getattr(metric, "threshold", None), int | float):
        return {"pass_rate": score_estimate(columns, gatherer, read, seed, threshold=threshold)}
    if kind == "per_dataset":
        return _by_group(
            columns,
            gatherer,
            read,
            seed,
            "datasets",
            {n: f"dataset:{tag or 'unknown'}" for n, tag in enumerate(gatherer.datasets)},
        )
    if kind == "per_qa_type":
        by_type = _by_group(
            columns, gatherer, read, seed, "types", {n: f"{read}_{name}" for n, name in enumerate(gatherer.types)}
        )
        return {**by_type, f"{read}_mean": known[read]}
    return {"mean_score": known[read]} if kind in ("mean_score", "token_efficiency") else {}


def _by_group(
    columns: Columns, gatherer: Gatherer, read: str, seed: int, by: str, keys: Mapping[int, str]
) -> dict[str, Estimate | None]:
    groups = columns.whole(by)
    return {key: score_estimate(columns, gatherer, read, seed, within=groups == number) for number, key in keys.items()}


def unscored(columns: Columns, gatherer: Gatherer, name: str) -> NDArray[Any]:
    """Rows that should have this score and do not, because something failed on them."""
    carriers = [number for number, names in gatherer.fields.items() if name in names]
    missing: NDArray[Any] = np.isnan(columns.numbers(name)) & (columns.whole("errored") > 0)
    return missing & np.isin(columns.whole("datasets"), carriers)


def without_gold(columns: Mapping[str, Columns], score: str | None) -> list[str]:
    """A sentence on the rows that are in no quality figure though nothing failed on them, for want of a gold answer:
    those without the score in data where other rows have it. None where there are none.
    """
    found = []
    for own in (each for each in columns.values() if score in each.scores):
        scored = ~np.isnan(own.numbers(score or ""))
        datasets = own.whole("datasets")
        left = ~scored & (own.whole("errored") == 0) & np.isin(datasets, np.unique(datasets[scored]))
        found.append((int(left.sum()), len(own)))
    most, rows = max(found, default=(0, 0))
    if not most:
        return []
    least = min(left for left, _ in found)
    many = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    are, theirs = ("is", "its example has") if most == least == 1 else ("are", "their examples have")
    return [
        f"{many} of the {rows:,} rows of each system {are} not in {score}, though nothing failed: as a rule {theirs} "
        "no gold answer."
    ]


def score_estimate(
    columns: Columns,
    gatherer: Gatherer,
    name: str,
    seed: int,
    *,
    threshold: float | None = None,
    within: NDArray[Any] | None = None,
) -> Estimate | None:
    """The mean of one score, or with `threshold` the share of rows that reach it; over the rows `within` only, if
    given.

    In [0, 1]: score interval (Wilson's for 0/1) and bounds over failures; else bootstrap-t.
    """
    scores, missing = columns.numbers(name), unscored(columns, gatherer, name)
    known = ~np.isnan(scores)
    if within is not None:
        known, missing = known & within, missing & within
    if threshold is not None:
        scores = np.where(known, scores >= threshold, np.nan)
    n, failures = int(known.sum()), int(missing.sum())
    if not n:
        return None
    units, clusters = columns.units, columns.clusters
    if n < len(known):
        units, clusters = None if units is None else units[known], clusters[known]
        scores = scores[known]
    values, codes = averaged(scores, units, clusters)
    estimate = Estimate(float(values.mean()), n=n, failures=failures, clusters=int(codes.max()) + 1)
    in_range = bool(values.min() >= 0 and values.max() <= 1)
    if in_range:
        total = float(scores.sum())
        estimate.worst, estimate.best = total / (n + failures), (total + failures) / (n + failures)
    if estimate.clusters >= MIN_CLUSTERS:
        _interval(estimate, values, codes, in_range, seed)
    return estimate


def _interval(estimate: Estimate, values: NDArray[Any], codes: NDArray[Any], in_range: bool, seed: int) -> None:

    if in_range:
        gathered = bounded(values, codes, low=0.0, high=1.0)
        estimate.low, estimate.high = gathered.interval()
        estimate.method = "Wilson" if np.isin(values, (0.0, 1.0)).all() else "score interval"
        if gathered.design.clusters < gathered.design.n:
            estimate.method += ", clustered"
    elif (found := bootstrap_mean(values, codes, seed=seed)) is not None:
        estimate.low, estimate.high = found
        estimate.method = "cluster bootstrap-t"


def _amounts(columns: Columns) -> Parts:
    """Tokens, money and seconds as ratios of sums."""

    def saved() -> Part:
        sent, forwarded = columns.measure("sent"), columns.measure("forwarded")
        return sent - forwarded, sent, both()

    def both() -> NDArray[Any]:
        found: NDArray[Any] = columns.knows("sent") & columns.knows("forwarded")
        return found

    def per_row(name: str, *, with_both: bool = False) -> Callable[[], Part]:
        def made() -> Part:
            paired = both() if with_both else None
            known = paired if paired is not None and paired.any() else columns.knows(name)
            return columns.measure(name), np.ones(len(columns)), known

        return made

    return {
        "compression_ratio": saved,
        "mean_input_tokens": per_row("sent", with_both=True),
        "mean_output_tokens": per_row("forwarded", with_both=True),
        "cost_usd": per_row("cost"),
        "latency_mean": per_row("latency"),
    }


def _cost_of_pass(metric: Any, columns: Columns) -> Parts:
    """Tokens, and money where every row that counts has a price, per row that passes; see `metrics.CostOfPass`."""
    answered = columns.whole("failed") == 0
    counts = ~np.isnan(columns.numbers(metric.score_field)) | ~answered

    def passed() -> NDArray[Any]:
        found: NDArray[Any] = (columns.numbers(metric.score_field) >= metric.threshold).astype(float)
        return found

    def in_tokens() -> Part:
        return (
            columns.measure("forwarded") + np.nan_to_num(columns.measure("reply")),
            passed(),
            columns.knows("forwarded") & counts,
        )

    def in_money() -> Part:
        return np.nan_to_num(columns.measure("cost")), passed(), counts

    unpriced = (~columns.knows("cost") & counts & answered).any()
    return {"cost_of_pass": in_tokens} | ({} if unpriced else {"cost_of_pass_usd": in_money})


def _ratios(parts: Parts, columns: Columns, seed: int) -> dict[str, Estimate]:
    """Ratios of sums over clusters, all from one draw."""
    found: dict[str, Estimate] = {}
    sums = _cluster_sums(parts, columns, found)
    enough = len(columns) >= MIN_CLUSTERS and int(columns.clusters.max()) + 1 >= MIN_CLUSTERS
    intervals = ratio_intervals_of(sums, seed=seed) if enough else [None for _ in sums]
    for estimate, interval in zip(found.values(), intervals, strict=True):
        if interval is not None and estimate.clusters >= MIN_CLUSTERS:
            estimate.low, estimate.high, estimate.method = *interval, "cluster bootstrap"
    cost = found.get("cost_usd")
    if cost is not None and cost.high is not None:
        top, bottom = next(_cluster_sums({"cost_usd": parts["cost_usd"]}, columns, {}))
        if (high := skewed_upper_end(top, bottom)) > cost.high:
            cost.high, cost.method = high, "cluster bootstrap, corrected for skewness"
    return found


def costs_rest_on_few(columns: Columns) -> bool:
    """True if one more dear row (with its cluster) could change the mean cost by more than its interval says."""
    known = columns.knows("cost")
    if not known.any():
        return False
    return rests_on_few(np.bincount(compact(columns.clusters[known]), columns.measure("cost")[known]))


def _cluster_sums(
    parts: Parts, columns: Columns, found: dict[str, Estimate]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Top and bottom of each part by cluster; its ratio goes into `found`. Parts that nothing is known of are left out
    of both.
    """
    codes = columns.clusters
    for name, made in parts.items():
        top, bottom, where = made()
        known = float(bottom[where].sum()) if where.any() else 0.0
        if known > 0:
            found[name] = _counted(float(top[where].sum() / known), columns, where)
            top[~where] = bottom[~where] = 0.0
            top = np.bincount(
                codes, top
            )  # by cluster; one after the other, for the rows' own need not be held any longer
            bottom = np.bincount(codes, bottom)
            yield top, bottom


def _counted(value: float, columns: Columns, known: NDArray[Any]) -> Estimate:
    """An estimate with the rows behind it; `failures`: rows that failed and so have no such number."""
    missing = ~known & (columns.whole("failed") > 0)
    return Estimate(value, n=int(known.sum()), failures=int(missing.sum()), clusters=_groups(columns.clusters[known]))


def _groups(codes: NDArray[Any]) -> int:
    """The number of different ones."""
    there = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=bool)
    there[codes] = True
    return int(np.count_nonzero(there))


def _times(columns: Columns) -> dict[str, Estimate]:
    found: dict[str, Estimate] = {}
    for name in ("latency", "ttft"):
        known = columns.knows(name)
        if not known.any():
            continue
        seconds, codes = columns.measure(name)[known], compact(columns.clusters[known])
        for label, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))[: 3 if name == "latency" else 2]:
            estimate = _counted(float(np.quantile(seconds, share)), columns, known)
            if (interval := quantile_interval(seconds, share, codes)) is not None:
                estimate.low, estimate.high, estimate.method = *interval, "Woodruff"
            found[f"{name}_{label}"] = estimate
    return found
