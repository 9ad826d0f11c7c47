"""`context-bench memory cortex-eval` and `cortex-compare` as their users know them, against a stand-in for the
product's program.
"""

import json
import sys
from pathlib import Path

import click
import pytest
import typer

from context_bench.memory.command.memory_checks import cortex_compare, cortex_eval
from context_bench.memory.cortex.containment import THIS_RUN

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))
RESULT = [
    "question_id",
    "question",
    "ground_truth",
    "retrieved",
    "exact_match",
    "f1_score",
    "recalled_at_k",
    "category",
]
SUMMARY = [
    "name",
    "total_questions",
    "exact_match_accuracy",
    "avg_f1",
    "recall_at_k",
    "k",
    "results",
    "mode",
    "category_breakdowns",
]

app = typer.Typer()
app.command("cortex-eval")(cortex_eval)
app.command("cortex-compare")(cortex_compare)

PROGRAM = r"""#!{python}
import json, os, sys
log, kept = {folder!r} + "/log", {folder!r} + "/kept.json"
args = sys.argv[1:]
with open(log, "a+") as file:
    file.write(json.dumps(args) + "\n")
    file.seek(0)
    number = file.read().count("\n")
if args[0] == "--config":
    args = args[2:]
items = json.load(open(kept)) if os.path.exists(kept) else []
if number in {fail!r}:
    sys.exit("call %d fails \x1b[31m" % number)
if args[0] == "reset":
    items = []
elif args[0] == "store":
    items.append(args[-1])
else:
    words = set(args[-1].lower().split())
    items.sort(key=lambda item: -len(words & set(item.lower().split())))
    limit = int(args[args.index("--limit") + 1]) if "--limit" in args else 100
    print(json.dumps([{{"memory": {{"content": item}}}} for item in items[:limit]]))
    sys.exit(0)
json.dump(items, open(kept, "w"))
"""


@pytest.fixture
def program(tmp_path):
    """Writes a program that keeps texts in a file and finds them by their words; calls by number (from 1) can fail."""

    def write(*fail):
        path = tmp_path / "cortex"
        path.write_text(PROGRAM.format(python=f"{sys.executable} -IS", folder=str(tmp_path), fail=fail))
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def run(capsys):
    def line(*args):
        try:
            code = typer.main.get_command(app).main([str(arg) for arg in args], standalone_mode=False)
        except click.UsageError as error:
            code = error.exit_code
        said = capsys.readouterr()
        return code, said.out, said.err

    return line


def logged(folder):
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def written(folder, name, value):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


# eval
# ------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["cli_validation"], ids=[case["id"] for case in VECTORS["cli_validation"]])
def test_recorded_refusals(case, run):
    code, out, err = run("cortex-eval", *case["args"])
    assert (code, out) == (case["exit"], "")
    assert err.startswith("cortex-eval: ")


@pytest.mark.parametrize("args", [["--k", "many"], ["--timeout", "soon"], ["--no-such-flag"], ["--output"]])
def test_a_command_line_that_cannot_be_parsed_is_2(run, args):
    assert run("cortex-eval", *args)[0] == 2


def test_all_three_with_json_on_one_side_and_everything_else_on_the_other(run, program, tmp_path):
    code, out, err = run("cortex-eval", "--binary", program(), "--config", "my config.yaml")
    assert code == 0
    summaries = json.loads(out)
    assert [(one["name"], one["total_questions"], one["mode"]) for one in summaries] == [
        ("LoCoMo", 10, "per-pair-reset"),
        ("LongMemEval", 10, "per-pair-reset"),
        ("DMR", 7, "per-pair-reset"),
    ]
    assert list(summaries[0]) == SUMMARY
    assert list(summaries[0]["results"][0]) == RESULT
    assert out.startswith('[\n  {\n    "name": "LoCoMo",\n    "total_questions": 10,')
    assert "| LoCoMo         | 10        |" in err
    assert "| knowledge-update |" in err
    assert "| 5-hop    | 1         |" in err
    assert "not the published DMR" in err
    calls = logged(tmp_path)
    assert all(call[:2] == ["--config", "my config.yaml"] for call in calls)
    assert sum(call[2] == "reset" for call in calls) == 27 + 2  # one before each question, one between two benchmarks
    assert sum(call[2] == "recall" for call in calls) == 27


