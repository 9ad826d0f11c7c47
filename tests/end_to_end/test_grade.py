"""The command `grade` against relays that are faithful and proxies that are not, each with one fault of a real kind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from context_bench.__main__ import main
from context_bench.core.families import GradeTarget
from context_bench.llm.hop import Hop
from context_bench.session.grade import grade_document
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from context_bench.traffic.probes import proxy_checks


class Twisted:
    """A proxy with a fault in what it does with replies: `twist(body, status, headers)` gives what the client gets."""

    def __init__(self, upstream, *, twist=None, answer=None, stream=None):
        self.upstream, self.twist, self.answer, self.stream = upstream, twist, answer, stream

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error):
        await self.runner.cleanup()
        await self.session.close()

    async def _handle(self, request):
        body = await request.read()
        if self.answer is not None and (kept := self.answer(body)) is not None:
            return web.Response(body=kept, content_type="application/json")
        kept_headers = {n: v for n, v in request.headers.items() if n.lower() not in ("host", "content-length")}
        async with self.session.request(
            request.method, self.upstream + request.path_qs, data=body, headers=kept_headers
        ) as reply:
            if self.stream is not None and "event-stream" in reply.headers.get("content-type", ""):
                return await self.stream(request, reply)
            said = await reply.read()
            status, headers = reply.status, {"content-type": reply.headers["content-type"]}
            if "retry-after" in reply.headers:
                headers["retry-after"] = reply.headers["retry-after"]
            if self.twist is not None:
                said, status, headers = self.twist(said, status, headers)
            kept = self.answer.keep(body, said) if hasattr(self.answer, "keep") else said
            return web.Response(body=kept, status=status, headers=headers)


PORTS = iter(random.Random(os.getpid()).sample(range(20_000, 32_000), 12_000))


def free_port():
    """Below those that the system gives out by itself, so that no other test gets it in the meantime."""
    import socket

    for port in PORTS:
        with contextlib.suppress(OSError), socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


async def graded(make, *names):
    """The grade of the proxy that `make(upstream)` gives, of checks whose name begins so."""
    back = free_port()
    async with make(f"http://127.0.0.1:{back}") as proxy:
        target = GradeTarget(subject="proxy", value=proxy.url, back=back, load=8, timeout=10.0)
        async with proxy_checks(target) as checks:
            wanted = [check for check in checks if not names or check.name.startswith(names)]
            assert wanted
            answers = {check.name: (check.headings, await check.ask()) for check in wanted}
    return grade_document(target, answers)


def letters(document):
    return {one["heading"]: one["letter"] for one in document["headings"] if one["letter"] is not None}


def kinds(document):
    return {one["kind"] for one in document["findings"] if one["severity"] != "note"}


@asynccontextmanager
async def hop(upstream):
    """Our own relay, as it is."""

    async def unchanged(request):
        return request

    relay = Hop(upstream, unchanged)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def test_a_faithful_relay_gets_an_a_under_every_heading():
    document = await graded(hop)
    assert letters(document) == dict.fromkeys([one["heading"] for one in document["headings"]], "A"), document[
        "findings"
    ]
    assert document["not_asked"] == []
    assert kinds(document) == set()


HABITS = [
    ("user-only", "request", "faithful requests", "assistant_role_changed"),
    ("drops-keys", "request, chat completions: settings", "faithful requests", "key_lost"),
    ("calls-twice", "request, chat completions: settings", "cache and money", "own_call"),
    ("remembers", "a session that grows", "cache and money", "prefix_broken"),
    ("rewrites-history", "a session that grows", "determinism", "history_rewritten"),
    ("buffers", "stream, messages: a slow one", "streaming", "stream_held_back"),
]


@pytest.mark.parametrize(("habit", "check", "heading", "kind"), HABITS)
async def test_each_habit_is_found_under_its_heading(habit, check, heading, kind):
    document = await graded(lambda upstream: MisbehavingProxy(habit, upstream), check)
    assert kind in kinds(document)
    assert letters(document)[heading] > "A"


def altered(change):
    def twist(body, status, headers):
        said = json.loads(body) if status == 200 and body[:1] == b"{" else None
        if said is not None:
            change(said)
            body = json.dumps(said).encode()
        return body, status, headers

    return twist


def no_arguments(said):
    for choice in said.get("choices", []):
        for call in choice["message"].get("tool_calls") or []:
            call["function"]["arguments"] = "{}"


def no_cached(said):
    said.get("usage", {}).pop("prompt_tokens_details", None)


REPLIES = [
    (altered(no_arguments), "reply, chat completions: two calls at once", "tool_call_arguments_changed"),
    (altered(no_cached), "reply, chat completions: tokens read from the cache", "reply_usage_lost"),
    (lambda body, status, headers: (body, 200, headers), "error, chat completions: 400", "error_hidden"),
    (
        lambda body, status, headers: (body, 502 if status >= 400 else status, headers),
        "error, messages: 500",
        "error_changed",
    ),
    (
        lambda body, status, headers: (body, status, {"content-type": headers["content-type"]}),
        "error, messages: 429",
        "retry_after_lost",
    ),
]


@pytest.mark.parametrize(("twist", "check", "kind"), REPLIES)
async def test_each_change_to_a_reply_is_found(twist, check, kind):
    document = await graded(lambda upstream: Twisted(upstream, twist=twist), check)
    assert kind in kinds(document)


async def first_event_only(request, reply):
    """The client behind is closed before the body is read."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    async for piece in reply.content.iter_any():
        await response.write(piece)
        break
    request.transport.close()
    return response


