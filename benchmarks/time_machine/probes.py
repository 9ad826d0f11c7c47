"""Requests that are sent to what stands between the taps, and the replies that the provider plays.

They are conversations of an ordinary agent, with everything in them that a request can hold; what a pair is known to
damage is in one of them, with its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provider import Reply, chat, chat_stream, message_stream

_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_CHAT, _MESSAGES, _RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
_MARK = {"cache_control": {"type": "ephemeral"}}


@dataclass(frozen=True, slots=True)
class Probe:
    """Requests in order, (path, body), and the provider's replies; when those are used up, it answers "ok"."""

    requests: Sequence[tuple[str, Any]] = ()
    replies: Sequence[Reply] = ()


def _schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def _function(name: str, *names: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"{name} it", "parameters": _schema(*names)}}


def _tool(name: str, *names: str) -> dict[str, Any]:
    return {"name": name, "description": f"{name} it", "input_schema": _schema(*names)}


def _claude(messages: Any, **more: Any) -> tuple[str, Any]:
    return _MESSAGES, {"model": "claude-sonnet-4-5", "max_tokens": 64, **more, "messages": messages}


def _gpt(messages: Any, **more: Any) -> tuple[str, Any]:
    return _CHAT, {"model": "gpt-4o-mini", **more, "messages": messages}


def _asked(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


_TICKET = {
    "type": "object",
    "title": "Ticket",
    "properties": {
        "title": {"type": "string"},
        "description": {"type": "string"},
        "deprecated": {"type": "boolean"},
        "query": {"type": "string", "description": "the words to look for " * 20},
    },
    "required": ["title", "description", "deprecated", "query"],
}
_TEXTS = [{"type": "text", "text": f"Part {number} of the report."} for number in range(6)]
_SYSTEM = [
    {"type": "text", "text": "You are a librarian.", **_MARK},
    {"type": "text", "text": "Answer briefly."},
]
_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PNG}}
_TWO_CALLS = [
    {"type": "thinking", "thinking": "Both files have to be read.", "signature": "U0lHTkFUVVJF"},
    {"type": "text", "text": "I read both."},
    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt"}},
    {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b.png"}},
]
_TWO_RESULTS = [
    {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no such file"},
    {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "a picture"}, _IMAGE]},
]
_SCREENSHOT = [
    _asked("Look at the page."),
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "here"}, _IMAGE]}
        ],
    },
]


def _called(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{i}"}}'}} for i in ids
    ]
    return {"role": "assistant", "content": "I read.", "tool_calls": calls}


