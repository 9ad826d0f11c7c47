"""What Claude Code's two logs have in common: lines of one answer put together again, tools paired, contexts that start anew.

One answer of the model is spread over several lines with the same `message.id` and the same usage. Everything said before an answer's first
line is what the model was sent for it. A compaction starts a new context; a prompt that continues from an earlier message (a rewind)
drops what came after that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.records import Usage
from context_bench.core.usage import ANTHROPIC, usage_of
from context_bench.transcripts.session import RecordedReply, Session, SessionRequest, reconstructed
from context_bench.transcripts.values import text
from context_bench.wire.conversation import MAX_TOKENS, Chat, reply_message, to_body, to_chat, tools_used

#: Stands for a prompt that the log does not hold.
NO_PROMPT = "(The prompt was not recorded.)"


@dataclass(slots=True)
class _Answer:
    """One answer of the model: which items were sent for it, and what came back."""

    items: list[dict[str, Any]]
    start: int
    stop: int
    at: float | None
    message: dict[str, Any]
    usage: Usage | None = None
    model: str | None = None
    stop_reason: str | None = None


@dataclass
class Thread:
    """One conversation of a log (the main one, or a sub-agent's), fed line by line."""

    items: list[dict[str, Any]] = field(default_factory=list)  # of Anthropic's wire
    start: int = 0
    answers: list[_Answer] = field(default_factory=list)
    compactions: int = 0
    rewinds: int = 0
    unprompted: bool = False
    _by_id: dict[str, _Answer] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def assistant(self, message: Mapping[str, Any], stamp: Any, ident: str | None) -> None:
        """A line with (a part of) an answer."""
        blocks = _blocks(message.get("content"))
        if not blocks:
            return
        named = message.get("id")
        answer = self._by_id.get(named) if isinstance(named, str) else None
        if answer is None or not self._open(answer):
            answer = self._new_answer(moment(stamp), message)
            if isinstance(named, str):
                self._by_id[named] = answer
        answer.message["content"] += [block for block in blocks if block not in answer.message["content"]]
        answer.usage = usage_of(message.get("usage"), ANTHROPIC) or answer.usage
        answer.stop_reason = text(message.get("stop_reason")) or answer.stop_reason
        self._place(ident)

    def user(self, message: Mapping[str, Any], ident: str | None, parent: str | None) -> None:
        """A line with a prompt or with tools' results."""
        blocks = _blocks(message.get("content"))
        if not blocks:
            return
        prompt = not any(isinstance(block, Mapping) and block.get("type") == "tool_result" for block in blocks)
        if prompt and parent is not None and (place := self._places.get(parent)) is not None and self.start < place < len(self.items):
            self.items, self.rewinds = self.items[:place], self.rewinds + 1
        if len(self.items) > self.start and self.items[-1]["role"] == "user":
            self.items[-1] = {"role": "user", "content": [*self.items[-1]["content"], *blocks]}
        else:
            self.items.append({"role": "user", "content": blocks})
        self._place(ident)

    def compacted(self) -> None:
        """What comes now starts a new context."""
        if len(self.items) > self.start:
            self.start, self.compactions = len(self.items), self.compactions + 1

    def seen(self, ident: str | None) -> bool:
        """Whether a line was read before (a resumed session repeats lines)."""
        return ident is not None and ident in self._places

    def passed(self, ident: str | None) -> None:
        """A line that is not part of the conversation, but may be pointed to."""
        self._place(ident)

    def _place(self, ident: str | None) -> None:
        if ident is not None:
            self._places[ident] = len(self.items)

    def _open(self, answer: _Answer) -> bool:
        """Whether more of this answer may still come: it is the last one of the context."""
        return bool(self.answers) and self.answers[-1] is answer and answer.items is self.items and answer.stop >= self.start

    def _new_answer(self, at: float | None, message: Mapping[str, Any]) -> _Answer:
        if len(self.items) == self.start:
            self.unprompted = True
            self.items.append({"role": "user", "content": [{"type": "text", "text": NO_PROMPT}]})
        model = message.get("model")
        made: dict[str, Any] = {"role": "assistant", "content": []}
        answer = _Answer(self.items, self.start, len(self.items), at, made, model=model if isinstance(model, str) else None)
        self.answers.append(answer)
        self.items.append(made)
        return answer

    def session(self, ident: str, source: str, meta: Mapping[str, Any], tools: list[str] | None = None) -> Session:
        """The session, its bodies put together: tools by their names and use, no instructions, since neither is in the log."""
        model = next((answer.model for answer in self.answers if answer.model), "")
        named = _tools(self.answers, tools or [])
        head: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS, **({"tools": named} if named else {})}
        began = next((answer.at for answer in self.answers if answer.at is not None), None)
        requests = [_request(answer, head, began) for answer in self.answers]
        assumed = ["system", "max_tokens", *(["tools"] if named else []), *(["prompt"] if self.unprompted else [])]
        changes = {name: number for name, number in (("compactions", self.compactions), ("rewinds", self.rewinds)) if number}
        after = to_chat("anthropic", {"messages": self.items[self.answers[-1].stop + 1 :]}).messages if self.answers else []
        meta = {**meta, "reconstructed": True, "assumed": assumed, **changes}
        return Session(ident, source, "anthropic", requests, meta, after)


def _request(answer: _Answer, head: dict[str, Any], began: float | None) -> SessionRequest:
    if answer.model and answer.model != head["model"]:
        head = {**head, "model": answer.model}
    message = reply_message("anthropic", answer.message) or {}
    reply = RecordedReply.of(message, usage=answer.usage, model=answer.model)
    reply.finish_reason = answer.stop_reason
    return reconstructed(
        "anthropic",
        head,
        answer.items,
        answer.start,
        answer.stop,
        recorded_reply=reply,
        at=answer.at - began if answer.at is not None and began is not None else None,
    )


def _tools(answers: list[_Answer], named: list[str]) -> list[Any]:
    """Definitions of the tools used, and of those that the log only names."""
    used = tools_used(to_chat("anthropic", {"messages": [answer.message for answer in answers]}).messages)
    known = {tool["function"]["name"] for tool in used}
    empty = {"type": "object", "properties": {}}
    unused = [
        {"type": "function", "function": {"name": name, "description": f"Tool {name} of the recorded session.", "parameters": empty}}
        for name in named
        if name not in known
    ]
    every = sorted([*used, *unused], key=lambda tool: str(tool["function"]["name"]))
    found = to_body("anthropic", Chat(tools=every)).get("tools", [])
    return found if isinstance(found, list) else []


def _blocks(content: Any) -> list[Any]:
    """Content as blocks; empty texts, which the wire refuses, are left out."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
    return [b for b in blocks if isinstance(b, Mapping) and not (b.get("type") == "text" and not b.get("text"))]
