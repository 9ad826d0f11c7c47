"""The tap: a server in front of a provider that relays everything untouched and records it; also in a thread of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from context_bench.core.addresses import is_loopback, listening_port
from context_bench.core.errors import BadInput
from context_bench.core.ledger import BaselinePairing, Mark
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.records import Forwarded
from context_bench.core.secrets import secrets_in_url
from context_bench.llm.background import Background
from context_bench.llm.relay import LINE_LIMIT, MOST_HEADERS, raw_headers
from context_bench.llm.responders import SERVER_LOG, listen, origin
from context_bench.llm.servers import ModelServer, raise_descriptor_limit, upstream_of
from context_bench.tap.control_api import PREFIX, AccessCheck, answer_control, as_json, pairing_of, record_file
from context_bench.tap.exchange import (
    SOCKET,
    SOCKET_WIRE,
    BodyBudget,
    Exchange,
    Headers,
    MarkWindow,
    Windows,
    find_marks,
)
from context_bench.tap.forwarded import RecordWriter
from context_bench.tap.record_writer import ExchangeReader, Observer, RecordBuffer, Sink
from context_bench.tap.tap_relay import Socket, Talk, TapRelay, carry, is_upgrade, tap_error
from context_bench.tap.untouched import BaselineReplies
from context_bench.wire.apis import wire_of

T = TypeVar("T")

#: How long `end` waits for requests of its window that are still being answered; the rest come with `late`.
PATIENCE = 2.0
#: How long the end of an answer waits at most for its record to be kept, where an observer wants that; and in how many
#: steps: a machine that stood still for a while has used up only one of them.
HELD_SECONDS = 2.0
_HELD_STEPS = 8


class Tap:
    """A relay on loopback that stands where the provider would stand and records what really arrives there.

    `upstream`: base URL (with or without `/v1`), or `echo`, `embedded`, `scripted:FILE`. `marker`: how calls are
    recognised, `key`, `header` or `serial`. `record`: policy `meta`, `hashes`, `redacted` or `full`. `upstream_key` is
    put in the place of every key of requests that carry our mark or fall into a window; nobody else gets it. `sink` is
    told of every finished record, on the tap's own loop. `names`: host names besides loopback ones under which it may
    be asked. `witness`: see `Observer`. `remember`: whether `records` keeps what came.

    Use it as `with` (own thread) or `async with` (this loop). Implements `core.protocols.Recorder`; its methods may be
    awaited on any loop.
    """

    def __init__(
        self,
        upstream: str,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        marker: str = "key",
        record: str = "full",
        upstream_key: str | None = None,
        sink: Sink | None = None,
        counter_model: str | None = None,
        names: Collection[str] = (),
        witness: Observer | None = None,
        remember: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.marker, self.policy = marker, record
        self._upstream, self._host, self._key = upstream, host, upstream_key
        self._port = listening_port(port, "the tap's port")
        self._clock, self._observer = clock, witness
        self._windows = Windows(marker, clock=clock)
        self._writer = RecordWriter(
            record, counter_model=counter_model, secrets_known=_own_secrets(upstream, upstream_key)
        )
        self._access = AccessCheck(host, names)
        self._buffer = RecordBuffer(remember=remember)
        self._open: dict[str, Exchange] = {}
        self._budget = BodyBudget()
        self._replies = BaselineReplies(plain=record == "full")
        self._name, self._arrived = secrets.token_hex(8), 0
        self._changed = asyncio.Event()
        self._reader = ExchangeReader(self._writer, self._buffer, self._changed.set, sink=sink, observer=witness)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: Background | None = None
        self._closing = contextlib.AsyncExitStack()
        self._relay: TapRelay | None = None

    # Life

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`: the base URL to give to the proxy under test (most want `/v1` after
        it).
        """
        if self._loop is None:
            raise BadInput("the tap has not been started: use `with Tap(...) as tap` or `async with`")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return origin(host, self._port)

    async def start(self) -> Self:
        """Bind the port and serve on the running loop. Raises `BadInput` when the port or the upstream cannot be
        used.
        """
        raise_descriptor_limit()
        async with contextlib.AsyncExitStack() as opened:
            upstream = upstream_of(self._upstream)
            if not isinstance(upstream, str):
                upstream = (await opened.enter_async_context(ModelServer(upstream))).url
            steering = self._observer.steering if self._observer is not None else None
            self._relay = TapRelay(upstream, key=self._key, clock=self._clock, replies=self._replies, steering=steering)
            await self._relay.open()
            opened.push_async_callback(self._relay.close)
            self._reader.open()
            opened.callback(self._reader.close)
            opened.push_async_callback(self.settle)
            await self._listen(opened)
            opened.callback(setattr, self._relay, "stopping", True)
            self._refuse_itself(upstream)
            self._closing = opened.pop_all()
        self._loop = asyncio.get_running_loop()
        return self

    async def _listen(self, opened: contextlib.AsyncExitStack) -> None:
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            max_headers=MOST_HEADERS,
            logger=SERVER_LOG,
        )
        runner = web.ServerRunner(server, shutdown_timeout=0.5)
        self._port = await listen(runner, self._host, self._port, backlog=4096, who="the tap cannot")
        opened.push_async_callback(runner.cleanup)

    def _refuse_itself(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        if parts.port == self._port and is_loopback(parts.hostname or "") and is_loopback(self._host):
            raise BadInput(f"the upstream {upstream} is the tap's own address; give the provider's URL")

    async def stop(self) -> None:
        """Close the port; what is under way is broken off and recorded."""
        closing, self._closing = self._closing, contextlib.AsyncExitStack()
        await closing.aclose()
        self._loop = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._background = Background("context-bench-tap")
        try:
            return self._background.run(self.start())
        except BaseException:
            self._background.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._background is not None
        try:
            self._background.run(self.stop())
        finally:
            self._background.close()
            self._background = None

    # What came

    @property
    def records(self) -> list[Forwarded]:
        """The finished records, oldest first: the last 10,000, or as many as pack into 12 MB.

        With `with`, waits shortly for those on their way.
        """
        if self._background is not None and self._loop is not None and not self._background.inside:
            return asyncio.run_coroutine_threadsafe(self._settled(), self._loop).result()
        return self._buffer.all

    async def _settled(self) -> list[Forwarded]:
        await self.settle(0.5)
        return self._buffer.all

    async def begin(self, conversation: str, pairing: BaselinePairing | None = None) -> Mark:
        return await self._here(self.begin_for(conversation, pairing=pairing))

    async def end(self, mark: Mark) -> list[Forwarded]:
        return await self._here(self._end(mark))

    async def seen(self, mark: Mark) -> list[Forwarded]:
        """Records answered in the mark's window so far, in order. The window stays open, and `end` gives all of them
        again.
        """
        return await self._here(self._seen(mark))

    async def late(self) -> list[Forwarded]:
        return await self._here(self.late_of(""))

    async def unmatched(self) -> list[Forwarded]:
        return await self._here(self.unmatched_of(""))

    def status(self) -> dict[str, Any]:
        """Settings and counts of this tap so far; no secrets."""
        upstream = self._upstream if "://" not in self._upstream else self._upstream.split("?")[0]
        return {
            "tap": 1,
            "upstream": upstream,
            "marker": self.marker,
            "record": self.policy,
            **self._reader.counts,
            "open": len(self._open),
            "windows": self._windows.open,
            "forgotten": self._buffer.forgotten,
        }

    async def settle(self, patience: float = 0.0) -> None:
        """Wait until every request that is answered is recorded, and up to `patience` seconds for those still under
        way.
        """
        await self._until(lambda: not self._open, patience)
        await self._until(lambda: not any(exchange.ending for exchange in self._open.values()), PATIENCE)
        await self._until(lambda: self._reader.idle, None)

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the tap's loop, whichever loop asks."""
        if self._loop is None:
            work.close()
            raise BadInput("the tap is not running")
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # The Recorder, on the tap's own loop, for this process (owner "") and for others behind the control API

    async def begin_for(
        self, conversation: str, owner: str = "", marker: str | None = None, pairing: BaselinePairing | None = None
    ) -> Mark:
        """Open a window for `owner`; an earlier one of this conversation that was never ended comes out as late."""
        mark, abandoned = self._windows.begin(conversation, owner=owner, marker=marker, pairing=pairing)
        self.welcome(owner)
        if abandoned is not None:  # nobody will ask for it any more
            for record in self._collect(abandoned):
                self._buffer.put_late(record, owner)
        return mark

    def welcome(self, owner: str) -> None:
        """A new owner: what came before it is not its own."""
        self._buffer.welcome(owner, self._arrived)

    def _collect(self, window: MarkWindow) -> list[Forwarded]:
        window.collected = True
        arrived, window.arrivals = window.arrivals, []
        return [exchange.record for exchange in arrived if exchange.record]

    async def _end(self, mark: Mark) -> list[Forwarded]:
        window = self._windows.close(mark)
        await self._until(lambda: all(exchange.record for exchange in window.arrivals if exchange.finished), None)
        await self._until(lambda: all(exchange.record for exchange in window.arrivals), PATIENCE)
        self._replies.close(window)
        return self._collect(window)

    async def _seen(self, mark: Mark) -> list[Forwarded]:
        arrivals = self._windows.arrivals(mark)
        await self._until(lambda: all(exchange.record for exchange in arrivals if exchange.finished), PATIENCE)
        return [exchange.record for exchange in arrivals if exchange.record]

    async def _control(self, what: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Do what the control API asks for; `None` if there is no such control."""
        owner = str(given.get("owner") or "control")
        if what == "POST hello":
            self.welcome(owner)
        if what in ("POST hello", "GET status"):
            return self.status()
        if what == "POST begin":
            mark = await self.begin_for(
                str(given["conversation"]), owner, given.get("marker"), pairing_of(given.get("pairing"))
            )
            return {"mode": mark.mode, "token": mark.token}
        if what == "POST end":
            records = await self._end(Mark(str(given["mode"]), str(given["token"])))
        elif what == "POST late":
            records = await self.late_of(owner)
        elif what == "POST unmatched":
            records = await self.unmatched_of(owner)
        else:
            return None
        return {"records": [as_json(record) for record in records]}

    async def late_of(self, owner: str) -> list[Forwarded]:
        """`late` for this owner."""
        await self.settle()
        return self._buffer.take_late(owner)

    async def unmatched_of(self, owner: str) -> list[Forwarded]:
        """`unmatched` for this owner."""
        await self.settle()
        return self._buffer.take_unmatched(owner)

    async def _until(self, done: Callable[[], bool], patience: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()

    # One request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        refusal = self._access.refusal(request)
        if refusal is not None:
            self._reader.counts["refused"] += 1
            return tap_error(refusal, "refused", 403)
        if request.path.startswith(PREFIX):
            return await answer_control(request, self._control)
        assert self._relay is not None
        exchange = self._arrive(request.method, request.raw_path, raw_headers(request))
        if is_upgrade(request):
            return await self._socket(self._relay, request, exchange)
        try:
            answer = await self._relay.relay(request, exchange, lambda: self._kept(exchange))
            if not answer.prepared:  # one of the tap's own
                await self._kept(exchange)
            return answer
        finally:
            self._leave(exchange)

    async def _socket(self, relay: TapRelay, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        """A WebSocket: opening it is one exchange, each request said over it another."""
        try:
            opened = await relay.open_socket(request, exchange)
        finally:
            self._leave(exchange)
        if not isinstance(opened, Socket):
            return opened
        responses = wire_of("POST", exchange.target) == SOCKET_WIRE
        headers = opened.headers

        def begin(body: bytes) -> Exchange:
            return self._arrive(SOCKET, exchange.target, headers, body)

        talk = Talk(begin, self._leave, self._clock, self._kept)
        why = "the client went away"
        try:
            why = await carry(opened.client, opened.upstream, talk if responses else None)
        finally:
            talk.over("the tap was stopped" if relay.stopping else why)
        return opened.client

    def _arrive(self, method: str, target: str, headers: Headers, body: bytes = b"") -> Exchange:
        match = self._windows.match(find_marks(headers, target))
        self._arrived += 1
        exchange = Exchange(
            self._arrived,
            f"{self._name}-{self._arrived}",
            method,
            target,
            headers,
            match,
            self._clock.now(),
            self._clock.monotonic(),
        )
        exchange.body.budget = exchange.reply.budget = self._budget
        if body:
            exchange.body.add(exchange.arrived, body)
        self._open[exchange.id] = exchange
        if self._observer is not None:
            self._observer.arrived(exchange)
        if match.window is not None and not match.late:
            match.window.arrivals.append(exchange)
        return exchange

    def _leave(self, exchange: Exchange) -> None:
        """The exchange is over: have it read in the other thread, so that nobody waits for it here."""
        if self._open.pop(exchange.id, None) is not None:
            exchange.finished = exchange.answered or self._clock.monotonic()
            self._replies.remember(exchange)
            self._reader.add(exchange)

    def close_answered(self, exchange: Exchange) -> None:
        """Have an exchange recorded whose answer is whole, though its connection is still open."""
        if exchange.answered:
            self._leave(exchange)

    async def _kept(self, exchange: Exchange) -> None:
        """All of the answer is here: have it read and kept before the client has its end, where an observer
        wants that.
        """
        if exchange.kept is None:
            return
        self._leave(exchange)
        for _ in range(_HELD_STEPS):  # a store that is slow, or does not write at all, keeps no answer from its client
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HELD_SECONDS / _HELD_STEPS):
                    await exchange.kept.wait()
                    return


def _own_secrets(upstream: str, key: str | None) -> list[str]:
    """The secrets that the tap itself holds."""
    return [*([key] if key else []), *secrets_in_url(upstream)]


async def serve_tap(
    port: int,
    upstream: str,
    *,
    host: str = "127.0.0.1",
    marker: str = "key",
    record: str = "meta",
    upstream_key: str | None = None,
    counter_model: str | None = None,
    names: Collection[str] = (),
    records_file: Path | None = None,
    on_record: Sink | None = None,
    on_ready: Callable[[Tap], None] | None = None,
) -> None:
    """Serve a tap until cancelled. Prints nothing: `on_ready` gets the running tap, `on_record` every record.

    `records_file`: also append the records as JSON lines. Raises `BadInput`, `StoreUnusable`.
    """
    with contextlib.ExitStack() as files:
        sinks = [files.enter_context(record_file(records_file))] if records_file else []
        sinks += [on_record] if on_record else []

        def tell(finished: Forwarded) -> None:
            for sink in sinks:
                sink(finished)

        tap = Tap(
            upstream,
            port=port,
            host=host,
            marker=marker,
            record=record,
            upstream_key=upstream_key,
            sink=tell,
            counter_model=counter_model,
            names=names,
            remember=False,
        )
        async with tap:
            if on_ready:
                on_ready(tap)
            await asyncio.Event().wait()
