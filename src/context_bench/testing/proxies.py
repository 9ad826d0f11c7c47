"""Small real proxies on loopback, each with one habit that real products have: for tests of instruments and for
`context-bench demo`.

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

import json
from collections.abc import Callable
from typing import Any

from cachetools import LRUCache

from context_bench.core.errors import UnknownName
from context_bench.core.keys import hash_text
from context_bench.llm.background import run_sync
from context_bench.llm.hop import Change, Hop, HopAnswer, HopRequest, unchanged
from context_bench.systems.context import WIRES, context_of, with_context

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
        return request.with_document(with_context(request.document, old, texts)) if old else request

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
    return request.with_document(with_context(request.document, slots, texts))


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
