"""Limits that hold whenever one looks: false alarms within the horizon, and how soon a change is found.

Run as `python benchmarks/coverage.py limits [--runs 2000]`. All streams go on side by side; on one stream of each kind
the evidence is held against the package's own detector. Three limits are declared, of which each is one, so that each
may raise a false alarm in 1.67 %; the column of false alarms is of a limit that is declared alone (5 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from context_bench import stats
from context_bench.stats.anytime import BETS, COST_WEIGHTS, HORIZON, EDetector

ALPHA, CHANNELS, GOOD, AFTER = 0.05, 3, 3_000, 500
REFERENCE, CAP = 50, 0.8  # sessions that set what one may weigh, and their percentile: as `traffic.watch.limits`
Draw = Callable[[np.random.Generator, int, bool], np.ndarray]


@dataclass(frozen=True)
class Channel:
    """A channel: `steps(rng, streams)` begins a stream for each and gives what draws their next steps, before and after
    a change.
    """

    name: str
    kind: str
    steps: Callable[[np.random.Generator, int], Draw]
    weights: tuple[float, ...] = ()


def session_costs(rng: np.random.Generator, shape: tuple[int, ...], sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Bills alone and their ratios through a system: log-normal, larger sessions save more, 2 % have half as much
    again in extra calls.
    """
    size = rng.standard_normal(shape)
    extra = np.where(rng.random(shape) < 0.02, 1.5, 1.0)
    return np.exp(1.2 * size), 0.8 * np.exp(sd * rng.standard_normal(shape) - 0.05 * size) * extra


