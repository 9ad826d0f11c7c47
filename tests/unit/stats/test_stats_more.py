"""Rank tests, equivalence, BCa, variance with several answers, Pareto fronts and ratios, against scipy, statsmodels and
brute force.
"""

import itertools
import math

import numpy as np
import pytest
import scipy  # its parts are loaded where they are used
from hypothesis import given, settings, strategies as st

import context_bench.stats
from context_bench import stats

unit = st.floats(0, 1, allow_nan=False)
grades = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def test_everything_is_public():
    assert set(context_bench.stats.__all__) == set(stats.__all__)
    for name in stats.__all__:
        assert getattr(context_bench.stats, name) is getattr(stats, name)
        assert name.isupper() or getattr(stats, name).__doc__, name


# --- rank tests
# ------------------------------------------------------------------------


def pratt_by_enumeration(d):
    """The exact two-sided p of Pratt's signed-rank sum: all signs of the non-zero differences, ranks taken with the
    zeros.
    """
    ranks = scipy.stats.rankdata(np.abs(d))[d != 0]
    seen = abs(float(np.sign(d[d != 0]) @ ranks))
    signs = np.array(list(itertools.product((1, -1), repeat=len(ranks))))
    return np.mean(np.abs(signs @ ranks) >= seen - 1e-9)


@given(st.lists(st.tuples(grades, grades), min_size=1, max_size=10))
def test_wilcoxon_is_the_exact_permutation_test(pairs):
    system, baseline = np.array(pairs).T
    found = stats.wilcoxon(system, baseline)
    assert found.ties == (system == baseline).sum()
    if (system == baseline).all():
        assert (found.p, found.effect) == (1.0, 0.0)
        return
    assert found.p == pytest.approx(pratt_by_enumeration(system - baseline))
    mirrored = stats.wilcoxon(baseline, system)
    assert (mirrored.p, mirrored.effect) == pytest.approx((found.p, -found.effect))


@pytest.mark.parametrize(("n", "steps"), [(30, 10_000), (101, 4), (400, 10_000), (300, 4)])
def test_wilcoxon_is_scipys(n, steps):
    """Exact without ties or zeros; with them, and for many pairs, scipy's normal approximation with Pratt's zeros."""
    rng = np.random.default_rng(n)
    system, baseline = np.round(rng.random((2, n)) * steps) / steps
    baseline = np.minimum(baseline, 0.97)
    expected = scipy.stats.wilcoxon(
        system, baseline, zero_method="pratt", method="exact" if n == 30 else "asymptotic"
    ).pvalue
    assert stats.wilcoxon(system, baseline).p == pytest.approx(expected, abs=2e-3 if n == 101 else 1e-9)


def test_wilcoxon_takes_a_cluster_for_one_pair():
    system, baseline = [1.0, 1.0, 1.0, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 1.0, 0.25, 0.0]
    found = stats.wilcoxon(system, baseline, ["a", "a", "a", "b", "b", "b"])
    assert found.pairs == 2
    assert found.effect == 1.0
    assert stats.wilcoxon([1.0] * 6, [0.0] * 6).effect == 1.0


@given(st.lists(st.tuples(grades, grades, grades), min_size=4, max_size=12))
def test_friedman_is_scipys_with_holm_adjusted_pairs(rows):
    table = np.array(rows).T
    found = stats.friedman(dict(zip("abc", table, strict=True)))
    if (table == table[0]).all():
        assert found.p == 1.0
    else:
        expected = scipy.stats.friedmanchisquare(*table)
        assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert sum(found.mean_ranks.values()) == pytest.approx(6.0)
    assert [(pair.first, pair.second) for pair in found.pairwise] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [pair.p_adjusted for pair in found.pairwise] == stats.holm([pair.p for pair in found.pairwise])


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.friedman({"a": [1.0], "b": [0.0]}),
        lambda: stats.wilcoxon([], []),
        lambda: stats.wilcoxon([math.nan], [1.0]),
    ],
)
def test_rank_tests_refuse_what_they_cannot_rank(call):
    with pytest.raises(ValueError, match="expected"):
        call()


