"""Words in any script: which there are, which script they are in, and which of them a compressor damaged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import repeat

from context_bench.wire.atoms import plain_number

_SCRIPTS: dict[str, str] = {
    "latin": "0-9A-Za-z_\u00c0-\u024f\u1e00-\u1eff'’",
    "cyrillic": "\u0400-\u052f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "hebrew": "\u0590-\u05ff",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
    "cjk": "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
}
_RUN = re.compile("|".join(f"(?P<{name}>[{letters}\ufffd]*[{letters}][{letters}\ufffd]*)" for name, letters in _SCRIPTS.items()))
_ASCII_WORD = re.compile(r"[\w']+")
_UNSPACED = frozenset({"cjk", "thai"})
NUMBER = re.compile(r"\d[\d,.']*")


def words(text: str) -> Iterator[tuple[str, str]]:
    """(script, word) in order, in lower case. Scripts without spaces give pairs of neighbouring characters.

    A replacement character is a part of the word that it stands in, and of no script by itself.
    """
    if text.isascii():
        yield from zip(repeat("latin"), _ASCII_WORD.findall(text.lower()))
        return
    for match in _RUN.finditer(text.lower()):
        script, run = str(match.lastgroup), match[0]
        if script in _UNSPACED and len(run) > 1:
            yield from ((script, run[i : i + 2]) for i in range(len(run) - 1))
        else:
            yield script, run


def script_of(text: str) -> str:
    """The script that most letters of `text` are in; `latin` where there are none."""
    if text.isascii():
        return "latin"
    counts: Counter[str] = Counter()
    for match in _RUN.finditer(text):
        counts[str(match.lastgroup)] += len(match[0])
    return counts.most_common(1)[0][0] if counts else "latin"


def word_damage(original: str, compressed: str) -> dict[str, tuple[int, int]]:
    """Script → (words of the compressed text that the original does not have, words). Numbers in another format are not damaged.

    In Chinese and Japanese a "word" is two neighbouring characters: characters that were dropped one by one, or broken, show.
    """
    known = {word for _, word in words(original)}
    said = list(words(compressed))
    strange = [(script, word) for script, word in said if word not in known]
    if any(word[0].isdigit() for _, word in strange):
        numbers = {plain_number(number) for number in NUMBER.findall(original)}
        strange = [(script, word) for script, word in strange if not (word[0].isdigit() and plain_number(word) in numbers)]
    damaged = Counter(script for script, _ in strange)
    return {script: (damaged[script], total) for script, total in Counter(script for script, _ in said).items()}
