"""Tasks for agents: an instruction, a repository to work in, and hidden tests that say whether it was done.

```python
from context_bench.agents.datasets import load_tasks

tasks = load_tasks("bundled:repo-tasks")      # or a folder of tasks, a task.toml, SWE-bench-like rows with repos=DIR
tasks.refused                                 # what was there but cannot be run here, each with the reason
```

A task is an example: `id`, `instruction` (also as `question`), `context` (empty), `repo` (see `sandbox.workspace`),
`verify` (see `sandbox.verify`), `timeout` (seconds for the agent), `task_source` (`folder`, `harbor`, `swe-bench`,
`bundled`), and where the source has them `setup`, `env`, `gold_patch`, `gold` (`init` and `add`: lists of file, first,
last), `cluster` (the repository), `kind`, `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from context_bench.agents.datasets import folder, published_tasks
from context_bench.agents.datasets.folder import NotHere, RefusedTask, Tasks
from context_bench.core.errors import BadInput, BadSpec, UnknownName
from context_bench.core.records import Example
from context_bench.datasets.readers import KINDS, rows_of

__all__ = ["BUNDLED", "SCRIPT", "RefusedTask", "Tasks", "load_tasks"]

BUNDLED = "bundled:repo-tasks"
_HERE = Path(__file__).with_name("bundled")
#: What the scripted model says to the bundled tasks: `scripted:` with this path.
SCRIPT = _HERE / "model.toml"
_Made = tuple[str, Callable[[], Example]]


def load_tasks(
    spec: str | Path, *, repos: str | Path | None = None, n: int | None = None, test_command: str = ""
) -> Tasks:
    """The tasks that `spec` names, at most `n`.

    `bundled:repo-tasks` (or `bundled:repo-tasks:ID,ID`); a folder with a `task.toml`, or of such folders, in our own
    simple form or in Harbor's; one `.toml` of our form; or rows like SWE-bench's (`.jsonl`, `.json`, `.parquet` …),
    whose repositories are looked for in the folder `repos` and whose tests are run with `test_command` where the rows
    name none and none can be guessed. What cannot be run here is left out and is in `refused`. Raises `BadInput` or
    `BadSpec` for what is no task, or if nothing is left.
    """
    if n is not None and n < 0:
        raise BadInput(f"n is {n}; expected the number of tasks wanted")
    text = str(spec)
    tasks = Tasks(source=text)
    for name, make in _found(text, repos, test_command):
        if n is not None and len(tasks) >= n:
            break
        try:
            tasks.append(make())
        except NotHere as reason:
            tasks.refused.append(RefusedTask(name, str(reason)))
    _distinct(tasks)
    if not tasks and tasks.refused:
        reasons = [f"{each.id}: {each.reason}" for each in tasks.refused[:10]]
        more = [f"… and {len(tasks.refused) - 10} more"] if len(tasks.refused) > 10 else []
        raise BadSpec(f"{text} (no task of {len(tasks.refused)} can be run here)", [*reasons, *more])
    return tasks


def _found(text: str, repos: str | Path | None, test_command: str) -> Iterator[_Made]:
    if text == BUNDLED or text.startswith(f"{BUNDLED}:"):
        yield from _bundled(text[len(BUNDLED) + 1 :])
        return
    path = Path(text)
    if path.is_dir():
        yield from _in_folder(path)
    elif not path.exists():
        raise BadInput(
            f"{text} is no folder or file; expected {BUNDLED}, a folder of tasks, a task.toml, or rows like SWE-bench's"
        )
    elif path.suffix == ".toml":
        yield path.stem, partial(folder.read, path)
    elif text.lower().removesuffix(".gz").removesuffix(".zst").endswith(KINDS):
        yield from _rows(path, repos, test_command)
    else:
        raise BadInput(f"{text} is a file of an unknown kind; expected .toml, .jsonl, .json or .parquet")


def _bundled(wanted: str) -> Iterator[_Made]:
    there = {path.stem: path for path in sorted(_HERE.glob("*.toml")) if path != SCRIPT}
    for name in wanted.split(",") if wanted else there:
        if name not in there:
            raise UnknownName("bundled task", name, there)
        yield name, partial(folder.read, there[name], source="bundled")


def _in_folder(path: Path) -> Iterator[_Made]:
    if (path / "task.toml").is_file():
        places = [path]
    else:
        places = sorted(place.parent for place in path.glob("*/task.toml"))
    if not places:
        raise BadInput(f"{path} has no task.toml, nor has any folder in it; expected a task or a folder of tasks")
    for place in places:
        yield (
            place.name,
            partial(published_tasks.read_harbor, place)
            if published_tasks.is_harbor(place)
            else partial(folder.read, place / "task.toml"),
        )


def _rows(path: Path, repos: str | Path | None, test_command: str) -> Iterator[_Made]:
    for number, row in enumerate(rows_of(path), start=1):
        where = f"{path}:{number}"
        yield str(row.get("instance_id") or where), partial(published_tasks.read_row, row, where, repos, test_command)


def _distinct(tasks: Iterable[Example]) -> None:
    seen = set()
    for each in tasks:
        if each["id"] in seen:
            raise BadInput(f"the task id {each['id']!r} is there twice; results could not be told apart")
        seen.add(each["id"])
