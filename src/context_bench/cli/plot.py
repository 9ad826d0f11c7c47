"""`plot`: a chart of a stored or exported run as an SVG or PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.files import destination, say
from context_bench.session.flags import own, takes
from context_bench.session.options import StoredOptions

if TYPE_CHECKING:
    from context_bench.reports.page import Page
    from context_bench.reports.pictures import Chart

_THEMES = ("light", "dark")
_LEAST, _MOST = 280, 4000  # pixels of width


@takes(
    StoredOptions,
    out=own("File to write; .svg or .png."),
    width=own("About how many pixels wide; below 500 it is laid out for a telephone.", least=None, default=900),
    scale=own("Pixels of a PNG for each of the SVG's.", default=2.0),
)
def command(
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
    chart = _chosen(_charts(run, store), kind)
    from context_bench.reports import charts

    shade: Any = theme
    if form == ".svg":
        made = charts.standalone(chart, width=width, theme=shade).encode()
    else:
        made = charts.png(chart, scale=scale, width=width, theme=shade)
    with destination(out, "wb", f"{chart.title}:") as stream:
        stream.write(made)
    return 0


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
    from context_bench.session.runs import opened_result

    with opened_result(store, run) as result:
        return _charts_of(build_page(result))


def _charts_of(page: Page) -> list[Chart]:
    return [chart for section in page.sections for chart in section.charts]


def _charts_of_file(file: Path) -> list[Chart]:
    """Those of an exported run, or the one of scored traces."""
    from context_bench.core.jsontext import load_json
    from context_bench.reports import build_page
    from context_bench.results import EvalResult

    try:
        read = load_json(file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise BadInput(f"{file}: not JSON: {error}") from None
    if isinstance(read, dict) and str(read.get("schema")).startswith("context-bench.traces/"):
        return _coverage(read.get("sets"))
    return _charts_of(build_page(EvalResult.from_json(read)))


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


def _chosen(found: Sequence[Chart], kind: str) -> Chart:
    """The chart of that name, else the first of that kind; the others of it are named."""
    named = next((chart for chart in found if chart.id == kind), None)
    if named is not None:
        return named
    of_kind = [chart for chart in found if chart.kind == kind]
    if not of_kind:
        have = ", ".join(chart.id for chart in found) or "none: there is nothing to draw"
        from context_bench.reports.charts import KINDS

        why = "this run has no data for it" if kind in KINDS else "no such chart"
        raise BadInput(f"--kind {kind}: {why}; charts of this run: {have}")
    if len(of_kind) > 1:
        others = ", ".join(chart.id for chart in of_kind[1:])
        say(f"{kind}: {of_kind[0].id} is drawn; of the same kind: {others}")
    return of_kind[0]
