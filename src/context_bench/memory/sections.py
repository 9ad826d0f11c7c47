"""Sections on memories: what they found, what it took, what the answers were worth, by kind of question."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from context_bench.core.families import RowPart, StoredRow
from context_bench.core.numbers import number
from context_bench.core.records import Estimate
from context_bench.core.rows import RowTally, in_order, of_rank, score, unranked
from context_bench.memory.evaluators.retrieval import GoldTurns
from context_bench.memory.figures import harms, setup_figures
from context_bench.memory.metrics.memory_metrics import AbstentionRates, MemoryCost, is_first
from context_bench.reports.declared import (
    ColumnUnit,
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    estimated,
    mapping,
    section_of,
)
from context_bench.reports.page import MISSING, Chart, LinePoint, Section, Table
from context_bench.reports.plotting import about_spread, spread
from context_bench.reports.visible_text import markdown
from context_bench.stats.intervals import Scored

_AT_K = re.compile(r"(session_)?(hit|recall|all|ndcg)_at_(\d+)")
_AT_TOKENS = re.compile(r"(session_)?(recall|all)_at_(\d+)_tokens")
_MOST_TYPES = 40
_MOST_LINES = 60  # of the table by type, in a terminal
_THRESHOLD = 0.7  # from which an answer is right, where the run does not say


@dataclass(slots=True)
class _Pass:
    """Figures of the rows of one system."""

    cost: RowTally
    decisions: RowTally
    scores: dict[str, Scored] = field(default_factory=dict)
    searches: list[float] = field(default_factory=list)  # seconds, without each haystack's first
    searched: set[Hashable] = field(default_factory=set)


def memory(context: ReportContext) -> list[Section]:
    """Sections of a run of memories."""
    given = number(mapping(context.result.manifest.get("options")).get("threshold"))
    threshold = _THRESHOLD if given is None else given
    passes = _passes(context, threshold)
    setups = {
        system: setup_figures([record for record in context.result.setups if record.system == system])
        for system in context.systems
    }
    tables = (
        *_found(context),
        _taken(context, passes, setups),
        _stored(setups),
        _answers(context, passes, threshold),
        _junk(context),
        _spread(context),
    )
    by_type = _types(context, passes)
    brief = by_type is None or len(by_type.rows) <= _MOST_LINES
    sections = (
        section_of("memory", "Memory", *tables, charts=_charts(context, passes)),
        section_of("qa_types", "By type of question", by_type, brief=brief),
    )
    return [section for section in sections if section is not None]


def _passes(context: ReportContext, threshold: float) -> dict[str, _Pass]:
    """One pass over the rows."""
    answers = context.score_field or "f1"
    wanted = {answers, *_by_type_scores(context)}
    without = unranked(context.result.manifest, context.systems)
    passes: dict[str, _Pass] = {}
    for row in context.result.rows:
        row = in_order(row, without)
        if row.system not in passes:
            passes[row.system] = _Pass(MemoryCost(answers, threshold).tally(), AbstentionRates(answers).tally())
        own = passes[row.system]
        own.cost.add(row)
        own.decisions.add(row)
        if (seconds := score(row, "search_seconds")) is not None and not is_first(row, own.searched):
            own.searches.append(seconds)
        for name in wanted:
            if (value := score(row, name)) is not None:
                own.scores.setdefault(name, Scored()).add(row, value)
    return passes


# --- what was found ---


def _found(context: ReportContext) -> list[Table | None]:
    """Recall and all at every k and at token budgets. Sessions in a table of their own, where items do not tell
    everything.
    """
    names = [name for name in context.aggregates.score_names if _place(name) is not None]
    sessions = [name for name in names if name.startswith("session_")]
    items = _levelled(context, [name for name in names if name not in sessions], "memory-found", "")
    if not _needs_sessions(context):
        return [items]
    return [items, _levelled(context, sessions, "memory-sessions", "Whole sessions; not to be compared with items")]


def _needs_sessions(context: ReportContext) -> bool:
    """True if some system has scores of sessions only."""

    def has(system: str, name: str) -> bool:
        return any(line == system and name in each.scores for (line, _), each in context.aggregates.lines.items())

    return any(has(system, "session_mrr") and not has(system, "mrr") for system in context.systems)


def _levelled(context: ReportContext, names: list[str], table: str, title: str) -> Table | None:
    if not names:
        return None
    names = sorted(names, key=lambda name: _place(name) or (0, 0))
    shown = [FigureColumn(name, f"{_titled(name)} (95 %)", "score") for name in names]
    shown.append(FigureColumn("n", "n", about="questions with evidence"))
    lines: list[tuple[str, dict[str, Any]]] = []
    for system in context.systems:
        means = {name: _estimate(context, system, name) for name in names}
        n = max((mean.n for mean in means.values() if mean is not None), default=0)
        lines.append((system, {**means, "n": n or None}))
    about = (
        "Share of the evidence among the first k hits (recall) and in everything given (of all given), questions with "
        "all of it among them (all), reciprocal rank of the first hit with any (MRR). Without known evidence, or "
        "where hits do not say what they come from, a question has none of these. Full context and oracle do not rank."
    )
    return declared_table(table, shown, lines, title=title, about="" if title else about)


def _charts(context: ReportContext, passes: Mapping[str, _Pass]) -> list[Chart]:
    """Recall by k, of items or of whole sessions, and how long searches took."""
    about = (
        "Each line is one memory: the share of the evidence that is among its first k hits, mean over questions. Up "
        "is better, and further left found it sooner. Whiskers are 95 % intervals, once there are enough examples."
    )
    curves = [("recall", "Recall at k", _recall_curve(context, ""))]
    if _needs_sessions(context):
        curves.append(("session-recall", "Recall at k, whole sessions", _recall_curve(context, "session_")))
    charts = [
        Chart(name, "recall", title, about, "k, hits", "recall", points, span=(0.0, 1.0))
        for name, title, points in curves
    ]
    searches = [dots for system, own in passes.items() if (dots := spread(system, own.searches)) is not None]
    about = about_spread("search") + " Each haystack's first search, which may load things, is left out."
    return [*charts, Chart("search", "distribution", "Search time", about, "time of a search", "", searches)]


def _recall_curve(context: ReportContext, level: str) -> list[LinePoint]:
    """Recall of items (`level` ""), or of sessions ("session_"), at each k."""
    matches = filter(None, map(_AT_K.fullmatch, context.aggregates.score_names))
    scores = sorted((int(at[3]), at[0]) for at in matches if at[2] == "recall" and (at[1] or "") == level)
    return [
        LinePoint(system, k, shown)
        for system in context.systems
        for k, name in scores
        if (shown := estimated(_estimate(context, system, name))) is not None
    ]


def _place(name: str) -> tuple[int, int] | None:
    """The place of a score in the table; `None` for what gets no column: hit, precision and nDCG are in the data, and
    say little more.
    """
    if found := _AT_K.fullmatch(name):
        return (("recall", "all").index(found[2]), int(found[3])) if found[2] in ("recall", "all") else None
    if found := _AT_TOKENS.fullmatch(name):
        return 3 + (found[2] == "all"), int(found[3])
    others = {"mrr": (2, 0), "evidence_recall": (5, 0)}
    return others.get(name.removeprefix("session_"))


def _titled(name: str) -> str:
    title = (
        name.removeprefix("session_")
        .replace("_at_", "@")
        .replace("mrr", "MRR")
        .replace("evidence_recall", "of all given")
    )
    title = f"{title.removesuffix('_tokens')} tokens" if title.endswith("_tokens") else title
    return f"session {title}" if name.startswith("session_") else title


# --- what it took ---

_TAKEN = columns(
    ("retrieved_tokens", "tokens/question", "tokens", "of what was found, o200k_base"),
    ("context_share", "of full context", "share", "of the tokens of the whole conversation"),
    (
        "score_per_1k_tokens",
        "score/1k tokens",
        "number",
        "of the report's score; read it beside the score: little text can lead here",
    ),
    ("search_p50", "search p50, ms", "ms", "single searches, without each haystack's first"),
    ("search_p95", "search p95, ms", "ms", ""),
    ("search_p99", "search p99, ms", "ms", ""),
    ("search_n", "searches", "count", "searches behind the percentiles"),
    ("search_first_p50", "first search, ms", "ms", "median of the first search of each haystack"),
    ("answer_p50", "answer p50, ms", "ms", "the reader's part"),
    ("answer_p95", "answer p95, ms", "ms", ""),
    ("overhead_p50", "harness p50, ms", "ms", "this tool's own part of a question; in neither search nor answer"),
    ("write_loss", "write loss", "share", "of items acknowledged: not found again by their own text"),
    ("facts_used", "facts used", "count", "items of evidence found, of questions answered right"),
    ("tokens_per_fact_used", "tokens/fact used", "tokens", "context of all questions, for each fact used"),
    ("usd_per_fact_used", "cost/fact used", "usd", "money of all questions and set-ups, for each fact used"),
)
_STORED = columns(
    ("ingest_items_per_second", "items/s", "number", "turns put in and waited for, over the time that took"),
    ("ingest_first", "first call, ms", "ms", "the slowest first call of a haystack, which may have to load things"),
    ("ingest_p50", "call p50, ms", "ms", "of the other calls, in the slowest haystack; a call may take many items"),
    ("ingest_p95", "call p95, ms", "ms", ""),
    ("ingest_p99", "call p99, ms", "ms", ""),
    ("items", "items", "count", "turns of all haystacks"),
    ("items_lost", "not taken", "share", "of items: not acknowledged"),
    ("stored", "kept", "count", "memories there are, as the memory says"),
    ("bytes_per_item", "bytes/item", "count", "what the memory says it holds, for each turn"),
)
_SPREAD = columns(
    ("spread_trials", "trials", "count", ""),
    ("spread_found", "SD of what was found", "score", ""),
    ("spread_score", "SD of the score", "score", ""),
    ("spread_same_hits", "with the same hits", "score", ""),
    ("spread_same_answer", "with the same answer", "score", ""),
    ("same_hits", "same hits", "share", ""),
    ("same_answers", "same answers", "share", ""),
)


def _taken(context: ReportContext, passes: Mapping[str, _Pass], setups: Mapping[str, dict[str, float]]) -> Table | None:
    """Context, search and answer times, and the price of what was used."""
    lines = [(system, _use(context, system, passes, setups[system])) for system in context.systems]
    about = (
        "Percentiles are of single calls, linear between neighbours; never of means. Tokens of a question are over all "
        "questions, the score for 1,000 tokens over those that have a score."
    )
    return declared_table("memory-taken", _TAKEN, lines, about=about)


def _stored(setups: Mapping[str, dict[str, float]]) -> Table | None:
    """Speed of storing items, and what is kept of them."""
    if not any(column.key.startswith("ingest_") and column.shown(setups.values()) for column in _STORED):
        return None
    about = "Before the first question. How it grows with the number of turns: context-bench memory ops."
    return declared_table("memory-stored", _STORED, setups.items(), about=about)


def _spread(context: ReportContext) -> Table | None:
    """Spread of repetitions, by stage."""
    about = (
        "Standard deviation between repetitions, of means over all questions. What was found: ingest and search. Of "
        "the score's, what is left where the reader was shown the same hits is the reader's and the judge's; where it "
        "said the same, the judge's. Same hits, same answers: share of questions where all repetitions agree."
    )
    lines = [(system, context.summary.get(system, {})) for system in context.systems]
    return declared_table("memory-spread", _SPREAD, lines, title="Between repetitions", about=about)


def _use(
    context: ReportContext, system: str, passes: Mapping[str, _Pass], setups: Mapping[str, float]
) -> dict[str, float]:
    """The numbers of `_TAKEN` for one system."""
    numbers = passes[system].cost.result() if system in passes else {}
    if of_rank(context.score_field) and system in unranked(context.result.manifest, context.systems):
        numbers = {name: value for name, value in numbers.items() if "_fact" not in name and "facts_" not in name}
    records = [record for record in context.result.setups if record.system == system]
    if "write_loss" in setups:
        numbers["write_loss"] = setups["write_loss"]
    if "query_usd_per_fact_used" in numbers and all(record.cost is not None or not record.calls for record in records):
        setup_usd = setups.get("setup_cost", 0.0) / numbers["facts_used"]
        numbers["usd_per_fact_used"] = numbers["query_usd_per_fact_used"] + setup_usd
    return numbers


# --- what the answers were worth ---

_DECISIONS = columns(
    ("abstention_precision", "abstention precision", "score", "of the questions declined: unanswerable ones"),
    ("abstention_recall", "abstention recall", "score", "of unanswerable questions: declined"),
    ("abstention_f1", "abstention F1", "score", ""),
    ("abstention_f1_always", "F1 of always declining", "score", "what declining every question gets"),
    ("coverage", "coverage", "score", "of answerable questions: answered"),
    ("answered_accuracy", "of answered", "score", ""),  # said with the name of the score
    ("helped", "helped (95 %)", "share", "right with this memory, wrong without any"),
    ("harmed", "harmed (95 %)", "share", "wrong with this memory, right without any"),
)
_JUNK: tuple[tuple[str, str, ColumnUnit, str], ...] = (
    (
        "stale_over_current",
        "stale before current",
        "share",
        "of facts that changed: an outdated value comes first, or alone",
    ),
    ("stale_in_top_k", "stale found", "share", "of facts that changed: an outdated value is among the hits"),
    ("current_at_1", "current first", "share", "of facts that changed: the first hit has the value that holds"),
    ("as_of_at_1", "as of then", "share", "questions about an earlier moment: the first hit has the value that held"),
    ("answer_stale", "stale answers", "share", "answers that name an outdated value and not the current one"),
    ("near_duplicate_share", "near-duplicates", "share", "of the hits: say nearly the same as an earlier one"),
    (
        "recall_loop_share",
        "recall loops",
        "share",
        "of the hits: hold the whole text of another one, as what was recalled and stored again does",
    ),
    ("query_echo_share", "question echoed", "share", "of the hits: only repeat the question"),
)


def _answers(context: ReportContext, passes: Mapping[str, _Pass], threshold: float) -> Table | None:
    """The answers' score, abstention, and what changed against no memory."""
    field = context.score_field
    if field is None or _AT_K.fullmatch(field) or not any(field in each.scores for each in passes.values()):
        return None
    scores = {system: each.scores for system, each in passes.items()}
    changes = {each.system: each for each in harms(scores, context.roles, list(scores), field, threshold)}
    lines: list[tuple[str, dict[str, Any]]] = []
    for system in context.systems:
        own, change = passes.get(system), changes.get(system)
        facts: dict[str, Any] = dict(own.decisions.result()) if own else {}
        facts["answers"] = own.scores[field].mean() if own and field in own.scores else None
        if change is not None:
            facts |= {"helped": change.helped, "harmed": change.harmed}
        lines.append((system, facts))
    shown = [FigureColumn("answers", f"{field} (95 %)", "score"), *_DECISIONS]
    shown[-3] = replace(shown[-3], about=f"mean {field} of answerable questions that were answered")
    about = (
        f"Right: {field} ≥ {threshold:g}. Helped and harmed: shares of the questions that both this memory "
        "and none answered."
    )
    return declared_table("memory-answers", shown, lines, about=about)


