"""One pass over the rows of a run: they become the sums of `tally`."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from context_bench.core.records import EvalRow
from context_bench.core.rows import in_pieces
from context_bench.reports.tally import Line, Tallies, Tally, failure_class, shape_of


def tally(rows: Iterable[EvalRow]) -> Tallies:
    """Sums of all rows. Lines keep the order in which they first occur."""
    tallying = Tallying()
    for piece in in_pieces(rows):
        tallying.take(piece)
    return tallying.result()


class Tallying:
    """The pass over the rows, a hundred or so at a time, for who reads them for something else as well."""

    def __init__(self) -> None:
        self._found = Tallies()
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

    def _line(self, line: Line, places: Sequence[int], rows: Sequence[EvalRow]) -> None:
        whole = self._found.lines.get(line)
        if whole is None:
            whole = self._found.lines[line] = Tally()
            self._only[line] = rows[0].dataset
        only = self._only.get(line)
        if only is None or any(row.dataset != only for row in rows):
            self._by_dataset(line, whole, rows)
        whole.take(rows)
        whole.take_changes(places, rows)

    def _by_dataset(self, line: Line, whole: Tally, rows: Sequence[EvalRow]) -> None:
        parts = self._found.datasets
        if (only := self._only.pop(line, None)) is not None:
            parts[line, only] = whole.of_scores()
        for name in dict.fromkeys(row.dataset for row in rows):
            if (part := parts.get((line, name))) is None:
                part = parts[line, name] = Tally()
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


def _shapeless(found: Tallies) -> Tallies:
    """With a single shape in the run, lines are simply systems."""
    found.lines = {(system, None): each for (system, _), each in found.lines.items()}
    found.datasets = {((system, None), name): each for ((system, _), name), each in found.datasets.items()}
    return found
