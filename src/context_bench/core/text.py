"""How near one text is to another: normalisation, token F1, exact match, recall, containment.

Normalisation follows SQuAD's order: lower case, punctuation out, articles out, whitespace collapsed. Beyond ASCII: the text is
composed (NFC), full-width forms become their plain twins, every Unicode punctuation mark counts as punctuation, and in scripts
written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) each character with its marks is a token of its own.
Korean has spaces and is left in words.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

ARTICLES = frozenset(("a", "an", "the"))
_ASCII: dict[int, int | None] = {ord(letter): ord(letter.lower()) for letter in string.ascii_uppercase}
_ASCII.update({ord(mark): None for mark in string.punctuation})
_NO_SPACES = (
    "\u0e00-\u0e3f\u0e40-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"  # kana, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\uff66-\uff9f"  # half-width kana
    "\U00020000-\U000323af"  # Han beyond the basic plane
)
_CHARACTER = re.compile(f"([{_NO_SPACES}])")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class _Wide(dict[int, str | None]):
    """A translate table that learns: punctuation of any script is dropped, full-width forms become plain."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        if 0xFF01 <= code <= 0xFF5E:
            plain = chr(code - 0xFEE0).lower()
            self[code] = None if plain in string.punctuation else plain
        elif char in string.punctuation or unicodedata.category(char).startswith("P"):
            self[code] = None
        elif code == 0x3000:
            self[code] = " "
        else:
            self[code] = char
        return self[code]


_WIDE = _Wide()


def _words(text: str) -> list[str]:
    """Lower-case tokens without punctuation; articles still there."""
    if text.isascii():
        return text.translate(_ASCII).split()
    return words(unicodedata.normalize("NFC", text.lower()).translate(_WIDE))


def words(bare: str) -> list[str]:
    """The words of a text that has no punctuation any more; each character of a script without spaces, with its marks, is one."""
    if _CHARACTER.search(bare) is None:
        return bare.split()
    return _joined_marks(_CHARACTER.sub(r" \1 ", bare).split())


def _joined_marks(pieces: list[str]) -> list[str]:
    """Vowel signs and tone marks go back to the character they stand on."""
    joined: list[str] = []
    for piece in pieces:
        if joined and unicodedata.category(piece[0]).startswith("M"):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def tokens(text: str) -> list[str]:
    """The normalised tokens of `text`, in order."""
    return [word for word in _words(text) if word not in ARTICLES]


def normalise(text: str) -> str:
    """The normalised text: tokens joined by one space."""
    return " ".join(tokens(text))


def _sides(prediction: str, reference: str) -> tuple[list[str], list[str]]:
    """Tokens of both, normalised alike.

    A reference that normalisation would empty ("A", "The The", "!!!") is compared with articles, or else with
    punctuation, kept on both sides: otherwise any two such texts would be equal.
    """
    wanted = tokens(reference)
    if wanted:
        return tokens(prediction), wanted
    wanted = _words(reference)
    if wanted:
        return _words(prediction), wanted
    return prediction.lower().split(), reference.lower().split()


class Match(NamedTuple):
    """How a prediction meets a reference; every number in [0, 1]."""

    f1: float
    exact_match: float
    recall: float
    contains: float


def match(prediction: str, reference: str) -> Match:
    """All four measures with one normalisation of each text. An empty reference is matched only by an empty prediction."""
    found, wanted = _sides(prediction, reference)
    if found == wanted:
        return Match(*([1.0] * 4)) if wanted else Match(0.0, 1.0, 0.0, 1.0)
    shared = _overlap(found, wanted)
    if not shared and not reference.strip():
        return Match(0.0, 0.0, 0.0, 0.0)
    f1 = 2 * shared / (len(found) + len(wanted)) if shared else 0.0
    recall = shared / len(wanted) if wanted else 0.0
    return Match(f1, 0.0, recall, float(_contains(prediction, reference, found, wanted)))


def best_match(prediction: str, references: Sequence[str]) -> Match:
    """The best of each measure over one or more references, as SQuAD does."""
    best = match(prediction, references[0])
    for reference in references[1:]:
        other = match(prediction, reference)
        best = Match(*map(max, best, other))
    return best


def f1_score(prediction: str, reference: str) -> float:
    """Harmonic mean of token precision and recall (multisets); 0.0 if either side has no tokens."""
    return match(prediction, reference).f1


def exact_match(prediction: str, reference: str) -> float:
    """1.0 if the normalised texts are equal."""
    return match(prediction, reference).exact_match


def recall_score(prediction: str, reference: str) -> float:
    """Share of the reference's tokens that occur in the prediction; 0.0 for an empty reference."""
    return match(prediction, reference).recall


def contains(prediction: str, reference: str) -> float:
    """1.0 if the reference occurs in the prediction as whole words: "no" is not in "I do not know", nor "3" in "3.5"."""
    return match(prediction, reference).contains


def _overlap(found: list[str], wanted: list[str]) -> int:
    left: dict[str, int] = {}
    for token in wanted:
        left[token] = left.get(token, 0) + 1
    shared = 0
    for token in found:
        count = left.get(token)
        if count:
            shared += 1
            left[token] = count - 1
    return shared


def _contains(prediction: str, reference: str, found: list[str], wanted: list[str]) -> bool:
    if f" {' '.join(wanted)} " not in f" {' '.join(found)} " and not _stands_alone(reference.strip().lower(), prediction.lower()):
        return False
    numbers = _numbers(reference)
    return not numbers or numbers <= _numbers(prediction)


def _stands_alone(needle: str, text: str) -> bool:
    """`needle` occurs in `text` with no letter or digit directly before or after it ("Paris" in "Paris's" does)."""
    at = text.find(needle) if needle else -1
    while at >= 0:
        end = at + len(needle)
        if not (at and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
            return True
        at = text.find(needle, at + 1)
    return False


def _numbers(text: str) -> set[str]:
    """The numbers written in `text`, thousands separators taken out, so that 35 is not found in 3.5 nor 3 in 3.5."""
    if text.isascii() and text.isalpha():
        return set()
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return {re.sub(r",(?=\d{3}(?!\d))", "", number) for number in _NUMBER.findall(plain)}
