"""From a result to the sections of a page, in reading order: the verdict, how good, how much, what happened, what
failed.

Preparation of groups (ingest, compression) is paid once, and is in no figure of a question.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.families import families
from context_bench.core.measures import Measure
from context_bench.core.numbers import number
from context_bench.core.records import Result, SetupRecord
from context_bench.core.rows import set_up_again, standing, totals
from context_bench.reports.arm_aggregates import Aggregates, LineAggregates, Mean, quantile
from context_bench.reports.cards import cards, changes, checks, overview, sentences, whole_report
from context_bench.reports.declared import (
    FigureColumn,
    ReportContext,
    declared_table,
    estimated,
    figure,
    mapping,
    report_context,
    section_of,
)
from context_bench.reports.page import Cell, Column, Details, Figure, Page, Section, Table
from context_bench.reports.plotting import (
    add_charts,
    comparisons,
    headline,
    quality,
)
from context_bench.reports.traffic import money, time, tokens, wire
from context_bench.stats.verdict.evidence import is_headline

#: What systems tell of the items they were given, and the names under which it is summed.
_ITEMS = (("items", "items"), ("acknowledged", "acknowledged"), ("failed", "items_failed"))
#: Units whose numbers are printed as such, not with the decimals of a score, in the table of all metrics.
_COUNTED = ("count", "tokens", "seconds", "usd")
_RANKS = (
    "pareto_rank is between score and cost of a pass, however small the differences; the charts call a system beaten "
    "only by more than the intervals leave open."
)


def setup_facts(records: Sequence[SetupRecord]) -> dict[str, dict[str, Any]]:
    """By system: `groups`, `failed` and `again` (groups), `items`, `acknowledged` and `items_failed` as its set-ups
    tell (of the attempts that hold), `seconds`, `seconds_p50` and `seconds_p95` of an attempt, and `calls`,
    `input_tokens`, `output_tokens`, `cost` of all attempts. What nobody told is absent.
    """
    return {
        system: _setup_sums([each for each in records if each.system == system])
        for system in dict.fromkeys(r.system for r in records)
    }


def _setup_sums(records: list[SetupRecord]) -> dict[str, Any]:
    sums = totals(records)
    seconds = array("d", [each.seconds for each in records if each.seconds is not None])
    found: dict[str, Any] = {
        "groups": int(sums["groups"]),
        "failed": int(sums["setups_failed"]),
        "again": set_up_again(records),
        **_items(standing(records)),
        "seconds": sums.get("setup_seconds"),
        "seconds_p50": quantile(seconds, 0.5),
        "seconds_p95": quantile(seconds, 0.95),
        "calls": int(sums["setup_calls"]),
        "input_tokens": sums.get("setup_input_tokens"),
        "output_tokens": sums.get("setup_output_tokens"),
        "cost": sums.get("setup_cost"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _items(records: Iterable[SetupRecord]) -> dict[str, float]:
    """Sums of the whole numbers that set-ups tell; a system may tell anything under these names."""
    sums: dict[str, float] = {}
    for record in records:
        for told, ours in _ITEMS:
            value = record.output.get(told)
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and number(value) is not None
                and value >= 0
            ):
                sums[ours] = sums.get(ours, 0) + value
    return sums


_SETUP = (
    FigureColumn("groups", "groups", "count", "groups of examples that share what was set up, in each trial"),
    FigureColumn("failed", "failed", "count", "groups that could not be set up: all their rows failed", "nonzero"),
    FigureColumn(
        "again",
        "again",
        "count",
        "groups that took more than one attempt, since the run was interrupted or the first one failed",
        "nonzero",
    ),
    FigureColumn("acknowledged", "items taken", "count", "items that it acknowledged"),
    FigureColumn("items_failed", "items lost", "count", "items that it did not take", "nonzero"),
    FigureColumn("seconds_p50", "median", "seconds", "time on the clock for one group"),
    FigureColumn("seconds_p95", "p95", "seconds"),
    FigureColumn("calls", "calls", "count", "calls of models that were seen"),
    FigureColumn("input_tokens", "tokens in", "tokens", "billed prompt tokens of all set-ups"),
    FigureColumn("output_tokens", "tokens out", "tokens", "billed completion tokens of all set-ups"),
    FigureColumn("cost", "money", "usd", "US dollars of all attempts"),
)
_FAILURES = (
    FigureColumn("source", "where", "text", "the system, or the evaluator that gave no score"),
    FigureColumn("class", "class", "text"),
    FigureColumn("rows", "rows"),
    FigureColumn("share", "share", "share"),
    FigureColumn("sample", "for instance", "text"),
)
_RESPONDER = (FigureColumn("meaning", "meaning", "text"), FigureColumn("score", "score (95 %)", "score"))
#: Contexts that a responder was tried on: key in the manifest, title, meaning.
_CONTEXTS = (
    ("closed_book", "closed book", "no context"),
    ("short", "short context", "only what is needed"),
    ("full", "full context", "all of it"),
)
_OWN_SCORE = (
    FigureColumn("own", "own score", "text", "what only sets of its kind are measured by"),
    FigureColumn("own_mean", "mean of it", "score"),
)


def setup(facts: dict[str, dict[str, Any]]) -> Section | None:
    """One line per system that was set up."""
    about = "Before a group's first question, once. It is in no question's latency, tokens or money."
    return section_of("setup", "Set-up", declared_table("setup", _SETUP, facts.items(), about=about))


#: Sections with the picture of tokens against the bill, as far as a page has them.
_MONEY = ("replay-cost", "money")
MOST_COLUMNS = 6  # of a table of metrics; more are put into further tables
#: Place of a number → the table of all metrics that has it; numbers of other places are with quality.
_GROUPS = {"tokens": "tokens", "money": "tokens", "time": "latency", "setup": "set-up"}


def assemble(result: Result, *, title: str, details: Details | None, store: str = "") -> Page:
    """The page of a result."""
    report = report_context(result)
    manifest = mapping(result.manifest)
    ready = setup_facts(result.setups)
    first, others = _of_families(report)
    sections = [
        *first,
        money(report, manifest, ready),
        quality(report),
        comparisons(report),
        _datasets(report),
        *others,
        time(report),
        tokens(report),
        wire(report),
        None if report.replaced("setup") else setup(ready),
        _responder(manifest),
        _metrics(report),
        _failures(report),
    ]
    known = [section for section in sections if section is not None]
    verdicts = sentences(report)
    changed = changes(report)
    store = store or str(mapping(manifest.get("run")).get("store") or "")
    add_charts(report, known)
    if (tokens_and_bill := headline(verdicts)) is not None:
        next((section for section in known if section.id in _MONEY), known[0]).charts.insert(0, tokens_and_bill)
    return Page(
        title=title,
        facts=_facts(report, manifest),
        systems=report.systems,
        baseline=report.baseline,
        score_field=report.score_field,
        verdicts=verdicts,
        sections=known,
        notes=_notes(report),
        rows=result.rows,
        score_names=report.aggregates.score_names,
        examples=_examples(report),
        summary=report.summary,
        estimates=report.estimates,
        comparisons=list(result.comparisons),
        wire=report.wire,
        failures={
            s: {k: dict(v) for k, v in by.items()} for s, by in (result.failures or report.aggregates.failures).items()
        },
        timing={str(k): float(v) for k, v in result.timing.items() if number(v) is not None},
        config=mapping(result.config),
        manifest=manifest,
        details=details,
        families={key: mapping(figures) for key, figures in result.families.items()},
        setup=ready,
        setups=list(result.setups),
        by_type=list(result.by_type),
        lifts=list(result.lifts),
        changes=changed,
        cards=cards(report, verdicts, changed, store),
        checks=checks(report, verdicts),
        headline=[each.text for each in verdicts if each.kind == "run"],
        overview=overview(report),
        whole=whole_report(report, store),
        store=store,
    )


def _of_families(report: ReportContext) -> tuple[list[Section], list[Section]]:
    """The sections of families: those for the head of the page, and the others."""
    first: list[Section] = []
    others: list[Section] = []
    for family in report.families:
        own = [section for section in family.sections.build(report) if section is not None]
        first += [section for name in family.sections.first for section in own if section.id == name]
        others += [section for section in own if section.id not in family.sections.first]
    others += [each for family in families() for each in family.sections.beside(report) if each is not None]
    return first, others


def _notes(report: ReportContext) -> list[str]:
    notes = [note for note in map(str, report.result.notes) if not is_headline(note)]
    advice = next(iter(_advice(report)), "--controls adds a passthrough to compare it with")
    if advice and len(report.systems) == 1 and not any("--controls" in note for note in notes):
        notes.append(f"One system alone is compared with nothing: {advice}.")
    return notes


def _advice(report: ReportContext) -> list[str]:
    """Advice of families for a run of one system; an empty one where it needs none."""
    result = report.result
    return [
        family.sections.alone
        for family in families()
        if family.sections.alone is not None
        and (result.families.get(family.manifest_key) or (result.manifest or {}).get(family.manifest_key))
    ]


def _facts(report: ReportContext, manifest: dict[str, Any]) -> list[tuple[str, str]]:
    options = mapping(manifest.get("options"))
    run = manifest.get("run")
    name = run.get("name") if isinstance(run, dict) else run
    margin = manifest.get("margin")
    margin = margin.get("value") if isinstance(margin, dict) else margin
    trials = f" × {report.aggregates.trials} trials" if report.aggregates.trials > 1 else ""
    asked: list[tuple[str, Any]] = [
        (
            "Model",
            _listed(
                _models(manifest) or options.get("model") or manifest.get("model") or report.result.config.get("model")
            ),
        ),
        ("Shape", _listed(report.aggregates.shapes or options.get("shape"))),
    ]
    own = [family.sections for family in report.families]
    known = [
        ("Run", name or manifest.get("name")),
        ("Data", _listed(name for name in report.aggregates.dataset_names if name)),
        (next((section.unit for section in own), "Examples"), f"{_examples(report):,}{trials}"),
        *next((section.facts(report) for section in own if section.facts is not None), asked),
        ("Score", report.score_field),
        ("Baseline", report.baseline),
        ("Margin", margin),
        ("Seed", manifest.get("seed", options.get("seed"))),
        ("Started", manifest.get("started")),
    ]
    return [(label, str(value)) for label, value in known if value not in (None, "", [])]


def _models(manifest: dict[str, Any]) -> list[str]:
    """The models that answered, as the comparisons of a run name it: an option's value may be a default that nobody was
    asked by.
    """
    cells = manifest.get("cells")
    labels = (
        [mapping(cell.get("labels")) for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    )
    return list(dict.fromkeys(each["model"] for each in labels if isinstance(each.get("model"), str)))


def _listed(value: Any) -> str | None:
    if isinstance(value, str) or value is None:
        return value
    return ", ".join(str(item) for item in value) if isinstance(value, Iterable) else str(value)


def _examples(report: ReportContext) -> int:
    told = report.result.config.get("num_examples")
    return told if isinstance(told, int) and not report.aggregates.examples else report.aggregates.examples


def _failures(report: ReportContext) -> Section | None:
    counted = report.result.failures or report.aggregates.failures
    about = "A failed row has no score; it is never counted as 0."
    lines = [
        (system, facts) for system, sources in counted.items() for facts in _failure_facts(report, system, sources)
    ]
    return section_of("failures", "Failures", declared_table("failures", _FAILURES, lines, about=about))


def _failure_facts(
    report: ReportContext, system: str, sources: Mapping[str, Mapping[str, int]]
) -> Iterator[dict[str, Any]]:
    total = sum(each.rows for (name, _), each in report.aggregates.lines.items() if name == system)
    for source, classes in sources.items():
        for kind, times in sorted(classes.items(), key=lambda item: (-item[1], item[0])):
            yield {
                "source": source,
                "class": kind,
                "rows": times,
                "share": times / total if total else None,
                "sample": report.aggregates.samples.get((system, source, kind)) or None,
            }


def _responder(manifest: dict[str, Any]) -> Section | None:
    facts = mapping(manifest.get("responder"))
    scores = {key: estimated(facts.get(key)) for key, _, _ in _CONTEXTS}
    lines = [(title, {"meaning": what, "score": scores[key]}) for key, title, what in _CONTEXTS if scores[key]]
    model = f" ({facts['model']})" if isinstance(facts.get("model"), str) else ""
    about = str(
        facts.get("sentence") or "How much this model can show at all: verdicts about your proxy need your model."
    )
    table = declared_table("responder", _RESPONDER, lines, keys=("Context given",), about=about)
    return section_of("responder", f"Responder{model}", table)


def _datasets(report: ReportContext) -> Section | None:
    aggregates, field = report.aggregates, report.score_field
    if len(aggregates.dataset_names) < 2 or field is None:
        return None
    own = _own_scores(aggregates, field)
    figures = [
        FigureColumn("mean", f"mean {field}", "score"),
        FigureColumn("n", "n"),
        FigureColumn("failed", "failed"),
        FigureColumn("compression", "compression", "share"),
        *(_OWN_SCORE if own else ()),
    ]
    ordered = sorted(aggregates.datasets.items(), key=lambda item: report.systems.index(item[0][0][0]))
    lines = [
        ((report.label(line), name or "unknown"), _dataset_facts(each, field, own.get(name)))
        for (line, name), each in ordered
    ]
    return section_of("datasets", "By dataset", declared_table("datasets", figures, lines, keys=("System", "data")))


def _dataset_facts(each: LineAggregates, field: str, own: str | None) -> dict[str, Any]:
    mean, special = each.scores.get(field, Mean()), each.scores.get(own or "", Mean())
    return {
        "mean": mean.value,
        "n": mean.n,
        "failed": each.failed,
        "compression": each.compression,
        "own": own,
        "own_mean": special.value,
    }


def _own_scores(found: Aggregates, field: str) -> dict[str, str]:
    """Dataset → its score that the fewest datasets have, where that is fewer than have `field`."""
    having: dict[str, set[str]] = {}
    given: dict[str, list[str]] = {}
    for (_, name), each in found.datasets.items():
        for score in each.scores:
            having.setdefault(score, set()).add(name)
            given.setdefault(name, []).append(score)
    rarest = {name: min(scores, key=lambda score: len(having[score])) for name, scores in given.items()}
    return {name: score for name, score in rarest.items() if len(having[score]) < len(having.get(field, ()))}


def _metrics(report: ReportContext) -> Section | None:
    keys = list(dict.fromkeys(name for values in report.summary.values() for name in values))
    if not any(each.sent.value for each in report.aggregates.lines.values()):  # zeros that nobody measured
        keys = [name for name in keys if name not in ("mean_input_tokens", "compression_ratio")]
    if not keys:
        return None
    groups = [keys] if len(keys) <= MOST_COLUMNS else _grouped(report, keys)
    tables = [_metric_table(report, f"metrics-{position + 1}", group) for position, group in enumerate(groups)]
    about = _RANKS if "pareto_rank" in keys else ""
    return Section("metrics", "All metrics", about, tables, brief=not report.replaced("metrics"))


def _metric_table(report: ReportContext, name: str, keys: list[str]) -> Table:
    measures = {key: report.measure(key) for key in keys}
    columns = [Column("System", False)]
    columns += [
        Column(own.title or key, True, own.explanation, _repeated(report, key)) for key, own in measures.items()
    ]
    rows: list[list[Cell]] = [
        [system, *(_metric(own, values.get(key)) for key, own in measures.items())]
        for system, values in report.summary.items()
    ]
    return Table(name, columns, rows)


def _metric(measure: Measure, value: float | None) -> Figure | None:
    if measure.title or measure.unit in _COUNTED:
        return figure(value, measure.unit)
    return figure(value, "number", digits=4)


def _repeated(report: ReportContext, key: str) -> bool:
    """True for a number that a section of its own shows; what the section on money shows are other sums."""
    elsewhere = report.measure(key).place not in ("", "metrics", "money")
    return elsewhere or any(key in family.sections.shown for family in families())


def _grouped(report: ReportContext, keys: list[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for key in keys:
        own = "tokens" if key.endswith("_usd") else "quality"
        groups.setdefault(_GROUPS.get(report.measure(key).place, own), []).append(key)
    return [
        group[start : start + MOST_COLUMNS] for group in groups.values() for start in range(0, len(group), MOST_COLUMNS)
    ]
