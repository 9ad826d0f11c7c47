"""Agents' logs as traces: the lines of files that each tool call showed to the model, in any program's format.

A file is recognised by its content, never by its name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.format import CALLS, LogSource, View, read_each, unpacked_name
from context_bench.transcripts.formats import formats
from context_bench.transcripts.session_files import name_of, opened
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.events import events_of_call
from context_bench.transcripts.traces.tool_calls import RunWorkspace, located, root_of, worked_in
from context_bench.transcripts.traces.vocabulary import Vocabulary as Vocabulary
from context_bench.transcripts.transcript import FACTS, ToolCall as ToolCall, Transcript as Transcript, root_among

ENDINGS = CALLS
Repos = FilesByPath | Callable[[Trace], FilesByPath | None]


def load_traces(
    paths: str | Path | Iterable[str | Path],
    *,
    tools: str | Path | Mapping[str, Any] | None = None,
    repo: Repos | None = None,
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[Trace]:
    """Every run in a file, a folder (its log files, at any depth, by name) or several of these, as they are read.

    `tools`: rows for the table of tools (TOML), before the built-in ones. `repo`: the files as the agent found them,
    for all runs or by run; with them commands, unnumbered outputs and paths of other machines are understood better. A
    file of no known format raises `BadInput` with its first keys and the formats tried; in a folder it is told to
    `on_skip`, and only a folder without any run raises. What was passed over inside a file is counted in
    `Trace.skipped`.
    """
    vocabulary = Vocabulary.load(tools)
    for path in [Path(paths)] if isinstance(paths, str | Path) else map(Path, paths):
        for one in transcripts_in(path, on_skip):
            yield trace_of(one, vocabulary, repo)


def trace_of(one: Transcript, vocabulary: Vocabulary | None = None, repo: Repos | None = None) -> Trace:
    """The trace of a transcript: its calls as events, paths from the repository's root."""
    trace = Trace(one.ident, **{name: getattr(one, name) for name in FACTS})
    if one.settled:
        return trace
    files = repo(trace) if callable(repo) else repo
    if trace.cwd is None and (folder := worked_in(one.calls, files)) is not None:
        trace.cwd = folder
        trace.notes.append("the folder of the repository is where it lies now, which the calls name")
    if trace.cwd is None:
        trace.cwd = root_among(one.shell_dirs, files, begun=one.begun)
    place = RunWorkspace(
        trace.cwd,
        files,
        vocabulary or Vocabulary.load(),
        lasting_shell=one.lasting_shell,
        outputs=one.outputs,
        cwd=trace.cwd,
    )
    for step, call in enumerate(one.calls, (trace.steps or 0) + 1):
        trace.events += events_of_call(call, step, place)
    trace.events.sort(key=lambda event: event.step)
    if one.calls:
        trace.steps = (trace.steps or 0) + len(one.calls)
    _rooted(trace, place)
    trace.first_test_command = trace.first_test_command or place.first_test
    for reason, number in sorted(place.counts.items()):
        if reason.startswith("unknown tool "):
            trace.skipped[reason] += number
        else:
            trace.notes.append(f"{reason}: {number}")
    return trace


def _rooted(trace: Trace, place: RunWorkspace) -> None:
    """Infer the agent's folder from paths that it wrote in both ways, if the log does not name it."""
    events = [event for event in (*trace.events, *(trace.final or ())) if event.path]
    named = [event.path for event in events if event.path]
    if trace.cwd is None:
        told = place.roots.most_common(2)
        sure = told and (len(told) == 1 or told[0][1] > told[1][1])
        trace.cwd = (
            told[0][0]
            if sure
            else root_of([p for p in named if p.startswith("/")], [p for p in named if not p.startswith("/")])
        )
        if trace.cwd is not None:
            trace.notes.append("the folder of the repository was told by the paths")
    for event in events:
        if event.path and event.path.startswith("/"):
            event.path = located(event.path, None, trace.cwd) or event.path
    outside = {
        event.path for event in events if event.path and (event.path.startswith("/") or event.path.startswith("../"))
    }
    if outside:
        trace.notes.append(f"paths outside the repository, or of another place: {len(outside)}")


def transcripts_in(
    path: Path, on_skip: Callable[[BadInput], None] | None = None, view: View = "trace"
) -> Iterator[Transcript]:
    """The runs of a file, or of a folder (see `load_traces`), with their calls; with the view `whole` also with what
    was said.
    """
    return _folder(path, on_skip, view) if path.is_dir() else transcripts(path, view)


def transcripts(path: Path, view: View = "trace") -> Iterator[Transcript]:
    """The runs of one file, in its own format, with their calls. `BadInput` for a file of none."""
    found, source = opened(path, lambda one: one.calls, "not a trace that can be read")
    source.view = view
    last: Transcript | None = None
    number = 0
    for one in (found.beside or found.read)(source):
        if not _with_calls(one) or (found.conversation and not one.filled):
            continue
        number += 1
        one.path = str(path)
        if not one.named:
            one.ident = name_of(path) if number == 1 else f"{name_of(path)}/{number}"
        if last is not None:
            yield last
        _count_skipped(one, source)
        last = one
    if last is None:
        raise BadInput(f"{path}: a log of {found.name}, but no run in it; skipped: {dict(source.skipped) or 'nothing'}")
    _count_skipped(last, source)
    yield last


def _with_calls(one: Transcript) -> bool:
    """Fill in what a trace needs; False for a helper's transcript, whose calls are in another one."""
    if not one.helper and one.retrace is not None:
        one.retrace(one)
        one.retrace = None  # it holds the reader, which holds the transcript: it would stay until garbage is looked for
    if one.helper:
        return False
    one.skipped.update(one.strays)
    return True


def _count_skipped(one: Transcript, source: LogSource) -> None:
    one.skipped.update(source.skipped)
    source.skipped.clear()


def units(folder: Path) -> Iterator[Path]:
    """Units of reading in a folder, in order: files that may be logs, and folders that hold one run event by event."""
    helpers = [one.is_beside for one in formats().values() if one.is_beside is not None]
    done: set[Path] = set()
    for path in sorted(
        path for path in folder.rglob("*") if unpacked_name(path.name).endswith(ENDINGS) and path.is_file()
    ):
        if path.parent in done or any(is_beside(path) for is_beside in helpers):
            continue
        whole = _in_folder(path) is not None
        if whole:
            done.add(path.parent)
        yield path.parent if whole else path


def _in_folder(path: Path) -> Callable[[Path], Transcript] | None:
    """The reader of runs that are folders of such files, if this is one of them."""
    for one in formats().values():
        try:
            if one.is_part is not None and one.is_part(path):
                return one.of_folder
        except BadInput:
            continue
    return None


def _of_unit(unit: Path, view: View = "trace") -> Iterator[Transcript]:
    """The runs of a file, or the one run of a folder that `units` takes for one."""
    if not unit.is_dir():
        yield from transcripts(unit, view)
        return
    reader = next(
        reader for path in sorted(unit.iterdir()) if path.is_file() and (reader := _in_folder(path)) is not None
    )
    one = reader(unit)
    one.path = str(unit)
    one.ident = one.ident or (unit.parent.name if unit.name == "events" else unit.name)
    yield one


def _folder(folder: Path, on_skip: Callable[[BadInput], None] | None, view: View = "trace") -> Iterator[Transcript]:
    refusal = f"no traces in the folder {folder}"
    return read_each(units(folder), partial(_of_unit, view=view), refusal, endings=ENDINGS, on_skip=on_skip)
