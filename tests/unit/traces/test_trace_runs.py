"""A scoring of recorded runs is a run of the engine: stored, shown, gated, compared, taken up."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from context_bench.cli.app import run_line
from context_bench.engine import list_runs, open_store
from context_bench.metrics import MeanScore
from context_bench.runner import collect
from context_bench.traces import recorded_runs, score_traces
from context_bench.traces.recorded_runs import ReadAhead, transcripts_of
from context_bench.transcripts.traces import transcripts_in

_spec = importlib.util.spec_from_file_location("trace_fixtures", Path(__file__).with_name("trace_fixtures.py"))
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)
TASK = "demo__demo-1"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixtures.repository(tmp_path)
    fixtures.gold_file(tmp_path)
    fixtures.session(tmp_path / "logs", "claude_stream_json")
    fixtures.session(tmp_path / "logs", "mini_v2")
    return tmp_path


def scored(place, traces=None, **more):
    sets = traces or {
        name: place / "logs" / form for name, form in (("claude", "claude_stream_json"), ("mini", "mini_v2"))
    }
    return score_traces(place / "gold.jsonl", sets, place / "repo.json", out=place / "out", **more)


def stored(place, run):
    with closing(open_store(place / "out" / "store.db")) as store:
        result = collect(store, run, [MeanScore(score_field="coverage.line")])
        result.rows = list(result.rows)
        return result


def predictions(place, count):
    """One log of many recorded runs of one task."""
    spans = {"src/calc.py": [{"type": "line", "start": 8, "end": 12}]}
    row = {"instance_id": TASK, "model_patch": "", "traj_data": {"pred_files": ["src/calc.py"], "pred_spans": spans}}
    (place / "pred.jsonl").write_text("".join(json.dumps(row) + "\n" for _ in range(count)))
    return {"predicted": place / "pred.jsonl"}


def test_each_set_is_a_run_with_figures_as_scores(place):
    scored(place)
    with closing(open_store(place / "out" / "store.db")) as store:
        assert {(run.name, run.status) for run in list_runs(store)} == {("claude", "done"), ("mini", "done")}
    result = stored(place, "claude")
    [row] = result.rows
    assert (row.system, row.example_id, row.dataset, row.cluster) == ("claude", TASK, "gold", "demo/demo")
    assert row.errors == {}
    assert row.scores["coverage.line"] == pytest.approx(8 / 11)
    assert row.scores["precision.line"] == 1.0
    assert row.scores["redundancy.file"] == pytest.approx(1 / 3)
    assert "editloc.precision" not in row.scores, "there is no patch, so it is not known"
    assert row.usage["input_tokens"] == 1000, "what the run took stands in the ledger"
    assert result.manifest["traces"]["policy"] == "strict"
    assert result.families["traces"]["gold"]["instances"] == 1


def test_the_verdict_of_the_harness_is_a_score_and_judged_anew(place):
    scored(place, status=lambda run, gold: "resolved" if run == "claude" else "unknown")
    assert stored(place, "claude").rows[0].scores["resolved"] == 1.0
    assert "resolved" not in stored(place, "mini").rows[0].scores
    again = scored(place, status=lambda run, gold: "unresolved")
    assert (again.made, again.reused) == (0, 2), "other verdicts make no log be read again"
    assert stored(place, "claude").rows[0].scores["resolved"] == 0.0
    assert {row.status for row in again.rows()} == {"unresolved"}


def test_the_commands_on_runs_know_it(place, capsys):
    scored(place, status=lambda run, gold: "resolved" if run == "claude" else "unknown")
    for words, code, told in (
        (("runs",), 0, "claude"),
        (("show", "claude", "--full"), 0, "What had been read in the end"),
        (("compare", "claude", "mini"), 0, "coverage.line"),
        (("gate", "claude", "--min", "coverage.line=0.5"), 0, "gate passed"),
        (("gate", "mini", "--min", "coverage.line=0.9"), 4, "below 0.9"),
    ):
        assert run_line([*words, "--store", "out/store.db"]) == code, words
        said = capsys.readouterr()
        assert told in said.out + said.err, words


def test_runs_by_other_rules_are_not_compared(place, capsys):
    scored(place, {"claude": place / "logs" / "claude_stream_json"})
    scored(place, {"mini": place / "logs" / "mini_v2"}, by="turn")
    assert run_line(["compare", "claude", "mini", "--store", "out/store.db"]) == 3
    assert "evaluator coverage changed" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_many_runs_of_one_log_are_told_apart(place, workers):
    sets = {**predictions(place, 7), "claude": place / "logs" / "claude_stream_json"}
    found = scored(place, sets, workers=workers)
    assert [(row.run, row.attempt) for row in found.rows()] == [("predicted", n) for n in range(1, 8)] + [("claude", 1)]
    assert [row.example_id for row in stored(place, "predicted").rows] == [
        TASK,
        *(f"{TASK} ({n})" for n in range(2, 8)),
    ]


def test_what_does_not_fit_into_the_memory_of_read_logs_is_read_again(place, monkeypatch):
    want = [row.to_json() for row in scored(place, predictions(place, 5)).rows()]
    monkeypatch.setattr(recorded_runs, "_READ_AHEAD", 0)
    assert [row.to_json() for row in scored(place, predictions(place, 5), fresh=True).rows()] == want


def test_the_oldest_transcripts_make_room(place, monkeypatch):
    ahead = ReadAhead()
    monkeypatch.setattr(recorded_runs, "_READ_AHEAD", 200)
    for number in range(3):
        ahead.keep(("log", number), b"x" * 100)
    assert [ahead.take(("log", number)) is None for number in range(3)] == [True, False, False]
    assert ahead.take(("log", 2)) is None, "each is given once"


def test_logs_that_are_known_are_not_read_again(place, monkeypatch):
    (place / "logs" / "notes.json").write_text("[1]")
    sets = {"all": place / "logs"}
    first = scored(place, sets)
    read = []
    monkeypatch.setattr(recorded_runs, "transcripts_in", lambda path: read.append(path.name) or transcripts_in(path))
    again = scored(place, sets)
    assert (again.made, again.reused, again.unread) == (0, 2, first.unread)
    assert read == ["notes.json"], "its reason is found out anew"


def test_a_run_that_cannot_be_scored_is_told_and_tried_again(place, monkeypatch):
    def broken(self, *work):
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patched:
        patched.setattr(recorded_runs.TraceScorer, "answer", broken)
        found = scored(place, {"mini": place / "logs" / "mini_v2"})
        assert list(found.rows()) == []
        assert list(found.unread.values()) == ["RuntimeError: no such luck"]
    assert [row.instance_id for row in scored(place, {"mini": place / "logs" / "mini_v2"}).rows()] == [TASK]


def test_logs_are_read_where_they_are_scored(place):
    """The process that keeps the books counts no tokens, so that it loads no vocabulary, nor any page of a report."""
    lines = [
        "import sys",
        "from pathlib import Path",
        "from context_bench.core import tokens",
        "from context_bench.traces import score_traces",
        "if __name__ == '__main__':",
        "    found = score_traces('gold.jsonl', Path('logs'), 'repo.json', out='out', workers=2)",
        "    pages = [name for name in sys.modules if name.startswith('context_bench.reports')]",
        "    print(len(list(found.rows())), tokens._loaded.cache_info().misses, pages)",
    ]
    (place / "scoring.py").write_text("\n".join(lines))
    done = subprocess.run([sys.executable, "scoring.py"], cwd=place, capture_output=True, text=True, timeout=120)
    assert done.stdout == "2 0 []\n", done.stderr


def test_a_log_of_many_long_runs_is_packed_as_far_as_there_is_room(place, monkeypatch):
    path = str(predictions(place, 5)["predicted"])
    assert [packed is None for _, packed in transcripts_of(path)] == [False] * 5
    monkeypatch.setattr(recorded_runs, "_READ_AHEAD", 1)
    assert [packed is None for _, packed in transcripts_of(path)] == [False, True, True, True, True]
