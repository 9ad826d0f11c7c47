"""Failures of an attempt: their class, the words to show, and whether and when to try again.

Pure functions over status, headers, body and the time.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from context_bench.core.errors import (
    BadReply,
    ContextTooLong,
    Declined,
    EmptyReply,
    Filtered,
    OutputSpent,
    RateLimited,
    Refused,
    ServerFailed,
    SystemFailed,
    TimedOut,
    Unreachable,
)
from context_bench.llm.limits import Quota
from context_bench.llm.redact import redact, without_pieces
from context_bench.llm.transport.response import CannotConnect, NotHttp, NotSecure, Oversized, Unusable
from context_bench.wire.apis.shared import Reply, error_text, load_body

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
    """`max_retries` further attempts; before the n-th, `base_delay` · 2ⁿ⁻¹ seconds, or what the provider asks for if
    that is longer.

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
    """Decide by its status if a reply is worth another attempt; the provider's `x-should-retry` decides first."""
    told = headers.get("x-should-retry", "").strip().lower()
    if told in ("true", "false"):
        return told == "true"
    return status in RETRIED


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the provider wants to be asked again, uncapped and never negative; `None` if it does not say
    anything readable.

    `headers` have lower-case names. Read in this order: `retry-after-ms`, `retry-after` (seconds or HTTP date), and the
    moment at which a used-up quota is full again (`x-ratelimit-reset-*`, `anthropic-ratelimit-*-reset`). `now`: seconds
    since the epoch.
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


def quotas_of(headers: Mapping[str, str], now: float) -> list[Quota]:
    """The quotas that headers (lower-case names) tell in full: how much there is, how much is left, when it is full
    again.
    """
    found = []
    for remains, seconds in _resets(headers, now):
        left, whole = (
            _number(headers.get(remains, "")),
            _number(headers.get(remains.replace("-remaining", "-limit"), "")),
        )
        if left is not None and whole is not None and whole > 0:
            left = max(0.0, left)
            found.append(Quota("tokens" if "token" in remains else "requests", left, left / whole, seconds))
    return found


_USED = re.compile(r"anthropic-ratelimit-unified-(\d{1,3}[hd](?:_(?:opus|sonnet|haiku))?)-utilization")
_CODEX_USED = re.compile(r"(x-codex-(?:primary|secondary))-used-percent")
_LEFT = re.compile(
    r"(anthropic-ratelimit-(?:requests|tokens|input-tokens|output-tokens)-|x-ratelimit-)remaining(-(?:requests|tokens))?"
)
_WINDOWS = {"5h": "five hours", "7d": "week", "300": "five hours", "10080": "week"}
_MOST_USED = 10.0  # times a quota
_MOST_MINUTES = 1e6


def used_quotas(headers: Mapping[str, str]) -> dict[str, float]:
    """Quota → share of it that was used up, as headers (lower-case names) tell: of a plan's `five hours` and `week`, or
    of a key's `requests` and `tokens` in a minute. More than 1 is beyond the quota.
    """
    found: dict[str, float] = {}
    for name, value in headers.items():
        if (told := _number(value)) is None:
            continue
        if (unified := _USED.fullmatch(name)) is not None:
            found[_WINDOWS.get(unified[1], unified[1])] = told
        elif (codex := _CODEX_USED.fullmatch(name)) is not None:
            minutes = _number(headers.get(f"{codex[1]}-window-minutes", ""))
            span = f"{minutes:.0f}" if minutes is not None and 0 < minutes < _MOST_MINUTES else ""
            found[_WINDOWS.get(span, f"{span} minutes" if span else codex[1].removeprefix("x-codex-"))] = told / 100
        elif (left := _LEFT.fullmatch(name)) is not None:
            whole = _number(headers.get(name.replace("remaining", "limit"), ""))
            kind = (left[2] or left[1].removeprefix("anthropic-ratelimit")).strip("-").replace("-", " ")
            if whole and kind != "x ratelimit":
                found[kind] = 1 - told / whole
    return {name: used for name, used in sorted(found.items()) if 0 <= used <= _MOST_USED}


def _resets(headers: Mapping[str, str], now: float) -> Iterator[tuple[str, float]]:
    """(name of the header that tells what remains, seconds until the reset) of each quota."""
    for name, value in headers.items():
        if "ratelimit" not in name or _RESET.fullmatch(name) is None:
            continue
        if (seconds := _reset(value.strip(), now)) is not None:
            yield name.replace("-reset", "-remaining"), seconds


