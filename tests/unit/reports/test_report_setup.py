"""The set-up of groups in reports: one line a system, money once, and nothing of repeated attempts in canonical
JSON.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from context_bench.core.records import Comparison, EvalRow, Result, SetupRecord
from context_bench.core.rows import note, totals
from context_bench.reports import build_page, render, to_json
from context_bench.reports.page import Figure
from context_bench.reports.sections import setup_facts
from context_bench.results import EvalResult


def record(system: str = "memory", number: int = 1, attempt: int = 1, **more: object) -> SetupRecord:
    told = {"items": 10, "acknowledged": 9, "failed": 1, "seconds_add": 0.5 * attempt}
    usage = {"input_tokens": 1000, "output_tokens": 50}
    known = {"seconds": 2.0 * number, "output": told, "usage": usage, "cost": 0.25, "calls": 4}
    return SetupRecord(system, f"g{number}", 0, number, attempt, **{**known, **more})  # type: ignore[arg-type]


def result(*setups: SetupRecord) -> EvalResult:
    rows = [
        EvalRow(
            system,
            i,
            {"f1": 1.0},
            10,
            10,
            {"setup": 1 + i // 2},
            latency=0.1,
            group=f"g{1 + i // 2}",
            usage={"cost": 0.01},
        )
        for system in ("memory", "other")
        for i in range(4)
    ]
    summary = {
        name: {"mean_score": 1.0, **totals([each for each in setups if each.system == name])}
        for name in ("memory", "other")
    }
    found = EvalResult(rows, summary, setups=list(setups), timing={"memory": 1.0})
    if said := note(setups):
        found.notes.append(said)
    return found


def cells(found: Result, section: str) -> dict[str, dict[str, object]]:
    part = build_page(found).section(section)
    assert part is not None
    table = part.tables[0]
    return {
        str(row[0]): {
            column.title: cell.short if isinstance(cell, Figure) else cell
            for column, cell in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    }


def test_one_line_a_system_with_what_it_told() -> None:
    found = cells(result(record(), record(number=2), record(number=3, error="SetupFailed: full", output={})), "setup")
    assert found == {
        "memory": {
            "System": "memory",
            "groups": "3",
            "failed": "1",
            "items taken": "18",
            "items lost": "2",
            "median": "4.000 s",
            "p95": "5.800 s",
            "calls": "12",
            "tokens in": "3,000",
            "tokens out": "150",
            "money": "$0.7500",
        }
    }


def test_no_set_up_no_section_and_no_column() -> None:
    page = build_page(result())
    assert page.section("setup") is None
    assert cells(result(), "money")["memory"].keys() == {"System", "per 1,000 examples", "total", "n"}
    assert not {"setup", "setups"} & json.loads(to_json(result())).keys()


def test_money_counts_it_once_in_the_total_and_never_per_question() -> None:
    found = cells(result(record(), record(number=2), record(number=2, attempt=2)), "money")
    assert found["memory"] == {
        "System": "memory",
        "per 1,000 examples": "$10.00",
        "set-up": "$0.7500",
        "total": "$0.7900",
        "n": "4",
    }
    assert found["other"] == {
        "System": "other",
        "per 1,000 examples": "$10.00",
        "set-up": None,
        "total": "$0.0400",
        "n": "4",
    }


@pytest.mark.parametrize(
    ("paid", "saved"),
    [
        ({0: 0.01, 1: 0.01}, "50 %"),
        ({1: 0.01, 0: 0.01}, "50 %"),
        ({0: 0.015, 2: 0.5}, "25 %"),
        ({0: 0.005}, "75 %"),
        ({0: 0.01, 2: 0.5, 4: 0.5}, None),
        ({2: 0.01, 4: 0.01}, None),
    ],
)
def test_savings_are_told_of_the_same_examples_only(paid: dict[int, float], saved: str | None) -> None:
    """Of those that both were paid for, where they are half of either's at least."""
    rows = [EvalRow("base", i, {"f1": 1.0}, 10, 10, usage={"cost": 0.02} if i < 2 else {}) for i in range(3)]
    rows += [EvalRow("own", i, {"f1": 1.0}, 10, 10, usage={"cost": paid[i]} if i in paid else {}) for i in (*paid, 3)]
    compared = Comparison("own", "base", "f1", None, None, 0.0, -0.1, 0.1, 1.0, "undecided", 0.02, 3, 3)
    found = Result(rows, {"base": {}, "own": {}}, comparisons=[compared])
    assert cells(found, "money")["own"].get("saved against base") == saved


