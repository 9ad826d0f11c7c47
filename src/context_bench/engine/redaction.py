"""Cut secrets out of all text that is stored: keys of this process, its environment and its plug-ins, collected
beforehand. A `Serializer` makes bytes of what a run writes, without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from context_bench.core.records import Usage
from context_bench.core.secrets import (
    Masker,
    Whole,
    field_names_a_secret,
    is_searchable,
    plain_parameters,
    secrets_in_url,
    secrets_in_value,
    surely_names_a_secret,
)
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Bodies, dumps, is_reference, loads, pack
from context_bench.llm.redact import environment_notes, environment_secrets, without_parameters

HIDDEN = "[redacted]"
_USERINFO = re.compile(r"(?<=://)[^/\s@\"'<>]+@")


@cache
def _fields() -> frozenset[str]:
    """Every word in this package's sources, and so every name of a field that it reads back."""
    root, found = Path(__file__).parents[1], set()
    for pattern in ("*.py", "*.toml"):
        for path in root.rglob(pattern):
            found.update(re.findall(r"[a-z][a-z_]{2,40}", path.read_text("utf-8")))
    return frozenset(found)


class Secrets:
    """Texts that must not be kept. `texts`: those that are searched for; `notes`: what that search cannot do, for the
    run's notes.
    """

    def __init__(self, texts: Iterable[str] = (), notes: Sequence[str] = ()) -> None:
        self._masker = Masker(texts, HIDDEN, _fields)
        self.texts, self.notes = self._masker.values, tuple(notes)

    def clean(self, data: bytes) -> bytes:
        """`data` (JSON, or plain text) without any secret; JSON stays JSON."""
        if not self._masker.may_be_in(data):
            return data
        try:
            return dumps(self._masker.value(loads(data), unchanged=is_reference))
        except (ValueError, RecursionError):
            return self._masker.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def text(self, text: str) -> str:
        """A message without secrets, and without user names, passwords and keys in URLs."""
        text = self._masker.cut(text)
        return without_parameters(_USERINFO.sub("", text)) if "://" in text else text

    def value(self, value: Any) -> Any:
        """A JSON-like value with every text cleaned; entries named like a secret are dropped."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self._masker.key(str(key)): self.value(item)
                for key, item in value.items()
                if not (isinstance(item, str) and field_names_a_secret(str(key)))
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item) for item in value]
        return value


def secrets_of(plugins: Iterable[Any], environment: Mapping[str, str] | None = None) -> Secrets:
    """Secrets in the environment (variables named like one, or by the user as one) and in the attributes of plug-ins:
    the same, and the login and query of URLs.
    """
    found = {text.strip() for texts in environment_secrets(environment).values() for text in texts}
    seen: set[int] = set()
    urls: list[str] = []
    for plugin in plugins:
        found.update(text if isinstance(text, Whole) else text.strip() for text in _inside(plugin, seen, urls, 0))
    notes = environment_notes(environment)
    if names := sorted({name for url in urls for name in plain_parameters(url)}):
        notes.append(
            f"Query parameters of the URLs asked: {', '.join(names)}. Their values are masked wherever they occur, in "
            "answers before "
            "they are scored as well; a value that an answer may hold belongs in a header."
        )
    return Secrets(found, notes)


def _inside(value: Any, seen: set[int], urls: list[str], depth: int) -> Iterator[str]:
    if depth > 4 or id(value) in seen or len(seen) > 2_000:
        return
    if isinstance(value, str):
        if "://" in value:
            urls.append(value)
            yield from secrets_in_url(value)
        return
    if isinstance(value, int | float | bytes | None):
        return
    seen.add(id(value))
    for name, item in _members(value):
        if isinstance(item, str) and name is not None and field_names_a_secret(name):
            yield from _of_attribute(name, item)
        yield from _inside(item, seen, urls, depth + 1)


def _of_attribute(name: str, value: str) -> Iterator[str]:
    """The secrets in an attribute. Many are called `sort_key` and the like and hold a word that says nothing of a
    secret.
    """
    if surely_names_a_secret(name) or len(value) >= 16 or not value.isalpha():
        yield from (each for each in secrets_in_value(value) if is_searchable(each))


def _members(value: Any) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        for name, item in list(value.items())[:500]:
            yield str(name), item
    elif isinstance(value, list | tuple | set | frozenset):
        for item in list(value)[:100]:
            yield None, item
    elif not isinstance(value, type | ModuleType):
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
        for slot in (slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())):
            if isinstance(slot, str) and not slot.startswith("__"):
                with suppress(Exception):  # what makes its attributes when they are asked for may fail in any way
                    yield slot, getattr(value, slot)


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
        return pack(dumps({name: tokens for name in _USAGE if (tokens := getattr(usage, name)) is not None}))

    def body(self, value: Any) -> bytes:
        """Keep a body with the next transaction; its key."""
        return self.bodies.add(value)


_USAGE = tuple(Usage.__dataclass_fields__)
