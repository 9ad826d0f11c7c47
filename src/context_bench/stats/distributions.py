"""Student's t, the normal and the χ² distribution, percentiles of sorted values, and roots of functions.

scipy has them too, and the tests hold these to it. Loading `scipy.special` or an optimiser takes longer than everything
else that a small run computes. Against sums with 50 digits: quantiles to 2e-14, tails above 1e-30 to 5e-13 (relative;
1 to 1e9 degrees of freedom).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

#: From here on Hill's normalising series is as exact as the continued fraction, which grows long.
_MANY = 1000.0
_ENOUGH = 1e-17


_BINS = 10  # on either side of no change, at most
_SHARE = 1e-9  # of a bin's width, by which a change may pass its end and still count for it


def change_bins(changes: Iterable[float]) -> tuple[tuple[float, float, int], ...]:
    """Counts of changes by their size: bins (above, up to, count) of equal width that meet at zero, those of losses
    with their ends negative, and (0, 0, count) for no change at all. Empty bins are left out, and so is what is no
    number. The width is 1, 2 or 5 times a power of ten: 0.1 for scores from 0 to 1.
    """
    known = [float(each) for each in changes if math.isfinite(each)]
    most = max(map(abs, known), default=0.0)
    if not most:
        return ((0.0, 0.0, len(known)),) if known else ()
    power = 10.0 ** math.floor(math.log10(max(most, 1e-300) / _BINS) + _SHARE)
    width = next(power * unit for unit in (1, 2, 5, 10) if power * unit * _BINS >= most * (1 - _SHARE))
    counts: Counter[int] = Counter()
    for change in known:
        place = max(1, math.ceil(abs(change) / width - _SHARE)) if change else 0
        counts[place if change > 0 else -place] += 1
    found = []
    for place, count in sorted(counts.items()):
        least, most = (float(f"{abs(each) * width:.12g}") for each in (abs(place) - 1, place))
        found.append((least, most, count) if place > 0 else (-most, 0.0 - least, count) if place else (0.0, 0.0, count))
    return tuple(found)


def within_bin(change: Any, low: float, high: float) -> Any:
    """True where a change (a number or an array) is counted in the bin from `low` to `high` of `change_bins`."""
    slack, size = _SHARE * (high - low), abs(change)
    least, most = sorted((abs(low), abs(high)))
    return (size > (least and least + slack)) & (size <= most + slack)


@lru_cache(maxsize=4096)
def quantile(probability: float, df: float = math.inf) -> float:
    """The number below which Student's t with `df` degrees of freedom lies with `probability`; of the normal
    distribution for `inf`.

    Newton's method on the logarithm of the tail, kept inside a bracket. −∞ for 0, ∞ for 1; not a number for what is no
    probability.
    """
    tail = min(probability, 1 - probability)
    if not tail >= 0 or not df > 0:
        return math.nan
    if tail in (0, 0.5):
        return math.copysign(math.inf, probability - 0.5) if tail == 0 else 0.0
    at = _from_tail(tail, df)
    return at if probability > 0.5 else -at


def upper_tail(statistic: float, df: float = math.inf) -> float:
    """P(T ≥ statistic) under Student's t with `df` degrees of freedom (normal for `inf`)."""
    if math.isnan(statistic) or not df > 0:
        return math.nan
    tail = _tail(abs(statistic), df)
    return tail if statistic >= 0 else 1 - tail


def chi_square_tail(statistic: float, df: int) -> float:
    """P(X ≥ statistic) under χ² with `df` degrees of freedom, from the sum for two fewer at a time (Abramowitz and
    Stegun 26.4.4, 26.4.5).
    """
    if math.isnan(statistic) or df < 1:
        return math.nan
    if statistic <= 0:
        return 1.0
    half = statistic / 2
    tail = math.erfc(math.sqrt(half)) if df % 2 else math.exp(-half)
    power = df % 2 / 2 or 1.0
    while power < df / 2:
        tail += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
        power += 1
    return min(1.0, tail)


def _from_tail(tail: float, df: float) -> float:
    """The t > 0 that is reached with probability `tail` < 1/2."""
    low, high = 0.0, 1.0
    while _tail(high, df) > tail:
        low, high = high, 2 * high
    at = min(max(math.sqrt(-2 * math.log(2 * tail)), low), high)
    for _ in range(200):
        found = _tail(at, df)
        low, high = (at, high) if found > tail else (low, at)
        step = math.log(found / tail) * found / _density(at, df) if found > 0 else math.nan
        following = at + step if low <= at + step <= high else (low + high) / 2
        if abs(following - at) <= 2e-16 * following:
            return following
        at = following
    return at


def _density(t: float, df: float) -> float:
    if math.isinf(df):
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    return _half_step(df / 2) / math.sqrt(df * math.pi) * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))


