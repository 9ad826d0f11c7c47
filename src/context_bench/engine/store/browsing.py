"""A store as a browser needs it: runs without their manifests, the rows of a run sorted and filtered in SQL, a page of
them at a time.

Everything here only reads, works while a run is written, and holds at most 16 bytes a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, cast, exists, func, or_, select, tuple_

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import unpacked
from context_bench.engine.store import BUSY_TIMEOUT, Store, database_of, schema
from context_bench.engine.store.dialects import WHOLE, readable
from context_bench.engine.store.reading import _eval_rows, _plan_query
from context_bench.engine.store.run_records import COPYING, RUNNING, arms_of, newest_first, status_of
from context_bench.stats.distributions import percentile

_ARM, _POSITION = 48, 16  # bits that a packed place is shifted by
MOST_TRIALS = 1 << _POSITION
_COSTS = ("cost", "cost_usd", "usd")


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
        return cls(packed >> _ARM, packed >> _POSITION & 0xFFFFFFFF, packed & MOST_TRIALS - 1)

    @property
    def packed(self) -> int:
        """In 8 bytes."""
        return self.arm << _ARM | self.position << _POSITION | self.trial


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

    @property
    def running(self) -> bool:
        """Is a living process at work on it?"""
        return self.status == RUNNING


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Rows to show, and their order. `sort`: a name of `SORTS` or `score:NAME`, "" = plan order; unknown values come
    last either way.

    `change`: one of `CHANGES`, how `score` stands against that of the baseline's answer to the same example and trial;
    `baselines`: (system, baseline) pairs.
    """

    system: str = ""
    dataset: str = ""
    failed: bool = False
    sort: str = ""
    descending: bool = False
    change: str = ""
    score: str = ""
    baselines: tuple[tuple[str, str], ...] = ()


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


@dataclass(slots=True)
class Facets:
    """Columns by which rows can be filtered and sorted."""

    systems: list[tuple[int, str]]
    datasets: list[str] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    trials: int = 1


def open_reading(where: str | Path, *, busy_timeout: int = BUSY_TIMEOUT) -> Store:
    """The store at a path, `sqlite:///PATH` or `postgresql://…`, to read only. Raises `StoreUnusable`."""
    database = database_of(where, busy_timeout=busy_timeout)
    return Store(database.reader(), database)


def _number_in(data: bytes | None, names: Sequence[str]) -> float | None:
    """The first number under one of these names in a packed mapping."""
    values = unpacked(data, {})
    for name in names:
        if (found := real(values.get(name))) is not None:
            return found
    return None


# --- runs
# ------------------------------------------------------------------------


def listed(store: Store, *, words: str = "", skip: int = 0, limit: int = 50) -> tuple[list[ListedRun], int]:
    """Some of the runs that `heads` gives, and how many there are."""
    found = heads(store, words=words)
    return whole(store, found[skip : skip + limit]), len(found)


def heads(store: Store, *, words: str = "") -> list[Row[Any]]:
    """Rows of `runs` with all of `words` in name, id, status or systems, newest first; without manifests."""
    r, a = schema.runs.c, schema.arms.c
    conditions: list[ColumnElement[bool]] = [r.status != COPYING]  # half a run is none
    for word in words.split():
        like = f"%{_escaped(word)}%"
        of_system = exists(select(a.arm).where(a.run == r.number, a.name.ilike(like, escape="\\")))
        conditions.append(or_(*(column.ilike(like, escape="\\") for column in (r.name, r.id, r.status)), of_system))
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
            raise UnknownName(
                "run", run, connection.scalars(select(r.name).order_by(*newest_first(schema.runs)).limit(20))
            )
        return _listed(connection, row)


def _runs() -> Select[Any]:
    r = schema.runs.c
    return select(r.number, r.id, r.name, r.status, r.created, r.updated, r.owner, r.counts)


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


# --- rows
# ------------------------------------------------------------------------

#: How a row's score may stand against its baseline's. `failed`: it has none where the baseline has one.
CHANGES = ("lost", "gained", "same", "failed")
#: What rows can be sorted by, besides `score:NAME`.
SORTS = ("example", "dataset", "sent", "forwarded", "latency", "cost", "failure")


def facets(store: Store, run: ListedRun) -> Facets:
    """Systems, datasets, trials, and the names of scores as the first rows of each system have them."""
    e, p = schema.examples.c, schema.plan.c
    found = Facets(run.systems)
    with store.reading() as connection:
        found.datasets = list(connection.scalars(select(e.dataset).where(e.run == run.number).distinct().limit(200)))
        found.trials = 1 + (connection.scalar(select(func.max(p.trial)).where(p.run == run.number)) or 0)
        seen: dict[str, None] = {}
        for arm, name in run.systems:
            first = connection.execute(_plan_query(run.number, arm).limit(64)).all()
            for row in _eval_rows(connection, run.number, name, first):
                seen |= dict.fromkeys(row.scores)
    found.scores = list(seen)
    return found


