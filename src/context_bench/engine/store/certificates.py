"""State of limits that outlive a process: one row for each set of limits, and which sessions of a folder were counted.

Two processes must not count on the same state, so who works with one owns it until it lets go or is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import StoreUnusable
from context_bench.engine.encoding import dumps, pack, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.dialects import insert, put
from context_bench.engine.store.run_records import process_mark, still_alive


class CertificateLog:
    """The state under one key (16 bytes), owned by this process. `state`: as it was found; `None`: there was none.

    Raises `StoreUnusable` while another process owns it.
    """

    def __init__(self, store: Store, key: bytes, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self.key, self._clock = store, key, clock
        self.state: dict[str, Any] | None = None
        store.insist(self._take)

    def _take(self) -> None:
        c, now, mark = schema.certificates.c, self._clock.now(), process_mark()
        with self._store.writing() as connection:
            self._store.database.alone(connection)
            row = connection.execute(select(schema.certificates).where(c.key == self.key)).first()
            if row is None:
                values = {"key": self.key, "created": now, "updated": now, "owner": mark, "state": pack(dumps(None))}
                connection.execute(insert(connection, schema.certificates).values(values))
                return
            if row.owner != mark and still_alive(row.owner, row.updated, self._clock):
                raise StoreUnusable(
                    f"the same limits are being kept by another process in store {self._store.name}: two that count "
                    "apart would each forget what the other saw. Wait for it, or name another store with --store"
                )
            self.state = unpacked(row.state, None)
            connection.execute(update(schema.certificates).where(c.key == self.key).values(owner=mark, updated=now))

    def write(
        self, state: Mapping[str, Any], counted: Mapping[bytes, int] | None = None, *, release: bool = False
    ) -> None:
        """Keep a state, and of sessions that were counted now their number of requests by digest (16 bytes)."""
        rows = [(self.key, session, requests) for session, requests in (counted or {}).items()]
        values = {"state": pack(dumps(state)), "updated": self._clock.now()} | ({"owner": None} if release else {})
        changed = update(schema.certificates).where(schema.certificates.c.key == self.key).values(values)

        def both(connection: Any) -> None:
            connection.execute(changed)
            if rows:
                put(connection, schema.counted_sessions, ("certificate", "session", "requests"), rows)

        self._store.write(both)

    def counted(self) -> dict[bytes, int]:
        """The sessions that were counted, with the number of requests that they had."""
        c = schema.counted_sessions.c
        with self._store.reading() as connection:
            found = connection.execute(select(c.session, c.requests).where(c.certificate == self.key))
            return {bytes(row.session): row.requests for row in found}
