"""Families: one record for each subject that is measured (memories, compressors, traffic, agents, traces), and the list
of them.

The record says what the subject brings to commands, data, runs, stores and reports. The platform walks the list and
asks no run what it is about. Built-in records stand in `BUILTINS`; an installed package offers its own under the
entry-point group `context_bench.families`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import DeclaredNames, registry

if TYPE_CHECKING:
    from context_bench.core.records import EvalRow, Result

#: Where each built-in record is. Reports show the sections of families in this order.
BUILTINS = (
    "context_bench.traffic.family:FAMILY",
    "context_bench.agents.family:FAMILY",
    "context_bench.memory.family:FAMILY",
    "context_bench.compression.family:FAMILY",
    "context_bench.traces.family:FAMILY",
)

#: Folders of the platform whose files declare plug-ins of a kind, as in `METRICS = {"latency": "Latency"}`.
_FOLDERS = {"evaluator": ("evaluators", "judge"), "metric": ("metrics",)}


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line, loaded when it is called.

    `place`: "package.module:function", or "package.module:app" for a group of commands. `about`: its line in the list.
    `settings`: of its parser. `after`: the command that it follows in the list; without one it comes last. `default`:
    the command of a group that is meant where none is named.
    """

    place: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    after: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Datasets:
    """Data sets that a family opens by name, as `context_bench.datasets.load` is asked for them.

    `prefix`: names that begin with it are always the family's. `owns(name)`: true for another name of its own.
    `load(name, n, seed)` gives a `LoadedDataset`. `names()`: those for the list of all. `describe(name)`: what is known
    without reading.
    """

    prefix: str
    owns: Callable[[str], bool]
    load: Callable[[str, int | None, int], Any]
    names: Callable[[], Iterable[str]]
    describe: Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stored:
    """Access of a family that completes a result: the open `store`, the run's `id`, and its `answers`.

    `answers()` reads rows with their `row`, `example` and `output`, in plan order.
    """

    store: Any
    id: str
    answers: Callable[[], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Kept:
    """Data that a family keeps in a store beside runs, so that cleaning the store heeds it.

    `old(store, before)`: number → name of what was not touched since and is not being written.
    `remove(connection, numbers)` removes it, without its bodies. `bodies()`: columns of the store that name stored
    bodies, which stay while one of them does.
    """

    old: Callable[[Any, float], Mapping[int, str]]
    remove: Callable[[Any, list[int]], None]
    bodies: Callable[[], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as a run kept it: the example that was asked, the system's output, and what else is known of it (`details`:
    keys of `runner.details`).
    """

    row: EvalRow
    example: Mapping[str, Any]
    output: Mapping[str, Any]
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextMark:
    """Characters `start` up to `end` of a text, with what is said of them. `tone`: good, bad, or seen."""

    start: int
    end: int
    label: str
    tone: str = "seen"


@dataclass(frozen=True, slots=True)
class RowStep:
    """One step of a transcript: `facts` are (name, value) pairs of figures, `texts` (name, text) pairs in order.
    `folded`: pages open it only when asked.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """One titled part of what a row shows, as plain data: pages, reports and terminals lay it out and make its texts
    harmless.

    `note`: a sentence below the title, such as why something is not known. A table of `columns` and `rows`, whose
    cells are texts, numbers, `True` or `False` (a tick or a cross) or `None`; a `text` with `marks` that do not overlap
    (`changes`: it is a diff, coloured by line); or `steps`. `replaces`: what the page need not show since this part
    does: answer, context, exchanges.
    """

    title: str
    note: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str | float | None, ...]] = ()
    text: str | None = None
    marks: tuple[TextMark, ...] = ()
    changes: bool = False
    steps: tuple[RowStep, ...] = ()
    replaces: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Sections:
    """Sections of a family on the page of its runs. Functions get the page's `reports.declared.ReportContext`.

    Attributes:
        build: its sections, in order.
        first: ids of those that stand at the head of the page, before money and quality.
        belongs: true for a page that these are for; default: the result holds the family's figures.
        sentences: verdicts of its own.
        facts: (label, text) pairs for the head of the page instead of model and shape.
        unit: the word for what is counted there.
        shown: keys of the summary that its tables show.
        apart: true for a score, by its name, that it shows itself; the quality section leaves it out.
        graded: a sentence for the quality section, with a space before it.
        replaces: ids of the platform's sections for which it has its own: setup, truncation, tokens, time, metrics.
        alone: the advice for a run of one system; `""`: none is needed.
        below: text after the report on a terminal, from the result; its manifest's `run` has the `store` that commands
            must name, if it is not the usual one.
        beside: sections for the page of a run of any family.
        row: parts of what one of its rows shows, in order.
    """

    build: Callable[[Any], Sequence[Any]] = lambda material: ()
    first: tuple[str, ...] = ()
    belongs: Callable[[Any], bool] | None = None
    sentences: Callable[[Any], Sequence[Any]] = lambda material: ()
    facts: Callable[[Any], Sequence[tuple[str, Any]]] | None = None
    unit: str = "Examples"
    shown: Collection[str] = ()
    apart: Callable[[Any, str], bool] = lambda material, name: False
    graded: Callable[[Any], str] = lambda material: ""
    replaces: Collection[str] = ()
    alone: str | None = None
    below: Callable[[Any], str] = lambda result: ""
    beside: Callable[[Any], Sequence[Any]] = lambda material: ()
    row: Callable[[StoredRow], Sequence[RowPart]] = lambda stored: ()


