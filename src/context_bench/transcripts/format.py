"""Log files and their formats. A format is one value: a name, a way to recognise it, and a reader of the file. It
stands in a file of `formats/`, which nothing else has to name.

`LogSource` reads a file as a stream of JSON values: one a line, or one document over all lines. Values that are not
JSON are counted; none raises. A file that is packed (gzip, zstd) is unpacked first, as far as limits allow. The small
functions read values as logs write them: a text, an object or a list; anything else is `None`, or empty.
"""

from __future__ import annotations

import codecs
import os
import tempfile
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.keys import TooLarge, load_json
from context_bench.core.machine import file_bytes, opened

#: A document that is not one value per line is read whole, up to this size.
DOCUMENT_LIMIT = 1024 * 1024 * 1024
#: What a format is recognised by: so many values, or so many bytes of them.
SAMPLE = 400
SAMPLE_BYTES = 4 * 1024 * 1024
#: Why a damaged line is passed over.
NOT_JSON = "not JSON"
Place = tuple[int, int]  # of a value in its file: offset and length of its line in bytes (or index in the document, -1)


View = Literal["whole", "session", "trace"]


@dataclass
class LogSource:
    """A log file. `skipped` counts what was passed over since the last `fresh()`, by reason."""

    path: Path
    skipped: Counter[str] = field(default_factory=Counter)
    #: What is to be made of the file: a reader may leave out of its transcripts what this view has no use for.
    view: View = "whole"
    _document: list[Any] | None = field(default=None, repr=False)
    _by_lines: bool | None = field(default=None, repr=False)
    #: What `sample` read, the rest of the file, and what was skipped on the way: the first reading goes on from
    #: there.
    _begun: tuple[deque[tuple[Place, Any]], Iterator[tuple[Place, Any]], Counter[str]] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        self.path = unpacked(self.path)

    @property
    def stem(self) -> str:
        """Name of the file without its endings."""
        return Path(unpacked_name(self.path.name)).stem

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

    def rows(self, fits: Callable[[Mapping[str, Any]], bool], reason: str) -> Iterator[Mapping[str, Any]]:
        """The objects that fit; every other value is counted under this reason."""
        for row in map(mapping, self.values()):
            if fits(row):
                yield row
            else:
                self.skip(reason)

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
            return opened(self.path)
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
                            self.skip(NOT_JSON)
                        continue
                    yield place, value
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error

    def _has_lines(self) -> bool:
        """True if the file has one value per line. A list or an indented document is read whole here, into
        `_document`.
        """
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
            value = _parsed(file_bytes(self.path, DOCUMENT_LIMIT))
        except ValueError:
            return False
        self._document = value if isinstance(value, list) else [value]
        return True


#: Codings of packed logs by the bytes that such a file begins with, and how their names end.
_PACKED = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PACKINGS = (".gz", ".zst")
_PIECE = 1024 * 1024


class UnpackedLog(type(Path())):  # type: ignore[misc]
    """A packed log under its own name. What is read of it comes from an unpacked copy of the user's own (`plain`),
    which is gone with this path.
    """

    plain: str | None = None

    def __fspath__(self) -> str:
        return self.plain or str(self)


def unpacked(path: Path) -> Path:
    """The path itself, or that of a packed log as what it holds.

    Raises `BadInput` where that is more than `DOCUMENT_LIMIT`, too many times the file's own size, or broken.
    """
    if isinstance(path, UnpackedLog) and path.plain is not None:
        return path
    try:
        with opened(path) as file:
            start = file.read(4)
            coding = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
            return path if coding is None else _unpacked(path, file, start, coding)
    except OSError:  # whoever reads it will say so
        return path


def _unpacked(path: Path, file: Any, start: bytes, coding: str) -> Path:
    found = UnpackedLog(path)
    try:
        handle, found.plain = tempfile.mkstemp(prefix="context-bench-log-")
    except OSError as error:
        raise BadInput(f"{path} cannot be unpacked in {tempfile.gettempdir()}: {error.strerror or error}") from None
    gone = weakref.finalize(found, _removed, found.plain)
    try:
        _write_plain(handle, chain((start,), iter(partial(file.read, _PIECE), b"")), path, coding)
    except BaseException:
        gone()
        raise
    return found


def _write_plain(handle: int, packed: Iterable[bytes], path: Path, coding: str) -> None:
    from context_bench.llm.coding import Decoder, Undecodable

    decoder = Decoder(coding, DOCUMENT_LIMIT)
    try:
        with open(handle, "wb") as plain:
            for data in packed:
                for piece in decoder.pieces(data):
                    plain.write(piece)
    except TooLarge as error:
        raise BadInput(f"{path}: {error}; unpack it first if it is a log of yours") from None
    except Undecodable as error:
        raise BadInput(f"{path}: {error}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be unpacked in {tempfile.gettempdir()}: {error.strerror or error}") from None
    if not decoder.whole:
        raise BadInput(f"{path}: it ends in the middle: packed as {coding}, and not whole")


def plain_bytes(data: bytes, limit: int) -> bytes:
    """Unpack a log's bytes in memory. Raises `BadInput` beyond `limit`."""
    from context_bench.llm.coding import Undecodable, decode

    coding = next((name for magic, name in _PACKED.items() if data.startswith(magic)), "")
    try:
        return decode(data, coding, limit) if coding else data
    except (TooLarge, Undecodable) as error:
        raise BadInput(f"the log cannot be unpacked: {error}") from None


def _removed(plain: str) -> None:
    with suppress(OSError):
        os.unlink(plain)  # noqa: PTH108


def unpacked_name(name: str) -> str:
    """A file's name without the ending of a packing."""
    return next((name[: -len(end)] for end in PACKINGS if name.lower().endswith(end)), name)


