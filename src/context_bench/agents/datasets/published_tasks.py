"""Tasks in the forms of others: rows like SWE-bench's, and Harbor's folders.

Rows: repository, commit, problem, and the tests that have to fail before and pass after. The repositories are looked
for in a folder of local clones, bare or with files. What the rows do not say is how tests are run; where there is no
`test_cmd` it is seen from how the tests are named, and a row where that fails is refused. The packages that a project
needs must be on this machine: without them its tests fail before and after, and no agent can solve it.

Harbor's folders: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/`. Harbor runs each task in
an image of its own, with the agent in it. Here the agent and its tools are those of this machine, so only tasks are
taken whose environment is plain files: no Dockerfile (everything in `environment/` is what the agent begins with), or
one that does nothing but choose a common base, set variables and copy files of that folder. Any other is refused, and
says why. The tests are shown as `/tests` once the agent has ended; `test.sh` writes its reward to `/logs/verifier`, and
1 or more is solved.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from context_bench.agents.datasets.folder import (
    AGENT_SECONDS,
    TEST_SECONDS,
    NotHere,
    files_below,
    packed,
    table,
    task,
)
from context_bench.core.errors import BadInput, BadSpec
from context_bench.core.families import offered
from context_bench.core.numbers import duration
from context_bench.core.records import Example
from context_bench.sandbox.workspace_files import git

_NEEDED = ("instance_id", "repo", "base_commit", "problem_statement")


def read_row(row: Mapping[str, Any], where: str, repos: str | Path | None, test_command: str = "") -> Example:
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


# Harbor

_TABLES = {"verifier", "agent", "environment", "solution"}
#: Images that hold nothing a task could be about but a system, a shell and perhaps Python.
_BASES = re.compile(
    r"(?:docker\.io/(?:library/)?)?(?:python|debian|ubuntu|alpine|busybox|bash|buildpack-deps)(?::[\w.-]+)?(?:@sha256:\w+)?",
    re.ASCII,
)
_HARMLESS = {"LABEL", "MAINTAINER", "CMD", "ENTRYPOINT", "EXPOSE", "SHELL"}
_WORKDIR = "/app"


def is_harbor(place: Path) -> bool:
    """True if a folder with a task.toml is in this format."""
    if (place / "tests" / "test.sh").is_file() or (place / "environment").is_dir():
        return True
    return bool(_TABLES & table(place / "task.toml").keys()) and "verify" not in table(place / "task.toml")


def read_harbor(place: Path) -> Example:
    """The task of one folder. Raises `BadSpec` if it is none, `NotHere` if it needs what is not here."""
    spec = table(place / "task.toml")
    faults = [f"there is no {name}" for name in ("instruction.md", "tests/test.sh") if not (place / name).is_file()]
    if faults:
        raise BadSpec(f"{place} (a Harbor task)", faults)
    environment, workdir, files = _environment(place / "environment", spec)
    verifier, agent, about = (_table(spec, name) for name in ("verifier", "agent", "metadata"))
    tests = {f"/tests/{name}": data for name, data in files_below(place / "tests").items()}
    verify: dict[str, Any] = {
        "files": {},
        "outside": tests,
        "command": "bash /tests/test.sh",
        "reward": "/logs/verifier/reward.txt",
        "timeout": _seconds(verifier, TEST_SECONDS),
    }
    shell = {name: str(value) for name, value in _table(verifier, "env").items() if "$" not in str(value)}
    if {**environment, **shell}:
        verify["env"] = {**environment, **shell}
    named = _table(spec, "task").get("name")
    solution = place / "solution" / "solve.sh"
    return task(
        str(named or place.name),
        (place / "instruction.md").read_text("utf-8"),
        {"kind": "files", "files": {name: {"base64": data} for name, data in files.items()}, "at": workdir},
        verify,
        "harbor",
        timeout=_seconds(agent, AGENT_SECONDS),
        env=environment,
        kind=about.get("category"),
        solution=packed(solution.read_bytes()) if solution.is_file() else None,
        notes=["its tests have no network here"]
        if _asks_network((place / "tests" / "test.sh").read_text("utf-8", "replace"))
        else [],
    )


def _table(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found = spec.get(name)
    return found if isinstance(found, dict) else {}


def _seconds(spec: dict[str, Any], default: float) -> float:
    return duration(spec.get("timeout_sec")) or default


def _asks_network(script: str) -> bool:
    return bool(
        re.search(r"\b(?:apt-get|apt|apk|curl|wget|uvx|pip3? install|uv (?:pip|tool|run)|npm|git clone)\b", script)
    )


def _environment(folder: Path, spec: dict[str, Any]) -> tuple[dict[str, str], str, dict[str, str]]:
    """(variables, working folder, files) that the agent begins with."""
    image = _table(spec, "environment").get("docker_image")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / name).is_file():
            raise NotHere("its environment is made of several containers (docker-compose)")
    dockerfile = folder / "Dockerfile"
    if not dockerfile.is_file():
        if image and not _BASES.fullmatch(str(image)):
            raise NotHere(f"it needs the image {image}")
        return {}, _WORKDIR, files_below(folder) if folder.is_dir() else {}
    return _plain(dockerfile.read_text("utf-8", "replace"), folder)


def _plain(text: str, folder: Path) -> tuple[dict[str, str], str, dict[str, str]]:
    """The settings of a Dockerfile without commands. Raises `NotHere` at the first thing that needs a real image."""
    variables: dict[str, str] = {}
    workdir, copies = "/", []
    joined = re.sub(r"\\\s*\n", " ", text)
    for line in (line.strip() for line in joined.splitlines()):
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM" and _BASES.fullmatch(rest.split()[0] if rest else ""):
            continue
        if word == "WORKDIR" and re.fullmatch(r"/[\w./-]+", rest):
            workdir = rest.rstrip("/")
        elif word == "ENV" and (pairs := _variables(rest)):
            variables |= pairs
        elif word in ("COPY", "ADD") and "--" not in rest and "://" not in rest and len(rest.split()) >= 2:
            copies.append((workdir, rest))
        elif word not in _HARMLESS:
            raise NotHere(f"its image has to be built ({word} {rest[:40]}{'…' if len(rest) > 40 else ''})")
    files: dict[str, str] = {}
    for base, rest in copies:
        files |= _copied(folder, base, rest, workdir)
    if workdir == "/" or workdir.split("/")[1] in (
        "usr",
        "bin",
        "lib",
        "lib64",
        "sbin",
        "etc",
        "proc",
        "dev",
        "tmp",
        "tests",
        "logs",
    ):
        raise NotHere(f"it works in {workdir}, which is this machine's own here")
    return variables, workdir, files


def _variables(rest: str) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError:
        return {}
    if len(words) == 2 and "=" not in words[0]:
        return {words[0]: words[1]}
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    return pairs if len(pairs) == len(words) and "$" not in rest else {}


def _copied(folder: Path, base: str, rest: str, workdir: str) -> dict[str, str]:
    """Files of one COPY, relative to the working folder. Raises `NotHere` where they would go elsewhere."""
    try:
        *sources, target = shlex.split(rest)
    except ValueError:
        raise NotHere(f"its COPY cannot be understood: {rest[:60]}") from None
    absolute = PurePosixPath(base, target)
    if not absolute.is_relative_to(workdir) or any(re.search(r"[*?\[$]|\.\.", part) for part in [*sources, target]):
        raise NotHere(f"its COPY {rest[:60]} goes outside {workdir} or has patterns")
    inside = absolute.relative_to(workdir).as_posix()
    files: dict[str, str] = {}
    for source in sources:
        path = folder / source.lstrip("/")
        if path.is_dir():
            found = {
                name: data for name, data in files_below(path).items() if source.strip("./") or name != "Dockerfile"
            }
            files |= {name if inside == "." else f"{inside}/{name}": data for name, data in found.items()}
        elif path.is_file():
            into_folder = inside == "." or target.endswith("/") or len(sources) > 1
            files[(path.name if inside == "." else f"{inside}/{path.name}") if into_folder else inside] = packed(
                path.read_bytes()
            )
        else:
            raise NotHere(f"its COPY names {source}, which is not in environment/")
    return files
