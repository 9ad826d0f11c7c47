"""A model that costs nothing and always says the same of the same prompt: the offline level 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.keys import canonical_json, hash_text
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.llm.delivery import Delivery, Staged
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest, count_request


def prompt_of(request: WireRequest) -> str:
    """All that a request says, as one text: every message's text, tool calls as JSON."""
    return "\n\n".join(
        "\n".join(filter(None, [message.text, canonical_json(message.tool_calls) if message.tool_calls else ""]))
        for message in request.messages
    )


def counted(reply: Reply, request: WireRequest) -> Usage:
    """The usage of a reply by our own count: the request by the rule of `wire.request`, the reply's text, reasoning and
    tool calls.
    """
    counter = counter_for(request.model)
    made = sum(counter.count(text) for text in (reply.text, reply.refusal, reply.reasoning) if text)
    if reply.tool_calls:
        made += counter.count(canonical_json(reply.tool_calls))
    return Usage(
        input_tokens=count_request(request, counter).total,
        output_tokens=made,
        reasoning_tokens=counter.count(reply.reasoning) if reply.reasoning else None,
    )


class Echo:
    """Answers with a hash of the prompt and its token count; `usage` is our own exact count."""

    name = "echo"

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """`echo HASH: N tokens in M messages`."""
        tokens = count_request(request, counter_for(request.model)).total
        text = f"echo {hash_text(prompt_of(request), 12)}: {tokens} tokens in {len(request.messages)} messages"
        answer = Reply(text=text, finish_reason="stop", model=request.model)
        answer.usage = counted(answer, request)
        return answer

    async def models(self) -> list[str]:
        """One model."""
        return ["echo"]

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Unit vectors of 64 numbers from hashed words: texts that share words are near each other."""
        return [_vector(text) for text in texts]

    def fingerprint(self) -> dict[str, Any]:
        """Identity of its answers."""
        return {"responder": "echo", "version": 1}


#: A question whose answer takes any model a while.
SLOWLY = "Count from one to sixty in words, one number to a line."
#: A question whose answer `SlowEcho` packs.
PACKED = "Which is the longest of these words: gate, harbour, ferry?"


class SlowEcho:
    """An echo that hands two of its replies over as providers may: `SLOWLY` in a stream of 0.6 s, `PACKED` packed if
    that is accepted.
    """

    name = "echo"

    def __init__(self) -> None:
        self._echo = Echo()
        self.models = self._echo.models

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Staged:
        """The same text, staged."""
        prompt, accepted = prompt_of(request), headers.get("accept-encoding", "")
        delivery = Delivery(chunk_delay=0.05, pieces=12) if request.stream and SLOWLY in prompt else Delivery()
        if PACKED in prompt:
            delivery.coding = "gzip" if "gzip" in accepted else "deflate" if "deflate" in accepted else None
        return Staged(await self._echo.reply(request, headers), delivery)


def _vector(text: str, size: int = 64) -> list[float]:
    vector = [0.0] * size
    for word in text.lower().split():
        digest = int(hash_text(word, 8), 16)
        vector[digest % size] += 1.0 if digest >> 31 else -1.0
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector] if length else vector
