"""Audit what has piled up in a memory: duplicates, contradictions, things outlived, junk, loops, secrets, planted
orders. Offline.

Every count is of candidates, found by rules that can be read here; a person decides. Nothing of the export is sent
anywhere or kept, and no example shows a secret.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from context_bench.core.measures import percent
from context_bench.core.text import normalise
from context_bench.memory.audit_rules import (
    GREETINGS,
    LOOKED_AT,
    ORDERS,
    PROMPTS,
    QUOTING,
    SECRETS,
    SHORT_CHARACTERS,
    SHORT_WORDS,
    Record,
    is_secret,
    masked,
    read_export,
    too_short,
    tool_output,
    value_of,
)
from context_bench.memory.ranking import NEAR
from context_bench.stats.distributions import percentile

_MOST_COMPARED = 2_000_000  # pairs looked at; beyond, the count of near-duplicates is a lower bound and says so
_QUOTED_CHARACTERS, _QUOTED_WORDS = 24, 5


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One kind of thing found: how many memories, what share of all, and masked beginnings of a few."""

    name: str
    n: int
    share: float
    sentence: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportAudit:
    """Figures of an export. `per_day`: (day, new memories, bytes of their texts), by date of creation; ages in days
    before `until`.
    """

    shape: str
    items: int
    textless: int
    owners: int
    bytes: int
    dated: int
    since: str | None
    until: str | None
    ages: dict[str, float | None]
    per_day: tuple[tuple[str, int, int], ...]
    findings: tuple[AuditFinding, ...]

    def as_rows(self) -> list[dict[str, Any]]:
        return [
            {**asdict(finding), "examples": list(finding.examples), "items": self.items} for finding in self.findings
        ]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def finding(self, name: str) -> AuditFinding:
        return next(each for each in self.findings if each.name == name)


def audit(path: str | Path, *, now: datetime | None = None, examples: int = 3) -> ExportAudit:
    """Look through an export (JSON or JSONL: mem0, Zep, LangGraph, ours, or lists of objects with a text).

    `now`: the moment that ages are counted from; the newest date of the export if it is not given. Findings, in this
    order: duplicates, near-duplicates, contradictions, superseded, junk (too short, greetings, system prompts, tool
    output), recall loops, secrets, instructions. Duplicates and contradictions are looked for among the memories of one
    owner. `BadInput` for what holds no memories.
    """
    export = read_export(path)
    records = export.records
    look = _Look(records, examples)
    dates = [record.created for record in records if record.created is not None]
    last = max((record.when for record in records if record.when is not None), default=None)
    until = now or last
    return ExportAudit(
        shape=export.shape,
        items=len(records),
        textless=export.textless,
        owners=len({record.owner for record in records if record.owner}),
        bytes=sum(len(record.text.encode()) for record in records),
        dated=len(dates),
        since=min(dates).isoformat() if dates else None,
        until=until.isoformat() if until else None,
        ages=_ages(records, until),
        per_day=_per_day(records),
        findings=(
            *look.repeated(),
            *look.contradicting(),
            *look.junk(),
            look.loops(),
            look.secrets(),
            look.matching("instructions", ORDERS, "speak to the model and not of the world: possibly planted"),
        ),
    )


