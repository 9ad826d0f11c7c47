"""Copy runs, watches and replies of judges from one store to another, whatever databases they are in.

A copy holds all that reports show and what a resume needs. It is made piece by piece. Each piece is a transaction that
also says how far the copy got, so a killed copy goes on where it was. Until it is whole it has a name that no run and
no watch has, so nobody takes it for one. Bodies are copied as they are packed, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.machine import SYSTEM_CLOCK, process_mark, quoted, still_alive
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import dumps, pack, unpacked
from context_bench.engine.store import TRIES, Store, schema
from context_bench.engine.store.copied_rows import RowCopier, Values, all_of, page, place
from context_bench.engine.store.dialects import insert_one, put
from context_bench.engine.store.postgresql import StoreLost
from context_bench.engine.store.run_records import (
    COPYING,
    INTERRUPTED,
    RUNNING,
    run_of,
    worked_on,
)
from context_bench.engine.store.watches import watch_of

_r, _o, _p = schema.runs.c, schema.outputs.c, schema.plan.c
_w, _t = schema.watches.c, schema.watched.c

#: Tables in the order in which a run's rows are copied. Of calls and forwarded requests, those of no output: the others
#: go with their output.
_ORDER = (schema.examples, schema.setups, schema.outputs, schema.calls, schema.forwarded, schema.plan)


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy: `rows` answers, `calls` and `bodies` written now; `there`: it was all there already."""

    name: str
    rows: int = 0
    calls: int = 0
    bodies: int = 0
    there: bool = False


def copy_run(source: Store, target: Store, run: str, *, name: str | None = None) -> Copied:
    """Copy a run (id or name) of `source` into `target`, under its own name unless another is given.

    A copy that is there and says the same is left as it is; one whose original has moved on since is replaced. Raises
    `BadInput` where the name is another run's there, or the copy was worked on in its new place; `StoreUnusable` while
    the original is being worked on.
    """
    number = run_of(source, run).number
    with source.reading() as connection:
        row = connection.execute(select(schema.runs).where(_r.number == number)).one()
    if row.status == RUNNING and worked_on(row.id, row.owner, row.updated, SYSTEM_CLOCK):
        raise StoreUnusable(f"run {row.name!r} is being worked on; copy it when it has ended")
    return _RunCopy(source, target, row, utf8_safe(name) if name is not None else row.name).carry_out()


