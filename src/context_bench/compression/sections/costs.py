"""Sections on the price of quality: tokens, money, prompt cache and time; curves over several sizes; the front; the
facts lost.

Losses are listed by kind of fact and one by one: the fact, its place, and `true` where it is still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from context_bench.compression.sections.quality import estimated, reasons
from context_bench.core.numbers import number
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole
from context_bench.core.rows import standing
from context_bench.reports.arm_aggregates import quantile
from context_bench.reports.declared import figure, mapping
from context_bench.reports.page import Cell, Chart, Column, Figure, LinePoint, Section, Table
from context_bench.reports.report_context import PRIMARY, ReportContext, interval_of
from context_bench.wire.cache import break_even_turns

#: Of the input price: what a cached token costs to read and to write (the commonest rules; see `compress cache` for
#: each provider's).
_READ, _WRITE = 0.1, 1.25
_PAYS = (
    "turns that must follow until such a rewrite has paid for the broken prompt cache, at 0.1 × the input price for "
    "reads and 1.25 × for "
    "writes, the compressed part alone"
)
_BROKEN = "compressions that left a conversation which providers may refuse, by what is wrong with it"


def taken(material: ReportContext, systems: Mapping[str, dict[str, Any]], told: dict[str, Any]) -> Section | None:
    """Tokens before and after, cache, time, money, and who is on the front."""
    sized = {name: own for name, own in systems.items() if own.get("size")}
    if not sized:
        return None
    front = mapping(told.get("front"))
    lines = {line[0]: (line, each) for line, each in material.lines}
    paid = any(each.cost.n for _, each in lines.values())
    billed = any(each.billed.n for _, each in lines.values())
    broken = _broken(material)
    columns = [
        Column("System", False),
        Column("before", about="tokens of the history that was compressed, mean over compressions"),
        Column("after", about="tokens in its place"),
        Column("keep (95 %)", about="sum after / sum before"),
        Column("removed", about="1 − keep"),
        Column("fold", about="before / after"),
        Column(
            "mean keep (95 %)",
            about="mean of each compression's own keep; ranks otherwise where sessions differ in length",
        ),
        Column(
            "prefix kept",
            about="share of the text after that begins as the history did: what a prompt cache can still use",
        ),
        Column("pays after", about=_PAYS),
        *([Column("broken", False, about=_BROKEN)] if broken else []),
        Column("compress", about="median seconds of a compression, where it is made before any question"),
        Column("answer", about="median seconds of a question, compression for it included"),
        *([Column("billed", about="prompt tokens of a question on the provider's bill, mean")] if billed else []),
        *([Column("per 1,000 probes (95 %)", about="US dollars of answers")] if paid else []),
        *(
            [
                Column(
                    "on the front",
                    about="of tokens kept and score: share of redrawn sets of sessions in which nobody beats it in "
                    "both",
                )
            ]
            if front
            else []
        ),
    ]
    rows: list[list[Cell]] = []
    for name, own in sized.items():
        size, each = mapping(own.get("size")), lines.get(name)
        keep = mapping(size.get("keep"))
        known = keep.get("value")
        cells: list[Cell] = [
            figure(size.get("before"), "tokens"),
            figure(size.get("after"), "tokens"),
            estimated(keep, "share"),
            figure(None if known is None else 1 - known, "share"),
            figure(size.get("fold"), "number", digits=2),
            estimated(size.get("keep_mean"), "share"),
            figure(own.get("prefix_kept"), "share"),
            figure(pays_after(size.get("before"), size.get("after"), own.get("prefix_kept")), "number", digits=1),
            *([broken.get(name)] if broken else []),
            figure(_seconds(material, name, own), "seconds"),
            figure(quantile(each[1].latency, 0.5) if each else None, "seconds"),
        ]
        cells += [figure(each[1].billed.value if each else None, "tokens")] if billed else []
        cells += (
            [interval_of(material, each[0], "cost_usd", each[1].cost.value, "usd", scale=1000) if each else None]
            if paid
            else []
        )
        cells += [_front(mapping(front.get(name)))] if front else []
        rows.append([name, *cells])
    about = (
        "Tokens of the part of the session that was compressed, system messages aside; the tail stays as it "
        "is for every system."
    )
    return Section("sizes", "What it takes", tables=[Table("sizes", columns, rows, about=about)])


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


def _broken(material: ReportContext) -> dict[str, str]:
    """Of each system whose compressions left a conversation that a provider may refuse: in how many, and what is
    wrong.
    """
    kinds: dict[str, Counter[str]] = {}
    groups = Counter(each.system for each in standing(material.result.setups))
    for each in standing(material.result.setups):
        kinds.setdefault(each.system, Counter()).update(map(str, each.output.get("violations") or []))
    return {
        name: ", ".join(f"{kind} {n} of {groups[name]}" for kind, n in found.items())
        for name, found in kinds.items()
        if found
    }


def _seconds(material: ReportContext, name: str, own: dict[str, Any]) -> float | None:
    """As the rows tell; else as the set-ups of the groups took."""
    if own.get("compress_seconds") is not None:
        return float(own["compress_seconds"])
    spent = sorted(
        float(value)
        for each in material.result.setups
        if each.system == name and isinstance(value := each.output.get("seconds_compress"), int | float)
    )
    return spent[len(spent) // 2] if spent else None


def _front(told: dict[str, Any]) -> Cell:
    share = told.get("share")
    return (
        figure(share, "share", digits=None)
        if share is not None
        else "yes"
        if told.get("front")
        else "no"
        if told
        else None
    )


def curves(material: ReportContext, told: dict[str, Any]) -> Section | None:
    """Quality against fold of compressors measured at several sizes."""
    found = [mapping(each) for each in told.get("curves") or []]
    if not found:
        return None
    up_to = found[0].get("up_to")
    columns = [
        Column("Compressor", False),
        Column("sizes"),
        Column(
            "AURQ (95 %)",
            about=f"area under quality over log2(fold) up to fold {up_to:.3g}, relative to full history's quality",
        ),
        Column("fold@95 (95 %)", about="largest fold before which quality never falls below 95 % of full history's"),
        Column(
            "falls below", False, about="whether it did within the sizes measured; if not, the fold is at least that"
        ),
    ]
    rows: list[list[Cell]] = [
        [
            str(each.get("name")),
            figure(len(each.get("points") or []), "count"),
            estimated(each.get("aurq")),
            estimated(each.get("fold_at_95"), "number", digits=2),
            "yes" if each.get("reached") else "no",
        ]
        for each in found
    ]
    tables = [
        Table("curves", columns, rows, about=f"Each curve begins with full history at fold 1.{reasons(*found)}"),
        _points(found),
    ]
    if saved := [mapping(each) for each in told.get("bd_rates") or []]:
        columns = [Column("Compressor", False), Column("against", False), Column("tokens at equal quality, %")]
        lines: list[list[Cell]] = [
            [str(s.get("other")), str(s.get("system")), figure(s.get("percent"), "number", digits=1)] for s in saved
        ]
        tables.append(
            Table("bd-rates", columns, lines, "Bjøntegaard's rate difference", "Negative: fewer tokens.", keys=2)
        )
    data = [
        LinePoint(
            str(each.get("name")), float(p["fold"]), _quality(material, str(p.get("system")), float(p["quality"]))
        )
        for each in found
        for p in map(mapping, each.get("points") or [])
    ]
    chart = Chart(
        "rates",
        "rates",
        "Quality by fold",
        _ABOUT,
        x="fold (tokens before / after)",
        y=f"mean {told.get('score_field')}",
        data=data,
    )
    return Section("curves", "Rate and quality", tables=tables, charts=[chart])


_ABOUT = (
    "Each line is one compressor at several sizes; up is better, right is smaller. Whiskers are 95 % intervals. "
    "The axis of folds doubles with every step."
)


def _quality(material: ReportContext, system: str, value: float) -> Figure:
    """A point's quality, with the interval of the run's score of that system where it is the same number."""
    known = material.estimates.get(system, {}).get(PRIMARY)
    if known is None or abs(known.value - value) > 1e-9:
        return Figure(value, "score")
    return Figure(value, "score", number(known.low), number(known.high))


def _points(found: list[dict[str, Any]]) -> Table:
    columns = [Column("Compressor", False), Column("System", False), Column("fold"), Column("keep"), Column("quality")]
    rows: list[list[Cell]] = []
    for each in found:
        for point in map(mapping, each.get("points") or []):
            fold, keep = figure(point.get("fold"), "number", digits=2), figure(point.get("keep"), "share")
            rows.append(
                [str(each.get("name")), str(point.get("system")), fold, keep, figure(point.get("quality"), "score")]
            )
    return Table(
        "curve-points", columns, rows, "Points of the curves", "Intervals of each point: the table of quality.", keys=2
    )


_MOST_SHOWN = 5  # of a system; the data have more


def lost(systems: Mapping[str, dict[str, Any]], roles: Mapping[str, ArmRole]) -> Section | None:
    """Facts: still in the text, named in the answer; by kind; then single ones of each system."""
    shown = {name: own for name, own in systems.items() if roles.get(name, CANDIDATE).role != "noise_floor"}
    found = {name: told for name, own in shown.items() if (told := mapping(own.get("losses")))}
    if not found:
        return None
    tables = [_kept(found), *_by_kind(found, roles), *_shown(found, roles)]
    return Section("losses", "What was lost", tables=tables)


def _kept(found: Mapping[str, dict[str, Any]]) -> Table:
    columns = [
        Column("System", False),
        Column("facts", about="asked for by probes; one may be asked for several times"),
        Column("still there (95 %)", about="in the text that stands in the history's place"),
        Column("named (95 %)", about="in the answer"),
        Column("there, unnamed (95 %)", about="a loss of whoever answered, not of the compressor"),
    ]
    rows: list[list[Cell]] = []
    for name, own in found.items():
        shares = mapping(own.get("shares"))
        rows.append(
            [
                name,
                figure(own.get("asked"), "count"),
                *(estimated(shares.get(key), "share") for key in ("kept", "named", "unread")),
            ]
        )
    left_out = {int(own.get("left_out") or 0) for own in found.values()} - {0}
    more = f" Of each system the first answers only; {max(left_out):,} more were not looked into." if left_out else ""
    about = f"Shares of the facts. A fact may be said in other words; then it counts as gone.{more}"
    return Table("losses", columns, rows, about=about)


def _is_end(role: ArmRole) -> bool:
    return role.kind in (*WHOLE, *NOTHING)


def _by_kind(found: Mapping[str, dict[str, Any]], roles: Mapping[str, ArmRole]) -> list[Table]:
    chosen = {name: mapping(own.get("kinds")) for name, own in found.items() if not _is_end(roles.get(name, CANDIDATE))}
    asked: dict[str, int] = {}
    for own in chosen.values():
        for kind, fates in own.items():
            asked[kind] = max(asked.get(kind, 0), int(mapping(fates).get("asked") or 0))
    if not asked:
        return []
    columns = [Column("kind of fact", False), Column("facts"), *(Column(name) for name in chosen)]
    rows: list[list[Cell]] = []
    for kind in sorted(asked, key=lambda one: (-asked[one], one)):
        each = [mapping(own.get(kind)) for own in chosen.values()]
        shares = [figure(fates["kept"] / fates["asked"] if fates.get("asked") else None, "share") for fates in each]
        rows.append([kind, figure(asked[kind], "count"), *shares])
    return [Table("loss-kinds", columns, rows, "Still there, by kind of fact")]


def _shown(found: Mapping[str, dict[str, Any]], roles: Mapping[str, ArmRole]) -> list[Table]:
    tables: list[Table] = []
    for name, own in found.items():
        if _is_end(role := roles.get(name, CANDIDATE)) or role.is_control:
            continue
        every = sorted((mapping(each) for each in own.get("shown") or []), key=lambda one: bool(one.get("kept")))
        rows: list[list[Cell]] = []
        for each in every[:_MOST_SHOWN]:
            place = (
                f"message {each['message'] + 1} of {each.get('messages')} ({each.get('role')})"
                if "message" in each
                else None
            )
            rows.append([str(each.get("fact")), place, "there, unnamed" if each.get("kept") else "gone"])
        if rows:
            columns = [Column("fact not named", False), Column("stood in", False), Column("in the text", False)]
            tables.append(Table(f"lost-{len(tables) + 1}", columns, rows, f"Not named in the answer: {name}"))
    return tables
