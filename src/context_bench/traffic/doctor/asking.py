"""Requests sent through a proxy, each as a conversation of its own, and what the recorder behind the proxy saw of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from context_bench.core.errors import SystemFailed, Unreachable
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.protocols import Recorder
from context_bench.core.records import Call, Example, Forwarded
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import ChatClient, endpoint
from context_bench.llm.shapes import SHAPES, ShapedRequest, build
from context_bench.wire.apis.read import parse_request
from context_bench.wire.request import Change, changes, count_request, facts
from context_bench.wire.violations import Violation, compare_requests

Status = Literal["ok", "warn", "fail", "unknown"]

SHORT: Example = {"id": "doctor", "context": "The gate opens at nine.", "question": "When does the gate open?"}
#: Each route by its name, and the shape that asks on it.
ROUTES = {"chat completions": "plain-user", "messages": "claude-code", "responses": "codex"}
_LARGEST_REPLY = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found out. `status`: ok, warn, fail, unknown; `advice`: what to do about it, if anything."""

    name: str
    status: Status
    detail: str
    advice: str = ""


@dataclass(slots=True)
class Seen:
    """One request with all that is known of it."""

    request: ShapedRequest
    error: str | None = None
    call: Call | None = None
    records: list[Forwarded] = field(default_factory=list)

    @property
    def main(self) -> Forwarded | None:
        """The record of the request itself: the largest, if the proxy made calls of its own."""
        return max(self.records, key=lambda record: record.tokens or 0, default=None)

    @property
    def compared(self) -> Forwarded | None:
        """The same if it arrived on the wire on which it was sent: nothing is compared across wires."""
        main = self.main
        return main if main is not None and main.wire == self.request.wire else None

    @property
    def sent(self) -> int:
        """Tokens of what we sent."""
        parsed = self.request.parsed()
        return count_request(parsed, counter_for(parsed.model)).total

    @property
    def shrunk(self) -> float | None:
        """The share of tokens that did not arrive; negative when there were more. `None` if that was not seen."""
        main = self.main
        if main is None or main.tokens is None or not self.sent:
            return None
        return 1 - main.tokens / self.sent

    @property
    def changes(self) -> list[Change]:
        """What was changed apart from texts."""
        main = self.compared
        return changes(facts(self.request.parsed()), main.facts) if main is not None and main.facts else []

    @property
    def violations(self) -> list[Violation] | None:
        """The same by kind, where the recorder keeps bodies as they are; else `None`."""
        main = self.compared
        if main is None or main.facts.get("policy", "full") != "full" or not isinstance(main.request, Mapping):
            return None
        return compare_requests(self.request.parsed(), parse_request(main.wire, main.request))


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply as it came. `coding`: its `Content-Encoding`."""

    status: int
    coding: str
    body: bytes


@dataclass(slots=True)
class Asker:
    """Sends requests, each as a conversation of its own, and collects what the recorder saw of them. `offered`: models, if it lists any."""

    client: ChatClient
    recorder: Recorder | None
    model: str
    key: str | None = None
    proxy_key: str | None = None
    offered: list[str] = field(default_factory=list)

    @property
    def mode(self) -> str:
        """How to mark: a proxy that checks a key of its own must get that one."""
        return "header" if self.proxy_key else "key"

    async def ask(self, name: str, request: ShapedRequest, mode: str | None = None) -> Seen:
        """Send one request, marked by `mode` where there is a recorder.

        A server that failed may end the connection a moment later: a request that was lost with it says nothing, and is sent once more on
        a new one.
        """
        seen = await self._ask(name, request, mode)
        lost = seen.call is not None and seen.call.status is None and str(seen.call.error).startswith(Unreachable.__name__)
        return await self._ask(name, request, mode) if lost else seen

    async def _ask(self, name: str, request: ShapedRequest, mode: str | None) -> Seen:
        seen = Seen(request)
        mark = await self.recorder.begin(f"doctor: {name}") if self.recorder else None
        ledger = Ledger("preflight", Mark(mode or self.mode, mark.token) if mark else None)
        try:
            with open_ledger(ledger):
                await self.client.send(request, tool_calls_ok=True)
        except SystemFailed as error:
            seen.error = str(error)
        finally:
            if self.recorder is not None and mark is not None:
                seen.records = await self.recorder.end(mark)
        seen.call = ledger.calls[-1] if ledger.calls else None
        return seen

    async def raw(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Raw:
        """The reply to a request, untouched. Raises what aiohttp does."""
        async with self._marked(f"doctor: {method} {path}") as own:
            timeout = aiohttp.ClientTimeout(total=self.client.timeout)
            url = endpoint(self.client.base_url, path)
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.request(method, url, json=body, headers={**(headers or {}), **own}, allow_redirects=False) as reply,
            ):
                told = bytearray()
                async for piece in reply.content.iter_any():
                    told += piece
                    if len(told) > _LARGEST_REPLY:
                        break
                return Raw(reply.status, reply.headers.get("Content-Encoding", "").strip().lower(), bytes(told))

    @asynccontextmanager
    async def _marked(self, name: str) -> AsyncIterator[dict[str, str]]:
        """The headers that a request needs to be let in and known again."""
        mark = await self.recorder.begin(name) if self.recorder else None
        key = self.proxy_key or (mark.token if mark else self.key)
        try:
            yield {
                **({"Authorization": f"Bearer {key}", "x-api-key": key} if key else {}),
                **({"x-context-bench": mark.token} if mark is not None else {}),
            }
        finally:
            if self.recorder is not None and mark is not None:
                await self.recorder.end(mark)

    def short(self, shape: str, **options: Any) -> ShapedRequest:
        """A request of a few words."""
        return build(shape, SHORT, self.model, **options)


def route_of(shape: str) -> str:
    """The route on which a shape is sent."""
    return next(route for route, plain in ROUTES.items() if plain == home(shape))


def home(shape: str) -> str:
    """The shape that stands for a shape's route."""
    return shape if shape in ("claude-code", "codex") else "plain-user"


def shapes_of(working: Iterable[str]) -> list[str]:
    """The shapes whose route works, plain ones first."""
    return [shape for shape in SHAPES if home(shape) in working]


def first(items: list[str], count: int) -> str:
    """The first of some phrases, and how many more there are."""
    more = len(items) - count
    return "; ".join(items[:count]) + (f"; and {more} more" if more > 0 else "")
