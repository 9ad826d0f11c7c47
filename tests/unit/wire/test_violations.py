"""Violations between two message lists: the recorded vector, what is compression and what is not, and that no text gets
into a finding.
"""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import context_bench.wire.violations as module
from context_bench import compression
from context_bench.wire.request import Part, WireMessage, align, question_of
from context_bench.wire.violations import KINDS, reserialised, wire_violations

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text())

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
SENT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read a.py."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "x = 1\n" * 50},
    {"role": "user", "content": "What is x?"},
]


def kinds(sent, received):
    return [violation.kind for violation in wire_violations(sent, received)]


@pytest.mark.parametrize("case", VECTORS["wire_integrity"], ids=lambda case: case["id"])
def test_recorded_case(case):
    def messages(roles):
        found = [{"role": role, "content": f"text {i}"} for i, role in enumerate(roles)]
        for i, role in enumerate(case["sent_roles"]):
            if role == "tool":
                found[i]["tool_call_id"] = f"c{i}"
                assert case["assistant_tool_calls_kept"]
                found[i - 1]["tool_calls"] = [{**CALL, "id": f"c{i}"}]
        return found

    assert kinds(messages(case["sent_roles"]), messages(case["received_roles"])) == case["expected_violations"]


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(SENT, id="unchanged"),
        pytest.param([*SENT[:3], {**SENT[3], "content": "x = 1 (50 times)"}, SENT[4]], id="a shorter tool result"),
        pytest.param([SENT[0], SENT[4]], id="earlier turns gone as a whole"),
        pytest.param(
            [SENT[0], {"role": "user", "content": "Summary: x is 1."}, SENT[4]], id="a summary in their place"
        ),
        pytest.param([{**SENT[0], "role": "developer"}, *SENT[1:]], id="developer is system"),
        pytest.param(
            [*SENT[:4], {"role": "user", "content": [{"type": "text", "text": "What is x?"}]}], id="parts for text"
        ),
    ],
)
def test_what_is_compression(received):
    assert wire_violations(SENT, received) == []


@pytest.mark.parametrize(
    ("received", "kind", "index"),
    [
        ([{**SENT[0], "role": "user"}, *SENT[1:]], "system_role_lost", 0),
        (SENT[1:], "system_role_lost", 0),
        ([{"role": "user", "content": "Be brief.\n\nRead a.py."}, *SENT[2:]], "system_role_lost", 0),
        ([*SENT[:2], {**SENT[2], "role": "user"}, *SENT[3:]], "assistant_role_changed", 2),
        ([*SENT[:2], *SENT[3:]], "orphan_tool_result", 2),
        ([*SENT[:3], SENT[4]], "unanswered_tool_call", 2),
        ([*SENT[:3], {**SENT[3], "tool_call_id": "c2"}, SENT[4]], "orphan_tool_result", 3),
        ([*SENT[:4], {"role": "user", "content": "What is y?"}], "last_user_changed", 4),
        ([*SENT, {"role": "user", "content": "Answer in JSON."}], "last_user_changed", 4),
        ([SENT[0], SENT[4], *SENT[2:4], SENT[1]], "order_changed", 1),
    ],
)
def test_what_is_not(received, kind, index):
    found = wire_violations(SENT, received)
    assert (kind, index) in [(violation.kind, violation.index) for violation in found]


def test_arguments_count_by_their_meaning():
    def with_arguments(text):
        messages = copy.deepcopy(SENT)
        messages[2]["tool_calls"][0]["function"]["arguments"] = text
        return messages

    assert kinds(SENT, with_arguments('{ "path" : "a.py" }')) == []
    assert kinds(SENT, with_arguments('{"path": "b.py"}')) == ["tool_arguments_changed"]
    assert kinds(SENT, with_arguments('{"path": "a.py"')) == ["tool_arguments_changed"]


def test_what_was_wrong_before_is_not_blamed_on_the_way():
    broken = [SENT[0], SENT[3], SENT[4]]
    assert wire_violations(broken, broken) == []
    assert wire_violations(broken, [SENT[0], {**SENT[3], "content": "short"}, SENT[4]]) == []


def test_the_question_is_the_last_paragraph():
    assert question_of("Context.\n\n \nQuestion: what?\nNow.\n\n") == "Question: what?\nNow."
    assert question_of("only this") == "only this"
    assert question_of(" \n\n ") == ""


