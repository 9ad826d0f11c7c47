"""Compaction at the provider: what it gives may be readable only to it, so the same endpoint and model answer the questions too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from context_bench.compression.compressors._messages import Messages
from context_bench.compression.compressors._posting import post_json
from context_bench.core.errors import BadInput, BadReply
from context_bench.core.records import Usage
from context_bench.core.usage import ANTHROPIC, OPENAI_RESPONSES, usage_of
from context_bench.llm.chat import endpoint
from context_bench.llm.redact import bare_url
from context_bench.llm.sessions import leave
from context_bench.wire.conversation import (
    Chat,
    ChatMessage,
    message_text,
    reply_message,
    to_body,
    tools_used,
)

_USAGE = {"openai-responses": OPENAI_RESPONSES, "anthropic": ANTHROPIC}
_KEYS = {"openai-responses": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


class AtProvider:
    """A compressor that is a request to a provider. `url`: its base URL, by default its own; `key` defaults to its usual variable. Neither
    is taken from the run's responder, which may be somebody else.

    Where the result is opaque, `answer` continues from it: the graded answers are then those of `model` at this endpoint, whatever
    responder the run has. `max_tokens`: of an answer.
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
        """What comes of it depends on this; no key."""
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
        return to_body(self.wire, Chat(list(messages), self.model, tools_used(messages), {"max_tokens": self.max_tokens}))

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
