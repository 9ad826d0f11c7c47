"""MSC-Self-Instruct, on which MemGPT introduced "deep memory retrieval": five sessions of two people and one question
that B asks A.

The questions carry no number of hops and no evidence. Summaries and personas in the file are not part of what is
remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.memory.datasets.memory_records import (
    Dirt,
    Document,
    MemoryConversation,
    MemoryFormat,
    MemoryQuestion,
    answers_of,
    objects,
    text_of,
    turn_text,
)
from context_bench.memory.protocol import Item

_SPEAKERS = {"Speaker 1": "A", "Speaker 2": "B", "A": "A", "B": "B"}


def _sniff(document: Mapping[str, Any]) -> bool:
    return "previous_dialogs" in document and isinstance(document.get("self_instruct"), Mapping)


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        name = f"dmr-{document.number}"
        asked = value["self_instruct"]
        sessions = [
            (objects(each, "dialog", where), _ago(each, dirt, where))
            for each in objects(value, "previous_dialogs", where)
        ]
        sessions.append((objects(value, "dialog", where), None))
        items = [
            item for number, (turns, ago) in enumerate(sessions, 1) for item in _items(number, turns, ago, dirt, where)
        ]
        answers = answers_of(asked.get("A"), dirt, where)
        yield MemoryConversation(
            name, items, [MemoryQuestion(id=name, text=text_of(asked, where, "B"), answers=answers, type="fact")]
        )


def _ago(session: Mapping[str, Any], dirt: Dirt, where: str) -> str | None:
    """The time before the last session, in the file's words: there are no dates."""
    told = text_of(session, where, "time_back")
    number, unit = text_of(session, where, "time_num"), text_of(session, where, "time_unit")
    told = told or (f"{number} {unit}" if number and unit else "")
    if not told:
        dirt.add("session dates missing")
        return None
    return told if told.endswith("ago") else f"{told} ago"


def _items(number: int, turns: list[Mapping[str, Any]], ago: str | None, dirt: Dirt, where: str) -> Iterator[Item]:
    for place, turn in enumerate(turns):
        said = turn_text(turn, where, dirt, "text")
        if not said:
            continue
        speaker = _SPEAKERS.get(text_of(turn, where, "id"), "AB"[place % 2])
        yield Item(f"{number}:{place + 1}", said, speaker=speaker, time=ago, session=str(number))


FORMATS = (
    MemoryFormat(
        "dmr",
        "{previous_dialogs: [{dialog: [{text}], time_back}], dialog: [{text}], self_instruct: {B: question, A: "
        "answer}}",
        _sniff,
        _read,
        rank=30,
    ),
)
