"""Compression points of a session, and all probes of one point: found, checked against what stays visible, chosen and
named.

A point lies before a message, never between a tool call and its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from context_bench.compression.evaluators.probe_atoms import SearchableText
from context_bench.compression.probes import (
    PROBE_TYPES,
    CompressionPoint,
    Probe,
    ProbeAtom,
    ProbeType,
    tokens_of,
)
from context_bench.compression.recorded import recorded_points
from context_bench.compression.session_rules.artifacts import ArtifactLedger, changes, ledgers
from context_bench.compression.session_rules.facts import facts
from context_bench.compression.session_rules.open_tasks import open_work
from context_bench.compression.session_rules.utterances import (
    Candidate,
    candidate,
    decisions,
    everything,
    language_of,
    question_of,
)
from context_bench.core.errors import BadInput
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.session import Session
from context_bench.wire.conversation import ChatMessage
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES

#: At most so many probes of a type at one point.
MOST: dict[ProbeType, int] = {"recall": 8, "artifact": 6, "continuation": 3, "decision": 6}
#: Questions whose answers are lists: what of them still holds is asked.
_LISTS = ("rules",)
_STATES = ("created", "modified", "deleted", "read_only")


def generate_probes(
    point: CompressionPoint | Sequence[ChatMessage],
    *,
    truncate_before: int | None = None,
    cwd: str | None = None,
    most: dict[ProbeType, int] | None = None,
) -> list[Probe]:
    """The probes that rules find in what a compression point takes away, at most `most` of each type; none where
    nothing was taken.

    `point`: or chat messages with `truncate_before` (all of them are taken without). An atom that the system prompt or
    the tail still shows is no recall; a question never holds its answer; a probe without an atom is not asked.
    Questions are in the session's language, and only ask what the tail leaves true.
    """
    if not isinstance(point, CompressionPoint):
        messages = list(point)
        index = len(messages) if truncate_before is None else truncate_before
        if not 0 <= index <= len(messages):
            raise BadInput(f"truncate_before is {index}; expected 0 to {len(messages)}, the number of messages")
        point = CompressionPoint("session", index, f"at:{index}", messages[:index], messages[index:])
    visible = visible_without(point)
    language = language_of(point.prefix)
    chosen: list[Probe] = []
    limits = {**MOST, **(most or {})}
    for kind in PROBE_TYPES:
        found = _different(_checked(kind, point, visible, cwd, language))
        for number, one in enumerate(islice(found, limits[kind]), 1):
            name = f"{point.id}#{kind}-{number}"
            chosen.append(Probe(name, kind, one.question, one.truth, one.atoms))
    return chosen


def visible_without(point: CompressionPoint) -> SearchableText:
    """The part that stays visible without the prefix: the system prompt and the tail."""
    return SearchableText(
        everything([*(message for message in point.prefix if message.get("role") in SYSTEM_ROLES), *point.tail])
    )


def visible_share(probes: Sequence[Probe], point: CompressionPoint) -> list[float]:
    """Of each probe, the weighted share of its atoms that stay visible when the prefix is gone."""
    visible = visible_without(point)
    return [_visible_share_of(probe, visible) for probe in probes]


def _visible_share_of(probe: Probe, visible: SearchableText) -> float:
    wanted = [atom for atom in probe.atoms if atom.role == "wanted"]
    whole = sum(atom.weight for atom in wanted)
    return sum(atom.weight for atom in wanted if visible.names(atom)) / whole if whole else 0.0


def _checked(
    kind: ProbeType, point: CompressionPoint, visible: SearchableText, cwd: str | None, language: str
) -> Iterator[Candidate]:
    prefix = [
        message if message.get("role") not in SYSTEM_ROLES else {**message, "content": ""} for message in point.prefix
    ]
    whole = [*prefix, *point.tail]
    then = now = None
    if kind == "artifact":
        then, now = ledgers(whole, [len(prefix), len(whole)], cwd=cwd)
    found = sorted(_candidates(kind, prefix, then), key=lambda one: one.rank)
    holds = _still_holds(kind, whole, now) if point.tail and kind != "decision" else None
    for one in found:
        question = question_of(one.key, *one.fill, language=language) if one.key else one.question
        held = SearchableText(question)
        kept = [atom for atom in one.atoms if holds is None or atom.text in holds.get(_matter(one), ())]
        if kind == "recall":
            if len(kept) < len(one.atoms) and one.key not in _LISTS:
                continue
            kept = [atom for atom in kept if atom.role == "banned" or not visible.names(atom)]
        asked = tuple(atom for atom in kept if not held.names(replace(atom, variants=())))
        if any(atom.role == "wanted" for atom in asked):
            yield replace(one, atoms=asked, question=question)


def _candidates(kind: ProbeType, messages: Sequence[ChatMessage], ledger: ArtifactLedger | None) -> Iterator[Candidate]:
    makers = {"recall": facts, "decision": decisions, "continuation": open_work}
    yield from _artifacts(messages, ledger) if ledger is not None else makers[kind](messages)


def _still_holds(
    kind: ProbeType, whole: Sequence[ChatMessage], ledger: ArtifactLedger | None
) -> dict[tuple[str, tuple[str, ...]], set[str]]:
    """The facts at the end of the session, by their subject: the tail may have changed what held at the cut."""
    found: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for one in _candidates(kind, whole, ledger):
        found.setdefault(_matter(one), set()).update(atom.text for atom in one.atoms)
    return found


def _matter(one: Candidate) -> tuple[str, tuple[str, ...]]:
    return ("todo" if one.key in ("todo", "listed", "next") else "value" if one.key == "current" else one.key), one.fill


def _artifacts(prefix: Sequence[ChatMessage], ledger: ArtifactLedger) -> Iterator[Candidate]:
    for rank, state in enumerate(_STATES):
        paths: list[str] = getattr(ledger, state)
        if paths:
            found = [ProbeAtom(path, ledger.forms(path), "path", ledger.sources(path)) for path in paths]
            yield candidate("artifact", state, (), ", ".join(paths), found, float(rank))
    yield from changes(prefix, ledger)


def _different(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Each question once, and no fact twice."""
    questions: set[str] = set()
    facts: set[str] = set()
    for one in candidates:
        texts = {atom.text for atom in one.atoms if atom.role == "wanted"}
        if one.question not in questions and not texts <= facts:
            questions.add(one.question)
            facts |= texts
            yield one