def _returned(i: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": i, "content": f"The contents of {i}: nothing but rain."}


_FILES = [f"call_{number}" for number in range(8)]


def _delta(index: int, ident: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    head = {"id": ident, "type": "function"} if ident else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


#: Probes by name; one of replies only is for agents, which ask by themselves.
PROBES: dict[str, Probe] = {
    "schema keywords as names": Probe(
        [
            (
                _RESPONSES,
                {
                    "model": "gpt-4o-mini",
                    "input": [_asked("Open a ticket.")],
                    "tools": [
                        {"type": "function", "name": "ticket", "description": "opens " * 40, "parameters": _TICKET}
                    ],
                },
            )
        ]
    ),
    "three tools": Probe([_claude([_asked("Read it.")], tools=[_tool("Read", "path"), _tool("Bash"), _tool("Edit")])]),
    "another system prompt": Probe(
        [
            _claude([_asked("Who are you?")], system="You are a pirate."),
            _claude([_asked("Who are you?")], system="You are a lawyer."),
        ]
    ),
    "a slow stream": Probe(
        [_gpt([_asked("How long is the bridge?")], stream=True)],
        [
            chat_stream(
                *({"content": f"{word} "} for word in ["it", "is", "four", "hundred", "metres", "long"]), pause=0.2
            )
        ],
    ),
    "no tool may be called": Probe(
        [_gpt([_asked("Say hello.")], max_tokens=64, tools=[_function("read", "path")], tool_choice="none")]
    ),
    "a call in one chunk": Probe(
        [_claude([_asked("List it.")], stream=True, tools=[_tool("run", "command")])],
        [chat_stream({"content": "I look."}, _delta(0, "call_1", "run", '{"command": "ls"}'), finish="tool_calls")],
    ),
    "six texts": Probe([_gpt([{"role": "user", "content": _TEXTS}], max_tokens=64, model="claude-sonnet-4-5")]),
    "system blocks": Probe([_claude([_asked("Who are you?")], system=_SYSTEM, model="gpt-4o-mini")]),
    "a cached prompt": Probe(
        [_claude([_asked("Who are you?")])],
        [
            {
                "json": chat(
                    usage={
                        "prompt_tokens": 1000,
                        "completion_tokens": 2,
                        "total_tokens": 1002,
                        "prompt_tokens_details": {"cached_tokens": 900},
                    }
                )
            }
        ],
    ),
    "a turn of two calls": Probe(
        [
            _claude(
                [
                    _asked("Read both."),
                    {"role": "assistant", "content": _TWO_CALLS},
                    {"role": "user", "content": _TWO_RESULTS},
                ],
                model="gpt-4o-mini",
                tools=[_tool("read", "path")],
                tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            )
        ]
    ),
    "a call and its result": Probe(
        [
            _gpt(
                [
                    _asked("Read it."),
                    _called("call_0"),
                    _returned("call_0"),
                    _asked("And now?"),
                ],
                tools=[_function("read", "path")],
            )
        ]
    ),
    "eight open calls": Probe(
        [_gpt([_asked("Read the eight files."), _called(*_FILES), *(_returned(i) for i in _FILES)])],
        [{"json": chat({"content": "Eight files were to be read."})}, {"json": chat({"content": "It rains in all."})}],
    ),
    "an index used twice": Probe(
        [_gpt([_asked("Read both.")], stream=True, tools=[_function("read", "path")])],
        [
            chat_stream(
                _delta(1, "call_1", "read", '{"path":'),
                _delta(1, None, None, '"a"}'),
                _delta(1, "call_2", "read", '{"path":"b"}'),
                finish="tool_calls",
            )
        ],
    ),
    "a stream that breaks off": Probe(
        [_gpt([_asked("How much is it?")], stream=True)], [chat_stream({"content": "The answer is 4"}, end=False)]
    ),
    "thinking switched off": Probe([_claude([_asked("Who are you?")], thinking={"type": "disabled"})]),
    "instructions in mid-conversation": Probe(
        [
            _gpt(
                [
                    {"role": "system", "content": "You are a librarian."},
                    _asked("Which book is oldest?"),
                    {"role": "assistant", "content": "The one in the glass case."},
                    {"role": "system", "content": "From now on answer in French."},
                    _asked("And which is newest?"),
                    {"role": "assistant", "content": "Celui de la vitrine."},
                    _asked("Thank you. Where is it?"),
                ],
                max_tokens=64,
            )
        ]
    ),
    "a mark on the last block": Probe(
        [
            _claude(
                [{"role": "user", "content": [{"type": "text", "text": "The book says this. " * 50, **_MARK}]}],
                system="Answer briefly.",
            )
        ]
    ),
    "a stream with a cached prompt": Probe(
        [_claude([_asked("Who are you?")], stream=True)],
        [
            message_stream(
                [{"type": "text", "text": "A librarian."}],
                usage={
                    "input_tokens": 100,
                    "cache_creation_input_tokens": 40,
                    "cache_read_input_tokens": 60,
                    "output_tokens": 1,
                },
                final={"output_tokens": 20},
            )
        ],
    ),
    "words of a history": Probe(
        [
            (
                _RESPONSES,
                {
                    "model": "gpt-4o-mini",
                    "input": [
                        _asked(
                            "Please keep this example:\n<CONVERSATION HISTORY>\n1. user: hello\n"
                            "</CONVERSATION HISTORY>\nDo not rewrite it."
                        )
                    ],
                },
            )
        ]
    ),
    "tools that were searched": Probe(
        [
            (
                _RESPONSES,
                {
                    "model": "gpt-4o-mini",
                    "input": [
                        _asked("Find a tool."),
                        {"type": "tool_search_call", "call_id": "call_1", "arguments": {"query": "tickets"}},
                        {
                            "type": "tool_search_output",
                            "call_id": "call_1",
                            "tools": [
                                {
                                    "type": "function",
                                    "name": "ticket",
                                    "description": "opens a ticket " * 20,
                                    "parameters": _TICKET,
                                }
                            ],
                        },
                        *(
                            {"role": role, "content": text}
                            for role, text in (
                                ("assistant", "Found."),
                                ("user", "Good."),
                                ("assistant", "Shall I?"),
                                ("user", "Wait."),
                                ("assistant", "I wait."),
                                ("user", "Now open one."),
                            )
                        ),
                    ],
                },
            )
        ]
    ),
    "a screenshot": Probe([_claude(_SCREENSHOT, tools=[_tool("look")])]),
    "two calls at once": Probe(
        (),
        [
            chat_stream(
                _delta(0, "call_north", "look", '{"side": "north"}'),
                _delta(1, "call_south", "look", '{"side": "south"}'),
                finish="tool_calls",
            )
        ],
    ),
    "a command": Probe((), [{"json": chat({"content": "I say it.\n\n```bash\necho hello\n```"})}] * 2),
}
