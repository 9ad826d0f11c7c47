"""Insert many rows: the statement's text is made once for each database, and values go to the driver as they are.

SQLAlchemy's own way works out every value of every row by its column; that was most of the cost of a row. Serializers
and the numbers of endpoints and evaluators, which rows refer to, are here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Dialect, Select, String, Table, bindparam, delete, select, update

from context_bench.core.keys import hash_text
from context_bench.core.records import Call, Usage
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Bodies, dumps, pack
from context_bench.engine.plan import PlannedArm, PlannedEvaluator
from context_bench.engine.redaction import Secrets
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert, inserting, written
from context_bench.engine.store.schema import plan


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
    """A query whose rows are taken as the driver gives them: texts are still written the database's own way."""

    select: Select[Any]
    names: tuple[str, ...]  # of its values, in order

    def rows(self, connection: Connection, *values: Any) -> list[tuple[Any, ...]]:
        """All rows, for values in that order."""
        result = connection.exec_driver_sql(_asking(connection.dialect.name, self), values)
        found: Any = result.cursor.fetchall()
        result.close()
        return cast("list[tuple[Any, ...]]", found)


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


def point(connection: Connection, rows: Sequence[tuple[int | None, int, int, int, int]]) -> None:
    """Let plan rows point to outputs: (output, run, arm, position, trial)."""
    _pointing(connection.dialect.name).run(connection, rows)


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
    return _compiled(database, statement, columns, table)


@cache
def _pointing(database: str) -> Many:
    columns = ("output", "run", "arm", "position", "trial")
    named: dict[str, Any] = {name: bindparam(f"the_{name}") for name in columns}
    statement = (
        update(plan).where(*(plan.c[name] == named[name] for name in columns[1:])).values(output=named["output"])
    )
    return _compiled(database, statement, tuple(f"the_{name}" for name in columns), plan)


def _compiled(database: str, statement: Any, names: tuple[str, ...], table: Table) -> Many:
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


@dataclass(slots=True)
class Serializer:
    """Makes bytes and texts of what a run writes; gathers its bodies until the transaction that takes them along."""

    secrets: Secrets
    bodies: Bodies = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.secrets.clean)

    def json(self, value: Any) -> bytes:
        """Any value, packed."""
        return pack(self.secrets.clean(dumps(value)))

    def json_or_null(self, value: Any) -> bytes | None:
        """The same, and nothing for what is empty."""
        return pack(self.secrets.clean(dumps(value))) if value else None

    def text(self, text: str) -> str:
        """A message."""
        return utf8_safe(self.secrets.text(text))

    def text_or_null(self, text: str | None) -> str | None:
        """A message, if there is one."""
        return None if text is None else utf8_safe(self.secrets.text(text))

    def usage(self, usage: Usage | None) -> bytes | None:
        """Tokens as they were billed, as far as they are known."""
        if not usage:
            return None
        told = {name: number for name in _USAGE if (number := getattr(usage, name)) is not None}
        return pack(dumps(told))

    def body(self, value: Any) -> bytes:
        """Keep a body with the next transaction; its key."""
        return self.bodies.add(value)


_USAGE = tuple(Usage.__dataclass_fields__)


def write_bodies(connection: Connection, bodies: Bodies) -> None:
    """Write what was gathered and is not there yet, in the order of keys: two writers never wait for one another in a
    circle.
    """
    add_new(connection, schema.bodies, ("key", "data"), sorted(bodies.fresh.items()))
    links = sorted((link["body"], link["part"]) for link in bodies.links)
    add_new(connection, schema.body_parts, ("body", "part"), links)


#: Characters of a model's or a server's name that an index takes in any database.
_LONGEST = 600


def identity_of(
    arms: Sequence[PlannedArm], evaluators: Sequence[PlannedEvaluator], settings: dict[str, Any], datasets: Any
) -> str:
    """The identity of a run, equal for two commands that mean the same: arms and their partners, evaluators, seed and
    trials, datasets.
    """
    parts = [
        [[arm.name, arm.key, arm.arm.budget_from] for arm in arms],
        [each.key for each in evaluators],
        settings,
        dumps(datasets).decode("utf-8", "replace"),
    ]
    return hash_text(dumps(parts).decode("utf-8", "replace"))


