"""Sections by declaration: the context that they are made from, and tables whose columns are declared.

The context is a result without what was not measured, and the aggregates of its rows. A column states its figure, title
and unit and when it is shown; one function draws all tables. A line is what the row is about and its figures by key. A
figure is a number, an estimate (a record, or a mapping with `value`, `low` and `high`), a ready cell, or text; one that
was not measured is absent or `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context_bench.core.families import Family, families
from context_bench.core.measures import Measure, Measures
from context_bench.core.numbers import number
from context_bench.core.records import Estimate, Result
from context_bench.core.roles import ArmRole, roles_in
from context_bench.core.rows import attributed, of_rank, unranked
from context_bench.reports.arm_aggregates import Aggregates, Line, LineAggregates, WireSums, aggregated
from context_bench.reports.page import Cell, Chart, Column, Figure, Section, Table, Unit
from context_bench.reports.visible_text import json_ready

Facts = Mapping[str, Any]
ColumnUnit = Unit | Literal["ms", "text"]
Needs = Literal["any", "nonzero"]


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A column of a declared table.

    Attributes:
        key: Name of the figure in a line's figures.
        title: Heading.
        unit: How the figure is printed; `ms`: seconds shown as milliseconds; `text`: as it is.
        about: Explanation of the column.
        needs: When the column is shown: if any line has the figure, or if any has one that is not 0.
        digits: Decimals, where they are not the unit's.
        signed: A plus before what is above 0.
    """

    key: str
    title: str
    unit: ColumnUnit = "count"
    about: str = ""
    needs: Needs = "any"
    digits: int | None = None
    signed: bool = False

    def shown(self, lines: Iterable[Facts]) -> bool:
        """True if a table of these lines has the column."""
        values = [facts.get(self.key) for facts in lines]
        return any(values) if self.needs == "nonzero" else any(value not in (None, "") for value in values)

    def cell(self, value: Any) -> Cell:
        """The figure as a cell."""
        if value is None or isinstance(value, Figure | str):
            return value
        if self.unit == "text":
            return str(value)
        if self.unit == "ms":
            return figure(None if (known := number(value)) is None else 1000 * known, "number", digits=2)
        return estimated(value, self.unit, digits=self.digits, signed=self.signed)


def columns(*rows: tuple[str, str, ColumnUnit, str], needs: Needs = "any") -> tuple[FigureColumn, ...]:
    """Columns from rows of (key, title, unit, about), all shown under one condition."""
    return tuple(FigureColumn(*row, needs) for row in rows)


def declared_table(
    id: str,  # noqa: A002
    figures: Iterable[FigureColumn],
    lines: Iterable[tuple[str | Sequence[str], Facts]],
    *,
    keys: Sequence[str] = ("System",),
    title: str = "",
    about: str = "",
) -> Table | None:
    """The table of these lines, each with its names (one for every one of `keys`) and its figures by key.

    Columns stand in the order of their declaration. `None` without lines, or where nothing is to be shown.
    """
    named = [((names,) if isinstance(names, str) else names, facts) for names, facts in lines]
    shown = [column for column in figures if column.shown(facts for _, facts in named)]
    if not named or not shown:
        return None
    rows: list[list[Cell]] = [
        [*names, *(column.cell(facts.get(column.key)) for column in shown)] for names, facts in named
    ]
    told = [_has_interval(row[place] for row in rows) for place in range(len(keys), len(keys) + len(shown))]
    heads = [Column(name, False) for name in keys]
    for column, intervals in zip(shown, told, strict=True):
        name = column.title if intervals else column.title.removesuffix(" (95 %)")
        heads.append(Column(name, column.unit != "text", column.about))
    return Table(id, heads, rows, title, about, max(1, len(keys)))


def _has_interval(cells: Iterable[Cell]) -> bool:
    return any(isinstance(cell, Figure) and cell.interval is not None for cell in cells)


def section_of(
    id: str,  # noqa: A002
    title: str,
    *tables: Table | None,
    charts: Iterable[Chart] = (),
    brief: bool = True,
) -> Section | None:
    """The section of the tables that there are; `None` without any. Charts without data are left out."""
    present = [table for table in tables if table is not None]
    if not present:
        return None
    return Section(id, title, tables=present, charts=[chart for chart in charts if chart.data], brief=brief)


