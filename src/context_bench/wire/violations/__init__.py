"""Changes to a request on its way that shortening its text does not explain (roles, tool calls, parameters, marks,
blocks, bytes), and changes to the reply on its way back.

A text that became shorter inside a tool result, a document or an earlier message is compression, and so is an earlier
turn that is gone as a whole. A field that is null says as much as none. A violation changes what the model is asked,
what the provider accepts, or what it bills. A request as it was sent is compared
with the one that arrived, or with several, and their bill. Nothing here does I/O.

| kind | what was done |
| --- | --- |
| `system_role_lost` | instructions arrive under another role, or not at all |
| `assistant_role_changed` | what the assistant said arrives as said by another |
| `role_changed` | any other change of role (a tool's result as the user's words) |
| `last_user_changed` | the question (last paragraph of the last user text) is another, or gone |
| `order_changed` | messages or tools arrive in another order |
| `orphan_tool_result` | a tool result without the call before it |
| `unanswered_tool_call` | a tool call without its result |
| `tool_arguments_changed` | another tool name or other arguments in a call of the history |
| `tool_added`, `tool_removed` | a tool more or less; one of another name is both |
| `tool_meaning_changed` | what a tool takes: parameters, types, required fields, enum values |
| `tool_annotation_changed` | only what a tool tells its reader: `description`, `title`, `$schema`, `default` …; not in the sum |
| `tool_choice_changed` | `tool_choice` means something else |
| `params_changed` | model, stream flag or any other field of the body |
| `response_format_changed` | the form of answer asked for |
| `cache_control_lost`, `_moved`, `_added`, `_ttl_changed` | marks of prompt caching |
| `thinking_changed` | signed thinking is not byte-equal, or is gone from the turn in progress; the `thinking` setting |
| `reasoning_item_lost` | a reasoning item is gone or altered while what it led to is still there |
| `server_tool_changed` | calls and results of the provider's own tools |
| `media_lost`, `media_reencoded` | images, files, sound |
| `previous_response_id_changed` | the conversation kept by the provider is another |
| `beta_header_lost` | a beta feature or the API version that was asked for |
| `wire_changed` | it arrived on another API |
| `json_reserialised` | the same meaning in other bytes |
| `retry`, `duplicate` | one request sent on more than once, after a failure or without one |
| `silent_truncation` | the provider billed fewer tokens than it was sent |
| `after_done` | the reply's stream went on after its last event, which the provider's own did not |

A reply as the provider gave it is compared with the one that its client got (`compare_replies`), on one API or across
two: then only what both can say, and ids may be others. Faults that the client's reply shows by itself (`reply_faults`)
count where the provider's own had none of them. Where pieces were cut is no change.

| kind | what was done to the reply |
| --- | --- |
| `reply_text_changed` | the text is another, shorter, there twice, or gone |
| `reply_thinking_lost`, `reply_signature_lost` | the thinking, or what it is signed with, is another or gone |
| `reply_refusal_changed` | the words of a refusal |
| `reply_block_lost` | a block that only one API has (the provider's own tools, sound, further choices) is gone |
| `reply_unreadable` | what arrived is no reply of its API |
| `finish_reason_changed`, `finish_reason_missing` | why the model stopped |
| `tool_call_lost`, `tool_call_added` | a call less or more than the model's |
| `tool_call_name_changed`, `tool_call_arguments_changed` | another tool; arguments of another value, or none |
| `tool_call_arguments_unreadable` | arguments that are no JSON object |
| `tool_call_id_changed`, `tool_call_id_wrong` | another id on the same API; none, or that of another call |
| `tool_calls_reordered` | the calls arrive in another order |
| `reply_usage_lost`, `reply_usage_changed` | tokens that the provider told: input, output, cache read and write, reasoning |
| `error_changed` | an error of another status, type or form, or without the provider's words |
| `error_hidden`, `error_added` | an error shown as a reply; a reply shown as an error |
| `header_lost`, `header_changed` | `retry-after`, rate limits, request id; `content-type` of a stream |
| `stream_lost` | the stream that was asked for arrives as one body |
| `stream_broken` | the reply breaks off before its end, which the provider's own did not |
| `break_hidden` | the provider's reply broke off, and the client's is shown as finished |
| `stream_order_wrong` | events out of order, unnamed, with several ids, not JSON, or against the whole at the end |
| `stream_index_wrong` | an index of two blocks or calls, none, or not counted from 0 |
| `stream_delta_after_stop` | a piece of a block, or of the reply, after its end |
| `stream_end_missing` | no `[DONE]` |
| `stream_characters_split` | a character cut in two between pieces, or bytes that are no text |
| `answered_without_provider` | an answer for which the provider was not asked: a cache in between; not in the sum |

`tool_schema_changed`, once a kind, stands in figures by name (`compress wire`, gates) for the sum of `tool_added`,
`tool_removed` and `tool_meaning_changed`.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.keys import canonical_json, hash_text, load_json, without_nulls
from context_bench.wire.apis.shared import as_str
from context_bench.wire.conversation import tool_calls_of
from context_bench.wire.request import (
    SYSTEM_ROLES,
    Pairs,
    Part,
    WireMessage,
    WireRequest,
    align,
    by_lower_name,
    question_of,
    stated,
)
from context_bench.wire.violations.parts import (
    KINDS,
    NOTES,
    Violation,
    argument_changes,
    broken_tool_pairs,
    by_kind,
    count_tools,
    last_user,
    media_changes,
    names_of,
    phrase,
    reasoning_losses,
    schema_changes,
    server_tool_changes,
    thinking_changes,
    tools_of,
    total,
)
from context_bench.wire.violations.replies import REPLY_KINDS, closest_reply, compare_replies, reply_faults

__all__ = [
    "KINDS",
    "NOTES",
    "REPLY_KINDS",
    "Violation",
    "by_kind",
    "closest",
    "closest_reply",
    "compare_replies",
    "compare_requests",
    "count_tools",
    "stream_past_end",
    "names_of",
    "phrase",
    "repeated_requests",
    "reply_faults",
    "reserialised",
    "silent_truncation",
    "tools_of",
    "total",
    "wire_violations",
]


def mark_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Changes of cache marks: the places where the prefix may be cached, and the times. A mark stands on a message's
    last part or on one counted from its start.
    """
    back = {j: i for i, j in pairs.items()}
    before = dict(_marks_of(sent, {i: i for i in range(len(sent.messages))}))
    after = dict(_marks_of(received, back))
    for place in before.keys() & after.keys():
        if before[place] != after[place]:
            yield Violation(
                "cache_control_ttl_changed", f"{_where(place)}: {before[place]} → {after[place]}", _index(place)
            )
    lost, added = sorted(before.keys() - after.keys(), key=str), sorted(after.keys() - before.keys(), key=str)
    for place, other in zip(lost, added, strict=False):
        yield Violation("cache_control_moved", f"from {_where(place)} to {_where(other)}", _index(place))
    for place in lost[len(added) :]:
        yield Violation("cache_control_lost", _where(place), _index(place))
    for place in added[len(lost) :]:
        yield Violation("cache_control_added", _where(place), _index(place))


