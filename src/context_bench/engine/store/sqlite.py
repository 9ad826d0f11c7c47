"""A store in a SQLite file: made private, written with a lock from the beginning, durable when a commit returns."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from context_bench.core.errors import StoreUnusable
from context_bench.core.machine import expanded
from context_bench.engine.store.dialects import Unstorable
from context_bench.engine.store.schema import APPLICATION_ID, HEAD, checked, migrate

#: A type that it does not know, nothing where something must be, a text or blob that is too large.
_OF_A_VALUE = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
_STEPS = 100_000  # of SQLite's own, a few milliseconds: how often it asks for the time while it looks through a file
#: KiB of pages that a connection of a reader keeps, for a viewer has many and lives for days; SQLite's own is 2,000.
_READER_PAGES = 512


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """The file of a store. `busy_timeout`: milliseconds that a writer waits for another process to finish its
    transaction.
    """

    path: Path
    busy_timeout: int

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self.path)

    #: Nothing that ends by itself ever stands between us and a file.
    patience = 0.0

    def engine(self) -> Engine:
        """An engine on a current store, which is created (mode 0600, with its folder) or migrated as needed."""
        with self.explained():
            self._make()
            engine = create_engine(
                URL.create("sqlite", database=str(self.path)), connect_args={"timeout": self.busy_timeout / 1000}
            )
            _set_up(engine, (*self._always, "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"))
            try:
                self._bring_up_to_date(engine)
            except BaseException:
                engine.dispose()
                raise
            return engine

    def reader(self) -> Engine:
        """An engine that reads a current store and cannot write it: neither made nor migrated, and readable on a
        read-only disk.

        Raises `StoreUnusable` where there is none, or its schema is older or newer than this program's.
        """
        if not self.path.is_file():
            raise StoreUnusable(f"no store at {self.path}; a run makes one there, or name another")
        with self.explained():
            try:
                return self._reader("mode=ro")
            except (DatabaseError, sqlite3.Error):
                # Beside a store that nobody may write there is no room for the files that readers and writers share.
                # Then nobody writes it.
                if (
                    os.access(self.path.parent, os.W_OK)
                    and os.access(self.path, os.W_OK)
                    and not _read_only_disk(self.path)
                ):
                    raise
                log = self.path.with_name(f"{self.path.name}-wal")
                if log.exists() and log.stat().st_size:
                    raise
                return self._reader("mode=ro&immutable=1")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what SQLite and the file system say into a `StoreUnusable` that says what to do."""
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            if isinstance(getattr(error, "orig", error), _OF_A_VALUE):
                raise Unstorable(f"store {self.path} cannot hold a value: {getattr(error, 'orig', error)}") from error
            raise StoreUnusable(_advice(self.path, str(getattr(error, "orig", error)))) from error
        except OSError as error:
            said = error.strerror or error
            raise StoreUnusable(f"store {self.path} cannot be made: {said}; name another place with --store") from error

    def begin(self, engine: Engine, *, write: bool, durable: bool) -> Connection:
        """A connection in a transaction that reads one state, or writes alone; `durable`: its commit waits for the
        disk.
        """
        connection = engine.connect().execution_options(write=write)
        try:
            if write:
                self._still_there(connection)
            if write and connection.info.get("durable", True) != durable:
                raw: Any = connection.connection.driver_connection
                raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                connection.info["durable"] = durable
            connection.begin()
        except BaseException:
            connection.close()
            raise
        return connection

    def _still_there(self, connection: Connection) -> None:
        """A file that was removed or replaced can be written on for as long as it is open, and all of it is lost."""
        if "path" not in connection.info:  # as it was opened, wherever this process has gone since
            connection.info["path"] = connection.exec_driver_sql("PRAGMA database_list").all()[0][2]
            connection.rollback()
        try:
            found = Path(connection.info["path"]).stat()
            here = (found.st_dev, found.st_ino)
        except PermissionError as error:
            raise StoreUnusable(
                f"store {self.path} cannot be reached any more: {error.strerror}; put its mode right, then resume"
            ) from error
        except OSError:
            here = None
        if connection.info.setdefault("file", here) != here or here is None:
            raise StoreUnusable(
                f"store {self.path} was removed or replaced while it was in use; put it back, then resume"
            )

    def alone(self, connection: Connection, *, purging: bool = False) -> None:
        """Nobody else begins, ends or removes runs before this transaction ends: every write transaction of SQLite is
        alone.
        """

    def output_ids(self, connection: Connection, count: int) -> list[int]:
        """So many ids for new outputs."""
        last = connection.exec_driver_sql("SELECT max(id) FROM outputs").scalar() or 0
        return list(range(last + 1, last + 1 + count))

    def damage(self, connection: Connection, until: float) -> str | None:
        """The fault of a file whose pages or tables are not in order; `None` where none is found until then, by
        `time.monotonic`.
        """
        raw: Any = connection.connection.driver_connection
        raw.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            found = connection.exec_driver_sql("PRAGMA integrity_check(3)").scalars().all()
        except OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
                raise
            return None
        finally:
            raw.set_progress_handler(None, 0)
        return None if found == ["ok"] else _advice(self.path, f"malformed: {' · '.join(found)}")

    def shrink(self, engine: Engine) -> None:
        """Give space back. Another process with the store open only means that the file stays large."""
        try:
            with engine.connect() as connection:
                raw: Any = connection.connection.driver_connection
                raw.execute("VACUUM")
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise

    @property
    def _always(self) -> tuple[str, ...]:
        return (f"busy_timeout={self.busy_timeout}", "temp_store=MEMORY")

    def _make(self) -> None:
        if self.path.is_dir():
            raise StoreUnusable(f"store {self.path} is a folder; expected a file, such as {self.path / 'store.db'}")
        if self.path.exists() and not self.path.is_file():
            raise StoreUnusable(f"store {self.path} is a pipe or a device; expected a file")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # SQLite gives its -wal and -shm files the mode of the database itself.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not os.access(self.path, os.R_OK | os.W_OK):
                raise StoreUnusable(
                    f"store {self.path} may not be read and written by this user; name another with --store"
                ) from None

    def _reader(self, how: str) -> Engine:
        where = f"file:{quote(str(self.path.absolute()))}?{how}"

        def connect() -> sqlite3.Connection:
            return sqlite3.connect(where, uri=True, check_same_thread=False, timeout=self.busy_timeout / 1000)

        engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
        _set_up(engine, (*self._always, "query_only=ON", f"cache_size=-{_READER_PAGES}"))
        return checked(engine, self.name, self._version)

    def _bring_up_to_date(self, engine: Engine) -> None:
        with engine.connect() as connection:
            found = self._version(connection)
        if found == HEAD:
            return
        with engine.connect().execution_options(write=True) as connection, connection.begin():
            found = self._version(connection)  # another process may have been faster
            if found == HEAD:
                return
            if found is None:
                connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
            migrate(connection, self.name, found)

    def _version(self, connection: Connection) -> str | None:
        """The schema a store has, `None` of an empty file; refuses a database of something else."""
        tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
        if not tables:
            return None
        owner = connection.exec_driver_sql("PRAGMA application_id").scalar()
        if owner != APPLICATION_ID or "alembic_version" not in tables:
            raise StoreUnusable(f"store {self.path} is a database of another program; name another file with --store")
        self._refuse_additions(connection)
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()

    def _refuse_additions(self, connection: Connection) -> None:
        """A trigger changes what is written, a view what is read; a version that we never set was set by somebody
        else.
        """
        added = connection.exec_driver_sql(
            "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
        ).first()
        version = connection.exec_driver_sql("PRAGMA user_version").scalar()
        if added is not None or version:
            what = f"the {added[0]} {added[1]!r}" if added is not None else f"user_version {version}"
            raise StoreUnusable(
                f"store {self.path} was changed by another program: it has {what}, which no context-bench makes; "
                f"remove it if you know what it does, or name another file with --store"
            )


