"""`judge audit` and `judge pairs` from options to what is printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, EvaluatorFailed, GateFailed
from context_bench.core.measures import percent
from context_bench.core.roles import roles_in
from context_bench.judge.calibration import family_of, same_family, self_preference
from context_bench.judge.judge_replies import MarkRates, mark_rates
from context_bench.judge.pairwise_judge import PairVerdict, PairwiseSummary, pairwise_summary
from context_bench.llm.redact import key_in
from context_bench.reports.visible_text import visible
from context_bench.session import interrupts
from context_bench.session.judged import (
    JudgedOutput,
    Loaded,
    asked_by,
    families_of,
    judge_of,
    loaded,
    methods_of,
    models_of,
    sample,
    under_limits,
)
from context_bench.session.output_files import say

if TYPE_CHECKING:
    from context_bench.judge.audit import Audit, AuditItem
    from context_bench.judge.base import JudgeStats
    from context_bench.judge.pairwise_judge import PairwiseJudge
    from context_bench.judge.rubric_judge import RubricJudge
    from context_bench.session.options import RunOptions

PARTS = ("marks", "attacks", "repeats", "order", "leak", "views", "drift")
Asked = tuple[str | None, str | None, str]  # URL and model of the judge, variable with its key


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of `judge audit`."""

    items: int
    parts: Sequence[str]
    replicates: int
    describe: Sequence[str]
    seed: int
    workers: int
    cache_only: bool
    out: Path | None


# --- audit
# ------------------------------------------------------------------------


