"""Write rows of one store into another, with all that belongs to them: scores, calls, forwarded requests, bodies.

Numbers of runs, outputs, set-ups, evaluators and endpoints are the new store's own. `schema.references` says which
columns hold them; what they name is found there by its key, or comes along.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, delete, func, or_, select, tuple_

from context_bench.core.rows import by_count, by_size
from context_bench.engine.encoding import Damaged, dumps, pack, sound, sound_body
from context_bench.engine.store import Store, schema
from context_bench.engine.store.dialects import insert, insert_one, number_of, put
from context_bench.engine.store.run_records import COPYING

#: Rows of one transaction, and bytes of bodies that are held at once.
ROWS, BYTES = 200, 8_000_000
Values = dict[str, Any]
_r, _o = schema.runs.c, schema.outputs.c

#: Tables in the order in which every writer comes by what several runs share.
_MET = ("runs", "endpoints", "evaluators", "setups", "outputs", "bodies")


def all_of(connection: Connection, query: Any) -> list[Values]:
    """All rows that a query finds, each by the names of its columns. Raises `Damaged`: no damaged value is copied."""
    result = connection.execute(query)
    names = list(result.keys())
    rows = [dict(zip(names, row, strict=True)) for row in result]
    packed = [column.name for column in query.selected_columns if schema.is_packed(column)]
    bodies = "data" in names
    for row in rows:
        if bodies and not sound_body(row["key"], row["data"]):
            raise Damaged
        if not bodies and not all(row[name] is None or sound(row[name]) for name in packed):
            raise Damaged
    return rows


def _key(table: Table) -> list[Column[Any]]:
    """The columns by which the rows of one run or watch are ordered."""
    return [column for column in table.primary_key if column.name not in ("run", "watch")]


def place(table: Table, row: Values) -> list[Any]:
    """The place of a row in the order of `page`."""
    return [row[column.name] for column in _key(table)]


def page(store: Store, table: Table, *which: Any, after: Sequence[Any] | None = None) -> list[Values]:
    """The next rows of a table after a place, in the order of its key."""
    key = _key(table)
    query = select(table).where(*which).order_by(*key).limit(ROWS)
    with store.reading() as connection:
        return all_of(connection, query if after is None else query.where(tuple_(*key) > tuple_(*after)))


def copy_bodies(source: Store, connection: Connection, keys: Collection[bytes]) -> int:
    """Bring over the bodies with these keys, and their parts, that are not there; returns how many these were."""
    bodies, parts = schema.bodies, schema.body_parts
    if not keys:
        return 0
    written = 0
    with source.reading() as reading:
        links = all_of(reading, select(parts).where(parts.c.body.in_(keys)).order_by(parts.c.body, parts.c.part))
        for some in by_count(sorted({*keys, *(row["part"] for row in links)}), ROWS):
            there = set(connection.scalars(select(bodies.c.key).where(bodies.c.key.in_(some))))
            sizes = select(bodies.c.key, func.length(bodies.c.data)).where(bodies.c.key.in_(set(some) - there))
            for group in by_size(reading.execute(sizes.order_by(bodies.c.key)).all(), itemgetter(1), BYTES):
                chosen = select(bodies).where(bodies.c.key.in_([key for key, _ in group])).order_by(bodies.c.key)
                rows = all_of(reading, chosen)
                connection.execute(insert(connection, bodies).on_conflict_do_nothing(), rows)
                written += len(rows)
    if links:
        connection.execute(insert(connection, parts).on_conflict_do_nothing(), links)
    return written


class RowCopier:
    """Writes rows of one store into another, in transactions of the caller.

    `run` and `id`: number and identifier of the run that is copied. `numbers`: table → number there of each of its rows
    that was met; those of runs are kept in the state of the copy.
    """

    def __init__(self, source: Store, target: Store, run: int = -1, run_id: str = "") -> None:
        self.source, self.target, self.run, self.id = source, target, run, run_id
        self.counts = {"rows": 0, "calls": 0, "bodies": 0}
        self.numbers: dict[str, dict[Any, Any]] = defaultdict(lambda: {None: None})
        self._finders: dict[str, Callable[[Connection, set[Any]], None]] = {
            "runs": self._find_runs,
            "endpoints": lambda connection, ids: self._find_shared(connection, schema.endpoints, ids),
            "evaluators": lambda connection, ids: self._find_shared(connection, schema.evaluators, ids),
            "setups": self._find_setups,
            "outputs": self._find_outputs,
            "bodies": self._copy_bodies,
        }

    @property
    def makers(self) -> dict[str, int]:
        """Number here → there of other runs that made outputs, as the state of the copy has them."""
        return {str(here): there for here, there in self.numbers["runs"].items() if here not in (None, self.run)}

    def begin(self, number: int, makers: dict[str, int]) -> None:
        """The copy of the run has this number."""
        self.numbers["runs"] = {None: None, self.run: number, **{int(here): there for here, there in makers.items()}}

    def forget(self) -> None:
        """Numbers that were met in a transaction that was never made may be others' the next time."""
        for table in ("evaluators", "endpoints", "setups", "outputs"):
            self.numbers.pop(table, None)

    def write(self, connection: Connection, table: Table, rows: list[Values]) -> None:
        """Write rows of the original, with all that belongs to them."""
        if table is schema.outputs:
            self._write_outputs(connection, rows)
        elif table is schema.setups:
            self._write_setups(connection, rows)
        elif rows:
            if table is schema.plan:  # with the answers that were taken from other runs
                self._write_outputs(connection, self._taken_over(rows))
            connection.execute(table.insert(), self._translated(connection, table, rows))
            self.counts["calls"] += len(rows) * (table is schema.calls)

    def _translated(self, connection: Connection, table: Table, rows: Sequence[Values]) -> list[Values]:
        """The rows with the numbers that the new store has for what they name, and without a number of their own."""
        named: dict[str, set[Any]] = defaultdict(set)
        references = schema.references(table)
        for column, other in references.items():
            named[other].update(row[column] for row in rows)
        for other in _MET:
            if missing := named[other] - self.numbers[other].keys():
                self._finders[other](connection, missing)
        own = {column.name for column in table.primary_key} & {"id"}
        changed = {column: self.numbers[other] for column, other in references.items() if other != "bodies"}
        return [
            {name: changed[name][value] if name in changed else value for name, value in row.items() if name not in own}
            for row in rows
        ]

    # --- rows ---

    def _write_setups(self, connection: Connection, rows: Sequence[Values]) -> None:
        for row, values in zip(rows, self._translated(connection, schema.setups, rows), strict=True):
            self.numbers["setups"][row["id"]] = insert_one(connection, schema.setups, values)

    def _write_outputs(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Outputs that are not there yet, with scores, calls and what the tap saw of them."""
        numbers: dict[Any, Any] = {None: None}
        self.numbers["outputs"] = numbers
        if not rows:
            return
        ids = [row["id"] for row in rows]
        self._find_outputs(connection, set(ids))
        new = [row for row in rows if numbers[row["id"]] is None]
        if new:
            made = self._translated(connection, schema.outputs, new)
            drawn = self.target.database.output_ids(connection, len(new))
            numbers.update(zip((row["id"] for row in new), drawn, strict=True))
            connection.execute(
                schema.outputs.insert(), [{**row, "id": number} for row, number in zip(made, drawn, strict=True)]
            )
            self.counts["rows"] += len(new)
        self._write_scores(connection, ids)
        for table in (schema.calls, schema.forwarded):
            for some in self._belonging(table, ids, new):
                self.write(connection, table, some)

    def _write_scores(self, connection: Connection, outputs: Sequence[int]) -> None:
        s = schema.scores
        with self.source.reading() as reading:
            rows = all_of(reading, select(s).where(s.c.output.in_(outputs)))
        made = self._translated(connection, s, rows)
        made.sort(key=itemgetter("output", "evaluator"))
        put(connection, s, tuple(s.c.keys()), [tuple(row.values()) for row in made])

    def _belonging(self, table: Table, outputs: list[int], new: Sequence[Values]) -> Iterator[list[Values]]:
        """Rows that this run has of outputs, and of outputs that are new there those that their own run has."""
        makers = {row["run"] for row in new} - {self.run}
        theirs = and_(table.c.run.in_(makers), table.c.output.in_([row["id"] for row in new]))
        which = or_(table.c.run == self.run, theirs) if makers else table.c.run == self.run
        after = None
        while rows := page(self.source, table, table.c.output.in_(outputs), which, after=after):
            yield rows
            if len(rows) < ROWS:
                return
            after = place(table, rows[-1])

    def _taken_over(self, planned: Iterable[Values]) -> list[Values]:
        """The outputs of other runs that rows of the plan point to."""
        ids = {row["output"] for row in planned} - {None}
        with self.source.reading() as reading:
            return all_of(reading, select(schema.outputs).where(_o.id.in_(ids), _o.run != self.run).order_by(_o.id))

    # --- numbers ---

    def _find_runs(self, connection: Connection, numbers: set[int]) -> None:
        """Runs that made outputs. One that is not there stands for itself: a number that no run gets any more."""
        for number in numbers:
            with self.source.reading() as reading:
                maker = reading.scalar(select(_r.id).where(_r.number == number))
            same = select(_r.number).where(_r.id == maker, _r.status != COPYING)
            there = None if maker is None else connection.scalar(same)
            self.numbers["runs"][number] = self._number_of_nobody(connection, number) if there is None else there

    def _number_of_nobody(self, connection: Connection, number: int) -> int:
        name, empty = f"{COPYING}:{self.id}:{number}", pack(dumps({}))
        values = {**dict.fromkeys(("id", "name", "identity"), name), "status": COPYING, "created": 0.0, "updated": 0.0}
        drawn = insert_one(connection, schema.runs, {**values, "manifest": empty, "counts": empty})
        connection.execute(delete(schema.runs).where(_r.number == drawn))
        return drawn

    def _find_outputs(self, connection: Connection, ids: set[int]) -> None:
        """Outputs by their key and the run that made them; `None` for those that are not there."""
        with self.source.reading() as reading:
            rows = reading.execute(select(_o.id, _o.key, _o.run).where(_o.id.in_(ids))).all()
        runs = {row.run for row in rows}
        if missing := runs - self.numbers["runs"].keys():
            self._find_runs(connection, missing)
        back = {self.numbers["runs"][here]: here for here in runs}
        same = select(_o.id, _o.key, _o.run).where(_o.key.in_({row.key for row in rows}), _o.run.in_(back))
        there = {(row.key, back[row.run]): row.id for row in connection.execute(same)}
        self.numbers["outputs"].update(dict.fromkeys(ids) | {row.id: there.get((row.key, row.run)) for row in rows})

    def _find_setups(self, connection: Connection, ids: set[int]) -> None:
        """Set-ups by what they got ready; one of another run, whose answer was taken over, comes along."""
        s = schema.setups
        with self.source.reading() as reading:
            rows = all_of(reading, select(s).where(s.c.id.in_(ids)))
        for row in rows:
            self._find_runs(connection, {row["run"]} - self.numbers["runs"].keys())
            same = [s.c[name] == row[name] for name in ("arm", "key", "trial", "number", "attempt")]
            there = connection.scalar(select(s.c.id).where(s.c.run == self.numbers["runs"][row["run"]], *same))
            if there is None:
                self._write_setups(connection, [row])
            else:
                self.numbers["setups"][row["id"]] = there

    def _find_shared(self, connection: Connection, table: Table, ids: set[int]) -> None:
        """Evaluators and endpoints, which several runs share, in the order of their names. They come along."""
        with self.source.reading() as reading:
            rows = all_of(reading, select(table).where(table.c.id.in_(ids)))
        for row in sorted(rows, key=lambda row: list(row.values())[1:]):
            number = row.pop("id")
            self.numbers[table.name][number] = number_of(connection, table, row)

    def _copy_bodies(self, connection: Connection, keys: set[bytes]) -> None:
        self.counts["bodies"] += copy_bodies(self.source, connection, keys)
