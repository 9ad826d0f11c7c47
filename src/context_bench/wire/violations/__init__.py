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
| `role_changed` | any other change of role (a tool's result as the user's words, the question quoted by another) |
| `last_user_changed` | the question (last paragraph of the last user text) is another, or gone |
| `order_changed` | messages, parts, calls, tools or instructions arrive in another place |
| `message_added` | a message that was not sent and stands for none that is gone; one, or a part of one, twice |
| `text_added` | words beside a text that is still there whole; not in the sum |
| `text_damaged` | a text in other characters, nothing left out: wrong encoding, escaped, written out as JSON |
| `part_lost` | a text of up to 300 characters, or of the instructions, is gone whole; its message is there |
| `field_changed` | a field beside the text: a name, detail, title, citations, the type of a file; on one API |
| `turn_lost` | a message of the turn in progress, or any on its way to another API, is gone; nothing stands for it |
| `orphan_tool_result` | a tool result without the call before it |
| `unanswered_tool_call` | a tool call without its result |
| `tool_error_lost` | a result that was marked as failed arrives as a good one |
| `tool_result_swapped` | a result arrives as the result of another call |
| `tool_arguments_changed` | another tool or other arguments in a call of the history; a call less or more |
| `tool_added`, `tool_removed` | a tool more or less; one of another name is both |
| `tool_meaning_changed` | what a tool takes: parameters, types, required fields, enum values |
| `tool_annotation_changed` | only what a tool tells its reader: `description`, `title`, `default` …; not in the sum |
| `tool_choice_changed` | `tool_choice` means something else |
| `params_changed` | model, stream flag or any other field of the body |
| `usage_not_asked` | a chat stream that is to tell no usage, for a client whose API always tells it |
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
| `forwarded_differently` | one request sent twice, in two runs of its session, arrives in other bytes the second time |
| `conversation_leaked`, `key_leaked` | lines that only another conversation sent; the key of another's client |

A reply as the provider gave it is compared with the one that its client got (`compare_replies`), on one API or across
two: then only what both can say, and ids may be others. Faults that the client's reply shows by itself (`reply_faults`)
count where the provider's own had none of them. Where pieces were cut is no change.

