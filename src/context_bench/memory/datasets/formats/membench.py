"""MemBench (and MemSim): a list of messages or of things observed, and one question with four choices each.

An item is a step: a message and its reply are one, as `target_step_id` counts them from 0.
"""

from __future__ import annotations

import re
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
    iso,
    kind,
    listed,
    strings,
    text_of,
    when,
)
from context_bench.memory.protocol import Item

_TIME = re.compile(r"time:?\s*'([^']{8,40})'")
_PERSON = {"FirstAgent": "participation", "ThirdAgent": "observation"}


def _sniff(document: Mapping[str, Any]) -> bool:
    return next(_trajectories(document), None) is not None


def _trajectories(
    document: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(names of the groups above it, trajectory) for each; groups nest at most three deep."""
    if "message_list" in document and "QA" in document:
        yield above, document
        return
    for name, value in document.items() if len(above) < 3 else ():
        if isinstance(value, Mapping):
            yield from _trajectories(value, (*above, str(name)))
        elif isinstance(value, list) and above:
            for each in value:
                if isinstance(each, Mapping) and "message_list" in each and "QA" in each:
                    yield (*above, str(name)), each


def _read(documents: Iterable[Document], dirt: Dirt) -> Iterator[MemoryConversation]:
    distinct = Distinct(dirt, "trajectories whose id was used before")
    for document in documents:
        view = next((name for file, name in _PERSON.items() if file in document.path), None)
        level = "reflective" if "HighLevel" in document.path else "factual" if view else None
        for number, (above, value) in enumerate(_trajectories(document.value)):
            where = f"{document.where}, {'/'.join(above)} {number}"
            name = text_of(value, where, "tid") or str(number)
            name = distinct("/".join([*(part for part in (view, level) if part), *above, name]))
            steps = list(_steps(listed(value, "message_list", where), dirt, where))
            items = [item for _, item in steps]
            asked = value["QA"] if isinstance(value["QA"], list) else [value["QA"]]
            questions = [
                _ask(f"{name}-q{i}" if len(asked) > 1 else name, one, above, steps, dirt, where)
                for i, one in enumerate(asked)
            ]  # fmt: skip
            yield MemoryConversation(name, items, questions, granularity="step")


def _steps(messages: list[Any], dirt: Dirt, where: str) -> Iterator[tuple[tuple[int, ...], Item]]:
    """(place, item) of each step; sessions are lists in the list."""
    count = 0
    for number, message in enumerate(messages):
        nested = isinstance(message, list)
        for place, step in enumerate(message if nested else [message]):
            said, time = _step(step, dirt, where)
            position = (number, place) if nested else (number,)
            if said:
                session = str(number + 1) if nested else None
                yield position, Item(str(count), said, time=time, session=session)
            else:
                dirt.add("empty turns left out")
            count += 1


def _step(step: Any, dirt: Dirt, where: str) -> tuple[str, str | None]:
    if isinstance(step, str):
        said, time = step.strip(), ""
    elif isinstance(step, Mapping):
        reply = text_of(step, where, "agent", "assistant", "assistant_message").strip()
        said = text_of(step, where, "user", "user_message", "message").strip()
        said = "\n".join(part for part in (said, f"assistant: {reply}" if reply else "") if part)
        time = text_of(step, where, "time")
    else:
        raise BadInput(f"{where}: a step is {kind(step)}; expected text or an object with user and agent")
    found = time or next(iter(_TIME.findall(said)), "")
    return said, when(found, dirt, "message times")


def _ask(
    name: str, one: Any, above: tuple[str, ...], steps: list[tuple[tuple[int, ...], Item]], dirt: Dirt, where: str
) -> MemoryQuestion:
    if not isinstance(one, Mapping):
        raise BadInput(f"{where}: QA is {kind(one)}; expected an object")
    choices = _choices(one.get("choices"))
    letter = text_of(one, where, "ground_truth").strip().upper()
    answers = answers_of([one["answer"]] if isinstance(one.get("answer"), list) else one.get("answer"), dirt, where)
    if letter not in choices:
        # Some copies keep the letter, or the words of the right choice, as the answer.
        said = answers[0] if answers else ""
        letter = (
            said.upper()
            if said.upper() in choices
            else next((key for key, words in choices.items() if words == said), "")
        )
        if choices and not letter:
            dirt.add("choices of which none is marked right")
    if letter and (not answers or answers[0].upper() == letter):
        answers = (choices[letter],)
    time = text_of(one, where, "time")
    return MemoryQuestion(
        id=name,
        text=text_of(one, where, "question"),
        answers=answers,
        type=above[0].replace("_", "-").lower() if above else "unknown",
        evidence=_targets(one, steps, dirt),
        asked=(iso(time) or time or None),
        choices=choices or None,
        correct=letter or None,
        category=above[1] if len(above) > 1 else None,
    )


def _choices(value: Any) -> dict[str, str]:
    if isinstance(value, list):
        value = dict(zip("ABCDEFGH", value, strict=False))
    if not isinstance(value, Mapping):
        return {}
    return {str(letter).upper(): ", ".join(strings(words)) for letter, words in value.items()}


def _targets(one: Mapping[str, Any], steps: list[tuple[tuple[int, ...], Item]], dirt: Dirt) -> tuple[str, ...]:
    """Evidence is numbers of steps, or pairs (session, step) where there are sessions."""
    by_place = {place: item.id for place, item in steps}
    by_count = {item.id for _, item in steps}
    value = one.get("target_step_id")
    found: list[str] = []
    for each in value if isinstance(value, list) else [value]:
        if each in (None, "") or (isinstance(each, str) and not each.strip()):
            continue
        if isinstance(each, list) and all(isinstance(part, int) for part in each):
            name = by_place.get(tuple(each[:2]))
        else:
            name = str(each) if isinstance(each, str | int) and str(each) in by_count else None
        if name is None:
            dirt.add("pieces of evidence that name nothing")
        else:
            found.append(name)
    if not found:
        dirt.add("questions without evidence")
    return tuple(dict.fromkeys(found))


FORMATS = (
    MemoryFormat(
        "membench",
        "{type: {scenario: [{tid, message_list: [], QA: {question, choices, ground_truth, target_step_id}}]}}",
        _sniff,
        _read,
        rank=70,
    ),
)
