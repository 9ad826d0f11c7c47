"""Commands on stored runs: `export` and `purge` them, `copy` them to another store, `diff` the messages of one example,
`view` a store in the browser.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.machine import file_bytes
from context_bench.session import interrupts
from context_bench.session.flags import own, takes
from context_bench.session.offers import DEFAULT_STORE
from context_bench.session.options import StoredOptions
from context_bench.session.output_files import destination, say, write_out

if TYPE_CHECKING:
    from context_bench.reports.page import Chart


@takes(
    StoredOptions,
    out=own("Write to this file (inspect: or folder) instead of stdout."),
    system=own("Only this system (jsonl, parquet, inspect, memory, results).", unit="NAME"),
)
def export(
    run: Annotated[str, typer.Argument(help="Name or id of the run, or `last`.")],
    store: str,
    format: str,  # noqa: A002
    out: Path | None,
    system: str | None,
    canonical: bool,
) -> int:
    """Everything a run found, for other programs."""
    from context_bench.reports.renderers import check_format, takes_page
    from context_bench.runner import details
    from context_bench.session import reporting
    from context_bench.session.runs import found_in, opened_store, page_of, result_of

    if format not in reporting.formats():
        check_format(format, reporting.formats())
    if system is not None and format not in reporting.formats():
        raise BadInput(
            f"--system goes with {', '.join(reporting.formats())}; --format {format} is a report of the whole run"
        )
    if canonical and format != "json":
        raise BadInput(f"--canonical is a form of JSON; --format {format} has none")
    with opened_store(store) as opened:
        record = found_in(opened, run)
        if format in reporting.formats():
            reporting.export_rows(opened, record, format, out, system)
            return 0
        more = {"canonical": True} if canonical else _remarks(opened, record, format)
        damage = reporting.Damage()
        if takes_page(format):
            page = result = page_of(opened, record, store)
            rows = damage.among(page.rows)
            if format in ("csv", "json"):  # they go through all rows, once
                page.rows = cast("Any", rows)
        else:
            page, result = None, result_of(opened, record)
            rows = damage.among(result.rows)
        behind = details(opened, record.id)
        reporting.write_report(result, format, out, page=page, details=behind, **more)
        deque(rows, 0)
        damage.say()
    return 0


def _remarks(store: Any, record: Any, format: str) -> dict[str, Any]:  # noqa: A002
    """Words of people on the run and its rows, for the forms that have room for them."""
    from context_bench.engine.store.remarks import remarks_by_row
    from context_bench.reports.renderers import takes_page

    if format not in ("csv", "json") or not takes_page(format):
        return {}
    labels = {name: value for name, value in (("title", record.title), ("tags", record.tags)) if value}
    more = {"labels": labels} if format == "json" else {}
    return {**more, "remarks": remarks_by_row(store, record.number)}


@takes(StoredOptions, dry_run=own("Only say what would go."))
def purge(older_than: str | None, deleted: bool, store: str, dry_run: bool) -> int:
    """Remove runs older than an age, or those marked as deleted, with all they recorded. There is no way back."""
    from context_bench.engine import purge as remove
    from context_bench.engine.store.remarks import purge_deleted
    from context_bench.session.runs import opened_store

    if older_than is None and not deleted:
        raise BadInput("nothing says which runs: give --older-than AGE, such as 30d, or --deleted, or both")
    age = None if older_than is None else seconds_of(older_than)
    with opened_store(store) as opened:
        gone = purge_deleted(opened, dry_run=dry_run) if deleted else []
        if age is not None:
            gone = list(dict.fromkeys([*gone, *remove(opened, older_than=age, dry_run=dry_run)]))
    say(f"{'would remove' if dry_run else 'removed'} {len(gone)} run(s) {', '.join(gone)}".rstrip())
    return 0


def seconds_of(age: str) -> float:
    """`30d`, `12h`, `90m`, `45s` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([dhms])", age.strip())
    if match is None:
        raise BadInput(f"{age!r} is not an age; expected a number and a unit, such as 30d, 12h, 90m or 45s")
    return float(match[1]) * {"d": 86_400, "h": 3_600, "m": 60, "s": 1}[match[2]]


@takes(
    StoredOptions,
    to=own("The other store: a path, or postgresql://USER@HOST:PORT/DATABASE.", unit="URL", default=""),
    store=own("The store to copy from."),
    name=own("Another name for the copy of a single run or watch.", unit="NAME", names="--as"),
)
def copy_runs(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Names or ids, or `last`. [default: all of the store]", metavar="[RUN]..."),
    ] = None,
    *,
    to: str,
    store: str,
    watches: list[str] | None,
    replies: bool,
    name: str | None,
) -> int:
    """Copy runs with answers, scores, calls, bodies, set-ups and plan: the copy gives the same reports and can be
    resumed there.

    Without names everything is copied: runs, watches of live traffic, and what judges are remembered to have said. What
    is there already is left alone; a copy that was broken off goes on. Both stores may be files or on servers.
    """
    from context_bench.engine import copy_replies, copy_run, copy_watch, open_store
    from context_bench.session.run_session import checked_name
    from context_bench.session.runs import found_in, opened_store

    if not to:
        raise BadInput("--to is missing: the store to copy to")
    named = [*(runs or []), *(watches or [])]
    checked_name("--as", name, "one")
    if name is not None and len(named) != 1:
        raise BadInput("--as goes with exactly one run or one watch")
    with opened_store(store) as source, open_store(to) as target:
        if named or replies:
            chosen, seen = [found_in(source, run).id for run in runs or []], list(watches or [])
        else:
            chosen, seen = _everything(source)
        for run in chosen:
            _tell_run(copy_run(source, target, run, name=name), target.name)
        for watch in seen:
            _tell_watch(copy_watch(source, target, watch, name=name), target.name)
        if replies or not named:
            say(f"copied {copy_replies(source, target):,} remembered replies to {target.name}")
    return 0


