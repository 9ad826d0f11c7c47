"""Runs of agents: what each arm solved, took and cost, against the baseline, and whether one task alone decides.

Tasks are what is independent (or their clusters); trials of a task are averaged before anything else.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.numbers import real
from context_bench.core.records import Comparison, EvalRow
from context_bench.core.rows import cost_usd
from context_bench.stats.verdict import Assay, VerdictQuestion, judge, shows_inferior, weigh

Key = tuple[str, str]  # dataset and task


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One run of an agent. `solved`: 0 or 1, `None` for a failure that says nothing of the arm. `abort`: the rule that
    ended it.

    `calls`: answered calls of the model; `tokens`: billed prompt tokens, of them `cached` from the provider's cache;
    `output`: billed reply tokens; `cost` in US dollars; `seconds` of the agent alone, without copy and tests.
    `reads`, `again`: see `transcripts.trace`. `quotas`: see `wire.turns.Quotas.as_dict`. `None` = not measured.
    """

    task: Key
    trial: int
    cluster: str
    solved: float | None
    abort: str | None = None
    calls: int | None = None
    tokens: int | None = None
    output: int | None = None
    cached: int | None = None
    cost: float | None = None
    seconds: float | None = None
    reads: int | None = None
    again: int | None = None
    redundancy: float | None = None
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, row: EvalRow) -> AgentRun:
        """The run that a row tells of."""
        facts, usage = row.metadata, row.usage
        seen = row.wire.get("client_calls")
        return cls(
            task=(row.dataset, str(row.example_id)),
            trial=row.trial,
            cluster=row.cluster or f"{row.dataset}\0{row.example_id}",
            solved=None if row.failed else row.scores.get("solved"),
            abort=facts.get("abort"),
            calls=seen if isinstance(seen, int) else None,
            tokens=usage.get("input_tokens"),
            output=usage.get("output_tokens"),
            cached=usage.get("cache_read"),
            cost=cost_usd(row),
            seconds=facts.get("agent_seconds"),
            reads=facts.get("reads"),
            again=facts.get("again"),
            redundancy=facts.get("redundancy"),
            quotas=_read_quotas(facts.get("quotas")),
        )


def _read_quotas(kept: Any) -> dict[str, dict[str, float]]:
    """Quotas of a kept row, without what is no number."""
    found: dict[str, dict[str, float]] = {}
    for name, told in kept.items() if isinstance(kept, Mapping) else ():
        given = told if isinstance(told, Mapping) else {}
        values = {key: value for key in ("first", "last", "used") if (value := real(given.get(key))) is not None}
        if len(values) == len(("first", "last", "used")):
            found[str(name)[:80]] = values
    return found


def quotas_of(runs: Iterable[AgentRun]) -> dict[str, dict[str, float]]:
    """Quotas of the account that an arm's runs used up: `used` over all of its `runs` that told the quota, `used_mean`
    per run, `most`: the highest share that was used up at the end of a run.

    A run's amount is what was used up from its first reply to its last; failed runs used quotas, too.
    """
    by_quota: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        for name, shares in run.quotas.items():
            by_quota.setdefault(name, []).append(shares)
    found: dict[str, dict[str, float]] = {}
    for name, each in sorted(by_quota.items()):
        used = math.fsum(one["used"] for one in each)
        most = max(one["last"] for one in each)
        found[name] = {"runs": len(each), "used": used, "used_mean": used / len(each), "most": most}
    return found


#: Amounts of a run that arms are compared in.
AMOUNTS: dict[str, Callable[[AgentRun], float | None]] = {
    "cost": lambda run: run.cost,
    "tokens": lambda run: run.tokens,
    "output": lambda run: run.output,
    "calls": lambda run: run.calls,
    "seconds": lambda run: run.seconds,
    "again": lambda run: run.again,
}


