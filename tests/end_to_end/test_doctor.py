"""The doctor finds what a proxy does, in front of a real tap and a real model server; it claims nothing that it has not
seen.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.core.records import plain
from context_bench.llm.hop import Hop, HopAnswer
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES
from context_bench.session.activity import PAYLOADS
from context_bench.systems import examine
from context_bench.tap import Tap
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body

KEY = "sk-the-real-upstream-key"
HEADROOM = Path(__file__).parents[2] / ".vendors/headroom/bin/headroom"
SLOW_STREAM = {
    "when": {"stream": True, "wire": "openai-chat"},
    "text": "one two three four five six seven eight",
    "chunk_delay": 0.03,
}


def model_server():
    return ModelServer(Scripted({"rules": [SLOW_STREAM, {"text": "at nine"}]}), api_key=KEY)


async def examined(habit, **options):
    async with (
        model_server() as model,
        Tap(model.url, upstream_key=KEY) as tap,
        MisbehavingProxy(habit, tap.url) if isinstance(habit, str) else Rewriting(in_body(habit), tap.url) as proxy,
    ):
        findings = await examine(proxy.url, tap, **options)
    assert KEY not in json.dumps([plain(finding) for finding in findings])
    return {finding.name: finding for finding in findings}


def bad(findings):
    return {name for name, finding in findings.items() if finding.status in ("warn", "fail")}


@pytest.mark.parametrize("policy", ["meta", "hashes", "redacted"])
async def test_a_tap_that_keeps_little_is_no_reason_to_blame_a_proxy(policy):
    async with model_server() as model, Tap(model.url, upstream_key=KEY, record=policy) as tap:
        async with MisbehavingProxy("nothing", tap.url) as proxy:
            findings = {finding.name: finding for finding in await examine(proxy.url, tap)}
        async with MisbehavingProxy("user-only", tap.url) as proxy:
            changed = {finding.name: finding for finding in await examine(proxy.url, tap)}
    assert bad(findings) == set()
    assert findings["unknown parameters"].detail == "passed on"
    assert "roles" in bad(changed)


async def test_a_faithful_proxy_gets_no_blame_and_no_praise_for_shrinking():
    findings = await examined("nothing")
    assert bad(findings) == set()
    for name in (
        "reachable",
        "route chat completions",
        "route messages",
        "route responses",
        "route models",
        "route count_tokens",
    ):
        assert findings[name].status == "ok"
    for name in (
        "key forwarded",
        "header forwarded",
        "roles",
        "parameters",
        "unknown parameters",
        "tools",
        "cache_control",
        "model",
    ):
        assert findings[name].status == "ok"
    assert "as it comes" in findings["streaming"].detail
    for shape in SHAPES:
        assert findings[f"shape {shape}"].status == "unknown"
        assert "inactive or degraded here" in findings[f"shape {shape}"].detail


async def test_halving_is_seen_in_every_shape():
    findings = await examined("halves")
    assert bad(findings) == set()
    for shape in SHAPES:
        assert findings[f"shape {shape}"].status == "ok"
        assert all(kind in findings[f"shape {shape}"].detail for kind in PAYLOADS)


async def test_doing_nothing_is_said_only_where_the_same_kind_of_text_did_shrink():
    findings = await examined("plain-only")
    assert bad(findings) == {f"shape {shape}" for shape in ("tool-result", "claude-code", "codex", "openai-agent")}
    assert "does nothing here (JSON rows sent as plain-system shrank by 50 %)" in findings["shape claude-code"].detail
    assert "−50 %" in findings["shape plain-user"].detail


async def test_roles():
    findings = await examined("user-only")
    assert findings["roles"].status == "fail"
    assert "system → user" in findings["roles"].detail
    assert bad(findings) == {"roles", "valid requests"}  # results in a message of the user answer no call


async def test_calls_of_its_own():
    findings = await examined("calls-twice")
    assert "2 calls" in findings["route chat completions"].detail
    assert bad(findings) == {"route chat completions", "route messages", "route responses"}


@pytest.mark.parametrize(
    ("key", "status", "words"),
    [
        (("model", "messages", "input"), "fail", "with another system prompt it gets the earlier reply"),
        (None, "ok", "repeated requests are answered without the provider"),
    ],
    ids=["by model and messages", "by the whole body"],
)
async def test_a_cache_of_its_own_and_its_key(key, status, words):
    """A proxy that answers by itself what it was asked before, or takes for that."""
    known, proxies = {}, []

    async def cached(request):
        if request.wire == "models" or request.body is None or request.body.get("stream"):
            return request
        told = {name: value for name, value in request.body.items() if key is None or name in key}
        place = json.dumps([request.target, told], sort_keys=True)
        if place not in known:
            known[place] = (await proxies[0].fetch(request))[1]
        return HopAnswer([known[place]])

    async with model_server() as model, Tap(model.url, upstream_key=KEY) as tap:
        proxies.append(Hop(tap.url, cached))
        await proxies[0].start()
        try:
            found = {finding.name: finding for finding in await examine(proxies[0].url, tap)}
        finally:
            await proxies[0].stop()
    assert found["own cache"].status == status
    assert words in found["own cache"].detail


async def test_lost_keys():
    """Whether the provider then refuses everything, or takes the proxy's own key."""
    findings = await examined("drops-keys")
    assert findings["key forwarded"].status == "warn"
    assert findings["header forwarded"].status == "ok"
    assert "HTTP 401" in findings["route chat completions"].detail
    assert "roles" not in findings
    async with (
        ModelServer(Echo(), api_key=KEY) as model,
        Tap(model.url) as tap,
        MisbehavingProxy("drops-keys", tap.url, own_key=KEY) as proxy,
    ):
        findings = {finding.name: finding for finding in await examine(proxy.url, tap)}
    assert bad(findings) == {"key forwarded"}
    assert findings["key forwarded"].advice == "run with --marker header"


