"""The bill by source in the reports of run, replay and watch, and nowhere without traffic."""

import contextlib
import json
import socket
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from context_bench.__main__ import main

ROWS = json.dumps([{"ship": f"ship {n}", "tons": n * 10.5} for n in range(40)], indent=2)
TOOLS = [
    {"type": "function", "function": {"name": name, "description": about, "parameters": {"type": "object"}}}
    for name, about in (("ships", "List the ships."), ("never", "A tool that nobody calls in this session."))
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def bodies(turns=3):
    messages = [{"role": "system", "content": "You are a harbour master."}, {"role": "user", "content": "Which float?"}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "ships", "arguments": "{}"}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{turn}", "content": ROWS}]
        yield {"model": "gpt-4o", "messages": list(messages), "tools": TOOLS}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies()))
    return path


def written(folder, form, *words):
    out = folder / f"out.{form}"
    assert main([*map(str, words), "--store", str(folder / "s.db"), "--output", form, "--out", str(out)]) == 0
    return out.read_text()


def test_a_replay_tells_where_the_tokens_went_and_what_each_system_achieved(tmp_path, log, capsys):
    words = ["replay", log, "--controls", "minify", "--upstream", "echo", "--tap", free_port(), "--run", "r"]
    found = json.loads(written(tmp_path, "json", *words, "--price", "gpt-4o=1,2"))
    bill = found["bill"]["minify"]
    assert bill["turns"] == 3
    billed = sum(row[name] for row in bill["by_kind"].values() for name in ("read", "written", "plain"))
    assert billed == pytest.approx(bill["total"]["input"])
    assert sum(row["usd"] for row in bill["by_kind"].values()) == pytest.approx(bill["total"]["usd"])
    reach = bill["reach"]
    assert reach["minify"]["achieved"] == pytest.approx(1)
    assert reach["tools-unused"]["achieved"] == 0
    assert 0.3 < reach["csv"]["achieved"] < 1
    assert reach["tool-results"]["sent"] > 0.8 > reach["minify"]["sent"] > 0
    assert len(bill["dearest"]) <= 10
    assert bill["dearest"][0]["kind"] == "results"
    pages = {form: written(tmp_path, form, "show", "r") for form in ("markdown", "html")}
    for part in ("Where the tokens went", "Dearest items", "What a tool could save at most, and what was achieved"):
        assert all(part in page for page in pages.values())
    assert pages["html"].index('id="appendix"') < pages["html"].index("Dearest items")
    assert "harbour master" not in json.dumps(bill)
    assert main(["show", "r", "--full", "--store", str(tmp_path / "s.db")]) == 0
    shown = capsys.readouterr().out
    assert "Dearest items" not in shown
    assert "explain r" in shown


def test_the_price_of_the_run_holds(tmp_path, log):
    words = ["replay", log, "--controls", "minify", "--upstream", "echo", "--tap", free_port(), "--run", "r"]
    found = json.loads(written(tmp_path, "json", *words, "--price", "gpt-4o=1000000,0"))
    total = found["bill"]["minify"]["total"]
    assert total["usd"] == pytest.approx(total["input"], rel=0.6)  # one dollar a token, less what the cache serves
    assert total["usd"] > 100


