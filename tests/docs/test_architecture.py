"""The page on the house names what is there, and all that is there: rooms, modules, layers."""

import re
import tomllib
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "context_bench"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = {place.name for place in HOUSE.iterdir() if (place / "__init__.py").is_file()}
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]


def spelled_out(name):
    """`a/{b,c}` is `a/b` and `a/c`."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", name) if part]
    return ["".join(chosen) for chosen in product(*parts)]


def is_there(name):
    place = HOUSE / name
    return place.exists() or place.with_name(f"{place.name}.py").is_file() or place.with_name(f"_{place.name}.py").is_file()


def paths_named():
    """All that stands in backticks and begins with a room."""
    return {one for name in re.findall(r"`([\w/{},.]+)`", PAGE) if "/" in name for one in spelled_out(name) if one.split("/")[0] in ROOMS}


def rows_of_rooms():
    """(folders, cell with the modules to begin with) of the table of rooms."""
    table = PAGE.partition("## The rooms")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`(\w+)/`", row[0]), row) for row in rows]


def test_every_module_named_exists():
    assert len(paths_named()) > 40
    assert [name for name in sorted(paths_named()) if not is_there(name)] == []
    for folders, row in rows_of_rooms():
        for begin in re.findall(r"`([\w/.]+)`", row[-1]):
            assert any((HOUSE / folder / begin).exists() for folder in folders), begin


def test_every_room_and_folder_is_described():
    told = {folder: row for folders, row in rows_of_rooms() for folder in folders}
    facades = re.search(r"script:\n`([^`]*)`", PAGE)[1].split(", ")
    assert told.keys() | (set(facades) & ROOMS) == ROOMS
    inner = {place.parent.relative_to(HOUSE).as_posix() for place in HOUSE.glob("*/*/__init__.py")}
    unnamed = {
        place for place in inner if place not in paths_named() and f"`{place.split('/')[1]}/`" not in "".join(told[place.split("/")[0]])
    }
    assert unnamed == set()


def test_the_layers_are_those_of_the_contract():
    shown = re.search(r"^    (__main__ > .*)$", PAGE, re.M)[1].replace("{", "").replace("}", "").split(" > ")
    facades = re.search(r"script:\n`([^`]*)`", PAGE)[1]
    wanted = [facades if layer == "facades" else layer for layer in shown]
    assert [set(re.split(r", | \| | : ", layer)) for layer in wanted] == [set(re.split(r" \| | : ", layer)) for layer in LAYERS]
