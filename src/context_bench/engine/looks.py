"""Looks at the results of a run while it goes on, so that it can end as soon as every system has a verdict.

A group-sequential design: at 40, 60, 80 and 100 % of the examples the usual tests are held against the levels of
O'Brien and Fleming (Biometrics 1979; five looks, of which the first can decide nothing and is not taken), so that all
looks together err in 5 %. The looks are at fixed places of one order of examples, which the manifest holds before the
first call. Each is written to the store before it is taken, and with what it decided afterwards: what was decided stays
so, and a run that was killed takes the same looks.

A pilot is the beginning of such a run: 40 examples, from which it is reckoned what would decide, and at what price. The
plan is written to the store before it is followed, and its verdicts count what the pilot answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from context_bench.core.measures import dollars
from context_bench.core.protocols import Fingerprinted
from context_bench.core.records import Comparison, Example
from context_bench.core.roles import CANDIDATE, roles_in
from context_bench.engine.store import Store
from context_bench.engine.store.run_records import run_of, set_manifest

#: Shares of the examples at which a run is looked at, and the one-sided levels there by O'Brien and Fleming.
SHARES, LEVELS = (0.4, 0.6, 0.8, 1.0), (0.0019, 0.0108, 0.0251, 0.0411)
#: Parts of these levels that are used, for counts go in steps: with the whole of them a loss of the margin is ruled out
#: in up to 5.7 % of runs of 10 to 60 examples at most, and called larger in up to 5.4 % of longer ones. With these
#: parts all looks together err in at most 5.1 % either way (`benchmarks/coverage.py looks`, exact).
PART, PART_OF_FEW, FEW, PART_FOR_A_LOSS = 0.96, 0.88, 60, 0.95
#: Part of a level where several systems are compared: Holm's correction of each look alone would leave 5.6 % for eight.
PART_FOR_SEVERAL = 0.91
#: The last look's level as an earlier version declared it: of one system, of several.
_EARLIER = (0.0411, 0.0374)
#: What a report leaves out of a comparison where it is not known.
_UNKNOWN = dict.fromkeys(("dataset", "shape", "difference", "low", "high", "p", "margin"))
DECIDED = ("better", "non-inferior", "inferior")
#: Examples of a pilot, and the one-sided level of its own verdicts, by which it adds little to the error of the whole.
PILOT, PILOT_LEVEL = 40, 0.001
# `python benchmarks/coverage.py looks` and `second`: examples at most and on average (equal systems) of a run with
# looks for the power of one that is judged once; examples with two answers of the baseline for those with one.
_AT_MOST, _ON_AVERAGE, _TWO_ANSWERS = 890 / 840, 708 / 840, 725 / 837


class ExamplesInLooks:
    """The examples of several datasets in the order of the looks: first the same share of each, then the next.

    `ends`: for each look, how many examples of each dataset come before it. `count`: looks whose examples these are.
    `several`: more than one system is compared, for which the levels are stricter.
    Whatever shares a cluster and follows one another stays on one side of a look.
    """

    def __init__(
        self, source: Any, datasets: Sequence[Any], ends: list[list[int]], count: int, *, several: bool
    ) -> None:
        self._source, self._datasets, self.ends, self.count = source, list(datasets), ends, count
        self._several = several

    @classmethod
    def planned(cls, source: Any, datasets: Sequence[Any], *, several: bool = False) -> ExamplesInLooks:
        """The order of these datasets, whose examples are read for it once. `source`: all of them, with their
        fingerprint.
        """
        ends = [_ends([_cluster(example, place) for place, example in enumerate(each.examples())]) for each in datasets]
        return cls(source, datasets, [list(look) for look in zip(*ends, strict=True)], len(SHARES), several=several)

    def first(self, count: int) -> ExamplesInLooks:
        """Those of the first `count` looks."""
        return ExamplesInLooks(self._source, self._datasets, self.ends, count, several=self._several)

    @property
    def design(self) -> list[dict[str, Any]]:
        """The looks, for the manifest."""
        return [*_levelled([sum(ends) for ends in self.ends], several=self._several)]

    def __len__(self) -> int:
        return sum(self.ends[self.count - 1])

    def __iter__(self) -> Iterator[Example]:
        streams = [iter(each.examples()) for each in self._datasets]
        before = [0] * len(streams)
        for ends in self.ends[: self.count]:
            for stream, start, end in zip(streams, before, ends, strict=True):
                yield from islice(stream, end - start)
            before = ends

    def fingerprint(self) -> Any:
        """Facts that determine the examples and their order; `None` where a dataset has none."""
        told = self._source.fingerprint() if isinstance(self._source, Fingerprinted) else None
        return None if told is None else [told, self.ends[: self.count]]

    def unchanged(self) -> bool:
        """Do the facts of the last fingerprint still hold?"""
        return bool(self._source.unchanged())


def levels_of_looks(most: int, *, several: bool = False) -> list[tuple[float, float]]:
    """The one-sided level of each look at a run of at most so many examples, and that of a larger loss there."""
    part = (PART_OF_FEW if most < FEW else PART) * (PART_FOR_SEVERAL if several else 1.0)
    levels = [round(part * level, 5) for level in LEVELS]
    return [(level, round(PART_FOR_A_LOSS * level, 5)) for level in levels]


def as_begun(declared: list[dict[str, Any]], before: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The looks of a run that goes on: as they were declared `before`, where an earlier version declared those of the
    same examples and as many systems at other levels; else as they are `declared` now.
    """
    if before is None or [look["examples"] for look in before] != [look["examples"] for look in declared]:
        return declared
    several = declared != [*_levelled([look["examples"] for look in declared], several=False)]
    same = "level_of_a_loss" not in before[-1] or before[-1]["level"] == _EARLIER[several]
    return before if same else declared


