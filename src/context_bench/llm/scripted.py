r"""A deterministic model driven by a file: for tests, for documentation, for agents without a model.

The file is JSON, TOML (one table) or JSONL (one rule a line). Every key is optional:

```toml
model = "scripted"          # name in GET /v1/models; replies carry the model that was asked for
default = "I do not know."  # text of the reply when no rule and no answer key applies
wrong = "I do not know."    # what the answer key says when the evidence is missing

[answer_key]                # question = { answer, evidence, wrong }; evidence: one text or a list (all must be there)
"How long is the gauge?" = { answer = "4.2 m", evidence = "gauge of 4.2 m" }

[[rules]]                   # the first rule whose conditions all hold answers
when.text = "(?i)weather"   # regular expression, searched in the text of all messages
when.last = "^Berlin"       # … in the last message of role user
when.system = "…"           # … in the text of all system and developer messages
when.model = "^gpt"         # … in the model's name
when.wire = "anthropic"     # openai-chat, openai-responses, anthropic
when.stream = true
when.turn = 2               # number of user messages so far (tool results do not count), a number or a list
when.step = 1               # number of tool results so far, a number or a list
when.header = { x-team = "a" }   # regular expressions, header names in lower case
first = 2                   # only for the first 2 attempts of the very same request (then as if the rule were not there)
times = 3                   # only for the first 3 requests that match at all
calls = [1, 4]              # only for these calls of the server, counted from 1
share = 0.1                 # only for this share of requests, chosen by a hash of the prompt (and `seed`)
seed = 0

text = "It rains."          # what is said; null = null content
tool_calls = [{ name = "read_file", arguments = { path = "a.txt" }, id = "call_1" }]   # ids are made up if missing
finish_reason = "stop"      # default: tool_calls if there are any, else stop; also length, content_filter
refusal = "…"
reasoning = "…"
usage = { input_tokens = 10, output_tokens = 2, cache_read = 4 }   # default: counted; false: none is told

status = 429                # an error in the provider's own form, with `error` (a text, or {message, type, code, …}: sent as it is)
error = "slow down"         # with status 200 (or none): an error object in a successful reply
retry_after = 2             # header Retry-After: number or text as it is; { ms = 50 } → retry-after-ms; { date_in = 5 } → HTTP date
headers = { x-ratelimit-reset-requests = "1s" }
delay = 0.5                 # seconds before the first byte; "forever"
chunk_delay = 0.01          # seconds between chunks
chunk_bytes = 7             # cut the bytes of the reply so, wherever that is
pieces = 8                  # deltas per text of a stream
disconnect = "mid-body"     # before-headers, mid-body, mid-stream
reset = true                # with a TCP reset
malformed = true            # the first half of the JSON; a text: sent as the body as it is
html = true                 # an HTML page with status 200; a text: that page
empty_choices = true        # no choices (openai-chat), no content or output (others)
content_length = 10         # a wrong Content-Length
done = false                # leave the stream's end mark out
stream_error = "overloaded" # the stream ends in its middle with an error event
line_end = "\r"             # line ends of a stream: "\n", "\r\n", "\r"
comments = true             # a comment before every event of a stream
```

With an answer key a question counts as asked when its text is in the prompt (the one that comes last, if several are);
the answer is right only if the evidence is in the prompt too. White space is compared loosely. Rules go before the key.
So quality follows from what a proxy lets through, exactly and repeatably. Tokens are counted with `core.tokens`.
"""  # noqa: E501

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields as fields_of
from email.utils import formatdate
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadSpec
from context_bench.core.keys import seed_of, stable_hash
from context_bench.core.machine import SYSTEM_CLOCK, Clock, file_text
from context_bench.core.records import Usage
from context_bench.core.templates import load_toml
from context_bench.llm.responders import Delivery, ResponderError, Staged, counted, prompt_of
from context_bench.wire.apis.shared import Reply, arguments_text, dump
from context_bench.wire.request import WireRequest

