"""`--evidence-only`: a verdict on what arrived of the evidence, without a model; and the same beside answers."""

import json
import socket
from contextlib import ExitStack

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, rows, run_of
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.systems.serve import Served
from context_bench.tap import Tap

EXAMPLES = 30
FILLER = "Trees stand along the lane. "


@pytest.fixture
def data(tmp_path):
    """The evidence stands at the end of every third context, else in its middle, where truncation cuts."""
    made = []
    for n in range(EXAMPLES):
        told = f"Person {n} lives in house {n}."
        context = FILLER * 40 + told if n % 3 == 0 else f"{FILLER * 40}{told} {FILLER * 40}"
        asked = f"Who lives in house {n}?"
        made.append({"id": n, "context": context, "question": asked, "answer": f"Person {n}", "evidence": told})
    path = tmp_path / "lanes.jsonl"
    path.write_text("\n".join(map(json.dumps, made)))
    return path


@pytest.fixture
def provider():
    """The address of a provider, and the requests that it got."""
    asked = []

    class Counting(Scripted):
        async def reply(self, request, headers):
            asked.append(request)
            return await super().reply(request, headers)

    server = ModelServer(Counting({"default": "Person 0"}))
    run_sync(server.start())
    yield server.url, asked
    run_sync(server.stop())


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def report(tmp_path, data, *more, code=0):
    out = tmp_path / "out.json"
    command = ["run", "--dataset", str(data), "--store", str(tmp_path / "s.db"), "--run", "r", "--quiet"]
    command += ["--output", "json", "--out", str(out), "--model", "gpt-4o-mini", *more]
    assert main(command) == code
    return json.loads(out.read_text())


def means(found):
    return {name: round(own["evidence_all"]["value"], 3) for name, own in found["estimates"].items()}


def test_behind_a_proxy_nothing_is_sent_on_and_the_verdict_is_about_what_arrived(tmp_path, data, provider, capsys):
    url, asked = provider
    port = free_port()
    with Served("head_tail:keep=0.5", f"http://127.0.0.1:{port}") as proxy:
        proxied = ("--proxy", proxy.url, "--name", "cut", "--tap", str(port), "--upstream", url)
        found = report(tmp_path, data, *proxied, "--evidence-only", "--controls", "full,none,random_drop")
    assert asked == []
    assert f"nothing is sent to {url}" in capsys.readouterr().err
    assert means(found) == {"cut": 0.333, "full": 1, "none": 0, "random_drop@cut": means(found)["random_drop@cut"]}
    verdicts = {one["system"]: one["verdict"] for one in found["comparisons"]}
    assert (verdicts["cut"], verdicts["none"]) == ("inferior", "inferior")
    assert any("No model was asked" in note for note in found["notes"])
    store = open_store(str(tmp_path / "s.db"))
    try:
        assert run_of(store, "r").manifest["design"] == {
            "evidence_only": {"score_field": "evidence_all", "asked": "nobody"}
        }
        kept = {row.example_id: row.scores for row in rows(store, "r", "cut")}
        sizes = [
            {row.example_id: row.output_tokens for row in rows(store, "r", name)} for name in ("cut", "random_drop@cut")
        ]
    finally:
        store.close()
    assert kept == {
        n: {"evidence_all": float(n % 3 == 0), "evidence_share": float(n % 3 == 0)} for n in range(EXAMPLES)
    }
    assert all(abs(sizes[0][n] - sizes[1][n]) <= 0.1 * sizes[0][n] for n in range(EXAMPLES))  # at equal budgets


def test_compressors_and_classes_of_ones_own_need_no_port(tmp_path, data, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def process(self, example):\n"
        "        return {**example, 'context': example['context'][-400:]}\n"
    )
    systems = ("--system", "head_tail:keep=0.5", "--system", f"py:{tmp_path / 'mine.py'}:Mine")
    found = report(tmp_path, data, *systems, "--evidence-only", "--controls", "full,none")
    assert means(found) == {"head_tail:keep=0.5": 0.333, "mine": 0.333, "full": 1, "none": 0}
    assert all("cost_usd" not in own for own in found["estimates"].values())


def test_beside_answers_the_evidence_has_a_verdict_of_its_own(tmp_path, data, provider):
    url, asked = provider
    port = free_port()
    with Served("head_tail:keep=0.5", f"http://127.0.0.1:{port}") as proxy:
        proxied = ("--proxy", proxy.url, "--name", "cut", "--tap", str(port), "--upstream", url)
        found = report(tmp_path, data, *proxied, "--evaluator", "evidence", "--controls", "full,none")
    assert asked
    assert {one["metric"] for one in found["comparisons"]} == {"f1"}  # never instead
    beside = [note for note in found["notes"] if note.startswith("What arrived of the evidence, beside the answers")]
    assert len(beside) == 1
    assert "cut with plain-user requests: inferior to full: evidence_all -66.7 points" in beside[0]


def test_answers_may_be_asked_only_where_evidence_was_lost(tmp_path, data, provider):
    """The rest counts as unchanged, which is an assumption: each verdict that rests on it says so."""
    url, asked = provider
    port = free_port()
    with Served("head_tail:keep=0.5", f"http://127.0.0.1:{port}") as proxy:
        proxied = ("--proxy", proxy.url, "--name", "cut", "--tap", str(port), "--upstream", url)
        found = report(tmp_path, data, *proxied, "--only-lost", "--controls", "full,none")
    questions = sum("Who lives" in request.messages[-1].text for request in asked)
    assert questions == EXAMPLES + EXAMPLES + EXAMPLES * 2 // 3  # full, none, and cut where the evidence was lost
    assert (found["wire"]["cut"]["assumed"], found["wire"]["cut"]["copied"]) == (10, 10)
    assert "assumed" not in found["wire"]["none"]
    sentences = {one["system"]: one["sentence"] for one in found["comparisons"]}
    assert "This takes 10 rows of cut for unchanged, unasked" in sentences["cut"]
    assert "for unchanged" not in sentences["none"]
    assert "cut: 0 of 30 rows arrived as full's had" in " ".join(found["notes"])
    assert "an assumption" in found["manifest"]["design"]["only_lost"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--proxy", "http://127.0.0.1:9"), "needs --tap PORT"),
        (("--system", "bm25:keep=0.5", "--record", "meta"), "it must be kept: full"),
        (("--system", "bm25:keep=0.5", "--only-lost"), "goes neither with --no-copy nor with --evidence-only"),
    ],
)
def test_what_cannot_be_asked_so_is_refused(tmp_path, data, capsys, more, said):
    assert main(["run", "--dataset", str(data), "--evidence-only", "--store", str(tmp_path / "s.db"), *more]) == 2
    assert said in capsys.readouterr().err


def test_a_running_tap_and_data_without_evidence_are_refused(tmp_path, data, capsys):
    command = ["run", "--evidence-only", "--system", "bm25:keep=0.5", "--store", str(tmp_path / "s.db")]
    with ExitStack() as stack:
        tap = stack.enter_context(Tap("echo"))
        assert main([*command, "--dataset", str(data), "--tap", tap.url]) == 2
    assert "a running tap sends on" in capsys.readouterr().err
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"id": 1, "context": "Lane.", "question": "Who?", "answer": "Ada", "evidence": ["t1"]}')
    assert main([*command, "--dataset", str(bare)]) == 2
    assert "none of the first 200 examples carries evidence" in capsys.readouterr().err
