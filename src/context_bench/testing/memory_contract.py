"""Contract of every memory, whatever it remembers and how well: run it against your own before you believe its numbers.

```python
def test_my_memory():
    assert_memory(lambda: MyMemory(...))
```

It says nothing about quality: a memory that finds nothing passes. Losses, crashes and leaks under load are the
operational suites' matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, get_args

from context_bench.core.errors import describe
from context_bench.core.protocols import call, method
from context_bench.llm.background import run_sync
from context_bench.memory.protocol import Capability, Hit, Item, Memory, NotSupported, Receipt
from context_bench.testing import Finding as Finding, findings, insist

_KNOWN = frozenset(get_args(Capability))
_METHODS = {
    "delete": "delete",
    "delete_all": "delete_all",
    "update": "update",
    "namespaces": "namespace",
    "stats": "stats",
    "answer": "answer",
}
_ODD_QUERIES = (
    "",
    "   ",
    '" OR * NEAR( ^ {x} :',
    "'; DROP TABLE items; --",
    "😀",
    "\x00",
    "\ud800",
    "的",
    "word " * 2000,
)
_ODD_TEXTS = (
    "",
    " ",
    "zero \x00 inside",
    "half a pair \ud83d",
    "café niño Ελλάδα 日本語 हिन्दी العربية",
    "many words " * 5000,
    "{'json': [1, 2]}\n\t<b>&amp;</b>",
)


def check_memory(make: Callable[[], Any], *, seconds: float = 60.0) -> list[Finding]:
    """Faults of the memory that `make()` gives; empty = nothing found. `make` is called often and gives an empty one
    each time.
    """
    return run_sync(acheck_memory(make, seconds=seconds))


async def acheck_memory(make: Callable[[], Any], *, seconds: float = 60.0) -> list[Finding]:
    """The same, async. `seconds` is for each check."""
    return await findings(make, CHECKS, seconds=seconds)


def assert_memory(make: Callable[[], Any], *, seconds: float = 60.0) -> None:
    """`AssertionError` with everything that `check_memory` finds."""
    insist(check_memory(make, seconds=seconds), "memory")


def _facts(mark: str = "", number: int = 6) -> list[Item]:
    """Items that have nothing in common but their form."""
    words = ("amber", "basalt", "cobalt", "dahlia", "ember", "fjord", "garnet", "heron")
    return [
        Item(
            f"{mark}t{i}",
            f"The {words[i % 8]} key {mark}{i}{i}7 is in box {i + 40}.",
            time=f"2024-03-{i + 1:02}",
            session=f"s{i // 3}",
        )
        for i in range(number)
    ]


async def _stored(memory: Memory, items: list[Item]) -> list[Receipt]:
    receipts = await call(memory.add, items)
    flush = method(memory, "flush")
    if flush is not None:
        await call(flush, 30.0)
    return list(receipts)


async def _found(memory: Memory, query: str, k: int = 5) -> list[Hit]:
    return list(await call(memory.search, query, k))


def _searches(memory: Memory) -> bool:
    return "search" in memory.capabilities


# --- the checks: each gets a memory of its own and yields what is wrong ---


async def _says_what_it_can(memory: Memory) -> list[str]:
    problems = []
    if not isinstance(memory.name, str) or not memory.name:
        problems.append(f"name is {memory.name!r}, expected a text")
    if not isinstance(memory.capabilities, frozenset):
        problems.append(f"capabilities is a {type(memory.capabilities).__name__}, expected a frozenset")
    if unknown := set(memory.capabilities) - _KNOWN:
        problems.append(f"unknown capabilities {sorted(unknown)}; known: {sorted(_KNOWN)}")
    if not memory.capabilities & {"search", "answer"}:
        problems.append("it can neither search nor answer")
    problems += [
        f"says {what!r} but has no {name}()"
        for what, name in _METHODS.items()
        if what in memory.capabilities and not method(memory, name)
    ]
    return problems


async def _a_receipt_for_every_item(memory: Memory) -> list[str]:
    items = _facts()
    receipts = await _stored(memory, items)
    problems = []
    if [receipt.item_id for receipt in receipts] != [item.id for item in items]:
        problems.append(f"{len(items)} items, receipts for {[receipt.item_id for receipt in receipts]}")
    problems += [f"item {receipt.item_id!r} was not stored: {receipt.error}" for receipt in receipts if receipt.error]
    ids = [receipt.memory_id for receipt in receipts if receipt.memory_id is not None]
    if len(set(ids)) != len(ids):
        problems.append(f"two items have one memory id: {ids}")
    if list(await call(memory.add, [])):
        problems.append("receipts for no items")
    return problems


async def _hits_are_hits(memory: Memory) -> list[str]:
    if not _searches(memory):
        return []
    items = _facts()
    await _stored(memory, items)
    problems: list[str] = []
    for k in (1, 3, 50):
        hits = await _found(memory, items[2].text, k)
        if wrong := [hit for hit in hits if not isinstance(hit, Hit) or not isinstance(hit.text, str)]:
            return [f"search gave {type(wrong[0]).__name__}, expected Hit"]
        if len(hits) > k and not getattr(memory, "ignores_k", False):
            problems.append(f"{len(hits)} hits for k={k}")
        if unknown := {source for hit in hits for source in hit.source_ids} - {item.id for item in items}:
            problems.append(f"source ids that nobody gave it: {sorted(unknown)}")
        scores = [hit.score for hit in hits if hit.score is not None]
        if "scores" in memory.capabilities and (len(scores) != len(hits) or scores != sorted(scores, reverse=True)):
            problems.append(f"scores are missing or not from high to low: {[hit.score for hit in hits]}")
    return problems


async def _the_same_question_finds_the_same(memory: Memory) -> list[str]:
    if not _searches(memory):
        return []
    items = _facts(number=24)
    await _stored(memory, items)
    first, again = [
        [(hit.text, hit.source_ids) for hit in await _found(memory, "Where is the cobalt key?")] for _ in range(2)
    ]
    return [] if first == again else [f"asked twice: {first}, then {again}"]


async def _odd_texts_and_questions(memory: Memory) -> list[str]:
    items = [Item(f"odd{i}", text) for i, text in enumerate(_ODD_TEXTS)]
    receipts = await _stored(memory, items)
    problems = [
        f"{items[i].text[:30]!r} was not stored: {receipt.error}" for i, receipt in enumerate(receipts) if receipt.error
    ]
    for query in _ODD_QUERIES if _searches(memory) else ():
        try:
            await _found(memory, query)
        except Exception as error:
            problems.append(f"question {query[:30]!r}: {describe(error)}")
    return problems


async def _an_empty_memory_finds_nothing(memory: Memory) -> list[str]:
    hits = await _found(memory, "Where is the cobalt key?") if _searches(memory) else []
    return [f"found {hits[0].text!r} before anything was added"] if hits else []


async def _what_is_deleted_is_gone(memory: Memory) -> list[str]:
    if not {"delete", "search"} <= memory.capabilities:
        return []
    items = _facts()
    receipts = await _stored(memory, items)
    gone = next((at for at, receipt in enumerate(receipts) if receipt.memory_id), None)
    if gone is None:
        return (
            ["says 'delete' but its receipts name no memory_id"] if method(memory, "delete") and _keeps(memory) else []
        )
    await call(memory.delete, receipts[gone].memory_id)  # type: ignore[attr-defined]
    hits = await _found(memory, items[gone].text, 50)
    problems = [f"{items[gone].id!r} is found after it was deleted" for hit in hits if items[gone].text in hit.text]
    others = {source for hit in await _found(memory, items[gone].text, 50) for source in hit.source_ids}
    if items[gone].id in others:
        problems.append(f"{items[gone].id!r} is still named as a source")
    with suppress(NotSupported):
        await call(memory.delete, "no-such-id")  # type: ignore[attr-defined]
    return problems


def _keeps(memory: Memory) -> bool:
    """A memory whose entries are the items can update them; one that writes its own has ids only on its hits."""
    return "update" in memory.capabilities


async def _what_is_updated_is_new(memory: Memory) -> list[str]:
    if not {"update", "search"} <= memory.capabilities:
        return []
    items = _facts()
    receipts = await _stored(memory, items)
    if not receipts[1].memory_id:
        return ["says 'update' but its receipts name no memory_id"]
    new = "The basalt key 117 went to drawer 99."
    await call(memory.update, receipts[1].memory_id, new)  # type: ignore[attr-defined]
    texts = [hit.text for hit in await _found(memory, new, 50)]
    return [f"the old text is found after an update: {text!r}" for text in texts if items[1].text in text]


async def _reset_forgets_everything(memory: Memory) -> list[str]:
    forget = [name for name in ("reset", "delete_all") if method(memory, name)]
    problems = []
    for name in forget:
        await _stored(memory, _facts())
        await call(getattr(memory, name))
        if _searches(memory) and (hits := await _found(memory, "Where is the cobalt key?", 50)):
            problems.append(f"found {hits[0].text!r} after {name}()")
        await _stored(memory, _facts("n"))  # and it goes on working
    return problems


async def _namespaces_do_not_see_each_other(memory: Memory) -> list[str]:
    if "namespaces" not in memory.capabilities:
        return []
    ours, theirs = [await call(memory.namespace, name) for name in ("contract-a", "contract-b")]  # type: ignore[attr-defined]
    problems: list[str] = []
    try:
        own = _facts("a")
        await _stored(ours, own)
        receipts = await _stored(theirs, _facts("b"))
        if not _searches(memory):
            return []
        for place, name, other in ((ours, "a", "b"), (theirs, "b", "a"), (memory, "the parent", "a")):
            texts = [hit.text for hit in await _found(place, f"Where is the cobalt key {other}227?", 50)]
            problems += [f"{name} finds {text!r} of {other}" for text in texts if f"key {other}" in text]
        before = [hit.text for hit in await _found(ours, own[2].text, 50)]
        if "delete" in memory.capabilities:
            for receipt in receipts:
                if receipt.memory_id:
                    with suppress(Exception):  # refusing is right, and so is saying that there is none
                        await call(ours.delete, receipt.memory_id)
        for forget in (method(theirs, "reset", "delete_all"),):
            if forget is not None:
                await call(forget)
        if [hit.text for hit in await _found(ours, own[2].text, 50)] != before:
            problems.append("deleting ids of b, or emptying b, changed a")
    finally:
        for twin in (ours, theirs):
            close = method(twin, "aclose", "close")
            if close is not None:
                await call(close)
    return problems


async def _counts_what_it_holds(memory: Memory) -> list[str]:
    stats = method(memory, "stats") if "stats" in memory.capabilities else None
    if stats is None:
        return []
    before = dict(await call(stats))
    await _stored(memory, _facts())
    after = dict(await call(stats))
    wrong = [
        name
        for name in ("items", "bytes")
        if not all(isinstance(each.get(name), int) and each[name] >= 0 for each in (before, after))
    ]
    return [f"stats() gives no whole {name!r}: {after}" for name in wrong]


CHECKS: tuple[Callable[[Memory], Awaitable[list[str]]], ...] = (
    _says_what_it_can,
    _a_receipt_for_every_item,
    _hits_are_hits,
    _the_same_question_finds_the_same,
    _odd_texts_and_questions,
    _an_empty_memory_finds_nothing,
    _what_is_deleted_is_gone,
    _what_is_updated_is_new,
    _reset_forgets_everything,
    _namespaces_do_not_see_each_other,
    _counts_what_it_holds,
)