def places(store: Store, run: ListedRun, asked: RowQuery) -> array[int]:
    """All rows that are asked for, in order, as packed places. Raises `UnknownName` and `BadInput` for what cannot be
    asked.
    """
    if asked.change and asked.change not in CHANGES:
        raise BadInput(f"{asked.change[:60]!r} is no change against the baseline; expected {', '.join(CHANGES)}")
    found = _places(store, run, asked)
    return _changed(store, run, asked, found) if asked.change else found


def _changed(store: Store, run: ListedRun, asked: RowQuery, found: array[int]) -> array[int]:
    """Those of `found` whose score changed against the baseline as is asked for."""
    import numpy as np

    p, o = schema.plan, schema.outputs
    arms = {name: arm for arm, name in run.systems}
    query = select(p.c.arm * (1 << _ARM) + p.c.position * (1 << _POSITION) + p.c.trial).where(
        p.c.run == run.number, p.c.output.is_not(None)
    )
    by_score = RowQuery(sort=f"score:{asked.score}")
    wanted, kept = np.asarray(found, dtype=np.int64), np.zeros(len(found), dtype=bool)
    for system, baseline in asked.baselines:
        if system == baseline or not {system, baseline} <= arms.keys() or asked.system not in ("", system):
            continue
        with store.reading() as connection:
            own, other = (
                _numbers(connection, query, [arms[name]], p.join(o, o.c.id == p.c.output), run.number, by_score)
                for name in (system, baseline)
            )
        ours = np.flatnonzero(wanted >> _ARM == arms[system])
        mine = _values_at(wanted[ours], own)
        theirs = _values_at(wanted[ours] - (arms[system] << _ARM) + (arms[baseline] << _ARM), other)
        matches = {
            "lost": mine < theirs,
            "gained": mine > theirs,
            "same": mine == theirs,
            "failed": np.isnan(mine) & ~np.isnan(theirs),
        }
        kept[ours] = matches[asked.change]
    return array("q", wanted[kept].tobytes())


def _values_at(places: Any, numbered: tuple[array[int], Any]) -> Any:
    """The value at each of these packed places, NaN where there is none; `numbered` is in the order of places."""
    import numpy as np

    there, values = np.asarray(numbered[0], dtype=np.int64), numbered[1]
    if not len(there):
        return np.full(len(places), nan)
    at = np.minimum(np.searchsorted(there, places), len(there) - 1)
    return np.where(there[at] == places, values[at], nan)


def _places(store: Store, run: ListedRun, asked: RowQuery) -> array[int]:
    p, e, o, a = schema.plan, schema.examples, schema.outputs, schema.arms
    counted = asked.sort == "cost" or asked.sort.startswith("score:")
    order = None if counted else _order(asked.sort, run.number)
    tables: Any = p
    if asked.failed or order is not None or counted:
        tables = tables.join(o, o.c.id == p.c.output)
    if asked.dataset or asked.sort in ("example", "dataset"):
        tables = tables.join(e, (e.c.run == p.c.run) & (e.c.position == p.c.position))
    query = select(p.c.arm * (1 << _ARM) + p.c.position * (1 << _POSITION) + p.c.trial)
    conditions = [p.c.run == run.number, p.c.output.is_not(None)]
    if asked.dataset:
        conditions.append(e.c.dataset == asked.dataset)
    if asked.failed:
        conditions.append(_failed(run.number))
    chosen = [arm for arm, name in run.systems if asked.system in ("", name)]
    if not chosen and asked.system:
        raise UnknownName("system", asked.system, (name for _, name in run.systems))
    with store.reading() as connection:
        if counted:
            return _by_number(connection, query.where(*conditions), chosen, tables, run.number, asked)
        if order is None:  # arm by arm, as the table has them
            every: Iterable[Any] = (
                query.select_from(tables).where(*conditions, p.c.arm == arm).order_by(p.c.position, p.c.trial)
                for arm in chosen
            )
            return array("q", (place for each in every for place in connection.scalars(each)))
        tables = tables.join(a, (a.c.run == p.c.run) & (a.c.arm == p.c.arm))
        ranked = query.select_from(tables).where(*conditions, p.c.arm.in_(chosen))
        ends = ((order.desc() if asked.descending else order.asc()).nulls_last(), a.c.ordinal, p.c.position, p.c.trial)
        return array("q", connection.scalars(ranked.order_by(*ends)))


def _order(sort: str, run: int) -> ColumnElement[Any] | None:
    o, e = schema.outputs.c, schema.examples.c
    columns: dict[str, ColumnElement[Any]] = {
        "example": func.lower(readable(e.id)),
        "dataset": e.dataset,
        "sent": o.input_tokens,
        "forwarded": o.output_tokens,
        "latency": o.latency,
        "failure": func.coalesce(o.error, _judge_error(run)),
    }
    if not sort:
        return None
    if sort not in columns:
        raise BadInput(f"rows cannot be sorted by {sort[:60]!r}; expected {', '.join(SORTS)} or score:NAME")
    return columns[sort]


