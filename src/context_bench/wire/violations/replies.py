"""Changes to a reply on its way back: at the front as a client got it, at the back as the provider gave it.

The two may have come over different APIs; then only what both can say is compared, and ids may be others. What the
provider did itself is nobody's change. Pieces may be cut in other places, headers be spelt in other cases. Nothing here
does I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.wire.apis.shared import Fault, Reply, arguments_value
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.parts import Violation, argument_value

#: Every kind of change to a reply, in the order of the table at the head of this package.
REPLY_KINDS: tuple[str, ...] = (
    "reply_text_changed",
    "reply_thinking_lost",
    "reply_signature_lost",
    "reply_refusal_changed",
    "reply_block_lost",
    "reply_field_changed",
    "reply_unreadable",
    "finish_reason_changed",
    "finish_reason_missing",
    "tool_call_lost",
    "tool_call_added",
    "tool_call_name_changed",
    "tool_call_arguments_changed",
    "tool_call_arguments_unreadable",
    "tool_call_id_changed",
    "tool_call_id_wrong",
    "tool_calls_reordered",
    "reply_usage_lost",
    "reply_usage_changed",
    "error_changed",
    "error_hidden",
    "error_added",
    "retry_after_lost",
    "header_lost",
    "header_changed",
    "stream_lost",
    "stream_broken",
    "break_hidden",
    "stream_order_wrong",
    "stream_index_wrong",
    "stream_delta_after_stop",
    "stream_end_missing",
    "stream_characters_split",
    "answered_without_provider",
)

#: Those that show in what a replay keeps of replies: their content and the form of their streams, neither headers nor
#: failures.
REPLAYED_KINDS = tuple(
    kind
    for kind in REPLY_KINDS
    if kind.startswith(("reply_text", "reply_usage", "finish_", "tool_call", "stream_"))
    and kind not in ("stream_lost", "stream_broken")
)

#: Kinds of violations by the codes of faults in a reply's form.
_FORMS = {
    "cut": "stream_broken",
    "json": "stream_order_wrong",
    "order": "stream_order_wrong",
    "event_name": "stream_order_wrong",
    "sequence": "stream_order_wrong",
    "ids": "stream_order_wrong",
    "final": "stream_order_wrong",
    "index": "stream_index_wrong",
    "after_stop": "stream_delta_after_stop",
    "end": "stream_end_missing",
    "characters": "stream_characters_split",
    "finish": "finish_reason_missing",
    "arguments": "tool_call_arguments_unreadable",
    "call_id": "tool_call_id_wrong",
    "call_name": "tool_call_name_changed",
    "body": "reply_unreadable",
    "unread": "reply_unreadable",
    "error_form": "error_changed",
    "type": "header_changed",
    "field": "reply_field_changed",
    "usage": "reply_usage_changed",
}
#: Faults that a faithful gateway between two APIs hands on: what the provider said, not how it said it.
_CARRIED = frozenset({"cut", "characters", "finish", "arguments", "call_name", "error_form"})
#: What only one of two APIs has an event, a number or a word for, and the other need not hand on.
_WORDS = frozenset({"stop", "length", "tool_calls", "content_filter"})
_BLOCKS = frozenset({"text", "thinking", "tool_use", "message", "function_call", "custom_tool_call", "reasoning"})


def reply_faults(front: Reply) -> list[Violation]:
    """Faults that one reply shows by itself, in its stream's grammar or its content."""
    return [_as_violation(fault) for fault in _faults(front)]


def compare_replies(front: Reply, back: Reply, *, asked: WireRequest | None = None) -> list[Violation]:
    """Changes to the provider's reply `back` in what the client got, `front` (both of `wire.apis.read_reply`).

    `asked`: the client's request, by which its stream had to tell the usage or not; without it, a chat stream without
    usage passes. A reply that its reader went away from is compared as far as it came.
    """
    if front.left and not front.complete:
        return []
    found = [*_error_changes(front, back), *_header_changes(front, back)]
    if _failed(front) or _failed(back):
        return found
    found += _form_changes(front, back, asked)
    whole = front.complete and (back.complete or back.left)
    if back.left and not back.complete:  # nobody knows what more would have come
        return found
    if not whole:
        return found + _beginning_changes(front, back)
    found += [*_text_changes(front, back), *_thinking_changes(front, back), *_finish_changes(front, back)]
    found += [*_call_changes(front, back), *_block_changes(front, back)]
    return [*found, *_usage_changes(front, back, asked)]