async def test_a_proxy_that_checks_a_key_of_its_own():
    async def door(request):
        headers = request.headers.copy()
        if headers.pop("Authorization", None) != "Bearer door-key" and headers.pop("x-api-key", None) != "door-key":
            return HopAnswer([b'{"error": {"message": "no entry"}}'], 401)
        headers["Authorization"] = f"Bearer {KEY}"
        return request.with_headers(headers)

    async with model_server() as model, Tap(model.url, upstream_key=KEY) as tap:
        proxy = Hop(tap.url, door)
        await proxy.start()
        try:
            findings = {
                finding.name: finding for finding in await examine(proxy.url, tap, api_key=KEY, proxy_key="door-key")
            }
        finally:
            await proxy.stop()
    assert bad(findings) == set()
    assert findings["key forwarded"].status == "unknown"
    assert findings["header forwarded"].status == "ok"


async def test_streams_that_are_held_back():
    findings = await examined("buffers")
    assert bad(findings) == {"streaming"}
    assert "held back" in findings["streaming"].detail


async def meddling(change, routes=("chat", "messages", "responses"), **options):
    """Findings about a proxy that edits bodies with `change(body)` and offers only some routes; `options` of the
    tap.
    """

    async def edit(request):
        if request.wire == "models" or not any(route in request.target for route in routes):
            return HopAnswer([b"{}"], 404)
        body = request.body
        return request if body is None else request.with_body(change(body) or body)

    async with model_server() as model, Tap(model.url, upstream_key=KEY, **options) as tap:
        proxy = Hop(tap.url, edit)
        await proxy.start()
        try:
            return {finding.name: finding for finding in await examine(proxy.url, tap)}
        finally:
            await proxy.stop()


async def test_edited_parameters_tools_marks_model_and_messages():
    def change(body):
        body = json.loads(json.dumps(body).replace('"cache_control"', '"dropped_mark"'))
        body.pop("x_unknown_parameter", None)
        body["temperature"] = 1
        body["model"] = "a-cheaper-model"
        body.pop("tools", None)
        if "messages" in body:
            body["messages"].append({"role": "user", "content": "Be kind."})
        return body

    findings = await meddling(change)
    assert findings["cache_control"].status == "fail"
    assert {"parameters", "tools", "model", "messages", "unknown parameters", "cache_control", "route models"} <= bad(
        findings
    )
    assert "temperature changed" in findings["parameters"].detail
    assert "a-cheaper-model" in findings["model"].detail
    assert findings["roles"].status == "ok"
    assert "HTTP 404" in findings["route models"].detail


async def test_a_proxy_with_one_route_is_examined_on_that_route():
    findings = await meddling(lambda body: None, routes=("chat",))
    assert findings["route messages"].status == findings["route responses"].status == "warn"
    assert "not offered (HTTP 404)" in findings["route messages"].detail
    assert "shape claude-code" not in findings
    assert findings["roles"].detail == "unchanged in 4 shapes"
    assert findings["streaming"].status == "ok"


async def test_requests_that_grow():
    def change(body):
        if "messages" in body:
            body["messages"][0]["content"] = "Many more words in front of it all. " * 60 + str(
                body["messages"][0]["content"]
            )
        return body

    findings = await meddling(change, routes=("chat",))
    assert findings["shape plain-user"].status == "warn"
    assert "JSON rows +" in findings["shape plain-user"].detail


