"""LoCoMo as rows of lists (the hub's `KhangPTT373/locomo_preprocess`): questions, answers, evidences, category, turns, sessions.

Turns are found again in the sessions' text: a line that begins with one of the two speakers' names and a colon begins a turn, every other
line goes on with it. A time of day ("at 7:30 pm") begins none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.memory.datasets.dates import iso
from context_bench.memory.datasets.formats.locomo import ask, placed
from context_bench.memory.datasets.haystacks import Dirt, Document, Format, Haystack, kind, paired
from context_bench.memory.protocol import Item

_SAID = re.compile(r"([^\s:][^:\n]{0,40}?):\s+(.*)", re.DOTALL)


def _sniff(document: Mapping[str, Any]) -> bool:
    return {"questions", "answers", "category"} <= document.keys() and bool({"turns", "sessions"} & document.keys())


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[Haystack]:
    for document in documents:
        value, where = document.value, document.where
        questions, answers = _list(value, "questions", where), _list(value, "answers", where)
        evidences, categories = _list(value, "evidences", where), _list(value, "category", where)
        pairs = paired(questions, answers, where)
        name = f"conversation-{document.number + 1}"
        items = list(_items(_sessions(value, where), dirt))
        known = {item.id for item in items}
        asked = []
        for number, (question, answer) in enumerate(pairs):
            evidence = _cited(evidences[number] if number < len(evidences) else None, known, dirt)
            code = categories[number] if number < len(categories) else None
            fields = {"question": question, "answer": answer}
            made = ask(f"{name}-q{number}", fields, code, evidence, dirt, f"{where}, question {number + 1}")
            asked.append(placed(made, items))
        yield Haystack(name, items, asked)


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
    """(date, lines) of each session. Where only turns are given, a turn that begins with another date begins another session."""
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


def _items(sessions: list[tuple[str | None, list[str]]], dirt: Dirt) -> Iterator[Item]:
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


FORMAT = Format(
    "locomo (rows)", "{questions: [], answers: [], category: [], evidences: [[[session, turn]]], sessions: [text]}", _sniff, _read
)
