"""What is wrong with a request where it arrived: each rule with a body that breaks it and one that comes close, and
silence on what real clients send.
"""

import copy
import json

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.datasets import sessions
from context_bench.llm.shapes import SHAPES, build
from context_bench.wire.violations import RULES, family_of, lint_changes, lint_request, rule_for

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TEXT = {"type": "text", "text": "hello"}
USER, ASSISTANT = {"role": "user", "content": "go"}, {"role": "assistant", "content": "I will."}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def call(ident="c1"):
    return {"id": ident, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def calls(*idents):
    return {"role": "assistant", "content": None, "tool_calls": [call(ident) for ident in idents]}


def result(ident="c1", content="x = 1"):
    return {"role": "tool", "tool_call_id": ident, "content": content}


def use(*idents):
    blocks = [{"type": "tool_use", "id": ident, "name": "read", "input": {}} for ident in idents]
    return {"role": "assistant", "content": blocks}


def answers(*idents, before=(), **more):
    blocks = [{"type": "tool_result", "tool_use_id": ident, "content": "x", **more} for ident in idents]
    return {"role": "user", "content": [*before, *blocks]}


def chat(*messages, **more):
    return "openai-chat", {"model": "gpt-4.1", "messages": list(messages or [USER]), **more}


def claude(*messages, **more):
    return "anthropic", {"model": "claude-sonnet-4-5", "max_tokens": 99, "messages": list(messages or [USER]), **more}


def responses(*items, **more):
    return "openai-responses", {"model": "gpt-4.1", "input": list(items or [USER]), **more}


def function(schema=SCHEMA, name="read"):
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def tool(schema=SCHEMA, name="read"):
    return {"name": name, "input_schema": schema}


def parts(*blocks, role="user"):
    return {"role": role, "content": list(blocks)}


def made(**more):
    """A message of the assistant with one call, some of it in another form."""
    told = {key: value for key, value in {**call(), **more}.items() if value is not None}
    return {"role": "assistant", "content": None, "tool_calls": [told]}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
MISSING = {**SCHEMA, "required": ["path", "title"]}
OPEN_ENDED = {**MISSING, "allOf": [{"properties": {"title": {}}}]}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
CALL_ITEM = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 50}}
THOUGHT = {"type": "thinking", "thinking": "So.", "signature": "c2ln"}

