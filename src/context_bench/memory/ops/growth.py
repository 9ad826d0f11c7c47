"""Growth of a memory: what of its items can be found, what it takes to keep it, and whether calls come back in time and
tell the truth.

write loss = 1 − (distinct ids that can be found by their exact text) ÷ (ids acknowledged). Bytes and items are the
memory's own `stats()`, or the size of the files that it names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import TimedOut, describe
from context_bench.core.protocols import method
from context_bench.memory.ops import SuiteReport, percentile, share
from context_bench.memory.ops.suite_workspace import StoredFact, SuiteWorkspace, TimedCaller, says
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt

SUITES = {"growth": "growth"}

_STEPS = (25, 50, 100, 200)
_LENGTHS = (256, 512, 1024, 4096, 16384)
_KS = (1, 2, 3, 5, 10)
_TWINS = 6
_ECHOES = 6


@dataclass(slots=True)
class _Grown:
    """Items stored, and the time and space they took."""

    facts: list[StoredFact] = field(default_factory=list)  # acknowledged
    refused: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int | None, int | None]] = field(default_factory=list)  # turns, items, bytes
    first: list[float] = field(default_factory=list)  # seconds of searches at the first size
    last: list[float] = field(default_factory=list)  # … and at the last
    found: int = 0
    on_top: int = 0
    lost: list[str] = field(default_factory=list)


async def growth(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Fill it step by step; then long texts, near twins, small k, nonsense, deadlines, and a fault."""
    workspace.needs("search")
    memory = await workspace.place()
    grown = _Grown()
    for name, step in (
        ("write loss", _filled),
        ("hits asked for", _within_k),
        ("order of hits", _ordered),
        ("long texts", _long),
        ("near twins", _twins),
        ("echo", _echo),
        ("deadline", _deadline),
        ("faults", _faults),  # last: the memory is closed after it
    ):
        async with report.guard(name):
            await step(workspace, report, memory, grown)


# --- filling ---


