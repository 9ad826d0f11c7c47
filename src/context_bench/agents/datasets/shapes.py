"""A list of tasks, and what was not taken into it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_bench.core.errors import ContextBenchError
from context_bench.core.records import Example

#: Seconds for an agent and for its tests where a task does not say.
AGENT_SECONDS, TEST_SECONDS = 1800.0, 600.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A task that cannot be run here, and why."""

    id: str
    reason: str


class NotHere(ContextBenchError):
    """Raised by readers for a task that is in order but cannot be run on this machine."""


class Tasks(list[Example]):
    """Tasks as examples, in order; `refused`: those that were left out, each with its reason; `source`: what was asked for."""

    def __init__(self, tasks: Iterable[Example] = (), refused: Iterable[Refused] = (), source: str = "") -> None:
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


def task(name: str, instruction: str, repo: dict[str, Any], verify: dict[str, Any], source: str, **more: Any) -> Example:
    """An example from its parts; what is None or empty among `more` is left out."""
    example: Example = {"id": name, "instruction": instruction, "question": instruction, "context": "", "repo": repo, "verify": verify}
    example |= {"task_source": source, "timeout": AGENT_SECONDS}
    return example | {key: value for key, value in more.items() if value not in (None, "", [], {})}