#: kind, a request that breaks the rule, one that comes close
CASES = [
    ("foreign_block", chat(parts({"type": "tool_result", "tool_use_id": "c", "content": "x"})), chat(parts(TEXT))),
    ("foreign_block", claude(parts({"type": "input_text", "text": "x"})), claude(parts(TEXT))),
    ("foreign_block", responses(parts(TEXT)), responses(parts({"type": "input_text", "text": "x"}))),
    ("foreign_block", responses(USER, {"type": "tool_use", "id": "c"}), responses(USER, CALL_ITEM, OUTPUT)),
    ("foreign_tool", chat(tools=[tool()]), chat(tools=[function()])),
    ("foreign_tool", claude(tools=[function()]), claude(tools=[{"type": "web_search_20250305", "name": "web_search"}])),
    (
        "foreign_tool",
        responses(tools=[function()]),
        responses(tools=[{"type": "function", "name": "f", "parameters": {}}]),
    ),
    ("cache_mark_unknown", chat(parts(TEXT | MARK, role="system"), USER), chat(parts(TEXT, role="system"), USER)),
    ("cache_mark_unknown", chat(USER | MARK), chat(USER | MARK, model="anthropic/claude-sonnet-4.5")),
    ("too_many_cache_marks", claude(parts(*[TEXT | MARK] * 5)), claude(parts(*[TEXT | MARK] * 4))),
    ("too_many_cache_marks", claude(parts(*[TEXT | MARK] * 4), tools=[tool() | MARK]), claude(tools=[tool() | MARK])),
    ("cache_mark_order", claude(parts(TEXT | MARK, TEXT | HOUR)), claude(parts(TEXT | HOUR, TEXT | MARK))),
    ("cache_mark_order", claude(parts(TEXT | HOUR), tools=[tool() | MARK]), claude(parts(TEXT), tools=[tool() | HOUR])),
    ("cache_mark_misplaced", claude(USER, parts(THOUGHT | MARK, TEXT, role="assistant")), claude(parts(TEXT | MARK))),
    ("cache_mark_misplaced", claude(parts(TEXT, {"type": "text", "text": " "} | MARK)), claude(parts(TEXT | MARK))),
    (
        "cache_mark_in_result",
        claude(USER, use("c"), parts({"type": "tool_result", "tool_use_id": "c", "content": [TEXT | MARK]})),
        claude(USER, use("c"), parts({"type": "tool_result", "tool_use_id": "c", "content": [TEXT]} | MARK)),
    ),
    (
        "tool_result_not_first",
        claude(USER, use("c"), answers("c", before=[TEXT])),
        claude(USER, use("c"), parts(*answers("c")["content"], TEXT)),
    ),
    (
        "tool_result_late",
        claude(USER, use("a", "b"), answers("a"), ASSISTANT, answers("b")),
        claude(USER, use("a", "b"), answers("a"), answers("b")),
    ),
    (
        "tool_result_late",
        chat(USER, calls("a", "b"), result("a"), USER, result("b")),
        chat(USER, calls("a", "b"), result("b"), result("a"), USER),
    ),
    ("orphan_tool_result", chat(USER, result()), chat(USER, calls("c1"), result())),
    ("orphan_tool_result", responses(USER, OUTPUT), responses(OUTPUT, previous_response_id="resp_1")),
    ("unanswered_tool_call", claude(USER, use("c"), USER), claude(USER, use("c"), answers("c"))),
    ("unanswered_tool_call", chat(USER, calls("a", "b"), result("a")), chat(USER, calls("a"), result("a"))),
    ("duplicate_tool_result", chat(USER, calls("a"), result("a"), result("a")), chat(USER, calls("a"), result("a"))),
    ("duplicate_call_id", claude(USER, use("a", "a"), answers("a")), claude(USER, use("a", "b"), answers("a", "b"))),
    ("duplicate_turn", chat(USER, ASSISTANT, ASSISTANT, USER), chat(USER, ASSISTANT, USER, ASSISTANT, USER)),
    ("assistant_first", claude(ASSISTANT, USER), claude(USER, ASSISTANT)),
    ("assistant_first", chat(ASSISTANT, USER, model="anthropic.claude-v2"), chat(ASSISTANT, USER)),
    (
        "tool_setting_without_tools",
        chat(parallel_tool_calls=False),
        chat(parallel_tool_calls=False, tools=[function()]),
    ),
    ("tool_setting_without_tools", claude(tool_choice={"type": "auto"}), claude(tool_choice=None)),
    ("empty_list", chat(tools=[]), chat(tools=None)),
    ("empty_list", chat(USER, {**ASSISTANT, "tool_calls": []}), chat(USER, ASSISTANT)),
    ("empty_content", claude(parts({"type": "text", "text": ""})), claude(USER, {"role": "assistant", "content": []})),
    ("empty_content", chat({"role": "user", "content": None}), chat(USER, calls("a"), result("a", ""))),
    ("unknown_message_key", chat(USER | {"timestamp": 2.5}), chat(USER | {"name": "me", "timestamp": None})),
    ("unknown_message_key", claude(USER | {"reasoning_details": []}), claude(USER)),
    ("unknown_block_key", claude(parts(TEXT | {"id": 1})), claude(parts(TEXT | {"citations": []}))),
    ("role_unknown", claude(USER, {"role": "tool", "content": "x"}), claude(USER, ASSISTANT)),
    (
        "role_unknown",
        claude(USER, ASSISTANT, {"role": "system", "content": "French."}),
        claude(USER, ASSISTANT, {"role": "system", "content": "French."}, model="claude-opus-4-8"),
    ),
    (
        "tool_result_in_parts",
        chat(USER, calls("a"), result("a", [TEXT, TEXT])),
        chat(
            USER,
            calls("a"),
            result("a", [TEXT, {"type": "image_url", "image_url": {"url": "https://a.example/b"}}]),
            model="my-model",
        ),
    ),
    (
        "media_as_text",
        chat(USER, calls("a"), result("a", json.dumps([TEXT, {"type": "media", "data": PNG}]))),
        chat(USER, calls("a"), result("a", json.dumps([TEXT, {"type": "media", "data": "none"}]))),
    ),
    ("schema_property_missing", claude(tools=[tool(MISSING)]), claude(tools=[tool(OPEN_ENDED)])),
    (
        "schema_property_missing",
        responses(
            USER, {"type": "tool_search_output", "tools": [{"name": "f", "type": "function", "parameters": MISSING}]}
        ),
        responses(
            USER, {"type": "tool_search_output", "tools": [{"name": "f", "type": "function", "parameters": SCHEMA}]}
        ),
    ),
    (
        "schema_array_without_items",
        chat(tools=[function({"type": "object", "properties": {"a": {"type": "array"}}})]),
        chat(tools=[function({"type": "object", "properties": {"type": {"type": "array", "items": {}}}})]),
    ),
    ("schema_not_object", claude(tools=[tool({"properties": {}})]), claude(tools=[tool({"type": "object"})])),
    ("duplicate_tool_name", claude(tools=[tool(), tool()]), claude(tools=[tool(), tool(name="write")])),
    ("tool_name_refused", chat(tools=[function(name="a.b")]), chat(tools=[function(name="a_b-1")])),
    ("reasoning_item_alone", responses(USER, REASONING, USER), responses(USER, REASONING, CALL_ITEM, OUTPUT)),
    ("max_tokens_missing", claude(max_tokens=None), claude()),
    ("thinking_setting_refused", claude(**THINKS, temperature=0.2), claude(**THINKS, temperature=1)),
    ("thinking_setting_refused", claude(**THINKS, max_tokens=50), claude(**THINKS, max_tokens=51)),
    (
        "json_not_mentioned",
        chat(response_format={"type": "json_object"}),
        chat({"role": "user", "content": "As JSON."}, response_format={"type": "json_object"}),
    ),
    ("parameter_refused", chat(max_tokens=9, model="gpt-5-mini"), chat(max_tokens=9)),
    ("parameter_refused", claude(temperature=1.4), claude(temperature=1)),
    ("sampling_refused", claude(temperature=1, top_p=0.9), claude(temperature=1, top_p=0.9, model="claude-sonnet-4-0")),
    ("foreign_parameter", chat(stop_sequences=["END"]), chat(stop=["END"])),
    ("foreign_parameter", chat(system="Be brief."), chat(system="Be brief.", model="my-model")),
    (
        "foreign_parameter",
        chat(tools=[function()], tool_choice={"type": "any"}),
        chat(tools=[function()], tool_choice="required"),
    ),
    ("foreign_parameter", responses(max_tokens=9), responses(max_output_tokens=9)),
    ("foreign_parameter", responses(response_format={"type": "text"}), responses(text={"format": {"type": "text"}})),
    ("foreign_parameter", claude(parallel_tool_calls=False, tools=[tool()]), claude(tools=[tool()])),
    (
        "foreign_parameter",
        claude(tools=[tool()], tool_choice="auto"),
        claude(tools=[tool()], tool_choice={"type": "auto"}),
    ),
    ("foreign_tool", chat(tools=[{"type": "function", "name": "f", "parameters": SCHEMA}]), chat(tools=[function()])),
    (
        "tool_call_form_wrong",
        claude(
            USER,
            parts({"type": "tool_use", "id": "a", "name": "read", "input": '{"n": 1}'}, role="assistant"),
            answers("a"),
        ),
        claude(USER, use("a"), answers("a")),
    ),
    ("tool_call_form_wrong", chat(USER, made(type=None), result()), chat(USER, made(), result())),
    (
        "tool_call_form_wrong",
        chat(USER, made(function={"name": "read", "arguments": {}}), result()),
        chat(USER, made(), result()),
    ),
    (
        "tool_call_form_wrong",
        chat(USER, made(function={"name": "read", "arguments": '"{}"'}), result()),
        chat(USER, made(), result()),
    ),
    (
        "tool_call_form_wrong",
        responses(USER, CALL_ITEM | {"arguments": ""}, OUTPUT),
        responses(USER, CALL_ITEM, OUTPUT),
    ),
    ("unknown_block_key", chat(USER, made(index=0), result()), chat(USER, made(index=None), result())),
    ("call_id_refused", chat(USER, calls("c" * 41), result("c" * 41)), chat(USER, calls("c" * 40), result("c" * 40))),
    ("call_id_refused", claude(USER, use("a|b"), answers("a|b")), claude(USER, use("a_b"), answers("a_b"))),
    (
        "item_id_refused",
        responses(USER, CALL_ITEM | {"id": "call_1"}, OUTPUT),
        responses(USER, CALL_ITEM | {"id": "fc_1"}, OUTPUT),
    ),
    ("duplicate_call_id", chat(USER, calls("a", "a"), result("a")), chat(USER, calls("a"), result("a"))),
    ("block_misplaced", claude(USER, parts(IMAGE, role="assistant"), USER), claude(parts(IMAGE))),
    ("block_misplaced", claude(parts({"text": "hello"})), claude(parts(TEXT))),
    (
        "block_misplaced",
        responses(USER, parts({"type": "input_text", "text": "x"}, role="assistant"), USER),
        responses(USER, parts({"type": "output_text", "text": "x"}, role="assistant"), USER),
    ),
    ("cache_mark_unknown", claude(parts(TEXT | {"cache_control": {"type": "persistent"}})), claude(parts(TEXT | MARK))),
    (
        "thinking_unsigned",
        claude(USER, parts(THOUGHT | {"signature": ""}, TEXT, role="assistant"), USER),
        claude(USER, parts(THOUGHT, TEXT, role="assistant"), USER),
    ),
    (
        "thinking_missing",
        claude(USER, use("a"), answers("a"), **THINKS),
        claude(
            USER, parts(THOUGHT, *use("a")["content"], role="assistant"), answers("a"), use("b"), answers("b"), **THINKS
        ),
    ),
    (
        "prefill_refused",
        claude(USER, ASSISTANT | {"content": "It is "}),
        claude(USER, ASSISTANT | {"content": "It is"}),
    ),
]
#: kind, the request before, the one that breaks the rule, one that comes close
SINCE = [
    (
        "result_emptied",
        chat(USER, calls("a"), result("a")),
        chat(USER, calls("a"), result("a", ""), USER),
        chat(USER, calls("a"), result("a", "[cleared]"), USER),
    ),
    (
        "system_changed",
        claude(USER, system="You are A."),
        claude(USER, ASSISTANT, USER, system="You are A.\n\nIn French."),
        claude(USER, ASSISTANT, parts({"type": "text", "text": "<system>In French.</system>"}), system="You are A."),
    ),
    (
        "tools_changed",
        claude(tools=[tool(), tool(name="b")]),
        claude(tools=[tool(name="b"), tool()]),
        claude(tools=[tool(), tool(name="b")]),
    ),
]


