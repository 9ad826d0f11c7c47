"""Columns of the rows of one system: the numbers that statistics need, in a few bytes a row.

A `Gatherer` reads stored rows a few hundred at a time and appends their numbers to `Columns`.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import COMPLETION, COST, TTFT, qa_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Numbers of small facts, which are 0 for most rows: datasets and kinds of question by place, trial, and whether
#: something failed.
_SMALL = {"datasets": "I", "types": "I", "trials": "I", "errored": "b", "failed": "b"}
_CHUNK = 8_192
_HEX = re.compile(r"[0-9a-f]{13,64}")


class Numbers:
    """A growing column of floats, NaN where nothing was put. Full chunks are kept as places in a table of values where
    few differ.
    """

    __slots__ = ("_chunks", "_kept", "_tail")

    def __init__(self) -> None:
        self._chunks: list[tuple[NDArray[Any], NDArray[Any] | None]] = []
        self._kept = 0  # values in chunks
        self._tail = array("d")

    def put_all(self, place: int, values: NDArray[Any]) -> None:
        """Set the numbers (float64, NaN where there is none) of rows from `place` on."""
        self._fill(place)
        at = 0
        while at < len(values):
            taken = values[at : at + _CHUNK - len(self._tail)]
            self._tail.frombytes(taken.tobytes())
            at += len(taken)
            if len(self._tail) == _CHUNK:
                self._keep()

    def whole(self, length: int) -> NDArray[Any]:
        """The column as float64."""
        found, at = np.empty(length), 0
        for values, places in self._chunks:
            found[at : at + _CHUNK] = values if places is None else values[places]
            at += _CHUNK
        found[at : at + len(self._tail)] = self._tail
        found[at + len(self._tail) :] = math.nan
        return found

    def _fill(self, place: int) -> None:
        while (missing := place - self._kept - len(self._tail)) > 0:
            self._tail.extend([math.nan] * min(missing, _CHUNK - len(self._tail)))
            if len(self._tail) == _CHUNK:
                self._keep()

    def _keep(self) -> None:
        values, places = np.unique(np.array(self._tail), return_inverse=True)
        few = next(
            ((kind, most) for kind, most in ((np.uint8, 256), (np.uint16, _CHUNK // 2)) if len(values) <= most), None
        )
        self._chunks.append((np.array(self._tail), None) if few is None else (values, places.astype(few[0])))
        self._kept += len(self._tail)
        self._tail = array("d")


@dataclass
class Columns:
    """Rows in the order they came.

    `examples`: a number for each example (dataset, id, shape, position among equal ids). `scores[name]` and
    `measures[name]` have what rows told. `errored`: something failed on the row; `failed`: it has no answer at all;
    `types`: the kind of question, as a number.
    """

    examples: array[int] = field(default_factory=lambda: array("Q"))
    scores: dict[str, Numbers] = field(default_factory=dict)
    measures: dict[str, Numbers] = field(default_factory=dict)
    small: dict[str, array[int]] = field(default_factory=lambda: {name: array(kind) for name, kind in _SMALL.items()})
    labels: array[int] = field(
        default_factory=lambda: array("Q")
    )  # clusters that have names; empty where no row names one
    shapes: set[str] = field(default_factory=set)
    trials: int = 0
    _numbered: bool = field(default=False, repr=False)  # examples of the same id are told from one another

    def __len__(self) -> int:
        return len(self.examples)

    def numbers(self, name: str) -> NDArray[Any]:
        """A score as float64, NaN where absent."""
        return _whole(self.scores.get(name), len(self))

    def at(self, keys: NDArray[Any], name: str) -> NDArray[Any]:
        """A score on the rows of these `keys`, NaN where there is no such row, or it has none."""
        if not len(self):
            return np.full(len(keys), np.nan)
        order = np.argsort(self.keys)
        places = order[np.minimum(np.searchsorted(self.keys, keys, sorter=order), len(order) - 1)]
        found: NDArray[Any] = np.where(self.keys[places] == keys, self.numbers(name)[places], np.nan)
        return found

    def measure(self, name: str) -> NDArray[Any]:
        """Tokens (`sent`, `forwarded`, `reply`), `cost`, `latency`, `ttft`, and a number for what `arrived`; NaN where
        unknown.
        """
        return _whole(self.measures.get(name), len(self))

    def knows(self, name: str) -> NDArray[Any]:
        """True for the rows that have that measure."""
        found: NDArray[Any] = ~np.isnan(self.measure(name))
        return found

    def whole(self, name: str) -> NDArray[Any]:
        """`datasets`, `types`, `trials`, `errored` or `failed` of every row."""
        found = np.zeros(len(self), dtype=np.dtype(_SMALL[name]))
        known = self.small[name]
        found[: len(known)] = known
        return found

    def kinds(self, name: str) -> list[int]:
        """The `datasets` or `types` there are, in order."""
        return [int(each) for each in np.unique(self.whole(name))]

    @cached_property
    def keys(self) -> NDArray[Any]:
        """Numbers for (example, trial), by which the rows of two systems are matched."""
        self._number_repeats()
        pairs = zip(self.examples, self.whole("trials").tolist(), strict=True)
        return np.fromiter((digest(*pair) for pair in pairs), dtype=np.uint64, count=len(self))

    @cached_property
    def units(self) -> NDArray[Any] | None:
        """Each row's example as 0…U−1; `None` where no example has two rows."""
        return self._codes_of_examples if self.trials > 1 else None

    @cached_property
    def clusters(self) -> NDArray[Any]:
        """Each row's cluster as 0…G−1; an example without one is a cluster of its own."""
        self._number_repeats()
        return _codes(self.labels) if len(self.labels) else self._codes_of_examples

    @cached_property
    def _codes_of_examples(self) -> NDArray[Any]:
        self._number_repeats()
        return _codes(self.examples)

    def _number_repeats(self) -> None:
        """Tell apart examples of the same id: the second of them in one trial is another example, in every trial the
        same one.
        """
        if self._numbered or not len(self):
            return
        self._numbered = True
        ids, trials = np.frombuffer(self.examples, dtype=np.uint64), self.whole("trials")
        order = np.lexsort((trials, ids)) if self.trials > 1 else np.argsort(ids, kind="stable")
        again = (ids[order[1:]] == ids[order[:-1]]) & (trials[order[1:]] == trials[order[:-1]])
        count, before = 0, -2
        for at in np.flatnonzero(again).tolist():
            count = count + 1 if at == before + 1 else 1
            before, place = at, int(order[at + 1])
            number = digest("again", self.examples[place], count)
            if len(self.labels) and self.labels[place] == self.examples[place]:
                self.labels[place] = number
            self.examples[place] = number


