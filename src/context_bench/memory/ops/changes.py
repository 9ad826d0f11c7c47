"""Suites of changes: what was deleted is gone, and of a fact that changed the current version is found.

residue@k = share of deleted things that the first k hits still say, asked by the exact text, by a question (a
paraphrase that does not say the word), and by way of a neighbour (something else about the same person and place). Only
those queries count that found the thing before.

By `update()`, whatever is older is wrong. By adding a newer, dated statement the older one is still true of its time,
so its rates are measurements. current@1 = first hit says vn; stale-in-top-k = an older version is among the first k;
current-above-stale = vn stands above every older one. The versions' words have one length and differ, so that none is
part of another.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_bench.core.protocols import method
from context_bench.memory.ops import SuiteReport, share
from context_bench.memory.ops.suite_workspace import StoredFact, SuiteWorkspace, says
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt

SUITES = {"delete": "deletion", "update": "updates"}

_DELETED, _KEPT = 6, 6
_CHUNK = 1 << 20
_QUERIES = ("exact text", "paraphrase", "neighbour")


@dataclass(slots=True)
class _Filled:
    """The namespace's items, and the hits of each query before anything was deleted."""

    deleted: list[StoredFact]
    kept: list[StoredFact]
    neighbours: list[StoredFact]
    receipts: list[Receipt]
    found: dict[str, list[StoredFact]] = field(default_factory=dict)
    others: list[StoredFact] = field(default_factory=list)  # what was found of the rest
    planted: bool | None = None  # whether the words were in the files; None: no files are known
    second: int = 0  # of the exact texts that found more than one thing

    def query(self, kind: str, fact: StoredFact) -> str:
        """The query of this kind that should lead to the fact."""
        if kind == "exact text":
            return fact.text
        return fact.question if kind == "paraphrase" else self.neighbours[self.deleted.index(fact)].question


