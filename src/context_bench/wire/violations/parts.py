"""Kinds of violations, and the changes to blocks that are not a proxy's to touch.

Blocks: signed thinking, reasoning items, calls of the provider's own tools; images, files and sound, each a thing of
its own, however it is wrapped; tool calls, their results and arguments.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.keys import canonical_json, hash_text, load_json, without_nulls
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES, Pairs, Part, WireMessage, WireRequest

#: What a comparison of two requests finds, in the order of the table at the head of this package.
COMPARED: tuple[str, ...] = (
    "system_role_lost",
    "assistant_role_changed",
    "role_changed",
    "last_user_changed",
    "order_changed",
    "message_added",
    "text_added",
    "turn_lost",
    "orphan_tool_result",
    "unanswered_tool_call",
    "tool_error_lost",
    "tool_arguments_changed",
    "tool_added",
    "tool_removed",
    "tool_meaning_changed",
    "tool_annotation_changed",
    "tool_choice_changed",
    "params_changed",
    "response_format_changed",
    "cache_control_lost",
    "cache_control_moved",
    "cache_control_added",
    "cache_control_ttl_changed",
    "thinking_changed",
    "reasoning_item_lost",
    "server_tool_changed",
    "media_lost",
    "media_reencoded",
    "previous_response_id_changed",
    "beta_header_lost",
    "wire_changed",
    "json_reserialised",
    "retry",
    "duplicate",
    "silent_truncation",
    "after_done",
    "forwarded_differently",
    "conversation_leaked",
    "key_leaked",
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that was done to a request. `kind`: see this package's table; `detail`: a phrase for people without the
    request's texts.

    `index`: the place of the message, counted from 0 in the request as sent (for what only the received one has: in
    that one). `name`: the tool, where it is about one.
    """

    kind: str
    detail: str
    index: int | None = None
    name: str | None = None


#: Kinds that are named and not summed: other words for a tool's reader, which is what compressors of tools do, and
#: words beside a text that is still there; replies out of a cache of the proxy's own, and headers that tell of the
#: provider's account.
NOTES = frozenset({"tool_annotation_changed", "text_added", "answered_without_provider", "header_lost"})
#: A name that stands for several kinds, wherever figures stand beside each other by name: the kind of that name was
#: split.
SUMS: dict[str, tuple[str, ...]] = {"tool_schema_changed": ("tool_added", "tool_removed", "tool_meaning_changed")}


def total(counts: Mapping[str, int]) -> int:
    """Number of violations: all kinds but those of `NOTES`."""
    return sum(times for kind, times in counts.items() if kind not in NOTES)


def tools_of(found: Iterable[Violation]) -> dict[str, list[str]]:
    """The tools that violations are about, by kind, each once."""
    tools: dict[str, list[str]] = {}
    for one in found:
        if one.name is not None and one.name not in tools.setdefault(one.kind, []):
            tools[one.kind].append(one.name)
    return tools


_MOST_TOOLS = 100  # of one kind: names come from outside


def count_tools(counts: dict[str, dict[str, int]], tools: Mapping[str, Iterable[str]]) -> None:
    """Count the tools of one more request in: in how many requests each was touched, by kind."""
    for kind, names in tools.items():
        known = counts.setdefault(kind, {})
        for name in names:
            if name in known or len(known) < _MOST_TOOLS:
                known[name] = known.get(name, 0) + 1


def phrase(kind: str, tools: Collection[str] = (), most: int = 3) -> str:
    """A kind and the first of the tools that it is about: `tool_added headroom_retrieve`."""
    if not tools:
        return kind
    more = len(tools) - most
    return f"{kind} {', '.join(list(tools)[:most])}{f' and {more:,} more' if more > 0 else ''}"


_SERVER_TOOLS = re.compile(
    r"server_tool_use|mcp_tool_use|mcp_tool_result|mcp_list_tools|mcp_approval_\w+|\w+_call|\w+_call_output|\w+_tool_result(?:_error)?"
)
_OWN_ITEMS = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "tool_result"}
)
_THINKING = frozenset({"thinking", "redacted_thinking"})
_Wanted = Callable[[Part], bool]


def last_user(request: WireRequest) -> int | None:
    """Index of the last user message with a text."""
    return max(
        (i for i, message in enumerate(request.messages) if message.role == "user" and message.text.strip()),
        default=None,
    )


