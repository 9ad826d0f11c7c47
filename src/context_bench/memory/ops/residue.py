"""Suite of residue: what is left of deleted things, by every way to them that the memory offers.

Beside search (suite "delete"): by time, in a listing, by id. stored again: what was deleted can be remembered anew.
more than a page: everything of a user is deleted where a user has more things than one page of any listing holds; as
many are stored as the deadline allows. model: what the memory sends to its own model after everything was deleted.
Positive control: each way showed the things before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from context_bench.core.protocols import method
from context_bench.llm.servers import ModelServer
from context_bench.memory.ops import SuiteReport, share
from context_bench.memory.ops.suite_workspace import StoredFact, SuiteWorkspace
from context_bench.memory.protocol import Hit, Memory, NotSupported
from context_bench.memory.systems.built_memories import bundled
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest

SUITES = {"residue": "residue"}

_DELETED, _KEPT = 4, 3
_PAGE = 100  # the largest page that listings are known to have by default
_SAMPLE = 25
_CHUNK = 20
_Way = Callable[[Memory, Sequence[str]], Awaitable[Sequence[Hit]]]


async def residue(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Delete by id and look by the other ways; store again; delete a user of many things; ask the memory's model."""
    workspace.needs("search")
    async with report.guard("other ways"):
        await _other_ways(workspace, report)
    async with report.guard("stored again"):
        await _stored_again(workspace, report)
    async with report.guard("more than a page"):
        await _more_than_a_page(workspace, report)
    async with report.guard("model after emptying"):
        await _model_after(workspace, report)


# --- other ways ---
def _ways(workspace: SuiteWorkspace) -> Iterator[tuple[str, str, _Way]]:
    """Name, capability and call of each way beside search."""
    today = datetime.now(UTC)
    first, last = ((today + timedelta(days=days)).date().isoformat() for days in (-1, 2))

    async def by_id(memory: Memory, ids: Sequence[str]) -> list[Hit]:
        return [hit for each in ids if (hit := await workspace.act(memory, "get", each)) is not None]

    yield "by time", "by_time", lambda memory, _: workspace.act(memory, "between", first, last)
    yield "listed", "list", lambda memory, _: workspace.act(memory, "list_all")
    yield "by its id", "by_id", by_id


