"""Compaction at the provider: Anthropic's context editing and compaction, OpenAI's compaction, and their JSON requests.

A provider's result may be readable only to the provider, so the same endpoint and model answer the questions too.
Anthropic makes the edit `clear_tool_uses_20250919` anew in each request and never shows it; the edit `compact_20260112`
writes a summary that anybody can read. OpenAI compacts by `POST /responses/compact`, or by `context_management` with a
`compact_threshold` in an ordinary request. `post_json` sends one request to a service that is no chat: it returns a
document, raises the errors of this package and records each attempt in the ledger.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from context_bench.compression.compressors.model_summaries import summary_message
from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput, BadReply, TimedOut, describe
from context_bench.core.keys import load_body
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.numbers import ANTHROPIC, OPENAI_RESPONSES, usage_of
from context_bench.core.protocols import Compressed
from context_bench.core.records import Call, Usage
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import endpoint
from context_bench.llm.failures import Failure, RetryPolicy, not_json, of_error_in_reply, of_exception, of_status
from context_bench.llm.redact import bare_url, secrets_in
from context_bench.llm.sessions import leave, of_aiohttp, session_for
from context_bench.wire.conversation import Chat, ChatMessage, message_text, reply_message, to_body, tools_used
from context_bench.wire.request import SYSTEM_ROLES

ADAPTED = {
    "anthropic_clear": "AnthropicClear",
    "anthropic_compact": "AnthropicCompact",
    "openai_compact": "OpenAICompact",
}

_LARGEST = 64 * 2**20
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


async def post_json(
    user: object,
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    timeout: float,
    model: str | None = None,
    usage: Any = None,
    policy: RetryPolicy | None = None,
) -> Any:
    """The document that `url` sends for `body`.

    `headers` may hold keys; none is shown anywhere. Failures that pass are tried again as `policy` says (by default
    three times). `model`: whose call it is in the ledger (none: the service is no model, and nothing is booked);
    `usage(document)` reads what it used.
    """
    policy, attempt = policy or RetryPolicy(3, 0.5, 20.0), 1
    ledger = current_ledger()
    while True:
        left = None if ledger is None or ledger.deadline is None else ledger.deadline - SYSTEM_CLOCK.monotonic()
        allowed = timeout if left is None else max(0.001, min(timeout, left))
        began, start = SYSTEM_CLOCK.now(), SYSTEM_CLOCK.monotonic()
        found = await _once(user, url, body, headers, allowed)
        failure = found if isinstance(found, Failure) else None
        if ledger is not None and model is not None:
            call = Call(
                ledger.account,
                model,
                bare_url(url),
                began,
                SYSTEM_CLOCK.monotonic() - start,
                attempt=attempt,
                request=body,
            )
            call.error = None if failure is None else describe(failure.error)
            used: Usage | None = usage(found) if usage is not None and failure is None else None
            call.usage = used
            ledger.record(call)
        if failure is None:
            return found
        if not failure.again or attempt > policy.max_retries:
            raise failure.error
        await SYSTEM_CLOCK.sleep(policy.delay(attempt, failure.asked))
        attempt += 1


async def _once(user: object, url: str, body: Any, headers: Mapping[str, str], seconds: float) -> Any:
    where, secrets = bare_url(url), secrets_in(dict(headers), url)
    session = await session_for(user, trust_env=urlsplit(url).hostname not in _LOOPBACK)
    try:
        async with (
            asyncio.timeout(seconds),
            session.post(url, json=body, headers=dict(headers), allow_redirects=False) as reply,
        ):
            data = bytearray()
            async for chunk in reply.content.iter_any():
                data += chunk
                if len(data) > _LARGEST:
                    return Failure(BadReply(f"{where} sent more than {_LARGEST:,} bytes"))
            status, kind = reply.status, reply.content_type
            told = {name.lower(): value for name, value in reply.headers.items()}
    except TimeoutError:
        return Failure(TimedOut(f"no whole reply from {where} within {seconds:g} s"), again=True)
    except (aiohttp.ClientError, OSError) as error:
        return of_exception(of_aiohttp(error), where=where, seconds=seconds, deadline=False, secrets=secrets)
    if not 200 <= status < 300:
        return of_status(status, told, bytes(data), where=where, now=SYSTEM_CLOCK.now(), secrets=secrets)
    try:
        document = load_body(bytes(data), _LARGEST)
    except ValueError:
        return not_json(bytes(data), kind, where=where, secrets=secrets)
    if isinstance(document, Mapping) and document.get("error"):
        return of_error_in_reply(document["error"], told, where=where, now=SYSTEM_CLOCK.now(), secrets=secrets)
    return document


_USAGE = {"openai-responses": OPENAI_RESPONSES, "anthropic": ANTHROPIC}
_KEYS = {"openai-responses": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


class AtProvider:
    """A compressor that is a request to a provider. `url`: its base URL, by default its own; `key` defaults to its
    usual variable. Neither is taken from the run's responder, which may be somebody else.

    Where the result is opaque, `answer` continues from it: the graded answers are then those of `model` at this
    endpoint, whatever responder the run has. `max_tokens`: of an answer.
    """

    name = "provider"
    wire = "openai-responses"
    home = ""  # the provider's own address
    ignores_budget = True
    betas: Sequence[str] = ()

    def __init__(self, url: str | None, model: str | None, key: str | None, timeout: float, max_tokens: int) -> None:
        if not model:
            raise BadInput(f"{self.name} needs a model of the provider: {self.name}:model=NAME (or --model NAME)")
        if max_tokens < 1:
            raise BadInput(f"{self.name}: max_tokens is 1 or more, not {max_tokens}")
        self._base = url or self.home
        self.model, self._timeout, self.max_tokens = model, timeout, max_tokens
        self._key = (key or os.environ.get(_KEYS[self.wire]) or "").strip()

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which its results depend; no key."""
        return {"class": type(self).__name__, "url": bare_url(self._base), "model": self.model, **self._settings()}

    async def answer(self, opaque: Mapping[str, Any], messages: Messages, question: str) -> dict[str, Any]:
        """The model's answer to `question`, given what `compress` gave as `opaque` and the messages that came after."""
        asked = [*messages, {"role": "user", "content": question}]
        document = await self._post(self._path, self._continued(opaque, asked))
        text = message_text(reply_message(self.wire, document) or {})
        if not text.strip():
            raise BadReply(f"{self.name}: the reply of {bare_url(self._base)} holds no answer")
        return {"response": text}

    async def aclose(self) -> None:
        """Let go of the connections."""
        await leave(self)

    def _settings(self) -> dict[str, Any]:
        return {}

    def _continued(self, opaque: Mapping[str, Any], asked: Messages) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def _path(self) -> str:
        return "/v1/messages" if self.wire == "anthropic" else "/v1/responses"

    def _body(self, messages: Sequence[ChatMessage]) -> dict[str, Any]:
        """A request of this wire."""
        return to_body(
            self.wire, Chat(list(messages), self.model, tools_used(messages), {"max_tokens": self.max_tokens})
        )

    def _headers(self) -> dict[str, str]:
        if self.wire != "anthropic":
            return {"authorization": f"Bearer {self._key}"} if self._key else {}
        key = {"x-api-key": self._key} if self._key else {}
        return {"anthropic-version": "2023-06-01", "anthropic-beta": ",".join(self.betas), **key}

    async def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        url = endpoint(self._base, path)
        document = await post_json(
            self, url, dict(body), headers=self._headers(), timeout=self._timeout, model=self.model, usage=self._used
        )
        if not isinstance(document, Mapping):
            raise BadReply(f"{self.name}: {bare_url(url)} sent {type(document).__name__}, expected an object")
        return document

    def _used(self, document: Any) -> Usage | None:
        """Tokens as the provider counts them; where it worked in several steps, of all of them."""
        raw = document.get("usage") if isinstance(document, Mapping) else None
        steps = raw.get("iterations") if isinstance(raw, Mapping) else None
        if isinstance(steps, list) and steps:
            found = [usage for step in steps if (usage := usage_of(step, _USAGE[self.wire])) is not None]
            return sum(found[1:], found[0]) if found else None
        return usage_of(raw, _USAGE[self.wire])


