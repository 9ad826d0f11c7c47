"""Plan rows of a run: its examples in order, the pending work of each arm, and the stored output that answers each row.

A plan is known up to a position if everything before it was planned from the same source and every output that a row
points to still answers it. That position is written together with the plan, so a killed run knows how far it was. Known
spans are asked about in bulk, without the examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, false, func, select, true, update

from context_bench.core.records import Example
from context_bench.engine.encoding import Serializer, dumps
from context_bench.engine.plan import PlannedArm, StoredAnswer
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import Many, PreparedQuery, add, compiled_once, insert, put, written

_k, _p, _o, _s = schema.sources.c, schema.plan.c, schema.outputs.c, schema.scores.c


@dataclass(frozen=True, slots=True)
class SettledPlan:
    """The plan is known for the first `positions` examples; `complete`: there are no more."""

    positions: int = 0
    complete: bool = False


@dataclass(slots=True)
class Passed:
    """State of a part of a settled plan. `examples` that owe nothing are only counted here; `pending`: positions of all
    others, in order.

    `reused`: arm (index) → answers; `oldest`: when the oldest of them was made.
    """

    pending: list[int] = field(default_factory=list)
    reused: dict[int, int] = field(default_factory=dict)
    oldest: float | None = None


@dataclass(slots=True)
class Settled:
    """Conditions under which nothing of a plan row is pending: an answer of `run`, seen by a tap where there is one,
    judged by `evaluators`.
    """

    run: int
    arms: Sequence[PlannedArm]
    trials: int
    tapped: bool
    evaluators: Sequence[int]

    def passed(self, connection: Connection, first: int, last: int) -> Passed:
        """The positions from `first` to `last`, both included."""
        found = Passed()
        counted = {index: self._counted(connection, arm, first, last) for index, arm in enumerate(self.arms)}
        if all(counted.values()):
            for index, each in counted.items():
                assert each is not None
                found.reused[index] = each[0]
                found.oldest = _older(found.oldest, each[1])
            return found
        settled = {index: self._positions(connection, arm, first, last) for index, arm in enumerate(self.arms)}
        for position in range(first, last + 1):
            taking = [index for index, arm in enumerate(self.arms) if arm.arm.takes(position)]
            if not all(position in settled[index] for index in taking):
                found.pending.append(position)
                continue
            for index in taking:
                found.reused[index] = found.reused.get(index, 0) + self.trials
                found.oldest = _older(found.oldest, settled[index][position])
        return found

    def _counted(
        self, connection: Connection, arm: PlannedArm, first: int, last: int
    ) -> tuple[int, float | None] | None:
        """Answers of an arm that owes nothing there, and when the oldest was made; `None` if it owes anything."""
        expected = self.trials * len(range(first + -first % arm.arm.every, last + 1, arm.arm.every))
        answered = (
            select(func.count(), func.min(_o.created))
            .select_from(_ANSWERED)
            .where(*self._here(arm, first, last), *self._answers)
        )
        count, oldest = connection.execute(answered).one()
        if count != expected:
            return None
        judged = select(func.count()).select_from(_JUDGED).where(*self._here(arm, first, last), *self._judgements)
        if self.evaluators and connection.scalar(judged) != expected * len(self.evaluators):
            return None
        return count, oldest

    def _positions(self, connection: Connection, arm: PlannedArm, first: int, last: int) -> dict[int, float]:
        """Positions where an arm owes nothing → when the oldest answer was made."""
        here = self._here(arm, first, last)
        answered = (
            select(_p.position, func.count(), func.min(_o.created)).select_from(_ANSWERED).where(*here, *self._answers)
        )
        judged = select(_p.position, func.count()).select_from(_JUDGED).where(*here, *self._judgements)
        times = {}
        for position, count, oldest in connection.execute(answered.group_by(_p.position)):
            if count == self.trials:
                times[position] = oldest
        if not self.evaluators:
            return times
        wanted = self.trials * len(self.evaluators)
        enough = {position for position, count in connection.execute(judged.group_by(_p.position)) if count == wanted}
        return {position: time for position, time in times.items() if position in enough}

    def _here(self, arm: PlannedArm, first: int, last: int) -> list[ColumnElement[bool]]:
        places = [_p.run == self.run, _p.arm == arm.number, _p.position.between(first, last), _p.trial < self.trials]
        return places if arm.arm.every == 1 else [*places, _p.position % arm.arm.every == 0]

    @property
    def _answers(self) -> list[ColumnElement[bool]]:
        answers = [_o.error.is_(None), _o.run == self.run]
        return [*answers, _o.tapped == true()] if self.tapped else answers

    @property
    def _judgements(self) -> list[ColumnElement[bool]]:
        return [_s.evaluator.in_(self.evaluators), _s.error.is_(None)]


_ANSWERED = schema.plan.join(schema.outputs, _p.output == _o.id)
_JUDGED = schema.plan.join(schema.scores, _p.output == _s.output)


def _older(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


@dataclass(slots=True)
class SourceRow:
    """The row of `sources` of one run. `source` is `None` for examples that cannot be known again."""

    run: int
    source: bytes | None

    def begin(self, connection: Connection, *, fresh: bool) -> SettledPlan:
        """The settled part of the plan for this source; that of another one is forgotten."""
        if not fresh:
            found = connection.execute(select(_k.source, _k.positions, _k.ended).where(_k.run == self.run)).first()
            if found is not None and found.source == self.source:
                return SettledPlan(found.positions, found.ended)
            connection.execute(delete(schema.sources).where(_k.run == self.run))
        if self.source is not None:
            connection.execute(
                insert(connection, schema.sources).values(run=self.run, source=self.source, positions=0, ended=false())
            )
        return SettledPlan()

    def planned(self, connection: Connection, first: int, count: int) -> None:
        """So many examples more are planned, if all before `first` are known."""
        if self.source is not None:
            connection.execute(_PLANNED_ON, {"of": self.run, "before": first, "after": first + count})

    def finish(self, connection: Connection, positions: int) -> None:
        """All is planned."""
        if self.source is not None:
            connection.execute(
                update(schema.sources).where(_k.run == self.run).values(positions=positions, ended=true())
            )


_PLANNED_ON = (
    update(schema.sources)
    .where(_k.run == bindparam("of"), _k.positions == bindparam("before"))
    .values(positions=bindparam("after"), ended=false())
)
#: SQLite takes at least 999 values in one statement; stay below.
_MANY = 400
#: (arm number, position, trial) → the output that its plan row points to, `None` where it is owed.
Planned = dict[tuple[int, int, int], StoredAnswer | None]
_e = schema.examples.c
_EXAMPLE = ("run", "position", "id", "dataset", "group", "cluster", "content", "body")
_OWED = ("run", "arm", "position", "trial", "output")
_FACTS = (
    _o.id,
    _o.key,
    _o.run,
    _o.created,
    _o.takes,
    _o.error.is_not(None),
    _o.tapped,
    _o.source,
    _o.output_tokens,
    _o.context_tokens,
)


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


def stretches(rows: Sequence[ExampleRow]) -> Iterator[Sequence[ExampleRow]]:
    """Rows in order, in parts between which positions are left out."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].position != rows[at - 1].position + 1:
            yield rows[start:at]
            start = at


