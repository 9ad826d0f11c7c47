"""A money limit that calls in flight cannot pass together, and the token counts of requests in flight; a proxy's own
account of what it has spent.

Most of the cost of counting a kilobyte is the call itself. So the requests of one turn of the event loop are counted
together in one call of the tokenizer, after they have been sent. Much text is counted in a thread (the tokenizer lets
go of the interpreter's lock), so that no reply waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, CostCapReached
from context_bench.core.keys import load_json
from context_bench.core.machine import file_bytes
from context_bench.core.measures import dollars
from context_bench.core.numbers import count, real
from context_bench.core.protocols import Prices, method
from context_bench.core.records import Usage
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.llm.limits import Waiters
from context_bench.llm.prices import UNLIMITED_OUTPUT
from context_bench.llm.redact import bare_url, redact
from context_bench.wire.apis import ShapedRequest, parse_request
from context_bench.wire.request import count_request, totals_of


class SpendLimit:
    """At most `cap` US dollars: what was billed plus the worst case of every call in flight never passes it.

    Amounts are added exactly (as fractions), so a thousand calls of a tenth of a cent are a dollar and not a hair more.
    A call whose bill stays unknown counts with its worst case. `spent`: dollars billed so far; `in_flight`: dollars set
    aside.
    """

    def __init__(self, cap: float, spent: float = 0.0) -> None:
        if not (math.isfinite(cap) and cap >= 0):
            raise ValueError(f"a money limit is a number of dollars ≥ 0, not {cap!r}")
        self.cap = cap
        self._cap, self._spent = _exact(cap), _exact(spent)
        self._held: dict[int, Fraction] = {}
        self._tickets = 0
        self._lock = threading.Lock()
        self._waiters = Waiters()

    @property
    def spent(self) -> float:
        """Dollars billed so far."""
        return float(self._spent)

    @property
    def in_flight(self) -> float:
        """Dollars set aside for calls that are not settled yet."""
        with self._lock:
            return float(sum(self._held.values(), Fraction(0)))

    async def reserve(self, worst: float) -> int:
        """Set `worst` dollars aside; while they do not fit but other calls are in flight, wait for those to settle.

        `CostCapReached` when nothing is in flight that could still settle for less, and it does not fit.
        """
        amount = _exact(worst)
        while True:
            with self._lock:
                held = sum(self._held.values(), Fraction(0))
                if self._spent + held + amount <= self._cap:
                    self._tickets += 1
                    self._held[self._tickets] = amount
                    return self._tickets
                if not self._held or self._spent + amount > self._cap:  # waiting cannot help
                    break
                turn = self._waiters.join()
            await turn
        raise CostCapReached(
            f"The cost cap of {dollars(self.cap)} does not allow the next call: {dollars(self.spent)} spent, "
            f"the call could cost up to {dollars(worst)}. Raise --max-cost, or lower --max-tokens or -n; "
            "what is done is kept and the run can be resumed."
        )

    def settle(self, ticket: int, actual: float | None) -> None:
        """Replace a reservation by the bill; `None` (unknown) keeps the worst case. A ticket settled twice counts
        once.
        """
        with self._lock:
            held = self._held.pop(ticket, None)
            if held is not None:
                self._spent += held if actual is None else _exact(actual)
        self._waiters.call_all()


def _exact(dollars: float) -> Fraction:
    """The decimal number that was meant: 0.1 is a tenth, not the nearest binary fraction."""
    return Fraction(repr(float(dollars)))


#: Characters in one turn of the loop from which on they are counted in a thread.
_MUCH = 2**17


class TokenCount:
    """The tokens of one request."""

    __slots__ = ("_batch", "_texts", "_total")

    def __init__(self, batch: _Batch, texts: Sequence[str]) -> None:
        self._batch: _Batch | None = batch
        self._texts: Sequence[str] = texts
        self._total: int | None = None

    def now(self) -> int:
        """The number, counted here if it is not known yet."""
        if self._total is None:
            assert self._batch is not None
            self.resolve(totals_of([self._texts], self._batch.counter)[0])
        return self._total or 0

    async def ready(self) -> int:
        """The number, once it is known."""
        if self._total is None and self._batch is not None and self._batch.running is not None:
            await asyncio.wait((self._batch.running,))
        return self.now()

    def resolve(self, total: int) -> None:
        """Take the number; the texts are let go."""
        self._total, self._batch, self._texts = total, None, ()


class _Batch:
    """Tallies that are counted together, in the next turn of their loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counter: TokenCounter) -> None:
        self.loop, self.counter = loop, counter
        self.begun = False
        self.running: asyncio.Future[list[int]] | None = None
        self._waiting: list[TokenCount] = []
        self._texts: list[Sequence[str]] = []

    def add(self, texts: Sequence[str]) -> TokenCount:
        pending = TokenCount(self, texts)
        self._waiting.append(pending)
        self._texts.append(texts)
        return pending

    def begin(self) -> None:
        self.begun = True
        if sum(len(text) for texts in self._texts for text in texts) < _MUCH:
            with contextlib.suppress(Exception):  # each is counted, and fails, where it is asked for
                self._take(totals_of(self._texts, self.counter))
            return
        self.running = self.loop.run_in_executor(None, totals_of, self._texts, self.counter)
        self.running.add_done_callback(self._done)

    def _done(self, running: asyncio.Future[list[int]]) -> None:
        if not running.cancelled() and running.exception() is None:
            self._take(running.result())

    def _take(self, totals: list[int]) -> None:
        for pending, total in zip(self._waiting, totals, strict=True):
            pending.resolve(total)
        self._waiting, self._texts = [], []


