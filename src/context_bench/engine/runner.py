"""`execute`: plan, work, commit, until all that is owed is done. `rescore`: judge stored answers again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput
from context_bench.core.protocols import Recorder, Spend
from context_bench.core.records import Call, Example
from context_bench.engine.books import Executed
from context_bench.engine.circumstances import Circumstances, Limits
from context_bench.engine.collecting import rare_collections
from context_bench.engine.execution import Execution
from context_bench.engine.executors.local import Executor, load_tokenizers
from context_bench.engine.manifest import continued, described, program
from context_bench.engine.plan import Arm, PlannedArm, RunSettings, planned_arms, planned_evaluators
from context_bench.engine.progress import Progress
from context_bench.engine.running import Runner
from context_bench.engine.second_pass import judge_only
from context_bench.engine.secrets import secrets_of
from context_bench.engine.source import source_key
from context_bench.engine.store.replies import StoredReplies, remembering
from context_bench.engine.store.store import Store, run_of
from context_bench.engine.store.writing import Writer, identity_of

__all__ = ["Executed", "Reuse", "execute", "rescore"]

Reuse = Literal["none", "run", "all"]


async def execute(
    store: Store,
    *,
    name: str | None,
    arms: Sequence[Arm],
    examples: Iterable[Example],
    evaluators: Sequence[Any],
    manifest: dict[str, Any],
    settings: RunSettings,
    recorder: Recorder | None = None,
    spend: Spend | None = None,
    progress: Progress | None = None,
    reuse: Reuse = "run",
    clock: Clock = SYSTEM_CLOCK,
    total: int | None = None,
    executor: Executor | None = None,
    limits: Limits | None = None,
    overhead: list[Call] | None = None,
) -> Executed:
    """Have every arm answer every example in every trial, judge the answers, and keep it all in `store`.

    `name`: the same name again goes on where it stopped and does only what is new, changed or failed; `None` goes on with the latest
    unfinished run of the same content, or begins one. `reuse`: "none" always begins anew, "all" also takes answers of other runs with
    equal content.
    `examples` may be endless in principle: they are read as needed and never all held. `total`: how many there are, for progress.
    `executor`: where the work is done, default in this process. `limits`: tells what changed about how much each endpoint is asked; it is
    kept with the run as it goes on. `overhead`: attempts that are made for the run and for none of its rows, before it begins or while
    its examples are made; they are written down, and taken out of the list, before examples are worked on.

    A failure of a system or evaluator is an error in its row; the run goes on. Cancelling (Ctrl-C) ends the run as interrupted: what was
    finished is committed, and `Executed.completed` is false. Raises `Stop` for what cannot begin, `StoreUnusable` when the store fails.
    """
    settings.check()
    secrets = secrets_of([*(arm.system for arm in arms), *evaluators])
    planned, judges = planned_arms(arms, secrets), planned_evaluators(evaluators, secrets)
    if settings.bodies == "none" and any(each.after for each in judges):
        raise BadInput("an evaluator that judges after the run needs the examples; bodies='none' keeps none")
    paid = [] if overhead is None else overhead
    writer = Writer(store, clock, secrets, reuse, settings.bodies, planned, judges, settings.trials, paid)
    runner = Runner(writer, settings, recorder, spend, progress, clock, executor)
    about = {"seed": settings.seed, "trials": settings.trials, "text_fields": settings.text_fields}
    identity = identity_of(planned, judges, about, manifest.get("datasets"))
    async with runner.threads():
        await runner.in_database(load_tokenizers, planned)
        source = await runner.in_database(source_key, examples, planned, program())
        begun = await runner.in_database(writer.begin, name, identity, source)
        await runner.in_database(writer.book)
        told = secrets.value(described(manifest, planned, judges, settings, recorder))
        told = continued(told, begun.before)
        told |= {"notes": list(dict.fromkeys([*told.get("notes", []), *secrets.notes]))} if secrets.notes else {}
        await runner.in_database(writer.manifest, told)
        runner.circumstances = Circumstances(told, limits, lambda manifest: runner.in_database(writer.manifest, manifest), evaluators)
        replies = StoredReplies(store, secrets, clock=clock, with_calls=True)
        with rare_collections(), remembering(replies, evaluators if reuse != "none" else []):
            return await runner.run(examples, _how_many(examples) if total is None else total)


def _how_many(examples: Iterable[Example]) -> int | None:
    return len(examples) if isinstance(examples, Sequence) else None


async def rescore(
    store: Store,
    run: str,
    evaluators: Sequence[Any],
    *,
    settings: RunSettings | None = None,
    spend: Spend | None = None,
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
    again: bool = False,
    overhead: list[Call] | None = None,
) -> Executed:
    """Judge the stored answers of a run (id or name) with `evaluators`; no system is called.

    Scores of evaluators with other names stay; one of the same name and another version or configuration takes the old one's place.
    What was judged by exactly this evaluator is left as it is, unless `again`; then judges are asked afresh, too. `overhead`: as in
    `execute`. Raises `BadInput` if
    the run kept no examples.
    """
    record = run_of(store, run)
    chosen = settings or RunSettings(max_workers=1)
    secrets = secrets_of(evaluators)
    judges = planned_evaluators(evaluators, secrets)
    arms = [PlannedArm(Arm(_Named(name)), "", {}) for name in record.systems]
    writer = Writer(store, clock, secrets, "run", chosen.bodies, arms, judges, overhead=[] if overhead is None else overhead)
    execution = Execution(writer, chosen, None, spend, progress, clock)
    with remembering(StoredReplies(store, secrets, clock=clock, with_calls=True), [] if again else evaluators):
        async with execution.threads():
            await execution.in_database(writer.take_up, record.number, record.id, record.name)
            await execution.in_database(writer.book)
            return await judge_only(execution, record, again)


@dataclass(frozen=True, slots=True)
class _Named:
    """Stands for a system of a stored run, of which only the name is needed."""

    name: str