def test_what_cannot_fail_is_not_left_uncommented(run, program):
    """Said before the first call, so a run that fails at once is enough."""
    _, _, err = run("cortex-eval", "--binary", program(1), "--benchmark", "locomo")
    assert "locomo: a store that gives 5 items back at random has recall@5 of 100 %" in err
    assert "WARNING: locomo: for 100 % of the questions no more than k=5 items are stored" in err
    _, _, err = run("cortex-eval", "--binary", program(2), "--benchmark", "locomo", "--k", "1", "--accumulate")
    assert "has recall@1 of 9.1 %" in err
    assert "no more than" not in err


def test_accumulate_stores_a_conversation_once_and_finds_less(run, program, tmp_path):
    code, out, _ = run(
        "cortex-eval", "--binary", program(), "--benchmark", "LoCoMo", "--accumulate", "--k", 1, "--k2", 3
    )
    assert code == 0
    (found,) = json.loads(out)
    assert found["mode"] == "accumulate"
    assert [call[0] for call in logged(tmp_path)] == ["reset", *["store"] * 11, *["recall"] * 10]
    assert 0 < found["recall_at_k"] < found["recall_at_k2"] < 1
    assert found["k2"] == 3


def test_the_file_has_no_last_newline_and_standard_output_stays_empty(run, program, tmp_path):
    path = tmp_path / "new" / "out.json"
    questions = written(tmp_path, "q.json", DMR)
    code, out, _ = run(
        "cortex-eval", "--binary", program(), "--benchmark", "dmr", "--dataset-path", questions, "--output", path
    )
    assert (code, out) == (0, "")
    text = path.read_text("utf-8")
    assert text.endswith("]")
    assert json.loads(text)[0]["name"] == "DMR"


def test_the_arguments_of_the_first_version(run, program, tmp_path):
    path = written(tmp_path, "q.json", DMR)
    code, _, _ = run(
        "cortex-eval", "--binary", program(), "--benchmark", "dmr", "--compat", "v0.10", "--dataset-path", path
    )
    assert code == 0
    recalls = [call for call in logged(tmp_path) if call[0] == "recall"]
    assert all(call[:-1] == ["recall", "--budget", "2500", "--context", "_", "--"] for call in recalls)


DMR = [
    {
        "id": "a|b",
        "turns": [{"speaker": "x", "content": "a heron"}],
        "question": "bird?",
        "answer": "heron",
        "hop_count": 6,
    },
    {"id": "\u001b[31mred", "turns": [{"speaker": "x", "content": "Mongoose"}], "question": "x?", "answer": "goose"},
]


def test_a_file_of_ones_own(run, program, tmp_path):
    code, out, err = run(
        "cortex-eval", "--binary", program(), "--benchmark", "dmr", "--dataset-path", written(tmp_path, "q.json", DMR)
    )
    assert code == 0
    assert json.loads(out)[0]["exact_match_accuracy"] == 1.0
    assert "DMR, other categories" in err
    assert "| 6-hop    | 1         |      100.0% |" in err
    assert "| unknown  | 1         |      100.0% |" in err
    assert "1 exact matches are inside a longer word" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.json", "[oops", "not JSON"),
        ("q.json", "", "is empty"),
        ("q.json", "{}", "none of the shapes"),
        ("q.json", '[{"sample_id": "c", "qa": [], "conversation": {}}]', "published LoCoMo"),
        ("q.json", '[{"question": "q", "answer": "a", "sessions": []}]', "shape of 'longmemeval'"),
    ],
)
def test_files_that_are_refused_before_anything_is_stored(run, program, tmp_path, name, text, said):
    path = written(tmp_path, name, text)
    code, out, err = run("cortex-eval", "--binary", program(), "--benchmark", "dmr", "--dataset-path", path)
    assert (code, out) == (1, "")
    assert said in err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("accumulate", [(), ("--accumulate",)])
