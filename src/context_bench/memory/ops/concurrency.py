"""Many writers, many readers, one memory: nothing lost, doubled, torn or out of order.

Every writer is a thread of its own (a task, if the memory is async) and stores a numbered series, waiting for each
acknowledgement; readers ask meanwhile for what was acknowledged. lost: acknowledged and not found at the end.
duplicated: found more often than stored. torn: found, but not whole. out of order: number n is found while n − 1,
acknowledged earlier, is not; or a writer's series comes back in another order than one writer's does; or not the last
of its updates is what stays. visibility delay: from the acknowledgement until a reader's first search that found it
came back (an upper bound). at once: a burst of writes none of which waits for another's acknowledgement. Positive
control: one writer alone, the same way, loses nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from context_bench.core.errors import BadReply, Refused, describe
from context_bench.llm.redact import redact
from context_bench.memory.ops import SuiteReport, percentile, share
from context_bench.memory.ops.suite_workspace import SuiteWorkspace, TimedCaller, whole
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt

SUITES = {"concurrency": "concurrency"}

WRITERS, READERS = 4, 2
_EACH = 12
_UPDATES = 4
_AT_ONCE = 20
_VISIBLE = 2.0  # seconds after which something acknowledged counts as not visible to a reader


@dataclass(frozen=True, slots=True)
class _Note:
    """One of a writer's series."""

    writer: str
    number: int
    item: Item
    word: str


@dataclass(slots=True)
class _Kept:
    """Result of a series: the acknowledged notes in order, and the receipts."""

    notes: list[_Note] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _State:
    """The notes that the memory gives back at the end."""

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)  # ids of receipts that name something else
    shuffled: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """The notes that readers saw meanwhile."""

    searches: int = 0
    delays: list[float] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


