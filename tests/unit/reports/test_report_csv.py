from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core.records import EvalRow, Result
from context_bench.reports import to_csv, write

ANY = st.text(alphabet=st.characters(), max_size=40)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def undone(cell: str) -> str:
    return cell[1:] if re.match("'+[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]", cell) else cell


def test_one_line_per_row_and_scores_in_order(result: Result) -> None:
    lines = read(to_csv(result))
    assert len(lines) == len(result.rows)
    assert list(lines[0]) == [
        "system", "example_id", "dataset", "trial", "shape", "group", "cluster", "input_tokens", "output_tokens", "latency",  # noqa: E501
        "exact_match", "f1", "billed_tokens", "completion_tokens", "cost", "errors",
    ]  # fmt: skip
    for line, row in zip(lines, result.rows, strict=True):
        assert line["system"] == row.system
        assert line["f1"] == ("" if "f1" not in row.scores else repr(row.scores["f1"]))
        assert line["output_tokens"] == ("" if row.output_tokens is None else str(row.output_tokens))
        assert ("TimedOut" in line["errors"] or "NoBudget" in line["errors"]) == row.failed


def test_a_score_called_like_a_column_gets_another_name() -> None:
    line = read(to_csv(Result([EvalRow("a", 1, {"system": 0.5, "cost": 1.0}, 1, 1)], {})))[0]
    assert (line["system"], line["score:system"], line["score:cost"]) == ("a", "0.5", "1.0")


def test_negative_numbers_stay_numbers() -> None:
    line = read(to_csv(Result([EvalRow("a", -1, {"x": -0.5, "y": float("nan")}, 1, 1)], {})))[0]
    assert (line["example_id"], line["x"], line["y"]) == ("-1", "-0.5", "")


def test_streaming_gives_the_same_text(result: Result) -> None:
    stream = io.StringIO(newline="")
    write(result, "csv", stream)
    assert stream.getvalue() == to_csv(result)
    assert to_csv(result).endswith("\r\n")


def test_hostile_text_comes_back_as_it_was(nasty: str, hostile: Callable[[str], Result]) -> None:
    check(nasty, hostile)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY)
def test_every_text_comes_back_as_it_was(text: str, hostile: Callable[[str], Result]) -> None:
    check(text, hostile)


def check(text: str, hostile: Callable[[str], Result]) -> None:
    result = hostile(text)
    written = to_csv(result)
    written.encode("utf-8")
    table = list(csv.reader(io.StringIO(written, newline=""), strict=True))
    assert len({len(line) for line in table}) == 1
    assert len(table) == 1 + len(result.rows)
    for line, row in zip(table[1:], result.rows, strict=True):
        known = re.sub("[\ud800-\udfff\0]", "\ufffd", row.system)
        assert undone(line[0]) == known
        assert undone(line[1]) == re.sub("[\ud800-\udfff\0]", "\ufffd", str(row.example_id))
    for line in table:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in line)
