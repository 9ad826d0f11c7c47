"""Sections on what went over the wire: tokens, what was changed on the way, money, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from context_bench.core.measures import dollars, percent
from context_bench.core.numbers import number
from context_bench.reports.arm_aggregates import AmountsByExample, Line, LineAggregates, quantile
from context_bench.reports.declared import (
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    figure,
    interval_of,
    mapping,
    section_of,
)
from context_bench.reports.page import Cell, Figure, Mark, Section, TurnBar

_TOKENS = columns(
    (
        "sent",
        "sent",
        "tokens",
        "tokens our client sent; where a system shortens before it asks, those of the request before that",
    ),
    ("forwarded", "forwarded", "tokens", "tokens that went on to the model"),
    ("billed", "billed", "tokens", "prompt tokens on the provider's bill"),
    ("compression", "compression (95 %)", "share", "1 − forwarded / sent; negative: the prompt grew"),
    (
        "sources",
        "seen by",
        "text",
        "who counted the forwarded tokens: the tap, the provider's usage, or the context a Python system returned",
    ),
    ("cached", "cached", "tokens", "billed tokens read from the provider's cache"),
    ("completion", "reply", "tokens", "completion tokens"),
    ("grown", "grew", "count", "examples whose prompt got longer on the way"),
    ("paired", "n", "count", "examples with both sent and forwarded tokens"),
)
_WIRE = (
    FigureColumn(
        "calls_per_request",
        "calls/request",
        "number",
        "requests that reached the provider for one of ours; above 1: extra calls",
        digits=2,
    ),
    FigureColumn("extra_calls", "extra calls", "count", "requests to the provider beyond ours", "nonzero"),
    FigureColumn("unmatched", "unmatched", "count", "requests to the provider that could not be attributed"),
    FigureColumn("role_changes", "roles changed", "count", "messages that arrived under another role"),
    FigureColumn("param_changes", "params changed", "count", "parameters added, removed or changed"),
    FigureColumn(
        "truncated",
        "truncated",
        "count",
        "examples billed for much less than was forwarded: cut without saying so",
        "nonzero",
    ),
    FigureColumn(
        "violations", "violations", "count", "breaks of the protocol, such as tool results without their call"
    ),
    FigureColumn("uncounted_parts", "not counted", "count", "images, files and other parts without text", "nonzero"),
    FigureColumn("late", "late", "count", "requests that came after the reply", "nonzero"),
    FigureColumn("key_passed_on", "key passed on", "text", "whether the provider got the key we sent"),
)
_CHANGES = (FigureColumn("what", "what", "text"), FigureColumn("times", "times"))
_MONEY = (
    FigureColumn("price", "per 1,000 examples (95 %)", "usd"),
    FigureColumn("saved", "saved", "share", "share of the money per example; negative: it costs more"),
    FigureColumn(
        "cached",
        "from cache",
        "share",
        "share of the billed prompt tokens that the provider read from its cache, at its lower price",
    ),
    FigureColumn(
        "written",
        "written to cache",
        "share",
        "share of the billed prompt tokens that were written to the provider's cache",
    ),
    FigureColumn("set-up", "set-up", "usd", "getting groups ready, before any question"),
    FigureColumn("total", "total", "usd", "all attempts, failed ones and set-up included"),
    FigureColumn("n", "n", "count", "examples with a known price"),
)
_TIME = columns(
    ("median", "median (95 %)", "seconds", ""),
    ("p95", "p95", "seconds", ""),
    ("mean", "mean", "seconds", ""),
    ("ttft", "TTFT median (95 %)", "seconds", "time to the first token of a streamed reply"),
    ("ttft_p95", "TTFT p95", "seconds", ""),
    ("n", "n", "count", ""),
)


def tokens(report: ReportContext) -> Section | None:
    """Sent, forwarded, billed; where the forwarded count comes from; compression and growth."""
    if not any(each.sent.n or each.forwarded.n or each.billed.n for _, each in report.lines):
        return None
    if report.replaced("tokens") and all(
        set(each.sources) <= {"context"} and not each.billed.n for _, each in report.lines
    ):
        return None  # nothing was sent to a model; what became of the sessions' tokens has a section of its own
    lines = [(report.label(line), _token_facts(report, line, each)) for line, each in report.lines]
    about = "Mean tokens per example."
    if any(facts["compression"] is not None for _, facts in lines):
        about += " Compression = 1 - forwarded/sent, over examples where both are known."
    if any(isinstance(cell, Figure) and cell.approximate for _, facts in lines for cell in facts.values()):
        about += " ≈: counted by a tokenizer that is not the model's."
    return section_of("tokens", "Tokens", declared_table("tokens", _TOKENS, lines, about=about))


def _token_facts(report: ReportContext, line: Line, each: LineAggregates) -> dict[str, Cell]:
    inexact = bool(each.inexact) or report.wire.get(line[0], {}).get("exact") is False
    counted_here = inexact and set(each.sources) != {"usage"}
    paired = each.paired_sent.n
    return {
        "sent": figure(sent_mean(each), "tokens", approximate=inexact),
        "forwarded": figure(forwarded_mean(each), "tokens", approximate=counted_here),
        "billed": figure(each.billed.value, "tokens"),
        "compression": interval_of(report, line, "compression_ratio", each.compression, "share"),
        "sources": _sources(each),
        "cached": figure(each.cached.value, "tokens"),
        "completion": figure(each.completion.value, "tokens"),
        "grown": Figure(each.grown, "count") if paired else None,
        "paired": Figure(paired, "count") if paired else None,
    }


def sent_mean(each: LineAggregates) -> float | None:
    """Mean tokens sent, over the rows where the forwarded ones are known too, if there are any."""
    return each.paired_sent.value if each.paired_sent.n else each.sent.value


def forwarded_mean(each: LineAggregates) -> float | None:
    """Mean tokens forwarded, over the rows where the sent ones are known too, if there are any."""
    return each.paired_forwarded.value if each.paired_forwarded.n else each.forwarded.value


def _sources(each: LineAggregates) -> str | None:
    if len(each.sources) < 2:
        return next(iter(each.sources), None)
    return ", ".join(f"{name} {n}" for name, n in each.sources.most_common())


def wire(report: ReportContext) -> Section | None:
    """Figures of the tap besides tokens: extra calls, changed roles and parameters, lost keys, truncation."""
    seen = list(_seen_at_tap(report))
    lines = [(label, _wire_facts(facts)) for label, facts in seen]
    table = declared_table("wire", _WIRE, lines, about="As the tap saw it, over all examples of a system.")
    if table is None:
        return None
    changes = [(label, change) for label, facts in seen for change in _changes(facts)]
    return section_of(
        "wire", "On the wire", table, declared_table("changes", _CHANGES, changes, title="What was changed")
    )


def _wire_facts(facts: dict[str, Any]) -> dict[str, Any]:
    amounts = {name: _amount(value) for name, value in facts.items()}
    return {**amounts, "key_passed_on": _yes(facts.get("authorization_forwarded"))}


def _seen_at_tap(report: ReportContext) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, facts) of everything the tap saw."""
    for line, each in report.lines:
        facts = report.wire.get(line[0], {}) if report.whole(line) else each.seen.facts()
        if facts:
            yield report.label(line), facts
    split = dict.fromkeys(system for (system, shape), _ in report.lines if not report.whole((system, shape)))
    for system in split:  # what only the run knows, such as unmatched calls, has no shape
        facts = {
            name: value
            for name, value in mapping(report.result.wire.get(system)).items()
            if name in ("unmatched", "violations") and value
        }
        if facts:
            yield f"{system} · all shapes", facts
    systems = {system for system, _ in report.aggregates.lines}
    yield from ((system, facts) for system, facts in report.wire.items() if system not in systems)


