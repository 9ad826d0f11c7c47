"""A request to a model in one neutral form, for any wire: token count, anatomy, and changes on the way.

`wire.apis` reads OpenAI chat completions, OpenAI Responses and Anthropic bodies into this form. Alignment pairs the
messages of a request with those that arrived: messages may be shortened, left out, given another role, or moved.
Headers are sorted into those of the request and those of its connection or login. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.keys import canonical_json, hash_text, without_nulls
from context_bench.core.protocols import method
from context_bench.core.tokens import TokenCounter

#: Who speaks for the developer, by the older name and the newer one.
SYSTEM_ROLES = ("system", "developer")
#: Roles of messages that hold a result of a tool.
RESULT_ROLES = ("tool", "function")


@dataclass(slots=True)
class Part:
    """One content part: `text` (also of tool results and thinking), or something that is not text (`image`, `file`,
    `audio`, …).
    """

    kind: str
    text: str | None = None
    raw: Any = None
    cache_control: Any = None


@dataclass(slots=True)
class WireMessage:
    """One message: role as the wire names it (`system`, `developer`, `user`, `assistant`, `tool`), parts in order, tool
    calls.
    """

    role: str
    parts: list[Part] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)  # {"id", "name", "arguments"}: arguments as sent
    tool_call_id: str | None = None  # of a tool result
    failed: bool = False  # of a tool result: the wire has a flag for it, and it is set
    fields: dict[str, Any] = field(default_factory=dict)  # else told on it by its wire that a model gets, by name

    @property
    def text(self) -> str:
        """All text of the message, parts joined by newlines."""
        texts = [part.text for part in self.parts if part.text]
        return texts[0] if len(texts) == 1 else "\n".join(texts)


@dataclass(slots=True)
class WireRequest:
    """A request in neutral form. `params`: every top-level field but the messages, tools, model and stream flag."""

    wire: str
    model: str | None
    messages: list[WireMessage]
    tools: list[Any] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    stream: bool = False


#: Fields that say nothing where they are empty, by the APIs' own defaults.
_NOTHING_IF_EMPTY = frozenset(
    {
        "include",
        "logit_bias",
        "mcp_servers",
        "metadata",
        "reasoning",
        "stop",
        "stop_sequences",
        "stream_options",
        "text",
    }
)


def stated(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that say something: a null field is as good as none, in them too, and so are some that are
    empty.
    """
    found = without_nulls(params)
    return {name: value for name, value in found.items() if value not in ("", [], {}) or name not in _NOTHING_IF_EMPTY}


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """Tokens of a request's text; `uncounted` parts are not text and are in no sum."""

    total: int
    exact: bool
    uncounted: int = 0


def count_request(request: WireRequest, counter: TokenCounter) -> RequestTokens:
    """Tokens of a request: Σ over messages of count(text of each part) and count(canonical JSON of its tool calls), and
    of `tools`.

    Roles and the chat template count 0.
    """
    uncounted = sum(part.text is None for message in request.messages for part in message.parts)
    texts = counted_texts(request)
    return RequestTokens(totals_of([texts], counter)[0], exactly(counter, texts), uncounted)


def exactly(counter: TokenCounter, texts: Sequence[str]) -> bool:
    """True if the tokens that `counter` says of some texts are a count by the model's own tokenizer, and no
    estimate.
    """
    estimates = method(counter, "estimates")
    return counter.exact and not (estimates is not None and estimates(texts))


def counted_texts(request: WireRequest) -> list[str]:
    """The texts whose tokens are a request's tokens."""
    texts: list[str] = []
    for message in request.messages:
        texts += [part.text for part in message.parts if part.text is not None]
        if message.tool_calls:
            texts.append(canonical_json(message.tool_calls))
    if request.tools:
        texts.append(canonical_json(request.tools))
    return texts


def totals_of(groups: Sequence[Sequence[str]], counter: TokenCounter) -> list[int]:
    """Tokens of each group of texts; a counter of one's own may only know one text at a time."""
    together = method(counter, "totals")
    return [sum(map(counter.count, group)) for group in groups] if together is None else list(together(groups))


