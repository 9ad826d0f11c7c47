"""The least chat endpoint that keeps connections open: one constant answer, whole or as a stream of events, at once or after a delay.

    python benchmarks/mock_server.py [--port 18080] [--delay 0.2]

`GET /stats` tells how many chat requests and connections there have been, as JSON; so a benchmark sees a client that drops, repeats or
caches requests, or opens a connection for each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from functools import partial
from typing import ClassVar

TEXT = "The survey team reported that the harbour bridge reopened on Tuesday after engineers replaced two bearings."
USAGE = {"prompt_tokens": 300, "completion_tokens": 27, "total_tokens": 327}
_ABOUT = {"id": "x", "created": 0, "model": "mock"}


def whole() -> bytes:
    """The answer as one JSON body with its head."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}
    body = json.dumps({**_ABOUT, "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def streamed(pieces: int = 9) -> bytes:
    """The same answer as server-sent events, a few words each, in HTTP chunks."""
    about = {**_ABOUT, "object": "chat.completion.chunk"}
    words, size = TEXT.split(" "), -(-len(TEXT.split(" ")) // pieces)
    texts = [" ".join(words[i : i + size]) + (" " if i + size < len(words) else "") for i in range(0, len(words), size)]
    events: list[dict[str, object]] = [{**about, "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    events.append({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events.append({**about, "choices": [], "usage": USAGE})
    lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events] + [b"data: [DONE]\n\n"]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


WHOLE, STREAMED = whole(), streamed()
_STREAM = (b'"stream":true', b'"stream": true')


class Answering(asyncio.Protocol):
    """Reads a head and a body, answers, and waits for the next on the same connection."""

    seen: ClassVar[dict[str, int]] = {"requests": 0, "connections": 0}

    def __init__(self, delay: float = 0.0) -> None:
        self.delay, self.held = delay, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.seen["connections"] += 1

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[: end + 2].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 : head.find(b"\r\n", at)]) if at >= 0 else 0
            if len(self.held) < end + 4 + length:
                return
            body, self.held = self.held[end + 4 : end + 4 + length], self.held[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"post "):
            told = json.dumps(self.seen).encode() if head.startswith(b"get /stats") else b'{"object": "list", "data": []}'
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told))
            return
        self.seen["requests"] += 1
        reply = STREAMED if any(mark in body for mark in _STREAM) else WHOLE
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.transport.write, reply)
        else:
            self.transport.write(reply)


async def serve(port: int = 0, delay: float = 0.0) -> None:
    """Serve on loopback until cancelled; the address is the first line on standard output."""
    server = await asyncio.get_running_loop().create_server(partial(Answering, delay), "127.0.0.1", port, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    asked = options.parse_args()
    try:
        asyncio.run(serve(asked.port, asked.delay))
    except KeyboardInterrupt:
        sys.exit(0)
