"""Replies remembered by content, so that a judge is not asked the same thing twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, select

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.keys import hash_text
from context_bench.core.ledger import current_ledger
from context_bench.engine.encoding import Damaged, dumps, pack, unpacked
from context_bench.engine.redaction import Secrets
from context_bench.engine.store import schema
from context_bench.engine.store.prepared import put
from context_bench.engine.store.store import Store

#: Replies held for those who ask the same before the first has been written.
_RECENT = 1_000


class StoredReplies:
    """A `ReplyCache` in a store: within a run, across its resumes, and across runs of one store.

    Only replies are kept, not what was asked. What can be asked again need not survive a loss of power by itself.
    `with_calls`: a reply goes into the open ledger, and into the store with the calls that paid for it (see
    `remember`): were it there before them, a run that is killed in between would have the answer and not the bill.
    """

    def __init__(
        self, store: Store, secrets: Secrets, *, clock: Clock = SYSTEM_CLOCK, with_calls: bool = False
    ) -> None:
        self._store, self._secrets, self._clock, self._with_calls = store, secrets, clock, with_calls
        self._recent: dict[str, dict[str, Any]] = {}  # may not be in the store yet

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply to a request of that key, if it was seen before."""
        if (recent := self._recent.get(key)) is not None:
            return recent
        query = select(schema.replies.c.reply).where(schema.replies.c.key == _key(key))

        def work() -> bytes | None:
            with self._store.reading() as connection:
                return connection.scalar(query)

        found = self._store.insist(work)
        try:
            reply = unpacked(found)
        except Damaged:  # what can be asked again is
            return None
        return reply if isinstance(reply, dict) else None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Remember a reply; the newest counts."""
        ledger = current_ledger() if self._with_calls else None
        if ledger is not None:
            ledger.replies[key] = self._recent[key] = reply
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            return

        def work() -> None:
            with self._store.writing(durable=False) as connection:
                remember(connection, {key: reply}, self._secrets, self._clock.now())

        self._store.insist(work)


def remember(connection: Connection, replies: Mapping[str, dict[str, Any]], secrets: Secrets, now: float) -> None:
    """Write replies, in the caller's transaction; the newest of a key counts."""
    rows = [(_key(key), now, pack(secrets.clean(dumps(reply)))) for key, reply in replies.items()]
    put(connection, schema.replies, ("key", "created", "reply"), sorted(rows))


@contextmanager
def caching_replies(replies: StoredReplies, evaluators: Iterable[Any]) -> Iterator[None]:
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
