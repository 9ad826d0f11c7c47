"""`evaluate` as documented: rows, summary, timing, configuration, order, conversations, progress, results by hand, and
`main`.
"""

import itertools
import json

import pytest

from context_bench import EvalResult, EvalRow, evaluate
from context_bench.__main__ import main
from context_bench.metrics import CompressionRatio, MeanScore, PassRate
from context_bench.types import Evaluator, Metric, System

DATA = [
    {"id": f"t{i}", "context": f"Tide table of day {i}. " * 30, "question": "High water?", "answer": f"{i} h"}
    for i in range(4)
]


class FirstTenth:
    """Only shortens; answers nothing."""

    @property
    def name(self):
        return "first_tenth"

    def process(self, example):
        return {**example, "context": example["context"][: len(example["context"]) // 10]}


class Same:
    name = "same"

    def process(self, example):
        return dict(example)


class Parrot:
    name = "parrot"

    def process(self, example):
        return {**example, "response": example.get("answer", "")}


class Kept:
    """An evaluator that says nothing of itself but its name."""

    @property
    def name(self):
        return "kept"

    def score(self, original, processed):
        return {"score": len(processed.get("context", "")) / max(1, len(original.get("context", "")))}


class Right:
    name = "right"

    def score(self, original, processed):
        return {"right": float(processed.get("response") == original.get("answer"))}


def run(systems, data=DATA, evaluators=None, **options):
    return evaluate(systems=systems, dataset=data, evaluators=evaluators or [Kept()], progress=False, **options)


def test_plug_ins_need_no_base_class():
    assert isinstance(FirstTenth(), System)
    assert isinstance(Kept(), Evaluator)
    assert isinstance(MeanScore(), Metric)


def test_one_row_per_system_and_example_and_a_summary_of_each_system():
    result = run([FirstTenth(), Same()], metrics=[MeanScore(), PassRate(threshold=0.5), CompressionRatio()])
    assert isinstance(result, EvalResult)
    assert [(row.system, row.example_id) for row in result.rows] == [
        (s, f"t{i}") for s in ("first_tenth", "same") for i in range(4)
    ]
    assert result.summary["same"]["mean_score"] == pytest.approx(1.0)
    assert result.summary["first_tenth"]["pass_rate"] == 0.0
    assert result.summary["same"]["compression_ratio"] == 0.0
    assert result.summary["first_tenth"]["compression_ratio"] > 0.8
    assert set(result.timing) == {"first_tenth", "same"}
    assert all(seconds >= 0 for seconds in result.timing.values())


def test_evaluators_of_ones_own_need_not_say_what_they_give():
    two = run([FirstTenth(), Same()])
    assert {row.scores["score"] for row in two.rows if row.system == "same"} == {1.0}
    assert [one.metric for one in two.comparisons] == ["score"]  # the score that is there
    both = run([Parrot(), Same()], evaluators=[Kept(), Right()])
    assert set(both.rows[0].scores) == {"score", "right"}


def test_what_is_recorded_of_the_run():
    assert run([Same()], metrics=[MeanScore()]).config == {
        "systems": ["same"],
        "evaluators": ["kept"],
        "metrics": ["mean_score"],
        "num_examples": 4,
        "max_workers": 1,
    }
    assert run([Same()], max_workers=4).config["max_workers"] == 4


def test_the_number_of_examples_can_be_limited_and_any_iterable_will_do():
    assert [row.example_id for row in run([Same()], max_examples=2).rows] == ["t0", "t1"]
    endless = ({"id": i, "context": "c"} for i in itertools.count())
    assert len(run([Same()], endless, max_examples=3).rows) == 3
    assert [row.example_id for row in run([Same()], [{"context": "a"}, {"id": "x", "context": "b"}]).rows][1] == "x"


def test_several_workers_change_neither_rows_nor_their_order():
    data = [{"id": i, "context": f"text {i}", "answer": str(i), "dataset": "mine"} for i in range(16)]
    alone, together = (run([Parrot()], data, [Right()], max_workers=workers) for workers in (None, 5))
    assert [(row.example_id, row.scores) for row in alone.rows] == [
        (row.example_id, row.scores) for row in together.rows
    ]
    assert {row.dataset for row in together.rows} == {"mine"}
    assert all(row.latency > 0 for row in alone.rows)


TALK = {
    "id": 1,
    "multi_turn": True,
    "turns": [{"role": "user", "content": text} for text in ("Hello", "High water?", "And low?")],
}


class Talks:
    name = "talks"

    def process(self, example):
        return {**example, "response": "not as a conversation"}

    def process_conversation(self, turns):
        return [{"role": "assistant", "content": f"Reply to {turn['content']}"} for turn in turns]


class Turns:
    name = "turns"

    def score(self, original, processed):
        return {
            "turns": float(len(processed.get("turn_responses", []))),
            "last": float(processed["response"] == "Reply to And low?"),
        }


def test_a_conversation_goes_to_systems_that_can_have_one():
    assert run([Talks()], [TALK], [Turns()]).rows[0].scores == {"turns": 3.0, "last": 1.0}
    assert run([Talks()], [{**TALK, "multi_turn": False}], [Turns()]).rows[0].scores == {"turns": 0.0, "last": 0.0}
    assert run([Parrot()], [{**TALK, "answer": "x"}], [Right()]).rows[0].scores == {"right": 1.0}


def test_a_system_that_only_talks_is_a_system():
    class OnlyTalks:
        name = "only_talks"
        process_conversation = Talks.process_conversation

    assert run([OnlyTalks()], [TALK], [Turns()]).rows[0].scores["last"] == 1.0


def test_usage_that_a_system_reports_is_in_the_rows_metadata():
    class Tells:
        name = "tells"

        def process(self, example):
            return {
                **example,
                "response": "x",
                "api_usage": {"prompt_tokens": 70, "completion_tokens": 8, "total_tokens": 78},
            }

    (row,) = run([Tells()], DATA[:1]).rows
    assert {name: row.metadata[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 70,
        "completion_tokens": 8,
        "total_tokens": 78,
    }


@pytest.mark.parametrize("workers", [None, 3])
def test_progress_is_shown_on_stderr_and_not_at_all_when_not_wanted(workers, capsys):
    assert len(evaluate([Same()], DATA, [Kept()], progress=True, max_workers=workers).rows) == 4
    shown = capsys.readouterr()
    assert (shown.out, "same" in shown.err) == ("", True)
    run([Same()], max_workers=workers)
    assert capsys.readouterr() == ("", "")


def test_results_can_be_cut_exported_and_made_by_hand():
    result = run([FirstTenth(), Same()], metrics=[MeanScore()])
    same = result.filter(system="same")
    assert (len(same.rows), set(same.summary)) == (4, {"same"})
    assert {"rows", "summary", "timing", "config"} <= set(json.loads(result.to_json()))
    row = EvalRow("s", 1, {"f1": 0.5}, 10, 5)
    assert (row.metadata, row.latency, row.dataset) == ({}, 0.0, "")
    told = json.loads(EvalResult([EvalRow("s", 1, {"f1": 0.5}, 10, 5, {"k": "v"}, 0.25, "d")], {}).to_json())["rows"][0]
    assert {
        "system": "s",
        "example_id": 1,
        "dataset": "d",
        "scores": {"f1": 0.5},
        "latency": 0.25,
        "metadata": {"k": "v"},
    }.items() <= told.items()
    assert (told["input_tokens"], told["output_tokens"]) == (10, 5)


def test_main_ends_with_the_documented_words_where_there_is_nothing_to_run(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    for command, said in (
        (["--proxy", "http://127.0.0.1:9", "--dataset", str(empty)], "No examples loaded"),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "nothing-like-it"], "^Unknown dataset"),
        (["--proxy", "http://127.0.0.1:9", "--dataset", "hotpotqa:dev"], "does not accept a :config suffix"),
        (["--dataset", "hotpotqa"], "--proxy"),
        (["--proxy", "http://127.0.0.1:9"], "--dataset"),
    ):
        with pytest.raises(SystemExit, match=said) as ended:
            main(command)
        assert ended.value.code == 2
