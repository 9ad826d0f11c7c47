"""Counts and moments as logs write them; what is none is `None`."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def count(value: Any) -> int | None:
    """A count of tokens, or `None` for what is none."""
    return value if type(value) is int and value >= 0 else None


def seconds(stamp: Any) -> float | None:
    """A moment in seconds since the epoch: ISO 8601 text, seconds or milliseconds."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 < stamp < 1e15:
        return stamp / 1000 if stamp > 1e11 else float(stamp)
    if isinstance(stamp, str):
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return None


def text(value: Any) -> str | None:
    """`value` if it is text with anything in it."""
    return value if isinstance(value, str) and value else None
