"""One pass over the rows of a run: the sums that pages show and that no metric computes. Memory does not grow with what rows carry."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

from context_bench.core.records import EvalRow
from context_bench.core.rowfacts import ordered

#: A line of a table: a system under one request shape (`None` where shapes play no part). Shapes are never averaged together.
Line = tuple[str, str | None]


@dataclass(slots=True)
class Mean:
    """A running sum with its n."""

    total: float = 0.0
    n: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.n += 1

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None


#: Keys of `EvalRow.wire` that add up, in the order of reports.
_SUMMED = (
    *("sent", "forwarded", "billed", "calls", "client_calls", "extra_calls", "other_calls"),
    *("role_changes", "param_changes", "text_changed", "truncated", "uncounted_parts", "late"),
)
_MOST_CHANGES = 200  # different ones that are kept by name


@dataclass(slots=True)
class Seen:
    """What the tap saw, summed over the rows of one line (keys of `EvalRow.wire`)."""

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

    def __add__(self, other: Seen) -> Seen:
        both = [a + b for a, b in zip(self.authorized, other.authorized, strict=True)]
        sums = {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in {**self.sums, **other.sums}}
        return Seen(sums, self.changes + other.changes, both)


@dataclass(slots=True)
class Tally:
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
    grown: int = 0  # rows whose prompt got longer on the way
    changed: int = 0  # rows of which something else went on than was sent
    compared: int = 0  # rows where both are known
    instance: tuple[int, EvalRow] | None = None  # the first changed row, failed ones last, with its place among all rows
    inexact: int = 0  # rows counted by a tokenizer that is not the model's
    seen: Seen = field(default_factory=Seen)
    sources: Counter[str] = field(default_factory=Counter)
    latency: array[float] = field(default_factory=lambda: array("d"))
    ttft: array[float] = field(default_factory=lambda: array("d"))
    scores: dict[str, Mean] = field(default_factory=dict)

    def add(self, row: EvalRow) -> None:
        """Take one row in."""
        self.add_scores(row)
        if row.usage:
            self._used(row.usage)
        if row.output_tokens is not None:
            self.sources[source_of(row)] += 1
        if row.wire:
            self.inexact += row.wire.get("exact") is False
            self.seen.add(row.wire)
        if not row.failed:
            _append(self.latency, number(row.latency))
            _append(self.ttft, _ttft(row))

    def add_scores(self, row: EvalRow) -> None:
        """Take in only its scores, its failure, and its tokens sent and forwarded."""
        self.rows += 1
        self.failed += row.failed
        for name, value in row.scores.items():
            if name not in self.scores:
                self.scores[name] = Mean()
            self.scores[name].add(number(value))
        sent, forwarded = number(row.input_tokens), number(row.output_tokens)
        self.sent.add(sent)
        self.forwarded.add(forwarded)
        if sent is not None and forwarded is not None:
            self.paired_sent.add(sent)
            self.paired_forwarded.add(forwarded)
            self.grown += forwarded > sent

    def add_change(self, place: int, row: EvalRow) -> None:
        """Take in whether the row's prompt was changed on the way; `place`: which of all rows it is."""
        if (was := changed(row)) is None:
            return
        self.compared += 1
        self.changed += was
        if was and (self.instance is None or (self.instance[1].failed and not row.failed)):
            self.instance = (place, row)

    def of_scores(self) -> Tally:
        """What `add_scores` alone would have made of the same rows."""
        made = Tally(self.rows, self.failed, replace(self.sent), replace(self.forwarded), grown=self.grown)
        made.paired_sent, made.paired_forwarded = replace(self.paired_sent), replace(self.paired_forwarded)
        made.scores = {name: replace(each) for name, each in self.scores.items()}
        return made

    def _used(self, usage: Mapping[str, Any]) -> None:
        self.billed.add(first(usage, "input_tokens", "prompt_tokens"))
        self.cached.add(first(usage, "cache_read"))
        self.written.add(first(usage, "cache_write"))
        self.completion.add(first(usage, "output_tokens", "completion_tokens"))
        self.cost.add(first(usage, "cost", "cost_usd", "usd"))

    @property
    def compression(self) -> float | None:
        """1 − forwarded/sent over the rows where both are known."""
        return 1 - self.paired_forwarded.total / self.paired_sent.total if self.paired_sent.total > 0 else None


@dataclass(slots=True)
class Tallies:
    """Everything one pass finds, by line, and by (line, dataset) for scores."""

    lines: dict[Line, Tally] = field(default_factory=dict)
    datasets: dict[tuple[Line, str], Tally] = field(default_factory=dict)
    failures: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    samples: dict[tuple[str, str, str], str] = field(default_factory=dict)  # (system, source, class) → the first message
    score_names: list[str] = field(default_factory=list)
    examples: int = 0
    rows: int = 0
    trials: int = 0

    shapes: list[str] = field(default_factory=list)

    @property
    def dataset_names(self) -> list[str]:
        return list(dict.fromkeys(name for _, name in self.datasets))


