"""A store in a PostgreSQL database: in a schema of its own there, shared by processes on any number of machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from context_bench.core.errors import StoreUnusable, need
from context_bench.engine.store.dialects import Unstorable
from context_bench.engine.store.schema import HEAD, checked, migrate

#: What a store's address begins with.
SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://")
#: The oldest server that is tried; older ones are no longer mended by their makers.
OLDEST = 13
_OWN_SCHEMA = "context_bench"
_MARK = "context-bench results"  # comment on a table: it is ours
# Taken by who begins or removes runs, released with the transaction. The number is only a name.
_ALONE = 0x43545842
_SECRETS = ("password", "sslpassword")
# A peer that is gone is noticed within a minute. Each can be set in the address.
_NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class StoreLost(StoreUnusable):
    """The database went away, or asks to try a transaction again; what was committed is there."""


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """One schema of a database. `busy_timeout`: milliseconds to wait for what another process holds.

    `patience`: seconds that a store once open waits for a database that went away.
    """

    url: URL
    schema: str
    busy_timeout: int
    patience: float = 60.0

    @property
    def name(self) -> str:
        """Its name in messages: the address without its password."""
        return shown(self.url, self.schema)

    def engine(self) -> Engine:
        """An engine on a current store; its schema is created or migrated as needed."""
        engine = self._engine()
        try:
            with self.explained():
                self._bring_up_to_date(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def reader(self) -> Engine:
        """An engine that reads a current store and cannot write it. Raises `StoreUnusable` where there is none, or of
        another schema.
        """
        engine = self._engine(readonly=True)
        with self.explained():
            return checked(engine, self.name, self._version)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what the database says into a `StoreUnusable` that says what to do; `StoreLost` for what a second try
        may mend.
        """
        try:
            yield
        except DBAPIError as error:
            said = " ".join(str(error.orig).split())
            code = getattr(error.orig, "sqlstate", None) or ""
            if _is_of_a_value(error.orig, code):
                raise Unstorable(f"store {self.name} cannot hold a value: {said}") from error
            lost = error.connection_invalidated or _is_lost(code, said)
            raise (StoreLost if lost else StoreUnusable)(_advice(self.name, self.url, code, said)) from error

    def begin(self, engine: Engine, *, write: bool, durable: bool) -> Connection:
        """A connection in a transaction that reads one state, or writes; `durable`: its commit waits for the disk."""
        connection = engine.connect()
        try:
            if not write:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            connection.begin()
            if write and not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
        except BaseException:
            connection.close()
            raise
        return connection

    def alone(self, connection: Connection, *, purging: bool = False) -> None:
        """Nobody else begins or removes runs before this transaction ends; when `purging`, nobody writes at all."""
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ALONE})"))
        if purging:  # in the order in which writers come by them
            connection.execute(text("LOCK TABLE bodies, watches, runs IN EXCLUSIVE MODE"))
            connection.execute(
                text("SET LOCAL work_mem TO '256MB'")
            )  # "in none of these" is quick only where these fit

    def output_ids(self, connection: Connection, count: int) -> list[int]:
        """So many ids for new outputs, in rising order; nobody else gets them."""
        drawn = text("SELECT nextval(pg_get_serial_sequence('outputs', 'id')) FROM generate_series(1, :count)")
        return sorted(connection.execute(drawn, {"count": count}).scalars())

    def damage(self, connection: Connection, until: float) -> str | None:
        """Nothing that can be asked from here: a server looks after its own pages."""
        return None

    def shrink(self, engine: Engine) -> None:
        """Let the database use the freed space again; files get shorter where their end is free."""
        with self.explained(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for (table,) in connection.execute(
                text("SELECT tablename FROM pg_tables WHERE schemaname = :own"), {"own": self.schema}
            ).all():
                connection.exec_driver_sql(f'VACUUM "{table}"')

    def _engine(self, *, readonly: bool = False) -> Engine:
        need(["psycopg"], "a store in PostgreSQL", "postgres")
        engine = create_engine(
            self.url,
            connect_args={name: value for name, value in _NETWORK.items() if name not in self.url.query},
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            hide_parameters=True,  # texts of a run have no place in an error
        )

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _: Any) -> None:
            connection.autocommit = True
            connection.execute(f'SET search_path TO "{self.schema}"')
            connection.execute(f"SET lock_timeout TO {self.busy_timeout}")
            connection.execute("SET statement_timeout TO 0")
            connection.execute(_CLIENT_GONE)
            connection.execute(_DURABLE)
            connection.execute("SET idle_in_transaction_session_timeout TO 0")
            if readonly:
                connection.execute("SET default_transaction_read_only TO on")
            connection.autocommit = False

        return engine

    def _bring_up_to_date(self, engine: Engine) -> None:
        with engine.connect() as connection:
            _check_server(connection, self.name)
            found = self._version(connection)
        if found == HEAD:
            return
        with engine.connect() as connection, connection.begin():
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ALONE})"))
            found = self._version(connection)  # another process may have been faster
            if found == HEAD:
                return
            there = text("SELECT 1 FROM pg_namespace WHERE nspname = :own")
            if found is None and connection.execute(there, {"own": self.schema}).scalar() is None:
                connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
            migrate(connection, self.name, found)
            connection.exec_driver_sql(f"COMMENT ON TABLE alembic_version IS '{_MARK}'")

    def _version(self, connection: Connection) -> str | None:
        """The schema a store has, `None` where there is none yet; refuses tables of something else."""
        own = {"own": self.schema}
        tables = set(connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = :own"), own).scalars())
        if not tables:
            return None
        mark = None
        if "alembic_version" in tables:
            mark = connection.execute(text("SELECT obj_description('alembic_version'::regclass, 'pg_class')")).scalar()
        if mark != _MARK:
            raise StoreUnusable(
                f"store {self.name}: schema {self.schema!r} of that database is another program's; name another with "
                "?schema=NAME"
            )
        added = connection.execute(text(_ADDED), own).scalar()
        if added is not None:
            raise StoreUnusable(
                f"store {self.name} was changed by another program: it has the trigger or rule {added!r}, which no "
                "context-bench makes; "
                f"remove it if you know what it does, or name another schema with ?schema=NAME"
            )
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


# What changes the statements of others: a trigger, or a rule of a table.
_ADDED = """
    SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = :own AND NOT tgisinternal
    UNION ALL SELECT rulename FROM pg_rules WHERE schemaname = :own
    LIMIT 1
"""  # noqa: E501
# The server lets go of what a client held that is gone before others have waited for it in vain.
_CLIENT_GONE = "SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3"
# Whatever the server's default is, a commit waits for the disk; more than that ("remote_apply") is kept.
_DURABLE = """
    SELECT set_config('synchronous_commit', CASE WHEN reset_val IN ('off', 'local') THEN 'on' ELSE reset_val END, false)
    FROM pg_settings WHERE name = 'synchronous_commit'
"""


def is_postgres(where: str) -> bool:
    """Is this an address of a PostgreSQL database?"""
    return where.startswith(SCHEMES)


def database_of(where: str, *, busy_timeout: int) -> PostgresDatabase:
    """The database that an address names. `?schema=NAME` is ours, all other parameters are libpq's. Raises
    `StoreUnusable`.
    """
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        raise StoreUnusable(
            "store postgresql://… cannot be read; expected postgresql://USER@HOST:PORT/DATABASE (marks in a name as "
            "%40)"
        ) from None
    query = dict(url.query)
    schema = query.pop("schema", _OWN_SCHEMA)
    if not isinstance(schema, str) or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
        raise StoreUnusable(
            f"store {shown(url)}: {schema!r} cannot be a schema; expected small letters, digits and _ (not pg_…)"
        )
    return PostgresDatabase(url.set(drivername="postgresql+psycopg", query=query), schema, busy_timeout)


def shown(url: URL, schema: str = _OWN_SCHEMA) -> str:
    """An address that may be read by anybody, and typed where PGPASSWORD or ~/.pgpass has the password."""
    query = {name: value for name, value in url.query.items() if name not in _SECRETS}
    if schema != _OWN_SCHEMA:
        query["schema"] = schema
    bare = url._replace(drivername="postgresql", password=None)
    return bare.set(query=query).render_as_string()


def _check_server(connection: Connection, name: str) -> None:
    raw: Any = connection.connection.driver_connection
    version, encoding = raw.info.server_version // 10_000, raw.info.parameter_status("server_encoding")
    if version < OLDEST:
        raise StoreUnusable(f"store {name}: PostgreSQL {version} is too old; expected {OLDEST} or newer")
    if encoding != "UTF8":
        raise StoreUnusable(
            f"store {name}: the database's encoding is {encoding}; expected UTF8 (createdb --encoding UTF8 --template "
            "template0)"
        )


_GONE = (
    *(
        "connection refused",
        "server closed the connection",
        "connection is closed",
        "connection is lost",
        "no such file or directory",
    ),
    *(
        "timeout expired",
        "the database system is ",
        "terminating connection",
        "too many clients",
        "connection reset",
        "broken pipe",
    ),
)


def _is_lost(code: str, said: str) -> bool:
    """08: connection; 40: deadlock, or another was first; 55P03: locked; 57P: stopped or started; 53300: all places are
    taken.
    """
    if code:
        return code[:2] in ("08", "40") or code in ("55P03", "57P01", "57P02", "57P03", "53300")
    return any(each in said.lower() for each in _GONE)


def _is_of_a_value(error: Any, code: str) -> bool:
    """22: a number out of range and the like; 23502: nothing where something must be; 42804: of another type; 54: too
    large.
    """
    from psycopg import DataError, ProgrammingError

    return (
        code[:2] in ("22", "54")
        or code in ("23502", "42804", "42846")
        or (not code and isinstance(error, DataError | ProgrammingError))
    )


#: Codes, and forms of what a server says → the fault and what to do about it; the first that fits counts.
_ADVICE = (
    (
        ("28P01", "28000"),
        r"password authentication failed|no password supplied|pg_hba\.conf|authentication failed",
        " lets nobody in that way ({said}); set PGPASSWORD or ~/.pgpass, and check the user's name",
    ),
    (
        ("3D000",),
        r'database ".*does not exist',
        ": there is no such database ({said}); make it with createdb, or name another with --store",
    ),
    (
        ("42501",),
        r"permission denied",
        " may not be used by this user ({said}); a new store needs CREATE on the database, an old one grants",
    ),
    (
        ("53100",),
        r"no space left",
        " cannot be written ({said}); free some space there, then resume: everything committed is kept",
    ),
    (
        ("55P03",),
        r"(?!)",
        " is locked by another program ({said}); wait for it, then resume: everything committed is kept",
    ),
    (
        ("25006",),
        r"(?!)",
        " cannot be written ({said}); this may be a standby: name the primary with --store",
    ),
)
_NO_SERVER = re.compile(r"host name|resolve host|connection failed|connection to server")


def _advice(name: str, url: URL, code: str, said: str) -> str:
    for secret in (url.password, *(url.query.get(each) for each in _SECRETS)):
        if isinstance(secret, str) and len(secret) > 3:
            said = said.replace(secret, "***")
    low = said.lower()
    for codes, form, message in _ADVICE:
        if code in codes or re.search(form, low):
            return f"store {name}" + message.format(said=said)
    if _is_lost(code, said) or _NO_SERVER.search(low):
        return (
            f"store {name} cannot be reached ({said}); see that the server runs, then resume: everything "
            "committed is kept"
        )
    return f"store {name} cannot be used: {said}"
