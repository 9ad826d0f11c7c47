"""Write what a run finds: its plan, outcomes and end, in transactions under the run's write lease.

Each transaction is counted by the lease's fencing token. It is repeated if the database went away, and refused if
another process took the run over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update

from context_bench.core.errors import Stop, StoreUnusable
from context_bench.core.machine import Clock, process_mark
from context_bench.core.records import Call, Example, Forwarded
from context_bench.engine.encoding import Damaged, Secrets, Serializer, body_key, dumps, pack, unpack, unpacked
from context_bench.engine.plan import PlannedArm, PlannedEvaluator, SetUp, StoredAnswer, WorkItem, WorkOutcome
from context_bench.engine.store import TRIES, Store, schema
from context_bench.engine.store.dialects import Unstorable, add_new, insert_one, reason, storing
from context_bench.engine.store.outcomes import Endpoints, OutcomeRows, write_bodies
from context_bench.engine.store.pending import (
    ExampleRow,
    Passed,
    Planned,
    PlanRows,
    Settled,
    SettledPlan,
    SourceRow,
    look_up,
    point,
    stretches,
)
from context_bench.engine.store.postgresql import StoreLost
from context_bench.engine.store.run_records import (
    AT_WORK,
    RUNNING,
    Begun,
    WantedRun,
    begin_run,
    end_run,
    find_arms,
    identity_of,
    put_summary,
    recount,
    register_arms,
    register_evaluators,
)

__all__ = [
    "ExampleRow",
    "SettledPlan",
    "Passed",
    "Planned",
    "WantedRun",
    "Writer",
    "identity_of",
]

T = TypeVar("T")
_p = schema.pens.c
# Built once: every transaction signs, and to say it took longer than to do it.
_SIGNED = (
    update(schema.pens)
    .where(_p.number == bindparam("pen"), _p.written == bindparam("before"))
    .values(written=bindparam("after"))
)


@dataclass(slots=True)
class WriteLease:
    """The write lease of a run: a row of the store that counts the transactions of the process that holds it (a fencing
    token).
    """

    store: Store
    run: Begun
    number: int
    written: int = 0

    @classmethod
    def taken(cls, connection: Connection, store: Store, run: Begun, *, works: bool) -> WriteLease:
        """A new pen. With `works`, only its holder works on the run's plan from here on: what another one has in hand
        cannot be written.
        """
        if works:
            connection.execute(delete(schema.pens).where(_p.run == run.number, _p.works))
        values = {"run": run.number, "works": works, "owner": process_mark(), "written": 0}
        return cls(store, run, insert_one(connection, schema.pens, values))

    def write(self, work: Callable[[Connection], T], again: Callable[[], None], *, durable: bool) -> T:
        """Do `work` in one transaction, and after `again` once more where the database went away before the transaction
        was made.
        """
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
        mine = {"pen": self.number, "before": self.written, "after": self.written + 1}
        if connection.execute(_SIGNED, mine).rowcount == 1:
            return
        if connection.scalar(select(_p.written).where(_p.number == self.number)) is None:
            raise StoreUnusable(f"run {self.run.name!r} was taken up by another process, or purged; this one ends here")
        raise StoreUnusable(
            f"store {self.store.name} came back without what it had written last; resume run {self.run.name!r}: "
            "answers are kept"
        )

    def _landed(self) -> bool:
        """Was the transaction made whose answer was lost? Waits for the database, and for the transaction if it is
        still going on.
        """
        query = select(_p.written).where(_p.number == self.number).with_for_update()
        with self.store.writing() as connection:
            return connection.scalar(query) == self.written + 1


Work = TypeVar("Work", WorkOutcome, SetUp)


@dataclass(slots=True)
class Writer:
    """One run's pen, and what it writes. `reuse`: "none", "run" or "all"; `bodies` as in `RunSettings`.

    `overhead`: attempts made for the run and for no row of it, by others (checks before it; who makes its examples).
    They are written down before whatever was made of them is.
    """

    store: Store
    clock: Clock
    secrets: Secrets
    reuse: str
    bodies: str
    arms: list[PlannedArm]
    evaluators: list[PlannedEvaluator]
    trials: int = 1
    overhead: list[Call] = field(default_factory=list)
    _at_work: str = ""
    settled: SettledPlan = field(default_factory=SettledPlan)
    run: Begun = field(init=False)
    _serializer: Serializer = field(init=False)
    _endpoints: Endpoints = field(init=False)
    _lease: WriteLease = field(init=False)
    _plan: PlanRows = field(init=False)
    _outcomes: OutcomeRows = field(init=False)

    # --- the run itself ---

    def begin(self, wanted: WantedRun, source: bytes | None = None) -> Begun:
        """Take up or make the run; register its arms and evaluators. `source` tells its examples from others, see
        `settled`.
        """
        with self.store.writing() as connection:
            self.store.database.alone(connection)
            begun = begin_run(connection, self.store.name, wanted, again=self.reuse != "none", clock=self.clock)
            self._hold(connection, begun, works=True)
            self._at_work = begun.id
            AT_WORK.add(begun.id)
            register_arms(connection, begun.number, self.arms)
            register_evaluators(connection, begun.number, self.evaluators)
            self._plan.source = SourceRow(begun.number, source)
            self.settled = self._plan.source.begin(connection, fresh=begun.fresh)
        return begun

    def book(self) -> None:
        """Write down, durably, what there is of `overhead`, and take it out."""
        if calls := list(self.overhead):
            self._write(lambda connection: self._outcomes.write_overhead(connection, calls))
            del self.overhead[: len(calls)]

    def let_go(self) -> None:
        """The run is no longer worked on by this process, however that came."""
        AT_WORK.discard(self._at_work)

    def take_up(self, number: int, run: str, name: str) -> None:
        """Write on in a stored run, with other evaluators; those of other names stay."""
        with self.store.writing() as connection:
            self._hold(connection, Begun(number, run, name, False, self.clock.now()), works=False)
            find_arms(connection, number, self.arms)
            put_summary(connection, number, None)
            register_evaluators(connection, number, self.evaluators, keep=True)

    def _hold(self, connection: Connection, run: Begun, *, works: bool) -> None:
        self.run, self._lease = run, WriteLease.taken(connection, self.store, run, works=works)
        self._serializer = Serializer(self.secrets)
        self._endpoints = Endpoints(self._serializer)
        self._plan = PlanRows(run.number, run.fresh, self.arms, self.trials, self.bodies, self._serializer)
        shared = (self._serializer, self._endpoints)
        self._outcomes = OutcomeRows(run.number, self.store.database, self.arms, self.trials, self.bodies, *shared)

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Do `work` in a transaction of the run's pen; bodies that it adds go along."""

        def all_of_it(connection: Connection) -> T:
            found = work(connection)
            write_bodies(connection, self._serializer.bodies)
            return found

        try:
            found = self._lease.write(all_of_it, self._forget, durable=durable)
        except BaseException:
            self._forget()
            raise
        self._serializer.bodies.committed()
        return found

    def _write_some(self, done: Sequence[Work], write: Callable[[Connection, Sequence[Work]], None]) -> None:
        """Write pieces of work in one transaction. Where one of them cannot be stored, each has its own, and that one
        keeps only why.
        """

        def work(connection: Connection) -> None:
            with storing():
                write(connection, done)

        try:
            self._write(work)
        except Exception as error:
            if isinstance(error, Stop) and not isinstance(error, Unstorable):
                raise
            if len(done) > 1:
                for one in done:
                    self._write_some([one], write)
            elif not done or not done[0].forsake(reason(error)):
                raise
            else:
                self._write_some(done, write)

    def _forget(self) -> None:
        """Forget the rows gathered for a transaction that was not made."""
        self._serializer.bodies.dropped()
        self._endpoints.forget()

    def beat(self) -> None:
        """Show processes on other machines that this one still lives."""
        living = update(schema.runs).where(schema.runs.c.number == self.run.number).values(updated=self.clock.now())
        self._write(lambda connection: connection.execute(living), durable=False)

    def manifest(self, manifest: dict[str, Any]) -> None:
        """Write what the run says about itself."""
        data = pack(self.secrets.clean(dumps(manifest)))
        told = update(schema.runs).where(schema.runs.c.number == self.run.number).values(manifest=data)
        self._write(lambda connection: connection.execute(told))

    def end(self, status: str, counts: dict[str, Any]) -> None:
        """Say how the run ended."""
        self._write(lambda connection: end_run(connection, self.run.number, status, counts, self.clock.now()))

    def recount(self) -> None:
        """Bring the run's stored counts up to date."""
        self._write(lambda connection: recount(connection, self.run.number))

    # --- the plan ---

    @property
    def has_past(self) -> bool:
        """Could an output that is wanted now be in the store already?"""
        return not self.run.fresh or self.reuse == "all"

    def passed(self, first: int, last: int, *, tapped: bool) -> Passed:
        """State of these positions of the plan, where it is settled. `tapped`: only an answer that a tap saw is one."""
        judges = [each.id for each in self.evaluators if not each.after]
        settled = Settled(self.run.number, self.arms, self.trials, tapped, judges)
        return self.store.read(lambda connection: settled.passed(connection, first, last))

    def plan(self, rows: list[ExampleRow], *, sure: bool = False) -> Planned:
        """Write examples, in order, and the rows they owe; fills in each `occurrence`. Returns what was planned there
        before.

        `sure`: they are the run's source's.
        """
        self.book()
        if not self.run.fresh:
            planned = self.store.read(lambda connection: self._unchanged(connection, rows))
            if planned is not None:
                return planned

        def work(connection: Connection) -> Planned:
            before: Planned = {}
            for some in stretches(rows):
                before |= self._plan.write(connection, some, sure=sure)
            return before

        return self._write(work, durable=False)

    def _unchanged(self, connection: Connection, rows: list[ExampleRow]) -> Planned | None:
        planned: Planned = {}
        for some in stretches(rows):
            found = self._plan.unchanged(connection, some)
            if found is None:
                return None
            planned |= found
        return planned

    def cut(self, positions: int, *, sure: bool = False) -> None:
        """The examples ended after `positions` of them: plan rows beyond are of an earlier, longer plan.

        `sure`: they were the run's source's, and what the plan points to answers them.
        """
        self.book()
        if not self.run.fresh or sure:
            self._write(lambda connection: self._plan.cut(connection, positions, sure=sure))

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, StoredAnswer]:
        """Stored outputs that answer these keys: this run's, or with `reuse="all"` the best of any run."""
        if not keys or not self.has_past:
            return {}
        anywhere = self.reuse == "all"
        return self.store.read(lambda connection: look_up(connection, keys, self.run.number, anywhere=anywhere))

    def point(self, units: Sequence[WorkItem]) -> None:
        """Let the plan rows of these units point to the outputs that answer them already."""
        arms, run = self.arms, self.run.number
        rows = [
            (unit.output, run, arms[unit.arm].number, unit.position, unit.trial)
            for unit in units
            if unit.output is not None
        ]
        if rows:
            self._write(lambda connection: point(connection, rows), durable=False)

    def stored_output(self, output: int) -> Example:
        """The fields that the system added to the example, from an earlier answer."""
        query = select(schema.outputs.c.output).where(schema.outputs.c.id == output)
        return self.store.read(lambda connection: dict(unpacked(connection.scalar(query), {})))

    def stored_wire(self, output: int) -> tuple[dict[str, Any], int | None]:
        """The `wire` of a stored answer, and the tokens that were forwarded."""
        query = select(schema.outputs.c.wire, schema.outputs.c.output_tokens).where(schema.outputs.c.id == output)
        wire, tokens = self.store.read(lambda connection: connection.execute(query).one())
        return dict(unpacked(wire, {})), tokens

    # --- finished work ---

    def commit(self, outcomes: Sequence[WorkOutcome]) -> None:
        """Write a batch of outcomes in one transaction; when this returns they are durable and have their ids."""
        now = self.clock.now()
        self._write_some(outcomes, lambda connection, some: self._outcomes.commit(connection, some, now))

    def unmatched(self, records: list[Forwarded]) -> None:
        """Keep requests that nobody can be named for."""
        self._write(lambda connection: self._write_late(connection, None, None, records))

    def join_late(self, output: int, records: list[Forwarded], joined: dict[str, Any], tokens: int | None) -> None:
        """Add requests that arrived after the row was closed, with the row's new `wire` and forwarded tokens."""

        def work(connection: Connection) -> None:
            self._write_late(connection, output, None, records)
            values = {"wire": self._serializer.json(joined), "output_tokens": tokens, "source": joined.get("source")}
            connection.execute(update(schema.outputs).where(schema.outputs.c.id == output).values(values))

        self._write(work)

    def join_late_to_setup(self, setup: int, records: list[Forwarded]) -> None:
        """Add requests that arrived after the set-up was over."""
        self._write(lambda connection: self._write_late(connection, None, setup, records))

    def _write_late(
        self, connection: Connection, output: int | None, setup: int | None, records: list[Forwarded]
    ) -> None:
        self._outcomes.write_forwarded(connection, (output, 0, setup), records, self.bodies in ("all", "auto"))

    # --- set-ups of groups ---

    def begin_setup(self, setup: SetUp) -> None:
        """Write down, durably, that a group is going to be set up; gives the set-up its id and the number of the
        attempt.

        So an attempt that the process does not survive is counted, and the next one knows of it.
        """
        self._write(lambda connection: self._outcomes.begin_setup(connection, setup, self.clock.now()))

    def end_setup(self, setup: SetUp) -> None:
        """Write down, durably, what came of it."""
        self._write_some([setup], lambda connection, _: self._outcomes.end_setup(connection, setup))


