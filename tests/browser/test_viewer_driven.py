"""`context-bench view` in a real browser: runs, search, rows, what was sent and forwarded, two runs compared, a run as
it goes.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing, contextmanager

import pytest

from context_bench.llm.background import run_sync
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer

from . import material
from .conftest import expect, overflow

pytestmark = pytest.mark.program("chromium")


@contextmanager
def viewing(store, **options):
    viewer = Viewer(store, result_of=result_of, **options)
    run_sync(viewer.start())
    try:
        yield viewer
    finally:
        run_sync(viewer.stop())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        made = tmp_path_factory.mktemp("viewer")
        patch.chdir(made)
        yield made


@pytest.fixture(scope="module")
def viewer(folder, aside):
    """The viewer of a store with two comparable runs."""
    store = aside(material.demo_like, folder)
    aside(material.demo_like_again, folder)
    with viewing(store.name) as served:  # what is shown of it is in pictures
        yield served


@pytest.fixture
def visit(open_page):
    """(viewer, path) → the page there, entered with the token."""

    def visited(viewer, path="/", **how):
        token = viewer.url.partition("?")[2]
        address, hash_, fragment = path.partition("#")
        return open_page(f"{viewer.address}{address}{'&' if '?' in address else '?'}{token}{hash_}{fragment}", **how)

    return visited


def run_page(page, name):
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def row_page(page, system, example):
    """From the page of a run to one row, as a person would."""
    page.get_by_role("searchbox").fill(example)
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("combobox", name="System").select_option(system)
    expect(page.locator("table.rows tbody tr").first).to_contain_text(system)
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("link", name=example).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(example)


def press_and_arrive(page, key):
    """Press a key that leads to another page, and wait until that page's own script listens to keys."""
    with page.expect_navigation(wait_until="load"):
        page.keyboard.press(key)


def test_the_list_names_the_runs_and_their_verdicts(viewer, visit, take):
    page = visit(viewer)
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    expect(page.locator("table.runs .chipline .word").first).to_be_visible()
    expect(page.locator("table.runs .chipline .word").filter(has_text="loss").first).to_be_visible()
    assert overflow(page) == 0
    take(page, "viewer-list")
    assert "token" not in page.url


#: Titles of columns with how far their words begin (or end, where they are numbers) from those of their cells.
BESIDE_THEIR_COLUMN = """() => {
  const words = (cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect();
  };
  return [...document.querySelectorAll("table")].filter((table) => table.tHead).flatMap((table) =>
    [...table.tHead.rows[0].cells].map((head, at) => {
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[at]).filter((cell) => cell && words(cell).width);
      if (!cells.length || !words(head).width) return null;
      const numbers = getComputedStyle(cells[0]).textAlign === "right";
      const far = numbers ? words(head).right - Math.max(...cells.map((cell) => words(cell).right))
                          : words(head).left - Math.min(...cells.map((cell) => words(cell).left));
      return Math.abs(far) > 2 ? `${head.textContent.trim()}: ${far}` : null;
    }).filter(Boolean));
}"""


def test_long_names_widen_no_list_and_titles_stand_above_their_columns(folder, aside, visit):
    with viewing(aside(material.long_names, folder)) as viewer:
        page = visit(viewer)
        expect(page.locator("table.runs .chipline")).to_have_count(12)
        clipped = "document.querySelector('.scroll').scrollWidth - document.querySelector('.scroll').clientWidth"
        assert page.evaluate(clipped) == 0
        assert page.evaluate(BESIDE_THEIR_COLUMN) == []
        run_page(page, "nightly_comparison_of_everything_against_everything_3")
        expect(page.locator("table.matrix")).to_be_visible()
        assert page.evaluate(BESIDE_THEIR_COLUMN) == []


def test_runs_are_found_by_name(viewer, visit):
    page = visit(viewer)
    page.get_by_role("searchbox").fill("later")
    press_and_arrive(page, "Enter")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="houses-later")).to_be_visible()


def test_a_run_shows_the_same_parts_as_its_report(viewer, visit):
    page = visit(viewer)
    run_page(page, "houses")
    expect(page.get_by_role("heading", name="Verdicts")).to_be_visible()
    expect(page.locator("figure svg").first).to_be_attached()
    assert overflow(page) == 0