@dataclass(slots=True)
class PlanRows:
    """Writes and reads the plan of one run, for examples that follow one another. `bodies` as in `RunSettings`."""

    run: int
    fresh: bool
    arms: Sequence[PlannedArm]
    trials: int
    bodies: str
    serializer: Serializer
    source: SourceRow | None = None

    def unchanged(self, connection: Connection, rows: Sequence[ExampleRow]) -> Planned | None:
        """The plan of these examples so far, if they are the same as before and all that they owe is in the plan;
        else `None`.

        Fills in each `occurrence`. Nothing need be written then: this is all that taking up a finished run does.
        """
        stored = _SEEN.rows(connection, self.run, rows[0].position, rows[-1].position)
        if len(stored) != len(rows):
            return None
        own = written if connection.dialect.name == "postgresql" else _as_it_is
        for row, (content, dataset, group, cluster, occurrence) in zip(rows, stored, strict=True):
            if (
                content.hex() != row.content
                or dataset != own(row.dataset)
                or group != own(row.group)
                or cluster != own(row.cluster)
            ):
                return None
            row.occurrence = occurrence
        planned = self.planned(connection, rows)
        return planned if len(planned) == sum(self._rows_due(row.position) for row in rows) else None

    def write(self, connection: Connection, rows: Sequence[ExampleRow], *, sure: bool = False) -> Planned:
        """Write a chunk of examples and the rows they owe; fills in each `occurrence`. Returns what was planned there
        before.

        `sure`: they are the run's source's; then the plan is known so far, if nothing was planned there before.
        """
        self._count_occurrences(connection, rows)
        self._write_examples(connection, rows)
        before = {} if self.fresh else self.planned(connection, rows)
        owed = [
            (self.run, arm.number, row.position, trial, None)
            for arm in self.arms
            for row in rows
            if arm.arm.takes(row.position)
            for trial in range(self.trials)
        ]
        add(connection, schema.plan, _OWED, [row for row in owed if row[1:4] not in before] if before else owed)
        if sure and not before and self.source is not None:
            self.source.planned(connection, rows[0].position, len(rows))
        return before

    def planned(self, connection: Connection, rows: Sequence[ExampleRow]) -> Planned:
        """The plan rows of these examples now, with the outputs that are there."""
        planned: Planned = {}
        for arm in self.arms:
            span = (self.run, arm.number, rows[0].position, rows[-1].position, self.trials)
            scored: dict[int, tuple[int, ...]] = {}
            for output, evaluator in _PLANNED_SCORES.rows(connection, *span):
                scored[output] = (*scored[output], evaluator) if output in scored else (evaluator,)
            for position, trial, output, key, run, created, takes, failed, *facts in _PLANNED.rows(connection, *span):
                found = None
                if output is not None:
                    found = StoredAnswer(output, key, run == self.run, created, takes, bool(failed), *facts)
                    found.scored = () if failed else scored.get(output, ())
                planned[arm.number, position, trial] = found
        return planned

    def cut(self, connection: Connection, positions: int, *, sure: bool = False) -> None:
        """The examples ended after `positions` of them: plan rows beyond are of an earlier, longer plan. `sure`: all of
        it is known now.
        """
        if not self.fresh:
            connection.execute(delete(schema.examples).where(_e.run == self.run, _e.position >= positions))
            connection.execute(
                delete(schema.plan).where(_p.run == self.run, (_p.position >= positions) | (_p.trial >= self.trials))
            )
        if sure and self.source is not None:
            self.source.finish(connection, positions)

    def _rows_due(self, position: int) -> int:
        return self.trials * sum(arm.arm.takes(position) for arm in self.arms)

    def _count_occurrences(self, connection: Connection, rows: Sequence[ExampleRow]) -> None:
        seen: dict[str, int] = {}
        for some in pieces([bytes.fromhex(row.content) for row in rows] if rows[0].position else []):
            counted = connection.execute(_EARLIER, {"run": self.run, "contents": some, "first": rows[0].position})
            seen |= {content.hex(): count for content, count in counted}
        for row in rows:
            row.occurrence = seen.get(row.content, 0)
            seen[row.content] = row.occurrence + 1

    def _write_examples(self, connection: Connection, rows: Sequence[ExampleRow]) -> None:
        before = {} if self.fresh else self._examples_before(connection, rows)
        new = [row for row in rows if before.get(row.position) != (row.content, row.dataset, row.group, row.cluster)]
        put(connection, schema.examples, _EXAMPLE, [self._example(row) for row in new])
        edited = [row.position for row in rows if row.position in before and before[row.position][0] != row.content]
        if edited:  # what was answered there is not an answer to this
            connection.execute(
                update(schema.plan).where(_p.run == self.run, _p.position.in_(edited)).values(output=None)
            )

    def _example(self, row: ExampleRow) -> tuple[Any, ...]:
        body = None if self.bodies == "none" else self.serializer.body(row.example)
        return (
            self.run,
            row.position,
            dumps(row.id),
            row.dataset,
            row.group,
            row.cluster,
            bytes.fromhex(row.content),
            body,
        )

    def _examples_before(
        self, connection: Connection, rows: Sequence[ExampleRow]
    ) -> dict[int, tuple[str, str, str | None, str | None]]:
        query = select(_e.position, _e.content, _e.dataset, _e.group, _e.cluster)
        query = query.where(_e.run == self.run, _e.position.between(rows[0].position, rows[-1].position))
        found = connection.execute(query).all()
        return {
            position: (content.hex(), dataset, group, cluster) for position, content, dataset, group, cluster in found
        }


