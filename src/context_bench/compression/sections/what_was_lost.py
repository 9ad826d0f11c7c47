"""Losses by kind of fact, and single ones: what it was, where it stood, whether it is still there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.compression.sections.cells import estimated
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole
from context_bench.reports.material import figure, mapping
from context_bench.reports.page import Cell, Column, Section, Table

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
            [name, figure(own.get("asked"), "count"), *(estimated(shares.get(key), "share") for key in ("kept", "named", "unread"))]
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
            place = f"message {each['message'] + 1} of {each.get('messages')} ({each.get('role')})" if "message" in each else None
            rows.append([str(each.get("fact")), place, "there, unnamed" if each.get("kept") else "gone"])
        if rows:
            columns = [Column("fact not named", False), Column("stood in", False), Column("in the text", False)]
            tables.append(Table(f"lost-{len(tables) + 1}", columns, rows, f"Not named in the answer: {name}"))
    return tables
