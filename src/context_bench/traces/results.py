"""The rows of scored traces on disk, and what `score_traces` gives back: they are read as often as wanted and never all held."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from context_bench.core.errors import BadInput
from context_bench.traces.gold_files import GoldSet
from context_bench.traces.rows import TraceRow

ROWS = "rows.jsonl"


@dataclass
class TraceResults:
    """The rows of `score_traces`, on disk; `rows()` reads them again and again. Used in a `with`, rows that were not to be kept go away.

    `golds`: what was asked for. `made`, `reused`: rows scored now, and taken from before. `unread`: files that hold no trace, by reason.
    """

    path: Path
    golds: GoldSet
    policy: str
    runs: list[str]
    made: int = 0
    reused: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    kept: bool = True
    seen: dict[str, set[str]] = field(default_factory=dict)
    repos: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    def rows(self, *, course: bool = True) -> Iterator[TraceRow]:
        """The rows in the order of the files. `course=False` leaves steps and file maps out, which is most of them."""
        return read_rows(self.path, course=course)

    @property
    def without_trace(self) -> dict[str, list[str]]:
        """By set: golds that no trace of it is about."""
        return {run: [one.instance_id for one in self.golds if one.instance_id not in self.seen.get(run, ())] for run in self.runs}

    def close(self) -> None:
        """Remove the rows, if they were not to be kept."""
        if not self.kept:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_rows(path: str | Path, *, course: bool = True) -> Iterator[TraceRow]:
    """The rows of a file of them, or of a folder that `score_traces` wrote; `BadInput` names a line that is none."""
    place = Path(path)
    place = place / ROWS if place.is_dir() else place
    try:
        file = place.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {place}: {error.strerror}; expected rows that `context-bench trace score` wrote") from None
    with file:
        for number, line in enumerate(file, 1):
            try:
                row = orjson.loads(line)
                if not course:
                    row.pop("steps", None)
                    row.pop("files", None)
                    (row.get("score") or {}).get("trajectory", {}).pop("steps", None)
                yield TraceRow.from_json(row)
            except (ValueError, AttributeError) as error:
                raise BadInput(f"{place}, line {number}: not a row of a scored trace ({str(error).splitlines()[0]:.200})") from None
