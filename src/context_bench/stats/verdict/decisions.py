"""Verdicts from evidence, corrected over the family of questions, and their sentences with the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from context_bench.core.records import Comparison, Verdict
from context_bench.stats.means import MIN_CLUSTERS, ROUGH_BELOW
from context_bench.stats.tests import holm
from context_bench.stats.verdict.evidence import (
    LEVEL,
    Assay,
    Evidence,
    VerdictQuestion,
    failures_decide,
    hidden_by_failures,
    shows_inferior,
    weigh,
)
from context_bench.stats.verdict.forecast import MOST_TIMES

#: What the first number of an undecided verdict supposes, as its sentence says it.
IF_EQUAL = "if the two are truly equal"
#: What sentences say of clusters that are few: too few for an interval, or for a good one.
TOO_FEW, ROUGH = "too few for an interval", "Rough: only"
#: p below which the noise floor is alarming: at 5 % one sound run in 20 would be called unsafe.
ALARM = 0.001


def sentence(question: VerdictQuestion, verdict: Verdict, family: str) -> str:
    """The verdict on a question as one sentence or a few, for people. `family`: the questions it was corrected with."""
    evidence = question.evidence
    where = [f"on {question.dataset}"] if question.dataset else []
    where += [f"on questions of kind {question.qa_type}"] if question.qa_type else []
    where += [f"with {question.shape} requests"] if question.shape else []
    subject = " ".join([question.system, *where])
    if evidence.difference is None:
        return (
            f"{subject}: no verdict against {question.baseline}: no example was scored for both{_left_out(evidence)}."
        )
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
    few = _too_few_clusters(question) if verdict == "undecided" else ""
    return f"{subject}: {says(question)}{few}{_counted(question, verdict)}{_rough(evidence)}{held}{late}"


def _better(question: VerdictQuestion) -> str:
    return f"better than {question.baseline}: {_numbers(question)}."


def _inferior(question: VerdictQuestion) -> str:
    return (
        f"inferior to {question.baseline}: {_numbers(question)}; the loss is shown to exceed the margin of "
        f"{_size(question)}."
    )


def _non_inferior(question: VerdictQuestion) -> str:
    evidence = question.evidence
    loss = " A smaller loss is shown." if (evidence.high or 0) < 0 else ""
    return (
        f"non-inferior to {question.baseline}: {_numbers(question)}; a loss of {_size(question)} or more is ruled out "
        f"(one-sided 95 % bound {_amount(evidence.bound, evidence)}), and the known-bad arm {question.assay.arm!r} "
        "did show "
        f"such a loss in this run.{loss}"
    )


def _undecided(question: VerdictQuestion) -> str:
    evidence = question.evidence
    loss = f"a loss is shown, but not whether it exceeds the margin of {_size(question)}"
    neither = f"a loss of {_size(question)} is neither shown nor ruled out"
    says = loss if (evidence.high or 0) < 0 else neither
    if hidden_by_failures(evidence):
        failures = f"{times(evidence.failed, 'failure')} of {question.system}"
        counted = f"counted as wrong, {failures} would make it {_amount(evidence.counting_failures, evidence)}"
        return f"undecided against {question.baseline}: {_numbers(question)} on what both answered; {counted}."
    if question.unwinnable:
        return f"undecided against {question.baseline}: {_numbers(question)}."
    return f"undecided against {question.baseline}: {_numbers(question)}; {says}.{_ahead(question)}"


def _ahead(question: VerdictQuestion) -> str:
    """The forecast in words, with a space before it; empty where there is none."""
    evidence = question.evidence
    if evidence.forecast is None:
        return ""
    needed = evidence.forecast()
    if needed.why == "margin":
        return " No number of examples can be named: the loss seen is the margin."
    if needed.why == "chance":
        return (
            " No number of examples can be named: as many as these would usually decide if the two were truly equal, "
            "and they did not."
        )
    if needed.n is None:
        return (
            f" No number of examples can be named from {times(evidence.n, 'example')}: it may take more than "
            f"{MOST_TIMES * evidence.n:,}, and fewer than {times(needed.least or 1, 'example')} cannot rule it out."
        )
    spread = ""
    if needed.clusters is not None:
        spread = f" in {needed.clusters:,} such clusters"
    low, high = _round(needed.low), _round(needed.high)
    around = f"{low} to {high} as far as this run can tell" if low != high else ""
    if needed.as_seen:
        between = f", {around}" if around else ""
        truth = "80 % chance, the true loss being somewhere about the one seen"
        return f" About {needed.n:,} examples{spread} would decide{between} ({truth})."
    most = MOST_TIMES * evidence.n
    larger = _round(needed.if_half_lost) if (needed.if_half_lost or most) < most else f"more than {most:,}"
    between = f"; {around}" if around else ""
    return (
        f" About {needed.n:,} examples{spread} would decide {IF_EQUAL} (80 % chance{between}), "
        f"{larger} if {_half(question)} is truly lost."
    )


def _half(question: VerdictQuestion) -> str:
    margin = (question.evidence.margin or 0.0) / 2
    if not question.evidence.in_points:
        return f"{margin:.4g}"
    points = f"{100 * margin:.3g}"
    return f"{points} point{'s' * (points != '1')}"


def _round(count: int | None) -> str:
    """A number of examples to two figures: a forecast knows no more."""
    return f"{float(f'{count or 0:.2g}'):,.0f}"


def _too_few_clusters(question: VerdictQuestion) -> str:
    """The sentence on clusters that could be lost as a whole and are too few; no number of examples mends that."""
    evidence = question.evidence
    least = evidence.least_clusters
    if least is None or evidence.clusters >= least or (evidence.high or 0) < 0:
        return ""
    return (
        f" Whole clusters may be lost: {least:,} of them are the least that can rule out {_size(question)}, "
        "however many examples each holds."
    )


def _insensitive(question: VerdictQuestion) -> str:
    evidence = question.evidence
    if evidence.margin is not None and evidence.margin <= 0:
        why = "without any context the answers score as high as with all of it, so there is nothing to lose here"
    elif question.assay.tried:
        arms = " and ".join(repr(name) for name in question.assay.tried)
        why = f"no loss of {_size(question)} was seen, but neither was it with what must lose ({arms})"
    else:
        why = (
            f"no loss of {_size(question)} was seen, but this run has no arm that must lose (none, random_drop: "
            "see --controls)"
        )
    return f"insensitive against {question.baseline}: {_numbers(question)}; {why}: this model and data cannot tell."


def _no_verdict(question: VerdictQuestion) -> str:
    evidence = question.evidence
    if not question.calibrated:
        why = "an uncalibrated judge's score carries no verdict"
    elif evidence.clusters < MIN_CLUSTERS:
        few = "is" if evidence.n == 1 else "are"
        why = f"{_units(evidence)} {few} {TOO_FEW} (at least {MIN_CLUSTERS} independent ones are needed)"
    elif evidence.low is None:
        why = "all differences are equal and the score has no known range, so no interval can be given"
    else:
        why = "scores outside [0, 1] have no default margin; give one with --margin"
    return f"no verdict against {question.baseline}: {_numbers(question)}; {why}."


def _numbers(question: VerdictQuestion) -> str:
    """Difference, interval, n: the part that every sentence carries."""
    evidence = question.evidence
    interval = ""
    if evidence.low is not None:
        interval = f"95 % interval {_amount(evidence.low, evidence)} to {_amount(evidence.high, evidence)}; "
    unit = " points" if evidence.in_points else ""
    return (
        f"{_score(question)} {_amount(evidence.difference, evidence)}{unit} "
        f"({interval}{_units(evidence)}{_left_out(evidence)})"
    )


def _score(question: VerdictQuestion) -> str:
    """The score that the difference is of; a model's opinion is called one, unless people's ratings correct it."""
    if question.evidence.labels is not None:
        return f"{question.metric} as people would rate it, by {times(question.evidence.labels, 'example')} they rated,"
    return f"{question.metric}, which is the judge's score and not people's," if question.judged else question.metric


def _units(evidence: Evidence) -> str:
    examples = times(evidence.n, "example")
    return examples if evidence.clusters == evidence.n else f"{examples} in {times(evidence.clusters, 'cluster')}"


def times(count: int, word: str) -> str:
    """A count with its word, in the plural where it is due."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _left_out(evidence: Evidence) -> str:
    return f", {evidence.excluded:,} left out because one side failed" if evidence.excluded else ""


