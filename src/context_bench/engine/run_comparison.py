"""Compare systems with the baseline: the pairs, their results, and whether the run could have shown a loss."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import FIFOCache

from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.records import Comparison
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole, of_kind
from context_bench.engine.aggregates import Columns, Gatherer, averaged
from context_bench.engine.estimates import unscored
from context_bench.engine.looks import DECIDED
from context_bench.stats.agreement import Corrected
from context_bench.stats.verdict import (
    LEVEL,
    Assay,
    Evidence,
    VerdictQuestion,
    as_people_rate,
    default_margin,
    judge,
    noise_floor,
    shows_inferior,
    weigh,
)
from context_bench.stats.verdict.evidence import CEILINGS, could_not_win, distinguishable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_TYPES = 40  # kinds of question; of more, differences would fill pages and show nothing
_MOST_BY_TYPE = 300  # differences by kind: about 10 ms each, of 10,000 rows
_MOST_MATCHED = 4  # pairs of systems whose common rows are remembered
_SAME_SIZE = 0.05  # share by which truncation of a fixed size may differ from a system's, and still be of its size


@dataclass(frozen=True, slots=True)
class RatedDifference:
    """A system's score less the baseline's as people would give it, by `labels` examples that they rated."""

    baseline: str
    gap: Corrected
    labels: int


def rated_differences(calibration: Mapping[str, Any]) -> dict[str, RatedDifference]:
    """System → what people's ratings make of it, as `judge calibrate` wrote it into a run; what cannot be read is left
    out.
    """
    written, scale = calibration.get("differences"), real(calibration.get("scale")) or 1.0
    rated = {}
    for system, own in written.items() if isinstance(written, Mapping) else ():
        if isinstance(own, Mapping):
            value, se, df, skew, labels = (real(own.get(key)) for key in ("value", "se", "df", "skew", "labels"))
            if value is not None and se is not None and se >= 0 and df is not None and df > 0 and labels:
                gap = Corrected(value / scale, se / scale, df, skew or 0.0)
                rated[str(system)] = RatedDifference(str(own.get("baseline")), gap, int(labels))
    return rated


@dataclass
class Comparer:
    """Compares the systems of one cell of a run on one score."""

    columns: dict[str, Columns]
    gatherer: Gatherer
    score_field: str
    baseline: str
    margin: float | None
    seed: int
    roles: Mapping[str, ArmRole]
    calibrated: bool = True
    judged: bool = False  # the score is a model's opinion
    people: Mapping[str, RatedDifference] = field(default_factory=dict)  # by system, what people's ratings make of it
    chosen_after: str = ""
    aside: frozenset[str] = frozenset()
    unranked: frozenset[str] = frozenset()  # systems that are compared with nothing here, though they may be a ceiling
    by_cluster: bool = False  # the command line's -n counts clusters
    level: float | tuple[float, float] = LEVEL  # what p-values are held against, see `judge`
    decided: Mapping[str, Comparison] = field(default_factory=dict)  # by looks at the run while it went on
    between_looks: bool = False  # what no look decided is open, whatever the rows say by now
    second_answer: str | None = None  # the arm that is the baseline's second answer, declared before the run
    headline: str = ""  # what `comparisons` found to stand above all else
    _matched: FIFOCache[tuple[str, str], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = field(
        default_factory=lambda: FIFOCache(_MOST_MATCHED), repr=False
    )

    def comparisons(self) -> list[Comparison]:
        """Every system against the baseline: over everything, and by dataset where there are several.

        Verdicts over everything are one family for Holm's correction (over systems), those by dataset another (over
        systems and datasets). Controls are checks of the run and no candidates: each is a family of its own, so that
        adding one makes no claim harder. Datasets named in `aside` have lines of their own and are left out of
        everything else, where there is anything else.
        """
        self.margin = self._margin()
        asked: list[tuple[Hashable, VerdictQuestion]] = []
        for system in self.columns:
            if system == self.baseline or system in self.unranked:
                continue
            of = system if self._is_control(system) else None
            asked.append((("whole", of), self._question(system, None)))
            if self._is_noise(system):
                continue
            datasets = sorted(
                set(self.columns[system].kinds("datasets")) & set(self.columns[self.baseline].kinds("datasets"))
            )
            parts = [self._question(system, number) for number in datasets] if len(datasets) > 1 else []
            asked += [
                (("parts", of), question) for question in parts if question.evidence.n or question.evidence.excluded
            ]
        made = self._judged(asked)
        open_still = {each.system for each in made if each.verdict == "undecided" and not self._is_ceiling(each.system)}
        self.headline = self._unwinnable() if any(not self._is_control(name) for name in open_still) else ""
        return (
            self._judged([(family, replace(one, unwinnable=True)) for family, one in asked]) if self.headline else made
        )

    def _unwinnable(self) -> str:
        """The sentence that no system could have won; empty where the ceiling is told from the baseline, or there is
        none.
        """
        for name in self.columns:
            if self._is_ceiling(name):
                pairs = self._pairs(name, self.baseline, None)
                evidence = self._weigh(pairs)
                if distinguishable(evidence):
                    return ""
                what, gaps = "memory" if self._role(name).kind == "oracle" else "system", pairs.first - pairs.second
                return could_not_win(
                    name, self.baseline, evidence, gaps, pairs.clusters, what=what, by_cluster=self.by_cluster
                )
        return ""

    def _is_ceiling(self, system: str) -> bool:
        return (
            system != self.baseline and self._role(system).kind in CEILINGS and self._role(system).role != "noise_floor"
        )

    def by_type(self) -> list[Comparison]:
        """Every system against the baseline by kind of question, where there are several kinds; after `comparisons`.

        One family for Holm's correction (over systems and kinds), each control again its own. Of the verdicts over
        everything they are no part, and correct none of them: they tell where a difference comes from. Of very many,
        those of controls are left out, then all.
        """
        base = set(self.columns[self.baseline].kinds("types")) if self.baseline in self.columns else set()
        compared = {
            system: own
            for system, own in self.columns.items()
            if system != self.baseline and system not in self.unranked
        }
        found = {system: sorted(base & set(own.kinds("types"))) for system, own in compared.items()}
        if not 1 < len({kind for kinds in found.values() for kind in kinds}) <= _MOST_TYPES:
            return []
        if sum(map(len, found.values())) > _MOST_BY_TYPE:
            found = {system: kinds for system, kinds in found.items() if not self._is_control(system)}
        if sum(map(len, found.values())) > _MOST_BY_TYPE:
            return []
        asked: list[tuple[Hashable, VerdictQuestion]] = []
        for system, kinds in found.items():
            if not self._is_noise(system):
                of = system if self._is_control(system) else None
                asked += [(("types", of), self._question(system, None, kind)) for kind in kinds]
        return self._judged([each for each in asked if each[1].evidence.n or each[1].evidence.excluded])

    def lifts(self) -> list[Comparison]:
        """Every system of the user's against truncation to its own size, one family for Holm's correction; after
        `comparisons`.

        Truncation is the `head_tail` of the system's size; else one of a fixed size, where as many tokens went on from
        it.
        """
        asked: list[VerdictQuestion] = []
        kept: list[str] = []
        for system in self.columns:
            cut = None if self._is_control(system) else self._truncation(system)
            if cut is None:
                continue
            question = self._question(system, None, against=cut)
            if question.evidence.n:
                asked.append(replace(question, baseline=f"truncation to the same size ({cut})"))
                kept.append(self._retained(system, cut))
        cuts = [question.baseline.partition("(")[2].removesuffix(")") for question in asked]
        made = judge(asked, level=self.level)
        return [
            replace(one, baseline=cut, sentence=lead + one.sentence)
            for one, cut, lead in zip(made, cuts, kept, strict=True)
        ]

    def _truncation(self, system: str) -> str | None:
        cuts = {name: self._role(name).of for name in self.columns if self._role(name).kind == "head_tail"}
        if (own := next((name for name, of in cuts.items() if of == system), None)) is not None:
            return own
        fixed = [name for name, of in cuts.items() if of is None]
        return None if system in fixed else next((name for name in fixed if self._as_large(name, system)), None)

    def _as_large(self, first: str, second: str) -> bool:
        """Did as many tokens go on from the two, on the rows of both?"""
        _, at_one, at_two = self._rows_of_both(first, second)
        a, b = self.columns[first].measure("forwarded")[at_one], self.columns[second].measure("forwarded")[at_two]
        known = ~np.isnan(a) & ~np.isnan(b)
        return bool(known.any() and abs(a[known].sum() - b[known].sum()) <= _SAME_SIZE * b[known].sum())

    def _retained(self, system: str, cut: str) -> str:
        """The shares of the context's worth that two arms keep, as the beginning of a sentence; empty where it is worth
        nothing here.
        """
        from context_bench.stats.lift import retained

        full, none = (of_kind(self._there, *kinds) for kinds in (WHOLE, NOTHING))
        if full is None or none is None or system in (full, none):
            return ""
        shares = retained([self._scores_on_all(name, (system, cut, full, none)) for name in (system, cut, full, none)])
        if shares is None:
            return ""
        what = "history" if any(name.startswith("probe_") for name in self.columns[system].scores) else "context"
        own, others = map(percent, shares)
        return f"{system} keeps {own} of what the {what} is worth, truncation to the same size {others}. "

    def _scores_on_all(self, name: str, all_of_them: Sequence[str]) -> NDArray[Any]:
        """The scores of a system on the rows that all of these were scored on, in one order."""
        keys = self._pairs(all_of_them[0], all_of_them[1], None).keys
        for other in all_of_them[2:]:
            keys = self._pairs(all_of_them[0], other, None, within=keys).keys
        return self._pairs(name, name, None, within=keys).first

    def _judged(self, asked: Sequence[tuple[Hashable, VerdictQuestion]]) -> list[Comparison]:
        """Verdicts, family by family, in the order of the questions."""
        families: dict[Hashable, list[int]] = {}
        for place, (family, _) in enumerate(asked):
            families.setdefault(family, []).append(place)
        made: dict[int, Comparison] = {}
        for family, places in families.items():
            questions = [asked[place][1] for place in places]
            made |= zip(places, self._by_looks(judge(questions, level=self.level), questions, family), strict=True)
        return [self._as_noise(asked[place][1], made[place]) for place in range(len(asked))]

    def _by_looks(self, made: list[Comparison], asked: list[VerdictQuestion], family: Hashable) -> list[Comparison]:
        """Verdicts of the looks on the systems under test, in the place of what the rows say by now."""
        if family != ("whole", None) or not (self.decided or self.between_looks):
            return made
        still = judge(asked, level=0.0) if self.between_looks else made
        return [
            self.decided.get(one.system, unsaid if one.verdict in DECIDED else one)
            for one, unsaid in zip(made, still, strict=True)
        ]

    @property
    def _there(self) -> dict[str, ArmRole]:
        return {name: self._role(name) for name in self.columns}

    def _role(self, system: str) -> ArmRole:
        return self.roles.get(system, CANDIDATE)

    def _is_control(self, system: str) -> bool:
        own = self._role(system)
        repeats_a_candidate = own.role == "noise_floor" and own.kind is None
        return self._is_noise(system) if repeats_a_candidate else own.is_control

    def _is_noise(self, system: str) -> bool:
        own = self._role(system)
        return own.role == "noise_floor" and own.of in (None, self.baseline)

    def _as_noise(self, question: VerdictQuestion, made: Comparison) -> Comparison:
        """The second passthrough against the first is no candidate: its sentence is about noise."""
        if not self._is_noise(question.system):
            return made
        return replace(
            made,
            sentence=noise_floor(
                self.baseline,
                question.system,
                self.score_field,
                question.evidence,
                question.shape,
                second_answer=question.system == self.second_answer,
            ),
        )

    def _margin(self) -> float | None:
        """The margin given, else the default, which only scores in [0, 1] have."""
        if self.margin is not None:
            return self.margin
        known = np.concatenate([columns.numbers(self.score_field) for columns in self.columns.values()])
        if not len(known) or np.isnan(known).all() or np.nanmin(known) < 0 or np.nanmax(known) > 1:
            return None
        full = of_kind(self._there, "full") or self.baseline
        none = next((name for name in self._must_lose("") if self._role(name).kind in ("none", None)), None)
        if none is None:
            return default_margin()
        pairs = self._pairs(none, full, None, once=True)
        return (
            default_margin(float(pairs.second.mean()), float(pairs.first.mean()))
            if len(pairs.first)
            else default_margin()
        )

    def _question(
        self, system: str, dataset: int | None, kind: int | None = None, against: str | None = None
    ) -> VerdictQuestion:
        baseline = self.baseline if against is None else against
        pairs = self._pairs(system, baseline, dataset, kind=kind)
        shapes = self.columns[system].shapes
        evidence = self._weigh(pairs)
        rated = self.people.get(system) if dataset is None and kind is None else None
        if rated is not None and rated.baseline == baseline:
            evidence = as_people_rate(evidence, rated.gap, rated.labels)
        return VerdictQuestion(
            system,
            baseline,
            self.score_field,
            evidence,
            self._assay(system, baseline, dataset, pairs.keys),  # keys are of that kind already
            dataset=None if dataset is None else self.gatherer.datasets[dataset] or "unnamed dataset",
            shape=next(iter(shapes)) if len(shapes) == 1 else None,
            calibrated=self.calibrated or evidence.labels is not None,
            judged=self.judged,
            chosen_after=self.chosen_after,
            qa_type=None if kind is None else self.gatherer.types[kind],
        )

    def _weigh(self, pairs: Pairs) -> Evidence:
        return weigh(
            pairs.first,
            pairs.second,
            pairs.clusters,
            margin=self.margin,
            excluded=pairs.excluded,
            lost=list(pairs.lost),
            noise=self._noise_beside(pairs),
            seed=self.seed,
        )

    @cached_property
    def _noise(self) -> NDArray[Any] | None:
        """Differences between two equal arms, in the spread that those of equal systems have here; `None` without such
        arms.
        """
        again = next((name for name in self.columns if self._is_noise(name)), None)
        if again is None:
            return None
        pairs = self._pairs(again, self.baseline, None, once=True)
        # a difference from the mean of two answers has the variance 1 + 1/2 where one of two answers has 1 + 1
        apart: NDArray[Any] = (pairs.first - pairs.second) * (math.sqrt(0.75) if self.second_answer else 1.0)
        return apart

    def _noise_beside(self, pairs: Pairs) -> NDArray[Any] | None:
        """The noise that pairs have of which a share is known not to differ: as much less of it."""
        if self._noise is None or not pairs.untouched:
            return self._noise
        noise = self._noise.copy()
        noise[round(len(noise) * (1 - pairs.untouched)) :] = 0.0  # rows stand in the order of hashes: any part is drawn
        return noise

    def _must_lose(self, system: str, baseline: str | None = None) -> list[str]:
        """Arms that must lose: those of no size in particular, and those in the size of `system`."""
        return [
            name
            for name, own in self._there.items()
            if own.role == "known_bad" and own.of in (None, system) and name not in (system, baseline or self.baseline)
        ]

    def _assay(self, system: str, baseline: str, dataset: int | None, keys: NDArray[Any]) -> Assay:
        arms = self._must_lose(system, baseline)
        shown = (arm for arm in arms if shows_inferior(self._weigh(self._pairs(arm, baseline, dataset, within=keys))))
        return Assay(next(shown, None), tuple(arms))

    def _pairs(
        self,
        first: str,
        second: str,
        dataset: int | None,
        within: NDArray[Any] | None = None,
        kind: int | None = None,
        *,
        once: bool = False,
    ) -> Pairs:
        """Scores of two systems on the rows both have, matched by dataset, example, position and trial; trials are
        averaged, and so are the two answers of a baseline that gave two, but `once`, and beside the second one.
        """
        one, two = self.columns[first], self.columns[second]
        keys, at_one, at_two = self._rows_of_both(first, second)
        wanted = np.ones(len(keys), dtype=bool)
        numbers = one.whole("datasets")[at_one]
        if dataset is not None:
            wanted &= numbers == dataset
        elif self.aside:
            wanted &= ~np.isin(
                numbers, [place for place, name in enumerate(self.gatherer.datasets) if name in self.aside]
            )
        if kind is not None:
            wanted &= one.whole("types")[at_one] == kind
        if within is not None:
            wanted &= np.isin(keys, within)
        keys, at_one, at_two = keys[wanted], at_one[wanted], at_two[wanted]
        a, b = one.numbers(self.score_field)[at_one], two.numbers(self.score_field)[at_two]
        if not once and second == self.baseline and self.second_answer not in (None, first):
            again = self.columns[self.second_answer or ""].at(keys, self.score_field)
            b = np.where(np.isnan(again), b, (b + again) / 2)
        same = self._same_arrived(first, second, at_one, at_two) & ~np.isnan(a) & ~np.isnan(b)
        a = np.where(same, b, a)
        failed_one = unscored(one, self.gatherer, self.score_field)[at_one]
        failed_two = unscored(two, self.gatherer, self.score_field)[at_two]
        both = ~np.isnan(a) & ~np.isnan(b)
        lost = b[failed_one & ~np.isnan(b)]
        excluded = int((failed_one | failed_two).sum())
        units, clusters = one.units, one.clusters[at_one][both]
        units = None if units is None else units[at_one][both]
        if not both.any():
            empty = np.empty(0)
            return Pairs(empty, empty, empty, keys[both], excluded, lost)
        mean_a, codes = averaged(a[both], units, clusters)
        mean_b, _ = averaged(b[both], units, clusters)
        return Pairs(mean_a, mean_b, codes, keys[both], excluded, lost, float(same[both].mean()))

    def _same_arrived(self, first: str, second: str, at_one: NDArray[Any], at_two: NDArray[Any]) -> NDArray[Any]:
        """Pairs of rows of which the same requests arrived: their answers have one distribution, so the difference of
        their scores is 0 in expectation. None of a noise floor, which shows what such a difference comes to.
        """
        one, two = self.columns[first], self.columns[second]
        if any(self._role(name).role == "noise_floor" for name in (first, second)):
            return np.zeros(len(at_one), dtype=bool)
        same: NDArray[Any] = one.measure("arrived")[at_one] == two.measure("arrived")[at_two]
        return same

    def beside(self, score_field: str, lead: str, margin: float | None) -> list[str]:
        """The verdict on each system under test in another score that rows have: a question of its own, with `lead`
        before each sentence. `margin`: as it was given.
        """
        if score_field == self.score_field or not any(score_field in each.scores for each in self.columns.values()):
            return []
        other = replace(self, score_field=score_field, margin=margin, calibrated=True, judged=False, people={})
        return [
            f"{lead}: {one.sentence}"
            for one in other.comparisons()
            if one.dataset is None and not self._is_control(one.system)
        ]

    def untouched(self, wire: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """A sentence on each system of whose rows some arrived as the baseline's did. `wire`: what the tap saw, by
        system.
        """
        told = []
        for system in (name for name in self.columns if name != self.baseline and self.baseline in self.columns):
            keys, at_one, at_two = self._rows_of_both(system, self.baseline)
            copied, assumed = (int(wire.get(system, {}).get(name, 0)) for name in ("copied", "assumed"))
            same = int(self._same_arrived(system, self.baseline, at_one, at_two).sum()) - assumed
            if same > 0 or copied:
                told.append(untouched_note(system, self.baseline, max(0, same), len(keys), copied))
        return told

    def _rows_of_both(self, first: str, second: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Keys of the rows that two systems have in common, and where they are. The latest pairs are remembered: kinds
        ask again.
        """
        if (first, second) not in self._matched:
            one, two = self.columns[first].keys, self.columns[second].keys
            keys, at_one, at_two = np.intersect1d(one, two, assume_unique=True, return_indices=True)
            self._matched[first, second] = keys, at_one, at_two
        return self._matched[first, second]


def untouched_note(system: str, baseline: str, same: int, rows: int, copied: int) -> str:
    """The sentence on rows that arrived as the baseline's did."""
    told = (
        f"{system}: {same:,} of {rows:,} rows arrived as {baseline}'s had and came back as they were sent; they count "
        "as difference 0, whatever was answered."
    )
    if not copied:
        return told
    plural = "s were" if copied > 1 else " was"
    return (
        f"{told} {copied:,} request{plural} answered with {baseline}'s replies: their bill is {baseline}'s (≈, nothing "
        f"was paid for them), their latency is not measured (--no-copy asks anyway)."
    )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Matched scores; `lost`: the second's scores where only the first failed; `untouched`: the share of them of which
    the same requests arrived.
    """

    first: NDArray[Any]
    second: NDArray[Any]
    clusters: NDArray[Any]
    keys: NDArray[Any]
    excluded: int
    lost: NDArray[Any]
    untouched: float = 0.0