def _levelled(ends: Sequence[int], *, several: bool) -> Iterator[dict[str, Any]]:
    for number, (examples, level) in enumerate(zip(ends, levels_of_looks(ends[-1], several=several), strict=True), 1):
        yield {"look": number, "examples": examples, "level": level[0], "level_of_a_loss": level[1]}


def _cluster(example: Example, place: int) -> Any:
    found = example.get("group")
    return example.get("cluster", place) if found is None else found


def _ends(clusters: Sequence[Any]) -> list[int]:
    """Places of the looks among examples of these clusters: at their shares, or where the cluster there ends."""
    ends = []
    for share in SHARES:
        end = min(len(clusters), max(1, round(share * len(clusters))))
        while end < len(clusters) and clusters[end] == clusters[end - 1]:
            end += 1
        ends.append(end)
    return ends


def planned_looks(manifest: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The looks that were declared before the run; `None` of a run that is judged once, at its end."""
    found = (manifest.get("design") or {}).get("until_decided")
    return found if isinstance(found, list) else None


def looks_taken(manifest: Mapping[str, Any]) -> int:
    """The number of looks that were taken to their end."""
    return sum("verdicts" in look for look in manifest.get("looks") or [])


def all_decided(manifest: Mapping[str, Any]) -> bool:
    """True if every system had its verdict at the latest look that was taken."""
    looks = [look for look in manifest.get("looks") or [] if "verdicts" in look]
    return bool(looks) and all(verdict in DECIDED for verdict in looks[-1]["verdicts"].values())


def take_look(store: Store, run: str, collect: Any) -> bool:
    """Look at a run whose examples up to the next look are answered; true if every system has its verdict.

    `collect(store, run)` gives the result of a stored run; with a look begun, its verdicts are held against the level
    of that look.
    """
    manifest = run_of(store, run).manifest
    planned, past = planned_looks(manifest) or [], list(manifest.get("looks") or [])[: looks_taken(manifest)]
    look = dict(planned[len(past)])
    set_manifest(store, run, {**manifest, "looks": [*past, look]})
    result = collect(store, run)
    roles = roles_in(result.manifest, result.summary)
    asked = [
        one
        for one in result.comparisons
        if not one.dataset and not roles.get(one.system, CANDIDATE).is_control and one.system != one.baseline
    ]
    told = decided({"looks": past})
    look["verdicts"] = {one.system: one.verdict for one in asked}
    look["decided"] = {one.system: asdict(one) for one in asked if one.verdict in DECIDED and one.system not in told}
    set_manifest(store, run, {**run_of(store, run).manifest, "looks": [*past, look]})
    return all_decided({"looks": [look]})


def decided(manifest: Mapping[str, Any]) -> dict[str, Comparison]:
    """System → its verdict and the numbers behind it, as they were at the look that decided it."""
    looks = [look for look in manifest.get("looks") or [] if "verdicts" in look]
    return {
        system: Comparison(
            **{**_UNKNOWN, **told, "sentence": f"{told['sentence']} Decided at {_named(look, told['verdict'])}."}
        )
        for look in looks
        for system, told in look.get("decided", {}).items()
    }


def level_now(manifest: Mapping[str, Any]) -> float | tuple[float, float] | None:
    """The level that verdicts are held against: that of the latest look, and that of `inferior` there; 0 before the
    first; that of a pilot; `None` of a run that is judged once.
    """
    if planned_looks(manifest) is None:
        return PILOT_LEVEL if is_pilot(manifest) else None
    looks = manifest.get("looks") or []
    if not looks:
        return 0.0
    level = float(looks[-1]["level"])
    return level, float(looks[-1].get("level_of_a_loss", level))


def is_looking(manifest: Mapping[str, Any]) -> bool:
    """A look was begun and not taken to its end."""
    looks = manifest.get("looks") or []
    return bool(looks) and "verdicts" not in looks[-1]


def look_notes(manifest: Mapping[str, Any]) -> list[str]:
    """A sentence on each look that was taken, and on how many there might have been."""
    planned, pilot = planned_looks(manifest), _pilot_notes(manifest)
    if planned is None:
        return pilot
    taken = [look for look in manifest.get("looks") or [] if "verdicts" in look]
    most = f"at most {planned[-1]['examples']:,} examples"
    notes = [
        *pilot,
        f"The run ends as soon as every system has its verdict: {most}, {len(planned)} looks (--until-decided).",
    ]
    for look in taken:
        verdicts = ", ".join(f"{system} {verdict}" for system, verdict in look["verdicts"].items())
        notes.append(f"{_named(look)[0].upper()}{_named(look)[1:]}: {verdicts}.")
    return notes if taken else [*pilot, f"No look was taken yet: {most}, {len(planned)} looks (--until-decided)."]


def is_pilot(manifest: Mapping[str, Any]) -> bool:
    """Is this the pilot of a run, not gone on with yet?"""
    declared = "pilot" in (manifest.get("design") or {})
    return declared and bool((manifest.get("options") or {}).get("pilot"))


def _pilot_notes(manifest: Mapping[str, Any]) -> list[str]:
    if "pilot" not in (manifest.get("design") or {}):
        return []
    if not is_pilot(manifest):
        return [f"Planned after a pilot of {PILOT} examples, whose answers count too (--pilot)."]
    level = f"{100 * PILOT_LEVEL:g} %"
    told = (manifest.get("pilot") or {}).get("told") or []
    return [f"A pilot: its verdicts are held against {level}, for they are not the last (--pilot).", *told]


@dataclass(frozen=True, slots=True)
class PlanAfterPilot:
    """A way to go on after a pilot, for an 80 % chance of a decision on every system.

    `examples`: at most, those of the pilot counted; `expected`: on average if the systems are equal; `calls`, `money`
    (US dollars, `None` without prices): what the expected ones take, beside what the pilot took. `second`: the
    baseline is asked twice; `looks`: the run ends at the look that decides.
    """

    examples: int
    expected: int
    calls: int
    money: float | None
    second: bool
    looks: bool

    def __str__(self) -> str:
        ends = (
            f"until it is decided, at most {self.examples:,} examples" if self.looks else f"{self.examples:,} examples"
        )
        twice = ", the baseline asked twice (full#2)" if self.second else ""
        average = f" (about {self.expected:,} if equal)" if self.looks else ""
        price = "no price known" if self.money is None else dollars(self.money)
        return f"{ends}{average}{twice}: {self.calls:,} more calls, {price}"


def plans_after_pilot(
    n: int,
    needed: Mapping[bool, Sequence[int | None]],
    calls: float,
    money: float | None,
    second: tuple[float, float] | None,
) -> list[PlanAfterPilot]:
    """The ways to go on after a pilot of `n` examples, cheapest first.

    `needed`: for a baseline that is asked as in the pilot (`False`) and twice (`True`), the examples that each open
    system needs, `None` where nobody can say. `calls`, `money`: of one example; `second`: those of one more answer of
    the baseline, `None` where it cannot be asked or already is.
    """
    found = []
    for twice in (False, True) if second is not None else (False,):
        sizes = [size for size in needed[twice] if size is not None]
        if len(sizes) < len(needed[twice]) or not sizes:
            continue
        more = second if twice and second is not None else (0.0, 0.0)
        for looks in (True, False):
            size = max(n + 1, math.ceil(max(sizes) * (_AT_MOST if looks else 1)))
            expected = max(n + 1, math.ceil(max(sizes) * (_ON_AVERAGE if looks else 1)))
            asked = math.ceil((expected - n) * calls + expected * more[0])  # the second answers of the pilot's, too
            price = None if money is None else (expected - n) * money + expected * more[1]
            found.append(PlanAfterPilot(size, expected, asked, price, twice, looks))
    return sorted(found, key=lambda plan: (plan.money or 0.0, plan.calls))


#: Times the variance of differences where the baseline is asked twice.
SPREAD_OF_TWO = _TWO_ANSWERS


def _named(look: Mapping[str, Any], verdict: str = "") -> str:
    level = look.get("level_of_a_loss", look["level"]) if verdict == "inferior" else look["level"]
    return f"look {look['look']}, at {look['examples']:,} examples (one-sided level {100 * level:.2g} %)"
