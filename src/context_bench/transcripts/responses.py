"""What Codex's two logs have in common: items of the Responses wire, cut into answers, as requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from context_bench.core.records import Usage
from context_bench.transcripts.session import RecordedReply, Session, SessionRequest, reconstructed
from context_bench.wire.conversation import Chat, reply_message, to_body, to_chat, tools_used

#: Stands for a prompt that the log does not hold.
NO_PROMPT = "(The prompt was not recorded.)"


@dataclass(slots=True)
class _Answer:
    items: list[dict[str, Any]]
    start: int
    head: dict[str, Any]
    at: float | None
    stop: int
    usage: Usage | None = None


@dataclass
class Rollout:
    """One conversation of input items, fed item by item. `head`: the fields of the body as they are now."""

    head: dict[str, Any] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    answers: list[_Answer] = field(default_factory=list)
    compactions: int = 0
    unprompted: bool = False
    _answering: bool = False

    def made(self, item: dict[str, Any], at: float | None = None) -> None:
        """An item that the model made; a new answer begins if the last item was not the model's."""
        if not self._answering:
            if not self.items:
                self.unprompted = True
                self.items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": NO_PROMPT}]})
            self.answers.append(_Answer(self.items, len(self.items), dict(self.head), at, len(self.items)))
            self._answering = True
        self.items.append(item)
        self.answers[-1].stop = len(self.items)

    def given(self, item: dict[str, Any]) -> None:
        """An item that the model was given."""
        self.items.append(item)
        self._answering = False

    def billed(self, usage: Usage | None) -> None:
        """Usage of the last answer."""
        if self.answers and usage is not None:
            self.answers[-1].usage = usage

    def restarted(self, items: list[dict[str, Any]]) -> None:
        """A compaction: the context is now these items."""
        self.items, self._answering = items, False
        self.compactions += 1

    def session(self, ident: str, source: str, meta: dict[str, Any]) -> Session:
        """The session, its bodies put together; tools by their names and use, since they are not in the log."""
        every = [item for answer in self.answers for item in answer.items[answer.start : answer.stop]]
        tools = _tools(every)
        extra: dict[str, Any] = {"tools": tools} if tools else {}
        began = next((answer.at for answer in self.answers if answer.at is not None), None)
        requests = [_request(answer, extra, began) for answer in self.answers]
        assumed = [*(["tools"] if tools else []), *([] if "instructions" in self.head else ["instructions"])]
        assumed += ["prompt"] if self.unprompted else []
        changes = {"compactions": self.compactions} if self.compactions else {}
        rest = self.items[self.answers[-1].stop :] if self.answers and self.answers[-1].items is self.items else []
        after = to_chat("openai-responses", {"input": rest}).messages
        meta = {**meta, "reconstructed": True, "assumed": assumed, **changes}
        return Session(ident, source, "openai-responses", requests, meta, after)


def _tools(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Definitions of the tools called: functions, and those that take plain text."""
    plain = {item.get("name") for item in items if item.get("type") == "custom_tool_call"}
    used = to_body("openai-responses", Chat(tools=tools_used(to_chat("openai-responses", {"input": items}).messages))).get("tools", [])
    return [
        {"type": "custom", "name": tool["name"], "description": tool["description"]} if tool["name"] in plain else tool for tool in used
    ]


def _request(answer: _Answer, extra: dict[str, Any], began: float | None) -> SessionRequest:
    head = {"model": "", **answer.head, **extra, "store": False}
    message = reply_message("openai-responses", {"output": answer.items[answer.start : answer.stop]}) or {}
    return reconstructed(
        "openai-responses",
        head,
        answer.items,
        0,
        answer.start,
        recorded_reply=RecordedReply.of(message, usage=answer.usage, model=head["model"] or None),
        at=answer.at - began if answer.at is not None and began is not None else None,
    )
