"""A run as Parquet: one row per (system, example, trial), for data frames and databases.

| column | type |
|---|---|
| `system`, `dataset`, `example_id` | text (an id that is a number is written in digits) |
| `trial` | int32, from 0 |
| `shape`, `model`, `group`, `cluster` | text |
| `score.NAME` for every score of the run | double, empty where it does not apply or failed |
| `input_tokens`, `output_tokens` | int64: sent, forwarded |
| `latency` | double, seconds |
| `failed` | bool: the system gave no answer |
| `errors` | map of text to text: source → `Class: message` |
| `usage`, `judge_usage` | struct of `input_tokens`, `output_tokens`, `cache_read`, `cache_write`, `reasoning_tokens`, `calls` (int64), `cost` (US dollars), `ttft` (seconds) |
| `question`, `context`, `response` | text, empty where not kept |
| `answers` | list of text: all right answers |
| `wire`, `metadata`, `example`, `output` | JSON text |

What was not measured is null.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from context_bench.core.numbers import number
from context_bench.reports.answered import Answered
from context_bench.reports.tally import shape_of
from context_bench.reports.text import json_ready, unicode_safe

BATCH = 1000
SCORE = "score."
_COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning_tokens", "calls")
_AMOUNTS = ("cost", "ttft")


def schema(score_names: Sequence[str]) -> Any:
    """The file's columns, for the scores that the run has."""
    import pyarrow as pa

    usage = pa.struct([*((name, pa.int64()) for name in _COUNTS), *((name, pa.float64()) for name in _AMOUNTS)])
    fields = [
        *((name, pa.string()) for name in ("system", "dataset", "example_id")),
        ("trial", pa.int32()),
        *((name, pa.string()) for name in ("shape", "model", "group", "cluster")),
        *((f"{SCORE}{unicode_safe(name)}", pa.float64()) for name in score_names),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("latency", pa.float64()),
        ("failed", pa.bool_()),
        ("errors", pa.map_(pa.string(), pa.string())),
        ("usage", usage),
        ("judge_usage", usage),
        *((name, pa.string()) for name in ("question", "context", "response")),
        ("answers", pa.list_(pa.string())),
        *((name, pa.string()) for name in ("wire", "metadata", "example", "output")),
    ]
    return pa.schema(fields)


def write_parquet(answers: Iterable[Answered], score_names: Sequence[str], sink: IO[bytes]) -> None:
    """Write the rows into `sink`, which need not be seekable; `BATCH` of them are in memory at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = schema(score_names)
    waiting = iter(answers)
    with parquet.ParquetWriter(sink, columns, compression="zstd") as writer:
        while some := list(islice(waiting, BATCH)):
            writer.write_table(pa.Table.from_pylist([_record(each, score_names) for each in some], schema=columns))


def _record(answered: Answered, score_names: Sequence[str]) -> dict[str, Any]:
    row = answered.row
    texts: dict[str, Any] = {
        **{"system": row.system, "dataset": row.dataset, "example_id": row.example_id},
        **{"shape": shape_of(row), "model": row.metadata.get("model"), "group": row.group, "cluster": row.cluster},
        **{"question": answered.text("question"), "context": answered.text("context"), "response": answered.response},
    }
    return {
        **{name: None if value is None else unicode_safe(str(value)) for name, value in texts.items()},
        "trial": row.trial,
        **{f"{SCORE}{unicode_safe(name)}": _amount(row.scores.get(name)) for name in score_names},
        "input_tokens": _count(row.input_tokens),
        "output_tokens": _count(row.output_tokens),
        "latency": _amount(row.latency),
        "failed": row.failed,
        "errors": [(unicode_safe(str(source)), unicode_safe(str(error))) for source, error in row.errors.items()],
        "usage": _usage(row.usage),
        "judge_usage": _usage(row.usage.get("judge")),
        "answers": [unicode_safe(text) for text in answered.gold],
        **{name: _json(value) for name, value in (("wire", row.wire), ("metadata", row.metadata))},
        **{name: _json(value) for name, value in (("example", answered.example), ("output", answered.output))},
    }


def _usage(values: Any) -> dict[str, Any] | None:
    if not isinstance(values, Mapping) or not values:
        return None
    return {name: _count(values.get(name)) for name in _COUNTS} | {name: _amount(values.get(name)) for name in _AMOUNTS}


def _count(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and abs(found) < 2**63 else None


def _amount(value: Any) -> float | None:
    found = number(value)
    return None if found is None else float(found)


def _json(value: Any) -> str | None:
    return json.dumps(json_ready(value), ensure_ascii=False, allow_nan=False) if value else None