def test_a_run_through_a_tap_has_it_and_one_without_has_not(tmp_path):
    row = {"id": "1", "question": "How heavy is ship 3?", "answer": "31.5", "context": f"The ships:\n\n{ROWS}\n"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    words = ["run", "--dataset", tmp_path / "d.jsonl", "--upstream", "echo", "--controls", "full,none"]
    seen = json.loads(written(tmp_path, "json", *words, "--tap", free_port()))
    assert seen["bill"]["full"]["total"]["input"] > 10 * seen["bill"]["none"]["total"]["input"] > 0
    assert "bill" not in json.loads(written(tmp_path, "json", *words))


CLIENT = """
import json, os, sys, urllib.request
for line in open(sys.argv[1]):
    head = {"Content-Type": "application/json", "Authorization": "Bearer none-needed"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    urllib.request.urlopen(urllib.request.Request(url, line.encode(), head)).read()
"""


@pytest.mark.parametrize("policy", ["full", "meta"])
def test_a_watch_that_kept_bodies_has_it_in_short(tmp_path, log, capsys, policy):
    (tmp_path / "client.py").write_text(CLIENT)
    line = [
        "watch",
        "--front",
        free_port(),
        "--upstream",
        "echo",
        "--record",
        policy,
        "--store",
        str(tmp_path / "s.db"),
    ]
    assert main([*line, "--name", "w", "--quiet", "--", sys.executable, str(tmp_path / "client.py"), str(log)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(written(tmp_path, "json", "watch", "--show", "w"))
    if policy == "meta":
        assert "Where the tokens went" not in shown
        assert "bill" not in found
        return
    assert "Where the tokens went: 3 requests" in shown
    assert "What a tool could save at most" in shown
    assert all(len(each) <= 80 for each in shown.splitlines())
    bill = found["bill"]["main"]
    billed = sum(row[name] for row in bill["by_kind"].values() for name in ("read", "written", "plain"))
    assert billed == pytest.approx(bill["total"]["input"])
    assert billed > 1_000
    assert bill["reach"]["minify"]["sent"] > 0.2


# Turns that nobody saw, that failed, that were billed twice


@contextlib.contextmanager
def between(back):
    """The address of a proxy before `back`, which does what the last message of a request says: `own` (answers it
    itself), `fail`, `twice` (asks the provider twice), `beside` (asks it something else too).
    """

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *given):
            pass

        def ask(self, raw):
            headers = {name: self.headers[name] for name in ("Content-Type", "Authorization") if name in self.headers}
            request = urllib.request.Request(f"http://127.0.0.1:{back}{self.path}", raw, headers)
            with urllib.request.urlopen(request) as reply:
                return reply.read()

        def do_POST(self):
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(raw)
            asked, status = str(body["messages"][-1]["content"]), 200
            if asked.startswith("own"):
                message = {"role": "assistant", "content": "of my own"}
                answer = json.dumps(
                    {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
                ).encode()
            elif asked.startswith("fail"):
                answer, status = b'{"error": {"message": "not today"}}', 400
            else:
                if asked.startswith("twice"):
                    self.ask(raw)
                if asked.startswith("beside"):
                    other = {"model": body["model"], "messages": [{"role": "user", "content": "Another thing. " * 50}]}
                    self.ask(json.dumps(other).encode())
                answer = self.ask(raw)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def talk(path, *asked):
    """A log of one conversation whose requests end with these words."""
    messages, lines = [], []
    for words in asked:
        messages.append({"role": "user", "content": f"{words} of the ferry. " * 40})
        lines.append(json.dumps({"model": "gpt-4o", "messages": list(messages)}))
        messages.append({"role": "assistant", "content": "fine"})
    path.write_text("\n".join(lines) + "\n")
    return path


def replayed(folder, log, capsys, *more):
    """The report of a replay through the proxy, what `explain` says of it as JSON and as a table."""
    tap = free_port()
    with between(tap) as proxy:
        words = ["replay", log, "--proxy", f"{proxy}/v1", "--name", "p", "--upstream", "echo", "--tap", tap]
        report = json.loads(written(folder, "json", *words, *more, "--run", "r"))
    told = json.loads(written(folder, "json", "explain", "r"))
    capsys.readouterr()
    assert main(["explain", "r", "--store", str(folder / "s.db")]) == 0
    return report, told, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("last", ["own", "fail"])
def test_requests_that_were_not_seen_to_be_answered_are_told_and_all_others_are_accounted_for(tmp_path, capsys, last):
    log = talk(tmp_path / "log.jsonl", "one", "two", "three", last)
    report, told, shown = replayed(tmp_path, log, capsys, "--max-failures", "1")
    (tmp_path / "seen").mkdir()
    seen, _, _ = replayed(tmp_path / "seen", talk(tmp_path / "three.jsonl", "one", "two", "three"), capsys)
    assert (told["turns"], told["unseen_turns"]) == (3, 1)
    parts = ("new", "carried", "read", "plain", "input")
    assert [told["total"][part] for part in parts] == [seen["bill"]["p"]["total"][part] for part in parts]
    assert report["bill"]["p"]["total"] == pytest.approx(told["total"])
    assert report["bill"]["p"]["unseen_turns"] == 1
    assert "unseen_turns" not in seen["bill"]["p"]
    said = "and in none of these sums: 1 request"
    assert said in shown
    assert f"{said} of p." in written(tmp_path, "markdown", "show", "r")


def test_a_run_of_which_the_tap_saw_nothing_is_not_billed_as_it_was_sent(tmp_path, capsys):
    tap = free_port()
    with between(tap) as proxy:
        words = ["replay", talk(tmp_path / "log.jsonl", "own"), "--proxy", f"{proxy}/v1", "--name", "p"]
        assert "bill" not in json.loads(
            written(tmp_path, "json", *words, "--upstream", "echo", "--tap", tap, "--run", "r")
        )
    assert main(["explain", "r", "--store", str(tmp_path / "s.db")]) == 2
    assert "the tap saw no request of it answered by the provider" in capsys.readouterr().err


def test_calls_that_a_proxy_makes_twice_or_beside_are_in_the_bill_of_a_run(tmp_path, capsys):
    _, told, _ = replayed(tmp_path, talk(tmp_path / "log.jsonl", "one", "twice", "beside"), capsys)
    assert (told["turns"], told["parts"]["main"]["turns"], told["parts"]["side call"]["turns"]) == (5, 4, 1)


CHATTER = """
import json, os, sys, urllib.error, urllib.request
for line in open(sys.argv[1]):
    head = {"Content-Type": "application/json", "Authorization": "Bearer none-needed"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", line.encode(), head)
    try:
        urllib.request.urlopen(request).read()
    except urllib.error.HTTPError:
        pass
"""


def watched(folder, log, capsys):
    """The report of a watch of a client that sends a log through the proxy: as text, and as JSON."""
    (folder / "client.py").write_text(CHATTER)
    back = free_port()
    with between(back) as proxy:
        taps = ["watch", "--front", free_port(), "--proxy", proxy, "--back", back, "--upstream", "echo", "--quiet"]
        kept = ["--record", "full", "--store", str(folder / "s.db"), "--name", "w"]
        assert main([*taps, *kept, "--", sys.executable, str(folder / "client.py"), str(log)]) == 0
    return " ".join(capsys.readouterr().out.split()), json.loads(written(folder, "json", "watch", "--show", "w"))


def test_a_watch_says_which_turns_are_not_in_the_account_of_its_tokens(tmp_path, capsys):
    shown, found = watched(tmp_path, talk(tmp_path / "log.jsonl", "one", "two", "own", "fail", "three"), capsys)
    bill = found["bill"]["main"]
    assert (bill["turns"], bill["unseen_turns"]) == (3, 2)
    assert bill["total"]["output"] == found["arms"]["main"]["total"]["billed"]["output"]
    assert "Where the tokens went: 3 requests" in shown
    assert "Not seen to be answered by the provider" in shown
    assert "in none of these sums: 2 requests." in shown


def test_a_watch_accounts_for_every_call_that_was_billed(tmp_path, capsys):
    log = talk(tmp_path / "log.jsonl", "one", "twice", "beside")
    log.write_text(log.read_text() + log.read_text().splitlines()[-1] + "\n")  # the client asks again
    _, found = watched(tmp_path, log, capsys)
    total, bill = found["arms"]["main"]["total"], found["bill"]["main"]
    assert bill["turns"] == total["calls"] == 7
    assert bill["total"]["input"] == pytest.approx(total["billed"]["input"], rel=0.02)
    assert bill["total"]["output"] == total["billed"]["output"]
    assert bill["reach"]["history"]["achieved"] == pytest.approx(0)  # what was asked twice is no loss of its


def test_quotas_that_replies_tell_stand_in_the_summary_of_a_watch():
    from context_bench.core.numbers import forwarded_of
    from context_bench.traffic.sections.watch_board import as_json, summary
    from context_bench.wire.turns import Turn

    def turn(number, share):
        record = {
            "id": f"r{number}",
            "mark": None,
            "wire": "anthropic",
            "method": "POST",
            "path": "/v1/messages",
            "matched_by": "none",
        }
        facts = {"quotas": {"five hours": share, "week": 0.5}}
        front = forwarded_of({**record, "started": 1.0, "facts": facts})
        return Turn(number, "turn", float(number), session="s", turn=number, wire="anthropic", front=front)

    turns = [turn(1, 0.10), turn(2, 0.12), turn(3, 0.02), turn(4, 0.05)]  # a window began anew before the third
    text = " ".join(summary(turns, {"watch": "w"}).split())
    assert "five hours 7.0 % (now 5.0 %), week 0 % (now 50 %)" in text
    quotas = json.loads(as_json(turns, {"watch": "w"}))["quotas"]
    assert quotas["five hours"] == pytest.approx({"first": 0.1, "last": 0.05, "used": 0.07})
    assert "quotas" not in json.loads(as_json([], {"watch": "w"}))
