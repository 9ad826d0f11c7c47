"""Gold: the code to be read for a task, and the files of a data set that hold it.

`init` is the region that had to be edited, `add` the code to be known for it. A gold is never silently empty:
`gold_of_row` raises `ValueError` for a row that names none.

Files may be parquet (both layouts), JSONL or JSON, or folders of `annot.json`, with a CSV beside. Rows that cannot be
used are counted by reason in `GoldSet.skipped`; a file that gives no gold is an error. An item of gold may carry the
text it means: `content_drift` lists the items whose text differs in the repository, because lines counted in another
version would score the wrong code.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, needed
from context_bench.core.keys import load_json
from context_bench.core.machine import file_bytes, opened
from context_bench.core.numbers import line
from context_bench.shell.repo import Repo
from context_bench.transcripts.harness_results import id_forms as id_forms

_CONTAINER = re.compile(r"/testbed/|/workspace/[^/]+/")
_BLOCK = re.compile(r"^\s*context\s*\d+\s*[:：]", re.MULTILINE | re.IGNORECASE)
_FIELD = re.compile(r"^\s*(file|lines?|start_line|end_line|content)\s*[:：][ \t]*(.*)$", re.IGNORECASE)
_LINES = re.compile(r"(\d+)\s*[-–,:]\s*(\d+)|(\d+)")
_INSTANCE = re.compile(
    r"^(?:instance_)?([A-Za-z0-9.-]+(?:_[A-Za-z0-9.-]+)*?)__([A-Za-z0-9_.-]+?)-(?:\d+|[0-9a-f]{40}(?:-v.*)?)$"
)


@dataclass(frozen=True, slots=True)
class GoldItem:
    """Lines `first` to `last` of a file, from 1, both included; `content` is their text where the data set gives it."""

    file: str
    first: int
    last: int
    content: str | None = None


@dataclass(slots=True)
class Gold:
    """The code to be read for one task. `ids`: every id of the task. `patch`: the reference solution."""

    instance_id: str
    init: list[GoldItem] = field(default_factory=list)
    add: list[GoldItem] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    repo: str | None = None
    commit: str | None = None
    patch: str | None = None
    language: str | None = None
    source: str | None = None

    @property
    def items(self) -> list[GoldItem]:
        """Everything: the region to edit, then what had to be known."""
        return [*self.init, *self.add]


def gold_of_row(row: Mapping[str, Any]) -> Gold:
    """The gold of one row of a published table, of JSONL or of an `annot.json`.

    Contexts are taken from `init_ctx` and `add_ctx`; from `gold_ctx` or `gold_context` (a list, JSON text of one, or
    blocks of text) only where both are empty. Raises `ValueError` where there is no id, no context, or a context that
    cannot be understood.
    """
    names = [str(row[key]) for key in ("inst_id", "instance_id", "original_inst_id") if row.get(key)]
    if not names:
        raise ValueError("a gold row names no instance: expected inst_id, instance_id or original_inst_id")
    init, add = _items(row.get("init_ctx")), _items(row.get("add_ctx"))
    if not init and not add:
        init = _items(row.get("gold_ctx")) or _items(row.get("gold_context"))
    if not init and not add:
        raise ValueError(f"gold of {names[0]} is empty: no context in init_ctx, add_ctx, gold_ctx or gold_context")
    return Gold(
        names[0],
        init,
        add,
        tuple(dict.fromkeys(names)),
        repo_of_row(row),
        _text(row.get("commit") or row.get("base_commit")),
        _text(row.get("patch")),
        _text(row.get("language")),
        _text(row.get("source")),
    )


def repo_of_row(row: Mapping[str, Any]) -> str | None:
    """`owner/name` of a row, from its repository, its address or its id; `name` alone where none names the owner,
    `None` without any.
    """
    named = [slug for key in ("repo", "repo_url") if (slug := _slug(_text(row.get(key)) or ""))]
    if whole := next((slug for slug in named if "/" in slug), None):
        return whole
    for key in ("original_inst_id", "instance_id", "inst_id"):
        match = _INSTANCE.match(str(row.get(key) or ""))
        if match and match[2].casefold() in [name.casefold() for name in named or [match[2]]]:
            return f"{match[1]}/{match[2]}"
    return named[0] if named else None


def _slug(address: str) -> str:
    """`owner/name` of an address or a folder's name."""
    slug = address.rstrip("/").removesuffix(".git")
    if slug.startswith("git@"):
        slug = slug.split("://", 1)[-1].split(":", 1)[-1]
    elif "://" in slug:
        slug = slug.split("://", 1)[1].split("/", 1)[-1]
    return slug if "/" in slug else slug.replace("__", "/", 1)


