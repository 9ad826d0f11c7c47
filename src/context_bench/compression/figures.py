"""Figures of a run over probes, from rows alone: retention, lift, size, curves, front, rubric, drift, variance."""

from __future__ import annotations

import re
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from context_bench.compression.drift import Components, DriftFigures, DriftProbe, Observation, components, drift
from context_bench.compression.evaluators.probe_atoms import SearchableText
from context_bench.compression.probes import PROBE_TYPES, ProbeAtom, atom_from_json, messages_of, rendered
from context_bench.core.numbers import real
from context_bench.core.records import Comparison, Estimate, EvalRow, Example, Result, plain
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole, of_kind, roles_in
from context_bench.core.rows import score
from context_bench.core.rubric import HIGHEST, default_rubric
from context_bench.stats.intervals import Scored, estimate
from context_bench.stats.lift import (
    Lift,
    RetentionIndex,
    Sized,
    bd_rates,
    family_of,
    lifts,
    rate_curves,
    retention_index,
    rubric_level,
)
from context_bench.wire.request import SYSTEM_ROLES

#: Answers of a system that are looked into: each means searching a whole history for each fact.
MOST_ROWS = 400
MOST_SHOWN, _MOST_OF_A_KIND = 12, 3  # losses of a system, and of one kind, that are shown one by one


@dataclass(slots=True)
class Fates:
    """Counts of facts asked for. `kept`: still in the text; `named`: in the answer; `unread`: kept and not named."""

    asked: int = 0
    kept: int = 0
    named: int = 0
    unread: int = 0

    def add(self, kept: bool, named: bool) -> None:
        """Take one fact in."""
        self.asked, self.kept, self.named = self.asked + 1, self.kept + kept, self.named + named
        self.unread += kept and not named


@dataclass(frozen=True, slots=True)
class LostFact:
    """One fact that an answer did not name. `message`: where it stood first, of `messages` that were compressed;
    `kept`: it is still in the text that stands for them.
    """

    probe: str
    type: str
    kind: str
    fact: str
    message: int | None
    role: str | None
    messages: int
    kept: bool


@dataclass(slots=True)
class Losses:
    """The fate of the facts that one system's probes ask for, which says whose loss it is: gone from the text, the
    compressor's; there and not named, the reader's; gone and named all the same, told by the kept part or guessed.

    `rows` answers were looked into; `left_out`: more than that were not.
    """

    kinds: dict[str, Fates] = field(default_factory=dict)
    clusters: dict[str, Fates] = field(default_factory=dict)  # by session
    shown: list[LostFact] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    _prefix: dict[str, float] = field(default_factory=dict)

    @property
    def prefix_kept(self) -> float | None:
        """Mean share of the text that begins exactly as the history did, which is what a prompt cache can still use;
        over compressions.
        """
        return sum(self._prefix.values()) / len(self._prefix) if self._prefix else None

    def shares(self) -> dict[str, Estimate]:
        """`kept`, `named`, `unread` as shares of the facts asked for, with intervals over sessions."""
        names = [name for name, each in self.clusters.items() for _ in range(each.asked)]
        found = {}
        for share in ("kept", "named", "unread"):
            counts = [(getattr(each, share), each.asked) for each in self.clusters.values()]
            found[share] = estimate([float(at < count) for count, asked in counts for at in range(asked)], names)
        return found

    def add(self, row: EvalRow, example: Mapping[str, Any], output: Mapping[str, Any]) -> None:
        """Take in one answer, with what was asked and what stood for the history."""
        response, text = output.get("response"), output.get("context")
        if row.failed or not isinstance(response, str) or not isinstance(text, str) or not example.get("atoms"):
            return
        if self.rows >= MOST_ROWS:
            self.left_out += 1
            return
        self.rows += 1
        opaque = bool((output.get("compressed") or {}).get("opaque"))
        self._note_prefix(example, text, opaque)
        wanted = [atom for atom in map(atom_from_json, example["atoms"]) if atom.role == "wanted"]
        held, said = _searchable(text), SearchableText(response)
        for atom in wanted:
            kept, named = not opaque and held.names(atom), said.names(atom)
            self.kinds.setdefault(atom.kind or "statement", Fates()).add(kept, named)
            self.clusters.setdefault(str(row.cluster), Fates()).add(kept, named)
            if not named and row.trial == 0:
                self._show(example, atom, kept)

    def _show(self, example: Mapping[str, Any], atom: ProbeAtom, kept: bool) -> None:
        kind = atom.kind or "statement"
        alike = [one for one in self.shown if one.kind == kind]
        if (
            len(self.shown) >= MOST_SHOWN
            or len(alike) >= _MOST_OF_A_KIND
            or any(one.fact == atom.text for one in self.shown)
        ):
            return
        messages = messages_of(example)
        at = min((source.message for source in atom.sources), default=None)
        role = str(messages[at].get("role")) if at is not None and at < len(messages) else None
        points = example.get("points") or [len(messages)]
        self.shown.append(
            LostFact(
                str(example.get("id")), str(example.get("probe_type")), kind, atom.text, at, role, points[-1], kept
            )
        )

    def _note_prefix(self, example: Mapping[str, Any], text: str, opaque: bool) -> None:
        group = str(example.get("group"))
        if group in self._prefix or opaque or not text:
            return
        history = _history(str(example.get("session")), int(example["points"][-1]))
        self._prefix[group] = _shared(history, text) / len(text)


