"""Parts of `coverage.py`: claims that a loss is shown, in few documents of unequal size too; costs of heavy tail."""

from __future__ import annotations

import numpy as np

from context_bench import stats
from context_bench.stats.bootstrap import rests_on_few, skewed_upper_end
from context_bench.stats.intervals import SLACK_OF_A_LOSS

MARGIN = 0.02


def unequal(rng: np.random.Generator, groups: int, n: int) -> np.ndarray:
    """The cluster of each of about `n` examples; sizes are log-normal with σ 0.8."""
    shares = np.exp(0.8 * rng.standard_normal(groups))
    return np.repeat(np.arange(groups), np.maximum(1, np.round(shares / shares.sum() * n)).astype(int))


def inferior(_runs: int) -> None:
    """Exact: chance that a loss of exactly 2 points is called larger, by number of pairs; worst of several shares of
    gains.
    """
    gains = (0.0, 0.00125, 0.0025, 0.003, 0.004, 0.005, 0.01, 0.02, 0.05)
    for slack in (0.0, 0.5, SLACK_OF_A_LOSS):
        errors = {(n, up): _called_larger(n, up, slack) for n in range(20, 511) for up in gains}
        print(f"slack {slack} pairs", flush=True)
        for n in (50, 100, 150, 155, 200, 300, 500):
            print(f"{n:6} {max(errors[n, up] for up in gains):8.1%}")
        where = max(errors, key=lambda case: errors[case])
        print(f"worst: {errors[where]:.2%} (n = {where[0]}, gains {where[1]:.2%})")


def _called_larger(n: int, gains: float, slack: float) -> float:
    """Sum of the chances of all outcomes of `n` pairs at which Tango's test, moved by `slack` pairs, shows the loss."""
    from scipy.stats import binom

    losses_share = gains + MARGIN
    lost = np.arange(min(n, 60 + int(n * losses_share)) + 1.0)[:, None]
    won = np.arange(min(n, 60 + int(n * gains)) + 1.0)
    middle = -lost - won + (2 * n - lost + won) * MARGIN
    free = (np.sqrt(np.maximum(0, middle**2 + 8 * n * won * MARGIN * (1 - MARGIN))) - middle) / (4 * n)
    excess = np.maximum(0, lost - won - n * MARGIN - slack)
    shown = excess / np.sqrt(n * (2 * free + MARGIN * (1 - MARGIN))) > 1.6448536269514722
    chance = binom.pmf(lost, n, losses_share) * binom.pmf(won, n - lost, gains / (1 - losses_share))
    return float(chance[shown].sum())


def shown(runs: int) -> None:
    """Documents of unequal size, baseline at .9: share of runs in which a loss larger than 2 points is called shown."""
    rng = np.random.default_rng(8)
    print("groups     n   rho  loss is the margin   5 points  10 points")
    for groups, n in ((20, 100), (20, 400), (40, 100), (40, 200), (40, 500), (40, 800), (40, 2000), (100, 1000)):
        for rho in (0.0, 0.1):
            found = []
            for loss in (MARGIN, 0.05, 0.1):
                mean, called = np.array([0.025 + loss, 0.025, 0.95 - loss]), 0
                for _ in range(runs):
                    codes = unequal(rng, groups, n)
                    chances = rng.dirichlet(mean * (1 - rho) / rho, groups) if rho else np.tile(mean, (groups, 1))
                    reached = chances.cumsum(axis=1)[codes]
                    d = np.array([-1.0, 1.0, 0.0])[(rng.random((len(codes), 1)) > reached[:, :2]).sum(axis=1)]
                    gathered = stats.bounded(d, codes, low=-1, high=1, guarded=True, little_to_gain=True)
                    called += gathered.p_below(-MARGIN) < 0.05
                found.append(called / runs)
            print(f"{groups:6} {n:5} {rho:5}  " + "  ".join(f"{share:9.1%}" for share in found), flush=True)


def costs(runs: int) -> None:
    """Costs of rows, log-normal: share of 95 % intervals of their mean that hold it, as bootstrapped and as corrected
    for skewness; and how often it is said that one dear row would change it.
    """
    rng = np.random.default_rng(9)
    print("sigma     n  bootstrap  corrected  corrected, nothing said  said")
    for sigma in (0.5, 1.2, 1.5, 1.8):
        for n in (20, 50, 200, 500):
            held, corrected, said = np.zeros(runs, bool), np.zeros(runs, bool), np.zeros(runs, bool)
            true = float(np.exp(sigma**2 / 2))
            for run in range(runs):
                paid, one = rng.lognormal(0, sigma, n), np.ones(n)
                interval = stats.ratio_interval(paid, one, resamples=1000, seed=run)
                assert interval is not None
                low, high = interval
                held[run] = low <= true <= high
                corrected[run] = low <= true <= max(high, skewed_upper_end(paid, one))
                said[run] = rests_on_few(paid)
            silent = f"{corrected[~said].mean():.1%}" if not said.all() else "-"
            shares = f"{held.mean():10.1%} {corrected.mean():10.1%} {silent:>24} {said.mean():5.0%}"
            print(f"{sigma:5} {n:5} {shares}", flush=True)