def _counted(question: VerdictQuestion, verdict: Verdict) -> str:
    evidence = question.evidence
    if evidence.counting_failures is None or (verdict == "undecided" and hidden_by_failures(evidence)):
        return ""
    failures = times(evidence.failed, "failure")
    return f" Counting {failures} of {question.system} as wrong: {_amount(evidence.counting_failures, evidence)}."


def _rough(evidence: Evidence) -> str:
    rough = evidence.low is not None and evidence.clusters < ROUGH_BELOW
    return f" {ROUGH} {times(evidence.clusters, 'cluster')}." if rough else ""


def _amount(value: float | None, evidence: Evidence) -> str:
    if value is None:
        return "unknown"
    if not evidence.in_points:
        return f"{value:+.4g}"
    shown = (
        f"{100 * value:+.2f}"
        if abs(evidence.margin or 1.0) < 0.005 or 0 < abs(value) < 0.0005
        else f"{100 * value:+.1f}"
    )
    return shown.replace("+0.0", "0.0") if float(shown) == 0 and value == 0 else shown


def _size(question: VerdictQuestion) -> str:
    margin = question.evidence.margin or 0.0
    return f"{100 * margin:.3g} points" if question.evidence.in_points else f"{margin:.4g}"


def noise_floor(
    first: str,
    second: str,
    metric: str,
    evidence: Evidence,
    shape: str | None = None,
    *,
    second_answer: bool = False,
) -> str:
    """The sentence on two arms that are the same: what differs between them is noise.

    One difference is one draw: its size says nothing of other arms, which are judged pair by pair. It is alarming only
    where equal arms would hardly ever be as far apart (`ALARM`), since every run asks. `second_answer`: the arm's
    answers are averaged with the baseline's.
    """
    if evidence.difference is None:
        return f"Noise floor: {second} and {first} share no scored example, so it is unknown."
    question = VerdictQuestion(second, first, metric, evidence, shape=shape)
    where = f" with {shape} requests" if shape else ""
    said = (
        f"Noise floor{where}: {second} is {first} again; {_numbers(question)}; {evidence.changed:,} of "
        f"{evidence.n:,} scores changed."
    )
    if evidence.p_gain is not None and evidence.p_gain < ALARM:
        return (
            f"{said} Two equal arms differ by more than chance (that happens in fewer than 1 of 1,000 sound runs): "
            "something in this run is not stable, and no verdict of it is safe."
        )
    used = f" It is used as the second answer of {first}." if second_answer else ""
    return f"{said} That is noise: so many scores change by themselves.{used} Other arms are judged pair by pair."