def raw_of(part: Part) -> Mapping[str, Any]:
    """The item of the body that a part was read from; empty where it was a plain text."""
    return part.raw if isinstance(part.raw, Mapping) else {}


def _kind(part: Part) -> str:
    return str(raw_of(part).get("type") or "")


def _blocks(message: WireMessage, wanted: _Wanted) -> list[str]:
    """The canonical form of a message's blocks of some sort, each once (one raw item may have given several parts),
    marks left out.
    """
    found: dict[int, str] = {}
    for part in message.parts:
        if wanted(part):
            found.setdefault(id(part.raw), _meaning(raw_of(part)))
    return list(found.values())


def _meaning(raw: Mapping[str, Any]) -> str:
    """A block without what says nothing: marks, null fields, and the empty content of a reasoning item that has none to
    show.
    """
    told = {key: value for key, value in without_nulls(raw).items() if key != "cache_control"}
    if told.get("type") == "reasoning" and told.get("content") == []:
        del told["content"]
    return canonical_json(told)


def _is_thinking(part: Part) -> bool:
    return _kind(part) in _THINKING


def _is_signed(part: Part) -> bool:
    return _kind(part) == "redacted_thinking" or (_kind(part) == "thinking" and bool(raw_of(part).get("signature")))


def thinking_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Signed thinking of a message that is still there: byte-equal; only that of finished turns may be left out."""
    turn = last_user(sent)
    if sent.wire != received.wire:
        yield from _thinking_across(sent, received, pairs)
        return
    for i, j in pairs.items():
        before, after = _blocks(sent.messages[i], _is_signed), _blocks(received.messages[j], _is_thinking)
        missing = [block for block in before if block not in after]
        altered = [block for block in after if block not in before and before]
        if missing and (altered or turn is None or i > turn):
            yield Violation(
                "thinking_changed",
                f"message {i + 1}: {'signed thinking was altered' if altered else 'its thinking is gone'}",
                i,
            )
        elif not missing and [block for block in after if block in before] != before:
            yield Violation("thinking_changed", f"message {i + 1}: signed thinking arrived in another order", i)


def _thinking_across(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Thinking on OpenAI's chat wire is text (`reasoning_content`); the other wires take back only what they signed."""
    turn = last_user(sent)
    if received.wire != "openai-chat":
        return
    there = {part.text for message in received.messages for part in message.parts if part.text}
    for i in pairs:
        thoughts = [part.text for part in sent.messages[i].parts if part.kind == "reasoning" and part.text]
        if (turn is None or i > turn) and any(not any(text in one for one in there) for text in thoughts):
            yield Violation("thinking_changed", f"message {i + 1}: its thinking is gone", i)


def reasoning_losses(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Reasoning items of the Responses wire: each goes with the item behind it."""
    for i in _lost(sent, received, pairs, _is_reasoning) if sent.wire == received.wire else ():
        yield Violation("reasoning_item_lost", f"item {i + 1} is gone or altered, what it led to is still there", i)


def _lost(sent: WireRequest, received: WireRequest, pairs: Pairs, wanted: _Wanted) -> Iterator[int]:
    """Messages whose blocks of some sort arrived nowhere, though the model's words or actions that followed from them
    did.
    """
    there = {block for message in received.messages for block in _blocks(message, wanted)}
    for i, message in enumerate(sent.messages):
        missing = [block for block in _blocks(message, wanted) if block not in there]
        if not missing:
            continue
        led_to = next((k for k in range(i + 1, len(sent.messages)) if not _blocks(sent.messages[k], _is_item)), None)
        if led_to is not None and led_to in pairs and sent.messages[led_to].role == "assistant":
            yield from [i] * len(missing)


def _is_reasoning(part: Part) -> bool:
    return _kind(part) == "reasoning"


def server_tool_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls and results of the provider's own tools that are not as they were; another provider has no use for them."""
    if sent.wire != received.wire:
        return
    for i, j in pairs.items():
        before, after = _blocks(sent.messages[i], _is_server_tool), _blocks(received.messages[j], _is_server_tool)
        if before and before != after:
            yield Violation(
                "server_tool_changed",
                f"message {i + 1}: {len(before)} blocks of the provider's tools are not as they were",
                i,
            )
    for i in _lost(sent, received, pairs, _is_server_tool):
        if i not in pairs:
            yield Violation(
                "server_tool_changed", f"item {i + 1} of the provider's tools is gone, what it led to is still there", i
            )


def _is_item(part: Part) -> bool:
    return _is_reasoning(part) or _is_server_tool(part)


def _is_server_tool(part: Part) -> bool:
    return _kind(part) not in _OWN_ITEMS and _SERVER_TOOLS.fullmatch(_kind(part)) is not None


_MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "file",
        "input_file",
        "document",
        "audio",
        "input_audio",
        "video",
        "input_video",
    }
)


