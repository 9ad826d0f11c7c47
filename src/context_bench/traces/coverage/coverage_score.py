"""Score one run against one gold, and follow it through its steps.

A curve holds coverage after each step, the area below it, repeated reads, and the step at which gold came first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from context_bench.core.ledger import Ranges, common, size
from context_bench.traces.coverage.covers import Cover, Surveyor, UpstreamSurveyor, total
from context_bench.traces.coverage.selection import (
    LEVELS,
    STRICT,
    Level,
    Policy,
    RepositoryFiles,
    Score,
    Selection,
    Symbol,
)
from context_bench.traces.edits import edit_location, upstream_edit_location
from context_bench.traces.gold import Gold

Figures = dict[str, float | None]  # by level


class StepReading:
    """Everything read so far, and how much reading that took."""

    def __init__(self) -> None:
        self.union = Cover()
        self._amounts = [0] * len(LEVELS)

    def add(self, cover: Cover) -> None:
        self.union.add(cover)
        self._amounts = [amount + more for amount, more in zip(self._amounts, cover.sizes(), strict=True)]

    def redundancy(self, policy: Policy) -> Figures:
        rows = zip(LEVELS, self.union.sizes(), self._amounts, strict=True)
        return {name: 1.0 - kept / amount if amount > 0 else policy.waste_of_nothing for name, kept, amount in rows}


class Curve:
    """Coverage after each step, kept up to date by what the step changed."""

    def __init__(self, wanted: Cover, policy: Policy) -> None:
        self.reading = StepReading()
        self._wanted, self._policy = wanted, policy
        self._wanted_sizes = dict(zip(LEVELS, wanted.sizes(), strict=True))
        self._sums = dict.fromkeys(LEVELS, 0.0)
        self._steps = 0
        self._files, self._symbols = set[str](), set[Symbol]()
        self._span_hits: dict[str, int] = {}
        self._line_hits: dict[str, int] = {}

    def after(self, cover: Cover) -> Figures:
        """Coverage once this step is done."""
        self.reading.add(cover)
        self._steps += 1
        now, wanted = self.reading.union, self._wanted
        self._files |= cover.files & wanted.files
        self._symbols |= cover.symbols & wanted.symbols
        _count_again(self._span_hits, cover.spans, now.spans, wanted.spans)
        _count_again(self._line_hits, cover.lines, now.lines, wanted.lines)
        found = (
            len(self._files),
            len(self._symbols),
            sum(self._span_hits.values()),
            sum(self._line_hits.values()),
        )
        out = {name: self._coverage(name, hits) for name, hits in zip(LEVELS, found, strict=True)}
        for name, value in out.items():
            self._sums[name] += value or 0.0
        return out

    def auc(self) -> Figures:
        """The mean of the coverage after each step; 0 without steps."""
        return {
            name: self._sums[name] / max(self._steps, 1) if self._policy.upstream or self._wanted_sizes[name] else None
            for name in LEVELS
        }

    def _coverage(self, name: str, found: int) -> float | None:
        if self._wanted_sizes[name] > 0:
            return found / self._wanted_sizes[name]
        # without gold lines the original's curve stays at the bottom, while its other figures are 1
        return (
            0.0
            if self._policy.upstream and name == "line" and not self._wanted.lines
            else self._policy.share_of_nothing
        )


def _count_again(
    hits: dict[str, int], changed: Mapping[str, Ranges], read: Mapping[str, Ranges], wanted: Mapping[str, Ranges]
) -> None:
    """Count what is read of gold anew in the files that changed."""
    for path in changed:
        if path in wanted:
            hits[path] = size(common(read[path], wanted[path]))


def redundancy_after_edits(
    covers: Sequence[Cover], steps: Sequence[Selection], surveyor: Surveyor, policy: Policy
) -> Figures:
    """Redundancy where reading a file again after it was edited is no waste: what was read of it is forgotten at the
    edit.
    """
    reading = StepReading()
    for cover in _by_version(covers, steps, surveyor):
        reading.add(cover)
    return reading.redundancy(policy)


def _by_version(covers: Sequence[Cover], steps: Sequence[Selection], surveyor: Surveyor) -> Iterator[Cover]:
    """The covers with every file under another name after each edit."""
    edits: Counter[str] = Counter()

    def named(path: str) -> str:
        return f"{edits[path]}\0{path}"

    for cover, step in zip(covers, steps, strict=True):
        edits.update(found for path in step.edited if (found := surveyor.resolver.resolve(path)))
        yield Cover(
            {named(path) for path in cover.files},
            {(named(path), kind, start, end) for path, kind, start, end in cover.symbols},
            {named(path): ranges for path, ranges in cover.spans.items()},
            {named(path): ranges for path, ranges in cover.lines.items()},
        )


def auc_over(
    places: Sequence[float | int | None],
    curve: Sequence[Mapping[str, float | None]],
    start: float | None,
    end: float | None,
) -> Figures | None:
    """The mean coverage over the run, each step's counting from its place until the next; `None` where the places are
    not known.
    """
    known = [place for place in places if place is not None]
    if not known or len(known) != len(places) or known != sorted(known):
        return None
    first = known[0] if start is None else min(start, known[0])
    last = known[-1] if end is None else max(end, known[-1])
    if last <= first:
        return None
    out: Figures = {}
    for name in LEVELS:
        values = [step[name] for step in curve]
        if any(value is None for value in values):
            out[name] = None
            continue
        area = sum(
            (value or 0.0) * (after - place)
            for value, place, after in zip(values, known, [*known[1:], last], strict=True)
        )
        out[name] = area / (last - first)
    return out


def first_gold(covers: Sequence[Cover], steps: Sequence[Selection], wanted: Cover, started: float | None) -> Figures:
    """Step, tokens and seconds at which the first file of gold was read."""
    for number, (cover, step) in enumerate(zip(covers, steps, strict=True), 1):
        if cover.files & wanted.files:
            start = started if started is not None else steps[0].t
            return {
                "step": number,
                "tokens": step.tokens,
                "seconds": None if step.t is None or start is None else step.t - start,
            }
    return {"step": None, "tokens": None, "seconds": None}


def score(
    gold: Gold,
    steps: Sequence[Selection],
    files: RepositoryFiles,
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

    `final` is the context the agent named itself; without one it is the union of the steps, and there is no usage drop.
    `cwd`: the folder the agent worked in, taken off absolute paths. `started`, `ended`, `tokens`: the ends of the run,
    for curves over time and tokens. `longest`: a read of more lines in one piece counts as a read of the file and of
    none of its lines (policy `strict` only).
    """
    if longest is not None and longest < 1:
        raise ValueError(f"longest is {longest}, expected a number of lines above 0")
    surveyor = (UpstreamSurveyor if policy.upstream else Surveyor)(
        files, policy, cwd, None if policy.upstream else longest
    )
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
        _by_turn(out, covers, steps, curve, wanted, policy)
    out.auc = curve.auc()
    out.auc_tokens = auc_over([step.tokens for step in steps], out.steps, 0, tokens)
    out.auc_seconds = auc_over([step.t for step in steps], out.steps, started, ended)
    out.redundancy = curve.reading.redundancy(policy)
    edited = any(step.edited for step in steps)
    out.redundancy_excluding_after_edit = (
        redundancy_after_edits(covers, steps, surveyor, policy) if edited else dict(out.redundancy)
    )
    amounts = [amount for cover in covers if (amount := total(cover.lines)) > 0]
    out.lines_per_step = sum(amounts) / len(amounts) if amounts else None
    out.first_gold = first_gold(covers, steps, wanted, started)
    if last is not None and covers:
        out.usage_drop = {
            "seen": _drop(wanted, seen, last, policy),
            "last_step": _drop(wanted, covers[-1], last, policy),
        }
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


