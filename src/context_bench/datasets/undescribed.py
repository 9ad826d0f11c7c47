"""Datasets that come without a description: files of the user's and repositories on the hub, their columns guessed.

Columns, wanted split and evaluators are guessed where nobody described them. Every guess is written in the language of
`[fields]`, so that the manifest can say it and a `./dataset.toml` can put it right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.core.keys import stable_hash
from context_bench.core.machine import expanded
from context_bench.core.records import Example
from context_bench.datasets.examples import (
    Content,
    IdentifiedExamples,
    JsonlExamples,
    LoadedDataset,
    Origin,
    tidy,
)
from context_bench.datasets.readers import KINDS, rows_of

if TYPE_CHECKING:
    from context_bench.datasets.hub import HubSnapshot

Row = Mapping[str, Any]
_NAMES = {
    "id": ("id", "_id", "uid", "qid", "question_id", "query_id", "example_id"),
    "context": (
        "context",
        "passage",
        "article",
        "document",
        "text",
        "transcript",
        "report",
        "dialogue",
        "paragraph",
        "contexts",
        "passages",
    ),
    "question": ("question", "query", "prompt", "instruction", "problem", "input"),
    "choices": ("choices", "options", "endings"),
    "answer": (
        "answers",
        "answer",
        "target",
        "targets",
        "label",
        "gold",
        "output",
        "summary",
        "highlights",
        "reference",
        "response",
        "solution",
    ),
    "letter": (
        "correct_letter",
        "answerKey",
        "answer_key",
        "gold_label",
        "label",
        "answer",
        "answer_idx",
        "answer_index",
    ),
}
_SUMMARIES = ("summary", "highlights")
#: Columns that mean the same in every example, for evaluators.
_KEPT = (
    "test",
    "entry_point",
    "test_list",
    "test_setup_code",
    "instruction_id_list",
    "kwargs",
    "tools",
    "expected_calls",
    "turns",
)
_LETTERS = {"const": "ABCDEFGHIJ"}


def guess_fields(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """`[fields]` for rows like these, by the usual names of columns.

    Raises `BadInput`, listing the columns, where there is neither a text nor a question.
    """
    kinds = {column: _kind(rows, column) for column in dict.fromkeys(column for row in rows for column in row)}
    fields: dict[str, Any] = {}
    for field, readable in (("id", ("text", "number")), ("context", ("text", "texts")), ("question", ("text",))):
        if column := _first(kinds, _NAMES[field], readable):
            fields[field] = {"join": "\n", "each": column} if kinds[column] == "texts" else column
    if "context" not in fields and "question" not in fields and "turns" not in kinds:
        columns = ", ".join(f"{column} ({kind})" for column, kind in kinds.items()) or "none"
        raise BadInput(
            f"{name}: no column is named as a text or a question usually is. Columns: {columns}. "
            "Say which is which in a ./dataset.toml, or rename them to context, question, answer"
        )
    fields |= _choices(rows, kinds)
    if "answer" not in fields and (column := _first(kinds, _NAMES["answer"], ("text", "texts", "number", "squad"))):
        if kinds[column] in ("texts", "squad"):
            fields["answers"] = f"{column}.text" if kinds[column] == "squad" else column
        elif not (kinds[column] == "number" and column == "label"):  # a class's number says nothing to a reader
            fields["answer"] = column
    fields |= {column: column for column in _KEPT if column in kinds}
    if "choices" in fields and "context" in fields and "question" in fields:
        fields["question"] = f"{{{fields['question']}}}\n\n{{{fields['choices']}:letters}}"
    elif "choices" in fields and "question" in fields:
        fields["context"] = f"{{{fields['question']}}}\n\n{{{fields['choices']}:letters}}"
    elif "context" not in fields and "question" in fields:
        fields["context"] = fields["question"]
    return fields


def _choices(rows: Sequence[Row], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Choices with the right one, where both are found: as the letter, the text, or the position (from 0, or from 1 if
    it never is 0).
    """
    column = _first(kinds, _NAMES["choices"], ("texts", "squad"))
    if column is None:
        return {}
    path = f"{column}.text" if kinds[column] == "squad" else column
    of = [row[column]["text"] if kinds[column] == "squad" else row[column] for row in rows if row.get(column)]
    for key in (name for name in _NAMES["letter"] if kinds.get(name) in ("text", "number")):
        values = [row[key] for row in rows if row.get(column) and row.get(key) is not None]
        if all(isinstance(v, str) and re.fullmatch("[A-J]", v.strip()) for v in values):
            at: dict[str, Any] = {"at": key}
        elif all(re.fullmatch(r"\d+", str(v)) for v in values):
            positions = [int(v) for v in values]
            base = 1 if 0 not in positions and any(p >= len(o) for p, o in zip(positions, of, strict=False)) else 0
            at = {"at": key, **({"base": base} if base else {})}
        else:
            continue
        return {"choices": path, "answer": {"pick": path, **at}, "correct_letter": {"pick": _LETTERS, **at}}
    return {"choices": path}


