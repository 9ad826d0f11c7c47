"""A run in its course: coverage after each step, the area below it, what was read again, and when gold came first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from context_bench.core.spans import Ranges, common, size
from context_bench.traces.coverage.covers import Cover, Surveyor
from context_bench.traces.coverage.figures import LEVELS, Symbol
from context_bench.traces.coverage.policies import Policy
from context_bench.traces.coverage.selecting import Selection

Figures = dict[str, float | None]  # by level


class Reading:
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
        self.reading = Reading()
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
            name: self._sums[name] / max(self._steps, 1) if self._policy.upstream or self._wanted_sizes[name] else None for name in LEVELS
        }

    def _coverage(self, name: str, found: int) -> float | None:
        if self._wanted_sizes[name] > 0:
            return found / self._wanted_sizes[name]
        # without gold lines the original's curve stays at the bottom, while its other figures are 1
        return 0.0 if self._policy.upstream and name == "line" and not self._wanted.lines else self._policy.share_of_nothing


def _count_again(hits: dict[str, int], changed: Mapping[str, Ranges], read: Mapping[str, Ranges], wanted: Mapping[str, Ranges]) -> None:
    """Count what is read of gold anew in the files that changed."""
    for path in changed:
        if path in wanted:
            hits[path] = size(common(read[path], wanted[path]))


def redundancy_after_edits(covers: Sequence[Cover], steps: Sequence[Selection], surveyor: Surveyor, policy: Policy) -> Figures:
    """Redundancy where reading a file again after it was edited is no waste: what was read of it is forgotten at the edit."""
    reading = Reading()
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
    places: Sequence[float | int | None], curve: Sequence[Mapping[str, float | None]], start: float | None, end: float | None
) -> Figures | None:
    """The mean coverage over the run, each step's counting from its place until the next; `None` where the places are not known."""
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
        area = sum((value or 0.0) * (after - place) for value, place, after in zip(values, known, [*known[1:], last], strict=True))
        out[name] = area / (last - first)
    return out


def first_gold(covers: Sequence[Cover], steps: Sequence[Selection], wanted: Cover, started: float | None) -> Figures:
    """Step, tokens and seconds at which the first file of gold was read."""
    for number, (cover, step) in enumerate(zip(covers, steps, strict=True), 1):
        if cover.files & wanted.files:
            start = started if started is not None else steps[0].t
            return {"step": number, "tokens": step.tokens, "seconds": None if step.t is None or start is None else step.t - start}
    return {"step": None, "tokens": None, "seconds": None}
