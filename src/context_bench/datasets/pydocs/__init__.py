"""`bundled:pydocs-qa`: our questions about the documentation that every CPython carries.

The text comes from the running interpreter (`pydoc_data.topics`), so nothing is fetched and nothing written elsewhere
is shipped. Each context is a window of about 1,000 tokens around three answers; contexts are the clusters. Names,
versions and numbers that answers consist of are renamed by seed, consistently in context, question and answer
(`Renaming`). A model that has read the documentation knows that hash randomization came with 3.3. In our text it came
with, say, 3.61; only who reads the text can know, and a closed-book score above zero is luck. A question is used only
if its evidence and its answer are found in this Python's text; what was dropped is counted in the manifest.
"""

from __future__ import annotations

import random
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from statistics import mean
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.keys import seed_of, stable_hash
from context_bench.core.records import Example
from context_bench.core.tokens import counter_for

NAME = "bundled:pydocs-qa"
LEAST, AIM, MOST = 900, 980, 1050  # tokens (o200k_base) of a context


@dataclass(frozen=True, slots=True)
class Question:
    """One question as written by us, against the text before renaming. `anchors`: the piece of the text that holds the
    answer, as different versions of the documentation word it.
    """

    ask: str
    answer: str
    anchors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """Questions that share one window, and the topic (or topics, "a+b") in which they are found."""

    id: str
    topic: str
    questions: tuple[Question, ...]


@dataclass(slots=True)
class Built:
    """The examples, in the order in which a short run takes them, and what had to be dropped (question id → why)."""

    examples: list[Example]
    dropped: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def plans() -> tuple[ContextPlan, ...]:
    """All contexts and questions, as written in `questions.toml`."""
    data = tomllib.loads((files(__package__) / "questions.toml").read_text("utf-8"))
    return tuple(
        ContextPlan(c["id"], c["topic"], tuple(_question(**q) for q in c["question"])) for c in data["context"]
    )


def _question(ask: str, answer: str, anchor: str | list[str]) -> Question:
    return Question(ask, answer, tuple([anchor] if isinstance(anchor, str) else anchor))


def size() -> int:
    """Number of questions that are written; a Python may carry the text of fewer."""
    return sum(len(plan.questions) for plan in plans())


def build(seed: int = 0, topics: Mapping[str, str] | None = None) -> Built:
    """Examples from `topics` (default: this interpreter's), in demo order: first two questions of every context, then
    the third ones.
    """
    topics = installed_topics() if topics is None else topics
    places: dict[str, dict[int, tuple[int, str]]] = {}
    dropped: dict[str, str] = {}
    prose = {topic: _prose(topic, topics) for topic in {plan.topic for plan in plans()}}
    for plan in plans():
        places[plan.id] = _locate(plan, prose[plan.topic], dropped)
    by_context = [_examples(plan, prose[plan.topic], places, seed, dropped) for plan in plans()]
    pairs = [examples[:2] for examples in by_context if len(examples) > 1]
    rest = [examples[2:] if len(examples) > 1 else examples for examples in by_context]
    return Built([e for part in (*pairs, *rest) for e in part], dropped)


def _prose(topic: str, topics: Mapping[str, str]) -> list[str]:
    """Paragraphs of one topic, or of several short ones joined with "+"."""
    return [paragraph for name in topic.split("+") for paragraph in paragraphs(topics.get(name, ""))]


def _locate(plan: ContextPlan, prose: list[str], dropped: dict[str, str]) -> dict[int, tuple[int, str]]:
    """Position of each question's evidence: question number → (paragraph number, sentence)."""
    places: dict[int, tuple[int, str]] = {}
    folds = [folded(paragraph) for paragraph in prose]
    for number, question in enumerate(plan.questions):
        hits = (
            (i, statement(prose[i], anchor))
            for anchor in question.anchors
            for i, fold in enumerate(folds)
            if folded(anchor) in fold
        )
        place = next(hits, None)
        if place is None:
            dropped[f"{plan.id}/{number + 1}"] = "evidence not in this Python's text"
        elif not re.search(rf"(?<!\w){re.escape(question.answer)}(?!\w)", place[1]):
            dropped[f"{plan.id}/{number + 1}"] = "answer not in the evidence"
        else:
            places[number] = place
    return places


