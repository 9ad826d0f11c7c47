"""Records of `context-bench tap --out`: what an agent without logs of its own asked for and was shown, told by its requests.

A request repeats what was said before it, so that each call is met many times and counts once. A conversation is what `logs.requests` takes
for one; a sub-agent's is recognised by the task that a call of its parent gave it, and its calls are the parent's `sidechain` ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from context_bench.transcripts.formats import tap_records
from context_bench.transcripts.formats.tap_records import matches as matches
from context_bench.transcripts.requests import Logged, conversations
from context_bench.transcripts.source import Place, Source
from context_bench.transcripts.traces.fenced import fenced
from context_bench.transcripts.traces.recording import Recording, ToolCall, mapping, parsed, run
from context_bench.transcripts.traces.talk import Talk, items_of, task_key
from context_bench.transcripts.traces.wire import Said, Told, reply_items, spoken
from context_bench.transcripts.values import text

NAME = "tap"
#: Arguments of a call that may give a sub-agent its task; shorter ones are names.
_TASKS, _TASK_LENGTH = ("prompt", "task", "instructions", "message"), 12


@dataclass(slots=True)
class _Line:
    """One record: the request, and the reply as it came."""

    logged: Logged
    reply: list[Any]


@dataclass(slots=True)
class _Thread:
    """One conversation of the file. `task`: the key of its first prompt where a call of another one gave it."""

    told: str | None
    places: list[Place]
    tools: bool
    task: str | None


def recordings(source: Source) -> Iterator[Recording]:
    """One run per conversation that can call tools, or per conversation if none can."""
    tasks: set[str] = set()

    def read(value: Any) -> Logged | str:
        line = _line(value)
        if isinstance(line, str):
            return line
        tasks.update(key for item in line.reply for key in _given(line.logged.wire, item))
        return line.logged

    groups, _ = conversations(source, read, "see what was read")
    threads = [_thread(source, told, places, tasks) for told, places in groups]
    children: dict[str, list[_Thread]] = {}
    for thread in threads:
        if thread.task:
            children.setdefault(thread.task, []).append(thread)
    runs = [thread for thread in threads if not thread.task]
    if any(thread.tools for thread in runs):
        if idle := sum(not thread.tools for thread in runs):
            source.skipped["a conversation without tools"] += idle
        runs = [thread for thread in runs if thread.tools]
    for thread in runs:
        recording = _recorded(source, thread, children)
        if len(runs) > 1 and thread.told:
            recording.head.instance_id, recording.named = thread.told, True
        yield recording


def _line(value: Any) -> _Line | str:
    logged = tap_records.read(value)
    if isinstance(logged, str):
        return logged
    reply = mapping(value.get("reply"))
    logged.answer_id = text(reply.get("id"))
    logged.follows = text(logged.body.get("previous_response_id"))
    return _Line(logged, reply_items(logged.wire, reply))


def _thread(source: Source, told: str | None, places: list[Place], tasks: set[str]) -> _Thread:
    (first,) = (line for line in map(_line, source.at(places[:1])) if isinstance(line, _Line))
    wire, body = first.logged.wire, first.logged.body
    items = items_of(first.logged)
    prompts = [part for item in items for one in spoken(wire, item) if isinstance(one, Told) for part in one.parts]
    blocks = (fenced(one.text) for item in (*items, *first.reply) for one in spoken(wire, item) if isinstance(one, Said))
    task = next((key for part in prompts if (key := task_key(part)) in tasks), None)
    return _Thread(told, places, bool(body.get("tools") or body.get("functions")) or any(blocks), task)


def _given(wire: str, item: Any) -> Iterator[str]:
    """Keys of the tasks that the calls of a reply may give to sub-agents."""
    for one in spoken(wire, item):
        for _, _, arguments, _ in one.calls if isinstance(one, Said) else ():
            yield from _task_keys(arguments)


def _task_keys(arguments: Any) -> Iterator[str]:
    told = mapping(parsed(arguments))
    for name in _TASKS:
        if isinstance(task := told.get(name), str) and len(task) >= _TASK_LENGTH:
            yield task_key(task)


def _recorded(source: Source, thread: _Thread, children: dict[str, list[_Thread]]) -> Recording:
    """The run of one conversation, with those of its sub-agents in it."""
    talk = Talk(run("tap", None, lasting_shell=True))
    for line in map(_line, source.at(thread.places)):
        if isinstance(line, _Line):
            talk.take(line.logged, line.reply)
    recording = talk.recording
    calls: list[ToolCall] = []
    for call in recording.calls:
        calls.append(call)
        for key in _task_keys(call.arguments):
            if waiting := children.get(key):
                calls += _by_child(recording, _recorded(source, waiting.pop(0), children))
                break
    recording.calls = calls
    return recording


def _by_child(parent: Recording, child: Recording) -> list[ToolCall]:
    turns = parent.turns
    parent.turns += child.turns
    parent.billed(child.head.usage)
    parent.at(child.head.started)
    parent.at(child.head.ended)
    parent.head.skipped.update(child.head.skipped)
    return [replace(call, sidechain=True, turn=turns + call.turn if call.turn else None) for call in child.calls]
