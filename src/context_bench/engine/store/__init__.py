"""The store of runs, outputs, scores, calls and bodies: opened at an address, its transactions, what is damaged in it.

The only part of the engine that does I/O.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Table, select
from sqlalchemy.exc import DBAPIError

from context_bench.core.errors import ContextBenchError, StoreUnusable
from context_bench.core.machine import quoted
from context_bench.engine.encoding import Damaged, sound, sound_body
from context_bench.engine.store import postgresql as postgres, schema, sqlite
from context_bench.engine.store.dialects import SENSELESS
from context_bench.engine.store.postgresql import StoreLost
from context_bench.engine.store.sqlite import temporary_path

#: Damaged values are looked for so long (seconds), and so many are named.
PATIENCE, _MOST_NAMED = 30.0, 5
_ADVICE = "put the file back from a copy of it, or measure those again in a new run"
_EXPORT = (
    "; `context-bench export RUN --format jsonl --store {name}` writes the rows that are whole and names the others"
)
#: Tables of rows, of which an export names what is damaged and writes the others.
_OF_ROWS = frozenset({"outputs", "scores", "bodies", "calls", "forwarded"})


def packed_columns(table: Table) -> list[str]:
    """The columns of a table that hold packed values."""
    return [column.name for column in table.columns if schema.is_packed(column)]


def explained(name: str, connection: Connection | None) -> Damaged:
    """The error for a store (`name`) in which something was found damaged. It names all that is, as far as the store
    can be looked through.
    """
    found: list[str] = []
    if connection is not None:
        for place in damaged(connection, until=time.monotonic() + PATIENCE):
            found.append(place)
            if len(found) > _MOST_NAMED:
                break
    places = "; ".join(found[:_MOST_NAMED]) + ("; and more" if len(found) > _MOST_NAMED else "")
    advice = _ADVICE + (
        _EXPORT.format(name=quoted(name)) if connection is not None and _exportable(found, connection) else ""
    )
    return Damaged(f"store {name} is damaged: {places or 'a value that was read'} cannot be what was written; {advice}")


def _exportable(found: list[str], connection: Connection) -> bool:
    """True if an export of rows gets past the damage: it needs its run, and what it names are values of rows."""
    columns = packed_columns(schema.runs)
    if any(faults(schema.runs, row, columns) for row in connection.execute(select(schema.runs)).mappings()):
        return False
    return bool(found) and {place.partition(" ")[0] for place in found} <= _OF_ROWS


def damaged(connection: Connection, *, until: float) -> Iterator[str]:
    """Find the damaged values, as table, row and column. `until`: when to give up, by `time.monotonic`."""
    for table in schema.metadata.sorted_tables:
        columns = packed_columns(table)
        if not columns:
            continue
        keys = [column.name for column in table.primary_key]
        for row in connection.execute(select(table)).mappings():
            if time.monotonic() > until:
                return
            faulty = faults(table, row, columns)
            if faulty:
                yield named(table.name, {key: row[key] for key in keys}, faulty)


def faults(table: Table, row: Mapping[Any, Any], columns: Iterable[str]) -> list[str]:
    """Those columns of a row that are damaged."""
    if table is schema.bodies:
        return [] if sound_body(row["key"], row["data"]) else ["data"]
    return [name for name in columns if row[name] is not None and not sound(row[name])]


def named(table: str, keys: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The name of a row's values in messages: `outputs id=12 (usage, wire)`."""
    place = " ".join(f"{key}={value.hex() if isinstance(value, bytes) else value}" for key, value in keys.items())
    return f"{table} {place} ({', '.join(columns)})"


#: Milliseconds that a writer waits for another process to finish its transaction.
BUSY_TIMEOUT = 30_000


class Database(Protocol):
    """The database of a store, with what the kinds of databases do differently around statements."""

    @property
    def name(self) -> str: ...
    @property
    def patience(self) -> float: ...
    def engine(self) -> Engine: ...
    def reader(self) -> Engine: ...
    def explained(self) -> AbstractContextManager[None]: ...
    def begin(self, engine: Engine, *, write: bool, durable: bool) -> Connection: ...
    def alone(self, connection: Connection, *, purging: bool = False) -> None: ...
    def output_ids(self, connection: Connection, count: int) -> list[int]: ...
    def damage(self, connection: Connection, until: float) -> str | None: ...
    def shrink(self, engine: Engine) -> None: ...


