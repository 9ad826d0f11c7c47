"""Data of charts: one record for each kind of mark. `reports.charts` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from context_bench.reports.page import Figure, Tone


@dataclass(frozen=True, slots=True)
class Point:
    """One system in the quality–price plane (`pareto`)."""

    name: str
    quality: Figure
    cost: Figure
    front: bool = False  # nobody is both better and cheaper, by more than noise
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class LinePoint:
    """A point of the line of `name` (`rates`, `recall`, `coverage`). `panel`: the plot it stands in, where there are
    several.
    """

    name: str
    x: float
    y: Figure
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of `n` values (`distribution`). `values`: all of them if they are few, else quantiles at even distances,
    in order.
    """

    name: str
    n: int
    median: Figure
    p95: Figure
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A paired difference to the baseline (`forest`). `group`: the part of the data it is about, "" for all of it."""

    name: str
    difference: Figure
    verdict: str
    tone: Tone
    n: int
    margin: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class TurnBar:
    """Prompt tokens of requests number `first` to `last` of a session, mean per request (`waterfall`).

    `cached`: read from the prompt cache; `rewritten`: as much as stood in the request before and was changed, or moved
    by a change in front of it; `new`: the rest.
    """

    name: str
    first: int
    last: int
    cached: float
    rewritten: float
    new: float


@dataclass(frozen=True, slots=True)
class Rated:
    """The score of `name` in one dimension (`dots`)."""

    name: str
    dimension: str
    score: Figure


@dataclass(frozen=True, slots=True)
class BarPart:
    """A bar, or a part of one: `part` of `name` (`failures`, `strategies`). `of`: what the amount is a share of, where
    that is counted.
    """

    name: str
    part: str
    amount: Figure
    of: int | None = None


Mark = Point | LinePoint | Spread | Gap | TurnBar | Rated | BarPart
M = TypeVar("M", Point, LinePoint, Spread, Gap, TurnBar, Rated, BarPart)


@dataclass(slots=True)
class Chart:
    """Content of one chart: `kind` is known to `reports.charts`, and says which record `data` consists of.

    `about` says in a sentence or two how to read it; `x` and `y` title the axes. `names`: all systems of the page in
    their order, so that each has the same colour in every chart. `span`: the ends of the scale, where values have them
    by definition.
    """

    id: str
    kind: str
    title: str
    about: str
    x: str
    y: str
    data: Sequence[Mark] = ()
    names: Sequence[str] = field(default_factory=list)
    span: tuple[float, float] | None = None

    def of(self, kind: type[M]) -> list[M]:
        """The data, which must consist of records of this kind: `TypeError` if it does not."""
        found = [each for each in self.data if isinstance(each, kind)]
        if len(found) < len(self.data):
            raise TypeError(f"a chart of kind {self.kind!r} is drawn from {kind.__name__} records only")
        return found
