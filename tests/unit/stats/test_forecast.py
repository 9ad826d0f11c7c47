"""Forecasts: the number of examples that a verdict names holds what it promises, and none is named that cannot be."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from context_bench import stats
from context_bench.stats.intervals import LostClusters
from context_bench.stats.verdict import compare, weigh


def pairs(n, lost, gained=0):
    """Scores of a system and its baseline: so many right answers lost, so many gained."""
    return [0.0] * lost + [1.0] * (n - lost), [1.0] * (n - gained) + [0.0] * gained


def ahead(n, lost, gained=0, margin=0.02, noise=None, clusters=None):
    return weigh(*pairs(n, lost, gained), clusters, margin=margin, noise=noise).forecast()


def power(n, rho, margin=0.02):
    """The chance that equal systems, of which a share rho of answers changes, are told apart from the margin: every
    outcome added up.
    """
    from scipy.stats import binom

    changed = np.arange(binom.ppf(1e-9, n, rho), binom.ppf(1 - 1e-9, n, rho) + 1).astype(int)
    chance = 0.0
    for count in changed:
        gained, cleared = np.arange(count + 1), []
        for up in (0, count):
            cleared.append(weigh(*pairs(n, count - up, up), margin=margin).p_loss < 0.05)
        if cleared[0]:
            share = 1.0
        elif not cleared[1]:
            share = 0.0
        else:
            low, high = 0, count  # the fewest gains that clear
            while high - low > 1:
                middle = (low + high) // 2
                ruled_out = weigh(*pairs(n, count - middle, middle), margin=margin).p_loss < 0.05
                low, high = (low, middle) if ruled_out else (middle, high)
            share = binom.pmf(gained[gained >= high], count, 0.5).sum()
        chance += binom.pmf(count, n, rho) * share
    return chance


@pytest.mark.parametrize(("rho", "named"), [(0.005, 239), (0.01, 305), (0.02, 432), (0.05, 844)])
def test_the_number_holds_what_it_promises_at_every_share_of_changes(rho, named):
    assert stats.n_noninferiority(0.02, rho) == named
    assert 0.8 <= power(named, rho) <= 0.9


def test_a_loss_at_the_margin_names_no_number():
    for n, lost in ((49, 1), (149, 3), (400, 8)):
        found = compare(*pairs(n, lost), margin=0.02, known_bad={"none": [0.0] * n})
        assert found.verdict == "undecided"
        assert found.n_needed is None
        assert found.sentence.endswith("No number of examples can be named: the loss seen is the margin.")


def test_a_number_is_a_range_and_says_what_a_loss_of_half_the_margin_takes():
    found = compare(*pairs(200, 5, 5), margin=0.02, known_bad={"none": [0.0] * 200})
    assert (
        "About 908 examples would decide if the two are truly equal (80 % chance; 610 to 1,200 as far as this run can "
        "tell), 3,500 if 1 point is truly lost." in found.sentence
    )
    needed = ahead(200, 5, 5)
    assert needed.low < needed.n == found.n_needed < needed.high < needed.if_half_lost


def test_the_noise_floor_says_how_often_pairs_change():
    quiet, noisy = np.zeros(200), np.array([1.0, -1.0] * 2 + [0.0] * 196)
    assert ahead(200, 0, 0, 0.01, noisy).n > ahead(200, 0, 0, 0.01).n > ahead(200, 0, 0, 0.01, quiet).n
    # a system that does not change like two equal arms is not forecast from those
    assert ahead(200, 0, 0, 0.01, np.array([1.0, -1.0] * 20 + [0.0] * 160)).n == ahead(200, 0, 0, 0.01).n
    assert ahead(200, 20, 20, 0.02, quiet).n == ahead(200, 20, 20, 0.02).n


@given(st.integers(6, 400), st.integers(0, 12), st.integers(0, 12), st.sampled_from([0.01, 0.02, 0.05]))
def test_no_number_is_beyond_twenty_times_the_run_nor_within_it(n, lost, gained, margin):
    lost, gained = min(lost, n // 2), min(gained, n // 2)
    found = compare(*pairs(n, lost, gained), margin=margin, known_bad={"none": [0.0] * n})
    assert found.n_needed is None or (found.verdict == "undecided" and n < found.n_needed <= 20 * n)
    assert ("No number of examples can be named" in found.sentence) is (
        found.verdict == "undecided" and found.n_needed is None
    )


def test_documents_are_named_and_never_fewer_than_can_rule_out_lost_ones():
    assert stats.least_clusters(0.02) == 149
    assert 0.98**149 <= 0.05 < 0.98**148
    codes = [i % 100 for i in range(500)]
    needed = ahead(500, 4, 4, clusters=codes)
    assert needed.n >= 149 * 5
    assert needed.clusters == math.ceil(needed.n / 5) >= 149
    assert ahead(500, 4, 4).clusters is None


@pytest.mark.parametrize(("documents", "named"), [(40, False), (200, True)])
def test_documents_too_few_to_tell_how_many_are_lost_by_chance_name_no_number(documents, named):
    codes = [i % documents for i in range(400)]
    needed = ahead(400, 8, 8, clusters=codes)
    assert (needed.n is not None) is named
    assert needed.why == ("" if named else "few")
    assert needed.least_clusters == 149


def test_lost_clusters_are_reckoned_with():
    for lost, clusters, margin in ((0, 200, 0.02), (1, 400, 0.02), (0, 60, 0.1)):
        seen = LostClusters(lost, clusters)
        enough = seen.enough(margin, 0.05, 0.8, 20 * clusters)
        share = (lost + 1) / (clusters + 2)
        passes = sum(
            math.comb(enough, k) * share**k * (1 - share) ** (enough - k)
            for k in range(enough + 1)
            if LostClusters(k, enough).p(margin) <= 0.05
        )
        assert 0.8 <= passes <= 0.87
    assert LostClusters(0, 40).enough(0.02, 0.05, 0.8, 800) is None


def test_a_range_beyond_the_cap_names_the_cap():
    needed = ahead(100, 5, 4)
    assert needed.low < needed.n == needed.high == 2000
    assert (
        "more than 2,000 if 1 point is truly lost"
        in compare(*pairs(100, 5, 4), margin=0.02, known_bad={"none": [0.0] * 100}).sentence
    )


def test_scores_without_a_range_are_forecast_by_their_spread():
    rng = np.random.default_rng(1)
    base = rng.normal(100, 30, 60)
    found = weigh(base + rng.normal(0, 10, 60), base, margin=2.0)
    needed = found.forecast()
    assert not found.in_points
    assert needed.low < needed.n < needed.high
    assert needed.n == pytest.approx(2.486**2 * 100 / 4, rel=0.4)


@pytest.mark.parametrize("rho", [0.02, 0.05])
def test_a_second_run_of_the_number_named_decides(rho):
    rng = np.random.default_rng(3)
    decides, named = 0, 0
    for _ in range(60):
        lost, gained = rng.multinomial(200, [rho / 2, rho / 2, 1 - rho])[:2]
        evidence = weigh(*pairs(200, lost, gained), margin=0.02)
        number = evidence.forecast().n
        if min(evidence.p_loss, evidence.p_within) < 0.05 or number is None:
            continue
        named += 1
        lost, gained = rng.multinomial(number, [rho / 2, rho / 2, 1 - rho])[:2]
        again = weigh(*pairs(number, lost, gained), margin=0.02)
        decides += min(again.p_loss, again.p_within) < 0.05
    assert named > 25
    assert 0.75 <= decides / named <= 0.97