def media_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Images, files and sound, wherever they stand: each is a thing of its own."""
    left = Counter(content for _, content in _media_of(received))
    missing: list[int] = []
    for i, content in _media_of(sent):
        if left[content]:
            left[content] -= 1
        else:
            missing.append(i)
    others = left.total()
    for place, i in enumerate(missing):
        kind, what = ("media_reencoded", "holds other bytes") if place < others else ("media_lost", "is gone")
        yield Violation(kind, f"message {i + 1}: an image, file or recording {what}", i)


def _media_of(request: WireRequest) -> Iterator[tuple[int, str]]:
    for i, message in enumerate(request.messages):
        for part in message.parts:
            if part.text is None and part.kind in _MEDIA:
                yield i, _content(raw_of(part))


def _content(raw: Mapping[str, Any]) -> str:
    """The identity of a medium: its bytes if they are in the request, else its address; how they are wrapped does not
    count.
    """
    for value in _strings(raw):
        data = value.partition(",")[2] if value.startswith("data:") else value
        if len(data) >= 16 and not value.startswith(("http:", "https:")):
            try:
                return hash_text(base64.b64decode(data, validate=True).hex())
            except (binascii.Error, ValueError):
                continue
    return canonical_json(sorted(value for value in _strings(raw) if value != "ephemeral"))


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value, longest first."""
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            stack += [
                inner
                for key, inner in item.items()
                if key not in ("type", "cache_control", "detail", "media_type", "title")
            ]
        elif isinstance(item, list):
            stack += item
    return iter(sorted(found, key=len, reverse=True))


def broken_tool_pairs(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Calls and results that belonged together and no longer do."""
    orphans_before = Counter(ident for ident, _ in orphan_results(sent))
    for ident, j in orphan_results(received):
        if orphans_before[ident]:
            orphans_before[ident] -= 1
        else:
            yield Violation("orphan_tool_result", f"message {j + 1} answers a call that is not there", j)
    open_before = Counter(ident for ident, _ in unanswered_calls(sent))
    for ident, j in unanswered_calls(received):
        if open_before[ident]:
            open_before[ident] -= 1
        else:
            yield Violation("unanswered_tool_call", f"the call in message {j + 1} has no result", j)


def orphan_results(request: WireRequest) -> Iterator[tuple[str, int]]:
    """Results of tools without the call before them: (id of the call, place of the message)."""
    called: set[str] = set()
    for j, message in enumerate(request.messages):
        if message.role in RESULT_ROLES and str(message.tool_call_id) not in called:
            yield str(message.tool_call_id), j
        called |= {str(call.get("id")) for call in message.tool_calls}
        if message.tool_calls and message.tool_calls[0].get("id") is None:  # legacy: a function is answered by its name
            called.add(str(message.tool_calls[0].get("name")))


def unanswered_calls(request: WireRequest) -> Iterator[tuple[str, int]]:
    """Calls that no result answers: (id, or name where there is none; place of the message)."""
    answered = {str(message.tool_call_id) for message in request.messages if message.tool_call_id}
    for j, message in enumerate(request.messages):
        for call in message.tool_calls:
            name = call.get("id") if call.get("id") is not None else call.get("name")
            if str(name) not in answered:
                yield str(name), j


def argument_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls of the history that are gone, name another tool or have other arguments."""
    elsewhere = {str(call["id"]): call for one in received.messages for call in one.tool_calls if call.get("id")}
    for i, j in pairs.items():
        arrived = received.messages[j].tool_calls
        by_id = {str(call.get("id")): call for call in arrived}
        for place, call in enumerate(sent.messages[i].tool_calls):
            other = by_id.get(str(call.get("id"))) or (
                arrived[place]
                if len(arrived) == len(sent.messages[i].tool_calls)
                else elsewhere.get(str(call.get("id")))
            )
            if other is None:
                if arrived or received.messages[j].role == "assistant":
                    yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} is gone", i)
            elif call.get("name") != other.get("name"):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} names another tool", i)
            elif argument_value(call.get("arguments")) != argument_value(other.get("arguments")):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} has other arguments", i)


