"""Schemas of stores: from the one found to the one this program writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from context_bench.core.errors import StoreUnusable
from context_bench.engine.store.schema import HEAD, metadata

# Alembic's own table, as it makes it. Who migrates down to nothing leaves it behind, empty.
_VERSION = """
CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""


_known: dict[str, tuple[str, ...]] = {}  # name of a dialect → its statements


def migrate(connection: Connection, name: str, found: str | None) -> None:
    """Bring the schema `found` to the newest, in the caller's transaction; refuses one we do not know.

    Where there is none yet, the newest is made at once, without Alembic: loading it takes longer than all of a short run. A test holds
    what is made this way and what the migrations make together.
    """
    if found is None:
        for statement in (*_statements(connection.dialect), _VERSION):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")
    else:
        upgrade(connection, name, found)


def _statements(dialect: Dialect) -> tuple[str, ...]:
    """What makes the tables and their indexes. Who makes many stores, as tests do, has it worked out once."""
    if dialect.name not in _known:
        tables = metadata.sorted_tables
        made = [CreateTable(table) for table in tables] + [CreateIndex(index) for table in tables for index in table.indexes]
        _known[dialect.name] = tuple(str(each.compile(dialect=dialect)) for each in made)
    return _known[dialect.name]


def upgrade(connection: Connection, name: str, found: str | None) -> None:
    """Run the migrations between `found` (`None`: an empty database) and the newest, in the caller's transaction."""
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
            f"store {name} has schema {found}, this version of context-bench knows up to {HEAD}; "
            f"use a newer context-bench, or name another store with --store"
        )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    command.upgrade(config, "head")


def checked(engine: Engine, name: str, version: Callable[[Connection], str | None]) -> Engine:
    """`engine`, if the store has the schema that this program reads; else it is disposed of."""
    try:
        with engine.connect() as connection:
            found = version(connection)
        if found != HEAD:
            known = "nothing in it yet" if found is None else f"schema {found}, this version of context-bench reads {HEAD}"
            raise StoreUnusable(f"store {name} has {known}; `context-bench runs --store {name}` brings an older one up to date")
        return engine
    except BaseException:
        engine.dispose()
        raise
