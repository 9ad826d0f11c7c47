"""Everything a run writes, in whole transactions: chunks of its plan, and batches of finished work. Runs in the store's own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, select, update

from context_bench.core.clock import Clock
from context_bench.core.errors import StoreUnusable
from context_bench.core.keys import hash_text
from context_bench.core.records import Call, Example, Forwarded, plain
from context_bench.core.tokens import utf8_safe
from context_bench.engine.plan import BODIES_UP_TO, Found, Outcome, PlannedArm, PlannedEvaluator, Score, SetUp, Unit
from context_bench.engine.secrets import Secrets
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert
from context_bench.engine.store.encoding import Bodies, dumps, pack, unpacked
from context_bench.engine.store.postgres import StoreLost
from context_bench.engine.store.replies import remember
from context_bench.engine.store.store import TRIES, Begun, Store, begin_run, end_run, process_mark, recount

T = TypeVar("T")

#: SQLite takes at least 999 values in one statement; stay below.
_MANY = 400
#: Error of a set-up that is going on, or that its process did not survive.
NEVER_ENDED = "Interrupted: the set-up never ended"
#: (arm number, position, trial) → output, as the plan had it before.
Planned = dict[tuple[int, int, int], int | None]
#: Characters of a model's or a server's name that an index takes in any database.
_LONGEST = 600

_o, _s = schema.outputs.c, schema.scores.c
# Built once, with their lists as one parameter: planning a finished run is mostly these two.
_STORED = select(
    *(_o.key, _o.id, _o.run, _o.created, _o.takes, _o.error.is_not(None), _o.tapped, _o.source, _o.output_tokens, _o.context_tokens)
).where(_o.key.in_(bindparam("keys", expanding=True)))
_SCORED = select(_s.output, _s.evaluator).where(_s.output.in_(bindparam("outputs", expanding=True)), _s.error.is_(None))


@dataclass(slots=True)
class ExampleRow:
    """An example at its place in the plan."""

    position: int
    example: Example
    content: str
    id: Any
    dataset: str
    group: str | None
    cluster: str | None
    occurrence: int = 0


@dataclass(slots=True)
class Writer:
    """One run's pen. `reuse`: "none", "run" or "all"; `bodies` as in `RunSettings`."""

    store: Store
    clock: Clock
    secrets: Secrets
    reuse: str
    bodies: str
    arms: list[PlannedArm]
    evaluators: list[PlannedEvaluator]
    trials: int = 1
    run: Begun = field(init=False)
    _bodies: Bodies = field(init=False)
    _endpoints: dict[tuple[str, str], int] = field(default_factory=dict)
    _pen: int = 0
    _written: int = 0

    # --- transactions ---

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Do `work` in one transaction, and again where the database went away before it was made. Takes bodies along that were added."""
        for left in reversed(range(TRIES)):
            done: list[T] = []
            try:
                with self.store.writing(durable=durable) as connection:
                    self._sign(connection)
                    done.append(work(connection))
                    self._write_bodies(connection)
            except StoreLost:
                landed = self.store.insist(self._landed) if done else False
                if not landed:
                    self._forget()
                    if not left:
                        raise
                    continue
            except BaseException:
                self._forget()
                raise
            self._written += 1
            self._bodies.committed()
            return done[0]
        raise AssertionError

    def _take_pen(self, connection: Connection, *, works: bool) -> None:
        """From here on only this writer works on the run's plan: what another one still has in hand cannot be written any more."""
        pens = schema.pens
        if works:
            connection.execute(delete(pens).where(pens.c.run == self.run.number, pens.c.works))
        values = {"run": self.run.number, "works": works, "owner": process_mark(), "written": 0}
        made = connection.execute(pens.insert().values(values)).inserted_primary_key
        assert made is not None
        self._pen, self._written = int(made[0]), 0

    def _sign(self, connection: Connection) -> None:
        """Count this transaction, if the one before it is there and the run is still ours."""
        pens = schema.pens
        mine = update(pens).where(pens.c.number == self._pen, pens.c.written == self._written).values(written=self._written + 1)
        if connection.execute(mine).rowcount == 1:
            return
        if connection.scalar(select(pens.c.written).where(pens.c.number == self._pen)) is None:
            raise StoreUnusable(f"run {self.run.name!r} was taken up by another process, or purged; this one ends here")
        raise StoreUnusable(
            f"store {self.store.name} came back without what it had written last; resume run {self.run.name!r}: answers are kept"
        )

    def _landed(self) -> bool:
        """Was the transaction made whose answer was lost? Waits for the database, and for the transaction if it is still going on."""
        pens = schema.pens
        query = select(pens.c.written).where(pens.c.number == self._pen).with_for_update()
        with self.store.writing() as connection:
            return connection.scalar(query) == self._written + 1

    def _forget(self) -> None:
        """What was gathered for a transaction that was not made."""
        self._bodies.dropped()
        self._endpoints.clear()

    # --- the run itself ---

    def begin(self, name: str | None, identity: str) -> Begun:
        """Take up or make the run; register its arms and evaluators."""
        self._bodies = Bodies(self.secrets.clean)
        with self.store.writing() as connection:
            self.store.database.alone(connection)
            self.run = begin_run(connection, name=name, identity=identity, again=self.reuse != "none", clock=self.clock)
            self._take_pen(connection, works=True)
            self._register_arms(connection)
            register_evaluators(connection, self.run.number, self.evaluators)
        return self.run

    def take_up(self, number: int, run: str, name: str) -> None:
        """Write on in a stored run, with other evaluators; those of other names stay."""
        self._bodies = Bodies(self.secrets.clean)
        self.run = Begun(number, run, name, False, self.clock.now())
        arms = schema.arms.c
        with self.store.writing() as connection:
            self._take_pen(connection, works=False)
            known = {row.name: row.arm for row in connection.execute(select(arms.name, arms.arm).where(arms.run == number))}
            for arm in self.arms:
                arm.number = known[utf8_safe(arm.name)]
            register_evaluators(connection, number, self.evaluators, keep=True)

    def _register_arms(self, connection: Connection) -> None:
        arms, run = schema.arms, self.run.number
        stored = {row.name: row for row in connection.execute(select(arms).where(arms.c.run == run))}
        known = {name: row.arm for name, row in stored.items()}
        number = max(known.values(), default=-1)
        connection.execute(update(arms).where(arms.c.run == run).values(ordinal=None))
        for ordinal, arm in enumerate(self.arms):
            name = utf8_safe(arm.name)
            if name not in known:
                number += 1
                known[name] = number
            arm.number = known[name]
            values = {"name": name, "ordinal": ordinal, "key": bytes.fromhex(arm.key)}
            if name in stored and stored[name].key != values["key"]:  # another system under an old name: its answers are not this one's
                plan = schema.plan
                connection.execute(update(plan).where(plan.c.run == run, plan.c.arm == arm.number).values(output=None))
            adding = insert(connection, arms).values(run=run, arm=arm.number, **values)
            connection.execute(adding.on_conflict_do_update(index_elements=["run", "arm"], set_=values))
        present = [arm.number for arm in self.arms]
        connection.execute(delete(schema.plan).where(schema.plan.c.run == run, schema.plan.c.arm.not_in(present)))

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

    def cut(self, positions: int) -> None:
        """The examples ended after `positions` of them: plan rows beyond are of an earlier, longer plan."""
        if self.run.fresh:
            return
        run, plan = self.run.number, schema.plan

        def work(connection: Connection) -> None:
            for table in (plan, schema.examples):
                connection.execute(delete(table).where(table.c.run == run, table.c.position >= positions))
            connection.execute(delete(plan).where(plan.c.run == run, plan.c.trial >= self.trials))

        self._write(work)

    # --- the plan ---

    @property
    def has_past(self) -> bool:
        """Could an output that is wanted now be in the store already?"""
        return not self.run.fresh or self.reuse == "all"

    def plan(self, rows: list[ExampleRow]) -> Planned:
        """Write a chunk of examples and the rows they owe; fills in each `occurrence`. Returns what was planned there before."""

        def work(connection: Connection) -> Planned:
            self._count_occurrences(connection, rows)
            self._write_examples(connection, rows)
            return self._owe(connection, rows)

        return self._write(work, durable=False)

    def _count_occurrences(self, connection: Connection, rows: list[ExampleRow]) -> None:
        examples = schema.examples
        seen: dict[str, int] = {}
        for some in _pieces([bytes.fromhex(row.content) for row in rows] if rows[0].position else []):
            counted = select(examples.c.content, func.count()).where(
                examples.c.run == self.run.number, examples.c.content.in_(some), examples.c.position < rows[0].position
            )
            seen |= {content.hex(): count for content, count in connection.execute(counted.group_by(examples.c.content))}
        for row in rows:
            row.occurrence = seen.get(row.content, 0)
            seen[row.content] = row.occurrence + 1

    def _write_examples(self, connection: Connection, rows: list[ExampleRow]) -> None:
        examples, run = schema.examples, self.run.number
        before = {} if self.run.fresh else self._examples_before(connection, rows)
        values = [
            {
                "run": run,
                "position": row.position,
                "id": dumps(row.id),
                "dataset": row.dataset,
                "group": row.group,
                "cluster": row.cluster,
                "content": bytes.fromhex(row.content),
                "body": None if self.bodies == "none" else self._bodies.add(row.example),
            }
            for row in rows
            if before.get(row.position) != (row.content, row.dataset, row.group, row.cluster)
        ]
        if values:
            statement = insert(connection, examples)
            columns = {name: statement.excluded[name] for name in ("id", "dataset", "group", "cluster", "content", "body")}
            connection.execute(statement.on_conflict_do_update(index_elements=["run", "position"], set_=columns), values)
        edited = [row.position for row in rows if row.position in before and before[row.position][0] != row.content]
        if edited:  # what was answered there is not an answer to this
            plan = schema.plan.c
            connection.execute(update(schema.plan).where(plan.run == run, plan.position.in_(edited)).values(output=None))

    def _examples_before(self, connection: Connection, rows: list[ExampleRow]) -> dict[int, tuple[str, str, str | None, str | None]]:
        e = schema.examples.c
        query = select(e.position, e.content, e.dataset, e.group, e.cluster)
        query = query.where(e.run == self.run.number, e.position.between(rows[0].position, rows[-1].position))
        found = connection.execute(query).all()
        return {position: (content.hex(), dataset, group, cluster) for position, content, dataset, group, cluster in found}

    def _owe(self, connection: Connection, rows: list[ExampleRow]) -> Planned:
        run, p, before = self.run.number, schema.plan.c, {}
        if not self.run.fresh:
            span = p.position.between(rows[0].position, rows[-1].position)
            query = select(p.arm, p.position, p.trial, p.output).where(p.run == run, p.arm.in_([arm.number for arm in self.arms]), span)
            before = {(arm, position, trial): output for arm, position, trial, output in connection.execute(query).all()}
        owed = [
            {"run": run, "arm": arm.number, "position": row.position, "trial": trial, "output": None}
            for arm in self.arms
            for row in rows
            if arm.arm.takes(row.position)
            for trial in range(self.trials)
            if (arm.number, row.position, trial) not in before
        ]
        if owed:
            connection.execute(schema.plan.insert(), owed)
        return before

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, Found]:
        """Stored outputs that answer these keys: this run's, or with `reuse="all"` the best of any run."""
        return self.store.insist(lambda: self._lookup(keys)) if keys and self.has_past else {}

    def _lookup(self, keys: Sequence[bytes]) -> dict[bytes, Found]:
        found: dict[bytes, Found] = {}
        with self.store.reading() as connection:
            for some in _pieces(keys):
                for key, output in self._stored(connection, some):
                    if key not in found or _better(output, found[key]):
                        found[key] = output
            self._add_scored(connection, found)
        return found

    def _stored(self, connection: Connection, keys: Sequence[bytes]) -> Iterable[tuple[bytes, Found]]:
        query = _STORED if self.reuse == "all" else _STORED.where(schema.outputs.c.run == self.run.number)
        for key, number, run, created, takes, failed, tapped, source, forwarded, context in connection.execute(query, {"keys": keys}).all():
            yield key, Found(number, run == self.run.number, created, takes, failed, tapped, source, forwarded, context)

    def _add_scored(self, connection: Connection, found: dict[bytes, Found]) -> None:
        by_id = {output.id: output for output in found.values() if not output.failed}
        for some in _pieces(list(by_id)):
            for output, evaluator in connection.execute(_SCORED, {"outputs": some}).all():
                by_id[output].scored = (*by_id[output].scored, evaluator)

    def point(self, units: Sequence[Unit]) -> None:
        """Let the plan rows of these units point to the outputs that answer them already."""
        if units:
            pairs = [(unit, unit.output) for unit in units if unit.output is not None]
            self._write(lambda connection: self._point(connection, pairs), durable=False)

    def _point(self, connection: Connection, pairs: list[tuple[Unit, int]]) -> None:
        p = schema.plan.c
        statement = (
            update(schema.plan)
            .where(p.run == self.run.number, p.arm == bindparam("a"), p.position == bindparam("p"), p.trial == bindparam("t"))
            .values(output=bindparam("o"))
        )
        rows = [{"a": self.arms[unit.arm].number, "p": unit.position, "t": unit.trial, "o": output} for unit, output in pairs]
        if rows:
            connection.execute(statement, rows)

    def stored_output(self, output: int) -> Example:
        """What the system added to the example, of an earlier answer."""

        def work() -> Example:
            with self.store.reading() as connection:
                value: Example = unpacked(connection.scalar(select(schema.outputs.c.output).where(schema.outputs.c.id == output)), {})
                return value

        return self.store.insist(work)

    # --- finished work ---

    def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Write a batch of outcomes in one transaction; when this returns they are durable and have their ids."""
        now = self.clock.now()
        self._write(lambda connection: self._commit(connection, outcomes, now))

    def _commit(self, connection: Connection, outcomes: Sequence[Outcome], now: float) -> None:
        """Writers of several processes come by rows that they share (endpoints, scores, bodies) in one order, so none waits in a circle."""
        made = [outcome for outcome in outcomes if outcome.ran]
        self._meet_endpoints(connection, [call for outcome in outcomes for call in _calls_of(outcome)])
        self._write_outputs(connection, made, now)
        for outcome in outcomes:
            if not outcome.ran:
                outcome.id = outcome.unit.output
        self._point(connection, [(outcome.unit, outcome.id) for outcome in outcomes if outcome.id is not None])
        self._write_scores(connection, outcomes)
        self._write_calls(connection, outcomes)
        told = {key: reply for outcome in outcomes for score in outcome.scores for key, reply in score.replies.items()}
        remember(connection, told, self.secrets, now)
        self._write_forwarded(connection, [(o.id, o.unit.takes, o.forwarded, self._keeps(o)) for o in made if o.forwarded])

    def _write_outputs(self, connection: Connection, made: Sequence[Outcome], now: float) -> None:
        if not made:
            return
        again = [outcome for outcome in made if outcome.unit.output is not None]
        fresh = [outcome for outcome in made if outcome.unit.output is None]
        if again:
            ids = [outcome.unit.output for outcome in again]
            connection.execute(delete(schema.scores).where(schema.scores.c.output.in_(ids)))
            for outcome in sorted(again, key=lambda each: each.unit.output or 0):
                outcome.id = outcome.unit.output
                values = {**self._output_row(outcome, now)}
                connection.execute(update(schema.outputs).where(schema.outputs.c.id == outcome.id).values(values))
        if fresh:
            for outcome, number in zip(fresh, self.store.database.output_ids(connection, len(fresh)), strict=True):
                outcome.id = number
            connection.execute(schema.outputs.insert(), [{"id": outcome.id, **self._output_row(outcome, now)} for outcome in fresh])

    def _output_row(self, outcome: Outcome, now: float) -> dict[str, Any]:
        return {
            "key": outcome.unit.key,
            "run": self.run.number,
            "created": now,
            "takes": outcome.unit.takes + 1,
            "tapped": outcome.mark is not None,
            "error": None if outcome.error is None else self._text(outcome.error),
            "source": outcome.source,
            "input_tokens": outcome.input_tokens,
            "output_tokens": outcome.output_tokens,
            "context_tokens": outcome.context_tokens,
            "latency": outcome.latency,
            "output": self._json(outcome.output),
            "usage": self._json(outcome.usage) if outcome.usage else None,
            "wire": self._json(outcome.wire) if outcome.wire else None,
            "metadata": self._json(outcome.metadata) if outcome.metadata else None,
            "setup": outcome.setup,
        }

    def _write_scores(self, connection: Connection, outcomes: Sequence[Outcome]) -> None:
        rows = [self._score_row(outcome.id, score) for outcome in outcomes if outcome.id is not None for score in outcome.scores]
        if rows:
            rows.sort(key=lambda row: (row["output"], row["evaluator"]))
            statement = insert(connection, schema.scores)
            columns = {name: statement.excluded[name] for name in ("values", "error", "usage")}
            connection.execute(statement.on_conflict_do_update(index_elements=["output", "evaluator"], set_=columns), rows)

    def _score_row(self, output: int, score: Score) -> dict[str, Any]:
        return {
            "output": output,
            "evaluator": score.evaluator,
            "values": None if score.values is None else self._json(score.values),
            "error": None if score.error is None else self._text(score.error),
            "usage": self._json(score.usage) if score.usage else None,
        }

    def _write_calls(self, connection: Connection, outcomes: Sequence[Outcome]) -> None:
        rows = []
        for outcome in outcomes:
            keep = self._keeps(outcome)
            of = {"output": outcome.id, "take": outcome.unit.takes, "evaluator": None, "setup": None}
            rows += [of | self._call_row(call, keep) for call in outcome.calls]
            for score in outcome.scores:
                rows += [of | {"evaluator": score.evaluator} | self._call_row(call, keep) for call in score.calls]
        if rows:
            connection.execute(schema.calls.insert(), rows)

    def _call_row(self, call: Call, keep: bool) -> dict[str, Any]:
        return {
            "run": self.run.number,
            "account": call.account,
            "endpoint": self._endpoints[self._endpoint(call)],
            "attempt": call.attempt,
            "started": call.started,
            "seconds": call.seconds,
            "waited": call.waited,
            "ttft": call.ttft,
            "status": call.status,
            "sent_tokens": call.sent_tokens,
            "exact": call.exact,
            "cost": call.cost,
            "usage": self._json(plain(call.usage)) if call.usage else None,
            "finish_reason": None if call.finish_reason is None else self._text(str(call.finish_reason)),
            "error": None if call.error is None else self._text(call.error),
            "request": self._bodies.add(call.request) if keep and call.request is not None else None,
            "reply": self._bodies.add(call.reply) if keep and call.reply is not None else None,
            "in_flight": call.in_flight,
        }

    def _endpoint(self, call: Call) -> tuple[str, str]:
        return self._text(call.model)[:_LONGEST], self._text(call.url)[:_LONGEST]

    def _meet_endpoints(self, connection: Connection, calls: Iterable[Call]) -> None:
        """Give the endpoints of these calls their numbers."""
        e = schema.endpoints
        for model, url in sorted({self._endpoint(call) for call in calls} - self._endpoints.keys()):
            connection.execute(insert(connection, e).values(model=model, url=url).on_conflict_do_nothing())
            number = connection.scalar(select(e.c.id).where(e.c.model == model, e.c.url == url))
            assert number is not None
            self._endpoints[model, url] = int(number)

    def _write_forwarded(
        self, connection: Connection, batches: Iterable[tuple[int | None, int, list[Forwarded], bool]], setup: int | None = None
    ) -> None:
        rows = []
        for output, take, records, keep in batches:
            for record in records:
                facts = {name: value for name, value in asdict(_bare(record)).items() if value not in (None, {}) and name != "mark"}
                rows.append(
                    {
                        "run": self.run.number,
                        "output": output,
                        "take": take,
                        "setup": setup,
                        "record": self._json(facts),
                        "request": self._bodies.add(record.request) if keep and record.request is not None else None,
                        "reply": self._bodies.add(record.reply) if keep and record.reply is not None else None,
                    }
                )
        if rows:
            connection.execute(schema.forwarded.insert(), rows)

    def unmatched(self, records: list[Forwarded]) -> None:
        """Keep requests that nobody can be named for."""
        batch = [(None, 0, records, self.bodies in ("all", "auto"))]
        self._write(lambda connection: self._write_forwarded(connection, batch))

    def join_late(self, output: int, records: list[Forwarded], joined: dict[str, Any], tokens: int | None) -> None:
        """Add requests that arrived after the row was closed, with the row's new `wire` and forwarded tokens."""

        def work(connection: Connection) -> None:
            self._write_forwarded(connection, [(output, 0, records, self.bodies in ("all", "auto"))])
            values = {"wire": self._json(joined), "output_tokens": tokens, "source": joined.get("source")}
            connection.execute(update(schema.outputs).where(schema.outputs.c.id == output).values(values))

        self._write(work)

    # --- set-ups of groups ---

    def begin_setup(self, setup: SetUp) -> None:
        """Write down, durably, that a group is going to be set up; gives the set-up its id and the number of the attempt.

        So an attempt that the process does not survive is counted, and the next one knows of it.
        """
        self._write(lambda connection: self._begin_setup(connection, setup))

    def _begin_setup(self, connection: Connection, setup: SetUp) -> None:
        arm, s = self.arms[setup.arm], schema.setups.c
        same = (s.run == self.run.number, s.arm == arm.number, s.key == bytes.fromhex(arm.key), s.trial == setup.trial)
        place = s.position == setup.position if setup.group is None else s.group == setup.group
        setup.attempt = 1 + (connection.scalar(select(func.max(s.attempt)).where(*same, place)) or 0)
        values = {
            "run": self.run.number,
            "arm": arm.number,
            "key": bytes.fromhex(arm.key),
            "trial": setup.trial,
            "group": setup.group,
            "position": setup.position,
            "number": setup.number,
            "attempt": setup.attempt,
            "created": self.clock.now(),
            "error": NEVER_ENDED,
        }
        made = connection.execute(schema.setups.insert().values(values)).inserted_primary_key
        assert made is not None
        setup.id = int(made[0])

    def end_setup(self, setup: SetUp) -> None:
        """Write down, durably, what came of it."""
        values = {
            "seconds": setup.seconds,
            "output": self._json(setup.output) if setup.output else None,
            "usage": self._json(setup.usage) if setup.usage else None,
            "error": None if setup.error is None else self._text(setup.error),
        }
        keep = self._keeps_at(setup.position)
        of = {"output": None, "take": setup.attempt - 1, "evaluator": None, "setup": setup.id}

        def work(connection: Connection) -> None:
            self._meet_endpoints(connection, setup.calls)
            connection.execute(update(schema.setups).where(schema.setups.c.id == setup.id).values(values))
            if setup.calls:
                connection.execute(schema.calls.insert(), [of | self._call_row(call, keep) for call in setup.calls])
            self._write_forwarded(connection, [(None, setup.attempt - 1, setup.forwarded, keep)], setup.id)

        self._write(work)

    def join_late_to_setup(self, setup: int, records: list[Forwarded]) -> None:
        """Add requests that arrived after the set-up was over."""
        batch = [(None, 0, records, self.bodies in ("all", "auto"))]
        self._write(lambda connection: self._write_forwarded(connection, batch, setup))

    # --- bytes ---

    def _keeps(self, outcome: Outcome) -> bool:
        """Are the bodies of this row's calls kept?"""
        return self._keeps_at(outcome.unit.position) or (self.bodies != "none" and bool(outcome.wire.get("text_changed")))

    def _keeps_at(self, position: int) -> bool:
        return self.bodies == "all" or (self.bodies == "auto" and (position + 1) * len(self.arms) * self.trials <= BODIES_UP_TO)

    def _write_bodies(self, connection: Connection) -> None:
        write_bodies(connection, self._bodies)

    def _json(self, value: Any) -> bytes:
        return pack(self.secrets.clean(dumps(value)))

    def _text(self, text: str) -> str:
        return utf8_safe(self.secrets.text(text))


