"""Kills a watch around the ends of answers and compares what clients have with what is stored."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from context_bench.engine import open_store, watched

WAYS = ("plain", "stream", "socket")


class Provider:
    """Answers each turn at once, over any of three ways; `seen` are the turns that reached it."""

    def __init__(self):
        self.seen = set()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/responses", self._talk)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self):
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error):
        await self._runner.cleanup()

    async def _chat(self, request):
        body = await request.json()
        self.seen.add(body["messages"][0]["content"])
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        if not body.get("stream"):
            message = {"role": "assistant", "content": "fine"}
            return web.json_response(
                {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for each in ({"delta": {"content": "fine"}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}):
            await response.write(b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, **each}]}).encode())
        await response.write(b"data: [DONE]\n\n")
        await asyncio.sleep(random.choice((0, 0, 0.01)))  # the body's end may come with the last event, or after it
        return response

    async def _talk(self, request):
        talk = web.WebSocketResponse()
        await talk.prepare(request)
        async for message in talk:
            said = json.loads(message.data)
            self.seen.add(said["input"])
            await talk.send_json({"type": "response.created", "response": {"model": "m"}})
            output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "fine"}]}]
            await talk.send_json(
                {"type": "response.completed", "response": {"model": "m", "status": "completed", "output": output}}
            )
        return talk


@dataclass
class Clients:
    """Ask turn after turn; `answered` are the turns of which a client has the whole answer."""

    url: str
    answered: set = field(default_factory=set)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = 0
    until: int = 0
    pid: int = 0

    def turn(self):
        self.number += 1
        return f"turn {self.number} of {os.getpid()}"

    def has(self, turn):
        """A client has all of an answer: this is the moment to kill."""
        self.answered.add(turn)
        if len(self.answered) >= self.until and not self.enough.is_set():
            os.kill(self.pid, signal.SIGKILL)
            self.enough.set()

    async def ask(self, way):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            async with aiohttp.ClientSession() as session:
                await getattr(self, f"_{way}")(session)

    async def _plain(self, session):
        while not self.enough.is_set():
            turn = self.turn()
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": turn}]}
            async with session.post(self.url + "/v1/chat/completions", json=body) as reply:
                assert (await reply.json())["choices"]
            self.has(turn)

    async def _stream(self, session):
        while not self.enough.is_set():
            turn = self.turn()
            body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": turn}]}
            async with session.post(self.url + "/v1/chat/completions", json=body) as reply:
                async for line in reply.content:
                    if line.startswith(b"data: [DONE]"):  # here the official clients stop reading
                        self.has(turn)

    async def _socket(self, session):
        async with session.ws_connect(self.url + "/v1/responses") as talk:
            while not self.enough.is_set():
                turn = self.turn()
                await talk.send_json({"type": "response.create", "model": "gpt-5", "input": turn})
                while (await talk.receive_json(timeout=20))["type"] != "response.completed":
                    pass
                self.has(turn)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until(there):
    """Wait until something is so."""
    for _ in range(2_000):
        if there():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not come to be")


async def listens(port):
    """Wait for a server on a port."""

    def there():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    await until(there)


def stored(store):
    """The turns in the newest watch of a store."""
    with open_store(store) as opened:
        found = [
            json.dumps((turn.front or turn.calls[0]).request)
            for turn in watched(opened, "last", bodies=True)
            if turn.kind == "turn"
        ]
    return {text[text.index("turn ") : text.index('"', text.index("turn "))] for text in found}


async def kill_once(start, ended, provider, store, port, ways, answers):
    """One life of a watch, killed as a client gets the last byte of an answer: what was answered, and what of it is not
    stored.
    """
    provider.seen.clear()
    clients = Clients(f"http://127.0.0.1:{port}", until=answers, pid=await start())
    await listens(port)
    async with asyncio.timeout(60):
        tasks = [asyncio.create_task(clients.ask(way)) for way in ways]
        await clients.enough.wait()
        assert await ended() == -signal.SIGKILL
        await asyncio.gather(*tasks, return_exceptions=True)
    return clients.answered, clients.answered - stored(store)