# --- non-inferiority and equivalence
# -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=6, max_size=30))
def test_tost_by_t_is_statsmodels(pairs):
    from statsmodels.stats.weightstats import ttost_paired

    system, baseline = np.array(pairs).T
    if np.ptp(system - baseline) < 1e-6:
        return
    found = stats.tost(system, baseline, margin=0.5, score_range=None)
    p, lower, upper = ttost_paired(system, baseline, -0.5, 0.5)
    assert (found.p, found.p_loss, found.p_gain) == pytest.approx((p, lower[1], upper[1]), abs=1e-9)
    assert (found.low > -0.5 and found.high < 0.5) == (found.p < 0.05)
    one = stats.noninferiority(system, baseline, margin=0.5, score_range=None)
    assert (one.p, one.bound) == (found.p_loss, found.low)
    assert (one.bound > -0.5) == (one.p < 0.05)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=6, max_size=60),
    st.sampled_from([0.05, 0.2]),
)
def test_noninferiority_of_shares_is_tangos_but_for_the_slack(pairs, margin):
    system, baseline = np.array(pairs).T
    found = stats.noninferiority(system, baseline, margin=margin)
    b, c, n = int((system > baseline).sum()), int((system < baseline).sum()), len(pairs)
    published = stats.tango_test(b, c, n, -margin)
    assert published - 1e-6 <= found.p <= published + 0.05
    assert found.bound <= stats.tango(b, c, n, 0.9).low + 1e-6
    assert found.bound == pytest.approx(stats.tango(b, c, n, 0.9).low, abs=0.3 / n)
    assert found.method == "score bound"
    both = stats.tost(system, baseline, margin=margin)
    swapped = stats.tost(baseline, system, margin=margin)
    assert (both.p_loss, both.p_gain) == pytest.approx((swapped.p_gain, swapped.p_loss))
    assert (both.low > -margin and both.high < margin) == (both.p < 0.05)


def test_no_change_seen_is_no_proof():
    assert stats.noninferiority([1.0] * 40, [1.0] * 40, margin=0.02).p > 0.05
    assert stats.noninferiority([1.0] * 200, [1.0] * 200, margin=0.02).p < 0.05
    assert stats.noninferiority([3.0] * 40, [3.0] * 40, margin=0.02, score_range=None).p is None
    few = stats.tost([1.0] * 40, [1.0] * 40, [i % 5 for i in range(40)], margin=0.02)
    assert (few.p, few.low, few.high, few.clusters) == (None, None, None, 5)


@pytest.mark.parametrize(
    ("system", "baseline", "margin", "says"),
    [
        ([1.0], [1.0, 0.0], 0.1, "equally long"),
        ([1.0] * 6, [1.0] * 6, 0.0, "margin"),
        ([5.0] * 6, [1.0] * 6, 0.1, "range"),
    ],
)
def test_equivalence_refuses_nonsense(system, baseline, margin, says):
    with pytest.raises(ValueError, match=says):
        stats.tost(system, baseline, margin=margin)


# --- bootstrap
# ------------------------------------------------------------------------


def test_bca_is_scipys_where_examples_are_independent():
    rng = np.random.default_rng(5)
    baseline = rng.exponential(1.0, 40)
    system = baseline + rng.exponential(0.5, 40) - 0.3
    found = stats.bca_difference(system, baseline, resamples=20_000)
    expected = scipy.stats.bootstrap(
        (system, baseline),
        lambda a, b, axis=-1: (a - b).mean(axis=axis),
        paired=True,
        method="BCa",
        n_resamples=20_000,
        rng=1,
    ).confidence_interval
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.03 * width)
    assert found.method == "BCa"
    assert found.value == pytest.approx((system - baseline).mean())


def test_bca_draws_whole_clusters_and_says_nothing_where_there_is_nothing():
    rng = np.random.default_rng(6)
    shift = np.repeat(rng.normal(0, 1, 20), 10)
    noise = rng.normal(0, 0.1, 200)
    together = stats.bca_difference(shift + noise, np.zeros(200), np.repeat(np.arange(20), 10))
    apart = stats.bca_difference(shift + noise, np.zeros(200))
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert stats.bca_difference([1.0] * 9, [0.0] * 9).low is None
    assert stats.bca_difference([1.0, 0.0] * 5, [0.0] * 10, [i % 5 for i in range(10)]).low is None
    with pytest.raises(ValueError, match="at least one"):
        stats.bca_difference([], [])


