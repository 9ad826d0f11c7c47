"""Find words that this project does not use: `python scripts/words.py [--list]`.

Two measures of scripts/house.py are held: names that hold a coined word for which the field has a term
(docs/glossary.md), and docstrings that open with a question word. Each may fall and must not rise: lower its limit here
when it has fallen.
"""

from __future__ import annotations

import sys
from pathlib import Path

from house import PACKAGE, House

#: Measure -> how many there may be.
LIMITS = {"words": 16, "questions": 8}
ABOUT = {
    "words": "names hold a coined word; use the field's term (docs/glossary.md)",
    "questions": "docstrings open with a question word; begin with a verb or a noun",
}


def main() -> int:
    """Print what is over its limit; 1 if anything is."""
    house = House(Path(__file__).parents[1] / "src" / PACKAGE)
    over = 0
    for measure, limit in LIMITS.items():
        places = getattr(house, measure)()
        over += len(places) > limit
        sys.stdout.write(f"{len(places)} {ABOUT[measure]} (at most {limit})\n")
        if "--list" in sys.argv or len(places) > limit:
            sys.stdout.write("".join(f"  {place}\n" for place in places))
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
