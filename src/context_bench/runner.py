"""`evaluate`: run systems over a dataset from Python. The command line uses the same pieces."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, SameName
from context_bench.core.families import Stored, StoredRow, families, families_of, row_parts
from context_bench.core.machine import quoted
from context_bench.core.protocols import Evaluator, Metric, System
from context_bench.core.records import EvalRow
from context_bench.core.roles import ArmRole, Role, declared, described_cell, roles_of_cell
from context_bench.core.rows import limit_notes, unranked
from context_bench.results import EvalResult

if TYPE_CHECKING:
    from context_bench.reports.json_document import Answered

__all__ = ["add_notes", "answered", "collect", "complete_from_rows", "detail_of", "details", "evaluate"]


def evaluate(
    systems: Sequence[System] | System,
    dataset: Iterable[dict[str, Any]],
    evaluators: Sequence[Evaluator] | Evaluator,
    metrics: Sequence[Metric] | None = None,
    max_examples: int | None = None,
    progress: bool = True,
    text_fields: Sequence[str] | str | None = None,
    max_workers: int | None = None,
    cache_dir: str | Path | None = None,
    *,
    store: str | Path | None = None,
    run: str | None = None,
    trials: int = 1,
    seed: int = 0,
    baseline: str | None = None,
    roles: Mapping[str, Role | ArmRole] | None = None,
    margin: float | None = None,
    score_field: str | None = None,
    recorder: Any = None,
    example_timeout: float | None = None,
) -> EvalResult:
    """Run every system on every example, score each answer, and say how sure the means are.

    Works in scripts, notebooks and inside a running event loop. An example or evaluator that fails becomes a row with
    `errors`; the run goes on. `dataset` is any iterable of dicts with `id` and `context`; it is read as it is needed
    (endless ones are fine with `max_examples`). `text_fields`: the fields whose tokens are compared before and after,
    default `("context",)`. `max_workers`: examples in flight. `cache_dir`: keep results there and use again what has
    the same content (`progress` says how many rows). `store` and `run`: where to keep this run and its name; the same
    name again goes on where it stopped. Without either, nothing is left on disk. `recorder`: a started `Tap`.

    The others are compared with `baseline` (default: the first system). `roles`: system → "control", "known_bad" (it
    must lose, else no verdict says that nothing was lost), "noise_floor" (the baseline once more) or "baseline"; the
    rest are candidates, whatever their names.

    Raises `SameName` if two systems share a name, `UnknownName` for a role of no system, `BadInput` for arguments that
    cannot be used; Ctrl-C raises `KeyboardInterrupt` after what was finished is stored.
    """
    from context_bench.datasets.examples import first_of
    from context_bench.engine import Arm, RunSettings
    from context_bench.engine.progress import TerminalProgress
    from context_bench.llm.background import run_sync

    many = list(systems) if isinstance(systems, Sequence) else [systems]
    judges = list(evaluators) if isinstance(evaluators, Sequence) else [evaluators]
    chosen = list(metrics or [])
    _check(many, judges, chosen)
    examples = first_of(dataset, max_examples)
    cell = described_cell({}, *declared([system.name for system in many], roles, baseline))
    settings = RunSettings(
        trials=trials,
        seed=seed,
        max_workers=max_workers,
        example_timeout=example_timeout,
        text_fields=(text_fields,) if isinstance(text_fields, str) else tuple(text_fields) if text_fields else None,
    )
    manifest = {
        "cells": [cell],
        "margin": {
            "value": margin,
            "rule": "given" if margin is not None else "min(0.02, 10 % of full − none)",
            "score_field": score_field or _score_field(chosen, judges),
        },
        "options": {"seed": seed, "trials": trials, "max_workers": max_workers},
    }
    with _place(store, cache_dir) as where:
        return run_sync(
            _evaluate(
                where,
                chosen,
                kept=store is not None or cache_dir is not None,
                name=run,
                arms=[
                    Arm(system=system, role=role)
                    for system, role in zip(many, roles_of_cell(cell).values(), strict=True)
                ],
                examples=examples,
                evaluators=judges,
                manifest=manifest,
                settings=settings,
                recorder=recorder,
                progress=TerminalProgress() if progress else None,
                reuse="all" if cache_dir is not None else "run",
            )
        )


async def _evaluate(where: str, metrics: list[Any], *, kept: bool, **run: Any) -> EvalResult:
    """Execute a run in the store at `where`, which is `kept` or not; `run`: the arguments of `engine.execute`."""
    from context_bench.engine import execute, open_store
    from context_bench.llm.redact import redact

    with closing(open_store(where)) as database:
        executed = await execute(database, **run)
        if executed.stopped is not None:
            raise executed.stopped
        if run["progress"] is not None and executed.reused_note:
            run["progress"].note(executed.reused_note)
        result = collect(database, executed.run_id, metrics)
        result.rows = list(result.rows)
        result.manifest["run"]["store"] = redact(where) if kept else None
        return result


def collect(
    store: Any, run: str, metrics: Sequence[Any], *, score_field: str | None = None, margin: float | None = None
) -> EvalResult:
    """The result of a stored run: rows read lazily, summary, estimates and comparisons computed from them by the run's
    manifest.

    `score_field`, `margin`: others than the run's own. Chosen when answers are there already, they make every verdict
    exploratory, and each one says so.
    """
    from context_bench.engine import rows, run_of
    from context_bench.engine.looks import look_notes
    from context_bench.engine.manifest import configuration
    from context_bench.engine.store.run_records import examples_planned

    record = run_of(store, run)
    manifest = record.manifest
    planned = manifest.get("margin", {})
    field = score_field or planned.get("score_field") or _score_field(metrics) or _score_there(rows(store, record.id))
    about = [(family, manifest[family.manifest_key]) for family in families_of(manifest)]
    if any(family.unscored(facts) for family, facts in about):
        field, metrics = None, [metric for metric in metrics if not hasattr(metric, "score_field")]
    result = EvalResult(
        rows=rows(store, record.id),
        summary={},
        timing=dict(record.timing),
        config=configuration(record, metrics, examples_planned(store, record.id)),
        metrics=list(metrics),
    )
    result.manifest = {**manifest, "run": record.describe(), **({"score_field": score_field} if score_field else {})}
    if field and not planned.get("score_field"):
        result.manifest["margin"] = {**planned, "score_field": field}
    result.notes = [*manifest.get("notes", []), *limit_notes(manifest), *(manifest.get("walls") or [])]
    changes = _changes(manifest, field if score_field else None, margin)
    _add_numbers(
        result, _tallied(result, lambda system: rows(store, record.id, system)), field, margin, " and ".join(changes)
    )
    _add_setups(result, store, record.id)
    result.notes += look_notes(manifest)
    if worth := _worth(manifest, field):
        result.notes.append(worth)
    for family, facts in about:
        if family.notes is not None:
            above, below = family.notes(result, facts, field)
            result.notes[:] = [*above, *result.notes, *below]
    if changes:
        told = ", ".join(f"{what} {change}" for what, change in changes.items())
        result.notes.append(f"Post hoc: {told} after answers were there; verdicts are exploratory.")
    if record.status != "done":
        part = f"This run is not finished ({record.status}): everything here is about the part that is"
        result.notes.insert(0, f"{part}; the same command with --run {quoted(record.name)} goes on.")
    _say_unmatched(result, record.counts.get("unmatched", 0))
    stored = Stored(store, record.id, lambda: answered(store, record.id))
    for family, facts in about:
        if family.complete is not None:
            family.complete(result, facts, stored)
    for family in families():
        if family.beside is not None:
            family.beside(result, stored)
    return result


def _tallied(result: EvalResult, rows_of: Callable[[str], Iterable[EvalRow]]) -> Callable[[str], Iterable[EvalRow]]:
    """`rows_of`, with the sums that a page shows made on the way, if all rows go by in their order: they need not be
    read for it again.
    """
    from context_bench.core.rows import in_pieces
    from context_bench.reports.arm_aggregates import Aggregator

    rows: Any = result.rows
    passing = [name for cell in result.manifest["cells"] for name in cell["systems"]]
    if passing != rows.systems:
        return rows_of
    aggregator = Aggregator()

    def read(system: str) -> Iterator[EvalRow]:
        for piece in in_pieces(rows_of(system)):
            aggregator.take(piece)
            yield from piece
        if system == passing[-1]:
            rows.aggregates = aggregator.result()

    return read


def _add_numbers(
    result: EvalResult,
    rows_of: Callable[[str], Iterable[EvalRow]],
    field: str | None,
    margin: float | None,
    chosen_after: str = "",
) -> None:
    """Summary, estimates, comparisons and notes of every cell of the manifest, from the rows of its systems."""
    from context_bench.engine.manifest import without_context
    from context_bench.engine.run_summary import summarise

    manifest = result.manifest
    for cell in manifest["cells"]:
        found = summarise(
            rows_of,
            cell["systems"],
            list(result.metrics),
            score_field=field,
            baseline=cell.get("baseline"),
            margin=manifest.get("margin", {}).get("value") if margin is None else margin,
            seed=manifest.get("options", {}).get("seed", 0),
            roles=roles_of_cell(cell),
            chosen_after=chosen_after,
            aside=without_context(manifest),
            uncalibrated=_uncalibrated(manifest, field),
            calibration=_calibration(manifest, field),
            unranked=unranked(manifest, cell["systems"]),
            by_cluster=any(family.by_cluster for family in families_of(manifest)),
            planned=manifest,
        )
        result.summary.update(found.summary)
        result.estimates.update(found.estimates)
        result.comparisons.extend(found.comparisons)
        result.by_type.extend(found.by_type)
        result.lifts.extend(found.lifts)
        result.wire.update(found.wire)
        result.failures.update(found.failures)
        result.notes.extend(note for note in found.notes if note not in result.notes)


def _add_setups(result: EvalResult, store: Any, run: str) -> None:
    """The set-ups of the groups: the records, their sums in the summary, and a sentence where any was done more
    than once.
    """
    from context_bench.core.rows import note
    from context_bench.engine import setups

    result.setups = setups(store, run)
    _sum_setups(result)
    if said := note(result.setups):
        result.notes.append(said)


def _sum_setups(result: EvalResult) -> None:
    from context_bench.core.rows import totals

    figures = next((family.setup_totals for family in families_of(result.manifest) if family.setup_totals), totals)
    for system, values in result.summary.items():
        values.update(figures([each for each in result.setups if each.system == system]))


def complete_from_rows(result: EvalResult, field: str | None) -> None:
    """Work out summary, estimates and comparisons anew from the `rows`, `metrics`, `setups` and `manifest`; no store is
    read.
    """
    _add_numbers(result, lambda system: (row for row in result.rows if row.system == system), field, None)
    _sum_setups(result)


def details(store: Any, run: str) -> Callable[[EvalRow], Mapping[str, Any] | None]:
    """Details of a row as a report opens them, for as long as the store is open; `None` for a row that the store does
    not have.

    Keys (what is not known is left out): `question`, `answer` (gold), `context`, `response`, `context_after` (what a
    system that gives back a context made of it): texts. `judges`: list of {evaluator, score, reason}. `exchanges`: list
    of {turn, sent, forwarded, reply, matched_by, tokens, wires, why}: bodies as they were sent, forwarded and replied,
    `None` where they are not known, which `why` explains; `turn` is `None` for what a proxy asked on its own account;
    `tokens` has `sent`, `forwarded`, `billed`. `calls`: list of {account, model, attempt, status, seconds, waited,
    ttft, sent_tokens, usage, cost, finish_reason, error, evaluator}. `parts`: list of `core.families.RowPart`, what the
    run's family shows of the row. `where`: {run, system, example_id, trial}. Reports go through rows in the store's
    order, so this reads ahead; a row asked for out of order is looked up.
    """
    from context_bench.engine import run_of
    from context_bench.engine.store.reading import stored
    from context_bench.engine.store.row_details import behind

    record = run_of(store, run)
    kept = _bodies_kept(record)
    along = stored(store, record.number)
    ready: dict[tuple[str, Any, int, str], Mapping[str, Any]] = {}

    def detail(row: EvalRow) -> Mapping[str, Any] | None:
        key = (row.system, row.example_id, row.trial, row.dataset)
        if key not in ready:
            ready.clear()
            some = list(islice(along, 32))
            for item, more in zip(some, behind(store, record.number, some, kept=kept), strict=True):
                ready[item.system, item.row.example_id, item.row.trial, item.row.dataset] = _detail(record, item, more)
        found = ready.get(key)
        return (
            found
            if found is not None
            else detail_of(store, record.id, row.system, row.example_id, row.trial, dataset=row.dataset)
        )

    return detail


def detail_of(
    store: Any, run: str, system: str, example_id: str | int, trial: int = 0, *, dataset: str | None = None
) -> Mapping[str, Any] | None:
    """The details of one row, looked up by itself; `None` if the run (id or name) has no such row. Raises
    `UnknownName`.
    """
    from context_bench.engine import run_of
    from context_bench.engine.store.reading import stored_one
    from context_bench.engine.store.row_details import behind

    record = run_of(store, run)
    item = stored_one(store, record.number, system, example_id, trial, dataset=dataset)
    return (
        None
        if item is None
        else _detail(record, item, behind(store, record.number, [item], kept=_bodies_kept(record))[0])
    )


def _bodies_kept(record: Any) -> str:
    return str(record.manifest.get("options", {}).get("bodies") or "auto")


def _detail(run: Any, item: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    example = item.example or {}
    gold = example.get("answer", example.get("answers"))
    known = {"question": example.get("question"), "answer": gold, "context": example.get("context")}
    known |= {"response": item.output.get("response"), "context_after": item.output.get("context")}
    where = {"run": run.name, "system": item.system, "example_id": item.row.example_id, "trial": item.row.trial}
    told = {name: text for name, value in known.items() if (text := _shown(value)) is not None} | dict(more)
    parts = row_parts(run.manifest, StoredRow(item.row, example, item.output, told))
    return told | ({"parts": parts} if parts else {}) | {"where": where}


def _shown(value: Any) -> str | None:
    """A field of an example as text; several right answers stand on a line each."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value) or None
    import json

    return json.dumps(value, ensure_ascii=False, indent=2, default=repr)


