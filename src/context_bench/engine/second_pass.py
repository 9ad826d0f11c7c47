"""Stored answers judged: after everything is answered, or again later."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Sequence

from context_bench.core.errors import BadInput, RunTimedOut, Stop
from context_bench.engine.books import Executed
from context_bench.engine.circumstances import walls_of
from context_bench.engine.execution import Execution
from context_bench.engine.executors.local import judged
from context_bench.engine.manifest import blinding
from context_bench.engine.plan import Outcome, PlannedEvaluator, Unit
from context_bench.engine.scoring import Scorer
from context_bench.engine.store.reading import Stored, stored_by_id, stored_ids
from context_bench.engine.store.store import RunRecord
from context_bench.engine.work import Hand


async def judge_stored(
    execution: Execution, judges: Sequence[PlannedEvaluator], ids: array[int], *, seed: int, again: bool = False
) -> Stop | None:
    """Let `judges` see the stored outputs with these ids, in seeded order; those judged before are left out unless `again`."""
    random.Random(seed).shuffle(ids)
    scorers = [Scorer(each, execution.settings.example_timeout) for each in judges]
    places = iter(range(0, len(ids), 32))
    stops: list[Stop] = []

    async def worker(number: int) -> None:
        hand = Hand(f"context-bench-judge-{number}")
        try:
            for start in places:
                chunk: list[Stored] = await execution.in_database(
                    stored_by_id, execution.writer.store, execution.writer.run.number, list(ids[start : start + 32])
                )
                for item in chunk:
                    if stops:
                        return
                    stop = await _judge_one(execution, item, scorers, hand, again)
                    if stop is not None:
                        stops.append(stop)
        finally:
            hand.close()

    tasks = [asyncio.create_task(worker(number)) for number in range(min(execution.workers, max(1, len(ids))))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return stops[0] if stops else None


async def _judge_one(execution: Execution, item: Stored, scorers: Sequence[Scorer], hand: Hand, again: bool) -> Stop | None:
    missing = [scorer for scorer in scorers if again or scorer.planned.id not in item.scored]
    if not missing or item.row.failed or not item.whole:
        return None
    if item.example is None:
        raise BadInput("this run was made with bodies='none', so its examples are not in the store and its answers cannot be judged again")
    arm = next(index for index, each in enumerate(execution.bench.arms) if each.name == item.system)
    unit = Unit(arm, item.position, item.row.trial, item.example, "", 0, b"", output=item.id, done=True)
    outcome = Outcome(unit, ran=False, output=item.output)
    execution.commits.enter()
    try:
        await judged(execution.bench, outcome, missing, hand)
        await execution.commits.put(outcome)
    finally:
        execution.commits.leave()
    execution.books.note(outcome)
    return outcome.stop


async def judge_only(execution: Execution, record: RunRecord, again: bool) -> Executed:
    """Let the writer's evaluators judge the stored answers of a run."""
    execution.open()
    ids = await execution.in_database(stored_ids, execution.writer.store, record.number)
    if execution.progress is not None:
        execution.progress.start(record.systems, None)
    try:
        async with asyncio.timeout(execution.settings.run_timeout) as deadline:
            execution.stopped = await judge_stored(execution, execution.writer.evaluators, ids, seed=execution.settings.seed, again=again)
    except TimeoutError:
        if not deadline.expired():
            raise
        execution.stopped = RunTimedOut(
            f"judging took longer than the {execution.settings.run_timeout:g} s allowed; what was judged is kept, the same command goes on"
        )
    finally:
        await execution.commits.drain()
        if execution.progress is not None:
            execution.progress.close()
    names = [each.name for each in execution.writer.evaluators]
    before = record.manifest.get("rescored", [])
    late = {each.name: each.fingerprint for each in execution.writer.evaluators if each.after}
    now = {"at": execution.clock.now(), "evaluators": names} | ({"fingerprints": late} if late else {})
    sealed = {"blinding": blinding(record.manifest)} if late else {}
    told = {**record.manifest, **sealed, "rescored": [*before, now]}
    if walls := walls_of(told, [each.evaluator for each in execution.writer.evaluators]):
        told["walls"] = walls
    for known in ("judge_calibration", "judge_audit"):
        if late and (told.get(known) or {}).get("judge") not in late.values():
            told.pop(known, None)  # it was about another judge
    await execution.in_database(execution.writer.manifest, told)
    await execution.in_database(execution.writer.recount)
    systems = {name: {"judge_failed": count.judge_failed, "cost": count.cost} for name, count in execution.books.counts.items()}
    return Executed(record.id, record.name, execution.stopped is None, {"answers": len(ids), "systems": systems}, execution.stopped)
