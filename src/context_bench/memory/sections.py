"""Sections on memories: what they found, what it took, what the answers were worth, by kind of question."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from context_bench.core.numbers import number
from context_bench.core.records import Estimate
from context_bench.core.rows import of_rank, score, unranked, without_ranks
from context_bench.memory.figures import Declined, Use, setup_figures
from context_bench.memory.notes import harms
from context_bench.reports.declared import figure, mapping
from context_bench.reports.page import MISSING, Cell, Chart, Column, Figure, LinePoint, Section, Table, Unit
from context_bench.reports.plotting import about_spread, spread
from context_bench.reports.report_context import ReportContext
from context_bench.reports.text import markdown
from context_bench.stats.intervals import Scored

_AT_K = re.compile(r"(session_)?(hit|recall|all|ndcg)_at_(\d+)")
_AT_TOKENS = re.compile(r"(session_)?(recall|all)_at_(\d+)_tokens")
_MOST_TYPES = 40
_MOST_LINES = 60  # of the table by type, in a terminal
_THRESHOLD = 0.7  # from which an answer is right, where the run does not say
_JUNK = (
    ("stale_over_current", "stale before current", "of facts that changed: an outdated value comes first, or alone"),
    ("stale_in_top_k", "stale found", "of facts that changed: an outdated value is among the hits"),
    ("current_at_1", "current first", "of facts that changed: the first hit has the value that holds"),
    ("as_of_at_1", "as of then", "questions about an earlier moment: the first hit has the value that held"),
    ("answer_stale", "stale answers", "answers that name an outdated value and not the current one"),
    ("near_duplicate_share", "near-duplicates", "of the hits: say nearly the same as an earlier one"),
    (
        "recall_loop_share",
        "recall loops",
        "of the hits: hold the whole text of another one, as what was recalled and stored again does",
    ),
    ("query_echo_share", "question echoed", "of the hits: only repeat the question"),
)


@dataclass(slots=True)
class _Pass:
    """Figures of the rows of one system."""

    use: Use
    declined: Declined
    scores: dict[str, Scored] = field(default_factory=dict)


def memory(material: ReportContext) -> list[Section]:
    """Sections of a run of memories."""
    told = number(mapping(material.result.manifest.get("options")).get("threshold"))
    threshold = _THRESHOLD if told is None else told
    passes = _passes(material, threshold)
    others = (
        _taken(material, passes),
        _stored(material),
        _answers(material, passes, threshold),
        _junk(material),
        _spread(material),
    )
    known = [*_found(material), *(table for table in others if table is not None)]
    by_type = _types(material, passes)
    return [
        *([Section("memory", "Memory", tables=known, charts=_charts(material, passes))] if known else []),
        *(
            [Section("qa_types", "By type of question", tables=[by_type], brief=len(by_type.rows) <= _MOST_LINES)]
            if by_type
            else []
        ),
    ]


def _passes(material: ReportContext, threshold: float) -> dict[str, _Pass]:
    """One pass over the rows."""
    answers = material.score_field or "f1"
    wanted = {answers, *_by_type_scores(material)}
    without = unranked(material.result.manifest, material.systems)
    found: dict[str, _Pass] = {}
    for row in material.result.rows:
        if row.system in without:
            row = next(without_ranks([row]))
        one = found.get(row.system)
        if one is None:
            one = found[row.system] = _Pass(Use(answers, threshold), Declined(answers))
        one.use.add(row)
        one.declined.add(row)
        for name in wanted:
            if (value := score(row, name)) is not None:
                one.scores.setdefault(name, Scored()).add(row, value)
    return found


# --- what was found ---


def _found(material: ReportContext) -> list[Table]:
    """Recall and all at every k and at token budgets. Sessions in a table of their own, where items do not tell
    everything.
    """
    names = [name for name in material.aggregates.score_names if _place(name) is not None]
    tables = [_levelled(material, [name for name in names if not name.startswith("session_")], "memory-found", "")]
    if _needs_sessions(material):
        sessions = [name for name in names if name.startswith("session_")]
        tables.append(_levelled(material, sessions, "memory-sessions", "Whole sessions; not to be compared with items"))
    return [table for table in tables if table is not None]


def _needs_sessions(material: ReportContext) -> bool:
    """True if some system has scores of sessions only."""

    def has(system: str, name: str) -> bool:
        return any(line == system and name in each.scores for (line, _), each in material.aggregates.lines.items())

    return any(has(system, "session_mrr") and not has(system, "mrr") for system in material.systems)


def _levelled(material: ReportContext, names: list[str], table: str, title: str) -> Table | None:
    if not names:
        return None
    names = sorted(names, key=lambda name: _place(name) or (0, 0))
    columns = [
        Column("System", False),
        *(Column(f"{_titled(name)} (95 %)") for name in names),
        Column("n", about="questions with evidence"),
    ]
    rows: list[list[Cell]] = []
    for system in material.systems:
        known = [_estimate(material, system, name) for name in names]
        n = max((each.n for each in known if each is not None), default=0)
        rows.append([system, *(_figure(each) for each in known), Figure(n, "count") if n else None])
    about = (
        "Share of the evidence among the first k hits (recall) and in everything given (of all given), questions with "
        "all of it among them "
        "(all), reciprocal rank of the first hit with any (MRR). Without known evidence, or where hits do not say "
        "what they come from, a "
        "question has none of these. Full context and oracle do not rank."
    )
    return Table(table, columns, rows, title, about if not title else "")


def _charts(material: ReportContext, passes: Mapping[str, _Pass]) -> list[Chart]:
    """Recall by k, of items or of whole sessions, and how long searches took."""
    about = (
        "Each line is one memory: the share of the evidence that is among its first k hits, mean over questions. Up "
        "is better, and further "
        "left found it sooner. Whiskers are 95 % intervals."
    )
    found = []
    for prefix, what in (("", "Recall at k"), ("session_", "Recall at k, whole sessions")):
        levels = sorted(
            (int(each[3]), each[0]) for name in material.aggregates.score_names if (each := _recall_at(prefix, name))
        )
        points = [
            LinePoint(system, k, shown)
            for system in material.systems
            for k, name in levels
            if (shown := _figure(_estimate(material, system, name))) is not None
        ]
        if not prefix or _needs_sessions(material):
            found.append(
                Chart(
                    f"{prefix}recall".replace("_", "-"),
                    "recall",
                    what,
                    about,
                    "k, hits",
                    "recall",
                    points,
                    span=(0.0, 1.0),
                )
            )
    searches = [own for system, one in passes.items() if (own := spread(system, one.use.search)) is not None]
    told = about_spread("search") + " Each haystack's first search, which may load things, is left out."
    found.append(Chart("search", "distribution", "Search time", told, "time of a search", "", searches))
    return [chart for chart in found if chart.data]


def _recall_at(prefix: str, name: str) -> re.Match[str] | None:
    found = _AT_K.fullmatch(name)
    return found if found and found[2] == "recall" and (found[1] or "") == prefix else None


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


def _taken(material: ReportContext, passes: Mapping[str, _Pass]) -> Table | None:
    """Context, search and answer times, and the price of what was used."""
    shown: list[tuple[str, str, Unit | None, str]] = [
        ("retrieved_tokens", "tokens/question", "tokens", "of what was found, o200k_base"),
        ("context_share", "of full context", "share", "of the tokens of the whole conversation"),
        (
            "score_per_1k_tokens",
            "score/1k tokens",
            "number",
            "of the report's score; read it beside the score: little text can lead here",
        ),
        ("search_p50", "search p50, ms", None, "single searches by nearest rank, without each haystack's first"),
        ("search_p95", "search p95, ms", None, ""),
        ("search_p99", "search p99, ms", None, ""),
        ("search_n", "searches", "count", "searches behind the percentiles"),
        ("search_first_p50", "first search, ms", None, "median of the first search of each haystack"),
        ("answer_p50", "answer p50, ms", None, "the reader's part"),
        ("answer_p95", "answer p95, ms", None, ""),
        ("overhead_p50", "harness p50, ms", None, "this tool's own part of a question; in neither search nor answer"),
        ("write_loss", "write loss", "share", "of items acknowledged: not found again by their own text"),
        ("facts_used", "facts used", "count", "items of evidence found, of questions answered right"),
        ("tokens_per_fact_used", "tokens/fact used", "tokens", "context of all questions, for each fact used"),
        ("usd_per_fact_used", "cost/fact used", "usd", "money of all questions and set-ups, for each fact used"),
    ]
    numbers = {system: _numbers(material, system, passes) for system in material.systems}
    kept = [each for each in shown if any(each[0] in by for by in numbers.values())]
    if not kept:
        return None
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in kept)]
    rows: list[list[Cell]] = [
        [system, *(_cell(by.get(name), unit) for name, _, unit, _ in kept)] for system, by in numbers.items()
    ]
    return Table(
        "memory-taken", columns, rows, about="Percentiles are of single calls, the ⌈p·n⌉-th smallest; never of means."
    )


def _stored(material: ReportContext) -> Table | None:
    """Speed of storing items, and what is kept of them."""
    shown: list[tuple[str, str, Unit | None, str]] = [
        ("ingest_items_per_second", "items/s", "number", "turns put in and waited for, over the time that took"),
        ("ingest_first", "first call, ms", None, "the slowest first call of a haystack, which may have to load things"),
        ("ingest_p50", "call p50, ms", None, "of the other calls, in the slowest haystack; a call may take many items"),
        ("ingest_p95", "call p95, ms", None, ""),
        ("ingest_p99", "call p99, ms", None, ""),
        ("items", "items", "count", "turns of all haystacks"),
        ("items_lost", "not taken", "share", "of items: not acknowledged"),
        ("stored", "kept", "count", "memories there are, as the memory says"),
        ("bytes_per_item", "bytes/item", "count", "what the memory says it holds, for each turn"),
    ]
    numbers = {
        system: setup_figures([each for each in material.result.setups if each.system == system])
        for system in material.systems
    }
    kept = [each for each in shown if any(each[0] in by for by in numbers.values())]
    if not any(name.startswith("ingest_") for name, *_ in kept):
        return None
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in kept)]
    rows: list[list[Cell]] = [
        [system, *(_cell(by.get(name), unit) for name, _, unit, _ in kept)] for system, by in numbers.items()
    ]
    return Table(
        "memory-stored",
        columns,
        rows,
        about="Before the first question; growth against the number of turns: memory ops.",
    )


def _spread(material: ReportContext) -> Table | None:
    """Spread of repetitions, by stage."""
    shown: list[tuple[str, str, Unit]] = [
        ("spread_trials", "trials", "count"),
        ("spread_found", "SD of what was found", "score"),
        ("spread_score", "SD of the score", "score"),
        ("spread_same_hits", "with the same hits", "score"),
        ("spread_same_answer", "with the same answer", "score"),
        ("same_hits", "same hits", "share"),
        ("same_answers", "same answers", "share"),
    ]
    numbers = {system: material.summary.get(system, {}) for system in material.systems}
    kept = [each for each in shown if any(each[0] in by for by in numbers.values())]
    if not kept:
        return None
    columns = [Column("System", False), *(Column(title) for _, title, _ in kept)]
    rows: list[list[Cell]] = [
        [system, *(figure(by.get(name), unit) for name, _, unit in kept)] for system, by in numbers.items()
    ]
    about = (
        "Standard deviation between repetitions, of means over all questions. What was found: ingest and search. Of "
        "the score's, what is "
        "left where the reader was shown the same hits is the reader's and the judge's; where it said the same, the "
        "judge's. Same hits, "
        "same answers: share of questions where all repetitions agree."
    )
    return Table("memory-spread", columns, rows, "Between repetitions", about)


def _cell(value: float | None, unit: Unit | None) -> Figure | None:
    """Without a unit: seconds, shown as milliseconds."""
    return figure(value, unit) if unit else figure(None if value is None else 1000 * value, "number", digits=2)


def _numbers(material: ReportContext, system: str, passes: Mapping[str, _Pass]) -> dict[str, float]:
    found = passes[system].use.result() if system in passes else {}
    if of_rank(material.score_field) and system in unranked(material.result.manifest, material.systems):
        found = {name: value for name, value in found.items() if "_fact" not in name and "facts_" not in name}
    records = [record for record in material.result.setups if record.system == system]
    told = setup_figures(records)
    if "write_loss" in told:
        found["write_loss"] = told["write_loss"]
    if "query_usd_per_fact_used" in found and all(record.cost is not None or not record.calls for record in records):
        found["usd_per_fact_used"] = (
            found["query_usd_per_fact_used"] + told.get("setup_cost", 0.0) / found["facts_used"]
        )
    return found


# --- what the answers were worth ---


def _answers(material: ReportContext, passes: Mapping[str, _Pass], threshold: float) -> Table | None:
    """The answers' score, abstention, and what changed against no memory."""
    answers = material.score_field
    if answers is None or _AT_K.fullmatch(answers) or not any(answers in one.scores for one in passes.values()):
        return None
    declined = {system: one.declined.result() for system, one in passes.items()}
    scores = {system: one.scores for system, one in passes.items()}
    changes = {each.system: each for each in harms(scores, material.roles, list(scores), answers, threshold)}
    rates = [
        ("abstention_precision", "abstention precision", "of the questions declined: unanswerable ones"),
        ("abstention_recall", "recall", "of unanswerable questions: declined"),
        ("abstention_f1", "F1", ""),
        ("abstention_f1_always", "F1 of always declining", "what declining every question gets"),
        ("coverage", "coverage", "of answerable questions: answered"),
        ("answered_accuracy", "of answered", f"mean {answers} of answerable questions that were answered"),
    ]
    kept = [each for each in rates if any(each[0] in by for by in declined.values())]
    columns = [
        Column("System", False),
        Column(f"{answers} (95 %)"),
        *(Column(title, about=about) for _, title, about in kept),
    ]
    if changes:
        columns += [
            Column("helped (95 %)", about="right with this memory, wrong without any"),
            Column("harmed (95 %)", about="wrong with this memory, right without any"),
        ]
    rows: list[list[Cell]] = []
    for system in material.systems:
        own = passes[system].scores.get(answers) if system in passes else None
        by = declined.get(system, {})
        cells: list[Cell] = [
            _figure(own.mean() if own else None),
            *(figure(by.get(name), "score") for name, _, _ in kept),
        ]
        if changes:
            change = changes.get(system)
            cells += [
                _figure(change.helped, "share") if change else None,
                _figure(change.harmed, "share") if change else None,
            ]
        rows.append([system, *cells])
    about = (
        f"Right: {answers} ≥ {threshold:g}. Helped and harmed: shares of the questions that both this memory "
        "and none answered."
    )
    return Table("memory-answers", columns, rows, about=about)


