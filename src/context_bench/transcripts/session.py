"""A recorded conversation, whatever program recorded it: the requests to the model in order, and what the model said to
each.

```python
for request in session.requests:
    send(request.path, request.headers, request.body)      # as it was, or would have been, sent
    compare(reply, request.recorded_reply)                 # what the recording says came back
```

Bodies that were recorded are given verbatim (`exact`). A transcript has none: request t is then everything before
assistant turn t, and `session.meta["reconstructed"]` is true. Bodies are made when asked for and share their messages:
do not change them in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json
from context_bench.core.records import Usage
from context_bench.wire.conversation import (
    ITEMS,
    PATHS,
    WIRES,
    Chat,
    ChatMessage,
    message_text,
    to_body,
    to_chat,
    tool_calls_of,
)
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES

#: In the meta of a session that the recording gives no name: its id is made of the file's name.
UNNAMED = "unnamed"
#: Headers a body needs on its wire, beside the key.
WIRE_HEADERS: dict[str, dict[str, str]] = {
    "openai-chat": {"content-type": "application/json"},
    "openai-responses": {"content-type": "application/json"},
    "anthropic": {"content-type": "application/json", "anthropic-version": "2023-06-01"},
}


@dataclass(slots=True)
class RecordedReply:
    """The model's reply: `text` (`None` if none), `tool_calls` as `{"id", "name", "arguments"}` with arguments as JSON
    text.
    """

    text: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage | None = None
    model: str | None = None
    finish_reason: str | None = None

    @classmethod
    def of(cls, message: Mapping[str, Any], *, usage: Usage | None = None, model: str | None = None) -> RecordedReply:
        """The reply in an assistant's chat message."""
        return cls(message_text(message) or None, tool_calls_of(message), usage, model)


def reply_tokens(text: str | None, tool_calls: Sequence[Any], count: Callable[[str], int]) -> int:
    """Tokens of a reply whose log does not state them: of its text, and of its tool calls as canonical JSON. Thinking
    is not in it.
    """
    return sum(map(count, reply_texts(text, tool_calls)))


def reply_texts(text: str | None, tool_calls: Sequence[Any]) -> list[str]:
    """The texts whose tokens `reply_tokens` counts."""
    return [*([text] if text else ()), *([canonical_json(list(tool_calls))] if tool_calls else ())]


