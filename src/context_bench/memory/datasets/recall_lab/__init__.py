"""`bundled:recall-lab`: made-up conversations of 100 to 100,000 turns, and questions that their turns decide.

Shorter ones, from 40 turns, are for readers that are slow: they ask only as many questions as they have room for the
turns of.

A conversation is one haystack. Of its people some things are told that are asked about later, in other words, and much
that is not: the same of people with like names, other things of the same people, and talk. Every question can be
decided from its haystack alone; its answer stands in its evidence and nowhere else. Conversations depend on nothing but
seed, number, language and length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.records import Example
from context_bench.datasets.examples import LoadedDataset
from context_bench.memory.datasets.memory_records import type_words
from context_bench.memory.datasets.recall_lab.lab_plan import TYPES, VERSION, Fact, LabQuestion, Plan, Stream
from context_bench.memory.datasets.recall_lab.language import LANGUAGES, words
from context_bench.memory.protocol import Item, conversation, packed

T = TypeVar("T")

NAME = "bundled:recall-lab"
TURNS = 100
SHORTEST = 40
LONGEST = 100_000
HAYSTACKS = 10  # when nobody says how many
_ROOM = 8  # turns for one question in a short haystack; none needs more than 7
_FAMILIES = sorted({kind.partition("-")[0] for kind in TYPES if "-" in kind and kind != "assistant-said"})

__all__ = ["LANGUAGES", "NAME", "TYPES", "VERSION", "Lab", "about", "lab", "load_lab", "open_lab", "spread"]


@dataclass
class Lab:
    """One choice of length, language, types and seed; `n` haystacks."""

    turns: int = TURNS
    lang: str = "en"
    types: tuple[str, ...] = TYPES
    seed: int = 0
    n: int = HAYSTACKS
    _digests: dict[int, str] = field(default_factory=dict, repr=False)

    @property
    def rounds(self) -> int:
        """Number of questions of every type in one haystack (`single` twice each time): 1 from 100 turns, 2 from 1,000,
        4, 8.

        Under 100 turns only some types are asked, other ones in each haystack.
        """
        return 1 << max(0, len(str(self.turns)) - 3)

    @property
    def tag(self) -> str:
        """The dataset tag of the rows, by which lengths and languages are told apart; `load` takes it as a name too."""
        options = [f"turns={self.turns}"] if self.turns != TURNS else []
        options += [f"lang={self.lang}"] if self.lang != "en" else []
        return ":".join([NAME, ",".join(options)]) if options else NAME

    def haystack(self, index: int) -> Iterator[Item]:
        """The turns of haystack `index`, in order; never more than a session is held."""
        for session in Stream(self._plan(index), self.seed, index, self.turns).sessions():
            yield from session

    def examples(self) -> Iterator[Example]:
        """Haystack by haystack, all of its questions; the examples of one share its two texts."""
        for index in range(self.n):
            yield from self._of_conversation(index)

    def facts(self, n: int | None = None) -> dict[str, Any]:
        """The manifest's facts on the first `n` examples (default: all): how to get the same ones again, and what they
        are.
        """
        different = self.n if self.turns < TURNS else 1  # longer ones ask the same types
        kinds = [[question.kind for _, question in self._plan(index).questions] for index in range(different)] or [[]]
        asked = [kind for index in range(self.n) for kind in kinds[index % len(kinds)]]
        used = len(asked) if n is None else min(n, len(asked))
        haystacks = -(-used // len(kinds[0])) if kinds[0] else 0
        counts = Counter(asked[:used])
        return {
            "source": "made by this project's generator",
            "generator": VERSION,
            "seed": self.seed,
            "turns": self.turns,
            "lang": self.lang,
            "language": words(self.lang)["language"],
            "sha256": stable_hash([used, *(self._digest(index) for index in range(haystacks))], 64),
            "licence": "MIT",
            "used": used,
            "counts": {
                "haystacks": haystacks,
                "items": haystacks * self.turns,
                "questions": used,
                "unanswerable": sum(n for kind, n in counts.items() if kind.startswith("absent-")),
                "types": dict(sorted(counts.items())),
            },
        }

    def _plan(self, index: int) -> Plan:
        """Events, with the questions that are asked; a short one tells nothing of the others."""
        plan = Plan(self.lang, self.seed, index, self.rounds)
        plan.questions = [(number, question) for number, question in plan.questions if question.kind in self.types]
        if self.turns < TURNS:
            plan.questions = spread(plan.questions, self.turns // _ROOM, self.seed + index)
            told = {fact for _, question in plan.questions for fact in question.facts}
            plan.facts = [fact for fact in plan.facts if fact in told]
        return plan

    def _digest(self, index: int) -> str:
        if index not in self._digests:
            for _ in self._of_conversation(index):
                pass
        return self._digests[index]

    def _of_conversation(self, index: int) -> Iterator[Example]:
        plan = self._plan(index)
        stream = Stream(plan, self.seed, index, self.turns)
        parts, texts = [], []
        for session in stream.sessions():
            parts.append(packed(session))
            texts.append(conversation(session))
        items, context = "\n".join(parts), "\n\n".join(texts)
        del parts, texts
        group = f"{self.lang}-{self.turns}-{self.seed}-{index}"
        rows, seen = [], Counter[str]()
        for number, question in plan.questions:
            seen[question.kind] += 1
            identity = f"{group}-{question.kind}-{seen[question.kind]}"
            rows.append(_row(question, stream.ids) | {"id": identity, "round": number})
        self._digests[index] = stable_hash([stable_hash(items, 64), *(canonical_json(row) for row in rows)], 64)
        shared = {
            "dataset": self.tag,
            "group": group,
            "cluster": group,
            "asked": plan.calendar.asked,
            "granularity": "turn",
        }
        for row in rows:
            yield {"id": row.pop("id"), "context": context, **row, **shared, "items": items}


def spread(things: list[T], most: int, start: int) -> list[T]:
    """At most `most` of the things, in order, as far from one another as they can be; which ones turns with `start`."""
    n = len(things)
    if n <= most:
        return things
    step = -(-n // most)
    return [things[i] for i in sorted({(start % step + j * n // most) % n for j in range(most)})]


def _row(question: LabQuestion, ids: dict[Fact, str]) -> dict[str, Any]:
    """The fields of an example that concern its question alone."""
    row: dict[str, Any] = {"question": question.text}
    if question.answers:
        row["answer"] = question.answers[0]
        if len(question.answers) > 1:
            row["answers"] = question.answers
    row |= {
        "qa_type": question.kind,
        "form": question.form,
        "answerable": bool(question.answers),
        "computed": question.computed,
    }
    for name, facts in (("evidence", question.evidence), ("near_misses", question.near)):
        if facts:
            row[name] = [ids[fact] for fact in facts]
    for name in ("versions", "history"):
        if told := getattr(question, name):
            row[name] = [{"value": fact.value, "source": ids[fact], "current": current} for fact, current in told]
    if question.as_of:
        row["as_of"] = question.as_of
    return row


def lab(options: str = "", *, n: int | None = None, seed: int = 0) -> Lab:
    """The lab that is meant by what follows the name: `turns=10k,lang=ru,types=update+chain-3`, all of it optional.

    `turns`: 40 to 100,000. `types`: names of `TYPES`, or of a family of them (chain, temporal, update, aggregate,
    absent), joined by `+`; they may also be written alone, without `types=`. `n`: haystacks. Raises `BadInput` or
    `UnknownName`.
    """
    if n is not None and n < 0:
        raise BadInput(f"n is {n}; expected the number of conversations wanted")
    given: dict[str, str] = {}
    kinds: list[str] = []
    for item in filter(None, (part.strip() for part in options.split(","))):
        key, equals, value = item.partition("=")
        if not equals or key == "types":
            kinds += [kind.strip() for kind in (value if equals else item).split("+")]
        elif key in ("turns", "lang") and key not in given:
            given[key] = value
        else:
            raise BadInput(f"{NAME} has no option {key!r}, or has it twice; it takes turns=, lang= and types=")
    code = given.get("lang", "en")
    words(code)
    return Lab(_turns(given.get("turns", str(TURNS))), code, _types(kinds), seed, HAYSTACKS if n is None else n)


def open_lab(spec_options: str = "", *, n: int | None = None, seed: int = 0) -> LoadedDataset:
    """The dataset of `lab(spec_options, n=…, seed=…)`; `n` = conversations (default 10), not questions."""
    return _opened(spec_options, lab(spec_options, n=n, seed=seed))


def _opened(options: str, made: Lab) -> LoadedDataset:
    name = f"{NAME}:{options}" if options else NAME
    return LoadedDataset(name, NAME, ["answer"], True, made.examples, made.facts)


def load_lab(
    options: str = "", *, n: int | None = None, qa_types: Iterable[str] | None = None, seed: int = 0
) -> LoadedDataset:
    """The same for `load_memory`: only questions whose type holds one of `qa_types`, or "abstention" (what cannot be
    answered).
    """
    made = lab(options, n=n, seed=seed)
    wanted = type_words(qa_types)
    if not wanted:
        return _opened(options, made)
    kinds = tuple(kind for kind in made.types if any(word in name for name in _names(kind) for word in wanted))
    if not kinds:
        raise BadInput(f"{NAME}: no question of type {', '.join(wanted)}; its types are: {', '.join(made.types)}")
    return _opened(options, replace(made, types=kinds))


def _names(kind: str) -> list[str]:
    return [kind, "abstention"] if kind.startswith("absent-") else [kind]


def _turns(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([kK]?)", text)
    turns = int(found[1]) * (1000 if found[2] else 1) if found else 0
    if not SHORTEST <= turns <= LONGEST:
        raise BadInput(f"{NAME}: turns={text!r} is not a length from {SHORTEST} to {LONGEST:,} (1000, 10k, 100k)")
    return turns


def _types(asked: list[str]) -> tuple[str, ...]:
    for name in asked:
        if name not in TYPES and name not in _FAMILIES:
            raise UnknownName(f"type of question of {NAME}", name, [*TYPES, *_FAMILIES])
    return tuple(kind for kind in TYPES if not asked or kind in asked or kind.partition("-")[0] in asked)


def about() -> dict[str, Any]:
    """The answer of `describe`; nothing is generated."""
    return {
        "name": NAME,
        "about": "Made-up conversations of 100 to 100,000 turns in three scripts, and questions that their turns "
        "decide: " + ", ".join(TYPES),
        "source": "made by this project's generator",
        "evaluators": ["answer"],
        "has_context": True,
        "size": HAYSTACKS * (len(TYPES) + 1),
        "configs": ["turns=…", *(f"lang={code}" for code in LANGUAGES), "types=…"],
        "licence": "MIT",
    }