def judge(questions: Sequence[VerdictQuestion], *, level: float | tuple[float, float] = LEVEL) -> list[Comparison]:
    """Verdicts on one family of questions (systems, datasets, or both); p-values are Holm-corrected within the family.

    `level`: what p-values are held against; below 5 % where a run is looked at several times. A pair, if those of
    `inferior` are held against another one, which comes second.

    `Comparison.p` belongs to the verdict: of "no difference" for `better`, of "the loss is within the margin" for
    `inferior`, else of "the loss is the margin or more".
    """

    def adjusted(field: str) -> list[float]:
        raw = [getattr(question.evidence, field) for question in questions]
        held = iter(holm([p for p in raw if p is not None]))
        return [math.nan if p is None else next(held) for p in raw]

    columns = zip(questions, adjusted("p_loss"), adjusted("p_within"), adjusted("p_gain"), strict=True)
    family = _family(questions)
    levels = level if isinstance(level, tuple) else (level, level)
    return [_comparison(question, *ps, family=family, levels=levels) for question, *ps in columns]


def _family(questions: Sequence[VerdictQuestion]) -> str:
    """The family that a verdict is corrected over, in words; empty for a single question."""
    asked = [question for question in questions if question.evidence.p_gain is not None]
    if len(asked) < 2:
        return ""
    systems, datasets = len({question.system for question in asked}), len({question.dataset for question in asked})
    kinds = len({question.qa_type for question in asked})
    parts = [times(count, word) for count, word in ((systems, "system"), (datasets, "dataset")) if count > 1]
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
    """One system against one baseline on the same examples. `known_bad`: scores of the arms that must lose, by name,
    same examples.

    `margin_post_hoc`: the margin was chosen when the scores were there already; the sentence says so.
    """
    evidence = weigh(system_scores, baseline_scores, clusters, margin=margin, excluded=excluded, seed=seed)
    arms = known_bad or {}
    shown = [
        name
        for name, scores in arms.items()
        if shows_inferior(weigh(scores, baseline_scores, clusters, margin=margin, seed=seed))
    ]
    assay = Assay(shown[0] if shown else None, tuple(arms))
    return judge(
        [VerdictQuestion(system, baseline, metric, evidence, assay, chosen_after="margin" if margin_post_hoc else "")]
    )[0]


def _comparison(
    question: VerdictQuestion,
    p_loss: float,
    p_within: float,
    p_gain: float,
    *,
    family: str,
    levels: tuple[float, float],
) -> Comparison:
    evidence = question.evidence
    verdict = _verdict(question, p_loss, p_within, p_gain, levels)
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
        n_needed=evidence.n_needed if verdict == "undecided" else None,
        sentence=sentence(question, verdict, family),
        post_hoc=bool(question.chosen_after),
        qa_type=question.qa_type,
    )


def _verdict(
    question: VerdictQuestion, p_loss: float, p_within: float, p_gain: float, levels: tuple[float, float]
) -> Verdict:
    evidence, (level, level_of_a_loss) = question.evidence, levels
    if not question.calibrated or evidence.low is None or evidence.margin is None:
        return "no verdict"
    if evidence.margin <= 0:
        return "insensitive"
    if p_within < level_of_a_loss:
        return "inferior"
    if failures_decide(evidence):
        return "undecided"
    if p_gain < level and (evidence.difference or 0) > 0:
        return "better"
    if p_loss < level:
        return "non-inferior" if question.assay.arm else "insensitive"
    return "undecided"
