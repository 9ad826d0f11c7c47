"""Endpoints that are dead, slow, half-open or talk nonsense, seen from a whole run: every failure is counted, nothing
hangs.
"""

import asyncio
import socket
import ssl

import pytest

from context_bench.engine import Arm, RunSettings, execute, open_store, rows, run_of
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.systems import OpenAIProxy

EXAMPLES = [{"id": i, "context": f"Box {i}.", "question": "Which?", "answer": "box"} for i in range(6)]
OK = {"text": "box"}


async def measured(tmp_path, url, *, retries=0, name="r", **settings):
    """Run the six examples against an endpoint: (store, counts)."""
    system = OpenAIProxy(
        url, model="m", name="p", max_retries=retries, retry_base_delay=0.0, timeout=settings.pop("timeout", 0.5)
    )
    chosen = RunSettings(late_grace=0.0, max_workers=3, **settings)
    store = open_store(tmp_path / "store.db")
    done = await asyncio.wait_for(
        execute(store, name=name, arms=[Arm(system)], examples=EXAMPLES, evaluators=[], manifest={}, settings=chosen),
        60,
    )
    return store, done.counts


def failures(store):
    """The classes of the failures in the rows."""
    return [row.errors["system"].partition(":")[0] for row in rows(store, "r") if row.failed]


FAULTS = {
    "refuses connections after a while": ({"reset": True, "disconnect": "before-headers"}, {"Unreachable"}),
    "breaks in the middle of a reply": ({"text": "box", "disconnect": "mid-body"}, {"Unreachable"}),
    "never answers": ({"delay": "forever"}, {"TimedOut"}),
    "sends half a JSON": ({"malformed": True}, {"BadReply"}),
    "sends a web page": ({"html": True}, {"BadReply"}),
    "sends no choices": ({"empty_choices": True}, {"BadReply", "EmptyReply"}),
    "storms with 429": ({"status": 429, "error": "slow down"}, {"RateLimited"}),
    "is out of order": ({"status": 503, "error": "down"}, {"ServerFailed"}),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_second_example_fails_and_is_counted_then_tried_again(tmp_path, fault):
    rule, classes = FAULTS[fault]
    bad = {"when": {"text": r"Box [135]\."}, **rule}
    async with ModelServer(Scripted({"rules": [bad, OK]})) as server:
        port = server.port
        store, counts = await measured(tmp_path, server.url)
        with store:
            assert (counts["done"], counts["failed"]) == (6, 3)
            assert set(failures(store)) <= classes
            assert run_of(store, "r").failed == 3
    async with ModelServer(Scripted({"rules": [OK]}), port=port) as server:  # the same address, in order again
        store, counts = await measured(tmp_path, server.url)
        with store:
            assert (counts["done"], counts["failed"], counts["reused"]) == (3, 0, 3)
            assert [row.failed for row in rows(store, "r")] == [False] * 6


async def test_an_endpoint_that_flaps_costs_attempts_and_no_rows(tmp_path):
    flapping = {"first": 2, "status": 503, "error": "not now"}
    async with ModelServer(Scripted({"rules": [flapping, OK]})) as server:
        store, counts = await measured(tmp_path, server.url, retries=2)
        with store:
            assert (counts["done"], counts["failed"]) == (6, 0)
            assert server.seen == 18


async def half_open(reader, writer):
    await reader.read()  # until the other side gives up; never answers


async def garbage(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x00\xff\x16\x03 this is no HTTP at all\r\n\r\n" * 40)
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(("behaviour", "said"), [(half_open, "TimedOut"), (garbage, "Unreachable")])
async def test_sockets_that_are_no_endpoints(tmp_path, behaviour, said):
    server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
    async with server:
        store, counts = await measured(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with store:
            assert counts["failed"] == 6
            assert set(failures(store)) <= {said, "BadReply"}


async def test_a_dead_port_and_a_name_nobody_knows(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
        store, counts = await measured(tmp_path / "dead", dead)
    with store:
        assert counts["failed"] == 6
        assert set(failures(store)) == {"Unreachable"}
    store, counts = await measured(tmp_path / "name", "http://no-such-host.invalid")
    with store:
        assert counts["failed"] == 6
        assert set(failures(store)) == {"Unreachable"}
        assert "no-such-host.invalid" in next(iter(rows(store, "r"))).errors["system"]


async def nothing(reader, writer):
    writer.close()


@pytest.mark.parametrize(
    ("name", "days", "trusted", "said"),
    [
        ("localhost", 5, True, "expired"),
        ("elsewhere.example", 99, True, "mismatch"),
        ("localhost", 99, False, "self-signed"),
    ],
)
async def test_a_certificate_that_proves_nothing_is_named_in_the_row(
    tmp_path, monkeypatch, certificate, name, days, trusted, said
):
    file = certificate(tmp_path, name, days=days)
    if trusted:
        roots = ssl.create_default_context(cafile=file)
        monkeypatch.setattr("context_bench.llm.transport.tls", lambda: roots)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(file)
    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=server_side)
    async with server:
        store, counts = await measured(tmp_path, f"https://localhost:{server.sockets[0].getsockname()[1]}")
    with store:
        assert counts["failed"] == 6
        assert set(failures(store)) == {"Unreachable"}
        assert said in next(iter(rows(store, "r"))).errors["system"].lower()


async def test_tls_spoken_to_a_server_that_does_not(tmp_path):
    async with ModelServer(Scripted({"rules": [OK]})) as server:
        store, counts = await measured(tmp_path, server.url.replace("http:", "https:"))
    with store:
        assert counts["failed"] == 6
        assert set(failures(store)) == {"Unreachable"}


def test_from_the_command_line_failures_decide_the_exit_code(bench, endpoint):
    bad = Scripted(
        {
            "rules": [
                {"calls": [1], **OK},
                {"when": {"text": "Box 1"}, "status": 500, "error": "no"},
                {"text": "It is word0."},
            ]
        }
    )
    server = ModelServer(bad)
    run_sync(server.start())
    try:
        status, out = bench.run("--retries", "0", url=server.url)
        assert status == 1, out
        assert "p failed on 3 of 12 rows, more than --max-failures 0.02" in out
        status, out = bench.run("--retries", "0", "--max-failures", "0.3", url=server.url)
        assert status == 0, out
    finally:
        run_sync(server.stop())
