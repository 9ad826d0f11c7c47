from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from context_bench.core.measures import dollars, percent, took
from context_bench.core.records import EvalRow, Result
from context_bench.reports import build_page, html_page, repr_html, to_html, to_markdown
from context_bench.reports.charts import harmless, svg
from context_bench.reports.page import Chart, Details, Figure, Point

from .conftest import make_result, six_systems

ANY = st.text(alphabet=st.characters(), max_size=40)
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "small",
        "style",
        "body",
        "header",
        "main",
        "section",
        "footer",
        "div",
        "script",
    ),
    *(
        "h1",
        "h2",
        "h3",
        "p",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "strong",
        "span",
        "abbr",
        "wbr",
        "pre",
        "details",
        "summary",
    ),
    *("table", "thead", "tbody", "tr", "th", "td", "label", "input", "select", "option", "button"),
    *(
        "figure",
        "figcaption",
        "svg",
        "g",
        "path",
        "line",
        "circle",
        "text",
        "rect",
        "nav",
        "a",
        "b",
        "i",
        "noscript",
        "code",
        "h4",
    ),
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


def unpacked(text: str) -> str:
    return zlib.decompress(base64.b64decode(text, validate=True)).decode()


def row_data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="row-data">(.*?)</script>', text, re.S)
    assert found
    assert not set("<>&\u2028\u2029") & set(found[1])  # a browser ends the block at less than a whole end tag
    read: dict[str, Any] = json.loads(found[1], parse_constant=pytest.fail)
    if "packed" in read:
        read["rows"] = json.loads(unpacked(read["packed"]), parse_constant=pytest.fail)
    return read


def opened(text: str, at: int) -> str | None:
    """What a row opens to; `None` for one that does not open."""
    data = row_data(text)
    if (place := data["details"][at]) < 0:
        return None
    chunk = re.search(
        rf'<script type="application/octet-stream" id="chunk-{place // data["size"]}">([A-Za-z0-9+/=]*)</script>', text
    )
    assert chunk
    tops, depth, start = [], 0, 0
    html = unpacked(chunk[1])
    for tag in re.finditer(r"<(/?)div[ >]", html):  # the chunk is a row of <div>s
        depth += -1 if tag[1] else 1
        if depth == 1 and not tag[1]:
            start = tag.start()
        elif depth == 0:
            tops.append(html[start : tag.end()])
    return tops[place % data["size"]]


@pytest.fixture(scope="module")
def html() -> str:
    """One page for all that only look at it."""
    return to_html(make_result())


def test_documented_words(html: str) -> None:
    text = html
    assert text.startswith("<!DOCTYPE html>")
    assert "<title>context-bench Results</title>" in text
    for word in ("rowData", "filterRows", "renderTable", "prefers-color-scheme", "40 examples evaluated"):
        assert word in text
    assert "No results" in to_html(Result([], {}))


def test_twelve_controls_in_the_size_of_six_systems_stand_in_folds() -> None:
    shown, _, appendix = to_html(six_systems()).partition('<details class="appendix"')
    assert shown.count("<summary>The 12 controls in the size of one system</summary>") == 2
    before = re.sub(r"<details>.*?</details>", "", shown, flags=re.DOTALL)
    assert "head_tail@" not in before.replace("<wbr>", "")
    assert "kompact-5" in before
    assert "Paired differences: controls in the size of one system" in appendix
    assert "<summary>The " not in to_html(make_result())


def unmarked(html: str) -> str:
    """A page without the elements that keep words whole."""
    return re.sub(r'<span class="whole">([^<]*)</span>', r"\1", html)


def test_a_command_that_is_the_next_of_several_systems_is_said_once() -> None:
    result = six_systems()
    undecided = [replace(each, verdict="undecided") for each in result.comparisons]
    asked = "context-bench power --from demo --margin 0.02"
    undecided_result = replace(result, comparisons=undecided)
    for text in (unmarked(to_html(undecided_result)), to_markdown(undecided_result)):
        assert text.count(asked) == 1
    one = [replace(each, verdict="undecided") if each.system < "kompact-2" else each for each in result.comparisons]
    html = unmarked(to_html(replace(result, comparisons=one)))
    assert f"Next, for kompact-0, kompact-1: <code>{asked}" in html
    assert html.count("Next: <code>context-bench diff demo q0000") == 4


