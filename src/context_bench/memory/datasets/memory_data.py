"""Load memory data by name: published sets, files and the bundled lab, as examples or as conversations.

`in_mode` changes the number of memories that share a conversation: one for all of its questions, one for each question,
or one that grows by a conversation at a time. `conversations` gives the form that `evaluate_memory` takes.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any, Literal, TypeVar

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.records import Example
from context_bench.datasets.examples import LoadedDataset, tidy
from context_bench.memory.datasets.formats import shapes, sniff
from context_bench.memory.datasets.memory_records import (
    Dirt,
    Distinct,
    Document,
    MemoryConversation,
    MemoryQuestion,
    type_words,
)
from context_bench.memory.datasets.overlays import Overlay, read_overlay
from context_bench.memory.datasets.published import PUBLISHED, MemorySource, local, published
from context_bench.memory.protocol import Item, conversation, packed, unpacked

LAB = "bundled:recall-lab"
FILES = "memory:"  # before a path, where a path alone means an ordinary dataset


def load_memory(
    spec: str, *, n: int | None = None, qa_types: Iterable[str] | None = None, seed: int = 0, overlay: str | None = None
) -> LoadedDataset:
    """Find memory data and make it ready: conversations to be remembered, with questions.

    `spec`: `locomo[:preprocessed]`, `longmemeval[:s|m|oracle]`, `dmr`, `beam[:100K|500K|1M|10M]`, `convomem[:KIND]`,
    `memoryagentbench[:SPLIT]`, `bundled:recall-lab[:…]`, or a file or folder of one's own, whose format is told by what
    it holds. `n`: at most so many haystacks (conversations), the first that have a question left after `qa_types` and
    `overlay`. `qa_types`: only questions of whose type, category or "abstention" (unanswerable) one of these is a part.
    `overlay`: see there. `seed` matters to the lab only. Raises `BadInput` rather than give nothing, `UnknownName`,
    `PreflightFailed`; all at once.
    """
    if n is not None and n < 0:
        raise BadInput(f"n is {n}; expected the number of conversations wanted")
    if spec == LAB or spec.startswith(f"{LAB}:"):
        return _lab(spec, n, qa_types, seed, overlay)
    return _opened(spec, n=n, wanted=type_words(qa_types), overlay=overlay)


def memory_examples(spec: str, n: int | None, seed: int) -> LoadedDataset:
    """The same data for ordinary runs, where `n` counts examples and the whole conversation is the context."""
    if spec == LAB or spec.startswith(f"{LAB}:"):
        from context_bench.memory.datasets import recall_lab

        made = recall_lab.lab(spec[len(LAB) + 1 :], seed=seed)
        return LoadedDataset(spec, LAB, ["answer"], True, lambda: islice(made.examples(), n), lambda: made.facts(n))
    return _opened(spec, n=None, limit=n)


def memory_names() -> list[str]:
    """Every name that `load_memory` takes besides files and folders."""
    return [*sorted(PUBLISHED), LAB]


def is_memory(spec: str) -> bool:
    """Is this the name of memory data (or `memory:PATH`)?"""
    return spec.startswith((FILES, f"{LAB}:")) or spec == LAB or spec.partition(":")[0] in PUBLISHED


def about_memory(name: str) -> dict[str, Any]:
    """Describe it without reading it, as `datasets.describe` tells it."""
    if name.startswith(LAB):
        from context_bench.memory.datasets import recall_lab

        return recall_lab.about()
    data = PUBLISHED[name.partition(":")[0]]
    facts: dict[str, Any] = {
        "name": data.name,
        "about": data.about,
        "source": data.source(),
        "configs": list(data.configs),
        "config": data.config,
        "licence": data.licence,
        "citation": data.citation,
        "size": data.size,
        "evaluators": list(data.evaluators),
    }
    revision = next((part.revision for parts in data.configs.values() for part in parts if part.revision), None)
    given = {key: value for key, value in facts.items() if value}
    return {**given, "revision": revision, "has_context": True, "memory": True}


def summary_line(manifest: dict[str, Any]) -> str:
    """One line of what was read, for the screen: how much, how many of each type, and what had to be mended."""
    counts = manifest.get("counts")
    if not counts:
        return ""
    codes = counts.get("categories", {})
    types = [
        f"{name}{f' (category {codes[name]})' if name in codes else ''} {n:,}" for name, n in counts["types"].items()
    ]
    text = (
        f"{counts['haystacks']:,} conversations, {counts['items']:,} items, {counts['questions']:,} questions: "
        f"{', '.join(types)}"
    )
    if manifest.get("dirt"):
        text += f". Data: {', '.join(f'{n:,} {what}' for what, n in manifest['dirt'].items())}"
    return f"{text}."


def _lab(spec: str, n: int | None, qa_types: Iterable[str] | None, seed: int, overlay: str | None) -> LoadedDataset:
    from context_bench.memory.datasets import recall_lab

    if overlay:
        raise BadInput(f"{LAB} is made, not labelled: it takes no overlay")
    return recall_lab.load_lab(spec[len(LAB) + 1 :], n=n, qa_types=qa_types, seed=seed)


def _opened(
    spec: str, *, n: int | None, limit: int | None = None, wanted: tuple[str, ...] = (), overlay: str | None = None
) -> LoadedDataset:
    name, source, evaluators, base = _found(spec)
    reading = _Reading(name, source, n, limit, wanted, read_overlay(overlay, base) if overlay else None)
    reading.check()
    return LoadedDataset(name, base, evaluators, True, reading.examples, reading.facts)


def _found(spec: str) -> tuple[str, MemorySource, list[str], str]:
    """(name, source, evaluators, what an overlay calls it)."""
    base, _, config = spec.partition(":")
    if base in PUBLISHED:
        return spec, published(PUBLISHED[base], config or None), list(PUBLISHED[base].evaluators), base
    path = spec.removeprefix(FILES)
    if not re.search(r"[./\\]", path):
        raise UnknownName("memory dataset", spec, [*memory_names(), "./FILE.json", "./FOLDER"])
    return spec, local(path), ["answer", "multiple_choice"], path.rpartition("/")[2]


def _of_type(question: MemoryQuestion, wanted: Sequence[str]) -> bool:
    if not wanted:
        return True
    words = [*type_words([question.type]), *(["abstention"] if not question.answerable else [])]
    return any(part in word for part in wanted for word in words) or (question.category or "").lower() in wanted


@dataclass
class _Counts:
    """Counts of one reading."""

    haystacks: int = 0
    items: int = 0
    questions: int = 0
    unanswerable: int = 0
    with_evidence: int = 0
    types: Counter[str] = field(default_factory=Counter)
    seen_types: Counter[str] = field(default_factory=Counter)  # of all questions, wanted or not
    categories: dict[str, str] = field(default_factory=dict)
    formats: set[str] = field(default_factory=set)
    dirt: Dirt = field(default_factory=Dirt)
    overlay: Overlay | None = None

    def take(self, haystack: MemoryConversation) -> None:
        self.haystacks += 1
        self.items += len(haystack.items)
        for question in haystack.questions:
            self.questions += 1
            self.unanswerable += not question.answerable
            self.with_evidence += bool(question.evidence)
            self.types[question.type] += 1
            if question.category and question.category.isdigit():
                self.categories[question.type] = question.category


@dataclass
class _Reading:
    """One choice of haystacks and questions from a source: at most `n` haystacks and `limit` questions."""

    name: str
    source: MemorySource
    n: int | None
    limit: int | None
    wanted: tuple[str, ...]
    overlay: Overlay | None
    _counted: _Counts | None = None

    def check(self) -> None:
        """Raise `BadInput` now if there is nothing to ask."""
        if 0 in (self.n, self.limit):
            return
        counts = self._fresh()
        if next(self._conversations(counts), None) is not None:
            return
        types = ", ".join(f"{name} ({n})" for name, n in counts.seen_types.items())
        if counts.seen_types:
            why = f"no question of type {', '.join(self.wanted)}" if self.wanted else "no question left by the overlay"
            raise BadInput(f"{self.name}: {why}; its types are: {types}")
        raise BadInput(f"{self.name} holds no question on anything to remember. Known shapes:\n{shapes()}")

    def examples(self) -> Iterator[Example]:
        counts = self._fresh()
        for haystack in self._conversations(counts):
            yield from _examples(haystack, self.name)
        self._counted = counts

    def facts(self) -> dict[str, Any]:
        if self._counted is None:
            fresh = self._fresh()
            for _ in self._conversations(fresh):
                pass
            self._counted = fresh
        counted = self._counted
        facts = self.source.facts()
        notes = [*facts.pop("notes", [])]
        counts: dict[str, Any] = {
            "haystacks": counted.haystacks,
            "items": counted.items,
            "questions": counted.questions,
            "unanswerable": counted.unanswerable,
            "with_evidence": counted.with_evidence,
            "types": dict(sorted(counted.types.items())),
        }
        if counted.categories:
            counts["categories"] = counted.categories
        dirt = dict(sorted(counted.dirt.counts.items()))
        facts |= {"formats": sorted(counted.formats), "counts": counts, "dirt": dirt}
        if skipped := self.source.skipped:
            notes.append(f"{len(skipped)} files of no known shape were left aside ({', '.join(skipped[:3])})")
        if self.wanted:
            facts["qa_types"] = list(self.wanted)
        if counted.overlay:
            complete = self.n is None and self.limit is None
            facts["overlay"] = counted.overlay.facts(self.source.sha256s(), complete=complete)
            notes.append(_overlaid(facts["overlay"]))
        if line := summary_line(facts):
            notes.append(line)
        return {**facts, "note": " ".join(note if note.endswith(".") else f"{note}." for note in notes)}

    def _fresh(self) -> _Counts:
        return _Counts(overlay=self.overlay.anew() if self.overlay else None)

    def _conversations(self, counts: _Counts) -> Iterator[MemoryConversation]:
        """Haystacks with the questions that are wanted, names made distinct."""
        haystack_name = Distinct(counts.dirt, "conversations whose id was used before")
        question_name = Distinct(counts.dirt, "questions whose id was used before")
        hint = (self.limit if self.n is None else self.n) if not self.wanted and not self.overlay else None
        made = _in_turn([_read(stream, counts) for stream in self.source.streams(hint)])
        for haystack in made if 0 not in (self.n, self.limit) else ():
            if not haystack.items:
                counts.dirt.add("conversations without a turn, left out")
                continue
            haystack.id = haystack_name(haystack.id)
            left = None if self.limit is None else self.limit - counts.questions
            haystack.questions = list(islice(self._questions(haystack, counts, question_name), left))
            if not haystack.questions:
                continue
            counts.take(haystack)
            yield haystack
            if counts.haystacks == self.n or counts.questions == self.limit:
                return

    def _questions(self, haystack: MemoryConversation, counts: _Counts, distinct: Distinct) -> Iterator[MemoryQuestion]:
        for question in haystack.questions:
            if not question.text.strip():
                counts.dirt.add("questions without text, left out")
                continue
            changed = counts.overlay.apply(question, haystack.items) if counts.overlay else question
            counts.seen_types[question.type] += 1
            if changed is None or not _of_type(changed, self.wanted):
                continue
            if changed.answerable and not changed.answers and not changed.rubric:
                counts.dirt.add("questions without an answer")
            yield replace(changed, id=distinct(changed.id))


def _overlaid(facts: dict[str, Any]) -> str:
    text = f"overlay {facts['name']}: {len(facts['excluded'])} questions left out, {len(facts['corrected'])} corrected"
    if facts.get("not_found"):
        text += f", {len(facts['not_found'])} not found"
    return f"{text}; WARNING: {facts['warning']}" if facts.get("warning") else text


def _read(documents: Iterator[Document], counts: _Counts) -> Iterator[MemoryConversation]:
    """Haystacks of the documents of one part; what follows a document of one format is of the same."""
    waiting = list(islice(documents, 1))  # the first document that is not read yet

    def alike(fits: Callable[[Mapping[str, Any]], bool]) -> Iterator[Document]:
        for document in chain([waiting.pop()], documents):
            if not fits(document.value):
                waiting.append(document)
                return
            yield document

    while waiting:
        format_ = sniff(waiting[0].value)
        if format_ is None:
            raise BadInput(f"{waiting[0].where} has none of the shapes known here. Known shapes:\n{shapes()}")
        counts.formats.add(format_.name)
        yield from format_.read(alike(format_.sniff), counts.dirt)


def _in_turn(streams: Sequence[Iterator[MemoryConversation]]) -> Iterator[MemoryConversation]:
    """One of each, again and again, until all have ended."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        if (next_one := next(stream, None)) is not None:
            yield next_one
            waiting.append(stream)


