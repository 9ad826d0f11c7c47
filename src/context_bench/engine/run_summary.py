"""Summarise stored rows for reports: figures, estimates, comparisons, failures, wire facts, notes. One pass for each
system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from context_bench.core.errors import BadInput, UnknownName, describe
from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.protocols import method
from context_bench.core.records import Comparison, Estimate, EvalRow, not_compared
from context_bench.core.roles import CANDIDATE, NOTHING, WHOLE, ArmRole, of_kind, second_answer
from context_bench.core.rows import RowTally, in_pieces, of_rank, without_ranks
from context_bench.engine.aggregates import Columns, Gatherer
from context_bench.engine.estimates import costs_rest_on_few, estimates_of, without_gold
from context_bench.engine.looks import decided, is_looking, level_now, planned_looks
from context_bench.stats.distributions import change_bins
from context_bench.stats.means import MIN_CLUSTERS, ROUGH_BELOW
from context_bench.stats.pareto import combined, key_names, rank_systems
from context_bench.stats.tests import unequal_shares
from context_bench.stats.verdict.decisions import ROUGH, TOO_FEW

if TYPE_CHECKING:
    from context_bench.engine.run_comparison import Comparer

#: Scores with these beginnings are a model's opinion: without a calibration against people no verdict rests on them.
_JUDGED = ("judge_", "memory_judge", "false_memory", "rubric_")


#: Numbers that come of the score alone.
OF_SCORE = frozenset(("mean_score", "pass_rate", "num_passing", "cost_of_pass", "facts_used"))


@dataclass
class RunSummary:
    """Parts of `core.records.Result`; see there."""

    summary: dict[str, dict[str, float]] = field(default_factory=dict)
    estimates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    by_type: list[Comparison] = field(default_factory=list)
    lifts: list[Comparison] = field(default_factory=list)
    failures: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    wire: dict[str, dict[str, Any]] = field(default_factory=dict)


def summarise(
    rows_of: Callable[[str], Iterable[EvalRow]],
    systems: Sequence[str],
    metrics: Sequence[Any],
    *,
    score_field: str | None,
    baseline: str | None = None,
    margin: float | None = None,
    seed: int = 0,
    roles: Mapping[str, ArmRole] | None = None,
    uncalibrated: Sequence[str] | None = None,
    calibration: Mapping[str, Any] | None = None,
    chosen_after: str = "",
    aside: Collection[str] = (),
    unranked: Collection[str] = (),
    by_cluster: bool = False,
    planned: Mapping[str, Any] | None = None,
) -> RunSummary:
    """Everything that can be said of the rows of `systems` (one cell of a run).

    `rows_of(name)` gives a system's rows in plan order. Built-in metrics see them one by one; a metric without
    `tally()` gets the list of one system's rows at a time. `roles`: what arms are there for (default: all are under
    test). With `score_field=None` nothing is judged and no two systems are compared. `uncalibrated`: scores
    that get no verdict (default: what a model judged); `calibration`: what people's ratings make of a judged score, as
    `judge calibrate` wrote it into the run. `chosen_after`: what was chosen when answers were there already
    ("margin", "score", "margin and score"), which every verdict then says. `aside`: datasets that can tell nothing of a
    loss of context; verdicts over everything leave them out, unless there is nothing else. `unranked`: systems whose
    hits have no order: without scores of it. `by_cluster`: what the command line calls `-n` counts clusters.
    `planned`: the run's manifest, for its design (a second answer of the baseline, looks at the run while it went on)
    and the looks that were taken. With two or more systems each gets its `pareto_rank`. Raises `BadInput` if no row has
    `score_field` although rows have other scores.
    """
    found, gatherer, roles, planned = RunSummary(), Gatherer(), roles or {}, planned or {}
    columns: dict[str, Columns] = {}
    whole: dict[
        str, Columns
    ] = {}  # of those without order, everything: what cannot be shown to be won at all hangs on it
    names: dict[str, list[dict[str, str]]] = {}
    for system in systems:
        columns[system] = Columns()
        one = _OnePass(metrics)
        if system in unranked:
            whole[system] = Columns()
        for piece in in_pieces(rows_of(system)):
            if system in whole:
                gatherer.take(whole[system], piece)
                piece = list(without_ranks(piece))
            gatherer.take(columns[system], piece)
            one.take(piece)
        numbers = one.numbers()
        found.notes += [f"{system}: {said}" for said in one.broken.values()]
        names[system] = key_names(metrics, numbers, score_field)
        found.summary[system] = combined(metrics, numbers, score_field)
        if system in whole and of_rank(score_field):  # documented metrics say 0 of what has no score
            found.summary[system] = {
                name: value for name, value in found.summary[system].items() if name not in OF_SCORE
            }
        found.failures[system] = {source: dict(classes) for source, classes in one.failures.items()}
        found.wire[system] = one.wire.result()
        del one  # what metrics remember of many rows is not needed any more
    _require_fields(
        columns,
        {
            *([score_field] if score_field else []),
            *(name for metric in metrics if (name := getattr(metric, "score_field", None))),
        },
    )
    for system in systems:
        found.estimates[system] = estimates_of(columns[system], gatherer, seed, metrics, names[system])
    _rank(found, metrics, roles)
    if score_field is not None:
        judged = uncalibrated if uncalibrated is not None else [score_field] * score_field.startswith(_JUDGED)
        calibrated = score_field not in judged
        scored = {name for place, name in enumerate(gatherer.datasets) if score_field in gatherer.fields.get(place, ())}
        left_out = frozenset(aside) if scored - set(aside) else frozenset()
        left = frozenset(whole) if of_rank(score_field) else frozenset()
        if (against := _against(found, columns, score_field, baseline, left, roles)) is not None:
            from context_bench.engine.run_comparison import Comparer, rated_differences

            comparer = Comparer(
                {**columns, **whole},
                gatherer,
                score_field,
                against,
                margin,
                seed,
                roles,
                calibrated=calibrated,
                judged=score_field.startswith(_JUDGED),
                people=rated_differences(calibration or {}),
                chosen_after=chosen_after,
                aside=left_out,
                unranked=left,
                by_cluster=by_cluster,
                second_answer=second if (second := second_answer(planned.get("design"), against)) in columns else None,
                **_by_looks(planned, post_hoc=bool(chosen_after)),
            )
            found.comparisons, found.by_type, found.lifts = comparer.comparisons(), comparer.by_type(), comparer.lifts()
            found.notes[:0] = [comparer.headline] if comparer.headline else []
            found.comparisons, found.lifts = (
                [_with_assumption(one, found.wire) for one in told] for told in (found.comparisons, found.lifts)
            )
            found.comparisons = [_with_changes(one, columns) for one in found.comparisons]
            found.notes += comparer.untouched(found.wire)
            found.notes += comparer.beside("evidence_all", "What arrived of the evidence, beside the answers", margin)
            found.notes += _beside_nothing(comparer)
            if comparer.second_answer is not None:
                found.notes.append(
                    f"{comparer.second_answer} is the second answer of {against}, as declared before the run: the "
                    "others are compared with the mean of the two."
                )
        if found.comparisons and (without := [name for name in gatherer.datasets if name in left_out]):
            found.notes.append(
                f"{', '.join(without)}: no context apart from the question, so no evidence of what a compressor "
                "loses; each has lines of "
                "its own, and verdicts over all data are without it (--force counts it in)."
            )
    found.notes += _notes(found, columns, score_field)
    found.failures = {system: sources for system, sources in found.failures.items() if sources}
    found.wire = {system: facts for system, facts in found.wire.items() if facts}
    return found


def _beside_nothing(comparer: Comparer) -> list[str]:
    """The verdict on each system under test against what its price buys without it: the whole context for some
    examples, none for the others. One family for Holm's correction. None without these two arms, or without costs.
    """
    from context_bench.stats.lift import at_price
    from context_bench.stats.verdict import VerdictQuestion, judge, weigh

    there = {name: comparer.roles.get(name, CANDIDATE) for name in comparer.columns}
    full, none = (of_kind(there, *kinds) for kinds in (WHOLE, NOTHING))
    asked: list[VerdictQuestion] = []
    for system in [name for name, role in there.items() if role.role == "candidate" and not role.is_control]:
        if full is None or none is None or system in (full, none):
            continue
        scores, costs, clusters = _of_all(comparer, (system, full, none))
        bought = at_price(scores, costs)
        if bought is not None:
            of_them = f"{full} for {percent(bought.share)} of the examples, {none} for the rest"
            first, second = bought.mixed + bought.gains, bought.mixed
            evidence = weigh(first, second, clusters, margin=comparer.margin, seed=comparer.seed)
            instead = f"doing nothing at its price ({of_them})"
            if evidence.low is not None:  # too few examples say nothing here
                asked.append(VerdictQuestion(system, instead, comparer.score_field, evidence, judged=comparer.judged))
    return [one.sentence for one in judge(asked, level=comparer.level)]


def _of_all(comparer: Comparer, names: Sequence[str]) -> tuple[list[Any], list[Any], Any]:
    """Scores and costs of several systems on the rows of which all have both, and the clusters of these rows."""
    own = [comparer.columns[name] for name in names]
    keys = reduce(partial(np.intersect1d, assume_unique=True), [each.keys for each in own])
    places = [np.argsort(each.keys)[np.searchsorted(np.sort(each.keys), keys)] for each in own]
    scores, costs = (
        np.array([values[at] for values, at in zip(found, places, strict=True)])
        for found in ([each.numbers(comparer.score_field) for each in own], [each.measure("cost") for each in own])
    )
    known = ~np.isnan(scores).any(axis=0) & ~np.isnan(costs).any(axis=0)
    return list(scores[:, known]), list(costs[:, known]), own[0].clusters[places[0]][known]


def _with_assumption(one: Comparison, wire: Mapping[str, Mapping[str, Any]]) -> Comparison:
    """A verdict that says how many rows it takes for unchanged without having asked."""
    assumed = int((wire.get(one.system) or {}).get("assumed", 0))
    if not assumed:
        return one
    said = (
        f"{one.sentence} This takes {assumed:,} rows of {one.system} for unchanged, unasked, since all evidence "
        "arrived in them (--only-lost): what else was cut may matter, and this run could not see it."
    )
    return replace(one, sentence=said)


def _with_changes(one: Comparison, columns: Mapping[str, Columns]) -> Comparison:
    """A comparison over everything with the changes of its examples, trial by trial."""
    if one.dataset is not None or not {one.system, one.baseline} <= columns.keys():
        return one
    own, base = columns[one.system], columns[one.baseline]
    return replace(one, changes=change_bins(own.numbers(one.metric) - base.at(own.keys, one.metric)))


def _by_looks(manifest: Mapping[str, Any], *, post_hoc: bool) -> dict[str, Any]:
    """Facts for a `Comparer` on the looks at a run; none where it is judged once. A question that was chosen
    afterwards was not decided by a look: only their level counts for it.
    """
    level = level_now(manifest)
    if level is None:
        return {}
    if post_hoc or planned_looks(manifest) is None:
        return {"level": level}
    return {"level": level, "decided": decided(manifest), "between_looks": not is_looking(manifest)}


class _OnePass:
    """Counts of the rows of one system, made in one pass."""

    def __init__(self, metrics: Sequence[Any]) -> None:
        self.metrics = list(metrics)
        self.tallies: list[RowTally | None] = [
            metric.tally() if method(metric, "tally") else None for metric in metrics
        ]
        self.kept: list[EvalRow] | None = [] if None in self.tallies else None
        self.failures: dict[str, Counter[str]] = {}
        self.wire = _Wire()
        self.broken: dict[int, str] = {}  # place of a metric → what it failed of: the others go on

    def take(self, rows: Sequence[EvalRow]) -> None:
        """Take some hundred rows in."""
        for place, tally in enumerate(self.tallies):
            if tally is not None and place not in self.broken:
                self._careful(place, partial(_add_all, tally, rows))
        if self.kept is not None:
            self.kept.extend(rows)
        for row in rows:
            for source, text in row.errors.items():
                self.failures.setdefault(source, Counter())[text.partition(":")[0].strip() or "unknown"] += 1
            if row.wire:
                self.wire.add(row.wire)

    def numbers(self) -> list[dict[str, float]]:
        """Each metric's numbers; none of one that failed."""
        found: list[dict[str, float]] = []
        for place, (metric, tally) in enumerate(zip(self.metrics, self.tallies, strict=True)):
            made = (
                None
                if place in self.broken
                else self._careful(place, tally.result if tally is not None else partial(metric.compute, self.kept))
            )
            found.append(made or {})
        return found

    def _careful(self, place: int, act: Callable[[], Any]) -> Any:
        """The values of one metric. Metrics may be the user's own: a failure of one is noted, and costs nothing
        else.
        """
        try:
            return act()
        except Exception as error:
            name = getattr(self.metrics[place], "name", type(self.metrics[place]).__name__)
            self.broken[place] = f"metric {name!r} failed and is left out ({describe(error)})."
            return None


