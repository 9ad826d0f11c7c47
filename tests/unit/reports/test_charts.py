"""Every kind of chart: from realistic records and from the odd ones, in a page and on its own."""

from __future__ import annotations

import struct
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from context_bench.core.errors import MissingExtra
from context_bench.core.measures import took
from context_bench.core.records import Comparison, Result
from context_bench.reports import build_page, html_page
from context_bench.reports.charts import KINDS, NARROW, WIDE, png, standalone, svg
from context_bench.reports.charts.drawing import Drawing
from context_bench.reports.charts.style import letters
from context_bench.reports.page import (
    BarPart,
    Card,
    Chart,
    Figure,
    Gap,
    LinePoint,
    Mark,
    Point,
    Rated,
    ScoreChange,
    Spread,
    TurnBar,
)
from context_bench.reports.plotting import spread
from context_bench.reports.traffic import turns_of
from context_bench.viewer import pages

SVG = "{http://www.w3.org/2000/svg}"
NASTY = '</script><img src=x onerror="x()">\u202e&"'


def score(value: float, reach: float | None = 0.1) -> Figure:
    return Figure(value, "score") if reach is None else Figure(value, "score", value - reach, value + reach)


def chart(kind: str, names: list[str], *, reach: float | None = 0.1, equal: bool = False) -> Chart:
    """A chart of this kind about these systems; `equal`: all values are the same."""
    data: list[Mark] = []
    for place, name in enumerate(names):
        value = 0.5 if equal else 0.2 + 0.6 * place / max(1, len(names) - 1)
        tokens = Figure(700.0 if equal else 100.0 + 90 * place, "tokens")
        if kind == "pareto":
            data.append(Point(name, score(value, reach), tokens, front=place == 0))
        elif kind in ("rates", "recall"):
            data += [LinePoint(name, k, score(value, reach)) for k in (1, 3, 10)]
        elif kind == "coverage":
            data += [
                LinePoint(name, share, score(value, None), panel)
                for panel in ("file", "line")
                for share in (0, 50, 100)
            ]
        elif kind == "distribution":
            found = spread(name, [value] * 30 if equal else [value + n / 50 for n in range(30)])
            assert found is not None
            data.append(found)
        elif kind == "forest":
            data += [
                Gap(name, score(value - 0.5, reach), "undecided", "neutral", 40, 0.02, group) for group in ("", "x")
            ]
        elif kind == "changes":
            data += [ScoreChange(name, *bin_) for bin_ in ((-0.1, 0.0, 3), (0.0, 0.0, 9), (0.4, 0.5, place + 1))]
        elif kind == "dots":
            data += [Rated(name, dimension, score(value, reach)) for dimension in ("Accuracy", "Continuity")]
        elif kind == "waterfall":
            data += [TurnBar(name, turn, turn, 100.0 * turn, 10.0, 20.0) for turn in (1, 2, 3)]
        elif kind == "failures":
            data += [BarPart(name, each, Figure(place, "count"), 100) for each in ("TimedOut", "HTTPError")]
        elif kind == "card":
            gap = score(value - 0.5, reach)
            data.append(Card(name, f"{name} saves.", "no loss ≥ 2 points", "non-inferior", "good", "full", gap, 0.02))
        else:
            data += [BarPart(name, each, Figure(value, "number")) for each in ("tokens sent", "cost: x")]
    return Chart(kind, kind, f"A chart: {kind}", "How to read it.", "across", "up", data)


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}text")]


def titles(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}title")]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_names_its_systems_whatever_they_are_called(kind: str) -> None:
    drawing = svg(chart(kind, ["kompact", NASTY, "kompact\u200b"]), width=NARROW)
    elements = list(ET.fromstring(drawing).iter())
    assert {element.tag.removeprefix(SVG) for element in elements} <= {
        "svg",
        "g",
        "path",
        "line",
        "rect",
        "circle",
        "text",
        "tspan",
        "title",
    }
    assert not {
        name
        for element in elements
        for name in element.attrib
        if name.startswith("on") or "href" in name or name == "style"
    }
    assert "kompact" in "".join([*texts(drawing), *titles(drawing)])
    assert "\u202e" not in drawing
    assert "#000" not in drawing, "every letter takes the page's colour"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "names", [["one"], ["a", "b"], [f"system-{number}" for number in range(40)]], ids=["one", "equal", "forty"]
)
def test_each_kind_draws_one_equal_and_many(kind: str, names: list[str]) -> None:
    drawing = svg(chart(kind, names, reach=None, equal=len(names) == 2))
    assert "NaN" not in drawing
    assert "Infinity" not in drawing
    root = ET.fromstring(drawing)
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    assert 0.7 * WIDE < width < 1.25 * WIDE
    assert 50 < height < 5000


