"""OpenHands: events of V0 (`output.jsonl`, event files) and of V1 (event files), and `llm_completions/<id>/`.

The shell of V0 lasts; `working_dir` is the state after a command. `<model>-<time>.json` under `llm_completions` is one
request to the model, which repeats what came before. Its fields (V0, `openhands/llm/llm.py`): `messages`, `response`,
`args`, `kwargs`, `timestamp`, `cost`; where tools were put into the prompt, `fncall_messages` and `fncall_response`
hold the conversation with its calls. The SDK (V1, `telemetry.py`) calls its files `<model>-<time>-<4 hex>.json` and
writes `llm_path`, `messages` (on OpenAI's Responses wire `instructions` and `input`), `tools`, `kwargs`, `response`
(with its calls, wherever they were), `timestamp`, `cost`, `latency_sec`; `…-error.json` is a request that was not
answered.

Beside them mini-swe-agent's trajectories (`.traj.json`), versions 1 and 2: one shell command after the other, each in a
fresh shell. Version 1 has one fenced block per answer and its observation in the next message; version 2 has tool
calls, `extra.actions`, or items of the Responses wire. `<explore_context>` and `<PATCH_CONTEXT>` blocks, where an agent
was asked to write them, are what it says of itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.numbers import OPENAI, OPENHANDS, moment, money, usage_of, whole
from context_bench.transcripts.dialogue import Dialogue, reply_items
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
from context_bench.transcripts.requests import Logged
from context_bench.transcripts.transcript import FENCE, ToolCall, Transcript, claims, fenced, observation, run, tool_of

#: Actions that are no calls of tools.
_TALK = (
    "message",
    "system",
    "recall",
    "change_agent_state",
    "agent_state_changed",
    "condensation",
    "condensation_request",
    "null",
    "pause",
    "resume",
)
_EVENT_FILE = re.compile(r"(?:event-)?\d+(?:-[0-9A-Za-z-]+)?\.json")
#: So large may one event's file be.
_EVENT_LIMIT = 64 * 1024 * 1024


def sniff(peek: Peek) -> bool:
    """True if an object is a row of results, or an event of either version."""
    return any(_row(value) or _event(value) for value in map(mapping, peek.sample[:50]))


def _row(value: Mapping[str, Any]) -> bool:
    return "history" in value and "test_result" in value


def _event(value: Mapping[str, Any]) -> bool:
    if str(value.get("kind", "")).endswith("Event") and "source" in value:
        return True
    return "id" in value and "source" in value and ("action" in value or "observation" in value)


def is_part(path: Path) -> bool:
    """True if a file is one of a folder of events: a number for a name, and an event in it."""
    if not _EVENT_FILE.fullmatch(path.name) or path.stat().st_size > _EVENT_LIMIT:
        return False
    return any(_event(mapping(value)) for value in LogSource(path).sample()[:1])


def of_folder(folder: Path) -> Transcript:
    """The run of a folder of event files, in the order of their numbers."""
    one = run("openhands", None, lasting_shell=True)
    one.named = True
    files = [path for path in folder.iterdir() if _EVENT_FILE.fullmatch(path.name)]
    files.sort(key=lambda path: (int((re.search(r"\d+", path.name) or ["0"])[0]), path.name))
    _events((value for path in files for value in one.values_of(path)), one)
    return one


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per row of results, or the run of a file of events."""
    loose: list[Mapping[str, Any]] = []
    for row in map(mapping, source.values()):
        if _row(row):
            yield _result(row)
        elif _event(row):
            loose.append(row)
        else:
            source.skip("neither a row of results nor an event")
    if loose:
        one = run("openhands", None, lasting_shell=True)
        _events(loose, one)
        yield one


def _result(row: Mapping[str, Any]) -> Transcript:
    one = run("openhands", row.get("instance_id"), lasting_shell=True)
    one.patch = text(mapping(row.get("test_result")).get("git_patch"))
    metrics = mapping(row.get("metrics"))
    one.cost = money(metrics.get("accumulated_cost"))
    history = [
        event for entry in sequence(row.get("history")) for event in (entry if isinstance(entry, list) else [entry])
    ]
    _events(history, one)
    one.usage = usage_of(metrics.get("accumulated_token_usage"), OPENHANDS)
    one.model = text(mapping(mapping(row.get("metadata")).get("llm_config")).get("model"))
    return one


