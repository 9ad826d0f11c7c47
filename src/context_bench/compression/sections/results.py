"""`results.jsonl`: a whole run over probes in one file, from which its report can be made again without a single call.

One object a line. First `{"kind": "run", …}`: the manifest and what was set up. Then for each answer
`{"kind": "row", …}`: scores, probe with its facts, answer. Long texts, which many rows share, stand once each, before
their first use, as `{"kind": "text", "sha256", "text"}`; rows name them as `session_sha256` (in the probe) and
`context_sha256` (in the output: what stood in the history's place).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.records import EvalRow, Example, Result
from context_bench.reports.json_out import Answered, Writable, row_record
from context_bench.reports.text import json_ready

SCHEMA = "context-bench/compression-results/1"
_LONG = {"example": "session", "output": "context"}


@dataclass(slots=True)
class StoredAnswers:
    """The document of a file: the run's own facts and its rows, each with its question and answer."""

    run: dict[str, Any]
    rows: list[EvalRow]
    answers: list[tuple[EvalRow, Example, Example]]


def write_results(result: Result, answers: Iterable[Answered], stream: Writable) -> None:
    """Write the run and its rows, one at a time."""
    encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
    told = {"manifest": result.manifest, "timing": result.timing, "setups": result.setups, "notes": result.notes}
    stream.write(encode({"kind": "run", "schema": SCHEMA, **json_ready(told)}) + "\n")
    known: set[str] = set()
    for one in answers:
        parts = {"example": dict(one.example or {}), "output": dict(one.output)}
        for part, name in _LONG.items():
            text = parts[part].pop(name, None)
            if isinstance(text, str):
                digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                parts[part][f"{name}_sha256"] = digest
                if digest not in known:
                    known.add(digest)
                    stream.write(encode({"kind": "text", "sha256": digest, "text": json_ready([text])[0]}) + "\n")
        stream.write(encode({"kind": "row", **row_record(one.row), **json_ready(parts)}) + "\n")


def read_results(path: str | Path) -> StoredAnswers:
    """Read such a file. `BadInput` names the line that is not as it should be."""
    run: dict[str, Any] | None = None
    texts: dict[str, str] = {}
    answers: list[tuple[EvalRow, Example, Example]] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                item = _object(line, path, number)
                if number == 1:
                    run = _run(item, path)
                elif item.get("kind") == "text":
                    texts[str(item.get("sha256"))] = str(item.get("text"))
                else:
                    answers.append(_row(item, texts, path, number))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if run is None:
        raise BadInput(f"{path} is empty; expected the results of a run over probes")
    return StoredAnswers(run, [row for row, _, _ in answers], answers)


def _object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    try:
        item = load_json(line)
    except ValueError as error:
        raise BadInput(f"{path}, line {number}: {error}") from None
    if not isinstance(item, dict):
        raise BadInput(f"{path}, line {number}: expected an object, found {type(item).__name__}")
    return item


def _run(item: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    if item.get("kind") != "run" or item.get("schema") != SCHEMA or not isinstance(item.get("manifest"), dict):
        raise BadInput(
            f"{path}, line 1: not the results of a run over probes; expected kind run and schema {SCHEMA}, as export "
            "writes them"
        )
    return dict(item)


def _row(
    item: Mapping[str, Any], texts: Mapping[str, str], path: str | Path, number: int
) -> tuple[EvalRow, Example, Example]:
    if item.get("kind") != "row" or not {"system", "example_id", "scores"} <= set(item):
        raise BadInput(f"{path}, line {number}: not a row; expected kind row with system, example_id and scores")
    row = EvalRow(
        **{"latency": None, **{name: value for name, value in item.items() if name in EvalRow.__dataclass_fields__}}
    )
    parts = []
    for part, name in _LONG.items():
        told = dict(item.get(part) or {})
        digest = told.pop(f"{name}_sha256", None)
        if digest is not None:
            if digest not in texts:
                raise BadInput(f"{path}, line {number}: {name}_sha256 {str(digest)[:12]}… is of no text before it")
            told[name] = texts[digest]
        parts.append(told)
    return row, parts[0], parts[1]
