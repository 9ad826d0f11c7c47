"""Tables by declaration: a column states its figure, title and unit and when it is shown; one function draws them all.

A line is what the row is about and its figures by key. A figure is a number, an estimate (a record, or a mapping with
`value`, `low` and `high`), a ready cell, or text; one that was not measured is absent or `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context_bench.core.numbers import number
from context_bench.core.records import Estimate
from context_bench.reports.page import Cell, Chart, Column, Figure, Section, Table, Unit
from context_bench.reports.visible_text import json_ready

Facts = Mapping[str, Any]
ColumnUnit = Unit | Literal["ms", "text"]
Needs = Literal["any", "nonzero", "always"]


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A column of a declared table.

    Attributes:
        key: Name of the figure in a line's figures.
        title: Heading.
        unit: How the figure is printed; `ms`: seconds shown as milliseconds; `text`: as it is.
        about: Explanation of the column.
        needs: When the column is shown: if any line has the figure, if any has one that is not 0, or always.
        digits: Decimals, where they are not the unit's.
        signed: A plus before what is above 0.
    """

    key: str
    title: str
    unit: ColumnUnit = "count"
    about: str = ""
    needs: Needs = "any"
    digits: int | None = None
    signed: bool = False

    def shown(self, lines: Iterable[Facts]) -> bool:
        """True if a table of these lines has the column."""
        if self.needs == "always":
            return True
        values = [facts.get(self.key) for facts in lines]
        return any(values) if self.needs == "nonzero" else any(value is not None for value in values)

    def cell(self, value: Any) -> Cell:
        """The figure as a cell."""
        if value is None or isinstance(value, Figure | str):
            return value
        if self.unit == "text":
            return str(value)
        if self.unit == "ms":
            return figure(None if (known := number(value)) is None else 1000 * known, "number", digits=2)
        return estimated(value, self.unit, digits=self.digits, signed=self.signed)


def columns(*rows: tuple[str, str, ColumnUnit, str], needs: Needs = "any") -> tuple[FigureColumn, ...]:
    """Columns from rows of (key, title, unit, about), all shown under one condition."""
    return tuple(FigureColumn(*row, needs) for row in rows)


def declared_table(
    id: str,  # noqa: A002
    figures: Iterable[FigureColumn],
    lines: Iterable[tuple[str | Sequence[str], Facts]],
    *,
    keys: Sequence[str] = ("System",),
    title: str = "",
    about: str = "",
) -> Table | None:
    """The table of these lines, each with its names (one for every one of `keys`) and its figures by key.

    Columns stand in the order of their declaration. `None` without lines, or where nothing is to be shown.
    """
    named = [((names,) if isinstance(names, str) else names, facts) for names, facts in lines]
    shown = [column for column in figures if column.shown(facts for _, facts in named)]
    if not named or not shown:
        return None
    heads = [Column(name, False) for name in keys]
    heads += [Column(column.title, column.unit != "text", column.about) for column in shown]
    rows: list[list[Cell]] = [
        [*names, *(column.cell(facts.get(column.key)) for column in shown)] for names, facts in named
    ]
    return Table(id, heads, rows, title, about, max(1, len(keys)))


def section_of(
    id: str,  # noqa: A002
    title: str,
    *tables: Table | None,
    charts: Iterable[Chart] = (),
    brief: bool = True,
) -> Section | None:
    """The section of the tables that there are; `None` without any. Charts without data are left out."""
    present = [table for table in tables if table is not None]
    if not present:
        return None
    return Section(id, title, tables=present, charts=[chart for chart in charts if chart.data], brief=brief)


def estimated(
    value: Any, unit: Unit = "score", *, signed: bool = False, digits: int | None = None, n: bool = False
) -> Figure | None:
    """A cell of a number or of an estimate with its interval; `None` for what was not measured. `n`: with its n."""
    facts: Facts
    if isinstance(value, Estimate):
        facts = {"value": value.value, "low": value.low, "high": value.high, "n": value.n}
    else:
        facts = value if isinstance(value, Mapping) else {"value": value}
    known = number(facts.get("value", facts.get("difference")))
    if known is None:
        return None
    count = number(facts.get("n")) if n else None
    low, high = number(facts.get("low")), number(facts.get("high"))
    return Figure(known, unit, low, high, signed=signed, digits=digits, n=None if count is None else int(count))


def figure(value: Any, unit: Any, *, approximate: bool = False, digits: int | None = None) -> Figure | None:
    """A cell of a number; `None` for what was not measured."""
    known = number(value)
    return None if known is None else Figure(known, unit, approximate=approximate, digits=digits)


def mapping(value: Any) -> dict[str, Any]:
    """`value` as a JSON-ready mapping; an empty one if it is something else."""
    ready = json_ready(value)
    return ready if isinstance(ready, dict) else {}