def clean_path(path: str) -> str:
    """A gold path relative to its repository: the folders of containers (`/testbed/`, `/workspace/<one>/`) and `./` are
    taken off.
    """
    match = _CONTAINER.match(path)
    path = path[match.end() :] if match else path
    while path.startswith(("./", "/")):
        path = path[1:] if path.startswith("/") else path[2:]
    return path


def upstream_path(path: str) -> str:
    """The same as the original evaluator does it: dots at the beginning are lost too (`.github/x` becomes
    `github/x`).
    """
    path = path.replace("\\", "/")
    if path.startswith("/testbed/"):
        return path[len("/testbed/") :]
    if path.startswith("/workspace/"):
        first, _, rest = path[len("/workspace/") :].partition("/")
        return rest if "/" in path[len("/workspace/") :] else first
    return path.lstrip("/") if path.startswith("/") else path.lstrip("./")


def _items(value: Any) -> list[GoldItem]:
    if isinstance(value, str):
        if not value.strip():
            return []
        try:
            value = load_json(value)
        except ValueError:
            return list(_blocks(value))
    if isinstance(value, Mapping):
        value = [value]
    if value is None:
        return []
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise ValueError(f"a context is {str(value)[:60]!r}, expected a list of {{file, start_line, end_line}}")
    return [_item(item) for item in value]


def _item(item: Any) -> GoldItem:
    try:
        content, first, last = item.get("content"), line(item["start_line"]), line(item["end_line"])
        if first is None or last is None:
            raise ValueError
        return GoldItem(str(item["file"]), first, last, None if content is None else str(content))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"a context is {str(item)[:120]!r}, expected {{file, start_line, end_line}}") from None


def _blocks(text: str) -> Iterable[GoldItem]:
    """Contexts told in blocks of text: `context0:`, then `file:`, `lines: a-b` (or `start_line:`, `end_line:`), then
    the lines.
    """
    parts = _BLOCK.split(text)[1:]
    if not parts:
        raise ValueError(f"a context is text that is neither JSON nor blocks: {text.strip()[:60]!r}")
    for part in parts:
        found: dict[str, str] = {}
        content: list[str] | None = None
        for row in part.splitlines():
            match = None if content is not None else _FIELD.match(row)
            if match and match[1].lower() == "content":
                content = [match[2]] if match[2] else []
            elif match:
                found[match[1].lower().rstrip("s") if match[1].lower() == "lines" else match[1].lower()] = match[
                    2
                ].strip()
            elif content is not None:
                content.append(row)
        first, last = _block_lines(found, content)
        if not found.get("file"):
            raise ValueError(f"a block of a context names no file: {part.strip()[:60]!r}")
        yield GoldItem(found["file"].strip("`'\""), first, last, "\n".join(content) if content else None)


def _block_lines(found: Mapping[str, str], content: list[str] | None) -> tuple[int, int]:
    if match := _LINES.search(found.get("line", "")):
        first, last = (line(match[1]), line(match[2])) if match[1] else (line(match[3]),) * 2
    else:
        first, last = line(found.get("start_line")), line(found.get("end_line"))
    if first is None or last is None:
        raise ValueError(f"a block of a context names no lines: file {found.get('file', '')!r}")
    return first, last


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


