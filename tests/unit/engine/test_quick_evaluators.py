"""Where `score()` is called: quick evaluators on the event loop, others in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.engine.plan import PlannedEvaluator, WorkItem, WorkOutcome
from context_bench.engine.scoring import Scorer
from context_bench.engine.work import WorkerContext, WorkerThread, judge
from context_bench.evaluators import AnswerQuality


class Noting:
    """An evaluator that notes the thread of every call and takes as long as it is told."""

    name = "noting"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.threads: list[int] = []

    def score(self, original: dict[str, Any], processed: dict[str, Any]) -> dict[str, float]:
        self.threads.append(threading.get_ident())
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return {"noted": 1.0}


class Quick(Noting):
    quick = True


def _judged(evaluator: Any, times: int) -> None:
    async def main() -> None:
        scorer, hand = Scorer(PlannedEvaluator(evaluator, "00", {})), WorkerThread("test-of-scoring")
        bench = WorkerContext("run", [], [scorer], SYSTEM_CLOCK)
        for position in range(times):
            outcome = WorkOutcome(WorkItem(0, position, 0, {"id": position}, "", 0, b""), output={"response": "yes"})
            await judge(bench, outcome, bench.scorers, hand)
            assert [(score.values, score.error) for score in outcome.scores] == [({"noted": 1.0}, None)]
        hand.close()

    asyncio.run(main())


def test_an_evaluator_that_says_it_is_quick_is_called_on_the_loop_from_the_first_row() -> None:
    evaluator = Quick()

    _judged(evaluator, 3)

    assert set(evaluator.threads) == {threading.get_ident()}


def test_one_that_says_nothing_is_tried_in_a_thread_first() -> None:
    evaluator = Noting()

    _judged(evaluator, 1)

    assert threading.get_ident() not in evaluator.threads


def test_one_that_says_it_is_quick_and_works_long_goes_to_a_thread_for_good() -> None:
    evaluator = Quick(0.02)

    _judged(evaluator, 6)

    assert set(evaluator.threads[:3]) == {threading.get_ident()}
    assert threading.get_ident() not in evaluator.threads[3:]


@pytest.mark.parametrize("evaluator", [AnswerQuality()])
def test_saying_so_does_not_change_what_the_evaluator_is(evaluator: Any) -> None:
    from context_bench.core.protocols import fingerprint

    assert evaluator.quick is True
    assert "quick" not in fingerprint(evaluator)
