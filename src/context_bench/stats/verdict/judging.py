"""From evidence to verdicts, corrected over the family of questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from context_bench.core.records import Comparison, Verdict
from context_bench.stats.verdict.evidence import LEVEL, weigh
from context_bench.stats.verdict.questions import Assay, Question, failures_decide, shows_inferior
from context_bench.stats.verdict.sentences import sentence, times


def judge(questions: Sequence[Question]) -> list[Comparison]:
    """Verdicts on one family of questions (systems, datasets, or both); p-values are Holm-corrected within the family.

    `Comparison.p` belongs to the verdict: of "no difference" for `better`, of "the loss is within the margin" for `inferior`, else of
    "the loss is the margin or more".
    """
    from context_bench.stats.corrections import holm

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
        sentence=sentence(question, verdict, family),
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
    if failures_decide(evidence):
        return "undecided"
    if p_gain < LEVEL and (evidence.difference or 0) > 0:
        return "better"
    if p_loss < LEVEL:
        return "non-inferior" if question.assay.arm else "insensitive"
    return "undecided"
