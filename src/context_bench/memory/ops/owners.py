"""Suite of owners: whose is what was told, whatever their names look like and whatever stands beside it?

names alike: namespaces whose names begin alike, or hold characters that mean something to a filter, a path or a query
(`& = / : * % _`, a line break). Each holds one thing. A name that the memory refuses is no fault. identity in metadata:
a thing of A is added, or updated, with metadata that names B as its owner; it stays A's. The memory's `owner` says
which fields these are; without it the usual names are tried. caller's list: a list that was handed over is changed
afterwards. one start: two memories begin from one object, and one of them is told something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_bench.core.errors import Stop, TimedOut
from context_bench.core.protocols import method, misfit
from context_bench.memory.ops import SuiteReport
from context_bench.memory.ops.suite_workspace import StoredFact, SuiteWorkspace, says
from context_bench.memory.protocol import Item, Memory, NotSupported
from context_bench.memory.systems.adapting import as_memory

SUITES = {"owners": "owners"}

#: What is put behind one name to make another; the first is that name itself.
_ALIKE = (
    "",
    "1",
    "11",
    "-1",
    "_",
    "/x",
    "/../x",
    "&user_id=x",
    "=x",
    ":x",
    "*",
    "%",
    ".x",
    "\nx",
    "\tx",
    " x",
    "'x",
    '"x',
)
_EMPTIED = ("", "*", "%", "_")
_SHARED = "Who opens which old place with which secret word?"
_USUAL = ("user_id", "agent_id", "run_id", "owner", "owner_id", "namespace", "tenant", "tenant_id")


async def owners(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Names that are alike, metadata that names another owner, objects that are still the caller's."""
    workspace.needs("search")
    async with report.guard("names alike"):
        await _names_alike(workspace, report)
    for change in ("add", "update"):
        async with report.guard(f"identity in metadata: {change}"):
            await _identity(workspace, report, change)
    async with report.guard("caller's list"):
        await _callers_list(workspace, report)
    async with report.guard("one start"):
        await _one_start(workspace, report)


