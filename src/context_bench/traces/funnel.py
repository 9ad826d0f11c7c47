"""Search hit → read → edit: was a file that a search named ever opened or edited later?

```python
funnel(trace).tools["Grep"]        # Steps(returned=12, opened=3, edited=1)
```

A **hit** is a file that the result of a search or a listing names or shows; the first time counts. It is *opened* if a
later call of another kind read it, *edited* if a later call changed it. Files that had been read before the search
named them are `known`, and no credit of the search. What is left: files opened or edited that no search had named.
Nothing here says that the search was the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from context_bench.transcripts.trace import Event, Trace

_FINDING = ("search", "list")
_MOST_NAMED = 50


@dataclass(slots=True)
class Stage:
    """Counts of the files that a tool returned: those read before, those opened later, those edited later."""

    returned: int = 0
    known: int = 0
    opened: int = 0
    edited: int = 0


@dataclass(slots=True)
class Funnel:
    """The funnel of one run; counts are of distinct files. `gold`: of files of the gold (`None`: none given). `tools`:
    by tool that named the file first.

    `searches`, `useful`: calls that returned files, and those of which at least one file was opened or edited later.
    `steps_to_open`: the median number of calls from hit to opening. `unopened`: hits that nobody opened or edited, in
    order. `opened_unsearched`, `edited_unread`: files read without having been a hit, and files edited without having
    been read.
    """

    all: Stage = field(default_factory=Stage)
    gold: Stage | None = None
    tools: dict[str, Stage] = field(default_factory=dict)
    searches: int = 0
    useful: int = 0
    steps_to_open: float | None = None
    unopened: list[str] = field(default_factory=list)
    opened_unsearched: int = 0
    edited_unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """All of it; of a long list of `unopened` the first."""
        return asdict(self) | {"unopened": self.unopened[:_MOST_NAMED]}


def funnel(
    trace: Trace | Iterable[Event],
    *,
    gold: Collection[str] | None = None,
    resolve: Callable[[str], str | None] | None = None,
) -> Funnel:
    """The funnel of a run. `gold`: files of the gold. `resolve`: the file of the repository a path means (`None`: none;
    see `traces.coverage.selection.Resolver`); without it every path that is no folder of another counts.
    """
    named = resolve or _unless_folder(trace.events if isinstance(trace, Trace) else (trace := list(trace)))
    events = [
        (event, path)
        for event in (trace.events if isinstance(trace, Trace) else trace)
        if event.path and event.ok and (path := named(event.path))
    ]
    hits: dict[str, Event] = {}
    calls: dict[int, set[str]] = {}
    opened: dict[str, list[int]] = {}
    edited: dict[str, list[int]] = {}
    for event, path in events:
        if event.kind == "edit":
            edited.setdefault(path, []).append(event.step)
        elif event.kind in _FINDING:
            if not _asked_only(event):
                hits.setdefault(path, event)
                calls.setdefault(event.step, set()).add(path)
        elif event.kind == "read" and event.strength != "listed":
            opened.setdefault(path, []).append(event.step)
    return _counted(hits, calls, opened, edited, gold)


def summed(funnels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of many runs together, from their `to_json`; the medians and names of single runs are left out."""
    out: dict[str, Any] = {"runs": 0, "all": Counter(), "gold": Counter(), "tools": {}}
    plain = ("searches", "useful", "opened_unsearched", "edited_unread")
    for one in funnels:
        out["runs"] += 1
        for name in plain:
            out[name] = out.get(name, 0) + int(one.get(name) or 0)
        for name in ("all", "gold"):
            out[name].update(one.get(name) or {})
        for tool, stage in (one.get("tools") or {}).items():
            out["tools"].setdefault(tool, Counter()).update(stage)
    tools = {tool: dict(stage) for tool, stage in sorted(out["tools"].items())}
    return {**out, "all": dict(out["all"]), "gold": dict(out["gold"]), "tools": tools}


def _counted(
    hits: dict[str, Event],
    calls: dict[int, set[str]],
    opened: dict[str, list[int]],
    edited: dict[str, list[int]],
    gold: Collection[str] | None,
) -> Funnel:
    out = Funnel(gold=None if gold is None else Stage())
    waits = []
    for path, hit in hits.items():
        stages = [out.all, out.tools.setdefault(hit.tool, Stage())]
        if out.gold is not None and path in (gold or ()):
            stages.append(out.gold)
        known = any(step <= hit.step for step in opened.get(path, ()))
        later = [step for step in opened.get(path, ()) if step > hit.step]
        changed = any(step > hit.step for step in edited.get(path, ()))
        if later and not known:
            waits.append(min(later) - hit.step)
        if not (known or later or changed):
            out.unopened.append(path)
        for stage in stages:
            stage.returned += 1
            stage.known += known
            stage.opened += bool(later) and not known
            stage.edited += changed
    out.searches = len(calls)
    out.useful = sum(_used_after(step, paths, opened, edited) for step, paths in calls.items())
    out.steps_to_open = float(median(waits)) if waits else None
    out.opened_unsearched = sum(path not in hits or min(steps) <= hits[path].step for path, steps in opened.items())
    out.edited_unread = sum(
        not any(step <= min(steps) for step in opened.get(path, ())) for path, steps in edited.items()
    )
    return out


def _used_after(step: int, paths: Collection[str], opened: dict[str, list[int]], edited: dict[str, list[int]]) -> bool:
    return any(later > step for path in paths for later in (*opened.get(path, ()), *edited.get(path, ())))


def _asked_only(event: Event) -> bool:
    """True if a search names only where it was to look: nothing came back."""
    return event.kind == "search" and event.strength == "listed" and event.provenance in ("args", "command")


def _unless_folder(events: Iterable[Event]) -> Callable[[str], str | None]:
    """Paths that are a folder of another path of the run are none of files."""
    folders = {"."}
    for event in events:
        parts = (event.path or "").split("/")
        folders.update("/".join(parts[:n]) for n in range(1, len(parts)))
    return lambda path: None if path in folders else path
