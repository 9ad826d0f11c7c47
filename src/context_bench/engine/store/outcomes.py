"""Finished work as rows: outputs, scores, calls, forwarded requests, the set-ups of groups, and replies of judges.

Replies are remembered by content, so that a judge is not asked the same thing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from context_bench.core.keys import forget_oldest, hash_text
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.numbers import real
from context_bench.core.records import Call, Forwarded
from context_bench.engine.encoding import Bodies, Damaged, Secrets, Serializer, dumps, pack, unpacked
from context_bench.engine.plan import BODIES_UP_TO, EvaluatorScore, PlannedArm, SetUp, WorkOutcome
from context_bench.engine.store import Database, Store, schema
from context_bench.engine.store.dialects import add, add_new, insert_one, number_of, put
from context_bench.engine.store.pending import point

#: Error of a set-up that is going on, or that its process did not survive.
NEVER_ENDED = "Interrupted: the set-up never ended"

# In the order of the tables' columns, as their statements take them.
_ANSWER = (
    "key",
    "run",
    "created",
    "takes",
    "tapped",
    "error",
    "source",
    "input_tokens",
    "output_tokens",
    "context_tokens",
    "latency",
)
_OUTPUT = (*_ANSWER, "output", "usage", "wire", "metadata", "setup")
_OUTPUT_NEW = ("id", *_OUTPUT)
_SCORE = ("output", "evaluator", "values", "error", "usage")
_SAID = ("usage", "finish_reason", "error")
_TIMES = ("started", "seconds", "waited", "ttft", "status", "sent_tokens", "exact", "cost")
_CALL = (
    "output",
    "run",
    "take",
    "evaluator",
    "account",
    "endpoint",
    "attempt",
    *_TIMES,
    *_SAID,
    "request",
    "reply",
    "setup",
    "in_flight",
)
_FORWARDED = ("run", "output", "take", "record", "request", "reply", "setup")
_FACTS = tuple(each.name for each in fields(Forwarded) if each.name not in ("mark", "request", "reply"))


@dataclass(slots=True)
class OutcomeRows:
    """Writes what was done in one run. Rows that writers of several processes share (endpoints, scores, replies,
    bodies) are come by in that order and each kind in the order of its keys, so that none waits in a circle.
    """

    run: int
    database: Database
    arms: Sequence[PlannedArm]
    trials: int
    keep: str  # which bodies: "all", "changed", "none" or "auto"
    serializer: Serializer
    endpoints: Endpoints

    def commit(self, connection: Connection, outcomes: Sequence[WorkOutcome], now: float) -> None:
        """Write a batch of outcomes; gives each the id of its output."""
        made = [outcome for outcome in outcomes if outcome.ran]
        self.endpoints.meet(connection, (call for outcome in outcomes for call in _calls_of(outcome)))
        self._write_outputs(connection, made, now)
        for outcome in outcomes:
            if not outcome.ran:
                outcome.id = outcome.unit.output
        self._point(connection, outcomes)
        self._write_scores(connection, outcomes)
        self._write_calls(connection, outcomes)
        replies = {
            key: reply for outcome in outcomes for score in outcome.scores for key, reply in score.replies.items()
        }
        if replies:
            remember(connection, replies, self.serializer.secrets, now)
        for outcome in made:
            if outcome.forwarded:
                self.write_forwarded(
                    connection, (outcome.id, outcome.unit.takes, None), outcome.forwarded, self._keeps(outcome)
                )

    # --- answers ---

    def _write_outputs(self, connection: Connection, made: Sequence[WorkOutcome], now: float) -> None:
        again = [outcome for outcome in made if outcome.unit.output is not None]
        fresh = [outcome for outcome in made if outcome.unit.output is None]
        if again:
            o = schema.outputs
            ids = [outcome.unit.output for outcome in again]
            connection.execute(delete(schema.scores).where(schema.scores.c.output.in_(ids)))
            for outcome in sorted(again, key=lambda each: each.unit.output or 0):
                outcome.id = outcome.unit.output
                values = dict(zip(_OUTPUT, self._output(outcome, now), strict=True))
                connection.execute(update(o).where(o.c.id == outcome.id).values(values))
        if fresh:
            for outcome, number in zip(fresh, self.database.output_ids(connection, len(fresh)), strict=True):
                outcome.id = number
            add(
                connection,
                schema.outputs,
                _OUTPUT_NEW,
                [(outcome.id, *self._output(outcome, now)) for outcome in fresh],
            )

    def _output(self, outcome: WorkOutcome, now: float) -> tuple[Any, ...]:
        unit, ink = outcome.unit, self.serializer
        return (
            unit.key,
            self.run,
            now,
            unit.takes + 1,
            outcome.mark is not None,
            ink.text_or_null(outcome.error),
            outcome.source,
            outcome.input_tokens,
            outcome.output_tokens,
            outcome.context_tokens,
            outcome.latency,
            ink.json(outcome.output),
            ink.json_or_null(outcome.usage),
            ink.json_or_null(outcome.wire),
            ink.json_or_null(outcome.metadata),
            outcome.setup,
        )

    def _point(self, connection: Connection, outcomes: Iterable[WorkOutcome]) -> None:
        arms, run = self.arms, self.run
        done = ((outcome.id, outcome.unit) for outcome in outcomes if outcome.id is not None)
        point(connection, [(output, run, arms[unit.arm].number, unit.position, unit.trial) for output, unit in done])

    def _write_scores(self, connection: Connection, outcomes: Iterable[WorkOutcome]) -> None:
        rows = [
            self._score(outcome.id, score) for outcome in outcomes if outcome.id is not None for score in outcome.scores
        ]
        rows.sort(key=lambda row: row[:2])
        put(connection, schema.scores, _SCORE, rows)

    def _score(self, output: int, score: EvaluatorScore) -> tuple[Any, ...]:
        ink = self.serializer
        values = None if score.values is None else ink.json(score.values)
        return output, score.evaluator, values, ink.text_or_null(score.error), ink.json_or_null(score.usage)

    # --- calls ---

    def _write_calls(self, connection: Connection, outcomes: Iterable[WorkOutcome]) -> None:
        rows = []
        for outcome in outcomes:
            keep = self._keeps(outcome)
            place = (outcome.id, outcome.unit.takes)
            rows += [self._call((*place, None, None), call, keep) for call in outcome.calls]
            for score in outcome.scores:
                rows += [self._call((*place, score.evaluator, None), call, keep) for call in score.calls]
        add(connection, schema.calls, _CALL, rows)

    def write_overhead(self, connection: Connection, calls: Sequence[Call]) -> None:
        """Write down what was asked for the run and belongs to no row."""
        self.endpoints.meet(connection, calls)
        add(
            connection,
            schema.calls,
            _CALL,
            [self._call((None, 0, None, None), call, self.keep == "all") for call in calls],
        )

    def _call(self, of: tuple[int | None, int, int | None, int | None], call: Call, keep: bool) -> tuple[Any, ...]:
        ink = self.serializer
        output, take, evaluator, setup = of
        for value in (call.started, call.seconds, call.waited, call.ttft, call.cost):
            if (
                value is not None and real(value) is None
            ):  # not every database refuses it, and one such number spoils every sum
                raise ValueError(f"a time or price of a call is no finite number, but of type {type(value).__name__}")
        return (
            output,
            self.run,
            take,
            evaluator,
            call.account,
            self.endpoints.number(call),
            call.attempt,
            call.started,
            call.seconds,
            call.waited,
            call.ttft,
            call.status,
            call.sent_tokens,
            call.exact,
            call.cost,
            ink.usage(call.usage),
            None if call.finish_reason is None else ink.text(str(call.finish_reason)),
            ink.text_or_null(call.error),
            ink.body(call.request) if keep and call.request is not None else None,
            ink.body(call.reply) if keep and call.reply is not None else None,
            setup,
            call.in_flight,
        )

    def write_forwarded(
        self, connection: Connection, of: tuple[int | None, int, int | None], records: Iterable[Forwarded], keep: bool
    ) -> None:
        """Write what the tap saw: `of` = id of the output, number of the take, id of the set-up."""
        output, take, setup = of
        ink, rows = self.serializer, []
        for record in records:
            facts = {name: fact for name in _FACTS if (fact := getattr(record, name)) not in (None, {})}
            if record.usage is not None:
                facts["usage"] = asdict(record.usage)
            request = ink.body(record.request) if keep and record.request is not None else None
            reply = ink.body(record.reply) if keep and record.reply is not None else None
            rows.append((self.run, output, take, ink.json(facts), request, reply, setup))
        add(connection, schema.forwarded, _FORWARDED, rows)

    # --- set-ups of groups ---

    def begin_setup(self, connection: Connection, setup: SetUp, now: float) -> None:
        """Write that a group is going to be set up; gives the set-up its id and the number of the attempt."""
        arm, s = self.arms[setup.arm], schema.setups.c
        same = (s.run == self.run, s.arm == arm.number, s.key == bytes.fromhex(arm.key), s.trial == setup.trial)
        place = s.position == setup.position if setup.group is None else s.group == setup.group
        setup.attempt = 1 + (connection.scalar(select(func.max(s.attempt)).where(*same, place)) or 0)
        values = {
            "run": self.run,
            "arm": arm.number,
            "key": bytes.fromhex(arm.key),
            "trial": setup.trial,
            "group": setup.group,
            "position": setup.position,
            "number": setup.number,
            "attempt": setup.attempt,
            "created": now,
            "error": NEVER_ENDED,
        }
        setup.id = insert_one(connection, schema.setups, values)

    def end_setup(self, connection: Connection, setup: SetUp) -> None:
        """Write what came of it."""
        ink, take, keep = self.serializer, setup.attempt - 1, self._keeps_at(setup.position)
        values = {
            "seconds": setup.seconds,
            "output": ink.json_or_null(setup.output),
            "usage": ink.json_or_null(setup.usage),
            "error": ink.text_or_null(setup.error),
        }
        self.endpoints.meet(connection, setup.calls)
        connection.execute(update(schema.setups).where(schema.setups.c.id == setup.id).values(values))
        add(
            connection,
            schema.calls,
            _CALL,
            [self._call((None, take, None, setup.id), call, keep) for call in setup.calls],
        )
        self.write_forwarded(connection, (None, take, setup.id), setup.forwarded, keep)

    # --- bodies ---

    def _keeps(self, outcome: WorkOutcome) -> bool:
        """Are the bodies of this row's calls kept?"""
        return self._keeps_at(outcome.unit.position) or (self.keep != "none" and bool(outcome.wire.get("text_changed")))

    def _keeps_at(self, position: int) -> bool:
        return self.keep == "all" or (
            self.keep == "auto" and (position + 1) * len(self.arms) * self.trials <= BODIES_UP_TO
        )


