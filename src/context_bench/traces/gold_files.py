"""Gold of a data set, from the files it is published in: parquet (both layouts), JSONL or JSON, folders of `annot.json`, with a CSV beside.

Rows that cannot be used are counted by reason in `GoldSet.skipped`; a file that gives no gold at all is an error. An item of gold may carry
the text it means: `content_drift` tells where the repository says otherwise, because lines counted in another version would score the wrong
code.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.shell.repo import Repo
from context_bench.traces.gold import Gold, GoldItem, clean_path, gold_of_row, repo_of_row
from context_bench.transcripts.solved.record import id_forms


@dataclass(slots=True)
class GoldSet:
    """Golds by any of their ids. `skipped`: rows that could not be used, by reason; `repeated`: ids that came more than once (the first
    stays).
    """

    golds: list[Gold] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    _by_id: dict[str, Gold] = field(default_factory=dict, repr=False)

    def add(self, gold: Gold) -> None:
        """One more; the first of an instance stays."""
        if gold.instance_id in self._by_id:
            self.repeated.append(gold.instance_id)
            return
        self.golds.append(gold)
        for name in gold.ids or (gold.instance_id,):
            for form in id_forms(name):
                self._by_id.setdefault(form, gold)

    def find(self, *names: str | None) -> Gold | None:
        """The gold known by the first of these ids that is known, in any of its spellings."""
        for name in names:
            for form in id_forms(name) if name else ():
                if form in self._by_id:
                    return self._by_id[form]
        return None

    def __len__(self) -> int:
        return len(self.golds)

    def __iter__(self) -> Iterator[Gold]:
        return iter(self.golds)


@dataclass(frozen=True, slots=True)
class Drift:
    """Gold whose text is not at its lines. `moved`: the first line it is found at instead (`None`: nowhere, or in several places)."""

    file: str
    first: int
    last: int
    moved: int | None


def load_gold(path: str | Path, *, join: str | Path | None = None) -> GoldSet:
    """The gold in a file or folder. `join`: a CSV of the instances wanted, by id; it also fills in repository, commit and language.

    Raises `BadInput` if there is none to be found, naming what was wrong with the rows.
    """
    path = Path(path)
    if not path.exists():
        raise BadInput(f"{path}: no such gold (expected parquet, JSONL, JSON or a folder of annot.json)")
    out = GoldSet()
    for row, fault in _rows(path):
        if fault is not None:
            out.skipped[fault] += 1
            continue
        try:
            out.add(gold_of_row(row))
        except ValueError as error:
            out.skipped[_reason(str(error))] += 1
    if join is not None:
        out = _joined(out, Path(join))
    if not out.golds:
        faults = "; ".join(f"{reason} ({count}×)" for reason, count in out.skipped.most_common(5)) or "it holds no rows"
        raise BadInput(f"{path} gives no gold: {faults}")
    return out


def content_drift(gold: Gold, repo: Repo) -> list[Drift]:
    """The items of gold whose text is known and is not what the repository has at their lines; line ends and blanks at line ends do not
    count.
    """
    return [
        drift for item in gold.items if item.content and item.content.strip() and (drift := _drift(item, repo.blob(clean_path(item.file))))
    ]


def _drift(item: GoldItem, data: bytes | None) -> Drift | None:
    wanted = [line.rstrip() for line in (item.content or "").strip("\r\n").split("\n")]
    lines = [] if data is None else [line.rstrip() for line in data.decode("utf-8", "replace").split("\n")]
    there = lines[max(0, item.first - 1) : item.last]
    if _trimmed(there) == _trimmed(wanted):
        return None
    places = [n for n in range(len(lines) - len(wanted) + 1) if lines[n] == wanted[0] and lines[n : n + len(wanted)] == wanted]
    return Drift(item.file, item.first, item.last, places[0] + 1 if len(places) == 1 else None)


def _trimmed(lines: list[str]) -> list[str]:
    start, end = 0, len(lines)
    while start < end and not lines[start]:
        start += 1
    while end > start and not lines[end - 1]:
        end -= 1
    return lines[start:end]


def _rows(path: Path) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Rows of a file with what is wrong with each, if it cannot even be read."""
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders.sort()
            if "annot.json" in files:
                yield from _json_rows((Path(folder) / "annot.json").read_bytes())
        return
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"PAR1":
        yield from _parquet_rows(path)
    elif path.suffix.lower() == ".csv":
        raise BadInput(f"{path}: a CSV lists instances and holds no gold; give the gold, and this file as its join")
    else:
        yield from _lines_or_document(path)


def _lines_or_document(path: Path) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        by_line = isinstance(load_json(first), dict)
    except ValueError:
        by_line = False
    if not by_line:
        data = path.read_bytes()
        if data.strip():
            yield from _json_rows(data)
        return
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield from _json_rows(line)


def _json_rows(data: bytes) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    try:
        value = load_json(data)
    except ValueError:
        yield {}, "not JSON"
        return
    for row in value if isinstance(value, list) else [value]:
        yield (row, None) if isinstance(row, dict) else ({}, "not an object")


def _parquet_rows(path: Path) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = ("inst_id", "instance_id", "original_inst_id", "repo", "repo_url", "base_commit", "commit", "language", "source", "patch")
    try:
        file = pq.ParquetFile(path)
        columns = [
            name for name in file.schema_arrow.names if name in wanted or name.startswith("gold_") or name in ("init_ctx", "add_ctx")
        ]
        for batch in file.iter_batches(batch_size=64, columns=columns):
            for row in batch.to_pylist():
                yield row, None
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None


def _joined(golds: GoldSet, path: Path) -> GoldSet:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as CSV: {error}") from None
    if not rows or not {"instance_id", "inst_id", "original_inst_id"} & set(rows[0]):
        raise BadInput(f"{path} names no instances: expected a CSV with instance_id or original_inst_id")
    out = GoldSet(skipped=golds.skipped.copy(), repeated=list(golds.repeated))
    for row in rows:
        gold = golds.find(row.get("instance_id"), row.get("inst_id"), row.get("original_inst_id"))
        if gold is None:
            out.skipped["listed in the CSV, no gold"] += 1
            continue
        names = [row[key] for key in ("instance_id", "inst_id", "original_inst_id") if row.get(key)]
        out.add(
            replace(
                gold,
                ids=tuple(dict.fromkeys([*gold.ids, *names])),
                repo=gold.repo or repo_of_row(row),
                commit=gold.commit or row.get("commit") or None,
                language=gold.language or row.get("language") or None,
                source=gold.source or row.get("bench") or None,
            )
        )
    return out


def _reason(text: str) -> str:
    """An error without the instance it names, so that equal ones are counted together."""
    return re.sub(r"^gold of \S+ is empty", "gold is empty", text)[:200]


def faults(golds: Iterable[Gold], repo: Repo) -> Counter[str]:
    """`gold_content_mismatch` and `gold_missing_file`, counted over golds of one repository."""
    out: Counter[str] = Counter()
    for gold in golds:
        out["gold_content_mismatch"] += len(content_drift(gold, repo))
        out["gold_missing_file"] += len({item.file for item in gold.items if clean_path(item.file) not in repo.paths()})
    return +out