def path_of(where: str | Path) -> Path:
    """The SQLite file that `where` names: a path, or `sqlite:///PATH`."""
    text = str(where)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StoreUnusable(
            f"store {text.partition('://')[0]}://… is not a kind of store; expected a path, sqlite:///PATH or "
            "postgresql://USER@HOST/DATABASE"
        )
    if not text or text == ":memory:":
        raise StoreUnusable(f"store {text!r} is not a file; expected a path such as .context-bench/store.db")
    return expanded(text)


def temporary_path() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """A private folder for a store that nobody keeps."""
    folder = tempfile.TemporaryDirectory(prefix="context-bench-", ignore_cleanup_errors=True)
    return folder, Path(folder.name) / "store.db"


#: Phrases in what SQLite says → the fault and what to do about it; the first that occurs counts.
_ADVICE = (
    (("not a database",), "is not a SQLite database ({said}); name another file with --store"),
    (
        ("malformed", "corrupt"),
        "is damaged ({said}); move it away, or save what can be read: "
        "sqlite3 FILE .recover | sqlite3 NEW, then --store NEW",
    ),
    (("locked", "busy"), "is locked by another program ({said}); wait for it, or name another file with --store"),
    (
        ("full", "disk i/o"),
        "cannot be written ({said}); free some space, then resume: everything committed is kept",
    ),
    (
        ("readonly", "unable to open"),
        "cannot be written ({said}); check the permissions of the file and its folder, or name another with --store",
    ),
    (("",), "cannot be used: {said}"),
)


def _advice(path: Path, said: str) -> str:
    low = said.lower()
    return f"store {path} " + next(text for phrases, text in _ADVICE if any(map(low.__contains__, phrases))).format(
        said=said
    )


def _read_only_disk(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _set_up(engine: Engine, pragmas: Sequence[str]) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun by the listener below, not guessed by the driver
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock at once: a read lock cannot be turned into a write lock while another process writes.
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
