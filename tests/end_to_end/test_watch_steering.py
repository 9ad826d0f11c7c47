"""`watch --holdout` and `watch --needles` on real sockets: who goes past the proxy, and what it and a provider see."""

import asyncio
import contextlib
import gzip
import json
import re
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from context_bench.__main__ import main
from context_bench.core.records import Usage
from context_bench.engine import open_store, open_watch, watch_of, watched
from context_bench.engine.encoding import unpack
from context_bench.llm.hop import HopRequest
from context_bench.llm.prices import GenaiPrices
from context_bench.tap import Tap, Watch
from context_bench.testing.hostile import Rewriting
from context_bench.traffic.sections.watch_board import summary
from context_bench.traffic.watch.session_context import Conversations, FrontSteering
from context_bench.wire.apis import Reply, parse_request, render_reply, render_stream, wire_of
from context_bench.wire.needles import Needles
from context_bench.wire.turns import Turn, by_session, total

from .speaking import Speaking, calling

KEY = b"a key of sixteen"
PRICES = GenaiPrices()
PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
NEEDLE = re.compile(rb"cbn-[0-9a-f]{24}-nbc")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Provider:
    """Answers on all three APIs, streamed or not, and keeps what it was sent."""

    text: str = "fine"
    bodies: list[bytes] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> "Provider":
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None, auto_decompress=False))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.content.read()  # without the limit of a request
        self.bodies.append(raw)
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        wire = wire_of(request.method, request.path)
        body = orjson.loads(gzip.decompress(raw) if request.headers.get("content-encoding") == "gzip" else raw)
        asked = parse_request(wire, body)
        reply = Reply(self.text, usage=Usage(len(raw) // 2, 2), finish_reason="stop", model=asked.model)
        if not asked.stream:
            return web.json_response({**render_reply(wire, reply, asked), "id": f"resp_{len(self.bodies)}"})
        stream = b"".join(render_stream(wire, reply, asked))
        return web.Response(body=stream, headers={"content-type": "text/event-stream"})


@dataclass
class Between:
    """A watch around a proxy, with what each of them was sent and the turns that were kept."""

    watch: Watch
    provider: Provider
    at_proxy: list[bytes]
    kept: list[Turn]

    async def send(self, wire: str, body: bytes | dict | AsyncIterator[bytes], **headers: str) -> bytes:
        raw = orjson.dumps(body) if isinstance(body, dict) else body
        given = {"content-type": "application/json", "authorization": "Bearer sk-own-key-0123456789", **headers}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.watch.url + PATHS[wire], data=raw, headers=given) as reply,
        ):
            return await reply.read()


@contextlib.asynccontextmanager
async def between(
    function: Callable[[HopRequest], HopRequest] = lambda request: request,
    *,
    share: float | None = None,
    needles: bool = False,
    provider: Provider | None = None,
    **options: object,
) -> AsyncIterator[Between]:
    """A watch around a proxy whose one habit is `function`."""
    back, kept, at_proxy = free_port(), list[Turn](), list[bytes]()

    def noting(request: HopRequest) -> HopRequest:
        at_proxy.append(request.raw)
        return function(request)

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    steering = FrontSteering(Conversations(KEY, share) if share else None, Needles(KEY) if needles else None)
    async with (
        provider or Provider() as server,
        Rewriting(noting, f"http://127.0.0.1:{back}") as proxy,
        Watch(server.url, via=proxy.url, back=back, prices=PRICES, keep=keep, steering=steering, **options) as watch,
    ):
        yield Between(watch, server, at_proxy, kept)
        await watch.drain()


def listing(about: str, lines: int = 60) -> str:
    return "".join(f"line {number} of {about}: nothing to see\n" for number in range(lines))


def talk(wire: str, about: str, turns: int = 3, **more: object) -> list[dict]:
    """The requests of a conversation in which each turn reads something."""
    steps: list[dict] = [{"role": "user", "content": f"what of {about}?"}]
    requests = []
    for number in range(turns):
        call, text = f"call {about} {number}", listing(f"{about} {number}")
        if wire == "anthropic":
            use = {"type": "tool_use", "id": call, "name": "read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": text}]}
            steps += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        elif wire == "openai-chat":
            use = {"id": call, "type": "function", "function": {"name": "read", "arguments": "{}"}}
            steps += [
                {"role": "assistant", "content": None, "tool_calls": [use]},
                {"role": "tool", "tool_call_id": call, "content": text},
            ]
        else:
            steps += [
                {"type": "function_call", "call_id": call, "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": call, "output": text},
            ]
        place = "input" if wire == "openai-responses" else "messages"
        requests.append({"model": "gpt-4o", "max_tokens": 9, **more, place: list(steps)})
    return requests


