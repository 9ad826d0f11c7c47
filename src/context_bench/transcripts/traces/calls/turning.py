"""A call's events: by its kind, in the lines of the files as they were at the start, with what it changed noted for later ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from context_bench.transcripts.record import ToolCall
from context_bench.transcripts.trace import Event
from context_bench.transcripts.traces.calls.batches import parts_of
from context_bench.transcripts.traces.calls.commands import (
    events_of_command,
    restores_old_version,
    shows_old_version,
)
from context_bench.transcripts.traces.calls.editing import events_of_edit
from context_bench.transcripts.traces.calls.reading import events_of_read
from context_bench.transcripts.traces.calls.searching import events_of_list, events_of_search
from context_bench.transcripts.traces.calls.workspace import Handled, Workspace
from context_bench.transcripts.traces.edited import Edits, numbered
from context_bench.transcripts.traces.vocabulary import ToolRow
from context_bench.transcripts.values import mapping

#: So many lines of an output are looked at.
_MOST_LINES = 100_000


def events_of_call(call: ToolCall, step: int, place: Workspace) -> list[Event]:
    """The events of one call; at least one, so that steps can be counted. A tool that the table does not name is `other` and counted."""
    row, foreign = place.vocabulary.find(call.tool)
    if row is None:
        place.counts[f"unknown tool {call.tool[:60]}"] += 1
        row = ToolRow("none")
    if call.lasting_cwd is not None:
        place.cwd = call.lasting_cwd
    made = [event for part in parts_of(call, row) for event in _events(part, row, foreign, step, place)]
    if call.then is not None:
        made += events_of_call(_following(call, call.then), step, place)
    return made or [Handled(call, step, row, place, foreign, None).event("other", None, None, "args", "listed", ok=not call.failed)]


def _events(call: ToolCall, row: ToolRow, foreign: bool, step: int, place: Workspace) -> list[Event]:
    """What one thing did that a call does."""
    one = Handled(call, step, row, place, foreign, _bounded(call))
    kind = row.kind_of(call.arguments)
    made = _BY_KIND[kind](one)
    if place.edits is not None:
        changed = [event.path for event in made if event.kind == "edit" and event.ok and event.path]
        _in_base(one, place.edits, made)
        _carry_out(one, place.edits, kind, changed)
    return made


def _following(call: ToolCall, then: ToolCall) -> ToolCall:
    """What a call did afterwards, as a part of it."""
    return replace(then, ident=call.ident, turn=call.turn, t=call.t, tokens_before=call.tokens_before, sidechain=call.sidechain, then=None)


def _bounded(call: ToolCall) -> str | None:
    """The output, of one with more lines than any model takes their beginning: the rest would only take memory."""
    text = call.output
    if text is None or len(text) < _MOST_LINES or text.count("\n") < _MOST_LINES:
        return text
    call.cut = True
    return "\n".join(text.split("\n", _MOST_LINES)[:_MOST_LINES])


def _in_base(one: Handled, edits: Edits, made: list[Event]) -> None:
    """Files and lines as the commit has them that the agent started from."""
    if not edits or shows_old_version(one.command):
        return
    seen = numbered(one.text or "") if edits.lost else []
    for event in made:
        if event.path is None:
            continue
        if event.provenance != "output_matched" or event.path not in edits.lost:
            event.ranges, sure = edits.to_base(event.path, event.ranges, seen)
            if not sure and event.kind != "edit":
                one.place.counts["reads of edited files whose lines could not be followed"] += 1
        event.path = edits.origin(event.path)


def _carry_out(one: Handled, edits: Edits, kind: str, changed: list[str]) -> None:
    """Note what the call changed, so that later reads are understood."""

    def locate(name: str) -> str | None:
        return one.place.locate(name, one.folder)

    arguments = one.call.arguments
    if not changed:
        return
    if kind == "exec":
        _after_command(one, edits, changed, locate)
        return
    patch = one.row.first(one.row.patch, arguments) if one.row.patch else None
    if isinstance(patch, str):
        done = edits.patch(patch, locate)
        changed = [path for path in changed if path not in done]
    for path in changed:
        if patch is not None or mapping(arguments).get("changes"):
            edits.lose(path)
        else:
            edits.edit(path, arguments, one.call.structured)


def _after_command(one: Handled, edits: Edits, changed: list[str], locate: Callable[[str], str | None]) -> None:
    gone = [path for path in changed if one.changes.get(path) == "gone"]
    done = edits.patch(one.command, locate) if "*** Begin Patch" in one.command else edits.moves(one.command, gone)
    for path in changed:
        if path in done:
            continue
        if restores_old_version(one.command):
            edits.restore(path)
        elif one.changes.get(path) == "gone":
            edits.remove(path)
        else:
            edits.lose(path)


def _none(one: Handled) -> list[Event]:
    return []


_BY_KIND: dict[str, Callable[[Handled], list[Event]]] = {
    "read": events_of_read,
    "search": events_of_search,
    "list": events_of_list,
    "edit": events_of_edit,
    "exec": events_of_command,
    "none": _none,
}
