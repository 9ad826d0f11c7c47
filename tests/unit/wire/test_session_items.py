"""Requests of a session whose items are read once: nothing that is found of them may be another for it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.traffic.figures import _masked
from context_bench.wire.apis import parse_request
from context_bench.wire.violations import compare_requests, lint_changes
from context_bench.wire.violations.linter.forms import RequestBody, SessionItems

KEY = "sk-" + "a" * 24
TOOL = {"name": "read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}


def _anthropic(turns: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look into the harbour.\n\nWhat is there?"}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "read", "input": {"path": f"/a/{turn}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": f'{{ "ships": {turn} }}'}
        messages += [
            {"role": "assistant", "content": [{"type": "text", "text": f"Turn {turn}."}, call]},
            {"role": "user", "content": [result]},
        ]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": "Be brief.", "tools": [TOOL], "messages": messages}


BODIES: dict[str, dict[str, Any]] = {
    "anthropic": _anthropic(3),
    "openai-chat": {
        "model": "gpt-4o",
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"The key is {KEY}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
        ],
    },
    "openai-responses": {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [
            {"type": "additional_tools", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
            {"role": "user", "content": "What is there?"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
        ],
    },
}


@pytest.mark.parametrize("wire", BODIES)
@pytest.mark.parametrize("most", [2**20, 1])
def test_a_body_of_known_items_is_read_as_it_is(wire: str, most: int) -> None:
    known, raw = SessionItems(most), BODIES[wire]
    for body in (raw, json.loads(json.dumps(raw))):
        held = known.body(body, wire)
        assert held == raw
        assert list(held) == list(raw)
        assert known.parsed(held, wire) == parse_request(wire, raw)


@pytest.mark.parametrize("given_text", ["a plain text", None, 7, {"role": "user"}])
def test_a_body_without_a_list_of_items_is_read_as_it_is(given_text: object) -> None:
    known, raw = SessionItems(), {"model": "m", "input": given_text}
    assert known.parsed(known.body(raw, "openai-responses"), "openai-responses") == parse_request(
        "openai-responses", raw
    )


def test_the_same_item_is_one_object_in_what_was_sent_and_in_what_arrived() -> None:
    known = SessionItems()
    before, after = BODIES["anthropic"], json.loads(json.dumps(BODIES["anthropic"]))
    after["messages"][2]["content"][0]["content"] = '{"ships":0}'
    sent, arrived = (RequestBody(known.body(one, "anthropic"), "anthropic", known).neutral for one in (before, after))
    same = [a is b for a, b in zip(sent.messages, arrived.messages, strict=True)]
    assert same == [False, True, True, False, True, True, True, True]  # the instructions are read for each
    assert sent.tools[0] is arrived.tools[0]


def test_of_more_than_it_may_hold_nothing_is_mixed_up() -> None:
    known = SessionItems(3_000)
    for number in range(50):
        raw = {"model": "m", "messages": [{"role": "user", "content": f"{number} {'x' * 100}"}] * 3}
        body = RequestBody(known.body(raw, "openai-chat"), "openai-chat", known)
        assert [message.text for message in body.neutral.messages] == [raw["messages"][0]["content"]] * 3


@pytest.mark.parametrize("wire", BODIES)
def test_what_is_masked_item_by_item_is_masked_as_a_whole(wire: str) -> None:
    raw = {**BODIES[wire], "metadata": {"user_id": "key_abcd"}, "user": KEY}
    items = "input" if wire == "openai-responses" else "messages"
    raw[items] = [*raw[items], {"role": "user", "content": f"again {KEY}", "metadata": {"user_id": "key_abcd"}}]
    known = SessionItems()
    for _ in range(2):
        assert known.body(raw, wire, _masked) == _masked(raw)
    assert KEY in json.dumps(known.body(raw, wire))  # what arrived is not masked by it


_EDITS = st.lists(
    st.tuples(st.sampled_from(["drop", "double", "swap", "text", "mark", "role", "tool", "id"]), st.integers(0, 6)),
    max_size=3,
)


def _edited(raw: dict[str, Any], edits: list[tuple[str, int]]) -> dict[str, Any]:
    made = copy.deepcopy(raw)
    messages = made["messages"]
    for what, place in edits:
        at = place % len(messages)
        content = messages[at]["content"]
        if what == "drop" and len(messages) > 1:
            del messages[at]
        elif what == "double":
            messages.insert(at, copy.deepcopy(messages[at]))
        elif what == "swap":
            messages[at], messages[-1] = messages[-1], messages[at]
        elif what == "role":
            messages[at]["role"] = "user" if messages[at]["role"] == "assistant" else "assistant"
        elif what == "tool":
            made["tools"] = [{**TOOL, "name": "write"}, *made["tools"]][: place % 3]
        elif isinstance(content, str):
            messages[at]["content"] = content.upper() if what == "text" else content
        elif what == "text":
            content[0]["text" if content[0]["type"] == "text" else "content"] = "short"
        elif what == "mark":
            content[0]["cache_control"] = {"type": "ephemeral"}
        else:
            content[-1].update({"tool_use_id" if content[-1]["type"] == "tool_result" else "id": "other"})
    return made


@settings(max_examples=150, deadline=None)
@given(_EDITS, _EDITS)
def test_known_items_change_no_finding(before: list[tuple[str, int]], edits: list[tuple[str, int]]) -> None:
    sent = _edited(BODIES["anthropic"], before)
    arrived, known = _edited(sent, edits), SessionItems()
    plain = [RequestBody(one, "anthropic") for one in (sent, arrived)]
    held = [RequestBody(known.body(one, "anthropic"), "anthropic", known) for one in (sent, arrived)]
    assert compare_requests(held[0].neutral, held[1].neutral) == compare_requests(plain[0].neutral, plain[1].neutral)
    found, wanted = (lint_changes(one, other, sent_wire="anthropic", wire="anthropic") for one, other in (held, plain))
    assert found == wanted