def run_audit(run: str, store: str, asked: Asked, options: AuditOptions, limits: RunOptions) -> int:
    """Audit the judge of a run; raises `GateFailed` if it must not judge."""
    from context_bench.engine import set_manifest
    from context_bench.judge.audit import Audit

    if unknown := sorted(set(options.parts) - set(PARTS)):
        raise BadInput(f"--only {unknown[0]!r} is no part of an audit; expected some of {', '.join(PARTS)}")
    methods = _described(options.describe)
    with loaded(store, run) as found:
        rates = mark_rates(
            {name: [str(one.item.output.get("context") or "") for one in found.of(name)] for name in found.systems}
        )
        _print_outputs(found, rates)
        audit = Audit()
        findings: dict[str, Any] = {
            "run": found.record.id,
            "outputs": _counts(found),
            "marks": {n: asdict(r) for n, r in rates.items()},
        }
        if set(options.parts) - {"marks"}:
            judge = judge_of(found.record, *asked, limits=limits, cache=_memory(found), cache_only=options.cache_only)
            preference = _own_kin(found, judge.model)
            chosen = [one.item for one in sample(found.outputs, options.items, options.seed)]
            with under_limits(limits):
                pairs = _pair_judge(found, judge, asked, options, limits)
                described = methods_of(found.systems, methods, roles_in(found.record.manifest, found.systems))
                interrupts.run(_carry_out(judge, pairs, chosen, described, options, audit))
            calls = judge.stats.plus(pairs.stats)
            _print_audit(judge.model, calls, audit, options)
            findings |= {
                "judge": judge.fingerprint(),
                "calls": calls.as_dict(),
                **audit.as_dict(),
                "faults": audit.faults,
            }
            findings |= {"self_preference": preference}
            set_manifest(found.store, found.record.id, {**found.record.manifest, "judge_audit": _kept(found, findings)})
        if options.out is not None:
            options.out.write_text(json.dumps(findings, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if audit.faults:
        raise GateFailed("this judge must not judge:\n" + "\n".join(f"  - {fault}" for fault in audit.faults))
    return 0


def _pair_judge(
    found: Loaded, judge: RubricJudge, asked: Asked, options: AuditOptions, limits: RunOptions
) -> PairwiseJudge:
    """The same model, asked about pairs."""
    from context_bench.judge.pairwise_judge import PairwiseJudge

    how = {
        "seed": options.seed,
        "cache": _memory(found),
        "cache_only": options.cache_only,
        **asked_by(limits, judge.base_url),
    }
    return PairwiseJudge(judge.base_url, judge.model, key_in(asked[2]), **how)


async def _carry_out(
    judge: RubricJudge,
    pairs: PairwiseJudge,
    items: Sequence[AuditItem],
    methods: dict[str, str],
    options: AuditOptions,
    audit: Audit,
) -> None:
    from context_bench.judge import audit as parts

    if not options.cache_only:
        await judge.preflight()
    try:
        if "attacks" in options.parts:
            audit.lifts = await parts.attack_lifts(judge, items, audit, options.workers)
        if "repeats" in options.parts:
            audit.repeats = await parts.repeats_of(judge, items, audit, options.replicates, options.workers)
        if "order" in options.parts:
            audit.order = await parts.order_of(pairs, items, audit, options.workers)
        if "leak" in options.parts:
            audit.leak = await parts.leak_of(judge, items, methods, options.seed, audit, options.workers)
        if "views" in options.parts:
            audit.views = await parts.views_of(judge, items, audit, options.workers)
        if "drift" in options.parts:
            audit.drift = await parts.drift_of(judge, judge.cache, audit, options.workers)
    finally:
        await judge.aclose()
        await pairs.aclose()


def _kept(found: Loaded, told: dict[str, Any]) -> dict[str, Any]:
    """The audit as the run's report shows it: its parts, and those of an earlier audit of the same judge."""
    before = found.record.manifest.get("judge_audit") or {}
    known = before if before.get("judge") == told["judge"] else {}
    now = {
        name: told[name]
        for name in ("lifts", "length", "leak", "repeats", "order", "drift", "views", "judge")
        if told[name] not in (None, [], {})
    }
    return {**known, **now, **({"faults": told["faults"]} if told["lifts"] or told["drift"] or told["repeats"] else {})}


def _own_kin(found: Loaded, model: str) -> float | None:
    """Say where the judge judges models of its own family, and how much better they do with it than others on the same
    questions.
    """
    for warning in same_family(model, models_of(found.record.manifest)):
        print(f"  note: {visible(warning, 2_000)}")
    families, mine = families_of(found.record.manifest), family_of(model)
    scores: dict[str, dict[str, list[float]]] = {}
    for each in found.outputs:
        if each.score is not None and each.item.system in families:
            scores.setdefault(families[each.item.system], {}).setdefault(each.example_id, []).append(each.score)
    means = {family: {item: fmean(values) for item, values in items.items()} for family, items in scores.items()}
    preference = self_preference(means, mine) if mine else None
    if preference is not None:
        print(
            f"  note: on shared questions it scores its own family ({visible(mine)}) {preference:+.2f} against the "
            "others"
        )
    return preference


def _described(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not text.strip():
            raise BadInput(f"--describe {each!r}: expected SYSTEM=TEXT, such as mine='keeps one line of each message'")
        found[name.strip()] = text.strip()
    return found


def _memory(found: Loaded) -> Any:
    from context_bench.engine import StoredReplies
    from context_bench.engine.encoding import secrets_of

    return StoredReplies(found.store, secrets_of([]))


def _counts(found: Loaded) -> dict[str, dict[str, Any]]:
    """By system: outputs, judged, failed, mean of what was judged, and the mean if what failed were 0."""
    told = {}
    for name in found.systems:
        outputs = found.of(name)
        scores = [each.score for each in outputs if each.score is not None]
        failed = sum(each.failed for each in outputs)
        told[name] = {
            "outputs": len(outputs),
            "judged": len(scores),
            "failed": failed,
            "mean": sum(scores) / len(scores) if scores else None,
            "mean_failed_as_0": sum(scores) / (len(scores) + failed) if scores or failed else None,
        }
    return told


def _print_outputs(found: Loaded, rates: dict[str, MarkRates]) -> None:
    print(f"{'system':<26}{'judged':>8}{'failed':>8}{'mean':>8}{'marked':>8}  marks of a method")
    for name, told in _counts(found).items():
        mean, rate = told["mean"], rates[name]
        kinds = ", ".join(
            f"{kind} {percent(share)}" for kind, share in sorted(rate.kinds.items(), key=lambda one: -one[1])[:1]
        )
        shown = "-" if mean is None else f"{mean:.2f}"
        print(
            f"{visible(name)[:25]:<26}{told['judged']:>8}{told['failed']:>8}{shown:>8}{percent(rate.any):>8}  "
            f"{kinds}".rstrip()
        )


def _print_audit(model: str, calls: JudgeStats, audit: Audit, options: AuditOptions) -> None:
    from context_bench.judge.audit import share_of

    asked = f"{calls.calls} calls, {calls.cache_hits} replies from memory"
    print(f"\njudge {visible(model)}: {asked}, {audit.failed} items failed")
    if audit.lifts:
        print(f"\n  {'attack':<16}{'gains (of 5)':>12}{'largest':>9}{'items':>6}  succeeds (95 %)")
        for lift in audit.lifts:
            share = str(lift.share) if lift.room else "no room"
            row = f"  {lift.attack:<16}{lift.mean:>+12.2f}{lift.largest:>+9.2f}{lift.n:>6}  {share:<19}"
            print((row + ("" if lift.held else " too much")).rstrip())
    if audit.length is not None:
        print(f"  100 more characters of the same words: {audit.length:+.2f} of 5")
    for count, what in ((audit.unjudged, "could not be read"), (audit.partial, "lack criteria")):
        if count:
            print(f"  judgements that {what}: {share_of(count, audit.judgements)} of {audit.judgements}")
    if audit.repeats is not None:
        same = audit.repeats
        alpha = "-" if same.alpha is None else f"{same.alpha:.3f}"
        print(
            f"\n  with itself, {same.replicates} times {same.n} items: alpha {alpha}, SD {same.spread:.3f}, alike "
            f"{percent(same.alike)}"
        )
    if audit.order is not None:
        pairs = audit.order
        print(f"  order decides {pairs.share} of {pairs.n} equal pairs: first {pairs.first}, second {pairs.second}")
    if audit.leak is not None and audit.leak.leak is not None:
        told = audit.leak
        print(
            f"  leak {told.leak:+.2f} (0 blind, 1 knows): {percent(told.accuracy)} of {told.n} items placed among "
            f"{told.choices} methods"
        )
    elif "leak" in options.parts:
        print("  leak: not asked; it takes two systems whose methods are described")
        print("  (--describe SYSTEM=TEXT)")
    if audit.views:
        print("  mean by what it sees: " + ", ".join(f"{name} {value:.2f}" for name, value in audit.views.items()))
    if audit.drift is not None:
        known = audit.drift
        moved = "first asked now" if known.shift is None else f"{known.shift:+.2f} since it was first asked"
        print(f"  {known.n} known items: mean {known.mean:.2f}, {moved}")


# --- pairs
# ------------------------------------------------------------------------


def run_pairs(
    run: str,
    store: str,
    asked: Asked,
    names: tuple[str, str],
    items: int | None,
    seed: int,
    limits: RunOptions,
    cache_only: bool,
    out: Path | None,
) -> int:
    """Ask which of two systems answered better, and print how often it is the first."""
    from context_bench.judge.pairwise_judge import PairwiseJudge, check_pair

    with loaded(store, run) as found:
        check_pair(found.systems, names)
        theirs = {(each.example_id, each.trial): each for each in found.of(names[1])}
        shared = [each for each in found.of(names[0]) if (each.example_id, each.trial) in theirs]
        chosen = sample(shared, items or len(shared), seed)
        graded = judge_of(found.record, *asked)
        how = {"seed": seed, "cache": _memory(found), "cache_only": cache_only, **asked_by(limits, graded.base_url)}
        judge = PairwiseJudge(graded.base_url, graded.model, key_in(asked[2]), **how)
        pairs = [(one, theirs[one.example_id, one.trial]) for one in chosen]
        with under_limits(limits):
            verdicts, failed = interrupts.run(
                _compared(judge, pairs, limits.max_workers or 1, preflight=not cache_only)
            )
        told = [
            (verdict, one.cluster) for (one, _), verdict in zip(pairs, verdicts, strict=True) if verdict is not None
        ]
        summary = pairwise_summary([verdict for verdict, _ in told], [cluster for _, cluster in told])
        if summary is None:
            raise EvaluatorFailed(
                f"the judge {judge.model} said of none of {len(pairs)} pairs which is better ({failed} failed)"
            )
        _print_pairs(summary, names, failed)
        if out is not None:
            written = {
                "system": names[0],
                "baseline": names[1],
                **asdict(summary),
                "failed": failed,
                "judge": judge.fingerprint(),
            }
            out.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


async def _compared(
    judge: PairwiseJudge, pairs: Sequence[tuple[JudgedOutput, JudgedOutput]], workers: int, *, preflight: bool
) -> tuple[list[PairVerdict | None], int]:
    gate = asyncio.Semaphore(workers)

    async def one(mine: JudgedOutput, other: JudgedOutput) -> PairVerdict | None:
        async with gate:
            return await _or_none(lambda: judge.acompare(mine.item.example, mine.item.output, other.item.output))

    try:
        if preflight:
            await judge.preflight()
        found = await asyncio.gather(*(one(mine, other) for mine, other in pairs))
    finally:
        await judge.aclose()
    return list(found), sum(verdict is None for verdict in found)


async def _or_none(ask: Callable[[], Awaitable[PairVerdict]]) -> PairVerdict | None:
    try:
        return await ask()
    except EvaluatorFailed:
        return None


def _print_pairs(found: PairwiseSummary, names: tuple[str, str], failed: int) -> None:
    interval, bias = "no interval below 6 sessions", f"{'+' if found.first_bias > 0 else ''}{percent(found.first_bias)}"
    if found.low is not None and found.high is not None:
        interval = f"95 % interval {percent(found.low)} to {percent(found.high)}"
    print(
        f"{visible(names[0])} wins {percent(found.win_rate)} against {visible(names[1])} ({found.n} pairs; {interval})"
    )
    print(f"  both orders agree {percent(found.consistency)}, first favoured by {bias}, {failed} pairs failed")
    if found.consistency < 0.65:
        say("the order decides too often for this judge to compare pairs")
