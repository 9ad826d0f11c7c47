"""One piece of work: the system answers an example, the clock stops, the evaluators judge. Exceptions of plug-ins are
caught here only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import (
    BadReply,
    CostCapReached,
    Failed,
    NoBudget,
    NotStored,
    PreflightFailed,
    SetupFailed,
    Stop,
    TimedOut,
    describe,
)
from context_bench.core.ledger import BaselinePairing, Ledger, Mark, open_ledger
from context_bench.core.machine import Clock
from context_bench.core.numbers import count
from context_bench.core.protocols import Recorder, Spend
from context_bench.core.records import Call, Example, Forwarded
from context_bench.engine.commit import OneThread
from context_bench.engine.observe import (
    TEXT_FIELDS,
    added_calls,
    after_done,
    arrived_as,
    arrived_texts,
    asks_in_own_words,
    calls_seen,
    context_tokens,
    conversing,
    fill_in_tokens,
    observed,
    returned_tokens,
    usage_of,
)
from context_bench.engine.plan import PlannedArm, SetUp, WorkItem, WorkOutcome, paired_at
from context_bench.engine.scoring import STOPS, Scorer
from context_bench.llm.shapes import first_line
from context_bench.wire.words import evidence_of

#: Fields of an example by which rows are told apart in reports.
_KINDS = ("qa_type",)
_CONTAINERS = (dict, list)
_USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(slots=True)
class WorkerContext:
    """Shared by all workers of a run."""

    run: str
    arms: list[PlannedArm]
    scorers: list[Scorer]
    clock: Clock
    recorder: Recorder | None = None
    spend: Spend | None = None
    example_timeout: float | None = None
    text_fields: tuple[str, ...] = TEXT_FIELDS
    setup_timeout: float | None = None
    leave_behind: Callable[[WorkOutcome], Any] | None = None  # who keeps the calls of work that was cancelled
    waiting: Callable[[str], None] | None = None  # who is told of an endpoint that gives no answer and is asked again


@dataclass(slots=True)
class WorkerThread:
    """One worker's own thread for plug-ins that block."""

    name: str
    pool: OneThread = field(init=False)

    def __post_init__(self) -> None:
        self.pool = OneThread(self.name)

    def replace_thread(self) -> None:
        """Leave a thread that hangs behind, and take a new one."""
        self.pool.shutdown(wait=False)
        self.pool = OneThread(self.name)

    def close(self) -> None:
        """Let the thread end."""
        self.pool.shutdown(wait=False)


@dataclass(slots=True)
class _Answer:
    """The system's answer, before anything is counted."""

    returned: Any = None
    error: str | None = None
    stop: Stop | None = None
    elapsed: float = 0.0  # seconds on the clock
    waited: float = 0.0  # of them, by its calls for a slot or in back-off
    calls: list[Call] = field(default_factory=list)
    records: list[Forwarded] | None = None
    mark: Mark | None = None
    in_full: int | None = None  # tokens of the request as it would have been sent unshortened


async def perform(
    worker_context: WorkerContext, unit: WorkItem, thread: WorkerThread, system: Any | None = None
) -> WorkOutcome:
    """Have the unit's system (or `system`, its isolated instance for one group) answer, and the evaluators judge the
    answer.
    """
    arm = worker_context.arms[unit.arm]
    if arm.partner is not None and unit.budget is None:
        return refused(worker_context, unit, describe(_no_budget(worker_context.arms[arm.partner].name, unit)))
    outcome = WorkOutcome(unit, metadata=_labels(arm, unit))
    example = unit.example if unit.budget is None else {**unit.example, "budget": unit.budget}
    if arm.played_back:
        example = {**example, "trial": unit.trial}
    asked, answer = arm.system if system is None else system, _Answer()
    limit = _Limit(worker_context.example_timeout, "no answer within {:g} s, the time allowed for one example")
    try:
        await _watched(
            worker_context,
            _Window(_conversation(worker_context, arm, unit), _pairing(worker_context, arm, unit)),
            answer,
            lambda: _process(asked, example, thread),
            limit,
            thread,
            needs_bill=arm.feeds,
        )
        outcome.error, outcome.stop = answer.error, answer.stop
        outcome.ran = (
            answer.stop is None
        )  # stopped before an answer: the row is still owed, only what was paid is written down
        try:
            await _describe(worker_context, outcome, answer, example)
        except STOPS:
            raise
        except Exception as error:  # what a plug-in says of itself can be anything
            outcome.error = describe(NotStored(f"what came back cannot be counted ({describe(error)})"))
        if outcome.error is None and outcome.stop is None:
            await judge(worker_context, outcome, worker_context.scorers, thread)
            outcome.arrived = None
    except asyncio.CancelledError:
        leave_behind(worker_context, outcome, answer.calls)
        raise
    return outcome