@cache
def true_ratios(sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Logs of caps, and the true capped ratio at each: the limit at which a stream is exactly good. Its floor is half
    of it.
    """
    alone, ratio = session_costs(np.random.default_rng(9), (1_000_000,), sd)
    caps, limits = np.linspace(-1, 3.5, 40), []
    for cap in np.exp(caps):
        weight, limit = np.minimum(alone, cap) / cap, 0.8
        for _ in range(12):
            limit = float((weight * np.maximum(ratio, limit / 2)).sum() / weight.sum())
        limits.append(limit)
    return caps, np.array(limits)


@cache
def true_mean(sd: float) -> float:
    """The mean ratio of sessions, each counting alike."""
    _, ratio = session_costs(np.random.default_rng(9), (1_000_000,), sd)
    limit = 0.8
    for _ in range(12):
        limit = float(np.maximum(ratio, limit / 2).mean())
    return limit


def bill(sd: float, rise: float) -> Channel:
    def steps(rng: np.random.Generator, streams: int) -> Draw:
        cap = np.quantile(session_costs(rng, (REFERENCE, streams), sd)[0], CAP, axis=0)
        limit = np.interp(np.log(cap), *true_ratios(sd))

        def draw(rng: np.random.Generator, streams: int, changed: bool) -> np.ndarray:
            alone, ratio = session_costs(rng, (streams,), sd)
            ratio = ratio * (1 + rise * changed)
            return np.minimum(alone, cap) / cap * (np.maximum(ratio, limit / 2) - limit) / (limit / 2)

        return draw

    return Channel(f"bill, SD {sd:g}, +{rise:.0%}", "cost", steps, COST_WEIGHTS)


def typical(sd: float, rise: float) -> Channel:
    def draw(rng: np.random.Generator, streams: int, changed: bool) -> np.ndarray:
        ratio, limit = session_costs(rng, (streams,), sd)[1] * (1 + rise * changed), true_mean(sd)
        return (np.maximum(ratio, limit / 2) - limit) / (limit / 2)

    return Channel(f"typical, SD {sd:g}, +{rise:.0%}", "cost", lambda rng, streams: draw, COST_WEIGHTS)


def share(items: int, before: float, after: float, correlation: float = 0.2) -> Channel:
    def draw(rng: np.random.Generator, streams: int, changed: bool) -> np.ndarray:
        mean, scale = (after if changed else before), (1 - correlation) / correlation
        own = rng.beta(mean * scale, (1 - mean) * scale, streams)
        return (rng.binomial(items, own) / items - before) / before

    return Channel(f"share, {items} a session, {before:.0%} to {after:.0%}", "share", lambda rng, streams: draw)


def quality(probes: int, changing: float, loss: float) -> Channel:
    def draw(rng: np.random.Generator, streams: int, changed: bool) -> np.ndarray:
        worse = changing / 2 + (loss if changed else 0.0)
        kinds = rng.random((probes, streams))
        return ((kinds < worse) * 1.0 - (kinds > 1 - changing / 2)).mean(axis=0)

    return Channel(f"quality, {probes} probes, −{loss:.0%}", "quality", lambda rng, streams: draw)


def alarms(channel: Channel, streams: int, alpha: float, lengths: tuple[int, int], seed: int) -> np.ndarray:
    """The session of each stream's alarm (0: none), of which the first `lengths[0]` are good and the rest changed."""
    rng = np.random.default_rng(seed)
    draw = channel.steps(rng, streams)
    bets = np.array(BETS[channel.kind])[:, None]
    weights = np.array(channel.weights or [1 / len(bets)] * len(bets))
    wealth, found = np.zeros((len(bets), streams)), np.zeros(streams, int)
    checked = EDetector(BETS[channel.kind], alpha, weights=channel.weights)
    for t in range(1, sum(lengths) + 1):
        step = draw(rng, streams, t > lengths[0])
        wealth += checked.start if t == 1 else (1 - checked.start) / (HORIZON - 1)
        wealth *= 1 + bets * step
        evidence = weights @ wealth
        found[(evidence >= 1 / alpha) & (found == 0)] = t
        if t <= 500 and not checked.alarmed:
            checked.add(float(step[0]))
            assert np.isclose(checked.evidence, evidence[0]), "not the detector of the package"
    return found


def cells() -> Iterator[Channel]:
    yield from (bill(sd, rise) for sd, rise in ((0.1, 0.1), (0.2, 0.1), (0.3, 0.1), (0.5, 0.1), (0.3, 0.2)))
    yield from (typical(sd, 0.1) for sd in (0.2, 0.3))
    yield from (share(items, 0.01, 0.06) for items in (1, 3, 10))
    yield from (quality(probes, 0.06, 0.05) for probes in (3, 10))


def limits(runs: int) -> None:
    """False alarms within 10⁵ sessions where the mean is exactly the limit, and changes found, by channel."""
    print("channel                        false alarms   within 300 (500) sessions of the change; median, 90 %")
    print("                               in 10⁵         from the first session           after 3,000 good ones")
    for channel in cells():
        false = (alarms(channel, runs, ALPHA, (HORIZON, 0), 1) > 0).mean()
        told = [f"{channel.name:30} {false:7.1%}      "]
        for good in (0, GOOD):
            found = alarms(channel, runs, ALPHA / CHANNELS, (good, AFTER), 2)
            early = (found > 0) & (found <= good)
            delay = np.where(found > good, found - good, AFTER + 1)[~early]
            middle, late = (
                f"{value:.0f}" if value <= AFTER else f"> {AFTER}" for value in np.quantile(delay, (0.5, 0.9))
            )
            told.append(f"{(delay <= 300).mean():7.1%} ({(delay <= AFTER).mean():.1%}); {middle}, {late}".ljust(33))
        print("  ".join(told).rstrip(), flush=True)
    spread(runs)


def spread(runs: int) -> None:
    """How often the interval of the ratio of sums is wrong at some session up to 20,000, by the first one shown."""
    print("ratio of sums: wrong at some session up to 20,000, shown from 50, 200, 500 on")
    for sd in (0.2, 0.5):
        rng = np.random.default_rng(3)
        truth = _ratio_of_sums(sd)
        wrong = np.zeros((3, min(runs, 500)), bool)
        for stream in range(wrong.shape[1]):
            alone, ratio = session_costs(rng, (20_000,), sd)
            sequence = stats.RatioSequence()
            for t, (own, times) in enumerate(zip(alone.tolist(), ratio.tolist(), strict=True), 1):
                sequence.add(own * times, own)
                if t >= 50 and (t <= 1000 or t % 20 == 0):
                    low, high = sequence.interval or (0.0, 0.0)
                    wrong[:, stream] |= np.array([t >= first for first in (50, 200, 500)]) & (not low <= truth <= high)
        print(f"  SD {sd:g}: " + ", ".join(f"{part:.1%}" for part in wrong.mean(axis=1)), flush=True)
        print(f"    the usual 95 % interval, from 200 on: {_usual(sd, truth, wrong.shape[1]):.1%}", flush=True)


def _usual(sd: float, truth: float, streams: int) -> float:
    """Share of streams in which an interval of one look, looked at after each session, is wrong at some."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(streams):
        alone, ratio = session_costs(rng, (20_000,), sd)
        through, t = alone * ratio, np.arange(1, 20_001)
        below = np.cumsum(alone)
        found = np.cumsum(through) / below
        squares = np.cumsum(through**2) - 2 * found * np.cumsum(through * alone) + found**2 * np.cumsum(alone**2)
        half = 1.96 * np.sqrt(np.maximum(squares, 0) / t) / (below / t) / np.sqrt(t)
        wrong += bool((np.abs(found - truth) > half)[199:].any())
    return wrong / streams


def _ratio_of_sums(sd: float) -> float:
    """Exact, from the moments of the log-normal."""
    size, slope, extra = 1.2, -0.05, 1 + 0.02 * 0.5
    return 0.8 * extra * float(np.exp(sd**2 / 2 + (size + slope) ** 2 / 2 - size**2 / 2))