def test_rows_are_searched_filtered_and_sorted(viewer, visit):
    page = visit(viewer)
    run_page(page, "houses")
    page.get_by_role("link", name="Show one line per row").click()
    page.get_by_role("checkbox", name="failed only").click()
    expect(page.locator("table.rows tbody tr:not(.hit)")).to_have_count(6)
    expect(page.locator("table.rows")).to_contain_text("Refused")
    page.get_by_role("link", name="All rows").click()
    page.get_by_role("combobox", name="System").select_option("halves")
    expect(page.locator("form.tools .count").last).to_contain_text("of 24 rows")
    page.locator("table.rows thead").get_by_role("link", name="f1", exact=True).click()
    expect(page.locator("table.rows th[aria-sort]")).to_have_attribute("aria-sort", "descending")
    titles = page.locator("table.rows thead th").all_inner_texts()
    at = next(number for number, title in enumerate(titles) if title.startswith("f1"))
    shown = [
        float(text)
        for text in page.locator(f"table.rows tbody tr > :nth-child({at + 1})").all_inner_texts()
        if text != "—"
    ]
    assert shown == sorted(shown, reverse=True)
    assert set(shown) == {0.0, 1.0}


def test_rows_are_held_against_the_baseline_and_downloaded(viewer, visit):
    page = visit(viewer)
    run_page(page, "houses")
    with page.expect_navigation():
        page.get_by_role("combobox", name="Against the baseline").select_option("lost")
    shown = page.locator("table.rows tbody tr:not(.hit)")
    lost = shown.count()
    assert lost > 0
    for title in ("question", "expected", "full", "halves"):
        expect(page.locator("table.rows thead")).to_contain_text(title)
    with page.expect_download() as started:
        page.get_by_role("link", name="JSONL").click()
    assert started.value.suggested_filename == "rows.jsonl"
    told = [json.loads(line) for line in started.value.path().read_text().splitlines()]
    assert [each["example_id"] for each in told] == page.locator("table.rows tbody th").all_inner_texts()
    assert len(told) == lost


def test_a_row_shows_what_was_dropped_added_and_kept(viewer, visit, take):
    page = visit(viewer)
    run_page(page, "houses")
    row_page(page, "halves", "house-03")
    sent = page.locator(".told .exchange")
    expect(sent.locator("del").first).to_be_attached()
    assert any("of house 3 is a" in text for text in sent.locator("del").all_text_contents()), (
        "it stands in the second half"
    )
    expect(sent.locator(".message").last).to_contain_text("Lane 0 runs past house 3")
    expect(page.get_by_text("I do not know.").first).to_be_visible()
    assert overflow(page) == 0
    take(page, "row", prepare=lambda: page.locator(".told .exchange").first.scroll_into_view_if_needed())


def test_a_row_shows_the_role_that_was_changed(viewer, visit):
    page = visit(viewer)
    run_page(page, "houses")
    row_page(page, "user-only", "house-02")
    changed = page.locator(".told .message", has=page.locator(".badge", has_text="role changed"))
    expect(changed).to_have_count(4)
    expect(changed.first.locator(".role")).to_have_text("system → user")


def test_an_address_leads_straight_to_a_row_and_the_arrows_lead_on(viewer, visit):
    page = visit(viewer)
    run_page(page, "houses")
    row_page(page, "halves", "house-03")
    url = page.url
    again = visit(viewer, url.removeprefix(viewer.address))
    expect(again.get_by_role("heading", level=1)).to_contain_text("house-03")
    again.goto(url.partition("?")[0])
    press_and_arrive(again, "ArrowRight")
    expect(again.get_by_role("heading", level=1)).not_to_contain_text("house-03")
    press_and_arrive(again, "ArrowLeft")
    expect(again.get_by_role("heading", level=1)).to_contain_text("house-03")


def test_two_runs_are_compared(viewer, visit, take):
    page = visit(viewer)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs compared")
    expect(page.locator("main")).to_contain_text(re.compile("better|Not comparable"))
    assert overflow(page) == 0
    take(page, "compare")


def test_a_running_run_is_told_as_it_goes_until_it_ends(folder, visit):
    store, system = folder / "going.db", material.Gated()
    begun = material.going(store, system)
    try:
        assert system.begun.wait(60)  # so the store is there
        system.gate.release(2)
        with viewing(store) as viewer:
            page = visit(viewer)
            run_page(page, "going")
            progress = page.locator("[data-events]")
            expect(progress).to_contain_text("2 of")
            system.gate.release()
            expect(progress).to_contain_text("3 of")
            system.gate.release(3)
            expect(page.locator(".lead .status")).to_have_text("done")
            expect(page.locator(".lead")).to_contain_text("6 rows")
            expect(page.locator("#summary section").first).to_be_visible()
            page.close()
    finally:
        system.gate.release(6)
        begun.result()


