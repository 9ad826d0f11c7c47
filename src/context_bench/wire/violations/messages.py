"""Who says what, in which order, and whether the question is still the one that was asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from context_bench.wire.alignment import Pairs, question_of
from context_bench.wire.request import SYSTEM_ROLES, WireMessage, WireRequest
from context_bench.wire.violations.kinds import Violation


def role_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Messages that arrive as said by another, and instructions that are gone or stand elsewhere."""
    for i, j in pairs.items():
        before, after = sent.messages[i].role, received.messages[j].role
        if before == after or (before in SYSTEM_ROLES and after in SYSTEM_ROLES):
            continue
        kind = "system_role_lost" if before in SYSTEM_ROLES else "assistant_role_changed" if before == "assistant" else "role_changed"
        yield Violation(kind, f"message {i + 1}: {before} → {after}", i)
    kept = [message for message in received.messages if message.role in SYSTEM_ROLES]
    for i, message in enumerate(sent.messages):
        if message.role in SYSTEM_ROLES and i not in pairs and message.text and not _told_by(kept, message.text):
            elsewhere = next((m.role for m in received.messages if message.text in m.text), None)
            if elsewhere:
                yield Violation("system_role_lost", f"message {i + 1}: {message.role} → part of a message of {elsewhere}", i)
            elif not kept:
                yield Violation("system_role_lost", f"message {i + 1}: the instructions are gone", i)


def _told_by(messages: Iterable[WireMessage], text: str) -> bool:
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
    elif (ends := last_user(received)) is not None and ends > pairs[last] and received.messages[ends].role == sent.messages[last].role:
        yield Violation("last_user_changed", "another user message stands behind the last one", last)


def last_user(request: WireRequest) -> int | None:
    """Where the last user message with a text stands."""
    return max((i for i, message in enumerate(request.messages) if message.role == "user" and message.text.strip()), default=None)
