"""Whole rows as Parquet and as JSON lines: every column's type, odd values, nothing held that need not be."""

import io
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from context_bench.core.records import EvalRow
from context_bench.reports import frames
from context_bench.reports.frames import BATCH, write_parquet
from context_bench.reports.json_document import Answered, write_jsonl

HOSTILE = "=1+1\x00\ud800\u202e</script>\n"


def answered(i, **more):
    row = EvalRow(
        "s", i, {"f1": 0.3, "accuracy": 1.0}, 10, 5, {"model": "m", "shape": "plain-user"}, 0.5, "d", cluster="c"
    )
    row.usage = {
        "input_tokens": 5,
        "output_tokens": 2,
        "calls": 1,
        "cost": 0.1,
        "ttft": 0.2,
        "judge": {"input_tokens": 3, "calls": 1},
    }
    for name in [name for name in more if hasattr(row, name)]:
        setattr(row, name, more.pop(name))
    return Answered(
        row,
        more.pop("example", {"id": i, "context": "ctx", "question": "q", "answer": ["a", "b"]}),
        more.pop("output", {"response": "r"}),
    )


def written(found, names=("accuracy", "f1")):
    sink = io.BytesIO()
    write_parquet(iter(found), list(names), sink)
    return parquet.read_table(io.BytesIO(sink.getvalue()))


def test_a_row_has_its_numbers_as_numbers_and_its_texts_as_texts():
    (row,) = written([answered(3)]).to_pylist()
    assert (row["system"], row["dataset"], row["example_id"], row["trial"]) == ("s", "d", "3", 0)
    assert (row["shape"], row["model"], row["cluster"], row["group"]) == ("plain-user", "m", "c", None)
    assert (row["score.f1"], row["score.accuracy"]) == (0.3, 1.0)
    assert (row["input_tokens"], row["output_tokens"], row["latency"], row["failed"]) == (10, 5, 0.5, False)
    assert (row["question"], row["context"], row["response"], row["answers"]) == ("q", "ctx", "r", ["a", "b"])
    unknown = {"cache_read": None, "cache_write": None, "reasoning_tokens": None}
    assert row["usage"] == {"input_tokens": 5, "output_tokens": 2, **unknown, "calls": 1, "cost": 0.1, "ttft": 0.2}
    assert row["judge_usage"]["input_tokens"] == 3
    assert json.loads(row["example"])["answer"] == ["a", "b"]
    assert json.loads(row["metadata"]) == {"model": "m", "shape": "plain-user"}
    assert row["wire"] is None


def test_columns_have_the_documented_types():
    schema = written([]).schema
    assert written([]).num_rows == 0
    assert schema.field("score.f1").type == pa.float64()
    assert schema.field("trial").type == pa.int32()
    assert schema.field("errors").type == pa.map_(pa.string(), pa.string())
    assert pa.types.is_struct(schema.field("usage").type)
    assert {name for name in schema.names if f"`{name}`" not in (frames.__doc__ or "")} == {
        "score.f1",
        "score.accuracy",
    }


def test_what_failed_or_is_not_known_is_null():
    failed = answered(
        1,
        scores={},
        input_tokens=None,
        output_tokens=None,
        latency=None,
        usage={},
        errors={"system": "TimedOut: …"},
        output={},
        example=None,
    )
    (row,) = written([failed]).to_pylist()
    assert row["failed"]
    assert row["errors"] == [("system", "TimedOut: …")]
    known = {
        "system",
        "dataset",
        "example_id",
        "trial",
        "shape",
        "model",
        "cluster",
        "failed",
        "errors",
        "answers",
        "metadata",
    }
    assert {name for name, value in row.items() if value is not None} == known
    assert row["answers"] == []


def test_odd_values_are_written_or_left_out_but_never_raise():
    odd = answered(
        HOSTILE,
        scores={"f1": float("inf"), "accuracy": float("nan")},
        input_tokens=2**80,
        usage={"cost": float("nan"), "calls": "x", "judge": 3},
        errors={HOSTILE: HOSTILE},
        example={"context": 3, "question": HOSTILE, "answer": {"text": [HOSTILE]}, 7: float("nan")},
        output={"response": 12, "object": object()},
    )
    (row,) = written([odd]).to_pylist()
    shown = HOSTILE.replace("\ud800", "\ufffd")
    assert row["example_id"] == row["question"] == row["answers"][0] == shown
    assert (row["score.f1"], row["score.accuracy"], row["input_tokens"], row["context"], row["response"]) == (
        None,
        None,
        None,
        None,
        "12",
    )


def test_rows_are_written_in_batches_not_held():
    asked = []

    class Sink(io.BytesIO):
        def write(self, data):
            asked.append(len(given))
            return super().write(data)

    given = []

    def read():
        for i in range(2 * BATCH + 1):
            given.append(i)
            yield answered(i)

    sink = Sink()
    write_parquet(read(), ["f1"], sink)
    assert BATCH in asked  # the first batch is out before the next one is read
    file = parquet.ParquetFile(io.BytesIO(sink.getvalue()))
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (2 * BATCH + 1, 3)


def lines(*found):
    stream = io.StringIO()
    write_jsonl(iter(found), stream)
    stream.getvalue().encode("utf-8")
    return [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().split("\n")[:-1]]


def test_a_line_is_the_row_of_the_report_with_example_and_answer():
    (line,) = lines(answered(3, output={"response": "r", "tool_calls": [1]}))
    assert line["scores"] == {"f1": 0.3, "accuracy": 1.0}
    assert (line["example_id"], line["response"], line["output"]) == (3, "r", {"tool_calls": [1]})
    assert line["example"]["question"] == "q"
    assert "errors" not in line


def test_lines_hold_whatever_texts_there_are():
    odd = answered(
        HOSTILE, example={"context": HOSTILE, "score": float("nan")}, output={"response": HOSTILE, "object": {1, 2}}
    )
    bare = answered(2, example=None, output={})
    first, second = lines(odd, bare)
    assert first["response"] == first["example"]["context"] == HOSTILE.replace("\ud800", "\ufffd")
    assert first["output"] == {"object": [1, 2]}
    assert not {"response", "example", "output"} & second.keys()
