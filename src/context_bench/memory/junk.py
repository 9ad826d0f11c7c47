"""How much of what a memory gives back is worth nothing: things it says twice, things it says about itself."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.core.text import normalise, tokens

NEAR = 0.9  # share of common words from which two texts count as the same memory
LOOKED_AT = 200  # first texts that are compared with one another; more would take quadratic time
_SHORTEST = 12  # characters of a text whose occurrence in another one means anything


def near_duplicates(texts: Sequence[str]) -> float:
    """The share of texts whose set of words has a Jaccard similarity ≥ `NEAR` with that of an earlier one. 0 of nothing."""
    bags = [frozenset(tokens(text)) for text in texts[:LOOKED_AT]]
    again = sum(any(_alike(bag, other) for other in bags[:at]) for at, bag in enumerate(bags))
    return again / len(bags) if bags else 0.0


def echoes(texts: Sequence[str]) -> float:
    """The share of texts that hold the whole text of another, shorter one: what is left of something recalled and stored again."""
    plain = [f" {normalise(text)} " for text in texts[:LOOKED_AT]]
    inside = {text for text in plain if len(text) >= _SHORTEST + 2}
    return sum(any(len(other) < len(text) and other in text for other in inside) for text in plain) / len(plain) if plain else 0.0


def repeats_question(texts: Sequence[str], question: str) -> float:
    """The share of texts that say the question, and next to nothing beyond it."""
    asked = frozenset(tokens(question))
    return sum(_alike(frozenset(tokens(text)), asked) for text in texts) / len(texts) if texts and asked else 0.0


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    both = len(one & other)
    return both > 0 and both >= NEAR * (len(one) + len(other) - both)