def test_whiskers_end_where_the_scale_puts_them() -> None:
    first = Point("a", Figure(0.5, "score", 0.25, 1.0), Figure(50, "tokens", 25, 100), True)
    drawing = svg(Chart("p", "pareto", "", "", "x", "y", [first, Point("b", score(0.0, None), Figure(100, "tokens"))]))
    lines = [
        element
        for element in ET.fromstring(drawing).iter(f"{SVG}line")
        if (element.get("stroke") or "").startswith("#")
    ]
    ends = sorted((abs(float(line.get("x2") or 0)), abs(float(line.get("y2") or 0))) for line in lines)
    plot = WIDE - 66 - 24
    assert ends == [(0.0, pytest.approx(360 * 0.75)), (pytest.approx(plot * 0.75), 0.0)]


def test_a_forest_tells_verdicts_by_shape_and_the_margin_by_a_line() -> None:
    gaps = [Gap(tone, score(0.0), tone, tone, 9, 0.02) for tone in ("good", "bad", "neutral")]  # type: ignore[arg-type]
    drawing = svg(Chart("f", "forest", "", "", "difference", "", gaps))
    marks = {element.findtext(f"{SVG}title"): element for element in ET.fromstring(drawing).iter()}
    drawn = {
        tone: next(mark for title, mark in marks.items() if title and f", {tone}, n 9" in title)
        for tone in ("good", "bad", "neutral")
    }
    assert drawn["good"].tag == f"{SVG}circle", "a disc"
    assert drawn["bad"].tag == f"{SVG}path", "a square"
    assert (drawn["neutral"].tag, drawn["neutral"].get("fill-opacity")) == (f"{SVG}circle", "0"), "a ring"
    assert drawing.count('stroke-dasharray="4,3"') == 1


def test_changes_stand_left_and_right_of_zero_as_high_as_they_are_many() -> None:
    data = [ScoreChange("a", *each) for each in ((-1.0, -0.9, 2), (0.0, 0.0, 30), (0.1, 0.2, 8))]
    drawing = svg(
        Chart("c", "changes", "", "", "change of f1", "", [*data, ScoreChange("b", 0.9, 1.0, 4)]),
        rows_at=lambda rows: f"/rows?{rows}",
    )
    root = ET.fromstring(drawing)
    bars = {bar.findtext(f"{SVG}title"): bar for bar in root.iter(f"{SVG}rect")}
    assert list(bars) == [
        "a: 2 lost more than 0.9 and up to 1",
        "a: 8 gained more than 0.1 and up to 0.2",
        "b: 4 gained more than 0.9 and up to 1",
    ]
    two, eight, four = (float(bar.get("height") or 0) for bar in bars.values())
    assert (two, four) == (pytest.approx(eight / 4), pytest.approx(eight / 2))
    lost, gained, _ = (float(bar.get("x") or 0) for bar in bars.values())
    zero = [float(line.get("x1") or 0) for line in root.iter(f"{SVG}line") if line.get("stroke-opacity") == "0.6"]
    assert lost < zero[0] < gained
    assert "2 lost · 30 same · 8 gained" in texts(drawing)
    found = {link.get("href") for link in root.iter(f"{SVG}a")}
    assert found == {
        "/rows?system=a&change=lost%3A0.9%3A1",
        "/rows?system=a&change=gained%3A0.1%3A0.2",
        "/rows?system=b&change=gained%3A0.9%3A1",
    }


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_bar_begins_at_zero_and_ends_where_the_scale_puts_it(value: float) -> None:
    bars = [BarPart("a", "x", Figure(value, "number")), BarPart("a", "y", Figure(4.0, "number"))]
    root = ET.fromstring(svg(Chart("s", "strategies", "", "", "share", "", bars)))
    drawn = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    (left, length), (start, four) = [(float(bar.get("x") or 0), float(bar.get("width") or 0)) for bar in drawn]
    assert length == pytest.approx(four * abs(value) / 4, abs=0.05)
    assert left == pytest.approx(start - (length if value < 0 else 0), abs=0.05)


