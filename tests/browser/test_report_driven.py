"""The HTML report in a real browser: read, sorted, filtered, opened, printed, on a phone, in the dark, by keyboard, at
50,000 rows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.core.measures import dollars, took
from context_bench.reports import to_html
from context_bench.traces.reports.trace_page import to_html as traces_html

from ..unit.reports.conftest import six_systems
from ..unit.traces.trace_runs import scored
from . import material
from .conftest import expect, overflow

pytestmark = pytest.mark.program("chromium")
ROWS = "#rows tbody tr[id^=row-]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        made = tmp_path_factory.mktemp("reports")
        patch.chdir(made)
        yield made


@pytest.fixture(scope="module")
def houses(folder, aside):
    """The report of the run that is like the demo's."""
    store, page = aside(material.demo_like, folder), folder / "houses.html"
    assert aside(main, ["show", "houses", "--store", str(store), "--output", "html", "--out", str(page)]) == 0
    return page


@pytest.fixture(scope="module")
def hostile(folder, aside):
    """The store of the hostile run."""
    return aside(material.hostile, folder)


@pytest.fixture(scope="module")
def large(folder):
    """50,000 rows."""
    page = folder / "large.html"
    page.write_text(to_html(material.many_rows(50_000)), encoding="utf-8")
    return page


@pytest.fixture
def read(open_page):
    """A report, opened; its rows are drawn."""

    def opened(file, **how):
        page = open_page(file, **how)
        expect(page.locator(ROWS).first).to_be_visible()
        return page

    return opened


def column(page, title):
    """The texts of the rows' column with this title, as shown now."""
    titles = [text.rstrip(" ↑↓") for text in page.locator("#rows thead tr > *").all_inner_texts()]
    return page.locator(f"{ROWS} > td:nth-child({titles.index(title) + 1})").all_inner_texts()


def seconds(text):
    """A time as a page shows it."""
    amount, unit = text.removeprefix("<").split()
    return float(amount) / (1000 if unit == "ms" else 1)


def test_times_and_money_of_rows_are_told_as_everywhere(houses, read):
    page = read(houses)
    for unit, said, values in (
        ("seconds", took, (0.0, 1e-5, 0.00032, 0.0099, 0.42, 0.9994, 1.2043, 9.99, 48.64, 59.94, 61.0, 263.2, 7500.0)),
        ("usd", dollars, (0.0, 2.81e-7, 0.0000710, 0.00281, 0.0567, 0.999, 1.0, 12.4, 1234.5, -0.5)),
    ):
        told = page.evaluate("([unit, values]) => values.map((value) => cellText(value, { unit }))", [unit, values])
        assert told == [said(value) for value in values]


def test_verdicts_come_first_and_pictures_are_taken(houses, read, take):
    page = read(houses)
    expect(page.get_by_role("heading", level=2).first).to_have_text("Verdicts")
    assert "halves" in page.locator(".verdicts").first.inner_text()
    assert overflow(page) == 0
    take(page, "report")


def test_rows_are_sorted_by_number_and_by_text_unknown_last(houses, read):
    page = read(houses)
    sort = page.get_by_role("button", name="f1", exact=False).first
    sort.click()
    shown = [float(text) for text in column(page, "f1")]
    assert shown == sorted(shown)
    assert shown[0] == 0
    sort.click()
    assert float(column(page, "f1")[0]) == 1
    page.get_by_role("button", name="example").first.click()
    shown = column(page, "example")
    assert shown == sorted(shown)


def test_rows_are_filtered_by_words_system_and_failure(houses, read):
    page = read(houses)
    page.get_by_role("searchbox").fill("house-07")
    expect(page.get_by_role("status")).to_contain_text("6 of 144")
    assert set(column(page, "example")) == {"house-07"}
    page.get_by_role("searchbox").fill("")
    page.get_by_role("combobox", name="System").select_option("halves")
    assert set(column(page, "system")) == {"halves"}
    page.get_by_role("checkbox", name="failed only").check()
    assert column(page, "example") == ["house-07"]
    assert "Refused" in column(page, "failure")[0]


def test_on_a_phone_nothing_is_wider_than_the_window(houses, read):
    page = read(houses, width=390, height=844)
    assert overflow(page) == 0
    page.locator(f"{ROWS} button").first.click()
    assert overflow(page) == 0


def wider(page, what):
    """How many pixels of a part stand beyond its right end."""
    return page.locator(what).first.evaluate("part => part.scrollWidth - part.clientWidth")


