"""Words of people on what a store holds: a title and tags of a run, tags and a note on a row; runs that are marked as
deleted, restored, and purged.

A run itself is not touched: its name stays its name, by which it is resumed, and so do manifest, identity and verdicts.
A note belongs to a row's place and example: where another example takes that place, it is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, select, union_all, update

from context_bench.core.errors import BadInput, ContextBenchError, StoreUnusable, UnknownName
from context_bench.core.families import Kept, families
from context_bench.core.keys import hash_text
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.records import EvalRow
from context_bench.core.rows import by_count
from context_bench.engine.encoding import dumps, loads, pack, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.browsing import Place
from context_bench.engine.store.dialects import put
from context_bench.engine.store.run_records import COPYING, RUNNING, busy, list_runs, newest_first, tags_in
from context_bench.engine.store.watches import labels_of, with_labels

#: Characters of a title, of a tag and of a note, and tags of a run or row.
MOST_TITLE, MOST_TAG, MOST_NOTE, MOST_TAGS = 200, 40, 4_000, 20
#: Characters that steer a terminal, break a line, turn the direction of a text, or are half of one.
_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_r, _n, _w = schema.runs.c, schema.row_notes.c, schema.watches.c


class EditConflict(ContextBenchError):
    """Somebody else wrote the same thing since it was read."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Words of people on a run (`text` is its title) or a row (`text` is a note)."""

    tags: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of_run(cls, tags: str, title: str) -> Remark:
        """From what a person typed, tags with commas between. Raises `BadInput` for what is too long or no text."""
        return cls(_tags(tags), _line(title, "a title", MOST_TITLE))

    @classmethod
    def of_row(cls, tags: str, note: str) -> Remark:
        """The same; a note may have lines."""
        text = note.replace("\r\n", "\n").replace("\r", "\n").strip()
        for line in text.replace("\t", " ").split("\n"):
            _plain(line, "a note")
        return cls(_tags(tags), _short(text, "a note", MOST_NOTE))

    @property
    def stamp(self) -> str:
        """A short text that changes when it does: whoever writes names the one that was read."""
        return hash_text(dumps([list(self.tags), self.text]).decode())[:16]


def _tags(text: str) -> tuple[str, ...]:
    """Each once, whatever its case; the first spelling counts."""
    found: dict[str, str] = {}
    for each in text.split(","):
        if tag := " ".join(_line(each, "a tag", MOST_TAG).split()):
            found.setdefault(tag.casefold(), tag)
    if len(found) > MOST_TAGS:
        raise BadInput(f"{len(found)} tags are too many; at most {MOST_TAGS}")
    return tuple(found.values())


def _line(text: str, what: str, most: int) -> str:
    return _short(_plain(text.strip(), what), what, most)


def _short(text: str, what: str, most: int) -> str:
    if len(text) > most:
        raise BadInput(f"{what} of {len(text):,} characters is too long; at most {most:,}")
    return text


def _plain(text: str, what: str) -> str:
    if (found := _STEERS.search(text)) is not None:
        raise BadInput(f"{what} may not hold the character U+{ord(found[0]):04X}, which is none that is read")
    return text


# --- runs


def describe_run(store: Store, run: str, remark: Remark, *, seen: str) -> None:
    """Give a run (id) a title and tags; none of them: it has none. `seen`: stamp of what it had. Raises `EditConflict`
    if that has changed, and `UnknownName`.
    """

    def work(connection: Connection) -> None:
        row = _run(connection, run)
        _same(Remark(tuple(tags_in(row.tags)), row.title or ""), seen, remark)
        values = {"title": remark.text or None, "tags": "\n".join(remark.tags) or None}
        connection.execute(update(schema.runs).where(_r.number == row.number).values(values))

    store.write(work)


def label_run(store: Store, run: str, remark: Remark) -> None:
    """Give a run (id) a title and tags from the command that makes it; what is empty there stays as it was."""
    told = {"title": remark.text, "tags": "\n".join(remark.tags)}
    values = {name: value for name, value in told.items() if value}
    if values:
        store.write(lambda connection: connection.execute(update(schema.runs).where(_r.id == run).values(values)))


