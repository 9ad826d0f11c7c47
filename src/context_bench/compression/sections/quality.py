"""Sections on quality: scores by type of probe and rubric dimension, the judge's standing, drift over repeated
compressions.

The judge's standing holds its failures, its agreement with people and the result of an audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.probe import PROBE_TYPES
from context_bench.core.numbers import number
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.core.rubric import default_rubric
from context_bench.reports.declared import figure, mapping
from context_bench.reports.page import Cell, Chart, Column, Figure, Mark, Rated, Section, Table, Unit
from context_bench.reports.report_context import ReportContext


def estimated(
    told: Any, unit: Unit = "score", *, signed: bool = False, digits: int | None = None, n: bool = False
) -> Figure | None:
    """A number with its interval from `{"value", "low", "high", "n"}` (or `difference`); `None` where there is none.
    `n`: with its n.
    """
    facts = mapping(told)
    value = number(facts.get("value", facts.get("difference")))
    if value is None:
        return None
    count = number(facts.get("n")) if n else None
    low, high = number(facts.get("low")), number(facts.get("high"))
    return Figure(value, unit, low, high, signed=signed, digits=digits, n=None if count is None else int(count))


def reasons(*told: Any) -> str:
    """The reasons for missing numbers, each once."""
    known = dict.fromkeys(str(why) for one in told if (why := mapping(one).get("why")))
    return "".join(f" {why[0].upper()}{why[1:]}." for why in known)


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
        Column(
            "mean of probes (95 %)",
            about="mean of the probes' own overalls; differs where probes are not asked about all dimensions",
        ),
    ]
    rows: list[list[Cell]] = []
    for name, own in graded.items():
        dimensions = mapping(own.get("dimensions"))
        cells: list[Cell] = [estimated(dimensions.get(each), digits=2) for each, _ in known]
        rows.append(
            [name, estimated(own.get("overall"), digits=2), *cells, estimated(own.get("overall_probe_mean"), digits=2)]
        )
    about = (
        "From 0 to 5, worked out again from the scores of single criteria; probes the judge could not score "
        "are in no mean."
    )
    return Section("rubric", "Rubric", tables=[Table("rubric", columns, rows, about=about)])


def retained(systems: Systems, roles: Mapping[str, ArmRole]) -> Section | None:
    """Retention index and lift over truncation."""
    shown = {
        name: own
        for name, own in systems.items()
        if own.get("retention") and roles.get(name, CANDIDATE).role != "noise_floor"
    }
    if not shown:
        return None
    columns = [
        Column("System", False),
        Column(
            "retention index (95 %)",
            about="(system − none) / (full − none): 1: as good as the whole history, 0: as bad as none of it",
        ),
        Column("n", about="probes that the system, full and none were all scored on"),
    ]
    indices = {name: mapping(own.get("retention")) for name, own in shown.items()}
    rows: list[list[Cell]] = [
        [name, estimated(index, digits=2), figure(index.get("n"), "count")] for name, index in indices.items()
    ]
    gap = next((each["gap"] for each in indices.values() if "gap" in each), None)
    size = "" if gap is None else f"Full history is worth {gap:.3f} more than none here."
    tables = [Table("retention", columns, rows, about=f"{size}{reasons(*indices.values())}".strip())]
    return Section("retention", "Retention", tables=[*tables, *_lifts(shown), *_retained_by_type(shown)])


def _lifts(systems: Systems) -> list[Table]:
    """The gain of each system over cutting the middle out."""
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
    named = {
        kind
        for own in systems.values()
        for kind, each in mapping(own.get("types")).items()
        if mapping(each).get("retention")
    }
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
    about = (
        "Each mark is a system's mean over the probes of one type; right is better. Lines are 95 % intervals, "
        "where one can be given."
    )
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
        "Each mark is a system's mean in one dimension of the rubric; right is better. Lines are 95 % "
        "intervals, where one can be given."
    )
    return Chart("rubric", "dots", "Rubric by dimension", about, "score, 0 to 5", "", marks, span=(0.0, 5.0))


_JUDGE = "rubric_judge"
_NOT_DONE = "not known: context-bench judge audit RUN"


def judge_card(material: ReportContext, systems: Mapping[str, dict[str, Any]]) -> Section | None:
    """The judge's card, of a run that a rubric judge graded; the latest one, where answers were judged again."""
    told = fingerprint(material)
    if not told:
        return None
    return Section("judge", "Judge", tables=[_facts(material, told), _judged(material, systems)])


