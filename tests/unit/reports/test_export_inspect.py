"""The Inspect log as a document: what stands where, whatever the texts are, one sample at a time."""

import io
import json

import pytest

from context_bench.core.records import EvalRow
from context_bench.reports.inspect_export import LogFacts, write_log
from context_bench.reports.json_document import Answered

FACTS = LogFacts("my run", "0123456789ab", "done", 1_793_613_600.0, 1_793_613_660.0, "kom pact/2", "hotpotqa:x", "1.0")
HOSTILE = "</script>\x1b[31m\u202e\x00\ud800 \"'\\ 😀"


def answered(i, trial=0, **more):
    row = EvalRow(
        system="kom pact/2",
        example_id=i,
        scores={"f1": 1.0, "recall": 0.5},
        input_tokens=100,
        output_tokens=50,
        metadata={"model": "m", "finish_reason": "length"},
        latency=1.5,
        dataset="hotpotqa:x",
        trial=trial,
        usage={
            "input_tokens": 60,
            "cache_read": 20,
            "output_tokens": 5,
            "cost": 0.25,
            "judge": {"input_tokens": 7, "output_tokens": 1},
        },
    )
    for name in [name for name in more if hasattr(row, name)]:
        setattr(row, name, more.pop(name))
    example = more.pop(
        "example", {"id": i, "context": "Box holds word.", "question": "What?", "answer": "word", "choices": ["a", "b"]}
    )
    return Answered(row, example, more.pop("output", {"response": "word"}), **more)


def log(*found, facts=FACTS):
    stream = io.StringIO()
    write_log(facts, [each.row for each in found], iter(found), stream)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = stream.getvalue()
    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse)


def test_the_head_says_what_ran_and_the_means_of_it():
    made = log(
        answered(1),
        answered(1, 1, scores={"f1": 0.0}),
        answered(2),
        answered(2, 1, scores={}, errors={"system": "TimedOut: 30 s"}),
    )
    assert (made["version"], made["status"]) == (2, "success")
    head = made["eval"]
    assert (head["task"], head["model"], head["created"]) == ("hotpotqa:x", "kom pact/2/m", "2026-11-02T10:00:00+00:00")
    assert (head["config"]["epochs"], head["dataset"]["samples"]) == (2, 2)
    assert head["metadata"]["context_bench"]["system"] == "kom pact/2"
    results = made["results"]
    assert (results["total_samples"], results["completed_samples"]) == (4, 3)
    (f1, recall) = results["scores"]
    assert (f1["name"], f1["scored_samples"], f1["unscored_samples"]) == ("f1", 3, 1)
    assert f1["metrics"]["mean"]["value"] == pytest.approx(2 / 3)
    # Two trials of one example are one cluster: deviations −1/3 and +1/3 of two clusters, √(2·2·(1/3)²)/3.
    assert f1["metrics"]["stderr"]["value"] == pytest.approx(2 / 9)
    assert recall["metrics"]["mean"]["value"] == 0.5
    assert made["stats"]["model_usage"] == {
        "m": {
            "input_tokens": 160,
            "output_tokens": 20,
            "total_tokens": 260,
            "input_tokens_cache_read": 80,
            "total_cost": 1.0,
        }
    }


def test_a_sample_says_what_was_asked_answered_scored_and_used():
    (sample,) = log(answered(7, 2))["samples"]
    assert (sample["id"], sample["epoch"], sample["input"], sample["target"]) == (7, 3, "What?", "word")
    assert sample["choices"] == ["a", "b"]
    assert [(message["role"], message["content"]) for message in sample["messages"]] == [
        ("user", "Box holds word.\n\nWhat?"),
        ("assistant", "word"),
    ]
    assert (sample["output"]["completion"], sample["output"]["choices"][0]["stop_reason"]) == ("word", "max_tokens")
    assert sample["scores"] == {"f1": {"value": 1.0, "answer": "word"}, "recall": {"value": 0.5, "answer": "word"}}
    assert (sample["working_time"], sample["total_time"]) == (1.5, 1.5)
    assert sample["model_usage"]["m"]["input_tokens"] == 40  # what came from the cache is counted apart
    assert sample["role_usage"] == {"judge": {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}}
    assert sample["metadata"]["example"]["context"] == "Box holds word."
    told = sample["metadata"]["context_bench"]
    assert (told["input_tokens"], told["output_tokens"]) == (100, 50)
    assert "error" not in sample


