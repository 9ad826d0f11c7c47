"""While a large body is read, measured, kept, compressed or relayed, other requests are answered: shown by the order of
what happens.
"""

import asyncio
import contextlib
import gzip
import re
import sys
import threading

import aiohttp
import pytest
from aiohttp import web

from context_bench.core.errors import BadReply
from context_bench.llm import chat, coding
from context_bench.llm.background import LARGE, Apart, Lost, WorkProcess
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.systems import Served
from context_bench.systems.serve import UNREAD
from context_bench.tap import Watch
from context_bench.tap.exchange import Exchange
from context_bench.testing.hostile import MisbehavingProxy

from ..end_to_end.killing import free_port

LONG = "word and more " * (2 * LARGE // 14)
ANSWER = b'{"id":"x","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Four."}}]}'


def asked(text):
    return b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"%b"}]}' % text.encode()


async def post(url, body):
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/chat/completions", data=body) as reply:
        return await reply.read()


class Provider:
    """Answers at once, but the requests that say `later`: these once `go_on` is set."""

    def __init__(self):
        self.later, self.go_on = asyncio.Semaphore(0), asyncio.Event()

    async def _answer(self, request):
        if b"later" in await request.read():
            self.later.release()
            await self.go_on.wait()
        return web.Response(body=ANSWER, content_type="application/json")

    async def __aenter__(self):
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error):
        self.go_on.set()
        await self._runner.cleanup()


class Gate:
    """Holds up the first piece of work that `stops` says, in whatever thread does it."""

    def __init__(self, stops):
        self._stops, self._loop = stops, asyncio.get_running_loop()
        self.reached, self._opened = asyncio.Event(), threading.Event()

    def pass_through(self, *work):
        if not self.reached.is_set() and self._stops(*work):
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self._opened.wait(20)

    def open(self):
        self._opened.set()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.open()


def gated(monkeypatch, stops):
    """What other processes are asked to do goes through a gate."""
    gate, do = Gate(stops), Apart.do

    def do_gated(self, method, work):
        gate.pass_through(method, work)
        return do(self, method, work)

    monkeypatch.setattr(Apart, "do", do_gated)
    return gate


STOPS = {
    "reading": lambda method, work: method == "all" and isinstance(work[0][0], Exchange) and work[0][0].held > LARGE,
    "measuring": lambda method, work: method == "apart",
}


@contextlib.asynccontextmanager
async def watching(provider, between, **options):
    """A watch, with or without a proxy behind it."""
    if not between:
        async with Watch(provider.url, **options) as watch:
            yield watch
        return
    back = free_port()
    async with (
        MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
        Watch(provider.url, via=proxy.url, back=back, **options) as watch,
    ):
        yield watch


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("stage", [*STOPS, "keeping"])
async def test_a_watch_answers_others_while_it_works_at_a_large_turn_and_holds_them_again_after_it(
    monkeypatch, stage, between
):
    monkeypatch.setattr("context_bench.tap.tap_server.HELD_SECONDS", 60.0)
    gate, order = gated(monkeypatch, STOPS.get(stage, lambda *work: False)), []
    caught_up = asyncio.Event()

    async def keep(turns):
        if stage == "keeping" and any(turn.sent and turn.sent > 100_000 for turn in turns):
            gate.reached.set()
            await asyncio.to_thread(gate._opened.wait, 20)
        order.extend(["kept"] * len(turns))
        if order.count("kept") == 4:
            caught_up.set()

    async def ask(url, text, name):
        assert await post(url, asked(text)) == ANSWER
        order.append(name)

    async with asyncio.timeout(20), Provider() as provider, watching(provider, between, keep=keep) as watch, gate:
        late = asyncio.create_task(ask(watch.url, "later", "later"))
        await provider.later.acquire()
        large = asyncio.create_task(ask(watch.url, LONG, "large"))
        await gate.reached.wait()
        await asyncio.gather(*(ask(watch.url, "Hi.", "small") for _ in range(3)))
        assert order.count("small") == 3
        assert "kept" not in order
        assert watch.under_way == 5
        gate.open()
        await large
        await caught_up.wait()
        provider.go_on.set()
        await late
        await watch.drain()
        assert watch.under_way == 0
        assert order.count("kept") == 5
        if not between:  # with one, a call that is read, or under way, may be anybody's
            assert order.index("kept") < order.index("large")
            assert order[-2:] == ["kept", "later"]
    assert (watch.lost, watch.fault) == (0, None)