def leave_behind(worker_context: WorkerContext, outcome: WorkOutcome, asked: Sequence[Call] = ()) -> None:
    """Cancelled on the way: what was owed still is, but what was asked is on the bill and stays in the books."""
    calls = [*(outcome.calls or asked), *(call for score in outcome.scores for call in score.calls)]
    if calls and worker_context.leave_behind is not None:
        worker_context.leave_behind(WorkOutcome(outcome.unit, ran=False, calls=calls))


def refused(worker_context: WorkerContext, unit: WorkItem, error: str) -> WorkOutcome:
    """The outcome of a work item about which the system cannot be asked."""
    return WorkOutcome(unit, error=error, metadata=_labels(worker_context.arms[unit.arm], unit))


def _no_budget(partner: str, unit: WorkItem) -> NoBudget:
    """The reason for which a control cannot be asked, in words of the partner that gives its budget."""
    said = f"what {partner} forwarded of this example is not known, so there is no budget to match"
    if not unit.unsized:
        return NoBudget(f"{said}: it gave no answer; it is asked again when this run goes on")
    return NoBudget(
        f"{said}: its answer is stored and is not asked for again, but came without a bill, and no tap counted what "
        "arrived"
    )


async def set_up(
    worker_context: WorkerContext, setup: SetUp, unit: WorkItem, thread: WorkerThread, system: Any
) -> None:
    """Have `system` get the group of `unit` ready, and fill in what came of it; also if this is cancelled meanwhile."""
    arm = worker_context.arms[setup.arm]
    prepare = calling.method(system, "asetup", "setup")
    assert prepare is not None
    asked, answer = prepare, _Answer()
    limit = _Limit(worker_context.setup_timeout, "the group was not set up within {:g} s, the time allowed for it")

    async def act() -> Any:
        return await calling.call(asked, isolated(unit.example), pool=thread.pool)

    try:
        await _watched(worker_context, _Window(_conversation(worker_context, arm, unit)), answer, act, limit, thread)
    finally:
        setup.calls, setup.usage, setup.seconds = answer.calls, usage_of(answer.calls), answer.elapsed
        setup.forwarded, setup.mark = answer.records or [], None if answer.mark is None else answer.mark.token
    by_proxy = added_calls(answer.calls, setup.forwarded, getattr(arm.system, "prices", None))
    await _charge(worker_context.spend, by_proxy)
    setup.calls = answer.calls + by_proxy
    setup.usage = usage_of(setup.calls)
    setup.output = dict(answer.returned) if isinstance(answer.returned, Mapping) else {}
    setup.stop = answer.stop
    if answer.stop is not None:
        setup.error = describe(answer.stop)
    elif answer.error is not None:
        setup.error = setup_failed(answer.error)
    elif answer.returned is not None and not isinstance(answer.returned, Mapping):
        kind = type(answer.returned).__name__
        setup.error = setup_failed(
            describe(BadReply(f"the set-up of system {arm.name!r} returned {kind}, expected a mapping or nothing"))
        )


def setup_failed(error: str) -> str:
    """A failure of a group's set-up, as its rows show it."""
    named = error.startswith((SetupFailed.__name__, NoBudget.__name__))
    return error if named else describe(SetupFailed(error))


async def judge(
    worker_context: WorkerContext, outcome: WorkOutcome, scorers: Sequence[Scorer], thread: WorkerThread
) -> None:
    """Ask each evaluator about the outcome's answer; one that fails leaves its error, one that would cost too much ends
    the run.
    """
    example = outcome.unit.example
    processed = {**example, **outcome.output}
    if outcome.arrived is not None:
        processed["arrived"] = outcome.arrived
    for scorer in scorers:
        ledger = Ledger(account="judge", spend=worker_context.spend, waiting=worker_context.waiting)
        try:
            score, stop = await scorer.score(example, processed, ledger=ledger, pool=thread.pool)
        except asyncio.CancelledError:
            outcome.calls += ledger.calls
            raise
        if score.error is not None and score.error.startswith("TimedOut"):
            thread.replace_thread()
        if stop is not None:
            outcome.stop = stop
            outcome.calls += score.calls  # paid for, though nothing came of it
            return
        outcome.scores.append(score)


# --- the system ---


@dataclass(frozen=True, slots=True)
class _Limit:
    """Seconds that something may take, and the message of the failure when it takes longer."""

    seconds: float | None
    message: str


@dataclass(frozen=True, slots=True)
class _Window:
    """The name of a piece of work for a tap, opened before the work begins."""

    conversation: str
    pairing: BaselinePairing | None = None

    async def begin(self, recorder: Recorder) -> Mark:
        """Open it. A recorder of the user's own need not know of pairings."""
        if self.pairing is None:
            return await recorder.begin(self.conversation)
        return await recorder.begin(self.conversation, self.pairing)