def _add_all(tally: RowTally, rows: Iterable[EvalRow]) -> None:
    add = tally.add
    for row in rows:
        add(row)


class _Wire:
    """Totals of the tap for one system, over all rows (decision 20); `changes`: kinds of changes with their counts."""

    SUMS = (
        "sent",
        "forwarded",
        "billed",
        "role_changes",
        "param_changes",
        "extra_calls",
        "late",
        "uncounted_parts",
        "violations",
        "oversized",
        "copied",
        "assumed",
    )

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.violations: Counter[str] | None = None  # by kind, where rows tell them
        self.rows = 0
        self.truncated = 0
        self.exact = True
        self.keys: list[bool] = []

    def add(self, wire: Mapping[str, Any]) -> None:
        self.rows += 1
        for name in (*self.SUMS, "calls", "client_calls", "unmatched"):
            value = real(wire.get(name))
            if value is not None:
                self.sums[name] += value  # type: ignore[assignment]
        for change in wire.get("changes", ()):
            self.changes[f"{change.get('kind')}: {change.get('detail')}"] += 1
        if isinstance(kinds := wire.get("violations"), dict):
            self.violations = (self.violations or Counter()) + Counter(kinds)
        self.truncated += bool(wire.get("truncated"))
        self.exact = self.exact and wire.get("exact") is not False
        if wire.get("authorization_forwarded") is not None:
            self.keys.append(bool(wire["authorization_forwarded"]))

    def result(self) -> dict[str, Any]:
        """Sums over rows; `authorization_forwarded` is true, false, or the share of rows in which our key arrived."""
        if not self.rows:
            return {}
        found: dict[str, Any] = {name: int(self.sums[name]) for name in (*self.SUMS, "unmatched") if name in self.sums}
        if asked := self.sums.get("client_calls"):
            found["calls_per_request"] = self.sums["calls"] / asked
        if self.keys:
            share = sum(self.keys) / len(self.keys)
            found["authorization_forwarded"] = share if 0 < share < 1 else share == 1
        if self.changes:
            found["changes"] = dict(self.changes.most_common(20))
        if self.violations is not None:
            found["violations"] = dict(sorted(self.violations.items()))
        return found | {"truncated": self.truncated, "exact": self.exact}


