"""A log format as one value: a name, a way to recognise it, and a reader that makes transcripts of a file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from context_bench.core.errors import BadInput
from context_bench.transcripts.source import Source

#: Endings of files that are looked for in folders; `CALLS` are those of logs that hold tool calls alone.
ENDINGS = (".jsonl", ".ndjson", ".json", ".traj", "opencode.db", ".aider.chat.history.md")
CALLS = (*ENDINGS, ".eval", ".log", "patch_context.txt")
_START = 64 * 1024
T = TypeVar("T")


@dataclass
class Peek:
    """Evidence of a file's format: its first bytes, and its first JSON values, which are read when they are asked for."""

    source: Source
    start: bytes = b""
    _sample: list[Any] | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path

    @property
    def sample(self) -> list[Any]:
        """The first values of the file."""
        if self._sample is None:
            self._sample = self.source.sample()
        return self._sample

    @property
    def first(self) -> dict[str, Any]:
        """The first value, if it is an object; else an empty one."""
        value = self.sample[0] if self.sample else None
        return value if isinstance(value, dict) else {}


def peek_at(source: Source) -> Peek:
    """The beginning of a file. `BadInput` if it cannot be read."""
    try:
        with source.path.open("rb") as file:
            return Peek(source, file.read(_START))
    except OSError as error:
        raise BadInput(f"cannot read {source.path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Format(Generic[T]):
    """One format. Its module holds it as `FORMAT`; nothing else has to name it.

    `rank`: formats are tried from the lowest to the highest, the particular before the general. `conversation`: the log holds what the
    model was sent and said, so that a session of it can be sent again. `calls`: a trace can be made of it. `beside` names more files
    of the run that a file begins; `is_beside` recognises these. `is_part` recognises a file of a folder that is one run, and `of_folder`
    reads that folder.
    """

    name: str
    rank: int
    sniff: Callable[[Peek], bool]
    read: Callable[[Source], T]
    conversation: bool = False
    calls: bool = True
    beside: Callable[[Source], T] | None = None
    is_beside: Callable[[Path], bool] | None = None
    is_part: Callable[[Path], bool] | None = None
    of_folder: Callable[[Path], Any] | None = None


@cache
def formats_in(package: str) -> dict[str, Format[Any]]:
    """Every format in a package by its module's name, in the order in which they are tried."""
    names = [f"{package}.{module.name}" for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    found = {name: getattr(importlib.import_module(name), "FORMAT", None) for name in names}
    listed = [(name.rpartition(".")[2], one) for name, one in found.items() if isinstance(one, Format)]
    return dict(sorted(listed, key=lambda pair: pair[1].rank))


def format_of(peek: Peek, formats: Iterable[Format[T]]) -> Format[T] | None:
    """The first of these formats that recognises the file."""
    return next((one for one in formats if one.sniff(peek)), None)
