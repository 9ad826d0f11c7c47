"""No link is dead in any of three ways of reading: the published site, the site from disk, the files in a repository
browser. `make docs` asks the same of the site that it has built.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import reference  # noqa: E402

import docs  # noqa: E402


def test_no_link_of_the_files_is_dead_in_a_repository_browser():
    assert list(docs.faults_of_repository(ROOT)) == []


def test_what_is_dead_there_is_told(tmp_path):
    (tmp_path / ".gitignore").write_text("docs/reference/\n")
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "made.md").write_text("# Made\n")
    (tmp_path / "docs" / "there.md").write_text("# One thing\n\n## `two` - things\n")
    (tmp_path / "README.md").write_text(
        "[a](docs/there.md) [b](docs/there.md#one-thing) [c](docs/there.md#two---things) [d](#title) [e](https://x.example)\n"
        "`[code](nowhere.md)`\n\n```sh\n[code](nowhere.md)\n```\n\n# Title\n"
        "[1](docs/gone.md) [2](docs/reference/made.md) [3](docs/there.md#two-things) [4](../outside.md) ![5](no.png)\n"
    )
    faults = list(docs.faults_of_repository(tmp_path))
    assert [re.search(r": (\S+?):? ", fault)[1] for fault in faults] == [
        "docs/gone.md", "docs/reference/made.md", "docs/there.md#two-things", "../outside.md", "no.png"
    ]  # fmt: skip


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A small site; `place(name, text)` puts a page into it."""
    monkeypatch.setattr(docs, "SITE", tmp_path / "site")

    def place(name, text):
        page = tmp_path / "site" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)

    place("guide/index.html", "<h2 id='one'>One</h2>")
    (tmp_path / "source.py").write_text("")
    return place


@pytest.mark.parametrize(
    "link",
    [
        "guide/",  # a server answers with its index; a disk lists files
        "../source.py",  # there on disk; on the published site nothing
        "guide/index.html#two",
        "guide/gone.html",
    ],
)
def test_what_is_dead_on_the_site_or_on_disk_is_told(site, link):
    site("index.html", f"<a href='{link}'>x</a>")
    assert list(docs.faults_of_site()) == [f"index.html: {link} leads nowhere"]


def test_what_leads_somewhere_is_no_fault(site):
    site(
        "index.html",
        "<a href='guide/index.html#one'>x</a> <a href='#top' id='top'>y</a> <a href='https://x.example'>z</a>",
    )
    assert list(docs.faults_of_site()) == []


def test_the_site_links_what_pages_name_and_unlinks_what_is_not_on_it(site):
    text = (
        "<em>Reference › Metrics</em> <a href='#x'>x</a> "
        '<a href="../../src/a.py"><code>a</code></a> <a href="../guide/b.html">b</a>'
    )
    assert docs.linked_for_site(text, Path("guide/page.html"), {"Metrics": "reference/metrics.html"}) == (
        '<a href="../reference/metrics.html"><em>Reference › Metrics</em></a> '
        "<a href='#x'>x</a> <code>a</code> <a href=\"../guide/b.html\">b</a>"
    )
    with pytest.raises(SystemExit, match="no page of the reference has the title 'Matrices'"):
        docs.linked_for_site("<em>Reference › Matrices</em>", Path("page.html"), {"Metrics": "metrics.html"})


def test_pages_name_what_the_reference_has():
    titles = {page().splitlines()[0].removeprefix("# ") for name, page in reference.PAGES.items() if name != "index"}
    named = {
        title
        for page in (ROOT / "docs").rglob("*.md")
        if "reference" not in page.parts
        for title in re.findall(r"\*Reference › ([^*]+)\*", page.read_text("utf-8"))
    }
    assert named
    assert named <= titles | {"Reference"}
