"""The tables of a store. Migrations in `migrations/versions` create them; a test holds the two together.

A *run* owes one *plan* row per (arm, position, trial); a plan row points to the *output* that answers it. Outputs are
found by content key, so a run can use what an earlier one made. A *source* says of which examples a run's plan is
known to be, and how far. *Scores* belong to (output, evaluator); *calls* and *forwarded* requests to an output. A
*set-up* got a group of a run ready for its questions: the outputs of these name it, and calls and forwarded requests
of its own do. *Row notes* are what people wrote on a row, and of which example. *Replies* of judges are remembered by
the content of what they were asked. A *watch* of live traffic has *watched* records, one per request of a client. A
*certificate* is the state of limits over sessions, with the *counted sessions* of a folder. Large texts live once in
*bodies*. Who writes in a run holds its write lease, a row of *pens*: it counts the transactions, and is taken away by
who takes the run over. Keys are 16 raw bytes; JSON is stored packed (see `encoding`). There are no foreign keys: rows
are written by few places (`pending`, `outcomes`, `watches`), each in one transaction, and removed by one
(`remarks.purge`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Column, Connection, Dialect, Engine, Float, Index, LargeBinary, MetaData, Table
from sqlalchemy.schema import CreateIndex, CreateTable

from context_bench.core.errors import StoreUnusable
from context_bench.core.machine import quoted
from context_bench.engine.store.dialects import PACKED, TEXT, WHOLE

#: The newest migration. Checked against Alembic's own idea by a test, so that opening a current store need not load
#: Alembic.
HEAD = "0011"

#: "CTXB": marks a SQLite file as ours.
APPLICATION_ID = 0x43545842
metadata = MetaData()
runs = Table(
    "runs",
    metadata,
    Column("number", WHOLE, primary_key=True),
    Column("id", TEXT, nullable=False, unique=True),
    Column("name", TEXT, nullable=False, unique=True),
    Column("status", TEXT, nullable=False),  # running · done · interrupted · stopped
    Column("identity", TEXT, nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("owner", TEXT),  # the process at work on it
    Column("manifest", PACKED, nullable=False),
    Column("counts", PACKED, nullable=False),
    Column("title", TEXT),  # as people call it; its name stays, by which it is resumed
    Column("tags", TEXT),  # a line each
    Column("deleted", Float),  # when it was marked: hidden, until it is restored or purged
    sqlite_autoincrement=True,  # a number is never given twice: outputs remember it after their run is purged
)
pens = Table(
    "pens",
    metadata,
    Column("number", WHOLE, primary_key=True),
    Column("run", WHOLE, nullable=False),
    Column("works", Boolean, nullable=False),  # on the plan, as only one may; else it judges stored answers
    Column("owner", TEXT, nullable=False),
    Column(
        "written", WHOLE, nullable=False
    ),  # the latest transaction; tells, where the answer to a commit was lost, whether it was made
    sqlite_autoincrement=True,
)
arms = Table(
    "arms",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("arm", WHOLE, primary_key=True, autoincrement=False),
    Column("name", TEXT, nullable=False),
    Column("ordinal", WHOLE),  # place in the current plan; NULL = no longer part of it
    Column("key", LargeBinary(16), nullable=False),
    sqlite_with_rowid=False,
)
examples = Table(
    "examples",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("position", WHOLE, primary_key=True, autoincrement=False),
    Column("id", LargeBinary, nullable=False),  # JSON, so that 0 and "0" stay two
    Column("dataset", TEXT, nullable=False),
    Column("group", TEXT),
    Column("cluster", TEXT),
    Column("content", LargeBinary(16), nullable=False),
    Column("body", LargeBinary(16)),
    sqlite_with_rowid=False,
)
Index("examples_content", examples.c.run, examples.c.content)
plan = Table(
    "plan",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("arm", WHOLE, primary_key=True, autoincrement=False),
    Column("position", WHOLE, primary_key=True, autoincrement=False),
    Column("trial", WHOLE, primary_key=True, autoincrement=False),
    Column("output", WHOLE),  # NULL = owed
    sqlite_with_rowid=False,
)
row_notes = Table(
    "row_notes",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("arm", WHOLE, primary_key=True, autoincrement=False),
    Column("position", WHOLE, primary_key=True, autoincrement=False),
    Column("trial", WHOLE, primary_key=True, autoincrement=False),
    Column("content", LargeBinary(16), nullable=False),  # of the example that it was written on
    Column("tags", TEXT, nullable=False),  # a line each
    Column("note", TEXT, nullable=False),
    Column("updated", Float, nullable=False),
    sqlite_with_rowid=False,
)
sources = Table(
    "sources",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("source", LargeBinary(16), nullable=False),
    Column("positions", WHOLE, nullable=False),  # planned; what their plan rows point to answers them
    Column("ended", Boolean, nullable=False),  # there are no more
    sqlite_with_rowid=False,
)
outputs = Table(
    "outputs",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column("key", LargeBinary(16), nullable=False),
    Column("run", WHOLE, nullable=False),  # the run that made it
    Column("created", Float, nullable=False),
    Column("takes", WHOLE, nullable=False),  # how often it was tried, over all resumes
    Column("tapped", Boolean, nullable=False),
    Column("error", TEXT),
    Column("source", TEXT),  # of forwarded tokens: tap · usage · context
    Column("input_tokens", WHOLE),
    Column("output_tokens", WHOLE),
    Column("context_tokens", WHOLE),
    Column("latency", Float),
    Column("output", PACKED, nullable=False),
    Column("usage", PACKED),
    Column("wire", PACKED),
    Column("metadata", PACKED),
    Column("setup", WHOLE),  # of its group
)
Index("outputs_key", outputs.c.key, outputs.c.run, unique=True)
evaluators = Table(
    "evaluators",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column("key", LargeBinary(16), nullable=False, unique=True),
    Column("name", TEXT, nullable=False),
)
run_evaluators = Table(
    "run_evaluators",
    metadata,
    Column("run", WHOLE, primary_key=True, autoincrement=False),
    Column("ordinal", WHOLE, primary_key=True, autoincrement=False),
    Column("evaluator", WHOLE, nullable=False),
    sqlite_with_rowid=False,
)
scores = Table(
    "scores",
    metadata,
    Column("output", WHOLE, primary_key=True, autoincrement=False),
    Column("evaluator", WHOLE, primary_key=True, autoincrement=False),
    Column("values", PACKED),  # JSON; NULL = does not apply, or failed
    Column("error", TEXT),
    Column("usage", PACKED),
    sqlite_with_rowid=False,
)
endpoints = Table(
    "endpoints",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column("model", TEXT, nullable=False),
    Column("url", TEXT, nullable=False),
)
Index("endpoints_name", endpoints.c.model, endpoints.c.url, unique=True)
calls = Table(
    "calls",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column(
        "output", WHOLE
    ),  # NULL = of a set-up, of no row at all (`overhead`), or the run was stopped before there was one
    Column("run", WHOLE, nullable=False),
    Column("take", WHOLE, nullable=False),
    Column("evaluator", WHOLE),
    Column("account", TEXT, nullable=False),
    Column("endpoint", WHOLE, nullable=False),
    Column("attempt", WHOLE, nullable=False),
    Column("started", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("waited", Float, nullable=False),
    Column("ttft", Float),
    Column("status", WHOLE),
    Column("sent_tokens", WHOLE),
    Column("exact", Boolean, nullable=False),
    Column("cost", Float),
    Column("usage", PACKED),
    Column("finish_reason", TEXT),
    Column("error", TEXT),
    Column("request", LargeBinary(16)),
    Column("reply", LargeBinary(16)),
    Column("setup", WHOLE),  # made for it; then there is no output
    Column("in_flight", WHOLE),  # on its account when it was sent, itself included
)
Index("calls_output", calls.c.output)
forwarded = Table(
    "forwarded",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column("run", WHOLE, nullable=False),
    Column("output", WHOLE),  # NULL, and no set-up: nobody can be named for it
    Column("take", WHOLE, nullable=False),
    Column("record", PACKED, nullable=False),
    Column("request", LargeBinary(16)),
    Column("reply", LargeBinary(16)),
    Column("setup", WHOLE),
)
Index("forwarded_output", forwarded.c.output)
Index("forwarded_run", forwarded.c.run)
setups = Table(
    "setups",
    metadata,
    Column("id", WHOLE, primary_key=True),
    Column("run", WHOLE, nullable=False),
    Column("arm", WHOLE, nullable=False),
    Column("key", LargeBinary(16), nullable=False),  # the arm's: what made it what it is
    Column("trial", WHOLE, nullable=False),
    Column("group", TEXT),
    Column("position", WHOLE, nullable=False),  # of the group's first example
    Column("number", WHOLE, nullable=False),  # of the group among its arm's
    Column("attempt", WHOLE, nullable=False),
    Column("created", Float, nullable=False),
    Column("seconds", Float),  # NULL = it never ended
    Column("output", PACKED),
    Column("usage", PACKED),
    Column("error", TEXT),
    sqlite_autoincrement=True,
)
Index("setups_run", setups.c.run)
watches = Table(
    "watches",
    metadata,
    Column("number", WHOLE, primary_key=True),
    Column("name", TEXT, nullable=False, unique=True),
    Column("status", TEXT, nullable=False),  # running · done
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("owner", TEXT),  # the process at work on it
    Column("settings", PACKED, nullable=False),
    sqlite_autoincrement=True,
)
watched = Table(
    "watched",
    metadata,
    Column("watch", WHOLE, primary_key=True, autoincrement=False),
    Column("number", WHOLE, primary_key=True, autoincrement=False),
    Column("arm", TEXT, nullable=False),
    Column("session", TEXT, nullable=False),
    Column("turn", WHOLE, nullable=False),
    Column("record", PACKED, nullable=False),
    sqlite_with_rowid=False,
)
watched_bodies = Table(
    "watched_bodies",
    metadata,
    Column("watch", WHOLE, primary_key=True, autoincrement=False),
    Column("number", WHOLE, primary_key=True, autoincrement=False),
    Column("place", WHOLE, primary_key=True, autoincrement=False),  # 0 the client's request, then the calls in order
    Column("request", LargeBinary(16)),
    Column("reply", LargeBinary(16)),
    sqlite_with_rowid=False,
)
certificates = Table(
    "certificates",
    metadata,
    Column("key", LargeBinary(16), primary_key=True),  # of what is watched and its limits
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
    Column("owner", TEXT),  # the process that counts on it
    Column("state", PACKED, nullable=False),
)
counted_sessions = Table(
    "counted_sessions",
    metadata,
    Column("certificate", LargeBinary(16), primary_key=True),
    Column("session", LargeBinary(16), primary_key=True),
    Column("requests", WHOLE, nullable=False),
    sqlite_with_rowid=False,
)
replies = Table(
    "replies",
    metadata,
    Column("key", LargeBinary(16), primary_key=True),
    Column("created", Float, nullable=False),
    Column("reply", PACKED, nullable=False),
    sqlite_with_rowid=False,
)
bodies = Table(
    "bodies",
    metadata,
    Column("key", LargeBinary(16), primary_key=True),
    Column("data", PACKED, nullable=False),
)
body_parts = Table(
    "body_parts",
    metadata,
    Column("body", LargeBinary(16), primary_key=True),
    Column("part", LargeBinary(16), primary_key=True),
    sqlite_with_rowid=False,
)


#: Column → the table whose rows it names, wherever a column has this name. There are no foreign keys in the database.
_REFERENCES = {
    "run": "runs",
    "watch": "watches",
    "output": "outputs",
    "setup": "setups",
    "evaluator": "evaluators",
    "endpoint": "endpoints",
    "body": "bodies",
    "part": "bodies",
    "request": "bodies",
    "reply": "bodies",
}


def is_packed(column: Any) -> bool:
    """True for a column of packed values (see `encoding`)."""
    return isinstance(column.type, type(PACKED))


def references(table: Table) -> dict[str, str]:
    """Column → the table whose rows it names; a packed column holds values of its own, whatever its name."""
    columns = (column for column in table.columns if not is_packed(column))
    return {column.name: _REFERENCES[column.name] for column in columns if column.name in _REFERENCES}


# Alembic's own table, as it makes it. Who migrates down to nothing leaves it behind, empty.
_VERSION = """
CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""  # noqa: E501

