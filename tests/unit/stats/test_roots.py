from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from scipy.optimize import brentq

from context_bench.stats.distributions import change_bins, root, within_bin


@given(
    st.floats(0.05, 5),
    st.floats(-2, 2),
    st.floats(0.01, 3),
    st.floats(0.01, 3),
    st.sampled_from([1e-10, 1e-12]),
    st.booleans(),
)
def test_it_finds_the_zero_that_the_reference_finds(
    steep: float, zero: float, below: float, above: float, xtol: float, curved: bool
) -> None:
    def function(x: float) -> float:
        return (
            math.exp(steep * x) - math.exp(steep * zero) if curved else math.tanh(steep * (x - zero)) + 0.1 * (x - zero)
        )

    found = root(function, zero - below, zero + above, xtol=xtol)

    assert found == brentq(function, zero - below, zero + above, xtol=xtol)
    assert found == pytest.approx(zero, abs=1e-9)


def test_a_zero_at_an_end_is_found() -> None:
    assert root(lambda x: x, 0.0, 1.0, xtol=1e-12) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0, xtol=1e-12) == 1.0


def test_a_jump_across_zero_is_found_though_no_line_leads_there() -> None:
    assert root(lambda x: -1.0 if x < 0.3 else 1.0, 0.0, 1.0, xtol=1e-12) == pytest.approx(0.3, abs=1e-11)


def test_ends_of_the_same_sign_are_refused() -> None:
    with pytest.raises(ValueError, match="same sign"):
        root(lambda x: 1.0, 0.0, 1.0, xtol=1e-12)


def test_changes_of_scores_are_counted_by_tenths_apart_from_those_that_did_not_change():
    changes = [0.3 - 0.2, -0.1, 0.0, 0.0, 1.0, -1.0, 0.55, math.nan]
    assert change_bins(changes) == (
        *((-1.0, -0.9, 1), (-0.1, 0.0, 1), (0.0, 0.0, 2)),
        *((0.0, 0.1, 1), (0.5, 0.6, 1), (0.9, 1.0, 1)),
    )
    assert change_bins([]) == change_bins([math.nan]) == ()
    assert change_bins([0.0, 0.0]) == ((0.0, 0.0, 2),)
    assert change_bins([-3.0, 4.0, 0.0001]) == ((-3.0, -2.5, 1), (0.0, 0.5, 1), (3.5, 4.0, 1))


@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, -0.1, -0.9, 1 / 3]), max_size=60),
    st.sampled_from([1.0, 1e-4, 37.0]),
)
def test_every_change_is_in_one_bin_and_in_that_only(changes, scale):
    changes = [change * scale for change in changes]
    bins = change_bins(changes)
    assert sum(count for *_, count in bins) == len(changes)
    assert sum(high > 0 for _, high, _ in bins) <= 10
    for low, high, count in bins:
        if low or high:
            assert count == sum(bool(within_bin(each, low, high)) and (each < 0) == (low < 0) for each in changes)
