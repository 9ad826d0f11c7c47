"""The main job as a user runs it: `context-bench run` against loopback proxies, each with one habit, and a tap behind
them.

What the report says is compared with an independent count: the requests that the model server received, counted by
another tokenizer.
"""

from __future__ import annotations

import json
import socket

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy
from outside_count import tokens

COLOURS = ["amber", "birch", "coral", "delft", "ebony", "fawn", "green", "hazel"]


def sentence(i: int) -> str:
    return f"The door of house number {i} was painted in the colour {COLOURS[i]} last spring."


@pytest.fixture
def files(tmp_path):
    """Eight questions; four answers stand in the first half of the context and four in the second."""
    filler = " ".join(
        f"Neighbour {k} says that the street has been quiet since the works of year {k}." for k in range(12)
    )
    examples, key = [], {}
    for i in range(8):
        parts = [sentence(i), filler] if i % 2 == 0 else [filler, sentence(i)]
        question = f"In what colour was the door of house number {i} painted?"
        examples.append({"id": i, "context": " ".join(parts), "question": question, "answer": COLOURS[i]})
        key[question] = {"answer": COLOURS[i], "evidence": f"the colour {COLOURS[i]}"}
    data = tmp_path / "doors.jsonl"
    data.write_text("".join(json.dumps(example) + "\n" for example in examples))
    script = {"answer_key": key}
    return data, script, tmp_path


@pytest.fixture
def model(files):
    """The provider: answers right only where the evidence arrives, and remembers every request."""
    server = ModelServer(Scripted(files[1]))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(files, model, habits, *more, code=0, tap=None):
    """Run the command with one proxy per habit, all in front of a tap of its own or the one at `tap`; returns the JSON
    report.
    """
    data, _, folder = files
    port = free_port()
    report = folder / "report.json"
    proxies = [MisbehavingProxy(habit, tap or f"http://127.0.0.1:{port}") for habit in habits]
    for proxy in proxies:
        proxy.__enter__()
    try:
        named = [
            part
            for habit, proxy in zip(habits, proxies, strict=True)
            for part in ("--proxy", proxy.url, "--name", habit)
        ]
        seen = ["--tap", tap] if tap else ["--tap", str(port), "--upstream", model.url]
        options = ["--dataset", str(data), "--model", "gpt-4o-mini", *seen]
        options += ["--store", str(folder / "store.db"), "--output", "json", "--out", str(report), "--quiet"]
        assert main([*named, *options, *more]) == code
    finally:
        for proxy in proxies:
            proxy.__exit__(None, None, None)
    return json.loads(report.read_text())


def received(model):
    """Requests that the provider got, without those of the preflight and of the positive control."""
    ours = ("When does the gate open", "What is the largest number in it?")
    return [request for request in model.requests if not any(text in request.text for text in ours)]


def test_a_halving_proxy_is_measured_to_the_token(files, model):
    report = run(files, model, ["nothing", "halves"], "--baseline", "nothing")
    rows = {name: [row for row in report["rows"] if row["system"] == name] for name in ("nothing", "halves")}
    bodies = received(model)
    full = [request for request in bodies if "Neighbour 11" in request.text and "house number" in request.text]
    assert len(bodies) == 16
    assert sum(row["output_tokens"] for row in report["rows"]) == sum(tokens(request.text) for request in bodies)
    assert all(row["input_tokens"] == row["output_tokens"] for row in rows["nothing"])
    assert report["summary"]["nothing"]["compression_ratio"] == pytest.approx(0.0)
    assert 0.4 < report["summary"]["halves"]["compression_ratio"] < 0.6
    assert report["summary"]["nothing"]["mean_score"] == pytest.approx(1.0)
    assert report["summary"]["halves"]["mean_score"] == pytest.approx(0.5)  # the second half is where four answers were
    assert len(full) >= 8
    assert report["wire"]["halves"]["calls_per_request"] == pytest.approx(1.0)
    assert report["wire"]["halves"]["unmatched"] == 0


def test_habits_are_reported_as_they_are(files, model):
    report = run(files, model, ["nothing", "user-only", "calls-twice", "drops-keys"], "--shape", "plain-system")
    wire = report["wire"]
    assert not wire["nothing"].get("role_changes")
    assert wire["user-only"]["role_changes"]
    assert not wire["calls-twice"].get("role_changes")
    assert wire["nothing"]["calls_per_request"] == pytest.approx(1.0)
    assert wire["calls-twice"]["calls_per_request"] == pytest.approx(2.0)
    assert wire["nothing"]["authorization_forwarded"] is True
    assert wire["drops-keys"]["authorization_forwarded"] is False
    cost = {name: sum(row["usage"]["cost"] for row in report["rows"] if row["system"] == name) for name in wire}
    billed = {
        name: sum(row["usage"]["input_tokens"] for row in report["rows"] if row["system"] == name) for name in wire
    }
    assert billed["calls-twice"] == wire["calls-twice"]["billed"] > wire["nothing"]["billed"] == billed["nothing"]
    assert cost["nothing"] == pytest.approx(cost["user-only"])
    assert cost["calls-twice"] > cost["nothing"] * 1.05  # the summary that it asked for is on the bill too