@dataclass
class _RunCopy:
    """One run on its way. `state`: how far it got, as the new store has it; `number`: of the run there."""

    source: Store
    target: Store
    run: Row[Any]
    name: str
    number: int = -1
    state: Values = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)  # before the piece on its way

    def __post_init__(self) -> None:
        self.copier = RowCopier(self.source, self.target, self.run.number, self.run.id)

    def carry_out(self) -> Copied:
        """Begin or go on, to the end."""
        if self.target.insist(self._begin):
            return Copied(self.name, there=True)
        lost = 0
        while self.state["step"] < len(_ORDER):
            try:
                self._copy_piece()
                lost = 0
            except StoreLost:
                lost += 1
                if lost == TRIES:
                    raise
                before, tried = self.state, dict(self.copier.counts)
                self.copier.counts = self._counted
                self.target.insist(self._begin)
                if self.state != before:  # it was made, only its answer was lost
                    self.copier.counts, lost = tried, 0
        self.target.insist(self._end)
        rows, calls, bodies = self.copier.counts.values()
        return Copied(self.name, rows, calls, bodies)

    def _copy_piece(self) -> None:
        """The next rows of a table, or on to the next table."""
        table = _ORDER[self.state["step"]]
        which = [table.c.run == self.run.number]
        if table in (schema.calls, schema.forwarded):
            which.append(table.c.output.is_(None))
        rows = page(self.source, table, *which, after=self.state["after"])
        before, self._counted = pack(dumps(self.state)), dict(self.copier.counts)
        reached = {"after": place(table, rows[-1])} if rows else {"step": self.state["step"] + 1, "after": None}
        try:
            with self.target.writing(durable=False) as connection:
                self.copier.write(connection, table, rows)
                state = {**self.state, **reached, "makers": self.copier.makers}
                mine = update(schema.runs).where(_r.number == self.number, _r.manifest == before)
                values = {"manifest": pack(dumps(state)), "updated": SYSTEM_CLOCK.now(), "owner": process_mark()}
                if connection.execute(mine.values(values)).rowcount != 1:
                    raise StoreUnusable(
                        f"another process copies run {self.run.name!r} to {self.target.name}; wait for it"
                    )
        except BaseException:  # what was met in the transaction is not there
            self.copier.forget()
            raise
        self.state = state

    @property
    def _seal(self) -> str:
        """The present state of the original: it may have been judged again or gone on since."""
        run = self.run
        parts = ["places", run.id, self._status, run.identity, run.updated, run.manifest.hex(), run.counts.hex()]
        return hash_text(dumps(parts).decode())

    @property
    def _status(self) -> str:
        return INTERRUPTED if self.run.status == RUNNING else str(self.run.status)

    def _begin(self) -> bool:
        """Make the run there, or take a copy up that was broken off; true if all of it is there."""
        with self.target.writing() as connection:
            self.target.database.alone(connection)
            there = connection.execute(select(schema.runs).where(_r.id == self.run.id)).first()
            taken = connection.scalar(select(_r.id).where(_r.name == self.name, _r.id != self.run.id))
            if taken is not None:
                raise BadInput(
                    f"{self.target.name} has another run named {self.name!r}; give the copy a name of its own with "
                    "--as NAME"
                )
            if there is not None and there.deleted is not None:
                raise BadInput(
                    f"run {there.name!r} is marked as deleted in {self.target.name}; restore it there in "
                    f"`context-bench view --edit --store {quoted(self.target.name)}`, or remove it with `context-bench "
                    f"purge --deleted --store {quoted(self.target.name)}`"
                )
            if there is not None and there.status != COPYING and self._is_whole(there):
                return True
            self.state = {"seal": self._seal, "step": 0, "after": None, "makers": {}}
            begun = unpacked(there.manifest, {}) if there is not None and there.status == COPYING else {}
            if begun.get("seal") == self._seal:
                self.state = begun
            elif there is not None:
                self._forget(connection, there.number)
            self.number = self._make(connection, there)
            self.copier.begin(self.number, self.state["makers"])
        return False

    def _is_whole(self, there: Row[Any]) -> bool:
        """Does the copy say what the original says? If it was worked on where it is now, it is no copy any more."""
        facts = ("identity", "updated", "manifest")
        same = all(getattr(there, name) == getattr(self.run, name) for name in facts)
        if there.status == self._status and same and _counted(there) == _counted(self.run):
            if there.name != self.name:
                raise BadInput(f"{self.target.name} has this very run under the name {there.name!r}")
            return True
        if there.updated > self.run.updated:
            raise BadInput(
                f"run {there.name!r} in {self.target.name} is the same run, later: it was worked on there and is not "
                "overwritten"
            )
        return False

    def _make(self, connection: Connection, there: Row[Any] | None) -> int:
        """The number of the run's row there, which does not have its name yet."""
        values = {
            "name": f"{COPYING}:{self.run.id}",
            "status": COPYING,
            "identity": f"{COPYING}:{self.run.id}",
            "created": self.run.created,
            "updated": SYSTEM_CLOCK.now(),
            "owner": process_mark(),
            "manifest": pack(dumps(self.state)),
            "counts": pack(dumps({})),
        }
        if there is None:
            return insert_one(connection, schema.runs, {"id": self.run.id, **values})
        connection.execute(update(schema.runs).where(_r.number == there.number).values(values))
        return int(there.number)

    def _forget(self, connection: Connection, number: int) -> None:
        """Take away what a copy of an earlier state holds; outputs that other runs use stay, and are found again."""
        for table in schema.metadata.sorted_tables:
            if "run" in table.c and table not in (schema.outputs, schema.pens, schema.row_notes):
                connection.execute(delete(table).where(table.c.run == number))
        used = select(_p.output).where(_p.output.is_not(None))
        gone = select(_o.id).where(_o.run == number, _o.id.not_in(used))
        connection.execute(delete(schema.scores).where(schema.scores.c.output.in_(gone)))
        connection.execute(delete(schema.outputs).where(_o.run == number, _o.id.not_in(used)))

    def _end(self) -> None:
        """Arms and evaluators, and the run's own name: now it is one."""
        lists = (schema.arms, schema.run_evaluators, schema.row_notes)
        with self.source.reading() as connection:
            now = connection.execute(select(schema.runs).where(_r.number == self.run.number)).first()
            listed = [all_of(connection, select(table).where(table.c.run == self.run.number)) for table in lists]
        facts = itemgetter("manifest", "counts", "updated")
        if now is None or facts(now._mapping) != facts(self.run._mapping):
            raise StoreUnusable(
                f"run {self.run.name!r} changed while it was copied; the same command copies it as it is now"
            )
        self.copier.forget()
        with self.target.writing() as connection:
            for table, rows in zip(lists[:2], listed[:2], strict=True):
                connection.execute(delete(table).where(table.c.run == self.number))
                self.copier.write(connection, table, rows)
            self._write_remarks(connection, listed[2])
            whole = {name: getattr(self.run, name) for name in ("identity", "created", "updated", "manifest", "counts")}
            named = update(schema.runs).where(_r.number == self.number, _r.status == COPYING)
            connection.execute(named.values(name=self.name, status=self._status, owner=None, **whole))

    def _write_remarks(self, connection: Connection, notes: list[Values]) -> None:
        """Title, tags and notes of people; those that the copy has already are its own and stay."""
        n = schema.row_notes.c
        key = (n.arm, n.position, n.trial)
        own = {tuple(row) for row in connection.execute(select(*key).where(n.run == self.number))}
        new = [row for row in notes if tuple(row[column.name] for column in key) not in own]
        self.copier.write(connection, schema.row_notes, new)
        here = update(schema.runs).where(_r.number == self.number, _r.title.is_(None), _r.tags.is_(None))
        connection.execute(here.values(title=self.run.title, tags=self.run.tags))


