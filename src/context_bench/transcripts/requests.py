"""Logs of requests: which lines are one conversation, and what was replied.

A log is read twice: once for who belongs to whom (only places in the file are kept), then session by session, so that
memory holds one session at a time, each of its messages once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.records import Usage
from context_bench.transcripts.format import Format, LogSource, Place
from context_bench.transcripts.session import (
    UNNAMED,
    WIRE_HEADERS,
    RecordedReply,
    SessionRequest,
    conversation,
    verbatim,
)
from context_bench.transcripts.transcript import Transcript
from context_bench.wire.conversation import ITEMS, ChatMessage, message_text, to_chat
from context_bench.wire.request import SYSTEM_ROLES

#: Where a log line holds the body, and where the reply.
REQUEST = ("request", "body", "params")
REPLY = ("response", "reply")
_SESSION_KEYS = ("session_id", "sessionId", "conversation_id", "thread_id", "trace_id")
#: Fields of a log line that are the log's and not the body's, where a line is both.
COLUMNS = frozenset({*REPLY, *_SESSION_KEYS, "id", "timestamp"})
#: What gateways log among a body's fields and no wire has there: who asked, with which key.
_LOGINS = frozenset({"headers", "extra_headers", "default_headers", "http_headers", "api_key", "authorization"})


@dataclass(slots=True)
class Logged:
    """One line of a request log. `session`: its name in the log. `whole`: it holds a finished
    conversation, replies and all.

    `reply`: the assistant's chat message. `at` in seconds since any fixed moment. `answer_id`: what the provider calls
    this reply; `follows`: the reply that the request goes on from without repeating what was said before it.
    """

    wire: str
    body: dict[str, Any]
    reply: ChatMessage | None = None
    usage: Usage | None = None
    model: str | None = None
    at: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""
    session: str | None = None
    whole: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    answer_id: str | None = None
    follows: str | None = None

    def __post_init__(self) -> None:
        if not _LOGINS.isdisjoint(self.body):
            self.body = {name: value for name, value in self.body.items() if name not in _LOGINS}


#: Why a line without a body is passed over.
NO_BODY = "no body recorded"

Reader = Callable[[Any], Logged | str]  # a line → what it is, or why it is passed over


def request_and_reply(
    value: Any, fields: Collection[str]
) -> tuple[Mapping[str, Any], dict[str, Any], Mapping[str, Any] | None] | None:
    """A line of a log as an object, the request's body in it, and the reply's if it is there; `None` where the line is
    no object.

    A list is the messages of a body. Of a line that is the body itself, what belongs to the log is left out; one
    without a model is a row of a data set with columns of any name, and only `fields` are of the body.
    """
    row: Any = {"messages": value} if isinstance(value, list) else value
    if not isinstance(row, Mapping):
        return None
    held = next((row[name] for name in REQUEST if isinstance(row.get(name), Mapping)), None)
    if held is not None:
        body = dict(held)
    elif isinstance(row.get("model"), str):
        body = {key: item for key, item in row.items() if key not in COLUMNS}
    else:
        body = {key: item for key, item in row.items() if key in fields}
    replied = next((row[name] for name in REPLY if isinstance(row.get(name), Mapping)), None)
    inner = replied["body"] if replied is not None and isinstance(replied.get("body"), Mapping) else replied
    return row, body, inner


def session_named(*holders: Any) -> str | None:
    """Name of the session in a log line, its body or its metadata."""
    for holder in holders:
        if isinstance(holder, Mapping):
            metadata = holder.get("metadata")
            names = [holder.get(name) for name in (*_SESSION_KEYS, "prompt_cache_key")]
            names += (
                [metadata.get(name) for name in (*_SESSION_KEYS, "user_id")] if isinstance(metadata, Mapping) else []
            )
            for name in (*names, holder.get("user")):
                if isinstance(name, str) and name:
                    return _without_person(name)
    return None


def _without_person(name: str) -> str:
    """The session in what Claude Code calls its user; accounts and devices are nobody's business."""
    found = re.search(r"session_(?:id\W+)?([0-9a-f]{8}-[0-9a-f-]{27})", name)
    return found[1] if found else name


def request_log(name: str, rank: int, read: Reader, about: str) -> Format[Iterator[Transcript]]:
    """The format of a log of requests: any of the first lines can be read as one."""
    return Format(
        name,
        rank,
        lambda peek: any(not isinstance(read(value), str) for value in peek.sample),
        lambda source: transcripts_of(source, name, read),
        conversation=True,
        calls=False,
        about=about,
    )


def transcripts_of(source: LogSource, name: str, read: Reader) -> Iterator[Transcript]:
    """The runs of a request log, in order of their first lines."""
    for number, (session, places) in enumerate(conversations(source, read), 1):
        yield transcript_of(source, name, read, session, number, places)


def transcript_of(
    source: LogSource, name: str, read: Reader, session: str | None, number: int, places: list[Place]
) -> Transcript:
    """One run of a request log, whose lines are read when its requests are asked for. Without a name of its own it has
    the file's, and the number that it has there.
    """
    one = Transcript(session or f"{source.stem}-{number}", name, "tap", named=False)
    one.meta = {} if session else {UNNAMED: True}
    one.sent = lambda: _sent(one, [line for line in map(read, source.at(places)) if isinstance(line, Logged)])
    return one


