"""Who is called where: memories at the relay, the reader at its own endpoint, and a tap stands before the relay unless
told otherwise.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from context_bench.cli.app import run_line

LINE = (
    "memory",
    "--dataset",
    "bundled:recall-lab",
    "-n",
    "1",
    "--qa-types",
    "single",
    "--no-floors",
    "--quiet",
    "--output",
    "json",
)


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.asked.append(asked)
        if len(asked) > self.server.window:
            return self.reply(
                400, {"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}}
            )
        message = {"index": 0, "message": {"role": "assistant", "content": "Not mentioned"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        return self.reply(
            200, {"id": "x", "object": "chat.completion", "model": "m", "choices": [message], "usage": usage}
        )

    def reply(self, status, found):
        reply = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) for _ in range(2)]
    for server in servers:
        server.asked, server.window = [], 10**9
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_reader_of_its_own_leaves_the_relay_to_the_memories(endpoints, capsys):
    relay, reader = endpoints
    assert run_line([*LINE, "--system", "summary_anchored", "--relay", relay.url, "--reader", reader.url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(relay.asked) == found["setups"][0]["calls"] > 0
    assert len(reader.asked) >= len(found["rows"]) > 0
    assert all("The question" in each or "memor" in each for each in reader.asked)


def test_without_a_reader_memories_still_have_the_relay(endpoints, capsys):
    relay, reader = endpoints
    assert run_line([*LINE, "--system", "summary_anchored", "--relay", relay.url, "--reader", "none"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(relay.asked) == found["setups"][0]["calls"] > 0
    assert not reader.asked


def test_a_tap_stands_before_the_relay(endpoints, capsys):
    relay, _ = endpoints
    assert run_line([*LINE, "--system", "bm25", "--relay", relay.url, "--tap", "0"]) == 0
    assert relay.asked
    found = json.loads(capsys.readouterr().out)
    assert not any(row.get("errors") for row in found["rows"])


def test_a_whole_conversation_that_does_not_fit_is_no_failed_run(endpoints, capsys):
    relay, _ = endpoints
    relay.window = 8000
    line = [*(part for part in LINE if part != "--no-floors"), "--relay", relay.url, "--baseline", "none"]
    assert run_line([*line, "--system", "bm25"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["errors"]["system"].partition(":")[0] for row in found["rows"] if row.get("errors")} == {
        "ContextTooLong"
    }
    assert {row["system"] for row in found["rows"] if row.get("errors")} == {"full_context"}
    assert run_line([*line, "--system", "full_context"]) == 1, "asked for by name, it is a memory like any other"
