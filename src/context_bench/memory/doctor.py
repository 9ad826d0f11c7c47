"""Find out with a canary what a memory can really do: add, wait, find, delete, gone. What it held before is left
alone.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.calling import call, method
from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, Stop, describe
from context_bench.core.text import normalise
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


@dataclass(slots=True)
class _Checkup:
    """One examination; its items hold words that nobody else's do."""

    memory: Memory
    seconds: float
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    findings: list[Finding] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)  # ids that were deleted

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

    def tell(self, name: str, status: Status, detail: str, advice: str = "", seconds: float | None = None) -> bool:
        self.findings.append(Finding(name, status, detail, advice, seconds))
        return status != "fail"

    async def timed(self, name: str, function: Callable[..., Any] | None, *args: Any) -> tuple[Any, float | None]:
        """Its result and the seconds it took; a failure is a finding, and then the seconds are `None`."""
        started = SYSTEM_CLOCK.monotonic()
        try:
            if function is None:
                raise NotSupported("it has no such method")
            found = await call(function, *args)
        except Stop:
            raise
        except NotSupported as error:
            self.tell(name, "n/a", str(error) or "not supported")
        except Exception as error:
            self.tell(name, "fail", describe(error), seconds=SYSTEM_CLOCK.monotonic() - started)
        else:
            return found, SYSTEM_CLOCK.monotonic() - started
        return None, None

    def offers(self, what: str, name: str) -> bool:
        """True if the memory says that it can; if not, that is the finding."""
        if what in self.memory.capabilities:
            return True
        self.tell(name, "n/a", f"the memory does not offer {what}")
        return False


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
    named = f"doctor-{uuid.uuid4().hex[:12]}"
    begun: list[Finding] = []
    _versions(memory, begun)
    async with _place(memory, named) as place:
        checkup = _Checkup(place, seconds, findings=begun)
        if await _added(checkup) and await _flushed(checkup):
            await _found(checkup)
            await _answered(checkup)
            await _kept_apart(checkup, memory, named)
            await _counted(checkup)
            await _updated(checkup)
            await _deleted(checkup)
        await _tidied(checkup, fresh=place is not memory)
    return checkup.findings


def _versions(memory: Memory, findings: list[Finding]) -> None:
    """Of a vendor's package: the one tried here, or another."""
    vendor, version = getattr(memory, "vendor", None), getattr(memory, "version", None)
    if vendor is None or version is None:
        return
    if version == vendor.tried:
        findings.append(Finding("version", "ok", f"{vendor.package} {version}, the version tried here"))
    else:
        findings.append(
            Finding(
                "version",
                "warn",
                f"{vendor.package} {version}; tried here: {vendor.tried}",
                "their calls change between versions",
            )
        )


@asynccontextmanager
async def _place(memory: Memory, name: str) -> AsyncIterator[Memory]:
    """A fresh namespace, closed afterwards; without namespaces the memory itself."""
    if "namespaces" not in memory.capabilities:
        yield memory
        return
    twin: Memory = await call(memory.namespace, name)  # type: ignore[attr-defined]
    try:
        yield twin
    finally:
        await _closed(twin)


async def _closed(twin: Memory) -> None:
    close = method(twin, "aclose", "close")
    if close is not None:
        with suppress(Exception):  # what it was to show is shown
            await call(close)


async def _added(checkup: _Checkup) -> bool:
    found, took = await checkup.timed("add", checkup.memory.add, checkup.items)
    if took is None:
        return False
    if not isinstance(found, list) or not all(isinstance(each, Receipt) for each in found):
        return checkup.tell("add", "fail", f"add gave {type(found).__name__}, expected a list of Receipt", seconds=took)
    checkup.receipts = found
    errors = [each.error for each in found if each.error]
    if errors or len(found) != len(checkup.items):
        return checkup.tell(
            "add",
            "fail",
            f"{len(found)} receipts for {len(checkup.items)} items; {'; '.join(errors[:2])}",
            seconds=took,
        )
    named = sum(each.memory_id is not None for each in found)
    return checkup.tell("add", "ok", f"{len(found)} items acknowledged, {named} of them with an id", seconds=took)


