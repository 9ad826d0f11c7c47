"""A page as one HTML file: no network, no foreign script, opens from disk, light and dark, printable.

The policy in the file allows exactly our own style and script, by hash. Everything that comes from data is escaped by
the template, or stands in a data block from which the script makes text, or what the template made, never markup of its
own.

Charts are drawn and intervals are placed on a scale before the template runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from context_bench.core.errors import MissingExtra
from context_bench.core.families import families
from context_bench.core.measures import took
from context_bench.reports import charts
from context_bench.reports.arm_aggregates import source_of
from context_bench.reports.charts import RowsAt
from context_bench.reports.page import (
    BarPart,
    Card,
    Cell,
    Chart,
    Column,
    Figure,
    Gap,
    Page,
    Section,
    SystemChanges,
    Table,
    shared_commands,
)
from context_bench.reports.visible_text import command_text, excerpt, fold_at, visible

#: Charts that stand before the appendix: tokens against the bill, and the one forest plot.
_PICTURES = ("headline", "forest")
_MOST_AHEAD = 4  # systems of which tokens and bill are drawn there: the cards of more say it in less room
_APART = 4  # so many controls in the size of single systems stand among the others; more have a fold of their own
WIDTH = 240  # of a bar of a verdict, in units of its own
_CELL = (6, 138)  # from where to where the interval of a table cell is drawn
_HYPHENED = re.compile(r"(?<![^\s(])(?=\S*-)[\w.-]{2,28}(?![\w.-])")  # longer ones may have to be broken
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b")
_WHOLE = r'<span class="whole">\g<0></span>'
_SENTENCES = re.compile(r"(?<=\.) ")


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart for wide and for narrow screens."""

    title: str
    about: str
    wide: Markup
    narrow: Markup

    @classmethod
    def of(cls, chart: Chart, rows_at: RowsAt | None, explained: set[str]) -> DrawnChart:
        """The chart, explained by what was not `explained` before; its own sentences are added to that."""
        drawn = (_drawn(chart, width, rows_at) for width in (charts.WIDE, charts.NARROW))
        about = [each for each in _SENTENCES.split(chart.about) if each not in explained]
        explained.update(about)
        return cls(chart.title, " ".join(about), *drawn)


@dataclass(frozen=True, slots=True)
class DrawnInterval:
    """Positions of a figure and of the ends of its interval, with their texts."""

    at: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    """The intervals of a table's first number, drawn on one scale."""

    title: str
    intervals: list[DrawnInterval | None]


@dataclass(frozen=True, slots=True)
class DrawnSection:
    """A section with its charts drawn."""

    id: str
    title: str
    about: str
    tables: list[Table]
    charts: list[DrawnChart]
    bars: Bars | None

    @classmethod
    def of(cls, section: Section, rows_at: RowsAt | None, explained: set[str]) -> DrawnSection:
        drawn = [DrawnChart.of(each, rows_at, explained) for each in section.charts]
        bars = _bars(section.tables[0]) if section.id == "quality" and section.tables else None
        return cls(section.id, section.title, section.about, section.tables, drawn, bars)


def _drawn(chart: Chart, width: int, rows_at: RowsAt | None) -> Markup:
    """The drawing, or a line that says which extra it needs: its figures stand in the tables of the section."""
    try:
        return Markup(charts.svg(chart, width=width, rows_at=rows_at))
    except MissingExtra as missing:
        return Markup("<p>") + str(missing) + Markup("</p>")


def _bars(table: Table) -> Bars | None:
    cells = [row[1] if isinstance(row[1], Figure) else None for row in table.rows]
    ends = [end for cell in cells if cell for end in (cell.value, cell.low, cell.high) if end is not None]
    if not ends:
        return None
    scale = Scale(min(0.0, *ends), max(1.0, *ends), *_CELL)
    return Bars(f"{scale.low:g} to {scale.high:g}", [scale.interval(cell) if cell else None for cell in cells])


@dataclass(frozen=True, slots=True)
class Scale:
    """Position of a number from `low` to `high` stands between `start` and `end`."""

    low: float
    high: float
    start: float = 0
    end: float = WIDTH

    def place(self, value: float) -> float:
        """The place of a number."""
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 1)

    def interval(self, figure: Figure) -> DrawnInterval:
        """The places of a figure and of the ends of its interval."""
        low, high = (None if end is None else self.place(end) for end in (figure.low, figure.high))
        return DrawnInterval(self.place(figure.value), low, high, figure.text)