def estimated(
    value: Any, unit: Unit = "score", *, signed: bool = False, digits: int | None = None, n: bool = False
) -> Figure | None:
    """A cell of a number or of an estimate with its interval; `None` for what was not measured. `n`: with its n."""
    facts: Facts
    if isinstance(value, Estimate):
        facts = {"value": value.value, "low": value.low, "high": value.high, "n": value.n}
    else:
        facts = value if isinstance(value, Mapping) else {"value": value}
    known = number(facts.get("value", facts.get("difference")))
    if known is None:
        return None
    count = number(facts.get("n")) if n else None
    low, high = number(facts.get("low")), number(facts.get("high"))
    return Figure(known, unit, low, high, signed=signed, digits=digits, n=None if count is None else int(count))


def figure(value: Any, unit: Any, *, approximate: bool = False, digits: int | None = None) -> Figure | None:
    """A cell of a number; `None` for what was not measured."""
    known = number(value)
    return None if known is None else Figure(known, unit, approximate=approximate, digits=digits)


def mapping(value: Any) -> dict[str, Any]:
    """`value` as a JSON-ready mapping; an empty one if it is something else."""
    ready = json_ready(value)
    return ready if isinstance(ready, dict) else {}


PRIMARY = "mean_score"
#: Sections of the platform for numbers that are no scores.
_NO_SCORES = ("tokens", "time", "money", "setup")


@dataclass(slots=True)
class ReportContext:
    """Context of a report, from which sections are made: the result, cleaned, and the aggregates of its rows."""

    result: Result
    aggregates: Aggregates
    systems: list[str]
    baseline: str | None
    score_field: str | None
    summary: dict[str, dict[str, float]]
    estimates: dict[str, dict[str, Estimate]]
    wire: dict[str, dict[str, Any]]
    roles: dict[str, ArmRole]
    measures: Measures

    @property
    def lines(self) -> list[tuple[Line, LineAggregates]]:
        """Lines in the order of the systems."""
        order = {name: position for position, name in enumerate(self.systems)}
        return sorted(self.aggregates.lines.items(), key=lambda item: order[item[0][0]])

    def label(self, line: Line) -> str:
        """Title of a line: the system, and its shape where it was measured in several."""
        system, shape = line
        several = sum(name == system for name, _ in self.aggregates.lines) > 1
        return f"{system} · {shape or 'no shape'}" if several else system

    @property
    def families(self) -> list[Family]:
        """The families whose sections the page has."""
        return [family for family in families() if self._belongs(family)]

    def _belongs(self, family: Family) -> bool:
        if family.sections.belongs is not None:
            return family.sections.belongs(self)
        return bool(self.result.families.get(family.manifest_key))

    def apart(self, name: str) -> bool:
        """True for numbers that the sections of a family show."""
        return any(family.sections.apart(self, name) for family in self.families)

    def measure(self, name: str) -> Measure:
        """Title, unit, direction and place of a score or a number of the summary, as its file declares them.

        The place of one that nobody has declared is "", and its unit what its name says.
        """
        if name == "groups" or name.startswith(("setup_", "setups_")):
            return Measure(unit=_unit_named(name, "count"), place="setup")
        return self.measures.of(name) or Measure(unit=_unit_named(name, "number"), place="")

    def is_score(self, name: str) -> bool:
        """True for an estimate that the section on quality may show."""
        place = self.measure(name).place
        return place not in _NO_SCORES and (place != "metrics" or name in self.aggregates.score_names)

    def replaced(self, section: str) -> bool:
        """True for a section of the platform for which a family has its own."""
        return any(section in family.sections.replaces for family in self.families)

    def whole(self, line: Line) -> bool:
        """True if the line is all there is of its system, so that the system's summary speaks of it."""
        return sum(name == line[0] for name, _ in self.aggregates.lines) == 1


def _unit_named(name: str, otherwise: Unit) -> Unit:
    """The unit that a name ends with; a word within it, such as `cost` in `cost_score`, says nothing of a unit."""
    if name.endswith(("_usd", "_cost_sum")) or name == "setup_cost":
        return "usd"
    if name.endswith("_seconds") or "_seconds_p" in name:
        return "seconds"
    return "tokens" if name.endswith("_tokens") else "count" if name.endswith("_aborted") else otherwise


