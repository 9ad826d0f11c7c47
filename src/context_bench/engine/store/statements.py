"""Statements for many rows: text made once per database, values handed to the driver as they are.

SQLAlchemy's own way of executing many rows works out every value of every row by its column; that was most of what a row cost to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Dialect, Select, String, Table, bindparam, update

from context_bench.engine.store.dialects import inserting, written
from context_bench.engine.store.schema import plan


@dataclass(frozen=True, slots=True)
class Many:
    """A statement that takes one row of values at a time. `texts`: which of them are texts that this database wants written its own way."""

    sql: str
    texts: tuple[int, ...]

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute it once for each row."""
        if rows:
            connection.exec_driver_sql(self.sql, [self._written(row) for row in rows] if self.texts else list(rows))

    def _written(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for place in self.texts:
            values[place] = written(values[place])
        return tuple(values)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A query whose rows are taken as the driver gives them: texts are still written the database's own way."""

    select: Select[Any]
    names: tuple[str, ...]  # of its values, in order

    def rows(self, connection: Connection, *values: Any) -> list[tuple[Any, ...]]:
        """All rows, for values in that order."""
        result = connection.exec_driver_sql(_asking(connection.dialect.name, self), values)
        found: Any = result.cursor.fetchall()
        result.close()
        return cast("list[tuple[Any, ...]]", found)


def add(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows that are not there yet."""
    _adding(connection.dialect.name, table, columns, None, ()).run(connection, rows)


def add_new(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, and leave those alone that are there."""
    _adding(connection.dialect.name, table, columns, (), ()).run(connection, rows)


def put(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, or bring those of the same primary key up to date."""
    keys = tuple(column.name for column in table.primary_key)
    _adding(connection.dialect.name, table, columns, keys, tuple(name for name in columns if name not in keys)).run(connection, rows)


def point(connection: Connection, rows: Sequence[tuple[int | None, int, int, int, int]]) -> None:
    """Let plan rows point to outputs: (output, run, arm, position, trial)."""
    _pointing(connection.dialect.name).run(connection, rows)


@cache
def _adding(database: str, table: Table, columns: tuple[str, ...], keys: tuple[str, ...] | None, renewed: tuple[str, ...]) -> Many:
    statement = inserting(database, table).values({name: bindparam(name) for name in columns})
    if renewed:
        statement = statement.on_conflict_do_update(
            index_elements=list(keys or ()), set_={name: statement.excluded[name] for name in renewed}
        )
    elif keys is not None:
        statement = statement.on_conflict_do_nothing()
    return _compiled(database, statement, columns, table)


@cache
def _pointing(database: str) -> Many:
    columns = ("output", "run", "arm", "position", "trial")
    named: dict[str, Any] = {name: bindparam(f"the_{name}") for name in columns}
    statement = update(plan).where(*(plan.c[name] == named[name] for name in columns[1:])).values(output=named["output"])
    return _compiled(database, statement, tuple(f"the_{name}" for name in columns), plan)


def _compiled(database: str, statement: Any, names: tuple[str, ...], table: Table) -> Many:
    compiled = statement.compile(dialect=_dialect(database))
    if tuple(compiled.positiontup) != names:
        raise AssertionError(f"{compiled} takes its values in another order than {names}")
    if database != "postgresql":
        return Many(compiled.string, ())
    texts = (place for place, name in enumerate(names) if name in table.c and isinstance(table.c[name].type, String))
    return Many(compiled.string, tuple(texts))


@cache
def _asking(database: str, query: Query) -> str:
    compiled: Any = query.select.compile(dialect=_dialect(database))
    if tuple(compiled.positiontup) != query.names:
        raise AssertionError(f"{compiled} takes its values in another order than {query.names}")
    return str(compiled.string)


@cache
def _dialect(database: str) -> Dialect:
    """One that writes values as bare places in order, whatever its driver likes better."""
    if database == "postgresql":
        from sqlalchemy.dialects.postgresql import psycopg

        positional: Dialect = psycopg.dialect(paramstyle="format")  # type: ignore[no-untyped-call]
        return positional
    from sqlalchemy.dialects import sqlite

    return sqlite.dialect(paramstyle="qmark")
