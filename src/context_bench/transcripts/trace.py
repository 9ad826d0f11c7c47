"""Reads and edits of a coding agent, in order: one record per run, whatever program recorded it.

```python
trace = Trace("task-1", agent="codex", model="gpt-5", events=[
    Event(1, "c1", "read", "Read", "src/a.py", ((10, 40),), "structured", "shown"),
    Event(2, "c2", "edit", "Edit", "src/a.py", ((12, 12),), "edit", "claimed"),
])
Trace.from_json(trace.to_json()) == trace
```

Lines are counted from 1, both ends included. `ranges="all"` is the whole file; `ranges=None` says that lines of the
file may have been read but which is not known: that never counts as lines, only as the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_args

import orjson

from context_bench.core.keys import load_json
from context_bench.core.ledger import Range, Ranges as LineRanges, common, merged, size, without
from context_bench.core.numbers import usage_of, whole
from context_bench.core.records import Usage

EventKind = Literal["read", "search", "list", "edit", "exec", "other"]
#: Where the lines of an event are known from, the most reliable first.
Provenance = Literal["structured", "output_numbered", "output_matched", "args", "command", "self_report", "edit"]
#: `shown`: the text reached the model; `listed`: only the name; `claimed`: the agent, or its request, says so and
#: nothing shows it.
Strength = Literal["shown", "listed", "claimed"]
Ranges = tuple[tuple[int, int], ...] | Literal["all"] | None
KINDS: tuple[EventKind, ...] = get_args(EventKind)
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)
STRENGTHS: tuple[Strength, ...] = get_args(Strength)


@dataclass(slots=True)
class Event:
    """One thing a tool call did to one file (a call that shows three files is three events with one `call_id` and one
    `step`).

    `step` counts the calls of the run from 1, those that looked at nothing included. `ok` is false where the call
    failed: such an event counts in step statistics, never as read. `truncated`: the output was cut, `ranges` hold what
    was shown. `sidechain`: a sub-agent's call. `t`: seconds since the epoch; `tokens_before`: tokens the model had
    processed when it made the call. `symbols` are definitions the agent named itself (unified predictions only).
    `raw_ref` finds the call in its log. `named`: the file itself was named, not only lines or definitions of it
    (predictions tell the two apart, and to the original only the first is a file read).
    """

    step: int
    call_id: str | None
    kind: EventKind
    tool: str
    path: str | None = None
    ranges: Ranges = None
    provenance: Provenance = "args"
    strength: Strength = "shown"
    ok: bool = True
    truncated: bool = False
    sidechain: bool = False
    t: float | None = None
    tokens_before: int | None = None
    raw_ref: str | None = None
    symbols: tuple[str, ...] = ()
    turn: int | None = None  # the model's reply the call was part of, where the log tells
    named: bool = True

    def to_json(self) -> dict[str, Any]:
        """A JSON object; what has its default value is left out."""
        values = _EVENT_VALUES(self)
        row = {
            name: value
            for name, value, usual in zip(_EVENT_FIELDS, values, _EVENT_USUAL, strict=True)
            if value != usual
        }
        if isinstance(self.ranges, tuple):
            row["ranges"] = [list(pair) for pair in self.ranges]
        if self.symbols:
            row["symbols"] = list(self.symbols)
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Event:
        """The event that `to_json` wrote; `ValueError` names what is not as it should be."""
        if not isinstance(row, Mapping):
            raise ValueError(f"an event is {row!r:.80}, expected an object")
        values = {name: row[name] for name in _EVENT_FIELDS if name in row}
        values["ranges"] = _ranges(row.get("ranges"))
        values["symbols"] = tuple(str(name) for name in row.get("symbols") or ())
        for name, allowed in (("kind", KINDS), ("provenance", PROVENANCES), ("strength", STRENGTHS)):
            if name in values and values[name] not in allowed:
                raise ValueError(f"{name} is {values[name]!r}, expected one of {', '.join(allowed)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"not an event of a trace: {error}") from None


@dataclass(slots=True)
class Trace:
    """One run of one agent on one task. `events` in the order of the calls.

    `final` is the context the agent named itself at the end (`None`: it named none; an empty list: it named nothing).
    `steps` is how many calls the run had where that is more than the events show. `cost` in US dollars, `started` and
    `ended` in seconds since the epoch, `cwd` the folder the agent worked in, `commit` what it started from,
    `first_test_command` the (beginning of the) first command that ran tests. `models`: every model that replied, where
    there are several. `path`: the file or folder that it was read from, which is not written with it. `skipped` counts
    records of the log that could not be read, by reason.
    """

    instance_id: str
    agent: str = ""
    model: str | None = None
    events: list[Event] = field(default_factory=list)
    patch: str | None = None
    final: list[Event] | None = None
    usage: Usage | None = None
    cost: float | None = None
    started: float | None = None
    ended: float | None = None
    cwd: str | None = None
    repo: str | None = None
    commit: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    steps: int | None = None
    first_test_command: str | None = None
    models: list[str] | None = None
    path: str | None = field(default=None, compare=False)

    @property
    def step_count(self) -> int:
        """Calls of the run: `steps`, or the highest step seen."""
        return max(self.steps or 0, max((event.step for event in self.events), default=0))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; empty fields are left out."""
        row: dict[str, Any] = {
            "instance_id": self.instance_id,
            "agent": self.agent,
            "events": [event.to_json() for event in self.events],
        }
        usage = {f.name: getattr(self.usage, f.name) for f in fields(Usage)} if self.usage is not None else None
        more = {
            **{name: getattr(self, name) for name in _PLAIN},
            "final": None if self.final is None else [event.to_json() for event in self.final],
            "usage": None if usage is None else {name: tokens for name, tokens in usage.items() if tokens is not None},
            "skipped": dict(self.skipped) or None,
            "notes": list(self.notes) or None,
        }
        return row | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Trace:
        """The trace that `to_json` wrote; `ValueError` names what is not as it should be."""
        if (
            not isinstance(row, Mapping)
            or not isinstance(row.get("instance_id"), str)
            or not isinstance(row.get("events"), list)
        ):
            raise ValueError("not a trace: expected an object with `instance_id` and a list of `events`")
        return cls(
            instance_id=row["instance_id"],
            agent=str(row.get("agent") or ""),
            events=[Event.from_json(event) for event in row["events"]],
            final=None if row.get("final") is None else [Event.from_json(event) for event in row["final"]],
            usage=usage_of(row.get("usage")),
            skipped=Counter(row.get("skipped") or {}),
            notes=[str(note) for note in row.get("notes") or ()],
            **{name: row.get(name) for name in _PLAIN},
        )


