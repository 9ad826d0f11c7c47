"""Before the first example: a key, an address or a proxy that is missing is named at once, with exit code 2."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.session import preflight
from context_bench.testing.hostile import MisbehavingProxy


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with one question, and no keys in the environment."""
    example = {
        "id": 1,
        "context": "It is in the harbour. The boat is red.",
        "question": "Where?",
        "answer": "in the harbour",
    }
    (tmp_path / "one.jsonl").write_text(json.dumps(example) + "\n")
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def nobody():
    """A port on which nobody listens, and nobody else will meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def gateway(status=502, health=None, text='{"error": {"message": "proxy_error"}}'):
    """Something that is no proxy of ours: it says the same to every request, and who it is where it is asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = "other-gateway/3", ""

        def do_GET(self):
            self._say(200 if health else 404, json.dumps(health or {}))

        def do_POST(self):
            seen.append(self.path)
            self._say(status, text)

        def _say(self, code, text):
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refused(capsys, *words):
    """The command ends with 2 before anything is stored; what it says."""
    assert main(["--dataset", "one.jsonl", "--model", "gpt-4o-mini", "--quiet", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err.removeprefix("context-bench: ").strip()


def test_a_key_that_is_not_there_is_named_by_its_variable(place, capsys):
    said = refused(capsys, "--system", "bm25", "--upstream", "https://api.openai.com")
    assert said.startswith(
        "--upstream https://api.openai.com wants a key, and the variable OPENAI_API_KEY is not set: export it, or name"
    )
    said = refused(
        capsys,
        "--controls",
        "full",
        "--upstream",
        "https://api.anthropic.com/v1",
        "--api-key-env",
        "MINE",
        "--tap",
        "0",
    )
    assert "and the variable MINE is not set" in said
    assert "--api-key-env (such as ANTHROPIC_API_KEY)" in said
    assert refused(capsys, "--proxy", "https://api.openai.com").startswith(
        "--proxy https://api.openai.com wants a key, and the variable OPENAI"
    )
    judged = ("--judge-url", "https://api.openai.com", "--judge-key-env", "MINE")
    assert "--judge-url https://api.openai.com wants a key, and the variable MINE" in refused(
        capsys, "--system", "bm25", "--upstream", "echo", *judged
    )


def test_a_proxy_with_a_key_of_its_own_needs_none_of_ours():
    from context_bench.session.options import RunOptions

    told = {
        "proxy": ["http://127.0.0.1:1"],
        "upstream": "https://api.openai.com",
        "tap": "0",
        "api_key_env": "NOT_SET_ANYWHERE",
    }
    preflight.require_keys(RunOptions(**told))
    with pytest.raises(preflight.PreflightFailed):
        preflight.require_keys(RunOptions(**told, controls=["full"]))


@pytest.mark.parametrize("flag", ["--upstream", "--reader", "--judge-url"])
def test_an_address_where_nobody_listens_is_named_at_once(place, nobody, capsys, flag):
    url = f"http://127.0.0.1:{nobody}"
    more = () if flag == "--upstream" else ("--upstream", "echo")
    start = time.monotonic()
    said = refused(capsys, "--system", "head_tail", flag, url, *more)
    assert said.startswith(f"{flag} {url} cannot be reached (Connection refused): check host and port")
    assert time.monotonic() - start < 25  # no time limit is waited for, on a busy machine as well


def test_a_responder_is_looked_for_before_it_chooses_probes(place, nobody, capsys):
    url = f"http://127.0.0.1:{nobody}"
    assert (
        main(
            [
                "compress",
                "run",
                "bundled:sessions/order-sync-zh",
                "--system",
                "head_tail",
                "--responder",
                url,
                "--quiet",
            ]
        )
        == 2
    )
    assert f"--reader {url} cannot be reached (Connection refused)" in capsys.readouterr().err


def test_a_host_without_an_address_is_named(place, capsys):
    said = refused(capsys, "--system", "bm25", "--upstream", "http://no-such-host.invalid/v1")
    assert said.startswith("--upstream http://no-such-host.invalid/v1 cannot be reached (")


def test_a_dead_proxy_is_named_at_once(place, nobody, capsys):
    start = time.monotonic()
    said = refused(
        capsys, "--proxy", f"http://127.0.0.1:{nobody}", "--name", "mine", "--upstream", "echo", "--tap", "0"
    )
    assert said.startswith(
        f"mine: nothing answers at http://127.0.0.1:{nobody} (Connection refused). Start it first, with "
        "http://127.0.0.1:"
    )
    assert time.monotonic() - start < 25  # no time limit is waited for, on a busy machine as well


def test_something_else_on_the_port_is_named_as_it_names_itself(place, capsys):
    with gateway(health={"status": "ok", "service": "other-proxy", "version": "0.42"}) as (url, seen):
        said = refused(capsys, "--proxy", url, "--name", "mine", "--upstream", "echo", "--tap", "0")
        assert said.startswith(
            f"mine ({url}) gave no answer to a short request: HTTP 502 from {url}/v1/chat/completions: proxy_error"
        )
        assert said.endswith(
            "(what answers there says: Server: other-gateway/3, /health: service other-proxy version 0.42)"
        )
        assert len(seen) == 2  # asked once more, not for half a minute


def test_without_a_tap_it_is_said_which_proxy_answers(place, capsys):
    """Nothing else would tell that it is the wrong one; control characters of its name never reach the terminal."""
    reply = json.dumps(
        {"choices": [{"message": {"role": "assistant", "content": "in the harbour"}, "finish_reason": "stop"}]}
    )
    with gateway(200, {"name": "other\x1b[31mproxy", "version": "1"}, reply) as (url, _):
        assert main(["--proxy", url, "--name", "mine", "--dataset", "one.jsonl", "--model", "gpt-4o-mini"]) == 0
    said = capsys.readouterr().err
    assert f"context-bench: mine: {url} (what answers there says: Server: other-gateway/3, /health: name other" in said
    assert "\x1b[31mproxy" not in said


def test_a_proxy_of_another_upstream_is_named_as_it_names_itself(place, capsys):
    model = ModelServer(Scripted({"default": "in the harbour"}))
    run_sync(model.start())
    try:
        with MisbehavingProxy("nothing", model.url) as proxy:
            said = refused(capsys, "--proxy", proxy.url, "--name", "mine", "--upstream", "echo", "--tap", "0")
    finally:
        run_sync(model.stop())
    told = (
        "mine answered, but nothing of it reached the tap, so what it forwards could not be measured (what "
        "answers there says: Server: "
    )
    assert told in said


OWN = """
from context_bench.systems import OpenAIProxy

class Own(OpenAIProxy):
    def __init__(self, port):
        super().__init__(f"http://127.0.0.1:{port}", "m", max_retries=1)

    base_url = property(lambda self: None, lambda self, url: None)  # so that nobody looks there before the run
    name = property(lambda self: "own", lambda self, name: None)

    def fingerprint(self):
        return {}
"""


def test_what_is_gone_in_the_middle_of_a_run_is_waited_for_with_a_line(place, nobody, capsys):
    """Said once, not for each of three examples and their attempts."""
    lines = [{"id": i, "context": "It is here.", "question": f"Where {i}?", "answer": "here"} for i in range(3)]
    (place / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "own_of_mine.py").write_text(OWN)
    assert main(["--dataset", "one.jsonl", "--system", f"py:own_of_mine:Own:port={nobody}"]) == 1
    said = capsys.readouterr().err
    assert (
        said.count(
            f"Could not connect to http://127.0.0.1:{nobody}/v1/chat/completions: Connection refused: trying again"
        )
        == 1
    ), said