_made_once: dict[str, tuple[str, ...]] = {}  # name of a dialect → its statements


def migrate(connection: Connection, name: str, found: str | None) -> None:
    """Bring the schema `found` to the newest, in the caller's transaction; refuses one we do not know.

    Where there is none yet, the newest is made at once, without Alembic: loading it takes longer than all of a short
    run. A test holds what is made this way and what the migrations make together.
    """
    if found is None:
        for statement in (*_statements(connection.dialect), _VERSION):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")
    else:
        upgrade(connection, name, found)


def _statements(dialect: Dialect) -> tuple[str, ...]:
    """Statements that make the tables and their indexes. Who makes many stores, as tests do, has it worked out once."""
    if dialect.name not in _made_once:
        tables = metadata.sorted_tables
        made = [CreateTable(table) for table in tables] + [
            CreateIndex(index) for table in tables for index in table.indexes
        ]
        _made_once[dialect.name] = tuple(str(each.compile(dialect=dialect)) for each in made)
    return _made_once[dialect.name]


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
            known = (
                "nothing in it yet" if found is None else f"schema {found}, this version of context-bench reads {HEAD}"
            )
            raise StoreUnusable(
                f"store {name} has {known}; `context-bench runs --store {quoted(name)}` brings an older one up to date"
            )
        return engine
    except BaseException:
        engine.dispose()
        raise