_AS_THEY_ARE = {
    "chunk_delay",
    "chunk_bytes",
    "pieces",
    "disconnect",
    "reset",
    "content_length",
    "done",
    "line_end",
    "comments",
}
_PAGE = (
    "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"
)
_EMPTY = {"openai-chat": "choices", "openai-responses": "output", "anthropic": "content"}
_DEFAULT = "I do not know."


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """One entry of the answer key, white space already squeezed."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    wrong: str | None = None


class Scripted:
    """Answers by rules and an answer key; see the module's text for the format.

    `script`: a path (`.json`, `.jsonl`, `.toml`), a mapping of that form, or a list of rules. `BadSpec` lists the
    script's faults.
    """

    name = "scripted"

    def __init__(
        self, script: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]] = (), *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        thing, spec = _read(script)
        faults = list(_faults(spec))
        if faults:
            raise BadSpec(thing, faults)
        self._spec, self._clock = spec, clock
        self._rules = [_Rule(raw, number) for number, raw in enumerate(spec.get("rules", []))]
        self._key = list(_answers(spec.get("answer_key", {})))
        self._calls = 0

    def fingerprint(self) -> dict[str, Any]:
        """Identity of its answers."""
        return {"responder": "scripted", "script": stable_hash(self._spec)}

    async def models(self) -> list[str]:
        """The one model of the script."""
        return [str(self._spec.get("model", "scripted"))]

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply | Staged:
        """The first matching rule, else the answer key, else the default."""
        self._calls += 1
        prompt = prompt_of(request)
        for rule in self._rules:
            if rule.holds(request, headers, prompt, self._calls):
                return self._perform(rule.raw, request, prompt)
        return _counted(Reply(text=self._by_key(prompt), finish_reason="stop", model=request.model), request)

    def _by_key(self, prompt: str) -> str:
        """The key's answer to the question asked last in `prompt`, right only with the evidence."""
        text = squeeze(prompt)
        asked = [(text.rfind(known.question), len(known.question), known) for known in self._key]
        place, _, known = max(asked, key=lambda item: item[:2], default=(-1, 0, None))
        if known is None or place < 0:
            return str(self._spec.get("default", _DEFAULT))
        if all(evidence in text for evidence in known.evidence):
            return known.answer
        return known.wrong if known.wrong is not None else str(self._spec.get("wrong", _DEFAULT))

    def _perform(self, raw: Mapping[str, Any], request: WireRequest, prompt: str) -> Reply | Staged:
        headers = self._headers(raw)
        delivery = Delivery(headers=headers)
        for name in _AS_THEY_ARE & raw.keys():
            setattr(delivery, name, raw[name])
        if "stream_error" in raw:
            delivery.stream_error = ResponderError(529, str(raw["stream_error"]))
        delivery.delay = float("inf") if raw.get("delay") == "forever" else float(raw.get("delay", 0.0))
        if "status" in raw or "error" in raw:
            _as_error(delivery, raw, request.wire)
            return Staged(Reply(), delivery)
        reply = self._says(raw, request, prompt)
        _as_body(delivery, raw, reply, request)
        return Staged(reply, delivery)

    def _headers(self, raw: Mapping[str, Any]) -> dict[str, str]:
        headers = {str(name): str(value) for name, value in raw.get("headers", {}).items()}
        wait = raw.get("retry_after")
        if isinstance(wait, Mapping):
            if "ms" in wait:
                headers["retry-after-ms"] = str(wait["ms"])
            if "date_in" in wait:
                headers["Retry-After"] = formatdate(self._clock.now() + float(wait["date_in"]), usegmt=True)
        elif wait is not None:
            headers["Retry-After"] = str(wait)
        return headers

    def _says(self, raw: Mapping[str, Any], request: WireRequest, prompt: str) -> Reply:
        calls = [
            {
                "id": call.get("id") or f"call_{stable_hash([prompt, i], 20)}",
                "name": call.get("name"),
                "arguments": arguments_text(call.get("arguments")),
            }
            for i, call in enumerate(raw.get("tool_calls", []))
        ]
        text = raw["text"] if "text" in raw else None if calls or raw.get("refusal") else self._by_key(prompt)
        reply = Reply(
            text=text,
            tool_calls=calls,
            finish_reason=raw.get("finish_reason") or ("tool_calls" if calls else "stop"),
            model=request.model,
            refusal=raw.get("refusal"),
            reasoning=raw.get("reasoning"),
        )
        usage = raw.get("usage")
        if usage is not False:
            reply = _counted(reply, request)
        if isinstance(usage, Mapping):
            reply.usage = Usage(**usage)
        return reply


