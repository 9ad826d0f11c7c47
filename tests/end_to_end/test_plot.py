"""`context-bench plot`: a picture of a stored run, of an exported one, of scored traces; and what it says when there is
none.
"""

from __future__ import annotations

import importlib.util
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import context_bench
from context_bench.__main__ import main
from context_bench.metrics import MeanScore

_spec = importlib.util.spec_from_file_location(
    "plot_trace_fixtures", Path(__file__).parents[1] / "unit" / "traces" / "trace_fixtures.py"
)
traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traces)


class Arm:
    """Keeps so much of the context, and is right on one example in so many."""

    def __init__(self, name, keep, right):
        self.name, self.keep, self.right = name, keep, right

    def process(self, example):
        words = example["context"].split()
        said = example["answer"] if example["id"] % self.right == 0 else "no"
        return {**example, "response": said, "context": " ".join(words[: int(self.keep * len(words))])}


class Same:
    name = "same"

    def score(self, example, output):
        return {"f1": float(example["answer"] == output["response"])}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The store of one run."""
    path = tmp_path_factory.mktemp("plot") / "s.db"
    examples = [
        {"id": n, "question": "Which?", "answer": "yes", "context": "word " * 40, "qa_type": ("when", "who")[n % 2]}
        for n in range(24)
    ]
    arms = [Arm("full", 1, 1), Arm("short", 0.5, 2), Arm("none", 0, 23)]
    context_bench.evaluate(arms, examples, [Same()], [MeanScore("f1")], store=str(path), run="mine", progress=False)
    return path


def words(drawing: str) -> set[str]:
    return {element.text or "" for element in ET.fromstring(drawing.encode()).iter("{http://www.w3.org/2000/svg}text")}


def test_a_stored_run_as_a_picture(stored, tmp_path, capsys):
    for run, kind, theme, paper in (("mine", "pareto", "light", "#ffffff"), ("last", "forest", "dark", "#121417")):
        out = tmp_path / "made" / f"{kind}.svg"
        assert main(["plot", run, "--store", str(stored), "--kind", kind, "--theme", theme, "--out", str(out)]) == 0
        assert {"short", "none"} <= words(out.read_text())
        assert f'fill="{paper}"' in out.read_text()
        assert str(out) in capsys.readouterr().err
    picture = tmp_path / "types.PNG"
    line = [
        "plot",
        "mine",
        "--store",
        str(stored),
        "--kind",
        "forest-types",
        "--out",
        str(picture),
        "--width",
        "400",
        "--scale",
        "1",
    ]
    assert main(line) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert 350 < struct.unpack(">I", picture.read_bytes()[16:20])[0] < 480


def test_an_exported_run_gives_the_same_picture(stored, tmp_path):
    exported, ways = tmp_path / "run.json", {}
    assert main(["export", "mine", "--store", str(stored), "--format", "json", "--out", str(exported)]) == 0
    for run in ("mine", str(exported)):
        out = tmp_path / "x.svg"
        assert main(["plot", run, "--store", str(stored), "--kind", "forest-types", "--out", str(out)]) == 0
        ways[run] = out.read_text()
    assert len(set(ways.values())) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--kind", "pie", "--out", "x.svg"], "no such chart; charts of this run: card, pareto"),
        (["--kind", "waterfall", "--out", "x.svg"], "this run has no data for it; charts of this run: card, pareto"),
        (["--kind", "pareto", "--out", "x.pdf"], ".svg or .png"),
        (["--kind", "pareto", "--out", "x.svg", "--theme", "pink"], "light or dark"),
        (["--kind", "pareto", "--out", "x.svg", "--width", "10"], "280 to 4000"),
    ],
)
def test_what_cannot_be_drawn_is_told(stored, tmp_path, monkeypatch, capsys, more, said):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "mine", "--store", str(stored), *more]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"schema": "context-bench.traces/1", "sets": {"a": {"course": {"file": ["x", {}]}}}}']
)
def test_a_file_without_charts_is_told(tmp_path, capsys, text):
    (tmp_path / "x.json").write_text(text)
    assert main(["plot", str(tmp_path / "x.json"), "--kind", "coverage", "--out", str(tmp_path / "x.svg")]) == 2
    assert "x.json" in (told := capsys.readouterr().err) or "not the JSON of a run" in told or "no data" in told
    assert main(["plot", str(tmp_path / "y.json"), "--kind", "coverage", "--out", str(tmp_path / "x.svg")]) == 2


def test_scored_traces_have_a_line_for_each_agent(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    traces.repository(tmp_path)
    traces.gold_file(tmp_path)
    for form, name in (("claude_stream_json", "claude"), ("mini_v2", "mini")):
        (tmp_path / "logs").mkdir(exist_ok=True)
        traces.session(tmp_path / "made", form).rename(tmp_path / "logs" / name)
    score = [
        "trace",
        "score",
        "--gold",
        "gold.jsonl",
        "--repo",
        "repo.json",
        "--trace",
        "claude=logs/claude",
        "--trace",
        "mini=logs/mini",
    ]
    assert main([*score, "--out-dir", "scored"]) == 0
    for run in ("scored", "scored/summary.json"):
        assert main(["plot", run, "--kind", "coverage", "--out", "c.svg"]) == 0
        assert {"claude", "mini", "file", "line"} <= words(Path("c.svg").read_text())
    assert main(["plot", "scored", "--kind", "pareto", "--out", "d.svg"]) == 2
    assert "charts of this run: coverage" in capsys.readouterr().err
