"""Probes: questions about the part of a session that a compressor took away, with what a right answer must hold.

A `CompressionPoint` cuts a session in what is compressed (`prefix`) and what stays as it is (`tail`). A `Probe` is made from the prefix
alone; its `atoms` are the facts that a right answer names, each with the places it was taken from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from context_bench.core.numbers import real
from context_bench.wire.conversation import ChatMessage

ProbeType = Literal["recall", "artifact", "continuation", "decision"]
PROBE_TYPES: tuple[ProbeType, ...] = get_args(ProbeType)


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was said: the message (counted from 0 in the session) and the characters of its text, if it is a text."""

    message: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeAtom:
    """A fact of the answer as it was written, and other ways to write the same. `role`: `wanted`, or `banned` (naming it is a mistake,
    such as the option that was rejected given as the one chosen). `weight`: within its probe.
    """

    text: str
    variants: tuple[str, ...] = ()
    kind: str = ""
    sources: tuple[Source, ...] = ()
    role: Literal["wanted", "banned"] = "wanted"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One question. `made_by`: `structured` (rules), or the model that wrote it."""

    id: str
    type: ProbeType
    question: str
    ground_truth: str
    atoms: tuple[ProbeAtom, ...]
    made_by: str = "structured"

    @property
    def provenance(self) -> list[Source]:
        """All places the answer was taken from, in order, each once."""
        return sorted({source for atom in self.atoms for source in atom.sources}, key=lambda s: (s.message, s.start or 0, s.end or 0))

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"atoms": [atom_to_json(atom) for atom in self.atoms]}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Probe:
        """The probe that `to_json` wrote; `ValueError` names what is not as it should be."""
        if row.get("type") not in PROBE_TYPES:
            raise ValueError(f"the type of a probe is {row.get('type')!r}; expected one of {', '.join(PROBE_TYPES)}")
        atoms = row.get("atoms")
        if not isinstance(row.get("id"), str) or not isinstance(row.get("question"), str) or not isinstance(atoms, list) or not atoms:
            raise ValueError("not a probe: expected id, type, question and a list of atoms")
        kept = tuple(atom_from_json(atom) for atom in atoms)
        return cls(
            row["id"], row["type"], row["question"], str(row.get("ground_truth") or ""), kept, str(row.get("made_by") or "structured")
        )


@dataclass(frozen=True, slots=True)
class CompressionPoint:
    """A session cut before message `index`. `trigger`: why there. System messages at the head are in the prefix as they were sent."""

    session_id: str
    index: int
    trigger: str
    prefix: Sequence[ChatMessage] = field(repr=False)
    tail: Sequence[ChatMessage] = field(repr=False)
    tools: Sequence[Any] = field(default=(), repr=False)

    @property
    def id(self) -> str:
        """`session@index`: the name of the group that shares one compression."""
        return f"{self.session_id}@{self.index}"


def atom_to_json(atom: ProbeAtom) -> dict[str, Any]:
    """An atom as JSON values; what has its default value is left out."""
    row: dict[str, Any] = {"text": atom.text}
    row |= {"variants": list(atom.variants)} if atom.variants else {}
    row |= {"kind": atom.kind} if atom.kind else {}
    row |= {"sources": [[s.message, s.start, s.end] for s in atom.sources]} if atom.sources else {}
    return row | ({"role": atom.role} if atom.role != "wanted" else {}) | ({"weight": atom.weight} if atom.weight != 1.0 else {})


def atom_from_json(row: Any) -> ProbeAtom:
    """The atom of a JSON object, or of a bare text."""
    if isinstance(row, str):
        return ProbeAtom(row)
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str) or not row["text"]:
        raise ValueError(f"an atom is {row!r}; expected text, or an object with a text")
    role = row.get("role", "wanted")
    if role not in ("wanted", "banned"):
        raise ValueError(f"the role of an atom is {role!r}; expected wanted or banned")
    weight = real(row.get("weight", 1.0))
    if weight is None:
        raise ValueError(f"the weight of an atom is {row['weight']!r:.60}; expected a number")
    try:
        sources = tuple(Source(*place) for place in row.get("sources") or ())
    except TypeError:
        raise ValueError(f"the sources of an atom are {row['sources']!r:.80}; expected lists of message, start and end") from None
    variants = tuple(str(each) for each in row.get("variants") or ())
    return ProbeAtom(row["text"], variants, str(row.get("kind") or ""), sources, role, weight)
