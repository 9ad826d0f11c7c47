"""Any compressor or system as an HTTP proxy that speaks OpenAI chat completions, OpenAI Responses and Anthropic
messages.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from multidict import CIMultiDict

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, Failed, describe
from context_bench.core.families import offered
from context_bench.core.keys import MOST_BYTES, TooLarge, load_body, stable_hash
from context_bench.core.numbers import OPENAI_CHAT, usage_of
from context_bench.core.plugins import build
from context_bench.core.protocols import Compressor, System
from context_bench.core.records import Usage
from context_bench.llm.background import LARGE, Apart, Lost, WorkProcess, run_sync, short_turns
from context_bench.llm.coding import decode, unpacks_to_more
from context_bench.llm.hop import Hop, HopAnswer, HopRequest
from context_bench.llm.responders import ResponderError
from context_bench.systems.context import WIRES, RequestContext, Slot, compress_texts, context_of, leaves, with_context
from context_bench.wire.apis import Reply, parse_request, render_reply, render_stream
from context_bench.wire.apis.shared import dump
from context_bench.wire.request import WireRequest

Spec = str | Compressor | System

#: Seconds and bytes that work at a large body may take in its process; the body is then passed on as it came.
_SECONDS, _MEMORY = 60.0, 2 * 2**30
#: Bytes of a body that is read or written in a millisecond.
_AT_ONCE = 64 * 2**10
#: In a reply: the reason why its request was passed on as it came.
UNREAD = "X-Context-Bench-Unread"
#: The begin of a JSON object in UTF-8; the reader would take other encodings, too.
_OBJECT = re.compile(rb"[ \t\r\n]*+\{(?!\0)")


class Served:
    """A proxy on loopback: `async with Served("head_tail:keep=0.5", "http://127.0.0.1:18409") as served: served.url`
    (or a plain `with`).

    `spec` names a compressor (`bm25:budget=300`), a registered system or `py:module:Class`, or is such an object. What
    it changes is the context of a request: every text but system texts under 200 tokens and the question, which is the
    last paragraph of the last user text. All else is passed on byte for byte, streams and errors too; with `full` so is
    the whole request. A body that is too large to be worked at is passed on as it came, too: the header
    `X-Context-Bench-Unread` of the reply says why, and `unread` counts such bodies by reason.

    Keys are passed on, or replaced by `upstream_key` if that is given. A system's `process` gets `{"id", "context",
    "question"}`: the context that it returns replaces the request's; if it leaves the context alone and returns a
    `response`, that is the reply and the upstream is not called.
    """

    def __init__(
        self, spec: Spec, upstream: str, port: int = 0, upstream_key: str | None = None, *, host: str = "127.0.0.1"
    ) -> None:
        self.plugin = _plugin(spec)
        self.name = calling.name_of(self.plugin)
        self.unread: Counter[str] = Counter()
        self._key = upstream_key
        self._hop = Hop(upstream, self._change, port=port, host=host)
        self._process = WorkProcess(_SECONDS, _MEMORY)
        self._texts = _Texts(self.plugin if _movable(self.plugin) else None, _longest(self.plugin))
        self._apart = Apart(self._texts, self._process)
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
        self._process.stop()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown)
        self._process.close()
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
        change = await self._work(body)
        if isinstance(change, _Fault):
            raise ResponderError(change.status, f"{self.name}: {change.text}")
        if isinstance(change, _Unread):
            self.unread[change.reason] += 1
            return request.with_reply_header(UNREAD, change.reason)
        if isinstance(change, bytes):
            return request.with_raw(change)
        return request if change is None else change

    async def _work(self, body: _Body) -> bytes | HopAnswer | _Fault | _Unread | None:
        if len(body.raw) > MOST_BYTES:  # packed ones are no larger than what is in them
            return _Unread(f"too large: more than {MOST_BYTES // 2**20} MiB")
        large = await self._large(body)
        try:
            if large and _movable(self.plugin):
                change: bytes | _Fault | _Unread | None = await self._do("shortened", body, large=large)
                return change
            context: RequestContext | _Unread | None = await self._do("context", body, large=large)
            if not isinstance(context, RequestContext):
                return context
            with short_turns() if large else nullcontext():
                return await self._changed(context, body, large=large)
        except Lost as lost:
            if lost.too_large:
                return _Unread(f"too large: {lost}")
            raise ResponderError(500, f"{self.name}: {lost}") from None

    async def _large(self, body: _Body) -> bool:
        if body.coding and len(body.raw) <= LARGE:
            return await asyncio.to_thread(unpacks_to_more, body.raw, body.coding, LARGE)
        return len(body.raw) > LARGE

    async def _changed(self, context: RequestContext, body: _Body, *, large: bool) -> bytes | HopAnswer | _Fault | None:
        texts = await _shortened(self.plugin, context)
        if isinstance(texts, OwnAnswer):
            request: WireRequest = await self._do("parsed", body, large=large)
            return _rendered(texts, request)
        if isinstance(texts, _Fault):
            return texts
        if texts == [slot.text for slot in context.slots]:
            return None
        new: bytes = await self._do("replaced", (body, context.slots, texts), large=large)
        return new

    async def _do(self, method: str, work: Any, *, large: bool) -> Any:
        """Read or write a body: a large one in another process, for which others do not wait; a small one at once, for
        another thread would take longer to be asked.
        """
        if not large:
            body: _Body = work[0] if isinstance(work, tuple) else work
            if not body.coding and len(body.raw) <= _AT_ONCE:
                return getattr(self._texts, method)(work)
            return await asyncio.to_thread(getattr(self._texts, method), work)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._do_apart, method, work)

    def _do_apart(self, method: str, work: Any) -> Any:
        self._apart.away(large=True)
        return self._apart.do(method, work)


def _movable(plugin: Any) -> bool:
    """A compressor of ours without a model: a copy in another process does just the same."""
    own = f"{type(plugin).__module__}:{type(plugin).__name__}"
    return own in offered("compressors").values() and not getattr(plugin, "loads_weights", False)


def _longest(plugin: Any) -> int | None:
    """The characters of context that a compressor reads; `None` where it does not say."""
    longest = getattr(plugin, "longest_context", None)
    return longest if isinstance(longest, int) else None


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of a request as it came."""

    wire: str
    raw: bytes
    coding: str

    @property
    def plain(self) -> bytes:
        """Its bytes, unpacked; `ValueError` if it is not what its content coding says."""
        return decode(self.raw, self.coding)

    def read(self) -> dict[str, Any] | None:
        """The JSON object in it, or `None`; `TooLarge` if it is not read."""
        try:
            plain = self.plain
            found = load_body(plain) if _OBJECT.match(plain) else None
        except TooLarge:
            raise
        except ValueError:  # not what its content coding says, or no JSON
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class _Unread:
    """The reason why a body is passed on as it came."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Fault:
    """A plug-in failed: the status and the text that a client is given."""

    status: int
    text: str


class _Texts:
    """Finds the texts of bodies and replaces them. `plugin`: a compressor that makes them shorter here. `longest`:
    characters of context that are read.
    """

    def __init__(self, plugin: Any = None, longest: int | None = None) -> None:
        self._plugin, self._longest = plugin, longest

    def context(self, body: _Body) -> RequestContext | _Unread | None:
        """The context; `None` if there is none."""
        try:
            read = body.read()
        except TooLarge as error:
            return _Unread(str(error))
        context = context_of(body.wire, read) if read is not None else None
        if context is None or not context.slots:
            return None
        if self._longest is not None and sum(len(slot.text) for slot in context.slots) > self._longest:
            return _Unread(f"too large: a context of more than {self._longest:,} characters")
        return context

    def parsed(self, body: _Body) -> WireRequest:
        """The request."""
        return parse_request(body.wire, body.read() or {})

    def replaced(self, work: tuple[_Body, Sequence[Slot], Sequence[str]]) -> bytes:
        """The body with other texts in the place of its context."""
        body, slots, texts = work
        return with_context(body.plain, slots, texts)

    def shortened(self, body: _Body) -> bytes | _Fault | _Unread | None:
        """The body with its context made shorter by the compressor; `None` if that leaves it as it is."""
        context = self.context(body)
        if not isinstance(context, RequestContext):
            return context
        shortened = asyncio.run(_shortened(self._plugin, context))
        if isinstance(shortened, _Fault):
            return shortened
        assert isinstance(shortened, list), "a compressor answers nobody"
        unchanged = shortened == [slot.text for slot in context.slots]
        return None if unchanged else self.replaced((body, context.slots, shortened))


async def _shortened(plugin: Any, context: RequestContext) -> list[str] | OwnAnswer | _Fault:
    try:
        if not calling.method(plugin, "compress"):
            return await _processed(plugin, context)
        texts = [(slot.role, slot.text) for slot in context.slots]
        return await compress_texts(plugin, texts, context.question, model=context.model)
    except Failed as error:
        return _Fault(502, describe(error))
    except Exception as error:  # the plug-in is somebody else's code: its fault is one failed request
        return _Fault(500, describe(error))


def _plugin(spec: Spec) -> Any:
    def accepts(plugin: Any) -> bool:
        return bool(calling.method(plugin, "compress", "process", "aprocess"))

    plugin = build("system", spec, offered("compressors"), accepts) if isinstance(spec, str) else spec
    if not accepts(plugin):
        raise BadInput(f"{type(plugin).__name__} has neither compress(…) nor process(example): it is no system")
    if calling.method(plugin, "compress"):
        return offered("compressor_of")(plugin)
    calling.check("system", plugin)
    return plugin


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """A system answered by itself."""

    text: str
    usage: Usage | None = None


async def _processed(system: Any, context: RequestContext) -> list[str] | OwnAnswer:
    """Each text of context through the system on its own; one that answers gets all of it at once."""
    texts: list[str] = []
    for slot in context.slots:
        answer = await _one(system, slot, context.question)
        if isinstance(answer, OwnAnswer):
            if len(context.slots) == 1:
                return answer
            whole = await _one(system, Slot((), "user", context.text), context.question)
            return whole if isinstance(whole, OwnAnswer) else answer
        texts.append(answer)
    return texts


async def _one(system: Any, slot: Slot, question: str) -> str | OwnAnswer:
    example = {"id": stable_hash([slot.text, question], 16), "context": slot.text, "question": question}
    process = calling.method(system, "aprocess", "process")
    assert process is not None
    output = await calling.call(process, example)
    if not isinstance(output, Mapping):
        raise TypeError(f"process() returned a {type(output).__name__}; expected a dict with 'context' or 'response'")
    context, response = output.get("context"), output.get("response")
    if isinstance(context, str) and context != slot.text:
        return context
    if isinstance(response, str):
        return OwnAnswer(response, usage_of(output.get("api_usage"), OPENAI_CHAT))
    if context is None:
        keys = ", ".join(map(str, output)) or "none"
        raise TypeError(f"process() returned neither a 'context' nor a 'response'; its keys: {keys}")
    return slot.text


def _rendered(answer: OwnAnswer, request: WireRequest) -> HopAnswer:
    reply = Reply(text=answer.text, finish_reason="stop", usage=answer.usage, model=request.model)
    if request.stream:
        return HopAnswer(render_stream(request.wire, reply, request), content_type="text/event-stream")
    return HopAnswer([dump(render_reply(request.wire, reply, request))])


def with_key(headers: CIMultiDict[str], key: str, wire: str) -> CIMultiDict[str]:
    """The headers with `key` in the place(s) where the client put its own; without one, where the wire wants it."""
    values = {"x-api-key": key, "Authorization": f"Bearer {key}"}
    usual = "x-api-key" if wire.startswith("anthropic") else "Authorization"
    changed = headers.copy()
    for name in [name for name in values if name in headers] or [usual]:
        changed[name] = values[name]
    return changed
