"""One log file as a stream of JSON values: one per line, or one document over all lines. What is not JSON is counted, never raised upon."""

from __future__ import annotations

import codecs
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json

#: A document that is not one value per line is read whole, up to this size.
DOCUMENT_LIMIT = 1024 * 1024 * 1024
#: What a format is recognised by: so many values, or so many bytes of them.
SAMPLE = 400
SAMPLE_BYTES = 4 * 1024 * 1024

Place = tuple[int, int]  # of a value in its file: offset and length of its line in bytes (or index in the document, -1)


@dataclass
class Source:
    """A log file. `skipped` counts what was passed over since the last `fresh()`, by reason."""

    path: Path
    skipped: Counter[str] = field(default_factory=Counter)
    calls_only: bool = False
    """A trace is to be made: a reader may leave out what was said between the calls."""
    _document: list[Any] | None = field(default=None, repr=False)
    _by_lines: bool | None = field(default=None, repr=False)
    _begun: tuple[deque[tuple[Place, Any]], Iterator[tuple[Place, Any]], Counter[str]] | None = field(default=None, repr=False)
    """What `sample` read, the rest of the file, and what was skipped on the way: the first reading goes on from there."""

    def sample(self) -> list[Any]:
        """The first values of the file: what its format is recognised by."""
        before, self.skipped = self.skipped, Counter()
        rest = self._values()
        read: deque[tuple[Place, Any]] = deque()
        size = 0
        for place, value in rest:
            read.append((place, value))
            size += max(0, place[1])
            if len(read) == SAMPLE or size > SAMPLE_BYTES:
                break
        self._begun = (read, rest, self.skipped)
        self.skipped = before + self.skipped
        return [value for _, value in read]

    def values(self) -> Iterator[Any]:
        """Every value; each time from the beginning, with a new count of what was skipped."""
        return (value for _, value in self.placed())

    def placed(self) -> Iterator[tuple[Place, Any]]:
        """Every value with its place, by which `at` finds it again."""
        begun, self._begun = self._begun, None
        if begun is None:
            self.skipped = Counter()
            return self._values()
        read, rest, self.skipped = begun
        return chain((read.popleft() for _ in range(len(read))), rest)

    def at(self, places: list[Place]) -> Iterator[Any]:
        """The values at these places."""
        if self._document is not None:
            yield from (self._document[place] for place, _ in places)
            return
        with self._open() as file:
            for offset, length in places:
                file.seek(offset)
                yield _parsed(file.read(length))

    def skip(self, reason: str) -> None:
        """Count one value that the format has no use for."""
        self.skipped[reason] += 1

    def skipped_counts(self) -> dict[str, int]:
        """Reason → how many, sorted."""
        return dict(sorted(self.skipped.items()))

    def _open(self) -> Any:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error

    def _values(self) -> Iterator[tuple[Place, Any]]:
        if self._by_lines is None:
            self._by_lines = self._has_lines()
        if not self._by_lines:
            yield from (((index, -1), value) for index, value in enumerate(self._document or []))
            return
        try:
            with self._open() as file:
                offset = 0
                for line in file:
                    place, offset = (offset, len(line)), offset + len(line)
                    try:
                        value = _parsed(line)
                    except ValueError:
                        if line.strip():
                            self.skip("not JSON")
                        continue
                    yield place, value
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error

    def _has_lines(self) -> bool:
        """Whether the file has one value per line. A list or an indented document is read whole here, into `_document`."""
        with self._open() as file:
            first = next((line for line in file if line.strip()), b"")
        try:
            value = _parsed(first)
        except ValueError:
            return not self._read_document(first)
        if isinstance(value, list):
            self._document = value
            return False
        return True

    def _read_document(self, first: bytes) -> bool:
        """Read the file as one document, if it can be one; a torn first line of a file of lines makes it none."""
        if first.strip()[:1] not in (b"[", b"{") or self.path.stat().st_size > DOCUMENT_LIMIT:
            return False
        try:
            value = _parsed(self.path.read_bytes())
        except ValueError:
            return False
        self._document = value if isinstance(value, list) else [value]
        return True


def is_note(path: Path) -> bool:
    """Whether a file only describes a log that lies beside it (`agent-1.meta.json`, `agent-1.jsonl`): it is none itself."""
    return path.name.endswith(".meta.json") and path.with_name(path.name.removesuffix(".meta.json") + ".jsonl").is_file()


def _parsed(data: bytes) -> Any:
    """JSON of bytes in UTF-8, with or without a mark; `ValueError` if it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return load_json(data.removeprefix(codecs.BOM_UTF8).decode("utf-8"))
