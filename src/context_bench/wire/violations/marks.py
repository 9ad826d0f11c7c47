"""Marks of prompt caching: where the prefix may be cached, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.wire.alignment import Pairs
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.kinds import Violation


def mark_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Where the prefix may be cached, and for how long. A mark stands on a message's last part or on one counted from its start."""
    back = {j: i for i, j in pairs.items()}
    before = dict(_marks_of(sent, {i: i for i in range(len(sent.messages))}))
    after = dict(_marks_of(received, back))
    for place in before.keys() & after.keys():
        if before[place] != after[place]:
            yield Violation("cache_control_ttl_changed", f"{_where(place)}: {before[place]} → {after[place]}", _index(place))
    lost, added = sorted(before.keys() - after.keys(), key=str), sorted(after.keys() - before.keys(), key=str)
    for place, other in zip(lost, added, strict=False):
        yield Violation("cache_control_moved", f"from {_where(place)} to {_where(other)}", _index(place))
    for place in lost[len(added) :]:
        yield Violation("cache_control_lost", _where(place), _index(place))
    for place in added[len(lost) :]:
        yield Violation("cache_control_added", _where(place), _index(place))


_Place = tuple[str, Any, Any]


def _marks_of(request: WireRequest, back: Pairs) -> Iterator[tuple[_Place, str]]:
    if request.params.get("cache_control"):
        yield ("request", 0, 0), _lifetime(request.params["cache_control"])
    for tool in request.tools:
        if isinstance(tool, Mapping) and tool.get("cache_control"):
            yield ("tool", str(tool.get("name") or tool.get("type")), 0), _lifetime(tool["cache_control"])
    for j, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if part.cache_control:
                step = "last" if place == len(message.parts) - 1 else place
                yield ("message", back[j], step) if j in back else ("new message", j, step), _lifetime(part.cache_control)


def _lifetime(mark: Any) -> str:
    ttl = mark.get("ttl") if isinstance(mark, Mapping) else None
    return str(ttl or "5m")  # what a mark without one means


def _where(place: _Place) -> str:
    what, which, step = place
    if what == "tool":
        return f"tool {which}"
    if what == "request":
        return "the whole request"
    return f"{what} {which + 1}, {'its last part' if step == 'last' else f'part {step + 1}'}"


def _index(place: _Place) -> int | None:
    return place[1] if place[0] == "message" else None
