"""Parts that several systems share: the client of an endpoint, a function's identity, requests for other wires, models
that write.

`identity` tells two versions of a function apart in fingerprints. `OfModel` asks the model behind a URL for compressors
and memories.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text, stable_hash
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import ChatClient
from context_bench.llm.shapes import ShapedRequest
from context_bench.wire.conversation import PATHS
from context_bench.wire.request import SYSTEM_ROLES


def connector(wire: str, base_url: str, **settings: Any) -> Callable[[], ChatClient]:
    """A factory of clients for `base_url` (`settings` as of `ChatClient`); `BadInput` if no conversation goes over
    `wire`.
    """
    if wire not in PATHS:
        raise BadInput(f"no conversation goes over the wire {wire!r}; expected one of: {', '.join(PATHS)}")
    return partial(ChatClient, base_url, **settings)


def identity(function: Callable[..., Any] | None) -> str | None:
    """`module:name:hash of the source`; without a source to read, `module:name`."""
    if function is None:
        return None
    name = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
    try:
        return f"{name}:{hash_text(inspect.getsource(function), 12)}"
    except (OSError, TypeError):
        return name


class OfModel:
    """Something that a model behind `relay` writes, at temperature 0: `_ask` it. `settings`: as of `ChatClient`.

    `option`: the option of the command line that names the model as well. Without `relay`, and with `part_tokens` or
    `max_tokens` below 1, `BadInput`.
    """

    name = "written"
    rules = ""  # what the model is told to do

    def __init__(
        self,
        relay: str | None,
        model: str,
        api_key: str | None,
        option: str,
        *,
        part_tokens: int,
        max_tokens: int,
        **settings: Any,
    ) -> None:
        if relay is None:
            raise BadInput(
                f"{self.name} needs a model that writes it: {self.name}:relay=http://HOST:PORT (or {option} URL)"
            )
        if part_tokens < 1 or max_tokens < 1:
            raise BadInput(f"{self.name}: part_tokens and max_tokens are 1 or more, not {part_tokens} and {max_tokens}")
        from context_bench.llm.chat import ChatClient

        self._client = ChatClient(relay, api_key=api_key or os.environ.get("OPENAI_API_KEY"), **settings)
        self.model, self.part_tokens, self.max_tokens = model, part_tokens, max_tokens

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which its texts depend; no key."""
        return {
            "class": type(self).__name__,
            "url": self._client.base_url,
            "model": self.model,
            "rules": stable_hash(self.rules, 12),
            "part_tokens": self.part_tokens,
            "max_tokens": self.max_tokens,
        }

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def _ask(self, text: str, budget: int | None = None) -> str:
        """The model's text about `text`; the rules name a `budget` (tokens)."""
        from context_bench.llm.chat import ChatRequest

        rules = self.rules if budget is None else f"{self.rules}\n{_asked_for(budget)}"
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": text}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.max_tokens}
        reply = await self._client.send(ChatRequest(body), counter=counter_for(self.model))
        return (reply.text or "").strip()


def _asked_for(budget: int) -> str:
    return (
        f"All of it together may have at most {budget} tokens, which is about {max(1, math.floor(budget * 0.7))} words."
    )


#: Anthropic refuses a request without it.
MAX_TOKENS = 4096
WIRES = {"openai": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses"}


def rewired(request: ShapedRequest, wire: str) -> ShapedRequest:
    """`request` (messages without tools, on the chat wire) for another wire; one that is there already stays as it
    is.
    """
    if wire not in WIRES:
        raise BadInput(f"wire {wire!r} is not known; there are: {', '.join(WIRES)}")
    if request.wire == WIRES[wire]:
        return request
    if request.wire != "openai-chat" or "tools" in request.body:
        raise BadInput(
            f"wire {wire!r} goes with plain shapes; the shape of {request.path} with tools has a wire of its own"
        )
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
