"""Which message of a request became which on its way: messages may be shortened, left out, given another role, or moved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from context_bench.core.keys import canonical_json
from context_bench.wire.request import WireMessage

_PARAGRAPH = re.compile(r"\n[ \t]*\n")

Pairs = dict[int, int]  # place in the sent request → place in the received one


def align(sent: Sequence[WireMessage], received: Sequence[WireMessage]) -> Pairs:
    """Which message became which, in order: by ids of tool calls first, then by text, then by role. Messages may be left out."""
    a, b = [_Sketch.of(message) for message in sent], [_Sketch.of(message) for message in received]
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs = {i: i for i in range(start)}
    inner = _best(a[start : len(a) - end], b[start : len(b) - end])
    pairs.update({start + i: start + j for i, j in inner.items()})
    pairs.update({len(a) - end + i: len(b) - end + i for i in range(end)})
    return pairs


@dataclass(frozen=True, slots=True)
class _Sketch:
    role: str
    text: str
    question: str
    ids: tuple[str, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, message: WireMessage) -> _Sketch:
        text = message.text
        calls = tuple(str(call.get("id") or canonical_json(call)) for call in message.tool_calls)
        ids = (*calls, *([message.tool_call_id] if message.tool_call_id else []))
        return cls(message.role, text, question_of(text), ids, tuple(part.kind for part in message.parts if part.text is None))


def _likeness(a: _Sketch, b: _Sketch) -> float:
    score = 1.5 if a.role == b.role else 0.3
    if a.ids and set(a.ids) & set(b.ids):
        score += 4.0
    if a.kinds and a.kinds == b.kinds:
        score += 0.5
    if a.text and a.text == b.text:
        score += 3.0
    elif a.question and b.text.rstrip().endswith(a.question):
        score += 1.0
    return score


def _best(a: list[_Sketch], b: list[_Sketch]) -> Pairs:
    """The order-keeping pairing of the greatest total likeness."""
    if _in_place(a, b):
        return {i: i for i in range(len(a))}
    width = len(b) + 1
    table = [[0.0] * width for _ in range(len(a) + 1)]
    likeness = [[_likeness(one, other) for other in b] for one in a]
    for i in range(len(a) - 1, -1, -1):
        row, below, near = table[i], table[i + 1], likeness[i]
        for j in range(len(b) - 1, -1, -1):
            row[j] = max(below[j + 1] + near[j], below[j], row[j + 1])
    pairs: Pairs = {}
    i = j = 0
    while i < len(a) and j < len(b):
        if table[i][j] == table[i + 1][j + 1] + likeness[i][j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif table[i][j] == table[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _in_place(a: list[_Sketch], b: list[_Sketch]) -> bool:
    """Whether only texts changed: the usual case, told without the table, which takes seconds for a session of a thousand messages."""
    if len(a) != len(b) or any(one.role != other.role or one.ids != other.ids for one, other in zip(a, b, strict=True)):
        return False
    texts = {one.text for one in a if one.text}
    return not any(other.text in texts and other.text != one.text for one, other in zip(a, b, strict=True))


def question_of(text: str) -> str:
    """What is asked in a user's text: its last paragraph that is not blank."""
    stripped = text.strip()
    cut = max((found.end() for found in _PARAGRAPH.finditer(stripped)), default=0)
    return stripped[cut:].strip()
