"""One run against one gold, with everything a report shows of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Literal

import orjson

from context_bench.core.errors import UnknownName
from context_bench.core.ledger import LineTable, merged, size
from context_bench.core.numbers import money
from context_bench.llm.prices import GenaiPrices
from context_bench.shell.repo import Repo
from context_bench.stats.solving import Status
from context_bench.traces.coverage import (
    POLICIES,
    RETRIEVAL,
    STRICT,
    Definitions,
    Level,
    Policy,
    RepositoryFiles,
    Resolver,
    Score,
    Selection,
    score,
    selections,
    step_statistics,
)
from context_bench.traces.edits import anchors, deleted_lines, funnel, parse_patch
from context_bench.traces.gold import Gold, GoldSet, clean_path, content_drift, gold_where_it_stands
from context_bench.traces.symbols import CodeFiles
from context_bench.traces.trace_rows import CallView, FileMap, StepView, TraceRow
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import Vocabulary

#: What a score may count beside text that was shown.
COUNTABLE = ("listed", "claimed", "edits")
NO_REPOSITORY = "no repository: files and lines by what the log says, bytes and symbols are unknown"
EDITS_ONLY = "reads: none, edits only"


def score_trace(
    gold: Gold,
    trace: Trace,
    repo: Repo | CodeFiles | None,
    policy: str | Policy = STRICT,
    *,
    count: Collection[str] = (),
    by: Literal["call", "turn"] = "call",
    dilate: int = 0,
    longest: int | None = None,
    run: str = "",
    status: Status = "unknown",
    drift: bool = True,
) -> TraceRow:
    """Score the reads of one run, step by step, against one gold.

    `repo`: the files at the commit the agent started from (`open_repo`); without them files are compared by name and
    lines by number, and bytes and symbols are unknown (`None`). `policy`: `strict`, or `contextbench-v1` (the
    original's figures, faults included). `count`: `listed`, `claimed`, `edits` are taken as read, too. A context that
    the agent named itself is counted under `claimed` (and by the original); else what it leaves out of what was seen is
    told as usage drop only. `by="turn"`: all calls of one reply are one step. `dilate`: lines around a deletion that
    still count as the same place (edit recall). `longest`: a read of more lines in one piece is one of the file and of
    none of its lines (`strict` only). Gold whose text stands at other lines than told, in one place of its file, is
    scored there (`strict` only); `drift=False` does not look.
    """
    rules = policy_of(policy)
    counted = require_countable(count)
    files: RepositoryFiles | None = (
        repo if isinstance(repo, CodeFiles) else CodeFiles(repo) if repo is not None else None
    )
    row = _head(gold, trace, rules, counted, run, status)
    if drift and isinstance(files, CodeFiles):
        moved = content_drift(gold, files.repo)
        row.drift = [asdict(one) for one in moved]
        gold = gold if rules.upstream else gold_where_it_stands(gold, moved)
    steps, final = selections(trace, count=("shown", *counted), by=by)
    named = final is not None and (rules.upstream or _counts(trace.final or (), counted))
    if (
        named
        and final
        and (not steps or (rules.upstream and not any(event.strength == "shown" for event in trace.events)))
    ):
        steps = [final]  # a prediction without steps is one step; the original knows no steps that show nothing
    known = files if files is not None else _Unseen(gold, steps, final)
    if files is None and rules.upstream:
        row.score = Score(gold.instance_id, rules.name, error="checkout_failed")
    else:
        row.score = _scored(gold, trace, steps, final, known, rules, named, dilate, longest)
    if files is None and not rules.upstream:
        _only_names(row.score, [*steps, *([final] if final else [])])
    row.error = row.score.error
    row.steps = step_views(trace, row.score, counted, by)
    resolve = Resolver(files.paths(), trace.cwd).resolve if files is not None else None
    row.statistics["funnel"] = funnel(
        trace, gold={clean_path(item.file) for item in gold.items}, resolve=resolve
    ).to_json()
    if not rules.upstream:
        row.files = file_maps(gold, trace, known, counted, seen=files is not None, longest=longest)
    if not any(event.ok and event.path and event.kind != "edit" for event in trace.events):
        row.notes.append(EDITS_ONLY if any(event.kind == "edit" for event in trace.events) else "reads: none")
    return row


def policy_of(policy: str | Policy) -> Policy:
    """The policy of a name; `UnknownName` if there is none."""
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise UnknownName("policy", policy, POLICIES)
    return POLICIES[policy]


def trace_sha(trace: Trace) -> str:
    """A hash of what a trace holds, apart from the instance it is said to be of: two equal ones are one artefact,
    handed in twice.
    """
    body = trace.to_json()
    for name in ("instance_id", "notes"):
        body.pop(name, None)
    return _sha(body)


def gold_sha(gold: Gold) -> str:
    """A hash of what a gold asks for."""
    return _sha(
        [[(item.file, item.first, item.last) for item in part] for part in (gold.init, gold.add)]
        + [gold.patch, gold.commit]
    )


def golds_sha(golds: GoldSet) -> str:
    """A hash of all golds, whatever their order."""
    return hashlib.sha256(
        "".join(sorted(f"{gold.instance_id}\0{gold_sha(gold)}\n" for gold in golds)).encode()
    ).hexdigest()[:16]


def _sha(value: object) -> str:
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # lone surrogates of hostile logs
        data = repr(value).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:16]


def require_countable(count: Collection[str]) -> list[str]:
    """The things to count, in their order; `UnknownName` for one that cannot be counted."""
    for name in count:
        if name not in COUNTABLE:
            raise UnknownName("thing to count", name, COUNTABLE)
    return [name for name in COUNTABLE if name in count]


def billed(trace: Trace) -> float | None:
    """US dollars of the run: as its log states, else the price of the usage that it states, where one known model made
    all replies.
    """
    if trace.cost is not None or trace.usage is None or trace.model is None or trace.models:
        return trace.cost
    return money(_prices().cost(trace.usage, trace.model))


@lru_cache(maxsize=1)
def _prices() -> GenaiPrices:
    return GenaiPrices()


def _head(gold: Gold, trace: Trace, rules: Policy, counted: list[str], run: str, status: Status) -> TraceRow:
    seconds = trace.ended - trace.started if trace.started is not None and trace.ended is not None else None
    return TraceRow(
        run,
        gold.instance_id,
        gold.repo or trace.repo,
        gold.language,
        trace.agent,
        trace.model,
        statistics=statistics(trace),
        status=status,
        usage=trace.usage,
        cost=billed(trace),
        seconds=seconds,
        trace_sha=trace_sha(trace),
        gold_sha=gold_sha(gold),
        policy=rules.name,
        counted=counted,
        skipped=dict(trace.skipped),
        notes=list(trace.notes),
        commit=gold.commit or trace.commit,
    )


def _scored(
    gold: Gold,
    trace: Trace,
    steps: Sequence[Selection],
    final: Selection | None,
    files: RepositoryFiles,
    rules: Policy,
    named: bool,
    dilate: int,
    longest: int | None,
) -> Score:
    more = {
        "patch": trace.patch,
        "policy": rules,
        "cwd": trace.cwd,
        "started": trace.started,
        "ended": trace.ended,
        "tokens": _processed(trace),
        "dilate": dilate,
        "longest": longest,
    }
    out = score(gold, steps, files, final=final if named else None, **more)  # type: ignore[arg-type]
    if final is not None and not named:
        out.usage_drop = score(gold, steps, files, final=final, **more).usage_drop  # type: ignore[arg-type]
        out.notes.append("the context the agent named itself is not counted as read (--count claimed does)")
    return out


def _counts(events: Iterable[Event], counted: list[str]) -> bool:
    return all(event.strength in ("shown", *counted) for event in events)


def _processed(trace: Trace) -> int | None:
    usage = trace.usage
    return None if usage is None or usage.input_tokens is None else usage.input_tokens + (usage.output_tokens or 0)


def statistics(trace: Trace) -> dict[str, object]:
    """Facts of a run: its calls as `step_statistics` counts them, the first files opened and edited, the size of the
    patch.
    """
    vocabulary = Vocabulary.load()
    shells = {
        event.step
        for event in trace.events
        if (row := vocabulary.find(event.tool)[0]) is not None and row.kind == "exec"
    }
    edits = parse_patch(trace.patch or "")
    return {
        **step_statistics(trace),
        "shell_commands": len(shells),
        "first_file_opened": next(
            (e.path for e in trace.events if e.ok and e.path and e.kind == "read" and e.strength == "shown"), None
        ),
        "first_file_edited": next((e.path for e in trace.events if e.ok and e.path and e.kind == "edit"), None),
        "first_test_command": trace.first_test_command,
        "patch_files": len(edits),
        "patch_characters": len(trace.patch or ""),
    }


# The course of the run
# ------------------------------------------------------------------------
def step_views(trace: Trace, scored: Score, counted: Collection[str], by: str) -> list[StepView]:
    """Every call of the run, with the coverage that was reached after it."""
    views: dict[int, StepView] = {}
    numbers: dict[tuple[bool, int], int] = {}
    for event in trace.events:
        view = views.get(event.step)
        if view is None:
            view = views[event.step] = StepView(event.step, event.turn, event.t, event.tokens_before)
        view.calls.append(
            CallView(event.tool, event.kind, event.path, event.ranges, event.provenance, event.strength, event.ok)
        )
        if _is_step(event, counted):
            whole_turn = by == "turn" and event.turn is not None
            key = (whole_turn, (event.turn or 0) if whole_turn else event.step)
            view.number = numbers.setdefault(key, len(numbers) + 1)
    out = sorted(views.values(), key=lambda view: view.step)
    reached: dict[str, float | None] = {}
    if scored.steps:
        reached = {name: None if value is None else 0.0 for name, value in scored.steps[0].items()}
    for view in out:
        if view.number is not None and view.number <= len(scored.steps):
            reached = scored.steps[view.number - 1]
        view.coverage = dict(reached)
    return out


def _is_step(event: Event, counted: Collection[str]) -> bool:
    return (
        event.kind in RETRIEVAL
        or (event.kind == "exec" and event.path is not None)
        or (event.kind == "edit" and "edits" in counted)
    )


def file_maps(
    gold: Gold,
    trace: Trace,
    files: RepositoryFiles,
    counted: Collection[str],
    *,
    seen: bool,
    longest: int | None = None,
) -> dict[str, FileMap]:
    """Gold, what was read, listed and edited, and the context the agent named, by file of the repository."""
    resolver = Resolver(files.paths(), trace.cwd)
    out: dict[str, FileMap] = {}

    def of(path: str) -> FileMap:
        if path not in out:
            table = files.table(path) if seen else None
            out[path] = FileMap(None if table is None else table.lines)
        return out[path]

    for items, name in ((gold.init, "init"), (gold.add, "add")):
        for item in items:
            _put(of(clean_path(item.file)), name, files.table(clean_path(item.file)), ((item.first, item.last),))
    for events, name in ((trace.events, "read"), (trace.final or (), "final")):
        for event in events:
            path = resolver.resolve(event.path) if event.path and event.ok else None
            if path is None or (event.kind == "edit" and "edits" not in counted):
                continue
            if event.strength == "listed":
                of(path).listed = True
            if name == "final" or event.kind == "edit" or event.strength in ("shown", *counted):
                _put(of(path), name, files.table(path), event.ranges, longest)
    edits = parse_patch(trace.patch or "")
    for places in (deleted_lines(edits), anchors(edits)):
        for path, lines in places.items():
            _put(of(resolver.resolve(path) or path), "edited", None, tuple((line, line) for line in lines))
    return out


def _put(one: FileMap, name: str, table: LineTable | None, ranges: object, longest: int | None = None) -> None:
    if longest is not None and table is not None and ranges is not None:
        pieces = table.everything() if ranges == "all" else ranges
        ranges = tuple(pair for pair in pieces if size(table.clamp([pair])) <= longest)  # type: ignore[attr-defined]
    if ranges == "all":
        pairs = table.everything() if table is not None else []
    elif isinstance(ranges, tuple):
        pairs = table.clamp(ranges) if table is not None else [pair for pair in ranges if 0 < pair[0] <= pair[1]]
    else:
        return
    setattr(one, name, merged([*getattr(one, name), *pairs]))


# Without a repository
# ------------------------------------------------------------------------
class _Unseen:
    """Files nobody has: those that gold and log name, each as long as they say at least. Only names and numbers of
    lines mean much.
    """

    def __init__(self, gold: Gold, steps: Sequence[Selection], final: Selection | None) -> None:
        self._lines: dict[str, int] = {}
        for item in gold.items:
            path = clean_path(item.file)
            self._lines[path] = max(self._lines.get(path, 0), item.first, item.last)
        for selection in (*steps, *([final] if final else [])):
            for path in (*selection.files, *selection.symbols):
                self._lines.setdefault(path, 0)
            for path, ranges in selection.spans:
                last = (
                    max((max(pair) for pair in ranges), default=0)
                    if isinstance(ranges, Sequence) and not isinstance(ranges, str)
                    else 0
                )
                self._lines[path] = max(self._lines.get(path, 0), min(last, _LONGEST))
        self._tables: dict[int, LineTable] = {}

    def paths(self) -> Collection[str]:
        return self._lines.keys()

    def table(self, path: str) -> LineTable | None:
        lines = self._lines.get(path)
        if lines is None:
            return None
        if lines not in self._tables:
            self._tables[lines] = LineTable(tuple(range(lines)), lines)
        return self._tables[lines]

    def definitions(self, path: str, profile: str) -> Definitions | None:
        return None


_LONGEST = 1_000_000


def _only_names(scored: Score, selected: Sequence[Selection]) -> None:
    """Take back what cannot be known without the files: bytes, symbols; of whole files read, how many lines that
    was.
    """
    unknown = Level(None, None, 0, 0, 0)
    whole = any(ranges == "all" or _unbounded(ranges) for one in selected for _, ranges in one.spans)
    for levels in (scored.final, *scored.regions.values()):
        levels["symbol"] = levels["span"] = unknown
        if whole:
            line = levels["line"]
            levels["line"] = Level(line.coverage, None, line.intersection, line.gold_size, 0)
    curves = (scored.auc, scored.auc_tokens, scored.auc_seconds, scored.auc_turns, *scored.steps)
    wasted = (scored.redundancy, scored.redundancy_excluding_after_edit, scored.redundancy_turns)
    for figures in (*curves, *wasted, *(scored.usage_drop or {}).values()):
        if figures:
            figures["symbol"] = figures["span"] = None
    for figures in wasted:
        if whole and figures:
            figures["line"] = None
    scored.nonblank = None
    if whole:
        scored.lines_per_step = None
    scored.gold_missing_files = []
    scored.gold_symbols, scored.pred_symbols = [], []
    scored.notes = [note for note in scored.notes if not note.startswith("symbols: ")] + [NO_REPOSITORY]


def _unbounded(ranges: object) -> bool:
    return isinstance(ranges, tuple | list) and any(last <= 0 or last >= _LONGEST for _, last in ranges)


def unscored(run: str, trace: Trace, policy: str, counted: Sequence[str], error: str) -> TraceRow:
    """The row of a run that has no score, and why."""
    seconds = trace.ended - trace.started if trace.started is not None and trace.ended is not None else None
    return TraceRow(
        run,
        trace.instance_id,
        trace.repo,
        agent=trace.agent,
        model=trace.model,
        statistics=statistics(trace),
        error=error,
        usage=trace.usage,
        cost=billed(trace),
        seconds=seconds,
        trace_sha=trace_sha(trace),
        policy=policy,
        counted=list(counted),
        skipped=dict(trace.skipped),
        notes=list(trace.notes),
        commit=trace.commit,
    )