def facts(request: WireRequest) -> dict[str, Any]:
    """The anatomy of a request as JSON, without any of its text: what can be kept of live traffic and compared later.

    `texts` are short unkeyed hashes only when the caller keeps bodies anyway; `meta` recordings drop them.
    """
    return {
        "roles": [message.role for message in request.messages],
        "parts": [[part.kind for part in message.parts] for message in request.messages],
        "texts": [hash_text(message.text, 16) for message in request.messages],
        "tool_calls": [[str(call.get("id")) for call in message.tool_calls] for message in request.messages],
        "tool_results": [message.tool_call_id for message in request.messages],
        "cache_control": [
            [i, j] for i, m in enumerate(request.messages) for j, p in enumerate(m.parts) if p.cache_control
        ],
        "tools": [hash_text(canonical_json(without_nulls(tool)), 16) for tool in request.tools],
        "params": {
            key: value if isinstance(value, bool | int | float) else hash_text(canonical_json(value), 16)
            for key, value in stated(request.params).items()
        },
        "model": request.model,
        "stream": request.stream,
    }


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between what was sent and what was forwarded; `kind` is a word for tables, `detail` a phrase for
    people.
    """

    kind: str
    detail: str


def changes(sent: dict[str, Any], received: dict[str, Any]) -> list[Change]:
    """Changes by a proxy between two `facts`, apart from the text itself: roles, message count, parameters, tools,
    cache_control, model.

    Roles are compared position by position when the number of messages is equal, else as counts. Where a tap kept no
    plain hashes (`received["policy"]` other than "full"), parameters and tools are compared by name and number only;
    parameters that such a tap calls `other` count as kept.
    """
    if received.get("policy", "full") != "full":
        sent, received = _nameless(sent, received["params"]), _nameless(received, received["params"])
    found: list[Change] = []
    before, after = sent["roles"], received["roles"]
    if len(before) == len(after):
        found += [
            Change("role", f"message {i + 1}: {a} → {b}")
            for i, (a, b) in enumerate(zip(before, after, strict=True))
            if a != b
        ]
    else:
        found.append(Change("messages", f"{len(before)} messages became {len(after)}"))
        lost = Counter(before) - Counter(after)
        found += [Change("role", f"{n} × {role} lost") for role, n in sorted(lost.items()) if role not in after]
    if sent["model"] != received["model"]:
        found.append(Change("model", f"{sent['model']} → {received['model']}"))
    if sent["stream"] != received["stream"]:
        found.append(Change("param", f"stream {sent['stream']} → {received['stream']}"))
    found += _param_changes(sent["params"], received["params"])
    if sent["tools"] != received["tools"]:
        found.append(
            Change("tools", f"{len(sent['tools'])} tool definitions became {len(received['tools'])} or changed")
        )
    if len(sent["cache_control"]) != len(received["cache_control"]):
        found.append(
            Change("cache_control", f"{len(sent['cache_control'])} cache marks became {len(received['cache_control'])}")
        )
    return found


def _nameless(anatomy: dict[str, Any], arrived: dict[str, Any]) -> dict[str, Any]:
    """Without the hashes that two sides can only compare if both made them alike, and without parameters that have no
    name there.
    """
    named = {key: "" if isinstance(value, str) else value for key, value in anatomy["params"].items() if key != "other"}
    if "other" in arrived:
        named = {key: value for key, value in named.items() if key in arrived}
    return {**anatomy, "params": named, "tools": [""] * len(anatomy["tools"])}


def _param_changes(sent: dict[str, Any], received: dict[str, Any]) -> list[Change]:
    found = [Change("param", f"{key} removed") for key in sorted(sent.keys() - received.keys())]
    found += [Change("param", f"{key} added") for key in sorted(received.keys() - sent.keys())]
    found += [
        Change("param", f"{key} changed") for key in sorted(sent.keys() & received.keys()) if sent[key] != received[key]
    ]
    return found


_OF_THE_CONNECTION = ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "upgrade")
_OF_THE_CODING = ("accept-encoding", "content-encoding")
_OF_THE_LOGIN = (
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "proxy-authorization",
    "cookie",
    "x-context-bench",
)
_NOT_SENT = frozenset((*_OF_THE_CONNECTION, *_OF_THE_CODING, *_OF_THE_LOGIN))


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are part of the request: none of its connection, no key."""
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_SENT}


