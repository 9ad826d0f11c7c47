"""Build site/ from docs/ and check it: no warning, no dead link, no page outside the menu, nothing loaded from
elsewhere.

The pages are read in three ways, and no link may be dead in any: as the published site, as the same site from disk
(where no server answers a folder with its index), and as Markdown in a repository browser or an editor. The reference
is made when the site is built, so hand-written pages name it (*Reference › Metrics*) and the build makes links of that;
what lies outside the site (a source file) is a link in the repository alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
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
#: How a page names a page of the reference; a link that may lead out of the site.
_REFERENCE = re.compile(r"<em>Reference › ([^<]+)</em>")
_OUTWARD = re.compile(r'<a href="(\.\./[^"]*)"[^>]*>(.*?)</a>', re.S)
_FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.M | re.S)
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
    titles = reference_titles()
    for page in SITE.rglob("*.html"):
        own_shim(page)
        text = page.read_text(encoding="utf-8")
        page.write_text(linked_for_site(text, page.relative_to(SITE), titles), encoding="utf-8")
    faults = [*outside_menu(), *faults_of_site(), *faults_of_repository(ROOT)]
    print("\n".join(faults) or f"{len(list(SITE.rglob('*.html')))} pages, links checked: site/index.html")  # noqa: T201
    return 1 if faults else 0


def own_shim(page: Path) -> None:
    """Put our own script in the place of one that would come from elsewhere."""
    up = "../" * (len(page.relative_to(SITE).parts) - 1)
    text = page.read_text(encoding="utf-8")
    page.write_text(_SHIM.sub(f'<script src="{up}search-from-disk.js"></script>', text), encoding="utf-8")


def reference_titles() -> dict[str, str]:
    """Title of a page of the reference → the page, from site/."""
    made = {name: (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in reference.PAGES}
    return {text.splitlines()[0].removeprefix("# "): f"reference/{name}.html" for name, text in made.items()}


def linked_for_site(text: str, place: Path, titles: Mapping[str, str]) -> str:
    """The page at `place` with links to the reference where it names it, and without links that leave the site."""
    up = "../" * (len(place.parts) - 1)

    def link(found: re.Match[str]) -> str:
        if found[1] not in titles:
            raise SystemExit(f"{place}: no page of the reference has the title {found[1]!r}: {', '.join(titles)}")
        return f'<a href="{up}{titles[found[1]]}">{found[0]}</a>'

    def unlink(found: re.Match[str]) -> str:
        target = (SITE / place.parent / unquote(urlsplit(found[1]).path)).resolve()
        return found[0] if target.is_relative_to(SITE) else found[2]

    return _OUTWARD.sub(unlink, _REFERENCE.sub(link, text))


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
    if not target.is_file() or not target.is_relative_to(SITE):
        return False
    return not told.fragment or target.suffix != ".html" or unquote(told.fragment) in _page(target).ids


def faults_of_repository(root: Path) -> Iterator[str]:
    """Links of Markdown files that lead nowhere where the files themselves are read: to what git does not keep, or to
    a heading that is not there.
    """
    ignored = {line.strip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").splitlines() if line}
    ignored |= {".git", "build", "node_modules"}
    for page in _markdown(root, ignored):
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in re.finditer(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
            told = urlsplit(found[1])
            if told.scheme or told.netloc:
                continue
            target = (page.parent / unquote(told.path)).resolve() if told.path else page
            inside = target.relative_to(root).as_posix() if target.is_relative_to(root) else ""
            kept = not any(inside == name or inside.startswith(f"{name}/") for name in ignored)
            name = page.relative_to(root)
            if not inside or not kept or not target.exists():
                yield f"{name}: {found[1]} leads nowhere in the repository"
            elif told.fragment and target.suffix == ".md" and unquote(told.fragment) not in _headings(target):
                yield f"{name}: {found[1]}: no such heading in the repository"


def _markdown(root: Path, ignored: set[str]) -> Iterator[Path]:
    """The files of Markdown that people read: at the root, in docs and benchmarks, and what is said to contributors."""
    for place in (root, *(root / name for name in ("docs", "benchmarks", ".github"))):
        found = place.glob("*.md") if place == root else place.rglob("*.md")
        yield from sorted(
            page
            for page in found
            if not any(page.is_relative_to(root / name) or name in page.parts[len(root.parts) :] for name in ignored)
        )


@cache
def _headings(page: Path) -> set[str]:
    """The anchors that a repository browser gives to the headings of a page."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    anchors: set[str] = set()
    for title in re.findall(r"^#+ +(.+?)\s*#*$", text, re.M):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors.add(anchor if anchor not in anchors else f"{anchor}-1")
    return anchors | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


if __name__ == "__main__":
    sys.exit(main())
