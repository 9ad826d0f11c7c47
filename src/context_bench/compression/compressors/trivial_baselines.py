"""Baselines that choose without reading: everything, nothing, the last messages, both ends, sentences at random.

`full` is what the others are compared with, `none` what the model answers without the context. `window` is the way in
which most chat programs treat a conversation that grows too long, `head_tail` what any clever method must beat,
`random_drop` the floor under every method that claims to choose.
"""

from __future__ import annotations

import random
from typing import Any

from context_bench.compression.compressors.texts import Messages, compressed, head, keep_best, tail
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.keys import seed_of
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.systems.context import check_limit
from context_bench.wire.conversation import tool_calls_of
from context_bench.wire.request import RESULT_ROLES

COMPRESSORS = {
    "full": "Full",
    "passthrough": "Full",
    "none": "NoContext",
    "tail_only": "NoContext",
    "window": "LastMessages",
    "head_tail": "HeadTail",
    "random_drop": "RandomDrop",
}


class Full:
    """Returns what it got; a budget is ignored."""

    name = "full"
    leaves = "everything"
    deterministic = True

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        return Compressed(prefix), state


class NoContext:
    """Removes all messages of the prefix; a budget is ignored."""

    name = "none"
    leaves = "nothing"
    deterministic = True

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        return Compressed([], tokens_after=0), state


def whole_turns(messages: Messages) -> list[Messages]:
    """The messages in runs that may only be kept or dropped as a whole: one message, or a call with the results that
    follow it.
    """
    turns: list[Messages] = []
    for message in messages:
        if message.get("role") in RESULT_ROLES and turns and (len(turns[-1]) > 1 or tool_calls_of(turns[-1][0])):
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


class LastMessages:
    """Keeps the last `n` messages, or as many of the last as fit in a budget of tokens. A tool's result never stays
    without its call.
    """

    name = "window"
    deterministic = True

    def __init__(self, n: int = 20, model: str | None = None) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise BadInput(f"window: n={n!r} is not a number of messages (0, 1, 2 …)")
        self.n, self.model = n, model

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
        kept: Messages = []
        for turn in reversed(whole_turns(prefix)):
            longer = [*turn, *kept]
            if len(longer) > self.n if budget is None else tokens_of(longer, counter) > budget:
                break
            kept = longer
        return Compressed(kept, tokens_of(prefix, counter), tokens_of(kept, counter)), state


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
    marker, spare = counter.count(MARKER), 0
    while spare < budget:
        room = budget - marker - spare
        front, cut = _from_the_front(texts, room - room // 2, counter)
        room -= sum(map(counter.count, front))
        back, end_cut = _from_the_back(texts, room, counter)
        shown = _with_marker(front, back, cut, end_cut)
        over = sum(map(counter.count, shown)) - budget
        if over <= 0:
            return shown
        spare += max(spare, over) if counter.estimates(shown) else 1
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
            kept[position] = tail(texts[position], room, counter)
            return kept, position
        kept[position] = texts[position]
        room -= cost
    return kept, 0


class RandomDrop:
    """Keeps randomly chosen sentences, in their order, up to `budget` tokens (or the share `keep`).

    The choice depends on `seed`, on the text and, if `state` is an example's id, on that; on nothing else, so it
    repeats anywhere.
    """

    name = "random_drop"
    deterministic = True
    of_text = True

    def __init__(self, keep: float = 0.5, budget: int | None = None, seed: int = 0, model: str | None = None) -> None:
        check_limit(self.name, budget, keep)
        self.keep, self.budget, self.seed, self.model = keep, budget, seed, model

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
        example = state if isinstance(state, str | int) else None

        def shorten(texts: list[str], tokens: int) -> list[str]:
            chance = random.Random(seed_of(self.seed, example, texts))
            return keep_best(texts, tokens, counter, lambda found: chance.sample(range(len(found)), len(found)))

        return compressed(prefix, self.budget if budget is None else budget, self.keep, counter, shorten), state