def describe_watch(store: Store, name: str, remark: Remark, *, seen: str) -> None:
    """Give a watch a title and tags, also while it is at work; `seen` and errors as in `describe_run`."""

    def work(connection: Connection) -> None:
        row = connection.execute(select(_w.number, _w.settings).where(_w.name == name, _w.status != COPYING)).first()
        if row is None:
            raise UnknownName("watch", name, [])
        settings = unpacked(row.settings, {})
        there = labels_of(settings)
        _same(Remark(tuple(there.get("tags", ())), there.get("title", "")), seen, remark)
        labels = {"title": remark.text, "tags": list(remark.tags)}
        packed = pack(dumps(with_labels(settings, labels)))
        connection.execute(update(schema.watches).where(_w.number == row.number).values(settings=packed))

    store.write(work)


def mark_deleted(store: Store, run: str, clock: Clock = SYSTEM_CLOCK) -> None:
    """Hide a run (id) from all lists and commands until it is restored or purged. Nothing of it is removed. Raises
    `StoreUnusable` while somebody is at work on it.
    """

    def work(connection: Connection) -> None:
        store.database.alone(connection)
        row = _run(connection, run)
        if busy(row, clock):
            raise StoreUnusable(f"run {row.name!r} is being worked on; delete it when it has ended")
        if row.deleted is None:
            connection.execute(update(schema.runs).where(_r.number == row.number).values(deleted=clock.now()))

    store.write(work)


def restore(store: Store, run: str) -> None:
    """Show a run (id) again that was marked as deleted."""

    def work(connection: Connection) -> None:
        number = _run(connection, run).number
        connection.execute(update(schema.runs).where(_r.number == number).values(deleted=None))

    store.write(work)


@dataclass(frozen=True, slots=True)
class DeletedRun:
    """A run that is marked as deleted since `deleted` (epoch)."""

    id: str
    name: str
    title: str
    created: float
    deleted: float


def deleted_runs(store: Store) -> list[DeletedRun]:
    """Those that were marked last first."""
    query = select(_r.id, _r.name, _r.title, _r.created, _r.deleted).where(_r.deleted.is_not(None))
    with store.reading() as connection:
        found = connection.execute(query.order_by(_r.deleted.desc(), *newest_first(schema.runs)))
        return [DeletedRun(row.id, row.name, row.title or "", row.created, row.deleted) for row in found]


def _run(connection: Connection, run: str) -> Row[Any]:
    row = connection.execute(select(schema.runs).where(_r.id == run, _r.status != COPYING)).first()
    if row is None:
        raise UnknownName("run", run, [])
    return row


def _same(there: Remark, seen: str, remark: Remark) -> None:
    if there.stamp != seen and there != remark:
        raise EditConflict("it was changed by another page since this one was opened; nothing was written")


# --- rows


def write_note(store: Store, run: int, place: Place, remark: Remark, *, seen: str, clock: Clock = SYSTEM_CLOCK) -> None:
    """Keep tags and note of a row of a run (number); without any, those it had are gone. `seen` as in `describe_run`.
    Raises `UnknownName` for a row that is not planned.
    """
    p, e = schema.plan, schema.examples
    example = select(e.c.content).select_from(p.join(e, (e.c.run == p.c.run) & (e.c.position == p.c.position)))
    here = {"run": run, **place._asdict()}

    def work(connection: Connection) -> None:
        content = connection.scalar(example.where(*(p.c[name] == value for name, value in here.items())))
        if content is None:
            raise UnknownName("row", str(place), [])
        own = (schema.row_notes.c[name] == value for name, value in here.items())
        mine = select(_n.tags, _n.note).where(*own, _n.content == content)
        row = connection.execute(mine).first()
        _same(Remark() if row is None else Remark(tuple(tags_in(row.tags)), row.note), seen, remark)
        if remark == Remark():
            gone = (schema.row_notes.c[name] == value for name, value in here.items())
            connection.execute(delete(schema.row_notes).where(*gone))
        else:
            values = {**here, "content": content, "tags": "\n".join(remark.tags), "note": remark.text}
            put(connection, schema.row_notes, (*values, "updated"), [(*values.values(), clock.now())])

    store.write(work)


