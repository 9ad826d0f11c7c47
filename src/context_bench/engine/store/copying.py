"""Copying a run from one store to another, whatever databases they are in: all that its reports show, and what a resume needs.

The copy is made piece by piece, each a transaction that also says how far it got, so that a killed copy goes on where it was. Until it
is whole it has a name and an identity that no run has, so nobody takes it for one. Numbers of runs, outputs, set-ups, evaluators and
endpoints are the new store's own; what they stand for is found by keys. Bodies are copied as they are packed, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, delete, func, or_, select, tuple_, update

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.tokens import utf8_safe
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.encoding import dumps, pack, unpacked
from context_bench.engine.store.postgres import StoreLost
from context_bench.engine.store.store import COPYING, INTERRUPTED, RUNNING, TRIES, Store, process_mark, run_of, worked_on

#: Rows of one transaction, and bytes of bodies that are held at once.
_ROWS, _BYTES = 200, 8_000_000

_r, _o, _p, _e = schema.runs.c, schema.outputs.c, schema.plan.c, schema.examples.c
Values = dict[str, Any]


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
    counts: dict[str, int] = field(default_factory=lambda: {"rows": 0, "calls": 0, "bodies": 0})
    _evaluators: dict[int, int] = field(default_factory=dict)
    _endpoints: dict[int, int] = field(default_factory=dict)
    _setups: dict[int, int] = field(default_factory=dict)

    def carry_out(self) -> Copied:
        """Begin or go on, to the end."""
        if self.target.insist(self._begin):
            return Copied(self.name, there=True)
        steps = (self._examples, self._own_setups, self._own_outputs, self._loose_calls, self._loose_records, self._plan)
        lost = 0
        while (at := self.state["step"]) < len(steps):
            try:
                self._one(steps[at])
                lost = 0
            except StoreLost:
                lost += 1
                if lost == TRIES:
                    raise
                known = self.state
                self.target.insist(self._begin)
                lost = lost if self.state == known else 0  # it was made, only its answer was lost
        self.target.insist(self._end)
        return Copied(self.name, self.counts["rows"], self.counts["calls"], self.counts["bodies"])

    def _one(self, step: Callable[[Any], tuple[Any, Callable[[Connection], None]] | None]) -> None:
        """The next piece of a step, or on to the next step."""
        piece = step(self.state["after"])
        kept, before, counted = self.state, pack(dumps(self.state)), dict(self.counts)
        state = {**self.state, "after": piece[0]} if piece else {**self.state, "step": self.state["step"] + 1, "after": None}
        try:
            with self.target.writing(durable=False) as connection:
                if piece is not None:
                    piece[1](connection)
                state["makers"] = self.state["makers"]
                written = update(schema.runs).where(_r.number == self.number, _r.manifest == before)
                told = written.values(manifest=pack(dumps(state)), updated=SYSTEM_CLOCK.now(), owner=process_mark())
                if connection.execute(told).rowcount != 1:
                    raise StoreUnusable(f"another process copies run {self.run.name!r} to {self.target.name}; wait for it")
        except BaseException:  # what was met in the transaction is not there
            self.state, self.counts = kept, counted
            for known in (self._evaluators, self._endpoints, self._setups):
                known.clear()
            raise
        self.state = state

    # --- beginning and ending ---

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
            state = {"seal": self._seal, "step": 0, "after": None, "makers": {}}
            if found is not None and found.status == COPYING and (known := unpacked(found.manifest, {})).get("seal") == self._seal:
                state = known
            elif found is not None:
                self._forget(connection, found.number)
            self.number, self.state = self._made(connection, found, state), state
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
        with self.target.writing() as connection:
            for table, rows in ((schema.arms, arms), (links, evaluators)):
                connection.execute(delete(table).where(table.c.run == self.number))
                if table is links:
                    self._meet_evaluators(connection, [row["evaluator"] for row in rows])
                    rows = [{**row, "evaluator": self._evaluators[row["evaluator"]]} for row in rows]
                _add(connection, table, [{**row, "run": self.number} for row in rows])
            whole = {name: getattr(self.run, name) for name in ("identity", "created", "updated", "manifest", "counts")}
            told = update(schema.runs).where(_r.number == self.number, _r.status == COPYING)
            connection.execute(told.values(name=self.name, status=self._status, owner=None, **whole))

    # --- what is copied, piece by piece: (how far it is then, what writes it), or nothing more ---

    def _examples(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        rows = self._read(schema.examples, _e.run == self.run.number, _e.position, after)

        def write(connection: Connection) -> None:
            self._bodies(connection, [row["body"] for row in rows])
            _add(connection, schema.examples, [{**row, "run": self.number} for row in rows])

        return (rows[-1]["position"], write) if rows else None

    def _own_setups(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        rows = self._read(schema.setups, schema.setups.c.run == self.run.number, schema.setups.c.id, after)
        return (rows[-1]["id"], lambda connection: self._write_setups(connection, rows)) if rows else None

    def _own_outputs(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        rows = self._read(schema.outputs, _o.run == self.run.number, _o.id, after)
        return (rows[-1]["id"], lambda connection: self._write_outputs(connection, rows)) if rows else None

    def _loose_calls(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        """Calls of set-ups, and of work that was cut off."""
        return self._loose(schema.calls, self._write_calls, after)

    def _loose_records(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        """Requests that the tap saw of set-ups, and of nobody."""
        return self._loose(schema.forwarded, self._write_forwarded, after)

    def _loose(
        self, table: Table, write: Callable[[Connection, list[Values], Mapping[int, int]], None], after: Any
    ) -> tuple[Any, Callable[[Connection], None]] | None:
        rows = self._read(table, and_(table.c.run == self.run.number, table.c.output.is_(None)), table.c.id, after)
        return (rows[-1]["id"], lambda connection: write(connection, rows, {})) if rows else None

    def _plan(self, after: Any) -> tuple[Any, Callable[[Connection], None]] | None:
        """The plan, and with it the answers that were taken from other runs."""
        place = tuple_(_p.arm, _p.position, _p.trial)
        query = select(schema.plan, _o.key, _o.run.label("maker")).select_from(schema.plan.outerjoin(schema.outputs, _p.output == _o.id))
        query = query.where(_p.run == self.run.number).order_by(_p.arm, _p.position, _p.trial).limit(_ROWS)
        if after is not None:
            query = query.where(place > tuple_(*after))
        with self.source.reading() as connection:
            rows = _all(connection, query)
            foreign = {row["output"] for row in rows if row["output"] is not None and row["maker"] != self.run.number}
            others = _all(connection, select(schema.outputs).where(_o.id.in_(foreign)).order_by(_o.id)) if foreign else []
        if not rows:
            return None

        def write(connection: Connection) -> None:
            self._write_outputs(connection, others)
            ids = self._output_ids(connection, [row for row in rows if row["key"] is not None])
            planned = ({**row, "output": ids.get((row["key"], row["maker"]))} for row in rows)
            _add(connection, schema.plan, [{**row, "run": self.number} for row in map(_without_join, planned)])

        return [rows[-1]["arm"], rows[-1]["position"], rows[-1]["trial"]], write

    def _read(self, table: Table, which: Any, column: Any, after: Any) -> list[Values]:
        """The next rows of the original in the order of `column`."""
        query = select(table).where(which).order_by(column).limit(_ROWS)
        with self.source.reading() as connection:
            return _all(connection, query if after is None else query.where(column > after))

    # --- writing ---

    def _maker(self, connection: Connection, number: int) -> int:
        """The number there of the run that made an output. Of one that is not there: a number that no run gets any more."""
        if number == self.run.number:
            return self.number
        makers: dict[str, int] = self.state["makers"]
        if str(number) not in makers:
            with self.source.reading() as reading:
                known = reading.scalar(select(_r.id).where(_r.number == number))
            there = connection.scalar(select(_r.number).where(_r.id == known, _r.status != COPYING)) if known is not None else None
            makers = {**makers, str(number): int(there) if there is not None else self._number_of_nobody(connection, number)}
            self.state = {**self.state, "makers": makers}
        return makers[str(number)]

    def _number_of_nobody(self, connection: Connection, number: int) -> int:
        name = f"{COPYING}:{self.run.id}:{number}"
        values = {"id": name, "name": name, "status": COPYING, "identity": name, "created": 0.0, "updated": 0.0, "owner": None}
        empty = pack(dumps({}))
        made = connection.execute(schema.runs.insert().values(**values, manifest=empty, counts=empty)).inserted_primary_key
        assert made is not None
        connection.execute(delete(schema.runs).where(_r.number == made[0]))
        return int(made[0])

    def _output_ids(self, connection: Connection, rows: Sequence[Values]) -> dict[tuple[bytes, int], int]:
        """(key, run of the original that made it) → the id there, for those that are there."""
        makers = {number: self._maker(connection, number) for number in {row["maker"] if "maker" in row else row["run"] for row in rows}}
        back = {there: here for here, there in makers.items()}
        keys = {row["key"] for row in rows}
        if not keys:
            return {}
        query = select(_o.id, _o.key, _o.run).where(_o.key.in_(keys), _o.run.in_(back))
        return {(row.key, back[row.run]): row.id for row in connection.execute(query)}

    def _write_outputs(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Outputs that are not there yet, with scores, calls and what the tap saw of them."""
        if not rows:
            return
        ids = self._output_ids(connection, rows)
        self._find_setups(connection, [row["setup"] for row in rows])
        new = [row for row in rows if (row["key"], row["run"]) not in ids]
        for row, number in zip(new, self.target.database.output_ids(connection, len(new)) if new else [], strict=True):
            ids[row["key"], row["run"]] = number
        told = {row["id"]: ids[row["key"], row["run"]] for row in rows}
        made = [{**row, "id": told[row["id"]], "run": self._maker(connection, row["run"]), "setup": self._setup(row)} for row in new]
        _add(connection, schema.outputs, made)
        self.counts["rows"] += len(new)
        self._write_scores(connection, told)
        fresh = {row["id"]: row["run"] for row in new}
        for table, write in ((schema.calls, self._write_calls), (schema.forwarded, self._write_forwarded)):
            for some in self._belonging(table, list(told), fresh):
                write(connection, some, told)

    def _belonging(self, table: Table, outputs: list[int], fresh: Mapping[int, int]) -> Iterator[list[Values]]:
        """What this run did for outputs, and for outputs that are new there what their own run did."""
        makers = set(fresh.values()) - {self.run.number}
        which = table.c.run == self.run.number
        if makers:
            which = or_(which, and_(table.c.run.in_(makers), table.c.output.in_(list(fresh))))
        after = -1
        while True:
            with self.source.reading() as reading:
                query = select(table).where(table.c.output.in_(outputs), which, table.c.id > after).order_by(table.c.id).limit(_ROWS)
                rows = _all(reading, query)
            if rows:
                yield rows
            if len(rows) < _ROWS:
                return
            after = rows[-1]["id"]

    def _write_scores(self, connection: Connection, told: Mapping[int, int]) -> None:
        s = schema.scores
        with self.source.reading() as reading:
            rows = _all(reading, select(s).where(s.c.output.in_(list(told))))
        self._meet_evaluators(connection, [row["evaluator"] for row in rows])
        made = [{**row, "output": told[row["output"]], "evaluator": self._evaluators[row["evaluator"]]} for row in rows]
        made.sort(key=lambda row: (row["output"], row["evaluator"]))
        if made:
            statement = insert(connection, s)
            changed = {name: statement.excluded[name] for name in ("values", "error", "usage")}
            connection.execute(statement.on_conflict_do_update(index_elements=["output", "evaluator"], set_=changed), made)

    def _write_calls(self, connection: Connection, rows: list[Values], told: Mapping[int, int]) -> None:
        self._meet_endpoints(connection, [row["endpoint"] for row in rows])
        self._meet_evaluators(connection, [row["evaluator"] for row in rows if row["evaluator"] is not None])
        self.counts["calls"] += len(rows)
        self._write_belonging(
            connection,
            schema.calls,
            [{**row, "endpoint": self._endpoints[row["endpoint"]], "evaluator": self._evaluators.get(row["evaluator"])} for row in rows],
            told,
        )

    def _write_forwarded(self, connection: Connection, rows: list[Values], told: Mapping[int, int]) -> None:
        self._write_belonging(connection, schema.forwarded, rows, told)

    def _write_belonging(self, connection: Connection, table: Table, rows: list[Values], told: Mapping[int, int]) -> None:
        self._find_setups(connection, [row["setup"] for row in rows])
        self._bodies(connection, [row[name] for row in rows for name in ("request", "reply")])
        made = []
        for row in rows:
            values = {name: value for name, value in row.items() if name != "id"}
            output = told.get(row["output"]) if row["output"] is not None else None
            made.append({**values, "output": output, "run": self._maker(connection, row["run"]), "setup": self._setup(row)})
        _add(connection, table, made)

    def _write_setups(self, connection: Connection, rows: Sequence[Values]) -> None:
        for row in rows:
            values = {name: value for name, value in row.items() if name != "id"} | {"run": self._maker(connection, row["run"])}
            made = connection.execute(schema.setups.insert().values(values)).inserted_primary_key
            assert made is not None
            self._setups[row["id"]] = int(made[0])

    def _setup(self, row: Values) -> int | None:
        return None if row["setup"] is None else self._setups[row["setup"]]

    def _find_setups(self, connection: Connection, ids: Iterable[int | None]) -> None:
        """Which set-up there is which one here; one of another run, whose answer was taken over, comes along."""
        s = schema.setups
        missing = {number for number in ids if number is not None} - self._setups.keys()
        if not missing:
            return
        names = ("arm", "key", "trial", "number", "attempt")
        with self.source.reading() as reading:
            rows = _all(reading, select(s).where(s.c.id.in_(missing)))
        for row in rows:
            same = [s.c[name] == row[name] for name in names]
            there = connection.scalar(select(s.c.id).where(s.c.run == self._maker(connection, row["run"]), *same))
            if there is not None:
                self._setups[row["id"]] = int(there)
            else:
                self._write_setups(connection, [row])

    def _meet_evaluators(self, connection: Connection, ids: Iterable[int]) -> None:
        self._meet(connection, schema.evaluators, ("key", "name"), ("key",), ids, self._evaluators)

    def _meet_endpoints(self, connection: Connection, ids: Iterable[int]) -> None:
        self._meet(connection, schema.endpoints, ("model", "url"), ("model", "url"), ids, self._endpoints)

    def _meet(
        self, connection: Connection, table: Table, names: Sequence[str], by: Sequence[str], ids: Iterable[int], known: dict[int, int]
    ) -> None:
        """Numbers there of what several runs share; in the order of the names, as every writer comes by them."""
        missing = set(ids) - known.keys()
        if not missing:
            return
        with self.source.reading() as reading:
            rows = _all(reading, select(table).where(table.c.id.in_(missing)))
        for row in sorted(rows, key=lambda row: tuple(row[name] for name in by)):
            values = {name: row[name] for name in names}
            connection.execute(insert(connection, table).values(values).on_conflict_do_nothing())
            number = connection.scalar(select(table.c.id).where(*(table.c[name] == row[name] for name in by)))
            assert number is not None
            known[row["id"]] = int(number)

    def _bodies(self, connection: Connection, keys: Iterable[bytes | None]) -> None:
        """Bodies with these keys, and their parts, those that are not there."""
        bodies, parts = schema.bodies, schema.body_parts
        wanted = {key for key in keys if key is not None}
        if not wanted:
            return
        with self.source.reading() as reading:
            links = _all(reading, select(parts).where(parts.c.body.in_(wanted)))
            wanted |= {row["part"] for row in links}
            for some in _pieces(sorted(wanted)):
                there = set(connection.scalars(select(bodies.c.key).where(bodies.c.key.in_(some))))
                sizes = select(bodies.c.key, func.length(bodies.c.data)).where(bodies.c.key.in_(set(some) - there)).order_by(bodies.c.key)
                for group in _small([(row[0], row[1]) for row in reading.execute(sizes)]):
                    rows = _all(reading, select(bodies).where(bodies.c.key.in_(group)).order_by(bodies.c.key))
                    connection.execute(insert(connection, bodies).on_conflict_do_nothing(), rows)
                    self.counts["bodies"] += len(rows)
        if links:
            links.sort(key=lambda row: (row["body"], row["part"]))
            connection.execute(insert(connection, parts).on_conflict_do_nothing(), links)


def _small(sizes: Sequence[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """Keys in groups whose bodies are few bytes together; a large one is alone."""
    group, total = list[bytes](), 0
    for key, size in sizes:
        if group and total + size > _BYTES:
            yield group
            group, total = [], 0
        group.append(key)
        total += size
    if group:
        yield group


def _pieces(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _ROWS):
        yield keys[start : start + _ROWS]


def _all(connection: Connection, query: Any) -> list[Values]:
    found = connection.execute(query)
    names = list(found.keys())
    return [dict(zip(names, row, strict=True)) for row in found]


def _of_run(connection: Connection, table: Table, number: int) -> list[Values]:
    return _all(connection, select(table).where(table.c.run == number))


def _without_join(row: Values) -> Values:
    return {name: value for name, value in row.items() if name not in ("key", "maker")}


def _add(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    if rows:
        connection.execute(table.insert(), list(rows))
