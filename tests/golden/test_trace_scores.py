"""One recorded session in every format of an agent's log: what `trace` finds in it, in rows and in every report."""

import json
import lzma
from contextlib import chdir
from pathlib import Path

import pytest

from context_bench.__main__ import main

HERE = Path(__file__).parent
VECTORS = json.loads((HERE.parent / "vectors" / "traces.json").read_text("utf-8"))
FORMATS = VECTORS["same_session"]["formats"]
TASK = "demo__demo-1"
GOLD = {
    "inst_id": TASK,
    "repo": "demo/demo",
    "language": "python",
    "init_ctx": [{"file": "src/calc.py", "start_line": 8, "end_line": 16}],
    "add_ctx": [{"file": "src/util.py", "start_line": 9, "end_line": 10}],
}
PATCH = "--- a/src/calc.py\n+++ b/src/calc.py\n@@ -8,2 +8,1 @@\n-a\n-b\n+c\n@@ -30,1 +29,0 @@\n-x\n"
PREDICTION = {"instance_id": TASK, "model_patch": PATCH, "traj_data": {"pred_files": ["src/calc.py"], "pred_spans": {}}}
LINE = ("--gold", "gold.jsonl", "--repo", "repo.json")
#: Set of traces → its place.
SETS = {**{form: f"logs/{form}" for form in FORMATS}, "predicted": "predicted.jsonl"}
SCORE = ("trace", "score", *LINE, "--results", "mini_v2=solved.jsonl", "--workers", "1", "--quiet", "--out-dir", "out")
#: What `--out-dir` holds, and whether a person can read it in a diff; the store is held by the tests of stores.
KEPT = {"rows.jsonl": False, "summary.json": False, "report.html": False, "summary.md": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with repository, gold and logs, scored."""
    folder = tmp_path_factory.mktemp("traces")
    with chdir(folder):
        Path("repo.json").write_text(json.dumps(VECTORS["fixture_repo"]))
        Path("gold.jsonl").write_text(json.dumps(GOLD) + "\n")
        Path("predicted.jsonl").write_text(json.dumps(PREDICTION) + "\n")
        Path("solved.jsonl").write_text(json.dumps({"instance_id": TASK, "resolved": True}) + "\n")
        for form, logged in FORMATS.items():
            for file, text in logged["files"].items():
                log = Path("logs", form, TASK, file)
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(text)
        assert score() == 0
    return folder


@pytest.fixture
def inside(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "80")


def score():
    return main([*SCORE, *(word for name, where in SETS.items() for word in ("--trace", f"{name}={where}"))])


def written(*line):
    assert main([*line, "--out", "written"]) == 0
    return Path("written").read_text("utf-8")


def test_rows_and_reports_of_traces_read_as_they_did(inside, golden):
    files = {file.name: KEPT.get(file.name, True) for file in Path("out").iterdir()}
    golden("traces/files.txt", "".join(f"{name}\n" for name in sorted(files)))
    for name, plain in files.items() - {("store.db", True)}:
        golden(f"traces/{name}{'' if plain else '.xz'}", Path("out", name).read_text("utf-8"))


def test_rows_that_were_kept_are_not_scored_again(inside, capsys):
    rows = lzma.decompress((HERE / "traces" / "rows.jsonl.xz").read_bytes())
    Path("out", "rows.jsonl").unlink()
    assert score() == 0
    assert Path("out", "rows.jsonl").read_bytes() == rows
    assert f"{len(rows.splitlines())} rows were there already, 0 were scored now" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMATS)
def test_events_of_a_log_read_as_they_did(form, inside, golden):
    golden(f"traces/events/{form}.jsonl", written("trace", "convert", f"logs/{form}"))


def test_predictions_read_as_they_did(inside, golden):
    golden("traces/predictions.jsonl", written("trace", "convert", "logs/mini_v2", "--to", "contextbench", *LINE))


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_is_shown_as_it_was(form, inside, golden, capsys):
    assert main(["trace", "show", f"logs/{form}", *LINE, "--width", "100"]) == 0
    golden(f"traces/shown/{form}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_a_comparison_of_traces_reads_as_it_did(form, inside, golden):
    for name in ("claude_stream_json", "mini_v2"):
        told = ("--quiet", "--workers", "1", "--out-dir", name)
        assert main(["trace", "score", *LINE, "--trace", f"logs/{name}", *told]) == 0
    golden(f"traces/compared.{form}", written("trace", "compare", "claude_stream_json", "mini_v2", "--output", form))
