"""Agents' logs read once: each format makes `record.Transcript`s, of which a session (`views`) and a trace (`logs.traces.transcribed`) are
two views.

A format is a module here with `NAME`, `sniff(peek)` and `transcripts(source)`. Both doors, `logs.read` for sessions and `logs.traces.read`
for traces, ask this registry first.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.source import Source

#: Formats in the order in which they are tried: those that are no JSON first, so that no database is searched for lines.
FORMATS: tuple[str, ...] = ("opencode_database", "aider", "opencode_export", "codex_bare", "swe_agent")
#: How files are called that are looked for in folders.
ENDINGS = (".jsonl", ".ndjson", ".json", ".traj", "opencode.db", ".aider.chat.history.md")
_START = 64 * 1024


@dataclass
class Peek:
    """What a format is recognised by: the file's first bytes, and the first JSON values, which are read when they are asked for."""

    source: Source
    start: bytes = b""
    _sample: list[Any] | None = field(default=None, repr=False)

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


def format_of(peek: Peek) -> Any:
    """The module of the format that the file has, or `None` if it has none of these."""
    return next((reader for reader in map(_module, FORMATS) if reader.sniff(peek)), None)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
