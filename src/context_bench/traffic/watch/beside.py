"""Work beside a watch on turns that are over: a share of them is mirrored through another arm, or the provider is asked
for its own count of them. No client waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Self

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from context_bench.core.errors import CostCapReached
from context_bench.core.keys import seed_of
from context_bench.core.numbers import count
from context_bench.core.protocols import Spend
from context_bench.llm.coding import decode
from context_bench.llm.relay import BadTarget, Relay, end_to_end, one_spelling
from context_bench.tap.exchange import header
from context_bench.traffic.watch.measure import Mirror, Money
from context_bench.traffic.watch.paired_taps import OwnCall, TapPair
from context_bench.wire.apis import EndOfStream
from context_bench.wire.apis.shared import as_dict, load_json
from context_bench.wire.turns import Turn

_WAITING = 64  # mirrored requests that may wait; more are left out and counted
_TIMEOUT = 600.0
#: Seconds that a stream has for closing after its last event; then its connection is ended.
_CLOSING_SECONDS = 0.25


class _OneByOne(ABC):
    """Takes finished turns and works at them one at a time, beside the watch, which it never holds up.

    `counts` says what became of them, `stopped` why no more are taken.
    """

    def __init__(self) -> None:
        self._waiting: deque[Mirror] = deque()
        self._more, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.counts: Counter[str] = Counter()
        self.stopped: str | None = None
        self._worker: asyncio.Task[None] | None = None

    def _put(self, mirror: Mirror) -> None:
        self._waiting.append(mirror)
        self._idle.clear()
        self._more.set()

    async def __aenter__(self) -> Self:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._worker is not None
        self._worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker
        self.counts["unfinished"] += len(self._waiting)

    async def idle(self, patience: float) -> None:
        """Wait until nothing waits any more, at most `patience` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._idle.wait()

    @abstractmethod
    async def _work(self) -> None:
        """Open what the work needs, and do it for `_each` turn."""

    async def _each(self, one: Callable[[Mirror], Awaitable[None]]) -> None:
        while self.stopped is None:
            while not self._waiting:
                self._idle.set()
                self._more.clear()
                await self._more.wait()
            await one(self._waiting[0])
            self._waiting.popleft()
        self._idle.set()


class Shadow(_OneByOne):
    """Mirrors a share of turns, one at a time, through `arm`.

    `share`: 0 to 1; whether a turn is taken follows from `seed`, its session and its place in it, so the same traffic
    gives the same choice. `spend` is asked before each request, with the worst it can cost. `counts`: `sampled`,
    `sent`, `failed`, `unpriced` (no price is known, so nothing was sent), `crowded` (too many were waiting),
    `unfinished` (the watch ended first). `stopped` says why no more are sent.
    """

    def __init__(self, arm: TapPair, *, share: float, spend: Spend, prices: Money, seed: int = 0) -> None:
        super().__init__()
        self._arm, self._share, self._spend, self._prices, self._seed = arm, share, spend, prices, seed
        self._answered = asyncio.Event()
        self._cost: float | None = None

    def sentences(self) -> list[str]:
        """Sentences for the report about what became of the sample."""
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()) if count)
        notes = [f"Shadow: {counted or 'no turn was in the sample'}."]
        if self.counts["unpriced"]:
            unpriced = "requests of models without a known price were not sent"
            notes.append(f"Shadow: {unpriced}; give one with --price MODEL=INPUT,OUTPUT.")
        return [*notes, *([f"Shadow: {self.stopped}"] if self.stopped else [])]

    def offer(self, mirror: Mirror) -> None:
        """A turn is over: take it if it is of the sample."""
        chance = seed_of("shadow", self._seed, mirror.place.session.origin, mirror.turn.turn) / 2**64
        if self.stopped is not None or chance >= self._share:
            return
        self.counts["sampled"] += 1
        if len(self._waiting) >= _WAITING:
            self.counts["crowded"] += 1
            return
        self._put(mirror)

    def seen(self, turn: Turn) -> None:
        """A turn of the second arm is measured and kept."""
        if turn.arm == "shadow" and turn.kind == "turn":
            self._cost = turn.cost
            self._answered.set()

    async def _work(self) -> None:
        async with aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
            auto_decompress=False,
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        ) as session:
            await self._each(partial(self._one, session))

    async def _one(self, session: aiohttp.ClientSession, mirror: Mirror) -> None:
        turn = mirror.turn
        worst = self._prices.worst_case(turn.model or "", turn.sent or 0, mirror.max_tokens)
        if worst is None:
            self.counts["unpriced"] += 1
            return
        try:
            ticket = await self._spend.reserve(worst)
        except CostCapReached as reached:
            self.stopped = str(reached)
            return
        self._cost = None
        try:
            await self._send(session, mirror)
            self.counts["sent"] += 1
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.counts["failed"] += 1
        finally:
            self._spend.settle(ticket, self._cost)

    async def _send(self, session: aiohttp.ClientSession, mirror: Mirror) -> None:
        self._answered.clear()
        self._arm.place = mirror.place
        url = URL(f"{self._arm.url}{mirror.target}", encoded=True)
        headers = CIMultiDict(end_to_end(mirror.headers, {"host", "expect", "content-length"}))
        async with session.request(
            mirror.method, url, data=mirror.body, headers=headers, allow_redirects=False
        ) as reply:
            await _thrown_away(reply.content)
        async with asyncio.timeout(30.0):
            await self._answered.wait()