def _junk(material: ReportContext) -> Table | None:
    """Harm in use: outdated values, repetition, echoes."""
    kept = [each for each in _JUNK if each[0] in material.aggregates.score_names]
    if not kept:
        return None
    changed = "stale_in_top_k" in material.aggregates.score_names
    columns = [Column("System", False), *(Column(title, about=about) for _, title, about in kept)]
    columns += [Column("changed facts", about="questions about facts that changed")] if changed else []
    rows: list[list[Cell]] = []
    for system in material.systems:
        asked = _estimate(material, system, "stale_in_top_k")
        shares = (_figure(_estimate(material, system, name), "share") for name, _, _ in kept)
        rows.append([system, *shares, *([figure(asked.n if asked else None, "count")] if changed else [])])
    return Table("memory-junk", columns, rows)


# --- by type ---


def _by_type_scores(material: ReportContext) -> list[str]:
    """The score of the run, and recall and all at the largest k, of items and of sessions."""
    deepest: dict[tuple[str, str], tuple[int, str]] = {}
    for name in material.aggregates.score_names:
        found = _AT_K.fullmatch(name)
        if found and found[2] in ("recall", "all") and (not found[1] or _needs_sessions(material)):
            place = (found[1] or "", found[2])
            deepest[place] = max(deepest.get(place, (0, "")), (int(found[3]), name))
    names = [material.score_field] if material.score_field else []
    return list(
        dict.fromkeys(
            [*names, *(deepest[place][1] for place in sorted(deepest, key=lambda each: (each[0], each[1] != "recall")))]
        )
    )


