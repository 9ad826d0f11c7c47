"""The door to agents' logs: any file or folder of them, recognised by what is in it, never by its name alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.read import in_short, seen, tried
from context_bench.transcripts.source import Source
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.calls import Workspace, events_of_call
from context_bench.transcripts.traces.folders import root_among
from context_bench.transcripts.traces.paths import located, root_of, worked_in
from context_bench.transcripts.traces.recording import Recording
from context_bench.transcripts.traces.transcribed import Recorded
from context_bench.transcripts.traces.vocabulary import Vocabulary
from context_bench.transcripts.transcripts import ENDINGS as TRANSCRIPTS
from context_bench.transcripts.transcripts import format_of, peek_at

#: Formats in the order in which they are tried, after those of `logs.transcripts`: the particular before the general. Each is a module of
#: `formats` with `NAME`, `matches(sample)` and `recordings(source)`; one that may be plain text has `told_by(path)`, one of which many
#: files of a folder make one run has `is_part(path)` and `of_folder(folder)`.
FORMATS: tuple[str, ...] = (
    "own",
    "tap",
    "run_record",
    "atif",
    "otel",
    "inspect_log",
    "mini_swe_agent",
    "agentless",
    "gemini",
    "codex_rollout",
    "codex_exec",
    "cursor",
    "claude_stream",
    "claude_transcript",
    "opencode",
    "cline",
    "openhands",
    "openhands_completions",
    "swe_context",
    "benchkit",
    "unified",
    "prometheus",
)
ENDINGS = (*TRANSCRIPTS, ".eval", ".log", "patch_context.txt")
Repos = FilesByPath | Callable[[Trace], FilesByPath | None]


def load_traces(
    paths: str | Path | Iterable[str | Path],
    *,
    tools: str | Path | Mapping[str, Any] | None = None,
    repo: Repos | None = None,
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[Trace]:
    """Every run in a file, a folder (its log files, at any depth, by name) or several of these, as they are read.

    `tools`: rows for the table of tools (TOML), before the built-in ones. `repo`: the files as the agent found them, for all runs or by
    run; with them commands, unnumbered outputs and paths of other machines are understood better. A file of no known format raises
    `BadInput` with its first keys and the formats tried; in a folder it is told to `on_skip`, and only a folder without any run raises.
    What was passed over inside a file is counted in `Trace.skipped`.
    """
    vocabulary = Vocabulary.load(tools)
    for path in [Path(paths)] if isinstance(paths, str | Path) else map(Path, paths):
        for recording in _folder(path, on_skip) if path.is_dir() else recordings(path):
            yield trace_of(recording, vocabulary, repo(recording.head) if callable(repo) else repo)


def trace_of(recording: Recording, vocabulary: Vocabulary | None = None, repo: FilesByPath | None = None) -> Trace:
    """The trace of one recording: its calls as events, paths from the repository's root."""
    trace = recording.head
    if recording.settled:
        return trace
    if trace.cwd is None and (folder := worked_in(recording.calls, repo)) is not None:
        trace.cwd = folder
        trace.notes.append("the folder of the repository is where it lies now, which the calls name")
    if trace.cwd is None:
        trace.cwd = root_among(recording.folders, repo, begun=recording.begun)
    place = Workspace(
        trace.cwd, repo, vocabulary or Vocabulary.load(), lasting_shell=recording.lasting_shell, outputs=recording.outputs, cwd=trace.cwd
    )
    for step, call in enumerate(recording.calls, (trace.steps or 0) + 1):
        trace.events += events_of_call(call, step, place)
    trace.events.sort(key=lambda event: event.step)
    if recording.calls:
        trace.steps = (trace.steps or 0) + len(recording.calls)
    _rooted(trace, place)
    trace.first_test_command = trace.first_test_command or place.first_test
    for reason, number in sorted(place.counts.items()):
        if reason.startswith("unknown tool "):
            trace.skipped[reason] += number
        else:
            trace.notes.append(f"{reason}: {number}")
    return trace


