"""A store as a browser needs it: runs without their manifests, a page of them at a time, and progress of those that go
on; numbers of all rows of a long one by column, kept when it has ended. `row_lists` has their rows.

Everything but the keeping only reads, and works while a run is written.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, cast, exists, func, or_, select

from context_bench.core.errors import BadInput
from context_bench.core.numbers import real
from context_bench.core.rows import COST, kind_in
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Damaged, body_key, dumps, loads, unpack, unpacked
from context_bench.engine.store import BUSY_TIMEOUT, Store, database_of, schema
from context_bench.engine.store.dialects import WHOLE, readable
from context_bench.engine.store.run_records import (
    COPYING,
    RUNNING,
    arms_of,
    newest_first,
    no_such_run,
    refuse_deleted,
    status_of,
    tags_in,
)
from context_bench.stats.distributions import percentile

if TYPE_CHECKING:
    import numpy as np

ARM_BITS, POSITION_BITS = 48, 16  # bits that a packed place is shifted by
MOST_TRIALS = 1 << POSITION_BITS


class Place(NamedTuple):
    """The place of a row in its run's plan. Reads and prints as `arm-position-trial`."""

    arm: int
    position: int
    trial: int

    def __str__(self) -> str:
        return f"{self.arm}-{self.position}-{self.trial}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """The place that `str` gave; `BadInput` for anything else."""
        parts = text.split("-")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
            raise BadInput(f"{text[:60]!r} is not the place of a row; expected ARM-POSITION-TRIAL, such as 0-12-0")
        return cls(*map(int, parts))

    @classmethod
    def unpack(cls, packed: int) -> Place:
        """From one of `places`."""
        return cls(packed >> ARM_BITS, packed >> POSITION_BITS & 0xFFFFFFFF, packed & MOST_TRIALS - 1)

    @property
    def packed(self) -> int:
        """In 8 bytes."""
        return self.arm << ARM_BITS | self.position << POSITION_BITS | self.trial


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list. `failed`, `cost` (US dollars): `None` where only counting all rows would tell. `systems`: (arm,
    name) in order.

    `stamp` changes when the run does. `summary`: what was kept with it (`put_summary`).
    """

    number: int
    id: str
    name: str
    status: str
    created: float
    updated: float
    systems: list[tuple[int, str]]
    rows: int
    planned: int
    failed: int | None
    cost: float | None
    stamp: tuple[Any, ...]
    summary: dict[str, Any] | None = None
    title: str = ""
    tags: list[str] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Is a living process at work on it?"""
        return self.status == RUNNING


@dataclass(frozen=True, slots=True)
class Live:
    """Progress of one system of a running run: tokens summed, `latency` the median in seconds, `cost` of its calls in
    US dollars.
    """

    name: str
    planned: int
    done: int = 0
    failed: int = 0
    sent: int | None = None
    forwarded: int | None = None
    latency: float | None = None
    cost: float | None = None


def open_reading(where: str | Path, *, busy_timeout: int = BUSY_TIMEOUT) -> Store:
    """The store at a path, `sqlite:///PATH` or `postgresql://…`, to read only. Raises `StoreUnusable`."""
    database = database_of(where, busy_timeout=busy_timeout)
    return Store(database.reader(), database)


def listed(store: Store, *, words: str = "", skip: int = 0, limit: int = 50) -> tuple[list[ListedRun], int]:
    """Some of the runs that `heads` gives, and how many there are."""
    found = heads(store, words=words)
    return whole(store, found[skip : skip + limit]), len(found)


def heads(store: Store, *, words: str = "") -> list[Row[Any]]:
    """Rows of `runs` with all of `words` in name, title, tags, id, status or systems, newest first; no manifests."""
    r, a = schema.runs.c, schema.arms.c
    conditions: list[ColumnElement[bool]] = [r.status != COPYING, r.deleted.is_(None)]  # half a run is none
    for word in words.split():
        like = f"%{_escaped(word)}%"
        of_system = exists(select(a.arm).where(a.run == r.number, a.name.ilike(like, escape="\\")))
        conditions.append(
            or_(*(column.ilike(like, escape="\\") for column in (r.name, r.title, r.tags, r.id, r.status)), of_system)
        )
    with store.reading() as connection:
        return list(connection.execute(_runs().where(*conditions).order_by(*newest_first(schema.runs))))


def whole(store: Store, found: Sequence[Row[Any]]) -> list[ListedRun]:
    """The runs of these heads."""
    with store.reading() as connection:
        return [_listed(connection, row) for row in found]


def manifest_of(store: Store, number: int) -> dict[str, Any]:
    """The manifest of the run of this number."""
    manifest = select(schema.runs.c.manifest).where(schema.runs.c.number == number)
    with store.reading() as connection:
        found: dict[str, Any] = unpacked(connection.scalar(manifest), {})
    return found


def summary_of(head: Row[Any]) -> dict[str, Any]:
    """Figures that were kept with a run when it ended; empty while it goes on."""
    return dict({} if head.status == RUNNING else unpacked(head.counts, {}).get("stored") or {})


def listed_run(store: Store, run: str) -> ListedRun:
    """The run with this id or name, as `listed` gives it. Raises `UnknownName`."""
    r = schema.runs.c
    with store.reading() as connection:
        named = (r.id == utf8_safe(run)) | (r.name == utf8_safe(run))
        row = connection.execute(_runs().where(r.status != COPYING, named)).first()
        if row is None:
            raise no_such_run(connection, run)
        refuse_deleted(row, store.name)
        return _listed(connection, row)


def _runs() -> Select[Any]:
    r = schema.runs.c
    facts = (r.number, r.id, r.name, r.status, r.created, r.updated, r.owner, r.counts)
    return select(*facts, r.title, r.tags, r.deleted)


def _escaped(word: str) -> str:
    return utf8_safe(word).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _listed(connection: Connection, row: Row[Any]) -> ListedRun:
    p = schema.plan.c
    facts = unpacked(row.counts, {}).get("stored")
    status = status_of(row)
    if facts is None or row.status == RUNNING:
        rows, owed = connection.execute(select(func.count(p.output), func.count()).where(p.run == row.number)).one()
        facts = {"rows": rows, "owed": owed, "failed": None, "cost": None}
    return ListedRun(
        number=row.number,
        id=row.id,
        name=row.name,
        status=status,
        created=row.created,
        updated=row.updated,
        systems=arms_of(connection, row.number),
        rows=facts["rows"],
        planned=facts["owed"],
        failed=facts["failed"],
        cost=facts["cost"],
        stamp=(row.number, status, row.updated, row.counts),
        summary=facts.get("summary"),
        title=row.title or "",
        tags=tags_in(row.tags),
    )


def live(store: Store, run: ListedRun) -> list[Live]:
    """Progress of each system, by its durable rows."""
    p, o, c = schema.plan, schema.outputs, schema.calls
    here = p.c.run == run.number
    answered = p.join(o, o.c.id == p.c.output)
    tokens = (cast(func.sum(column), WHOLE) for column in (o.c.input_tokens, o.c.output_tokens))
    sums = (func.count(), func.count(o.c.error), *tokens)
    with store.reading() as connection:
        owed = connection.execute(select(p.c.arm, func.count()).where(here).group_by(p.c.arm))
        planned = {int(arm): int(rows) for arm, rows in owed}
        summed = connection.execute(select(p.c.arm, *sums).select_from(answered).where(here).group_by(p.c.arm))
        done = {arm: (rows, failed, sent, forwarded) for arm, rows, failed, sent, forwarded in summed}
        paid = (
            select(p.c.arm, func.sum(c.c.cost))
            .select_from(p.join(c, c.c.output == p.c.output))
            .where(here)
            .group_by(p.c.arm)
        )
        money = {int(arm): cost for arm, cost in connection.execute(paid)}
        middle = {arm: _median(connection, run.number, arm) for arm in done}
    return [
        Live(name, planned.get(arm, 0), *done.get(arm, (0, 0, None, None)), middle.get(arm), money.get(arm))
        for arm, name in run.systems
    ]


def _median(connection: Connection, run: int, arm: int) -> float | None:
    p, o = schema.plan, schema.outputs
    query = select(o.c.latency).select_from(p.join(o, o.c.id == p.c.output))
    query = query.where(p.c.run == run, p.c.arm == arm, o.c.latency.is_not(None)).order_by(o.c.latency)
    latencies = connection.scalars(query).all()
    return percentile(latencies, 0.5) if latencies else None


# --- columns of a long run
# ------------------------------------------------------------------------

_COLUMN = b"column\n"  # no JSON begins so: what is kept under this can be no body of a row
_MARK = len(_COLUMN) + 16
_MOST = 64  # columns: whatever scores are called, as many numbers a row are held
_MOST_KINDS = 1_000  # of question that are kept by name
_p = schema.plan.c
_PLACE = _p.arm * (1 << ARM_BITS) + _p.position * (1 << POSITION_BITS) + _p.trial
#: Rows of a run from which columns are kept: fewer are sorted as fast by reading them.
COLUMNS_FROM = 20_000


def judge_error(run: int) -> ColumnElement[Any]:
    """The error of a judge that failed on the output of a plan row."""
    s, links = schema.scores.c, schema.run_evaluators.c
    found = select(s.error).where(
        links.run == run, s.output == schema.plan.c.output, s.evaluator == links.evaluator, s.error.is_not(None)
    )
    return found.limit(1).correlate(schema.plan).scalar_subquery()


def failed_by(run: int) -> ColumnElement[bool]:
    """Did the system or a judge fail on it?"""
    return or_(schema.outputs.c.error.is_not(None), judge_error(run).is_not(None))


class RunColumns:
    """Columns of all rows of a run, in the order of its plan; each is read when it is first asked for.

    `places`: packed places. Every other column has a number a row (8 bytes), NaN where it is not known; texts are
    numbered in the order that the database sorts them in.
    """

    def __init__(self, store: Store, head: Mapping[str, Any]) -> None:
        self._store, self._names, self._all = store, head["names"], head["all"]
        self._texts = {"dataset": head["datasets"], "kind": head.get("kinds")}
        self.places = self._read("places", "<i8")

    def _read(self, name: str, kind: str) -> np.ndarray[Any, Any]:
        import numpy as np

        key = bytes.fromhex(self._names[name])
        with self._store.reading() as connection:
            data = connection.scalar(select(schema.bodies.c.data).where(schema.bodies.c.key == key))
        if data is None:
            raise Damaged
        return np.frombuffer(unpack(data)[_MARK:], dtype=kind)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Numbers under this name: as in `RowQuery.sort`; NaN everywhere for a score that no row has."""
        import numpy as np

        name = utf8_safe(name)
        return self._read(name, "<f8") if name in self._names else np.full(len(self.places), nan)

    def has(self, sort: str) -> bool:
        """Are rows sorted by this as they would be by reading them?"""
        return self._all or not sort.startswith("score:") or utf8_safe(sort) in self._names

    def are(self, name: str, text: str) -> np.ndarray[Any, Any] | None:
        """Mark the rows of this `dataset` or `kind` of question; `None` where that was not kept."""
        texts = self._texts[name]
        if texts is None:
            return None
        found: np.ndarray[Any, Any] = self.column(name) == (texts.index(text) + 1.0 if text in texts else nan)
        return found

    def of_arm(self, arm: int, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Places of one system, in order, and the numbers of this column."""
        here = self.places >> ARM_BITS == arm
        return self.places[here], self.column(name)[here]


def gathered(store: Store, run: int) -> tuple[dict[str, bytes], list[str], list[str] | None]:
    """Every column of a run (number) as bytes, by name, and its datasets and kinds of question in the order of their
    numbers; `None` where there are too many kinds.

    One pass over the rows, some 16 bytes a row and number in memory.
    """
    import numpy as np

    with store.reading() as connection:
        connection = connection.execution_options(stream_results=True)
        found, numbers, kinds = _numbers(connection, run)
        places = np.frombuffer(found, dtype=np.int64) if found else np.empty(0, dtype=np.int64)
        positions = places >> POSITION_BITS & 0xFFFFFFFF
        columns = {name: np.frombuffer(values) if values else np.empty(0) for name, values in numbers.items()}
        e = schema.examples.c
        ranked = func.dense_rank().over(order_by=func.lower(readable(e.id)))
        columns["example"] = _spread(connection.execute(select(e.position, ranked).where(e.run == run)), positions)
        datasets = list(connection.scalars(select(e.dataset).where(e.run == run).distinct().order_by(e.dataset)))
        known = {name: number for number, name in enumerate(datasets, 1)}
        told = connection.execute(select(e.position, e.dataset).where(e.run == run))
        columns["dataset"] = _spread(((position, known[name]) for position, name in told), positions)
        columns["failure"] = np.full(len(places), nan)
        p, o = schema.plan, schema.outputs
        text = func.coalesce(o.c.error, judge_error(run))
        query = select(_PLACE, func.dense_rank().over(order_by=text)).select_from(p.join(o, o.c.id == p.c.output))
        order = np.argsort(places, kind="stable")
        for place, rank in connection.execute(query.where(p.c.run == run, p.c.output.is_not(None), failed_by(run))):
            at = int(np.searchsorted(places, place, sorter=order))
            if at < len(places) and places[order[at]] == place:
                columns["failure"][order[at]] = rank
    named = {name: values.astype("<f8").tobytes() for name, values in columns.items()}
    return {"places": places.astype("<i8").tobytes()} | named, datasets, kinds


def _spread(numbered: Iterable[Any], positions: Any) -> Any:
    """The number of each row's example."""
    import numpy as np

    at, numbers = array("q"), array("d")
    for position, number in numbered:
        at.append(position)
        numbers.append(number)
    table = np.full(1 + max(int(positions.max(initial=0)), max(at, default=0)), nan)
    table[np.frombuffer(at, dtype=np.int64)] = np.frombuffer(numbers)
    return table[positions]


def _numbers(connection: Connection, run: int) -> tuple[array[int], dict[str, array[float]], list[str] | None]:
    """Places in the order of the plan, and what rows are sorted by of numbers: of several evaluators that give a score
    the last one's counts, as in `rows`. Then the kinds of question, unless there are many.
    """
    p, o, s, links = schema.plan, schema.outputs, schema.scores, schema.run_evaluators
    tables = (
        p.join(o, o.c.id == p.c.output)
        .outerjoin(s, s.c.output == p.c.output)
        .outerjoin(links, (links.c.evaluator == s.c.evaluator) & (links.c.run == run))
    )
    of_output = (o.c.input_tokens, o.c.output_tokens, o.c.latency, o.c.usage, o.c.metadata)
    query = select(_PLACE, links.c.ordinal, s.c["values"], *of_output).select_from(tables)
    query = query.where(p.c.run == run, p.c.output.is_not(None))
    found = array("q")
    columns: dict[str, array[float]] = {name: array("d") for name in ("sent", "forwarded", "latency", "cost", "kind")}
    sent, forwarded, latency, cost, kind = columns.values()
    known, kinds, numbered = _ScoreCache(), _Kinds(), dict[str, int]()
    for arm, _ in arms_of(connection, run):
        last = -1
        ordered = query.where(p.c.arm == arm).order_by(p.c.position, p.c.trial, links.c.ordinal)
        for place, ordinal, values, read, told, seconds, usage, facts in map(tuple, connection.execute(ordered)):
            if place != last:
                last = place
                found.append(place)
                sent.append(nan if read is None else read)
                forwarded.append(nan if told is None else told)
                latency.append(nan if seconds is None else seconds)
                cost.append(nan if usage is None else known.cost(usage))
                if len(numbered) <= _MOST_KINDS:
                    kind.append(numbered.setdefault(kinds[facts], len(numbered) + 1))
            if ordinal is not None and values is not None:
                for name, value in known[values]:
                    column = columns.get(name)
                    if column is None:
                        if len(columns) >= _MOST:
                            continue
                        column = columns[name] = array("d")
                    _fill(column, len(found))
                    column[-1] = value
    if len(numbered) > _MOST_KINDS:
        del columns["kind"]
    for column in columns.values():
        _fill(column, len(found))
    return found, columns, list(numbered) if "kind" in columns else None


def _fill(column: array[float], size: int) -> None:
    """Nothing is known of the rows up to this one."""
    if (missing := size - len(column)) > 0:
        column.extend((nan,) * missing)


class _ScoreCache(dict[bytes, tuple[tuple[str, float], ...]]):
    """The scores in packed values, by name of their column; many are equal, and remembered as long as they are few."""

    def __missing__(self, data: bytes) -> tuple[tuple[str, float], ...]:
        if len(self) > 10_000:
            self.clear()
        numbers = ((name, real(value)) for name, value in unpacked(data, {}).items())
        found = self[data] = tuple((f"score:{name}", number) for name, number in numbers if number is not None)
        return found

    def cost(self, usage: bytes) -> float:
        """Cost in US dollars, as usage tells it."""
        told = unpacked(usage, {})
        return next((found for name in COST if (found := real(told.get(name))) is not None), nan)


def keep_columns_of(store: Store, run: str, state: str) -> None:
    """Keep the columns of a stored run (id), for as long as the run's state is the given one (`kept_page`)."""
    from context_bench.engine.store.run_writer import keep_columns

    r = schema.runs.c
    with store.reading() as connection:
        number = connection.scalar(select(r.number).where(r.id == run))
    columns, datasets, kinds = gathered(store, int(number or 0))
    mark = _COLUMN + body_key(run.encode())  # no two runs share a column, so each can be deleted with its run
    bodies = {name: mark + data for name, data in columns.items()}
    names = {name: body_key(data).hex() for name, data in bodies.items()}
    head = {"names": names, "datasets": datasets, "kinds": kinds, "all": len(columns) <= _MOST}
    keep_columns(store, run, state, mark + dumps(head), list(bodies.values()))


def columns_of(store: Store, run: ListedRun) -> RunColumns | None:
    """The columns that were kept with a run in its present state, `None` without any."""
    from context_bench.engine.store.run_writer import kept_columns

    if run.rows < COLUMNS_FROM:
        return None
    data = kept_columns(store, run.id)
    try:
        return RunColumns(store, loads(data[_MARK:])) if data.startswith(_COLUMN) else None
    except (Damaged, KeyError, TypeError, ValueError):
        return None


def of_kind(store: Store, run: ListedRun, found: array[int], kind: str) -> array[int]:
    """Those of the packed places `found` whose question is of this kind, by the metadata of their rows; in order. All
    of them without a kind.
    """
    import numpy as np

    if not kind:
        return found
    p, o = schema.plan.c, schema.outputs.c
    place = p.arm * (1 << ARM_BITS) + p.position * (1 << POSITION_BITS) + p.trial
    query = select(place, o.metadata).select_from(schema.plan.join(schema.outputs, o.id == p.output))
    kinds, wanted = _Kinds(), array("q")
    with store.reading() as connection:
        for arm, _ in run.systems:
            rows = connection.execution_options(stream_results=True).execute(
                query.where(p.run == run.number, p.arm == arm)
            )
            wanted.extend(packed for packed, metadata in rows if kinds[metadata] == kind)
    every = np.asarray(found, dtype=np.int64)
    return array("q", every[np.isin(every, np.asarray(wanted, dtype=np.int64))].tobytes())


class _Kinds(dict[bytes | None, str]):
    """The kind of question in packed metadata; those of many rows are alike, and remembered as long as they are few."""

    def __missing__(self, metadata: bytes | None) -> str:
        found = kind_in(unpacked(metadata, {}))
        if len(self) < _MOST_METADATA:
            self[metadata] = found
        return found


_MOST_METADATA = 10_000