def figures(runs: Sequence[AgentRun]) -> dict[str, Any]:
    """One arm: `runs`, `tasks`, `solved`, `aborted` and `aborts` by class, `failures`, sums and per-run means or
    medians of the amounts; `quotas`, where replies told any (see `quotas_of`).
    """
    scored = [run for run in runs if run.solved is not None]
    aborts = Counter(run.abort for run in scored if run.abort)
    solved = sum(run.solved or 0.0 for run in scored)
    found: dict[str, Any] = {
        "runs": len(runs),
        "tasks": len({run.task for run in runs}),
        "solved": int(solved),
        "aborted": aborts.total(),
        "aborts": dict(aborts.most_common()),
        "failures": len(runs) - len(scored),
    }
    for name, of in AMOUNTS.items():
        values = [value for run in scored if (value := of(run)) is not None]
        if values:
            found |= {
                f"{name}_sum": sum(values),
                f"{name}_mean": sum(values) / len(values),
                f"{name}_median": statistics.median(values),
            }
            found[f"{name}_known"] = len(values)
    reads = sum(run.reads or 0 for run in scored)
    if reads:
        found |= {"reads_sum": reads, "reread_share": sum(run.again or 0 for run in scored) / reads}
    redundancy = [run.redundancy for run in scored if run.redundancy is not None]
    if quotas := quotas_of(runs):
        found["quotas"] = quotas
    if redundancy:
        found["redundancy_mean"] = sum(redundancy) / len(redundancy)
    if solved and found.get("cost_known") == len(scored):
        found["cost_per_solved"] = found["cost_sum"] / solved
    return found


def amounts_against(runs: Sequence[AgentRun], base: Sequence[AgentRun], *, seed: int = 0) -> dict[str, dict[str, Any]]:
    """An arm's amounts over the baseline's, on the (task, trial) pairs where both were measured.

    Per amount: `ratio` = Σ / Σ with `low`, `high` (95 %, clusters resampled whole; from 6 clusters on); `median` =
    median over tasks of the ratio of their means; `n` pairs; `tasks`; `side_without`: tasks without which the ratio
    falls on the other side of 1. The median has `median_low` and `median_high` (Woodruff's interval, from 6 clusters
    on).
    """
    pairs = _pairs(runs, base)
    return {name: told for name, of in AMOUNTS.items() if (told := _amount(pairs, of, seed))}


def _pairs(runs: Sequence[AgentRun], base: Sequence[AgentRun]) -> list[tuple[AgentRun, AgentRun]]:
    """Runs of an arm and of the baseline on the same task and trial, where both are scored."""
    known = {(run.task, run.trial): run for run in base if run.solved is not None}
    return [
        (run, known[run.task, run.trial]) for run in runs if run.solved is not None and (run.task, run.trial) in known
    ]


def cost_per_solved_against(
    runs: Sequence[AgentRun], base: Sequence[AgentRun], solving: Comparison | None
) -> dict[str, Any]:
    """Is a solved task cheaper with this arm? On the pairs whose cost is known on both sides; empty below 6 clusters,
    or where one side solved nothing or cost nothing.

    `ratio` = cost per solved task over the baseline's, with `low`, `high` (95 %): the delta method on its logarithm
    over clusters, Student's t. `verdict`: `cheaper` if the interval lies below 1 **and** `solving` says that the arm
    solves no less (both are asked at 5 %, and both must hold: an intersection–union test needs no correction);
    `dearer` if it lies above 1; else `undecided`. `sentence` says which half is missing.
    """
    import numpy as np

    from context_bench.stats.distributions import quantile
    from context_bench.stats.means import MIN_CLUSTERS, codes_of

    pairs = [(one, other) for one, other in _pairs(runs, base) if one.cost is not None and other.cost is not None]
    codes = codes_of([one.cluster for one, _ in pairs], len(pairs))
    groups = int(codes.max()) + 1 if len(codes) else 0
    amounts = [[run.cost or 0.0, run.solved or 0.0] for run in (run for pair in pairs for run in pair)]
    table = np.array(amounts, dtype=float).reshape(len(pairs), 4)  # cost and solved of the arm, then of the baseline
    totals = table.sum(axis=0)
    if groups < MIN_CLUSTERS or not (totals > 0).all():
        return {}
    cost, solved, base_cost, base_solved = totals
    log_ratio = float(np.log(cost / base_cost) - np.log(solved / base_solved))
    influence = table @ (np.array([1.0, -1.0, -1.0, 1.0]) / totals)
    sums = np.bincount(codes, influence, minlength=groups)
    half = quantile(0.975, groups - 1) * float(np.sqrt(groups / (groups - 1) * (sums**2).sum()))
    found = {"ratio": np.exp(log_ratio), "low": np.exp(log_ratio - half), "high": np.exp(log_ratio + half)}
    return {name: float(value) for name, value in found.items()} | _worth(log_ratio, half, solving) | {"n": len(pairs)}


