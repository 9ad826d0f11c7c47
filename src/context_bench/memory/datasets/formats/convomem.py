"""ConvoMem: conversations with an assistant at work, six kinds of question. The kind is told by the folder a file lies
in, not by the file.

Two shapes: evidence with the conversations that hold it (each question is a haystack of its own), and test cases where
several questions share a mix of conversations. Evidence is told by its words; which messages say them is looked up
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from context_bench.memory.datasets.memory_records import (
    Dirt,
    Distinct,
    Document,
    MemoryConversation,
    MemoryFormat,
    MemoryQuestion,
    answers_of,
    objects,
    sessions_of,
    text_of,
    turn_text,
)
from context_bench.memory.protocol import Item

#: folder → kind of question
KINDS = {
    "user_evidence": "user-facts",
    "assistant_facts_evidence": "assistant-facts",
    "changing_evidence": "changing-facts",
    "abstention_evidence": "abstention",
    "preference_evidence": "preferences",
    "implicit_connection_evidence": "implicit-connections",
}


def _sniff(document: Mapping[str, Any]) -> bool:
    return any(isinstance(document.get(key), list) for key in ("evidence_items", "evidenceItems"))


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        found = objects(value, "evidence_items" if "evidence_items" in value else "evidenceItems", where)
        type_ = next((name for folder, name in KINDS.items() if folder in document.path), "unknown")
        if type_ == "unknown":
            dirt.add("categories without a name", len(found))
        # Whoever is asked is told by the file's name, and questions have no id.
        stem = re.sub(r"\.jsonl?$", "", document.path.rpartition("/")[2]) or "case"
        name = (
            f"{type_}/{stem}"
            if document.number == 0 and not value.get("conversations")
            else f"{type_}/{stem}-{document.number + 1}"
        )
        shared = objects(value, "conversations", where)
        if shared:
            items = list(_items(shared, dirt, where))
            words = _words(items)
            yield MemoryConversation(
                name,
                items,
                [_ask(f"{name}-q{i}", one, type_, items, words, dirt, where) for i, one in enumerate(found)],
            )
            continue
        for number, one in enumerate(found):
            items = list(_items(objects(one, "conversations", where), dirt, where))
            yield MemoryConversation(
                f"{name}-q{number}", items, [_ask(f"{name}-q{number}", one, type_, items, _words(items), dirt, where)]
            )


def _items(conversations: Sequence[Mapping[str, Any]], dirt: Dirt, where: str) -> Iterator[Item]:
    distinct = Distinct(dirt, "conversations whose id was used before")
    for number, conversation in enumerate(conversations, 1):
        session = distinct(text_of(conversation, where, "id") or str(number))
        for place, message in enumerate(objects(conversation, "messages", where), 1):
            said = turn_text(message, where, dirt, "text")
            if not said:
                continue
            role = text_of(message, where, "speaker").lower() or "user"
            yield Item(f"{session}:{place}", said, role=role, session=session)


_Words = list[tuple[str, str]]  # (id of an item, its text in single spaces)


def _words(items: list[Item]) -> _Words:
    return [(item.id, " ".join(item.text.split())) for item in items]


def _ask(
    name: str, one: Mapping[str, Any], type_: str, items: list[Item], texts: _Words, dirt: Dirt, where: str
) -> MemoryQuestion:
    evidence = _items_with(objects(one, "message_evidences", where), texts, dirt, where)
    return MemoryQuestion(
        id=name,
        text=text_of(one, where, "question"),
        answers=answers_of(one.get("answer"), dirt, where),
        type=type_,
        evidence=evidence,
        sessions=sessions_of(evidence, items),
        answerable=type_ != "abstention",
        category=text_of(one, where, "category") or None,
    )


def _items_with(evidences: Sequence[Mapping[str, Any]], texts: _Words, dirt: Dirt, where: str) -> tuple[str, ...]:
    """The items that say the evidence: word for word, else the only one that holds it or is held by it."""
    found: list[str] = []
    for each in evidences:
        words = " ".join(text_of(each, where, "text").split())
        same = [name for name, text in texts if text == words]
        near = [name for name, text in texts if words in text or text in words] if words else []
        if same:
            found.append(same[0])
        elif len(near) == 1:
            found.append(near[0])
        else:
            dirt.add("pieces of evidence that no message says")
    return tuple(dict.fromkeys(found))


FORMATS = (
    MemoryFormat(
        "convomem",
        "{evidence_items: [{question, answer, message_evidences: [{speaker, text}], conversations: [{messages}]}]}",
        _sniff,
        _read,
        rank=60,
    ),
)
