"""A plain chat request said on another provider's wire."""

from __future__ import annotations

from typing import Any

from context_bench.core.errors import BadInput
from context_bench.llm.shapes import ShapedRequest
from context_bench.wire.request import SYSTEM_ROLES

#: Anthropic refuses a request without it.
MAX_TOKENS = 4096
WIRES = {"openai": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses"}


def rewired(request: ShapedRequest, wire: str) -> ShapedRequest:
    """`request` (messages without tools, on the chat wire) for another wire; one that is there already stays as it is."""
    if wire not in WIRES:
        raise BadInput(f"wire {wire!r} is not known; there are: {', '.join(WIRES)}")
    if request.wire == WIRES[wire]:
        return request
    if request.wire != "openai-chat" or "tools" in request.body:
        raise BadInput(f"wire {wire!r} goes with plain shapes; the shape of {request.path} with tools has a wire of its own")
    body = dict(request.body)
    messages: list[dict[str, Any]] = body.pop("messages")
    body.pop("stream_options", None)
    if wire == "anthropic":
        return _anthropic(request, body, messages)
    return _responses(request, body, messages)


def _anthropic(request: ShapedRequest, body: dict[str, Any], messages: list[dict[str, Any]]) -> ShapedRequest:
    """System texts go in front, as this wire has it."""
    system = [{"type": "text", "text": message["content"]} for message in messages if message["role"] in SYSTEM_ROLES]
    body["messages"] = [message for message in messages if message["role"] not in SYSTEM_ROLES]
    if system:
        body["system"] = system
    body.setdefault("max_tokens", body.pop("max_completion_tokens", MAX_TOKENS))
    stop = body.pop("stop", None)
    if stop is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return ShapedRequest("anthropic", "/v1/messages", {**request.headers, "anthropic-version": "2023-06-01"}, body)


def _responses(request: ShapedRequest, body: dict[str, Any], messages: list[dict[str, Any]]) -> ShapedRequest:
    body["input"] = [{"type": "message", **message} for message in messages]
    for name in ("max_tokens", "max_completion_tokens"):
        if name in body:
            body["max_output_tokens"] = body.pop(name)
    return ShapedRequest("openai-responses", "/v1/responses", dict(request.headers), body)
