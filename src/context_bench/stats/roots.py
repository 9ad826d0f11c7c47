"""Where a function crosses zero, without the second that importing an optimisation library takes."""

from __future__ import annotations

import math
from collections.abc import Callable

#: Bisection alone needs fewer steps than this for any two floats.
_MOST_STEPS = 200


def root(function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = 8.881784197001252e-16) -> float:
    """A zero of `function` between `low` and `high`, where its signs differ, to within `xtol` + `rtol` · |zero|.

    Brent's method (Algorithms for Minimization Without Derivatives, 1973, chapter 4): inverse quadratic or linear interpolation while it
    closes in fast enough, else bisection. Raises `ValueError` if the signs at the ends are the same.
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
    """The step from `here` to where a line, or with three points a parabola lying on its side, crosses zero; infinite if it never does."""
    try:
        if last == across:
            return -at_here * (here - last) / (at_here - at_last)
        slope, other = (at_last - at_here) / (last - here), (at_across - at_here) / (across - here)
        return -at_here * (at_across * other - at_last * slope) / (other * slope * (at_across - at_last))
    except ZeroDivisionError:
        return math.inf