def _examples(haystack: MemoryConversation, dataset: str) -> Iterator[Example]:
    """Its questions as examples, which all share one text of the items and one of the conversation."""
    items, context = packed(haystack.items), conversation(haystack.items)
    for question in haystack.questions:
        fields: dict[str, Any] = {
            "id": question.id,
            "context": context,
            "question": question.text,
            "answer": question.answers[0] if question.answers else None,
            "answers": list(question.answers) if len(question.answers) > 1 else None,
            "qa_type": question.type,
            "group": haystack.id,
            "cluster": haystack.id,
            "items": items,
            "evidence": list(question.evidence) or None,
            "evidence_sessions": list(question.sessions) or None,
            "answerable": question.answerable,
            "asked": question.asked,
            "granularity": haystack.granularity,
            "category": question.category,
            "choices": dict(question.choices) if question.choices else None,
            "correct_letter": question.correct,
            "rubric": list(question.rubric) or None,
            "trap": question.trap,
        }
        yield tidy(fields, 0, dataset, f"{dataset}, question {question.id}")


Mode = Literal["shared", "isolated", "growing"]


def in_mode(dataset: LoadedDataset, mode: Mode) -> LoadedDataset:
    """The same questions with haystacks put in otherwise.

    `shared`: every haystack once, for all of its questions (as loaded). `isolated`: a memory of its own for every
    question, so that no question can change what another one finds. `growing`: the questions of the n-th haystack are
    asked of a memory that holds the first n, in their order; ids of items and sessions then begin with their
    haystack's. Each n is set up anew, so that a resumed run says the same. The haystack stays the unit of statistics
    (`cluster`).
    """
    if mode == "shared":
        return dataset
    change = _isolated if mode == "isolated" else _growing
    return replace(
        dataset,
        _read=lambda: change(dataset.examples()),
        _facts=lambda: {**{key: value for key, value in dataset.manifest().items() if key not in _OWN}, "mode": mode},
    )


