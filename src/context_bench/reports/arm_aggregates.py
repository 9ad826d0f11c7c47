"""The sums that pages show of a run's rows and that no metric computes. Memory does not grow with what rows carry.

One pass over the rows of a run makes the sums.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from context_bench.core.numbers import MOST, number
from context_bench.core.records import EvalRow
from context_bench.core.rows import COST, in_pieces, ordered
from context_bench.stats.distributions import percentile

#: A line of a table: a system under one request shape (`None` where shapes play no part). Shapes are never averaged
#: together.
Line = tuple[str, str | None]


@dataclass(slots=True)
class Mean:
    """A running sum with its n."""

    total: float = 0.0
    n: int = 0

    def take(self, values: Iterable[float | None]) -> None:
        """Add what is there of the values, in their order."""
        total, n = self.total, self.n
        for value in values:
            if value is not None:
                total += value
                n += 1
        self.total, self.n = total, n

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None


@dataclass(slots=True)
class AmountsByExample:
    """An amount of each example, so that sums are held against those of the same examples: 16 bytes each."""

    examples: array[int] = field(default_factory=lambda: array("q"))  # a hash of each, of this process
    amounts: array[float] = field(default_factory=lambda: array("d"))

    def take(self, rows: Sequence[EvalRow], amounts: Sequence[float | None]) -> None:
        """Take in the rows whose amount is known."""
        known = [(row, amount) for row, amount in zip(rows, amounts, strict=True) if amount is not None]
        self.examples.extend([hash((row.dataset, row.example_id, row.trial)) for row, _ in known])
        self.amounts.extend([amount for _, amount in known])

    def saved_against(self, other: AmountsByExample) -> float | None:
        """1 − this sum / the other one over the examples that both have; `None` where these are fewer than half of
        one side's.
        """
        if not self.examples or not other.examples:
            return None
        import numpy as np

        mine, theirs = (np.frombuffer(each.examples, dtype=np.int64) for each in (self, other))
        _, here, there = np.intersect1d(mine, theirs, return_indices=True)
        if not len(here) or 2 * len(here) < max(len(mine), len(theirs)):
            return None
        own = math.fsum(map(self.amounts.__getitem__, here.tolist()))
        base = math.fsum(map(other.amounts.__getitem__, there.tolist()))
        return 1 - own / base if base else None


#: Keys of `EvalRow.wire` that add up, in the order of reports.
_SUMMED = (
    *("sent", "forwarded", "billed", "calls", "client_calls", "extra_calls", "other_calls"),
    *("role_changes", "param_changes", "text_changed", "truncated", "uncounted_parts", "late"),
)
_MOST_CHANGES = 200  # different ones that are kept by name


@dataclass(slots=True)
class WireSums:
    """Sums of what the tap saw over the rows of one line (keys of `EvalRow.wire`)."""

    sums: dict[str, float] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    authorized: list[int] = field(default_factory=lambda: [0, 0])  # not passed on, passed on

    def add(self, wire: Mapping[str, Any]) -> None:
        """Take one row's facts in."""
        for name, told in wire.items():
            if name in _SUMMED and (value := number(told)) is not None:
                self.sums[name] = self.sums.get(name, 0) + value
        if isinstance(passed := wire.get("authorization_forwarded"), bool):
            self.authorized[passed] += 1
        for change in wire.get("changes") or ():
            if isinstance(change, Mapping):
                name = f"{change.get('kind')}: {change.get('detail')}"
                if name in self.changes or len(self.changes) < _MOST_CHANGES:
                    self.changes[name] += 1

    def facts(self) -> dict[str, Any]:
        """The sums under the names of the JSON report; what nobody told is absent."""
        found: dict[str, Any] = {name: self.sums[name] for name in _SUMMED if name in self.sums}
        if found.get("client_calls") and "calls" in found:
            found["calls_per_request"] = found["calls"] / found["client_calls"]
        if any(self.authorized):
            found["authorization_forwarded"] = not self.authorized[0]
        if self.changes:
            found["changes"] = dict(self.changes.most_common())
        return found

    def __add__(self, other: WireSums) -> WireSums:
        both = [a + b for a, b in zip(self.authorized, other.authorized, strict=True)]
        sums = {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in {**self.sums, **other.sums}}
        return WireSums(sums, self.changes + other.changes, both)


