"""Transactions of one run: each counted by the run's pen, done again where the database went away, refused where another has the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, delete, select, update

from context_bench.core.errors import StoreUnusable
from context_bench.engine.store import schema
from context_bench.engine.store.postgres import StoreLost
from context_bench.engine.store.store import TRIES, Begun, Store, process_mark

T = TypeVar("T")
_p = schema.pens.c


@dataclass(slots=True)
class Pen:
    """What a process must hold to write in a run: a row of the store that counts its transactions."""

    store: Store
    run: Begun
    number: int
    written: int = 0

    @classmethod
    def taken(cls, connection: Connection, store: Store, run: Begun, *, works: bool) -> Pen:
        """A new pen. With `works`, only its holder works on the run's plan from here on: what another one has in hand cannot be written."""
        if works:
            connection.execute(delete(schema.pens).where(_p.run == run.number, _p.works))
        values = {"run": run.number, "works": works, "owner": process_mark(), "written": 0}
        made = connection.execute(schema.pens.insert().values(values)).inserted_primary_key
        assert made is not None
        return cls(store, run, int(made[0]))

    def write(self, work: Callable[[Connection], T], again: Callable[[], None], *, durable: bool) -> T:
        """Do `work` in one transaction, and after `again` once more where the database went away before the transaction was made."""
        for left in reversed(range(TRIES)):
            done: list[T] = []
            try:
                with self.store.writing(durable=durable) as connection:
                    self._sign(connection)
                    done.append(work(connection))
            except StoreLost:
                landed = self.store.insist(self._landed) if done else False
                if not landed:
                    again()
                    if not left:
                        raise
                    continue
            self.written += 1
            return done[0]
        raise AssertionError

    def _sign(self, connection: Connection) -> None:
        """Count this transaction, if the one before it is there and the run is still ours."""
        mine = update(schema.pens).where(_p.number == self.number, _p.written == self.written).values(written=self.written + 1)
        if connection.execute(mine).rowcount == 1:
            return
        if connection.scalar(select(_p.written).where(_p.number == self.number)) is None:
            raise StoreUnusable(f"run {self.run.name!r} was taken up by another process, or purged; this one ends here")
        raise StoreUnusable(
            f"store {self.store.name} came back without what it had written last; resume run {self.run.name!r}: answers are kept"
        )

    def _landed(self) -> bool:
        """Was the transaction made whose answer was lost? Waits for the database, and for the transaction if it is still going on."""
        query = select(_p.written).where(_p.number == self.number).with_for_update()
        with self.store.writing() as connection:
            return connection.scalar(query) == self.written + 1
