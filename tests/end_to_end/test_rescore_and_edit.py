"""What is paid for once stays paid for: scoring again calls nobody, and an edited example is asked again alone."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer

COUNT = 12


def line(i, **changes):
    return {
        "id": i,
        "context": f"Box {i} holds word{i}.",
        "question": f"What is in box {i}?",
        "answer": f"word{i}",
        **changes,
    }


def write(lines):
    Path("boxes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """A provider that counts the questions it is asked; every second one it answers wrongly."""
    monkeypatch.chdir(tmp_path)
    write([line(i) for i in range(COUNT)])
    rules = [{"when": {"text": rf"in box {i}\?"}, "text": f"word{i}" if i % 2 else "no idea"} for i in range(COUNT + 1)]
    server = ModelServer(Scripted({"rules": [*rules, {"text": "yes"}]}))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


def asked(provider):
    """Box → how often it was asked for since the last time; checks before a run name no box."""
    found = Counter(
        int(number) for request in provider.requests for number in re.findall(r"in box (\d+)\?", request.text)
    )
    provider.requests.clear()
    return dict(found)


def run(provider, *more):
    base = ["--proxy", provider.url, "--name", "p", "--dataset", "boxes.jsonl", "--model", "m", "--run", "r", "--quiet"]
    assert main([*base, "--output", "json", "--out", "r.json", *more]) == 0
    return {row["example_id"]: row for row in json.loads(Path("r.json").read_text())["rows"]}


def test_another_evaluator_on_a_stored_run_calls_no_system(provider, tmp_path, monkeypatch):
    first = run(provider)
    assert asked(provider) == dict.fromkeys(range(COUNT), 1)
    calls = provider.seen
    (tmp_path / "measuring.py").write_text(
        "class Length:\n    name = 'length'\n"
        "    def score(self, original, processed):\n        return {'length': float(len(processed['response']))}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    line = ["rescore", "r", "--evaluator", "py:measuring:Length", "--score-field", "length"]
    assert main([*line, "--output", "json", "--out", "again.json"]) == 0
    assert provider.seen == calls
    again = {row["example_id"]: row for row in json.loads(Path("again.json").read_text())["rows"]}
    assert set(again) == set(range(COUNT))
    for i, row in again.items():
        assert row["scores"] == {**first[i]["scores"], "length": float(len(f"word{i}" if i % 2 else "no idea"))}
        assert row["usage"] == first[i]["usage"]
        assert row["latency"] == first[i]["latency"]
    assert main([*line, "--output", "markdown", "--out", "again.md"]) == 0
    assert "mean length" in Path("again.md").read_text()


def test_the_configuration_is_the_same_whoever_asks_for_the_run(provider, tmp_path, monkeypatch):
    run(provider)
    metrics = ["mean_score", "pass_rate", "compression_ratio", "cost_of_pass", "latency"]
    wanted = {
        "systems": ["p"],
        "evaluators": ["answer_quality"],
        "metrics": metrics,
        "num_examples": COUNT,
        "max_workers": 1,
    }
    assert main(["show", "r", "--output", "json", "--out", "shown.json"]) == 0
    assert main(["export", "r", "--out", "exported.json"]) == 0
    assert main(["export", "r", "--canonical", "--out", "canonical.json"]) == 0
    for name in ("r", "shown", "exported", "canonical"):
        assert json.loads(Path(f"{name}.json").read_text())["config"] == wanted, name
    assert main(["rescore", "r", "--evaluator", "math", "--output", "json", "--out", "again.json"]) == 0
    judged = json.loads(Path("again.json").read_text())["config"]
    assert judged == {**wanted, "evaluators": ["answer_quality", "math_equivalence"]}


def test_an_edited_example_is_asked_again_alone(provider):
    before = run(provider)
    assert asked(provider) == dict.fromkeys(range(COUNT), 1)
    write([line(i, context="Box 7 was emptied.") if i == 7 else line(i) for i in range(COUNT)])
    after = run(provider)
    assert asked(provider) == {7: 1}
    assert {i for i in after if after[i]["latency"] != before[i]["latency"]} <= {7}
    assert len(after) == COUNT


def test_an_edited_answer_key_changes_that_rows_score(provider):
    assert run(provider)[4]["scores"]["exact_match"] == 0.0
    asked(provider)
    write([line(i, answer="no idea") if i == 4 else line(i) for i in range(COUNT)])
    rows = run(provider)
    assert rows[4]["scores"]["exact_match"] == 1.0
    assert [rows[i]["scores"]["exact_match"] for i in range(COUNT) if i != 4] == [
        float(i % 2) for i in range(COUNT) if i != 4
    ]
    assert set(asked(provider)) <= {4}


def test_an_example_put_in_front_moves_the_others_without_asking_them(provider):
    run(provider)
    asked(provider)
    write([line(COUNT), *(line(i) for i in range(COUNT))])
    assert set(run(provider)) == set(range(COUNT + 1))
    assert asked(provider) == {COUNT: 1}


def test_an_example_taken_out_takes_its_row_along(provider):
    run(provider)
    asked(provider)
    write([line(i) for i in range(COUNT) if i != 3])
    assert set(run(provider)) == set(range(COUNT)) - {3}
    assert asked(provider) == {}
