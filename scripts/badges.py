"""Write the badges of the README (docs/pictures/badge-*.svg) from the project's own files: `python scripts/badges.py`.

They say what the project states of itself (licence, Python versions, where its tests are run from), need no registry
and load nothing from elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pictures"


def main() -> None:
    """Write all of them."""
    for name, (left, right) in told().items():
        (OUT / f"badge-{name}.svg").write_text(drawn(left, right), encoding="utf-8")


def told() -> dict[str, tuple[str, str]]:
    """Name of a badge → its two halves, as pyproject.toml states them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [
        found[1] for each in project["classifiers"] if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", each))
    ]
    if not (ROOT / ".ci" / "run").is_file():
        raise SystemExit("badges: .ci/run, which runs the tests, is not there")
    return {
        "licence": ("licence", project["license"]),
        "python": ("python", " | ".join(versions)),
        "tests": ("tests", ".ci/run"),
    }


def drawn(left: str, right: str) -> str:
    """One badge as SVG; widths are those of Verdana at 11 px, about 6.6 px a letter."""
    first, second = (round(6.6 * len(text)) + 12 for text in (left, right))
    title = escape(f"{left}: {right}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{first}" height="20" fill="#444"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="#0b5c8a"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{first / 2:g}" y="14">{escape(left)}</text>'
        f'<text x="{first + second / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )


if __name__ == "__main__":
    main()
