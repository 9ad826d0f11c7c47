"""Sessions from log files and folders. A file is recognised by its content, never by its name.

A session is a view of a transcript: the requests that the model was sent, rebuilt from the recorded messages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.format import (
    CALLS,
    ENDINGS,
    Format,
    LogSource,
    is_note,
    mapping,
    peek_at,
    read_each,
    recognised,
    sample_text,
    text,
    unpacked_name,
)
from context_bench.transcripts.formats import formats
from context_bench.transcripts.formats.tap_records import Pair as Pair
from context_bench.transcripts.session import (
    UNNAMED,
    Compaction,
    RecordedReply,
    Session,
    SessionRequest,
    conversation,
    reconstructed,
    reply_as_message,
    spoken,
    summary_in,
)
from context_bench.transcripts.transcript import Boundary, Context, Message, ToolCall, Transcript
from context_bench.wire.conversation import (
    ITEMS,
    Chat,
    ChatMessage,
    call_of,
    message_text,
    reply_message,
    to_body,
    to_chat,
    tools_used,
)
from context_bench.wire.request import RESULT_ROLES


def session(transcript: Transcript, source: str) -> Session:
    """The transcript as a session: its requests as they were sent, or one before each message that the model made,
    answered by it.

    Where the log is none of a conversation, the session is made of its tool calls and what came of them, in order.
    `meta` says so (`assumed`): it is enough to ask what was read, changed and run, and what failed; it is not enough to
    be sent to a model.
    """
    if transcript.sent is not None:
        return _as_sent(transcript, source, transcript.sent())
    if not any(context.messages for context in transcript.contexts):
        return _of_calls(transcript, source)
    view = _View(transcript)
    requests: list[SessionRequest] = []
    after: list[ChatMessage] = []
    compactions: list[Compaction] = []
    for context in transcript.contexts:
        made, rest = view.requests(context)
        if context.boundary is not None:
            compactions.append(view.compaction(context.boundary, len(requests)))
        view.placed(context, len(requests))
        requests += made
        after = rest if made else [*after, *rest]
    assumed = [
        part
        for part in transcript.assumed or transcript.missing
        if part != "tools" or transcript.tools is None or view.tools
    ]
    meta = {
        "format": transcript.format or transcript.agent or "agent",
        "reconstructed": True,
        "assumed": assumed,
        **transcript.meta,
    }
    for name in ("cwd", "version", "parent"):
        if (value := getattr(transcript, name)) is not None:
            meta.setdefault(name, value)
    if len(transcript.contexts) > 1 and not {"compactions", "rewinds"} & meta.keys():
        meta["contexts"] = len(transcript.contexts)
    made_of = Session(transcript.ident, source, view.wire, requests, meta, after, compactions)
    return made_of.on(transcript.wire)


def _as_sent(one: Transcript, source: str, requests: list[SessionRequest]) -> Session:
    meta = {"format": one.format, **one.meta}
    meta |= {"assumed": one.assumed} if one.assumed else {}
    made = Session(one.ident, source, requests[0].wire if requests else one.wire, requests, meta)
    made.compactions = list(shortened(requests))
    return made.on(one.wire)


def shortened(requests: Sequence[SessionRequest]) -> Iterator[Compaction]:
    """Places where the client itself shortened the history, by the bodies that it sent: a request that does not go on
    from the one before it and has fewer characters, at a summary or with outputs of tools cleared away.
    """
    before: list[ChatMessage] = []
    for number, request in enumerate(requests):
        messages = spoken(request.messages)
        changed = messages[: len(before)] != before
        if changed and (summary := _stands_in(before, messages)) is not None:
            held = [*before, *_reply(requests[number - 1])]
            known = [message for message in messages if message in held or summary_in(message_text(message))]
            yield Compaction(number, partial(list, held), partial(list, known or messages), summary, at=request.at)
        before = messages


def _stands_in(before: Sequence[ChatMessage], now: Sequence[ChatMessage]) -> str | None:
    """The summary that stands for a history, "" where outputs of tools were cleared; `None`: neither was done."""
    new = [message_text(message) for message in now if message not in before]
    if found := next((text for text in new if summary_in(text)), None):
        return found
    old = {m.get("tool_call_id"): message_text(m) for m in before if m.get("role") in RESULT_ROLES}
    given = {m.get("tool_call_id"): message_text(m) for m in now if m.get("role") in RESULT_ROLES}
    cleared = [ident for ident, text in given.items() if ident in old and len(text) < len(old[ident])]
    return "" if cleared and before else None


def _reply(request: SessionRequest) -> list[ChatMessage]:
    return [reply_as_message(request.recorded_reply)] if request.recorded_reply is not None else []


def _of_calls(one: Transcript, source: str) -> Session:
    messages = [message for number, call in enumerate(one.calls) for message in _called(call, number)]
    meta: dict[str, Any] = {
        "format": one.agent or "agent",
        "reconstructed": True,
        "assumed": ["what was said between the calls"],
    }
    meta |= {"cwd": one.cwd} if one.cwd else {}
    return Session(one.ident, source, "openai-chat", conversation(messages, model=one.model), meta)


def _called(call: ToolCall, number: int) -> Iterator[ChatMessage]:
    """A call and its result; a call whose result the log does not hold was answered by nothing."""
    ident = call.ident or f"call-{number}"
    arguments = (
        call.arguments
        if isinstance(call.arguments, str)
        else json.dumps(call.arguments, ensure_ascii=False, default=repr)
    )
    yield {"role": "assistant", "content": None, "tool_calls": [call_of(ident, call.tool, arguments)]}
    yield {"role": "tool", "tool_call_id": ident, "content": call.output or ""}


class _View:
    """A transcript on its way to requests: on the wire of its items where the log has these, else in chat form."""

    def __init__(self, transcript: Transcript) -> None:
        every = list(transcript.messages())
        self.wire = transcript.wire if any(message.items is not None for message in every) else "openai-chat"
        self.model = (
            next((message.model for message in every if message.made and message.model), transcript.model) or ""
        )
        self.tools = self._tools(every, transcript.tools) if transcript.tools is not None else []
        self.head = {"model": self.model, **transcript.head, **({"tools": self.tools} if self.tools else {})}
        self.began = next((message.at for message in every if message.made and message.at is not None), None)
        spoken = (message for context in transcript.contexts for message in context.messages if message.items is None)
        calls = [call for message in spoken for call in message.calls]
        self.names = {id(call): call.ident or f"call-{number}" for number, call in enumerate(calls)}
        self.numbers: dict[int, int] = {}  # of the request that a message answers

    def placed(self, context: Context, first: int) -> None:
        """Note which requests the messages of a context answer, the first of which has this number."""
        made = [message for message in context.messages[context.carried :] if message.made]
        self.numbers.update({id(message): first + place for place, message in enumerate(made)})

    def compaction(self, boundary: Boundary, number: int) -> Compaction:
        """A compaction before the request of this number."""
        before = [m for m in boundary.before.messages if m is not boundary.made] if boundary.before else []
        return Compaction(
            number,
            partial(self.chat, before),
            partial(self.chat, boundary.opening),
            boundary.summary,
            self.numbers.get(id(boundary.made)),
            boundary.trigger,
            boundary.stated_before,
            boundary.stated_after,
            boundary.seconds,
            boundary.at - self.began if boundary.at is not None and self.began is not None else None,
        )

    def chat(self, messages: Sequence[Message]) -> list[ChatMessage]:
        """Messages in chat form, each with the results of its calls."""
        items = [item for message in messages for item in (*self.items(message), *self.results(message))]
        return to_chat(self.wire, {ITEMS[self.wire]: items}).messages

    def requests(self, context: Context) -> tuple[list[SessionRequest], list[ChatMessage]]:
        """The requests of a context, whose bodies share its items, and what came after the last reply."""
        items: list[Any] = []
        requests = []
        rest = 0
        for place, message in enumerate(context.messages):
            own = self.items(message)
            if message.made and place >= context.carried:
                requests.append(self.request(message, items))
                rest = len(items) + len(own)
            items += own + self.results(message)
            if place < context.carried:
                rest = len(items)
        return requests, (to_chat(self.wire, {ITEMS[self.wire]: items[rest:]}).messages if items[rest:] else [])

    def request(self, message: Message, items: list[Any]) -> SessionRequest:
        """The body that the model was sent, as far as is known, for this message."""
        head = self.head if message.head is None else {**message.head, **({"tools": self.tools} if self.tools else {})}
        model = message.model or head["model"]
        head = head if head["model"] == model else {**head, "model": model}
        reply = RecordedReply.of(self.spoken(message), usage=message.usage, model=model or None)
        reply.finish_reason = message.finish
        at = message.at - self.began if message.at is not None and self.began is not None else None
        return reconstructed(self.wire, head, items, 0, len(items), recorded_reply=reply, at=at)

    def items(self, message: Message) -> list[Any]:
        """A message as items of the wire."""
        if message.items is not None:
            return message.items
        if not (message.content or message.calls or message.thoughts):
            return []
        spoken = self.spoken(message)
        return [spoken] if self.wire == "openai-chat" else list(to_body(self.wire, Chat([spoken]))[ITEMS[self.wire]])

    def results(self, message: Message) -> list[Any]:
        """The results of a message's calls as items of the wire."""
        if message.items is not None:
            return []
        answered = [call for call in message.calls if call.answered]
        chat: list[ChatMessage] = [
            {"role": "tool", "tool_call_id": self.names[id(c)], "content": c.output or ""} for c in answered
        ]
        return chat if self.wire == "openai-chat" else list(to_body(self.wire, Chat(chat))[ITEMS[self.wire]])

    def spoken(self, message: Message) -> ChatMessage:
        """A message in chat form. Thoughts that the provider signed are a part of it, for only those go back to it."""
        if message.items is not None:
            body = {"output": message.items} if self.wire == "openai-responses" else (message.items or [{}])[0]
            return reply_message(self.wire, body) or {}
        content = message.content
        if message.thoughts and message.seal:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
            content = [{"type": "thinking", "thinking": message.thoughts, "signature": message.seal}, *said]
        spoken: ChatMessage = {"role": message.role, "content": content}
        if message.thoughts and not message.seal:
            spoken["reasoning_content"] = message.thoughts
        if message.calls:
            spoken["tool_calls"] = [call_of(self.names[id(call)], call.tool, call.arguments) for call in message.calls]
        return spoken

    def _tools(self, every: list[Message], named: list[str]) -> list[Any]:
        """Definitions of the tools called, and of those that the log only names."""
        items = [item for message in every if message.made for item in self.items(message)]
        used = tools_used(to_chat(self.wire, {ITEMS[self.wire]: items}).messages)
        known = {tool["function"]["name"] for tool in used}
        empty = {"type": "object", "properties": {}}
        unused = [
            {
                "type": "function",
                "function": {"name": name, "description": f"Tool {name} of the recorded session.", "parameters": empty},
            }
            for name in named
            if name not in known
        ]
        every_tool = sorted([*used, *unused], key=lambda tool: str(tool["function"]["name"]))
        found = to_body(self.wire, Chat(tools=every_tool)).get("tools")
        plain = {text(item.get("name")) for item in items if mapping(item).get("type") == "custom_tool_call"}
        return [
            {"type": "custom", "name": tool["name"], "description": tool["description"]}
            if tool.get("name") in plain
            else tool
            for tool in found or []
        ]


