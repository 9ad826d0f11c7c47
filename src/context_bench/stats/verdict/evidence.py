"""Evidence on one metric of two arms: the question, difference, interval, and the examples that would decide.

Also the ceiling: if the best possible arm cannot be told from the baseline, the run says nothing of systems in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import LazyModule
from context_bench.stats.bootstrap import bootstrap_mean
from context_bench.stats.distributions import quantile, upper_tail
from context_bench.stats.intervals import Bounded, bounded, least_clusters
from context_bench.stats.means import MIN_CLUSTERS, codes_of, mean_se
from context_bench.stats.verdict.forecast import ExamplesNeeded, forecast, of_spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from context_bench.stats.agreement import Corrected
else:
    np = LazyModule("numpy")

LARGEST_DEFAULT_MARGIN = 0.02
SHARE_OF_WHAT_CAN_BE_LOST = 0.1
LEVEL = 0.05
#: Mean of the baseline from which hardly a cluster can gain much, so that a loss is tested by CR2 (`stats.means`).
LITTLE_TO_GAIN = 0.8


def default_margin(full: float | None = None, none: float | None = None) -> float:
    """The margin when none was given: 2 points, or a tenth of what the context is worth (full − none) if that is less;
    never below 0.
    """
    if full is None or none is None:
        return LARGEST_DEFAULT_MARGIN
    return min(LARGEST_DEFAULT_MARGIN, max(0.0, SHARE_OF_WHAT_CAN_BE_LOST * (full - none)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of paired scores. `difference` = system − baseline; `low`, `high`: 95 % interval, `None` below 6
    clusters.

    `p_loss`: H0 "the loss is the margin or more" (small = ruled out); `p_within`: H0 "the loss is the margin or less"
    (small = a larger loss is shown); `p_gain`: two-sided, against no difference. `bound`: one-sided 95 % lower bound.
    `changed`: pairs that differ. `failed`: examples that only the baseline answered, and `counting_failures` the
    difference if they count as wrong. `in_points`: scores lie in [0, 1] and are printed as points of 100. `forecast()`:
    the examples that would decide. `labels`: examples that people rated on both sides, where the difference is theirs
    and not a judge's. `least_clusters`: fewer of them, where each holds several examples, never rule the margin out,
    since none that is lost as a whole need be among them.
    """

    n: int
    clusters: int
    excluded: int
    changed: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    margin: float | None = None
    p_loss: float | None = None
    p_within: float | None = None
    p_gain: float | None = None
    forecast: Callable[[], ExamplesNeeded] | None = field(default=None, compare=False, repr=False)
    failed: int = 0
    counting_failures: float | None = None
    in_points: bool = True
    method: str = ""
    labels: int | None = None
    least_clusters: int | None = None

    @property
    def n_needed(self) -> int | None:
        """Examples for an 80 % chance of a decision; `None` where no number can be named."""
        return None if self.forecast is None else self.forecast().n

    @property
    def equal_assumed(self) -> bool:
        """True if `n_needed` takes the two for truly equal."""
        return self.forecast is None or not self.forecast().as_seen


