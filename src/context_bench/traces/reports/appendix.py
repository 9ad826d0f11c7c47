"""The per-task log in the columns of the seed's appendix: `appendix_minimal_per_task_log.csv`.

What nobody measured is an empty cell. `input_tokens` are those read from no cache; `contextbench_editloc_*` are the seed's values, under
either policy: deleted lines inside the edit region over deleted lines, twice, and 0 for a patch that only adds. The figures of our own and
everything else are in `evaluator_result`, the whole row as JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from context_bench.reports.text import csv_cell
from context_bench.traces.coverage import LEVELS
from context_bench.traces.rows import TraceRow
from context_bench.transcripts.trace import utf8_clean

NAME = "appendix_minimal_per_task_log.csv"
COLUMNS = (
    "task_id",
    "attempt",
    "benchmark",
    "benchmark_version",
    "repo",
    "repo_label",
    "language",
    "agent",
    "model_version",
    "condition",
    "status",
    "runtime_sec",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "total_input_processed_tokens",
    "total_processed_tokens",
    "estimated_cost",
    "tool_calls",
    "shell_commands",
    "file_reads",
    "search_actions",
    "files_edited",
    "patch_size",
    "first_file_opened",
    "first_file_edited",
    "first_test_command",
    "bitloops_context_tokens",
    *(f"contextbench_final_{level}_{name}" for level in LEVELS for name in ("coverage", "precision")),
    *(f"contextbench_traj_{name}_{level}" for name in ("auc", "redundancy") for level in LEVELS),
    "contextbench_editloc_recall",
    "contextbench_editloc_precision",
    "evaluator_result",
)


def lines(rows: Iterable[TraceRow], *, benchmark: str = "", version: str = "") -> Iterator[str]:
    """The file line by line, its head first. `benchmark`, `version`: the gold's name and hash."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = appendix_row(row) | {"benchmark": benchmark, "benchmark_version": version}
        known = {name: value if isinstance(value, int | float) else csv_cell(value) for name, value in cells.items() if value is not None}
        writer.writerow(known)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()
    yield stream.getvalue()


def appendix_row(row: TraceRow) -> dict[str, Any]:
    """The cells of one run; `None` where nothing was measured."""
    told = row.statistics
    calls = told.get("calls") or {}
    return {
        "task_id": row.instance_id,
        "attempt": row.attempt,
        "repo": row.repo,
        "repo_label": row.repo.partition("/")[0] if row.repo else None,
        "language": row.language,
        "agent": row.agent or None,
        "model_version": row.model,
        "condition": row.run or None,
        "status": row.status,
        "runtime_sec": row.seconds,
        **_tokens(row),
        "estimated_cost": row.cost,
        "tool_calls": told.get("steps"),
        "shell_commands": told.get("shell_commands"),
        "file_reads": calls.get("read", 0) if calls else None,
        "search_actions": calls.get("search", 0) + calls.get("list", 0) if calls else None,
        "files_edited": told.get("patch_files") or told.get("files_edited"),
        "patch_size": told.get("patch_characters"),
        "first_file_opened": told.get("first_file_opened"),
        "first_file_edited": told.get("first_file_edited"),
        "first_test_command": told.get("first_test_command"),
        **_scores(row),
        "evaluator_result": _result(row),
    }


def _tokens(row: TraceRow) -> dict[str, int | None]:
    usage = row.usage
    if usage is None:
        return {}
    whole, cached = usage.input_tokens, (usage.cache_read or 0) + (usage.cache_write or 0)
    return {
        "input_tokens": None if whole is None else max(0, whole - cached),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "total_input_processed_tokens": whole,
        "total_processed_tokens": None if whole is None or usage.output_tokens is None else whole + usage.output_tokens,
    }


def _scores(row: TraceRow) -> dict[str, float | None]:
    score = row.score
    if score is None or score.error:
        return {}
    out: dict[str, float | None] = {}
    for level, found in score.final.items():
        out[f"contextbench_final_{level}_coverage"], out[f"contextbench_final_{level}_precision"] = found.coverage, found.precision
    for level in LEVELS:
        out[f"contextbench_traj_auc_{level}"], out[f"contextbench_traj_redundancy_{level}"] = (
            score.auc.get(level),
            score.redundancy.get(level),
        )
    if score.editloc:
        share = score.editloc["intersection"] / score.editloc["pred_size"] if score.editloc["pred_size"] else 0.0
        out["contextbench_editloc_recall"] = out["contextbench_editloc_precision"] = share
    return out


def _result(row: TraceRow) -> str:
    found = row.score.to_row() if row.score is not None else {"instance_id": row.instance_id, "error": row.error or "not scored"}
    try:
        return orjson.dumps(found).decode()
    except TypeError:
        return orjson.dumps(utf8_clean(found)).decode()