def answered(store: Any, run: str, system: str | None = None, *, requests: bool = False) -> Iterator[Answered]:
    """Every row of a stored run (id or name), or of one of its systems, with example and output, a few in memory at a
    time.

    With `requests`, also the body that was sent first for it, where bodies were kept.
    """
    from context_bench.engine import run_of
    from context_bench.engine.store.reading import stored
    from context_bench.engine.store.row_details import requests_of
    from context_bench.reports.json_document import Answered

    waiting = stored(store, run_of(store, run).number, system)
    while some := list(islice(waiting, 64)):
        sent = requests_of(store, [item.id for item in some]) if requests else {}
        for item in some:
            request = sent.get(item.id)
            yield Answered(item.row, item.example, item.output, request if isinstance(request, dict) else None)


def add_notes(store: Any, run: str, notes: list[str]) -> None:
    """Keep sentences with a run, so that every later report of it shows them."""
    from context_bench.engine import run_of, set_manifest

    if notes:
        set_manifest(store, run, {**run_of(store, run).manifest, "notes": notes})


def _calibration(manifest: Mapping[str, Any], field: str | None) -> Mapping[str, Any]:
    """Figures of people's labels for the score that the run is about (`context-bench judge calibrate`); empty without
    labels.
    """
    known = manifest.get("judge_calibration") or {}
    return known if field and known.get("score") == field else {}


