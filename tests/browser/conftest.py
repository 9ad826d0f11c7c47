"""A real browser for these tests: one per worker, pages that tolerate no complaint, an accessibility checker, and
pictures.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, LocatorAssertions, Page, Request

HERE = Path(__file__).parent
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = HERE.parents[1] / "build" / "pictures"
WIDE, NARROW = 1280, 390
PATIENCE = 60_000  # ms; only a failure takes so long, on however busy a machine
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--force-color-profile=srgb", "--hide-scrollbars"),
]
#: A violation of the policy is said on the console too, but in words that change with the browser.
TELL_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} by ${event.blockedURI || event.sample}`))"""
SERIOUS = """async (rules) => {
  const seen = {exclude: [["#rows tbody tr:nth-child(n+6)"]]}; // rows are alike, and there are many
  const options = {resultTypes: ["violations"], preload: false, ...(rules ? {runOnly: {type: "rule", values: rules}} : {})};
  const found = (await axe.run(seen, options)).violations.filter(({impact}) => impact === "serious" || impact === "critical");
  return found.map(({id, impact, nodes}) => `${impact}: ${id}: ` + nodes.slice(0, 3).map(({html, failureSummary}) =>
    `${html.slice(0, 200)} (${failureSummary.slice(0, 400)})`).join(" | ") + (nodes.length > 3 ? ` and ${nodes.length - 3} more` : ""));
}"""  # noqa: E501


def expect(what: Any) -> LocatorAssertions:
    """Playwright's `expect`. It is loaded where a test asks, for it takes a second of every process that only collects
    tests.
    """
    from playwright.sync_api import expect

    return expect(what)


def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window, once its styles have come."""
    page.wait_for_load_state("load")
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider


@dataclass
class Watched:
    """Pages of one test, and what the browser complained about on them."""

    browser: Browser
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def __call__(self, where: Path | str, *, dark: bool = False, width: int = WIDE, height: int = 900) -> Page:
        """A page of its own at a file or an URL, loaded; every request to anywhere else is a complaint."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.add_init_script(TELL_VIOLATIONS)
        self.contexts.append(context)
        url = where if isinstance(where, str) else where.as_uri()
        page = context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error in a script: {error}"))
        page.on("dialog", self._alerted)
        page.on("request", lambda request: self._asked(request, url))
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        return page

    def close(self) -> list[str]:
        """Close the pages; all complaints since they were opened."""
        for context in self.contexts:
            for page in context.pages:
                page.evaluate("0")  # what the page said before this has arrived
            context.close()
        return self.complaints

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _alerted(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request, url: str) -> None:
        asked, ours = urlsplit(request.url), urlsplit(url)
        inside = (
            request.url.partition("#")[0] == url.partition("#")[0] if ours.scheme == "file" else asked[:2] == ours[:2]
        )
        if not inside and asked.scheme not in ("data", "blob"):
            self.complaints.append(f"request to {request.url[:200]}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed at the end of its file: Playwright keeps an event loop in the thread, which tests elsewhere need for their
    own.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def aside() -> Iterator[Callable[..., Any]]:
    """(function, arguments) → its value, from a thread of its own: commands start an event loop, and the browser's runs
    in ours.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        yield lambda function, *arguments: thread.submit(function, *arguments).result()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Watched]:
    """(file or URL, dark, width) → a page; the test fails if any of its pages complained or asked for something
    outside.
    """
    watched = Watched(browser)
    yield watched
    assert watched.close() == []


@pytest.fixture(scope="session")
def no_barriers() -> Callable[[Page], None]:
    """(page) → fails if axe-core finds a serious or critical barrier in it: wide and narrow, light and dark."""
    assert AXE.exists(), f"axe-core is not installed: npm ci in {HERE} (make test does it)"
    script = AXE.read_text(encoding="utf-8")

    def check(page: Page) -> None:
        if not page.evaluate("typeof axe === 'object'"):
            page.evaluate(script)
        found: dict[str, list[str]] = {}
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):  # only colours change between the two
                page.emulate_media(color_scheme=scheme)
                if barriers := page.evaluate(SERIOUS, None if scheme == "light" else ["color-contrast"]):
                    found[f"{width} {scheme}"] = barriers
        assert found == {}

    return check


@pytest.fixture(scope="session")
def take() -> Callable[..., None]:
    """(page, name, part) → pictures NAME-light-1280.png … of the window, or of a part of the page, in
    build/pictures.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)

    def pictures(page: Page, name: str, part: str | None = None, prepare: Callable[[], Any] | None = None) -> None:
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900 if width == WIDE else 844})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                if prepare:
                    prepare()
                assert overflow(page) == 0, f"{name} is wider than a window of {width} pixels"
                target = page.locator(part).first if part else page
                target.screenshot(path=PICTURES / f"{name}-{scheme}-{width}.png", animations="disabled")

    return pictures