class _Look:
    """The records of one export, and what the rules find in them."""

    def __init__(self, records: Sequence[Record], examples: int) -> None:
        self._records, self._examples = records, examples
        self._plain = [normalise(record.text) for record in records]

    def _found(self, name: str, which: Iterable[int], sentence: str) -> AuditFinding:
        indices = list(which)
        shown = tuple(masked(self._records[index].text) for index in indices[: self._examples])
        return AuditFinding(name, len(indices), len(indices) / len(self._records), f"{len(indices)} {sentence}", shown)

    def matching(self, name: str, rule: re.Pattern[str], sentence: str) -> AuditFinding:
        return self._found(name, self._fitting(lambda text: rule.search(text) is not None), sentence)

    def _fitting(self, fits: Callable[[str], bool]) -> list[int]:
        return [index for index, record in enumerate(self._records) if fits(record.text[:LOOKED_AT])]

    # --- the same again ---

    def repeated(self) -> list[AuditFinding]:
        """Exact duplicates (case, punctuation and articles aside), and near-duplicates among the rest."""
        first: dict[tuple[str, str], int] = {}
        again: list[int] = []
        left: list[int] = []
        for index, plain in enumerate(self._plain):
            key = (self._records[index].owner, plain or self._records[index].text)
            (left if first.setdefault(key, index) == index else again).append(index)
        near, compared_all = self._near(left)
        most = "" if compared_all else "at least; not every pair was compared: "
        return [
            self._found("duplicates", again, "say the same as an earlier one"),
            self._found("near-duplicates", near, f"{most}share {percent(NEAR)} of their words with an earlier one"),
        ]

    def _near(self, indices: Sequence[int]) -> tuple[list[int], bool]:
        """Those with a Jaccard similarity ≥ `NEAR` to an earlier one, exactly: two such texts share one of their rarest
        words.
        """
        bags = {index: frozenset(self._plain[index].split()) for index in indices}
        common = Counter(word for bag in bags.values() for word in bag)
        by_word: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        near, compared = [], 0
        for index in indices:
            bag, owner = bags[index], self._records[index].owner
            rare = sorted(bag, key=lambda word: (common[word], word))[: len(bag) - math.ceil(NEAR * len(bag)) + 1]
            candidates = dict.fromkeys(other for word in rare for other in by_word[owner, word])
            for other in candidates:
                compared += 1
                both = len(bag & bags[other])
                if both >= NEAR * (len(bag) + len(bags[other]) - both):
                    near.append(index)
                    break
            if compared > _MOST_COMPARED:
                return near, False
            for word in rare:
                by_word[owner, word].append(index)
        return near, True

    # --- what cannot both hold ---

    def contradicting(self) -> list[AuditFinding]:
        """Subjects with several values of what one has one of, and what is out of date for it or by the export's own
        word.
        """
        groups: defaultdict[tuple[str, str, str], dict[str, list[int]]] = defaultdict(dict)
        for index, record in enumerate(self._records):
            found = None if record.superseded else value_of(record.text)
            if found is not None:
                subject, relation, value = found
                groups[record.owner, subject, relation].setdefault(value, []).append(index)
        several = [values for values in groups.values() if len(values) > 1]
        involved = [index for values in several for indices in values.values() for index in indices]
        outlived = [index for index, record in enumerate(self._records) if record.superseded]
        for values in several:
            outlived += self._older(values)
        dated = sum(
            all(self._records[index].when is not None for indices in values.values() for index in indices)
            for values in several
        )
        return [
            self._found(
                "contradictions",
                involved,
                f"give {len(several)} subjects more than one value of what one has one of ({dated} dated)",
            ),
            self._found(
                "superseded", sorted(set(outlived)), "are marked as ended, or a newer value of the same thing is there"
            ),
        ]

    def _older(self, values: dict[str, list[int]]) -> list[int]:
        """All whose value is not the newest one, if the dates say which that is."""
        newest: dict[str, datetime] = {}
        for value, indices in values.items():
            dates = [when for index in indices if (when := self._records[index].when) is not None]
            if not dates:
                return []
            newest[value] = max(dates)
        best = max(newest.values())
        current = [value for value, when in newest.items() if when == best]
        return (
            [index for value, indices in values.items() if value not in current for index in indices]
            if len(current) == 1
            else []
        )

    # --- worth nothing ---

    def junk(self) -> list[AuditFinding]:
        """Each memory counts for the first of the kinds that it fits, and for "junk" as a whole."""
        kinds: tuple[tuple[str, Callable[[str], bool], str], ...] = (
            ("greetings", lambda text: GREETINGS.match(text) is not None, "are greetings or thanks"),
            ("system prompts", lambda text: PROMPTS.search(text) is not None, "are prompts of an application"),
            ("tool output", tool_output, "are calls, errors or raw output of tools"),
            ("too short", too_short, f"have fewer than {SHORT_CHARACTERS} characters or {SHORT_WORDS} words"),
        )
        taken: set[int] = set()
        parts = []
        for name, fits, sentence in kinds:
            which = [index for index in self._fitting(fits) if index not in taken]
            taken.update(which)
            parts.append(self._found(name, which, sentence))
        return [self._found("junk", sorted(taken), "hold nothing to remember"), *parts]

    def loops(self) -> AuditFinding:
        """Memories that quote another one whole, or say of themselves that they were recalled."""
        starts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        words = [plain.split() for plain in self._plain]
        for index, plain in enumerate(self._plain):
            if len(plain) >= _QUOTED_CHARACTERS and len(words[index]) >= _QUOTED_WORDS:
                starts[tuple(words[index][:_QUOTED_WORDS])].append(index)
        which = [index for index in range(len(self._records)) if self._quotes(index, words[index], starts)]
        quoting = set(self._fitting(lambda text: QUOTING.search(text) is not None))
        return self._found(
            "recall loops", sorted(quoting.union(which)), "quote another memory whole, or tell what was recalled"
        )

    def _quotes(self, index: int, words: Sequence[str], starts: dict[tuple[str, ...], list[int]]) -> bool:
        plain = f" {self._plain[index]} "
        for at in range(len(words) - _QUOTED_WORDS + 1):
            for other in starts.get(tuple(words[at : at + _QUOTED_WORDS]), ())[:50]:
                if len(self._plain[other]) < len(self._plain[index]) and f" {self._plain[other]} " in plain:
                    return True
        return False

    # --- dangerous ---

    def secrets(self) -> AuditFinding:
        """Memories that hold something like a key or a password; examples show its kind and never the thing."""
        kinds: Counter[str] = Counter()
        which = []
        for index, record in enumerate(self._records):
            text = record.text[:LOOKED_AT]
            found = [
                name
                for name, shape in SECRETS.items()
                if any(is_secret(name, each[0]) for each in shape.finditer(text))
            ]
            kinds.update(found)
            which += [index] if found else []
        told = ", ".join(f"{name}: {number}" for name, number in kinds.most_common())
        return self._found("secrets", which, "hold something that looks like a secret" + (f" ({told})" if told else ""))


# --- ages ---
def _ages(records: Sequence[Record], until: datetime | None) -> dict[str, float | None]:
    if until is None:
        return {}
    ages = sorted((until - record.created).total_seconds() / 86400 for record in records if record.created is not None)
    if not ages:
        return {}
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "oldest": 1.0}
    return {name: percentile(ages, of) for name, of in named.items()}


def _per_day(records: Sequence[Record]) -> tuple[tuple[str, int, int], ...]:
    days: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.created is not None:
            days[record.created.date().isoformat()].append(len(record.text.encode()))
    return tuple((day, len(sizes), sum(sizes)) for day, sizes in sorted(days.items()))
