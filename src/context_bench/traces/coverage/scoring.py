"""One run against one gold."""

from __future__ import annotations

from collections.abc import Sequence

from context_bench.core.spans import Ranges
from context_bench.traces.coverage.covers import Cover, Surveyor, total
from context_bench.traces.coverage.curves import Curve, Figures, auc_over, first_gold, redundancy_after_edits
from context_bench.traces.coverage.figures import LEVELS, Level, Score
from context_bench.traces.coverage.policies import STRICT, Policy
from context_bench.traces.coverage.repository import Files
from context_bench.traces.coverage.selecting import Selection
from context_bench.traces.coverage.upstream import UpstreamSurveyor
from context_bench.traces.editloc import edit_location, upstream_edit_location
from context_bench.traces.gold import Gold


def score(
    gold: Gold,
    steps: Sequence[Selection],
    files: Files,
    *,
    final: Selection | None = None,
    patch: str | None = None,
    policy: Policy = STRICT,
    cwd: str | None = None,
    started: float | None = None,
    ended: float | None = None,
    tokens: int | None = None,
    dilate: int = 0,
    longest: int | None = None,
) -> Score:
    """One run against one gold.

    `final` is the context the agent named itself; without one it is the union of the steps, and there is no usage drop. `cwd`: the folder
    the agent worked in, taken off absolute paths. `started`, `ended`, `tokens`: the ends of the run, for curves over time and tokens.
    `longest`: a read of more lines in one piece counts as a read of the file and of none of its lines (policy `strict` only).
    """
    if longest is not None and longest < 1:
        raise ValueError(f"longest is {longest}, expected a number of lines above 0")
    surveyor = (UpstreamSurveyor if policy.upstream else Surveyor)(files, policy, cwd, None if policy.upstream else longest)
    out = Score(gold.instance_id, policy.name, num_steps=len(steps), gold_missing_files=surveyor.missing(gold.items))
    covers = [surveyor.cover(step) for step in steps]
    last = surveyor.cover(final) if final is not None else None
    if policy.upstream and not any(cover.files or cover.spans_named for cover in (covers if last is None else [last])):
        out.error = "no_context_extracted"
        return out
    wanted = surveyor.gold(gold.items)
    init = surveyor.gold_lines(gold.init)
    if policy.upstream:
        wanted.lines = init
    curve = Curve(wanted, policy)
    out.steps = [curve.after(cover) for cover in covers]
    seen = curve.reading.union
    read = last if last is not None else seen
    out.final = _levels(wanted, read, policy)
    if not policy.upstream:
        regions = {"init": gold.init, "add": gold.add}
        out.regions = {name: _levels(surveyor.gold(items), read, policy) for name, items in regions.items() if items}
        out.nonblank = _nonblank(surveyor, wanted, read, policy)
        _by_turn(out, covers, steps, wanted, policy)
    out.auc = curve.auc()
    out.auc_tokens = auc_over([step.tokens for step in steps], out.steps, 0, tokens)
    out.auc_seconds = auc_over([step.t for step in steps], out.steps, started, ended)
    out.redundancy = curve.reading.redundancy(policy)
    edited = any(step.edited for step in steps)
    out.redundancy_excluding_after_edit = redundancy_after_edits(covers, steps, surveyor, policy) if edited else dict(out.redundancy)
    amounts = [amount for cover in covers if (amount := total(cover.lines)) > 0]
    out.lines_per_step = sum(amounts) / len(amounts) if amounts else None
    out.first_gold = first_gold(covers, steps, wanted, started)
    if last is not None and covers:
        out.usage_drop = {"seen": _drop(wanted, seen, last, policy), "last_step": _drop(wanted, covers[-1], last, policy)}
    _locate_edits(out, patch, init, gold, policy, dilate)
    out.gold_symbols, out.pred_symbols = sorted(wanted.symbols), sorted(read.symbols)
    out.unresolved = surveyor.unresolved
    if surveyor.too_long:
        out.notes.append(f"reads of more than {longest} lines, counted as reads of the file alone: {surveyor.too_long}")
    if surveyor.blind:
        out.notes.append("symbols: no grammars installed (extra `traces`)")
        _blank_symbols(out)
    return out


def _levels(wanted: Cover, read: Cover, policy: Policy) -> dict[str, Level]:
    nothing = policy.share_of_nothing
    rows = zip(LEVELS, wanted.common(read).sizes(), wanted.sizes(), read.sizes(), strict=True)
    return {
        name: Level(hits / gold if gold > 0 else nothing, hits / pred if pred > 0 else nothing, hits, gold, pred)
        for name, hits, gold, pred in rows
    }


def _nonblank(surveyor: Surveyor, wanted: Cover, read: Cover, policy: Policy) -> Level:
    """The level of lines without blank ones, which nobody has to read."""
    gold, seen = (Cover(lines=surveyor.nonblank(cover)) for cover in (wanted, read))
    return _levels(gold, seen, policy)["line"]


def _by_turn(out: Score, covers: Sequence[Cover], steps: Sequence[Selection], wanted: Cover, policy: Policy) -> None:
    """The curve with all calls of one reply of the model as one step; nothing where the log tells no replies."""
    if not any(step.turn is not None for step in steps):
        return
    turns: dict[tuple[bool, int], Cover] = {}
    for number, (cover, step) in enumerate(zip(covers, steps, strict=True)):
        key = (False, number) if step.turn is None else (True, step.turn)
        turns.setdefault(key, Cover()).add(cover)
    curve = Curve(wanted, policy)
    for cover in turns.values():
        curve.after(cover)
    out.num_turns, out.auc_turns, out.redundancy_turns = len(turns), curve.auc(), curve.reading.redundancy(policy)


def _drop(wanted: Cover, seen: Cover, final: Cover, policy: Policy) -> Figures:
    """Of the gold seen, the share that is not in the final context; `None` where no gold was seen (the original: 1)."""
    held = wanted.common(seen)
    rows = zip(LEVELS, held.common(final).sizes(), held.sizes(), strict=True)
    return {name: 1.0 - kept / amount if amount > 0 else policy.share_of_nothing for name, kept, amount in rows}


def _locate_edits(out: Score, patch: str | None, init: dict[str, Ranges], gold: Gold, policy: Policy, dilate: int) -> None:
    if policy.upstream:
        out.editloc = upstream_edit_location(patch, init, gold.patch)
        return
    out.editloc = edit_location(patch, init, gold_patch=gold.patch, dilate=dilate)
    if out.editloc is None:
        out.notes.append("no_patch")
    elif not out.editloc["edited_files"]:
        out.notes.append("patch_unreadable")


def _blank_symbols(out: Score) -> None:
    """Without grammars nothing is known about symbols: neither 0 nor 1 would be true."""
    unknown = Level(None, None, 0, 0, 0)
    for levels in (out.final, *out.regions.values()):
        levels["symbol"] = unknown
    for figures in (out.auc, out.redundancy, out.redundancy_excluding_after_edit, *out.steps, *(out.usage_drop or {}).values()):
        figures["symbol"] = None
    for over in (out.auc_tokens, out.auc_seconds, out.auc_turns, out.redundancy_turns):
        if over:
            over["symbol"] = None
