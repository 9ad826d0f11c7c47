"""A request that arrives on another API: what both APIs can say is compared, what one of them cannot say is no loss."""

import copy

import pytest

from context_bench.wire.apis import parse_request
from context_bench.wire.violations import compare_requests

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 50,
    "temperature": 0.2,
    "stop_sequences": ["END"],
    "system": [
        {"type": "text", "text": "Rule one.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Rule two."},
    ],
    "tools": [{"name": "f", "description": "Does f.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "messages": [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I should call f", "signature": "SIG"},
                {"type": "text", "text": "calling"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "boom"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [
                        {"type": "text", "text": "a picture"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    ],
                },
            ],
        },
    ],
}
CHAT = {
    "model": "gpt-4o-mini",
    "max_completion_tokens": 50,
    "temperature": 0.2,
    "stop": ["END"],
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [{"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": SCHEMA}}],
    "messages": [
        {"role": "system", "content": "Rule one.Rule two."},
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": "calling",
            "reasoning_content": "I should call f",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "t2", "type": "function", "function": {"name": "f", "arguments": '{"a": 2}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "Error: boom"},
        {"role": "tool", "tool_call_id": "t2", "content": "a picture"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]},
    ],
}


def kinds(sent, received, wires=("anthropic", "openai-chat")):
    a, b = (parse_request(wire, body) for wire, body in zip(wires, (sent, received), strict=True))
    return {one.kind for one in compare_requests(a, b)} - {"wire_changed"}


def changed(body, edit):
    made = copy.deepcopy(body)
    edit(made)
    return made


def test_a_translation_that_says_the_same():
    assert kinds(ANTHROPIC, CHAT) == set()


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("params_changed", lambda body: body.pop("parallel_tool_calls")),
        ("params_changed", lambda body: body.pop("temperature")),
        ("params_changed", lambda body: body.update(stop="DONE")),
        ("params_changed", lambda body: body.pop("max_completion_tokens")),
        ("params_changed", lambda body: body.update(top_p=0.5)),
        ("tool_choice_changed", lambda body: body.update(tool_choice="required")),
        ("tool_removed", lambda body: body.update(tools=[])),
        ("tool_meaning_changed", lambda body: body["tools"][0]["function"].update(parameters={"type": "object"})),
        ("thinking_changed", lambda body: body["messages"][2].pop("reasoning_content")),
        ("tool_error_lost", lambda body: body["messages"][3].update(content="boom")),
        ("media_lost", lambda body: body["messages"].pop()),
        ("system_role_lost", lambda body: body["messages"].pop(0)),
        ("unanswered_tool_call", lambda body: body["messages"].pop(4)),
        ("turn_lost", lambda body: body["messages"].__delitem__(slice(2, 6))),
    ],
)
def test_what_a_translator_loses(kind, edit):
    assert kind in kinds(ANTHROPIC, changed(CHAT, edit))


def test_a_forced_choice_and_none():
    sent = {"model": "gpt-4o", "messages": [{"role": "user", "content": "go"}], "tools": CHAT["tools"]}
    arrived = {**ANTHROPIC, "messages": [{"role": "user", "content": "go"}], "tool_choice": None, "system": None}
    arrived = {key: value for key, value in arrived.items() if key not in ("temperature", "stop_sequences")}
    wires = ("openai-chat", "anthropic")
    assert kinds(sent, arrived, wires) == set()
    assert kinds({**sent, "tool_choice": "none"}, arrived, wires) == {"tool_choice_changed"}
    assert kinds({**sent, "tool_choice": "none"}, {**arrived, "tool_choice": {"type": "none"}}, wires) == set()
    named = {"type": "function", "function": {"name": "f"}}
    assert (
        kinds({**sent, "tool_choice": named}, {**arrived, "tool_choice": {"type": "tool", "name": "f"}}, wires) == set()
    )
    assert kinds({**sent, "tool_choice": "required"}, {**arrived, "tool_choice": {"type": "any"}}, wires) == set()


@pytest.mark.parametrize(
    ("received", "found"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": FORM}}}, set()),
        ({"text": {"format": {"type": "text"}}}, {"response_format_changed"}),
        ({}, {"response_format_changed"}),
    ],
)
def test_the_form_of_answer(received, found):
    sent = {"messages": [{"role": "user", "content": "go"}]}
    sent["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": FORM}}
    arrived = {"input": "go", **received}
    assert kinds(sent, arrived, ("openai-chat", "openai-responses")) == found


