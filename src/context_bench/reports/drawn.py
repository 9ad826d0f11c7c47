"""What templates need beside the page: charts drawn, intervals placed on a scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from context_bench.reports import charts
from context_bench.reports.page import Figure, Section, Sentence, Table

WIDTH = 240  # of a bar of a verdict, in units of its own
_CELL = (6, 138)  # from where to where the interval of a table cell is drawn


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart for wide and for narrow screens."""

    title: str
    about: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a figure and the ends of its interval are drawn, and what they say."""

    at: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    """The intervals of a table's first number, drawn on one scale."""

    title: str
    intervals: list[Interval | None]


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
    def of(cls, section: Section) -> DrawnSection:
        drawn = [
            DrawnChart(each.title, each.about, Markup(charts.svg(each)), Markup(charts.svg(each, width=charts.NARROW)))
            for each in section.charts
        ]
        bars = _bars(section.tables[0]) if section.id == "quality" and section.tables else None
        return cls(section.id, section.title, section.about, section.tables, drawn, bars)


def _bars(table: Table) -> Bars | None:
    cells = [row[1] if isinstance(row[1], Figure) else None for row in table.rows]
    ends = [end for cell in cells if cell for end in (cell.value, cell.low, cell.high) if end is not None]
    if not ends:
        return None
    scale = Scale(min(0.0, *ends), max(1.0, *ends), *_CELL)
    return Bars(f"{scale.low:g} to {scale.high:g}", [scale.interval(cell) if cell else None for cell in cells])


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a number from `low` to `high` stands between `start` and `end`."""

    low: float
    high: float
    start: float = 0
    end: float = WIDTH

    def place(self, value: float) -> float:
        """The place of a number."""
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 1)

    def interval(self, figure: Figure) -> Interval:
        """The places of a figure and of the ends of its interval."""
        low, high = (None if end is None else self.place(end) for end in (figure.low, figure.high))
        return Interval(self.place(figure.value), low, high, figure.text)


@dataclass(frozen=True, slots=True)
class DrawnVerdict:
    """A verdict with its bar: zero, the loss that would be too much (everything left of `margin`), the difference and its interval."""

    sentence: Sentence
    bar: Interval | None
    zero: float | None
    margin: float | None
    saved: list[tuple[str, str]]  # what, how much


@dataclass(frozen=True, slots=True)
class DrawnVerdicts:
    """Verdicts on one scale: those on systems, then those on controls."""

    systems: list[DrawnVerdict]
    controls: list[DrawnVerdict]
    low: str
    high: str

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> DrawnVerdicts:
        scale = _scale(sentences)
        drawn = [(each.control, _verdict(each, scale)) for each in sentences]
        ends = (f"{scale.low:+.2f}", f"{scale.high:+.2f}") if scale else ("", "")
        return cls([each for control, each in drawn if not control], [each for control, each in drawn if control], *ends)


def _scale(sentences: Iterable[Sentence]) -> Scale | None:
    ends = [0.0]
    for each in sentences:
        if each.difference is not None:
            ends += [end for end in (each.difference.value, each.difference.low, each.difference.high) if end is not None]
            ends += [] if each.margin is None else [-2 * each.margin, 2 * each.margin]
    pad = 0.06 * (max(ends) - min(ends))
    return Scale(min(ends) - pad, max(ends) + pad) if pad else None


def _verdict(each: Sentence, scale: Scale | None) -> DrawnVerdict:
    saved = [_saved(what, figure) for what, figure in each.saved.items()]
    if scale is None or each.difference is None:
        return DrawnVerdict(each, None, None, None, saved)
    margin = None if each.margin is None else max(0.0, scale.place(-each.margin))
    return DrawnVerdict(each, scale.interval(each.difference), scale.place(0.0), margin, saved)


def _saved(what: str, figure: Figure) -> tuple[str, str]:
    text = Figure(abs(figure.value), figure.unit).short
    less = f"fewer {what}" if what == "tokens" else f"less {what}"
    return f"{what} saved" if text == "0.0 %" else f"more {what}" if figure.value < 0 else less, text
