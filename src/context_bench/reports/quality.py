"""Sections on how good the answers are: scores with intervals, quality against tokens, paired differences."""

from __future__ import annotations

from context_bench.core.numbers import number
from context_bench.core.records import Comparison, Estimate
from context_bench.reports.material import PRIMARY, Material, estimate_of, figure, subject
from context_bench.reports.page import Cell, Column, Figure, Section, Table
from context_bench.reports.tally import Line

#: Verdicts on a system against truncation to its own size, as the card words them; others are the same as everywhere.
AGAINST_TRUNCATION = {
    "better": "better than truncation",
    "inferior": "worse than truncation",
    "non-inferior": "no worse than truncation",
    "undecided": "undecided against truncation",
}
_COLUMNS = (
    Column("System", False),
    Column("difference (95 %)", about="mean of the differences on the same examples; negative: worse than the baseline"),
    Column("verdict", False),
    Column("margin", about="loss that would still be acceptable, fixed before the run"),
    Column("p", about="of a loss as large as the margin: small means ruled out"),
    Column("n", about="examples compared"),
    Column("clusters", about="independent units behind the interval"),
    Column("left out", about="pairs in which one side failed"),
    Column("n needed", about="examples for 80 % power at the margin"),
)


def quality(material: Material) -> Section | None:
    """Scores with intervals, n, failures and bounds."""
    metrics = quality_metrics(material)
    if not metrics or not material.found.lines:
        return None
    primary, others = metrics[0], metrics[1:]
    title = f"mean {material.score_field}" if primary == PRIMARY and material.score_field else primary
    columns = [
        Column("System", False),
        Column(f"{title} (95 %)"),
        Column("n", about="rows with a score"),
        Column("failed", about="rows that should have a score and have none"),
        Column("bounds", about="the mean with every failure counted as wrong … as right"),
        *(Column(f"{name if name == 'pass_rate' else f'mean {name}'} (95 %)") for name in others),
    ]
    rows = [[material.label(line), *_quality_cells(material, line, primary, others)] for line, _ in material.lines]
    table = Table("quality", columns, rows, about=_quality_about(material))
    return Section("quality", "Quality", tables=[table])


def quality_metrics(material: Material) -> list[str]:
    """The primary score, the pass rate, then every other score that has an estimate."""
    named = [name for by in material.estimates.values() for name in by]
    again = {form.format(name) for name in named for form in ("mean_{}", "{}_mean")} | {material.score_field}  # the same under another name
    again |= {name for name in named if material.apart(name)}
    scores = [name for name in named if subject(name) == "quality" and not name.startswith("dataset:") and name not in again]
    known = [PRIMARY, *([] if material.apart("pass_rate") else ["pass_rate"]), *scores]
    present = {name for by in material.summary.values() for name in by} | set(named)
    return [name for name in dict.fromkeys(known) if name in present]


def _quality_cells(material: Material, line: Line, primary: str, others: list[str]) -> list[Cell]:
    known = estimate_of(material, line, primary)
    failed = Figure(known.failures if known and known.failures else material.found.lines[line].failed, "count")
    bounds = (
        f"{known.worst:.3f} … {known.best:.3f}" if known and known.worst is not None and known.best is not None and known.failures else None
    )
    n = Figure(known.n, "count") if known and known.n else None
    rest = (_score(estimate_of(material, line, name), known.n if known else 0) for name in others)
    return [_score(known), n, failed, bounds, *rest]


def _score(known: Estimate | None, said: int | None = None) -> Figure | None:
    """The score; with its own n where the row says another one."""
    if known is None:
        return None
    own = known.n if said is not None and known.n and known.n != said else None
    return Figure(known.value, "score", number(known.low), number(known.high), n=own)


def _quality_about(material: Material) -> str:
    shown = quality_metrics(material)
    methods = sorted({each.method for by in material.estimates.values() for name, each in by.items() if name in shown and each.method})
    clusters = sorted(
        {each.clusters for by in material.estimates.values() for name, each in by.items() if name == PRIMARY and each.clusters}
    )
    said = "Higher is better. Failed rows have no score: “bounds” is the mean with all of them counted as wrong … as right."
    said += "".join(family.sections.graded(material) for family in material.families)
    if methods:
        said += f" 95 % intervals: {'; '.join(methods)}"
        said += f" over {_span(clusters)} clusters." if clusters else "."
    return said


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,} to {values[-1]:,}"


def comparisons(material: Material) -> Section | None:
    """Paired differences against the baseline, with everything the verdicts rest on."""
    found = material.result.comparisons
    if not found:
        return None
    several = len({each.baseline for each in found}) > 1
    shapes = len({each.shape for each in found}) > 1
    rows: list[list[Cell]] = [[_compared(material, each, several, shapes), *_comparison_cells(each)] for each in found]
    names = ", ".join(dict.fromkeys(each.baseline for each in found))
    table = Table(
        "comparisons",
        list(_COLUMNS),
        rows,
        about="Same examples, paired. A system with #2 is the baseline run again: its difference is the noise floor.",
    )
    return Section("comparisons", "Paired differences" if several else f"Against {names}", tables=[table, *_against_truncation(material)])


def _against_truncation(material: Material) -> list[Table]:
    """The same of each system against truncation to its own size. (Runs over probes have it beside what is retained.)"""
    found = material.result.lifts
    if not found or material.replaced("truncation"):
        return []
    rows: list[list[Cell]] = [[f"{each.system} − {each.baseline}", *_comparison_cells(each)] for each in found]
    about = "What a system adds over cutting the middle out to the same size for free; “better” is what it has to show."
    return [Table("truncation", list(_COLUMNS), rows, "Against truncation to the same size", about)]


def _compared(material: Material, each: Comparison, several: bool, shapes: bool) -> str:
    """What a line is about. Several baselines, or several shapes, are part of the name."""
    parts = [f"{each.system} − {each.baseline}" if several else each.system, each.dataset, each.shape if shapes else None]
    extra = [] if each.metric in (PRIMARY, material.score_field, "") else [each.metric]
    return " · ".join([part for part in parts if part] + extra)


def _comparison_cells(each: Comparison) -> list[Cell]:
    return [
        difference(each),
        each.verdict,
        figure(each.margin, "score"),
        figure(each.p, "p"),
        Figure(each.n, "count"),
        Figure(each.clusters, "count"),
        Figure(each.excluded, "count"),
        figure(each.n_needed, "count"),
    ]


def difference(each: Comparison) -> Figure | None:
    """The mean paired difference with its interval; `None` if there is none."""
    value = number(each.difference)
    return None if value is None else Figure(value, "score", number(each.low), number(each.high), signed=True)