def test_a_form_of_answer_as_a_forced_tool():
    sent = {"messages": [{"role": "user", "content": "go"}]}
    sent["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": FORM}}
    forced = {"tools": [{"name": "answer", "input_schema": FORM}], "tool_choice": {"type": "tool", "name": "answer"}}
    arrived = {"max_tokens": 9, "messages": sent["messages"], **forced}
    assert kinds(sent, arrived, ("openai-chat", "anthropic")) == set()
    assert kinds(sent, {**arrived, "tools": []}, ("openai-chat", "anthropic")) >= {"response_format_changed"}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"reasoning": {"effort": "high"}}, set()),
        ({"reasoning": {"effort": "low"}}, {"thinking_changed"}),
        ({}, {"thinking_changed"}),
    ],
)
def test_the_effort_of_reasoning(settings, found):
    sent = {"model": "gpt-5", "messages": [{"role": "user", "content": "go"}], "reasoning_effort": "high"}
    arrived = {"model": "gpt-5", "input": "go", **settings}
    assert kinds(sent, arrived, ("openai-chat", "openai-responses")) == found


def test_a_thinking_budget_for_a_model_that_does_not_think():
    sent = {"messages": [{"role": "user", "content": "go"}], "thinking": {"type": "enabled", "budget_tokens": 2000}}
    arrived = {"messages": sent["messages"]}
    assert kinds(sent, {**arrived, "model": "gpt-4o"}) == set()
    assert kinds(sent, {**arrived, "model": "gpt-5"}) == {"thinking_changed"}
    assert kinds(sent, {**arrived, "model": "gpt-5", "reasoning_effort": "medium"}) == set()


WEATHER = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "get", "arguments": '{"x":1}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "c2", "content": "windy"},
    {"role": "user", "content": "and tomorrow?"},
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
    {"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "get", "arguments": '{"x":1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "function_call_output", "call_id": "c2", "output": "windy"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and tomorrow?"}]},
]


@pytest.mark.parametrize(
    ("items", "found"),
    [
        (ITEMS, set()),
        (ITEMS[-1:], {"turn_lost"}),
        ([*ITEMS[:1], *ITEMS[-1:]], {"turn_lost"}),
        ([{"role": "user", "content": "In short: it was asked for the weather."}, ITEMS[-1]], set()),
    ],
    ids=["whole", "the last message only", "the calls are gone", "a summary"],
)
def test_turns_that_are_gone_on_the_way_to_another_api(items, found):
    assert kinds({"messages": WEATHER}, {"input": items}, ("openai-chat", "openai-responses")) == found


SECOND = {"role": "system", "content": "From now on answer in French."}
HISTORY = [
    {"role": "system", "content": "You are A."},
    {"role": "user", "content": "first question"},
    {"role": "assistant", "content": "first answer"},
    SECOND,
    {"role": "user", "content": "second question"},
    {"role": "assistant", "content": "deuxieme"},
    {"role": "user", "content": "third question"},
]


def test_instructions_in_mid_conversation():
    said = [
        {"type": "text", "text": f"<system>{SECOND['content']}</system>"},
        {"type": "text", "text": "second question"},
    ]
    in_place = {"system": "You are A.", "messages": [*HISTORY[1:3], {"role": "user", "content": said}, *HISTORY[5:]]}
    hoisted = {"system": f"You are A.\n\n{SECOND['content']}", "messages": [*HISTORY[1:3], *HISTORY[4:]]}
    late = {"system": "You are A.", "messages": [*HISTORY[1:3], HISTORY[4], HISTORY[5], {"role": "user", "content": [*said[:1], {"type": "text", "text": "third question"}]}]}  # fmt: skip  # noqa: E501
    wires = ("openai-chat", "anthropic")
    assert kinds({"messages": HISTORY}, in_place, wires) == set()
    assert kinds({"messages": HISTORY}, hoisted, wires) >= {"order_changed"}
    assert kinds({"messages": HISTORY}, late, wires) >= {"system_role_lost"}