def _rooted(trace: Trace, place: Workspace) -> None:
    """Where the log does not say which folder the agent worked in, tell it by paths that it wrote in both ways."""
    events = [event for event in (*trace.events, *(trace.final or ())) if event.path]
    named = [event.path for event in events if event.path]
    if trace.cwd is None:
        told = place.roots.most_common(2)
        sure = told and (len(told) == 1 or told[0][1] > told[1][1])
        trace.cwd = told[0][0] if sure else root_of([p for p in named if p.startswith("/")], [p for p in named if not p.startswith("/")])
        if trace.cwd is not None:
            trace.notes.append("the folder of the repository was told by the paths")
    for event in events:
        if event.path and event.path.startswith("/"):
            event.path = located(event.path, None, trace.cwd) or event.path
    outside = {event.path for event in events if event.path and (event.path.startswith("/") or event.path.startswith("../"))}
    if outside:
        trace.notes.append(f"paths outside the repository, or of another place: {len(outside)}")


def recordings(path: Path) -> Iterator[Recording]:
    """The recordings of one file, in its own format. `BadInput` for a file of none."""
    reader, source = _reader(path)
    last: Recording | None = None
    for number, recording in enumerate(reader.recordings(source), 1):
        _named(recording, path, number)
        if last is not None:
            yield last
        recording.head.skipped.update(source.skipped)
        source.skipped.clear()
        last = recording
    if last is None:
        raise BadInput(f"{path}: a log of {reader.NAME}, but no run in it; skipped: {dict(source.skipped) or 'nothing'}")
    last.head.skipped.update(source.skipped)
    yield last


def _reader(path: Path) -> tuple[Any, Any]:
    inspect = _format("inspect_log")
    if inspect.zipped(path):
        return inspect, Source(path)
    source = Source(path)
    peek = peek_at(source)
    if (found := format_of(peek)) is not None:
        return Recorded(found), source
    sample = peek.sample
    for reader in map(_format, FORMATS):
        if reader.matches(sample) or (hasattr(reader, "told_by") and reader.told_by(path)):
            return reader, source
    raise BadInput(f"{path}: not a trace that can be read: {seen(sample)}{tried(FORMATS)}")


def _format(name: str) -> Any:
    return importlib.import_module(f"context_bench.transcripts.traces.formats.{name}")


@lru_cache(maxsize=1)
def _in_many_files() -> list[Any]:
    return [reader for reader in map(_format, FORMATS) if hasattr(reader, "is_part")]


def _named(recording: Recording, path: Path, number: int) -> None:
    """A name for a run whose log tells none: the file's, without its endings."""
    if not recording.named:
        name = path.name
        for ending in (
            ".traj.json",
            ".checkpoints.jsonl",
            ".context.json",
            ".patch_context.txt",
            ".claude-record.json",
            ".codex-record.json",
            "_traj.json",
            *ENDINGS,
        ):
            if name.endswith(ending):
                name = name.removesuffix(ending) or path.absolute().parent.name
                break
        recording.head.instance_id = name if number == 1 else f"{name}/{number}"


def units(folder: Path) -> Iterator[Path]:
    """What is read on its own in a folder, in order: files that may be logs, and folders that hold one run event by event."""
    transcripts = _format("claude_transcript")
    done: set[Path] = set()
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(ENDINGS) and path.is_file()):
        if path.parent in done or transcripts.beside(path):
            continue
        whole = _in_folder(path) is not None
        if whole:
            done.add(path.parent)
        yield path.parent if whole else path


def _in_folder(path: Path) -> Any:
    """The format whose runs are folders of such files, if this is one of them."""
    for reader in _in_many_files():
        try:
            if reader.is_part(path):
                return reader
        except BadInput:
            continue
    return None


def _of_folder(folder: Path) -> Recording:
    """The run of a folder that `units` takes for one."""
    reader = next(found for path in sorted(folder.iterdir()) if path.is_file() and (found := _in_folder(path)) is not None)
    recording: Recording = reader.of_folder(folder)
    recording.head.instance_id = recording.head.instance_id or _folder_name(folder)
    return recording


def _folder(folder: Path, on_skip: Callable[[BadInput], None] | None) -> Iterator[Recording]:
    found, faults = 0, list[BadInput]()
    for unit in units(folder):
        try:
            if unit.is_dir():
                recording = _of_folder(unit)
                found += 1
                yield recording
                continue
            for recording in recordings(unit):
                found += 1
                yield recording
        except BadInput as error:
            faults.append(in_short(error))
            if on_skip:
                on_skip(faults[-1])
    if not found:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(ENDINGS)}"
        raise BadInput(f"no traces in the folder {folder}:\n{why}")


def _folder_name(folder: Path) -> str:
    return folder.parent.name if folder.name == "events" else folder.name
