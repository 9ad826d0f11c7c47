"""Draw the rooms of the package as an SVG: `python scripts/house_picture.py` writes docs/pictures/house.svg.

One row of boxes for each layer of the contract in pyproject.toml, highest first; a line for the imports from one room
to another, the thicker the more there are. Imports of `core`, which every room has, are left out. Nothing is imported:
rooms and lines come from the syntax trees (scripts/house.py).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from html import escape
from pathlib import Path

from house import PACKAGE, House

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "pictures" / "house.svg"
WIDTH, ROW, HEIGHT, GAP = 980, 62, 34, 12
FAMILIES = {"memory", "compression", "traces", "traffic", "agents"}


def layers() -> list[list[str]]:
    """The rooms of each layer that are folders, highest first; single files are left out."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    source = ROOT / "src" / PACKAGE
    rows = [
        [room for room in re.split(r" [|:] ", layer) if (source / room).is_dir()] for layer in contracts[0]["layers"]
    ]
    return [row for row in rows if row]


def lines(house: House, rooms: set[str]) -> Counter[tuple[str, str]]:
    """How many imports run from one room to another."""
    pairs = ((edge.importer.partition(".")[0], edge.imported.partition(".")[0]) for edge in house.imports)
    return Counter((one, other) for one, other in pairs if one != other != "core" and {one, other} <= rooms)


def drawn(house: House) -> str:
    """The picture."""
    rows = layers()
    boxes = {room: box for number, row in enumerate(rows) for room, box in _row(number, row).items()}
    sizes = Counter(name.partition(".")[0] for name in house.modules)
    parts = [_line(boxes[one], boxes[other], count) for (one, other), count in sorted(lines(house, set(boxes)).items())]
    parts += [_box(room, box, sizes[room]) for room, box in boxes.items()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(rows) * ROW + GAP}" role="img" '
        'font-family="sans-serif">'
    )
    title = "<title>Rooms of the package by layer, with the imports between them</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])


def _row(number: int, row: list[str]) -> dict[str, tuple[float, float, float]]:
    """Room → left, top, width."""
    width = min(170.0, (WIDTH - GAP) / len(row) - GAP)
    start = (WIDTH - len(row) * (width + GAP) + GAP) / 2
    return {room: (start + place * (width + GAP), number * ROW + GAP, width) for place, room in enumerate(row)}


def _box(room: str, box: tuple[float, float, float], modules: int) -> str:
    left, top, width = box
    fill = "#fde8c8" if room in FAMILIES else "#dfeaf5"
    text = (
        f'<text x="{left + width / 2:.0f}" y="{top + 15:.0f}" text-anchor="middle" font-size="13" '
        f'fill="#1a1a1a">{escape(room)}</text>'
    )
    size = (
        f'<text x="{left + width / 2:.0f}" y="{top + 28:.0f}" text-anchor="middle" font-size="10" '
        f'fill="#404040">{modules} modules</text>'
    )
    return (
        f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{HEIGHT}" rx="4" fill="{fill}" '
        f'stroke="#51606f"/>{text}{size}'
    )


def _line(one: tuple[float, float, float], other: tuple[float, float, float], count: int) -> str:
    start, end = (one[0] + one[2] / 2, one[1] + HEIGHT), (other[0] + other[2] / 2, other[1])
    return (
        f'<path d="M{start[0]:.0f} {start[1]} L{end[0]:.0f} {end[1]}" stroke="#8a97a5" stroke-opacity="0.45" '
        f'stroke-width="{min(5.0, 0.4 + count / 25):.1f}" fill="none"/>'
    )


if __name__ == "__main__":
    PLACE.write_text(drawn(House(ROOT / "src" / PACKAGE)), "utf-8")