def _junk(context: ReportContext) -> Table | None:
    """Harm in use: outdated values, repetition, echoes."""
    names = context.aggregates.score_names
    shown = columns(*(column for column in _JUNK if column[0] in names))
    if shown and "stale_in_top_k" in names:
        about = "questions about facts that changed"
        shown += columns(("changed", "changed facts", "count", about))
    lines: list[tuple[str, dict[str, Any]]] = []
    for system in context.systems:
        changed = _estimate(context, system, "stale_in_top_k")
        means = {key: _estimate(context, system, key) for key, *_ in _JUNK}
        lines.append((system, {**means, "changed": changed.n if changed else None}))
    return declared_table("memory-junk", shown, lines)


# --- by type ---


def _by_type_scores(context: ReportContext) -> list[str]:
    """The score of the run, and recall and all at the largest k, of items and of sessions."""
    deepest: dict[tuple[str, bool], tuple[int, str]] = {}
    for at in filter(None, map(_AT_K.fullmatch, context.aggregates.score_names)):
        if at[2] in ("recall", "all") and (not at[1] or _needs_sessions(context)):
            place = (at[1] or "", at[2] != "recall")
            deepest[place] = max(deepest.get(place, (0, "")), (int(at[3]), at[0]))
    names = [context.score_field] if context.score_field else []
    return list(dict.fromkeys([*names, *(name for _, (_, name) in sorted(deepest.items()))]))


