"""Checks of replies: does the client get what the provider said, whole and in streams of every form, and its errors?

The provider says the same whatever API the request arrives on. What the client reads is held against what a client of
the provider itself would read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from context_bench.core.families import GradeAnswer, GradeCheck, GradeFault
from context_bench.core.records import Usage
from context_bench.llm.responders import Delivery, ResponderError, Staged
from context_bench.traffic.probes import WIRES, Heard, ProbeExchange, ProbeRig, Script, plain, says
from context_bench.wire.apis import ShapedRequest, render_stream
from context_bench.wire.apis.shared import Reply, sse
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import compare_replies, repeated_requests

_WORDS = "Das Tor öffnet um neun. 👩‍👩‍👧‍👦 Ключ у сторожа. 门在九点开。"
_CALLS = [
    {"id": "call_first", "name": "run", "arguments": json.dumps({"command": "ls /harbour", "note": "zuerst – ä"})},
    {"id": "call_second", "name": "run", "arguments": json.dumps({"command": "cat gate.txt", "timeout": 5})},
]
#: Numbers beyond a double, quotes in quotes, characters that some escape, values that count as false.
_HARD = json.dumps(
    {"command": 'say "\\t" \u2028 \U0001f6a2', "timeout": 2**53 + 1, "share": 0.1, "empty": "", "no": [False, 0, None]}
)
#: Seconds between the pieces of a stream that is slow.
_PAUSE = 0.2
_HEADERS = {"x-request-id": "req_grade", "x-ratelimit-remaining-requests": "99"}
_USAGE = Usage(input_tokens=120, output_tokens=9)
_TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}],
    "anthropic": [{"name": "run", "input_schema": {"type": "object"}}],
    "openai-responses": [{"type": "function", "name": "run", "parameters": {"type": "object"}, "strict": False}],
}
#: What the provider says, by the name of the check.
_REPLIES: dict[str, Reply] = {
    "words of many scripts": Reply(text=_WORDS, finish_reason="stop", usage=_USAGE),
    "two calls at once": Reply(text="I look.", tool_calls=_CALLS, finish_reason="tool_calls", usage=_USAGE),
    "a call without words": Reply(tool_calls=_CALLS[:1], finish_reason="tool_calls", usage=_USAGE),
    "an answer that was cut off": Reply(text="The gate opens at", finish_reason="length", usage=_USAGE),
    "thinking": Reply(text="At nine.", reasoning="The file says nine.", finish_reason="stop", usage=_USAGE),
    "a call without arguments": Reply(
        tool_calls=[{"id": "call_none", "name": "run", "arguments": "{}"}], finish_reason="tool_calls", usage=_USAGE
    ),
    "arguments that are hard to write": Reply(
        tool_calls=[{"id": "call_hard", "name": "run", "arguments": _HARD}], finish_reason="tool_calls", usage=_USAGE
    ),
    "tokens of reasoning": Reply(
        text="At nine.", finish_reason="stop", usage=Usage(input_tokens=120, output_tokens=90, reasoning_tokens=64)
    ),
    "tokens read from the cache": Reply(
        text="At nine.", finish_reason="stop", usage=Usage(input_tokens=1000, output_tokens=9, cache_read=900)
    ),
}


def reply_checks(rig: ProbeRig) -> list[GradeCheck]:
    """Whole replies and streams of what models say, and streams in every form, on each API."""
    checks = []
    for wire, route in WIRES.items():
        for about, reply in _REPLIES.items():
            if about == "thinking" and wire == "openai-responses":
                continue  # its reasoning is hidden, and comes as an item that requests are checked for
            for stream in (False, True):
                headings = ("faithful replies", "streaming") if stream else ("faithful replies",)
                if "cache" in about or "reasoning" in about:
                    headings = ("cache and money", *headings)
                name = f"{'stream' if stream else 'reply'}, {route}: {about}"
                question = f"Does {about} reach the client as the provider said it?"
                checks.append(GradeCheck(name, headings, question, partial(_whole, rig, wire, reply, stream)))
        checks += [
            GradeCheck(
                f"stream, {route}: {about}",
                ("streaming", "faithful replies"),
                "Does the stream reach the client whole, as it comes?",
                partial(_formed, rig, wire, about),
            )
            for about in _FORMS
        ]
        checks += [
            GradeCheck(
                f"stream, {route}: one that {about}",
                ("streaming",),
                "Does half a reply look like half a reply?",
                partial(_broken, rig, wire, cut),
            )
            for about, cut in {"breaks off": True, "ends too soon": False}.items()
        ]
    return checks


def error_checks(rig: ProbeRig) -> list[GradeCheck]:
    """Errors before a reply and in the middle of one, on each API. A proxy may take its time over them."""
    checks = []
    for wire, route in WIRES.items():
        checks += [
            GradeCheck(
                f"error, {route}: {about}",
                ("errors",),
                "Does the provider's error reach the client as that error?",
                partial(_error, rig, wire, error),
            )
            for about, error in _ERRORS.items()
        ]
        checks.append(
            GradeCheck(
                f"error, {route}: in the middle of a stream",
                ("errors",),
                "Does the client see that the reply failed?",
                partial(_error_in_stream, rig, wire),
            )
        )
    return checks


async def _whole(rig: ProbeRig, wire: str, reply: Reply, stream: bool) -> GradeAnswer:
    return await _compared(rig, _with_tools(rig, wire, stream), says(reply, headers=dict(_HEADERS)))


def _with_tools(rig: ProbeRig, wire: str, stream: bool) -> ShapedRequest:
    return rig.short(wire, tools=_TOOLS[wire], stream=stream)


async def _compared(rig: ProbeRig, request: ShapedRequest, script: Script) -> GradeAnswer:
    """Ask, and hold what the client gets against what a client of the provider itself gets for what arrived."""
    if (missing := await rig.missing(request.wire)) is not None:
        return missing
    asked = await rig.ask(request, script)
    if asked.main is None:
        if (asked.heard.status or 500) < 400:
            return GradeAnswer(not_asked="the proxy answered without the provider")
        return GradeAnswer((GradeFault("request_refused", f"HTTP {asked.heard.status}: {asked.heard.text[:300]}"),))
    return GradeAnswer(tuple(_reply_faults(asked, await rig.direct(asked.main))))


def _reply_faults(asked: ProbeExchange, direct: Heard) -> Iterator[GradeFault]:
    """The changes to a reply on its way; `direct` is the same one without the proxy."""
    heard, main = asked.heard, asked.main
    assert main is not None, "what did not arrive is told before"

    def one(kind: str, detail: str) -> GradeFault:
        return GradeFault(kind, detail, f"HTTP {direct.status} {direct.text}", f"HTTP {heard.status} {heard.text}")

    if heard.status is None:
        if direct.status is not None:
            yield one("reply_missing", f"the client gets no reply: {heard.error}")
        return
    front, back = heard.reply(asked.request.wire), direct.reply(main.wire)
    changes = compare_replies(front, back, asked=asked.request.parsed())
    yield from (one(found.kind, found.detail) for found in changes)
    if heard.status < 400 <= (direct.status or 0) and not any(found.kind == "error_hidden" for found in changes):
        yield one("error_hidden", f"HTTP {direct.status} became HTTP {heard.status}")  # the body may still tell of it
    if asked.request.stream and front.streamed and back.complete and _held_back(heard, direct):
        yield one("stream_held_back", "the client's first words come when the provider's last have")
    if again := repeated_requests([(each.raw, direct.status) for each in asked.arrived]):
        yield one("retry", f"the proxy asked {len(again)} more times on its own")


def _held_back(heard: Heard, direct: Heard) -> bool:
    """The pieces came together, of a stream whose pieces come far apart: one pause is longer than all of it."""
    times, own = ([at for at, _ in one.pieces] for one in (heard, direct))
    pause = max((later - before for before, later in pairwise(own)), default=0.0)
    return pause > _PAUSE / 2 and bool(times) and times[-1] - times[0] < pause


# Forms of streams
# -------------------------------------------------------------------------------------------------------------------


def _slow(request: WireRequest) -> Staged:
    """Words that take more than a second to come."""
    return Staged(_REPLIES["words of many scripts"], Delivery(chunk_delay=_PAUSE, pieces=5))


def _cut_in_characters(request: WireRequest) -> Staged:
    return Staged(_REPLIES["words of many scripts"], Delivery(chunk_bytes=1))


def _keep_alives(request: WireRequest) -> Staged:
    return Staged(_REPLIES["words of many scripts"], Delivery(comments=True))


def _carriage_returns(request: WireRequest) -> Staged:
    return Staged(_REPLIES["words of many scripts"], Delivery(line_end="\r\n"))


def _packed_call(request: WireRequest) -> Staged:
    """Name and arguments of each call in one event."""
    reply = _REPLIES["two calls at once"]
    if request.wire != "openai-chat":
        return Staged(reply, Delivery(pieces=1))
    return Staged(reply, Delivery(events=_chat_events(reply, [0, 1])))


def _odd_indexes(request: WireRequest) -> Staged:
    """Calls that are not counted from 0; the APIs of which each event is numbered have no such form."""
    reply = _REPLIES["two calls at once"]
    return Staged(reply, Delivery(events=_chat_events(reply, [1, 2]) if request.wire == "openai-chat" else None))


def _empty_chunks(request: WireRequest) -> Staged:
    """Events without content between the others, as gateways and filters send them."""
    reply = _REPLIES["words of many scripts"]
    events = list(render_stream(request.wire, reply, request))
    if request.wire == "openai-chat":
        nothing = [sse(_chunk([])), sse(_chunk([{"index": 0, "delta": {}, "finish_reason": None}]))]
        events = [events[0], *nothing, *events[1:3], *nothing, *events[3:]]
    elif request.wire == "anthropic":
        events = [events[0], sse({"type": "ping"}, "ping"), *events[1:3], sse({"type": "ping"}, "ping"), *events[3:]]
    return Staged(reply, Delivery(events=events))


_FORMS = {
    "a slow one": _slow,
    "cut in the middle of characters": _cut_in_characters,
    "with keep-alives": _keep_alives,
    "with lines that end in CR LF": _carriage_returns,
    "whole calls in one event": _packed_call,
    "calls counted from 1": _odd_indexes,
    "empty events": _empty_chunks,
}


async def _formed(rig: ProbeRig, wire: str, about: str) -> GradeAnswer:
    form = _FORMS[about]
    return await _compared(rig, _with_tools(rig, wire, True), lambda request, headers: form(request))


def _chat_events(reply: Reply, indexes: list[int]) -> list[bytes]:
    calls = [
        {
            "index": index,
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for index, call in zip(indexes, reply.tool_calls, strict=True)
    ]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"content": reply.text},
        *({"tool_calls": [call]} for call in calls),
    ]
    chunks = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk([{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]))
    return [*map(sse, chunks), b"data: [DONE]\n\n"]


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": "chatcmpl-grade", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    return {**head, "choices": choices}


async def _broken(rig: ProbeRig, wire: str, cut: bool) -> GradeAnswer:
    """Half a stream, after which the connection is cut, or ends in order."""
    reply = _REPLIES["words of many scripts"]

    def script(request: WireRequest, headers: Mapping[str, str]) -> Staged:
        events = list(render_stream(request.wire, reply, request))
        half = b"".join(events[: len(events) // 2])
        if not cut:
            return Staged(reply, Delivery(events=[half]))
        after = b": " + b"x" * (len(half) - 4) + b"\n\n"  # the cut is in the middle: at the end of an event
        return Staged(reply, Delivery(events=[half, after], disconnect="mid-stream", chunk_delay=0.05))

    return await _compared(rig, rig.short(wire, stream=True), script)


# Errors
# -------------------------------------------------------------------------------------------------------------------

_ERRORS = {
    "429 with retry-after": ResponderError(
        429, "Rate limit reached for grade: try again in 1 s", headers={"retry-after": "1"}
    ),
    "400": ResponderError(400, "messages.1: grade says that this request is not valid"),
    "401": ResponderError(401, "grade says that this key is not valid"),
    "500": ResponderError(500, "grade says that the server had an error"),
    "529": ResponderError(529, "grade is overloaded"),
}


def _raising(error: ResponderError) -> Script:
    def script(request: WireRequest, headers: Mapping[str, str]) -> Staged:
        raise error

    return script


async def _error(rig: ProbeRig, wire: str, error: ResponderError) -> GradeAnswer:
    return await _compared(rig, rig.short(wire), _raising(error))


async def _error_in_stream(rig: ProbeRig, wire: str) -> GradeAnswer:
    script = says(plain(), stream_error=ResponderError(529, "grade is overloaded"), chunk_delay=0.02)
    return await _compared(rig, rig.short(wire, stream=True), script)
