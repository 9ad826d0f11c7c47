"""Install the wheel as a user would, into clean environments, and use it from an empty folder.

    python scripts/wheels.py [--python 3.11] [--resolution lowest-direct]
    python scripts/wheels.py --demo [--python 3.11]

The sdist is built, and the wheel from the sdist. Then, for each CPython found here and for the highest and the lowest
versions of what it depends on: the size of a core without extras, a run with controls and its report, a picture,
exports, the viewer's first page, and what is said where an extra is missing. A table is printed; exit code 1 if
something fails. `--demo`: only the demo, in one environment and an empty folder: it fetches 200 MB and takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13")
RESOLUTIONS = ("highest", "lowest-direct")
MOST = 250_000_000  # bytes of a core: files of site-packages without compiled ones, pip and setuptools
SYSTEM = """
class Halve:
    name = "halve"

    def process(self, example):
        context = example["context"]
        return {**example, "context": context[: len(context) // 2], "response": example["answer"]}
"""


class Failed(Exception):
    """A check that did not pass."""


def main() -> int:
    """Try all that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="only this version; may be given several times")
    parser.add_argument("--resolution", choices=RESOLUTIONS, help="only this one")
    parser.add_argument("--demo", action="store_true", help="only the demo, with nothing fetched before")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="context-bench-wheels-") as folder:
        wheel = built(Path(folder))
        if given.demo:
            told = _demonstrated(Path(folder), wheel, (given.python or PYTHONS)[0], given.resolution or RESOLUTIONS[0])
            print(f"demo: {told}")
            return int(told != "works")
        print("| Python | dependencies | MB | result |\n|---|---|---|---|")
        for version in given.python or PYTHONS:
            for resolution in [given.resolution] if given.resolution else RESOLUTIONS:
                size, told = _tried(Path(folder), wheel, version, resolution)
                failed |= told != "works"
                print(f"| {version} | {resolution.partition('-')[0]} | {size / 1e6:.0f} | {told} |", flush=True)
    return int(failed)


