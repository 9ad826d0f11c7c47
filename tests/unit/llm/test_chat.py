"""The client against a hostile provider on loopback. Back-off runs on a manual clock, so nothing here waits."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from context_bench.core import errors
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.machine import ManualClock
from context_bench.core.records import Call
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import ChatClient, endpoint
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES, build
from context_bench.llm.spend import SpendLimit
from context_bench.wire.apis import Reply, chat_request

KEY = "cb-9f3kQ7w1ZpL0xVb2"
SAY = [{"role": "user", "content": "Say something."}]
GOOD = {"text": "something"}


class Setting:
    """A scripted server, a client of it, a manual clock and an open ledger."""

    def __init__(self, server: ModelServer, clock: ManualClock, client: ChatClient, ledger: Ledger) -> None:
        self.server, self.clock, self.client, self.ledger = server, clock, client, ledger

    @property
    def calls(self) -> list[Call]:
        return self.ledger.calls

    async def ask(self, model: str = "gpt-4o-mini", **params: Any) -> Reply:
        with open_ledger(self.ledger):
            return await self.client.chat(model, SAY, **params)


@asynccontextmanager
async def setting(*rules: dict[str, Any], ledger: Ledger | None = None, **client: Any) -> AsyncIterator[Setting]:
    clock = ManualClock()
    async with (
        ModelServer(Scripted([*rules, GOOD], clock=clock)) as server,
        ChatClient(server.url, clock=clock, api_key=KEY, **client) as chat,
    ):
        yield Setting(server, clock, chat, ledger or Ledger())


@asynccontextmanager
async def handler(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server of the test's own, for what no model server does."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


# --- trying again
# ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_tried_again_and_the_wait_is_no_latency(status: int) -> None:
    async with setting({"first": 2, "status": status, "error": "not now"}) as s:
        assert (await s.ask()).text == "something"
        assert s.clock.sleeps == [1, 2]
        assert [(call.status, call.attempt, call.waited, call.seconds) for call in s.calls] == [
            (status, 1, 0, 0),
            (status, 2, 1, 0),
            (200, 3, 2, 0),
        ]
        assert s.ledger.waited == 3
        assert s.server.seen == 3


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422, 501])
async def test_not_tried_again(status: int) -> None:
    async with setting({"status": status, "error": "the provider's own words"}) as s:
        with pytest.raises(errors.SystemFailed, match=f"HTTP {status} .*the provider's own words") as caught:
            await s.ask()
        assert type(caught.value) is (errors.Refused if status < 500 else errors.ServerFailed)
        assert s.server.seen == len(s.calls) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, errors.RateLimited),
        (503, errors.ServerFailed),
        (529, errors.ServerFailed),
        (504, errors.TimedOut),
        (409, errors.Refused),
    ],
)
@pytest.mark.parametrize("retries", [0, 2])
async def test_gives_up_after_the_allowed_attempts(status: int, kind: type[Exception], retries: int) -> None:
    async with setting({"status": status}, max_retries=retries) as s:
        with pytest.raises(kind, match=f"HTTP {status}"):
            await s.ask()
        assert s.server.seen == len(s.calls) == retries + 1
        assert all(call.error and call.error.startswith(kind.__name__) for call in s.calls)


@pytest.mark.parametrize(
    ("told", "waited"),
    [
        ({"retry_after": 7}, 7),
        ({"retry_after": -7}, 1),
        ({"retry_after": 259_200}, 60),
        ({"retry_after": "in a while"}, 1),
        ({"retry_after": {"date_in": 9}}, 9),
        ({"retry_after": {"date_in": -9}}, 1),
        ({"retry_after": {"ms": 2500}}, 2.5),
        ({"headers": {"x-ratelimit-reset-requests": "6s"}}, 6),
        ({"headers": {"x-ratelimit-reset": "1700000004"}}, 4),
        ({}, 1),
    ],
)
async def test_waits_as_asked(told: dict[str, Any], waited: float) -> None:
    async with setting({"first": 1, "status": 429, **told}) as s:
        await s.ask()
        assert s.clock.sleeps == [pytest.approx(waited)]
        assert s.calls[1].waited == pytest.approx(waited)


async def test_an_empty_account_is_not_asked_again() -> None:
    async with setting({"status": 429, "error": {"message": "pay", "code": "insufficient_quota"}}) as s:
        with pytest.raises(errors.RateLimited, match="insufficient_quota"):
            await s.ask()
        assert s.server.seen == 1


@pytest.mark.parametrize("how", ["before-headers", "mid-body", "mid-stream"])
@pytest.mark.parametrize("reset", [False, True])
async def test_broken_connections(how: str, reset: bool) -> None:
    rule = {"disconnect": how, "reset": reset, "text": "something long enough to be cut in its middle"}
    async with setting({**rule, "first": 1}) as s:
        assert (await s.ask(stream=how == "mid-stream")).text == "something"
        assert [call.error is None for call in s.calls] == [False, True]
    async with setting(rule, max_retries=1) as s:
        with pytest.raises(errors.Unreachable, match="broke"):
            await s.ask(stream=how == "mid-stream")
        assert s.server.seen == 2


async def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        clock, ledger, told = ManualClock(), Ledger(), []
        ledger.waiting = told.append
        async with ChatClient(f"http://127.0.0.1:{port}", clock=clock) as client:
            with (
                open_ledger(ledger),
                pytest.raises(errors.Unreachable, match=f"Could not connect to http://127.0.0.1:{port}/v1"),
            ):
                await client.chat("m", SAY)
            assert clock.sleeps == [0.25, 0.5, 1]  # a server that is started again is there soon, or not at all
            assert [call.status for call in ledger.calls] == [None] * 4
            assert told == [f"Could not connect to http://127.0.0.1:{port}/v1/chat/completions: Connection refused"] * 3
            with open_ledger(Ledger(brief=True)), pytest.raises(errors.Unreachable):
                await client.chat("m", SAY)
            assert len(clock.sleeps) == 3


async def test_who_stands_by_is_not_kept_waiting_by_what_looks_down_but_by_a_quota() -> None:
    for status, attempts in ((502, 2), (429, 4)):
        async with setting({"status": status}, max_retries=3) as s:
            with open_ledger(Ledger(brief=True)), pytest.raises(errors.SystemFailed):
                await s.client.chat("m", SAY)
            assert s.server.seen == attempts


async def test_a_host_that_does_not_exist() -> None:
    async with ChatClient("http://no-such-host.invalid", max_retries=0) as client:
        with pytest.raises(errors.Unreachable, match="Could not connect"):
            await client.chat("m", SAY)


@pytest.mark.parametrize("rule", [{"delay": "forever"}, {"chunk_bytes": 1, "chunk_delay": 1.0}])
@pytest.mark.parametrize("stream", [False, True])
async def test_stalls_and_trickles_end_at_the_timeout(rule: dict[str, Any], stream: bool) -> None:
    async with setting(rule, timeout=0.15, max_retries=1) as s:
        with pytest.raises(errors.TimedOut, match=r"within 0\.15 s"):
            await s.ask(stream=stream)
        assert len(s.calls) == 2


async def test_no_wait_beyond_the_examples_deadline() -> None:
    clock_start = ManualClock().time
    async with setting({"status": 429, "retry_after": 30}, ledger=Ledger(deadline=clock_start + 20)) as s:
        with pytest.raises(errors.RateLimited, match="no time left"):
            await s.ask()
        assert s.clock.sleeps == []


async def test_the_examples_deadline_ends_an_attempt_and_is_not_tried_again() -> None:
    async with setting({"delay": "forever"}, timeout=None, ledger=Ledger(deadline=ManualClock().time + 0.15)) as s:
        with pytest.raises(errors.TimedOut, match="deadline"):
            await s.ask()
        assert len(s.calls) == 1


async def test_a_deadline_already_passed_sends_nothing() -> None:
    async with setting(ledger=Ledger(deadline=ManualClock().time - 1)) as s:
        with pytest.raises(errors.TimedOut, match="deadline"):
            await s.ask()
        assert s.server.seen == 0


# --- replies that are none
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"html": True}, "invalid JSON .*text/html.*502 Bad Gateway"),
        ({"malformed": True}, "invalid JSON"),
        ({"malformed": ""}, "invalid JSON .*empty body"),
        ({"malformed": "[]"}, "Unexpected response"),
        ({"malformed": "{}"}, "Unexpected response"),
        ({"malformed": '{"choices": [{"message": {"content": 5}}]}'}, "Unexpected response"),
        ({"empty_choices": True}, "empty choices"),
        ({"status": 200, "error": "all is lost"}, "Unexpected response.*all is lost"),
        ({"text": None}, "null content"),
        ({"text": "  \n"}, "empty text"),
        ({"text": "", "finish_reason": "length", "reasoning": "hm"}, "used up on reasoning .*finish_reason=length"),
        ({"text": None, "finish_reason": "length"}, "used up .*finish_reason=length"),
        (
            {"text": None, "tool_calls": [{"name": "read_file", "arguments": {}}]},
            "called read_file instead of answering",
        ),
    ],
)
async def test_no_answer_is_a_bad_reply(rule: dict[str, Any], words: str) -> None:
    async with setting(rule) as s:
        with pytest.raises(errors.BadReply, match=words):
            await s.ask()
        assert s.server.seen == 1
        assert s.calls[0].error is not None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"text": None, "refusal": "I will not."}, "The model refused: I will not"),
        ({"text": None, "finish_reason": "content_filter"}, "content filter held"),
        ({"text": "half an", "finish_reason": "content_filter"}, "content filter cut"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(rule: dict[str, Any], words: str, stream: bool) -> None:
    async with setting(rule) as s:
        with pytest.raises(errors.Refused, match=words):
            await s.ask(stream=stream)


async def test_the_word_none_is_an_answer_and_a_reply_that_is_none_is_billed() -> None:
    async with setting({"text": "None"}) as s:
        assert (await s.ask()).text == "None"
    async with setting({"text": None, "usage": {"input_tokens": 10, "output_tokens": 4}}, prices=GenaiPrices()) as s:
        with pytest.raises(errors.BadReply):
            await s.ask()
        assert s.ledger.cost == pytest.approx(10 * 0.15e-6 + 4 * 0.6e-6)


async def test_tool_calls_are_welcome_where_they_are() -> None:
    async with setting({"text": None, "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}) as s:
        reply = await s.client.send(chat_request({"model": "m", "messages": SAY}), tool_calls_ok=True)
        assert reply.tool_calls[0]["name"] == "f"


@pytest.mark.parametrize(
    ("rule", "tries"),
    [
        ({"status": 200, "error": {"message": "later", "code": 502}}, 2),
        ({"status": 200, "error": {"message": "later", "type": "overloaded_error"}}, 2),
        ({"status": 200, "error": {"message": "never", "code": 400}}, 1),
        ({"stream_error": "overloaded_error"}, 2),
    ],
)
async def test_errors_told_in_a_successful_reply(rule: dict[str, Any], tries: int) -> None:
    async with setting(rule, max_retries=1) as s:
        with pytest.raises(errors.SystemFailed, match="an error in a reply with HTTP 200"):
            await s.ask(stream="stream_error" in rule)
        assert s.server.seen == tries


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too many tokens", "code": "context_length_exceeded", "type": "invalid_request_error"},
        {
            "message": "request (9001 tokens) exceeds the available context size",
            "type": "exceed_context_size_error",
            "n_ctx": 8192,
        },
        {"message": "prompt is too long: 208310 tokens > 200000 maximum", "type": "invalid_request_error"},
        {"message": "This model's maximum context length is 8192 tokens"},
    ],
)
async def test_a_context_that_does_not_fit(error: dict[str, Any]) -> None:
    async with setting({"status": 400, "error": error}) as s:
        with pytest.raises(errors.ContextTooLong, match="HTTP 400") as caught:
            await s.ask()
        assert error["message"][:20] in str(caught.value)
        assert s.server.seen == 1


async def test_what_is_not_http_and_what_never_ends() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    async with server, ChatClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", max_retries=0) as client:
        with pytest.raises(errors.SystemFailed, match=r"not readable as HTTP|broke"):
            await client.chat("m", SAY)


async def test_redirects_are_not_followed_with_the_key() -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://elsewhere.invalid/v1")

    async with handler(away) as url, ChatClient(url, api_key=KEY) as client:
        with pytest.raises(errors.Refused, match=r"HTTP 307 .*redirected to http://elsewhere"):
            await client.chat("m", SAY)


async def test_a_wrong_content_length() -> None:
    async with setting({"content_length": 100_000}, max_retries=0, timeout=5) as s:
        with pytest.raises(errors.Unreachable, match="broke"):
            await s.ask()


async def test_a_client_that_was_used_can_be_sent_elsewhere_without_what_is_of_here() -> None:
    async with setting() as s:
        assert (
            await s.client.send(chat_request({"model": "m", "messages": SAY}), counter=counter_for("m"))
        ).text == "something"
        told = pickle.dumps(s.client)
        assert told.count(KEY.encode()) == 1  # where whoever sends it looks for it
        copy: ChatClient = pickle.loads(told)
        assert (await copy.chat("m", SAY)).text == "something"
        await copy.aclose()
        assert (await s.ask()).text == "something"


# --- keys
# ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 401, 429])
async def test_no_text_or_record_holds_a_key(status: int) -> None:
    async def tell_tale(request: web.Request) -> web.StreamResponse:
        said = (
            f"your key {request.headers['authorization']} alias {KEY[:9]}… {request.headers['x-extra-token']} "
            f"at {request.url}"
        )
        return web.json_response({"error": {"message": said}}, status=status)

    async with handler(tell_tale) as url:
        base = url.replace("http://", "http://user:hunter2hunter2@") + "/?api_key=querysecret99"
        ledger, clock = Ledger(), ManualClock()
        async with ChatClient(base, api_key=KEY, headers={"X-Extra-Token": "extrasecret77"}, clock=clock) as client:
            with open_ledger(ledger), pytest.raises(errors.SystemFailed) as caught:
                await client.chat("m", SAY)
        shown = (
            f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r} {ledger.calls!r} "
            f"{client.base_url}"
        )
        for secret in (KEY, KEY[:9], "hunter2", "querysecret99", "extrasecret77"):
            assert secret not in shown
        assert "your key" in shown
        assert ledger.calls[0].url == f"{url}/v1/chat/completions"


async def test_credentials_in_the_url_are_a_login() -> None:
    async def told(request: web.Request) -> web.StreamResponse:
        sent.append(request.headers["authorization"])
        return web.json_response({"choices": [{"message": {"content": f"You are {sent[-1]}"}}]})

    sent: list[str] = []
    async with handler(told) as url, ChatClient(url.replace("http://", "http://me:p%40w@")) as client:
        assert (await client.chat("m", SAY)).text == "You are [key]"  # whoever quotes the login, it is not kept
    assert sent == ["Basic bWU6cEB3"]


@pytest.mark.parametrize("key", ["two\nlines", "naïve", "nul\0"])
def test_a_key_that_no_header_can_carry_is_told_unseen(key: str) -> None:
    with pytest.raises(errors.BadInput, match="API key") as caught:
        ChatClient("http://127.0.0.1:1", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("shape", ["plain-user", "claude-code", "codex"])
async def test_keys_and_marks_go_where_the_wire_has_them(shape: str) -> None:
    place, value = ("x-api-key", "{}") if shape == "claude-code" else ("authorization", "Bearer {}")
    request = build(shape, {"id": 1, "context": "c", "question": "q"}, "m")
    sent: list[tuple[str | None, str | None]] = []
    async with ModelServer(Scripted([GOOD])) as server:
        for mark, extra in (
            (None, {}),
            (Mark("key", "token-1"), {}),
            (Mark("header", "token-2"), {"proxy_key": "pk"}),
            (Mark("serial", "t"), {}),
        ):
            client = ChatClient(server.url, api_key=" " + KEY + "\n", **extra)
            with open_ledger(Ledger(mark=mark)):
                await client.send(request)
            headers = server.requests[-1].headers
            sent.append((headers.get(place), headers.get("x-context-bench")))
        await client.aclose()
    keys = [(KEY, None), ("token-1", None), ("pk", "token-2"), (KEY, None)]
    assert sent == [(value.format(key), mark) for key, mark in keys]


# --- where requests go, what is recorded
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h", "http://h/v1/chat/completions"),
        ("http://h/", "http://h/v1/chat/completions"),
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1//", "http://h/v1/chat/completions"),
        ("http://h:8/api/v1/", "http://h:8/api/v1/chat/completions"),
        ("http://h/proxy", "http://h/proxy/v1/chat/completions"),
        ("http://h/v1beta/openai/", "http://h/v1beta/openai/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1?tenant=a", "http://h/v1/chat/completions?tenant=a"),
        ("http://[::1]:8/", "http://[::1]:8/v1/chat/completions"),
        ("http://h/vault", "http://h/vault/v1/chat/completions"),
    ],
)
def test_endpoint(base: str, url: str) -> None:
    assert endpoint(base, "/v1/chat/completions") == url


@pytest.mark.parametrize("base", ["", "localhost:8080", "ftp://h", "http://", "http://h:port", "http://[::1"])
def test_a_base_url_that_is_none(base: str) -> None:
    with pytest.raises(errors.BadInput, match="base URL"):
        ChatClient(base)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_with_or_without_v1(path: str) -> None:
    async with ModelServer(Scripted([GOOD])) as server, ChatClient(server.url + path) as client:
        assert (await client.chat("m", SAY)).text == "something"
        assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("shape", list(SHAPES))
async def test_every_shape_streamed_or_not(shape: str) -> None:
    example = {"id": "1", "context": "The gauge is 4.2 m.", "question": "How long?"}
    request = build(shape, example, "gpt-4o")
    ledger = Ledger()
    async with ModelServer(Scripted([{"text": "4.2 m — naïve ✓"}])) as server, ChatClient(server.url) as client:
        with open_ledger(ledger):
            reply = await client.send(request, counter=counter_for("gpt-4o"))
        received = server.requests[-1].request
    assert reply.text == "4.2 m — naïve ✓"
    (call,) = ledger.calls
    assert (call.account, call.model, call.status, call.error, call.finish_reason) == (
        "system",
        "gpt-4o",
        200,
        None,
        "stop",
    )
    assert call.request == request.body
    assert call.reply["content"] == reply.text
    assert (call.sent_tokens, call.exact) == (request.tokens(), True)
    assert received.messages == request.parsed().messages
    assert (call.ttft is not None) == request.stream
    assert call.ttft is None or 0 < call.ttft <= call.seconds


async def test_ttft_is_the_first_word_and_not_the_role() -> None:
    clock = ManualClock()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for delta in ({"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "word"}):
            clock.time += 5
            await response.write(
                b'data: {"choices": [{"index": 0, "delta": '
                + str(delta).replace("'", '"').encode()
                + b"}]}\n\n: keep\n\n"
            )
            for _ in range(200):  # let the client read before the clock moves on
                await asyncio.sleep(0)
        await response.write(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n')
        return response

    ledger = Ledger()
    async with handler(slow) as url, ChatClient(url, clock=clock) as client:
        with open_ledger(ledger):
            reply = await client.chat("m", SAY, stream=True)
    assert (reply.text, reply.reasoning) == ("word", "hm")
    assert ledger.calls[0].ttft == 10


async def test_a_proxy_that_does_not_stream_when_asked_to() -> None:
    async def whole(request: web.Request) -> web.StreamResponse:
        return web.json_response({"choices": [{"message": {"content": "at once"}, "finish_reason": "stop"}]})

    async with handler(whole) as url, ChatClient(url) as client:
        assert (await client.chat("m", SAY, stream=True)).text == "at once"


async def test_hostile_text_is_sent_as_it_is() -> None:
    text = "nul \0 lone \ud800 rtl \u202e <|endoftext|> " + "x" * 100_000
    async with ModelServer(Scripted([GOOD])) as server, ChatClient(server.url) as client:
        await client.chat("m", [{"role": "user", "content": text}])
        assert server.requests[0].text == text


async def test_works_without_a_ledger_and_with_a_judges() -> None:
    async with setting(ledger=Ledger(account="judge")) as s:
        assert (await s.client.chat("m", SAY)).text == "something"
        assert s.calls == []
        await s.ask()
        assert s.calls[0].account == "judge"


# --- slots and money
# ------------------------------------------------------------------------


async def test_the_limiter_bounds_what_is_under_way() -> None:
    limiter = FixedLimiter(3)
    async with (
        ModelServer(Scripted([{"delay": 0.02, **GOOD}])) as server,
        ChatClient(server.url, limiter=limiter) as client,
    ):
        await asyncio.gather(*(client.chat("m", SAY) for _ in range(12)))
        assert server.most_in_flight <= 3
        assert (server.seen, limiter.in_use) == (12, 0)


async def test_a_refusal_for_quota_cuts_and_pauses_the_account() -> None:
    clock = ManualClock()
    limiter = AdaptiveLimiter(start=10, clock=clock)
    ledger = Ledger()
    async with ModelServer(Scripted([{"times": 1, "status": 429, "retry_after": 8}, GOOD])) as server:
        one, two = (ChatClient(server.url, clock=clock, limiter=limiter, max_retries=0) for _ in range(2))
        with pytest.raises(errors.RateLimited):
            await one.chat("m", SAY)
        assert limiter.limit == 8
        with open_ledger(ledger):
            await one.chat("m", SAY)
            await two.chat("m", SAY)
        await one.aclose()
        await two.aclose()
    assert [call.waited for call in ledger.calls] == [8, 0]
    assert ledger.calls[0].seconds == 0
    assert limiter.in_use == 0


async def test_the_deadline_holds_while_waiting_for_a_slot() -> None:
    limiter = FixedLimiter(1)
    await limiter.acquire()
    async with setting(limiter=limiter, ledger=Ledger(deadline=ManualClock().time + 0.05)) as s:
        with pytest.raises(errors.TimedOut, match="waiting for a free slot"):
            await s.ask()
        assert s.server.seen == 0
    assert limiter.in_use == 1


async def test_the_cost_cap_to_the_cent() -> None:
    """Each call is billed 1,000 tokens at $10 per 1M = 1 cent; its worst case is a little more, so 24 fit under 25
    cents.
    """
    prices = GenaiPrices({"m": {"input": 10, "output": 0}})
    prompt = [{"role": "user", "content": "word " * 990}]
    rule = {"delay": 0.005, "usage": {"input_tokens": 1000, "output_tokens": 5}, **GOOD}
    spend = SpendLimit(0.25)
    ledger = Ledger(spend=spend)
    async with ModelServer(Scripted([rule])) as server, ChatClient(server.url, prices=prices) as client:
        with open_ledger(ledger):
            ends = await asyncio.gather(
                *(client.chat("m", prompt, max_tokens=5) for _ in range(60)), return_exceptions=True
            )
        done = [end for end in ends if isinstance(end, Reply)]
        assert server.seen == len(done) == 24
    assert {type(end) for end in ends if not isinstance(end, Reply)} == {errors.CostCapReached}
    assert spend.spent == pytest.approx(0.24, abs=1e-12)
    assert ledger.cost == pytest.approx(0.24, abs=1e-12)
    assert spend.in_flight == 0


async def test_what_failed_attempts_cost() -> None:
    """Errors are not billed; a reply that broke off may have been, so its worst case stays."""
    spend = SpendLimit(1.0)
    prices = GenaiPrices({"*": {"input": 0, "output": 10}})
    rules = [{"calls": [1], "status": 500}, {"calls": [2], "disconnect": "mid-body"}]
    async with setting(*rules, prices=prices, ledger=Ledger(spend=spend)) as s:
        await s.ask(max_tokens=1000)
        billed = s.calls[2].usage.output_tokens * 10 / 1e6  # type: ignore[union-attr, operator]
        assert spend.spent == pytest.approx(0.01 + billed)
        assert [call.cost for call in s.calls] == [None, None, pytest.approx(billed)]


async def test_a_cap_without_a_price_cannot_be_kept() -> None:
    for prices in (None, GenaiPrices()):
        async with setting(prices=prices, ledger=Ledger(spend=SpendLimit(1))) as s:
            with pytest.raises(errors.BadInput, match="no price is known for model 'who-knows'"):
                await s.ask("who-knows")
            assert s.server.seen == 0


async def test_cancelled_on_the_way() -> None:
    limiter, spend = FixedLimiter(1), SpendLimit(1.0)
    prices = GenaiPrices({"*": {"input": 0, "output": 10}})
    async with setting({"delay": "forever"}, limiter=limiter, prices=prices, ledger=Ledger(spend=spend)) as s:
        task = asyncio.create_task(s.ask(max_tokens=1000))
        while not s.server.in_flight:  # noqa: ASYNC110 (the server's count has no event)
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [call.error for call in s.calls] == ["Cancelled"]
        assert (limiter.in_use, spend.in_flight, spend.spent) == (0, 0, 0.01)
