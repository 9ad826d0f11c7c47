"""The pictures of the documentation, from a real demo run: `pictures.py [STORE]` writes docs/pictures/*.png
(`make pictures`).

Report, list of runs and one row are of the store's run `demo`, which is made first if it is not there (about four
minutes). Two runs compared are taken from the last run of the browser tests (build/pictures), which has two that can be
compared. The tour's report is of the run that docs/tour.md makes, by its own blocks.

`pictures.py pages` (part of `make pictures`) takes every kind of page whole, in light and dark, three widths and as
printed, into build/pictures/pages, to be looked at: reports of all kinds, runs, a run's rows, one row of each arm, from
the stored runs that tests/golden keeps.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path

from blocks import blocks
from playwright.sync_api import Browser, Page, expect, sync_playwright

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.session.offers import DEFAULT_STORE
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer

ROOT = Path(__file__).parents[1]
OUT, TESTED = ROOT / "docs" / "pictures", ROOT / "build" / "pictures"
WINDOWS = {
    f"{scheme}-{width}": (scheme, width, height)
    for scheme in ("light", "dark")
    for width, height in ((1280, 900), (390, 844))
}
KEPT, PAGES = ROOT / "tests" / "golden", TESTED / "pages"
WIDTHS = (1280, 1920, 390)
MOST_BYTES, MOST_TOGETHER = 250_000, 2_000_000


def made(store: Path) -> None:
    """See that the store has a whole run `demo`: one that was cut off goes on."""
    if main(["demo", "--store", str(store)]) != 0:
        raise SystemExit("pictures: the demo failed")


@contextmanager
def viewing(store: str = DEFAULT_STORE) -> Iterator[Viewer]:
    """The viewer of a store; by default of the one at the usual place."""
    viewer = Viewer(store, result_of=result_of)
    run_sync(viewer.start())
    try:
        yield viewer
    finally:
        run_sync(viewer.stop())


def report(page: Page, file: Path) -> None:
    """The report, at its top."""
    page.goto(file.as_uri())
    expect(page.locator("#rows tbody tr").first).to_be_attached()


def runs(page: Page, viewer: Viewer) -> None:
    """The list of runs, with their verdicts."""
    page.goto(viewer.url)
    expect(page.locator("table.runs .verdict a.quiet")).to_have_count(0)


def row(page: Page, viewer: Viewer, address: str) -> None:
    """One row: its question and answers, then what was sent and forwarded."""
    page.goto(viewer.url)
    page.goto(viewer.address + address)
    page.locator(".told").evaluate("element => element.scrollIntoView({block: 'start'})")
    page.evaluate("scrollBy(0, -16)")


def address_of_row(browser: Browser, viewer: Viewer) -> str:
    """The first row of bm25, where sentences in the middle were dropped."""
    page = browser.new_page()
    page.goto(viewer.url)
    run = page.get_by_role("link", name="demo", exact=True).get_attribute("href")
    page.goto(f"{viewer.address}{run}?layout=rows&system=bm25")
    expect(page.locator("table.rows tbody tr").first).to_contain_text("bm25")
    found = page.locator("table.rows tbody th a").first.get_attribute("href") or ""
    page.close()
    return found.partition("?")[0]


def take(browser: Browser, viewer: Viewer, file: Path) -> None:
    """Every picture of the demo's run, in every window."""
    place = address_of_row(browser, viewer)
    shown = {
        "report": lambda page: report(page, file),
        "viewer-list": lambda page: runs(page, viewer),
        "row": lambda page: row(page, viewer, place),
    }
    for window, (scheme, width, height) in WINDOWS.items():
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})  # type: ignore[arg-type]
        for name, open_it in shown.items():
            page = context.new_page()
            page.set_default_timeout(120_000)
            open_it(page)
            page.screenshot(path=OUT / f"{name}-{window}.png", animations="disabled")
            page.close()
        context.close()


def tour(browser: Browser) -> None:
    """The report of the run that the tour's section on questions with known answers makes."""
    Path("tour").mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks(ROOT / "docs" / "tour.md"):
        if block.heading.startswith("4. ") and block.language in ("python", "sh"):
            words = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euc"]
            subprocess.run([*words, block.text], cwd="tour", env=environment, check=True, stdout=subprocess.DEVNULL)
    store = str(Path("tour") / DEFAULT_STORE)
    assert main(["show", "first", "--store", store, "--output", "html", "--out", "tour.html"]) == 0
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    report(page, Path("tour.html").resolve())
    page.screenshot(path=OUT / "tour.png", animations="disabled")
    page.close()


def headline() -> None:
    """What the tour's replay shows, as a picture: fewer tokens, a higher bill."""
    Path("headline").mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks(ROOT / "docs" / "tour.md"):
        if block.heading.startswith("2. ") and block.language == "sh":
            subprocess.run(
                ["bash", "-euc", block.text], cwd="headline", env=environment, check=True, stdout=subprocess.DEVNULL
            )
    store = str(Path("headline") / DEFAULT_STORE)
    out = str(OUT / "headline.svg")
    assert main(["plot", "replayed", "--store", store, "--kind", "headline", "--out", out]) == 0


