"""Copy rows from one store into another, and the bodies that belong to them, each once.

Numbers of runs, outputs, set-ups, evaluators and endpoints are the new store's own; rows are matched by keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, func, or_, select

from context_bench.core.iterables import by_count, by_size
from context_bench.engine.encoding import Damaged, dumps, pack, sound, sound_body
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import PACKED, insert
from context_bench.engine.store.store import COPYING, Store

#: Rows of one transaction, and bytes of bodies that are held at once.
ROWS, BYTES = 200, 8_000_000
Values = dict[str, Any]


def all_of(connection: Connection, query: Any) -> list[Values]:
    """What a query finds, each row by the names of its columns. Raises `Damaged`: what is not what was written is not
    copied.
    """
    found = connection.execute(query)
    names = list(found.keys())
    rows = [dict(zip(names, row, strict=True)) for row in found]
    packed = [column.name for column in query.selected_columns if isinstance(column.type, type(PACKED))]
    bodies = "data" in names
    for row in rows:
        if bodies and not sound_body(row["key"], row["data"]):
            raise Damaged
        if not bodies and not all(row[name] is None or sound(row[name]) for name in packed):
            raise Damaged
    return rows


def add(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Write rows, if there are any."""
    if rows:
        connection.execute(table.insert(), list(rows))


def copy_bodies(source: Store, connection: Connection, keys: Iterable[bytes | None]) -> int:
    """Bring over bodies with these keys, and their parts, those that are not there; returns how many these were."""
    bodies, parts = schema.bodies, schema.body_parts
    wanted = {key for key in keys if key is not None}
    if not wanted:
        return 0
    written = 0
    with source.reading() as reading:
        links = all_of(reading, select(parts).where(parts.c.body.in_(wanted)))
        wanted |= {row["part"] for row in links}
        for some in by_count(sorted(wanted), ROWS):
            there = set(connection.scalars(select(bodies.c.key).where(bodies.c.key.in_(some))))
            sizes = (
                select(bodies.c.key, func.length(bodies.c.data))
                .where(bodies.c.key.in_(set(some) - there))
                .order_by(bodies.c.key)
            )
            for group in by_size(reading.execute(sizes).all(), itemgetter(1), BYTES):
                keys = [key for key, _ in group]
                rows = all_of(reading, select(bodies).where(bodies.c.key.in_(keys)).order_by(bodies.c.key))
                connection.execute(insert(connection, bodies).on_conflict_do_nothing(), rows)
                written += len(rows)
    if links:
        links.sort(key=lambda row: (row["body"], row["part"]))
        connection.execute(insert(connection, parts).on_conflict_do_nothing(), links)
    return written


_r, _o = schema.runs.c, schema.outputs.c


