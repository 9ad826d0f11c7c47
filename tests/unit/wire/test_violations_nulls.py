"""What a request says when fields are left out that say nothing: over three wires, null fields dropped, keys reordered,
bytes rewritten.
"""

import copy
import json

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.wire.apis import parse_request
from context_bench.wire.request import changes, facts
from context_bench.wire.violations import compare_requests

EXAMPLES = 100
DATA = {"const", "enum", "default", "examples"}


def told(wire, sent, received):
    raw = [json.dumps(body).encode() for body in (sent, received)]
    requests = [parse_request(wire, body) for body in (sent, received)]
    assert not changes(*map(facts, requests)) or raw[0] != raw[1]
    return {one.kind for one in compare_requests(*requests, sent_raw=raw[0], received_raw=raw[1])}


def dropped(value, inside=False):
    """The body as a proxy writes it that leaves out every field that is null; what a model wrote as arguments is no
    field of the API.
    """
    if isinstance(value, list):
        return [dropped(item) for item in value]
    if not isinstance(value, dict):
        return value
    called = str(value.get("type")).endswith("tool_use")
    return {
        key: item if key in DATA or (called and key == "input") else dropped(item)
        for key, item in value.items()
        if item is not None or key in DATA
    }


def turned(value):
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


USER = {"role": "user", "content": "Why?"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": None,
    "encrypted_content": "gAAAA1",
    "status": None,
}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "a", "sources": None},
}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln", "cache_control": None, "extra": None}
SERVER = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "a"}, "caller": None}
FETCHED = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [{"type": "web_search_result", "url": "u", "page_age": None}],
}
USE = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a", "limit": None}, "cache_control": None}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "text", "is_error": None}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "description": None, "enum": ["x", None]}},
    "required": ["a"],
}
SPOKEN = {"role": "assistant", "content": None, "refusal": None, "audio": None, "function_call": None, "name": None}
CALL = {"id": "c1", "type": "function", "index": None, "function": {"name": "read", "arguments": '{"a": null}'}}

WITH_NULLS = [
    ("openai-responses", {"input": [USER, REASONING, SAID]}),
    ("openai-responses", {"input": [USER, SAID, SEARCH, SAID]}),
    (
        "openai-responses",
        {"input": [{**USER, "status": None, "id": None}], "reasoning": {"effort": None, "summary": None}},
    ),
    (
        "openai-responses",
        {
            "input": "a",
            "instructions": None,
            "previous_response_id": None,
            "truncation": None,
            "text": {"format": None},
        },
    ),
    (
        "openai-responses",
        {"input": "a", "tools": [{"type": "function", "name": "f", "strict": None, "parameters": SCHEMA}]},
    ),
    (
        "anthropic",
        {"messages": [USER, {"role": "assistant", "content": [THOUGHT, USE]}, {"role": "user", "content": [RESULT]}]},
    ),
    (
        "anthropic",
        {
            "messages": [USER, {"role": "assistant", "content": [SERVER, FETCHED]}],
            "system": None,
            "stop_sequences": None,
        },
    ),
    (
        "anthropic",
        {"messages": [USER], "tools": [{"name": "f", "type": None, "input_schema": SCHEMA, "cache_control": None}]},
    ),
    (
        "anthropic",
        {"messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 2000, "display": None}, "metadata": None},
    ),
    (
        "anthropic",
        {
            "messages": [USER],
            "tools": [{"name": "f"}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": None},
        },
    ),
    (
        "openai-chat",
        {
            "messages": [
                USER,
                {**SPOKEN, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "x", "name": None},
            ]
        },
    ),
    (
        "openai-chat",
        {
            "messages": [USER],
            "temperature": None,
            "stop": None,
            "stream": None,
            "response_format": None,
            "tool_choice": None,
        },
    ),
    (
        "openai-chat",
        {
            "messages": [USER],
            "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": None}},
        },
    ),
    ("openai-chat", {"messages": [USER], "stream_options": {"include_usage": True, "include_obfuscation": None}}),
]


@pytest.mark.parametrize(("wire", "body"), WITH_NULLS, ids=[f"{i}-{case[0]}" for i, case in enumerate(WITH_NULLS)])
def test_a_null_field_left_out_is_no_loss(wire, body):
    assert dropped(body) != body
    for sent, received in ((body, dropped(body)), (dropped(body), body)):
        assert told(wire, sent, received) == {"json_reserialised"}
        assert changes(*(facts(parse_request(wire, each)) for each in (sent, received))) == []