Read = Format[Iterator[Transcript]]


def read_sessions(
    paths: str | Path | Iterable[str | Path], *, agents: bool = False, on_skip: Callable[[BadInput], None] | None = None
) -> Iterator[Session]:
    """Every session in a file, a folder (its log files, at any depth, by name) or several of these, as they are read.

    `agents`: agents' logs that hold no conversation too, as sessions of their tool calls (see
    `transcripts.transcript`). A file of no known format raises `BadInput` with its first keys and the formats tried. In
    a folder such a file is told to `on_skip` instead; only a folder without any session raises. What was passed over
    inside a file is counted in `session.meta["skipped"]`.
    """
    for given in [paths] if isinstance(paths, str | Path) else paths:
        path = given if isinstance(given, Path) else Path(given)
        if path.is_dir():
            yield from _folder(path, agents, on_skip)
        else:
            yield from _file(path, agents)


def read_pairs(path: str | Path) -> Iterator[Pair]:
    """The recorded pairs in a file: what a compressor was given, and what it made of it. Raises `BadInput` for any
    other file.
    """
    from context_bench.transcripts.formats.tap_records import has_pairs, pairs

    peek = peek_at(LogSource(Path(path)))
    if not has_pairs(peek):
        raise BadInput(
            f"{path}: no recorded pairs: {sample_text(peek.sample)}; expected objects with 'original' and 'compressed'"
        )
    return pairs(peek.source)


