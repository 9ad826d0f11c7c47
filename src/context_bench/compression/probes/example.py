"""A probe on its way through a run: an example holds the session once, as text that all its probes share, and where it is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from context_bench.compression.probes.probe import Probe, atom_to_json
from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json
from context_bench.core.records import Example
from context_bench.core.tokens import TokenCounter
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of, tools_used

DATASET = "probes"
#: How `rendered` begins a message.
_HEAD = re.compile(r"(?:\A|(?<=\n\n))(?:(?P<role>user|assistant|tool result): |(?:user|assistant) calls (?P<tool>[^\s:]{1,120}): )")


def example_of(probe: Probe, *, session: str, group: str, cluster: str, points: Sequence[int]) -> Example:
    """One probe as an example. `session`: its messages, `packed`; `points`: where it is compressed, one after the other; `group`: what is
    compressed once for all of its probes. Its `cycle` says after how many compressions it is asked.
    """
    return {
        "id": probe.id if len(points) == 1 else f"{probe.id}~{len(points)}",
        "dataset": DATASET,
        "question": probe.question,
        "answer": probe.ground_truth,
        "probe_type": probe.type,
        "qa_type": probe.type,
        "atoms": [atom_to_json(atom) for atom in probe.atoms],
        "group": group,
        "cluster": cluster,
        "points": list(points),
        "cycle": len(points),
        "session": session,
    }


def packed(messages: Sequence[ChatMessage]) -> str:
    """Chat messages as one text, one JSON object a line."""
    return "\n".join(json.dumps(message, ensure_ascii=False) for message in messages)


@lru_cache(maxsize=16)
def _unpacked(text: str) -> tuple[ChatMessage, ...]:
    return tuple(json.loads(line) for line in filter(None, text.split("\n")))


def messages_of(example: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages of an example's session; do not change them in place. `BadInput` for an example that is no probe."""
    text, points = example.get("session"), example.get("points")
    if not isinstance(text, str) or not isinstance(points, list) or not points:
        raise BadInput(f"example {example.get('id')!r} has no session and points: it is not of a probe dataset")
    return list(_unpacked(text))


def session_tools(example: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Chat tools that fit the calls of an example's whole session, the same wherever it is cut; do not change them in place."""
    messages_of(example)  # says what is wrong with an example that is no probe
    return list(_tools(str(example["session"])))


@lru_cache(maxsize=16)
def _tools(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(tools_used(_unpacked(text)))


def rendered(messages: Sequence[ChatMessage]) -> str:
    """Messages as a reader sees them in plain text: who speaks, what is said, which tools are called with what, what they gave back."""
    return "\n\n".join(line for message in messages for line in _lines(message))


def unrendered(text: str) -> list[ChatMessage] | None:
    """The messages of a text that `rendered` made, as far as they are still there; `None` for a text that is no such rendering.

    A result belongs to the calls right before it, in order; a call that was cut keeps what is left of its arguments.
    """
    heads = list(_HEAD.finditer(text))
    if not any(hit["tool"] or hit["role"] == "tool result" for hit in heads):
        return None
    opening = text[: heads[0].start()].strip()
    messages: list[ChatMessage] = [{"role": "user", "content": opening}] if opening else []
    waiting: list[str] = []
    called = False
    for number, hit in enumerate(heads):
        body = text[hit.end() : heads[number + 1].start() if number + 1 < len(heads) else len(text)].strip("\n")
        if hit["tool"]:
            waiting = [*(waiting if called else []), f"call-{number}"]
            function = {"name": hit["tool"], "arguments": body}
            messages.append(
                {"role": "assistant", "content": None, "tool_calls": [{"id": waiting[-1], "type": "function", "function": function}]}
            )
        elif hit["role"] == "tool result":
            messages.append({"role": "tool", "tool_call_id": waiting.pop(0) if waiting else None, "content": body})
        else:
            messages.append({"role": hit["role"], "content": body})
        called = bool(hit["tool"])
    return messages


def tokens_of(messages: Sequence[ChatMessage], counter: TokenCounter) -> int:
    """Tokens of the messages' texts and of their tool calls as canonical JSON; roles count nothing (decision 17)."""
    return sum(
        counter.count(message_text(message)) + (counter.count(canonical_json(calls)) if (calls := tool_calls_of(message)) else 0)
        for message in messages
    )


def _lines(message: ChatMessage) -> list[str]:
    role, text = str(message.get("role") or "user"), message_text(message)
    lines = [f"{'tool result' if role == 'tool' else role}: {text}"] if text else []
    return lines + [f"{role} calls {call['name']}: {call['arguments']}" for call in tool_calls_of(message)]
