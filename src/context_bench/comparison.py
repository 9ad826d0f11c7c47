"""Two states of a system held against each other: is the later run worse than the earlier one, and is that real?

```python
from context_bench.comparison import compare
from context_bench.results import EvalResult

before, after = (EvalResult.from_json(path.read_text()) for path in (first, second))
print(compare(before, after, metric="f1").comparisons[0].sentence)
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.errors import BadInput, NotComparable, UnknownName
from context_bench.core.numbers import real
from context_bench.core.records import EvalRow, Result
from context_bench.core.roles import CANDIDATE, ArmRole, roles_in, second_answer
from context_bench.core.rows import different_load, what_differs
from context_bench.results import EvalResult

__all__ = [
    "EARLIER",
    "LostExample",
    "candidates",
    "compare",
    "differences",
    "losses",
    "planned_margin",
    "score_of",
    "spreads",
    "within",
]

#: What the earlier run's arm is called beside the later one's of the same name.
EARLIER = "{name} before"

#: Options of a run that decide what its scores mean: where they differ, a difference of scores has more than one
#: possible cause.
_PROTOCOL = (
    "model", "shape", "wire", "prompt", "system_prompt", "temperature", "max_tokens", "extra_body", "stream", "reader", "judge_url",  # noqa: E501
    "judge_model", "k", "budget_tokens", "overlay", "mode",
)  # fmt: skip


def candidates(result: Result) -> list[str]:
    """The systems that a run is about: all that are no controls, or all there are."""
    controls = _controls(result)
    return [name for name in result.summary if name not in controls] or list(result.summary)


def _controls(result: Result) -> set[str]:
    """The arms that the run has for comparison's sake."""
    return {name for name, own in roles_in(result.manifest, result.summary).items() if own.is_control}


def compare(
    before: Result,
    after: Result,
    *,
    metric: str | None = None,
    margin: float | None = None,
    systems: Sequence[str] | None = None,
    metrics: Sequence[Any] | None = None,
    force: bool = False,
    any_load: bool = False,
    seed: int = 0,
) -> EvalResult:
    """Every system of `after` against its earlier self in `before`, paired by dataset, example and trial.

    Where each run has just one system they are compared whatever their names. `metric`: the score (default: the one
    both runs were about). `margin`: loss that would still be acceptable; by default the one that `after` was planned
    with for this score, else as in a run without any. One that is first given here was chosen when the answers were
    there, and the result says so. `metrics`: what the summary holds (default: the mean of the score). Arms that must
    lose are taken from `after`, else `before`. Latency and time to first token belong to the load that they were
    measured under: where it was not the same in both runs they are left out, and a note says why, unless `any_load`.
    Raises `NotComparable` where the runs measured different things (see `differences`) unless `force`, or share
    nothing.
    """
    faults = differences(before, after)
    if faults and not force:
        raise NotComparable(
            "\n".join(["the two runs measured different things:", *(f"  - {f}" for f in faults), "insist with --force"])
        )
    field = score_of([*before.rows, *after.rows], metric or _score_field(after) or _score_field(before) or "f1")
    margin = planned_margin(after, field) if margin is None else margin
    compared = EvalResult(rows=[], summary={}, config={"before": _name(before), "after": _name(after)})
    load = different_load(before.manifest, after.manifest)
    timed = load is None or any_load
    for name, earlier in _partners(before, after, systems):
        _add(compared, before, after, name, earlier, field, margin, metrics, seed, timed=timed)
    if not compared.summary:
        raise NotComparable("no example was measured in both runs, by dataset, id and trial")
    compared.manifest |= _manifest(before, after, field, margin)
    told = [f"Compared although {fault}" for fault in faults]
    if load is not None:
        told.append(
            f"Times are compared although {load}"
            if any_load
            else f"Times are not compared: {load} (--any-load shows them)"
        )
    compared.notes = list(dict.fromkeys([*told, *compared.notes]))
    return compared


