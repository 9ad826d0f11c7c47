"""The rest of the command line on real sockets: money, resuming, scoring again, exporting, plug-ins, servers,
doctor.
"""

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, open_watch, run_of
from context_bench.judge.llm_judge import prompt_for
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.session.runs import result_of
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.viewer.working import summarised
from outside_count import tokens

QUESTIONS = {
    f"What is the word of box {i}?": {"answer": f"word{i}", "evidence": f"Box {i} holds word{i}"} for i in range(8)
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with eight examples."""
    lines = [
        {
            "id": i,
            "context": f"Box {i} holds word{i}. Nobody knows why.",
            "question": question,
            "answer": known["answer"],
        }
        for i, (question, known) in enumerate(QUESTIONS.items())
    ]
    (tmp_path / "boxes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model():
    """A provider that knows every word."""
    rules = [{"when": {"text": re.escape(question)}, "text": known["answer"]} for question, known in QUESTIONS.items()]
    server = ModelServer(Scripted({"rules": [*rules, {"text": "nine"}]}))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


def bench(model, *more):
    return main(["--proxy", model.url, "--name", "p", "--dataset", "boxes.jsonl", "--model", "m", "--quiet", *more])


def report(path="r.json"):
    return json.loads(Path(path).read_text())


JSON = ("--output", "json", "--out", "r.json")


def test_the_cost_cap_stops_to_the_cent(place):
    """What was billed stays below the cap, and the next call at its worst could have passed it.

    Worst: all of --max-tokens used, and a prompt half as long again as counted, since the model's tokenizer is not
    known, with room for a chat template (8 tokens a message and 32).
    """
    counted = ModelServer(Scripted({"default": "one two three four"}))
    run_sync(counted.start())

    def dollars(request, reply_tokens):
        return tokens(request.text) * 1e-3 + reply_tokens * 1e-2

    try:
        price = ("--price", "m=1000,10000", "--max-tokens", "10")
        whole = bench(counted, *price, "--run", "whole", *JSON)
        every = [dollars(request, 4) for request in counted.requests]
        cap = sum(every[:6])
        counted.requests.clear()
        assert bench(counted, *price, "--max-cost", f"{cap:.6f}", "--run", "capped", *JSON) == 5
    finally:
        run_sync(counted.stop())
    assert whole == 0
    spent = sum(dollars(request, 4) for request in counted.requests)
    assert spent <= cap
    prompts = [tokens(request.text) for request in counted.requests]
    assert spent + (round(1.5 * max(prompts)) + 8 + 32) * 1e-3 + 10 * 1e-2 > cap
    assert 2 <= len(prompts) < 6
    rows = report()["rows"]
    assert len(rows) == len(counted.requests) - 1  # the preflight's call costs too
    assert sum(row["usage"]["cost"] for row in rows) == pytest.approx(spent - dollars(counted.requests[0], 4))


def test_a_cap_without_a_price_is_refused_before_any_call(place, model, capsys):
    assert bench(model, "--max-cost", "1") == 2
    assert "--price m=INPUT,OUTPUT" in capsys.readouterr().err
    assert model.seen == 0


def test_a_named_run_resumes_and_a_finished_one_asks_nothing(place, model):
    assert bench(model, "--run", "one", "-n", "3", *JSON) == 0
    first = model.seen
    assert bench(model, "--run", "one", "-n", "3", *JSON) == 0
    assert model.seen == first + 1  # only the preflight
    assert bench(model, "--run", "one", *JSON) == 0
    assert model.seen == first + 2 + 5
    assert len(report()["rows"]) == 8


def test_a_name_that_is_taken_keeps_its_run(place, model, capsys):
    """Of another kind, with other systems or on other data, a command could keep nothing of the run."""
    assert bench(model, "--run", "one", *JSON) == 0
    lines = [{"id": 0, "response": "word0", "system": "p", "dataset": "boxes.jsonl"}]
    (place / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.copy(place / "boxes.jsonl", place / "same.jsonl")
    (place / "other.jsonl").write_text((place / "boxes.jsonl").read_text().replace("Box", "Crate"))
    system = ["--system", "full", "--upstream", "echo", "--model", "m", "--quiet", "--run", "one"]
    grade = ["grade", "--system", "full", "--check", "request", "--quiet", "--run", "one"]
    others = {
        "import of p on boxes.jsonl": ["import", "answers.jsonl", "--name", "one"],
        "run of full on boxes.jsonl": [*system, "--dataset", "boxes.jsonl"],
        "run of p on other.jsonl": ["--proxy", model.url, "--name", "p", "--dataset", "other.jsonl", *system[4:]],
        "grade of full on grade:system": grade,
    }
    capsys.readouterr()
    for what, command in others.items():
        assert main(command) == 2, what
        said = " ".join(capsys.readouterr().err.split())
        assert "the name 'one' is taken (run of p on boxes.jsonl, 8 rows), and this would be another" in said
        assert f"({what})" in said
        assert "--run, or --name of an import" in said
    assert main(["show", "one", *JSON]) == 0
    assert len(report()["rows"]) == 8
    moved = ["--proxy", model.url, "--name", "p", "--dataset", "same.jsonl", *system[4:]]
    assert main(moved) == 0  # the same content under another path
    assert "stay in the store" not in capsys.readouterr().err


def test_rows_that_leave_a_run_are_told(place, model, capsys):
    assert bench(model, "--run", "one", *JSON) == 0
    capsys.readouterr()
    assert bench(model, "--run", "one", "--metric", "latency", *JSON) == 0
    assert "stay in the store" not in capsys.readouterr().err
    seen = model.seen
    other = ("--model", "other")
    assert (
        main(["--proxy", model.url, "--name", "p", "--dataset", "boxes.jsonl", *other, "--run", "one", "--quiet"]) == 0
    )
    said = " ".join(capsys.readouterr().err.split())
    assert "run 'one' now holds 8 rows: p is set otherwise. The 8 rows that it held before stay in the store" in said
    assert bench(model, "--run", "one", "-n", "3", *JSON) == 0
    assert "run 'one' now holds 3 rows" in " ".join(capsys.readouterr().err.split())
    assert bench(model, "--run", "one", *JSON) == 0
    assert model.seen == seen + 1 + 8 + 1 + 1  # a check before each; the first eight answers are still there


def test_imports_take_no_name_of_each_other(place, capsys):
    for number in (1, 2):
        (place / str(number)).mkdir()
        (place / str(number) / "log.jsonl").write_text(json.dumps({"id": number, "response": "x"}) + "\n")
    for number, name in ((1, "import-log"), (2, "import-log-2")):
        assert main(["import", f"{number}/log.jsonl", *JSON]) == 0
        assert f"stored as {name}: 1 rows" in capsys.readouterr().err
    assert main(["import", "1/log.jsonl", "--name", "import-log", *JSON]) == 0  # the same once more
    assert "stay in the store" not in capsys.readouterr().err
    assert main(["import", "2/log.jsonl", "--name", "import-log", *JSON]) == 0
    assert "The 1 rows that it held before stay in the store" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["", " ", "last"])
def test_a_run_cannot_have_the_name_of_the_newest(place, model, capsys, name):
    assert bench(model, f"--run={name}", "-n", "3") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"--run {name!r}: expected a name; 'last' stands for the newest run" in said
    assert model.seen == 0


def test_a_margin_changed_later_is_called_post_hoc(place, model):
    assert bench(model, "--run", "one", "-n", "3", "--margin", "0.05", *JSON) == 0
    first = report()
    assert not any("Post hoc" in note for note in first["notes"])
    assert bench(model, "--run", "one", "--margin", "0.05", *JSON) == 0  # more examples are no other question
    assert not any("Post hoc" in note for note in report()["notes"])
    assert report()["manifest"]["margin"]["hash"] == first["manifest"]["margin"]["hash"]
    assert bench(model, "--run", "one", "--margin", "0.2", *JSON) == 0
    changed = report()
    assert any("Post hoc: margin 0.05 became 0.2" in note for note in changed["notes"])
    assert changed["manifest"]["margin"]["hash"] != first["manifest"]["margin"]["hash"]
    assert main(["show", "one", "--score-field", "recall", *JSON]) == 0
    assert any("score f1 became recall" in note for note in report()["notes"])


def test_what_nobody_scored_is_no_zero(place, model):
    (place / "open.jsonl").write_text(
        '{"id": 1, "context": "Box 1 holds word1.", "question": "What is the word of box 1?"}\n'
    )
    line = ["--proxy", model.url, "--name", "p", "--dataset", "open.jsonl", "--model", "m", "--quiet", *JSON]
    assert main(line) == 0
    read = report()
    assert not any(row["scores"] for row in read["rows"])
    assert not {"mean_score", "pass_rate", "num_passing", "cost_of_pass"} & read["summary"]["p"].keys()


def test_a_new_run_never_returns_old_rows_unless_told_to(place, model, capsys):
    assert bench(model, "--run", "one", *JSON) == 0
    seen = model.seen
    assert bench(model, "--run", "two", *JSON) == 0
    assert model.seen == seen + 9
    assert bench(model, "--run", "three", "--reuse", *JSON) == 0
    assert model.seen == seen + 10
    assert "8 rows were already in the store" in capsys.readouterr().err


def test_scoring_again_calls_no_system(place, model):
    assert bench(model, "--run", "one", *JSON) == 0
    seen = model.seen
    (place / "longer.py").write_text(
        "class Length:\n    name = 'length'\n"
        "    def score(self, original, processed):\n        return {'length': float(len(processed['response']))}\n"
    )
    sys.path.insert(0, str(place))
    try:
        assert main(["rescore", "one", "--evaluator", "py:longer:Length", "--score-field", "length", *JSON]) == 0
    finally:
        sys.path.remove(str(place))
    assert model.seen == seen
    assert {row["scores"]["length"] for row in report()["rows"]} == {5.0}


def test_equal_runs_export_equal_bytes(place, model):
    exports = []
    for name in ("one", "two"):
        assert bench(model, "--run", name, *JSON) == 0
        assert main(["export", name, "--canonical", "--out", f"{name}.json"]) == 0
        exports.append((place / f"{name}.json").read_bytes())
    assert exports[0] == exports[1]


@pytest.mark.parametrize(
    ("output", "sign"),
    [("table", "mean f1"), ("markdown", "Evaluation Results"), ("html", "rowData"), ("csv", "example_id")],
)
def test_every_format_of_a_stored_run(place, model, output, sign, capsys):
    assert bench(model, "--run", "one", *JSON) == 0
    capsys.readouterr()
    assert main(["show", "one", "--full", "--output", output]) == 0
    assert sign in capsys.readouterr().out


def commands_in(text):
    """Commands that a text shows for copying, as a shell splits them. Elements that keep a word whole are no part."""
    text = re.sub(r'<span class="whole">(.*?)</span>', r"\1", text.replace("\\\n", ""))
    found = re.findall(r"(?:<code>|Next: |All of it: |^ *)(context-bench [a-z]+ .*?)(?:</code>|$)", text, re.M)
    return [shlex.split(html.unescape(one))[1:] for one in found]


def test_every_printed_command_works_as_printed_on_a_store_elsewhere(place, capsys):
    """As the terminal, a page and its rows, and the viewer print it; the folder's name takes quoting."""
    (place / "it's odd, and long").mkdir()
    store = ["--store", "it's odd, and long/s.db"]
    run = ["run", "--system", "full", "--system", "head_tail:keep=0.3", "--system", "minify", "--evidence-only"]
    run += ["--run", "one's", "--quiet"]
    assert (
        main([*run, "--dataset", "bundled:pydocs-qa", "-n", "12", *store, "--output", "html", "--out", "r.html"]) == 0
    )
    assert main(["show", "one's", *store]) == 0
    texts = [capsys.readouterr().out, (place / "r.html").read_text()]
    with open_store(store[1]) as kept:
        worked = summarised(store[1], run_of(kept, "one's").id, result_of)
    printed = [commands_in(text) for text in [*texts, worked.html]]
    assert all(printed)
    for command in (each for some in printed for each in some):
        assert command[-2:] == store, command
        if command[0] in ("power", "gate", "diff", "show") and "EXAMPLE" not in command:
            assert main(command) in (0, 4), command


def test_a_name_of_no_run_is_told_from_a_watch_and_from_the_newest(place, model, capsys):
    (place / "one.jsonl").write_text('{"id": 1, "response": "x"}\n')
    for _ in range(22):
        assert main(["import", "one.jsonl", "--output", "json", "--out", "x.json"]) == 0
    with open_store(".context-bench/store.db") as kept:
        open_watch(kept, {}, name="looked")
    capsys.readouterr()
    for name, about in (("nothing", ""), ("looked", "A watch is called so, and this is about runs; ")):
        assert main(["gate", name, "--min", "f1=1"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert about in said
        assert "Known: import-one-22, import-one-21," in said
        assert "import-one-3 and 2 more, which `context-bench runs` lists." in said
    assert main(["show", "import-one-23"]) == 2
    assert "Did you mean import-one-" in capsys.readouterr().err


def test_a_run_that_kept_no_requests_says_which_option_keeps_them(place, model, capsys):
    assert bench(model, "--run", "one", "--bodies", "none", *JSON) == 0
    assert main(["explain", "one"]) == 2
    assert "no request was kept; run it again with --bodies all" in " ".join(capsys.readouterr().err.split())


def test_runs_are_listed_and_purged(place, model, capsys):
    assert bench(model, "--run", "one", *JSON) == 0
    assert main(["runs", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["status"], listed["rows"]) == ("one", "done", 8)
    assert main(["purge", "--older-than", "1h"]) == 0
    assert main(["purge", "--older-than", "0s"]) == 0
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_dry_run_sends_nothing_and_says_what_it_would_take(place, model, capsys):
    assert bench(model, "--dry-run", "--price", "m=1,2", "--margin", "0.05") == 0
    said = capsys.readouterr().out
    assert model.seen == 0
    assert "8 examples" in said
    assert "8 calls" in said
    assert "$" in said
    assert "margin: 0.05" in said
    assert not (place / ".context-bench").exists()


def test_a_dry_run_counts_the_judges_money_too(place, model, capsys):
    """A judge call at worst: its prompt with the longest reply, half as much again for an unknown tokenizer, 40 more;
    16 tokens out.
    """

    def forecast(*more):
        assert bench(model, "--dry-run", "--price", "m=1000,2000", "--max-tokens", "10", *more) == 0
        return float(re.search(r"worst-case money: \$([\d.,]+)", capsys.readouterr().out)[1])

    examples = [json.loads(line) for line in (place / "boxes.jsonl").read_text().splitlines()]
    prompts = [tokens(prompt_for(example, {"response": ""})) for example in examples]
    judges = sum((round(1.5 * (tokens + 10)) + 40) * 1000 + 16 * 2000 for tokens in prompts) / 1e6
    judged = forecast("--judge-url", model.url, "--judge-model", "m")
    assert judged - forecast() == pytest.approx(judges, abs=0.011)
    assert judges > 1
    assert model.seen == 0


def test_an_unknown_format_is_refused_before_anything_is_sent(place, model, capsys):
    assert bench(model, "--output", "yaml") == 2
    assert "Unknown report format 'yaml'" in capsys.readouterr().err
    assert model.seen == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nowhere.invalid:80"])
def test_a_tap_that_is_not_there_is_a_plain_sentence(place, model, capfd, url):
    assert bench(model, "--tap", url) == 2
    said = capfd.readouterr().err
    assert "no tap answers at http://" in said
    assert "Traceback" not in said
    assert "Unclosed" not in said


def test_plug_ins_of_every_kind_from_one_module(place, model, capsys):
    (place / "mine.py").write_text(
        """
from context_bench import register_dataset, register_evaluator, register_metric, register_reporter, register_system

class Shout:
    name = "shout"
    def process(self, example):
        return {**example, "context": example["context"][:10], "response": example["answer"].upper()}

class Loud:
    name = "loud"
    def score(self, original, processed):
        return {"loud": float(processed["response"].isupper())}

class HowLoud:
    name = "how_loud"
    def compute(self, rows):
        return {"how_loud": sum(row.scores["loud"] for row in rows) / len(rows)}

class Line:
    def render(self, page):
        return "LINE " + page.title

register_dataset("mine", lambda n=None: [{"id": 1, "context": "a b c d e f g", "question": "q", "answer": "yes"}][:n])
register_system("shout", Shout)
register_evaluator("loud", Loud)
register_metric("how_loud", HowLoud)
register_reporter("line", Line())
"""
    )
    sys.path.insert(0, str(place))
    try:
        command = [
            "--import",
            "mine",
            "--system",
            "shout",
            "--dataset",
            "mine",
            "--evaluator",
            "loud",
            "--metric",
            "how_loud",
            "--quiet",
        ]
        assert main([*command, *JSON]) == 0
        assert report()["summary"]["shout"]["how_loud"] == 1.0
        assert report()["summary"]["shout"]["compression_ratio"] > 0
        assert main([*command, "--output", "line"]) == 0
    finally:
        sys.path.remove(str(place))
    assert "LINE" in capsys.readouterr().out


def test_a_judge_is_asked_and_its_calls_are_apart(place, model):
    """The judge gives 5 where the gold answer comes back in the response, else 1; three calls of its preflight, then
    one per row.
    """
    judge = ModelServer(
        Scripted({"rules": [{"when": {"text": r"(?s)\b(Paris|word\d)\b.*\b\1\b"}, "text": "5"}, {"text": "1"}]})
    )
    run_sync(judge.start())
    try:
        assert bench(model, "--judge-url", judge.url, "--judge-model", "j", "-n", "2", *JSON) == 0
    finally:
        run_sync(judge.stop())
    assert judge.seen == 3 + 2
    rows = report()["rows"]
    assert [row["scores"]["judge_score"] for row in rows] == [1.0, 1.0]
    assert all(row["usage"]["calls"] == 1 and row["usage"]["judge"]["calls"] == 1 for row in rows)


def test_a_dead_judge_is_found_before_any_row_is_judged(place, model, capsys):
    assert bench(model, "--run", "one", *JSON) == 0
    assert main(["rescore", "one", "--judge-url", "http://127.0.0.1:9", *JSON]) == 2
    assert "the judge" in capsys.readouterr().err


def test_a_reader_answers_for_systems_that_only_return_a_context(place, model):
    """Without a provider: the control shortens, the reader answers from what is left."""
    command = [
        "--system",
        "head_tail:keep=0.9",
        "--reader",
        model.url,
        "--dataset",
        "boxes.jsonl",
        "--model",
        "m",
        "--quiet",
    ]
    assert main([*command, *JSON]) == 0
    (found,) = report()["summary"].values()
    assert found["mean_score"] == pytest.approx(1.0)
    assert model.seen == 8


def test_a_module_that_cannot_be_imported_is_named(place, model, capsys):
    assert bench(model, "--import", "no_such_module") == 2
    assert "no_such_module" in capsys.readouterr().err


@pytest.mark.parametrize("habit", ["nothing", "user-only"])
def test_the_doctor_says_what_a_proxy_changes(place, habit, capsys):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with MisbehavingProxy(habit, f"http://127.0.0.1:{port}") as proxy:
        main(["doctor", "--proxy", proxy.url, "--tap", str(port), "--json"])
    found = {item["name"]: item["status"] for item in json.loads(capsys.readouterr().out)}
    roles = next(status for name, status in found.items() if "role" in name)
    assert (roles == "ok") is (habit == "nothing")


def _server(*arguments):
    """A command that serves, as a process; waits for its first line on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "context_bench", *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    line = process.stderr.readline()
    return process, re.search(r"http://127\.0\.0\.1:\d+", line)[0]


def _stop(process):
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    process.stderr.close()


def _ask(url, text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.loads(reply.read())["usage"]["prompt_tokens"]


def test_tap_and_serve_as_processes(place):
    tap, tap_url = _server("tap", "--port", "0", "--upstream", "echo", "--out", "seen.jsonl")
    served, served_url = _server("serve", "--system", "head_tail:keep=0.3", "--upstream", tap_url, "--port", "0")
    try:
        long = "word " * 500 + "\n\nQuestion: what?"
        whole, part = _ask(tap_url, long), _ask(served_url, long)
        assert part < 0.5 * whole
        deadline = time.monotonic() + 20
        while len((place / "seen.jsonl").read_text().splitlines()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        _stop(served)
        _stop(tap)
    records = [json.loads(line) for line in (place / "seen.jsonl").read_text().splitlines()]
    assert [record["tokens"] for record in records] == [whole, part]
    assert "word word" not in (place / "seen.jsonl").read_text()
    assert (place / "seen.jsonl").stat().st_mode & 0o077 == 0


def test_a_run_reads_a_tap_that_is_already_running(place):
    tap, tap_url = _server("tap", "--port", "0", "--upstream", "echo", "--record", "full")
    try:
        with MisbehavingProxy("halves", tap_url) as proxy:
            code = main(
                [
                    "--proxy",
                    proxy.url,
                    "--name",
                    "p",
                    "--dataset",
                    "boxes.jsonl",
                    "--tap",
                    tap_url,
                    "--model",
                    "m",
                    "--quiet",
                    *JSON,
                ]
            )
    finally:
        _stop(tap)
    assert code == 0
    read = report()
    assert {row["metadata"]["forwarded_source"] for row in read["rows"]} == {"tap"}
    assert all(row["output_tokens"] < row["input_tokens"] for row in read["rows"])
    assert read["wire"]["p"]["authorization_forwarded"] is True


def test_ctrl_c_keeps_what_was_finished_and_the_same_command_goes_on(place, tmp_path):
    slow = ModelServer(Scripted({"rules": [{"when": {"text": "box"}, "text": "word", "delay": 0.15}, {"text": "ok"}]}))
    run_sync(slow.start())
    command = [
        sys.executable,
        "-m",
        "context_bench",
        "--proxy",
        slow.url,
        "--name",
        "p",
        "--dataset",
        "boxes.jsonl",
        "--run",
        "one",
        *JSON,
    ]
    try:
        process = subprocess.Popen([*command, "--quiet"], stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 30
        while slow.seen < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130
        kept = len(report()["rows"])
        assert 1 <= kept < 8
        assert "This run is not finished (interrupted)" in report()["notes"][0]
        before = slow.seen
        assert subprocess.run([*command, "--quiet"], check=False).returncode == 0
        assert len(report()["rows"]) == 8
        assert not any("not finished" in note for note in report()["notes"])
        assert slow.seen - before <= 8 - kept + 1
    finally:
        run_sync(slow.stop())