def _worth(log_ratio: float, half: float, solving: Comparison | None) -> dict[str, str]:
    """The verdict on the cost per solved task, and its sentence."""
    holds = solving is not None and solving.verdict in ("better", "non-inferior")
    solved = f"solving is {solving.verdict}" if solving is not None else "solving was not compared"
    if log_ratio - half > 0:
        return {"verdict": "dearer", "sentence": f"A solved task is dearer ({solved})."}
    if log_ratio + half >= 0:
        return {"verdict": "undecided", "sentence": "Whether a solved task is cheaper is open."}
    if holds:
        return {"verdict": "cheaper", "sentence": f"A solved task is cheaper, and {solved}."}
    return {"verdict": "undecided", "sentence": f"What was solved cost less, but {solved}: no verdict on cheaper."}


def _amount(
    pairs: Sequence[tuple[AgentRun, AgentRun]], of: Callable[[AgentRun], float | None], seed: int
) -> dict[str, Any]:
    by_task: dict[Key, list[float]] = {}
    clusters: dict[Key, str] = {}
    n = 0
    for one, other in pairs:
        mine, theirs = of(one), of(other)
        if mine is None or theirs is None:
            continue
        sums = by_task.setdefault(one.task, [0.0, 0.0])
        sums[0] += mine
        sums[1] += theirs
        clusters[one.task] = one.cluster
        n += 1
    top, bottom = sum(sums[0] for sums in by_task.values()), sum(sums[1] for sums in by_task.values())
    if not bottom:
        return {}
    ratios = [mine / theirs for mine, theirs in by_task.values() if theirs]
    found: dict[str, Any] = {"ratio": top / bottom, "median": statistics.median(ratios), "n": n, "tasks": len(by_task)}
    found |= _interval(by_task, clusters, seed) | _median_interval(by_task, clusters)
    turned = [
        task
        for task, (mine, theirs) in by_task.items()
        if bottom > theirs and _side(top - mine, bottom - theirs) != _side(top, bottom)
    ]
    if turned:
        found["side_without"] = [task[1] for task in turned]
    return found


def _side(top: float, bottom: float) -> int:
    return (top > bottom) - (top < bottom)


def _interval(by_task: Mapping[Key, Sequence[float]], clusters: Mapping[Key, str], seed: int) -> dict[str, float]:
    import numpy as np

    from context_bench.stats.bootstrap import cluster_sums, ratio_interval
    from context_bench.stats.means import MIN_CLUSTERS, codes_of

    codes = codes_of([clusters[task] for task in by_task], len(by_task))
    if int(codes.max()) + 1 < MIN_CLUSTERS:
        return {}
    values = np.array(list(by_task.values()), dtype=float)
    sums = cluster_sums(codes, values[:, 0], values[:, 1])
    ends = ratio_interval(sums[:, 0], sums[:, 1], seed=seed)
    return {} if ends is None else {"low": ends[0], "high": ends[1]}


def _median_interval(by_task: Mapping[Key, Sequence[float]], clusters: Mapping[Key, str]) -> dict[str, float]:
    from context_bench.stats.intervals import quantile_interval

    ratios = {task: mine / theirs for task, (mine, theirs) in by_task.items() if theirs}
    ends = quantile_interval(list(ratios.values()), 0.5, [clusters[task] for task in ratios]) if ratios else None
    return {} if ends is None else {"median_low": ends[0], "median_high": ends[1]}


@dataclass(frozen=True, slots=True)
class Contest:
    """The comparisons of a run. `known_bad`: arms that must lose, if the tasks can tell anything. `margin` in shares of
    tasks solved.
    """

    baseline: str
    candidates: Sequence[str]
    known_bad: Sequence[str] = ()
    margin: float | None = None
    seed: int = 0

    def verdicts(self, runs: Mapping[str, Sequence[AgentRun]], without: Collection[Key] = ()) -> dict[str, Comparison]:
        """The verdict on every candidate, Holm-corrected over them, as the run's own are; tasks in `without` are left
        out.
        """
        table = {name: _by_pair(own, without) for name, own in runs.items()}
        asked = [question for name in self.candidates if (question := self._question(name, table)) is not None]
        return {comparison.system: comparison for comparison in judge(asked)}

    def _question(self, name: str, table: Mapping[str, Mapping[tuple[Key, int], AgentRun]]) -> VerdictQuestion | None:
        base = table.get(self.baseline, {})
        keys = [key for key in table.get(name, {}) if key in base and _scored(table[name][key], base[key])]
        if not keys:
            return None
        arms = [arm for arm in self.known_bad if arm not in (name, self.baseline)]
        shown = next((arm for arm in arms if self._loses(table.get(arm, {}), base, keys)), None)
        first, second, clusters = _means(table[name], base, keys)
        evidence = weigh(first, second, clusters, margin=self.margin, seed=self.seed)
        return VerdictQuestion(name, self.baseline, "solved", evidence, Assay(shown, tuple(arms)))

    def _loses(self, arm: Mapping[Any, AgentRun], base: Mapping[Any, AgentRun], keys: Sequence[Any]) -> bool:
        both = [key for key in keys if key in arm and _scored(arm[key], base[key])]
        if not both:
            return False
        first, second, clusters = _means(arm, base, both)
        return shows_inferior(weigh(first, second, clusters, margin=self.margin, seed=self.seed))


