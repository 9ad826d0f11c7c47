from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from scipy.optimize import brentq

from context_bench.stats.distributions import root


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
