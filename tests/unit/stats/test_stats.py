"""Statistics against scipy and statsmodels, by properties, and by small simulations with fixed seeds."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy  # its parts are loaded where they are used
from hypothesis import given, settings, strategies as st

from context_bench import stats
from context_bench.stats.distributions import quantile, upper_tail

counts = st.integers(0, 60)
unit_scores = st.lists(st.floats(0, 1, allow_nan=False), min_size=2, max_size=40)


# --- shares
# ------------------------------------------------------------------------


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(pair):
    k, n = pair
    expected = scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
    found = stats.wilson(k, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert found.high > found.low


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_share(k, n):
    with pytest.raises(ValueError, match="not a share"):
        stats.wilson(k, n)


@given(counts, counts)
def test_mcnemar_is_statsmodels(b, c):
    from statsmodels.stats.contingency_tables import mcnemar

    found = stats.mcnemar(b, c)
    if b + c == 0:
        assert found.p == 1.0
        return
    expected = mcnemar([[10, b], [c, 10]], exact=b + c < 25, correction=True)
    assert found.p == pytest.approx(min(1.0, expected.pvalue), abs=1e-9)


def tango_by_search(b, c, n, difference):
    """Tango's score by brute force: the likelihood under the hypothesis is maximised over a fine grid."""
    low, high = max(0.0, -difference), (1 - difference) / 2
    lost = np.linspace(low, high, 400_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [c * np.log(lost), b * np.log(lost + difference), (n - b - c) * np.log(1 - 2 * lost - difference)]
    likelihood = sum(np.where(weight == 0, 0.0, term) for weight, term in zip((c, b, n - b - c), terms, strict=True))
    best = lost[int(np.nanargmax(np.where(np.isnan(likelihood), -np.inf, likelihood)))]
    return (b - c - n * difference) / math.sqrt(n * (2 * best + difference * (1 - difference)))


@pytest.mark.parametrize(("b", "c", "n"), [(5, 3, 40), (0, 0, 30), (7, 0, 25), (0, 9, 60), (12, 30, 100)])
@pytest.mark.parametrize("difference", [-0.3, -0.02, 0.0, 0.1])
def test_tango_is_the_score_at_the_constrained_maximum(b, c, n, difference):
    if b == c == 0 and difference == 0.0:
        assert stats.tango_score(b, c, n, difference) == 0.0
    else:
        assert stats.tango_score(b, c, n, difference) == pytest.approx(tango_by_search(b, c, n, difference), abs=2e-3)


def test_tango_published_example():
    """Tango 1998, soft contact lenses: 44 pairs, 1 against 0 discordant; 95 % interval of the difference −0.0600 to
    0.1175 around 1/44.
    """
    found = stats.tango(1, 0, 44)
    assert (found.low, found.high) == pytest.approx((-0.0600, 0.1184), abs=1.5e-3)


def test_at_no_difference_tango_is_mcnemar_without_correction():
    assert stats.tango_score(12, 5, 80, 0.0) == pytest.approx((12 - 5) / math.sqrt(17))


@given(
    st.integers(2, 200)
    .flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n)))
    .filter(lambda t: t[0] + t[1] <= t[2])
)
def test_tango_interval_holds_what_the_test_accepts(pair):
    b, c, n = pair
    found = stats.tango(b, c, n)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 1e-4
    for edge, inwards in ((found.low, 1e-4), (found.high, -1e-4)):
        if -0.999 < edge < 0.999:
            assert abs(stats.tango_score(b, c, n, edge + inwards)) <= 1.96
            assert abs(stats.tango_score(b, c, n, edge - inwards)) >= 1.9599
    mirrored = stats.tango(c, b, n)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-9)


