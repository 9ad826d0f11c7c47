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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
_WHOLE = re.compile(rb"cbn-([0-9a-f]{24})-nbc")
_SHAPE = re.compile(r"cbn-[0-9a-f]{24}-nbc")
#: Beginning of a needle that a cut can leave, the end of a line as JSON has it, and the bytes of a whole needle.
_BEGINNING = re.compile(rb"cbn-([0-9a-f]{0,24})(?:-(?:nb?)?)?")
_LINE_END = re.compile(rb"\\+n")
_LENGTH = len(b"cbn--nbc") + 24
_NEW_LINE, _BACKSLASH = b"\\n", ord("\\")
#: Digits of a needle's piece that tell whose it is; bytes of the text beside it that do so for a shorter piece.
_DIGITS, _BESIDE, _LETTERS = 6, 12, 4
_LETTER = re.compile(rb"\w")
#: Characters of a text's beginning that it is looked for by, and of either end that its needle follows from.
_SOUGHT, _NAMED_BY = 48, 64
_REMEMBERED, _ALIKE = 20_000, 16  # keys in all, and needles of one key
_CONVERSATIONS, _KEPT = 16, 16 * 2**20  # whose last turns are kept, and bytes of these in all
_RETURNED = frozenset({"function_call_output", "custom_tool_call_output"})
_MODELS_OWN = frozenset({"reasoning", "function_call", "custom_tool_call"})


#: Writes a text as JSON, as some program does it.
_Writer = Callable[[str], bytes]


class NotPlanted(ValueError):
    """No needle can be put into a request so that taking it out gives back its bytes; the text says why."""