def within(
    result: Result,
    *,
    metric: str | None = None,
    margin: float | None = None,
    metrics: Sequence[Any] | None = None,
    seed: int = 0,
) -> EvalResult:
    """Every system of one run against the run's own baseline, with a score and a margin of your choice; as `compare`
    otherwise.
    """
    controls = _controls(result)
    asked = [(one.system, one.baseline) for one in result.comparisons if not one.dataset and one.system not in controls]
    if not asked:
        raise NotComparable("the run compares no system with a baseline; run with --controls, or give an earlier run")
    for name in (name for pair in asked for name in pair if name not in result.summary):
        raise UnknownName("system", name, result.summary)
    field = score_of(result.rows, metric or _score_field(result) or "f1")
    margin = planned_margin(result, field) if margin is None else margin
    compared = EvalResult(rows=[], summary={}, config={"before": _name(result), "after": _name(result)})
    for name, baseline in dict.fromkeys(asked):
        _add(compared, result, result, name, baseline, field, margin, metrics, seed)
    compared.manifest |= _manifest(result, result, field, margin)
    compared.notes = list(dict.fromkeys(compared.notes))
    return compared


@dataclass(frozen=True, slots=True)
class LostExample:
    """One example on which a system scored less than its baseline. `change`: its score less the baseline's; negative.
    `row` and `baseline`: both rows.
    """

    change: float
    row: EvalRow
    baseline: EvalRow


def losses(
    result: Result, system: str, *, baseline: str | None = None, metric: str | None = None, least: float = 0.0
) -> list[LostExample]:
    """The examples on which `system` scored less than `baseline`, the greatest loss first, then in the order of the
    run.

    Rows are paired by dataset, example, trial and shape; rows without a score, such as failures, are in no pair.
    `baseline`: by default the one that the run compares the system with. `metric`: by default the score that the run is
    about. `least`: losses of at most this much are left out. Raises `UnknownName` for a system or a score that the run
    has not, `NotComparable` where no baseline is known.
    """
    for name in (system, baseline):
        if name is not None and name not in result.summary:
            raise UnknownName("system", name, result.summary)
    against = baseline or next((each.baseline for each in result.comparisons if each.system == system), None)
    if against is None:
        raise NotComparable(f"the run compares {system} with no baseline; name one of {', '.join(result.summary)}")
    field = score_of(result.rows, metric or _score_field(result) or "f1")
    theirs = {_key(row): row for row in _of(result, against)}
    found = [
        LostExample(change, row, other)
        for row in _of(result, system)
        if (other := theirs.get(_key(row))) is not None
        and (mine := real(row.scores.get(field))) is not None
        and (reached := real(other.scores.get(field))) is not None
        and (change := mine - reached) < -least
    ]
    return sorted(found, key=lambda each: each.change)


def spreads(result: Result, metric: str | None = None, margin: float = 0.02) -> list[dict[str, Any]]:
    """Spread of the paired differences of a run, for planning the next one: one entry per system that is compared with
    a baseline.

    Controls are in it only where there is nothing else: how far truncation scatters says nothing about what is to be
    measured.

    `sd`: standard deviation of the differences (trials averaged); `design_effect`: how many times more examples
    clusters cost, as the verdict counts them; `n`: pairs; `clusters`: those they are in; `forecast`: what a verdict at
    this `margin` would say of the examples that decide (`stats.verdict.forecast`), absent where it would be none.
    """
    field = score_of(result.rows, metric or _score_field(result) or "f1")
    pairs = dict.fromkeys((one.system, one.baseline) for one in result.comparisons if not one.dataset)
    found = [_spread(result, system, baseline, field, margin) for system, baseline in pairs]
    known, controls = [one for one in found if one is not None], _controls(result)
    told = [one for one in known if one["system"] not in controls] or known
    if not told:
        raise NotComparable("the run has no two systems that were scored on the same examples (at least two of them)")
    return told


