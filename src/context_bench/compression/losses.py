"""The fate of the facts that probes ask for: still in the text that replaces the history or not, named in the answer or
not.

The two together say whose loss it is: gone from the text, the compressor's; there and not named, the reader's; gone and
named all the same, told by the kept part or guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from context_bench.compression.evaluators.probe_atoms import SearchableText
from context_bench.compression.probes import ProbeAtom, atom_from_json, messages_of
from context_bench.core.records import Estimate, EvalRow, Example
from context_bench.stats.intervals import estimate
from context_bench.wire.request import SYSTEM_ROLES

#: Answers of a system that are looked into: each means searching a whole history for each fact.
MOST_ROWS = 400
MOST_SHOWN = 12  # losses of a system that are told one by one
_MOST_OF_A_KIND = 3


@dataclass(slots=True)
class Fates:
    """Counts of facts asked for. `kept`: still in the text; `named`: in the answer; `unread`: kept and not named."""

    asked: int = 0
    kept: int = 0
    named: int = 0
    unread: int = 0

    def add(self, kept: bool, named: bool) -> None:
        """Take one fact in."""
        self.asked, self.kept, self.named = self.asked + 1, self.kept + kept, self.named + named
        self.unread += kept and not named


@dataclass(frozen=True, slots=True)
class LostFact:
    """One fact that an answer did not name. `message`: where it stood first, of `messages` that were compressed;
    `kept`: it is still in the text that stands for them.
    """

    probe: str
    type: str
    kind: str
    fact: str
    message: int | None
    role: str | None
    messages: int
    kept: bool


@dataclass(slots=True)
class Losses:
    """Of one system. `rows` answers were looked into; `left_out`: more than that were not."""

    kinds: dict[str, Fates] = field(default_factory=dict)
    clusters: dict[str, Fates] = field(default_factory=dict)  # by session
    shown: list[LostFact] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    _prefix: dict[str, float] = field(default_factory=dict)

    @property
    def prefix_kept(self) -> float | None:
        """Mean share of the text that begins exactly as the history did, which is what a prompt cache can still use;
        over compressions.
        """
        return sum(self._prefix.values()) / len(self._prefix) if self._prefix else None

    def shares(self) -> dict[str, Estimate]:
        """`kept`, `named`, `unread` as shares of the facts asked for, with intervals over sessions."""
        names = [name for name, each in self.clusters.items() for _ in range(each.asked)]
        found = {}
        for share in ("kept", "named", "unread"):
            counts = [(getattr(each, share), each.asked) for each in self.clusters.values()]
            found[share] = estimate([float(at < count) for count, asked in counts for at in range(asked)], names)
        return found

    def add(self, row: EvalRow, example: Mapping[str, Any], output: Mapping[str, Any]) -> None:
        """Take in one answer, with what was asked and what stood for the history."""
        response, text = output.get("response"), output.get("context")
        if row.failed or not isinstance(response, str) or not isinstance(text, str) or not example.get("atoms"):
            return
        if self.rows >= MOST_ROWS:
            self.left_out += 1
            return
        self.rows += 1
        opaque = bool((output.get("compressed") or {}).get("opaque"))
        self._note_prefix(example, text, opaque)
        wanted = [atom for atom in map(atom_from_json, example["atoms"]) if atom.role == "wanted"]
        held, said = _searchable(text), SearchableText(response)
        for atom in wanted:
            kept, named = not opaque and held.names(atom), said.names(atom)
            self.kinds.setdefault(atom.kind or "statement", Fates()).add(kept, named)
            self.clusters.setdefault(str(row.cluster), Fates()).add(kept, named)
            if not named and row.trial == 0:
                self._show(example, atom, kept)

    def _show(self, example: Mapping[str, Any], atom: ProbeAtom, kept: bool) -> None:
        kind = atom.kind or "statement"
        alike = [one for one in self.shown if one.kind == kind]
        if (
            len(self.shown) >= MOST_SHOWN
            or len(alike) >= _MOST_OF_A_KIND
            or any(one.fact == atom.text for one in self.shown)
        ):
            return
        messages = messages_of(example)
        at = min((source.message for source in atom.sources), default=None)
        role = str(messages[at].get("role")) if at is not None and at < len(messages) else None
        points = example.get("points") or [len(messages)]
        self.shown.append(
            LostFact(
                str(example.get("id")), str(example.get("probe_type")), kind, atom.text, at, role, points[-1], kept
            )
        )

    def _note_prefix(self, example: Mapping[str, Any], text: str, opaque: bool) -> None:
        group = str(example.get("group"))
        if group in self._prefix or opaque or not text:
            return
        history = _history(str(example.get("session")), int(example["points"][-1]))
        self._prefix[group] = _shared(history, text) / len(text)


def losses(answers: Iterable[tuple[EvalRow, Example | None, Example]]) -> dict[str, Losses]:
    """System → what became of the facts, from rows with their examples and outputs."""
    found: dict[str, Losses] = {}
    for row, example, output in answers:
        if example is not None:
            found.setdefault(row.system, Losses()).add(row, example, output)
    return found


@lru_cache(maxsize=4)
def _searchable(text: str) -> SearchableText:
    return SearchableText(text)


@lru_cache(maxsize=4)
def _history(session: str, point: int) -> str:
    from context_bench.compression.probes import rendered

    messages = messages_of({"session": session, "points": [point]})[:point]
    head = next((at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))
    return rendered(messages[head:])


def _shared(one: str, other: str) -> int:
    """Characters that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one.startswith(other[:middle]) else (low, middle - 1)
    return low
