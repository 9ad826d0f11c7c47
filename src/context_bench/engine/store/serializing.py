"""What values of a run become before they are stored: JSON without secrets, texts without secrets, bodies kept once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from context_bench.core.records import Usage
from context_bench.core.tokens import utf8_safe
from context_bench.engine.secrets import Secrets
from context_bench.engine.store import schema
from context_bench.engine.store.encoding import Bodies, dumps, pack
from context_bench.engine.store.statements import add_new


@dataclass(slots=True)
class Serializer:
    """Makes bytes and texts of what a run writes; gathers its bodies until the transaction that takes them along."""

    secrets: Secrets
    bodies: Bodies = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.secrets.clean)

    def json(self, value: Any) -> bytes:
        """Any value, packed."""
        return pack(self.secrets.clean(dumps(value)))

    def json_or_null(self, value: Any) -> bytes | None:
        """The same, and nothing for what is empty."""
        return pack(self.secrets.clean(dumps(value))) if value else None

    def text(self, text: str) -> str:
        """A message."""
        return utf8_safe(self.secrets.text(text))

    def text_or_null(self, text: str | None) -> str | None:
        """A message, if there is one."""
        return None if text is None else utf8_safe(self.secrets.text(text))

    def usage(self, usage: Usage | None) -> bytes | None:
        """Tokens as they were billed, as far as they are known."""
        if not usage:
            return None
        told = {name: number for name in _USAGE if (number := getattr(usage, name)) is not None}
        return pack(dumps(told))

    def body(self, value: Any) -> bytes:
        """Keep a body with the next transaction; its key."""
        return self.bodies.add(value)


_USAGE = tuple(Usage.__dataclass_fields__)


def write_bodies(connection: Connection, bodies: Bodies) -> None:
    """Write what was gathered and is not there yet, in the order of keys: two writers never wait for one another in a circle."""
    add_new(connection, schema.bodies, ("key", "data"), sorted(bodies.fresh.items()))
    links = sorted((link["body"], link["part"]) for link in bodies.links)
    add_new(connection, schema.body_parts, ("body", "part"), links)
