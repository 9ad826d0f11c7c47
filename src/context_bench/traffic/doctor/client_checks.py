"""Examine a client: start it against a provider of ours that sends whole, odd and broken replies, and see what it makes
of them.

A client takes its provider's address from its environment (`OPENAI_BASE_URL`, `OPENAI_API_BASE`, `ANTHROPIC_BASE_URL`;
all keys are dummies), and reports by what every program has: exit code 0 and the answer, or the arguments of the calls
it was given, on standard output; another exit code for a reply that it could not take. A client that executes its calls
is judged by the history of its next request. It is started anew for each case. A broken reply has to end as an error:
exit code 0 then is a failure. A reply in an odd form has to be read right; an error is a warning, anything else a
failure.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.errors import BadInput, Failed, TimedOut, describe
from context_bench.llm.redact import redact
from context_bench.llm.responders import Delivery, ResponderError, Staged
from context_bench.llm.servers import ModelServer
from context_bench.sandbox.vendors import run_program
from context_bench.session.activity import Finding
from context_bench.traffic.client import dummy_environment, prepare
from context_bench.wire.apis import render_stream
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.linter import lint_request, rule_for

_ANSWER = "The gate code is naïve-käse-7319 \U0001f642, and the last word of this answer is zanzibar."
_DONE = "All calls were made, and the last word is quetzal."
_MARKS = ("käse-41797", "größe-52813")
_NUMBERS = (41797, 52813)
_AT_ONCE = 3
_MOST_REQUESTS = 25
_DUMMY = "context-bench-dummy-key"
_SHOWN = 160

_Events = Callable[[list[bytes]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One reply of ours. `expects`: "read" (in an odd form, or a plain one), "error" (broken: nothing may come of it),
    "either". `tools`: it calls tools. `events`: changes the events of the plain stream; `delivery` hands them over.
    `refuses`: the reply is an error instead.
    """

    name: str
    expects: Literal["read", "error", "either"]
    tools: bool = False
    streams: bool = True
    events: _Events | None = None
    delivery: Mapping[str, Any] = field(default_factory=dict)
    refuses: ResponderError | None = None


def _json_events(events: list[bytes], change: Callable[[dict[str, Any]], object]) -> Iterator[bytes]:
    """The events with their data changed in place; one whose change gives False is left out."""
    for event in events:
        match = re.search(rb"^data: (\{.*\})$", event, re.MULTILINE)
        if match is None:
            yield event
            continue
        data = json.loads(match[1])
        if change(data) is not False:
            yield event.replace(match[1], json.dumps(data, ensure_ascii=False).encode())


