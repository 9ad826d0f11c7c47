"""`context-bench diff`: what a system did to the messages of one example, word by word, in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer

from context_bench.core.errors import BadInput, UnknownName
from context_bench.session.files import write_out
from context_bench.session.flags import own, takes
from context_bench.session.options import StoredOptions


@takes(
    StoredOptions,
    system=own("Only this system; default: all that changed something.", unit=None),
    json=own("As JSON on stdout: every span, nothing cut."),
)
def command(
    run: Annotated[str, typer.Argument(help="Name or id (its beginning is enough), or `last`.")],
    example: Annotated[str, typer.Argument(help="Id of the example, as reports show it.")],
    system: list[str] | None,
    trial: int,
    store: str,
    full: bool,
    json: bool,
) -> int:
    """What was done to the messages of one example: [-dropped-] and {+added+} words. RUN: a name, an id or `last`."""
    from context_bench.session.runs import found_in, opened_store

    with opened_store(store) as opened:
        record = found_in(opened, run)
        found = list(_rows(opened, record, example, system or list(record.systems), trial))
        if not found:
            raise BadInput(f"run {record.name!r} has no answer of trial {trial} to this example yet; trials count from 0")
        if json:
            _print_json(found)
        else:
            _print_text(found, full, chosen=bool(system))
    return 0


_Found = tuple[Any, Mapping[str, Any]]  # a row, and what stands behind it


def _rows(store: Any, record: Any, example: str, systems: Iterable[str], trial: int) -> Iterator[_Found]:
    from context_bench.engine.store.reading import stored_one
    from context_bench.runner import detail_of

    ident = _known(store, record, example)
    for name in systems:
        if name not in record.systems:
            raise UnknownName("system", name, record.systems)
        item, told = stored_one(store, record.number, name, ident, trial), detail_of(store, record.id, name, ident, trial)
        if item is not None and told is not None:
            yield item.row, told


def _known(store: Any, record: Any, example: str) -> str | int:
    """The id that is meant: as it is stored, or as reports show it. Raises `UnknownName`, which tells near ones."""
    from context_bench.engine.store.reading import example_ids
    from context_bench.reports.text import visible

    ids = example_ids(store, record.number)
    for shown in (str, visible):
        for ident in ids:
            if shown(ident) == example:
                return ident
    raise UnknownName("example", example, (visible(ident) for ident in ids))


def _print_text(found: list[_Found], full: bool, *, chosen: bool) -> None:
    import shutil
    import sys

    from rich.console import Console

    from context_bench.reports.detail import detail_text
    from context_bench.reports.exchanges import shown_exchanges
    from context_bench.reports.text import visible

    console = Console()
    color = console.color_system is not None and not console.no_color
    width = console.width if console.is_terminal else shutil.get_terminal_size((80, 24)).columns
    same = [row.system for row, told in found if not chosen and not any(each.altered for each in shown_exchanges(told, limit=0))]
    shown = [(row, told) for row, told in found if row.system not in same]
    if same:
        names = ", ".join(visible(name) for name in same)
        print(f"Changed nothing, or nothing is known of it (--system NAME shows it): {names}\n")
    for row, told in shown:
        sys.stdout.write(detail_text(row, told, full=full, width=width, color=color) + "\n")


def _print_json(found: list[_Found]) -> None:
    import json

    from context_bench.core.records import plain
    from context_bench.reports.exchanges import compared
    from context_bench.reports.text import json_ready

    ready = [{"row": plain(row), **told, "diffs": compared(told)} for row, told in found]
    write_out(json.dumps(json_ready(ready), indent=2, ensure_ascii=False) + "\n", None)
