"""Every entry of the recorded statistics (scipy, statsmodels) against ours."""

import json
from pathlib import Path

import pytest

from context_bench import stats

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text())["statistics"]


def near(value):
    return pytest.approx(value, abs=1e-9)


def check_mcnemar(case):
    assert stats.mcnemar(case["b"], case["c"]).p == near(case["expected_p"])


def check_wilson(case):
    found = stats.wilson(case["k"], case["n"], case["confidence"])
    assert [found.low, found.high] == near(case["expected_ci"])


def check_cluster(case):
    found = stats.mean_se(case["scores"], case["clusters"])
    assert found.se_iid == near(case["expected_se_iid"])
    assert found.se_uncorrected == near(case["expected_se_cluster_uncorrected"])
    assert found.se == near(case["expected_se_cluster_corrected"])
    assert found.se_miller == near(case["expected_se_miller"])


def check_paired(case):
    found = stats.paired_difference(case["system"], case["baseline"], margin=case["margin"])
    assert found.mean == near(case["expected_mean_diff"])
    assert found.se == near(case["expected_se_paired"])
    assert found.p == near(case["expected_p_ttest"])
    assert found.noninferiority_p == near(case["expected_noninferiority_p"])
    assert found.lower_one_sided == near(case["expected_lower_95_one_sided"])
    assert found.tost_p == near(case["expected_tost_p"])
    assert stats.retention(case["system"], case["baseline"]).value == near(case["expected_retention"])


def check_n(case):
    assert stats.n_paired(case["delta"], case["sd_diff_squared"], case["alpha"], case["power"]) == case["expected_n"]


def check_alpha(case):
    assert stats.alpha_ordinal(case["ratings"]) == near(case["expected_alpha_ordinal"])


def check_geval(case):
    found = stats.weighted_rating(case["token_probabilities"])
    assert found.rating == near(case["expected_weighted_rating"])
    assert found.mass == near(case["expected_mass"])


def check_aurq(case):
    assert stats.aurq(case["fold"], case["quality"], case["baseline_quality"]) == near(case["expected_aurq"])
    assert stats.fold_at(0.95, case["fold"], case["quality"], case["baseline_quality"]) == pytest.approx(
        case["expected_fold_at_95"], abs=1e-8
    )


def check_bd(case):
    found = stats.bd_rate(case["tokens_anchor"], case["quality_anchor"], case["tokens_test"], case["quality_test"])
    assert found == near(case["expected_bd_rate_percent"])


CHECKS = {
    "s-mcnemar": check_mcnemar,
    "s-wilson": check_wilson,
    "s-cluster": check_cluster,
    "s-paired": check_paired,
    "s-n": check_n,
    "s-alpha": check_alpha,
    "s-geval": check_geval,
    "s-aurq": check_aurq,
    "s-bd": check_bd,
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_statistics_vector(case):
    (check,) = [
        check for prefix, check in CHECKS.items() if case["id"].startswith(prefix + "-") or case["id"] == prefix
    ]
    check(case)


def test_there_are_cases():
    assert len(CASES) >= 9
