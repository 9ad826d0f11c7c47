"""Records of `context-bench tap --out`, kept with the policies `full` or `redacted`: bodies as they reached the
provider.

Requests that the provider refused, token counts and other routes are passed over and counted; a record without a body
cannot be replayed. A request repeats what was said before it, so that a trace meets each call many times and counts it
once. A sub-agent's conversation is recognised by the task that a call of its parent gave it, and its calls are the
parent's `sidechain` ones.

Beside them bodies of requests to OpenAI or Anthropic, one per line, alone or with the reply beside them, and finished
conversations; chat data sets too. A line is `{"messages": […]}` (with `model`, `tools` … if known), a bare list of
messages, a Responses body (`input`), or an envelope with one of these under `request`, `body` or `params` and the reply
under `response` or `reply`. A conversation that ends with the assistant's message is a finished one: its requests are
made turn by turn. Any other is one request as it was sent, and lines that continue one another are one session. What
makes a body Anthropic's: blocks of its kinds, its way to write tools or instructions, its model names.

And recorded pairs: `{"original": …, "compressed": …}`, each a text or a list of chat messages, one per line; also said
`original_messages`, `compressed_messages`, as recorders of proxies write it. As a session a pair is the one request
that its original would have been; what was made of it stays in `session.meta["compressed"]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from context_bench.core.keys import hash_text
from context_bench.core.numbers import ANTHROPIC, OPENAI, Form, moment, usage_of
from context_bench.transcripts.dialogue import (
    Dialogue,
    ModelInput,
    ModelOutput,
    reply_items,
    spoken,
    task_key,
)
from context_bench.transcripts.format import Format, LogSource, Peek, Place, mapping, parsed, text
from context_bench.transcripts.requests import (
    NO_BODY,
    Logged,
    conversations,
    items_of,
    request_and_reply,
    request_log,
    session_named,
    transcript_of,
)
from context_bench.transcripts.session import UNNAMED, verbatim
from context_bench.transcripts.trace import grouped
from context_bench.transcripts.transcript import ToolCall, Transcript, fenced, run
from context_bench.wire.conversation import ITEMS, WIRES, ChatMessage, reply_message, to_chat

NAME = "tap-records"
_FIELDS = frozenset({"matched_by", "wire", "bytes_in", "facts"})
_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "user-agent")
#: Arguments of a call that may give a sub-agent its task; shorter ones are names.
_TASKS, _TASK_LENGTH = ("prompt", "task", "instructions", "message"), 12


def sniff(peek: Peek) -> bool:
    """True if the lines are a tap's."""
    return any(isinstance(value, dict) and "matched_by" in value and value.keys() >= _FIELDS for value in peek.sample)


