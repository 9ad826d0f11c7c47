"""The way from files to transcripts and sessions: any file or folder, recognised by what is in it, never by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.format import CALLS, ENDINGS, Format, format_of, peek_at
from context_bench.transcripts.formats import formats
from context_bench.transcripts.formats.pairs import Pair as Pair
from context_bench.transcripts.record import Transcript
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source, is_note
from context_bench.transcripts.views import session

_TRIED = ". Formats tried: "
Read = Format[Iterator[Transcript]]


def read_sessions(
    paths: str | Path | Iterable[str | Path], *, agents: bool = False, on_skip: Callable[[BadInput], None] | None = None
) -> Iterator[Session]:
    """Every session in a file, a folder (its log files, at any depth, by name) or several of these, as they are read.

    `agents`: agents' logs that hold no conversation too, as sessions of their tool calls (see `logs.views`).
    A file of no known format raises `BadInput` with its first keys and the formats tried. In a folder such a file is told to `on_skip`
    instead; only a folder without any session raises. What was passed over inside a file is counted in `session.meta["skipped"]`.
    """
    for path in [Path(paths)] if isinstance(paths, str | Path) else map(Path, paths):
        if path.is_dir():
            yield from _folder(path, agents, on_skip)
        else:
            yield from _file(path, agents)


def read_pairs(path: str | Path) -> Iterator[Pair]:
    """The recorded pairs in a file: what a compressor was given, and what it made of it. Raises `BadInput` for any other file."""
    from context_bench.transcripts.formats import pairs

    peek = peek_at(Source(Path(path)))
    if not pairs.sniff(peek):
        raise BadInput(f"{path}: no recorded pairs: {seen(peek.sample)}; expected objects with 'original' and 'compressed'")
    return pairs.pairs(peek.source)


def opened(path: Path, wanted: Callable[[Read], bool], refusal: str) -> tuple[Read, Source]:
    """A file, and its format among those that are wanted. `BadInput` for a file of none."""
    peek = peek_at(Source(path))
    tried = {name: one for name, one in formats().items() if wanted(one)}
    found = format_of(peek, tried.values())
    if found is None:
        raise BadInput(f"{path}: {refusal}: {seen(peek.sample)}{_TRIED}{', '.join(tried)}")
    return found, peek.source


def _folder(folder: Path, agents: bool, on_skip: Callable[[BadInput], None] | None) -> Iterator[Session]:
    endings = CALLS if agents else ENDINGS
    files = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(endings) and path.is_file() and not is_note(path))
    found, faults = 0, []
    known: set[tuple[str, int]] = set()
    for path in files:
        try:
            for one in _file(path, agents):
                found += 1
                if not _again(one, known):
                    yield one
        except BadInput as error:
            faults.append(in_short(error))
            if on_skip:
                on_skip(faults[-1])
    if not found:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(ENDINGS)}"
        raise BadInput(f"no recorded sessions in the folder {folder}:\n{why}")


def _again(one: Session, known: set[tuple[str, int]]) -> bool:
    """Whether opencode's database and an export beside it hold the same session, which then counts once."""
    if not str(one.meta.get("format")).startswith("opencode"):
        return False
    key = (one.id, len(one.requests))
    again = key in known
    known.add(key)
    return again


def _file(path: Path, agents: bool) -> Iterator[Session]:
    if path.is_file() and not path.stat().st_size:
        raise BadInput(f"{path}: empty file: nothing was recorded")
    try:
        found, source = opened(path, lambda one: one.conversation, "not a log that can be read")
    except BadInput:
        if not agents:
            raise
        found, source = opened(path, lambda one: True, "not a trace that can be read")
    return _sessions(found, source)


def _sessions(found: Read, source: Source) -> Iterator[Session]:
    """The sessions of a file: one for every run in it that the model answered in, those of sub-agents included."""
    number = 0
    for one in found.read(source):
        for part in one.family():
            if found.conversation and part.sent is None and not any(part.messages()):
                continue
            part.ident = part.ident or name_of(source.path)
            made = session(part, str(source.path))
            if made.requests:
                number += 1
                skipped = dict(sorted((source.skipped + part.skipped).items()))
                made.meta |= {"skipped": skipped} if skipped or found.conversation else {}
                source.skipped.clear()
                yield made
    if not number and not found.conversation:
        raise BadInput(f"{source.path}: no tool call in it was recorded with its arguments; nothing can be asked about such a session")
    if not number:
        why = source.skipped_counts() or "nothing"
        raise BadInput(f"{source.path}: a log of {found.name}, but no reply of a model in it; skipped: {why}")


def name_of(path: Path) -> str:
    """A name for a run whose log tells none: the file's, without its endings."""
    for ending in (
        ".traj.json",
        ".checkpoints.jsonl",
        ".context.json",
        ".patch_context.txt",
        ".claude-record.json",
        ".codex-record.json",
        "_traj.json",
        *CALLS,
    ):
        if path.name.endswith(ending):
            return path.name.removesuffix(ending) or path.absolute().parent.name
    return path.name


def in_short(fault: BadInput) -> BadInput:
    """What is wrong with one file of many: without the list of formats, which is the same for all of them."""
    said, mark, _ = str(fault).partition(_TRIED)
    return BadInput(said) if mark else fault


def seen(sample: list[Any]) -> str:
    """What was found in a file that could not be read, in a few words."""
    if not sample:
        return "no line of it is JSON"
    first = sample[0]
    if isinstance(first, dict):
        return f"the first keys are {', '.join(repr(str(key))[:40] for key in list(first)[:8]) or 'none'}"
    return f"the first value is a JSON {type(first).__name__}"
