"""The long simulation behind the intervals and verdicts: how often they are wrong. Minutes to an hour; the suite runs a
small part of it.

python benchmarks/coverage.py PART [--runs 2000]

    margin    a true loss of exactly the margin: how often is it called harmless?
    whole     the same loss as whole documents lost amid noise; and the price, in power
    inferior  a loss of exactly the margin called larger than it: every outcome of 20 to 510 pairs, added up
    shown     the same in few documents of unequal size; and the power to show a larger loss
    costs     do intervals of a mean cost hold it, where few rows are dear?
    untouched examples saved where requests arrive as the baseline's did (exact)
    means     do 95 % intervals of means hold the true mean?
    agents    what so many tasks of agents can show; cost per solved task
    judged    labels drawn by band: is people's mean found; does a judge that favours a system let a loss pass?
    naive     a loss of the margin judged by the usual shortcuts, for comparison
    limits    limits on live traffic: false alarms, changes found
    forecast  a second run of the size that an undecided one names: how often does it decide?
    second    examples that equal systems need with one and with two answers of the baseline; the error at the margin
    holdout   conversations drawn to go past a proxy: is their ratio in the interval at every look?
    pilot     40 examples, then the plan that is reckoned from them: does it decide, and how often is it wrong?
    looks     a run that ends at the look at which it is decided: examples asked, error at the margin (exact)
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from statistics import NormalDist, fmean

import numpy as np
from coverage_claims import costs, inferior, shown, unequal
from coverage_designs import forecast, looks, own, pilot, second, untouched
from coverage_holdout import holdout
from coverage_limits import limits

from context_bench import stats
from context_bench.agents.figures import AgentRun, Contest, cost_per_solved_against
from context_bench.core.records import Comparison
from context_bench.stats.agreement import Label, labelled_mean
from context_bench.stats.verdict import as_people_rate, weigh

MARGIN = 0.02


def cluster_sizes(rng: np.random.Generator, groups: int, n: int) -> np.ndarray:
    if groups == n:
        return np.ones(n, dtype=int)
    shares = rng.gamma(2.0, 1.0, groups)
    return np.maximum(1, np.round(shares / shares.sum() * n)).astype(int)


def losses(rng: np.random.Generator, sizes: np.ndarray, discordant: float, rho: float, part: float) -> np.ndarray:
    """Differences with the true mean −MARGIN, whatever the base rate is: pairs change by `part` up or down, or not at
    all.
    """
    mean = np.array([(discordant + MARGIN / part) / 2, (discordant - MARGIN / part) / 2, 1 - discordant])
    kinds = np.concatenate([rng.choice(3, size=size, p=own(rng, mean, rho)) for size in sizes])
    return np.select([kinds == 0, kinds == 1], [-part, part], 0.0)


def grid() -> Iterator[tuple[int, int, float, float, float]]:
    for groups, n in (
        (6, 20),
        (6, 60),
        (6, 500),
        (10, 60),
        (10, 500),
        (20, 60),
        (20, 200),
        (20, 500),
        (30, 120),
        (30, 500),
        (150, 150),
        (150, 600),
        (250, 1000),
        (500, 500),
    ):
        for discordant in (0.02, 0.05, 0.1, 0.3):
            for rho in (0.0,) if groups == n else (0.0, 0.1, 0.3, 0.6, 0.99):
                for part in (1.0, 0.5):
                    if discordant * part >= MARGIN:
                        yield groups, n, discordant, rho, part


def harmless(d: np.ndarray, clusters: np.ndarray, margin: float = MARGIN) -> bool:
    """Is a loss of the margin called ruled out?"""
    return stats.bounded(d, clusters, low=-1, high=1, guarded=True).p_harmless(margin) < 0.05


def margin(runs: int) -> None:
    """Share of runs in which a loss of exactly the margin is called ruled out; 5 % is promised."""
    rng, worst = np.random.default_rng(0), 0.0
    print("groups     n  discordant   rho  part  called harmless")
    for groups, n, discordant, rho, part in grid():
        wrong = 0
        for _ in range(runs):
            sizes = cluster_sizes(rng, groups, n)
            d = losses(rng, sizes, discordant, rho, part)
            wrong += harmless(d, np.repeat(np.arange(groups), sizes))
        worst = max(worst, wrong / runs)
        print(f"{groups:6} {n:5} {discordant:11} {rho:5} {part:5} {wrong / runs:8.1%}", flush=True)
    print(f"worst: {worst:.1%}")


def whole(runs: int) -> None:
    """Changes come singly and cancel out; all loss is in a few documents that lose `depth` of theirs. Beside it: equal
    systems.
    """
    rng, worst = np.random.default_rng(3), 0.0
    print("groups     n  margin  noise  depth  called harmless  equal systems cleared")
    for groups, n, margin in (
        (30, 1000, 0.1),
        (60, 300, 0.05),
        (60, 1500, 0.05),
        (100, 1000, 0.05),
        (100, 1000, 0.02),
        (149, 1500, 0.02),
        (200, 600, 0.02),
        (200, 2000, 0.02),
        (400, 4000, 0.02),
    ):
        for noise in (0.0, 0.05, 0.1):
            for depth in (0.25, 0.45, 0.7, 0.95):
                passed = np.zeros(2)
                for _ in range(runs):
                    codes = unequal(rng, groups, n)
                    single = rng.choice([-1.0, 1.0, 0.0], size=len(codes), p=[noise / 2, noise / 2, 1 - noise])
                    lost = (rng.random(groups) < margin / depth)[codes] & (rng.random(len(codes)) < depth)
                    bad = np.where(lost, -1.0, single)
                    passed += [harmless(bad, codes, margin), harmless(single, codes, margin)]
                worst = max(worst, passed[0] / runs)
                shares = "  ".join(f"{share:8.1%}" for share in passed / runs)
                print(f"{groups:6} {n:5} {margin:7} {noise:6} {depth:6}  {shares}", flush=True)
    print(f"worst: {worst:.1%}")


def means(runs: int) -> None:
    """Share of 95 % intervals that hold the true mean of a score that is 0, 1 or between."""
    rng = np.random.default_rng(1)
    print("groups  size   rho  base  holds the mean  mean width")
    for groups in (10, 20, 50, 200):
        for size in (1, 4, 20):
            for rho in (0.0,) if size == 1 else (0.0, 0.2, 0.6):
                for base in (0.02, 0.5, 0.9, 0.98):
                    held, width = 0, 0.0
                    true = base * 0.8 + (1 - base) * 0.1
                    for _ in range(runs):
                        values = np.concatenate(
                            [_scores(rng, size, own(rng, np.array([base, 1 - base]), rho)[0]) for _ in range(groups)]
                        )
                        low, high = stats.bounded(values, np.repeat(np.arange(groups), size), low=0, high=1).interval()
                        held, width = held + (low <= true <= high), width + high - low
                    print(f"{groups:6} {size:5} {rho:5} {base:5} {held / runs:12.1%} {width / runs:14.3f}", flush=True)


def _scores(rng: np.random.Generator, size: int, good: float) -> np.ndarray:
    right = rng.random(size) < good
    return np.where(right, np.where(rng.random(size) < 0.6, 1.0, 0.5), np.where(rng.random(size) < 0.8, 0.0, 0.5))


def naive(runs: int) -> None:
    """The same question by Student's t and by the observed design effect."""
    rng = np.random.default_rng(2)
    print("groups     n  discordant   rho  part  paired t  observed design effect  ours")
    for groups, n, discordant, rho, part in grid():
        wrong = np.zeros(3)
        for _ in range(runs):
            sizes = cluster_sizes(rng, groups, n)
            d = losses(rng, sizes, discordant, rho, part)
            codes = np.repeat(np.arange(groups), sizes)
            ours = stats.bounded(d, codes, low=-1, high=1)
            found = stats.mean_se(d, codes)
            flat = not found.se
            t = math.inf if flat else (found.mean + MARGIN) / found.se
            effect = 1.0 if not found.se_iid else max(1.0, (found.se / found.se_iid) ** 2)
            z = ours.score(-MARGIN) * math.sqrt(ours.design.effect / effect) if ours.mean > -MARGIN else 0.0
            wrong += [t > 1.7, z > 1.7, harmless(d, codes)]
        told = "  ".join(f"{share:8.1%}" for share in wrong / runs)
        print(f"{groups:6} {n:5} {discordant:11} {rho:5} {part:5}  {told}", flush=True)