def opened(path: Path, wanted: Callable[[Read], bool], refusal: str) -> tuple[Read, LogSource]:
    """A file, and its format among those that are wanted. `BadInput` for a file of none."""
    peek = peek_at(LogSource(path))
    return recognised(peek, {name: one for name, one in formats().items() if wanted(one)}, refusal)[1], peek.source


def log_files(folder: Path, *, agents: bool = False) -> list[Path]:
    """Files of a folder that may be logs, packed ones too, at any depth, by name. `agents`: those of logs that hold
    tool calls alone too. Raises `BadInput` for a folder that cannot be listed.
    """
    try:
        with os.scandir(folder):
            pass
    except OSError as error:  # a search of it would find nothing, and say nothing
        raise BadInput(f"{folder}: this folder cannot be read: {error.strerror or error}") from None
    return sorted(
        path
        for path in folder.rglob("*")
        if unpacked_name(path.name).lower().endswith(CALLS if agents else ENDINGS)
        and path.is_file()
        and not is_note(path)
    )


def _folder(folder: Path, agents: bool, on_skip: Callable[[BadInput], None] | None) -> Iterator[Session]:
    files = log_files(folder, agents=agents)
    refusal = f"no recorded sessions in the folder {folder}"
    seen: set[tuple[str, int]] = set()
    for one in read_each(files, lambda path: _file(path, agents), refusal, endings=ENDINGS, on_skip=on_skip):
        if not _again(one, seen):
            yield one


