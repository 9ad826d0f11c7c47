"""The kinds of violations, and one violation."""

from __future__ import annotations

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
    "tool_schema_changed",
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
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that was done to a request. `kind`: see this package's table; `detail`: a phrase for people without the request's texts.

    `index`: the place of the message, counted from 0 in the request as sent (for what only the received one has: in that one).
    """

    kind: str
    detail: str
    index: int | None = None
