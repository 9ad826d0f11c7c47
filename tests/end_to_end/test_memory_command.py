"""`context-bench memory` as a user runs it, without a model: the lab's conversations, the built-in memories, the lab's
reader.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from context_bench.cli.app import run_line
from context_bench.engine import list_runs, open_store, rows
from context_bench.engine.store.browsing import Place
from context_bench.viewer.pages import Library

ARMS = ("oracle", "full_context", "bm25")  # the first two do not rank
READER = "py:context_bench.testing.lab_reader:LabReader"
LAB = (
    "memory",
    "--system",
    "bm25",
    "--system",
    "recency",
    "--dataset",
    "bundled:recall-lab",
    "-n",
    "2",
    "--reader",
    READER,
    "--k",
    "1,5",
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*args):
    return run_line([*LAB, "--quiet", *args])


def test_floors_notes_types_and_set_ups_are_in_every_report(place, capsys):
    assert bench("--run", "one", "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["summary"]) == ["bm25", "recency", "none", "random", "full_context", "oracle"]
    for name, (least, most) in {"oracle": (1, 1), "full_context": (1, 1), "none": (0, 0), "bm25": (0.3, 0.99)}.items():
        assert least <= found["summary"][name]["mean_score"] <= most, name
    assert found["summary"]["oracle"]["groups"] == 2
    assert found["estimates"]["bm25"]["recall_at_5"]["n"] == 34
    assert found["config"].keys() == {"systems", "evaluators", "metrics", "num_examples"}
    assert (found["config"]["systems"], found["config"]["num_examples"]) == (list(found["summary"]), 2)
    assert found["setups"][0]["output"]["items"] == 100
    assert found["setups"][0]["output"]["probe_found"] == found["setups"][0]["output"]["probed"] == 20
    assert "random picks" in found["notes"][0], "what must be said first stands first"
    assert any("whole conversation" in note for note in found["notes"])
    assert {row["metadata"]["qa_type"] for row in found["rows"]} >= {"single", "update-latest", "chain-3"}
    assert not any(row.get("errors") for row in found["rows"])
    assert run_line(["show", "one", "--full"]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("Verdicts", "Memory", "Set-up", "write loss", "## Per-QA-Type Breakdown"))


def test_the_documented_name_stays_that_of_the_whole_conversation(place, capsys):
    assert run_line([*LAB, "--quiet", "--system", "naive", "-n", "1", "--run", "one", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["summary"]) == ["bm25", "recency", "naive", "none", "random", "oracle"]
    assert {row["system"] for row in found["rows"]} == set(found["summary"])
    (cell,) = found["manifest"]["cells"]
    assert (cell["baseline"], cell["roles"]["naive"]["kind"]) == ("naive", "full_context")
    assert not any(name.startswith("mrr") for name in found["estimates"]["naive"]), "it ranks nothing"


def test_a_killed_run_goes_on_and_says_the_same(place):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    line = [*LAB, "-n", "1", "--quiet"]
    command = [sys.executable, "-m", "context_bench", *line, "--run", "killed", "--output", "json"]
    child = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while stored(place) < 30 and time.monotonic() < until and child.poll() is None:
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert run_line([*line, "--run", "killed", "--out", str(place / "x")]) == 0
    assert run_line([*line, "--run", "undisturbed", "--out", str(place / "y")]) == 0
    for name in ("killed", "undisturbed"):
        assert run_line(["export", name, "--canonical", "--out", str(place / f"{name}.json")]) == 0
    read = [json.loads((place / f"{name}.json").read_text()) for name in ("killed", "undisturbed")]
    differing = {
        (system, key): (value, read[1]["summary"][system].get(key))
        for system, values in read[0]["summary"].items()
        for key, value in values.items()
        if value != read[1]["summary"][system].get(key)
    }
    assert differing == {}
    assert [row["scores"] for row in read[0]["rows"]] == [row["scores"] for row in read[1]["rows"]]


def stored(place):
    path = place / ".context-bench" / "store.db"
    if not path.exists():
        return 0
    try:
        store = open_store(str(path))
        try:
            found = list(list_runs(store))
            return len(rows(store, found[0].id)) if found else 0
        finally:
            store.close()
    except Exception:  # the child is just making it
        return 0


def test_answers_are_judged_again_without_the_memories(place, capsys):
    assert bench("--run", "one", "--output", "json", "--no-floors", "-n", "1") == 0
    capsys.readouterr()
    assert run_line(["rescore", "one", "--evaluator", "locomo", "--evaluator", "answer", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["bm25"]["mean_score"] > 0.3


def test_the_sentence_reader_is_not_told_as_a_model(place, capsys):
    few = ["--qa-types", "single", "--no-floors", "--questions", "2", "-n", "1", "--quiet"]
    line = [*LAB[: LAB.index("--reader")], "--reader", "sentence", *few]
    assert run_line([*line, "--output", "html", "--out", "x.html"]) == 0
    head = (place / "x.html").read_text().partition("<h2")[0]
    assert "<dt>Model</dt><dd>no model</dd>" in head


def test_without_a_reader_retrieval_is_measured_against_word_search(place, capsys):
    line = [
        *LAB[: LAB.index("--reader")],
        "--reader",
        "none",
        "--budget-tokens",
        "60",
        "--qa-types",
        "single,update",
        "--quiet",
        "--output",
        "json",
    ]
    assert run_line(line) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["baseline"] for one in found["comparisons"]} == {"bm25"}
    ranked = {"recall_at_60_tokens", "recall_at_10", "mrr", "mean_score", "pass_rate"}
    assert ranked <= found["estimates"]["bm25"].keys()
    for name in ("oracle", "full_context"):  # they do not rank: no figures, no verdict
        assert not ranked & (found["estimates"][name].keys() | found["summary"][name].keys())
        assert "evidence_recall" in found["estimates"][name]
        assert name not in {one["system"] for one in found["comparisons"]}
    assert run_line(["show", "last", "--output", "html", "--out", "x.html"]) == 0
    block = json.loads(re.search(r'id="row-data"[^>]*>(.*?)</script>', (place / "x.html").read_text(), re.DOTALL)[1])
    titles = [column["title"] for column in block["columns"]]
    shown = {system: {row[titles.index("mrr")] is None for row in block["rows"] if row[0] == system} for system in ARMS}
    assert shown == {"oracle": {True}, "full_context": {True}, "bm25": {False}}
    with open_store(place / ".context-bench" / "store.db") as store:
        library = Library(store)
        run = library.run(list_runs(store)[0].name)
        for arm, system in run.systems:
            kept = library.row_at(run, Place(arm, 0, 0)).scores
            assert ("mrr" in kept) == (system not in ARMS[:2]), system
            assert "evidence_recall" in kept
    assert not any("f1" in row["scores"] for row in found["rows"])
    assert {row["metadata"]["qa_type"] for row in found["rows"]} == {
        "single",
        "update-latest",
        "update-previous",
        "update-count",
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--system", "nobody"), "bm25"),
        (("--system", "zep"), "docs/guide/memory.md"),
        (("--system", "bm25", "--dataset", "nowhere"), "locomo"),
        (("--system", "bm25", "--k", "0"), "k"),
        (("--system", "bm25", "--dataset", "bundled:recall-lab", "--reader", "none", "--baseline", "mem1"), "mem1"),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(place, capsys, args, words):
    assert run_line(["memory", *args, "--quiet"]) == 2
    assert words in capsys.readouterr().err


def test_data_without_evidence_is_refused_where_nobody_reads(place, capsys):
    talk = {
        "id": "c",
        "turns": [{"role": "user", "content": "The boat is Heron."}],
        "qa_pairs": [{"question": "Boat?", "answer": "Heron", "type": "s"}],
    }
    (place / "talks.jsonl").write_text(json.dumps(talk))
    assert run_line(["memory", "--system", "bm25", "--dataset", "./talks.jsonl", "--reader", "none", "--quiet"]) == 2
    assert "which turns hold its answers" in capsys.readouterr().err


def test_what_the_bundled_model_cannot_read_whole_is_held_against_the_evidence(place, capsys):
    line = [
        "memory",
        "--system",
        "bm25",
        "--dataset",
        "bundled:recall-lab:turns=1000",
        "-n",
        "1",
        "--dry-run",
        "--quiet",
    ]
    assert run_line(line) == 0
    assert "against the oracle" in capsys.readouterr().err


def test_a_dry_run_counts_what_readers_would_be_sent(place, capsys):
    line = ["memory", "--system", "bm25", "--dataset", "bundled:recall-lab", "-n", "1", "--dry-run", "--quiet"]
    priced = ["--relay", "http://127.0.0.1:9", "--price", "m=1000,0", "--model", "m", "--max-tokens", "10"]
    assert run_line([*line, *priced]) == 0
    told = capsys.readouterr().out
    tokens = int(re.search(r"100 calls, ([\d,]+) prompt tokens", told)[1].replace(",", ""))
    assert 20 * 2500 < tokens < 5 * 20 * 2500  # one of five memories shows the whole conversation every time
    assert float(re.search(r"worst-case money: \$([\d.]+)", told)[1]) > tokens / 1000
    assert run_line([*line, "--reader", "none"]) == 0
    assert " 0 calls, 0 prompt tokens" in capsys.readouterr().out


PLAIN = """
class Plain:
    def __init__(self):
        self.texts = []

    def add(self, text):
        self.texts.append(text)

    def search(self, query, k):
        assert len(self.texts) == 40, "it holds more than one conversation"
        return self.texts[-k:]