class TokenCounts:
    """Puts the requests of one client into batches, whatever loops it is used on."""

    def __init__(self) -> None:
        self._batch: _Batch | None = None

    def add(self, texts: Sequence[str], counter: TokenCounter) -> TokenCount:
        """Have the tokens of `texts` counted; the caller runs in an event loop."""
        loop = asyncio.get_running_loop()
        batch = self._batch
        if batch is None or batch.begun or batch.loop is not loop or batch.counter is not counter:
            batch = self._batch = _Batch(loop, counter)
            loop.call_soon(batch.begin)
        return batch.add(texts)


def worst_case(
    request: ShapedRequest, prices: Prices | None, counted: tuple[int, bool] | None = None, *, more: int = 0
) -> float | None:
    """Dollars that one attempt can cost at most: our count with room for roles and template, half as much again where
    it is an estimate.

    `counted`: tokens of the request and whether that is exact, if they are known already; `more`: tokens that will be
    added to the prompt. `None` where no price is known.
    """
    body = request.body
    model = str(body.get("model") or "")
    if counted is None:
        found = count_request(parse_request(request.wire, body), counter_for(model))
        counted = found.total, found.exact
    limits = [
        most
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")
        if (most := count(body.get(name))) is not None
    ]
    most = max(limits) * max(1, count(body.get("n")) or 1) if limits else None
    messages = len(body.get("messages") or body.get("input") or [])
    prompt = round((counted[0] + more) * (1.0 if counted[1] else 1.5)) + 8 * messages + 32
    worst = method(prices, "worst_case")
    if worst is not None:
        found_cost = worst(model, prompt, most)
        return None if found_cost is None else float(found_cost)
    return prices.cost(Usage(prompt, most or UNLIMITED_OUTPUT), model) if prices else None


# What a proxy says that it has spent
# ------------------------------------------------------------------------

#: Names of fields, and of columns, in which proxies keep the US dollars of a request; the first that is there counts.
_SPENT_AS = ("spend", "response_cost", "cost", "total_cost", "cost_usd", "total_spend")


@dataclass(frozen=True, slots=True)
class SpendLog:
    """A proxy's own account of what it has spent: a file of JSON, JSON lines or an SQLite database, a PostgreSQL
    URL, or a URL that gives JSON. `#TABLE.COLUMN` names the place in a database that has several. `before`: US
    dollars that it held already.
    """

    source: str
    before: float

    @classmethod
    def of(cls, source: str | None) -> SpendLog | None:
        """The log as it stands now; `BadInput` where none can be read. A file that is not there yet holds nothing."""
        if source is None:
            return None
        place = source.partition("#")[0]
        absent = "://" not in place and "/" in place and " " not in place and not Path(place).exists()
        return cls(source, 0.0 if absent else spend_stated(source))

    def since(self, by_usage: float | None) -> tuple[dict[str, Any], str]:
        """The dollars that were added since, beside the money that follows from the provider's usage; and a sentence
        about it. A log that cannot be read any more is said, and never raised upon.
        """
        try:
            told = spend_stated(self.source) - self.before
        except BadInput as error:
            return {"told": None, "by_usage": by_usage}, f"The proxy's spend log cannot be read: {error}"
        bill = "" if by_usage is None else f", by the provider's usage it is {dollars(by_usage)}"
        late = " Some proxies write theirs late." if not told else ""
        return {"told": told, "by_usage": by_usage}, f"The proxy's spend log says {dollars(told)}{bill}.{late}"


