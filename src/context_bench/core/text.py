"""Likeness of texts: normalisation, token F1, exact match, recall, containment, and word stems.

Stems follow Porter's algorithm in the form that LoCoMo's scorer uses, with the departures of NLTK's `PorterStemmer()`.
Source: M. F. Porter, "An algorithm for suffix stripping", 1980. NLTK's departures are a table of irregular words, words
of one or two letters left alone, `ies` and `ied` after one letter (dies → die, not di), y → i only after a consonant
that is not the first letter, and the suffixes `bli`, `fulli`, `logi`. Letters beyond a–z count as consonants, as there.
"""

from __future__ import annotations

import base64
import json
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
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
    """The words of a text that has no punctuation any more; each character of a script without spaces, with its marks,
    is one.
    """
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
    """Likeness of a prediction and a reference; every number in [0, 1]."""

    f1: float
    exact_match: float
    recall: float
    contains: float


def match(prediction: str, reference: str) -> Match:
    """All four measures with one normalisation of each text. An empty reference is matched only by an empty
    prediction.
    """
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
    """1.0 if the reference occurs in the prediction as whole words: "no" is not in "I do not know", nor "3" in
    "3.5".
    """
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
    if f" {' '.join(wanted)} " not in f" {' '.join(found)} " and not _stands_alone(
        reference.strip().lower(), prediction.lower()
    ):
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


_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news", "innings": "inning", "inning": "inning",  # noqa: E501
    "outings": "outing", "outing": "outing", "cannings": "canning", "canning": "canning", "howe": "howe", "proceed": "proceed",  # noqa: E501
    "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip
_PLURAL = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
_DERIVED = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"), ("alli", "al"),  # noqa: E501
    ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"),  # noqa: E501
    ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),  # noqa: E501
)  # fmt: skip
_ADJECTIVE = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_LAST = (
    *(
        "al",
        "ance",
        "ence",
        "er",
        "ic",
        "able",
        "ible",
        "ant",
        "ement",
        "ment",
        "ent",
        "ion",
        "ou",
        "ism",
        "ate",
        "iti",
        "ous",
    ),
    *("ive", "ize"),
)
_RUNS = re.compile("v+c+")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of one word, in lower case."""
    word = word.lower()
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _derived, _adjective, _last, _final_e, _final_l):
        word = step(word)
    return word


def _kinds(text: str) -> str:
    """`c` or `v` for every letter; y is a vowel after a consonant."""
    found = ""
    for letter in text:
        vowel = letter in "aeiou" or (letter == "y" and found.endswith("c"))
        found += "v" if vowel else "c"
    return found


def _measure(text: str) -> int:
    """Porter's m: how often a run of vowels is followed by a run of consonants."""
    return len(_RUNS.findall(_kinds(text)))


def _some(text: str) -> bool:
    return _measure(text) > 0


def _ends_cvc(text: str) -> bool:
    kinds = _kinds(text)
    return (kinds.endswith("cvc") and text[-1] not in "wxy") or kinds == "vc"


def _ends_double(text: str) -> bool:
    return len(text) >= 2 and text[-1] == text[-2] and _kinds(text)[-1] == "c"