def fingerprint(material: ReportContext) -> dict[str, Any]:
    """The run's record of its rubric judge; empty without one."""
    manifest = material.result.manifest
    own = [
        each for each in mapping(manifest.get("engine")).get("evaluators") or [] if mapping(each).get("name") == _JUDGE
    ]
    again = [mapping(mapping(each).get("fingerprints")).get(_JUDGE) for each in manifest.get("rescored") or []]
    return mapping(
        next((each for each in reversed(again) if each), None) or (own[-1].get("fingerprint") if own else None)
    )


def state(material: ReportContext) -> str:
    """The judge's comparison with people, in a few words."""
    known = mapping(material.result.manifest.get("judge_calibration"))
    if known.get("score") != material.score_field or not known.get("label"):
        return "not calibrated"
    return f"{known['label']}, {known.get('n')} labels"


def _facts(material: ReportContext, told: Mapping[str, Any]) -> Table:
    manifest = material.result.manifest
    known, audit = mapping(manifest.get("judge_calibration")), mapping(manifest.get("judge_audit"))
    leak, drift, repeats = (mapping(audit.get(name)) for name in ("leak", "drift", "repeats"))
    people = "not known: context-bench judge label RUN, then judge calibrate"
    rows: list[list[Cell]] = [
        ["judge", str(told.get("model") or _JUDGE)],
        ["criteria, sees", f"{told.get('criteria', 'by_probe')}, {told.get('visibility', 'context')}"],
        [
            "against people",
            f"{known.get('label')}: {known.get('n')} labels, alpha {_two_digits(known.get('alpha'))}"
            if known
            else people,
        ],
        [
            "leak",
            f"{_two_digits(leak.get('leak'), signed=True)} (0: blind, 1: knows whose)"
            if leak.get("leak") is not None
            else _NOT_DONE,
        ],
        ["attacks", _attacks(audit) or _NOT_DONE],
        [
            "drift",
            f"{_two_digits(drift.get('shift'), signed=True)} on known items"
            if drift.get("shift") is not None
            else _NOT_DONE,
        ],
    ]
    if repeats:
        rows.append(
            ["asked again", f"alpha {_two_digits(repeats.get('alpha'))}, spread {_two_digits(repeats.get('spread'))}"]
        )
    if faults := audit.get("faults"):
        rows.append(["must not judge", "; ".join(map(str, faults))])
    return Table("judge", [Column("what", False), Column("found", False)], rows)


def _attacks(audit: Mapping[str, Any]) -> str | None:
    """The attack that gained most."""
    lifts = [mapping(each) for each in audit.get("lifts") or [] if number(mapping(each).get("mean")) is not None]
    if not lifts:
        return None
    worst = max(lifts, key=lambda each: float(each["mean"]))
    return f"{_two_digits(worst['mean'], signed=True)} of 5 at most ({worst.get('attack')}; {len(lifts)} tried)"


def _two_digits(value: Any, *, signed: bool = False) -> str:
    known = number(value)
    return "none" if known is None else f"{known:+.2f}" if signed else f"{known:.2f}"


def _judged(material: ReportContext, systems: Mapping[str, dict[str, Any]]) -> Table:
    columns = [
        Column("System", False),
        Column("judged"),
        Column("judge failed", about="in no mean; never counted as 0"),
    ]
    rows: list[list[Cell]] = []
    for name, own in systems.items():
        failed = sum(mapping(mapping(material.result.failures.get(name)).get(_JUDGE)).values())
        dimensions = mapping(mapping(own.get("rubric")).get("dimensions"))
        judged = max((int(number(mapping(each).get("n")) or 0) for each in dimensions.values()), default=0)
        rows.append([name, figure(judged, "count"), figure(failed, "count")])
    return Table("judged", columns, rows, about="Judged: probes whose answer has a score of at least one dimension.")