def _uncalibrated(manifest: Mapping[str, Any], field: str | None) -> list[str] | None:
    """Nothing where a judge agrees well enough with people; else what is taken for uncalibrated anyway."""
    return [] if _calibration(manifest, field).get("label") in ("tentative", "firm") else None


def _worth(manifest: Mapping[str, Any], field: str | None) -> str | None:
    known = _calibration(manifest, field)
    if not known:
        return None
    alpha = "none that could be worked out" if known.get("alpha") is None else f"{known['alpha']:.3f}"
    if known.get("alpha_low") is not None and known.get("alpha_high") is not None:
        alpha += f", 90 % interval {known['alpha_low']:.3f} to {known['alpha_high']:.3f}"
    return (
        f"Judge: {field} is {known['label']}, by {known['n']} answers that people rated (Krippendorff's alpha {alpha})."
    )


def _changes(manifest: dict[str, Any], score_field: str | None, margin: float | None) -> dict[str, str]:
    """Margin and score, where they are not what was written down before the first call: "margin" → "default became
    0.05".
    """
    first = (manifest.get("earlier") or [manifest])[0].get("margin", {})
    given = {"value": margin, "score_field": score_field}
    now = {**manifest.get("margin", {}), **{key: value for key, value in given.items() if value is not None}}
    return {
        what: f"{first.get(key) or 'default'} became {now.get(key) or 'default'}"
        for key, what in (("value", "margin"), ("score_field", "score"))
        if first.get(key) != now.get(key)
    }


