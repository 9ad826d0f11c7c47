"""Transcripts as sessions, which can be sent again and asked about. The other view, as traces, is `logs.traces.transcribed`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.transcripts.session import RecordedReply, Session, SessionRequest, reconstructed
from context_bench.transcripts.source import Source
from context_bench.transcripts.transcripts.record import Context, Message, Transcript
from context_bench.wire.conversation import Chat, ChatMessage, call_of, to_body, to_chat
from context_bench.wire.conversation.providers import ITEMS


def sessions(reader: Any, source: Source) -> Iterator[Session]:
    """The sessions of a file: one for every run in it that the model answered in, those of sub-agents included."""
    found = 0
    for transcript in reader.transcripts(source):
        for one in transcript.family():
            made = session(one, str(source.path))
            made.id = made.id or Path(source.path.name.removesuffix(".json")).stem
            if made.requests:
                found += 1
                made.meta["skipped"] = source.skipped_counts()
                source.skipped.clear()
                yield made
    if not found:
        skipped = source.skipped_counts() or "nothing"
        raise BadInput(f"{source.path}: a log of {reader.NAME}, but no reply of a model in it; skipped: {skipped}")


def session(transcript: Transcript, source: str) -> Session:
    """The transcript as a session: a request before each message that the model made, answered by it."""
    view = _View(transcript)
    requests: list[SessionRequest] = []
    after: list[ChatMessage] = []
    for context in transcript.contexts:
        made, rest = view.requests(context)
        requests += made
        after = rest if made else [*after, *rest]
    meta = {name: value for name, value in transcript.meta.items() if name != "head"}
    meta |= {"format": transcript.format, "reconstructed": True, "assumed": list(transcript.assumed)}
    for name in ("cwd", "version", "parent", "usage"):
        if (value := getattr(transcript, name)) is not None:
            meta[name] = value
    if len(transcript.contexts) > 1:
        meta["contexts"] = len(transcript.contexts)
    return Session(transcript.ident, source, view.wire, requests, meta, after).on(transcript.wire)


class _View:
    """A transcript on its way to requests: on the wire of its items where the log has these, else in chat form."""

    def __init__(self, transcript: Transcript) -> None:
        every = list(transcript.messages())
        self.wire = transcript.wire if any(message.items is not None for message in every) else "openai-chat"
        self.head: dict[str, Any] = {"model": transcript.model or "", **transcript.meta.get("head", {})}
        self.began = next((message.at for message in every if message.made and message.at is not None), None)
        calls = [call for context in transcript.contexts for message in context.messages for call in message.calls]
        self.names = {id(call): call.ident or f"call-{number}" for number, call in enumerate(calls)}

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
        return requests, (to_chat(self.wire, {ITEMS[self.wire]: items[rest:]}).messages if rest else [])

    def request(self, message: Message, items: list[Any]) -> SessionRequest:
        """What the model was sent, as far as is known, for this message."""
        head = self.head if message.model in (None, self.head["model"]) else {**self.head, "model": message.model}
        reply = RecordedReply.of(self.spoken(message), usage=message.usage, model=head["model"] or None)
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
            return message.results
        answered = [call for call in message.calls if call.answered]
        chat: list[ChatMessage] = [{"role": "tool", "tool_call_id": self.names[id(c)], "content": c.output or ""} for c in answered]
        return chat if self.wire == "openai-chat" else list(to_body(self.wire, Chat(chat))[ITEMS[self.wire]])

    def spoken(self, message: Message) -> ChatMessage:
        """A message in chat form. Thoughts that the provider signed are a part of it, for only those go back to it."""
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