class _Result(NamedTuple):
    """A text of a tool result: where it stands in the decoded body, and how many turns ago it came."""

    call: str
    text: str
    holder: Any
    place: Any
    age: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """The beginning of a request, up to the end of the last text with a needle: as it came, with its needles, and with
    these alone in the place of their texts (see `Needles._written`). `digits`: of each needle, in order.
    """

    wire: str
    body: bytes
    planted: bytes
    outline: bytes
    digits: tuple[bytes, ...]


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
    _names: dict[tuple[str, int, str, str], str] = field(default_factory=dict)
    _turns: list[_Turn] = field(default_factory=list)  # the latest first

    def name(self, call: str, text: str) -> str:
        """The 24 digits of the needle of a tool result: 16 that name it and 8 that only the key can add."""
        told = call, len(text), text[:_NAMED_BY], text[-_NAMED_BY:]
        if (name := self._names.get(told)) is None:
            about = "{}:{}:{}{}{}".format(len(call), len(text), call, *told[2:]).encode("utf-8", "surrogatepass")
            named = hashlib.blake2b(about, key=self.key, digest_size=8).hexdigest()
            if len(self._names) >= _REMEMBERED:
                self._names.clear()
            name = self._names[told] = named + self._check(named)
        return name

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
        # a turn of a conversation begins as the last one did, whose needles stand
        turns = [turn for turn in self._turns if turn.wire == wire and body.startswith(turn.body)]
        last = max(turns, key=lambda turn: len(turn.body), default=None)
        if last is not None and (planted := self._planted(last, body)) is not None:
            return planted
        planted = self._planted(_Turn(wire, b"", b"", b"", ()), body)
        assert planted is not None, "no needle was there before"
        return planted

    def _planted(self, turn: _Turn, body: bytes) -> Planted | None:
        """A body that begins as `turn` does. `None` where its needles are not the first ones of this body, too."""
        begun = len(turn.body)
        if body.find(_HEAD, begun) >= 0:
            raise NotPlanted("the request holds such a marker itself")
        try:
            # with needles in place of texts, what is around them reads as it would with the texts
            read = load_body(turn.outline + body[begun:] if begun else body)
        except (ValueError, RecursionError):
            raise NotPlanted("not readable") from None
        known = [(_HEAD + digits + _TAIL).decode() for digits in turn.digits]
        results = _results(turn.wire, read, frozenset(known))
        if not results:
            raise NotPlanted("no tool result of plain text long enough")
        if [result.text for result in results[: len(known)]] != known or not all(map(self._remembers, turn.digits)):
            return None
        made = self._written(turn, body, results[len(known) :]) if len(results) > len(known) else turn
        rest = body[len(made.body) :]
        try:
            same = made is turn or load_json(made.outline + rest) == read
        except (ValueError, RecursionError):
            same = False
        if not same:  # a literal was taken for another one
            raise NotPlanted("not told apart from another text")
        self._keep(made, turn)
        needles = zip(made.digits, results, strict=True)
        return Planted(made.planted + rest, tuple((digits.decode(), result.age) for digits, result in needles))

    def _written(self, turn: _Turn, body: bytes, results: list[_Result]) -> _Turn:
        """The beginning of the body with needles in these results, too.

        The outline has a needle alone in the place of each of these texts, and so has what was read. A needle stands
        nowhere else in the body: if the outline reads as that, the bytes that were written to are these texts' own, and
        nothing else has changed. It is read in a fraction of the time that the whole body takes.
        """
        pieces, outline, digits = [turn.planted], [turn.outline], [*turn.digits]
        end = over = len(turn.body)  # of what is in `pieces`, and in `outline`
        writers: list[_Writer] = [_json, _ascii_json, _html_safe_json]
        for call, text, holder, place, _ in results:
            name = self.name(call, text)
            # results stand in the order in which they were read
            start, literal = _found(body, text, over, writers)
            needle = f"cbn-{name}-nbc"
            written, line = needle.encode(), start + _line_start(literal, name)
            pieces += (body[end:line], written, b"\\n")
            outline += (body[over : start + 1], written, b'"')
            end, over = line, start + len(literal)
            digits.append(written[len(_HEAD) : -len(_TAIL)])
            if not self._remembers(digits[-1]):  # else as in an earlier turn
                self._remember(digits[-1], body[end - _BESIDE : end], body[end : end + _BESIDE])
            holder[place] = needle
        planted = b"".join([*pieces, body[end:over]])
        return _Turn(turn.wire, body[:over], planted, b"".join(outline), tuple(digits))

    def _keep(self, turn: _Turn, last: _Turn) -> None:
        others = [kept for kept in self._turns if kept is not last and kept.body != turn.body]
        self._turns = [turn, *others[: _CONVERSATIONS - 1]]
        while len(self._turns) > 1 and sum(len(kept.body) for kept in self._turns) > _KEPT:
            self._turns.pop()

    def _remembers(self, digits: bytes) -> bool:
        return digits in self._heads.get(digits[:_DIGITS], ())

    def _remember(self, digits: bytes, before: bytes, after: bytes) -> None:
        for kept, piece, beside in ((self._heads, digits[:_DIGITS], before), (self._tails, digits[-_DIGITS:], after)):
            for key in (piece, beside) if len(_LETTER.findall(beside)) >= _LETTERS else (piece,):
                others = [other for other in kept.pop(key, ()) if other != digits]
                kept[key] = (*others[1 - _ALIKE :], digits)
            while len(kept) > _REMEMBERED:
                kept.popitem(last=False)

    def remove(self, body: bytes) -> Removed:
        """Take all needles out, whoever planted them with this key, and the pieces of those planted lately."""
        needles: set[str] = set()
        pieces: list[bytes] = []
        end, at, cut = 0, body.find(_HEAD), False
        while at >= 0:
            if (name := self._named(body[at : at + _LENGTH])) is not None:
                needles.add(name)
                pieces.append(body[end:at])
                at += _LENGTH
                if body.startswith(_NEW_LINE, at):
                    at += len(_NEW_LINE)
                elif (line := _LINE_END.match(body, at)) is not None:
                    at = line.end()
                end = at
            else:
                at, cut = at + len(_HEAD), True
            at = body.find(_HEAD, at)
        kept = b"".join([*pieces, body[end:]]) if pieces else body
        if not self._heads or not (cut or _TAIL in kept):
            return Removed(kept, frozenset(needles))
        return self._without_pieces(kept, frozenset(needles))

    def _named(self, needle: bytes) -> str | None:
        """The name of a whole needle that this key made; `None` for any other bytes."""
        if (match := _WHOLE.fullmatch(needle)) is None:
            return None
        name = match[1].decode()
        return name if self._check(name[:16]) == name[16:] else None

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