def _examples(
    plan: ContextPlan,
    prose: list[str],
    located: dict[str, dict[int, tuple[int, str]]],
    seed: int,
    dropped: dict[str, str],
) -> list[Example]:
    places = located[plan.id]
    if not places:
        return []
    needed = {paragraph for paragraph, _ in places.values()}
    others = {
        p
        for other in plans()
        if other.topic == plan.topic and other.id != plan.id
        for p, _ in located[other.id].values()
    }
    window = _window(
        prose,
        needed,
        others - needed,
        random.Random(seed_of("pydocs-window", plan.id)).choice((0.0, 0.25, 0.5, 0.75, 1.0)),
    )
    text = "\n\n".join(prose[i] for i in window)
    asked = [plan.questions[number] for number in places]
    renaming = Renaming(
        [q.answer for q in asked],
        "\n".join([text, *(q.ask for q in asked)]),
        random.Random(seed_of("pydocs-names", seed, plan.id)),
    )
    context = renaming.apply(text)
    examples = []
    for number, (_, sentence) in places.items():
        example = _example(f"{plan.id}/{number + 1}", plan, plan.questions[number], context, renaming, sentence)
        if (fault := _fault(example)) is None:
            examples.append(example)
        else:
            dropped[example["id"]] = fault
    return examples


def _example(
    id_: str, plan: ContextPlan, question: Question, context: str, renaming: Renaming, sentence: str
) -> Example:
    evidence = renaming.apply(sentence)
    return {
        "id": id_,
        "context": context,
        "question": renaming.apply(question.ask),
        "answer": renaming.apply(question.answer),
        "cluster": plan.id,
        "evidence": evidence,
        "topic": plan.topic,
        "kind": _kind(question.answer),
        "depth": round(context.find(evidence) / len(context), 3),
        "overlap": overlap(renaming.apply(question.ask), evidence),
    }


def _fault(example: Example) -> str | None:
    answer = re.compile(rf"(?<!\w){re.escape(example['answer'])}(?!\w)")
    if example["evidence"] not in example["context"] or not answer.search(example["evidence"]):
        return "evidence lost by renaming"
    if folded(example["answer"]) in folded(example["question"]):
        return "the question gives the answer away"
    return None


def _kind(answer: str) -> str:
    return "version" if re.fullmatch(r"\d\.\d+", answer) else "number" if answer.isdigit() else "name"


def overlap(question: str, evidence: str) -> float:
    """Share of the question's content words that its evidence contains too (a word counts as its first five letters), 0
    to 1.
    """
    common = set(words("common"))
    asked = {w[:5] for w in folded(question).split() if w not in common}
    there = {w[:5] for w in folded(evidence).split()}
    return round(len(asked & there) / len(asked), 3) if asked else 0.0


def _window(prose: list[str], needed: set[int], avoid: set[int], before: float) -> list[int]:
    """Paragraph numbers of a context: all `needed`, their neighbours up to about `AIM` tokens, none of `avoid`.

    `before` is the share of what is added that goes in front, so that answers stand at different depths.
    """
    size = [counter_for().count(p) + 2 for p in prose]
    low, high = min(needed), max(needed)
    chosen = {i for i in range(low, high + 1) if i not in avoid}
    inner = sorted(chosen - needed, key=lambda i: min(abs(i - n) for n in needed))
    while sum(size[i] for i in chosen) > MOST and inner:
        chosen.discard(inner.pop())
    front = iter([i for i in range(low - 1, -1, -1) if i not in avoid])
    back = iter([i for i in range(high + 1, len(prose)) if i not in avoid])
    total = sum(size[i] for i in chosen)
    in_front = total + before * max(0, AIM - total)
    for source, limit in ((front, in_front), (back, AIM), (front, AIM)):
        for i in source:
            if total >= limit:
                break
            if total + size[i] <= MOST:
                chosen.add(i)
                total += size[i]
    return sorted(chosen)


