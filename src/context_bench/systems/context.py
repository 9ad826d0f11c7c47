"""The texts of a request that are its context, on any wire; and the request with shorter texts in their place.

Also the texts of messages, and limits on their tokens, as compressors and controls share them.

Texts are replaced inside the JSON document without touching one other byte of it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput
from context_bench.core.numbers import count, share
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.request import SYSTEM_ROLES

Path = tuple[str | int, ...]
_COPIED = 2**20  # bytes
#: A string, or a sign that opens, closes or continues an object or a list. Between these stand what needs no path.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]', re.DOTALL)


def replace_strings(document: bytes, texts: Mapping[Path, str]) -> bytes:
    """`document` (valid JSON in UTF-8) with the string values at the given paths replaced; everything else stays as it
    is, byte for byte.

    A path is keys and positions from the root, as in `("messages", 0, "content")`. `KeyError` for a path that is no
    string value.
    """
    if (plain := _in_plain_json(document, texts)) is not None:
        return plain
    spans = {
        path: span for path, span in _strings(document) if path in texts
    }  # of equal keys the last one counts, as in json
    missing = [path for path in texts if path not in spans]
    if missing:
        raise KeyError(f"no text at {missing[0]} of the document")
    pieces: list[bytes] = []
    at = 0
    for path, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        pieces += [document[at:start], _literal(texts[path])]
        at = end
    return b"".join([*pieces, document[at:]])


def _in_plain_json(document: bytes, texts: Mapping[Path, str]) -> bytes | None:
    """The same for a document that is written just as `orjson` writes it, in a tenth of the time; `None` for another
    one, and for one so long that copies of it count.
    """
    if len(document) > _COPIED:
        return None
    try:
        root: Any = [orjson.loads(document)]
        if orjson.dumps(root[0]) != document:
            return None
        for path, text in texts.items():
            held: Any = root
            place: str | int = 0
            for step in path:
                held, place = held[place], step
            if not isinstance(held[place], str):
                return None
            held[place] = text
        return orjson.dumps(root[0])
    except (ValueError, TypeError, LookupError):  # half a surrogate pair, another kind of JSON, or no such path
        return None


def _literal(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return json.dumps(text).encode()  # lone surrogates only exist as escapes


def _strings(document: bytes) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Every string value: its path, begin and end. No recursion: the depth of a document is not ours to choose."""
    steps: list[str | int | None] = []  # of each open object or list its key or position; None: a key comes next
    for token in _TOKEN.finditer(document):
        sign = document[token.start()]  # the string itself may be most of the document
        if sign in b"{[":
            steps.append(None if sign in b"{" else 0)
        elif sign in b"}]":
            steps.pop()
        elif sign in b",":
            steps[-1] = steps[-1] + 1 if isinstance(steps[-1], int) else None
        elif steps and steps[-1] is None:
            steps[-1] = str(json.loads(token[0].decode("utf-8", "surrogatepass"), strict=False))
        else:
            yield tuple(step for step in steps if step is not None), token.span()


WIRES = ("openai-chat", "openai-responses", "anthropic")
INSTRUCTIONS = 200  # system texts of fewer tokens are instructions, not context
_TEXT_KINDS = ("text", "input_text", "output_text")
_LABEL = re.compile(r"\A\s*Question:\s*")
_LABELLED = re.compile(r"\n[ \t]*\n(?=Question:)")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_VISIBLE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Slot:
    """One text of context: where it stands, who says it, and the question that stays behind it in the same string."""

    path: Path
    role: str
    text: str
    after: str = ""
    may_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of a request in order, the question asked about it (`""` if nobody asks), and the model asked."""

    slots: list[Slot]
    question: str
    model: str | None = None

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "\n\n".join(slot.text for slot in self.slots)


def split_question(text: str) -> tuple[str, str]:
    """A user's text as (context, question): the question is the last paragraph, or all from the last paragraph that
    begins `Question:`.

    The second part begins with the break, so both join to `text`. A single paragraph is all question.
    """
    end = len(text.rstrip())
    at = _last(_LABELLED, text, end)
    if at is None:
        at = _last(_PARAGRAPH, text, end)
    return (text[:at], text[at:]) if at and _VISIBLE.search(text, 0, at) else ("", text)


def _last(pattern: re.Pattern[str], text: str, end: int) -> int | None:
    """The begin of a pattern's last match; a long text may have a million."""
    at = None
    for found in pattern.finditer(text, 0, end):
        at = found.start()
    return at