async def _flushed(checkup: _Checkup) -> bool:
    flush = method(checkup.memory, "flush")
    if flush is None:
        return checkup.tell("flush", "n/a", "it has no flush: what was added is expected to be there at once")
    _, took = await checkup.timed("flush", flush, checkup.seconds)
    if took is None:
        return checkup.findings[-1].status != "fail"
    return checkup.tell("flush", "ok", f"what was added can be found after {took:.2f} s", seconds=took)


async def _look(checkup: _Checkup, name: str, place: Memory, query: str) -> tuple[list[Hit] | None, float | None]:
    found, took = await checkup.timed(name, place.search, query, _K)
    if took is None:
        return None, None
    if not isinstance(found, list) or not all(isinstance(hit, Hit) for hit in found):
        checkup.tell(name, "fail", f"search gave {type(found).__name__}, expected a list of Hit", seconds=took)
        return None, None
    return found, took


async def _found(checkup: _Checkup) -> None:
    if not checkup.offers("search", "search"):
        return
    wanted = checkup.items[2]
    hits, took = await _look(checkup, "search", checkup.memory, wanted.text)
    if hits is None:
        return
    at = next((rank for rank, hit in enumerate(hits, 1) if _says(hit, wanted)), None)
    if at is None:
        texts = "; ".join(hit.text[:80] for hit in hits[:2]) or "nothing"
        advice = (
            "a memory that rewrites what it is told may be right; else raise the flush time, or see whether "
            "it stores at all"
        )
        checkup.tell(
            "search",
            "warn" if hits else "fail",
            f"the item asked for is not among {len(hits)} hits: {texts}",
            advice,
            took,
        )
        return
    checkup.tell("search", "ok" if at == 1 else "warn", f"the item asked for is hit {at} of {len(hits)}", seconds=took)
    if len(hits) > _K:
        checkup.tell("k", "warn", f"{len(hits)} hits were given for k={_K}")
    own = [hit for hit in hits if hit.source_ids]
    if own:
        checkup.tell("sources", "ok", f"{len(own)} of {len(hits)} hits name the items they come from")
    else:
        checkup.tell("sources", "n/a", "hits do not name the items they come from; evidence is matched by their text")


async def _answered(checkup: _Checkup) -> None:
    if "answer" not in checkup.memory.capabilities:
        return
    wanted = checkup.items[2]
    question = f"In which box does the {_COLOURS[2]} canary {checkup.mark} live?"
    found, took = await checkup.timed("answer", method(checkup.memory, "answer"), question)
    if took is not None:
        text = as_answer(found, checkup.memory).text
        right = "43" in text.split() or "43" in normalise(text).split()
        checkup.tell(
            "answer", "ok" if right else "warn", f"asked for the box of {wanted.id}: {text[:120]!r}", seconds=took
        )


async def _kept_apart(checkup: _Checkup, memory: Memory, name: str) -> None:
    if not checkup.offers("namespaces", "namespaces") or not checkup.offers("search", "namespaces"):
        return
    other: Memory = await call(memory.namespace, f"{name}-other")  # type: ignore[attr-defined]
    try:
        hits, took = await _look(checkup, "namespaces", other, checkup.items[2].text)
        if hits is None:
            return
        if leaked := [hit for hit in hits if checkup.mark in hit.text]:
            checkup.tell(
                "namespaces", "fail", f"another one finds what was added here: {leaked[0].text[:80]!r}", seconds=took
            )
        else:
            checkup.tell("namespaces", "ok", "what was added in one is not found in another", seconds=took)
    finally:
        if (forget := method(other, "reset", "delete_all")) is not None:
            with suppress(Exception):  # it is empty, but may have been made by asking
                await call(forget)
        await _closed(other)


async def _counted(checkup: _Checkup) -> None:
    if not checkup.offers("stats", "stats"):
        return
    found, took = await checkup.timed("stats", method(checkup.memory, "stats"))
    if took is not None:
        told = dict(found) if isinstance(found, dict) else {}
        whole = all(isinstance(told.get(key), int) for key in ("items", "bytes"))
        checkup.tell(
            "stats", "ok" if whole else "fail", f"items: {told.get('items')}, bytes: {told.get('bytes')}", seconds=took
        )


