"""How good answers are by type of probe and by dimension of the rubric, and what that is worth between all and nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.probes.probe import PROBE_TYPES
from context_bench.compression.sections.cells import estimated, reasons
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.core.rubric import default_rubric
from context_bench.reports.material import figure, mapping
from context_bench.reports.page import Cell, Chart, Column, Section, Table
from context_bench.reports.pictures import Mark, Rated

Systems = Mapping[str, dict[str, Any]]


def by_type(systems: Systems, told: dict[str, Any], grader: str) -> Section | None:
    """The score by type of probe."""
    named = {kind for own in systems.values() for kind in mapping(own.get("types"))}
    kinds = [kind for kind in PROBE_TYPES if kind in named] + sorted(named - set(PROBE_TYPES))
    if not kinds:
        return None
    contradicted = any((mapping(own.get("contradictions")).get("value") or 0) > 0 for own in systems.values())
    columns = [Column("System", False), *(Column(f"{kind} (95 %)", about=_ABOUT.get(kind, "")) for kind in kinds)]
    columns += [Column("contradictions (95 %)", about="answers that name what they must not")] if contradicted else []
    rows: list[list[Cell]] = []
    for name, own in systems.items():
        types = mapping(own.get("types"))
        cells: list[Cell] = [estimated(mapping(types.get(kind)).get("score"), n=True) for kind in kinds]
        rows.append([name, *cells, *([estimated(own.get("contradictions"), "share")] if contradicted else [])])
    about = f"Mean {told.get('score_field')}; n: probes. Graded by: {grader}."
    return Section("probe-types", "By type of probe", tables=[Table("probe-types", columns, rows, about=about)])


_ABOUT = {
    "recall": "one fact of the history",
    "artifact": "which files were created, changed, read",
    "continuation": "what is left to do",
    "decision": "what was chosen, and why",
}


def rubric(systems: Systems) -> Section | None:
    """The judge's scores by dimension, in the rubric's order and under its names."""
    graded = {name: mapping(own.get("rubric")) for name, own in systems.items() if own.get("rubric")}
    if not graded:
        return None
    named = {dimension for own in graded.values() for dimension in mapping(own.get("dimensions"))}
    known = [(each.id, each.title) for each in default_rubric().dimensions if each.id in named]
    columns = [
        Column("System", False),
        Column("overall (95 %)", about="unweighted mean of the dimensions' means"),
        *(Column(f"{title} (95 %)") for _, title in known),
        Column("mean of probes (95 %)", about="mean of the probes' own overalls; differs where probes are not asked about all dimensions"),
    ]
    rows: list[list[Cell]] = []
    for name, own in graded.items():
        dimensions = mapping(own.get("dimensions"))
        cells: list[Cell] = [estimated(dimensions.get(each), digits=2) for each, _ in known]
        rows.append([name, estimated(own.get("overall"), digits=2), *cells, estimated(own.get("overall_probe_mean"), digits=2)])
    about = "From 0 to 5, worked out again from the scores of single criteria; probes the judge could not score are in no mean."
    return Section("rubric", "Rubric", tables=[Table("rubric", columns, rows, about=about)])


def retained(systems: Systems, roles: Mapping[str, ArmRole]) -> Section | None:
    """Retention index and lift over truncation."""
    shown = {name: own for name, own in systems.items() if own.get("retention") and roles.get(name, CANDIDATE).role != "noise_floor"}
    if not shown:
        return None
    columns = [
        Column("System", False),
        Column("retention index (95 %)", about="(system − none) / (full − none): 1: as good as the whole history, 0: as bad as none of it"),
        Column("n", about="probes that the system, full and none were all scored on"),
    ]
    indices = {name: mapping(own.get("retention")) for name, own in shown.items()}
    rows: list[list[Cell]] = [[name, estimated(index, digits=2), figure(index.get("n"), "count")] for name, index in indices.items()]
    gap = next((each["gap"] for each in indices.values() if "gap" in each), None)
    size = "" if gap is None else f"Full history is worth {gap:.3f} more than none here."
    tables = [Table("retention", columns, rows, about=f"{size}{reasons(*indices.values())}".strip())]
    return Section("retention", "Retention", tables=[*tables, *_lifts(shown), *_retained_by_type(shown)])


def _lifts(systems: Systems) -> list[Table]:
    """What each system adds over cutting the middle out."""
    found = {name: mapping(own.get("lift")) for name, own in systems.items() if own.get("lift")}
    if not found:
        return []
    columns = [
        Column("System", False),
        Column("lift (95 %)", about="system − head_tail of the same size, on the same probes"),
        Column("verdict", False),
        Column("n"),
        Column("sessions"),
    ]
    rows: list[list[Cell]] = []
    for name, lift in found.items():
        counts = [figure(lift.get(key), "count") for key in ("n", "clusters")]
        rows.append([name, estimated(lift, signed=True), str(lift.get("verdict")), *counts])
    about = "What a system adds over cutting the middle out to the same size for free; “better” is what it has to show."
    return [Table("lift", columns, rows, "Lift over truncation", about)]


def _retained_by_type(systems: Systems) -> list[Table]:
    named = {kind for own in systems.values() for kind, each in mapping(own.get("types")).items() if mapping(each).get("retention")}
    kinds = [kind for kind in PROBE_TYPES if kind in named]
    if len(kinds) < 2:
        return []
    columns = [Column("System", False), *(Column(f"{kind} (95 %)") for kind in kinds)]
    rows: list[list[Cell]] = []
    for name, own in systems.items():
        types = mapping(own.get("types"))
        rows.append([name, *(estimated(mapping(types.get(kind)).get("retention"), digits=2) for kind in kinds)])
    about = "A dash: full history and none are too close there, so there was nothing to retain."
    return [Table("retention-types", columns, rows, "Retention index by type of probe", about)]


def type_chart(section: Section, systems: Systems, score_field: str | None) -> Chart:
    """The table by type of probe as marks."""
    kinds = [column.title.removesuffix(" (95 %)") for column in section.tables[0].columns[1:]]
    marks: list[Mark] = [
        Rated(name, kind, score)
        for kind in kinds
        for name, own in systems.items()
        if (score := estimated(mapping(mapping(own.get("types")).get(kind)).get("score"))) is not None
    ]
    about = "Each mark is a system's mean over the probes of one type; right is better. Lines are 95 % intervals, where one can be given."
    return Chart("probe-types", "dots", "Score by type of probe", about, f"mean {score_field}", "", marks)


def rubric_chart(systems: Systems) -> Chart:
    """The table by dimension of the rubric as marks."""
    titles = {each.id: each.title for each in default_rubric().dimensions}
    marks: list[Mark] = [
        Rated(name, title, score)
        for id_, title in titles.items()
        for name, own in systems.items()
        if (score := estimated(mapping(mapping(own.get("rubric")).get("dimensions")).get(id_), digits=2)) is not None
    ]
    about = (
        "Each mark is a system's mean in one dimension of the rubric; right is better. Lines are 95 % intervals, where one can be given."
    )
    return Chart("rubric", "dots", "Rubric by dimension", about, "score, 0 to 5", "", marks, span=(0.0, 5.0))
