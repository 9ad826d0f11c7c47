"""Traces as JSON lines: our own events, or predictions as the original evaluator wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Repo, open_repo
from context_bench.traces.coverage import selections
from context_bench.traces.coverage.selection import Selection
from context_bench.traces.gold import load_gold
from context_bench.traces.repositories import Repositories
from context_bench.traces.symbols import CodeFiles
from context_bench.transcripts.trace import Trace, dump_traces, utf8_clean
from context_bench.transcripts.traces import load_traces


def convert_traces(
    traces: Iterable[str | Path],
    *,
    to: str = "events",
    repos: Iterable[str | Path] = (),
    gold: str | Path | None = None,
    instance: str | None = None,
    tools: str | Path | None = None,
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[bytes]:
    """Lines of JSON of every run in these files and folders: our events, or the original's predictions.

    `gold` tells which repository among `repos` belongs to a run, and gives it the name of its task; with one repository
    and no gold it is that of all. `instance`: what the runs are called.
    """
    golds = load_gold(gold) if gold is not None else None
    places = list(repos)
    with Repositories(places) as known, ExitStack() as stack:
        alone = stack.enter_context(open_repo(places[0])) if golds is None and len(places) == 1 else None

        def repo_of(trace: Trace) -> Repo | None:
            task = golds.find(instance or trace.instance_id) if golds is not None else None
            if task is None:
                return alone
            found = known.find(task, trace.repo, trace.commit)
            return None if isinstance(found, str) else found[0]

        for trace in load_traces(traces, tools=tools, repo=repo_of, on_skip=on_skip):
            repo = repo_of(trace)
            task = golds.find(instance or trace.instance_id) if golds is not None else None
            trace.instance_id = task.instance_id if task is not None else instance or trace.instance_id
            if to == "events":
                yield from dump_traces([trace])
            else:
                yield orjson.dumps(utf8_clean(unified_prediction(trace, repo)), option=orjson.OPT_APPEND_NEWLINE)


def unified_prediction(trace: Trace, repo: Repo | CodeFiles | None = None) -> dict[str, Any]:
    """A unified prediction: what was shown, step by step, and the union of it or the context the agent named itself.

    Their format knows no whole files, so with `repo` a file read whole gets the lines it has, and without it only its
    name.
    """
    files = repo if isinstance(repo, CodeFiles) else CodeFiles(repo) if repo is not None else None
    steps, final = selections(trace)
    rows = [_part(step, files, "") for step in steps]
    union = Selection()
    for step in steps if final is None else [final]:
        union.files += step.files
        union.spans += step.spans
        for path, names in step.symbols.items():
            union.symbols.setdefault(path, []).extend(names)
    out = {
        "instance_id": trace.instance_id,
        "repo_url": trace.repo,
        "commit": trace.commit,
        "model_patch": trace.patch or "",
        "traj_data": {"pred_steps": rows, **_part(union, files, "pred_")},
    }
    return {name: value for name, value in out.items() if value is not None}


def _part(selection: Selection, files: CodeFiles | None, prefix: str) -> dict[str, Any]:
    spans: dict[str, list[dict[str, Any]]] = {}
    for path, ranges in selection.spans:
        pairs = ranges
        if ranges == "all":
            table = files.table(path) if files is not None else None
            pairs = table.everything() if table is not None else None
        for first, last in pairs if pairs is not None and pairs != "all" else ():
            spans.setdefault(path, []).append({"type": "line", "start": first, "end": last})
    out: dict[str, Any] = {f"{prefix}files": list(dict.fromkeys(selection.files)), f"{prefix}spans": spans}
    if selection.symbols:
        out[f"{prefix}symbols"] = {path: list(dict.fromkeys(names)) for path, names in selection.symbols.items()}
    return out
