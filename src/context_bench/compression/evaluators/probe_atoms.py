"""Probes graded without a model: the facts that an answer names, and those that it should not name.

```python
grade("401 on /api/auth/login", [ProbeAtom("401"), ProbeAtom("Unauthorized"), ProbeAtom("/api/auth/login")]).score   # 0.71
```

The grader knows words, not meaning: an answer that says the right thing in other words scores too low, and one that
names the right facts in a wrong sentence too high. Every number made with it is labelled as such.
"""  # noqa: E501

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from context_bench.compression.probes import ProbeAtom, atom_from_json
from context_bench.core.records import Example
from context_bench.core.text import stem, tokens
from context_bench.wire.atoms import atoms

EVALUATORS = {"probe_atoms": "ProbeAtoms"}
MEASURES = {
    "probe_score": {"unit": "score", "better": "higher", "place": "quality"},
    "probe_rating probe_recall": {"unit": "score", "better": "higher", "place": "probe-types"},
    "probe_contradiction": {"unit": "score", "better": "lower", "place": "probe-types"},
}

BETA = 2.0  # finding a fact counts as much more than leaving a foreign one out
_SAID = 0.8  # share of a phrase's words that must stand in one sentence
_PHRASE = 3  # words from which an atom may be said with other words between
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+|(?<=[。！？])")
_MARKS = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "`": "", "\u00a0": " ", "–": "-", "—": "-", "\\": "/"})
#: Kinds whose atoms are names of things: another one in the answer is another thing.
_NAMING = frozenset({"path", "url", "hash_uuid", "version", "email_host_port", "number", "error"})


@dataclass(frozen=True, slots=True)
class AtomGrade:
    """`score` in [0, 1]: F2 of the facts found, by weight; 0 where a banned one is named. `strays`: things of the same
    kinds that were not asked for and stand in neither the question nor the truth.
    """

    score: float
    found: tuple[str, ...]
    missed: tuple[str, ...]
    banned: tuple[str, ...]
    strays: tuple[str, ...]

    @property
    def rating(self) -> float:
        """The score on the rubric's scale, 0 to 5."""
        return 5.0 * self.score


def grade(response: str, wanted: Sequence[ProbeAtom], *, truth: str = "", question: str = "") -> AtomGrade:
    """The grade of `response` by the atoms that it names. Recall is the weighted share found; precision sets strays
    against what was found.

    score = (1 + β²) P R / (β² P + R) with β = 2 (van Rijsbergen's F), so that reciting a whole session does not pay.
    """
    said = SearchableText(response)
    asked = [atom for atom in wanted if atom.role == "wanted"]
    hits = [atom for atom in asked if said.names(atom)]
    banned = tuple(atom.text for atom in wanted if atom.role == "banned" and said.names(atom))
    missed = tuple(atom.text for atom in asked if atom not in hits)
    known = SearchableText("\n".join([truth, question, *(form for atom in wanted for form in _forms(atom))]))
    kinds = {kind for atom in asked for kind in ({atom.kind} if atom.kind else atoms(atom.text))} & _NAMING
    strays = (
        tuple(sorted({text for kind in kinds for text in said.atoms.get(kind, {}) if not known.has(text)}))
        if hits
        else ()
    )
    whole = sum(atom.weight for atom in asked)
    recall = sum(atom.weight for atom in hits) / whole if whole else 0.0
    precision = len(hits) / (len(hits) + len(strays)) if hits else 0.0
    below = BETA**2 * precision + recall
    score = (1 + BETA**2) * precision * recall / below if below and not banned else 0.0
    return AtomGrade(score, tuple(atom.text for atom in hits), missed, banned, strays)


class SearchableText:
    """A text, ready to be searched for many atoms."""

    def __init__(self, text: str) -> None:
        self.text, self.plain = text, _plain(text)
        self._sentences: list[set[str]] | None = None

    @cached_property
    def atoms(self) -> dict[str, dict[str, int]]:
        """Kind → atom → where it stands."""
        return atoms(self.text)

    def names(self, atom: ProbeAtom) -> bool:
        """True if the text names the atom in any of its forms."""
        return any(self.has(form) or self._says(form) for form in _forms(atom))

    def has(self, form: str) -> bool:
        """It stands there, with no letter, digit or part of a number next to it."""
        needle = _plain(form).strip(" .,;:\"'")
        at = self.plain.find(needle) if needle else -1
        while at >= 0:
            if _stands_free(self.plain, at, at + len(needle)):
                return True
            at = self.plain.find(needle, at + 1)
        return False

    def _says(self, form: str) -> bool:
        """A phrase, its words in one sentence in any order and inflection; numbers must all be there."""
        words = _stems(_plain(form))
        if len(words) < _PHRASE:
            return False
        if self._sentences is None:
            self._sentences = [set(_stems(sentence)) for sentence in _SENTENCE.split(self.plain)]
        numbers = {word for word in words if any(char.isdigit() for char in word)}
        wanted = set(words)
        return any(numbers <= held and len(wanted & held) >= _SAID * len(wanted) for held in self._sentences)


def _forms(atom: ProbeAtom) -> Iterable[str]:
    return (atom.text, *atom.variants)


def _plain(text: str) -> str:
    return re.sub(
        r"\s+",
        lambda found: "\n" if "\n" in found.group() else " ",
        unicodedata.normalize("NFKC", text).casefold().translate(_MARKS),
    )


@lru_cache(maxsize=4096)
def _stem(word: str) -> str:
    return stem(word)


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in tokens(text)]


def _stands_free(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 2]
    if before and _clings(before, text[start]):
        return False
    if after and _clings(after[0], text[end - 1]):
        return False
    number = text[start].isdigit(), text[end - 1].isdigit()
    if number[0] and before in (".", ",") and text[start - 2 : start - 1].isdigit():
        return False
    return not (number[1] and len(after) == 2 and after[0] in ".," and after[1].isdigit())


def _clings(outside: str, inside: str) -> bool:
    """Two neighbours that are of one word. Characters of scripts without spaces stand alone."""
    return (outside.isalnum() and inside.isalnum() and not (_alone(outside) or _alone(inside))) or (
        outside == "_" and inside.isalnum()
    )


def _alone(char: str) -> bool:
    return (
        "\u2e80" <= char <= "\u9fff"
        or "\uac00" <= char <= "\ud7af"
        or "\u0e00" <= char <= "\u0e7f"
        or "\uff00" <= char <= "\uffef"
    )


class ProbeAtoms:
    """`probe_score` in [0, 1] (see `grade`), `probe_rating` the same from 0 to 5, `probe_recall` the share of the facts
    named, `probe_contradiction` 1 where a banned one is. An offline grader: it knows words, not meaning.
    """

    name = "probe_atoms"
    version = "1"
    needs = ("atoms",)
    fields = ("probe_score", "probe_rating", "probe_recall", "probe_contradiction")

    def applies(self, example: Example, output: Example) -> bool:
        """To probes that were answered."""
        return bool(example.get("atoms")) and isinstance(output.get("response"), str)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """The answer's grade; `{}` for what is no answered probe."""
        if not self.applies(original, processed):
            return {}
        atoms = [atom_from_json(atom) for atom in original["atoms"]]
        truth, question = str(original.get("answer") or ""), str(original.get("question") or "")
        found = grade(str(processed["response"]), atoms, truth=truth, question=question)
        named = len(found.found) + len(found.missed)
        return {
            "probe_score": found.score,
            "probe_rating": found.rating,
            "probe_recall": len(found.found) / named if named else 0.0,
            "probe_contradiction": float(bool(found.banned)),
        }
