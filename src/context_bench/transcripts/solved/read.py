"""The door to reports on patches: any file or folder of them, recognised by what is in it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.read import seen
from context_bench.transcripts.solved.record import Outcome, Solved
from context_bench.transcripts.source import Source

#: Kinds of reports in the order in which they are tried, and in which they count where several name one id: verdicts before patches.
FORMATS: tuple[str, ...] = (
    "multi_swe_bench",
    "swe_bench_run",
    "swe_polybench",
    "harbor",
    "inspect_log",
    "swe_bench_instance",
    "swe_bench_pro",
    "predictions",
    "plain",
)
_RANKS = {name: rank for rank, name in enumerate((*(name for name in FORMATS if name != "predictions"), "predictions"))}
_ENDINGS = (".json", ".jsonl", ".ndjson", ".eval")
_ZIP = b"PK\x03\x04"
#: Files above this size in a folder are trajectories, not reports.
_FOLDER_LIMIT = 256 * 1024 * 1024


def load_solved(path: str | Path, *, scorer: str | None = None) -> Solved:
    """What became of the patches of a run, from a report or a folder of reports. Nothing is run.

    In a folder every file that is a report counts. An id that reports of several kinds name is taken from the kind closest to the verdict
    on the run; several reports of one kind on one id are its trials. `scorer`: the score of an Inspect log that is the verdict. Raises
    `BadInput` where there is no report, with what was seen.
    """
    place = Path(path)
    if not place.is_dir():
        name, found, source = _file(place, scorer)
        out = Solved(skipped=source.skipped)
        for one in found:
            out.add(one, name)
        if not out.outcomes:
            raise BadInput(f"{place}: a file of {_reader(name).NAME}, but no task in it; skipped: {dict(source.skipped) or 'nothing'}")
        return out
    return _folder(place, scorer)


def _folder(folder: Path, scorer: str | None) -> Solved:
    out, faults = Solved(), list[str]()
    found: dict[str, list[Outcome]] = {}
    for file in sorted(file for file in folder.rglob("*") if file.suffix.lower() in _ENDINGS and file.is_file()):
        if file.name == "infra_errors.json" or file.stat().st_size > _FOLDER_LIMIT:
            continue  # read with what it stands beside
        try:
            name, outcomes, source = _file(file, scorer)
        except BadInput as error:
            faults.append(str(error))
            out.skipped["not a report"] += 1
            continue
        found.setdefault(name, []).extend(outcomes)
        out.skipped.update(source.skipped)
    for name in sorted(found, key=_RANKS.__getitem__):
        for one in [one for one in found[name] if out.find(one.instance_id) is None]:
            out.add(one, name)
    if not out.outcomes:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(_ENDINGS)}"
        raise BadInput(f"no reports on patches in the folder {folder}:\n{why}")
    return out


def _file(path: Path, scorer: str | None) -> tuple[str, list[Outcome], Source]:
    source = Source(path)
    if _is_zip(path):
        return "inspect_log", list(_outcomes(source, "inspect_log", scorer)), source
    sample = source.sample()
    for name in FORMATS:
        if _reader(name).matches(sample):
            return name, list(_outcomes(source, name, scorer)), source
    raise BadInput(f"{path}: no report on patches: {seen(sample)}. Formats tried: {', '.join(FORMATS)}")


def _outcomes(source: Source, name: str, scorer: str | None) -> Iterator[Outcome]:
    reader = _reader(name)
    found: Iterator[Outcome] = reader.outcomes(source, scorer) if name == "inspect_log" else reader.outcomes(source)
    return found


def _reader(name: str) -> Any:
    return importlib.import_module(f"context_bench.transcripts.solved.{name}")


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _ZIP
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
