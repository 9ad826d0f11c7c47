"""How far a run's plan is known to be that of certain examples, and what is owed there: asked in bulk, without the examples.

A plan is known up to a position where all before it was planned from the same source and every output that a row points to answers it
as it is now. That is written together with the plan itself, so a killed run knows how far it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, delete, false, func, select, true, update

from context_bench.engine.plan import PlannedArm
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import insert

_k, _p, _o, _s = schema.sources.c, schema.plan.c, schema.outputs.c, schema.scores.c


@dataclass(frozen=True, slots=True)
class Known:
    """The plan is known for the first `positions` examples; `ended`: there are no more."""

    positions: int = 0
    ended: bool = False


@dataclass(slots=True)
class Passed:
    """What part of a known plan says. `examples` that owe nothing are only counted here; `owing`: positions of all others, in order.

    `reused`: arm (index) → answers; `oldest`: when the oldest of them was made.
    """

    owing: list[int] = field(default_factory=list)
    reused: dict[int, int] = field(default_factory=dict)
    oldest: float | None = None


@dataclass(slots=True)
class Settled:
    """What it takes that nothing of a plan row is owed: an answer of `run`, seen by a tap where there is one, judged by `evaluators`."""

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
                found.owing.append(position)
                continue
            for index in taking:
                found.reused[index] = found.reused.get(index, 0) + self.trials
                found.oldest = _older(found.oldest, settled[index][position])
        return found

    def _counted(self, connection: Connection, arm: PlannedArm, first: int, last: int) -> tuple[int, float | None] | None:
        """Answers of an arm that owes nothing there, and when the oldest was made; `None` if it owes anything."""
        expected = self.trials * len(range(first + -first % arm.arm.every, last + 1, arm.arm.every))
        answered = select(func.count(), func.min(_o.created)).select_from(_ANSWERED).where(*self._here(arm, first, last), *self._answers)
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
        answered = select(_p.position, func.count(), func.min(_o.created)).select_from(_ANSWERED).where(*here, *self._answers)
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

    def begin(self, connection: Connection, *, fresh: bool) -> Known:
        """What is known of the plan for this source; what was known of another one is forgotten."""
        if not fresh:
            found = connection.execute(select(_k.source, _k.positions, _k.ended).where(_k.run == self.run)).first()
            if found is not None and found.source == self.source:
                return Known(found.positions, found.ended)
            connection.execute(delete(schema.sources).where(_k.run == self.run))
        if self.source is not None:
            connection.execute(insert(connection, schema.sources).values(run=self.run, source=self.source, positions=0, ended=false()))
        return Known()

    def planned(self, connection: Connection, first: int, count: int) -> None:
        """So many examples more are planned, if all before `first` are known."""
        if self.source is not None:
            known = update(schema.sources).where(_k.run == self.run, _k.positions == first)
            connection.execute(known.values(positions=first + count, ended=false()))

    def ended(self, connection: Connection, positions: int) -> None:
        """All is planned."""
        if self.source is not None:
            connection.execute(update(schema.sources).where(_k.run == self.run).values(positions=positions, ended=true()))