async def concurrency(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """One writer alone; then all of them with readers; then the state; then updates."""
    workspace.needs("search")
    memory = await workspace.place()
    each = workspace.times(_EACH, 3)
    alone, kept = (
        _series(workspace, "solo", each),
        [_series(workspace, f"writer{number}", each) for number in range(WRITERS)],
    )
    single = _Kept()
    await _write(workspace, memory, alone, single, TimedCaller(workspace.deadline))
    await workspace.flush(memory)
    before = await _state(workspace, memory, [single])
    done = [_Kept() for _ in kept]
    seen = _Seen()
    try:
        await _together(workspace, memory, kept, done, seen)
        await workspace.flush(memory)
        after = await _state(workspace, memory, done)
    except (Refused, BadReply) as error:
        held, proof = _control(before, single)
        sentence = (
            f"after {WRITERS} writers at once the memory refuses to be read or written: {redact(describe(error))}"
        )
        report.test("lost", False, sentence, {"writers": WRITERS}, control=held, proof=proof)
        return
    _judged(report, before, after, single, done)
    _watched(report, seen, before, single)
    async with report.guard("at once"):
        await _at_once(workspace, report, memory, _control(before, single))
    async with report.guard("last update stays"):
        await _updates(workspace, report, memory)


# --- writing ---


def _series(workspace: SuiteWorkspace, writer: str, number: int) -> list[_Note]:
    notes = []
    for count in range(1, number + 1):
        word = workspace.facts.word()
        text = (
            f"Logbook of {writer}, entry {word}: begun by the harbour at dawn and finished at the mill, sealed "
            f"{word[::-1]}."
        )
        notes.append(
            _Note(
                writer,
                count,
                Item(f"{writer}-{count}", text, time=f"2024-05-01T00:{count // 60:02}:{count % 60:02}"),
                word,
            )
        )
    return notes


async def _write(
    workspace: SuiteWorkspace, memory: Memory, notes: Sequence[_Note], kept: _Kept, caller: TimedCaller
) -> None:
    try:
        for note in notes:
            (receipt,) = await workspace.add(memory, [note.item], caller)
            if receipt.error is not None:
                kept.refused.append(f"{note.item.id}: {receipt.error}")
                continue
            kept.receipts.append(receipt)
            kept.notes.append(note)
    finally:
        caller.close()


async def _together(
    workspace: SuiteWorkspace, memory: Memory, notes: Sequence[Sequence[_Note]], done: Sequence[_Kept], seen: _Seen
) -> None:
    over = asyncio.Event()
    readers = [asyncio.create_task(_read(workspace, memory, number, done, seen, over)) for number in range(READERS)]
    try:
        async with asyncio.TaskGroup() as writers:
            for series, kept in zip(notes, done, strict=True):
                writers.create_task(_write(workspace, memory, series, kept, TimedCaller(workspace.deadline)))
    except ExceptionGroup as several:  # one of them says enough
        raise several.exceptions[0] from None
    finally:
        over.set()
        await asyncio.gather(*readers)


async def _read(
    workspace: SuiteWorkspace, memory: Memory, number: int, done: Sequence[_Kept], seen: _Seen, over: asyncio.Event
) -> None:
    """Ask for what was acknowledged last, until the writers are done."""
    caller, pick = TimedCaller(workspace.deadline), random.Random(f"{workspace.seed}/{number}")
    try:
        while not over.is_set():
            series = pick.choice(done).notes
            if not series:
                await workspace.clock.sleep(0.001)
                continue
            at = len(series) - 1
            await _look(workspace, memory, series[at], series[at - 1] if at else None, seen, caller)
    except Exception as error:  # told as something seen, or the writers' own findings would be lost
        seen.unseen.append(f"a search failed: {type(error).__name__}: {error}")
    finally:
        caller.close()


async def _look(
    workspace: SuiteWorkspace, memory: Memory, note: _Note, earlier: _Note | None, seen: _Seen, caller: TimedCaller
) -> None:
    begun = workspace.clock.monotonic()
    while True:
        hits = await workspace.search(memory, note.item.text, caller=caller)
        seen.searches += 1
        mine = [hit for hit in hits if note.word in hit.text]
        after = workspace.clock.monotonic() - begun
        if mine:
            seen.delays.append(after)
            break
        if after > _VISIBLE:
            seen.unseen.append(f"{note.item.id} was not found {_VISIBLE:g} s after its acknowledgement")
            return
        await workspace.clock.sleep(0.002)
    if not whole(note.item.text, mine):
        seen.torn.append(f"{note.item.id} was found as {mine[0].text!r}")
    if earlier is not None:
        seen.searches += 1
        if not any(
            earlier.word in hit.text for hit in await workspace.search(memory, earlier.item.text, caller=caller)
        ):
            seen.backwards.append(f"{note.item.id} was found and {earlier.item.id}, acknowledged before it, was not")


# --- judging ---


async def _state(workspace: SuiteWorkspace, memory: Memory, kept: Sequence[_Kept]) -> _State:
    state = _State()
    for series in kept:
        for note, receipt in zip(series.notes, series.receipts, strict=True):
            _one(note, receipt, await workspace.search(memory, note.item.text), state)
        if series.notes:
            await _order(workspace, memory, series, state)
    return state


def _one(note: _Note, receipt: Receipt, hits: Sequence[Hit], state: _State) -> None:
    mine = [hit for hit in hits if note.word in hit.text]
    name = note.item.id
    if not mine:
        state.lost.append(f"{name} was acknowledged and is not found")
        return
    if len(mine) > 1:
        state.duplicated.append(f"{name} was found {len(mine)} times")
    if not whole(note.item.text, mine):
        state.torn.append(f"{name} was found as {mine[0].text!r}")
    named = {hit.memory_id for hit in mine if hit.memory_id is not None}
    sources = {source for hit in mine for source in hit.source_ids}
    if (receipt.memory_id is not None and named and receipt.memory_id not in named) or (
        sources and name not in sources
    ):
        state.mixed.append(
            f"{name} has the receipt {receipt.memory_id!r}; found as {sorted(named)}, of {sorted(sources)}"
        )


async def _order(workspace: SuiteWorkspace, memory: Memory, series: _Kept, state: _State) -> None:
    """Ask for the whole series in words that fit each of it alike: the order in which one memory shows what ties."""
    writer = series.notes[0].writer
    hits = await workspace.search(memory, f"Logbook of {writer}", 8 * len(series.notes))
    numbers = [note.number for hit in hits for note in series.notes if note.word in hit.text]
    if numbers != sorted(numbers):
        state.shuffled.append(f"{writer}: {numbers}")


def _judged(report: SuiteReport, before: _State, after: _State, single: _Kept, done: Sequence[_Kept]) -> None:
    acknowledged = sum(len(kept.notes) for kept in done)
    refused = [text for kept in done for text in kept.refused]
    numbers = {"writers": WRITERS, "acknowledged": acknowledged, "refused": len(refused)}
    alone, proof = _control(before, single)
    report.test(
        "lost",
        not after.lost,
        f"{len(after.lost)} of {acknowledged} acknowledged are not found",
        {**numbers, "lost": len(after.lost), "share": share(len(after.lost), acknowledged)},
        after.lost,
        control=alone and acknowledged > 0,
        proof=proof,
    )
    for name, what, wrong, already in (
        ("duplicated", "were found more than once", after.duplicated, before.duplicated),
        ("torn", "were not found whole", after.torn, before.torn),
        ("receipts", "are not what their receipt names", after.mixed, before.mixed),
    ):
        if already:
            report.without(name, f"so it is with one writer alone: {already[0]}")
        else:
            sentence = f"{len(wrong)} of {acknowledged} {what}"
            report.test(name, not wrong, sentence, {name: len(wrong)}, wrong, control=alone, proof=proof)
    if before.shuffled:
        report.without("order", "one writer's series alone does not come back in the order of its writing")
    else:
        report.test(
            "order",
            not after.shuffled,
            f"{len(after.shuffled)} of {WRITERS} series come back in another order than that of their writing",
            {"series": WRITERS, "out_of_order": len(after.shuffled)},
            after.shuffled,
            control=alone,
            proof="one writer's series alone comes back in its order",
        )


def _control(before: _State, single: _Kept) -> tuple[bool, str]:
    """The positive control: one writer alone loses nothing."""
    found = len(single.notes) - len(before.lost)
    proof = f"one writer alone: {found} of {len(single.notes)} acknowledged are found"
    return bool(single.notes) and not before.lost, proof


def _watched(report: SuiteReport, seen: _Seen, before: _State, single: _Kept) -> None:
    found = len(seen.delays)
    alone, proof = _control(before, single)
    numbers = {
        "readers": READERS,
        "searches": seen.searches,
        "found": found,
        **{f"delay_p{round(100 * of)}": percentile(seen.delays, of) for of in (0.5, 0.95, 0.99)},
    }
    report.test(
        "visible",
        not seen.unseen,
        f"{len(seen.unseen)} times something acknowledged was not found within {_VISIBLE:g} s by a reader",
        {**numbers, "unseen": len(seen.unseen)},
        seen.unseen,
        control=alone,
        proof=proof,
    )
    report.test(
        "order of appearance",
        not seen.backwards,
        f"{len(seen.backwards)} times something was found before what had been acknowledged earlier",
        {"out_of_order": len(seen.backwards)},
        seen.backwards,
        control=alone,
        proof=proof,
    )
    if before.torn:
        report.without("torn while writing", "one writer's notes alone do not come back whole")
        return
    sentence = f"{len(seen.torn)} of {found} were not found whole"
    torn = {"torn": len(seen.torn)}
    report.test("torn while writing", not seen.torn, sentence, torn, seen.torn, control=alone, proof=proof)


async def _at_once(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, control: tuple[bool, str]) -> None:
    """A burst of writes, sent before any of them is acknowledged."""
    notes = _series(workspace, "burst", _AT_ONCE)
    done = [_Kept() for _ in notes]
    writes = (
        _write(workspace, memory, [note], kept, TimedCaller(workspace.deadline))
        for note, kept in zip(notes, done, strict=True)
    )
    failed = [each for each in await asyncio.gather(*writes, return_exceptions=True) if isinstance(each, Exception)]
    await workspace.flush(memory)
    state = _State()
    for kept in done:
        for note, receipt in zip(kept.notes, kept.receipts, strict=True):
            _one(note, receipt, await workspace.search(memory, note.item.text), state)
    acknowledged = sum(len(kept.notes) for kept in done)
    refused = len(notes) - acknowledged
    report.test(
        "at once",
        not state.lost and not state.torn,
        f"{len(state.lost)} of {acknowledged} acknowledged are not found, {len(state.torn)} not whole"
        + (f"; {refused} of {len(notes)} were refused" if refused else ""),
        {"writes": len(notes), "acknowledged": acknowledged, "lost": len(state.lost), "torn": len(state.torn)},
        [*state.lost, *state.torn, *(f"{type(each).__name__}: {each}" for each in failed)],
        control=control[0] and acknowledged > 0,
        proof=control[1],
    )


# --- updates ---


async def _updates(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory) -> None:
    """Every writer changes a thing of its own again and again: the last change stays."""
    if not workspace.has("update"):
        raise NotSupported("the memory does not offer update")
    facts = workspace.facts.facts(WRITERS)
    receipts = await workspace.store(memory, [fact.item() for fact in facts])
    words = [[workspace.facts.word() for _ in range(_UPDATES)] for _ in facts]
    before = await workspace.found(memory, facts)
    names = [
        (await workspace.ids_of(memory, receipt, fact.text, fact.word))[0]
        for fact, receipt in zip(facts, receipts, strict=True)
    ]

    async def change(number: int) -> None:
        caller = TimedCaller(workspace.deadline)
        try:
            for word in words[number]:
                await caller.call(getattr(memory, "update"), names[number], facts[number].with_word(word))  # noqa: B009
        finally:
            caller.close()

    await asyncio.gather(*(change(number) for number in range(len(facts))))
    await workspace.flush(memory)
    wrong = []
    for fact, told in zip(facts, words, strict=True):
        hits = await workspace.search(memory, fact.question)
        now = [word for word in (fact.word, *told) if any(word in hit.text.lower() for hit in hits)]
        if now != told[-1:]:
            wrong.append(f"{fact.question} last told {told[-1]!r}, found {now}")
    report.test(
        "last update stays",
        not wrong,
        f"{len(wrong)} of {len(facts)} things do not say what they were last changed to",
        {"things": len(facts), "updates": _UPDATES, "wrong": len(wrong)},
        wrong,
        control=len(before) == len(facts),
        proof=f"{len(before)} of {len(facts)} things were found before they were changed",
    )
