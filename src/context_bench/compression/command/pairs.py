"""Pairs of what went in and what came out of a compressor, from a JSONL file or from two files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput

_BEFORE = ("original", "original_messages", "sent")
_AFTER = ("compressed", "compressed_messages", "received")


@dataclass(frozen=True, slots=True)
class RawPair:
    """One pair as it was recorded: texts, lists of messages, or whole bodies. `more`: the line's other fields."""

    id: str
    before: Any
    after: Any
    more: Mapping[str, Any] = field(default_factory=dict)


def read(path: Path) -> Iterator[RawPair]:
    """The pairs of a file with one object per line (or one list of them); `BadInput` names the first line that is none."""
    from context_bench.transcripts.source import Source

    if not path.is_file():
        raise BadInput(f"no file {path}; expected JSON lines with 'original' and 'compressed'")
    source = Source(path)
    number = 0
    for number, value in enumerate(source.values(), 1):
        yield _pair(value, number, path)
    if source.skipped:
        raise BadInput(f"{path}: {source.skipped.total()} lines could not be read: {', '.join(source.skipped)}")
    if not number:
        raise BadInput(f"{path}: there is no pair in it")


def _pair(value: Any, number: int, path: Path) -> RawPair:
    if not isinstance(value, Mapping):
        raise BadInput(f"{path}, value {number}: a JSON {type(value).__name__}; expected an object with 'original' and 'compressed'")
    before = next((value[name] for name in _BEFORE if name in value), None)
    after = next((value[name] for name in _AFTER if name in value), None)
    if before is None or after is None:
        keys = ", ".join(repr(str(key))[:40] for key in list(value)[:8]) or "none"
        raise BadInput(f"{path}, value {number}: no 'original' and 'compressed' among its keys {keys}")
    return RawPair(str(value.get("id", number)), before, after, {k: v for k, v in value.items() if k not in (*_BEFORE, *_AFTER)})


def text_or_messages(side: Any, where: str) -> str | list[dict[str, Any]]:
    """One side as a text or as chat messages, whatever wire it was written for."""
    from context_bench.wire.conversation import to_chat

    if isinstance(side, str):
        return side
    body = side if isinstance(side, Mapping) else {"messages": side}
    if not isinstance(body.get("messages", body.get("input")), list):
        raise BadInput(f"{where}: expected a text, a list of messages or a body with 'messages', got a JSON {type(side).__name__}")
    from context_bench.compression import read_request

    return to_chat(read_request(body).wire, body).messages


def texts_by_name(value: Any) -> dict[str, str]:
    """An object of texts, such as headers; empty for anything else."""
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}
