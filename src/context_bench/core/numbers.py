"""Numbers from outside, read in one place: wires, logs, journals, imports, catalogues and stores all ask here.

What is no such number, or larger than anything it can mean, is `None`. Whatever is returned can be stored in any of our
databases, written as JSON, and summed a million times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from numbers import Integral, Real
from typing import Any

#: The largest whole number that JSON, floats and both databases keep exactly.
MOST = 2**53
#: US dollars, and seconds (30 years): more than any run takes.
MOST_DOLLARS = MOST_SECONDS = 1e9
MOST_PORT = 65_535
MOST_LINE = 2**31 - 1
_LONGEST = 16  # digits of a text that may be read as a number
_MILLISECONDS = 1e11  # a moment beyond this is told in milliseconds


def number(value: Any) -> float | None:
    """A finite number, NumPy's included and whole ones as they are; truth values count as 0 and 1."""
    kind = type(value)
    if kind is int and -MOST <= value <= MOST:
        whole_one: int = value
        return whole_one
    if kind is float:
        return value if math.isfinite(value) else None
    if value is None or kind is str:
        return None
    if isinstance(value, Integral):
        found = int(value)
        return found if -MOST <= found <= MOST else _as_float(found)
    return _as_float(value) if isinstance(value, Real) or hasattr(value, "__float__") else None


def real(value: Any) -> float | None:
    """The same, as a float."""
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is int and -MOST <= value <= MOST:
        return float(value)
    found = number(value)
    return None if found is None else float(found)


def whole(value: Any) -> int | None:
    """A whole number, or a text of digits that is one."""
    kind = type(value)
    if kind is int:
        return value if -MOST <= value <= MOST else None
    if kind is float:
        return int(value) if value.is_integer() and -MOST <= value <= MOST else None
    if kind is str:
        digits = value.strip().removeprefix("-")
        return int(value) if len(digits) < _LONGEST and digits.isascii() and digits.isdigit() else None
    return None if (found := _plain(value)) is None else whole(found)


def count(value: Any) -> int | None:
    """A count: whole, not negative, and given as a number (NumPy's included)."""
    kind = type(value)
    if kind is int:
        return value if 0 <= value <= MOST else None
    if kind is not float:
        return None if (found := _plain(value)) is None else count(found)
    return int(value) if 0 <= value <= MOST and value.is_integer() else None


def line(value: Any) -> int | None:
    """The number of a line, or a text of digits that is one; below 1 where a program counts from the end."""
    found = whole(value)
    return found if found is not None and -MOST_LINE <= found <= MOST_LINE else None


def amount(value: Any, most: float = 1e9) -> float | None:
    """An amount: a number from 0 to `most`, NumPy's included."""
    kind = type(value)
    if kind is float or kind is int:
        return float(value) if 0 <= value <= most else None
    return None if (found := _plain(value)) is None else amount(found, most)


def money(value: Any) -> float | None:
    """US dollars."""
    return amount(value, MOST_DOLLARS)


def duration(value: Any) -> float | None:
    """Seconds that something took, or may take."""
    return amount(value, MOST_SECONDS)


def share(value: Any) -> float | None:
    """A number from 0 to 1."""
    return amount(value, 1.0)


def moment(stamp: Any) -> float | None:
    """A time in seconds since the epoch: ISO 8601 text, seconds or milliseconds (NumPy's numbers included)."""
    kind = type(stamp)
    if kind is int or kind is float:
        return None if not 0 < stamp < 1e15 else stamp / 1000 if stamp > _MILLISECONDS else float(stamp)
    if kind is str:
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return None if (found := _plain(stamp)) is None else moment(found)


def port(value: Any) -> int | None:
    """A port that can be connected to."""
    found = whole(value)
    return found if found is not None and 1 <= found <= MOST_PORT else None


def score(value: Any) -> float | None:
    """A score, of whatever scale: no larger than what can be squared and summed."""
    found = real(value)
    return found if found is not None and -MOST <= found <= MOST else None


def scores(values: Any) -> dict[str, float]:
    """The entries of a mapping that are scores."""
    pairs = values.items() if isinstance(values, Mapping) else ()
    return {str(name): found for name, value in pairs if (found := score(value)) is not None}


def _plain(value: Any) -> float | None:
    """A real number of another type than Python's own two, as one of these; `None` for all else, truth values and texts
    among it.
    """
    if value is None or isinstance(value, bool | str) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else _as_float(value)


def _as_float(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
