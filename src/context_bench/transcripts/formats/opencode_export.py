"""Output of `opencode export`: `{"info": …, "messages": [{"info": …, "parts": […]}]}`, one session a document."""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.format import Format, LogSource, Peek, mapping
from context_bench.transcripts.formats._opencode import joined, told, transcript_of
from context_bench.transcripts.transcript import Transcript

NAME = "opencode-export"


def sniff(peek: Peek) -> bool:
    """True if the first object is a session with its messages."""
    info, messages = peek.first.get("info"), peek.first.get("messages")
    if not isinstance(info, dict) or not isinstance(messages, list) or not isinstance(info.get("id"), str):
        return False
    return all(
        isinstance(m, dict) and isinstance(m.get("info"), dict) and isinstance(m.get("parts"), list)
        for m in messages[:20]
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One session per object, sub-agents' with the one that they helped where both are in the file."""
    yield from joined(_each(source))


def _each(source: LogSource) -> Iterator[Transcript]:
    for value in map(mapping, source.values()):
        if isinstance(value.get("info"), dict) and isinstance(value.get("messages"), list):
            yield transcript_of(value["info"], told(value["messages"]), source.skip)
        else:
            source.skip("not a session")


FORMAT = Format(NAME, 30, sniff, read, conversation=True)
