"""Which part of a request is text and which is question, and how both are put to a small model."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from context_bench.llm.embedded import HEAD, first_line, prompt_tail, question_of
from context_bench.llm.shapes import SHAPES, build
from context_bench.wire.request import Part, WireMessage, WireRequest

CONTEXT = "The gauge of the Lorn line is 4.2 m.\n\nIt was laid in 1873."
QUESTION = "How wide is the gauge?"


def request(*messages: tuple[str, str]) -> WireRequest:
    return WireRequest("openai-chat", "m", [WireMessage(role, [Part("text", text)]) for role, text in messages])


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_shape_gives_question_and_context(shape: str) -> None:
    found = question_of(build(shape, {"id": 1, "context": CONTEXT, "question": QUESTION}, "m").parsed())
    assert found.question == QUESTION
    assert CONTEXT in found.context
    assert QUESTION not in found.context.replace(f"{QUESTION}\n", "")


@pytest.mark.parametrize(
    ("messages", "context", "question"),
    [
        (
            [("system", "Be brief."), ("user", f"{CONTEXT}\n\nQuestion: {QUESTION}")],
            f"Be brief.\n\n{CONTEXT}",
            QUESTION,
        ),
        ([("system", CONTEXT), ("user", QUESTION)], CONTEXT, QUESTION),
        ([("user", f"question:  {QUESTION}\n\n{CONTEXT}")], CONTEXT, QUESTION),
        ([("user", "Question: A?\n\nB.\n\nQuestion: C?\n\nThanks.")], "Question: A?\n\nB.\n\nThanks.", "C?"),
        ([("user", QUESTION), ("assistant", "I look."), ("tool", CONTEXT)], f"I look.\n\n{CONTEXT}", QUESTION),
        ([("user", f"Question: {QUESTION}"), ("tool", CONTEXT), ("user", "Go on.")], f"{CONTEXT}\n\nGo on.", QUESTION),
        ([("user", "word " * 200 + "end. " + QUESTION)], "word " * 200 + "end.", QUESTION),
        ([("user", "word " * 200 + "end.\n" + QUESTION)], "word " * 200 + "end.", QUESTION),
        ([("user", "word " * 200)], ("word " * 200).strip(), ""),
        ([("system", CONTEXT)], CONTEXT, ""),
        ([("user", "")], "", ""),
        ([], "", ""),
    ],
)
def test_the_rule(messages: list[tuple[str, str]], context: str, question: str) -> None:
    found = question_of(request(*messages))
    assert (found.context, found.question) == (context, question)


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text("ab.?\n :Question", max_size=60)),
        max_size=5,
    )
)
def test_nothing_that_was_forwarded_is_left_out(messages: list[tuple[str, str]]) -> None:
    found = question_of(request(*messages))
    letters = sorted("".join("".join(text for _, text in messages).split()))
    kept = sorted("".join(f"{found.context}{found.question}".split()))
    label = sorted("Question:")
    assert kept == letters or sorted(kept + label) == letters or len(letters) - len(kept) <= len(label)


def test_what_the_model_completes() -> None:
    assert (
        prompt_tail(question_of(request(("user", f"{CONTEXT}\n\nQuestion: {QUESTION}"))))
        == f"Text: {CONTEXT}\n\nQuestion: {QUESTION}\nAnswer:"
    )
    assert prompt_tail(question_of(request(("user", QUESTION)))) == f"Question: {QUESTION}\nAnswer:"
    assert HEAD.endswith("\n\n")


@pytest.mark.parametrize(
    ("completion", "text"), [(" 4.2 m\nQuestion: x", "4.2 m"), ("\n\n 4.2 m \n", "4.2 m"), ("", ""), (" \n", "")]
)
def test_the_answer_is_the_first_line_that_says_something(completion: str, text: str) -> None:
    assert first_line(completion) == text