def kinds(told, **more):
    wire, body = told
    return {one.kind for one in lint_request(body, wire, **more)}


@pytest.mark.parametrize(("kind", "bad", "near"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_a_rule_and_what_comes_close(kind, bad, near):
    assert kind in kinds(bad)
    assert kinds(near) == set()


@pytest.mark.parametrize(("kind", "before", "bad", "near"), SINCE, ids=[case[0] for case in SINCE])
def test_a_rule_about_two_requests_of_one_session(kind, before, bad, near):
    assert kinds(bad, earlier=before[1]) == {kind}
    assert kinds(near, earlier=before[1]) == set()
    assert kinds(bad) == set()


def test_every_rule_has_a_source_and_is_tried():
    assert {rule.kind for rule in RULES} == {case[0] for case in (*CASES, *SINCE)}
    for rule in RULES:
        assert rule.source.startswith("https://")
        assert rule.severity in ("refused", "worse", "costs")
        assert not rule.says.endswith(".")


def test_what_the_client_sent_like_that_is_not_the_proxys_fault():
    wire, bad = chat(USER | {"timestamp": 1.0}, tools=[])
    assert lint_changes(bad, copy.deepcopy(bad), sent_wire=wire, wire=wire) == ()
    worse = {**bad, "messages": [*bad["messages"], ASSISTANT | {"extra": {}}]}
    assert [one.index for one in lint_changes(bad, worse, sent_wire=wire, wire=wire)] == [1]


def test_an_empty_list_of_tools_is_wrong_on_anthropics_wire_only_where_it_was_put_in():
    wire, body = claude()
    assert lint_request({**body, "tools": []}, wire) == ()
    found = lint_changes(body, {**body, "tools": []}, sent_wire=wire, wire=wire)
    assert [one.kind for one in found] == ["empty_list"]


def test_severity_is_the_rules_for_that_provider():
    wire, body = chat(tools=[function(MISSING)], model="gemini-2.5-pro")
    assert [one.kind for one in lint_request(body, wire)] == ["schema_property_missing"]
    assert rule_for("schema_property_missing", wire, family="gemini").severity == "refused"
    assert rule_for("schema_property_missing", wire, family="openai").severity == "worse"
    assert rule_for("max_tokens_missing", "openai-chat") is None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4.1", "openai"),
        ("openai/gpt-5", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("anthropic/claude-sonnet-4.5", "openrouter"),
        ("us.anthropic.claude-sonnet-4-5-v1:0", "bedrock"),
        ("gemini-2.5-pro", "gemini"),
        ("my-model", ""),
        (None, ""),
    ],
)
def test_the_family_of_a_model(model, family):
    assert family_of(model) == family


CLIENTS = ["claude-agently", "claude-title", "claude-two-prompts", "codex-two-prompts", "opencode-openai"]


@pytest.mark.parametrize("name", [*CLIENTS, "opencode-lookaround"])
def test_silent_on_what_real_clients_send(name, client_session):
    lines = [json.loads(line) for line in (client_session(name) / "records.jsonl").read_text().splitlines()]
    told = [(one["wire"], one["request"]) for one in _requests(lines)]
    assert len(told) >= 5
    assert [each for wire, body in told for each in lint_request(body, wire)] == []


def _requests(value):
    if isinstance(value, dict):
        if isinstance(value.get("request"), dict) and value.get("wire"):
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else []:
        yield from _requests(item)


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("name", sessions.bundled()[1:4])
def test_silent_on_bundled_sessions(name, wire):
    bodies = [request.body for request in sessions.load_session(name, wire=wire).requests[::9]]
    for before, body in zip([None, *bodies], bodies, strict=False):
        assert lint_request(body, wire, earlier=before) == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_silent_on_every_shape(shape):
    request = build(shape, {"id": 1, "context": "Valve 3 opens at 50.", "question": "When?"}, "gpt-4.1")
    assert lint_request(request.body, request.wire) == ()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "type", "text", "tool_calls", "id", "tools", "cache_control", "name", "parameters",
             "required", "properties", "tool_use_id", "tool_call_id", "function", "system", "model", "thinking"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    body=st.dictionaries(st.sampled_from(["messages", "input", "tools", "system", "model", "tool_choice"]), _JSON),
    wire=st.sampled_from(["openai-chat", "openai-responses", "anthropic", "embeddings"]),
)
@settings(max_examples=150, deadline=None)
def test_odd_bodies_never_raise(body, wire):
    for one in lint_request(body, wire, earlier=body):
        assert one.kind in {rule.kind for rule in RULES}