@pytest.mark.parametrize(
    ("wire", "field", "value"),
    [
        ("openai-chat", "metadata", {}),
        ("openai-chat", "logit_bias", {}),
        ("openai-chat", "tools", []),
        ("anthropic", "stop_sequences", []),
        ("anthropic", "mcp_servers", []),
        ("anthropic", "system", ""),
        ("openai-responses", "include", []),
        ("openai-responses", "reasoning", {}),
        ("openai-responses", "instructions", ""),
    ],
)
def test_an_empty_value_that_the_api_takes_for_none_is_no_loss(wire, field, value):
    body = {"messages": [USER], "input": "Why?"}
    assert told(wire, {**body, field: value}, body) <= {"json_reserialised"}
    assert told(wire, body, {**body, field: value}) <= {"json_reserialised"}


@pytest.mark.parametrize(
    ("wire", "sent", "received", "kind"),
    [
        ("openai-chat", {"web_search_options": {}}, {}, "params_changed"),
        ("openai-chat", {"temperature": 0}, {}, "params_changed"),
        ("openai-chat", {"stop": ["a"]}, {"stop": []}, "params_changed"),
        ("openai-chat", {"user": ""}, {"user": None}, "params_changed"),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 9}}, {"thinking": None}, "thinking_changed"),
        (
            "openai-responses",
            {"previous_response_id": "r"},
            {"previous_response_id": None},
            "previous_response_id_changed",
        ),
        (
            "anthropic",
            {"tools": [{"name": "f", "input_schema": {"properties": {"a": {"const": None}}}}]},
            {"tools": [{"name": "f", "input_schema": {"properties": {"a": {}}}}]},
            "tool_meaning_changed",
        ),
        (
            "anthropic",
            {"tools": [{"name": "f", "input_schema": {"enum": ["a", None]}}]},
            {"tools": [{"name": "f", "input_schema": {"enum": ["a"]}}]},
            "tool_meaning_changed",
        ),
    ],
)
def test_what_is_not_null_is_a_loss(wire, sent, received, kind):
    body = {"messages": [USER], "input": "Why?"}
    assert kind in told(wire, {**body, **sent}, {**body, **received})


def test_the_arguments_that_a_model_wrote_are_no_fields_of_the_api():
    sent = {"messages": [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]}
    received = copy.deepcopy(sent)
    del received["messages"][1]["content"][0]["input"]["limit"]
    assert told("anthropic", sent, received) == {"tool_arguments_changed"}


# Made-up requests of three wires
# ------------------------------------------------------------------------

words = st.text("abc ", min_size=1, max_size=6)
leaves = st.none() | st.booleans() | st.integers(0, 9) | words
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "size", "name"]), inner, max_size=3)
    ),
)
extras = st.dictionaries(st.sampled_from(["status", "extra", "annotations", "caller"]), values, max_size=3)
schemas = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            st.sampled_from(["a", "title", "const", "description"]),
            st.fixed_dictionaries(
                {"type": st.sampled_from(["string", "number"])},
                optional={
                    "description": st.none() | words,
                    "enum": st.lists(leaves, min_size=1, max_size=3),
                    "const": leaves,
                },
            ),
            max_size=3,
        ),
        "required": st.none() | st.lists(words, max_size=2),
        "description": st.none() | words,
    },
)


@st.composite
def params(draw, names):
    return draw(st.dictionaries(st.sampled_from(names), values, max_size=4))


def named(items, key="name"):
    return [{**item, key: f"{item[key]}{i}"} for i, item in enumerate(items)]


@st.composite
def chat(draw):
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief.", "name": None}],
        **draw(params(["stop", "seed", "user"])),
    }
    for i in range(draw(st.integers(1, 3))):
        call = {"id": f"c{i}", "type": "function", "index": None, "function": {"name": "f", "arguments": '{"a": null}'}}
        picture = {"type": "image_url", "image_url": {"url": f"https://example.com/{i}", "detail": None}}
        body["messages"] += [
            {"role": "user", "content": [{"type": "text", "text": f"Question {i}?"}, picture], **draw(extras)},
            {
                "role": "assistant",
                "content": draw(st.none() | words),
                "refusal": None,
                "tool_calls": [call],
                **draw(extras),
            },
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"{draw(words)}{i}", **draw(extras)},
        ]
    tools = draw(
        st.lists(
            st.fixed_dictionaries({"name": words, "parameters": st.none() | schemas, "strict": st.none()}), max_size=3
        )
    )
    body["tools"] = [{"type": "function", "function": tool} for tool in named(tools)]
    blocks = [(body["messages"][i]["content"], 1) for i in range(1, len(body["messages"]), 3)]
    blocks += [(body["messages"], i) for i in range(2, len(body["messages"])) if i % 3 != 1]
    return "openai-chat", body, [*blocks, *((body["tools"], i) for i in range(len(tools)))]