async def _thrown_away(content: aiohttp.StreamReader) -> None:
    """Read a reply to its end: of a stream, its last event; one that stays open then is left."""
    end = EndOfStream()
    async for piece in content.iter_any():
        if end.begins_in(piece):
            break
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_SECONDS):
            async for _ in content.iter_any():
                pass


#: Of each API what its count of a prompt is called, and the fields of a request that this takes (the providers'
#: references of `POST /v1/messages/count_tokens` and `POST /v1/responses/input_tokens`); others would be refused.
_COUNTED_FIELDS = {
    "anthropic": (
        "count_tokens",
        *("messages", "model", "system", "tools", "tool_choice", "thinking", "cache_control", "output_config"),
        *("context_management", "mcp_servers", "speed"),
    ),
    "openai-responses": (
        "input_tokens",
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"),
        *("previous_response_id", "conversation", "truncation"),
    ),
}
_COUNT_HEADERS = (
    *("authorization", "x-api-key", "api-key", "anthropic-version", "anthropic-beta", "openai-beta"),
    *("openai-organization", "openai-project", "user-agent"),
)
_HELD = 64 * 2**20  # bytes of requests that may wait to be counted
_COUNT_SECONDS, _MOST_ANSWER = 60.0, 2**16
_NO_COUNT = (401, 403, 404, 405, 501)  # answers after which asking again is of no use