def logged(value: Any) -> Logged | str:
    """One record, or why it is passed over."""
    if not isinstance(value, Mapping) or not value.keys() >= _FIELDS:
        return "not a record of a tap"
    wire, body, status = value.get("wire"), value.get("request"), value.get("status")
    if wire not in WIRES:
        return f"route {str(wire)[:40]}"
    if isinstance(status, int) and status >= 400:
        return f"refused with HTTP {status}"
    facts = value["facts"] if isinstance(value.get("facts"), Mapping) else {}
    if facts.get("warm_up"):
        return "no answer was asked for"
    if facts.get("policy") not in ("full", "redacted") or not isinstance(body, Mapping) or not body.get(ITEMS[wire]):
        return NO_BODY
    sent = facts.get("headers")
    headers = (
        {name: sent[name] for name in _HEADERS if isinstance(sent.get(name), str)} if isinstance(sent, Mapping) else {}
    )
    mark = text(value.get("mark"))
    return Logged(
        wire=wire,
        body=dict(body),
        reply=reply_message(wire, value.get("reply")),
        usage=usage_of(value.get("usage")),
        model=text(value.get("model")),
        at=moment(value.get("started")),
        headers=headers,
        path=text(value.get("path")) or "",
        session=f"mark-{hash_text(mark, 12)}" if mark else session_named(body),
        meta={"policy": facts["policy"]},
        answer_id=text(mapping(value.get("reply")).get("id")),
        follows=text(body.get("previous_response_id")),
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """The conversations that went through the tap. A trace is made of those that can call tools, or of all if none
    can.
    """
    log = _Log(source)
    for number, (session, places) in enumerate(log.groups, 1):
        one = transcript_of(source, NAME, logged, session, number, places)
        one.retrace = lambda one, number=number: log.retrace(one, number - 1)
        yield one


@dataclass(slots=True)
class _Thread:
    """One conversation of the file. `task`: the key of its first prompt where a call of another one gave it."""

    session: str | None
    places: list[Place]
    tools: bool
    task: str | None


class _Log:
    """A file of records: its conversations, and which of them is a sub-agent's of which."""

    def __init__(self, source: LogSource) -> None:
        self.source, self.tasks = source, set[str]()
        self.groups = conversations(source, self._line)

    def _line(self, value: Any) -> Logged | str:
        line = logged(value)
        if isinstance(line, Logged):
            self.tasks.update(key for item in _reply(line, value) for key in _given(line.wire, item))
        return line

    @cached_property
    def threads(self) -> list[_Thread]:
        """The conversations with what the first record of each shows."""
        return [self._thread(session, places) for session, places in self.groups]

    @cached_property
    def children(self) -> dict[str, list[_Thread]]:
        """Conversations of sub-agents by the tasks that they were given."""
        return grouped((thread.task, thread) for thread in self.threads if thread.task)

    @cached_property
    def runs(self) -> list[_Thread]:
        """The conversations that are runs of their own."""
        found = [thread for thread in self.threads if not thread.task]
        if not any(thread.tools for thread in found):
            return found
        if idle := sum(not thread.tools for thread in found):
            self.source.skipped["a conversation without tools"] += idle
        return [thread for thread in found if thread.tools]

    def retrace(self, one: Transcript, number: int) -> None:
        """Fill in the calls of a conversation, those of its sub-agents among them."""
        thread = self.threads[number]
        one.helper = not any(thread is other for other in self.runs)
        if not one.helper:
            one.named = len(self.runs) > 1 and thread.session is not None
            self._fill(one, thread)

    def _fill(self, one: Transcript, thread: _Thread) -> None:
        one.lasting_shell = True
        talk = Dialogue(one)
        for value in self.source.at(thread.places):
            if isinstance(line := logged(value), Logged):
                talk.take(line, _reply(line, value))
        calls: list[ToolCall] = []
        for call in one.calls:
            calls.append(call)
            for key in _task_keys(call.arguments):
                if waiting := self.children.get(key):
                    child = run("tap", None)
                    self._fill(child, waiting.pop(0))
                    calls += _by_child(one, child)
                    break
        one.calls = calls

    def _thread(self, session: str | None, places: list[Place]) -> _Thread:
        value = next(self.source.at(places[:1]))
        line = logged(value)
        assert isinstance(line, Logged), "only lines that were read have a place"
        items = items_of(line)
        prompts = [
            part
            for item in items
            for one in spoken(line.wire, item)
            if isinstance(one, ModelInput)
            for part in one.parts
        ]
        blocks = (
            fenced(one.text)
            for item in (*items, *_reply(line, value))
            for one in spoken(line.wire, item)
            if isinstance(one, ModelOutput)
        )
        task = next((key for part in prompts if (key := task_key(part)) in self.tasks), None)
        return _Thread(session, places, bool(line.body.get("tools") or line.body.get("functions")) or any(blocks), task)


def _reply(line: Logged, value: Any) -> list[Any]:
    return reply_items(line.wire, mapping(value.get("reply")))


def _given(wire: str, item: Any) -> Iterator[str]:
    """Keys of the tasks that the calls of a reply may give to sub-agents."""
    for one in spoken(wire, item):
        for _, _, arguments, _ in one.calls if isinstance(one, ModelOutput) else ():
            yield from _task_keys(arguments)


def _task_keys(arguments: Any) -> Iterator[str]:
    given = mapping(parsed(arguments))
    for name in _TASKS:
        if isinstance(task := given.get(name), str) and len(task) >= _TASK_LENGTH:
            yield task_key(task)


def _by_child(parent: Transcript, child: Transcript) -> list[ToolCall]:
    turns = parent.turns
    parent.turns += child.turns
    parent.billed(child.usage)
    parent.at(child.started)
    parent.at(child.ended)
    parent.skipped.update(child.skipped)
    return [replace(call, sidechain=True, turn=turns + call.turn if call.turn else None) for call in child.calls]


_OPENAI_BODY = frozenset(
    {
        "messages",
        "tools",
        "functions",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "temperature",
        "max_tokens",
    }
)
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _openai(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _OPENAI_BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    wire = _openai_wire(body)
    if wire is None:
        return "no messages"
    line = _logged(wire, row, body, inner, OPENAI)
    line.whole = wire == "openai-chat" and line.reply is None and _finished(body["messages"])
    return line


def _logged(
    wire: str, row: Mapping[str, Any], body: dict[str, Any], inner: Mapping[str, Any] | None, counts: Form
) -> Logged:
    return Logged(
        wire=wire,
        body=body,
        reply=reply_message(wire, inner),
        usage=usage_of(inner.get("usage"), counts) if inner is not None else None,
        at=moment(row.get("timestamp")),
        session=session_named(row, body),
        meta={"line_id": row["id"]} if isinstance(row.get("id"), str | int) else {},
    )


def _openai_wire(body: Mapping[str, Any]) -> str | None:
    """Name of the OpenAI wire of a body; `None` if it is none of a conversation."""
    messages = body.get("messages")
    if (
        isinstance(messages, list)
        and messages
        and all(isinstance(m, Mapping) and m.get("role") in _ROLES for m in messages)
    ):
        return "openai-chat"
    given = body.get("input")
    if "messages" in body or not isinstance(body.get("model"), str) or not isinstance(given, str | list) or not given:
        return None
    spoken = isinstance(given, str) or all(
        isinstance(item, Mapping) and ("role" in item or "type" in item) for item in given
    )
    return "openai-responses" if spoken else None


def _finished(messages: list[Any]) -> bool:
    return len(messages) > 1 and messages[-1].get("role") == "assistant"


_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document")
_ANTHROPIC_BODY = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "thinking", "metadata"}
)