def keep_summary(store: Store, run: str, summary: Mapping[str, Any]) -> None:
    """Keep with a stored run (id) what lists of runs say of it, until its rows, scores or manifest change."""
    r = schema.runs.c
    store.write(
        lambda connection: put_summary(connection, connection.scalar(select(r.number).where(r.id == run)), summary)
    )


_PAGE = b"page\n"  # no JSON begins so: what is kept under this can be no body of a row
_NO_BODY = bytes(16).hex()


def keep_page(store: Store, run: str, state: str, page: str) -> None:
    """Keep the page of a stored run (id) as text, for as long as the run's state is the given one (`kept_page`)."""
    data = _PAGE + page.encode("utf-8", "surrogatepass")
    _keep(store, run, state, [data], lambda keys: {"key": keys[0]})


def keep_columns(store: Store, run: str, state: str, head: bytes, columns: Sequence[bytes]) -> None:
    """Keep columns of a stored run (id), whose `head` names them by their keys, as long as it is in this state."""
    _keep(store, run, state, [head, *columns], lambda keys: {"columns": keys[0], "bodies": keys[1:]})


def _keep(
    store: Store, run: str, state: str, bodies: Sequence[bytes], named: Callable[[list[str]], dict[str, Any]]
) -> None:
    """Keep bodies under names beside what was kept in the same state; what was kept in another goes."""
    r, here = schema.runs.c, (schema.runs.c.id == run) & (schema.runs.c.status != RUNNING)
    told = named([body_key(data).hex() for data in bodies])
    packed = {body_key(data): pack(data) for data in bodies}

    def work(connection: Connection) -> None:
        counts = unpacked(connection.scalar(select(r.counts).where(here)), {})
        if (stored := counts.get("stored")) is None:
            return
        before = stored.get("page") or {}
        after = {**(before if before.get("state") == state else {"state": state, "key": _NO_BODY}), **told}
        gone = [*(bytes.fromhex(key) for key in _keys(before) - _keys(after)), *packed]  # what is there may be damaged
        connection.execute(delete(schema.bodies).where(schema.bodies.c.key.in_(gone)))
        connection.execute(
            update(schema.runs).where(here).values(counts=pack(dumps({**counts, "stored": {**stored, "page": after}})))
        )
        add_new(connection, schema.bodies, ("key", "data"), list(packed.items()))

    store.write(work)


