from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from context_bench.core.errors import MissingExtra
from context_bench.core.records import EvalRow, Result
from context_bench.reports import to_dataframe
from context_bench.reports.frames import to_arrow, to_polars
from context_bench.results import EvalResult


def test_documented_columns_come_first_then_scores_then_metadata(result: Result) -> None:
    frame = to_dataframe(result.rows)
    assert list(frame.columns) == [
        "system", "example_id", "dataset", "input_tokens", "output_tokens", "latency", "f1", "exact_match", "model", "trial", "group",  # noqa: E501
        "cluster", "error",
    ]  # fmt: skip
    assert len(frame) == len(result.rows)
    assert frame["input_tokens"].dtype == "Int64"
    assert frame["output_tokens"].isna().sum() == 6


def test_later_names_overwrite_earlier_ones() -> None:
    frame = to_dataframe([EvalRow("a", 1, {"latency": 9.0, "f1": 0.5}, 10, 5, {"f1": "m", "trial": "t"}, latency=1.0)])
    assert frame.iloc[0][["latency", "f1", "trial"]].to_list() == [9.0, "m", "t"]
    assert list(frame.columns).count("f1") == 1


def test_tokens_that_were_never_measured_and_odd_ones() -> None:
    frame = to_dataframe([EvalRow("a", 1, {}, 10, None), EvalRow("a", 2, {}, 10, None, {"input_tokens": "many"})])
    assert frame["output_tokens"].isna().all()
    assert frame["input_tokens"].to_list() == [10, "many"]


def test_no_rows_is_an_empty_frame_with_the_columns() -> None:
    frame = to_dataframe([])
    assert frame.empty
    assert list(frame.columns) == ["system", "example_id", "dataset", "input_tokens", "output_tokens", "latency"]


def test_without_pandas_it_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="frames"):
        to_dataframe([])


BARE = EvalRow("a", 1, {}, None, None, latency=None)
ODD = EvalRow(
    "b\ud800", "one", {"f1": 0.5, "latency": 2.0}, 10, 5, {"k": [1, {"x": float("nan")}]}, latency=1.5, dataset="d", trial=1, group="g",  # noqa: E501
    errors={"system": "Timeout: late", "judge": "no"}, usage={"cost": 0.25},
)  # fmt: skip


def test_arrow_has_one_schema_whatever_was_measured() -> None:
    nothing, bare, odd = to_arrow([]), to_arrow([BARE]), to_arrow([BARE, ODD])
    assert nothing.schema == bare.schema
    assert odd.select(bare.column_names).schema == bare.schema
    assert odd.column_names == [
        "system", "example_id", "dataset", "input_tokens", "output_tokens", "latency", "trial", "group", "cluster", "error", "cost",  # noqa: E501
        "score.f1", "score.latency", "errors", "usage", "wire", "metadata",
    ]  # fmt: skip
    assert bare.schema.field("input_tokens").type == pa.int64()
    assert bare.schema.field("cost").type == pa.float64()
    first, second = odd.to_pylist()
    assert (first["example_id"], first["score.f1"], first["latency"], first["metadata"]) == ("1", None, None, None)
    assert (second["example_id"], second["score.latency"], second["latency"], second["cost"]) == ("one", 2.0, 1.5, 0.25)
    assert second["error"] == "Timeout: late"
    assert second["metadata"] == '{"k": [1, {}]}'


def test_polars_and_arrow_are_the_same_table_and_the_way_back_is_too() -> None:
    rows = [BARE, ODD] * 700
    result = EvalResult(rows=rows, summary={})
    assert result.to_polars().to_arrow().to_pylist() == result.to_arrow().to_pylist()
    assert result.to_arrow().num_rows == 1_400
    assert result.to_dataframe()["example_id"].to_list()[:2] == [1, "one"]


def test_rows_are_read_once() -> None:
    def once() -> Iterator[EvalRow]:
        yield from (BARE, ODD)

    assert len(to_dataframe(once())) == to_arrow(once()).num_rows == len(to_polars(once())) == 2


def test_types_of_a_data_frame_hold_when_everything_is_missing() -> None:
    for frame in (to_dataframe([]), to_dataframe([BARE])):
        assert [str(frame[name].dtype) for name in ("input_tokens", "output_tokens", "latency")] == [
            "Int64",
            "Int64",
            "float64",
        ]


@pytest.mark.parametrize(("convert", "module"), [(to_polars, "polars"), (to_arrow, "pyarrow")])
def test_without_the_package_it_says_which_extra(convert: object, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match="frames"):
        convert([])  # type: ignore[operator]
