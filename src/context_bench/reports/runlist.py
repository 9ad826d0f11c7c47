"""The runs of a store as a list that fits a terminal: one line each, the less important columns left out where there is no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from context_bench.reports.table import WIDTH
from context_bench.reports.text import visible

_GAP = 2
_NUMBERS = ("rows", "failed")
_GIVEN_UP = ("started (UTC)", "failed", "systems", "status", "rows")  # in this order, where there is no room
_LEAST_SYSTEMS = 16
_STYLES = {"done": "32", "interrupted": "33", "stopped": "33", "running": "36"}


def run_list(runs: Sequence[Mapping[str, Any]], *, width: int | None = None, color: bool = False) -> str:
    """Runs, as `RunRecord.describe` tells them, in lines of at most `width` columns (80 if not given).

    A name stays whole, however long, since it is what other commands are given: one that fills the line has the rest on the next.
    """
    width = max(20, width or WIDTH)
    lines = [_cells(run) for run in runs]
    names = max((cell_len(line["run"]) for line in lines), default=0)
    titles = [title for title in lines[0] if title != "run"]
    sizes = {title: max(cell_len(title), *(cell_len(line[title]) for line in lines)) for title in titles}
    first = max(3, min(names, width // 3 if width >= 60 else 20))
    shown = [*sizes, "systems"]
    for title in _GIVEN_UP:
        if _room(first, sizes, shown, width) >= 0:
            break
        shown.remove(title)
    systems = _room(first, sizes, shown, width) + _LEAST_SYSTEMS
    made = [_row({title: title for title in ("run", *shown)}, shown, sizes, first, 0, False)]
    for run, line in zip(runs, lines, strict=True):
        line["systems"] = _some([visible(name) for name in run["systems"]], systems)
        made.append(_row(line, shown, sizes, first, width, color))
    return "\n".join(made)


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    started = str(run["started"])[:16].replace("T", " ")
    told = {"run": run["name"], "started (UTC)": started, "status": run["status"]}
    told |= {"rows": f"{run['rows']:,}", "failed": f"{run['failed']:,}"}
    return {title: visible(cell, 300) for title, cell in told.items()}


def _room(first: int, sizes: Mapping[str, int], shown: Sequence[str], width: int) -> int:
    """Columns that are left over when the systems have the least that makes sense."""
    least = {**sizes, "systems": _LEAST_SYSTEMS}
    return width - first - sum(least[title] + _GAP for title in shown)


def _row(line: Mapping[str, str], shown: Sequence[str], sizes: Mapping[str, int], first: int, width: int, color: bool) -> str:
    name = line["run"]
    cells = []
    for title in shown:
        cell = line[title]
        if title in sizes:
            space = " " * (sizes[title] - cell_len(cell))
            styled = f"\x1b[{_STYLES[cell]}m{cell}\x1b[0m" if color and title == "status" and cell in _STYLES else cell
            cell = space + styled if title in _NUMBERS else styled + space
        cells.append(" " * _GAP + cell)
    rest = "".join(cells).rstrip()
    if cell_len(name) <= first:
        return set_cell_size(name, first) + rest
    return f"{name}\n{' ' * first}{rest}"


def _some(names: Sequence[str], width: int) -> str:
    """`a, b`, or `6 systems: a, b, …`: no name is torn unless even the first does not fit."""
    whole = ", ".join(names)
    if cell_len(whole) <= width or not names:
        return whole
    said = f"{len(names)} systems: " if len(names) > 1 else ""
    for count in range(len(names) - 1, 0, -1):
        part = f"{said}{', '.join(names[:count])}, …"
        if cell_len(part) <= width:
            return part
    return f"{len(names)} systems" if said else set_cell_size(names[0], width - 1).rstrip() + "…"