def _first(kinds: Mapping[str, str], names: Iterable[str], readable: Iterable[str]) -> str | None:
    by_lower = {column.lower(): column for column in reversed(list(kinds))}
    columns = (by_lower[name.lower()] for name in names if name.lower() in by_lower)
    return next((column for column in columns if kinds[column] in readable), None)


def _kind(rows: Sequence[Row], column: str) -> str:
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return "empty"
    if all(isinstance(v, str) for v in values):
        return "text"
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return "number"
    if all(isinstance(v, list) and all(isinstance(item, str) for item in v) for v in values):
        return "texts"
    if all(isinstance(v, Mapping) and isinstance(v.get("text"), list) for v in values):
        return "squad"
    return {list: "list", dict: "object", bool: "true or false"}.get(type(values[0]), type(values[0]).__name__)


def any_context(examples: Iterable[Example]) -> bool:
    """Look for a text besides the question."""
    return any(e["context"] and not e["context"].startswith(e.get("question") or e["context"] + " ") for e in examples)


def guess_evaluators(examples: Sequence[Example], fields: Mapping[str, Any] | None = None) -> list[str]:
    """Names of the evaluators that fit what these examples carry, in the order in which they are named in reports."""
    carried = {key for example in examples for key, value in example.items() if value not in (None, "", [])}
    fitting = {
        "answer": "answer" in carried,
        "summarization": (fields or {}).get("answer") in _SUMMARIES,
        "multiple_choice": "correct_letter" in carried,
        "code_execution": bool({"test", "test_list"} & carried),
        "ifeval": "instruction_id_list" in carried,
        "tool_call": "expected_calls" in carried,
    }
    return [name for name, fits in fitting.items() if fits]


_SPLITS = (("test",), ("validation", "valid", "val", "dev"), ("train",))
_SUFFIXES = (".parquet", r"\.(jsonl|ndjson)(\.gz|\.zst)?", r"\.(csv|tsv)(\.gz)?", r"\.json(\.gz)?")
_NOT_DATA = re.compile(r"(^|/)(dataset_infos?|config|state|dataset_dict|\.[^/]*)\.json$|(^|/)\.|index\.json$")


def choose_files(paths: Sequence[str], words: Sequence[str]) -> list[str]:
    """The data files of one configuration and split: those that match all `words`, else by usual names; the test split
    if there is one.

    An empty list where there are none. Raises `BadInput` where there are several configurations to choose from.
    """
    data = [path for path in paths if not _NOT_DATA.search(path)]
    by_kind = ([path for path in data if re.search(rf"{suffix}$", path.lower())] for suffix in _SUFFIXES)
    left = next((files for files in by_kind if files), [])
    for word in words:
        if not (matching := [path for path in left if word.lower() in _tokens(path)]):
            raise BadInput(f"no data file matches {word!r}; there are: {_some(left)}")
        left = matching
    split = next((files for names in _SPLITS if (files := [path for path in left if set(names) & _tokens(path)])), left)
    folders = {_config(path): None for path in split}
    usual = next((folder for folder in ("default", "main", "all") if folder in folders), None)
    if len(folders) > 1 and usual is None:
        raise BadInput(
            f"there are several configurations ({_some(sorted(folders))}); add the name of one, as in "
            f"hf:OWNER/NAME:{min(folders)}"
        )
    return sorted(path for path in split if usual in (None, _config(path)))


_SPLIT_WORDS = {name for names in _SPLITS for name in names} | {"data"}


def _config(path: str) -> str:
    """The folder, or what is left of the file's name, that names a configuration."""
    folders = [part for part in path.split("/")[:-1] if part.lower() not in _SPLIT_WORDS]
    if folders:
        return "/".join(folders)
    stem = path.rpartition("/")[2].partition(".")[0]
    return "-".join(
        t
        for t in re.split(r"[-_]", stem)
        if t.lower() not in _SPLIT_WORDS and not re.fullmatch(r"of|\d+|[0-9a-f]{16}", t)
    )


def _tokens(path: str) -> set[str]:
    parts = path.lower().split("/")
    stem = parts[-1].partition(".")[0]
    return {
        *parts[:-1],
        stem,
        *re.split(r"[-_]", stem),
        *(token for part in parts[:-1] for token in re.split(r"[-_]", part)),
    }


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


PEEK = 20  # rows looked at to learn what they hold


