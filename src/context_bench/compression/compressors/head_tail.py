"""The beginning and the end of the text; the middle is cut out. What any clever method must beat."""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages, compressed, head, word_start
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.systems.context import check_limit

COMPRESSORS = {"head_tail": "HeadTail"}

MARKER = "\n[…]\n"


class HeadTail:
    """Keeps `budget` tokens (or the share `keep`): half from the beginning, half from the end.

    A visible marker `[…]` stands where text was cut and is part of the budget; below 12 tokens there is no room for it
    and only the beginning is kept. Cuts fall at the edge of a word where one is within 24 characters. Several texts
    count as one long one.
    """

    name = "head_tail"
    deterministic = True
    of_text = True

    def __init__(self, keep: float = 0.5, budget: int | None = None, model: str | None = None) -> None:
        check_limit(self.name, budget, keep)
        self.keep, self.budget, self.model = keep, budget, model

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        counter = counter_for(self.model)
        limit = self.budget if budget is None else budget
        return compressed(
            prefix, limit, self.keep, counter, lambda texts, tokens: _both_ends(texts, tokens, counter)
        ), state


def _both_ends(texts: list[str], budget: int, counter: VocabularyCounter) -> list[str]:
    if budget < 12:
        return _from_the_front(texts, budget, counter)[0]
    marker = counter.count(MARKER)
    for spare in range(0, budget, 1):
        room = budget - marker - spare
        front, cut = _from_the_front(texts, room - room // 2, counter)
        room -= sum(map(counter.count, front))
        back, end_cut = _from_the_back(texts, room, counter)
        shown = _with_marker(front, back, cut, end_cut)
        if sum(map(counter.count, shown)) <= budget:
            return shown
    return _from_the_front(texts, budget, counter)[0]


def _with_marker(front: list[str], back: list[str], cut: int, end_cut: int) -> list[str]:
    """Texts before `cut` are whole at the front, those after `end_cut` whole at the back; the marker stands once, at
    the first cut.
    """
    shown = [a or b for a, b in zip(front, back, strict=True)]
    shown[cut] = (front[cut] + MARKER + (back[cut] if cut == end_cut else "")).strip("\n")
    return shown


def _from_the_front(texts: list[str], room: int, counter: VocabularyCounter) -> tuple[list[str], int]:
    kept = ["" for _ in texts]
    for position, text in enumerate(texts):
        cost = counter.count(text)
        if cost > room:
            kept[position] = head(text, room, counter)
            return kept, position
        kept[position] = text
        room -= cost
    return kept, len(texts) - 1


def _from_the_back(texts: list[str], room: int, counter: VocabularyCounter) -> tuple[list[str], int]:
    kept = ["" for _ in texts]
    for position in range(len(texts) - 1, -1, -1):
        cost = counter.count(texts[position])
        if cost > room:
            kept[position] = _end_of(texts[position], room, counter)
            return kept, position
        kept[position] = texts[position]
        room -= cost
    return kept, 0


def _end_of(text: str, tokens: int, counter: VocabularyCounter) -> str:
    """The longest end of `text` of at most `tokens` tokens, by bisection over its start."""
    if tokens <= 0:
        return ""
    reach = min(len(text), 4 * tokens)
    while reach < len(text) and counter.count(text[-reach:]) <= tokens:
        reach = min(len(text), 2 * reach)
    fits, too_long = len(text), len(text) - reach
    while fits - too_long > 1:
        middle = (fits + too_long) // 2
        if counter.count(text[middle:]) <= tokens:
            fits = middle
        else:
            too_long = middle
    start = word_start(text, fits)
    while start < len(text) and counter.count(text[start:].lstrip()) > tokens:
        start = word_start(text, start + 1)
    return text[start:].lstrip()