def test_money_in_no_line_is_what_the_lines_do_not_tell() -> None:
    """Whatever the last execution of the run cost: what was kept from before is in the lines too."""
    rows = [EvalRow("own", i, {"f1": 1.0}, 10, 10, usage={"cost": 0.01}) for i in range(4)]
    found = Result(rows, {"own": {}})
    for whole, last, told in ((0.04, 0.04, False), (0.04, 0.0, False), (0.05, 0.0, True), (0.05, 0.05, True)):
        found.manifest = {"run": {"counts": {"cost": whole, "systems": {"own": {"cost": last}}}}}
        section = build_page(found).section("money")
        assert section is not None
        assert ("$0.0500, $0.0100 is in no line" in section.tables[0].about) is told


def test_money_of_set_ups_alone_is_shown_too() -> None:
    free = result(record())
    for row in free.rows:
        row.usage.clear()
    assert cells(free, "money")["memory"]["total"] == "$0.2500"
    assert cells(free, "money")["other"]["total"] is None


def test_a_system_in_two_shapes_pays_for_it_once() -> None:
    shaped = result(record())
    for i, row in enumerate(shaped.rows):
        row.metadata["shape"] = "a" if i % 2 else "b"
    found = cells(shaped, "money")
    assert [found[name]["total"] for name in found if name.startswith("memory")] == ["$0.2700", "$0.0200"]


@pytest.mark.parametrize(
    "output",
    [{"failed": "all of them"}, {"items": float("nan")}, {"acknowledged": True}, {"failed": -3}, {"items": [1]}],
)
def test_systems_may_tell_anything(output: dict[str, object]) -> None:
    found = setup_facts([record(output=output)])["memory"]
    assert not {"items", "acknowledged", "items_failed"} & found.keys()


@pytest.mark.parametrize("kind", ["table", "markdown", "html"])
def test_every_output_shows_it(kind: str) -> None:
    text = render(build_page(result(record(), record(attempt=2))), kind)
    assert "Set-up" in text
    assert "1 group was set up again" in text


def test_json_has_sums_and_every_attempt_and_is_read_back() -> None:
    found = result(
        record(),
        record(number=2, attempt=1, seconds=None, error="Interrupted: x", output={}, usage={}, cost=None),
        record(number=2, attempt=2),
    )
    read = json.loads(to_json(found))
    assert read["setup"]["memory"] == {
        "groups": 2, "failed": 0, "again": 1, "items": 20, "acknowledged": 18, "items_failed": 2, "seconds": 6.0, "seconds_p50": 3.0,  # noqa: E501
        "seconds_p95": pytest.approx(3.9), "calls": 12, "input_tokens": 2000.0, "output_tokens": 100.0, "cost": 0.5,
    }  # fmt: skip
    assert [(each["number"], each["attempt"]) for each in read["setups"]] == [(1, 1), (2, 1), (2, 2)]
    assert read["summary"]["memory"]["setup_cost"] == 0.5
    again = EvalResult.from_json(to_json(found))
    assert again.setups == found.setups
    assert to_json(again) == to_json(found)


def test_canonical_json_is_that_of_an_undisturbed_run() -> None:
    from context_bench.reports.json_document import render as as_json

    calm = result(record(), record(number=2))
    cut_off = record(number=2, attempt=1, seconds=None, error="Interrupted: x", output={}, usage={}, cost=None, calls=0)
    retried = result(replace(record(), seconds=9.0), cut_off, record(number=2, attempt=2, seconds=7.0))
    one, other = (as_json(build_page(each), canonical=True) for each in (calm, retried))
    assert one == other
    assert "seconds" not in one
    assert json.loads(one)["summary"]["memory"]["setup_cost"] == 0.5
    costlier = result(record(cost=0.3), record(number=2))
    assert as_json(build_page(costlier), canonical=True) != one
