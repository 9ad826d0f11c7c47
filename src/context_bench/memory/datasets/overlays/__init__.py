"""Corrections of published labels, kept beside the data: who reported what, applied only if asked for, counted and told
in the manifest.

```json
{"dataset": "longmemeval", "dataset_sha256": "d6f2…", "source": "where it is reported",
 "exclude": {"ID": "why"}, "correct": {"ID": {"answer": "…", "evidence": ["…"]}}}
```

`exclude` may be a list of ids. `correct` may set `answer` (or `answers`), `evidence`, `type`, `answerable`, `question`.
At least one of `dataset` and `dataset_sha256` says what it is for: another dataset is an error, other bytes of it a
warning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.machine import expanded, file_bytes
from context_bench.memory.datasets.memory_records import (
    Dirt,
    MemoryQuestion,
    answers_of,
    cited,
    kind,
    sessions_of,
    strings,
)
from context_bench.memory.protocol import Item

_FIELDS = {"answer", "answers", "evidence", "type", "answerable", "question"}


@dataclass
class Overlay:
    """Corrections by question id, and questions to leave out; remembers what it came across."""

    name: str
    source: str
    sha256: str
    dataset: str | None
    dataset_sha256: str | None
    exclude: Mapping[str, str]
    correct: Mapping[str, Mapping[str, Any]]
    excluded: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)

    def apply(self, question: MemoryQuestion, items: list[Item]) -> MemoryQuestion | None:
        """The question as it should be; `None` if it is to be left out."""
        if question.id in self.exclude:
            self.excluded.add(question.id)
            return None
        change = self.correct.get(question.id)
        if change is None:
            return question
        self.corrected.add(question.id)
        made = question
        if "answer" in change or "answers" in change:
            answers = answers_of(
                change.get("answers") or change.get("answer"), Dirt(), f"overlay {self.name}, {question.id}"
            )
            made = replace(made, answers=answers)
        if "evidence" in change:
            wanted = strings(change["evidence"] or [])
            evidence = cited(wanted, (item.id for item in items), Dirt())
            if len(evidence) != len(set(wanted)):
                raise BadInput(
                    f"overlay {self.name}: evidence of {question.id} names {sorted({*wanted} - {*evidence})}, which "
                    "is not there"
                )
            made = replace(made, evidence=evidence, sessions=sessions_of(evidence, items))
        made = replace(made, text=str(change.get("question", made.text)), type=str(change.get("type", made.type)))
        return replace(made, answerable=bool(change.get("answerable", made.answerable)))

    def anew(self) -> Overlay:
        """The same, for another reading."""
        return replace(self, excluded=set(), corrected=set())

    def facts(self, sha256s: list[str], complete: bool) -> dict[str, Any]:
        """Report the changes made, and whether the overlay was made for these bytes. `complete`: every question was
        seen.
        """
        facts: dict[str, Any] = {"name": self.name, "source": self.source, "sha256": self.sha256}
        facts |= {"excluded": sorted(self.excluded), "corrected": sorted(self.corrected)}
        if complete and (lost := {*self.exclude, *self.correct} - self.excluded - self.corrected):
            facts["not_found"] = sorted(lost)
        if self.dataset_sha256 is None:
            facts["warning"] = "it does not say which bytes it was made for"
        elif self.dataset_sha256 not in sha256s:
            facts["warning"] = f"it was made for other bytes of the dataset ({self.dataset_sha256[:12]}…)"
        return facts


def read_overlay(spec: str, dataset: str) -> Overlay:
    """A shipped overlay by name, or a file. Raises `UnknownName` or `BadInput`; also for one that was made for another
    dataset.
    """
    shipped = {
        place.name.removesuffix(".json"): place
        for place in files(__package__).iterdir()
        if place.name.endswith(".json")
    }
    if spec in shipped:
        data = shipped[spec].read_bytes()
    elif expanded(spec).is_file():
        data = file_bytes(expanded(spec))
    else:
        raise UnknownName("overlay", spec, [*sorted(shipped), "./FILE.json"])
    return _overlay(data, spec, dataset)


def _overlay(data: bytes, spec: str, dataset: str) -> Overlay:
    name = spec if "/" not in spec else Path(spec).name
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"overlay {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"overlay {name} is {kind(value)}; expected an object with exclude and correct")
    exclude, correct = value.get("exclude") or {}, value.get("correct") or {}
    if isinstance(exclude, list) and all(isinstance(each, str) for each in exclude):
        exclude = dict.fromkeys(exclude, "")
    if (
        not isinstance(exclude, dict)
        or not isinstance(correct, dict)
        or not all(isinstance(each, dict) for each in correct.values())
    ):
        raise BadInput(f"overlay {name}: exclude is a list of ids or id → reason, correct is id → object of changes")
    if unknown := {key for change in correct.values() for key in change} - _FIELDS:
        raise BadInput(f"overlay {name}: correct sets {sorted(unknown)}; it may set {sorted(_FIELDS)}")
    if not exclude and not correct:
        raise BadInput(f"overlay {name} neither excludes nor corrects anything")
    named, sha = value.get("dataset"), value.get("dataset_sha256")
    if not named and not sha:
        raise BadInput(f"overlay {name} does not say what it is for: give dataset or dataset_sha256")
    if named and named != dataset:
        raise BadInput(f"overlay {name} was made for {named!r}, not for {dataset!r}")
    made = {str(key): str(why) for key, why in exclude.items()}
    return Overlay(
        name, str(value.get("source") or "not told"), hashlib.sha256(data).hexdigest(), named, sha, made, correct
    )
