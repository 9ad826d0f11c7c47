"""Encode values as bytes for the store: JSON that takes anything, compressed where that pays, long texts kept once,
without secrets.

A packed value is a byte for the kind, a checksum of four bytes, and the data. Values of older stores have no checksum:
there a flipped bit is noticed only where the value cannot be read any more, and in bodies, whose key is a hash of their
content. Small JSON is compressed with a zlib dictionary of the words that rows of every run use.

A `Serializer` makes the bytes of what a run writes. Keys of this process, its environment and its plug-ins, collected
beforehand, are cut out of all text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from threading import local
from typing import Any
from zlib import crc32

import orjson
import zstandard

from context_bench.core.errors import StoreUnusable
from context_bench.core.keys import forget_oldest
from context_bench.core.records import Usage
from context_bench.core.secrets import (
    Masker,
    Whole,
    field_names_a_secret,
    plain_parameters,
)
from context_bench.core.tokens import utf8_safe
from context_bench.llm.redact import environment_notes, environment_secrets, plugin_secrets, without_parameters

#: Part of the format of stores: never change it, for what was packed with it cannot be read with another. What is
#: likelier stands later.
DICTIONARY = (
    b'{"error":{"message":"","type":"","code":null}}{"role":"tool","tool_call_id":"call_","content":[{"type":"text","text":"'
    b'{"compressed":{"messages":[{"tokens_before":,"tokens_after":,"opaque":"turn_responses":["facts":{"answer":"cached":true,"false,'
    b'{"id":"","mark":null,"matched_by":"serial","matched_by":"header","matched_by":"key","wire":"anthropic","wire":"openai-chat","method":'
    b'"POST","path":"/v1/messages","path":"/v1/chat/completions","started":17,"seconds":0.,"ttft":0.,"status":200,"model":"","stream":false,'
    b'"tokens":,"exact":true,"uncounted_parts":0,"bytes_in":,"bytes_out":,"window":1,"facts":{"roles":["system","user","assistant"'
    b'{"source":"tap","sent":,"forwarded":,"billed":,"calls":1,"client_calls":1,"extra_calls":0,"other_calls":0,"late":0,"exact":false,'
    b'"bytes":,"uncounted_parts":0,"matched_by":"key","prefix_tokens":0,"truncated":false,"authorization_forwarded":true,'
    b'"text_changed":false,"messages_changed":0,"parameters_changed":[],"tools_changed":false,"cache_read":0,"cache_write":0,'
    b'{"accuracy":1.0,"accuracy":0.0,"score":0.5,"pass":1.0,"judge":{"reason":"","rouge_l":0.,"bleu":0.,"length":,"correct":1.0,'
    b'{"f1":0.0,"exact_match":0.0,"recall":0.0,"contains":0.0}{"f1":0.6666666666666666,"exact_match":0.0,"recall":0.5,"contains":1.0}'
    b'{"f1":1.0,"exact_match":1.0,"recall":1.0,"contains":1.0}'
    b'{"setup":1,"budget":,"qa_type":"","shape":"plain-user","model":"claude-sonnet-4-5-20250929","model":"claude-haiku-4-5-20251001",'
    b'"model":"gpt-4o-mini","prompt_tokens":,"completion_tokens":,"total_tokens":,"finish_reason":"length"}'
    b'"finish_reason":"tool_calls"}"finish_reason":"end_turn"}'
    b'{"response":"The "api_usage":{"prompt_tokens":1,"completion_tokens":,"total_tokens":},"finish_reason":"stop"}'
    b'{"role":"assistant","content":"'
    b'{"input_tokens":1,"output_tokens":,"cache_read":0,"reasoning_tokens":0,"cost":0.000,"ttft":0.,"in_flight":1,"calls":1}'
)


#: Texts of this many characters or more become parts of their own, shared by every body that holds them.
PART = 1024
#: From this many bytes on a text has enough words of its own to be compressed without help, and below the other not
#: even help pays.
_LARGE, _OFTEN, _TINY = 1024, 256, 20
_REFERENCE = "$context-bench:part"
_MENTIONED = _REFERENCE.encode()
_LISTS = (list, tuple)
_CHECKED_FROM = 0xC0  # two flipped bits away from 0, 1 and 2, which say the same of values without a checksum
_PLAIN, _ZSTD, _WITH_DICTIONARY = (bytes([_CHECKED_FROM + kind]) for kind in range(3))
_CHECKED = frozenset(range(_CHECKED_FROM, _CHECKED_FROM + 3))
_CHECKSUM = 4  # bytes: CRC-32 of what follows, begun with the first byte
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class Damaged(StoreUnusable):
    """A stored value is not what was written. Where it stands is found by whoever reads the store (`damage`)."""


def dumps(value: Any) -> bytes:
    """`value` as JSON. Lone surrogates are escaped; what JSON does not know is written as its `repr`; NaN and infinity
    become null.
    """
    try:
        return orjson.dumps(value, default=repr, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return _dumps_odd(value)


def _dumps_odd(value: Any) -> bytes:
    # The space in front tells `loads` that only the slow reader gets this right (surrogates, integers beyond 64 bits).
    try:
        return b" " + json.dumps(value, default=repr, skipkeys=True).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        return b" " + json.dumps(repr(value)).encode("ascii")


def loads(data: bytes) -> Any:
    """The value that `dumps` wrote. Raises `Damaged`."""
    try:
        return json.loads(data) if data[:1] == b" " else orjson.loads(data)
    except (ValueError, TypeError, RecursionError):
        raise Damaged from None


def pack(data: bytes) -> bytes:
    """`data`, compressed if that makes it smaller; what a row says of itself by the words that every row uses."""
    if len(data) <= _OFTEN:
        return _pack_often(bytes(memoryview(data)))  # a copy: of ten bytes that orjson wrote the cache would keep 4 kB
    if len(data) < _LARGE:
        return _pack_small(data)
    small: bytes = _tools.compressor.compress(data)
    return _with_checksum(_ZSTD, small) if len(small) < len(data) else _with_checksum(_PLAIN, data)


@lru_cache(maxsize=1_000)  # many rows say the same of themselves in few words; what is longer has times of its own
def _pack_often(data: bytes) -> bytes:
    return _pack_small(data)


def _pack_small(data: bytes) -> bytes:
    if len(data) > _TINY:
        small: bytes = _tools.dictionary_compressor.compress(data)
        if len(small) < len(data):
            return _with_checksum(_WITH_DICTIONARY, small)
    return _with_checksum(_PLAIN, data)


def _with_checksum(kind: bytes, data: bytes) -> bytes:
    return kind + crc32(data, kind[0]).to_bytes(_CHECKSUM, "little") + data


def unpack(data: bytes) -> bytes:
    """Unpack a value. Raises `Damaged` where it is not what was packed."""
    try:
        kind = data[0]
        if kind in _CHECKED:  # written out: most of what reading a small value costs
            rest = data[5:]
            if crc32(rest, kind).to_bytes(_CHECKSUM, "little") != data[1:5]:
                raise Damaged
            kind -= _CHECKED_FROM
        else:
            rest = data[1:]
        if kind == 0:
            return rest
        large: bytes = getattr(_tools, _EXPANDERS[kind]).decompress(rest)
        return large
    except (zstandard.ZstdError, TypeError, LookupError, MemoryError):
        raise Damaged from None


def sound(data: bytes) -> bool:
    """Has a packed value its checksum? One without: can it be read?"""
    try:
        if data[0] in _CHECKED:
            return crc32(data[1 + _CHECKSUM :], data[0]).to_bytes(_CHECKSUM, "little") == data[1 : 1 + _CHECKSUM]
        loads(unpack(data))
    except (Damaged, TypeError, LookupError):
        return False
    return True


def unpack_body(key: bytes, data: bytes) -> bytes:
    """A body or part; without a checksum it must be what its key is a hash of. Raises `Damaged`."""
    body = unpack(data)
    if data[0] not in _CHECKED and body_key(body) != key:
        raise Damaged
    return body


def sound_body(key: bytes, data: bytes) -> bool:
    """Is a body what was written under its key?"""
    try:
        if data[0] in _CHECKED:
            return sound(data)
        unpack_body(key, data)
    except (Damaged, TypeError, LookupError):
        return False
    return True


class _Tools(local):
    """The zstd objects of one thread: fast to use, slow to make, and not to be shared."""

    @cached_property
    def compressor(self) -> Any:
        # Texts of some kB become as small as by level 3, within 3 %, and a quarter faster.
        return zstandard.ZstdCompressor(level=1)

    @cached_property
    def expander(self) -> Any:
        return zstandard.ZstdDecompressor()

    @cached_property
    def dictionary_compressor(self) -> Any:
        words = _zlib_dictionary()
        words.precompute_compress(level=3)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_dict_id=False
        )
        return zstandard.ZstdCompressor(dict_data=words, compression_params=parameters)

    @cached_property
    def dictionary_expander(self) -> Any:
        return zstandard.ZstdDecompressor(dict_data=_zlib_dictionary(), format=zstandard.FORMAT_ZSTD1_MAGICLESS)


def _zlib_dictionary() -> Any:
    return zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


_tools = _Tools()
#: Kind of a packed value, without its checksum → the tool that expands it.
_EXPANDERS = {1: "expander", 2: "dictionary_expander"}


def unpacked(data: bytes | None, default: Any = None) -> Any:
    """The value in a packed JSON column, `default` where the column is empty. Raises `Damaged`."""
    return default if data is None else loads(unpack(data))


def body_key(data: bytes) -> bytes:
    """The 16 bytes by which a body or part is known."""
    return sha256(data).digest()[:16]


def _unchanged(data: bytes) -> bytes:
    return data


@dataclass(slots=True)
class Bodies:
    """Bodies gathered for one transaction, each text once. `clean` removes secrets from bytes before they are kept.

    `stored` remembers what the store surely has already (bounded), so that a context shared by many requests is
    compressed once.
    """

    clean: Callable[[bytes], bytes] = _unchanged
    remembered: int = 4_096
    stored: dict[bytes, None] = field(default_factory=dict)  # oldest first
    fresh: dict[bytes, bytes] = field(default_factory=dict)
    links: list[dict[str, bytes]] = field(default_factory=list)

    def add(self, value: Any) -> bytes:
        """Keep `value`; returns its key."""
        parts: list[bytes] = []
        skeleton = value
        try:
            if _divides(value):
                skeleton = self._split(value, parts)
        except _MentionsReference:  # a body that looks like a skeleton is kept in one piece
            parts = []
        data = self.clean(dumps(skeleton))
        key = body_key(data)
        if key not in self.stored and key not in self.fresh:
            self.fresh[key] = pack(data)
            self.links += [{"body": key, "part": part} for part in dict.fromkeys(parts)]
        return key

    def _split(self, value: Any, parts: list[bytes]) -> Any:
        if isinstance(value, str):
            return value if len(value) < PART else self._part(value, parts)
        if isinstance(value, dict):
            return {key: self._split(item, parts) for key, item in value.items()}
        if isinstance(value, _LISTS):
            return [self._split(item, parts) for item in value]
        return value

    def _part(self, text: str, parts: list[bytes]) -> dict[str, str]:
        data = self.clean(dumps(text))
        key = body_key(data)
        if key not in self.stored and key not in self.fresh:
            self.fresh[key] = pack(data)
        parts.append(key)
        return {_REFERENCE: key.hex()}

    def committed(self) -> None:
        """The transaction is durable: remember what need not be written again."""
        forget_oldest(self.stored, self.remembered)
        self.stored |= dict.fromkeys(self.fresh)
        self.dropped()

    def dropped(self) -> None:
        """Forget what was gathered (it is in the store, or the transaction failed)."""
        self.fresh, self.links = {}, []


def _divides(value: Any) -> bool:
    """Is there a text in it that is kept apart? Looks at everything: `_MentionsReference` is raised wherever the
    reference stands.
    """
    if isinstance(value, str):
        return len(value) >= PART
    if isinstance(value, dict):
        if _REFERENCE in value:
            raise _MentionsReference
        return _any_divides(value.values())
    return _any_divides(value) if isinstance(value, _LISTS) else False


def _any_divides(items: Iterable[Any]) -> bool:
    found = False
    for item in items:
        if type(item) is str:  # most of what a body holds
            found = found or len(item) >= PART
        elif _divides(item):
            found = True
    return found


class _MentionsReference(Exception):
    """A body holds what looks like our own reference to a part."""


class Skeleton:
    """A body as it is kept: its JSON, with the keys (`parts`) of the long texts that are kept apart. `names`: only
    these fields of an object.
    """

    __slots__ = ("_places", "_root")

    def __init__(self, data: bytes, names: Sequence[str] | None = None) -> None:
        value = loads(data)
        if names is not None:
            value = {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}
        self._root = [value]
        self._places = list(_references(self._root)) if _MENTIONED in data else []

    @property
    def parts(self) -> set[bytes]:
        """The keys."""
        return {key for _, _, key in self._places}

    def joined(self, texts: Mapping[bytes, Any]) -> Any:
        """The body with these texts in their places; it is this object's own, which is to be asked once."""
        for holder, place, key in self._places:
            if key in texts:
                holder[place] = texts[key]
        return self._root[0]


def _references(root: list[Any]) -> Iterator[tuple[Any, Any, bytes]]:
    """Every reference to a part: the list or object that holds it, its place there, and the part's key."""
    left: list[Any] = [root]
    while left:
        held = left.pop()
        for place, item in held.items() if type(held) is dict else enumerate(held):
            kind = type(item)
            if kind is dict and is_reference(item):
                yield held, place, bytes.fromhex(item[_REFERENCE])
            elif kind is dict or kind is list:
                left.append(item)


def is_reference(value: Mapping[str, Any]) -> bool:
    """True if a mapping stands for a part that is kept apart."""
    found = value.get(_REFERENCE) if len(value) == 1 else None
    return isinstance(found, str) and len(found) == 32 and all(c in "0123456789abcdef" for c in found)


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
    urls: list[str] = []
    found.update(text if isinstance(text, Whole) else text.strip() for text in plugin_secrets(plugins, urls))
    notes = environment_notes(environment)
    if names := sorted({name for url in urls for name in plain_parameters(url)}):
        notes.append(
            f"Query parameters of the URLs asked: {', '.join(names)}. Their values are masked wherever they occur, in "
            "answers before they are scored as well; a value that an answer may hold belongs in a header."
        )
    return Secrets(found, notes)


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
