"""Any compressor or system as an HTTP proxy that speaks OpenAI chat completions, OpenAI Responses and Anthropic
messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from multidict import CIMultiDict

from context_bench.core import calling
from context_bench.core.errors import BadInput, Failed, describe
from context_bench.core.families import offered
from context_bench.core.jsontext import MOST_BYTES, load_object
from context_bench.core.keys import stable_hash
from context_bench.core.plugins import build
from context_bench.core.protocols import Compressor, System
from context_bench.core.records import Usage
from context_bench.core.usage import OPENAI_CHAT, usage_of
from context_bench.llm.apart import LARGE, Apart, Lost
from context_bench.llm.background import run_sync
from context_bench.llm.coding import decode, unpacks_to_more
from context_bench.llm.delivery import ResponderError
from context_bench.llm.hop import Hop, HopAnswer, HopRequest
from context_bench.systems.context import WIRES, RequestContext, Slot, compress_texts, context_of, leaves, with_context
from context_bench.wire.apis.read import Reply, parse_request, render_reply, render_stream
from context_bench.wire.apis.shared import dump
from context_bench.wire.request import WireRequest

Spec = str | Compressor | System

#: Seconds and bytes that work at a large body may take.
_SECONDS, _MEMORY = 600.0, 2 * 2**30


class Served:
    """A proxy on loopback: `async with Served("head_tail:keep=0.5", "http://127.0.0.1:18409") as served: served.url`
    (or a plain `with`).

    `spec` names a compressor (`bm25:budget=300`), a registered system or `py:module:Class`, or is such an object. What
    it changes is the context of a request: every text but system texts under 200 tokens and the question, which is the
    last paragraph of the last user text. All else is passed on byte for byte, streams and errors too; with `full` so is
    the whole request. Keys are passed on, or replaced by `upstream_key` if that is given. A system's `process` gets
    `{"id", "context", "question"}`: the context that it returns replaces the request's; if it leaves the context alone
    and returns a `response`, that is the reply and the upstream is not called.
    """

    def __init__(
        self, spec: Spec, upstream: str, port: int = 0, upstream_key: str | None = None, *, host: str = "127.0.0.1"
    ) -> None:
        self.plugin = _plugin(spec)
        self.name = calling.name_of(self.plugin)
        self._key = upstream_key
        self._hop = Hop(upstream, self._change, port=port, host=host)
        self._apart = Apart(_Texts(self.plugin if _movable(self.plugin) else None), _SECONDS, _MEMORY)
        self._pool: ThreadPoolExecutor | None = None

    @property
    def url(self) -> str:
        """`http://HOST:PORT`, without `/v1`; once started."""
        return self._hop.url

    async def start(self) -> Served:
        """Bind and serve."""
        await self._hop.start()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="context-bench-serve")
        return self

    async def stop(self) -> None:
        """Close the port; a system's `aclose` is awaited."""
        await self._hop.stop()
        self._apart.stop()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown)
        self._apart.close()
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

    async def _change(self, request: HopRequest) -> HopRequest | HopAnswer:
        if self._key is not None:
            request = request.with_headers(with_key(request.headers, self._key, request.wire))
        if leaves(self.plugin) == "everything" or request.wire not in WIRES:
            return request
        body = _Body(request.wire, request.raw, request.headers.get("Content-Encoding", ""))
        if not body.coding and len(body.raw) > MOST_BYTES:
            return request  # nobody reads it
        large = await self._large(body)
        if large and _movable(self.plugin):
            made = await self._do("shortened", body, large=large)
        else:
            found = await self._do("found", body, large=large)
            made = await self._made(found, body, large=large) if found is not None else None
        if isinstance(made, _Fault):
            raise ResponderError(made.status, f"{self.name}: {made.text}")
        return request if made is None else request.with_raw(made) if isinstance(made, bytes) else made

    async def _large(self, body: _Body) -> bool:
        if body.coding and len(body.raw) <= LARGE:
            return await asyncio.to_thread(unpacks_to_more, body.raw, body.coding, LARGE)
        return len(body.raw) > LARGE

    async def _made(self, found: _Found, body: _Body, *, large: bool) -> bytes | HopAnswer | _Fault | None:
        made = await _shortened(self.plugin, found)
        if isinstance(made, OwnAnswer):
            request: WireRequest = await self._do("parsed", body, large=large)
            return _rendered(made, request)
        if isinstance(made, _Fault) or made == [slot.text for slot in found.context.slots]:
            return made if isinstance(made, _Fault) else None
        new: bytes = await self._do("replaced", (body, found.context.slots, made), large=large)
        return new

    async def _do(self, method: str, work: Any, *, large: bool) -> Any:
        """Read or write a body: a large one in another process, for which others do not wait."""
        if not large:
            return await asyncio.to_thread(getattr(_Texts(), method), work)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._do_apart, method, work)
        except Lost as lost:
            raise ResponderError(500, f"{self.name}: {lost}") from None

    def _do_apart(self, method: str, work: Any) -> Any:
        self._apart.away(large=True)
        return self._apart.do(method, work)


