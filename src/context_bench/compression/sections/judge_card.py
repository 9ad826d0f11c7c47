"""What the judge of a run is worth, as far as is known: its failures, how it agrees with people, what an audit of it found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import number
from context_bench.reports.material import Material, figure, mapping
from context_bench.reports.page import Cell, Column, Section, Table

_JUDGE = "rubric_judge"
_NOT_DONE = "not known: context-bench judge audit RUN"


def judge_card(material: Material, systems: Mapping[str, dict[str, Any]]) -> Section | None:
    """The judge's card, of a run that a rubric judge graded; the latest one, where answers were judged again."""
    told = fingerprint(material)
    if not told:
        return None
    return Section("judge", "Judge", tables=[_facts(material, told), _judged(material, systems)])


def fingerprint(material: Material) -> dict[str, Any]:
    """What the run says of its rubric judge; empty without one."""
    manifest = material.result.manifest
    own = [each for each in mapping(manifest.get("engine")).get("evaluators") or [] if mapping(each).get("name") == _JUDGE]
    again = [mapping(mapping(each).get("fingerprints")).get(_JUDGE) for each in manifest.get("rescored") or []]
    return mapping(next((each for each in reversed(again) if each), None) or (own[-1].get("fingerprint") if own else None))


def state(material: Material) -> str:
    """Whether the judge was held against people, in a few words."""
    known = mapping(material.result.manifest.get("judge_calibration"))
    if known.get("score") != material.score_field or not known.get("label"):
        return "not calibrated"
    return f"{known['label']}, {known.get('n')} labels"


def _facts(material: Material, told: Mapping[str, Any]) -> Table:
    manifest = material.result.manifest
    known, audit = mapping(manifest.get("judge_calibration")), mapping(manifest.get("judge_audit"))
    leak, drift, repeats = (mapping(audit.get(name)) for name in ("leak", "drift", "repeats"))
    people = "not known: context-bench judge label RUN, then judge calibrate"
    rows: list[list[Cell]] = [
        ["judge", str(told.get("model") or _JUDGE)],
        ["criteria, sees", f"{told.get('criteria', 'by_probe')}, {told.get('visibility', 'context')}"],
        ["against people", f"{known.get('label')}: {known.get('n')} labels, alpha {_told(known.get('alpha'))}" if known else people],
        ["leak", f"{_told(leak.get('leak'), signed=True)} (0: blind, 1: knows whose)" if leak.get("leak") is not None else _NOT_DONE],
        ["attacks", _attacks(audit) or _NOT_DONE],
        ["drift", f"{_told(drift.get('shift'), signed=True)} on known items" if drift.get("shift") is not None else _NOT_DONE],
    ]
    if repeats:
        rows.append(["asked again", f"alpha {_told(repeats.get('alpha'))}, spread {_told(repeats.get('spread'))}"])
    if faults := audit.get("faults"):
        rows.append(["must not judge", "; ".join(map(str, faults))])
    return Table("judge", [Column("what", False), Column("found", False)], rows)


def _attacks(audit: Mapping[str, Any]) -> str | None:
    """The attack that gained most."""
    lifts = [mapping(each) for each in audit.get("lifts") or [] if number(mapping(each).get("mean")) is not None]
    if not lifts:
        return None
    worst = max(lifts, key=lambda each: float(each["mean"]))
    return f"{_told(worst['mean'], signed=True)} of 5 at most ({worst.get('attack')}; {len(lifts)} tried)"


def _told(value: Any, *, signed: bool = False) -> str:
    known = number(value)
    return "none" if known is None else f"{known:+.2f}" if signed else f"{known:.2f}"


def _judged(material: Material, systems: Mapping[str, dict[str, Any]]) -> Table:
    columns = [Column("System", False), Column("judged"), Column("judge failed", about="in no mean; never counted as 0")]
    rows: list[list[Cell]] = []
    for name, own in systems.items():
        failed = sum(mapping(mapping(material.result.failures.get(name)).get(_JUDGE)).values())
        dimensions = mapping(mapping(own.get("rubric")).get("dimensions"))
        judged = max((int(number(mapping(each).get("n")) or 0) for each in dimensions.values()), default=0)
        rows.append([name, figure(judged, "count"), figure(failed, "count")])
    return Table("judged", columns, rows, about="Judged: probes whose answer has a score of at least one dimension.")
