"""The examples of a run by their positions, and what tells them from others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from context_bench.core.iterables import skip
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Fingerprinted
from context_bench.core.records import Example
from context_bench.engine.plan import PlannedArm

END: Any = object()
#: To be raised when an example of the same source gets another content key, or an output another key, than before.
_RULES = 1


def source_key(examples: Iterable[Example], arms: Sequence[PlannedArm], program: str | None) -> bytes | None:
    """16 bytes that name the plan of these examples: equal ones, equal examples with equal keys; `None` where that is not known.

    `program`: the version of this package, which reads and completes them. Keys of outputs depend on nothing else of a run but the arms'
    own keys, which the store watches, and on who takes a budget from whom.
    """
    try:
        told = examples.told() if isinstance(examples, Fingerprinted) else None
    except OSError:  # who reads it will say so
        return None
    budgets = sorted([arm.name, arm.arm.budget_from] for arm in arms if arm.arm.budget_from is not None)
    return None if told is None else bytes.fromhex(stable_hash([_RULES, program, told, budgets]))


class Source:
    """Examples, read forwards only. `told`: they can be known again."""

    def __init__(self, examples: Iterable[Example]) -> None:
        self._examples: Iterator[Any] = iter(examples)
        self._watched = examples if isinstance(examples, Fingerprinted) else None
        self.told = self._watched is not None
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