def _counted(reply: Reply, request: WireRequest) -> Reply:
    reply.usage = counted(reply, request)
    return reply


def _as_error(delivery: Delivery, raw: Mapping[str, Any], wire: str) -> None:
    given, delivery.status = raw.get("error"), int(raw.get("status", 200))
    message = given if isinstance(given, str) else f"scripted error {delivery.status}"
    body = ResponderError(delivery.status, message).body(wire)
    if isinstance(given, Mapping):
        body["error"] = {**({"message": message} if "message" not in given else {}), **given}
    delivery.body = dump(body)
    if raw.get("html") or isinstance(raw.get("malformed"), str):
        _as_body(delivery, raw, Reply(), WireRequest(wire, None, []))


def _as_body(delivery: Delivery, raw: Mapping[str, Any], reply: Reply, request: WireRequest) -> None:
    """Replace the body where the rule asks for one that is wrong."""
    from context_bench.wire.apis import render_reply

    if raw.get("html"):
        delivery.body, delivery.content_type = (
            (raw["html"] if isinstance(raw["html"], str) else _PAGE).encode(),
            "text/html",
        )
    elif isinstance(raw.get("malformed"), str):
        delivery.body = raw["malformed"].encode("utf-8", "surrogatepass")
    elif raw.get("malformed") or raw.get("empty_choices"):
        body = render_reply(request.wire, reply, request)
        if raw.get("empty_choices"):
            body[_EMPTY[request.wire]] = []
        whole = dump(body)
        delivery.body = whole[: len(whole) // 2] if raw.get("malformed") else whole


class _Rule:
    """One rule with its compiled expressions and its counters."""

    def __init__(self, raw: Mapping[str, Any], number: int) -> None:
        self.raw, self._number = raw, number
        self._when: Mapping[str, Any] = raw.get("when", {})
        self._patterns = {
            name: re.compile(self._when[name]) for name in ("text", "last", "system", "model") if name in self._when
        }
        self._headers = {
            name.lower(): re.compile(str(pattern)) for name, pattern in self._when.get("header", {}).items()
        }
        self._matched = 0
        self._attempts: Counter[str] = Counter()

    def holds(self, request: WireRequest, headers: Mapping[str, str], prompt: str, call: int) -> bool:
        """Count the request towards the rule's limits if its conditions hold. Returns True if this rule answers."""
        if not self._matches(request, headers, prompt):
            return False
        raw = self.raw
        if "calls" in raw and call not in _numbers(raw["calls"]):
            return False
        if "share" in raw and seed_of("share", raw.get("seed", 0), self._number, prompt) / 2**64 >= raw["share"]:
            return False
        if "first" in raw:
            key = stable_hash([request.wire, request.model, prompt], 16)
            self._attempts[key] += 1
            if self._attempts[key] > raw["first"]:
                return False
        self._matched += 1
        return "times" not in raw or self._matched <= int(raw["times"])

    def _matches(self, request: WireRequest, headers: Mapping[str, str], prompt: str) -> bool:
        when, messages = self._when, request.messages
        texts = {
            "text": lambda: prompt,
            "last": lambda: next((message.text for message in reversed(messages) if message.role == "user"), ""),
            "system": lambda: "\n".join(
                message.text for message in messages if message.role in ("system", "developer")
            ),
            "model": lambda: request.model or "",
        }
        if any(not pattern.search(texts[name]()) for name, pattern in self._patterns.items()):
            return False
        if any(not pattern.search(headers.get(name, "")) for name, pattern in self._headers.items()):
            return False
        if ("wire" in when and when["wire"] != request.wire) or ("stream" in when and when["stream"] != request.stream):
            return False
        roles = Counter(message.role for message in messages)
        return ("turn" not in when or roles["user"] in _numbers(when["turn"])) and (
            "step" not in when or roles["tool"] in _numbers(when["step"])
        )


def squeeze(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())


def _numbers(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


def _answers(key: Any) -> Iterable[KeyedAnswer]:
    entries = (
        [{"question": question, **_entry(entry)} for question, entry in key.items()]
        if isinstance(key, Mapping)
        else key
    )
    for entry in entries:
        evidence = entry.get("evidence", [])
        texts = [evidence] if isinstance(evidence, str) else evidence
        yield KeyedAnswer(squeeze(entry["question"]), entry["answer"], tuple(map(squeeze, texts)), entry.get("wrong"))


def _entry(entry: Any) -> Any:
    return {"answer": entry} if isinstance(entry, str) else entry


def _read(script: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    if isinstance(script, Mapping):
        return "The script", dict(script)
    if not isinstance(script, str | Path):
        return "The script", {"rules": list(script)}
    path = Path(script)
    thing = f"The script {path}"
    try:
        text = file_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSpec(thing, [f"it cannot be read: {error}"]) from None
    try:
        if path.suffix == ".toml":
            return thing, load_toml(text)
        if path.suffix == ".jsonl":
            return thing, {"rules": [json.loads(line) for line in text.split("\n") if line.strip()]}
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSpec(thing, [f"it is not {path.suffix.lstrip('.').upper() or 'JSON'}: {error}"]) from None
    if isinstance(loaded, list):
        return thing, {"rules": loaded}
    if not isinstance(loaded, dict):
        raise BadSpec(thing, ["it must hold an object or a list of rules"])
    return thing, loaded


# Validation: one table of what each key takes
# ---------------------------------------------------------------------------------------------


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _counts(value: Any) -> bool:
    return _count(value) or (isinstance(value, list) and all(map(_count, value)))


def _texts(value: Any) -> bool:
    return _text(value) or (isinstance(value, list) and all(map(_text, value)))


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _plain_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(name) and _scalar(inner) for name, inner in value.items())


def _calls(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(call, Mapping) and _text(call.get("name")) and _text(call.get("id", "")) for call in value
    )


def _wait(value: Any) -> bool:
    if isinstance(value, Mapping):
        return (
            value.keys() <= {"ms", "date_in"}
            and all(_scalar(inner) for inner in value.values())
            and isinstance(date := value.get("date_in", 0), int | float)
            and abs(date) < 1e10
        )
    return _scalar(value)


def _usage(value: Any) -> bool:
    known = {field.name for field in fields_of(Usage)}
    return value is False or (isinstance(value, Mapping) and value.keys() <= known and all(map(_count, value.values())))


def _pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return True


def _patterns(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_text(name) and _pattern(pattern) for name, pattern in value.items())


_Check = tuple[Callable[[Any], bool], str]
_USAGE_KEYS = ", ".join(field.name for field in fields_of(Usage))
_WHEN: dict[str, _Check] = {
    **dict.fromkeys(("text", "last", "system", "model"), (_pattern, "a regular expression")),
    "wire": (lambda value: value in _EMPTY if _text(value) else False, f"one of {', '.join(_EMPTY)}"),
    "stream": (_flag, "true or false"),
    **dict.fromkeys(("turn", "step"), (_counts, "a number or a list of numbers")),
    "header": (_patterns, "a table of regular expressions"),
}
_RULE: dict[str, _Check] = {
    "when": (lambda value: isinstance(value, Mapping), "a table"),
    **dict.fromkeys(("first", "times"), (_count, "a whole number ≥ 0")),
    "calls": (_counts, "a number or a list of numbers"),
    "share": (_number, "a number from 0 to 1"),
    "seed": (_scalar, "a number or a text"),
    "text": (lambda value: value is None or _text(value), "text or null"),
    "tool_calls": (_calls, "a list of tables with a 'name' that is text"),
    **dict.fromkeys(("finish_reason", "refusal", "reasoning", "stream_error"), (_text, "text")),
    "usage": (_usage, f"false or a table of whole numbers; known: {_USAGE_KEYS}"),
    "status": (lambda value: _count(value) and 200 <= value <= 599, "an HTTP status from 200 to 599"),
    "error": (lambda value: _text(value) or isinstance(value, Mapping), "text or a table"),
    "retry_after": (_wait, "a number, a text, { ms = … } or { date_in = … }"),
    "headers": (_plain_table, "a table of texts"),
    "delay": (lambda value: value == "forever" or _number(value), 'a number ≥ 0 or "forever"'),
    "chunk_delay": (_number, "a number ≥ 0"),
    **dict.fromkeys(("chunk_bytes", "pieces", "content_length"), (_count, "a whole number ≥ 0")),
    "disconnect": (
        lambda value: value in ("before-headers", "mid-body", "mid-stream"),
        "before-headers, mid-body or mid-stream",
    ),
    **dict.fromkeys(("reset", "empty_choices", "done", "comments"), (_flag, "true or false")),
    **dict.fromkeys(("malformed", "html"), (lambda value: _text(value) or _flag(value), "true, false or text")),
    "line_end": (lambda value: value in ("\n", "\r\n", "\r"), "one of LF, CR LF, CR"),
}
_ENTRY: dict[str, _Check] = {
    **dict.fromkeys(("question", "answer", "wrong"), (_text, "text")),
    "evidence": (_texts, "text or a list of texts"),
}
_TOP: dict[str, _Check] = {
    **dict.fromkeys(("model", "default", "wrong"), (_text, "text")),
    "answer_key": (lambda value: isinstance(value, Mapping | list), "a table or a list"),
    "rules": (lambda value: isinstance(value, list), "a list"),
}


def _checked(table: Any, checks: Mapping[str, _Check], *needed: str) -> Iterator[str]:
    """The faults of one table: not a table, unknown and missing keys, values of the wrong kind."""
    if not isinstance(table, Mapping):
        yield "must be a table"
        return
    yield from (f"unknown key {key!r}; known: {', '.join(sorted(checks))}" for key in table if key not in checks)
    yield from (f"needs {name!r}" for name in needed if name not in table)
    for name, (fits, kind) in checks.items():
        if name in table and not fits(table[name]):
            yield f"{name!r} must be {kind}, not {table[name]!r}"


def _faults(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from _checked(spec, _TOP)
    rules, key = spec.get("rules", []), spec.get("answer_key", {})
    for number, rule in enumerate(rules if isinstance(rules, list) else [], 1):
        yield from (f"rule {number}: {fault}" for fault in _checked(rule, _RULE))
        if isinstance(rule, Mapping) and isinstance(rule.get("when"), Mapping):
            yield from (f"rule {number}: when: {fault}" for fault in _checked(rule["when"], _WHEN))
    if isinstance(key, Mapping):
        for question, entry in key.items():
            yield from (f"answer_key {question!r}: {fault}" for fault in _checked(_entry(entry), _ENTRY, "answer"))
    elif isinstance(key, list):
        for number, entry in enumerate(key, 1):
            yield from (f"answer_key {number}: {fault}" for fault in _checked(entry, _ENTRY, "question", "answer"))