def _types(context: ReportContext, passes: Mapping[str, _Pass]) -> Table | None:
    names = [name for name in _by_type_scores(context) if any(name in each.scores for each in passes.values())]
    kinds = sorted({kind for each in passes.values() for by in each.scores.values() for kind in by.kinds.values()})
    if not names or not 1 < len(kinds) <= _MOST_TYPES:
        return None
    lines: list[tuple[tuple[str, str], dict[str, Any]]] = []
    once = True  # all scores of a line are of as many questions
    for kind in kinds:
        for system in context.systems:
            own = passes[system].scores if system in passes else {}
            means = {name: mean for name in names if name in own and (mean := own[name].mean(kind)) is not None}
            counts = {f"{name}/n": mean.n for name, mean in means.items()}
            once = once and len(set(counts.values())) < 2
            if means:
                lines.append(((kind, system), {**means, **counts, "n": next(iter(counts.values()))}))
    shown: list[FigureColumn] = []
    for name in names:
        shown.append(FigureColumn(name, f"{_titled(name)} (95 %)", "score"))
        shown += [] if once else [FigureColumn(f"{name}/n", "n")]
    shown += [FigureColumn("n", "n")] if once else []
    about = (
        "n: questions with this score. With few questions, or few conversations, the interval is wide or there is none."
    )
    return declared_table("qa_types", shown, lines, keys=("type", "System"), about=about)


