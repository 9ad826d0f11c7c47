"""Records made of JSON: the tokens of a reply in the form of each program, by a table of names, and what a tap saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import count, duration, money, real
from context_bench.core.records import Call, Forwarded, Usage

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
    like one not told.
    """
    if not (type(raw) is dict or isinstance(raw, Mapping)):  # the first is most of them and far cheaper to tell
        return None
    given, made = _read(raw, form.input), _read(raw, form.output)
    read, written, thought = _read(raw, form.cache_read), _read(raw, form.cache_write), _read(raw, form.reasoning)
    if given is None and made is None and read is None and written is None and thought is None:
        return None
    if form.apart and given is not None:
        given = count(given + (read or 0) + (written or 0))
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
