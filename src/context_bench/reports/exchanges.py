"""The exchanges of a row as they are shown: one model for the report, the viewer and the terminal.

An exchange is one request of ours and what was forwarded of it. Here it becomes a sentence with the counts, the changes
beside the texts, and messages as pieces: long unchanged runs folded, texts cut to a limit. Pure; the pieces hold text
as it is, renderers make it visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from context_bench.reports.visible_text import visible
from context_bench.wire.diff import Changed, MessageDiff, RequestDiff, diff_requests
from context_bench.wire.request import Part, WireMessage, WireRequest
from context_bench.wire.words import Kind, Span, count_words, diff_texts

KEPT_SHOWN, EDGE = 60, 14  # words of an unchanged run that are shown whole; else so many at either end
CHANGED_SHOWN, HEAD = 120, 50  # words of a dropped or added run that are shown whole; else so many at its start
_MARKUP = 24  # characters that a piece costs beside its text


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A run of text of one kind. `folded`: not shown at first; its text is `None` where there was no room for it.
    `rest`: all that follows, of any kind, for which there was none.
    """

    kind: Kind
    text: str | None
    words: int = 0
    folded: bool = False
    rest: bool = False

    @property
    def alone(self) -> bool:
        """It stands for itself, over both sides."""
        return self.folded and (self.rest or self.kind == "kept")


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message: `title` ("message 3"), `role` ("system → user"), what became of it, in pieces."""

    title: str
    role: str
    state: str
    marks: tuple[str, ...]
    pieces: list[TextPiece]
    words: int

    @property
    def badges(self) -> list[str]:
        """The changes to it, in words."""
        whole = [self.state] if self.state in ("dropped", "added") else []
        return whole + ["role changed" if mark == "role" else mark for mark in self.marks]

    @property
    def rows(self) -> list[list[TextPiece]]:
        """The pieces in groups that stand side by side; a folded unchanged run is a group of its own."""
        found: list[list[TextPiece]] = []
        for piece in self.pieces:
            if piece.alone or not found or found[-1][0].alone:
                found.append([piece])
            else:
                found[-1].append(piece)
        return found


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Neighbouring messages that nothing was done to. `messages` is empty where there was no room for them."""

    title: str
    words: int
    messages: list[ShownMessage]


@dataclass(slots=True)
class ShownExchange:
    """`sentence` tells the counts, `why` why something is missing. `changed`: parameters and tools, told like messages.
    `hidden_words`: of texts that there was no room for.
    """

    title: str
    sentence: str = ""
    why: str = ""
    changed: list[ShownMessage] = field(default_factory=list)
    messages: list[ShownMessage | Unchanged] = field(default_factory=list)
    hidden_words: int = 0
    sides: Literal["both", "sent", "forwarded", "none"] = "both"
    altered: bool = False

    @property
    def same(self) -> str:
        """The word for text of the kind `kept`: of one side alone nobody can say that it is unchanged."""
        return "unchanged" if self.sides == "both" else "more"


@dataclass(frozen=True, slots=True)
class Difference:
    """An exchange with what was done to it worked out, whatever of it is shown later. `diff`: `None` if no body is
    known.
    """

    title: str
    sentence: str
    why: str
    sides: Literal["both", "sent", "forwarded", "none"]
    altered: bool
    diff: RequestDiff | None

    def shown(self, limit: int | None) -> ShownExchange:
        """Laid out with at most `limit` characters of each side."""
        made = ShownExchange(self.title, self.sentence, self.why, sides=self.sides, altered=self.altered)
        if self.diff is not None:
            made.changed = [_change(each, limit) for each in self.diff.changed]
            _fill(made, self.diff, limit)
        return made


#: Title of what a system that gives back a context made of it.
OF_CONTEXT = "What the system made of the context"


def shown_exchanges(told: Mapping[str, Any], *, limit: int | None = None) -> list[ShownExchange]:
    """The exchanges of `runner.details`, and what a system that gives back a context made of it. `limit`: characters of
    each side.
    """
    return [each.shown(limit) for each in differences(told)]