def _events(events: Iterable[Any], one: Transcript) -> None:
    by_id: dict[Any, ToolCall] = {}
    last: ToolCall | None = None
    for event in map(mapping, events):
        t = one.at(moment(event.get("timestamp")))
        if str(event.get("kind", "")).endswith(("Event", "Observation")):
            _v1(event, one, t)
        elif "action" in event:
            last = _action(event, one, t, by_id)
        elif "observation" in event:
            _observation(event, one, by_id, last)
        else:
            one.skip("an event of an unknown kind")


def _action(event: Mapping[str, Any], one: Transcript, t: float | None, by_id: dict[Any, ToolCall]) -> ToolCall | None:
    name, args = event.get("action"), mapping(event.get("args"))
    if name in ("message", "system") and (said := text(args.get("content"))):
        if event.get("source") == "agent" and name == "message":
            one.reply(said, at=t)
        else:
            one.given("system" if name == "system" else "user", said, t)
    if name in _TALK or event.get("source") in ("user", "environment"):
        return None
    asked = mapping(event.get("tool_call_metadata"))
    one.turns += 1
    call = one.call(name, event.get("args"), asked.get("tool_call_id"), t=t)
    reply = one.speaking(text(mapping(asked.get("model_response")).get("id")), at=t)
    reply.content = reply.content or text(args.get("thought"))
    reply.calls.append(call)
    call.place = str(event["id"]) if isinstance(event.get("id"), int | str) else None
    if isinstance(event.get("id"), int | str):
        by_id[event["id"]] = call
    return call


def _observation(event: Mapping[str, Any], one: Transcript, by_id: dict[Any, ToolCall], last: ToolCall | None) -> None:
    cause = event.get("cause")
    call = by_id.get(cause) if isinstance(cause, int | str) and not isinstance(cause, bool) else last
    extras = mapping(event.get("extras"))
    meta = mapping(extras.get("metadata"))
    failed = event.get("observation") == "error"
    _answered(one, call, meta, meta.get("exit_code", extras.get("exit_code")), texts(event.get("content")), failed)


def _answered(
    one: Transcript, call: ToolCall | None, meta: Mapping[str, Any], code: Any, output: str | None, failed: bool
) -> None:
    """Record what came of a call, and the folder of the shell after it."""
    if (after := text(meta.get("working_dir"))) is not None:
        one.note_folder(after, call)
    if call is not None:
        exit_code = whole(code)
        call.answer(output or "", failed=failed or None, exit_code=None if exit_code == -1 else exit_code)


def _v1(event: Mapping[str, Any], one: Transcript, t: float | None) -> None:
    kind = event.get("kind")
    if kind == "ActionEvent":
        action = mapping(event.get("action"))
        name = text(event.get("tool_name")) or text(action.get("kind")) or "?"
        row_known = text(action.get("kind")) if name in ("?", "browser") else name
        turn = text(event.get("llm_response_id"))
        if turn is None or turn != one.answer_id:
            one.turns, one.answer_id = one.turns + 1, turn
        asked = one.call(row_known or name, dict(action), event.get("tool_call_id"), t=t, place=text(event.get("id")))
        reply = one.speaking(turn, at=t)
        reply.content = reply.content or texts(event.get("thought")) or None
        reply.thoughts = reply.thoughts or text(event.get("reasoning_content")) or ""
        reply.calls.append(asked)
    elif kind == "SystemPromptEvent":
        one.given("system", texts(event.get("system_prompt")), t)
    elif kind == "MessageEvent":
        told = mapping(event.get("llm_message"))
        said = texts(told.get("content"))
        if event.get("source") != "agent":
            one.given("user", said, t)
        elif said:
            one.reply(said, at=t)
    elif kind == "ObservationEvent":
        call = one.find(event.get("tool_call_id"))
        seen = mapping(event.get("observation"))
        if call is None:
            one.skip("a result without its call")
            return
        meta, output = mapping(seen.get("metadata")), texts(seen.get("content", seen.get("output")))
        _answered(one, call, meta, seen.get("exit_code", meta.get("exit_code")), output, bool(seen.get("is_error")))
    elif kind in ("UserRejectObservation", "AgentErrorEvent"):
        if (call := one.find(event.get("tool_call_id"))) is not None:
            call.answer("", failed=True)
    elif kind not in (
        "Condensation",
        "CondensationRequest",
        "ConversationStateUpdateEvent",
        "PauseEvent",
    ):
        one.skip(f"kind {str(kind)[:40]}")


