"""The texts inside chat messages, and how many tokens of them may stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import count, share
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import TokenCounter

Messages = list[dict[str, Any]]
Shorten = Callable[[list[str], int], list[str]]


def texts_of(messages: Messages) -> list[str]:
    """Every text of the messages in order; a message's content may be one text or a list of parts."""
    return [text for message in messages for text in _texts(message.get("content"))]


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return []


def with_texts(messages: Messages, texts: list[str]) -> Messages:
    """The same messages with their texts replaced in order; nothing else is touched, the originals stay."""
    supply = iter(texts)
    return [{**message, "content": _replaced(message["content"], supply)} if "content" in message else message for message in messages]


def _replaced(content: Any, supply: Any) -> Any:
    if isinstance(content, str):
        return next(supply)
    if isinstance(content, list):
        return [
            {**part, "text": next(supply)} if isinstance(part, dict) and isinstance(part.get("text"), str) else part for part in content
        ]
    return content


def check_limit(name: str, budget: int | None, keep: float) -> None:
    """Refuse a budget below 0 or a share outside 0 to 1."""
    if budget is not None and count(budget) is None:
        raise BadInput(f"{name}: budget={budget!r} is not a number of tokens (0, 1, 2 …)")
    if share(keep) is None:
        raise BadInput(f"{name}: keep={keep!r} is not a share from 0 to 1 (0.5 keeps half of the tokens)")


def compressed(prefix: Messages, budget: int | None, keep: float, counter: TokenCounter, shorten: Shorten) -> Compressed:
    """Bring the texts of `prefix` down to `budget` tokens (or the share `keep`) with `shorten(texts, tokens)`.

    What fits already is returned as it is.
    """
    texts = texts_of(prefix)
    before = sum(map(counter.count, texts))
    allowed = math.floor(before * keep) if budget is None else budget
    if before <= allowed:
        return Compressed(prefix, before, before)
    shorter = shorten(texts, allowed)
    return Compressed(with_texts(prefix, shorter), before, sum(map(counter.count, shorter)))