def halved(request: HopRequest) -> HopRequest:
    """Every long text of the body cut to its first half."""

    def cut(value: object) -> object:
        if isinstance(value, dict):
            return {name: cut(each) for name, each in value.items()}
        if isinstance(value, list):
            return [cut(each) for each in value]
        return value[: len(value) // 2] if isinstance(value, str) and len(value) > 400 else value

    return replace(request, raw=orjson.dumps(cut(orjson.loads(request.raw))))


# Holdout


@pytest.mark.parametrize("wire", PATHS)
async def test_whole_conversations_go_past_the_proxy_with_their_sub_agents_and_side_calls(wire):
    async with between(halved, share=0.5) as run:

        async def client(number: int) -> None:
            named = {"session-id": f"session {number}"} if number % 2 else {}
            for body in talk(wire, f"topic {number}"):
                await run.send(wire, body, **named)
            if named:
                agent = {"x-claude-code-agent-id": "agent", **named}
                await run.send(wire, talk(wire, f"other words {number}", 1)[0], **agent)
                await run.send(wire, talk(wire, f"a title {number}", 1)[0], **named)

        await asyncio.gather(*(client(number) for number in range(12)))
    arms = by_session(run.kept)
    requests = {(arm, figures.turns) for (arm, _), figures in arms.items()}
    assert requests == {("main", 3), ("main", 5), ("holdout", 3), ("holdout", 5)}
    assert len({turn.unit for turn in run.kept}) == len(arms) == 12
    through, past = total(run.kept), total(run.kept, "holdout")
    assert through.turns + past.turns == 48
    assert len(run.at_proxy) == through.turns == through.calls
    assert past.unchanged == past.compared == past.turns == past.calls
    assert past.sent == past.forwarded
    assert through.forwarded < 0.7 * through.sent
    assert not past.violations
    proxied = set(run.at_proxy)
    assert not proxied & set(run.provider.bodies)  # what came past it is as it was sent, what came through is not
    assert past.cost + through.cost == pytest.approx(
        sum(PRICES.cost(Usage(len(body) // 2, 2), "gpt-4o") for body in run.provider.bodies)
    )
    assert not any("x-context-bench" in head for head in run.provider.heads)


async def test_what_goes_past_the_proxy_is_what_the_client_sent_and_none_of_it_is_mirrored():
    mirrored = []
    async with between(halved, share=0.9999, mirror=mirrored.append, needles=True) as run:
        body = json.dumps(talk("openai-chat", "tides", stream=True)[-1], indent=3).encode()
        packed = gzip.compress(body)
        assert b"[DONE]" in await run.send("openai-chat", body)
        await run.send("openai-chat", packed, **{"content-encoding": "gzip"})
    assert run.provider.bodies == [body, packed]
    assert run.provider.heads[0]["content-length"] == str(len(body))
    assert run.at_proxy == mirrored == []
    assert [(turn.arm, turn.unchanged, turn.needles_planted) for turn in run.kept] == [("holdout", True, 0)] * 2


async def test_conversations_over_websockets_are_drawn_by_their_headers():
    back, kept = free_port(), list[Turn]()

    async def keep(turns: list[Turn]) -> None:
        kept.extend(turns)

    drawn = Conversations(KEY, 0.5)
    names: dict[bool, str] = {}
    for number in range(64):
        asked = f"session {number}"
        names.setdefault(drawn.held_out(drawn._hash(f"named session-id={asked}")), asked)
    async with (
        Speaking() as provider,
        Tap(f"http://127.0.0.1:{back}") as proxy,
        Watch(
            provider.url,
            via=proxy.url,
            back=back,
            prices=PRICES,
            keep=keep,
            steering=FrontSteering(drawn, Needles(KEY)),
        ) as watch,
    ):
        for asked in names.values():
            async with calling(watch.url, headers={"session-id": asked}) as caller:
                for text in ("look around", "a.py", "print(1)"):
                    await caller.turn(text)
        await watch.drain()
        through_proxy = Counter(record.method for record in proxy.records)
    figures = {arm: total(kept, arm) for arm in ("main", "holdout")}
    assert [(each.turns, each.calls, each.unchanged) for each in figures.values()] == [(3, 4, 3)] * 2
    assert through_proxy["WEBSOCKET"] == 3
    assert figures["main"].needles_without == {"WebSocket": 3}
    assert not figures["holdout"].needles_without
    assert len({turn.unit for turn in kept if turn.kind == "turn"}) == 2


#: Twelve conversations of two requests, each with a named session.
NAMED = """
for name, body in json.load(open("talks.json")):
    for each in body:
        ask("/v1/messages", each, {"x-claude-code-session-id": f"session {name}"})
"""
#: Twelve that go on from the replies that were stored for them, if there are any; nothing names them.
STORED = """
before = json.load(open("replies.json")) if os.path.exists("replies.json") else [None] * 12
steps = [{"input": f"words of {number}"} if reply is None else {"input": "go on", "previous_response_id": reply}
         for number, reply in enumerate(before)]
json.dump([ask("/v1/responses", {"model": "gpt-4o", **each}, {})["id"] for each in steps], open("replies.json", "w"))
"""


async def watching(folder: Path, provider: Provider, *options: str, does: str = NAMED) -> dict:
    """A dozen conversations through `context-bench watch` with a store in `folder`: its report."""
    front, back = free_port(), free_port()
    client = folder / "client.py"
    (folder / "talks.json").write_text(json.dumps([(n, talk("anthropic", f"x{n}", 2)) for n in range(12)]))
    client.write_text(
        "import json, os, urllib.request\n"
        "def ask(path, body, headers):\n"
        "    url = os.environ['ANTHROPIC_BASE_URL'] + path\n"
        "    asked = urllib.request.Request(url, json.dumps(body).encode(), {'content-type': 'a/json', **headers})\n"
        "    return json.load(urllib.request.urlopen(asked))\n" + does
    )
    async with Rewriting(halved, f"http://127.0.0.1:{back}") as proxy:
        line = ["watch", "--store", str(folder / "store.db"), "--front", str(front), "--back", str(back), "--quiet"]
        line += ["--via", proxy.url, "--upstream", provider.url, "--output", "json", *options]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "context_bench", *line, "--", sys.executable, str(client)),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def written(folder: Path) -> list[bytes]:
    """All that a store in `folder` has on disk, in the clear and unpacked."""
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as raw:
        cells = [cell for (cell,) in raw.execute("SELECT record FROM watched")]
    return [*(path.read_bytes() for path in folder.glob("store.db*")), *map(unpack, cells)]


async def test_a_conversation_falls_the_same_way_after_a_restart_and_only_hashes_are_kept(tmp_path):
    async with Provider() as provider:
        reports = [
            await watching(tmp_path, provider, "--holdout", "0.4", "--needles", "--name", name) for name in ("a", "b")
        ]
    with open_store(tmp_path / "store.db") as store:
        turns = {name: list(watched(store, name)) for name in ("a", "b")}
        keys = {watch_of(store, name).settings["key"] for name in ("a", "b")}
    held = [{turn.unit for turn in turns[name] if turn.arm == "holdout"} for name in ("a", "b")]
    assert held[0] == held[1]
    assert 0 < len(held[0]) < 12
    assert len(keys) == 1
    for report in reports:
        assert report["watch"]["holdout"] == 0.4
        assert report["holdout"]["held_out"] == len(held[0])
        assert report["holdout"]["through"] == 12 - len(held[0])
        assert report["arms"]["main"]["total"]["needles"]["planted"] == 3 * (12 - len(held[0]))
        assert "needles" not in report["arms"]["holdout"]["total"]
        assert not keys & set(re.findall("[0-9a-f]{32}", json.dumps(report)))
    needles = Needles(bytes.fromhex(keys.pop()))
    names = [needles.name(f"call x{n} {k}", listing(f"x{n} {k}")) for n in range(12) for k in range(2)]
    assert not any(NEEDLE.search(body) for body in provider.bodies)
    texts = written(tmp_path)
    assert any(b"needles_planted" in text for text in texts)
    assert not any(word.encode() in text for word in (*names, "nothing to see", "cbn-") for text in texts)


async def test_what_goes_on_from_a_stored_reply_falls_the_same_way_after_a_restart(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        open_watch(store, {"key": "0" * 32}, name="before").end()  # all conversations of a store are drawn with its key
    async with Provider() as provider:
        for name in ("a", "b", "c"):
            await watching(tmp_path, provider, "--holdout", "0.4", "--name", name, does=STORED)
    with open_store(tmp_path / "store.db") as store:
        arms = [[(turn.unit, turn.arm) for turn in watched(store, name)] for name in ("a", "b", "c")]
    assert arms[0] == arms[1] == arms[2]
    assert len(set(arms[0])) == 12
    assert {arm for _, arm in arms[0]} == {"main", "holdout"}
    assert not any(re.search(rb"resp_[0-9]", text) for text in written(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--holdout", "0.1"], "--holdout compare with a proxy, and there is none; name it with --proxy URL"),
        (["--needles"], "--needles compare with a proxy"),
        (
            ["--holdout", "1.5", "--via", "http://127.0.0.1:1"],
            "--holdout 1.5: expected a number above 0 and below 1, a share of 1",
        ),
        (["--holdout", "0", "--via", "http://127.0.0.1:1"], "--holdout 0.0: expected a number above 0 and below 1"),
        (["--holdout", "nan", "--via", "http://127.0.0.1:1"], "--holdout nan: expected a number"),
    ],
)
def test_what_cannot_be_held_out_is_said_at_once(options, said, capsys):
    assert main(["watch", "--upstream", "echo", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


# Needles


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", PATHS)
async def test_a_proxy_sees_needles_in_the_same_places_each_turn_and_a_provider_none(wire, stream):
    requests = [json.dumps(body).encode() for body in talk(wire, "tides", 4, stream=stream)]
    async with between(needles=True) as run:
        replies = [await run.send(wire, body) for body in requests]
    assert run.provider.bodies == requests
    found = [NEEDLE.findall(body) for body in run.at_proxy]
    assert [len(each) for each in found] == [1, 2, 3, 4]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(found))
    assert not any(NEEDLE.search(reply) for reply in replies)
    figures = total(run.kept)
    assert (figures.needles_planted, figures.needles_lost, figures.needles_damaged) == (10, 0, 0)
    assert figures.needle_ages == {str(age): {"planted": 4 - age, "kept": 4 - age} for age in range(4)}
    assert figures.unchanged == 4
    assert figures.sent == figures.forwarded
    assert not figures.violations
    assert [head["content-length"] for head in run.provider.heads] == [str(len(body)) for body in requests]
    assert "needles: 10 of 10 arrived; by age: 0 turns 100 %, 1 turn 100 %" in " ".join(summary(run.kept, {}).split())


@pytest.mark.parametrize("wire", PATHS)
async def test_what_a_proxy_drops_is_lost_and_the_piece_that_a_cut_left_is_taken_out(wire):
    async with between(halved, needles=True) as run:
        for number in range(8):
            await run.send(wire, talk(wire, f"topic {number}", 6)[-1])
    got = [NEEDLE.findall(body) for body in run.at_proxy]
    figures = total(run.kept)
    assert figures.needles_planted == sum(map(len, got)) == 48
    assert 10 < figures.needles_lost < 38  # the half that the proxy drops
    kept = sum(counts["kept"] for counts in figures.needle_ages.values())
    assert kept == figures.needles_planted - figures.needles_lost
    assert not any(b"cbn-" in body or b"-nbc" in body for body in run.provider.bodies)


async def test_a_needle_that_a_cut_went_through_is_counted():
    def within(request: HopRequest) -> HopRequest:
        needle = NEEDLE.search(request.raw)
        return replace(request, raw=request.raw.replace(needle[0], needle[0][:17] + b" [shortened]"))

    async with between(within, needles=True) as run:
        await run.send("openai-chat", talk("openai-chat", "tides", 1)[0])
    assert b" [shortened]" in run.provider.bodies[0]
    assert b"cbn-" not in run.provider.bodies[0]
    figures = total(run.kept)
    assert (figures.needles_planted, figures.needles_lost, figures.needles_damaged) == (1, 1, 1)
    assert "1 piece of cut needles taken out behind" in summary(run.kept, {})


async def test_a_body_that_the_proxy_packs_is_unpacked_where_needles_are_in_it():
    def packed(request: HopRequest) -> HopRequest:
        headers = [*request.headers.items(), ("content-encoding", "gzip")]
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        return replace(request, raw=gzip.compress(request.raw), headers=type(request.headers)(kept))

    bodies = [orjson.dumps(talk("openai-chat", "tides", 1)[0]), orjson.dumps({"model": "m", "messages": []})]
    async with between(packed, needles=True) as run:
        for body in bodies:
            await run.send("openai-chat", body)
    assert run.provider.bodies[0] == bodies[0]
    assert "content-encoding" not in run.provider.heads[0]
    assert gzip.decompress(run.provider.bodies[1]) == bodies[1]
    assert run.provider.heads[1]["content-encoding"] == "gzip"
    assert [turn.needles_lost for turn in run.kept] == [0, 0]


async def test_requests_that_cannot_be_exact_go_on_without_and_are_counted():
    body = orjson.dumps(talk("openai-chat", "tides", 1)[0])
    own = orjson.dumps(talk("openai-chat", "cbn-0123", 1)[0])
    async with between(needles=True) as run:
        await run.send("openai-chat", gzip.compress(body), **{"content-encoding": "gzip"})
        await run.send("openai-chat", body, **{"content-digest": "sha-256=:abc=:"})
        await run.send("openai-chat", own)
        await run.send("openai-chat", orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}))
    assert run.at_proxy == run.provider.bodies
    assert run.provider.bodies[1:3] == [body, own]
    figures = total(run.kept)
    assert figures.needles_planted == 0
    assert figures.needles_without == {
        "packed": 1,
        "signed": 1,
        "the request holds such a marker itself": 1,
        "no tool result of plain text long enough": 1,
    }
    assert "without needles: 1 request (no tool result of plain text long enough)" in " ".join(
        summary(run.kept, {}).split()
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_marker_in_a_reply_is_counted_and_said(stream):
    leaking = Provider(text=f"I saw cbn-{'0' * 24}-nbc twice: cbn-{'a' * 24}-nbc")
    async with between(needles=True, provider=leaking) as run:
        await run.send("anthropic", talk("anthropic", "tides", 1, stream=stream)[0])
    assert total(run.kept).needles_shown == 2
    assert "Mind: 2 markers of needles stood in replies to the client" in summary(run.kept, {})


async def test_large_bodies_and_those_without_a_length_are_steered_and_come_out_as_they_were():
    large = talk("openai-chat", "tides", 1)[0]
    large["messages"][2]["content"] = listing("tides", 80_000)
    body = orjson.dumps(large)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    async with between(needles=True, share=1e-9) as run:
        await run.send("openai-chat", body)
        await run.send("openai-chat", pieces())
    assert len(body) > 2**21
    assert run.provider.bodies == [body, body]
    assert ["content-length" in head for head in run.provider.heads] == [True, True]
    assert [len(NEEDLE.findall(each)) for each in run.at_proxy] == [1, 1]
    assert total(run.kept).needles_lost == 0
    assert total(run.kept).unchanged == 2


async def test_requests_of_the_proxys_own_reach_the_provider_without_needles_too():
    def twice(request: HopRequest) -> list[HopRequest]:
        read = orjson.loads(request.raw)
        asked = {"model": "m", "messages": [{"role": "user", "content": json.dumps(read["messages"])}]}
        return [replace(request, raw=orjson.dumps(asked)), request]

    sent = talk("openai-chat", "tides", 2)
    async with between(twice, needles=True) as run:
        for body in sent:
            await run.send("openai-chat", body)
    assert not any(b"cbn-" in body for body in run.provider.bodies)
    asked = [orjson.loads(body)["messages"] for body in run.provider.bodies[::2]]
    assert [json.loads(messages[0]["content"]) for messages in asked] == [body["messages"] for body in sent]
    assert total(run.kept).needles_lost == 0


async def test_without_the_options_nothing_is_steered():
    async with between(share=None, needles=False) as run:
        await run.send("openai-chat", body := orjson.dumps(talk("openai-chat", "tides", 1)[0]))
    assert run.at_proxy == run.provider.bodies == [body]
    assert [(turn.arm, turn.unit, turn.needles_planted, turn.needles_without) for turn in run.kept] == [
        ("main", "", 0, "")
    ]
