"""Turn finished exchanges into records, and buffer the records until a client collects them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import pickle
import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from context_bench.core.machine import give_back
from context_bench.core.records import Forwarded
from context_bench.llm.background import LARGE, Apart, Lost, WorkProcess
from context_bench.llm.coding import unpacks_to_more
from context_bench.tap.exchange import Body, Exchange, Headers, MarkWindow, Steering, header
from context_bench.tap.forwarded import RecordWriter
from context_bench.wire.apis import Reply
from context_bench.wire.request import WireRequest


class Row(NamedTuple):
    """A packed record in a buffer: when it was finished and when it had arrived, both counted from 1, and who may ask
    for it.
    """

    number: int
    arrived: int
    data: bytes
    owner: str = ""

    @property
    def record(self) -> Forwarded:
        """The record again."""
        found: Forwarded = pickle.loads(
            zlib.decompress(self.data)
        )  # our own bytes: packed here or in the process that reads for us
        return found


class RecordBuffer:
    """Buffers finished records, packed, until a client collects them: all, late ones by owner, unmatched ones.

    Of each kind there is room for `most` and for `most_bytes` of packed ones; the oldest go first, and `forgotten` says
    how many. `remember`: keep all of them, for whoever has the tap itself in hand.
    """

    def __init__(self, most: int = 10_000, most_bytes: int = 12_000_000, *, remember: bool = True) -> None:
        self._all, self._nobodys, self._late = (_Bounded(most, most_bytes) for _ in range(3))
        self._given: dict[str, tuple[int, int]] = {
            "": (0, 0)
        }  # by owner: the last number it has had, the last arrival before it came
        self._remember, self._number = remember, 0

    @property
    def all(self) -> list[Forwarded]:
        """All records still here, oldest first."""
        return [row.record for row in self._all.rows]

    @property
    def forgotten(self) -> int:
        """The number of records for which there was no more room."""
        return self._all.forgotten if self._remember else self._nobodys.forgotten + self._late.forgotten

    def welcome(self, owner: str, arrived: int) -> None:
        """A new owner is told of unmatched requests from now on, not of the `arrived` ones before it."""
        self._given.setdefault(owner, (self._number, arrived))

    def keeps(self, window: MarkWindow | None) -> bool:
        """True if `put` will keep a record of this window, as far as can be said now. May be called in any thread."""
        return self._remember or window is None

    def put(self, record: Forwarded, window: MarkWindow | None, arrived: int, packed: bytes | None = None) -> None:
        """Take a finished record, the `arrived`-th to come in. One of a window that nobody waits for any more comes out
        as late.
        """
        self._number += 1
        if self._remember or window is None:
            row = Row(self._number, arrived, packed or packed_record(record))
            if self._remember:
                self._all.add(row)
            if window is None:
                self._nobodys.add(row)
        if window is not None and (record.late or window.collected):
            self.put_late(record, window.owner)

    def put_late(self, record: Forwarded, owner: str) -> None:
        """Keep a record until `owner` asks for what came late."""
        self._late.add(Row(self._number, 0, packed_record(record), owner))

    def take_late(self, owner: str) -> list[Forwarded]:
        """Late records of `owner`, each once."""
        return [row.record for row in self._late.take(owner)]

    def take_unmatched(self, owner: str) -> list[Forwarded]:
        """Unmatched records since `owner` last asked."""
        had, before = self._given.get(owner, (self._number, 0))
        self._given[owner] = (self._number, before)
        return [row.record for row in self._nobodys.rows if row.number > had and row.arrived > before]


class _Bounded:
    """The newest records, so many and so large."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.rows: deque[Row] = deque()
        self.forgotten = 0
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self._bytes += _held(row)
        while len(self.rows) > 1 and (len(self.rows) > self._most or self._bytes > self._most_bytes):
            self._bytes -= _held(self.rows.popleft())
            self.forgotten += 1

    def take(self, owner: str) -> list[Row]:
        """The rows of `owner`, which are no longer here."""
        found = [row for row in self.rows if row.owner == owner]
        if found:
            self.rows = deque(row for row in self.rows if row.owner != owner)
            self._bytes -= sum(map(_held, found))
        return found


def packed_record(record: Forwarded) -> bytes:
    """A record in fewer bytes; `Row.record` reads them."""
    return zlib.compress(pickle.dumps(record, pickle.HIGHEST_PROTOCOL), 1)


def _held(row: Row) -> int:
    return 200 + len(row.data)


Sink = Callable[[Forwarded], None]
#: What an observer sees of an exchange that could not be read.
_UNSEEN = {"request": None, "answer": None, "packed_answer": b"", "words": None} | dict.fromkeys(
    ("digest", "meaning", "whole"), b""
)
_AT_ONCE = 8
#: Bytes from which on an exchange is read in another process; and of a packed body that can unpack to so many.
_LARGE, _LITTLE = LARGE, 1024
_log = logging.getLogger("context_bench.tap")


