"""The control API, taps in threads and in other processes, and the file of records."""

import asyncio
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import aiohttp
import pytest

import context_bench.tap
from context_bench.core.errors import BadInput, PreflightFailed, StoreUnusable, Unreachable
from context_bench.core.ledger import Mark
from context_bench.core.numbers import forwarded_of
from context_bench.core.records import Forwarded
from context_bench.llm.background import run_sync
from context_bench.llm.responders import Echo
from context_bench.llm.servers import ModelServer
from context_bench.tap import RemoteTap, Tap, serve_tap
from context_bench.tap.control_api import record_file
from context_bench.tap.exchange import MarkWindow
from context_bench.tap.record_writer import RecordBuffer

CHAT = "/v1/chat/completions"
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
CONTROL = {"x-context-bench-control": "1"}


def post(url: str, key: str = "", body: dict = BODY) -> bytes:
    request = urllib.request.Request(
        url + CHAT, json.dumps(body).encode(), {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read()


async def apost(url: str, key: str = "") -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + CHAT, json=BODY, headers={"Authorization": f"Bearer {key}"}) as reply,
    ):
        assert reply.status == 200


def test_in_a_thread_for_plain_code():
    heard: list[Forwarded] = []
    with Tap("echo", sink=heard.append) as tap:
        for _ in range(3):
            post(tap.url)
        assert len(tap.records) == 3
        assert [r.tokens for r in tap.records] == [1, 1, 1]
        url = tap.url
        assert "context-bench-tap" in {thread.name for thread in threading.enumerate()}
    assert len(tap.records) == 3  # still there afterwards
    assert heard == tap.records
    assert "context-bench-tap" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OSError):
        post(url)


def test_a_tap_in_a_thread_serves_recorders_on_other_loops():
    async def work(tap: Tap, number: int) -> list[Forwarded]:
        mark = await tap.begin(f"c{number}")
        await apost(tap.url, mark.token)
        return await tap.end(mark)

    with Tap("echo") as tap:
        found = [*[run_sync(work(tap, n)) for n in range(3)], asyncio.run(work(tap, 3))]
        assert [[record.matched_by for record in records] for records in found] == [["key"]] * 4
        assert run_sync(tap.unmatched()) == []
        assert run_sync(tap.late()) == []


def test_a_fault_at_the_start_is_raised_and_leaves_no_thread():
    with pytest.raises(BadInput, match="no upstream"), Tap("nonsense"):
        pass
    assert "context-bench-tap" not in {thread.name for thread in threading.enumerate()}


async def test_a_stopped_tap_says_so():
    tap = Tap("echo")
    async with tap:
        mark = await tap.begin("c")
    with pytest.raises(BadInput, match="not running"):
        await tap.end(mark)


async def test_a_failing_listener_does_not_stop_the_relay(caplog):
    def fail(_: Forwarded) -> None:
        raise OSError(28, "No space left on device")

    async with Tap("echo", sink=fail) as tap:
        await apost(tap.url)
        await apost(tap.url)
        await tap.settle(1)
        assert tap.status()["sink_errors"] == 2
        assert len(tap.records) == 2
    assert [r.getMessage() for r in caplog.records if r.name == "context_bench.tap"] == [
        "the tap's records cannot be handed on: OSError: [Errno 28] No space left on device"
    ]


async def test_a_remote_tap_tells_what_it_is():
    async with Tap("echo", marker="header", record="hashes") as tap:
        async with RemoteTap(f"{tap.url}/v1") as remote:
            assert remote.marker == "header"
            assert (remote.about["upstream"], remote.about["record"]) == ("echo", "hashes")
            assert (await remote.begin("c")).mode == "header"
            assert (await remote.status())["windows"] == 1
        async with RemoteTap(tap.url.removeprefix("http://"), marker="key") as remote:
            assert remote.marker == "key"
            assert (await remote.begin("c")).mode == "key"


