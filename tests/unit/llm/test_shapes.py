"""One example in the shapes of real clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.tokens import counter_for
from context_bench.llm import shapes
from context_bench.llm.shapes import SHAPES, build, context_tokens, render_choices, without_context

AGENTS = ("tool-result", "claude-code", "codex", "openai-agent")
EXAMPLE = {"id": "q1", "dataset": "d", "context": "The gauge is 4.2 m wide.", "question": "How wide is the gauge?"}


def texts(shape: str, example: dict[str, Any] = EXAMPLE, **options: Any) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in build(shape, example, "m", **options).parsed().messages]


def test_the_names_are_the_documented_ones() -> None:
    assert SHAPES == ("plain-system", "plain-user", "tool-result", "claude-code", "codex", "openai-agent")
    with pytest.raises(UnknownName, match="claude-code"):
        build("claude", EXAMPLE, "m")


def test_plain_system() -> None:
    assert build("plain-system", EXAMPLE, "m", system_prompt="Be brief.").body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "The gauge is 4.2 m wide."},
            {"role": "user", "content": "How wide is the gauge?"},
        ],
    }
    assert texts("plain-system", {"context": "Do this."}) == [("user", "Do this.")]
    assert texts("plain-system", {"context": "", "question": "Q"}) == [("user", "Q")]


def test_plain_user() -> None:
    assert texts("plain-user") == [("user", "The gauge is 4.2 m wide.\n\nQuestion: How wide is the gauge?")]
    assert texts("plain-user", system_prompt="S")[0] == ("system", "S")
    assert texts("plain-user", {"context": "Do this."}) == [("user", "Do this.")]
    assert texts("plain-user", without_context(EXAMPLE)) == [("user", "Question: How wide is the gauge?")]


def test_a_text_that_is_context_and_question_at_once_is_sent_once() -> None:
    assert texts("plain-user", {"context": "Write a poem.", "question": "Write a poem."}) == [("user", "Write a poem.")]
    mmlu = {"context": "Pick one.\n\nA) x  B) y", "question": "Pick one.", "choices": ["x", "y"]}
    assert texts("plain-user", mmlu) == [("user", "Pick one.\n\nA) x  B) y")]


def test_turns_are_sent_as_they_are() -> None:
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
    ]
    example = {"id": 1, "context": "hi", "question": "go", "turns": turns}
    for shape in ("plain-system", "plain-user"):
        assert build(shape, example, "m", system_prompt="S").body["messages"] == [
            {"role": "system", "content": "S"},
            *turns,
        ]
    for shape in AGENTS:
        found = texts(shape, example)
        assert [text for role, text in found if role == "user" and "environment" not in text] == ["hi", "go"]
        assert ("assistant", "yes?") in found


def test_instructions_among_the_turns_go_where_the_wire_wants_them() -> None:
    turns = [{"role": "system", "content": "Speak Latin."}, {"role": "user", "content": "go"}]
    body = build("claude-code", {"context": "c", "turns": turns}, "m").body
    assert body["system"][-1]["text"] == "Speak Latin."
    assert {message["role"] for message in body["messages"]} == {"user", "assistant"}


def test_choices_are_shown_once() -> None:
    example = {"context": "A long text.", "question": "Which?", "choices": ["red", "green"]}
    assert texts("plain-user", example)[0][1] == "A long text.\n\nQuestion: Which?\nA) red  B) green"
    assert texts("plain-system", example)[-1][1] == "Which?\nA) red  B) green"
    for shown in ("A) red  B) green", "(A) red\n(B) green", "A. red\nB. green"):
        assert "A) red  B) green" not in texts("plain-user", {**example, "question": f"Which?\n{shown}"})[0][1].replace(
            shown, ""
        )
    assert texts("plain-user", {**example, "context": "red is not green"})[0][1].endswith("A) red  B) green"), (
        "words alone are no list"
    )
    assert render_choices([str(i) for i in range(12)]).endswith("J) 9")
    assert render_choices(None) == render_choices("AB") == ""


def test_a_template_is_filled_once_and_literally() -> None:
    example = {"context": "{question} {x} {0}", "question": "why {context}?"}
    assert texts("plain-user", example, prompt="Q: {question}\nC: {context} {other}") == [
        ("user", "Q: why {context}?\nC: {question} {x} {0} {other}")
    ]
    for shape in set(SHAPES) - {"plain-user"}:
        with pytest.raises(BadInput, match="plain-user"):
            build(shape, EXAMPLE, "m", prompt="{context}")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_holds_each_text_once_and_repeats_byte_for_byte(shape: str) -> None:
    request = build(shape, EXAMPLE, "m")
    again = build(shape, dict(EXAMPLE), "m")
    whole = json.dumps(request.body)
    assert whole.count("The gauge is 4.2 m wide.") == whole.count("How wide is the gauge?") == 1
    assert (whole, request.headers) == (json.dumps(again.body), again.headers)
    assert json.dumps(build(shape, {**EXAMPLE, "id": "q2"}, "m").body).count("The gauge is 4.2 m wide.") == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_context_is_the_difference_to_the_request_without_it(shape: str) -> None:
    example = {**EXAMPLE, "context": "word " * 500}
    alone = counter_for().count(example["context"])
    total = build(shape, example, "gpt-4o").tokens()
    assert abs(context_tokens(total, shape, example, "gpt-4o") - alone) <= 3
    assert context_tokens(0, shape, example, "gpt-4o") == 0
    assert without_context(example) == {**example, "context": ""}
    assert example["context"], "the example itself is left as it was"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_namespace_stands_before_the_first_text(shape: str) -> None:
    plain, named = texts(shape), texts(shape, namespace="run/a")
    assert named[0] == (plain[0][0], "[run/a]\n" + plain[0][1])
    assert named[1:] == plain[1:]


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        ([{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "hi"}]}], "[n]\nhi"),
        ([{"role": "assistant", "content": None}, {"role": "user", "content": "hi"}], "[n]\nhi"),
        ([], "[n]"),
    ],
)
def test_a_namespace_finds_the_first_text_of_any_messages(messages: list[dict[str, Any]], first: str) -> None:
    before = json.dumps(messages)
    found = build("plain-user", EXAMPLE, "m", build_messages=lambda example: messages, namespace="n").parsed().messages
    assert next(message.text for message in found if message.text) == first
    assert json.dumps(messages) == before, "the caller's messages are not touched"


def test_messages_of_the_callers_own_go_verbatim() -> None:
    own = [{"role": "user", "content": "mine"}]
    assert (
        build("plain-system", EXAMPLE, "m", system_prompt="S", build_messages=lambda example: own).body["messages"]
        == own
    )
    with pytest.raises(BadInput, match="another wire"):
        build("codex", EXAMPLE, "m", build_messages=lambda example: own)


@pytest.mark.parametrize("shape", SHAPES)
def test_params_are_laid_over_everything(shape: str) -> None:
    assert (
        build(shape, EXAMPLE, "m", params={"temperature": 0, "model": "other"}).body.items()
        >= {"temperature": 0, "model": "other"}.items()
    )


def test_a_chat_stream_asks_for_its_usage() -> None:
    for shape in ("plain-system", "plain-user", "tool-result", "openai-agent"):
        body = build(shape, EXAMPLE, "m", stream=True).body
        assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
        assert "stream" not in build(shape, EXAMPLE, "m").body


def test_tool_shapes_answer_their_own_calls() -> None:
    for shape in AGENTS:
        messages = build(shape, EXAMPLE, "m").parsed().messages
        called = [call["id"] for message in messages for call in message.tool_calls]
        answered = [message.tool_call_id for message in messages if message.role == "tool"]
        assert called == answered
        assert len(set(called)) == len(called) >= 1
        assert messages[-1].role == "tool"
        assert messages[-1].text == EXAMPLE["context"]


def test_openai_agent_is_parallel_with_several_tools() -> None:
    body = build("openai-agent", EXAMPLE, "m").body
    assert len(body["tools"]) >= 3
    assert body["tool_choice"] == "auto"
    assert max(len(message.get("tool_calls", [])) for message in body["messages"]) == 2


def test_claude_code_as_that_client_sends_it() -> None:
    request = build("claude-code", EXAMPLE, "claude-sonnet-4-5", system_prompt="Extra.")
    assert (request.wire, request.path) == ("anthropic", "/v1/messages")
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["anthropic-beta"].startswith("claude-code-")
    assert request.headers["user-agent"].startswith("claude-cli/")
    assert request.headers["x-app"] == "cli"
    body = request.body
    assert body["stream"] is True
    assert body["max_tokens"] > 0
    assert [block["type"] for block in body["system"]] == ["text"] * 3
    assert {tool["name"] for tool in body["tools"]} >= {"Read", "Bash", "Grep", "Edit"}
    assert all(tool["input_schema"]["type"] == "object" for tool in body["tools"])
    result = body["messages"][-1]["content"][-1]
    assert (result["type"], result["content"], result["cache_control"]) == (
        "tool_result",
        EXAMPLE["context"],
        {"type": "ephemeral"},
    )
    assert 2 <= json.dumps(body).count('"cache_control"') <= 4, "the provider takes four marks at most"


def test_codex_as_that_client_sends_it() -> None:
    request = build("codex", EXAMPLE, "gpt-5-codex", system_prompt="Extra.")
    assert (request.wire, request.path) == ("openai-responses", "/v1/responses")
    assert request.headers["originator"] == "codex_cli_rs"
    assert request.headers["session-id"] == request.body["prompt_cache_key"]
    body = request.body
    assert (body["store"], body["stream"]) == (False, True)
    assert body["instructions"].endswith("Extra.")
    assert [item["type"] for item in body["input"]] == ["message", "message", "function_call", "function_call_output"]
    assert body["input"][-1]["output"] == EXAMPLE["context"]
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "reasoning" in body
    assert "reasoning" not in build("codex", EXAMPLE, "gpt-4.1").body


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_ever_holds_a_key(shape: str) -> None:
    headers = {name.lower() for name in build(shape, EXAMPLE, "m").headers}
    assert not headers & {"authorization", "x-api-key", "api-key", "cookie"}


def test_our_own_instructions_are_too_short_to_count_as_context() -> None:
    for shape in SHAPES:
        for message in build(shape, EXAMPLE, "m").parsed().messages:
            if message.role in ("system", "developer") and message.text != EXAMPLE["context"]:
                assert counter_for().count(message.text) < 200


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "example",
    [
        {},
        {"context": None, "question": None},
        {"id": 3, "context": ["not", "text"], "question": 5},
        {"id": None, "context": "a\ud800b <|endoftext|>", "question": "\x00 ‮ </file>", "turns": None},
        {"context": "c", "turns": ["x", 3], "choices": [1, None]},
    ],
)
def test_odd_examples_still_make_requests(shape: str, example: dict[str, Any]) -> None:
    request = build(shape, example, "m", namespace="n")
    assert request.tokens() > 0
    json.dumps(request.body)


def test_the_question_is_known_without_a_context() -> None:
    example = {"id": 1, "context": "Sort these numbers: 3 1 2"}
    for shape in AGENTS:
        found = texts(shape, example)
        assert any("docs/" in text and "Read" in text for role, text in found if role == "user")
        assert found[-1] == ("tool", example["context"])


def test_module_constants_are_never_shared_with_a_request() -> None:
    first = build("claude-code", EXAMPLE, "m", namespace="a")
    first.body["system"][0]["cache_control"] = "spoilt"
    first.headers["x-app"] = "spoilt"
    fresh = build("claude-code", EXAMPLE, "m")
    assert "spoilt" not in json.dumps([fresh.body, fresh.headers])
    assert not fresh.body["system"][0]["text"].startswith("[a]")
    assert shapes._CLAUDE_HEADERS["x-app"] == "cli"


def test_a_letter_is_asked_for_where_one_is_right():
    asked = {"id": 1, "context": "Which?\n\nA) x  B) y", "question": "Which?", "choices": ["x", "y"], "answer": "y"}
    with_letter = build("plain-user", {**asked, "correct_letter": "B"}, "m").body["messages"][-1]["content"]
    assert with_letter == "Which?\n\nA) x  B) y\n\nAnswer with the letter of the right choice."
    assert build("plain-user", asked, "m").body["messages"][-1]["content"] == "Which?\n\nA) x  B) y"
    assert (
        "letter"
        not in build("plain-user", {**asked, "correct_letter": "B"}, "m", prompt="{context} {question}").body[
            "messages"
        ][-1]["content"]
    )