def report_context(result: Result) -> ReportContext:
    """Reads the rows, unless who collected them has tallied them, and drops from the summary what was not measured."""
    aggregates = getattr(result.rows, "aggregates", None) or aggregated(result.rows)
    systems = list(dict.fromkeys([*result.summary, *(system for system, _ in aggregates.lines)]))
    without = unranked(result.manifest, systems)
    for (system, _), line in aggregates.lines.items():
        if system in without:
            line.scores = {name: mean for name, mean in line.scores.items() if not of_rank(name)}
    baselines = [each.baseline for each in result.comparisons]
    estimates = {
        system: {
            name: each
            for name, each in by.items()
            if number(each.value) is not None and (each.n or not aggregates.rows)
        }
        for system, by in result.estimates.items()
    }
    computed = bool(result.manifest or getattr(result, "metrics", None))  # else somebody made it by hand
    summary = {
        system: _measured_only(system, values, result.estimates.get(system, {}), aggregates, computed=computed)
        for system, values in result.summary.items()
    }
    return ReportContext(
        result=result,
        aggregates=aggregates,
        systems=systems,
        baseline=baselines[0] if baselines else None,
        score_field=_score_field(result, aggregates),
        summary=summary,
        estimates=estimates,
        wire=_wire(result, aggregates),
        roles=roles_in(result.manifest, systems),
        measures=Measures(getattr(result, "metrics", ())),
    )


def _wire(result: Result, aggregates: Aggregates) -> dict[str, dict[str, Any]]:
    """Figures of the tap for each system: those of its rows, then those of the run (unmatched calls, violations …)."""
    seen: dict[str, WireSums] = {}
    for (system, _), each in aggregates.lines.items():
        seen[system] = seen[system] + each.seen if system in seen else each.seen
    told = {str(system): mapping(facts) for system, facts in result.wire.items()}
    both = {
        system: attributed({**(seen[system].facts() if system in seen else {}), **told.get(system, {})})
        for system in [*seen, *told]
    }
    return {system: facts for system, facts in both.items() if facts}


def _measured_only(
    system: str,
    values: Mapping[str, float],
    estimates: Mapping[str, Estimate],
    aggregates: Aggregates,
    *,
    computed: bool,
) -> dict[str, float]:
    """The finite values of a summary; if metrics of ours `computed` them, without the zeros that they are documented to
    return for what nobody measured.
    """
    own = [each for (name, _), each in aggregates.lines.items() if computed and name == system]
    unknown: set[str] = {name for name, each in estimates.items() if aggregates.rows and not each.n}
    if own and not any(mean.n for each in own for mean in each.scores.values()):
        unknown |= {"mean_score", "pass_rate", "num_passing", "cost_of_pass"}
    if own and not any(each.paired_sent.n for each in own):
        unknown |= {"compression_ratio"}
    if own and not any(each.sent.n for each in own):
        unknown |= {"mean_input_tokens"}
    if own and not any(each.forwarded.n for each in own):
        unknown |= {"mean_output_tokens", "cost_of_pass"}
    if own and not any(each.latency for each in own):
        unknown |= {name for name in values if name.startswith("latency_")}
    return {str(name): value for name, value in values.items() if number(value) is not None and name not in unknown}


def _score_field(result: Result, aggregates: Aggregates) -> str | None:
    """The score that verdicts are about, if the run says; else the only one there is."""
    for place in (
        result.manifest,
        mapping(result.manifest.get("margin")),
        mapping(result.manifest.get("options")),
        result.config,
    ):
        if isinstance(told := place.get("score_field"), str):
            return told
    return aggregates.score_names[0] if len(aggregates.score_names) == 1 else None


def estimate_of(report: ReportContext, line: Line, metric: str) -> Estimate | None:
    """The best known statement about a metric of a line: an estimate, else the summary's number, else the mean of the
    line's rows.
    """
    system = line[0]
    if report.whole(line):
        if (known := report.estimates.get(system, {}).get(metric)) is not None:
            return known
        if (value := number(report.summary.get(system, {}).get(metric))) is None:
            return None
        scored = _scored(report, report.aggregates.lines[line])
        return Estimate(value, n=scored if metric in (PRIMARY, "pass_rate") else 0)
    mean = report.aggregates.lines[line].scores.get(report.score_field or "")
    return Estimate(mean.value, n=mean.n) if metric == PRIMARY and mean is not None and mean.value is not None else None


def interval_of(
    report: ReportContext,
    line: Line,
    metric: str,
    value: float | None,
    unit: Unit,
    *,
    scale: float = 1.0,
    approximate: bool = False,
) -> Figure | None:
    """A cell of `metric`: the run's estimate with its interval where there is one for this line, else `value`; both
    times `scale`.
    """
    known = report.estimates.get(line[0], {}).get(metric) if report.whole(line) else None
    if known is None:
        return figure(None if value is None else scale * value, unit, approximate=approximate)
    low, high = (None if end is None else scale * end for end in (number(known.low), number(known.high)))
    return Figure(scale * known.value, unit, low, high, approximate=approximate)


def _scored(report: ReportContext, each: LineAggregates) -> int:
    mean = each.scores.get(report.score_field or "")
    return mean.n if mean else 0