def _require_fields(columns: dict[str, Columns], wanted: set[str]) -> None:
    """A score that no row has is a mistake in the question, if rows have other scores."""
    known = sorted({name for each in columns.values() for name in each.scores})
    for name in sorted(wanted):
        if known and name not in known:
            raise BadInput(
                f"no row has a score {name!r}; there are: {', '.join(known)}. Nothing is lost: repeat with one of "
                "these as --score-field"
            )


def _rank(found: RunSummary, metrics: Sequence[Any], roles: Mapping[str, ArmRole]) -> None:
    """`pareto_rank` over all arms, controls included; absent with one system and where quality or cost was not
    measured.

    A noise floor, often asked of fewer examples, has none and takes none.
    """
    for values in found.summary.values():
        values.pop("pareto_rank", None)  # the placeholder of a metric that sees one system
    if len(found.summary) < 2:
        return
    asked = next((metric for metric in metrics if getattr(metric, "name", None) == "pareto_rank"), None)
    quality, cost = _coordinates(
        found, getattr(asked, "quality_field", "score"), getattr(asked, "cost_field", "cost_of_pass")
    )
    measured = {
        system: values
        for system, values in found.summary.items()
        if quality in values
        and cost in values
        and (quality != "mean_score" or quality in found.estimates[system])
        and roles.get(system, CANDIDATE).role != "noise_floor"
    }
    for system, rank in (
        rank_systems(measured, quality, cost, estimates=found.estimates).items() if len(measured) > 1 else ()
    ):
        found.summary[system]["pareto_rank"] = float(rank)