def context_of(wire: str, body: Mapping[str, Any], counter: TokenCounter | None = None) -> RequestContext:
    """Every text of a request but its short system texts and the question (the end of the last user text).

    Thinking, tool calls and anything that is not text are not context: providers check them or give them meaning.
    """
    counter = counter or counter_for()
    texts = [slot for slot in _texts(wire, body) if slot.text]
    asked = max((i for i, slot in enumerate(texts) if slot.role == "user"), default=None)
    question = ""
    slots: list[Slot] = []
    for position, slot in enumerate(texts):
        if slot.role in SYSTEM_ROLES and counter.count(slot.text) < INSTRUCTIONS:
            continue
        if position == asked:
            context, after = split_question(slot.text)
            question = _LABEL.sub("", after).strip()
            if not context:
                continue
            slot = Slot(slot.path, slot.role, context, after)
        slots.append(slot)
    model = body.get("model")
    return RequestContext(slots, question, model if isinstance(model, str) else None)


def with_context(document: bytes, slots: Sequence[Slot], texts: Sequence[str]) -> bytes:
    """The JSON `document` with the texts of `slots` replaced. Where the wire takes no empty text, `…` stands for
    nothing.
    """
    return replace_strings(
        document, {slot.path: _filled(slot, text) for slot, text in zip(slots, texts, strict=True) if text != slot.text}
    )


def _filled(slot: Slot, text: str) -> str:
    if slot.after:
        return text + slot.after if text.strip() else slot.after.lstrip()
    return text if text.strip() or slot.may_be_empty else "…"


def _texts(wire: str, body: Mapping[str, Any]) -> Iterator[Slot]:
    if wire == "openai-chat":
        yield from _messages(body, "messages")
    elif wire == "openai-responses":
        yield from _content(body.get("instructions"), ("instructions",), "system")
        given = body.get("input")
        yield from _content(given, ("input",), "user") if isinstance(given, str) else _messages(body, "input")
    elif wire == "anthropic":
        yield from _content(body.get("system"), ("system",), "system", may_be_empty=False)
        yield from _messages(body, "messages", may_be_empty=False)


def _messages(body: Mapping[str, Any], field: str, may_be_empty: bool = True) -> Iterator[Slot]:
    listed = body.get(field)
    for i, message in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(message, Mapping):
            continue
        kind = message.get("type")
        if isinstance(kind, str) and kind.endswith("_output"):  # what a tool gave back, in the Responses wire
            yield from _content(message.get("output"), (field, i, "output"), "tool")
        elif kind in (None, "message"):
            yield from _content(message.get("content"), (field, i, "content"), str(message.get("role")), may_be_empty)


def _content(content: Any, path: Path, role: str, may_be_empty: bool = True) -> Iterator[Slot]:
    if isinstance(content, str):
        yield Slot(path, role, content, "", may_be_empty)
        return
    for j, part in enumerate(content if isinstance(content, list) else []):
        if not isinstance(part, Mapping):
            continue
        if part.get("type") in _TEXT_KINDS and isinstance(part.get("text"), str):
            yield Slot((*path, j, "text"), role, part["text"], "", may_be_empty)
        elif part.get("type") == "tool_result":
            inner = part.get("content")
            yield from _content(inner, (*path, j, "content"), "tool", may_be_empty or isinstance(inner, str))
        elif part.get("type") == "document":
            source = part.get("source")
            if isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
                yield Slot((*path, j, "source", "data"), "document", source["data"], "", False)


def texts_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every text of the messages in order; a message's content may be one text or a list of parts."""
    return [text for message in messages for text in _message_texts(message.get("content"))]


def _message_texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def check_limit(name: str, budget: int | None, keep: float) -> None:
    """Refuse a budget below 0 or a share outside 0 to 1."""
    if budget is not None and count(budget) is None:
        raise BadInput(f"{name}: budget={budget!r} is not a number of tokens (0, 1, 2 …)")
    if share(keep) is None:
        raise BadInput(f"{name}: keep={keep!r} is not a share from 0 to 1 (0.5 keeps half of the tokens)")


def leaves(compressor: Any) -> str | None:
    """`everything` or `nothing` for a compressor that always leaves that; else `None`."""
    extreme: str | None = getattr(compressor, "leaves", None)
    return extreme


async def compress_texts(
    compressor: Any,
    texts: list[tuple[str, str]],
    question: str,
    *,
    model: str | None,
    budget: int | None = None,
    state: Any = None,
) -> list[str]:
    """`(role, text)` pairs through a compressor: as many texts come back. What a compressor merges stands in the first
    place.

    One that counts tokens and has no `model` of its own counts as the model asked does.
    """
    if model is not None and getattr(compressor, "model", "") is None:
        compressor = copy.copy(compressor)
        compressor.model = model
    prefix = [
        {"role": role if role in ("system", "assistant", "tool") else "user", "content": text} for role, text in texts
    ]
    tail = [{"role": "user", "content": question}] if question else []
    query = question if getattr(compressor, "needs_query", False) and question else None
    compressed, _ = await calling.call(compressor.compress, prefix, tail, state=state, budget=budget, query=query)
    left = texts_of(compressed.messages)
    if len(left) == len(texts):
        return left
    return ["\n\n".join(left), *[""] * (len(texts) - 1)]
