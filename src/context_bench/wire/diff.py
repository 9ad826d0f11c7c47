"""Changes of a request on its way: pairs of messages, word by word; their roles; parameters and tools.

`diff_requests(sent, forwarded)` takes two requests in neutral form (`wire.apis.parse_request`). Which message became
which is told by `wire.request`; what that leaves over is looked for again: a message that arrived elsewhere was
*moved*, one whose whole text stands inside another was *merged*, one whose text came in pieces was *split*. Pure, no
I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.keys import canonical_json, without_nulls
from context_bench.wire.request import Part, WireMessage, WireRequest, align, stated
from context_bench.wire.words import Span, count_words, diff_texts, words_of

State = Literal["kept", "changed", "dropped", "added"]
_JOINT = "\n\n"  # between the texts of messages that became one, or that one became


@dataclass(frozen=True, slots=True)
class MessageDiff:
    """One message on its way. `sent`, `forwarded`: its places in both requests, from 0; several where messages were
    merged or split.

    `roles`: before and after, `None` where it is not there. `spans`: see `wire.words`; a part that is not text stands
    in brackets, a tool call as its name, id and arguments. `marks`: what else was done: `role`, `moved`, `merged`,
    `split`, `cache mark lost`, `cache mark added`, `call id`.
    """

    state: State
    sent: tuple[int, ...]
    forwarded: tuple[int, ...]
    roles: tuple[str | None, str | None]
    spans: list[Span]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """A parameter or a tool that is not what it was. `before`, `after`: its value as JSON, `None` where it is not
    there.
    """

    kind: Literal["model", "stream", "parameter", "tool", "wire"]
    name: str
    before: str | None
    after: str | None


@dataclass(slots=True)
class RequestDiff:
    """All that was done to a request. Word counts are of messages' texts: `kept_words` are those of the sent ones that
    were kept.
    """

    messages: list[MessageDiff] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    sent_words: int = 0
    forwarded_words: int = 0
    kept_words: int = 0

    @property
    def kept_share(self) -> float | None:
        """Share of the sent words that went on as they were; `None` if none was sent."""
        return self.kept_words / self.sent_words if self.sent_words else None

    @property
    def unchanged(self) -> bool:
        """Nothing was done to it."""
        return not self.changed and all(each.state == "kept" and not each.marks for each in self.messages)

    def count(self, what: str) -> int:
        """Messages in this state or with this mark."""
        return sum(what == each.state or what in each.marks for each in self.messages)


def diff_requests(sent: WireRequest, forwarded: WireRequest) -> RequestDiff:
    """Changes from `sent` to `forwarded`."""
    found = RequestDiff(list(_messages(sent.messages, forwarded.messages)), list(_changes(sent, forwarded)))
    for message in found.messages:
        for kind, text in message.spans:
            words = count_words(text)
            found.kept_words += words if kind == "kept" else 0
            found.sent_words += words if kind != "added" else 0
            found.forwarded_words += words if kind != "dropped" else 0
    return found


def message_text(message: WireMessage) -> str:
    """A message as one text to read and compare: its parts on lines of their own, what is not text in brackets, then
    its tool calls.
    """
    shown = [_part_text(part) for part in message.parts if part.kind != "tool_use"]
    return "\n".join([*shown, *(_call_text(call) for call in message.tool_calls)])


def _part_text(part: Part) -> str:
    if part.text is not None:
        return f"[{part.kind}]\n{part.text}" if part.kind not in _PLAIN and part.text else part.text
    data = "" if part.raw is None else canonical_json(without_nulls(part.raw))
    return (
        f"[{part.kind}: {data}]"
        if len(data) <= _SHORT
        else f"[{part.kind}: {len(data):,} characters, {data[:80]}…{data[-40:]}]"
    )


_PLAIN = ("text", "input_text", "output_text")
_SHORT = 240


def _call_text(call: dict[str, Any]) -> str:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=repr)
    return f"[calls {call.get('name')}, {call.get('id')}]\n{text}"


# Messages
# ------------------------------------------------------------------------


@dataclass(slots=True)
class _Met:
    """Places of one message on both sides."""

    sent: list[int]
    forwarded: list[int]
    marks: list[str] = field(default_factory=list)


def _messages(sent: Sequence[WireMessage], forwarded: Sequence[WireMessage]) -> Iterator[MessageDiff]:
    a, b = [message_text(each) for each in sent], [message_text(each) for each in forwarded]
    for met in _in_order(_meetings(sent, forwarded, a, b)):
        before, after = [sent[i] for i in met.sent], [forwarded[j] for j in met.forwarded]
        text, other = _JOINT.join(a[i] for i in met.sent), _JOINT.join(b[j] for j in met.forwarded)
        marks = (*met.marks, *_marks(before, after))
        roles = _roles(before), _roles(after)
        state: State = "added" if not before else "dropped" if not after else "kept" if text == other else "changed"
        yield MessageDiff(state, tuple(met.sent), tuple(met.forwarded), roles, diff_texts(text, other), marks)


def _roles(messages: list[WireMessage]) -> str | None:
    return " + ".join(dict.fromkeys(each.role for each in messages)) or None


def _meetings(sent: Sequence[WireMessage], forwarded: Sequence[WireMessage], a: list[str], b: list[str]) -> list[_Met]:
    pairs = align(sent, forwarded)
    _take_apart(pairs, sent, a, b)
    met = {i: _Met([i], [j]) for i, j in pairs.items()}
    taken = set(pairs.values())
    left, fresh = [i for i in range(len(a)) if i not in met], [j for j in range(len(b)) if j not in taken]
    for i in list(left):  # the same text elsewhere
        j = next((j for j in fresh if a[i] and a[i] == b[j]), None)
        if j is not None:
            met[i] = _Met([i], [j], ["moved"])
            left.remove(i)
            fresh.remove(j)
    owners = {j: each for each in met.values() for j in each.forwarded}
    for i in list(left):  # inside another message
        j = next(
            (j for j, each in owners.items() if len(a[i]) >= _TELLING and a[i] in b[j] and a[i] not in a[each.sent[0]]),
            None,
        )
        if j is not None:
            _merge(owners[j], i, a, b[j])
            left.remove(i)
    for j in list(fresh):  # a piece of one
        owner = next(
            (
                each
                for i, each in met.items()
                if len(b[j]) >= _TELLING and b[j] in a[i] and b[j] not in b[each.forwarded[0]]
            ),
            None,
        )
        if owner is not None:
            owner.forwarded = sorted([*owner.forwarded, j])
            owner.marks += ["split"] if "split" not in owner.marks else []
            fresh.remove(j)
    return [*met.values(), *(_Met([i], []) for i in left), *(_Met([], [j]) for j in fresh)]


#: Shorter texts stand in others by chance.
_TELLING = 8


def _take_apart(pairs: dict[int, int], sent: Sequence[WireMessage], a: list[str], b: list[str]) -> None:
    """Takes apart what was paired by its place only: its whole text is said elsewhere, or the two have not one word in
    common.
    """
    taken = set(pairs.values())
    fresh = {b[j] for j in range(len(b)) if j not in taken and len(b[j]) >= _TELLING}
    left = {a[i] for i in range(len(a)) if i not in pairs and len(a[i]) >= _TELLING}
    for i, j in list(pairs.items()):
        if a[i] != b[j] and (
            a[i] in fresh or b[j] in left or not (sent[i].tool_call_id or sent[i].tool_calls or _alike(a[i], b[j]))
        ):
            del pairs[i]


def _alike(text: str, other: str) -> bool:
    """Two texts are alike if they share a word. Of short texts that cannot be told, and they count as alike."""
    words, others = ({word.lower() for word in words_of(each[:_LOOKED_AT])} for each in (text, other))
    return min(len(words), len(others)) < _FEW or not words.isdisjoint(others)


_FEW, _LOOKED_AT = 3, 20_000


def _merge(into: _Met, i: int, a: list[str], text: str) -> None:
    into.sent = sorted(
        [*into.sent, i], key=lambda place: (text.find(a[place]) if a[place] in text else len(text), place)
    )
    into.marks += ["merged"] if "merged" not in into.marks else []


def _in_order(found: list[_Met]) -> list[_Met]:
    """In the order in which they were sent; what is new stands before what follows it in the forwarded request."""
    old = sorted((each for each in found if each.sent), key=lambda each: min(each.sent))
    new = sorted((each for each in found if not each.sent), key=lambda each: each.forwarded)
    ordered: list[_Met] = []
    for each in old:
        if each.forwarded and "moved" not in each.marks:
            while new and new[0].forwarded[0] < min(each.forwarded):
                ordered.append(new.pop(0))
        ordered.append(each)
    return ordered + new


def _marks(before: list[WireMessage], after: list[WireMessage]) -> Iterator[str]:
    if not before or not after:
        return
    if {each.role for each in before} != {each.role for each in after}:
        yield "role"
    if [each.tool_call_id for each in before if each.tool_call_id] != [
        each.tool_call_id for each in after if each.tool_call_id
    ]:
        yield "call id"
    had, has = (sum(bool(part.cache_control) for each in side for part in each.parts) for side in (before, after))
    if had != has:
        yield "cache mark lost" if had > has else "cache mark added"


# The rest of the request
# ------------------------------------------------------------------------


def _changes(sent: WireRequest, forwarded: WireRequest) -> Iterator[Changed]:
    if sent.wire != forwarded.wire:
        yield Changed("wire", "API", sent.wire, forwarded.wire)
    if sent.model != forwarded.model:
        yield Changed("model", "model", sent.model, forwarded.model)
    if sent.stream != forwarded.stream:
        yield Changed("stream", "stream", canonical_json(sent.stream), canonical_json(forwarded.stream))
    given, arrived = stated(sent.params), stated(forwarded.params)
    for name in sorted(given.keys() | arrived.keys()):
        before, after = (canonical_json(side[name]) if name in side else None for side in (given, arrived))
        if before != after:
            yield Changed("parameter", name, before, after)
    before_tools, after_tools = _tools(sent.tools), _tools(forwarded.tools)
    for name in dict.fromkeys([*before_tools, *after_tools]):
        before, after = before_tools.get(name), after_tools.get(name)
        if canonical_json(without_nulls(before)) != canonical_json(without_nulls(after)):
            yield Changed("tool", name, _as_sent(before), _as_sent(after))


def _as_sent(tool: Any) -> str | None:
    return None if tool is None else json.dumps(tool, ensure_ascii=False, default=repr)


def _tools(tools: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in tools:
        held = tool if isinstance(tool, dict) else {}
        inner = held["function"] if isinstance(held.get("function"), dict) else held
        name = str(inner.get("name") or held.get("type") or "tool")
        found[name if name not in found else f"{name} #{len(found) + 1}"] = tool
    return found