def register_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms their numbers, and drop the plan of those that are gone."""
    arms, plan = schema.arms, schema.plan
    stored = {row.name: row for row in connection.execute(select(arms).where(arms.c.run == run))}
    known = {name: row.arm for name, row in stored.items()}
    number = max(known.values(), default=-1)
    connection.execute(update(arms).where(arms.c.run == run).values(ordinal=None))
    for ordinal, arm in enumerate(chosen):
        name = utf8_safe(arm.name)
        if name not in known:
            number += 1
            known[name] = number
        arm.number = known[name]
        values = {"name": name, "ordinal": ordinal, "key": bytes.fromhex(arm.key)}
        if (
            name in stored and stored[name].key != values["key"]
        ):  # another system under an old name: its answers are not this one's
            connection.execute(update(plan).where(plan.c.run == run, plan.c.arm == arm.number).values(output=None))
        adding = insert(connection, arms).values(run=run, arm=arm.number, **values)
        connection.execute(adding.on_conflict_do_update(index_elements=["run", "arm"], set_=values))
    present = [arm.number for arm in chosen]
    connection.execute(delete(plan).where(plan.c.run == run, plan.c.arm.not_in(present)))


def find_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms the numbers that the run knows their names by."""
    a = schema.arms.c
    known = {row.name: row.arm for row in connection.execute(select(a.name, a.arm).where(a.run == run))}
    for arm in chosen:
        arm.number = known[utf8_safe(arm.name)]


def register_evaluators(
    connection: Connection, run: int, chosen: Sequence[PlannedEvaluator], *, keep: bool = False
) -> None:
    """Give evaluators their ids and make them the run's; with `keep`, those of other names stay."""
    table, links = schema.evaluators, schema.run_evaluators
    for each in sorted(chosen, key=lambda each: each.key):
        key = bytes.fromhex(each.key)
        connection.execute(
            insert(connection, table).values(key=key, name=utf8_safe(each.name)).on_conflict_do_nothing()
        )
        found = connection.scalar(select(table.c.id).where(table.c.key == key))
        assert found is not None
        each.id = int(found)
    ids: list[int] = []
    if keep:
        names = {utf8_safe(each.name) for each in chosen}
        linked = select(table.c.id, table.c.name).join(links, links.c.evaluator == table.c.id)
        before = linked.where(links.c.run == run).order_by(links.c.ordinal)
        ids = [row.id for row in connection.execute(before) if row.name not in names]
    ids = list(dict.fromkeys([*ids, *(each.id for each in chosen)]))
    connection.execute(delete(links).where(links.c.run == run))
    if ids:
        connection.execute(links.insert(), [{"run": run, "ordinal": n, "evaluator": one} for n, one in enumerate(ids)])


@dataclass(slots=True)
class Endpoints:
    """Numbers of the models and servers that calls went to, as calls name them."""

    serializer: Serializer
    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def meet(self, connection: Connection, calls: Iterable[Call]) -> None:
        """Give those of these calls their numbers: in the order of their names, as every writer does."""
        new = {(call.model, call.url) for call in calls if (call.model, call.url) not in self.known}
        if not new:
            return
        e, text = schema.endpoints, self.serializer.text
        named = sorted(((text(model)[:_LONGEST], text(url)[:_LONGEST]), (model, url)) for model, url in new)
        for (model, url), told in named:
            connection.execute(insert(connection, e).values(model=model, url=url).on_conflict_do_nothing())
            number = connection.scalar(select(e.c.id).where(e.c.model == model, e.c.url == url))
            assert number is not None
            self.known[told] = int(number)

    def number(self, call: Call) -> int:
        """The number of an endpoint that was met."""
        return self.known[call.model, call.url]

    def forget(self) -> None:
        """The transaction that met them was not made."""
        self.known.clear()
