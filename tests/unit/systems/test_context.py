"""Which texts of a request count as its context, in every shape of client."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.llm.shapes import SHAPES, build
from context_bench.systems.context import context_of, split_question, with_context

CONTEXT = "\n\n".join(
    f"Paragraph {i}: the harbour office keeps ledger number {i} in a drawer of oak and iron." for i in range(30)
)
EXAMPLE = {"id": 1, "context": CONTEXT, "question": "Which drawer holds ledger 7?"}


def test_every_shape_is_tried():
    assert {"plain-system", "plain-user", "tool-result", "claude-code", "codex", "openai-agent"} == set(SHAPES)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_context_of_every_shape_is_found_and_the_question_left_alone(shape):
    request = build(shape, EXAMPLE, "m")
    found = context_of(request.wire, request.body)
    assert CONTEXT in found.text
    assert found.question == EXAMPLE["question"]
    document = json.dumps(request.body).encode()
    changed = json.loads(with_context(document, found.slots, ["short" for _ in found.slots]))
    assert json.dumps(changed).count("Paragraph") == 0
    assert json.dumps(changed).count(EXAMPLE["question"]) == json.dumps(request.body).count(EXAMPLE["question"])
    assert "short" in json.dumps(changed)
    assert [message.role for message in build(shape, EXAMPLE, "m").parsed().messages] == [
        message.role for message in type(request)(request.wire, request.path, {}, changed).parsed().messages
    ]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_emptied_texts_never_become_what_a_provider_refuses(shape):
    request = build(shape, EXAMPLE, "m")
    found = context_of(request.wire, request.body)
    changed = json.loads(with_context(json.dumps(request.body).encode(), found.slots, ["" for _ in found.slots]))
    for message in type(request)(request.wire, request.path, {}, changed).parsed().messages:
        for part in message.parts:
            if part.kind == "text" and request.wire == "anthropic" and message.role != "tool":
                assert part.text.strip()


def chat(*messages):
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_short_system_texts_are_instructions_long_ones_are_context():
    found = context_of(
        "openai-chat", chat(("system", "Be brief."), ("developer", "Be kind."), ("system", CONTEXT), ("user", "Who?"))
    )
    assert [slot.path for slot in found.slots] == [("messages", 2, "content")]
    assert found.question == "Who?"


def test_earlier_turns_are_context_and_the_last_user_text_is_split():
    body = chat(
        ("user", "old question"),
        ("assistant", "old answer"),
        ("user", "new context\n\nnew question"),
        ("assistant", "begun"),
    )
    found = context_of("openai-chat", body)
    assert [slot.text for slot in found.slots] == ["old question", "old answer", "new context", "begun"]
    assert found.question == "new question"


def test_parts_images_thinking_and_tool_calls():
    body = {
        "system": [{"type": "text", "text": "Short."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "text", "data": "a document"}},
                    {"type": "image", "source": {}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "1", "input": {"text": "no"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "found it"}]}
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}]},
        ],
    }
    found = context_of("anthropic", body)
    assert [slot.text for slot in found.slots] == ["a document", "found it"]
    assert found.question == "What is it?"


@pytest.mark.parametrize(
    "body", [{}, {"messages": None}, {"messages": [1, None, {}]}, {"messages": {"a": 1}}, {"input": 3, "system": 4}]
)
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic", "other"])
def test_odd_bodies_have_no_context(wire, body):
    assert context_of(wire, body).slots == []


@given(st.text(alphabet="ab \n:Question", max_size=60))
@settings(derandomize=True)
def test_a_split_text_joins_again(text):
    context, question = split_question(text)
    assert context + question == text
    if context:
        assert context.strip()
        assert question.strip()


def test_where_the_question_begins():
    assert split_question("c1\n\nc2\n\nWhat?") == ("c1\n\nc2", "\n\nWhat?")
    assert split_question("only one paragraph\nof two lines") == ("", "only one paragraph\nof two lines")
    assert split_question("ctx\n\nQuestion: Which?\n\nA) x\nB) y") == ("ctx", "\n\nQuestion: Which?\n\nA) x\nB) y")
    assert split_question("ctx\n \t\nWhat?\n\n") == ("ctx", "\n \t\nWhat?\n\n")