async def test_runs_that_share_a_tap_do_not_mix():
    async with Tap("echo") as tap, RemoteTap(tap.url) as early:
        await apost(tap.url, "somebody")
        async with RemoteTap(tap.url) as one, RemoteTap(tap.url) as other:
            mine, theirs = await one.begin("same name"), await other.begin("same name")
            assert mine.token != theirs.token
            await apost(tap.url, mine.token)
            assert len(await other.end(theirs)) == 0
            assert len(await one.end(mine)) == 1
            await apost(tap.url, mine.token)
            assert await other.late() == []
            assert [r.mark for r in await one.late()] == [mine.token]
            assert await one.unmatched() == []  # what came before it began is not its business
            await apost(tap.url, "somebody")
            assert [len(await r.unmatched()) for r in (one, other, one, early, tap)] == [1, 1, 0, 2, 2]


async def test_a_tap_that_was_restarted_is_noticed():
    async with Tap("echo") as first:
        mark = await first.begin("c")
    async with Tap("echo") as tap, RemoteTap(tap.url) as remote:
        with pytest.raises(BadInput, match="restarted"):
            await remote.end(mark)


async def test_no_tap_there(unused_tcp_port):
    gone = RemoteTap(f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(PreflightFailed, match="context-bench tap --port"):
        async with gone:
            pass
    with pytest.raises(Unreachable, match="context-bench tap --port"):
        await gone.begin("c")
    await gone.aclose()
    async with ModelServer(Echo()) as server:
        with pytest.raises(BadInput):
            async with RemoteTap(server.url):
                pass
    for url in ("https://h", "ftp://h", "http://"):
        with pytest.raises(BadInput, match="not the URL of a tap"):
            RemoteTap(url)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**CONTROL, "Origin": "http://localhost"},
        {**CONTROL, "Host": "evil.example"},
        {"x-context-bench-control": "yes"},
    ],
    ids=["a page's form", "a local page", "a rebound name", "a wrong word"],
)
async def test_the_control_api_is_not_for_web_pages(headers):
    async with ModelServer(Echo()) as server, Tap(server.url) as tap, aiohttp.ClientSession() as session:
        for method, what in (("GET", "status"), ("POST", "begin"), ("POST", "unmatched"), ("OPTIONS", "begin")):
            async with session.request(
                method, f"{tap.url}/_context_bench/{what}", json={"conversation": "c"}, headers=headers
            ) as reply:
                assert reply.status == 403
                assert "access-control-allow-origin" not in reply.headers
        assert tap.status()["windows"] == 0
        assert server.seen == 0  # and never goes to the upstream


@pytest.mark.parametrize(
    ("method", "what", "data", "status"),
    [
        ("POST", "begin", b"{", 400),
        ("POST", "begin", b"[]", 400),
        ("POST", "begin", b"{}", 400),
        ("POST", "begin", b'{"conversation":"c","marker":"none"}', 409),
        ("POST", "end", b'{"mode":"key","token":"cb-1"}', 409),
        ("GET", "begin", b"", 404),
        ("POST", "nothing", b"{}", 404),
        ("POST", "begin", b" " * 3_000_000, 413),
    ],
)
async def test_odd_control_requests(method, what, data, status):
    async with Tap("echo") as tap, aiohttp.ClientSession(headers=CONTROL) as session:
        async with session.request(method, f"{tap.url}/_context_bench/{what}", data=data) as reply:
            assert reply.status == status
        async with RemoteTap(tap.url) as remote:
            assert (await remote.begin("\ud800 odd \0 name")).token.startswith("cb-")


async def test_the_file_of_records(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"torn')
    path.chmod(0o644)
    heard: list[Forwarded] = []
    ready = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_tap(
            0,
            "echo",
            record="full",
            records_file=path,
            on_record=heard.append,
            on_ready=lambda tap: ready.set_result(tap.url),
        )
    )
    url = await asyncio.wait_for(ready, 10)
    await apost(url, "secret-key-of-a-user")
    await apost(url)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    torn, *lines = path.read_bytes().splitlines()
    assert torn == b'{"torn'
    assert [forwarded_of(json.loads(line)) for line in lines] == heard
    assert len(heard) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"secret-key-of-a-user" not in path.read_bytes()