def facts(built: Built, seed: int, topics: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts for the manifest about this dataset: whose text, which questions were used, how much they repeat the text's
    words.
    """
    examples = built.examples
    overlaps = sorted(e["overlap"] for e in examples)
    return {
        "source": "pydoc_data.topics of the running Python, questions of this project",
        "python": ".".join(map(str, sys.version_info[:3])),
        "text_sha256": stable_hash(dict(installed_topics() if topics is None else topics), 64),
        "sha256": stable_hash(examples, 64),
        "licence": "text: PSF-2.0, read from the interpreter and not shipped; questions: MIT",
        "seed": seed,
        "used": len(examples),
        "contexts": len({e["cluster"] for e in examples}),
        "dropped": dict(built.dropped),
        "lexical_overlap": {
            "mean": round(mean(overlaps), 3) if overlaps else None,
            "low": overlaps[len(overlaps) // 10] if overlaps else None,
            "high": overlaps[-1 - len(overlaps) // 10] if overlaps else None,
            "meaning": "share of a question's content words that its evidence contains; 10th and 90th percentile",
        },
        "renamed": "names, versions and numbers that answers consist of, by seed, consistently in context, question "
        "and answer",
        "selection": "order fixed once, at seed 0, by what the bundled model answers when given the whole context, "
        "best first; "
        "no shortened context was looked at, and the score on the first questions is higher than on all",
    }


_HEADING = re.compile(r"([*=\-~^\"#.+])\1+")
_SIGNATURE = re.compile(r"(class |object\.|[\w.]+)[\w.]*\(.*\)")
_CODE_STARTS = (
    ">>>",
    "def ",
    "class ",
    "import ",
    "from ",
    "try:",
    "#",
    "|",
    "+-",
    "@",
    "async ",
    "while ",
    "for ",
    "with ",
    "...",
    "$",
)
_CHANGE = re.compile(r"(Changed|New|Added) in version \S+: \S+ \S+ \S.*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"*“‘(])")


@lru_cache(maxsize=1)
def installed_topics() -> Mapping[str, str]:
    """The topics of the running interpreter: name → text."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise BadInput(
            "bundled:pydocs-qa reads the documentation that comes with Python (module pydoc_data.topics), and this "
            "Python has none. "
            "Install its whole standard library (on Debian: libpython3-stdlib) or use another interpreter."
        ) from error
    return dict(topics)


def paragraphs(text: str) -> list[str]:
    """The prose of one topic, one line per paragraph; headings, code, tables and short fragments are left out.

    Signatures (`object.__len__(self)`) stay, because the paragraph after one says nothing without it.
    """
    prose = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if lines and not (len(lines) > 1 and _HEADING.fullmatch(lines[-1])):
            line = _joined(lines)
            if _is_signature(line) or _is_prose(line):
                prose.append(line)
    return prose


def _joined(lines: list[str]) -> str:
    text = lines[0]
    for line in lines[1:]:
        # A word broken at its own hyphen ("post-\nmortem") has no space there.
        text += line if re.search(r"\w-$", text) and line[:1].isalpha() else f" {line}"
    return " ".join(text.split())


def _is_signature(line: str) -> bool:
    return len(line) < 90 and bool(_SIGNATURE.fullmatch(line))


def _is_prose(line: str) -> bool:
    if _CHANGE.fullmatch(line):
        return True
    if line.startswith(_CODE_STARTS) or len(re.findall(r"[A-Za-z]{2,}", line)) < 8:
        return False
    if not re.search(r"[.:;][\"')]*$|\. ", line):
        return False
    return sum(c.isalpha() or c.isspace() for c in line) / len(line) >= 0.8


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph. Never cut at a colon: "Changed in version 3.7: …" is one statement."""
    return _SENTENCE_END.split(paragraph)


def folded(text: str) -> str:
    """Letters and digits only, lower case, padded with spaces: what must agree between versions of the documentation.

    Sphinx wrote "New in version" up to 3.12 and "Added in version" later.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return f" {' '.join(words)} ".replace(" new in version ", " added in version ")