async def _filled(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    stored = 0
    for step in (workspace.times(number) for number in _STEPS):
        facts = workspace.facts.facts(step - stored)
        receipts = await workspace.store(memory, [fact.item() for fact in facts])
        grown.facts += [fact for fact, receipt in zip(facts, receipts, strict=True) if receipt.error is None]
        grown.refused += [f"{receipt.item_id}: {receipt.error}" for receipt in receipts if receipt.error is not None]
        stored = step
        grown.sizes.append((stored, *await _size(workspace, memory)))
        times = grown.first if step == workspace.times(_STEPS[0]) else grown.last
        times.clear()
        for fact in grown.facts[:: max(1, len(grown.facts) // 20)]:
            times.append(await _timed(workspace, memory, fact.question))
    await _looked_up(workspace, memory, grown)
    known = len(grown.facts)
    report.test(
        "write loss",
        known > 0 and grown.found == known,
        f"{known - grown.found} of {known} acknowledged things cannot be found by their own text",
        {
            "acknowledged": known,
            "refused": len(grown.refused),
            "found": grown.found,
            "write_loss": share(known - grown.found, known),
        },
        grown.lost or grown.refused,
    )
    _measures(report, grown)


async def _looked_up(workspace: SuiteWorkspace, memory: Memory, grown: _Grown) -> None:
    for fact in grown.facts:
        hits = await workspace.search(memory, fact.text)
        mine = [hit for hit in hits if _of(hit, fact)]
        grown.found += bool(mine)
        grown.on_top += bool(mine) and _of(hits[0], fact)
        if not mine:
            grown.lost.append(fact.text)


def _of(hit: Hit, fact: StoredFact) -> bool:
    """True if a hit is that fact's: by the id that it names, else by the word that only this fact has."""
    return fact.id in hit.source_ids if hit.source_ids else fact.word in hit.text.lower()


def _measures(report: SuiteReport, grown: _Grown) -> None:
    numbers: dict[str, float | int | None] = {}
    for turns, items, size in grown.sizes:
        numbers |= {f"items_at_{turns}": items, f"bytes_at_{turns}": size}
    turns, items, size = grown.sizes[-1]
    given = sum(len(fact.text.encode()) for fact in grown.facts)
    if items is not None or size is not None:
        per = None if size is None else size / turns
        report.measured(
            "size",
            f"after {turns} turns: {'unknown' if items is None else items} items, "
            f"{'unknown' if size is None else size} bytes",
            {
                **numbers,
                "bytes_per_turn": per,
                "bytes_per_byte_given": None if size is None or not given else size / given,
            },
        )
    else:
        report.without("size", "the memory tells neither its size nor its files")
    first, last = percentile(grown.first, 0.5), percentile(grown.last, 0.5)
    report.measured(
        "search time",
        f"the median search took {_ms(first)} at {grown.sizes[0][0]} turns and {_ms(last)} at {turns}",
        {
            "n": len(grown.last),
            "p50_first": first,
            "p50_last": last,
            "p95_last": percentile(grown.last, 0.95),
            "p99_last": percentile(grown.last, 0.99),
            "growth": last / first if first and last is not None else None,
        },
    )
    report.measured(
        "rank of the exact text",
        f"asked by its own text, a thing comes first {grown.on_top} times of {len(grown.facts)}",
        {"first": share(grown.on_top, len(grown.facts))},
    )


async def _size(workspace: SuiteWorkspace, memory: Memory) -> tuple[int | None, int | None]:
    """Items and bytes, as far as they are told."""
    told = await workspace.stats(memory)
    items, size = ((told.get(name) if isinstance(told.get(name), int) else None) for name in ("items", "bytes"))
    if size is None and (files := await workspace.files(memory)):
        size = sum(path.stat().st_size for path in files if path.exists())
    return items, size


async def _timed(workspace: SuiteWorkspace, memory: Memory, query: str) -> float:
    begun = workspace.clock.monotonic()
    await workspace.search(memory, query)
    return workspace.clock.monotonic() - begun


def _ms(seconds: float | None) -> str:
    return "no time" if seconds is None else f"{1000 * seconds:.2f} ms"


# --- hits ---


async def _within_k(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    if getattr(memory, "ignores_k", False):
        raise NotSupported("the memory says that it ignores k")
    counts = {k: len(await workspace.search(memory, "Who opens the old place with the secret word?", k)) for k in _KS}
    over = [f"{count} hits for k={k}" for k, count in counts.items() if count > k]
    report.test(
        "hits asked for",
        not over,
        f"{len(over)} of {len(counts)} searches gave more hits than asked for",
        {f"hits_for_{k}": count for k, count in counts.items()},
        over,
        control=any(counts.values()),
        proof=f"the question finds up to {max(counts.values())} things of {len(grown.facts)}",
    )


async def _ordered(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    workspace.needs("scores")
    wrong, several = [], 0
    for fact in grown.facts[:: max(1, len(grown.facts) // 10)]:
        scores = [hit.score for hit in await workspace.search(memory, fact.question)]
        several += len(scores) > 1
        known = [score for score in scores if score is not None]
        if len(known) != len(scores) or known != sorted(known, reverse=True):
            wrong.append(f"{fact.question!r}: {scores}")
    report.test(
        "order of hits",
        not wrong,
        f"{len(wrong)} searches gave hits without a score, or not from the best down",
        {"wrong": len(wrong)},
        wrong,
        control=several > 0,
        proof=f"{several} searches gave more than one hit",
    )


# --- texts ---


async def _long(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    texts = []
    for length in _LENGTHS:
        head, tail = workspace.facts.word(), workspace.facts.word()
        texts.append((length, head, tail, Item(f"long{length}", workspace.facts.long(length, head, tail))))
    receipts = await workspace.store(memory, [item for *_, item in texts])
    refused = [f"{receipt.item_id}: {receipt.error}" for receipt in receipts if receipt.error is not None]
    kept = [text for text, receipt in zip(texts, receipts, strict=True) if receipt.error is None]
    cut, heads, longest, unfound = [], 0, 0, 0
    for length, head, tail, _ in kept:
        begun = await workspace.search(memory, f"The report opens with the word {head}.")
        ended = await workspace.search(memory, f"The report closes with {tail}.")
        heads += says(begun, head)
        if says([*begun, *ended], tail):
            longest = max(longest, length)
        elif not says(begun, head):  # a matter of ranking: nothing shows that its end is lost
            unfound += 1
        else:
            cut.append(f"of {length:,} characters the end is not found")
    report.test(
        "long texts",
        not cut,
        f"{len(cut)} of {len(kept)} long texts were acknowledged and have lost their end",
        {"texts": len(kept), "refused": len(refused), "unfound": unfound, "cut": len(cut), "longest_whole": longest},
        cut,
        control=heads > 0,
        proof=f"{heads} of {len(kept)} are found by how they begin"
        + (f"; {len(refused)} were refused, which is no loss: {refused[0]}" if refused else ""),
    )


async def _twins(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    """Pairs of things that differ in one short word and are about two different cupboards."""
    pairs = []
    for number in range(workspace.times(_TWINS)):
        word = workspace.facts.word()
        text = (
            f"In the {word} warehouse on the northern quay, behind the second row of blue barrels, cupboard {{}} "
            "holds the winter coats "
            "of the night watch and the lamp oil for the whole of January."
        )
        pairs.append([Item(f"twin{number}{side}", text.format(name)) for side, name in (("a", "K4"), ("b", "K7"))])
    receipts = await workspace.store(memory, [item for pair in pairs for item in pair])
    good = {receipt.item_id for receipt in receipts if receipt.error is None}
    lost, one = [], 0
    for pair in pairs:
        known = [item for item in pair if item.id in good]
        found = [item for item in known if _says_exactly(await workspace.search(memory, item.text), item.text)]
        one += bool(found)
        lost += [item.text for item in known if item not in found]
    report.test(
        "near twins",
        not lost,
        f"{len(lost)} of {len(good)} acknowledged things that are nearly like another one are gone",
        {"things": len(good), "lost": len(lost)},
        lost,
        control=one > 0,
        proof=f"at least one of the two is found for {one} of {len(pairs)} pairs",
    )


def _says_exactly(hits: Sequence[Hit], text: str) -> bool:
    """True if a hit names this warehouse and this cupboard; in which words does not matter."""
    words = text.split()
    return any(words[2] in hit.text and words[words.index("cupboard") + 1] in hit.text for hit in hits)


async def _echo(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    """Ask with words that nobody has ever stored: no hit may say them."""
    echoed, known = [], 0
    for fact in grown.facts[:_ECHOES]:
        word = workspace.facts.word()
        hits = await workspace.search(memory, fact.with_word(word))
        if says(hits, word):
            echoed.append(f"asked {fact.with_word(word)!r}, found the same")
        known += says(await workspace.search(memory, fact.text), fact.word)
    made = len(grown.facts[:_ECHOES])
    report.test(
        "echo",
        not echoed,
        f"{len(echoed)} of {made} searches gave back words that were in the question alone: what they find was never "
        "stored",
        {"searches": made, "echoed": len(echoed)},
        echoed,
        control=known > 0,
        proof=f"the same question with the stored word finds it {known} times of {made}",
    )


# --- time and faults ---


async def _deadline(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    """Every call comes back in time, one way or the other. A call that does not is left behind and said to be
    `TimedOut`.
    """
    late: list[str] = []
    extra = workspace.handed(Item("deadline", workspace.facts.fact().text))
    calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [("add", memory.add, ([extra],))]
    calls += [("search", memory.search, (fact.question, workspace.k)) for fact in grown.facts[:10]]
    flush = method(memory, "flush")
    if flush is not None:
        calls.append(("flush", flush, (workspace.deadline,)))
    slowest = 0.0
    for name, function, args in calls:
        begun = workspace.clock.monotonic()
        try:
            found = await workspace.caller.call(function, *args)
            if name == "add":
                workspace.note(receipt.memory_id for receipt in found or () if isinstance(receipt, Receipt))
        except TimedOut as error:
            late.append(f"{name}: {describe(error)}")
            if len(late) == 2:  # as sure as after all of them, and sooner
                break
        slowest = max(slowest, workspace.clock.monotonic() - begun)
    report.test(
        "deadline",
        not late,
        f"{len(late)} of {len(calls)} calls had not come back after {workspace.deadline:g} s",
        {"calls": len(calls), "late": len(late), "deadline": workspace.deadline, "slowest": slowest},
        late,
        control=await _clock_works(),
        proof="a call of ours that never comes back is noticed after 0.05 s",
    )


async def _clock_works() -> bool:
    stuck, caller = threading.Event(), TimedCaller(0.05)
    try:
        await caller.call(stuck.wait)
    except TimedOut:
        return True
    finally:
        stuck.set()
        caller.close()
    return False


async def _faults(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, grown: _Grown) -> None:
    """A memory that cannot look must say so; to say that there is nothing is a lie."""
    if not grown.facts:
        raise NotSupported("nothing was acknowledged that could be asked for")
    fact = grown.facts[-1]
    before = await workspace.finds(memory, fact.text, fact.word)
    proof = f"it was {'found' if before else 'NOT found'} before"
    broken = method(memory, "fail_next", "inject_fault")
    if broken is not None:
        await workspace.caller.call(broken)
        await _asked_broken(workspace, report, "fault in the backend", memory, fact, before, proof)
    if not workspace.has("persistent"):
        report.without("asked when closed", "what it held ends with it, so to find nothing is true then")
    else:
        base = workspace.base
        await workspace.close()
        try:
            await _asked_broken(workspace, report, "asked when closed", memory, fact, before, proof)
        finally:
            if (close := method(base, "aclose", "close")) is not None:  # asking may have opened it again
                with suppress(Exception):
                    await workspace.caller.call(close)
            await workspace.enter()
    async with report.guard("damaged files"):
        await _damaged(workspace, report, fact)


async def _damaged(workspace: SuiteWorkspace, report: SuiteReport, fact: StoredFact) -> None:
    """Only where all files lie in our own folder: overwrite them, and open the memory again."""
    memory = await workspace.place()
    files = await workspace.files(memory)
    own = workspace.own
    if own is None or not files or not all(path.resolve().is_relative_to(own.resolve()) for path in files):
        raise NotSupported("the memory's files are not known to lie in a folder of ours, so nothing was damaged")
    before = await workspace.finds(memory, fact.text, fact.word)
    proof = f"it was {'found' if before else 'NOT found'} in the whole files"
    await workspace.close()
    whole = {path: path.read_bytes() for path in _files_in(own)}
    try:
        for path, content in whole.items():
            path.write_bytes(b"\x5a" * max(4096, len(content)))
        await _asked_broken(workspace, report, "damaged files", None, fact, before, proof)
    finally:
        await workspace.drop()
        for path in _files_in(own):
            path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)
        await workspace.enter()


def _files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def _asked_broken(
    workspace: SuiteWorkspace,
    report: SuiteReport,
    name: str,
    memory: Memory | None,
    fact: StoredFact,
    before: bool,
    proof: str,
) -> None:
    """Ask a memory that cannot look; `None`: open it before."""
    try:
        if memory is None:
            await workspace.enter()
            memory = await workspace.place()
        hits = await workspace.search(memory, fact.text)
    except TimedOut:
        raise
    except Exception as error:  # however it says so
        report.test(name, True, f"it said so: {describe(error)[:160]}", control=before, proof=proof)
        return
    holds = says(hits, fact.word)
    silence = f"it found {len(hits)} things and raised nothing, though what it holds could not be read"
    sentence = "it still finds it" if holds else silence
    report.test(name, holds, sentence, {"hits": len(hits)}, control=before, proof=proof)
