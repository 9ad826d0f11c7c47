"""Rows as tables of other libraries: Arrow and polars with one schema, pandas with the documented flat columns.

Arrow and polars (`to_arrow`, `to_polars`):

| column | type |
|---|---|
| `system`, `example_id`, `dataset` | text (an id that is a number is written in digits) |
| `input_tokens`, `output_tokens` | int64: sent, forwarded |
| `latency` | double, seconds |
| `trial` | int32, from 0 |
| `group`, `cluster`, `error` | text; `error` is the system's failure, `Class: message` |
| `cost` | double, US dollars |
| `score.NAME` for every score of the rows | double |
| `errors`, `usage`, `wire`, `metadata` | JSON text: what they hold differs from row to row, and a struct would need one type for all |

What was not measured is null; a column has its type even if everything in it is missing. Names are those of the Parquet export.

Parquet (`write_parquet`), one row per (system, example, trial), for data frames and databases:

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
| `tags`, `note` | list of text, text: what people wrote on rows; there only where they wrote something |

What was not measured is null.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from context_bench.core.errors import needed
from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.core.rows import by_count
from context_bench.reports.arm_aggregates import numbers, shape_of
from context_bench.reports.json_document import Answered, Remarks
from context_bench.reports.visible_text import json_line, unicode_safe

if TYPE_CHECKING:
    import pandas
    import polars

COLUMNS = ("system", "example_id", "dataset", "input_tokens", "output_tokens", "latency")
_LAST = ("trial", "group", "cluster", "error")
_TEXTS = ("system", "example_id", "dataset", "group", "cluster")
_JSON = ("errors", "usage", "wire", "metadata")
BATCH = 1000


def to_dataframe(rows: Iterable[EvalRow]) -> pandas.DataFrame:
    """One line per row: `COLUMNS`, then scores, then metadata (a later name overwrites an earlier one), then what else
    a row says.

    The last are `trial`, `group`, `cluster` and `error` (the system's failure), unless a score or metadata is called
    so. Ids are as they are in the rows; tokens are nullable integers. Rows are read once and none is kept. Raises
    `MissingExtra` without pandas.
    """
    needed("pandas", "to_dataframe()", "frames")
    import pandas

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    count = 0
    for row in rows:
        for name, value in _flat(row).items():
            column = columns.setdefault(name, [])
            column += [None] * (count - len(column))
            column.append(value)
        count += 1
    for column in columns.values():
        column += [None] * (count - len(column))
    middle = [name for name in columns if name not in (*COLUMNS, *_LAST)]
    frame = pandas.DataFrame(
        {name: columns[name] for name in (*COLUMNS, *middle, *(name for name in _LAST if name in columns))}
    )
    for name, kind in (("input_tokens", "Int64"), ("output_tokens", "Int64"), ("latency", "float64")):
        if all(each is None or isinstance(each, int | float) for each in columns[name]):
            frame[name] = frame[name].astype(kind)  # type: ignore[call-overload]
    return frame


def to_arrow(rows: Iterable[EvalRow]) -> Any:
    """A `pyarrow.Table` of the columns above. Rows are read once, and a thousand are held at a time beside the
    table.
    """
    pa = needed("pyarrow", "to_arrow()", "frames")
    parts = [pa.Table.from_pylist([], schema=_schema([]))]
    for some in by_count(rows, BATCH):
        scores = list(dict.fromkeys(name for row in some for name in row.scores))
        parts.append(pa.Table.from_pylist([_record(row, scores) for row in some], schema=_schema(scores)))
    whole = pa.concat_tables(parts, promote_options="default")
    scored = [name for name in whole.column_names if name.startswith("score.")]
    return whole.select([*(name for name in whole.column_names if name not in (*scored, *_JSON)), *scored, *_JSON])


def to_polars(rows: Iterable[EvalRow]) -> polars.DataFrame:
    """A `polars.DataFrame` of the columns above, without a copy where polars can take Arrow's memory as it is."""
    polars = needed("polars", "to_polars()", "frames")
    frame = polars.from_arrow(to_arrow(rows))
    assert isinstance(frame, polars.DataFrame), "a table becomes a frame"
    return frame


def _flat(row: EvalRow) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
    values.update(row.scores)
    values.update({str(name): value for name, value in row.metadata.items()})
    more = {"trial": row.trial, "group": row.group, "cluster": row.cluster, "error": row.errors.get("system")}
    return {
        name: unicode_safe(value) if isinstance(value, str) else value for name, value in {**more, **values}.items()
    }


def _schema(scores: Iterable[str]) -> Any:
    import pyarrow as pa

    text, count, amount = pa.string(), pa.int64(), pa.float64()
    known = [
        *((name, text) for name in ("system", "example_id", "dataset")),
        *(("input_tokens", count), ("output_tokens", count), ("latency", amount), ("trial", pa.int32())),
        *((name, text) for name in ("group", "cluster", "error")),
        ("cost", amount),
    ]
    return pa.schema(
        [*known, *((f"score.{unicode_safe(name)}", amount) for name in scores), *((name, text) for name in _JSON)]
    )


def _record(row: EvalRow, scores: Iterable[str]) -> dict[str, Any]:
    texts = {name: getattr(row, name) for name in _TEXTS} | {"error": row.errors.get("system")}
    return {
        **{name: None if value is None else unicode_safe(str(value)) for name, value in texts.items()},
        "trial": row.trial,
        **{name: _count(getattr(row, name)) for name in ("input_tokens", "output_tokens")},
        **{"latency": _amount(row.latency), "cost": _amount(row.usage.get("cost"))},
        **{f"score.{unicode_safe(name)}": _amount(row.scores.get(name)) for name in scores},
        **{name: _json(getattr(row, name)) for name in _JSON},
    }


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


def write_parquet(
    answers: Iterable[Answered], score_names: Sequence[str], sink: IO[bytes], remarks: Remarks | None = None
) -> None:
    """Write the rows into `sink`, which need not be seekable; a thousand of them are in memory at a time."""
    parquet = needed("pyarrow.parquet", "a Parquet file", "parquet")
    import pyarrow as pa

    columns = schema(score_names)
    if remarks is not None:
        columns = columns.append(pa.field("tags", pa.list_(pa.string()))).append(pa.field("note", pa.string()))
    with parquet.ParquetWriter(sink, columns, compression="zstd") as writer:
        for some in by_count(answers, BATCH):
            writer.write_table(pa.Table.from_pydict(_parquet_columns(some, score_names, remarks), schema=columns))


def _parquet_columns(
    some: Sequence[Answered], score_names: Sequence[str], remarks: Remarks | None
) -> dict[str, Sequence[Any]]:
    rows = [each.row for each in some]
    scores = [row.scores for row in rows]
    words = [remarks(row) for row in rows] if remarks is not None else []
    texts: dict[str, list[Any]] = {
        **{name: [getattr(row, name) for row in rows] for name in ("system", "dataset", "example_id")},
        "shape": [shape_of(row) for row in rows],
        "model": [row.metadata.get("model") for row in rows],
        **{name: [getattr(row, name) for row in rows] for name in ("group", "cluster")},
        **{name: [each.text(name) for each in some] for name in ("question", "context")},
        "response": [each.response for each in some],
    }
    return {
        **{name: _safe(values) for name, values in texts.items()},
        "trial": [row.trial for row in rows],
        **{f"{SCORE}{unicode_safe(name)}": numbers([each.get(name) for each in scores]) for name in score_names},
        "input_tokens": _counts([row.input_tokens for row in rows]),
        "output_tokens": _counts([row.output_tokens for row in rows]),
        "latency": numbers([row.latency for row in rows]),
        "failed": [row.failed for row in rows],
        "errors": [list(zip(_safe(row.errors), _safe(row.errors.values()), strict=True)) for row in rows],
        "usage": [_usage(row.usage) for row in rows],
        "judge_usage": [_usage(row.usage.get("judge")) for row in rows],
        "answers": [_safe(each.gold) for each in some],
        "wire": [_json(row.wire) for row in rows],
        "metadata": [_json(row.metadata) for row in rows],
        "example": [_json(each.example) for each in some],
        "output": [_json(each.output) for each in some],
        **({name: [each.get(name) for each in words] for name in ("tags", "note")} if remarks is not None else {}),
    }


def _usage(values: Any) -> dict[str, Any] | None:
    if not isinstance(values, Mapping) or not values:
        return None
    return {name: _count(values.get(name)) for name in _COUNTS} | {name: _amount(values.get(name)) for name in _AMOUNTS}


def _safe(values: Iterable[Any]) -> list[str | None]:
    """Texts that can be written as UTF-8."""
    return [
        each if each is None or (type(each) is str and each.isascii()) else unicode_safe(str(each)) for each in values
    ]


def _counts(values: Sequence[Any]) -> list[int | None]:
    return [each if each is None or type(each) is int else _count(each) for each in numbers(values)]


def _count(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and abs(found) < 2**63 else None


def _amount(value: Any) -> float | None:
    found = number(value)
    return None if found is None else float(found)


def _json(value: Any) -> str | None:
    return json_line(value) if value else None
