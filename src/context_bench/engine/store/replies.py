"""Replies remembered by content, so that a judge is not asked the same thing twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.keys import hash_text
from context_bench.engine.secrets import Secrets
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.encoding import dumps, pack, unpacked
from context_bench.engine.store.store import Store


class StoredReplies:
    """A `ReplyCache` in a store: within a run, across its resumes, and across runs of one store.

    Only replies are kept, not what was asked. What can be asked again need not survive a loss of power by itself.
    """

    def __init__(self, store: Store, secrets: Secrets, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._secrets, self._clock = store, secrets, clock

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply to a request of that key, if it was seen before."""
        query = select(schema.replies.c.reply).where(schema.replies.c.key == _key(key))

        def work() -> bytes | None:
            with self._store.reading() as connection:
                return connection.scalar(query)

        found = self._store.insist(work)
        reply = None if found is None else unpacked(found)
        return reply if isinstance(reply, dict) else None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Remember a reply; the newest counts."""
        row = {"key": _key(key), "created": self._clock.now(), "reply": pack(self._secrets.clean(dumps(reply)))}
        newer = {"created": row["created"], "reply": row["reply"]}

        def work() -> None:
            with self._store.writing(durable=False) as connection:
                adding = insert(connection, schema.replies).values(row)
                connection.execute(adding.on_conflict_do_update(index_elements=["key"], set_=newer))

        self._store.insist(work)


@contextmanager
def remembering(replies: StoredReplies, evaluators: Iterable[Any]) -> Iterator[None]:
    """Hand these replies, for the block, to every evaluator that can use them and has no cache of its own."""
    given = [evaluator for evaluator in evaluators if getattr(evaluator, "cache", replies) is None]
    for evaluator in given:
        evaluator.cache = replies
    try:
        yield
    finally:
        for evaluator in given:
            evaluator.cache = None


def _key(key: str) -> bytes:
    return bytes.fromhex(hash_text(key, 32))
