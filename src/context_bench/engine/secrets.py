"""Keys never reach the store: what looks like a secret of this process or of a plug-in is known beforehand and cut out of all text kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from context_bench.llm.keyring import keys_told
from context_bench.llm.redact import without_parameters

HIDDEN = "[redacted]"
_NAMED = re.compile(
    r"api_?key|secret|token$|_token_|passw|credential|authorization|auth_?header|cookie|^key$|_key$|x-api-key", re.IGNORECASE
)
_USERINFO = re.compile(r"(?<=://)[^/\s@\"'<>]+@")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Texts that must not be kept."""

    texts: tuple[str, ...] = ()
    patterns: tuple[tuple[bytes, bytes], ...] = ()

    def clean(self, data: bytes) -> bytes:
        """`data` (JSON or plain text) without any secret."""
        for pattern, replacement in self.patterns:
            if pattern in data:
                data = data.replace(pattern, replacement)
        return data

    def text(self, text: str) -> str:
        """A message without secrets, and without user names, passwords and keys in URLs."""
        for secret in self.texts:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return without_parameters(_USERINFO.sub("", text)) if "://" in text else text

    def value(self, value: Any) -> Any:
        """A JSON-like value with every text cleaned; entries named like a secret are dropped."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): self.value(item)
                for key, item in value.items()
                if not (_NAMED.search(str(key)) and isinstance(item, str))
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item) for item in value]
        return value


def secrets_of(plugins: Iterable[Any], environment: Mapping[str, str] | None = None) -> Secrets:
    """Secrets in the environment (variables named like one, or by the user as one) and in the attributes of plug-ins (the same, and URLs
    with a password).
    """
    found: set[str] = set(keys_told())
    for name, value in (os.environ if environment is None else environment).items():
        if _NAMED.search(name):
            found.add(value)
        found.update(_passwords(value))
    seen: set[int] = set()
    for plugin in plugins:
        found.update(_inside(plugin, seen, 0))
    texts = sorted({text.strip() for text in found if _plausible(text.strip())}, key=len, reverse=True)
    return Secrets(tuple(texts), tuple(dict.fromkeys(pattern for text in texts for pattern in _patterns(text))))


def _patterns(text: str) -> Iterator[tuple[bytes, bytes]]:
    hidden = HIDDEN.encode()
    yield text.encode("utf-8", "surrogatepass"), hidden
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"), hidden
    yield json.dumps(text)[1:-1].encode("ascii"), hidden


def _plausible(text: str) -> bool:
    """Long enough, and not a plain word, path or sentence: cutting those out of answers would falsify them."""
    if len(text) < 8 or len(text) > 4096 or any(c.isspace() for c in text) or text.startswith(("/", "./", "~")):
        return False
    return len(text) >= 16 or not text.isalpha()


def _inside(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if depth > 4 or id(value) in seen or len(seen) > 2_000:
        return
    if isinstance(value, str):
        yield from _passwords(value)
        return
    if isinstance(value, int | float | bytes | None):
        return
    seen.add(id(value))
    for name, item in _members(value):
        if isinstance(item, str) and name is not None and _NAMED.search(name):
            yield item
            yield item.rpartition(" ")[2]  # "Bearer sk-…"
        yield from _inside(item, seen, depth + 1)


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


def _passwords(text: str) -> Iterator[str]:
    if "://" not in text or "@" not in text or len(text) > 4096:
        return
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
