"""Claude Code: its own transcripts (`~/.claude/projects/<folder>/<session>.jsonl`, and its sub-agents' files), and what
`--output-format stream-json --verbose` prints (`json --verbose` is the same as one list).

Lines of types `user` and `assistant` are the conversation; others are bookkeeping, and kinds that nobody knows are
counted. A sub-agent (`isSidechain`, in the stream `parent_tool_use_id`) is a session of its own, and part of its run's
trace. Bodies were not recorded. The stream has the prompt only if the program was told to repeat it; its closing
`result` line gives totals and the price.

One answer of the model is spread over several lines with the same `message.id` and the same usage. Everything said
before an answer's first line is what the model was sent for it. A compaction starts a new context; a prompt that
continues from an earlier message (a rewind) drops what came after that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from context_bench.core.numbers import ANTHROPIC, moment, money, usage_of, whole
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.transcripts.account import is_placeholder
from context_bench.transcripts.format import (
    PACKINGS,
    Format,
    LogSource,
    Peek,
    View,
    is_note,
    mapping,
    sequence,
    text,
    texts,
    unpacked_name,
)
from context_bench.transcripts.session import RecordedReply, reply_texts, summary_in
from context_bench.transcripts.transcript import NO_PROMPT, Boundary, Context, Message, Transcript, run
from context_bench.wire.conversation import MAX_TOKENS, reply_message

NAME, _STREAM = "claude-code-transcript", "claude-code-stream"
_SPOKEN = ("user", "assistant")
_TOLD = ("cwd", "gitBranch", "version")
#: Kinds of lines that are the program's own bookkeeping: known, of no use here, and no news to a reader.
_BOOKKEEPING = frozenset(
    (
        *("agent-color", "agent-name", "agent-setting", "ai-title", "attachment", "bridge-session"),
        *("content-replacement", "cost-state", "custom-title", "file-history-delta", "file-history-snapshot"),
        *("fork-context-ref", "last-prompt", "mode", "permission-mode", "pr-link", "progress"),
        *("queue-operation", "speculation-accept", "summary", "system", "tag", "task-summary"),
        *("worktree-state"),
    )
)
_USES = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_result", "mcp_tool_result")


class ClaudeThread:
    """One conversation of a run (the main one, or a sub-agent's), fed line by line into its transcript."""

    def __init__(self, one: Transcript) -> None:
        self.one = one
        one.wire, one.assumed = "anthropic", ["system", "max_tokens", "tools"]
        one.tools, one.head = [], {"max_tokens": MAX_TOKENS}
        self._start = 0  # messages in contexts that were compacted
        self._kept: list[Message] = []  # those of the last one that stay behind its summary
        self._answer: Message | None = None
        self._context: Context | None = None
        self._places: dict[str, int] = {}

    def assistant(
        self, ident: str | None, message: Mapping[str, Any], blocks: list[dict[str, Any]], usage: Usage | None, at: Any
    ) -> Message | None:
        """Read a line with (a part of) an answer, of this id; returns the answer."""
        if not blocks:
            return None
        answer = self._answer
        if answer is None or ident is None or answer.ident != ident or self._context is not self.one.context:
            answer = self._new(moment(at), ident, message.get("model"))
        content = answer.items[0]["content"] if answer.items else []
        content += [block for block in blocks if block not in content] if content else blocks
        answer.usage = usage or answer.usage
        answer.finish = text(message.get("stop_reason")) or answer.finish
        return answer

    def user(self, blocks: list[dict[str, Any]], ident: str | None, parent: str | None) -> None:
        """Read a line with a prompt or with tools' results."""
        if not blocks:
            return
        one, place = self.one, self._places.get(parent) if parent is not None else None
        rewound = place is not None and self._start < place < self._length()
        if place is not None and rewound and not any(block.get("type") == "tool_result" for block in blocks):
            one.restart(one.context.messages[: place - self._start])
            one.meta["rewinds"] = one.meta.get("rewinds", 0) + 1
        said = one.context.messages
        if len(said) > one.context.carried and said[-1].role == "user" and said[-1].items:
            joined = [*said[-1].items[0]["content"], *blocks]
            said[-1] = replace(said[-1], items=[{"role": "user", "content": joined}])
        else:
            one.add(Message("user", items=[{"role": "user", "content": blocks}]))
        self.passed(ident)

    def compacted(self, facts: Mapping[str, Any], at: Any = None) -> None:
        """Start a new context with what comes now. `facts`: what the log says of the compaction."""
        one = self.one
        if not one.context.messages or one.closed:
            return
        before, start = one.context.messages, self._start
        idents = sequence(mapping(facts.get("preservedMessages")).get("uuids"))
        places = [self._places[ident] - start - 1 for ident in idents if ident in self._places]
        self._kept = [before[place] for place in dict.fromkeys(places) if 0 <= place < len(before)]
        self._start = self._length()
        spent = whole(facts.get("durationMs", facts.get("duration_ms")))
        boundary = Boundary(
            trigger=text(facts.get("trigger")),
            stated_before=whole(facts.get("preTokens", facts.get("pre_tokens"))),
            stated_after=whole(facts.get("postTokens", facts.get("post_tokens"))),
            seconds=spent / 1000 if spent is not None else None,
            at=moment(at),
        )
        one.restart([], boundary)
        one.meta["compactions"] = one.meta.get("compactions", 0) + 1

    def summarised(self, ident: str | None) -> None:
        """Take the message just read for the summary of the context before; what was kept of that stands behind it."""
        context = self.one.context
        if context.boundary is None or len(context.messages) != 1 or context.boundary.summary:
            return
        context.boundary.summary = texts(context.messages[0].items) or ""
        context.boundary.opening = [*context.messages, *self._kept]
        if self._kept:
            context.messages += self._kept
            context.carried = len(context.messages)
            self.passed(ident)

    def passed(self, ident: str | None) -> None:
        """Note where a line stands that others may point to."""
        if ident is not None:
            self._places[ident] = self._length()

    def _length(self) -> int:
        return self._start + len(self.one.context.messages)

    def _new(self, at: float | None, ident: str | None, model: Any) -> Message:
        one = self.one
        if not one.context.messages:
            one.assumed += [] if "prompt" in one.assumed else ["prompt"]
            one.add(Message("user", items=[{"role": "user", "content": [{"type": "text", "text": NO_PROMPT}]}]))
        answer = Message("assistant", ident=ident, made=True, at=at, model=model if isinstance(model, str) else None)
        answer.items = [{"role": "assistant", "content": []}]
        self._answer, self._context = one.add(answer), one.context
        return answer


@dataclass
class ClaudeRun:
    """One run, fed message by message: its main thread and its sub-agents', whose calls stand in one order.

    `placeholders`: blocks of the answers whose output tokens are no count.
    """

    one: Transcript = field(default_factory=lambda: run("claude-code", None, lasting_shell=True))
    log_format: str = NAME
    view: View = "whole"
    threads: dict[str | None, ClaudeThread] = field(default_factory=dict)
    _usage: dict[str, Usage] = field(default_factory=dict)
    _placeholders: dict[str, list[Any]] = field(default_factory=dict)
    _models: dict[str, None] = field(default_factory=dict)
    _lines: set[str] = field(default_factory=set)
    _answer: str | None = None
    _processed: int | None = None

    def thread(self, name: str | None, ident: str) -> ClaudeThread:
        """The thread of a sub-agent by its name, or the main one (`None`)."""
        found = self.threads.get(name)
        if found is None:
            one = self.one if name is None else run(self.one.agent, None, helper=True, format=self.one.format)
            one.ident, one.meta["sidechain"] = ident, name is not None
            found = self.threads[name] = ClaudeThread(one)
        return found

    def repeated(self, ident: Any) -> bool:
        """True if a line of this id was read before (a resumed session repeats lines)."""
        if not isinstance(ident, str) or not ident:
            return False
        known = ident in self._lines
        self._lines.add(ident)
        return known

    def assistant(
        self, thread: ClaudeThread, line: Mapping[str, Any], message: Mapping[str, Any], cwd: str | None = None
    ) -> None:
        """Read a line with a part of an answer."""
        one, name, own = self.one, text(message.get("id")), text(line.get("uuid"))
        if name is None or name != self._answer:
            one.turns, self._answer = one.turns + 1, name
            one.processed = self._processed
        usage, stamp = usage_of(message.get("usage"), ANTHROPIC), line.get("timestamp")
        blocks = _blocks(message.get("content"))
        answer = None if self.view == "trace" else thread.assistant(name, message, blocks, usage, stamp)
        if answer is not None:
            thread.passed(own)
        if (model := text(message.get("model"))) is not None:
            one.model = one.model or model
            self._models.setdefault(model)
        if self.view == "session":
            return
        t = one.at(moment(stamp))
        if usage is not None:
            self._count(name or f"line {one.turns}", usage, line, message)
        facts = {"t": t, "sidechain": thread.one is not one, "place": own, "lasting_cwd": cwd}
        for block in blocks:
            if block.get("type") in _USES and one.find(block.get("id")) is None:
                call = one.call(block.get("name"), block.get("input"), block.get("id"), **facts)
                if answer is not None:
                    answer.calls.append(call)

    def user(
        self,
        thread: ClaudeThread,
        line: Mapping[str, Any],
        message: Mapping[str, Any],
        structured: Any,
        parent: str | None,
    ) -> None:
        """Read a line with a prompt or with results of tools."""
        blocks = _blocks(message.get("content"))
        if self.view != "trace":
            thread.user(blocks, text(line.get("uuid")), parent)
            if line.get("isCompactSummary") or any(summary_in(str(block.get("text") or "")) for block in blocks):
                thread.summarised(text(line.get("uuid")))
        if self.view == "session":
            return
        self.one.at(moment(line.get("timestamp")))
        results = [block for block in blocks if block.get("type") in _RESULTS]
        facts: dict[str, Any] = {"stray": True, "structured": structured if len(results) == 1 else None}
        for block in results:
            failed = True if block.get("is_error") else None
            self.one.result(block.get("tool_use_id"), texts(block.get("content")) or "", failed=failed, **facts)

    def _count(self, key: str, usage: Usage, line: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        """Take the usage of an answer, and keep what it says as long as its output tokens are a placeholder."""
        old = self._usage.get(key)
        self._usage[key] = new = _larger(old, usage)
        self._processed = (self._processed or 0) + _tokens(new) - (_tokens(old) if old else 0)
        if is_placeholder(self.log_format, text(line.get("version")), text(message.get("stop_reason"))):
            said, content = self._placeholders.setdefault(key, []), message.get("content")
            said += [block for block in (content if isinstance(content, list) else []) if block not in said]
        else:
            self._placeholders.pop(key, None)

    def transcripts(self) -> Iterator[Transcript]:
        """The run, and those of its sub-agents, in the order in which they began."""
        one = self.one
        one.models = list(self._models) if len(self._models) > 1 else None
        one.retrace = self._total
        yield from (thread.one for thread in self.threads.values())
        if None not in self.threads and one.filled:
            yield one

    def _total(self, one: Transcript) -> None:
        """Sum up usage over answers if no line told the total; output tokens that are placeholders are counted by
        us.
        """
        if one.usage is not None or not self._usage:
            return
        counted = counter_for(one.model).totals(map(_texts_of_reply, self._placeholders.values()))
        for key, made in zip(self._placeholders, counted, strict=True):
            self._usage[key] = replace(self._usage[key], output_tokens=made)
        if self._placeholders:
            one.notes.append(
                f"output tokens ≈: this version of the client logs a placeholder for {len(self._placeholders):,} "
                "replies, "
                "their texts were counted"
            )
        one.usage = sum(self._usage.values(), Usage())


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content as blocks; empty texts, which the wire refuses, are left out."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else sequence(content)
    return [b for b in blocks if isinstance(b, dict) and (b.get("text") or b.get("type") != "text")]


def _texts_of_reply(blocks: list[Any]) -> list[str]:
    """The texts of a reply whose tokens are counted."""
    reply = RecordedReply.of(reply_message("anthropic", {"role": "assistant", "content": blocks}) or {})
    return reply_texts(reply.text, reply.tool_calls)


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _larger(old: Usage | None, new: Usage) -> Usage:
    """Lines of one answer repeat its usage; the last ones may have grown."""
    return new if old is None or (new.output_tokens or 0) >= (old.output_tokens or 0) else old


def sniff(peek: Peek) -> bool:
    """True if the lines have Claude Code's envelope."""
    return any(
        isinstance(value, dict)
        and "parentUuid" in value
        and isinstance(value.get("sessionId"), str)
        and value.get("type") in _SPOKEN
        for value in peek.sample
    )


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per session id and sub-agent in the file."""
    runs: dict[str, ClaudeRun] = {}
    _lines(source, runs)
    yield from _finished(runs)


def with_helpers(source: LogSource) -> Iterator[Transcript]:
    """The same with the sub-agents' files beside, whose calls are their run's."""
    runs: dict[str, ClaudeRun] = {}
    _lines(source, runs)
    folder = source.path.with_name(unpacked_name(source.path.name)).with_suffix("") / "subagents"
    for path in sorted(path for path in folder.glob("*") if unpacked_name(path.name).endswith(".jsonl")):
        other = LogSource(path, view=source.view)
        _lines(other, runs)
        source.skipped.update(other.skipped)
    yield from _finished(runs)


def is_beside(path: Path) -> bool:
    """True if a file is a sub-agent's that is read along with its session's, or describes one."""
    if is_note(path):
        return True
    run = path.parent.parent
    return path.parent.name == "subagents" and any(
        run.with_name(f"{run.name}.jsonl{packing}").is_file() for packing in ("", *PACKINGS)
    )


def _finished(runs: dict[str, ClaudeRun]) -> Iterator[Transcript]:
    for claude in runs.values():
        if all(call.t is not None for call in claude.one.calls):
            claude.one.calls.sort(key=lambda call: call.t or 0.0)
        yield from claude.transcripts()


def _lines(source: LogSource, runs: dict[str, ClaudeRun]) -> None:
    for value in source.values():
        session = text(mapping(value).get("sessionId"))
        if session is None:
            why = _unread(mapping(value).get("type"))
        else:
            run = runs.get(session)
            if run is None:
                run = runs[session] = ClaudeRun(view=source.view)
                run.one.format = NAME
            why = _take(value, run, session)
        if why:
            source.skip(why)


def _take(line: dict[str, Any], run: ClaudeRun, session: str) -> str | None:
    """Read one line; returns why it is passed over."""
    kind, message, own = line.get("type"), line.get("message"), text(line.get("uuid"))
    name = (text(line.get("agentId")) or "agent") if line.get("isSidechain") else None
    if kind not in _SPOKEN:
        if (thread := run.threads.get(name)) is not None:
            thread.passed(own)
            if line.get("subtype") == "compact_boundary":
                thread.compacted(mapping(line.get("compactMetadata")), line.get("timestamp"))
                return None
        return _unread(kind)
    if not isinstance(message, dict):
        return f"{kind} without a message"
    if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        return "a message of the program, not of the model"
    if run.repeated(line.get("uuid")):
        return "repeated"
    thread = run.thread(name, f"{session}/{name}" if name else session)
    if len(thread.one.meta) <= len(_TOLD):  # with `sidechain` there is one more once all are there
        thread.one.meta.update(
            {key: line[key] for key in _TOLD if isinstance(line.get(key), str) and key not in thread.one.meta}
        )
    cwd = text(line.get("cwd"))
    run.one.cwd = run.one.cwd or cwd
    if kind == "assistant":
        run.assistant(thread, line, message, cwd)
    else:
        run.user(thread, line, message, line.get("toolUseResult"), text(line.get("parentUuid")))
    return None


def _unread(kind: Any) -> str | None:
    """Reason to skip a line of a kind that is no message; `None` if nobody needs to know."""
    return None if isinstance(kind, str) and kind in _BOOKKEEPING else f"type {str(kind)[:40]}"


_RESULT = ("total_cost_usd", "num_turns", "duration_ms", "is_error")


def _is_stream(peek: Peek) -> bool:
    """True if the lines are this stream: an `init` line with tools, or messages with `parent_tool_use_id` and
    `session_id`.
    """
    if any(isinstance(value, dict) and value.get("type") == "tool_call" for value in peek.sample):
        return False  # another program's stream, which has the same first line
    return any(isinstance(value, dict) and _is_ours(value) for value in peek.sample)


def _is_ours(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "system":
        return value.get("subtype") == "init" and isinstance(value.get("tools"), list) and "session_id" in value
    return (
        value.get("type") in ("user", "assistant")
        and "parent_tool_use_id" in value
        and isinstance(value.get("message"), Mapping)
    )


def from_values(values: Iterable[Any], skip: Callable[[str], None], view: View = "whole") -> Iterator[Transcript]:
    """The runs in a stream, told apart by their session ids, and those of their sub-agents."""
    runs: dict[str, ClaudeRun] = {}
    for value in values:
        name = text(mapping(value).get("session_id")) or next(reversed(runs), "")
        run = runs.get(name)
        if run is None:
            run = runs[name] = ClaudeRun(log_format=_STREAM, view=view)
            run.one.format = _STREAM
            run.thread(None, name)
        if why := _take_printed(mapping(value), run, name):
            skip(why)
    for run in runs.values():
        for one in run.transcripts():
            one.meta, one.tools = {**run.one.meta, "sidechain": one.helper}, run.one.tools
            if one.filled or one.helper:
                yield one


def _take_printed(value: Mapping[str, Any], run: ClaudeRun, name: str) -> str | None:
    """Read one line; returns why it is passed over."""
    kind, one, message = value.get("type"), run.one, value.get("message")
    if kind == "system":
        return _system(value, run)
    if kind == "result":
        one.meta["result"] = {key: value[key] for key in _RESULT if value.get(key) is not None}
        one.meta["usage"] = usage_of(value.get("usage"), ANTHROPIC)
        one.usage, one.cost = one.meta["usage"] or one.usage, money(value.get("total_cost_usd"))
        return None
    if kind not in ("user", "assistant") or not isinstance(message, Mapping):
        return f"type {str(kind)[:40]}"
    if run.repeated(value.get("uuid")):
        return "repeated"
    parent = None if value.get("parent_tool_use_id") is None else text(value["parent_tool_use_id"]) or "agent"
    thread = run.thread(parent, f"{name}/{parent}")
    if kind == "assistant":
        run.assistant(thread, value, message)
    else:
        run.user(thread, value, message, value.get("tool_use_result"), None)
    return None


def _system(value: Mapping[str, Any], run: ClaudeRun) -> str | None:
    one = run.one
    if value.get("subtype") == "init":
        one.cwd, one.model = one.cwd or text(value.get("cwd")), one.model or text(value.get("model"))
        one.tools = [name for name in sequence(value.get("tools")) if isinstance(name, str)]
        facts = {"cwd": value.get("cwd"), "version": value.get("claude_code_version")}
        one.meta.update({name: item for name, item in facts.items() if isinstance(item, str)})
        return None
    if value.get("subtype") == "compact_boundary":
        run.threads[None].compacted(mapping(value.get("compact_metadata")), value.get("timestamp"))
        one.strays["type system/compact_boundary"] += 1
        return None
    return f"type system/{str(value.get('subtype'))[:40]}"


FORMAT = {
    "claude_code_transcript": Format(
        NAME,
        180,
        sniff,
        read,
        conversation=True,
        beside=with_helpers,
        is_beside=is_beside,
        about="Claude Code's own transcripts, and its sub-agents'.",
    ),
    "claude_code_stream": Format(
        _STREAM,
        170,
        _is_stream,
        lambda source: from_values(source.values(), source.skip, source.view),
        conversation=True,
        about="What Claude Code's `--output-format stream-json --verbose` prints.",
    ),
}
