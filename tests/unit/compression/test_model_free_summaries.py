"""The ledger without a model, and sentences chosen by their vectors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.compression.compressors.anchored import Anchored
from context_bench.compression.compressors.model_summaries import SummarySections
from context_bench.compression.compressors.ranked_sentences import Extractive
from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.datasets import sessions
from context_bench.wire.conversation import call_of, message_text

COUNT = counter_for().count


def text_of(made: Any) -> str:
    return "\n".join(message_text(message) for message in made.messages)


def wrote(ident: str, path: str) -> list[dict[str, Any]]:
    return _did(ident, "Write", {"file_path": path, "content": "x = 1\n"}, "ok")


def read(ident: str, path: str) -> list[dict[str, Any]]:
    return _did(ident, "Read", {"file_path": path}, "1\tx = 1")


def edited(ident: str, path: str) -> list[dict[str, Any]]:
    return _did(ident, "Edit", {"file_path": path, "old_string": "1", "new_string": "2"}, "ok")


def _did(ident: str, name: str, arguments: dict[str, Any], output: str) -> list[dict[str, Any]]:
    call = {"role": "assistant", "content": None, "tool_calls": [call_of(ident, name, arguments)]}
    return [call, {"role": "tool", "tool_call_id": ident, "content": output}]


def test_the_ledger_of_a_session() -> None:
    whole = sessions.load_session("lagerverwaltung-de").messages[1:]
    made, state = Anchored().compress(whole, [])
    text = text_of(made)
    assert len(made.messages) == 1
    assert made.tokens_after == COUNT(text) < (made.tokens_before or 0) / 5
    for line in (
        "- Created the new file tests/test_nachtlauf.py",
        "- Modified the existing file lager/nachtlauf.py",
        "- Read or examined, not changed: README.md",
        "- Still left to do: Verbindungsabbruch zu mail.intern:587 untersuchen",
    ):
        assert line in text
    assert json.loads(json.dumps(state)) == state


def test_only_what_is_new_is_read_and_what_stands_is_not_rewritten() -> None:
    first = [
        {"role": "user", "content": "Fix the gauge."},
        *read("1", "/w/a.py"),
        *wrote("2", "/w/b.py"),
        *read("3", "/w/c.py"),
    ]
    made, state = Anchored(cwd="/w").compress(first, [])
    later = [*edited("4", "/w/a.py"), *edited("5", "/w/b.py"), {"role": "user", "content": "Now the clock."}]
    again, after = Anchored(cwd="/w").compress([*made.messages, *later], [], state=state)
    lines = text_of(again).splitlines()
    assert lines.count("- Fix the gauge.") == 1  # the summary is not taken for what a user said
    assert "- Now the clock." in lines
    assert "- Modified the existing file a.py" in lines
    assert "- Read or examined, not changed: a.py" not in lines
    assert "- Created the new file b.py" in lines
    assert "- Read or examined, not changed: c.py" in lines
    # Given the messages themselves instead of the summary, the same comes of it.
    whole, _ = Anchored(cwd="/w").compress([*first, *later], [], state=state)
    assert whole.messages == again.messages
    # Nothing new: the same text again.
    assert Anchored(cwd="/w").compress(again.messages, [], state=after)[0].messages == again.messages


def test_tests_that_failed_stay_open_until_they_pass() -> None:
    failing = _did(
        "1",
        "Bash",
        {"command": "pytest"},
        "FAILED tests/test_a.py::test_one\nFAILED tests/test_a.py::test_two\n2 failed",
    )
    made, state = Anchored().compress(failing, [])
    assert "Test still failing: tests/test_a.py::test_one" in text_of(made)
    passing = _did(
        "2", "Bash", {"command": "pytest -v"}, "tests/test_a.py::test_one PASSED\nFAILED tests/test_a.py::test_two"
    )
    again, state = Anchored().compress([*made.messages, *passing], [], state=state)
    assert "test_one" not in text_of(again).split("Next steps:")[1]
    assert "Test still failing: tests/test_a.py::test_two" in text_of(again)
    last, _ = Anchored().compress(
        [*again.messages, *_did("3", "Bash", {"command": "pytest"}, "9 passed in 0.1s")], [], state=state
    )
    assert "Next steps:" not in text_of(last)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 700))
def test_a_budget_is_kept_by_leaving_whole_entries_out(budget: int) -> None:
    whole = sessions.load_session("lagerverwaltung-de").messages[1:]
    everything = set(text_of(Anchored().compress(whole, [])[0]).splitlines())
    made, _ = Anchored().compress(whole, [], budget=budget)
    assert COUNT(text_of(made)) <= budget
    assert set(text_of(made).splitlines()) <= everything | {""}
    assert bool(made.warnings) == (set(text_of(made).splitlines()) != everything)


def test_a_ledger_with_a_budget_forgets_nothing() -> None:
    whole = sessions.load_session("lagerverwaltung-de").messages[1:]
    small, state = Anchored(budget=60).compress(whole, [])
    wide, _ = Anchored().compress(small.messages, [], state=state)
    assert wide.messages == Anchored().compress(whole, [])[0].messages


def test_entries_are_put_and_struck() -> None:
    made = SummarySections()
    made.put("state", "x is 1", "x")
    made.put("state", "y is 2", "y")
    made.put("state", "x is 3", "x")
    made.put("state", "y is 9", "y", first=True)
    assert made.rendered().splitlines()[-2:] == ["- y is 2", "- x is 3"]
    assert made.strike("state", "y")
    assert not made.strike("state", "y")
    assert SummarySections.from_json(made.to_json()) == made
    assert SummarySections().rendered() == ""


class _Topics:
    """Two topics, told apart by a word; the vector of anything else lies between."""

    name = "topics"

    def embed(self, texts: Any) -> list[list[float]]:
        return [[1.0, 0.0] if "gauge" in text else [0.0, 1.0] if "clock" in text else [0.7, 0.7] for text in texts]


def test_sentences_by_the_question_or_so_that_all_topics_are_there() -> None:
    prefix = [
        {
            "role": "user",
            "content": "The gauge is red.\nThe gauge is tall.\nThe gauge is old.\nThe clock is new.\nThe gauge is red.",
        }
    ]
    made, _ = Extractive(by="query", embedder=_Topics()).compress(prefix, [], budget=6, query="which clock?")
    assert text_of(made) == "The clock is new."
    made, _ = Extractive(embedder=_Topics()).compress(prefix, [], budget=12)
    assert "clock" in text_of(made)
    assert "gauge" in text_of(made)
    assert text_of(made).count("red") <= 1


def test_the_bundled_embedder_finds_what_is_meant() -> None:
    said = "The invoice was paid late. A cat sleeps on the sofa. The harbour is closed in winter."
    made, _ = Extractive(by="query").compress(
        [{"role": "user", "content": said}], [], budget=8, query="Which pet is resting?"
    )
    assert text_of(made) == "A cat sleeps on the sofa."


def test_options_that_are_none() -> None:
    with pytest.raises(BadInput, match="by='middle'"):
        Extractive(by="middle")
    with pytest.raises(BadInput, match="budget=-1"):
        Anchored(budget=-1)
