"""A provider that misbehaves to order, byte for byte, and proxies with the habits of real products, all on loopback.

The provider is for tests of whatever has to live with providers.

```python
from context_bench.testing.hostile import CASES, Hostile

async with Hostile() as provider:  # an OpenAI chat endpoint at provider.url
    ...  # a request whose model or text names `hostile:reset-mid-body` gets just that, every other one the answer "42"
    provider.log  # every request as it came: number, attempt, case, what was billed for it
```

`CASES` says of each case what a careful client makes of it: which failure (or none), whether another attempt is worth
while, and for how long it is asked to wait. The same order gives the same bytes; nothing here is random, and no key is
kept.

The proxies are small and real, each with one habit: for tests of instruments and for `context-bench demo`.

| name | what it does to a request |
| --- | --- |
| `nothing` | passes it on byte for byte |
| `halves` | cuts every text of context (as `serve` understands it) to its first half |
| `user-only` | turns every role into `user`; system texts become user messages |
| `calls-twice` | first asks the model for a summary of the context on its own account, then passes the request on unchanged |
| `drops-keys` | removes `Authorization` and `x-api-key` (and sends its own key, if it was given one) |
| `plain-only` | halves like `halves`, but leaves requests alone that have tools or `cache_control` |
| `remembers` | per client key: a paragraph that it has seen in an earlier request becomes `[as before]` |
| `rewrites-history` | shortens every earlier message again each time, by where the conversation is: no prefix ever stays the same |
| `buffers` | reads the whole reply before it passes anything on, so streams come in one piece |

Use: `async with MisbehavingProxy("halves", upstream_url) as proxy: proxy.url`, or a plain `with` from a script (own
loop thread). `Rewriting(function, upstream_url)` is the proxy whose one habit is a function of yours.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache
from multidict import CIMultiDict

from context_bench.core.addresses import refusal
from context_bench.core.errors import UnknownName
from context_bench.core.keys import hash_text, seed_of, stable_hash
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.records import Usage
from context_bench.llm.background import run_sync
from context_bench.llm.hop import Change, Hop, HopAnswer, HopRequest, unchanged
from context_bench.systems.context import WIRES, context_of, with_context
from context_bench.testing.hostile_cases import CASES, Act, HostileCase, Scene

__all__ = [
    "CASES",
    "Act",
    "Asked",
    "HostileCase",
    "Hostile",
    "faults",
    "refused_url",
]

_NAMED = re.compile(r"hostile:([\w-]+)")


@dataclass(slots=True)
class Asked:
    """One request as it arrived. `attempt`: how often this very body has come, from 1. `usage`: tokens the reply told,
    once it was sent whole; `None` if it told none. `text`: of all messages.
    """

    number: int
    attempt: int
    model: str
    text: str
    stream: bool
    case: str = ""
    usage: Usage | None = None
    body: dict[str, Any] = field(default_factory=dict, repr=False)


Order = Callable[[Asked], str]


def named(asked: Asked) -> str:
    """The case that the request's model or text names as `hostile:NAME`, else `answer`."""
    found = _NAMED.search(asked.model) or _NAMED.search(asked.text)
    return found[1] if found else "answer"