@pytest.mark.parametrize(("n", "supported"), [(40, False), (132, False), (133, True), (500, True)])
def test_no_discordant_pair_supports_two_points_by_tangos_bound_from_133_on(n, supported):
    assert (stats.tango_test(0, 0, n, -0.02) < 0.05) is supported
    assert (stats.bounded([0.0] * n, low=-1, high=1).p_above(-0.02) < 0.05) is supported


@pytest.mark.parametrize(("n", "supported"), [(40, False), (139, False), (140, True), (500, True)])
def test_the_claim_is_made_from_140_on_where_such_luck_is_below_6_percent(n, supported):
    gathered = stats.bounded([0.0] * n, low=-1, high=1, guarded=True)
    assert (gathered.p_above(-0.02) < 0.05) is supported
    assert (gathered.lower_bound(0.95) > -0.02) is supported
    assert (0.98**n <= 0.06) is supported
    assert math.ceil(stats.n_without_change(0.02)) == 140
    assert (stats.smallest_margin(n, 0.0) <= 0.02) is supported


# --- means of bounded scores
# ------------------------------------------------------------------------


@given(st.integers(1, 120).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounded_is_wilson_for_zeros_and_ones(pair):
    k, n = pair
    found = stats.bounded([1.0] * k + [0.0] * (n - k), low=0, high=1).interval()
    expected = stats.wilson(k, n)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-6)


@given(
    st.integers(1, 80)
    .flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n)))
    .filter(lambda t: t[0] + t[1] <= t[2])
)
def test_bounded_is_tango_for_paired_outcomes(pair):
    b, c, n = pair
    gathered = stats.bounded([1.0] * b + [-1.0] * c + [0.0] * (n - b - c), low=-1, high=1)
    expected = stats.tango(b, c, n)
    assert gathered.interval() == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert gathered.p_above(-0.05) == pytest.approx(stats.tango_test(b, c, n, -0.05), abs=1e-6)


@given(unit_scores)
def test_bounded_interval_has_width_and_holds_the_mean(values):
    gathered = stats.bounded(values, low=0, high=1)
    low, high = gathered.interval()
    assert 0 <= low <= gathered.mean + 1e-9
    assert gathered.mean - 1e-9 <= high <= 1
    assert high - low > 1e-6
    assert gathered.upper_bound(0.9) <= gathered.upper_bound(0.99) + 1e-9
    assert 0 <= gathered.p_above(0.5) <= 1
    assert gathered.p_above(0.5) + gathered.p_below(0.5) == pytest.approx(1, abs=0.2)


@given(unit_scores, st.floats(0.01, 0.99))
def test_bounded_test_and_interval_agree(values, null):
    gathered = stats.bounded(values, low=0, high=1)
    low = gathered.lower_bound(0.95)
    if abs(null - low) > 1e-6:
        assert (gathered.p_above(null) < 0.05) == (null < low)


def test_bounded_nears_students_t_when_n_is_large():
    values = np.random.default_rng(0).beta(2, 3, 4000)
    low, high = stats.bounded(values, low=0, high=1).interval()
    expected = scipy.stats.t.interval(0.95, 3999, values.mean(), scipy.stats.sem(values))
    assert (low, high) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("values", [[], [1.2], [math.nan], [-0.1, 0.5]])
def test_bounded_refuses_values_out_of_range(values):
    with pytest.raises(ValueError, match="within"):
        stats.bounded(values, low=0, high=1)


# --- clusters
# ------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 6)), min_size=6, max_size=40))
def test_clustered_se_is_statsmodels(pairs):
    import statsmodels.api as sm

    values, clusters = [value for value, _ in pairs], [cluster for _, cluster in pairs]
    if len(set(clusters)) < 2:
        assert stats.mean_se(values, clusters).se is None
        return
    expected = (
        sm.OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": np.asarray(clusters)}).bse[0]
    )
    assert stats.mean_se(values, clusters).se == pytest.approx(expected, abs=1e-9)


