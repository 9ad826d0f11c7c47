"""The way from files to recorded answers: any file of another harness, recognised by what is in it."""

from __future__ import annotations

from pathlib import Path

from context_bench.core.errors import BadInput
from context_bench.transcripts.answers.record import AnswerLog
from context_bench.transcripts.format import Format, format_of, formats_in, peek_at
from context_bench.transcripts.inspect_files import is_archive
from context_bench.transcripts.read import seen
from context_bench.transcripts.source import Source


def formats() -> dict[str, Format[AnswerLog]]:
    """Every format of answers by its name, in the order in which they are tried."""
    return {one.name: one for one in formats_in(__package__).values()}


def read_answers(path: str | Path, format: str | None = None) -> AnswerLog:  # noqa: A002
    """The answers in a file: an Inspect log (.eval or .json), lm-eval samples (.jsonl), or JSON lines such as our own export.

    `format` skips the guess. Raises `BadInput` for a file that is none of these, with what was seen in it.
    """
    place, known = Path(path), formats()
    if format is not None and format not in known:
        raise BadInput(f"{format!r} is not a format of recorded answers; expected one of: {', '.join(known)}")
    peek = peek_at(Source(place))
    if is_archive(peek.start) and format not in (None, "inspect"):
        raise BadInput(f"{place} is a ZIP archive, which only Inspect's .eval logs are, not {format}")
    found = known[format] if format is not None else format_of(peek, known.values())
    if found is None:
        raise BadInput(f"{place}: no recorded answers: {seen(peek.sample)}. Formats tried: {', '.join(known)}")
    return found.read(peek.source)
