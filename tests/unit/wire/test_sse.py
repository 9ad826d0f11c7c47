"""Streams as providers send them, cut as networks cut them."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadReply
from context_bench.core.records import Usage
from context_bench.wire.apis import (
    EndOfStream,
    Reply,
    StreamReader,
    parse_reply,
    parse_request,
    render_reply,
    render_stream,
    stream_reader,
)
from context_bench.wire.apis.shared import EventReader


def events(data: bytes, *cuts: int) -> list[tuple[str, str]]:
    reader = EventReader()
    edges = [0, *sorted(cuts), len(data)]
    found = [event for a, b in itertools.pairwise(edges) for event in reader.feed(data[a:b])]
    return [*found, *reader.close()]


def read(wire: str, *chunks: bytes) -> StreamReader:
    reader = stream_reader(wire)
    for chunk in chunks:
        reader.feed(chunk)
    reader.close()
    return reader


def chat(*chunks: Any) -> bytes:
    """Chat chunks as they come: deltas, or whole chunk objects, or bare texts."""
    lines = []
    for chunk in chunks:
        if isinstance(chunk, dict) and "choices" not in chunk and "error" not in chunk:
            chunk = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": chunk, "finish_reason": None}]}
        lines.append(f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)}\n\n")
    return "".join(lines).encode()


def end(reason: str = "stop") -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


USAGE = {
    "id": "x",
    "model": "m",
    "choices": [],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [("", "a")]),
        (b"data:a\ndata: b\n\n", [("", "a\nb")]),
        (b"event: e\ndata: a\nid: 3\nretry: 5\n\ndata: b\n\n", [("e", "a"), ("", "b")]),
        (b": ping\n\n: ping\ndata: a\n\n", [("", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        (b"data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", "a"), ("", "b")]),
        (b"event: e\n\ndata: a\n\n", [("", "a")]),
        (b"data\n\ndata:  two spaces\n\n", [("", ""), ("", " two spaces")]),
        (b"data: no blank line", [("", "no blank line")]),
        (b"data: one end\n", [("", "one end")]),
        (b"\n\n\n", []),
        (b"", []),
        (b"data: \xff\n\n", [("", "\ufffd")]),
        ("data: a\u2028b\x0bc\x85\n\n".encode(), [("", "a\u2028b\x0bc\x85")]),
    ],
)
def test_events_are_cut_by_the_rules_of_the_format(data: bytes, expected: list[tuple[str, str]]) -> None:
    assert events(data) == expected
    assert events(data, *range(1, len(data))) == expected


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text(alphabet="aé🎉 :\n", max_size=12), max_size=5),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    data=st.data(),
)
def test_any_cut_of_any_line_end_gives_the_same_events(texts: list[str], ending: str, data: st.DataObject) -> None:
    stream = "".join(
        "".join(f": note{ending}event: e{ending}" + "".join(f"data: {line}{ending}" for line in text.split("\n")))
        + ending
        for text in texts
    ).encode()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert events(stream, *cuts) == [("e", text) for text in texts]


FULL = Reply(
    text="Grüße 🎉 aus 北京, done.",
    tool_calls=[{"id": "c1", "name": "f", "arguments": '{"q":"ä"}'}, {"id": "c2", "name": "g", "arguments": "{}"}],
    finish_reason="tool_calls",
    usage=Usage(30, 12, 4, 2, None),
    model="m-1",
    reasoning="Let me think… 思考",
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_any_cut_of_a_providers_stream_gives_the_same_reply(wire: str, data: st.DataObject, ending: bytes) -> None:
    request = parse_request(
        wire, {"messages": [{"role": "user", "content": "q"}], "stream_options": {"include_usage": True}}
    )
    stream = b": keep-alive\n\n".join(render_stream(wire, FULL, request, 3)).replace(b"\n", ending)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    reader = read(wire, *(stream[a:b] for a, b in itertools.pairwise(edges)))
    assert reader.reply == FULL
    assert (reader.started, reader.complete, reader.error) == (True, True, None)


LAST = {
    "openai-chat": [b"data: [DONE]\n\n"],
    "openai-responses": [
        b'event: response.completed\ndata: {"type":"response.completed","response":{"output":[]}}\n\n',
        b'data: {"response":{"output":[]},"type":"response.incomplete"}\n\n',
        b'data: {"type":"response.failed","response":{"error":{"message":"no"}}}\n\n',
        b"data: [DONE]\n\n",
    ],
    "anthropic": [
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        b'data: {"type":"message_stop"}\n\n',
        b"data: [DONE]\n\n",
    ],
}


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("wire", LAST)
def test_what_follows_the_last_event_is_kept_aside_wherever_it_is_cut(wire: str, data: st.DataObject) -> None:
    """A second whole stream after the end of the first changes nothing of the reply, and is counted."""
    request = parse_request(
        wire, {"messages": [{"role": "user", "content": "q"}], "stream_options": {"include_usage": True}}
    )
    first = b"".join(render_stream(wire, FULL, request, 2))
    other = Reply(text="EVIL", finish_reason="length", usage=Usage(1, 1), model="m-2")
    more = b"".join(render_stream(wire, other, request, 2))
    stream = first + data.draw(st.sampled_from([b"", *LAST[wire]])) + more + b": bye\n\ndata: {half"
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]
    reader = read(wire, *(stream[a:b] for a, b in itertools.pairwise(edges)))
    assert reader.reply == FULL
    assert (reader.over, reader.complete, reader.error) == (True, True, None)
    aside = reader.reply.after_done
    assert aside is not None
    assert aside["events"] >= more.count(b"data: ") - more.count(b"[DONE]") - more.count(b"event: ping")
    assert "EVIL"[:2] in aside["text"]
    assert "EVIL" not in str(reader.reply.text)


@pytest.mark.parametrize("wire", LAST)
def test_what_is_kept_aside_ends_between_words(wire: str) -> None:
    """Half a key at its end would not be found."""
    key = "KEY" + "0123456789" * 20
    reader = stream_reader(wire)
    reader.feed(LAST[wire][0] + b"".join(b"data: it is %s, so\n\n" % key.encode() for _ in range(20)))
    assert reader.reply.after_done is not None
    text = reader.reply.after_done["text"].replace(key, "")
    assert len(text) < len(reader.reply.after_done["text"]) <= 2_000
    assert "KEY" not in text


@pytest.mark.parametrize(("wire", "last"), [(wire, last) for wire, each in LAST.items() for last in each])
def test_the_last_event_of_each_wire_ends_it_and_ends_it_once(wire: str, last: bytes) -> None:
    for cut in range(len(last)):
        reader = stream_reader(wire)
        reader.feed(last[:cut])
        assert not reader.over
        reader.feed(last[cut:])
        assert reader.over
        reader.feed(b"data: [DONE]\n\nevent: ping\ndata: {}\n\n: note\n\n")
        assert reader.reply.after_done is None


@pytest.mark.parametrize(("wire", "last"), [(wire, last) for wire, each in LAST.items() for last in each])
def test_the_end_of_a_stream_is_found_in_its_bytes_at_the_beginning_of_a_line_only(wire: str, last: bytes) -> None:
    quoted = (
        b'data: {"text":"say data: [DONE] or event: message_stop or {\\"type\\":\\"response.completed\\"} or '
        b'\\ndata: [DONE]"}\n\n'
    )
    typed_first = b'"type"' not in last or last.startswith((b"event", b'data: {"type"'))
    for cut in range(len(last)):
        finder = EndOfStream()
        assert not finder.begins_in(quoted)
        assert not finder.begins_in(b"x" * 200)
        found = [finder.begins_in(piece) for piece in (b"\n\n" + last[:cut], last[cut:])]
        assert any(found) == typed_first, cut
        if typed_first and not found[0]:
            assert b"}" not in last[:cut].partition(b"{")[2] or b"}\n\n" not in last[:cut]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_end_is_whole_with_the_empty_line_after_its_event(newline: bytes, size: int) -> None:
    data = newline.join([b"data: {}", b"", b"event: message_stop", b'data: {"type": "message_stop"}', b"", b""])
    finder = EndOfStream()
    for at in range(0, len(data), size):
        finder.begins_in(data[at : at + size])
        here = data[: at + size]
        assert finder.whole == (
            here.endswith(newline) and b"stop" in here and here.endswith((newline * 2, b"}" + newline * 2))
        )
    assert finder.whole


def test_a_bare_role_is_not_yet_an_answer() -> None:
    reader = stream_reader("openai-chat")
    reader.feed(chat({"role": "assistant", "content": ""}))
    assert not reader.started
    reader.feed(chat({"role": "assistant", "content": None}, {"content": ""}, {}))
    assert not reader.started
    reader.feed(chat({"content": "H"}))
    assert reader.started
    assert reader.reply.text == "H"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]},
    ],
)
def test_reasoning_refusals_and_tool_calls_start_an_answer(delta: dict[str, Any]) -> None:
    assert read("openai-chat", chat({"role": "assistant", "content": ""}, delta)).started


def test_usage_may_come_last_and_the_end_mark_once_twice_or_never() -> None:
    body = [{"role": "assistant", "content": ""}, {"content": "Hi"}, end(), USAGE]
    for marks in ([], ["[DONE]"], ["[DONE]", "[DONE]"]):
        reader = read("openai-chat", chat(*body, *marks))
        assert reader.complete
        assert reader.error is None
        assert reader.reply == Reply("Hi", [], "stop", Usage(9, 2), "m")
    assert read("openai-chat", chat({"content": "Hi"}, "[DONE]")).complete


def test_two_tool_calls_may_come_interleaved() -> None:
    def part(index: int, text: str, **head: str) -> dict[str, Any]:
        named = (
            {"function": {"name": head["name"], "arguments": text}}
            if "name" in head
            else {"function": {"arguments": text}}
        )
        return {"tool_calls": [{"index": index, **({"id": head["id"]} if "id" in head else {}), **named}]}

    deltas = [
        part(0, "", id="a", name="f"),
        part(1, "", id="b", name="g"),
        part(1, '{"y"'),
        part(0, '{"x":'),
        part(1, ":2}"),
        part(0, "1}"),
    ]
    reader = read("openai-chat", chat({"role": "assistant", "content": ""}, *deltas, end("tool_calls"), "[DONE]"))
    assert reader.reply.tool_calls == [
        {"id": "a", "name": "f", "arguments": '{"x":1}'},
        {"id": "b", "name": "g", "arguments": '{"y":2}'},
    ]
    assert reader.reply.text is None


def test_tool_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    one = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]}
    more = {"tool_calls": [{"function": {"arguments": "}"}}]}
    two = {"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]}
    calls = read("openai-chat", chat(one, more, two)).reply.tool_calls
    assert [(call["id"], call["arguments"]) for call in calls] == [("a", "{}"), ("b", "{}")]


def test_other_choices_and_the_old_function_call() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    reader = read("openai-chat", chat({"content": "yes"}, other, {"function_call": {"name": "f", "arguments": "{}"}}))
    assert (reader.reply.text, reader.complete) == ("yes", False)
    assert reader.reply.tool_calls == [{"id": None, "name": "f", "arguments": "{}"}]


@pytest.mark.parametrize(
    ("wire", "data", "says"),
    [
        ("openai-chat", chat({"content": "a"}, {"error": {"message": "engine died", "code": 500}}), "500: engine died"),
        ("openai-chat", b'event: error\ndata: {"message": "late refusal"}\n\n', "late refusal"),
        ("openai-chat", b"data: <html>\n\n", "invalid JSON"),
        ("openai-chat", b"data: [1]\n\n", "invalid JSON"),
        (
            "anthropic",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n',
            "overloaded_error: busy",
        ),
        (
            "openai-responses",
            b'event: error\ndata: {"type":"error","code":"rate_limit","message":"slow","param":null}\n\n',
            "slow",
        ),
        (
            "openai-responses",
            b'data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"sorry"}}}\n\n',
            "sorry",
        ),
        ("openai-responses", b'data: {"type":"response.completed","response":{"error":{"message":"odd"}}}\n\n', "odd"),
    ],
)
def test_errors_inside_a_stream_are_told(wire: str, data: bytes, says: str) -> None:
    assert says in (read(wire, data).error or "")


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_a_stream_that_breaks_off_is_not_complete(wire: str) -> None:
    request = parse_request(wire, {"messages": [{"role": "user", "content": "q"}]})
    stream = b"".join(render_stream(wire, FULL, request, 4))
    for share in (0.3, 0.6, 0.8):
        reader = read(wire, stream[: int(len(stream) * share)])
        assert not reader.complete
        assert reader.error is None, "half an event is a broken connection, not bad JSON"
    assert read(wire, stream[: int(len(stream) * 0.8)]).started


def test_an_anthropic_stream_as_that_provider_sends_it() -> None:
    sent = [
        (
            "message_start",
            {
                "message": {
                    "id": "msg_1",
                    "model": "claude-x",
                    "content": [],
                    "usage": {"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 1},
                }
            },
        ),
        ("content_block_start", {"index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        ("ping", {}),
        ("content_block_delta", {"index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "signature_delta", "signature": "EqQB"}}),
        ("content_block_stop", {"index": 0}),
        ("content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": "I look."}}),
        ("content_block_stop", {"index": 1}),
        (
            "content_block_start",
            {"index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}},
        ),
        ("content_block_delta", {"index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        ("content_block_delta", {"index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"b": 1,'}}),
        ("content_block_delta", {"index": 2, "delta": {"type": "input_json_delta", "partial_json": ' "a": 2}'}}),
        ("content_block_stop", {"index": 2}),
        ("something_new", {"index": 9}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                "usage": {"input_tokens": 0, "output_tokens": 15},
            },
        ),
        ("message_stop", {}),
    ]
    data = "".join(f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n" for kind, body in sent)
    reader = read("anthropic", data.encode())
    assert reader.reply == Reply(
        text="I look.",
        tool_calls=[{"id": "toolu_1", "name": "look", "arguments": '{"a":2,"b":1}'}],
        finish_reason="tool_calls",
        usage=Usage(30, 15, 5, None),
        model="claude-x",
        reasoning="hm",
    )
    assert reader.complete


def test_a_responses_stream_whose_last_event_leaves_the_output_out() -> None:
    sent: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"model": "gpt-5", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "content": []}},
        {
            "type": "response.output_item.added",
            "output_index": 2,
            "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hi"},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "}"},
    ]
    last = {
        "type": "response.completed",
        "response": {"status": "completed", "usage": {"input_tokens": 3, "output_tokens": 4}},
    }
    data = [f"data: {json.dumps(event)}\n\n".encode() for event in sent]
    early = read("openai-responses", *data)
    assert (early.reply.text, early.reply.reasoning, early.complete) == ("Hi", "hm", False)
    whole = read("openai-responses", *data, f"data: {json.dumps(last)}\n\n".encode())
    assert whole.reply == Reply(
        "Hi", [{"id": "c", "name": "f", "arguments": "{}"}], "tool_calls", Usage(3, 4), "gpt-5", None, "hm"
    )
    assert whole.complete


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_what_we_stream_has_the_providers_order_of_events(wire: str) -> None:
    request = parse_request(
        wire, {"messages": [{"role": "user", "content": "q"}], "stream_options": {"include_usage": True}}
    )
    reply = Reply("Hello", [{"id": "c", "name": "f", "arguments": "{}"}], "tool_calls", Usage(3, 4), "m")
    found = events(b"".join(render_stream(wire, reply, request, 1)))
    bodies = [data if data == "[DONE]" else json.loads(data) for _, data in found]
    if wire == "openai-chat":
        assert bodies[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert [body["choices"][0]["delta"] for body in bodies[1:-3]] == [
            {"content": "Hello"},
            {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        ]
        assert bodies[-3]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}
        assert bodies[-2]["choices"] == []
        assert bodies[-2]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        assert all(body["usage"] is None for body in bodies[:-2])
        assert bodies[-1] == "[DONE]"
    elif wire == "anthropic":
        assert [name for name, _ in found] == [body["type"] for body in bodies]
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        tool = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
        assert [name for name, _ in found] == [
            "message_start",
            block[0],
            "ping",
            *block[1:],
            *tool,
            "message_delta",
            "message_stop",
        ]
        assert bodies[0]["message"]["content"] == []
        assert bodies[-2] == {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"input_tokens": 3, "output_tokens": 4},
        }
    else:
        assert [name for name, _ in found] == [body["type"] for body in bodies]
        assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
        assert [name.removeprefix("response.") for name, _ in found] == [
            *(
                "created",
                "in_progress",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.done",
            ),
            *("content_part.done", "output_item.done", "output_item.added", "function_call_arguments.delta"),
            *("function_call_arguments.done", "output_item.done", "completed"),
        ]
        assert bodies[-1]["response"]["usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        assert bodies[0]["response"]["usage"] is None


def test_usage_is_streamed_only_to_those_who_asked() -> None:
    reply = Reply("Hi", usage=Usage(1, 1), finish_reason="stop")
    plain = parse_request("openai-chat", {"messages": []})
    assert b"usage" not in b"".join(render_stream("openai-chat", reply, plain))


def test_a_long_line_in_small_pieces_costs_no_square() -> None:
    body = chat({"content": "x" * 2_000_000})
    reader = stream_reader("openai-chat")
    for start in range(0, len(body), 1000):
        reader.feed(body[start : start + 1000])
    assert len(reader.reply.text or "") == 2_000_000


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in _places(child, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


@settings(max_examples=100, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_a_good_stream_with_one_thing_wrong_in_it_is_still_read(wire: str, data: st.DataObject) -> None:
    request = parse_request(
        wire, {"messages": [{"role": "user", "content": "q"}], "stream_options": {"include_usage": True}}
    )
    odd = st.sampled_from(
        [None, True, 0, -1, 1.5, "", "x", [], ["x"], [None], {}, {"x": None}, [{}], [[]], {"type": "text"}]
    )
    sent = [
        json.loads(text) if text != "[DONE]" else text
        for _, text in events(b"".join(render_stream(wire, FULL, request, 1)))
    ]
    place = data.draw(st.sampled_from(_places(sent)))
    changed = _replaced(sent, place, data.draw(odd)) if place else []
    reader = read(
        wire, *(f"data: {body if isinstance(body, str) else json.dumps(body)}\n\n".encode() for body in changed)
    )
    assert isinstance(reader.error, str | None)
    assert all(isinstance(call["arguments"], str) for call in reader.reply.tool_calls)
    whole = render_reply(wire, FULL, request)
    place = data.draw(st.sampled_from(_places(whole)))
    with contextlib.suppress(BadReply):
        reply = parse_reply(wire, _replaced(whole, place, data.draw(odd)))
        assert all(isinstance(call["arguments"], str) for call in reply.tool_calls)
        assert all(
            isinstance(getattr(reply, field), str | None)
            for field in ("text", "refusal", "reasoning", "model", "finish_reason")
        )


@given(st.text("\n\r:da x", max_size=60), st.lists(st.integers(0, 60), max_size=3))
@settings(max_examples=200, deadline=None)
def test_repeated_empty_lines_change_no_event(text: str, cuts: list[int]) -> None:
    data = text.replace("d", "data: x").encode()
    flood = data.replace(b"\n\n", b"\n" * 9)
    assert events(flood) == events(data)
    assert events(flood, *(cut for cut in cuts if cut <= len(flood))) == events(data)
