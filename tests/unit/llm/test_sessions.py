"""One session per loop, kept-open connections, nothing left open."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

from aiohttp import web

from context_bench.llm.chat import ChatClient
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.sessions import leave, session_for

SAY = [{"role": "user", "content": "hi"}]


async def test_clients_share_connections() -> None:
    peers: set[tuple[str, int]] = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        await asyncio.sleep(0.002)
        return web.json_response({"choices": [{"message": {"content": "ok"}}]})

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    clients = [ChatClient(url) for _ in range(4)]
    for _ in range(10):
        await asyncio.gather(*(client.chat("m", SAY) for client in clients))
    assert len(peers) <= 4
    for client in clients:
        await client.aclose()
    await runner.cleanup()


async def test_the_last_one_closes_it_and_a_later_call_opens_another() -> None:
    one, two = object.__new__(ChatClient), object.__new__(ChatClient)
    session = await session_for(one)
    assert await session_for(two) is session
    await leave(one)
    assert not session.closed
    await leave(two)
    assert session.closed
    again = await session_for(one)
    assert not again.closed
    await leave(one)


async def test_closing_twice_and_before_use() -> None:
    async with ModelServer(Scripted([{"text": "ok"}])) as server:
        client = ChatClient(server.url)
        await client.aclose()
        assert (await client.chat("m", SAY)).text == "ok"
        await client.aclose()
        await client.aclose()


def test_nothing_is_left_open_by_scripts_that_forget_to_close() -> None:
    script = textwrap.dedent(
        """
        import asyncio
        from context_bench.llm.background import run_sync
        from context_bench.llm.chat import ChatClient
        from context_bench.llm.scripted import Scripted
        from context_bench.llm.servers import ModelServer

        async def ask(client):
            return (await client.chat("m", [{"role": "user", "content": "hi"}])).text

        async def main():
            async with ModelServer(Scripted([{"text": "ok"}])) as server:
                client = ChatClient(server.url)
                return await asyncio.gather(*(ask(client) for _ in range(5)))

        print(asyncio.run(main()), asyncio.run(main()), run_sync(main()))
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.count("ok") == 15
    assert done.stderr == ""
    assert done.returncode == 0