def look_up(connection: Connection, keys: Sequence[bytes], run: int, *, anywhere: bool) -> dict[bytes, StoredAnswer]:
    """Stored outputs that answer these keys: this run's, or the best of any run."""
    found: dict[bytes, StoredAnswer] = {}
    query = _STORED if anywhere else _STORED.where(_o.run == run)
    for some in pieces(keys):
        for number, key, maker, *facts in connection.execute(query, {"keys": some}):
            output = StoredAnswer(number, key, maker == run, *facts)
            if key not in found or _better(output, found[key]):
                found[key] = output
    by_id = {output.id: output for output in found.values() if not output.failed}
    for some in pieces(list(by_id)):
        for number, evaluator in connection.execute(_SCORED, {"outputs": some}):
            by_id[number].scored = (*by_id[number].scored, evaluator)
    return found


def pieces(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """So many at a time as one statement takes."""
    for start in range(0, len(values), _MANY):
        yield values[start : start + _MANY]


def _better(new: StoredAnswer, old: StoredAnswer) -> bool:
    """Answers before failures, own before foreign, newer before older."""
    return (not new.failed, new.own, new.created) > (not old.failed, old.own, old.created)


# Built once: planning a finished run is nothing but these.
_STORED = select(*_FACTS).where(_o.key.in_(bindparam("keys", expanding=True)))
_SCORED = select(_s.output, _s.evaluator).where(_s.output.in_(bindparam("outputs", expanding=True)), _s.error.is_(None))
_EARLIER = (
    select(_e.content, func.count())
    .where(
        _e.run == bindparam("run"),
        _e.content.in_(bindparam("contents", expanding=True)),
        _e.position < bindparam("first"),
    )
    .group_by(_e.content)
)
_SPAN = (
    _p.run == bindparam("of"),
    _p.arm == bindparam("by"),
    _p.position.between(bindparam("first"), bindparam("last")),
    _p.trial < bindparam("trials"),
)
_PLACE = ("of", "by", "first", "last", "trials")
_PLANNED = PreparedQuery(
    select(_p.position, _p.trial, _p.output, *_FACTS[1:])
    .select_from(schema.plan.outerjoin(schema.outputs, _p.output == _o.id))
    .where(*_SPAN),
    _PLACE,
)
_PLANNED_SCORES = PreparedQuery(
    select(_s.output, _s.evaluator)
    .select_from(schema.plan.join(schema.scores, _p.output == _s.output))
    .where(*_SPAN, _s.error.is_(None)),
    _PLACE,
)


def _seen_before() -> Select[Any]:
    """The examples of a span, each with the number of equal ones before it."""
    earlier = schema.examples.alias("earlier")
    equal = (earlier.c.run == _e.run, earlier.c.content == _e.content, earlier.c.position < _e.position)
    count = select(func.count()).where(*equal).correlate(schema.examples).scalar_subquery()
    here = (_e.run == bindparam("of"), _e.position.between(bindparam("first"), bindparam("last")))
    return select(_e.content, _e.dataset, _e.group, _e.cluster, count).where(*here).order_by(_e.position)


_SEEN = PreparedQuery(_seen_before(), ("of", "first", "last"))


def _as_it_is(text: str | None) -> str | None:
    return text


def point(connection: Connection, rows: Sequence[tuple[int | None, int, int, int, int]]) -> None:
    """Let plan rows point to outputs: (output, run, arm, position, trial)."""
    _pointing(connection.dialect.name).run(connection, rows)


@cache
def _pointing(database: str) -> Many:
    columns = ("output", "run", "arm", "position", "trial")
    named: dict[str, Any] = {name: bindparam(f"the_{name}") for name in columns}
    here = (schema.plan.c[name] == named[name] for name in columns[1:])
    statement = update(schema.plan).where(*here).values(output=named["output"])
    return compiled_once(database, statement, tuple(f"the_{name}" for name in columns), schema.plan)
