"""Would the agent have done the same next: calls in their normal form, texts by token F1, and nothing that scores
without a recording.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from context_bench.core.plugins import build
from context_bench.evaluators import BUILTINS, NextAction
from context_bench.traffic.evaluators.next_action import Action, agreement, arguments, command, path


def call(name, **values):
    return {"id": "x", "name": name, "arguments": json.dumps(values)}


def score(recorded, made, **more):
    """`recorded` and `made` as (text, calls)."""
    example = {"id": 1, "recorded": {"text": recorded[0], "tool_calls": recorded[1]}, **more}
    return NextAction().score(example, {**example, "response": made[0], "tool_calls": made[1]})


SAME = {"action_match": 1, "tool_match": 1, "argument_match": 1}
READ = ("", [call("Read", file_path="src/app.py", limit=20)])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (READ, SAME),
        (("I will look.", [call("Read", limit=20, file_path="./src/lib/../app.py")]), SAME),
        (("", [call("Read", file_path="src/app.py")]), {"action_match": 0, "tool_match": 1, "argument_match": 0.5}),
        (
            ("", [call("Read", file_path="src/other.py", limit=20)]),
            {"action_match": 0, "tool_match": 1, "argument_match": 0.5},
        ),
        (("", [call("Grep", pattern="x")]), {"action_match": 0, "tool_match": 0, "argument_match": 0}),
        (("src/app.py says nothing", []), {"action_match": 0, "tool_match": 0, "argument_match": 0}),
        (("", [READ[1][0], READ[1][0]]), {"action_match": 0, "tool_match": 2 / 3, "argument_match": 0.5}),
    ],
)
def test_a_recorded_call(made, expected):
    assert score(READ, made) == pytest.approx(expected)


def test_a_recorded_text():
    assert score(("All tests pass now.", []), ("All tests pass now", [])) == {
        "action_match": 1.0,
        "tool_match": 1.0,
        "text_f1": 1.0,
    }
    half = score(("alpha beta", []), ("alpha gamma", []))
    assert half == pytest.approx({"action_match": 0.5, "tool_match": 1, "text_f1": 0.5})
    assert score(("done", []), ("done", READ[1])) == {"action_match": 0.0, "tool_match": 0.0, "text_f1": 1.0}


def test_parallel_calls_may_come_in_any_order():
    both = [call("Read", file_path="a"), call("Read", file_path="b")]
    assert score(("", both), ("", both[::-1]))["action_match"] == 1.0
    assert score(("", both), ("", both[:1])) == pytest.approx(
        {"action_match": 0, "tool_match": 2 / 3, "argument_match": 0.5}
    )


def test_what_an_agent_says_about_a_command_is_not_the_command():
    first, second = (
        call("Bash", command="ls  -l src/", description="List files"),
        call("Bash", command="ls -l 'src/'", description="Look"),
    )
    assert score(("", [first]), ("", [second]))["action_match"] == 1.0
    issues = call("open_issue", title="t", description="one"), call("open_issue", title="t", description="two")
    assert score(("", [issues[0]]), ("", [issues[1]]))["action_match"] == 0.0


def test_paths_under_the_working_directory_are_the_same_spelt_either_way():
    absolute, relative = call("Read", file_path="/home/me/app/src/x.py"), call("Read", file_path="src/x.py")
    assert score(("", [absolute]), ("", [relative]), cwd="/home/me/app/")["action_match"] == 1.0
    assert score(("", [absolute]), ("", [relative]))["action_match"] == 0.0
    assert path("/home/me/application/x", "/home/me/app") == "/home/me/application/x"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ls -l", ["ls", "-l"]),
        (["bash", "-lc", "ls  -l"], ["ls", "-l"]),
        (["rg", "-n", "a b"], ["rg", "-n", "a b"]),
        ("make&&make test", ["make", "&&", "make", "test"]),
        ("cd x\n\n pwd", ["cd", "x", "\n", "pwd"]),
        ("echo 'two\nlines' \"\"", ["echo", "two\nlines", ""]),
        ("echo  it's", ["echo it's"]),
        ("echo a # not a comment", ["echo", "a", "#", "not", "a", "comment"]),
    ],
)
def test_commands_are_what_a_shell_would_see(given, words):
    assert command(given) == words


def test_arguments_that_are_no_object_are_compared_as_they_stand():
    assert arguments("{broken   json") == {"": "{broken json"}
    assert arguments("[1]") == {"": [1]}
    assert arguments("") == arguments(None) == arguments("{}") == {}
    assert (
        score(("", [{"name": "f", "arguments": "oops"}]), ("", [{"name": "f", "arguments": "oops"}]))["action_match"]
        == 1.0
    )


def test_without_a_recording_nothing_is_scored():
    evaluator = build("evaluator", "next_action", BUILTINS, lambda found: hasattr(found, "score"))
    for recorded in (None, {}, {"text": " ", "tool_calls": []}, "done"):
        example = {"id": 1, "recorded": recorded}
        assert not evaluator.applies(example, {"response": "x"})
        assert evaluator.score(example, {"response": "x"}) == {}
    assert not evaluator.applies({"recorded": {"text": "done"}}, {"context": "only"})
    assert evaluator.applies({"recorded": {"text": "done"}}, {"response": ""})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["file_path", "command", "query", "description"])
CALLS = st.lists(
    st.builds(lambda name, values: call(name, **values), st.sampled_from("abc"), st.dictionaries(NAMES, VALUES)),
    max_size=3,
)
ACTIONS = st.builds(Action, st.text("ab c", max_size=8), CALLS)


@given(ACTIONS, ACTIONS)
def test_shares_stay_between_0_and_1_and_an_action_agrees_with_itself(one, other):
    found = agreement(one, other)
    assert all(0.0 <= value <= 1.0 for value in found.values())
    if other.calls:
        assert (found["action_match"] == 1.0) == (found["argument_match"] == 1.0)
    assert set(agreement(other, other).values()) == {1.0}
