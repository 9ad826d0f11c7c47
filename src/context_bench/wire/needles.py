"""Needles: identifiers that are planted in the tool results of a request and taken out again behind a proxy.

A needle is a line of its own, `cbn-` + 24 hex digits + `-nbc`, and follows from a key, the tool call's id and the
result's length and ends: the same result holds the same bytes in every turn. It is written into the JSON of a request
where that stands, so that without it the body is byte for byte what it was. Pure, no I/O.

What conversations say themselves is looked for too: a line of one in another's request (`LineOwners`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from context_bench.wire.apis.shared import OBJECT, as_list, load_body, load_json
from context_bench.wire.cache import common_prefix
from context_bench.wire.request import SYSTEM_ROLES, WireMessage, WireRequest
from context_bench.wire.violations.parts import Violation

#: Characters from which on a tool result is worth shortening.
SHORTEST = 400
#: Bytes of a request above which none are planted: it would hold up all others.
LARGEST = 4 * 2**20
_HEAD, _TAIL = b"cbn-", b"-nbc"
_WHOLE = re.compile(rb"cbn-([0-9a-f]{24})-nbc(?:\\+n)?")
_SHAPE = re.compile(r"cbn-[0-9a-f]{24}-nbc")
#: Beginning of a needle that a cut can leave, the end of a line as JSON has it, and the bytes of a whole needle.
_BEGINNING = re.compile(rb"cbn-([0-9a-f]{0,24})(?:-(?:nb?)?)?")
_LINE_END = re.compile(rb"\\+n")
_LENGTH = len(b"cbn--nbc") + 24
#: Digits of a needle's piece that tell whose it is; bytes of the text beside it that do so for a shorter piece.
_DIGITS, _BESIDE, _LETTERS = 6, 12, 4
_LETTER = re.compile(rb"\w")
#: Characters of a text's beginning that it is looked for by, and of either end that its needle follows from.
_SOUGHT, _NAMED_BY = 48, 512
_REMEMBERED, _ALIKE = 20_000, 16  # keys in all, and needles of one key
_RETURNED = frozenset({"function_call_output", "custom_tool_call_output"})
_MODELS_OWN = frozenset({"reasoning", "function_call", "custom_tool_call"})


#: Writes a text as JSON, as some program does it.
_Writer = Callable[[str], bytes]


class NotPlanted(ValueError):
    """No needle can be put into a request so that taking it out gives back its bytes; the text says why."""


@dataclass(slots=True)
class _Result:
    """A text of a tool result: where it stands in the decoded body, and how many turns ago it came."""

    call: str
    holder: Any
    place: Any
    age: int

    @property
    def text(self) -> str:
        return str(self.holder[self.place])


@dataclass(frozen=True, slots=True)
class Planted:
    """A body with needles, and of each its name and the turns since its tool result came."""

    body: bytes
    needles: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """A body without needles: the names of those that were whole, and how many pieces of others were taken out."""

    body: bytes
    needles: frozenset[str]
    damaged: int = 0


@dataclass(slots=True)
class Needles:
    """Plants needles and takes them out again. `key`: whoever has it knows them all; of the needles planted lately
    their ends are remembered, to know a piece of one.
    """

    key: bytes
    _heads: OrderedDict[bytes, tuple[bytes, ...]] = field(default_factory=OrderedDict)
    _tails: OrderedDict[bytes, tuple[bytes, ...]] = field(default_factory=OrderedDict)
    _checks: dict[str, str] = field(default_factory=dict)

    def name(self, call: str, text: str) -> str:
        """The 24 digits of the needle of a tool result: 16 that name it and 8 that only the key can add."""
        about = f"{len(call)}:{len(text)}:{call}{text[:_NAMED_BY]}{text[-_NAMED_BY:]}".encode("utf-8", "surrogatepass")
        named = hashlib.blake2b(about, key=self.key, digest_size=8).hexdigest()
        return named + self._check(named)

    def _check(self, named: str) -> str:
        if (check := self._checks.get(named)) is None:
            check = hashlib.blake2b(f"needle {named}".encode(), key=self.key, digest_size=4).hexdigest()
            if len(self._checks) >= _REMEMBERED:
                self._checks.clear()
            self._checks[named] = check
        return check

    def plant(self, wire: str, body: bytes) -> Planted:
        """Put a needle into each longer tool result. Raises `NotPlanted`."""
        if len(body) > LARGEST:
            raise NotPlanted("too large")
        if _HEAD in body:
            raise NotPlanted("the request holds such a marker itself")
        try:
            read = load_body(body)
        except (ValueError, RecursionError):
            raise NotPlanted("not readable") from None
        results = [one for one in _results(wire, read) if _is_plain(one.text)]
        if not results:
            raise NotPlanted("no tool result of plain text long enough")
        written, needles = self._written(body, results)
        try:
            same = load_json(written) == read
        except (ValueError, RecursionError):
            same = False
        if not same:  # a literal was taken for another one
            raise NotPlanted("not told apart from another text")
        return Planted(written, needles)

    def _written(self, body: bytes, results: list[_Result]) -> tuple[bytes, tuple[tuple[str, int], ...]]:
        pieces: list[bytes] = []
        needles: list[tuple[str, int]] = []
        end = 0  # of what is in `pieces`
        cursor = 0  # of the search: results stand in the order in which they were read
        writers: list[_Writer] = [_json, _ascii_json, _html_safe_json]
        for one in results:
            text, name = one.text, self.name(one.call, one.text)
            line = _line_start(text, name)
            start, offset, cursor = _found(body, text, line, cursor, writers)
            needle = b"%s%s%s\\n" % (_HEAD, name.encode(), _TAIL)
            pieces += (body[end : start + offset], needle)
            end = start + offset
            self._remember(name, body[end - _BESIDE : end], body[end : end + _BESIDE])
            needles.append((name, one.age))
            one.holder[one.place] = f"{text[:line]}cbn-{name}-nbc\n{text[line:]}"
        return b"".join([*pieces, body[end:]]), tuple(needles)

    def _remember(self, name: str, before: bytes, after: bytes) -> None:
        digits = name.encode()
        if digits in self._heads.get(digits[:_DIGITS], ()):  # as in an earlier turn
            return
        for kept, piece, beside in ((self._heads, digits[:_DIGITS], before), (self._tails, digits[-_DIGITS:], after)):
            for key in (piece, beside) if len(_LETTER.findall(beside)) >= _LETTERS else (piece,):
                others = [other for other in kept.pop(key, ()) if other != digits]
                kept[key] = (*others[1 - _ALIKE :], digits)
            while len(kept) > _REMEMBERED:
                kept.popitem(last=False)

    def remove(self, body: bytes) -> Removed:
        """Take all needles out, whoever planted them with this key, and the pieces of those planted lately."""
        needles: set[str] = set()

        def whole(match: re.Match[bytes]) -> bytes:
            name = match[1].decode()
            if self._check(name[:16]) != name[16:]:
                return match[0]
            needles.add(name)
            return b""

        kept = _WHOLE.sub(whole, body) if _HEAD in body else body
        if not self._heads or (_HEAD not in kept and _TAIL not in kept):
            return Removed(kept, frozenset(needles))
        return self._without_pieces(kept, frozenset(needles))

    def _without_pieces(self, body: bytes, needles: frozenset[str]) -> Removed:
        count = 0

        def beginning(match: re.Match[bytes]) -> bytes:
            nonlocal count
            beside = match.string[max(0, match.start() - _BESIDE) : match.start()]
            names = self._heads.get(match[1][:_DIGITS]) or self._heads.get(beside, ())
            own = max((common_prefix(match[0], _HEAD + name + _TAIL) for name in names), default=0)
            count += own > 0
            return match[0][own:]

        kept = _BEGINNING.sub(beginning, body)
        kept, endings = self._without_endings(kept)
        return Removed(kept, needles, count + endings)

    def _without_endings(self, body: bytes) -> tuple[bytes, int]:
        pieces: list[bytes] = []
        end, at = 0, body.find(_TAIL)
        while at >= 0:
            stop = at + len(_TAIL)
            before = body[max(end, stop - _LENGTH) : stop]
            line = _LINE_END.match(body, stop)
            after = stop if line is None else line.end()
            own = self._own_ending(before, body[after : after + _BESIDE])
            if own:
                pieces.append(body[end : stop - own])
                end = after
            at = body.find(_TAIL, stop)
        return b"".join([*pieces, body[end:]]), len(pieces)

    def _own_ending(self, before: bytes, beside: bytes) -> int:
        """Bytes at the end of `before` that are the end of a needle planted lately."""
        digits = before[-_DIGITS - len(_TAIL) : -len(_TAIL)]
        names = self._tails.get(digits) or self._tails.get(beside, ())
        return max((common_prefix(before[::-1], (_HEAD + name + _TAIL)[::-1]) for name in names), default=0)


def shown(text: str) -> int:
    """Needles, by their shape, in a text that should hold none."""
    return len(_SHAPE.findall(text)) if "cbn-" in text else 0


def _is_plain(text: str) -> bool:
    """Long enough, and no JSON: a line of ours would make that unreadable for whoever shortens it."""
    return len(text) >= SHORTEST and not text[:_SOUGHT].lstrip().startswith(("{", "["))


def _line_start(text: str, name: str) -> int:
    """A place at the start of a line, drawn evenly over the text."""
    drawn = int(name[:8], 16) * len(text) >> 32
    after = text.find("\n", drawn) + 1
    return after if 0 < after < len(text) else text.rfind("\n", 0, drawn) + 1


def _found(body: bytes, text: str, line: int, cursor: int, writers: list[_Writer]) -> tuple[int, int, int]:
    """Find a text in the body as JSON: its first byte, the bytes to one of its lines, and the byte after it.

    The writer that wrote it comes to the front of `writers`: it will have written the next one, too.
    """
    for write in writers:
        if write is _json and not text.isascii() and body.isascii():
            continue
        try:
            head, literal, start = write(text[:_SOUGHT])[:-1], b"", cursor
            while (start := body.find(head, start)) >= 0:
                literal = literal or write(text)
                if body.startswith(literal, start):
                    writers.sort(key=lambda each: each is not write)
                    return start, len(write(text[:line])) - 1, start + len(literal)
                start += 1
        except (ValueError, TypeError):  # half a surrogate pair
            continue
    raise NotPlanted("written in a way that cannot be followed")


def _json(text: str) -> bytes:
    """JSON as JavaScript, Rust and most others write it."""
    return orjson.dumps(text)


def _ascii_json(text: str) -> bytes:
    return json.dumps(text).encode()


def _html_safe_json(text: str) -> bytes:
    """JSON as Go writes it."""
    escapes = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
    written = orjson.dumps(text)
    for letter, escape in escapes:
        written = written.replace(letter, escape)
    return written.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")


def _results(wire: str, body: Any) -> list[_Result]:
    """Texts of the tool results of a request, in its order."""
    if not isinstance(body, OBJECT):
        return []
    steps = as_list(body.get("input" if wire == "openai-responses" else "messages"))
    read = {"openai-chat": _of_chat, "anthropic": _of_anthropic, "openai-responses": _of_responses}[wire]
    found: list[_Result] = []
    age, speaking = 0, False
    for step in reversed(steps):
        if not isinstance(step, dict):
            continue
        own = _is_models_own(wire, step)
        age += own and not speaking
        speaking = own
        found += [] if own else reversed(list(read(step, age)))
    return found[::-1]


def _is_models_own(wire: str, step: Mapping[str, Any]) -> bool:
    return step.get("role") == "assistant" or (wire == "openai-responses" and step.get("type") in _MODELS_OWN)


def _of_chat(message: dict[str, Any], age: int) -> Iterator[_Result]:
    if message.get("role") == "tool":
        yield from _texts(message, "content", str(message.get("tool_call_id")), age)


def _of_anthropic(message: dict[str, Any], age: int) -> Iterator[_Result]:
    for block in as_list(message.get("content")):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield from _texts(block, "content", str(block.get("tool_use_id")), age)


def _of_responses(item: dict[str, Any], age: int) -> Iterator[_Result]:
    if item.get("type") in _RETURNED:
        yield from _texts(item, "output", str(item.get("call_id")), age)


def _texts(holder: dict[str, Any], place: str, call: str, age: int) -> Iterator[_Result]:
    """A result that is a text, or the texts among its parts."""
    content = holder.get(place)
    if isinstance(content, str):
        yield _Result(call, holder, place, age)
    for part in as_list(content) if isinstance(content, list) else []:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield _Result(call, part, "text", age)


# Lines of one conversation in another's request
# ------------------------------------------------------------------------

_TELLING_LINE = 32  # characters: shorter lines are said in many conversations


class LineOwners:
    """Remembers the long lines and the key that each conversation sent, as numbers that mean nothing outside this
    process, and finds them in what arrived for another. `most`: lines remembered; the oldest go first.

    A line that more than one conversation sent is nobody's; instructions are not looked at. What a proxy writes into
    every request was sent by none, and is no leak.
    """

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._owners: OrderedDict[int, str] = OrderedDict()
        self._keys: dict[int, str] = {}
        self._read: OrderedDict[tuple[str, int], None] = OrderedDict()

    def leaks(
        self,
        conversation: str,
        sent: WireRequest,
        received: WireRequest | None,
        *,
        keys: tuple[str | None, str | None] = (None, None),
    ) -> list[Violation]:
        """Take in a request of a conversation as it was sent, and what is another's in it as it arrived. `received`:
        `None` if it arrived as it was. `keys`: the client's key as sent, and the one that arrived.
        """
        own = {line for message in sent.messages for line in self._learned(conversation, message)}
        found: list[Violation] = []
        for j, message in enumerate(received.messages if received is not None else []):
            others = {line for line in _lines(message) if self._foreign(line, conversation)}
            if received is not sent and (others - own):
                what = f"message {j + 1} holds {len(others - own)} lines of another conversation"
                found.append(Violation("conversation_leaked", what, j))
        before, after = (hash(key) if key else None for key in keys)
        if before is not None:
            self._keys[before] = conversation if self._keys.get(before, conversation) == conversation else ""
        if after is not None and after != before and after in self._keys and self._keys[after] != conversation:
            found.append(Violation("key_leaked", "it arrived with the key of another conversation's client"))
        return found

    def _learned(self, conversation: str, message: WireMessage) -> set[int]:
        lines = _lines(message)
        known = (conversation, hash(message.text))
        if known not in self._read:
            self._read[known] = None
            for line in lines:
                owner = self._owners.setdefault(line, conversation)
                if owner != conversation:
                    self._owners[line] = ""
            while len(self._owners) > self._most:
                self._owners.popitem(last=False)
            while len(self._read) > self._most // 10:
                self._read.popitem(last=False)
        return lines

    def _foreign(self, line: int, conversation: str) -> bool:
        return self._owners.get(line, conversation) not in ("", conversation)


def _lines(message: WireMessage) -> set[int]:
    if message.role in SYSTEM_ROLES:
        return set()
    return {hash(line) for part in message.text.splitlines() if len(line := part.strip()) >= _TELLING_LINE}