def test_how_to_read_a_kind_of_chart_is_said_once(html: str) -> None:
    explained = [each for text in re.findall(r"<figcaption>(.*?)</figcaption>", html) for each in text.split(". ")]
    assert len(explained) > 5
    assert len(explained) == len(set(explained))


def test_the_policy_allows_our_own_script_and_style_only(html: str) -> None:
    text = html
    policy = next(
        attrs["content"] or ""
        for tag, attrs in Elements(text).opened
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, body in (
        ("style", re.search(r"<style>(.*?)</style>", text, re.S)),
        ("script", re.search(r"<script>(.*?)</script>", text, re.S)),
    ):
        assert body
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()}'" in policy


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    for tag, attrs in Elements(html).opened:
        assert not set(attrs) & {"src", "srcset", "action", "style", "background"}, tag
        assert (attrs.get("href") or "#").startswith("#")
        assert not [name for name in attrs if name.startswith("on") or name.startswith("xlink")]
    assert "url(" not in html


def test_our_script_makes_text_never_markup(html: str) -> None:
    script = re.search(r"<script>(.*?)</script>", html, re.S)
    assert script
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", ".style"):
        assert forbidden not in script[1]
    assert len(script[1].splitlines()) <= 400


LETTERS = bytes(b"abcdefghijklmnopqrstuvwxyz    "[at % 30] for at in range(256))


def long_text(number: int, words: int) -> str:
    """Nothing that packs well."""
    return random.Random(number).randbytes(7 * words).translate(LETTERS).decode()


def without_charts(result: Result, details: Details | None = None) -> str:
    """The page for what charts have no part in: drawing them takes most of its time."""
    page = build_page(result, details=details)
    return to_html(replace(page, sections=[replace(section, charts=[]) for section in page.sections]))


def many(n: int) -> list[EvalRow]:
    return [
        EvalRow(
            "a" if number % 2 else "b",
            f"example-{number // 2:06d}",
            {"f1": 0.123456, "exact_match": 0.0},
            1000,
            500 if number % 5 == 0 else 1000,
            dataset="hotpotqa",
            wire={"source": "tap"},
            errors={"system": "TimedOut: late"} if number % 50 == 7 else {},
        )
        for number in range(n)
    ]


def test_a_thousand_rows_with_long_texts_stay_below_two_megabytes() -> None:
    rows = many(1000)
    text = to_html(
        Result(rows, {"a": {"mean_score": 0.1}}),
        details=lambda row: {"question": "Who?", "response": long_text(id(row), 600)},
    )
    assert 800_000 < len(text.encode()) < 2_000_000
    assert all(place >= 0 for place in row_data(text)["details"])
    assert "Long texts are cut here. “context-bench diff RUN EXAMPLE” shows any row whole" in text


def test_where_not_all_rows_find_room_failed_ones_and_changed_ones_open() -> None:
    asked = []

    def details(row: EvalRow) -> dict[str, str]:
        asked.append(row)
        return {"response": long_text(len(asked), 400)}

    rows = many(10_000)
    text = to_html(Result(rows, {"a": {"mean_score": 0.1}}), details=details)
    data = row_data(text)
    places = data["details"]
    assert len(data["rows"]) == 10_000
    assert all(places[at] >= 0 for at, row in enumerate(rows) if row.errors)
    assert len([place for place in places if place >= 0]) == len(set(places)) - 1 == len(asked) == 1000
    assert not [row for row in asked if not row.errors and row.input_tokens == row.output_tokens]
    assert "1,000 of 10,000 rows open here: failed ones first, then those that were changed on the way." in text
    assert len(text.encode()) < 3_000_000


def test_rows_open_to_what_stands_behind_them(result: Result) -> None:
    def details(row: EvalRow) -> dict[str, Any] | None:
        return {"question": "Who?\nWhy?"} if row.example_id == "q0000" else None

    text = without_charts(result, details)
    assert "Who?\nWhy?" in (opened(text, 0) or "")
    assert "Who?" not in (opened(text, len(result.summary)) or "")
    bare = without_charts(result)  # failures are shown even where no details are given
    failed = [at for at, row in enumerate(result.rows) if row.errors]
    assert [at for at in range(len(result.rows)) if opened(bare, at) is not None] == failed
    assert "NoBudget: kompact failed on this example" in "".join(opened(bare, at) or "" for at in failed)