def test_bytes():
    assert reserialised(b'{"a": 1, "b": [2]}', b'{"b":[2],"a":1}')
    assert not reserialised(b'{"a": 1}', b'{"a": 1}')
    assert not reserialised(b'{"a": 1}', b'{"a": 2}')
    assert not reserialised(b'{"a": 1}', b'{"a": 1')


contents = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)})),
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": contents},
        optional={"tool_call_id": st.sampled_from(["a", "b"])},
    ),
    max_size=8,
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "tool_calls", "cache_control", "id"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(messages)
def test_a_list_does_not_differ_from_itself(sent):
    assert wire_violations(sent, copy.deepcopy(sent)) == []


@settings(max_examples=60)
@given(messages, st.data())
def test_leaving_out_whole_turns_of_plain_talk_never_changes_an_order(sent, data):
    kept = [message for message in sent if data.draw(st.booleans())]
    unique = [{**message, "content": f"{i} {message['content']}"} for i, message in enumerate(sent)]
    received = [message for message, original in zip(unique, sent, strict=True) if any(original is one for one in kept)]
    assert "order_changed" not in kinds(unique, received)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "cache_control"]), junk),
        max_size=4,
    ),
    messages,
)
def test_odd_messages_never_raise(odd, plain):
    for sent, received in ((odd, plain), (plain, odd), (odd, odd)):
        assert all(violation.kind in KINDS for violation in wire_violations(sent, received))


_NAMES = (
    "type text role content tool_calls cache_control id signature thinking summary input name tools function "
    "parameters source data call_id"
)
_KINDS_OF = [
    "thinking",
    "tool_use",
    "tool_result",
    "image",
    "reasoning",
    "function_call",
    "user",
    "assistant",
    "system",
    "message",
]
odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_KINDS_OF),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES.split()), inner, max_size=4),
    max_leaves=15,
)
odd_bodies = st.dictionaries(
    st.sampled_from(["messages", "system", "tools", "input", "tool_choice", "cache_control", "model"]), odd_values
)


@given(odd_bodies, odd_bodies)
def test_odd_bodies_of_any_wire_never_raise(sent, received):
    assert compression.wire_violations(sent, copy.deepcopy(sent)) == []
    assert all(violation.kind in KINDS for violation in compression.wire_violations(sent, received))


def test_a_type_that_is_no_text():
    odd = [
        {
            "role": "assistant",
            "content": [{"type": [], "text": []}, {"type": {"a": 1}, "cache_control": {"ttl": []}}],
            "tool_calls": [{"id": []}],
        }
    ]
    assert wire_violations(odd, odd) == []
    assert [violation.kind for violation in wire_violations(SENT, odd)]


def test_findings_hold_no_text_of_the_request():
    secret = "correct horse battery staple"
    sent = [{"role": "system", "content": secret}, {"role": "user", "content": f"{secret}?"}]
    received = [{"role": "user", "content": secret}, {"role": "user", "content": "other"}]
    found = wire_violations(sent, received)
    assert {violation.kind for violation in found} == {"system_role_lost", "last_user_changed"}
    assert not any(secret in violation.detail for violation in found)


def test_alignment_of_a_long_session_with_turns_left_out():
    sent = [WireMessage("user" if i % 2 else "assistant", [Part("text", f"turn {i}")]) for i in range(301)]
    kept = [i for i in range(301) if i % 7]
    pairs = align(sent, [sent[i] for i in kept])
    assert pairs == {i: j for j, i in enumerate(kept)}


def test_the_table_in_the_docs_names_every_kind():
    for kind in KINDS:
        assert f"`{kind}`" in module.__doc__ or f"`{kind.removeprefix('cache_control')}`" in module.__doc__, kind


def test_a_question_quoted_by_another_is_under_another_role_and_not_another_question() -> None:
    question = 'Keep this:\n"1. user: hello"\nDo not rewrite it.'
    sent = [{"role": "user", "content": question}]
    quoted = [{"role": "assistant", "content": f"So far: {json.dumps({'role': 'user', 'content': question})}"}]
    assert [one.kind for one in wire_violations(sent, quoted)] == ["role_changed"]
    behind = [*quoted, {"role": "user", "content": "Go on."}]
    assert "last_user_changed" not in {one.kind for one in wire_violations(sent, behind)}
    rewritten = [{"role": "assistant", "content": "So far: 1. user: hello"}]
    assert "last_user_changed" in {one.kind for one in wire_violations(sent, rewritten)}