def by_lower_name(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name; one that stands there more than once is a list."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


_PARAGRAPH = re.compile(r"\n[ \t]*\n")
Pairs = dict[int, int]  # place in the sent request → place in the received one


def altered(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Pairs:
    """The pairs without those whose messages are one object, as where the items of a session are held once."""
    return {i: j for i, j in pairs.items() if sent.messages[i] is not received.messages[j]}


def align(sent: Sequence[WireMessage], received: Sequence[WireMessage]) -> Pairs:
    """Pairs of messages, in order: by ids of tool calls first, then by text, then by role. Messages may be left out."""
    a, b = [_Sketch.of(message) for message in sent], [_Sketch.of(message) for message in received]
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs = {i: i for i in range(start)}
    inner = _best(a[start : len(a) - end], b[start : len(b) - end])
    pairs.update({start + i: start + j for i, j in inner.items()})
    pairs.update({len(a) - end + i: len(b) - end + i for i in range(end)})
    return pairs


@dataclass(frozen=True, slots=True)
class _Sketch:
    role: str
    text: str
    ids: tuple[str, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, message: WireMessage) -> _Sketch:
        text = message.text
        calls = tuple(str(call.get("id") or canonical_json(call)) for call in message.tool_calls)
        ids = (*calls, *([message.tool_call_id] if message.tool_call_id else []))
        return cls(message.role, text, ids, tuple(part.kind for part in message.parts if part.text is None))


def _likeness(a: _Sketch, question: str, b: _Sketch) -> float:
    """How much two messages have in common; `question`: the first one's."""
    score = 1.5 if a.role == b.role else 0.3
    if a.ids and set(a.ids) & set(b.ids):
        score += 4.0
    if a.kinds and a.kinds == b.kinds:
        score += 0.5
    if a.text and a.text == b.text:
        score += 3.0
    elif question and b.text.rstrip().endswith(question):
        score += 1.0
    return score


def _best(a: list[_Sketch], b: list[_Sketch]) -> Pairs:
    """The order-keeping pairing of the greatest total likeness."""
    if _in_place(a, b):
        return {i: i for i in range(len(a))}
    width = len(b) + 1
    table = [[0.0] * width for _ in range(len(a) + 1)]
    asked = [question_of(one.text) for one in a]
    likeness = [[_likeness(one, question, other) for other in b] for one, question in zip(a, asked, strict=True)]
    for i in range(len(a) - 1, -1, -1):
        row, below, near = table[i], table[i + 1], likeness[i]
        for j in range(len(b) - 1, -1, -1):
            row[j] = max(below[j + 1] + near[j], below[j], row[j + 1])
    pairs: Pairs = {}
    i = j = 0
    while i < len(a) and j < len(b):
        if table[i][j] == table[i + 1][j + 1] + likeness[i][j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif table[i][j] == table[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _in_place(a: list[_Sketch], b: list[_Sketch]) -> bool:
    """True if only texts changed: the usual case, told without the table, which takes seconds for a session of a
    thousand messages.
    """
    if len(a) != len(b) or any(one.role != other.role or one.ids != other.ids for one, other in zip(a, b, strict=True)):
        return False
    texts = {one.text for one in a if one.text}
    return not any(other.text in texts and other.text != one.text for one, other in zip(a, b, strict=True))


def question_of(text: str) -> str:
    """The question in a user's text: its last paragraph that is not blank."""
    stripped = text.strip()
    cut = max((found.end() for found in _PARAGRAPH.finditer(stripped)), default=0)
    return stripped[cut:].strip()
