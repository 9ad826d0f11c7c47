"""JSON text and stable identity.

JSON is read as people's files and the wires have it: fast where it is plain, patient where it is odd. It is written
canonically: the same content gives the same text, and so the same key, in any process, on any machine. Texts that are
kept only for comparison with later ones are named by a digest, and packed until one is needed. A sieve looks through
long texts for many short ones by their digests.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from context_bench.core.machine import opened


def forget_oldest(memory: dict[Any, Any], most: int) -> None:
    """Take the oldest entries out of a memory of more than `most`, an eighth of them at a time. Threads may share it:
    an entry that another has taken out meanwhile is gone all the same.
    """
    if (over := len(memory) - max(0, most)) > 0:
        for key in list(memory)[: over + most // 8]:  # of the dictionary itself: an iterator could see it change
            memory.pop(key, None)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces, no ASCII escapes: equal values give equal text.

    Lone surrogates are kept (they are legal in a Python string); values that JSON does not know are
    written as their `repr`, so that an odd object changes the key instead of ending the run.
    """
    long, plain = _looked_through(value)
    return "".join(_in_slices(value)) if long else _written(value, plain)


def stable_hash(value: Any, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON of `value`."""
    long, plain = _looked_through(value)
    if long:
        digest = hashlib.sha256()
        for piece in _in_slices(value):
            digest.update(_utf8(piece))
        return digest.hexdigest()[:length]
    if type(value) is str and (written := _text_as_json(value)) is not None:
        return hash_bytes(written, length)
    return hash_text(_written(value, plain), length)


def _written(value: Any, plain: bool = False) -> str:
    if plain:
        with contextlib.suppress(orjson.JSONEncodeError):  # half a surrogate pair, a number or a key of another sort
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)


def _text_as_json(text: str) -> bytes | None:
    """The bytes of a text's `canonical_json`, ten times as fast; `None` for half a surrogate pair."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return None


#: Characters from which on a text is written and hashed a slice at a time: one wide character makes all of a text four
#: times as large as its bytes, and so each copy of it.
_SLICE = 2**20
_MARK = os.urandom(16).hex()  # stands for a long text; nobody can have written it
_MARKED = re.compile(rf'"{_MARK}(\d+)"')


def _looked_through(value: Any) -> tuple[bool, bool]:
    """The first: a text in it is long. The second: it holds nothing that the fast writer would write in another way,
    as it does floats and what JSON does not know.
    """
    left, plain = [value], True
    while left:
        kind = type(one := left.pop())
        if kind is str:
            if len(one) > _SLICE:
                return True, False
        elif kind is dict:
            left.extend(one.values())
        elif kind is list or kind is tuple:
            left.extend(one)
        elif plain and one is not None and kind is not int and kind is not bool:
            plain = False
    return False, plain


def _in_slices(value: Any) -> Iterator[str]:
    """The canonical JSON of a value with long texts, without a copy of one: of all else, and each text put into its
    place.
    """
    texts: list[str] = []
    parts = _MARKED.split(_written(_marked(value, texts)))  # what is between marks, and the marks' numbers, in turn
    yield parts[0]
    for number, after in zip(parts[1::2], parts[2::2], strict=True):
        text = texts[int(number)]
        yield '"'
        for start in range(0, len(text), _SLICE):
            yield _inside(text[start : start + _SLICE])
        yield '"' + after


def _marked(value: Any, texts: list[str]) -> Any:
    """The value with a mark in the place of each long text, which goes to `texts`."""
    kind = type(value)
    if kind is dict:
        return {key: _marked(inner, texts) for key, inner in value.items()}
    if kind is list or kind is tuple:
        return [_marked(inner, texts) for inner in value]
    if kind is not str or len(value) <= _SLICE:
        return value
    texts.append(value)
    return f"{_MARK}{len(texts) - 1}"


def _inside(text: str) -> str:
    """A text as it stands between the quotes."""
    written = _text_as_json(text)
    return (_written(text) if written is None else written.decode())[1:-1]


def hash_text(text: str, length: int = 32) -> str:
    """The first `length` hex digits of the SHA-256 of `text` in UTF-8 (lone surrogates included)."""
    digest = hashlib.sha256(_utf8(text[:_SLICE]))
    _add_rest(digest, text)
    return digest.hexdigest()[:length]


def _add_rest(digest: hashlib._Hash | hashlib.blake2b, text: str) -> None:
    """Hash what follows the first slice of a text, too."""
    for start in range(_SLICE, len(text), _SLICE):
        digest.update(_utf8(text[start : start + _SLICE]))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seed_of(*parts: Any) -> int:
    """A 64-bit seed from any values: what is random stays the same for the same example and seed."""
    return int(stable_hash(list(parts), 16), 16)


_SHORT = 200  # bytes up to which packing gains nothing


def digest_of(kind: str, text: str) -> bytes:
    """16 bytes that name a text of a kind."""
    digest = hashlib.blake2b(_utf8(f"{len(kind)}:{kind}{text[:_SLICE]}"), digest_size=16)
    _add_rest(digest, text)
    return digest.digest()


def packed(text: str) -> bytes:
    """The text in fewer bytes, its first byte saying how."""
    data = text.encode("utf-8", "surrogatepass")
    return b"\0" + data if len(data) <= _SHORT else b"\1" + zlib.compress(data, 1)


def unpacked(data: bytes) -> str:
    """The text again."""
    plain = data[1:] if data[0] == 0 else zlib.decompress(data[1:])
    return plain.decode("utf-8", "surrogatepass")


#: Bytes of one body, unpacked, that are read. What is longer is passed on as it came, and not understood.
MOST_BYTES = 20 * 2**20
#: Bytes that Python may need for the lists, objects and values of one body, its texts apart, and with them.
_MOST_OBJECTS, _MOST_HELD = 64 * 2**20, 128 * 2**20
#: Up to so many bytes a body is read as it is: it cannot need much.
_SMALL = 2**20
#: Bytes that Python needs for each: by the character that it cannot be written without.
_WEIGHTS = ((b"[", 72), (b"{", 240), (b",", 32), (b'"', 30))
#: Quotes in one body; to leave its texts out, it is cut at each of them.
_MOST_QUOTES = 2**20
#: Bytes that no character of more than 16 bits has in UTF-8.
_UP_TO_TWO = bytes(range(0xF0))
#: Digits of a whole number that are read; a float ends before.
_MOST_DIGITS = 400


class TooLarge(ValueError):
    """A body that is not read, for it would need too much memory: too long, unpacking to too much, or of too many
    values.
    """


def load_json(data: str | bytes) -> Any:
    """JSON, lone surrogates included (which the fast reader refuses); `ValueError` if it is not JSON or nested too
    deeply.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data, parse_int=_whole)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _whole(digits: str) -> int | float:
    """A whole number beyond 64 bits; one beyond all floats is infinite, as `1e400` is, for its digits take long to
    read.
    """
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def load_body(data: str | bytes, most: int = MOST_BYTES) -> Any:
    """`load_json` of what somebody sent over a wire. `TooLarge` is raised before anything is built that would need too
    much memory.
    """
    if len(data) > most:
        raise TooLarge(f"too large: more than {most // 2**20} MiB")
    if len(data) > _SMALL:
        check_size(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, most)
    return load_json(data)


def load_object(data: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a body; `None` where the body holds none or is too large."""
    try:
        document = load_body(data)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def check_size(data: bytes, most: int = MOST_BYTES) -> None:
    """Raise `TooLarge` for a body longer than `most` bytes, and for one whose values would need more memory than a body
    may.
    """
    if len(data) > most:
        raise TooLarge(f"too large: more than {most // 2**20} MiB")
    objects = _objects(data)
    if objects > _MOST_OBJECTS:  # most of these characters may stand in texts
        objects = _objects(_without_texts(data))
    if objects > _MOST_OBJECTS or objects + _width(data) * len(data) > _MOST_HELD:
        raise TooLarge("too large: too many lists, objects and values")


def _objects(data: bytes) -> int:
    """Bytes that Python may need for the values, counted in slices: each count keeps all other threads waiting."""
    slices = range(0, len(data), _SMALL)
    return sum(data.count(sign, start, start + _SMALL) * weight for sign, weight in _WEIGHTS for start in slices)


def _without_texts(data: bytes) -> bytes:
    """The JSON with every text empty."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > _MOST_QUOTES:
        raise TooLarge("too large: too many texts")
    return b'""'.join(data.split(b'"')[::2])


def _width(data: bytes) -> int:
    """Bytes that Python may need for one byte of a text: one wide character makes all of its text as wide."""
    if data.isascii() and b"\\u" not in data:
        return 1
    return 4 if b"\\ud" in data or b"\\uD" in data or data.translate(None, _UP_TO_TWO) else 2


#: Fields of a JSON Schema that hold values, and fields that hold schemas by names of somebody's own.
_VALUES = frozenset({"const", "default", "enum", "examples"})
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


def without_nulls(value: Any) -> Any:
    """JSON without the fields that are null: to the APIs of models a field left out and a null one are the same.

    Null stays where it is a value of its own: in a list, in a schema's `const`, in what its `enum`, `default` and
    `examples` hold, and in the arguments that a model gave to a tool. What holds no null is given back itself: change
    it no more than what was given.
    """
    if not _may_hold_null(value):
        return value
    root = [value]
    left: list[tuple[Any, Any, Any, bool]] = [(root, 0, value, False)]
    while left:
        holder, place, held, names = left.pop()
        if isinstance(held, Mapping):
            made = holder[place] = {
                key: inner for key, inner in held.items() if inner is not None or (key == "const" and not names)
            }
            untouched = (
                frozenset() if names else _VALUES | {"input"} if str(held.get("type")).endswith("tool_use") else _VALUES
            )
            left += [
                (made, key, inner, not names and key in NAMED) for key, inner in made.items() if key not in untouched
            ]
        elif isinstance(held, list):
            made_list = holder[place] = list(held)
            left += [(made_list, i, inner, False) for i, inner in enumerate(held)]
    return root[0]


def _may_hold_null(value: Any) -> bool:
    """False if a value surely holds no null; to write it and look is far quicker than to walk through it."""
    try:
        return b"null" in orjson.dumps(value)
    except (orjson.JSONEncodeError, RecursionError):  # half a surrogate pair, a whole number beyond 64 bits, no JSON
        return True


_BITS, _AT_ONCE = 18, 2**13  # of a place in a sieve's tables; blocks that are looked at in one go
_MIX = 0x9E3779B97F4A7C15  # 2⁶⁴ by the golden ratio: its multiples scatter


class Sieve:
    """Tells quickly that a long text holds none of many `needles` of 15 bytes or more, however many these are: each
    covers eight bytes whose place is a multiple of eight, wherever it stands.
    """

    SHORTEST = 15

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        import numpy

        self._needles = needles
        self._mix, self._shifts = numpy.uint64(_MIX), (numpy.uint64(64 - _BITS), numpy.uint64(64 - 2 * _BITS))
        parts = {int.from_bytes(needle[at : at + 8], "little") for needle in needles for at in range(8)}
        self._sorted = hashed = numpy.sort(numpy.array(sorted(parts), dtype="<u8") * self._mix)
        self._mask = numpy.uint64(2**_BITS - 1)
        self._tables = numpy.zeros((2, 2**_BITS), dtype=bool)
        for table, shift in zip(self._tables, self._shifts, strict=True):
            table[(hashed >> shift) & self._mask] = True
        self._first, self._second = self._tables

    def __reduce__(self) -> tuple[Any, ...]:
        return sieve, (self._needles,)

    def may_be_in(self, data: bytes) -> bool:
        """True if eight bytes of one stand where they would have to."""
        import numpy

        blocks = numpy.frombuffer(data, dtype="<u8", count=len(data) // 8)
        for first in range(0, len(blocks), _AT_ONCE):
            hashed = blocks[first : first + _AT_ONCE] * self._mix
            found = hashed[self._first[hashed >> self._shifts[0]]]
            if found.size:
                found = found[self._second[(found >> self._shifts[1]) & self._mask]]
                near = self._sorted[numpy.searchsorted(self._sorted, found) % len(self._sorted)]
                if (near == found).any():  # equal, for to multiply by an odd number loses nothing
                    return True
        return False


@lru_cache(maxsize=8)
def sieve(needles: tuple[bytes, ...]) -> Sieve:
    """The sieve for these needles, made once."""
    return Sieve(needles)