def test_a_proxy_without_our_key_needs_one_request_at_a_time(files, model, capsys):
    with pytest.raises(FileNotFoundError):  # no report: it stopped before
        run(files, model, ["drops-keys"], "--max-workers", "4", code=2)
    assert "does not pass on the key" in capsys.readouterr().err
    with Tap(model.url) as tap:
        run_sync(
            tap.begin("somebody else's")
        )  # never ended: no request without a key can be told by time, however the workers interleave
        report = run(files, model, ["nothing", "drops-keys"], "--max-workers", "4", "--no-tap-check", tap=tap.url)
    wire = report["wire"]["drops-keys"]
    assert wire["unmatched"] == 8 + 1  # each example, and the question of the preflight
    assert "forwarded" not in wire
    assert "calls_per_request" not in wire  # not 0: they are among the unmatched
    assert report["wire"]["nothing"]["calls_per_request"] == pytest.approx(1.0)


def test_a_proxy_that_works_only_on_plain_shapes_shows_it_per_shape(files, model):
    report = run(files, model, ["plain-only"], "--shape", "plain-user,claude-code")
    ratio = {name: values["compression_ratio"] for name, values in report["summary"].items()}
    plain, agent = (
        next(value for name, value in ratio.items() if shape in name) for shape in ("plain-user", "claude-code")
    )
    assert plain > 0.3
    assert agent == pytest.approx(0.0)
    assert {row["metadata"]["shape"] for row in report["rows"]} == {"plain-user", "claude-code"}
    (note,) = [note for note in report["notes"] if "does nothing" in note]
    assert "claude-code" in note
    assert "plain-user" in note


def test_does_nothing_is_said_only_of_a_proxy_that_was_seen_to_do_something(files, model):
    report = run(files, model, ["nothing"], "-n", "2")
    assert any("inactive or degraded here" in note for note in report["notes"])
    assert not any("does nothing" in note for note in report["notes"])


def test_two_unnamed_proxies_on_one_host_stay_two(files, model):
    data, _, folder = files
    port = free_port()
    with (
        MisbehavingProxy("nothing", f"http://127.0.0.1:{port}") as one,
        MisbehavingProxy("halves", f"http://127.0.0.1:{port}") as two,
    ):
        out = folder / "two.json"
        command = [
            "--proxy",
            one.url,
            "--proxy",
            two.url + "/v1/",
            "--dataset",
            str(data),
            "--tap",
            str(port),
            "--upstream",
            model.url,
        ]
        assert main([*command, "--store", str(folder / "s.db"), "--output", "json", "--out", str(out), "--quiet"]) == 0
    report = json.loads(out.read_text())
    assert len(report["summary"]) == 2
    assert {value["mean_score"] for value in report["summary"].values()} == {1.0, 0.5}


def test_controls_get_the_budget_that_the_proxy_forwarded(files, model):
    report = run(files, model, ["halves"], "--controls", "full,full#2,none,head_tail,random_drop,bm25")
    rows = {}
    for row in report["rows"]:
        rows.setdefault(row["system"], {})[row["example_id"]] = row
    assert set(rows) == {"halves", "full", "full#2", "none", "head_tail@halves", "random_drop@halves", "bm25@halves"}
    for i in range(8):
        for control in ("head_tail@halves", "random_drop@halves", "bm25@halves"):
            assert rows[control][i]["output_tokens"] <= rows["halves"][i]["output_tokens"]
    assert report["summary"]["none"]["mean_score"] == 0.0
    assert report["summary"]["bm25@halves"]["mean_score"] == pytest.approx(1.0)
    assert {c["system"]: c["verdict"] for c in report["comparisons"]}["none"] == "inferior"


def test_without_a_tap_the_provider_is_believed_and_named(files, model):
    data, _, folder = files
    out = folder / "r.json"
    with MisbehavingProxy("halves", model.url) as proxy:
        command = [
            "--proxy",
            proxy.url,
            "--dataset",
            str(data),
            "--store",
            str(folder / "s.db"),
            "--output",
            "json",
            "--out",
            str(out),
        ]
        assert main([*command, "--quiet"]) == 0
    report = json.loads(out.read_text())
    assert {row["metadata"]["forwarded_source"] for row in report["rows"]} == {"usage"}
    assert not report.get("wire", {}).get("halves", {}).get("forwarded")
    assert all(row["output_tokens"] < row["input_tokens"] for row in report["rows"])


def test_a_proxy_that_goes_round_the_tap_is_refused_with_what_to_do(files, model, capsys):
    data, _, folder = files
    port = free_port()
    with MisbehavingProxy("nothing", model.url) as proxy:
        command = [
            "--proxy",
            proxy.url,
            "--name",
            "stray",
            "--dataset",
            str(data),
            "--tap",
            str(port),
            "--upstream",
            model.url,
        ]
        assert main([*command, "--store", str(folder / "s.db"), "--quiet"]) == 2
        said = capsys.readouterr().err
        assert "stray" in said
        assert f"http://127.0.0.1:{port}" in said
        assert main([*command, "--store", str(folder / "s.db"), "--quiet", "--no-tap-check"]) in (0, 1)
