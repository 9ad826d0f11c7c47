"""Charts of a result, each with its section; and the sections on quality: scores with intervals, paired differences."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from context_bench.core.measures import Measure, percent
from context_bench.core.numbers import number
from context_bench.core.records import Comparison, Estimate
from context_bench.core.roles import CANDIDATE
from context_bench.reports.arm_aggregates import Line, LineAggregates, quantile
from context_bench.reports.declared import (
    PRIMARY,
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    estimate_of,
    estimated,
    interval_of,
    section_of,
)
from context_bench.reports.page import (
    BarPart,
    Cell,
    Chart,
    Figure,
    Gap,
    Mark,
    Point,
    ScoreChange,
    Section,
    Sentence,
    Spread,
    Table,
    Tone,
)
from context_bench.reports.traffic import forwarded_mean
from context_bench.reports.visible_text import visible
from context_bench.stats.pareto import Reading, beats

#: Verdicts on a system against truncation to its own size, as the card words them; others are the same as everywhere.
AGAINST_TRUNCATION = {
    "better": "better than truncation",
    "inferior": "worse than truncation",
    "non-inferior": "no worse than truncation",
    "undecided": "undecided against truncation",
    "insensitive": "test too weak against truncation",
}
_COMPARISON = columns(
    (
        "difference",
        "difference (95 %)",
        "score",
        "mean of the differences on the same examples; negative: worse than the baseline",
    ),
    ("verdict", "verdict", "text", ""),
    ("margin", "margin", "score", "loss that would still be acceptable, fixed before the run"),
    ("p", "p", "p", "of a loss as large as the margin: small means ruled out"),
    ("n", "n", "count", "examples compared"),
    ("clusters", "clusters", "count", "independent units behind the interval"),
    ("excluded", "left out", "count", "pairs of which one side or both failed"),
    ("n_needed", "n needed", "count", "examples for 80 % power at the margin"),
)


def quality(report: ReportContext) -> Section | None:
    """Scores with intervals, n, failures and bounds."""
    metrics = quality_metrics(report)
    if not metrics or not report.aggregates.lines:
        return None
    primary, others = metrics[0], metrics[1:]
    title = f"mean {report.score_field}" if primary == PRIMARY and report.score_field else primary
    figures = [
        FigureColumn(f"score {primary}", f"{title} (95 %)", "score"),
        FigureColumn("n", "n", "count", "rows with a score"),
        FigureColumn("failed", "failed", "count", "rows that should have a score and have none"),
        FigureColumn("bounds", "bounds", "number", "the mean with every failure counted as wrong … as right"),
        *(_score_column(report, name) for name in others),
    ]
    lines = [(report.label(line), _quality_facts(report, line, primary, others)) for line, _ in report.lines]
    table = declared_table("quality", figures, lines, about=_quality_about(report, metrics))
    return section_of("quality", "Quality", table)


def _score_column(report: ReportContext, name: str) -> FigureColumn:
    measure = report.measure(name)
    title = measure.title or (name if name == "pass_rate" else f"mean {name}")
    return FigureColumn(f"score {name}", f"{title} (95 %)", "score", measure.explanation)


def quality_metrics(report: ReportContext) -> list[str]:
    """The primary score, the pass rate, then every other score that has an estimate."""
    named = [name for by in report.estimates.values() for name in by]
    again: set[str | None] = {form.format(name) for name in named for form in ("mean_{}", "{}_mean")}
    again |= {report.score_field, *(name for name in named if report.apart(name))}  # the same under another name
    scores = [name for name in named if report.is_score(name) and name not in again]
    known = [PRIMARY, *([] if report.apart("pass_rate") else ["pass_rate"]), *scores]
    present = {name for by in report.summary.values() for name in by} | set(named)
    return [name for name in dict.fromkeys(known) if name in present]


def _quality_facts(report: ReportContext, line: Line, primary: str, others: list[str]) -> dict[str, Cell]:
    known = estimate_of(report, line, primary) or Estimate(math.nan)
    failures = known.failures or report.aggregates.lines[line].failed
    bounded = known.failures and known.worst is not None and known.best is not None
    return {
        "n": Figure(known.n, "count") if known.n else None,
        "failed": Figure(failures, "count"),
        "bounds": f"{known.worst:.3f} … {known.best:.3f}" if bounded else None,
        f"score {primary}": estimated(known),
        **{f"score {name}": _score(estimate_of(report, line, name), known.n, report.measure(name)) for name in others},
    }


def _score(known: Estimate | None, stated: int, measure: Measure) -> Figure | None:
    """The score; with its own n where the row says another one."""
    unit = measure.unit if measure.title else "score"
    return estimated(known, unit, n=known is not None and known.n not in (0, stated))


def _quality_about(report: ReportContext, metrics: list[str]) -> str:
    shown = [(name, each) for by in report.estimates.values() for name, each in by.items() if name in metrics]
    methods = sorted({each.method for _, each in shown if each.method})
    clusters = sorted({each.clusters for name, each in shown if name == PRIMARY and each.clusters})
    about = "Higher is better. Failed rows have no score"
    bounded = any(name == metrics[0] and each.failures and each.worst is not None for name, each in shown)
    about += "; “bounds” is the mean if all of them were wrong, and if all were right." if bounded else "."
    about += "".join(family.sections.graded(report) for family in report.families)
    if methods:
        about += f" 95 % intervals: {'; '.join(methods)}"
        about += f" over {_span(clusters)} clusters." if clusters else "."
    return about


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def comparisons(report: ReportContext) -> Section | None:
    """Paired differences against the baseline, with everything the verdicts rest on."""
    found = report.result.comparisons
    several = len({each.baseline for each in found}) > 1
    shapes = len({each.shape for each in found}) > 1
    lines = [(_compared(report, each, several, shapes), _comparison_facts(each)) for each in found]
    names = ", ".join(dict.fromkeys(each.baseline for each in found))
    about = "Same examples, paired."
    if any(report.roles.get(name, CANDIDATE).role == "noise_floor" for name in report.systems):
        about += " A system with #2 is the baseline run again: its difference is the noise floor."
    table = declared_table("comparisons", _COMPARISON, lines, about=about)
    title = "Paired differences" if several else f"Against {names}"
    return section_of("comparisons", title, table, _against_truncation(report)) if table is not None else None


def _against_truncation(report: ReportContext) -> Table | None:
    """The same of each system against truncation to its own size. (Runs over probes have it beside what is
    retained.)
    """
    found = [] if report.replaced("truncation") else report.result.lifts
    lines = [(f"{each.system} − {each.baseline}", _comparison_facts(each)) for each in found]
    title = "Against truncation to the same size"
    about = "What a system adds over cutting the middle out to the same size for free; “better” is what it has to show."
    return declared_table("truncation", _COMPARISON, lines, title=title, about=about)


def _compared(report: ReportContext, each: Comparison, several: bool, shapes: bool) -> str:
    """Title of a line. Several baselines, or several shapes, are part of the name."""
    parts = [
        f"{each.system} − {each.baseline}" if several else each.system,
        each.dataset,
        each.shape if shapes else None,
    ]
    extra = [] if each.metric in (PRIMARY, report.score_field, "") else [each.metric]
    return " · ".join([part for part in parts if part] + extra)


def _comparison_facts(each: Comparison) -> dict[str, Any]:
    return {name: getattr(each, name) for name in Comparison.__dataclass_fields__} | {"difference": difference(each)}


def difference(each: Comparison) -> Figure | None:
    """The mean paired difference with its interval; `None` if there is none."""
    value = number(each.difference)
    return None if value is None else Figure(value, "score", number(each.low), number(each.high), signed=True)


#: What colours say; the words say it as well.
TONES: dict[str, Tone] = {"better": "good", "non-inferior": "good", "inferior": "bad"}
_DOTS = 20  # of a distribution
_MOST_OPEN = 40  # differences by kind of question, none with an interval, that are drawn
_MOST_NAMED = 8  # kinds of question that a chart leaves out
_MARKS = (
    "Each mark is one system; up is better, left is cheaper. Whiskers are 95 % intervals, once there are enough "
    "examples. Hollow: another system is better or cheaper by more than the intervals leave open, and in nothing "
    "worse. Overlapping marks are moved apart."
)
_FOREST = (
    "Each mark is a system's mean difference to {baseline} on the same examples, with its 95 % interval once there are "
    "enough of them; right of zero is better. Dashed: the loss that would still be acceptable. Green disc: such a "
    "loss is ruled out, or it is better; red square: it is worse by more than that; ring: open."
)
_CHANGES = (
    "Each bar counts the examples whose score changed by the same amount against {baseline}: left of zero lost, right "
    "gained, on one scale for all systems. Equal scores have no bar and are counted at the right; systems with equal "
    "scores alone are left out. A mean difference near zero may hide losses and gains alike."
)
_SPREAD = (
    "Thick stroke: median; thin stroke: p95, which one in twenty exceeds; both in figures at the right, in that order."
)


def add_charts(report: ReportContext, sections: Iterable[Section]) -> None:
    """Give sections the charts that belong to them; those without anything to draw are left out."""
    for section in sections:
        if (make := _CHARTS.get(section.id)) is not None:
            section.charts = [*section.charts, *(chart for chart in make(report, section) if chart.data)]
        for chart in section.charts:
            chart.names = chart.names or [report.label(line) for line, _ in report.lines]


def headline(sentences: Iterable[Sentence]) -> Chart | None:
    """Shares of the prompt tokens and of the bill left behind each system of the user: the two often part. `None`
    unless both are known of one.
    """
    known = {
        each.system: each.saved for each in sentences if not each.control and {"tokens", "money"} <= set(each.saved)
    }
    left = (("prompt tokens", "tokens"), ("bill", "money"))
    parts = [
        BarPart(name, what, Figure(1 - saved[key].value, "share", digits=1 if abs(saved[key].value) < 0.0995 else 0))
        for name, saved in known.items()
        for what, key in left
    ]
    about = (
        "What is left of the prompt tokens and of the bill, as shares of sending everything as it was. The dashed line "
        "is 1. A bill beyond it with fewer tokens: the cache no longer holds what was changed in the prompts."
    )
    title = "Tokens saved, against the bill"
    if len(parts) == len(left):
        tokens, bill = (1 - part.amount.value for part in parts)
        tokens_told = _change(tokens, "fewer tokens", "more tokens", "about as many tokens")
        title = f"{parts[0].name}: {tokens_told}, {_change(bill, 'cheaper', 'dearer', 'about the same bill')}"
    return Chart("headline", "strategies", title, about, "share left", "", parts) if parts else None


def _change(saved: float, less: str, more: str, same: str) -> str:
    return f"{percent(abs(saved))} {less if saved > 0 else more}" if abs(saved) >= 0.005 else same


# Quality
# ------------------------------------------------------------------------
def _paretos(report: ReportContext, section: Section) -> list[Chart]:
    primary = quality_metrics(report)[0]
    title = section.tables[0].columns[1].title.removesuffix(" (95 %)")
    floors = {
        report.label(line) for line, _ in report.lines if report.roles.get(line[0], CANDIDATE).role == "noise_floor"
    }
    made = []
    for name, what, axis, cost in (
        ("pareto", "tokens", "tokens forwarded to the model, mean per example", _tokens),
        ("pareto-money", "money", "US dollars per 1,000 examples", _money),
    ):
        points = [
            Point(
                report.label(line),
                Figure(known.value, "score", number(known.low), number(known.high)),
                price,
                baseline=line[0] == report.baseline,
            )
            for line, each in report.lines
            if (known := estimate_of(report, line, primary)) is not None
            and (price := cost(report, line, each)) is not None
        ]
        if len(points) > 1:
            made.append(
                Chart(
                    name,
                    "pareto",
                    f"Quality against {what}",
                    _MARKS,
                    axis,
                    title,
                    [_on_front(each, points, floors) for each in points],
                )
            )
    return made


def _tokens(report: ReportContext, line: Line, each: LineAggregates) -> Figure | None:
    mean = forwarded_mean(each)
    known = interval_of(report, line, "mean_output_tokens", mean, "tokens")
    return (
        known
        if known is None or mean is None or abs(known.value - mean) < 1e-6 * (1 + mean)
        else Figure(mean, "tokens")
    )


def _money(report: ReportContext, line: Line, each: LineAggregates) -> Figure | None:
    return interval_of(report, line, "cost_usd", each.cost.value, "usd", scale=1000)


def _on_front(point: Point, points: Sequence[Point], floors: Collection[str]) -> Point:
    """The mark, filled if nobody beats it by more than the intervals leave open. `floors`: marks that are there for the
    noise only.
    """
    beaten = point.name in floors or any(
        beats(_read(other), _read(point)) for other in points if other.name not in floors
    )
    return Point(point.name, point.quality, point.cost, not beaten, point.baseline)


def _read(point: Point) -> tuple[Reading, Reading]:
    quality, cost = point.quality, point.cost
    low, high = (None if end is None else -end for end in (quality.high, quality.low))
    return Reading(-quality.value, low, high), Reading(cost.value, cost.low, cost.high)


# Differences
# ------------------------------------------------------------------------
def _forests(report: ReportContext, section: Section) -> list[Chart]:
    result = report.result
    baselines = ", ".join(dict.fromkeys(each.baseline for each in result.comparisons)) or "the baseline"
    about = _FOREST.format(baseline=baselines)
    axis = f"difference of mean {report.score_field or 'score'}"
    found = sorted(result.comparisons, key=lambda each: each.dataset or "")
    kinds, few = _with_interval(sorted(result.by_type, key=lambda each: each.qa_type or ""))
    others = f" and {len(few) - _MOST_NAMED} more" if len(few) > _MOST_NAMED else ""
    left_out = (
        f" Left out, for too few independent examples for an interval: {', '.join(few[:_MOST_NAMED])}{others}."
        if few
        else ""
    )
    return [
        Chart("forest", "forest", "Paired differences", about, axis, "", _gaps(found, lambda each: each.dataset)),
        Chart(
            "changes",
            "changes",
            "Change of each example",
            _CHANGES.format(baseline=baselines),
            f"change of {report.score_field or 'score'}",
            "",
            _changes(found),
        ),
        Chart(
            "forest-types",
            "forest",
            "By kind of question",
            about + left_out,
            axis,
            "",
            _gaps(kinds, lambda each: each.qa_type),
        ),
    ]


def _changes(found: Sequence[Comparison]) -> list[Mark]:
    """The changes of examples, but of systems of which not one changed."""
    name = _namer(found)
    return [
        ScoreChange(name(each), low, high, count)
        for each in found
        if each.changes and any(high or low for low, high, _ in each.changes)
        for low, high, count in each.changes
    ]


def _namer(found: Sequence[Comparison]) -> Callable[[Comparison], str]:
    """Names of differences in charts. Several baselines, or several shapes, are part of the name."""
    several = len({each.baseline for each in found}) > 1
    shapes = len({each.shape for each in found}) > 1

    def name(each: Comparison) -> str:
        own = f"{each.system} − {each.baseline}" if several else each.system
        return f"{own} · {each.shape}" if shapes and each.shape else own

    return name


def _with_interval(found: Sequence[Comparison]) -> tuple[list[Comparison], list[str]]:
    """Kinds of question for which some system has an interval, and the names of the others; all of them where none has,
    unless they would be a page of marks that say nothing: the table has their figures.
    """
    kinds = dict.fromkeys(each.qa_type or "" for each in found)
    known = {each.qa_type or "" for each in found if number(each.low) is not None}
    if not known:
        return list(found) if len(found) <= _MOST_OPEN else [], []
    return [each for each in found if (each.qa_type or "") in known], [
        visible(kind, 40) or "unnamed" for kind in kinds if kind not in known
    ]


def _gaps(found: Sequence[Comparison], group: Callable[[Comparison], str | None]) -> list[Mark]:
    """The differences that are known."""
    name = _namer(found)
    gaps: list[Mark] = []
    for each in found:
        if (value := number(each.difference)) is None:
            continue
        told = Figure(value, "score", number(each.low), number(each.high), signed=True)
        gaps.append(
            Gap(
                name(each),
                told,
                each.verdict,
                TONES.get(each.verdict, "neutral"),
                each.n,
                number(each.margin),
                group(each) or "",
            )
        )
    return gaps


# Time
# ------------------------------------------------------------------------
def _times(report: ReportContext, section: Section) -> list[Chart]:
    latency = [_spread(report, line, "latency", each.latency) for line, each in report.lines]
    ttft = [_spread(report, line, "ttft", each.ttft) for line, each in report.lines]
    return [
        Chart(
            "latency",
            "distribution",
            "Time per example",
            about_spread("example"),
            "time per example",
            "",
            [s for s in latency if s],
        ),
        Chart(
            "ttft",
            "distribution",
            "Time to first token",
            about_spread("request"),
            "time to first token",
            "",
            [s for s in ttft if s],
        ),
    ]


def about_spread(what: str) -> str:
    """Instructions for reading a distribution of these things."""
    many = f"more than {_DOTS} are drawn as {_DOTS} dots, each for equally many"
    return f"One dot per {what}; {many}. {_SPREAD} Left is faster."


def _spread(report: ReportContext, line: Line, name: str, values: Sequence[float]) -> Spread | None:
    found = spread(report.label(line), values)
    median = interval_of(report, line, f"{name}_median", None, "seconds")
    return found if found is None or median is None else replace(found, median=median)


def spread(name: str, values: Sequence[float]) -> Spread | None:
    """Spread of seconds; `None` of nothing."""
    ordered = array("d", sorted(values))

    def at(share: float) -> float:
        return quantile(ordered, share) or 0.0

    if not ordered:
        return None
    dots = ordered if len(ordered) <= _DOTS else [at((place + 0.5) / _DOTS) for place in range(_DOTS)]
    return Spread(name, len(ordered), Figure(at(0.5), "seconds"), Figure(at(0.95), "seconds"), tuple(dots))


# Failures
# ------------------------------------------------------------------------
def _failures(report: ReportContext, section: Section) -> list[Chart]:
    counted = report.result.failures or report.aggregates.failures
    of = {
        system: sum(each.rows for (name, _), each in report.aggregates.lines.items() if name == system)
        for system in report.systems
    }
    parts: list[Mark] = []
    for system in report.systems:
        found = [
            BarPart(system, kind if source == "system" else f"{kind} ({source})", Figure(times, "count"), of[system])
            for source, classes in counted.get(system, {}).items()
            for kind, times in classes.items()
        ]
        parts += found or [BarPart(system, "", Figure(0, "count"), of[system])]
    about = (
        "Each bar is one system, as long as the share of its rows in which something failed; colours tell the class "
        "of failure, with the evaluator in brackets where the answer was there and only its score is missing. A row "
        "may fail in several evaluators."
    )
    return [Chart("failures", "failures", "Failures by class", about, "share of the system's rows", "", parts)]


_CHARTS: dict[str, Callable[[ReportContext, Section], list[Chart]]] = {
    "quality": _paretos,
    "comparisons": _forests,
    "time": _times,
    "failures": _failures,
}
