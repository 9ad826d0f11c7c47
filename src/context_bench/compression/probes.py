"""Probes: questions about the part of a session that a compressor took away, with the facts of a right answer.

A `CompressionPoint` cuts a session in what is compressed (`prefix`) and what stays as it is (`tail`). A `Probe` is made
from the prefix alone; its `atoms` are the facts that a right answer names, each with the places it was taken from.
During a run a probe is an example that holds the session once, as text that all its probes share, and the place of the
cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json
from context_bench.core.numbers import real
from context_bench.core.records import Example
from context_bench.core.tokens import TokenCounter
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of, tools_used

ProbeType = Literal["recall", "artifact", "continuation", "decision"]
PROBE_TYPES: tuple[ProbeType, ...] = get_args(ProbeType)


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a text: the message (counted from 0 in the session) and the characters of its text, if it is a
    text.
    """

    message: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeAtom:
    """A fact of the answer as it was written, and other ways to write the same. `role`: `wanted`, or `banned` (naming
    it is a mistake, such as the option that was rejected given as the one chosen). `weight`: within its probe.
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
        return sorted(
            {source for atom in self.atoms for source in atom.sources},
            key=lambda s: (s.message, s.start or 0, s.end or 0),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"atoms": [atom_to_json(atom) for atom in self.atoms]}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Probe:
        """The probe that `to_json` wrote; `ValueError` names what is not as it should be."""
        if row.get("type") not in PROBE_TYPES:
            raise ValueError(f"the type of a probe is {row.get('type')!r}; expected one of {', '.join(PROBE_TYPES)}")
        atoms = row.get("atoms")
        if (
            not isinstance(row.get("id"), str)
            or not isinstance(row.get("question"), str)
            or not isinstance(atoms, list)
            or not atoms
        ):
            raise ValueError("not a probe: expected id, type, question and a list of atoms")
        kept = tuple(atom_from_json(atom) for atom in atoms)
        return cls(
            row["id"],
            row["type"],
            row["question"],
            str(row.get("ground_truth") or ""),
            kept,
            str(row.get("made_by") or "structured"),
        )


@dataclass(frozen=True, slots=True)
class CompressionPoint:
    """A session cut before message `index`. `trigger`: why there. System messages at the head are in the prefix as they
    were sent.
    """

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
    return (
        row
        | ({"role": atom.role} if atom.role != "wanted" else {})
        | ({"weight": atom.weight} if atom.weight != 1.0 else {})
    )


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
        raise ValueError(
            f"the sources of an atom are {row['sources']!r:.80}; expected lists of message, start and end"
        ) from None
    variants = tuple(str(each) for each in row.get("variants") or ())
    return ProbeAtom(row["text"], variants, str(row.get("kind") or ""), sources, role, weight)


DATASET = "probes"
#: How `rendered` begins a message.
_HEAD = re.compile(
    r"(?:\A|(?<=\n\n))(?:(?P<role>user|assistant|tool result): |(?:user|assistant) calls (?P<tool>[^\s:]{1,120}): )"
)


def example_of(probe: Probe, *, session: str, group: str, cluster: str, points: Sequence[int]) -> Example:
    """One probe as an example. `session`: its messages, `packed`; `points`: where it is compressed, one after the
    other; `group`: what is compressed once for all of its probes. Its `cycle` says after how many compressions it is
    asked.
    """
    return {
        "id": probe.id if len(points) == 1 else f"{probe.id}~{len(points)}",
        "dataset": DATASET,
        "question": probe.question,
        "answer": probe.ground_truth,
        "probe_type": probe.type,
        "qa_type": probe.type,
        "atoms": [atom_to_json(atom) for atom in probe.atoms],
        "group": group,
        "cluster": cluster,
        "points": list(points),
        "cycle": len(points),
        "session": session,
    }


def packed(messages: Sequence[ChatMessage]) -> str:
    """Chat messages as one text, one JSON object a line."""
    return "\n".join(json.dumps(message, ensure_ascii=False) for message in messages)


@lru_cache(maxsize=16)
def _unpacked(text: str) -> tuple[ChatMessage, ...]:
    return tuple(json.loads(line) for line in filter(None, text.split("\n")))


def messages_of(example: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages of an example's session; do not change them in place. `BadInput` for an example that is no probe."""
    text, points = example.get("session"), example.get("points")
    if not isinstance(text, str) or not isinstance(points, list) or not points:
        raise BadInput(f"example {example.get('id')!r} has no session and points: it is not of a probe dataset")
    return list(_unpacked(text))


def session_tools(example: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Chat tools that fit the calls of an example's whole session, the same wherever it is cut; do not change them in
    place.
    """
    messages_of(example)  # says what is wrong with an example that is no probe
    return list(_tools(str(example["session"])))


@lru_cache(maxsize=16)
def _tools(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(tools_used(_unpacked(text)))


def rendered(messages: Sequence[ChatMessage]) -> str:
    """Messages as a reader sees them in plain text: who speaks, what is said, which tools are called with what, what
    they gave back.
    """
    return "\n\n".join(line for message in messages for line in _lines(message))


def unrendered(text: str) -> list[ChatMessage] | None:
    """The messages of a text that `rendered` made, as far as they are still there; `None` for a text that is no such
    rendering.

    A result belongs to the calls right before it, in order; a call that was cut keeps what is left of its arguments.
    """
    heads = list(_HEAD.finditer(text))
    if not any(hit["tool"] or hit["role"] == "tool result" for hit in heads):
        return None
    opening = text[: heads[0].start()].strip()
    messages: list[ChatMessage] = [{"role": "user", "content": opening}] if opening else []
    waiting: list[str] = []
    called = False
    for number, hit in enumerate(heads):
        body = text[hit.end() : heads[number + 1].start() if number + 1 < len(heads) else len(text)].strip("\n")
        if hit["tool"]:
            waiting = [*(waiting if called else []), f"call-{number}"]
            function = {"name": hit["tool"], "arguments": body}
            messages.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": waiting[-1], "type": "function", "function": function}],
                }
            )
        elif hit["role"] == "tool result":
            messages.append({"role": "tool", "tool_call_id": waiting.pop(0) if waiting else None, "content": body})
        else:
            messages.append({"role": hit["role"], "content": body})
        called = bool(hit["tool"])
    return messages


def tokens_of(messages: Sequence[ChatMessage], counter: TokenCounter) -> int:
    """Tokens of the messages' texts and of their tool calls as canonical JSON; roles count nothing (decision 17)."""
    return sum(
        counter.count(message_text(message))
        + (counter.count(canonical_json(calls)) if (calls := tool_calls_of(message)) else 0)
        for message in messages
    )


def _lines(message: ChatMessage) -> list[str]:
    role, text = str(message.get("role") or "user"), message_text(message)
    lines = [f"{'tool result' if role == 'tool' else role}: {text}"] if text else []
    return lines + [f"{role} calls {call['name']}: {call['arguments']}" for call in tool_calls_of(message)]