async def _watched(
    worker_context: WorkerContext,
    window: _Window,
    answer: _Answer,
    act: Callable[[], Awaitable[Any]],
    limit: _Limit,
    thread: WorkerThread,
    needs_bill: bool = False,
) -> None:
    """Do `act` for a system under a ledger of its own, marked for the tap by `window`; fills in `answer`."""
    if worker_context.recorder is not None:
        try:
            answer.mark = await window.begin(worker_context.recorder)
        except Failed as error:
            answer.stop = tap_lost(error)
            return
    started = worker_context.clock.monotonic()
    deadline = None if limit.seconds is None else started + limit.seconds
    ledger = Ledger(
        account="system",
        mark=answer.mark,
        spend=worker_context.spend,
        deadline=deadline,
        waiting=worker_context.waiting,
        needs_bill=needs_bill,
    )
    try:
        with open_ledger(ledger):
            answer.returned = await _within(limit, act, thread)
    except STOPS as error:
        answer.stop = error
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    # libraries have failures of their own that are no `Exception`, such as a panic in Rust
    except BaseException as error:
        answer.error = describe(error)
    finally:
        answer.elapsed, answer.waited = worker_context.clock.monotonic() - started, ledger.waited
        answer.calls, answer.in_full = ledger.calls, ledger.in_full
        if worker_context.recorder is not None and answer.mark is not None:
            try:
                answer.records = await worker_context.recorder.end(answer.mark)
            except Failed as error:
                answer.stop = answer.stop or tap_lost(error)


def tap_lost(error: Failed) -> PreflightFailed:
    """A run whose tap is gone would go on without what it is there to see."""
    return PreflightFailed(
        f"the tap cannot be asked any more ({describe(error)}); start it again, then the same run name goes on"
    )


async def _within(limit: _Limit, act: Callable[[], Awaitable[Any]], thread: WorkerThread) -> Any:
    if limit.seconds is None:
        return await act()
    try:
        async with asyncio.timeout(limit.seconds) as scope:
            return await act()
    except TimeoutError:
        if not scope.expired():
            raise
        thread.replace_thread()
        raise TimedOut(limit.message.format(limit.seconds)) from None


def _conversation(worker_context: WorkerContext, arm: PlannedArm, unit: WorkItem) -> str:
    if worker_context.recorder is None:
        return ""  # nobody asks
    group = unit.group if arm.stateful and unit.group is not None else f"#{unit.position}"
    return f"{worker_context.run}/{arm.name}/{unit.trial}/{group}"


def _pairing(worker_context: WorkerContext, arm: PlannedArm, unit: WorkItem) -> BaselinePairing | None:
    """The pairing of the work with the baseline's on the same example, where the two are compared by what arrives."""
    if arm.base is None and not arm.paired:
        return None
    base = unit.arm if arm.base is None else arm.base
    line = getattr(getattr(arm.system, "inner", arm.system), "namespace", None)
    return BaselinePairing(
        f"{worker_context.run}/{worker_context.arms[base].name}/{unit.trial}/#{unit.position}",
        first=arm.paired,
        copies=unit.copies and arm.arm.copies,
        evidence=evidence_of(unit.example) if arm.arm.only_lost else [],
        aside="" if line is None else first_line(line),
        arms=paired_at(worker_context.arms, base, unit.position),
    )


async def _process(system: Any, example: Example, thread: WorkerThread) -> Example:
    """Call the system the way it offers and the example asks for; raises `BadReply` for what is not an answer."""
    own = isolated(example)
    if (converse := conversing(system, example)) is not None:
        return _conversed(own, await calling.call(converse, own["turns"], pool=thread.pool))
    process = calling.method(system, "aprocess", "process")
    if process is None:
        raise BadReply(f"system {system.name!r} has neither process() nor aprocess()")
    processed = await calling.call(process, own, pool=thread.pool)
    if not isinstance(processed, Mapping):
        raise BadReply(
            f"system {system.name!r} returned {type(processed).__name__}, expected the example as a dict with a "
            "response"
        )
    return dict(processed)


def _conversed(example: Example, replies: Any) -> Example:
    if not isinstance(replies, list | tuple):
        raise BadReply(f"process_conversation() returned {type(replies).__name__}, expected a list of messages")
    contents = [_content(reply) for reply in replies]
    return {**example, "response": contents[-1] if contents else "", "turn_responses": contents}


def _content(reply: Any) -> str:
    found = reply.get("content") if isinstance(reply, Mapping) else reply
    return "" if found is None else str(found)


