"""A system against what its price buys without it: the whole context for some examples, none for the others."""

from __future__ import annotations

import numpy as np
import pytest

from context_bench.stats.distributions import quantile
from context_bench.stats.lift import at_price


def drawn(chance, n):
    """Scores and costs of a system, of the whole context and of none, for examples of very different length."""
    most = chance.lognormal(0.0, 0.8, n)
    least = 0.1 + 0.05 * chance.random(n)
    paid = least + (most - least).clip(0) * chance.uniform(0.2, 0.6, n)
    ease = chance.random(n)
    full, none = (ease < 0.85).astype(float), (ease < 0.25).astype(float)
    system = (chance.random(n) < 0.6 - 0.3 * ease).astype(float)
    return (system, full, none), (paid, np.maximum(most, least), least)


def test_a_system_on_the_line_between_none_and_all_is_as_good_as_nothing():
    costs = (np.full(8, 3.0), np.full(8, 5.0), np.full(8, 1.0))
    scores = (np.array([1, 0] * 4), np.ones(8), np.zeros(8))
    found = at_price(scores, costs)
    assert found.share == 0.5
    assert found.mixed.tolist() == [0.5] * 8
    assert found.gains.tolist() == [0.5, -0.5] * 4
    assert at_price((np.ones(8), np.ones(8), np.zeros(8)), costs).gains.mean() == 0.5


def test_a_system_dearer_than_the_whole_context_is_held_against_that():
    found = at_price((np.zeros(4), np.ones(4), np.zeros(4)), (np.full(4, 9.0), np.full(4, 5.0), np.full(4, 1.0)))
    assert (found.share, found.mixed.tolist(), found.gains.tolist()) == (1.0, [1.0] * 4, [-1.0] * 4)


@pytest.mark.parametrize(
    "costs",
    [(3.0, 1.0, 1.0), (3.0, 1.0, 5.0), (1.0, 5.0, 1.0), (0.5, 5.0, 1.0)],
    ids=["none costs as much as all", "none is dearer", "as cheap as none", "cheaper than none"],
)
def test_where_a_price_buys_nothing_there_is_no_verdict(costs):
    assert at_price([np.ones(4)] * 3, [np.full(4, cost) for cost in costs]) is None


def test_without_rows_there_is_no_verdict():
    assert at_price([[], [], []], [[], [], []]) is None


def test_the_spread_of_the_gains_is_that_of_their_mean_though_the_share_is_estimated():
    """4,000 runs of 150 examples, fixed seeds: how the mean gain varies is what the gains of one run say."""
    chance, means, errors = np.random.default_rng(5), [], []
    for _ in range(4_000):
        found = at_price(*drawn(chance, 150))
        means.append(found.gains.mean())
        errors.append(found.gains.std(ddof=1) / np.sqrt(150))
    centre = np.mean(means)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(means), rel=0.04)
    beyond = np.abs(np.array(means) - centre) > quantile(0.975, 149) * np.array(errors)
    assert 0.035 <= beyond.mean() <= 0.065