def weigh(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    *,
    margin: float | None,
    excluded: int = 0,
    lost: Sequence[float] = (),
    noise: NDArray[Any] | None = None,
    seed: int = 0,
) -> Evidence:
    """Gather the evidence of paired scores (same examples, same order).

    `excluded`: pairs left out because one side failed; `lost`: the baseline's scores on those where only the system
    failed. `noise`: differences between two equal arms, by which forecasts go. Scores in [0, 1] are compared by the
    score bound of `stats.bounded` (for 0/1 scores: Tango's); others by Student's t and bootstrap-t.
    """
    first, second = np.asarray(system, dtype=float), np.asarray(baseline, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"pairs are needed: {len(first)} scores of the system, {len(second)} of the baseline")
    if not len(first):
        return Evidence(0, 0, excluded, 0, margin=margin)
    both = np.concatenate([first, second, np.asarray(lost, dtype=float)])
    codes = codes_of(clusters, len(first))
    groups, d = int(codes.max()) + 1, first - second
    in_range = bool(both.min() >= 0 and both.max() <= 1)
    start = Evidence(len(d), groups, excluded, int((d != 0).sum()), float(d.mean()), margin=margin, failed=len(lost))
    if len(lost) and in_range:
        start = replace(start, counting_failures=float(d.sum() - sum(lost)) / (len(d) + len(lost)))
    if groups < MIN_CLUSTERS:
        return replace(start, in_points=in_range)
    if in_range:
        ternary = bool(np.isin(both, (0.0, 1.0)).all())
        near_ceiling = bool(second.mean() >= LITTLE_TO_GAIN)
        gathered = bounded(d, codes, low=-1.0, high=1.0, guarded=True, little_to_gain=near_ceiling)
        known = _bounded_evidence(start, gathered, "Tango" if ternary else "score bound")
        if known.p_loss is None or margin is None:
            return known
        ahead = partial(forecast, gathered, d, codes, margin, noise=noise, refuted=_loss_shown(known))
        return replace(known, forecast=cache(ahead))
    return _free_evidence(start, d, codes, seed)


def as_people_rate(start: Evidence, gap: Corrected, labels: int) -> Evidence:
    """The evidence of judged scores, with the difference that people would see instead of the judge's.

    `gap`: the prediction-powered paired difference (`stats.agreement.labelled_mean`); `labels`: examples of which
    people rated both answers. Without spread in what they rated no interval can be given, and the judge's stands. No
    number of examples is forecast, since labels are what is missing.
    """
    if start.clusters < MIN_CLUSTERS or gap.se == 0:
        return start
    low, high = gap.interval()
    evidence = replace(
        start,
        difference=gap.value,
        low=low,
        high=high,
        bound=gap.interval(1 - 2 * LEVEL)[0],
        p_gain=min(1.0, 2 * min(gap.p_above(0.0), gap.p_below(0.0))),
        p_loss=None,
        p_within=None,
        forecast=None,
        counting_failures=None,
        method="prediction-powered",
        labels=labels,
    )
    if start.margin is None or start.margin <= 0:
        return evidence
    return replace(evidence, p_loss=gap.p_above(-start.margin), p_within=gap.p_below(-start.margin))


def _bounded_evidence(start: Evidence, gathered: Bounded, method: str) -> Evidence:
    low, high = gathered.interval()
    tails = min(gathered.p_above(0.0), gathered.p_below(0.0))
    told = replace(
        start, low=low, high=high, bound=gathered.harmless_bound(1 - LEVEL), p_gain=min(1.0, 2 * tails), method=method
    )
    if start.margin is None or start.margin <= 0:
        return told
    return replace(
        told,
        p_loss=gathered.p_harmless(start.margin),
        p_within=gathered.p_below(-start.margin),
        least_clusters=least_clusters(start.margin) if gathered.lost is not None and start.margin < 1 else None,
    )


def _loss_shown(evidence: Evidence) -> bool:
    """True if the interval lies below no difference."""
    return evidence.high is not None and evidence.high < 0


def _free_evidence(start: Evidence, d: Any, codes: Any, seed: int) -> Evidence:

    interval, found = bootstrap_mean(d, codes, seed=seed), mean_se(d, codes)
    if interval is None or found.se is None:
        return replace(start, in_points=False)
    df = float(found.clusters - 1)
    told = replace(
        start,
        low=interval[0],
        high=interval[1],
        bound=found.mean - quantile(1 - LEVEL, df) * found.se,
        p_gain=2 * upper_tail(abs(found.mean) / found.se, df),
        in_points=False,
        method="bootstrap-t",
    )
    if start.margin is None or start.margin <= 0:
        return told
    distance = found.mean + start.margin
    above = upper_tail(distance / found.se, df)
    ahead = partial(of_spread, found.se**2 * found.n, found.n, distance, start.margin, refuted=_loss_shown(told))
    return replace(told, p_loss=above, p_within=1 - above, forecast=cache(ahead))


#: Kinds of arms: what has exactly the evidence, and what has everything that was sent.
CEILINGS = ("oracle", "full")
_CHANCE = 0.8  # of showing the difference
_MOST = 64  # times as many examples that are thought of
_BEGINS = "This run could not tell the ceiling"


