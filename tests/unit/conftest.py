"""A judge's endpoint on loopback whose every reply is written by the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web


@dataclass
class Endpoint:
    """`answers` are used up in order, the last one for ever: (status, body or text)."""

    answers: list = field(default_factory=list)
    seen: list = field(default_factory=list)  # (path, headers, body)
    delay: float = 0.0
    url: str = ""

    def says(self, *contents):
        """Replies with these texts as message content."""
        self.answers = [(200, completion(content)) for content in contents]
        return self

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, dict(request.headers), await request.json()))
        await asyncio.sleep(self.delay)
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="application/json")
        return web.Response(status=status, text=json.dumps(body), content_type="application/json")


def completion(content, **choice):
    return {
        "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop", **choice}],
        "model": "m",
    }


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    served = Endpoint()
    app = web.Application()
    app.router.add_post("/{path:.*}", served.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    yield served
    await runner.cleanup()
