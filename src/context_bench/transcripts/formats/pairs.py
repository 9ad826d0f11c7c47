"""Recorded pairs: `{"original": …, "compressed": …}`, each a text or a list of chat messages, one per line. Also said
`original_messages`, `compressed_messages`, as recorders of proxies write it.

As a session a pair is the one request that its original would have been; what was made of it stays in
`session.meta["compressed"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.session import verbatim
from context_bench.transcripts.transcript import Transcript
from context_bench.wire.conversation import ChatMessage, to_chat

NAME = "pairs"
_TOLD = ("original", "compressed", "original_messages", "compressed_messages", "id", "tools")


@dataclass(frozen=True, slots=True)
class Pair:
    """Input and output of a compressor, both as chat messages (a text is one user message). `texts`: both were
    texts.
    """

    id: str
    original: list[ChatMessage]
    compressed: list[ChatMessage]
    texts: bool
    tools: list[Any] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)


def sniff(peek: Peek) -> bool:
    """True if the first lines hold a pair."""
    return any(not isinstance(_pair(value, ""), str) for value in peek.sample)


def pairs(source: LogSource) -> Iterator[Pair]:
    """The pairs of the file; other lines are counted in `source.skipped`."""
    for number, value in enumerate(source.values(), 1):
        found = _pair(value, f"{source.path.stem}-{number}")
        if isinstance(found, str):
            source.skip(found)
        else:
            yield found


def read(source: LogSource) -> Iterator[Transcript]:
    """One run of one request for each pair."""
    for pair in pairs(source):
        body: dict[str, Any] = {"model": str(pair.meta.get("model") or ""), "messages": pair.original}
        if pair.tools:
            body["tools"] = pair.tools
        one = Transcript(pair.id, NAME, meta={"reconstructed": True, "compressed": pair.compressed})
        one.sent = partial(list, [verbatim("openai-chat", body)])
        yield one


def _pair(value: Any, ident: str) -> Pair | str:
    if not isinstance(value, Mapping):
        return "not an object"
    sides = [value.get(name, value.get(f"{name}_messages")) for name in ("original", "compressed")]
    original, compressed = map(_messages, sides)
    if original is None or compressed is None:
        return "no 'original' and 'compressed'"
    tools = value["tools"] if isinstance(value.get("tools"), list) else []
    named = value.get("id")
    return Pair(
        id=str(named) if isinstance(named, str | int) else ident,
        original=original,
        compressed=compressed,
        texts=all(isinstance(side, str) for side in sides),
        tools=tools,
        meta={key: item for key, item in value.items() if key not in _TOLD},
    )


def _messages(side: Any) -> list[ChatMessage] | None:
    """One side as chat messages; Anthropic's blocks are read too."""
    if isinstance(side, str):
        return [{"role": "user", "content": side}]
    if isinstance(side, Mapping) and isinstance(side.get("messages"), list):
        side = side["messages"]
    if not isinstance(side, list) or not all(isinstance(message, Mapping) and "role" in message for message in side):
        return None
    blocks = [block for message in side if isinstance(message.get("content"), list) for block in message["content"]]
    anthropic = any(isinstance(block, Mapping) and block.get("type") in ("tool_use", "tool_result") for block in blocks)
    return to_chat("anthropic", {"messages": side}).messages if anthropic else [dict(message) for message in side]


FORMAT = Format(NAME, 270, sniff, read, conversation=True, calls=False)
