"""A compressor in Python, `--system py:mine:Mine`: counted from the example as it was given, with controls of its own
size.
"""

from __future__ import annotations

import json

import pytest

from context_bench import evaluate
from context_bench.__main__ import main
from context_bench.evaluators import AnswerQuality
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.metrics import CompressionRatio
from context_bench.systems import OpenAIProxy

COLOURS = ["amber", "birch", "coral", "delft", "ebony", "fawn", "green", "hazel"]
MINE = '''
class Mine:
    """Keeps the sentences that share a number with the question."""

    name = "mine"

    def process(self, example):
        number = next(word for word in example["question"].rstrip("?").split() if word.isdigit())
        kept = [one for one in example["context"].split("\\n") if f" {number} " in one or one.startswith("Neighbour 1 ")]
        return {**example, "context": "\\n".join(kept)}


class Answers:
    name = "answers"

    def process(self, example):
        return {"response": "I do not know"}


class Breaks(Mine):
    name = "breaks"

    def process(self, example):
        if example["id"] == 3:
            raise ValueError("three is too much")
        return super().process(example)
'''  # noqa: E501


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve questions, their answers in the middle of the context; an exact reader; a compressor that knows where to
    look.
    """
    filler = [
        f"Neighbour {k} says that the street has been quiet since the works of that year." for k in range(100, 112)
    ]
    examples, key = [], {}
    for i in range(12):
        door = f"The door of house number {i} was painted in the colour {COLOURS[i % 8]} last spring."
        question = f"In what colour was the door of house number {i} painted?"
        examples.append(
            {"id": i, "context": "\n".join([*filler, door, *filler]), "question": question, "answer": COLOURS[i % 8]}
        )
        key[question] = {"answer": COLOURS[i % 8], "evidence": f"the colour {COLOURS[i % 8]}"}
    (tmp_path / "doors.jsonl").write_text("".join(json.dumps(example) + "\n" for example in examples))
    (tmp_path / "reader.json").write_text(json.dumps({"answer_key": key}))
    (tmp_path / "compressor_of_this_test.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(folder, *more, code=0, system="Mine"):
    options = [
        "--dataset",
        "doors.jsonl",
        "--system",
        f"py:compressor_of_this_test:{system}",
        "--upstream",
        "scripted:reader.json",
    ]
    options += [
        "--model",
        "gpt-4o-mini",
        "--store",
        "store.db",
        "--score-field",
        "contains",
        "--output",
        "json",
        "--out",
        "report.json",
    ]
    assert main(["run", *options, *more]) == code
    return json.loads((folder / "report.json").read_text()) if code in (0, 1) else None


def rows(report, name):
    return {row["example_id"]: row for row in report["rows"] if row["system"] == name}


@pytest.mark.parametrize("tap", [(), ("--tap", "0")], ids=["usage", "tap"])
def test_it_is_counted_from_the_example_and_gets_controls_of_its_size(folder, capsys, tap):
    report = run(folder, "--controls", *tap)
    mine, full = rows(report, "mine"), rows(report, "full")
    assert set(report["summary"]) == {"mine", "full", "full#2", "none", "head_tail@mine", "random_drop@mine"}
    assert [row["input_tokens"] for row in mine.values()] == [row["input_tokens"] for row in full.values()]
    assert all(row["output_tokens"] < row["input_tokens"] / 3 for row in mine.values())
    assert report["summary"]["mine"]["compression_ratio"] > 0.66
    for control in ("head_tail@mine", "random_drop@mine"):
        for key, row in rows(report, control).items():
            assert row["input_tokens"] == full[key]["input_tokens"]
            assert row["output_tokens"] <= mine[key]["output_tokens"] + 1
        assert report["summary"][control]["mean_output_tokens"] > 0.5 * report["summary"]["mine"]["mean_output_tokens"]
    [lift] = report["lifts"]
    assert (lift["system"], lift["baseline"], lift["verdict"]) == ("mine", "head_tail@mine", "better")
    assert lift["sentence"].startswith(
        "mine keeps 100 % of what the context is worth, truncation to the same size 0 %. mine"
    )
    sent, forwarded = (
        report["summary"]["mine"]["mean_input_tokens"] * 12 / 1000,
        report["summary"]["mine"]["mean_output_tokens"] * 12,
    )
    assert f"{sent:.1f}k → {forwarded:,.0f}" in capsys.readouterr().err.replace(".0k", "k").replace(",", "")


def test_better_than_truncation_is_the_first_verdict_in_the_terminal(folder, capsys):
    run(folder, "--controls", "--quiet", "--run", "first")
    assert main(["show", "first", "--full", "--store", "store.db"]) == 0
    told = capsys.readouterr().out
    assert told.index("better than") < told.index("keeps 100 % of what the context is worth") < told.index("inferior")


def test_controls_by_name(folder):
    assert "head_tail@mine" in run(folder, "--controls", "full,none,head_tail", "--quiet")["summary"]
    assert set(run(folder, "--controls", "full,head_tail@mine", "--quiet")["summary"]) == {
        "mine",
        "full",
        "head_tail@mine",
    }


def test_where_it_fails_its_control_fails_too(folder):
    report = run(folder, "--controls", "full,none,head_tail", "--quiet", "--max-failures", "0.2", system="Breaks")
    assert rows(report, "breaks")[3]["errors"]["system"].startswith("ValueError")
    assert rows(report, "head_tail@breaks")[3]["errors"]["system"].startswith("NoBudget")
    assert not rows(report, "head_tail@breaks")[4].get("errors")


@pytest.mark.parametrize(
    ("controls", "system", "says"),
    [
        ("head_tail@yours", "Mine", ["yours", "mine", "--keep"]),
        ("full,head_tail", "Answers", ["answers", "no context", "--keep", "--proxy"]),
        ("tail_head", "Mine", ["tail_head", "head_tail"]),
    ],
)
def test_a_control_that_cannot_be_made_is_refused(folder, capsys, controls, system, says):
    run(folder, "--controls", controls, "--quiet", system=system, code=2)
    told = capsys.readouterr().err
    assert all(word in told for word in says), told
    assert not (folder / "report.json").exists()


def test_the_default_controls_leave_out_what_cannot_be_made_and_say_so(folder, capsys):
    report = run(folder, "--controls", "--quiet", system="Answers")
    assert set(report["summary"]) == {"answers", "full", "full#2", "none"}
    assert any("head_tail" in note and "--keep" in note for note in report["notes"])
    assert "head_tail" in capsys.readouterr().err


def test_a_built_in_way_gets_them_too_but_not_of_its_own_kind(folder):
    options = [
        "--dataset",
        "doors.jsonl",
        "--upstream",
        "scripted:reader.json",
        "--model",
        "gpt-4o-mini",
        "--store",
        "store.db",
        "--quiet",
    ]
    systems = ["--system", "bm25:keep=0.3", "--system", "head_tail:keep=0.3"]
    assert (
        main(
            [
                "run",
                *options,
                *systems,
                "--controls",
                "full,head_tail,random_drop",
                "--output",
                "json",
                "--out",
                "report.json",
            ]
        )
        == 0
    )
    report = json.loads((folder / "report.json").read_text())
    own = {"bm25:keep=0.3", "head_tail:keep=0.3"}
    assert set(report["summary"]) - own == {
        "full",
        "head_tail@bm25:keep=0.3",
        "random_drop@bm25:keep=0.3",
        "random_drop@head_tail:keep=0.3",
    }
    assert 0.5 < report["summary"]["bm25:keep=0.3"]["compression_ratio"] < 0.8


class Asks:
    """Shortens and asks by itself, through a client of ours."""

    name = "asks"

    def __init__(self, url):
        self.client = OpenAIProxy(url, "gpt-4o-mini", max_retries=0)

    def process(self, example):
        return self.client.process({**example, "context": example["context"][: len(example["context"]) // 2]})


def test_one_that_asks_by_itself_is_counted_from_the_example_as_well():
    examples = [
        {"id": i, "context": f"The gate number {i} opens at nine. " * 40, "question": "When?", "answer": "nine"}
        for i in range(6)
    ]
    server = ModelServer(Scripted({"default": "nine"}))
    run_sync(server.start())
    try:
        full, asks = OpenAIProxy(server.url, "gpt-4o-mini", "full"), Asks(server.url)
        result = evaluate([full, asks], examples, [AnswerQuality()], [CompressionRatio()], progress=False)
    finally:
        run_sync(server.stop())
    assert result.summary["asks"]["mean_input_tokens"] == pytest.approx(
        result.summary["full"]["mean_input_tokens"], abs=2
    )
    assert result.summary["asks"]["compression_ratio"] == pytest.approx(0.5, abs=0.05)
    assert result.summary["full"]["compression_ratio"] == pytest.approx(0.0)
