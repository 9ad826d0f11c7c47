"""Traces that are worked out already: as this project writes them, one JSON object per line, and ContextBench's unified
predictions, what a run read step by step and at the end. Beside them the sessions that come with this package: a line
with tools and folder, then a line for each chat message with the second of its writing.

The reads of a unified prediction are taken as given (`self_report`, `shown`): nobody can say here whether they were
seen or guessed. The `trace.jsonl` of benchkit has tool invocations by task, without what they returned: raw invocations
fill gaps of curated ones, by `tool_use_id` or `call_index`, and lines are counted from 1, as the agents count them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.dialogue import Dialogue
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text
from context_bench.transcripts.requests import Logged
from context_bench.transcripts.session import SessionRequest, conversation
from context_bench.transcripts.trace import Event, Trace, claims_of, grouped, span_of
from context_bench.transcripts.transcript import FACTS, Transcript, run


def _is_own(peek: Peek) -> bool:
    """True if the first object has an instance and a list of our events."""
    events = peek.first.get("events")
    if not isinstance(peek.first.get("instance_id"), str):
        return False
    return isinstance(events, list) and all(
        isinstance(event, Mapping) and "step" in event and "kind" in event for event in events
    )


def _own(source: LogSource) -> Iterator[Transcript]:
    """One run per line, as it is."""
    for value in source.values():
        try:
            trace = Trace.from_json(value)
            yield Transcript(trace.instance_id, settled=True, **{name: getattr(trace, name) for name in FACTS})
        except (ValueError, TypeError):
            source.skip("not a trace")


def _is_unified(peek: Peek) -> bool:
    """True if an object has predictions of this shape."""
    return any(map(_has_steps, map(mapping, peek.sample[:20])))


def _has_steps(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("traj_data"), Mapping)


def _unified(source: LogSource) -> Iterator[Transcript]:
    """One run per line."""
    for row in source.rows(_has_steps, "no traj_data"):
        told = row["traj_data"]
        one = run(str(row.get("agent") or ""), row.get("instance_id"))
        one.settled = True
        one.patch, one.model = text(row.get("model_patch")), text(row.get("model"))
        one.repo, one.commit = text(row.get("repo_url")), text(row.get("commit"))
        steps = sequence(told.get("pred_steps"))
        for number, step in enumerate(map(mapping, steps), 1):
            found = _claims(step.get("files"), step.get("spans"), step.get("symbols"), number)
            # a step that found nothing is a step all the same
            one.events += found or [Event(number, None, "read", "prediction", None, None, "self_report", "shown")]
        one.steps = len(steps) or None
        if any(told.get(name) is not None for name in ("pred_files", "pred_spans", "pred_symbols")):
            one.final = _claims(
                told.get("pred_files"), told.get("pred_spans"), told.get("pred_symbols"), max(1, len(steps))
            )
        yield one


def _claims(files: Any, spans: Any, symbols: Any, step: int) -> list[Event]:
    pairs = ((str(path), mapping(span)) for path, found in mapping(spans).items() for span in sequence(found))
    lines = grouped((path, pair) for path, span in pairs if (pair := span_of(span)))
    names = {str(path): [str(name) for name in sequence(found)] for path, found in mapping(symbols).items()}
    listed = dict.fromkeys(path for path in sequence(files) if isinstance(path, str))
    return claims_of("prediction", step, lines, names, files=listed, shown=True, named=listed)


_KEYS = ("tool_invocations_curated", "tool_invocations_raw")
_ARGUMENTS = ("offset", "limit", "command", "pattern", "workdir", "cwd", "glob", "view_range", "start_line", "end_line")


def sniff(peek: Peek) -> bool:
    """True if an object has such invocations."""
    return any(map(_has_calls, map(mapping, peek.sample[:20])))


def _has_calls(row: Mapping[str, Any]) -> bool:
    return any(key in mapping(row.get("metadata")) for key in _KEYS)


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per line."""
    for row in source.rows(_has_calls, "no tool invocations"):
        meta = mapping(row.get("metadata"))
        one = run(str(row.get("agent") or meta.get("agent") or ""), row.get("instance_id"), outputs=False)
        one.model = text(row.get("model")) or text(meta.get("model"))
        one.cwd = text(meta.get("workspace_path")) or text(row.get("workspace_path"))
        one.patch = text(row.get("model_patch"))
        one.repo, one.commit = text(row.get("repo_url")), text(row.get("commit"))
        for invocation in _invocations(meta):
            _call(invocation, one)
        yield one