def test_ratios_of_sums_and_of_sessions():
    """A long session that shrinks well outweighs many short ones in the sum, and not in the mean."""
    found = stats.ratios([100.0, *[10.0] * 9], [1000.0, *[10.0] * 9])
    assert found.of_sums == pytest.approx(190 / 1090)
    assert found.mean == pytest.approx(9.1 / 10)
    assert found.of_sums_low <= found.of_sums <= found.of_sums_high
    assert found.mean_low <= found.mean <= found.mean_high
    some = stats.ratios([1.0, 0.0, 5.0], [2.0, 0.0, 0.0])
    assert (some.of_sums, some.mean, some.left_out, some.mean_low) == (3.0, 0.5, 2, None)
    none = stats.ratios([1.0], [0.0])
    assert (none.of_sums, none.mean) == (None, None)


def test_a_rare_denominator_has_no_interval():
    """Cost per pass with 1 pass in 30: every third resample has none, so its upper end is infinite."""
    passed = np.zeros(30)
    passed[4] = 1.0
    assert stats.ratio_interval(np.full(30, 100.0), passed) is None
    assert stats.ratio_interval(np.full(30, 100.0), 1 - passed) is not None


def test_quantile_intervals():
    values = np.arange(1.0, 1001.0)
    low, high = stats.quantile_interval(values, 0.95)
    assert low < 950 < high
    assert (low, high) == pytest.approx((936.5, 963.5), abs=3)  # ± 1.96 √(0.95 · 0.05 / 1000)
    assert stats.quantile_interval(values[:20], 0.95) is None
    assert stats.quantile_interval(values[:5], 0.5) is None
    assert stats.median_interval(values) == stats.quantile_interval(values, 0.5)


# --- power with several answers
# ----------------------------------------------------------------------------------------------


def test_variance_parts_are_found_again():
    rng = np.random.default_rng(8)
    true = rng.normal(0, 0.3, (4000, 1))
    system, baseline = true + rng.normal(0, 0.5, (4000, 4)), rng.normal(0, 0.2, (4000, 3))
    found = stats.variance_parts(system, baseline)
    assert (found.between, found.system, found.baseline) == pytest.approx((0.09, 0.25, 0.04), rel=0.12)
    seen = (system.mean(axis=1) - baseline.mean(axis=1)).var(ddof=1)
    assert found.of_difference(4, 3) == pytest.approx(seen)
    assert found.of_difference() == pytest.approx(0.09 + 0.25 + 0.04, rel=0.1)


@given(st.integers(1, 20), st.floats(0, 1), st.floats(0, 1), st.floats(0.001, 1))
def test_more_answers_need_fewer_examples_but_never_fewer_than_the_examples_differ(k, within, other, between):
    parts = stats.VarianceParts(between, within, other)
    assert stats.n_paired(0.05, parts.of_difference(k + 1, k)) <= stats.n_paired(0.05, parts.of_difference(k, k))
    assert stats.n_paired(0.05, parts.of_difference(k, k)) >= stats.n_paired(0.05, between)


def test_variance_parts_refuse_single_answers():
    with pytest.raises(ValueError, match="two or more answers"):
        stats.variance_parts([[1.0], [0.0]], [[1.0], [0.0]])
    with pytest.raises(ValueError, match="above 0"):
        stats.VarianceParts(1, 1, 1).of_difference(0)


def test_power_is_statsmodels():
    from statsmodels.stats.power import NormalIndPower

    for n, delta, variance in ((50, 0.1, 0.2), (400, 0.03, 1 / 9), (10, 0.5, 0.3)):
        expected = NormalIndPower(ddof=0).power(delta / math.sqrt(variance), n, 0.05, ratio=0)
        assert stats.power_paired(n, delta, variance) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("delta", "variance"), [(0.1, 0.2), (0.03, 1 / 9), (0.5, 0.3), (-0.05, 0.04)])
def test_examples_and_smallest_effect_are_statsmodels(delta, variance):
    from statsmodels.stats.power import NormalIndPower

    power = NormalIndPower(ddof=0)
    size = abs(delta) / math.sqrt(variance)
    needed = power.solve_power(size, None, 0.05, 0.8, ratio=0)
    assert stats.n_paired(delta, variance) == math.ceil(needed)
    assert stats.mde(200, variance) == pytest.approx(
        power.solve_power(None, 200, 0.05, 0.8, ratio=0) * math.sqrt(variance), rel=1e-5
    )


