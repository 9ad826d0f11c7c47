from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from context_bench.stats.intervals import wilson
from context_bench.stats.solving import Case, solving
from context_bench.traces.coverage import LEVELS, Level, Score
from context_bench.traces.reports.trace_summary import cases_of
from context_bench.traces.trace_rows import TraceRow

CASES = [
    Case("a", "resolved", 0.9, "r1"),
    Case("b", "unresolved", 0.8, "r1"),
    Case("c", "resolved", 0.1, "r2"),
    Case("d", "error", 0.2, "r2"),
    Case("e", "error", 0.95, "r3", infra=True),
    Case("f", "unknown", 0.7, "r3"),
    Case("g", "resolved", None, "r3"),
    Case("h", "error", 1.0, "r3"),
]


def test_everything_that_is_no_verdict_for_the_patch_counts_against_it():
    found = solving(CASES)
    assert (found.n, found.excluded_infra) == (8, 0)
    assert found.rate == wilson(3, 8)
    assert found.counts == {"resolved": 3, "unresolved": 1, "error": 3, "unknown": 1, "infra": 1}
    less = solving(CASES, exclude_infra=True)
    assert (less.n, less.excluded_infra, less.rate) == (7, 1, wilson(3, 7))


def test_the_table_and_both_quadrants_name_tasks():
    found = solving(CASES, threshold=0.5)
    assert found.table == {
        "covered_resolved": 1,
        "covered_unresolved": 2,
        "uncovered_resolved": 1,
        "uncovered_unresolved": 1,
    }
    assert found.left_out == {"infra": 1, "no coverage": 1, "no verdict": 1}
    assert (found.read_failed, found.solved_unread) == (["h", "b"], ["c"])
    assert solving(CASES, threshold=0.85).read_failed == ["h"]
    with pytest.raises(ValueError, match="expected a coverage from 0 to 1"):
        solving(CASES, threshold=50)


def test_without_any_verdict_there_is_no_rate():
    found = solving([Case("a", "unknown", 0.5), Case("b", "unknown", 0.6)])
    assert (found.rate, found.correlation, found.terciles) == (None, None, [])
    assert solving([]).rate is None


def test_thirds_hold_equal_coverages_together():
    found = solving([Case(str(n), "resolved" if n > 3 else "unresolved", 0.0 if n < 5 else n / 10) for n in range(9)])
    assert [(third.n, third.resolved, third.low, third.high) for third in found.terciles] == [
        (5, 1, 0.0, 0.0),
        (1, 1, 0.5, 0.5),
        (3, 3, 0.6, 0.8),
    ]


def test_the_correlation_is_pearsons_and_its_interval_goes_by_repository():
    rng = random.Random(4)
    cases = []
    for n in range(80):
        coverage = rng.random()
        cases.append(Case(f"i{n}", "resolved" if rng.random() < coverage else "unresolved", coverage, f"r{n % 10}"))
    found = solving(cases).correlation
    x, y = [case.coverage for case in cases], [float(case.resolved) for case in cases]
    mx, my = sum(x) / 80, sum(y) / 80
    r = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    r /= (sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y)) ** 0.5
    assert found.value == pytest.approx(r)
    assert found.low < r < found.high
    assert (found.n, found.clusters) == (80, 10)
    few = solving([Case(c.instance_id, c.status, c.coverage, "one") for c in cases]).correlation
    assert (few.low, few.high, few.clusters) == (None, None, 1)
    assert solving([Case(str(n), "resolved", n / 9, str(n)) for n in range(9)]).correlation is None


@given(
    st.lists(
        st.builds(
            Case,
            st.text("ab", min_size=1, max_size=3),
            st.sampled_from(["resolved", "unresolved", "error", "unknown"]),
            st.none() | st.floats(0, 1),
            st.sampled_from(["r1", "r2", None]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.floats(0, 1),
    st.booleans(),
)
def test_counts_add_up(cases, threshold, exclude):
    found = solving(cases, threshold=threshold, exclude_infra=exclude)
    assert found.n + found.excluded_infra == len(cases)
    assert sum(found.table.values()) + sum(found.left_out.values()) == len(cases)
    assert len(found.read_failed) == found.table["covered_unresolved"]
    assert len(found.solved_unread) == found.table["uncovered_resolved"]
    assert sum(third.n for third in found.terciles) in (0, sum(found.table.values()))
    if found.correlation:
        assert -1 <= found.correlation.value <= 1
    if found.rate:
        assert 0 <= found.rate.low <= found.rate.value <= found.rate.high <= 1


def test_cases_of_rows_take_the_level_asked_for():
    final = dict.fromkeys(LEVELS, Level(0.5, 1.0, 1, 2, 1)) | {"file": Level(1.0, 1.0, 1, 1, 1)}
    rows = [
        TraceRow("run", "a", "r", score=Score("a", "strict", final=final), status="resolved"),
        TraceRow("run", "b", "r", error="no_gold", status="error"),
    ]
    assert cases_of(rows, infra={"b"}) == [Case("a", "resolved", 0.5, "r"), Case("b", "error", None, "r", True)]
    assert cases_of(rows, level="file")[0].coverage == 1.0
    assert "causal" not in solving(cases_of(rows)).caveat