def test_an_empty_set_has_no_questions_and_says_so(run, program, tmp_path, accumulate):
    path = written(tmp_path, "q.json", [])
    code, out, err = run(
        "cortex-eval", "--binary", program(), "--benchmark", "dmr", "--dataset-path", path, *accumulate
    )
    (summary,) = json.loads(out)
    assert (code, summary["total_questions"], summary["exact_match_accuracy"]) == (0, 0, 0.0)
    assert "has no questions" in err


def test_other_refusals(run, program, tmp_path):
    path = written(tmp_path, "q.json", DMR)
    assert "needs one --benchmark" in run("cortex-eval", "--dataset-path", path)[2]
    code, _, err = run("cortex-eval", "--benchmark", "dmr", "--dataset-path", tmp_path / "none.json")
    assert code == 1
    assert "cannot read" in err
    code, _, err = run("cortex-eval", "--binary", "/nonexistent/binary", "--benchmark", "dmr")
    assert code == 1
    assert "dmr: reset failed before chain-hop-1" in err
    code, _, err = run(
        "cortex-eval", "--binary", program(), "--benchmark", "dmr", "--dataset-path", path, "--output", tmp_path
    )
    assert code == 1
    assert "Is a directory" in err


def test_failed_recalls_are_said_twice_and_scored_as_empty(run, program, tmp_path):
    questions = written(tmp_path, "q.json", DMR)
    code, out, err = run(
        "cortex-eval", "--binary", program(3), "--benchmark", "dmr", "--dataset-path", questions
    )  # the first recall
    assert code == 0
    (found,) = json.loads(out)
    assert found["recall_failures"] == 1
    assert found["results"][0]["retrieved"] == ""
    assert "recall failed for a|b" in err
    assert "WARNING: dmr: 1 of 2 recall calls failed" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("fail", "said"), [((1,), "reset failed before chain-hop-1"), ((3,), "storing item 1 of chain-hop-1 failed")]
)
def test_an_aborted_benchmark_writes_no_result(run, program, tmp_path, fail, said):
    path = tmp_path / "out.json"
    code, out, err = run("cortex-eval", "--binary", program(*fail), "--benchmark", "dmr", "--output", path)
    assert (code, out) == (1, "")
    assert said in err
    assert not path.exists()


def test_a_failed_reset_between_two_benchmarks_aborts(run, program, tmp_path):
    code, out, err = run("cortex-eval", "--binary", program(50), "--k", 1)  # 10 resets, 29 stores, 10 recalls before it
    assert logged(tmp_path)[-1] == ["reset", "--yes"]
    assert len(logged(tmp_path)) == 50
    assert (code, out) == (1, "")
    assert "longmemeval: the reset before it failed" in err


def test_the_whole_run_has_a_time_limit(run, tmp_path):
    path = tmp_path / "slow"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    code, out, err = run("cortex-eval", "--binary", path, "--timeout", "0.3")
    assert (code, out) == (1, "")
    assert "the time allowed for the run was over" in err