def test_a_core_without_the_plots_draws_forest_and_bars_and_says_what_the_others_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setitem(sys.modules, "altair", None)
    for kind in ("forest", "dots", "distribution", "waterfall", "failures", "strategies"):
        assert "<svg" in svg(chart(kind, ["a", "b"]))
    for kind in ("pareto", "rates", "recall", "coverage"):
        with pytest.raises(MissingExtra, match=r"A chart: .* needs the optional extra 'plots': pip install"):
            svg(chart(kind, ["a", "b"]))
    with pytest.raises(MissingExtra, match="PNG"):
        png(chart("forest", ["a"]))


def test_names_have_the_same_colour_in_every_chart() -> None:
    alone = chart("distribution", ["b"])
    alone.names = ["a", "b"]
    assert "#c9611a" in svg(alone)
    assert "#3b7dd8" not in svg(alone)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_of_its_own_brings_its_colours_and_words(theme: str) -> None:
    made = standalone(chart("pareto", ["a", "b"]), theme=theme)  # type: ignore[arg-type]
    assert "currentColor" not in made
    assert {"A chart: pareto", "How to read it."} <= set(texts(made))
    paper = {"light": "#ffffff", "dark": "#121417"}[theme]
    assert f'fill="{paper}"' in made
    image = png(chart("pareto", ["a", "b"]), scale=1.5, theme=theme)  # type: ignore[arg-type]
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    wide = float(ET.fromstring(made.partition("?>")[2]).get("width") or 0)
    assert struct.unpack(">I", image[16:20])[0] == pytest.approx(1.5 * wide, abs=2)


def test_records_of_another_kind_are_refused() -> None:
    wrong = chart("pareto", ["a"])
    wrong.kind = "forest"
    with pytest.raises(TypeError, match="Gap"):
        svg(wrong)
    with pytest.raises(KeyError):
        svg(Chart("x", "nosuch", "", "", "", ""))


def test_a_spread_keeps_twenty_dots_of_however_many() -> None:
    found = spread("a", [float(n) for n in range(10_001)])
    assert isinstance(found, Spread)
    assert (found.n, len(found.values), found.median.value, found.p95.value) == (10_001, 20, 5000.0, 9500.0)
    assert spread("a", []) is None
    few = spread("a", [3.0, 1.0])
    assert few is not None
    assert few.values == (1.0, 3.0)


def test_many_requests_share_bars_and_keep_their_mean() -> None:
    turns = [each for each in turns_of("a", [[2, 20, 4, 6]] * 90) if isinstance(each, TurnBar)]
    assert len(turns) == 30
    assert (turns[0].first, turns[0].last, turns[-1].last) == (1, 3, 90)
    assert {(each.cached, each.rewritten, each.new) for each in turns} == {(10.0, 2.0, 3.0)}
    assert turns_of("a", None) == []


def test_a_page_has_the_charts_its_data_allow(result: Result) -> None:
    result.by_type = [
        Comparison(
            "kompact", "full", "f1", None, None, -0.1, -0.2, 0.0, 0.4, "undecided", 0.02, 9, 9, qa_type="multi-hop"
        )
    ]
    charts = {chart.id: chart for section in build_page(result).sections for chart in section.charts}
    assert set(charts) == {
        "headline",
        "pareto",
        "pareto-money",
        "forest",
        "forest-types",
        "latency",
        "ttft",
        "failures",
    }
    assert all(each.about and each.x for each in charts.values())
    [gap] = charts["forest-types"].of(Gap)
    assert (gap.group, gap.difference.value, gap.tone) == ("multi-hop", -0.1, "neutral")
    assert {part.name for part in charts["failures"].of(BarPart)} == set(result.summary)


def test_scores_that_are_all_zero_get_no_room_below_zero() -> None:
    points = [Point(name, Figure(0.0, "score"), Figure(100.0, "tokens")) for name in ("a", "b")]
    assert not [
        text for text in texts(svg(Chart("p", "pareto", "", "", "x", "y", points))) if text.startswith(("-", "−"))
    ]


