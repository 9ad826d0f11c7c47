"""Find out with a canary what a memory can really do: add, wait, find, delete, gone. What it held before is left
alone.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from context_bench.core.errors import BadInput, Stop, describe
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.protocols import call, method
from context_bench.core.text import normalise
from context_bench.llm.redact import redact
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt
from context_bench.memory.systems.adapting import as_answer

Status = Literal["ok", "warn", "fail", "n/a"]
_K = 10
_PLACES = ("harbour", "lighthouse", "orchard", "quarry")
_COLOURS = ("amber", "cobalt", "crimson", "teal")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found out. `status`: "n/a" = the memory does not offer it. `seconds` it took; `advice`: what to do
    about it.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
    seconds: float | None = None


class _StepOver(Exception):
    """The step is over: its finding is written down."""


@dataclass(slots=True)
class _Checkup:
    """One examination; its items hold words that nobody else's do."""

    memory: Memory
    seconds: float
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    findings: list[Finding] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)  # ids

    @property
    def items(self) -> list[Item]:
        return [
            Item(
                f"{self.mark}-{i}",
                f"The {_COLOURS[i]} canary {self.mark} lives at the {_PLACES[i]} in box {i + 41}.",
                time="2024-03-01T09:00:00",
            )
            for i in range(4)
        ]

    def note(self, name: str, status: Status, detail: str, advice: str = "", seconds: float | None = None) -> None:
        self.findings.append(Finding(name, status, detail, advice, seconds))

    def judge(self, name: str, right: bool, detail: str, seconds: float | None = None) -> None:
        """Note a success or a failure."""
        self.note(name, "ok" if right else "fail", detail, seconds=seconds)

    async def passes(self, step: Callable[[_Checkup], Awaitable[None]]) -> bool:
        """Take a step; true unless its last finding is a failure."""
        with suppress(_StepOver):
            await step(self)
        return not self.findings or self.findings[-1].status != "fail"

    async def call(self, name: str, function: Callable[..., Any] | None, *args: Any) -> tuple[Any, float]:
        """Its result and the seconds it took; a failure is a finding and ends the step."""
        started = SYSTEM_CLOCK.monotonic()
        try:
            if function is None:
                raise NotSupported("it has no such method")
            return await call(function, *args), SYSTEM_CLOCK.monotonic() - started
        except Stop:
            raise
        except NotSupported as error:
            self.note(name, "n/a", str(error) or "not supported")
        except Exception as error:
            self.note(name, "fail", describe(error), seconds=SYSTEM_CLOCK.monotonic() - started)
        raise _StepOver

    async def search(self, name: str, place: Memory, query: str) -> tuple[list[Hit], float]:
        hits, took = await self.call(name, place.search, query, _K)
        if isinstance(hits, list) and all(isinstance(hit, Hit) for hit in hits):
            return hits, took
        self.note(name, "fail", f"search gave {type(hits).__name__}, expected a list of Hit", seconds=took)
        raise _StepOver

    def needs(self, capability: str, name: str) -> None:
        """End the step if the memory does not say that it can; that is the finding."""
        if capability not in self.memory.capabilities:
            self.note(name, "n/a", f"the memory does not offer {capability}")
            raise _StepOver

    def ident(self, number: int, name: str) -> str:
        """The id of an item; without one the step is over."""
        ident = self.receipts[number].memory_id
        if ident is None:
            self.note(name, "n/a", f"add gave no id to {name} by")
            raise _StepOver
        return ident


async def examine(memory: Memory, *, force: bool = False, seconds: float = 60.0) -> list[Finding]:
    """True if `memory` does what it says, with a few canaries: add, flush, search, answer, update, delete, namespaces,
    stats.

    It works in a fresh namespace and empties that afterwards. A memory without namespaces gets the canaries beside what
    it holds; they are deleted one by one where it can do that. Where it cannot, `BadInput`, unless `force`: then they
    stay. Nothing else is ever deleted, and `reset` is never called on what we did not make. `seconds`: how long the
    flush may take. What the memory raises is a finding.
    """
    capabilities = memory.capabilities
    if "namespaces" not in capabilities and "delete" not in capabilities and not force:
        raise BadInput(
            f"memory {memory.name!r} has neither namespaces nor delete: what the examination adds would stay in it; "
            "give --force (in Python force=True) if that may be; a store of its own is better"
        )
    name = f"doctor-{uuid.uuid4().hex[:12]}"
    async with _place(memory, name) as place:
        checkup = _Checkup(place, seconds, findings=_versions(memory))
        if await checkup.passes(_added) and await checkup.passes(_flushed):
            for step in (_found, _answered, partial(_kept_apart, memory, name), _counted, _updated, _deleted):
                await checkup.passes(step)
        await _tidied(checkup, fresh=place is not memory)
    return checkup.findings


