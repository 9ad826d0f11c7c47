"""What a proxy did not send on, by the provider's own count: of real requests, on loopback, and never in a client's
way.
"""

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from context_bench.llm.prices import GenaiPrices
from context_bench.tap import Watch
from context_bench.testing.hostile import Rewriting
from context_bench.traffic.watch.beside import ProviderCount
from context_bench.wire.turns import Turn

CLIENT_KEY, PROVIDER_KEY = "sk-the-clients-own-key-0123456789", "sk-the-key-of-the-proxy-9876543210"
TEXT = "The harbour office writes each arrival down. " * 40
BODIES = {
    "/v1/messages?beta=true": {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [], "metadata": {}},
    "/v1/responses": {"model": "gpt-4o", "max_output_tokens": 9, "input": [], "store": False},
    "/v1/chat/completions": {"model": "gpt-4o", "messages": []},
}
#: As the providers' references have them.
FIELDS = {
    "/v1/messages/count_tokens": {"model", "messages", "system", "tools", "tool_choice", "thinking"},
    "/v1/responses/input_tokens": {"model", "input", "instructions", "tools", "tool_choice", "reasoning", "text"},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tokens(body: dict[str, Any]) -> int:
    """A count that nobody else's tokenizer gives."""
    return 7 + 3 * len(json.dumps([body.get("messages"), body.get("input"), body.get("tools")]).split())


class Provider:
    """A provider with counts. `status`: what it answers questions for these with."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.asked = status, list[tuple[str, dict[str, Any], dict[str, str]]]()
        self.gate = asyncio.Event()
        self.gate.set()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            self.gate.set()
            await runner.cleanup()

    async def answer(self, request: web.Request) -> web.Response:
        body, path = await request.json(), request.path
        count = tokens(body)
        if path in FIELDS:
            self.asked.append((request.path_qs, body, dict(request.headers)))
            await self.gate.wait()
            if self.status != 200:
                return web.json_response({"error": {"message": f"no: {TEXT}"}}, status=self.status)
            if unknown := body.keys() - FIELDS[path]:
                return web.json_response({"error": {"message": f"{unknown} not permitted"}}, status=400)
            return web.json_response({"input_tokens": count})
        usage = {"input_tokens": count, "output_tokens": 1}
        if path == "/v1/messages":
            said = [{"type": "text", "text": "fine"}]
            return web.json_response(
                {"id": "m", "type": "message", "role": "assistant", "content": said, "usage": usage}
            )
        if path == "/v1/responses":
            said = [{"type": "output_text", "text": "fine"}]
            item = {"type": "message", "role": "assistant", "content": said}
            return web.json_response({"id": "r", "object": "response", "output": [item], "usage": usage})
        choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
        told = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        return web.json_response({"id": "c", "choices": [choice], "usage": told})


def shortened(request: Any) -> Any:
    """The request with half of what its last message says, under the proxy's own key."""
    body = request.body
    message = next(body[name] for name in ("messages", "input") if name in body)[-1]
    message["content"] = message["content"][: len(message["content"]) // 2]
    made = request.with_document(json.dumps(body))
    others = {name: value for name, value in made.headers.items() if name.lower() not in ("x-api-key", "authorization")}
    return replace(made, headers=others | {"x-api-key": PROVIDER_KEY, "Authorization": f"Bearer {PROVIDER_KEY}"})


@contextlib.asynccontextmanager
async def counted(
    provider: Provider, change: Callable[[Any], Any] = shortened
) -> AsyncIterator[tuple[Watch, ProviderCount, list[Turn]]]:
    """A watch around a proxy, with the provider's count asked. All is counted once the block is left."""
    kept, back, offers = list[Turn](), free_port(), list[Callable[[Any], None]]()

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    def mirror(turn: Any) -> None:
        for offer in offers:
            offer(turn)

    async with provider.served() as url, Rewriting(change, f"http://127.0.0.1:{back}") as proxy:
        watch = Watch(url, via=proxy.url, back=back, prices=GenaiPrices(), keep=keep, mirror=mirror)
        async with watch, ProviderCount(url) as count:
            offers.append(count.offer)
            yield watch, count, kept
            await watch.drain()
            await count.idle(60)


async def send(watch: Watch, path: str, texts: list[str]) -> int:
    said = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    name = "input" if "responses" in path else "messages"
    headers = {"x-api-key": CLIENT_KEY, "Authorization": f"Bearer {CLIENT_KEY}", "anthropic-version": "2023-06-01"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{watch.url}{path}", json={**BODIES[path], name: said}, headers=headers) as reply,
    ):
        await reply.read()
        return reply.status


@pytest.mark.parametrize(("path", "asked"), list(zip(BODIES, [*FIELDS, None], strict=True)))
async def test_what_was_not_sent_by_the_providers_own_count(path: str, asked: str | None) -> None:
    provider = Provider()
    async with counted(provider) as (watch, count, kept):
        for turns in (1, 3):
            assert await send(watch, path, [TEXT] * turns) == 200
    told = count.as_dict()
    if asked is None:
        assert (told["changed"], told["counted"], provider.asked) == (2, 0, [])
        assert told["not_counted"] == {"its API has no count": 2}
        return
    assert [each[0].partition("?")[0] for each in provider.asked] == [asked] * 2
    assert [each[0].partition("?")[2] for each in provider.asked] == [path.partition("?")[2]] * 2
    assert (told["changed"], told["counted"], told["not_counted"]) == (2, 2, {})
    whole = sum(tokens(body) for _, body, _ in provider.asked)
    billed = sum(turn.usage.input_tokens for turn in kept if turn.usage is not None)
    assert told["provider"] == {"counted": whole, "billed": billed, "not_sent": whole - billed}
    assert whole - billed > 400
    ours = sum(turn.sent or 0 for turn in kept), sum(turn.forwarded or 0 for turn in kept)
    assert told["ours"] == {"sent": ours[0], "forwarded": ours[1], "not_sent": ours[0] - ours[1]}
    for _, body, headers in provider.asked:  # the client's own words, under the key that the provider knows
        assert TEXT in json.dumps(body)
        assert (headers["x-api-key"], headers["Authorization"]) == (PROVIDER_KEY, f"Bearer {PROVIDER_KEY}")
        assert CLIENT_KEY not in str(headers)
    assert not any(key in repr((told, kept)) for key in (CLIENT_KEY, PROVIDER_KEY))


async def test_a_request_that_arrived_as_it_was_is_not_asked_about() -> None:
    provider = Provider()
    async with counted(provider, lambda request: request) as (watch, count, _):
        await send(watch, "/v1/messages?beta=true", [TEXT])
    assert provider.asked == []
    assert count.as_dict()["changed"] == 0


async def test_refusals_are_told_and_end_it_where_asking_again_is_of_no_use() -> None:
    for status, told, asked in ((429, {"HTTP 429": 3}, 3), (404, {"HTTP 404": 1, "no more were asked": 2}, 1)):
        provider = Provider(status)
        async with counted(provider) as (watch, count, _):
            for turns in (1, 3, 5):
                assert await send(watch, "/v1/messages?beta=true", [TEXT] * turns) == 200
                await watch.drain()
                await count.idle(60)
        assert count.as_dict()["not_counted"] == told
        assert len(provider.asked) == asked
        assert ("stopped" in count.as_dict()) == (status == 404)
        assert count.as_dict()["provider"] == {"counted": 0, "billed": 0, "not_sent": 0}


async def test_clients_never_wait_for_a_count_and_what_is_too_much_is_told() -> None:
    provider = Provider()
    provider.gate.clear()  # no count is answered before all clients are
    async with counted(provider) as (watch, count, _):
        for turn in range(70):
            assert await send(watch, "/v1/messages?beta=true", [f"{turn} {TEXT}"]) == 200
        await watch.drain()
        assert len(provider.asked) <= 1
        provider.gate.set()
    told = count.as_dict()
    assert told["changed"] == 70
    assert told["not_counted"] == {"too many were waiting": 6}
    assert told["counted"] == 64


CLIENT = """
import json, os, sys, urllib.request
body = {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": sys.argv[1]}]}
headers = {"Content-Type": "application/json", "x-api-key": sys.argv[2]}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


def holds_none(folder: Path, *texts: str) -> bool:
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    return len(stored) > 0 and not any(text.encode() in stored for text in texts)


@pytest.mark.parametrize("status", [200, 401])
async def test_the_report_has_the_providers_count_beside_ours(tmp_path: Path, status: int) -> None:
    back = free_port()
    async with Provider(status).served() as url, Rewriting(shortened, f"http://127.0.0.1:{back}") as proxy:
        line = [sys.executable, "-m", "context_bench", "watch", "--store", str(tmp_path / "store.db"), "--quiet"]
        line += ["--front", str(free_port()), "--back", str(back), "--via", proxy.url, "--upstream", url]
        client = ["--", sys.executable, "-c", CLIENT, TEXT, CLIENT_KEY]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*line, "--count-tokens", *client, stdout=pipe, stderr=pipe)
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    text = " ".join(out.decode().split())
    show = [*line[:4], "--store", str(tmp_path / "store.db"), "--show", "last", "--output", "json"]
    shown = await asyncio.create_subprocess_exec(*show, stdout=pipe, stderr=pipe)
    told = json.loads((await shown.communicate())[0])["provider_count"]
    if status == 401:
        assert told["not_counted"] == {"HTTP 401": 1}
        assert "Not counted by the provider: 1 changed request (1 × HTTP 401)." in text
        assert "No more was asked of its count: the provider answers count_tokens with HTTP 401." in text
    else:
        theirs, ours = told["provider"], told["ours"]
        assert theirs["not_sent"] > ours["not_sent"] > 0
        assert f"Not sent, by the provider's own count: {theirs['not_sent']:,} of {theirs['counted']:,} prompt" in text
        assert f"by our count of the same {ours['not_sent']:,} of {ours['sent']:,}." in text
    assert holds_none(tmp_path, CLIENT_KEY, PROVIDER_KEY)


def test_without_a_proxy_there_is_nothing_to_count(capsys: pytest.CaptureFixture[str]) -> None:
    from context_bench.cli.app import run_line

    assert run_line(["watch", "--upstream", "echo", "--count-tokens"]) == 2
    assert "--count-tokens compare with a proxy, and there is none" in capsys.readouterr().err
