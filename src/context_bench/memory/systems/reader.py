"""The reader behind a memory: what it is told, and whether it said that the memories hold no answer."""

from __future__ import annotations

import copy
from typing import Any

from context_bench.core.text import normalise

NOT_MENTIONED = "Not mentioned"
#: What a reader is told unless it has a system prompt of its own.
READER_PROMPT = f"""You answer a question from memories of past conversations. Each memory is one paragraph; a date in square brackets
says when it was said. Use only what the memories say. If they contradict each other, the later one holds. Work out times that are told
relative to a date.
Answer as briefly as possible: a name, a date, a number or one short phrase, no explanation.
If the memories do not hold the answer, say: {NOT_MENTIONED}."""


def prompted(reader: Any, prompt: str) -> Any:
    """The reader with our prompt, if it takes a system prompt and has none."""
    if not prompt or getattr(reader, "system_prompt", "") is not None:
        return reader
    told = copy.copy(reader)
    told.system_prompt = prompt
    return told


def abstained(response: str) -> bool:
    """Whether the reader said that the memories do not hold the answer."""
    return normalise(response).startswith(normalise(NOT_MENTIONED))