def losses(answers: Iterable[tuple[EvalRow, Example | None, Example]]) -> dict[str, Losses]:
    """System → what became of the facts, from rows with their examples and outputs."""
    found: dict[str, Losses] = {}
    for row, example, output in answers:
        if example is not None:
            found.setdefault(row.system, Losses()).add(row, example, output)
    return found


@lru_cache(maxsize=4)
def _searchable(text: str) -> SearchableText:
    return SearchableText(text)


@lru_cache(maxsize=4)
def _history(session: str, point: int) -> str:
    messages = messages_of({"session": session, "points": [point]})[:point]
    head = next((at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))
    return rendered(messages[head:])


def _shared(one: str, other: str) -> int:
    """Characters that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one.startswith(other[:middle]) else (low, middle - 1)
    return low


#: Scores from 0 to 5; all others are from 0 to 1.
_RATINGS = re.compile(r"rubric_overall|probe_rating|rubric_.*")
_TAIL = re.compile(r"(?:~\d+)?(?:/(\d+))?$")


@dataclass(slots=True)
class SystemRows:
    """The figures of one system's rows."""

    system: str
    role: ArmRole = CANDIDATE
    scores: Scored = field(default_factory=Scored)
    contradictions: Scored = field(default_factory=Scored)
    dimensions: dict[str, Scored] = field(default_factory=dict)
    observed: list[Observation] = field(default_factory=list)
    places: dict[Hashable, tuple[Hashable, int]] = field(default_factory=dict)  # question → probe without cycle, cycle
    sizes: dict[Hashable, tuple[float, float]] = field(default_factory=dict)  # question → tokens before, after
    groups: dict[Hashable, list[tuple[float, float, Hashable]]] = field(default_factory=dict)
    seconds: dict[Hashable, float] = field(default_factory=dict)  # group → of the compressor

    def add(self, row: EvalRow, metric: str, dimensions: Sequence[str]) -> None:
        """Take one row in."""
        key: Hashable = (row.dataset, str(row.example_id))
        label = str(row.example_id)
        found = _TAIL.search(label)
        base, replicate = (label[: found.start()], found[1] or "1") if found else (label, "1")
        if (value := score(row, metric)) is not None:
            self.scores.add(row, value)
            self.places[key] = ((row.dataset, base, replicate), int(real(row.metadata.get("cycle")) or 1))
            self.observed.append(
                Observation(row.cluster, replicate, (base, row.metadata.get("cycle")), row.trial, 0, value)
            )
        if (value := score(row, "probe_contradiction")) is not None:
            self.contradictions.add(row, value)
        for name in dimensions:
            if (value := score(row, name)) is not None:
                self.dimensions.setdefault(name, Scored()).add(row, value)
        self._size(row, key)

    def _size(self, row: EvalRow, key: Hashable) -> None:
        before, after = (real(row.metadata.get(name)) for name in ("tokens_before", "tokens_after"))
        if before is not None and after is not None and not row.failed:
            self.sizes[key] = before, after
            if row.trial == 0:
                self.groups.setdefault(row.group, []).append((before, after, row.cluster))
        if (seconds := real(row.metadata.get("compress_seconds"))) is not None:
            self.seconds[row.group] = seconds


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of the history before and after, means over compressions. `keep`: Σ after / Σ before; `keep_mean`: mean of
    each one's own. `fold` = 1 / keep. The two keeps rank systems differently where sessions differ in length, so both
    are told.
    """

    before: float
    after: float
    keep: Mapping[str, float | None]
    keep_mean: Mapping[str, float | None]
    fold: float | None
    compressions: int


def add_compression(
    result: Result, about: Mapping[str, Any], answers: Iterable[tuple[EvalRow, Example | None, Example]] | None = None
) -> None:
    """Fill in `result.compression`. `about`: `compression` of the run's manifest; `answers`: rows with what was asked
    and answered, for what became of the facts.
    """
    metric = score_field_of(result)
    seed = (result.manifest.get("options") or {}).get("seed") or 0
    margin = next((each.margin for each in result.comparisons), None)
    result.compression = figures(
        result.rows, metric, margin=margin, seed=seed, roles=roles_in(result.manifest, result.summary)
    ) | {"about": dict(about)}
    systems = result.compression["systems"]
    for each in result.lifts:
        systems[each.system]["lift"] = plain(each)
    for system, own in losses(answers or ()).items():
        if system in systems and own.kinds:
            asked = sum(each.asked for each in own.kinds.values())
            record = {"asked": asked, "shares": own.shares(), "kinds": own.kinds, "shown": own.shown}
            record |= {"rows": own.rows, "left_out": own.left_out}
            systems[system] |= plain({"losses": record, "prefix_kept": own.prefix_kept})


def score_field_of(result: Result) -> str:
    """The score that verdicts are about."""
    places = (result.manifest, result.manifest.get("margin") or {}, result.manifest.get("options") or {})
    return next((name for place in places if isinstance(name := place.get("score_field"), str)), "") or "probe_score"


def figures(
    rows: Iterable[EvalRow],
    metric: str = "probe_score",
    *,
    margin: float | None = None,
    seed: int = 0,
    roles: Mapping[str, ArmRole] | None = None,
) -> dict[str, Any]:
    """All figures as JSON values: by system under `systems`, then `curves`, `bd_rates`, `front`. What cannot be said is
    absent.
    """
    dimensions = [dimension.id for dimension in default_rubric().dimensions]
    found: dict[str, SystemRows] = {}
    for row in rows:
        found.setdefault(row.system, SystemRows(row.system, (roles or {}).get(row.system, CANDIDATE))).add(
            row, metric, dimensions
        )
    scale = HIGHEST if _RATINGS.fullmatch(metric) else 1.0
    told = {name: _of_system(own, found, scale, seed) for name, own in found.items()}
    for each in _lifts(found, metric, margin, seed):
        told[each.system]["lift"] = plain(each)
    sized = _families(found)
    return {
        "score_field": metric,
        "scale": scale,
        "systems": told,
        "curves": plain(rate_curves(*sized, seed=seed)) if sized else [],
        "bd_rates": [
            {"system": one, "other": other, "percent": rate}
            for (one, other), rate in (bd_rates(sized[0]) if sized else {}).items()
        ],
        "front": _front(found, seed),
    }


def _of_system(own: SystemRows, found: Mapping[str, SystemRows], scale: float, seed: int) -> dict[str, Any]:
    kinds = sorted(
        set(own.scores.kinds.values()), key=lambda kind: (PROBE_TYPES.index(kind) if kind in PROBE_TYPES else 9, kind)
    )
    told = {
        "score": _mean(own.scores, None, scale),
        "types": {
            kind: {"score": _mean(own.scores, kind, scale), "retention": _index(own, found, scale, seed, kind)}
            for kind in kinds
        },
        "contradictions": own.contradictions.mean(),
        "retention": _index(own, found, scale, seed),
        "size": _size(own, seed),
        "compress_seconds": statistics.median(own.seconds.values()) if own.seconds else None,
        "rubric": _rubric(own, seed),
        "drift": _drift(own, found, scale, seed),
        "variance": _variance(own),
    }
    return {name: value for name, value in plain(told).items() if value not in ({}, [])}


def _mean(scores: Scored, kind: str | None, scale: float) -> Any:
    chosen = {key: value for key, value in scores.values.items() if kind is None or scores.kinds[key] == kind}
    return estimate(list(chosen.values()), [scores.clusters[key] for key in chosen], high=scale) if chosen else None


def _end(found: Mapping[str, SystemRows], kinds: tuple[str, ...]) -> SystemRows | None:
    """The arm with all of the history, or with none of it."""
    names = (of_kind({name: own.role for name, own in found.items()}, kind) for kind in kinds)
    return next((found[name] for name in names if name is not None), None)


def _sized(found: Mapping[str, SystemRows], kind: str, of: str) -> SystemRows | None:
    """The arm of this kind in the size of another."""
    return next((own for own in found.values() if own.role.kind == kind and own.role.of == of), None)


def _index(
    own: SystemRows, found: Mapping[str, SystemRows], scale: float, seed: int, kind: str | None = None
) -> RetentionIndex | None:
    full, none = _end(found, WHOLE), _end(found, NOTHING)
    if full is None or none is None or own in (full, none):
        return None
    values = [each.scores.values for each in (own, full, none)]
    shared = [
        key for key in values[0] if key in values[1] and key in values[2] and kind in (None, own.scores.kinds[key])
    ]
    one, most, least = ([value[key] for key in shared] for value in values)
    return retention_index(one, most, least, [own.scores.clusters[key] for key in shared], scale=scale, seed=seed)


def _lifts(found: Mapping[str, SystemRows], metric: str, margin: float | None, seed: int) -> list[Comparison]:
    pairs = []
    for name, own in found.items():
        cut = _sized(found, "head_tail", name)
        if cut is None:
            continue
        bad = [each for each in (_end(found, NOTHING), _sized(found, "random_drop", name)) if each is not None]
        values = [each.scores.values for each in (own, cut, *bad)]
        shared = [key for key in values[0] if all(key in value for value in values)]
        one, other, *known = ([value[key] for key in shared] for value in values)
        if shared:
            clusters = [own.scores.clusters[key] for key in shared]
            pairs.append(
                Lift(
                    name, cut.system, one, other, clusters, dict(zip((each.system for each in bad), known, strict=True))
                )
            )
    return lifts(pairs, metric=metric, margin=margin, seed=seed)


def _size(own: SystemRows, seed: int) -> Size | None:
    """Over compressions, not over probes: a point with many probes is compressed once."""
    from context_bench.stats.bootstrap import ratios

    each = [
        (_average(b for b, _, _ in group), _average(a for _, a, _ in group), group[0][2])
        for _, group in sorted(own.groups.items(), key=str)
    ]
    if not each or not any(before for before, _, _ in each):
        return None
    told = ratios(
        [after for _, after, _ in each], [before for before, _, _ in each], [cluster for *_, cluster in each], seed=seed
    )
    return Size(
        _average(before for before, _, _ in each),
        _average(after for _, after, _ in each),
        {"value": told.of_sums, "low": told.of_sums_low, "high": told.of_sums_high},
        {"value": told.mean, "low": told.mean_low, "high": told.mean_high},
        1 / told.of_sums if told.of_sums else None,
        len(each),
    )


def _average(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def _rubric(own: SystemRows, seed: int) -> Any:
    if not own.dimensions:
        return None
    by = {name: scored.values for name, scored in own.dimensions.items()}
    clusters: dict[Hashable, Hashable] = {}
    for scored in own.dimensions.values():
        clusters |= scored.clusters
    probes = [{name: values[key] for name, values in by.items() if key in values} for key in clusters]
    return rubric_level(probes, list(clusters.values()), seed=seed)


def _asked(own: SystemRows | None) -> list[DriftProbe]:
    if own is None:
        return []
    values, contradicts = own.scores.values, own.contradictions.values
    return [
        DriftProbe(probe, own.scores.clusters[key], cycle, values[key], contradicts.get(key))
        for key, (probe, cycle) in own.places.items()
    ]


def _drift(own: SystemRows, found: Mapping[str, SystemRows], scale: float, seed: int) -> DriftFigures | None:
    if max((cycle for _, cycle in own.places.values()), default=1) < 2:
        return None
    return drift(_asked(own), _asked(_end(found, WHOLE)), _asked(_end(found, NOTHING)), scale=scale, seed=seed)


def _variance(own: SystemRows) -> Components | None:
    """Only where something was repeated: with single draws everything is the sessions'."""
    replicated = len({one.compression for one in own.observed}) > 1 or len({one.answer for one in own.observed}) > 1
    return components(own.observed) if replicated else None


