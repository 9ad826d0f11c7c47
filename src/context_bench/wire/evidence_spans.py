"""The pieces of a context that hold an answer, and whether a text has them, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from context_bench.wire.fidelity import words


def holds_all(texts: Iterable[str], pieces: Sequence[str]) -> bool:
    """True if each piece stands in one of the texts."""
    held = [in_words(text) for text in texts]
    return all(any(in_words(piece) in text for text in held) for piece in pieces)


def evidence_of(example: Mapping[str, Any]) -> list[str]:
    """The pieces of an example's context that hold its answer: `evidence`, as a text, a list of texts, or of places
    `[from, to]` in the context. Pieces that the context does not hold (ids, notes) are no evidence of it.
    """
    context, given = example.get("context"), example.get("evidence")
    if not isinstance(context, str) or not given:
        return []
    pieces = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    held = in_words(context)
    texts = [_piece(piece, context) for piece in pieces]
    return [text for text in texts if (own := in_words(text)).strip() and own in held]


def _piece(piece: Any, context: str) -> str:
    if isinstance(piece, str):
        return piece
    numbers = isinstance(piece, list | tuple) and len(piece) == 2 and all(type(number) is int for number in piece)
    return context[piece[0] : piece[1]] if numbers and 0 <= piece[0] <= piece[1] else ""


def in_words(text: str) -> str:
    """The words of a text in lower case, with a blank before and after each."""
    return f" {' '.join(word for _, word in words(text))} "