@dataclass(slots=True)
class _Thread:
    """A conversation that is still open: where its lines are, and how long it was at its beginning and at the last."""

    session: str | None
    places: list[Place]
    first: int
    last: str


def conversations(source: LogSource, read: Reader) -> list[tuple[str | None, list[Place]]]:
    """The name of each conversation of a log and where its lines are, in order of their first lines.

    Lines that are passed over are counted in `source.skipped`. A log whose records hold no bodies raises `BadInput`.
    """
    groups = _groups(source, read)
    if not groups and set(source.skipped) <= {NO_BODY}:
        raise BadInput(
            f"{source.path}: its {source.skipped.total()} records hold no bodies; record with --record full or "
            "redacted to see what was "
            "read or to replay them"
        )
    return groups


def _groups(source: LogSource, read: Reader) -> list[tuple[str | None, list[Place]]]:
    groups: list[_Thread] = []
    opened: dict[str, _Thread] = {}
    answered: dict[str, _Thread] = {}
    for place, value in source.placed():
        line = read(value)
        if isinstance(line, str):
            source.skip(line)
            continue
        items = items_of(line)
        same = stable_hash([line.wire, items])
        key = stable_hash([line.session, line.wire, *_opening(line)])
        thread = opened.get(key)
        if line.follows in answered:
            thread = answered[line.follows]
        elif (
            line.whole
            or thread is None
            or (line.session is None and len(items) <= thread.first and same != thread.last)
        ):
            thread = _Thread(line.session, [], len(items), same)
            groups.append(thread)
        if not line.whole:
            opened[key] = thread
        if line.answer_id:
            answered[line.answer_id] = thread
        thread.places.append(place)
        thread.last = same
    return _named(groups)


def _named(groups: list[_Thread]) -> list[tuple[str | None, list[Place]]]:
    """One name for one session: a second conversation under the same name (a sub-agent, a side question) gets a
    number.
    """
    seen: dict[str, int] = {}
    named: list[tuple[str | None, list[Place]]] = []
    for thread in groups:
        session = thread.session
        if session is not None:
            seen[session] = seen.get(session, 0) + 1
            session = session if seen[session] == 1 else f"{session}#{seen[session]}"
        named.append((session, thread.places))
    return named


def items_of(line: Logged) -> list[Any]:
    """The items of the conversation in a request."""
    items = line.body.get(ITEMS.get(line.wire, ""))
    return items if isinstance(items, list) else [items]


def _opening(line: Logged) -> list[Any]:
    """Key that all requests of one conversation share: the instructions and the first message."""
    items = items_of(line)
    spoken = [item for item in items if not (isinstance(item, Mapping) and item.get("role") in SYSTEM_ROLES)]
    system = [line.body.get("system"), line.body.get("instructions"), *items[: len(items) - len(spoken)]]
    return [_unmarked(system), _unmarked(spoken[:1])]


def _unmarked(value: Any) -> Any:
    """Without cache marks, which wander from request to request, and with one text as a list of blocks like any
    other.
    """
    if isinstance(value, Mapping):
        kept = {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
        if isinstance(kept.get("content"), str):
            kept["content"] = [{"type": "text", "text": kept["content"]}]
        return kept
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _sent(one: Transcript, lines: list[Logged]) -> list[SessionRequest]:
    first = lines[0]
    one.wire = first.wire
    one.meta |= {**first.meta, "reconstructed": first.whole, **({"began": first.at} if first.at is not None else {})}
    if first.whole:
        chat = to_chat(first.wire, first.body)
        requests = conversation(chat.messages, model=chat.model, tools=chat.tools, params=chat.params)
        for request in requests[-1:]:
            if request.recorded_reply:
                request.recorded_reply.usage = first.usage
        return requests
    shared: dict[str, Any] = {}
    requests = [_request(line, first.at, shared) for line in lines]
    for request, later in pairwise(requests):
        if request.recorded_reply is None:
            request.recorded_reply = _answer_in(request, later)
    return requests


def _request(line: Logged, start: float | None, shared: dict[str, Any]) -> SessionRequest:
    reply = None
    if line.reply is not None:
        reply = RecordedReply.of(line.reply, usage=line.usage, model=line.model or line.body.get("model"))
    at = line.at - start if line.at is not None and start is not None else None
    headers = {**WIRE_HEADERS.get(line.wire, {}), **line.headers}
    return verbatim(line.wire, _shared(line, shared), recorded_reply=reply, at=at, headers=headers, path=line.path)


def _shared(line: Logged, shared: dict[str, Any]) -> dict[str, Any]:
    """The body with every message (and tool list) that an earlier body had too as that very object."""
    body = line.body
    for name in (ITEMS.get(line.wire, ""), "tools", "system"):
        if isinstance(body.get(name), list):
            body[name] = [shared.setdefault(canonical_json(item), item) for item in body[name]]
    return body


def _answer_in(request: SessionRequest, later: SessionRequest) -> RecordedReply | None:
    """The reply to a request as the next one repeats it in its history."""
    before, after = request.messages, later.messages
    if len(after) <= len(before) or after[len(before)].get("role") != "assistant":
        return None
    if [message_text(m) for m in after[: len(before)]] != [message_text(m) for m in before]:
        return None
    return RecordedReply.of(after[len(before)], model=request.body.get("model"))
