"""Tool calls, their results and arguments, and the definitions of tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_bench.core.jsontext import NAMED, load_json, without_nulls
from context_bench.core.keys import canonical_json
from context_bench.wire.alignment import Pairs
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.kinds import Violation


def broken_tool_pairs(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Calls and results that belonged together and no longer do."""
    orphans_before = Counter(ident for ident, _ in _orphans(sent))
    for ident, j in _orphans(received):
        if orphans_before[ident]:
            orphans_before[ident] -= 1
        else:
            yield Violation("orphan_tool_result", f"message {j + 1} answers a call that is not there", j)
    open_before = Counter(ident for ident, _ in _unanswered(sent))
    for ident, j in _unanswered(received):
        if open_before[ident]:
            open_before[ident] -= 1
        else:
            yield Violation("unanswered_tool_call", f"the call in message {j + 1} has no result", j)


def _orphans(request: WireRequest) -> Iterator[tuple[str, int]]:
    called: set[str] = set()
    for j, message in enumerate(request.messages):
        if message.role in ("tool", "function") and str(message.tool_call_id) not in called:
            yield str(message.tool_call_id), j
        called |= {str(call.get("id")) for call in message.tool_calls}
        if message.tool_calls and message.tool_calls[0].get("id") is None:  # legacy: a function is answered by its name
            called.add(str(message.tool_calls[0].get("name")))


def _unanswered(request: WireRequest) -> Iterator[tuple[str, int]]:
    answered = {str(message.tool_call_id) for message in request.messages if message.tool_call_id}
    for j, message in enumerate(request.messages):
        for call in message.tool_calls:
            name = call.get("id") if call.get("id") is not None else call.get("name")
            if str(name) not in answered:
                yield str(name), j


def argument_changes(sent: WireRequest, received: WireRequest, pairs: Pairs) -> Iterator[Violation]:
    """Calls of the history that are gone, name another tool or have other arguments."""
    for i, j in pairs.items():
        arrived = received.messages[j].tool_calls
        by_id = {str(call.get("id")): call for call in arrived}
        for place, call in enumerate(sent.messages[i].tool_calls):
            other = by_id.get(str(call.get("id"))) or (arrived[place] if len(arrived) == len(sent.messages[i].tool_calls) else None)
            if other is None:
                if arrived or received.messages[j].role == "assistant":
                    yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} is gone", i)
            elif call.get("name") != other.get("name"):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} names another tool", i)
            elif _argument_value(call.get("arguments")) != _argument_value(other.get("arguments")):
                yield Violation("tool_arguments_changed", f"message {i + 1}: call {place + 1} has other arguments", i)


def _argument_value(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            return canonical_json(load_json(arguments)) if arguments.strip() else "{}"
        except ValueError:
            return arguments
    return canonical_json({} if arguments is None else arguments)


def schema_changes(sent: Sequence[Any], received: Sequence[Any]) -> Iterator[Violation]:
    """Tools added, gone, with another meaning, with other words for whoever reads them, or in another order."""
    before, after = _by_name(sent), _by_name(received)
    for key, (name, _) in before.items():
        if key not in after:
            yield Violation("tool_removed", f"tool {name} is gone", name=name)
    for key, (name, _) in after.items():
        if key not in before:
            yield Violation("tool_added", f"tool {name} was added", name=name)
    for key in (key for key in before if key in after):
        name, a, b = *before[key], after[key][1]
        if canonical_json(_bare(a)) != canonical_json(_bare(b)):
            yield Violation("tool_meaning_changed", f"tool {name} has another definition", name=name)
        elif others := set(_annotations(a)) ^ set(_annotations(b)):
            words = ", ".join(sorted({path[-1] for path, _ in others}))
            yield Violation("tool_annotation_changed", f"tool {name} is described in another way: {words}", name=name)
    if before.keys() == after.keys() and list(before) != list(after):
        yield Violation("order_changed", "the tools arrived in another order")


def names_of(tools: Sequence[Any]) -> list[str]:
    """What tools are called, of whatever wire."""
    return [name for name, _ in _by_name(tools).values()]


_NAME_LENGTH = 128  # the most that an API takes


def _by_name(tools: Sequence[Any]) -> dict[str, tuple[str, Any]]:
    """Each tool with its name, without its null fields, under a key of its own (two may have one name)."""
    found: dict[str, tuple[str, Any]] = {}
    for tool in tools:
        held = tool if isinstance(tool, Mapping) else {}
        inner = held.get("function") if isinstance(held.get("function"), Mapping) else held
        name = str((inner or {}).get("name") or held.get("type") or len(found))
        key = name if name not in found else f"{name} #{len(found)}"
        found[key] = name[:_NAME_LENGTH], without_nulls(tool)
    return found


#: What a tool or a schema tells its reader and what checks nothing: by JSON Schema's own list, and the examples that a tool may have.
_ANNOTATIONS = frozenset(
    [
        "$comment",
        "$schema",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "input_examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
_LITERAL = frozenset({"const", "enum"})
#: What a schema without them says too.
_UNLIMITED: dict[str, tuple[Any, ...]] = {"required": ([],), "properties": ({},), "$defs": ({},), "definitions": ({},)}


def _bare(schema: Any, names: bool = False) -> Any:
    """A tool without words for its reader. `names`: the keys are names of properties, so that one called `description` stays."""
    if not isinstance(schema, Mapping):
        return [_bare(item) for item in schema] if isinstance(schema, list) else schema
    if names:
        return {key: _bare(value) for key, value in schema.items()}
    return {
        key: value if key in _LITERAL else _bare(value, names=key in NAMED)
        for key, value in schema.items()
        if key not in _ANNOTATIONS and key != "cache_control" and value not in _UNLIMITED.get(key, ())
    }


def _annotations(schema: Any, names: bool = False, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The words for a tool's reader: where each stands, its own name last, and what it says."""
    if isinstance(schema, list):
        for place, item in enumerate(schema):
            yield from _annotations(item, path=(*path, str(place)))
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            if not names and key in _ANNOTATIONS:
                yield (*path, str(key)), canonical_json(value)
            elif names or key not in _LITERAL:
                yield from _annotations(value, not names and key in NAMED, (*path, str(key)))
