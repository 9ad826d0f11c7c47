"""LoCoMo as its authors publish it (`locomo10.json`): ten long conversations between two people, 1,986 questions.

Category names follow the paper's counts and the official scorer; they are wrong in many other tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.datasets.dates import when
from context_bench.memory.datasets.haystacks import (
    Dirt,
    Distinct,
    Document,
    Format,
    Haystack,
    Question,
    answers_of,
    kind,
    numbered,
    objects,
    sessions_of,
    strings,
    text_of,
)
from context_bench.memory.protocol import Item

#: code in the data → name
CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
_REFERENCE = re.compile(r"D:?(\d+):(\d+)", re.ASCII)


def _sniff(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("qa"), list) and isinstance(document.get("conversation"), Mapping)


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[Haystack]:
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
        yield Haystack(name, items, questions)


def ask(name: str, fields: Mapping[str, Any], code: Any, evidence: tuple[str, ...], dirt: Dirt, where: str) -> Question:
    """A question of category `code`. Adversarial ones keep no answer: the right reply is that the conversation does not say."""
    category, type_ = named(code, dirt)
    answers = answers_of(fields.get("answer"), dirt, where)
    trap = text_of(fields, where, "adversarial_answer") or None
    answerable = type_ != "adversarial"
    if not answerable and answers:
        dirt.add("adversarial questions with an answer, which was left out")
        trap, answers = trap or answers[0], ()
    return Question(
        id=name,
        text=text_of(fields, where, "question"),
        answers=answers,
        type=type_,
        evidence=evidence,
        answerable=answerable,
        trap=trap,
        category=category,
    )


def placed(question: Question, items: list[Item]) -> Question:
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
            text = with_picture(text_of(turn, f"{where}, {key}", "text"), text_of(turn, f"{where}, {key}", "blip_caption"))
            if not text:
                dirt.add("empty turns left out")
                continue
            name = distinct(text_of(turn, where, "dia_id") or f"D{number}:{place + 1}")
            speaker = text_of(turn, where, "speaker") or None
            yield Item(id=name, text=text, speaker=speaker, time=date, session=f"S{number}")


def with_picture(text: str, caption: str) -> str:
    """What was said, and the caption of the picture that was shown with it."""
    return " ".join(part for part in (text.strip(), f"[picture: {caption.strip()}]" if caption.strip() else "") if part)


def mended(evidence: Any, known: set[str], dirt: Dirt, where: str) -> tuple[str, ...]:
    """Evidence as published, mended: several ids in one text, leading zeros, a stray colon; ids of no turn are left out. All counted."""
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


FORMAT = Format(
    "locomo",
    "[{sample_id, conversation: {session_N: [{speaker, dia_id, text}], session_N_date_time}, qa: [{question, answer, evidence}]}]",
    _sniff,
    _read,
)
