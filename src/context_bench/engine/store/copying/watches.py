"""Copying a watch of live traffic, with the bodies that its recording policy kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.tokens import utf8_safe
from context_bench.engine.store import schema
from context_bench.engine.store.copying import rows as shared
from context_bench.engine.store.copying.rows import add, all_of, copy_bodies
from context_bench.engine.store.store import COPYING, INTERRUPTED, RUNNING, Store, process_mark, still_alive
from context_bench.engine.store.watched import watch_of

_w, _t = schema.watches.c, schema.watched.c


@dataclass(frozen=True, slots=True)
class CopiedWatch:
    """What became of it: `records` written now; `there`: it was all there already."""

    name: str
    records: int = 0
    there: bool = False


def copy_watch(source: Store, target: Store, watch: str, *, name: str | None = None) -> CopiedWatch:
    """Copy a watch (by name, or `last`) of `source` into `target`, under its own name unless another is given.

    A watch that is over never changes: one of the same beginning there is this one, and what it has of it is not copied again. Raises
    `BadInput` where the name is another watch's there, `StoreUnusable` while the original is going on.
    """
    number = watch_of(source, watch).number
    with source.reading() as connection:
        row = connection.execute(select(schema.watches).where(_w.number == number)).one()
    if row.status == RUNNING and still_alive(row.owner, row.updated, SYSTEM_CLOCK):
        raise StoreUnusable(f"watch {row.name!r} is going on; copy it when it has ended")
    return _Copy(source, target, row, utf8_safe(name) if name is not None else row.name).carry_out()


class _Copy:
    """One watch on its way. Its records there say how far it got."""

    def __init__(self, source: Store, target: Store, watch: Row[Any], name: str) -> None:
        self.source, self.target, self.watch, self.name = source, target, watch, name
        self.number = self.records = 0

    def carry_out(self) -> CopiedWatch:
        """Begin or go on, to the end."""
        if self.target.insist(self._begin):
            return CopiedWatch(self.name, there=True)
        before = self.records
        while self.target.insist(self._one):
            pass
        self.target.insist(self._end)
        return CopiedWatch(self.name, self.records - before)

    @property
    def _hidden(self) -> str:
        """The name of a watch that is not whole yet."""
        return f"{COPYING}:{self.watch.created!r}:{self.watch.name}"

    def _begin(self) -> bool:
        """Make the watch there, or take a copy up that was broken off; true if all of it is there."""
        with self.target.writing() as connection:
            self.target.database.alone(connection)
            named = connection.execute(select(schema.watches).where(_w.name == self.name)).first()
            if named is not None:
                if named.created == self.watch.created and named.settings == self.watch.settings:
                    return True
                raise BadInput(f"{self.target.name} has another watch named {self.name!r}; give the copy a name of its own with --as NAME")
            begun = connection.scalar(select(_w.number).where(_w.name == self._hidden))
            if begun is None:
                values = {"name": self._hidden, "status": COPYING, "owner": process_mark()}
                told = {each: getattr(self.watch, each) for each in ("created", "updated", "settings")}
                made = connection.execute(schema.watches.insert().values(**values, **told)).inserted_primary_key
                assert made is not None
                begun = made[0]
            self.number = int(begun)
            self.records = self._there(connection)[0]
        return False

    def _there(self, connection: Connection) -> tuple[int, int]:
        """How many records are there, and the number of the last."""
        row = connection.execute(select(func.count(), func.coalesce(func.max(_t.number), 0)).where(_t.watch == self.number)).one()
        return int(row[0]), int(row[1])

    def _one(self) -> bool:
        """The next records, after the last that is there; false if there are none."""
        with self.target.writing(durable=False) as connection:
            self.target.database.alone(connection)
            self.records, after = self._there(connection)
            with self.source.reading() as reading:
                query = (
                    select(schema.watched).where(_t.watch == self.watch.number, _t.number > after).order_by(_t.number).limit(shared.ROWS)
                )
                found = all_of(reading, query)
                if not found:
                    return False
                b = schema.watched_bodies
                span = b.c.number.between(found[0]["number"], found[-1]["number"])
                kept = all_of(reading, select(b).where(b.c.watch == self.watch.number, span).order_by(b.c.number, b.c.place))
            copy_bodies(self.source, connection, [row[each] for row in kept for each in ("request", "reply")])
            for table, rows in ((schema.watched, found), (schema.watched_bodies, kept)):
                add(connection, table, [{**row, "watch": self.number} for row in rows])
        return True

    def _end(self) -> None:
        """Its own name: now it is one."""
        status = INTERRUPTED if self.watch.status == RUNNING else self.watch.status
        with self.target.writing() as connection:
            told = update(schema.watches).where(_w.number == self.number, _w.status == COPYING)
            connection.execute(told.values(name=self.name, status=status, owner=None))