def shared(made=Plain()):
    return made


class Odd(Plain):
    def search(self, query, k, index):
        return []


one = Plain()
"""


def test_a_class_is_made_anew_for_each_conversation_and_an_object_that_cannot_be_emptied_is_refused(
    place, capsys, monkeypatch
):
    (place / "plain_memories.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(place)
    lab = (
        "memory",
        "--dataset",
        "bundled:recall-lab:turns=40",
        "--reader",
        "none",
        "--no-floors",
        "--quiet",
        "--questions",
        "3",
    )
    assert run_line([*lab, "-n", "2", "--system", "py:plain_memories:Plain", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [record["output"]["items"] for record in found["setups"]] == [40, 40]
    assert not any(row.get("errors") for row in found["rows"])
    for target in ("shared", "one"):
        assert run_line([*lab, "-n", "2", "--system", f"py:plain_memories:{target}"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "has neither namespace(), reset() nor delete_all()" in said
        assert "name its class" in said
    assert run_line([*lab, "-n", "1", "--system", "py:plain_memories:one"]) == 0
    assert run_line([*lab, "-n", "1", "--system", "py:plain_memories:Odd"]) == 2
    assert "missing a required argument: 'index'; expected one that takes a question" in " ".join(
        capsys.readouterr().err.split()
    )
    described = (
        'base_url = "http://127.0.0.1:1"\n[add]\npath = "/a"\nbody = "{content}"\n[search]\npath = '
        '"/s"\nbody = "{query}"\n'
    )
    (place / "notes.toml").write_text(described)
    (place / "notes-cli.toml").write_text('store = ["false", "{content}"]\nrecall = ["false", "{query}"]\n')
    for spec, words in (("http:notes.toml", "say {namespace} in all of"), ("cli:notes-cli.toml", "or give `reset`")):
        assert run_line([*lab, "-n", "2", "--system", spec]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_run_that_nobody_could_have_won_says_so_once_and_first(place, capsys):
    """The documented line, with a memory in place of the slow one: 6 conversations."""
    line = (
        "memory",
        "--system",
        "bm25",
        "--system",
        "bm25:path=other.db",
        "--dataset",
        "bundled:recall-lab:turns=40",
        "--reader",
        "none",
    )
    assert run_line([*line, "-n", "6", "--quiet", "--run", "few", "--output", "html", "--out", "few.html"]) == 0
    assert run_line(["show", "few", "--full"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    first = shown.partition("Verdicts ")[2]
    assert first.startswith(
        "This run could not tell the ceiling (oracle) from bm25: no memory could have won. Ask again with -n "
    )
    assert shown.count("could not tell the ceiling") == 1
    assert "would decide" not in shown
    assert "full_context: inferior" not in shown
    page = (place / "few.html").read_text()
    assert page.count("This run could not tell the ceiling") >= 1
    assert "full_context: inferior" not in page