| kind | what was done to the reply |
| --- | --- |
| `reply_text_changed` | the text is another, shorter, there twice, or gone |
| `reply_thinking_lost`, `reply_signature_lost` | the thinking, or what it is signed with, is another or gone |
| `reply_refusal_changed` | the words of a refusal |
| `reply_block_lost` | a block that only one API has (the provider's own tools, sound, further choices) is gone |
| `reply_field_changed` | what one API has beside: citations, log probabilities, contents of its own blocks |
| `reply_unreadable` | what arrived is no reply of its API |
| `finish_reason_changed`, `finish_reason_missing` | why the model stopped |
| `tool_call_lost`, `tool_call_added` | a call less or more than the model's |
| `tool_call_name_changed`, `tool_call_arguments_changed` | another tool; arguments of another value, or none |
| `tool_call_arguments_unreadable` | arguments that are no JSON object |
| `tool_call_id_changed`, `tool_call_id_wrong` | another id on the same API; none, or that of another call |
| `tool_calls_reordered` | the calls arrive in another order |
| `reply_usage_lost`, `reply_usage_changed` | tokens that the provider told: input, output, cached, reasoning |
| `error_changed` | an error of another status, type or form, or without the provider's words |
| `error_hidden`, `error_added` | an error shown as a reply; a reply shown as an error |
| `retry_after_lost` | how long to wait after an error is another time, or gone |
| `header_lost`, `header_changed` | rate limits and request id (not in the sum); `content-type` of a stream |
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

Valid where it arrived (`lint_request`, rules and sources in `rules.toml`), from the request alone; between two taps
what was sent like that is not counted:

"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.keys import canonical_json, hash_text, load_json, without_nulls
from context_bench.wire.apis.shared import as_str, cost_stated as cost_stated
from context_bench.wire.conversation import tool_calls_of
from context_bench.wire.request import (
    SYSTEM_ROLES,
    Pairs,
    Part,
    WireMessage,
    WireRequest,
    align,
    altered,
    by_lower_name,
    question_of,
)
from context_bench.wire.violations.linter import RULES, Rule, family_of, lint_changes, lint_request, rule_for
from context_bench.wire.violations.parts import (
    COMPARED,
    NOTES,
    SUMS,
    Violation,
    argument_changes,
    broken_tool_pairs,
    count_tools,
    failures_lost,
    last_user,
    media_changes,
    phrase,
    reasoning_losses,
    server_tool_changes,
    thinking_changes,
    tools_of,
    total,
)
from context_bench.wire.violations.parts.texts import additions, field_changes, losses, order_within, text_changes
from context_bench.wire.violations.replies import (
    REPLAYED_KINDS,
    REPLY_KINDS,
    closest_reply,
    compare_replies,
    reply_faults,
)
from context_bench.wire.violations.settings import definition_changes, mark_changes, names_of

__all__ = [
    "KINDS",
    "NOTES",
    "REPLAYED_KINDS",
    "REPLY_KINDS",
    "RULES",
    "Rule",
    "Violation",
    "by_kind",
    "closest",
    "closest_reply",
    "compare_replies",
    "compare_requests",
    "cost_stated",
    "count_tools",
    "family_of",
    "lint_changes",
    "lint_request",
    "stream_past_end",
    "names_of",
    "phrase",
    "repeated_requests",
    "reply_faults",
    "reserialised",
    "rule_for",
    "silent_truncation",
    "tools_of",
    "total",
    "wire_violations",
]

__doc__ = "\n".join(  # the table of rules, as the file has them
    [
        (__doc__ or "").rstrip("\n"),
        "",
        "| kind | what is wrong |",
        "| --- | --- |",
        *dict.fromkeys(f"| `{rule.kind}` | {rule.severity}: {rule.says} |" for rule in RULES),
        "",
    ]
)

#: Every kind there is, in the order of the tables above.
KINDS: tuple[str, ...] = tuple(dict.fromkeys((*COMPARED, *(rule.kind for rule in RULES))))


def by_kind(counts: Mapping[str, int]) -> dict[str, int]:
    """Every kind and every name that stands for several, with how often it occurred, as gates and metrics name them."""
    found = {kind: counts.get(kind, 0) for kind in KINDS}
    return found | {name: sum(found[kind] for kind in kinds) for name, kinds in SUMS.items()}


def role_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that arrive as said by another, and instructions that are gone or stand elsewhere."""
    for i, j in pairs.items():
        before, after = sent.messages[i].role, received.messages[j].role
        if before == after or (before in SYSTEM_ROLES and after in SYSTEM_ROLES):
            continue
        if before in SYSTEM_ROLES and _put_in_place(sent, received, pairs, i):
            continue
        kind = (
            "system_role_lost"
            if before in SYSTEM_ROLES
            else "assistant_role_changed"
            if before == "assistant"
            else "role_changed"
        )
        yield Violation(kind, f"message {i + 1}: {before} → {after}", i)
    kept = [j for j, message in enumerate(received.messages) if message.role in SYSTEM_ROLES]
    back = {j: i for i, j in pairs.items()}
    others = {j for j in kept if j in back and sent.messages[back[j]].text == received.messages[j].text}
    for i, message in enumerate(sent.messages):
        if message.role not in SYSTEM_ROLES or i in pairs or not message.text:
            continue
        holders = [j for j in kept if message.text in received.messages[j].text]
        ahead, _ = _neighbours(sent, pairs, i)
        if holders and ahead is not None and holders[-1] < ahead:
            yield Violation("order_changed", f"message {i + 1}: instructions in mid-conversation moved to the head", i)
        if holders or _put_in_place(sent, received, pairs, i):
            continue
        elsewhere = next((m.role for m in received.messages if message.text in m.text), None)
        if elsewhere:
            yield Violation(
                "system_role_lost", f"message {i + 1}: {message.role} → part of a message of {elsewhere}", i
            )
        elif others == set(kept):  # else one that is left may hold them, shortened
            yield Violation("system_role_lost", f"message {i + 1}: the instructions are gone", i)


def _neighbours(sent: WireRequest, pairs: Pairs, i: int) -> tuple[int | None, int | None]:
    """Places at which the nearest messages before and behind a sent one arrived, instructions apart."""
    spoken = [k for k in pairs if sent.messages[k].role not in SYSTEM_ROLES]
    before, behind = [pairs[k] for k in spoken if k < i], [pairs[k] for k in spoken if k > i]
    return max(before, default=None), min(behind, default=None)


def _put_in_place(sent: WireRequest, received: WireRequest, pairs: Pairs, i: int) -> bool:
    """True if instructions in mid-conversation arrived in their place as the user's words, on the wire where most
    models take instructions at the head only: translated, or said to be the system's.
    """
    text = sent.messages[i].text
    before, behind = _neighbours(sent, pairs, i)
    if received.wire != "anthropic" or before is None or not text:
        return False
    last = len(received.messages) if behind is None else behind + 1
    holders = [one.text for one in received.messages[before:last] if one.role == "user" and text in one.text]
    return bool(holders) and (sent.wire != received.wire or "<system" in holders[0])


def order_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that arrived in the place of others."""
    taken = set(pairs.values())
    left = {j: message for j, message in enumerate(received.messages) if j not in taken}
    others = altered(sent, received, pairs)  # a message in its place stands for no other
    for i, message in enumerate(sent.messages):
        if i in pairs and (i not in others or _same(message, received.messages[pairs[i]])):
            continue
        moved = next((j for j, other in left.items() if _same(message, other)), None)
        if moved is None and i in pairs:  # two messages of one role in each other's place are paired by their places
            swapped = (j for k, j in others.items() if k != i and not _same(sent.messages[k], received.messages[j]))
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
    """The last user message: still there, still the last, still ending in the question. Whole in the words of another,
    as a quotation too, the question is under another role, and not another one.
    """
    last = last_user(sent)
    if last is None or not (question := question_of(sent.messages[last].text)):
        return
    arrived = received.messages[pairs[last]] if last in pairs else None
    there = arrived is not None and arrived.text.rstrip().endswith(question)
    if not there and (said_by := _quoted_by(sent, received, question)) is not None:
        if arrived is None or arrived.role == "user":
            yield Violation("role_changed", f"message {last + 1}: user → inside a message of {said_by}", last)
    elif arrived is None:
        if not any(message.text.rstrip().endswith(question) for message in received.messages if message.role == "user"):
            yield Violation("last_user_changed", "the last user message is gone", last)
    elif not there:
        yield Violation("last_user_changed", "the question is not the one that was asked", last)
    elif (
        (ends := last_user(received)) is not None
        and ends > pairs[last]
        and received.messages[ends].role == sent.messages[last].role
    ):
        yield Violation("last_user_changed", "another user message stands behind the last one", last)


def _quoted_by(sent: WireRequest, received: WireRequest, question: str) -> str | None:
    """The role, another than the user's, of a new message that holds the question whole, plainly or as a text of
    JSON.
    """
    known = {message.text for message in sent.messages}
    forms = {question, canonical_json(question)[1:-1], json.dumps(question)[1:-1]}
    new = (one for one in received.messages if one.role != "user" and one.text not in known)
    return next((one.role for one in new if any(form in one.text for form in forms)), None)


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
    others = altered(sent, received, pairs)
    found += [*order_within(sent, received, others), *text_changes(sent, received, others)]
    found += [*field_changes(sent, received, others), *additions(sent, received, pairs), *losses(sent, received, pairs)]
    found += [*broken_tool_pairs(sent, received), *argument_changes(sent, received, pairs)]
    found += failures_lost(sent, received, others)
    found += [*thinking_changes(sent, received, others), *reasoning_losses(sent, received, pairs)]
    found += [
        *server_tool_changes(sent, received, pairs),
        *media_changes(sent, received),
        *mark_changes(sent, received, pairs),
    ]
    if sent.wire != received.wire:
        found.append(Violation("wire_changed", f"{sent.wire} → {received.wire}"))
    found += definition_changes(sent, received)
    if sent_headers is not None and received_headers is not None and sent.wire == received.wire:
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
    if len(received) < 2:
        return []
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
