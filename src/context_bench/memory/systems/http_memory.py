"""Memories over HTTP: any API told in a file, with requests as templates and replies read by path.

And an OpenAI-compatible proxy that remembers by itself: it is told the conversation as chats and asked as any model is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from context_bench.core.addresses import EXPECTED, fault_of, shown
from context_bench.core.errors import BadInput, BadReply, Failed, Refused, TimedOut, describe
from context_bench.core.keys import load_body
from context_bench.core.secrets import secrets_in_url
from context_bench.core.templates import fill, names_in, read_description
from context_bench.core.tokens import utf8_safe
from context_bench.llm.chat import ChatClient
from context_bench.llm.failures import Failure, RetryPolicy, of_exception, of_status
from context_bench.llm.redact import bare_url, key_in, redact, secrets_in
from context_bench.llm.sessions import leave, of_aiohttp, session_for
from context_bench.memory.protocol import Capability, Item, NotSupported, Receipt
from context_bench.memory.systems.adapting import Answer
from context_bench.memory.systems.baselines import dated_text
from context_bench.memory.systems.described import Described, NotThere
from context_bench.memory.systems.descriptions import DescriptionReader, MemoryDescription, MemoryStep
from context_bench.wire.apis import Reply, chat_request

SCHEMES = {
    "http": "from_spec",
}
MEMORIES = {
    "proxy": "ProxyMemory",
}

_LARGEST = 64 * 2**20
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}
_READS = {
    "search",
    "status",
    "stats",
    "get",
    "list",
    "between",
    "related",
}  # asked twice, they change nothing, whatever the method
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_KEYS: dict[str, tuple[type, ...]] = {
    "method": (str,), "path": (str,), "query": (dict,), "headers": (dict,), "body": (dict, list, str), "idempotent": (bool,),  # noqa: E501
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Key:
    """The header that carries the key; `value` is never shown."""

    header: str
    value: str = field(repr=False)


class HTTPMemory(Described):
    """`http:FILE`: a memory whose `[add]`, `[search]`, … are requests.

    ```toml
    name = "notes"
    base_url = "http://127.0.0.1:8000"
    timeout = 30                                  # seconds for one request
    [auth]                                        # the variable's name stands here, its value nowhere
    env = "NOTES_KEY"
    header = "Authorization"
    value = "Bearer {key}"
    [add]
    path = "/v1/users/{namespace}/notes"          # method = "POST"
    body = {text = "{content}", metadata = {source_id = "{id}", time = "{time}"}}
    id = "id"                                     # or the name that the call gave: "{namespace}-{id}"
    [search]
    path = "/v1/users/{namespace}/search"
    body = {query = "{query}", limit = "{k}"}
    hits = "results"
    text = "text"
    score = "score"
    id = "id"
    source = "metadata.source_id"
    time = "metadata.time"
    [delete]
    method = "DELETE"
    path = "/v1/notes/{id}"
    [delete_all]
    method = "DELETE"
    path = "/v1/users/{namespace}"
    ```

    Also `[update]`, `[answer]` (`text`), `[stats]` (`items`, `bytes`), `[open]` (once a namespace; its `id` is
    `{space}` elsewhere) and `[status]` (`ready`, `equals`), which `flush` asks until it is so; without it `flush`
    searches for the last item added (`wait = "no"`: it can be found at once). Keys of a request: `method`, `path`,
    `query`, `headers`, `body` (JSON), `idempotent`. Those that change nothing when repeated (GET, PUT, DELETE;
    searches; `idempotent = true`) are tried up to four times. Redirects are not followed.
    """

    def __init__(self, description: MemoryDescription, namespace: str = "context-bench") -> None:
        super().__init__(description, namespace)
        self._base = str(description.more["base_url"]).rstrip("/")
        self._key: Key | None = description.more["key"]
        self._policy = RetryPolicy(3, 0.2, 5.0)

    def __repr__(self) -> str:
        return f"HTTPMemory({self.name!r}, {bare_url(self._base)!r})"

    async def close(self) -> None:
        await leave(self)

    async def _send(self, step: MemoryStep, values: Mapping[str, Any], seconds: float) -> Any:
        method = str(step.call.get("method", "POST")).upper()
        again = bool(step.call.get("idempotent", method in _REPEATABLE or step.name in _READS))
        loop = asyncio.get_running_loop()
        end, attempt = loop.time() + seconds, 0
        while True:
            attempt += 1
            found = await self._once(step, method, values, end - loop.time(), seconds)
            if not isinstance(found, Failure):
                return found
            pause = self._policy.delay(attempt, found.asked)
            if not (again and found.again) or attempt > self._policy.max_retries or loop.time() + pause >= end:
                raise found.error
            await asyncio.sleep(pause)

    async def _once(self, step: MemoryStep, method: str, values: Mapping[str, Any], left: float, allowed: float) -> Any:
        """The reply's document, or why there is none."""
        path = fill(step.call["path"], values, lambda text: quote(text, safe=""))
        headers, secrets = self._headers(step, values)
        url = self._base + path
        where, secrets = bare_url(url), [*secrets, *secrets_in_url(self._base)]
        session = await session_for(self, trust_env=urlsplit(self._base).hostname not in _LOOPBACK)
        try:
            async with (
                asyncio.timeout(max(0.001, left)),
                session.request(
                    method,
                    url,
                    params={name: str(value) for name, value in fill(step.call.get("query", {}), values).items()},
                    json=fill(step.call["body"], values) if "body" in step.call else None,
                    headers=headers,
                    allow_redirects=False,
                ) as reply,
            ):
                data = await reply.content.read(_LARGEST + 1)
                while len(data) <= _LARGEST and (more := await reply.content.read(_LARGEST)):
                    data += more
                status, told = reply.status, {name.lower(): value for name, value in reply.headers.items()}
        except TimeoutError:
            return Failure(TimedOut(f"{self.name}: no whole reply from {where} within {allowed:g} s"), again=True)
        except (aiohttp.ClientError, OSError) as error:
            return of_exception(of_aiohttp(error), where=where, seconds=allowed, deadline=False, secrets=secrets)
        except ValueError as error:  # a header that cannot be sent
            return Failure(Refused(f"{self.name}: the request cannot be sent: {redact(str(error), secrets)[:200]}"))
        if status == 404 and step.name in ("delete", "update", "delete_all"):
            raise NotThere(f"HTTP 404 from {where}")
        if not 200 <= status < 300:
            return of_status(status, told, data, where=where, now=time.time(), secrets=secrets)
        return self._document(data, where, secrets)

    def _document(self, data: bytes, where: str, secrets: list[str]) -> Any:
        if len(data) > _LARGEST:
            raise BadReply(f"{self.name}: {where} sent more than {_LARGEST:,} bytes")
        if not data.strip():
            return None
        try:
            return load_body(data, _LARGEST)
        except ValueError:
            shown = redact(data[:2000].decode("utf-8", "replace"), secrets)[:200]
            raise BadReply(f"{self.name}: {where} is expected to send JSON, found {shown!r}") from None

    def _headers(self, step: MemoryStep, values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Headers, and what in them is nobody's business."""
        filled = {**self.description.more["headers"], **step.call.get("headers", {})}
        headers = {
            name: quote(str(value), safe=" !#$&'()*+,/:;=?@[]%\"<>{}|^`")
            for name, value in fill(filled, values).items()
        }
        if self._key is None:
            return headers, []
        return {**headers, self._key.header: self._key.value}, secrets_in({"authorization": self._key.value})


def from_spec(target: str) -> HTTPMemory:
    """Make the memory of an `http:` spec: a description's file; `BadInput` for a URL, which says nothing of requests
    and replies.
    """
    if not target or target.startswith(("http:", "https:", "//")):
        raise BadInput(
            f"http:{target.removeprefix('http:')}: a file is expected that describes requests and replies, as in "
            "http:memory.toml "
            "(docs/guide/memory.md); a proxy with a memory of its own is proxy:url=URL"
        )
    return from_dict(read_description(Path(target)), target)


def from_dict(given: Mapping[str, Any], where: str = "the description of the HTTP memory") -> HTTPMemory:
    """From what such a file says; `BadSpec` lists every fault, `BadInput` names a variable that is not set."""
    reading = DescriptionReader(given, where, call=_KEYS, needed="path")
    base, headers, auth = (
        str(reading.take("base_url", str) or "").strip(),
        reading.take("headers", dict, {}),
        reading.take("auth", dict),
    )
    if (fault := fault_of(base)) is not None:
        reading.faults.append(f"`base_url` is expected to be {EXPECTED}; found {shown(base)!r}: {fault}")
    elif (parts := urlsplit(base)).username or parts.password:
        reading.faults.append("`base_url` holds a login; give it through [auth] and an environment variable")
    steps = [table for table in given.values() if isinstance(table, Mapping)]
    for table in (headers, *(table["headers"] for table in steps if isinstance(table.get("headers"), Mapping))):
        reading.faults += [
            f"header {name!r} looks like a key; give it through [auth] and an environment variable"
            for name in _secret(table)
        ]
    key = None if auth is None else auth_of(reading, auth)
    description = reading.done({"base_url": base, "headers": headers, "key": key})
    return HTTPMemory(description)


def _secret(headers: Mapping[str, Any]) -> list[str]:
    return [name for name, value in headers.items() if not names_in(value) and secrets_in({str(name): str(value)})]


def auth_of(reading: DescriptionReader, auth: Mapping[str, Any]) -> Key | None:
    """The header that an [auth] table asks for, its key taken from the environment."""
    unknown = auth.keys() - {"env", "header", "value"}
    reading.faults += [f"[auth]: {name!r} is not known; expected env, header, value" for name in sorted(unknown)]
    variable, header, value = auth.get("env"), auth.get("header", "Authorization"), auth.get("value", "Bearer {key}")
    if not all(isinstance(one, str) for one in (variable, header, value)) or "{key}" not in value:
        reading.faults.append(
            "[auth] is expected to be env = NAME OF A VARIABLE, header = NAME, value = TEXT with {key} in it"
        )
        return None
    found = key_in(str(variable))
    if not found:
        raise BadInput(f"{reading.where}: [auth] env names {variable}, which is not set")
    return Key(str(header), str(value).replace("{key}", found))


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
