"""Statements, and what the two databases write differently in them: types of columns, and "insert, or else".

The text of a statement that takes many rows is made once for each database, and values go to the driver as they are.
SQLAlchemy's own way works out every value of every row by its column; that was most of the cost of a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    TypeDecorator,
    bindparam,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from context_bench.core.errors import StoreUnusable
from context_bench.core.rows import by_count


class Unstorable(StoreUnusable):
    """A value that the database cannot hold; what it holds already and what else is written are as good as before."""


#: Raised where a value makes no sense: one to be written that has the wrong type or size, or one read that is not what
#: was written.
SENSELESS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, AssertionError)


@contextmanager
def storing() -> Iterator[None]:
    """For as long as rows are made and written: a value of them that makes no sense is `Unstorable`, and no sign of a
    damaged store.
    """
    try:
        yield
    except SENSELESS as error:
        raise Unstorable(reason(error)) from error


def reason(error: Exception) -> str:
    """The reason for which a value cannot be stored, without the statement that was tried."""
    try:
        said = str(error) or type(error).__name__
    except Exception:  # of objects of somebody else's
        said = type(error).__name__
    return said[:300]


#: PostgreSQL takes no NUL in a text, SQLite does: there NUL and the sign that stands for it are written as two
#: characters.
_ESCAPE = "\x1a"
_WRITTEN = {"\x00": f"{_ESCAPE}0", _ESCAPE: f"{_ESCAPE}1"}
_READ = {written: char for char, written in _WRITTEN.items()}


def written(value: str | None) -> str | None:
    """A text as PostgreSQL takes it."""
    if value is None or ("\x00" not in value and _ESCAPE not in value):
        return value
    return re.sub(f"[\x00{_ESCAPE}]", lambda found: _WRITTEN[found[0]], value)


def _as_before(value: str | None) -> str | None:
    """A text as it was before it was `written`."""
    if value is None or _ESCAPE not in value:
        return value
    return re.sub(f"{_ESCAPE}[01]", lambda found: _READ[found[0]], value)


class _AnyText(TypeDecorator[str]):
    """Text with any character, sorted by code point whatever the database's own language: as SQLite keeps and sorts
    it.
    """

    impl = String
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(collation="C")

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return written(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return _as_before(value)


#: Any text a dataset or a server may send, lone surrogates excepted.
TEXT = String().with_variant(_AnyText(), "postgresql")
#: A whole number of 64 bits; SQLite gives ids only to what is called INTEGER there.
WHOLE = BigInteger().with_variant(Integer(), "sqlite")


class _Packed(LargeBinary):
    """Bytes that `encoding.pack` made."""


PACKED = _Packed()


class readable(FunctionElement[str]):
    """JSON kept as bytes, as text that can be compared and sorted."""

    name = "readable"
    type = String()
    inherit_cache = True


@compiles(readable)
def _same(element: Any, compiler: Any, **how: Any) -> str:
    return str(compiler.process(element.clauses, **how))


@compiles(readable, "postgresql")
def _converted(element: Any, compiler: Any, **how: Any) -> str:
    return f"(convert_from({compiler.process(element.clauses, **how)}, 'UTF8') COLLATE \"C\")"


def insert_one(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Insert a row; returns the number that it gets."""
    key = connection.execute(table.insert().values(dict(values))).inserted_primary_key
    assert key is not None
    return int(key[0])


def insert(connection: Connection, table: Table) -> Any:
    """An INSERT that can be told `on_conflict_do_nothing` and `on_conflict_do_update`; both databases mean the same by
    it.
    """
    return inserting(connection.dialect.name, table)


def number_of(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """The number of the row with these values, which is inserted where it is missing."""
    connection.execute(insert(connection, table).values(dict(values)).on_conflict_do_nothing())
    same = (table.c[name] == value for name, value in values.items())
    return int(connection.execute(select(table.c.id).where(*same)).scalar_one())


def inserting(database: str, table: Table) -> Any:
    """The same for a database by its name, where there is no connection yet."""
    if database == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


# --- statements whose text is made once ---


@dataclass(frozen=True, slots=True)
class Many:
    """A statement that takes one row of values at a time. `texts`: which of them are texts that this database wants
    written its own way.
    """

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
class PreparedQuery:
    """A query whose rows are taken as the driver gives them."""

    select: Select[Any]
    names: tuple[str, ...]  # of its values, in order

    def rows(self, connection: Connection, *values: Any) -> list[tuple[Any, ...]]:
        """All rows, for values in that order; texts are still written the database's own way."""
        result = connection.exec_driver_sql(_asking(connection.dialect.name, self), values)
        found: Any = result.cursor.fetchall()
        result.close()
        return cast("list[tuple[Any, ...]]", found)

    def read(self, connection: Connection, *values: Any) -> list[tuple[Any, ...]]:
        """The same, with texts as they were before they were written."""
        found = self.rows(connection, *values)
        if connection.dialect.name == "postgresql":
            columns = self.select.selected_columns
            texts = [place for place, column in enumerate(columns) if isinstance(column.type, String)]
            for number, row in enumerate(found):
                if any(_ESCAPE in row[place] for place in texts if row[place] is not None):
                    found[number] = tuple(_as_before(value) if at in texts else value for at, value in enumerate(row))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class KeyedQuery:
    """A query for the rows of some keys, of any number: its text is made once for one, two, four and so on of them."""

    select: Select[Any]
    key: ColumnElement[Any]

    def read(self, connection: Connection, keys: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """The rows of these keys, each once."""
        for some in by_count(keys, _MOST_KEYS):
            size = 1 << (len(some) - 1).bit_length()
            yield from _of_keys(self, size).read(connection, *some, *[some[-1]] * (size - len(some)))


_MOST_KEYS = 512


@cache
def _of_keys(query: KeyedQuery, size: int) -> PreparedQuery:
    names = tuple(f"key{number}" for number in range(size))
    wanted = [bindparam(name, type_=query.key.type) for name in names]
    return PreparedQuery(query.select.where(query.key.in_(wanted)), names)


def add(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows that are not there yet."""
    _adding(connection.dialect.name, table, columns, None, ()).run(connection, rows)


def add_new(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, and leave those alone that are there."""
    _adding(connection.dialect.name, table, columns, (), ()).run(connection, rows)


def put(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, or bring those of the same primary key up to date."""
    keys = tuple(column.name for column in table.primary_key)
    _adding(connection.dialect.name, table, columns, keys, tuple(name for name in columns if name not in keys)).run(
        connection, rows
    )


@cache
def _adding(
    database: str, table: Table, columns: tuple[str, ...], keys: tuple[str, ...] | None, renewed: tuple[str, ...]
) -> Many:
    statement = inserting(database, table).values({name: bindparam(name) for name in columns})
    if renewed:
        statement = statement.on_conflict_do_update(
            index_elements=list(keys or ()), set_={name: statement.excluded[name] for name in renewed}
        )
    elif keys is not None:
        statement = statement.on_conflict_do_nothing()
    return compiled_once(database, statement, columns, table)


def compiled_once(database: str, statement: Any, names: tuple[str, ...], table: Table) -> Many:
    """The statement as text for a database, with its values in the order of `names`."""
    compiled = statement.compile(dialect=_dialect(database))
    if tuple(compiled.positiontup) != names:
        raise AssertionError(f"{compiled} takes its values in another order than {names}")
    if database != "postgresql":
        return Many(compiled.string, ())
    texts = (place for place, name in enumerate(names) if name in table.c and isinstance(table.c[name].type, String))
    return Many(compiled.string, tuple(texts))


@cache
def _asking(database: str, query: PreparedQuery) -> str:
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
