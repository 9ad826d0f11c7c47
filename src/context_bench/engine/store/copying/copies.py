"""Copy a run, a watch or the replies of judges, piece by piece; a copy that was cut off goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, delete, func, select, tuple_, update

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import dumps, pack, unpacked
from context_bench.engine.store import schema
from context_bench.engine.store.copying import transfer as shared
from context_bench.engine.store.copying.transfer import RowWriter, Values, add, all_of, copy_bodies
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.postgresql import StoreLost
from context_bench.engine.store.store import (
    COPYING,
    INTERRUPTED,
    RUNNING,
    TRIES,
    Store,
    process_mark,
    run_of,
    still_alive,
    worked_on,
)
from context_bench.engine.store.watches import watch_of

_o, _p, _e = schema.outputs.c, schema.plan.c, schema.examples.c

#: How far the step is then, and what writes the piece.
Piece = tuple[Any, Callable[[Connection], None]]


class CopyOrder:
    """The steps of a run's copy. Each is asked with how far it got (`None`: not begun) and gives the next piece, or
    `None` at its end.
    """

    def __init__(self, source: Store, run: int, writer: RowWriter) -> None:
        self.source, self.run, self.writer = source, run, writer
        self.steps: tuple[Callable[[Any], Piece | None], ...] = (
            self._examples,
            self._own_setups,
            self._own_outputs,
            self._loose_calls,
            self._loose_records,
            self._plan,
        )

    def _examples(self, after: Any) -> Piece | None:
        rows = self._read(schema.examples, _e.run == self.run, _e.position, after)

        def write(connection: Connection) -> None:
            self.writer.bodies(connection, [row["body"] for row in rows])
            add(connection, schema.examples, [{**row, "run": self.writer.number} for row in rows])

        return (rows[-1]["position"], write) if rows else None

    def _own_setups(self, after: Any) -> Piece | None:
        rows = self._read(schema.setups, schema.setups.c.run == self.run, schema.setups.c.id, after)
        return (rows[-1]["id"], lambda connection: self.writer.setups(connection, rows)) if rows else None

    def _own_outputs(self, after: Any) -> Piece | None:
        rows = self._read(schema.outputs, _o.run == self.run, _o.id, after)
        return (rows[-1]["id"], lambda connection: self.writer.outputs(connection, rows)) if rows else None

    def _loose_calls(self, after: Any) -> Piece | None:
        """Calls of set-ups, of no row, and of work that was cut off."""
        return self._loose(schema.calls, self.writer.calls, after)

    def _loose_records(self, after: Any) -> Piece | None:
        """Requests that the tap saw of set-ups, and of nobody."""
        return self._loose(schema.forwarded, self.writer.forwarded, after)

    def _loose(
        self, table: Table, write: Callable[[Connection, list[Values], Mapping[int, int]], None], after: Any
    ) -> Piece | None:
        rows = self._read(table, and_(table.c.run == self.run, table.c.output.is_(None)), table.c.id, after)
        return (rows[-1]["id"], lambda connection: write(connection, rows, {})) if rows else None

    def _plan(self, after: Any) -> Piece | None:
        """The plan, and with it the answers that were taken from other runs."""
        place = tuple_(_p.arm, _p.position, _p.trial)
        query = select(schema.plan, _o.key, _o.run.label("maker")).select_from(
            schema.plan.outerjoin(schema.outputs, _p.output == _o.id)
        )
        query = query.where(_p.run == self.run).order_by(_p.arm, _p.position, _p.trial).limit(shared.ROWS)
        if after is not None:
            query = query.where(place > tuple_(*after))
        with self.source.reading() as connection:
            rows = all_of(connection, query)
            foreign = {row["output"] for row in rows if row["output"] is not None and row["maker"] != self.run}
            others = (
                all_of(connection, select(schema.outputs).where(_o.id.in_(foreign)).order_by(_o.id)) if foreign else []
            )
        if not rows:
            return None

        def write(connection: Connection) -> None:
            self.writer.outputs(connection, others)
            ids = self.writer.ids_of(connection, [row for row in rows if row["key"] is not None])
            planned = ({**row, "output": ids.get((row["key"], row["maker"]))} for row in rows)
            add(connection, schema.plan, [{**row, "run": self.writer.number} for row in map(_without_join, planned)])

        return [rows[-1]["arm"], rows[-1]["position"], rows[-1]["trial"]], write

    def _read(self, table: Table, which: Any, column: Any, after: Any) -> list[Values]:
        """The next rows of the original in the order of `column`."""
        query = select(table).where(which).order_by(column).limit(shared.ROWS)
        with self.source.reading() as connection:
            return all_of(connection, query if after is None else query.where(column > after))


def _without_join(row: Values) -> Values:
    return {name: value for name, value in row.items() if name not in ("key", "maker")}


_r = schema.runs.c


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
    copy = _RunCopy(source, target, row, utf8_safe(name) if name is not None else row.name)
    return copy.carry_out()


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
        self.writer = RowWriter(self.source, self.target, self.run.number, self.run.id)
        self.order = CopyOrder(self.source, self.run.number, self.writer)

    def carry_out(self) -> Copied:
        """Begin or go on, to the end."""
        if self.target.insist(self._begin):
            return Copied(self.name, there=True)
        lost = 0
        while (at := self.state["step"]) < len(self.order.steps):
            try:
                self._one(self.order.steps[at])
                lost = 0
            except StoreLost:
                lost += 1
                if lost == TRIES:
                    raise
                known, tried = self.state, dict(self.writer.counts)
                self.writer.counts = self._counted
                self.target.insist(self._begin)
                if self.state != known:  # it was made, only its answer was lost
                    self.writer.counts, lost = tried, 0
        self.target.insist(self._end)
        counts = self.writer.counts
        return Copied(self.name, counts["rows"], counts["calls"], counts["bodies"])

    def _one(self, step: Callable[[Any], Piece | None]) -> None:
        """The next piece of a step, or on to the next step."""
        piece = step(self.state["after"])
        before, self._counted = pack(dumps(self.state)), dict(self.writer.counts)
        state = (
            {**self.state, "after": piece[0]}
            if piece
            else {**self.state, "step": self.state["step"] + 1, "after": None}
        )
        try:
            with self.target.writing(durable=False) as connection:
                if piece is not None:
                    piece[1](connection)
                state["makers"] = self.writer.makers
                written = update(schema.runs).where(_r.number == self.number, _r.manifest == before)
                told = written.values(manifest=pack(dumps(state)), updated=SYSTEM_CLOCK.now(), owner=process_mark())
                if connection.execute(told).rowcount != 1:
                    raise StoreUnusable(
                        f"another process copies run {self.run.name!r} to {self.target.name}; wait for it"
                    )
        except BaseException:  # what was met in the transaction is not there
            self.writer.forget()
            raise
        self.state = state

    @property
    def _seal(self) -> str:
        """The present state of the original: it may have been judged again or gone on since."""
        told = [
            self.run.id,
            self._status,
            self.run.identity,
            self.run.updated,
            self.run.manifest.hex(),
            self.run.counts.hex(),
        ]
        return hash_text(dumps(told).decode())

    @property
    def _status(self) -> str:
        return INTERRUPTED if self.run.status == RUNNING else str(self.run.status)

    def _begin(self) -> bool:
        """Make the run there, or take a copy up that was broken off; true if all of it is there."""
        with self.target.writing() as connection:
            self.target.database.alone(connection)
            found = connection.execute(select(schema.runs).where(_r.id == self.run.id)).first()
            taken = connection.scalar(select(_r.id).where(_r.name == self.name, _r.id != self.run.id))
            if taken is not None:
                raise BadInput(
                    f"{self.target.name} has another run named {self.name!r}; give the copy a name of its own with "
                    "--as NAME"
                )
            if found is not None and found.status != COPYING and self._is_whole(found):
                return True
            state: Values = {"seal": self._seal, "step": 0, "after": None, "makers": {}}
            if (
                found is not None
                and found.status == COPYING
                and (known := unpacked(found.manifest, {})).get("seal") == self._seal
            ):
                state = known
            elif found is not None:
                self._forget(connection, found.number)
            self.number, self.state = self._made(connection, found, state), state
            self.writer.number, self.writer.makers = self.number, dict(state["makers"])
        return False

    def _is_whole(self, found: Row[Any]) -> bool:
        """Does the copy say what the original says? If it was worked on where it is now, it is no copy any more."""
        told = ("identity", "updated", "manifest", "counts")
        if found.status == self._status and all(getattr(found, name) == getattr(self.run, name) for name in told):
            if found.name != self.name:
                raise BadInput(f"{self.target.name} has this very run under the name {found.name!r}")
            return True
        if found.updated > self.run.updated:
            raise BadInput(
                f"run {found.name!r} in {self.target.name} is the same run, later: it was worked on there and is not "
                "overwritten"
            )
        return False

    def _made(self, connection: Connection, found: Row[Any] | None, state: Values) -> int:
        """The run's row there, not yet under its name; with its arms."""
        values = {
            "name": f"{COPYING}:{self.run.id}",
            "status": COPYING,
            "identity": f"{COPYING}:{self.run.id}",
            "created": self.run.created,
            "updated": SYSTEM_CLOCK.now(),
            "owner": process_mark(),
            "manifest": pack(dumps(state)),
            "counts": pack(dumps({})),
        }
        if found is not None:
            connection.execute(update(schema.runs).where(_r.number == found.number).values(values))
            return int(found.number)
        made = connection.execute(schema.runs.insert().values(id=self.run.id, **values)).inserted_primary_key
        assert made is not None
        return int(made[0])

    def _forget(self, connection: Connection, number: int) -> None:
        """Take away what a copy of an earlier state holds; outputs that other runs use stay, and are found again."""
        s = schema
        for table in (s.plan, s.examples, s.sources, s.arms, s.run_evaluators, s.calls, s.forwarded, s.setups):
            connection.execute(delete(table).where(table.c.run == number))
        used = select(_p.output).where(_p.output.is_not(None))
        gone = select(_o.id).where(_o.run == number, _o.id.not_in(used))
        connection.execute(delete(s.scores).where(s.scores.c.output.in_(gone)))
        connection.execute(delete(s.outputs).where(_o.run == number, _o.id.not_in(used)))

    def _end(self) -> None:
        """Arms and evaluators, and the run's own name: now it is one."""
        links = schema.run_evaluators
        with self.source.reading() as connection:
            now = connection.execute(select(schema.runs).where(_r.number == self.run.number)).first()
            arms = _of_run(connection, schema.arms, self.run.number)
            evaluators = _of_run(connection, links, self.run.number)
        if (
            now is None
            or now.manifest != self.run.manifest
            or now.counts != self.run.counts
            or now.updated != self.run.updated
        ):
            raise StoreUnusable(
                f"run {self.run.name!r} changed while it was copied; the same command copies it as it is now"
            )
        self.writer.forget()
        with self.target.writing() as connection:
            for table, rows in ((schema.arms, arms), (links, evaluators)):
                connection.execute(delete(table).where(table.c.run == self.number))
                if table is links:
                    known = self.writer.evaluators(connection, [row["evaluator"] for row in rows])
                    rows = [{**row, "evaluator": known[row["evaluator"]]} for row in rows]
                add(connection, table, [{**row, "run": self.number} for row in rows])
            whole = {name: getattr(self.run, name) for name in ("identity", "created", "updated", "manifest", "counts")}
            told = update(schema.runs).where(_r.number == self.number, _r.status == COPYING)
            connection.execute(told.values(name=self.name, status=self._status, owner=None, **whole))


