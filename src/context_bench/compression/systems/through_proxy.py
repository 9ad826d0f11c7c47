"""A compressing proxy as an arm of a compression run: it is sent the whole conversation and the question, and what it
forwards is measured.

```python
ThroughProxy("http://localhost:18401", "mine", model="gpt-4o")      # one request per probe; the proxy's own upstream is the tap
Conversing(tap.url, "responder", model="gpt-4o")                   # reads for every other arm, over the same wire, behind the same tap
SizedByProxy("head_tail", reader, "mine")                          # cut to as many tokens as `mine` forwarded for this probe
```
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from context_bench.compression.probes import messages_of, rendered, session_tools, tokens_of
from context_bench.compression.systems.compressing import Compressing, parted
from context_bench.core.errors import NoBudget
from context_bench.core.protocols import Compressor
from context_bench.core.records import Call, Example, Forwarded
from context_bench.core.tokens import counter_for
from context_bench.systems.openai_proxy import WireSystem
from context_bench.transcripts.session import WIRE_HEADERS
from context_bench.wire.apis import Reply, ShapedRequest, parse_request
from context_bench.wire.conversation import PATHS, Chat, ChatMessage, call_of, to_body
from context_bench.wire.request import SYSTEM_ROLES, WireMessage, WireRequest, align
from context_bench.wire.violations import closest, compare_requests


def _same(body: Any) -> Any:
    return body


class Conversing(WireSystem):
    """Sends an example's `turns` (chat messages, the question last) with its `tools` to `base_url` over `wire`;
    `response` is the answer.

    `wire`: a name of `wire.conversation.PATHS`. `params`: further fields of the body, by their names on the chat wire.
    The other arguments are those of `OpenAIProxy`; without `turns`, `context` and `question` are one user message (a
    check before a run).
    """

    model: str
    _prefix = "conversing"

    def __init__(
        self,
        base_url: str,
        name: str | None = None,
        *,
        model: str,
        params: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(base_url, name, model=model, **settings)
        self.params = dict(params or {})

    async def aprocess(self, example: Example) -> Example:
        """The same, async. Raises `core.errors.SystemFailed` classes."""
        reply = await self._client.send(self.shaped(example), counter=counter_for(self.model))
        return {**example, **_answer_of(reply)}

    def shaped(self, example: Example) -> ShapedRequest:
        """The request that `process(example)` sends."""
        turns = example.get("turns")
        if turns is None:
            text = "\n\n".join(filter(None, (str(example.get("context") or ""), str(example.get("question") or ""))))
            turns = [{"role": "user", "content": text}]
        chat = Chat(list(turns), self.model, list(example.get("tools") or []), dict(self.params))
        return ShapedRequest(self.wire, PATHS[self.wire], dict(WIRE_HEADERS[self.wire]), to_body(self.wire, chat))

    def fingerprint(self) -> dict[str, Any]:
        """Everything here that can change an answer; no keys."""
        return {**super().fingerprint(), "wire": self.wire, "params": self.params}


class ThroughProxy(Conversing):
    """A proxy under test. Each probe is one request, in a conversation of its own: the whole session, then the
    question.

    What became of the part before the point is known once the tap has seen it (`after_capture`). `clean`: how the
    tap rewrites what it keeps of a
    body (keys are masked there), so that both sides are compared alike. The other arguments are those of `Conversing`.
    """

    def __init__(
        self, base_url: str, name: str | None = None, *, clean: Callable[[Any], Any] = _same, **settings: Any
    ) -> None:
        super().__init__(base_url, name, **settings)
        self._clean = clean

    async def aprocess(self, example: Example) -> Example:
        """The example with its answer and, under `facts`, the size of what stands before the point."""
        if "session" not in example:
            return await super().aprocess(example)
        counter = counter_for(self.model)
        reply = await self._client.send(self.shaped(example), counter=counter)
        said = _answer_of(reply)
        facts = {
            "tokens_before": tokens_of(_prefix(example), counter),
            "answer_tokens": counter.count(said["response"]),
            "cycle": len(example["points"]),
        }
        return {**example, **said, "facts": facts}

    def shaped(self, example: Example) -> ShapedRequest:
        """The whole conversation and the question."""
        return super().shaped(_asked(example, messages_of(example)) if "session" in example else example)

    def request_without_context_tokens(self, example: Example) -> int:
        """Tokens of the same request without what stands before the point: what is forwarded beyond them is the
        compressed part.
        """
        return self._without_prefix(example).tokens(counter_for(self.model))

    def _without_prefix(self, example: Example) -> ShapedRequest:
        messages = messages_of(example)
        head, _ = parted(messages)
        return super().shaped(_asked(example, [*head, *messages[max(len(head), example["points"][-1]) :]]))

    def after_capture(
        self, example: Example, forwarded: int | None, calls: Sequence[Call], records: Sequence[Forwarded]
    ) -> dict[str, Any]:
        """Facts of an answer that only the tap's records hold: `context_tokens` (also `tokens_after` in `metadata`),
        the size of what is left of the part before the point; `wire` (`violations` by kind); `output`
        (`context`: what the model got in the place of what stood before the point).
        """
        found: dict[str, Any] = {"metadata": {}, "wire": {}, "output": {}}
        if "session" not in example:
            return found
        if forwarded is not None:
            _note_size(found, forwarded - self.request_without_context_tokens(example))
        sent = next((call.request for call in reversed(calls) if call.account == "system" and call.error is None), None)
        landed = [
            r
            for r in records
            if r.wire in PATHS and isinstance(r.request, Mapping) and r.error is None and (r.status or 200) < 400
        ]
        if not isinstance(sent, Mapping) or not landed:
            return found
        request = parse_request(self.wire, self._clean(sent))
        received = [parse_request(record.wire, record.request) for record in landed]
        place = closest(request, received)
        main = received[place]
        if (
            tokens := landed[place].tokens
        ) is not None:  # what the proxy asked on its own account is on the bill, but not in the prompt
            _note_size(found, tokens - self.request_without_context_tokens(example))
        found["wire"]["violations"] = dict(Counter(each.kind for each in compare_requests(request, main)))
        found["output"]["context"] = rendered(
            [_spoken(message) for message in self._in_its_place(example, request, main)]
        )
        return found

    def _in_its_place(self, example: Example, sent: WireRequest, received: WireRequest) -> list[WireMessage]:
        """The messages that arrived between those that became of the system messages and those that became of what came
        after the point.
        """
        rest = parse_request(self.wire, self._without_prefix(example).body).messages
        head = next((at for at, message in enumerate(sent.messages) if message.role not in SYSTEM_ROLES), 0)
        after = len(sent.messages) - (len(rest) - head)
        pairs = align(sent.messages, received.messages)
        start = max((there + 1 for here, there in pairs.items() if here < head), default=0)
        stop = min((there for here, there in pairs.items() if here >= after), default=len(received.messages))
        return received.messages[start:stop]


class SizedByProxy(Compressing):
    """A cheap compressor in the size of a proxy: as many tokens as `partner` forwarded of this very probe
    (`example["budget"]`).

    Where the proxy gave no answer, or nobody saw what it forwarded, there is nothing to match: `NoBudget`.
    """

    stateful = False

    def __init__(self, compressor: str | Compressor, reader: Any, partner: str, *, tapped: bool = False) -> None:
        super().__init__(compressor, reader, tapped=tapped)
        self.matches = partner
        self.name = f"{self.compressor.name}@{partner}"

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which compressions and answers depend."""
        return {**super().fingerprint(), "class": "SizedByProxy", "matches": self.matches}

    async def made(self, example: Example) -> Any:
        """A compression of its own for each probe: sizes differ from probe to probe."""
        return await self._compress(example)

    async def _budget(self, example: Example) -> int | None:
        budget = example.get("budget")
        if not isinstance(budget, int):
            raise NoBudget(
                f"what {self.matches} forwarded of {example.get('id')!r} is not known, so there is no size to match"
            )
        return budget


def _asked(example: Example, messages: Sequence[ChatMessage]) -> Example:
    turns = [*messages, {"role": "user", "content": str(example.get("question") or "")}]
    return {"turns": turns, "tools": session_tools(example)}


def _prefix(example: Example) -> list[ChatMessage]:
    return parted(messages_of(example)[: example["points"][-1]])[1]


def _note_size(found: dict[str, Any], tokens: int) -> None:
    found["context_tokens"] = found["metadata"]["tokens_after"] = max(0, tokens)


def _spoken(message: WireMessage) -> ChatMessage:
    calls = [call_of(call.get("id"), call.get("name"), call.get("arguments")) for call in message.tool_calls]
    return {"role": message.role, "content": message.text, **({"tool_calls": calls} if calls else {})}


def _answer_of(reply: Reply) -> dict[str, Any]:
    answer: dict[str, Any] = {"response": reply.text or ""}
    if reply.finish_reason is not None:
        answer["finish_reason"] = reply.finish_reason
    if reply.usage is not None:
        counts = {"prompt_tokens": reply.usage.input_tokens, "completion_tokens": reply.usage.output_tokens}
        answer["api_usage"] = {name: count for name, count in counts.items() if count is not None}
    return answer
