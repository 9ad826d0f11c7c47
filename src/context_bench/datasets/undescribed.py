"""Datasets that come without a description: files of the user's and repositories on the hub, their columns guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.core.keys import stable_hash
from context_bench.core.records import Example
from context_bench.datasets.content import Content
from context_bench.datasets.examples import tidy
from context_bench.datasets.fields import compile_field
from context_bench.datasets.guess import any_context, choose_files, guess_evaluators, guess_fields
from context_bench.datasets.jsonl import JsonlExamples
from context_bench.datasets.loaded import LoadedDataset, Origin, Reading
from context_bench.datasets.readers import KINDS, rows_of

if TYPE_CHECKING:
    from context_bench.datasets.hub import Snapshot

PEEK = 20  # rows looked at to learn what they hold


def lines(name: str, n: int | None) -> LoadedDataset:
    """A file of examples, one JSON object per line; its columns mean what their names say."""
    path = Path(name).expanduser()
    seen = list(islice(JsonlExamples(path, name, n), PEEK))
    if not seen and n != 0:
        raise BadInput(f"No examples loaded. Check your --dataset arguments: {path} holds no examples; it needs one JSON object per line")
    content = Content(path)
    read = Reading(lambda: JsonlExamples(path, name, n), lambda: Origin(["lines", content.sha256, n], content.unchanged))
    return LoadedDataset(name, name, guess_evaluators(seen), any_context(seen), read, lambda: _file_facts(content))


def _file_facts(content: Content) -> dict[str, Any]:
    return {"source": f"file:{content.path.name}", "sha256": content.sha256, "bytes": content.size}


def table(name: str, n: int | None) -> LoadedDataset:
    """Any other data file of the user's."""
    path = Path(name).expanduser()
    cells = re.search(r"\.[ct]sv(\.gz|\.zst)?$", name.lower()) is not None
    content = Content(path)
    origin = lambda: Origin(["table", content.sha256, n], content.unchanged)  # noqa: E731
    rows = lambda _: map(_cells, rows_of(path)) if cells else rows_of(path)  # noqa: E731
    return _guessed(name, n, rows, lambda: _file_facts(content), origin, keep=True)


_LISTS = ("choices", "options", "answers", "test_list", "turns", "tools", "expected_calls", "instruction_id_list", "kwargs")


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table: empty cells are left out, and lists, which tables lack, may be written as JSON."""
    made = {}
    for column, cell in row.items():
        if column in _LISTS and cell[:1] in ("[", "{"):
            try:
                made[column] = json.loads(cell)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"column {column!r}: a list in a table is written as JSON; {error} in {cell[:60]!r}") from error
        elif cell:
            made[column] = cell
    return made


def _guessed(
    name: str,
    n: int | None,
    rows: Callable[[int | None], Iterator[dict[str, Any]]],
    facts: Callable[[], dict[str, Any]],
    origin: Callable[[], Origin | None],
    *,
    keep: bool,
) -> LoadedDataset:
    """Rows whose columns nobody explained. `keep`: other columns go along, and ids must differ; else ids that do not are numbered."""
    seen_rows = list(islice(rows(PEEK if n is None else min(n, PEEK) or 1), PEEK))
    if not seen_rows:
        raise BadInput(f"{name} holds no rows")
    fields = guess_fields(seen_rows, name)
    forms = {field: compile_field(definition, field) for field, definition in fields.items()}
    # What became a field is not carried along a second time under its old name.
    used = {"id", "context", "question", "answer", "answers", *(d for d in fields.values() if isinstance(d, str))}

    def read() -> Iterator[Example]:
        seen: dict[str, int] = {}
        for i, row in enumerate(islice(rows(n), n)):
            made = {field: value for field, form in forms.items() if (value := form(row)) not in (None, "")}
            rest = {key: value for key, value in row.items() if key not in used} if keep else {}
            example = tidy({**rest, **made}, i, name, f"{name}, row {i + 1}")
            yield _distinct(example, seen, f"{name}, row {i + 1}", keep)

    examples = list(islice(read(), PEEK))
    told = {"fields": fields, "fields_guessed": True}
    known = guess_evaluators(examples, fields), any_context(examples)
    return LoadedDataset(name, name, *known, Reading(read, origin), lambda: {**facts(), **told})


def _distinct(example: Example, seen: dict[str, int], where: str, strict: bool) -> Example:
    key = str(example["id"])
    seen[key] = seen.get(key, 0) + 1
    if seen[key] == 1:
        return example
    if strict:
        raise BadInput(f"{where}: id {example['id']!r} was used before; give each row its own")
    return {**example, "id": f"{key}#{seen[key]}"}


_CONVERTED = "refs/convert/parquet"


def on_hub(name: str, n: int | None) -> LoadedDataset:
    """Any dataset on the hub: its own data files, else what the hub made of a repository that has a script only."""
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)((?:[:@][^:@]+)*)", name)
    if match is None:
        raise BadInput(f"{name!r} is not a dataset on the hub; expected hf:OWNER/NAME[:config][:split][@revision]")
    from context_bench.datasets import hub

    repo, marks = match[1], re.findall(r"([:@])([^:@]+)", match[2])
    words, revisions = [text for mark, text in marks if mark == ":"], [text for mark, text in marks if mark == "@"]
    found = hub.snapshot(repo, "*", revisions[0] if revisions else None)
    wanted, note = choose_files([file.path for file in found.files], words), found.note
    if not wanted and not revisions:
        found = _conversion(repo, found)
        wanted = choose_files([file.path for file in found.files], words)
        note = "the repository holds a script, which was not run; these are the Parquet files that the hub made of it"
    if not wanted:
        there = ", ".join(file.path for file in found.files[:10]) or "nothing"
        raise PreflightFailed(f"dataset {repo} has no data files that can be read ({', '.join(KINDS)}); it has: {there}")
    by_path = {file.path: file for file in found.files}
    chosen = replace(found, files=tuple(by_path[path] for path in wanted))

    def facts() -> dict[str, Any]:
        files = [{"path": f.path, "bytes": f.size, "sha256": f.sha256} for f in chosen.files]
        pinned = bool(revisions) and re.fullmatch(r"[0-9a-f]{40}", revisions[0]) is not None
        told = {"source": f"hf:{repo}", "revision": chosen.commit, "pinned": pinned, "files": files}
        return {**told, "sha256": stable_hash([repo, chosen.commit, files], 64), **({"note": note} if note else {})}

    origin = lambda: Origin(["hub", repo, chosen.commit, [[f.path, f.size, f.sha256] for f in chosen.files], n])  # noqa: E731
    return replace(_guessed(name, n, chosen.rows, facts, origin, keep=False), base=f"hf:{repo}")


def _conversion(repo: str, found: Snapshot) -> Snapshot:
    from context_bench.datasets import hub

    try:
        return hub.snapshot(repo, "*", _CONVERTED)
    except PreflightFailed as error:
        there = ", ".join(file.path for file in found.files[:10]) or "nothing"
        raise PreflightFailed(
            f"dataset {repo} has no data files (it has: {there}), and the hub has made none of it ({_CONVERTED}). "
            "Scripts of repositories are never run; look for a copy of it as Parquet or JSON lines"
        ) from error
