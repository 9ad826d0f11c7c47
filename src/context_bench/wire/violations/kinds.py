"""The kinds of violations, and one violation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

#: Every kind there is, in the order of the table at the head of this package.
KINDS: tuple[str, ...] = (
    "system_role_lost",
    "assistant_role_changed",
    "role_changed",
    "last_user_changed",
    "order_changed",
    "orphan_tool_result",
    "unanswered_tool_call",
    "tool_arguments_changed",
    "tool_added",
    "tool_removed",
    "tool_meaning_changed",
    "tool_annotation_changed",
    "tool_choice_changed",
    "params_changed",
    "response_format_changed",
    "cache_control_lost",
    "cache_control_moved",
    "cache_control_added",
    "cache_control_ttl_changed",
    "thinking_changed",
    "reasoning_item_lost",
    "server_tool_changed",
    "media_lost",
    "media_reencoded",
    "previous_response_id_changed",
    "beta_header_lost",
    "wire_changed",
    "json_reserialised",
    "retry",
    "duplicate",
    "silent_truncation",
    "after_done",
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that was done to a request. `kind`: see this package's table; `detail`: a phrase for people without the request's texts.

    `index`: the place of the message, counted from 0 in the request as sent (for what only the received one has: in that one). `name`: the
    tool, where it is about one.
    """

    kind: str
    detail: str
    index: int | None = None
    name: str | None = None


#: Kinds that are named and not summed: other words for a tool's reader, which is what compressors of tools do.
NOTES = frozenset({"tool_annotation_changed"})
#: A name that stands for several kinds, wherever figures stand beside each other by name: the kind of that name was split.
SUMS: dict[str, tuple[str, ...]] = {"tool_schema_changed": ("tool_added", "tool_removed", "tool_meaning_changed")}


def total(counts: Mapping[str, int]) -> int:
    """How often something was done that is a violation: all kinds but those of `NOTES`."""
    return sum(times for kind, times in counts.items() if kind not in NOTES)


def tools_of(found: Iterable[Violation]) -> dict[str, list[str]]:
    """The tools that violations are about, by kind, each once."""
    tools: dict[str, list[str]] = {}
    for one in found:
        if one.name is not None and one.name not in tools.setdefault(one.kind, []):
            tools[one.kind].append(one.name)
    return tools


_MOST_TOOLS = 100  # of one kind: names come from outside


def count_tools(counts: dict[str, dict[str, int]], tools: Mapping[str, Iterable[str]]) -> None:
    """Count the tools of one more request in: in how many requests each was touched, by kind."""
    for kind, names in tools.items():
        known = counts.setdefault(kind, {})
        for name in names:
            if name in known or len(known) < _MOST_TOOLS:
                known[name] = known.get(name, 0) + 1


def phrase(kind: str, tools: Collection[str] = (), most: int = 3) -> str:
    """A kind and the first of the tools that it is about: `tool_added headroom_retrieve`."""
    if not tools:
        return kind
    more = len(tools) - most
    return f"{kind} {', '.join(list(tools)[:most])}{f' and {more:,} more' if more > 0 else ''}"


def by_kind(counts: Mapping[str, int]) -> dict[str, int]:
    """Every kind and every name that stands for several, with how often it occurred, as gates and metrics name them."""
    found = {kind: counts.get(kind, 0) for kind in KINDS}
    return found | {name: sum(found[kind] for kind in kinds) for name, kinds in SUMS.items()}