def judged(runs: int) -> None:
    """A judge that is right in 85 of 100 answers and else says anything: people's mean by labels drawn band by band;
    then a judge that adds `bias` points of 100 to a system that is worse by exactly the margin of 2.
    """
    rng = random.Random(5)
    true = sum(k * share for k, share in enumerate(_clipped_normal()))
    print("labels of 400  tuned  bias of the mean  as if drawn at random  interval holds the mean")
    for n in (20, 40, 100, 200):
        for tuned in (False, True) if n >= 100 else (False,):
            found = [_labelled_run(rng, n, tuned) for _ in range(runs)]
            bias, plain = (sum(each[place] for each in found) / runs - true for place in (0, 1))
            held = sum(low <= true <= high for _, _, (low, high) in found) / runs
            print(f"{n:13} {tuned!s:>6} {bias:17.3f} {plain:22.3f} {held:24.1%}", flush=True)
    print("examples  labels  gains  judge errs  its bias  a loss of the margin passes: by people  by the judge's score")
    for size, n in ((600, 100), (1000, 100), (1000, 400)):
        for gains, errs in ((0.04, 0.1), (0.0, 0.02)):
            for bias in (0.01, 0.02):
                passed = [_partial_judge(rng, size, n, bias, gains, errs) for _ in range(runs)]
                people, raw = (sum(each[place] for each in passed) / runs for place in (0, 1))
                print(f"{size:8} {n:7} {gains:6} {errs:11} {bias:9} {people:38.1%} {raw:21.1%}", flush=True)


