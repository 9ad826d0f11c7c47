"""Replies through real proxies between two taps: what was done to them has a kind, and a faithful proxy has none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from context_bench.core.records import Usage
from context_bench.traffic.sections.watch_board import as_json, summary
from context_bench.traffic.watch.watcher import Watch
from context_bench.wire.apis import Reply, parse_request, render_reply, render_stream
from context_bench.wire.turns import Turn, total

from .killing import free_port

_CALL = {"id": "call_1", "name": "run", "arguments": '{"command":"ls"}'}
_REPLY = Reply("Let me look.", [_CALL], "tool_calls", Usage(1000, 20, 900), "m", reasoning="Hm.")
_PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
_HEADS = {"x-request-id": "req_1", "x-ratelimit-remaining-requests": "9"}
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handle: Handler) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _streamed(request: web.BaseRequest, events: list[bytes], *, broken: bool = False) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **_HEADS})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    if broken:
        assert request.transport is not None
        request.transport.abort()
    return response


def _wire(path: str) -> str:
    return next(wire for wire, known in _PATHS.items() if path.startswith(known))


async def _provider(request: web.BaseRequest) -> web.StreamResponse:
    body, wire = json.loads(await request.read()), _wire(request.path)
    parsed = parse_request(wire, body)
    if "fail" in str(body):
        error = {"error": {"type": "rate_limit_error", "message": "Too many requests"}}
        return web.json_response(error, status=429, headers={"retry-after": "7", **_HEADS})
    if not parsed.stream:
        return web.json_response(render_reply(wire, _REPLY, parsed), headers=_HEADS)
    events = list(render_stream(wire, _REPLY, parsed))
    if "break" in str(body):
        return await _streamed(request, events[: len(events) // 2], broken=True)
    return await _streamed(request, events)


class _Proxy:
    """Passes requests on to `back`; `change` is shown the bytes of a reply and gives those that are sent on."""

    def __init__(self, back: int, change: Callable[[bytes], bytes], **heads: str) -> None:
        self._back, self._change, self._heads = back, change, heads
        self.cached: bytes | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if self.cached is not None:
            return web.Response(body=self.cached, headers={"content-type": "application/json"})
        async with aiohttp.ClientSession() as session:
            try:
                async with session.post(f"http://127.0.0.1:{self._back}{request.path}", data=body) as reply:
                    data, status = await reply.read(), reply.status
                    heads = {name: reply.headers[name] for name in (*_HEADS, "retry-after") if name in reply.headers}
                    kind = reply.headers["content-type"]
            except aiohttp.ClientPayloadError:  # broke off: the client is to see a whole one
                data, status, heads, kind = b"", 200, dict(_HEADS), "text/event-stream"
        data = self._change(data)
        return web.Response(body=data, status=status, headers={**heads, **self._heads, "content-type": kind})


async def _watched(
    change: Callable[[bytes], bytes], *bodies: tuple[str, dict], cached: bytes | None = None, **heads: str
) -> list[Turn]:
    back, kept = free_port(), list[Turn]()

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    proxy = _Proxy(back, change, **heads)
    proxy.cached = cached
    async with (
        serving(_provider) as provider,
        serving(proxy.handle) as via,
        Watch(provider, via=via, back=back, keep=keep, record="full") as watch,
        aiohttp.ClientSession() as session,
    ):
        for wire, body in bodies:
            async with session.post(watch.url + _PATHS[wire], json=body) as answer:
                await answer.read()
        await watch.drain()
    return [turn for turn in kept if turn.kind == "turn"]


def _asked(wire: str, text: str = "list the files", **more: object) -> tuple[str, dict]:
    held = "input" if wire == "openai-responses" else "messages"
    return wire, {"model": "m", held: [{"role": "user", "content": text}], "max_tokens": 9, **more}


_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("wire", _PATHS)
async def test_a_faithful_proxy_has_no_kind_and_its_times_are_figures(wire: str) -> None:
    bodies = [_asked(wire), _asked(wire, "again", **_STREAM), _asked(wire, "fail")]
    turns = await _watched(lambda data: data, *bodies)
    assert [turn.violations for turn in turns] == [{}, {}, {}]
    assert all(turn.first_byte is not None and turn.added_first_byte is not None for turn in turns)
    assert turns[0].added_pause is None  # came whole


@pytest.mark.parametrize(
    ("wire", "change", "kinds"),
    [
        ("anthropic", lambda d: d.replace(b'{\\"command\\":\\"ls\\"}', b""), {"tool_call_arguments_changed"}),
        ("openai-chat", lambda d: d.replace(b'"tool_calls"}', b'"stop"}'), {"finish_reason_changed"}),
        ("openai-chat", lambda d: d.replace(b"data: [DONE]\n\n", b""), {"stream_end_missing"}),
        ("openai-chat", lambda d: d.replace(b'"cached_tokens":900', b'"cached_tokens":0'), {"reply_usage_changed"}),
        ("openai-chat", lambda d: d[: len(d) // 3], {"stream_broken"}),
        ("anthropic", lambda d: d[: len(d) // 3], {"stream_broken"}),
        ("openai-responses", lambda d: d.replace(b'"call_1"', b'"call_9"'), {"tool_call_id_changed"}),
    ],
)
async def test_what_a_proxy_does_to_a_streamed_reply_has_its_kind(
    wire: str, change: Callable[[bytes], bytes], kinds: set[str]
) -> None:
    if wire == "anthropic":  # its pieces cut the arguments
        pieces = change

        def change(data: bytes) -> bytes:
            events = data.split(b"\n\n")
            kept = [event for event in events if b"input_json_delta" not in event]
            return b"\n\n".join(kept) if kinds == {"tool_call_arguments_changed"} else pieces(data)

    [turn] = await _watched(change, _asked(wire, **_STREAM))
    assert set(turn.violations) == kinds
    assert turn.front is not None
    assert [detail.partition(":")[0] for detail in turn.details] == sorted(kinds)
    told = turn.front.facts.get("reply_faults", [])
    assert (told == sorted(kinds)) is (kinds <= {"stream_broken", "stream_end_missing"})


async def test_errors_and_breaks_that_are_hidden() -> None:
    whole = b"".join(render_stream("openai-chat", Reply("All done.", [], "stop", None, "m"), parse_request("x", {})))
    turns = await _watched(lambda data: data or whole, _asked("openai-chat", "break", **_STREAM))
    assert turns[0].violations == {"break_hidden": 1, "reply_text_changed": 1}
    turns = await _watched(lambda data: b'{"error": "sorry"}', _asked("openai-chat", "fail"))
    assert turns[0].violations == {"error_changed": 1}


async def test_an_answer_of_the_proxys_own_and_a_cost_that_it_tells() -> None:
    turns = await _watched(lambda data: data, _asked("openai-chat"), **{"x-litellm-response-cost": "0.0125"})
    assert (turns[0].cost_stated, turns[0].violations) == (0.0125, {})
    assert "told in headers: $0.0125" in summary(turns, {})
    told = json.loads(as_json(turns, {}))["arms"]["main"]["total"]
    assert told["cost_stated"] == {"told": 0.0125}

    cached = json.dumps(render_reply("openai-chat", _REPLY, parse_request("openai-chat", {}))).encode()
    turns = await _watched(lambda data: data, _asked("openai-chat"), cached=cached)
    assert [(turn.violations, turn.calls) for turn in turns] == [({"answered_without_provider": 1}, [])]


_ODD = {
    "a page": (b"<html><body>Please log in</body></html>", "text/html"),
    "half of one": (b'{"choices": [{"index": 0, "mess', "application/json"),
    "nothing": (b"", "application/json"),
    "something else": (b"[1, 2]", "application/json"),
}


async def test_a_body_that_is_no_reply_is_a_failure_of_the_provider() -> None:
    kept = list[Turn]()

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    async def odd(request: web.BaseRequest) -> web.StreamResponse:
        text = str(await request.read())
        body, kind = next(_ODD[name] for name in _ODD if name in text)
        return web.Response(body=body, content_type=kind)

    async with (
        serving(odd) as provider,
        Watch(provider, keep=keep) as watch,
        aiohttp.ClientSession() as session,
    ):
        for name in _ODD:
            for wire in _PATHS:
                async with session.post(watch.url + _PATHS[wire], json=_asked(wire, name)[1]) as answer:
                    assert answer.status == 200
                    await answer.read()
        await watch.drain()
    assert total(kept).failures == {"unreadable reply": len(_ODD) * len(_PATHS)}


@pytest.mark.parametrize("wire", _PATHS)
async def test_a_page_in_the_place_of_a_reply_is_named_for_what_it_is(wire: str) -> None:
    [turn] = await _watched(lambda data: _ODD["a page"][0], _asked(wire))
    assert turn.violations == {"reply_unreadable": 1}
    assert turn.failure == "unreadable reply"
