"""An evaluator and a metric from one file of an installed package: by name on the command line, and with their titles
and units in every form of the report.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from context_bench.cli.app import run_line

MODULE = '''
"""Answers measured with a ruler."""

EVALUATORS = {"ruler": "Ruler"}
METRICS = {"longest": "Longest"}
MEASURES = {
    "answer_width": {"title": "width of the answer", "unit": "count", "better": "lower", "place": "quality", "about": "in letters"},
    "longest_wait": {"title": "longest wait", "unit": "seconds", "better": "lower", "about": "of all answers"},
}


class Ruler:
    name, fields = "ruler", ("answer_width",)

    def score(self, example, output):
        return {"answer_width": float(len(output["response"]))}


class Longest:
    name = "longest"

    def compute(self, rows):
        return {"longest_wait": 12.5 if list(rows) else 0.0}
'''  # noqa: E501


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file, laid into a folder as an installer would."""
    (tmp_path / "answers_by_ruler.py").write_text(MODULE)
    info = tmp_path / "answers_by_ruler-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: answers-by-ruler\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[context_bench.evaluators]\nruler = answers_by_ruler:Ruler\n"
        "[context_bench.metrics]\nlongest = answers_by_ruler:Longest\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked.jsonl").write_text(
        "".join(
            json.dumps({"id": n, "context": "a heron", "question": "?", "answer": "heron"}) + "\n" for n in range(3)
        )
    )
    (tmp_path / "echoing.py").write_text(
        'class Echo:\n    name = "echo"\n\n    def process(self, example):\n'
        '        return {**example, "response": example["context"]}\n'
    )
    yield
    for module in ("answers_by_ruler", "echoing"):
        sys.modules.pop(module, None)


def shown(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    assert run_line(line) == 0
    return capsys.readouterr().out


def test_it_is_in_every_form_of_the_report(package, capsys):
    shown(capsys, "run", "--system", "py:./echoing.py:Echo", "--dataset", "asked.jsonl", "--evaluator", "ruler",
          "--metric", "longest", "--run", "measured", "--store", "store.db")  # fmt: skip
    told = ("show", "measured", "--full", "--store", "store.db", "--output")
    document = json.loads(shown(capsys, *told, "json"))
    assert document["summary"]["echo"]["longest_wait"] == 12.5
    assert document["rows"][0]["scores"]["answer_width"] == 7.0
    rows = list(csv.DictReader(io.StringIO(shown(capsys, *told, "csv"))))
    assert [row["answer_width"] for row in rows] == ["7.0"] * 3
    for form in ("table", "markdown", "html"):
        text = shown(capsys, *told, form)
        assert "longest wait" in text
        assert "12.5 s" in text
        assert "width of the answer" in text
        assert "7.000" not in text  # a count has no decimals
    assert "in letters; lower is better" in text
