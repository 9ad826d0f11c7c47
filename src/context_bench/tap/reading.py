"""From exchanges that are over to finished records: read in another thread, a few at a time, and handed on in the order of their end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from context_bench.core.records import Forwarded
from context_bench.tap.records import Exchange, Scribe
from context_bench.tap.shelf import Shelf

Sink = Callable[[Forwarded], None]

_BACKLOG_BYTES = 128 * 1024 * 1024
_AT_ONCE = 8
_log = logging.getLogger("context_bench.tap")


class Witness(Protocol):
    """Is shown the exchanges themselves while they and their bodies are in memory, on the tap's loop: for pairing two taps."""

    def arrived(self, exchange: Exchange) -> None:
        """A request has begun to come in."""

    def finished(self, exchange: Exchange) -> None:
        """It is over and read: `record`, `request` and `digest` are there; bodies go when this returns."""


class Reader:
    """Reads exchanges and puts their records on the shelf; tells the witness and the sink. `changed` is called whenever some are done.

    `counts`: what was read, by whose it was, and how often the sink failed. All but the reading itself happens on one loop.
    """

    def __init__(self, scribe: Scribe, shelf: Shelf, changed: Callable[[], None], *, sink: Sink | None, witness: Witness | None) -> None:
        self._scribe, self._shelf, self._changed, self._sink, self._witness = scribe, shelf, changed, sink, witness
        self.counts = dict.fromkeys(("requests", "matched", "unmatched", "late", "refused", "sink_errors"), 0)
        self._unread: deque[Exchange] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._waiting_bytes = 0
        self._pool: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Start the thread."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="context-bench-tap")

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None

    @property
    def idle(self) -> bool:
        """Is everything read that was added?"""
        return not self._unread and self._reading is None

    def add(self, exchange: Exchange) -> None:
        """Have an exchange read that is over; nobody waits for it here."""
        size = exchange.kept
        exchange.crowded = self._waiting_bytes + size > _BACKLOG_BYTES and self._waiting_bytes > 0
        self._waiting_bytes += size
        self._unread.append(exchange)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read all that waits for it, a few at a time: going to the other thread costs more than reading a small one."""
        loop = asyncio.get_running_loop()
        while self._unread:
            batch = [self._unread.popleft() for _ in range(min(len(self._unread), _AT_ONCE))]
            for exchange, (record, packed) in zip(batch, await loop.run_in_executor(self._pool, self._write, batch), strict=True):
                exchange.record = record
                if self._witness is not None:
                    self._show(self._witness, exchange)
                exchange.request, exchange.whole = None, b""
                self._waiting_bytes -= exchange.kept
                exchange.body.pieces, exchange.reply.pieces = [], []
                self._deliver(record, exchange, packed)
            self._changed()
        self._reading = None
        self._changed()

    def _write(self, batch: list[Exchange]) -> list[tuple[Forwarded, bytes | None]]:
        """In the other thread: the records, and what the shelf keeps of each."""
        if self._witness is not None:
            for exchange in batch:
                exchange.digest = b"" if not exchange.body.whole else hashlib.sha256(exchange.body.data).digest()
        records = [(self._scribe.write(exchange), exchange.window) for exchange in batch]
        return [(record, self._shelf.packed(record, window)) for record, window in records]

    def _show(self, witness: Witness, exchange: Exchange) -> None:
        try:
            witness.finished(exchange)
        except Exception as error:  # as for sinks
            self._failed("what the tap saw cannot be handed on", error)

    def _deliver(self, record: Forwarded, exchange: Exchange, packed: bytes | None) -> None:
        window = exchange.window
        self.counts["requests"] += 1
        self.counts["unmatched" if window is None else "late" if record.late else "matched"] += 1
        self._shelf.put(record, window, exchange.number, packed)
        if self._sink is None:
            return
        try:
            self._sink(record)
        except Exception as error:  # the relay must outlive whoever listens to it
            self._failed("the tap's records cannot be handed on", error)

    def _failed(self, what: str, error: Exception) -> None:
        self.counts["sink_errors"] += 1
        if self.counts["sink_errors"] == 1:
            _log.error("%s: %s: %s", what, type(error).__name__, error)
