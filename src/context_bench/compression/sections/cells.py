"""Cells of figures that a result keeps as JSON."""

from __future__ import annotations

from typing import Any

from context_bench.core.numbers import number
from context_bench.reports.material import mapping
from context_bench.reports.page import Figure, Unit


def estimated(told: Any, unit: Unit = "score", *, signed: bool = False, digits: int | None = None, n: bool = False) -> Figure | None:
    """A number with its interval from `{"value", "low", "high", "n"}` (or `difference`); `None` where there is none. `n`: with its n."""
    facts = mapping(told)
    value = number(facts.get("value", facts.get("difference")))
    if value is None:
        return None
    count = number(facts.get("n")) if n else None
    low, high = number(facts.get("low")), number(facts.get("high"))
    return Figure(value, unit, low, high, signed=signed, digits=digits, n=None if count is None else int(count))


def reasons(*told: Any) -> str:
    """Why numbers are missing, each reason once."""
    known = dict.fromkeys(str(why) for one in told if (why := mapping(one).get("why")))
    return "".join(f" {why[0].upper()}{why[1:]}." for why in known)