def _by_number(
    connection: Connection, query: Select[Any], arms: Sequence[int], tables: Any, run: int, asked: RowQuery
) -> array[int]:
    """Places sorted by a number that only Python can read: 16 bytes a row."""
    import numpy as np

    found, values = _numbers(connection, query, arms, tables, run, asked)
    order = np.argsort(-values if asked.descending else values, kind="stable")  # what is not known comes last
    return array("q", np.asarray(found, dtype=np.int64)[order].tobytes())


def _numbers(
    connection: Connection, query: Select[Any], arms: Sequence[int], tables: Any, run: int, asked: RowQuery
) -> tuple[array[int], Any]:
    """Places in plan order with the number that rows are sorted by, NaN where it is not known."""
    import numpy as np

    p, o, s, links = schema.plan, schema.outputs, schema.scores, schema.run_evaluators
    name = asked.sort.removeprefix("score:")
    data: ColumnElement[Any] = o.c.usage
    if asked.sort != name:  # where several evaluators give it, the last one's counts, as in `rows`
        tables = tables.outerjoin(s, s.c.output == p.c.output).outerjoin(
            links, (links.c.evaluator == s.c.evaluator) & (links.c.run == run)
        )
        data = s.c["values"]
    ranked = query.add_columns(data, *([links.c.ordinal] if asked.sort != name else [])).select_from(tables)
    found, numbers, last = array("q"), array("d"), -1
    for arm in arms:
        rows = connection.execution_options(stream_results=True).execute(
            ranked.where(p.c.arm == arm).order_by(p.c.position, p.c.trial)
        )
        for place, value, *ordinal in rows:
            number = None if ordinal == [None] else _number_in(value, (utf8_safe(name),) if ordinal else _COSTS)
            if not found or found[-1] != place:
                found.append(place)
                numbers.append(nan)
                last = -1
            if number is not None and (not ordinal or ordinal[0] > last):
                numbers[-1], last = number, ordinal[0] if ordinal else last
    return found, np.frombuffer(numbers) if numbers else np.empty(0)


def _judge_error(run: int) -> ColumnElement[Any]:
    s, links = schema.scores.c, schema.run_evaluators.c
    found = select(s.error).where(
        links.run == run, s.output == schema.plan.c.output, s.evaluator == links.evaluator, s.error.is_not(None)
    )
    return found.limit(1).correlate(schema.plan).scalar_subquery()


def _failed(run: int) -> ColumnElement[bool]:
    return or_(schema.outputs.c.error.is_not(None), _judge_error(run).is_not(None))


def rows_at(store: Store, run: ListedRun, wanted: Sequence[Place]) -> list[tuple[Place, EvalRow]]:
    """The rows at these places, in this order; places without a row are left out."""
    names, p = dict(run.systems), schema.plan.c
    found: dict[Place, EvalRow] = {}
    with store.reading() as connection:
        for arm in dict.fromkeys(place.arm for place in wanted if place.arm in names):
            pairs = [(place.position, place.trial) for place in wanted if place.arm == arm]
            rows = connection.execute(_plan_query(run.number, arm).where(tuple_(p.position, p.trial).in_(pairs))).all()
            made = _eval_rows(connection, run.number, names[arm], rows)
            found |= {Place(arm, row.position, row.trial): each for row, each in zip(rows, made, strict=True)}
    return [(place, found[place]) for place in wanted if place in found]


def same_example(store: Store, run: ListedRun, place: Place) -> list[Place]:
    """All answers of a run to the example and trial at this place, by system."""
    p = schema.plan.c
    query = select(p.arm).where(
        p.run == run.number, p.position == place.position, p.trial == place.trial, p.output.is_not(None)
    )
    with store.reading() as connection:
        there = set(connection.scalars(query.where(p.arm.in_([arm for arm, _ in run.systems]))))
    return [Place(arm, place.position, place.trial) for arm, _ in run.systems if arm in there]


def places_of(
    store: Store, run: ListedRun, wanted: Sequence[tuple[str, str, Any, int]]
) -> dict[tuple[str, str, Any, int], Place]:
    """The places of rows named by (system, dataset, example id, trial) stand. Reads the run's examples once."""
    from context_bench.engine.encoding import dumps

    e = schema.examples.c
    arms = {name: arm for arm, name in run.systems}
    ids = {dumps(example) for _, _, example, _ in wanted}
    positions: dict[tuple[str, bytes], int] = {}
    with store.reading() as connection:
        for position, dataset, example in connection.execute(
            select(e.position, e.dataset, e.id).where(e.run == run.number)
        ):
            if example in ids:
                positions.setdefault((dataset, example), position)
    found = {}
    for each in wanted:
        system, dataset, example, trial = each
        position = positions.get((dataset, dumps(example)))
        if position is not None and system in arms:
            found[each] = Place(arms[system], position, trial)
    return found
