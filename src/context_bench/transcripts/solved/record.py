"""One task's outcome, and the outcomes of a run by any of the ids of a task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.stats.solving import Status

_PULL = re.compile(r"^([^/]+)/([^/:]+):pr-(\d+)$")


def id_forms(name: str) -> tuple[str, ...]:
    """The spellings of an instance's id.

    `owner__repo-123` is `owner/repo:pr-123`; SWE-bench Pro puts `instance_` before it and `-v<sha>` behind.
    """
    forms = [name]
    if match := _PULL.match(name):
        forms.append(f"{match[1]}__{match[2]}-{match[3]}")
    plain = re.sub(r"-v(?:[0-9a-f]{7,40}|nan)?$", "", name.removeprefix("instance_"))
    if name.startswith("instance_") or plain != name:
        forms += [plain, f"instance_{plain}"]
    return tuple(dict.fromkeys(forms))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the harness said of one patch.

    `status`: `resolved` (every test that had to be fixed passes, and every test that passed still does), `unresolved`, `error` (there was
    no verdict: it broke) or `unknown`. `infra`: the machinery failed, not the patch; its status stays what the harness counts it as.
    `reason`: why it is not resolved, where that is told (`empty_patch`, `missing` …). `aliases`: other ids, such as the name of a trial.
    `patch`: of predictions.
    """

    instance_id: str
    status: Status
    infra: bool = False
    reason: str | None = None
    aliases: tuple[str, ...] = ()
    patch: str | None = None

    @property
    def resolved(self) -> bool:
        """Whether the patch solves the task."""
        return self.status == "resolved"


@dataclass(slots=True)
class Solved:
    """The outcomes of a run. `sources`: how many came from which kind of report; `skipped`: what could not be used, by reason.

    An id may come several times (trials of one task): `find` by the task's id gives what all of them agree on.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    _by_id: dict[str, list[Outcome]] = field(default_factory=dict, repr=False)

    def add(self, outcome: Outcome, source: str = "") -> None:
        """One more outcome."""
        self.outcomes.append(outcome)
        if source:
            self.sources[source] += 1
        forms = {form: None for name in (outcome.instance_id, *outcome.aliases) for form in id_forms(name)}
        for form in forms:
            self._by_id.setdefault(form, []).append(outcome)

    def find(self, *ids: str | None) -> Outcome | None:
        """The outcome known by the first of these ids that is known, in any spelling; trials that differ are `unknown` together."""
        for name in ids:
            for form in id_forms(name) if name else ():
                if found := self._by_id.get(form):
                    return found[0] if len(found) == 1 else _together(found)
        return None

    def status(self, *ids: str | None) -> Status:
        """The status by id; `unknown` for an id that no report names."""
        found = self.find(*ids)
        return found.status if found is not None else "unknown"

    def counts(self) -> dict[str, int]:
        """How many outcomes of each status, and how many failures of the machinery."""
        tally = Counter(one.status for one in self.outcomes)
        return {**{name: tally[name] for name in ("resolved", "unresolved", "error", "unknown")}, "infra": self.infra_count}

    @property
    def infra_count(self) -> int:
        """Failures of the machinery."""
        return sum(one.infra for one in self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)


def _together(trials: list[Outcome]) -> Outcome:
    """What several trials of one task agree on. A failure of the machinery says nothing against the others."""
    told = [one for one in trials if not one.infra] or trials
    if len({one.status for one in told}) == 1:
        return told[0] if len({one.patch for one in told}) == 1 else replace(told[0], patch=None)
    resolved = sum(one.resolved for one in told)
    return Outcome(trials[0].instance_id, "unknown", reason=f"{resolved} of {len(told)} trials resolved")


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def names(value: Any) -> list[str]:
    """The ids in a list; what is no text is left out."""
    return [name for name in value if isinstance(name, str) and name] if isinstance(value, list) else []


def first_object(sample: list[Any]) -> dict[str, Any]:
    """The first value of a file, if it is an object."""
    return mapping(sample[0]) if sample else {}