async def deletion(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Delete by id, look for it in every way, restart, look again, read the files; then by query, and everything of a
    user.
    """
    workspace.needs("search")
    async with report.guard("by id"):
        await _by_id(workspace, report)
    async with report.guard("by query"):
        await _by_query(workspace, report)
    async with report.guard("by user"):
        await _by_user(workspace, report)


# --- by id ---
async def _by_id(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete")
    memory = await workspace.place()
    filled = await _fill(workspace, memory)
    for fact, receipt in zip(filled.deleted, filled.receipts, strict=True):
        for memory_id in await workspace.ids_of(memory, receipt, fact.text, fact.word):
            await workspace.act(memory, "delete", memory_id)
    await workspace.flush(memory)
    await _residue(workspace, report, memory, filled, "by id")
    await _neighbours(workspace, report, memory, filled)
    await _places_taken(workspace, report, memory, filled)
    async with report.guard("after restart"):
        workspace.needs("persistent")
        await workspace.reopen()
        memory = await workspace.place()
        await _residue(workspace, report, memory, filled, "after restart", kept=True)
    async with report.guard("in the files"):
        await _in_files(workspace, report, memory, filled)


async def _fill(workspace: SuiteWorkspace, memory: Memory) -> _Filled:
    gone, kept = workspace.facts.facts(workspace.times(_DELETED)), workspace.facts.facts(workspace.times(_KEPT))
    filled = _Filled(gone, kept, [workspace.facts.neighbour(fact) for fact in gone], [])
    filled.receipts = (await workspace.store(memory, [fact.item() for fact in (*gone, *kept, *filled.neighbours)]))[
        : len(gone)
    ]
    for kind in _QUERIES:
        filled.found[kind] = [
            fact for fact in gone if await workspace.finds(memory, filled.query(kind, fact), fact.word)
        ]
    filled.others = await workspace.found(memory, [*kept, *filled.neighbours])
    for fact in gone:
        filled.second += len(await workspace.search(memory, fact.text, 2)) == 2
    files = await workspace.files(memory)
    if files:
        filled.planted = not set(_scanned(files, [fact.word for fact in gone])) ^ {fact.word for fact in gone}
    return filled


async def _residue(
    workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, filled: _Filled, name: str, *, kept: bool = False
) -> None:
    """Items still found, for each kind of query."""
    standing = sum([await workspace.finds(memory, fact.text, fact.word) for fact in filled.kept]) if kept else 0
    for kind in _QUERIES:
        asked = filled.found[kind]
        if kind == "neighbour" and not asked:  # to find little is no fault
            report.without(f"{name}: {kind}", "no such query had led to what was deleted")
            continue
        left = [fact for fact in asked if says(await workspace.search(memory, filled.query(kind, fact)), fact.word)]
        control = bool(asked) and (not kept or standing > 0)
        proof = f"{len(asked)} of {len(filled.deleted)} were found so before"
        report.test(
            f"{name}: {kind}",
            not left,
            f"{len(left)} of {len(asked)} deleted things are still found",
            {
                "k": workspace.k,
                "deleted": len(asked),
                "residue": len(left),
                f"residue@{workspace.k}": share(len(left), len(asked)),
            },
            [fact.text for fact in left],
            control=control,
            proof=proof + (f"; {standing} of {len(filled.kept)} others are found now" if kept else ""),
        )


async def _neighbours(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, filled: _Filled) -> None:
    whole, found = len(filled.others), await workspace.found(memory, filled.others)
    lost = [fact for fact in filled.others if fact not in found]
    report.test(
        "by id: nothing else",
        not lost,
        f"{len(lost)} of {whole} other things are gone too",
        {"others": whole, "lost": len(lost)},
        [fact.text for fact in lost],
        control=whole > 0,
        proof=f"{whole} of {len(filled.kept) + len(filled.neighbours)} other things were found before",
    )


async def _places_taken(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, filled: _Filled) -> None:
    """A thing that is only hidden still takes the place of a hit that could be shown."""
    if not filled.second:
        report.without("by id: places taken", "these queries never found a second thing")
        return
    empty = [fact for fact in filled.deleted if not await workspace.search(memory, fact.text, 1)]
    report.test(
        "by id: places taken",
        not empty,
        f"{len(empty)} of {len(filled.deleted)} searches for one hit give none, though there are others that match: "
        "what was deleted is hidden, not gone"
        if empty
        else "what was deleted takes no other hit's place",
        {"searches": len(filled.deleted), "empty": len(empty)},
        [fact.text for fact in empty],
        control=True,
        proof=f"{filled.second} of {len(filled.deleted)} of these queries had found a second thing",
    )


# --- the files ---
async def _in_files(workspace: SuiteWorkspace, report: SuiteReport, memory: Memory, filled: _Filled) -> None:
    if filled.planted is None:
        raise NotSupported("the memory does not say which files it writes")
    if not filled.planted:
        raise NotSupported(
            "what was stored could not be read in the files: they are compressed, encrypted or written later"
        )
    files = await workspace.files(memory)
    await workspace.flush(memory)
    await workspace.close()  # what is held back for later is written now
    words = [fact.word for fact in filled.deleted]
    left = _scanned(files, words)
    standing = _scanned(files, [fact.word for fact in filled.kept])
    works = scanner_works()
    report.test(
        "in the files",
        not left,
        f"{len(left)} of {len(words)} deleted words can still be read in the files",
        {"deleted": len(words), "residue": len(left), "files": len(files), "bytes": sum(_size(path) for path in files)},
        [f"{word} in {path.name}" for word, path in left.items()],
        control=works and bool(standing),
        proof=f"before, all of them could be read there, and {len(standing)} of {len(filled.kept)} others still can; "
        f"the scanner {'finds' if works else 'does NOT find'} what is planted and nothing after it was removed",
    )
    await workspace.enter()
    await workspace.place()


def scanner_works() -> bool:
    """True if the scanner finds a random word planted in a file of ours, across its block borders too, and no more once
    it is removed.
    """
    word = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plant"
        before = secrets.token_bytes(_CHUNK - 7)
        path.write_bytes(before + word.encode() + secrets.token_bytes(100))
        planted = word in _scanned([path], [word])
        path.write_bytes(before + bytes(len(word)) + secrets.token_bytes(100))
        return planted and word not in _scanned([path], [word])


def _scanned(files: Iterable[Path], words: Sequence[str]) -> dict[str, Path]:
    """Find the words (plain ASCII) that occur in the files, in UTF-8 or UTF-16, in any case; and where first."""
    wanted = {form: word for word in words for form in (word.encode(), word.encode("utf-16-le"))}
    overlap = max(map(len, wanted), default=1) - 1
    found: dict[str, Path] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                rest = b""
                while block := file.read(_CHUNK):
                    block = rest + block.lower()
                    for form, word in wanted.items():
                        if word not in found and form in block:
                            found[word] = path
                    rest = block[-overlap:] if overlap else b""
        except OSError:  # a file that went away has nothing in it
            continue
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# --- by query, by user ---
async def _by_query(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    memory = await workspace.place()
    forget = method(memory, "delete_by_query", "forget_matching")
    if forget is None:
        raise NotSupported("the memory offers no deletion by query")
    facts = workspace.facts.facts(3)
    await workspace.store(memory, [fact.item() for fact in facts])
    target = facts[1]
    before = await workspace.finds(memory, target.text, target.word)
    await workspace.caller.call(forget, target.text)
    await workspace.flush(memory)
    left = says(await workspace.search(memory, target.text), target.word)
    report.test(
        "by query",
        not left,
        "what was deleted by query is still found" if left else "what was deleted by query is gone",
        {"residue": int(left)},
        [target.text] if left else [],
        control=before,
        proof="it was found before",
    )


async def _by_user(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("delete_all")
    memory = await workspace.place()
    facts, stranger = workspace.facts.facts(workspace.times(_DELETED)), workspace.facts.fact()
    await workspace.store(memory, [fact.item() for fact in facts])
    apart = await workspace.place("other") if workspace.has("namespaces") else None
    if apart is not None:
        await workspace.store(apart, [stranger.item()])
    before = [fact for fact in facts if await workspace.finds(memory, fact.text, fact.word)]
    await workspace.forget(memory)
    await workspace.flush(memory)
    left = [fact for fact in facts if says(await workspace.search(memory, fact.text), fact.word)]
    stands = apart is None or await workspace.finds(apart, stranger.text, stranger.word)
    again = Item("again", f"A thing said afterwards: {workspace.facts.word()}.")
    await workspace.store(memory, [again])
    works = await workspace.finds(memory, again.text, again.text.split()[-1].rstrip("."))
    report.test(
        "by user",
        not left and stands and works,
        f"{len(left)} of {len(facts)} things are still found after everything was deleted"
        + ("" if stands else "; another user's things are gone too")
        + ("" if works else "; nothing can be stored any more"),
        {"deleted": len(facts), "residue": len(left), "others_stand": int(stands)},
        [fact.text for fact in left],
        control=bool(before),
        proof=f"{len(before)} of {len(facts)} were found before",
    )


_UPDATED, _VERSIONS = 6, 4


@dataclass(frozen=True, slots=True)
class _Versions:
    """A fact and the words that it had, oldest first."""

    fact: StoredFact
    words: tuple[str, ...]

    def text(self, version: int) -> str:
        return self.fact.with_word(self.words[version])


@dataclass(slots=True)
class _Rates:
    """Rates at which hits of some questions hold the current version and older ones."""

    asked: int = 0
    first: int = 0
    found: int = 0
    stale: int = 0
    above: int = 0

    def see(self, versions: _Versions, hits: Sequence[Hit], current: int = -1) -> bool:
        """Count one question's hits; whether an older version is among them."""
        place = {
            word: at
            for at, hit in reversed(list(enumerate(hits)))
            for word in versions.words
            if word in hit.text.lower()
        }
        now = place.get(versions.words[current])
        older = [at for word, at in place.items() if word != versions.words[current]]
        self.asked += 1
        self.first += now == 0
        self.found += now is not None
        self.stale += bool(older)
        self.above += now is not None and all(now <= at for at in older)
        return bool(older)

    def numbers(self, k: int) -> dict[str, float | int | None]:
        return {
            "k": k,
            "facts": self.asked,
            "current@1": share(self.first, self.asked),
            "current_in_top_k": share(self.found, self.asked),
            "stale_in_top_k": share(self.stale, self.asked),
            "current_above_stale": share(self.above, self.asked),
        }


async def updates(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Update through the memory's own call and look, before and after a restart; then by newer statements."""
    workspace.needs("search")
    async with report.guard("by update"):
        await _by_update(workspace, report)
    async with report.guard("by newer statements"):
        await _by_adding(workspace, report)


def _new_facts(workspace: SuiteWorkspace) -> list[_Versions]:
    facts = workspace.facts.facts(workspace.times(_UPDATED))
    return [_Versions(fact, (fact.word, *(workspace.facts.word() for _ in range(_VERSIONS - 1)))) for fact in facts]


async def _by_update(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("update")
    memory = await workspace.place()
    every = _new_facts(workspace)
    receipts = await workspace.store(memory, [versions.fact.item() for versions in every])
    before = [
        versions for versions in every if await workspace.finds(memory, versions.fact.question, versions.words[0])
    ]
    for versions, receipt in zip(every, receipts, strict=True):
        names = await workspace.ids_of(memory, receipt, versions.fact.text, versions.fact.word)
        for version in range(1, _VERSIONS):
            await workspace.act(memory, "update", names[0], versions.text(version))
    await workspace.flush(memory)
    await _looked(workspace, report, "by update", memory, before, len(every))
    async with report.guard("by update: after restart"):
        if not workspace.has("persistent"):
            raise NotSupported("the memory keeps nothing beyond its process")
        await workspace.reopen()
        await _looked(workspace, report, "by update: after restart", await workspace.place(), before, len(every))


async def _looked(
    workspace: SuiteWorkspace, report: SuiteReport, name: str, memory: Memory, before: Sequence[_Versions], number: int
) -> None:
    rates = _Rates()
    findings = []
    for versions in before:
        for query in (versions.fact.question, versions.text(0)):  # an old text is how an old version would be found
            hits = await workspace.search(memory, query)
            if rates.see(versions, hits):
                findings.append(
                    f"still found: {next(hit.text for hit in hits if any(w in hit.text.lower() for w in versions.words[:-1]))!r}"  # noqa: E501
                )
        if not await workspace.finds(memory, versions.fact.question, versions.words[-1]):
            findings.append(f"not found: {versions.text(-1)!r}")
    report.test(
        name,
        not findings,
        f"{rates.stale} of {rates.asked} questions still find an older version; {rates.asked - rates.found} do not "
        "find the current one",
        rates.numbers(workspace.k),
        findings,
        control=bool(before),
        proof=f"{len(before)} of {number} were found by the same question before they were updated",
    )


async def _by_adding(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    if workspace.has("namespaces"):
        memory = await workspace.place("b")
    else:
        memory = await workspace.place()
        await workspace.forget(memory)
    every = _new_facts(workspace)
    dates = [f"2024-{month + 1:02}-15" for month in range(_VERSIONS)]
    for version, date in enumerate(dates):
        await workspace.store(
            memory, [Item(f"{versions.fact.id}v{version}", versions.text(version), time=date) for versions in every]
        )
    rates, past = _Rates(), _Rates()
    for versions in every:
        rates.see(versions, await workspace.search(memory, versions.fact.question))
        if workspace.has("timestamps"):
            past.see(versions, await workspace.search(memory, versions.fact.question, as_of=dates[1]), 1)
    report.measured(
        "by newer statements",
        f"after {_VERSIONS} dated versions the current one comes first for {rates.first} of {rates.asked} facts, "
        f"above every older one for {rates.above}"
        + (
            f"; asked as of the second date, what held then comes first for {past.first} of {past.asked}"
            if past.asked
            else ""
        ),
        rates.numbers(workspace.k) | ({"as_of@1": share(past.first, past.asked)} if past.asked else {}),
    )