def _whole(column: Numbers | None, length: int) -> NDArray[Any]:
    return np.full(length, math.nan) if column is None else column.whole(length)


def _codes(found: array[int]) -> NDArray[Any]:
    """Numbers as 0…G−1, in their order."""
    if not len(found):
        return np.empty(0, dtype=np.int32)
    values = np.frombuffer(found, dtype=np.uint64)
    order = np.argsort(values)
    codes = np.empty(len(values), dtype=np.int32)
    codes[order[0]] = 0
    codes[order[1:]] = np.cumsum(values[order[1:]] != values[order[:-1]], dtype=np.int32)
    return codes


def digest(*parts: Any) -> int:
    """64 bits that stand for these values; 1 and "1" differ."""
    return int.from_bytes(blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def averaged(
    values: NDArray[Any], units: NDArray[Any] | None, clusters: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """One value per example (the mean over its trials) with its cluster as 0…G−1. `units`: the rows' examples, where
    any has several.
    """
    if units is not None:
        inverse = compact(units)
        counts = np.bincount(inverse)
        if len(counts) < len(values):
            start = np.empty(len(counts), dtype=np.int64)
            start[inverse[::-1]] = np.arange(len(values))[::-1]  # the last one written is the first row
            values, clusters = np.bincount(inverse, values) / counts, clusters[start]
    return values, compact(clusters)


def compact(codes: NDArray[Any]) -> NDArray[Any]:
    """The same in the same order, as 0…G−1 without gaps."""
    if not len(codes):
        return codes
    there = np.zeros(int(codes.max()) + 1, dtype=bool)
    there[codes] = True
    return codes if there.all() else (np.cumsum(there, dtype=np.int32) - 1)[codes]


class Gatherer:
    """Reads rows into columns; datasets and kinds of question get one number over all systems."""

    def __init__(self) -> None:
        self.datasets: list[str] = []
        self.types: list[str] = []
        self.fields: dict[int, set[str]] = {}  # dataset → scores that some row of it has

    def take(self, columns: Columns, rows: Sequence[EvalRow]) -> None:
        """Take the numbers of a hundred rows or so down into `columns`: of one number after the other, which is cheaper
        than row by row.
        """
        place = len(columns)
        shapes = [str(row.metadata.get("shape", "")) for row in rows]
        datasets = [row.dataset for row in rows]
        columns.shapes.update(shape for shape in set(shapes) if shape)
        columns.trials = max(columns.trials, 1 + max(row.trial for row in rows))
        _examples(columns, rows, shapes)
        numbers = _places(self.datasets, datasets)
        failed = [row.failed for row in rows]
        kinds, trials = _places(self.types, [qa_type(row) for row in rows]), [row.trial for row in rows]
        facts: tuple[Sequence[int], ...] = (numbers, kinds, trials, [bool(row.errors) for row in rows], failed)
        for known, values in zip(columns.small.values(), facts, strict=True):
            if any(values):
                known.extend(bytes(place - len(known)))
                known.extend(values)
        for name, found in _measured(rows, failed):
            _put(columns.measures, name, place, found)
        self._scores(columns.scores, [row.scores for row in rows], numbers, place)

    def _scores(
        self, columns: dict[str, Numbers], scores: list[dict[str, float]], datasets: list[int], place: int
    ) -> None:
        alone = datasets[0] if len(set(datasets)) == 1 else None
        for name in dict.fromkeys(chain.from_iterable(scores)):
            values = _finite([each.get(name) for each in scores])
            if _put(columns, name, place, values):
                having = (
                    [alone]
                    if alone is not None
                    else {datasets[at] for at in np.flatnonzero(~np.isnan(values)).tolist()}
                )
                for dataset in having:
                    self.fields.setdefault(dataset, set()).add(name)


def _examples(columns: Columns, rows: Sequence[EvalRow], shapes: Sequence[str]) -> None:
    """Take down which examples the rows are about, and their clusters."""
    examples = array(
        "Q", [digest(row.dataset, row.example_id, shape, 0) for row, shape in zip(rows, shapes, strict=True)]
    )
    labels = [row.group if row.cluster is None else row.cluster for row in rows]
    if len(columns.labels) or any(label is not None for label in labels):
        if not len(columns.labels):
            columns.labels.extend(columns.examples)
        told = zip(rows, labels, examples, strict=True)
        columns.labels.extend(
            [example if label is None else _cluster(row.dataset, label) for row, label, example in told]
        )
    columns.examples.extend(examples)


def _put(columns: dict[str, Numbers], name: str, place: int, values: NDArray[Any]) -> bool:
    """Put numbers into the column of that name, which is made when there is a number for it; false if there is none."""
    if np.isnan(values).all():
        return False
    if name not in columns:
        columns[name] = Numbers()
    columns[name].put_all(place, values)
    return True


def _measured(rows: Sequence[EvalRow], failed: Sequence[bool]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The measures of rows, by name; how long a failure took is no latency."""
    yield "sent", _finite([row.input_tokens for row in rows])
    yield "forwarded", _finite([row.output_tokens for row in rows])
    yield "latency", _finite([None if without else row.latency for row, without in zip(rows, failed, strict=True)])
    usage = [row.usage for row in rows]
    if any(usage):
        yield "reply", _first(usage, *COMPLETION)
        yield "cost", _first(usage, *COST)
        yield "ttft", _first(usage, *TTFT)
    if any("arrived_as" in row.wire for row in rows):
        yield "arrived", _finite([_number(row.wire.get("arrived_as")) for row in rows])


def _number(digits: Any) -> int | None:
    """Hexadecimal digits as a number that a float64 holds exactly."""
    return int(digits[:13], 16) if isinstance(digits, str) and _HEX.fullmatch(digits) else None


def _first(facts: Sequence[dict[str, Any]], name: str, *others: str) -> NDArray[Any]:
    """Of each row the first of these facts that is a number."""
    found = _finite([each.get(name) for each in facts])
    for other in others:
        missing = np.isnan(found)
        if not missing.any():
            break
        found[missing] = _finite([each.get(other) for each in facts])[missing]
    return found


#: What numpy makes the same number of as `number`.
_NUMBERS = frozenset((int, float, bool, type(None)))


def _finite(values: list[Any]) -> NDArray[Any]:
    """Values as float64, NaN for what is no finite number."""
    try:
        if not _NUMBERS.issuperset(map(type, values)):
            raise OverflowError
        found = np.array(values, dtype=np.float64)
    except OverflowError:  # an integer beyond all floats, or what is no plain number
        found = np.array([real(value) for value in values], dtype=np.float64)
    found[~np.isfinite(found)] = math.nan
    return found


def _places(known: list[str], names: Sequence[str]) -> list[int]:
    """The number of each name; new ones get the next."""
    places = {name: place for place, name in enumerate(known)}
    for name in dict.fromkeys(names):
        if name not in places:
            places[name] = len(known)
            known.append(name)
    return [places[name] for name in names]


def _cluster(dataset: str, label: str) -> int:
    """A cluster's number. Names mean something within their dataset only, but a text is the same text under any
    dataset's name.
    """
    return digest("cluster", label) if label.startswith("context-") else digest(dataset, "cluster", label)
