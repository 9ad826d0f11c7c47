"""The plan of a run as rows: its examples in order, what each arm owes, and which stored output answers what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, select, update

from context_bench.core.records import Example
from context_bench.engine.plan import Found, PlannedArm
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import written
from context_bench.engine.store.encoding import dumps
from context_bench.engine.store.known import SourceRow
from context_bench.engine.store.serializing import Serializer
from context_bench.engine.store.statements import Query, add, put

#: SQLite takes at least 999 values in one statement; stay below.
_MANY = 400
#: (arm number, position, trial) → the output that its plan row points to, `None` where it is owed.
Planned = dict[tuple[int, int, int], Found | None]

_e, _p, _o, _s = schema.examples.c, schema.plan.c, schema.outputs.c, schema.scores.c
_EXAMPLE = ("run", "position", "id", "dataset", "group", "cluster", "content", "body")
_OWED = ("run", "arm", "position", "trial", "output")
_FACTS = (_o.id, _o.key, _o.run, _o.created, _o.takes, _o.error.is_not(None), _o.tapped, _o.source, _o.output_tokens, _o.context_tokens)


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
        """What was planned for these examples, if they are the same as before and all that they owe is in the plan; else `None`.

        Fills in each `occurrence`. Nothing need be written then: this is all that taking up a finished run does.
        """
        stored = _SEEN.rows(connection, self.run, rows[0].position, rows[-1].position)
        if len(stored) != len(rows):
            return None
        own = written if connection.dialect.name == "postgresql" else _as_it_is
        for row, (content, dataset, group, cluster, occurrence) in zip(rows, stored, strict=True):
            if content.hex() != row.content or dataset != own(row.dataset) or group != own(row.group) or cluster != own(row.cluster):
                return None
            row.occurrence = occurrence
        planned = self.planned(connection, rows)
        return planned if len(planned) == sum(self._owing(row.position) for row in rows) else None

    def write(self, connection: Connection, rows: Sequence[ExampleRow], *, sure: bool = False) -> Planned:
        """Write a chunk of examples and the rows they owe; fills in each `occurrence`. Returns what was planned there before.

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
        """What is planned for these examples now, with the outputs that are there."""
        planned: Planned = {}
        for arm in self.arms:
            span = (self.run, arm.number, rows[0].position, rows[-1].position, self.trials)
            scored: dict[int, tuple[int, ...]] = {}
            for output, evaluator in _PLANNED_SCORES.rows(connection, *span):
                scored[output] = (*scored[output], evaluator) if output in scored else (evaluator,)
            for position, trial, output, key, run, created, takes, failed, *facts in _PLANNED.rows(connection, *span):
                found = None
                if output is not None:
                    found = Found(output, key, run == self.run, created, takes, bool(failed), *facts)
                    found.scored = () if failed else scored.get(output, ())
                planned[arm.number, position, trial] = found
        return planned

    def cut(self, connection: Connection, positions: int, *, sure: bool = False) -> None:
        """The examples ended after `positions` of them: plan rows beyond are of an earlier, longer plan. `sure`: all of it is known now."""
        if not self.fresh:
            connection.execute(delete(schema.examples).where(_e.run == self.run, _e.position >= positions))
            connection.execute(delete(schema.plan).where(_p.run == self.run, (_p.position >= positions) | (_p.trial >= self.trials)))
        if sure and self.source is not None:
            self.source.ended(connection, positions)

    def _owing(self, position: int) -> int:
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
            connection.execute(update(schema.plan).where(_p.run == self.run, _p.position.in_(edited)).values(output=None))

    def _example(self, row: ExampleRow) -> tuple[Any, ...]:
        body = None if self.bodies == "none" else self.serializer.body(row.example)
        return self.run, row.position, dumps(row.id), row.dataset, row.group, row.cluster, bytes.fromhex(row.content), body

    def _examples_before(self, connection: Connection, rows: Sequence[ExampleRow]) -> dict[int, tuple[str, str, str | None, str | None]]:
        query = select(_e.position, _e.content, _e.dataset, _e.group, _e.cluster)
        query = query.where(_e.run == self.run, _e.position.between(rows[0].position, rows[-1].position))
        found = connection.execute(query).all()
        return {position: (content.hex(), dataset, group, cluster) for position, content, dataset, group, cluster in found}


def look_up(connection: Connection, keys: Sequence[bytes], run: int, *, anywhere: bool) -> dict[bytes, Found]:
    """Stored outputs that answer these keys: this run's, or the best of any run."""
    found: dict[bytes, Found] = {}
    query = _STORED if anywhere else _STORED.where(_o.run == run)
    for some in pieces(keys):
        for number, key, maker, *facts in connection.execute(query, {"keys": some}):
            output = Found(number, key, maker == run, *facts)
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


def _better(new: Found, old: Found) -> bool:
    """Answers before failures, own before foreign, newer before older."""
    return (not new.failed, new.own, new.created) > (not old.failed, old.own, old.created)


# Built once: planning a finished run is nothing but these.
_STORED = select(*_FACTS).where(_o.key.in_(bindparam("keys", expanding=True)))
_SCORED = select(_s.output, _s.evaluator).where(_s.output.in_(bindparam("outputs", expanding=True)), _s.error.is_(None))
_EARLIER = (
    select(_e.content, func.count())
    .where(_e.run == bindparam("run"), _e.content.in_(bindparam("contents", expanding=True)), _e.position < bindparam("first"))
    .group_by(_e.content)
)
_SPAN = (
    _p.run == bindparam("of"),
    _p.arm == bindparam("by"),
    _p.position.between(bindparam("first"), bindparam("last")),
    _p.trial < bindparam("trials"),
)
_PLACE = ("of", "by", "first", "last", "trials")
_PLANNED = Query(
    select(_p.position, _p.trial, _p.output, *_FACTS[1:])
    .select_from(schema.plan.outerjoin(schema.outputs, _p.output == _o.id))
    .where(*_SPAN),
    _PLACE,
)
_PLANNED_SCORES = Query(
    select(_s.output, _s.evaluator).select_from(schema.plan.join(schema.scores, _p.output == _s.output)).where(*_SPAN, _s.error.is_(None)),
    _PLACE,
)


def _seen_before() -> Select[Any]:
    """The examples of a span, each with the number of equal ones before it."""
    earlier = schema.examples.alias("earlier")
    equal = (earlier.c.run == _e.run, earlier.c.content == _e.content, earlier.c.position < _e.position)
    count = select(func.count()).where(*equal).correlate(schema.examples).scalar_subquery()
    here = (_e.run == bindparam("of"), _e.position.between(bindparam("first"), bindparam("last")))
    return select(_e.content, _e.dataset, _e.group, _e.cluster, count).where(*here).order_by(_e.position)


_SEEN = Query(_seen_before(), ("of", "first", "last"))


def _as_it_is(text: str | None) -> str | None:
    return text