# --- names ---
async def _names_alike(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("namespaces")
    places, refused = await _filled(workspace)
    words = {fact.word: name for name, (_, fact) in places.items()}
    mixed, lost = [], []
    for name, (here, fact) in places.items():
        hits = [
            *await workspace.search(here, _SHARED, 2 * len(_ALIKE)),
            *(await workspace.search(here, fact.text)),
            *(await workspace.act(here, "list_all") if workspace.has("list") else ()),
        ]
        seen = {words[word] for word in words for hit in hits if word in hit.text.lower()}
        lost += [] if name in seen else [f"{name!r} does not find what it was told"]
        mixed += [f"{name!r} finds what {other!r} was told" for other in sorted(seen - {name})]
    numbers = {"names": len(places), "refused": refused, "mixed": len(mixed), "lost": len(lost)}
    report.test(
        "names alike",
        not mixed and not lost,
        f"{len(mixed)} times one of {len(places)} names finds what another was told, {len(lost)} do not find their own"
        + (f"; {refused} names were refused" if refused else ""),
        numbers,
        mixed + lost,
        control=len(lost) < len(places) > 1,
        proof=f"{len(places) - len(lost)} of {len(places)} names find what they were told",
    )
    async with report.guard("names alike: emptying"):
        await _emptied(workspace, report, places)


async def _filled(workspace: SuiteWorkspace) -> tuple[dict[str, tuple[Memory, StoredFact]], int]:
    """The namespaces by name with the one thing that each was told, and how many names were refused."""
    first = workspace.name_of("n")
    places: dict[str, tuple[Memory, StoredFact]] = {}
    refused = 0
    for more in _ALIKE:
        fact = workspace.facts.fact()
        try:
            memory = await workspace.named(first + more)
            (receipt,) = await workspace.store(memory, [fact.item()])
        except (Stop, TimedOut):
            raise
        except Exception:  # however it refuses a name
            refused += 1
            continue
        if receipt.error is None:
            places[first + more] = (memory, fact)
        else:
            refused += 1
    return places, refused


async def _emptied(
    workspace: SuiteWorkspace, report: SuiteReport, places: Mapping[str, tuple[Memory, StoredFact]]
) -> None:
    workspace.needs("delete_all")
    emptied: list[str] = []
    standing = {name for name, (here, fact) in places.items() if await workspace.finds(here, fact.text, fact.word)}
    before = len(standing)
    for more in _EMPTIED:
        name = workspace.name_of("n") + more
        if name not in standing:
            continue
        await workspace.forget(places[name][0])
        await workspace.flush(places[name][0])
        standing.discard(name)
        for other in sorted(standing):
            here, fact = places[other]
            if not await workspace.finds(here, fact.text, fact.word):
                emptied.append(f"what {other!r} was told is gone after {name!r} was emptied")
                standing.discard(other)
    report.test(
        "names alike: emptying",
        not emptied,
        f"{len(emptied)} of {before} namespaces lost what they held when one with a name like theirs was emptied",
        {"names": before, "lost": len(emptied)},
        emptied,
        control=before > 1,
        proof=f"{before} names found what they were told before",
    )


# --- identity in metadata ---
async def _owner_of(workspace: SuiteWorkspace, memory: Memory, label: str) -> dict[str, str]:
    """The metadata that names the owner of a namespace, as the memory tells it or under the usual names."""
    declared = getattr(memory, "owner", None)
    if declared is None:
        return dict.fromkeys(_USUAL, workspace.name_of(label))
    found = await workspace.caller.call(declared) if callable(declared) else declared
    return {str(name): str(value) for name, value in dict(found).items()}


async def _identity(workspace: SuiteWorkspace, report: SuiteReport, change: str) -> None:
    """Tell A something with metadata that names B; look in both."""
    workspace.needs("namespaces", "metadata", *(("update",) if change == "update" else ()))
    ours, theirs = await workspace.place("a"), await workspace.place("b")
    if change == "update" and misfit(getattr(ours, "update", None) or (lambda: None), "id", "text", metadata={}):
        raise NotSupported("update() takes no metadata")
    mine, plain, stranger = workspace.facts.facts(3)
    names: dict[str, Any] = await _owner_of(workspace, theirs, "b")
    await workspace.store(ours, [plain.item()])
    await workspace.store(theirs, [stranger.item()])
    control = await workspace.finds(ours, plain.text, plain.word) and await workspace.finds(
        theirs, stranger.text, stranger.word
    )
    told = mine.text
    if change == "add":
        receipts = await workspace.store(ours, [replace(mine.item(), metadata=names)])
        refused = receipts[0].error is not None
    else:
        receipts = await workspace.store(ours, [mine.item()])
        control = control and await workspace.finds(ours, mine.text, mine.word)
        told = f"{mine.text} So it was said again."
        refused = await _refuses(workspace, ours, receipts[0].memory_id, mine, told, names)
    await workspace.flush(ours)
    moved = await workspace.finds(theirs, told, mine.word)
    kept = refused or await workspace.finds(ours, told, mine.word)
    findings = [f"{told!r} is found by the owner that the metadata names: {names}"] if moved else []
    findings += [] if kept else [f"{told!r} is no longer found by its own owner"]
    report.test(
        f"identity in metadata: {change}",
        not findings,
        "metadata that names another owner is refused"
        if refused and not findings
        else "a thing stays with its owner, whatever its metadata says"
        if not findings
        else "; ".join(findings),
        {"moved": int(moved), "kept": int(kept), "refused": int(refused)},
        findings,
        control=control,
        proof="both owners find what they were told plainly" if control else "not both owners find what they were told",
    )


async def _refuses(
    workspace: SuiteWorkspace,
    memory: Memory,
    memory_id: str | None,
    fact: StoredFact,
    text: str,
    metadata: Mapping[str, Any],
) -> bool:
    """Update a thing with this metadata; true if the memory refuses, however it does."""
    if memory_id is None:
        hits = await workspace.search(memory, fact.text)
        memory_id = next((hit.memory_id for hit in hits if fact.word in hit.text.lower()), None)
    if memory_id is None:
        raise NotSupported("neither receipts nor hits name an id of what is kept")
    try:
        await workspace.act(memory, "update", memory_id, text, metadata=dict(metadata))
    except (Stop, TimedOut, NotSupported):
        raise
    except Exception:  # however it refuses
        return True
    return False


# --- objects of the caller ---
async def _callers_list(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Hand a list over, change it, and look for what only the changed list says."""
    memory = await workspace.place("c")
    kept, later = workspace.facts.fact(), workspace.facts.fact()
    note = {"note": "as it was handed over"}
    handed: list[Item] = [workspace.handed(replace(kept.item(), metadata=note))]
    before = list(handed)
    receipts = await workspace.caller.call(memory.add, handed)
    workspace.note(receipt.memory_id for receipt in receipts)
    await workspace.flush(memory)
    changed = handed != before or note != {"note": "as it was handed over"}
    control = await workspace.finds(memory, kept.text, kept.word)
    handed.append(workspace.handed(later.item()))
    handed[0] = workspace.handed(later.item())
    grown = await workspace.finds(memory, later.text, later.word)
    stands = await workspace.finds(memory, kept.text, kept.word)
    findings = [f"{later.text!r} was never handed over and is found"] if grown else []
    findings += [] if stands else [f"{kept.text!r} is gone after the caller's list was changed"]
    findings += ["the list that was handed over is another afterwards"] if changed else []
    report.test(
        "caller's list",
        not findings,
        "; ".join(findings) or "what the caller does with its list afterwards changes nothing",
        {"changed": int(changed), "grown": int(grown)},
        findings,
        control=control,
        proof="what was handed over is found" if control else "what was handed over is not found",
    )


async def _one_start(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Begin two memories from one object, tell the first something, and look in the second and in a third."""
    workspace.needs("begin")
    shared, secret = workspace.facts.facts(2)
    start = await workspace.act(workspace.base, "native", [workspace.handed(shared.item())])
    one, two = [as_memory(await workspace.act(workspace.base, "begin", start)) for _ in range(2)]
    await workspace.store(one, [secret.item()])
    control = await workspace.finds(one, secret.text, secret.word) and await workspace.finds(
        two, shared.text, shared.word
    )
    three = as_memory(await workspace.act(workspace.base, "begin", start))
    seen = {
        name: says(await workspace.search(memory, secret.text, workspace.k), secret.word)
        for name, memory in (("a memory begun from the same object", two), ("one begun from it afterwards", three))
    }
    leaks = [f"{name} says {secret.text!r}, which another was told" for name, found in seen.items() if found]
    for memory in (one, two, three):
        close = method(memory, "aclose", "close")
        if close is not None:
            await workspace.caller.call(close)
    report.test(
        "one start",
        not leaks,
        "; ".join(leaks) or "memories begun from one object keep apart what they are told",
        {"memories": 3, "leaked": len(leaks)},
        leaks,
        control=control,
        proof="the first finds what it was told, the second what all began with"
        if control
        else "not found: what the first was told, or what all began with",
    )