async def test_nothing_arrives_at_the_tap():
    async with ModelServer(Echo()) as model, Tap(model.url) as tap, MisbehavingProxy("nothing", model.url) as proxy:
        findings = {finding.name: finding for finding in await examine(proxy.url, tap)}
        assert findings["seen by the tap"].status == "fail"
        assert tap.url in findings["seen by the tap"].advice
    assert "roles" not in findings


async def test_without_a_tap_only_what_shows_is_told():
    async with (
        ModelServer(Echo(), api_key="proxy-door-key") as model,
        MisbehavingProxy("user-only", model.url) as proxy,
    ):
        findings = {finding.name: finding for finding in await examine(proxy.url + "/v1/", proxy_key="proxy-door-key")}
        refused = {finding.name: finding for finding in await examine(proxy.url)}
    assert bad(findings) == set()
    assert (findings["what it forwards"].status, refused["what it forwards"].status) == ("unknown", "unknown")
    assert "--tap" in findings["what it forwards"].advice
    assert "Incorrect API key" in refused["route chat completions"].detail
    assert refused["route chat completions"].status == "fail"


async def test_nobody_there():
    url = f"http://127.0.0.1:{free_port()}"
    (finding,) = await examine(url)
    assert finding.status == "fail"
    assert url in finding.detail


@pytest.mark.parametrize("reply", [b"", b"<html>hi</html>", b"{}", b"\xff" * 10, b"data: nothing\n\n"])
async def test_something_that_is_no_proxy_at_all(reply):
    async def answer(request):
        return HopAnswer([reply], 200, "text/html")

    server = Hop("http://127.0.0.1:9", answer)
    await server.start()
    try:
        findings = {finding.name: finding for finding in await examine(server.url)}
    finally:
        await server.stop()
    assert findings["route chat completions"].status == "fail"
    assert "roles" not in findings


async def test_signed_blocks_of_the_turn_in_progress():
    """What a proxy does to them is found with bodies and without; thinking of a turn that is over may go."""

    def change(body):
        for message in body.get("messages", []):
            if isinstance(message["content"], list):
                message["content"] = [part for part in message["content"] if part["type"] != "thinking"]
        if isinstance(body.get("input"), list):
            body["input"] = [
                {**item, "encrypted_content": "b3RoZXI="} if item["type"] == "reasoning" else item
                for item in body["input"]
            ]

    findings = await meddling(change)
    assert bad(findings) - {"route models"} == {"thinking blocks", "reasoning items"}
    assert findings["thinking blocks"].status == findings["reasoning items"].status == "fail"
    assert "thinking_changed: message 3: its thinking is gone" in findings["thinking blocks"].detail
    assert "reasoning_item_lost" in findings["reasoning items"].detail
    little = await meddling(change, record="meta")
    assert little["thinking blocks"].detail == "dropped from the turn in progress"
    assert "not visible" in little["reasoning items"].detail
    alone = await meddling(lambda body: None, routes=("chat",))
    assert "thinking blocks" not in alone
    assert "reasoning items" not in alone


async def test_tools_are_named_and_other_words_for_them_are_no_fault():
    def adds(body):
        if "tools" in body:
            name = {"name": "headroom_retrieve", "description": "More.", "parameters": {"type": "object"}}
            body["tools"].append({"type": "function", "function": name})

    def describes(body):
        for tool in body.get("tools", []):
            tool.get("function", tool).pop("description")

    added, described = await meddling(adds, routes=("chat",)), await meddling(describes, routes=("chat",))
    assert added["tools"].status == "warn"
    assert (
        added["tools"].detail == "tool-result: tool_added headroom_retrieve; openai-agent: tool_added headroom_retrieve"
    )
    assert described["tools"].status == "ok"
    assert "in other words" in described["tools"].detail


