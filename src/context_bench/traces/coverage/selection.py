"""Selections of a run, step by step: from a trace, or from a prediction in the original's shape.

Also the records that coverage is made of: the policies for odd input, the repository that scoring asks, the resolver of
a log's paths, and the figures of one run with the row they are written as.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

from context_bench.core.ledger import LineTable, Range
from context_bench.traces.gold import clean_path
from context_bench.transcripts.trace import Event, Trace

RETRIEVAL = ("read", "search", "list")  # the kinds of calls that are steps


@dataclass(slots=True)
class Selection:
    """Places that one step, or a whole run, looked at. `spans` may name a file more than once; its ranges are lines,
    `"all"`, or `None`.

    `tokens`, `t`: where in the run it was (tokens processed before it, seconds since the epoch). `edited`: files
    changed since the step before. `turn`: the model's reply the step was part of, where the log tells.
    """

    files: list[str] = field(default_factory=list)
    spans: list[tuple[str, Sequence[Range] | Literal["all"] | None]] = field(default_factory=list)
    symbols: dict[str, list[str]] = field(default_factory=dict)
    tokens: int | None = None
    t: float | None = None
    edited: set[str] = field(default_factory=set)
    turn: int | None = None

    def __bool__(self) -> bool:
        return bool(self.files or self.spans or self.symbols)


def prediction(traj_data: Mapping[str, Any]) -> tuple[list[Selection], Selection]:
    """Steps and final context of a unified prediction (`pred_steps`, `pred_files`, `pred_spans`, `pred_symbols`).

    Without `pred_steps` the final context, if there is any, is the only step. Malformed parts are left out.
    """
    final = _selection(traj_data, "pred_")
    rows = traj_data.get("pred_steps")
    steps = [_selection(row, "") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    if not steps and final:
        steps = [final]
    return steps, final


def selections(
    trace: Trace, *, count: Collection[str] = ("shown",), by: Literal["call", "turn"] = "call"
) -> tuple[list[Selection], Selection | None]:
    """Steps and self-named final context of a trace.

    A step is a call that reads, searches or lists, whatever came of it (`by="turn"`: all such calls of one reply of the
    model). Only events of a strength in `count` add to it, and never failed ones; `"edits"` in `count` takes edited
    lines as read.
    """
    steps: dict[tuple[bool, int], Selection] = {}
    edited: set[str] = set()
    for event in trace.events:
        if event.kind == "edit" and event.ok and event.path:
            edited.add(event.path)
        looked = (
            event.kind in RETRIEVAL
            or (event.kind == "exec" and event.path is not None)
            or (event.kind == "edit" and "edits" in count)
        )
        if not looked:
            continue
        whole_turn = by == "turn" and event.turn is not None
        key = (whole_turn, (event.turn or 0) if whole_turn else event.step)
        step = steps.get(key)
        if step is None:
            step = steps[key] = Selection(tokens=event.tokens_before, t=event.t, edited=edited, turn=event.turn)
            edited = set()
        if event.ok and event.path and (event.strength in count or event.kind == "edit"):
            _take(step, event)
    final = None
    if trace.final is not None:
        final = Selection()
        for event in trace.final:
            _take(final, event)
    return list(steps.values()), final


def step_statistics(trace: Trace) -> dict[str, Any]:
    """Count the calls of a run: of each kind, failed, cut; and the reads of each provenance and strength."""
    kinds: dict[str, set[int]] = {}
    for event in trace.events:
        kinds.setdefault(event.kind, set()).add(event.step)
    looked = [event for event in trace.events if event.path and event.kind != "edit"]
    return {
        "steps": trace.step_count,
        "calls": {kind: len(steps) for kind, steps in sorted(kinds.items())},
        "failed_reads": len({(e.step, e.path) for e in looked if not e.ok}),
        "truncated": len({e.step for e in trace.events if e.truncated}),
        "sidechain_calls": len({e.step for e in trace.events if e.sidechain}),
        "files_read": len({e.path for e in looked if e.ok and e.strength == "shown"}),
        "files_edited": len({e.path for e in trace.events if e.kind == "edit" and e.ok and e.path}),
        "provenance": dict(Counter(e.provenance for e in looked if e.ok)),
        "strength": dict(Counter(e.strength for e in looked if e.ok)),
    }


def _selection(row: Mapping[str, Any], prefix: str) -> Selection:
    files, spans, symbols = (row.get(prefix + name) for name in ("files", "spans", "symbols"))
    out = Selection(files=[path for path in files if isinstance(path, str)] if isinstance(files, list) else [])
    for path, ranges in spans.items() if isinstance(spans, Mapping) else ():
        rows = [r for r in ranges if isinstance(r, Mapping)] if isinstance(ranges, list) else []
        pairs = [(r["start"], r["end"]) for r in rows if _whole(r.get("start")) and _whole(r.get("end"))]
        if pairs:
            out.spans.append((str(path), pairs))
    for path, names in symbols.items() if isinstance(symbols, Mapping) else ():
        if isinstance(names, list):
            out.symbols[str(path)] = [name for name in names if isinstance(name, str)]
    return out


def _take(selection: Selection, event: Event) -> None:
    if event.path is None:
        return
    if event.named:
        selection.files.append(event.path)
    if event.ranges is not None:
        selection.spans.append((event.path, event.ranges))
    if event.symbols:
        selection.symbols.setdefault(event.path, []).extend(event.symbols)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Resolver:
    """Finds the file of the repository that a path in a log means. `resolve` gives `None` if none is sure: a bare name
    is never guessed.
    """

    def __init__(self, paths: Collection[str], cwd: str | None = None) -> None:
        self._paths = paths if isinstance(paths, set | frozenset | dict) else frozenset(paths)
        self._folder = posixpath.normpath(cwd).rstrip("/") + "/" if cwd else ""

    def resolve(self, path: str) -> str | None:
        """The file a path means.

        Relative paths count from the root of the repository, absolute ones from the agent's folder, `/testbed` or
        `/workspace/<one>`; else it is the one ending of at least two components that is a file.
        """
        path = path.strip().strip("'\"")
        if not path or "\0" in path:
            return None
        if path not in self._paths and "\\" in path:
            path = path.replace("\\", "/")
        plain = posixpath.normpath(path)
        if plain.startswith("//"):
            plain = plain[1:]
        if plain == ".." or plain.startswith("../"):
            return None
        if plain in self._paths:
            return plain
        if plain.startswith("/"):
            for inner in (plain.removeprefix(self._folder), clean_path(plain)):
                if inner in self._paths:
                    return inner
        parts = plain.strip("/").split("/")
        found = [ending for n in range(1, len(parts) - 1) if (ending := "/".join(parts[n:])) in self._paths]
        return found[0] if len(found) == 1 else None


class Definition(NamedTuple):
    """A definition in a file: kind of its syntax node, its names, first byte, byte after the last."""

    kind: str
    names: tuple[str, ...]
    start: int
    end: int


class Definitions:
    """The definitions of one file in the order of their beginnings, found by what they hold and by name without looking
    at each.
    """

    def __init__(
        self, items: Iterable[Definition], with_names: Callable[[], Iterable[Definition]] | None = None
    ) -> None:
        """`with_names`: the same items with their names, where those of `items` were left out."""
        self.items = sorted(items, key=lambda one: (one[2], -one[3], one[0]))
        self._with_names = with_names
        self._starts = [one[2] for one in self.items]
        self._reach = list(accumulate([one[3] for one in self.items], max))  # how far those up to here go
        self._by_name: dict[str, list[Definition]] | None = None

    def __iter__(self) -> Iterator[Definition]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def touched(self, spans: Iterable[Range]) -> Iterator[Definition]:
        """Those that bytes of `spans` touch, enclosing ones too; one that two spans touch comes twice.

        As in the original, a span that begins at the byte after a definition touches it (never so where a line end lies
        between).
        """
        for first, last in spans:
            for index in range(bisect_left(self._reach, first), bisect_right(self._starts, last)):
                if self.items[index].end >= first:
                    yield self.items[index]

    def named(self, name: str) -> list[Definition]:
        """Every definition of this name, else of what comes after its last dot."""
        if self._by_name is None:
            self._by_name = {}
            for one in (
                sorted(self._with_names(), key=lambda one: (one[2], -one[3], one[0]))
                if self._with_names
                else self.items
            ):
                for known in one.names:
                    self._by_name.setdefault(known, []).append(one)
        name = name.strip()
        return self._by_name.get(name) or self._by_name.get(name.rsplit(".", 1)[-1]) or []


class RepositoryFiles(Protocol):
    """The questions of scoring about the repository, at the commit from which the agent started."""

    def paths(self) -> Collection[str]: ...

    def table(self, path: str) -> LineTable | None:
        """Offsets at which the lines of a file begin; `None` if there is no such file."""

    def definitions(self, path: str, profile: str) -> Definitions | None:
        """The definitions of a file; `None` if nothing can tell (no grammar is installed)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for odd input. `profile`: the kinds that count as definitions. `upstream`: like the original, faults
    included.
    """

    name: str
    profile: str
    upstream: bool = False

    @property
    def share_of_nothing(self) -> float | None:
        """Coverage, precision or usage drop where there is nothing to divide by."""
        return 1.0 if self.upstream else None

    @property
    def waste_of_nothing(self) -> float | None:
        """Redundancy where nothing was read."""
        return 0.0 if self.upstream else None


STRICT = Policy("strict", "definitions")
UPSTREAM = Policy("contextbench-v1", "contextbench-v1", upstream=True)
STRICT_FULL = Policy(
    "strict-full", "full"
)  # strict, and enums, type aliases, named arrow functions … are definitions, too
POLICIES = {policy.name: policy for policy in (STRICT, STRICT_FULL, UPSTREAM)}

LEVELS = ("file", "symbol", "span", "line")
Symbol = tuple[str, str, int, int]  # file, kind of node, first byte, byte after the last


def harmonic(a: float | None, b: float | None) -> float | None:
    """2ab / (a + b); 0 where both are."""
    if a is None or b is None:
        return None
    return 2 * a * b / (a + b) if a + b else 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """The figures of one level. `None`: there is nothing to divide by."""

    coverage: float | None
    precision: float | None
    intersection: int
    gold_size: int
    pred_size: int

    @property
    def f1(self) -> float | None:
        """Harmonic mean of coverage and precision; 0 where one of them is, `None` where one is unknown."""
        return harmonic(self.coverage, self.precision)

    def to_json(self) -> dict[str, Any]:
        """The original's five keys, and `f1`."""
        return {
            "coverage": self.coverage,
            "precision": self.precision,
            "intersection": self.intersection,
            "gold_size": self.gold_size,
            "pred_size": self.pred_size,
            "f1": self.f1,
        }