def test_clusters_of_one_are_no_clusters():
    values = [0.1, 0.5, 0.9, 0.3, 0.7, 0.2]
    assert stats.mean_se(values, list("abcdef")).se == pytest.approx(stats.mean_se(values).se_iid)
    gathered = stats.bounded(values, list("abcdef"), low=0, high=1)
    assert gathered.design.effect == 1.0
    assert math.isinf(gathered.design.df)


def test_identical_values_within_clusters_count_once():
    clusters = [cluster for cluster in range(30) for _ in range(10)]
    values = [float(cluster % 2) for cluster in clusters]
    gathered = stats.bounded(values, clusters, low=0, high=1)
    assert gathered.design.rho == pytest.approx(1.0, abs=0.02)
    assert gathered.design.effective_n == pytest.approx(30, rel=0.05)
    spread = gathered.interval()
    alone = stats.wilson(15, 30)
    assert spread[1] - spread[0] == pytest.approx(alone.high - alone.low, rel=0.1)


def test_independent_values_in_many_clusters_keep_their_n():
    rng = np.random.default_rng(4)
    gathered = stats.bounded((rng.random(600) < 0.5).astype(float), np.repeat(np.arange(60), 10), low=0, high=1)
    assert gathered.design.effective_n > 300


def test_nothing_seen_leaves_the_prior_on_clusters():
    """500 examples on 20 documents without one discordant pair: documents may fail as a whole, so 2 points are not
    ruled out.
    """
    clusters = [i // 25 for i in range(500)]
    assert stats.bounded([0.0] * 500, clusters, low=-1, high=1).p_above(-0.02) > 0.05
    assert stats.bounded([0.0] * 500, low=-1, high=1).p_above(-0.02) < 0.05


def test_labels_of_any_kind_and_wrong_lengths():
    assert list(stats.codes_of(["b", 1, None, "b", ("x",)], 5)) == [0, 1, 2, 0, 3]
    with pytest.raises(ValueError, match="3 values but 2"):
        stats.codes_of([1, 2], 3)


# --- paired differences
# ------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=30))
def test_paired_difference_is_scipys_and_statsmodels(pairs):
    from statsmodels.stats.weightstats import ttost_paired

    system, baseline = np.array(pairs).T
    found = stats.paired_difference(system, baseline, margin=0.1)
    d = system - baseline
    if np.ptp(d) < 1e-9:
        return
    assert found.p == pytest.approx(scipy.stats.ttest_rel(system, baseline).pvalue, abs=1e-9)
    expected = scipy.stats.ttest_1samp(d, -0.1, alternative="greater").pvalue
    assert found.noninferiority_p == pytest.approx(expected, abs=1e-9)
    assert found.tost_p == pytest.approx(ttost_paired(system, baseline, -0.1, 0.1)[0], abs=1e-9)
    assert (found.low, found.high) == pytest.approx(
        scipy.stats.ttest_rel(system, baseline).confidence_interval(), abs=1e-9
    )


def test_equal_differences_claim_nothing():
    found = stats.paired_difference([1.0] * 50, [1.0] * 50, margin=0.02)
    assert (found.mean, found.se) == (0.0, 0.0)
    assert found.low is found.high is found.p is found.noninferiority_p is found.tost_p is None


# --- corrections
# ------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_corrections_are_statsmodels(ps):
    from statsmodels.stats.multitest import multipletests

    assert stats.holm(ps) == pytest.approx(multipletests(ps, method="holm")[1], abs=1e-12)
    assert stats.benjamini_hochberg(ps) == pytest.approx(multipletests(ps, method="fdr_bh")[1], abs=1e-12)


def test_corrections_of_nothing():
    assert stats.holm([]) == stats.benjamini_hochberg([]) == []


# --- power
# ------------------------------------------------------------------------


def test_published_power_figures():
    assert stats.n_paired(0.03, 1 / 9) == 969
    assert stats.n_mcnemar(0.2, 0.05) == 626
    assert stats.mde(200, 0.3**2) == pytest.approx(0.0594, abs=1e-4)


@given(st.floats(0.01, 0.3), st.floats(0.01, 0.5))
def test_n_mde_and_power_are_one_relation(delta, variance):
    n = stats.n_paired(delta, variance)
    assert stats.power_paired(n, delta, variance) >= 0.8 - 1e-6
    assert stats.mde(n, variance) <= delta + 1e-9
    if n > 3:
        assert stats.power_paired(n - 1, delta, variance) < 0.8 + 1e-3


@given(st.floats(0.005, 0.2), st.floats(0.0, 0.5), st.floats(1.0, 5.0))
def test_noninferiority_n_grows_with_everything_that_hurts(margin, variance, effect):
    n = stats.n_noninferiority(margin, variance, effect=effect)
    assert n >= stats.n_noninferiority(margin * 1.5, variance, effect=effect)
    assert n <= stats.n_noninferiority(margin, variance + 0.1, effect=effect)
    assert n >= stats.n_without_change(margin) - 1
    assert stats.smallest_margin(n, variance, effect=effect) <= margin + 1e-9


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.n_paired(0, 1),
        lambda: stats.mde(0, 1),
        lambda: stats.n_noninferiority(0.02, 0.1, true_difference=-0.02),
    ],
)
def test_power_refuses_what_has_no_answer(call):
    with pytest.raises(ValueError, match="above 0"):
        call()