def write_bodies(connection: Connection, bodies: Bodies) -> None:
    """Write what was gathered and is not there yet, in the order of keys: two writers never wait for one another in a circle."""
    if bodies.fresh:
        rows = [{"key": key, "data": data} for key, data in sorted(bodies.fresh.items())]
        connection.execute(insert(connection, schema.bodies).on_conflict_do_nothing(), rows)
    if bodies.links:
        links = sorted(bodies.links, key=lambda link: (link["body"], link["part"]))
        connection.execute(insert(connection, schema.body_parts).on_conflict_do_nothing(), links)


def register_evaluators(connection: Connection, run: int, chosen: Sequence[PlannedEvaluator], *, keep: bool = False) -> None:
    """Give evaluators their ids and make them the run's; with `keep`, those of other names stay."""
    table, links = schema.evaluators, schema.run_evaluators
    for each in sorted(chosen, key=lambda each: each.key):
        key = bytes.fromhex(each.key)
        connection.execute(insert(connection, table).values(key=key, name=utf8_safe(each.name)).on_conflict_do_nothing())
        found = connection.scalar(select(table.c.id).where(table.c.key == key))
        assert found is not None
        each.id = int(found)
    ids: list[int] = []
    if keep:
        names = {utf8_safe(each.name) for each in chosen}
        before = (
            select(table.c.id, table.c.name)
            .join(links, links.c.evaluator == table.c.id)
            .where(links.c.run == run)
            .order_by(links.c.ordinal)
        )
        ids = [row.id for row in connection.execute(before) if row.name not in names]
    ids = list(dict.fromkeys([*ids, *(each.id for each in chosen)]))
    connection.execute(delete(links).where(links.c.run == run))
    if ids:
        connection.execute(links.insert(), [{"run": run, "ordinal": n, "evaluator": one} for n, one in enumerate(ids)])


def identity_of(arms: Sequence[PlannedArm], evaluators: Sequence[PlannedEvaluator], settings: dict[str, Any], datasets: Any) -> str:
    """What makes two commands the same run: arms and their partners, evaluators, seed and trials, datasets."""
    parts = [
        [[arm.name, arm.key, arm.arm.budget_from] for arm in arms],
        [each.key for each in evaluators],
        settings,
        dumps(datasets).decode("utf-8", "replace"),
    ]
    return hash_text(dumps(parts).decode("utf-8", "replace"))


def _better(new: Found, old: Found) -> bool:
    """Answers before failures, own before foreign, newer before older."""
    return (not new.failed, new.own, new.created) > (not old.failed, old.own, old.created)


def _bare(record: Forwarded) -> Forwarded:
    from dataclasses import replace

    return replace(record, request=None, reply=None)


def _calls_of(outcome: Outcome) -> Iterable[Call]:
    yield from outcome.calls
    for score in outcome.scores:
        yield from score.calls


def _pieces(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for start in range(0, len(values), _MANY):
        yield values[start : start + _MANY]
