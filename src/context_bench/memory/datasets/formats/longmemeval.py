"""LongMemEval as its authors publish it: each of 500 questions has a history of its own, of 1 to 500 sessions with an
assistant.

Items have the official ids of turns, `SESSION_N` with N from 1.
"""

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
    strings,
    text_of,
    turn_text,
    when,
)
from context_bench.memory.protocol import Item

_Session = tuple[str, Any, list[Mapping[str, Any]]]  # id, date as written, turns


def _sniff(document: Mapping[str, Any]) -> bool:
    return "haystack_sessions" in document and "question" in document


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        name = text_of(value, where, "question_id") or f"question-{document.number + 1}"
        items: list[Item] = []
        evidence: list[str] = []
        sessions = _in_order(_sessions(value, dirt, where), dirt)
        for session, date, turns in sessions:
            time = when(date, dirt, "session dates")
            for number, turn in enumerate(turns, 1):
                said = turn_text(turn, where, dirt, "content", "text")
                if not said:
                    continue
                items.append(
                    Item(
                        f"{session}_{number}",
                        said,
                        role=text_of(turn, where, "role") or "user",
                        time=time,
                        session=session,
                    )
                )
                if turn.get("has_answer") is True:
                    evidence.append(items[-1].id)
        type_ = text_of(value, where, "question_type") or "unknown"
        if type_ == "unknown":
            dirt.add("categories without a name")
        answers = answers_of(value.get("answer"), dirt, where)
        told = cited(
            strings(value.get("answer_session_ids")),
            {session for session, _, _ in sessions},
            dirt,
            "evidence sessions not there",
        )
        if not evidence:
            dirt.add("questions without a turn as evidence")
        yield MemoryConversation(
            name,
            items,
            [
                MemoryQuestion(
                    id=name,
                    text=text_of(value, where, "question"),
                    answers=answers,
                    type=type_,
                    evidence=tuple(evidence),
                    sessions=told,
                    answerable=not name.endswith("_abs"),
                    asked=when(value.get("question_date"), dirt, "question dates"),
                    rubric=answers if type_ == "single-session-preference" else (),
                )
            ],
        )


def _sessions(value: Mapping[str, Any], dirt: Dirt, where: str) -> list[_Session]:
    """The sessions. One that is there twice, word for word under one id, is taken once; another under the same id is
    renamed.
    """
    ids, dates = listed(value, "haystack_session_ids", where), listed(value, "haystack_dates", where)
    distinct = Distinct(dirt, "other sessions under an id used before")
    seen: dict[str, list[Any]] = {}
    found: list[_Session] = []
    for number, turns in enumerate(listed(value, "haystack_sessions", where)):
        if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
            raise BadInput(f"{where}: a session is {kind(turns)}; expected a list of turns")
        name = str(ids[number]) if number < len(ids) and isinstance(ids[number], str | int) else f"session-{number + 1}"
        if turns in seen.get(name, []):
            dirt.add("sessions repeated word for word, left out")
            continue
        seen.setdefault(name, []).append(turns)
        found.append((distinct(name), dates[number] if number < len(dates) else None, turns))
    return found


def _in_order(sessions: list[_Session], dirt: Dirt) -> list[_Session]:
    """By time, if all times can be read: the file with evidence only is not in order."""
    times = [iso(date) if isinstance(date, str) else None for _, date, _ in sessions]
    if None in times or times == sorted(times, key=str):
        return sessions
    dirt.add("histories put in order of time")
    return [session for _, session in sorted(zip(times, sessions, strict=True), key=lambda pair: str(pair[0]))]


FORMATS = (
    MemoryFormat(
        "longmemeval",
        "[{question_id, question_type, question, answer, haystack_session_ids, haystack_dates, haystack_sessions: "
        "[[{role, content}]]}]",
        _sniff,
        _read,
        rank=20,
    ),
)
