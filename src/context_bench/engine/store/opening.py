"""Opening a store: which kind of database an address names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine

from context_bench.engine.store import postgresql as postgres
from context_bench.engine.store import sqlite

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