@dataclass
class RowWriter:
    """Writes what belongs to a run, in transactions of the caller.

    `run`, `id`: the original's number and identifier; `number`: the copy's. `makers`: number here → there of runs that
    made outputs.
    """

    source: Store
    target: Store
    run: int
    id: str
    number: int = -1
    makers: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"rows": 0, "calls": 0, "bodies": 0})
    _evaluators: dict[int, int] = field(default_factory=dict)
    _endpoints: dict[int, int] = field(default_factory=dict)
    _setups: dict[int, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Numbers that were met in a transaction that was never made may be others' the next time."""
        for known in (self._evaluators, self._endpoints, self._setups):
            known.clear()

    def _maker(self, connection: Connection, number: int) -> int:
        """The number there of the run that made an output. Of one that is not there: a number that no run gets any
        more.
        """
        if number == self.run:
            return self.number
        if str(number) not in self.makers:
            with self.source.reading() as reading:
                known = reading.scalar(select(_r.id).where(_r.number == number))
            there = (
                connection.scalar(select(_r.number).where(_r.id == known, _r.status != COPYING))
                if known is not None
                else None
            )
            nobody = self._number_of_nobody(connection, number) if there is None else there
            self.makers = {**self.makers, str(number): int(nobody)}
        return self.makers[str(number)]

    def _number_of_nobody(self, connection: Connection, number: int) -> int:
        name = f"{COPYING}:{self.id}:{number}"
        values = {
            "id": name,
            "name": name,
            "status": COPYING,
            "identity": name,
            "created": 0.0,
            "updated": 0.0,
            "owner": None,
        }
        empty = pack(dumps({}))
        made = connection.execute(
            schema.runs.insert().values(**values, manifest=empty, counts=empty)
        ).inserted_primary_key
        assert made is not None
        connection.execute(delete(schema.runs).where(_r.number == made[0]))
        return int(made[0])

    def ids_of(self, connection: Connection, rows: Sequence[Values]) -> dict[tuple[bytes, int], int]:
        """(key, run of the original that made it) → the id there, for those that are there."""
        makers = {
            number: self._maker(connection, number)
            for number in {row["maker"] if "maker" in row else row["run"] for row in rows}
        }
        back = {there: here for here, there in makers.items()}
        keys = {row["key"] for row in rows}
        if not keys:
            return {}
        query = select(_o.id, _o.key, _o.run).where(_o.key.in_(keys), _o.run.in_(back))
        return {(row.key, back[row.run]): row.id for row in connection.execute(query)}

    def outputs(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Outputs that are not there yet, with scores, calls and what the tap saw of them."""
        if not rows:
            return
        ids = self.ids_of(connection, rows)
        self._find_setups(connection, [row["setup"] for row in rows])
        new = [row for row in rows if (row["key"], row["run"]) not in ids]
        for row, number in zip(new, self.target.database.output_ids(connection, len(new)) if new else [], strict=True):
            ids[row["key"], row["run"]] = number
        told = {row["id"]: ids[row["key"], row["run"]] for row in rows}
        made = [
            {**row, "id": told[row["id"]], "run": self._maker(connection, row["run"]), "setup": self._setup(row)}
            for row in new
        ]
        add(connection, schema.outputs, made)
        self.counts["rows"] += len(new)
        self._write_scores(connection, told)
        fresh = {row["id"]: row["run"] for row in new}
        for table, write in ((schema.calls, self.calls), (schema.forwarded, self.forwarded)):
            for some in self._belonging(table, list(told), fresh):
                write(connection, some, told)

    def _belonging(self, table: Table, outputs: list[int], fresh: Mapping[int, int]) -> Iterator[list[Values]]:
        """What this run did for outputs, and for outputs that are new there what their own run did."""
        makers = set(fresh.values()) - {self.run}
        which = table.c.run == self.run
        if makers:
            which = or_(which, and_(table.c.run.in_(makers), table.c.output.in_(list(fresh))))
        after = -1
        while True:
            with self.source.reading() as reading:
                query = (
                    select(table)
                    .where(table.c.output.in_(outputs), which, table.c.id > after)
                    .order_by(table.c.id)
                    .limit(ROWS)
                )
                rows = all_of(reading, query)
            if rows:
                yield rows
            if len(rows) < ROWS:
                return
            after = rows[-1]["id"]

    def _write_scores(self, connection: Connection, told: Mapping[int, int]) -> None:
        s = schema.scores
        with self.source.reading() as reading:
            rows = all_of(reading, select(s).where(s.c.output.in_(list(told))))
        known = self.evaluators(connection, [row["evaluator"] for row in rows])
        made = [{**row, "output": told[row["output"]], "evaluator": known[row["evaluator"]]} for row in rows]
        made.sort(key=lambda row: (row["output"], row["evaluator"]))
        if made:
            statement = insert(connection, s)
            changed = {name: statement.excluded[name] for name in ("values", "error", "usage")}
            connection.execute(
                statement.on_conflict_do_update(index_elements=["output", "evaluator"], set_=changed), made
            )

    def calls(self, connection: Connection, rows: list[Values], told: Mapping[int, int]) -> None:
        self._meet_endpoints(connection, [row["endpoint"] for row in rows])
        judges = self.evaluators(connection, [row["evaluator"] for row in rows if row["evaluator"] is not None])
        self.counts["calls"] += len(rows)
        self._write_belonging(
            connection,
            schema.calls,
            [
                {**row, "endpoint": self._endpoints[row["endpoint"]], "evaluator": judges.get(row["evaluator"])}
                for row in rows
            ],
            told,
        )

    def forwarded(self, connection: Connection, rows: list[Values], told: Mapping[int, int]) -> None:
        self._write_belonging(connection, schema.forwarded, rows, told)

    def _write_belonging(
        self, connection: Connection, table: Table, rows: list[Values], told: Mapping[int, int]
    ) -> None:
        self._find_setups(connection, [row["setup"] for row in rows])
        self.bodies(connection, [row[name] for row in rows for name in ("request", "reply")])
        made = []
        for row in rows:
            values = {name: value for name, value in row.items() if name != "id"}
            output = told.get(row["output"]) if row["output"] is not None else None
            made.append(
                {**values, "output": output, "run": self._maker(connection, row["run"]), "setup": self._setup(row)}
            )
        add(connection, table, made)

    def setups(self, connection: Connection, rows: Sequence[Values]) -> None:
        for row in rows:
            values = {name: value for name, value in row.items() if name != "id"} | {
                "run": self._maker(connection, row["run"])
            }
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
            rows = all_of(reading, select(s).where(s.c.id.in_(missing)))
        for row in rows:
            same = [s.c[name] == row[name] for name in names]
            there = connection.scalar(select(s.c.id).where(s.c.run == self._maker(connection, row["run"]), *same))
            if there is not None:
                self._setups[row["id"]] = int(there)
            else:
                self.setups(connection, [row])

    def evaluators(self, connection: Connection, ids: Iterable[int]) -> Mapping[int, int]:
        """The numbers there of these evaluators, which come along."""
        self._meet(connection, schema.evaluators, ("key", "name"), ("key",), ids, self._evaluators)
        return self._evaluators

    def _meet_endpoints(self, connection: Connection, ids: Iterable[int]) -> None:
        self._meet(connection, schema.endpoints, ("model", "url"), ("model", "url"), ids, self._endpoints)

    def _meet(
        self,
        connection: Connection,
        table: Table,
        names: Sequence[str],
        by: Sequence[str],
        ids: Iterable[int],
        known: dict[int, int],
    ) -> None:
        """Numbers there of what several runs share; in the order of the names, as every writer comes by them."""
        missing = set(ids) - known.keys()
        if not missing:
            return
        with self.source.reading() as reading:
            rows = all_of(reading, select(table).where(table.c.id.in_(missing)))
        for row in sorted(rows, key=lambda row: tuple(row[name] for name in by)):
            values = {name: row[name] for name in names}
            connection.execute(insert(connection, table).values(values).on_conflict_do_nothing())
            number = connection.scalar(select(table.c.id).where(*(table.c[name] == row[name] for name in by)))
            assert number is not None
            known[row["id"]] = int(number)

    def bodies(self, connection: Connection, keys: Iterable[bytes | None]) -> None:
        """Bodies with these keys that are not there."""
        self.counts["bodies"] += copy_bodies(self.source, connection, keys)