def _counted(run: Row[Any]) -> dict[str, Any]:
    """Counts of a run; a summary and a page follow from it, and either side may have made them."""
    counts: dict[str, Any] = unpacked(run.counts, {})
    stored = {name: value for name, value in (counts.get("stored") or {}).items() if name != "page"}
    return {**counts, "stored": {**stored, "summary": None}}


@dataclass(frozen=True, slots=True)
class CopiedWatch:
    """Result of a copy: `records` written now; `there`: it was all there already."""

    name: str
    records: int = 0
    there: bool = False


def copy_watch(source: Store, target: Store, watch: str, *, name: str | None = None) -> CopiedWatch:
    """Copy a watch (by name, or `last`) of `source` into `target`, under its own name unless another is given.

    A watch that is over never changes: one of the same beginning there is this one, and what it has of it is not copied
    again. Raises `BadInput` where the name is another watch's there, `StoreUnusable` while the original is going on.
    """
    number = watch_of(source, watch).number
    with source.reading() as connection:
        row = connection.execute(select(schema.watches).where(_w.number == number)).one()
    if row.status == RUNNING and still_alive(row.owner, row.updated, SYSTEM_CLOCK):
        raise StoreUnusable(f"watch {row.name!r} is going on; copy it when it has ended")
    return _WatchCopy(source, target, row, utf8_safe(name) if name is not None else row.name).carry_out()