_Place = tuple[str, Any, Any]


def _marks_of(request: WireRequest, back: Pairs) -> Iterator[tuple[_Place, str]]:
    if request.params.get("cache_control"):
        yield ("request", 0, 0), _lifetime(request.params["cache_control"])
    for tool in request.tools:
        if isinstance(tool, Mapping) and tool.get("cache_control"):
            yield ("tool", str(tool.get("name") or tool.get("type")), 0), _lifetime(tool["cache_control"])
    for j, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if part.cache_control:
                step = "last" if place == len(message.parts) - 1 else place
                yield (
                    ("message", back[j], step) if j in back else ("new message", j, step),
                    _lifetime(part.cache_control),
                )


def _lifetime(mark: Any) -> str:
    ttl = mark.get("ttl") if isinstance(mark, Mapping) else None
    return str(ttl or "5m")  # what a mark without one means


def _where(place: _Place) -> str:
    what, which, step = place
    if what == "tool":
        return f"tool {which}"
    if what == "request":
        return "the whole request"
    return f"{what} {which + 1}, {'its last part' if step == 'last' else f'part {step + 1}'}"


def _index(place: _Place) -> int | None:
    return place[1] if place[0] == "message" else None


def role_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that arrive as said by another, and instructions that are gone or stand elsewhere."""
    for i, j in pairs.items():
        before, after = sent.messages[i].role, received.messages[j].role
        if before == after or (before in SYSTEM_ROLES and after in SYSTEM_ROLES):
            continue
        kind = (
            "system_role_lost"
            if before in SYSTEM_ROLES
            else "assistant_role_changed"
            if before == "assistant"
            else "role_changed"
        )
        yield Violation(kind, f"message {i + 1}: {before} → {after}", i)
    kept = [message for message in received.messages if message.role in SYSTEM_ROLES]
    for i, message in enumerate(sent.messages):
        if message.role in SYSTEM_ROLES and i not in pairs and message.text and not _stands_in(kept, message.text):
            elsewhere = next((m.role for m in received.messages if message.text in m.text), None)
            if elsewhere:
                yield Violation(
                    "system_role_lost", f"message {i + 1}: {message.role} → part of a message of {elsewhere}", i
                )
            elif not kept:
                yield Violation("system_role_lost", f"message {i + 1}: the instructions are gone", i)


def _stands_in(messages: Iterable[WireMessage], text: str) -> bool:
    return any(text in message.text for message in messages)


def order_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that arrived in the place of others."""
    taken = set(pairs.values())
    left = {j: message for j, message in enumerate(received.messages) if j not in taken}
    for i, message in enumerate(sent.messages):
        if i in pairs and _same(message, received.messages[pairs[i]]):
            continue
        moved = next((j for j, other in left.items() if _same(message, other)), None)
        if moved is None and i in pairs:  # two messages of one role in each other's place are paired by their places
            swapped = (j for k, j in pairs.items() if k != i and not _same(sent.messages[k], received.messages[j]))
            moved = next((j for j in swapped if _same(message, received.messages[j])), None)
        if moved is not None:
            left.pop(moved, None)
            yield Violation("order_changed", f"message {i + 1} arrived as message {moved + 1}", i)