def isolated(value: Any) -> Any:
    """A copy whose dicts and lists a system may change without harm to others; texts are shared."""
    if isinstance(value, dict):
        return {key: isolated(item) if isinstance(item, _CONTAINERS) else item for key, item in value.items()}
    if isinstance(value, list):
        return [isolated(item) if isinstance(item, _CONTAINERS) else item for item in value]
    return value


# --- what is kept of it ---


async def _describe(worker_context: WorkerContext, outcome: WorkOutcome, answer: _Answer, example: Example) -> None:
    """Fill in output, tokens, usage, wire and metadata."""
    arm, records = worker_context.arms[outcome.unit.arm], answer.records or []
    if records and getattr(arm.system, "calls_elsewhere", False):
        seen = calls_seen(records, getattr(arm.system, "prices", None))
        answer.calls = [*answer.calls, *seen]
        await _charge(worker_context.spend, seen)
    outcome.calls = answer.calls
    if records and (by_proxy := added_calls(answer.calls, records, getattr(arm.system, "prices", None))):
        await _charge(worker_context.spend, by_proxy)
        outcome.calls = answer.calls + by_proxy
    outcome.usage = usage_of(outcome.calls)
    outcome.latency = max(0.0, answer.elapsed - answer.waited)
    if arm.played_back:
        outcome.latency = sum(call.seconds for call in answer.calls) or None
    outcome.forwarded = records
    if answer.mark is not None:
        outcome.mark = answer.mark.token
    processed = answer.returned
    if processed is not None:
        outcome.output = added(example, processed)
        outcome.metadata |= _metadata(processed) | after_done(answer.calls)
    if answer.records is not None:
        outcome.wire = observed(answer.calls, answer.records)
        if answer.mark is not None and answer.error is None:
            outcome.wire |= arrived_as(answer.calls, answer.records, answer.mark.token)
        if "copied" in outcome.wire:  # how long the provider takes for it nobody has seen
            outcome.latency = None
            outcome.usage.pop("ttft", None)
    fill_in_tokens(outcome, arm, processed, example, answer.in_full, worker_context.text_fields)
    if any(scorer.reads_arrived for scorer in worker_context.scorers):
        outcome.arrived = arrived_texts(answer.calls, answer.records, outcome.output)
    capture = calling.method(arm.system, "after_capture", "behind") if processed is not None and records else None
    if capture is not None:
        facts = capture(example, outcome.output_tokens, answer.calls, records)
        for place, name in ((outcome.metadata, "metadata"), (outcome.wire, "wire"), (outcome.output, "output")):
            place.update(facts.get(name) or {})
        outcome.context_tokens = facts.get("context_tokens")
    elif processed is not None and asks_in_own_words(arm):
        counting = outcome.source == "context" or (arm.feeds and "context" in outcome.output)
        outcome.context_tokens = returned_tokens(processed, counting=counting)
    elif arm.feeds and outcome.error is None:
        outcome.context_tokens = await context_tokens(
            arm.system, example, outcome.source, outcome.output_tokens, outcome.context_tokens
        )


async def _charge(spend: Spend | None, calls: Sequence[Call]) -> None:
    """Money that a proxy spent unasked counts against the limit; if that is passed by it, the next call is the one
    refused.
    """
    for cost in (call.cost for call in calls if call.cost):
        with suppress(CostCapReached):
            if spend is not None:
                spend.settle(await spend.reserve(0.0), cost)


def added(example: Example, processed: Example) -> Example:
    """The fields of `processed` that the example lacks or has with another value."""
    nothing = object()
    return {
        key: value
        for key, value in processed.items()
        if (before := example.get(key, nothing)) is not value and not _same(before, value)
    }


def _same(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # objects with a comparison of their own, such as arrays
        return False


def _labels(arm: PlannedArm, unit: WorkItem) -> dict[str, Any]:
    """Facts about an arm that each of its rows holds."""
    labels: dict[str, Any] = {}
    for name in ("shape", "model"):
        value = getattr(arm.system, name, None)
        if isinstance(value, str):
            labels[name] = value
    labels |= arm.arm.labels
    if unit.budget is not None:
        labels["budget"] = unit.budget
    return labels | {name: kind for name in _KINDS if isinstance(kind := unit.example.get(name), str)}


def _metadata(processed: Example) -> dict[str, Any]:
    """Usage and finish reason as documented for row metadata, and the system's own `facts` of this answer."""
    facts, usage = processed.get("facts"), processed.get("api_usage")
    metadata: dict[str, Any] = {}
    if facts is not None and isinstance(facts, Mapping):
        metadata = {str(name): fact for name, fact in facts.items() if fact is not None}
    if usage is not None and isinstance(usage, Mapping):
        metadata |= {name: tokens for name in _USAGE_FIELDS if (tokens := count(usage.get(name, 0))) is not None}
    reason = processed.get("finish_reason")
    if isinstance(reason, str):
        metadata["finish_reason"] = reason
    return metadata
