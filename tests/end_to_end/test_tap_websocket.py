"""WebSockets through the tap, on real sockets: relayed as they are, each request recorded in full, refused at once
where nobody listens.
"""

import asyncio
import json

import aiohttp
import pytest

from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.tap import Tap

from .speaking import KEY, ODD_EVENTS, Caller, Speaking, calling, refused


def spoken(tap: Tap) -> list:
    return [record for record in tap.records if record.method == "WEBSOCKET"]


async def records(tap: Tap) -> list:
    await tap.settle()
    return spoken(tap)


@pytest.mark.parametrize("outputs", [True, False])
async def test_increments_are_recorded_as_the_full_requests_they_stand_for(outputs):
    async with Speaking(outputs=outputs) as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            for text in ("look around", "a.py b.py", "print(1)"):
                assert (await caller.turn(text))["type"] == "response.completed"
        found = await records(tap)
    assert [record.request["input"] for record in found] == provider.full
    assert [len(record.request["input"]) for record in found] == [1, 3, 5]
    assert [len(said["input"]) for said in provider.asked] == [1, 1, 1]
    assert all(record.request["stream"] is True and "previous_response_id" not in record.request for record in found)
    assert [record.usage.input_tokens for record in found] == [told["input_tokens"] for told in provider.told]
    assert [record.facts.get("joined") for record in found] == [None, True, True]
    assert [record.facts["reply_complete"] for record in found] == [True] * 3
    assert all(
        record.wire == "openai-responses" and record.status == 200 and record.ttft is not None for record in found
    )
    assert found[0].tokens < found[1].tokens < found[2].tokens
    assert found[2].prefix_tokens > found[1].prefix_tokens > 0


async def test_what_was_said_before_the_tap_is_not_made_up():
    async with Speaking() as provider, Tap(provider.url) as tap:
        async with calling(provider.url) as caller:
            await caller.turn()
            last = caller._last
        async with calling(tap.url) as caller:
            caller._last, caller._number = last, 1
            await caller.turn("a.py")
            await caller.turn("b.py")
        first, second = await records(tap)
    assert (first.facts["joined"], second.facts["joined"]) == (False, False)
    assert first.request["previous_response_id"] == last
    assert len(first.request["input"]) == 1


async def test_messages_pings_headers_and_closing_go_through_both_ways():
    async with Speaking() as provider, Tap(provider.url) as tap:
        async with calling(
            tap.url, headers={"x-codex-turn-metadata": "m"}, protocols=("other", "realtime"), compress=15
        ) as caller:
            assert caller.socket._response.headers["x-codex-turn-state"] == "sticky"
            assert caller.socket.protocol == "realtime"
            await caller.socket.ping()
            await caller.socket.send_bytes(b"\x00\xff")
            assert (await caller.socket.receive()).data == b"\xff\x00"
            odd = '{ "type":"response.processed" , "n": 1.0 }'
            await caller.socket.send_str(odd)
            assert (await caller.socket.receive()).data == odd
            await caller.socket.close(code=4001, message=b"enough")
        head, code = provider.heads[0], provider.codes
        await tap.settle(1)
    assert (head["authorization"], head["session-id"], head["x-codex-turn-metadata"]) == (KEY, "thread-1", "m")
    assert code == [4001]
    [opened] = tap.records
    assert (opened.method, opened.status, opened.wire) == ("GET", 101, "other")
    assert opened.facts["headers"]["names"]


async def test_the_upstreams_own_closing_reaches_the_client_and_what_was_cut_is_recorded_so():
    async with Speaking(odd={2: "cut"}) as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            await caller.turn()
            assert (await caller.turn())["closed"] == 1011
        first, second = await records(tap)
    assert (first.error, second.error) == (None, "the upstream closed the WebSocket (1011)")
    assert second.facts["reply_complete"] is False


async def test_refusals_and_failures_inside_a_socket_have_their_status():
    async with Speaking(odd={1: "error", 2: "within", 3: "failed"}) as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            for _ in range(4):
                await caller.turn()
        found = await records(tap)
    assert [record.status for record in found] == [429, 200, 200, 200]
    assert found[0].error == "HTTP 429: slow down"
    assert [bool(record.error) for record in found] == [True, True, True, False]


async def test_a_client_that_leaves_in_the_middle_is_recorded_with_what_it_had():
    async with Speaking(odd={1: "hang"}) as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            await caller.socket.send_json(
                {"type": "response.create", "model": "m", "input": [{"role": "user", "content": "a"}]}
            )
            assert (await caller.event())["type"] == "response.created"
            assert (await caller.event())["type"] == "response.output_item.added"
            caller.socket._response.close()
            await tap.settle(5)
        [record] = await records(tap)
    assert record.error.startswith("the client")
    assert (record.status, record.facts["failure"], record.facts["reply_complete"]) == (200, "client left", False)