@dataclass(frozen=True, slots=True)
class Observer:
    """Sees the exchanges themselves while they and their bodies are in memory, on the tap's loop: for pairing two taps.

    `arrived`: a request has begun to come in. `finished`: it is over and read; `record`, `request` and `digest` are
    there, bodies go when this returns. `reading`: these are large and are being read now, and what follows them waits;
    none of them once they have been read. `steering`: is asked where each request goes on, and with which body.
    `process`: where they are read; by default a process of the tap's own.
    """

    arrived: Callable[[Exchange], None]
    finished: Callable[[Exchange], None]
    reading: Callable[[Sequence[Exchange]], None]
    steering: Steering | None = None
    process: WorkProcess | None = None


@dataclass(slots=True)
class ReadExchange:
    """The record of an exchange, that packed if it is kept, and what an observer sees of the exchange."""

    record: Forwarded
    packed: bytes | None = None
    seen: Mapping[str, Any] = field(default_factory=dict)  # by the exchange's fields
    failure: str | None = None  # why it was not read, where reading itself failed


class Work:
    """Reads exchanges. `observed`: an observer sees more than the records."""

    def __init__(self, writer: RecordWriter, *, observed: bool) -> None:
        self._writer, self._observed = writer, observed

    def all(self, batch: list[tuple[Exchange, bool]]) -> list[ReadExchange]:
        """Read each exchange; with each, a flag that its record is kept."""
        return [self._safely(exchange, keep) for exchange, keep in batch]

    def _safely(self, exchange: Exchange, keep: bool) -> ReadExchange:
        try:
            if self._observed and exchange.body.whole:
                exchange.digest = hashlib.sha256(exchange.body.data).digest()
            record = self._writer.write(exchange)
            packed = packed_record(record) if keep else None
            return ReadExchange(record, packed, _seen(exchange) if self._observed else {})
        except BaseException as error:  # a panic of a library written in Rust is no `Exception`
            return _not_read(self._writer, exchange, error)


def _seen(exchange: Exchange) -> dict[str, Any]:
    """The fields of an exchange that an observer sees and that reading it has filled in."""
    found: dict[str, Any] = {
        name: getattr(exchange, name) for name in ("digest", "meaning", "whole", "request", "answer")
    }
    if exchange.apart and exchange.request is not None:  # it is read again where it is compared
        found |= {"request": None, "words": words(exchange.request)}
    if exchange.apart and exchange.answer is not None:  # a long text takes others' time to pickle and to unpickle
        found |= {"answer": None, "packed_answer": pickle.dumps(exchange.answer, pickle.HIGHEST_PROTOCOL)}
    return found


def unpacked_answer(packed: bytes) -> Reply:
    """The answer of an exchange that was read apart."""
    answer: Reply = pickle.loads(packed)  # our own bytes, from the process that read it
    return answer


_WORDS = re.compile(r"\w+")
_MOST_READ, _MOST_OF_ID = 2**18, 500  # characters of a request that are compared word by word, and of a call's id


def words(request: WireRequest) -> frozenset[str]:
    """All words of a request's messages, tool calls included; of a long one those of its end, where it differs from
    others.
    """
    found: set[str] = set()
    left = _MOST_READ
    for message in reversed(request.messages):
        for text in (message.text, *(str(called.get("arguments")) for called in message.tool_calls)):
            if left <= 0:
                return frozenset(found)
            found.update(_WORDS.findall(text[-left:]))
            left -= len(text)
        found.update(str(called.get("id"))[:_MOST_OF_ID] for called in message.tool_calls)
    return frozenset(found)


def _not_read(writer: RecordWriter, exchange: Exchange, error: BaseException) -> ReadExchange:
    """The sizes and times of an exchange whose reading failed."""
    how = str(error) if isinstance(error, Lost) else type(error).__name__  # its text could quote the body
    too_large = isinstance(error, Lost) and error.too_large
    return ReadExchange(
        writer.unread(exchange, f"too large: {how}" if too_large else f"not readable ({how})"), failure=how
    )


def _large(exchange: Exchange) -> bool:
    """Find exchanges whose reading could delay others."""
    if exchange.held > _LARGE:
        return True
    return _unpacks(exchange.headers, exchange.body) or _unpacks(exchange.reply_headers, exchange.reply)


def _unpacks(headers: Headers, body: Body) -> bool:
    if body.size < _LITTLE or not body.whole or not (encoding := header(headers, "content-encoding")):
        return False
    return unpacks_to_more(body.data, encoding, _LARGE)