def argument_value(arguments: Any) -> str:
    """The arguments of a call by what they say, whatever the order of keys and the spaces between."""
    if isinstance(arguments, str):
        try:
            return canonical_json(load_json(arguments)) if arguments.strip() else "{}"
        except ValueError:
            return arguments
    return canonical_json({} if arguments is None else arguments)


def additions(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Additions to what was sent: messages, and words beside a text that is still there whole.

    A new message is no addition where messages are gone: it stands for them (a summary). One that repeats what was sent
    once is.
    """
    taken = set(pairs.values())
    texts = [message.text for message in sent.messages]
    often, gone = Counter(texts), len(pairs) < len(sent.messages)
    given: Counter[str] = Counter(received.messages[j].text for j in taken)
    for j, message in enumerate(received.messages):
        text = message.text
        if j in taken or not text.strip() or message.role in RESULT_ROLES:
            continue
        given[text] += 1
        again = often[text] > 0 and given[text] > often[text]
        if again or (text not in often and not gone and not _made_of(text, texts)):
            yield Violation("message_added", f"message {j + 1} {'repeats another' if again else 'was not sent'}", j)
    for i, j in pairs.items():
        before, after = texts[i].strip(), received.messages[j].text.strip()
        if sent.messages[i].failed and not received.messages[j].failed:
            continue  # a word for the flag
        if len(after) > len(before) > 0 and before in after and not _made_of(after.replace(before, "", 1), texts):
            yield Violation("text_added", f"message {i + 1} holds more than was sent", i)


def _made_of(text: str, texts: Sequence[str]) -> bool:
    """True if a text is nothing but pieces of others, such as messages that were joined, and tags around them."""
    left = [line for line in text.splitlines() if line.strip() and not any(line.strip() in one for one in texts)]
    rest = "\n".join(left)
    for one in sorted((one for one in texts if one.strip()), key=len, reverse=True):
        rest = rest.replace(one, "")
    return re.search(r"\w", _TAG.sub("", rest)) is None


_TAG = re.compile(r"</?[\w-]{1,40}>")


def losses(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that are gone as a whole where that is no compression: what the turn in progress is made of, and, across
    wires, any (who only translates leaves nothing out).
    """
    last = last_user(sent)
    there = "\n".join(message.text for message in received.messages)
    kept = {str(one.tool_call_id) for one in received.messages if one.tool_call_id}
    kept |= {str(call.get("id")) for one in received.messages for call in one.tool_calls}
    for i, message in enumerate(sent.messages):
        if i in pairs or message.role in SYSTEM_ROLES or (message.text in there and message.text.strip()):
            continue
        idents = {str(call.get("id")) for call in message.tool_calls} | {str(message.tool_call_id)}
        said = bool(message.tool_calls or message.tool_call_id or message.text.strip())
        if not said or idents & kept:
            continue
        if last is not None and i > last:
            yield Violation("turn_lost", f"message {i + 1}, of the turn in progress, is gone", i)
        elif sent.wire != received.wire and not _summed_up(sent, received):
            yield Violation("turn_lost", f"message {i + 1} is gone, and nothing stands for it", i)


def _summed_up(sent: WireRequest, received: WireRequest) -> bool:
    """True if the words of somebody arrived that were not sent and may stand for what is gone."""
    texts = {message.text.strip() for message in sent.messages}
    spoken = (message.text.strip() for message in received.messages if message.role not in SYSTEM_ROLES)
    return any(text and text not in texts for text in spoken)


_FAILED = re.compile(r"error|fail|exception|denied|traceback", re.IGNORECASE)


def failures_lost(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Results that the client marked as failed and that arrive as good ones; where the wire has no such flag, a word in
    the text says it.
    """
    for i, j in pairs.items():
        arrived = received.messages[j]
        hidden = sent.messages[i].failed and arrived.role in RESULT_ROLES and not arrived.failed
        if hidden and (received.wire == "anthropic" or not _FAILED.search(arrived.text)):
            yield Violation("tool_error_lost", f"message {i + 1}: a failed result arrives as a good one", i)
