"""What is left after the session was compressed again and again: quality by cycle, its slope, and when half of it is gone."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from context_bench.core.records import Estimate
from context_bench.stats.intervals import estimate
from context_bench.stats.lift import RetentionIndex, retention_index
from context_bench.stats.means import MIN_CLUSTERS

#: The retention index below which half of what the history was worth is gone.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Asked:
    """One probe after one cycle. `contradicts`: the answer names what it must not (1) or not (0), trials averaged; `None` if unknown."""

    probe: Hashable
    session: Hashable
    cycle: int
    value: float
    contradicts: float | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """Probes that were asked after every cycle. `cycles`: mean score after each; `slope`: change of the score per cycle (least squares, the
    sessions being what is drawn); `retention`: index after each cycle; `half_life`: the first cycle after which it is below a half,
    `None` if that did not happen; `resistance` = 1 + mean(last − first) on a scale of 1, within [0, 1]; `left_out`: probes of sessions
    with fewer cycles.
    """

    cycles: dict[int, Estimate]
    slope: Estimate | None
    retention: dict[int, RetentionIndex]
    half_life: int | None
    contradictions: dict[int, Estimate]
    resistance: float | None
    n: int
    left_out: int
    notes: list[str] = field(default_factory=list)


def drift(
    asked: Sequence[Asked],
    full: Sequence[Asked] = (),
    none: Sequence[Asked] = (),
    *,
    scale: float = 1.0,
    seed: int = 0,
) -> Drift | None:
    """The drift of one system; `None` unless some probe was asked after two cycles. `full`, `none`: the two ends, asked the same."""
    by = _by_probe(asked)
    cycles = sorted({one.cycle for one in asked})
    kept = {probe: own for probe, own in by.items() if len(own) == len(cycles)}
    if len(cycles) < 2 or not kept:
        return None
    quality = {cycle: estimate([own[cycle].value for own in kept.values()], _sessions(kept), high=scale) for cycle in cycles}
    ends = _by_probe(full), _by_probe(none)
    indices = {cycle: _index(kept, *ends, cycle, scale, seed) for cycle in cycles}
    known = {cycle: index.value for cycle, index in indices.items() if index.value is not None}
    last, first = cycles[-1], cycles[0]
    change = math.fsum(own[last].value - own[first].value for own in kept.values()) / len(kept) / scale
    notes = [f"no retention index after cycle {cycle}: {index.why}" for cycle, index in indices.items() if index.value is None]
    return Drift(
        quality,
        _slope(kept, cycles),
        indices,
        next((cycle for cycle, value in known.items() if value < HALF), None),
        _contradictions(kept, cycles),
        min(1.0, max(0.0, 1 + change)),
        len(kept),
        len(by) - len(kept),
        notes if any(ends) else [],
    )


def _by_probe(asked: Sequence[Asked]) -> dict[Hashable, dict[int, Asked]]:
    found: dict[Hashable, dict[int, Asked]] = {}
    for one in asked:
        found.setdefault(one.probe, {})[one.cycle] = one
    return found


def _sessions(kept: Mapping[Hashable, Mapping[int, Asked]]) -> list[Hashable]:
    return [next(iter(own.values())).session for own in kept.values()]


def _index(
    kept: Mapping[Hashable, Mapping[int, Asked]],
    full: Mapping[Hashable, Mapping[int, Asked]],
    none: Mapping[Hashable, Mapping[int, Asked]],
    cycle: int,
    scale: float,
    seed: int,
) -> RetentionIndex:
    shared = {probe: own for probe, own in kept.items() if cycle in full.get(probe, {}) and cycle in none.get(probe, {})}
    own, most, least = ([each[probe][cycle].value for probe in shared] for each in (kept, full, none))
    return retention_index(own, most, least, _sessions(shared), scale=scale, seed=seed)


def _slope(kept: Mapping[Hashable, Mapping[int, Asked]], cycles: Sequence[int]) -> Estimate | None:
    """Least squares over all (cycle, score), standard error from whole sessions, Student's t."""
    from context_bench.stats.distributions import quantile

    pairs = [(own[cycle].session, float(cycle), own[cycle].value) for own in kept.values() for cycle in cycles]
    at, of = (math.fsum(pair[i] for pair in pairs) / len(pairs) for i in (1, 2))  # type: ignore[misc]
    spread = math.fsum((x - at) ** 2 for _, x, _ in pairs)
    slope = math.fsum((x - at) * (y - of) for _, x, y in pairs) / spread
    pull: dict[Hashable, float] = {}
    for session, x, y in pairs:
        pull[session] = pull.get(session, 0.0) + (x - at) * (y - of - slope * (x - at))
    found = Estimate(slope, n=len(kept), clusters=len(pull), method="least squares, clustered")
    if len(pull) >= MIN_CLUSTERS:
        se = math.sqrt(len(pull) / (len(pull) - 1) * math.fsum(each**2 for each in pull.values())) / spread
        if se > 0:
            half = quantile(0.975, len(pull) - 1.0) * se
            found.low, found.high = slope - half, slope + half
    return found


def _contradictions(kept: Mapping[Hashable, Mapping[int, Asked]], cycles: Sequence[int]) -> dict[int, Estimate]:
    found = {}
    for cycle in cycles:
        told = [own[cycle] for own in kept.values() if own[cycle].contradicts is not None]
        if told:
            found[cycle] = estimate([one.contradicts or 0.0 for one in told], [one.session for one in told])
    return found