def _types(material: ReportContext, passes: Mapping[str, _Pass]) -> Table | None:
    names = [name for name in _by_type_scores(material) if any(name in one.scores for one in passes.values())]
    kinds = sorted({kind for one in passes.values() for by in one.scores.values() for kind in by.kinds.values()})
    if not names or not 1 < len(kinds) <= _MOST_TYPES:
        return None
    lines: list[tuple[str, str, list[Estimate | None]]] = []
    for kind in kinds:
        for system in material.systems:
            by = passes[system].scores if system in passes else {}
            means = [by[name].mean(kind) if name in by else None for name in names]
            if any(each is not None for each in means):
                lines.append((kind, system, means))
    once = all(len({each.n for each in means if each is not None}) == 1 for _, _, means in lines)
    columns = [Column("type", False), Column("System", False)]
    for name in names:
        columns += [Column(f"{_titled(name)} (95 %)"), *([] if once else [Column("n")])]
    columns += [Column("n")] if once else []
    rows: list[list[Cell]] = []
    for kind, system, means in lines:
        counts = [figure(each.n if each else None, "count") for each in means]
        if once:
            rows.append([kind, system, *map(_figure, means), next(n for n in counts if n is not None)])
        else:
            rows.append(
                [kind, system, *(cell for pair in zip(map(_figure, means), counts, strict=True) for cell in pair)]
            )
    return Table(
        "qa_types",
        columns,
        rows,
        about="n: questions with this score. Few questions of few haystacks: no interval, or a wide one.",
    )


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


# --- cells ---


def _estimate(material: ReportContext, system: str, name: str) -> Estimate | None:
    """The run's estimate, else the mean of the rows."""
    known = material.estimates.get(system, {}).get(name)
    if known is not None:
        return known
    means = [
        by
        for (line, _), each in material.aggregates.lines.items()
        if line == system and (by := each.scores.get(name)) and by.n
    ]
    total = sum(each.n for each in means)
    return Estimate(sum(each.total for each in means) / total, n=total) if total else None


def _figure(known: Estimate | None, unit: Unit = "score") -> Figure | None:
    return None if known is None else Figure(known.value, unit, number(known.low), number(known.high))