def _spread(result: Result, system: str, baseline: str, field: str, margin: float) -> dict[str, Any] | None:
    import numpy as np

    from context_bench.stats.intervals import bounded
    from context_bench.stats.means import codes_of, mean_se
    from context_bench.stats.verdict import weigh

    ours, theirs = _averaged(_of(result, system), field), _averaged(_of(result, baseline), field)
    second = _second_answer(result, baseline)
    again = {} if second in (None, system) else _averaged(_of(result, second or ""), field)
    keys = [key for key in ours if key in theirs]
    if len(keys) < 2:
        return None
    first = np.array([ours[key][0] for key in keys])
    base = np.array([(theirs[key][0] + again.get(key, theirs[key])[0]) / 2 for key in keys])
    clusters = [ours[key][1] for key in keys]
    found = mean_se(first - base, clusters)
    effect = (found.se / found.se_iid) ** 2 if found.se and found.se_iid else 1.0
    evidence = weigh(first, base, clusters, margin=margin, noise=_noise(result, baseline, field, averaged=bool(again)))
    if evidence.in_points and evidence.low is not None:
        codes = codes_of(clusters, len(keys))
        gathered = bounded(first - base, codes, low=-1.0, high=1.0, guarded=True)
        effect = (gathered.guard or gathered.design).effect
    return {
        "system": system,
        "baseline": baseline,
        "metric": field,
        "n": len(keys),
        "clusters": found.clusters,
        "sd": float((first - base).std(ddof=1)),
        "design_effect": max(1.0, float(effect)),
        **({"forecast": evidence.forecast()} if evidence.forecast is not None else {}),
    }


def _second_answer(result: Result, baseline: str) -> str | None:
    arm = second_answer(result.manifest.get("design"), baseline)
    return arm if arm in result.summary else None


def _noise(result: Result, baseline: str, field: str, *, averaged: bool) -> Any:
    """Differences between the baseline and its repetition; `None` without one. `averaged`: as those of a system from
    the mean of both spread.
    """
    import numpy as np

    roles = roles_in(result.manifest, result.summary)
    again = next(
        (name for name, own in roles.items() if own.role == "noise_floor" and own.of in (None, baseline)), None
    )
    if again is None:
        return None
    ours, theirs = _averaged(_of(result, again), field), _averaged(_of(result, baseline), field)
    apart = np.array([ours[key][0] - theirs[key][0] for key in ours if key in theirs])
    return apart * (0.75**0.5 if averaged else 1.0)


def _averaged(rows: Sequence[EvalRow], field: str) -> dict[tuple[str, str, str], tuple[float, str]]:
    """Example → mean of its trials' scores, cluster."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    clusters: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if field in row.scores:
            dataset, example, _, shape = _key(row)
            scores.setdefault((dataset, example, shape), []).append(row.scores[field])
            clusters[dataset, example, shape] = repr((dataset, row.cluster or row.group or example))
    return {key: (sum(values) / len(values), clusters[key]) for key, values in scores.items()}


def differences(before: Result, after: Result) -> list[str]:
    """Differences between two runs, as sentences: data of the same name with other content, model, prompt, evaluator
    …
    """
    first, second = before.manifest, after.manifest
    found = [
        f"the data of {name} changed (content {ours[:12]} became {theirs[:12]})"
        for name, ours, theirs in _shared(_contents(first), _contents(second))
        if ours != theirs
    ]
    found += [
        f"evaluator {name} changed" for name, ours, theirs in _shared(_judges(first), _judges(second)) if ours != theirs
    ]
    options, later = first.get("options") or {}, second.get("options") or {}
    for key in _PROTOCOL:
        if key in options and key in later and options[key] != later[key]:
            found.append(f"{key} was {options[key]!r} and is {later[key]!r}")
    return found


def score_of(rows: Iterable[EvalRow], metric: str) -> str:
    """The score behind a metric's name: `f1` of `f1` or `mean_f1`. Raises `UnknownName`."""
    known = {name for row in rows for name in row.scores}
    for name in (metric, metric.removeprefix("mean_"), *(["f1"] if metric == "mean_score" else [])):
        if name in known:
            return name
    raise UnknownName("score", metric, known)


