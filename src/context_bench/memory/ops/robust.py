"""Measure the loss in recall when a question, or what is stored, is less tidy than in a benchmark.

The same facts are asked for plainly and in other ways (other words, typing mistakes, capitals, another language, amid
chatter), and are stored in other ways (inside long texts, in another order, among much more). found = share of
questions for which the first k hits hold the fact; lost = found plainly and not so, gained = the reverse: the questions
are paired. All but one are measurements, for there is no right or wrong in it; that one is the control of them all:
asked plainly, something is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from context_bench.memory.ops import SuiteReport, share
from context_bench.memory.ops.suite_workspace import Fact, SuiteWorkspace, says
from context_bench.memory.protocol import Item, Memory

_FACTS = 16
_OTHERS = 4  # things of the same form for each fact
_MORE = 20  # … where there is much more
_LONG = 2000  # characters before a fact and after it
_CHATTER = "The ferry was late again and nobody minded. {} Rain is expected on the coast towards evening."


async def probe(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """Plainly first; then each other way of asking on the same memory, and each other way of storing in a place of its
    own.
    """
    workspace.needs("search")
    facts = workspace.facts.facts(workspace.times(_FACTS))
    others = [fact.item() for fact in workspace.facts.facts(_OTHERS * len(facts))]
    memory = await _filled(workspace, "a", _mixed([fact.item() for fact in facts], others))
    plain = await _found(workspace, memory, facts, lambda fact: fact.question)
    report.test(
        "asked plainly",
        any(plain),
        f"{sum(plain)} of {len(facts)} things are found by a question in the words that they were told in",
        {"questions": len(facts), "found": sum(plain), "found_share": share(sum(plain), len(facts)), "k": workspace.k},
        [] if any(plain) else [fact.question for fact in facts],
    )
    for name, asked in _ASKED.items():
        async with report.guard(name):
            _compared(report, name, plain, await _found(workspace, memory, facts, asked))
    async with report.guard("among much more"):
        await workspace.store(memory, [fact.item() for fact in workspace.facts.facts(_MORE * len(facts))])
        _compared(report, "among much more", plain, await _found(workspace, memory, facts, lambda fact: fact.question))
    stored = {
        "inside long texts": _mixed([_buried(workspace, fact) for fact in facts], others),
        "stored in another order": _mixed([fact.item() for fact in facts], others)[::-1],
    }
    for number, (name, items) in enumerate(stored.items()):
        async with report.guard(name):
            memory = await _filled(workspace, f"b{number}", items)
            _compared(report, name, plain, await _found(workspace, memory, facts, lambda fact: fact.question))


async def _filled(workspace: SuiteWorkspace, label: str, items: Sequence[Item]) -> Memory:
    """A place that holds the items and nothing else."""
    memory = await workspace.place(label)
    if label != "a" and not workspace.has("namespaces"):
        await workspace.forget(memory)
    await workspace.store(memory, items)
    return memory


async def _found(
    workspace: SuiteWorkspace, memory: Memory, facts: Sequence[Fact], asked: Callable[[Fact], str]
) -> list[bool]:
    return [says(await workspace.search(memory, asked(fact)), fact.word) for fact in facts]


def _compared(report: SuiteReport, name: str, plain: Sequence[bool], found: Sequence[bool]) -> None:
    lost = sum(before and not now for before, now in zip(plain, found, strict=True))
    gained = sum(now and not before for before, now in zip(plain, found, strict=True))
    report.measured(
        name,
        f"{sum(found)} of {len(found)} things are found so, {sum(plain)} plainly; {lost} of these are lost"
        + (f", {gained} others gained" if gained else ""),
        {
            "questions": len(found),
            "found": sum(found),
            "found_share": share(sum(found), len(found)),
            "lost": lost,
            "gained": gained,
        },
    )


def _mixed(items: Sequence[Item], others: Sequence[Item]) -> list[Item]:
    """Each item followed by its share of the others."""
    each = len(others) // len(items)
    return [one for number, item in enumerate(items) for one in (item, *others[number * each : (number + 1) * each])]


def _buried(workspace: SuiteWorkspace, fact: Fact) -> Item:
    before, after = (workspace.facts.long(_LONG, workspace.facts.word(), workspace.facts.word()) for _ in range(2))
    return Item(fact.id, f"{before} {fact.text} {after}")


def _mistyped(word: str) -> str:
    """With its second and third letter in each other's place."""
    return word[0] + word[2] + word[1] + word[3:] if len(word) > 3 else word


def _with_mistakes(fact: Fact) -> str:
    return " ".join(_mistyped(word) for word in fact.question.split())


def _who_and_where(fact: Fact) -> tuple[str, str]:
    who, _, where = fact.topic.rpartition(" ")
    return who, where


_ASKED: dict[str, Callable[[Fact], str]] = {
    "other words": lambda fact: "Remind me what {} has to say to get into that {}.".format(*_who_and_where(fact)),
    "typing mistakes": _with_mistakes,
    "capitals": lambda fact: fact.question.upper(),
    "in German": lambda fact: "Welches Geheimwort braucht {} für das alte Gebäude, {}?".format(*_who_and_where(fact)),
    "in Chinese": lambda fact: "{}用什么暗语打开旧{}？".format(*_who_and_where(fact)),
    "in the middle of chatter": lambda fact: _CHATTER.format(fact.question),
}