def _of_run(connection: Connection, table: Table, number: int) -> list[Values]:
    return all_of(connection, select(table).where(table.c.run == number))


_w, _t = schema.watches.c, schema.watched.c


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
                raise BadInput(
                    f"{self.target.name} has another watch named {self.name!r}; give the copy a name of its own with "
                    "--as NAME"
                )
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
        """The number of records there, and the number of the last."""
        row = connection.execute(
            select(func.count(), func.coalesce(func.max(_t.number), 0)).where(_t.watch == self.number)
        ).one()
        return int(row[0]), int(row[1])

    def _one(self) -> bool:
        """The next records, after the last that is there; false if there are none."""
        with self.target.writing(durable=False) as connection:
            self.target.database.alone(connection)
            self.records, after = self._there(connection)
            with self.source.reading() as reading:
                query = (
                    select(schema.watched)
                    .where(_t.watch == self.watch.number, _t.number > after)
                    .order_by(_t.number)
                    .limit(shared.ROWS)
                )
                found = all_of(reading, query)
                if not found:
                    return False
                b = schema.watched_bodies
                span = b.c.number.between(found[0]["number"], found[-1]["number"])
                kept = all_of(
                    reading, select(b).where(b.c.watch == self.watch.number, span).order_by(b.c.number, b.c.place)
                )
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


