"""A third party's compressing proxy, benchmarked by one command: its tokens, its role changes and what is no longer
known behind it.
"""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager

import pytest

from context_bench.__main__ import main
from context_bench.compression.datasets import ProbeSet
from context_bench.compression.probes import PROBE_TYPES
from context_bench.compression.systems.sentence import SentenceModel
from context_bench.datasets.recorded import RecordedSessions
from context_bench.llm.background import run_sync
from context_bench.llm.servers import ModelServer
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from outside_count import tokens

SESSION = "bundled:sessions/order-sync-zh"


def third_party(body):
    """What stands for the product: tool results are halved, and whoever spoke, it was the user."""
    for message in body["messages"]:
        if message["role"] == "tool":
            message["content"] = message["content"][: len(message["content"]) // 2]
        elif message["role"] in ("system", "assistant"):
            message["role"] = "user"


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(responder):
    server = ModelServer(responder)
    run_sync(server.start())
    try:
        yield server
    finally:
        run_sync(server.stop())


def compress(folder, port, proxy, *more, sessions=SESSION, code=0):
    out = folder / "report.json"
    line = [
        "compress",
        "run",
        sessions,
        "--proxy",
        proxy.url,
        "--name",
        "theirs",
        "--tap",
        str(port),
        "--model",
        "gpt-4o",
        "--quiet",
    ]
    line += [
        "--store",
        str(folder / "store.db"),
        "--run",
        "it",
        "--output",
        "json",
        "--out",
        str(out),
        "--eligibility",
        "0",
        *more,
    ]
    assert main(line) == code
    return json.loads(out.read_text())


def canonical(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def tokens_of(body):
    """By the documented rule, with another tokenizer library and none of our readers."""
    total = tokens(canonical(body["tools"]))
    for message in body["messages"]:
        total += tokens(message.get("content") or "")
        if message.get("tool_calls"):
            calls = [
                {"id": c["id"], **{name: c["function"][name] for name in ("name", "arguments")}}
                for c in message["tool_calls"]
            ]
            total += tokens(canonical(calls))
    return total


def questions(limit):
    """What is asked about what, by the id of the row."""
    found = ProbeSet(RecordedSessions(["bundled:sessions"], limit), most=dict.fromkeys(PROBE_TYPES, 1))
    return {
        example["id"]: key_of([*map(json.loads, example["session"].split("\n")), {"content": example["question"]}])
        for example in found.examples()
    }


def key_of(messages):
    """How a request is known, whoever is said to have spoken."""
    return len(messages), messages[0]["content"], messages[1]["content"], messages[-1]["content"]


def rows_of(report, system):
    return {row["example_id"]: row for row in report["rows"] if row["system"] == system}


def test_one_command_measures_a_proxy_and_names_its_role_changes(tmp_path, port):
    with serving(SentenceModel()) as behind, Rewriting(in_body(third_party), f"http://127.0.0.1:{port}") as proxy:
        more = ["--upstream", behind.url, "--controls", "full,none,head_tail", "--per-type", "1", "-n", "4"]
        report = compress(tmp_path, port, proxy, *more, sessions="bundled:sessions")
        arrived = [
            received.body for received in behind.requests if received.method == "POST" and received.body.get("tools")
        ]
    theirs, full, sized = (rows_of(report, name) for name in ("theirs", "full", "head_tail@theirs"))
    assert len(theirs) >= 4
    assert theirs.keys() == full.keys() == sized.keys()
    assert not any(row.get("errors") for row in report["rows"])

    known = questions(4)
    changed = {key_of(body["messages"]): body for body in arrived if body["messages"][0]["role"] == "user"}
    plain = {key_of(body["messages"]): body for body in arrived if body["messages"][0]["role"] == "system"}
    asked, whole = ({name: bodies[known[name]] for name in theirs} for bodies in (changed, plain))
    said = sum(message["role"] == "assistant" for body in whole.values() for message in body["messages"])
    assert report["wire"]["theirs"]["violations"] == {"assistant_role_changed": said, "system_role_lost": len(theirs)}
    assert report["wire"]["full"].get("violations") is None
    assert report["wire"]["theirs"]["forwarded"] == sum(map(tokens_of, asked.values()))
    assert (
        report["wire"]["theirs"]["sent"] == report["wire"]["full"]["forwarded"] == sum(map(tokens_of, whole.values()))
    )

    for name, row in theirs.items():
        facts, cut = row["metadata"], sized[name]["metadata"]
        gone = tokens_of(whole[name]) - tokens_of(asked[name])
        assert gone > 0
        assert facts["tokens_before"] == full[name]["metadata"]["tokens_after"]
        assert facts["tokens_after"] == facts["tokens_before"] - gone
        assert 0.9 * facts["tokens_after"] <= cut["tokens_after"] <= facts["tokens_after"] == cut["budget"]

    kept = {
        name: report["compression"]["systems"][name]["losses"]["shares"]["kept"]["value"] for name in ("theirs", "full")
    }
    scores = {name: report["summary"][name]["mean_score"] for name in ("theirs", "full", "none")}
    assert kept["theirs"] < kept["full"]
    assert scores["full"] > scores["theirs"] > scores["none"]


def test_what_a_proxy_asks_on_its_own_account_is_no_part_of_what_is_left(tmp_path, port):
    with MisbehavingProxy("calls-twice", f"http://127.0.0.1:{port}") as proxy:
        report = compress(tmp_path, port, proxy, "--controls", "head_tail", "--per-type", "1")
    wire = report["wire"]["theirs"]
    assert wire["calls_per_request"] == 2
    assert wire["forwarded"] > wire["sent"]
    sized = rows_of(report, "head_tail@theirs")
    for name, row in rows_of(report, "theirs").items():
        assert row["metadata"]["tokens_after"] == row["metadata"]["tokens_before"] == sized[name]["metadata"]["budget"]


def test_nothing_but_the_command_is_needed(tmp_path, port, capsys):
    """The sentence reader is the upstream by default: no model, no key. The report says in words what became of the
    roles.
    """
    with Rewriting(in_body(third_party), f"http://127.0.0.1:{port}") as proxy:
        line = [
            "compress",
            "run",
            SESSION,
            "--proxy",
            proxy.url,
            "--tap",
            str(port),
            "--controls",
            "full",
            "--per-type",
            "1",
            "--quiet",
            "--full",
        ]
        assert main([*line, "--store", str(tmp_path / "store.db")]) == 0
    told = capsys.readouterr().out
    assert "system_role_lost" in told
    assert "assistant_role_changed" in told
    assert f"127.0.0.1:{proxy.url.rsplit(':', 1)[1]}" in told


def test_where_the_proxy_gives_no_answer_its_controls_have_no_size(tmp_path, port):
    def refuses(body):
        third_party(body)
        if len(body["messages"]) > 2:
            body["messages"] = []  # the model answers 400

    with Rewriting(in_body(refuses), f"http://127.0.0.1:{port}") as proxy:
        report = compress(tmp_path, port, proxy, "--controls", "full,head_tail", "--per-type", "1", code=1)
    theirs, sized = rows_of(report, "theirs"), rows_of(report, "head_tail@theirs")
    assert theirs
    assert all(row["errors"]["system"].startswith("Refused") for row in theirs.values())
    assert all(row["errors"]["system"].startswith("NoBudget") for row in sized.values())
    assert not any(row.get("errors") for row in rows_of(report, "full").values())


def test_another_wire(tmp_path, port):
    with MisbehavingProxy("user-only", f"http://127.0.0.1:{port}") as proxy:
        report = compress(
            tmp_path, port, proxy, "--controls", "full,head_tail", "--per-type", "1", "--wire", "anthropic"
        )
    assert not any(row.get("errors") for row in report["rows"])
    violations = report["wire"]["theirs"]["violations"]
    assert violations["system_role_lost"] == len(rows_of(report, "theirs"))
    assert violations["assistant_role_changed"] > 0


def test_a_proxy_that_does_not_reach_the_tap_is_told_how(tmp_path, port, capsys):
    with serving(SentenceModel()) as elsewhere, Rewriting(in_body(third_party), elsewhere.url) as proxy:
        line = ["compress", "run", SESSION, "--proxy", proxy.url, "--name", "theirs", "--tap", str(port), "--quiet"]
        assert main([*line, "--store", str(tmp_path / "store.db")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"Start theirs with its upstream base URL = http://127.0.0.1:{port}" in told


def test_two_answerers_are_one_too_many(capsys):
    assert (
        main(["compress", "run", "--proxy", "http://127.0.0.1:1", "--upstream", "embedded", "--responder", "sentence"])
        == 2
    )
    assert "--reader sentence: behind a tap the upstream answers for all, here embedded" in capsys.readouterr().err


def test_sessions_through_a_proxy_without_a_model(tmp_path, port, capsys):
    out = tmp_path / "wire.json"
    with Rewriting(in_body(third_party), f"http://127.0.0.1:{port}") as proxy:
        line = ["compress", "wire", SESSION, "--proxy", proxy.url, "--name", "theirs", "--tap", str(port), "--quiet"]
        line += [
            "--store",
            str(tmp_path / "store.db"),
            "--output",
            "json",
            "--out",
            str(out),
            "--max",
            "violations=0",
            "--min",
            "retained=0.1",
        ]
        assert main(line) == 4
    error = capsys.readouterr().err
    assert "theirs/violations is" in error
    assert "retained" not in error.replace("retained=", "")
    (figures,) = json.loads(out.read_text())["replay"]["systems"].values()
    assert figures["violations"]["system_role_lost"] == {"times": figures["requests"], "requests": figures["requests"]}
    assert figures["tokens"]["forwarded"] < figures["tokens"]["sent"]
    assert figures["fidelity"]["retained"] < 1
    assert figures["cache"]["prefix_stability"] == pytest.approx(1)


def test_pairs_are_still_one_file(tmp_path, capsys):
    assert main(["compress", "wire", "a.jsonl", "b.jsonl"]) == 2
    assert "2 files of pairs; give one, or --proxy URL" in capsys.readouterr().err
