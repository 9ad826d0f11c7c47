"""Stable identity: the same content gives the same key in any process, on any machine.

Also texts that are kept only for comparison with later ones: named by a digest, packed until one is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces, no ASCII escapes: equal values give equal text.

    Lone surrogates are kept (they are legal in a Python string); values that JSON does not know are
    written as their `repr`, so that an odd object changes the key instead of ending the run.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)


def stable_hash(value: Any, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON of `value`."""
    if type(value) is str and (written := _text_as_json(value)) is not None:
        return hash_bytes(written, length)
    return hash_text(canonical_json(value), length)


def _text_as_json(text: str) -> bytes | None:
    """The bytes of a text's `canonical_json`, ten times as fast; `None` for half a surrogate pair."""
    import orjson

    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return None


def hash_text(text: str, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of `text` in UTF-8 (lone surrogates included)."""
    return hash_bytes(text.encode("utf-8", "surrogatepass"), length)


def hash_bytes(data: bytes, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()[:length]


def keyed_digest(key: str, value: Any, length: int = 24) -> str:
    """The first `length` hex digits of the HMAC-SHA-256 of the canonical JSON of `value`: tells nothing without the
    key.
    """
    text = canonical_json(value).encode("utf-8", "surrogatepass")
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()[:length]


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex digits. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seed_of(*parts: Any) -> int:
    """A 64-bit seed from any values: what is random stays the same for the same example and seed."""
    return int(stable_hash(list(parts), 16), 16)


_SHORT = 200  # bytes up to which packing gains nothing


def digest_of(kind: str, text: str) -> bytes:
    """16 bytes that name a text of a kind."""
    return hashlib.blake2b(f"{len(kind)}:{kind}{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def packed(text: str) -> bytes:
    """The text in fewer bytes, its first byte saying how."""
    data = text.encode("utf-8", "surrogatepass")
    return b"\0" + data if len(data) <= _SHORT else b"\1" + zlib.compress(data, 1)


def unpacked(data: bytes) -> str:
    """The text again."""
    plain = data[1:] if data[0] == 0 else zlib.decompress(data[1:])
    return plain.decode("utf-8", "surrogatepass")