def test_hostile_texts_are_texts_in_the_viewer(folder, aside, visit):
    with viewing(aside(material.hostile, folder)) as viewer:
        page = visit(viewer, width=390, height=844)
        for step in ("the list", "the run", "a row", "two rows"):
            if step == "the run":
                page.locator("table.runs tbody th a").click()
                expect(page.get_by_role("heading", name="Verdicts")).to_be_visible()
            elif step == "a row":
                page.locator("table.rows tbody tr").first.get_by_role("link").first.click()
                expect(page.locator(".told")).to_contain_text(material.MARKUP)
            elif step == "two rows":
                page.get_by_role("link", name="side by side").first.click()
                expect(page.locator(".told")).to_have_count(2)
            page.wait_for_load_state("load")  # a click returns while the next page still comes
            shown = page.locator("body").inner_text()
            assert "<img src=x onerror=alert(" in shown, step
            assert material.acting(shown) == "", step
            assert page.locator("img").count() == 0, step
            assert page.evaluate("document.scripts.length") == 1, step
            assert overflow(page) == 0, step


def test_on_paper_the_lists_are_tables_and_no_control_is_left(viewer, visit):
    page = visit(viewer, width=703, height=1000)  # what A4 leaves between margins of 12 mm
    page.emulate_media(media="print")
    shape = "item => getComputedStyle(item).display"
    assert page.locator("table.runs tbody tr").first.evaluate(shape) == "table-row"
    page.emulate_media(media="screen")
    page.locator("table.runs tbody th a").first.click()
    page.locator("table.rows tbody a.mark").first.click()
    link = page.get_by_role("link", name="side by side").first
    expect(link).to_be_visible()
    page.emulate_media(media="print")
    expect(link).to_be_hidden()
    assert page.locator("table.answers td.answer").first.evaluate(shape) == "table-cell"
    assert overflow(page) == 0


NOTE = "Cut away: </textarea><img src=x onerror=alert(1)>"


def write_a_bit(page):
    """Give a run a title and a tag and a row a note, delete the run, and restore it."""
    page.get_by_role("link", name="edit houses", exact=True).click()
    page.get_by_label("Title").fill("Houses & gardens")
    page.get_by_label("Tags").fill("to show, slow")
    page.get_by_role("button", name="Keep title and tags").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Houses & gardens")
    page.locator("table.rows tbody a.mark").first.click()
    page.get_by_text("Write tags and a note").click()
    page.get_by_role("textbox", name="Note").fill(NOTE)
    page.get_by_role("button", name="Keep tags and note").click()
    expect(page.locator(".told-so", has_text=NOTE)).to_be_visible()
    page.locator("nav.top a").nth(1).click()
    expect(page.locator(".remark")).to_contain_text("<img")
    page.get_by_role("link", name="Edit title and tags, delete").click()
    page.get_by_role("link", name="Delete this run").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Deleted runs")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Houses & gardens")


@pytest.fixture
def written(viewer, folder, tmp_path):
    """A copy of the store of two runs, to be written in."""
    copied = tmp_path / "store.db"
    with closing(sqlite3.connect(folder / "store.db")) as source, closing(sqlite3.connect(copied)) as target:
        source.backup(target)
    return copied


@pytest.mark.program("npm")
def test_runs_and_rows_are_written_on_in_a_browser(written, visit, no_barriers, take):
    with viewing(written, edit=True) as viewer:
        page = visit(viewer)
        write_a_bit(page)
        for part, name in (("", "viewer-edit-run"), ("/edit", "viewer-edit-form"), ("/delete", "viewer-edit-delete")):
            page.goto(f"{page.url.partition('#')[0].removesuffix('/edit')}{part}")
            no_barriers(page)
            take(page, name)
        page.goto(viewer.address)
        no_barriers(page)
        take(page, "viewer-edit-list")
        page.get_by_role("combobox", name="Tag").select_option("slow")
        expect(page.locator("table.runs tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Houses & gardens", exact=True).click()
        page.get_by_role("checkbox", name="has a note").click()
        expect(page.locator("table.rows tbody tr")).to_have_count(1)
        page.locator("table.rows tbody a.mark").first.click()
        no_barriers(page)
        take(page, "viewer-edit-row")
        page.close()


def test_it_is_written_without_script_too(written, browser):
    with viewing(written, edit=True) as viewer:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(viewer.url)
        write_a_bit(page)
        context.close()


@pytest.mark.program("npm")
def test_no_barriers_in_any_page_of_the_viewer(viewer, visit, no_barriers):
    page = visit(viewer)
    expect(page.locator("table.runs .chipline .word").filter(has_text="loss").first).to_be_visible()
    no_barriers(page)
    run_page(page, "houses")
    expect(page.get_by_role("heading", name="Verdicts")).to_be_visible()
    no_barriers(page)
    row_page(page, "halves", "house-03")
    no_barriers(page)
    page.goto(viewer.address)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text(re.compile("better|Not comparable"))
    no_barriers(page)
