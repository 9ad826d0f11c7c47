"""Any compressor or system as an HTTP proxy that speaks OpenAI chat completions, OpenAI Responses and Anthropic messages."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multidict import CIMultiDict

from context_bench.core import calling
from context_bench.core.errors import BadInput, Failed, describe
from context_bench.core.keys import stable_hash
from context_bench.core.plugins import build
from context_bench.core.protocols import Compressor, System
from context_bench.core.records import Usage
from context_bench.core.usage import OPENAI_CHAT, usage_of
from context_bench.core.wire import WireRequest
from context_bench.llm.background import run_sync
from context_bench.llm.delivery import ResponderError
from context_bench.llm.hop import Answer, Hop, Request
from context_bench.llm.wire import Reply, parse_request, render_reply, render_stream
from context_bench.llm.wires.shared import dump
from context_bench.systems.compressors import COMPRESSORS
from context_bench.systems.compressors._messages import texts_of
from context_bench.systems.compressors._simple import as_compressor
from context_bench.systems.compressors.full import Full
from context_bench.systems.context import WIRES, Context, Slot, context_of, with_context

Spec = str | Compressor | System


class Served:
    """A proxy on loopback: `async with Served("head_tail:keep=0.5", "http://127.0.0.1:18409") as served: served.url` (or a plain `with`).

    `spec` names a compressor (`bm25:budget=300`), a registered system or `py:module:Class`, or is such an object. What it changes is the
    context of a request: every text but system texts under 200 tokens and the question, which is the last paragraph of the last user text.
    All else is passed on byte for byte, streams and errors too; with `full` so is the whole request. Keys are passed on, or replaced by
    `upstream_key` if that is given. A system's `process` gets `{"id", "context", "question"}`: the context that it returns replaces the
    request's; if it leaves the context alone and returns a `response`, that is the reply and the upstream is not called.
    """

    def __init__(self, spec: Spec, upstream: str, port: int = 0, upstream_key: str | None = None, *, host: str = "127.0.0.1") -> None:
        self.plugin = _plugin(spec)
        self.name = calling.name_of(self.plugin)
        self._key = upstream_key
        self._hop = Hop(upstream, self._change, port=port, host=host)

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`; once started."""
        return self._hop.url

    async def start(self) -> Served:
        """Bind and serve."""
        await self._hop.start()
        return self

    async def stop(self) -> None:
        """Close the port; a system's `aclose` is awaited."""
        await self._hop.stop()
        close = calling.method(self.plugin, "aclose")
        if close is not None:
            await calling.call(close)

    async def __aenter__(self) -> Served:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def __enter__(self) -> Served:
        return run_sync(self.start())

    def __exit__(self, *error: object) -> None:
        run_sync(self.stop())

    async def _change(self, request: Request) -> Request | Answer:
        if self._key is not None:
            request = request.with_headers(with_key(request.headers, self._key, request.wire))
        if isinstance(self.plugin, Full) or request.wire not in WIRES:
            return request
        body = request.body
        if body is None:
            return request
        context = await asyncio.to_thread(context_of, request.wire, body)
        if not context.slots:
            return request
        try:
            made = await self._shortened(context, body.get("model"))
        except Failed as error:
            raise ResponderError(502, f"{self.name}: {describe(error)}") from None
        except Exception as error:  # the plug-in is somebody else's code: its fault is one failed request
            raise ResponderError(500, f"{self.name}: {describe(error)}") from error
        if isinstance(made, Answered):
            return _rendered(made, parse_request(request.wire, body))
        if made == [slot.text for slot in context.slots]:
            return request
        return request.with_document(await asyncio.to_thread(with_context, request.document, context.slots, made))

    async def _shortened(self, context: Context, model: Any) -> list[str] | Answered:
        if calling.method(self.plugin, "compress"):
            texts = [(slot.role, slot.text) for slot in context.slots]
            return await compress_texts(self.plugin, texts, context.question, model=model if isinstance(model, str) else None)
        return await _processed(self.plugin, context)