def test_on_a_phone_the_overview_is_whole_and_commands_break_between_their_words(houses, read):
    page = read(houses, width=390, height=844)
    assert wider(page, ".scroll:has(.stacked)") == 0
    cell = page.locator(".stacked tbody td").last
    assert cell.evaluate("cell => cell.getBoundingClientRect().right") <= 390
    command = page.locator(".next code").first
    assert "--" in command.inner_text()
    for width in range(300, 391, 10):
        page.set_viewport_size({"width": width, "height": 844})
        lines = command.locator(".whole").evaluate_all("words => words.map(word => word.getClientRects().length)")
        assert set(lines) == {1}
    copied = "code => { getSelection().selectAllChildren(code); return String(getSelection()); }"
    assert command.evaluate(copied) == command.text_content()


def test_rows_of_many_scores_fit_and_all_are_one_click_away(folder, aside, read):
    page = read(aside(material.memory, folder / "many-scores.html"))
    assert wider(page, ".scroll:has(#rows)") == 0
    titles = page.locator("#rows thead th:visible")
    few = titles.count()
    page.get_by_role("checkbox", name="all scores").check()
    assert titles.count() > few
    page.get_by_role("checkbox", name="all scores").uncheck()
    assert titles.count() == few


def test_on_a_phone_a_row_is_named_figures_and_some_of_its_scores(folder, aside, read):
    page = read(aside(material.memory, folder / "narrow-scores.html"), width=390, height=844)
    assert wider(page, ".scroll:has(#rows)") == 0
    cells = page.locator(f"{ROWS} >> nth=0 >> td:visible")
    few = cells.count()
    shown = cells.evaluate_all(
        "cells => cells.map(cell => [cell.dataset.of || '', cell.getBoundingClientRect().right])"
    )
    assert shown[0][0] == ""  # the button
    assert all(name for name, _ in shown[1:])
    assert max(right for _, right in shown) <= 390
    page.get_by_role("checkbox", name="all scores").check()
    assert cells.count() > few


