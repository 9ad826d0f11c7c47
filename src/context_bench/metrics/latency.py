"""Latency of answers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from context_bench.core.records import EvalRow
from context_bench.core.rows import latency, ordered, tallied, ttft
from context_bench.stats.distributions import interpolated


@dataclass
class Latency:
    """Seconds per answered row: `latency_mean`, `latency_median`, `latency_p95`, `latency_p99`; streamed also
    `ttft_median`, `ttft_p95`.

    Percentiles interpolate between the sorted values, as numpy does by default. Failed rows are left out. No rows:
    zeros; no known latency: absent.
    """

    name: ClassVar[str] = "latency"

    def tally(self) -> _Times:
        """For computing in one pass, without holding rows."""
        return _Times()

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        return tallied(self.tally(), rows)


@dataclass(slots=True)
class _Times:
    rows: int = 0
    whole: array[float] = field(default_factory=lambda: array("d"))
    to_first: array[float] = field(default_factory=lambda: array("d"))

    def add(self, row: EvalRow) -> None:
        self.rows += 1
        seconds, first = latency(row), ttft(row)
        if seconds is not None:
            self.whole.append(seconds)
            if first is not None:
                self.to_first.append(first)

    def result(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if self.whole or not self.rows:
            seconds = ordered(self.whole) or [0.0]
            found = {
                "latency_mean": math.fsum(seconds) / len(seconds),
                "latency_median": interpolated(seconds, 0.5),
                "latency_p95": interpolated(seconds, 0.95),
                "latency_p99": interpolated(seconds, 0.99),
            }
        if self.to_first:
            seconds = ordered(self.to_first)
            found |= {"ttft_median": interpolated(seconds, 0.5), "ttft_p95": interpolated(seconds, 0.95)}
        return found
