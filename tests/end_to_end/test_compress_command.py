"""`context-bench compress run` on the sessions that come with the package, without a model: order, budgets, intervals,
files.
"""

from __future__ import annotations

import json

import pytest

from context_bench.cli.app import run_line
from context_bench.compression import rebuilt
from context_bench.compression.session_rules import artifacts
from context_bench.reports import build_page
from context_bench.reports.table import render
from context_bench.results import EvalResult


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run with the margin written down beforehand: 12 sessions carry no finer one."""
    folder = tmp_path_factory.mktemp("compress")
    line = [
        "compress",
        "run",
        "--system",
        "anchored",
        "--system",
        "random_drop:keep=0.5",
        "--run",
        "shipped",
        "--margin",
        "0.25",
        "--per-type",
        "3",
    ]
    assert (
        run_line(
            [*line, "--store", f"{folder}/store.db", "--quiet", "--output", "json", "--out", f"{folder}/report.json"]
        )
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def report(run):
    return json.loads((run / "report.json").read_text())


def test_without_the_grammar_of_the_shell_the_report_says_what_was_not_read(tmp_path, monkeypatch, report):
    assert not any("not read" in note for note in report["notes"])
    monkeypatch.setattr(artifacts, "find_spec", lambda name: None)
    out = tmp_path / "report.json"
    line = ["compress", "run", "--system", "anchored", "--controls", "full", "-n", "1", "--per-type", "1", "--quiet"]
    assert run_line([*line, "--store", str(tmp_path / "s.db"), "--output", "json", "--out", str(out)]) == 0
    (note,) = [note for note in json.loads(out.read_text())["notes"] if "not read" in note]
    assert "the extra `traces` was not installed" in note


def score(report, name):
    return report["estimates"][name]["mean_score"]


def test_the_order_is_the_expected_one(report):
    """Decision 35: full ≥ anchored ≥ none, and none is beaten by far."""
    assert score(report, "full")["value"] >= score(report, "anchored")["value"] >= score(report, "none")["value"]
    compared = {each["system"]: each for each in report["comparisons"]}
    assert compared["none"]["verdict"] == "inferior"
    assert compared["anchored"]["verdict"] != "better"
    assert score(report, "anchored")["low"] > score(report, "none")["high"]
    assert score(report, "full")["low"] > score(report, "none")["high"]
    index = report["compression"]["systems"]["anchored"]["retention"]
    assert 0.4 < index["low"] < index["value"] <= 1
    assert report["compression"]["systems"]["anchored"]["lift"]["difference"] > 0
    lift = next(each for each in report["lifts"] if each["system"] == "anchored")
    assert lift["difference"] == report["compression"]["systems"]["anchored"]["lift"]["difference"]
    assert (
        f"anchored keeps {100 * index['value']:.0f} % of what the history is worth, truncation to the same size "
        in lift["sentence"]
    )


def test_ten_sessions_and_an_interval_for_every_number(report):
    for name, own in report["compression"]["systems"].items():
        assert own["score"]["clusters"] >= 10
        for told in (own["score"], *own.get("losses", {}).get("shares", {}).values()):
            assert told["low"] < told["high"], name
            assert told["low"] <= told["value"] <= told["high"]
        if name not in ("full", "full#2", "none"):
            assert own["retention"]["low"] < own["retention"]["value"] < own["retention"]["high"]
        if name not in ("full", "full#2"):
            assert own["size"]["keep"]["low"] <= own["size"]["keep"]["value"] <= own["size"]["keep"]["high"]
    assert all(each["low"] < each["high"] for each in report["comparisons"])


def test_budgets_are_kept(report):
    """Where a control is to match a size it comes near it and not above; `random_drop:keep=0.5` keeps a half."""
    sizes = {name: own["size"] for name, own in report["compression"]["systems"].items()}
    assert 0.45 <= sizes["random_drop:keep=0.5"]["keep"]["value"] <= 0.5
    for control in ("head_tail@anchored", "random_drop@anchored"):
        assert 0.9 * sizes["anchored"]["after"] <= sizes[control]["after"] <= sizes["anchored"]["after"]
    assert sizes["full"]["keep"]["value"] == 1
    assert sizes["none"]["after"] == 0


def test_random_drop_keeps_about_half_of_the_facts(report):
    share = report["compression"]["systems"]["random_drop:keep=0.5"]["losses"]["shares"]["kept"]
    assert share["low"] < 0.55
    assert share["high"] > 0.45
    assert report["compression"]["systems"]["anchored"]["losses"]["shares"]["kept"]["value"] > share["value"]


def test_the_same_again_is_not_worse(report):
    floor = next(each for each in report["comparisons"] if each["system"] == "full#2")
    assert floor["low"] < 0 < floor["high"]
    assert floor["difference"] == 0


def test_the_report_reads_from_verdict_to_losses(run, report):
    shown = render(build_page(EvalResult.from_json((run / "report.json").read_text())))
    order = ["Verdicts", "Quality", "By type of probe", "Retention", "What it takes", "What was lost"]
    places = [shown.index(f"\n{title}\n") for title in order]
    assert places == sorted(places)
    assert "knows words, not meaning" in " ".join(shown.split())
    assert "Answered by sentence reader (no model)" in shown
    assert not any(words in shown for words in ("Shape ", "seen by", "Model "))
    assert max(map(len, shown.splitlines())) <= 80


def test_one_file_holds_what_the_report_needs(run, report, monkeypatch):
    out = run / "results.jsonl"
    assert run_line(["export", "shipped", "--store", f"{run}/store.db", "--format", "results", "--out", str(out)]) == 0
    assert out.stat().st_size < 6_000_000  # long texts once
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("something was called"))
    again = json.loads(rebuilt(out).to_json())
    for part in ("compression", "comparisons", "estimates"):
        assert again[part] == report[part], part
    assert [row["scores"] for row in again["rows"]] == [row["scores"] for row in report["rows"]]
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    row = next(each for each in kept if each["kind"] == "row")
    assert row["example"]["atoms"][0]["sources"]
    assert {"response", "context_sha256"} <= set(row["output"])
    assert len([each for each in kept if each["kind"] == "text"]) < 12 * 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("[]\n", "expected an object"),
        ('{"kind": "run"}\n', "not the results"),
        ("nonsense\n", "line 1"),
    ],
)
def test_another_file_is_refused(tmp_path, text, says):
    from context_bench.core.errors import BadInput

    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(BadInput, match=says):
        rebuilt(tmp_path / "x.jsonl")
