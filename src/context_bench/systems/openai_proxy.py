"""A proxy or model endpoint as a system: examples are sent to it in the shape of a real client, its answer is the
response.

Also what others before an endpoint share: a base of systems, plain requests for other wires, and a base of compressors
and memories that have a model write for them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Prices, function_identity
from context_bench.core.records import Example, Usage
from context_bench.core.tokens import counter_for
from context_bench.llm.background import run_sync
from context_bench.llm.chat import ChatClient
from context_bench.llm.shapes import build, require_text, without_context
from context_bench.wire.apis import Reply, ShapedRequest, chat_request
from context_bench.wire.conversation import PATHS
from context_bench.wire.request import SYSTEM_ROLES


class OpenAIProxy:
    """Sends each example to `base_url` (with or without `/v1`) and returns it with `response`, `api_usage`,
    `finish_reason`.

    As documented: `context` as a system message and `question` as the user's (`shape="plain-system"`), `turns` verbatim
    where the example has them, `build_messages(example)` verbatim where given, an optional `system_prompt` first,
    `extra_body` laid over the body, `timeout` seconds per attempt, `max_retries` further attempts after
    `retry_base_delay` · 2ⁿ seconds. `api_key` defaults to `OPENAI_API_KEY`; `proxy_key` is what the proxy itself
    checks. Other shapes: see `llm.shapes`; `prompt` is the template of `plain-user`. `wire` (`openai`, `anthropic`,
    `responses`): the API that plain shapes speak. `namespace` keeps this system's provider cache apart. `version`
    enters the fingerprint (a proxy restarted with other settings); `identity` stands there for a URL that changes by
    the run. Works in scripts, threads and inside a running event loop; the `a…` methods are the async ones. Failures
    are `RuntimeError`s: `Could not connect`, `HTTP <code>`, `invalid JSON`, `empty choices`, `Unexpected response`.
    """

    def __init__(
        self,
        base_url: str,
        model: str = "gpt-3.5-turbo",
        name: str | None = None,
        api_key: str | None = None,
        system_prompt: str | None = None,
        build_messages: Callable[[Example], list[dict[str, Any]]] | None = None,
        timeout: float = 30.0,
        extra_body: Mapping[str, Any] | None = None,
        max_retries: int = 3,
        retry_base_delay: float = 1.0,
        *,
        shape: str = "plain-system",
        prompt: str | None = None,
        stream: bool = False,
        namespace: str | None = None,
        prices: Prices | None = None,
        limiter: Any = None,
        proxy_key: str | None = None,
        version: str | None = None,
        wire: str | None = None,
        identity: str | None = None,
    ) -> None:
        self._connect = partial(
            ChatClient,
            base_url,
            api_key=api_key or _key_of_environment(shape, wire),
            timeout=timeout,
            max_retries=max_retries,
            retry_base_delay=retry_base_delay,
            limiter=limiter,
            prices=prices,
        )
        self.prices = prices
        self.proxy_key = proxy_key
        self.base_url = self._client.base_url.rstrip("/")
        self.name = name or f"openai_proxy_{urlsplit(self.base_url).netloc}"
        self.model, self.system_prompt, self.build_messages = model, system_prompt, build_messages
        self.extra_body = dict(extra_body or {})
        self.shape, self.prompt, self.stream, self.namespace, self.version = shape, prompt, stream, namespace, version
        self.wire, self.identity = wire, identity
        self._build(
            {"id": "", "context": ""}, None if build_messages is None else lambda _: []
        )  # what cannot be built is said now

    @property
    def proxy_key(self) -> str | None:
        """The key that the proxy itself checks; it takes the place of the upstream's."""
        return self._proxy_key

    @proxy_key.setter
    def proxy_key(self, key: str | None) -> None:
        self._proxy_key = key
        self._client = self._connect(proxy_key=key)

    def process(self, example: Example) -> Example:
        """The example with `response`, `api_usage`, `finish_reason` and `tool_calls`, as far as the reply tells.

        The response is never empty, but for examples that expect tool calls (`expected_calls`): there a reply may be
        nothing but calls.
        """
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The same, async."""
        if self.build_messages is None and self.prompt is None and not {"messages", "input"} & self.extra_body.keys():
            require_text(example)
        calls_ok = example.get("expected_calls") is not None
        reply = await self._client.send(self.shaped(example), counter=counter_for(self.model), tool_calls_ok=calls_ok)
        return {**example, **_answer_of(reply)}

    def process_conversation(self, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Ask each user turn with all that was said before; the assistant's messages. Calls and usage are in the
        ledger, turn by turn.
        """
        return run_sync(self.aprocess_conversation(turns))

    async def aprocess_conversation(self, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The same, async. Turns of other roles than `user` and `assistant` stay in the history; the answers are the
        system's own.
        """
        history: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []
        key = stable_hash(list(turns), 16)
        for turn in turns:
            if turn.get("role") == "assistant":
                continue
            history.append(dict(turn))
            if turn.get("role") != "user":
                continue
            request = self._build({"id": key, "context": "", "turns": list(history)}, None)
            reply = await self._client.send(request, counter=counter_for(self.model))
            history.append({"role": "assistant", "content": reply.text})
            answers.append({"role": "assistant", "content": reply.text})
        return answers

    def shaped(self, example: Example) -> ShapedRequest:
        """The request that `process(example)` sends."""
        return self._build(example, self.build_messages)

    def request_without_context_tokens(self, example: Example) -> int:
        """Tokens of the same request with an empty context: what is forwarded beyond them is context."""
        return self.shaped(without_context(example)).tokens(counter_for(self.model))

    def fingerprint(self) -> dict[str, Any]:
        """Everything here that can change an answer; no keys."""
        return {
            "class": "OpenAIProxy",
            "url": self.identity or self.base_url,
            "model": self.model,
            "shape": self.shape,
            "system_prompt": self.system_prompt,
            "prompt": self.prompt,
            "params": self.extra_body,
            "stream": self.stream,
            "wire": self.wire,
            "namespace": self.namespace,
            "build_messages": function_identity(self.build_messages),
            "version": self.version,
        }

    async def aclose(self) -> None:
        """Let go of the connections of the running loop."""
        await self._client.aclose()

    def _build(
        self, example: Example, build_messages: Callable[[Example], list[dict[str, Any]]] | None
    ) -> ShapedRequest:
        request = build(
            self.shape,
            example,
            self.model,
            system_prompt=None if build_messages else self.system_prompt,
            prompt=self.prompt,
            params=self.extra_body,
            stream=self.stream,
            namespace=self.namespace,
            build_messages=build_messages,
        )
        return request if self.wire is None else rewired(request, self.wire)


def _answer_of(reply: Reply) -> dict[str, Any]:
    answer: dict[str, Any] = {"response": reply.text or ""}
    if reply.tool_calls:
        answer["tool_calls"] = reply.tool_calls
    usage = reply.raw_usage if reply.raw_usage and "prompt_tokens" in reply.raw_usage else _as_openai(reply.usage)
    if usage:
        answer["api_usage"] = usage
    if reply.finish_reason is not None:
        answer["finish_reason"] = reply.finish_reason
    return answer


def _as_openai(usage: Usage | None) -> dict[str, Any]:
    """Usage of the other wires in the words of chat completions, so that readers of `api_usage` need only one."""
    if usage is None:
        return {}
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    if None not in counts.values():
        counts["total_tokens"] = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return {name: count for name, count in counts.items() if count is not None}


def _key_of_environment(shape: str, wire: str | None) -> str | None:
    """The provider's usual variable; Anthropic's wire has its own."""
    names = (
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
        if shape == "claude-code" or wire == "anthropic"
        else ("OPENAI_API_KEY",)
    )
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class WireSystem(ABC):
    """Base of systems that send requests of their own to `base_url` over `wire`, a name of `wire.conversation.PATHS`.

    The other arguments are those of `OpenAIProxy`. Raises `BadInput` if no conversation goes over `wire`.
    """

    _prefix = "endpoint"  # of the name, where none is given

    def __init__(
        self,
        base_url: str,
        name: str | None = None,
        *,
        model: str | None = None,
        wire: str = "openai-chat",
        api_key: str | None = None,
        proxy_key: str | None = None,
        timeout: float = 300.0,
        max_retries: int = 3,
        retry_base_delay: float = 1.0,
        prices: Prices | None = None,
        limiter: Any = None,
        version: str | None = None,
        identity: str | None = None,
    ) -> None:
        if wire not in PATHS:
            raise BadInput(f"no conversation goes over the wire {wire!r}; expected one of: {', '.join(PATHS)}")
        self._connect = partial(
            ChatClient,
            base_url,
            api_key=api_key,
            proxy_key=proxy_key,
            timeout=timeout,
            max_retries=max_retries,
            retry_base_delay=retry_base_delay,
            prices=prices,
            limiter=limiter,
        )
        self._client = self._connect()
        self.base_url = self._client.base_url.rstrip("/")
        self.name = name or f"{self._prefix}_{urlsplit(self.base_url).netloc}"
        self.model, self.wire, self.prices, self.version, self.identity = model, wire, prices, version, identity

    def process(self, example: Example) -> Example:
        """The example with what came back."""
        return run_sync(self.aprocess(example))

    @abstractmethod
    async def aprocess(self, example: Example) -> Example:
        """The same, async. Raises `core.errors.SystemFailed` classes."""

    def fingerprint(self) -> dict[str, Any]:
        """Everything here that can change an answer; no keys."""
        return {
            "class": type(self).__name__,
            "url": self.identity or self.base_url,
            "model": self.model,
            "version": self.version,
        }

    async def aclose(self) -> None:
        """Let go of the connections of the running loop."""
        await self._client.aclose()


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


class TextModel:
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
        rules = self.rules if budget is None else f"{self.rules}\n{_asked_for(budget)}"
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": text}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.max_tokens}
        reply = await self._client.send(chat_request(body), counter=counter_for(self.model))
        return (reply.text or "").strip()


def _asked_for(budget: int) -> str:
    return (
        f"All of it together may have at most {budget} tokens, which is about {max(1, math.floor(budget * 0.7))} words."
    )