def drift(systems: Mapping[str, dict[str, Any]]) -> Section | None:
    """Quality after each cycle, slope, half-life, contradictions."""
    found = {name: mapping(own.get("drift")) for name, own in systems.items() if own.get("drift")}
    if not found:
        return None
    cycles = sorted({int(cycle) for own in found.values() for cycle in mapping(own.get("cycles"))})
    columns = [
        Column("System", False),
        *(Column(f"after {cycle} (95 %)") for cycle in cycles),
        Column("slope (95 %)", about="change of the score per cycle: least squares, sessions being what is drawn"),
        Column("half-life", False, about="first cycle after which the retention index is below 0.5"),
        Column("resistance", about="1 + mean change from the first cycle to the last, within 0 and 1"),
        Column("probes"),
    ]
    rows: list[list[Cell]] = []
    for name, own in found.items():
        quality = mapping(own.get("cycles"))
        half, known = (
            own.get("half_life"),
            any("value" in mapping(each) for each in mapping(own.get("retention")).values()),
        )
        rows.append(
            [
                name,
                *(estimated(quality.get(str(cycle))) for cycle in cycles),
                estimated(own.get("slope"), signed=True),
                str(half) if half is not None else f"over {cycles[-1]}" if known else None,
                figure(own.get("resistance"), "score"),
                figure(own.get("n"), "count"),
            ]
        )
    left_out = max(int(own.get("left_out") or 0) for own in found.values())
    more = f" {left_out:,} probes of sessions with fewer cycles are left out." if left_out else ""
    about = f"The probes of the first cycle, asked again after every further compression.{more}"
    return Section("drift", "Drift", tables=[Table("drift", columns, rows, about=about), *_by_cycle(found, cycles)])


def _by_cycle(found: Mapping[str, dict[str, Any]], cycles: list[int]) -> list[Table]:
    tables = []
    for name, title, unit in (
        ("retention", "Retention index after each cycle", None),
        ("contradictions", "Answers that name what they must not", "share"),
    ):
        rows: list[list[Cell]] = []
        for system, own in found.items():
            by = mapping(own.get(name))
            cells = [
                estimated(by.get(str(c)), "share") if unit else estimated(by.get(str(c)), digits=2) for c in cycles
            ]
            if any(cell is not None and (cell.value or not unit) for cell in cells):
                rows.append([system, *cells])
        if rows:
            tables.append(
                Table(
                    f"drift-{name}",
                    [Column("System", False), *(Column(f"after {c} (95 %)") for c in cycles)],
                    rows,
                    title,
                )
            )
    return tables


def variance(systems: Mapping[str, dict[str, Any]], roles: Mapping[str, ArmRole]) -> Section | None:
    """Variance components and where calls would help."""
    found = {name: mapping(own.get("variance")) for name, own in systems.items() if own.get("variance")}
    if not found:
        return None
    columns = [
        Column("System", False),
        Column("level", False),
        Column("draws"),
        Column("SD", about="of single draws on this level"),
        Column("share", about="of the variance of the mean"),
        Column("SE if doubled", about="standard error of the mean with twice as many draws here"),
    ]
    rows: list[list[Cell]] = []
    for name, own in found.items():
        for level in map(mapping, own.get("levels") or []):
            known = level.get("variance")
            rows.append(
                [
                    name,
                    str(level.get("name")),
                    figure(level.get("draws"), "number", digits=1),
                    figure(None if known is None else known**0.5, "score"),
                    figure(level.get("share"), "share"),
                    figure(level.get("se_if_doubled"), "score"),
                ]
            )
    advice = "; ".join(
        f"{name}: {own.get('advice')}" for name, own in found.items() if not roles.get(name, CANDIDATE).is_control
    )
    return Section("variance", "Where to spend calls", tables=[Table("variance", columns, rows, about=advice, keys=2)])
