"""Between repetitions: what ingest and search, the reader and the judge each add."""

import json
import math
import statistics

import pytest

from context_bench.cli.app import run_line
from context_bench.core.records import EvalRow, SetupRecord
from context_bench.memory.figures import dirt_note, setup_figures
from context_bench.metrics import MemoryCost, MemorySpread


def row(question: int, trial: int, f1: float, *, hits: str = "h", answer: str = "a", found: float = 1.0) -> EvalRow:
    told = {"hits_key": hits, "answer_key": answer}
    return EvalRow("m", question, {"f1": f1, "evidence_recall": found}, metadata=told, trial=trial, dataset="d")


def test_nothing_is_said_of_a_single_run() -> None:
    assert MemorySpread().compute([row(1, 0, 1.0), row(2, 0, 0.0)]) == {}
    assert MemorySpread().compute([]) == {}


def test_equal_repetitions_do_not_spread() -> None:
    found = MemorySpread().compute([row(question, trial, question % 2) for question in range(4) for trial in range(3)])
    assert found == {
        **{"spread_trials": 3, "spread_found": 0, "spread_score": 0, "spread_same_hits": 0, "spread_same_answer": 0},
        **{"same_hits": 1, "same_answers": 1},
    }


def test_each_stage_has_its_own() -> None:
    rows = [
        *(
            row(1, trial, 0.5, hits=f"h{trial}", answer=f"a{trial}", found=found)
            for trial, found in enumerate((0.0, 1.0))
        ),  # search
        *(row(2, trial, f1, answer=f"a{trial}") for trial, f1 in enumerate((0.0, 1.0))),  # the reader
        *(row(3, trial, f1) for trial, f1 in enumerate((1.0, 0.6))),  # the judge
        *(row(4, trial, 1.0) for trial in range(2)),
    ]
    found = MemorySpread().compute(rows)
    assert found["spread_found"] == pytest.approx(statistics.stdev([3 / 4, 4 / 4]))
    assert found["spread_score"] == pytest.approx(statistics.stdev([2.5 / 4, 3.1 / 4]))
    assert found["spread_same_hits"] == pytest.approx(math.sqrt((0.5 + 0.08) / 3 / 4))  # questions 2, 3 and 4
    assert found["spread_same_answer"] == pytest.approx(math.sqrt(0.08 / 2 / 4))  # questions 3 and 4
    assert (found["same_hits"], found["same_answers"]) == (0.75, 0.5)


def test_what_failed_in_a_trial_is_left_out_of_the_means() -> None:
    rows = [
        row(1, 0, 1.0),
        row(1, 1, 0.0),
        row(2, 0, 1.0),
        EvalRow("m", 2, {}, trial=1, dataset="d", errors={"system": "X: y"}),
    ]
    assert MemorySpread().compute(rows)["spread_score"] == pytest.approx(statistics.stdev([1.0, 0.0]))


def test_score_for_tokens_and_what_the_harness_takes() -> None:
    def one(n: int, **scores: float) -> EvalRow:
        return EvalRow("m", n, scores, group="g", dataset="d")

    rows = [
        one(1, f1=1.0, retrieved_tokens=100, overhead_seconds=0.1),
        one(2, f1=0.5, retrieved_tokens=200, overhead_seconds=0.3),
        one(3, retrieved_tokens=700, overhead_seconds=0.2),
    ]
    found = MemoryCost("f1", 0.7).compute(rows)
    assert found["score_per_1k_tokens"] == pytest.approx(1000 * 1.5 / 300)
    assert (found["overhead_p50"], found["overhead_p99"], found["overhead_n"]) == (0.2, pytest.approx(0.298), 3)
    assert "score_per_1k_tokens" not in MemoryCost("f1", 0.7).compute([one(1, f1=1.0, retrieved_tokens=0)])


def test_ingest_as_speed_and_percentiles() -> None:
    told = {"items": 100, "parts": 100, "failed": 0, "seconds_add": 3.0, "seconds_flush": 1.0, "seconds_first": 2.0}
    each = {"n": 9, "p50": 0.1, "p95": 0.2, "p99": 0.3}
    found = setup_figures([SetupRecord("m", "g", 0, 1, 1, 4.0, {**told, "seconds_each": each})])
    assert (found["ingest_items_per_second"], found["ingest_first"]) == (25, 2.0)
    assert (found["ingest_p50"], found["ingest_p95"], found["ingest_p99"]) == (0.1, 0.2, 0.3)


def test_what_was_mended_in_the_data_is_a_sentence() -> None:
    assert dirt_note({"name": "locomo", "dirt": {"dates missing": 1_200, "answers that are numbers": 6}}) == (
        "locomo: as it was read, 1,200 dates missing; 6 answers that are numbers."
    )
    assert dirt_note({"name": "x", "dirt": {}}) is None
    assert dirt_note({"name": "x"}) is None


def test_repetitions_dirt_and_figures_of_set_ups_are_in_the_report(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    turns = [{"speaker": "Ann", "dia_id": f"D1:{i}", "text": f"fact number {i} is blue"} for i in range(1, 9)]
    asked = [
        {"question": f"what is fact number {i}?", "answer": i, "evidence": [f"D1:{i}", "D9:9"], "category": 4}
        for i in (1, 2, 3)
    ]
    talk = {
        "sample_id": "c",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
        "qa": asked,
    }
    (tmp_path / "talks.json").write_text(json.dumps([talk]), "utf-8")
    line = [
        "memory",
        "--system",
        "bm25",
        "--dataset",
        "./talks.json",
        "--reader",
        "none",
        "--no-floors",
        "--k",
        "2",
        "--quiet",
    ]
    assert run_line([*line, "--trials", "2", "--run", "r", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("./talks.json: as it was read" in note and "3 " in note for note in found["notes"])
    numbers = found["summary"]["bm25"]
    assert (numbers["spread_trials"], numbers["spread_found"], numbers["same_hits"]) == (2, 0, 1)
    assert {
        "bytes_per_item",
        "write_loss",
        "ingest_items_per_second",
        "overhead_p50",
        "score_per_1k_tokens",
    } <= numbers.keys()
    assert run_line(["show", "r", "--full"]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("Between repetitions", "bytes/item", "harness p50", "as it was read"))