def tally(rows: Iterable[EvalRow]) -> Tallies:
    """Sums of all rows. Lines keep the order in which they first occur."""
    tallying = Tallying()
    for row in rows:
        tallying.add(row)
    return tallying.result()


class Tallying:
    """The pass over the rows, one by one, for who reads them for something else as well."""

    def __init__(self) -> None:
        self._found = Tallies()
        self._examples = _Distinct()
        self._names: set[str] = set()
        self._only: dict[Line, str] = {}  # lines whose rows are all of one dataset, which so needs no sums of its own

    def add(self, row: EvalRow) -> None:
        """Take one row in."""
        found = self._found
        line: Line = (row.system, shape_of(row))
        if (whole := found.lines.get(line)) is None:
            whole = found.lines[line] = Tally()
            self._only[line] = row.dataset
        if self._only.get(line) != row.dataset:
            self._by_dataset(line, whole, row)
        whole.add(row)
        whole.add_change(found.rows, row)
        if row.errors:
            self._failures(row)
        self._examples.add(hash((row.dataset, row.example_id)))
        self._names.update(row.scores)
        found.rows += 1
        if row.trial >= found.trials:
            found.trials = row.trial + 1

    def result(self) -> Tallies:
        """What all rows so far come to."""
        found = self._found
        for line, name in self._only.items():
            found.datasets[line, name] = found.lines[line].of_scores()
        places = {line: place for place, line in enumerate(found.lines)}
        found.datasets = dict(sorted(found.datasets.items(), key=lambda entry: places[entry[0][0]]))
        found.score_names, found.examples = sorted(self._names), self._examples.count()
        shapes = dict.fromkeys(shape or "" for _, shape in found.lines)
        found.shapes = [shape for shape in shapes if shape]
        return found if len(shapes) > 1 else _shapeless(found)

    def _by_dataset(self, line: Line, whole: Tally, row: EvalRow) -> None:
        parts = self._found.datasets
        if (only := self._only.pop(line, None)) is not None:
            parts[line, only] = whole.of_scores()
        if (part := parts.get((line, row.dataset))) is None:
            part = parts[line, row.dataset] = Tally()
        part.add_scores(row)

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

    def add(self, number: int) -> None:
        self._seen.append(number)
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


def _shapeless(found: Tallies) -> Tallies:
    """With a single shape in the run, lines are simply systems."""
    found.lines = {(system, None): each for (system, _), each in found.lines.items()}
    found.datasets = {((system, None), name): each for ((system, _), name), each in found.datasets.items()}
    return found


def shape_of(row: EvalRow) -> str | None:
    """The request shape of a row, if it says."""
    shape = row.metadata.get("shape")
    return str(shape) if shape else None


def changed(row: EvalRow) -> bool | None:
    """Whether something else went on to the model than was sent; `None` where one of the two is not known."""
    sent, forwarded = number(row.input_tokens), number(row.output_tokens)
    if any(row.wire.get(name) for name in ("text_changed", "role_changes", "param_changes")):
        return True
    if sent is None or forwarded is None or source_of(row) == "usage":
        return None  # the provider counts by rules of its own
    if not sent and source_of(row) == "context":
        return None  # what it made its context of is not in the example
    return sent != forwarded


def source_of(row: EvalRow) -> str:
    """Where a row's forwarded tokens come from: `tap`, `usage` (the provider's own count) or `context` (what a Python system returned)."""
    told = row.wire.get("source")
    if isinstance(told, str):
        return told
    return "tap" if row.wire else "usage" if first(row.usage, "input_tokens", "prompt_tokens") is not None else "context"


def failure_class(error: str) -> str:
    """`TimedOut` of "TimedOut: …"."""
    return str(error).partition(":")[0].strip() or "unknown"


def number(value: Any) -> float | None:
    """`value` as a plain number if it is one (NumPy's included) and finite, else `None`; truth values count as 0 and 1."""
    kind = type(value)
    if kind is int or value is None:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) and math.isfinite(value) else None


def first(values: Mapping[str, Any], *names: str) -> float | None:
    """The first of `names` that holds a finite number."""
    for name in names:
        if (found := number(values.get(name))) is not None:
            return found
    return None


def _ttft(row: EvalRow) -> float | None:
    """The client's own time to first token, else what the tap saw, else what the system said."""
    for place in (row.usage, row.wire, row.metadata):
        if (found := number(place.get("ttft"))) is not None:
            return found
    return None


def _append(values: array[float], value: float | None) -> None:
    if value is not None:
        values.append(value)


def quantile(values: array[float], share: float) -> float | None:
    """The `share` quantile, linear between neighbours; `None` of nothing."""
    if not values:
        return None
    seconds = ordered(values)
    at = share * (len(seconds) - 1)
    below = math.floor(at)
    above = min(below + 1, len(seconds) - 1)
    return seconds[below] + (seconds[above] - seconds[below]) * (at - below)
