"""The ways in which published conversations write when something was said, as ISO 8601. The time of day is kept."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from context_bench.memory.datasets.haystacks import Dirt

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?"
_MONTH = r"(?P<month>[a-z]{3,9})\.?"
_YEAR = r"(?P<year>\d{4})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        # 2023/05/20 (Sat) 02:21
        rf"'?{_YEAR}[-/](?P<month>\d{{1,2}})[-/]{_DAY}(?:\s*\([a-z]+\))?(?:[t\s]\s*{_CLOCK})?'?(?:\s*\(?[a-z]+\)?)?",
        rf"{_CLOCK}\s+on\s+{_DAY}\s+{_MONTH},?\s+{_YEAR}",  # 1:56 pm on 8 May, 2023
        rf"{_MONTH}[-\s]{_DAY},?[-\s]+{_YEAR}(?:,?\s+{_CLOCK})?",  # March-15-2024
        rf"{_DAY}\s+{_MONTH},?\s+{_YEAR}(?:,?\s+{_CLOCK})?",  # 8 May, 2023
    )
]


def iso(text: str) -> str | None:
    """ISO 8601 of a date, with its time of day if it has one; `None` for what is no date.

    >>> iso("1:56 pm on 8 May, 2023"), iso("2023/05/20 (Sat) 02:21"), iso("March-15-2024")
    ('2023-05-08T13:56:00', '2023-05-20T02:21:00', '2024-03-15')
    """
    plain = " ".join(text.split())
    if re.match(r"\d{4}-\d{2}-\d{2}", plain, re.ASCII):
        try:
            found = datetime.fromisoformat(plain)
        except ValueError:
            pass
        else:
            return found.isoformat() if len(plain) > len("2023-05-20") else found.date().isoformat()
    for form in _FORMS:
        if match := form.fullmatch(plain):
            return _made({name: value for name, value in match.groupdict().items() if value})
    return None


def _made(parts: dict[str, str]) -> str | None:
    month = parts["month"]
    number = int(month) if month.isdigit() else _MONTHS.index(month[:3].lower()) + 1 if month[:3].lower() in _MONTHS else 0
    hour, half = int(parts.get("hour", 0)), parts.get("half", "").lower()[:1]
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    try:
        found = datetime(int(parts["year"]), number, int(parts["day"]), hour, int(parts.get("minute", 0)), int(parts.get("second", 0)))
    except ValueError:
        return None
    return found.isoformat() if "hour" in parts else found.date().isoformat()


def when(value: Any, dirt: Dirt, what: str = "dates") -> str | None:
    """A date as ISO 8601, or in the source's own words where they cannot be read (counted), or `None` where there is none (counted)."""
    if not isinstance(value, str | int | float) or isinstance(value, bool) or str(value).strip() in ("", "?"):
        dirt.add(f"{what} missing")
        return None
    found = iso(str(value))
    if found is None:
        dirt.add(f"{what} that could not be read")
        return " ".join(str(value).split())
    return found
