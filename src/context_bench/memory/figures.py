"""Figures of the rows and set-ups of a memory run: context, latency, cost of what was used, abstention, harm.

Rows say it in scores: those of the evaluators `memory_use`, `retrieval` and `abstention`. Percentiles are by nearest
rank, the ⌈p · n⌉-th smallest of single calls; the first search of a haystack, which may have to load things, is kept
apart.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.numbers import real
from context_bench.core.records import Estimate, EvalRow, SetupRecord
from context_bench.core.rows import cost_usd, score, standing, totals
from context_bench.stats.distributions import nearest_rank
from context_bench.stats.intervals import Scored, estimate

SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


# --- one pass over a system's rows ---


@dataclass(slots=True)
class Use:
    """Context, time and remembered facts that went into right answers. A `RowTally`."""

    score_field: str
    threshold: float
    tokens: array[float] = field(default_factory=lambda: array("d"))
    shares: array[float] = field(default_factory=lambda: array("d"))
    search: array[float] = field(default_factory=lambda: array("d"))
    search_first: array[float] = field(default_factory=lambda: array("d"))
    answer: array[float] = field(default_factory=lambda: array("d"))
    overhead: array[float] = field(default_factory=lambda: array("d"))
    judged: float = 0.0  # sum of the score, of rows that say how much was found …
    judged_tokens: float = 0.0  # … and how much that was
    facts: float = 0.0
    told: int = 0  # rows that say how much evidence was found
    cost: float = 0.0
    unpriced: int = 0
    begun: set[Hashable] = field(default_factory=set)

    def add(self, row: EvalRow) -> None:
        """Take one row in."""
        plain = (
            *(("retrieved_tokens", self.tokens), ("context_share", self.shares)),
            *(("answer_seconds", self.answer), ("overhead_seconds", self.overhead)),
        )
        for name, kept in plain:
            if (value := score(row, name)) is not None:
                kept.append(value)
        if (value := score(row, self.score_field)) is not None and (
            tokens := score(row, "retrieved_tokens")
        ) is not None:
            self.judged += value
            self.judged_tokens += tokens
        if (seconds := score(row, "search_seconds")) is not None:
            haystack = (row.dataset, row.group if row.group is not None else row.example_id, row.trial)
            (self.search if haystack in self.begun else self.search_first).append(seconds)
            self.begun.add(haystack)
        if (found := score(row, "evidence_found")) is not None:
            self.told += 1
            self.facts += found if (score(row, self.score_field) or 0.0) >= self.threshold else 0.0
        if (paid := cost_usd(row)) is not None:
            self.cost += paid
        elif not row.failed:
            self.unpriced += 1

    def result(self) -> dict[str, float]:
        """The numbers; what nobody told is absent."""
        found: dict[str, float] = {}
        if self.tokens:
            found["retrieved_tokens"] = math.fsum(self.tokens) / len(self.tokens)
        if self.shares:
            found["context_share"] = math.fsum(self.shares) / len(self.shares)
        if self.judged_tokens:
            found["score_per_1k_tokens"] = 1000 * self.judged / self.judged_tokens
        timed = (
            *(("search", self.search), ("search_first", self.search_first)),
            *(("answer", self.answer), ("overhead", self.overhead)),
        )
        for name, seconds in timed:
            ordered = sorted(seconds)
            found |= {f"{name}_{label}": nearest_rank(ordered, share) for label, share in SHARES if ordered}
            found |= {f"{name}_n": float(len(ordered))} if ordered else {}
        if self.told:
            found["facts_used"] = self.facts
        if self.facts:
            found |= {"tokens_per_fact_used": math.fsum(self.tokens) / self.facts} if self.tokens else {}
            found |= {"query_usd_per_fact_used": self.cost / self.facts} if not self.unpriced else {}
        return found


@dataclass(slots=True)
class Declined:
    """Abstention as a decision: positives are unanswerable questions. A `RowTally`."""

    score_field: str
    answerable: list[int] = field(default_factory=lambda: [0, 0])  # answered, declined
    unanswerable: list[int] = field(default_factory=lambda: [0, 0])
    right: float = 0.0
    judged: int = 0

    def add(self, row: EvalRow) -> None:
        """Take one row in."""
        needless, rightly = score(row, "needless_abstention"), score(row, "abstention_recall")
        if rightly is not None:
            self.unanswerable[rightly > 0] += 1
        elif needless is not None:
            self.answerable[needless > 0] += 1
            value = score(row, self.score_field)
            if needless == 0 and value is not None:
                self.right += value
                self.judged += 1

    def result(self) -> dict[str, float]:
        """Rates; `{}` where no row says whether it could be answered, and without what cannot be said (no unanswerable
        question, say).
        """
        known, unknown = sum(self.answerable), sum(self.unanswerable)
        if not known + unknown:
            return {}
        declined, rightly = self.answerable[1] + self.unanswerable[1], self.unanswerable[1]
        found: dict[str, float] = {}
        if declined:
            found["abstention_precision"] = rightly / declined
        if unknown:
            found["abstention_recall"] = rightly / unknown
            found["abstention_f1"] = 2 * rightly / (declined + unknown)
            found["abstention_f1_always"] = 2 * unknown / (known + 2 * unknown)
        if known:
            found["coverage"] = self.answerable[0] / known
        if self.judged:
            found["answered_accuracy"] = self.right / self.judged
        return found


# --- set-ups ---


def setup_figures(records: Sequence[SetupRecord]) -> dict[str, float]:
    """One system's set-ups: `items` there were, `items_lost` (share not acknowledged), `stored` and `bytes` as the
    memory tells, `bytes_per_item`, `write_loss` (where exact texts were looked for again: 1 − found / acknowledged),
    `ingest_seconds_per_item`, `ingest_items_per_second`, `ingest_p50`, `ingest_p95`, `ingest_p99` of single calls in
    the slowest haystack, `ingest_first` (the slowest first call), and `setup_…` sums over all attempts.
    """
    told = [record.output for record in standing(records) if record.error is None]
    found = dict(totals(records))
    items, parts, failed = (_sum(told, name) for name in ("items", "parts", "failed"))
    if items is not None:
        found["items"] = items
        found |= {f"ingest_{name}_per_item": spent / items for name, spent in _spent(told).items() if items}
        if seconds := found.get("ingest_seconds_per_item"):
            found["ingest_items_per_second"] = 1 / seconds
    if parts and failed is not None:
        found["items_lost"] = failed / parts
    for name in ("stored", "bytes"):
        if (value := _sum(told, name)) is not None:
            found[name] = value
    if items and "bytes" in found:
        found["bytes_per_item"] = found["bytes"] / items
    probed, again = _sum(told, "probed"), _sum(told, "probe_found")
    if probed and again is not None:
        found["write_loss"] = 1 - again / probed
    for label in ("p50", "p95", "p99"):
        slowest = [value for one in told if (value := real((one.get("seconds_each") or {}).get(label))) is not None]
        found |= {f"ingest_{label}": max(slowest)} if slowest else {}
    if first := [value for one in told if (value := real(one.get("seconds_first"))) is not None]:
        found["ingest_first"] = max(first)
    return found


def _spent(told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    added = _sum(told, "seconds_add")
    flushed = sum(real(one.get("seconds_flush")) or 0.0 for one in told)  # none: nothing to wait for
    return {} if added is None else {"seconds": added + flushed}


def _sum(told: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """`None` if any of them does not say."""
    values = [real(one.get(name)) for one in told]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class Harm:
    """Effect of a memory on the same questions, as shares of those both answered: `harmed` were right without it and
    are wrong with it, `helped` the other way round.
    """

    system: str
    without: str
    harmed: Estimate
    helped: Estimate
    right_without: int

    @property
    def sentence(self) -> str:
        """For a report."""
        said = [
            f"{each.value:.1%}"
            + (f" [{each.low:.1%}, {each.high:.1%}]" if each.low is not None and each.high is not None else "")
            for each in (self.harmed, self.helped)
        ]
        return (
            f"{self.system}: of {self.harmed.n:,} questions {said[1]} are right with it and wrong without any memory, "
            f"{said[0]} the other "
            "way round."
        )


def harm(system: str, with_it: Scored, without: str, without_it: Scored, threshold: float) -> Harm | None:
    """Compare a memory with the arm that has none; an answer is right from `threshold` on. `None` if they share no
    question.
    """
    mine, theirs = with_it.values, without_it.values
    both = [key for key in mine if key in theirs]
    if not both:
        return None
    right = [(mine[key] >= threshold, theirs[key] >= threshold) for key in both]
    clusters = [with_it.clusters[key] for key in both]
    harmed = estimate([float(other and not own) for own, other in right], clusters)
    helped = estimate([float(own and not other) for own, other in right], clusters)
    return Harm(system, without, harmed, helped, sum(other for _, other in right))