def _invocations(meta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    curated, raw = ([mapping(entry) for entry in sequence(meta.get(key))] for key in _KEYS)
    if not curated:
        return raw
    others = {key: entry for entry in raw for key in _ids(entry)}
    given = [{name: value for name, value in entry.items() if value is not None} for entry in curated]
    rests = (next((others[key] for key in _ids(entry) if key in others), {}) for entry in curated)
    return [{**rest, **entry} for rest, entry in zip(rests, given, strict=True)]


def _ids(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Pairs by which a raw and a curated invocation are known to be the same."""
    return [(key, entry[key]) for key in ("tool_use_id", "call_index") if isinstance(entry.get(key), str | int)]


def _call(entry: Mapping[str, Any], one: Transcript) -> None:
    arguments = dict(mapping(parsed(entry.get("raw_input_json"))))
    arguments.update({name: entry[name] for name in _ARGUMENTS if entry.get(name) is not None})
    if path := text(entry.get("path")) or text(entry.get("filePath")):
        arguments.setdefault("path", path)
        arguments["file_path"] = path
    state = mapping(mapping(entry.get("raw_event")).get("state"))
    meta, output = mapping(state.get("metadata")), state.get("output")
    call = one.call(entry.get("tool"), arguments, entry.get("tool_use_id"))
    if isinstance(output, str) or meta:
        call.answer(output if isinstance(output, str) else None, exit_code=whole(meta.get("exit")), structured=meta)


def _is_story(peek: Peek) -> bool:
    """True if a line with tools is followed by messages with their times."""
    first, *rest = map(mapping, peek.sample[:4]) if peek.sample else [{}]
    return isinstance(first.get("tools"), list) and "cwd" in first and bool(rest) and all(map(_is_line, rest))


def _is_line(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("at"), int | float) and isinstance(mapping(row.get("message")).get("role"), str)


def _story(source: LogSource) -> Iterator[Transcript]:
    """The one session of the file."""
    header, *lines = map(mapping, source.values())
    kept = [row for row in lines if _is_line(row)]
    for _ in range(len(lines) - len(kept)):
        source.skip("not a message with its time")
    one = run("", None, format="bundled", cwd=text(header.get("cwd")))
    one.sent = lambda: timed_requests(header, kept, model=STORY_MODEL)
    messages = [dict(row["message"]) for row in kept]
    body = {"model": STORY_MODEL, "messages": messages, "tools": sequence(header.get("tools"))}
    one.retrace = lambda one: Dialogue(one).take(Logged("openai-chat", body), [])
    yield one


#: The model that the bundled sessions name; a replay names its own.
STORY_MODEL = "gpt-4.1"


def timed_requests(
    header: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    *,
    model: str,
    params: Mapping[str, Any] | None = None,
) -> list[SessionRequest]:
    """The requests of a bundled session's lines, in seconds since the first."""
    messages = [line["message"] for line in lines]
    requests = conversation(messages, model=model, tools=sequence(header.get("tools")), params=params)
    sent = [line["at"] for line in lines[1:] if line["message"]["role"] == "assistant"]
    for request, at in zip(requests, sent, strict=False):
        request.at, request.exact = round(at - sent[0], 3), True
    return requests


FORMAT = {
    "story": Format(
        "bundled",
        55,
        _is_story,
        _story,
        conversation=True,
        about="The sessions of `context_bench.datasets.sessions`: a line a message.",
    ),
    "own": Format(
        "context-bench", 50, _is_own, _own, about="Traces as this project writes them: one JSON object per line."
    ),
    "unified": Format("unified", 250, _is_unified, _unified, about="ContextBench's unified predictions."),
    "benchkit": Format(
        "benchkit",
        240,
        sniff,
        read,
        about="The `trace.jsonl` of benchkit: tool invocations by task, without what they returned.",
    ),
}