class AnthropicClear(AtProvider):
    """The whole conversation is sent with the edit; what the model sees of it only the provider knows, so the result is
    opaque.

    Sizes are the provider's: `POST /v1/messages/count_tokens` with the edit says how many input tokens there were and
    are. `trigger`: input tokens (or, below 1,000, uses of tools) from which it clears; `keep`: the last uses of tools
    that stay; `clear_at_least`: tokens, so that losing the cached prefix pays; `clear_tool_inputs`: the calls'
    arguments too.
    """

    name = "anthropic_clear"
    wire = "anthropic"
    home = "https://api.anthropic.com"
    betas = ("context-management-2025-06-27",)

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        trigger: int = 1000,
        keep: int = 3,
        clear_at_least: int | None = None,
        clear_tool_inputs: bool = False,
        timeout: float = 300.0,
        max_tokens: int = 800,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if trigger < 1 or keep < 0 or (clear_at_least is not None and clear_at_least < 0):
            raise BadInput(
                f"anthropic_clear: trigger={trigger}, keep={keep}, clear_at_least={clear_at_least}: expected 1, 0, 0 "
                "or more"
            )
        edit: dict[str, Any] = {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens" if trigger >= 1000 else "tool_uses", "value": trigger},
            "keep": {"type": "tool_uses", "value": keep},
        }
        if clear_at_least:
            edit["clear_at_least"] = {"type": "input_tokens", "value": clear_at_least}
        if clear_tool_inputs:
            edit["clear_tool_inputs"] = True
        self._management = {"edits": [edit]}

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """`opaque`: `{"wire", "messages"}`, the prefix as it was; `state`: the same, which goes in front of what came
        since.
        """
        held = [*((state or {}).get("messages") or []), *prefix]
        if not held:
            return Compressed([], 0, 0), state
        asked = self._body([*held, {"role": "user", "content": "Go on."}])
        body = {name: value for name, value in asked.items() if name in ("model", "messages", "system", "tools")}
        document = await self._post("/v1/messages/count_tokens", {**body, "context_management": self._management})
        after, management = document.get("input_tokens"), document.get("context_management")
        before = management.get("original_input_tokens") if isinstance(management, Mapping) else None
        if not isinstance(after, int):
            raise BadReply("anthropic_clear: the count of tokens has no input_tokens")
        warnings = (
            []
            if isinstance(before, int) and before > after
            else ["nothing was cleared: below the trigger, or no more than keep"]
        )
        opaque = {"wire": self.wire, "messages": held}
        told = before if isinstance(before, int) else tokens_of(held, counter_for(self.model))
        return Compressed([], told, after, opaque=opaque, warnings=warnings), opaque

    def _continued(self, opaque: Mapping[str, Any], asked: Messages) -> dict[str, Any]:
        system = [message for message in asked if message.get("role") in SYSTEM_ROLES]
        rest = [message for message in asked if message.get("role") not in SYSTEM_ROLES]
        return {**self._body([*system, *opaque["messages"], *rest]), "context_management": self._management}

    def _settings(self) -> dict[str, Any]:
        return {"context_management": self._management}


