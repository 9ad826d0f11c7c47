"""Our own simple form: a `task.toml`, with the files beside it or in it.

```toml
id = "off-by-one"                 # default: the folder's name
instruction = "…"                 # or instruction.md beside this file
timeout = 600                     # seconds for the agent
setup = "make deps"               # run in the copy before the agent comes; part of the start
cluster = "pager"                 # the repository, for statistics
repo = "repo"                     # a folder beside this file (default "repo"), or { path = "clone.git", commit = "…" }

[files]                           # instead of `repo`: the files themselves
"pager/pages.py" = "…"

[verify]
command = "python -m unittest -v" # run in the repository once the agent has ended
timeout = 60
tests = "tests"                   # a folder beside this file, copied over the repository's `tests_into` (default: folder of that name)
fail_to_pass = ["tests.test_pages.PagesTest.test_full_pages"]
pass_to_pass = []
[verify.files]                    # or the tests themselves
"tests/test_pages.py" = "…"

[gold]                            # optional, never shown to an agent
patch = "…"
init = [{ file = "pager/pages.py", first = 15, last = 15 }]
add = []
```
"""  # noqa: E501

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, BadSpec, ContextBenchError
from context_bench.core.machine import file_text
from context_bench.core.numbers import duration
from context_bench.core.records import Example
from context_bench.core.templates import load_toml

#: Seconds for an agent and for its tests where a task does not say.
AGENT_SECONDS, TEST_SECONDS = 1800.0, 600.0


@dataclass(frozen=True, slots=True)
class RefusedTask:
    """A task that cannot be run here, and why."""

    id: str
    reason: str


class NotHere(ContextBenchError):
    """Raised by readers for a task that is in order but cannot be run on this machine."""


class Tasks(list[Example]):
    """Tasks as examples, in order; `refused`: those that were left out, each with its reason; `source`: what was asked
    for.
    """

    def __init__(self, tasks: Iterable[Example] = (), refused: Iterable[RefusedTask] = (), source: str = "") -> None:
        super().__init__(tasks)
        self.refused = list(refused)
        self.source = source


def packed(data: bytes) -> str:
    """Bytes as they stand in an example."""
    return base64.b64encode(data).decode("ascii")


def files_below(folder: Path) -> dict[str, str]:
    """Relative path → base64 of every regular file below; links are left out."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): packed(path.read_bytes()) for path in found}


def task(
    name: str, instruction: str, repo: dict[str, Any], verify: dict[str, Any], source: str, **more: Any
) -> Example:
    """An example from its parts; what is None or empty among `more` is left out."""
    example: Example = {
        "id": name,
        "instruction": instruction,
        "question": instruction,
        "context": "",
        "repo": repo,
        "verify": verify,
    }
    example |= {"task_source": source, "timeout": AGENT_SECONDS}
    return example | {key: value for key, value in more.items() if value not in (None, "", [], {})}


_KNOWN = {"id", "instruction", "timeout", "setup", "env", "cluster", "kind", "repo", "files", "verify", "gold"}
_VERIFY = {"command", "timeout", "tests", "tests_into", "files", "remove", "env", "fail_to_pass", "pass_to_pass"}


def read(path: Path, source: str = "folder") -> Example:
    """The task of one file. Raises `BadSpec` with everything that is wrong with it."""
    spec = table(path)
    home = path.parent
    beside = home / "instruction.md"
    instruction = spec.get("instruction") or (
        beside.read_text("utf-8") if path.name == "task.toml" and beside.is_file() else ""
    )
    faults = list(_faults(spec, home, instruction))
    if faults:
        raise BadSpec(str(path), faults)
    verify, gold = spec["verify"], spec.get("gold", {})
    ranges = {name: gold[name] for name in ("init", "add") if gold.get(name)}
    return task(
        str(spec.get("id") or (home.name if path.name == "task.toml" else path.stem)),
        str(instruction),
        _repo(spec, home),
        _verify(verify, home),
        source,
        timeout=float(spec.get("timeout", AGENT_SECONDS)),
        setup=spec.get("setup"),
        env=spec.get("env"),
        cluster=spec.get("cluster"),
        kind=spec.get("kind"),
        gold_patch=gold.get("patch"),
        gold=ranges,
    )


def table(path: Path) -> dict[str, Any]:
    """A TOML file as it is. Raises `BadInput`."""
    try:
        return load_toml(file_text(path))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {error}") from None


def _faults(spec: Mapping[str, Any], home: Path, instruction: object) -> list[str]:
    faults = [f"unknown key {key!r}; known are {', '.join(sorted(_KNOWN))}" for key in spec.keys() - _KNOWN]
    if not isinstance(instruction, str) or not instruction.strip():
        faults.append("there is no instruction; expected `instruction` or an instruction.md beside the file")
    verify = spec.get("verify")
    for name, where in (("timeout", spec), ("verify.timeout", verify if isinstance(verify, dict) else {})):
        if not duration(timeout := where.get("timeout", 1)):
            faults.append(f"{name} is {timeout!r:.60}; expected seconds above 0")
    if not isinstance(verify, dict) or not isinstance(verify.get("command"), str):
        return [*faults, "there is no [verify] with a `command` that says whether the task was done"]
    faults += [f"unknown key verify.{key}; known are {', '.join(sorted(_VERIFY))}" for key in verify.keys() - _VERIFY]
    for name in ("fail_to_pass", "pass_to_pass", "remove"):
        if not _texts(verify.get(name, [])):
            faults.append(f"verify.{name} is {verify[name]!r}; expected a list of texts")
    if "tests" in verify and not (home / str(verify["tests"])).is_dir():
        faults.append(f"verify.tests is {verify['tests']!r}; there is no such folder beside the file")
    for name, files in (("files", spec.get("files", {})), ("verify.files", verify.get("files", {}))):
        if not isinstance(files, dict) or not _texts(list(files.values())):
            faults.append(f"{name} is no table of path = text")
    return faults + _repo_faults(spec, home)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _repo_faults(spec: Mapping[str, Any], home: Path) -> list[str]:
    repo = spec.get("repo", "repo")
    if "files" in spec:
        return ["there are both `files` and `repo`; expected one of them"] if "repo" in spec else []
    if isinstance(repo, str):
        return (
            []
            if (home / repo).is_dir()
            else [f"there is no folder {repo!r} beside the file and no [files]; expected what the agent begins with"]
        )
    if isinstance(repo, dict) and isinstance(repo.get("path"), str) and isinstance(repo.get("commit"), str):
        return []
    return [f"repo is {repo!r}; expected a folder or {{ path, commit }}"]


def _repo(spec: Mapping[str, Any], home: Path) -> dict[str, Any]:
    if "files" in spec:
        return {"kind": "files", "files": dict(spec["files"])}
    repo = spec.get("repo", "repo")
    if isinstance(repo, str):
        return {"kind": "folder", "path": str((home / repo).resolve())}
    return {"kind": "git", **repo, "path": str((home / repo["path"]).resolve())}


def _verify(verify: Mapping[str, Any], home: Path) -> dict[str, Any]:
    files = {name: packed(text.encode()) for name, text in verify.get("files", {}).items()}
    if "tests" in verify:
        into = str(verify.get("tests_into", Path(verify["tests"]).name)).strip("/")
        files |= {
            f"{into}/{name}" if into not in ("", ".") else name: data
            for name, data in files_below(home / verify["tests"]).items()
        }
    kept = {name: verify[name] for name in ("remove", "env", "fail_to_pass", "pass_to_pass") if verify.get(name)}
    return {"files": files, "command": verify["command"], "timeout": float(verify.get("timeout", TEST_SECONDS)), **kept}