def differences(told: Mapping[str, Any]) -> list[Difference]:
    """Changes in each exchange of `runner.details`, and to the context by a system that gives one back."""
    found = [_difference(each) for each in told.get("exchanges") or []]
    before, after = told.get("context"), told.get("context_after")
    if isinstance(before, str) and isinstance(after, str):
        diff = diff_requests(_as_request(before), _as_request(after))
        found.append(Difference(OF_CONTEXT, _sentence(diff, {}), "", "both", not diff.unchanged, diff))
    return found


def compared(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The exchanges of `runner.details` whose both sides are known, as JSON values: what was done to each message, in
    spans.
    """
    found = []
    for each in told.get("exchanges") or []:
        sent, forwarded = _sides(each)
        if sent is not None and forwarded is not None:
            diff = diff_requests(sent, forwarded)
            words = {"sent": diff.sent_words, "forwarded": diff.forwarded_words, "kept": diff.kept_words}
            found.append(
                {
                    "turn": each.get("turn"),
                    "said": _sentence(diff, each.get("tokens") or {}),
                    "words": words,
                    **asdict(diff),
                }
            )
    return found


def _sides(exchange: Mapping[str, Any]) -> tuple[WireRequest | None, WireRequest | None]:
    wires = exchange.get("wires") or [None, None]
    return _request(exchange.get("sent"), wires[0]), _request(exchange.get("forwarded"), wires[1] or wires[0])


def _as_request(text: str) -> WireRequest:
    return WireRequest("other", None, [WireMessage("context", [Part("text", text)])])


def _difference(exchange: Mapping[str, Any]) -> Difference:
    turn, why = exchange.get("turn"), str(exchange.get("why") or "")
    why = why and why[:1].upper() + why[1:].removesuffix(".") + "."
    title = "A request of the proxy's own" if turn is None else f"Turn {turn}"
    sent, forwarded = _sides(exchange)
    tokens = exchange.get("tokens") or {}
    if sent is not None and forwarded is not None:
        diff = diff_requests(sent, forwarded)
        return Difference(title, _sentence(diff, tokens), why, "both", not diff.unchanged, diff)
    only = sent or forwarded
    sides: Literal["sent", "forwarded", "none"] = "sent" if sent else "forwarded" if forwarded else "none"
    size = f"{_tokens(tokens)}." if _tokens(tokens) else ""
    if sides == "sent" and tokens.keys() == {"sent"}:  # not what the row as a whole sent, where a system made it less
        size = size.replace("Sent", "The request that went out had")
    return Difference(title, size, why, sides, turn is None, diff_requests(only, only) if only else None)


def _request(body: Any, wire: str | None) -> WireRequest | None:
    if not isinstance(body, Mapping):
        return None if body is None else _as_request(str(body))
    from context_bench.wire.apis import parse_request

    return parse_request(wire or ("openai-responses" if "input" in body else "openai-chat"), body)


# In words
# ------------------------------------------------------------------------


def _sentence(diff: RequestDiff, tokens: Mapping[str, Any]) -> str:
    """The counts: "Sent 1,204 tokens, forwarded 640: 48 % of the words kept as they were, 3 messages dropped, 2 roles
    changed".
    """
    if diff.unchanged:
        return f"{_tokens(tokens) or 'Compared word by word'}: forwarded as sent."
    done = []
    if diff.kept_share is not None:
        done.append(f"{_percent(diff.kept_share)} of the words kept as they were")
    words_added = diff.forwarded_words - diff.kept_words
    done += [f"{words_added:,} word{'s' if words_added != 1 else ''} added"] if words_added else []
    for what, one, many in _COUNTED:
        if count := diff.count(what):
            done.append(f"{count:,} {one if count == 1 else many}")
    for kind, one, many in (
        ("parameter", "parameter changed", "parameters changed"),
        ("tool", "tool changed", "tools changed"),
    ):
        if count := sum(each.kind == kind for each in diff.changed):
            done.append(f"{count:,} {one if count == 1 else many}")
    done += [f"another {each.name}" for each in diff.changed if each.kind in ("model", "stream", "wire")]
    size = _tokens(tokens) or f"{diff.sent_words:,} words became {diff.forwarded_words:,}"
    return f"{size}: {', '.join(done)}."


_COUNTED = (
    ("dropped", "message dropped", "messages dropped"),
    ("added", "message added", "messages added"),
    ("role", "role changed", "roles changed"),
    ("moved", "message moved", "messages moved"),
    ("merged", "message holds what were several", "messages hold what were several"),
    ("split", "message split", "messages split"),
    ("cache mark lost", "message without its cache mark", "messages without their cache marks"),
    ("cache mark added", "message with a new cache mark", "messages with new cache marks"),
    ("call id", "tool result with another call id", "tool results with other call ids"),
)


def _percent(share: float) -> str:
    """Whole percents; never 0 or 100 where it is not quite that."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return "more than 99 %"
    return "less than 1 %" if rounded == 0 and share > 0 else f"{rounded} %"


def _tokens(tokens: Mapping[str, Any]) -> str:
    told = [f"{name} {tokens[name]:,}" for name in ("sent", "forwarded", "billed") if isinstance(tokens.get(name), int)]
    if not told:
        return ""
    first, *rest = told
    return ", ".join([f"{first} token{'' if first.endswith(' 1') else 's'}", *rest]).capitalize()


# In pieces
# ------------------------------------------------------------------------


class _TextBudget:
    """Characters that are left. `None`: there is room for everything."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit
        self.hidden = 0

    def take(self, piece: TextPiece) -> Iterator[TextPiece]:
        """The piece, as much of it as there is room for."""
        if self.left is None or piece.text is None:
            yield piece
            return
        if piece.folded or self.left <= _MARKUP:
            self.hidden += piece.words
            yield TextPiece(piece.kind, None, piece.words, folded=True, rest=not piece.folded)
            return
        room = self.left - _MARKUP
        self.left -= len(piece.text) + _MARKUP
        if len(piece.text) <= room:
            yield piece
            return
        yield TextPiece(piece.kind, piece.text[:room], count_words(piece.text[:room]))
        rest = count_words(piece.text[room:])
        self.hidden += rest
        yield TextPiece(piece.kind, None, rest, folded=True, rest=True)


def _fill(shown: ShownExchange, diff: RequestDiff, limit: int | None) -> None:
    room = _TextBudget(None if limit is None else 2 * limit)
    for group in _groups(diff.messages):
        made = [_message(each, room) for each in group]
        if len(group) == 1:
            shown.messages += made
        else:
            words = sum(each.words for each in made)
            shown.messages.append(Unchanged(_places(group), words, made if limit is None else []))
    shown.hidden_words = room.hidden


def _change(it: Changed, limit: int | None) -> ShownMessage:
    room = _TextBudget(None if limit is None else _SHORT)
    before, after = it.before or "", it.after or ""
    short = len(before) + len(after) <= _PLAIN  # two values are easier to read than one that became the other
    spans: list[Span] = [("dropped", before), ("added", after)] if short else diff_texts(before, after)
    state = "added" if it.before is None else "dropped" if it.after is None else "changed"
    whole = it.kind == "tool" and state != "changed"  # which one it is says enough
    raw = (
        [TextPiece(kind, text, count_words(text), folded=whole) for kind, text in spans if text]
        if whole or short
        else list(_folded(spans))
    )
    pieces = _joined([piece for each in raw for piece in room.take(each)])
    title = f"{it.kind} {visible(it.name, 60)}" if it.kind in ("parameter", "tool") else it.name
    return ShownMessage(
        title, "", state, () if state != "changed" else ("changed",), pieces, sum(piece.words for piece in pieces)
    )


_PLAIN = 120  # characters of both values
_SHORT = 400  # characters of a parameter or tool where texts are cut


def _groups(messages: Sequence[MessageDiff]) -> Iterator[list[MessageDiff]]:
    """Messages one by one; two and more neighbours that nothing was done to together."""
    same: list[MessageDiff] = []
    for each in messages:
        if each.state == "kept" and not each.marks:
            same.append(each)
            continue
        if same:
            yield same
            same = []
        yield [each]
    if same:
        yield same


def _places(group: Sequence[MessageDiff]) -> str:
    return f"messages {group[0].sent[0] + 1} to {group[-1].sent[0] + 1}"


def _message(diff: MessageDiff, room: _TextBudget) -> ShownMessage:
    pieces = [piece for raw in _folded(diff.spans) for piece in room.take(raw)]
    roles = [role for role in dict.fromkeys(diff.roles) if role is not None]
    words = sum(piece.words for piece in pieces)
    return ShownMessage(_title(diff), " → ".join(roles), diff.state, diff.marks, _joined(pieces), words)


def _title(diff: MessageDiff) -> str:
    before, after = (" + ".join(str(place + 1) for place in places) for places in (diff.sent, diff.forwarded))
    many = "messages" if max(len(diff.sent), len(diff.forwarded)) > 1 else "message"
    if not diff.sent or not diff.forwarded or before == after:
        return f"{many} {before or after}"
    return f"{many} {before} → {after}"


def _folded(spans: Sequence[Span]) -> Iterator[TextPiece]:
    for place, (kind, text) in enumerate(spans):
        words = count_words(text)
        if kind != "kept":
            yield from _fold(kind, text, words, HEAD, 0) if words > CHANGED_SHOWN else [TextPiece(kind, text, words)]
        elif words <= KEPT_SHOWN:
            yield TextPiece(kind, text, words)
        else:
            yield from _fold(
                kind, text, words, 0 if place == 0 and len(spans) > 1 else EDGE, 0 if place == len(spans) - 1 else EDGE
            )


_WORDS = re.compile(r"\s*\S+")
_LAST = 2000  # characters in which the last words are looked for


def _fold(kind: Kind, text: str, words: int, head: int, tail: int) -> Iterator[TextPiece]:
    """First and last words of a run, what lies between them folded."""
    start = _after(text, head)
    end = max(start, len(text) - _after(text[-_LAST:][::-1], tail))
    first, last = text[:start], text[end:]
    if first:
        yield TextPiece(kind, first, count_words(first))
    if start < end:
        yield TextPiece(kind, text[start:end], max(0, words - count_words(first) - count_words(last)), folded=True)
    if last:
        yield TextPiece(kind, last, count_words(last))


def _after(text: str, words: int) -> int:
    """Position at which so many words end, at most `_LAST` characters into the text."""
    end = 0
    for _, found in zip(range(words), _WORDS.finditer(text[:_LAST]), strict=False):
        end = found.end()
    return end


def _joined(pieces: Sequence[TextPiece]) -> list[TextPiece]:
    """Neighbours that say only how much is hidden, put together."""
    found: list[TextPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if last is not None and last.text is None and (last.rest or (piece.text is None and last.kind == piece.kind)):
            found[-1] = TextPiece(last.kind, None, last.words + piece.words, folded=True, rest=last.rest)
        else:
            found.append(piece)
    return found


def shown_piece(piece: TextPiece) -> str:
    """A piece's text as it is seen; white space alone that was dropped or added is written out, since nobody could see
    that.
    """
    text = piece.text or ""
    if piece.kind != "kept" and text.isspace():
        return "".join(_BLANKS.get(character, "␣") for character in text)
    return visible(text, _WHOLE, lines=True)


_BLANKS = {"\n": "↵\n", "\t": "⇥"}
_WHOLE = 2**40  # characters: no text is longer