def statement(paragraph: str, anchor: str) -> str:
    """The shortest run of whole sentences of `paragraph` that contains `anchor` (both folded)."""
    wanted = folded(anchor)
    parts = sentences(paragraph)
    for length in range(1, len(parts)):
        for start in range(len(parts) - length + 1):
            run = " ".join(parts[start : start + length])
            if wanted in folded(run):
                return run
    return paragraph


@lru_cache(maxsize=2)
def words(name: Literal["made_up", "common"]) -> tuple[str, ...]:
    """The words of the list called `name` in `words.toml`, in its order."""
    return tuple(tomllib.loads((files(__package__) / "words.toml").read_text("utf-8"))[name].split())


_VERSION = re.compile(r"(?<![\w.])\d\.\d{1,2}(?![\w])(?!\.\d)")
_VERSION_IN_TEXT = re.compile(r"(?:versions?|Python|CPython|release) (\d\.\d{1,2})(?:\.\d+)?(?![\w])")
_SUFFIX = re.compile(r"(Error|Exception|Exit|Iteration|Warning|Group|Type)$")


class Renaming:
    """A consistent substitution for one context: answers, and every version number, get made-up counterparts."""

    def __init__(self, answers: Collection[str], text: str, rng: random.Random) -> None:
        self._rng = rng
        self._words = self._fresh_words(text)
        versions = sorted(
            {*_VERSION_IN_TEXT.findall(text), *(a for a in answers if _VERSION.fullmatch(a))}, key=_version_key
        )
        self.made_up: dict[str, str] = dict(zip(versions, self._versions(len(versions)), strict=True))
        for name in sorted(
            {name for answer in answers for name in answer.split()}
        ):  # a person's names are renamed singly
            self.made_up.setdefault(name, self._counterpart(name, text))
        self._pattern = re.compile("|".join(_pattern_of(name) for name in sorted(self.made_up, key=len, reverse=True)))
        self._by_fold = {name.casefold(): new for name, new in self.made_up.items()}

    def apply(self, text: str) -> str:
        """`text` with every renamed thing replaced by its counterpart; plural and initial capital are kept."""
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        name = match.group()
        if (new := self.made_up.get(name)) is not None:
            return new
        plural = "s" if name.casefold() not in self._by_fold else ""
        new = self._by_fold[name.casefold().removesuffix(plural)] + plural
        return new[0].upper() + new[1:] if name[0].isupper() else new

    def _fresh_words(self, text: str) -> Iterator[str]:
        taken = set(re.findall(r"[a-z]+", text.lower()))
        free = [word for word in words("made_up") if word not in taken]
        self._rng.shuffle(free)
        return iter(free)

    def _versions(self, count: int) -> list[str]:
        # Versions that do not exist, written as readers of this documentation expect them.
        pool = [f"3.{minor}" for minor in range(20, 100)]
        return sorted(self._rng.sample(pool, count), key=_version_key)

    def _counterpart(self, name: str, text: str) -> str:
        if name.isdigit():
            return self._number(name, text)
        stem, dot, last = name.rpartition(".")
        if dot:
            return f"{stem}.{self._counterpart(last, text)}"
        if name.startswith("__"):
            return f"__{next(self._words)}__"
        if "_" in name:
            return f"{next(self._words)}_{next(self._words)}"
        if name.isupper():
            return next(self._words).upper()
        if name[0].isupper():
            suffix = match.group() if (match := _SUFFIX.search(name)) else ""
            return next(self._words).capitalize() + suffix
        return next(self._words)

    def _number(self, name: str, text: str) -> str:
        low, high = 10 ** (len(name) - 1), 10 ** len(name) - 1
        while True:
            new = str(self._rng.randint(low, high))
            if new not in self.made_up.values() and not re.search(rf"(?<!\d){new}(?!\d)", text):
                return new


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _pattern_of(name: str) -> str:
    if _VERSION.fullmatch(name):
        return rf"(?<![\w.]){re.escape(name)}(?!\d)"
    if name.isdigit():
        return rf"(?<![\w.]){name}(?![\w]|\.\d)"
    if name.isalpha() and name.islower():
        return rf"(?<!\w)(?i:{name}s?)(?!\w)"
    return rf"(?<!\w){re.escape(name)}(?!\w)"