async def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(StoreUnusable, match="cannot be written"):
        await serve_tap(0, "echo", records_file=tmp_path / "missing" / "x.jsonl")


def test_a_short_write_costs_one_line(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    record = Forwarded("1", None, "none", "other", "GET", "/", 0.0)
    real, once = os.write, [True]

    def short(file: int, data: bytes) -> int:
        return real(file, data[:10]) if once and once.pop() else real(file, data)

    monkeypatch.setattr(os, "write", short)
    with record_file(path) as write:
        for _ in range(3):
            write(record)
    lines = path.read_bytes().splitlines()
    assert len(lines) == 3
    assert [forwarded_of(json.loads(line)) for line in lines[1:]] == [record, record]


def test_the_shelf_is_bounded_and_says_what_it_forgot():
    shelf = RecordBuffer(most=10, most_bytes=50_000)
    for number in range(30):
        shelf.put(Forwarded(str(number), None, "none", "other", "GET", "/", 0.0), None, number)
    assert [r.id for r in shelf.all] == [str(n) for n in range(20, 30)]
    assert shelf.forgotten == 20
    assert [r.id for r in shelf.take_unmatched("")] == [str(n) for n in range(20, 30)]
    assert shelf.take_unmatched("") == []
    shelf.put(
        Forwarded(
            "big",
            None,
            "none",
            "other",
            "GET",
            "/",
            0.0,
            bytes_in=60_000,
            request=random.Random(0).randbytes(60_000).hex(),
        ),
        None,
        30,
    )
    assert [r.id for r in shelf.all] == ["big"]
    assert [len(r.request) for r in shelf.take_unmatched("")] == [120_000]


def test_a_tap_that_serves_others_keeps_only_what_they_may_ask_for():
    shelf, window = RecordBuffer(most=3, remember=False), MarkWindow(1, Mark("key", "t"), "o")
    for number in range(10):
        shelf.put(Forwarded(str(number), "t", "key", "other", "GET", "/", 0.0), window, number)
    assert (shelf.all, shelf.forgotten, shelf.take_unmatched(""), shelf.take_late("o")) == ([], 0, [], [])
    window.collected = True
    for number in range(10, 15):
        shelf.put(Forwarded(str(number), "t", "key", "other", "GET", "/", 0.0), window, number)
    shelf.put_late(Forwarded("x", "t", "key", "other", "GET", "/", 0.0), "another")
    assert [r.id for r in shelf.take_late("o")] == ["13", "14"]
    assert [r.id for r in shelf.take_late("another")] == ["x"]
    assert (shelf.take_late("o"), shelf.forgotten) == ([], 3)


def test_a_tap_in_another_process(tmp_path):
    """As `context-bench tap` runs it: another process, the control API between, stopped by a signal."""
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from context_bench.tap import serve_tap\n"
        "told = lambda tap: print(tap.url, flush=True)\n"
        "asyncio.run(serve_tap(0, 'echo', record='meta', records_file=Path(sys.argv[1]), on_ready=told))\n"
    )

    async def use() -> None:
        path = tmp_path / "records.jsonl"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path), stdout=-1, stderr=-1)
        assert process.stdout is not None
        url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        async with RemoteTap(url) as remote:
            mark = await remote.begin("c")
            await apost(url, mark.token)
            (record,) = await remote.end(mark)
            assert (record.tokens, record.authorization, record.request) == (1, True, None)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), 30)
        assert forwarded_of(json.loads(path.read_text())) == record

    asyncio.run(use())


def test_the_package_loads_nothing_heavy_until_used():
    code = (
        "import sys, context_bench.tap; print(sorted({'aiohttp', 'orjson', 'zstandard', 'splintr'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
    assert {"Tap", "RemoteTap", "serve_tap"} <= set(dir(context_bench.tap))
    with pytest.raises(AttributeError):
        _ = context_bench.tap.Nothing
