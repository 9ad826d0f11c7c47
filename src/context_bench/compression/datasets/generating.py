"""All probes of one compression point: found, checked against what stays visible, chosen and named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from context_bench.compression.atom_grade import Said as Seen
from context_bench.compression.probes.probe import PROBE_TYPES, CompressionPoint, Probe, ProbeAtom, ProbeType
from context_bench.compression.session_rules.asking import language_of, question_of
from context_bench.compression.session_rules.changes import changes
from context_bench.compression.session_rules.choices import decisions
from context_bench.compression.session_rules.facts import facts
from context_bench.compression.session_rules.ledger import Ledger, ledgers
from context_bench.compression.session_rules.openwork import open_work
from context_bench.compression.session_rules.saying import Candidate, candidate, everything
from context_bench.core.errors import BadInput
from context_bench.wire.conversation import ChatMessage
from context_bench.wire.request import SYSTEM_ROLES

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
    """The probes that rules find in what a compression point takes away, at most `most` of each type; none where nothing was taken.

    `point`: or chat messages with `truncate_before` (all of them are taken without). An atom that the system prompt or the tail still
    shows is no recall; a question never holds its answer; a probe without an atom is not asked. Questions are in the session's language,
    and only ask what the tail leaves true.
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


def visible_without(point: CompressionPoint) -> Seen:
    """What is still to be seen when the prefix is gone: the system prompt and the tail."""
    return Seen(everything([*(message for message in point.prefix if message.get("role") in SYSTEM_ROLES), *point.tail]))


def visible_share(probes: Sequence[Probe], point: CompressionPoint) -> list[float]:
    """Of each probe, the weighted share of its atoms that stay visible when the prefix is gone."""
    visible = visible_without(point)
    return [_known(probe, visible) for probe in probes]


def _known(probe: Probe, visible: Seen) -> float:
    wanted = [atom for atom in probe.atoms if atom.role == "wanted"]
    whole = sum(atom.weight for atom in wanted)
    return sum(atom.weight for atom in wanted if visible.names(atom)) / whole if whole else 0.0


def _checked(kind: ProbeType, point: CompressionPoint, visible: Seen, cwd: str | None, language: str) -> Iterator[Candidate]:
    prefix = [message if message.get("role") not in SYSTEM_ROLES else {**message, "content": ""} for message in point.prefix]
    whole = [*prefix, *point.tail]
    then = now = None
    if kind == "artifact":
        then, now = ledgers(whole, [len(prefix), len(whole)], cwd=cwd)
    found = sorted(_candidates(kind, prefix, then), key=lambda one: one.rank)
    holds = _still_holds(kind, whole, now) if point.tail and kind != "decision" else None
    for one in found:
        question = question_of(one.key, *one.fill, language=language) if one.key else one.question
        held = Seen(question)
        kept = [atom for atom in one.atoms if holds is None or atom.text in holds.get(_matter(one), ())]
        if kind == "recall":
            if len(kept) < len(one.atoms) and one.key not in _LISTS:
                continue
            kept = [atom for atom in kept if atom.role == "banned" or not visible.names(atom)]
        asked = tuple(atom for atom in kept if not held.names(replace(atom, variants=())))
        if any(atom.role == "wanted" for atom in asked):
            yield replace(one, atoms=asked, question=question)


def _candidates(kind: ProbeType, messages: Sequence[ChatMessage], ledger: Ledger | None) -> Iterator[Candidate]:
    makers = {"recall": facts, "decision": decisions, "continuation": open_work}
    yield from _artifacts(messages, ledger) if ledger is not None else makers[kind](messages)


def _still_holds(kind: ProbeType, whole: Sequence[ChatMessage], ledger: Ledger | None) -> dict[tuple[str, tuple[str, ...]], set[str]]:
    """What is true at the end of the session, by what it is about: the tail may have changed what held where it was cut."""
    found: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for one in _candidates(kind, whole, ledger):
        found.setdefault(_matter(one), set()).update(atom.text for atom in one.atoms)
    return found


def _matter(one: Candidate) -> tuple[str, tuple[str, ...]]:
    return ("todo" if one.key in ("todo", "listed", "next") else "value" if one.key == "current" else one.key), one.fill


def _artifacts(prefix: Sequence[ChatMessage], ledger: Ledger) -> Iterator[Candidate]:
    for rank, state in enumerate(_STATES):
        paths: list[str] = getattr(ledger, state)
        if paths:
            found = [ProbeAtom(path, ledger.forms(path), "path", ledger.sources(path)) for path in paths]
            yield candidate("artifact", state, (), ", ".join(paths), found, float(rank))
    yield from changes(prefix, ledger)


def _different(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Each question once, and no fact twice."""
    questions: set[str] = set()
    known: set[str] = set()
    for one in candidates:
        texts = {atom.text for atom in one.atoms if atom.role == "wanted"}
        if one.question not in questions and not texts <= known:
            questions.add(one.question)
            known |= texts
            yield one
