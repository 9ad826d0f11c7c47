"""Examples: the rule that every one follows, examples of JSONL files, and datasets as `load` returns them.

One rule holds for local files, catalogue datasets and registered loaders. JSONL, the commonest kind of file, is read as
it is wanted and passed over where it is not; the ids that a file has had are held in about six bytes each. A file is
identified by a hash of its content.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.machine import opened
from context_bench.core.records import DATASET_GIVEN, Example
from context_bench.core.rows import skip
from context_bench.datasets.readers import LineOfJson, json_line, lines_of_json


def tidy(raw: Mapping[str, Any], index: int, dataset: str, where: str) -> Example:
    """`raw` as a complete example, in the key order id, context, question, answer, then the rest.

    `id`: text or whole number, `index` if missing. `context`: text; without one, the `question` is the text to read
    (empty with `turns` alone). `answer`: text; a list of accepted answers goes to `answers`, its first to `answer`.
    `dataset` is set unless the row has one. `cluster`: what is resampled as one unit: the row's own `cluster`, else its
    `group`, else the context (examples that share a text are not independent), else the id. Numbers become text, nulls
    are left out. Raises `BadInput`, naming `where`.
    """
    rest = {key: value for key, value in raw.items() if value is not None}
    example: Example = {"id": id_of(rest.pop("id", index), where)}
    question = _text(rest, "question", where)
    context = _text(rest, "context", where)
    turns = _turns(rest, where)
    if not context and not question and not turns:
        raise BadInput(
            f'{where}: nothing to send: needs a "context", a "question" or "turns"; its keys are {sorted(raw)}'
        )
    example["context"] = context if context is not None else (question or "")
    if question is not None:
        example["question"] = question
    example.update(_answers(rest, where))
    example.update(rest)
    example["dataset"] = rest.get("dataset") or dataset
    example["cluster"] = _cluster(example, shared=context is not None and context != "")
    return example


def id_of(value: Any, where: str) -> str | int:
    """An id as an example carries it. Raises `BadInput` for what is neither text nor a whole number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{where}: id {value!r} is neither text nor a whole number")
    return str(value) if isinstance(value, float) else value


def _text(rest: dict[str, Any], key: str, where: str) -> str | None:
    value = rest.pop(key, None)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise BadInput(f'{where}: "{key}" is {_kind(value)}; expected text')


def _turns(rest: Mapping[str, Any], where: str) -> list[Any] | None:
    turns = rest.get("turns")
    if turns is None:
        return None
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) and "content" in turn for turn in turns):
        raise BadInput(f'{where}: "turns" is {_kind(turns)}; expected a list of {{"role": …, "content": …}}')
    return turns


def _answers(rest: dict[str, Any], where: str) -> Example:
    answer, answers = rest.pop("answer", None), rest.pop("answers", None)
    if isinstance(answer, list):
        answer, answers = None, answer if answers is None else answers
    if answers is not None and not isinstance(answers, list):
        answers = [answers]
    accepted = [_answer(a, where) for a in answers or [] if a is not None]
    if answer is not None:
        first = _answer(answer, where)
        return {"answer": first, "answers": accepted} if accepted else {"answer": first}
    return {"answer": accepted[0], "answers": accepted} if accepted else {}


def _answer(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise BadInput(
        f'{where}: an answer is {_kind(value)}; expected text, or a list of texts under "answer" or "answers"'
    )


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "true or false"}.get(type(value), f"{value!r:.60}")


def _cluster(example: Example, shared: bool) -> str:
    for key in ("cluster", "group"):
        if example.get(key) is not None:
            return str(example[key])
    return f"context-{stable_hash(example['context'], 16)}" if shared else str(example["id"])


def examples_from(source: Iterable[Any], n: int | None = None) -> Iterator[Example]:
    """At most `n` examples of any iterable of dicts, taken one at a time, so that an endless one is no trouble.

    Nothing is changed but a missing `id`, which becomes the running number. Raises `BadInput` for what is not a dict.
    """
    for index, raw in enumerate(islice(source, n)):
        if not isinstance(raw, Mapping):
            raise BadInput(
                f"example {index} of the dataset is {type(raw).__name__}; expected a dict with an id and a context"
            )
        yield {"id": index, **raw} if raw.get("id") is None else dict(raw)