def _chat_calls(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [call for choice in data.get("choices", ()) for call in choice["delta"].get("tool_calls") or ()]


def _indexed(place: Callable[[int], int]) -> _Events:
    """Calls under other indexes, on each API."""

    def change(data: dict[str, Any]) -> None:
        for call in _chat_calls(data):
            call["index"] = place(call["index"])
        for name in ("index", "output_index"):
            if isinstance(data.get(name), int):
                data[name] = place(data[name])

    return lambda events: _json_events(events, change)


def _packed(events: list[bytes]) -> Iterator[bytes]:
    """Each call of a chat in one event: its id, name and all of its arguments; other APIs have no such form."""
    whole: dict[int, str] = {}

    def collect(data: dict[str, Any]) -> None:
        for call in _chat_calls(data):
            whole[call["index"]] = whole.get(call["index"], "") + (call["function"].get("arguments") or "")

    list(_json_events(events, collect))

    def change(data: dict[str, Any]) -> bool:
        calls = _chat_calls(data)
        for call in calls:
            call["function"]["arguments"] = whole[call["index"]]
        return not calls or "id" in calls[0]

    yield from _json_events(events, change)


def _half(events: list[bytes]) -> list[bytes]:
    return events[: max(1, len(events) // 2)]


CASES = (
    ClientCase("whole reply", "read"),
    ClientCase("split characters", "read", delivery={"chunk_bytes": 1}),
    ClientCase("comments and CR LF", "read", delivery={"comments": True, "line_end": "\r\n"}),
    ClientCase("stream without its end mark", "either", delivery={"done": False}),
    ClientCase("stream that breaks off", "error", events=_half),
    ClientCase("connection cut", "error", delivery={"disconnect": "mid-stream"}),
    ClientCase("error in the stream", "error", delivery={"stream_error": ResponderError(529, "Overloaded")}),
    ClientCase("error status", "error", streams=False, refuses=ResponderError(400, "The request was refused")),
    ClientCase("calls", "read", tools=True, streams=False),
    ClientCase("calls: packed arguments", "read", tools=True, events=_packed),
    ClientCase("calls: split characters", "read", tools=True, delivery={"chunk_bytes": 1}),
    ClientCase("calls: indexes from 1", "read", tools=True, events=_indexed(lambda index: index + 1)),
    ClientCase("calls: one index twice", "read", tools=True, events=_indexed(lambda index: 1)),
    ClientCase("calls: stream that breaks off", "error", tools=True, events=_half),
)


class _Provider:
    """Answers as its case says; a request that holds the results of calls gets a last word."""

    name = "context-bench"

    def __init__(self, case: ClientCase) -> None:
        self.case = case
        self.requests: list[WireRequest] = []

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply | Staged:
        self.requests.append(request)
        if len(self.requests) > _MOST_REQUESTS:
            raise ResponderError(400, "The same was asked too often")
        if any(message.tool_calls for message in request.messages):
            return Reply(text=_DONE, finish_reason="stop")
        if self.case.refuses is not None:
            raise self.case.refuses
        calls = self.expected(request) if self.case.tools else []
        made = [
            {"id": f"call_{number}", "name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            for number, (name, arguments) in enumerate(calls)
        ]
        finish = "tool_calls" if made else "stop"
        reply = Reply(text=None if made else _ANSWER, tool_calls=made, finish_reason=finish)
        if not request.stream:
            return reply
        delivery = Delivery(pieces=6, **self.case.delivery)
        if self.case.events is not None:
            delivery.body = b"".join(
                self.case.events(list(render_stream(request.wire, reply, request, delivery.pieces)))
            )
            delivery.content_type = "text/event-stream"
        return Staged(reply, delivery)

    @staticmethod
    def expected(request: WireRequest) -> list[tuple[str, dict[str, Any]]]:
        """The calls of the case: the first tool that the client offers, twice, with arguments that fit its schema."""
        found = next((each for each in map(_tool, request.tools) if each is not None), None)
        if found is None:
            return []
        return [(found[0], _filled(found[1], mark, number)) for mark, number in zip(_MARKS, _NUMBERS, strict=True)]


def _tool(tool: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Name and schema of a tool, as any of the APIs has it."""
    if not isinstance(tool, Mapping):
        return None
    inner = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
    schema = inner.get("parameters", inner.get("input_schema")) if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str) or not isinstance(schema, Mapping):
        return None
    return inner["name"], schema


def _filled(schema: Mapping[str, Any], mark: str, number: int) -> dict[str, Any]:
    """Arguments for the properties that a schema asks for; for all, if it asks for none."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    names = [name for name in schema.get("required") or () if name in properties] or list(properties)
    return {name: _value(properties[name], mark, number) for name in names}


def _value(schema: Any, mark: str, number: int) -> Any:
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    plain: dict[str, Any] = {"integer": number, "number": number, "boolean": True, "array": [], "object": {}}
    return next((plain[each] for each in kinds if each in plain), mark)


@dataclass(frozen=True, slots=True)
class ClientRun:
    """One start of the client. `status`: its exit code; `None` if it had not ended in time."""

    status: int | None
    out: str
    err: str
    requests: Sequence[WireRequest]
    bodies: Sequence[tuple[str, Mapping[str, Any]]] = ()  # API and body of each request as it arrived

    @property
    def streamed(self) -> bool:
        return any(request.stream for request in self.requests)

    def shows(self, text: str) -> bool:
        """True if standard output holds the text, spaced and escaped in whatever way."""
        out = "".join(self.out.split())
        return any("".join(form.split()) in out for form in (text, json.dumps(text)[1:-1]))

    @property
    def end(self) -> str:
        """The end of the run, for a finding."""
        if self.status is None:
            return "it had not ended in time"
        last = " ".join((self.err if self.status else self.out).split())
        return f"exit code {self.status}" + (f": {redact(last)[-_SHOWN:]}" if last else ", without a word")


async def examine_client(command: str, *, seconds: float = 30.0) -> list[Finding]:
    """Start the client once for each case and judge what it makes of the replies, and the requests that it sends; about
    14 starts.

    `command`: its command line, started without a shell. `seconds`: time for one start. `BadInput` for a command that
    cannot be started.
    """
    words = shlex.split(command)
    if not words:
        raise BadInput("--command is empty; expected the command line of a client")
    plain = await _started(CASES[0], words, seconds)
    if not plain.requests:
        why = "it asked nothing of the address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL"
        return [Finding("whole reply", "fail", f"{why}; {plain.end}", "take the provider's address from there")]
    if plain.status != 0 or not plain.shows(_ANSWER):
        advice = "print the answer on standard output, and end with exit code 0"
        return [Finding("whole reply", "fail", f"the answer is not on standard output; {plain.end}", advice)]
    limit = asyncio.Semaphore(_AT_ONCE)

    runs = [plain]

    async def judged(case: ClientCase) -> Finding:
        if case.streams and not plain.streamed:
            return Finding(case.name, "unknown", "cannot be asked: the client does not stream")
        if case.tools and not _Provider.expected(plain.requests[0]):
            return Finding(case.name, "unknown", "cannot be asked: the client offers no tools")
        async with limit:
            run = await _started(case, words, seconds)
        runs.append(run)
        return _judged(case, run)

    first = _judged(CASES[0], plain)
    others = await asyncio.gather(*(judged(case) for case in CASES[1:]))
    return [first, *others, _linted(runs)]


def _linted(runs: Sequence[ClientRun]) -> Finding:
    """Faults of the requests that the client sent, by the rules of `wire.violations.linter`."""
    faults: dict[str, str] = {}
    refused = False
    for run in runs:
        earlier = None
        for wire, body in run.bodies:
            for fault in lint_request(body, wire, earlier=earlier):
                rule = rule_for(fault.kind, wire, model=str(body.get("model") or ""))
                faults.setdefault(fault.kind, fault.detail)
                refused |= rule is not None and rule.severity == "refused"
            earlier = body
    number = sum(len(run.bodies) for run in runs)
    if not faults:
        return Finding("requests", "ok", f"{number} requests hold nothing that a provider refuses or reads otherwise")
    told = "; ".join(f"{kind}: {detail}" for kind, detail in faults.items())
    return Finding("requests", "fail" if refused else "warn", f"of {number} requests some have faults: {told}")


async def _started(case: ClientCase, words: Sequence[str], seconds: float) -> ClientRun:
    provider = _Provider(case)
    async with ModelServer(provider) as server:
        prepared = prepare(words, server.url, dummy_environment(_DUMMY))
        try:
            ended = await asyncio.to_thread(run_program, prepared.command, seconds, None, prepared.env)
        except TimedOut:
            return ClientRun(None, "", "", provider.requests)
        except Failed as error:
            raise BadInput(f"--command: {describe(error)}") from None
        bodies = [(each.wire, each.body) for each in server.requests if isinstance(each.body, Mapping)]
    out, err = (data.decode("utf-8", "replace") for data in (ended.out, ended.err))
    return ClientRun(ended.status, out, err, provider.requests, bodies)


def _judged(case: ClientCase, run: ClientRun) -> Finding:
    """Judge one run by its case."""
    if run.status is None:
        return Finding(case.name, "fail", run.end, "end with an error when a reply does not come or makes no sense")
    later = _calls_in_history(run) if case.tools else []
    if later and (case.expects == "error" or later != _Provider.expected(run.requests[0])):
        shown = redact(json.dumps(later, ensure_ascii=False))[:_SHOWN]
        return Finding(case.name, "fail", f"calls were executed that were not made so: {shown}; {run.end}")
    read = _calls_read(run) if case.tools else "all of it" if run.shows(_ANSWER) else None
    if run.status:
        if case.expects == "read":
            return Finding(case.name, "warn", f"ends with an error, though it can be read; {run.end}")
        return Finding(case.name, "ok", f"ends with an error: {run.end}")
    if case.expects == "error" and (case.tools or not read):
        return Finding(
            case.name, "fail", f"a broken reply counts as a finished one; {run.end}", "check how a reply ends"
        )
    if read:
        return Finding(case.name, "ok", f"is read right: {read}")
    return Finding(case.name, "fail", f"is not read right, and no error; {run.end}")


def _calls_read(run: ClientRun) -> str | None:
    """The way by which it was seen that the calls were read right (those in a history are looked at before); `None` if
    they were not.
    """
    if _calls_in_history(run):
        return "the next request holds the calls"
    calls = _Provider.expected(run.requests[0])
    marks = [json.dumps(value, ensure_ascii=False).strip('"') for _, each in calls for value in each.values()]
    shown = [mark for mark in marks if len(mark) > 4]
    return "their arguments are on standard output" if shown and all(map(run.shows, shown)) else None


def _calls_in_history(run: ClientRun) -> list[tuple[str, Any]]:
    """Calls in the history of the last request, their arguments as JSON values."""
    found = [call for message in run.requests[-1].messages for call in message.tool_calls]
    return [(call.get("name", ""), _parsed(call.get("arguments"))) for call in found]


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
