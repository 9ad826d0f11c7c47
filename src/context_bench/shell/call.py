"""One simple command about to run, its inputs and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

from context_bench.shell.files import Files
from context_bench.shell.model import Stream

Status = int | None
Result = tuple[Stream, Status]
"""What a command shows, and its exit status (`None`: cannot be told)."""


@dataclass
class Call:
    """One simple command about to run."""

    name: str
    args: list[str]
    stdin: Stream | None
    files: Files

    def inputs(self, names: list[str]) -> tuple[list[tuple[str, Stream]], int]:
        """The named files that are there (or standard input, if none is named), and 1 if one is missing."""
        if not names:
            return [("", self.stdin or Stream())], 0
        found, status = [], 0
        for name in names:
            stream = (self.stdin or Stream()) if name == "-" else self.files.open(name)
            if stream is not None and len(names) > 1:
                self.files.budget.make(8 * len(stream.parts))
            if stream is None:
                status = 1
            else:
                found.append((name, stream))
        return found, status


def joined(streams: list[tuple[str, Stream]]) -> Stream:
    """All streams, one after the other."""
    out = Stream()
    for _, stream in streams:
        out.extend(stream)
    return out