@dataclass(slots=True)
class SessionRequest:
    """One request to the model. `at`: seconds since the session's first request, where known. `headers` never hold a
    key.

    `exact`: the body is the one that was sent, not a reconstruction.
    """

    wire: str
    make_body: Callable[[], dict[str, Any]] = field(repr=False)
    recorded_reply: RecordedReply | None = None
    at: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""
    exact: bool = False

    def __post_init__(self) -> None:
        self.headers = self.headers or dict(WIRE_HEADERS.get(self.wire, {}))
        self.path = self.path or PATHS.get(self.wire, "")

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body (made anew at each access, its messages shared with the session's other requests)."""
        return self.make_body()

    @property
    def chat(self) -> Chat:
        """The request in neutral form: OpenAI chat messages, tools, parameters."""
        return to_chat(self.wire, self.body)

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation sent, as OpenAI chat messages, system instructions first."""
        return self.chat.messages

    def on(self, wire: str) -> SessionRequest:
        """The same request for another wire (itself, if it is on that wire already). Raises `BadInput`."""
        if wire == self.wire:
            return self
        if wire not in WIRES:
            raise BadInput(f"no conversation goes over the wire {wire!r}; expected one of: {', '.join(WIRES)}")
        headers = {**WIRE_HEADERS[wire], **{name: text for name, text in self.headers.items() if name == "user-agent"}}
        return replace(
            self, wire=wire, make_body=lambda: to_body(wire, self.chat), headers=headers, path=PATHS[wire], exact=False
        )


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call of a session with its output (`None` if it was never answered). `turn` counts requests from 0."""

    id: str | None
    name: str
    arguments: str
    output: str | None
    turn: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """A place in a session where its history was replaced by something shorter, as the recording has it.

    `request`: number of the first request after it. `made`: number of the request whose reply is the summary (`None`:
    not recorded). `summary`: the text that stands for the history, "" where only outputs of tools were cleared.
    `make_before`, `make_opening`: the chat messages that were replaced, and those in their place (kept ones included).
    `stated_before`, `stated_after`: tokens by the log; `seconds`: its duration; `at`: seconds since the first request.
    """

    request: int
    make_before: Callable[[], list[ChatMessage]] = field(repr=False)
    make_opening: Callable[[], list[ChatMessage]] = field(repr=False)
    summary: str = ""
    made: int | None = None
    trigger: str | None = None
    stated_before: int | None = None
    stated_after: int | None = None
    seconds: float | None = None
    at: float | None = None


@dataclass(slots=True)
class Session:
    """A recorded conversation. `source`: where it was read. `wire`: the one it was recorded on.

    `meta`: `format`, `reconstructed` (no bodies were recorded), `assumed` (parts of the bodies that the recording does
    not tell), `skipped` (reason → lines that were passed over), and what the format tells besides (`cwd`, `version`,
    `usage` …). `after`: what was recorded after the last reply, as chat messages, such as outputs of tools that no
    request carried any more. `compactions`: those that the recording has, in order; they part no session in two.
    """

    id: str
    source: str
    wire: str
    requests: list[SessionRequest] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    after: list[ChatMessage] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)

    def on(self, wire: str) -> Session:
        """The same session with its bodies rendered for another wire."""
        return (
            self
            if wire == self.wire
            else replace(self, wire=wire, requests=[request.on(wire) for request in self.requests])
        )

    @property
    def messages(self) -> list[ChatMessage]:
        """The whole conversation as far as it was recorded: the last request, the reply to it, and what came after, as
        chat messages.
        """
        if not self.requests:
            return []
        last = self.requests[-1]
        return [*last.messages, *([reply_as_message(last.recorded_reply)] if last.recorded_reply else []), *self.after]

    def tool_uses(self) -> Iterator[ToolUse]:
        """Every tool call that the model made, in order, with the output that was recorded for it."""
        replies = [
            (turn, call)
            for turn, r in enumerate(self.requests)
            if r.recorded_reply
            for call in r.recorded_reply.tool_calls
        ]
        outputs = self._outputs({call["id"] for _, call in replies})
        for turn, call in replies:
            yield ToolUse(call["id"], str(call["name"]), call["arguments"], outputs.get(call["id"]), turn)

    def _outputs(self, wanted: set[Any]) -> dict[Any, str]:
        """Call id → output. The last request holds them all, unless its history was shortened on the way."""
        found: dict[Any, str] = {}
        for messages in chain([self.after], (request.messages for request in reversed(self.requests))):
            for message in messages:
                if message.get("role") in RESULT_ROLES:
                    ident = message.get("tool_call_id")
                    found.setdefault(ident if isinstance(ident, str) else None, message_text(message))
            if wanted <= found.keys():
                break
        return found


@dataclass(slots=True)
class SeenSession:
    """A conversation that went through a tap, request by request.

    `sent`: all requests as they were sent. `pairs`: those for which an answered call was seen at the provider, each
    with that call; `unseen` counts the others. `arrived`: the calls, repeats of the same body among them; `beside`:
    calls of what stands in between, with bodies of its own. `meta` is that of all sessions made of it.
    """

    id: str
    source: str
    meta: dict[str, Any] = field(default_factory=dict)
    sent: list[SessionRequest] = field(default_factory=list)
    pairs: list[tuple[SessionRequest, SessionRequest]] = field(default_factory=list)
    arrived: list[SessionRequest] = field(default_factory=list)
    beside: list[SessionRequest] = field(default_factory=list)
    unseen: int = 0

    def add(self, sent: SessionRequest | None, calls: Sequence[SessionRequest]) -> None:
        """Take in a request (`None`: nobody knows whose the calls are) and the answered calls that were seen for it."""
        if sent is None:
            self.beside += calls
            return
        self.sent.append(sent)
        if not calls:
            self.unseen += 1
            return
        own = calls[_closest(sent, calls)] if len(calls) > 1 else calls[0]
        self.pairs.append((sent, own))
        for call in calls:
            (self.arrived if call is own or call.body == own.body else self.beside).append(call)

    def session(self, requests: list[SessionRequest], **more: Any) -> Session:
        """Some of the requests as a session."""
        wire = requests[0].wire if requests else "openai-chat"
        return Session(self.id, self.source, wire, requests, {**self.meta, **more})