def _versions(memory: Memory) -> list[Finding]:
    """Of a vendor's package: the one tried here, or another."""
    vendor, version = getattr(memory, "vendor", None), getattr(memory, "version", None)
    if vendor is None or version is None:
        return []
    if version == vendor.tried:
        return [Finding("version", "ok", f"{vendor.package} {version}, the version tried here")]
    detail = f"{vendor.package} {version}; tried here: {vendor.tried}"
    return [Finding("version", "warn", detail, "their calls change between versions")]


@asynccontextmanager
async def _place(memory: Memory, name: str) -> AsyncIterator[Memory]:
    """A fresh namespace, closed afterwards; without namespaces the memory itself."""
    if "namespaces" not in memory.capabilities:
        yield memory
        return
    place: Memory = await call(memory.namespace, name)  # type: ignore[attr-defined]
    try:
        yield place
    finally:
        if (close := method(place, "aclose", "close")) is not None:
            with suppress(Exception):  # what it was to show is shown
                await call(close)


async def _added(checkup: _Checkup) -> None:
    receipts, took = await checkup.call("add", checkup.memory.add, checkup.items)
    if not isinstance(receipts, list) or not all(isinstance(each, Receipt) for each in receipts):
        detail = f"add gave {type(receipts).__name__}, expected a list of Receipt"
        return checkup.note("add", "fail", detail, seconds=took)
    checkup.receipts = receipts
    errors = [each.error for each in receipts if each.error]
    if errors or len(receipts) != len(checkup.items):
        detail = f"{len(receipts)} receipts for {len(checkup.items)} items; {'; '.join(errors[:2])}"
        return checkup.note("add", "fail", detail, seconds=took)
    named = sum(each.memory_id is not None for each in receipts)
    return checkup.note("add", "ok", f"{len(receipts)} items acknowledged, {named} of them with an id", seconds=took)


async def _flushed(checkup: _Checkup) -> None:
    flush = method(checkup.memory, "flush")
    if flush is None:
        return checkup.note("flush", "n/a", "it has no flush: what was added is expected to be there at once")
    _, took = await checkup.call("flush", flush, checkup.seconds)
    return checkup.note("flush", "ok", f"what was added can be found after {took:.2f} s", seconds=took)


async def _found(checkup: _Checkup) -> None:
    checkup.needs("search", "search")
    wanted = checkup.items[2]
    hits, took = await checkup.search("search", checkup.memory, wanted.text)
    rank = next((rank for rank, hit in enumerate(hits, 1) if _says(hit, wanted)), None)
    if rank is None:
        texts = "; ".join(hit.text[:80] for hit in hits[:2]) or "nothing"
        advice = (
            "a memory that rewrites what it is told may be right; else raise the flush time, or see whether "
            "it stores at all"
        )
        detail = f"the item asked for is not among {len(hits)} hits: {texts}"
        return checkup.note("search", "warn" if hits else "fail", detail, advice, took)
    detail = f"the item asked for is hit {rank} of {len(hits)}"
    checkup.note("search", "ok" if rank == 1 else "warn", detail, seconds=took)
    if len(hits) > _K:
        checkup.note("k", "warn", f"{len(hits)} hits were given for k={_K}")
    own = sum(bool(hit.source_ids) for hit in hits)
    if own:
        return checkup.note("sources", "ok", f"{own} of {len(hits)} hits name the items they come from")
    detail = "hits do not name the items they come from; evidence is matched by their text"
    return checkup.note("sources", "n/a", detail)


async def _answered(checkup: _Checkup) -> None:
    if "answer" not in checkup.memory.capabilities:
        return
    question = f"In which box does the {_COLOURS[2]} canary {checkup.mark} live?"
    reply, took = await checkup.call("answer", method(checkup.memory, "answer"), question)
    text = as_answer(reply, checkup.memory).text
    right = "43" in text.split() or "43" in normalise(text).split()
    detail = f"asked for the box of {checkup.items[2].id}: {redact(text)[:120]!r}"
    checkup.note("answer", "ok" if right else "warn", detail, seconds=took)