def database_of(where: str | Path, *, busy_timeout: int = BUSY_TIMEOUT) -> Database:
    """The database that `where` names: a path, `sqlite:///PATH` or `postgresql://…`. Raises `StoreUnusable`; opens
    nothing.
    """
    if isinstance(where, str) and postgres.is_postgres(where):
        return postgres.database_of(where, busy_timeout=busy_timeout)
    return sqlite.SqliteFile(sqlite.path_of(where), busy_timeout)


def there(where: str | Path) -> bool:
    """Could there be a store already? No for a file that does not exist; what a server has is known once it is
    asked.
    """
    database = database_of(where)
    return not isinstance(database, sqlite.SqliteFile) or database.path.exists()


T = TypeVar("T")
#: How often a transaction is tried that the database breaks off. Each try waits for the database to be there again.
TRIES = 5


class Store:
    """An open store. Safe to share between threads; several processes may have the same one open."""

    def __init__(
        self, engine: Engine, database: Database, folder: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self.engine = engine
        self.database = database
        self._folder = folder  # of a temporary store: lives as long as the store does

    @property
    def name(self) -> str:
        """Its place, for messages: a path, or an address without its password."""
        return self.database.name

    @property
    def path(self) -> Path:
        """The file of a SQLite store; no other store has one."""
        return Path(self.database.name)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one consistent state."""
        with self._looked_through(), self.database.explained(), self._begun(write=False) as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Connection]:
        """A connection in a write transaction, safe from loss of power when the block ends.

        With `durable=False` it becomes safe together with the next durable one: enough for what can be made again.
        """
        with self._looked_through(), self.database.explained(), self._begun(write=True, durable=durable) as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _looked_through(self) -> Iterator[None]:
        """Name everything that is damaged where something is; a value that makes no sense may be a sign of it.

        The store is looked through, for a bounded time, when the transaction has ended: it keeps nobody from writing.
        """
        try:
            yield
        except Damaged as error:
            if error.args:
                raise
            with self.database.explained(), self._begun(write=False) as connection:
                raise explained(self.name, connection) from None
        except (ContextBenchError, DBAPIError):
            raise
        except SENSELESS as error:
            until = time.monotonic() + PATIENCE
            with self.database.explained(), self._begun(write=False) as connection:
                if (said := self.database.damage(connection, until)) is not None:
                    raise StoreUnusable(said) from error
                if next(damaged(connection, until=until), None) is not None:
                    raise explained(self.name, connection) from error
            raise

    def _begun(self, *, write: bool, durable: bool = True) -> Connection:
        """A connection in a transaction; a database that went away since the store was opened is waited for."""
        until = time.monotonic() + self.database.patience
        while True:
            try:
                with self.database.explained():
                    return self.database.begin(self.engine, write=write, durable=durable)
            except StoreLost:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def insist(self, work: Callable[[], T]) -> T:
        """Do `work` again if the database went away in the middle or asks for it: for what may be done twice. Raises
        `StoreUnusable`.
        """
        for left in reversed(range(TRIES)):
            try:
                return work()
            except StoreLost:
                if not left:
                    raise
        raise AssertionError

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` on one consistent state, again if the database went away in the middle. Raises `StoreUnusable`."""

        def once() -> T:
            with self.reading() as connection:
                return work(connection)

        return self.insist(once)

    def write(self, work: Callable[[Connection], object], *, durable: bool = True) -> None:
        """Do `work`, which may be done twice, in a write transaction. Raises `StoreUnusable`."""

        def once() -> None:
            with self.writing(durable=durable) as connection:
                work(connection)

        self.insist(once)

    def close(self) -> None:
        """Close every connection. A temporary store is gone afterwards."""
        self.engine.dispose()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(where: str | Path | None = None, *, busy_timeout: int = BUSY_TIMEOUT) -> Store:
    """The store at a path, `sqlite:///PATH` or `postgresql://USER@HOST:PORT/DATABASE`, made (a file with mode 0600) or
    migrated as needed; `None` = a temporary one, gone on `close()`.

    Raises `StoreUnusable`, which says what is wrong with it and what to do. `busy_timeout`: milliseconds to wait for
    other writers.
    """
    folder = None
    if where is None:
        folder, where = temporary_path()
    database = database_of(where, busy_timeout=busy_timeout)
    return Store(database.engine(), database, folder)
