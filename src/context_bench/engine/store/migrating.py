"""Schemas of stores: from the one found to the one this program writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine

from context_bench.core.errors import StoreUnusable
from context_bench.engine.store.schema import HEAD


def migrate(connection: Connection, name: str, found: str | None) -> None:
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