_OWN = ("name", "evaluators", "has_context")


def _isolated(examples: Iterable[Example]) -> Iterator[Example]:
    for example in examples:
        yield {**example, "group": f"{example['group']}#{example['id']}"}


def _growing(examples: Iterable[Example]) -> Iterator[Example]:
    items = context = ""
    for haystack, questions in groupby(examples, key=lambda example: str(example["group"])):
        for number, example in enumerate(questions):
            if number == 0:
                own = [
                    replace(
                        item,
                        id=f"{haystack}/{item.id}",
                        session=None if item.session is None else f"{haystack}/{item.session}",
                    )
                    for item in unpacked(example["items"])
                ]
                items = "\n".join(filter(None, (items, packed(own))))
                context = "\n\n".join(filter(None, (context, conversation(own))))
            yield {
                **example,
                **_renamed(example, haystack),
                "group": f"{haystack}+",
                "items": items,
                "context": context,
            }


def _renamed(example: Example, haystack: str) -> dict[str, Any]:
    """Everything that names items or sessions, with the haystack before it."""
    ids = {name: [f"{haystack}/{one}" for one in example[name]] for name in _IDS if name in example}
    return ids | {
        name: [
            {**each, "source": f"{haystack}/{each['source']}"} if "source" in each else each for each in example[name]
        ]
        for name in ("versions", "history")
        if name in example
    }