def is_note(path: Path) -> bool:
    """True if a file only describes a log that lies beside it (`agent-1.meta.json`, `agent-1.jsonl`): it is none
    itself.
    """
    return (
        path.name.endswith(".meta.json") and path.with_name(path.name.removesuffix(".meta.json") + ".jsonl").is_file()
    )


def _parsed(data: bytes) -> Any:
    """JSON of bytes in UTF-8, with or without a mark; `ValueError` if it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return load_json(data.removeprefix(codecs.BOM_UTF8).decode("utf-8"))


#: Endings of files that are looked for in folders; `CALLS` are those of logs that hold tool calls alone.
ENDINGS = (".jsonl", ".ndjson", ".json", ".traj", "opencode.db", ".aider.chat.history.md")
CALLS = (*ENDINGS, ".eval", ".log", "patch_context.txt")
_START = 64 * 1024
T = TypeVar("T")


@dataclass
class Peek:
    """Evidence of a file's format: its first bytes, and its first JSON values, which are read when they are asked
    for.
    """

    source: LogSource
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

    @property
    def is_archive(self) -> bool:
        """True if the file begins as a ZIP archive does."""
        return self.start.startswith(b"PK\x03\x04")


def peek_at(source: LogSource) -> Peek:
    """The beginning of a file. `BadInput` if it cannot be read."""
    try:
        with opened(source.path) as file:
            return Peek(source, file.read(_START))
    except OSError as error:
        raise BadInput(f"cannot read {source.path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class Format(Generic[T]):
    """One format: a `FORMAT` gives transcripts, `ANSWERS` recorded answers, a `REPORT` verdicts on patches.

    `rank`: formats are tried from the lowest to the highest, the particular before the general. `conversation`: the log
    holds what the model was sent and said, so that a session of it can be sent again. `calls`: a trace can be made of
    it. `beside` names more files of the run that a file begins; `is_beside` recognises these. `is_part` recognises a
    file of a folder that is one run, and `of_folder` reads that folder. `by_score` reads the verdict by a score.
    `about`: what it is, in the reference; without it, the first words of its file.
    """

    name: str
    rank: int
    sniff: Callable[[Peek], bool]
    read: Callable[[LogSource], T]
    conversation: bool = False
    calls: bool = True
    beside: Callable[[LogSource], T] | None = None
    is_beside: Callable[[Path], bool] | None = None
    is_part: Callable[[Path], bool] | None = None
    of_folder: Callable[[Path], Any] | None = None
    by_score: Callable[[LogSource, str | None], T] | None = None
    about: str = ""


@cache
def formats_in(constant: str) -> dict[str, Format[Any]]:
    """The formats of one kind by name, in the order in which they are tried.

    A file's constant is one format, which has the file's name, or a dict of several by name. A file without this
    constant is not loaded.
    """
    found: dict[str, Format[Any]] = {}
    for file in sorted(Path(__file__).with_name("formats").glob("*.py")):
        if f"\n{constant} = " in file.read_text("utf-8"):
            declared = getattr(import_module(f"{__package__}.formats.{file.stem}"), constant)
            found |= declared if isinstance(declared, dict) else {file.stem: declared}
    return dict(sorted(found.items(), key=lambda pair: pair[1].rank))


_TRIED = ". Formats tried: "


def recognised(peek: Peek, formats: Mapping[str, Format[T]], refusal: str) -> tuple[str, Format[T]]:
    """The name and the first of these formats that recognises the file. `BadInput` for a file of none."""
    found = next(((name, one) for name, one in formats.items() if one.sniff(peek)), None)
    if found is None:
        raise BadInput(f"{peek.path}: {refusal}: {sample_text(peek.sample)}{_TRIED}{', '.join(formats)}")
    return found


def read_each(
    paths: Iterable[Path],
    read: Callable[[Path], Iterable[T]],
    refusal: str,
    *,
    endings: Iterable[str],
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[T]:
    """Contents of the files in a folder. A file that cannot be read is reported to `on_skip`; if all files are such,
    `BadInput` says why. `endings`: of the files that were looked for.
    """
    empty, faults = True, list[BadInput]()
    for path in paths:
        try:
            for content in read(path):
                empty = False
                yield content
        except BadInput as error:
            reason, tried, _ = str(error).partition(_TRIED)  # the formats tried are the same for all files
            faults.append(BadInput(reason) if tried else error)
            if on_skip:
                on_skip(faults[-1])
    if empty:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(endings)}"
        raise BadInput(f"{refusal}:\n{why}")


def text(value: Any) -> str | None:
    """`value` if it is text with anything in it."""
    return value if isinstance(value, str) and value else None


def parsed(value: Any) -> Any:
    """Arguments as the model wrote them: JSON text becomes what it says, other text stays."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return load_json(value)
        except ValueError:
            return value
    return value


def texts(content: Any, depth: int = 0) -> str | None:
    """The text of a result: a text, or the text parts of a list of parts; `None` where there is none."""
    if isinstance(content, str):
        return content
    if depth > 4:
        return None
    if isinstance(content, Mapping):
        return texts(content.get("text", content.get("content")), depth + 1)
    if isinstance(content, list):
        found = [text for part in content if (text := texts(part, depth + 1)) is not None]
        return "\n".join(found) if found else None
    return None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def sample_text(sample: list[Any]) -> str:
    """Describe the content of a file that could not be read, in a few words."""
    if not sample:
        return "no line of it is JSON"
    first = sample[0]
    if isinstance(first, dict):
        return f"the first keys are {', '.join(repr(str(key))[:40] for key in list(first)[:8]) or 'none'}"
    return f"the first value is a JSON {type(first).__name__}"