def _partners(before: Result, after: Result, systems: Sequence[str] | None) -> list[tuple[str, str]]:
    ours, theirs = candidates(before), candidates(after)
    if systems:
        for name in systems:
            if name not in after.summary or name not in before.summary:
                raise UnknownName("system", name, set(after.summary) & set(before.summary))
        return [(name, name) for name in systems]
    if shared := [(name, name) for name in theirs if name in ours]:
        return shared
    if len(ours) == len(theirs) == 1:
        return [(theirs[0], ours[0])]
    raise NotComparable(
        f"the runs have no system of yours in common: {', '.join(ours)} before, {', '.join(theirs)} now (controls are "
        "compared where "
        f"they are named with --system); all arms: {', '.join(before.summary)} before, {', '.join(after.summary)} now"
    )


def _add(
    compared: EvalResult,
    before: Result,
    after: Result,
    name: str,
    earlier: str,
    field: str,
    margin: float | None,
    metrics: Sequence[Any] | None,
    seed: int,
    *,
    timed: bool = True,
) -> None:
    """Put one pair, with the arms that must lose, into `compared`."""
    from context_bench.engine.manifest import without_context
    from context_bench.engine.run_summary import OF_SCORE, summarise
    from context_bench.metrics import MeanScore

    label = EARLIER.format(name=earlier) if earlier == name else earlier
    bad, roles = _must_lose(before, after, name)
    rows = {label: _renamed(before, earlier, label), name: _of(after, name), **bad}
    roles |= {label: roles_in(before.manifest, before.summary)[earlier].as_baseline(), name: CANDIDATE}
    second = _second_answer(after, earlier) if before is after else None
    if second is not None:
        rows[second] = _of(after, second)
        roles[second] = roles_in(after.manifest, after.summary)[second]
    if _shapeless(rows[label], rows[name]):
        compared.notes.append(
            f"{name}: one of the runs does not say how its requests were shaped; rows are paired without regard to it."
        )
        rows = {system: _without_shape(found) for system, found in rows.items()}
    shared = {_key(row) for row in rows[label]} & {_key(row) for row in rows[name]}
    if not shared:
        return
    kept = {
        system: [row if timed else _untimed(row) for row in found if _key(row) in shared]
        for system, found in rows.items()
    }
    found = summarise(
        kept.__getitem__,
        list(kept),
        list(metrics) if metrics is not None else [MeanScore(score_field=field)],
        score_field=field,
        baseline=label,
        margin=margin,
        seed=seed,
        roles=roles,
        chosen_after=_chosen_after(after, field, margin),
        aside=without_context(after.manifest),
        planned=after.manifest if before is after else None,
    )
    for system in (system for system, own in kept.items() if not any(field in row.scores for row in own)):
        for of_score in OF_SCORE:  # documented metrics say 0 of what has no score
            found.summary[system].pop(of_score, None)
        found.notes.append(f"{system}: no row compared here has the score {field}, so nothing is said of it.")
    fresh = [system for system in kept if system not in compared.summary]
    compared.rows = [*compared.rows, *(row for system in fresh for row in kept[system])]
    for part in ("summary", "estimates", "wire", "failures"):
        getattr(compared, part).update(getattr(found, part))
    compared.comparisons += [one for one in found.comparisons if one.system == name]
    compared.manifest.setdefault("roles", {}).update(
        {system: own.described() for system, own in roles.items() if system in kept}
    )
    compared.notes += found.notes
    if left := max(len(rows[label]), len(rows[name])) - len(shared):
        compared.notes.append(f"{name}: {left:,} rows are in one run only; they are left out of every figure here.")


def planned_margin(result: Result, field: str) -> float | None:
    """The margin that was written down for this score before the run's first call; `None` if none was given."""
    planned = result.manifest.get("margin")
    if not isinstance(planned, Mapping) or planned.get("score_field") not in (None, field):
        return None
    return real(planned.get("value"))