@dataclass(slots=True)
class LineAggregates:
    """Sums over the rows of one line."""

    rows: int = 0
    failed: int = 0
    sent: Mean = field(default_factory=Mean)
    forwarded: Mean = field(default_factory=Mean)
    paired_sent: Mean = field(default_factory=Mean)  # rows where both are known
    paired_forwarded: Mean = field(default_factory=Mean)
    billed: Mean = field(default_factory=Mean)
    cached: Mean = field(default_factory=Mean)
    written: Mean = field(default_factory=Mean)
    completion: Mean = field(default_factory=Mean)
    cost: Mean = field(default_factory=Mean)
    costs: AmountsByExample = field(default_factory=AmountsByExample)
    prompts: AmountsByExample = field(default_factory=AmountsByExample)  # tokens forwarded
    grown: int = 0  # rows whose prompt got longer on the way
    changed: int = 0  # rows of which something else went on than was sent
    compared: int = 0  # rows where both are known
    instance: tuple[int, EvalRow] | None = (
        None  # the first changed row, failed ones last, with its place among all rows
    )
    inexact: int = 0  # rows counted by a tokenizer that is not the model's
    seen: WireSums = field(default_factory=WireSums)
    sources: Counter[str] = field(default_factory=Counter)
    latency: array[float] = field(default_factory=lambda: array("d"))
    ttft: array[float] = field(default_factory=lambda: array("d"))
    scores: dict[str, Mean] = field(default_factory=dict)

    def take(self, rows: Sequence[EvalRow]) -> None:
        """Take some rows in."""
        self.take_scores(rows)
        usage = [row.usage for row in rows if row.usage]
        if usage:
            self._used(usage)
            self.costs.take(rows, [first(row.usage, *COST) if row.usage else None for row in rows])
        self.prompts.take(rows, numbers([row.output_tokens for row in rows]))
        self.sources.update([source_of(row) for row in rows if row.output_tokens is not None])
        for row in rows:
            if row.wire:
                self.inexact += row.wire.get("exact") is False
                self.seen.add(row.wire)
        answered = [row for row in rows if not row.failed]
        self.latency.extend([each for each in numbers([row.latency for row in answered]) if each is not None])
        self.ttft.extend([each for row in answered if (each := _ttft(row)) is not None])

    def take_scores(self, rows: Sequence[EvalRow]) -> None:
        """Take in only their scores, failures, and tokens sent and forwarded."""
        self.rows += len(rows)
        self.failed += sum(row.failed for row in rows)
        scores = [row.scores for row in rows]
        for name in dict.fromkeys(chain.from_iterable(scores)):
            if name not in self.scores:
                self.scores[name] = Mean()
            self.scores[name].take(numbers([each.get(name) for each in scores]))
        sent, forwarded = numbers([row.input_tokens for row in rows]), numbers([row.output_tokens for row in rows])
        self.sent.take(sent)
        self.forwarded.take(forwarded)
        both = [(a, b) for a, b in zip(sent, forwarded, strict=True) if a is not None and b is not None]
        self.paired_sent.take([a for a, _ in both])
        self.paired_forwarded.take([b for _, b in both])
        self.grown += sum(b > a for a, b in both)

    def take_changes(self, places: Iterable[int], rows: Sequence[EvalRow]) -> None:
        """Take in whether the rows' prompts were changed on the way; `places`: which of all rows they are."""
        for place, row in zip(places, rows, strict=True):
            if (was := changed(row)) is None:
                continue
            self.compared += 1
            if was:
                self.changed += 1
                if self.instance is None or (self.instance[1].failed and not row.failed):
                    self.instance = (place, row)

    def of_scores(self) -> LineAggregates:
        """The result of `take_scores` alone over the same rows."""
        made = LineAggregates(self.rows, self.failed, replace(self.sent), replace(self.forwarded), grown=self.grown)
        made.paired_sent, made.paired_forwarded = replace(self.paired_sent), replace(self.paired_forwarded)
        made.scores = {name: replace(each) for name, each in self.scores.items()}
        return made

    def _used(self, usage: Sequence[Mapping[str, Any]]) -> None:
        self.billed.take(firsts(usage, "input_tokens", "prompt_tokens"))
        self.cached.take(firsts(usage, "cache_read"))
        self.written.take(firsts(usage, "cache_write"))
        self.completion.take(firsts(usage, "output_tokens", "completion_tokens"))
        self.cost.take(firsts(usage, *COST))

    @property
    def compression(self) -> float | None:
        """1 − forwarded/sent over the rows where both are known."""
        return 1 - self.paired_forwarded.total / self.paired_sent.total if self.paired_sent.total > 0 else None