def _amount(value: Any) -> float | None:
    """Count of something that is given as a number, as a list, or as counts by kind."""
    if isinstance(value, dict):
        from context_bench.wire.violations import (
            NOTES,
        )  # and with it all rules, which a run without a tap has no use for

        return sum(found for kind, item in value.items() if kind not in NOTES and (found := _amount(item)) is not None)
    return len(value) if isinstance(value, list) else number(value)


def _yes(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return percent(share) if (share := number(value)) is not None else str(value) if value is not None else None


def _changes(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One line per kind of change: given by name with a count, or as a list."""
    for key in ("violations", "changes", "role_changes", "param_changes"):
        changes = facts.get(key)
        if isinstance(changes, list):
            changes = Counter(
                f"{item.get('kind', key)}: {item.get('detail', '')}" if isinstance(item, dict) else str(item)
                for item in changes
            )
        if isinstance(changes, dict):
            yield from ({"what": str(what), "times": _amount(times)} for what, times in changes.items())


def money(report: ReportContext, manifest: dict[str, Any], ready: dict[str, dict[str, Any]]) -> Section | None:
    """US dollars, where prices are known, and what of the prompts was read from the provider's cache.

    `ready`: what set-ups of groups came to, by system; they are in the total, once.
    """
    paid = {system: cost for system, facts in ready.items() if (cost := number(facts.get("cost"))) is not None}
    if not paid and not any(each.cost.n for _, each in report.lines):
        return None
    lines = [(report.label(line), _money_facts(report, line, each, paid)) for line, each in report.lines]
    titled = [
        replace(column, title=f"saved against {report.baseline}") if column.key == "saved" else column
        for column in _MONEY
    ]
    cached, written = (any(facts[key] is not None for _, facts in lines) for key in ("cached", "written"))
    about = _about_money(manifest, cached) + _beside(manifest, sum(facts["total"] or 0.0 for _, facts in lines))
    if any(facts["saved"] is None and facts["n"] for label, facts in lines if label != report.baseline):
        about += " Saved: on the examples where both were paid for, if these are at least half of each side's."
    table = declared_table("money", titled, lines, about=about)
    return section_of("money", "Money and cache" if cached or written else "Money", table)


def _money_facts(report: ReportContext, line: Line, each: LineAggregates, paid: dict[str, float]) -> dict[str, Any]:
    once = paid.pop(line[0], None)  # with a system's first line
    known = [cost for cost in (once, each.cost.total if each.cost.n else None) if cost is not None]
    base = (report.baseline or "", line[1])
    billed = each.billed.total
    return {
        "price": interval_of(report, line, "cost_usd", each.cost.value, "usd", scale=1000),
        "saved": None if line == base else saved_money(report, line, base),
        "cached": each.cached.total / billed if billed and each.cached.total else None,
        "written": each.written.total / billed if billed and each.written.total else None,
        "set-up": once,
        "total": sum(known) if known else None,
        "n": each.cost.n,
    }


def saved_money(report: ReportContext, line: Line, base: Line) -> Figure | None:
    """Share of the money that a line saves against another one, on the examples on which both were paid for; `None`
    where these are fewer than half.
    """
    return _saved(report, line, base, "costs")


def saved_tokens(report: ReportContext, line: Line, base: Line) -> Figure | None:
    """Share of the forwarded tokens that a line saves against another one, on the examples of which both have them;
    `None` where these are fewer than half.
    """
    return _saved(report, line, base, "prompts")


def _saved(report: ReportContext, line: Line, base: Line, amount: Literal["costs", "prompts"]) -> Figure | None:
    lines = [report.aggregates.lines.get(each) for each in (line, base)]
    own, other = (getattr(each, amount) if each is not None else AmountsByExample() for each in lines)
    saved = own.saved_against(other)
    return None if saved is None else Figure(saved, "share")


def _about_money(manifest: dict[str, Any], cached: bool) -> str:
    prices = mapping(manifest.get("prices"))
    parts = [
        f"at the price of {prices['model']}" if prices.get("model") else "",
        str(prices.get("source") or ""),
        str(prices.get("date") or ""),
    ]
    about = "US dollars" + "".join(f", {part}" for part in parts if part) + "."
    if cached:
        about += (
            " What the provider read from its cache is billed at its cache price; a system that rewrites "
            "history gives this discount away."
        )
    return about


def _beside(manifest: dict[str, Any], told: float) -> str:
    """Money of a run, over all its executions, beyond what the lines tell: a sentence, or nothing."""
    counts = mapping(mapping(manifest.get("run")).get("counts"))
    whole = number(counts.get("cost")) or 0.0
    rest = whole - told
    if rest <= 0.001 * whole:
        return ""
    evaluators = mapping(manifest.get("engine")).get("evaluators")
    asked = [mapping(mapping(each).get("fingerprint")) for each in evaluators] if isinstance(evaluators, list) else []
    judged = manifest.get("rescored") or any("base_url" in each for each in asked)
    other = "a judge's replies" if judged else "attempts that ended without a row"
    return f" Of the run's {dollars(whole)}, {dollars(rest)} is in no line: for the check of its endpoint, or {other}."


def time(report: ReportContext) -> Section | None:
    """Latency and time to first token."""
    if not any(any(each.latency) for _, each in report.lines):
        return None
    if report.replaced("time") and not any(each.ttft or each.billed.n for _, each in report.lines):
        return None  # no model answered; what compressing took stands with the sizes
    lines = [(report.label(line), _time_facts(report, line, each)) for line, each in report.lines]
    about = "Time per example, without time spent waiting for a slot or in back-off; failed rows left out."
    return section_of("time", "Latency", declared_table("time", _TIME, lines, about=about))


def _time_facts(report: ReportContext, line: Line, each: LineAggregates) -> dict[str, Any]:
    own = report.summary.get(line[0], {}) if report.whole(line) else {}
    median = own.get("latency_median", quantile(each.latency, 0.5))
    return {
        "median": interval_of(report, line, "latency_median", median, "seconds"),
        "p95": own.get("latency_p95", quantile(each.latency, 0.95)),
        "mean": own.get("latency_mean", sum(each.latency) / len(each.latency) if each.latency else None),
        "ttft": interval_of(report, line, "ttft_median", quantile(each.ttft, 0.5), "seconds"),
        "ttft_p95": quantile(each.ttft, 0.95),
        "n": len(each.latency),
    }


_MOST_BARS = 30  # of a system's requests, one after another


def turns_of(name: str, told: Any) -> list[Mark]:
    """Bars from sums by request number: `[[requests, cached, rewritten, new], …]`. Neighbours share a bar where there
    are many.
    """
    sums = [
        [float(value) for value in each] for each in told or [] if isinstance(each, list) and len(each) == 4 and each[0]
    ]
    step = -(-len(sums) // _MOST_BARS) or 1
    turns: list[Mark] = []
    for start in range(0, len(sums), step):
        requests, cached, rewritten, new = (sum(column) for column in zip(*sums[start : start + step], strict=True))
        last = min(start + step, len(sums))
        turns.append(TurnBar(name, start + 1, last, cached / requests, rewritten / requests, new / requests))
    return turns
