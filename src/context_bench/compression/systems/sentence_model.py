"""The sentence reader as a model: what stands behind a proxy or a tap where nothing is to be spent and every answer is to be repeatable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from context_bench.compression.systems.sentence import SentenceReader
from context_bench.llm.echo import counted
from context_bench.wire.apis.shared import Reply
from context_bench.wire.conversation import ChatMessage, call_of
from context_bench.wire.request import WireMessage, WireRequest


class SentenceModel:
    """A responder for `llm.servers.ModelServer`: the last text of the request is the question, everything before it is read."""

    name = "sentence"

    def __init__(self) -> None:
        self._reader = SentenceReader()

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """The sentences that fit the question best; `usage` is our own exact count."""
        return await asyncio.to_thread(self._answer, request)

    async def models(self) -> list[str]:
        """One model."""
        return [self.name]

    def fingerprint(self) -> dict[str, Any]:
        """What answers depend on."""
        return {"responder": "sentence", **self._reader.fingerprint()}

    def _answer(self, request: WireRequest) -> Reply:
        *read, question = [*_turns(request)] or [{"role": "user", "content": ""}]
        found = self._reader.process({"question": question["content"], "turns": [*read, question]})
        reply = Reply(text=found["response"], finish_reason="stop", model=request.model)
        reply.usage = counted(reply, request)
        return reply


def _turns(request: WireRequest) -> list[ChatMessage]:
    """The request as chat messages. What ends in several texts (tail and question in one message of the user) ends in the last one."""
    turns = [_turn(message, _texts(message)) for message in request.messages]
    while turns and not turns[-1]["content"] and not turns[-1].get("tool_calls"):
        turns.pop()
    if turns and len(texts := _texts(request.messages[len(turns) - 1])) > 1:
        last = request.messages[len(turns) - 1]
        turns[-1:] = [_turn(last, texts[:-1]), {"role": last.role, "content": texts[-1]}]
    return turns


def _texts(message: WireMessage) -> list[str]:
    return [part.text for part in message.parts if part.text and part.kind != "reasoning"]


def _turn(message: WireMessage, texts: list[str]) -> ChatMessage:
    turn: ChatMessage = {"role": message.role, "content": "\n".join(texts)}
    if message.tool_calls:
        turn["tool_calls"] = [call_of(call.get("id"), call.get("name"), call.get("arguments")) for call in message.tool_calls]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    return turn