def lines(name: str, n: int | None) -> LoadedDataset:
    """A file of examples, one JSON object per line; its columns mean what their names say."""
    path = expanded(name)
    seen = list(islice(JsonlExamples(path, name, n), PEEK))
    if not seen and n != 0:
        raise BadInput(
            f"No examples loaded. Check your --dataset arguments: {path} holds no examples; it needs one JSON object "
            "per line"
        )
    content = Content(path)
    read = IdentifiedExamples(
        lambda: JsonlExamples(path, name, n), lambda: Origin(["lines", content.sha256, n], content.unchanged)
    )
    return LoadedDataset(name, name, guess_evaluators(seen), any_context(seen), read, lambda: _file_facts(content))


def _file_facts(content: Content) -> dict[str, Any]:
    return {"source": f"file:{content.path.name}", "sha256": content.sha256, "bytes": content.size}


def table(name: str, n: int | None) -> LoadedDataset:
    """Any other data file of the user's."""
    path = expanded(name)
    cells = re.search(r"\.[ct]sv(\.gz|\.zst)?$", name.lower()) is not None
    content = Content(path)
    origin = lambda: Origin(["table", content.sha256, n], content.unchanged)  # noqa: E731
    rows = lambda _: map(_cells, rows_of(path)) if cells else rows_of(path)  # noqa: E731
    return _guessed(name, n, rows, lambda: _file_facts(content), origin, keep=True)


_LISTS = (
    "choices",
    "options",
    "answers",
    "test_list",
    "turns",
    "tools",
    "expected_calls",
    "instruction_id_list",
    "kwargs",
)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table: empty cells are left out, and lists, which tables lack, may be written as JSON."""
    cells = {}
    for column, cell in row.items():
        if column in _LISTS and cell[:1] in ("[", "{"):
            try:
                cells[column] = json.loads(cell)
            except (ValueError, RecursionError) as error:
                raise BadInput(
                    f"column {column!r}: a list in a table is written as JSON; {error} in {cell[:60]!r}"
                ) from error
        elif cell:
            cells[column] = cell
    return cells


def _guessed(
    name: str,
    n: int | None,
    rows: Callable[[int | None], Iterator[dict[str, Any]]],
    facts: Callable[[], dict[str, Any]],
    origin: Callable[[], Origin | None],
    *,
    keep: bool,
) -> LoadedDataset:
    """Rows whose columns nobody explained. `keep`: other columns go along, and ids must differ; else ids that do not
    are numbered.
    """
    from context_bench.datasets.spec import compile_field  # only here: lines of JSON need none of it

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
            values = {field: value for field, form in forms.items() if (value := form(row)) not in (None, "")}
            rest = {key: value for key, value in row.items() if key not in used} if keep else {}
            example = tidy({**rest, **values}, i, name, f"{name}, row {i + 1}")
            yield _distinct(example, seen, f"{name}, row {i + 1}", keep)

    examples = list(islice(read(), PEEK))
    guessed = {"fields": fields, "fields_guessed": True}
    evaluators, has_context = guess_evaluators(examples, fields), any_context(examples)
    reader = IdentifiedExamples(read, origin)
    return LoadedDataset(name, name, evaluators, has_context, reader, lambda: {**facts(), **guessed})


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
    snapshot = hub.snapshot(repo, "*", revisions[0] if revisions else None)
    wanted, note = choose_files([file.path for file in snapshot.files], words), snapshot.note
    if not wanted and not revisions:
        snapshot = _conversion(repo, snapshot)
        wanted = choose_files([file.path for file in snapshot.files], words)
        note = "the repository holds a script, which was not run; these are the Parquet files that the hub made of it"
    if not wanted:
        there = ", ".join(file.path for file in snapshot.files[:10]) or "nothing"
        raise PreflightFailed(
            f"dataset {repo} has no data files that can be read ({', '.join(KINDS)}); it has: {there}"
        )
    by_path = {file.path: file for file in snapshot.files}
    chosen = replace(snapshot, files=tuple(by_path[path] for path in wanted))

    def facts() -> dict[str, Any]:
        files = chosen.file_facts()
        pinned = bool(revisions) and re.fullmatch(r"[0-9a-f]{40}", revisions[0]) is not None
        source = {"source": f"hf:{repo}", "revision": chosen.commit, "pinned": pinned, "files": files}
        return {**source, "sha256": stable_hash([repo, chosen.commit, files], 64), **({"note": note} if note else {})}

    origin = lambda: Origin(["hub", repo, *chosen.identity(), n])  # noqa: E731
    return replace(_guessed(name, n, chosen.rows, facts, origin, keep=False), base=f"hf:{repo}")


def _conversion(repo: str, snapshot: HubSnapshot) -> HubSnapshot:
    from context_bench.datasets import hub

    try:
        return hub.snapshot(repo, "*", _CONVERTED)
    except PreflightFailed as error:
        there = ", ".join(file.path for file in snapshot.files[:10]) or "nothing"
        raise PreflightFailed(
            f"dataset {repo} has no data files (it has: {there}), and the hub has made none of it ({_CONVERTED}). "
            "Scripts of repositories are never run; look for a copy of it as Parquet or JSON lines"
        ) from error