def _reset(text: str, now: float) -> float | None:
    """A duration (`6m0s`, `20ms`, `7.5`), a Unix time in seconds or milliseconds, an ISO time or an HTTP date → seconds
    from now.
    """
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


_LONGEST = 600
#: Characters that a reply may say.
_MOST_SAID = 4 * 2**20
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size_error|prompt is too long|maximum context length"
    r"|exceeds? the (?:available |model'?s? )?(?:maximum )?context|input length and `?max_tokens`? exceed"
    r"|context window (?:of|is|limit|exceeded)",
    re.IGNORECASE,
)
_STATUS_OF_TYPE = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "timeout_error": 504,
}
_TOO_MANY = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Failure:
    """Failure of an attempt to give an answer. `asked`: seconds the provider wants us to wait. `billed`: it may have
    cost money. `absent`: nobody was there to take the request.
    """

    error: SystemFailed
    again: bool = False
    asked: float | None = None
    limited: bool = False
    billed: bool = False
    absent: bool = False
    body: Any = None


def of_status(
    status: int, headers: Mapping[str, str], body: bytes, *, where: str, now: float, secrets: Sequence[str]
) -> Failure:
    """A reply whose status is not 2xx. `headers` have lower-case names, `where` is the URL without credentials."""
    text = without_pieces(body.decode("utf-8", "replace"), partial(redact, secrets=secrets))
    words = redact(_words(text), secrets)[:_LONGEST]
    location = headers.get("location")
    if 300 <= status < 400 and location:
        words = f"redirected to {redact(location, secrets)[:200]}; give that as the base URL if it is right"
    failure = _classified(status, text, f"HTTP {status} from {where}: {words or 'no explanation'}")
    failure.again = failure.again and should_retry(status, headers)
    failure.asked = asked_wait(headers, now) if failure.again else None
    failure.body = redact(text, secrets)[: 4 * _LONGEST]
    return failure


def of_error_in_reply(
    error: Any, headers: Mapping[str, str], *, where: str, now: float, secrets: Sequence[str]
) -> Failure:
    """An `error` told in a reply or stream whose status was 200, in whatever form; the text of one is enough.
    `headers`: of that reply.
    """
    words = error_text(error)
    status = _status_of(error, words)
    message = (
        f"Unexpected response: an error in a reply with HTTP 200 from {where}: {redact(words, secrets)[:_LONGEST]}"
    )
    if status is None:
        kind = ContextTooLong if _TOO_LONG.search(words) else BadReply
        return Failure(kind(message), billed=True)
    failure = _classified(status, words, message)
    failure.again, failure.billed = failure.again and should_retry(status, headers), True
    failure.asked = asked_wait(headers, now) if failure.again else None
    return failure


def of_exception(
    error: Exception, *, where: str, seconds: float | None, deadline: bool, secrets: Sequence[str]
) -> Failure:
    """An exchange that failed, broke or took too long: `TimeoutError` or a `Trouble`. `seconds`: the time allowed;
    `deadline`: it was the whole example's.
    """
    if isinstance(error, TimeoutError):
        if deadline:
            return Failure(
                TimedOut(f"No whole reply from {where} before the example's deadline (--example-timeout)"), billed=True
            )
        return Failure(
            TimedOut(f"No whole reply from {where} within {seconds:g} s (--timeout)"), again=True, billed=True
        )
    words = redact(" ".join(str(error).split()), secrets)[:_LONGEST] or type(error).__name__
    if isinstance(error, Unusable):
        return Failure(Unreachable(f"Could not connect: {where} is no usable URL"))
    if isinstance(error, NotSecure):
        return Failure(Unreachable(f"Could not connect to {where} securely: {words}"))
    if isinstance(error, CannotConnect):
        return Failure(Unreachable(f"Could not connect to {where}: {words}"), again=True, absent=True)
    if isinstance(error, Oversized):
        return unexpected(words[:200], where)
    if isinstance(error, NotHttp):
        return Failure(
            BadReply(f"Unexpected response from {where}: not readable as HTTP ({words[:200]})"), again=True, billed=True
        )
    return Failure(
        Unreachable(f"The connection to {where} broke before the reply was whole: {words}"), again=True, billed=True
    )


