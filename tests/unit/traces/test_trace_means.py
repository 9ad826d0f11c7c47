from __future__ import annotations

import random

import pytest

from context_bench.traces.coverage import LEVELS, Level, Score
from context_bench.traces.figures import means


def row(name, coverage, precision, gold=10, pred=10, auc=None, **more):
    level = Level(coverage, precision, round((coverage or 0) * gold), gold, pred)
    return Score(name, "strict", final=dict.fromkeys(LEVELS, level), auc=dict.fromkeys(LEVELS, auc), **more)


def test_macro_micro_and_both_recipes_of_f1():
    rows = [
        row("a", 1.0, 0.5, gold=2, pred=4, auc=0.5),
        row("b", 0.5, 1.0, gold=8, pred=4, auc=None),
        Score("c", "strict", error="missing_gold"),
    ]
    found = means(rows)
    figures = found.figures
    assert (found.rows, found.errors) == (3, {"missing_gold": 1})
    assert figures["macro.coverage.line"].value == 0.75
    assert figures["micro.coverage.line"].value == pytest.approx((2 + 4) / 10)
    assert figures["micro.precision.line"].value == pytest.approx((2 + 4) / 8)
    assert figures["f1_macro.line"].value == pytest.approx(2 / 3)
    assert figures["f1_of_means.line"].value == pytest.approx(0.75)
    auc = figures["macro.auc.line"]
    assert (auc.value, auc.n, auc.missing, auc.low) == (0.5, 1, 1, None)
    assert figures["macro.auc_tokens.line"].value is None


def test_where_nothing_is_known_there_is_no_figure():
    figures = means([row("a", None, None, gold=0, pred=0)]).figures
    assert figures["macro.coverage.file"].to_json() == {
        "value": None,
        "low": None,
        "high": None,
        "n": 0,
        "missing": 1,
        "clusters": 0,
    }
    assert figures["micro.coverage.file"].value is None
    assert figures["f1_of_means.file"].value is None
    assert means([]).figures["f1_macro.line"].value is None


def test_intervals_hold_the_figure_and_go_by_repository():
    rng = random.Random(3)
    base = {f"r{n}": rng.random() for n in range(12)}
    rows, repos = [], []
    for n in range(60):
        repo = f"r{n % 12}"
        rows.append(
            row(
                f"i{n}",
                round(0.8 * base[repo] + 0.2 * rng.random(), 2),
                rng.random(),
                auc=0.4,
                editloc={"precision": rng.random()},
            )
        )
        repos.append(repo)
    by_repo, alone = means(rows, repos).figures, means(rows).figures
    for figures in (by_repo, alone):
        for name, mean in figures.items():
            if mean.value is not None:
                assert 0 <= mean.low <= mean.value <= mean.high <= 1, name
    wide, narrow = by_repo["macro.coverage.line"], alone["macro.coverage.line"]
    assert (wide.clusters, narrow.clusters) == (12, 60)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    assert by_repo["micro.coverage.line"].high - by_repo["micro.coverage.line"].low > 0
    assert means(rows[:5], repos[:5]).figures["macro.coverage.line"].low is None
    with pytest.raises(ValueError, match="repositories"):
        means(rows, ["r"])
