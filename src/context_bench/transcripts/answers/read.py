"""The door to recorded answers: any file of another harness, recognised by what is in it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.answers.record import AnswerLog
from context_bench.transcripts.read import seen
from context_bench.transcripts.source import Source

#: Formats in the order in which they are tried, and the module that reads each.
FORMATS = {"inspect": "inspect_logs", "lm-eval": "lm_eval", "jsonl": "jsonl"}
_ZIP = b"PK\x03\x04"


def read_answers(path: str | Path, format: str | None = None) -> AnswerLog:  # noqa: A002
    """The answers in a file: an Inspect log (.eval or .json), lm-eval samples (.jsonl), or JSON lines such as our own export.

    `format` skips the guess. Raises `BadInput` for a file that is none of these, with what was seen in it.
    """
    place = Path(path)
    if format is not None and format not in FORMATS:
        raise BadInput(f"{format!r} is not a format of recorded answers; expected one of: {', '.join(FORMATS)}")
    if _is_zip(place):
        if format not in (None, "inspect"):
            raise BadInput(f"{place} is a ZIP archive, which only Inspect's .eval logs are, not {format}")
        from context_bench.transcripts.answers.inspect_logs import read_archive

        return read_archive(place)
    source = Source(place)
    sample = source.sample()
    for name, module in FORMATS.items():
        reader: Any = import_module(f"context_bench.transcripts.answers.{module}")
        if format == name or (format is None and reader.matches(sample)):
            return reader.read(source)  # type: ignore[no-any-return]
    raise BadInput(f"{place}: no recorded answers: {seen(sample)}. Formats tried: {', '.join(FORMATS)}")


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _ZIP
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