def _replaced(word: str, rules: Iterable[tuple[str, str]], allowed: Callable[[str], bool]) -> str:
    """The first rule whose ending the word has decides: it is applied if what is left is `allowed`, else nothing is."""
    for ending, new in rules:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + new if allowed(rest) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replaced(word, _PLURAL, lambda _: True)


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _some(word[:-3]) else word
    for ending in ("ed", "ing"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and "v" in _kinds(rest):
            return _mended(rest)
    return word


def _mended(rest: str) -> str:
    """The stem of hop(ping), hop(ed), fall(ing) as a word."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_cvc(rest) else rest


def _final_y(word: str) -> str:
    rest = word[:-1]
    return rest + "i" if word.endswith("y") and len(rest) > 1 and _kinds(rest)[-1] == "c" else word


def _derived(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _derived(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _some(word[:-3]) else word
    return _replaced(word, _DERIVED, _some)


def _adjective(word: str) -> str:
    return _replaced(word, _ADJECTIVE, _some)


def _last(word: str) -> str:
    ending = next((ending for ending in _LAST if word.endswith(ending)), None)
    if ending is None:
        return word
    rest = word[: -len(ending)]
    return rest if _measure(rest) > 1 and (ending != "ion" or rest[-1] in "st") else word


def _final_e(word: str) -> str:
    rest = word[:-1]
    gone = word.endswith("e") and (_measure(rest) > 1 or (_measure(rest) == 1 and not _ends_cvc(rest)))
    return rest if gone else word


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


# --- ways of writing a text ---

_PLAIN = re.compile(r"[A-Za-z0-9]+")  # what no coding but Base64 and hexadecimal needs to write otherwise
_MOST_ENCODED, _MOST_ESCAPED = 16_384, 1024
_ENTITIES = {'"': "quot", "&": "amp", "<": "lt", ">": "gt", "'": "apos"}
_BACKSLASH = r"(?:\\|%(?:25){0,4}5[cC])"  # as it is, or encoded for a URL after it was escaped
_BASE64 = {
    "+": rf"(?:[+-]|(?i:%(?:25){{0,4}}2b|{_BACKSLASH}{{1,8}}(?:u00|x)2b))",
    "/": rf"(?:{_BACKSLASH}{{0,8}}[/_]|(?i:%(?:25){{0,4}}2f|{_BACKSLASH}{{1,8}}(?:u00|x)2f))",
}
_BLANK = (
    rf"(?:\s|{_BACKSLASH}{{1,8}}(?:[nrt]|(?i:u00|x)(?i:0[9ad]|20))|(?i:%(?:25){{0,4}}(?:20|0[ad9]))|\+"
    r"|&\#(?i:x[ad9]|x20|10|13|9|32);){1,64}"
)


def beginning(text: str, limit: int) -> str:
    """As much of `text` as fits in `limit` characters and ends between two words, for texts that are searched for
    secrets afterwards: half a key, encoded perhaps, would not be found.
    """
    if len(text) <= limit:
        return text
    cut = text[: max(0, limit)]
    return cut[: max(cut.rfind(" "), cut.rfind("\n")) + 1]


def longest_plain(text: str) -> str:
    """The longest part of `text` that JSON, Python, URLs and XML need not write otherwise."""
    return max(_PLAIN.findall(text), key=len, default="")


def as_written(text: str, *, all_escaped: bool = False, any_case: bool = False) -> str:
    """The expression for every way of writing `text` as JSON, Python, URLs or XML do, one after the other as well.

    `all_escaped`: letters and digits too may be escaped; `any_case`: it may be in capitals, or in none.
    """
    if len(text) > (_MOST_ESCAPED if all_escaped else _MOST_ENCODED):
        forms = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
        found = "|".join(re.escape(form) for form in dict.fromkeys(forms))
        return f"(?i:{found})" if any_case else found
    pieces = []
    for piece in re.findall(r"[A-Za-z0-9]+|\s+|\\+|.", text, re.DOTALL):
        if piece.isspace():
            pieces.append(_BLANK)
        elif piece[0] == "\\":
            coded = "|".join(_codes(piece[0]))
            behind = rf"{_BACKSLASH}{{1,8}}(?:u005c|x5c)"
            pieces.append(rf"(?>(?i:{behind}|{coded})|{_BACKSLASH}){{{len(piece)},{16 * len(piece)}}}")
        elif not _PLAIN.match(piece):
            pieces.append(_letter(piece, any_case))
        elif all_escaped:
            pieces += [_letter(each, any_case) for each in piece]
        else:
            pieces.append(f"(?i:{piece})" if any_case else piece)
    return "".join(pieces)


@lru_cache(maxsize=1024)
def _letter(letter: str, any_case: bool) -> str:
    """A character that codings write otherwise; the longest way first, since a text may end with a shorter one."""
    cases = dict.fromkeys((letter, letter.lower(), letter.upper()) if any_case else (letter,))
    forms = [each for each in cases if len(each) == 1]
    coded = "|".join(way for each in forms for way in _codes(each))
    behind = "|".join(way for each in forms for way in _codes_behind_backslashes(each))
    plain = "|".join(re.escape(each) for each in forms)
    return f"(?:(?i:{_BACKSLASH}{{1,8}}(?:{behind}))|{_BACKSLASH}{{0,8}}(?:(?i:{coded})|{plain}))"


def _codes(letter: str) -> list[str]:
    octets = letter.encode("utf-8", "surrogatepass")
    ways = [
        "".join(f"%(?:25){{0,4}}{each:02x}" for each in octets),
        rf"&(?:amp;){{0,4}}\#(?:{ord(letter)}|x0{{0,4}}{ord(letter):x});",
    ]
    return [*ways, f"&(?:amp;){{0,4}}{_ENTITIES[letter]};"] if letter in _ENTITIES else ways


def _codes_behind_backslashes(letter: str) -> list[str]:
    units, octets = letter.encode("utf-16-be", "surrogatepass"), letter.encode("utf-8", "surrogatepass")
    return [
        rf"{_BACKSLASH}{{1,8}}".join(f"u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        rf"{_BACKSLASH}{{1,8}}".join(f"x{each:02x}" for each in octets),
        f"x{ord(letter):02x}",
    ]


def all_escaped(text: str) -> Iterator[str]:
    """The beginning of `text` as it stands where all of its letters are escaped, in small letters: by JSON and Python
    (once, twice, three times, or within a URL), for URLs (up to three times), in XML (likewise).
    """
    units = text[:4].encode("utf-16-be", "surrogatepass")
    octets = text[:6].encode("utf-8", "surrogatepass")
    for slashes in ("\\", "\\\\", "\\" * 4, "%5c", "%5c%5c", "%255c"):
        yield "".join(f"{slashes}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        yield "".join(f"{slashes}x{each:02x}" for each in octets)
    for sign in ("%", "%25", "%2525"):
        yield "".join(f"{sign}{each:02x}" for each in octets)
    for sign in ("&#", "&amp;#", "&amp;amp;#"):
        yield "".join(f"{sign}{ord(each)};" for each in text[:6])
        yield "".join(f"{sign}x{ord(each):x};" for each in text[:6])


def in_base64(text: str) -> Iterator[tuple[str, str]]:
    """For each of the three places where `text` may begin in Base64: a part that stands there whatever is around it,
    and the expression for all that does.
    """
    data = text.encode("utf-8", "surrogatepass")
    for shift, first in enumerate((0, 2, 3)):
        coded = base64.b64encode(b"\0" * shift + data).decode()[first : (shift + len(data)) * 8 // 6]
        needle = max(re.split("[+/]", coded), key=len)
        if len(needle) >= 8:
            yield needle, re.sub("[+/]", lambda found: _BASE64[found[0]], coded)
