"""Conversations drawn to go past a proxy: does the interval of their ratio hold the truth at every look?

Run as `python benchmarks/coverage.py holdout [--runs 400]`, some minutes.
"""

from __future__ import annotations

import math

import numpy as np

from context_bench.stats.anytime import FEWEST_OF_ARM, TUNED_FOR_OF_ARM, boundary, ratio_of_arms


def bills(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """Bills of conversations: log-normal, with the tails of t₃ on the log scale, two sorts, or a twentieth 150 times as
    dear.
    """
    if kind == "log-normal":
        return rng.lognormal(0, 1.2, n)
    if kind == "heavy tails":
        return np.exp(rng.standard_t(3, n))
    share, dear, own = (0.4, 4.0, 1.0) if kind == "two sorts" else (0.05, 5.0, 0.5)
    return np.exp(np.where(rng.random(n) < share, dear, 0.0) + rng.normal(0, own, n))


def holdout(runs: int, sessions: int = 20_000) -> None:
    """Streams in which some of 40 looks misses the truth, equal groups; beside it the ratio of arithmetic means."""
    rng = np.random.default_rng(5)
    looks = np.unique(np.geomspace(30, sessions, 40).astype(int))
    print("bills        held out  ours  ours, 10 fewest  arithmetic means, 30 fewest  ± at 1,000  ± at 10,000")
    for kind in ("log-normal", "heavy tails", "two sorts", "a few dear"):
        for share in (0.1, 0.5):
            wrong, widths = np.zeros(3), np.zeros(2)
            for _ in range(runs):
                drawn, held = bills(rng, kind, sessions), rng.random(sessions) < share
                missed = np.zeros(3, bool)
                for look in looks:
                    past, through = drawn[:look][held[:look]], drawn[:look][~held[:look]]
                    fewer = min(len(past), len(through))
                    if fewer < 10:
                        continue
                    value, half = _difference(np.log(through), np.log(past), share)
                    off = abs(value) > half
                    missed |= [
                        off and fewer >= FEWEST_OF_ARM,
                        off,
                        fewer >= FEWEST_OF_ARM and _means_miss(through, past, share),
                    ]
                widths += [_difference(*_logs(drawn[:n], held[:n]), share)[1] for n in (1_000, 10_000)]
                wrong += missed
                _hold_to_ours(drawn[:2_000], held[:2_000], share)
            ours, ten, means = wrong / runs
            near, far = widths / runs
            print(f"{kind:12} {share:8} {ours:6.1%} {ten:15.1%} {means:27.1%} {near:11.2f} {far:11.2f}", flush=True)


def _hold_to_ours(drawn: np.ndarray, held: np.ndarray, share: float) -> None:
    """What is simulated is what the package says."""
    found = ratio_of_arms(drawn[~held].tolist(), drawn[held].tolist(), share=share)
    value, half = _difference(*_logs(drawn, held), share)
    assert found is not None
    assert found.high is not None
    assert math.isclose(math.log(found.value), value, abs_tol=1e-9)
    assert math.isclose(math.log(found.high), value + half, abs_tol=1e-9)


def _logs(drawn: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.log(drawn[~held]), np.log(drawn[held])


def _difference(through: np.ndarray, past: np.ndarray, share: float) -> tuple[float, float]:
    """Difference of means and half its interval: `ratio_of_arms` on the log scale, in numpy, whatever the size."""
    n, own = len(through) + len(past), float(through.mean() - past.mean())
    variance = n * (through.var(ddof=1) / len(through) + past.var(ddof=1) / len(past))
    return own, math.sqrt(float(variance)) * boundary(n, TUNED_FOR_OF_ARM / min(share, 1 - share), 0.05)


def _means_miss(through: np.ndarray, past: np.ndarray, share: float) -> bool:
    """Does the same sequence for the logarithm of the ratio of arithmetic means (delta method) miss 0?"""
    ratio = math.log(through.mean() / past.mean())
    return abs(ratio) > _difference(through / through.mean(), past / past.mean(), share)[1]
