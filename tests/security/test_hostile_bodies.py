"""Bodies made to cost memory or time are relayed as they came, and read within bounds or not at all. Ordinary ones are
read as ever.
"""

import asyncio
import contextlib
import gzip
import json
import logging
import math
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadReply
from context_bench.core.keys import TooLarge, check_size, load_body, load_json
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.records import Forwarded, Usage, not_compared
from context_bench.core.tokens import MOST_COUNTED, counter_for
from context_bench.engine.observe import observed
from context_bench.llm.background import Apart, Lost, WorkProcess
from context_bench.llm.chat import ChatClient
from context_bench.llm.coding import Decoder, Undecodable, decode
from context_bench.llm.prices import GenaiPrices
from context_bench.tap import Tap, Watch
from context_bench.tap.exchange import SOCKET, UNMATCHED, Exchange
from context_bench.tap.forwarded import POLICIES, RecordWriter
from context_bench.tap.record_writer import Work, packed_record, words
from context_bench.tap.tap_relay import Talk
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.traffic.sections import watch_board as watching
from context_bench.traffic.watch.measure import TurnMeasure
from context_bench.traffic.watch.paired_taps import PairedEvent, SeenExchange
from context_bench.wire.apis import StreamReader, parse_request, stream_reader
from context_bench.wire.request import count_request
from context_bench.wire.turns import Turn

from .working import Panic, Unmovable, Worker

MB = 10**6
HEAD = b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"'
REPLY = b'{"model":"gpt-4o-mini","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"%b"}}]%b}'  # noqa: E501


def asked(text: bytes) -> bytes:
    return HEAD + text + b'"}]}'


def wide_body() -> bytes:
    return b'{"model":"gpt-4o-mini","messages":[],"more":[' + b"[]," * (5 * MB) + b"[]]}"


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


# What is refused before it is built


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=30,
)


@given(JSON)
def test_what_is_small_is_read_as_ever(value):
    for data in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert load_body(data) == load_json(data) == json.loads(data)