def _as_violation(fault: Fault) -> Violation:
    return Violation(_FORMS[fault.code], fault.detail)


# One reply alone

_LATER = ("queued", "in_progress")  # of a response that is made in the background


def _faults(reply: Reply) -> Iterator[Fault]:
    if reply.left and not reply.complete:
        return
    yield from (fault for fault in reply.faults if not reply.left or fault.code != "end")
    if reply.error is not None or (reply.status or 200) >= 400:
        return
    if not reply.complete:
        if not reply.faults or reply.streamed:
            yield Fault("cut", f"the {'stream' if reply.streamed else 'reply'} breaks off before its end")
        return
    if reply.finish_reason is None and reply.wire in _UNSAID and reply.stop not in _LATER:
        yield Fault("finish", "a finished reply without a finish reason")
    yield from _call_faults(reply)


def _call_faults(reply: Reply) -> Iterator[Fault]:
    ids = [call.get("id") for call in reply.tool_calls]
    for place, call in enumerate(reply.tool_calls):
        where = f"tool call {place + 1}"
        if not isinstance(call.get("id"), str) or not call["id"]:
            yield Fault("call_id", f"{where} has no id")
        elif ids.index(call["id"]) < place:
            yield Fault("call_id", f"{where} has the id of another")
        if not isinstance(call.get("name"), str) or not call["name"]:
            yield Fault("call_name", f"{where} has no name")
        value = arguments_value(call.get("arguments"))
        if (not isinstance(value, Mapping) or value.keys() == {"_raw"}) and not _takes_text(reply, place):
            yield Fault("arguments", f"{where}: its arguments are no JSON object")


def _takes_text(reply: Reply, place: int) -> bool:
    """A call of a custom tool takes any text."""
    calls = [kind for kind in reply.blocks if kind in ("function_call", "custom_tool_call")]
    return place < len(calls) and calls[place] == "custom_tool_call"


def _form_changes(front: Reply, back: Reply, asked: WireRequest | None) -> list[Violation]:
    """Faults in the form of the reply that the provider's own did not have."""
    same = front.wire == back.wire and front.streamed == back.streamed
    own = {fault.code for fault in _faults(back) if same or fault.code in _CARRIED}
    found = [_as_violation(fault) for fault in _faults(front) if fault.code not in own]
    if front.complete and not back.complete and not back.left:
        found.append(Violation("break_hidden", "the provider's reply breaks off, and the client's ends as finished"))
    if back.streamed and not front.streamed and asked is not None and asked.stream:
        found.append(Violation("stream_lost", "the provider's stream arrives as one body"))
    if front.after_done and not back.after_done:
        events = front.after_done.get("events", 0)
        found.append(Violation("after_done", f"{events:,} more events after the stream's last one"))
    return found


# Errors and headers


def _failed(reply: Reply) -> bool:
    return reply.error is not None or (reply.status or 200) >= 400


def _error_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    if back.left:
        return
    if _failed(back) and not _failed(front):
        told = f"status {back.status}" if (back.status or 200) >= 400 else "an error"
        if front.complete:
            yield Violation("error_hidden", f"the provider answered with {told}, and the client is shown a reply")
    elif _failed(front) and not _failed(back):
        told = f"status {front.status}" if (front.status or 200) >= 400 else "an error"
        if back.complete:
            yield Violation("error_added", f"the provider answered, and the client is shown {told}")
    elif _failed(front):
        yield from _other_error(front, back)


