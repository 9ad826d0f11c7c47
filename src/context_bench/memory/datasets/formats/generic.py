"""Our own shape, for histories of one's own: one JSON object a line, each a haystack with its questions.

```json
{"id": "ann", "items": [{"id": "t1", "text": "I moved to Porto.", "speaker": "Ann", "time": "2024-05-01T09:00:00", "session": "1"}],
 "questions": [{"question": "Where does Ann live?", "answer": "Porto", "type": "single-hop", "evidence": ["t1"]}]}
```

Items may be called `turns` and be plain text, or stand in `sessions` ({id, date, turns}); questions may be `qa_pairs`
or `queries`. Only a text for each and a question are required. `answers`: several accepted ones; `answerable: false`:
the right reply is not to know.
"""  # noqa: E501

from __future__ import annotations

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
    iso,
    kind,
    listed,
    objects,
    sessions_of,
    strings,
    text_of,
    turn_text,
    when,
)
from context_bench.memory.protocol import Item

_ITEMS = ("items", "turns", "messages", "sessions")
_QUESTIONS = ("questions", "qa_pairs", "queries", "qa")


def _sniff(document: Mapping[str, Any]) -> bool:
    asked = next((document[name] for name in _QUESTIONS if name in document), None)
    told = any(isinstance(document.get(name), list) for name in _ITEMS)
    return told and isinstance(asked, list) and all(isinstance(each, Mapping) for each in asked)


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        name = text_of(value, where, "id") or f"haystack-{document.number + 1}"
        items = list(_items(value, dirt, where))
        known = {item.id for item in items}
        field = next(each for each in _QUESTIONS if each in value)
        questions = [
            _ask(f"{name}-q{number}", one, items, known, dirt, f"{where}, question {number + 1}")
            for number, one in enumerate(objects(value, field, where))
        ]
        yield MemoryConversation(name, items, questions, granularity=text_of(value, where, "granularity") or "turn")


def _items(value: Mapping[str, Any], dirt: Dirt, where: str) -> Iterator[Item]:
    distinct = Distinct(dirt, "items whose id was used before")
    count = 0
    for session, date, turns in _sessions(value, where):
        for turn in turns:
            count += 1
            fields = {"text": turn} if isinstance(turn, str) else turn
            if not isinstance(fields, Mapping):
                raise BadInput(f"{where}: item {count} is {kind(turn)}; expected text or an object with a text")
            said = turn_text(fields, where, dirt, "text", "content")
            if not said:
                continue
            time = text_of(fields, where, "time", "timestamp", "date") or date
            meta = fields.get("metadata")
            yield Item(
                id=distinct(text_of(fields, where, "id") or str(count)),
                text=said,
                role=text_of(fields, where, "role") or "user",
                speaker=text_of(fields, where, "speaker") or None,
                time=when(time, dirt) if time else None,
                session=text_of(fields, where, "session", "session_id") or session,
                metadata=meta if isinstance(meta, Mapping) else {},
            )


def _sessions(value: Mapping[str, Any], where: str) -> Iterator[tuple[str | None, str, list[Any]]]:
    field = next(each for each in _ITEMS if isinstance(value.get(each), list))
    if field != "sessions":
        yield None, "", listed(value, field, where)
        return
    for number, session in enumerate(listed(value, "sessions", where), 1):
        if isinstance(session, list):
            yield str(number), "", session
        elif isinstance(session, Mapping):
            turns = next((listed(session, each, where) for each in _ITEMS[:3] if each in session), [])
            yield text_of(session, where, "id") or str(number), text_of(session, where, "date", "time"), turns
        else:
            raise BadInput(
                f"{where}: session {number} is {kind(session)}; expected a list of turns or an object that has one"
            )


def _ask(
    name: str, one: Mapping[str, Any], items: list[Item], known: set[str], dirt: Dirt, where: str
) -> MemoryQuestion:
    evidence = cited(strings(one.get("evidence") or []), known, dirt)
    told = cited(
        strings(one.get("evidence_sessions") or []),
        {str(item.session) for item in items},
        dirt,
        "evidence sessions not there",
    )
    choices = one.get("choices")
    if isinstance(choices, list):
        choices = dict(zip("ABCDEFGHIJ", strings(choices), strict=False))
    type_ = text_of(one, where, "type", "qa_type", "category")
    if not type_:
        dirt.add("categories without a name")
    asked = text_of(one, where, "asked", "date")
    return MemoryQuestion(
        id=text_of(one, where, "id") or name,
        text=text_of(one, where, "question", "query", "text"),
        answers=answers_of(one.get("answers") or one.get("answer", one.get("expected_answer")), dirt, where),
        type=type_ or "unknown",
        evidence=evidence,
        sessions=told or sessions_of(evidence, items),
        answerable=one.get("answerable") is not False,
        asked=(iso(asked) or asked) or None,
        choices={str(key): str(words) for key, words in choices.items()} if isinstance(choices, Mapping) else None,
        correct=text_of(one, where, "correct_letter") or None,
        rubric=tuple(strings(one.get("rubric") or [])),
        trap=text_of(one, where, "trap") or None,
    )


FORMATS = (
    MemoryFormat(
        "generic",
        '{"id", "items": [{"id", "text", "speaker", "time", "session"}], "questions": [{"question", "answer", '
        '"evidence"}]}',
        _sniff,
        _read,
        rank=100,
    ),
)
