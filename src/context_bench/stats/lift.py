"""Value of a compressor: between full history and none, beside plain truncation to the same size, and as a curve.

```python
retention_index(scores, full, none, sessions).value        # 1: as good as the whole history, 0: as bad as none of it
lifts([Lift("anchored", "head_tail@anchored", …)])         # gain over cutting the middle out for free
```

All scores of one call are of the same probes in the same order. `clusters` give the session of each; whole sessions are
drawn again for the intervals. Formulas: the retention index and the lift of the specification's §3.4, system-level
rubric of §2.3. One compressor at several sizes is a curve of quality against fold: retention, area under the
rate–quality curve, fold at 95 %, Bjøntegaard's rate difference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import needed
from context_bench.core.lazy import LazyModule
from context_bench.core.records import Comparison, Estimate
from context_bench.core.rubric import HIGHEST, LOWEST
from context_bench.stats.bootstrap import RESAMPLES, cluster_sums, ratio_interval, resampled_interval, sorted_codes
from context_bench.stats.intervals import estimate
from context_bench.stats.means import MIN_CLUSTERS, codes_of, mean_se
from context_bench.stats.verdict import Assay, VerdictQuestion, judge, shows_inferior, weigh

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
else:
    np = LazyModule("numpy")


@dataclass(frozen=True, slots=True)
class Retention:
    """Mean of the system relative to the baseline's, with a paired cluster-bootstrap interval.

    `reliable` is false when the baseline's mean lies within two standard errors of 0, or of the score without any
    context: a ratio to almost nothing says nothing, and where there was nothing to lose all was retained.
    """

    value: float | None
    low: float | None
    high: float | None
    reliable: bool
    n: int
    clusters: int


def retention(
    system: Sequence[float],
    baseline: Sequence[float],
    clusters: Sequence[Any] | None = None,
    *,
    no_context: Sequence[float] | None = None,
    seed: int = 0,
) -> Retention:
    """mean(system) / mean(baseline) on the same examples; interval from 6 clusters on. `no_context`: scores without any
    context.
    """
    top, bottom = _pair(system, baseline)
    codes = codes_of(clusters, len(top))
    count = int(codes.max()) + 1 if len(codes) else 0
    base = mean_se(bottom, clusters)
    if not base.mean:
        return Retention(None, None, None, False, len(top), count)
    reliable = base.se is not None and abs(base.mean) > 2 * base.se
    if no_context is not None:
        gained = mean_se(np.subtract(*_pair(baseline, no_context)), clusters)
        reliable = reliable and gained.se is not None and gained.mean > 2 * gained.se
    low = high = None
    if reliable and count >= MIN_CLUSTERS:
        sums = cluster_sums(codes, np.asarray(top), np.asarray(bottom))
        low, high = ratio_interval(sums[:, 0], sums[:, 1], seed=seed) or (None, None)
    return Retention(float(np.mean(top)) / base.mean, low, high, reliable, len(top), count)


def _pair(first: Sequence[float], second: Sequence[float]) -> tuple[Any, Any]:
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(f"expected two equally long lists of scores, got {a.shape} and {b.shape}")
    return a, b


def aurq(
    fold: Sequence[float], quality: Sequence[float], baseline_quality: float, *, up_to: float | None = None
) -> float:
    """Area under quality over log2(fold), relative to keeping the baseline's quality all the way.

    `fold` = tokens before / after, from 1 (uncompressed) upwards; `up_to` = the largest fold to count (default: the
    largest measured; never beyond it).
    """
    xs, ys = _points_of(fold, quality)
    end = xs[-1] if up_to is None else math.log2(up_to)
    if not baseline_quality or not xs[0] < end <= xs[-1] + 1e-12:
        raise ValueError(
            f"no area up to fold {up_to} of a curve from {fold[0]} to {fold[-1]} against a baseline of "
            f"{baseline_quality}"
        )
    area = 0.0
    for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
        if x0 >= end:
            break
        stop = min(x1, end)
        at_stop = y0 + (y1 - y0) * (stop - x0) / (x1 - x0)
        area += (stop - x0) * (y0 + at_stop) / 2
    return area / ((end - xs[0]) * baseline_quality)


def fold_at(share: float, fold: Sequence[float], quality: Sequence[float], baseline_quality: float) -> float | None:
    """The largest fold up to which the interpolated curve stays at or above `share` of the baseline's quality; `None`
    if it never is.
    """
    xs, ys = _points_of(fold, quality)
    floor = share * baseline_quality
    if ys[0] < floor:
        return None
    for (x0, x1), (y0, y1) in zip(pairwise(xs), pairwise(ys), strict=True):
        if y1 < floor:
            return float(2 ** (x0 + (x1 - x0) * (y0 - floor) / (y0 - y1)))
    return float(2 ** xs[-1])


def _points_of(fold: Sequence[float], quality: Sequence[float]) -> tuple[list[float], list[float]]:
    if len(fold) != len(quality) or len(fold) < 2 or any(a >= b for a, b in pairwise(fold)) or fold[0] <= 0:
        raise ValueError("a curve needs two or more points with rising, positive folds and one quality each")
    return [math.log2(value) for value in fold], [float(value) for value in quality]


def bd_rate(
    tokens_anchor: Sequence[float],
    quality_anchor: Sequence[float],
    tokens_test: Sequence[float],
    quality_test: Sequence[float],
) -> float:
    """Bjøntegaard's rate difference in percent: how many more (+) or fewer (−) tokens the test needs at equal quality.

    Akima interpolation. At least four points each; the quality ranges must overlap by three quarters of the narrower
    one.
    """
    akima = needed("scipy.interpolate", "Bjøntegaard's rate difference", "stats").Akima1DInterpolator
    sides = []
    for tokens, quality in ((tokens_anchor, quality_anchor), (tokens_test, quality_test)):
        if len(tokens) < 4 or len(set(quality)) < len(quality):
            raise ValueError("each side needs at least four points with distinct qualities")
        order = np.argsort(quality)
        sides.append((np.asarray(quality, dtype=float)[order], np.log10(np.asarray(tokens, dtype=float)[order])))
    low, high = max(side[0][0] for side in sides), min(side[0][-1] for side in sides)
    narrower = min(side[0][-1] - side[0][0] for side in sides)
    if high - low < 0.75 * narrower:
        raise ValueError(
            f"the quality ranges overlap only from {low:.4g} to {high:.4g}; no rate difference can be given"
        )
    areas = [float(akima(*side).integrate(low, high)) for side in sides]
    return float((10 ** ((areas[1] - areas[0]) / (high - low)) - 1) * 100)


#: Share of the scale by which full history must beat none, or there is nothing that could be retained.
LEAST_GAP = 0.05


@dataclass(frozen=True, slots=True)
class RetentionIndex:
    """(q − q_none) / (q_full − q_none). `gap` = q_full − q_none. `value` is `None` where that is too small, and `why`
    says so; `low` and `high` are `None` below 6 sessions. Above 1: better than with everything; below 0: worse than
    with nothing.
    """

    value: float | None
    low: float | None
    high: float | None
    gap: float | None
    n: int
    clusters: int
    why: str = ""


def retention_index(
    system: Sequence[float],
    full: Sequence[float],
    none: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    scale: float = 1.0,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> RetentionIndex:
    """Share of the history's value that is still there. `scale`: the width of the score's range (5 for ratings from 0
    to 5).

    Undefined if full history beats none by less than a twentieth of the scale: the quotient would be noise over noise.
    """
    own, most, least = (np.asarray(values, dtype=float) for values in (system, full, none))
    if not own.shape == most.shape == least.shape or own.ndim != 1:
        raise ValueError(
            f"scores of the same probes are needed: {len(own)} of the system, {len(most)} with all, {len(least)} with "
            "none"
        )
    if not len(own):
        return RetentionIndex(None, None, None, None, 0, 0, "no probe was scored for the system, full history and none")
    codes = sorted_codes(clusters, len(own))
    count, gap = int(codes.max()) + 1, float((most - least).mean())
    if gap < LEAST_GAP * scale:
        why = (
            f"full history scores only {gap:.3g} above none (at least {LEAST_GAP * scale:.3g} is needed): "
            "nothing to retain"
        )
        return RetentionIndex(None, None, None, gap, len(own), count, why)
    low = high = None
    if count >= MIN_CLUSTERS:
        sums = cluster_sums(codes, own - least, most - least)
        low, high = ratio_interval(sums[:, 0], sums[:, 1], resamples=resamples, seed=seed) or (None, None)
    value = float((own - least).mean()) / gap
    return RetentionIndex(value, low, high, gap, len(own), count, "" if low is not None else _too_few(count))


def retained(scores: Sequence[Sequence[float] | NDArray[Any]]) -> list[float] | None:
    """Shares of the history's value that some systems keep, from their scores on the same examples, those with all and
    with none the last two; `None` where that is too little to speak of. Scores above 1 are ratings.
    """
    values = [np.asarray(each, dtype=float) for each in scores]
    if not len(values[0]):
        return None
    *shares, most, least = (float(each.mean()) for each in values)
    scale = HIGHEST if max(float(each.max()) for each in values) > 1 else 1.0
    return None if most - least < LEAST_GAP * scale else [(share - least) / (most - least) for share in shares]


def _too_few(clusters: int) -> str:
    sessions = "1 session is" if clusters == 1 else f"{clusters} sessions are"
    few = f"{sessions} too few for an interval (at least {MIN_CLUSTERS})"
    return few if clusters < MIN_CLUSTERS else "full history and none are too close for an interval"


@dataclass(frozen=True, slots=True)
class Lift:
    """A system and plain truncation to its size, on the same probes. `known_bad`: arms that must lose, by name."""

    system: str
    truncation: str
    scores: Sequence[float]
    truncated: Sequence[float]
    clusters: Sequence[Hashable]
    known_bad: Mapping[str, Sequence[float]] = field(default_factory=dict)


def lifts(
    pairs: Sequence[Lift], *, metric: str = "score", margin: float | None = None, seed: int = 0
) -> list[Comparison]:
    """Gain of each system over truncation: mean paired difference, interval and verdict, Holm-corrected over the
    systems.

    `better` is the verdict a compressor has to earn; `non-inferior` says that cutting the middle out would have done as
    well.
    """
    questions = []
    for pair in pairs:
        evidence = weigh(pair.scores, pair.truncated, pair.clusters, margin=margin, seed=seed)
        bad = (
            (name, weigh(scores, pair.truncated, pair.clusters, margin=margin, seed=seed))
            for name, scores in pair.known_bad.items()
        )
        shown = next((name for name, found in bad if shows_inferior(found)), None)
        questions.append(
            VerdictQuestion(pair.system, pair.truncation, metric, evidence, Assay(shown, tuple(pair.known_bad)))
        )
    return judge(questions)


# --- the rubric, system by system ---
@dataclass(frozen=True, slots=True)
class RubricLevel:
    """A system's rubric scores. `dimensions`: the mean of its probes' scores in each; `overall`: their unweighted mean;
    `overall_probe_mean`: the mean of the probes' own overalls. The last two differ where probes are not asked about all
    dimensions.
    """

    dimensions: dict[str, Estimate]
    overall: Estimate | None
    overall_probe_mean: Estimate | None


def rubric_level(probes: Sequence[Mapping[str, float]], clusters: Sequence[Hashable], *, seed: int = 0) -> RubricLevel:
    """From the dimension scores of each probe (absent: not scored). A probe without any is a failure of the judge, and
    in no mean.
    """
    named = list(dict.fromkeys(name for probe in probes for name in probe))
    scored = [(probe, cluster) for probe, cluster in zip(probes, clusters, strict=True) if probe]
    if not scored:
        return RubricLevel({}, None, None)
    codes = sorted_codes([cluster for _, cluster in scored], len(scored))
    values = np.array([[probe.get(name, math.nan) for name in named] for probe, _ in scored])
    there = ~np.isnan(values)
    dimensions = {
        name: estimate(
            [float(v) for v in values[there[:, at], at]],
            [int(c) for c in codes[there[:, at]]],
            low=LOWEST,
            high=HIGHEST,
        )
        for at, name in enumerate(named)
    }
    means = [sum(probe.values()) / len(probe) for probe, _ in scored]
    sums = np.array(
        [
            [np.bincount(codes, np.nan_to_num(values[:, at])), np.bincount(codes, there[:, at].astype(float))]
            for at in range(len(named))
        ]
    )
    groups = np.concatenate([sums[:, 0].T, sums[:, 1].T], axis=1)
    width = len(named)
    found = resampled_interval(groups, lambda drawn: (drawn[:, :width] / drawn[:, width:]).mean(axis=1), seed=seed)
    overall = Estimate(
        float(np.mean([each.value for each in dimensions.values()])), n=len(scored), clusters=len(groups)
    )
    if found is not None:
        overall.low, overall.high, overall.method = max(LOWEST, found[0]), min(HIGHEST, found[1]), "cluster bootstrap"
    return RubricLevel(dimensions, overall, estimate(means, [int(c) for c in codes], low=LOWEST, high=HIGHEST))


LARGEST_FOLD = 8.0  # counted at most, if all curves reach it
SHARE = 0.95  # of full history's quality, for the fold up to which a compressor is as good as harmless
_RESAMPLES = 2_000  # each one is a curve of its own


@dataclass(frozen=True, slots=True)
class Sized:
    """A system at one size: scores, and tokens before and after, of the same probes in the same order for all sizes of
    all curves.
    """

    system: str
    scores: Sequence[float]
    before: Sequence[float]
    after: Sequence[float]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """`fold` = Σ before / Σ after (1 = nothing taken away), `keep` = 1 / fold."""

    system: str
    fold: float
    keep: float
    quality: float


@dataclass(frozen=True, slots=True)
class RateCurve:
    """`aurq`: area under quality over log2(fold) from 1 to `up_to`, relative to full history's quality all the way (1 =
    no loss). `fold_at_95`: largest fold before which the curve never falls below 95 % of it. `reached`: it fell below
    within what was measured.
    """

    name: str
    points: list[CurvePoint]
    up_to: float
    aurq: Estimate | None
    fold_at_95: Estimate | None
    reached: bool
    why: str = ""


def family_of(name: str) -> str:
    """Name of a system without its size: `bm25:k1=2` of `bm25:keep=0.1,k1=2`. Systems of one family make one curve."""
    base, _, options = name.partition(":")
    if not options or "=" not in options:
        return name
    kept = [
        each
        for each in options.split(",")
        if each.partition("=")[0].strip() not in ("keep", "budget", "tokens", "max_tokens", "n")
    ]
    return ":".join([base, *([",".join(kept)] if kept else [])])


def rate_curves(
    families: Mapping[str, Sequence[Sized]], full: Sequence[float], clusters: Sequence[Hashable], *, seed: int = 0
) -> list[RateCurve]:
    """The curves of families with two sizes or more; each begins with full history at fold 1. Areas go up to the fold
    that all reach.
    """
    several = {name: sizes for name, sizes in families.items() if len(sizes) > 1}
    if not several or not len(full):
        return []
    codes = sorted_codes(clusters, len(full))
    up_to = min(LARGEST_FOLD, *(max(_fold(size) for size in sizes) for sizes in several.values()))
    return [_curve(name, sizes, full, codes, up_to, seed) for name, sizes in several.items()]


def bd_rates(families: Mapping[str, Sequence[Sized]]) -> dict[tuple[str, str], float]:
    """(one, other) → how many percent more or fewer tokens the other needs at equal quality; of families with four
    sizes or more whose qualities overlap.
    """
    found = {}
    wide = [(name, sizes) for name, sizes in families.items() if len(sizes) >= 4]
    for at, (one, first) in enumerate(wide):
        for other, second in wide[at + 1 :]:
            try:
                found[one, other] = bd_rate(*_rated(first), *_rated(second))
            except ValueError:
                continue
    return found


def _rated(sizes: Sequence[Sized]) -> tuple[list[float], list[float]]:
    return [math.fsum(size.after) for size in sizes], [math.fsum(size.scores) / len(size.scores) for size in sizes]


def _fold(size: Sized) -> float:
    after = math.fsum(size.after)
    return math.fsum(size.before) / after if after else math.inf


def _curve(
    name: str, sizes: Sequence[Sized], full: Sequence[float], codes: NDArray[Any], up_to: float, seed: int
) -> RateCurve:

    columns = [np.asarray(each, dtype=float) for size in sizes for each in (size.scores, size.before, size.after)]
    groups = cluster_sums(codes, np.asarray(full, dtype=float), np.ones(len(full)), *columns)
    totals = groups.sum(axis=0)
    drawn = [
        CurvePoint(size.system, _fold(size), 1 / _fold(size), math.fsum(size.scores) / len(size.scores))
        for size in sizes
    ]
    points = sorted(drawn, key=lambda point: point.fold)
    area, edge = _measures(totals, up_to)
    if math.isnan(area):
        return RateCurve(
            name, points, up_to, None, None, False, "no curve: the sizes do not differ, or full history scores 0"
        )
    known = []
    for at, value in enumerate((area, edge)):

        def measured(drawn: NDArray[Any], at: int = at) -> NDArray[Any]:
            return np.array([_measures(one, up_to)[at] for one in drawn])

        low, high = resampled_interval(groups, measured, resamples=_RESAMPLES, seed=seed) or (None, None)
        method = "" if low is None else "cluster bootstrap"
        known.append(Estimate(float(value), low, high, n=len(full), clusters=len(groups), method=method))
    base = float(totals[0] / totals[1])
    return RateCurve(name, points, up_to, known[0], known[1], any(point.quality < SHARE * base for point in points))


def _measures(sums: NDArray[Any], up_to: float) -> tuple[float, float]:
    """Area and fold at 95 % of one set of sums: full's scores, probes, then scores, before, after of each size. NaN
    where undefined.
    """
    base = sums[0] / sums[1]
    found = {1.0: base}
    for at in range(2, len(sums), 3):
        score, before, after = sums[at : at + 3]
        if after > 0 and before > after:
            found[before / after] = score / sums[1]
    folds = sorted(found)
    if len(folds) < 2 or base <= 0:
        return math.nan, math.nan
    qualities = [found[fold] for fold in folds]
    reach = min(up_to, folds[-1])
    return aurq(folds, qualities, base, up_to=reach), fold_at(SHARE, folds, qualities, base) or 1.0


@dataclass(frozen=True, slots=True)
class AtPrice:
    """A system beside what its price buys without it: the whole context for a `share` of the examples, none for the
    others. `gains`: for each example what the system's mean score less the mixture's rests on; their mean is that
    difference, their spread that of it, the mixture's share being estimated too.
    """

    share: float
    mixed: NDArray[np.float64]
    gains: NDArray[np.float64]


def at_price(scores: Sequence[ArrayLike], costs: Sequence[ArrayLike]) -> AtPrice | None:
    """Scores and costs of a system, of the whole context and of none, each of the same examples in the same order.

    A mixture of two arms lies on the line between them, whatever the examples are; its share is (c − c₀) / (c₁ − c₀).
    The gains are the influence values of the difference (delta method). `None` where the whole context costs no more
    than none, or the system no more than none. A system that is dearer than the whole context is held against that.
    """
    (system, full, none), (paid, most, least) = (
        [np.asarray(each, dtype=float) for each in three] for three in (scores, costs)
    )
    spent, whole = paid - least, most - least
    if not len(system) or whole.mean() <= 0 or spent.mean() <= 0:
        return None
    share = min(1.0, float(spent.mean() / whole.mean()))
    mixed = none + share * (full - none)
    moved = (spent - share * whole) / whole.mean() if share < 1 else 0.0
    return AtPrice(share, mixed, system - mixed - (full.mean() - none.mean()) * moved)