@dataclass(slots=True)
class Aggregates:
    """Everything one pass finds, by line, and by (line, dataset) for scores."""

    lines: dict[Line, LineAggregates] = field(default_factory=dict)
    datasets: dict[tuple[Line, str], LineAggregates] = field(default_factory=dict)
    failures: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    samples: dict[tuple[str, str, str], str] = field(
        default_factory=dict
    )  # (system, source, class) → the first message
    score_names: list[str] = field(default_factory=list)
    examples: int = 0
    rows: int = 0
    trials: int = 0

    shapes: list[str] = field(default_factory=list)

    @property
    def dataset_names(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in self.datasets))


def shape_of(row: EvalRow) -> str | None:
    """The request shape of a row, if it says."""
    shape = row.metadata.get("shape")
    return str(shape) if shape else None


def changed(row: EvalRow) -> bool | None:
    """True if something else went on to the model than was sent; `None` where one of the two is not known."""
    sent, forwarded = number(row.wire.get("sent") if row.wire else None), number(row.output_tokens)
    sent = number(row.input_tokens) if sent is None else sent  # with a tap: what left our client, shortened or not
    if row.wire and any(row.wire.get(name) for name in ("text_changed", "role_changes", "param_changes")):
        return True
    if sent is None or forwarded is None or source_of(row) == "usage":
        return None  # the provider counts by rules of its own
    if not sent and source_of(row) == "context":
        return None  # what it made its context of is not in the example
    return sent != forwarded


def source_of(row: EvalRow) -> str:
    """Source of a row's forwarded tokens: `tap`, `usage` (the provider's own count) or `context` (what a Python system
    returned).
    """
    if row.wire:
        told = row.wire.get("source")
        return told if isinstance(told, str) else "tap"
    return "usage" if row.usage and first(row.usage, "input_tokens", "prompt_tokens") is not None else "context"


def failure_class(error: str) -> str:
    """`TimedOut` of "TimedOut: …"."""
    return str(error).partition(":")[0].strip() or "unknown"


def first(values: Mapping[str, Any], *names: str) -> float | None:
    """The first of `names` that holds a finite number."""
    for name in names if values else ():
        value = values.get(name)
        if value is not None and (found := number(value)) is not None:
            return found
    return None


def numbers(values: Sequence[Any]) -> Sequence[float | None]:
    """`number` of each, which makes nothing else of most."""
    kinds = set(map(type, values))
    if kinds == {float}:
        same = all(map(math.isfinite, values))
    elif kinds == {int}:
        same = min(values) >= -MOST and max(values) <= MOST
    else:
        same = kinds <= {type(None)}
    return values if same else [number(value) for value in values]


def firsts(facts: Sequence[Mapping[str, Any]], name: str, *others: str) -> Sequence[float | None]:
    """`first` of each."""
    found = numbers([each.get(name) for each in facts])
    if not others or None not in found:
        return found
    return [first(each, *others) if value is None else value for value, each in zip(found, facts, strict=True)]


def _ttft(row: EvalRow) -> float | None:
    """The client's own time to first token, else what the tap saw, else what the system said."""
    for place in (row.usage, row.wire, row.metadata):
        if place and (found := number(place.get("ttft"))) is not None:
            return found
    return None


def quantile(values: array[float], share: float) -> float | None:
    """The `share` quantile, linear between neighbours; `None` of nothing."""
    if not values:
        return None
    return percentile(ordered(values), share)


def aggregated(rows: Iterable[EvalRow]) -> Aggregates:
    """Sums of all rows. Lines keep the order in which they first occur."""
    aggregator = Aggregator()
    for piece in in_pieces(rows):
        aggregator.take(piece)
    return aggregator.result()