def _other_error(front: Reply, back: Reply) -> Iterator[Violation]:
    within = front.streamed and (front.status or 200) < 400  # a stream that had begun can only tell of it
    if front.status != back.status and (back.status or 200) >= 400 and not within and not _same_answer(front, back):
        yield Violation("error_changed", f"status {back.status} → {front.status}")
    ours, theirs = front.error or {}, back.error or {}
    forms = ({fault.code for fault in reply.faults} for reply in (front, back))
    if "error_form" in next(forms) - next(forms):
        yield Violation("error_changed", "it has not the form of the API's errors")
    if (message := theirs.get("message", "").strip()[:_WORDS_OF_ERROR]) and message not in " ".join(ours.values()):
        yield Violation("error_changed", "the provider's words are gone")
    elif front.wire == back.wire:
        for name in ("type", "code"):
            if name in theirs and ours.get(name) != theirs[name]:
                yield Violation("error_changed", f"its {name} is {'another' if name in ours else 'gone'}")


_WORDS_OF_ERROR = 200  # characters of a message that have to arrive


def _same_answer(front: Reply, back: Reply) -> bool:
    """Between two APIs, failures of a server may have each other's status: not all have one for each."""
    return front.wire != back.wire and min(front.status or 0, back.status or 0) >= 500


#: Headers by which clients go on: any of each line is enough.
_WAIT = ("retry-after", "retry-after-ms")
_LIMITS = ("ratelimit",)
_IDS = ("request-id",)


def _header_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    wait = next((name for name in _WAIT if name in back.headers), None)
    if wait is not None and _failed(back) and _failed(front):
        if wait in front.headers and front.headers[wait] != back.headers[wait]:
            yield Violation("retry_after_lost", f"{wait} has another value")
        elif not any(name in front.headers for name in _WAIT):
            yield Violation("retry_after_lost", f"{wait} is gone")
    if not front.headers:
        return
    for names, what in (_LIMITS, "the rate limits are gone"), (_IDS, "the request id is gone"):
        if _any(back.headers, names) and not _any(front.headers, names):
            yield Violation("header_lost", what)


def _any(headers: Mapping[str, str], names: Sequence[str]) -> bool:
    """One of the names stands there, also behind a prefix of the gateway's own."""
    return any(name in header for header in headers for name in names)


# Content


def _written(text: str | None) -> str:
    """A text as whoever joins its pieces reads it: halves of a character that meet are one."""
    text = text or ""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _answer_texts(front: Reply, back: Reply) -> tuple[str, str]:
    """The texts of both; with the refusal where one API has no place of its own for it."""
    texts = [_written(front.text), _written(back.text)]
    if front.wire != back.wire and "anthropic" in (front.wire, back.wire):
        texts = [text + _written(reply.refusal) for text, reply in zip(texts, (front, back), strict=True)]
    if front.wire != back.wire and max(_texts(front), _texts(back)) > 1:  # what stands between blocks is the gateway's
        texts = ["".join(text.split()) for text in texts]
    return texts[0], texts[1]


def _texts(reply: Reply) -> int:
    return sum(kind in ("text", "message") for kind in reply.blocks)


def _beginning_changes(front: Reply, back: Reply) -> list[Violation]:
    """Of a reply that was cut, what came has to be what was said."""
    ours, theirs = _answer_texts(front, back)
    shorter = min(len(ours), len(theirs))
    if ours[:shorter] == theirs[:shorter]:
        return []
    return [Violation("reply_text_changed", f"the text is another from character {_first(ours, theirs) + 1} on")]


