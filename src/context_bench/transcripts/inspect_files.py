"""Inspect's logs (inspect_ai): the JSON form, and the .eval form, a ZIP archive with one file per sample and epoch."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from context_bench.core.archive_errors import FAULTS
from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.transcripts.format import DOCUMENT_LIMIT, LogSource

#: The entry of one sample, or that of the main part of a large sample kept in pieces.
_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?:/sample)?\.json")
_HEADERS = ("header.json", "_journal/start.json")
_ATTACHED = "attachment://"
_ZSTD = 93  # the ZIP standard's number for it
_DEEPEST = 100  # levels of lists and dicts in which references are looked for
Skip = Callable[[str], None]


def is_document(first: Any) -> bool:
    """True for the JSON form."""
    return (
        isinstance(first, dict)
        and isinstance(first.get("eval"), dict)
        and any(key in first for key in ("samples", "plan", "status"))
    )


def is_archive(start: bytes) -> bool:
    """True for the first bytes of a ZIP archive."""
    return start.startswith(b"PK\x03\x04")


def holds_samples(path: Path) -> bool:
    """True for a ZIP archive with samples in it."""
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("samples/") for name in archive.namelist())
    except FAULTS:
        return False


def log_of(source: LogSource, skip: Skip | None = None) -> tuple[dict[str, Any], Iterator[Any]]:
    """The header of a log in either form (empty, if an archive has none), and its samples as they stand there.

    An entry of an archive that cannot be read raises `BadInput`, or is counted by `skip`.
    """
    if not zipfile.is_zipfile(source.path) and not _begins_as_archive(source.path):
        values = source.values()
        document = next(values, None)
        return document if isinstance(document, dict) else {}, _listed(chain([document], values))
    with _opened(source.path) as archive:
        names = dict.fromkeys(archive.namelist())
        place = next((name for name in _HEADERS if name in names), None)
        header = _entry(archive, place, source.path, skip) if place else None
    if place is None and skip is not None:
        skip("an entry that is not there")
    samples = _archived(source.path, sorted(filter(_is_sample, names), key=_order), skip)
    return header if isinstance(header, dict) else {}, samples


def _listed(documents: Iterable[Any]) -> Iterator[Any]:
    for document in documents:
        samples = document.get("samples") if isinstance(document, dict) else None
        yield from samples if isinstance(samples, list) else []


def _begins_as_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return is_archive(file.read(4))


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FAULTS as error:
        raise BadInput(f"{path} is a broken ZIP archive: {error}") from error


def _is_sample(name: str) -> bool:
    return _SAMPLE.fullmatch(name) is not None


def _order(name: str) -> tuple[int, int, str]:
    """By epoch, then by id, numbers by size: the order in which Inspect shows samples."""
    found = _SAMPLE.fullmatch(name)
    identity, epoch = (found["id"], found["epoch"]) if found else (name, "0")
    return _whole(epoch), _whole(identity), identity


def _whole(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 2**63


def _archived(path: Path, names: list[str], skip: Skip | None) -> Iterator[Any]:
    with _opened(path) as archive:
        for name in names:
            sample = _entry(archive, name, path, skip)
            if name.endswith("/sample.json") and isinstance(sample, dict):
                sample |= _pieces(archive, name.removesuffix("sample.json"), path, skip)
            if sample is not None or skip is None:
                yield sample


def _pieces(archive: zipfile.ZipFile, folder: str, path: Path, skip: Skip | None) -> dict[str, Any]:
    """Of a sample in pieces, what is not in its `sample.json` and needed here: metadata, and texts that are referred to
    by number.
    """
    found: dict[str, Any] = {}
    names = dict.fromkeys(archive.namelist())
    if f"{folder}metadata.json" in names:
        found["metadata"] = _entry(archive, f"{folder}metadata.json", path, skip)
    prefix = f"{folder}attachments/"
    attached: dict[str, Any] = {}
    for name in names:
        start = name.removeprefix(prefix).removesuffix(".json")
        if name.startswith(prefix) and start.isdigit():
            listed = _entry(archive, name, path, skip)
            attached |= {str(int(start) + i): item for i, item in enumerate(listed if isinstance(listed, list) else [])}
    return {**found, "attachments": attached}


def _entry(archive: zipfile.ZipFile, name: str, path: Path, skip: Skip | None) -> Any:
    """The JSON in an entry. An entry that says to be larger than any log is refused unread."""
    info = archive.getinfo(name)
    if info.file_size > DOCUMENT_LIMIT:
        if skip is not None:
            skip("an entry that is too large")
            return None
        raise BadInput(f"{path}: {name} would be {info.file_size:,} bytes; at most {DOCUMENT_LIMIT:,} are read")
    try:
        return load_json(_unpacked(archive, info))
    except FAULTS as error:
        if skip is not None:
            skip("an entry that cannot be read")
            return None
        raise BadInput(f"{path}: {name} cannot be read: {error}") from error


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The bytes of an entry. Inspect compresses with Zstandard, which the library knows only from Python 3.14 on."""
    if info.compress_type != _ZSTD:
        return archive.read(info)
    import zstandard

    file = archive.fp
    assert file is not None, "an archive that is being read is open"
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) != 30 or head[:4] != b"PK\x03\x04":
        raise ValueError("its header is broken")
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    try:
        with zstandard.ZstdDecompressor().stream_reader(
            file.read(info.compress_size), read_across_frames=True
        ) as reader:
            data: bytes = reader.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise ValueError("it is damaged: size or checksum differ")
    return data


def resolved(sample: Any, parts: Collection[str]) -> Any:
    """The sample with texts put back, in these parts of it, that are kept once and referred to."""
    attached = sample.get("attachments") if isinstance(sample, dict) else None
    if not isinstance(attached, dict) or not attached:
        return sample
    return {key: _put_back(value, attached) if key in parts else value for key, value in sample.items()}


def _put_back(value: Any, attached: dict[str, Any], depth: int = 0) -> Any:
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if depth == _DEEPEST:
        return value
    if isinstance(value, list):
        return [_put_back(item, attached, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _put_back(item, attached, depth + 1) for key, item in value.items()}
    return value