def test_mcnemar_n_refuses_an_impossible_share():
    with pytest.raises(ValueError, match="discordant"):
        stats.n_mcnemar(0.01, 0.05)


# --- bootstrap
# ------------------------------------------------------------------------


def test_bootstrap_repeats_with_its_seed_and_matches_scipy():
    values = np.random.default_rng(3).exponential(2.0, 60)
    sums = np.column_stack([values, np.ones(60)])
    first = stats.resampled_sums(sums, 4000, seed=7)
    assert (first == stats.resampled_sums(sums, 4000, seed=7)).all()
    assert (first != stats.resampled_sums(sums, 4000, seed=8)).any()
    assert (first[:, 1] == 60).all()
    expected = scipy.stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=1).standard_error
    assert (first[:, 0] / 60).std() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("groups", [1, 2, 3, 64, 255, 256, 300, 512, 513])
@pytest.mark.parametrize("seed", [0, 7])
def test_clusters_are_drawn_as_numpy_draws_them_row_by_row(groups, seed):
    generator = np.random.Generator(np.random.SFC64(seed))
    rows = [generator.integers(0, groups, groups, dtype=np.uint16) for _ in range(700)]
    sums = stats.resampled_sums(np.arange(float(groups))[:, None], 700, seed)
    assert [row.sum() for row in rows] == sums[:, 0].tolist()


