"""A provider on loopback that plays the replies of a pair byte for byte, and keeps what it is sent.

A reply is `{"json": …}` or `{"events": [...]}`, with `status`, `headers` and `pause` (seconds between the events) where
they matter. When no reply is left, it answers in the form of the route, with a usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

Reply = dict[str, Any]
#: Input tokens of every bill: more than any probe has, so that no bill is too small for what was sent.
BILLED = 5_000


@dataclass(slots=True)
class Arrived:
    """One request as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any


@dataclass
class Provider:
    """`async with Provider(replies) as provider`: serves at `provider.url`, keeps requests in `provider.log`."""

    replies: Sequence[Reply] = ()
    url: str = ""
    log: list[Arrived] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._left = list(self.replies)
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        prompt = request.method == "POST" and request.path.endswith(("/completions", "/messages", "/responses"))
        if prompt:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.log.append(Arrived(request.path, headers, raw, body))
        reply = self._left.pop(0) if prompt and self._left else default_reply(request.path, body)
        status, headers = reply.get("status", 200), reply.get("headers", {})
        if "json" in reply:
            return web.json_response(reply["json"], status=status, headers=headers)
        stream = web.StreamResponse(status=status, headers={"content-type": "text/event-stream", **headers})
        with contextlib.suppress(ConnectionError):  # whoever asked went away
            await stream.prepare(request)
            for event in reply["events"]:
                await stream.write(as_event(event))
                await asyncio.sleep(reply.get("pause", 0.0))
            await stream.write_eof()
        return stream


def as_event(event: Any) -> bytes:
    """A server-sent event: of a mapping its JSON, under its `type` where it has one."""
    name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
    return f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()


def default_reply(path: str, body: Any) -> Reply:
    """The answer "ok" in the form of the route."""
    stream = bool(body.get("stream"))
    if path.endswith("/messages"):
        return message_stream([{"type": "text", "text": "ok"}]) if stream else {"json": message()}
    if path.endswith("/responses"):
        whole = response()
        begun = {"type": "response.created", "sequence_number": 0, "response": {**whole, "status": "in_progress"}}
        done = {"type": "response.completed", "sequence_number": 1, "response": whole}
        return {"events": [begun, done]} if stream else {"json": whole}
    if path.endswith("/embeddings"):
        return {"json": embeddings(body)}
    if path.endswith("/completions"):
        return chat_stream({"content": "ok"}) if stream else {"json": chat()}
    return {"json": {"object": "list", "data": []}}


def chat(message: Any = None, usage: Any = None) -> dict[str, Any]:
    """A chat completion."""
    said = {"role": "assistant", "content": "ok", **(message or {})}
    finish = "tool_calls" if said.get("tool_calls") else "stop"
    told = usage or {"prompt_tokens": BILLED, "completion_tokens": 2, "total_tokens": BILLED + 2}
    choices = [{"index": 0, "message": said, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": told,
    }


def chat_stream(*deltas: Any, finish: str = "stop", pause: float = 0.0, end: bool = True) -> Reply:
    """The same as a stream of the deltas; without `end` it breaks off after the last of them."""
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events: list[Any] = [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in ({"role": "assistant", "content": ""}, *deltas)
    ]
    if end:
        events.append({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": BILLED, "completion_tokens": 2, "total_tokens": BILLED + 2}
        events += [{**about, "choices": [], "usage": usage}, "[DONE]"]
    return {"events": events, "pause": pause}


def message(content: Any = None, usage: Any = None) -> dict[str, Any]:
    """A message of Anthropic's API."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content or [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage or {"input_tokens": BILLED, "output_tokens": 2},
    }


def message_stream(blocks: Sequence[Any], usage: Any = None, final: Any = None) -> Reply:
    """The same as a stream of text blocks."""
    begun = {**message(usage=usage), "content": [], "stop_reason": None}
    events: list[Any] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "text_delta", "text": block["text"]},
            },
            {"type": "content_block_stop", "index": index},
        ]
    last = {"stop_reason": "end_turn", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": last, "usage": final or {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return {"events": events}


def response(output: Any = None) -> dict[str, Any]:
    """A response of OpenAI's Responses API."""
    text = {"type": "output_text", "text": "ok", "annotations": []}
    said = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [text]}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "output": output or [said],
        "usage": {
            "input_tokens": BILLED,
            "output_tokens": 2,
            "total_tokens": BILLED + 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def embeddings(body: Any, size: int = 64) -> dict[str, Any]:
    """Bags of hashed words: texts of the same words lie near one another."""
    given = body.get("input")
    texts = given if isinstance(given, list) else [given]
    width = int(body.get("dimensions") or size)
    data = [{"object": "embedding", "index": i, "embedding": _vector(str(text), width)} for i, text in enumerate(texts)]
    return {"object": "list", "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}, "data": data}


def _vector(text: str, size: int) -> list[float]:
    counts = [0.0] * size
    for word in re.findall(r"\w+", text.lower()):
        counts[zlib.crc32(word.encode()) % size] += 1.0
    length = math.sqrt(sum(count * count for count in counts)) or 1.0
    return [count / length for count in counts]
