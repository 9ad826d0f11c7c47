"""Plan the examples of a run: read them as they are needed, a chunk at a time, and match them with the stored outputs.

An `ExampleSource` gives the examples by position, with the fingerprint that tells them from others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Fingerprinted
from context_bench.core.records import Example
from context_bench.core.rows import skip
from context_bench.engine.plan import (
    DependencyGroup,
    PlannedArm,
    StoredAnswer,
    WorkItem,
    content_key,
    example_facts,
    ordered,
    output_key,
)
from context_bench.engine.store.run_writer import ExampleRow, Passed, Planned, SettledPlan, Writer

END: Any = object()
#: To be raised when an example of the same source gets another content key, or an output another key, than before.
_RULES = 1


def source_key(examples: Iterable[Example], arms: Sequence[PlannedArm], program: str | None) -> bytes | None:
    """16 bytes that name the plan of these examples: equal ones, equal examples with equal keys; `None` where that is
    not known.

    `program`: the version of this package, which reads and completes them. Keys of outputs depend on nothing else of a
    run but the arms' own keys, which the store watches, and on who takes a budget from whom.
    """
    try:
        told = examples.fingerprint() if isinstance(examples, Fingerprinted) else None
    except OSError:  # who reads it will say so
        return None
    budgets = sorted([arm.name, arm.arm.budget_from] for arm in arms if arm.arm.budget_from is not None)
    return None if told is None else bytes.fromhex(stable_hash([_RULES, program, told, budgets]))


class ExampleSource:
    """Examples, read forwards only. `identified`: they can be recognised without being read."""

    def __init__(self, examples: Iterable[Example]) -> None:
        self._examples: Iterator[Any] = iter(examples)
        self._watched = examples if isinstance(examples, Fingerprinted) else None
        self.identified = self._watched is not None
        self.position = 0

    def at(self, position: int) -> Any:
        """The example at a position that is not behind us; `END` if there are not so many."""
        if position > self.position:
            self.position += skip(self._examples, position - self.position)
        if position > self.position:
            return END
        example = next(self._examples, END)
        self.position += example is not END
        return example

    def unchanged(self) -> bool:
        """Are they still what was told of them?"""
        return self._watched is not None and self._watched.unchanged()


#: Seconds after which a slow source gives a smaller chunk: work begins at once.
_PATIENCE = 0.2
#: Positions of a known plan that are asked about at once.
SPAN = 8192


@dataclass(slots=True)
class PlanCounts:
    """Counts of planned work."""

    planned: int = 0
    reused: int = 0
    oldest: float | None = None  # when the oldest reused output was made, seconds since the epoch
    restarted: int = 0
    examples: int = 0
    reused_by_arm: dict[int, int] = field(default_factory=dict)
    planned_by_arm: dict[int, int] = field(default_factory=dict)

    def add(self, arm: int, units: int) -> None:
        """An arm has so many units more."""
        self.planned += units
        self.planned_by_arm[arm] = self.planned_by_arm.get(arm, 0) + units

    def reuse(self, arm: int, units: int, created: float | None) -> None:
        """So many of an arm's units have an answer, the oldest made then; below 0: they are to be answered again."""
        self.reused += units
        self.reused_by_arm[arm] = self.reused_by_arm.get(arm, 0) + units
        if created is not None:
            self.oldest = min(created, self.oldest or created)


