"""The page on the architecture names the rooms, modules and layers that there are; the page that follows one example
links to modules.
"""

import re
import tomllib
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "context_bench"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WALK = (ROOT / "docs" / "one-example.md").read_text("utf-8")
ROOMS = {place.name for place in PACKAGE.iterdir() if (place / "__init__.py").is_file()}
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]["layers"]


def spelled_out(name):
    """`a/{b,c}` is `a/b` and `a/c`."""
    parts = [
        part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", name) if part
    ]
    return ["".join(chosen) for chosen in product(*parts)]


def is_there(name):
    place = PACKAGE / name
    return place.exists() or place.with_name(f"{place.name}.py").is_file()


def rows_of_rooms():
    """(folders, cells) of the table of rooms."""
    table = PAGE.partition("## The rooms")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`(\w+)/`", row[0]), row) for row in rows]


def test_every_room_and_folder_is_described():
    rows = {folder: row for folders, row in rows_of_rooms() for folder in folders}
    assert rows.keys() == ROOMS
    folders = {place.parent.relative_to(PACKAGE) for place in PACKAGE.glob("*/*/__init__.py")}
    described = {place for place in folders if f"`{place.name}/`" in "".join(rows[place.parts[0]])}
    thin = {Path("systems/memories")}
    assert {place.as_posix() for place in folders - described - thin} == set()


def test_every_module_named_exists():
    table = {cell for _, row in rows_of_rooms() for cell in re.findall(r"`([\w/.]+)`", row[-1])}
    named = {
        one
        for name in re.findall(r"`([\w/{},.]+)`", PAGE)
        if "/" in name and name not in table
        for one in spelled_out(name)
    }
    whole = {name for name in named if name.split("/")[0] in ROOMS}
    assert [name for name in sorted(whole) if not is_there(name)] == []
    for folders, row in rows_of_rooms():
        for begin in re.findall(r"`([\w/.]+)`", row[-1]):
            assert any((PACKAGE / folder / begin).exists() for folder in folders), begin


def test_the_layers_are_those_of_the_contract():
    assert PAGE.partition("<!-- layers -->\n```\n")[2].partition("\n```")[0].splitlines() == LAYERS


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 150


def test_the_picture_shows_every_room():
    picture = (ROOT / "docs" / "pictures" / "house.svg").read_text("utf-8")
    assert set(re.findall(r'font-size="13"[^>]*>([a-z]+)<', picture)) == ROOMS


def test_one_example_is_followed_through_modules_that_exist():
    links = re.findall(r"\]\(\.\./(src/[^)]+)\)", WALK)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).is_file()] == []
    for text, link in re.findall(r"\[([\w/]+)\]\(\.\./src/context_bench/([^)]+)\)", WALK):
        assert link.removesuffix(".py").removesuffix("/__init__") == text


def leads_somewhere(reference):
    """True for `room.module`, and for a name or file that stands there."""
    parts = reference.split(".")
    for count in range(len(parts), 0, -1):
        place = PACKAGE.joinpath(*parts[:count])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.is_file():
            return (
                count == len(parts)
                or parts[count] in module.read_text("utf-8")
                or (place / ".".join(parts[count:])).is_file()
            )
    return False


def test_references_in_the_source_lead_to_what_is_there():
    pattern = re.compile(r"`((?:" + "|".join(sorted(ROOMS | {"logs"})) + r")(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
    lost = {
        f"{path.relative_to(PACKAGE)}: {reference}"
        for path in PACKAGE.rglob("*.py")
        for reference in pattern.findall(path.read_text("utf-8"))
        if not leads_somewhere(reference)
    }
    assert lost == set()