_IDS = ("evidence", "evidence_sessions", "near_misses")
T = TypeVar("T")

#: What a question of a conversation keeps of an example.
_KEPT = (
    "answers",
    "evidence",
    "evidence_sessions",
    "answerable",
    "asked",
    "category",
    "choices",
    "correct_letter",
    "versions",
)


def locomo(n: int | None = None, qa_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The first `n` conversations of LoCoMo with their questions, of the given types only."""
    return conversations("locomo", n, qa_types)


def longmemeval(
    n: int | None = None, variant: str = "s", qa_types: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The first `n` histories of LongMemEval, one question each; `variant`: `s`, `m` or `oracle`."""
    return conversations(f"longmemeval:{variant}", n, qa_types)


def conversations(spec: str, n: int | None = None, qa_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Any memory dataset as `{"id", "turns", "qa_pairs", "dataset"}`; `n` counts conversations. See `load_memory` for
    names and errors.
    """
    loaded = load_memory(spec, n=n, qa_types=list(qa_types) if qa_types else None)
    return [
        _conversation(name, list(examples))
        for name, examples in groupby(loaded.examples(), key=lambda one: one["group"])
    ]


def split_conversations(examples: Iterable[T], train_frac: float = 0.8, seed: int = 42) -> tuple[list[T], list[T]]:
    """Whole conversations in two parts, drawn by `seed`: the first with `train_frac` of them, rounded to the
    nearest.
    """
    if not 0 <= train_frac <= 1:
        raise BadInput(f"train_frac is {train_frac}; expected a share from 0 to 1")
    drawn = list(examples)
    random.Random(seed).shuffle(drawn)
    first = round(len(drawn) * train_frac)
    return drawn[:first], drawn[first:]


def sample_search_pool(examples: Iterable[T], n: int = 100, seed: int | None = None) -> list[T]:
    """At most `n` of the conversations, drawn without replacement; another draw each time unless there is a `seed`."""
    pool = list(examples)
    return random.Random(seed).sample(pool, min(n, len(pool)))


def _conversation(name: str, examples: Sequence[Example]) -> dict[str, Any]:
    first = examples[0]
    turns = [_turn(item) for item in unpacked(first["items"])]
    return {
        "id": name,
        "turns": turns,
        "qa_pairs": [_pair(example) for example in examples],
        "dataset": first["dataset"],
    }


def _turn(item: Item) -> dict[str, Any]:
    named = {"id": item.id, "timestamp": item.time, "speaker": item.speaker, "session_id": item.session}
    return {
        "role": item.role,
        "content": item.text,
        **{key: value for key, value in named.items() if value is not None},
    }


def _pair(example: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: example[name] for name in _KEPT if name in example}
    return {"question": example["question"], "answer": example.get("answer"), "type": example["qa_type"], **kept}
