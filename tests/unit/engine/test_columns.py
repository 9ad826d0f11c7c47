"""Rows as columns: nothing is lost in them, and examples of one id stay apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import in_pieces
from context_bench.engine.aggregates import Columns, Gatherer, Numbers, averaged, compact


def gathered(rows):
    columns, gatherer = Columns(), Gatherer()
    for piece in in_pieces(rows):
        gatherer.take(columns, piece)
    return columns


def row(example, trial=0, cluster=None, **more):
    return EvalRow("s", example, more.pop("scores", {"f1": 1.0}), trial=trial, cluster=cluster, **more)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 3), st.integers(1, 30_000), st.integers(1, 9_000))
def test_a_column_gives_back_what_was_put(step, length, kinds):
    column, expected = Numbers(), np.full(length, math.nan)
    for place in range(0, length, 512 * (step + 1)):
        piece = expected[place : place + 512]
        piece[:] = (np.arange(place, place + len(piece)) * 7919 % kinds) / 3
        column.put_all(place, piece)
    assert np.array_equal(column.whole(length), expected, equal_nan=True)


ODD = st.sampled_from([None, True, 0, 7, 10**400, 0.25, math.nan, -math.inf, "9", np.float32(0.5), [1]])
ROWS = st.builds(
    EvalRow,
    st.just("s"),
    st.integers(0, 5),
    st.dictionaries(st.sampled_from(["f1", "em", "score"]), ODD),
    ODD,
    ODD,
    st.dictionaries(st.sampled_from(["shape", "qa_type"]), st.sampled_from(["", "x", None, 3])),
    ODD,
    dataset=st.sampled_from(["a", "b"]),
    trial=st.integers(0, 2),
    group=st.sampled_from([None, "g"]),
    cluster=st.sampled_from([None, "c", "context-c"]),
    errors=st.dictionaries(st.sampled_from(["system", "judge"]), st.just("X: y")),
    usage=st.dictionaries(
        st.sampled_from(["output_tokens", "completion_tokens", "cost", "cost_usd", "usd", "ttft"]), ODD
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, max_size=12))
def test_rows_taken_together_are_the_rows_taken_one_by_one(rows):
    found = []
    for pieces in ([rows] if rows else [], [[each] for each in rows]):
        columns, gatherer = Columns(), Gatherer()
        for piece in pieces:
            gatherer.take(columns, piece)
        measures = ("sent", "forwarded", "reply", "cost", "latency", "ttft")
        numbers = [
            *(columns.numbers(name) for name in ("f1", "em", "score")),
            *(columns.measure(name) for name in measures),
        ]
        told = [
            columns.examples,
            columns.labels,
            columns.shapes,
            columns.trials,
            gatherer.datasets,
            gatherer.types,
            gatherer.fields,
        ]
        facts = [columns.whole(name).tolist() for name in ("datasets", "types", "trials", "errored", "failed")]
        found.append((np.array(numbers), told, facts, set(columns.scores), set(columns.measures)))
    (numbers, *others), (alone, *by_one) = found
    assert np.array_equal(numbers, alone, equal_nan=True)
    assert others == by_one
    for place, row in enumerate(rows):
        for name, values in zip(("f1", "em", "score"), numbers, strict=False):
            expected = real(row.scores.get(name))
            assert values[place] == expected or (expected is None and math.isnan(values[place]))


def test_the_second_example_of_an_id_is_another_one_in_every_trial():
    columns = gathered([row("a"), row("a"), row("b"), row("a", 1), row("a", 1), row("b", 1)])
    units = columns.units.tolist()
    assert units[:3] == units[3:]
    assert len(set(units)) == 3
    assert columns.clusters.tolist() == units
    assert len(set(columns.keys.tolist())) == 6


def test_an_example_without_a_cluster_is_one_of_its_own_and_names_join_the_others():
    columns = gathered([row(1), row(2, cluster="x"), row(3, cluster="x"), row("1"), row(1)])
    found = columns.clusters.tolist()
    assert found[1] == found[2]
    assert len(set(found)) == 4


def test_small_facts_and_missing_numbers():
    columns = gathered([row(1), row(2, errors={"system": "X: y"}, scores={}), row(3, scores={"f1": math.nan, "em": 0})])
    assert columns.whole("failed").tolist() == [0, 1, 0]
    assert np.isnan(columns.numbers("f1")).tolist() == [False, True, True]
    assert columns.numbers("em")[2] == 0
    assert np.isnan(columns.measure("cost")).all()
    assert columns.units is None


def test_trials_are_averaged_over_the_rows_that_are_left():
    codes, clusters = np.array([4, 2, 4, 2, 9]), np.array([1, 7, 1, 7, 3])
    values, groups = averaged(np.array([1.0, 0.0, 0.0, 1.0, 1.0]), codes, clusters)
    assert values.tolist() == pytest.approx([0.5, 0.5, 1.0])
    assert groups.tolist() == [2, 0, 1]
    assert compact(np.array([5, 5, 2])).tolist() == [1, 1, 0]