def _first(a: str, b: str) -> int:
    """The place of the first character that differs."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _text_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    ours, theirs = _answer_texts(front, back)
    if ours != theirs:
        yield Violation("reply_text_changed", _difference(ours, theirs))
    if front.wire == back.wire and _written(front.refusal) != _written(back.refusal):
        yield Violation("reply_refusal_changed", "the refusal is " + ("another" if front.refusal else "gone"))


def _difference(ours: str, theirs: str) -> str:
    if not ours:
        return f"the text of {len(theirs):,} characters is gone"
    if not theirs:
        return f"{len(ours):,} characters of text were added"
    if ours == theirs + theirs:
        return "the text stands there twice"
    if theirs.startswith(ours):
        return f"the text ends after {len(ours):,} of {len(theirs):,} characters"
    if ours.replace("\ufffd", "") != ours and ours.count("\ufffd") > theirs.count("\ufffd"):
        return "characters were damaged"
    return f"{len(theirs):,} characters became {len(ours):,}; the first other one is number {_first(ours, theirs) + 1}"


def _thinking_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    ours, theirs = (_written(reply.reasoning).strip() for reply in (front, back))
    if theirs and ours != theirs and not (front.wire != back.wire and "".join(ours.split()) == "".join(theirs.split())):
        yield Violation("reply_thinking_lost", "the thinking is " + ("another" if ours else "gone"))
    if front.wire == back.wire and back.signatures and front.signatures != back.signatures:
        lost = len(front.signatures) < len(back.signatures)
        yield Violation("reply_signature_lost", f"the signature of the thinking is {'gone' if lost else 'another'}")


def _finish_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    ours, theirs = front.finish_reason, back.finish_reason
    if ours is None or theirs is None:
        return  # told by the faults of the form
    same_wire = front.wire == back.wire
    if not same_wire and theirs not in _WORDS:
        return  # a word of the provider's that the other API has not
    refused = front.refusal is not None or back.refusal is not None
    alike = ({ours, theirs} == {"function_call", "tool_calls"}) or (refused and not same_wire)
    mended = bool(back.tool_calls) and (ours, theirs) == ("tool_calls", "stop")
    if ours != theirs and not alike and not mended:
        yield Violation("finish_reason_changed", f"{theirs[:40]} → {ours[:40]}")
    elif same_wire and ours == theirs and front.stop != back.stop:
        yield Violation("finish_reason_changed", f"{str(back.stop)[:40]} → {str(front.stop)[:40]}")


def _call_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    ours, theirs = front.tool_calls, back.tool_calls
    pairs = _paired(ours, theirs)
    for place in sorted(set(range(len(theirs))) - pairs.keys()):
        yield Violation("tool_call_lost", f"tool call {place + 1} of {len(theirs)} is gone", name=_name(theirs[place]))
    for other in sorted(set(range(len(ours))) - set(pairs.values())):
        yield Violation("tool_call_added", f"tool call {other + 1} is none of the model's", name=_name(ours[other]))
    places = [pairs[place] for place in sorted(pairs)]
    if places != sorted(places):
        yield Violation("tool_calls_reordered", "the tool calls arrive in another order")
    for place, other in sorted(pairs.items()):
        yield from _other_call(front, back, place, other)


def _other_call(front: Reply, back: Reply, place: int, other: int) -> Iterator[Violation]:
    call, arrived = back.tool_calls[place], front.tool_calls[other]
    name = _name(call)
    if arrived.get("name") and call.get("name") != arrived.get("name"):
        yield Violation("tool_call_name_changed", f"tool call {place + 1} names another tool", name=name)
    before, after = argument_value(call.get("arguments")), argument_value(arrived.get("arguments"))
    if str(call.get("arguments") or "").strip() and not str(arrived.get("arguments") or "").strip():
        yield Violation(
            "tool_call_arguments_changed", f"tool call {place + 1}: an empty text for its arguments", name=name
        )
    elif _written(before) != _written(after):
        gone = after in ("{}", '""') and before != after
        what = "its arguments are gone" if gone else "other arguments"
        yield Violation("tool_call_arguments_changed", f"tool call {place + 1}: {what}", name=name)
    if front.wire == back.wire and arrived.get("id") and call.get("id") and call["id"] != arrived["id"]:
        yield Violation("tool_call_id_changed", f"tool call {place + 1} has another id", name=name)


def _name(call: Mapping[str, Any]) -> str | None:
    name = call.get("name")
    return name[:128] if isinstance(name, str) and name else None


def _paired(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The place at the front of each of the model's calls: by id, then by what it says, then by name, then by place."""
    pairs: dict[int, int] = {}
    rules = (
        lambda call: call.get("id") and ("id", call["id"]),
        lambda call: ("says", call.get("name"), argument_value(call.get("arguments"))),
        lambda call: ("name", call.get("name")),
        lambda call: ("any",),
    )
    for rule in rules:
        free = [other for other in range(len(ours)) if other not in pairs.values()]
        for place, call in enumerate(theirs):
            wanted = rule(call)
            chosen = next((other for other in free if wanted and rule(ours[other]) == wanted), None)
            if place not in pairs and chosen is not None:
                pairs[place] = chosen
                free.remove(chosen)
    return pairs