def _say_unmatched(result: EvalResult, unmatched: int) -> None:
    """Requests that nobody can be named for belong to the run; each system's line carries the run's number, since any
    could be its own.
    """
    for seen in result.wire.values():
        seen["unmatched"] = unmatched
        if unmatched and seen.get("calls_per_request") == 0:  # its requests are among those
            for name in ("calls_per_request", "extra_calls"):
                seen.pop(name, None)
    if unmatched:
        result.notes.append(
            f"{unmatched:,} request(s) reached the tap that no system could be named for; they are in no system's "
            "figures."
        )


def _score_field(metrics: Sequence[Any], evaluators: Sequence[Any] = ()) -> str | None:
    """The first metric's score, else `f1` where an evaluator gives it, else the first evaluator's first; `None` if one
    does not say.
    """
    if named := next((metric.score_field for metric in metrics if getattr(metric, "score_field", None)), None):
        return str(named)
    known = [name for evaluator in evaluators for name in getattr(evaluator, "fields", ())]
    if not known or not all(getattr(evaluator, "fields", ()) for evaluator in evaluators):
        return None
    return "f1" if "f1" in known else str(known[0])


def _score_there(found: Iterable[EvalRow]) -> str:
    """The score that a run is about where none was declared: `f1` if there is one, else the score that comes first."""
    names = dict.fromkeys(name for row in found for name in row.scores)
    return "f1" if "f1" in names or not names else next(iter(names))


def _check(systems: list[Any], evaluators: list[Any], metrics: list[Any]) -> None:
    talks = ("process", "aprocess", "process_conversation", "aprocess_conversation")
    kinds = (
        ("system", systems, talks),
        ("evaluator", evaluators, ("score", "ascore")),
        ("metric", metrics, ("compute",)),
    )
    for kind, plugins, needed in kinds:
        for plugin in plugins:
            if not hasattr(plugin, "name") or not any(hasattr(plugin, method) for method in needed):
                raise BadInput(f"{plugin!r} is not a {kind}: it needs a `name` and a method `{needed[0]}`")
            calling.check(kind, plugin)
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise SameName(
                f"two systems are called {name!r}, so their rows could not be told apart; give each its own name"
            )


@contextmanager
def _place(store: str | Path | None, cache_dir: str | Path | None) -> Iterator[str]:
    if store is not None:
        yield str(store)
    elif cache_dir is not None:
        yield str(Path(cache_dir) / "store.db")
    else:
        with tempfile.TemporaryDirectory(prefix="context-bench-") as folder:
            yield str(Path(folder) / "store.db")