def per_qa_type(summary: Mapping[str, Mapping[str, float]], score_field: str) -> str:
    """The Markdown section "Per-QA-Type Breakdown": one row per system, one column per number of the summary whose name
    begins with `score_field` and an underscore (`…_mean` aside), sorted, 4 decimals, an em dash for what is absent. ""
    without any such number.
    """
    keys = _type_keys(summary.values(), score_field)
    if not keys:
        return ""
    lines = [
        " | ".join(("System", *(markdown(key, 300) for key in keys))),
        " | ".join(("---", *("---:" for _ in keys))),
    ]
    for system, numbers in summary.items():
        values = (number(numbers.get(key)) for key in keys)
        lines.append(
            " | ".join((markdown(system, 300), *(MISSING if value is None else f"{value:.4f}" for value in values)))
        )
    table = "\n".join(f"| {line} |" for line in lines)
    return f"## Per-QA-Type Breakdown\n\n{table}\n"


def _type_keys(summaries: Collection[Mapping[str, float]], score_field: str) -> list[str]:
    return sorted(
        {key for by in summaries for key in by if key.startswith(f"{score_field}_") and key != f"{score_field}_mean"}
    )


def _estimate(context: ReportContext, system: str, name: str) -> Estimate | None:
    """The run's estimate, else the mean of the rows."""
    if (known := context.estimates.get(system, {}).get(name)) is not None:
        return known
    lines = (each.scores.get(name) for (line, _), each in context.aggregates.lines.items() if line == system)
    means = [mean for mean in lines if mean and mean.n]
    n = sum(mean.n for mean in means)
    return Estimate(sum(mean.total for mean in means) / n, n=n) if n else None


