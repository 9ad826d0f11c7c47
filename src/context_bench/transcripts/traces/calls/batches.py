"""Tools that do several things in one call: each of them as a call of its own, with the part of the result that is its."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from context_bench.transcripts.record import ToolCall
from context_bench.transcripts.traces.vocabulary import ToolRow
from context_bench.transcripts.values import mapping, parsed

#: So many things are told apart in one call.
_MOST = 500


def parts_of(call: ToolCall, row: ToolRow) -> list[ToolCall]:
    """The things that a call does, in order; the call itself where its tool does one."""
    items = _items(row.first(row.each, call.arguments)) if row.each else []
    if not items:
        return [call]
    results = _results(call.output, len(items))
    return [_part(call, row, item, result) for item, result in zip(items, results, strict=True)]


def _items(given: Any) -> list[Any]:
    value = parsed(given)
    if isinstance(value, list):
        return value[:_MOST]
    return [value] if isinstance(value, str | Mapping) and value else []


def _part(call: ToolCall, row: ToolRow, item: Any, result: Any) -> ToolCall:
    arguments: Any = item
    if not isinstance(item, Mapping):
        arguments = {next(iter((*row.command, *row.paths)), "item"): item}
    elif isinstance(args := item.get("args"), list | str) and row.command and isinstance(item.get(row.command[0]), str):
        arguments = {row.command[0]: [item[row.command[0]], *([args] if isinstance(args, str) else args)]}
    told = mapping(result)
    output = told.get("result", told.get("output")) if told else result
    failed = True if told.get("success") is False else call.failed
    if failed and not output:
        output = told.get("error")
    return replace(call, arguments=arguments, output=output if isinstance(output, str) else call.output and "", failed=failed, then=None)


def _results(output: str | None, number: int) -> list[Any]:
    """The results of so many things: a list of as many, or the one text of one thing."""
    value = parsed(output)
    if isinstance(value, list) and len(value) == number:
        return value
    return [output] if number == 1 else [None] * number
