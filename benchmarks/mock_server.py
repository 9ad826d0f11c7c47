"""The least chat endpoint that keeps connections open: one constant answer, whole or as a stream of events, at once or
after a delay.

    python benchmarks/mock_server.py [--port 18080] [--delay 0.2] [--tls CERTIFICATE.pem]

`GET /stats` tells how many chat requests and connections there have been, as JSON; so a benchmark sees a client that
drops, repeats or caches requests, or opens a connection for each. `--tls`: speak TLS with this certificate and key; it
is made for `localhost` and a day if there is no such file (a client trusts it by `SSL_CERT_FILE`).
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import ssl
import sys
from functools import partial
from pathlib import Path
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
    events: list[dict[str, object]] = [
        {**about, "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts
    ]
    events.append({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events.append({**about, "choices": [], "usage": USAGE})
    lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events] + [b"data: [DONE]\n\n"]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines)
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks
        + b"0\r\n\r\n"
    )


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
            told = (
                json.dumps(self.seen).encode() if head.startswith(b"get /stats") else b'{"object": "list", "data": []}'
            )
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told)
            )
            return
        self.seen["requests"] += 1
        reply = STREAMED if any(mark in body for mark in _STREAM) else WHOLE
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.transport.write, reply)
        else:
            self.transport.write(reply)


def made(file: Path) -> Path:
    """`file`, with a throw-away certificate and its key in it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    times = now - datetime.timedelta(hours=1), now + datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    itself = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), *times).add_extension(
        names, critical=False
    )
    signed = itself.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
    return file


def speaking_tls(file: Path) -> ssl.SSLContext:
    """The server's side of TLS, with the certificate in `file`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file if file.exists() else made(file))
    return context


async def serve(port: int = 0, delay: float = 0.0, tls: Path | None = None) -> None:
    """Serve on loopback until cancelled; the address is the first line on standard output."""
    context = None if tls is None else speaking_tls(tls)
    answering = partial(Answering, delay)
    server = await asyncio.get_running_loop().create_server(answering, "127.0.0.1", port, backlog=4096, ssl=context)
    found = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{found}" if tls is None else f"https://localhost:{found}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    options.add_argument("--tls", type=Path, metavar="FILE", help="speak TLS with the certificate and key in this file")
    asked = options.parse_args()
    try:
        asyncio.run(serve(asked.port, asked.delay, asked.tls))
    except KeyboardInterrupt:
        sys.exit(0)
