"""The part of `coverage.py` about designs: does a forecast hold what it promises, and how many examples does a design
save?
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np

from context_bench.engine.looks import PILOT, PILOT_LEVEL, SHARES, levels_of_looks
from context_bench.stats import verdict as stats_verdict
from context_bench.stats.intervals import SLACK, SLACK_OF_A_LOSS
from context_bench.stats.verdict import Evidence
from context_bench.stats.verdict.forecast import ExamplesNeeded, for_chance

MARGIN = 0.02


def own(rng: np.random.Generator, mean: np.ndarray, rho: float) -> np.ndarray:
    """One cluster's own probabilities; `rho` = correlation of two values of one cluster."""
    if rho == 0:
        return mean
    drawn = rng.standard_gamma(mean * (1 - rho) / rho + 1e-12)
    return drawn / drawn.sum() if drawn.sum() > 0 else np.eye(len(mean))[rng.choice(len(mean), p=mean)]


def scores(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong answers of a system and its baseline that differ by `d`."""
    baseline = (d <= 0).astype(float)
    return baseline + d, baseline


def decided(evidence: Evidence) -> bool:
    """Is the loss of the margin ruled out, or shown?"""
    return min(evidence.p_loss or 0.0, evidence.p_within or 0.0) < 0.05


def changing(rng: np.random.Generator, n: int, rho: float, loss: float = 0.0) -> np.ndarray:
    """Differences of n pairs: a share `rho` changes, and `loss` more of them down than up."""
    return rng.choice([1.0, -1.0, 0.0], size=n, p=[(rho - loss) / 2, (rho + loss) / 2, 1 - rho])


def in_documents(rng: np.random.Generator, n: int, groups: int, rho: float, icc: float) -> tuple[np.ndarray, ...]:
    """As `changing`, of documents of unequal size within which changes go together."""
    shares = rng.lognormal(0, 0.8, groups)
    sizes = np.maximum(1, np.round(shares / shares.sum() * n)).astype(int)
    mean = np.array([rho / 2, rho / 2, 1 - rho])
    kinds = np.concatenate([rng.choice(3, size=size, p=own(rng, mean, icc)) for size in sizes])
    return np.select([kinds == 0, kinds == 1], [1.0, -1.0], 0.0), np.repeat(np.arange(groups), sizes)


def forecast(runs: int) -> None:
    """Of pilots that leave it open: the share that names a number of examples, the number, and how often a second run
    of that number decides (80 % promised). Exact for independent examples without a noise floor, else simulated.
    """
    print("truth, pilot of n                       open  named  number (10, 50, 90 %)  second run decides")
    for rho, n in itertools.product((0.01, 0.02, 0.05, 0.1), (40, 100, 200)):
        _print_second_runs(f"equal, changing {rho:.0%}, n {n}", n, rho / 2, 0.0)
    for rho, loss, n in ((0.05, 0.01, 200), (0.05, 0.04, 100), (0.06, 0.04, 100), (0.05, 0.05, 100), (0.06, 0.05, 100)):
        _print_second_runs(f"loss {loss:.0%}, changing {rho:.0%}, n {n}", n, (rho - loss) / 2, loss)
    print(
        "gains, pilot of n     a second run of the number named for a loss as seen decides, true losses 0 to 12 points"
    )
    for gains, n in itertools.product((0.005, 0.03), (100, 200)):
        named = hits = 0.0
        for loss in np.arange(0.0, 0.125, 0.01):
            for chance, ahead in _pilots(n, gains, gains + float(loss)):
                if ahead is not None and ahead.as_seen and ahead.n is not None:
                    named, hits = named + chance, hits + chance * _decides(ahead.n, gains, float(loss))
        print(f"{gains:5} {n:14} {hits / named:14.1%}", flush=True)
    print("true loss, changing 5 %   numbers that decide in 75 to 92 %")
    for loss in (0.0, 0.01, 0.04, 0.05):
        gains, sizes = (0.05 - loss) / 2, np.unique(np.geomspace(100, 8000, 300).astype(int))
        chances = np.array([_decides(int(size), gains, loss) for size in sizes])
        within = sizes[(chances >= 0.75) & (chances <= 0.92)]
        print(f"{loss:9} {within.min():10} to {within.max()}", flush=True)
    for rho, n in itertools.product((0.01, 0.02, 0.05, 0.1), (40, 100, 200)):
        rng = np.random.default_rng(5)
        numbers, hits, undecided = [], 0, 0
        for _ in range(runs):
            d, noise = changing(rng, n, rho), changing(rng, n, rho)
            first = stats_verdict.weigh(*scores(d), margin=MARGIN, noise=noise)
            if decided(first):
                continue
            undecided += 1
            if (number := first.forecast().n) is not None:
                numbers.append(number)
                hits += decided(stats_verdict.weigh(*scores(changing(rng, number, rho)), margin=MARGIN))
        told = f"{f'equal, changing {rho:.0%}, n {n}, with full#2':40} {undecided / runs:4.0%}"
        told += f" {len(numbers) / max(1, undecided):6.0%}"
        if numbers:
            told += f"  {np.percentile(numbers, [10, 50, 90]).astype(int)!s:22} {hits / len(numbers):6.1%}"
        print(told, flush=True)
    for groups, n, icc in itertools.product((40, 200), (80, 400), (0.0, 0.2)):
        if n < groups:
            continue
        rng = np.random.default_rng(6)
        numbers, hits, undecided, rho = [], 0, 0, 0.05
        for _ in range(runs):
            d, codes = in_documents(rng, n, groups, rho, icc)
            first = stats_verdict.weigh(*scores(d), codes, margin=MARGIN)
            if decided(first):
                continue
            undecided += 1
            ahead = first.forecast()
            if ahead.n is not None:
                numbers.append(ahead.n)
                d, codes = in_documents(rng, ahead.n, ahead.clusters, rho, icc)
                hits += decided(stats_verdict.weigh(*scores(d), codes, margin=MARGIN))
        name = f"equal, {n} in {groups} documents, correlation {icc}"
        told = f"{name:40} {undecided / runs:4.0%} {len(numbers) / max(1, undecided):6.0%}"
        if numbers:
            told += f"  {np.percentile(numbers, [10, 50, 90]).astype(int)!s:22} {hits / len(numbers):6.1%}"
        print(told, flush=True)


def _pilots(n: int, gains: float, losses: float) -> list[tuple[float, ExamplesNeeded | None]]:
    """(chance, forecast) of every outcome of a pilot of `n` independent pairs; no forecast where it is decided."""
    from scipy.stats import binom

    most = [int(binom.ppf(1 - 1e-7, n, share)) for share in (gains, losses)]
    found = []
    for won, lost in itertools.product(range(most[0] + 1), range(min(most[1], n) + 1)):
        chance = float(binom.pmf(won, n, gains) * binom.pmf(lost, max(0, n - won), losses / (1 - gains)))
        if won + lost <= n and chance > 1e-8:
            found.append((chance, _after(n, won, lost)))
    return found


@cache
def _after(n: int, won: int, lost: int) -> ExamplesNeeded | None:
    d = np.repeat([1.0, -1.0, 0.0], [won, lost, n - won - lost])
    first = stats_verdict.weigh(*scores(d), margin=MARGIN)
    return None if decided(first) or first.forecast is None else first.forecast()


@cache
def _decides(n: int, gains: float, loss: float) -> float:
    """Chance that a run of `n` pairs decides, either way."""
    return sum(ends_of_looks(n, gains, loss, MARGIN, ONCE)[:2])


def _print_second_runs(name: str, n: int, gains: float, loss: float) -> None:
    pilots = _pilots(n, gains, gains + loss)
    still = [(chance, ahead) for chance, ahead in pilots if ahead is not None]
    named = [(chance, ahead, ahead.n) for chance, ahead in still if ahead.n is not None]
    undecided, there = (sum(each[0] for each in part) for part in (still, named))
    told = f"{name:40} {undecided:4.0%} {there / undecided:6.0%}"
    if named:
        order = sorted((number, chance) for chance, _, number in named)
        reached = np.cumsum([chance for _, chance in order]) / there
        middle = [order[int(np.searchsorted(reached, part))][0] for part in (0.1, 0.5, 0.9)]
        hits = sum(chance * _decides(number, gains, loss) for chance, _, number in named)
        told += f"  {middle!s:22} {hits / there:6.1%}"
        if loss == MARGIN / 2:
            half = [(chance, ahead.if_half_lost) for chance, ahead, _ in named if ahead.if_half_lost]
            share = sum(chance * _decides(number, gains, loss) for chance, number in half)
            told += f"; of the number named for such a loss {share / sum(chance for chance, _ in half):.1%}"
    print(told, flush=True)


def second(runs: int) -> None:
    """Each of three answers is right or wrong by itself: the system's, and one or two of the baseline. How often is a
    loss of 2 points ruled out, if there is none and if it is the margin?
    """
    rng = np.random.default_rng(7)
    flips = (1 - math.sqrt(1 - 2 * 0.051)) / 2  # two answers differ in 5.1 % of examples
    print("answers of the baseline     n  ruled out if equal  if the loss is the margin")
    for answers, n in ((1, 837), (2, 679), (2, 725), (2, 500)):
        told = np.zeros(2)
        for _ in range(runs):
            base = (rng.random((answers, n)) > flips).mean(axis=0)
            for place, loss in enumerate((0.0, MARGIN)):
                system = (rng.random(n) > flips + loss).astype(float)
                told[place] += (stats_verdict.weigh(system, base, margin=MARGIN).p_loss or 0.0) < 0.05
        print(f"{answers:23} {n:5} {told[0] / runs:19.1%} {told[1] / runs:26.1%}", flush=True)


def untouched(_runs: int) -> None:
    """Exact: examples from which on 80 % of equal systems are cleared at 2 points where 5.1 % of answers change, if a
    share of the requests arrives as the baseline's did and counts as difference 0; and how often a true loss of the
    margin, all of it on the others, is called harmless then.
    """
    print("share untouched  examples  saved  a loss of the margin called harmless, at that n")
    plain = 0
    for share in (0.0, 0.2, 0.5, 0.8):
        changing_still = 0.051 * (1 - share)
        cleared = {n: ends_of_looks(n, changing_still / 2, 0.0, MARGIN, ONCE)[0] for n in range(200, 950)}
        n = max(size for size, power in cleared.items() if power < 0.8) + 1
        plain = plain or n
        wrong = ends_of_looks(n, max(0.0, changing_still - MARGIN) / 2, MARGIN, MARGIN, ONCE)[0]
        print(f"{share:15} {n:9} {1 - n / plain:6.0%} {wrong:6.1%}", flush=True)


def looks(_runs: int) -> None:
    """Exact: at most 875 examples, looked at at 40, 60, 80 and 100 % of them; margin 2 points, 5 % of answers change.
    How many are asked, and how often is a loss of the margin ruled out, or a larger one shown? Then the worst of both
    errors over how many examples there are at most and how many change for the better.
    """
    most, rho = 875, 0.051
    print("true loss  examples asked  non-inferior  inferior  undecided")
    for loss in (0.0, MARGIN, 0.05, 0.1, 0.3):
        cleared, called, asked = ends_of_looks(most, (max(rho, loss + 0.01) - loss) / 2, loss)
        told = " ".join(f"{share:12.1%}" for share in (cleared, called, 1 - cleared - called))
        print(f"{loss:9} {asked:15.0f} {told}", flush=True)
    print("margin  at most  a loss of it ruled out, at worst  a larger one shown, at worst (examples, gains)")
    for margin, sizes in (
        (0.01, range(200, 2001, 13)),
        (0.02, range(10, 1501)),
        (0.05, range(10, 701)),
        (0.1, range(10, 301)),
        (0.2, range(10, 151)),
    ):
        parts = (0.0, 0.03, 0.0625, 0.1, 0.15, 0.25, 0.775, 1.5, *([2.5] if margin < 0.2 else []))
        cells = [(n, margin * part) for n in sizes for part in parts]
        errors = {cell: ends_of_looks(*cell, margin, margin) for cell in cells}
        told = ""
        for place in (0, 1):
            n, gains = max(cells, key=lambda cell: errors[cell][place])
            told += f"  {errors[n, gains][place]:.2%} ({n}, {gains:.2%})"
        print(f"{margin:6} {max(sizes):8} {told}", flush=True)


#: (share of the examples, one-sided level, that of a larger loss) of a run that is judged once.
ONCE = ((1.0, 0.05, 0.05),)


def looks_at(most: int) -> tuple[tuple[float, float, float], ...]:
    """The same of each look at a run of at most so many examples."""
    return tuple((share, *levels) for share, levels in zip(SHARES, levels_of_looks(most), strict=True))


def ends_of_looks(
    most: int, gains: float, loss: float, margin: float = MARGIN, looks: tuple[tuple[float, float, float], ...] = ()
) -> tuple[float, float, float]:
    """(chance of `non-inferior`, of `inferior`, examples asked on average) of a run with looks at at most `most` pairs,
    of which a share `gains` changes for the better and `loss` more for the worse: all outcomes, added up.
    """
    from scipy.signal import fftconvolve
    from scipy.stats import binom

    down = gains + loss
    won, lost = (np.arange(min(most, int(most * p + 8 * math.sqrt(most * p + 1)) + 12) + 1.0) for p in (gains, down))
    won, going, before = won[:, None], np.zeros((len(won), len(lost))), 0
    going[0, 0], ends, asked = 1.0, np.zeros(2), 0.0
    for share, level, level_of_a_loss in looks or looks_at(most):
        n = max(1, round(share * most))
        step = binom.pmf(won, n - before, gains) * binom.pmf(lost, np.maximum(0, n - before - won), down / (1 - gains))
        going = np.maximum(0, fftconvolve(going, step)[: len(won), : len(lost)])
        p_loss, p_within = p_values(n, won, lost, margin)
        cleared, called = p_loss < level, p_within < level_of_a_loss
        now = np.array([going[cleared].sum(), going[called].sum()])
        ends, asked, before = ends + now, asked + n * float(now.sum()), n
        going[cleared | called] = 0.0
    return float(ends[0]), float(ends[1]), asked + most * float(going.sum())


def p_values(n: int, won: np.ndarray, lost: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """One-sided p of "the loss is the margin or more", and of "or less", of independent pairs (0 and 1 only): what
    `weigh` gives them where it is below one half, for many outcomes at once.
    """
    from scipy.special import ndtr

    middle = -lost - won + (2 * n - lost + won) * margin
    free = (np.sqrt(np.maximum(0, middle**2 + 8 * n * won * margin * (1 - margin))) - middle) / (4 * n)
    spread = np.sqrt(n * (2 * free + margin * (1 - margin)))

    def p(excess: np.ndarray, slack: float) -> np.ndarray:
        return np.where(excess > 0, ndtr(-np.maximum(0, excess - slack) / spread), 1.0)

    above = won - lost + n * margin
    return p(above, SLACK), p(-above, SLACK_OF_A_LOSS)


def pilot(runs: int) -> None:
    """A pilot of 40, then the plan that is reckoned from it, whose looks count the pilot's answers: how often is there
    a plan, does it decide, and is a loss of the margin ruled out, or called larger?
    """
    rng = np.random.default_rng(9)
    print(
        "margin  changing  true loss  decided by the pilot  planned  of these decided  examples  non-inferior  inferior"
    )
    for margin, rho in itertools.product((0.05, 0.1), (0.02, 0.05, 0.1, 0.2)):
        for loss in (0.0, margin):
            verdicts, early, planned, ended, asked = np.zeros(2), 0, 0, 0, []
            for _ in range(runs):
                d = changing(rng, PILOT, max(rho, loss), loss)
                found, size = after_pilot(int((d > 0).sum()), int((d < 0).sum()), margin)
                if any(found):
                    early, verdicts = early + 1, verdicts + found
                if size is None:
                    continue
                planned += 1
                most = max(PILOT + 1, math.ceil(size * 875 / 840))
                d = np.concatenate([d, changing(rng, most - PILOT, max(rho, loss), loss)])
                won, lost = np.cumsum(d > 0), np.cumsum(d < 0)
                for share, level, level_of_a_loss in looks_at(most):
                    n = round(share * most)
                    p_loss, p_within = one_p_value(n, int(won[n - 1]), int(lost[n - 1]), margin)
                    found = p_loss < level, p_within < level_of_a_loss
                    if any(found):
                        break
                ended, verdicts = ended + any(found), verdicts + found
                asked.append(max(n, PILOT))
            told = f"{early / runs:21.1%} {planned / runs:8.1%} {ended / max(1, planned):17.1%}"
            mean = f"{np.mean(asked):9.0f}" if asked else f"{'-':>9}"
            wrong = " ".join(f"{share:12.1%}" for share in verdicts / runs)
            print(f"{margin:6} {rho:9} {loss:10} {told} {mean} {wrong}", flush=True)


@cache
def after_pilot(won: int, lost: int, margin: float) -> tuple[tuple[bool, bool], int | None]:
    """What a pilot with these changes decides, and the examples of the plan after it, if there is one."""
    d = np.repeat([1.0, -1.0, 0.0], [won, lost, PILOT - won - lost])
    first = stats_verdict.weigh(*scores(d), margin=margin)
    found = (first.p_loss or 0.0) < PILOT_LEVEL, (first.p_within or 0.0) < PILOT_LEVEL
    return found, None if any(found) else for_chance(first.forecast(), PILOT)


@cache
def one_p_value(n: int, won: int, lost: int, margin: float) -> tuple[float, float]:
    """`p_values` of one outcome."""
    p_loss, p_within = p_values(n, np.array(float(won)), np.array(float(lost)), margin)
    return float(p_loss), float(p_within)
