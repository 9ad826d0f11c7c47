"""Tails and quantiles of Student's t and the normal distribution against scipy's, closed forms, and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from context_bench.stats.distributions import percentile, quantile, upper_tail

DEGREES = [1, 2, 3, 4, 5, 9, 19, 29.5, 39, 99, 300, 998, 999, 1000, 1001, 5000, 1e5, 1e7]
PROBABILITIES = [1e-10, 1e-6, 0.001, 0.025, 0.05, 0.1, 0.3, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9999]
STATISTICS = [0.01, 0.3, 1.0, 1.5, 1.73, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0]


@pytest.mark.parametrize("df", DEGREES)
def test_as_scipy(df):
    for probability in PROBABILITIES:
        assert quantile(probability, df) == pytest.approx(float(stdtrit(df, probability)), rel=1e-12)
    for statistic in STATISTICS:
        assert upper_tail(statistic, df) == pytest.approx(float(stdtr(df, -statistic)), rel=1e-12)
        assert upper_tail(-statistic, df) == pytest.approx(float(stdtr(df, statistic)), rel=1e-12)


def test_the_normal_distribution_as_scipy():
    assert [quantile(each) for each in PROBABILITIES] == pytest.approx(ndtri(PROBABILITIES).tolist(), rel=1e-13)
    assert [upper_tail(each) for each in STATISTICS] == pytest.approx(
        [float(ndtr(-each)) for each in STATISTICS], rel=1e-13
    )


@given(st.floats(1e-12, 0.4999999))
def test_closed_forms_of_one_and_two_degrees(tail):
    """Near the middle scipy's own quantiles are off by 1e-12."""
    assert quantile(tail, 1) == pytest.approx(-1 / math.tan(math.pi * tail), rel=1e-9 if tail > 0.4999 else 1e-13)
    assert quantile(tail, 2) == pytest.approx(
        -(1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail)), rel=1e-9 if tail > 0.4999 else 1e-12
    )


@given(st.floats(0.5000001, 1 - 1e-12), st.floats(1, 1e8) | st.just(math.inf))
def test_a_quantile_has_its_tail_and_its_mirror(probability, df):
    at = quantile(probability, df)
    assert upper_tail(at, df) == pytest.approx(1 - probability, rel=1e-11)
    assert quantile(1 - probability, df) == pytest.approx(-at, rel=1e-8)


def test_what_lies_at_the_ends():
    assert (quantile(0.0), quantile(1.0), quantile(0.5, 3)) == (-math.inf, math.inf, 0.0)
    assert all(math.isnan(each) for each in (quantile(1.5), quantile(math.nan), quantile(0.9, 0)))
    assert (upper_tail(math.inf, 5), upper_tail(-math.inf, 5), upper_tail(0.0, 5), upper_tail(1e200, 5)) == (
        0.0,
        1.0,
        0.5,
        0.0,
    )
    assert math.isnan(upper_tail(math.nan, 5))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_percentiles_are_those_of_numpy_within_what_was_measured(values, share):
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert ordered[0] <= found <= ordered[-1]
    assert found == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-6)


def test_of_twenty_values_a_high_percentile_lies_between_the_last_two():
    ordered = [float(number) for number in range(1, 21)]
    assert [percentile(ordered, share) for share in (0, 0.5, 0.95, 1)] == [1, 10.5, pytest.approx(19.05), 20]
