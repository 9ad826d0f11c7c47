"""Style of all charts: colours, shapes, letters, scales; and the parts that charts drawn by Vega-Lite share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any

from context_bench.reports.visible_text import visible

#: Eight hues told apart by most kinds of colour vision, at least 3:1 on white and on near-black; shapes differ as well.
PALETTE = ("#3b7dd8", "#c9611a", "#2a9461", "#b0509f", "#8a7a1f", "#1f93a6", "#d0485f", "#7d6fd1")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
GREY = "#80868f"
TONES = {"good": "#2a9461", "bad": "#d0485f", "neutral": GREY}
INK = "currentColor"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
SIZE = 12  # pixels of letters
_NARROW = 500  # pixels below which a drawing is meant for a telephone

MOST = 160  # lines of a chart; what is beyond stands in the table

#: Begins the description of a mark that is to become its tooltip; no other description is shown.
TIP = "tip:"
#: Stands between a tooltip and the rows that the mark is of; no text that is shown has it.
OF_ROWS = "\u2063"


def description(name: str, tip: str = "", rows: str = "") -> str:
    """The description of a mark of Vega-Lite: its tooltip, the rows that it stands for, and whose it is."""
    return OF_ROWS.join((TIP + tip, rows, name))


def narrow(width: int) -> bool:
    """True if a drawing of this width is meant for a small screen."""
    return width < _NARROW


def letters(text: str, size: float = SIZE) -> float:
    """About how many pixels a text is wide."""
    return sum(map(_wide, text)) * size


def _wide(letter: str) -> float:
    """Of the size of letters: CJK 1, `m` and `%` wider than most, `i` narrower."""
    if ord(letter) > 0x2E7F:
        return 1.0
    if letter in "mwMW%@":
        return 0.85
    if letter in "iljtf.,:;|'! ":
        return 0.33
    return 0.64 if letter.isupper() else 0.56


class ShownNames:
    """Names as they are shown, each of them once, with their colours and shapes. `all_names` gives the order that
    colours follow.
    """

    def __init__(self, names: Iterable[str], all_names: Sequence[str] = (), longest: int = 48) -> None:
        own = list(dict.fromkeys(names))
        order = {name: place for place, name in enumerate(dict.fromkeys([*all_names, *own]))}
        self._places = {name: order[name] for name in own}
        self._shown: dict[str, str] = {}
        taken: set[str] = set()
        for name in own:
            told = text = visible(name, longest) or "(no name)"
            number = 2
            while text in taken:
                text, number = f"{told} ({number})", number + 1
            taken.add(text)
            self._shown[name] = text

    def __getitem__(self, name: str) -> str:
        return self._shown[name]

    @property
    def shown(self) -> list[str]:
        """All names as shown."""
        return list(self._shown.values())

    def color(self, name: str) -> str:
        """The colour of a name."""
        return PALETTE[self._places[name] % len(PALETTE)]

    def colors(self) -> list[str]:
        """The colours, in the order of `shown`."""
        return [self.color(name) for name in self._shown]

    def shapes(self) -> list[str]:
        """The shapes; 64 pairs of colour and shape differ."""
        return [SHAPES[(place + place // len(PALETTE)) % len(SHAPES)] for place in self._places.values()]

    def encodings(self, legend: Any) -> tuple[Any, Any]:
        """Colour and shape by the field `name`."""
        import altair as alt

        color = alt.Color("name:N", sort=None, scale=alt.Scale(domain=self.shown, range=self.colors()), legend=legend)
        shape = alt.Shape("name:N", sort=None, scale=alt.Scale(domain=self.shown, range=self.shapes()), legend=legend)
        return color, shape


def cycled(count: int, choices: Sequence[Any] = PALETTE) -> list[Any]:
    """`count` of the choices, in turn."""
    return list(islice(cycle(choices), count))


def nice(low: float, high: float, steps: int = 5) -> tuple[float, float, list[float]]:
    """Round ends around two values, and round numbers from one to the other; equal values get room on both sides."""
    if not high > low:
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(step * number, 12) for number in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def extent(
    values: Iterable[float | None], span: tuple[float, float] | None = None, *, zero: bool = False
) -> tuple[float, float]:
    """The least and the greatest of the values that are there, within `span` if that is given; `zero`: 0 is among
    them.
    """
    known = [value for value in values if value is not None and math.isfinite(value)] + ([0.0] if zero else [])
    if span is not None:
        known = [*known, *span]
    return (min(known), max(known)) if known else (0.0, 1.0)


def axis(ticks: Sequence[float], form: str = ",.6~g", **more: Any) -> Any:
    """An axis with these numbers on it."""
    import altair as alt

    return alt.Axis(values=list(ticks), format=form, **more)


def scale(low: float, high: float, **more: Any) -> Any:
    """A scale from one end to the other, neither moved."""
    import altair as alt

    return alt.Scale(domain=[low, high], nice=False, zero=False, **more)


def legend(width: int, names: Sequence[str], *, below: bool = True, values: Sequence[str] | None = None) -> Any:
    """A legend at the foot, in as many columns as there is room for, or at the right."""
    import altair as alt

    longest = max((letters(name) for name in names), default=0.0) + 34
    limit = width - 50 if below else 200
    columns = max(1, min(len(names), int((width - 20) // min(longest, limit + 34)))) if below else 1
    orient = "bottom" if below else "right"
    made: dict[str, Any] = {
        "orient": orient,
        "columns": columns,
        "title": None,
        "labelLimit": limit,
        "symbolSize": 90,
        "symbolOpacity": 1,
    }
    if values is not None:
        made["values"] = list(values)
    return alt.Legend(**made)


def inline(values: Sequence[dict[str, Any]]) -> Any:
    """A chart of these records. They are in a tuple, for altair copies lists, value by value, with every chart they
    come to stand in.
    """
    import altair as alt

    return alt.Chart(alt.InlineData(values=tuple(values)))


def look() -> dict[str, Any]:
    """The style of the pages, as the configuration of a Vega-Lite specification."""
    text = {"labelColor": INK, "titleColor": INK, "labelFont": FONT, "titleFont": FONT, "labelFontSize": SIZE}
    lines = {"gridColor": INK, "gridOpacity": 0.12, "domainColor": INK, "domainOpacity": 0.4, "ticks": False}
    titles = {"titleFontSize": SIZE, "titleFontWeight": "normal", "titlePadding": 12}
    return {
        "background": "transparent",
        "font": FONT,
        "padding": {"left": 5, "top": 8, "right": 12, "bottom": 5},
        "view": {"stroke": None},
        "axis": {**text, **titles, **lines, "labelPadding": 6, "labelFlush": False},
        "legend": {**text, "rowPadding": 5, "columnPadding": 18, "offset": 18},
        "text": {"font": FONT, "fontSize": SIZE, "color": INK},
    }


def fixed(channel: str, value: Any) -> Any:
    """The same value for every mark: `color=fixed("Color", INK)`. Given as a dict, as `alt.value` does, altair looks
    long for its class.
    """
    import altair as alt

    return getattr(alt, f"{channel}Value")(value)
