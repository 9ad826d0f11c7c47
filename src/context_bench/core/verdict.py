"""What may be said about a system against a baseline, and the sentence that says it.

The question is never "is there a significant difference?" but "is a loss of the margin or more ruled out, shown, or neither?", and
"would this run have shown such a loss?". One-sided tests at 5 % against the margin; "better" needs the 95 % interval above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_bench.core.records import Comparison, Verdict
from context_bench.core.stats.clusters import MIN_CLUSTERS, ROUGH_BELOW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from context_bench.core.stats.bounded import Bounded

LARGEST_DEFAULT_MARGIN = 0.02
SHARE_OF_WHAT_CAN_BE_LOST = 0.1
LEVEL = 0.05


def default_margin(full: float | None = None, none: float | None = None) -> float:
    """The margin when none was given: 2 points, or a tenth of what the context is worth (full − none) if that is less; never below 0."""
    if full is None or none is None:
        return LARGEST_DEFAULT_MARGIN
    return min(LARGEST_DEFAULT_MARGIN, max(0.0, SHARE_OF_WHAT_CAN_BE_LOST * (full - none)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What paired scores say. `difference` = system − baseline; `low`, `high`: 95 % interval, `None` below 6 clusters.

    `p_loss`: H0 "the loss is the margin or more" (small = ruled out); `p_within`: H0 "the loss is the margin or less" (small = a
    larger loss is shown); `p_gain`: two-sided, against no difference. `bound`: one-sided 95 % lower bound. `changed`: pairs that differ.
    `failed`: examples that only the baseline answered, and `counting_failures` the difference if they count as wrong.
    `in_points`: scores lie in [0, 1] and are printed as points of 100. `n_needed`: examples for an 80 % chance of a decision.
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
    n_needed: int | None = None
    equal_assumed: bool = True
    failed: int = 0
    counting_failures: float | None = None
    in_points: bool = True
    method: str = ""


def weigh(
    system: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    clusters: Sequence[Any] | NDArray[Any] | None = None,
    *,
    margin: float | None,
    excluded: int = 0,
    lost: Sequence[float] = (),
    seed: int = 0,
) -> Evidence:
    """Gather the evidence of paired scores (same examples, same order).

    `excluded`: pairs left out because one side failed; `lost`: the baseline's scores on those where only the system failed.
    Scores in [0, 1] are compared by the score bound of `stats.bounded` (for 0/1 scores: Tango's); others by Student's t and bootstrap-t.
    """
    import numpy as np

    from context_bench.core.stats.bounded import bounded
    from context_bench.core.stats.clusters import codes_of

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
        start = _with(start, counting_failures=float(d.sum() - sum(lost)) / (len(d) + len(lost)))
    if groups < MIN_CLUSTERS:
        return _with(start, in_points=in_range)
    if in_range:
        ternary = bool(np.isin(both, (0.0, 1.0)).all())
        return _bounded_evidence(start, bounded(d, codes, low=-1.0, high=1.0, guarded=True), "Tango" if ternary else "score bound")
    return _free_evidence(start, d, codes, seed)


def _with(evidence: Evidence, **changes: Any) -> Evidence:
    from dataclasses import replace

    return replace(evidence, **changes)


def _bounded_evidence(start: Evidence, gathered: Bounded, method: str) -> Evidence:
    low, high = gathered.interval()
    tails = min(gathered.p_above(0.0), gathered.p_below(0.0))
    told = _with(start, low=low, high=high, bound=gathered.lower_bound(1 - LEVEL), p_gain=min(1.0, 2 * tails), method=method)
    if start.margin is None or start.margin <= 0:
        return told
    looks_worse = gathered.mean < -start.margin
    effect = (gathered.design if looks_worse else gathered.guard or gathered.design).effect
    needed, equal = _needed(start.margin, gathered.mean, gathered.variance, effect)
    return _with(
        told,
        p_loss=gathered.p_above(-start.margin),
        p_within=gathered.p_below(-start.margin),
        n_needed=needed,
        equal_assumed=equal,
    )


def _needed(margin: float, difference: float, variance: float, effect: float) -> tuple[int, bool]:
    """Examples for a decision: if it looks worse than the margin, to show that; else to rule the loss out if the two are truly equal."""
    from context_bench.core.stats.power import n_noninferiority, n_paired

    if difference < -margin:
        return n_paired(-margin - difference, variance, alpha=2 * LEVEL, effect=effect), False
    return n_noninferiority(margin, variance, alpha=LEVEL, effect=effect), True


def _free_evidence(start: Evidence, d: Any, codes: Any, seed: int) -> Evidence:
    from context_bench.core.stats.means import bootstrap_mean, mean_se
    from context_bench.core.stats.proportions import quantile, upper_tail

    interval, found = bootstrap_mean(d, codes, seed=seed), mean_se(d, codes)
    if interval is None or found.se is None:
        return _with(start, in_points=False)
    df = float(found.clusters - 1)
    told = _with(
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
    needed, equal = _needed(start.margin, found.mean, found.se**2 * found.n, 1.0)
    above = upper_tail((found.mean + start.margin) / found.se, df)
    return _with(told, p_loss=above, p_within=1 - above, n_needed=needed, equal_assumed=equal)


@dataclass(frozen=True, slots=True)
class Assay:
    """Would this run have shown a loss? `arm`: the known-bad arm that was shown to lose more than the margin; `tried`: arms there were."""

    arm: str | None = None
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison that wants a verdict. `calibrated=False`: a judge's score that nobody has checked against people.

    `chosen_after`: what was chosen when answers were there already: "margin", "score", "margin and score".
    """

    system: str
    baseline: str
    metric: str
    evidence: Evidence
    assay: Assay = Assay()
    dataset: str | None = None
    shape: str | None = None
    calibrated: bool = True
    chosen_after: str = ""
    qa_type: str | None = None


def shows_inferior(evidence: Evidence) -> bool:
    """A loss of more than the margin is shown."""
    return evidence.p_within is not None and evidence.p_within < LEVEL


def judge(questions: Sequence[Question]) -> list[Comparison]:
    """Verdicts on one family of questions (systems, datasets, or both); p-values are Holm-corrected within the family.

    `Comparison.p` belongs to the verdict: of "no difference" for `better`, of "the loss is within the margin" for `inferior`, else of
    "the loss is the margin or more".
    """
    from context_bench.core.stats.corrections import holm

    def adjusted(field: str) -> list[float]:
        raw = [getattr(question.evidence, field) for question in questions]
        held = iter(holm([p for p in raw if p is not None]))
        return [math.nan if p is None else next(held) for p in raw]

    columns = zip(questions, adjusted("p_loss"), adjusted("p_within"), adjusted("p_gain"), strict=True)
    family = _family(questions)
    return [_comparison(question, *ps, family=family) for question, *ps in columns]


def _family(questions: Sequence[Question]) -> str:
    """What a verdict is corrected over, in words; empty for a single question."""
    asked = [question for question in questions if question.evidence.p_gain is not None]
    if len(asked) < 2:
        return ""
    systems, datasets = len({question.system for question in asked}), len({question.dataset for question in asked})
    kinds = len({question.qa_type for question in asked})
    parts = [_times(count, word) for count, word in ((systems, "system"), (datasets, "dataset")) if count > 1]
    parts += [f"{kinds:,} kinds of question"] if kinds > 1 else []
    return " and ".join(parts) if parts else f"{len(asked)} comparisons"


def compare(
    system_scores: Sequence[float],
    baseline_scores: Sequence[float],
    clusters: Sequence[Any] | None = None,
    *,
    margin: float | None,
    system: str = "system",
    baseline: str = "baseline",
    metric: str = "score",
    known_bad: dict[str, Sequence[float]] | None = None,
    excluded: int = 0,
    seed: int = 0,
    margin_post_hoc: bool = False,
) -> Comparison:
    """One system against one baseline on the same examples. `known_bad`: scores of the arms that must lose, by name, same examples.

    `margin_post_hoc`: the margin was chosen when the scores were there already; the sentence says so.
    """
    evidence = weigh(system_scores, baseline_scores, clusters, margin=margin, excluded=excluded, seed=seed)
    arms = known_bad or {}
    shown = [name for name, scores in arms.items() if shows_inferior(weigh(scores, baseline_scores, clusters, margin=margin, seed=seed))]
    assay = Assay(shown[0] if shown else None, tuple(arms))
    return judge([Question(system, baseline, metric, evidence, assay, chosen_after="margin" if margin_post_hoc else "")])[0]


def _comparison(question: Question, p_loss: float, p_within: float, p_gain: float, *, family: str) -> Comparison:
    evidence = question.evidence
    verdict = _verdict(question, p_loss, p_within, p_gain)
    needed = evidence.n_needed if verdict == "undecided" else None
    p = {"better": p_gain, "inferior": p_within}.get(verdict, p_gain if math.isnan(p_loss) else p_loss)
    return Comparison(
        system=question.system,
        baseline=question.baseline,
        metric=question.metric,
        dataset=question.dataset,
        shape=question.shape,
        difference=evidence.difference,
        low=evidence.low,
        high=evidence.high,
        p=None if math.isnan(p) else p,
        verdict=verdict,
        margin=evidence.margin,
        n=evidence.n,
        clusters=evidence.clusters,
        excluded=evidence.excluded,
        n_needed=needed,
        sentence=_sentence(question, verdict, family),
        post_hoc=bool(question.chosen_after),
        qa_type=question.qa_type,
    )


def _verdict(question: Question, p_loss: float, p_within: float, p_gain: float) -> Verdict:
    evidence = question.evidence
    if not question.calibrated or evidence.low is None or evidence.margin is None:
        return "no verdict"
    if evidence.margin <= 0:
        return "insensitive"
    if p_within < LEVEL:
        return "inferior"
    if _failures_decide(evidence):
        return "undecided"
    if p_gain < LEVEL and (evidence.difference or 0) > 0:
        return "better"
    if p_loss < LEVEL:
        return "non-inferior" if question.assay.arm else "insensitive"
    return "undecided"


def _failures_decide(evidence: Evidence) -> bool:
    """The system's failures, counted as wrong, would be a loss beyond the margin: what it did answer proves nothing then."""
    counted = evidence.counting_failures
    return counted is not None and counted < -(evidence.margin or 0.0)


def _hidden_by_failures(evidence: Evidence) -> bool:
    """Only the failures stand between this evidence and "the loss is ruled out"."""
    return _failures_decide(evidence) and evidence.p_loss is not None and evidence.p_loss < LEVEL


def _sentence(question: Question, verdict: Verdict, family: str) -> str:
    evidence = question.evidence
    where = [f"on {question.dataset}"] if question.dataset else []
    where += [f"on questions of kind {question.qa_type}"] if question.qa_type else []
    where += [f"with {question.shape} requests"] if question.shape else []
    subject = " ".join([question.system, *where])
    if evidence.difference is None:
        return f"{subject}: no verdict against {question.baseline}: no example was scored for both{_left_out(evidence)}."
    says = {
        "better": _better,
        "non-inferior": _non_inferior,
        "inferior": _inferior,
        "undecided": _undecided,
        "insensitive": _insensitive,
        "no verdict": _no_verdict,
    }[verdict]
    held = f" Holm-corrected over {family}." if family and verdict != "no verdict" else ""
    late = f" {question.chosen_after.capitalize()} chosen after the run: exploratory." if question.chosen_after else ""
    return f"{subject}: {says(question)}{_counted(question, verdict)}{_rough(evidence)}{held}{late}"


def _better(question: Question) -> str:
    return f"better than {question.baseline}: {_numbers(question)}."


def _inferior(question: Question) -> str:
    return f"inferior to {question.baseline}: {_numbers(question)}; the loss is shown to exceed the margin of {_size(question)}."


def _non_inferior(question: Question) -> str:
    evidence = question.evidence
    loss = " A smaller loss is shown." if (evidence.high or 0) < 0 else ""
    return (
        f"non-inferior to {question.baseline}: {_numbers(question)}; a loss of {_size(question)} or more is ruled out "
        f"(one-sided 95 % bound {_amount(evidence.bound, evidence)}), and the known-bad arm {question.assay.arm!r} did show "
        f"such a loss in this run.{loss}"
    )


def _undecided(question: Question) -> str:
    evidence = question.evidence
    loss = f"a loss is shown, but not whether it exceeds the margin of {_size(question)}"
    neither = f"a loss of {_size(question)} is neither shown nor ruled out"
    says = loss if (evidence.high or 0) < 0 else neither
    if _hidden_by_failures(evidence):
        failures = f"{_times(evidence.failed, 'failure')} of {question.system}"
        counted = f"counted as wrong, {failures} would make it {_amount(evidence.counting_failures, evidence)}"
        return f"undecided against {question.baseline}: {_numbers(question)} on what both answered; {counted}."
    if evidence.n_needed is None:
        return f"undecided against {question.baseline}: {_numbers(question)}; {says}."
    truth = "if the two are truly equal" if evidence.equal_assumed else "if the true loss is the one seen"
    more = evidence.n_needed if evidence.n_needed > evidence.n else evidence.n * 2
    spread = f" in {math.ceil(more * evidence.clusters / evidence.n):,} such clusters" if evidence.clusters < evidence.n else ""
    return (
        f"undecided against {question.baseline}: {_numbers(question)}; {says}. "
        f"About {more:,} examples{spread} would decide (80 % chance {truth})."
    )


def _insensitive(question: Question) -> str:
    evidence = question.evidence
    if evidence.margin is not None and evidence.margin <= 0:
        why = "without any context the answers score as high as with all of it, so there is nothing to lose here"
    elif question.assay.tried:
        arms = " and ".join(repr(name) for name in question.assay.tried)
        why = f"no loss of {_size(question)} was seen, but neither was it with what must lose ({arms})"
    else:
        why = f"no loss of {_size(question)} was seen, but this run has no arm that must lose (none, random_drop: see --controls)"
    return f"insensitive against {question.baseline}: {_numbers(question)}; {why}: this model and data cannot tell."


def _no_verdict(question: Question) -> str:
    evidence = question.evidence
    if not question.calibrated:
        why = "an uncalibrated judge's score carries no verdict"
    elif evidence.clusters < MIN_CLUSTERS:
        why = f"{_units(evidence)} are too few for an interval (at least {MIN_CLUSTERS} independent ones are needed)"
    elif evidence.low is None:
        why = "all differences are equal and the score has no known range, so no interval can be given"
    else:
        why = "scores outside [0, 1] have no default margin; give one with --margin"
    return f"no verdict against {question.baseline}: {_numbers(question)}; {why}."


def _numbers(question: Question) -> str:
    """Difference, interval, n: the part that every sentence carries."""
    evidence = question.evidence
    interval = ""
    if evidence.low is not None:
        interval = f"95 % interval {_amount(evidence.low, evidence)} to {_amount(evidence.high, evidence)}; "
    unit = " points" if evidence.in_points else ""
    return f"{question.metric} {_amount(evidence.difference, evidence)}{unit} ({interval}{_units(evidence)}{_left_out(evidence)})"


def _units(evidence: Evidence) -> str:
    examples = _times(evidence.n, "example")
    return examples if evidence.clusters == evidence.n else f"{examples} in {_times(evidence.clusters, 'cluster')}"


def _times(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _left_out(evidence: Evidence) -> str:
    return f", {evidence.excluded:,} left out because one side failed" if evidence.excluded else ""


def _counted(question: Question, verdict: Verdict) -> str:
    evidence = question.evidence
    if evidence.counting_failures is None or (verdict == "undecided" and _hidden_by_failures(evidence)):
        return ""
    failures = _times(evidence.failed, "failure")
    return f" Counting {failures} of {question.system} as wrong: {_amount(evidence.counting_failures, evidence)}."


def _rough(evidence: Evidence) -> str:
    rough = evidence.low is not None and evidence.clusters < ROUGH_BELOW
    return f" Rough: only {evidence.clusters} independent units." if rough else ""


def _amount(value: float | None, evidence: Evidence) -> str:
    if value is None:
        return "unknown"
    if not evidence.in_points:
        return f"{value:+.4g}"
    shown = f"{100 * value:+.2f}" if abs(evidence.margin or 1.0) < 0.005 or 0 < abs(value) < 0.0005 else f"{100 * value:+.1f}"
    return shown.replace("+0.0", "0.0") if float(shown) == 0 and value == 0 else shown


def _size(question: Question) -> str:
    margin = question.evidence.margin or 0.0
    return f"{100 * margin:.3g} points" if question.evidence.in_points else f"{margin:.4g}"


def noise_floor(first: str, second: str, metric: str, evidence: Evidence, shape: str | None = None) -> str:
    """The sentence on two arms that are the same: what differs between them is noise, and smaller differences elsewhere are noise too."""
    if evidence.difference is None:
        return f"Noise floor: {second} and {first} share no scored example, so it is unknown."
    question = Question(second, first, metric, evidence, shape=shape)
    where = f" with {shape} requests" if shape else ""
    said = f"Noise floor{where}: {second} is {first} again; {_numbers(question)}; {evidence.changed:,} of {evidence.n:,} scores changed."
    if evidence.p_gain is not None and evidence.p_gain < LEVEL:
        return f"{said} Two equal arms differ by more than chance: something in this run is not stable, and no verdict of it is safe."
    return f"{said} Differences of this size between other arms mean nothing."
