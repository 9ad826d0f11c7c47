"""SWE-agent's `.traj` files, and checkpoints (one action and observation per line). The shell lasts; exit codes are not recorded."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.jsontext import load_json
from context_bench.core.records import Usage
from context_bench.logs.source import Source
from context_bench.logs.traces.fenced import spans
from context_bench.logs.traces.recording import Recording, ToolCall, mapping, money, run, sequence, texts
from context_bench.logs.values import count, text

NAME = "swe-agent"
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool")
_WINDOW = ("open", "goto", "scroll_up", "scroll_down")
_SEARCH = ("search_file", "search_dir", "find_file")
_OPEN_FILE = re.compile(r"\[File: (\S+) \(\d+ lines total\)\]")
_LINE = re.compile(r"^\d+:", re.M)


def matches(sample: list[Any]) -> bool:
    """Whether the first object is a trajectory, or lines hold actions and observations."""
    first = mapping(sample[0] if sample else None)
    if isinstance(first.get("trajectory"), list) and "info" in first:
        return True
    if isinstance(first.get("attempts"), list) and "info" in first:
        return True
    return isinstance(first.get("action"), str) and isinstance(first.get("observation"), str) and "args" not in first and "id" not in first


def recordings(source: Source) -> Iterator[Recording]:
    """One run per file; of a run with several attempts each attempt's steps, one after the other."""
    one = run("swe-agent", None, lasting_shell=True)
    for value in source.values():
        document = mapping(value)
        if "action" in document:
            _step(document, one)
        elif isinstance(document.get("trajectory"), list) or isinstance(document.get("attempts"), list):
            yield _run(document)
        elif isinstance(document.get("patch_context"), str):
            one.head.final = spans(document["patch_context"], 1, "patch_context")
        else:
            source.skip("no action")
    if one.told:
        yield one


def _run(document: Mapping[str, Any]) -> Recording:
    one = run("swe-agent", document.get("instance_id"), lasting_shell=True)
    attempts = [mapping(attempt) for attempt in sequence(document.get("attempts"))]
    for part in [document] if isinstance(document.get("trajectory"), list) else attempts:
        for step in sequence(part.get("trajectory")):
            _step(mapping(step), one)
    info = mapping(document.get("info"))
    stats = mapping(info.get("model_stats"))
    one.head.patch = text(info.get("submission"))
    one.head.cost = money(stats.get("instance_cost"))
    usage = Usage(count(stats.get("tokens_sent")), count(stats.get("tokens_received")))
    one.head.usage = None if usage == Usage() else usage
    if isinstance(info.get("patch_context"), str):
        one.head.final = spans(info["patch_context"], 1, "patch_context")
    return one


def _step(step: Mapping[str, Any], one: Recording) -> None:
    action = step.get("action")
    one.turns += 1
    if not isinstance(action, str) or not action.strip():
        one.skip("a step without an action")
        return
    state = _state(step.get("state"))
    output = texts(step.get("observation"))
    call = _call(action.strip(), output or "", state, one)
    # A window without line numbers is a message: nothing of the file was shown.
    call.answer(output, failed=True if call.tool == "open_file" and output and not _LINE.search(output) else None)
    after = text(state.get("working_dir"))
    if one.head.cwd is None and after and not re.match(r"\s*(?:cd|pushd)\b", action) and len(one.calls) == 1:
        one.head.cwd = after


def _call(action: str, output: str, state: Mapping[str, Any], one: Recording) -> ToolCall:
    """The call that an action is: an editor's, a window's, a search's, or a command."""
    name = action.split(None, 1)[0]
    words = _words(action) if name in (*_EDITORS, *_WINDOW, *_SEARCH) else []
    if name in _EDITORS and len(words) > 2:
        return one.call(name, _edit(words))
    if name in _WINDOW:
        shown = _OPEN_FILE.search(output)
        path = shown[1] if shown else words[1] if name == "open" and len(words) > 1 else text(state.get("open_file"))
        return one.call("open_file", {"path": path})
    if name in _SEARCH and len(words) > 1:
        where = {"path": words[2]} if len(words) > 2 else {"path": state.get("open_file")} if name == "search_file" else {}
        return one.call(name, {"pattern": words[1], **where})
    if name in ("submit", "exit_cost", "exit_context", "exit_forfeit"):
        return one.call("submit", {})
    return one.call("bash", {"command": action})


def _edit(words: list[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"command": words[1], "path": words[2]}
    if "--view_range" in words:
        place = words.index("--view_range")
        pair = [word.strip("[],") for word in words[place + 1 : place + 3]]
        if len(pair) == 2:
            arguments["view_range"] = pair
    return arguments


def _words(action: str) -> list[str]:
    try:
        return shlex.split(action)
    except ValueError:
        return action.split("\n", 1)[0].split()


def _state(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            return mapping(load_json(value))
        except ValueError:
            return {}
    return mapping(value)