class Planning:
    """Tells units of examples in their order. What is known of the plan already is passed over, as far as nothing is
    owed there.

    Units of one example do not depend on others', but where state is kept or budgets are taken over: there what is
    known is not made use of, unless all is done.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        arms: list[PlannedArm],
        writer: Writer,
        *,
        trials: int,
        seed: int,
        tapped: bool,
        reader: Executor,
        database: Executor,
    ) -> None:
        self.tally = PlanCounts()
        self._source = ExampleSource(examples)
        self._arms, self._writer = arms, writer
        self._trials, self._seed, self._tapped = trials, seed, tapped
        self._reader, self._database = reader, database
        self._primaries = [i for i, arm in enumerate(arms) if not arm.waits]
        self._dependents = [i for i, arm in enumerate(arms) if arm.waits]
        budgeted = any(arm.partner is not None for arm in arms)  # whose keys are known only then
        self._settled_plan = SettledPlan() if budgeted else writer.settled
        self._wanted: deque[int] = deque()  # positions of the known part that owe something
        self._sure = self._source.identified
        self._begun = False
        self._judges = {each.id for each in writer.evaluators if not each.after}

    async def chunk(self, size: int) -> tuple[list[WorkItem], bool]:
        """The units of up to `size` examples, and whether there may be more."""
        await self._pass_over()
        settled = self._settled_plan
        if settled.complete and not self._wanted and self.tally.examples >= settled.positions:
            return [], False
        passing = bool(self._wanted)
        rows, more = await self._in(self._reader, self._read, size)
        if not rows:
            return [], more
        planned = await self._in(self._database, partial(self._writer.plan, rows, sure=self._sure))
        if not passing:
            self.tally.examples += len(rows)
        for index, each in enumerate(self._arms):
            self.tally.add(index, self._trials * sum(each.arm.takes(row.position) for row in rows))
        units = [unit for row in rows for unit in self._units(row, planned)]
        await self.match(units)
        return units, more

    async def end(self) -> None:
        """There are no more examples: write down where they ended."""
        await self._in(
            self._database, partial(self._writer.cut, self.tally.examples, sure=self._sure and self._source.unchanged())
        )

    async def _in(self, where: Executor, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(where, function, *args)

    # --- what is known already ---

    async def _pass_over(self) -> None:
        """Go on in the known part of the plan to where something is owed."""
        if not self._begun:
            self._begun = True
            if any(arm.stateful for arm in self._arms) and not await self._all_done():
                self._settled_plan = SettledPlan()
        while not self._wanted and self.tally.examples < self._settled_plan.positions:
            first = self.tally.examples
            passed = await self._passed(first)
            for index, answers in passed.reused.items():
                self.tally.add(index, answers)
                self.tally.reuse(index, answers, passed.oldest)
            self._wanted.extend(passed.pending)
            self.tally.examples = self._after(first)

    async def _all_done(self) -> bool:
        if not self._settled_plan.complete:
            return False
        for first in range(0, self._settled_plan.positions, SPAN):
            if (await self._passed(first)).pending:
                return False
        return True

    async def _passed(self, first: int) -> Passed:
        found: Passed = await self._in(
            self._database, partial(self._writer.passed, first, self._after(first) - 1, tapped=self._tapped)
        )
        return found

    def _after(self, first: int) -> int:
        return min(first + SPAN, self._settled_plan.positions)

    # --- reading ---

    def _read(self, size: int) -> tuple[list[ExampleRow], bool]:
        """The next examples that are wanted, in the reader's thread; stops early if they come slowly."""
        wanted = [self._wanted.popleft() for _ in range(min(size, len(self._wanted)))]
        places: Iterator[int] = iter(wanted) if wanted else count(self.tally.examples)
        rows: list[ExampleRow] = []
        until = time.monotonic() + _PATIENCE
        for position in islice(places, size):
            if time.monotonic() >= until:
                self._wanted.extendleft(reversed(wanted[len(rows) :]))
                break
            example = self._source.at(position)
            if example is END:
                self._wanted.clear()
                self.tally.examples = min(self.tally.examples, self._source.position) if wanted else self.tally.examples
                return rows, False
            if not isinstance(example, dict):
                raise BadInput(
                    f"example {position} is {type(example).__name__} {str(example)[:80]!r}; expected a dict with id "
                    "and context"
                )
            rows.append(ExampleRow(position, example, content_key(example), *example_facts(example, position)))
        self._sure = self._sure and self._source.unchanged()
        return rows, True

    # --- units ---

    def _units(self, row: ExampleRow, planned: Planned) -> Iterator[WorkItem]:
        for trial in range(self._trials):
            taking = [index for index in self._primaries if self._arms[index].arm.takes(row.position)]
            due = [index for index in self._dependents if self._arms[index].arm.takes(row.position)]
            block = DependencyGroup({*taking, *due}, []) if self._dependents else None
            for index in ordered(taking, self._seed, row.content, trial):
                key = output_key(self._arms[index], row.content, trial, row.occurrence)
                if (
                    block is None
                    and planned
                    and self._settled(index, key, planned.get((self._arms[index].number, row.position, trial)))
                ):
                    continue
                yield self._unit(index, row, trial, key, block, planned)
            if block is not None:
                for index in ordered(due, self._seed, row.content, trial):
                    block.dependents.append(self._unit(index, row, trial, b"", block, planned))

    def _settled(self, arm: int, key: bytes, before: StoredAnswer | None) -> bool:
        """Is nothing owed where the plan points to this output? Then it is only counted."""
        if (
            before is None
            or not self._is_best(before, key)
            or self._arms[arm].stateful
            or (self._tapped and not before.tapped)
        ):
            return False
        if not self._judges.issubset(before.scored):
            return False
        self.tally.reuse(arm, 1, before.created)
        return True

    def _unit(
        self, arm: int, row: ExampleRow, trial: int, key: bytes, block: DependencyGroup | None, planned: Planned
    ) -> WorkItem:
        unit = WorkItem(arm, row.position, trial, row.example, row.content, row.occurrence, key, row.group, block=block)
        if planned:
            unit.before = planned.get((self._arms[arm].number, row.position, trial))
        return unit

    async def match(self, units: list[WorkItem]) -> None:
        """Find stored outputs for these units, and let plan rows point to them."""
        if not self._writer.has_past:
            return
        unknown = []
        for unit in units:
            if self._is_best(unit.before, unit.key):
                self._stand_for(unit, unit.before)
            else:
                unknown.append(unit)
        if unknown:
            found = await self._in(self._database, self._writer.lookup, [unit.key for unit in unknown])
            for unit in unknown:
                self._stand_for(unit, found.get(unit.key))
        moved = [
            unit for unit in units if unit.output is not None and (unit.before is None or unit.before.id != unit.output)
        ]
        if moved:
            await self._in(self._database, self._writer.point, moved)
        if any(unit.output is None and unit.before is not None for unit in units):
            self._sure = False  # until it is answered, its row points to what answers something else

    def _is_best(self, before: StoredAnswer | None, key: bytes) -> bool:
        """Does what the plan pointed to answer this key, so that no other output could answer it better?"""
        return before is not None and before.key == key and before.own and not before.failed

    def _stand_for(self, unit: WorkItem, found: StoredAnswer | None) -> None:
        """Let a stored output answer the unit, if it is an answer (and was seen by a tap, if there is one now)."""
        if found is None:
            return
        usable = not found.failed and (found.tapped or not self._tapped)
        if not usable and not found.own:
            return
        unit.output, unit.takes, unit.done, unit.found = found.id, found.takes, usable, found
        if usable:
            unit.scored = found.scored
            self.tally.reuse(unit.arm, 1, found.created)
