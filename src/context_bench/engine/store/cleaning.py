"""Removing what nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, select, union_all

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.families import Kept, families
from context_bench.engine.store import schema
from context_bench.engine.store.store import RUNNING, Store, list_runs, worked_on


def purge(store: Store, *, older_than: float, dry_run: bool = False, clock: Clock = SYSTEM_CLOCK) -> list[str]:
    """Remove runs, and what families keep beside them (watches), not touched for `older_than` seconds, with all that no
    other one uses; returns their names. Replies of judges go when they are as old.

    A file shrinks where no other process has it open; a server keeps the space for what comes next. Raises
    `StoreUnusable` while a run is being worked on.
    """
    if not older_than >= 0:
        raise BadInput(f"age {older_than} is not a number of seconds ≥ 0")
    old = [run for run in list_runs(store) if run.updated < clock.now() - older_than and run.status != RUNNING]
    others = [(kept, kept.old(store, clock.now() - older_than)) for kept in _kept()]
    names = [*(run.name for run in old), *(name for _, found in others for name in found.values())]
    if not dry_run:
        _forget(store, clock.now() - older_than)
    if dry_run or not names:
        return names
    _remove(store, [run.number for run in old], others)
    store.database.shrink(store.engine)
    return names


def _kept() -> list[Kept]:
    return [family.kept for family in families() if family.kept is not None]


def _refuse_busy(store: Store, connection: Connection) -> None:
    r = schema.runs.c
    for row in connection.execute(select(r.id, r.name, r.owner, r.updated).where(r.status == RUNNING)):
        if worked_on(row.id, row.owner, row.updated, SYSTEM_CLOCK):
            raise StoreUnusable(f"run {row.name!r} is being worked on; purge {store.name} when it has ended")


def _forget(store: Store, before: float) -> None:
    """Remembered replies need no run, and no run needs them."""
    with store.writing() as connection:
        connection.execute(delete(schema.replies).where(schema.replies.c.created < before))


def _remove(store: Store, numbers: list[int], others: list[tuple[Kept, Mapping[int, str]]]) -> None:
    s = schema
    with store.writing() as connection:
        store.database.alone(connection, purging=True)
        _refuse_busy(store, connection)
        for kept, found in others:
            kept.remove(connection, list(found))
        for table in (s.plan, s.examples, s.sources, s.arms, s.run_evaluators, s.pens):
            connection.execute(delete(table).where(table.c.run.in_(numbers)))
        connection.execute(delete(s.runs).where(s.runs.c.number.in_(numbers)))
        used = select(s.plan.c.output).where(s.plan.c.output.is_not(None))
        living = select(s.runs.c.number)
        # An output stays while its run lives (a resume may use it) or another run's plan points to it.
        connection.execute(delete(s.outputs).where(s.outputs.c.run.not_in(living), s.outputs.c.id.not_in(used)))
        told = select(s.outputs.c.setup).where(s.outputs.c.setup.is_not(None))
        connection.execute(delete(s.setups).where(s.setups.c.run.not_in(living), s.setups.c.id.not_in(told)))
        left, ready = select(s.outputs.c.id), select(s.setups.c.id)
        connection.execute(delete(s.scores).where(s.scores.c.output.not_in(left)))
        for table in (s.calls, s.forwarded):
            lost = table.c.output.is_(None) & table.c.setup.is_(None) & table.c.run.not_in(living)
            gone = table.c.output.is_not(None) & table.c.output.not_in(
                left
            )  # NULL is in no list, but not outside an empty one either
            undone = table.c.setup.is_not(None) & table.c.setup.not_in(ready)
            connection.execute(delete(table).where(lost | gone | undone))
        _remove_bodies(connection)


def _remove_bodies(connection: Connection) -> None:
    s = schema
    columns = (s.examples.c.body, s.calls.c.request, s.calls.c.reply, s.forwarded.c.request, s.forwarded.c.reply)
    seen = (column for kept in _kept() for column in kept.bodies())
    used = union_all(*(select(column).where(column.is_not(None)) for column in (*columns, *seen)))
    connection.execute(delete(s.body_parts).where(s.body_parts.c.body.not_in(used)))
    connection.execute(
        delete(s.bodies).where(s.bodies.c.key.not_in(used), s.bodies.c.key.not_in(select(s.body_parts.c.part)))
    )