def _coordinates(found: RunSummary, quality: str, cost: str) -> tuple[str, str]:
    """The summary's names of the two. A score's mean is called after it, but for the score that the run is about."""
    known = {name for values in found.summary.values() for name in values}
    return next((name for name in (quality, f"mean_{quality}") if name in known), "mean_score"), cost


def _against(
    found: RunSummary,
    columns: Mapping[str, Columns],
    score_field: str,
    baseline: str | None,
    unranked: Collection[str],
    roles: Mapping[str, ArmRole],
) -> str | None:
    """The system that all others are compared with; `None` where nothing can be compared, which the notes then say."""
    if baseline is not None and baseline not in columns:
        raise UnknownName("baseline", baseline, columns)
    if len(columns) < 2:
        found.notes.append("Nothing to compare with: add a second system or --controls (for a memory, its floors).")
        return None
    if not any(score_field in each.scores for each in columns.values()):
        found.notes.append(
            f"No row has the score {score_field!r}, so nothing is said about quality. Do the examples have a gold "
            "answer?"
        )
        return None
    if baseline in unranked:
        found.notes.append(
            f"{baseline} does not rank, so nothing is compared with it in {score_field}; --baseline names another "
            "memory."
        )
        return None
    return baseline or of_kind({name: roles.get(name, CANDIDATE) for name in columns}, "full") or next(iter(columns))