async def always_done(request, reply):
    """Whatever the provider's stream does, the client's ends well."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    try:
        async for piece in reply.content.iter_any():
            await response.write(piece)
    except aiohttp.ClientError:
        chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await response.write(f"\n\ndata: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
    return response


async def test_a_stream_that_breaks_in_the_proxy_is_an_f_though_a_burst_would_come_through():
    document = await graded(
        lambda upstream: Twisted(upstream, stream=first_event_only), "stream, chat completions: a slow one"
    )
    assert letters(document)["streaming"] == "F"
    assert "stream_broken" in kinds(document)


async def test_half_a_reply_that_passes_for_a_whole_one_is_an_f():
    document = await graded(
        lambda upstream: Twisted(upstream, stream=always_done), "stream, chat completions: one that breaks off"
    )
    assert kinds(document) == {"break_hidden"}


class CacheByMessages:
    """A response cache whose key is too small."""

    def __init__(self):
        self.known = {}

    def __call__(self, body):
        return self.known.get(self._key(body))

    def keep(self, body, said):
        if not json.loads(body or b"{}").get("stream"):
            self.known[self._key(body)] = said
        return said

    def _key(self, body):
        return json.dumps(json.loads(body).get("messages")) if body else None


async def test_a_cache_whose_key_is_too_small_is_found_and_so_is_one_that_clients_share():
    document = await graded(
        lambda upstream: Twisted(upstream, answer=CacheByMessages()),
        "asked twice",
        "request, chat completions: settings",
    )
    assert {"reply_for_another_request", "reply_shared_between_keys"} <= kinds(document)
    assert letters(document)["privacy"] == "F"


async def test_a_proxy_that_cannot_be_reached_gets_no_letter():
    @asynccontextmanager
    async def nothing(upstream):
        yield type("Nowhere", (), {"url": f"http://127.0.0.1:{free_port()}"})

    document = await graded(nothing, "request, messages", "error, messages")
    assert document["grade"] is None
    assert document["not_asked"]


RELAY = """
import asyncio, sys
from context_bench.systems.serve import Served

async def run():
    async with Served("full", sys.argv[1], port=int(sys.argv[2])):
        await asyncio.Event().wait()

asyncio.run(run())
"""


def test_one_command_starts_a_proxy_grades_it_and_a_gate_reads_the_grade(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relay.py").write_text(RELAY)
    line = shlex.join([sys.executable, "relay.py", "{back}", "{port}"])
    some = ["--check", "request, messages: an", "--check", "error, messages: 429", "--quiet"]
    assert main(["grade", "--proxy-command", line, *some, "--run", "mine", "--badge", "grade.svg"]) == 0
    page = capsys.readouterr().out
    assert "A         faithful requests" in page
    assert "not asked privacy" in page
    assert "<svg" in (tmp_path / "grade.svg").read_text()
    assert main(["runs"]) == 0
    assert "mine" in capsys.readouterr().out
    assert main(["gate", "mine", "--min-grade", "B"]) == 4
    assert "privacy was not asked" in capsys.readouterr().err
    assert main(["grade", "--system", "full", "--quiet", "--run", "whole", "--output", "json", "--out", "g.json"]) == 0
    for form in ("html", "junit", "sarif", "markdown"):
        assert main(["grade", "--system", "full", *some, "--output", form]) == 0
        assert capsys.readouterr().out
    assert main(["gate", "whole", "--min-grade", "A"]) == 0
    assert main(["gate", "g.json", "--min-grade", "A"]) == 0
    assert main(["compare", "whole", "mine", "--force"]) in (0, 3)


def test_bad_command_lines_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, said in [
        ([], "nothing to grade"),
        (["--proxy", "http://127.0.0.1:1", "--memory", "bm25"], "one thing at a time"),
        (["--system", "full", "--output", "pdf"], "--output 'pdf'"),
        (["--system", "full", "--header", "x"], "--header 'x'"),
        (["--system", "full", "--check", "no such"], "no such check"),
        (["--proxy-command", "no-such-program-here {port}"], "cannot be started"),
        (["--proxy-command", f"{sys.executable} -c pass"], "ended with exit code 0"),
    ]:
        assert main(["grade", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_run_that_is_no_grade_has_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl").write_text('{"id": 1, "context": "a", "question": "b?", "answer": "c"}\n')
    assert main(["run", "--dataset", "one.jsonl", "--upstream", "echo", "--controls", "full", "--quiet"]) == 0
    assert main(["gate", "last", "--min-grade", "B"]) == 2
    assert "is no grade" in capsys.readouterr().err


AGENT = """
import json, os, sys, urllib.request

