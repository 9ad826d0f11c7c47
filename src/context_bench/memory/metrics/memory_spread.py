"""Spread of repeated runs of a memory, and the stage at which it arises."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, score

METRICS = {"memory_spread": "MemorySpread"}
MEASURES = {
    "spread_trials": {"unit": "count", "place": "memory"},
    "spread_*": {"unit": "score", "better": "lower", "place": "memory"},
    "same_hits same_answers": {"unit": "share", "better": "higher", "place": "memory"},
}

_FOUND = "evidence_recall"


@dataclass
class MemorySpread(OnePass):
    """Standard deviations between trials; nothing with fewer than two of them.

    `spread_found`: of the mean share of evidence found, which is ingest and search. `spread_score`: of the mean
    `score_field`, which is everything. Of that, `spread_same_hits` is what is left where the reader was shown the same,
    so the reader's part and the judge's, and `spread_same_answer` what is left where it said the same, the judge's
    alone: the root of the mean variance of a question around the mean of its like trials, over the root of the number
    of questions. `same_hits`, `same_answers`: the share of questions with the same ones in all trials. `spread_trials`:
    how many there were.
    """

    score_field: str = "f1"
    name: ClassVar[str] = "memory_spread"

    def _fold(self) -> Fold:
        questions: defaultdict[Hashable, list[_Trial]] = defaultdict(list)
        while (row := (yield)) is not None:
            if not row.failed:
                hits, answer = (row.metadata.get(name) for name in ("hits_key", "answer_key"))
                trial = _Trial(row.trial, score(row, self.score_field), score(row, _FOUND), hits, answer)
                questions[row.dataset, str(row.example_id)].append(trial)
        repeated = [trials for trials in questions.values() if len(trials) > 1]
        numbers = {one.trial for trials in repeated for one in trials}
        if len(numbers) < 2:
            return {}
        spreads: dict[str, float | None] = {
            "spread_trials": float(len(numbers)),
            "spread_found": _between([[(one.trial, one.found) for one in trials] for trials in repeated]),
            "spread_score": _between([[(one.trial, one.value) for one in trials] for trials in repeated]),
            "spread_same_hits": _left(repeated, lambda one: one.hits),
            "spread_same_answer": _left(repeated, lambda one: one.answer),
            "same_hits": _alike(repeated, lambda one: one.hits),
            "same_answers": _alike(repeated, lambda one: one.answer),
        }
        return {name: value for name, value in spreads.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Trial:
    """Result of one trial on one question."""

    trial: int
    value: float | None
    found: float | None
    hits: str | None
    answer: str | None


def _between(questions: Sequence[Sequence[tuple[int, float | None]]]) -> float | None:
    """The standard deviation of the trials' means, over questions that have a value in every trial."""
    numbers = sorted({trial for each in questions for trial, _ in each})
    full = [
        dict(each) for each in questions if len(each) == len(numbers) and all(value is not None for _, value in each)
    ]
    if not full:
        return None
    means = [math.fsum(each[trial] or 0.0 for each in full) / len(full) for trial in numbers]
    return math.sqrt(_squares(means) / (len(means) - 1))


def _left(questions: Sequence[Sequence[_Trial]], same: Callable[[_Trial], str | None]) -> float | None:
    """The part of the mean's standard deviation that comes from questions whose trials were alike up to here."""
    squares, freedom = 0.0, 0
    for each in questions:
        groups: dict[str, list[float]] = {}
        for one in each:
            if (key := same(one)) is not None and one.value is not None:
                groups.setdefault(key, []).append(one.value)
        for values in groups.values():
            squares += _squares(values)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom / len(questions)) if freedom else None


def _alike(questions: Sequence[Sequence[_Trial]], same: Callable[[_Trial], str | None]) -> float | None:
    known = [{same(one) for one in each} for each in questions if all(same(one) is not None for one in each)]
    return sum(len(each) == 1 for each in known) / len(known) if known else None


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