def _calls_of(outcome: WorkOutcome) -> Iterable[Call]:
    yield from outcome.calls
    for score in outcome.scores:
        yield from score.calls


def write_bodies(connection: Connection, bodies: Bodies) -> None:
    """Write what was gathered and is not there yet, in the order of keys: two writers never wait for one another in a
    circle.
    """
    add_new(connection, schema.bodies, ("key", "data"), sorted(bodies.fresh.items()))
    links = sorted((link["body"], link["part"]) for link in bodies.links)
    add_new(connection, schema.body_parts, ("body", "part"), links)


#: Characters of a model's or a server's name that an index takes in any database.
_LONGEST = 600


@dataclass(slots=True)
class Endpoints:
    """Numbers of the models and servers that calls went to, as calls name them."""

    serializer: Serializer
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def meet(self, connection: Connection, calls: Iterable[Call]) -> None:
        """Give those of these calls their numbers: in the order of their names, as every writer does."""
        new = {(call.model, call.url) for call in calls if (call.model, call.url) not in self.numbers}
        if not new:
            return
        text = self.serializer.text
        named = sorted(((text(model)[:_LONGEST], text(url)[:_LONGEST]), (model, url)) for model, url in new)
        for (model, url), asked in named:
            self.numbers[asked] = number_of(connection, schema.endpoints, {"model": model, "url": url})

    def number(self, call: Call) -> int:
        """The number of an endpoint that was met."""
        return self.numbers[call.model, call.url]

    def forget(self) -> None:
        """The transaction that met them was not made."""
        self.numbers.clear()


# --- replies of judges ---

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
        packed: bytes | None = self._store.read(lambda connection: connection.scalar(query))
        try:
            reply = unpacked(packed)
        except Damaged:  # what can be asked again is
            return None
        return reply if isinstance(reply, dict) else None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Remember a reply; the newest counts."""
        ledger = current_ledger() if self._with_calls else None
        if ledger is not None:
            ledger.replies[key] = self._recent[key] = reply
            forget_oldest(self._recent, _RECENT)
            return
        self._store.write(
            lambda connection: remember(connection, {key: reply}, self._secrets, self._clock.now()), durable=False
        )


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
