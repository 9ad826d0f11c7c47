"""Sections on quality: scores by type of probe and rubric dimension, the judge's standing, drift over repeated
compressions.

The judge's standing holds its failures, its agreement with people and the result of an audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from context_bench.compression.probes import PROBE_TYPES
from context_bench.core.numbers import number
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.core.rubric import default_rubric
from context_bench.reports.declared import (
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    estimated,
    mapping,
    section_of,
)
from context_bench.reports.page import Chart, Rated, Section

Systems = Mapping[str, dict[str, Any]]
_JUDGE = "rubric_judge"
_NOT_DONE = "not known: context-bench judge audit RUN"
_PEOPLE = "not known: context-bench judge label RUN, then judge calibrate"
_TYPES = {
    "recall": "one fact of the history",
    "artifact": "which files were created, changed, read",
    "continuation": "what is left to do",
    "decision": "what was chosen, and why",
}
_CONTRADICTIONS = FigureColumn(
    "contradictions", "contradictions (95 %)", "share", "answers that name what they must not"
)
_INDEX = "(system − none) / (full − none): 1: as good as the whole history, 0: as bad as none of it"
_RETAINED = (
    FigureColumn("index", "retention index (95 %)", "score", _INDEX, digits=2),
    FigureColumn("n", "n", "count", "probes that the system, full and none were all scored on"),
)
_LIFT = (
    FigureColumn(
        "lift",
        "lift (95 %)",
        "score",
        "system − head_tail of the same size, on the same probes",
        signed=True,
    ),
    *columns(("verdict", "verdict", "text", ""), ("n", "n", "count", "")),
    FigureColumn("clusters", "sessions"),
)
_JUDGED = columns(
    ("judged", "judged", "count", ""),
    ("failed", "judge failed", "count", "in no mean; never counted as 0"),
)
_DRIFT = (
    FigureColumn(
        "slope",
        "slope (95 %)",
        "score",
        "change of the score per cycle: least squares, sessions being what is drawn",
        signed=True,
    ),
    *columns(
        ("half", "half-life", "text", "first cycle after which the retention index is below 0.5"),
        ("resistance", "resistance", "score", "1 + mean change from the first cycle to the last, within 0 and 1"),
        ("n", "probes", "count", ""),
    ),
)
_VARIANCE = (
    FigureColumn("draws", "draws", "number", digits=1),
    *columns(
        ("sd", "SD", "score", "of single draws on this level"),
        ("share", "share", "share", "of the variance of the mean"),
        ("se_if_doubled", "SE if doubled", "score", "standard error of the mean with twice as many draws here"),
    ),
)


def having(systems: Systems, key: str) -> dict[str, dict[str, Any]]:
    """System → its figures of that kind, of those that have some."""
    return {name: mapping(own.get(key)) for name, own in systems.items() if own.get(key)}


def not_floor(systems: Systems, roles: Mapping[str, ArmRole]) -> dict[str, dict[str, Any]]:
    """The systems but for the noise floor."""
    return {name: own for name, own in systems.items() if roles.get(name, CANDIDATE).role != "noise_floor"}


def reasons(*figures: Any) -> str:
    """The reasons for missing numbers, each once."""
    reasons = dict.fromkeys(str(why) for each in figures if (why := mapping(each).get("why")))
    return "".join(f" {why[0].upper()}{why[1:]}." for why in reasons)


def _of_type(own: dict[str, Any], kind: str, figure: str) -> Any:
    return mapping(mapping(own.get("types")).get(kind)).get(figure)


def by_type(report: ReportContext, systems: Systems, figures: dict[str, Any], grader: str) -> Section | None:
    """The score by type of probe, and the same as marks."""
    named = {kind for own in systems.values() for kind in mapping(own.get("types"))}
    kinds = [kind for kind in PROBE_TYPES if kind in named] + sorted(named - set(PROBE_TYPES))
    if not kinds:
        return None
    shown = [FigureColumn(f"type {kind}", f"{kind} (95 %)", "score", _TYPES.get(kind, "")) for kind in kinds]
    if any((mapping(own.get("contradictions")).get("value") or 0) > 0 for own in systems.values()):
        shown.append(_CONTRADICTIONS)
    lines = [
        (name, {**own, **{f"type {kind}": estimated(_of_type(own, kind, "score"), n=True) for kind in kinds}})
        for name, own in systems.items()
    ]
    about = f"Mean {figures.get('score_field')}; n: probes. Graded by: {grader}."
    marks = [
        Rated(name, kind, score)
        for kind in kinds
        for name, own in systems.items()
        if (score := estimated(_of_type(own, kind, "score"))) is not None
    ]
    chart = Chart(
        "probe-types",
        "dots",
        "Score by type of probe",
        "Each mark is a system's mean over the probes of one type; right is better. Lines are 95 % intervals, "
        "where one can be given.",
        f"mean {report.score_field}",
        "",
        [*marks],
    )
    return section_of(
        "probe-types", "By type of probe", declared_table("probe-types", shown, lines, about=about), charts=[chart]
    )


def rubric(systems: Systems) -> Section | None:
    """The judge's scores by dimension, in the rubric's order and under its names; the same as marks."""
    graded = having(systems, "rubric")
    dimensions = {name: mapping(own.get("dimensions")) for name, own in graded.items()}
    titles = {each.id: each.title for each in default_rubric().dimensions}
    known = [id_ for id_ in titles if any(id_ in of_system for of_system in dimensions.values())]
    shown = [
        FigureColumn("overall", "overall (95 %)", "score", "unweighted mean of the dimensions' means", digits=2),
        *(FigureColumn(f"of {id_}", f"{titles[id_]} (95 %)", "score", digits=2) for id_ in known),
        FigureColumn(
            "overall_probe_mean",
            "mean of probes (95 %)",
            "score",
            "mean of the probes' own overalls; differs where probes are not asked about all dimensions",
            digits=2,
        ),
    ]
    lines = [
        (name, {**own, **{f"of {id_}": dimensions[name].get(id_) for id_ in known}}) for name, own in graded.items()
    ]
    about = (
        "From 0 to 5, worked out again from the scores of single criteria; probes the judge could not score "
        "are in no mean."
    )
    marks = [
        Rated(name, title, score)
        for id_, title in titles.items()
        for name, of_system in dimensions.items()
        if (score := estimated(of_system.get(id_), digits=2)) is not None
    ]
    chart = Chart(
        "rubric",
        "dots",
        "Rubric by dimension",
        "Each mark is a system's mean in one dimension of the rubric; right is better. Lines are 95 % "
        "intervals, where one can be given.",
        "score, 0 to 5",
        "",
        [*marks],
        span=(0.0, 5.0),
    )
    return section_of("rubric", "Rubric", declared_table("rubric", shown, lines, about=about), charts=[chart])


def retained(every: Systems, roles: Mapping[str, ArmRole]) -> Section | None:
    """Retention index and lift over truncation."""
    systems = {name: own for name, own in not_floor(every, roles).items() if own.get("retention")}
    indices = having(systems, "retention")
    gap = next((index["gap"] for index in indices.values() if "gap" in index), None)
    worth = "" if gap is None else f"Full history is worth {gap:.3f} more than none here."
    lifts = having(systems, "lift")
    kinds = [kind for kind in PROBE_TYPES if any(_of_type(own, kind, "retention") for own in systems.values())]
    by_type = [FigureColumn(kind, f"{kind} (95 %)", "score", digits=2) for kind in kinds]
    return section_of(
        "retention",
        "Retention",
        declared_table(
            "retention",
            _RETAINED,
            [(name, {"index": index, "n": index.get("n")}) for name, index in indices.items()],
            about=f"{worth}{reasons(*indices.values())}".strip(),
        ),
        declared_table(
            "lift",
            _LIFT,
            [(name, {**lift, "lift": lift}) for name, lift in lifts.items()],
            title="Lift over truncation",
            about="What a system adds over cutting the middle out to the same size for free; “better” is what it has "
            "to show.",
        ),
        declared_table(
            "retention-types",
            by_type if len(kinds) > 1 else [],
            [(name, {kind: _of_type(own, kind, "retention") for kind in kinds}) for name, own in systems.items()],
            title="Retention index by type of probe",
            about="A dash: full history and none are too close there, so there was nothing to retain."
            if any(_of_type(own, kind, "retention") is None for own in systems.values() for kind in kinds)
            else "",
        ),
    )


def judge_card(report: ReportContext, systems: Systems) -> Section | None:
    """The judge's card, of a run that a rubric judge graded; the latest one, where answers were judged again."""
    record = _fingerprint(report)
    if not record:
        return None
    lines = []
    for name, own in systems.items():
        dimensions = mapping(mapping(own.get("rubric")).get("dimensions"))
        judged = max((int(number(mapping(each).get("n")) or 0) for each in dimensions.values()), default=0)
        failed = sum(mapping(mapping(report.result.failures.get(name)).get(_JUDGE)).values())
        lines.append((name, {"judged": judged, "failed": failed}))
    about = "Judged: probes whose answer has a score of at least one dimension."
    card = [(title, {"found": value}) for title, value in _judge_facts(report, record)]
    return section_of(
        "judge",
        "Judge",
        declared_table("judge", columns(("found", "found", "text", "")), card, keys=("what",)),
        declared_table("judged", _JUDGED, lines, about=about),
    )


