"""Requests and replies of three providers: read, written, counted."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadReply
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.llm import shapes
from context_bench.wire.apis import (
    Reply,
    parse_reply,
    parse_request,
    render_reply,
    render_stream,
    stream_reader,
    wire_of,
)
from context_bench.wire.request import changes, count_request, facts

if TYPE_CHECKING:
    from bpe_openai import Encoding

WIRES = ("openai-chat", "openai-responses", "anthropic")


@pytest.mark.parametrize(
    ("method", "path", "wire"),
    [
        ("POST", "/v1/chat/completions", "openai-chat"),
        ("POST", "/chat/completions/", "openai-chat"),
        ("post", "/openai/deployments/gpt/chat/completions?api-version=2024", "openai-chat"),
        ("POST", "//v1//chat/completions", "openai-chat"),
        ("GET", "/v1/chat/completions", "other"),
        ("POST", "/v1/responses", "openai-responses"),
        ("POST", "/v1/responses/resp_1/cancel", "other"),
        ("GET", "/v1/responses/resp_1", "other"),
        ("POST", "/v1/responses/compact", "other"),
        ("POST", "/v1/messages?beta=true", "anthropic"),
        ("POST", "/anthropic/v1/messages", "anthropic"),
        ("POST", "/messages", "anthropic"),
        ("POST", "/v1/messages/count_tokens", "anthropic-count"),
        ("POST", "/v1/messages/batches", "other"),
        ("POST", "/v1/threads/t_1/messages", "other"),
        ("GET", "/v1/models", "models"),
        ("GET", "/v1/models/org/some-model", "models"),
        ("GET", "/models?limit=5", "models"),
        ("POST", "/v1beta/models/x:generateContent", "other"),
        ("POST", "/v1/embeddings", "embeddings"),
        ("GET", "/", "other"),
        ("POST", "", "other"),
    ],
)
def test_the_wire_is_known_by_method_and_path(method: str, path: str, wire: str) -> None:
    assert wire_of(method, path) == wire


def test_a_chat_request_in_neutral_form() -> None:
    body = {
        "model": "gpt-4o",
        "stream": True,
        "temperature": 0,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
                    {"type": "image_url", "image_url": {"url": "x"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "assistant", "content": "no", "refusal": "I will not"},
            {"role": "function", "name": "old", "content": "legacy"},
        ],
    }
    request = parse_request("openai-chat", body)
    assert [m.role for m in request.messages] == ["developer", "user", "assistant", "tool", "assistant", "function"]
    assert [[p.kind for p in m.parts] for m in request.messages] == [
        ["text"],
        ["text", "image_url"],
        ["reasoning"],
        ["text"],
        ["text", "refusal"],
        ["text"],
    ]
    assert request.messages[1].parts[0].cache_control == {"type": "ephemeral"}
    assert request.messages[1].parts[1].text is None
    assert request.messages[1].parts[1].raw == {"type": "image_url", "image_url": {"url": "x"}}
    assert request.messages[2].tool_calls == [{"id": "c1", "name": "f", "arguments": '{"a":1}'}]
    assert request.messages[3].tool_call_id == "c1"
    assert request.messages[5].tool_call_id == "old"
    assert (request.model, request.stream, request.params) == ("gpt-4o", True, {"temperature": 0})
    assert count_request(request, counter_for()).uncounted == 1


def test_an_anthropic_request_has_the_anatomy_of_the_same_conversation_elsewhere() -> None:
    body = {
        "model": "claude-x",
        "max_tokens": 5,
        "system": [
            {"type": "text", "text": "s1"},
            {"type": "text", "text": "s2", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "reading"},
                    {"type": "tool_use", "id": "t1", "name": "Read", "input": {"p": 1}},
                    {"type": "tool_use", "id": "t2", "name": "Read", "input": {"p": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": "two"}, {"type": "image", "source": {}}],
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "text", "text": "and now?"},
                    {"type": "document", "source": {"type": "text", "data": "doc text"}},
                    {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
                ],
            },
        ],
    }
    request = parse_request("anthropic", body)
    assert [m.role for m in request.messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert request.messages[2].tool_calls == [
        {"id": "t1", "name": "Read", "arguments": {"p": 1}},
        {"id": "t2", "name": "Read", "arguments": {"p": 2}},
    ]
    assert [(m.tool_call_id, m.text) for m in request.messages[3:5]] == [("t1", "one"), ("t2", "two")]
    assert request.messages[4].parts[-1].cache_control == {"type": "ephemeral"}
    assert [p.text for p in request.messages[5].parts] == ["and now?", "doc text", None]
    assert request.params == {"max_tokens": 5}
    assert facts(request)["cache_control"] == [[0, 1], [4, 1]]
    assert count_request(request, counter_for()).uncounted == 2


def test_a_responses_request_in_neutral_form() -> None:
    body = {
        "model": "gpt-5",
        "instructions": "be brief",
        "store": False,
        "input": [
            {"role": "user", "content": "short form"},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "long"}, {"type": "input_image", "image_url": "x"}],
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zzz"},
            {"type": "reasoning", "summary": [], "encrypted_content": "zzz"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "***"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "ok"}]},
            {"type": "web_search_call", "id": "w"},
            {"type": "item_reference", "id": "x"},
        ],
    }
    request = parse_request("openai-responses", body)
    roles = [
        "system",
        "user",
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "unknown",
    ]
    assert [m.role for m in request.messages] == roles
    assert request.messages[5].tool_calls == [{"id": "c1", "name": "f", "arguments": "{}"}]
    assert request.messages[7].tool_calls == [{"id": "c2", "name": "patch", "arguments": "***"}]
    assert (request.messages[6].tool_call_id, request.messages[8].text) == ("c1", "ok")
    assert count_request(request, counter_for()).uncounted == 4
    assert parse_request("openai-responses", {"input": "just text"}).messages[0].text == "just text"


def test_embeddings_are_counted_too() -> None:
    assert [p.text for p in parse_request("embeddings", {"input": ["a", "b"]}).messages[0].parts] == ["a", "b"]
    assert parse_request("embeddings", {"input": "a"}).messages[0].text == "a"
    assert count_request(parse_request("embeddings", {"input": [1, 2, 3]}), counter_for()).uncounted == 1


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "text", "user", "tool_use", "system", "ä\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "text",
                    "role",
                    "content",
                    "tool_calls",
                    "function",
                    "id",
                    "input",
                    "name",
                    "source",
                    "output",
                    "summary",
                    "cache_control",
                    "arguments",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(
    body=st.dictionaries(
        st.sampled_from(["messages", "input", "system", "instructions", "tools", "model", "stream", "x"]),
        json_values,
        max_size=5,
    )
)
@pytest.mark.parametrize("wire", [*WIRES, "anthropic-count", "embeddings", "models", "other"])
def test_no_request_is_too_strange_to_read_count_and_describe(wire: str, body: dict[str, Any]) -> None:
    request = parse_request(wire, body)
    counted = count_request(request, counter_for(request.model))
    parts = [part for message in request.messages for part in message.parts]
    assert counted.uncounted == sum(part.text is None for part in parts)
    assert counted.total >= 0
    assert changes(facts(request), facts(parse_request(wire, json.loads(json.dumps(body))))) == []


# The count rule, recounted by other code
# -----------------------------------------------------------------------------------------------


@cache
def encoding() -> Encoding:
    """It takes more than a second to load, and every process that runs tests collects this file."""
    from bpe_openai import get_encoding

    return get_encoding("o200k_base")


def tokens(text: str) -> int:
    return len(encoding().encode_ordinary(text))


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def recount(request: shapes.ShapedRequest) -> int:
    """Decision 17 straight from the body, without the neutral form."""
    body, total = request.body, 0

    def texts(content: Any) -> int:
        if isinstance(content, str):
            return tokens(content)
        return sum(tokens(part["text"]) for part in content or [] if "text" in part)

    def call(ident: str, name: str, arguments: Any) -> dict[str, Any]:
        return {"id": ident, "name": name, "arguments": arguments}

    total += texts(body.get("system")) + texts(body.get("instructions"))
    for message in body.get("messages", body.get("input", [])):
        content = message.get("content")
        calls = [
            call(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []
        ]
        if isinstance(content, list):
            calls += [call(b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"]
            total += sum(texts(b["content"]) for b in content if b["type"] == "tool_result")
        if message.get("type") == "function_call":
            calls.append(call(message["call_id"], message["name"], message["arguments"]))
        total += texts(content) + texts(message.get("output"))
        total += tokens(canonical(calls)) if calls else 0
    return total + (tokens(canonical(body["tools"])) if body.get("tools") else 0)


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_tokens_of_every_shape_equal_an_independent_count(shape: str) -> None:
    context = "The harbour bridge reopened on Tuesday — 24 bearings, naïve café, 北京, <|endoftext|> and 🎉.\n" * 30
    example = {"id": 7, "context": context, "question": "When did the bridge reopen?"}
    request = shapes.build(shape, example, "gpt-4o", system_prompt="Answer briefly.")
    assert request.tokens() == recount(request) > tokens(context)


# Replies
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "body", "says"),
    [
        ("openai-chat", {"choices": []}, "empty choices"),
        ("openai-chat", {}, "Unexpected response"),
        ("openai-chat", {"choices": [{}]}, "no 'message'"),
        ("openai-chat", {"choices": ["x"]}, "no 'message'"),
        ("openai-chat", {"choices": [{"message": {"content": 5}}]}, "content is a JSON int"),
        (
            "openai-chat",
            {"error": {"message": "quota used up", "code": "insufficient_quota"}},
            "insufficient_quota: quota used up",
        ),
        (
            "openai-chat",
            {"choices": [{"error": {"message": "upstream down"}, "message": {"content": ""}}]},
            "upstream down",
        ),
        ("openai-chat", [], "a JSON list"),
        ("openai-chat", "oops", "a JSON str"),
        ("openai-chat", None, "a JSON NoneType"),
        (
            "anthropic",
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            "overloaded_error: busy",
        ),
        ("anthropic", {"content": None}, "no list 'content'"),
        (
            "openai-responses",
            {"status": "failed", "output": [], "error": {"code": "server_error", "message": "sorry"}},
            "sorry",
        ),
        ("openai-responses", {"status": "failed", "output": []}, "status is 'failed'"),
        ("openai-responses", {"id": "x"}, "no list 'output'"),
    ],
)
def test_a_body_that_is_no_reply_says_why(wire: str, body: Any, says: str) -> None:
    with pytest.raises(BadReply, match=says):
        parse_reply(wire, body)


def test_null_content_is_no_text_and_never_the_word_none() -> None:
    reply = parse_reply(
        "openai-chat",
        {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": "content_filter"}]},
    )
    assert (reply.text, reply.finish_reason) == (None, "content_filter")
    assert (
        parse_reply("openai-chat", {"choices": [{"message": {"content": [{"type": "text", "text": "a"}, "b"]}}]}).text
        == "ab"
    )
    assert parse_reply("anthropic", {"content": [], "stop_reason": "max_tokens"}) == Reply(finish_reason="length")
    assert parse_reply(
        "openai-responses",
        {"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ) == Reply(finish_reason="length")


def test_what_anthropic_stores_for_an_hour_is_kept_apart() -> None:
    kinds = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
    told = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 0,
        "cache_creation": kinds,
    }
    message = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "usage": told}
    assert parse_reply("anthropic", message).usage == Usage(101, 2, 0, 100, cache_write_1h=70)
    told["cache_creation"] = {"ephemeral_1h_input_tokens": "many"}
    assert parse_reply("anthropic", message).usage == Usage(101, 2, 0, 100)


def test_usage_means_the_same_on_every_wire() -> None:
    chat = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    reply = parse_reply("openai-chat", {"choices": [{"message": {"content": "x"}}], "usage": chat})
    assert reply.usage == Usage(100, 7, 60, None, 3)
    assert reply.raw_usage == chat
    claude = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 7}
    assert parse_reply("anthropic", {"content": [], "usage": claude}).usage == Usage(100, 7, 60, 30)
    new = {
        "input_tokens": 100,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    assert parse_reply("openai-responses", {"output": [], "usage": new}).usage == Usage(100, 7, 60, None, 3)


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -1, "completion_tokens": "7"}, {"prompt_tokens": True}, 5],
)
def test_usage_that_says_nothing_is_never_zero(usage: Any) -> None:
    found = parse_reply("openai-chat", {"choices": [{"message": {"content": "x"}}], "usage": usage}).usage
    assert found is None or (found.input_tokens is None and found.output_tokens is None)


def test_stop_reasons_are_said_in_one_language() -> None:
    reasons = {
        "end_turn": "stop",
        "max_tokens": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
        "stop_sequence": "stop",
        "pause_turn": "pause_turn",
    }
    for theirs, ours in reasons.items():
        assert parse_reply("anthropic", {"content": [], "stop_reason": theirs}).finish_reason == ours


words = st.text(min_size=1, max_size=30)
arguments = st.dictionaries(
    st.text(max_size=5), st.text(max_size=9) | st.integers(-9, 9) | st.booleans() | st.none(), max_size=3
).map(canonical)
calls = st.lists(st.fixed_dictionaries({"id": words, "name": words, "arguments": arguments}), max_size=3)
counts = st.integers(0, 10**6)


@st.composite
def replies(draw: st.DrawFn, wire: str) -> Reply:
    """Replies that the wire has words for."""
    made = draw(calls)
    claude = wire == "anthropic"
    read, write = draw(st.none() | counts), draw(st.none() | counts)
    usage = Usage(
        (read or 0) + (write or 0) + draw(counts),
        draw(counts),
        read,
        write,
        None if claude else draw(st.none() | counts),
    )
    ends = ["length", "content_filter", "tool_calls" if made else "stop"]
    return Reply(
        text=draw(st.none() | words) if made else draw(st.text(max_size=40)),
        tool_calls=made,
        finish_reason=draw(st.sampled_from(ends)),
        usage=usage,
        model=draw(words),
        refusal=None if claude else draw(st.none() | words),
        reasoning=draw(st.none() | words),
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), pieces=st.integers(1, 9))
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_written_is_read_back_whole_and_streamed(wire: str, data: st.DataObject, pieces: int) -> None:
    reply = data.draw(replies(wire))
    asked = {"messages": [{"role": "user", "content": "q"}], "input": "q", "stream_options": {"include_usage": True}}
    request = parse_request(wire, asked)
    body = json.loads(json.dumps(render_reply(wire, reply, request)))
    assert parse_reply(wire, body) == reply
    reader = stream_reader(wire)
    for event in render_stream(wire, reply, request, pieces):
        reader.feed(event)
    reader.close()
    expected = Reply(**{name: getattr(reply, name) for name in Reply.__dataclass_fields__})
    if expected.text == "" and expected.refusal and wire == "openai-chat":
        expected.text = None  # a stream opens with an empty text, whatever follows
    assert (reader.reply, reader.complete, reader.error) == (expected, True, None)
    assert reader.started == bool(reply.text or reply.tool_calls or reply.reasoning or reply.refusal)


def test_lone_surrogates_survive_where_they_can() -> None:
    body = json.loads(json.dumps({"messages": [{"role": "user", "content": "a\ud800b"}]}))
    request = parse_request("openai-chat", body)
    assert count_request(request, counter_for()).total > 0
    reply = Reply(text="x\ud800y", finish_reason="stop")
    reader = stream_reader("openai-chat")
    for event in render_stream("openai-chat", reply, request, 1):
        reader.feed(event)
    reader.close()
    assert reader.reply.text == "x\ud800y"


def test_a_wire_without_replies_is_refused_by_name() -> None:
    request = parse_request("models", {})
    for act in (
        lambda: parse_reply("models", {}),
        lambda: render_reply("models", Reply(), request),
        lambda: render_stream("models", Reply(), request),
        lambda: stream_reader("models"),
    ):
        with pytest.raises(ValueError, match="models"):
            act()


def test_tools_that_codex_defines_in_an_item_of_the_input_are_tools() -> None:
    more = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "custom", "name": "exec", "description": "Run code."}],
    }
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
    request = parse_request(
        "openai-responses", {"model": "m", "input": [more, said], "tools": [{"type": "function", "name": "a"}]}
    )
    assert [tool["name"] for tool in request.tools] == ["a", "exec"]
    assert [message.role for message in request.messages] == ["user"]
    assert parse_request("openai-responses", {"input": [{**more, "tools": "none"}, said]}).tools == []