LEAST = 50_000  # the lowest trigger that the provider takes


class AnthropicCompact(AtProvider):
    """One request with the edit and `pause_after_compaction`; the `compaction` block of the reply holds the summary as
    text.

    It is given as a message, so any responder can answer from it; the provider itself would put it in front of the
    conversation as a block of the assistant. `trigger`: input tokens from which the provider compacts, at least 50,000:
    a shorter prefix is not compacted, which is a failure here. `instructions` replace the provider's own prompt.
    """

    name = "anthropic_compact"
    wire = "anthropic"
    home = "https://api.anthropic.com"
    betas = ("compact-2026-01-12",)

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        trigger: int = LEAST,
        instructions: str | None = None,
        timeout: float = 300.0,
        max_tokens: int = 8000,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if trigger < LEAST:
            raise BadInput(
                f"anthropic_compact: trigger is at least {LEAST} input tokens (the provider takes no less), not "
                f"{trigger}"
            )
        self.trigger, self.instructions = trigger, instructions

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The summary as one message."""
        counter = counter_for(self.model)
        if not prefix:
            return Compressed([], 0, 0), state
        edit: dict[str, Any] = {
            "type": "compact_20260112",
            "trigger": {"type": "input_tokens", "value": self.trigger},
            "pause_after_compaction": True,
        }
        if self.instructions:
            edit["instructions"] = self.instructions
        body = {**self._body([*prefix, {"role": "user", "content": "Go on."}]), "context_management": {"edits": [edit]}}
        document = await self._post("/v1/messages", body)
        made = summary_message(self._summary(document))
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    def _summary(self, document: Mapping[str, Any]) -> str:
        content = document.get("content")
        blocks = [each for each in content if isinstance(each, Mapping)] if isinstance(content, list) else []
        found = next((each for each in blocks if each.get("type") == "compaction"), None)
        if found is None:
            raise BadReply(
                f"anthropic_compact: nothing was compacted: the prefix stayed below the trigger of {self.trigger} "
                "input tokens"
            )
        if not isinstance(found.get("content"), str) or not found["content"].strip():
            raise BadReply(
                "anthropic_compact: the compaction block of the reply is empty: the provider's compaction failed"
            )
        return str(found["content"]).strip()

    def _settings(self) -> dict[str, Any]:
        return {"trigger": self.trigger, "instructions": self.instructions}


#: What stands in for a message where the way asks for an answer that nobody wants.
_GO_ON = "Reply with OK."


class OpenAICompact(AtProvider):
    """The prefix becomes the items that the endpoint gives, an encrypted `compaction` item among them. They are opaque.

    `threshold`: instead of the endpoint, an ordinary request with `context_management` and this `compact_threshold`;
    the server compacts when its own count passes it, and a prefix that stays below it is a failure, not a compression.
    `tokens_after` is the provider's: what the endpoint says it wrote (`usage.output_tokens`); for a threshold, what
    `/responses/input_tokens` counts of the item.
    """

    name = "openai_compact"
    wire = "openai-responses"
    home = "https://api.openai.com"

    def __init__(
        self,
        model: str | None = None,
        url: str | None = None,
        key: str | None = None,
        *,
        threshold: int | None = None,
        instructions: str | None = None,
        timeout: float = 300.0,
        max_tokens: int = 800,
    ) -> None:
        super().__init__(url, model, key, timeout, max_tokens)
        if threshold is not None and threshold < 1:
            raise BadInput(f"openai_compact: threshold is 1 token or more, not {threshold}")
        self.threshold, self.instructions = threshold, instructions

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """`opaque`: `{"wire", "items"}`; `state`: the same, which goes in front of what came since."""
        before = tokens_of(prefix, counter_for(self.model))
        if not prefix and not state:
            return Compressed([], 0, 0), state
        held = list((state or {}).get("items") or [])
        made = await (self._compacted(held, prefix) if self.threshold is None else self._passed(held, prefix))
        items, after = made
        opaque = {"wire": self.wire, "items": items}
        return Compressed([], before, after, opaque=opaque), opaque

    async def _compacted(self, held: list[Any], prefix: Messages) -> tuple[list[Any], int | None]:
        body: dict[str, Any] = {"model": self.model, "input": [*held, *self._items(prefix)]}
        if self.instructions:
            body["instructions"] = self.instructions
        document = await self._post("/v1/responses/compact", body)
        items = _output(document)
        if not any(_is_compaction(item) for item in items):
            raise BadReply("openai_compact: the reply of /responses/compact has no compaction item")
        usage = document.get("usage")
        after = usage.get("output_tokens") if isinstance(usage, Mapping) else None
        return items, after if isinstance(after, int) else None

    async def _passed(self, held: list[Any], prefix: Messages) -> tuple[list[Any], int | None]:
        asked = self._items([*prefix, {"role": "user", "content": _GO_ON}])
        body = {
            "model": self.model,
            "input": [*held, *asked],
            "context_management": [{"type": "compaction", "compact_threshold": self.threshold}],
            "store": False,
            "max_output_tokens": max(16, self.max_tokens),
        }
        items = _output(await self._post("/v1/responses", body))
        last = max((at for at, item in enumerate(items) if _is_compaction(item)), default=None)
        if last is None:
            raise BadReply(
                f"openai_compact: nothing was compacted: the prefix stayed below the threshold of {self.threshold} "
                "tokens"
            )
        kept = [items[last]]  # what came before it, it carries; the answer after it nobody asked for
        counted = await self._post("/v1/responses/input_tokens", {"model": self.model, "input": kept})
        after = counted.get("input_tokens")
        return kept, after if isinstance(after, int) else None

    def _items(self, messages: Messages) -> list[Any]:
        return list(self._body(messages)["input"])

    def _continued(self, opaque: Mapping[str, Any], asked: Messages) -> dict[str, Any]:
        body = self._body(asked)
        return {**body, "input": [*opaque["items"], *body["input"]]}

    def _settings(self) -> dict[str, Any]:
        return {"threshold": self.threshold, "instructions": self.instructions}


def _output(document: Mapping[str, Any]) -> list[Any]:
    output = document.get("output")
    if not isinstance(output, list):
        raise BadReply("openai_compact: the reply has no list of output items")
    return output


def _is_compaction(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and item.get("type") in ("compaction", "compaction_summary")
        and bool(item.get("encrypted_content"))
    )