async def _kept_apart(memory: Memory, name: str, checkup: _Checkup) -> None:
    checkup.needs("namespaces", "namespaces")
    checkup.needs("search", "namespaces")
    other: Memory = await call(memory.namespace, f"{name}-other")  # type: ignore[attr-defined]
    try:
        hits, took = await checkup.search("namespaces", other, checkup.items[2].text)
        leaked = [hit.text[:80] for hit in hits if checkup.mark in hit.text]
        detail = "what was added in one is not found in another"
        if leaked:
            detail = f"another one finds what was added here: {leaked[0]!r}"
        checkup.judge("namespaces", not leaked, detail, took)
    finally:
        for names in (("reset", "delete_all"), ("aclose", "close")):
            if (act := method(other, *names)) is not None:
                with suppress(Exception):  # it is empty, but may have been made by asking
                    await call(act)


async def _counted(checkup: _Checkup) -> None:
    checkup.needs("stats", "stats")
    reply, took = await checkup.call("stats", method(checkup.memory, "stats"))
    sizes = [reply.get(key) if isinstance(reply, dict) else None for key in ("items", "bytes")]
    detail = f"items: {sizes[0]}, bytes: {sizes[1]}"
    checkup.judge("stats", all(isinstance(size, int) for size in sizes), detail, took)


async def _updated(checkup: _Checkup) -> None:
    checkup.needs("update", "update")
    ident, old = checkup.ident(1, "update"), checkup.items[1]
    new = f"The {_COLOURS[1]} canary {checkup.mark} moved to drawer 99."
    _, took = await checkup.call("update", method(checkup.memory, "update"), ident, new)
    await _flushed_again(checkup, "update")
    hits, _ = await checkup.search("update", checkup.memory, new)
    stale = any(normalise(old.text) in normalise(hit.text) for hit in hits)
    fresh = any("drawer 99" in hit.text for hit in hits)
    detail = f"new text found: {fresh}; old text found: {stale}"
    if fresh and not stale:
        detail = "the new text is found and the old one is not"
    checkup.judge("update", fresh and not stale, detail, took)


async def _deleted(checkup: _Checkup) -> None:
    checkup.needs("delete", "delete")
    item, ident = checkup.items[0], checkup.ident(0, "delete")
    _, took = await checkup.call("delete", method(checkup.memory, "delete"), ident)
    checkup.deleted.add(ident)
    if "search" in checkup.memory.capabilities:
        hits, _ = await checkup.search("delete", checkup.memory, item.text)
        left = any(_says(hit, item) for hit in hits)
        checkup.judge("delete", not left, "it is still found" if left else "it is gone", took)


async def _flushed_again(checkup: _Checkup, name: str) -> None:
    flush = method(checkup.memory, "flush")
    if flush is None:
        return
    try:
        await call(flush, checkup.seconds)
    except Stop:
        raise
    except Exception as error:
        checkup.note(name, "fail", f"the wait after it: {describe(error)}")
        raise _StepOver from error


async def _tidied(checkup: _Checkup, *, fresh: bool) -> None:
    """Take away what was added; a namespace of our own is emptied, anything else item by item."""
    memory = checkup.memory
    if fresh and not getattr(memory, "leaves_behind", False) and await _emptied(checkup):
        return None
    left = [
        receipt for receipt in checkup.receipts if receipt.error is None and receipt.memory_id not in checkup.deleted
    ]
    if not left and not checkup.deleted:
        detail = f"nothing was acknowledged; should something be there all the same, it says {checkup.mark!r}"
        return checkup.note("tidy up", "n/a", detail)
    delete = method(memory, "delete") if "delete" in memory.capabilities else None
    stay = sum([not await _taken_away(delete, receipt.memory_id) for receipt in left])
    if stay:
        return checkup.note("tidy up", "warn", f"{stay} canaries stay in it; each says {checkup.mark!r}")
    return checkup.note("tidy up", "ok", "the canaries were deleted")


async def _emptied(checkup: _Checkup) -> bool:
    """True if its namespace is empty again, or could not be emptied and that was said; not if it offers no emptying."""
    forget = method(checkup.memory, "reset", "delete_all")
    if forget is None:
        return False
    try:
        _, took = await checkup.call("tidy up", forget)
    except _StepOver:
        if checkup.findings[-1].status == "fail":
            return True
        checkup.findings.pop()  # not supported: something else may do
        return False
    checkup.note("tidy up", "ok", "its namespace is empty again", seconds=took)
    return True


async def _taken_away(delete: Callable[..., Any] | None, memory_id: str | None) -> bool:
    if delete is None or memory_id is None:
        return False
    try:
        await call(delete, memory_id)
    except Stop:
        raise
    except Exception:  # however it refuses
        return False
    return True


def _says(hit: Hit, item: Item) -> bool:
    return item.id in hit.source_ids or normalise(item.text) in normalise(hit.text)
