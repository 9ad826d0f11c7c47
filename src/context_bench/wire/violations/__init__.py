"""Changes to a request on its way that shortening its text does not explain: roles, tool calls, parameters, marks,
blocks, bytes.

A text that became shorter inside a tool result, a document or an earlier message is compression, and so is an earlier
turn that is gone as a whole. A field that is null says as much as none. A violation changes what the model is asked,
what the provider accepts, or what it bills. Nothing here does I/O.

| kind | what was done |
| --- | --- |
| `system_role_lost` | instructions arrive under another role, or not at all |
| `assistant_role_changed` | what the assistant said arrives as said by another |
| `role_changed` | any other change of role (a tool's result as the user's words) |
| `last_user_changed` | the question (last paragraph of the last user text) is another, or gone |
| `order_changed` | messages or tools arrive in another order |
| `orphan_tool_result` | a tool result without the call before it |
| `unanswered_tool_call` | a tool call without its result |
| `tool_arguments_changed` | another tool name or other arguments in a call of the history |
| `tool_added`, `tool_removed` | a tool more or less; one of another name is both |
| `tool_meaning_changed` | what a tool takes: parameters, types, required fields, enum values |
| `tool_annotation_changed` | only what a tool tells its reader: `description`, `title`, `$schema`, `default` …; not in the sum |
| `tool_choice_changed` | `tool_choice` means something else |
| `params_changed` | model, stream flag or any other field of the body |
| `response_format_changed` | the form of answer asked for |
| `cache_control_lost`, `_moved`, `_added`, `_ttl_changed` | marks of prompt caching |
| `thinking_changed` | signed thinking is not byte-equal, or is gone from the turn in progress; the `thinking` setting |
| `reasoning_item_lost` | a reasoning item is gone or altered while what it led to is still there |
| `server_tool_changed` | calls and results of the provider's own tools |
| `media_lost`, `media_reencoded` | images, files, sound |
| `previous_response_id_changed` | the conversation kept by the provider is another |
| `beta_header_lost` | a beta feature or the API version that was asked for |
| `wire_changed` | it arrived on another API |
| `json_reserialised` | the same meaning in other bytes |
| `retry`, `duplicate` | one request sent on more than once, after a failure or without one |
| `silent_truncation` | the provider billed fewer tokens than it was sent |
| `after_done` | the reply's stream went on after its last event, which the provider's own did not |

`tool_schema_changed`, once a kind, stands in figures by name (`compress wire`, gates) for the sum of `tool_added`,
`tool_removed` and `tool_meaning_changed`.
"""  # noqa: E501

from context_bench.wire.violations.comparing import (
    closest,
    compare_requests,
    repeated_requests,
    reserialised,
    silent_truncation,
    stream_past_end,
    wire_violations,
)
from context_bench.wire.violations.parts import (
    KINDS,
    NOTES,
    Violation,
    by_kind,
    count_tools,
    names_of,
    phrase,
    tools_of,
    total,
)

__all__ = [
    "KINDS",
    "NOTES",
    "Violation",
    "by_kind",
    "closest",
    "compare_requests",
    "count_tools",
    "stream_past_end",
    "names_of",
    "phrase",
    "repeated_requests",
    "reserialised",
    "silent_truncation",
    "tools_of",
    "total",
    "wire_violations",
]
