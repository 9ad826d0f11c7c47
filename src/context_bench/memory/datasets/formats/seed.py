"""The three shapes of cortex's evaluation harness, which bear the names of published benchmarks and are none of them.

What may stand in them, and the ids and categories of their questions, is `memory.cortex.harness`' business;
here turns keep who said them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.cortex.harness import Pair, read_pairs, shape_of
from context_bench.memory.datasets.memory_records import (
    Dirt,
    Document,
    MemoryConversation,
    MemoryFormat,
    MemoryQuestion,
    numbered,
    objects,
    text_of,
    turn_text,
)
from context_bench.memory.protocol import Item


def _sniff(document: Mapping[str, Any]) -> bool:
    row = shape_of([document]) is not None and bool(document.keys() & {"question", "query"})
    return row or shape_of(document) is not None


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    rest = iter(documents)
    first = next(rest, None)
    if first is None:
        return
    if shape_of(first.value) is not None:
        for document in chain([first], rest):
            yield from _conversations(document, dirt)
    else:
        # Their ids are places in the whole list.
        rows = [first, *rest]
        pairs = _pairs([row.value for row in rows], first)
        for row, pair in zip(rows, pairs, strict=True):
            items = list(_turns(row, dirt))
            if not items:
                dirt.add("questions with nothing to remember")
            yield MemoryConversation(pair.id, items, [_ask(pair)])


def _conversations(document: Document, dirt: Dirt) -> Iterator[MemoryConversation]:
    pairs = _pairs(document.value, document)
    for name, conversation in document.value.items():
        asked = [_ask(pair) for pair in pairs if pair.conversation == name]
        if asked:
            yield MemoryConversation(name, list(_sides(conversation, document.where, dirt)), asked)


def _pairs(value: Any, document: Document) -> list[Pair]:
    try:
        return read_pairs(value)
    except BadInput as error:
        raise BadInput(f"{document.path}: {error}" if document.path else str(error)) from error


def _ask(pair: Pair) -> MemoryQuestion:
    unanswerable = pair.category == "adversarial" or pair.id.endswith("_abs")
    return MemoryQuestion(
        id=pair.id,
        text=pair.question,
        answers=(pair.answer,) if pair.answer else (),
        type=pair.category or "unknown",
        answerable=not unanswerable,
    )


def _sides(conversation: Mapping[str, Any], where: str, dirt: Dirt) -> Iterator[Item]:
    for number, key in numbered(conversation, r"session_(\d+)"):
        for place, turn in enumerate(objects(conversation, key, where), 1):
            for role, field in (("user", "human_turn"), ("assistant", "blenderbot_message")):
                if said := turn_text(turn, where, dirt, field):
                    yield Item(f"{number}:{place}:{role}", said, role=role, session=str(number))


def _turns(document: Document, dirt: Dirt) -> Iterator[Item]:
    value, where = document.value, document.where
    turns = [(None, each) for key in ("conversation", "turns") for each in objects(value, key, where)]
    sessions = value.get("sessions") or []
    inside = [
        (str(i), each) for i, session in enumerate(sessions, 1) for each in objects({"turns": session}, "turns", where)
    ]
    for place, (session, turn) in enumerate(inside or turns, 1):
        if said := turn_text(turn, where, dirt, "content", "text"):
            who = text_of(turn, where, "speaker", "role") or "user"
            yield Item(
                str(place),
                said,
                role=who if who in ("user", "assistant", "system") else "user",
                speaker=who,
                session=session,
            )


FORMATS = (
    MemoryFormat(
        "cortex",
        "{name: {session_N: [{human_turn, blenderbot_message}], question_answer_pairs: []}}, or rows with sessions, "
        "conversation or turns",
        _sniff,
        _read,
        rank=90,
    ),
)
