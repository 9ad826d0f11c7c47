"""The mean of one score, the share of rows that pass, the chance that one of k tries passes, and the text comparisons
behind many scores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import comb
from typing import ClassVar

from context_bench.core.errors import BadInput
from context_bench.core.rows import Fold, OnePass, score
from context_bench.core.text import exact_match, f1_score, normalise as normalize_answer, recall_score

__all__ = [
    "MeanScore",
    "PassRate",
    "exact_match",
    "f1_score",
    "normalize_answer",
    "recall_score",
]

METRICS = {
    "mean_score": "MeanScore",
    "pass_rate": "PassRate",
    "pass_at_k": "PassAtK",
}
MEASURES = {
    "mean_score": {"unit": "score", "better": "higher", "place": "quality"},
    "pass_rate": {"unit": "score", "better": "higher", "place": "quality"},
    "pass_at_*": {"better": "higher"},
}


@dataclass
class MeanScore(OnePass):
    """`mean_score`: mean of `score_field` over the rows that have it (0.0 if none has). Rows without it are left out,
    not counted as 0.
    """

    score_field: str = "score"
    name: ClassVar[str] = "mean_score"

    def _fold(self) -> Fold:
        total, n = 0.0, 0
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is not None:
                total += value
                n += 1
        return {"mean_score": total / n if n else 0.0}


@dataclass
class PassRate(OnePass):
    """`pass_rate`: share of the rows with `score_field` whose score is at least `threshold` (0.0 if no row has it)."""

    threshold: float = 0.7
    score_field: str = "score"
    name: ClassVar[str] = "pass_rate"

    def _fold(self) -> Fold:
        passed = n = 0
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is not None:
                passed += value >= self.threshold
                n += 1
        return {"pass_rate": passed / n if n else 0.0}


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 − C(n−c, k) / C(n, k): without bias, the chance that k of n tries, c of which passed, hold one that passed
    (Chen et al. 2021).

    Raises `ValueError` unless 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k is defined for 0 ≤ c ≤ n and 1 ≤ k ≤ n, not for n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


@dataclass
class PassAtK(OnePass):
    """`pass_at_<k>` for each k: `pass_at_k` of the trials of one example, averaged over examples.

    A trial passes if its `score_field` is 1. Trials without the score (a failed system) are no tries; examples with
    fewer than k tries are left out, and where none has k the number is absent. `k`: a number, several, or a text such
    as "1 5 10".
    """

    k: int | str | tuple[int, ...] = (1,)
    score_field: str = "pass_at_1"
    name: ClassVar[str] = "pass_at_k"

    def __post_init__(self) -> None:
        given = (
            (self.k,)
            if isinstance(self.k, int)
            else re.findall(r"-?\d+", self.k)
            if isinstance(self.k, str)
            else tuple(self.k)
        )
        found = tuple(sorted({int(one) for one in given}))
        if not found or found[0] < 1:
            raise BadInput(f"PassAtK: k={self.k!r}; expected whole numbers from 1, such as (1, 5)")
        self.k = self.ks = found

    def _fold(self) -> Fold:
        tries: dict[tuple[str, str], tuple[int, int]] = {}  # (dataset, example) → trials with the score, passes
        while (row := (yield)) is not None:
            value = score(row, self.score_field)
            if value is not None:
                key = (row.dataset, f"{type(row.example_id).__name__}:{row.example_id}")  # 1 and "1" are two examples
                n, c = tries.get(key, (0, 0))
                tries[key] = (n + 1, c + (value >= 1.0))
        values = {k: [pass_at_k(n, c, k) for n, c in tries.values() if n >= k] for k in self.ks}
        return {f"pass_at_{k}": sum(each) / len(each) for k, each in values.items() if each}
