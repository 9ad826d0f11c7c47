"""Copying what judges are remembered to have said: found by content, so that nobody there asks the same again."""

from __future__ import annotations

from sqlalchemy import select

from context_bench.engine.store import schema
from context_bench.engine.store.copying import rows as shared
from context_bench.engine.store.copying.rows import Values, all_of
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.store import Store


def copy_replies(source: Store, target: Store) -> int:
    """Bring over every remembered reply that is not there, or is older there; returns how many these were.

    What is there already is passed over, so a copy that was broken off goes on with what is missing.
    """
    copied, after = 0, b""
    while True:
        rows = _next(source, after)
        if not rows:
            return copied
        copied += _written(target, rows)
        after = rows[-1]["key"]


def _next(source: Store, after: bytes) -> list[Values]:
    """The next replies in the order of their keys."""
    key = schema.replies.c.key
    with source.reading() as connection:
        return all_of(connection, select(schema.replies).where(key > after).order_by(key).limit(shared.ROWS))


def _written(target: Store, rows: list[Values]) -> int:
    """Write those that are missing or newer; the number is right even if the answer to a commit was lost and it is tried again."""
    r = schema.replies.c
    new: dict[bytes, Values] = {}

    def work() -> None:
        with target.writing(durable=False) as connection:
            there = {
                row.key: row.created for row in connection.execute(select(r.key, r.created).where(r.key.in_([row["key"] for row in rows])))
            }
            found = [row for row in rows if row["key"] not in there or there[row["key"]] < row["created"]]
            new.update((row["key"], row) for row in found)
            if found:
                adding = insert(connection, schema.replies)
                newer = {name: adding.excluded[name] for name in ("created", "reply")}
                connection.execute(adding.on_conflict_do_update(index_elements=["key"], set_=newer), found)

    target.insist(work)
    return len(new)
