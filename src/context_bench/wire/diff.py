"""Changes of a request on its way: pairs of messages, word by word; their roles; parameters and tools. And the first
difference of two requests that should be the same.

`diff_requests(sent, forwarded)` takes two requests in neutral form (`wire.apis.parse_request`). Which message became
which is told by `wire.request`; what that leaves over is looked for again: a message that arrived elsewhere was
*moved*, one whose whole text stands inside another was *merged*, one whose text came in pieces was *split*. Pure, no
I/O.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from context_bench.core.keys import canonical_json, load_json, without_nulls
from context_bench.core.tokens import counter_for
from context_bench.wire.apis import parse_request
from context_bench.wire.apis.shared import dump
from context_bench.wire.cache import CacheProfile, segments
from context_bench.wire.request import Part, WireMessage, WireRequest, align, stated
from context_bench.wire.violations.parts import Violation
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


# The same request twice
# ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The place where two bodies part that should be the same. `byte`: its offset in the first as compact JSON; `path`:
    the field (`messages[2].content`), without its text; `cause`: key order, completion order of tools, order of
    messages, order of tools, timestamps, hashes or ids, or other text.
    """

    byte: int
    path: str
    cause: str

    def sentence(self) -> str:
        """The difference as a phrase for people."""
        return f"byte {self.byte:,}{f', {self.path}' if self.path else ''}: {self.cause}"


@dataclass(slots=True)
class RepeatedRuns:
    """Bodies of the first run of each session, packed, and how those of later runs differ from them. Of more
    than `space` bytes the rest is not compared, and counted as such.
    """

    space: int = 64 * 2**20
    compared: int = 0
    left_out: int = 0
    lost_tokens: int = 0
    lost_usd: float = 0.0
    causes: Counter[str] = field(default_factory=Counter)
    first: dict[str, Any] = field(default_factory=dict)
    _kept: dict[str, bytes] = field(default_factory=dict)

    def add(self, ident: str, run: int, wire: str, body: Any, *, price: float) -> FirstDifference | None:
        """Take in the body of the request `ident` as it arrived in a run of its session, from 0. `price`: US dollars
        that a prompt token costs more than one read from the cache.
        """
        if not run:
            if self.space < 0:
                return None
            data = zlib.compress(dump(body), 1)
            self.space -= len(data)
            self._kept |= {ident: data} if self.space >= 0 else {}
            return None
        if ident not in self._kept:
            self.left_out += 1
            return None
        self.compared += 1
        earlier = load_json(zlib.decompress(self._kept[ident]))
        found = first_difference(earlier, load_json(dump(body)))
        if found is not None:
            lost = _uncached(parse_request(wire, earlier), parse_request(wire, body))
            self.causes[found.cause] += 1
            self.lost_tokens += lost
            self.lost_usd += lost * price
            self.first = self.first or {"request": ident, **asdict(found)}
        return found

    def changes(self, ident: str, run: int, record: Mapping[str, Any], rules: CacheProfile) -> list[Violation]:
        """The same for a tap's record of the request, as a violation if it differs."""
        dearer = rules.p_in * (1 - rules.r) / 1e6
        found = self.add(ident, run, record["wire"], record["request"], price=dearer)
        return [] if found is None else [Violation("forwarded_differently", found.sentence())]

    @property
    def runs(self) -> int:
        """1 as long as no later run of a request has come, else 2 or more."""
        return 2 if self.compared or self.left_out else 1

    def as_dict(self, priced: bool) -> dict[str, Any]:
        """The figures, JSON-ready: requests compared, those that differ, causes, prompt tokens and dollars lost."""
        found: dict[str, Any] = {"requests": self.compared, "differing": self.causes.total()}
        found |= {"causes": dict(sorted(self.causes.items())), "lost_tokens": self.lost_tokens}
        found |= {"lost_usd": self.lost_usd} if priced else {}
        found |= {"first": self.first} if self.first else {}
        return found | ({"not_compared": self.left_out} if self.left_out else {})


def _uncached(before: WireRequest, now: WireRequest) -> int:
    """Tokens of a prompt behind what it shares with another: what the other's cache cannot give it."""
    first, second, count = segments(before), segments(now), counter_for(now.model).count
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            same = _shared(a[1], b[1]) if a[0] == b[0] else 0
            return count(b[1][same:]) + sum(count(text) for _, text in second[place + 1 :])
    return sum(count(text) for _, text in second[len(first) :])


def _shared(a: str | bytes, b: str | bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def first_difference(first: Any, second: Any) -> FirstDifference | None:
    """The first difference of two bodies, each as it arrived (the order of keys counts), and its cause; `None` if there
    is none. Where there are several causes, it is that of the first.
    """
    a, b = dump(first), dump(second)
    if a == b:
        return None
    byte = _shared(a, b)
    if canonical_json(first) == canonical_json(second):
        return FirstDifference(byte, "", "key order")
    path, one, other = _leaf(first, second)
    return FirstDifference(byte, path, _cause(path, one, other))


def _leaf(a: Any, b: Any) -> tuple[str, Any, Any]:
    """The first values that differ: lists of the same items in another order as a whole, else the innermost field."""
    path = ""
    while True:
        if isinstance(a, dict) and isinstance(b, dict):
            key = next((key for key in [*a, *b] if key not in a or key not in b or _other(a[key], b[key])), None)
            if key is None or key not in a or key not in b:
                return f"{path}.{str(key)[:40]}".strip("."), a.get(key), b.get(key)
            path, a, b = f"{path}.{str(key)[:40]}".strip("."), a[key], b[key]
        elif isinstance(a, list) and isinstance(b, list) and not _reordered(a, b):
            place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if _other(x, y)), min(len(a), len(b)))
            if place >= min(len(a), len(b)):
                return f"{path}[{place}]", None, None
            path, a, b = f"{path}[{place}]", a[place], b[place]
        else:
            return path, a, b


def _other(a: Any, b: Any) -> bool:
    return canonical_json(a) != canonical_json(b)


def _reordered(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and sorted(map(canonical_json, a)) == sorted(map(canonical_json, b))


_RESULTS = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d:\d\d(?::\d\d)?|\b1\d{9}(?:\d{3})?(?:\.\d+)?\b"
)
_IDENT = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=[\w-]*\d)[\w-]*[0-9A-Za-z]{8,}")
_TIMED = re.compile(r"time|date|created|stamp|_at$", re.IGNORECASE)


def _cause(path: str, a: Any, b: Any) -> str:
    if isinstance(a, list) and isinstance(b, list):
        moved = [x for x, y in zip(a, b, strict=False) if _other(x, y)]
        if path.endswith("tools"):
            return "order of tools"
        results = (isinstance(x, dict) and (x.get("role") == "tool" or x.get("type") in _RESULTS) for x in moved)
        return "completion order of tools" if all(results) else "order of messages"
    if isinstance(a, str) and isinstance(b, str):
        if _TIME.sub("", a) == _TIME.sub("", b):
            return "timestamps"
        return "hashes or ids" if _IDENT.sub("", a) == _IDENT.sub("", b) else "other text"
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b))
    return "timestamps" if numbers and (_TIMED.search(path) or min(abs(a), abs(b)) > 1e9) else "other text"