def _movable(plugin: Any) -> bool:
    """A compressor of ours without a model: a copy in another process does just the same."""
    own = f"{type(plugin).__module__}:{type(plugin).__name__}"
    return own in offered("compressors").values() and not getattr(plugin, "loads_weights", False)


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of a request as it came."""

    wire: str
    raw: bytes
    coding: str

    @property
    def document(self) -> str:
        """Its text; `ValueError` if it is none."""
        return decode(self.raw, self.coding).decode("utf-8")

    def read(self) -> dict[str, Any] | None:
        """The JSON object in it, or `None`."""
        try:
            return load_object(self.document)
        except ValueError:  # not what its content coding says, or no text
            return None


@dataclass(frozen=True, slots=True)
class _Found:
    """The context of a request, and the model that is asked."""

    context: RequestContext
    model: str | None


@dataclass(frozen=True, slots=True)
class _Fault:
    """A plug-in failed: the status and the text that a client is given."""

    status: int
    text: str


class _Texts:
    """Finds the texts of bodies and replaces them. `plugin`: a compressor that makes them shorter here."""

    def __init__(self, plugin: Any = None) -> None:
        self._plugin = plugin

    def found(self, body: _Body) -> _Found | None:
        """The context; `None` if there is none."""
        read = body.read()
        context = context_of(body.wire, read) if read is not None else None
        if read is None or context is None or not context.slots:
            return None
        model = read.get("model")
        return _Found(context, model if isinstance(model, str) else None)

    def parsed(self, body: _Body) -> WireRequest:
        """The request."""
        return parse_request(body.wire, body.read() or {})

    def replaced(self, work: tuple[_Body, Sequence[Slot], Sequence[str]]) -> bytes:
        """The body with other texts in the place of its context."""
        body, slots, texts = work
        return with_context(body.document, slots, texts).encode("utf-8")

    def shortened(self, body: _Body) -> bytes | _Fault | None:
        """The body with its context made shorter by the compressor; `None` if that leaves it as it is."""
        found = self.found(body)
        if found is None:
            return None
        made = asyncio.run(_shortened(self._plugin, found))
        if isinstance(made, _Fault):
            return made
        slots = found.context.slots
        assert isinstance(made, list), "a compressor answers nobody"
        return None if made == [slot.text for slot in slots] else self.replaced((body, slots, made))


async def _shortened(plugin: Any, found: _Found) -> list[str] | OwnAnswer | _Fault:
    try:
        if not calling.method(plugin, "compress"):
            return await _processed(plugin, found.context)
        texts = [(slot.role, slot.text) for slot in found.context.slots]
        return await compress_texts(plugin, texts, found.context.question, model=found.model)
    except Failed as error:
        return _Fault(502, describe(error))
    except Exception as error:  # the plug-in is somebody else's code: its fault is one failed request
        return _Fault(500, describe(error))


def _plugin(spec: Spec) -> Any:
    def accepts(made: Any) -> bool:
        return bool(calling.method(made, "compress") or calling.method(made, "process", "aprocess"))

    made = build("system", spec, offered("compressors"), accepts) if isinstance(spec, str) else spec
    if not accepts(made):
        raise BadInput(f"{type(made).__name__} has neither compress(…) nor process(example): it is no system")
    if calling.method(made, "compress"):
        return offered("compressor_of")(made)
    calling.check("system", made)
    return made


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """A system answered by itself."""

    text: str
    usage: Usage | None = None


async def _processed(system: Any, context: RequestContext) -> list[str] | OwnAnswer:
    """Each text of context through the system on its own; one that answers gets all of it at once."""
    texts: list[str] = []
    for slot in context.slots:
        made = await _one(system, slot, context.question)
        if isinstance(made, OwnAnswer):
            if len(context.slots) == 1:
                return made
            whole = await _one(system, Slot((), "user", context.text), context.question)
            return whole if isinstance(whole, OwnAnswer) else made
        texts.append(made)
    return texts


async def _one(system: Any, slot: Slot, question: str) -> str | OwnAnswer:
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
        return OwnAnswer(response, usage_of(made.get("api_usage"), OPENAI_CHAT))
    if context is None:
        raise TypeError(
            f"process() returned neither a 'context' nor a 'response'; its keys: {', '.join(map(str, made)) or 'none'}"
        )
    return slot.text


def _rendered(made: OwnAnswer, request: WireRequest) -> HopAnswer:
    reply = Reply(text=made.text, finish_reason="stop", usage=made.usage, model=request.model)
    if request.stream:
        return HopAnswer(render_stream(request.wire, reply, request), content_type="text/event-stream")
    return HopAnswer([dump(render_reply(request.wire, reply, request))])


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
