"""From a result to the sections of a page, in reading order: the verdict, how good, how much, what happened, what
failed.

Preparation of groups (ingest, compression) is paid once, and is in no figure of a question.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from context_bench.core.families import families
from context_bench.core.numbers import number
from context_bench.core.records import Comparison, Result, SetupRecord
from context_bench.core.roles import CANDIDATE
from context_bench.core.rows import set_up_again, standing, totals
from context_bench.reports.arm_aggregates import Tallies, quantile
from context_bench.reports.material import PRIMARY, Material, figure, gather, interval_of, mapping, subject
from context_bench.reports.page import Cell, Change, Column, Details, Figure, Page, Section, Sentence, Table
from context_bench.reports.plotting import AGAINST_TRUNCATION, TONES, add_charts, comparisons, difference, quality
from context_bench.reports.traffic import money, saved_money, saved_tokens, time, tokens, wire
from context_bench.stats.verdict.evidence import is_headline

#: What systems tell of the items they were given, and the names under which it is summed.
_ITEMS = (("items", "items"), ("acknowledged", "acknowledged"), ("failed", "items_failed"))


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


_COLUMNS: tuple[tuple[str, str, Any, str], ...] = (
    ("groups", "groups", "count", "groups of examples that share what was set up, in each trial"),
    ("failed", "failed", "count", "groups that could not be set up: all their rows failed"),
    (
        "again",
        "again",
        "count",
        "groups that took more than one attempt, since the run was interrupted or the first one failed",
    ),
    ("acknowledged", "items stored", "count", "items of which the system said that it has them"),
    ("items_failed", "items lost", "count", "items that it did not take"),
    ("seconds_p50", "median", "seconds", "time on the clock for one group"),
    ("seconds_p95", "p95", "seconds", ""),
    ("calls", "calls", "count", "calls of models that were seen"),
    ("input_tokens", "tokens in", "tokens", "billed prompt tokens of all set-ups"),
    ("output_tokens", "tokens out", "tokens", "billed completion tokens of all set-ups"),
    ("cost", "money", "usd", "US dollars of all attempts"),
)
_OFTEN_NOTHING = ("failed", "again", "items_failed")  # no column for what did not happen


def setup(facts: dict[str, dict[str, Any]]) -> Section | None:
    """One line per system that was set up."""
    if not facts:
        return None
    shown = [
        entry
        for entry in _COLUMNS
        if any(entry[0] in told and (told[entry[0]] or entry[0] not in _OFTEN_NOTHING) for told in facts.values())
    ]
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in shown)]
    rows: list[list[Cell]] = [
        [system, *(figure(told.get(name), unit) for name, _, unit, _ in shown)] for system, told in facts.items()
    ]
    about = "Before a group's first question, once. It is in no question's latency, tokens or money."
    return Section("setup", "Set-up", tables=[Table("setup", columns, rows, about=about)])


MOST_COLUMNS = 6  # of a table of metrics; more are put into further tables
_SHOWN_ELSEWHERE = ("groups", PRIMARY, "pass_rate", "compression_ratio", "mean_input_tokens", "mean_output_tokens")
_RESPONDER = (
    ("closed_book", "closed book", "no context"),
    ("short", "short context", "only what is needed"),
    ("full", "full context", "all of it"),
)


def assemble(result: Result, *, title: str, details: Details | None) -> Page:
    """The page of a result."""
    material = gather(result)
    manifest = mapping(result.manifest)
    ready = setup_facts(result.setups)
    first, others = _of_families(material)
    sections = [
        *first,
        money(material, manifest, ready),
        quality(material),
        comparisons(material),
        _datasets(material),
        *others,
        time(material),
        tokens(material),
        wire(material),
        None if material.replaced("setup") else setup(ready),
        _responder(manifest),
        _metrics(material),
        _failures(material),
    ]
    known = [section for section in sections if section is not None]
    lifts = _lifts(material)
    given, without = ([each for each in lifts if (each.verdict == "no verdict") == none] for none in (False, True))
    add_charts(material, known)
    return Page(
        title=title,
        facts=_facts(material, manifest),
        systems=material.systems,
        baseline=material.baseline,
        score_field=material.score_field,
        verdicts=[*_headlines(material), *given, *_verdicts(material), *_sentences(material), *without],
        sections=known,
        notes=_notes(material),
        rows=result.rows,
        score_names=material.found.score_names,
        examples=_examples(material),
        summary=material.summary,
        estimates=material.estimates,
        comparisons=list(result.comparisons),
        wire=material.wire,
        failures={
            s: {k: dict(v) for k, v in by.items()} for s, by in (result.failures or material.found.failures).items()
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
        changes=_changes(material),
    )


def _of_families(material: Material) -> tuple[list[Section], list[Section]]:
    """The sections of families: those for the head of the page, and the others."""
    first: list[Section] = []
    others: list[Section] = []
    for family in material.families:
        own = [section for section in family.sections.build(material) if section is not None]
        first += [section for name in family.sections.first for section in own if section.id == name]
        others += [section for section in own if section.id not in family.sections.first]
    return first, others


def _sentences(material: Material) -> list[Sentence]:
    return [sentence for family in material.families for sentence in family.sections.sentences(material)]


def _lifts(material: Material) -> list[Sentence]:
    """One sentence per system that was held against truncation to its own size: what one would have had for nothing."""
    return [
        Sentence(
            each.system,
            AGAINST_TRUNCATION.get(each.verdict, each.verdict),
            each.sentence,
            TONES.get(each.verdict, "neutral") if each.verdict != "non-inferior" else "neutral",
            each.baseline,
            difference(each),
            each.margin,
        )
        for each in material.result.lifts
    ]


def _headlines(material: Material) -> list[Sentence]:
    """Facts that make all verdicts below it pointless to read one by one."""
    return [Sentence("this run", "insensitive", note) for note in map(str, material.result.notes) if is_headline(note)]


def _verdicts(material: Material) -> list[Sentence]:
    """One sentence per comparison; those of single datasets stand in the table only, where the same system has one over
    all of them.
    """
    comparisons = material.result.comparisons
    whole = {(each.system, each.shape) for each in comparisons if each.dataset is None}
    chosen = [each for each in comparisons if each.dataset is None or (each.system, each.shape) not in whole]
    return [
        Sentence(
            each.system,
            each.verdict,
            each.sentence or _sentence(each),
            TONES.get(each.verdict, "neutral"),
            each.baseline,
            difference(each),
            each.margin,
            _saved(material, each, control),
            control,
        )
        for each in chosen
        for control in [material.roles.get(each.system, CANDIDATE).is_control]
    ]


def _saved(material: Material, each: Comparison, control: bool) -> dict[str, Figure]:
    """Shares of tokens and money that the system of a comparison saves against its baseline, where both have them of as
    many examples.

    Else the tokens that a measured system took from what it was sent; of a control that says nothing, for it shortens
    before it sends. A control that saves nothing was not meant to.
    """
    line, base = (
        (name, each.shape) if (name, each.shape) in material.found.lines else (name, None)
        for name in (each.system, each.baseline)
    )
    tallies = material.found.lines
    if each.dataset is not None or line not in tallies:
        return {}
    tokens = saved_tokens(material, line, base)
    if tokens is None and not control:
        tokens = interval_of(material, line, "compression_ratio", tallies[line].compression, "share")
    found = {
        "tokens": tokens,
        "money": saved_money(material, line, base),
    }
    return {name: value for name, value in found.items() if value is not None and not (control and value.value == 0)}


def _changes(material: Material) -> list[Change]:
    found = []
    for line, each in material.lines:
        if each.compared:
            place, row = each.instance or (None, None)
            found.append(Change(material.label(line), each.changed, each.compared, place, row))
    return found


def _sentence(each: Comparison) -> str:
    where = "".join(f" ({part})" for part in (each.dataset, each.shape) if part)
    shown = difference(each)
    against = f"{each.metric} against {each.baseline} {shown.text if shown else 'not measured'}"
    return f"{each.system}{where}: {each.verdict}; {against}, n = {each.n}."


def _notes(material: Material) -> list[str]:
    notes = [note for note in map(str, material.result.notes) if not is_headline(note)]
    advice = next(iter(_advice(material)), "--controls adds a passthrough to compare it with")
    if advice and len(material.systems) == 1 and not any("--controls" in note for note in notes):
        notes.append(f"One system alone is compared with nothing: {advice}.")
    return notes


def _advice(material: Material) -> list[str]:
    """Advice of families for a run of one system; an empty one where it needs none."""
    result = material.result
    return [
        family.sections.alone
        for family in families()
        if family.sections.alone is not None
        and (result.families.get(family.manifest_key) or (result.manifest or {}).get(family.manifest_key))
    ]


def _facts(material: Material, manifest: dict[str, Any]) -> list[tuple[str, str]]:
    options = mapping(manifest.get("options"))
    run = manifest.get("run")
    name = run.get("name") if isinstance(run, dict) else run
    margin = manifest.get("margin")
    margin = margin.get("value") if isinstance(margin, dict) else margin
    trials = f" × {material.found.trials} trials" if material.found.trials > 1 else ""
    asked: list[tuple[str, Any]] = [
        (
            "Model",
            _listed(
                _models(manifest)
                or options.get("model")
                or manifest.get("model")
                or material.result.config.get("model")
            ),
        ),
        ("Shape", _listed(material.found.shapes or options.get("shape"))),
    ]
    own = [family.sections for family in material.families]
    known = [
        ("Run", name or manifest.get("name")),
        ("Data", _listed(name for name in material.found.dataset_names if name)),
        (next((section.unit for section in own), "Examples"), f"{_examples(material):,}{trials}"),
        *next((section.facts(material) for section in own if section.facts is not None), asked),
        ("Score", material.score_field),
        ("Baseline", material.baseline),
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


def _examples(material: Material) -> int:
    told = material.result.config.get("num_examples")
    return told if isinstance(told, int) and not material.found.examples else material.found.examples


def _failures(material: Material) -> Section | None:
    counted = material.result.failures or material.found.failures
    rows: list[list[Cell]] = []
    for system, sources in counted.items():
        total = sum(each.rows for (name, _), each in material.found.lines.items() if name == system)
        for source, classes in sources.items():
            for kind, times in sorted(classes.items(), key=lambda item: (-item[1], item[0])):
                sample = material.found.samples.get((system, source, kind)) or None
                rows.append(
                    [
                        system,
                        source,
                        kind,
                        Figure(times, "count"),
                        Figure(times / total, "share") if total else None,
                        sample,
                    ]
                )
    if not rows:
        return None
    columns = [
        Column("System", False),
        Column("where", False, about="the system, or the evaluator that gave no score"),
        Column("class", False),
        Column("rows"),
        Column("share"),
        Column("for instance", False),
    ]
    return Section(
        "failures",
        "Failures",
        tables=[Table("failures", columns, rows, about="A failed row has no score; it is never counted as 0.")],
    )


def _responder(manifest: dict[str, Any]) -> Section | None:
    told = mapping(manifest.get("responder"))
    rows: list[list[Cell]] = [
        [title, what, _told(told[key])]
        for key, title, what in _RESPONDER
        if key in told and _told(told[key]) is not None
    ]
    if not rows:
        return None
    model = f" ({told['model']})" if isinstance(told.get("model"), str) else ""
    about = str(
        told.get("sentence") or "How much this model can show at all: verdicts about your proxy need your model."
    )
    columns = [Column("Context given", False), Column("meaning", False), Column("score (95 %)")]
    return Section("responder", f"Responder{model}", tables=[Table("responder", columns, rows, about=about)])


def _told(value: Any) -> Figure | None:
    if isinstance(value, dict):
        known = number(value.get("value"))
        return None if known is None else Figure(known, "score", number(value.get("low")), number(value.get("high")))
    return figure(value, "score")


def _datasets(material: Material) -> Section | None:
    found, field = material.found, material.score_field
    if len(found.dataset_names) < 2 or field is None:
        return None
    columns = [
        Column("System", False),
        Column("data", False),
        Column(f"mean {field}"),
        Column("n"),
        Column("failed"),
        Column("compression"),
    ]
    own = _own_scores(found, field)
    if own:
        columns += [
            Column("own score", False, about="what only sets of its kind are measured by"),
            Column("mean of it"),
        ]
    rows: list[list[Cell]] = []
    for (line, name), each in sorted(found.datasets.items(), key=lambda item: material.systems.index(item[0][0][0])):
        mean = each.scores.get(field)
        cells: list[Cell] = [
            figure(mean.value, "score") if mean else None,
            Figure(mean.n if mean else 0, "count"),
            Figure(each.failed, "count"),
        ]
        cells.append(figure(each.compression, "share"))
        if own:
            special = each.scores.get(own.get(name, ""))
            cells += [own.get(name), figure(special.value, "score") if special else None]
        rows.append([material.label(line), name or "unknown", *cells])
    return Section("datasets", "By dataset", tables=[Table("datasets", columns, rows, keys=2)])


def _own_scores(found: Tallies, field: str) -> dict[str, str]:
    """Dataset → its score that the fewest datasets have, where that is fewer than have `field`."""
    having: dict[str, set[str]] = {}
    given: dict[str, list[str]] = {}
    for (_, name), each in found.datasets.items():
        for score in each.scores:
            having.setdefault(score, set()).add(name)
            given.setdefault(name, []).append(score)
    rarest = {name: min(scores, key=lambda score: len(having[score])) for name, scores in given.items()}
    return {name: score for name, score in rarest.items() if len(having[score]) < len(having.get(field, ()))}


def _metrics(material: Material) -> Section | None:
    keys = list(dict.fromkeys(name for values in material.summary.values() for name in values))
    if not keys:
        return None
    groups = [keys] if len(keys) <= MOST_COLUMNS else _grouped(keys)
    tables = [_metric_table(material, f"metrics-{position + 1}", group) for position, group in enumerate(groups)]
    return Section("metrics", "All metrics", tables=tables, brief=not material.replaced("metrics"))


def _metric_table(material: Material, name: str, keys: list[str]) -> Table:
    columns = [Column("System", False), *(Column(key, repeated=_repeated(key)) for key in keys)]
    rows: list[list[Cell]] = [
        [system, *(_metric(key, values.get(key)) for key in keys)] for system, values in material.summary.items()
    ]
    return Table(name, columns, rows)


def _metric(key: str, value: float | None) -> Figure | None:
    return figure(value, "usd") if key.endswith("_usd") or key == "setup_cost" else figure(value, "number", digits=4)


def _repeated(key: str) -> bool:
    elsewhere = key in _SHOWN_ELSEWHERE or key.startswith(("latency_", "ttft_", "setup_", "setups_"))
    return elsewhere or any(key in family.sections.shown for family in families())


def _grouped(keys: list[str]) -> list[list[str]]:
    families: dict[str, list[str]] = {}
    for key in keys:
        families.setdefault(subject(key), []).append(key)
    return [
        group[start : start + MOST_COLUMNS]
        for group in families.values()
        for start in range(0, len(group), MOST_COLUMNS)
    ]
