"""Values of a store that are not what was written: a bit flipped on a disk, in memory or on the way. They are found and named."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Table, select

from context_bench.engine.store import schema
from context_bench.engine.store.dialects import PACKED
from context_bench.engine.store.encoding import Damaged, sound, sound_body

#: Damaged values are looked for so long (seconds), and so many are named.
PATIENCE, _MOST_NAMED = 30.0, 5
_ADVICE = "put the file back from a copy of it, or measure those again in a new run"
_EXPORT = "; `context-bench export --format jsonl` writes the rows that are whole and names the others"
#: Tables of rows, of which an export names what is damaged and writes the others.
_OF_ROWS = frozenset({"outputs", "scores", "bodies", "calls", "forwarded"})


def packed_columns(table: Table) -> list[str]:
    """The columns of a table that hold packed values."""
    return [column.name for column in table.columns if isinstance(column.type, type(PACKED))]


def explained(name: str, connection: Connection | None) -> Damaged:
    """What is said of a store (`name`) in which something was found damaged: all that is, as far as it can be looked through."""
    found: list[str] = []
    if connection is not None:
        for place in damaged(connection, until=time.monotonic() + PATIENCE):
            found.append(place)
            if len(found) > _MOST_NAMED:
                break
    places = "; ".join(found[:_MOST_NAMED]) + ("; and more" if len(found) > _MOST_NAMED else "")
    advice = _ADVICE + (_EXPORT if connection is not None and _exportable(found, connection) else "")
    return Damaged(f"store {name} is damaged: {places or 'a value that was read'} cannot be what was written; {advice}")


def _exportable(found: list[str], connection: Connection) -> bool:
    """Whether an export of rows gets past the damage: it needs its run, and what it names are values of rows."""
    columns = packed_columns(schema.runs)
    if any(faults(schema.runs, row, columns) for row in connection.execute(select(schema.runs)).mappings()):
        return False
    return bool(found) and {place.partition(" ")[0] for place in found} <= _OF_ROWS


def damaged(connection: Connection, *, until: float) -> Iterator[str]:
    """Where the damaged values are, as table, row and column. `until`: when to give up, by `time.monotonic`."""
    for table in schema.metadata.sorted_tables:
        columns = packed_columns(table)
        if not columns:
            continue
        keys = [column.name for column in table.primary_key]
        for row in connection.execute(select(table)).mappings():
            if time.monotonic() > until:
                return
            faulty = faults(table, row, columns)
            if faulty:
                yield named(table.name, {key: row[key] for key in keys}, faulty)


def faults(table: Table, row: Mapping[Any, Any], columns: Iterable[str]) -> list[str]:
    """Those columns of a row that are damaged."""
    if table is schema.bodies:
        return [] if sound_body(row["key"], row["data"]) else ["data"]
    return [name for name in columns if row[name] is not None and not sound(row[name])]


def named(table: str, keys: Mapping[str, Any], columns: Iterable[str]) -> str:
    """How a message calls a row's values: `outputs id=12 (usage, wire)`."""
    place = " ".join(f"{key}={value.hex() if isinstance(value, bytes) else value}" for key, value in keys.items())
    return f"{table} {place} ({', '.join(columns)})"
