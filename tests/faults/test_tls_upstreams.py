"""Servers that speak TLS badly, met by our client and by both relays: the faults of `benchmarks/trials`."""

import asyncio
import http.client
import ssl
from pathlib import Path

import pytest

from context_bench.core.errors import Unreachable
from context_bench.systems import OpenAIProxy
from context_bench.systems.serve import Served
from context_bench.tap import Tap

TRIALS = Path(__file__).parents[2] / "benchmarks" / "trials"
UNPROVEN = [
    ("expired", "has expired"),
    ("not yet valid", "not yet valid"),
    ("wrong name", "another name .*localhost"),
    ("self-signed", "nobody that this machine trusts.*SSL_CERT_FILE"),
    ("unknown authority", "nobody that this machine trusts.*SSL_CERT_FILE"),
    ("for clients only", "not made for a server"),
    ("TLS 1.0 only", "older than 1.2"),
    ("no common cipher", "TLS failed"),
    ("plain HTTP", "does not speak TLS there.*http://"),
    ("garbage for a hello", "Could not connect"),
    ("closed before hello", "Could not connect"),
    ("reset before hello", "Could not connect"),
    ("reset in handshake", "Could not connect"),
    ("alert", "TLS failed"),
]
CUT = ["closed in body", "reset in body", "no length, cut", "stream, cut", "record spoiled", "closed before reply"]
FINE = ["good", "no close_notify after length", "no length, ended well", "one byte a record", "many tickets", "TLS 1.2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of the trial, which every TLS context made from here on trusts where its authority vouches for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TRIALS))
        import certificates
        import tls_upstreams

        folder = tmp_path_factory.mktemp("tls")
        authority = certificates.Authority(folder)
        trusted = ssl.create_default_context(cafile=authority.file)
        trusted.set_alpn_protocols(["http/1.1"])
        patch.setattr("context_bench.llm.transport.tls", lambda: trusted)
        patch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusted)
        made = tls_upstreams.TlsServer(authority, certificates.Authority(folder, "a stranger"))
        yield made
        made.close()


async def answer(server):
    system = OpenAIProxy(f"https://localhost:{server.port}", model="m", max_retries=0, timeout=10)
    return (await system.aprocess({"id": 1, "context": "", "question": "Box 1?"}))["response"]


@pytest.mark.parametrize(("fault", "said"), UNPROVEN)
async def test_nothing_is_sent_to_a_server_that_proved_nothing(server, fault, said):
    server.become(fault)
    with pytest.raises(Unreachable, match=said) as caught:
        await answer(server)
    assert server.requests == 0
    assert "_ssl.c" not in str(caught.value)


@pytest.mark.parametrize("fault", CUT)
async def test_a_cut_reply_is_no_answer_and_may_be_asked_for_again(server, fault):
    server.become(fault)
    with pytest.raises(Unreachable, match="broke before the reply was whole"):
        await answer(server)
    assert server.requests == 1


@pytest.mark.parametrize("fault", FINE)
async def test_odd_but_whole_replies_are_answers(server, fault):
    server.become(fault)
    assert await answer(server) == "It is word1."


def relayed(port):
    """(status, body, whether HTTP says that it is whole) of a request to a relay."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(
            "POST", "/v1/chat/completions", b'{"model": "m", "messages": []}', {"Content-Type": "application/json"}
        )
        reply = connection.getresponse()
        return reply.status, reply.read().decode(), True
    except (http.client.HTTPException, OSError):
        return None, "", False
    finally:
        connection.close()


@pytest.mark.parametrize("relay", [Tap, lambda url: Served("full", url)])
async def test_a_relay_passes_on_no_cut_reply_as_whole_and_names_what_is_wrong_with_a_certificate(server, relay):
    async with relay(f"https://localhost:{server.port}") as between:
        port = int(between.url.rpartition(":")[2])
        for fault in CUT:
            server.become(fault)
            status, _, whole = await asyncio.to_thread(relayed, port)
            assert status == 502 or not whole, fault
        for fault in FINE:
            server.become(fault)
            status, body, whole = await asyncio.to_thread(relayed, port)
            assert (status, whole, "It is word1." in body) == (200, True, True), fault
        for fault, said in [
            ("self-signed", "SSL_CERT_FILE"),
            ("expired", "has expired"),
            ("plain HTTP", "does not speak TLS there"),
        ]:
            server.become(fault)
            status, body, _ = await asyncio.to_thread(relayed, port)
            assert (status, said in body, server.requests) == (502, True, 0), fault
