"""Differences of the two databases inside a statement: types of columns, and "insert, or else"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Connection, Dialect, Integer, LargeBinary, String, Table, TypeDecorator
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from context_bench.core.errors import StoreUnusable


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
        if value is None or _ESCAPE not in value:
            return value
        return re.sub(f"{_ESCAPE}[01]", lambda found: _READ[found[0]], value)


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


def inserting(database: str, table: Table) -> Any:
    """The same for a database by its name, where there is no connection yet."""
    if database == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)