@dataclass(frozen=True, slots=True)
class DrawnCard:
    """A card with its bar: zero, the loss that would be too much (everything left of `margin`), the difference and its
    interval.
    """

    card: Card
    bar: DrawnInterval | None
    zero: float | None
    margin: float | None
    saved: list[tuple[str, str]]  # what, how much


@dataclass(frozen=True, slots=True)
class DrawnCards:
    """The cards on one scale, and its ends."""

    cards: list[DrawnCard]
    low: str
    high: str

    @classmethod
    def of(cls, cards: Sequence[Card]) -> DrawnCards:
        scale = _scale(cards)
        points = any(" points" in each.figures for each in cards)
        ends = (
            [f"{100 * end:+.1f}" if points else f"{end:+.3g}" for end in (scale.low, scale.high)] if scale else ["", ""]
        )
        if scale and points:
            ends[1] += " points"
        return cls([_card(each, scale) for each in cards], *ends)


def _scale(cards: Iterable[Card]) -> Scale | None:
    ends = [0.0]
    for each in cards:
        if each.difference is not None:
            ends += [
                end for end in (each.difference.value, each.difference.low, each.difference.high) if end is not None
            ]
            ends += [] if each.margin is None else [-2 * each.margin, 2 * each.margin]
    pad = 0.06 * (max(ends) - min(ends))
    return Scale(min(ends) - pad, max(ends) + pad) if pad else None


def _card(each: Card, scale: Scale | None) -> DrawnCard:
    saved = [_saved(what, figure) for what, figure in each.saved.items()]
    if scale is None or each.difference is None:
        return DrawnCard(each, None, None, None, saved)
    margin = None if each.margin is None else max(0.0, scale.place(-each.margin))
    return DrawnCard(each, scale.interval(each.difference), scale.place(0.0), margin, saved)


def _saved(what: str, figure: Figure) -> tuple[str, str]:
    text = Figure(abs(figure.value), figure.unit).short
    less = f"fewer {what}" if what == "tokens" else f"less {what}"
    return f"{what} saved" if not text.strip("0. %") else f"more {what}" if figure.value < 0 else less, text


def render(page: Page) -> str:
    """The whole file. Rows open to what `page.details(row)` gives, shortened so that the file stays small."""
    from context_bench.reports.rowdata import row_data

    style, script, rows = style_text(), script_text(), row_data(page)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            summary=_summary(page, _in_file, rows_note=rows.note, printed=rows.printed),
            csp=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            row_data=Markup(rows.block),
            chunks=[Markup(chunk) for chunk in rows.chunks],
        )
    )


def summary_html(
    page: Page,
    *,
    link: Callable[[SystemChanges], str | None] | None = None,
    rows_at: RowsAt | None = None,
) -> Markup:
    """The page from its verdicts to its manifest, for a document that brings its own head, style (`style_text`) and
    rows.

    `link`: the address of the row that stands for what a system changed; without it the example is named only.
    `rows_at`: the address of the rows that a mark of a chart stands for.
    """
    return _summary(page, link, rows_note=None, rows_at=rows_at)


def style_text() -> str:
    """The style of pages and of what their rows open to, for a `<style>` element or a file of its own."""
    return template_text("report.css") + template_text("detail.css")


def rows_script() -> str:
    """The script that draws the rows of a page, as many of their columns as fit."""
    return template_text("report.js") + template_text("rows.js")


def script_text() -> str:
    """The script that draws the rows of a page from its data block, and hides and shows systems in its charts."""
    return rows_script() + template_text("charts.js")


def repr_html(page: Page) -> str:
    """The short form for notebooks: verdicts and tables, no style and no script."""
    return environment().get_template("fragment.html.j2").render(page=page)