def _families(found: Mapping[str, SystemRows]) -> tuple[dict[str, list[Sized]], list[float], list[Hashable]] | None:
    """Systems by family on the probes that all of them and full history have."""
    full = _end(found, WHOLE)
    families: dict[str, list[SystemRows]] = {}
    for name, own in found.items():
        if not own.role.is_control:
            families.setdefault(family_of(name), []).append(own)
    several = [own for each in families.values() if len(each) > 1 for own in each]
    if full is None or not several:
        return None
    values = {own.system: own.scores.values for own in [full, *several]}
    shared = [
        key
        for key in values[full.system]
        if all(key in by for by in values.values()) and all(key in own.sizes for own in several)
    ]
    sized = {
        name: [
            Sized(
                own.system,
                [values[own.system][key] for key in shared],
                [own.sizes[key][0] for key in shared],
                [own.sizes[key][1] for key in shared],
            )
            for own in each
        ]
        for name, each in families.items()
        if len(each) > 1
    }
    return (
        (sized, [values[full.system][key] for key in shared], [full.scores.clusters[key] for key in shared])
        if shared
        else None
    )


def _front(found: Mapping[str, SystemRows], seed: int) -> dict[str, dict[str, Any]]:
    """The systems that are best in tokens kept and score together, and the share of redrawn sessions in which they are.

    The noise floor, full again, is left out.
    """
    from context_bench.stats.pareto import front_shares

    chosen = [own for own in found.values() if own.role.role != "noise_floor"]
    values = [own.scores.values for own in chosen]
    shared = [
        key
        for key in (sorted(values[0], key=str) if values else ())
        if all(key in v and key in own.sizes for v, own in zip(values, chosen, strict=True))
    ]
    if len(chosen) < 2 or not shared or not sum(chosen[0].sizes[key][0] for key in shared):
        return {}
    tops = [
        [[own.sizes[key][1] for key in shared], [-value[key] for key in shared]]
        for own, value in zip(chosen, values, strict=True)
    ]
    bottoms = [[[own.sizes[key][0] for key in shared], [1.0] * len(shared)] for own in chosen]
    told = front_shares(tops, bottoms, [chosen[0].scores.clusters[key] for key in shared], resamples=2_000, seed=seed)
    return {
        own.system: {"front": on, "share": share if told.clusters > 1 else None}
        for own, on, share in zip(chosen, told.front, told.share, strict=True)
    }
