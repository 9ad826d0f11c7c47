"""The rows of one system as arrays: what statistics need of them, in memory that does not grow with what rows carry."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from context_bench.core import rowfacts
from context_bench.core.records import EvalRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MEASURES = {
    "sent": lambda row: rowfacts.number(row.input_tokens),
    "forwarded": lambda row: rowfacts.number(row.output_tokens),
    "reply": rowfacts.completion_tokens,
    "cost": rowfacts.cost_usd,
    "latency": rowfacts.latency,
    "ttft": rowfacts.ttft,
}


@dataclass
class Columns:
    """Rows in the order they came.

    `keys` name (dataset, example, position among equal ids, shape, trial); `examples` the same without trial.
    `scores[name]` and `measures[name]` are as long as `keys`, NaN where the row has none. `errored`: something failed on the row;
    `failed`: it has no answer at all. `types`: the kind of question, as a number.
    """

    keys: array[int] = field(default_factory=lambda: array("Q"))
    examples: array[int] = field(default_factory=lambda: array("Q"))
    clusters: array[int] = field(default_factory=lambda: array("Q"))
    datasets: array[int] = field(default_factory=lambda: array("H"))
    types: array[int] = field(default_factory=lambda: array("H"))
    errored: array[int] = field(default_factory=lambda: array("b"))
    failed: array[int] = field(default_factory=lambda: array("b"))
    scores: dict[str, array[float]] = field(default_factory=dict)
    measures: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in _MEASURES})
    shapes: set[str] = field(default_factory=set)
    trials: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def numbers(self, name: str) -> NDArray[Any]:
        """A score as float64, NaN where absent."""
        import numpy as np

        found = self.scores.get(name)
        return np.frombuffer(found, dtype=np.float64) if found else np.full(len(self), np.nan)

    def measure(self, name: str) -> NDArray[Any]:
        """Tokens (`sent`, `forwarded`, `reply`), `cost`, `latency`, `ttft` as float64, NaN where unknown."""
        import numpy as np

        return np.frombuffer(self.measures[name], dtype=np.float64) if len(self) else np.empty(0)

    def whole(self, name: str) -> NDArray[Any]:
        """`keys`, `examples`, `clusters`, `datasets`, `types`, `errored` or `failed` as an array."""
        import numpy as np

        kinds: dict[str, Any] = {"datasets": np.uint16, "types": np.uint16, "errored": np.int8, "failed": np.int8}
        found = getattr(self, name)
        return np.frombuffer(found, dtype=kinds.get(name, np.uint64)) if len(found) else np.empty(0, dtype=kinds.get(name, np.uint64))


class Gatherer:
    """Reads rows into columns; datasets and kinds of question get one number over all systems."""

    def __init__(self) -> None:
        self.datasets: list[str] = []
        self.types: list[str] = []
        self.fields: dict[int, set[str]] = {}  # dataset → scores that some row of it has

    def through(self, rows: Iterable[EvalRow], columns: Columns) -> Iterator[EvalRow]:
        """Pass rows on, taking their numbers down into `columns`."""
        seen: dict[int, int] = {}
        for row in rows:
            self._take(row, columns, seen)
            yield row

    def _take(self, row: EvalRow, columns: Columns, seen: dict[int, int]) -> None:
        shape = str(row.metadata.get("shape", ""))
        asked = hash((row.dataset, row.example_id, type(row.example_id), shape, row.trial))
        position = seen[asked] = seen.get(asked, -1) + 1
        example = _digest(row.dataset, row.example_id, shape, position)
        label = row.cluster if row.cluster is not None else row.group
        columns.examples.append(example)
        columns.keys.append(_digest(example, row.trial))
        columns.clusters.append(example if label is None else _cluster(row.dataset, label))
        columns.datasets.append(_place(self.datasets, row.dataset))
        columns.types.append(_place(self.types, rowfacts.qa_type(row)))
        columns.errored.append(bool(row.errors))
        columns.failed.append(row.failed)
        columns.trials = max(columns.trials, row.trial + 1)
        if shape:
            columns.shapes.add(shape)
        for name, read in _MEASURES.items():
            value = read(row)
            columns.measures[name].append(math.nan if value is None else value)
        self._scores(row, columns)

    def _scores(self, row: EvalRow, columns: Columns) -> None:
        length, found = len(columns), self.fields.setdefault(columns.datasets[-1], set())
        for name in row.scores:
            value = rowfacts.score(row, name)
            if value is None:
                continue
            if name not in columns.scores:
                columns.scores[name] = array("d", [math.nan]) * (length - 1)
            columns.scores[name].append(value)
            found.add(name)
        for values in columns.scores.values():
            if len(values) < length:
                values.append(math.nan)


def _place(known: list[str], name: str) -> int:
    if name not in known:
        known.append(name)
    return known.index(name)


def _cluster(dataset: str, label: str) -> int:
    """A cluster's number. Names mean something within their dataset only, but a text is the same text under any dataset's name."""
    return _digest("cluster", label) if label.startswith("context-") else _digest(dataset, "cluster", label)


def _digest(*parts: Any) -> int:
    """64 bits that stand for these values; 1 and "1" differ."""
    return int.from_bytes(blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def averaged(values: NDArray[Any], examples: NDArray[Any], clusters: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One value per example (the mean over its trials) with its cluster as 0…G−1."""
    import numpy as np

    units, start, inverse, counts = np.unique(examples, return_index=True, return_inverse=True, return_counts=True)
    if len(units) < len(values):
        values, clusters = np.bincount(inverse, values) / counts, clusters[start]
    return values, np.unique(clusters, return_inverse=True)[1]