def test_bootstrap_memory_stays_small():
    columns = np.random.default_rng(0).random((5000, 3))
    tracemalloc.start()
    stats.resampled_sums(columns, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_ratio_interval_of_an_exact_ratio_is_that_ratio():
    sent = np.arange(10.0, 30.0)
    assert stats.ratio_interval(sent / 2, sent) == pytest.approx((0.5, 0.5))
    assert stats.ratio_interval(sent, np.zeros(20)) is None


def test_bootstrap_mean_gives_no_interval_without_spread_or_clusters():
    assert stats.bootstrap_mean([3.0] * 20) is None
    assert stats.bootstrap_mean([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    low, high = stats.bootstrap_mean([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
    assert low < 4.0 < high


@given(st.lists(st.floats(0, 100), min_size=6, max_size=60))
def test_median_interval_holds_the_median(values):
    low, high = stats.median_interval(values)
    assert low <= np.median(values) <= high


# --- curves and agreement
# ------------------------------------------------------------------------


def test_retention_refuses_a_baseline_near_nothing():
    found = stats.retention([0.0, 1.0] + [0.0] * 20, [0.0, 0.0] + [0.0] * 19 + [1.0])
    assert not found.reliable
    assert found.low is None
    assert stats.retention([0.0] * 8, [0.0] * 8).value is None
    good = stats.retention([0.4, 0.5, 0.6, 0.5, 0.4, 0.6, 0.5, 0.5], [0.8, 1.0, 1.1, 1.0, 0.9, 1.2, 1.0, 1.0])
    assert good.reliable
    assert good.low < good.value < good.high


def test_curve_edges():
    assert stats.fold_at(0.95, [1, 2, 4], [0.9, 0.9, 0.9], 0.9) == 4
    assert stats.fold_at(0.95, [1, 2], [0.5, 0.5], 0.9) is None
    assert stats.aurq([1, 2, 4, 8], [0.8, 0.8, 0.8, 0.8], 0.8) == pytest.approx(1.0)
    assert stats.aurq([1, 2, 4, 8], [0.8, 0.6, 0.6, 0.0], 0.8, up_to=2) == pytest.approx(0.875)
    for fold in ([2, 1], [1], [0, 1]):
        with pytest.raises(ValueError, match="curve"):
            stats.aurq(fold, [0.5] * len(fold), 0.5)
    with pytest.raises(ValueError, match="no area"):
        stats.aurq([1, 2], [0.5, 0.5], 0.5, up_to=4)


def test_bd_rate_refuses_ranges_that_hardly_overlap():
    with pytest.raises(ValueError, match="overlap"):
        stats.bd_rate([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4], [0.35, 0.5, 0.6, 0.7])
    with pytest.raises(ValueError, match="four points"):
        stats.bd_rate([1, 2, 3], [0.1, 0.2, 0.3], [1, 2, 3], [0.1, 0.2, 0.3])


def test_alpha_extremes():
    assert stats.alpha_ordinal([[1, 2, 3, 4], [1, 2, 3, 4]]) == pytest.approx(1.0)
    assert stats.alpha_ordinal([[1, 5, 1, 5], [5, 1, 5, 1]]) < 0
    assert stats.alpha_ordinal([[3, 3, 3], [3, 3, 3]]) is None
    assert stats.alpha_ordinal([[1, None], [None, 2]]) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=40))
def test_weighted_kappa_is_statsmodels(pairs):
    from statsmodels.stats.inter_rater import cohens_kappa

    table = np.zeros((6, 6))
    for pair in pairs:
        table[pair] += 1
    found = stats.weighted_kappa([a for a, _ in pairs], [b for _, b in pairs])
    if len({rating for pair in pairs for rating in pair}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(cohens_kappa(table, wt="quadratic", return_results=False), abs=1e-9)


@given(st.dictionaries(st.sampled_from(["1", " 2", "3 ", "4", "5", "five", "12"]), st.floats(0, 1), min_size=1))
def test_weighted_rating_stays_on_its_scale(shares):
    found = stats.weighted_rating(shares)
    if found is not None:
        assert 1 - 1e-9 <= found.rating <= 5 + 1e-9
        assert -1e-9 <= found.entropy <= math.log2(5) + 1e-9


def test_tails_and_quantiles_invert_each_other():
    for df in (5.0, 30.0, math.inf):
        assert upper_tail(quantile(0.975, df), df) == pytest.approx(0.025)


# --- simulations of the promises are in test_type_one_error.py
# --------------------------------------------------------------


def test_a_system_that_is_equal_is_found_so_in_80_percent_of_runs_of_the_size_promised():
    rng = np.random.default_rng(12)
    n = stats.n_noninferiority(0.05, 0.1)
    shown = sum(
        stats.bounded(rng.choice([-1.0, 0.0, 1.0], size=n, p=[0.05, 0.9, 0.05]), low=-1, high=1).p_above(-0.05) < 0.05
        for _ in range(300)
    )
    assert 0.72 <= shown / 300 <= 0.9
