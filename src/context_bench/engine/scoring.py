"""Ask evaluators: whether one applies, its scores, and what counts as its failure."""

from __future__ import annotations

import asyncio
import numbers
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import (
    CostCapReached,
    EvaluatorFailed,
    MissingExtra,
    PreflightFailed,
    Stop,
    StoreUnusable,
    TimedOut,
    describe,
)
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.numbers import score
from context_bench.core.records import DATASET_GIVEN, Example
from context_bench.engine.observe import usage_of
from context_bench.engine.plan import EvaluatorScore, PlannedEvaluator

#: What ends a run when a plug-in raises it; every other exception is one row's failure.
STOPS = (CostCapReached, StoreUnusable, MissingExtra, PreflightFailed)

#: Seconds below which a plain `score()` is called on the loop, and above which a call there was slow. So many slow
#: ones, and one in so many at least, send it to a thread for good: the first call may have to import something, and a
#: busy machine makes any call slow now and then.
_QUICK, _SLOW, _SLOW_CALLS, _ONE_IN = 0.0005, 0.005, 3, 20


@dataclass(slots=True)
class Scorer:
    """One evaluator of a run. A plain `score()` runs in a thread until it has shown to be quick, or from the start on
    the loop if the evaluator says that it is (`quick = True`).
    """

    planned: PlannedEvaluator
    timeout: float | None = None
    _inline: bool = False
    _calls: int = 0  # on the loop
    _slow: int = 0  # of them

    def __post_init__(self) -> None:
        self._inline = getattr(self.planned.evaluator, "quick", False) is True

    async def score(
        self, example: Example, processed: Example, *, ledger: Ledger, pool: Executor | None
    ) -> tuple[EvaluatorScore, Stop | None]:
        """The evaluator's verdict on a pair; the second value is what ends the run, if anything does (then there is no
        verdict).

        Its calls are written into `ledger`, where they stay if this is cancelled.
        """
        score = EvaluatorScore(self.planned.id)
        stop: Stop | None = None
        try:
            with open_ledger(ledger):
                score.values = await self._ask(example, processed, pool)
        except STOPS as error:
            stop = error
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also what libraries raise beside `Exception`, such as a panic in Rust
            score.error = describe(error)
        score.calls, score.replies = ledger.calls, ledger.replies
        if ledger.calls:
            score.usage = usage_of(ledger.calls)
        return score, stop

    async def _ask(self, example: Example, processed: Example, pool: Executor | None) -> dict[str, float] | None:
        evaluator = self.planned.evaluator
        needed = self._applies(example, processed)
        if needed is False:
            return None
        found = await (
            self._call(example, processed, pool) if self.timeout is None else self._in_time(example, processed, pool)
        )
        values = numbers_of(found, self.planned.name)
        if values or needed is None:
            return values or None
        wanted = ", ".join(getattr(evaluator, "needs", ())) or "what it needs"
        raise EvaluatorFailed(f"{self.planned.name} returned no score although the example has {wanted}")

    async def _in_time(self, example: Example, processed: Example, pool: Executor | None) -> Any:
        try:
            async with asyncio.timeout(self.timeout) as scope:
                return await self._call(example, processed, pool)
        except TimeoutError:
            if not scope.expired():
                raise
            raise TimedOut(f"{self.planned.name} gave no score within {self.timeout:g} s") from None

    def _applies(self, example: Example, processed: Example) -> bool | None:
        """True or False as the evaluator says or its `needs` tell, `None` if it declares nothing (then `{}` means: does
        not apply).
        """
        evaluator = self.planned.evaluator
        if example.get(DATASET_GIVEN, example.get("dataset")) in getattr(evaluator, "not_for", ()):
            return False
        if (asked := calling.method(evaluator, "applies")) is not None:
            return bool(calling.call_here(asked, example, processed))
        needs: Sequence[str] | None = getattr(evaluator, "needs", None)
        if not needs:
            return None
        return all(example.get(name) is not None for name in ((needs,) if isinstance(needs, str) else needs))

    async def _call(self, example: Example, processed: Example, pool: Executor | None) -> Any:
        evaluator = self.planned.evaluator
        if (asynchronous := calling.method(evaluator, "ascore")) is not None:
            return await calling.call(asynchronous, example, processed, pool=pool)
        if self._inline:
            started = time.perf_counter()
            found = calling.call_here(evaluator.score, example, processed)
            self._calls += 1
            if time.perf_counter() - started > _SLOW:
                self._slow += 1
                self._inline = not self._too_slow
            return await found if asyncio.iscoroutine(found) else found
        return await self._in_thread(evaluator, example, processed, pool)

    @property
    def reads_arrived(self) -> bool:
        """The evaluator wants `processed["arrived"]`: the texts that went on to the model."""
        return getattr(self.planned.evaluator, "reads_arrived", False) is True

    @property
    def _too_slow(self) -> bool:
        return self._slow >= _SLOW_CALLS and self._slow * _ONE_IN >= self._calls

    async def _in_thread(self, evaluator: Any, example: Example, processed: Example, pool: Executor | None) -> Any:
        took = 0.0

        def timed(*pair: Example) -> Any:
            nonlocal took
            started = time.perf_counter()
            try:
                return evaluator.score(*pair)
            finally:
                took = time.perf_counter() - started

        found = await calling.call(timed, example, processed, pool=pool)
        self._inline = took < _QUICK and not self._too_slow
        return found


def numbers_of(found: Any, name: str) -> dict[str, float]:
    """The scores an evaluator returned; one that is `None` does not apply. Raises `EvaluatorFailed` for what is no
    dict, and for a value that is no number, not finite or beyond all scales.
    """
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise EvaluatorFailed(f"{name} returned {type(found).__name__}, expected a dict of numbers")
    values: dict[str, float] = {}
    for key, value in found.items():
        if value is None:
            continue
        if type(value) is not float and not isinstance(value, numbers.Real) and not hasattr(value, "__float__"):
            raise EvaluatorFailed(f"{name} returned {str(key)!r} = {str(value)[:80]!r}, expected a number")
        if (number := score(value)) is None:
            raise EvaluatorFailed(
                f"{name} returned {str(key)!r} = {str(value)[:80]}, expected a finite number of at most 2^53; "
                "leave a score out, or return None, where it does not apply"
            )
        values[str(key)] = number
    return values
