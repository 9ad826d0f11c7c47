"""Files of SWE-agent's context-aware runs beside the trajectory: `*.context.json`, `*patch_context.txt` with `File:`
and `Lines:`.

Both are lists made by the run's own program: files and lines that it says were looked at, in
no order. They are the run's final context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.trace import Event, claims_of, span_of, spans
from context_bench.transcripts.transcript import Transcript, run

_ENDING = "patch_context.txt"
#: So large may a list in plain text be.
_LIMIT = 16 * 1024 * 1024


def sniff(peek: Peek) -> bool:
    """True if the first object lists files that were viewed and their lines."""
    return _is_text_list(peek.path) or _lists(peek.first)


def _lists(first: Mapping[str, Any]) -> bool:
    return isinstance(first.get("file_line_ranges"), Mapping) or (
        isinstance(first.get("viewed_files"), list) and "messages" not in first and "trajectory" not in first
    )


def _is_text_list(path: Path) -> bool:
    """True if a file in plain text is such a list."""
    if not path.name.endswith(_ENDING) or path.stat().st_size > _LIMIT:
        return False
    with path.open("rb") as file:
        return any(line.lstrip().startswith(b"File:") for line in file)


def read(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file."""
    if _is_text_list(source.path):
        source.skipped.clear()  # it is no JSON, and need not be
        one = run("swe-agent", None)
        one.final = spans(source.path.read_text("utf-8", "replace"), 1, "patch_context")
        yield one
        return
    yield from map(_listed, source.rows(_lists, "no list of files"))


def _listed(value: Mapping[str, Any]) -> Transcript:
    one = run("swe-agent", value.get("instance_id"))
    lines: dict[str, list[tuple[int, int]]] = {
        str(path): [pair for span in map(mapping, sequence(spans)) if (pair := span_of(span))]
        for path, spans in mapping(value.get("file_line_ranges")).items()
    }
    viewed = [path for path in sequence(value.get("viewed_files")) if isinstance(path, str)]
    one.final = claims_of("context", 1, lines, files=[*lines, *viewed])
    edited = [path for path in sequence(value.get("edited_files")) if isinstance(path, str)]
    one.events = [Event(1, None, "edit", "context", path, None, "edit", "claimed") for path in dict.fromkeys(edited)]
    one.patch = text(mapping(value.get("info")).get("submission"))
    return one


FORMAT = Format("swe-agent-context", 230, sniff, read)
