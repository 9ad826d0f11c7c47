"""What is asked of two arms, and whether the run could have shown a loss."""

from __future__ import annotations

from dataclasses import dataclass

from context_bench.stats.verdict.evidence import LEVEL, Evidence


@dataclass(frozen=True, slots=True)
class Assay:
    """Would this run have shown a loss? `arm`: the known-bad arm that was shown to lose more than the margin; `tried`: arms there were."""

    arm: str | None = None
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison that wants a verdict. `calibrated=False`: a judge's score that nobody has checked against people.

    `chosen_after`: what was chosen when answers were there already: "margin", "score", "margin and score". `unwinnable`: not even the
    ceiling was told from the baseline, which the run says once.
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
    unwinnable: bool = False


def shows_inferior(evidence: Evidence) -> bool:
    """A loss of more than the margin is shown."""
    return evidence.p_within is not None and evidence.p_within < LEVEL


def hidden_by_failures(evidence: Evidence) -> bool:
    """Only the failures stand between this evidence and "the loss is ruled out"."""
    return failures_decide(evidence) and evidence.p_loss is not None and evidence.p_loss < LEVEL


def failures_decide(evidence: Evidence) -> bool:
    """The system's failures, counted as wrong, would be a loss beyond the margin: what it did answer proves nothing then."""
    counted = evidence.counting_failures
    return counted is not None and counted < -(evidence.margin or 0.0)