class _WatchCopy:
    """One watch on its way. Its records there say how far it got."""

    def __init__(self, source: Store, target: Store, watch: Row[Any], name: str) -> None:
        self.source, self.target, self.watch, self.name = source, target, watch, name
        self.copier = RowCopier(source, target)
        self.number = self.records = 0

    def carry_out(self) -> CopiedWatch:
        """Begin or go on, to the end."""
        if self.target.insist(self._begin):
            return CopiedWatch(self.name, there=True)
        before = self.records
        while self.target.insist(self._copy_piece):
            pass
        self.target.insist(self._end)
        return CopiedWatch(self.name, self.records - before)

    def _begin(self) -> bool:
        """Make the watch there, or take a copy up that was broken off; true if all of it is there."""
        hidden = f"{COPYING}:{self.watch.created!r}:{self.watch.name}"
        with self.target.writing() as connection:
            self.target.database.alone(connection)
            named = connection.execute(select(schema.watches).where(_w.name == self.name)).first()
            if named is not None:
                if named.created == self.watch.created and named.settings == self.watch.settings:
                    return True
                raise BadInput(
                    f"{self.target.name} has another watch named {self.name!r}; give the copy a name of its own with "
                    "--as NAME"
                )
            begun = connection.scalar(select(_w.number).where(_w.name == hidden))
            if begun is None:
                values = {name: getattr(self.watch, name) for name in ("created", "updated", "settings")}
                begun = insert_one(
                    connection, schema.watches, {"name": hidden, "status": COPYING, "owner": process_mark(), **values}
                )
            self.number = begun
            self.copier.numbers["watches"] = {self.watch.number: begun}
            self.records = self._there(connection)[0]
        return False

    def _there(self, connection: Connection) -> tuple[int, int]:
        """The number of records there, and the number of the last."""
        counted = select(func.count(), func.coalesce(func.max(_t.number), 0)).where(_t.watch == self.number)
        records, last = connection.execute(counted).one()
        return int(records), int(last)

    def _copy_piece(self) -> bool:
        """The next records, after the last that is there; false if there are none."""
        with self.target.writing(durable=False) as connection:
            self.target.database.alone(connection)
            self.records, last = self._there(connection)
            rows = page(self.source, schema.watched, _t.watch == self.watch.number, after=[last])
            if not rows:
                return False
            b = schema.watched_bodies.c
            span = b.number.between(rows[0]["number"], rows[-1]["number"])
            with self.source.reading() as reading:
                kept = select(schema.watched_bodies).where(b.watch == self.watch.number, span)
                bodies = all_of(reading, kept.order_by(b.number, b.place))
            self.copier.write(connection, schema.watched, rows)
            self.copier.write(connection, schema.watched_bodies, bodies)
        return True

    def _end(self) -> None:
        """Its own name: now it is one."""
        status = INTERRUPTED if self.watch.status == RUNNING else self.watch.status
        with self.target.writing() as connection:
            named = update(schema.watches).where(_w.number == self.number, _w.status == COPYING)
            connection.execute(named.values(name=self.name, status=status, owner=None))


def copy_replies(source: Store, target: Store) -> int:
    """Bring over every remembered reply that is not there, or is older there; returns how many these were.

    What is there already is passed over, so a copy that was broken off goes on with what is missing.
    """
    copied, after = 0, None
    while rows := page(source, schema.replies, after=after):
        copied += _write_replies(target, rows)
        after = place(schema.replies, rows[-1])
    return copied


def _write_replies(target: Store, rows: list[Values]) -> int:
    """Write those that are missing or newer; returns how many, even if the answer to a commit was lost and it is tried
    again.
    """
    r = schema.replies.c
    new: dict[bytes, Values] = {}

    def work() -> None:
        with target.writing(durable=False) as connection:
            times = select(r.key, r.created).where(r.key.in_([row["key"] for row in rows]))
            there = {row.key: row.created for row in connection.execute(times)}
            missing = [row for row in rows if row["key"] not in there or there[row["key"]] < row["created"]]
            new.update((row["key"], row) for row in missing)
            put(connection, schema.replies, tuple(r.keys()), [tuple(row.values()) for row in missing])

    target.insist(work)
    return len(new)
