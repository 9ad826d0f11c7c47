"""Recorded sessions: requests before each answer, on any wire, with what the tools said."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.transcripts.session import RecordedReply, Session, conversation, reconstructed, verbatim
from context_bench.wire.apis import parse_reply, parse_request
from context_bench.wire.conversation import (
    PATHS,
    WIRES,
    Chat,
    reply_message,
    to_body,
    to_chat,
    tool_calls_of,
    tools_used,
)
from context_bench.wire.request import count_request


def call(ident: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "id": ident,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
    }


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in a.txt and b.txt?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call("c1", "Read", file_path="a.txt"), call("c2", "Read", file_path="b.txt")],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Grüße"},
    {"role": "tool", "tool_call_id": "c2", "content": "再见"},
    {"role": "assistant", "content": None, "tool_calls": [call("c3", "Bash", command="wc -c a.txt")]},
    {"role": "tool", "tool_call_id": "c3", "content": "7 a.txt"},
    {"role": "assistant", "content": "Two greetings."},
]


def session(**fields: Any) -> Session:
    return Session(
        "s", "here", "openai-chat", conversation(MESSAGES, model="gpt-4.1", tools=tools_used(MESSAGES)), **fields
    )


def test_one_request_before_each_answer() -> None:
    requests = session().requests
    assert [len(request.body["messages"]) for request in requests] == [2, 5, 7]
    assert [request.recorded_reply.text for request in requests if request.recorded_reply] == [
        "I look.",
        None,
        "Two greetings.",
    ]
    assert requests[0].recorded_reply is not None
    assert requests[0].recorded_reply.tool_calls[1] == {
        "id": "c2",
        "name": "Read",
        "arguments": '{"file_path": "b.txt"}',
    }
    assert requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("wire", WIRES)
def test_history_is_only_appended_to_on_every_wire(wire: str) -> None:
    bodies = [request.body for request in session().on(wire).requests]
    key = "input" if wire == "openai-responses" else "messages"
    for earlier, later in pairwise(bodies):
        assert later[key][: len(earlier[key])] == earlier[key]
        assert {name: value for name, value in later.items() if name != key} == {
            name: value for name, value in earlier.items() if name != key
        }


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_tells_the_same(wire: str) -> None:
    last = session().on(wire).requests[-1]
    parsed = parse_request(wire, last.body)
    assert [message.tool_call_id for message in parsed.messages if message.role == "tool"] == ["c1", "c2", "c3"]
    assert [c["name"] for message in parsed.messages for c in message.tool_calls] == ["Read", "Read", "Bash"]
    assert "再见" in "".join(message.text for message in parsed.messages)
    assert parsed.model == "gpt-4.1"
    assert len(parsed.tools) == 2
    assert last.path == PATHS[wire]
    assert last.messages == MESSAGES[:7]


def test_anthropic_bodies_have_what_that_wire_demands() -> None:
    last = session().on("anthropic").requests[-1]
    assert last.headers["anthropic-version"] == "2023-06-01"
    assert last.body["max_tokens"] > 0
    assert last.body["system"] == [{"type": "text", "text": "Be brief."}]
    roles = [message["role"] for message in last.body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]  # the two results are one turn
    assert last.body["tools"][0]["input_schema"]["properties"] == {"command": {}}
    assert last.body["messages"][1]["content"][1] == {
        "type": "tool_use",
        "id": "c1",
        "name": "Read",
        "input": {"file_path": "a.txt"},
    }


def test_a_body_of_its_own_wire_is_never_taken_apart() -> None:
    body = {"model": "claude-x", "messages": [{"role": "user", "content": [{"type": "thing", "x": 1}]}], "odd": [None]}
    request = verbatim("anthropic", body, headers={"anthropic-beta": "b"})
    assert request.body is body
    assert request.on("anthropic") is request
    assert request.exact
    assert not request.on("openai-chat").exact


def test_no_conversation_goes_over_an_unknown_wire() -> None:
    with pytest.raises(BadInput, match="'embeddings'"):
        session().on("embeddings")


def test_tool_uses_with_their_outputs() -> None:
    uses = list(session().tool_uses())
    assert [(use.name, use.output, use.turn) for use in uses] == [
        ("Read", "Grüße", 0),
        ("Read", "再见", 0),
        ("Bash", "7 a.txt", 1),
    ]


def test_an_output_is_found_though_later_requests_dropped_it() -> None:
    first = verbatim("openai-chat", {"messages": MESSAGES[:2]}, recorded_reply=RecordedReply.of(MESSAGES[2]))
    second = verbatim("openai-chat", {"messages": MESSAGES[:5]}, recorded_reply=RecordedReply.of(MESSAGES[5]))
    third = verbatim(
        "openai-chat",
        {"messages": [{"role": "user", "content": "summary"}]},
        recorded_reply=RecordedReply.of(MESSAGES[7]),
    )
    recorded = Session(
        "s",
        "",
        "openai-chat",
        [first, second, third],
        after=[{"role": "tool", "tool_call_id": "c3", "content": "late"}],
    )
    assert [use.output for use in recorded.tool_uses()] == ["Grüße", "再见", "late"]


def test_the_whole_conversation() -> None:
    assert session().messages == MESSAGES
    assert Session("s", "", "openai-chat").messages == []


def test_a_conversation_that_waits_for_an_answer_has_a_last_request() -> None:
    requests = conversation(MESSAGES[:5])
    assert [len(request.body["messages"]) for request in requests] == [2, 5]
    assert requests[-1].recorded_reply is None
    assert conversation([]) == []


def test_a_window_of_items() -> None:
    assert reconstructed("openai-chat", {"model": "m"}, MESSAGES, 1, 3).body == {
        "model": "m",
        "messages": MESSAGES[1:3],
    }


def test_images_survive_the_way_there_and_back() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    chat = Chat([{"role": "user", "content": [{"type": "text", "text": "what?"}, part]}])
    blocks = to_body("anthropic", chat)["messages"][0]["content"]
    assert blocks[1] == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    assert to_chat("anthropic", {"messages": [{"role": "user", "content": blocks}]}).messages == chat.messages


@pytest.mark.parametrize(
    ("choice", "there"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "Read"}}, {"type": "tool", "name": "Read"}),
    ],
)
def test_tool_choice_there_and_back(choice: Any, there: dict[str, Any]) -> None:
    body = to_body("anthropic", Chat([{"role": "user", "content": "x"}], params={"tool_choice": choice}))
    assert body["tool_choice"] == there
    assert to_chat("anthropic", body).params["tool_choice"] == choice


def test_thinking_is_told_apart_from_text() -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "42"}]
    (message,) = to_chat("anthropic", {"messages": [{"role": "assistant", "content": content}]}).messages
    assert (message["content"], message["reasoning_content"]) == ("42", "hm")


def test_replies_of_three_wires_are_read_alike() -> None:
    tool = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    bodies = {
        "openai-chat": {
            "choices": [
                {"message": {"role": "assistant", "content": "so", "tool_calls": [call("t", "Bash", command="ls")]}}
            ]
        },
        "anthropic": {"content": [{"type": "text", "text": "so"}, tool]},
        "openai-responses": {
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
                {"type": "function_call", "call_id": "t", "name": "Bash", "arguments": '{"command": "ls"}'},
            ]
        },
    }
    for wire, body in bodies.items():
        message = reply_message(wire, body)
        assert message is not None
        mine, theirs = RecordedReply.of(message), parse_reply(wire, body)
        assert (mine.text, mine.tool_calls[0]["name"]) == (theirs.text, theirs.tool_calls[0]["name"]) == ("so", "Bash")
        assert json.loads(mine.tool_calls[0]["arguments"]) == json.loads(theirs.tool_calls[0]["arguments"])
    for wire in WIRES:
        assert reply_message(wire, {"error": {"message": "no"}}) is None
        assert reply_message(wire, "gateway down") is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(TEXTS)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(TEXTS)})
        calls = [
            call(f"c{turn}-{n}", draw(st.sampled_from(["Read", "Bash"])), x=draw(TEXTS))
            for n in range(draw(st.integers(0, 2)))
        ]
        if calls:
            messages.append({"role": "assistant", "content": draw(st.none() | TEXTS), "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": one["id"], "content": draw(TEXTS)} for one in calls]
        messages.append({"role": "assistant", "content": draw(TEXTS)})
    return messages


@given(conversations(), st.sampled_from(WIRES))
def test_there_and_back_again_says_the_same(messages: list[dict[str, Any]], wire: str) -> None:
    again = to_chat(wire, to_body(wire, Chat(messages, "m", tools_used(messages))))
    assert again.messages == messages
    assert again.tools == tools_used(messages)
    assert again.model == "m"


@given(conversations())
def test_tokens_are_the_same_on_both_openai_wires_less_the_form_of_tools(messages: list[dict[str, Any]]) -> None:
    counts = []
    for wire in ("openai-chat", "openai-responses"):
        merged = parse_request(wire, to_body(wire, Chat(messages)))
        texts = [part.text for message in merged.messages for part in message.parts if part.text]
        counts.append(sorted(texts))
    assert counts[0] == counts[1]
    assert (
        count_request(parse_request("openai-chat", to_body("openai-chat", Chat(messages))), counter_for()).uncounted
        == 0
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=4)
    | st.sampled_from(["user", "assistant", "tool_use", "tool_result", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "input",
                    "output",
                    "source",
                    "summary",
                    "image_url",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "input",
                "system",
                "instructions",
                "tools",
                "functions",
                "tool_choice",
                "stop",
                "model",
                "content",
                "output",
                "choices",
            ]
        ),
        JSON,
        max_size=6,
    ),
    st.sampled_from(WIRES),
    st.sampled_from(WIRES),
)
def test_odd_bodies_are_passed_over_never_raised_upon(body: dict[str, Any], here: str, there: str) -> None:
    chat = to_chat(here, body)
    json.dumps(to_body(there, chat))
    for message in chat.messages:
        tool_calls_of(message)
        RecordedReply.of(message)
    reply_message(here, body)
