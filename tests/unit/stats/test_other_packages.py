"""The same questions put to statsmodels, evalstats and ville: the same answers, or the difference said."""

import evalstats.core.resampling as evalstats
import numpy as np
import pytest
import ville
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from context_bench import stats
from context_bench.stats.anytime import BoundedSequence
from context_bench.stats.intervals import LOST_AT_MOST, LostClusters
from context_bench.stats.means import cluster_robust


@pytest.mark.parametrize(("right", "n"), [(0, 40), (7, 40), (39, 40), (500, 1000)])
def test_wilson(right, n):
    ours = stats.wilson(right, n)
    for theirs in (evalstats.wilson_ci(right, n, 0.05), proportion_confint(right, n, method="wilson")):
        assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("better", "worse", "n"), [(6, 3, 50), (1, 9, 120), (20, 20, 300)])
def test_tango(better, worse, n):
    """evalstats solves the quartic of Chang and others 2024; without their correction it is Tango's interval.

    Its default has a correction of an eighth of a pair, which our printed intervals have not.
    """
    system = np.array([1.0] * better + [0.0] * worse + [1.0] * (n - better - worse))
    baseline = np.array([0.0] * better + [1.0] * worse + [1.0] * (n - better - worse))
    plain = evalstats.tango_scc_paired_ci(system, baseline, 0.05, c=0.0)
    ours = stats.tango(better, worse, n)
    assert (ours.low, ours.high) == pytest.approx(plain, abs=1e-8)
    assert stats.bounded(system - baseline, low=-1, high=1).interval() == pytest.approx(plain, abs=1e-6)
    corrected = evalstats.tango_scc_paired_ci(system, baseline, 0.05)
    assert corrected[0] < plain[0]
    assert corrected[1] > plain[1]


@pytest.mark.parametrize(("lost", "clusters"), [(1, 150), (3, 400), (12, 90)])
def test_clopper_and_pearsons_bound_of_lost_documents(lost, clusters):
    """Ours is one-sided at 95 %: the upper end of their 90 % interval."""
    for theirs in (
        evalstats.clopper_pearson_ci(lost, clusters, 0.1),
        proportion_confint(lost, clusters, alpha=0.1, method="beta"),
    ):
        assert LOST_AT_MOST * LostClusters(lost, clusters).margin(0.95) == pytest.approx(theirs[1], abs=1e-8)


def test_the_cluster_robust_error_beside_statsmodels():
    """statsmodels has CR1 for clusters: CR2 is larger where documents differ in size, else the same."""
    rng = np.random.default_rng(3)
    for sizes in (np.full(20, 10), rng.integers(1, 60, 20)):
        codes = np.repeat(np.arange(20), sizes)
        d = rng.choice([-1.0, 0.0, 1.0], size=len(codes), p=[0.08, 0.87, 0.05])
        fitted = OLS(d, np.ones(len(d))).fit(cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False})
        raw, ours = float(fitted.bse[0]), cluster_robust(d, codes)
        assert ours.mean == pytest.approx(float(fitted.params[0]))
        if len(set(sizes)) == 1:
            assert ours.se == pytest.approx(raw * (20 / 19) ** 0.5)
            assert ours.df == pytest.approx(19)
        else:
            assert ours.se > raw
            assert ours.df < 19


def test_corrections_for_many_tests():
    ps = [0.001, 0.2, 0.013, 0.04, 0.0009, 0.5, 0.02]
    assert stats.holm(ps) == pytest.approx(list(multipletests(ps, method="holm")[1]))
    assert stats.benjamini_hochberg(ps) == pytest.approx(list(multipletests(ps, method="fdr_bh")[1]))
    assert [p <= 0.05 for p in stats.benjamini_hochberg(ps)] == ville.evalues.bh(ps, 0.05).tolist()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 2.0)])
def test_the_confidence_sequence_of_a_bounded_mean(low, high):
    """Waudby-Smith and Ramdas 2024, theorem 2, written twice by different people."""
    values = low + (high - low) * (0.3 + 0.004 * ((37 * np.arange(1, 401)) % 101))
    ours, theirs = BoundedSequence(low=low, high=high), ville.EmpiricalBernsteinCS(bounds=(low, high))
    for value in values:
        ours.add(float(value))
    theirs.update(values)
    assert ours.interval == pytest.approx(theirs.interval(), abs=1e-9)