def _chosen_after(result: Result, field: str, margin: float | None) -> str:
    """The parts of the question that were not written down before the run's first call: the margin, the score."""
    planned = result.manifest.get("margin")
    if not isinstance(planned, Mapping):
        return "margin" if margin is not None else ""
    other_margin = margin is not None and margin != planned.get("value")
    other_score = planned.get("score_field") not in (None, field)
    return " and ".join(name for name, other in (("margin", other_margin), ("score", other_score)) if other)


def _must_lose(before: Result, after: Result, name: str) -> tuple[dict[str, list[EvalRow]], dict[str, ArmRole]]:
    """Rows and roles of the arms that must lose beside `name`; of the later run where it has them."""
    found: dict[str, list[EvalRow]] = {}
    roles: dict[str, ArmRole] = {}
    for result in (after, before):
        for arm, own in roles_in(result.manifest, result.summary).items():
            if (
                own.role == "known_bad"
                and own.of in (None, name)
                and arm in result.summary
                and arm not in (name, *found)
            ):
                found[arm], roles[arm] = _of(result, arm), own
    return found, roles


def _of(result: Result, system: str) -> list[EvalRow]:
    return [row for row in result.rows if row.system == system]


def _renamed(result: Result, system: str, label: str) -> list[EvalRow]:
    from dataclasses import replace

    return [replace(row, system=label) for row in _of(result, system)]


def _key(row: EvalRow) -> tuple[str, str, int, str]:
    return row.dataset, repr(row.example_id), row.trial, str(row.metadata.get("shape", ""))


def _untimed(row: EvalRow) -> EvalRow:
    from dataclasses import replace

    told = (row.usage, row.wire, row.metadata)
    usage, wire, metadata = (
        {name: value for name, value in facts.items() if name not in ("ttft", "in_flight")} for facts in told
    )
    return replace(row, latency=None, usage=usage, wire=wire, metadata=metadata)


def _shapeless(ours: Sequence[EvalRow], theirs: Sequence[EvalRow]) -> bool:
    """One side names no shape at all (answers that were imported), and the other only one: then shapes cannot keep rows
    apart.
    """
    shapes = [{str(row.metadata.get("shape", "")) for row in rows} for rows in (ours, theirs)]
    return {""} in shapes and all(len(found) == 1 for found in shapes) and shapes[0] != shapes[1]


def _without_shape(rows: Sequence[EvalRow]) -> list[EvalRow]:
    from dataclasses import replace

    return [
        replace(row, metadata={name: value for name, value in row.metadata.items() if name != "shape"}) for row in rows
    ]


def _shared(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [(name, ours[name], theirs[name]) for name in ours if name in theirs]


def _contents(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {
        one["name"]: str(one["sha256"]) for one in manifest.get("datasets", []) if "name" in one and "sha256" in one
    }


def _judges(manifest: Mapping[str, Any]) -> dict[str, str]:
    listed = (manifest.get("engine") or {}).get("evaluators", [])
    return {str(one["name"]): repr(one.get("fingerprint")) for one in listed if "name" in one}


def _score_field(result: Result) -> str | None:
    found = (result.manifest.get("margin") or {}).get("score_field")
    return str(found) if found else None


def _name(result: Result) -> str:
    return str((result.manifest.get("run") or {}).get("name") or "unnamed run")


def _manifest(before: Result, after: Result, field: str, margin: float | None) -> dict[str, Any]:
    if margin is not None and not 0 < margin < 1:
        raise BadInput(f"margin is {margin}; expected a loss of score between 0 and 1, such as 0.02")
    planned = margin is not None and margin == planned_margin(after, field)
    rule = "default" if margin is None else "given before the run" if planned else "given after the runs"
    return {
        "compared": [before.manifest, after.manifest],
        **({} if before is after else {"differs": what_differs(before.manifest, after.manifest)}),
        "margin": {"value": margin, "rule": rule, "score_field": field},
        "datasets": after.manifest.get("datasets", []),
    }