def _same(a: WireMessage, b: WireMessage) -> bool:
    if a.role != b.role or a.tool_call_id != b.tool_call_id:
        return False
    said = bool(a.text or a.tool_calls)
    return said and a.text == b.text and [c.get("id") for c in a.tool_calls] == [c.get("id") for c in b.tool_calls]


def question_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """The last user message: still there, still the last, still ending in the question."""
    last = last_user(sent)
    if last is None or not (question := question_of(sent.messages[last].text)):
        return
    arrived = received.messages[pairs[last]] if last in pairs else None
    if arrived is None:
        if not any(message.text.rstrip().endswith(question) for message in received.messages if message.role == "user"):
            yield Violation("last_user_changed", "the last user message is gone", last)
    elif not arrived.text.rstrip().endswith(question):
        yield Violation("last_user_changed", "the question is not the one that was asked", last)
    elif (
        (ends := last_user(received)) is not None
        and ends > pairs[last]
        and received.messages[ends].role == sent.messages[last].role
    ):
        yield Violation("last_user_changed", "another user message stands behind the last one", last)


#: Parameters that have a kind of their own.
_TOLD_APART = frozenset(
    {
        "tool_choice",
        "response_format",
        "text",
        "output_format",
        "output_config",
        "thinking",
        "previous_response_id",
        "cache_control",
    }
)


