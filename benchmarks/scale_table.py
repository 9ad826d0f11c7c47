"""The table that `scale.py` prints: a column for each size, a line for each figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scale import Measured

SCORES = 5  # of a row: four of `answer_quality` and one of `Length`


@dataclass
class Table:
    """Lines of figure, values, target."""

    sizes: list[int]
    lines: list[tuple[str, list[str], str]] = field(default_factory=list)

    def add(self, figure: str, values: list[float | None], target: str = "", form: str = "{:,.1f}") -> None:
        self.lines.append((figure, ["-" if value is None else form.format(value) for value in values], target))

    def __str__(self) -> str:
        heads = [f"n = {n:,}" for n in self.sizes]
        text = [f"{'figure':<44}{''.join(f'{head:>15}' for head in heads)}  target"]
        text += [
            f"{figure:<44}{''.join(f'{value:>15}' for value in values)}  {target}"
            for figure, values, target in self.lines
        ]
        return "\n".join(text)


FLAT = "<= 10 (1k to 50k), <= 20 (10^5 to 10^6)"


def bound(rows: int) -> float:
    """MB that so many rows more may take in statistics."""
    return 20 + 8 * rows * (SCORES + 1) / 1e6


def table(found: list[Measured], least: Measured) -> Table:
    """All figures; `least`: the run of one example, whose start-up is taken off."""
    made = Table([each.n for each in found])
    smaller = [None, *found[:-1]]
    stored = [None if each.first.stored is None else each.first.stored for each in found]

    def growth(now: float | None, before: float | None) -> float | None:
        return None if now is None or before is None else now - before

    engine = [None if each is None else each[0] for each in stored]
    made.add("peak MB until all rows were stored", engine)
    made.add(
        "  more than the n before",
        [growth(now, before) for now, before in zip(engine, [None, *engine[:-1]], strict=True)],
        FLAT,
    )
    made.add("peak MB with statistics and table", [each.first.peak for each in found])
    steps = list(zip(found, smaller, strict=True))
    made.add(
        "  more than the n before",
        [before and each.first.peak - before.first.peak for each, before in steps],
        "<= the next line",
    )
    made.add("  20 MB + 8 B x rows x (scores + id)", [before and bound(each.n - before.n) for each, before in steps])
    cpu = [
        None if at is None else 1000 * (at[1] - least.first.cpu) / each.n
        for at, each in zip(stored, found, strict=True)
    ]
    made.add("CPU ms a row until stored", cpu, form="{:,.3f}")
    made.add(
        "CPU s for statistics and table",
        [None if at is None else each.first.cpu - at[1] for at, each in zip(stored, found, strict=True)],
    )
    made.add(
        "rows a second, wall",
        [None if at is None else each.n / at[2] for at, each in zip(stored, found, strict=True)],
        form="{:,.0f}",
    )
    made.add(
        "store, bytes a row", [(each.bytes_stored - least.bytes_stored) / each.n for each in found], form="{:,.0f}"
    )
    base = least.again.said or (0.0, 0.0)
    made.add(
        "taking up again, planning: wall s",
        [each.again.said and each.again.said[1] - base[1] for each in found],
        "<= 10 (10^6)",
    )
    made.add("  CPU s", [each.again.said and each.again.said[0] - base[0] for each in found])
    made.add(
        "    x bare json.loads of the rows",
        [each.again.said and (each.again.said[0] - base[0]) / each.parsed for each in found],
        "<= 2",
    )
    made.add("  peak MB of all of it", [each.again.peak for each in found])
    shown = (
        ("table", [each.table for each in found]),
        ("HTML", [each.html for each in found]),
        ("CSV", [each.csv for each in found]),
    )
    for name, took in shown:
        made.add(f"show as {name}: CPU s", [each.cpu for each in took])
        made.add("  peak MB", [each.peak for each in took], "bounded")
    more = [before and (each.table.cpu - before.table.cpu) / (each.n - before.n) for each, before in steps]
    made.add("table: CPU us a row more than the n before", [each and 1e6 * each for each in more])
    beside = [each and each / size.loaded for each, size in zip(more, found, strict=True)]
    made.add("  x bare json.loads of the stored rows", beside, "<= 3")
    made.add("HTML report, MB", [each.bytes_html / 1e6 for each in found])
    made.add("  rows in it, parsed", [each.rows_html for each in found], form="{:,.0f}")
    if any(each.opened is not None for each in found):
        made.add("  s until Chromium shows rows", [each.opened for each in found], form="{:,.2f}")
    return made
