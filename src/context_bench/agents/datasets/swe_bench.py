"""Rows like SWE-bench's: repository, commit, problem, and the tests that have to fail before and pass after.

The repositories are looked for in a folder of local clones, bare or with files. What the rows do not say is how tests
are run; where there is no `test_cmd` it is seen from how the tests are named, and a row where that fails is refused.
The packages that a project needs must be on this machine: without them its tests fail before and after, and no agent
can solve it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.agents.datasets.folder import AGENT_SECONDS, TEST_SECONDS, NotHere, packed, task
from context_bench.core.errors import BadInput
from context_bench.core.families import offered
from context_bench.core.records import Example
from context_bench.sandbox.workspace_files import git

_NEEDED = ("instance_id", "repo", "base_commit", "problem_statement")


def read(row: Mapping[str, Any], where: str, repos: str | Path | None, test_command: str = "") -> Example:
    """The task of one row. Raises `BadInput` if it is none, `NotHere` if its repository, commit or tests are not
    here.
    """
    missing = [name for name in _NEEDED if not isinstance(row.get(name), str) or not row[name]]
    if missing:
        raise BadInput(f"{where} is no SWE-bench-like instance: it has no {', '.join(missing)}")
    if repos is None:
        raise NotHere(f"its repository {row['repo']} has to be on this machine; say where the clones are (--repos DIR)")
    clone = _clone(Path(repos), str(row["repo"]), str(row["instance_id"]))
    commit = str(row["base_commit"])
    try:
        git(["cat-file", "-e", f"{commit}^{{commit}}"], cwd=clone)
    except BadInput:
        raise NotHere(f"{clone} does not have the commit {commit}") from None
    wanted = {name.lower(): _tests(row, name, where) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    patch = str(row.get("test_patch") or "")
    files, removed = _after(clone, commit, patch)
    command = str(
        row.get("test_cmd")
        or row.get("test_command")
        or test_command
        or _guessed([*wanted["fail_to_pass"], *wanted["pass_to_pass"]], files)
    )
    verify: dict[str, Any] = {
        "files": files,
        "command": command,
        "timeout": TEST_SECONDS,
        **{k: v for k, v in wanted.items() if v},
    }
    if removed:
        verify["remove"] = removed
    return task(
        str(row["instance_id"]),
        str(row["problem_statement"]),
        {"kind": "git", "path": str(clone.resolve()), "commit": commit},
        verify,
        "swe-bench",
        timeout=AGENT_SECONDS,
        cluster=str(row["repo"]),
        gold_patch=row.get("patch"),
        gold=_gold(row),
    )


def _clone(repos: Path, repo: str, instance: str) -> Path:
    owner, _, name = repo.rpartition("/")
    stems = [instance, f"{owner}__{name}", f"{owner}/{name}", name] if owner else [instance, name]
    for stem in stems:
        if ".." in stem or stem.startswith("/"):
            continue
        for path in (repos / stem, repos / f"{stem}.git"):
            if os.path.isdir(path):  # noqa: PTH112 (which says no to a name that is too long)
                return path
    raise NotHere(f"no clone of {repo} in {repos}; expected a folder such as {owner}__{name} or {name}.git")


def _tests(row: Mapping[str, Any], name: str, where: str) -> list[str]:
    """A list of tests, which published tables keep as JSON text."""
    value = row.get(name, row.get(name.lower()))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadInput(f"{where}: {name} is {value[:60]!r}; expected a list, or one as JSON text") from None
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{where}: {name} is of type {type(value).__name__}; expected a list")
    return [str(test) for test in value]


def _after(clone: Path, commit: str, patch: str) -> tuple[dict[str, str], list[str]]:
    """(files that the test patch leaves changed or new, paths that it removes). Nothing is written to the clone."""
    if not patch.strip():
        return {}, []
    with tempfile.TemporaryDirectory(prefix="context-bench-") as scratch:
        objects = git(["rev-parse", "--git-path", "objects"], cwd=clone).decode().strip()
        more = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fspath((clone / objects).resolve()),
        }
        git(["read-tree", commit], cwd=clone, env=more)
        try:
            git(
                ["apply", "--cached", "--whitespace=nowarn", "-"],
                cwd=clone,
                env=more,
                stdin=(patch.rstrip("\n") + "\n").encode("utf-8", "surrogatepass"),
            )
        except BadInput as error:
            raise NotHere(f"its test patch does not apply: {error}") from None
        listed = git(["diff-index", "--cached", "--no-renames", "--name-status", "-z", commit], cwd=clone, env=more)
        parts = listed.decode("utf-8", "surrogateescape").split("\0")
        files, removed = {}, []
        for status, path in zip(parts[::2], parts[1::2], strict=False):
            if status == "D":
                removed.append(path)
            else:
                files[path] = packed(git(["cat-file", "blob", f":{path}"], cwd=clone, env=more))
        return files, removed


def _guessed(tests: list[str], files: Mapping[str, str]) -> str:
    """The command that runs tests with such names. Raises `NotHere`."""
    if not tests:
        raise NotHere("it names no tests and no test_cmd")
    if all("::" in test for test in tests):
        paths = dict.fromkeys(test.split("::", 1)[0] for test in tests)
        return "python -m pytest -rA -p no:cacheprovider " + " ".join(map(shlex.quote, paths))
    dotted = [re.fullmatch(r"\w+ \(([\w.]+)\)", test) for test in tests]
    if all(dotted) and any(re.fullmatch(r"tests/\w+/.*", path) for path in files):
        labels = dict.fromkeys(
            ".".join(path.removesuffix(".py").split("/")[1:]) for path in files if path.endswith(".py")
        )
        return "cd tests && python ./runtests.py --verbosity 2 --parallel 1 " + " ".join(map(shlex.quote, labels))
    if all(dotted) or all(re.fullmatch(r"\w+(?:\.\w+){2,}", test) for test in tests):
        modules = dict.fromkeys(path.removesuffix(".py").replace("/", ".") for path in files if path.endswith(".py"))
        return "python -m unittest -v " + " ".join(map(shlex.quote, modules))
    raise NotHere(
        f"how its tests are run cannot be seen from their names ({tests[0]!r}); give a test_cmd in the row or "
        "--test-command"
    )


def _gold(row: Mapping[str, Any]) -> dict[str, Any]:
    """Gold lines, where the row has them."""
    try:
        gold = offered("gold_of_row")(row)
    except ValueError:
        return {}
    shown = {"init": gold.init, "add": gold.add}
    return {
        name: [{"file": item.file, "first": item.first, "last": item.last} for item in items]
        for name, items in shown.items()
        if items
    }
