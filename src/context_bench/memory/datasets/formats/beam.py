"""BEAM: conversations of 100 thousand to 10 million tokens with an assistant, and questions on ten abilities.

A document is a row of the hub's files, or what `sources` joins from the folder of one chat: `chat` and
`probing_questions`. Chats come as sessions of messages, as batches of turns, or as plans of batches (10M), where the
ids of messages begin anew with each plan in some copies.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.datasets.memory_records import (
    Dirt,
    Distinct,
    Document,
    MemoryConversation,
    MemoryFormat,
    MemoryQuestion,
    answers_of,
    cited,
    kind,
    objects,
    sessions_of,
    strings,
    text_of,
    turn_text,
    when,
)
from context_bench.memory.protocol import Item

_ANSWERS = ("answer", "ideal_response", "ideal_answer", "ideal_summary")


def _sniff(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("chat"), list) and "probing_questions" in document


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        name = text_of(value, where, "conversation_id") or str(document.number + 1)
        items = list(_items(value["chat"], dirt, where))
        known = {item.id for item in items}
        questions = []
        for ability, asked in _probes(value["probing_questions"], where).items():
            for number, one in enumerate(objects({"probes": asked}, "probes", where), 1):
                at = f"{where}, {ability} {number}"
                evidence = cited(map(str, _numbers(one.get("source_chat_ids"))), known, dirt)
                questions.append(
                    MemoryQuestion(
                        id=f"{name}-{ability}-{number}",
                        text=text_of(one, at, "question"),
                        answers=answers_of(next((one[key] for key in _ANSWERS if one.get(key)), None), dirt, at),
                        type=ability.replace("_", "-"),
                        evidence=evidence,
                        sessions=sessions_of(evidence, items),
                        answerable=ability != "abstention",
                        rubric=tuple(strings(one.get("rubric") or [])),
                    )
                )
        yield MemoryConversation(name, items, questions)


def _probes(value: Any, where: str) -> Mapping[str, Any]:
    """The questions by ability; some copies hold them as the text of a Python dict."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
                raise BadInput(f"{where}: the text of its probing_questions is neither JSON nor a literal") from error
    if not isinstance(value, Mapping) or not all(isinstance(ability, str) for ability in value):
        raise BadInput(
            f"{where}: probing_questions is {kind(value)}; expected an object of lists, one for each ability"
        )
    return value


def _numbers(value: Any) -> Iterator[int]:
    """Ids of messages however they are nested: a list, or lists under names such as `first_statement`."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | Mapping):
        for each in value.values() if isinstance(value, Mapping) else value:
            if not isinstance(each, list | Mapping | int):
                continue
            yield from _numbers(each)


def _items(chat: list[Any], dirt: Dirt, where: str) -> Iterator[Item]:
    distinct = Distinct(dirt, "messages whose id was used before")
    session, offset, last = 0, 0, -1
    for plan in _plans(chat):
        offset = last + 1 if _restarts(plan, last, where) else 0
        for batch in plan:
            session += 1
            anchor = batch.get("time_anchor") if isinstance(batch, Mapping) else None
            messages = list(_messages(batch, where))
            anchor = next((message["time_anchor"] for message in messages if message.get("time_anchor")), anchor)
            time = when(anchor, dirt, "session dates")
            for place, message in enumerate(messages):
                said = turn_text(message, where, dirt, "content")
                number = message.get("id")
                if isinstance(number, int) and not isinstance(number, bool):
                    number += offset
                    last = max(last, number)
                if not said:
                    continue
                name = distinct(str(number) if isinstance(number, int) else f"{session}:{place + 1}")
                yield Item(name, said, role=text_of(message, where, "role") or "user", time=time, session=str(session))


def _plans(chat: list[Any]) -> list[list[Any]]:
    """The batches of each plan; chats without plans are one."""
    if not any(isinstance(part, Mapping) and any(str(key).startswith("plan") for key in part) for part in chat):
        return [chat]
    # A row has a key for every plan, and null for all but its own.
    parts = [batches for part in chat if isinstance(part, Mapping) for batches in part.values()]
    return [batches for batches in parts if isinstance(batches, list)]


def _restarts(plan: list[Any], last: int, where: str) -> bool:
    first = next((message.get("id") for batch in plan for message in _messages(batch, where)), None)
    return isinstance(first, int) and first <= last


def _messages(batch: Any, where: str) -> Iterator[Mapping[str, Any]]:
    """Messages of a batch, however its turns are nested."""
    if isinstance(batch, list):
        for part in batch:
            yield from _messages(part, where)
    elif isinstance(batch, Mapping):
        if "content" in batch or "role" in batch:
            yield batch
        else:
            yield from _messages(batch.get("turns"), where)
    elif batch is not None:
        raise BadInput(f"{where}: a message is {kind(batch)}; expected an object")


FORMATS = (
    MemoryFormat(
        "beam",
        "{conversation_id, chat: [[{role, id, content}]], probing_questions: {ability: [{question, answer, rubric}]}}",
        _sniff,
        _read,
        rank=40,
    ),
)