def _everything(source: Any) -> tuple[list[str], list[str]]:
    """Ids of all runs and names of all watches, oldest first; broken-off copies are neither."""
    from context_bench.engine import list_runs, list_watches

    runs = [run.id for run in reversed(list_runs(source)) if run.status != "copying"]
    watches = [watch.name for watch in reversed(list_watches(source)) if watch.status != "copying"]
    if not runs and not watches:
        raise BadInput(f"no run and no watch in {source.name}")
    return runs, watches


def _tell_run(copied: Any, where: str) -> None:
    if copied.there:
        say(f"{copied.name} is in {where} already")
    else:
        say(
            f"copied {copied.name} to {where}: {copied.rows:,} answers, {copied.calls:,} calls, {copied.bodies:,} "
            "bodies"
        )


def _tell_watch(copied: Any, where: str) -> None:
    if copied.there:
        say(f"watch {copied.name} is in {where} already")
    else:
        say(f"copied watch {copied.name} to {where}: {copied.records:,} records")


@takes(
    StoredOptions,
    system=own("Only this system; default: all that changed something.", unit=None),
    json=own("As JSON on stdout: every span, nothing cut."),
)
def diff_example(
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
            raise BadInput(
                f"run {record.name!r} has no answer of trial {trial} to this example yet; trials count from 0"
            )
        if json:
            _print_json(found)
        else:
            from context_bench.reports.detail import placed
            from context_bench.session.reporting import named

            told = [(row, placed(behind, named(store)) or behind) for row, behind in found]
            _print_text(told, full, chosen=bool(system))
    return 0


_Found = tuple[Any, Mapping[str, Any]]  # a row, and what stands behind it


def _rows(store: Any, record: Any, example: str, systems: Iterable[str], trial: int) -> Iterator[_Found]:
    from context_bench.engine.store.reading import stored_one
    from context_bench.runner import detail_of

    ident = _stored_id(store, record, example)
    for name in systems:
        if name not in record.systems:
            raise UnknownName("system", name, record.systems)
        item, told = (
            stored_one(store, record.number, name, ident, trial),
            detail_of(store, record.id, name, ident, trial),
        )
        if item is not None and told is not None:
            yield item.row, told


def _stored_id(store: Any, record: Any, example: str) -> str | int:
    """The id that is meant: as it is stored, or as reports show it. Raises `UnknownName`, which tells near ones."""
    from context_bench.engine.store.reading import example_ids
    from context_bench.reports.visible_text import visible

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
    from context_bench.reports.visible_text import visible

    console = Console()
    color = console.color_system is not None and not console.no_color
    width = console.width if console.is_terminal else shutil.get_terminal_size((80, 24)).columns
    same = [
        row.system
        for row, told in found
        if not chosen and not any(each.altered for each in shown_exchanges(told, limit=0))
    ]
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
    from context_bench.reports.visible_text import json_ready

    ready = [{"row": plain(row), **told, "diffs": compared(told)} for row, told in found]
    write_out(json.dumps(json_ready(ready), indent=2, ensure_ascii=False) + "\n", None)


@takes(StoredOptions, port=own("Port on 127.0.0.1; 0 takes a free one.", default=0))
def view_store(
    place: Annotated[str | None, typer.Argument(help="The same as --store.", metavar="[STORE]")] = None,
    *,
    store: str,
    port: int,
    edit: bool,
    no_open: bool,
) -> int:
    """Look at stored runs in a browser: verdicts, charts, every row, two runs compared; a running run as it goes.

    Only this machine can reach it, and only with the address it prints. The store is read, never written, unless --edit
    is given.
    """
    listening_port(port, "--port")
    if place is not None and store not in (place, DEFAULT_STORE):
        from context_bench.llm.redact import redact

        raise BadInput(f"two stores are named, {redact(place)!r} and --store {redact(store)!r}; name one of them")
    try:
        interrupts.looped(_serve_view(place or store, port, edit=edit, open_browser=not no_open))
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0


async def _serve_view(store: str, port: int, *, edit: bool, open_browser: bool) -> None:
    import asyncio

    from context_bench.session.runs import result_of
    from context_bench.viewer import Viewer

    async with Viewer(store, result_of=result_of, port=port, edit=edit) as viewer:
        print(viewer.url, flush=True)
        does = "showing and editing" if edit else "showing"
        print(f"context-bench: {does} {viewer.library.store.name} there; Ctrl-C stops.", file=sys.stderr, flush=True)
        if open_browser and _has_browser():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, viewer.url)
        await asyncio.Event().wait()