def notes_of(store: Store, run: int) -> dict[Place, Remark]:
    """Tags and notes of the rows of a run (number), where the example is the one that they were written on."""
    e, n = schema.examples, schema.row_notes
    same = (e.c.run == n.c.run) & (e.c.position == n.c.position) & (e.c.content == n.c.content)
    query = select(_n.arm, _n.position, _n.trial, _n.tags, _n.note).select_from(n.join(e, same)).where(_n.run == run)
    with store.reading() as connection:
        found = connection.execute(query.order_by(_n.arm, _n.position, _n.trial)).all()
    return {Place(row.arm, row.position, row.trial): Remark(tuple(tags_in(row.tags)), row.note) for row in found}


def remarks_by_row(store: Store, run: int) -> Callable[[EvalRow], dict[str, Any]] | None:
    """A function that gives what was written on a row of a run (number), as exports have it: `tags` and `note`, where
    there are any. `None` where nothing was written on any row.
    """
    written = notes_of(store, run)
    if not written:
        return None
    a, e = schema.arms.c, schema.examples.c
    positions = {place.position for place in written}
    with store.reading() as connection:
        names = {row.arm: row.name for row in connection.execute(select(a.arm, a.name).where(a.run == run))}
        examples: dict[int, tuple[str, Any]] = {}
        for some in by_count(sorted(positions), 400):
            found = connection.execute(select(e.position, e.dataset, e.id).where(e.run == run, e.position.in_(some)))
            examples |= {row.position: (row.dataset, loads(row.id)) for row in found}
    told = {
        (names.get(place.arm), *examples[place.position], place.trial): {
            name: value for name, value in (("tags", list(remark.tags)), ("note", remark.text)) if value
        }
        for place, remark in written.items()
    }
    return lambda row: told.get((row.system, row.dataset, row.example_id, row.trial), {})


# --- purging


def purge_deleted(store: Store, *, dry_run: bool = False) -> list[str]:
    """Remove the runs that are marked as deleted, as `purge` does; returns their names."""
    marked = [run for run in list_runs(store, deleted=True) if run.status != RUNNING]
    if marked and not dry_run:
        _remove(store, [run.number for run in marked], [], marked=True)
        store.database.shrink(store.engine)
    return [run.name for run in marked]


def purge(store: Store, *, older_than: float, dry_run: bool = False, clock: Clock = SYSTEM_CLOCK) -> list[str]:
    """Remove runs, and what families keep beside them (watches), not touched for `older_than` seconds, with all that no
    other one uses; returns their names. Replies of judges go when they are as old.

    A file shrinks where no other process has it open; a server keeps the space for what comes next. Raises
    `StoreUnusable` while a run is being worked on.
    """
    if not older_than >= 0:
        raise BadInput(f"age {older_than} is not a number of seconds ≥ 0")
    every = [*list_runs(store), *list_runs(store, deleted=True)]
    old = [run for run in every if run.updated < clock.now() - older_than and run.status != RUNNING]
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
    for row in connection.execute(select(schema.runs).where(schema.runs.c.status == RUNNING)):
        if busy(row):
            raise StoreUnusable(f"run {row.name!r} is being worked on; purge {store.name} when it has ended")


def _forget(store: Store, before: float) -> None:
    """Remembered replies need no run, and no run needs them."""
    with store.writing() as connection:
        connection.execute(delete(schema.replies).where(schema.replies.c.created < before))


def _remove(
    store: Store, numbers: list[int], others: list[tuple[Kept, Mapping[int, str]]], *, marked: bool = False
) -> None:
    """`marked`: only those that are still marked as deleted."""
    s = schema
    with store.writing() as connection:
        store.database.alone(connection, purging=True)
        _refuse_busy(store, connection)
        for kept, found in others:
            kept.remove(connection, list(found))
        if marked:
            still = s.runs.c.number.in_(numbers) & s.runs.c.deleted.is_not(None)
            numbers = list(connection.scalars(select(s.runs.c.number).where(still)))
        for table in (s.plan, s.examples, s.sources, s.arms, s.run_evaluators, s.pens, s.row_notes):
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