def test_printed_the_tools_are_gone_and_nothing_is_cut_off(houses, read):
    page = read(houses, dark=True)
    page.emulate_media(media="print")
    expect(page.get_by_role("searchbox")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4")[:4] == b"%PDF"


def test_scores_that_are_not_printed_make_no_paper_wider(folder, aside, read):
    """What a window has no room for is printed; what no paper has room for is not, before a page is fitted as well."""
    page = read(aside(material.memory, folder / "printed.html"), width=1280)
    unprinted = "[...document.querySelectorAll('#rows th.aside')]"
    page.evaluate(f"{unprinted}.forEach(head => head.classList.add('away'))")
    page.emulate_media(media="print")
    shown = page.evaluate(f"{unprinted}.map(head => getComputedStyle(head).display)")
    assert shown
    assert set(shown) == {"none"}


def test_a_sheet_of_paper_is_laid_out_as_a_screen_and_not_as_a_phone(houses, read):
    page = read(houses, width=703, height=1000)  # what A4 leaves between margins of 12 mm
    page.emulate_media(media="print")
    assert overflow(page) == 0
    columns = "item => getComputedStyle(item).gridTemplateColumns.split(' ').length"
    assert page.locator(".verdicts li").first.evaluate(columns) == 3
    expect(page.locator("figure .wide").first).to_be_visible()
    expect(page.locator("figure .narrow").first).to_be_hidden()
    assert page.locator("#manifest ~ details .raw").evaluate("text => getComputedStyle(text).columnCount") == "2"


def test_in_the_dark_the_paper_is_dark_and_the_ink_is_light(houses, read):
    def lightness(page, what):
        """The sum of red, green and blue."""
        color = page.evaluate("(what) => getComputedStyle(document.body)[what]", what)
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    page = read(houses, dark=True)
    assert lightness(page, "backgroundColor") < 150 < 600 < lightness(page, "color")
    page = read(houses)
    assert lightness(page, "color") < 150 < 600 < lightness(page, "backgroundColor")


def test_the_page_of_a_bill_is_dark_in_the_dark(tmp_path, aside, open_page):
    file = tmp_path / "explained.html"
    assert aside(main, ["explain", "bundled:sessions/order-sync-zh", "--html", str(file), "--quiet"]) == 0
    ink = "getComputedStyle(document.body).color"
    assert open_page(file, dark=True).evaluate(ink) == "rgb(255, 255, 255)"
    assert open_page(file).evaluate(ink) == "rgb(0, 0, 0)"


def before_appendix(page):
    """Pixels down to the appendix, at 1280 across."""
    page.set_viewport_size({"width": 1280, "height": 900})
    return page.locator("#appendix").bounding_box()["y"]


def test_what_stands_before_the_appendix_is_short(houses, read):
    page = read(houses)
    assert before_appendix(page) <= 4_000
    assert not page.locator("#appendix").get_attribute("open")
    page.get_by_role("link", name="All metrics").click()
    expect(page.get_by_role("heading", name="All metrics")).to_be_in_viewport()


def test_six_systems_and_twelve_controls_in_their_sizes_are_short_too(tmp_path, read):
    file = tmp_path / "six.html"
    file.write_text(to_html(six_systems()), encoding="utf-8")
    page = read(file)
    assert before_appendix(page) <= 4_000
    assert overflow(page) == 0


def test_systems_are_hidden_and_shown_in_every_chart_by_keyboard(houses, read):
    page = read(houses)
    page.locator("#appendix > summary").click()
    marks = page.locator(".wide [data-of=halves]")
    assert marks.count() > 4
    button = page.get_by_role("group", name="Systems shown in the charts").get_by_role(
        "button", name="halves", exact=True
    )
    expect(button).to_have_attribute("aria-pressed", "true")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert page.locator("figure [data-of=halves]:not(.off)").count() == 0
    expect(marks.first).to_be_hidden()
    assert page.locator("figure [data-of=user-only].off").count() == 0
    drawn = page.locator("figure svg", has_text="halves").filter(has=page.locator("[data-of=halves]"))
    assert drawn.filter(has=page.locator("g.mark-symbol")).count()  # a chart of Vega-Lite is among them
    page.keyboard.press("Space")
    assert page.locator("figure [data-of].off").count() == 0


@pytest.mark.program("npm")
def test_no_barriers_in_the_report(houses, read, no_barriers):
    page = read(houses)
    page.locator(f"{ROWS} button").first.click()
    no_barriers(page)


@pytest.mark.program("npm")
@pytest.mark.parametrize(
    "kind", [material.memory, material.compression, material.replay], ids=lambda kind: kind.__name__
)
def test_no_barriers_in_reports_of_other_kinds(kind, folder, aside, read, no_barriers):
    page = read(aside(kind, folder / f"{kind.__name__}.html"))
    assert overflow(page) == 0
    assert before_appendix(page) <= (6_000 if kind is material.memory else 4_000)
    no_barriers(page)


def test_50000_rows_open_sort_filter_and_page(large, read):
    page = read(large)
    expect(page.get_by_role("status")).to_contain_text("50,000")
    assert page.locator(ROWS).count() <= 100  # the rest is drawn when it is asked for
    page.get_by_role("button", name="latency").click()
    shown = [seconds(text) for text in column(page, "latency")]
    assert shown == sorted(shown)
    page.get_by_role("searchbox").fill("q04999")
    expect(page.get_by_role("status")).to_contain_text("2 of 50,000")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status")).to_contain_text("page 2 of")


def test_1000_rows_take_less_than_2_mb_with_their_texts(tmp_path: Path):
    texts = {
        "question": "Why? " * 40,
        "answer": "Because. " * 20,
        "context": "It is said that so it is. " * 800,
        "response": "So. " * 500,
    }
    assert len(to_html(material.many_rows(1000), details=lambda row: texts).encode()) <= 2_000_000


def test_hostile_texts_are_texts_in_the_report(hostile, folder, aside, read):
    file = folder / "hostile.html"
    assert aside(main, ["show", "last", "--store", str(hostile), "--output", "html", "--out", str(file)]) == 0
    page = read(file, width=390, height=844)
    scripts = page.evaluate("document.scripts.length")
    for at in range(page.locator(ROWS).count()):
        page.locator(f"{ROWS} button").nth(at).click()
    shown = page.locator("body").inner_text()
    assert material.MARKUP in shown
    assert r"\x1b[31mred" in shown
    assert r"\u202egnp.exe" in shown
    assert material.acting(shown) == ""
    assert page.locator("img").count() == 0
    assert page.evaluate("document.scripts.length") == scripts
    assert overflow(page) == 0


TOLD = (["runs"], ["show", "last"], ["show", "last", "--output", "markdown"], ["diff", "last", "megabyte"])


@pytest.mark.parametrize("command", TOLD, ids=" ".join)
def test_hostile_texts_are_texts_in_the_terminal(command, hostile, aside, capsys):
    assert aside(main, [*command, "--store", str(hostile)]) == 0
    shown = capsys.readouterr().out
    assert material.acting(shown) == ""
    assert r"\u202e" in shown.replace("\\\\", "\\")


def test_traces_open_to_their_pictures_and_hostile_names_stay_text(tmp_path, read):
    name = material.NASTY
    file = tmp_path / "traces.html"
    file.write_text(traces_html([scored(name, name, agent=name, path="src/calc.py")]), encoding="utf-8")
    page = read(file)
    rows = page.locator("#rows")
    assert rows.locator(".detail").count() == 1
    assert rows.locator(".detail svg").count() >= 1
    for drawn in ("Gold that was never read", "src/calc.py:16–20"):
        expect(rows).to_contain_text(drawn)
    assert page.locator("img").count() == 0
    assert material.acting(page.locator("body").inner_text()) == ""


@pytest.mark.program("npm")
def test_no_barriers_in_the_page_of_traces(tmp_path, read, no_barriers):
    file = tmp_path / "traces.html"
    rows = [scored(f"agent-{n // 3}", f"acme__widget-{n}") for n in range(27)]
    file.write_text(traces_html(rows), encoding="utf-8")
    page = read(file)
    assert overflow(page) == 0
    assert before_appendix(page) <= 4_000
    no_barriers(page)


def test_by_keyboard_alone_a_row_is_found_and_opened(houses, read):
    page = read(houses)
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    page.get_by_role("searchbox").focus()
    page.keyboard.type("house-08")
    expect(page.get_by_role("status")).to_contain_text("6 of 144")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(focused).startswith("Details of halves, house-08"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#rows .detail")).to_have_count(1)
    expect(page.locator(f"{ROWS} button[aria-expanded=true]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#rows .detail")).to_have_count(0)


def test_a_row_opens_to_what_was_dropped_and_what_was_kept(houses, read):
    page = read(houses)
    page.get_by_role("searchbox").fill("house-03")
    page.get_by_role("combobox", name="System").select_option("halves")
    page.locator(f"{ROWS} button").first.click()
    opened = page.locator("#rows .detail")
    expect(opened.locator("del").first).to_be_attached()
    assert any("in the year 1756" in text for text in opened.locator("del").all_text_contents()), (
        "the second half begins there"
    )
    expect(opened.locator(".exchange")).to_contain_text("unchanged")
    expect(opened).to_contain_text("I do not know.")
    page.get_by_role("combobox", name="System").select_option("user-only")
    page.locator(f"{ROWS} button").first.click()
    expect(opened.locator(".message", has_text="role changed")).to_have_count(4)


def test_an_address_opens_a_row(houses, read):
    page = read(f"{houses.as_uri()}#row-100")
    expect(page.locator("#row-100 button")).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#opened-100 .told")).to_be_visible()


#: (colour of a focused or hovered thing, colours that it may stand on): contrast as WCAG 2 reckons it.
CONTRAST = """([front, backs]) => {
  const style = getComputedStyle(document.documentElement);
  const probe = document.body.appendChild(document.createElement("i"));
  const light = (name) => {
    probe.style.color = style.getPropertyValue(name);
    const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  return Math.min(...backs.map((back) => {
    const [least, most] = [light(front), light(back)].sort((a, b) => a - b);
    return (most + 0.05) / (least + 0.05);
  }));
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_focus_and_hover_can_be_seen(houses, read, dark):
    page = read(houses, dark=dark)
    grounds = ["--paper", "--raised", "--good-tint", "--bad-tint", "--open-tint"]
    assert page.evaluate(CONTRAST, ["--link", grounds]) >= 3  # the ring of what has the focus
    assert page.evaluate(CONTRAST, ["--edge", grounds[:2]]) >= 3  # the border of what can be pressed
    assert page.evaluate(CONTRAST, ["--soft", grounds]) >= 4.5
    button = page.locator(f"{ROWS} button").first
    button.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    ring = (
        "item => { const { outlineStyle, outlineWidth } = getComputedStyle(item); return outlineStyle + outlineWidth; }"
    )
    assert button.evaluate(ring) == "solid2px"
    border = "item => getComputedStyle(item).borderTopColor"
    before = button.evaluate(border)
    button.hover()
    assert button.evaluate(border) != before
    shadow = "item => getComputedStyle(item).boxShadow"
    assert page.locator(f"{ROWS} > td").first.evaluate(shadow) != "none"
