"""Rows become columns: a few hundred at a time, number by number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import COMPLETION, COST, TTFT, qa_type
from context_bench.engine.columns import Columns, Numbers, digest

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Gatherer:
    """Reads rows into columns; datasets and kinds of question get one number over all systems."""

    def __init__(self) -> None:
        self.datasets: list[str] = []
        self.types: list[str] = []
        self.fields: dict[int, set[str]] = {}  # dataset → scores that some row of it has

    def take(self, columns: Columns, rows: Sequence[EvalRow]) -> None:
        """Take the numbers of a hundred rows or so down into `columns`: of one number after the other, which is cheaper than row by row."""
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

    def _scores(self, columns: dict[str, Numbers], scores: list[dict[str, float]], datasets: list[int], place: int) -> None:
        import numpy as np

        alone = datasets[0] if len(set(datasets)) == 1 else None
        for name in dict.fromkeys(chain.from_iterable(scores)):
            values = _finite([each.get(name) for each in scores])
            if _put(columns, name, place, values):
                having = [alone] if alone is not None else {datasets[at] for at in np.flatnonzero(~np.isnan(values)).tolist()}
                for dataset in having:
                    self.fields.setdefault(dataset, set()).add(name)


def _examples(columns: Columns, rows: Sequence[EvalRow], shapes: Sequence[str]) -> None:
    """Take down which examples the rows are about, and their clusters."""
    examples = array("Q", [digest(row.dataset, row.example_id, shape, 0) for row, shape in zip(rows, shapes, strict=True)])
    labels = [row.group if row.cluster is None else row.cluster for row in rows]
    if len(columns.labels) or any(label is not None for label in labels):
        if not len(columns.labels):
            columns.labels.extend(columns.examples)
        told = zip(rows, labels, examples, strict=True)
        columns.labels.extend([example if label is None else _cluster(row.dataset, label) for row, label, example in told])
    columns.examples.extend(examples)


def _put(columns: dict[str, Numbers], name: str, place: int, values: NDArray[Any]) -> bool:
    """Put numbers into the column of that name, which is made when there is a number for it; false if there is none."""
    import numpy as np

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


def _first(facts: Sequence[dict[str, Any]], name: str, *others: str) -> NDArray[Any]:
    """Of each row the first of these facts that is a number."""
    import numpy as np

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
    import numpy as np

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
    """A cluster's number. Names mean something within their dataset only, but a text is the same text under any dataset's name."""
    return digest("cluster", label) if label.startswith("context-") else digest(dataset, "cluster", label)