def faults(share: float, cases: Sequence[str], seed: int = 0) -> Order:
    """An order in which about `share` of the attempts meet one of `cases`; which ones follows from the text, the
    attempt and the seed.
    """

    def order(asked: Asked) -> str:
        drawn = seed_of(stable_hash([asked.text, asked.attempt]), seed)
        return cases[drawn // 1000 % len(cases)] if drawn % 1000 < 1000 * share else "answer"

    return order


class Hostile:
    """An OpenAI chat endpoint that does what it is told to: `async with Hostile() as provider`.

    `order`: which case a request gets: a function, a name for all of them, or names for the first ones (then `answer`).
    `answer`: the text where there is one. `tick`: seconds between the pieces of a case that is slow. `clock`: what
    dates in headers are made from.
    """

    def __init__(
        self,
        order: Order | str | Sequence[str] = named,
        *,
        answer: Callable[[Asked], str] = lambda asked: "42",
        tick: float = 1.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._order = order if callable(order) else _in_turn(order)
        self._answer, self._tick, self._clock = answer, tick, clock
        self.log: list[Asked] = []
        self.in_flight = self.most_in_flight = 0
        self._seen: Counter[str] = Counter()
        self._talks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, once started."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Hostile:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            with contextlib.suppress(
                OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError
            ):
                while (asked := await self._read(reader, writer)) is not None and await self._perform(asked, writer):
                    pass
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked | None:
        """The next request; `None` for what is none (such as a TLS handshake), is not let in or could be read in two
        ways.
        """
        if not (first := await reader.readexactly(1)).isalpha():
            return None
        headers = _headers((first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        if headers is None or refusal(headers) is not None:
            writer.write(
                b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                % (400 if headers is None else 403)
            )
            await writer.drain()
            return None
        raw = await reader.readexactly(int(headers.get("Content-Length", "0")))
        body = _object(raw)
        key = stable_hash(body)
        self._seen[key] += 1
        text = "\n".join(str(each.get("content")) for each in body.get("messages") or [] if isinstance(each, dict))
        asked = Asked(
            len(self.log) + 1, self._seen[key], str(body.get("model")), text, bool(body.get("stream")), body=body
        )
        asked.case = self._order(asked)
        self.log.append(asked)
        return asked

    async def _perform(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Do what the case says; true if the connection may go on."""
        scene = Scene(asked.model, self._answer(asked), asked.stream, len(asked.text.split()), self._clock.now())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for step in CASES[asked.case].steps(scene):
                if isinstance(step, bytes):
                    writer.write(step)
                    await writer.drain()
                    await asyncio.sleep(0)
                    if b"data: [DONE]" in step:  # the reply is whole, whatever becomes of the connection
                        asked.usage = scene.usage
                elif step is Act.TICK:
                    await asyncio.sleep(self._tick)
                elif step is Act.STALL:
                    await asyncio.Event().wait()
                else:
                    _cut(writer, reset=step is Act.RESET)
                    return False
            asked.usage = scene.usage
            return True
        finally:
            self.in_flight -= 1


def _headers(head: str) -> CIMultiDict[str] | None:
    """The headers of a request; `None` where it is open how long its body is."""
    _, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    found = [re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", line) for line in lines]
    headers = CIMultiDict((each[1], each[2]) for each in found if each)
    lengths = headers.getall("Content-Length", [])
    clear = all(found) and len(lengths) < 2 and all(re.fullmatch(r"[0-9]{1,9}", each) for each in lengths)
    return headers if clear and "Transfer-Encoding" not in headers else None


def _in_turn(order: str | Sequence[str]) -> Order:
    if isinstance(order, str):
        return lambda asked: order
    return lambda asked: order[asked.number - 1] if asked.number <= len(order) else "answer"


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return dict(body) if isinstance(body, Mapping) else {}


def _cut(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """End the connection, orderly or with a TCP reset."""
    if not reset:
        writer.close()
        return
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def refused_url() -> str:
    """A URL on loopback at which nobody listens."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{own.getsockname()[1]}"


_KEY_HEADERS = ("Authorization", "x-api-key")


class MisbehavingProxy:
    """One proxy of the table above; `own_key` is the key that `drops-keys` sends instead of the client's."""

    def __init__(self, habit: str, upstream: str, port: int = 0, *, own_key: str | None = None) -> None:
        if habit not in HABITS:
            raise UnknownName("habit of a proxy", habit, HABITS)
        self.habit, self.own_key = habit, own_key
        self._hop = Hop(upstream, unchanged, port=port)
        self._hop.change = HABITS[habit](self)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, without `/v1`; once started."""
        return self._hop.url

    async def fetch(self, request: HopRequest) -> tuple[int, bytes]:
        """A call of the proxy's own."""
        return await self._hop.fetch(request)

    async def __aenter__(self) -> MisbehavingProxy:
        await self._hop.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._hop.stop()

    def __enter__(self) -> MisbehavingProxy:
        return run_sync(self.__aenter__())

    def __exit__(self, *error: object) -> None:
        run_sync(self.__aexit__())


class Rewriting:
    """A proxy that sends `function(request)` in the place of each request: one request, or several of which the last
    one's reply counts.

    `in_body(edit)` makes such a function of one that edits the body's JSON object in place.
    """

    def __init__(
        self, function: Callable[[HopRequest], HopRequest | list[HopRequest]], upstream: str, port: int = 0
    ) -> None:
        async def change(request: HopRequest) -> HopRequest:
            made = function(request)
            *extra, last = made if isinstance(made, list) else [made]
            for one in extra:
                await self._hop.fetch(one)
            return last

        self._hop = Hop(upstream, change, port=port)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, without `/v1`; once started."""
        return self._hop.url

    async def __aenter__(self) -> Rewriting:
        await self._hop.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._hop.stop()

    def __enter__(self) -> Rewriting:
        return run_sync(self.__aenter__())

    def __exit__(self, *error: object) -> None:
        run_sync(self.__aexit__())


def in_body(edit: Callable[[dict[str, Any]], None]) -> Callable[[HopRequest], HopRequest]:
    """The rewriting in which `edit` changes the body's JSON object; it is then written as `json.dumps` writes it."""

    def function(request: HopRequest) -> HopRequest:
        body = request.body
        if body is None:
            return request
        edit(body)
        return request.with_document(json.dumps(body, ensure_ascii=False))

    return function


def _nothing(proxy: MisbehavingProxy) -> Change:
    return unchanged


def _halves(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        return _each_text(request, lambda text: text[: len(text) // 2])

    return change


def _plain_only(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        body = request.body
        if body is None or body.get("tools") or '"cache_control"' in request.document:
            return request
        return _each_text(request, lambda text: text[: len(text) // 2])

    return change


def _user_only(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        body = request.body
        if body is None or request.wire not in WIRES:
            return request
        field = "input" if request.wire == "openai-responses" else "messages"
        listed = body.get(field)
        items: list[Any] = listed if isinstance(listed, list) else [{"role": "user", "content": listed}]
        system = body.pop("instructions" if request.wire == "openai-responses" else "system", None)
        first = [{"role": "user", "content": system}] if system else []
        body[field] = [
            *first,
            *({**item, "role": "user"} if isinstance(item, dict) and "role" in item else item for item in items),
        ]
        return request.with_body(body)

    return change


def _calls_twice(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        body = request.body
        if body is None or request.wire not in WIRES:
            return request
        ask = "Summarise in one line: " + context_of(request.wire, body).text[:500]
        extra: dict[str, Any] = {"model": body.get("model")}
        if request.wire == "openai-responses":
            extra["input"] = ask
        else:
            extra["messages"] = [{"role": "user", "content": ask}]
        if request.wire == "anthropic":
            extra["max_tokens"] = 64
        await proxy.fetch(request.with_body(extra))
        return request

    return change


def _drops_keys(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        headers = request.headers.copy()
        for name in _KEY_HEADERS:
            headers.popall(name, None)
        if proxy.own_key is not None:
            headers["Authorization"] = f"Bearer {proxy.own_key}"
        return request.with_headers(headers)

    return change


def _remembers(proxy: MisbehavingProxy) -> Change:
    seen: LRUCache[str, set[str]] = LRUCache(1000)

    async def change(request: HopRequest) -> HopRequest:
        key = next((request.headers[name] for name in _KEY_HEADERS if name in request.headers), "")
        known = seen.setdefault(hash_text(key), set())
        passages: set[str] = set()

        def recall(text: str) -> str:
            passages.update(text.split("\n\n"))
            return "\n\n".join("[as before]" if paragraph in known else paragraph for paragraph in text.split("\n\n"))

        changed = _each_text(request, recall)
        known |= passages
        return changed

    return change


def _rewrites_history(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopRequest:
        body = request.body
        if body is None or request.wire not in WIRES:
            return request
        field = "input" if request.wire == "openai-responses" else "messages"
        listed = body.get(field)
        turns = len(listed) if isinstance(listed, list) else 0
        old = [
            slot
            for slot in context_of(request.wire, body).slots
            if len(slot.path) > 1 and int(slot.path[1]) < turns - 1 and not slot.after
        ]
        texts = [f"{slot.text[: len(slot.text) * 2 // (turns + 1)]} [cut at message {turns}]" for slot in old]
        return request.with_raw(with_context(request.plain, old, texts)) if old else request

    return change


def _buffers(proxy: MisbehavingProxy) -> Change:
    async def change(request: HopRequest) -> HopAnswer:
        status, raw = await proxy.fetch(request)
        streamed = bool((request.body or {}).get("stream")) and status == 200
        return HopAnswer([raw], status, "text/event-stream" if streamed else "application/json")

    return change


def _each_text(request: HopRequest, shorten: Callable[[str], str]) -> HopRequest:
    """The request with every text of its context shortened."""
    body = request.body
    if body is None or request.wire not in WIRES:
        return request
    slots = context_of(request.wire, body).slots
    texts = [shorten(slot.text) for slot in slots]
    if texts == [slot.text for slot in slots]:
        return request
    return request.with_raw(with_context(request.plain, slots, texts))


HABITS: dict[str, Callable[[MisbehavingProxy], Change]] = {
    "nothing": _nothing,
    "halves": _halves,
    "user-only": _user_only,
    "calls-twice": _calls_twice,
    "drops-keys": _drops_keys,
    "plain-only": _plain_only,
    "remembers": _remembers,
    "rewrites-history": _rewrites_history,
    "buffers": _buffers,
}
