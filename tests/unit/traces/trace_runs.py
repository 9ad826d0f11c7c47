"""Scored runs for tests of reports: a small repository, gold in two files, agents that read some of it."""

from __future__ import annotations

from dataclasses import replace

from context_bench.core.records import Usage
from context_bench.shell.repo import Snapshot
from context_bench.traces import score_trace
from context_bench.traces.gold import Gold, GoldItem
from context_bench.traces.trace_rows import TraceRow
from context_bench.transcripts.trace import Event, Trace

FILES = {
    "src/calc.py": b"".join(b"def f%d(a):\n    return a + %d\n\n\n" % (n, n) for n in range(30)),
    "src/util.py": b"x = 1\n" * 40,
    "docs/notes.md": b"words\n" * 300,
}
GOLD = Gold(
    "acme__widget-1",
    [GoldItem("src/calc.py", 10, 20)],
    [GoldItem("src/util.py", 5, 8)],
    repo="acme/widget",
    commit="4f2a91c0ddba" + "0" * 28,
    language="python",
)
PATCH = "--- a/src/calc.py\n+++ b/src/calc.py\n@@ -10,1 +10,1 @@\n-    return a + 2\n+    return a\n"


def events(*, provenance: str = "structured", path: str = "src/calc.py") -> list[Event]:
    """Five calls: half of the gold of one file, a failed read, a list, an edit, and a file without gold."""
    return [
        Event(1, "c1", "read", "Read", path, ((1, 15),), provenance, "shown", t=100.0, tokens_before=10),  # type: ignore[arg-type]
        Event(2, "c2", "read", "Read", "src/gone.py", None, "args", "shown", ok=False, tokens_before=500),
        Event(3, "c3", "list", "Glob", "src/util.py", None, "structured", "listed", tokens_before=600),
        Event(4, "c4", "edit", "Edit", path, ((10, 10),), "edit", "claimed", tokens_before=700),
        Event(
            5, "c5", "search", "Grep", "docs/notes.md", ((100, 103), (250, 250)), provenance, "shown", tokens_before=900
        ),  # type: ignore[arg-type]
    ]


def scored(run: str = "base", instance: str = "acme__widget-1", **fields: object) -> TraceRow:
    """One run. `fields` replace those of the row."""
    told = {name: fields.pop(name) for name in ("provenance", "path") if name in fields}
    trace = Trace(
        instance,
        "claude",
        "model-1",
        events(**told),
        patch=PATCH,
        usage=Usage(1234, 56),
        cost=0.5,
        started=90.0,
        ended=150.0,
    )  # type: ignore[arg-type]
    gold = replace(GOLD, instance_id=instance)
    return replace(score_trace(gold, trace, Snapshot(FILES), run=run), **fields)  # type: ignore[arg-type]


def long_run(steps: int, instance: str = "acme__long-1") -> TraceRow:
    """A run of many steps that reads the gold at the end."""
    calls = [
        Event(n, f"c{n}", "read", "Read", "docs/notes.md", ((n % 300 + 1, n % 300 + 2),), "args", "shown")
        for n in range(1, steps)
    ]
    calls.append(Event(steps, "last", "read", "Read", "src/calc.py", "all", "structured", "shown"))
    return score_trace(
        replace(GOLD, instance_id=instance), Trace(instance, "claude", None, calls), Snapshot(FILES), run="base"
    )