def unexpected(what: object, where: str) -> Failure:
    """A reply that cannot be an answer, whatever it may have cost."""
    return Failure(BadReply(f"Unexpected response from {where}: {what}"), billed=True)


def too_long(reply: Reply, where: str) -> Failure | None:
    """A reply that says more than a model does, its calls of tools included; `None` if it does not."""
    texts = [reply.text, reply.reasoning, reply.refusal, *(call.get("arguments") for call in reply.tool_calls)]
    size = sum(len(text) for text in texts if isinstance(text, str))
    return unexpected(f"an answer of {size:,} characters", where) if size > _MOST_SAID else None


def of_reply(reply: Reply, *, tool_calls_ok: bool) -> Failure | None:
    """A reply that is well-formed but no answer; `None` if it is one. An empty text is never an answer."""
    text = (reply.text or "").strip()
    if reply.refusal and not text:
        return Failure(Declined(f"The model refused: {reply.refusal[:_LONGEST]}"), billed=True)
    if reply.finish_reason == "content_filter":
        return Failure(
            Filtered("The provider's content filter " + ("cut the answer short" if text else "held the answer back")),
            billed=True,
        )
    if text or (reply.tool_calls and tool_calls_ok):
        return None
    if reply.tool_calls:
        names = ", ".join(str(call.get("name")) for call in reply.tool_calls[:5])
        return Failure(BadReply(f"The model called {names} instead of answering"), billed=True)
    if reply.finish_reason == "length":
        after = " on reasoning" if reply.reasoning else ""
        return Failure(
            OutputSpent(f"No text: the output limit was used up{after} (finish_reason=length); raise --max-tokens"),
            billed=True,
        )
    kind = "null content" if reply.text is None else "empty text"
    return Failure(EmptyReply(f"The reply holds no answer: {kind} (finish_reason={reply.finish_reason})"), billed=True)


def not_json(body: bytes, content_type: str, *, where: str, secrets: Sequence[str]) -> Failure:
    """A reply with status 200 that is not JSON, such as a login page."""
    text = without_pieces(body[:20_000].decode("utf-8", "replace"), partial(redact, secrets=secrets))
    shown = redact(_plain(text), secrets)[:200]
    return Failure(
        BadReply(f"invalid JSON from {where} ({content_type or 'no content type'}): {shown or 'empty body'}"),
        billed=True,
    )


def says_too_long(text: str) -> bool:
    """True if a provider's words say that the request does not fit the model's context window."""
    return _TOO_LONG.search(text) is not None


def _classified(status: int, text: str, message: str) -> Failure:
    if status in (400, 413, 422, 500) and _TOO_LONG.search(text):
        return Failure(ContextTooLong(message))
    if status == 429:
        return Failure(RateLimited(message), again="insufficient_quota" not in text, limited=True)
    if status in (408, 504):
        return Failure(TimedOut(message), again=True)
    if status >= 500:
        return Failure(ServerFailed(message), again=True)
    return Failure(Refused(message), again=True)


def _status_of(error: Any, words: str) -> int | None:
    """The status that an error object stands for: its number, or what its type means."""
    if isinstance(error, Mapping):
        for name in ("status", "code", "status_code"):
            number = error.get(name)
            if isinstance(number, str) and number.isascii() and number.isdigit():
                number = int(number[:4])
            if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
                return number
    found = re.findall(r"[a-z_]+", words[:200].lower())
    typed = next((_STATUS_OF_TYPE[word] for word in found if word in _STATUS_OF_TYPE), None)
    return 429 if typed is None and _TOO_MANY.search(words[:200]) else typed


def _words(text: str) -> str:
    """The provider's own words in an error body: the `error` object, `detail` or `message`, else the text without
    tags.
    """
    try:
        body = load_body(text)
    except ValueError:
        return _plain(text[:20_000])
    if isinstance(body, Mapping):
        for name in ("error", "errors", "detail", "message"):
            if body.get(name):
                return " ".join(error_text(body[name]).split())
    return _plain(text[:20_000])


def _plain(text: str) -> str:
    # no tag ends behind the last ">": to look for its end from each "<" there would take the square of the length
    tagged, end, rest = text.rpartition(">")
    return " ".join((_TAGS.sub(" ", tagged + end) + rest).split())
