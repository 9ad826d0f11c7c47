"""Charts with a line for each name: where the lines stand, and the words at their sides.

On a wide drawing names stand at the left and figures at the right of the plot; on a narrow one both stand above their
line, so that the plot keeps its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.reports.charts.style import (
    fixed,
    inline,
    letters,
    narrow,
)

_LINE = 17  # pixels of a line of letters
_LONGEST = 260  # pixels of a name beside the plot
_GAP = 12
_WIDE, _BOLD = 1.14, 1.28  # letters of the widest fonts that a reader may have, by those that are usual
MOST = 160  # lines of a chart; what is beyond stands in the table


@dataclass(frozen=True, slots=True)
class ChartRow:
    """`label` at the left, `value` at the right. A heading has no marks."""

    label: str
    value: str = ""
    heading: bool = False


class Rows:
    """The places of lines. `plot`: pixels of the plot's width; `height`; `at[i]`: the middle of the marks of line i,
    from the top.
    """

    def __init__(self, lines: Sequence[ChartRow], width: int, *, thick: int = 16) -> None:
        self.lines, self.width, self.thick = list(lines), width, thick
        self.narrow = narrow(width)
        widest = max((letters(each.label) * (_BOLD if each.heading else _WIDE) for each in lines), default=0)
        self.label_room = 0.0 if self.narrow else min(_LONGEST, widest)
        self.value_room = 0.0 if self.narrow else max((letters(each.value) for each in lines), default=0) * _WIDE
        self.plot = int(width - self.label_room - self.value_room - 3 * _GAP)
        self.at: list[float] = []
        self._words: list[float] = []
        down = 2.0
        for each in self.lines:
            if each.heading:
                down += 8 if self.at else 0
                self._place(down + _LINE / 2, down + _LINE / 2)
                down += _LINE + 4
            elif self.narrow:
                self._place(down + _LINE + thick / 2, down + _LINE / 2)
                down += _LINE + thick + 6
            else:
                down += 3
                self._place(down + thick / 2, down + thick / 2)
                down += thick + 3
        self.height = int(down + 4)

    def _place(self, marks: float, words: float) -> None:
        self.at.append(marks)
        self._words.append(words)

    def y(self, field: str = "y") -> Any:
        """The vertical place, in pixels from the top; no axis."""
        import altair as alt

        return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[self.height, 0], nice=False, zero=False), axis=None)

    def words(self) -> list[Any]:
        """Names, headings and figures."""
        sets = [
            [(each.label, at) for each, at in zip(self.lines, self._words, strict=True) if not each.heading],
            [(each.label, at) for each, at in zip(self.lines, self._words, strict=True) if each.heading],
            [(each.value, at) for each, at in zip(self.lines, self._words, strict=True) if each.value],
        ]
        left = 0 if self.narrow else -_GAP
        right = self.plot if self.narrow else self.plot + _GAP
        align = "left" if self.narrow else "right"
        values = int(max((letters(text) for text, _ in sets[2]), default=0))
        limit = self.plot - values - 10 if self.narrow else self.label_room + 4
        looks: list[tuple[float, dict[str, Any]]] = [
            (left, {"align": align, "limit": limit}),
            (left, {"align": align, "fontWeight": "bold", "limit": self.plot if self.narrow else self.label_room + 4}),
            (right, {"align": "right" if self.narrow else "left", "opacity": 0.85}),
        ]
        return [self._texts(texts, x, look) for texts, (x, look) in zip(sets, looks, strict=True) if texts]

    def _texts(self, texts: list[tuple[str, float]], x: float, look: dict[str, Any]) -> Any:
        import altair as alt

        base = inline([{"text": text, "y": at} for text, at in texts])
        return base.mark_text(baseline="middle", **look).encode(x=fixed("X", x), y=self.y(), text=alt.Text("text:N"))

    def layered(self, *layers: Any) -> Any:
        """All layers with the words, in the size of the plot."""
        import altair as alt

        return alt.layer(*layers, *self.words()).properties(width=self.plot, height=self.height)
