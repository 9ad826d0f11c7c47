"""Opening a store: where it lives, who may read it, is it ours, is its schema the one we know."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from context_bench.core.errors import StoreUnusable
from context_bench.engine.store.schema import APPLICATION_ID, HEAD

#: Milliseconds that a writer waits for another process to finish its transaction.
BUSY_TIMEOUT = 30_000


def path_of(where: str | Path) -> Path:
    """The SQLite file that `where` names: a path, or `sqlite:///PATH`."""
    text = str(where)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StoreUnusable(f"store {text.partition('://')[0]}://… is not a kind of store; expected a path or sqlite:///PATH")
    if not text or text == ":memory:":
        raise StoreUnusable(f"store {text!r} is not a file; expected a path such as .context-bench/store.db")
    return Path(text).expanduser()


def engine_at(path: Path, *, busy_timeout: int = BUSY_TIMEOUT) -> Engine:
    """An engine on a current store at `path`, which is created (mode 0600, with its folder) or migrated as needed."""
    with explained(path):
        _make_file(path)
        engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": busy_timeout / 1000})
        _set_up(engine, (f"busy_timeout={busy_timeout}", "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "temp_store=MEMORY"))
        try:
            _bring_up_to_date(engine, path)
        except BaseException:
            engine.dispose()
            raise
        return engine


def reader_at(path: Path, *, busy_timeout: int = BUSY_TIMEOUT) -> Engine:
    """An engine that reads a current store at `path` and cannot write it: neither made nor migrated, and readable on a read-only disk.

    Raises `StoreUnusable` where there is none, or its schema is older or newer than this program's.
    """
    if not path.is_file():
        raise StoreUnusable(f"no store at {path}; a run makes one there, or name another")
    with explained(path):
        try:
            return _reader(path, "mode=ro", busy_timeout)
        except (DatabaseError, sqlite3.Error):
            # Beside a store that nobody may write there is no room for the files that readers and writers share. Then nobody writes it.
            if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK) and not _read_only_disk(path):
                raise
            if path.with_name(f"{path.name}-wal").exists() and path.with_name(f"{path.name}-wal").stat().st_size:
                raise
            return _reader(path, "mode=ro&immutable=1", busy_timeout)


def _reader(path: Path, how: str, busy_timeout: int) -> Engine:
    where = f"file:{quote(str(path.absolute()))}?{how}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(where, uri=True, check_same_thread=False, timeout=busy_timeout / 1000)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    _set_up(engine, (f"busy_timeout={busy_timeout}", "query_only=ON", "temp_store=MEMORY"))
    try:
        with engine.connect() as connection:
            found = _version(connection, path)
        if found != HEAD:
            known = "nothing in it yet" if found is None else f"schema {found}, this version of context-bench reads {HEAD}"
            raise StoreUnusable(f"store {path} has {known}; `context-bench runs --store {path}` brings an older one up to date")
        return engine
    except BaseException:
        engine.dispose()
        raise


def _read_only_disk(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def temporary_path() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """A private folder for a store that nobody keeps."""
    folder = tempfile.TemporaryDirectory(prefix="context-bench-", ignore_cleanup_errors=True)
    return folder, Path(folder.name) / "store.db"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say about `path` into a `StoreUnusable` that says what to do."""
    try:
        yield
    except (DatabaseError, OperationalError, sqlite3.Error) as error:
        raise StoreUnusable(_advice(path, str(getattr(error, "orig", error)))) from error
    except OSError as error:
        raise StoreUnusable(f"store {path} cannot be made: {error.strerror or error}; name another place with --store") from error


def _advice(path: Path, said: str) -> str:
    low = said.lower()
    if "not a database" in low:
        return f"store {path} is not a SQLite database ({said}); name another file with --store"
    if "malformed" in low or "corrupt" in low:
        return (
            f"store {path} is damaged ({said}); move it away, or save what can be read: "
            f"sqlite3 FILE .recover | sqlite3 NEW, then --store NEW"
        )
    if "locked" in low or "busy" in low:
        return f"store {path} is locked by another program ({said}); wait for it, or name another file with --store"
    if "full" in low or "disk i/o" in low:
        return f"store {path} cannot be written ({said}); free some space, then resume: everything committed is kept"
    if "readonly" in low or "unable to open" in low:
        return f"store {path} cannot be written ({said}); check the permissions of the file and its folder, or name another with --store"
    return f"store {path} cannot be used: {said}"


def _make_file(path: Path) -> None:
    if path.is_dir():
        raise StoreUnusable(f"store {path} is a folder; expected a file, such as {path / 'store.db'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # SQLite gives its -wal and -shm files the mode of the database itself.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreUnusable(f"store {path} may not be read and written by this user; name another with --store") from None


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


def synchronous(connection: Connection, durable: bool) -> None:
    """Say, before a transaction, whether its commit waits for the disk."""
    if connection.info.get("durable", True) != durable:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.info["durable"] = durable


def _bring_up_to_date(engine: Engine, path: Path) -> None:
    with engine.connect() as connection:
        found = _version(connection, path)
    if found == HEAD:
        return
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        found = _version(connection, path)  # another process may have been faster
        if found == HEAD:
            return
        if found is None:
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        migrate(connection, path, found)


def _version(connection: Connection, path: Path) -> str | None:
    """The schema a store has, `None` of an empty file; refuses a database of something else."""
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    if not tables:
        return None
    owner = connection.exec_driver_sql("PRAGMA application_id").scalar()
    if owner != APPLICATION_ID or "alembic_version" not in tables:
        raise StoreUnusable(f"store {path} is a database of another program; name another file with --store")
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def migrate(connection: Connection, path: Path, found: str | None) -> None:
    """Run the migrations between `found` and the newest, in the caller's transaction; refuses a schema we do not know."""
    import logging

    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    if found is not None and found not in known:
        raise StoreUnusable(
            f"store {path} has schema {found}, this version of context-bench knows up to {HEAD}; "
            f"use a newer context-bench, or name another file with --store"
        )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    command.upgrade(config, "head")
