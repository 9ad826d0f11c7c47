"""An OpenAI-compatible proxy that remembers by itself: it is told the conversation as chats and asked as any model
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from context_bench.core.errors import BadInput, BadReply, Failed, describe
from context_bench.core.tokens import utf8_safe
from context_bench.llm.chat import ChatClient
from context_bench.llm.redact import secrets_in
from context_bench.memory.protocol import Capability, Item, NotSupported, Receipt
from context_bench.memory.systems.adapting import Answer
from context_bench.memory.systems.baselines import dated_text
from context_bench.wire.apis import Reply, chat_request

MEMORIES = {"proxy": "ProxyMemory"}
_INGEST = ("sessions", "turns", "none")


class ProxyMemory:
    """A proxy at `url` (default: the relay) in front of `model`, which puts what it remembers into requests. It
    answers; it shows no hits.

    `ingest`: how it learns the conversation. "sessions": one chat request a session with its turns as messages (dates
    and speakers in the text); "turns": one a turn; each asks for at most `reply_tokens` tokens, which are thrown away.
    "none": it has seen the conversation already. Namespaces are the request's `user`; with `header`, that header's
    value instead; `user=false` and no header: none are offered. All calls are in the run's ledger, with their tokens
    and money; what the proxy itself spends is seen by a tap behind it.
    """

    batch: int | None = None
    granularity = "turn"

    def __init__(
        self,
        url: str | None = None,
        *,
        relay: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        ingest: str = "sessions",
        user: bool = True,
        header: str | None = None,
        reply_tokens: int = 16,
        max_tokens: int = 256,
        timeout: float = 60.0,
        name: str = "proxy",
    ) -> None:
        base = url or relay
        if not base or not model:
            raise BadInput(
                "proxy is expected to name a proxy and a model: proxy:url=URL,model=NAME, or --relay and --model"
            )
        if ingest not in _INGEST:
            raise BadInput(f"proxy: ingest is {', '.join(_INGEST)}, not {ingest!r}")
        if header and secrets_in({header: "namespace"}):
            raise BadInput(f"proxy: the namespace cannot be sent as {header}, which is for keys")
        self.name, self.model = name, model
        self._ingest, self._user, self._header = ingest, user and not header, header
        self._limits = reply_tokens, max_tokens
        self._space = "context-bench"
        self._client = ChatClient(base, api_key=api_key, timeout=timeout)
        self._made: dict[str, Any] = {
            "url": base, "model": model, "api_key": api_key, "ingest": ingest, "user": user, "header": header,
            "reply_tokens": reply_tokens, "max_tokens": max_tokens, "timeout": timeout, "name": name,
        }  # fmt: skip

    @property
    def capabilities(self) -> frozenset[Capability]:
        offered: set[Capability] = {"add", "answer", "persistent"}
        return frozenset(offered | ({"namespaces"} if self._user or self._header else set()))

    def fingerprint(self) -> dict[str, Any]:
        """Everything its answers depend on, its address not: that changes by the run."""
        return {
            "class": "ProxyMemory",
            **{name: value for name, value in self._made.items() if name not in ("url", "api_key", "timeout")},
        }

    def namespace(self, name: str) -> ProxyMemory:
        """A twin that speaks for another user."""
        if not (self._user or self._header):
            raise NotSupported(f"{self.name}: namespaces need user=true or a header")
        twin = ProxyMemory(**self._made)
        twin._space = name
        return twin

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Tell the conversation; a request that fails is an error on the receipts of its items."""
        if self._ingest == "none":
            return [Receipt(item.id) for item in items]
        parts = (
            [[item] for item in items]
            if self._ingest == "turns"
            else [list(part) for _, part in groupby(items, key=lambda i: i.session)]
        )
        return [receipt for part in parts for receipt in await self._tell(part)]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Any]:
        raise NotSupported(f"{self.name} answers itself and shows no hits")

    async def answer(self, question: str) -> Answer:
        """Its answer. `context_tokens`: what it was billed for reading, as far as it tells."""
        reply = await self._say([{"role": "user", "content": utf8_safe(question)}], self._limits[1])
        if reply.text is None:
            raise BadReply(f"{self.name} answered without text")
        return Answer(reply.text, None if reply.usage is None else reply.usage.input_tokens)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _tell(self, part: Sequence[Item]) -> list[Receipt]:
        messages = [
            {"role": "assistant" if item.role == "assistant" else "user", "content": utf8_safe(dated_text(item))}
            for item in part
        ]
        try:
            await self._say(messages, self._limits[0])
        except Failed as error:
            return [Receipt(item.id, error=describe(error)) for item in part]
        return [Receipt(item.id) for item in part]

    async def _say(self, messages: list[dict[str, Any]], most: int) -> Reply:
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": most, "temperature": 0}
        if self._user:
            body["user"] = self._space
        return await self._client.send(
            chat_request(body, headers={self._header: quote(self._space, safe="")} if self._header else {})
        )
