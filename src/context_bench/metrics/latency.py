"""Latency of answers."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import ClassVar

from context_bench.core.rows import Fold, OnePass, latency, ordered, ttft
from context_bench.stats.distributions import percentile

METRICS = {"latency": "Latency"}
MEASURES = {
    "latency_mean latency_median latency_p95 latency_p99": {"unit": "seconds", "better": "lower", "place": "time"},
    "ttft_median ttft_p95": {"unit": "seconds", "better": "lower", "place": "time"},
}


@dataclass
class Latency(OnePass):
    """Seconds per answered row: `latency_mean`, `latency_median`, `latency_p95`, `latency_p99`; streamed also
    `ttft_median`, `ttft_p95`.

    Percentiles interpolate between the sorted values, as numpy does by default. Failed rows are left out. No rows:
    zeros; no known latency: absent.
    """

    name: ClassVar[str] = "latency"

    def _fold(self) -> Fold:
        rows = 0
        whole, to_first = array("d"), array("d")
        while (row := (yield)) is not None:
            rows += 1
            seconds, first = latency(row), ttft(row)
            if seconds is not None:
                whole.append(seconds)
                if first is not None:
                    to_first.append(first)
        numbers: dict[str, float] = {}
        if whole or not rows:
            values = ordered(whole) or [0.0]
            numbers = {
                "latency_mean": math.fsum(values) / len(values),
                "latency_median": percentile(values, 0.5),
                "latency_p95": percentile(values, 0.95),
                "latency_p99": percentile(values, 0.99),
            }
        if to_first:
            values = ordered(to_first)
            numbers |= {"ttft_median": percentile(values, 0.5), "ttft_p95": percentile(values, 0.95)}
        return numbers
