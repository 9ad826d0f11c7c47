"""OpenAI chat completions: requests, replies and streams, read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.errors import BadReply
from context_bench.core.numbers import OPENAI_CHAT, usage_of
from context_bench.core.records import Usage
from context_bench.wire.apis.shared import (
    CREATED,
    OBJECT,
    Fault,
    Grammar,
    Pieces,
    Reply,
    StreamReader,
    arguments_text,
    as_dict,
    as_list,
    as_str,
    error_text,
    filled,
    joined,
    params_of,
    pieces_of,
    reply_id,
    require_body,
    sse,
    text_part,
    unknown_part,
)
from context_bench.wire.request import RESULT_ROLES, Part, WireMessage, WireRequest

_TEXT_KINDS = ("text", "input_text", "output_text")
#: What a message tells beside its content that a model gets or has to get back; and what every call of one has.
_FIELDS = ("name", "prefix", "partial", "reasoning_details", "thinking_blocks")
_CALL_FIELDS = ("id", "type", "function", "custom", "index")


def parse_request(body: Mapping[str, Any]) -> WireRequest:
    """The body of a `POST /chat/completions` in neutral form; legacy `functions` count as tools."""
    return WireRequest(
        wire="openai-chat",
        model=as_str(body.get("model")),
        messages=[_message(raw) for raw in as_list(body.get("messages"))],
        tools=[*as_list(body.get("tools")), *as_list(body.get("functions"))],
        params=params_of(body, "messages", "tools", "functions", "model", "stream"),
        stream=bool(body.get("stream")),
    )


def _message(raw: Any) -> WireMessage:
    if not isinstance(raw, OBJECT):
        return WireMessage("unknown", [unknown_part(raw)])
    parts = content_parts(raw.get("content"), raw)
    for name in ("reasoning_content", "reasoning", "refusal"):
        if isinstance(raw.get(name), str) and raw[name]:
            parts.append(Part("refusal" if name == "refusal" else "reasoning", raw[name]))
    if isinstance(raw.get("audio"), OBJECT):
        parts.append(Part("audio", None, raw["audio"]))
    calls = [tool_call(call) for call in as_list(raw.get("tool_calls"))]
    if isinstance(raw.get("function_call"), OBJECT):
        calls.append(tool_call({"function": raw["function_call"]}))
    role = as_str(raw.get("role")) or "unknown"
    answered = as_str(raw.get("tool_call_id")) or (as_str(raw.get("name")) if role == "function" else None)
    fields = {name: raw[name] for name in _FIELDS if raw.get(name) and role not in RESULT_ROLES}
    for call in map(as_dict, as_list(raw.get("tool_calls"))):
        if more := {name: value for name, value in call.items() if name not in _CALL_FIELDS and value}:
            fields[f"call {call.get('id')}"] = more
    return WireMessage(role, parts, calls, answered, failed=raw.get("is_error") is True, fields=fields)


def content_parts(content: Any, holder: Any = None) -> list[Part]:
    """The parts of a `content` value: text, a list of parts, or nothing."""
    if content is None:
        return []
    if isinstance(content, str):
        return [
            text_part("text", content, holder if isinstance(holder, OBJECT) and holder.get("cache_control") else None)
        ]
    if not isinstance(content, list):
        return [unknown_part(content)]
    return [_part(raw) for raw in content]


def _part(raw: Any) -> Part:
    if isinstance(raw, str):
        return Part("text", raw)
    if isinstance(raw, OBJECT):
        if raw.get("type") in _TEXT_KINDS and isinstance(raw.get("text"), str):
            return text_part("text", raw["text"], raw)
        if raw.get("type") == "refusal" and isinstance(raw.get("refusal"), str):
            return text_part("refusal", raw["refusal"], raw)
    return unknown_part(raw)


def tool_call(raw: Any) -> dict[str, Any]:
    """A tool call in neutral form, arguments as sent."""
    call = as_dict(raw)
    inner = as_dict(call.get("function") or call.get("custom"))
    arguments = inner.get("arguments", inner.get("input"))
    return {"id": call.get("id"), "name": inner.get("name"), "arguments": arguments}


def _reply_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    raw = as_list(message.get("tool_calls"))
    if isinstance(message.get("function_call"), OBJECT):
        raw.append({"function": message["function_call"]})
    return [{**call, "arguments": arguments_text(call["arguments"])} for call in map(tool_call, raw)]


def parse_reply(body: Any) -> Reply:
    """The first choice of a chat completion."""
    body = require_body(body, expects="'choices'")
    choices = body.get("choices")
    if not isinstance(choices, list):
        raise BadReply(f"Unexpected response: no list 'choices' among the keys {sorted(map(str, body))[:12]}")
    if not choices:
        raise BadReply("empty choices in the reply")
    choice = as_dict(choices[0])
    if choice.get("error"):
        raise BadReply(f"Unexpected response: an error in a successful reply: {error_text(choice['error'])}")
    message = choice.get("message")
    if not isinstance(message, OBJECT):
        raise BadReply("Unexpected response: the first choice has no 'message' object")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise BadReply(f"Unexpected response: message content is a JSON {type(content).__name__}")
    parts, raw_calls = content_parts(content), [as_dict(call) for call in as_list(message.get("tool_calls"))]
    return Reply(
        text=joined(parts, "text"),
        tool_calls=_reply_calls(message),
        finish_reason=as_str(choice.get("finish_reason")),
        usage=usage_of(body.get("usage"), OPENAI_CHAT),
        model=as_str(body.get("model")),
        refusal=as_str(message.get("refusal")) or joined(parts, "refusal"),
        reasoning=as_str(message.get("reasoning_content")) or as_str(message.get("reasoning")),
        raw_usage=as_dict(body.get("usage")) or None,
        logprobs=choice.get("logprobs"),
        stop=as_str(choice.get("finish_reason")),
        blocks=[
            *_types(message),
            *(_call_type(call) for call in as_list(message.get("tool_calls"))),
            *["choice"] * (len(choices) - 1),
        ],
        extras=filled(
            annotations=message.get("annotations"),
            logprobs=_logprobs(choice),
            choices=[_further(as_dict(each)) for each in choices[1:]],
        ),
        faults=tuple(_form_faults(message, raw_calls)),
    )


def _form_faults(message: Mapping[str, Any], calls: list[dict[str, Any]]) -> Iterator[Fault]:
    if message.get("role") != "assistant":
        yield Fault("field", "a message without the role of the assistant")
    if any(call.get("type") not in ("function", "custom") for call in calls):
        yield Fault("field", "a tool call without its type")
    if any(not isinstance(as_dict(call.get("function")).get("arguments", ""), str) for call in calls):
        yield Fault("arguments", "arguments that are no text of JSON")


def _logprobs(choice: Mapping[str, Any]) -> list[Any]:
    held = as_dict(choice.get("logprobs"))
    return [*as_list(held.get("content")), *as_list(held.get("refusal"))]


def _further(choice: Mapping[str, Any]) -> list[Any]:
    """A further choice: its text, its calls, the reason of its end."""
    message = as_dict(choice.get("message"))
    text = joined(content_parts(message.get("content")), "text") or ""
    return [text, [[call["name"], call["arguments"]] for call in _reply_calls(message)], choice.get("finish_reason")]


def _call_type(raw: Any) -> str:
    return "custom_tool_call" if as_dict(raw).get("custom") else "function_call"


def _types(message: Mapping[str, Any]) -> list[str]:
    """Kinds of content in a message that have no field in the neutral form."""
    found = [name for name in ("audio", "annotations") if message.get(name)]
    return found + [part.kind for part in content_parts(message.get("content")) if part.text is None]


class ChatStream(StreamReader):
    """Puts a chat completion together from its chunks (choice 0)."""

    def __init__(self, within: Pieces | None = None) -> None:
        super().__init__()
        self._pieces = Pieces(within)
        self._reply = Reply()
        self._calls: dict[int, dict[str, Any]] = {}
        self._last = -1  # the highest place of a call
        self._moved: dict[int, int] = {}  # places of calls whose index another has, by index
        self._types: dict[str, None] = {}
        self._call_types: dict[int, str] = {}
        self._others: dict[int, ChatStream] = {}  # further choices, by index
        self._extras: dict[str, list[Any]] = {}

    def put_together(self) -> Reply:
        reply, taken = self._reply, self._pieces.taken
        reply.text, reply.reasoning = taken("text", reply.text), taken("reasoning", reply.reasoning)
        reply.refusal = taken("refusal", reply.refusal)
        for index, call in self._calls.items():
            call["arguments"] = taken(index, call["arguments"])
        reply.tool_calls = [self._calls[index] for index in sorted(self._calls)]
        calls = [self._call_types[index] for index in sorted(self._calls)]
        reply.stop, reply.blocks = reply.finish_reason, [*self._types, *calls, *["choice"] * len(self._others)]
        reply.extras |= filled(**self._extras)
        if self._others:
            reply.extras["choices"] = [self._others[index].further() for index in sorted(self._others)]
        return reply

    def further(self) -> list[Any]:
        """The reply as a further choice of another."""
        reply = self.reply
        calls = [[call["name"], call["arguments"]] for call in reply.tool_calls]
        return [reply.text or "", calls, reply.finish_reason]

    def done(self) -> None:
        self.complete = self.over = True

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        if body.get("error") or name == "error":
            self.fail(body.get("error") or body)
            return
        reply = self._reply
        reply.model = reply.model or as_str(body.get("model")) or None
        if isinstance(body.get("usage"), OBJECT) and body["usage"]:
            reply.usage, reply.raw_usage = usage_of(body["usage"], OPENAI_CHAT), dict(body["usage"])
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, OBJECT):
                continue
            if not choice.get("index"):
                self._choice(choice)
            elif isinstance(choice["index"], int):
                self._other(choice["index"])._choice(choice)

    def _other(self, index: int) -> ChatStream:
        if index not in self._others:
            self._pieces.begin()
            self._others[index] = ChatStream(self._pieces)
        return self._others[index]

    def _choice(self, choice: Mapping[str, Any]) -> None:
        given, pieces = choice.get("delta"), self._pieces
        delta: Mapping[str, Any] = given if isinstance(given, OBJECT) else {}
        content = delta.get("content")
        if not isinstance(content, str):
            content = joined(content_parts(content), "text")
        if content is not None:
            pieces.add("text", content)
        if "audio" in delta or "annotations" in delta:
            self._types |= dict.fromkeys(_types(delta))
        for name, more in ("annotations", as_list(delta.get("annotations"))), ("logprobs", _logprobs(choice)):
            if more:
                self._extras.setdefault(name, []).extend(more)
        reasoning = as_str(delta.get("reasoning_content")) or as_str(delta.get("reasoning"))
        if reasoning:
            pieces.add("reasoning", reasoning)
        refusal = as_str(delta.get("refusal"))
        if refusal:
            pieces.add("refusal", refusal)
        calls = as_list(delta.get("tool_calls"))
        if isinstance(delta.get("function_call"), OBJECT):
            calls.append({"index": 0, "function": delta["function_call"]})
        for call in map(as_dict, calls):
            self._call(call)
        self.started = self.started or bool(content or reasoning or refusal or calls)
        if isinstance(choice.get("finish_reason"), str):
            self._reply.finish_reason = choice["finish_reason"]
            self.complete = True

    def _place(self, index: Any, part: Mapping[str, Any]) -> int:
        """The place of the call that a piece belongs to. Some servers leave the index out, others use one twice: a new
        id, with a name where the index is another's, is a new call.
        """
        if not isinstance(index, int):
            return self._last + (1 if part["id"] or not self._calls else 0)
        place = self._moved.get(index, index)
        known = self._calls.get(place)
        if known is not None and part["name"] and part["id"] and known["id"] not in (None, part["id"]):
            place = self._moved[index] = self._last + 1
        return place

    def _call(self, raw: dict[str, Any]) -> None:
        part = tool_call(raw)
        index = self._place(raw.get("index"), part)
        self._last = max(self._last, index)
        if index not in self._calls:
            self._pieces.begin()
        known = self._calls.setdefault(index, {"id": None, "name": None, "arguments": ""})
        self._call_types.setdefault(index, _call_type(raw))
        known["id"] = known["id"] or part["id"]
        known["name"] = known["name"] or part["name"]
        if part["arguments"] is not None:
            self._pieces.add(index, arguments_text(part["arguments"]))

    def finish(self) -> None:
        """A null text after tool calls: the empty content of the first delta is no answer."""
        reply = self.reply
        if reply.text == "" and (reply.tool_calls or reply.refusal):
            reply.text = None


class ChatGrammar(Grammar):
    """Chunks with one id; of each tool call a chunk with its id and name first, indexes from 0; nothing said after the
    finish reason; `[DONE]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None
        self._ids: dict[int, str] = {}  # of calls, by index
        self._stopped = self._billed = False

    def see(self, name: str, body: Mapping[str, Any]) -> None:
        ident = as_str(body.get("id"))
        if ident and self._id and ident != self._id:
            self.fault("ids", "its chunks have several ids")
        self._id = ident or self._id
        if body.get("usage"):
            if self._billed:
                self.fault("usage", "the usage is told more than once: who adds it up counts it twice")
            self._billed = True
        for choice in map(as_dict, as_list(body.get("choices"))):
            if not choice.get("index"):
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = as_dict(choice.get("delta"))
        calls = as_list(delta.get("tool_calls"))
        if self._stopped and (delta.get("content") or calls):
            self.fault("after_stop", "a delta after the finish reason")
        self._stopped = self._stopped or isinstance(choice.get("finish_reason"), str)
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            self.piece(delta.get(key))
        for call in map(as_dict, calls):
            self._call(call)

    def _call(self, call: dict[str, Any]) -> None:
        index, ident = call.get("index"), as_str(call.get("id")) or ""
        function = as_dict(call.get("function"))
        self.piece(function.get("arguments"))
        if not isinstance(index, int):
            self.fault("index", "a piece of a tool call without an index")
        elif index not in self._ids:
            if index != len(self._ids):
                self.fault("index", f"tool call {len(self._ids) + 1} has index {index}")
            if function and not function.get("name"):
                self.fault("order", "arguments of a tool call before its name")
            self._ids[index] = ident
        elif ident and self._ids[index] and ident != self._ids[index]:
            self.fault("index", f"index {index} is used by two tool calls")
        elif function.get("name"):
            self.fault("order", "the name of a tool call comes twice: who joins the pieces doubles it")

    def close(self) -> None:
        if not self.done:
            self.fault("end", "the stream ends without [DONE]")


def raw_usage(usage: Usage) -> dict[str, Any]:
    """Usage in OpenAI's form; what is not known is left out."""
    raw: dict[str, Any] = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    if usage.input_tokens is not None and usage.output_tokens is not None:
        raw["total_tokens"] = usage.input_tokens + usage.output_tokens
    prompt = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    raw["prompt_tokens_details"] = {key: value for key, value in prompt.items() if value is not None} or None
    raw["completion_tokens_details"] = (
        None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    )
    return {key: value for key, value in raw.items() if value is not None}


def _raw_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": call.get("id"),
            "type": "function",
            "function": {"name": call.get("name"), "arguments": arguments_text(call.get("arguments"))},
        }
        for call in reply.tool_calls
    ]


def render_reply(reply: Reply, request: WireRequest) -> dict[str, Any]:
    """A `chat.completion` object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = _raw_calls(reply)
    body: dict[str, Any] = {
        "id": reply_id("chatcmpl-", reply, request),
        "object": "chat.completion",
        "created": CREATED,
        "model": reply.model or request.model or "",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}],
    }
    if reply.usage:
        body["usage"] = raw_usage(reply.usage)
    return body


def render_stream(reply: Reply, request: WireRequest, pieces: int = 8) -> Iterator[bytes]:
    """Chunks: role first, then reasoning, content, refusal, tool calls, the stop reason, usage if the request asked for
    it, `[DONE]`.
    """
    with_usage = bool(as_dict(request.params.get("stream_options")).get("include_usage")) and reply.usage is not None
    frame: dict[str, Any] = {
        "id": reply_id("chatcmpl-", reply, request),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": reply.model or request.model or "",
    }
    tail: dict[str, Any] = {"usage": None} if with_usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return sse(
            {**frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **tail}
        )

    yield chunk({"role": "assistant", "content": None if reply.text is None else "", "refusal": None})
    for name, text in (("reasoning_content", reply.reasoning), ("content", reply.text), ("refusal", reply.refusal)):
        for piece in pieces_of(text or "", pieces):
            yield chunk({name: piece})
    for index, call in enumerate(_raw_calls(reply)):
        yield chunk({"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]})
        for piece in pieces_of(call["function"]["arguments"], pieces):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, reply.finish_reason)
    if with_usage and reply.usage:
        yield sse({**frame, "choices": [], "usage": raw_usage(reply.usage)})
    yield b"data: [DONE]\n\n"
