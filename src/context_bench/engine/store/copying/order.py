"""What is copied of a run, and in which order, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, select, tuple_

from context_bench.engine.store import schema
from context_bench.engine.store.copying import rows as shared
from context_bench.engine.store.copying.rows import Values, add, all_of
from context_bench.engine.store.copying.writing import RowWriter
from context_bench.engine.store.store import Store

_o, _p, _e = schema.outputs.c, schema.plan.c, schema.examples.c

#: How far the step is then, and what writes the piece.
Piece = tuple[Any, Callable[[Connection], None]]


class Order:
    """The steps of a run's copy. Each is asked with how far it got (`None`: not begun) and gives the next piece, or `None` at its end."""

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

    def _loose(self, table: Table, write: Callable[[Connection, list[Values], Mapping[int, int]], None], after: Any) -> Piece | None:
        rows = self._read(table, and_(table.c.run == self.run, table.c.output.is_(None)), table.c.id, after)
        return (rows[-1]["id"], lambda connection: write(connection, rows, {})) if rows else None

    def _plan(self, after: Any) -> Piece | None:
        """The plan, and with it the answers that were taken from other runs."""
        place = tuple_(_p.arm, _p.position, _p.trial)
        query = select(schema.plan, _o.key, _o.run.label("maker")).select_from(schema.plan.outerjoin(schema.outputs, _p.output == _o.id))
        query = query.where(_p.run == self.run).order_by(_p.arm, _p.position, _p.trial).limit(shared.ROWS)
        if after is not None:
            query = query.where(place > tuple_(*after))
        with self.source.reading() as connection:
            rows = all_of(connection, query)
            foreign = {row["output"] for row in rows if row["output"] is not None and row["maker"] != self.run}
            others = all_of(connection, select(schema.outputs).where(_o.id.in_(foreign)).order_by(_o.id)) if foreign else []
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
