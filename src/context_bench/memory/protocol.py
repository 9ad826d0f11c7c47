"""The protocol of a memory: items go in, hits come out, and everything else it can do is optional.

A haystack (one conversation, one user's history) is an example's `group`. Its items travel on every example of the
group as one text, `packed(items)`, so that a thousand questions share one copy of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

from context_bench.core.keys import load_json

#: What a memory may say it can do; what it does not name is `NotSupported` and shown as "not applicable", never as 0.
Capability = Literal[
    "add", "search", "answer", "delete", "delete_all", "update", "timestamps", "metadata", "source_ids", "scores", "namespaces", "stats",  # noqa: E501
    "persistent", "list", "by_time", "by_id", "relations", "begin",
]  # fmt: skip


class NotSupported(Exception):
    """The memory does not offer this; the measure is not applicable to it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to remember: a turn of a conversation, a fact, a document.

    `id` is the source id that evidence refers to. `time`: ISO 8601, or the source's own words where they cannot be
    read. `session`: id of the sitting it belongs to.
    """

    id: str
    text: str
    role: str = "user"
    speaker: str | None = None
    time: str | None = None
    session: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The text with who said it, as a reader sees it: `Ann: …` or `user: …`."""
        return f"{self.speaker or self.role}: {self.text}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A memory's reply about one item: acknowledged, or why not. `memory_id`: its own name for it, for deleting and
    updating.
    """

    item_id: str
    memory_id: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing remembered. `source_ids`: the items it came from, as far as the memory knows; empty = it does not
    say.
    """

    text: str
    score: float | None = None
    source_ids: tuple[str, ...] = ()
    memory_id: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between two memories, under the names that the memory gives them."""

    subject: str
    relation: str
    object: str


@runtime_checkable
class Memory(Protocol):
    """The protocol that every adapter gives the thing it adapts. Methods may be plain or async.

    Required: `name`, `capabilities`, `add`, `search`. With `namespaces`: `namespace(name)` gives an isolated twin (same
    configuration, own empty state, safe beside its siblings). Optional: `flush(seconds)` waits until what was added can
    be found and raises `TimedOut` if that takes longer; `delete(memory_id)`, `delete_all()`, `update(memory_id, text)`,
    `answer(question)`, `fingerprint()`, `close()`, `stats()` → `{"items": …, "bytes": …}`; `reset()` empties this
    namespace and no other; `granularity` ("turn", "pair", "session") says what it wants as one item.

    Other ways to what is kept, each with a capability of its own: `list_all()` gives everything as hits ("list");
    `between(start, end)`, two moments in ISO 8601, what was stored then ("by_time"); `get(memory_id)` a hit or `None`
    ("by_id"); `relate(subject, relation, other)` joins two memories by their ids, and `related(memory_ids)` gives the
    `Relation`s of any of these ("relations"); `native(items)` gives the object that a memory of this kind starts from,
    and `begin(native)` a new memory made from it ("begin"). A memory whose metadata can name an owner has `owner`, the
    fields and values by which it knows the owner of this namespace, and may take `metadata` in `update`.
    """

    name: str
    capabilities: frozenset[str]

    def add(self, items: Sequence[Item]) -> Any:
        """Remember the items; a list of `Receipt`, one per item."""

    def search(self, query: str, k: int, *, as_of: str | None = None) -> Any:
        """The best `k` hits, best first. `as_of`: the moment at which the question is asked; what is dated later is not
        known then.
        """


def date_limit(as_of: str | None) -> str | None:
    """The text up to which dates in ISO 8601, read as texts, are not after `as_of`: a day holds all its hours. `None`:
    no limit, which is also so where `as_of` is no such date. Offsets from UTC are not looked at.
    """
    return f"{as_of.strip()}~" if as_of is not None and _ISO.match(as_of.strip()) else None


def dated_within(time: str | None, limit: str | None) -> bool:
    """True if what is dated `time` is not later than the `date_limit`. What has no date that can be read never is."""
    return limit is None or time is None or time <= limit or not _ISO.match(time)


_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def packed(items: Iterable[Item]) -> str:
    """Items as one text, one JSON object a line, in order; what is empty is left out."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return "\n".join(encode(_plain(item)) for item in items)


def _plain(item: Item) -> dict[str, Any]:
    fields = {
        "id": item.id,
        "text": item.text,
        "role": item.role,
        "speaker": item.speaker,
        "time": item.time,
        "session": item.session,
        "metadata": dict(item.metadata),
    }
    return {key: value for key, value in fields.items() if value not in (None, {})}


@lru_cache(maxsize=8)
def unpacked(text: str) -> tuple[Item, ...]:
    """The items that `packed` wrote; raises `ValueError` for anything else."""
    return tuple(iter_packed(text))


def iter_packed(text: str) -> Iterator[Item]:
    """The same one at a time, so that a long history is never held as objects."""
    at, size = 0, len(text)
    while at < size:
        end = text.find("\n", at)
        line, at = text[at : end if end >= 0 else size], (end + 1 if end >= 0 else size)
        if not line:
            continue
        try:
            fields = load_json(line)
        except ValueError:
            fields = None
        if type(fields) is not dict or type(fields.get("text")) is not str or "id" not in fields:
            raise ValueError(f"not an item of a memory: {line[:80]!r}")
        yield Item(**{**fields, "id": str(fields["id"])})


def count_packed(text: str) -> int:
    """Count the items that `packed` wrote."""
    return text.count("\n") + 1 if text else 0


def dated(text: str, time: str | None) -> str:
    """A text as a reader is shown it: with its date, where one is known and the text does not have it."""
    return f"[{time}] {text}" if time and time not in text else text


def conversation(items: Sequence[Item], *, capitals: bool = False) -> str:
    """The whole haystack as one readable text: sessions under their dates, one line an item. `capitals`: of
    roles, as in `USER: …`; names stay as they are.
    """
    lines: list[str] = []
    session: object = object()
    for item in items:
        if item.session != session:
            session = item.session
            heading = " ".join(
                part for part in (f"[session {item.session}]" if item.session else "", item.time or "") if part
            )
            lines += ["", heading] if heading and lines else [heading] if heading else []
        lines.append(f"{item.role.upper()}: {item.text}" if capitals and not item.speaker else item.line)
    return "\n".join(lines)
