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
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import MissingExtra
from context_bench.core.records import EvalRow

if TYPE_CHECKING:
    import pandas
    import polars

COLUMNS = ("system", "example_id", "dataset", "input_tokens", "output_tokens", "latency")
_LAST = ("trial", "group", "cluster", "error")
_TEXTS = ("system", "example_id", "dataset", "group", "cluster")
_JSON = ("errors", "usage", "wire", "metadata")
_BATCH = 1000


def to_dataframe(rows: Iterable[EvalRow]) -> pandas.DataFrame:
    """One line per row: `COLUMNS`, then scores, then metadata (a later name overwrites an earlier one), then what else a row says.

    The last are `trial`, `group`, `cluster` and `error` (the system's failure), unless a score or metadata is called so. Ids are as they
    are in the rows; tokens are nullable integers. Rows are read once and none is kept. Raises `MissingExtra` without pandas.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_dataframe()", "frames") from None
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
    frame = pandas.DataFrame({name: columns[name] for name in (*COLUMNS, *middle, *(name for name in _LAST if name in columns))})
    for name, kind in (("input_tokens", "Int64"), ("output_tokens", "Int64"), ("latency", "float64")):
        if all(each is None or isinstance(each, int | float) for each in columns[name]):
            frame[name] = frame[name].astype(kind)  # type: ignore[call-overload]
    return frame


def to_arrow(rows: Iterable[EvalRow]) -> Any:
    """A `pyarrow.Table` of the columns above. Rows are read once, and a thousand are held at a time beside the table."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtra("to_arrow()", "frames") from None
    waiting = iter(rows)
    parts = [pa.Table.from_pylist([], schema=_schema([]))]
    while some := list(islice(waiting, _BATCH)):
        scores = list(dict.fromkeys(name for row in some for name in row.scores))
        parts.append(pa.Table.from_pylist([_record(row, scores) for row in some], schema=_schema(scores)))
    whole = pa.concat_tables(parts, promote_options="default")
    scored = [name for name in whole.column_names if name.startswith("score.")]
    return whole.select([*(name for name in whole.column_names if name not in (*scored, *_JSON)), *scored, *_JSON])


def to_polars(rows: Iterable[EvalRow]) -> polars.DataFrame:
    """A `polars.DataFrame` of the columns above, without a copy where polars can take Arrow's memory as it is."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("to_polars()", "frames") from None
    frame = polars.from_arrow(to_arrow(rows))
    assert isinstance(frame, polars.DataFrame), "a table becomes a frame"
    return frame


def _flat(row: EvalRow) -> dict[str, Any]:
    from context_bench.reports.text import unicode_safe

    values: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
    values.update(row.scores)
    values.update({str(name): value for name, value in row.metadata.items()})
    more = {"trial": row.trial, "group": row.group, "cluster": row.cluster, "error": row.errors.get("system")}
    return {name: unicode_safe(value) if isinstance(value, str) else value for name, value in {**more, **values}.items()}


def _schema(scores: Iterable[str]) -> Any:
    import pyarrow as pa

    from context_bench.reports.text import unicode_safe

    text, count, amount = pa.string(), pa.int64(), pa.float64()
    known = [("system", text), ("example_id", text), ("dataset", text), ("input_tokens", count), ("output_tokens", count)]
    known += [("latency", amount), ("trial", pa.int32()), ("group", text), ("cluster", text), ("error", text), ("cost", amount)]
    return pa.schema([*known, *((f"score.{unicode_safe(name)}", amount) for name in scores), *((name, text) for name in _JSON)])


def _record(row: EvalRow, scores: Iterable[str]) -> dict[str, Any]:
    from context_bench.reports.parquet_out import _amount, _count, _json
    from context_bench.reports.text import unicode_safe

    texts = {name: getattr(row, name) for name in _TEXTS} | {"error": row.errors.get("system")}
    return {
        **{name: None if value is None else unicode_safe(str(value)) for name, value in texts.items()},
        "trial": row.trial,
        **{name: _count(getattr(row, name)) for name in ("input_tokens", "output_tokens")},
        **{"latency": _amount(row.latency), "cost": _amount(row.usage.get("cost"))},
        **{f"score.{unicode_safe(name)}": _amount(row.scores.get(name)) for name in scores},
        **{name: _json(getattr(row, name)) for name in _JSON},
    }
