"""Copying a run: it is begun, goes on where it was, and is whole at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, select, update

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.tokens import utf8_safe
from context_bench.engine.store import schema
from context_bench.engine.store.copying.order import Order, Piece
from context_bench.engine.store.copying.rows import Values, add, all_of
from context_bench.engine.store.copying.writing import RowWriter
from context_bench.engine.store.encoding import dumps, pack, unpacked
from context_bench.engine.store.postgres import StoreLost
from context_bench.engine.store.store import COPYING, INTERRUPTED, RUNNING, TRIES, Store, process_mark, run_of, worked_on

_r, _o, _p = schema.runs.c, schema.outputs.c, schema.plan.c


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of it: `rows` answers, `calls` and `bodies` written now; `there`: it was all there already."""

    name: str
    rows: int = 0
    calls: int = 0
    bodies: int = 0
    there: bool = False


def copy_run(source: Store, target: Store, run: str, *, name: str | None = None) -> Copied:
    """Copy a run (id or name) of `source` into `target`, under its own name unless another is given.

    A copy that is there and says the same is left as it is; one whose original has moved on since is replaced. Raises `BadInput` where
    the name is another run's there, or the copy was worked on in its new place; `StoreUnusable` while the original is being worked on.
    """
    number = run_of(source, run).number
    with source.reading() as connection:
        row = connection.execute(select(schema.runs).where(_r.number == number)).one()
    if row.status == RUNNING and worked_on(row.id, row.owner, row.updated, SYSTEM_CLOCK):
        raise StoreUnusable(f"run {row.name!r} is being worked on; copy it when it has ended")
    copy = _Copy(source, target, row, utf8_safe(name) if name is not None else row.name)
    return copy.carry_out()


@dataclass
class _Copy:
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
        self.order = Order(self.source, self.run.number, self.writer)

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
        state = {**self.state, "after": piece[0]} if piece else {**self.state, "step": self.state["step"] + 1, "after": None}
        try:
            with self.target.writing(durable=False) as connection:
                if piece is not None:
                    piece[1](connection)
                state["makers"] = self.writer.makers
                written = update(schema.runs).where(_r.number == self.number, _r.manifest == before)
                told = written.values(manifest=pack(dumps(state)), updated=SYSTEM_CLOCK.now(), owner=process_mark())
                if connection.execute(told).rowcount != 1:
                    raise StoreUnusable(f"another process copies run {self.run.name!r} to {self.target.name}; wait for it")
        except BaseException:  # what was met in the transaction is not there
            self.writer.forget()
            raise
        self.state = state

    @property
    def _seal(self) -> str:
        """What the original is now: it may have been judged again or gone on since."""
        told = [self.run.id, self._status, self.run.identity, self.run.updated, self.run.manifest.hex(), self.run.counts.hex()]
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
                raise BadInput(f"{self.target.name} has another run named {self.name!r}; give the copy a name of its own with --as NAME")
            if found is not None and found.status != COPYING and self._is_whole(found):
                return True
            state: Values = {"seal": self._seal, "step": 0, "after": None, "makers": {}}
            if found is not None and found.status == COPYING and (known := unpacked(found.manifest, {})).get("seal") == self._seal:
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
                f"run {found.name!r} in {self.target.name} is the same run, later: it was worked on there and is not overwritten"
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
        if now is None or now.manifest != self.run.manifest or now.counts != self.run.counts or now.updated != self.run.updated:
            raise StoreUnusable(f"run {self.run.name!r} changed while it was copied; the same command copies it as it is now")
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
