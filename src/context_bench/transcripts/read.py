"""The door to the logs: any file or folder of recorded conversations, recognised by what is in it, never by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.formats.pairs import Pair as Pair
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source, is_note
from context_bench.transcripts.transcripts import ENDINGS as TRANSCRIPTS
from context_bench.transcripts.transcripts import FORMATS as TRANSCRIPT_FORMATS
from context_bench.transcripts.transcripts import format_of, peek_at
from context_bench.transcripts.transcripts.views import sessions as transcript_sessions

#: Formats in the order in which they are tried, after those of `logs.transcripts`: the particular before the general.
FORMATS: tuple[str, ...] = (
    "codex_rollout",
    "codex_exec",
    "claude_code_stream",
    "claude_code_transcript",
    "tap_records",
    "pairs",
    "lucebench",
    "anthropic_jsonl",
    "openai_jsonl",
)
_ENDINGS = TRANSCRIPTS
_TRIED = ". Formats tried: "


def read_sessions(
    paths: str | Path | Iterable[str | Path], *, agents: bool = False, on_skip: Callable[[BadInput], None] | None = None
) -> Iterator[Session]:
    """Every session in a file, a folder (its log files, at any depth, by name) or several of these, as they are read.

    `agents`: agents' logs that hold no conversation too, as sessions of their tool calls (see `logs.agents`).
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

    source = Source(Path(path))
    if not pairs.matches(sample := source.sample()):
        raise BadInput(f"{path}: no recorded pairs: {seen(sample)}; expected objects with 'original' and 'compressed'")
    return pairs.pairs(source)


def _folder(folder: Path, agents: bool, on_skip: Callable[[BadInput], None] | None) -> Iterator[Session]:
    endings = _agents().ENDINGS if agents else _ENDINGS
    files = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(endings) and path.is_file() and not is_note(path))
    found, faults = 0, []
    known: set[tuple[str, int]] = set()
    for path in files:
        try:
            for session in _file(path, agents):
                found += 1
                if not _again(session, known):
                    yield session
        except BadInput as error:
            faults.append(in_short(error))
            if on_skip:
                on_skip(faults[-1])
    if not found:
        why = "\n".join(f"  - {fault}" for fault in faults[:5]) or f"  - no files that end in {', '.join(_ENDINGS)}"
        raise BadInput(f"no recorded sessions in the folder {folder}:\n{why}")


def _again(session: Session, known: set[tuple[str, int]]) -> bool:
    """Whether opencode's database and an export beside it hold the same session, which then counts once."""
    if not str(session.meta.get("format")).startswith("opencode"):
        return False
    key = (session.id, len(session.requests))
    again = key in known
    known.add(key)
    return again


def _agents() -> Any:
    return importlib.import_module("context_bench.transcripts.agents")


def _file(path: Path, agents: bool) -> Iterator[Session]:
    source = Source(path)
    if path.is_file() and not path.stat().st_size:
        raise BadInput(f"{path}: empty file: nothing was recorded")
    peek = peek_at(source)
    if (found := format_of(peek)) is not None:
        return transcript_sessions(found, source)
    sample = peek.sample
    for name in FORMATS:
        reader = importlib.import_module(f"context_bench.transcripts.formats.{name}")
        if reader.matches(sample):
            return iter(reader.sessions(source))
    if agents:
        return iter(_agents().agent_sessions(path))
    raise BadInput(f"{path}: not a log that can be read: {seen(sample)}{tried(FORMATS)}")


def tried(formats: Iterable[str]) -> str:
    """The end of a refusal: which formats a file has none of."""
    return _TRIED + ", ".join((*TRANSCRIPT_FORMATS, *formats))


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
