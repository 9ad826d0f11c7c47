"""Build site/ from docs/ and check it: no warning, no dead link, no page outside the menu, nothing loaded from
elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import reference
from blocks import ROOT

SITE = ROOT / "site"
DOCS = ROOT / "docs"
#: What the theme puts into pages that are read from disk. Ours does the same, from here.
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: Elements whose address the browser fetches by itself.
_FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}


def main() -> int:
    """The whole of it; 1 where something is wrong, and what."""
    reference.main()
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(_COLOUR.sub("", done.stdout + done.stderr).strip())  # noqa: T201
    if done.returncode:
        return 1
    for page in SITE.rglob("*.html"):
        own_shim(page)
    faults = [*outside_menu(), *faults_of_site()]
    print("\n".join(faults) or f"{len(list(SITE.rglob('*.html')))} pages, links checked: site/index.html")  # noqa: T201
    return 1 if faults else 0


def own_shim(page: Path) -> None:
    """Put our own script in the place of one that would come from elsewhere."""
    up = "../" * (len(page.relative_to(SITE).parts) - 1)
    text = page.read_text(encoding="utf-8")
    page.write_text(_SHIM.sub(f'<script src="{up}search-from-disk.js"></script>', text), encoding="utf-8")


def outside_menu() -> Iterator[str]:
    """Pages that the menu does not lead to, and entries of the menu without a page."""
    named = set(_named(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    yield from (f"zensical.toml: nav names {name}, which is not there" for name in sorted(named - there))
    yield from (f"docs/{name}: not in the nav of zensical.toml" for name in sorted(there - named))


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for each in nav.values():
            yield from _named(each)
    else:
        for each in nav:
            yield from _named(each)


class Page(HTMLParser):
    """What a page links to, what it fetches, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one element says."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "modulepreload", "manifest"):
            self.fetched.append(given.get("href", ""))
        if tag in _FETCHED and given.get(_FETCHED[tag]):
            self.fetched.append(given[_FETCHED[tag]])


@cache
def _page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def faults_of_site() -> Iterator[str]:
    """Links of the built pages that lead nowhere, and what they would load from elsewhere."""
    for path in sorted(SITE.rglob("*.html")):
        if path.name == "404.html":  # its addresses are those of a site at the root of a host
            continue
        page, name = _page(path), path.relative_to(SITE)
        yield from (f"{name}: loads {each} from elsewhere" for each in page.fetched if urlsplit(each).netloc)
        for link in (*page.links, *(each for each in page.fetched if not urlsplit(each).netloc)):
            if not _leads(path, link):
                yield f"{name}: {link} leads nowhere"
    for sheet in SITE.rglob("*.css"):
        found = re.findall(r"(?:@import\s+|url\()[\"']?(https?://[^\"')]+)", sheet.read_text(encoding="utf-8"))
        yield from (f"{sheet.relative_to(SITE)}: loads {each} from elsewhere" for each in found)


def _leads(page: Path, link: str) -> bool:
    told = urlsplit(link)
    if told.scheme or told.netloc:
        return told.scheme in ("http", "https", "mailto", "data", "javascript") or not told.scheme
    target = (page.parent / unquote(told.path)).resolve() if told.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file() or not any(target.is_relative_to(place) for place in (SITE, ROOT / "src")):
        return False
    return not told.fragment or target.suffix != ".html" or unquote(told.fragment) in _page(target).ids


if __name__ == "__main__":
    sys.exit(main())