_REQUEST_FILE = re.compile(r"-(\d{9,12}(?:\.\d{1,9})?)(?:-[0-9a-f]{4})?(?:-error)?\.json$")
#: A file of one request is no larger.
_REQUEST_LIMIT = 256 * 1024 * 1024


def _is_request(peek: Peek) -> bool:
    """True if the first object is a request with its reply, as OpenHands keeps them."""
    first = peek.first
    told = isinstance(first.get("response"), Mapping) or isinstance(first.get("error"), Mapping)
    return told and _asked(first) is not None and ("kwargs" in first or "fncall_messages" in first or "args" in first)


def _asked(value: Mapping[str, Any]) -> str | None:
    """The field that holds what the model was given."""
    named = ("messages", "input") if value.get("llm_path") == "responses" else ("messages",)
    return next((name for name in named if isinstance(value.get(name), list)), None)


def _is_request_file(path: Path) -> bool:
    """True if a file is one request of such a folder."""
    if not _REQUEST_FILE.search(path.name) or path.stat().st_size > _REQUEST_LIMIT:
        return False
    return _is_request(Peek(LogSource(path)))


def _last_request(source: LogSource) -> Iterator[Transcript]:
    """The run of a file: the history of its last request is nearly all of it."""
    yield _run(source.values(), source.path.name)


def _all_requests(folder: Path) -> Transcript:
    """The run of a folder, in the order in which its requests were made."""
    skipped = run("openhands", None)
    files = sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.is_file())
    one = _run((value for path in sorted(files, key=_made) for value in skipped.values_of(path)), folder.name)
    one.skipped.update(skipped.skipped)
    one.ident, one.named = folder.name, True
    return one


def _made(path: Path) -> tuple[float, str]:
    """Time at which a file was made, by the end of its name."""
    end = _REQUEST_FILE.search(path.name)
    return (float(end[1]) if end else 0.0), path.name


def _run(values: Iterable[Any], name: str) -> Transcript:
    """The conversation with the most requests; others in the same place (a condenser's, an editor's) are counted."""
    talks: dict[str, tuple[Dialogue, list[float]]] = {}
    strays = failed = 0
    for value in map(mapping, values):
        if (asked := _asked(value)) is None:
            strays += 1
            continue
        if not isinstance(value.get("response"), Mapping):
            failed += 1
            continue
        logged, reply = _request(value)
        messages = sequence(value[asked])
        first = [value.get("instructions"), *messages[:1]] if asked == "input" else messages[:2]
        talk, costs = talks.setdefault(stable_hash(first), (Dialogue(run("openhands", None, lasting_shell=True)), []))
        talk.take(logged, reply)
        if (cost := money(value.get("cost"))) is not None:
            costs.append(cost)
    if not talks:
        raise BadInput(f"{name}: no request to a model in it")
    (talk, costs), *others = sorted(talks.values(), key=lambda told: -told[0].one.turns)
    one = talk.one
    one.cost = sum(costs) if costs else None
    for reason, number in (
        ("not a request to a model", strays),
        ("a request that was not answered", failed),
        ("requests of another conversation", sum(t.one.turns for t, _ in others)),
    ):
        if number:
            one.skipped[reason] += number
    return one


def _request(value: Mapping[str, Any]) -> tuple[Logged, list[Any]]:
    """One file as a request on OpenAI's wire, and its reply."""
    mocked = isinstance(value.get("fncall_messages"), list)
    response = mapping(value.get("fncall_response" if mocked and value.get("fncall_response") else "response"))
    asked = mapping(value.get("kwargs"))
    wire, tools = "openai-chat", asked.get("tools") or value.get("tools") or [{}]
    if _asked(value) == "input":
        wire, body = (
            "openai-responses",
            {"input": value["input"], "instructions": value.get("instructions"), "tools": tools},
        )
    else:
        body = {"messages": value["fncall_messages" if mocked else "messages"], "tools": tools}
    usage = usage_of(response.get("usage"), OPENAI)
    model = text(response.get("model")) or text(asked.get("model"))
    at = moment(value.get("timestamp"))
    return Logged(wire, body, usage=usage, model=model, at=at), reply_items(wire, response)


NAME = "mini-swe-agent"