def parameter_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Settings that are added, gone or mean something else."""
    a, b = stated(sent.params), stated(received.params)
    if _choice(a, sent) != _choice(b, received):
        yield Violation("tool_choice_changed", _change("tool_choice", a, b))
    for name in ("response_format", "output_format", "output_config", "text"):
        if canonical_json(a.get(name)) != canonical_json(b.get(name)):
            yield Violation("response_format_changed", _change(name, a, b))
    if canonical_json(a.get("thinking")) != canonical_json(b.get("thinking")):
        yield Violation("thinking_changed", _change("thinking", a, b))
    if a.get("previous_response_id") != b.get("previous_response_id"):
        yield Violation("previous_response_id_changed", _change("previous_response_id", a, b))
    if sent.model != received.model:
        yield Violation("params_changed", "another model")
    if sent.stream != received.stream:
        yield Violation("params_changed", f"stream {sent.stream} → {received.stream}")
    for name in sorted((a.keys() | b.keys()) - _TOLD_APART):
        if name not in a or name not in b or canonical_json(a[name]) != canonical_json(b[name]):
            yield Violation("params_changed", _change(name, a, b))


def _change(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    return f"{name} {'was added' if name not in a else 'is gone' if name not in b else 'has another value'}"


def _choice(params: Mapping[str, Any], request: WireRequest) -> str:
    """Effective `tool_choice`: left out, it is `auto` where there are tools and `none` where there are none."""
    given = params.get("tool_choice")
    if given is None:
        given = "auto" if request.tools else "none"
    if isinstance(given, Mapping) and given.keys() == {"type"}:
        given = given["type"]
    return canonical_json(given)


def header_changes(sent: Mapping[str, str], received: Mapping[str, str]) -> Iterator[Violation]:
    """Beta features and API versions that were asked for and did not arrive."""
    before, after = by_lower_name(sent.items()), by_lower_name(received.items())
    for name in ("anthropic-beta", "openai-beta"):
        lost = sorted(_items(before.get(name)) - _items(after.get(name)))
        if lost:
            yield Violation("beta_header_lost", f"{name}: {', '.join(lost)}")
    if "anthropic-version" in before and before["anthropic-version"] != after.get("anthropic-version"):
        yield Violation("beta_header_lost", "anthropic-version is another or gone")


def _items(value: str | None) -> set[str]:
    return {item.strip() for item in (value or "").split(",") if item.strip()}


def wire_violations(sent: Sequence[Mapping[str, Any]], received: Sequence[Mapping[str, Any]]) -> list[Violation]:
    """Violations in a list of OpenAI chat messages, apart from shortening texts. `[]`: nothing."""
    return compare_requests(
        WireRequest("openai-chat", None, _read(sent)), WireRequest("openai-chat", None, _read(received))
    )


def compare_requests(
    sent: WireRequest,
    received: WireRequest,
    *,
    sent_headers: Mapping[str, str] | None = None,
    received_headers: Mapping[str, str] | None = None,
    sent_raw: bytes | None = None,
    received_raw: bytes | None = None,
) -> list[Violation]:
    """Violations of a request, apart from shortening texts. Headers and raw bodies are compared where both sides are
    given.
    """
    pairs = align(sent.messages, received.messages)
    found = [
        *role_changes(sent, received, pairs),
        *order_changes(sent, received, pairs),
        *question_changes(sent, received, pairs),
    ]
    found += [*broken_tool_pairs(sent, received), *argument_changes(sent, received, pairs)]
    found += [*thinking_changes(sent, received, pairs), *reasoning_losses(sent, received, pairs)]
    found += [
        *server_tool_changes(sent, received, pairs),
        *media_changes(sent, received),
        *mark_changes(sent, received, pairs),
    ]
    if sent.wire != received.wire:
        found.append(Violation("wire_changed", f"{sent.wire} → {received.wire}"))
    else:
        found += [*schema_changes(sent.tools, received.tools), *parameter_changes(sent, received)]
    if sent_headers is not None and received_headers is not None:
        found += header_changes(sent_headers, received_headers)
    if sent_raw is not None and received_raw is not None and reserialised(sent_raw, received_raw):
        found.append(
            Violation("json_reserialised", f"{len(sent_raw)} bytes became {len(received_raw)}, the meaning is the same")
        )
    return found


def reserialised(sent: bytes, received: bytes) -> bool:
    """True if two bodies say the same and are not the same bytes; a null field says as much as none."""
    if sent == received:
        return False
    try:
        a, b = load_json(sent), load_json(received)
    except ValueError:
        return False
    if canonical_json(a) == canonical_json(b):
        return True
    return (b"null" in sent or b"null" in received) and canonical_json(without_nulls(a)) == canonical_json(
        without_nulls(b)
    )


def _read(messages: Sequence[Mapping[str, Any]]) -> list[WireMessage]:
    return [
        WireMessage(str(raw.get("role") or "unknown"), _parts(raw), tool_calls_of(raw), as_str(raw.get("tool_call_id")))
        for raw in messages
    ]


def _parts(raw: Mapping[str, Any]) -> list[Part]:
    content, mark = raw.get("content"), raw.get("cache_control")
    if isinstance(content, str):
        return [Part("text", content, None, mark)]
    found = []
    for item in content if isinstance(content, list) else []:
        held: Mapping[str, Any] = item if isinstance(item, Mapping) else {"type": "text", "text": item}
        text = held.get("thinking", held.get("text"))
        kind = "reasoning" if held.get("type") == "thinking" else str(held.get("type") or "unknown")
        found.append(Part(kind, text if isinstance(text, str) else None, item, held.get("cache_control")))
    return found


def closest(sent: WireRequest, received: Sequence[WireRequest]) -> int:
    """Place of the request sent among those that arrived, some a proxy's own: most of its texts, then most messages,
    then the last.
    """
    texts = {message.text for message in sent.messages}
    likeness = [(sum(message.text in texts for message in one.messages), len(one.messages)) for one in received]
    return max(range(len(received)), key=lambda place: (*likeness[place], place))


def repeated_requests(received: Sequence[tuple[bytes, int | None]]) -> list[Violation]:
    """Repeats of one request of the client: (body, the provider's status) in order of arrival.

    `retry` after a failed attempt (429, 5xx, no answer), else `duplicate`. Bodies that mean something else are calls of
    the proxy's own.
    """
    found: list[Violation] = []
    earlier: dict[str, int | None] = {}
    for place, (body, status) in enumerate(received):
        key = _meaning(body)
        if key in earlier:
            before = earlier[key]
            failed = before is None or before == 429 or before >= 500
            kind, why = (
                ("retry", f"after status {before}")
                if failed
                else ("duplicate", f"although it had been answered with {before}")
            )
            found.append(Violation(kind, f"sent again {why}", place))
        earlier[key] = status
    return found


def _meaning(body: bytes) -> str:
    try:
        return canonical_json(without_nulls(load_json(body)))
    except ValueError:
        return hash_text(body.decode("utf-8", "replace"))


_TRUNCATED_BELOW = 0.8  # decision 17


def silent_truncation(billed: int | None, counted: int, *, exact: bool) -> Violation | None:
    """The violation if the provider billed clearly fewer prompt tokens than an exact count of what it was sent."""
    if not exact or billed is None or billed >= _TRUNCATED_BELOW * counted:
        return None
    return Violation("silent_truncation", f"{billed:,} prompt tokens were billed of {counted:,} that were sent")


def stream_past_end(client: Mapping[str, Any], provider: Mapping[str, Any]) -> Violation | None:
    """The violation if a stream went on after its end where the provider's own did not, by what two taps noted of the
    reply.
    """
    after = client.get("after_done")
    if not isinstance(after, Mapping) or provider.get("after_done"):
        return None
    return Violation("after_done", f"{after.get('events', 0):,} more events after the stream's last one")