class Aggregator:
    """The pass over the rows, a hundred or so at a time, for who reads them for something else as well."""

    def __init__(self) -> None:
        self._found = Aggregates()
        self._examples = _Distinct()
        self._names: set[str] = set()
        self._only: dict[Line, str] = {}  # lines whose rows are all of one dataset, which so needs no sums of its own

    def take(self, rows: Sequence[EvalRow]) -> None:
        """Take a hundred rows or so in."""
        found = self._found
        lines: dict[Line, list[int]] = {}
        for place, row in enumerate(rows):
            lines.setdefault((row.system, shape_of(row)), []).append(place)
        for line, places in lines.items():
            self._line(line, [found.rows + place for place in places], [rows[place] for place in places])
        for row in rows:
            if row.errors:
                self._failures(row)
        self._examples.take([hash((row.dataset, row.example_id)) for row in rows])
        self._names.update(chain.from_iterable(row.scores for row in rows))
        found.rows += len(rows)
        found.trials = max(found.trials, 1 + max(row.trial for row in rows))

    def result(self) -> Aggregates:
        """The sums of all rows so far."""
        found = self._found
        for line, name in self._only.items():
            found.datasets[line, name] = found.lines[line].of_scores()
        places = {line: place for place, line in enumerate(found.lines)}
        found.datasets = dict(sorted(found.datasets.items(), key=lambda entry: places[entry[0][0]]))
        found.score_names, found.examples = sorted(self._names), self._examples.count()
        shapes = dict.fromkeys(shape or "" for _, shape in found.lines)
        found.shapes = [shape for shape in shapes if shape]
        return found if len(shapes) > 1 else _shapeless(found)

    def _line(self, line: Line, places: Sequence[int], rows: Sequence[EvalRow]) -> None:
        whole = self._found.lines.get(line)
        if whole is None:
            whole = self._found.lines[line] = LineAggregates()
            self._only[line] = rows[0].dataset
        only = self._only.get(line)
        if only is None or any(row.dataset != only for row in rows):
            self._by_dataset(line, whole, rows)
        whole.take(rows)
        whole.take_changes(places, rows)

    def _by_dataset(self, line: Line, whole: LineAggregates, rows: Sequence[EvalRow]) -> None:
        parts = self._found.datasets
        if (only := self._only.pop(line, None)) is not None:
            parts[line, only] = whole.of_scores()
        for name in dict.fromkeys(row.dataset for row in rows):
            if (part := parts.get((line, name))) is None:
                part = parts[line, name] = LineAggregates()
            part.take_scores([row for row in rows if row.dataset == name])

    def _failures(self, row: EvalRow) -> None:
        for source, error in row.errors.items():
            kind = failure_class(error)
            self._found.failures.setdefault(row.system, {}).setdefault(source, Counter())[kind] += 1
            self._found.samples.setdefault((row.system, source, kind), str(error).partition(":")[2].strip()[:300])


class _Distinct:
    """Counts different 64-bit numbers in eight bytes each."""

    def __init__(self) -> None:
        self._seen: array[int] = array("q")
        self._next = 1 << 17  # when it is time to leave out what is there twice

    def take(self, numbers: Iterable[int]) -> None:
        self._seen.extend(numbers)
        if len(self._seen) >= self._next:
            self._next = 2 * self.count() + (1 << 17)

    def count(self) -> int:
        if len(self._seen) < 1 << 17:
            return len(set(self._seen))
        return self._leave_out()

    def _leave_out(self) -> int:
        """In place: what is there twice is there once, and how much that leaves."""
        import numpy as np

        seen = np.frombuffer(self._seen, dtype=np.int64)
        seen.sort()
        fresh = seen[1:] != seen[:-1]
        count = 1 + int(np.count_nonzero(fresh))
        if count < len(seen):
            seen[1:count] = seen[1:][fresh]
            del seen  # an array that is looked into cannot change its length
            del self._seen[count:]
        return count


def _shapeless(found: Aggregates) -> Aggregates:
    """With a single shape in the run, lines are simply systems."""
    found.lines = {(system, None): each for (system, _), each in found.lines.items()}
    found.datasets = {((system, None), name): each for ((system, _), name), each in found.datasets.items()}
    return found
