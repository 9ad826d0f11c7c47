"""Shares of 0/1 outcomes: Wilson's interval, McNemar's test, Tango's score interval and test for paired outcomes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from context_bench.stats.students import quantile, upper_tail


@dataclass(frozen=True, slots=True)
class Interval:
    """A number between two bounds; `confidence` is two-sided."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


def wilson(k: float, n: float, confidence: float = 0.95, *, df: float = math.inf) -> Interval:
    """Wilson's score interval of k successes in n; for clustered values give effective counts (k/n kept) and `df`."""
    if not n > 0 or not 0 <= k <= n:
        raise ValueError(f"{k} successes of {n} is not a share; expected 0 ≤ k ≤ n and n > 0")
    z = quantile(0.5 + confidence / 2, df)
    share, shrink = k / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return Interval(share, 0.0 if k == 0 else max(0.0, middle - half), 1.0 if k == n else min(1.0, middle + half), confidence)


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's test of b against c discordant pairs: exact binomial below 25, else χ² with continuity correction."""

    p: float
    exact: bool
    discordant: int


def mcnemar(b: int, c: int) -> McNemar:
    """Is one direction of change more frequent than the other? Two-sided p; 1.0 without a discordant pair."""
    from scipy.stats import binom, chi2

    if min(b, c) < 0:
        raise ValueError(f"discordant pairs cannot be negative: b={b}, c={c}")
    total = b + c
    if total == 0:
        return McNemar(1.0, True, 0)
    if total < 25:
        return McNemar(min(1.0, 2 * float(binom.cdf(min(b, c), total, 0.5))), True, total)
    return McNemar(float(chi2.sf((abs(b - c) - 1) ** 2 / total, 1)), False, total)


def tango_score(b: float, c: float, n: float, difference: float) -> float:
    """Tango's score statistic (Stat. Med. 1998) of H0: P(only first right) − P(only second right) = `difference`.

    `b` pairs only the first got right, `c` only the second, of `n`. The variance is the one under H0, so that it is not 0 when nothing
    differs.
    """
    if min(b, c) < 0 or b + c > n * (1 + 1e-9) or n <= 0:
        raise ValueError(f"b={b} and c={c} are not discordant pairs of n={n}")
    two_a = 4 * n
    mid = -b - c + (2 * n - b + c) * difference
    last = -c * difference * (1 - difference)
    lost = (math.sqrt(max(0.0, mid * mid - 2 * two_a * last)) - mid) / two_a
    variance = n * (2 * lost + difference * (1 - difference))
    excess = b - c - n * difference
    if variance <= 1e-12 * n:
        return 0.0 if abs(excess) < 1e-9 * n else math.copysign(math.inf, excess)
    return excess / math.sqrt(variance)


def tango_test(b: float, c: float, n: float, difference: float, *, effect: float = 1.0, df: float = math.inf) -> float:
    """One-sided p of H0: true difference ≤ `difference` (small p: the first is better than that).

    For the other side swap `b` and `c` and the sign. `effect`: design effect of the clusters.
    """
    return upper_tail(tango_score(b, c, n, difference) / math.sqrt(effect), df)


def tango(b: float, c: float, n: float, confidence: float = 0.95, *, effect: float = 1.0, df: float = math.inf) -> Interval:
    """Tango's score interval of the paired difference (b − c) / n; never of width 0.

    All differences that the score test does not refuse.
    """
    limit = quantile(0.5 + confidence / 2, df) * math.sqrt(effect)
    value = (b - c) / n
    return Interval(value, _edge(b, c, n, value, -1.0, limit), -_edge(c, b, n, -value, -1.0, limit), confidence)


def _edge(b: float, c: float, n: float, inside: float, outside: float, limit: float) -> float:
    """The point between a difference that is accepted and the end of the scale where the score passes `limit`."""
    if tango_score(b, c, n, outside + 1e-12) <= limit:
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        if tango_score(b, c, n, middle) <= limit:
            inside = middle
        else:
            outside = middle
    return outside