def test_rows_know_whether_they_were_changed_on_the_way(result: Result) -> None:
    flags = row_data(without_charts(result))["changed"]
    for flag, row in zip(flags, result.rows, strict=True):
        expected = row.system in ("kompact", "none", "head_tail@kompact", "random_drop@kompact") and (
            row.system == "kompact" or not row.errors
        )
        assert flag == str(int(expected)), row


def test_verdicts_are_among_the_contents_where_only_the_checks_have_any() -> None:
    result = make_result()
    checks = [each for each in result.comparisons if each.system == "none"]
    text = to_html(replace(result, comparisons=checks))
    assert ('<h2 id="verdicts">' in text) == ('<a href="#verdicts">' in text) == True  # noqa: E712


def test_tokens_of_rows_of_which_nothing_was_sent_are_not_zero() -> None:
    row = EvalRow("a", "q", {"f1": 1.0}, 0, 17, latency=1.0)
    text = to_html(Result([row], {"a": {"mean_score": 1.0, "mean_input_tokens": 0.0, "compression_ratio": 0.0}}))
    titles = [column["title"] for column in row_data(text)["columns"]]
    assert row_data(text)["rows"][0][titles.index("sent")] is None
    assert "compression_ratio" not in text
    assert "mean_score" in text


def test_none_scores_and_missing_numbers_are_null(result: Result) -> None:
    row = EvalRow("a", None, {"f1": None, "g": float("inf")}, None, None, latency=None)  # type: ignore[arg-type, dict-item]
    data = row_data(to_html(Result([row], {"a": {"mean_score": 0.5}})))
    assert data["rows"] == [["a", None, None, None, None, None, None, None, None]]


def test_dataset_shape_and_trial_only_where_they_differ(results: Callable[..., Result]) -> None:
    titles = [column["title"] for column in row_data(without_charts(results()))["columns"]]
    assert titles[:4] == ["system", "example", "dataset", "f1"]
    shaped = [
        column["title"] for column in row_data(without_charts(results(shapes=("plain-user", "codex"))))["columns"]
    ]
    assert shaped[:4] == ["system", "example", "dataset", "shape"]


def test_paper_has_the_score_of_the_run_and_few_others(results: Callable[..., Result]) -> None:
    result = results()
    assert "Printed:" not in without_charts(replace(result, rows=result.rows[:8]))
    for row in result.rows:
        row.scores.update({f"a{number}": 0.25 for number in range(8)})
    text = without_charts(result)
    columns = [each for each in row_data(text)["columns"] if each.get("digits") == 3]
    known = len(columns)
    assert columns[0]["title"] == "f1"
    assert ["aside" in column for column in columns] == [at >= 6 for at in range(known)]
    many = f"the page of rows that was open (20 a page, {len(result.rows)} in all)"
    rows = many if len(result.rows) > 20 else "the rows"
    assert f"Printed: {rows}, with 6 of {known} scores; the JSON and CSV reports hold all of them." in text


def test_one_example_and_one_row_are_not_called_several(results: Callable[..., Result]) -> None:
    result = results()
    one = replace(result, rows=result.rows[:1], config={**result.config, "num_examples": 1})
    assert "1 example evaluated · 1 row</footer>" in to_html(one)
    assert to_markdown(one).rstrip().endswith("*1 example evaluated*")


def test_words_of_a_drawing_are_drawn_over_its_lines() -> None:
    page = to_html(make_result())
    for drawing in re.findall(r"<svg(?: [^>]*)?>.*?</svg>", page, re.DOTALL):
        if "<text" in drawing and 'class="marks"' not in drawing:
            assert not re.search(r"<text.*<line", drawing, re.DOTALL)


def test_hostile_text_creates_no_element(nasty: str, hostile: Callable[[str], Result]) -> None:
    """Charts with such names: `test_hostile_names_are_text_in_charts`, and each kind of chart in `test_charts`."""
    check(nasty, hostile, without_charts)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY)
@example(text="</script><svg onload=x()><a href='javascript:x()'>&lt;b&gt;\u202e")
def test_no_text_creates_an_element(text: str, hostile: Callable[[str], Result]) -> None:
    check(text, hostile, lambda result, details: to_html(result, details=details))