async def _other_ways(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete")
    memory = await workspace.place()
    gone, kept = workspace.facts.facts(_DELETED), workspace.facts.facts(_KEPT)
    receipts = await workspace.store(memory, [fact.item() for fact in (*gone, *kept)])
    ids = [
        each
        for fact, receipt in zip((*gone, *kept), receipts, strict=True)
        for each in await workspace.ids_of(memory, receipt, fact.text, fact.word)
    ]
    offered: dict[str, _Way] = {}
    for name, capability, way in _ways(workspace):
        if workspace.has(capability):
            offered[name] = way
        else:
            report.without(name, f"cannot be asked: the memory offers no {capability}")
    before = {name: _present(await way(memory, ids), gone) for name, way in offered.items()}
    for fact, receipt in zip(gone, receipts, strict=False):
        for memory_id in await workspace.ids_of(memory, receipt, fact.text, fact.word):
            await workspace.act(memory, "delete", memory_id)
    await workspace.flush(memory)
    for name, way in offered.items():
        async with report.guard(name):
            hits = await way(memory, ids)
            left, standing = _present(hits, before[name]), _present(hits, kept)
            report.test(
                name,
                not left,
                f"{len(left)} of {len(before[name])} deleted things are still found",
                {"deleted": len(before[name]), "residue": len(left), "share": share(len(left), len(before[name]))},
                [fact.text for fact in left],
                control=bool(before[name]) and bool(standing),
                proof=f"{len(before[name])} of {len(gone)} were found so before; {len(standing)} of {len(kept)} others "
                "are found now",
            )


def _present(hits: Sequence[Hit], facts: Sequence[StoredFact]) -> list[StoredFact]:
    """Those of the facts that the hits say."""
    texts = "\n".join(hit.text.lower() for hit in hits)
    return [fact for fact in facts if fact.word in texts]


async def _stored_again(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete")
    memory = await workspace.place("again")
    fact = workspace.facts.fact()
    (receipt,) = await workspace.store(memory, [fact.item()])
    before = await workspace.finds(memory, fact.text, fact.word)
    for memory_id in await workspace.ids_of(memory, receipt, fact.text, fact.word):
        await workspace.act(memory, "delete", memory_id)
    await workspace.flush(memory)
    (receipt,) = await workspace.add(memory, [fact.item()])
    if receipt.error is None:
        await workspace.flush(memory)
    again = await workspace.finds(memory, fact.text, fact.word)
    refusal = f": {receipt.error}" if receipt.error else ""
    report.test(
        "stored again",
        again,
        "what was deleted can be remembered again"
        if again
        else f"what was deleted cannot be remembered again{refusal}",
        {"found": int(again), "refused": int(receipt.error is not None)},
        [] if again else [f"{fact.text!r}{refusal}"],
        control=before,
        proof="it was found the first time" if before else "it was not found the first time",
    )


# --- everything of a user ---
async def _more_than_a_page(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete_all")
    memory = await workspace.place("many")
    if not workspace.has("namespaces"):
        await workspace.forget(memory)
    facts = await _many(workspace, memory)
    await workspace.flush(memory)
    step = max(1, len(facts) // _SAMPLE)
    sample = list(dict.fromkeys([*facts[::step], facts[-1]]))
    before = await workspace.found(memory, sample)
    await workspace.forget(memory)
    await workspace.flush(memory)
    left = await workspace.found(memory, before)
    held = await _held(workspace, memory)
    again = workspace.facts.fact()
    await workspace.store(memory, [again.item()])
    works = await workspace.finds(memory, again.text, again.word)
    report.test(
        "more than a page",
        not left and not held and works,
        f"after everything of a user with {len(facts):,} things was deleted, "
        + (f"{held:,} are left" if held else f"{len(left)} of {len(before)} that were looked for are found")
        + ("" if works else "; nothing can be stored any more"),
        {"stored": len(facts), "looked_for": len(before), "residue": len(left), "held": held},
        [fact.text for fact in left],
        control=bool(before),
        proof=f"{len(before)} of {len(sample)} that were looked for were found before",
    )


async def _many(workspace: SuiteWorkspace, memory: Memory) -> list[StoredFact]:
    """Store as many things as are wanted, or as the deadline allows; `NotSupported` if that is no more than a page."""
    facts: list[StoredFact] = []
    most = workspace.many
    begun = workspace.clock.monotonic()
    while len(facts) < most:
        some = workspace.facts.facts(min(_CHUNK, most - len(facts)))
        receipts = await workspace.add(memory, [fact.item() for fact in some])
        facts += [fact for fact, receipt in zip(some, receipts, strict=True) if receipt.error is None]
        if any(receipt.error for receipt in receipts):
            break
        spent = workspace.clock.monotonic() - begun
        if spent > workspace.deadline and len(facts) > _PAGE:
            break
        if spent / len(facts) * (_PAGE + 1) > 2 * workspace.deadline:
            raise NotSupported(
                f"{len(facts)} things took {spent:.0f} s: more than {_PAGE} would take more than twice the deadline of "
                f"{workspace.deadline:g} s"
            )
    if len(facts) <= min(_PAGE, most - 1):
        raise NotSupported(f"the memory took {len(facts)} things and no more")
    return facts


async def _held(workspace: SuiteWorkspace, memory: Memory) -> int | None:
    """Number of things that the memory says it holds; `None` if it does not say."""
    held = (await workspace.stats(memory)).get("items")
    if isinstance(held, int):
        return held
    return len(await workspace.act(memory, "list_all")) if workspace.has("list") else None


# --- the memory's own model ---
class ExtractingModel:
    """A model for memories that ask one: it "extracts" the last thing of a suite that a request tells.

    Its replies are JSON in the forms that memories ask for: `facts`, and `memory` with events.
    """

    name = "context-bench-extractor"
    _FACT = re.compile(r"[A-Z]\w+ [A-Z]\w+ opens the old \w+ with the secret word \w+\.")

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        told = self._FACT.findall(" ".join(message.text or "" for message in request.messages))
        facts = told[-1:]
        memory = [{"id": str(place), "text": text, "event": "ADD"} for place, text in enumerate(facts)]
        return Reply(text=json.dumps({"facts": facts, "memory": memory}), finish_reason="stop")

    async def embed(self, texts: list[str]) -> list[list[float]]:
        return [[float(number) for number in vector] for vector in bundled().embed(texts)]


async def _model_after(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete_all")
    if workspace.model is None:
        raise NotSupported("cannot be asked: no model of ours stands behind it; write {model} where SPEC names one")
    memory = await workspace.place("model")
    gone, later = workspace.facts.facts(2)
    await workspace.store(memory, [gone.item()])
    await workspace.search(memory, gone.question)
    told = _requests_with(workspace.model, gone.word, 0)
    if not told:
        raise NotSupported("cannot be asked: its model was not sent what the memory was told")
    empty = method(memory, "reset", "delete_all")
    assert empty is not None
    await workspace.caller.call(empty)
    await workspace.flush(memory)
    already = len(workspace.model.requests)
    await workspace.store(memory, [later.item()])
    await workspace.search(memory, later.question)
    after = _requests_with(workspace.model, gone.word, already)
    asked = len(workspace.model.requests) - already
    report.test(
        "model after emptying",
        not after,
        f"{len(after)} of {asked} requests to the memory's own model hold what was deleted",
        {"requests": asked, "residue": len(after)},
        [_around(body, gone.word) for body in after],
        control=bool(asked),
        proof=f"{len(told)} requests held it before, {asked} requests were made afterwards",
    )


def _requests_with(model: ModelServer, word: str, since: int) -> list[str]:
    """Bodies of the requests from number `since` on that hold the word."""
    bodies = (each.raw.decode("utf-8", "replace") for each in list(model.requests)[since:])
    return [body for body in bodies if word in body]


def _around(body: str, word: str) -> str:
    place = body.find(word)
    return f"…{body[max(0, place - 80) : place + 40]}…"