def _closest(sent: SessionRequest, calls: Sequence[SessionRequest]) -> int:
    from context_bench.wire.apis import parse_request
    from context_bench.wire.violations import closest

    return closest(parse_request(sent.wire, sent.body), [parse_request(call.wire, call.body) for call in calls])


#: How the texts begin with which clients stand in for a history that they compacted.
SUMMARIES = (
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem and produced a summary",  # Codex
    "You were originally given instructions from a user over one or more turns. Here were the user messages",
    "<state_snapshot>",  # Gemini CLI
    "<context_summary>",
)
#: What clients put into a user's message: reminders, commands of their own with what these printed.
_BY_CLIENT = re.compile(
    r"<(system-reminder|command-name|command-message|command-args|local-command-caveat|local-command-stdout"
    r"|local-command-stderr|environment_context|user_instructions|permissions instructions)>.*?(?:</\1>|\Z)",
    re.S,
)


def summary_in(text: str) -> bool:
    """True if a text begins as the summaries do that clients put in the place of a history."""
    return text.lstrip().startswith(SUMMARIES)


def users_words(message: Mapping[str, Any]) -> str:
    """The text of a user's message, with spaces in the place of what its client put there: a summary, a reminder, the
    output of a command. Places in the text stay what they are.
    """
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    whole = message_text(message)
    hidden = [text for part in parts if (text := _text_of(part)) and summary_in(text)]
    for text in hidden:
        whole = whole.replace(text, " " * len(text))
    return _BY_CLIENT.sub(lambda hit: " " * len(hit[0]), whole) if "<" in whole else whole


def _text_of(part: Any) -> str:
    found = part.get("text") if isinstance(part, Mapping) else part
    return found if isinstance(found, str) else ""


def spoken(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages behind the instructions at the head."""
    first = next((at for at, m in enumerate(messages) if m.get("role") not in SYSTEM_ROLES), len(messages))
    return list(messages[first:])


def reply_as_message(reply: RecordedReply) -> ChatMessage:
    """A reply as the message that the next request repeats."""
    message: ChatMessage = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in reply.tool_calls
        ]
    return message


def verbatim(wire: str, body: dict[str, Any], **fields: Any) -> SessionRequest:
    """A request whose body was recorded."""
    return SessionRequest(wire, partial(_itself, body), exact=True, **fields)


def _itself(body: dict[str, Any]) -> dict[str, Any]:
    return body


def reconstructed(
    wire: str, head: Mapping[str, Any], items: Sequence[Any], start: int, stop: int, **fields: Any
) -> SessionRequest:
    """A request made of `head` (the body without the conversation) and `items[start:stop]`, messages or input items of
    that wire.
    """
    return SessionRequest(wire, partial(_assembled, wire, head, items, start, stop), **fields)


def _assembled(wire: str, head: Mapping[str, Any], items: Sequence[Any], start: int, stop: int) -> dict[str, Any]:
    return {**head, ITEMS[wire]: list(items[start:stop])}


def conversation(
    messages: Sequence[ChatMessage],
    *,
    model: str | None = None,
    tools: Sequence[Any] = (),
    params: Mapping[str, Any] | None = None,
) -> list[SessionRequest]:
    """The requests of a whole chat conversation: one before each assistant message, answered by it; and one at the end
    if the last message is not the assistant's.
    """
    head: dict[str, Any] = {"model": model or ""}
    if tools:
        head["tools"] = list(tools)
    head.update(params or {})
    requests = []
    for place, message in enumerate(messages):
        if message.get("role") == "assistant" and place:
            reply = RecordedReply.of(message, model=model)
            requests.append(reconstructed("openai-chat", head, messages, 0, place, recorded_reply=reply))
    if messages and messages[-1].get("role") != "assistant":
        requests.append(reconstructed("openai-chat", head, messages, 0, len(messages)))
    return requests