async def test_requests_for_a_websocket_that_are_none_reach_nobody():
    head = "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    async with Speaking() as provider, Tap(provider.url) as tap:
        for odd in ("", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", key.replace("13", "99")):
            assert (await bytes_of(tap.url, f"{head}{odd}\r\n".encode())).startswith(b"HTTP/1.1 400 ")
        assert provider.heads == []
        garbage = await bytes_of(tap.url, f"{head}{key}\r\n".encode() + b"\xff" * 64)
        assert garbage.startswith(b"HTTP/1.1 101 ")
        assert b"\x88" in garbage.rpartition(b"\r\n")[2]  # a closing frame
        assert b"\x03\xea" in garbage  # code 1002
        async with calling(tap.url) as caller:
            assert (await caller.turn())["type"] == "response.completed"


async def bytes_of(url: str, sent: bytes) -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    heard = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return heard


async def test_odd_events_go_through_and_change_nothing():
    async with Speaking(odd={1: "events"}) as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            said = {"type": "response.create", "model": "m", "input": [{"role": "user", "content": "a"}]}
            await caller.socket.send_json(said)
            heard = [(await caller.socket.receive(timeout=5)).data for _ in range(1 + len(ODD_EVENTS) + 3)]
        [record] = await records(tap)
    assert heard[1 : 1 + len(ODD_EVENTS)] == list(ODD_EVENTS)
    assert record.status == 200
    assert record.usage.output_tokens == 9


async def test_lanes_are_told_apart():
    async with Speaking() as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            for lane in ("b", "a"):
                said = {
                    "type": "response.create",
                    "model": f"gpt-{lane}",
                    "stream_id": lane,
                    "input": [{"role": "user", "content": lane}],
                }
                await caller.socket.send_json(said)
            ends = 0
            while ends < 2:
                ends += (await caller.event())["type"] == "response.completed"
        found = await records(tap)
    assert {(record.request["model"], record.reply["model"]) for record in found} == {
        ("gpt-a", "gpt-a"),
        ("gpt-b", "gpt-b"),
    }
    assert all("stream_id" not in record.request for record in found)


@pytest.mark.parametrize(("status", "told"), [(404, 426), (405, 426), (200, 426), (500, 426), (401, 401), (429, 429)])
async def test_where_the_upstream_refuses_the_client_is_told_at_once(status, told):
    async with Speaking(refuse=status) as provider, Tap(provider.url) as tap:
        found, headers, seconds = await refused(tap.url)
        await tap.settle()
        [record] = tap.records
    assert (found, headers["Retry-After"]) == (told, "7")
    assert seconds < 1
    assert (record.status, record.method) == (told, "GET")
    assert str(status) in record.error
    assert len(provider.heads) == 1


async def test_a_provider_without_websockets_and_none_at_all():
    async with ModelServer(Echo()) as server, Tap(server.url) as tap:
        assert (await refused(tap.url))[0] == 426
        body = {"model": "gpt-4.1", "input": "hello"}
        async with aiohttp.ClientSession() as session, session.post(f"{tap.url}/v1/responses", json=body) as reply:
            assert reply.status == 200
    async with Tap("http://127.0.0.1:9") as tap:
        assert (await refused(tap.url))[0] == 502


async def test_one_that_hangs_up_on_upgrades_counts_as_refusing():
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, Tap(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as tap:
        assert (await refused(tap.url))[0] == 426


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://attacker.example"}, {"Host": "attacker.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_no_web_page_opens_one(headers):
    async with Speaking() as provider, Tap(provider.url) as tap:
        assert (await refused(tap.url, headers=headers))[0] == 403
        assert provider.heads == []
        assert (await refused(f"{tap.url}/_context_bench/status?"))[0] in (403, 404)


async def test_marks_decide_whose_requests_they_are_and_keys_are_swapped():
    async with Speaking() as provider, Tap(provider.url, upstream_key="sk-the-real-one-0123456789") as tap:
        mark = await tap.begin("conversation")
        async with calling(tap.url, headers={"Authorization": f"Bearer {mark.token}"}) as caller:
            await caller.turn()
            first = await tap.end(mark)
            again = await tap.begin("conversation")
            await caller.turn()
            await caller.turn()
            second = await tap.end(again)
        text = json.dumps([record.request for record in tap.records]) + repr(tap.records)
    assert [record.method for record in first] == ["GET", "WEBSOCKET"]
    assert [record.method for record in second] == ["WEBSOCKET"] * 2
    assert {record.matched_by for record in [*first, *second]} == {"key"}
    assert provider.heads[0]["authorization"] == "Bearer sk-the-real-one-0123456789"
    assert "sk-the-real" not in text


async def test_a_message_beyond_the_limit_ends_the_socket_and_is_said(monkeypatch):
    monkeypatch.setattr("context_bench.tap.tap_relay.MESSAGE_LIMIT", 2**16)
    async with Speaking() as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            await caller.turn()
            assert (await caller.turn("x" * 2**17))["closed"] == 1009
        assert (await records(tap))[0].status == 200
        await asyncio.sleep(0)
        async with calling(tap.url) as caller:
            assert (await caller.turn())["type"] == "response.completed"


async def test_requests_that_nobody_answers_do_not_pile_up():
    silent = asyncio.Event()

    async def handle(request):
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        silent.set()
        return socket

    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(handle, access_log=None))
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Tap(f"http://127.0.0.1:{runner.addresses[0][1]}") as tap:
            async with calling(tap.url) as caller:
                for number in range(70):
                    await caller.socket.send_json({"type": "response.create", "model": "m", "input": str(number)})
                async with asyncio.timeout(5):
                    while tap.status()["open"] != 64 or tap.status()["requests"] < 7:
                        await caller.socket.ping()
                        await asyncio.sleep(0)
            await asyncio.wait_for(silent.wait(), 5)
            found = await records(tap)
    finally:
        await runner.cleanup()
    assert len(found) == 70
    assert sum("not answered" in record.error for record in found) == 6
    assert {record.status for record in found} == {None}


async def test_a_tap_that_stops_ends_its_sockets_quickly_and_records_what_was_under_way():
    async with Speaking() as provider, Tap(provider.url) as tap:
        async with calling(tap.url) as caller:
            await caller.turn()
            began = asyncio.get_running_loop().time()
            await tap.stop()
            assert asyncio.get_running_loop().time() - began < 2
            assert isinstance(caller, Caller)
        assert len(spoken(tap)) == 1