def _by_turn(
    out: Score, covers: Sequence[Cover], steps: Sequence[Selection], curve: Curve, wanted: Cover, policy: Policy
) -> None:
    """The curve with all calls of one reply of the model as one step; nothing where the log tells no replies. `curve`:
    that of the calls, which is the same where each reply made one.
    """
    if not any(step.turn is not None for step in steps):
        return
    turns: dict[tuple[bool, int], list[Cover]] = {}
    for number, (cover, step) in enumerate(zip(covers, steps, strict=True)):
        turns.setdefault((False, number) if step.turn is None else (True, step.turn), []).append(cover)
    if len(turns) < len(steps):
        curve = Curve(wanted, policy)
        for made in turns.values():
            turn = Cover()
            for cover in made:
                turn.add(cover)
            curve.after(turn)
    out.num_turns, out.auc_turns, out.redundancy_turns = len(turns), curve.auc(), curve.reading.redundancy(policy)


def _drop(wanted: Cover, seen: Cover, final: Cover, policy: Policy) -> Figures:
    """Of the gold seen, the share that is not in the final context; `None` where no gold was seen (the original: 1)."""
    held = wanted.common(seen)
    rows = zip(LEVELS, held.common(final).sizes(), held.sizes(), strict=True)
    return {name: 1.0 - kept / amount if amount > 0 else policy.share_of_nothing for name, kept, amount in rows}


def _locate_edits(
    out: Score, patch: str | None, init: dict[str, Ranges], gold: Gold, policy: Policy, dilate: int
) -> None:
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
    for figures in (
        out.auc,
        out.redundancy,
        out.redundancy_excluding_after_edit,
        *out.steps,
        *(out.usage_drop or {}).values(),
    ):
        figures["symbol"] = None
    for over in (out.auc_tokens, out.auc_seconds, out.auc_turns, out.redundancy_turns):
        if over:
            over["symbol"] = None