_GRAMMAR = (
    "fraction:0.75[,…], tokens:N[,…], every:N (messages), at:I[,…] (messages), task-boundary or recorded (where the "
    "session's own client compacted it)"
)


def compression_points(
    session: Session | Sequence[ChatMessage],
    points: str = "fraction:0.75",
    *,
    window: int | None = None,
    counter: TokenCounter | None = None,
) -> list[CompressionPoint]:
    """The places at which a session is cut, in order.

    `points`: `fraction:F` where so much of `window` tokens (without a window: of the whole session) is used up;
    `tokens:N`; `every:N` messages; `at:I,J` before these messages, counted from 0; `task-boundary` before each message
    of the user but the first; `recorded` where the session's client compacted it, with all messages before. A place
    that would part a tool call from its result is moved to before the call. Places with nothing to compress, or beyond
    the end, are left out. Raises `BadInput` for a text that is none of these.
    """
    if points == "recorded":
        return [point for point, _ in recorded_points(session)] if isinstance(session, Session) else []
    messages, name, tools = _parts(session)
    wanted = _indices(points, messages, window, counter or counter_for())
    head = next((at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))
    places = dict.fromkeys(_whole(messages, index) for index in wanted)
    kept = [index for index in sorted(places) if head < index <= len(messages)]
    return [CompressionPoint(name, index, points, messages[:index], messages[index:], tools) for index in kept]


def _parts(session: Session | Sequence[ChatMessage]) -> tuple[list[ChatMessage], str, Sequence[object]]:
    if isinstance(session, Session):
        return session.messages, session.id, session.requests[-1].chat.tools if session.requests else ()
    return list(session), "session", ()


def _indices(points: str, messages: Sequence[ChatMessage], window: int | None, counter: TokenCounter) -> Iterator[int]:
    kind, _, text = points.partition(":")
    if kind == "task-boundary" and not text:
        users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        yield from users[1:]
        return
    numbers = _numbers(points, text)
    if kind == "at":
        yield from (int(number) for number in numbers if number == int(number))
    elif kind == "every" and len(numbers) == 1 and numbers[0] >= 1:
        step = int(numbers[0])
        yield from range(step, len(messages) + 1, step)
    elif kind in ("fraction", "tokens") and all(number > 0 for number in numbers):
        used = list(accumulate(tokens_of([message], counter) for message in messages))
        whole = (window or (used[-1] if used else 0)) if kind == "fraction" else 1
        if kind == "fraction" and max(numbers) > 1:
            raise BadInput(f"the points are {points!r}: a fraction is above 0 and at most 1")
        yield from (place for share in numbers if (place := _reached(used, share * whole)) is not None)
    else:
        raise BadInput(f"the points are {points!r}; expected {_GRAMMAR}")


def _numbers(points: str, text: str) -> list[float]:
    found = [part.strip() for part in text.strip("[] ").split(",")]
    if not all(re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", part) for part in found):
        raise BadInput(f"the points are {points!r}; expected {_GRAMMAR}")
    return [float(part) for part in found]


def _reached(used: Sequence[int], tokens: float) -> int | None:
    """The number of messages that use so many tokens up; `None` if all of them do not."""
    return next((at for at, total in enumerate(used, 1) if total >= tokens - 1e-9), None)


def _whole(messages: Sequence[ChatMessage], index: int) -> int:
    """`index`, or before the calls whose results it would part from them."""
    if index >= len(messages):
        return index
    while index > 0 and messages[index].get("role") in RESULT_ROLES:
        index -= 1
    return index
