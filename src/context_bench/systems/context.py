"""Which texts of a request are its context, on any wire, and putting shorter ones in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.systems.splice import Path, replace_strings
from context_bench.wire.request import SYSTEM_ROLES

WIRES = ("openai-chat", "openai-responses", "anthropic")
INSTRUCTIONS = 200  # system texts of fewer tokens are instructions, not context

_TEXT_KINDS = ("text", "input_text", "output_text")
_LABEL = re.compile(r"\A\s*Question:\s*")
_LABELLED = re.compile(r"\n[ \t]*\n(?=Question:)")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Slot:
    """One text of context: where it stands, who says it, and the question that stays behind it in the same string."""

    path: Path
    role: str
    text: str
    after: str = ""
    may_be_empty: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a request in order, and the question asked about it (`""` if nobody asks)."""

    slots: list[Slot]
    question: str

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "\n\n".join(slot.text for slot in self.slots)


def split_question(text: str) -> tuple[str, str]:
    """A user's text as (context, question): the question is the last paragraph, or all from the last paragraph that begins `Question:`.

    The second part begins with the break, so both join to `text`. A single paragraph is all question.
    """
    end = len(text.rstrip())
    labelled = [found.start() for found in _LABELLED.finditer(text, 0, end)]
    cuts = labelled or [found.start() for found in _PARAGRAPH.finditer(text, 0, end)]
    at = cuts[-1] if cuts and text[: cuts[-1]].strip() else 0
    return text[:at], text[at:]


def context_of(wire: str, body: Mapping[str, Any], counter: TokenCounter | None = None) -> Context:
    """Every text of a request but its short system texts and the question (the end of the last user text).

    Thinking, tool calls and anything that is not text are not context: providers check them or give them meaning.
    """
    counter = counter or counter_for()
    found = [slot for slot in _texts(wire, body) if slot.text]
    asked = max((i for i, slot in enumerate(found) if slot.role == "user"), default=None)
    question = ""
    slots: list[Slot] = []
    for position, slot in enumerate(found):
        if slot.role in SYSTEM_ROLES and counter.count(slot.text) < INSTRUCTIONS:
            continue
        if position == asked:
            context, after = split_question(slot.text)
            question = _LABEL.sub("", after).strip()
            if not context:
                continue
            slot = Slot(slot.path, slot.role, context, after)
        slots.append(slot)
    return Context(slots, question)


def with_context(document: str, slots: Sequence[Slot], texts: Sequence[str]) -> str:
    """The JSON `document` with the texts of `slots` replaced. Where the wire takes no empty text, `…` stands for nothing."""
    return replace_strings(document, {slot.path: _filled(slot, text) for slot, text in zip(slots, texts, strict=True) if text != slot.text})


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