# compare
# ------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["compare"], ids=[case["id"] for case in VECTORS["compare"]])
def test_recorded_comparisons(case, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    baseline, current = written(tmp_path, "b.json", case["baseline"]), written(tmp_path, "c.json", case["current_text"])
    code, out, err = run("cortex-compare", "--baseline", baseline, "--current", current, "--json", "comparison.json")
    assert code == case["exit"]
    if code:
        assert out == ""
        assert "not JSON" in err
        return
    assert out == case["markdown"]
    assert json.loads(Path("comparison.json").read_text("utf-8")) == case["comparison_json"]
    code, out, _ = run("cortex-compare", "--baseline", baseline, "--current", current, "--output", "table.md")
    assert (code, out) == (0, "")
    assert Path("table.md").read_bytes().decode() == case["markdown"]


BASELINE = {"systems": [{"name": "A", "locomo_em": 0.5}]}


def test_nothing_is_written_that_was_not_asked_for(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        written(tmp_path, "b.json", BASELINE),
        written(tmp_path, "c.json", {"name": "LOCOMO", "exact_match_accuracy": 0.25}),
    }
    code, out, err = run("cortex-compare", "--baseline", "b.json", "--current", "c.json", "--name", "mine")
    assert code == 0
    assert "| mine                           | 25.0%     | —              | —      |" in out
    assert "### Sources" not in out
    assert THIS_RUN not in out
    assert "1 of 1 baselines do not say how they were measured" in err
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    "current", ["", "  \n", "{", "3", '"x"', "[3]", "{}", '[{"name": "LoCoMo", "exact_match_accuracy": "x"}]']
)
def test_runs_that_cannot_be_read(run, tmp_path, current):
    baseline = written(tmp_path, "b.json", BASELINE)
    code, out, err = run("cortex-compare", "--baseline", baseline, "--current", written(tmp_path, "c.json", current))
    assert (code, out) == (1, "")
    assert err.startswith("cortex-compare: ")


def test_both_files_are_required_and_nothing_else(run, tmp_path):
    baseline, current = written(tmp_path, "b.json", BASELINE), written(tmp_path, "c.json", [])
    assert run("cortex-compare", "--baseline", baseline)[0] == 2
    assert run("cortex-compare", "--current", current)[0] == 2
    assert run("cortex-compare", "--baseline", baseline, "--current", tmp_path / "none.json")[0] == 1
    assert run("cortex-compare", "--baseline", baseline, "--current", current, "more")[0] == 1


def test_rows_of_different_protocols_are_refused(run, tmp_path):
    baseline = written(
        tmp_path, "b.json", {"systems": [{"name": "A", "protocol": "judge"}, {"name": "B", "protocol": "substring"}]}
    )
    code, out, err = run("cortex-compare", "--baseline", baseline, "--current", written(tmp_path, "c.json", []))
    assert (code, out) == (1, "")
    assert "different protocols" in err


def test_what_eval_writes_compare_reads(run, program, tmp_path):
    questions = written(tmp_path, "q.json", DMR)
    ran = run(
        "cortex-eval",
        "--binary",
        program(),
        "--benchmark",
        "dmr",
        "--dataset-path",
        questions,
        "--output",
        tmp_path / "run.json",
    )
    assert ran[0] == 0
    _, out, _ = run(
        "cortex-compare", "--baseline", written(tmp_path, "b.json", BASELINE), "--current", tmp_path / "run.json"
    )
    cells = [cell.strip() for cell in out.splitlines()[-1].split("|")[1:-1]]
    assert cells == [THIS_RUN, "—", "—", "100.0%"]


def test_blank_turns_are_left_out_and_counted(program, tmp_path, capsys):
    sessions = [[{"role": "user", "content": "The key is in box 7."}, {"role": "assistant", "content": ""}]]
    asked = [
        {"question": "Where is the key?", "answer": "box 7", "question_type": kind, "sessions": sessions}
        for kind in ("multihop", "Temporal-Reasoning")
    ]
    path = tmp_path / "asked.json"
    path.write_text(json.dumps(asked))
    line = [
        "cortex-eval",
        "--binary",
        program(),
        "--benchmark",
        "longmemeval",
        "--dataset-path",
        str(path),
        "--output",
        str(tmp_path / "out.json"),
    ]
    with pytest.raises(SystemExit) as ended:
        app(line)
    assert not ended.value.code
    assert "2 turns that say nothing left out, first in entry 0" in capsys.readouterr().err
    (summary,) = json.loads((tmp_path / "out.json").read_text())
    assert [one["category"] for one in summary["results"]] == ["multi-hop", "temporal-reasoning"]