class ExchangeReader:
    """Reads exchanges and puts their records into the buffer; tells the observer and the sink. `changed` is called
    whenever some are done.

    `counts`: what was read, by whose it was, and how often reading it, or the sink, failed. All but the reading itself
    happens on one loop.
    """

    def __init__(
        self,
        writer: RecordWriter,
        buffer: RecordBuffer,
        changed: Callable[[], None],
        *,
        sink: Sink | None,
        observer: Observer | None,
    ) -> None:
        self._buffer, self._changed, self._sink, self._observer = buffer, changed, sink, observer
        self._writer = writer
        self._apart = Apart(Work(writer, observed=observer is not None), observer.process if observer else None)
        self.counts = dict.fromkeys(
            ("requests", "matched", "unmatched", "late", "refused", "read_errors", "sink_errors"), 0
        )
        self._unread: deque[Exchange] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Start the thread; large bodies are read in a process, which starts with the first of them."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="context-bench-tap")

    def close(self) -> None:
        """End the thread, and the process if there is one."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
        self._apart.close()

    @property
    def idle(self) -> bool:
        """Is everything read that was added?"""
        return not self._unread and self._reading is None

    def add(self, exchange: Exchange) -> None:
        """Have an exchange read that is over; nobody waits for it here."""
        self._unread.append(exchange)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read all that waits for it, a few at a time: going to the other thread costs more than reading a small
        one.
        """
        try:
            while self._unread:
                batch = [self._unread.popleft() for _ in range(min(len(self._unread), _AT_ONCE))]
                for exchange, reading in zip(batch, await self._written(batch), strict=True):
                    self._finish(exchange, reading)
                self._changed()
        finally:
            self._reading = None
            self._changed()

    async def _written(self, batch: list[Exchange]) -> list[ReadExchange]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._write, batch, loop)
        except Exception as error:  # no thread to be had, say
            return [_not_read(self._writer, exchange, error) for exchange in batch]
        finally:
            self._at_large([])

    def _at_large(self, exchanges: Sequence[Exchange]) -> None:
        """The observer may not want to have answers wait for what takes long."""
        if self._observer is not None:
            self._observer.reading(exchanges)

    def _finish(self, exchange: Exchange, reading: ReadExchange) -> None:
        """Show an exchange that was read to the observer, drop its bodies, and deliver its record."""
        exchange.record = reading.record
        if reading.failure is not None:
            self._failed("read_errors", f"a request was relayed, but it could not be read: {reading.failure}")
        if self._observer is not None:
            try:
                self._observer.finished(exchange)
            except Exception as error:  # as for sinks
                self._failed("sink_errors", f"what the tap saw cannot be handed on: {type(error).__name__}: {error}")
        exchange.request, exchange.answer, exchange.words, exchange.whole = None, None, None, b""
        exchange.packed_answer = b""
        exchange.body.drop()
        exchange.reply.drop()
        self._deliver(reading.record, exchange, reading.packed)

    def _write(self, batch: list[Exchange], loop: asyncio.AbstractEventLoop) -> list[ReadExchange]:
        """In the other thread: the records, and what the buffer keeps of each."""
        kept = [self._buffer.keeps(exchange.window) for exchange in batch]
        large = [_large(exchange) for exchange in batch]
        if any(large):
            loop.call_soon_threadsafe(
                self._at_large, [exchange for exchange, is_large in zip(batch, large, strict=True) if is_large]
            )
        if not self._apart.away(large=any(large)):
            readings: list[ReadExchange] = self._apart.do("all", list(zip(batch, kept, strict=True)))
        else:
            readings = [self._read_apart(*each) for each in zip(batch, kept, large, strict=True)]
        for exchange, reading in zip(batch, readings, strict=True):
            for name, value in {**_UNSEEN, **reading.seen}.items():
                setattr(exchange, name, value)
        return readings

    def _read_apart(self, exchange: Exchange, keep: bool, large: bool) -> ReadExchange:
        """Have the process read one exchange; if it fails, record sizes and times only."""
        exchange.apart = large
        if large:
            exchange.body.join()  # once, for all that read it
            give_back()  # its pieces leave holes of all sizes
        try:
            readings: list[ReadExchange] = self._apart.do("all", [(exchange.alone(), keep)])
            return readings[0]
        except Exception as error:
            return _not_read(self._writer, exchange, error)

    def _deliver(self, record: Forwarded, exchange: Exchange, packed: bytes | None) -> None:
        window = exchange.window
        self.counts["requests"] += 1
        self.counts["unmatched" if window is None else "late" if record.late else "matched"] += 1
        try:
            self._buffer.put(record, window, exchange.number, packed)
        except Exception as error:  # packing fails for a record that is nested too deeply, say
            self._failed("sink_errors", f"a record of the tap cannot be kept: {type(error).__name__}")
        if self._sink is None:
            return
        try:
            self._sink(record)
        except Exception as error:  # the relay must outlive whoever listens to it
            self._failed("sink_errors", f"the tap's records cannot be handed on: {type(error).__name__}: {error}")

    def _failed(self, count: str, what: str) -> None:
        self.counts[count] += 1
        if self.counts[count] == 1:
            _log.error("%s", what)
