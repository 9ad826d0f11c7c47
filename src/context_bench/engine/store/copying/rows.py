"""What all copies do: rows as they stand in one store, and the bodies that belong to them, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, func, select

from context_bench.core.iterables import by_count, by_size
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import PACKED, insert
from context_bench.engine.store.encoding import Damaged, sound, sound_body
from context_bench.engine.store.store import Store

#: Rows of one transaction, and bytes of bodies that are held at once.
ROWS, BYTES = 200, 8_000_000

Values = dict[str, Any]


def all_of(connection: Connection, query: Any) -> list[Values]:
    """What a query finds, each row by the names of its columns. Raises `Damaged`: what is not what was written is not copied."""
    found = connection.execute(query)
    names = list(found.keys())
    rows = [dict(zip(names, row, strict=True)) for row in found]
    packed = [column.name for column in query.selected_columns if isinstance(column.type, type(PACKED))]
    bodies = "data" in names
    for row in rows:
        if bodies and not sound_body(row["key"], row["data"]):
            raise Damaged
        if not bodies and not all(row[name] is None or sound(row[name]) for name in packed):
            raise Damaged
    return rows


def add(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Write rows, if there are any."""
    if rows:
        connection.execute(table.insert(), list(rows))


def copy_bodies(source: Store, connection: Connection, keys: Iterable[bytes | None]) -> int:
    """Bring over bodies with these keys, and their parts, those that are not there; returns how many these were."""
    bodies, parts = schema.bodies, schema.body_parts
    wanted = {key for key in keys if key is not None}
    if not wanted:
        return 0
    written = 0
    with source.reading() as reading:
        links = all_of(reading, select(parts).where(parts.c.body.in_(wanted)))
        wanted |= {row["part"] for row in links}
        for some in by_count(sorted(wanted), ROWS):
            there = set(connection.scalars(select(bodies.c.key).where(bodies.c.key.in_(some))))
            sizes = select(bodies.c.key, func.length(bodies.c.data)).where(bodies.c.key.in_(set(some) - there)).order_by(bodies.c.key)
            for group in by_size(reading.execute(sizes).all(), itemgetter(1), BYTES):
                keys = [key for key, _ in group]
                rows = all_of(reading, select(bodies).where(bodies.c.key.in_(keys)).order_by(bodies.c.key))
                connection.execute(insert(connection, bodies).on_conflict_do_nothing(), rows)
                written += len(rows)
    if links:
        links.sort(key=lambda row: (row["body"], row["part"]))
        connection.execute(insert(connection, parts).on_conflict_do_nothing(), links)
    return written
