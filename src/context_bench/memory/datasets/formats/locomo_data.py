"""LoCoMo as its authors publish it (`locomo10.json`): ten long conversations between two people, 1,986 questions.

Category names follow the paper's counts and the official scorer; they are wrong in many other tools.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
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
    iso,
    kind,
    numbered,
    objects,
    paired,
    sessions_of,
    strings,
    text_of,
    when,
)
from context_bench.memory.protocol import Item

#: code in the data → name
CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
_REFERENCE = re.compile(r"D:?(\d+):(\d+)", re.ASCII)


def _sniff(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("qa"), list) and isinstance(document.get("conversation"), Mapping)


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        name = text_of(value, where, "sample_id") or f"conversation-{document.number + 1}"
        items = list(_items(value["conversation"], dirt, where))
        known = {item.id for item in items}
        questions = []
        for number, asked in enumerate(objects(value, "qa", where)):
            at = f"{where}, question {number + 1}"
            evidence = mended(asked.get("evidence"), known, dirt, at)
            question = ask(f"{name}-q{number}", asked, asked.get("category"), evidence, dirt, at)
            questions.append(placed(question, items))
        yield MemoryConversation(name, items, questions)


def ask(
    name: str, fields: Mapping[str, Any], code: Any, evidence: tuple[str, ...], dirt: Dirt, where: str
) -> MemoryQuestion:
    """A question of category `code`. Adversarial ones keep no answer: the right reply is that the conversation does not
    say.
    """
    category, type_ = named(code, dirt)
    answers = answers_of(fields.get("answer"), dirt, where)
    trap = text_of(fields, where, "adversarial_answer") or None
    answerable = type_ != "adversarial"
    if not answerable and answers:
        dirt.add("adversarial questions with an answer, which was left out")
        trap, answers = trap or answers[0], ()
    return MemoryQuestion(
        id=name,
        text=text_of(fields, where, "question"),
        answers=answers,
        type=type_,
        evidence=evidence,
        answerable=answerable,
        trap=trap,
        category=category,
    )


def placed(question: MemoryQuestion, items: list[Item]) -> MemoryQuestion:
    """The question with the sessions of its evidence."""
    return replace(question, sessions=sessions_of(question.evidence, items))


def named(code: Any, dirt: Dirt) -> tuple[str | None, str]:
    """(code, name) of a category: known codes by number or by name, others under their own words (counted)."""
    written = re.sub(r"[\s_]+", "-", str(code).strip().lower()) if isinstance(code, str | int) else ""
    if written in CATEGORIES:
        return written, CATEGORIES[written]
    by_name = {name: number for number, name in CATEGORIES.items()}
    if written in by_name:
        return by_name[written], written
    dirt.add("categories without a name")
    return written or None, f"category-{written}" if written else "unknown"


def _items(conversation: Mapping[str, Any], dirt: Dirt, where: str) -> Iterator[Item]:
    sessions = numbered(conversation, r"session_(\d+)")
    there = {number for number, _ in sessions}
    dates = numbered(conversation, r"session_(\d+)_date_time")
    dirt.add("dates without a session", sum(number not in there for number, _ in dates))
    distinct = Distinct(dirt, "turns whose id was used before")
    for number, key in sessions:
        turns = objects(conversation, key, where)
        if not turns:
            continue
        date = when(conversation.get(f"{key}_date_time"), dirt, "session dates")
        for place, turn in enumerate(turns):
            text = with_picture(
                text_of(turn, f"{where}, {key}", "text"), text_of(turn, f"{where}, {key}", "blip_caption")
            )
            if not text:
                dirt.add("empty turns left out")
                continue
            name = distinct(text_of(turn, where, "dia_id") or f"D{number}:{place + 1}")
            speaker = text_of(turn, where, "speaker") or None
            yield Item(id=name, text=text, speaker=speaker, time=date, session=f"S{number}")


def with_picture(text: str, caption: str) -> str:
    """The words of a turn, and the caption of the picture that was shown with it."""
    return " ".join(part for part in (text.strip(), f"[picture: {caption.strip()}]" if caption.strip() else "") if part)


def mended(evidence: Any, known: set[str], dirt: Dirt, where: str) -> tuple[str, ...]:
    """Evidence as published, mended: several ids in one text, leading zeros, a stray colon; ids of no turn are left
    out. All counted.
    """
    if not isinstance(evidence, list | str | None):
        raise BadInput(f"{where}: evidence is {kind(evidence)}; expected a list of turn ids")
    found: list[str] = []
    for written in strings(evidence):
        ids = [f"D{int(session[:9])}:{int(turn[:9])}" for session, turn in _REFERENCE.findall(written)]
        if written in known:
            ids = [written]
        elif ids and ids != [written]:
            dirt.add("pieces of evidence mended")
        dirt.add("pieces of evidence that name nothing", not ids or sum(each not in known for each in ids))
        found += [each for each in ids if each in known]
    if not found:
        dirt.add("questions without evidence")
    return tuple(dict.fromkeys(found))


_SAID = re.compile(r"([^\s:][^:\n]{0,40}?):\s+(.*)", re.DOTALL)


def _sniff_rows(document: Mapping[str, Any]) -> bool:
    return {"questions", "answers", "category"} <= document.keys() and bool({"turns", "sessions"} & document.keys())


def _read_rows(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    for document in documents:
        value, where = document.value, document.where
        questions, answers = _list(value, "questions", where), _list(value, "answers", where)
        evidences, categories = _list(value, "evidences", where), _list(value, "category", where)
        pairs = paired(questions, answers, where)
        name = f"conversation-{document.number + 1}"
        items = list(_row_items(_sessions(value, where), dirt))
        known = {item.id for item in items}
        asked = []
        for number, (question, answer) in enumerate(pairs):
            evidence = _cited(evidences[number] if number < len(evidences) else None, known, dirt)
            code = categories[number] if number < len(categories) else None
            fields = {"question": question, "answer": answer}
            made = ask(f"{name}-q{number}", fields, code, evidence, dirt, f"{where}, question {number + 1}")
            asked.append(placed(made, items))
        yield MemoryConversation(name, items, asked)


def _list(value: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """A list, or one that was written as JSON text."""
    found = value.get(name)
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError) as error:
            raise BadInput(f'{where}: "{name}" is text that holds no JSON list') from error
    if not isinstance(found, list | None):
        raise BadInput(f'{where}: "{name}" is {kind(found)}; expected a list')
    return found or []


def _sessions(value: Mapping[str, Any], where: str) -> list[tuple[str | None, list[str]]]:
    """(date, lines) of each session. Where only turns are given, a turn that begins with another date begins another
    session.
    """
    parts = [str(part) for part in _list(value, "sessions", where) or _list(value, "turns", where)]
    joined: list[tuple[str | None, list[str]]] = []
    for part in parts:
        lines = [line.strip() for line in part.strip().splitlines() if line.strip()]
        date = iso(lines[0]) if lines else None
        lines = lines[1:] if date else lines
        if value.get("sessions") or not joined or (date and date != joined[-1][0]):
            joined.append((date, lines))
        else:
            joined[-1][1].extend(lines)
    return joined


def _row_items(sessions: list[tuple[str | None, list[str]]], dirt: Dirt) -> Iterator[Item]:
    speakers = _speakers(line for _, lines in sessions for line in lines)
    for number, (date, lines) in enumerate(sessions, 1):
        if lines and date is None:
            dirt.add("session dates missing")
        for place, (speaker, said) in enumerate(_turns(lines, speakers), 1):
            yield Item(id=f"D{number}:{place}", text=said, speaker=speaker, time=date, session=f"S{number}")


def _speakers(lines: Iterable[str]) -> set[str]:
    """The two names that begin most lines."""
    begins = Counter(match[1] for line in lines if (match := _SAID.fullmatch(line)))
    return {name for name, _ in begins.most_common(2)}


def _turns(lines: list[str], speakers: set[str]) -> list[tuple[str | None, str]]:
    turns: list[tuple[str | None, str]] = []
    for line in lines:
        match = _SAID.fullmatch(line)
        if match and match[1] in speakers:
            turns.append((match[1], match[2]))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{line}")
        else:
            turns.append((None, line))
    return turns


def _cited(evidence: Any, known: set[str], dirt: Dirt) -> tuple[str, ...]:
    """Ids of `[[session, turn], …]`; what names no turn is counted and left out."""
    found = []
    for each in evidence if isinstance(evidence, list) else []:
        name = f"D{each[0]}:{each[1]}" if isinstance(each, list) and len(each) == 2 else str(each)
        if name in known:
            found.append(name)
        else:
            dirt.add("pieces of evidence that name nothing")
    if not found:
        dirt.add("questions without evidence")
    return tuple(dict.fromkeys(found))


_ROWS = MemoryFormat(
    "locomo (rows)",
    "{questions: [], answers: [], category: [], evidences: [[[session, turn]]], sessions: [text]}",
    _sniff_rows,
    _read_rows,
    rank=11,
)
_CONVERSATIONS = MemoryFormat(
    "locomo",
    "[{sample_id, conversation: {session_N: [{speaker, dia_id, text}], session_N_date_time}, qa: [{question, answer, "
    "evidence}]}]",
    _sniff,
    _read,
    rank=10,
)
FORMATS = (_CONVERSATIONS, _ROWS)