def _by_pair(runs: Sequence[AgentRun], without: Collection[Key]) -> dict[tuple[Key, int], AgentRun]:
    return {(run.task, run.trial): run for run in runs if run.task not in without}


def _scored(one: AgentRun, other: AgentRun) -> bool:
    return one.solved is not None and other.solved is not None


def _means(
    first: Mapping[Any, AgentRun], second: Mapping[Any, AgentRun], keys: Sequence[tuple[Key, int]]
) -> tuple[list[float], list[float], list[str]]:
    """Means per task over the trials that both have, and the tasks' clusters."""
    trials: dict[Key, list[tuple[Key, int]]] = {}
    for key in keys:
        trials.setdefault(key[0], []).append(key)
    mean = [
        [sum(side[key].solved or 0.0 for key in own) / len(own) for own in trials.values()] for side in (first, second)
    ]
    return mean[0], mean[1], [first[own[0]].cluster for own in trials.values()]


def flips(contest: Contest, runs: Mapping[str, Sequence[AgentRun]]) -> dict[str, dict[str, Any]]:
    """Verdicts that one task decides.

    Per candidate its `verdict`, and under `without` the tasks whose absence changes it, with the new verdict.
    """
    whole = contest.verdicts(runs)
    found: dict[str, dict[str, Any]] = {name: {"verdict": each.verdict, "without": {}} for name, each in whole.items()}
    alike = _alike(runs)
    without: dict[Any, dict[str, Comparison]] = {}
    for task, kind in alike.items():
        if kind not in without:  # tasks on which everything went alike leave the same behind
            without[kind] = contest.verdicts(runs, without={task})
        for name, each in without[kind].items():
            if each.verdict != whole[name].verdict:
                found[name]["without"][task[1]] = each.verdict
    return {name: {**told, "tasks": len(alike)} for name, told in found.items()}


def _alike(runs: Mapping[str, Sequence[AgentRun]]) -> dict[Key, Any]:
    """Each task as a verdict sees it: the result of every arm in every trial, and of the other tasks of its cluster."""
    outcomes: dict[Key, list[tuple[str, int, float | None]]] = {}
    clusters: dict[Key, str] = {}
    for name, own in runs.items():
        for run in own:
            outcomes.setdefault(run.task, []).append((name, run.trial, run.solved))
            clusters[run.task] = run.cluster
    faces = {task: tuple(sorted(each, key=repr)) for task, each in outcomes.items()}
    together: dict[str, list[Any]] = {}
    for task, face in faces.items():
        together.setdefault(clusters[task], []).append(face)
    return {task: (face, tuple(sorted(map(repr, together[clusters[task]])))) for task, face in faces.items()}


def by_task(runs: Mapping[str, Sequence[AgentRun]]) -> list[dict[str, Any]]:
    """Task by task: for every arm runs, solved, aborts and mean cost, in the order of the tasks."""
    tasks = dict.fromkeys(run.task for own in runs.values() for run in own)
    table: list[dict[str, Any]] = []
    for task in tasks:
        arms: dict[str, dict[str, Any]] = {}
        for name, own in runs.items():
            if mine := [run for run in own if run.task == task]:
                told = figures(mine)
                keys = (
                    "runs",
                    "solved",
                    "aborted",
                    "failures",
                    "aborts",
                    "cost_mean",
                    "calls_mean",
                    "tokens_mean",
                    "seconds_mean",
                )
                arms[name] = {key: told[key] for key in keys if key in told}
        table.append({"task": task[1], "dataset": task[0], "arms": arms})
    return table
