"""One task's outcome, and the outcomes of a run by any of the ids of a task; reports that list ids by verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
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
class PatchOutcome:
    """Verdict of a harness on one patch.

    `status`: `resolved` (every test that had to be fixed passes, and every test that passed still does), `unresolved`,
    `error` (there was no verdict: it broke) or `unknown`. `infra`: the machinery failed, not the patch; its status
    stays what the harness counts it as. `reason`: why it is not resolved, where that is told (`empty_patch`, `missing`
    …). `aliases`: other ids, such as the name of a trial. `patch`: of predictions.
    """

    instance_id: str
    status: Status
    infra: bool = False
    reason: str | None = None
    aliases: tuple[str, ...] = ()
    patch: str | None = None

    @property
    def resolved(self) -> bool:
        """True if the patch solves the task."""
        return self.status == "resolved"


@dataclass(slots=True)
class Solved:
    """The outcomes of a run. `sources`: how many came from which kind of report; `skipped`: what could not be used, by
    reason.

    An id may come several times (trials of one task): `find` by the task's id gives what all of them agree on.
    """

    outcomes: list[PatchOutcome] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    _by_id: dict[str, list[PatchOutcome]] = field(default_factory=dict, repr=False)

    def add(self, outcome: PatchOutcome, source: str = "") -> None:
        """One more outcome."""
        self.outcomes.append(outcome)
        if source:
            self.sources[source] += 1
        forms = {form: None for name in (outcome.instance_id, *outcome.aliases) for form in id_forms(name)}
        for form in forms:
            self._by_id.setdefault(form, []).append(outcome)

    def find(self, *ids: str | None) -> PatchOutcome | None:
        """The outcome known by the first of these ids that is known, in any spelling; trials that differ are `unknown`
        together.
        """
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
        """Number of outcomes of each status, and of failures of the machinery."""
        tally = Counter(one.status for one in self.outcomes)
        return {
            **{name: tally[name] for name in ("resolved", "unresolved", "error", "unknown")},
            "infra": self.infra_count,
        }

    @property
    def infra_count(self) -> int:
        """Failures of the machinery."""
        return sum(one.infra for one in self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[PatchOutcome]:
        return iter(self.outcomes)


def _together(trials: list[PatchOutcome]) -> PatchOutcome:
    """Verdict on which several trials of one task agree. A failure of the machinery says nothing against the others."""
    told = [one for one in trials if not one.infra] or trials
    if len({one.status for one in told}) == 1:
        return told[0] if len({one.patch for one in told}) == 1 else replace(told[0], patch=None)
    resolved = sum(one.resolved for one in told)
    return PatchOutcome(trials[0].instance_id, "unknown", reason=f"{resolved} of {len(told)} trials resolved")


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def names(value: Any) -> list[str]:
    """The ids in a list; what is no text is left out."""
    return [name for name in value if isinstance(name, str) and name] if isinstance(value, list) else []


#: Verdict of each list, the one that decides first. Ids that are only in a later list of the report (`submitted_ids` …)
#: have no verdict.
_VERDICTS: tuple[tuple[str, Status, str | None], ...] = (
    ("resolved_ids", "resolved", None),
    ("error_ids", "error", None),
    ("empty_patch_ids", "unresolved", "empty_patch"),
    ("unresolved_ids", "unresolved", None),
    ("infra_failure_ids", "error", "infra"),
    ("ambiguous_failure_ids", "unresolved", "ambiguous"),
    ("incomplete_ids", "unresolved", "missing"),
    ("submitted_ids", "error", "no verdict"),
    ("completed_ids", "error", "no verdict"),
)


def is_listing(row: Mapping[str, Any]) -> bool:
    """True if a report lists ids by verdict."""
    return isinstance(row.get("resolved_ids"), list) and any(
        isinstance(row.get(key), list) for key, _, _ in _VERDICTS[1:]
    )


def listed(row: Mapping[str, Any]) -> Iterator[PatchOutcome]:
    """Every id of a report, once.

    Failures of the machinery are marked and keep the verdict that the harness counts them as.
    """
    infra = set(names(row.get("infra_failure_ids")))
    reasons = mapping(row.get("failure_reasons"))
    done: set[str] = set()
    for key, status, why in _VERDICTS:
        for name in names(row.get(key)):
            if name not in done:
                done.add(name)
                told = reasons.get(name)
                yield PatchOutcome(name, status, name in infra, str(told)[:200] if told else why)