async def _updated(checkup: _Checkup) -> None:
    ident = checkup.receipts[1].memory_id
    if not checkup.offers("update", "update"):
        return
    if ident is None:
        checkup.tell("update", "n/a", "add gave no id to update by")
        return
    old = checkup.items[1]
    new = f"The {_COLOURS[1]} canary {checkup.mark} moved to drawer 99."
    _, took = await checkup.timed("update", method(checkup.memory, "update"), ident, new)
    if took is None or not await _flushed_again(checkup, "update"):
        return
    hits, _ = await _look(checkup, "update", checkup.memory, new)
    if hits is None:
        return
    stale = any(normalise(old.text) in normalise(hit.text) for hit in hits)
    fresh = any("drawer 99" in hit.text for hit in hits)
    detail = (
        "the new text is found and the old one is not"
        if fresh and not stale
        else f"new text found: {fresh}; old text found: {stale}"
    )
    checkup.tell("update", "ok" if fresh and not stale else "fail", detail, seconds=took)


async def _deleted(checkup: _Checkup) -> None:
    if not checkup.offers("delete", "delete"):
        return
    gone, ident = checkup.items[0], checkup.receipts[0].memory_id
    if ident is None:
        checkup.tell("delete", "n/a", "add gave no id to delete by")
        return
    _, took = await checkup.timed("delete", method(checkup.memory, "delete"), ident)
    if took is not None:
        checkup.gone.add(ident)
    if took is None or "search" not in checkup.memory.capabilities:
        return
    hits, _ = await _look(checkup, "delete", checkup.memory, gone.text)
    if hits is not None:
        left = any(_says(hit, gone) for hit in hits)
        checkup.tell("delete", "fail" if left else "ok", "it is still found" if left else "it is gone", seconds=took)


async def _flushed_again(checkup: _Checkup, name: str) -> bool:
    flush = method(checkup.memory, "flush")
    if flush is None:
        return True
    try:
        await call(flush, checkup.seconds)
    except Stop:
        raise
    except Exception as error:
        return checkup.tell(name, "fail", f"the wait after it: {describe(error)}")
    return True


async def _tidied(checkup: _Checkup, *, fresh: bool) -> None:
    """Take away what was added; a namespace of our own is emptied, anything else item by item."""
    memory = checkup.memory
    if fresh and not getattr(memory, "leaves_behind", False) and await _emptied(checkup):
        return
    left = [receipt for receipt in checkup.receipts if receipt.error is None and receipt.memory_id not in checkup.gone]
    delete: Callable[..., Awaitable[Any] | Any] | None = (
        method(memory, "delete") if "delete" in memory.capabilities else None
    )
    if not left and not checkup.gone:
        checkup.tell(
            "tidy up",
            "n/a",
            f"nothing was acknowledged; should something be there all the same, it says {checkup.mark!r}",
        )
        return
    stay = 0
    for receipt in left:
        stay += delete is None or receipt.memory_id is None or not await _taken_away(delete, receipt.memory_id)
    if stay:
        checkup.tell("tidy up", "warn", f"{stay} canaries stay in it; each says {checkup.mark!r}")
    else:
        checkup.tell("tidy up", "ok", "the canaries were deleted")


async def _emptied(checkup: _Checkup) -> bool:
    """True if its namespace is empty again, or could not be emptied and that was said; not if it offers no emptying."""
    forget = method(checkup.memory, "reset", "delete_all")
    if forget is None:
        return False
    started = SYSTEM_CLOCK.monotonic()
    try:
        await call(forget)
    except Stop:
        raise
    except NotSupported:
        return False
    except Exception as error:
        return not checkup.tell("tidy up", "fail", describe(error), seconds=SYSTEM_CLOCK.monotonic() - started)
    return checkup.tell("tidy up", "ok", "its namespace is empty again", seconds=SYSTEM_CLOCK.monotonic() - started)


async def _taken_away(delete: Callable[..., Awaitable[Any] | Any], memory_id: str) -> bool:
    try:
        await call(delete, memory_id)
    except Stop:
        raise
    except Exception:  # however it refuses
        return False
    return True


def _says(hit: Hit, item: Item) -> bool:
    return item.id in hit.source_ids or normalise(item.text) in normalise(hit.text)
