"""Which message became which, and what else was done to a request."""

import pytest
from hypothesis import given, strategies as st

from context_bench.wire.apis import parse_request
from context_bench.wire.diff import diff_requests, message_text

SYSTEM = "You answer in one word, from the text alone."
QUESTION = "By what trade does the person of house 3 live?"


def openai(*messages, **more):
    return parse_request(
        "openai-chat", {"model": "m", "messages": [{"role": role, "content": text} for role, text in messages], **more}
    )


def told(diff):
    return [(each.state, each.sent, each.forwarded, each.marks) for each in diff.messages]


def test_as_sent():
    one = openai(("system", SYSTEM), ("user", QUESTION))
    diff = diff_requests(one, one)
    assert diff.unchanged
    assert diff.kept_share == 1
    assert told(diff) == [("kept", (0,), (0,), ()), ("kept", (1,), (1,), ())]


def test_null_fields_that_are_left_out_are_no_change():
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/1"}}
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    sent = openai(
        ("user", [{**picture, "detail": None}]),
        temperature=None,
        tools=[{**tool, "strict": None}],
        response_format={"type": "text", "extra": None},
    )
    diff = diff_requests(
        sent, openai(("user", [picture]), tools=[dict(reversed(tool.items()))], response_format={"type": "text"})
    )
    assert diff.unchanged


def test_a_role_that_changed_is_named():
    diff = diff_requests(
        openai(("system", SYSTEM), ("assistant", "Yes."), ("user", QUESTION)),
        openai(("user", SYSTEM), ("user", "Yes.")),
    )
    assert [(each.roles, each.marks) for each in diff.messages] == [
        (("system", "user"), ("role",)),
        (("assistant", "user"), ("role",)),
        (("user", None), ()),
    ]
    assert (diff.count("role"), diff.count("dropped"), diff.unchanged) == (2, 1, False)


def test_messages_dropped_added_and_moved():
    history = [("user", f"Part {i} of the manual is about valve {i}.") for i in range(4)]
    sent = openai(("system", SYSTEM), *history, ("user", QUESTION))
    diff = diff_requests(
        sent, openai(("system", SYSTEM), history[3], ("user", "Use what you remember."), history[1], ("user", QUESTION))
    )
    states = {each.sent or each.forwarded: each for each in diff.messages}
    assert diff.count("dropped") == 2
    assert diff.count("added") == 1
    assert diff.count("moved") == 1
    assert {states[1,].state, states[3,].state} == {"dropped"}
    assert states[0,].state == states[5,].state == "kept"


def test_messages_that_became_one_and_one_that_became_several():
    apart, together = openai(("system", SYSTEM), ("user", QUESTION)), openai(("user", f"{SYSTEM}\n\n{QUESTION}"))
    (merged,) = diff_requests(apart, together).messages
    assert (merged.state, merged.sent, merged.forwarded, merged.roles) == (
        "kept",
        (0, 1),
        (0,),
        ("system + user", "user"),
    )
    assert merged.marks == ("merged", "role")
    (split,) = diff_requests(together, apart).messages
    assert (split.state, split.sent, split.forwarded, split.marks) == ("kept", (0,), (0, 1), ("split", "role"))


def test_a_text_that_was_shortened_says_which_words_are_gone():
    diff = diff_requests(openai(("user", "Lane 3 runs past the mill.")), openai(("user", "Lane 3 runs the mill.")))
    assert diff.messages[0].spans == [("kept", "Lane 3 runs "), ("dropped", "past "), ("kept", "the mill.")]
    assert (diff.sent_words, diff.forwarded_words, diff.kept_words) == (6, 5, 5)


def test_parameters_model_stream_and_tools():
    tool = {
        "type": "function",
        "function": {"name": "search", "description": "Search.", "parameters": {"type": "object"}},
    }
    other = {"type": "function", "function": {**tool["function"], "description": "Look."}}
    run = {"type": "function", "function": {"name": "run", "parameters": {}}}
    sent = openai(("user", "a"), temperature=0, seed=3, tools=[tool, run])
    forwarded = openai(("user", "a"), temperature=0.7, stop=["x"], tools=[other], stream=True)
    forwarded.model = "n"
    found = {(each.kind, each.name): (each.before, each.after) for each in diff_requests(sent, forwarded).changed}
    assert found["model", "model"] == ("m", "n")
    assert found["stream", "stream"] == ("false", "true")
    assert found["parameter", "temperature"] == ("0", "0.7")
    assert found["parameter", "seed"] == ("3", None)
    assert found["parameter", "stop"] == (None, '["x"]')
    assert found["tool", "run"][1] is None
    assert "Search." in found["tool", "search"][0]
    assert "Look." in found["tool", "search"][1]


def anthropic(text, mark=True, argument="a.txt"):
    block = {"type": "text", "text": SYSTEM, **({"cache_control": {"type": "ephemeral"}} if mark else {})}
    return parse_request(
        "anthropic",
        {
            "model": "m",
            "system": [block],
            "messages": [
                {"role": "user", "content": QUESTION},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": argument}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": text}]},
            ],
        },
    )


def test_anthropic_tool_calls_results_and_cache_marks():
    diff = diff_requests(anthropic("one two three"), anthropic("one three", mark=False, argument="b.txt"))
    system, question, call, result = diff.messages
    assert (system.state, system.marks) == ("kept", ("cache mark lost",))
    assert question.state == "kept"
    assert ("dropped", "a") in call.spans
    assert ("added", "b") in call.spans
    assert result.spans == [("kept", "one "), ("dropped", "two "), ("kept", "three")]


def test_what_is_no_text_stands_in_brackets():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    (message,) = parse_request(
        "openai-chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "See:"}, picture]}]}
    ).messages
    shown = message_text(message)
    assert shown.startswith("See:\n[image_url: 5,0")
    assert len(shown) < 300


TEXTS = st.sampled_from(
    ["", "a", SYSTEM, QUESTION, f"{SYSTEM}\n\n{QUESTION}", "Part one.", "Part one. Part two.", "\ud800", "\u202e x"]
)
MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), max_size=7)


@given(MESSAGES, MESSAGES)
def test_every_message_is_told_once_and_its_text_whole(before, after):
    sent, forwarded = openai(*before), openai(*after)
    diff = diff_requests(sent, forwarded)
    assert sorted(i for each in diff.messages for i in each.sent) == list(range(len(before)))
    assert sorted(j for each in diff.messages for j in each.forwarded) == list(range(len(after)))
    for each in diff.messages:
        said = "\n\n".join(message_text(sent.messages[i]) for i in each.sent)
        went = "\n\n".join(message_text(forwarded.messages[j]) for j in each.forwarded)
        assert "".join(text for kind, text in each.spans if kind != "added") == said
        assert "".join(text for kind, text in each.spans if kind != "dropped") == went


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic", "other"])
def test_bodies_that_are_no_requests(wire):
    for body in (
        {},
        {"messages": 3, "input": None},
        {"messages": [None, 4, {"role": 3}], "input": [[]], "tools": [1, "x", None]},
    ):
        assert diff_requests(parse_request(wire, body), parse_request(wire, body)).unchanged