def first_of(dataset: Iterable[Any], most: int | None) -> Iterable[Any]:
    """At most so many examples; all for `None`. Raises `BadInput` for a number below 0."""
    if most is not None and most < 0:
        raise BadInput(f"max_examples is {most}; expected the number of examples wanted, or None for all")
    return dataset if most is None else islice(dataset, most)


_TABLES = 1 << 12


class SeenIds:
    """Remembers hashes of ids in small tables of its own: a set of a million texts takes 150 MB, one large table twice
    its room to grow.

    Of a hash 12 bits say in which table it is and 32 stand there.
    """

    def __init__(self) -> None:
        self._tables = [array("I", bytes(16)) for _ in range(_TABLES)]  # 0: free
        self._taken = array("I", bytes(4 * _TABLES))

    def add(self, name: str) -> bool:
        """Remember an id; true if it is probably there already (among a million different ids, two look alike in one
        file of forty).
        """
        number = hash(name)
        place, number = number % _TABLES, (number // _TABLES) % (1 << 32) or 1
        table = self._tables[place]
        if not _put(table, number):
            return True
        self._taken[place] += 1
        if 4 * self._taken[place] > 3 * len(table):
            larger = self._tables[place] = array("I", bytes(4 * (3 * len(table) // 2)))
            for kept in table:
                if kept:
                    _put(larger, kept)
        return False


def _put(table: array[int], number: int) -> bool:
    size = len(table)
    at = number % size
    while there := table[at]:
        if there == number:
            return False
        at = at + 1 if at + 1 < size else 0
    table[at] = number
    return True


def load_jsonl(path: str | Path, n: int | None = None) -> list[Example]:
    """The first `n` examples (default all) of a file with one JSON object per line.

    Blank lines are skipped and do not count; a missing id becomes the line's index, counted from 0. Raises `BadInput`
    with file and line.
    """
    return list(JsonlExamples(Path(path), str(path), n))


class JsonlExamples(Iterator[Example]):
    """Examples of a JSONL file, tagged `dataset`, the first `n` of them. Two rows with one id are an error: their
    results could not be told apart. Raises `BadInput` with file and line.
    """

    def __init__(self, path: Path, dataset: str, n: int | None = None) -> None:
        self._path, self._dataset = path, dataset
        self._left = -1 if n is None else max(n, 0)  # below 0: all
        self._lines = lines_of_json(path)
        self._seen = SeenIds()

    def __next__(self) -> Example:
        if not self._left:
            self._lines.close()
            raise StopIteration
        line = next(self._lines)
        self._left -= 1
        where = f"{self._path}:{line.number}"
        example = tidy(json_line(line, self._path), line.number - 1, self._dataset, where)
        self._meet(example["id"], line.number)
        return example

    def skip(self, count: int) -> int:
        """Pass over so many examples, as far as there are any; returns how many. Only their ids are looked at."""
        passed = 0
        while passed < count and self._left:
            line = next(self._lines, None)
            if line is None:
                break
            self._left -= 1
            passed += 1
            self._meet(self._id(line), line.number)
        return passed

    def _id(self, line: LineOfJson) -> str | int:
        try:
            value = orjson.loads(line.text).get("id")
            if value is None or type(value) is str or type(value) is int:
                return line.number - 1 if value is None else value
        except (ValueError, AttributeError):
            pass
        # Half a surrogate pair, a number of more than 64 bits, no object: as it is read where it is wanted.
        value = json_line(line, self._path).get("id")
        return id_of(line.number - 1 if value is None else value, f"{self._path}:{line.number}")

    def _meet(self, id_: str | int, number: int) -> None:
        if self._seen.add(str(id_)) and (before := self._line_of(str(id_), number)) is not None:
            raise BadInput(
                f"{self._path}:{number}: id {id_!r} was used on line {before} already; give each row its own"
            )

    def _line_of(self, name: str, until: int) -> int | None:
        """The first line before `until` whose example has this id, if there is one: two ids may have one hash."""
        for line in lines_of_json(self._path):
            if line.number >= until:
                return None
            if str(self._id(line)) == name:
                return line.number
        return None


class Content:
    """A file as it was when its hash was first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[int, ...] | None = None

    @cached_property
    def sha256(self) -> str:
        """In hex digits. The file is read once. Raises `OSError`."""
        with opened(self.path) as file:
            self._state = _state(os.fstat(file.fileno()))
            return hashlib.file_digest(file, "sha256").hexdigest()

    def unchanged(self) -> bool:
        """Compare with the file that `sha256` is about. Any writing shows, also what leaves it as it was."""
        try:
            return self._state is not None and _state(self.path.stat()) == self._state
        except OSError:
            return False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size


def _state(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a dataset's examples, if that can be told without making them.

    `facts`: all that makes them what they are, as JSON values; `unchanged`: is that still so?
    """

    facts: Any
    unchanged: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class IdentifiedExamples:
    """Reads examples from where `origin` says. Whoever reads them otherwise puts another function in its place."""

    read: Callable[[], Iterator[Example]]
    origin: Callable[[], Origin | None]

    def __call__(self) -> Iterator[Example]:
        return self.read()


@dataclass
class LoadedDataset:
    """A dataset that was found and is ready to be read.

    `name`: the specification as typed, also the examples' `dataset` tag. `base`: the same without `:config`.
    `evaluators`: names of evaluator plug-ins that fit. `has_context` is false where the text is the question itself, so
    that nothing can be compressed. `among_others`: set where a run has several; then examples with a tag of their own
    say under `DATASET_GIVEN` which one they are from.
    """

    name: str
    base: str
    evaluators: list[str]
    has_context: bool
    _read: Callable[[], Iterator[Example]] = field(repr=False)
    _facts: Callable[[], dict[str, Any]] = field(repr=False)
    among_others: bool = False

    def examples(self) -> Iterator[Example]:
        """The examples, one at a time; each call starts anew and gives the same ones."""
        return _OneOfSeveral(self._read(), self.name) if self.among_others else self._read()

    def manifest(self) -> dict[str, Any]:
        """Facts needed to get the same examples again: source, resolved revision, hashes, licence, size."""
        return {"name": self.name, "evaluators": self.evaluators, "has_context": self.has_context, **self._facts()}

    def origin(self) -> Origin | None:
        """Facts that determine the examples; `None` where only reading them all would tell."""
        return self._read.origin() if isinstance(self._read, IdentifiedExamples) else None


class _OneOfSeveral(Iterator[Example]):
    """Examples of one of several datasets: a tag of their own does not hide which."""

    def __init__(self, examples: Iterator[Example], name: str) -> None:
        self._examples, self._name = examples, name

    def __next__(self) -> Example:
        example = next(self._examples)
        return example if example.get("dataset") == self._name else {**example, DATASET_GIVEN: self._name}

    def skip(self, count: int) -> int:
        """Pass over so many examples; returns how many there were."""
        return skip(self._examples, count)


class Chained:
    """The examples of several datasets, one after the other, as a run takes them: see
    `core.protocols.Fingerprinted`.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        self._datasets = list(datasets)
        self._origins: list[Origin] = []

    def __iter__(self) -> Iterator[Example]:
        return _Chain(self._datasets)

    def fingerprint(self) -> Any:
        """Facts that determine the examples; `None` where a dataset has none. Reads files."""
        origins = [dataset.origin() if isinstance(dataset, LoadedDataset) else None for dataset in self._datasets]
        self._origins = [origin for origin in origins if origin is not None]
        if len(self._origins) < len(origins):
            return None
        return [[dataset.name, origin.facts] for dataset, origin in zip(self._datasets, self._origins, strict=True)]

    def unchanged(self) -> bool:
        """Do the facts of the last fingerprint still hold?"""
        return all(origin.unchanged() for origin in self._origins)


class _Chain(Iterator[Example]):
    def __init__(self, datasets: Sequence[Any]) -> None:
        self._waiting = iter(datasets)
        self._now: Iterator[Example] = iter(())

    def __next__(self) -> Example:
        while True:
            for example in self._now:
                return example
            self._now = next(self._waiting).examples()

    def skip(self, count: int) -> int:
        """Pass over so many examples; returns how many there were."""
        passed = skip(self._now, count)
        while passed < count and (following := next(self._waiting, None)) is not None:
            self._now = following.examples()
            passed += skip(self._now, count - passed)
        return passed
