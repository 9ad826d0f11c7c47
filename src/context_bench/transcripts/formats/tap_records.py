"""Records of `context-bench tap --out`, kept with the policies `full` or `redacted`: bodies as they reached the
provider.

Requests that the provider refused, token counts and other routes are passed over and counted; a record without a body
cannot be replayed. A request repeats what was said before it, so that a trace meets each call many times and counts it
once. A sub-agent's conversation is recognised by the task that a call of its parent gave it, and its calls are the
parent's `sidechain` ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from context_bench.core.keys import hash_text
from context_bench.core.numbers import moment, usage_of
from context_bench.transcripts.dialogue import (
    Dialogue,
    ModelInput,
    ModelOutput,
    reply_items,
    spoken,
    task_key,
)
from context_bench.transcripts.format import Format, LogSource, Peek, Place, mapping, parsed, text
from context_bench.transcripts.requests import NO_BODY, Logged, conversations, items_of, session_named, transcript_of
from context_bench.transcripts.trace import grouped
from context_bench.transcripts.transcript import ToolCall, Transcript, fenced, run
from context_bench.wire.conversation import ITEMS, WIRES, reply_message

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
        one = transcript_of(source, NAME, logged, session or f"{source.path.stem}-{number}", places)
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


FORMAT = Format(NAME, 60, sniff, read, conversation=True)