# --- a row ---


def found_and_missed(stored: StoredRow) -> list[RowPart]:
    """The hits for one question, in the memory's order, with the gold that each holds; then the gold that none does."""
    hits = stored.output.get("hits")
    if not isinstance(hits, list):
        if stored.row.failed:
            return []
        return [RowPart(title="What was found", note="This memory only answers: what it recalled cannot be seen.")]
    gold = GoldTurns.of(stored.example)
    ids = [gold.of_sources(hit.get("source_ids")) if isinstance(hit, Mapping) else [] for hit in hits]
    told = [_hit(place, hit, held) for place, (hit, held) in enumerate(zip(hits, ids, strict=True), start=1)]
    cut = stored.output.get("hits_beyond_k")
    note = gold.note(stored.output.get("provenance"), len(hits))
    note += (
        f" {cut} more came back and {'was' if cut == 1 else 'were'} not shown to the reader: only the first k count."
        if cut
        else ""
    )
    found = [RowPart(title="What was found", note=note.strip(), columns=_HIT_COLUMNS, rows=told, replaces=("context",))]
    covered = {each for held in ids for each in held}
    missed = [one for one in gold.ids if one not in covered]
    if missed:
        unknown = bool(hits) and stored.output.get("provenance") == "none"
        title = f"Gold that was missed: {len(missed)} of {len(gold.ids)}"
        found.append(
            RowPart(
                title="Gold, found or not" if unknown else title,
                columns=("item", "time", "what it says"),
                rows=[(one, _clock(time), text) for one in missed for time, text in [gold.text_of(one)]],
            )
        )
    return found


_HIT_COLUMNS = ("rank", "gold", "what it says", "score", "time", "from", "tokens")


def _hit(place: int, hit: Any, held: list[str]) -> tuple[Any, ...]:
    fields = hit if isinstance(hit, Mapping) else {}
    text = fields.get("text")
    sources = ", ".join(str(one) for one in fields.get("source_ids") or ())
    return (
        place,
        True if held else "—",  # stays where no hit is gold: that is told, not unknown
        text if isinstance(text, str) else str(hit),
        number(fields.get("score")),
        _clock(fields.get("time")),
        sources or None,
        number(fields.get("tokens")),
    )


def _clock(told: Any) -> str | None:
    """A time as a person reads it, whole minutes without their seconds."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::00(?![.\d]))?", r"\1 \2", str(told)) if told else None