def _keys(kept: Mapping[str, Any]) -> set[str]:
    """Keys of all bodies that are kept with a run."""
    return {key for key in (kept.get("key"), kept.get("columns"), *kept.get("bodies", ())) if key}


def kept_page(store: Store, run: str) -> tuple[str, str | None]:
    """The state of a stored run (id), and the page that was kept of it in this state; `None` without one.

    The state changes with the run's status, counts and manifest, and with each transaction that wrote in it; in any run
    of the store, where one goes on or an answer may belong to several.
    """
    state, page = _kept(store, run, "key")
    return state, page.removeprefix(_PAGE).decode("utf-8", "surrogatepass") if page.startswith(_PAGE) else None


def kept_columns(store: Store, run: str) -> bytes:
    """The head of the columns that were kept with a run (id) in its present state; empty without one."""
    return _kept(store, run, "columns")[1]


def _kept(store: Store, run: str, name: str) -> tuple[str, bytes]:
    r, b = schema.runs.c, schema.bodies.c
    with store.reading() as connection:
        told = connection.execute(select(r.number, r.id, r.status, r.counts)).all()
        counted = {row.number: unpacked(row.counts, {}) for row in told}
        number, status = next((row.number, row.status) for row in told if row.id == run)
        shared = any(row.status == RUNNING or counted[row.number].get("reused") for row in told)
        pens = connection.execute(select(_p.run, _p.number, _p.written).order_by(_p.number)).all()
        counts = counted[number]
        stored = counts.pop("stored", None) or {}
        kept = stored.pop("page", None) or {}
        own = [number, run, status, counts, {**stored, "summary": None}, len(told) if shared else 0]
        written = [tuple(pen) for pen in pens if shared or pen.run == number]
        manifest = connection.scalar(select(r.manifest).where(r.number == number)) or b""
        state = sha256(dumps([own, written]) + manifest).hexdigest()
        if kept.get("state") != state or name not in kept:
            return state, b""
        data = connection.scalar(select(b.data).where(b.key == bytes.fromhex(kept[name])))
    try:
        return state, b"" if data is None else unpack(data)
    except Damaged:
        return state, b""
