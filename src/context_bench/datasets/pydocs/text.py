"""The documentation that every CPython carries, as plain paragraphs of prose.

Made-up names stand for real ones: the same everywhere in one context, different for another seed.

A model that has read the documentation knows that hash randomization came with 3.3. In our text it came with, say,
3.61; only who reads the text can know. So what the closed-book score shows above zero is luck.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from context_bench.core.errors import BadInput

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
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if lines and not (len(lines) > 1 and _HEADING.fullmatch(lines[-1])):
            line = _joined(lines)
            if _is_signature(line) or _is_prose(line):
                found.append(line)
    return found


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
    """A consistent substitution for one context: answers, and every version number, get made-up twins."""

    def __init__(self, answers: Collection[str], text: str, rng: random.Random) -> None:
        self._rng = rng
        self._words = self._fresh_words(text)
        versions = sorted(
            {*_VERSION_IN_TEXT.findall(text), *(a for a in answers if _VERSION.fullmatch(a))}, key=_version_key
        )
        self.twins: dict[str, str] = dict(zip(versions, self._versions(len(versions)), strict=True))
        for name in sorted(
            {name for answer in answers for name in answer.split()}
        ):  # a person's names are renamed singly
            self.twins.setdefault(name, self._twin(name, text))
        self._pattern = re.compile("|".join(_pattern_of(name) for name in sorted(self.twins, key=len, reverse=True)))
        self._by_fold = {name.casefold(): twin for name, twin in self.twins.items()}

    def apply(self, text: str) -> str:
        """`text` with every renamed thing replaced by its twin; plural and initial capital are kept."""
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        found = match.group()
        if (twin := self.twins.get(found)) is not None:
            return twin
        plural = "s" if found.casefold() not in self._by_fold else ""
        twin = self._by_fold[found.casefold().removesuffix(plural)] + plural
        return twin[0].upper() + twin[1:] if found[0].isupper() else twin

    def _fresh_words(self, text: str) -> Iterator[str]:
        taken = set(re.findall(r"[a-z]+", text.lower()))
        free = [word for word in words("made_up") if word not in taken]
        self._rng.shuffle(free)
        return iter(free)

    def _versions(self, count: int) -> list[str]:
        # Versions that do not exist, written as readers of this documentation expect them.
        pool = [f"3.{minor}" for minor in range(20, 100)]
        return sorted(self._rng.sample(pool, count), key=_version_key)

    def _twin(self, name: str, text: str) -> str:
        if name.isdigit():
            return self._number(name, text)
        stem, dot, last = name.rpartition(".")
        if dot:
            return f"{stem}.{self._twin(last, text)}"
        if name.startswith("__"):
            return f"__{next(self._words)}__"
        if "_" in name:
            return f"{next(self._words)}_{next(self._words)}"
        if name.isupper():
            return next(self._words).upper()
        if name[0].isupper():
            suffix = found.group() if (found := _SUFFIX.search(name)) else ""
            return next(self._words).capitalize() + suffix
        return next(self._words)

    def _number(self, name: str, text: str) -> str:
        low, high = 10 ** (len(name) - 1), 10 ** len(name) - 1
        while True:
            twin = str(self._rng.randint(low, high))
            if twin not in self.twins.values() and not re.search(rf"(?<!\d){twin}(?!\d)", text):
                return twin


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