def spend_stated(source: str) -> float:
    """US dollars in all that a proxy's spend log holds, see `SpendLog`. `BadInput` for what is none."""
    place, _, column = source.partition("#")
    if place.startswith(("postgres://", "postgresql://", "postgresql+")):
        return _in_database(place, column)
    if "://" not in place and Path(place).is_file():
        with Path(place).open("rb") as file:
            if file.read(16) == b"SQLite format 3\x00":
                return _in_database(f"sqlite:///file:{Path(place).resolve()}?mode=ro&uri=true", column)
        return _in_entries(place, _json_lines(Path(place)))
    document = _from_url(place)
    listed = (
        next((document[name] for name in ("data", "logs") if name in document), document)
        if isinstance(document, Mapping)
        else document
    )
    return _in_entries(place, listed if isinstance(listed, list) else [listed])


def _json_lines(path: Path) -> list[Any]:
    data = file_bytes(path)
    try:
        whole = load_json(data)
    except ValueError:
        whole = [entry for line in data.splitlines() if (entry := _entry(line)) is not None]
    held = whole.get("data", whole) if isinstance(whole, Mapping) else whole
    return held if isinstance(held, list) else [held]


def _entry(line: bytes) -> Any:
    try:
        return load_json(line) if line.strip() else None
    except ValueError:  # a log has other lines, and a last one that is half written
        return None


def _in_entries(place: str, entries: Sequence[Any]) -> float:
    known = [each for each in entries if isinstance(each, Mapping)]
    name = next((one for one in _SPENT_AS if any(real(each.get(one)) is not None for each in known)), None)
    if name is None and entries:
        names = ", ".join(_SPENT_AS)
        raise BadInput(f"--spend {redact(place)[:200]}: none of its entries has one of the fields {names}")
    return sum(real(each.get(name)) or 0.0 for each in known) if name else 0.0


def _in_database(url: str, column: str) -> float:
    """The sum of one column: the one that is named, or the one of all tables that has such a name."""
    import sqlalchemy as sql

    shown = redact(bare_url(url) if url.startswith("postgres") else url.partition("file:")[2].partition("?")[0])
    engine = sql.create_engine(
        url.replace("postgres://", "postgresql://", 1).replace("postgresql://", "postgresql+psycopg://", 1)
    )
    try:
        there = sql.inspect(engine)
        places = [
            (table, one["name"])
            for table in there.get_table_names()
            for one in there.get_columns(table)
            if (f"{table}.{one['name']}" == column if column else one["name"] in _SPENT_AS)
        ]
        logs = [each for each in places if "log" in each[0].lower()] or places
        if len(logs) != 1:
            found = ", ".join(".".join(each) for each in logs[:8]) or "none"
            raise BadInput(f"--spend {shown}: expected one column of costs, found {found}; write SOURCE#TABLE.COLUMN")
        table = sql.table(logs[0][0], sql.column(logs[0][1]))
        with engine.connect() as connection:
            return real(float(connection.execute(sql.select(sql.func.sum(table.c[logs[0][1]]))).scalar() or 0.0)) or 0.0
    except (sql.exc.SQLAlchemyError, ValueError, OSError) as error:
        raise BadInput(f"--spend {shown}: cannot be read: {redact(str(error)).splitlines()[0][:200]}") from None
    finally:
        engine.dispose()


_LARGEST_LOG, _LOG_SECONDS = 64 * 2**20, 30.0


def _from_url(place: str) -> Any:
    if not place.startswith(("http://", "https://")):
        raise BadInput(f"--spend {redact(place)[:200]}: no such file; expected a file, a database or a URL")
    import urllib.request  # only here: a run without a spend log needs none of it

    try:
        with urllib.request.urlopen(place, timeout=_LOG_SECONDS) as answer:
            data = answer.read(_LARGEST_LOG + 1)
        if len(data) > _LARGEST_LOG:
            raise ValueError(f"more than {_LARGEST_LOG >> 20} MiB")
        return load_json(data)
    except (OSError, ValueError) as error:
        raise BadInput(f"--spend {bare_url(place)}: cannot be read: {redact(str(error))[:200]}") from None