def copy_replies(source: Store, target: Store) -> int:
    """Bring over every remembered reply that is not there, or is older there; returns how many these were.

    What is there already is passed over, so a copy that was broken off goes on with what is missing.
    """
    copied, after = 0, b""
    while True:
        rows = _next(source, after)
        if not rows:
            return copied
        copied += _written(target, rows)
        after = rows[-1]["key"]


def _next(source: Store, after: bytes) -> list[Values]:
    """The next replies in the order of their keys."""
    key = schema.replies.c.key
    with source.reading() as connection:
        return all_of(connection, select(schema.replies).where(key > after).order_by(key).limit(shared.ROWS))


def _written(target: Store, rows: list[Values]) -> int:
    """Write those that are missing or newer; the number is right even if the answer to a commit was lost and it is
    tried again.
    """
    r = schema.replies.c
    new: dict[bytes, Values] = {}

    def work() -> None:
        with target.writing(durable=False) as connection:
            there = {
                row.key: row.created
                for row in connection.execute(select(r.key, r.created).where(r.key.in_([row["key"] for row in rows])))
            }
            found = [row for row in rows if row["key"] not in there or there[row["key"]] < row["created"]]
            new.update((row["key"], row) for row in found)
            if found:
                adding = insert(connection, schema.replies)
                newer = {name: adding.excluded[name] for name in ("created", "reply")}
                connection.execute(adding.on_conflict_do_update(index_elements=["key"], set_=newer), found)

    target.insist(work)
    return len(new)