def _anthropic(value: Any) -> Logged | str:
    """One line, or why it is passed over."""
    held = request_and_reply(value, _ANTHROPIC_BODY)
    if held is None:
        return "not an object"
    row, body, inner = held
    if not _is_anthropic(body):
        return "no Anthropic messages"
    line = _logged("anthropic", row, body, inner, ANTHROPIC)
    line.whole = inner is None and _finished(body["messages"]) and "model" not in body
    return line


def _is_anthropic(body: Mapping[str, Any]) -> bool:
    """True if a body is of Anthropic's wire and of no other."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
        return False
    if not all(m.get("role") in ("user", "assistant") for m in messages) or any("tool_calls" in m for m in messages):
        return False
    if (
        "system" in body
        or "anthropic_version" in body
        or str(body.get("model") or "").lower().rpartition("/")[2].startswith("claude")
    ):
        return True
    tools = body["tools"] if isinstance(body.get("tools"), list) else []
    if any(isinstance(tool, Mapping) and "input_schema" in tool for tool in tools):
        return True
    blocks = [block for m in messages if isinstance(m.get("content"), list) for block in m["content"]]
    return any(isinstance(block, Mapping) and block.get("type") in _BLOCKS for block in blocks)


PAIRS = "pairs"
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


def has_pairs(peek: Peek) -> bool:
    """True if the first lines hold a pair."""
    return any(not isinstance(_pair(value, ""), str) for value in peek.sample)


def pairs(source: LogSource) -> Iterator[Pair]:
    """The pairs of the file; other lines are counted in `source.skipped`."""
    for number, value in enumerate(source.values(), 1):
        found = _pair(value, f"{source.stem}-{number}")
        if isinstance(found, str):
            source.skip(found)
        else:
            yield found


def _read_pairs(source: LogSource) -> Iterator[Transcript]:
    """One run of one request for each pair."""
    for pair in pairs(source):
        body: dict[str, Any] = {"model": str(pair.meta.get("model") or ""), "messages": pair.original}
        if pair.tools:
            body["tools"] = pair.tools
        one = Transcript(pair.id, PAIRS, meta={"reconstructed": True, "compressed": pair.compressed})
        one.meta |= {UNNAMED: True} if pair.id.removeprefix(f"{source.stem}-").isdigit() else {}
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


FORMAT = {
    "tap_records": Format(
        NAME,
        60,
        sniff,
        read,
        conversation=True,
        about="Records of `context-bench tap --out`, kept with the policies `full` or `redacted`: bodies as they "
        "reached the provider.",
    ),
    "openai_jsonl": request_log(
        "openai-jsonl", 300, _openai, "OpenAI bodies, one per line: requests, logs with replies, chat data sets."
    ),
    "anthropic_jsonl": request_log(
        "anthropic-jsonl",
        290,
        _anthropic,
        "Anthropic bodies, one per line: requests, logs with replies, finished conversations.",
    ),
    "pairs": Format(
        PAIRS,
        270,
        has_pairs,
        _read_pairs,
        conversation=True,
        calls=False,
        about='Recorded pairs: `{"original": …, "compressed": …}`, each a text or a list of chat messages, one per '
        "line.",
    ),
}
