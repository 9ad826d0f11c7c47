"""Keeping the sentences that come first in some ranking, in their old order, up to a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from context_bench.compression.compressors._pieces import sentences, word_end
from context_bench.core.tokens import VocabularyCounter


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, and which of the texts it is from."""

    slot: int
    text: str


def keep_best(texts: list[str], budget: int, counter: VocabularyCounter, rank: Callable[[Sequence[Sentence]], Sequence[int]]) -> list[str]:
    """The texts with only their best sentences left, at most `budget` tokens in all.

    `rank` gives all sentence positions, best first. One that no longer fits is passed over for the next that does. If not even one fits,
    the best that begins in the budget is cut short.
    """
    found = [Sentence(slot, piece) for slot, text in enumerate(texts) for piece in sentences(text)]
    costs = [counter.count(sentence.text) for sentence in found]
    order = list(rank(found))
    waiting = order
    kept: list[int] = []
    total = 0
    while True:
        added, waiting = _fill(waiting, costs, budget - total)
        kept += added
        shown = _render(found, kept, len(texts))
        total = sum(map(counter.count, shown))
        while total > budget and kept:  # tokens of joined text can be more than the sum: rare, and never by much
            kept.pop()
            shown = _render(found, kept, len(texts))
            total = sum(map(counter.count, shown))
            waiting = []
        if not added or not waiting:
            break
    return shown if kept or not found or budget <= 0 else _first_words(found, order, budget, counter, len(texts))


def _fill(waiting: list[int], costs: list[int], room: int) -> tuple[list[int], list[int]]:
    added: list[int] = []
    left: list[int] = []
    for position in waiting:
        if costs[position] <= room:
            room -= costs[position]
            added.append(position)
        else:
            left.append(position)
    return added, left


def _render(found: Sequence[Sentence], kept: list[int], slots: int) -> list[str]:
    shown = ["" for _ in range(slots)]
    for position in sorted(kept):
        shown[found[position].slot] += found[position].text
    return [text.strip() for text in shown]


def _first_words(found: Sequence[Sentence], order: Sequence[int], budget: int, counter: VocabularyCounter, slots: int) -> list[str]:
    shown = ["" for _ in range(slots)]
    best = found[order[0]]
    shown[best.slot] = head(best.text.strip(), budget, counter)
    return shown


def head(text: str, tokens: int, counter: VocabularyCounter) -> str:
    """The longest beginning of `text` of at most `tokens` tokens that ends at a word's end where one is near."""
    if tokens <= 0:
        return ""
    at = word_end(text, len(counter.truncate(text, tokens)))
    while at > 0 and counter.count(text[:at]) > tokens:
        at = word_end(text, at - 1)
    return text[:at].rstrip()
