"""What a tap wrote down is read back as the session that was sent, body for body."""

from pathlib import Path

import aiohttp
import pytest

from context_bench.core.errors import BadInput
from context_bench.datasets.sessions import load_session
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap
from context_bench.tap.tap_server import record_file
from context_bench.transcripts import read_sessions
from context_bench.transcripts.session import Session
from context_bench.wire.apis import parse_request

NAME = "bundled:sessions/clinic-booking-ar"
AGENT = {"user-agent": "agent/1", "anthropic-beta": "context-management-2025-06-27", "authorization": "Bearer the-key"}


async def send(session: Session, url: str, stream: bool = False) -> None:
    async with aiohttp.ClientSession() as client:
        for request in session.requests:
            body = {**request.body, **({"stream": True} if stream else {})}
            async with client.post(url + request.path, json=body, headers={**request.headers, **AGENT}) as reply:
                assert reply.status == 200
                await reply.read()


@pytest.mark.parametrize(
    ("wire", "stream"),
    [
        ("openai-chat", False),
        ("openai-chat", True),
        ("openai-responses", True),
        ("anthropic", False),
        ("anthropic", True),
    ],
)
async def test_a_recorded_session_is_the_session_sent(wire: str, stream: bool, tmp_path: Path) -> None:
    sent, path = load_session(NAME, wire=wire), tmp_path / "records.jsonl"
    async with ModelServer(Echo()) as model:
        with record_file(path) as sink:
            async with Tap(model.url, record="full", sink=sink) as tap:
                await send(sent, tap.url, stream)
    (back,) = read_sessions(path)
    assert (back.wire, back.meta["reconstructed"], back.meta["policy"]) == (wire, False, "full")
    assert [request.body for request in back.requests] == [
        {**request.body, **({"stream": True} if stream else {})} for request in sent.requests
    ]
    assert all(request.exact for request in back.requests)
    assert back.requests[0].headers["anthropic-beta"] == AGENT["anthropic-beta"]
    assert "the-key" not in path.read_text()
    echo = Echo()
    for request in back.requests:
        expected = await echo.reply(parse_request(wire, request.body), {})
        assert request.recorded_reply is not None
        assert request.recorded_reply.text == expected.text
        assert expected.usage is not None
        if request.recorded_reply.usage is not None:
            assert request.recorded_reply.usage.input_tokens == expected.usage.input_tokens
    assert back.requests[0].at == 0.0
    assert [request.at for request in back.requests] == sorted(request.at or 0.0 for request in back.requests)


async def test_two_sessions_and_what_is_not_one(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    arabic, chinese = load_session(NAME), load_session("order-sync-zh")
    async with ModelServer(Echo()) as model:
        with record_file(path) as sink:
            async with Tap(model.url, record="redacted", sink=sink) as tap, aiohttp.ClientSession() as client:
                for one, other in zip(arabic.requests, chinese.requests, strict=False):
                    for request in (one, other):
                        await (await client.post(tap.url + request.path, json=request.body)).read()
                await (await client.get(tap.url + "/v1/models")).read()
                assert (await client.post(tap.url + "/v1/chat/completions", data=b"{")).status >= 400
    first, second = read_sessions(path)
    assert [len(first.requests), len(second.requests)] == [8, 8]
    assert first.requests[-1].messages[0] == arabic.requests[-1].messages[0]
    assert second.requests[-1].messages[0] == chinese.requests[-1].messages[0]
    assert sum(first.meta["skipped"].values()) == 2
    assert first.meta["skipped"]["route models"] == 1


@pytest.mark.parametrize("policy", ["meta", "hashes"])
async def test_records_without_bodies_say_what_to_do(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    async with ModelServer(Echo()) as model:
        with record_file(path) as sink:
            async with Tap(model.url, record=policy, sink=sink) as tap:
                await send(load_session(NAME), tap.url)
    with pytest.raises(BadInput, match="--record full or redacted"):
        list(read_sessions(path))
