"""Exports of memories as records: whatever a product calls its fields, a text with a date and an owner."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.tokens import utf8_safe

_TEXT = ("text", "memory", "fact", "content", "data", "page_content", "document", "summary", "value")
_LISTS = (
    "results", "memories", "edges", "facts", "episodes", "items", "data", "documents", "messages", "records", "hits", "relations", "nodes",
)  # fmt: skip
_ID = ("id", "uuid", "memory_id", "_id", "key")
_CREATED = ("created_at", "createdAt", "created", "time", "timestamp", "date", "valid_at")
_UPDATED = ("updated_at", "updatedAt", "updated")
_OWNER = ("user_id", "userId", "user", "agent_id", "group_id", "graph_uuid", "namespace")
_ENDED = ("invalid_at", "expired_at", "deleted_at", "superseded_by", "invalidAt", "expiredAt")
_GONE = frozenset({"delete", "deleted", "superseded", "outdated", "invalid", "expired", "archived"})
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Record:
    """One memory of an export. `ended`: the export itself says that it holds no more."""

    text: str
    id: str | None = None
    created: datetime | None = None
    updated: datetime | None = None
    owner: str = ""
    ended: bool = False

    @property
    def when(self) -> datetime | None:
        """When it was last said."""
        return self.updated or self.created


@dataclass(frozen=True, slots=True)
class Export:
    """What a file holds: the memories, whose shape they have, and how many entries had no text."""

    records: tuple[Record, ...]
    shape: str
    textless: int


def read_export(path: str | Path) -> Export:
    """Read a JSON or JSONL export; `BadInput` if the file is none, or holds no memory."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    entries = list(_entries(_parsed(text, path), 0))
    found = [(record, shape) for entry in entries if (record := _record(entry)) is not None for shape in [_shape(entry)]]
    if not found:
        raise BadInput(
            f"{path} holds no memories: expected a list (or lines) of objects with one of {', '.join(_TEXT)}, "
            f"as exports of mem0, Zep and LangGraph have; found {len(entries)} entries without a text"
        )
    ((shape, _),) = Counter(shape for _, shape in found).most_common(1)
    return Export(tuple(record for record, _ in found), shape, len(entries) - len(found))


def moment(value: Any) -> datetime | None:
    """A date as exports write it (ISO 8601, or seconds or milliseconds since 1970), in UTC; `None` for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        if isinstance(value, str) and value.strip():
            found = datetime.fromisoformat(value.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        whole = error
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply") from None
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2:
        raise BadInput(f"{path} is neither JSON nor JSONL: {whole}")
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is neither JSON ({whole}) nor JSONL (line {number}: {error})") from None
    return entries


def _entries(value: Any, depth: int) -> Iterator[Any]:
    """The single memories of whatever holds them."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for each in value:
            yield from _entries(each, depth + 1) if isinstance(each, list) or _holder(each) else [each]
    elif _holder(value):
        for name in _LISTS:
            if isinstance(value.get(name), list | dict):
                yield from _entries(value[name], depth + 1)
    elif isinstance(value, Mapping) and _text(value) is None:  # id → memory
        for name, each in value.items():
            if isinstance(each, list) or _holder(each):
                yield from _entries(each, depth + 1)
            else:
                yield {"id": name, **each} if isinstance(each, Mapping) else each
    else:
        yield value


def _holder(value: Any) -> bool:
    """Whether this holds lists of memories and is none itself."""
    if not isinstance(value, Mapping) or not any(isinstance(value.get(name), list) for name in _LISTS):
        return False
    return not any(isinstance(value.get(name), str) for name in _TEXT)


def _record(entry: Any) -> Record | None:
    if isinstance(entry, str):
        return Record(utf8_safe(entry)) if entry.strip() else None
    text = _text(entry) if isinstance(entry, Mapping) else None
    if text is None or not text.strip():
        return None
    about = entry.get("metadata") if isinstance(entry.get("metadata"), Mapping) else {}
    created, updated = (moment(_first(entry, names, about)) for names in (_CREATED, _UPDATED))
    owner = _first(entry, _OWNER, about)
    state = str(entry.get("state") or entry.get("status") or entry.get("event") or "").lower()
    ended = state in _GONE or entry.get("is_latest") is False or any(entry.get(name) for name in _ENDED)
    name = _first(entry, _ID, {})
    owner = "" if owner is None else owner if isinstance(owner, str) else json.dumps(owner)
    return Record(utf8_safe(text), None if name is None else str(name), created, updated, owner, ended)


def _first(entry: Mapping[str, Any], names: tuple[str, ...], about: Mapping[str, Any]) -> Any:
    return next((each[name] for each in (entry, about) for name in names if each.get(name) not in (None, "", [], {})), None)


def _text(value: Any, depth: int = 0) -> str | None:
    """The text of a memory: a field of one of the usual names, or what such a field holds in turn."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):  # parts of a message
        parts = [part for each in value if (part := _text(each, depth + 1)) is not None]
        return "\n".join(parts) if parts else None
    if isinstance(value, Mapping):
        for name in _TEXT:
            if name in value and (depth == 0 or name != "data" or isinstance(value[name], str)):
                found = _text(value[name], depth + 1)
                if found is not None:
                    return found
    return None


def _shape(entry: Any) -> str:
    """Whose export this looks like."""
    if isinstance(entry, str):
        return "plain texts"
    keys = set(entry)
    if {"namespace", "key", "value"} <= keys:
        return "LangGraph store"
    if "fact" in keys or {"valid_at", "invalid_at"} & keys or ({"uuid", "content"} <= keys):
        return "Zep"
    if "memory" in keys:
        return "mem0"
    if {"id", "text"} <= keys and {"role", "session", "speaker"} & keys:
        return "context-bench"
    return "generic"
