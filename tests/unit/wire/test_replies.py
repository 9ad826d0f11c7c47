"""Replies read from any wire however they are cut, and what was done to them on their way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.records import Usage
from context_bench.wire.apis import Reply, parse_request, read_reply, render_reply, render_stream
from context_bench.wire.apis.shared import dump, sse
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import REPLY_KINDS, closest_reply, compare_replies, reply_faults

WIRES = ("openai-chat", "openai-responses", "anthropic")
_CALLS = [
    {"id": "call_a", "name": "read", "arguments": '{"path":"a b.txt"}'},
    {"id": "call_b", "name": "run", "arguments": '{"command":["ls","-l"],"n":2}'},
]
_USAGE = Usage(1000, 40, 900, None, None)


def _request(wire: str) -> WireRequest:
    return parse_request(wire, {"model": "m", "stream": True, "stream_options": {"include_usage": True}})


def _stream(wire: str, reply: Reply, pieces: int = 8) -> list[bytes]:
    return list(render_stream(wire, reply, _request(wire), pieces))


_SSE = [("Content-Type", "text/event-stream; charset=utf-8")]


def _streamed(wire: str, data: bytes | list[bytes], **more: Any) -> Reply:
    return read_reply(wire, data if isinstance(data, bytes) else b"".join(data), headers=_SSE, **more)


def _whole(wire: str, reply: Reply) -> Reply:
    return read_reply(
        wire, dump(render_reply(wire, reply, _request(wire))), headers=[("Content-Type", "application/json")]
    )


def _kinds(front: Reply, back: Reply) -> list[str]:
    return sorted({one.kind for one in compare_replies(front, back, asked=_request(front.wire))})


_texts = st.text(st.characters(blacklist_characters="\ufffd", blacklist_categories=("Cs",)), max_size=30)
_ids = st.text("abcdefgh0123", min_size=3, max_size=8)
_call = st.fixed_dictionaries(
    {
        "id": _ids,
        "name": st.sampled_from(["read", "run", "write"]),
        "arguments": st.dictionaries(
            _texts, st.one_of(_texts, st.integers(-(2**40), 2**40), st.booleans()), max_size=3
        ).map(json.dumps),
    }
)


@st.composite
def _replies(draw: st.DrawFn) -> Reply:
    calls = draw(st.lists(_call, max_size=3, unique_by=lambda call: call["id"]))
    text = draw(st.one_of(st.none(), _texts.filter(bool)))
    refusal = draw(st.one_of(st.none(), _texts.filter(bool))) if text is None and not calls else None
    counts = st.integers(0, 50_000)
    cached = draw(counts)
    return Reply(
        text=text,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else draw(st.sampled_from(["stop", "length"])) if not refusal else "stop",
        usage=Usage(cached + draw(counts), draw(st.integers(1, 9_000)), cached, None, None),
        model="m",
        refusal=refusal,
        reasoning=draw(st.one_of(st.none(), _texts.filter(lambda text: bool(text.strip())))),
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WIRES), _replies(), st.integers(1, 6), st.data())
def test_a_stream_is_the_same_reply_however_its_bytes_are_cut(
    wire: str, reply: Reply, pieces: int, data: st.DataObject
) -> None:
    stream = b"".join(_stream(wire, reply, pieces))
    at_once = _streamed(wire, stream)
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    cut = [stream[a:b] for a, b in pairwise([0, *places, len(stream)])]
    in_pieces = read_reply(wire, [(float(i), piece) for i, piece in enumerate(cut)], headers=_SSE, asked=-1.0)
    times = {"first_byte": None, "longest_pause": None}
    assert replace(in_pieces, **times) == at_once
    for name in ("stop", "signatures", "blocks", "error", "complete", "faults", "streamed", "status"):
        assert getattr(in_pieces, name) == getattr(at_once, name)
    assert in_pieces.first_byte == 1.0
    assert reply_faults(at_once) == []


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WIRES), st.sampled_from(WIRES), _replies(), st.booleans(), st.integers(1, 6))
def test_a_faithful_proxy_is_passed_over_on_every_pair_of_apis(
    ours: str, theirs: str, reply: Reply, streamed: bool, pieces: int
) -> None:
    back = _streamed(theirs, _stream(theirs, reply, 3)) if streamed else _whole(theirs, reply)
    renamed = replace(reply, tool_calls=[{**call, "id": f"toolu_{call['id']}"} for call in reply.tool_calls])
    given_on = reply if ours == theirs else renamed
    front = _streamed(ours, _stream(ours, given_on, pieces)) if streamed else _whole(ours, given_on)
    assert compare_replies(front, back, asked=_request(ours)) == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda r: replace(r, text="Hello wor"), ["reply_text_changed"]),
        (lambda r: replace(r, text="Hello world, é.Hello world, é."), ["reply_text_changed"]),
        (lambda r: replace(r, reasoning=None), ["reply_thinking_lost"]),
        (lambda r: replace(r, tool_calls=_CALLS[:1]), ["tool_call_lost"]),
        (lambda r: replace(r, tool_calls=[*_CALLS, {**_CALLS[0], "id": "call_c"}]), ["tool_call_added"]),
        (lambda r: replace(r, tool_calls=_CALLS[::-1]), ["tool_calls_reordered"]),
        (
            lambda r: replace(r, tool_calls=[{**_CALLS[0], "arguments": "{}"}, _CALLS[1]]),
            ["tool_call_arguments_changed"],
        ),
        (lambda r: replace(r, tool_calls=[{**_CALLS[0], "name": "mcp__read"}, _CALLS[1]]), ["tool_call_name_changed"]),
        (
            lambda r: replace(r, tool_calls=[_CALLS[0], {**_CALLS[1], "id": "call_a"}]),
            ["tool_call_id_changed", "tool_call_id_wrong"],
        ),
        (lambda r: replace(r, tool_calls=[_CALLS[0], {**_CALLS[1], "id": "call_z"}]), ["tool_call_id_changed"]),
        (lambda r: replace(r, usage=replace(_USAGE, cache_read=None)), ["reply_usage_lost"]),
        (lambda r: replace(r, usage=replace(_USAGE, input_tokens=950)), ["reply_usage_changed"]),
        (lambda r: replace(r, usage=None), ["reply_usage_lost"]),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_what_was_done_to_a_reply_has_a_kind(
    wire: str, change: Callable[[Reply], Reply], kinds: list[str], streamed: bool
) -> None:
    reply = Reply("Hello world, é.", _CALLS, "tool_calls", _USAGE, "m", reasoning="First, look.")
    read = (lambda r: _streamed(wire, _stream(wire, r))) if streamed else (lambda r: _whole(wire, r))
    assert _kinds(read(change(reply)), read(reply)) == kinds
    assert set(kinds) <= set(REPLY_KINDS)


def test_the_finish_reason_is_compared_in_neutral_words_and_on_one_api_in_its_own() -> None:
    said = Reply("text", [], "length", _USAGE, "m")
    wrong = replace(said, finish_reason="stop")
    assert _kinds(_whole("openai-chat", wrong), _whole("anthropic", said)) == ["finish_reason_changed"]
    assert _kinds(_whole("anthropic", said), _whole("openai-chat", said)) == []
    body = render_reply("anthropic", replace(said, finish_reason="stop"), _request("anthropic"))
    stopped = read_reply("anthropic", dump({**body, "stop_reason": "stop_sequence"}))
    assert _kinds(read_reply("anthropic", dump(body)), stopped) == ["finish_reason_changed"]
    assert _kinds(_whole("openai-chat", wrong), stopped) == []
    called = Reply(None, _CALLS, "tool_calls", _USAGE, "m")
    lost = _whole("openai-chat", replace(called, finish_reason="stop"))
    assert _kinds(lost, _whole("anthropic", called)) == ["finish_reason_changed"]
    assert _kinds(_whole("anthropic", called), lost) == []  # mended on the way


def test_a_whole_call_in_one_chunk_keeps_its_arguments_on_another_api() -> None:
    delta = {
        "tool_calls": [
            {"index": 0, "id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}
        ]
    }
    back = _streamed(
        "openai-chat",
        [
            sse({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}),
            sse({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            b"data: [DONE]\n\n",
        ],
    )
    whole = Reply(None, [{"id": "toolu_1", "name": "run", "arguments": '{"command":"ls"}'}], "tool_calls", None, "m")
    assert _kinds(_streamed("anthropic", _stream("anthropic", whole)), back) == []
    empty = [event for event in _stream("anthropic", whole) if b"input_json_delta" not in event]
    found = compare_replies(_streamed("anthropic", empty), back)
    assert [(one.kind, one.name) for one in found] == [("tool_call_arguments_changed", "run")]


def _without(events: list[bytes], *words: bytes) -> list[bytes]:
    return [event for event in events if not any(word in event for word in words)]


def _renumbered(events: list[bytes], old: bytes, new: bytes) -> list[bytes]:
    return [event.replace(old, new) for event in events]


_BROKEN: list[tuple[str, Callable[[list[bytes]], list[bytes]], str]] = [
    ("anthropic", lambda e: e[:-2], "stream_broken"),
    ("anthropic", lambda e: _without(e, b"message_start"), "stream_order_wrong"),
    ("anthropic", lambda e: _without(e, b"content_block_start"), "stream_order_wrong"),
    ("anthropic", lambda e: _without(e, b"content_block_stop"), "stream_order_wrong"),
    ("anthropic", lambda e: _without(e, b'"message_delta"'), "stream_order_wrong"),
    ("anthropic", lambda e: [event.partition(b"\n")[2] for event in e], "stream_order_wrong"),
    ("anthropic", lambda e: _renumbered(e, b'"index":1', b'"index":0'), "stream_index_wrong"),
    ("anthropic", lambda e: _renumbered(e, b'"index":', b'"index":1'), "stream_index_wrong"),
    ("anthropic", lambda e: [*e[:-2], e[3], *e[-2:]], "stream_delta_after_stop"),
    ("openai-chat", lambda e: e[:4], "stream_broken"),
    ("openai-chat", lambda e: e[:-1], "stream_end_missing"),
    ("openai-chat", lambda e: _without(e, b'"finish_reason":"tool_calls"'), "finish_reason_missing"),
    ("openai-chat", lambda e: _renumbered(e, b'{"index":1,"id', b'{"index":0,"id'), "stream_index_wrong"),
    (
        "openai-chat",
        lambda e: [event.replace(b'{"tool_calls":[{"index":', b'{"tool_calls":[{"index":1') for event in e],
        "stream_index_wrong",
    ),
    ("openai-chat", lambda e: [*e[:-1], e[1], e[-1]], "stream_delta_after_stop"),
    (
        "openai-chat",
        lambda e: [*e[:2], e[2].replace(b'"id":"chatcmpl-', b'"id":"other-'), *e[3:]],
        "stream_order_wrong",
    ),
    ("openai-chat", lambda e: [e[0], b"data: {oops}\n\n", *e[1:]], "stream_order_wrong"),
    (
        "openai-chat",
        lambda e: [e[0], *_stream("openai-chat", Reply("\ud83d\ude00"), 2)[1:3], *e[1:]],
        "stream_characters_split",
    ),
    (
        "openai-chat",
        lambda e: [e[0], sse({"choices": [{"delta": {"content": "\ufffd"}}]}), *e[1:]],
        "stream_characters_split",
    ),
    (
        "openai-chat",
        lambda e: [e[0], b'data: {"choices":[{"delta":{"content":"\xc3"}}]}\n\n', *e[1:]],
        "stream_characters_split",
    ),
    ("openai-responses", lambda e: e[:-1], "stream_broken"),
    ("openai-responses", lambda e: e[1:], "stream_order_wrong"),
    ("openai-responses", lambda e: _without(e, b"output_item.added"), "stream_order_wrong"),
    ("openai-responses", lambda e: _without(e, b"content_part.added"), "stream_order_wrong"),
    ("openai-responses", lambda e: [*e[:-1], e[6], e[-1]], "stream_order_wrong"),
    ("openai-responses", lambda e: _renumbered(e, b'"output_index":1', b'"output_index":0'), "stream_index_wrong"),
    ("openai-responses", lambda e: _renumbered(e, b'"output_index":', b'"output_index":1'), "stream_index_wrong"),
    ("openai-responses", lambda e: _without(e, b'"delta":"He"'), "stream_order_wrong"),
]


@pytest.mark.parametrize(("wire", "damage", "kind"), _BROKEN)
def test_a_broken_stream_shows_by_itself_and_is_no_change_where_the_provider_sent_it(
    wire: str, damage: Callable[[list[bytes]], list[bytes]], kind: str
) -> None:
    events = _stream(wire, Reply("Hello world, é.", _CALLS, "tool_calls", _USAGE, "m"))
    broken, whole = _streamed(wire, damage(events)), _streamed(wire, events)
    assert kind in {one.kind for one in reply_faults(broken)}
    assert kind in _kinds(broken, whole)
    assert _kinds(broken, broken) == []


@pytest.mark.parametrize("wire", WIRES)
def test_a_break_shown_as_an_end_and_a_break_that_the_proxy_made(wire: str) -> None:
    events = _stream(wire, Reply("Hello world", [], "stop", _USAGE, "m"))
    part = events[: len(events) // 2]
    whole, cut = _streamed(wire, events), _streamed(wire, part, ended="broken")
    assert "break_hidden" in _kinds(whole, cut)
    assert _kinds(cut, cut) == []
    assert _kinds(cut, _streamed(wire, part, ended="left")) == ["stream_broken"]
    assert _kinds(_streamed(wire, part, ended="left"), whole) == []  # the client itself went away


_ERROR = {"type": "error", "error": {"type": "rate_limit_error", "message": "Number of requests exceeded"}}
_LIMITED = {"status": 429, "headers": [("Retry-After", "7"), ("x-request-id", "req_1")]}


def _failing(body: Any, **more: Any) -> Reply:
    return read_reply("anthropic", body if isinstance(body, bytes) else dump(body), **more)


@pytest.mark.parametrize(
    ("front", "kinds"),
    [
        (_failing(_ERROR, **_LIMITED), []),
        (_failing({"error": {**_ERROR["error"], "message": "proxy: Number of requests exceeded"}}, **_LIMITED), []),
        (_failing(_ERROR, **{**_LIMITED, "headers": [("x-gateway-request-id", "req_1")]}), ["retry_after_lost"]),
        (
            _failing(_ERROR, **{**_LIMITED, "headers": [("retry-after", "60"), ("request-id", "a")]}),
            ["retry_after_lost"],
        ),
        (_failing(_ERROR, **{**_LIMITED, "status": 500}), ["error_changed"]),
        (_failing(b"Internal error", **_LIMITED), ["error_changed"]),
        (_failing(_ERROR, **{**_LIMITED, "status": 200}), ["error_changed"]),
        (
            _failing({"error": {"type": "api_error", "message": "Number of requests exceeded"}}, **_LIMITED),
            ["error_changed"],
        ),
        (_whole("anthropic", Reply("Sorry.", [], "stop")), ["error_hidden", "header_lost"]),
    ],
)
def test_errors_keep_their_status_their_words_and_the_time_to_wait(front: Reply, kinds: list[str]) -> None:
    assert _kinds(front, _failing(_ERROR, **_LIMITED)) == kinds


def test_errors_between_apis_keep_what_both_can_say() -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    back = read_reply("anthropic", dump(busy), status=529)
    front = read_reply("openai-chat", dump({"error": {"message": "Overloaded", "code": 503}}), status=503)
    assert _kinds(front, back) == []
    events = [*_stream("anthropic", Reply("Hello", [], "stop"))[:4], sse(busy, "error")]
    told = _streamed("anthropic", events)
    assert _kinds(read_reply("openai-chat", dump({"error": {"message": "Overloaded"}}), status=500), told) == []
    swallowed = _streamed("openai-chat", _stream("openai-chat", Reply("Hello", [], "stop")))
    assert _kinds(swallowed, told) == ["error_hidden"]
    assert _kinds(front, _whole("anthropic", Reply("Hi", [], "stop"))) == ["error_added"]


def test_signed_thinking_and_blocks_of_one_api_arrive_as_they_were() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig-1"}
    search = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    body = {"content": [thought, search, {"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    back = read_reply("anthropic", dump(body))
    unsigned = {**body, "content": [{**thought, "signature": ""}, *body["content"][1:]]}
    assert _kinds(read_reply("anthropic", dump(unsigned)), back) == ["reply_signature_lost"]
    assert _kinds(read_reply("anthropic", dump({**body, "content": [thought, body["content"][2]]})), back) == [
        "reply_block_lost"
    ]
    chat = {
        "choices": [
            {"message": {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}, "finish_reason": "stop"}
        ]
    }
    assert _kinds(read_reply("openai-chat", dump(chat)), back) == []
    stream = _stream("anthropic", Reply("Hi", [], "stop", None, "m", reasoning="Hm."))
    signed = _renumbered(stream, b'_delta","signature":""', b'_delta","signature":"s"')
    assert _streamed("anthropic", signed).signatures == ["s"]
    assert _kinds(_streamed("anthropic", stream), _streamed("anthropic", signed)) == ["reply_signature_lost"]


def test_a_stream_by_another_name_or_as_one_body() -> None:
    events = _stream("openai-chat", Reply("Hello", [], "stop"))
    named = _streamed("openai-chat", events)
    plain = read_reply("openai-chat", b"".join(events), headers=[("content-type", "application/json")])
    assert (plain.text, plain.streamed) == ("Hello", True)
    assert _kinds(plain, named) == ["header_changed"]
    body = _whole("openai-chat", Reply("Hello", [], "stop"))
    assert _kinds(body, named) == ["stream_lost"]
    assert compare_replies(body, named) == []  # its client may have asked for no stream


def test_a_chat_stream_tells_usage_only_if_it_was_asked() -> None:
    reply = Reply("Hello", [], "stop", _USAGE)
    events = _stream("openai-chat", reply)
    front, back = _streamed("openai-chat", _without(events, b'"prompt_tokens"')), _streamed("openai-chat", events)
    assert compare_replies(front, back) == []
    assert _kinds(front, back) == ["reply_usage_lost"]


def test_of_several_calls_the_one_that_was_handed_on_is_compared_and_usage_may_be_summed() -> None:
    first = _whole("openai-chat", Reply(None, _CALLS, "tool_calls", Usage(100, 10)))
    second = _whole("openai-chat", Reply("Done.", [], "stop", Usage(200, 5)))
    summed = _whole("openai-chat", Reply("Done.", [], "stop", Usage(300, 15)))
    assert closest_reply(second, [first, second]) == (1, [])
    assert closest_reply(summed, [first, second]) == (1, [])
    assert [one.kind for one in closest_reply(summed, [second])[1]] == ["reply_usage_changed"] * 2


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from((*WIRES, "other")), st.binary(max_size=80), st.sampled_from([200, 400, 503, None]), st.booleans()
)
def test_nonsense_is_a_reply_with_faults_and_never_raises(
    wire: str, data: bytes, status: int | None, named: bool
) -> None:
    read = read_reply(wire, data, status=status, headers=_SSE if named else [])
    for front, back in ((read, _whole("anthropic", Reply("Hi", [], "stop"))), (read, read)):
        kinds = {one.kind for one in [*compare_replies(front, back), *reply_faults(front)]}
        assert kinds <= {*REPLY_KINDS, "after_done"}
    assert compare_replies(read, read) == []


def test_two_calls_that_a_gateway_gives_one_index_are_read_as_two() -> None:
    """A new id with a name is a new call; pieces without an id, or with the id again, go on with the last one."""

    def piece(**call: object) -> bytes:
        delta = {"tool_calls": [{"index": 1, **call}]}
        return sse({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    events = [
        piece(id="c1", type="function", function={"name": "read", "arguments": '{"path":'}),
        piece(id="c1", function={"arguments": '"a"'}),
        piece(function={"arguments": "}"}),
        piece(id="c2", type="function", function={"name": "read", "arguments": '{"path":"b"}'}),
        sse({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        b"data: [DONE]\n\n",
    ]
    back = _streamed("openai-chat", events)
    told = [(call["id"], json.loads(call["arguments"])) for call in back.tool_calls]
    assert told == [("c1", {"path": "a"}), ("c2", {"path": "b"})]
    assert "stream_index_wrong" in {one.kind for one in reply_faults(back)}