def ask(messages):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

mark = str(os.getpid()) if "random" in sys.argv else ""
turns = [{"role": "user", "content": "List the files. " + mark}]
for number in range(3):
    turns.append({"role": "assistant", "content": ask(turns)})
    if "rewriting" in sys.argv:
        turns[0] = {"role": "user", "content": f"List {number} files."}
    turns.append({"role": "user", "content": f"And {number}?"})
if "orphan" in sys.argv:
    ask([turns[0], {"role": "tool", "tool_call_id": "call_gone", "content": "ferry.txt"}])
"""


def letters_of(capsys, *words):
    assert main(["grade", *words, "--quiet", "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("habit", "heading", "kind"),
    [
        ("", "", ""),
        ("random", "determinism", "bytes_differ"),
        ("orphan", "faithful requests", "orphan_tool_result"),
    ],
)
def test_an_agent_is_started_twice_and_graded_by_what_it_sends(tmp_path, monkeypatch, capsys, habit, heading, kind):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-real-key-that-no-agent-may-get")
    (tmp_path / "agent.py").write_text(AGENT)
    document = letters_of(capsys, "--command", shlex.join([sys.executable, "agent.py", habit]))
    if kind:
        assert kind in kinds(document)
        assert letters(document)[heading] > "A"
        if habit == "random":
            assert "messages[0].content" in next(one["detail"] for one in document["findings"] if one["kind"] == kind)
    else:
        assert set(letters(document).values()) == {"A"}, document["findings"]
    assert "real-key" not in json.dumps(document)


@pytest.mark.parametrize("line", ["true", "sh -c 'echo no key >&2; exit 3'"])
def test_an_agent_that_sends_nothing_gets_no_letter(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    assert main(["grade", "--command", line, "--quiet", "--output", "json", "--badge", "b.svg"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["grade"] is None
    assert {one["letter"] for one in document["headings"]} == {None}
    assert len(document["not_asked"]) == 5
    assert ("exit code 3: no key" in json.dumps(document["not_asked"])) == (line != "true")
    assert ">?</text>" in (tmp_path / "b.svg").read_text()


@pytest.mark.parametrize(
    ("options", "said"), [(["--seconds", "-1"], "seconds"), (["--badge", "b.png"], "a name that ends in .svg")]
)
def test_options_of_a_grade_that_mean_nothing_are_refused(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    assert main(["grade", "--command", "true", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_recorded_sessions_of_agents_are_graded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = letters_of(capsys, "--agent-log", "bundled:sessions")
    assert set(letters(document).values()) == {"A"}, document["findings"]
    assert main(["grade", "--agent-log", "nowhere.jsonl"]) == 2


LEAKY = """
from context_bench.memory.systems import make_memory

class Leaky:
    # every namespace is the same store
    name = "leaky"
    inner = make_memory("bm25")

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def namespace(self, name):
        return self
"""


def test_a_memory_is_graded_by_its_suites(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaky.py").write_text(LEAKY)
    some = ["--check", "memory, isolation", "--check", "memory, update"]
    document = letters_of(capsys, "--memory", "bm25", *some)
    assert letters(document) == {"faithful replies": "A", "privacy": "A"}
    assert kinds(document) == set()
    document = letters_of(capsys, "--memory", "py:leaky:Leaky", *some)
    assert letters(document)["privacy"] == "F"
    assert "memory_isolation" in kinds(document)


def test_a_password_and_a_key_in_a_header_reach_no_report_and_no_store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    url = f"http://keeper:harbour-pass-4711@127.0.0.1:{free_port()}"
    words = ["grade", "--proxy", url, "--header", "Authorization: Basic harbour-key-0815", "--back", str(free_port())]
    for form in ("json", "html", "table"):
        main([*words, "--check", "error, messages: 4", "--output", form])
        said = capsys.readouterr()
        assert "harbour-pass" not in said.out + said.err
        assert "harbour-key" not in said.out + said.err
    for file in (tmp_path / ".context-bench").iterdir():
        assert b"harbour-pass" not in file.read_bytes(), file
        assert b"harbour-key" not in file.read_bytes(), file


def injecting(body):
    body["tools"] = [
        *(body.get("tools") or []),
        {"type": "function", "function": {"name": "retrieve", "parameters": {"type": "object", "properties": {}}}},
    ]


async def test_what_follows_from_another_finding_counts_once():
    check = "request, chat completions: settings"
    document = await graded(lambda upstream: Rewriting(in_body(injecting), upstream), check)
    assert kinds(document) == {"tool_added"}