def _plugin(spec: Spec) -> Any:
    def accepts(made: Any) -> bool:
        return bool(calling.method(made, "compress") or calling.method(made, "process", "aprocess"))

    made = build("system", spec, COMPRESSORS, accepts) if isinstance(spec, str) else spec
    if not accepts(made):
        raise BadInput(f"{type(made).__name__} has neither compress(…) nor process(example): it is no system")
    if calling.method(made, "compress"):
        return as_compressor(made)
    calling.check("system", made)
    return made


async def compress_texts(
    compressor: Any, texts: list[tuple[str, str]], question: str, *, model: str | None, budget: int | None = None, state: Any = None
) -> list[str]:
    """`(role, text)` pairs through a compressor: as many texts come back. What a compressor merges stands in the first place.

    One that counts tokens and has no `model` of its own counts as the model asked does.
    """
    if model is not None and getattr(compressor, "model", "") is None:
        compressor = copy.copy(compressor)
        compressor.model = model
    prefix = [{"role": role if role in ("system", "assistant", "tool") else "user", "content": text} for role, text in texts]
    tail = [{"role": "user", "content": question}] if question else []
    query = question if getattr(compressor, "needs_query", False) and question else None
    made, _ = await calling.call(compressor.compress, prefix, tail, state=state, budget=budget, query=query)
    found = texts_of(made.messages)
    if len(found) == len(texts):
        return found
    return ["\n\n".join(found), *[""] * (len(texts) - 1)]


@dataclass(frozen=True, slots=True)
class Answered:
    """A system answered by itself."""

    text: str
    usage: Usage | None = None


async def _processed(system: Any, context: Context) -> list[str] | Answered:
    """Each text of context through the system on its own; one that answers gets all of it at once."""
    texts: list[str] = []
    for slot in context.slots:
        made = await _one(system, slot, context.question)
        if isinstance(made, Answered):
            if len(context.slots) == 1:
                return made
            whole = await _one(system, Slot((), "user", context.text), context.question)
            return whole if isinstance(whole, Answered) else made
        texts.append(made)
    return texts


async def _one(system: Any, slot: Slot, question: str) -> str | Answered:
    example = {"id": stable_hash([slot.text, question], 16), "context": slot.text, "question": question}
    process = calling.method(system, "aprocess", "process")
    assert process is not None
    made = await calling.call(process, example)
    if not isinstance(made, Mapping):
        raise TypeError(f"process() returned a {type(made).__name__}; expected a dict with 'context' or 'response'")
    context, response = made.get("context"), made.get("response")
    if isinstance(context, str) and context != slot.text:
        return context
    if isinstance(response, str):
        return Answered(response, usage_of(made.get("api_usage"), OPENAI_CHAT))
    if context is None:
        raise TypeError(f"process() returned neither a 'context' nor a 'response'; its keys: {', '.join(map(str, made)) or 'none'}")
    return slot.text


def _rendered(made: Answered, request: WireRequest) -> Answer:
    reply = Reply(text=made.text, finish_reason="stop", usage=made.usage, model=request.model)
    if request.stream:
        return Answer(render_stream(request.wire, reply, request), content_type="text/event-stream")
    return Answer([dump(render_reply(request.wire, reply, request))])


def with_key(headers: CIMultiDict[str], key: str, wire: str) -> CIMultiDict[str]:
    """The headers with `key` in the place(s) where the client put its own; without one, where the wire wants it."""
    changed = headers.copy()
    if "x-api-key" in changed:
        changed["x-api-key"] = key
    if "Authorization" in changed:
        changed["Authorization"] = f"Bearer {key}"
    if "x-api-key" not in changed and "Authorization" not in changed:
        name, value = ("x-api-key", key) if wire.startswith("anthropic") else ("Authorization", f"Bearer {key}")
        changed[name] = value
    return changed
