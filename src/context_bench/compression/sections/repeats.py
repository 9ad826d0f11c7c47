"""What repetition shows: drift from one compression to the next, and where the uncertainty of the means comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.sections.cells import estimated
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.reports.material import figure, mapping
from context_bench.reports.page import Cell, Column, Section, Table


def drift(systems: Mapping[str, dict[str, Any]]) -> Section | None:
    """Quality after each cycle, slope, half-life, contradictions."""
    found = {name: mapping(own.get("drift")) for name, own in systems.items() if own.get("drift")}
    if not found:
        return None
    cycles = sorted({int(cycle) for own in found.values() for cycle in mapping(own.get("cycles"))})
    columns = [
        Column("System", False),
        *(Column(f"after {cycle} (95 %)") for cycle in cycles),
        Column("slope (95 %)", about="change of the score per cycle: least squares, sessions being what is drawn"),
        Column("half-life", False, about="first cycle after which the retention index is below 0.5"),
        Column("resistance", about="1 + mean change from the first cycle to the last, within 0 and 1"),
        Column("probes"),
    ]
    rows: list[list[Cell]] = []
    for name, own in found.items():
        quality = mapping(own.get("cycles"))
        half, known = own.get("half_life"), any("value" in mapping(each) for each in mapping(own.get("retention")).values())
        rows.append(
            [
                name,
                *(estimated(quality.get(str(cycle))) for cycle in cycles),
                estimated(own.get("slope"), signed=True),
                str(half) if half is not None else f"over {cycles[-1]}" if known else None,
                figure(own.get("resistance"), "score"),
                figure(own.get("n"), "count"),
            ]
        )
    left_out = max(int(own.get("left_out") or 0) for own in found.values())
    more = f" {left_out:,} probes of sessions with fewer cycles are left out." if left_out else ""
    about = f"The probes of the first cycle, asked again after every further compression.{more}"
    return Section("drift", "Drift", tables=[Table("drift", columns, rows, about=about), *_by_cycle(found, cycles)])


def _by_cycle(found: Mapping[str, dict[str, Any]], cycles: list[int]) -> list[Table]:
    tables = []
    for name, title, unit in (
        ("retention", "Retention index after each cycle", None),
        ("contradictions", "Answers that name what they must not", "share"),
    ):
        rows: list[list[Cell]] = []
        for system, own in found.items():
            by = mapping(own.get(name))
            cells = [estimated(by.get(str(c)), "share") if unit else estimated(by.get(str(c)), digits=2) for c in cycles]
            if any(cell is not None and (cell.value or not unit) for cell in cells):
                rows.append([system, *cells])
        if rows:
            tables.append(Table(f"drift-{name}", [Column("System", False), *(Column(f"after {c} (95 %)") for c in cycles)], rows, title))
    return tables


def variance(systems: Mapping[str, dict[str, Any]], roles: Mapping[str, ArmRole]) -> Section | None:
    """Variance components and where calls would help."""
    found = {name: mapping(own.get("variance")) for name, own in systems.items() if own.get("variance")}
    if not found:
        return None
    columns = [
        Column("System", False),
        Column("level", False),
        Column("draws"),
        Column("SD", about="of single draws on this level"),
        Column("share", about="of the variance of the mean"),
        Column("SE if doubled", about="standard error of the mean with twice as many draws here"),
    ]
    rows: list[list[Cell]] = []
    for name, own in found.items():
        for level in map(mapping, own.get("levels") or []):
            known = level.get("variance")
            rows.append(
                [
                    name,
                    str(level.get("name")),
                    figure(level.get("draws"), "number", digits=1),
                    figure(None if known is None else known**0.5, "score"),
                    figure(level.get("share"), "share"),
                    figure(level.get("se_if_doubled"), "score"),
                ]
            )
    advice = "; ".join(f"{name}: {own.get('advice')}" for name, own in found.items() if not roles.get(name, CANDIDATE).is_control)
    return Section("variance", "Where to spend calls", tables=[Table("variance", columns, rows, about=advice, keys=2)])