def copy_compared() -> None:
    """Two runs compared, as the tests took them."""
    for window in WINDOWS:
        taken = TESTED / f"compare-{window}.png"
        if not taken.exists():
            raise SystemExit(f"pictures: {taken} is not there; `make test` makes it")
        shutil.copy(taken, OUT / taken.name)


def pages(browser: Browser) -> None:
    """Every kind of page, whole, in all schemes and widths and as printed."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for file in sorted([*KEPT.glob("runs/*.html.xz"), KEPT / "traces" / "report.html.xz"]):
        name = file.name.partition(".")[0] if file.parent.name == "runs" else "traces"
        unpacked = Path(f"{name}.html").resolve()
        unpacked.write_bytes(lzma.decompress(file.read_bytes()))
        whole(browser, f"{name}-report", "", unpacked.as_uri())
    assert main(["explain", "bundled:sessions/order-sync-zh", "--html", "explained.html", "--quiet"]) == 0
    whole(browser, "explain", "", Path("explained.html").resolve().as_uri())
    for file in sorted(KEPT.glob("stores/*.xz")):
        name = file.name.partition(".")[0]
        Path(f"{name}.db").write_bytes(lzma.decompress(file.read_bytes()))
        assert main(["runs", "--store", f"{name}.db"]) == 0  # kept by an older version: brought up to date
        with viewing(f"{name}.db") as viewer:
            for kind, address in addresses(browser, viewer).items():
                whole(browser, f"{name}-{kind}", viewer.url, viewer.address + address)


def addresses(browser: Browser, viewer: Viewer) -> dict[str, str]:
    """Kind of page → its address: the runs, the newest run, its rows one by one, and a row of each arm."""
    page = browser.new_page()
    page.goto(viewer.url)
    run = page.locator("table.runs tbody th a").first.get_attribute("href") or ""
    found = {"runs": "/", "run": run}
    if "/runs/" in run:  # a watch has turns
        page.goto(f"{viewer.address}{run}?layout=rows")
        found["rows"] = f"{run}?layout=rows"
    for line in page.locator("table.rows tbody tr").all():
        link = line.locator("th a")
        if link.count():
            arm = (line.locator("td").first.text_content() or "").strip()
            found.setdefault(
                f"row-of-{re.sub('[^a-z0-9]+', '-', arm.lower()).strip('-')}", link.first.get_attribute("href") or ""
            )
    page.close()
    return found


def whole(browser: Browser, name: str, entry: str, address: str) -> None:
    """One page from top to bottom, in each scheme and width, and printed; `entry` sets the viewer's cookie."""
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
            context.set_default_timeout(120_000)  # a machine may have more to do
            page = context.new_page()
            for url in filter(None, (entry, address)):
                page.goto(url)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=PAGES / f"{name}-{scheme}-{width}.png", full_page=True, animations="disabled")
            if (scheme, width) == ("light", 1280):
                page.emulate_media(media="print")
                page.screenshot(path=PAGES / f"{name}-print.png", full_page=True, animations="disabled")
            context.close()


def check() -> None:
    """Small enough to be committed."""
    sizes = {path.name: path.stat().st_size for path in sorted(OUT.glob("*.png"))}
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    if large or sum(sizes.values()) > MOST_TOGETHER:
        raise SystemExit(f"pictures: too large: {large or sum(sizes.values())}")
    sys.stdout.write(f"pictures: {len(sizes)} in {OUT.relative_to(ROOT)}, {sum(sizes.values()):,} bytes together\n")


def go(store: Path) -> None:
    """All pictures."""
    made(store)
    OUT.mkdir(exist_ok=True)
    expect.set_options(timeout=120_000)
    copy_compared()
    store = store.resolve()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        copied(store)
        assert main(["show", "demo", "--output", "html", "--out", "report.html"]) == 0
        with viewing() as viewer, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--hide-scrollbars"]
            )
            take(browser, viewer, Path("report.html").resolve())
            tour(browser)
            headline()
            pages(browser)
            browser.close()
    check()


def go_pages() -> None:
    """The pages to be looked at, and nothing else."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pages(browser)
        browser.close()
    sys.stdout.write(f"pictures: {len(list(PAGES.glob('*.png')))} in {PAGES.relative_to(ROOT)}\n")


def copied(store: Path) -> None:
    """The store as a reader has it: at the usual place below where we stand, so that pictures show no path of this
    machine.
    """
    copy = Path(DEFAULT_STORE)
    copy.parent.mkdir()
    with closing(sqlite3.connect(store)) as original, closing(sqlite3.connect(copy)) as other:
        original.backup(other)


if __name__ == "__main__":
    if any(word.startswith("-") for word in sys.argv[1:]):
        sys.exit(__doc__)
    if sys.argv[1:] == ["pages"]:
        go_pages()
    else:
        go(Path(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_STORE))
