"""Install one version of a pair's package into an environment of its own, kept in a cache folder.

Python packages go into virtual environments made by uv, with the dependencies of the day that the pair names; packages
of Node into a folder with its own `node_modules`. Install scripts of npm packages are not run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

#: The variable that names another folder for the environments.
CACHE = "CONTEXT_BENCH_PAIRS"
_LONGEST = 1800.0  # seconds that one installation may take
_UV = str(Path(sys.executable).with_name("uv"))


@dataclass(frozen=True, slots=True)
class Environment:
    """One version with all that it needs: where it is installed, and what goes in. `day`: nothing newer than that."""

    folder: Path
    runtime: str  # python, node
    wanted: dict[str, list[str]]
    day: str | None

    @property
    def program(self) -> str:
        """The program that runs scripts in it: its Python, or Node."""
        return str(self.folder / "bin" / "python") if self.runtime == "python" else shutil.which("node") or "node"

    def install(self) -> Environment:
        """Make it, unless it is there. Raises `RuntimeError` with the installer's last words if that cannot be done."""
        told = json.dumps([self.wanted, self.day], sort_keys=True)
        ready = self.folder / ".ready"
        if not ready.is_file() or ready.read_text() != told:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            (_node if self.runtime == "node" else _python)(self)
            ready.write_text(told)
        return self


def cache_folder() -> Path:
    """The folder that holds all environments: `CONTEXT_BENCH_PAIRS`, else one of the user's cache."""
    named = os.environ.get(CACHE)
    return Path(named) if named else user_cache_path("context-bench") / "pairs"


def environment(pair: dict[str, Any], which: str) -> Environment:
    """The environment of a pair's `affected` or `fixed` version. `which` may also be a day in ISO 8601: then it is that
    of the newest versions of the day.
    """
    named = {kind: pair.get(kind, []) for kind in ("npm", "python", "alone", "beside")}
    if which in pair:
        before = pair.get("before")
        day = before[which] if isinstance(before, dict) else before
        pinned = rf"\g<1>{pair[which]}"
        wanted = {kind: [re.sub(r"(==|@)V$", pinned, word) for word in named[kind]] for kind in named}
    else:
        day, wanted = which, {kind: [_unpinned(word) for word in named[kind]] for kind in named}
    told = json.dumps([wanted, day], sort_keys=True)
    first = [*wanted["npm"], *wanted["python"], *wanted["alone"]][0]
    name = "".join(c if c.isalnum() or c in ".-" else "_" for c in first)
    folder = cache_folder() / f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"
    return Environment(folder, "node" if "npm" in pair else "python", wanted, day)


def _unpinned(word: str) -> str:
    """A requirement without its version; zod's first figure stays, since the others ask for it."""
    return word if word.startswith(("zod@", "mcp<")) else re.sub(r"(?<=.)(==|@)[\w.]+$", "", word)


def _python(made: Environment) -> None:
    _run([_UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(made.folder)])
    pip = [_UV, "pip", "install", "--quiet", "--python", made.program]
    dated = ["--exclude-newer", made.day] if made.day else []
    if made.wanted["alone"]:
        _run([*pip, *dated, "--no-deps", *made.wanted["alone"]])
    if words := [*made.wanted["python"], *made.wanted["beside"]]:
        _run([*pip, *dated, *words])


def _node(made: Environment) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not there")
    (made.folder / "package.json").write_text('{"type": "module", "private": true}\n')
    dated = [f"--before={made.day}"] if made.day else []
    quiet = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    _run([npm, "install", *quiet, *dated, *made.wanted["npm"]], made.folder)


def _run(words: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_LONGEST, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {said}")
