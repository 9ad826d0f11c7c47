"""The second arm: sampled requests are sent again, as the client sent them, to another proxy, after the client has been
served.

The reply is read and thrown away; nothing in it is acted upon. Money is capped before each request goes out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from typing import Self

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from context_bench.core.errors import CostCapReached
from context_bench.core.keys import seed_of
from context_bench.core.protocols import Spend
from context_bench.llm.relay import end_to_end
from context_bench.traffic.watch.measure import Mirror, Money
from context_bench.traffic.watch.paired_taps import Arm
from context_bench.wire.apis.read import EndOfStream
from context_bench.wire.turns import Turn

_WAITING = 64  # mirrored requests that may wait; more are left out and counted
_TIMEOUT = 600.0
#: Seconds that a stream has for closing after its last event; then its connection is ended.
_CLOSING_SECONDS = 0.25


class Shadow:
    """Mirrors a share of turns, one at a time, through `arm`.

    `share`: 0 to 1; whether a turn is taken follows from `seed`, its session and its place in it, so the same traffic
    gives the same choice. `spend` is asked before each request, with the worst it can cost. `counts`: `sampled`,
    `sent`, `failed`, `unpriced` (no price is known, so nothing was sent), `crowded` (too many were waiting),
    `unfinished` (the watch ended first). `stopped` says why no more are sent.
    """

    def __init__(self, arm: Arm, *, share: float, spend: Spend, prices: Money, seed: int = 0) -> None:
        self._arm, self._share, self._spend, self._prices, self._seed = arm, share, spend, prices, seed
        self._waiting: deque[Mirror] = deque()
        self._more, self._answered, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._cost: float | None = None
        self.counts: Counter[str] = Counter()
        self.stopped: str | None = None
        self._worker: asyncio.Task[None] | None = None

    def offer(self, mirror: Mirror) -> None:
        """A turn is over: take it if it is of the sample."""
        chance = seed_of("shadow", self._seed, mirror.place.session.origin, mirror.turn.turn) / 2**64
        if self.stopped is not None or chance >= self._share:
            return
        self.counts["sampled"] += 1
        if len(self._waiting) >= _WAITING:
            self.counts["crowded"] += 1
            return
        self._waiting.append(mirror)
        self._idle.clear()
        self._more.set()

    def seen(self, turn: Turn) -> None:
        """A turn of the second arm is measured and kept."""
        if turn.arm == "shadow" and turn.kind == "turn":
            self._cost = turn.cost
            self._answered.set()

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

    async def _work(self) -> None:
        async with aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
            auto_decompress=False,
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        ) as session:
            while self.stopped is None:
                while not self._waiting:
                    self._idle.set()
                    self._more.clear()
                    await self._more.wait()
                await self._one(session, self._waiting[0])
                self._waiting.popleft()
        self._idle.set()

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
