"""A recorded session sent again, request by request, as it was: through a proxy, or past it."""

from __future__ import annotations

import copy
from typing import Any

from context_bench.core.records import Example
from context_bench.core.tokens import counter_for
from context_bench.llm.shapes import build, without_context
from context_bench.systems.openai_proxy import WIRES, WireSystem, rewired
from context_bench.wire.apis import Reply, ShapedRequest
from context_bench.wire.conversation import PATHS
from context_bench.wire.request import sendable
from context_bench.wire.violations import reply_faults


class Replay(WireSystem):
    """Sends each example's recorded `request` to `base_url` as it is: body, path and headers; only the key is our own.

    The output has `response` (empty if the model only called tools), `tool_calls`, `finish_reason`, `api_usage`, and
    `reply_faults`, the kinds of what the reply itself shows to be wrong; no tool is executed. `model` takes the place
    of the recorded one. Requests of one session are sent in order under one key (`stateful`). An example without
    `request` (such as a check before a run) is asked in plain words over `wire`. The other arguments are those of
    `OpenAIProxy`.
    """

    stateful = True

    _prefix = "replay"

    async def aprocess(self, example: Example) -> Example:
        """The same, async. Raises `core.errors.SystemFailed` classes."""
        request = self.shaped(example)
        reply = await self._client.send(
            request, counter=counter_for(str(request.body.get("model") or "")), tool_calls_ok=True
        )
        return {**example, **_outputs(reply)}

    def shaped(self, example: Example) -> ShapedRequest:
        """The request that `process(example)` sends."""
        recorded = example.get("request")
        if recorded is None:
            return self._asked(example)
        wire, body = recorded["wire"], recorded["body"]
        if self.model is not None:
            body = {**body, "model": self.model}
        return ShapedRequest(wire, recorded.get("path") or PATHS[wire], sendable(recorded.get("headers") or {}), body)

    def request_without_context_tokens(self, example: Example) -> int:
        """Everything in a recorded request is context; of an example in plain words, all but its `context` is
        counted.
        """
        return 0 if "request" in example else self.shaped(without_context(example)).tokens()

    def namespace(self, name: str) -> Replay:
        """A twin for one session, with connections of its own."""
        twin = copy.copy(self)
        twin._client = self._connect()
        return twin

    def _asked(self, example: Example) -> ShapedRequest:
        plain_request = build("plain-user", example, self.model or "gpt-4o-mini")
        return rewired(plain_request, next(name for name, wire in WIRES.items() if wire == self.wire))


def _outputs(reply: Reply) -> dict[str, Any]:
    outputs: dict[str, Any] = {"response": reply.text or "", "tool_calls": reply.tool_calls}
    if reply.finish_reason is not None:
        outputs["finish_reason"] = reply.finish_reason
    if kinds := sorted({fault.kind for fault in reply_faults(reply)}):
        outputs["reply_faults"] = kinds
    if reply.usage is not None:
        outputs["api_usage"] = {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
        }
    return outputs