# --- retention
# ------------------------------------------------------------------------


def test_retention_needs_something_to_retain():
    rng = np.random.default_rng(2)
    base = rng.uniform(0.6, 1.0, 40)
    assert stats.retention(base * 0.9, base, no_context=base * 0.2).reliable
    idle = stats.retention(base * 0.9, base, no_context=base + rng.normal(0, 0.1, 40))
    assert not idle.reliable
    assert (idle.low, idle.value) == (None, pytest.approx(0.9))


# --- Pareto
# ------------------------------------------------------------------------

points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9)
points3 = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=7)


@given(st.one_of(points, points3))
def test_ranks_count_those_that_dominate(found):
    expected = [
        1 + sum(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in found)
        for own in found
    ]
    assert stats.pareto_ranks(found) == expected
    assert stats.pareto_front(found) == [rank == 1 for rank in expected]
    assert any(stats.pareto_front(found))


@given(st.one_of(points, points3))
def test_hypervolume_is_the_number_of_unit_cells_covered(found):
    side = 5
    cells = itertools.product(range(side), repeat=len(found[0]))
    covered = sum(any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in found) for cell in cells)
    assert stats.hypervolume(found, [side] * len(found[0])) == pytest.approx(covered)


def test_hypervolume_edges():
    assert stats.hypervolume([], (1, 1)) == 0.0
    assert stats.hypervolume([(0.5, 0.5)], (1, 1)) == 0.25
    assert stats.hypervolume([(0.2, 0.6), (0.6, 0.2), (0.2, 0.6), (2.0, 0.0)], (1, 1)) == pytest.approx(
        0.32 + 0.32 - 0.16
    )
    assert stats.hypervolume([(0.5, 0.5, 0.5)], (1, 1, 1)) == 0.125
    for wrong in (((1, 2), (1, 1, 1)), ((1, 2, 3), (1, 1)), ((1, 2), (1,))):
        with pytest.raises(ValueError, match="reference"):
            stats.hypervolume([wrong[0]], wrong[1])
    with pytest.raises(ValueError, match="missing"):
        stats.pareto_ranks([(math.nan, 1.0)])
    assert stats.pareto_ranks([]) == []


def test_how_often_a_system_is_on_the_front():
    rng = np.random.default_rng(9)
    n = 60
    tokens = np.array([np.full(n, 1000.0), np.full(n, 500.0), np.full(n, 500.0), np.full(n, 900.0)])
    scores = np.array([(rng.random(n) < 0.8), (rng.random(n) < 0.6), np.zeros(n), np.zeros(n)]).astype(float)
    scores[2] = scores[1]
    tops = np.stack([tokens, -scores], axis=1)
    found = stats.front_shares(tops, resamples=2000)
    assert found.points[0] == pytest.approx([1000.0, -scores[0].mean()])
    assert found.front == [True, True, True, False]
    assert found.share[1] == found.share[2] == 1.0  # equal points do not dominate one another
    assert found.share[0] > 0.9
    assert found.share[3] == 0.0
    assert found == stats.front_shares(tops, resamples=2000)
    clustered = stats.front_shares(tops, np.ones_like(tops), [i // 6 for i in range(n)], resamples=500)
    assert (clustered.clusters, clustered.points) == (10, found.points)
    with pytest.raises(ValueError, match="denominators"):
        stats.front_shares(tops, np.zeros_like(tops))
    with pytest.raises(ValueError, match="systems × objectives"):
        stats.front_shares([[1.0, 2.0]])


def test_noise_makes_a_rank_a_coin_toss():
    rng = np.random.default_rng(10)
    scores = (rng.random((2, 200)) < 0.7).astype(float)
    scores[1, :2] = scores[0, :2] = [0.0, 1.0]
    tokens = np.stack([np.full(200, 100.0), np.full(200, 100.0)])
    found = stats.front_shares(np.stack([tokens, -scores], axis=1), resamples=2000)
    assert sum(found.share) == pytest.approx(1.0, abs=0.15)
    assert 0.02 < min(found.share) < 0.98