def dump_traces(traces: Iterable[Trace]) -> Iterator[bytes]:
    """JSONL: one line per trace, with its line end."""
    for trace in traces:
        yield orjson.dumps(utf8_clean(trace.to_json()), option=orjson.OPT_APPEND_NEWLINE)


def parse_traces(lines: Iterable[str | bytes], skipped: Counter[str] | None = None) -> Iterator[Trace]:
    """The traces of JSONL lines. Lines that are none are counted in `skipped` by reason, or raise `ValueError` if no
    counter is given.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            yield Trace.from_json(load_json(line))
        except ValueError as error:
            if skipped is None:
                raise
            skipped[str(error).splitlines()[0][:200]] += 1


def _ranges(value: Any) -> Ranges:
    if value is None or value == "all":
        return cast("Ranges", value)
    try:
        pairs = tuple((first, last) for first, last in value)
    except (TypeError, ValueError):
        raise ValueError(f"ranges are {value!r}, expected a list of [first, last], 'all' or null") from None
    if not all(isinstance(n, int) for pair in pairs for n in pair):
        raise ValueError(f"ranges are {value!r}, expected whole numbers")
    return pairs


def utf8_clean(value: Any) -> Any:
    """Lone surrogates of hostile logs as question marks: JSON of the kind everybody reads has none."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [utf8_clean(item) for item in value]
    if isinstance(value, dict):
        return {utf8_clean(key): utf8_clean(item) for key, item in value.items()}
    return value


_ABSENT = object()
_EVENT_FIELDS = [f.name for f in fields(Event)]
_EVENT_VALUES = attrgetter(*_EVENT_FIELDS)
_EVENT_USUAL = [_ABSENT if f.default is MISSING else f.default for f in fields(Event)]
_PLAIN = (
    "model",
    "patch",
    "cost",
    "started",
    "ended",
    "cwd",
    "repo",
    "commit",
    "steps",
    "first_test_command",
    "models",
)


