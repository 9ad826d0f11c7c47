"""Datasets as `load` returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.iterables import skip
from context_bench.core.records import Example


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a dataset's examples, if that can be told without making them.

    `told`: all that makes them what they are, as JSON values; `unchanged`: is that still so?
    """

    told: Any
    unchanged: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Reading:
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
    that nothing can be compressed.
    """

    name: str
    base: str
    evaluators: list[str]
    has_context: bool
    _read: Callable[[], Iterator[Example]] = field(repr=False)
    _facts: Callable[[], dict[str, Any]] = field(repr=False)

    def examples(self) -> Iterator[Example]:
        """The examples, one at a time; each call starts anew and gives the same ones."""
        return self._read()

    def manifest(self) -> dict[str, Any]:
        """Facts needed to get the same examples again: source, resolved revision, hashes, licence, size."""
        return {"name": self.name, "evaluators": self.evaluators, "has_context": self.has_context, **self._facts()}

    def origin(self) -> Origin | None:
        """Facts that determine the examples; `None` where only reading them all would tell."""
        return self._read.origin() if isinstance(self._read, Reading) else None


class Chained:
    """The examples of several datasets, one after the other, as a run takes them: see
    `core.protocols.Fingerprinted`.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        self._datasets = list(datasets)
        self._origins: list[Origin] = []

    def __iter__(self) -> Iterator[Example]:
        return _Chain(self._datasets)

    def told(self) -> Any:
        """Facts that determine the examples; `None` where a dataset cannot tell. Reads files."""
        origins = [each.origin() if isinstance(each, LoadedDataset) else None for each in self._datasets]
        self._origins = [each for each in origins if each is not None]
        if len(self._origins) < len(origins):
            return None
        return [[each.name, origin.told] for each, origin in zip(self._datasets, self._origins, strict=True)]

    def unchanged(self) -> bool:
        """Is what was told still so?"""
        return all(each.unchanged() for each in self._origins)


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