def built(folder: Path) -> Path:
    """The wheel that the project's sdist makes; it holds `py.typed` and the licence."""
    run([UV, "build", "--quiet", "--no-build-isolation", "--out-dir", folder / "dist", ROOT])
    (wheel,) = (folder / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    if "context_bench/py.typed" not in names or not any(name.endswith("licenses/LICENSE") for name in names):
        raise SystemExit(f"{wheel.name} lacks py.typed or its licence")
    return wheel


def _tried(folder: Path, wheel: Path, version: str, resolution: str) -> tuple[int, str]:
    """The core's size in bytes, and "works" or what did not."""
    home = Path(tempfile.mkdtemp(prefix=f"{version}-{resolution}-", dir=folder))
    try:
        size = _size(installed(home, wheel, version, resolution).with_name("python"))
        if size > MOST:
            raise Failed(f"a core of {size / 1e6:.0f} MB, expected at most {MOST / 1e6:.0f}")
        _used(home / "venv/bin/context-bench", home)
    except Failed as failure:
        return 0, " ".join(str(failure).split())[:500]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return size, "works"


def _demonstrated(home: Path, wheel: Path, version: str, resolution: str) -> str:
    """The demo does all by itself: it fetches what it needs and says how much that is, asks nothing (nobody would
    answer), and shows its four parts and no traceback. "works", or what did not.
    """
    place = home / "demo"
    place.mkdir()
    try:
        program = installed(home, wheel, version, resolution)
        # How the network is reached stays as it is here; uv installs, as for whoever installed the program with it.
        own = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
        own["PATH"] = f"{UV.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [program, "demo"], cwd=place, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except Failed as failure:
        return " ".join(str(failure).split())[:500]
    said = done.stdout + done.stderr
    lacking = [text for text in (" MB)", "1 · ", "2 · ", "3 · ", "4 · ") if text not in said]
    if done.returncode != 0 or "Traceback" in said or lacking:
        return f"exit code {done.returncode}, lacking {lacking}: {said[-600:]}"
    return "works" if (place / ".context-bench" / "demo.html").is_file() else "no report"


def installed(home: Path, wheel: Path, version: str, resolution: str) -> Path:
    """The program in a new environment of `home` that has this wheel alone; `Failed` says why there is none."""
    python = home / "venv/bin/python"
    run([UV, "venv", "--quiet", "--no-python-downloads", "--python", _interpreter(version), home / "venv"])
    (home / "core.txt").write_text("\n".join(_requirements(wheel)))
    options = ["--resolution", resolution, "--only-binary", ":all:", "--requirement", home / "core.txt"]
    run([UV, "pip", "install", "--quiet", "--python", python, *options, wheel])
    return python.with_name("context-bench")


def _interpreter(version: str) -> str:
    """A Python of this version: among pyenv's, else whatever uv finds."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else version


def _requirements(wheel: Path) -> list[str]:
    """The dependencies of the core; as direct ones, so that the lowest of them are taken."""
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    lines = re.findall(r"^Requires-Dist: (.*)$", metadata.decode(), re.MULTILINE)
    return [line for line in lines if "extra ==" not in line]


def _size(python: Path) -> int:
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.relative_to(packages).parts[0] not in ("pip", "setuptools")
    )


def _used(program: Path, home: Path) -> None:
    """Use the core from an empty folder, as a new user would."""
    place = home / "work"
    place.mkdir()
    (place / "mine.py").write_text(SYSTEM)
    rows = [
        {"id": n, "context": f"Town {n} is called Aa{n}. It has a mill.", "question": "Which town?", "answer": f"Aa{n}"}
        for n in range(20)
    ]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def say(*words: str, code: int = 0, tells: str = "") -> None:
        done = run([program, *words], place, home, code)
        if tells not in done:
            raise Failed(f"{' '.join(words)}: expected {tells!r} in: {done[-300:]}")

    say("version", tells="context-bench")
    say("--help", tells="replay")
    asked = ["run", "--system", "py:mine:Halve", "--dataset", "rows.jsonl", "--controls", "--upstream", "echo"]
    say(*asked, "--output", "html", "--out", "r.html", code=-1, tells="halve")
    if "<svg" not in (place / "r.html").read_text():
        raise Failed("the report has no picture")
    say("show", "last", tells="halve")
    say("export", "last", "--format", "csv", "--out", "rows.csv")
    say("plot", "last", "--kind", "forest", "--out", "forest.svg")
    say("card", "last", "--out", "card.svg")
    if "halve" not in (place / "card.svg").read_text():
        raise Failed("the card does not name the system")
    say("card", "last", "--out", "card.png", code=2, tells="[plots] @ file://")
    say("plot", "last", "--kind", "pareto", "--out", "pareto.svg", code=2, tells="[plots] @ file://")
    say("export", "last", "--format", "parquet", "--out", "rows.parquet", code=2, tells="[parquet] @ file://")
    say("compress", "cache", "bundled:sessions/order-sync-zh", tells="Break-even")
    _viewed(program, place)


def _viewed(program: Path, place: Path) -> None:
    """The viewer answers with the list of runs."""
    viewer = subprocess.Popen(
        [program, "view", "--no-open"], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert viewer.stdout is not None
        said = ""
        for line in viewer.stdout:
            said += line
            if address := re.search(r"http://[^\s]+", line):
                browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
                with browser.open(address[0], timeout=60) as page:
                    if b'href="/runs/' not in page.read():
                        raise Failed("the viewer's first page lists no run")
                return
        raise Failed(f"the viewer said no address: {said}")
    finally:
        viewer.terminate()
        viewer.wait(30)


def run(words: list[object], folder: Path = ROOT, home: Path | None = None, code: int = 0) -> str:
    """What a program printed. `code` -1: 0, or 4 for a run whose verdicts are bad."""
    own = (
        {"XDG_CACHE_HOME": str(home / "cache"), "PATH": os.environ["PATH"], "HOME": str(home)}
        if home
        else dict(os.environ)
    )
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=900
    )
    said = done.stdout + done.stderr
    if done.returncode not in ((0, 4) if code == -1 else (code,)):
        raise Failed(f"{' '.join(map(str, words[:3]))}: exit code {done.returncode}: {said[-400:]}")
    return said


if __name__ == "__main__":
    sys.exit(main())