def _has_browser() -> bool:
    """Is somebody sitting here who could see one?"""
    shown = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return shown and sys.stdout.isatty() and not os.environ.get("SSH_CONNECTION")


_THEMES = ("light", "dark")
_LEAST, _MOST = 280, 4000  # pixels of width


@takes(
    StoredOptions,
    out=own("File to write; .svg or .png."),
    width=own("About how many pixels wide; below 500 it is laid out for a telephone.", least=None, default=900),
    scale=own("Pixels of a PNG for each of the SVG's.", default=2.0),
)
def plot_chart(
    run: Annotated[
        str,
        typer.Argument(
            help="Name or id of a stored run, `last`, a JSON file of `export` or `trace score`, or the folder of "
            "`trace score --out-dir`."
        ),
    ],
    kind: str,
    out: Path,
    store: str,
    theme: str,
    width: int,
    scale: float,
) -> int:
    """A chart of a run as a picture of its own, with title, explanation and background."""
    form = out.suffix.lower()
    _check(form, out, theme, width, scale)
    from context_bench.reports import charts

    chart, *others = charts.chosen(_charts(run, store), kind)
    if others:
        say(f"{kind}: {chart.id} is drawn; of the same kind: {', '.join(each.id for each in others)}")
    shade: Any = theme
    if form == ".svg":
        made = charts.standalone(chart, width=width, theme=shade).encode()
    else:
        made = charts.png(chart, scale=scale, width=width, theme=shade)
    with destination(out, "wb", f"{chart.title}:") as stream:
        stream.write(made)
    return 0


@takes(
    StoredOptions,
    out=own("File to write; .svg or .png."),
    width=own("About how many pixels wide; below 500 it is laid out for a telephone.", least=None, default=720),
    scale=own("Pixels of a PNG for each of the SVG's.", default=2.0),
)
def make_card(
    run: Annotated[str, typer.Argument(help="Name or id of a stored run, `last`, or a JSON file of `export`.")],
    out: Path,
    store: str,
    theme: str,
    width: int,
    scale: float,
) -> int:
    """The answers of a run as a picture for a README or a pull request: systems, verdicts, savings, and no text of the
    data.
    """
    return plot_chart(run, "card", out, store, theme, width, scale)


def _check(form: str, out: Path, theme: str, width: int, scale: float) -> None:
    if form not in (".svg", ".png"):
        raise BadInput(f"--out {out}: expected a name that ends in .svg or .png")
    if theme not in _THEMES:
        raise BadInput(f"--theme {theme!r}: expected light or dark")
    if not _LEAST <= width <= _MOST:
        raise BadInput(f"--width {width}: expected {_LEAST} to {_MOST} pixels")
    if not 0.1 <= scale <= 8:
        raise BadInput(f"--scale {scale:g}: expected 0.1 to 8")


def _charts(run: str, store: str) -> list[Chart]:
    """All charts of the run. It is a file if it ends in `.json`, a folder if it holds what `trace score` keeps there,
    else a stored run.
    """
    kept = Path(run) / "summary.json"
    if run.endswith(".json") or kept.is_file():
        return _charts_of_file(Path(run) if run.endswith(".json") else kept)
    from context_bench.reports import build_page
    from context_bench.reports.charts import charts_of
    from context_bench.session.runs import opened_result

    with opened_result(store, run) as result:
        return charts_of(build_page(result))


def _charts_of_file(file: Path) -> list[Chart]:
    """Those of an exported run, or the one of scored traces."""
    from context_bench.core.keys import load_json
    from context_bench.reports import build_page
    from context_bench.reports.charts import charts_of
    from context_bench.results import EvalResult

    try:
        read = load_json(file_bytes(file))
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise BadInput(f"{file}: not JSON: {error}") from None
    if isinstance(read, dict) and str(read.get("schema")).startswith("context-bench.traces/"):
        return _coverage(read.get("sets"))
    return charts_of(build_page(EvalResult.from_json(read)))


def _coverage(sets: Any) -> list[Chart]:
    """Draw the growth of coverage, a line for each set. Levels and numbers that are none are left out."""
    from context_bench.core.numbers import number
    from context_bench.traces.coverage import LEVELS
    from context_bench.traces.reports.views import course_chart

    courses: dict[str, dict[str, list[float | None]]] = {}
    for name, told in sets.items() if isinstance(sets, dict) else ():
        course = told.get("course") if isinstance(told, dict) else None
        found = {level: course.get(level) for level in LEVELS} if isinstance(course, dict) else {}
        courses[str(name)] = {
            level: [number(mean) for mean in means] for level, means in found.items() if isinstance(means, list)
        }
    chart = course_chart(courses)
    return [] if chart is None else [chart]
