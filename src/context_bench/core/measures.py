"""Measures: title, unit, direction and place in a report of a score or of a number of a summary, each declared by the
file that computes it.

```python
METRICS = {"longest": "Longest"}  # of an evaluator: EVALUATORS
MEASURES = {"longest_answer": {"title": "longest answer", "unit": "tokens", "better": "lower", "place": "tokens"}}
```

A key may hold several names with blanks between. The files of this package are read, not imported. An installed package
declares `MEASURES` in the module of its class.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache, partial
from typing import Any, Literal

from context_bench.core.families import brought, built_in, platform_tables
from context_bench.core.lazy import DeclaredNames, declarations, registry
from context_bench.core.plugins import load_object

Unit = Literal["score", "share", "tokens", "usd", "seconds", "count", "number", "p"]


def percent(share: float) -> str:
    """A share wherever it is printed: `76 %`; below 10 % and just below all with a digit behind the point (`1.3 %`,
    `99.6 %`), so that little is not nothing and nearly all is not all.
    """
    size = abs(100 * share)
    return f"{100 * share:z.{1 if 0 < size < 9.95 or 99 < size < 100 else 0}f} %"


def dollars(value: float) -> str:
    """US dollars wherever they are printed: `$12.40`, `$0.0567`, `$0.00281`: three digits at least that tell something,
    so that what is saved of a small bill is seen.
    """
    size = abs(value)
    digits = 2 if size >= 1 or size == 0 else 4 if size >= 0.01 else min(15, 2 - math.floor(math.log10(size)))
    return f"{'-' if value < 0 else ''}${size:,.{digits}f}"


def took(seconds: float) -> str:
    """A measured time wherever it is printed: `0.3 ms`, `420 ms`, `1.204 s`, `48.6 s`, `4 min 23 s`, `2 h 5 min`."""
    if abs(seconds) < 0.9995:
        if 0 < abs(seconds) < 0.00005:
            return "<0.1 ms"
        return f"{1000 * seconds:.{1 if 0 < abs(seconds) < 0.00995 else 0}f} ms"
    if abs(seconds) < 59.95:
        return f"{seconds:,.{3 if abs(seconds) < 10 else 1}f} s"
    minutes, rest = divmod(round(abs(seconds)), 60)
    text = f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
    return f"-{text}" if seconds < 0 else text


_KINDS = ("evaluator", "metric")


@dataclass(frozen=True, slots=True)
class Measure:
    """The way reports show a score of a row, or a number of a summary.

    Attributes:
        title: of its column; without one its name, and it is printed as a plain number.
        unit: how it is printed.
        better: "higher" or "lower" values are better, or "" where neither is.
        place: id of the section that shows it. "metrics" is the section of all metrics, "quality" that of scores.
        about: explains the column.
    """

    title: str = ""
    unit: Unit = "number"
    better: Literal["higher", "lower", ""] = ""
    place: str = "metrics"
    about: str = ""

    @property
    def explanation(self) -> str:
        """The explanation of the column, its direction included."""
        return f"{self.about}; {self.better} is better" if self.about and self.better else self.about


class Measures:
    """The measures that are declared: in this package, in installed ones, and beside the classes of `plugins`, the
    evaluators and metrics at hand.
    """

    def __init__(self, plugins: Iterable[Any] = ()) -> None:
        self._rows = dict(_built_in())
        for plugin in (*_of_others(), *plugins):
            self._rows |= _declared_beside(plugin)

    def of(self, name: str) -> Measure | None:
        """The measure of a score or number. A declared name may hold `*`, as in `pass_at_*`."""
        return _named(self._rows, name)


def built_in_measure(name: str) -> Measure | None:
    """The measure of a score or number that this package declares."""
    return _named(_built_in(), name)


@lru_cache(maxsize=1024)
def unit_of_score(name: str) -> Unit:
    """The unit that a row's score is printed in: of a time, an amount or a count of ours its own, else "score"."""
    measure = built_in_measure(name)
    return measure.unit if measure is not None and measure.unit in ("seconds", "usd", "tokens", "count") else "score"


def _named(rows: Mapping[str, Measure], name: str) -> Measure | None:
    if (measure := rows.get(name)) is not None:
        return measure
    return next((measure for form, measure in rows.items() if "*" in form and fnmatchcase(name, form)), None)


@cache
def _built_in() -> Mapping[str, Measure]:
    found = [rows for folder in _declaring_places() for _, rows in declarations(folder, "MEASURES")]
    return {name: measure for rows in found for name, measure in _read(rows).items()}


def _read(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Measure]:
    return {name: Measure(**row) for names, row in rows.items() for name in names.split()}


def _declaring_places() -> Iterator[Any]:
    """Folders of this package with files that declare evaluators or metrics."""
    for kind in _KINDS:
        families = (getattr(family, f"{kind}s") for family in built_in())
        yield from (table.folder for table in (*platform_tables(kind), *families) if isinstance(table, DeclaredNames))


def _of_others() -> Iterator[Any]:
    """Evaluators and metrics that users registered or installed packages offer. One that cannot be loaded is left
    out: whoever uses it is told the reason.
    """
    for kind in _KINDS:
        yield from (registry.get(kind, name) for name in registry.list(kind))
        loads = [load for _, load in registry.offered(kind)]
        loads += [partial(load_object, place) for place in brought(kind).values()]
        for load in loads:
            try:
                yield load()
            except Exception as error:
                warnings.warn(f"a {kind} is left out: {type(error).__name__}: {error}", stacklevel=2)


def _declared_beside(plugin: Any) -> dict[str, Measure]:
    """The measures that the module of a plug-in's class declares."""
    module = sys.modules.get(getattr(plugin, "__module__", None) or "")
    try:
        return _read(getattr(module, "MEASURES", {}))
    except (AttributeError, TypeError) as error:
        warnings.warn(f"MEASURES of {plugin.__module__} is left out: {error}", stacklevel=2)
        return {}