def _fingerprint(report: ReportContext) -> dict[str, Any]:
    """The run's record of its rubric judge; empty without one."""
    manifest = report.result.manifest
    every = map(mapping, mapping(manifest.get("engine")).get("evaluators") or [])
    own = [each.get("fingerprint") for each in every if each.get("name") == _JUDGE]
    again = [mapping(mapping(each).get("fingerprints")).get(_JUDGE) for each in manifest.get("rescored") or []]
    return mapping(next((each for each in reversed([*own[-1:], *again]) if each), None))


def calibrated(report: ReportContext) -> str:
    """The judge's comparison with people, in a few words."""
    known = mapping(report.result.manifest.get("judge_calibration"))
    if known.get("score") != report.score_field or not known.get("label"):
        return "not calibrated"
    return f"{known['label']}, {known.get('n')} labels"


def _judge_facts(report: ReportContext, record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    manifest = report.result.manifest
    known, audit = mapping(manifest.get("judge_calibration")), mapping(manifest.get("judge_audit"))
    leak, drift, repeats = (mapping(audit.get(name)) for name in ("leak", "drift", "repeats"))
    agreement = f"{known.get('label')}: {known.get('n')} labels, alpha {_two_digits(known.get('alpha'))}"
    told_apart = f"{_two_digits(leak.get('leak'), signed=True)} (0: blind, 1: knows whose)"
    moved = f"{_two_digits(drift.get('shift'), signed=True)} on known items"
    yield "judge", str(record.get("model") or _JUDGE)
    yield "criteria, sees", f"{record.get('criteria', 'by_probe')}, {record.get('visibility', 'context')}"
    yield "against people", agreement if known else _PEOPLE
    yield "leak", told_apart if leak.get("leak") is not None else _NOT_DONE
    yield "attacks", _attacks(audit) or _NOT_DONE
    yield "drift", moved if drift.get("shift") is not None else _NOT_DONE
    if repeats:
        spread = _two_digits(repeats.get("spread"))
        yield "asked again", f"alpha {_two_digits(repeats.get('alpha'))}, spread {spread}"
    if faults := audit.get("faults"):
        yield "must not judge", "; ".join(map(str, faults))


def _attacks(audit: Mapping[str, Any]) -> str | None:
    """The attack that gained most."""
    gains = [mapping(each) for each in audit.get("lifts") or [] if number(mapping(each).get("mean")) is not None]
    if not gains:
        return None
    worst = max(gains, key=lambda each: float(each["mean"]))
    return f"{_two_digits(worst['mean'], signed=True)} of 5 at most ({worst.get('attack')}; {len(gains)} tried)"


def _two_digits(value: Any, *, signed: bool = False) -> str:
    known = number(value)
    return "none" if known is None else f"{known:+.2f}" if signed else f"{known:.2f}"


def drift(systems: Systems) -> Section | None:
    """Quality after each cycle, slope, half-life, contradictions."""
    drifts = having(systems, "drift")
    cycles = sorted({int(cycle) for own in drifts.values() for cycle in mapping(own.get("cycles"))})
    lines = []
    for name, own in drifts.items():
        half = own.get("half_life")
        known = any("value" in mapping(each) for each in mapping(own.get("retention")).values())
        reached = str(half) if half is not None else f"over {cycles[-1]}" if known else None
        lines.append((name, {**own, **_after(own, "cycles", cycles), "half": reached}))
    left_out = max((int(own.get("left_out") or 0) for own in drifts.values()), default=0)
    more = f" {left_out:,} probes of sessions with fewer cycles are left out." if left_out else ""
    about = f"The probes of the first cycle, asked again after every further compression.{more}"
    return section_of(
        "drift",
        "Drift",
        declared_table("drift", [*_cycle_columns(cycles), *_DRIFT], lines, about=about),
        declared_table(
            "drift-retention",
            _cycle_columns(cycles, digits=2),
            _lines_after(drifts, "retention", cycles, lambda value: True),
            title="Retention index after each cycle",
        ),
        declared_table(
            "drift-contradictions",
            _cycle_columns(cycles, "share"),
            _lines_after(drifts, "contradictions", cycles, bool),
            title="Answers that name what they must not",
        ),
    )


def _lines_after(
    drifts: Systems, key: str, cycles: list[int], shown: Callable[[float], bool]
) -> list[tuple[str, dict[str, Any]]]:
    """Systems with a figure after some cycle that is to be shown."""
    lines = [(name, _after(own, key, cycles)) for name, own in drifts.items()]
    return [
        line for line in lines if any(shown(cell.value) for value in line[1].values() if (cell := estimated(value)))
    ]


def _after(own: dict[str, Any], key: str, cycles: list[int]) -> dict[str, Any]:
    by_cycle = mapping(own.get(key))
    return {f"after {cycle}": by_cycle.get(str(cycle)) for cycle in cycles}


def _cycle_columns(cycles: list[int], unit: Any = "score", digits: int | None = None) -> list[FigureColumn]:
    return [FigureColumn(f"after {c}", f"after {c} (95 %)", unit, digits=digits) for c in cycles]


def variance(systems: Systems, roles: Mapping[str, ArmRole]) -> Section | None:
    """Variance components and where calls would help."""
    components = having(systems, "variance")
    lines = [
        ((name, str(level.get("name"))), {**level, "sd": None if known is None else known**0.5})
        for name, own in components.items()
        for level in map(mapping, own.get("levels") or [])
        for known in [level.get("variance")]
    ]
    advice = "; ".join(
        f"{name}: {own.get('advice')}" for name, own in components.items() if not roles.get(name, CANDIDATE).is_control
    )
    table = declared_table("variance", _VARIANCE, lines, keys=("System", "level"), about=advice)
    return section_of("variance", "Where to spend calls", table)
