"""How many examples it takes, and what a given number can show. Normal approximation; `effect` = design effect of clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from context_bench.stats.distributions import quantile, upper_tail


def n_paired(delta: float, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> int:
    """Examples needed to find a mean paired difference of `delta` (two-sided test), given the variance of the differences."""
    _positive("delta", abs(delta))
    return math.ceil(effect * (quantile(1 - alpha / 2) + quantile(power)) ** 2 * variance / delta**2 - 1e-9)


def power_paired(n: int, delta: float, variance: float, alpha: float = 0.05, *, effect: float = 1.0) -> float:
    """Chance of finding a mean paired difference of `delta` with `n` examples (two-sided test)."""
    _positive("n", n)
    if variance <= 0:
        return 1.0 if delta else alpha
    shift, z = abs(delta) / math.sqrt(variance * effect / n), quantile(1 - alpha / 2)
    return upper_tail(z - shift) + upper_tail(z + shift)


def mde(n: int, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> float:
    """The smallest mean paired difference that `n` examples find with the given power."""
    _positive("n", n)
    return (quantile(1 - alpha / 2) + quantile(power)) * math.sqrt(variance * effect / n)


def n_mcnemar(discordant: float, difference: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Pairs needed by McNemar's test: `discordant` share of pairs that differ, `difference` of the two pass rates."""
    _positive("difference", abs(difference))
    if not abs(difference) <= discordant <= 1:
        raise ValueError(f"a difference of {difference} needs a discordant share between {abs(difference)} and 1, not {discordant}")
    first = quantile(1 - alpha / 2) * math.sqrt(discordant)
    second = quantile(power) * math.sqrt(max(0.0, discordant - difference**2))
    return math.ceil((first + second) ** 2 / difference**2 - 1e-9)


def n_noninferiority(
    margin: float, variance: float, *, true_difference: float = 0.0, alpha: float = 0.05, power: float = 0.8, effect: float = 1.0
) -> int:
    """Examples needed to show "not worse by `margin`" (one-sided), if the true difference is `true_difference` (> −margin).

    Never fewer than it takes when no pair at all differs: 140 at a margin of 2 points.
    """
    _positive("margin", margin)
    distance = margin + true_difference
    _positive("margin + true difference", distance)
    by_power = (quantile(1 - alpha) + quantile(power)) ** 2 * variance / distance**2
    return math.ceil(effect * max(by_power, n_without_change(margin, alpha)) - 1e-9)


def n_without_change(margin: float, alpha: float = 0.05) -> float:
    """Examples from which `margin` is supported when not one pair differs: 140 at 2 points.

    Tango's bound alone says z² (1 − margin) / margin = 133, at which a true loss of 2 points stays unseen in 6.8 % of runs. The claim is
    made from where that is below 6 % (`bounded.SLACK`).
    """
    from context_bench.stats.intervals import SLACK

    _positive("margin", margin)
    spread = quantile(1 - alpha) * math.sqrt(max(0.0, margin * (1 - margin)))
    return ((spread + math.sqrt(spread**2 + 4 * margin * SLACK)) / (2 * margin)) ** 2


def smallest_margin(n: int, variance: float, alpha: float = 0.05, power: float = 0.8, *, effect: float = 1.0) -> float:
    """The smallest margin that `n` examples support with the given power if the two systems are truly equal."""
    from context_bench.stats.intervals import SLACK

    _positive("n", n)
    square, effective = quantile(1 - alpha) ** 2, n / effect
    half = (2 * effective * SLACK + square * effective) / 2
    unchanged = (half + math.sqrt(max(0.0, half**2 - (effective**2 + square * effective) * SLACK**2))) / (effective**2 + square * effective)
    return max((quantile(1 - alpha) + quantile(power)) * math.sqrt(variance / effective), unchanged)


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """Where the variance of a paired difference comes from when each example is answered several times.

    `between`: variance of the examples' true differences (ω²); `system`, `baseline`: variance of one answer around its example's mean.
    """

    between: float
    system: float
    baseline: float

    def of_difference(self, system_answers: int = 1, baseline_answers: int = 1) -> float:
        """Variance of one example's difference of means over so many answers: ω² + σ²_A / K_A + σ²_B / K_B. Goes into `n_paired`, `mde`."""
        _positive("answers per example", min(system_answers, baseline_answers))
        return self.between + self.system / system_answers + self.baseline / baseline_answers


def variance_parts(system: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> VarianceParts:
    """The parts from scores (examples × answers, at least two each): within-example variances, and what is left between examples."""
    import numpy as np

    first, second = np.asarray(system, dtype=float), np.asarray(baseline, dtype=float)
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second) or len(first) < 2 or min(first.shape[1], second.shape[1]) < 2:
        raise ValueError(f"expected two or more answers to the same two or more examples, got {first.shape} and {second.shape}")
    within = [float(side.var(axis=1, ddof=1).mean()) for side in (first, second)]
    seen = float((first.mean(axis=1) - second.mean(axis=1)).var(ddof=1))
    return VarianceParts(max(0.0, seen - within[0] / first.shape[1] - within[1] / second.shape[1]), *within)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, not {value}")
