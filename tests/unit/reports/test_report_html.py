from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_bench.core.records import EvalRow, Result
from context_bench.reports import build_page, repr_html, to_html
from context_bench.reports.charts import svg
from context_bench.reports.charts.drawing import harmless
from context_bench.reports.page import Chart, Figure, Point

ANY = st.text(alphabet=st.characters(), max_size=40)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "footer", "div", "script"),
    *("h1", "h2", "h3", "p", "dl", "dt", "dd", "ul", "li", "strong", "span", "abbr", "wbr", "pre", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "label", "input", "select", "option", "button"),
    *("figure", "figcaption", "svg", "g", "path", "line", "circle", "text"),
}


class Elements(HTMLParser):
    """The elements of a page as a browser would build them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self.inside[-1] if self.inside else "", data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def row_data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="row-data">(.*?)</script>', text, re.S)
    assert found
    assert not set("<>&\u2028\u2029") & set(found[1])  # a browser ends the block at less than a whole end tag
    read: dict[str, Any] = json.loads(found[1], parse_constant=pytest.fail)
    return read


def test_documented_words(result: Result) -> None:
    text = to_html(result)
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>context-bench Results</title>" in text
    for word in ("rowData", "filterRows", "renderTable", "prefers-color-scheme", "40 examples evaluated"):
        assert word in text
    assert "No results" in to_html(Result([], {}))


def test_the_policy_allows_our_own_script_and_style_only(result: Result) -> None:
    text = to_html(result)
    policy = next(attrs["content"] or "" for tag, attrs in Elements(text).opened if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, body in (
        ("style", re.search(r"<style>(.*?)</style>", text, re.S)),
        ("script", re.search(r"<script>(.*?)</script>", text, re.S)),
    ):
        assert body
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()}'" in policy


def test_nothing_is_loaded_from_anywhere(result: Result) -> None:
    for tag, attrs in Elements(to_html(result)).opened:
        assert not set(attrs) & {"src", "href", "srcset", "action", "style", "background"}, tag
        assert not [name for name in attrs if name.startswith("on") or name.startswith("xlink")]
    assert "url(" not in to_html(result)


def test_our_script_makes_text_never_markup(result: Result) -> None:
    script = re.search(r"<script>(.*?)</script>", to_html(result), re.S)
    assert script
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", ".style"):
        assert forbidden not in script[1]
    assert len(script[1].splitlines()) <= 110


def test_a_thousand_rows_with_long_texts_stay_below_two_megabytes() -> None:
    rows = [
        EvalRow("a", f"example-{number:06d}", {"f1": 0.123456, "exact_match": 0.0}, 1000, 500, dataset="hotpotqa") for number in range(1000)
    ]
    body = "Some text of a context. " * 400
    text = to_html(Result(rows, {"a": {"mean_score": 0.1}}), details=lambda row: {"question": body, "answer": body, "response": body})
    assert 500_000 < len(text.encode()) < 2_000_000
    assert "Long texts are cut to 400 characters" in text


def test_rows_open_to_what_stands_behind_them(result: Result) -> None:
    def details(row: EvalRow) -> dict[str, Any] | None:
        return {"question": "Who?\nWhy?", "scores": row.scores} if row.example_id == "q0000" else None

    data = row_data(to_html(result, details=details))
    first, others = data["details"][0], data["details"][len(result.summary) :]
    assert first["question"] == "Who?\nWhy?"
    assert json.loads(first["scores"]) == result.rows[0].scores
    failed = [each for each in others if each]
    assert len(failed) == 6  # errors are shown even where no details are given
    assert failed[0]["errors"].startswith("system: ")


def test_none_scores_and_missing_numbers_are_null(result: Result) -> None:
    row = EvalRow("a", None, {"f1": None, "g": float("inf")}, None, None, latency=None)  # type: ignore[arg-type, dict-item]
    data = row_data(to_html(Result([row], {"a": {"mean_score": 0.5}})))
    assert data["rows"] == [["a", None, None, None, None, None, None, None, None]]


def test_dataset_shape_and_trial_only_where_they_differ(results: Callable[..., Result]) -> None:
    titles = [column["title"] for column in row_data(to_html(results()))["columns"]]
    assert titles[:4] == ["system", "example", "dataset", "exact_match"]
    shaped = [column["title"] for column in row_data(to_html(results(shapes=("plain-user", "codex"))))["columns"]]
    assert shaped[:4] == ["system", "example", "dataset", "shape"]


def test_details_cost_nothing_where_there_is_no_room_for_them() -> None:
    asked = []
    rows = [EvalRow("a", number, {"f1": 1.0}, 1, 1) for number in range(20_000)]
    text = to_html(Result(rows, {"a": {"mean_score": 1.0}}), details=lambda row: asked.append(row) or {})
    assert asked == []
    assert "too large to keep its texts" in text


def test_hostile_text_creates_no_element(nasty: str, hostile: Callable[[str], Result]) -> None:
    check(nasty, hostile)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY)
def test_no_text_creates_an_element(text: str, hostile: Callable[[str], Result]) -> None:
    check(text, hostile)


def check(text: str, hostile: Callable[[str], Result]) -> None:
    page = to_html(hostile(text), details=lambda row: {text: text, "answer": text * 3})
    page.encode("utf-8")
    found = Elements(page)
    assert {tag for tag, _ in found.opened} <= TAGS
    assert [tag for tag, _ in found.opened].count("script") == 2
    assert not found.comments
    allowed = {
        "lang", "charset", "http-equiv", "content", "name", "class", "id", "aria-labelledby", "aria-label", "role", "tabindex", "scope",
        "title", "type", "autocomplete", "value", "xmlns", "viewbox", "width", "height", "x1", "x2", "y1", "y2", "x", "y", "d", "cx", "cy",
        "r", "fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-miterlimit", "stroke-dasharray", "opacity",
        "transform", "text-anchor", "font-family", "font-size", "font-weight", "version",
    }  # fmt: skip
    assert {name for _, attrs in found.opened for name in attrs} <= allowed
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]", page)
    data = row_data(page)
    assert len(data["rows"]) == len(data["details"]) == 8
    assert all(len(row) == len(data["columns"]) for row in data["rows"])


def test_notebooks_get_tables_without_style_or_script(result: Result, hostile: Callable[[str], Result]) -> None:
    text = repr_html(build_page(result))
    tags = {tag for tag, _ in Elements(text).opened}
    assert "table" in tags
    assert not tags & {"script", "style", "html", "svg"}
    assert "kompact loses 0.061" in text
    dangerous = Elements(repr_html(build_page(hostile("<img src=x onerror=alert(2)>"))))
    assert "img" not in {tag for tag, _ in dangerous.opened}


# Charts --------------------------------------------------------------------------------------------------------------------------------


def pareto(*points: Point) -> Chart:
    return Chart("pareto", "pareto", "Quality against tokens", "What it shows.", "tokens", "mean f1", list(points))


def point(name: str, quality: float, cost: float, width: float = 0.1) -> Point:
    return Point(name, Figure(quality, "score", quality - width, quality + width), Figure(cost, "tokens"), front=True)


def test_marks_carry_tooltips_with_the_figures() -> None:
    drawn = ET.fromstring(svg(pareto(point("kompact", 0.7, 500), point("full", 0.75, 1000))))
    titles = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["kompact: 0.700 [0.600, 0.800], 500 tokens", "full: 0.750 [0.650, 0.850], 1,000 tokens"]
    labels = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"kompact", "full", "tokens", "mean f1"} <= set(labels)


def test_marks_at_the_same_place_stand_side_by_side() -> None:
    drawn = ET.fromstring(svg(pareto(point("full", 0.75, 1000), point("full#2", 0.74, 1000))))
    marks = [element for element in drawn.iter("{http://www.w3.org/2000/svg}path") if len(element)]
    places = [float((element.get("transform") or "").removeprefix("translate(").split(",")[0]) for element in marks]
    assert abs(places[0] - places[1]) >= 7


def test_a_drawing_keeps_only_what_is_harmless() -> None:
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg" onload="x()"><script>x()</script><image href="http://x/"/>'
        '<path d="M0,0" fill="url(http://x/)" style="color:red" stroke="#000"/><foreignObject/></svg>'
    )
    assert harmless(drawing, "label") == (
        '<svg role="img" aria-label="label" xmlns="http://www.w3.org/2000/svg"><path d="M0,0" stroke="#000" /></svg>'
    )


def test_a_point_without_interval_has_no_whisker() -> None:
    bare = Point("a", Figure(0.5, "score"), Figure(10, "tokens"))
    both = svg(pareto(bare, point("b", 0.6, 20)))
    neither = svg(pareto(bare, Point("b", Figure(0.6, "score"), Figure(20, "tokens"))))
    assert both.count("layer_0_marks") == neither.count("layer_0_marks") == 1
    assert len(re.findall(r'<line[^>]*stroke="#', both)) == 1
    assert len(re.findall(r'<line[^>]*stroke="#', neither)) == 0


def test_hostile_names_are_text_in_charts(nasty: str) -> None:
    drawn = ET.fromstring(svg(pareto(point(nasty, 0.7, 0), point("b", 0.7, 0))))
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} <= {"svg", "g", "path", "line", "text", "title"}
    assert not {name for element in drawn.iter() for name in element.attrib if name.startswith("on") or "href" in name}
