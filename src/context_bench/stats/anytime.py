"""Statements about a stream of sessions that hold whenever one looks, as often as one looks.

`EDetector` raises an alarm when evidence piles up that a limit is crossed: over its whole horizon a stream that keeps
the limit raises one with probability `alpha` at most. The `*_step` functions turn a session into what it bets on.
`BoundedSequence` and `RatioSequence` are intervals to show beside it; `ratio_of_arms` compares sessions that were drawn
at random to go past the system. Each of the others keeps a few numbers, takes in one session at
a time and can be stored between two: `dataclasses.asdict` gives its state, the constructor takes it back.

Sources: Ville 1939; Shin, Ramdas, Rinaldo, E-detectors (arXiv:2203.03532); Waudby-Smith, Ramdas, Estimating means of
bounded random variables by betting, theorem 2 (arXiv:2010.09686); Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas,
Time-uniform central limit theory, theorem 2.2 (arXiv:2103.06476).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Sessions over which the promise of one detector holds.
HORIZON = 100_000
#: Bets of each kind of step, as shares of the wealth that a step of −1 takes. Their weights are equal, but for money:
#: there a rise of a tenth is found soonest by the highest bet (`benchmarks/coverage.py limits` has the figures).
BETS = {"cost": (0.25, 0.5, 0.95), "share": (0.02, 0.05, 0.15), "quality": (0.1, 0.3, 0.8)}
COST_WEIGHTS = (0.1, 0.2, 0.7)
#: Members of the smaller of two groups for which their interval is narrowest, and below which there is none.
TUNED_FOR_OF_ARM, FEWEST_OF_ARM = 100, 30


@dataclass
class EDetector:
    """Evidence that the mean of a stream of steps is above 0, wherever in the stream that began.

    A step is −1 or more, and its mean given the past is 0 or less while nothing is wrong; nothing else is assumed. At
    each session a share of `alpha` is put on "it begins here": `start` of it on the first, the rest evenly on the
    others. `weights` of the bets sum to 1; none: equal. Once the alarm is raised it stays, and nothing more is counted.
    """

    bets: Sequence[float]
    alpha: float = 0.05
    horizon: int = HORIZON
    start: float = 0.5
    weights: Sequence[float] = ()
    sessions: int = 0
    wealth: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.bets or not all(0 < bet < 1 for bet in self.bets):
            raise ValueError(f"bets {self.bets!r} are not usable; expected shares between 0 and 1")
        if not 0 < self.alpha < 1 or not 0 < self.start <= 1 or self.horizon < 2:
            raise ValueError("alpha must lie between 0 and 1, start above 0 and up to 1, the horizon at 2 or more")
        self.weights = self.weights or [1 / len(self.bets)] * len(self.bets)
        if len(self.weights) != len(self.bets) or abs(sum(self.weights) - 1) > 1e-9 or min(self.weights) < 0:
            raise ValueError(f"weights {self.weights!r} are not usable; expected one a bet, which sum to 1")
        self.wealth = self.wealth or [0.0] * len(self.bets)

    @property
    def evidence(self) -> float:
        """Evidence so far; an alarm at `threshold`."""
        return sum(weight * wealth for weight, wealth in zip(self.weights, self.wealth, strict=True))

    @property
    def threshold(self) -> float:
        """1 / `alpha`."""
        return 1 / self.alpha

    @property
    def alarmed(self) -> bool:
        """The alarm has been raised."""
        return self.evidence >= self.threshold

    @property
    def used_up(self) -> bool:
        """The horizon is reached: what comes later needs a detector, and an alpha, of its own."""
        return self.sessions >= self.horizon

    def add(self, step: float) -> bool:
        """Take in one session's step; returns whether the alarm is raised. Raises `ValueError` for a step that is below
        −1 or no finite number, and beyond the horizon.
        """
        if not (math.isfinite(step) and step >= -1):
            raise ValueError(f"a step of {step!r} cannot be bet on; expected a finite number, −1 or more")
        if self.alarmed:
            return True
        if self.used_up:
            raise ValueError(f"the horizon of {self.horizon:,} sessions is used up; start a new detector")
        self.sessions += 1
        given = self.start if self.sessions == 1 else (1 - self.start) / (self.horizon - 1)
        self.wealth = [(wealth + given) * (1 + bet * step) for wealth, bet in zip(self.wealth, self.bets, strict=True)]
        return self.alarmed


def ratio_step(ratio: float, limit: float, *, floor: float = 0.0, weight: float = 1.0) -> float:
    """The step of a session whose cost is `ratio` (≥ 0) times what it would be, against `limit`.

    `floor` (< `limit`): a lower ratio counts as this much, so that small rises are found sooner; the limit is then one
    of the floored ratio. `weight`: 0 to 1; all alike, means of ratios are held against the limit.
    """
    if not 0 <= floor < limit or not 0 <= weight <= 1 or not ratio >= 0:
        raise ValueError(
            f"ratio {ratio!r}, limit {limit!r}, floor {floor!r} and weight {weight!r} make no step; expected "
            "0 ≤ floor < limit, a weight of 0 to 1 and a ratio of 0 or more"
        )
    return weight * (max(ratio, floor) - limit) / (limit - floor)


def bill_step(through: float, alone: float, limit: float, *, cap: float, floor: float = 0.0) -> float:
    """The step of a session's bill against a ratio of sums of bills: it weighs as much as `alone` is, at most `cap`.

    `through`, `alone` (> 0): its cost with and without the system, in one currency.
    """
    if not alone > 0 or not cap > 0:
        raise ValueError(f"a session that costs {alone!r} alone, capped at {cap!r}, has no ratio; expected more than 0")
    return ratio_step(through / alone, limit, floor=floor, weight=min(alone, cap) / cap)


def share_step(lost: float, limit: float) -> float:
    """The step of a session of whose items the share `lost` (0 to 1) was lost, against a `limit` above 0."""
    if not 0 <= lost <= 1 or not limit > 0:
        raise ValueError(f"share {lost!r} and limit {limit!r} make no step; expected 0 to 1, and more than 0")
    return (lost - limit) / limit


def quality_step(difference: float, limit: float) -> float:
    """The step of a paired difference of scores, system − baseline (−1 to 1), against a loss of `limit` (≥ 0)."""
    if not -1 <= difference <= 1 or not limit >= 0:
        raise ValueError(f"difference {difference!r} and limit {limit!r} make no step; expected −1 to 1, and 0 or more")
    return (-difference - limit) / (1 + limit)


def learned_limit(
    through: Sequence[float], alone: Sequence[float], *, cap: float, floor: float = 0.0, z: float = 1.96
) -> float:
    """A limit from a period that was good: the upper end of its cost ratio, capped and floored as in `bill_step`.

    It is wrong in 2.5 % of such periods, which is part of what may go wrong: give the detector an alpha of .025. Of
    2,000 sessions or more; with fewer it lies so high that small rises are found late.
    """
    if len(through) != len(alone) or len(alone) < 2 or not all(bill > 0 for bill in alone):
        raise ValueError("a limit is learned from 2 sessions or more, each with a bill above 0 alone")
    weights = [min(bill, cap) / cap for bill in alone]
    ratios = [max(spent / bill, floor) for spent, bill in zip(through, alone, strict=True)]
    whole, n = sum(weights), len(weights)
    mean = sum(weight * ratio for weight, ratio in zip(weights, ratios, strict=True)) / whole
    squares = sum((weight * (ratio - mean)) ** 2 for weight, ratio in zip(weights, ratios, strict=True))
    return mean + z * math.sqrt(squares * n / (n - 1)) / whole


@dataclass
class BoundedSequence:
    """An interval of the mean of values from `low` to `high`, right at all sessions at once with 1 − `alpha`.

    Predictable plug-in, empirical Bernstein; each interval lies within the one before.
    """

    alpha: float = 0.05
    low: float = 0.0
    high: float = 1.0
    sessions: int = 0
    total: float = 0.0
    spread: float = 0.25  # squared distances from the means so far
    bets: float = 0.0
    centre: float = 0.0
    width: float = 0.0
    lower: float = 0.0  # as shares of the range
    upper: float = 1.0

    def add(self, value: float) -> None:
        """Take in one value. Raises `ValueError` outside the range."""
        if not self.low <= value <= self.high:
            raise ValueError(f"value {value!r} is outside the range {self.low:g} to {self.high:g}")
        x = (value - self.low) / (self.high - self.low)
        mean, variance = (0.5 + self.total) / (self.sessions + 1), self.spread / (self.sessions + 1)
        self.sessions += 1
        budget = math.log(2 / self.alpha)
        bet = min(0.5, math.sqrt(2 * budget / (variance * self.sessions * math.log1p(self.sessions))))
        self.bets += bet
        self.centre += bet * x
        self.width += (x - mean) ** 2 * (-math.log1p(-bet) - bet)
        self.total += x
        self.spread += (x - (0.5 + self.total) / (self.sessions + 1)) ** 2
        middle, half = self.centre / self.bets, (budget + self.width) / self.bets
        self.lower, self.upper = max(self.lower, middle - half), min(self.upper, middle + half)

    @property
    def mean(self) -> float | None:
        """Plain mean of the values; `None` without one."""
        return self.low + (self.high - self.low) * self.total / self.sessions if self.sessions else None

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the interval. The lower one above the upper: the mean has moved, no single one fits."""
        span = self.high - self.low
        return self.low + span * self.lower, self.low + span * self.upper


