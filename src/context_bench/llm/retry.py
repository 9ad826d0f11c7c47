"""Whether to try again, and how long to wait before it: pure functions over status, headers and the time."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from context_bench.llm.pacing import Quota

#: Worth another attempt: the request was not refused for what it says.
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|d|h|m|s))+", re.IGNORECASE)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.\d+)?")
_RESET = re.compile(r"(?:x-)?ratelimit-reset(?:-.+)?|anthropic-ratelimit-.+-reset")
#: A bare number beyond this is a date (seconds, or milliseconds, since 1970), not a wait.
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_retries` further attempts; before the n-th, `base_delay` · 2ⁿ⁻¹ seconds, or what the provider asks for if that is longer.

    Neither wait is ever longer than `cap` seconds, whatever the provider says.
    """

    max_retries: int = 3
    base_delay: float = 1.0
    cap: float = 60.0

    def delay(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after attempt number `attempt` (from 1) has failed."""
        own = self.base_delay * 2.0 ** min(attempt - 1, 60)
        return min(self.cap, max(own, asked or 0.0))


def should_retry(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a reply with this status is worth another attempt; a provider that says so itself (`x-should-retry`) is believed."""
    told = headers.get("x-should-retry", "").strip().lower()
    if told in ("true", "false"):
        return told == "true"
    return status in RETRIED


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the provider wants to be asked again, uncapped and never negative; `None` if it does not say anything readable.

    `headers` have lower-case names. Read in this order: `retry-after-ms`, `retry-after` (seconds or HTTP date), and the moment at which a
    used-up quota is full again (`x-ratelimit-reset-*`, `anthropic-ratelimit-*-reset`). `now`: seconds since the epoch.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    told = headers.get("retry-after")
    if told is not None and (seconds := _seconds_or_date(told, now)) is not None:
        return seconds
    return _quota_reset(headers, now)


def _seconds_or_date(text: str, now: float) -> float | None:
    seconds = _number(text)
    if seconds is not None:
        return max(0.0, seconds)
    return _until(_date(text), now)


def _quota_reset(headers: Mapping[str, str], now: float) -> float | None:
    """The latest reset of the quotas that are used up; if none says so, the earliest of all."""
    used_up: list[float] = []
    others: list[float] = []
    for name, seconds in _resets(headers, now):
        remaining = _number(headers.get(name, ""))
        (used_up if remaining is not None and remaining <= 0 else others).append(seconds)
    return max(used_up) if used_up else min(others, default=None)


def quotas_told(headers: Mapping[str, str], now: float) -> list[Quota]:
    """The quotas that headers (lower-case names) tell in full: how much there is, how much is left, when it is full again."""
    found = []
    for remains, seconds in _resets(headers, now):
        left, whole = _number(headers.get(remains, "")), _number(headers.get(remains.replace("-remaining", "-limit"), ""))
        if left is not None and whole is not None and whole > 0:
            left = max(0.0, left)
            found.append(Quota("tokens" if "token" in remains else "requests", left, left / whole, seconds))
    return found


def _resets(headers: Mapping[str, str], now: float) -> Iterator[tuple[str, float]]:
    """(name of the header that tells what remains, seconds until the reset) of each quota."""
    for name, value in headers.items():
        found = _RESET.fullmatch(name)
        if found and (seconds := _reset(value.strip(), now)) is not None:
            yield name.replace("-reset", "-remaining"), seconds


def _reset(text: str, now: float) -> float | None:
    """A duration (`6m0s`, `20ms`, `7.5`), a Unix time in seconds or milliseconds, an ISO time or an HTTP date → seconds from now."""
    number = _number(text)
    if number is not None:
        if number > _EPOCH_MILLISECONDS:
            return max(0.0, number / 1000 - now)
        return max(0.0, number - now if number > _EPOCH_SECONDS else number)
    if _DURATION.fullmatch(text):
        seconds = sum(float(amount) * _UNITS[unit.lower()] for amount, unit in _PIECE.findall(text))
        return seconds if math.isfinite(seconds) else None
    return _until(_date(text), now)


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isascii() and _NUMBER.fullmatch(text) else None


def _date(text: str) -> datetime.datetime | None:
    """An HTTP date or an ISO time; one without a zone is taken as UTC."""
    for read in (parsedate_to_datetime, datetime.datetime.fromisoformat):
        try:
            when = read(text.strip())
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)
    return None


def _until(when: datetime.datetime | None, now: float) -> float | None:
    if when is None:
        return None
    try:
        seconds = when.timestamp() - now
    except (OverflowError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
