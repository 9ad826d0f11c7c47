"""What all copies do: rows as they stand in one store, and the bodies that belong to them, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, select

from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.store import Store

#: Rows of one transaction, and bytes of bodies that are held at once.
ROWS, BYTES = 200, 8_000_000

Values = dict[str, Any]


def all_of(connection: Connection, query: Any) -> list[Values]:
    """What a query finds, each row by the names of its columns."""
    found = connection.execute(query)
    names = list(found.keys())
    return [dict(zip(names, row, strict=True)) for row in found]


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
        for some in _pieces(sorted(wanted)):
            there = set(connection.scalars(select(bodies.c.key).where(bodies.c.key.in_(some))))
            sizes = select(bodies.c.key, func.length(bodies.c.data)).where(bodies.c.key.in_(set(some) - there)).order_by(bodies.c.key)
            for group in _small([(row[0], row[1]) for row in reading.execute(sizes)]):
                rows = all_of(reading, select(bodies).where(bodies.c.key.in_(group)).order_by(bodies.c.key))
                connection.execute(insert(connection, bodies).on_conflict_do_nothing(), rows)
                written += len(rows)
    if links:
        links.sort(key=lambda row: (row["body"], row["part"]))
        connection.execute(insert(connection, parts).on_conflict_do_nothing(), links)
    return written


def _small(sizes: Sequence[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """Keys in groups whose bodies are few bytes together; a large one is alone."""
    group, total = list[bytes](), 0
    for key, size in sizes:
        if group and total + size > BYTES:
            yield group
            group, total = [], 0
        group.append(key)
        total += size
    if group:
        yield group


def _pieces(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), ROWS):
        yield keys[start : start + ROWS]