@dataclass(frozen=True, slots=True)
class Export:
    """A format of `export` that only runs of the family have; `refusal`: the reason for which another run is refused,
    after its name.

    `write(result, answers, systems, stream)`: `answers(system)` reads rows of a system with `row`, `example` and
    `output`, all for `None`; `systems`: those that are asked for, `None` for all. `newline`: one is added on standard
    output.
    """

    write: Callable[[Any, Callable[[str | None], Iterable[Any]], list[str] | None, Any], None]
    refusal: str
    newline: bool = False


@dataclass(frozen=True, slots=True)
class GradeFault:
    """One thing that a check found wrong. `kind`: as `session/grade/rules.toml` has it; `detail`: a phrase for people.

    `sent`, `arrived`: the bytes that show it, before and behind, as text of at most some thousand characters and
    without keys. `tokens`: of the request that it is about, where its price follows from that.
    """

    kind: str
    detail: str
    sent: str = ""
    arrived: str = ""
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class GradeAnswer:
    """Answer to a check. `not_asked`: the reason for which it could not be asked; `offered`: false where the thing
    under test does not have what is asked about, such as an API. `detail`: what was seen, where nothing is wrong.
    """

    faults: tuple[GradeFault, ...] = ()
    not_asked: str = ""
    offered: bool = True
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GradeCheck:
    """One question of a grade. `headings`: of the rules, which it is asked for; a fault counts under its kind's own
    heading. `ask` never raises for what the thing under test does.
    """

    name: str
    headings: tuple[str, ...]
    question: str
    ask: Callable[[], Awaitable[GradeAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeTarget:
    """The thing to be graded. `subject`: proxy, system, memory, agent-log or command; `value`: its URL, spec, file or
    command line.

    `start`: a command line that starts the proxy, in which `{port}` and `{back}` stand for its port and its provider's
    URL. `back`: the port of the provider that the checks bring, 0 for a free one. `headers`: of every request. `key`:
    what the proxy itself checks. `model`: sent instead of each API's usual one. `load`: requests at once.
    """

    subject: str
    value: str
    start: str = ""
    back: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    model: str | None = None
    load: int = 32
    timeout: float = 15.0


#: Opens what the checks of a target need, and gives them: `async with checks(target) as found`.
GradeChecks = Callable[[GradeTarget], AbstractAsyncContextManager[Sequence[GradeCheck]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A subject that is measured. A run belongs to it if its manifest has the `manifest_key`; the value there is
    `about` below.

    `systems`, `evaluators`, `metrics`: names as users type them → "package.module:Class". `unscored(about)`: true where
    nothing is judged. `notes(result, about, score_field)`: sentences for above and for below those of the run.
    `complete(result, about, stored)`: fills in `result.families[manifest_key]` and what else it knows.
    `beside(result, stored)`: adds figures of its own to the result of a run of any family, in `result.families` under
    another key.
    `setup_totals(records)`: figures of a system's set-ups. `in_order`: systems whose answers have no ranking.
    `by_cluster`: true if examples depend on one another within their cluster. `large_controls`: true if a control may
    be too long for the reader, which is then no failure of the run. `offers`: functions, classes and tables that other
    rooms ask for by name → "package.module:object"; see `offered`. `judges`: "package.module:function" of the command
    line that gives the evaluators for judging stored answers again, from the options asked for, the run's record, and
    those made of the options.
    """

    name: str
    manifest_key: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    datasets: Datasets | None = None
    systems: Mapping[str, str] = field(default_factory=dict)
    evaluators: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    unscored: Callable[[Mapping[str, Any]], bool] = lambda about: False
    notes: Callable[[Result, Mapping[str, Any], str | None], tuple[list[str], list[str]]] | None = None
    complete: Callable[[Result, Mapping[str, Any], Stored], None] | None = None
    beside: Callable[[Result, Stored], None] | None = None
    setup_totals: Callable[[Sequence[Any]], dict[str, float]] | None = None
    in_order: frozenset[str] = frozenset()
    by_cluster: bool = False
    large_controls: bool = False
    sections: Sections = field(default_factory=Sections)
    exports: Mapping[str, Export] = field(default_factory=dict)
    offers: Mapping[str, str] = field(default_factory=dict)
    judges: str = ""
    kept: Kept | None = None
    checks: Mapping[str, str] = field(default_factory=dict)


def families() -> tuple[Family, ...]:
    """All families: the built-in ones, then those that installed packages offer. One that cannot be used is left out
    with a warning.
    """
    return _all(tuple(sys.path))


@lru_cache(maxsize=1)
def built_in() -> tuple[Family, ...]:
    """The families of this package."""
    return tuple(_load(place) for place in BUILTINS)


def families_of(manifest: Mapping[str, Any]) -> list[Family]:
    """The families that a run belongs to, by its manifest."""
    return [family for family in families() if manifest.get(family.manifest_key)]


def row_parts(manifest: Mapping[str, Any], stored: StoredRow) -> list[RowPart]:
    """The parts that a run's families show of one of its rows. One that cannot make them says the reason instead."""
    found: list[RowPart] = []
    for family in families_of(manifest):
        try:
            found += family.sections.row(stored)
        except Exception as error:  # what systems and data keep may be anything, and the rest of the row stays readable
            found.append(RowPart(title=family.name, note=f"This could not be shown: {type(error).__name__}: {error}"))
    return found


def large_controls(manifest: Mapping[str, Any]) -> set[str]:
    """The controls of a run that may be too long for its reader."""
    if not any(family.large_controls for family in families_of(manifest)):
        return set()
    return {name for cell in manifest.get("cells") or [] for name in cell.get("controls") or []}


def brought(kind: str) -> dict[str, str]:
    """Name → place of what the families of installed packages bring; built-in ones are in the tables of this
    package.
    """
    return _tables(kind, families()[len(built_in()) :])


def built_in_names(kind: str) -> dict[str, str]:
    """Name → place of what the files of the platform declare, and of what the families of this package bring."""
    return {name: place for table in platform_tables(kind) for name, place in table.items()} | _tables(kind, built_in())


def platform_tables(kind: str) -> list[DeclaredNames]:
    """Names that files of the platform declare, by folder. In a folder of plug-ins a new file is all that it takes."""
    package = Path(__file__).parents[1]
    return [
        DeclaredNames(f"context_bench.{folder}", package / folder, f"{kind}s".upper())
        for folder in _FOLDERS.get(kind, ())
    ]


def offered(name: str) -> Any:
    """The object that a family offers to other rooms under `name`; `LookupError` if none does."""
    place = next((family.offers[name] for family in families() if name in family.offers), None)
    if place is None:
        raise LookupError(f"no family offers {name!r}")
    return _object(place)


def checks_of(subject: str) -> list[GradeChecks]:
    """The checks that families bring for a subject of a grade; `UnknownName` if none does."""
    places = [family.checks[subject] for family in families() if subject in family.checks]
    if not places:
        from context_bench.core.errors import UnknownName

        raise UnknownName("subject of a grade", subject, {each for family in families() for each in family.checks})
    return [_object(place) for place in places]


def _tables(kind: str, known: Iterable[Family]) -> dict[str, str]:
    tables: dict[str, Callable[[Family], Mapping[str, str]]] = {
        "system": attrgetter("systems"),
        "evaluator": attrgetter("evaluators"),
        "metric": attrgetter("metrics"),
    }
    return {name: place for family in known for name, place in tables[kind](family).items()} if kind in tables else {}


def _load(place: str) -> Family:
    family: Family = _object(place)
    return family


def _object(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@lru_cache(maxsize=4)
def _all(path: tuple[str, ...]) -> tuple[Family, ...]:
    found = list(built_in())
    for point, load in registry.offered("family"):
        try:
            family = load()
            _check(family, found)
        except Exception as error:  # a package of somebody else's must not take every command with it
            warnings.warn(f"family {point!r} is left out: {type(error).__name__}: {error}", stacklevel=2)
        else:
            found.append(family)
    return tuple(found)


def _check(family: Any, others: Sequence[Family]) -> None:
    if not isinstance(family, Family):
        raise TypeError(f"expected a context_bench.core.families.Family, got {type(family).__name__}")
    from context_bench.core.records import Result

    if family.manifest_key in {"schema", "setup", *Result.__dataclass_fields__} - {
        each.manifest_key for each in others
    }:
        raise ValueError(f"its manifest key {family.manifest_key!r} is a part of every result")
    for other in others:
        if family.name == other.name or family.manifest_key == other.manifest_key:
            raise ValueError(
                f"its name {family.name!r} or manifest key {family.manifest_key!r} is taken by {other.name!r}"
            )