def history(size: int, text: str) -> bytes:
    """A long session of some `size` bytes, as agents send them."""
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
    }
    each = json.dumps({"role": "user", "content": text}, ensure_ascii=False) + "," + json.dumps(call) + ","
    return (
        '{"model":"m","messages":[' + each * (size // len(each.encode())) + '{"role":"user","content":""}]}'
    ).encode()


@pytest.mark.parametrize(
    "text",
    [
        "a word and another " * 20,
        "wörter und zeichen 漢字 \U0001f600 " * 12,
        json.dumps(
            [{"id": number, "name": f"n{number}", "of": [1, 2, 3]} for number in range(40)]
        ),  # the result of a tool
        "1,2,3,4,5,6,7,8,9\n" * 40,
        'if (a["b"] == {}) { return [\\"c\\", \'d\']; }\n' * 20,
    ],
)
def test_ordinary_bodies_of_16_megabytes_are_read(text):
    body = history(16 * MB, text)
    assert len(body) > 15 * MB
    check_size(body)


@pytest.mark.parametrize(
    "body",
    [
        wide_body,
        lambda: b"[" + b"{}," * (4 * MB) + b"1]",
        lambda: b"[" + b'"",' * (4 * MB) + b"1]",
        lambda: b"[" + b"1," * (6 * MB) + b"1]",
        lambda: b'{"a":"' + b"\\\\" * MB + b'","b":[' + b'"\\"",' * (3 * MB) + b"1]}",
        lambda: b"[" * (10 * MB) + b"]" * (10 * MB),
        lambda: b'"' + b"a" * 21 * 2**20 + b'"',
    ],
    ids=["lists", "objects", "texts", "numbers", "escapes", "deep", "long"],
)
def test_what_would_need_too_much_memory_is_refused_before_it_is_built(body):
    made = body()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(TooLarge, match="too large"):
        load_body(made)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 1.0


def test_numbers_without_end_are_infinite_before_their_digits_are_reckoned():
    assert load_body(b"[%d]" % 2**80) == [2**80]
    began = time.process_time()
    assert load_body(b"[-" + b"9" * 16 * MB + b"]") == [-math.inf]
    assert time.process_time() - began < 2.0


def test_the_ratio_counts_and_so_do_members_and_codings():
    assert len(decode(packed(b"a" * 8 * MB), "gzip")) == 8 * MB
    with pytest.raises(TooLarge, match="200 times"):
        decode(packed(b"a" * 12 * MB), "gzip")
    mixed = os.urandom(MB) + b"a" * 15 * MB
    assert decode(packed(mixed), "gzip") == mixed
    with pytest.raises(TooLarge, match="20 MiB"):
        decode(packed(os.urandom(MB) + b"a" * 25 * MB), "gzip")
    with pytest.raises(TooLarge, match="members"):
        decode(gzip.compress(b"") * 1_001, "gzip")
    with pytest.raises(TooLarge):
        decode(packed(packed(b"a" * 500 * MB)), "gzip, gzip")
    with pytest.raises(Undecodable, match="at most 4"):
        Decoder("gzip, " * 5)
    assert not (half := Decoder("deflate")).whole
    assert half.feed(zlib.compress(b"x" * 99)) == b"x" * 99
    assert half.whole


# Tokens


def test_a_text_over_a_megabyte_is_estimated_and_says_so():
    counter = counter_for("gpt-4o")
    text = "The harbour office opens at nine, and nobody knows why. " * (MOST_COUNTED // 56)
    exact = counter.count(text[:MOST_COUNTED])
    assert not counter.estimates([text[:MOST_COUNTED], "short"])
    longer = text * 3
    assert counter.estimates(["short", longer])
    assert abs(counter.count(longer) / exact / 3 - 1) < 0.02
    counted = count_request(
        parse_request("openai-chat", {"model": "gpt-4o", "messages": [{"role": "user", "content": longer}]}), counter
    )
    assert (counted.exact, counter.exact) == (False, True)


@pytest.mark.parametrize("sign", ["a", " ", "=", "漢", "aB"])
def test_a_word_without_end_is_estimated(sign):
    counter, text = counter_for("gpt-4o"), sign * (900_000 // len(sign))
    begun = time.process_time()
    assert counter.estimates([text])
    assert counter.count(text) > 0
    assert time.process_time() - begun < 0.5
    assert not counter.estimates([text[:60_000], "word " * 200_000])


def test_the_mark_of_an_estimate_is_in_the_record_the_line_and_the_report():
    async def ask() -> tuple[Forwarded, list]:
        turns: list = []

        async def keep(found: list) -> None:
            turns.extend(found)

        async with Watch("echo", keep=keep) as watch:
            await post(watch.url, asked(b"some words " * (MOST_COUNTED // 10)))
            await watch.drain()
        return turns[0].calls[0], turns

    record, turns = asyncio.run(ask())
    assert (record.exact, record.facts.get("unread")) == (False, None)
    assert "(est.)" in watching.line(turns[0])
    assert "tokens estimated" in watching.summary(turns, {})
    assert observed([], [record])["exact"] is False


# Streams


def test_a_stream_costs_what_it_says_and_not_its_square():
    for wire, first, more, last in (
        (
            "openai-chat",
            b'{"choices":[{"delta":{"content":"%b"}}]}',
            b'{"choices":[{"delta":{"content":"b"}}]}',
            b"[DONE]",
        ),
        (
            "anthropic",
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}',
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}',
            b'{"type":"message_stop"}',
        ),
        (
            "anthropic",
            b'{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"%b"}}',
            b'{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"b"}}',
            b'{"type":"message_stop"}',
        ),
        (
            "openai-responses",
            b'{"type":"response.output_text.delta","delta":"%b"}',
            b'{"type":"response.output_text.delta","delta":"b"}',
            b'{"type":"response.completed","response":{"status":"completed"}}',
        ),
    ):
        reader, begun = stream_reader(wire), time.process_time()
        reader.feed(b"data: " + first % (b"a" * 3 * MB) + b"\n\n")
        reader.feed((b"data: " + more + b"\n\n") * 30_000)
        reader.feed(b"data: " + last + b"\n\n")
        reader.close()
        assert reader.complete
        assert [reader.reply.text or "", *reader.reply.signatures][-1] == "a" * 3 * MB + "b" * 30_000
        assert time.process_time() - begun < 2.0


def test_an_event_without_end_and_events_without_end():
    reader = stream_reader("openai-chat")
    with pytest.raises(TooLarge, match="an event of more than 16 MiB"):
        feed(reader, [b"data: " + b"x" * MB] * 40)
    with pytest.raises(TooLarge, match="400,000 events"):
        feed(stream_reader("openai-chat"), [b"data: {}\n\n" * 10_000] * 50)


MANY_PARTS = {
    "choices": ("openai-chat", lambda at: {"choices": [{"index": at, "delta": {"content": "a"}}]}),
    "calls": ("openai-chat", lambda at: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": at}]}}]}),
    "calls of choices": (
        "openai-chat",
        lambda at: {"choices": [{"index": at % 9, "delta": {"tool_calls": [{"index": at}]}}]},
    ),
    "blocks": (
        "anthropic",
        lambda at: {"type": "content_block_start", "index": at, "content_block": {"type": "text", "text": ""}},
    ),
    "signatures": (
        "anthropic",
        lambda at: {
            "type": "content_block_delta",
            "index": at,
            "delta": {"type": "signature_delta", "signature": "a"},
        },
    ),
    "items": ("openai-responses", lambda at: {"type": "response.output_item.added", "output_index": at, "item": {}}),
}


@pytest.mark.parametrize("parts", MANY_PARTS)
def test_parts_without_end_are_too_many_and_those_of_a_model_are_not(parts):
    wire, event = MANY_PARTS[parts]
    for places, too_many in ((range(9_990), False), ([*range(990)] * 20, False), (range(10_020), True)):
        reader = stream_reader(wire)
        events = [b"data: " + json.dumps(event(at)).encode() + b"\n\n" for at in places]
        with (
            pytest.raises(TooLarge, match="10,000 choices, calls and blocks") if too_many else contextlib.nullcontext()
        ):
            feed(reader, events)


def feed(reader: StreamReader, pieces: list[bytes]) -> None:
    for piece in pieces:
        reader.feed(piece)


# The client


async def hostile(reply: bytes, port: int = 0) -> asyncio.Server:
    """An upstream that answers everything with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            left = int(head.lower().partition(b"content-length:")[2].split()[0])
            while left and (piece := await reader.read(left)):
                left -= len(piece)
            writer.write(reply)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


def told(body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


GZIP = "Content-Encoding: gzip"
#: name → how it is made: when a test asks, since they are large
REPLIES = {
    "wide": lambda: told(packed(REPLY % (b"Four.", b',"more":[' + b"[]," * (20 * MB) + b"[]]")), GZIP),
    "long": lambda: told(packed(REPLY % (b"a" * 200 * MB, b"")), GZIP),
    "plain": lambda: told(REPLY % (b"word " * 6 * MB, b"")),
    "answer": lambda: told(REPLY % (b"word " * MB, b"")),
    "event": lambda: told(b"data: " + b"x" * 30 * MB, kind="text/event-stream"),
    "choices": lambda: told(
        b'data: {"choices":[%b]}\n\n' % b",".join(b'{"index":%d}' % at for at in range(100_000)),
        kind="text/event-stream",
    ),
    "usage": lambda: told(
        packed(REPLY % (b"Four.", b',"usage":{"prompt_tokens_details":[' + b"{}," * (9 * MB) + b"{}]}")), GZIP
    ),
}


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_of_more_than_a_model_says_is_one_failure_at_once(name):
    server = await hostile(REPLIES[name]())
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    async with ChatClient(url, max_retries=3, timeout=20) as client:
        with pytest.raises(BadReply, match=r"too large|characters|an event of more"):
            await client.chat("gpt-4o-mini", [{"role": "user", "content": "How much?"}])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun < 3.0
    server.close()


# The tap and the watch


async def post(url: str, body: bytes, **headers: str) -> bytes:
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", data=body, headers=named) as reply,
    ):
        return await reply.read()


async def test_what_is_too_large_is_relayed_as_it_came_and_said():
    async with Tap("echo", record="full") as tap:
        await post(tap.url, asked(b"hello"))
        await post(tap.url, wide_body())
        await post(tap.url, packed(asked(b"a" * 30 * MB)), Content_Encoding="gzip")
        await post(tap.url, asked(b"word " * 5 * MB))
        await post(tap.url, asked(b"hello"))
        await tap.settle()
        records = tap.records
    assert [record.facts.get("unread", "")[:9] for record in records] == ["", *["too large"] * 3, ""]
    assert records[0].tokens == records[-1].tokens
    assert [record.bytes_in for record in records][1] == len(wide_body())
    assert observed([], records)["oversized"] == sum(record.oversized for record in records) >= 3
    assert not_compared(1) == "1 body not compared: too large"
    assert not_compared(1_200) == "1,200 bodies not compared: too large"


def test_a_message_of_a_websocket_that_is_too_large_is_recorded_as_unread():
    over: list[Exchange] = []
    begun = Exchange(1, "x", SOCKET, "/v1/responses", [], UNMATCHED, 1.0, 1.0)

    def begin(body: bytes) -> Exchange:
        begun.body.add(1.0, body)
        return begun

    talk = Talk(begin, over.append, SYSTEM_CLOCK)
    wide = "[" + "[]," * (5 * MB) + "[]]"
    talk.asked('{"type":"response.create","input":' + wide + "}")
    talk.answered('{"type":"response.completed","response":{"id":"r","output":' + wide + "}}")
    assert over == [begun]
    record = RecordWriter("meta").write(begun)
    assert (record.facts["unread"], record.oversized) == ("too large: too many lists, objects and values", 2)


def session(messages: int) -> bytes:
    texts = [f"part {number}: " + "lorem ipsum dolor " * 60 + "\U0001f600" for number in range(messages)]
    return json.dumps(
        {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text} for text in texts]}
    ).encode()


async def test_what_is_read_in_another_process_is_read_alike(monkeypatch):
    found = []
    for large in (2**19, 2**40):
        monkeypatch.setattr("context_bench.tap.record_writer._LARGE", large)
        turns: list = []

        async def keep(kept: list, turns: list = turns) -> None:
            turns.extend(kept)

        async with Watch("echo", prices=GenaiPrices(), keep=keep, record="full") as watch:
            for messages in (3, 900, 901, 901, 5):
                await post(watch.url, session(messages))
            await watch.drain()
            assert watch._apart.away(large=False) == (large < 2**30)
        figures = [asdict(turn) for turn in turns]
        for figure in figures:
            for name in ("at", "seconds", "ttft", "session"):
                figure.pop(name)
            for call in figure["calls"]:
                for name in ("id", "started", "seconds", "ttft"):
                    call.pop(name)
        found.append(figures)
    assert found[0] == found[1]
    assert [figure["turn"] for figure in found[0]][1:3] == [1, 1] or len(found[0]) == 5


def test_work_is_handed_over_once_and_a_process_that_ends_is_started_again():
    apart = Apart(Worker())
    assert not apart.away(large=False)
    assert apart.do("add", 1) == [1]
    assert not apart._process.runs
    assert apart.away(large=True)
    assert apart.away(large=False)
    assert apart.do("add", 2) == [1, 2]
    with pytest.raises(Lost, match="ended"):
        apart.do("add", 13)
    assert apart.do("add", 3) == [1, 3]  # what was handed over is there again
    for number, kind in FAILURES.items():
        with pytest.raises(Lost, match=f"^{kind}$") as failed:
            apart.do("add", number)
        assert failed.value.too_large == (kind == "MemoryError")
    assert apart.do("add", 4) == [1, 3, 4]
    with pytest.raises(Lost, match="TypeError"):
        apart.do("add", threading.Lock())  # work that cannot travel
    assert apart.do("add", 5)[-1] == 5
    apart.close()


#: What the worker raises for a number, by its type.
FAILURES = {14: "MemoryError", 15: "ValueError", 16: "Odd", 17: "Panic", 18: "SystemExit"}


def test_a_worker_that_cannot_be_handed_over_stays_and_a_warning_says_so(caplog):
    bound = Apart(Unmovable())
    with caplog.at_level(logging.WARNING, logger="context_bench.tap"):
        assert not bound.away(large=True)
    assert "cannot be pickled (TypeError)" in caplog.text
    assert bound.do("add", 1) == 1
    with pytest.raises(Lost, match="AttributeError"):
        bound.do("nothing", 1)


def test_a_process_that_cannot_be_started_is_no_more_than_lost_work(monkeypatch):
    apart = Apart(Worker())
    assert apart.away(large=True)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(Lost, match="could not be started: FileNotFoundError"):
        apart.do("add", 1)
    monkeypatch.setattr(sys, "executable", "/bin/false")  # ends before it has taken its worker
    with pytest.raises(Lost, match="ended"):
        apart.do("add", 1)
    assert not apart._process.runs  # no zombie: it was waited for
    monkeypatch.undo()
    assert apart.do("add", 1) == [1]
    apart.close()


def test_the_process_gives_back_what_a_large_body_needed():
    apart, page = Apart(Worker()), os.sysconf("SC_PAGE_SIZE")
    assert apart.away(large=True)
    pid = apart.do("hole", b"a")
    held = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page]
    apart.do("hole", bytes(40 * MB))
    assert apart.do("add", 1) == [1]  # it is through with the large one
    held.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page)
    apart.close()
    assert held[1] - held[0] < 10 * MB


def test_a_process_that_does_not_take_its_work_is_given_up_in_time():
    process = WorkProcess()
    apart = Apart(Worker(), process)
    assert apart.away(large=True)
    os.kill(apart.do("hole", b"a"), signal.SIGSTOP)
    process._seconds = 1  # not before: to start takes long on a busy machine
    with pytest.raises(Lost, match="took too long") as lost:
        apart.do("hole", bytes(MB))  # more than a pipe holds
    assert lost.value.too_large
    process._seconds = 60
    assert apart.do("add", 1) == [1]
    process.close()


def test_what_the_process_says_does_not_reach_the_user(capfd):
    apart = Apart(Worker())
    assert apart.away(large=True)
    assert apart.do("add", 19) == [19]
    apart.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_reads_and_what_measures_can_be_handed_over_after_use(policy):
    exchange = Exchange(1, "x", "POST", "/v1/chat/completions", [], UNMATCHED, 1.0, 1.0, status=200)
    exchange.body.add(1.0, asked(b"Hi."))
    exchange.reply.add(1.0, REPLY % (b"Four.", b""))
    work, prices = Work(RecordWriter(policy), observed=True), GenaiPrices()
    assert [done.failure for done in work.all([(exchange, True)])] == [None]
    assert prices.cost(Usage(1, 1), "gpt-4o-mini")
    for worker in (work, TurnMeasure(policy, prices, "gpt-4o-mini")):
        assert pickle.loads(pickle.dumps(worker, pickle.HIGHEST_PROTOCOL))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("context_bench.tap.forwarded.RecordWriter.write", Panic),
        ("context_bench.tap.record_writer.packed_record", RecursionError),
        ("context_bench.tap.record_writer._large", RuntimeError),
        ("context_bench.tap.record_writer.Apart.do", ValueError),
    ],
)
async def test_whatever_fails_for_one_exchange_is_recorded_and_counted_and_others_are_read(
    monkeypatch, caplog, where, error
):
    def failing(*given: object, **__: object) -> bytes:
        if isinstance(given[0], Forwarded) and "unread" in given[0].facts:
            return packed_record(given[0])  # the short record in its place can be packed
        raise error("secret text")

    async with asyncio.timeout(20), Tap("echo", record="full") as tap:
        with monkeypatch.context() as broken:
            broken.setattr(where, failing)
            await post(tap.url, asked(b"Hi."))
            await tap.settle()
        await post(tap.url, asked(b"Hi."))
        await tap.settle()
        records, status = tap.records, tap.status()
    assert [record.facts.get("unread") for record in records] == [f"not readable ({error.__name__})", None]
    assert (records[0].bytes_in, records[0].status) == (len(asked(b"Hi.")), 200)
    assert (status["requests"], status["read_errors"], status["sink_errors"]) == (2, 1, 0)
    assert "secret" not in caplog.text


async def test_what_cannot_be_measured_is_kept_as_the_taps_wrote_it(monkeypatch):
    turns: list[Turn] = []

    async def keep(kept: list[Turn]) -> None:
        turns.extend(kept)

    def failing(*_: object) -> None:
        raise Panic

    async with asyncio.timeout(20), Watch("echo", keep=keep) as watch:
        with monkeypatch.context() as broken:
            broken.setattr(TurnMeasure, "_one", failing)
            await post(watch.url, asked(b"Hi."))
            await watch.drain()
        await post(watch.url, asked(b"Hi."))
        await watch.drain()
        assert (watch.lost, watch.fault) == (0, None)
    assert [turn.violations for turn in turns] == [{"not_measured": 1}, {}]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        "context_bench.traffic.watch.watcher.Apart.do",
        "context_bench.traffic.watch.watcher.Apart.away",
        "context_bench.traffic.watch.watcher.PairedEvent.travelling",
    ],
)
async def test_a_batch_that_fails_as_a_whole_is_unread_and_the_watch_goes_on(monkeypatch, caplog, where, large):
    turns: list[Turn] = []

    async def keep(kept: list[Turn]) -> None:
        turns.extend(kept)

    def failing(*_: object, **__: object) -> None:
        raise ValueError("secret text")

    first = asked(b"Hi." if not large else b"word and more " * 50_000)
    async with asyncio.timeout(30), Watch("echo", keep=keep) as watch:
        with monkeypatch.context() as broken:
            broken.setattr(where, failing)
            await post(watch.url, first)
            await watch.drain()
        await post(watch.url, asked(b"Hi."))
        await watch.drain()
        assert (watch.lost, watch.fault, watch.failed.is_set()) == (0, None, False)
    fails = large or not where.endswith("travelling")  # what is small does not travel
    assert [turn.violations for turn in turns] == [{"not_measured": 1} if fails else {}, {}]
    assert [turn.number for turn in turns] == [1, 2]
    assert "secret" not in caplog.text


def test_a_request_that_cannot_be_read_again_is_not_measured_and_nothing_else(monkeypatch):
    exchange = Exchange(1, "x", "POST", "/v1/chat/completions", [], UNMATCHED, 1.0, 1.0, status=200)
    exchange.record = RecordWriter("meta").write(exchange)
    seen = SeenExchange(exchange, None, b"{")
    monkeypatch.setattr(SeenExchange, "read", lambda *_: {}["gone"])
    [(turn, mirror)] = TurnMeasure("meta", None, None).apart([(1, PairedEvent("main", "turn", seen, 1, [seen]))])
    assert (turn.violations, mirror) == ({"not_measured": 1}, None)


def wide(shape: str) -> bytes:
    """16 MB with one wide character, which makes Python hold four bytes for each."""
    text = b"word and more " * (16 * MB // 14) + "\U0001f600".encode()
    if shape == "content":
        return asked(text)
    if shape == "image":
        part = b'{"type":"image_url","image_url":{"url":"%b"}}' % text
        return b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":[%b]}]}' % part
    if shape == "tools":
        return asked(b"Hi.")[:-1] + b',"tools":[{"type":"function","function":{"name":"a","description":"%b"}}]}' % text
    call = b'{"id":"a","type":"function","function":{"name":"a","arguments":"%b"}}' % text
    return b'{"model":"gpt-4o-mini","messages":[{"role":"assistant","tool_calls":[%b]}]}' % call


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux says of processes")
@pytest.mark.parametrize(("shape", "most"), [("content", 190), ("image", 190), ("tools", 250), ("calls", 250)])
def test_a_text_with_one_wide_character_is_copied_by_nobody_who_reads_or_measures_it(shape, most):
    exchange = Exchange(1, "x", "POST", "/v1/chat/completions", [], UNMATCHED, 1.0, 1.0, status=200, apart=True)
    exchange.body.add(1.0, wide(shape))
    exchange.reply.add(1.0, REPLY % (b"Four.", b""))
    process = WorkProcess()
    reading = Apart(Work(RecordWriter("meta"), observed=True), process)
    measuring = Apart(TurnMeasure("meta", None, None), process)
    try:
        assert reading.away(large=True)
        assert measuring.away(large=True)
        [done] = reading.do("all", [(exchange, False)])
        assert done.failure is None
        assert "unread" not in done.record.facts
        assert done.record.tokens > 3_000_000 or shape == "image"
        exchange.record, exchange.digest = done.record, done.seen["digest"]
        seen = [SeenExchange(exchange, None, exchange.body.data) for _ in range(2)]
        exchange.body.drop()
        seen[1].share(seen[0])
        [(turn, _)] = measuring.do("apart", [(1, PairedEvent("main", "turn", seen[0], 1, seen[1:]).travelling())])
        assert (turn.violations, turn.unchanged) == ({}, True)
        assert process._process is not None
        told = Path(f"/proc/{process._process.pid}/status").read_text()
        held = int(told.partition("VmHWM:")[2].split()[0]) * 1024
        assert held < most * MB  # some 55 MB are libraries and a vocabulary; tools and calls are written as one text
    finally:
        process.close()


def test_a_body_that_went_on_as_it_came_is_held_and_read_once(monkeypatch):
    read = []
    monkeypatch.setattr(
        "context_bench.traffic.watch.paired_taps._request", lambda *given: read.append(given) or parse_request("", {})
    )
    for path, digest, once in [
        ("chat/completions", b"a", True),
        ("chat/completions", b"b", False),
        ("other", b"a", False),
    ]:
        front, call = (
            Exchange(number, "x", "POST", f"/v1/{where}", [], UNMATCHED, 1.0, 1.0, apart=True, digest=named)
            for number, where, named in ((1, "chat/completions", b"a"), (2, path, digest))
        )
        one, other = SeenExchange(front, None, bytes([7] * 20)), SeenExchange(call, None, bytes([7] * 20))
        other.share(one)
        assert (other.raw is one.raw) == (digest == b"a")
        read.clear()
        event = pickle.loads(pickle.dumps(PairedEvent("main", "turn", one, 1, [other]).travelling()))
        for seen in event.seen:
            seen.read(event.front if seen is not event.front else None)
        assert len(read) == (1 if once else 2)
        assert all(seen.request is not None for seen in event.seen)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads what Linux says of processes")
async def test_all_parts_of_a_watch_share_one_process():
    before = children(os.getpid())
    async with asyncio.timeout(60), Tap("echo") as provider:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            back = found.getsockname()[1]
        async with (
            MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
            Watch(provider.url, via=proxy.url, back=back) as watch,
        ):
            await post(watch.url, asked(b"word and more " * 50_000))
            await watch.drain()
            assert len(set(children(os.getpid())) - set(before)) - provider._reader._apart._process.runs == 1


def test_words_of_a_long_call_are_those_of_its_end():
    call = {"id": "i" * MB, "function": {"name": "a", "arguments": "early " * MB + "late"}}
    request = parse_request("openai-chat", {"messages": [{"role": "assistant", "tool_calls": [call]}]})
    assert words(request) == {"early", "late", "i" * 500}


# The commands, as processes


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread may end between being listed and being read
            found += map(int, thread.read_text().split())
    return found


def held(pid: int) -> tuple[int, float]:
    """The most bytes that a process and its children have held, and their processor seconds."""
    most, seconds, tick = 0, 0.0, os.sysconf("SC_CLK_TCK")
    for each in [pid, *children(pid)]:
        with contextlib.suppress(OSError):
            told = dict(
                line.split(":", 1) for line in Path(f"/proc/{each}/status").read_text().splitlines() if ":" in line
            )
            most += int(told["VmHWM"].split()[0]) * 1024
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / tick
    return most, seconds


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads what Linux says of processes")
def test_the_tap_stays_small_and_answers_others(tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    records = tmp_path / "t.jsonl"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        behind = found.getsockname()[1]
    to = f"http://127.0.0.1:{behind}"
    command = [
        sys.executable,
        "-m",
        "context_bench",
        "tap",
        "--port",
        str(port),
        "--upstream",
        to,
        "--out",
        str(records),
    ]
    with (tmp_path / "words").open("wb") as words:
        running = subprocess.Popen(command, stdout=words, stderr=words)
    try:

        async def attack() -> tuple[tuple[int, float], float]:
            server = await hostile(told(REPLY % (b"Four.", b""), "Connection: close"), behind)
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                with contextlib.suppress(aiohttp.ClientError):
                    await post(url, asked(b"Hi."))
                    break
                await asyncio.sleep(0.05)
            base = held(running.pid)
            waits: list[float] = []
            bombs = [
                post(url, packed(asked(b"a" * 20 * MB)), Content_Encoding="gzip"),
                post(url, packed(wide_body()), Content_Encoding="gzip"),
                post(url, b"[" * 9 * MB),
                post(url, b'{"model":"gpt-4o-mini","messages":[%b]}' % b",".join([asked(b"a" * 900_000)[35:-2]] * 8)),
            ]
            for bomb in bombs:
                sending = asyncio.create_task(bomb)
                await asyncio.sleep(0.05)
                begun = time.monotonic()
                await post(url, asked(b"Hi."))
                waits.append(time.monotonic() - begun)
                await sending
            for _ in range(600):
                if records.read_bytes().count(b"\n") >= 9:
                    break
                await asyncio.sleep(0.05)
            most, seconds = held(running.pid)
            assert len(children(running.pid)) == 1  # what was read apart was read by it
            server.close()
            return (most - base[0], seconds - base[1]), max(waits)

        (memory, seconds), longest = asyncio.run(attack())
        assert records.read_bytes().count(b'"unread":"too large') == 3
        assert memory < 256 * MB
        assert seconds < 8  # four hostile bodies, and a process that is started
        assert longest < 5
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(20)
    assert b"not compared: too large" in (tmp_path / "words").read_bytes()