def test_only_marks_that_cover_one_another_move_and_names_without_room_are_led_to() -> None:
    same = [Point(name, score(1.0, 0.05), Figure(900.0, "tokens"), True) for name in ("full", "full#2")]
    below = [Point(name, score(value, 0.05), Figure(900.0, "tokens"), True) for name, value in (("a", 0.6), ("b", 0.2))]
    drawing = svg(Chart("p", "pareto", "", "", "x", "y", [*same, *below]), width=NARROW)
    assert {"full", "full#2", "a", "b"} <= set(texts(drawing))
    marks = {
        (path.findtext(f"{SVG}title") or "").partition(":")[0]: path
        for path in ET.fromstring(drawing).iter(f"{SVG}path")
    }
    across = {
        name: float((marks[name].get("transform") or "").split("(")[1].split(",")[0])
        for name in ("full", "full#2", "a", "b")
    }
    assert across["full#2"] - across["full"] == pytest.approx(14, abs=0.1)
    assert across["a"] == across["b"] == pytest.approx((across["full"] + across["full#2"]) / 2, abs=0.1)


def test_short_times_are_told_in_milliseconds() -> None:
    for times, told in (([0.0004, 0.0125], "ms"), ([0.4, 12.5], "s")):
        data = [found for found in (spread("a", [value] * 9) for value in times) if found is not None]
        drawing = svg(Chart("t", "distribution", "", "", "time of a search", "", data))
        assert f"time of a search, {told}" in texts(drawing)
        for value in times:  # as the tables tell them
            said = "0.40 ms" if value < 0.001 else took(value)
            assert f"{said} · {said}" in texts(drawing)


def test_kinds_without_an_interval_are_named_and_left_out(result: Result) -> None:
    known = Comparison(
        "kompact", "full", "f1", None, None, -0.1, -0.2, 0.0, 0.4, "undecided", 0.02, 9, 9, qa_type="single"
    )
    result.by_type = [known, replace(known, low=None, high=None, qa_type="chain")]
    chart = next(
        chart for section in build_page(result).sections for chart in section.charts if chart.id == "forest-types"
    )
    assert [gap.group for gap in chart.of(Gap)] == ["single"]
    assert chart.about.endswith("for an interval: chain.")


def test_many_kinds_without_any_interval_are_no_page_of_rings(result: Result) -> None:
    open_one = Comparison("kompact", "full", "f1", None, None, -0.1, None, None, None, "no verdict", 0.02, 2, 2)

    def drawn(count: int) -> list[str]:
        result.by_type = [replace(open_one, qa_type=f"kind {number}") for number in range(count)]
        return [chart.id for section in build_page(result).sections for chart in section.charts]

    assert "forest-types" in drawn(40)
    assert "forest-types" not in drawn(41)


@pytest.mark.parametrize("kind", ["forest", "changes", "dots", "distribution", "pareto", "rates", "recall", "coverage"])
def test_marks_name_their_system_and_pictures_of_their_own_do_not(kind: str) -> None:
    made = chart(kind, ["kompact", NASTY])
    drawing = svg(made)
    owned = [element for element in ET.fromstring(drawing).iter() if element.get("data-of") == "kompact"]
    assert len(owned) >= 2
    assert not any("\u202e" in (element.get("data-of") or "") for element in ET.fromstring(drawing).iter())
    linked = ET.fromstring(svg(made, rows_at=lambda rows: "/rows"))
    assert all(link.get("data-of") and not next(iter(link)).get("data-of") for link in linked.iter(f"{SVG}a"))
    assert "data-of" not in standalone(made)


def test_scripts_of_a_page_are_short() -> None:
    """Decision 36, as amended: at most 400 lines for a page."""
    for script in (html_page.script_text(), pages.script()):
        assert len(script.splitlines()) <= 400
        assert "innerHTML" not in html_page.template_text("charts.js")


def test_entries_of_a_legend_stand_at_even_distances_and_flow_into_the_room() -> None:
    """However long their names are; what does not fit goes on in the next line."""
    drawing = Drawing(400, 100)
    names = ["a", "a rather long name", "b", "another long name here", "and one more of them"]
    drawing.legend([("square", "#000", name) for name in names], 400)
    root = drawing.root()
    texts = {
        each.text: (float(each.get("x", 0)), float(each.get("y", 0))) for each in root.iter() if each.text in names
    }
    first = [name for name in names if texts[name][1] == texts["a"][1]]
    assert 1 < len(first) < len(names)
    gaps = [texts[after][0] - texts[name][0] - letters(name) for name, after in pairwise(first)]
    assert max(gaps) - min(gaps) < 0.5
    assert texts[names[len(first)]][0] == texts["a"][0]