def _block_changes(front: Reply, back: Reply) -> Iterator[Violation]:
    """Blocks that have no field in the neutral form, of one API: calls of the provider's own tools, further choices."""
    if front.wire != back.wire:
        return
    ours, theirs = (Counter(kind for kind in reply.blocks if kind not in _BLOCKS) for reply in (front, back))
    for kind, times in sorted((theirs - ours).items()):
        yield Violation("reply_block_lost", f"{times:,} of type {kind[:40]}")
    if front.blocks != back.blocks and sorted(front.blocks) == sorted(back.blocks):
        yield Violation("reply_field_changed", "the blocks stand in another order")
    for name, value in back.extras.items():
        if theirs != ours and (name.startswith("own_") or name == "choices"):
            continue  # told by the blocks
        if name not in front.extras:
            yield Violation("reply_field_changed", f"{_EXTRAS.get(name, name)}: gone")
        elif canonical_json(front.extras[name]) != canonical_json(value):
            yield Violation("reply_field_changed", f"{_EXTRAS.get(name, name)}: not as the provider sent them")


#: What is told of a field that one API has, where its name is not for people.
_EXTRAS = {
    "logprobs": "log probabilities",
    "own_blocks": "blocks of the provider's own tools",
    "own_items": "items of the provider's own tools",
    "choices": "further choices",
    "server_tool_use": "uses of the provider's own tools, which are billed",
}


# Usage

_COUNTS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read": "read from the cache",
    "cache_write": "written to the cache",
    "reasoning_tokens": "reasoning",
    "cache_write_1h": "written to the cache for an hour",
}
#: Counts that an API has no field for.
_UNSAID = {
    "openai-chat": ("cache_write", "cache_write_1h"),
    "openai-responses": ("cache_write", "cache_write_1h"),
    "anthropic": ("reasoning_tokens",),
}


def _usage_changes(front: Reply, back: Reply, asked: WireRequest | None) -> Iterator[Violation]:
    if back.usage is None:
        return
    if front.usage is None:
        if _must_tell(front, asked):
            yield Violation("reply_usage_lost", "the provider told the usage, the client is not told")
        return
    for name, what in _COUNTS.items():
        if front.wire != back.wire and name in _UNSAID.get(front.wire, ()):
            continue
        told, given = getattr(back.usage, name), getattr(front.usage, name)
        if not told and not given:  # nothing, or not said
            continue
        if told is None:  # the front may count what the provider does not
            continue
        if given is None:
            yield Violation("reply_usage_lost", f"{what}: {told:,} tokens are not told")
        elif given != told:
            yield Violation("reply_usage_changed", f"{what}: {told:,} → {given:,} tokens")


def _must_tell(front: Reply, asked: WireRequest | None) -> bool:
    """A chat stream tells the usage only if it was asked to."""
    if not (front.streamed and front.wire == "openai-chat"):
        return True
    options = asked.params.get("stream_options") if asked is not None else None
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def closest_reply(
    front: Reply, backs: Sequence[Reply], *, asked: WireRequest | None = None
) -> tuple[int, list[Violation]]:
    """The reply among the provider's that the client was given: the one with the fewest changes, of equals the last;
    its place and the changes.

    Something in between may have asked more than once; then it may tell the usage of all its calls together.
    """
    compared = [compare_replies(front, back, asked=asked) for back in backs]
    place = min(range(len(backs)), key=lambda i: (len(compared[i]), -i))
    usages = [back.usage for back in backs if back.usage is not None]
    if len(usages) > 1:
        together = replace(backs[place], usage=sum(usages[1:], usages[0]))
        if len(summed := compare_replies(front, together, asked=asked)) < len(compared[place]):
            return place, summed
    return place, compared[place]