def test_a_failed_row_is_an_error_and_an_evaluators_failure_is_no_score():
    failed = answered(1, scores={}, errors={"system": "TimedOut: 30 s"}, output={})
    judged = answered(2, scores={"f1": 1.0}, errors={"llm_judge": "JudgeUnreadable: …"})
    first, second = log(failed, judged)["samples"]
    assert first["error"]["message"] == "TimedOut: 30 s"
    assert first["output"]["choices"] == []
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert "error" not in second
    assert set(second["scores"]) == {"f1"}
    assert second["metadata"]["context_bench"]["errors"] == {"llm_judge": "JudgeUnreadable: …"}


def test_messages_are_what_was_sent_where_it_was_kept():
    sent = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Q"}]},
        ]
    }
    (sample,) = log(answered(1, request=sent))["samples"]
    assert [(message["role"], message["content"]) for message in sample["messages"]] == [
        ("system", "Be brief."),
        ("user", "Q"),
        ("assistant", "word"),
    ]
    for odd in (
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        "text",
        [3],
    ):
        (sample,) = log(answered(1, request={"messages": odd}))["samples"]
        assert sample["messages"][0]["content"] == "Box holds word.\n\nWhat?"


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        ({"answer": ["a", "b", "a"]}, ["a", "b"]),
        ({"answer": "a", "answers": {"text": ["a", "c"]}}, ["a", "c"]),
        ({}, ""),
        ({"answer": 4}, "4"),
    ],
)
def test_right_answers_are_the_target(answer, target):
    assert log(answered(1, example={"context": "c", **answer}))["samples"][0]["target"] == target


def test_ids_that_come_again_are_told_apart():
    assert [sample["id"] for sample in log(answered(1), answered("1"), answered(1), answered(1, 1))["samples"]] == [
        1,
        "1#2",
        "1#3",
        1,
    ]


def test_no_text_breaks_the_document():
    example = {
        "context": HOSTILE,
        "question": HOSTILE,
        "answer": HOSTILE,
        HOSTILE: [HOSTILE, float("nan")],
        "api_key": "sk-1",
    }
    calls = [
        {"id": 1, "name": HOSTILE, "arguments": "{broken"},
        {"function": {"name": "f", "arguments": '{"a": 1}'}},
        "x",
    ]
    odd = answered(
        HOSTILE,
        example=example,
        output={"response": HOSTILE, "tool_calls": calls},
        scores={HOSTILE: 1.0, "nan": float("nan")},
        errors={"system": HOSTILE},
    )
    made = log(odd)
    (sample,) = made["samples"]
    shown = HOSTILE.replace("\ud800", "\ufffd")
    assert sample["input"] == sample["output"]["completion"] == shown
    assert set(sample["scores"]) == {shown}
    assert sample["metadata"]["example"]["api_key"] == "(hidden)"
    assert [(call["function"], call["arguments"]) for call in sample["messages"][-1]["tool_calls"]] == [
        (shown, {"arguments": "{broken"}),
        ("f", {"a": 1}),
    ]
    assert "sk-1" not in json.dumps(made)


def test_a_run_that_kept_no_examples_is_still_a_log():
    (sample,) = log(answered(1, example=None))["samples"]
    assert (sample["input"], sample["target"], sample["messages"][-1]["content"]) == ("", "", "word")


@pytest.mark.parametrize(
    ("status", "told"),
    [("done", "success"), ("running", "started"), ("interrupted", "cancelled"), ("stopped", "cancelled")],
)
def test_how_the_run_ended(status, told):
    facts = LogFacts("r", "0", status, 0.0, 0.0, "s", "d", "1")
    assert log(facts=facts)["status"] == told
    assert log(facts=facts)["samples"] == []


def test_the_file_name_is_one_that_inspect_lists():
    assert FACTS.file_name.startswith("2026-11-02T10-00-00+00-00_hotpotqa-x-kom-pact-2_")
    assert FACTS.file_name.endswith(f"_{FACTS.id}.json")
    odd = LogFacts("r", "0", "done", 0.0, 0.0, "../../é\x00", "", "1")
    assert "/" not in odd.file_name
    assert odd.file_name.isascii()


def test_samples_are_written_as_they_are_read():
    """Memory does not grow with the run: before the second answer is asked for, the first one is out."""
    stream = io.StringIO()

    def read():
        yield answered(1, output={"response": "first answer"})
        assert "first answer" in stream.getvalue()
        yield answered(2)

    write_log(FACTS, [answered(1).row, answered(2).row], read(), stream)
    assert len(json.loads(stream.getvalue())["samples"]) == 2
