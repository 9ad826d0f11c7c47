"""A store as a browser needs it: runs without their manifests, a page of them at a time, and progress of those that go
on. `row_lists` has their rows.

Everything here only reads, and works while a run is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, cast, exists, func, or_, select

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import unpacked
from context_bench.engine.store import BUSY_TIMEOUT, Store, database_of, schema
from context_bench.engine.store.dialects import WHOLE
from context_bench.engine.store.run_records import COPYING, RUNNING, arms_of, newest_first, status_of
from context_bench.stats.distributions import percentile

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
