"""Results of tools, shown shorter: old ones masked by a line that says so, repeated ones by a pointer to the last, JSON
in them rewritten without loss.

Calls and the speakers' words stay. Masking is cheap, and hard to beat for coding agents: Lindenbauer et al. 2025 (arXiv
2508.21433) found it to halve the cost of coding agents at equal solve rates.
"""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.texts import Messages, with_texts
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.context import texts_of
from context_bench.wire.conversation import message_text
from context_bench.wire.lossless import rewritten
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES

COMPRESSORS = {
    "mask_observations": "MaskObservations",
    "dedupe": "Dedupe",
    "minify": "Minified",
    "csv": "TablesAsCsv",
    "toon": "TablesAsToon",
}


class MaskObservations:
    """Masks all but the last `keep` results. A budget is met by masking more, the oldest first; what is then too long
    stays too long.

    Results of fewer than `least` tokens are left: the line in their place would not be shorter.
    """

    name = "mask_observations"
    deterministic = True

    def __init__(self, keep: int = 5, least: int = 20, model: str | None = None) -> None:
        for what, number in (("keep", keep), ("least", least)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise BadInput(
                    f"mask_observations: {what}={number!r} is not a number of "
                    f"{'results' if what == 'keep' else 'tokens'} (0, 1, 2 …)"
                )
        self.keep, self.least, self.model = keep, least, model

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
        results = [at for at, message in enumerate(prefix) if message.get("role") in RESULT_ROLES]
        masked = list(prefix)
        before = left = tokens_of(prefix, counter)
        for order, at in enumerate(results):
            recent = order >= len(results) - self.keep
            if recent and (budget is None or left <= budget):
                break
            size = counter.count(message_text(prefix[at]))
            if size >= self.least:
                masked[at] = {**prefix[at], "content": f"[result of {size} tokens left out]"}
                left = tokens_of(masked, counter)
        warnings = (
            [f"{left} tokens are left where {budget} were allowed: the rest was said, not shown"]
            if budget is not None and left > budget
            else []
        )
        return Compressed(masked, before, left, warnings=warnings), state


_POINTER = "[the same as a later result]"


class Dedupe:
    """Replaces a tool's result by a pointer where a later one holds all of its lines in order, and is at least `least`
    characters long.

    Nothing is lost, so a budget is ignored.
    """

    name = "dedupe"
    deterministic = True
    ignores_budget = True

    def __init__(self, least: int = 80, model: str | None = None) -> None:
        if isinstance(least, bool) or not isinstance(least, int) or least < len(_POINTER):
            raise BadInput(f"dedupe: least={least!r} is not a number of characters of at least {len(_POINTER)}")
        self.least, self.model = least, model

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
        shown = list(prefix)
        later = [message_text(message) for message in tail if message.get("role") in RESULT_ROLES]
        for at in range(len(prefix) - 1, -1, -1):
            if prefix[at].get("role") not in RESULT_ROLES:
                continue
            text = message_text(prefix[at])
            if len(text) >= self.least and any(_within(text, other) for other in later):
                shown[at] = {**prefix[at], "content": _POINTER}
            else:
                later.append(text)
        return Compressed(shown, tokens_of(prefix, counter), tokens_of(shown, counter)), state


class Minified:
    """JSON in results and in what the user gave, without spaces. Nothing is lost, so a budget is ignored.

    A control: what takes out no more than this could have been one line of code. The model's own words stay.
    """

    name = "minify"
    deterministic = True
    ignores_budget = True

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        return Compressed([self._shown(message) for message in prefix]), state

    def _shown(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("role") in (*SYSTEM_ROLES, "assistant"):
            return message
        texts = texts_of([message])
        shorter = [rewritten(text, self.name) for text in texts]
        return message if shorter == texts else with_texts([message], shorter)[0]


class TablesAsCsv(Minified):
    """The same for uniform lists of objects, as CSV with a head."""

    name = "csv"


class TablesAsToon(Minified):
    """The same for uniform lists of objects, in TOON's form for tables."""

    name = "toon"


def _within(text: str, other: str) -> bool:
    """The whole text stands in the other, from the beginning of a line to the end of one."""
    at = other.find(text)
    while at >= 0:
        end = at + len(text)
        if (at == 0 or other[at - 1] == "\n") and (end == len(other) or other[end] == "\n"):
            return True
        at = other.find(text, at + 1)
    return False