@dataclass(slots=True)
class Score:
    """One task's figures. `error` (policy `contextbench-v1` only): why there are none; such rows leave the original's
    averages.
    """

    instance_id: str
    policy: str
    num_steps: int = 0
    final: dict[str, Level] = field(default_factory=dict)
    regions: dict[str, dict[str, Level]] = field(default_factory=dict)  # the same against `init` and `add` alone
    steps: list[dict[str, float | None]] = field(default_factory=list)
    auc: dict[str, float | None] = field(default_factory=dict)
    auc_tokens: dict[str, float | None] | None = None
    auc_seconds: dict[str, float | None] | None = None
    redundancy: dict[str, float | None] = field(default_factory=dict)
    redundancy_excluding_after_edit: dict[str, float | None] = field(default_factory=dict)
    num_turns: int | None = None  # replies of the model that looked at anything; `None`: the log does not tell them
    auc_turns: dict[str, float | None] | None = (
        None  # the same with all calls of one reply as one step: batching calls changes nothing
    )
    redundancy_turns: dict[str, float | None] | None = None
    nonblank: Level | None = None  # lines, without those that hold nothing but white space
    lines_per_step: float | None = None  # over the steps that read lines
    first_gold: dict[str, float | None] = field(default_factory=dict)  # step, tokens and seconds at the first gold file
    usage_drop: dict[str, dict[str, float | None]] | None = None
    editloc: dict[str, Any] | None = None
    gold_symbols: list[Symbol] = field(default_factory=list)
    pred_symbols: list[Symbol] = field(default_factory=list)
    gold_missing_files: list[str] = field(default_factory=list)
    unresolved: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def to_row(self) -> dict[str, Any]:
        """A row in the original's shape (`final`, `trajectory`, `editloc`), with what we add to it beside."""
        if self.error:
            return {"instance_id": self.instance_id, "error": self.error, "policy": self.policy}
        trajectory: dict[str, Any] = {
            "steps": [{"step": n, "coverage": coverage} for n, coverage in enumerate(self.steps, 1)],
            "auc_coverage": self.auc,
            "redundancy": self.redundancy,
            "redundancy_excluding_after_edit": self.redundancy_excluding_after_edit,
            "lines_per_step": self.lines_per_step,
            "first_gold": self.first_gold,
        }
        if self.auc_tokens:
            trajectory["auc_coverage_tokens"] = self.auc_tokens
        if self.auc_seconds:
            trajectory["auc_coverage_seconds"] = self.auc_seconds
        if self.auc_turns:
            trajectory |= {
                "num_turns": self.num_turns,
                "auc_coverage_turns": self.auc_turns,
                "redundancy_turns": self.redundancy_turns,
            }
        row: dict[str, Any] = {
            "instance_id": self.instance_id,
            "policy": self.policy,
            "num_steps": self.num_steps,
            "final": {name: level.to_json() for name, level in self.final.items()},
            "regions": {
                region: {name: level.to_json() for name, level in levels.items()}
                for region, levels in self.regions.items()
            },
            "trajectory": trajectory,
            "editloc": self.editloc,
        }
        if self.nonblank is not None:
            row["final_line_nonblank"] = self.nonblank.to_json()
        for name in ("usage_drop", "gold_missing_files", "notes"):
            if value := getattr(self, name):
                row[name] = value
        if self.unresolved:
            row["unresolved_paths"] = dict(self.unresolved)
        return row
