"""Compaction at the provider, and the JSON requests for it.

A provider's result may be readable only to the provider, so the same endpoint and model answer the questions too.
`post_json` sends one request to a service that is no chat: it returns a document, raises the errors of this package and
records each attempt in the ledger.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from context_bench.compression.compressors.texts import Messages
from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, BadReply, TimedOut, describe
from context_bench.core.jsontext import load_body
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call, Usage
from context_bench.core.usage import ANTHROPIC, OPENAI_RESPONSES, usage_of
from context_bench.llm.chat import endpoint
from context_bench.llm.failures import Failure, RetryPolicy, not_json, of_error_in_reply, of_exception, of_status
from context_bench.llm.redact import bare_url, secrets_in
from context_bench.llm.sessions import leave, of_aiohttp, session_for
from context_bench.wire.conversation import Chat, ChatMessage, message_text, reply_message, to_body, tools_used

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
