"""Verdicts of harnesses on patches: the solved tasks of a run, from any report of §11 of the specification of traces.

Nothing is run here. `load_solved` reads a report, or a folder of them, recognised by their content. `Solved.find` joins
by id, in any spelling of the id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from context_bench.core.errors import BadInput
from context_bench.transcripts.format import Format, LogSource, format_of, formats_in, peek_at, sample_text
from context_bench.transcripts.solved import inspect_log
from context_bench.transcripts.solved.patch_reports import PatchOutcome, Solved

__all__ = ["Outcome", "Solved", "formats", "load_solved"]

_ENDINGS = (".json", ".jsonl", ".ndjson", ".eval")
#: Files above this size in a folder are trajectories, not reports.
_FOLDER_LIMIT = 256 * 1024 * 1024


def formats() -> dict[str, Format[Iterator[PatchOutcome]]]:
    """Every kind of report by its module's name, in the order in which they are tried.

    In the same order they count where several name one id: the closest to the verdict first; predictions, which have
    none, last.
    """
    return formats_in(__name__)


def load_solved(path: str | Path, *, scorer: str | None = None) -> Solved:
    """Load the verdicts on the patches of a run, from a report or a folder of reports. Nothing is run.

    In a folder every file that is a report counts. An id that reports of several kinds name is taken from the kind
    closest to the verdict on the run; several reports of one kind on one id are its trials. `scorer`: the score of an
    Inspect log that is the verdict. Raises `BadInput` where there is no report, with what was seen.
    """
    place = Path(path)
    if not place.is_dir():
        name, found, source = _file(place, scorer)
        out = Solved(skipped=source.skipped)
        for one in found:
            out.add(one, name)
        if not out.outcomes:
            raise BadInput(
                f"{place}: a file of {formats()[name].name}, but no task in it; skipped: "
                f"{dict(source.skipped) or 'nothing'}"
            )
        return out
    return _folder(place, scorer)


def _folder(folder: Path, scorer: str | None) -> Solved:
    out, faults = Solved(), list[str]()
    found: dict[str, list[PatchOutcome]] = {}
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
    for name in sorted(found, key=lambda name: (name == "predictions", formats()[name].rank)):
        for one in [one for one in found[name] if out.find(one.instance_id) is None]:
            out.add(one, name)
    if not out.outcomes:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(_ENDINGS)}"
        raise BadInput(f"no reports on patches in the folder {folder}:\n{why}")
    return out


def _file(path: Path, scorer: str | None) -> tuple[str, list[PatchOutcome], LogSource]:
    peek, known = peek_at(LogSource(path)), formats()
    found = format_of(peek, known.values())
    if found is None:
        raise BadInput(f"{path}: no report on patches: {sample_text(peek.sample)}. Formats tried: {', '.join(known)}")
    scored = found is inspect_log.FORMAT and scorer is not None
    outcomes = list(inspect_log.read(peek.source, scorer) if scored else found.read(peek.source))
    return next(name for name, one in known.items() if one is found), outcomes, peek.source