def _notes(found: RunSummary, columns: dict[str, Columns], score_field: str | None) -> list[str]:
    notes: list[str] = []
    for system, sources in found.failures.items():
        for source, classes in sources.items():
            kinds = ", ".join(
                f"{name} {count}" for name, count in sorted(classes.items(), key=lambda item: (-item[1], item[0]))
            )
            what = "rows failed" if source == "system" else f"rows could not be scored by {source}"
            notes.append(f"{system}: {sum(classes.values())} of {len(columns[system])} {what} ({kinds}).")
    notes += [
        f"{system}: {not_compared(many)}." for system, facts in found.wire.items() if (many := facts.get("oversized"))
    ]
    if any(found.failures.values()):
        notes.append(
            "Means are over scored rows; the bounds show them with every failure counted as wrong and as right."
        )
    notes += [*without_gold(columns, score_field), *_unequal_judges(found, columns)]
    notes += [
        f"{system}: a few dear rows make the mean cost per row; one more of them would change it, and its interval is "
        "too narrow for that."
        for system, own in columns.items()
        if costs_rest_on_few(own)
    ]
    notes += _few_clusters(found, score_field)
    trials = max((each.trials for each in columns.values()), default=1)
    if trials > 1:
        notes.append(f"Each example was asked {trials} times; its trials are averaged before anything else.")
    return notes


def _few_clusters(found: RunSummary, score_field: str | None) -> list[str]:
    """A sentence on the systems whose clusters are few, where no verdict on them says so."""
    said = [one for one in found.comparisons if TOO_FEW in one.sentence or ROUGH in one.sentence]
    told = {name for one in said for name in (one.system, one.baseline)}
    known = {name: own[score_field].clusters for name, own in found.estimates.items() if score_field in own}
    few = {name: count for name, count in known.items() if name not in told and count < ROUGH_BELOW}
    least, whose = min(few.values(), default=ROUGH_BELOW), f" of {', '.join(few)}" if len(few) < len(known) else ""
    if least < MIN_CLUSTERS:
        what = f"Only {least} cluster{'s' * (least != 1)} of examples{whose}"
        return [f"{what}: with fewer than {MIN_CLUSTERS} no interval is given, for it would mislead."]
    return [f"Intervals{whose} are rough: only {least} clusters of examples."] if few else []


def _unequal_judges(found: RunSummary, columns: dict[str, Columns]) -> list[str]:
    """An evaluator that fails on one system more than on another skews the comparison (χ² at 5 %)."""
    sources = sorted({source for by in found.failures.values() for source in by} - {"system"})
    if not sources:
        return []
    notes = []
    for source in sources:
        table = []
        for system, each in columns.items():
            unscored = sum(found.failures[system].get(source, {}).values())
            owing = len(each) - sum(found.failures[system].get("system", {}).values())
            if owing > 0:
                table.append((unscored, owing - unscored))
        if len(table) < 2 or not sum(good for _, good in table):
            continue
        if unequal_shares(table) < 0.05:
            notes.append(
                f"{source} failed on some systems more often than on others: its scores do not compare them fairly."
            )
    return notes
