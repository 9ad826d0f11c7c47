"""Metrics of a memory's answers: declining as a decision, cost and time, and the spread of repeated runs.

Declining is right where nothing can be known, wrong where it can. Costs are context, seconds and money; percentiles are
of single calls. Spread is told apart by the stage at which it arises.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import Fold, OnePass, cost_usd, score
from context_bench.stats.distributions import percentile

METRICS = {
    "abstention": "AbstentionRates",
    "memory_cost": "MemoryCost",
    "memory_spread": "MemorySpread",
}
MEASURES = {
    "abstention_precision abstention_recall abstention_f1": {"unit": "score", "better": "higher", "place": "memory"},
    "coverage answered_accuracy": {"unit": "score", "better": "higher", "place": "memory"},
    "abstention_f1_always": {"unit": "score", "place": "memory"},
    "retrieved_tokens tokens_per_fact_used": {"unit": "tokens", "better": "lower", "place": "memory"},
    "context_share": {"unit": "share", "better": "lower", "place": "memory"},
    "facts_used": {"unit": "count", "better": "higher", "place": "memory"},
    "query_usd_per_fact_used": {"unit": "usd", "better": "lower", "place": "memory"},
    "score_per_1k_tokens": {"unit": "number", "better": "higher", "place": "memory"},
    "search_n search_first_n answer_n overhead_n": {"unit": "count", "place": "memory"},
    "search_p* search_first_p* answer_p* overhead_p*": {"unit": "seconds", "better": "lower", "place": "memory"},
    "spread_trials": {"unit": "count", "place": "memory"},
    "spread_*": {"unit": "score", "better": "lower", "place": "memory"},
    "same_hits same_answers": {"unit": "share", "better": "higher", "place": "memory"},
    "items stored bytes bytes_per_item": {"unit": "count", "place": ""},
    "ingest_seconds_per_item ingest_first ingest_p*": {"unit": "seconds", "place": ""},
}


@dataclass
class AbstentionRates(OnePass):
    """`abstention_precision`, `abstention_recall`, `abstention_f1` with unanswerable questions as positives, `coverage`
    (share of answerable questions that were answered), `answered_accuracy` (mean of `score_field` over those), and
    `abstention_f1_always`: the F1 of declining every question, which a system has to pass.

    Reads the scores of the evaluator `abstention`; `{}` without them, and no rate that cannot be said (no unanswerable
    question, say).
    """

    score_field: str = "f1"
    name: ClassVar[str] = "abstention"

    def _fold(self) -> Fold:
        answerable, unanswerable = [0, 0], [0, 0]  # answered, declined
        right, judged = 0.0, 0
        while (row := (yield)) is not None:
            needless, rightly = score(row, "needless_abstention"), score(row, "abstention_recall")
            if rightly is not None:
                unanswerable[rightly > 0] += 1
            elif needless is not None:
                answerable[needless > 0] += 1
                value = score(row, self.score_field)
                if needless == 0 and value is not None:
                    right += value
                    judged += 1
        known, unknown, rightly_declined = sum(answerable), sum(unanswerable), unanswerable[1]
        declined = answerable[1] + rightly_declined
        rates: dict[str, float] = {}
        if declined:
            rates["abstention_precision"] = rightly_declined / declined
        if unknown:
            rates["abstention_recall"] = rightly_declined / unknown
            rates["abstention_f1"] = 2 * rightly_declined / (declined + unknown)
            rates["abstention_f1_always"] = 2 * unknown / (known + 2 * unknown)
        if known:
            rates["coverage"] = answerable[0] / known
        if judged:
            rates["answered_accuracy"] = right / judged
        return rates


_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
_MEANS = ("retrieved_tokens", "context_share")
_TIMES = ("search", "search_first", "answer", "overhead")


@dataclass
class MemoryCost(OnePass):
    """`retrieved_tokens` and `context_share` (means); `search_p50`, `_p95`, `_p99` and `answer_…` in seconds of single
    calls, with `search_n`; `search_first_…` the same of each haystack's first search, which the others
    leave out; `overhead_…` of what this tool itself took for a question, which is in neither. `score_per_1k_tokens`:
    `score_field` summed over the tokens found, in thousands.

    `facts_used`: items of evidence found, of questions answered with at least `threshold` in `score_field`;
    `tokens_per_fact_used` and `query_usd_per_fact_used`: what all questions together took for each (money without
    set-ups, and only if every answered row has a price). Reads the scores of the evaluators `memory_use` and
    `retrieval`; what they did not tell is absent.
    """

    score_field: str = "f1"
    threshold: float = 0.7
    name: ClassVar[str] = "memory_cost"

    def _fold(self) -> Fold:
        values = {name: array("d") for name in (*_MEANS, *_TIMES)}
        judged = judged_tokens = cost = 0.0  # the sum of the score, of rows that say how much was found; and of that
        facts: float | None = None
        unpriced, searched = 0, set[Hashable]()
        while (row := (yield)) is not None:
            tokens, judgement = score(row, "retrieved_tokens"), score(row, self.score_field)
            spent = {
                "retrieved_tokens": tokens,
                "context_share": score(row, "context_share"),
                "answer": score(row, "answer_seconds"),
                "overhead": score(row, "overhead_seconds"),
            }
            if (seconds := score(row, "search_seconds")) is not None:
                spent["search_first" if is_first(row, searched) else "search"] = seconds
            for name, value in spent.items():
                if value is not None:
                    values[name].append(value)
            if judgement is not None and tokens is not None:
                judged += judgement
                judged_tokens += tokens
            if (found := score(row, "evidence_found")) is not None:
                facts = (facts or 0.0) + (found if (judgement or 0.0) >= self.threshold else 0.0)
            if (paid := cost_usd(row)) is not None:
                cost += paid
            elif not row.failed:
                unpriced += 1
        numbers = {name: math.fsum(values[name]) / len(values[name]) for name in _MEANS if values[name]}
        if judged_tokens:
            numbers["score_per_1k_tokens"] = 1000 * judged / judged_tokens
        for name in _TIMES:
            if ordered := sorted(values[name]):
                numbers |= {f"{name}_{label}": percentile(ordered, share) for label, share in _SHARES}
                numbers[f"{name}_n"] = float(len(ordered))
        if facts is not None:
            numbers["facts_used"] = facts
        if facts and values["retrieved_tokens"]:
            numbers["tokens_per_fact_used"] = math.fsum(values["retrieved_tokens"]) / facts
        if facts and not unpriced:
            numbers["query_usd_per_fact_used"] = cost / facts
        return numbers


def is_first(row: EvalRow, searched: set[Hashable]) -> bool:
    """True for the first search of a haystack, which may have to load things. `searched`: those before, kept here."""
    haystack = (row.dataset, row.group if row.group is not None else row.example_id, row.trial)
    seen = haystack in searched
    searched.add(haystack)
    return not seen


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
