"""After v1 … vn of a fact the current one is found, and no older one beside or above it.

By `update()`: whatever is older is wrong. By adding a newer, dated statement: the older one is still true of its time,
so its rates are measurements. current@1 = first hit says vn; stale-in-top-k = an older version is among the first k;
current-above-stale = vn stands above every older one. The versions' words have one length and differ, so that none is
part of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_bench.memory.ops import SuiteReport, share
from context_bench.memory.ops.suite_workspace import Fact, SuiteWorkspace
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported

_FACTS, _VERSIONS = 6, 4


@dataclass(frozen=True, slots=True)
class _Told:
    """A fact and the words that it had, oldest first."""

    fact: Fact
    words: tuple[str, ...]

    def text(self, version: int) -> str:
        """The sentence of that version."""
        return self.fact.told(self.words[version])


@dataclass(slots=True)
class _Rates:
    """Rates at which hits of some questions hold the current version and older ones."""

    asked: int = 0
    first: int = 0
    found: int = 0
    stale: int = 0
    above: int = 0

    def see(self, told: _Told, hits: Sequence[Hit], current: int = -1) -> bool:
        """Count one question's hits; whether an older version is among them."""
        place = {
            word: at for at, hit in reversed(list(enumerate(hits))) for word in told.words if word in hit.text.lower()
        }
        now = place.get(told.words[current])
        older = [at for word, at in place.items() if word != told.words[current]]
        self.asked += 1
        self.first += now == 0
        self.found += now is not None
        self.stale += bool(older)
        self.above += now is not None and all(now <= at for at in older)
        return bool(older)

    def numbers(self, k: int) -> dict[str, float | int | None]:
        """As shares."""
        return {
            "k": k,
            "facts": self.asked,
            "current@1": share(self.first, self.asked),
            "current_in_top_k": share(self.found, self.asked),
            "stale_in_top_k": share(self.stale, self.asked),
            "current_above_stale": share(self.above, self.asked),
        }


async def probe(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Update through the memory's own call and look, before and after a restart; then by newer statements."""
    workspace.needs("search")
    async with report.guard("by update"):
        await _by_update(workspace, report)
    async with report.guard("by newer statements"):
        await _by_adding(workspace, report)


def _versions(workspace: SuiteWorkspace) -> list[_Told]:
    facts = workspace.facts.facts(workspace.times(_FACTS))
    return [_Told(fact, (fact.word, *(workspace.facts.word() for _ in range(_VERSIONS - 1)))) for fact in facts]


async def _by_update(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    workspace.needs("update")
    memory = await workspace.place()
    every = _versions(workspace)
    receipts = await workspace.store(memory, [told.fact.item() for told in every])
    before = [told for told in every if await workspace.finds(memory, told.fact.question, told.words[0])]
    for told, receipt in zip(every, receipts, strict=True):
        names = await workspace.ids_of(memory, receipt, told.fact.text, told.fact.word)
        for version in range(1, _VERSIONS):
            await workspace.caller.call(getattr(memory, "update"), names[0], told.text(version))  # noqa: B009 - optional in the protocol
    await workspace.flush(memory)
    await _looked(workspace, report, "by update", memory, before, len(every))
    async with report.guard("by update: after restart"):
        if not workspace.has("persistent"):
            raise NotSupported("the memory keeps nothing beyond its process")
        await workspace.reopen()
        await _looked(workspace, report, "by update: after restart", await workspace.place(), before, len(every))


async def _looked(
    workspace: SuiteWorkspace, report: SuiteReport, name: str, memory: Memory, before: Sequence[_Told], number: int
) -> None:
    rates = _Rates()
    findings = []
    for told in before:
        for query in (told.fact.question, told.text(0)):  # an old text is how an old version would be found
            hits = await workspace.search(memory, query)
            if rates.see(told, hits):
                findings.append(
                    f"still found: {next(hit.text for hit in hits if any(w in hit.text.lower() for w in told.words[:-1]))!r}"  # noqa: E501
                )
        if not await workspace.finds(memory, told.fact.question, told.words[-1]):
            findings.append(f"not found: {told.text(-1)!r}")
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
    every = _versions(workspace)
    dates = [f"2024-{month + 1:02}-15" for month in range(_VERSIONS)]
    for version, date in enumerate(dates):
        await workspace.store(
            memory, [Item(f"{told.fact.id}v{version}", told.text(version), time=date) for told in every]
        )
    rates, past = _Rates(), _Rates()
    for told in every:
        rates.see(told, await workspace.search(memory, told.fact.question))
        if workspace.has("timestamps"):
            past.see(told, await workspace.search(memory, told.fact.question, as_of=dates[1]), 1)
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
