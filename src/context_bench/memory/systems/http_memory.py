"""Any memory behind an HTTP API, told in a file: requests as templates, replies read by path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from context_bench.core.addresses import EXPECTED, fault_of, shown
from context_bench.core.errors import BadInput, BadReply, Refused, TimedOut
from context_bench.core.keys import load_body
from context_bench.core.secrets import secrets_in_url
from context_bench.core.templates import fill, names_in, read_description
from context_bench.llm.failures import Failure, RetryPolicy, of_exception, of_status
from context_bench.llm.redact import bare_url, key_in, redact, secrets_in
from context_bench.llm.sessions import leave, of_aiohttp, session_for
from context_bench.memory.systems.described import Described, DescriptionReader, MemoryDescription, MemoryStep, NotThere

SCHEMES = {"http": "from_spec"}
_LARGEST = 64 * 2**20
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}
_READS = {"search", "status", "stats"}  # asked twice, they change nothing, whatever the method
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
