"""Texts that are kept only to be compared with later ones: named by a digest, packed until one is needed again."""

from __future__ import annotations

import hashlib
import zlib

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