def _line_start(literal: bytes, name: str) -> int:
    """A place at the start of a line of a text in JSON, drawn evenly over it."""
    drawn = int(name[:8], 16) * len(literal) >> 32
    after = literal.find(_NEW_LINE, drawn)
    while after >= 0 and not _is_escape(literal, after):
        after = literal.find(_NEW_LINE, after + 1)
    if 0 <= after < len(literal) - 3:
        return after + 2
    before = literal.rfind(_NEW_LINE, 0, drawn)
    while before >= 0 and not _is_escape(literal, before):
        before = literal.rfind(_NEW_LINE, 0, before)
    return before + 2 if before >= 0 else 1


def _is_escape(literal: bytes, at: int) -> bool:
    """Does the backslash there begin an escape? The second of a pair does not."""
    first = at
    while literal[first - 1] == _BACKSLASH:
        first -= 1
    return (at - first) % 2 == 0


def _found(body: bytes, text: str, cursor: int, writers: list[_Writer]) -> tuple[int, bytes]:
    """Find a text in the body as JSON: where it starts, and its bytes.

    The writer that wrote it comes to the front of `writers`: it will have written the next one, too.
    """
    for write in writers:
        if write is _json and not text.isascii() and body.isascii():
            continue
        try:
            literal = write(text)
        except (ValueError, TypeError):  # half a surrogate pair
            continue
        head, start = literal[:_SOUGHT], cursor
        while (start := body.find(head, start)) >= 0:
            if body.startswith(literal, start):
                if write is not writers[0]:
                    writers.sort(key=lambda each: each is not write)
                return start, literal
            start += 1
    raise NotPlanted("written in a way that cannot be followed")


def _json(text: str) -> bytes:
    """JSON as JavaScript, Rust and most others write it."""
    return orjson.dumps(text)


def _ascii_json(text: str) -> bytes:
    """JSON as Python writes it unless told otherwise."""
    return orjson.dumps(text) if text.isascii() and "\x7f" not in text else json.dumps(text).encode()


def _html_safe_json(text: str) -> bytes:
    """JSON as Go writes it."""
    escapes = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
    written = orjson.dumps(text)
    for letter, escape in escapes:
        written = written.replace(letter, escape)
    return written.replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")


def _results(wire: str, body: Any, known: frozenset[str] = frozenset()) -> list[_Result]:
    """Texts of the tool results of a request that are worth shortening, in its order, or are `known` needles in the
    place of such.
    """
    if not isinstance(body, OBJECT):
        return []
    steps = as_list(body.get("input" if wire == "openai-responses" else "messages"))
    read = {"openai-chat": _of_chat, "anthropic": _of_anthropic, "openai-responses": _of_responses}[wire]
    found: list[_Result] = []
    age, speaking = 0, False
    responses = wire == "openai-responses"
    for step in reversed(steps):
        if not isinstance(step, dict):
            continue
        if step.get("role") == "assistant" or (responses and step.get("type") in _MODELS_OWN):
            age += not speaking
            speaking = True
        else:
            speaking = False
            read(step, age, known, found)
    return found[::-1]


# Each of these adds the texts of one step to those found, the last first


def _of_chat(message: dict[str, Any], age: int, known: frozenset[str], found: list[_Result]) -> None:
    if message.get("role") == "tool":
        _texts(message, "content", message.get("tool_call_id"), age, known, found)


def _of_anthropic(message: dict[str, Any], age: int, known: frozenset[str], found: list[_Result]) -> None:
    for block in reversed(as_list(message.get("content"))):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            _texts(block, "content", block.get("tool_use_id"), age, known, found)


def _of_responses(item: dict[str, Any], age: int, known: frozenset[str], found: list[_Result]) -> None:
    if item.get("type") in _RETURNED:
        _texts(item, "output", item.get("call_id"), age, known, found)


def _texts(
    holder: dict[str, Any], place: str, call: Any, age: int, known: frozenset[str], found: list[_Result]
) -> None:
    """A result that is a plain text, or such texts among its parts."""
    content = holder.get(place)
    if isinstance(content, str):
        if content in known or _is_plain(content):
            found.append(_Result(str(call), content, holder, place, age))
    elif isinstance(content, list):
        for part in reversed(content):
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and (text in known or _is_plain(text)):
                found.append(_Result(str(call), text, part, "text", age))


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
