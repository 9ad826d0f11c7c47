"""Numbers from outside, read in one place: wires, logs, journals, imports, catalogues and stores all ask here.

What is no such number, or larger than anything it can mean, is `None`. Whatever is returned can be stored in any of our
databases, written as JSON, and summed a million times. The tokens of a reply are read in the form of each program, by a
table of names; so are the records of a tap and of calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import datetime
from numbers import Integral, Real
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Call, Forwarded, Usage

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


_Names = tuple[tuple[str, ...], ...]


def _names(*told: str) -> _Names:
    """The ways to a value, in order of preference: `a/b` is `b` in the object `a`."""
    return tuple(tuple(each.split("/")) for each in told)


@dataclass(frozen=True, slots=True)
class Form:
    """Places of the counts in a program's usage. `apart`: its input leaves out what came from a cache or went into one;
    ours holds it.
    """

    input: _Names
    output: _Names
    cache_read: _Names = ()
    cache_write: _Names = ()
    reasoning: _Names = ()
    cache_write_1h: _Names = ()
    apart: bool = False


OWN = Form(
    _names("input_tokens"),
    _names("output_tokens"),
    _names("cache_read"),
    _names("cache_write"),
    _names("reasoning_tokens"),
    _names("cache_write_1h"),
)
OPENAI_CHAT = Form(
    _names("prompt_tokens"),
    _names("completion_tokens"),
    _names("prompt_tokens_details/cached_tokens"),
    _names("prompt_tokens_details/cache_write_tokens"),
    _names("completion_tokens_details/reasoning_tokens"),
)
OPENAI_RESPONSES = Form(
    _names("input_tokens"),
    _names("output_tokens"),
    _names("input_tokens_details/cached_tokens"),
    _names("input_tokens_details/cache_write_tokens"),
    _names("output_tokens_details/reasoning_tokens"),
)
#: Logs in which either stands, and Codex's own names.
OPENAI = Form(
    OPENAI_CHAT.input + OPENAI_RESPONSES.input,
    OPENAI_CHAT.output + OPENAI_RESPONSES.output,
    OPENAI_CHAT.cache_read + OPENAI_RESPONSES.cache_read + _names("cached_input_tokens"),
    OPENAI_CHAT.cache_write + OPENAI_RESPONSES.cache_write,
    OPENAI_CHAT.reasoning + OPENAI_RESPONSES.reasoning + _names("reasoning_output_tokens"),
)
ANTHROPIC = Form(
    _names("input_tokens"),
    _names("output_tokens"),
    _names("cache_read_input_tokens"),
    _names("cache_creation_input_tokens"),
    cache_write_1h=_names("cache_creation/ephemeral_1h_input_tokens"),
    apart=True,
)
INSPECT = Form(
    _names("input_tokens"),
    _names("output_tokens"),
    _names("input_tokens_cache_read"),
    _names("input_tokens_cache_write"),
    _names("reasoning_tokens"),
    apart=True,
)
#: Rows of ours, or with OpenAI's names.
ROW = replace(OWN, input=OWN.input + OPENAI_CHAT.input, output=OWN.output + OPENAI_CHAT.output)
ATIF = Form(_names("prompt_tokens"), _names("completion_tokens"), _names("cached_tokens"))
ATIF_TOTAL = Form(_names("total_prompt_tokens"), _names("total_completion_tokens"), _names("total_cached_tokens"))
#: Cline and Cursor.
EDITORS = Form(
    _names("inputTokens"), _names("outputTokens"), _names("cacheReadTokens"), _names("cacheWriteTokens"), apart=True
)
GEMINI = Form(_names("input"), _names("output"), _names("cached"), reasoning=_names("thoughts"))
GEMINI_TOTAL = Form(_names("input_tokens"), _names("output_tokens"), _names("cached"))
OPENCODE = Form(
    _names("input"), _names("output"), _names("cache/read"), _names("cache/write"), _names("reasoning"), apart=True
)
OPENHANDS = Form(
    _names("prompt_tokens"), _names("completion_tokens"), _names("cache_read_tokens"), _names("cache_write_tokens")
)
SWE_AGENT = Form(_names("tokens_sent"), _names("tokens_received"))
OTEL = Form(
    _names("gen_ai.usage.input_tokens"),
    _names("gen_ai.usage.output_tokens"),
    _names("gen_ai.usage.cache_read.input_tokens"),
    _names("gen_ai.usage.cache_creation.input_tokens"),
    _names("gen_ai.usage.reasoning.output_tokens"),
)


def usage_of(raw: Any, form: Form = OWN) -> Usage | None:
    """The counts that an object tells in this form; `None` where it tells none. A count that cannot be one is absent,
    like one not told; what a prompt is said to have from the cache, or put there, is no more than the prompt.
    """
    if not (type(raw) is dict or isinstance(raw, Mapping)):  # the first is most of them and far cheaper to tell
        return None
    given, made = _read(raw, form.input), _read(raw, form.output)
    read, written, thought = _read(raw, form.cache_read), _read(raw, form.cache_write), _read(raw, form.reasoning)
    if given is None and made is None and read is None and written is None and thought is None:
        return None
    if form.apart and given is not None:
        given = count(given + (read or 0) + (written or 0))
    elif given is not None and (read or 0) + (written or 0) > given:
        read = None if read is None else min(read, given)
        written = None if written is None else min(written, given - (read or 0))
    return Usage(given, made, read, written, thought, _read(raw, form.cache_write_1h) or None)


def _read(raw: Any, names: _Names) -> int | None:
    for way in names:
        value = raw
        for name in way:
            value = value.get(name) if type(value) is dict or isinstance(value, Mapping) else None
        if value is not None:
            return count(value)
    return None


_TEXTS = frozenset(("id", "mark", "matched_by", "wire", "method", "path", "model", "error"))
_COUNTED = frozenset(("status", "tokens", "uncounted_parts", "bytes_in", "bytes_out", "prefix_tokens", "window"))
_TIMES: dict[str, Callable[[Any], float | None]] = {"started": real, "seconds": duration, "ttft": duration}
_NUMBERS: dict[str, Callable[[Any], float | None]] = {**dict.fromkeys(_COUNTED, count), **_TIMES}
_DEFAULTS = {each.name: each.default for each in fields(Forwarded) if each.name in _NUMBERS}


def forwarded_of(values: Any) -> Forwarded:
    """The record that JSON tells of; fields that a newer tap added are left out, a number that is none is absent.
    Raises `BadInput`.
    """
    if not isinstance(values, Mapping):
        raise BadInput(f"not a record of a tap: {values!r:.80}, expected an object")
    given: dict[str, Any] = {}
    for name in (each.name for each in fields(Forwarded) if each.name in values):
        value = values[name]
        if name in _NUMBERS:
            found = _NUMBERS[name](value)
            value = (
                _DEFAULTS[name] if found is None and _DEFAULTS[name] is not MISSING else 0.0 if found is None else found
            )
        elif name in _TEXTS and not (value is None or isinstance(value, str)):
            raise BadInput(f"not a record of a tap: {name} is {value!r:.80}, expected text")
        given[name] = value
    if given.get("usage") is not None:
        given["usage"] = usage_of(given["usage"])
    if not isinstance(given.setdefault("facts", {}), Mapping):
        given["facts"] = {}
    try:
        return Forwarded(**given)
    except TypeError as error:
        raise BadInput(f"not a record of a tap: {error}") from None


def bounded_calls(calls: Iterable[Call]) -> list[Call]:
    """The calls with what can be kept of them for sure: whom they asked, when, and what was billed. No bodies."""
    return [
        Call(
            call.account if isinstance(call.account, str) else "system",
            call.model if isinstance(call.model, str) else "",
            call.url if isinstance(call.url, str) else "",
            real(call.started) or 0.0,
            seconds=duration(call.seconds) or 0.0,
            ttft=duration(call.ttft),
            waited=duration(call.waited) or 0.0,
            attempt=count(call.attempt) or 1,
            status=count(call.status),
            sent_tokens=count(call.sent_tokens),
            exact=call.exact is True,
            usage=None if call.usage is None else usage_of(asdict(call.usage)),
            cost=money(call.cost),
            finish_reason=call.finish_reason if isinstance(call.finish_reason, str) else None,
            error=call.error if isinstance(call.error, str) else None,
            in_flight=count(call.in_flight),
        )
        for call in calls
    ]
