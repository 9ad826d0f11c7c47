"""Rows from files, one batch at a time, however large the file.

| name ends in | rows |
|---|---|
| `.parquet` | as they are |
| `.jsonl`, `.ndjson` | one object per line |
| `.json` | one object per line, or a list of objects, or one object with such a list as `data`, `rows`, `examples` … |
| `.csv`, `.tsv` | by their header line; every value is text |
| `.txt` | one row, with the whole as `text` |
| `.src`, `.tgt`, `.cleaned` | one line of plain `text` per row |
| `.gz`, `.zst` after one of these (not Parquet) | unpacked while reading |
| `.zip!PATTERN` | those of all files inside that match |
"""

from __future__ import annotations

import codecs
import csv
import fnmatch
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, AnyStr, NamedTuple, cast

from context_bench.core.errors import BadInput, archive_faults, needed
from context_bench.core.machine import opened


class LineOfJson(NamedTuple):
    """One line of a file that is not blank, as it stands there but for a byte-order mark. `number` counts from 1."""

    number: int
    text: bytes


def lines_of_json(path: Path) -> Generator[LineOfJson, None, None]:
    """Every line of a file that is not blank. A byte-order mark and CRLF are fine."""
    try:
        with opened(path) as file:
            yield from _lines_of_json(_bounded(file, str(path)), str(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error


def json_line(line: LineOfJson, path: Path | str) -> dict[str, Any]:
    r"""The object on a line. Lone surrogates (`"\ud800"`) survive; NaN and Infinity, which are not JSON, become
    null.
    """
    return _object(_decoded(line.text, str(path), line.number).strip(), str(path), line.number)


#: The largest line, cell, item or document that is read, in bytes or characters: a small packed file can hold one
#: without an end.
PIECE_LIMIT = 2**28


def _bounded(file: IO[AnyStr], where: str) -> Iterator[AnyStr]:
    """The lines of a file of bytes or text, none of them longer than `PIECE_LIMIT`."""
    number = 0
    while line := file.readline(PIECE_LIMIT + 1):
        number += 1
        if len(line) > PIECE_LIMIT:
            raise _too_large(where, f"line {number}")
        yield line


def _too_large(where: str, what: str) -> BadInput:
    return BadInput(f"{where}: {what} is larger than {PIECE_LIMIT // 2**20} MiB; that is no data set's row")


def _lines_of_json(file: Iterable[bytes], path: str) -> Iterator[LineOfJson]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        # Nearly every line begins like an object; what else is blank is known when it is decoded.
        if text.startswith(b"{") or (not text.isspace() and _decoded(text, path, number).strip()):
            yield LineOfJson(number, text)


def _json_rows(file: Iterable[bytes], path: str) -> Iterator[dict[str, Any]]:
    return (json_line(line, path) for line in _lines_of_json(file, path))


def _decoded(line: bytes, path: str, number: int) -> str:
    if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{path}:1: the file is in UTF-16; save it as UTF-8")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8"
        ) from error


#: Made once: `json.loads` makes one for every line.
_JSON = json.JSONDecoder(parse_constant=lambda _: None)


def _object(text: str, path: str, number: int) -> dict[str, Any]:
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        hint = " A list over several lines? Write one object per line." if text[:1] == "[" else ""
        raise BadInput(f"{path}:{number}: not JSON ({_reason(error)}): {shown!r}.{hint}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path}:{number}: expected one JSON object per line, found {type(value).__name__}")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def parquet_rows(path: Path, batch: int = 64) -> Iterator[dict[str, Any]]:
    """Rows of a Parquet file as dicts, read `batch` at a time."""
    parquet = needed("pyarrow.parquet", f"the Parquet file {path.name}", "parquet")
    import pyarrow

    try:
        with parquet.ParquetFile(path) as file:
            for rows in file.iter_batches(batch_size=batch):
                yield from rows.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{path} is not a readable Parquet file: {error}") from error


def rows_of(path: Path, name: str | None = None, batch: int = 64) -> Iterator[dict[str, Any]]:
    """Rows of a data file, read by what its name ends in (`name` where the file itself is stored under another).

    Raises `BadInput`, naming file and line, for what is not what the name says.
    """
    called = name or path.name
    if called.lower().endswith(".parquet"):
        yield from parquet_rows(path, batch)
        return
    try:
        with opened(path) as file:
            yield from rows_from(file, called, str(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error


def rows_from(file: IO[bytes], name: str, where: str = "") -> Iterator[dict[str, Any]]:
    """Rows of an open file called `name`, of any kind but Parquet; no more is read than the rows taken need.

    `where` is what messages call it. Raises `BadInput`.
    """
    shown = where or name
    outer, zipped, inside = name.partition("!")
    if zipped:
        yield from _zipped(file, inside, shown)
        return
    lower = outer.lower()
    try:
        if lower.endswith(".gz"):
            with gzip.open(file) as plain:
                yield from rows_from(cast("IO[bytes]", plain), outer[:-3], shown)
        elif lower.endswith(".zst"):
            yield from _zstd(file, outer[:-4], shown)
        else:
            yield from _plain(file, lower, shown)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{shown} is damaged: {error}") from error


def _zstd(file: IO[bytes], name: str, where: str) -> Iterator[dict[str, Any]]:
    import zstandard

    try:
        with (
            zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
            io.BufferedReader(stream) as plain,
        ):
            yield from rows_from(plain, name, where)
    except zstandard.ZstdError as error:
        raise BadInput(f"{where} is damaged: {error}") from error


def _plain(file: IO[bytes], name: str, where: str) -> Iterator[dict[str, Any]]:
    if name.endswith((".jsonl", ".ndjson")):
        return _json_rows(_bounded(file, where), where)
    if name.endswith(".json"):
        return _json(file, where)
    if name.endswith((".csv", ".tsv")):
        return _table(file, where, "\t" if name.endswith(".tsv") else ",")
    if name.endswith(".txt"):
        data = file.read(PIECE_LIMIT + 1)
        if len(data) > PIECE_LIMIT:
            raise _too_large(where, "the text")
        return iter([{"text": _text(data, where)}])
    if name.endswith((".src", ".tgt", ".cleaned")):
        return (
            {"text": _decoded(line, where, number).rstrip("\r\n")}
            for number, line in enumerate(_bounded(file, where), 1)
        )
    ends = "nothing" if "." not in name else f".{name.rpartition('.')[2]}"
    raise BadInput(f"{where}: data files end in {', '.join(KINDS)} (or .gz, .zst after one of these), not {ends}")


KINDS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")


def _zipped(file: IO[bytes], pattern: str, where: str) -> Iterator[dict[str, Any]]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = sorted(name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern))
            if not members:
                there = ", ".join(sorted(archive.namelist())[:10]) or "nothing"
                raise BadInput(f"{where} holds no {pattern!r}; there are: {there}")
            for member in members:
                with archive.open(member) as plain:
                    yield from rows_from(plain, member, f"{where}!{member}")
    except archive_faults() as error:
        raise BadInput(f"{where} is not a readable zip archive: {error}") from error


def _json(file: IO[bytes], where: str) -> Iterator[dict[str, Any]]:
    """A list of objects, read as far as it is wanted; else one object per line or one document, told apart by the first
    line.
    """
    head = b""
    while (len(head) < len(codecs.BOM_UTF8) or not _begun(head)) and (more := file.read(_next(len(head)))):
        head += more
        if len(head) > PIECE_LIMIT:
            raise _too_large(where, "the space before the first value")
    head = head.removeprefix(codecs.BOM_UTF8)
    if head.lstrip().startswith(b"["):
        yield from _array(head.lstrip()[1:], file, where)
        return
    lines, begun = _lines(head, file, where), []
    filled = 0
    for line in lines:
        begun.append(line)
        filled += bool(line.strip())
        if filled == 2:
            break
    first = next((line for line in begun if line.strip()), b"")
    if _is_object(first) and begun[-1].strip() and begun[-1] is not first:
        yield from _json_rows(chain(begun, lines), where)
    else:
        yield from _documents(_text(b"".join([*begun, *lines]), where), where)


def _begun(head: bytes) -> bytes:
    return head.removeprefix(codecs.BOM_UTF8).lstrip()


def _lines(head: bytes, file: IO[bytes], where: str) -> Iterator[bytes]:
    rest = head
    while True:
        *whole, rest = rest.split(b"\n")
        yield from (line + b"\n" for line in whole)
        if len(rest) > PIECE_LIMIT:
            raise _too_large(where, "a line")
        if not (more := file.read(_next(len(rest)))):
            break
        rest += more
    if rest:
        yield rest


_CHUNK = 2**16


def _next(held: int) -> int:
    """Number of bytes to read when `held` bytes were not enough: as much again, within bounds."""
    return min(max(_CHUNK, held), PIECE_LIMIT // 8)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _array(head: bytes, file: IO[bytes], where: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list whose `[` is behind us. What is held in memory grows with one object, not with the
    list.
    """
    decode = codecs.getincrementaldecoder("utf-8")().decode
    parse = _JSON.raw_decode
    number, ended, between = 0, False, False
    at = 0  # what is before it is done with; to take that away after each item would copy the rest as often
    try:
        text = decode(head)
        while True:
            at = _after_blanks(text, at)
            if text.startswith("]", at):
                return
            if between and at < len(text):
                if not text.startswith(",", at):
                    raise BadInput(f"{where}: not JSON after item {number} of the list (expected a comma or a bracket)")
                at, between = _after_blanks(text, at + 1), False
            try:
                value, end = parse(text, at)
            except (ValueError, RecursionError) as error:
                if at:
                    text, at = text[at:], 0
                    continue
                if ended:
                    raise BadInput(f"{where}: not JSON in item {number + 1} of the list ({_reason(error)})") from error
                if len(text) > PIECE_LIMIT:
                    raise _too_large(where, f"item {number + 1} of the list") from error
                more = file.read(_next(len(text)))
                text, ended = text + decode(more, not more), not more
                continue
            if not isinstance(value, dict):
                raise BadInput(f"{where}: item {number + 1} of the list is {type(value).__name__}; expected an object")
            yield value
            number, at, between = number + 1, end, True
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: item {number + 1} of the list is not UTF-8; save the file as UTF-8") from error


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _documents(text: str, where: str) -> Iterator[dict[str, Any]]:
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not JSON ({_reason(error)})") from error
    if not isinstance(value, dict):
        raise BadInput(f"{where}: expected one JSON object per line or a list of objects, found {type(value).__name__}")
    lists = [v for k in _WRAPPERS if isinstance(v := value.get(k), list) and all(isinstance(item, dict) for item in v)]
    yield from lists[0] if lists else [value]


_BLANKS = re.compile(r"\s*")
_WRAPPERS = ("data", "rows", "examples", "instances", "items", "records")


def _table(file: IO[bytes], where: str, delimiter: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(PIECE_LIMIT)  # whole documents stand in single cells
    lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    reader = csv.DictReader(_bounded(lines, where), delimiter=delimiter, strict=True)
    try:
        if not reader.fieldnames or len(set(reader.fieldnames)) != len(reader.fieldnames):
            raise BadInput(f"{where}: the first line must name the columns, each once; found {reader.fieldnames}")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput(
                    f"{where}:{reader.line_num}: this row has not the {len(reader.fieldnames)} values of the header"
                )
            yield dict(row)
    except csv.Error as error:
        raise BadInput(f"{where}:{reader.line_num}: not CSV ({error})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 after line {reader.line_num}; save the file as UTF-8") from error
    finally:
        lines.detach()  # the file is its opener's to close


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error