def _mini_sniff(peek: Peek) -> bool:
    """True if the first object names the format, or has messages with fenced commands."""
    first = peek.first
    if str(first.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    if not isinstance(first.get("info"), Mapping) or not isinstance(first.get("messages"), list):
        return False
    spoken = [mapping(message) for message in first["messages"][:50]]
    return any(m.get("role") == "assistant" and FENCE.search(texts(m.get("content")) or "") for m in spoken)


def _mini_read(source: LogSource) -> Iterator[Transcript]:
    """One run per object."""
    return map(_mini_run, source.rows(lambda row: "messages" in row, "no messages"))


def _mini_run(document: Mapping[str, Any]) -> Transcript:
    info = mapping(document.get("info"))
    one = run(NAME, document.get("instance_id"), opened=True)
    config = mapping(info.get("config"))
    one.cwd = text(mapping(config.get("environment")).get("cwd"))
    one.model = text(mapping(config.get("model")).get("model_name"))
    one.cost = money(mapping(info.get("model_stats")).get("instance_cost"))
    one.patch = text(info.get("submission"))
    for message in map(mapping, sequence(document.get("messages"))):
        _take(message, one)
    return one


def _take(message: Mapping[str, Any], one: Transcript) -> None:
    role, extra = message.get("role"), mapping(message.get("extra"))
    t = one.at(moment(extra.get("timestamp")))
    if role == "assistant" or (role is None and isinstance(message.get("output"), list)):
        one.turns += 1
        said = texts(message.get("content")) or texts(message.get("output")) or ""
        claims(said, one)
        reply = one.reply(said or None, at=t, thoughts=texts(message.get("reasoning_content")) or "")
        reply.calls = _calls(message, extra, said, one, t)
        told = (mapping(where.get("response")).get("usage") for where in (extra, message))
        reply.usage = next((usage for each in told if (usage := usage_of(each, OPENAI)) is not None), None)
        one.billed(reply.usage)
    elif role in ("tool", "user") or message.get("type") == "function_call_output":
        _mini_result(message, extra, one)
    elif role == "exit":
        one.patch = one.patch or text(extra.get("submission"))
    elif role == "system":
        one.given("system", texts(message.get("content")), t)
    else:
        one.skip(f"role {str(role)[:30]}")


def _calls(
    message: Mapping[str, Any], extra: Mapping[str, Any], said: str, one: Transcript, t: float | None
) -> list[ToolCall]:
    actions = [mapping(action) for action in sequence(extra.get("actions"))]
    if actions:
        found = [(action.get("command"), action.get("tool_call_id")) for action in actions]
    elif calls := sequence(message.get("tool_calls")):
        found = [_function(mapping(call)) for call in calls]
    elif items := sequence(message.get("output")):
        found = [_function(item) for item in map(mapping, items) if item.get("type") == "function_call"]
    else:
        found = [(command, None) for command in fenced(said)]
    return [one.call(tool_of(command), {"command": command}, ident, t=t) for command, ident in found]


def _function(call: Mapping[str, Any]) -> tuple[Any, Any]:
    function = mapping(call.get("function")) or call
    return mapping(parsed(function.get("arguments"))).get("command"), call.get("call_id") or call.get("id")


def _mini_result(message: Mapping[str, Any], extra: Mapping[str, Any], one: Transcript) -> None:
    ident = message.get("tool_call_id") or message.get("call_id")
    call = (
        one.find(ident)
        if ident
        else next((call for call in one.calls if not call.answered), None)
        if one.calls
        else None
    )
    said = texts(message.get("content", message.get("output"))) or ""
    if call is None:  # the task itself
        one.given("user", said)
        return
    output, code, call.cut = observation(said, extra)
    call.answer(output, exit_code=code)


FORMAT = {
    "openhands": Format(
        "openhands",
        210,
        sniff,
        read,
        is_part=is_part,
        of_folder=of_folder,
        about="OpenHands' `output.jsonl` and event files, V0 and V1.",
    ),
    "openhands_completions": Format(
        "openhands-completions",
        220,
        _is_request,
        _last_request,
        is_part=_is_request_file,
        of_folder=_all_requests,
        about="OpenHands' `llm_completions/<id>/`, one file for each request to the model.",
    ),
    "mini_swe_agent": Format(
        NAME,
        110,
        _mini_sniff,
        _mini_read,
        conversation=True,
        about="mini-swe-agent's trajectories (`.traj.json`), versions 1 and 2: one shell command after the other, each "
        "in a fresh shell.",
    ),
}