def _clipped_normal() -> list[float]:
    """Shares of the ratings 0 to 5 of people: normal around 4 with SD 1.2, rounded and clipped."""
    below = [NormalDist(4, 1.2).cdf(k + 0.5) for k in range(5)]
    return [high - low for low, high in zip([0.0, *below], [*below, 1.0], strict=True)]


def _labelled_run(rng: random.Random, n: int, tuned: bool) -> tuple[float, float, tuple[float, float]]:
    """(people's mean by band, as if drawn at random, the interval of the first) of 400 answers and `n` labels."""
    human = rng.choices(range(6), _clipped_normal(), k=400)
    judge = [y if rng.random() < 0.85 else rng.randint(0, 5) for y in human]
    queues = {band: rng.sample(places, len(places)) for band in range(6) if (places := _where(judge, band))}
    chosen: list[int] = []
    while len(chosen) < n:
        chosen += [queue.pop() for queue in queues.values() if queue]
    labels = {at: Label(float(human[at]), judge[at], judge.count(judge[at]) / 400) for at in chosen[:n]}
    found = labelled_mean([float(f) for f in judge], labels, judge, tuned=tuned)
    assert found is not None
    plain = fmean(judge) + fmean(label.human - judge[at] for at, label in labels.items())
    return found.value, plain, found.interval()


def _where(judge: list[int], band: int) -> list[int]:
    return [at for at, rating in enumerate(judge) if rating == band]


def _partial_judge(rng: random.Random, size: int, n: int, bias: float, gains: float, errs: float) -> tuple[bool, bool]:
    """Is a loss of 2 points called ruled out: by people's difference, by the judge's own score? `gains`: share of
    examples that people rate higher, by a fifth of the scale; `errs`: share that the judge rates a fifth off.
    """
    gap = rng.choices((-0.2, 0.0, 0.2), (gains + 0.1, 0.9 - 2 * gains, gains), k=size)
    seen = [d + bias + (0 if rng.random() >= errs else rng.choice((-0.2, 0.2))) for d in gap]
    found = labelled_mean(seen, {at: Label(gap[at]) for at in rng.sample(range(size), n)}, tuned=True)
    assert found is not None
    raw = weigh([0.5 + d for d in seen], [0.5] * size, margin=MARGIN)
    people = as_people_rate(raw, found, n)
    return bool((people.p_loss or 0) < 0.05), bool((raw.p_loss or 0) < 0.05)


def agents(runs: int) -> None:
    """Tasks × trials: ability Beta(.6, .45), cost of a task log-normal (σ 1, of a trial .6), margin 10 points. Equal
    arms cleared; the interval of the cost per solved task, falsely "cheaper" at equal cost, a true ratio of .8 shown.
    """
    rng = np.random.default_rng(6)
    print("tasks  trials  equal cleared  cost per solved: interval holds 1  falsely cheaper  .8 shown")
    for tasks, trials in ((12, 3), (20, 1), (20, 3), (50, 1), (50, 3), (50, 5)):
        told = np.zeros(4)
        for _ in range(runs):
            arm, base, cleared = _agent_arms(rng, tasks, trials)
            found = cost_per_solved_against(arm, base, cleared)
            less = cost_per_solved_against([replace(run, cost=0.8 * (run.cost or 0)) for run in arm], base, cleared)
            told += [
                cleared.verdict == "non-inferior",
                found["low"] <= 1 <= found["high"] if found else 1.0,
                found.get("verdict") == "cheaper",
                less.get("verdict") == "cheaper",
            ]
        cleared_share, holds, wrong, shown = told / runs
        print(f"{tasks:5} {trials:7} {cleared_share:14.1%} {holds:34.1%} {wrong:16.1%} {shown:9.1%}", flush=True)


def _agent_arms(rng: np.random.Generator, tasks: int, trials: int) -> tuple[list[AgentRun], list[AgentRun], Comparison]:
    """Two arms alike, and the verdict on solving beside an arm that solves nothing."""
    ability, size = rng.beta(0.6, 0.45, tasks), rng.lognormal(0, 1, tasks)
    arms = [
        [
            AgentRun(
                ("d", str(task)),
                trial,
                str(task),
                float(rng.random() < ability[task]),
                cost=size[task] * rng.lognormal(0, 0.6),
            )
            for task in range(tasks)
            for trial in range(trials)
        ]
        for _ in range(2)
    ]
    nothing = [replace(run, solved=0.0) for run in arms[0]]
    verdicts = Contest("base", ["arm"], ["none"], 0.1).verdicts({"base": arms[0], "arm": arms[1], "none": nothing})
    return arms[1], arms[0], verdicts["arm"]


MODES = {
    "margin": margin,
    "whole": whole,
    "inferior": inferior,
    "shown": shown,
    "costs": costs,
    "means": means,
    "judged": judged,
    "naive": naive,
    "limits": limits,
    "untouched": untouched,
    "agents": agents,
    "forecast": forecast,
    "second": second,
    "holdout": holdout,
    "looks": looks,
    "pilot": pilot,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(MODES))
    parser.add_argument("--runs", type=int, default=2000)
    given = parser.parse_args()
    MODES[given.what](given.runs)