@dataclass(slots=True)
class GoldSet:
    """Golds by any of their ids. `skipped`: rows that could not be used, by reason; `repeated`: ids that came more than
    once (the first stays).
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
class ContentDrift:
    """Gold whose text is not at its lines. `moved`: the first line it is found at instead (`None`: nowhere, or in
    several places).
    """

    file: str
    first: int
    last: int
    moved: int | None


def load_gold(path: str | Path, *, join: str | Path | None = None) -> GoldSet:
    """The gold in a file or folder. `join`: a CSV of the instances wanted, by id; it also fills in repository, commit
    and language.

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


def content_drift(gold: Gold, repo: Repo) -> list[ContentDrift]:
    """The items of gold whose text is known and is not what the repository has at their lines; line ends and blanks at
    line ends do not count.
    """
    return [
        drift
        for item in gold.items
        if item.content and item.content.strip() and (drift := _drift(item, repo.blob(clean_path(item.file))))
    ]


def gold_where_it_stands(gold: Gold, moved: Iterable[ContentDrift]) -> Gold:
    """The gold with the lines at which its text is now, where that is one place in the file; others stay as told."""
    at = {(one.file, one.first, one.last): one.moved for one in moved if one.moved is not None}

    def placed(item: GoldItem) -> GoldItem:
        first = at.get((item.file, item.first, item.last))
        if first is None:
            return item
        length = len((item.content or "").strip("\r\n").split("\n"))
        return replace(item, first=first, last=first + length - 1)

    return replace(gold, init=list(map(placed, gold.init)), add=list(map(placed, gold.add))) if at else gold


def _drift(item: GoldItem, data: bytes | None) -> ContentDrift | None:
    wanted = [line.rstrip() for line in (item.content or "").strip("\r\n").split("\n")]
    lines = [] if data is None else [line.rstrip() for line in data.decode("utf-8", "replace").split("\n")]
    there = lines[max(0, item.first - 1) : item.last]
    if _trimmed(there) == _trimmed(wanted):
        return None
    places = [
        n for n in range(len(lines) - len(wanted) + 1) if lines[n] == wanted[0] and lines[n : n + len(wanted)] == wanted
    ]
    return ContentDrift(item.file, item.first, item.last, places[0] + 1 if len(places) == 1 else None)


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
                yield from _json_rows(file_bytes(Path(folder) / "annot.json"))
        return
    with opened(path) as file:
        head = file.read(4)
    if head == b"PAR1":
        yield from _parquet_rows(path)
    elif path.suffix.lower() == ".csv":
        raise BadInput(f"{path}: a CSV lists instances and holds no gold; give the gold, and this file as its join")
    else:
        yield from _lines_or_document(path)


def _lines_or_document(path: Path) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    with opened(path) as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        by_line = isinstance(load_json(first), dict)
    except ValueError:
        by_line = False
    if not by_line:
        data = file_bytes(path)
        if data.strip():
            yield from _json_rows(data)
        return
    with opened(path) as file:
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
    pq = needed("pyarrow.parquet", f"the Parquet file {path.name}", "parquet")
    import pyarrow as pa

    wanted = (
        "inst_id",
        "instance_id",
        "original_inst_id",
        "repo",
        "repo_url",
        "base_commit",
        "commit",
        "language",
        "source",
        "patch",
    )
    try:
        file = pq.ParquetFile(opened(path))
        columns = [
            name
            for name in file.schema_arrow.names
            if name in wanted or name.startswith("gold_") or name in ("init_ctx", "add_ctx")
        ]
        for batch in file.iter_batches(batch_size=64, columns=columns):
            for row in batch.to_pylist():
                yield row, None
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from None


def _joined(golds: GoldSet, path: Path) -> GoldSet:
    try:
        with TextIOWrapper(opened(path), "utf-8-sig", newline="") as file:
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