def policy(style: str, script: str) -> str:
    """A content security policy that allows exactly this style and this script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _in_file(change: SystemChanges) -> str | None:
    return None if change.place is None else f"#row-{change.place}"


def _summary(
    page: Page,
    link: Callable[[SystemChanges], str | None] | None,
    *,
    rows_note: str | None,
    printed: str = "",
    rows_at: RowsAt | None = None,
) -> Markup:
    """`rows_note`: what is said above the rows; `None` for a page without rows. `printed`: the same on paper only."""
    leading = {name for family in families() for name in family.sections.first}
    apart = _size_matched(page)
    split = [_pictured(section, apart) for section in page.sections]
    explained: set[str] = set()
    pictures = [DrawnChart.of(each, rows_at, explained) for shown, _ in split for each in shown]
    sections = [(section.id in leading, DrawnSection.of(section, rows_at, explained)) for _, section in split]
    overview, folded = _parted(page.overview.tables[0], apart) if page.overview else (None, None)
    changes = [(change, link(change) if link else None) for change in page.changes]
    return Markup(
        environment()
        .get_template("summary.html.j2")
        .render(
            page=page,
            cards=DrawnCards.of(page.cards),
            shared=shared_commands(page.cards),
            controls=[each.text for each in page.verdicts if each.control],
            overview=overview,
            folded=folded,
            pictures=pictures,
            leading=[section for first, section in sections if first],
            changes=[each for each in changes if each[0].system not in apart],
            apart=[each for each in changes if each[0].system in apart],
            contexts={source_of(each.row) for each in page.changes if each.row is not None} == {"context"},
            sections=[section for first, section in sections if not first and (section.tables or section.charts)],
            timing=sorted(
                page.timing.items(),
                key=lambda entry: page.systems.index(entry[0]) if entry[0] in page.systems else len(page.systems),
            ),
            rows_note=rows_note,
            printed=printed,
            manifest=visible(json.dumps(page.manifest, indent=2, ensure_ascii=False), 200_000, lines=True)
            if page.manifest
            else "",
        )
    )


def _size_matched(page: Page) -> frozenset[str]:
    """The controls in the size of one of the systems under test, if they are so many that the others drown in them."""
    own = {each.system for each in page.cards}
    names = [_name(row) for row in page.overview.tables[0].rows] if page.overview else page.systems
    found = [name for name in names if name.partition("@")[2] in own]
    return frozenset(found if len(found) > _APART else ())


def _name(row: Sequence[Cell]) -> str:
    return row[0] if isinstance(row[0], str) else ""


def _parted(table: Table, apart: frozenset[str]) -> tuple[Table, Table | None]:
    """The table without the lines of some systems, and a table of them."""
    kept = [row for row in table.rows if _name(row) not in apart]
    others = [row for row in table.rows if _name(row) in apart]
    return replace(table, rows=kept), replace(table, rows=others) if others else None


def _pictured(section: Section, apart: frozenset[str]) -> tuple[list[Chart], Section]:
    """The charts of a section that stand before the appendix, and the section without them: marks of systems that stand
    `apart` stay in it.
    """
    shown: list[Chart] = []
    left: list[Chart] = []
    for chart in section.charts:
        many = chart.id == "headline" and len(dict.fromkeys(each.name for each in chart.of(BarPart))) > _MOST_AHEAD
        if chart.id not in _PICTURES or many:
            left.append(chart)
            continue
        others = [each for each in chart.data if isinstance(each, Gap) and each.name.partition(" − ")[0] in apart]
        shown.append(replace(chart, data=[each for each in chart.data if each not in others]))
        left += [replace(chart, title=f"{chart.title}: controls in the size of one system", data=others)] * bool(others)
    return shown, replace(section, charts=left)


# Templates
# ------------------------------------------------------------------------
@lru_cache
def template_text(name: str) -> str:
    """A file of `templates/`."""
    return (files("context_bench.reports") / "templates" / name).read_text(encoding="utf-8")


@lru_cache
def environment() -> Environment:
    """The environment that renders templates: everything is escaped, unknown names are faults, `visible` tames outside
    text.
    """
    made = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["visible"] = visible
    made.filters["command"] = command_text
    made.filters["excerpt"] = excerpt
    made.filters["fold_at"] = fold_at
    made.filters["explained"] = _explained
    made.filters["breakable"] = _breakable
    made.filters["whole"] = whole_words
    made.filters["moments"] = lambda text: Markup(_MOMENT.sub(_WHOLE, str(escape(text))))
    made.filters["unbroken"] = lambda title: title.replace(" %", "\u00a0%")
    made.filters["duration"] = took
    made.tests["figure"] = lambda value: isinstance(value, Figure)
    return made


def _explained(columns: Iterable[Column]) -> list[tuple[str, str]]:
    """Titles and explanation of the columns that have one; those with the same one stand together."""
    found: dict[str, list[str]] = {}
    for column in columns:
        if column.about:
            found.setdefault(column.about, []).append(column.title)
    return [(", ".join(titles), about) for about, titles in found.items()]


def _breakable(text: object) -> Markup:
    """A name that may be broken after its separators, but not within a date or a time."""
    return Markup(_MOMENT.sub(_WHOLE, re.sub(r"([@/·_])", r"\1<wbr>", str(escape(visible(text, 300))))))


def whole_words(text: str) -> Markup:
    """A text in which no line ends within an option (`--margin`) or another short word with a hyphen. Elements keep it
    together and not characters, so that what is copied is the text.
    """
    return Markup(_HYPHENED.sub(_WHOLE, str(escape(text))))