def doctored(url, port, capsys, *more):
    """What the command says about the proxy at `url` whose upstream is the tap's port."""
    code = main(["doctor", "--proxy", url, "--tap", str(port), "--json", *more])
    return code, {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_commands_own_upstream_streams_slowly_enough_and_packs_its_replies(capsys):
    port = free_port()
    with MisbehavingProxy("nothing", f"http://127.0.0.1:{port}") as faithful:
        code, findings = doctored(faithful.url, port, capsys)
    assert code == 0
    assert findings["streaming"]["detail"].count("passed on as it comes") == 3
    assert findings["packed replies"]["detail"] == "gzip and deflate passed on, and readable"
    with MisbehavingProxy("buffers", f"http://127.0.0.1:{port}") as late:
        code, findings = doctored(late.url, port, capsys)
    assert findings["streaming"]["status"] == "warn"
    assert "responses: the stream is held back" in findings["streaming"]["detail"]
    assert findings["packed replies"]["status"] == "fail"  # it loses the header that says how they are packed
    assert "a reply with gzip: marked as not packed" in findings["packed replies"]["detail"]


async def raw_server(answer):
    """Connections of a server that does what HTTP libraries would not;
    `answer(writer, path, number of the request on its connection)`.
    """

    async def serve(reader, writer):
        number = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                number += 1
                if not await answer(writer, head.split()[1], number):
                    writer.transport.abort()
                    return

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def test_the_failure_of_one_route_is_not_that_of_the_next():
    """After a 500 the server ends the connection as soon as the next request has come: that is no finding about the
    next route.
    """

    async def answer(writer, path, number):
        if number > 1:
            return False
        status = "500 Internal Server Error" if path.startswith("/v1/messages") else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nsad.".encode())
        return True

    async with await raw_server(answer) as server:
        port = server.sockets[0].getsockname()[1]
        findings = {finding.name: finding for finding in await examine(f"http://127.0.0.1:{port}")}
    assert findings["route messages"].status == "fail"
    assert "HTTP 500" in findings["route messages"].detail
    assert findings["route responses"].status == "warn"
    assert findings["route responses"].detail == "not offered (HTTP 404)"


async def refused(status, body, *offered):
    """Findings about a proxy that refuses every question so and lists these models, and the URL that it should have as
    its upstream.
    """

    async def refuse(request):
        if request.wire == "models" and offered:
            return HopAnswer([json.dumps({"object": "list", "data": [{"id": name} for name in offered]}).encode()])
        return HopAnswer([json.dumps(body).encode()], status)

    async with ModelServer(Echo()) as model, Tap(model.url) as tap:
        proxy = Hop(tap.url, refuse)
        await proxy.start()
        try:
            return {finding.name: finding for finding in await examine(proxy.url, tap)}, tap.url
        finally:
            await proxy.stop()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            400,
            "/chat/completions: Invalid model name passed in model=gpt-4o-mini. Call `/v1/models` to view available "
            "models for your key.",
        ),
        (404, "The model `gpt-4o-mini` does not exist or you do not have access to it."),
        (404, "model: gpt-4o-mini was not found"),
        (400, "The requested model is not supported."),
        (503, "model gpt-4o-mini is not configured"),
    ],
)
async def test_a_model_that_the_proxy_does_not_have(status, words):
    findings, url = await refused(
        status, {"error": {"message": words, "type": "invalid_request_error"}}, "gpt-4.1", "claude-sonnet-4-5"
    )
    for name in ("route chat completions", "route messages", "route responses", "seen by the tap"):
        assert findings[name].status == "fail"
        assert "'gpt-4o-mini' is not configured" in findings[name].detail
        assert findings[name].advice == "give --model NAME, one that the proxy has: gpt-4.1, claude-sonnet-4-5"
    assert url not in findings["seen by the tap"].advice


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "Not Found"),
        (404, "no such route: /v1/models/messages"),
        (500, "the model broke"),
        (429, "No deployments available for selected model, try again"),
    ],
)
async def test_other_refusals_are_not_put_on_the_model(status, words):
    findings, url = await refused(status, {"detail": words})
    assert url in findings["seen by the tap"].advice
    assert not any("--model" in finding.advice for finding in findings.values())


@contextlib.contextmanager
def headroom(upstream_port):
    port, upstream = free_port(), f"http://127.0.0.1:{upstream_port}"
    options = ["--port", str(port), "--no-telemetry", "--openai-api-url", upstream, "--anthropic-api-url", upstream]
    quiet, env = subprocess.DEVNULL, {**os.environ, "NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen([HEADROOM, "proxy", *options], stdout=quiet, stderr=quiet, env=env)
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.vendor("headroom")
def test_a_proxy_from_the_package_index_that_adds_a_tool(capsys):
    port = free_port()
    with headroom(port) as url:
        code, findings = doctored(url, port, capsys)
    assert code == 0
    assert "tool_added headroom_retrieve" in findings["tools"]["detail"]
    assert findings["streaming"]["detail"].count("passed on as it comes") == 3
    for name in ("thinking blocks", "reasoning items", "packed replies", "roles", "cache_control"):
        assert findings[name]["status"] == "ok"


async def test_requests_that_a_provider_would_refuse():
    def raw_notes(body):
        for message in body.get("messages", []):
            message["extra"] = {"seen": True}

    spoilt = await examined(raw_notes)
    assert spoilt["valid requests"].status == "fail"
    assert "unknown_message_key" in spoilt["valid requests"].detail
    assert "https://" in spoilt["valid requests"].advice
    assert (await examined("nothing"))["valid requests"].status == "ok"