async def test_who_waits_already_is_answered_when_something_large_begins(monkeypatch):
    monkeypatch.setattr("context_bench.tap.tap_server.HELD_SECONDS", 60.0)
    gate = gated(monkeypatch, STOPS["reading"])
    first, go_on = asyncio.Event(), asyncio.Event()

    async def keep(turns):
        first.set()
        await go_on.wait()

    async with asyncio.timeout(20), Provider() as provider, watching(provider, False, keep=keep) as watch, gate:
        small = asyncio.create_task(post(watch.url, asked("Hi.")))
        await first.wait()
        assert not small.done()
        large = asyncio.create_task(post(watch.url, asked(LONG)))
        await gate.reached.wait()
        assert await small == ANSWER
        assert (watch.under_way, large.done()) == (2, False)
        gate.open()
        go_on.set()
        assert await large == ANSWER


@pytest.mark.parametrize(("more", "held"), [(2, False), (3, True)])
async def test_who_comes_while_a_watch_catches_up_waits_only_once_that_does_not_become_less(monkeypatch, more, held):
    monkeypatch.setattr("context_bench.tap.tap_server.HELD_SECONDS", 60.0)
    gate, batches, permits, began = gated(monkeypatch, STOPS["reading"]), [], asyncio.Semaphore(0), asyncio.Event()

    async def keep(turns):
        if not any(turn.sent and turn.sent > 100_000 for turn in turns):
            batches.append(len(turns))
            began.set()
            async with asyncio.timeout(10):
                await permits.acquire()

    async def asks(watch, number):
        await asyncio.gather(*(post(watch.url, asked("Hi.")) for _ in range(number)))

    async with asyncio.timeout(20), Provider() as provider, watching(provider, False, keep=keep) as watch, gate:
        large = asyncio.create_task(post(watch.url, asked(LONG)))
        await gate.reached.wait()
        await asks(watch, 3)
        gate.open()
        assert await large == ANSWER
        await began.wait()
        await asks(watch, more)
        late = asyncio.create_task(post(watch.url, asked("later")))
        await provider.later.acquire()
        began.clear()
        permits.release()
        await began.wait()
        provider.go_on.set()
        done, _ = await asyncio.wait({late}, timeout=0.5 if held else None)
        assert (batches, bool(done)) == ([3, more], not held)
        for _ in range(2):
            permits.release()
        assert await late == ANSWER
        await watch.drain()
        after = asyncio.create_task(post(watch.url, asked("Hi.")))
        done, _ = await asyncio.wait({after}, timeout=0.2)
        assert not done
        permits.release()
        assert await after == ANSWER


async def test_a_call_that_outlives_its_answer_keeps_no_watch_from_holding_clients_again(monkeypatch):
    gate, behind = gated(monkeypatch, STOPS["reading"]), []
    looked = Watch._catch_up

    def noted(watch, before):
        looked(watch, before)
        behind.append(dict(watch._slow))

    monkeypatch.setattr(Watch, "_catch_up", noted)
    monkeypatch.setattr("context_bench.traffic.watch.paired_taps.Pairing.waits_for_calls", lambda *_: True)
    async with asyncio.timeout(20), Provider() as provider, watching(provider, False, keep=kept_at_once) as watch, gate:
        large = asyncio.create_task(post(watch.url, asked(LONG)))
        await gate.reached.wait()
        assert await post(watch.url, asked("Hi.")) == ANSWER
        gate.open()
        assert await large == ANSWER
    assert behind
    assert not any(behind)


async def kept_at_once(turns):
    """A store that is never busy."""


# serve


