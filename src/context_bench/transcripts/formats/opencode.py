"""opencode: what `run --format json` prints, what `opencode export` writes, and the program's database.

`run` prints one event per line, each call with its result. An export (`{"info": …, "messages": [{"info": …, "parts":
[…]}]}`, one session a document) and the database (`~/.local/share/opencode/opencode.db`: all sessions; opened for
reading only, also while it is used) hold the same objects. In them an assistant's message is one reply of the model
(older programs put several into one, told apart by their steps) and holds the results of its calls. The system prompt
and the tools are not kept. A compaction is a message with a part `compaction`, answered by a summary.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.numbers import OPENCODE, count, moment, money, usage_of as counts_of, whole
from context_bench.core.records import Usage
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
from context_bench.transcripts.trace import grouped
from context_bench.transcripts.transcript import NO_PROMPT, Boundary, Message, ToolCall, Transcript, log_calls, run

#: What the program sends in place of a compaction's message, an output that it dropped, and a call that never ended.
_SO_FAR = "What did we do so far?"
_CLEARED = "[Old tool result content cleared]"
_INTERRUPTED = "[Tool execution was interrupted]"
_WIRES = {"anthropic": "anthropic", "openai": "openai-responses"}
#: Parts that say nothing of the conversation.
_ASIDE = ("snapshot", "patch", "agent", "retry", "step-finish", "subtask")
_MOST_MESSAGES = 50_000
_MOST_DROPPED = 5_000
Skip = Callable[[str], None]
MessageRecord = tuple[Mapping[str, Any], list[Mapping[str, Any]]]  # a message's own record, and its parts


def transcript_of(info: Mapping[str, Any], messages: Iterable[MessageRecord], skip: Skip) -> Transcript:
    """One session, from its own record and its messages in order."""
    one = Transcript(str(info.get("id") or ""), "opencode", "opencode", named=text(info.get("id")) is not None)
    one.cwd, one.version, one.parent = (
        text(info.get("directory")),
        text(info.get("version")),
        text(info.get("parentID")),
    )
    one.assumed, one.retrace = ["system", "tools"], log_calls
    if one.parent:
        one.meta["sidechain"] = True
    _Reading(one, skip).read(messages)
    return one


class _Reading:
    """One session being read.

    `places`: the first message that each record became. `cleared`: when outputs were dropped, by their calls, and `due`
    the next such moment. `asked`: the compaction that waits for its summary.
    """

    def __init__(self, one: Transcript, skip: Skip) -> None:
        self.one, self.skip = one, skip
        self.places: dict[str, Message] = {}
        self.cleared: dict[int, float] = {}
        self.due = inf
        self.asked: tuple[str, str | None] | None = None

    def read(self, messages: Iterable[MessageRecord]) -> None:
        for number, (info, parts) in enumerate(messages):
            if number >= _MOST_MESSAGES:
                self.skip("messages beyond the most that are read")
            elif info.get("role") == "user":
                self._user(info, parts)
            elif info.get("role") == "assistant":
                self._assistant(info, parts)
            else:
                self.skip(f"role {str(info.get('role'))[:40]}")

    def _user(self, info: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> None:
        compaction = next((part for part in parts if part.get("type") == "compaction"), None)
        if compaction is not None:
            self.asked = (str(info.get("id")), text(compaction.get("tail_start_id")))
            return
        content = [made for part in parts if (made := self._given(part)) is not None]
        if content:
            plain = len(content) == 1 and content[0].get("type") == "text"
            self._add(info, Message("user", content[0]["text"] if plain else content, at=_created(info)))

    def _given(self, part: Mapping[str, Any]) -> dict[str, Any] | None:
        """A part of the user's as the model was sent it."""
        kind, said = part.get("type"), part.get("text")
        if kind == "text":
            return (
                {"type": "text", "text": said} if isinstance(said, str) and said and not part.get("ignored") else None
            )
        if kind == "file":
            mime, url = str(part.get("mime")), part.get("url")
            if mime.startswith("image/") and isinstance(url, str):
                return {"type": "image_url", "image_url": {"url": url}}
            if mime not in ("text/plain", "application/x-directory"):  # those two are there as text
                self.skip(f"a file of type {mime[:40]}")
        elif kind not in _ASIDE:
            self.skip(f"part {str(kind)[:40]}")
        return None

    def _assistant(self, info: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> None:
        made = [message for step in _steps(parts) if (message := self._reply(info, step)) is not None]
        if not made:
            self.skip("an answer that failed" if info.get("error") else "an answer with nothing in it")
            return
        if len(made) == 1:  # the message's own figures are those of its one step, and there where the step has none
            made[0].usage = made[0].usage or usage_of(info.get("tokens"))
            made[0].cost = made[0].cost if made[0].cost is not None else money(info.get("cost"))
        self.one.model = self.one.model or made[0].model
        self.one.wire = _WIRES.get(str(info.get("providerID")), self.one.wire)
        if info.get("summary") is True and self.asked is not None:
            self._compacted(made[-1])
            return
        for message in made:
            self._drop_outputs(message.at)
            self._add(info, message)

    def _reply(self, info: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> Message | None:
        message = Message(
            "assistant", made=True, model=text(info.get("modelID")), at=_created(info), finish=text(info.get("finish"))
        )
        spoken: list[str] = []
        for part in parts:
            kind = part.get("type")
            if kind == "text" and isinstance(part.get("text"), str) and part["text"]:
                spoken.append(part["text"])
            elif kind == "reasoning":
                message.thoughts += ("\n" if message.thoughts else "") + str(part.get("text") or "")
                message.seal = (
                    text(mapping(mapping(part.get("metadata")).get("anthropic")).get("signature")) or message.seal
                )
            elif kind == "tool":
                message.calls.append(self._call(part, info))
            elif kind == "step-finish":
                message.usage, message.cost = usage_of(part.get("tokens")), money(part.get("cost"))
                message.finish = text(part.get("reason")) or message.finish
            elif kind not in (*_ASIDE, "text", "step-start"):
                self.skip(f"part {str(kind)[:40]}")
        message.content = spoken[0] if len(spoken) == 1 else [{"type": "text", "text": one} for one in spoken] or None
        return message if message.content or message.calls or message.thoughts else None

    def _call(self, part: Mapping[str, Any], info: Mapping[str, Any]) -> ToolCall:
        state, time = mapping(part.get("state")), mapping(mapping(part.get("state")).get("time"))
        meta, status = mapping(state.get("metadata")), state.get("status")
        call = ToolCall(
            str(part.get("tool")), parsed(state.get("input")), text(part.get("callID")), t=moment(time.get("start"))
        )
        call.place, call.cwd = text(part.get("id")), text(mapping(info.get("path")).get("cwd"))
        call.t = call.t if call.t is not None else _created(info)
        call.cut = bool(meta.get("truncated"))
        if status == "completed":
            call.answer(texts(state.get("output")) or "", exit_code=whole(meta.get("exit")), structured=meta)
        elif status == "error":
            begun = meta.get("output") if meta.get("interrupted") is True else None
            call.answer(text(begun) or text(state.get("error")) or "", failed=True, structured=meta)
        else:
            call.answer(_INTERRUPTED, failed=True)
        if (when := moment(time.get("compacted"))) is not None and len(self.cleared) < _MOST_DROPPED:
            self.cleared[id(call)] = when
            self.due = min(self.due, when)
        return call

    def _add(self, info: Mapping[str, Any], message: Message) -> None:
        message.ident = text(info.get("id"))
        self.places.setdefault(str(info.get("id")), message)
        self.one.add(message)

    def _drop_outputs(self, at: float | None) -> None:
        """Old outputs that the program had dropped by then are sent as dropped from here on."""
        if at is None or at < self.due or self.one.closed:
            return
        due = {call for call, when in self.cleared.items() if when <= at}
        self.cleared = {call: when for call, when in self.cleared.items() if call not in due}
        self.due = min(self.cleared.values(), default=inf)
        before = self.one.context.messages
        if any(id(call) in due for message in before for call in message.calls):
            self.one.restart([_dropped(message, due) for message in before], Boundary(trigger="prune", at=at))

    def _compacted(self, summary: Message) -> None:
        """Continue from the summary and the messages kept with it; the log does not keep the request for the
        summary.
        """
        _, tail = self.asked or ("", None)
        self.asked = None
        if "prompt" not in self.one.assumed:
            self.one.assumed.append("prompt")
        before = self.one.context.messages
        start = next(
            (place for place, message in enumerate(before) if message is self.places.get(tail or "")), len(before)
        )
        boundary = Boundary(self.one.context, summary=texts(summary.content) or "", made=summary, at=summary.at)
        self.one.restart([Message("user", NO_PROMPT)])
        self.one.add(summary)
        self.one.restart([Message("user", _SO_FAR), replace(summary, made=False), *before[start:]], boundary)


def _dropped(message: Message, due: set[int]) -> Message:
    if not any(id(call) in due for call in message.calls):
        return message
    return replace(
        message, calls=[replace(call, output=_CLEARED) if id(call) in due else call for call in message.calls]
    )


def _steps(parts: list[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The parts of each reply in a message."""
    step: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _created(info: Mapping[str, Any]) -> float | None:
    return moment(mapping(info.get("time")).get("created"))


def usage_of(raw: Any) -> Usage | None:
    """Usage of a reply as opencode states it: `input` leaves out the cached tokens, `output` (where `total` shows it)
    the thoughts.
    """
    usage, total = counts_of(raw, OPENCODE), count(mapping(raw).get("total"))
    if usage is None:
        return None
    made, thought = usage.output_tokens, usage.reasoning_tokens
    if usage.input_tokens is not None and made is not None and thought and total == usage.input_tokens + made + thought:
        usage.output_tokens = made + thought
    return usage


def family_roots(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Session → the one that it helped in the end (itself, if none of these), by session → the one that started it."""
    roots: dict[str, str] = {}
    for name in parents:
        way = {name: None}
        at = name
        while at not in roots and (above := parents.get(at)) is not None and above in parents and above not in way:
            at = above
            way[at] = None
        root = roots.get(at, at)
        roots.update(dict.fromkeys(way, root))
    return roots


def joined(transcripts: Iterable[Transcript]) -> Iterator[Transcript]:
    """Each run with those that helped it."""
    known = {one.ident: one for one in transcripts}
    roots = family_roots({name: one.parent for name, one in known.items()})
    for name, one in known.items():
        if roots[name] in known and roots[name] != name:
            known[roots[name]].within.append(one)
    yield from (one for name, one in known.items() if roots[name] not in known or roots[name] == name)


def _is_export(peek: Peek) -> bool:
    """True if the first object is a session with its messages."""
    first = peek.first
    return (
        _is_session(first)
        and isinstance(first["info"].get("id"), str)
        and all(
            isinstance(m, dict) and isinstance(m.get("info"), dict) and isinstance(m.get("parts"), list)
            for m in first["messages"][:20]
        )
    )


def _exported(source: LogSource) -> Iterator[Transcript]:
    """One session per object, sub-agents' with the one that they helped where both are in the file."""
    rows = source.rows(_is_session, "not a session")
    yield from joined(transcript_of(row["info"], map(_record, row["messages"]), source.skip) for row in rows)


def _is_session(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("info"), dict) and isinstance(row.get("messages"), list)


def _record(message: Any) -> MessageRecord:
    return mapping(mapping(message).get("info")), list(map(mapping, sequence(mapping(message).get("parts"))))


def _is_printed(peek: Peek) -> bool:
    """True if a line has the program's envelope."""
    return any("sessionID" in row and isinstance(row.get("part"), Mapping) for row in map(mapping, peek.sample))


def _printed(source: LogSource) -> Iterator[Transcript]:
    """One run per session id in the file."""
    runs: dict[str, Transcript] = {}
    for row in map(mapping, source.values()):
        name = text(row.get("sessionID")) or next(reversed(runs), "")
        one = runs.setdefault(name, run("opencode", None))
        if why := _take(row, one):
            one.skip(why)
    yield from (one for one in runs.values() if one.filled)


def _take(row: Mapping[str, Any], one: Transcript) -> str | None:
    kind, part, t = row.get("type"), mapping(row.get("part")), one.at(moment(row.get("timestamp")))
    if kind == "step_start":
        one.turns += 1
        one.reply(at=t)
    elif kind == "tool_use":
        _tool(part, one, t)
    elif kind == "step_finish":
        _finished(part, one)
    elif kind == "text" and (said := text(part.get("text"))):
        one.speaking(at=t).say(said)
    elif kind == "reasoning":
        reply = one.speaking(at=t)
        reply.thoughts = reply.thoughts or text(part.get("text")) or ""
    elif kind != "text":
        return f"type {str(kind)[:40]}"
    return None


def _tool(part: Mapping[str, Any], one: Transcript, t: float | None) -> None:
    state = mapping(part.get("state"))
    meta = mapping(state.get("metadata"))
    call = one.find(part.get("callID"))
    if call is None:
        call = one.call(part.get("tool"), state.get("input"), part.get("callID"), t=t, place=text(part.get("id")))
        one.speaking(at=t).calls.append(call)
    if state.get("status") in ("completed", "error"):
        # `truncated` of a read also says that there is more in the file; what was shown is numbered.
        call.cut = bool(meta.get("truncated"))
        output = texts(state.get("output")) or text(state.get("error")) or ""
        call.answer(
            output,
            failed=True if state.get("status") == "error" else None,
            exit_code=whole(meta.get("exit")),
            structured=meta,
        )


def _finished(part: Mapping[str, Any], one: Transcript) -> None:
    one.billed(usage_of(part.get("tokens")))
    if (cost := money(part.get("cost"))) is not None:
        one.cost = (one.cost or 0.0) + cost


_TABLES = {
    "session": {"id"},
    "message": {"id", "session_id", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
#: Columns of a session and how its exported record calls them.
_INFO = {"id": "id", "parent_id": "parentID", "directory": "directory", "version": "version"}
#: What one query, one row and one session may take.
_SECONDS = 60.0
_LARGEST = 32 * 1024 * 1024
_MOST_SESSIONS = 100_000
_MOST_PARTS = 200_000
_MOST_BYTES = 1024 * 1024 * 1024


def _is_database(peek: Peek) -> bool:
    """True if the file is an SQLite database with opencode's tables."""
    if not peek.start.startswith(b"SQLite format 3\0"):
        return False
    with closing(_opened(peek.path)) as base:
        return _is_opencode(base, peek.path)


def _stored(source: LogSource) -> Iterator[Transcript]:
    """Every session, in the order in which they began, sub-agents' with the one that they helped."""
    with closing(_opened(source.path)) as base:
        infos = {str(info["id"]): info for info in _sessions(base, source)}
        roots = family_roots({name: info.get("parentID") for name, info in infos.items()})
        for names in grouped((root, name) for name, root in roots.items()).values():
            read = [transcript_of(infos[name], _messages(base, name, source), source.skip) for name in names]
            yield from joined(read)


def _opened(path: Path) -> sqlite3.Connection:
    """The database, for reading only; what is in it cannot make the reader run anything."""
    try:
        return _connected(path, "mode=ro")
    except sqlite3.Error as error:
        # where nothing can be written, a database that nobody writes to is read as it stands
        if path.with_name(path.name + "-wal").exists():
            raise BadInput(
                f"cannot read {path}: {error}; its folder must be one that can be written to, or copy it"
            ) from error
    try:
        return _connected(path, "mode=ro&immutable=1")
    except sqlite3.Error as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def _connected(path: Path, how: str) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=5, check_same_thread=False)
    try:
        base.execute("PRAGMA query_only = 1")
        base.execute("PRAGMA trusted_schema = 0")
        base.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error:
        base.close()
        raise
    return base


def _asked(base: sqlite3.Connection, path: Path, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a query. `BadInput` if the database is broken, or takes too long."""
    until = time.monotonic() + _SECONDS
    base.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    try:
        yield from base.execute(query, values)
    except sqlite3.Error as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def _is_opencode(base: sqlite3.Connection, path: Path) -> bool:
    """True if the tables and columns are there, and are tables."""
    kinds = dict(
        _asked(base, path, "SELECT name, type FROM sqlite_master WHERE name IN ('session', 'message', 'part')")
    )
    return all(
        kinds.get(table) == "table" and columns <= _columns(base, path, table) for table, columns in _TABLES.items()
    )


def _columns(base: sqlite3.Connection, path: Path, table: str) -> set[str]:
    return {str(row[1]) for row in _asked(base, path, f"PRAGMA table_info({table})")}


def _sessions(base: sqlite3.Connection, source: LogSource) -> Iterator[dict[str, Any]]:
    known = _columns(base, source.path, "session")
    columns = [name for name in _INFO if name in known]
    order = "time_created, id" if "time_created" in known else "id"
    query = f"SELECT {', '.join(columns)} FROM session ORDER BY {order} LIMIT {_MOST_SESSIONS + 1}"
    for number, row in enumerate(_asked(base, source.path, query)):
        if number == _MOST_SESSIONS:
            source.skip("sessions beyond the most that are read")
        elif isinstance(row[columns.index("id")], str):
            yield {_INFO[name]: value for name, value in zip(columns, row, strict=True) if value is not None}
        else:
            source.skip("a session without an id")


def _messages(base: sqlite3.Connection, session: str, source: LogSource) -> Iterator[MessageRecord]:
    """A session's messages with their parts, in order."""
    of_session = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY id"
    rows = ((str(message), ident, data) for message, ident, data in _rows(base, source, of_session, session))
    parts: dict[str, list[Mapping[str, Any]]] = grouped(
        (message, {**data, "id": ident}) for message, ident, data in rows if isinstance(data, dict)
    )
    ordered = "SELECT id, id, data FROM message WHERE session_id = ? ORDER BY "
    order = "time_created, id" if "time_created" in _columns(base, source.path, "message") else "id"
    for ident, _, data in _rows(base, source, ordered + order, session):
        yield {**mapping(data), "id": ident}, parts.pop(str(ident), [])


def _rows(base: sqlite3.Connection, source: LogSource, query: str, session: str) -> Iterator[tuple[Any, Any, Any]]:
    """Rows whose last column is JSON; what is too large, or none, is counted."""
    left = _MOST_BYTES
    for number, (first, second, data) in enumerate(
        _asked(base, source.path, query.replace(" data ", _BOUNDED), session)
    ):
        if number >= _MOST_PARTS or left < 0:
            source.skip("records beyond the most that are read")
            return
        if not isinstance(data, str):
            source.skip("a record that is no text, or too large")
            continue
        left -= len(data)
        try:
            yield first, second, load_json(data)
        except ValueError:
            source.skip("not JSON")


_BOUNDED = f" CASE WHEN length(data) <= {_LARGEST} THEN data END "


FORMAT = {
    "opencode": Format("opencode", 190, _is_printed, _printed, about="What opencode's `run --format json` prints."),
    "opencode_export": Format(
        "opencode-export", 30, _is_export, _exported, conversation=True, about="Output of `opencode export`."
    ),
    "opencode_database": Format(
        "opencode-database",
        10,
        _is_database,
        _stored,
        conversation=True,
        about="opencode's database, which holds all sessions.",
    ),
}