K = TypeVar("K")
V = TypeVar("V")
_SPAN = re.compile(r"File:[ \t]*(\S[^\n]*?)[ \t]*\n\s*Lines:[ \t]*(\d{1,9})[ \t]*-[ \t]*(\d{1,9})", re.I)


def claim(
    path: str,
    ranges: Ranges,
    step: int,
    tool: str,
    symbols: tuple[str, ...] = (),
    *,
    shown: bool = False,
    named: bool = True,
) -> Event:
    """Make the event of a read that a prediction, or the agent about itself, claims. `named`: see `Event`."""
    return Event(
        step,
        None,
        "read",
        tool,
        path,
        ranges,
        "self_report",
        "shown" if shown else "claimed",
        symbols=symbols,
        named=named,
    )


def claims_of(
    tool: str,
    step: int,
    lines: Mapping[str, Iterable[tuple[int, int]]],
    symbols: Mapping[str, Iterable[str]] = MappingProxyType({}),
    *,
    files: Iterable[str] = (),
    shown: bool = False,
    named: Collection[str] | None = None,
) -> list[Event]:
    """Claims of reads, one for each file, with the lines and symbols of it. `files`: those that come first; `named`:
    those that are named themselves (left out: all are).
    """
    return [
        claim(
            path,
            tuple(lines.get(path, ())) or None,
            step,
            tool,
            tuple(symbols.get(path, ())),
            shown=shown,
            named=named is None or path in named,
        )
        for path in dict.fromkeys([*files, *lines, *symbols])
    ]


def span_of(value: Mapping[str, Any]) -> tuple[int, int] | None:
    """The lines that an object names by `start` and `end`."""
    first, last = whole(value.get("start")), whole(value.get("end"))
    return (first, last) if first is not None and last is not None else None


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The second ones of pairs by the first ones, in order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def spans(block: str, step: int, tool: str) -> list[Event]:
    """Claims in a block of `File:` and `Lines: a-b`."""
    return claims_of(tool, step, grouped((hit[1], (int(hit[2]), int(hit[3]))) for hit in _SPAN.finditer(block)))


_ALL: LineRanges = [(1, 2**53)]


@dataclass(frozen=True, slots=True)
class Rereads:
    """`reads`: texts of files that the model was shown; `again`: those of them that held nothing new. `lines`,
    `lines_again`: the same in lines, where it is known which (a whole file counts as a read, and as lines only if it
    was shown before).
    """

    reads: int = 0
    again: int = 0
    lines: int = 0
    lines_again: int = 0

    @property
    def redundancy(self) -> float | None:
        """Share of the known lines that had been shown before; `None` where no line is known."""
        return self.lines_again / self.lines if self.lines else None

    def __add__(self, other: Rereads) -> Rereads:
        return Rereads(
            self.reads + other.reads,
            self.again + other.again,
            self.lines + other.lines,
            self.lines_again + other.lines_again,
        )


def rereads(events: Iterable[Event]) -> Rereads:
    """Count over the events of one run, in order. What was read before an edit of the same file is new again after
    it.
    """
    before: dict[str, LineRanges] = {}
    found = Rereads()
    for event in events:
        if event.path is None or not event.ok:
            continue
        if event.kind == "edit":
            before.pop(event.path, None)
        elif event.strength == "shown" and event.ranges is not None:
            found += _read(event, before)
    return found


def _read(event: Event, shown: dict[str, LineRanges]) -> Rereads:
    assert event.path is not None
    before = shown.get(event.path, [])
    whole = event.ranges == "all"
    lines: LineRanges = _ALL if event.ranges == "all" else merged([_pair(pair) for pair in event.ranges or ()])
    if not lines:
        return Rereads()
    shown[event.path] = merged([*before, *lines])
    new = without(lines, before)
    if whole:
        return Rereads(1, int(not new))
    return Rereads(1, int(not new), size(lines), size(common(lines, before)))


def _pair(pair: Iterable[int]) -> Range:
    first, last = pair
    return first, last