class ProviderCount(_OneByOne):
    """Asks the provider for its own count of the client's requests that were changed on their way to it.

    What it counts, less what it billed for the call, was not sent. Each question goes where the call went, with the
    headers that the call had, its key among them; nothing of it is kept. `counts`: `changed` requests, `counted` ones,
    `unfinished` (the watch ended first), and every other by why it was not counted.
    """

    def __init__(self, upstream: str, moved: Callable[[dict[str, Any]], None] = lambda told: None) -> None:
        super().__init__()
        self._relay, self._moved, self._held = Relay(upstream), moved, 0
        self._sums = {"counted": 0, "billed": 0, "sent": 0, "forwarded": 0}

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: how many requests were changed and counted, their tokens by the provider's count and by ours, and
        why others were not counted.
        """
        told, known = self._sums, ("changed", "counted")
        return {
            **{name: self.counts[name] for name in known},
            "provider": {
                **{name: told[name] for name in ("counted", "billed")},
                "not_sent": told["counted"] - told["billed"],
            },
            "ours": {
                **{name: told[name] for name in ("sent", "forwarded")},
                "not_sent": told["sent"] - told["forwarded"],
            },
            "not_counted": {name: n for name, n in sorted(self.counts.items()) if n and name not in known},
            **({"stopped": self.stopped} if self.stopped is not None else {}),
        }

    def offer(self, mirror: Mirror) -> None:
        """A turn is over: have it counted if what stands in between has changed it."""
        if mirror.turn.unchanged is not False:
            return
        self.counts["changed"] += 1
        if (why := self._left_out(mirror)) is not None:
            self.counts[why] += 1
            self._moved(self.as_dict())
            return
        self._held += len(mirror.body)
        self._put(mirror)

    def _left_out(self, mirror: Mirror) -> str | None:
        own, turn = mirror.own, mirror.turn
        if own is None or own.billed is None:
            return "nothing billed that is known"
        if own.wire != turn.wire:
            return "sent on to another API"
        if own.wire not in _COUNTED_FIELDS:
            return "its API has no count"
        if self.stopped is not None:
            return "no more were asked"
        crowded = len(self._waiting) >= _WAITING or self._held + len(mirror.body) > _HELD
        return "too many were waiting" if crowded else None

    async def _work(self) -> None:
        await self._relay.open()
        try:
            await self._each(self._one)
        finally:
            await self._relay.close()

    async def _one(self, mirror: Mirror) -> None:
        assert mirror.own is not None
        assert mirror.own.billed is not None
        try:
            found = await self._asked(mirror, mirror.own)
        except (aiohttp.ClientError, TimeoutError, OSError, BadTarget, ValueError) as error:
            found = f"no answer ({type(error).__name__})"
        self._held -= len(mirror.body)
        if isinstance(found, str):
            self.counts[found] += 1
        else:
            self.counts["counted"] += 1
            figures = found, mirror.own.billed, mirror.turn.sent or 0, mirror.own.tokens or 0
            for name, value in zip(self._sums, figures, strict=True):
                self._sums[name] += value
        self._moved(self.as_dict())

    async def _asked(self, mirror: Mirror, own: OwnCall) -> int | str:
        """The provider's count, or why there is none."""
        kind, *fields = _COUNTED_FIELDS[own.wire]
        data = await asyncio.to_thread(_question, mirror, fields)
        path, mark, query = own.target.partition("?")
        headers = one_spelling([pair for pair in own.headers if pair[0].lower() in _COUNT_HEADERS])
        headers["Content-Type"] = headers["Accept"] = "application/json"
        async with (
            asyncio.timeout(_COUNT_SECONDS),
            self._relay.session.post(
                self._relay.url_of(f"{path.rstrip('/')}/{kind}{mark}{query}"),
                data=data,
                headers=headers,
                allow_redirects=False,
                proxy=self._relay.outward_proxy,
            ) as reply,
        ):
            if reply.status != 200:
                if reply.status in _NO_COUNT:
                    self.stopped = f"the provider answers {kind} with HTTP {reply.status}"
                return f"HTTP {reply.status}"
            raw = b""
            while len(raw) <= _MOST_ANSWER and (piece := await reply.content.read(_MOST_ANSWER)):
                raw += piece
            told = as_dict(load_json(decode(raw, reply.headers.get(hdrs.CONTENT_ENCODING, ""), _MOST_ANSWER)))
        tokens = count(told.get("input_tokens"))
        return "no count in the answer" if tokens is None else tokens


def _question(mirror: Mirror, fields: Collection[str]) -> bytes:
    """The question about a request, made in another thread: the fields that the count takes."""
    body = as_dict(load_json(decode(mirror.body, header(mirror.headers, "content-encoding"))))
    return json.dumps({name: body[name] for name in fields if name in body}).encode()