def _tail(t: float, df: float) -> float:
    """P(T ≥ t) for t ≥ 0."""
    if math.isinf(t):
        return 0.0
    if math.isinf(df):
        return math.erfc(t / math.sqrt(2)) / 2
    if df >= _MANY:
        return math.erfc(_as_normal(t, df) / math.sqrt(2)) / 2
    # I_x(df/2, 1/2)/2 with x = df/(df + t²): DLMF 8.17.2 and 26.5.27 of Abramowitz and Stegun.
    if t * t * (df / 2 + 1) > 1.5 * df:
        return _incomplete(df / 2, 0.5, df, t * t) / 2
    return 0.5 - _incomplete(0.5, df / 2, t * t, df) / 2


def _as_normal(t: float, df: float) -> float:
    """The normal deviate with the same tail (G. W. Hill 1970, Algorithm 395, Communications of the ACM 13, 617)."""
    above = df - 0.5
    scale = 48 * above * above
    y = above * math.log1p(t * t / df)
    third = (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y * y + 100 + scale)
    return ((third + y + 3) / scale + 1) * math.sqrt(y)


def _incomplete(a: float, b: float, part: float, rest: float) -> float:
    """I_x(a, b) for x = part/(part + rest), one of a and b being 1/2: the continued fraction DLMF 8.17.22, by Lentz's
    method.
    """
    if part == 0:
        return 0.0
    x = part / (part + rest)
    larger = b if a == 0.5 else a
    logarithm = a * -math.log1p(rest / part) + b * -math.log1p(part / rest)
    front = math.exp(logarithm) * _half_step(larger) / math.sqrt(math.pi) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return front * fraction


def _half_step(a: float) -> float:
    """Γ(a + 1/2)/Γ(a): the series of DLMF 5.11.8 for large a, to which smaller ones are led by Γ(a + 1) = a Γ(a)."""
    factor = 1.0
    while a < 20:
        factor *= a / (a + 0.5)
        a += 1
    inverse = 1 / (a * a)
    series = 31 / 18432 - 691 / 180224 * inverse
    for coefficient in (17 / 14336, 1 / 640, 1 / 192, 1 / 8):
        series = coefficient - series * inverse
    return factor * math.sqrt(a) * math.exp(-series / a)


#: Bisection alone needs fewer steps than this for any two floats.
_MOST_STEPS = 200


def root(
    function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = 8.881784197001252e-16
) -> float:
    """A zero of `function` between `low` and `high`, where its signs differ, to within `xtol` + `rtol` · |zero|.

    Brent's method (Algorithms for Minimization Without Derivatives, 1973, chapter 4): inverse quadratic or linear
    interpolation while it closes in fast enough, else bisection. Raises `ValueError` if the signs at the ends are the
    same.
    """
    last, at_last = low, function(low)
    here, at_here = high, function(high)
    if at_last == 0 or at_here == 0:
        return last if at_last == 0 else here
    if (at_last < 0) == (at_here < 0):
        raise ValueError("the function has the same sign at both ends")
    across, at_across = last, at_last  # the nearest point known on the other side of the zero
    step = before = here - last
    for _ in range(_MOST_STEPS):
        if (at_last < 0) != (at_here < 0):
            across, at_across = last, at_last
            step = before = here - last
        if abs(at_across) < abs(at_here):
            last, here, across = here, across, here
            at_last, at_here, at_across = at_here, at_across, at_here
        near, half = (xtol + rtol * abs(here)) / 2, (across - here) / 2
        if at_here == 0 or abs(half) < near:
            break
        tried = math.inf
        if abs(before) > near and abs(at_here) < abs(at_last):
            tried = _interpolated(last, at_last, here, at_here, across, at_across)
        before, step = (step, tried) if 2 * abs(tried) < min(abs(before), 3 * abs(half) - near) else (half, half)
        last, at_last = here, at_here
        here += step if abs(step) > near else near if half > 0 else -near
        at_here = function(here)
        if at_here == 0:
            break
    return here


def _interpolated(last: float, at_last: float, here: float, at_here: float, across: float, at_across: float) -> float:
    """The step from `here` to where a line, or with three points a parabola lying on its side, crosses zero; infinite
    if it never does.
    """
    try:
        if last == across:
            return -at_here * (here - last) / (at_here - at_last)
        slope, other = (at_last - at_here) / (last - here), (at_across - at_here) / (across - here)
        return -at_here * (at_across * other - at_last * slope) / (other * slope * (at_across - at_last))
    except ZeroDivisionError:
        return math.inf


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie (0 ≤ `share` ≤ 1, n ≥ 1), linear between neighbours.

    The one meaning of a percentile or median of measured values in all figures (Hyndman & Fan 1996, type 7; the default
    of NumPy, R and spreadsheets).
    """
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
