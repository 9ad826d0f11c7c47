"""`context-bench trace` as a user calls it, and what the seed's document promises of its files."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from pathlib import Path

import pytest

from context_bench.cli.app import run_line

_spec = importlib.util.spec_from_file_location(
    "trace_fixtures", Path(__file__).parents[1] / "unit" / "traces" / "trace_fixtures.py"
)
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)
#: The seed's columns, in its order.
_HEAD = """
task_id attempt benchmark benchmark_version repo repo_label language agent model_version condition status runtime_sec input_tokens
output_tokens cache_read_input_tokens cache_creation_input_tokens total_input_processed_tokens total_processed_tokens estimated_cost
tool_calls shell_commands file_reads search_actions files_edited patch_size first_file_opened first_file_edited first_test_command
bitloops_context_tokens
contextbench_final_file_coverage contextbench_final_file_precision contextbench_final_symbol_coverage
contextbench_final_symbol_precision contextbench_final_span_coverage contextbench_final_span_precision
contextbench_final_line_coverage contextbench_final_line_precision
contextbench_traj_auc_file contextbench_traj_auc_symbol contextbench_traj_auc_span contextbench_traj_auc_line
contextbench_traj_redundancy_file contextbench_traj_redundancy_symbol contextbench_traj_redundancy_span
contextbench_traj_redundancy_line contextbench_editloc_recall contextbench_editloc_precision evaluator_result
"""  # noqa: E501
COLUMNS = _HEAD.split()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixtures.repository(tmp_path)
    fixtures.gold_file(tmp_path)
    fixtures.session(tmp_path / "logs", "claude_stream_json")
    fixtures.session(tmp_path / "logs", "mini_v2")
    return tmp_path


LINE = ("trace", "score", "--gold", "gold.jsonl", "--repo", "repo.json")
CLAUDE, MINI = ("--trace", "claude=logs/claude_stream_json"), ("--trace", "mini=logs/mini_v2")


def said(capsys, *words, code=0):
    assert run_line([*map(str, words)]) == code
    return capsys.readouterr()


def test_every_output_says_the_same(place, capsys):
    table = said(capsys, *LINE, *CLAUDE).out
    assert re.search(r"^line +0\.727 +1\.000$", table, re.M)
    assert all(len(line) <= 80 for line in table.splitlines())
    summary = json.loads(said(capsys, *LINE, *CLAUDE, "--output", "json").out)
    assert summary["metrics"]["coverage.line"] == pytest.approx(8 / 11)
    assert (summary["policy"], summary["profile"]) == ("strict", "definitions")
    assert "tree-sitter-python" in summary["grammars"]
    row = json.loads(said(capsys, *LINE, *CLAUDE, "--output", "jsonl").out)
    assert row["score"]["final"]["line"]["coverage"] == pytest.approx(8 / 11)
    [cells] = csv.DictReader(io.StringIO(said(capsys, *LINE, *CLAUDE, "--output", "csv").out))
    assert float(cells["contextbench_final_line_coverage"]) == pytest.approx(8 / 11)
    assert "| line | 0.727 | 1.000 |" in said(capsys, *LINE, *CLAUDE, "--output", "markdown").out
    assert "0.727" in said(capsys, *LINE, *CLAUDE, "--output", "html").out


def test_the_appendix_is_the_seeds(place, capsys):
    (place / "solved.jsonl").write_text('{"instance_id": "demo__demo-1", "resolved": true}\n')
    told = said(capsys, *LINE, *CLAUDE, *MINI, "--results", "claude=solved.jsonl", "--out-dir", "out", "--quiet")
    assert "rows and reports are in out" in told.err
    with (place / "out" / "appendix_minimal_per_task_log.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS
        claude, mini = reader
    assert (claude["condition"], claude["status"], mini["status"]) == ("claude", "resolved", "unknown")
    assert (claude["input_tokens"], claude["cache_read_input_tokens"], claude["total_input_processed_tokens"]) == (
        "600",
        "400",
        "1000",
    )
    assert (claude["first_file_opened"], claude["repo_label"], claude["first_test_command"]) == (
        "src/calc.py",
        "demo",
        "",
    )
    result = json.loads(claude["evaluator_result"])
    curve = [step["coverage"]["line"] for step in result["trajectory"]["steps"]]
    assert float(claude["contextbench_traj_auc_line"]) == pytest.approx(sum(curve) / len(curve))
    assert curve[-1] == float(claude["contextbench_final_line_coverage"])
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert summary["metrics"]["claude/solve_rate"] == 1.0
    assert "mini/solve_rate" not in summary["metrics"]
    assert {"rows.jsonl", "summary.json", "summary.md", "report.html"} <= {
        file.name for file in (place / "out").iterdir()
    }
    assert "2 rows were there already, 0 were scored now" in said(capsys, *LINE, *CLAUDE, *MINI, "--out-dir", "out").err


def test_edits_are_located_as_the_seed_says(place, capsys):
    patch = "--- a/src/calc.py\n+++ b/src/calc.py\n@@ -8,2 +8,1 @@\n-a\n-b\n+c\n@@ -30,1 +29,0 @@\n-x\n"
    adding = "--- a/src/calc.py\n+++ b/src/calc.py\n@@ -8,0 +9,1 @@\n+c\n"
    rows = [
        {
            "instance_id": "demo__demo-1",
            "model_patch": text,
            "traj_data": {"pred_files": ["src/calc.py"], "pred_spans": {}},
        }
        for text in (patch, adding, "")
    ]
    (place / "pred.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells = list(csv.DictReader(io.StringIO(said(capsys, *LINE, "--trace", "pred.jsonl", "--output", "csv").out)))
    assert [row["attempt"] for row in cells] == ["1", "2", "3"]
    assert [float(row["contextbench_editloc_recall"] or "nan") for row in cells[:2]] == [pytest.approx(2 / 3), 0.0]
    assert cells[0]["contextbench_editloc_recall"] == cells[0]["contextbench_editloc_precision"]
    assert cells[2]["contextbench_editloc_precision"] == "", "no patch, no figure"
    assert json.loads(cells[1]["evaluator_result"])["editloc"]["insert_anchor_hits"] == 1, "ours stands beside"


def test_gates(place, capsys):
    assert (
        "coverage.line is 0.727273, below 0.9" in said(capsys, *LINE, *CLAUDE, "--min-coverage", "line=0.9", code=4).err
    )
    said(capsys, *LINE, *CLAUDE, "--min-coverage", "line=0.5", "--min-coverage", "file=1")
    assert "span was not measured" in said(capsys, *LINE[:4], *CLAUDE, "--min-coverage", "span=0.1", code=4).err
    said(capsys, *LINE, *CLAUDE, *MINI, "--report", "s.json", "--report", "s.md")
    said(capsys, "gate", "s.json", "--min", "claude/coverage.line=0.7", "--max", "mini/redundancy.line=0.5")
    said(capsys, "gate", "s.json", "--min", "mini/coverage.line=0.9", code=4)
    assert "Unknown level 'lines'" in said(capsys, *LINE, *CLAUDE, "--min-coverage", "lines=0.5", code=2).err


def test_what_is_in_no_figure_is_said(place, capsys):
    fixtures.gold_file(place, fixtures.GOLD, {**fixtures.GOLD, "inst_id": "demo__demo-2"}, {"inst_id": "none"})
    fixtures.session(place / "logs", "codex_exec_json", "nobody__knows-3")
    (place / "logs" / "notes.json").write_text("[1]")
    out = " ".join(said(capsys, *LINE, "--trace", "logs", "--trace", "twin=logs/mini_v2").out.split())
    for words in (
        "1 row of the gold could not be used: gold is empty",
        "1 task of the gold without a trace, in no figure: demo__demo-2",
        "1 trace about no task of the gold: nobody__knows-3/events",
        "not a trace: logs/notes.json",
        "one artefact was handed in 2 times: traces/demo__demo-1 (2), twin/demo__demo-1",
    ):
        assert words in out, words
    bare = " ".join(said(capsys, *LINE[:4], *CLAUDE).out.split())
    assert "1 row scored without a repository (no bytes, no symbols): no repository was given" in bare


def test_solve_rate_and_who_read_it_and_failed(place, capsys):
    tasks = [f"demo__demo-{n}" for n in (1, 2)]
    fixtures.gold_file(place, *({**fixtures.GOLD, "inst_id": name} for name in tasks))
    (place / "report.json").write_text(
        json.dumps(
            {
                "total_instances": 2,
                "submitted_instances": 2,
                "completed_ids": tasks,
                "resolved_ids": tasks[1:],
                "unresolved_ids": tasks[:1],
            }
            | {"submitted_ids": tasks, "empty_patch_ids": [], "error_ids": [], "incomplete_ids": []}
        )
    )
    told = said(capsys, *LINE, *CLAUDE, "--results", "report.json", "--output", "json").out
    found = json.loads(told)["sets"]["claude"]["solving"]
    assert (found["n"], found["rate"]["value"], found["read_failed"]) == (2, 0.5, ["demo__demo-1"])
    assert "read it, failed: demo__demo-1" in " ".join(
        said(capsys, *LINE, *CLAUDE, "--results", "report.json").out.split()
    )


def test_predictions_bring_the_patch_and_the_report_the_verdict(place, capsys):
    """A Claude Code log holds no patch; what was handed in says where it edited."""
    patch = "--- a/src/calc.py\n+++ b/src/calc.py\n@@ -8,2 +8,1 @@\n-a\n-b\n+c\n@@ -30,1 +29,0 @@\n-x\n"
    row = {"instance_id": "demo__demo-1", "model_name_or_path": "m", "model_patch": patch}
    (place / "preds.jsonl").write_text(json.dumps(row) + "\n")
    (place / "solved.jsonl").write_text('{"instance_id": "demo__demo-1", "resolved": true}\n')
    words = [
        *LINE,
        *CLAUDE,
        *MINI,
        "--results",
        "claude=preds.jsonl",
        "--results",
        "claude=solved.jsonl",
        "--out-dir",
        "out",
    ]
    claude, mini = csv.DictReader(io.StringIO(said(capsys, *words, "--output", "csv").out))
    assert (float(claude["contextbench_editloc_precision"]), claude["status"]) == (pytest.approx(2 / 3), "resolved")
    assert (float(mini["contextbench_editloc_precision"]), mini["status"]) == (1.0, "unknown"), (
        "its own patch, and no report"
    )
    solving = json.loads((place / "out" / "summary.json").read_text())["sets"]["claude"]["solving"]
    assert (solving["n"], solving["rate"]["value"]) == (1, 1.0)
    (place / "preds.jsonl").write_text(json.dumps({**row, "model_patch": patch.replace("-30,1", "-9,1")}) + "\n")
    again = said(capsys, *words, "--output", "csv")
    assert "rows were there already" not in again.err, "a new patch is a new row"
    assert next(csv.DictReader(io.StringIO(again.out)))["contextbench_editloc_precision"] == "1.0"


def test_compare(place, capsys):
    said(capsys, *LINE, *CLAUDE, *MINI, "--out-dir", "both")
    (place / "mini.jsonl").write_text(said(capsys, *LINE, *MINI, "--output", "jsonl").out)
    table = said(capsys, "trace", "compare", "both:claude", "mini.jsonl").out
    assert "mini against claude, 1 shared instance" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    found = json.loads(said(capsys, "trace", "compare", "both:claude", "both:mini", "--output", "json").out)
    assert found["figures"]["coverage.line"]["difference"] == 0.0
    assert (
        "several sets of runs in one file: name one as FILE:SET"
        in said(capsys, "trace", "compare", "both", "mini.jsonl", code=3).err
    )
    assert (
        "both has no set 'nobody'; it has claude and mini"
        in said(capsys, "trace", "compare", "both:nobody", "mini.jsonl", code=2).err
    )
    assert "expected rows that" in said(capsys, "trace", "compare", "gone", "mini.jsonl", code=2).err
    assert (
        "line 1: not a row of a scored trace"
        in said(capsys, "trace", "compare", "gold.jsonl", "mini.jsonl", code=2).err
    )
    row = '{"run": "a", "instance_id": "b", '
    for odd in ("[1]", "[]", "1", "null", '"x"', row + '"score": []}', row + '"score": {"trajectory": []}}'):
        (place / "odd.jsonl").write_text(odd + "\n")
        told = said(capsys, "trace", "compare", "odd.jsonl", "mini.jsonl", code=2).err
        assert "line 1: not a row of a scored trace" in told, odd


def test_converted_traces_score_the_same(place, capsys):
    want = json.loads(said(capsys, *LINE, *MINI, "--output", "json").out)["metrics"]
    for to in ("events", "contextbench"):
        made = f"{to}.jsonl"
        said(
            capsys,
            "trace",
            "convert",
            "logs/mini_v2",
            "--to",
            to,
            "-o",
            made,
            "--repo",
            "repo.json",
            "--gold",
            "gold.jsonl",
        )
        got = json.loads(said(capsys, *LINE, "--trace", made, "--output", "json").out)["metrics"]
        for name in ("coverage.line", "precision.line", "coverage.symbol", "redundancy.file"):
            assert got[name] == pytest.approx(want[name]), (to, name)
    assert "expected events or contextbench" in said(capsys, "trace", "convert", "logs", "--to", "x", code=2).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trace", "gone.jsonl"), "gone.jsonl: no such trace"),
        (("--trace", "gold.jsonl"), "not a trace that can be read"),
        ((*CLAUDE, "--repo", "gone.git"), "gone.git: no such repository"),
        ((*CLAUDE, "--output", "pdf"), "--output is 'pdf', expected one of table"),
        ((*CLAUDE, "--report", "x.pdf"), "the ending '.pdf' names no report"),
        ((*CLAUDE, "--policy", "mild"), "Unknown policy 'mild'"),
        ((*CLAUDE, "--count", "all"), "Unknown thing to count 'all'"),
        ((*CLAUDE, "--instance", "other"), "the gold knows no such task"),
        ((*CLAUDE, "--results", "mini=gold.jsonl"), "no report on patches"),
        ((*CLAUDE, "--by", "day"), "expected call or turn"),
        ((*CLAUDE, "--threshold", "3"), "expected a coverage from 0 to 1"),
        ((*CLAUDE, "--min-coverage", "line"), "'line' is not a limit"),
        (
            (*CLAUDE, "--repo", "logs/mini_v2/demo__demo-1/../../../taken"),
            "taken is neither a zip, a tar nor a JSON snapshot",
        ),
        ((*CLAUDE, "--out-dir", "taken"), "--out-dir taken is a file; expected a folder"),
        ((*CLAUDE, "--report", "taken/x.json"), "--report taken/x.json cannot be written: "),
        ((*CLAUDE, "--report", "f.json"), "--report f.json is a folder"),
        ((*CLAUDE, "--out-dir", "/proc/nobody/x"), "/proc/nobody"),
    ],
)
def test_bad_input_is_told_before_anything_is_made(place, capsys, words, told):
    (place / "taken").write_bytes(b"\x00 no repository")
    (place / "f.json").mkdir()
    found = said(capsys, *LINE, *words, code=2)
    assert told in " ".join(found.err.split())
    assert "Traceback" not in found.err
    assert found.out == ""


def test_nothing_scored_is_no_success(place, capsys):
    log = next((place / "logs" / "claude_stream_json").rglob("*.jsonl")).rename(place / "session.jsonl")
    found = said(capsys, *LINE, "--trace", log, code=1)
    assert "no run could be scored: no_gold (1×): no task of the gold is called" in found.err
    assert "--instance ID says which task it is" in found.err
    assert "1 run, none scored against a gold (1 with calls): see the notes." in found.out
    both = said(capsys, *LINE, *MINI, "--trace", f"claude={log}", code=1)
    assert "of the set 'claude' no run could be scored" in both.err
    said(capsys, *LINE, "--trace", log, "--instance", "demo__demo-1")


def test_gold_that_the_repository_does_not_have_is_said_above(place, capsys):
    fixtures.gold_file(
        place,
        {**fixtures.GOLD, "init_ctx": [{"file": "src/calc.py", "start_line": 900, "end_line": 950}], "add_ctx": []},
    )
    out = " ".join(said(capsys, *LINE, *CLAUDE).out.split())
    assert "the lines of the gold are in none of the repositories" in out


def test_a_place_that_cannot_be_written_is_no_traceback(place, capsys):
    found = said(capsys, "trace", "convert", "logs/mini_v2", "-o", "/proc/nobody/x.jsonl", code=2)
    assert "/proc/nobody" in found.err
    assert "Traceback" not in found.err


def test_hostile_names_stay_text(place, capsys):
    name = "=cmd|' /C calc'!A0\x1b[2J<script>alert(1)</script>"
    fixtures.gold_file(place, {**fixtures.GOLD, "inst_id": name})
    words = (*LINE, *CLAUDE, "--instance", name)
    assert "\x1b" not in said(capsys, *words).out
    assert said(capsys, *words, "--output", "csv").out.splitlines()[1].startswith("'=cmd|")
    assert "<script>alert" not in said(capsys, *words, "--output", "html").out
    assert "<script>alert" not in said(capsys, *words, "--output", "markdown").out


def test_stored_sets_have_the_title_and_tags_they_were_given(place, capsys):
    named = ["--title", "Before the upgrade", "--tag", "team a,v2", "--quiet"]
    said(capsys, *LINE, *CLAUDE, *MINI, "--out-dir", "out", *named)
    runs = json.loads(said(capsys, "runs", "--json", "--store", "out/store.db").out)
    assert {run["name"] for run in runs} == {"claude", "mini"}
    assert {(run["title"], *run["tags"]) for run in runs} == {("Before the upgrade", "team a", "v2")}
    assert "say where with --out-dir" in said(capsys, *LINE, *CLAUDE, *named, code=2).err
