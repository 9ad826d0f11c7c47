"""Two answers side by side, asked in both orders: who wins, and what the order did."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Verdicts on (A, B) and on (B, A)."""

    forward: Winner
    backward: Winner

    @property
    def win(self) -> float:
        """Of A: 1 or 0 where both orders say so, else 0.5."""
        if (self.forward, self.backward) == ("first", "second"):
            return 1.0
        return 0.0 if (self.forward, self.backward) == ("second", "first") else 0.5

    @property
    def consistent(self) -> bool:
        """Whether the order made no difference."""
        return (self.forward, self.backward) in (("first", "second"), ("second", "first"), ("tie", "tie"))


@dataclass(frozen=True, slots=True)
class PairwiseSummary:
    """`win_rate` of A with its interval (`None` below 6 clusters), share of pairs judged alike in both orders (`consistency`), and
    `first_bias` = share of calls that the first of the two wins (a tie counts half) − 0.5.
    """

    n: int
    win_rate: float
    low: float | None
    high: float | None
    consistency: float
    first_bias: float


def pairwise_summary(verdicts: Sequence[PairVerdict], clusters: Sequence[Hashable] | None = None) -> PairwiseSummary | None:
    """Sum up; `clusters`: what the items were drawn with, such as their session. `None` without a verdict."""
    if not verdicts:
        return None
    from context_bench.stats.intervals import bounded
    from context_bench.stats.means import MIN_CLUSTERS

    wins = [verdict.win for verdict in verdicts]
    found = bounded(wins, clusters, low=0.0, high=1.0)
    low, high = found.interval() if found.design.clusters >= MIN_CLUSTERS else (None, None)
    calls = [said for verdict in verdicts for said in (verdict.forward, verdict.backward)]
    first = sum(1.0 if said == "first" else 0.5 if said == "tie" else 0.0 for said in calls) / len(calls)
    consistent = sum(verdict.consistent for verdict in verdicts) / len(verdicts)
    return PairwiseSummary(len(wins), sum(wins) / len(wins), low, high, consistent, first - 0.5)
