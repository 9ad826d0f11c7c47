"""Make a release: changelog, sdist and wheel, their contents checked, the wheel tried, hashes, a list of components.

    python scripts/release.py [--dry-run] [--out dist]

In this order, and nothing is changed before all checks have passed: the version has no section in CHANGELOG.md yet and
there is something to release; sdist and wheel are built and hold what they must (types, licence, metadata) and nothing
else; the wheel works in clean environments (`scripts/wheels.py`). Then SHA256SUMS and `sbom.cdx.json` (CycloneDX 1.5,
from lock.txt) are written beside them, and the changelog's unreleased part gets the version's name.

`--dry-run` leaves the changelog as it is and does not try the wheel. Nothing is uploaded and no tag is made: the
commands for both are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "context-bench-tool"
_UNRELEASED = "## [Unreleased]"
#: Fields of the wheel's metadata that an index shows.
_FIELDS = ("Author", "Classifier", "Keywords", "License-Expression", "License-File", "Requires-Python", "Summary")


class Fault(Exception):
    """Something that keeps the release from being made."""


def main(arguments: list[str] | None = None) -> int:
    """The whole of it; 1 where something is wrong, and what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="change nothing, try no wheel")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of what is made; empty or not there")
    given = parser.parse_args(arguments)
    try:
        _release(given.out, dry=given.dry_run)
    except Fault as fault:
        print(f"no release: {fault}", file=sys.stderr)
        return 1
    return 0


def _release(out: Path, *, dry: bool) -> None:
    version = version_of((ROOT / "src/context_bench/__init__.py").read_text(encoding="utf-8"))
    log = ROOT / "CHANGELOG.md"
    renamed = released(log.read_text(encoding="utf-8"), version, datetime.now(UTC).date().isoformat())
    if out.exists() and any(out.iterdir()):
        raise Fault(f"{out} is not empty; name another folder with --out, or empty it")
    out.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(out.resolve())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Fault(f"the build failed: {done.stderr[-400:]}")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    faults = [*faults_of_wheel(wheel, version), *faults_of_sdist(sdist)]
    if faults:
        raise Fault("; ".join(faults))
    if not dry and subprocess.run([sys.executable, ROOT / "scripts/wheels.py"], cwd=ROOT, check=False).returncode:
        raise Fault("the wheel does not work everywhere; the table above says where")
    lock, licences = ((ROOT / name).read_text(encoding="utf-8") for name in ("lock.txt", "docs/licences.md"))
    (out / "sbom.cdx.json").write_text(json.dumps(bill(lock, licences, version), indent=1) + "\n", encoding="utf-8")
    made = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    if not dry:
        log.write_text(renamed, encoding="utf-8")
    print(f"{'dry run: ' if dry else ''}{NAME} {version} in {out}: {', '.join(path.name for path in made)}, SHA256SUMS")
    print(f"Next: commit CHANGELOG.md; git tag -s v{version}; uv publish {out}/*.whl {out}/*.tar.gz")
    if not tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"][
        "custom"
    ]["repository"]:
        print("pyproject.toml names no repository: on an index the README has no links and no picture.")


def version_of(module: str) -> str:
    """The version that the package states: three numbers, and `rc` with a number where it is a candidate."""
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+(?:rc\d+)?)"$', module, re.MULTILINE)
    if found is None:
        raise Fault('src/context_bench/__init__.py states no version of the form "1.2.3" or "1.2.3rc1"')
    return found[1]


def released(log: str, version: str, day: str) -> str:
    """The changelog with its unreleased part under this version and day."""
    if f"## [{version}]" in log:
        raise Fault(f"CHANGELOG.md has a section [{version}] already; raise __version__ first")
    _, head, rest = log.partition(_UNRELEASED + "\n")
    if not head or not re.search(r"^- ", rest.partition("\n## ")[0], re.MULTILINE):
        raise Fault(f"CHANGELOG.md has nothing under {_UNRELEASED}")
    return log.replace(_UNRELEASED + "\n", f"{_UNRELEASED}\n\n## [{version}] - {day}\n", 1)


def faults_of_wheel(wheel: Path, version: str) -> list[str]:
    """What the wheel lacks, and what is in it that should not be."""
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    info = f"{NAME.replace('-', '_')}-{version}.dist-info/"
    data = f"{info.removesuffix('dist-info/')}data/data/share/"  # what goes beside the environment's programs
    wanted = ["context_bench/py.typed", f"{info}licenses/LICENSE", f"{info}METADATA", f"{info}entry_points.txt"]
    wanted += [f"{data}man/man1/context-bench.1", f"{data}bash-completion/completions/context-bench"]
    faults = [f"{wheel.name} lacks {name}" for name in wanted if name not in names]
    faults += [f"{wheel.name} holds {name}" for name in names if not name.startswith(("context_bench/", info, data))]
    faults += [f"{wheel.name} holds {name}" for name in names if "__pycache__" in name]
    if f"{info}METADATA" in names:
        metadata = archive.read(f"{info}METADATA").decode()
        faults += [f"its metadata has no {field}" for field in _FIELDS if not re.search(f"(?m)^{field}: .", metadata)]
        faults += [
            f"its README links to {link}, which leads nowhere on an index"
            for link in re.findall(r"\]\(([^)\s]+)\)", metadata)
            if not re.match(r"[a-z]+:|#", link)
        ]
    return faults


def faults_of_sdist(sdist: Path) -> list[str]:
    """What an sdist lacks that has to build itself."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [
        f"{sdist.name} lacks {name}"
        for name in ("pyproject.toml", "README.md", "LICENSE", "src/context_bench/py.typed")
        if name not in names
    ]


def bill(lock: str, licences: str, version: str) -> dict[str, Any]:
    """The locked packages, all extras and tools of development among them, as CycloneDX 1.5; without time and number,
    so that the same lock gives the same bytes.
    """
    stated = dict(re.findall(r"^\| ([^|]+?) \| [^|]+ \| ([^|]+?) \|$", licences, re.MULTILINE))
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", lock, re.MULTILINE))
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{pin}",
            "name": name,
            "version": pin,
            "purl": f"pkg:pypi/{name}@{pin}",
            **({"licenses": [{"license": {"name": stated[name]}}]} if name in stated else {}),
        }
        for name, pin in sorted(pins.items())
    ]
    own = {
        "type": "application",
        "bom-ref": NAME,
        "name": NAME,
        "version": version,
        "licenses": [{"expression": "MIT"}],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }


if __name__ == "__main__":
    sys.exit(main())
