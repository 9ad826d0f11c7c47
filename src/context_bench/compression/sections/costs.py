"""Sections on the price of quality: tokens, money, prompt cache and time; curves over several sizes; the front; the
facts lost.

Losses are listed by kind of fact and one by one: the fact, its place, and whether it is still there.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from context_bench.compression.sections.scores import Systems, having, not_floor, reasons
from context_bench.core.numbers import number
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole
from context_bench.core.rows import standing
from context_bench.reports.arm_aggregates import quantile
from context_bench.reports.declared import (
    PRIMARY,
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    figure,
    interval_of,
    mapping,
    section_of,
)
from context_bench.reports.page import Cell, Chart, Figure, LinePoint, Section, Table
from context_bench.wire.cache import break_even_turns

_MOST_SHOWN = 5  # losses of a system; the data have more
#: Of the input price: what a cached token costs to read and to write (the commonest rules; see `compress cache` for
#: each provider's).
_READ, _WRITE = 0.1, 1.25

_SIZES = (
    *columns(
        ("before", "before", "tokens", "tokens of the history that was compressed, mean over compressions"),
        ("after", "after", "tokens", "tokens in its place"),
        ("keep", "keep (95 %)", "share", "sum after / sum before"),
        ("removed", "removed", "share", "1 − keep"),
    ),
    FigureColumn("fold", "fold", "number", "before / after", digits=2),
    *columns(
        (
            "keep_mean",
            "mean keep (95 %)",
            "share",
            "mean of each compression's own keep; it orders systems differently where sessions differ in length",
        ),
        (
            "prefix_kept",
            "prefix kept",
            "share",
            "of the text in its place: the share that still begins as the history did, which a prompt cache can use",
        ),
    ),
    FigureColumn(
        "pays",
        "pays after",
        "number",
        "turns that must follow until such a rewrite has paid for the broken prompt cache, at 0.1 × the input price "
        "for reads and 1.25 × for writes, the compressed part alone",
        digits=1,
    ),
    FigureColumn(
        "broken",
        "broken",
        "text",
        "compressions that left a conversation which providers may refuse, by what is wrong with it",
    ),
    *columns(
        ("seconds", "compress", "seconds", "median time of a compression, where it is made before any question"),
        ("answer", "answer", "seconds", "median time of a question, compression for it included"),
    ),
)
_BILLED = FigureColumn("billed", "billed", "tokens", "prompt tokens of a question on the provider's bill, mean")
_PAID = FigureColumn("paid", "per 1,000 probes (95 %)", "usd", "US dollars of answers")
_FRONT = FigureColumn(
    "front",
    "on the front",
    "share",
    "of tokens kept and score: nobody beats it in both; a share: in so many of the redrawn sets of sessions",
)
_POINTS = (
    FigureColumn("fold", "fold", "number", digits=2),
    *columns(("keep", "keep", "share", ""), ("quality", "quality", "score", "")),
)
_BD_RATES = (FigureColumn("percent", "tokens at equal quality, %", "number", digits=1),)
_CURVES = (
    "Each line is one compressor at several sizes; up is better, right is smaller. Whiskers are 95 % intervals, "
    "once there are enough examples. The axis of folds doubles with every step."
)
_KEPT = columns(
    ("asked", "facts", "count", "asked for by probes; one may be asked for several times"),
    ("kept", "still there (95 %)", "share", "in the text that stands in the history's place"),
    ("named", "named (95 %)", "share", "in the answer"),
    ("unread", "there, unnamed (95 %)", "share", "a loss of whoever answered, not of the compressor"),
)
_LOST = columns(("place", "stood in", "text", ""), ("state", "in the text", "text", ""))


def taken(report: ReportContext, systems: Systems, figures: dict[str, Any]) -> Section | None:
    """Tokens before and after, cache, time, money, and who is on the front."""
    front = mapping(figures.get("front"))
    lines = {line[0]: (line, each) for line, each in report.lines}
    broken = _broken(report)
    shown = [
        *_SIZES,
        *([_BILLED] if any(each.billed.n for _, each in lines.values()) else []),
        *([_PAID] if any(each.cost.n for _, each in lines.values()) else []),
        *([_FRONT] if front else []),
    ]
    sized: list[tuple[str, dict[str, Any]]] = []
    for name, size in having(systems, "size").items():
        own, known = systems[name], mapping(size.get("keep")).get("value")
        kept = own.get("prefix_kept")
        facts = {
            **size,
            "removed": None if known is None else 1 - known,
            "prefix_kept": kept,
            "pays": pays_after(size.get("before"), size.get("after"), kept),
            "broken": broken.get(name),
            "seconds": _seconds(report, name, own),
            "front": _front(mapping(front.get(name))),
        }
        if name in lines:
            line, each = lines[name]
            facts |= {
                "answer": quantile(each.latency, 0.5),
                "billed": each.billed.value,
                "paid": interval_of(report, line, "cost_usd", each.cost.value, "usd", scale=1000),
            }
        sized.append((name, facts))
    about = (
        "Tokens of the part of the session that was compressed, tool calls as JSON, system messages aside; other "
        "tables count the same part as text. The tail stays as it is for every system and is in no figure."
    )
    return section_of("sizes", "What it takes", declared_table("sizes", shown, sized, about=about))


def pays_after(before: Any, after: Any, kept: Any) -> float | None:
    """Turns until one such rewrite has paid for itself under a prompt cache (`wire.cache.break_even_turns`); 0: at
    once.

    `before`, `after`: tokens of the part that was compressed; `kept`: share of what is left that begins as the history
    did. The rest of a session, whose cached form a rewrite breaks as well, is not in it. `None` where nothing was
    removed or something is not known.
    """
    if not all(isinstance(value, int | float) for value in (before, after, kept)) or before <= after:
        return None
    return max(0.0, break_even_turns(before, kept * after, before - after, _READ, _WRITE))


def _broken(report: ReportContext) -> dict[str, str]:
    """Of each system whose compressions left a conversation that a provider may refuse: in how many, and what is
    wrong.
    """
    setups = standing(report.result.setups)
    groups = Counter(each.system for each in setups)
    kinds: dict[str, Counter[str]] = {}
    for each in setups:
        kinds.setdefault(each.system, Counter()).update(map(str, each.output.get("violations") or []))
    return {
        name: ", ".join(f"{kind} {n} of {groups[name]}" for kind, n in of_system.items())
        for name, of_system in kinds.items()
        if of_system
    }


def _seconds(report: ReportContext, name: str, own: dict[str, Any]) -> float | None:
    """As the rows tell; else as the set-ups of the groups took."""
    if own.get("compress_seconds") is not None:
        return float(own["compress_seconds"])
    spent = array(
        "d",
        (
            float(value)
            for each in report.result.setups
            if each.system == name and isinstance(value := each.output.get("seconds_compress"), int | float)
        ),
    )
    return quantile(spent, 0.5)


def _front(place: dict[str, Any]) -> Cell:
    if not place:
        return None
    share = place.get("share")
    return figure(share, "share") if share is not None else "yes" if place.get("front") else "no"


def curves(report: ReportContext, figures: dict[str, Any]) -> Section | None:
    """Quality against fold of compressors measured at several sizes."""
    curves = [mapping(each) for each in figures.get("curves") or []]
    if not curves:
        return None
    points = [(str(each.get("name")), mapping(point)) for each in curves for point in each.get("points") or []]
    area = (
        f"area under quality over log2(fold) up to fold {curves[0].get('up_to'):.3g}, relative to full history's "
        "quality"
    )
    shown = (
        FigureColumn("sizes", "sizes"),
        FigureColumn("aurq", "AURQ (95 %)", "score", area),
        FigureColumn(
            "fold_at_95",
            "fold@95 (95 %)",
            "number",
            "largest fold before which quality never falls below 95 % of full history's",
            digits=2,
        ),
        FigureColumn(
            "below",
            "falls below",
            "text",
            "whether it did within the sizes measured; if not, the fold is at least that",
        ),
    )
    lines = [
        (
            str(each.get("name")),
            {**each, "sizes": len(each.get("points") or []), "below": "yes" if each.get("reached") else "no"},
        )
        for each in curves
    ]
    data = [
        LinePoint(name, float(p["fold"]), _quality(report, str(p.get("system")), float(p["quality"])))
        for name, p in points
    ]
    y = f"mean {figures.get('score_field')}"
    chart = Chart("rates", "rates", "Quality by fold", _CURVES, x="fold (tokens before / after)", y=y, data=[*data])
    about = f"Each curve begins with full history at fold 1.{reasons(*curves)}"
    return section_of(
        "curves",
        "Rate and quality",
        declared_table("curves", shown, lines, keys=("Compressor",), about=about),
        declared_table(
            "curve-points",
            _POINTS,
            [((name, str(point.get("system"))), point) for name, point in points],
            keys=("Compressor", "System"),
            title="Points of the curves",
            about="Intervals of each point: the table of quality.",
        ),
        declared_table(
            "bd-rates",
            _BD_RATES,
            [((str(s.get("other")), str(s.get("system"))), s) for s in map(mapping, figures.get("bd_rates") or [])],
            keys=("Compressor", "against"),
            title="Bjøntegaard's rate difference",
            about="Negative: fewer tokens.",
        ),
        charts=[chart],
    )


def _quality(report: ReportContext, system: str, value: float) -> Figure:
    """A point's quality, with the interval of the run's score of that system where it is the same number."""
    known = report.estimates.get(system, {}).get(PRIMARY)
    if known is None or abs(known.value - value) > 1e-9:
        return Figure(value, "score")
    return Figure(value, "score", number(known.low), number(known.high))


def lost(systems: Systems, roles: Mapping[str, ArmRole]) -> Section | None:
    """Facts: still in the text, named in the answer; by kind; then single ones of each system."""
    losses = having(not_floor(systems, roles), "losses")
    left_out = max((int(own.get("left_out") or 0) for own in losses.values()), default=0)
    more = f" Of each system the first answers only; {left_out:,} more were not looked into." if left_out else ""
    about = f"Shares of the facts. A fact may be said in other words; then it counts as gone.{more}"
    lines = [(name, {**own, **mapping(own.get("shares"))}) for name, own in losses.items()]
    ends = {name for name in losses if roles.get(name, CANDIDATE).kind in (*WHOLE, *NOTHING)}
    inner = {name: own for name, own in losses.items() if name not in ends}
    single = {name: own for name, own in inner.items() if not roles.get(name, CANDIDATE).is_control}
    return section_of(
        "losses", "What was lost", declared_table("losses", _KEPT, lines, about=about), _by_kind(inner), *_shown(single)
    )


def _by_kind(losses: Systems) -> Table | None:
    kinds = {name: mapping(own.get("kinds")) for name, own in losses.items()}
    asked: Counter[str] = Counter()
    for own in kinds.values():
        asked |= Counter({kind: int(mapping(fates).get("asked") or 0) for kind, fates in own.items()})
    shown = [
        FigureColumn("asked", "facts"),
        *(FigureColumn(f"of {name}", name, "share") for name in kinds),
    ]
    lines = [
        (kind, {"asked": n, **{f"of {name}": _share(mapping(own.get(kind))) for name, own in kinds.items()}})
        for kind, n in sorted(asked.items(), key=lambda item: (-item[1], item[0]))
    ]
    return declared_table("loss-kinds", shown, lines, keys=("kind of fact",), title="Still there, by kind of fact")


def _share(fates: dict[str, Any]) -> float | None:
    return fates["kept"] / fates["asked"] if fates.get("asked") else None


def _shown(losses: Systems) -> Iterable[Table]:
    """Single facts of each system, those that are gone first."""
    tables: list[Table] = []
    for name, own in losses.items():
        facts = sorted((mapping(each) for each in own.get("shown") or []), key=lambda one: bool(one.get("kept")))
        lines = [
            (
                str(each.get("fact")),
                {"place": _place_of(each), "state": "there, unnamed" if each.get("kept") else "gone"},
            )
            for each in facts[:_MOST_SHOWN]
        ]
        title = f"Not named in the answer: {name}"
        table = declared_table(f"lost-{len(tables) + 1}", _LOST, lines, keys=("fact not named",), title=title)
        tables += [table] if table is not None else []
    return tables


def _place_of(fact: dict[str, Any]) -> str | None:
    if "message" not in fact:
        return None
    return f"message {fact['message'] + 1} of {fact.get('messages')} ({fact.get('role')})"
