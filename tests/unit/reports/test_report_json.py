from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core.records import EvalRow, Result
from context_bench.core.rows import differences, limit_notes
from context_bench.reports import to_json, write

ANY = st.text(alphabet=st.characters(), max_size=40)


def strict(text: str) -> dict[str, Any]:
    """Read by two parsers; neither takes NaN, Infinity or lone surrogates."""
    read: dict[str, Any] = orjson.loads(text.encode("utf-8"))
    assert json.loads(text, parse_constant=pytest.fail) == read
    return read


def test_shape(result: Result) -> None:
    read = strict(to_json(result))
    assert list(read) == [
        "schema",
        "summary",
        "estimates",
        "comparisons",
        "wire",
        "failures",
        "notes",
        "timing",
        "config",
        "manifest",
        "rows",
    ]
    assert set(read["rows"][0]) >= {
        "system",
        "example_id",
        "dataset",
        "scores",
        "input_tokens",
        "output_tokens",
        "latency",
        "metadata",
    }
    assert set(read["estimates"]["kompact"]["mean_score"]) >= {
        "value",
        "low",
        "high",
        "n",
        "failures",
        "worst",
        "best",
        "method",
    }
    assert set(read["comparisons"][0]) >= {
        "system", "baseline", "metric", "difference", "low", "high", "p", "verdict", "margin", "n", "clusters",
    }  # fmt: skip
    assert set(read["wire"]["kompact"]) >= {
        "sent", "forwarded", "billed", "calls_per_request", "unmatched", "role_changes", "param_changes",
        "authorization_forwarded", "violations",
    }  # fmt: skip
    assert len(read["rows"]) == len(result.rows)


def test_what_was_not_measured_is_absent() -> None:
    rows = [EvalRow("a", 1, {"f1": float("nan"), "g": 0.5}, 10, None, {"x": float("inf")}, latency=None)]
    read = strict(to_json(Result(rows, {"a": {"mean_score": 0.0, "cost_of_pass": float("inf")}})))
    assert read["summary"] == {"a": {"mean_score": 0.0}}
    assert read["rows"] == [
        {
            "system": "a",
            "example_id": 1,
            "dataset": "",
            "scores": {"g": 0.5},
            "input_tokens": 10,
            "metadata": {},
            "trial": 0,
        }
    ]


def test_failed_rows_tell_their_error(result: Result) -> None:
    failed = [row for row in strict(to_json(result))["rows"] if "errors" in row]
    assert len(failed) == 6
    assert all("output_tokens" not in row and row["scores"] == {} for row in failed)


def test_streamed_and_whole_are_the_same_text(result: Result) -> None:
    class Pieces:
        def __init__(self) -> None:
            self.pieces: list[str] = []

        def write(self, text: str, /) -> None:
            self.pieces.append(text)

    stream = Pieces()
    write(result, "json", stream)
    assert "".join(stream.pieces) == to_json(result)
    assert len(stream.pieces) > len(result.rows)
    assert max(len(piece) for piece in stream.pieces) < 20_000


def test_an_empty_result() -> None:
    assert strict(to_json(Result([], {})))["rows"] == []


def another_time(result: Result) -> Result:
    """The same findings, on another day, on a slower machine, with other dict orders and retries."""
    rng = random.Random(1)
    for row in result.rows:
        row.latency = rng.random()
        row.usage = dict(
            reversed([*row.usage.items(), ("ttft", rng.random()), ("attempts", 3), ("judge", {"calls": 1})])
        )
        row.scores = dict(reversed(row.scores.items()))
        row.metadata = {**row.metadata, "latency": rng.random()}
        if row.wire:
            row.wire |= {
                "ttft": rng.random(),
                "late": 1,
                "bytes": 2000,
                "prefix_tokens": 7,
            }  # a request that was tried again
            row.wire |= {name: row.wire[name] + 1 for name in ("calls", "client_calls")}
    for summary in result.summary.values():
        summary |= {
            "latency_mean": rng.random(),
            "latency_median": rng.random(),
            "latency_p95": rng.random(),
            "latency_p99": rng.random(),
        }
    result.timing = {"kompact": 9.9}
    result.manifest |= {
        "run": {"name": "other", "id": "r-99"},
        "started": "2027-01-01T00:00:00Z",
        "finished": 1.0,
        "retries": 4,
    }
    return result


def test_canonical_reports_of_equal_runs_are_equal_bytes(results: Callable[..., Result]) -> None:
    first, second = to_json(results(), canonical=True), to_json(another_time(results()), canonical=True)
    assert first == second
    assert to_json(results()) != to_json(another_time(results()))
    read = strict(first)
    assert "timing" not in read
    assert read["summary"]["kompact"].keys() == {
        key for key in results().summary["kompact"] if not key.startswith("latency")
    }
    assert "2026-11-21" not in first


def test_canonical_reports_do_not_tell_how_busy_the_day_was(results: Callable[..., Result]) -> None:
    slowed = results()
    slowed.manifest["limits"] = [{"http://127.0.0.1:1": [[1.0, 20, "start"], [2.0, 16, "refused for quota"]]}]
    slowed.notes = [*slowed.notes, *limit_notes(slowed.manifest)]
    assert len(slowed.notes) == len(results().notes) + 1
    assert to_json(slowed, canonical=True) == to_json(results(), canonical=True)


def test_canonical_reports_hold_no_digest_by_the_key_of_one_tap(results: Callable[..., Result]) -> None:
    """A tap that is started again makes other digests of the same requests."""
    first, second = results(), results()
    first.rows[0].wire["arrived_as"], second.rows[0].wire["arrived_as"] = "98dc027625dac", "492543d077dba"
    assert to_json(first, canonical=True) == to_json(second, canonical=True) == to_json(results(), canonical=True)
    assert not differences(first.rows, second.rows)
    assert '"98dc027625dac"' in to_json(first)


def test_canonical_keeps_every_finding(results: Callable[..., Result]) -> None:
    changed = results()
    changed.rows[5].scores["f1"] += 0.001
    assert to_json(changed, canonical=True) != to_json(results(), canonical=True)
    named = Result([EvalRow("latency_x", 1, {"date": 0.5, "latency": 1.0}, 1, 1)], {"run": {"mean_score": 1.0}})
    read = strict(to_json(named, canonical=True))
    assert read["rows"][0]["scores"] == {"date": 0.5, "latency": 1.0}
    assert "run" in read["summary"]


def test_hostile_text_is_kept_as_text(nasty: str, hostile: Callable[[str], Result]) -> None:
    read = strict(to_json(hostile(nasty)))
    assert read["notes"][0] == nasty.replace("\ud800", "\ufffd")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY, value=st.floats())
def test_always_strictly_valid(text: str, value: float, hostile: Callable[[str], Result]) -> None:
    result = hostile(text)
    result.rows[0].scores[text] = value
    result.summary["plain"]["odd"] = value
    result.manifest["deep"] = {text: [value, {text: {value}}]}
    for canonical in (False, True):
        strict(to_json(result, canonical=canonical))