def check(text: str, hostile: Callable[[str], Result], drawn: Callable[[Result, Details], str]) -> None:
    told = dict.fromkeys(("question", "answer", "context", "response"), text * 3)
    page = drawn(hostile(text), lambda row: {**told, text: text})
    page.encode("utf-8")
    found = Elements(page)
    assert {tag for tag, _ in found.opened} <= TAGS
    assert [tag for tag, _ in found.opened].count("script") == 3
    assert not found.comments
    check_harmless(found, page)
    data = row_data(page)
    assert len(data["rows"]) == len(data["details"]) == 8
    assert all(len(row) == len(data["columns"]) for row in data["rows"])
    for at in range(8):
        fragment = opened(page, at)
        assert fragment
        inside = Elements(fragment)
        assert not {tag for tag, _ in inside.opened} & {
            "script",
            "img",
            "iframe",
            "object",
            "style",
            "link",
            "form",
            "base",
            "meta",
        }
        check_harmless(inside, fragment)


def check_harmless(found: Elements, text: str) -> None:
    """No attribute runs or loads anything, and no character is hidden."""
    for tag, attrs in found.opened:
        bad = {"src", "srcset", "style", "action", "formaction", "srcdoc", "background", "data", "xlink:href"}
        assert not [name for name in attrs if name in bad or name.startswith("on")], (tag, attrs)
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_notebooks_get_tables_without_style_or_script(result: Result, hostile: Callable[[str], Result]) -> None:
    text = repr_html(build_page(result))
    tags = {tag for tag, _ in Elements(text).opened}
    assert "table" in tags
    assert not tags & {"script", "style", "html", "svg"}
    assert "kompact loses 0.061" in text
    dangerous = Elements(repr_html(build_page(hostile("<img src=x onerror=alert(2)>"))))
    assert "img" not in {tag for tag, _ in dangerous.opened}


# Charts
# ------------------------------------------------------------------------


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
    drawn = ET.fromstring(svg(pareto(point("full", 0.75, 1000), point("full#2", 0.75, 1000))))
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


def test_a_line_ends_within_no_option_and_what_is_copied_is_the_text() -> None:
    text = "context-bench power --from a-b_c --margin=0.05 -n 3 <kept.db> a-word-that-is-too-long-to-be-kept-whole"
    html = str(html_page.whole_words(text))
    kept = re.findall(r'<span class="whole">(.*?)</span>', html)
    assert kept == ["context-bench", "--from", "a-b_c", "--margin", "-n"]
    assert unescape(re.sub("<[^>]*>", "", html)) == text


@pytest.mark.parametrize(
    "moment", ["2026-11-23", "2026-11-23 15:24", "2026-11-23T15:24:10.123Z", "2026-11-23T15:24:10+01:00"]
)
def test_no_line_ends_within_a_date_or_a_time(moment: str) -> None:
    breakable = html_page.environment().filters["breakable"]
    assert str(breakable(f"a_b {moment}.")) == f'a_<wbr>b <span class="whole">{moment}</span>.'


def test_shares_money_and_times_are_rounded_in_one_place() -> None:
    told = {0.0: "0 %", 0.0004: "0.0 %", 0.013: "1.3 %", -0.0991: "-9.9 %", 0.0996: "10 %", 0.876: "88 %"}
    told |= {0.996: "99.6 %", 1.0: "100 %", 1.24: "124 %", -0.00001: "0.0 %"}
    assert {value: percent(value) for value in told} == told
    money = {
        0.0: "$0.00",
        0.0000123: "$0.0000123",
        0.002814: "$0.00281",
        0.05671: "$0.0567",
        -0.5: "-$0.5000",
        12.4: "$12.40",
        1e4: "$10,000.00",
    }
    assert {value: dollars(value) for value in money} == money
    times = {0.0: "0 ms", 0.00001: "<0.1 ms", 0.0003: "0.3 ms", 0.42: "420 ms", 1.2: "1.200 s"}
    times |= {48.61: "48.6 s", 263: "4 min 23 s", 59.97: "1 min 0 s", 7500: "2 h 5 min"}
    assert {value: took(value) for value in times} == times
    assert Figure(0.876, "share").short == percent(0.876)
    assert Figure(0.05671, "usd").short == dollars(0.05671)
    assert Figure(263, "seconds").short == took(263)