@dataclass
class RatioSequence:
    """An interval of a ratio of sums of amounts, right at all sessions at once with about 1 − `alpha`.

    It is asymptotic: show it from 200 sessions on, not before. `tuned_for`: sessions at which it is narrowest. With
    amounts of 1 below, the ratio is a mean.
    """

    alpha: float = 0.05
    tuned_for: int = 300
    sessions: int = 0
    above: float = 0.0
    below: float = 0.0
    above_squared: float = 0.0
    product: float = 0.0
    below_squared: float = 0.0

    def add(self, above: float, below: float = 1.0) -> None:
        """Take in one session's two amounts, `below` more than 0."""
        if not (math.isfinite(above) and math.isfinite(below) and below > 0):
            raise ValueError(f"amounts {above!r} and {below!r} have no ratio; expected finite ones, the second above 0")
        self.sessions += 1
        self.above += above
        self.below += below
        self.above_squared += above * above
        self.product += above * below
        self.below_squared += below * below

    @property
    def ratio(self) -> float | None:
        """Sum over sum; `None` without a session."""
        return self.above / self.below if self.sessions else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the interval; `None` without a session."""
        ratio, t = self.ratio, self.sessions
        if ratio is None:
            return None
        squares = self.above_squared - 2 * ratio * self.product + ratio**2 * self.below_squared
        sd = math.sqrt(max(squares, 0.0) / t) / (self.below / t)
        half = sd * boundary(t, self.tuned_for, self.alpha)
        return ratio - half, ratio + half


def boundary(t: int, tuned_for: float, alpha: float = 0.05) -> float:
    """Half the width of an asymptotic confidence sequence after `t` values whose standard deviation is 1, narrowest for
    its `t` near `tuned_for`.
    """
    log = -2 * math.log(alpha)
    rho = (log + math.log(log + 1)) / tuned_for  # squared
    return math.sqrt(2 * (t * rho + 1) / (t * t * rho) * math.log(math.sqrt(t * rho + 1) / alpha))


@dataclass(frozen=True, slots=True)
class RatioOfArms:
    """Amounts of one group over those of another: `value` and both ends of its interval are ratios of geometric means.

    `low` and `high` are `None` where a group has fewer than `FEWEST_OF_ARM` members.
    """

    value: float
    low: float | None
    high: float | None


def ratio_of_arms(
    treated: Sequence[float], held_out: Sequence[float], *, share: float, alpha: float = 0.05
) -> RatioOfArms | None:
    """A typical amount of `treated` over one of `held_out`, a group that members were drawn to with the chance `share`.
    Amounts > 0; `None` where a group is empty.

    The interval is an asymptotic confidence sequence: with probability 1 − `alpha` it holds the truth at every look,
    for members who were drawn to a group independently of each other (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas,
    arXiv:2103.06476, theorem 2.2 and section 3 on the effect of a randomised treatment). On the logarithm, since bills
    differ tenfold: the ratio of their arithmetic means hangs on the dearest few. Looked at up to 20,000 members, this
    interval missed the truth in 1 to 8 % of streams, one for arithmetic means in 3 to 100 % (`benchmarks/coverage.py
    holdout`).
    """
    if not treated or not held_out:
        return None
    (mean, spread), (other, others) = _log_moments(treated), _log_moments(held_out)
    value = math.exp(mean - other)
    fewer, n = min(len(treated), len(held_out)), len(treated) + len(held_out)
    if fewer < FEWEST_OF_ARM:
        return RatioOfArms(value, None, None)
    variance = n * (spread / len(treated) + others / len(held_out))
    half = math.sqrt(variance) * boundary(n, TUNED_FOR_OF_ARM / min(share, 1 - share), alpha)
    return RatioOfArms(value, value * math.exp(-half), value * math.exp(half))


def _log_moments(amounts: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of the logarithms."""
    logs = [math.log(amount) for amount in amounts]
    mean = math.fsum(logs) / len(logs)
    return mean, math.fsum((one - mean) ** 2 for one in logs) / max(1, len(logs) - 1)
