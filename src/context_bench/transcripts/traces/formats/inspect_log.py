"""Inspect AI's evaluation logs, version 2: a JSON document, or a `.eval` file (a zip with one JSON per sample)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.archive_errors import FAULTS
from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.numbers import moment
from context_bench.core.usage import INSPECT, usage_of
from context_bench.transcripts.source import DOCUMENT_LIMIT, Source
from context_bench.transcripts.traces.recording import Recording, mapping, run, sequence, texts
from context_bench.transcripts.values import text

NAME = "inspect"


def matches(sample: list[Any]) -> bool:
    """Whether the first object is such a log."""
    first = mapping(sample[0] if sample else None)
    return isinstance(first.get("eval"), Mapping) and isinstance(first.get("samples"), list)


def zipped(path: Path) -> bool:
    """Whether a file is a zip with samples."""
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("samples/") for name in archive.namelist())
    except FAULTS:
        return False


def recordings(source: Source) -> Iterator[Recording]:
    """One run per sample and epoch."""
    if zipped(source.path):
        yield from _archive(source)
        return
    for value in source.values():
        log = mapping(value)
        for sample in sequence(log.get("samples")):
            yield _run(mapping(sample), mapping(log.get("eval")))


def _archive(source: Source) -> Iterator[Recording]:
    try:
        with zipfile.ZipFile(source.path) as archive:
            header = mapping(mapping(_entry(archive, "header.json", source)).get("eval"))
            for name in sorted(archive.namelist()):
                if name.startswith("samples/") and name.endswith(".json") and (sample := mapping(_entry(archive, name, source))):
                    yield _run(sample, header)
    except FAULTS as error:
        raise BadInput(f"cannot read {source.path}: {error}") from error


def _entry(archive: zipfile.ZipFile, name: str, source: Source) -> Any:
    try:
        info = archive.getinfo(name)
        if info.file_size > DOCUMENT_LIMIT:
            source.skip("an entry that is too large")
            return None
        return load_json(archive.read(info).decode("utf-8"))
    except KeyError:
        source.skip("an entry that is not there")
    except FAULTS:
        source.skip("an entry that cannot be read")
    return None


def _run(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Recording:
    ident = sample.get("id")
    one = run("inspect", str(ident) if isinstance(ident, str | int) and ident != "" else None)
    one.head.model = text(header.get("model"))
    for event in map(mapping, sequence(sample.get("events"))):
        if event.get("event") == "tool":
            _tool(event, one)
        elif event.get("event") == "model":
            one.turns += 1
    for usage in mapping(sample.get("model_usage")).values():
        one.billed(usage_of(usage, INSPECT))
    return one


def _tool(event: Mapping[str, Any], one: Recording) -> None:
    t = one.at(moment(event.get("timestamp")))
    call = one.call(event.get("function"), event.get("arguments"), event.get("id"), t=t, place=text(event.get("uuid")))
    call.cut = bool(event.get("truncated"))
    call.sidechain = False
    error = mapping(event.get("error"))
    call.answer(texts(event.get("result")) or text(error.get("message")) or "", failed=True if error else None)