@st.composite
def anthropic(draw):
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [],
        **draw(params(["stop_sequences", "top_k", "service_tier"])),
    }
    blocks = []
    for i in range(draw(st.integers(1, 3))):
        picture = {"type": "image", "source": {"type": "url", "url": f"https://example.com/{i}", "data": None}}
        asked = [picture, {"type": "text", "text": f"Question {i}?", "citations": None}]
        thought = {"type": "thinking", "thinking": draw(words), "signature": f"sig{i}", **draw(extras)}
        search = {"type": "server_tool_use", "id": f"s{i}", "name": "web_search", "input": draw(values), **draw(extras)}
        use = {"type": "tool_use", "id": f"t{i}", "name": "f", "input": draw(values), **draw(extras)}
        said = [
            thought,
            search,
            {"type": "web_search_tool_result", "tool_use_id": f"s{i}", "content": draw(values)},
            use,
        ]
        result = [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"{draw(words)}{i}", "is_error": None}]
        body["messages"] += [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": said},
            {"role": "user", "content": result},
        ]
        blocks += [(asked, 0), *((said, place) for place in (1, 2, 3)), (result, 0)]
    blocks.append((body["messages"][-2]["content"], 0))  # the thinking of the turn in progress
    tools = draw(
        st.lists(st.fixed_dictionaries({"name": words, "input_schema": schemas, "type": st.none()}), max_size=3)
    )
    body["tools"] = named(tools)
    return "anthropic", body, [*blocks, *((body["tools"], i) for i in range(len(tools)))]


@st.composite
def responses(draw):
    body = {
        "model": "m",
        "instructions": "Be brief.",
        "input": [],
        **draw(params(["truncation", "store", "reasoning", "text"])),
    }
    blocks = []
    for i in range(draw(st.integers(1, 3))):
        picture = {"type": "input_image", "image_url": f"https://example.com/{i}", "detail": None, "file_id": None}
        asked = [{"type": "input_text", "text": f"Question {i}?"}, picture]
        first = len(body["input"])
        body["input"] += [
            {"type": "message", "role": "user", "content": asked, "id": None},
            {
                "type": "reasoning",
                "id": f"r{i}",
                "summary": [],
                "content": None,
                "encrypted_content": draw(words),
                **draw(extras),
            },
            {"type": "web_search_call", "id": f"w{i}", "status": draw(st.none() | words), "action": draw(values)},
            {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": '{"a": null}', "id": None},
            {"type": "function_call_output", "call_id": f"c{i}", "output": f"{draw(words)}{i}"},
        ]
        blocks += [(asked, 1), *((body["input"], first + place) for place in (1, 2, 3, 4))]
    tools = draw(
        st.lists(st.fixed_dictionaries({"name": words, "parameters": schemas, "strict": st.none()}), max_size=3)
    )
    body["tools"] = [{"type": "function", **tool} for tool in named(tools)]
    return "openai-responses", body, [*blocks, *((body["tools"], i) for i in range(len(tools)))]


requests = st.one_of(chat(), anthropic(), responses())


@settings(max_examples=EXAMPLES)
@given(requests, st.booleans(), st.booleans())
def test_nothing_but_bytes_changes_when_null_fields_go_and_keys_move(made, without, other_order):
    wire, body, _ = made
    received = dropped(body) if without else copy.deepcopy(body)
    received = turned(received) if other_order else received
    assert told(wire, body, received) <= {"json_reserialised"}
    assert told(wire, received, body) <= {"json_reserialised"}


@settings(max_examples=EXAMPLES // 4)
@given(requests, st.booleans())
def test_a_block_that_is_gone_is_always_seen(made, without):
    wire, body, blocks = made
    sent = copy.deepcopy(body)
    for holder, place in blocks:
        gone = holder.pop(place)
        received = dropped(body) if without else body
        assert told(wire, sent, received) - {"json_reserialised"}, gone
        holder.insert(place, gone)
    assert body == sent
