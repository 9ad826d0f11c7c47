"""Answers played back: by example and trial, with what they took, and with the failures that they were."""

import pytest

from context_bench.cli.endpoints import RecordedScores
from context_bench.core.errors import BadInput, SystemFailed, describe
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.records import Usage
from context_bench.engine import Arm, RunSettings, execute, open_store, rows
from context_bench.systems.recorded_answers import NotRecorded, RecordedAnswers
from context_bench.transcripts.harness_results import RecordedAnswer

EXAMPLES = [{"id": i, "dataset": "d", "context": "c", "question": f"q{i}", "answer": "a"} for i in range(3)]


def answer(i, trial=0, **more):
    given = {
        "output": {"response": f"r{i}.{trial}"},
        "scores": {"match": i / 2},
        "usage": Usage(10, 2),
        "latency": 1.5,
        "model": "m",
        "cost": 0.5,
    }
    return RecordedAnswer("s", EXAMPLES[i], trial, **{**given, **more})


def system(*answers):
    return RecordedAnswers("s", answers, source="inspect")


def test_an_answer_is_given_to_its_example_and_trial_with_one_call_in_the_ledger():
    made = system(answer(0), answer(0, 1), answer(1))
    with open_ledger(Ledger()) as ledger:
        assert made.process({**EXAMPLES[0], "trial": 1})["response"] == "r0.1"
    (call,) = ledger.calls
    assert (call.url, call.model, call.seconds, call.usage, call.cost) == (
        "recorded:inspect",
        "m",
        1.5,
        Usage(10, 2),
        0.5,
    )
    assert made.process(EXAMPLES[1])["recorded_scores"] == {"match": 0.5}
    with pytest.raises(NotRecorded, match=r"example 2 of 'd' in trial 0"):
        made.process(EXAMPLES[2])


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("TimedOut: no answer\n within 3 s", "TimedOut: no answer within 3 s"),
        ("RateLimitError('slow down')", "RateLimitError: slow down"),
        ("the model is gone", "RecordedFailure: the model is gone"),
        ("x: y", "RecordedFailure: x: y"),
        ("</script>: y", "RecordedFailure: </script>: y"),
    ],
)
def test_a_failure_keeps_its_class(told, kept):
    with pytest.raises(SystemFailed) as caught:
        system(answer(0, error=told)).process(EXAMPLES[0])
    assert describe(caught.value) == kept


def test_two_answers_to_the_same_are_refused():
    with pytest.raises(BadInput, match="--system"):
        system(answer(0), answer(0))


async def test_the_engine_keeps_what_was_recorded_and_makes_nothing_up():
    """Latency, tokens and money are the recorded ones; unknown ones stay unknown; what is not there is a failure."""
    answers = [
        answer(0),
        answer(0, 1),
        answer(1, error="TimedOut: slow"),
        answer(1, 1, usage=None, cost=None, latency=None, scores={}),
    ]
    with open_store() as store:
        settings = RunSettings(trials=2, late_grace=0.0)
        executed = await execute(
            store,
            name="r",
            arms=[Arm(system(*answers))],
            examples=EXAMPLES,
            evaluators=[RecordedScores("inspect")],
            manifest={},
            settings=settings,
        )
        found = {(row.example_id, row.trial): row for row in rows(store, executed.run_id)}
    assert len(found) == 6
    first = found[0, 1]
    assert (first.latency, first.output_tokens, first.usage["cost"], first.usage["output_tokens"]) == (1.5, 10, 0.5, 2)
    assert first.scores == {"inspect.match": 0.0}
    failed = found[1, 0]
    assert (failed.errors, failed.latency, failed.scores) == ({"system": "TimedOut: slow"}, 1.5, {})
    bare = found[1, 1]
    assert (bare.latency, bare.input_tokens, bare.output_tokens, bare.scores, bare.errors) == (None, None, None, {}, {})
    assert {key for key, row in found.items() if row.errors.get("system", "").startswith("NotRecorded")} == {
        (2, 0),
        (2, 1),
    }
