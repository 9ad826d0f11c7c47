"""Differences by kind of question."""

from __future__ import annotations

import pytest

from context_bench.core.records import EvalRow
from context_bench.core.roles import roles_of_old_names
from context_bench.engine.run_summary import summarise


def by_kind(systems, kinds, n=120):
    """Everything said of systems that are right on these shares of each kind's examples."""

    def rows(name):
        for number in range(n):
            kind = kinds[number % len(kinds)]
            right = systems[name](kind) if callable(systems[name]) else systems[name]
            yield EvalRow(name, number, {"f1": float(right)}, 100, 50, metadata={"qa_type": kind})

    return summarise(rows, list(systems), [], score_field="f1", margin=0.2, roles=roles_of_old_names(systems))


def test_a_loss_is_found_where_it_is():
    found = by_kind({"full": 1, "mine": lambda kind: kind == "who", "none": 0, "full#2": 1}, ["who", "when"])
    told = {(each.system, each.qa_type): (each.difference, each.verdict, each.n) for each in found.by_type}
    assert told == {
        ("mine", "when"): (-1.0, "inferior", 60),
        ("mine", "who"): (0.0, "non-inferior", 60),
        ("none", "when"): (-1.0, "inferior", 60),
        ("none", "who"): (-1.0, "inferior", 60),
    }
    assert all(each.qa_type is None for each in found.comparisons)
    whole = {each.system: each for each in found.comparisons}
    assert whole["mine"].difference == pytest.approx(-0.5)


def test_of_one_kind_there_is_nothing_to_tell():
    assert by_kind({"full": 1, "mine": 0}, ["who"]).by_type == []


def test_controls_make_room_before_systems_do():
    kinds = [f"kind {number}" for number in range(30)]
    many = {
        "full": 1,
        "none": 0,
        **{f"s{number}": 1 for number in range(8)},
        **{f"random_drop@s{number}": 0 for number in range(8)},
    }
    found = by_kind(many, kinds, n=60)
    assert {each.system for each in found.by_type} == {f"s{number}" for number in range(8)}
    assert len(found.by_type) == 240