def _again(one: Session, seen: set[tuple[str, int]]) -> bool:
    """True if the session was read before: opencode's database and an export beside it hold the same one, which counts
    once.
    """
    if not str(one.meta.get("format")).startswith("opencode"):
        return False
    key = (one.id, len(one.requests))
    again = key in seen
    seen.add(key)
    return again


def _file(path: Path, agents: bool) -> Iterator[Session]:
    if path.is_file() and not path.stat().st_size:
        raise BadInput(f"{path}: empty file: nothing was recorded")
    try:
        found, source = opened(path, lambda one: one.conversation, "not a log that can be read")
        source.view = "session"
    except BadInput:
        if not agents:
            raise
        found, source = opened(path, lambda one: True, "not a trace that can be read")
    return _sessions(found, source)


def _sessions(found: Read, source: LogSource) -> Iterator[Session]:
    """The sessions of a file: one for every run in it that the model answered in, those of sub-agents included."""
    number = 0
    for one in found.read(source):
        for part in one.family():
            if found.conversation and part.sent is None and not any(part.messages()):
                continue
            if not part.ident:
                part.ident, part.meta = name_of(source.path), {**part.meta, UNNAMED: True}
            made = session(part, str(source.path))
            if made.requests:
                number += 1
                skipped = dict(sorted((source.skipped + part.skipped).items()))
                made.meta |= {"skipped": skipped} if skipped or found.conversation else {}
                source.skipped.clear()
                yield made
    if not number and not found.conversation:
        raise BadInput(
            f"{source.path}: no tool call in it was recorded with its arguments; nothing can be asked about such a "
            "session"
        )
    if not number:
        why = source.skipped_counts() or "nothing"
        raise BadInput(f"{source.path}: a log of {found.name}, but no reply of a model in it; skipped: {why}")


def name_of(path: Path) -> str:
    """A name for a run whose log tells none: the file's, without its endings."""
    name = unpacked_name(path.name)
    for ending in (
        ".traj.json",
        ".checkpoints.jsonl",
        ".context.json",
        ".patch_context.txt",
        ".claude-record.json",
        ".codex-record.json",
        "_traj.json",
        *CALLS,
    ):
        if name.endswith(ending):
            return name.removesuffix(ending) or path.absolute().parent.name
    return name