def distinguishable(ceiling: Evidence) -> bool:
    """True if the ceiling is shown to be above the baseline."""
    return ceiling.p_gain is not None and ceiling.p_gain < LEVEL and (ceiling.difference or 0.0) > 0


def is_headline(note: str) -> bool:
    """True if a note is the one sentence of this module, which stands above everything else."""
    return note.startswith(_BEGINS)


def could_not_win(
    name: str,
    baseline: str,
    evidence: Evidence,
    differences: NDArray[Any] | Sequence[float],
    clusters: NDArray[Any] | Sequence[Any],
    *,
    what: str,
    by_cluster: bool,
) -> str:
    """The sentence. `what`: how a system is called here; `by_cluster`: `-n` counts clusters (conversations, sessions),
    not examples.
    """
    said = f"{_BEGINS} ({name}) from {baseline}: no {what} could have won."
    if not evidence.n or (evidence.difference or 0.0) <= 0:
        return (
            f"{said} On these examples {baseline} leaves nothing to gain, so more of them would not help: "
            "harder ones would."
        )
    times = _times_needed(differences, clusters)
    if times is None:
        return f"{said} It would take more than {_MOST:,} times as many examples: harder ones would tell more."
    return f"{said} Ask again with -n {times * (evidence.clusters if by_cluster else evidence.n):,}."


def _times_needed(differences: NDArray[Any] | Sequence[float], clusters: NDArray[Any] | Sequence[Any]) -> int | None:
    """Factor on examples and clusters, like these, that gives an 80 % chance to show the difference seen.

    Asked of the very test that decides: far in the tails of [-1, 1] it wants more than the normal approximation does.
    """
    values = np.asarray(differences, dtype=float)
    codes = codes_of(clusters, len(values))
    wanted = upper_tail(quantile(1 - LEVEL / 2) + quantile(_CHANCE))

    def shown(times: int) -> bool:
        apart = np.concatenate([codes + copy * (codes.max() + 1) for copy in range(times)])
        low, high = min(-1.0, float(values.min())), max(1.0, float(values.max()))
        return bool(bounded(np.tile(values, times), apart, low=low, high=high, guarded=True).p_above(0.0) <= wanted)

    reached = next((times for times in (2, 4, 8, 16, 32, _MOST) if shown(times)), None)
    if reached is None:
        return None
    below = reached // 2
    while reached - below > 1:
        middle = (reached + below) // 2
        below, reached = (below, middle) if shown(middle) else (middle, reached)
    return reached


@dataclass(frozen=True, slots=True)
class Assay:
    """Would this run have shown a loss? `arm`: the known-bad arm that was shown to lose more than the margin; `tried`:
    arms there were.
    """

    arm: str | None = None
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictQuestion:
    """One comparison that wants a verdict. `calibrated=False`: a judge's score that nobody has checked against people.

    `chosen_after`: what was chosen when answers were there already: "margin", "score", "margin and score".
    `judged`: the score is a model's opinion. `unwinnable`: not even the ceiling was told from the baseline, which the
    run says once.
    """

    system: str
    baseline: str
    metric: str
    evidence: Evidence
    assay: Assay = Assay()
    dataset: str | None = None
    shape: str | None = None
    calibrated: bool = True
    judged: bool = False
    chosen_after: str = ""
    qa_type: str | None = None
    unwinnable: bool = False


def shows_inferior(evidence: Evidence) -> bool:
    """A loss of more than the margin is shown."""
    return evidence.p_within is not None and evidence.p_within < LEVEL


def hidden_by_failures(evidence: Evidence) -> bool:
    """Only the failures stand between this evidence and "the loss is ruled out"."""
    return failures_decide(evidence) and evidence.p_loss is not None and evidence.p_loss < LEVEL


def failures_decide(evidence: Evidence) -> bool:
    """The system's failures, counted as wrong, would be a loss beyond the margin: what it did answer proves nothing
    then.
    """
    counted = evidence.counting_failures
    return counted is not None and counted < -(evidence.margin or 0.0)
