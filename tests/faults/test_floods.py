"""Too much at once: replies of 100 MB, and a thousand slow streams through the tap."""

import asyncio
import json
import resource

import aiohttp

from context_bench.engine import Arm, RunSettings, execute, open_store, rows
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer, raise_descriptor_limit
from context_bench.systems import OpenAIProxy
from context_bench.tap import Tap

STREAMS = 1_000


async def huge(reader, writer):
    """100 MB of one JSON text, as an endpoint that lost its mind would send it."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{"choices": [{"message": '
        b'{"content": "'
    )
    try:
        for _ in range(100):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
        writer.write(b'"}}]}')
        await writer.drain()
    except ConnectionError:
        pass  # the other side had enough
    writer.close()


async def test_a_reply_of_100_megabytes_is_one_row_and_the_run_goes_on(tmp_path):
    server = await asyncio.start_server(huge, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        system = OpenAIProxy(url, model="m", name="p", max_retries=0, timeout=60)
        with open_store(tmp_path / "store.db") as store:
            given = [{"id": 0, "context": "c", "question": "?"}]
            done = await asyncio.wait_for(
                execute(
                    store,
                    name="r",
                    arms=[Arm(system)],
                    examples=given,
                    evaluators=[],
                    manifest={},
                    settings=RunSettings(),
                ),
                120,
            )
            assert done.counts["done"] == 1
            found = list(rows(store, "r"))
    assert len(found) == 1
    assert all(row.errors["system"].startswith("BadReply") for row in found if row.failed)


async def test_a_thousand_slow_streams_go_through_the_tap_and_are_all_seen(tmp_path):
    raise_descriptor_limit(4 * STREAMS)
    slow = Scripted({"rules": [{"text": "one two three four", "pieces": 4, "chunk_delay": 0.3}]})
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "count"}]}
    async with ModelServer(slow) as provider, Tap(provider.url) as tap:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def ask():
                async with session.post(f"{tap.url}/v1/chat/completions", json=body) as reply:
                    assert reply.status == 200
                    return await reply.text()

            texts = await asyncio.wait_for(asyncio.gather(*(ask() for _ in range(STREAMS))), 120)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert len(await tap.unmatched()) == STREAMS
    assert all(text.rstrip().endswith("data: [DONE]") for text in texts)
    assert {said(text) for text in texts} == {"one two three four"}
    assert grown < 400_000  # KiB, of client, tap and provider together: 400 KB a stream


def said(text):
    """The answer of a stream, put together."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
