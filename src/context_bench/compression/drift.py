"""Drift of a session that is compressed again and again, and the sources of a mean's uncertainty.

Drift is quality by cycle, its slope, and the cycle by which half of it is gone. The uncertainty of a mean comes from
sessions, compressions of the same text, answers to the same question and judgements of the same answer. Method of
moments on the nested design, with Var(mean) = s²_session/S + s²_comp/(S r_c) + s²_ans/(S r_c r_a P) + s²_judge/(S r_c
r_a P r_j).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from context_bench.core.measures import percent
from context_bench.core.records import Estimate
from context_bench.stats.intervals import estimate
from context_bench.stats.lift import RetentionIndex, retention_index
from context_bench.stats.means import MIN_CLUSTERS

#: The retention index below which half of what the history was worth is gone.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class DriftProbe:
    """One probe after one cycle. `contradicts`: the answer names what it must not (1) or not (0), trials averaged;
    `None` if unknown.
    """

    probe: Hashable
    session: Hashable
    cycle: int
    value: float
    contradicts: float | None = None


@dataclass(frozen=True, slots=True)
class DriftFigures:
    """Probes that were asked after every cycle. `cycles`: mean score after each; `slope`: change of the score per cycle
    (least squares, the sessions being what is drawn); `retention`: index after each cycle; `half_life`: the first cycle
    after which it is below a half, `None` if that did not happen; `resistance` = 1 + mean(last − first) on a scale of
    1, within [0, 1]; `left_out`: probes of sessions with fewer cycles.
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
    asked: Sequence[DriftProbe],
    full: Sequence[DriftProbe] = (),
    none: Sequence[DriftProbe] = (),
    *,
    scale: float = 1.0,
    seed: int = 0,
) -> DriftFigures | None:
    """The drift of one system; `None` unless some probe was asked after two cycles. `full`, `none`: the two ends, asked
    the same.
    """
    by = _by_probe(asked)
    cycles = sorted({one.cycle for one in asked})
    kept = {probe: own for probe, own in by.items() if len(own) == len(cycles)}
    if len(cycles) < 2 or not kept:
        return None
    quality = {
        cycle: estimate([own[cycle].value for own in kept.values()], _sessions(kept), high=scale) for cycle in cycles
    }
    ends = _by_probe(full), _by_probe(none)
    indices = {cycle: _index(kept, *ends, cycle, scale, seed) for cycle in cycles}
    known = {cycle: index.value for cycle, index in indices.items() if index.value is not None}
    last, first = cycles[-1], cycles[0]
    change = math.fsum(own[last].value - own[first].value for own in kept.values()) / len(kept) / scale
    notes = [
        f"no retention index after cycle {cycle}: {index.why}"
        for cycle, index in indices.items()
        if index.value is None
    ]
    return DriftFigures(
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


def _by_probe(asked: Sequence[DriftProbe]) -> dict[Hashable, dict[int, DriftProbe]]:
    found: dict[Hashable, dict[int, DriftProbe]] = {}
    for one in asked:
        found.setdefault(one.probe, {})[one.cycle] = one
    return found


def _sessions(kept: Mapping[Hashable, Mapping[int, DriftProbe]]) -> list[Hashable]:
    return [next(iter(own.values())).session for own in kept.values()]


def _index(
    kept: Mapping[Hashable, Mapping[int, DriftProbe]],
    full: Mapping[Hashable, Mapping[int, DriftProbe]],
    none: Mapping[Hashable, Mapping[int, DriftProbe]],
    cycle: int,
    scale: float,
    seed: int,
) -> RetentionIndex:
    shared = {
        probe: own for probe, own in kept.items() if cycle in full.get(probe, {}) and cycle in none.get(probe, {})
    }
    own, most, least = ([each[probe][cycle].value for probe in shared] for each in (kept, full, none))
    return retention_index(own, most, least, _sessions(shared), scale=scale, seed=seed)


def _slope(kept: Mapping[Hashable, Mapping[int, DriftProbe]], cycles: Sequence[int]) -> Estimate | None:
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


def _contradictions(kept: Mapping[Hashable, Mapping[int, DriftProbe]], cycles: Sequence[int]) -> dict[int, Estimate]:
    found = {}
    for cycle in cycles:
        told = [own[cycle] for own in kept.values() if own[cycle].contradicts is not None]
        if told:
            found[cycle] = estimate([one.contradicts or 0.0 for one in told], [one.session for one in told])
    return found


#: Levels from the outside in, and what more of each is called.
LEVELS = {
    "session": "sessions",
    "compressor": "compressions of each point",
    "answer": "answers to each probe",
    "judge": "judgements of each answer",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One score: of which session, which compression of it, which probe, which answer, which judgement."""

    session: Hashable
    compression: Hashable
    probe: Hashable
    answer: Hashable
    judgement: Hashable
    value: float


@dataclass(frozen=True, slots=True)
class VarianceLevel:
    """`variance`: of single draws on this level, `None` where there was no second draw to see it by. `draws`: per unit
    of the level above (sessions: in all; means where they differ). `share`: of the variance of the mean.
    `se_if_doubled`: the standard error with twice as many draws here.
    """

    name: str
    variance: float | None
    draws: float
    share: float | None
    se_if_doubled: float | None


@dataclass(frozen=True, slots=True)
class Components:
    """The levels from the outside in, the standard error that follows, `probes` per compression, and a sentence on
    where calls help.
    """

    levels: list[VarianceLevel]
    se: float
    probes: float
    advice: str

    def level(self, name: str) -> VarianceLevel:
        """The level of that name."""
        return next(each for each in self.levels if each.name == name)


def components(observations: Iterable[Observation]) -> Components | None:
    """Variance components of the mean over sessions; `None` with fewer than two sessions. Estimates below 0 are 0."""
    tree: dict[Hashable, dict[Hashable, dict[Hashable, dict[Hashable, list[float]]]]] = {}
    for one in observations:
        probes = tree.setdefault(one.session, {}).setdefault(one.compression, {})
        probes.setdefault(one.probe, {}).setdefault(one.answer, []).append(one.value)
    if len(tree) < 2:
        return None
    compressions = [each for by in tree.values() for each in by.values()]
    answers = [each for by in compressions for each in by.values()]
    judgements = [each for by in answers for each in by.values()]
    r_c, r_a, r_j = (
        _typical([len(by) for by in tree.values()]),
        _typical([len(by) for by in answers]),
        _typical([len(by) for by in judgements]),
    )
    probes_each = _typical([len(by) for by in compressions])
    s_judge = _within(judgements)
    s_answer = _less(_within([[_mean(own) for own in by.values()] for by in answers]), (s_judge or 0.0) / r_j)
    below = (s_answer or 0.0) / (r_a * probes_each) + (s_judge or 0.0) / (r_a * probes_each * r_j)
    middle = [
        [_mean([_mean([_mean(own) for own in by.values()]) for by in each.values()]) for each in session.values()]
        for session in tree.values()
    ]
    s_compression = _less(_within(middle), below)
    between = _within([[_mean(each) for each in middle]])
    s_session = _less(between, (s_compression or 0.0) / r_c + below / r_c) or 0.0
    count = float(len(tree))
    draws = {"session": count, "compressor": r_c, "answer": r_a, "judge": r_j}
    found = {"session": s_session, "compressor": s_compression, "answer": s_answer, "judge": s_judge}
    return _components_of(found, draws, probes_each)


def _components_of(found: dict[str, float | None], draws: dict[str, float], probes: float) -> Components:
    terms = _terms(found, draws, probes)
    whole = math.fsum(terms.values())
    levels = []
    for name, variance in found.items():
        doubled = math.fsum(_terms(found, {**draws, name: 2 * draws[name]}, probes).values())
        share = terms[name] / whole if whole and variance is not None else None
        levels.append(
            VarianceLevel(name, variance, draws[name], share, math.sqrt(doubled) if variance is not None else None)
        )
    return Components(levels, math.sqrt(whole), probes, _advice(levels, math.sqrt(whole)))


def _terms(found: dict[str, float | None], draws: dict[str, float], probes: float) -> dict[str, float]:
    sessions, r_c, r_a, r_j = (draws[name] for name in LEVELS)
    below = {"session": sessions, "compressor": sessions * r_c, "answer": sessions * r_c * r_a * probes}
    below["judge"] = below["answer"] * r_j
    return {name: (variance or 0.0) / below[name] for name, variance in found.items()}


def _advice(levels: Sequence[VarianceLevel], se: float) -> str:
    known = [each for each in levels if each.share is not None]
    unknown = [LEVELS[each.name] for each in levels if each.variance is None]
    unseen = f" Never repeated, so not told apart from the level above: {', '.join(unknown)}." if unknown else ""
    if not known or not se:
        return f"All scores agree; nothing says where calls would help.{unseen}"
    top = max(known, key=lambda each: each.share or 0.0)
    others = [each for each in known if each is not top]
    least = f"; twice the {LEVELS[others[-1].name]} only to {others[-1].se_if_doubled:.3f}" if others else ""
    return (
        f"{percent(top.share or 0.0)} of the variance of the mean is that of {LEVELS[top.name]}: twice as many would "
        "take its standard error "
        f"from {se:.3f} to {top.se_if_doubled:.3f}{least}.{unseen}"
    )


def _typical(counts: Sequence[int]) -> float:
    """Harmonic mean: what equal counts would have to be for the same variance of a mean."""
    return len(counts) / math.fsum(1 / count for count in counts)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _within(groups: Iterable[Sequence[float]]) -> float | None:
    """Pooled variance within groups; `None` if no group has two values."""
    squares, freedom = 0.0, 0
    for values in groups:
        mean = _mean(values)
        squares += math.fsum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return squares / freedom if freedom else None


def _less(variance: float | None, noise: float) -> float | None:
    return None if variance is None else max(0.0, variance - noise)
