"""What `export` writes besides reports: whole rows with their examples and answers, for other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import Export, families, families_of
from context_bench.session.files import destination, say

if TYPE_CHECKING:
    from context_bench.core.records import EvalRow
    from context_bench.reports.inspect_log import LogFacts
    from context_bench.reports.json_out import Answered


_FIRST = 5  # so many damaged rows are named


class Damage:
    """Notes which rows of an export are damaged in the store, as they pass."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], str] = {}

    def of(self, whole: Iterable[Answered]) -> Iterator[Answered]:
        """The same rows, noted."""
        for each in whole:
            self.note(each.row)
            yield each

    def note(self, row: EvalRow) -> None:
        """Take one row; the same one again counts once."""
        from context_bench.engine.store.reading import DAMAGED

        if DAMAGED in row.errors:
            self._found[row.system, str(row.example_id), row.trial] = f"{row.example_id} ({row.system})"

    def say(self) -> None:
        """Say on stderr how many there are, and the first of them."""
        if not self._found:
            return
        first = ", ".join(list(self._found.values())[:_FIRST])
        number = len(self._found)
        rows = "1 row is damaged and is written as a failure" if number == 1 else f"{number:,} rows are damaged and are written as failures"
        say(f"{rows}: first ids {first}")


def export_rows(store: Any, record: Any, format: str, out: Path | None, system: str | None) -> None:  # noqa: A002
    """Write a stored run, or one of its systems, in one of `formats()`."""
    if system is not None and system not in record.systems:
        raise UnknownName("system", system, record.systems)
    damage = Damage()
    if format in _WRITERS:
        _WRITERS[format](store, record, out, system, damage)
    else:
        _of_family(format, _exports()[format], (store, record), out, system, damage)
    damage.say()


def _jsonl(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """The rows with question, context, answer, scores and their reasons, one JSON object a line."""
    from context_bench.reports.json_out import write_jsonl
    from context_bench.runner import answered

    with destination(out) as stream:
        write_jsonl(damage.of(answered(store, record.id, system)), stream)


def _parquet(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """The rows as one Parquet table, for data frames."""
    from context_bench.engine import rows
    from context_bench.reports.frames import write_parquet
    from context_bench.runner import answered

    if out is None and sys.stdout.isatty():
        raise BadInput("Parquet is not for terminals; give --out FILE.parquet")
    names = sorted({name for row in rows(store, record.id, system) for name in row.scores})
    with destination(out, "wb") as sink:
        write_parquet(damage.of(answered(store, record.id, system)), names, sink)


def _inspect(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """Inspect's logs (`.eval`), one for each system and dataset; its viewer and tools read them."""
    from context_bench.reports.inspect_log import write_log
    from context_bench.runner import answered

    logs = list(_logs(store, record, system))
    if not logs:
        raise BadInput(f"run {record.name} has no rows yet")
    one_file = out is not None and not out.is_dir() and out.suffix == ".json"
    if len(logs) > 1 and (out is None or one_file):
        raise BadInput(f"an Inspect log is one task on one model, and this run makes {len(logs)} of them: give --out DIR, or --system NAME")
    for facts in logs:
        place = out if out is None or one_file else out / facts.file_name
        mine = _of(facts)
        rows = (row for row in _rows(store, record, facts.system) if mine(row))
        whole = (each for each in damage.of(answered(store, record.id, facts.system, requests=True)) if mine(each.row))
        with destination(place) as stream:
            write_log(facts, rows, whole, stream)


def _logs(store: Any, record: Any, system: str | None) -> Iterator[LogFacts]:
    from context_bench import __version__
    from context_bench.reports.inspect_log import LogFacts

    for name in [system] if system else record.systems:
        for dataset in dict.fromkeys(row.dataset for row in _rows(store, record, name)):
            yield LogFacts(record.name, record.id, record.status, record.created, record.updated, name, dataset, __version__)


def _rows(store: Any, record: Any, system: str) -> Any:
    from context_bench.engine import rows

    return rows(store, record.id, system)


def _of(facts: LogFacts) -> Callable[[EvalRow], bool]:
    return lambda row: row.dataset == facts.dataset


def _of_family(format: str, export: Export, run: tuple[Any, Any], out: Path | None, system: str | None, damage: Damage) -> None:  # noqa: A002
    """A form that only runs of one family have."""
    from context_bench.runner import answered
    from context_bench.session.runs import result_of

    store, record = run
    result = result_of(store, record)
    if not any(format in family.exports for family in families_of(result.manifest)):
        raise BadInput(f"run {record.name} {export.refusal}")

    def answers(name: str | None) -> Iterator[Answered]:
        return damage.of(answered(store, record.id, name))

    with destination(out) as stream:
        export.write(result, answers, [system] if system else None, stream)
        stream.write("\n" if out is None and export.newline else "")


#: Forms that every run has.
_WRITERS: dict[str, Callable[[Any, Any, Path | None, str | None, Damage], None]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "inspect": _inspect,
}


def _exports() -> dict[str, Export]:
    return {name: export for family in families() for name, export in family.exports.items()}


def writers() -> dict[str, Callable[..., None]]:
    """Form of whole rows → the function that writes it: the forms of every run, then those of families."""
    return {**_WRITERS, **{name: export.write for name, export in _exports().items()}}


def formats() -> list[str]:
    """Every form of whole rows."""
    return list(writers())
