"""The chance that one of k tries passes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import ClassVar

from context_bench.core.errors import BadInput
from context_bench.core.records import EvalRow
from context_bench.core.rows import score, tallied


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 − C(n−c, k) / C(n, k): without bias, the chance that k of n tries, c of which passed, hold one that passed
    (Chen et al. 2021).

    Raises `ValueError` unless 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k is defined for 0 ≤ c ≤ n and 1 ≤ k ≤ n, not for n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


@dataclass
class PassAtK:
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

    def tally(self) -> _Tries:
        """For computing in one pass, without holding rows."""
        return _Tries(self.score_field, self.ks)

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


class _Tries:
    """Tries and passes of each example."""

    def __init__(self, field: str, ks: tuple[int, ...]) -> None:
        self.field, self.ks = field, ks
        self.counts: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, row: EvalRow) -> None:
        value = score(row, self.field)
        if value is not None:
            key = (row.dataset, f"{type(row.example_id).__name__}:{row.example_id}")  # 1 and "1" are two examples
            n, c = self.counts.get(key, (0, 0))
            self.counts[key] = (n + 1, c + (value >= 1.0))

    def result(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for k in self.ks:
            values = [pass_at_k(n, c, k) for n, c in self.counts.values() if n >= k]
            if values:
                found[f"pass_at_{k}"] = sum(values) / len(values)
        return found
