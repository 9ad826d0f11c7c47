"""The answer of a report, from its verdicts: a card for each system of the user, one line on the controls, one table.

Terminal, HTML, Markdown, notebook and the viewer read these and word nothing anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_bench.core.measures import percent
from context_bench.core.records import Comparison
from context_bench.core.roles import CANDIDATE
from context_bench.reports.arm_aggregates import Line, LineAggregates, quantile
from context_bench.reports.declared import (
    PRIMARY,
    FigureColumn,
    ReportContext,
    declared_table,
    estimate_of,
    interval_of,
    section_of,
)
from context_bench.reports.page import Card, Figure, Section, Sentence, SystemChanges
from context_bench.reports.plotting import AGAINST_TRUNCATION, TONES, difference
from context_bench.reports.traffic import forwarded_mean, saved_money, saved_tokens
from context_bench.reports.visible_text import command_on, option
from context_bench.stats.verdict.decisions import IF_EQUAL
from context_bench.stats.verdict.evidence import is_headline


def sentences(report: ReportContext) -> list[Sentence]:
    """Everything that is said of a run and its systems: facts on the whole run, verdicts against truncation to the same
    size, verdicts on quality, what families say, and last what could not be told against truncation.
    """
    lifts = _lifts(report)
    given, without = ([each for each in lifts if (each.verdict == "no verdict") == none] for none in (False, True))
    said = [*_headlines(report), *given, *_verdicts(report), *_sentences(report), *without]
    return said if any(each.kind != "run" for each in said) else [*said, *_unjudged(report)]


def _unjudged(report: ReportContext) -> list[Sentence]:
    """Savings of each system, where no row has the score that verdicts would be about."""
    if len(report.lines) < 2 or any(estimate_of(report, line, PRIMARY) is not None for line, _ in report.lines):
        return []
    found = []
    for line, each in report.lines:
        saved = interval_of(report, line, "compression_ratio", each.compression, "share")
        if saved is not None and not report.roles.get(line[0], CANDIDATE).is_control:
            text = f"{report.label(line)}: no answer was judged, so nothing is said about quality."
            known = {"tokens": saved}
            found.append(Sentence(line[0], "quality not measured", text, saved=known, kind="family"))
    return found


def _sentences(report: ReportContext) -> list[Sentence]:
    return [
        replace(sentence, kind="family") for family in report.families for sentence in family.sections.sentences(report)
    ]


def _lifts(report: ReportContext) -> list[Sentence]:
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
            kind="lift",
        )
        for each in report.result.lifts
    ]


def _headlines(report: ReportContext) -> list[Sentence]:
    """Differences of two compared runs; facts that make all verdicts below it pointless to read one by one."""
    compared = _between_runs(report.result.manifest or {})
    return [
        *([Sentence("these runs", "compared", compared, kind="run")] if compared else []),
        *_insensitive(report),
    ]


def _between_runs(manifest: Mapping[str, Any]) -> str:
    """Differences of two compared runs, and whether they stand in the order of their start."""
    if not isinstance(differs := manifest.get("differs"), list):
        return ""
    told = "; ".join(str(each)[:300] for each in differs)
    same = "Nothing differs between the two runs: same data, options, settings and versions."
    said = f"What differs between the two runs: {told}." if told else same
    runs = [each.get("run") for each in manifest.get("compared") or [] if isinstance(each, Mapping)]
    begun = [str(each.get("started") or "") for each in runs if isinstance(each, Mapping)]  # ISO 8601, UTC
    if len(begun) == 2 and all(begun) and begun[0] > begun[1]:
        said += " Mind: the run that was named first, and is taken for the earlier one, was started after the other."
    return said


def _insensitive(report: ReportContext) -> list[Sentence]:
    return [
        Sentence("this run", "insensitive", note, kind="run")
        for note in map(str, report.result.notes)
        if is_headline(note)
    ]


def _verdicts(report: ReportContext) -> list[Sentence]:
    """One sentence per comparison; those of single datasets stand in the table only, where the same system has one over
    all of them.
    """
    comparisons = report.result.comparisons
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
            _saved(report, each, control),
            control,
            label=" · ".join([report.label((each.system, each.shape)), *([each.dataset] if each.dataset else [])]),
            n=each.n,
            needed=each.n_needed,
        )
        for each in chosen
        for control in [report.roles.get(each.system, CANDIDATE).is_control]
    ]


def _saved(report: ReportContext, each: Comparison, control: bool) -> dict[str, Figure]:
    """Shares of tokens and money that the system of a comparison saves against its baseline, on the examples that
    both have them of.

    Else the tokens that a measured system took from what it was sent; of a control that says nothing, for it shortens
    before it sends. A control that saves nothing was not meant to.
    """
    line, base = (
        (name, each.shape) if (name, each.shape) in report.aggregates.lines else (name, None)
        for name in (each.system, each.baseline)
    )
    aggregates = report.aggregates.lines
    if each.dataset is not None or line not in aggregates:
        return {}
    tokens = saved_tokens(report, line, base)
    if tokens is None and not control:
        tokens = interval_of(report, line, "compression_ratio", aggregates[line].compression, "share")
    found = {
        "tokens": tokens,
        "money": saved_money(report, line, base),
    }
    return {name: value for name, value in found.items() if value is not None and not (control and value.value == 0)}


def changes(report: ReportContext) -> list[SystemChanges]:
    """The requests of each system that were changed on their way; of a control only where there are any."""
    found = []
    for line, each in report.lines:
        if each.compared and (each.changed or not report.roles.get(line[0], CANDIDATE).is_control):
            place, row = each.instance or (None, None)
            found.append(SystemChanges(report.label(line), each.changed, each.compared, place, row))
    return found


def _sentence(each: Comparison) -> str:
    where = "".join(f" ({part})" for part in (each.dataset, each.shape) if part)
    shown = difference(each)
    against = f"{each.metric} against {each.baseline} {shown.text if shown else 'not measured'}"
    return f"{each.system}{where}: {each.verdict}; {against}, n = {each.n}."


#: Formal verdict → the chip for people. `{margin}` is the loss that was ruled out.
CHIPS = {
    "better": "better",
    "non-inferior": "no loss ≥ {margin}",
    "inferior": "loss",
    "undecided": "can't tell yet",
    "insensitive": "test too weak",
    "no verdict": "can't tell yet",
}
#: Kinds of controls, in words.
_CONTROLS = {
    "none": "no context",
    "tail_only": "no context",
    "head_tail": "truncation",
    "random_drop": "words dropped at random",
    "random": "random hits",
    "full_context": "everything",
    "oracle": "exactly the evidence",
    "full": "everything",
    "passthrough": "everything",
}
_FEW = 2  # controls of one kind that are named one by one
_SAME = 0.005  # a share below which nothing is said to be saved


def cards(
    report: ReportContext, sentences: Sequence[Sentence], changes: Iterable[SystemChanges], store: str = ""
) -> list[Card]:
    """A card for each system under test that anything was said of, in the order of the run."""
    run, asked = _run_name(report), _asked(report)
    example = {each.system: each.row.example_id for each in changes if each.row is not None}
    found = []
    for name, said in _by_system(report, sentences).items():
        lead = next((each for kind in ("quality", "family") for each in said if each.kind == kind), said[0])
        command = _next_command(lead, run, example.get(name), store_option(store))
        found.append(_card(name, lead, said, command, asked))
    return found


def _asked(report: ReportContext) -> str:
    """The word for one thing that was asked."""
    unit = next((family.sections.unit for family in report.families), "Examples")
    return "question" if unit == "Examples" else unit.lower().removesuffix("s")


def _by_system(report: ReportContext, sentences: Sequence[Sentence]) -> dict[str, list[Sentence]]:
    """Label → what was said of the system. Statements about a system as a whole stand on the first of its cards."""
    found: dict[str, list[Sentence]] = {}
    own = [each for each in sentences if each.kind != "run" and not _is_control(report, each)]
    order = {name: place for place, name in enumerate(report.systems)}
    for each in sorted(own, key=lambda each: (each.kind != "quality", order.get(each.system, len(order)))):
        first = next((label for label, said in found.items() if said[0].system == each.system), each.system)
        found.setdefault(each.label or each.system if each.kind == "quality" else first, []).append(each)
    return found


def _is_control(report: ReportContext, each: Sentence) -> bool:
    return each.control or report.roles.get(each.system, CANDIDATE).is_control


def _card(name: str, lead: Sentence, said: Sequence[Sentence], command: str, asked: str) -> Card:
    lift = next((each for each in said if each.kind == "lift" and each.verdict != "no verdict"), None)
    saved = next((each.saved for each in said if each.saved), {})
    money = saved.get("money")
    judged = lead.kind == "quality"
    return Card(
        system=name,
        title=_title(name, lead, saved, asked),
        chip=chip_of(lead) if judged else "" if lead.verdict == lead.system else lead.verdict,
        verdict=lead.verdict if judged else "",
        tone=lead.tone,
        baseline=lead.baseline,
        difference=lead.difference if judged else None,
        margin=lead.margin if judged else None,
        saved=dict(saved),
        lift=lift.verdict if lift else "",
        cost_ratio=Figure(1 - money.value, "number", digits=3) if money else None,
        command=command,
        figures=_figures(lead, lift, money),
        terms=tuple(dict.fromkeys(each.text for each in said)),
    )


def card_of(sentence: Sentence) -> Card:
    """The card of a statement that compares nothing: its words, and its verdict where it has one."""
    return _card(sentence.system, replace(sentence, kind="family"), [], "", "")


def _title(name: str, lead: Sentence, saved: Mapping[str, Figure], asked: str) -> str:
    savings = _savings(saved)
    if lead.kind != "quality":
        plain = lead.text.removeprefix(f"{name}: ")
        but = f", but {lead.but}" if lead.but else ""
        return f"{name} {savings}{but}." if savings else f"{name}: {plain}"
    quality = _quality(lead, asked)
    if not savings:
        return f"{name}: {quality}."
    return f"{name} {savings}{' and' if lead.verdict == 'better' else ';'} {quality}."


def _savings(saved: Mapping[str, Figure]) -> str:
    tokens, money = (share.value if (share := saved.get(what)) else 0.0 for what in ("tokens", "money"))
    fewer = f"sends {_percent(tokens)} {'fewer' if tokens > 0 else 'more'} tokens" if abs(tokens) >= _SAME else ""
    if money >= _SAME:
        return f"saves {_percent(money)} of the money" + (f" but {fewer}" if tokens <= -_SAME else "")
    if money <= -_SAME:
        return (
            f"{fewer} {'but' if tokens > 0 else 'and'} costs {_percent(money)} more"
            if fewer
            else (f"costs {_percent(money)} more")
        )
    return f"{fewer} for the same money" if fewer and "money" in saved else fewer


def _percent(share: float) -> str:
    return percent(abs(share))


def _quality(lead: Sentence, asked: str) -> str:
    """The verdict as a clause."""
    gap = lead.difference
    size = "" if gap is None else _size(abs(gap.value), lead)
    margin = "" if lead.margin is None else _size(lead.margin, lead)
    if lead.verdict == "better":
        return f"answers better, by {size}"
    if lead.verdict == "non-inferior":
        return f"quality holds: a loss of {margin} or more is ruled out"
    if lead.verdict == "inferior":
        return f"quality suffers: {size} lost"
    if lead.verdict == "insensitive":
        return "this test could not have shown a loss"
    if lead.verdict == "undecided" and lead.needed is not None and lead.needed > lead.n:
        enough = ", enough if nothing is lost" if IF_EQUAL in lead.text else ""
        return f"whether quality suffers is open: ask {lead.needed:,} {asked}s instead of {lead.n:,}{enough}"
    if lead.verdict in ("undecided", "no verdict"):
        return f"whether quality suffers is open after {lead.n:,} {asked}{'s' * (lead.n != 1)}"
    return lead.verdict


def chip_of(lead: Sentence) -> str:
    """The verdict of a statement for people, such as "no loss ≥ 2 points"."""
    margin = "the margin" if lead.margin is None else _size(lead.margin, lead)
    return CHIPS.get(lead.verdict, lead.verdict).format(margin=margin)


def _size(value: float, sentence: Sentence) -> str:
    """A difference, in points of 100 where the statement is in points."""
    if " points" not in sentence.text:
        return f"{value:.3g}"
    points = f"{100 * value:.1f}".removesuffix(".0")
    return f"{points} point{'s' * (points != '1')}"


def _figures(lead: Sentence, lift: Sentence | None, money: Figure | None) -> str:
    """The numbers behind the title: difference with its interval, the same against truncation, the bill."""
    parts = [_gap(lead)] if lead.kind == "quality" and lead.difference else []
    parts += [f"{lift.verdict}: {_gap(lift)}" if lift.difference else lift.verdict] if lift else []
    parts += [f"bill × {1 - money.value:.3f}"] if money else []
    return " · ".join(parts)


def _gap(sentence: Sentence) -> str:
    """`-9.1 points [-32.3, +14.1]`."""
    gap = sentence.difference
    if gap is None:
        return ""
    points = " points" in sentence.text
    first, *ends = (
        "unknown" if value is None else _plain(f"{100 * value:+.1f}" if points else f"{value:+.3g}")
        for value in (gap.value, gap.low, gap.high)
    )
    interval = "" if gap.low is None or gap.high is None else f" [{', '.join(ends)}]"
    return f"{first}{' points' * points}{interval}"


def _plain(number: str) -> str:
    """The number without a sign where it is zero."""
    return number if any(digit in "123456789" for digit in number) else number.lstrip("+-")


def _signed(sentence: Sentence) -> str:
    return _gap(sentence).partition(" ")[0]


def _run_name(report: ReportContext) -> str:
    run = (report.result.manifest or {}).get("run")
    name = run.get("name") if isinstance(run, Mapping) and run.get("store", "") is not None else None
    return name if isinstance(name, str) else ""  # none for a run that was kept nowhere


def _next_command(lead: Sentence, run: str, example: str | int | None, store: str) -> str:
    if not run:
        return ""
    if lead.kind == "quality" and lead.verdict in ("better", "non-inferior"):
        return command_on("context-bench gate", [run], store)
    if lead.kind == "quality" and lead.verdict == "inferior" and example is not None:
        return command_on("context-bench diff", [run, str(example)], option("--system", lead.system) + store)
    if lead.kind != "quality" or lead.verdict == "inferior":
        return command_on("context-bench show", [run], f" --full{store}")
    margin = f" --margin {lead.margin:g}" if lead.margin else ""
    return f"context-bench power{option('--from', run)}{margin}{store}"


def whole_report(report: ReportContext, store: str) -> str:
    """The command that shows everything; empty where the run has no name."""
    name = _run_name(report)
    return command_on("context-bench show", [name], f" --full{store_option(store)}") if name else ""


def store_option(store: str) -> str:
    """The end of a command on a run that is not in the usual store."""
    return option("--store", store) if store else ""


def checks(report: ReportContext, sentences: Iterable[Sentence]) -> str:
    """One line on the controls: did what must lose lose, and by how much; empty without controls."""
    own = [each for each in sentences if each.kind == "quality" and each.control and each.difference is not None]
    if not own:
        return ""
    bad = [each for each in own if report.roles.get(each.system, CANDIDATE).role == "known_bad"]
    worked = any(each.verdict == "inferior" for each in bad)
    said = "; ".join(_by_kind(report, own))
    unit = " points" if all(" points" in each.text for each in own) else ""
    if worked:
        return f"The checks worked: {said}{unit}."
    if bad and all(each.verdict == "no verdict" for each in bad):
        return f"Too few questions to tell whether the checks worked: {said}{unit}."
    if bad:
        return f"The checks did not show a loss where there must be one: {said}{unit}."
    return f"Controls: {said}{unit}."


def _by_kind(report: ReportContext, own: Sequence[Sentence]) -> Iterator[str]:
    """Each control with its difference; the least and the greatest of a kind that there is for many systems."""
    kinds: dict[str, list[Sentence]] = {}
    for each in own:
        name = _control(report, each)
        kinds.setdefault(name.partition(" (")[0] if "@" in name else name, []).append(each)
    for kind, found in kinds.items():
        told = dict.fromkeys(f"{_control(report, each)} {_signed(each)}" for each in found)
        if len(told) <= _FEW:
            yield from told
        else:
            low, high = (_signed(end(found, key=_gap_value)) for end in (min, max))
            yield f"{kind} ({len(told)} of them) {low}{f' to {high}' if high != low else ''}"


def _gap_value(each: Sentence) -> float:
    return each.difference.value if each.difference is not None else 0.0


def _control(report: ReportContext, each: Sentence) -> str:
    role = report.roles.get(each.system, CANDIDATE)
    kind = _CONTROLS.get(role.kind or "")
    if kind is None or role.role == "noise_floor":
        return each.label or each.system
    return f"{kind} ({each.label or each.system})"


_OVERVIEW = (
    FigureColumn("score", "score", "score", "mean of the score that verdicts are about", "any"),
    FigureColumn("difference", "difference", "score", "to the baseline, on the same examples", "any", signed=True),
    FigureColumn(
        "tokens",
        "tokens",
        "tokens",
        "tokens forwarded for each example: of the prompt, or of the context alone where that is what was counted",
        "nonzero",
    ),
    FigureColumn("money", "per 1,000", "usd", "US dollars for 1,000 examples", "nonzero"),
    FigureColumn("latency", "median", "seconds", "time that half of the examples did not exceed", "nonzero"),
    FigureColumn("failed", "failed", "count", "rows without an answer", "nonzero"),
)


def overview(report: ReportContext) -> Section | None:
    """One line for each system: score, difference, tokens, money, latency, failures. Columns without a figure leave."""
    gaps: dict[tuple[str, str | None], float | None] = {}
    for each in report.result.comparisons:
        if each.dataset is None:
            gaps[each.system, each.shape] = each.difference
            gaps.setdefault((each.system, None), each.difference)
    lines = [(report.label(line), _overview_facts(report, line, totals, gaps)) for line, totals in report.lines]
    table = declared_table("overview", _OVERVIEW, lines)
    return section_of("overview", "Overview", table)


def _overview_facts(
    report: ReportContext, line: Line, each: LineAggregates, gaps: Mapping[tuple[str, str | None], float | None]
) -> dict[str, Any]:
    price = each.cost.value
    return {
        "score": None if (known := estimate_of(report, line, PRIMARY)) is None else known.value,
        "difference": gaps.get(line),
        "tokens": forwarded_mean(each),
        "money": None if price is None else 1000 * price,
        "latency": quantile(each.latency, 0.5),
        "failed": each.failed,
    }
