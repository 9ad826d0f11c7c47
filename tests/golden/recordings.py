"""Recipes of the stored runs that are kept in `stores/`: a command line each, over loopback and without a model.

A run made anew by its recipe says the same as the kept one; `test_stored_runs.py` compares them. A kept store is never
made again, so that tomorrow's code opens today's files: `--refresh-golden` makes only one that is missing.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from context_bench.__main__ import main

ROOT = Path(__file__).parents[2]
TRADES = ("baker", "sailor", "weaver", "tanner")
PEOPLE = ("Ada", "Bo", "Cleo", "Dag", "Edda", "Finn")
PRICE = "--price gpt-4o-mini=1,2"
SCRIPTED = "--upstream scripted:script.json"
READ = {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": READ}
#: A client of a watch: one conversation of three turns.
CLIENT = """
import json, os, urllib.request
messages = []
for turn in range(3):
    question = f"What stands in part {turn}? " + "A line of the harbour's papers. " * 120
    messages.append({"role": "user", "content": question})
    body = {"model": "gpt-4o-mini", "messages": messages}
    head = {"Content-Type": "application/json", "Authorization": "Bearer none-needed"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    urllib.request.urlopen(request).read()
    messages.append({"role": "assistant", "content": "Nothing new."})
"""


class Halving(BaseHTTPRequestHandler):
    """A proxy that sends on the first half of every user's text."""

    upstream = ""

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for message in body.get("messages", []):
            if message["role"] == "user" and isinstance(message["content"], str):
                message["content"] = message["content"][: len(message["content"]) // 2]
        self._pass_on(json.dumps(body).encode())

    def _pass_on(self, body: bytes | None) -> None:
        skipped = ("host", "content-length", "connection", "accept-encoding")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in skipped}
        request = urllib.request.Request(self.upstream + self.path, body, headers, method=self.command)
        try:
            with urllib.request.urlopen(request) as reply:
                status, kind, answer = reply.status, reply.headers["Content-Type"], reply.read()
        except urllib.error.HTTPError as refused:
            status, kind, answer = refused.code, refused.headers["Content-Type"], refused.read()
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def halving() -> Iterator[tuple[str, str]]:
    """(URL of a halving proxy, port that it takes for its upstream's)."""
    port = free_port()
    handler = type("Handler", (Halving,), {"upstream": f"http://127.0.0.1:{port}"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", str(port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def houses() -> None:
    """Six questions, and a model that answers those whose evidence arrives and refuses one."""
    key, rows = {}, []
    for n, person in enumerate(PEOPLE):
        evidence = f"{person} of house {n} is a {TRADES[n % 4]} by trade."
        lanes = [f"Lane {k} runs past house {n} and was paved in {1700 + 7 * k}." for k in range(6)]
        question = f"By what trade does the person of house {n} live?"
        context = "\n".join([*lanes[:n], evidence, *lanes[n:]])
        rows.append({"id": f"house-{n}", "question": question, "answer": TRADES[n % 4], "context": context})
        key[question] = {"answer": TRADES[n % 4], "evidence": evidence, "wrong": "I do not know."}
    Path("houses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rules = [{"when": {"text": "person of house 4 live"}, "status": 400, "error": "this question is refused"}]
    Path("script.json").write_text(json.dumps({"answer_key": key, "rules": rules, "default": "Nothing new."}))


def command(line: str, *more: str) -> int:
    """Run a command line, with further words at its end."""
    return main([*line.split(), *more])


def pipeline(*more: str) -> int:
    houses()
    arms = "--controls full,none,head_tail --keep 0.5"
    return command(f"run --dataset houses.jsonl {SCRIPTED} {arms} --model gpt-4o-mini {PRICE} --max-failures 1", *more)


def proxied(*more: str) -> int:
    houses()
    with halving() as (url, port):
        arms = f"--proxy {url} --name halving --tap {port} --controls full,none"
        line = f"run {arms} --dataset houses.jsonl {SCRIPTED} --model gpt-4o-mini {PRICE} --max-failures 1"
        return command(line, *more)


def memory(*more: str) -> int:
    reader = "--reader py:context_bench.testing.lab_reader:LabReader"
    return command(f"memory --system recency --dataset bundled:recall-lab:turns=40 -n 1 --k 1,5 {reader}", *more)


def compression(*more: str) -> int:
    arms = "--system mask_observations --controls full,none"
    return command(f"compress run bundled:sessions/order-sync-zh {arms} --per-type 1", *more)


def messages_of_a_session() -> Iterator[dict[str, object]]:
    """An agent reads a file in each of three turns."""
    yield {"role": "system", "content": "You are careful."}
    yield {"role": "user", "content": "Which are odd?"}
    for turn in range(3):
        read = {"name": "read", "arguments": json.dumps({"path": f"src/{turn}.txt"})}
        call = {"id": f"c{turn}", "type": "function", "function": read}
        lines = [f"{n}: value_{turn}_{n} = {(n * 7919 + turn * 104729) % 10007}" for n in range(40)]
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(lines)}
        yield {"role": "user", "content": f"Go on after {turn}, please."}
    yield {"role": "assistant", "content": "The first and the third value are odd."}


def replay(*more: str) -> int:
    session = {"model": "gpt-4o-mini", "messages": [*messages_of_a_session()], "tools": [TOOL], "session_id": "one"}
    Path("log.jsonl").write_text(json.dumps(session) + "\n")
    with halving() as (url, port):
        return command(f"replay log.jsonl --proxy {url} --name halving --tap {port} --upstream echo {PRICE}", *more)


def watch(*more: str) -> int:
    """A watch is named by `--name`, where a run has `--run`."""
    houses()
    Path("client.py").write_text(CLIENT)
    named = ["--name" if word == "--run" else word for word in more]
    with halving() as (url, port):
        line = f"watch --front {free_port()} --via {url} --back {port} {SCRIPTED} {PRICE} --record full"
        return command(line, *named, "--", sys.executable, "client.py")


def agents(*more: str) -> int:
    """The agent is given as text and its model's script lies in this folder: the store holds no path of a machine."""
    agent = (ROOT / "examples" / "tiny_agent.py").read_text("utf-8")
    [script] = (ROOT / "src").rglob("bundled/model.toml")
    shutil.copy(script, "model.toml")
    line = "agent bundled:repo-tasks:split-parsing --arm base= --arm other=MODE=x --upstream scripted:model.toml"
    line += f" --tap {free_port()} --price scripted=1,2"
    return command(line, *more, "--", "python3", "-c", agent, "{instruction}")


RECIPES = {each.__name__: each for each in (pipeline, proxied, memory, compression, replay, watch, agents)}