class Halver:
    name = "halver"

    def process(self, example):
        return {**example, "context": example["context"][: len(example["context"]) // 2]}


class Oracle:
    name = "oracle"

    async def process(self, example):
        return {**example, "response": f"{len(example['context'])} characters"}


SYSTEMS = {"head_tail:keep=0.5": "shortened", "bm25:budget=300": "shortened", Halver: "replaced", Oracle: "parsed"}


@pytest.mark.parametrize("system", SYSTEMS)
async def test_serve_answers_others_while_a_large_body_is_worked_at(monkeypatch, system):
    gate = gated(monkeypatch, lambda method, work: method == SYSTEMS[system])
    spec = system if isinstance(system, str) else system()
    async with asyncio.timeout(60), Provider() as provider, Served(spec, provider.url) as served, gate:
        large = asyncio.create_task(post(served.url, asked(LONG + "\\n\\nHow much?")))
        await gate.reached.wait()
        assert [await post(served.url, asked(f"Hi {number}.")) for number in range(3)] == [ANSWER] * 3
        assert not large.done()
        gate.open()
        assert b"choices" in await large


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_what_is_served_apart_is_what_is_served_here(monkeypatch, system, coding):
    got = []
    body = asked(LONG + "\\n\\nHow much?")
    packed, headers = (gzip.compress(body), {"Content-Encoding": coding}) if coding else (body, {})
    for large in (LARGE, 2**40):
        monkeypatch.setattr("context_bench.systems.serve.LARGE", large)
        spec = system if isinstance(system, str) else system()
        async with (
            ModelServer(Echo()) as model,
            Served(spec, model.url) as served,
            aiohttp.ClientSession(headers=headers) as session,
        ):
            async with session.post(f"{served.url}/v1/chat/completions", data=packed) as reply:
                text = (await reply.json())["choices"][0]["message"]["content"]
            got.append((reply.status, text, [request.raw for request in model.requests]))
            assert served._process.runs == (large == LARGE)
    assert got[0] == got[1]


async def test_a_body_that_cannot_be_worked_at_is_one_failed_request(monkeypatch):
    do = Apart.do

    def lost_once(self, method, work):
        monkeypatch.setattr(Apart, "do", do)
        raise Lost("KeyError")

    monkeypatch.setattr(Apart, "do", lost_once)
    async with Provider() as provider, Served("head_tail", provider.url) as served:
        assert b"head_tail: KeyError" in await post(served.url, asked(LONG))
        assert await post(served.url, asked(LONG)) == ANSWER
        assert not served.unread


LIMITS = {
    "time": ("_SECONDS", 0.01, "the process that read it took too long"),
    "memory": ("_MEMORY", 2**20, "the process that read it ended|MemoryError"),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_body_that_takes_more_than_it_may_goes_on_as_it_came_and_the_reply_says_so(monkeypatch, limit):
    name, value, reason = LIMITS[limit]
    monkeypatch.setattr(f"context_bench.systems.serve.{name}", value)
    body = asked(LONG + "\\n\\nHow much?")
    async with ModelServer(Echo()) as model, Served("bm25", model.url) as served, aiohttp.ClientSession() as session:
        async with session.post(f"{served.url}/v1/chat/completions", data=body) as reply:
            assert reply.status == 200
            assert re.fullmatch(f"too large: ({reason})", said := reply.headers[UNREAD])
        assert model.requests[-1].raw == body
        assert served.unread == {said: 1}
        async with session.post(f"{served.url}/v1/chat/completions", data=asked("Hi.")) as reply:
            assert UNREAD not in reply.headers


class Reader:
    """Notes how often others were let in while it worked; leaves half of what it gets."""

    name, longest_context = "reader", 2 * LARGE + 100

    def __init__(self):
        self.turns = []

    def compress(self, text: str) -> str:
        self.turns.append(sys.getswitchinterval())
        return text[: len(text) // 2]


async def test_a_context_longer_than_a_compressor_reads_goes_on_as_it_came_and_the_reply_says_so():
    reader, fits = Reader(), asked("a" * Reader.longest_context + "\\n\\nHow much?")
    longer = fits.replace(b"aaa", b"aaaa", 1)
    async with ModelServer(Echo()) as model, Served(reader, model.url) as served, aiohttp.ClientSession() as session:
        for body, given, unread in ((fits, 1, 0), (longer, 1, 1)):
            async with session.post(f"{served.url}/v1/chat/completions", data=body) as reply:
                assert (UNREAD in reply.headers) == bool(unread)
            assert (model.requests[-1].raw == body) == bool(unread)
            assert (len(reader.turns), served.unread.total()) == (given, unread)
    assert list(served.unread) == [f"too large: a context of more than {Reader.longest_context:,} characters"]


async def test_others_are_let_in_more_often_while_a_compressor_of_somebody_else_works_at_a_large_body():
    usual, reader = sys.getswitchinterval(), Reader()
    async with Provider() as provider, Served(reader, provider.url) as served:
        for text in ("Hi.", LONG[: Reader.longest_context]):
            await post(served.url, asked(text + "\\n\\nHow much?"))
    assert reader.turns[0] == usual
    assert reader.turns[1] <= usual / 5
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_that_is_too_large_to_be_read_goes_on_as_it_came_with_its_length(monkeypatch, packed):
    gate = gated(monkeypatch, lambda *work: True)
    body = asked("a" * 21 * 2**20)
    sent, headers = (gzip.compress(body, 0), {"Content-Encoding": "gzip"}) if packed else (body, {})
    async with (
        ModelServer(Echo()) as model,
        Served("head_tail", model.url) as served,
        gate,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        async with session.post(f"{served.url}/v1/chat/completions", data=sent) as reply:
            await reply.read()
        assert model.requests[-1].raw == body
        assert model.requests[-1].headers["content-length"] == str(len(sent))
        assert served.unread == {"too large: more than 20 MiB": 1}
        assert not gate.reached.is_set()


async def test_serve_ends_though_a_large_body_is_being_worked_at(monkeypatch):
    begun, loop, started = asyncio.Event(), asyncio.get_running_loop(), WorkProcess._asked

    def asked_of_it(self, *work):
        loop.call_soon_threadsafe(begun.set)
        return started(self, *work)

    monkeypatch.setattr(WorkProcess, "_asked", asked_of_it)
    async with asyncio.timeout(60), Provider() as provider:
        async with Served("bm25:budget=300", provider.url) as served:
            asking = asyncio.create_task(post(served.url, asked(LONG)))
            await begun.wait()
        with contextlib.suppress(aiohttp.ClientError):
            await asking
        assert not served._process.runs


class Replies:
    """Answers each request with the body, content type and coding for its path."""

    def __init__(self, **bodies):
        self._bodies = bodies

    async def _answer(self, request):
        body, kind, coding = self._bodies[request.path.split("/")[1]]
        return web.Response(
            body=body, headers={"Content-Type": kind} | ({"Content-Encoding": coding} if coding else {})
        )

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error):
        await self._runner.cleanup()


async def ask(url):
    async with chat.ChatClient(url) as client:
        return await client.chat("gpt-4o-mini", [{"role": "user", "content": "Two and two?"}])


async def test_a_run_gets_other_replies_while_a_large_one_is_read(monkeypatch):
    small = ANSWER, "application/json", ""
    large = ANSWER.replace(b"Four.", b"four " * 500_000), "application/json", ""
    async with Replies(small=small, large=large) as replies, Gate(lambda body, most: len(body) > 2**20) as gate:
        read = chat.load_body
        monkeypatch.setattr(chat, "load_body", lambda *body: (gate.pass_through(*body), read(*body))[1])
        slow = asyncio.create_task(ask(f"{replies.url}/large"))
        await gate.reached.wait()
        assert (await ask(f"{replies.url}/small")).text == "Four."
        assert not slow.done()
        gate.open()
        assert len((await slow).text) == 2_500_000


@pytest.fixture
async def turns():
    """A count of the event loop's turns, which a task that never waits makes go up."""
    count = [0]

    async def tick():
        while True:
            count[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(tick())
    yield count
    task.cancel()


async def test_a_body_that_unpacks_to_many_pieces_lets_others_go_between_them(monkeypatch, turns):
    body = gzip.compress(ANSWER.replace(b"Four.", b"a" * 6_000_000))
    inflate, seen = coding._inflate, []
    monkeypatch.setattr(coding, "_inflate", lambda *data: (seen.append(turns[0]), inflate(*data))[1])
    async with Replies(packed=(body, "application/json", "gzip")) as replies:
        with pytest.raises(BadReply):
            await ask(f"{replies.url}/packed")
    assert len(set(seen)) >= 5  # of 1 MiB each; the end may be found out in the turn of the last one


async def test_a_stream_that_comes_at_once_is_read_in_pieces_with_others_between_them(monkeypatch, turns):
    event = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    feed, seen = chat.StreamReader.feed, []

    def noted(reader, data):
        seen.append((turns[0], len(data)))
        feed(reader, data)

    monkeypatch.setattr(chat.StreamReader, "feed", noted)
    stream = event * 8_000 + b"data: [DONE]\n\n"
    async with Replies(stream=(stream, "text/event-stream", "")) as replies:
        assert (await ask(f"{replies.url}/stream")).text == "a" * 8_000
    assert max(size for _, size in seen) <= 2**14
    assert len({turn for turn, _ in seen}) == len(seen)
