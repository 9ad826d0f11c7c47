"""Where a request goes on to, and who is let in."""

import pytest
from aiohttp.test_utils import make_mocked_request

from context_bench.core.addresses import is_loopback
from context_bench.core.errors import BadInput
from context_bench.llm.relay import check_upstream, join
from context_bench.tap.control_api import AccessCheck


@pytest.mark.parametrize(
    ("base", "target", "url"),
    [
        ("http://h/v1", "/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "/v1/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "/chat/completions", "http://h/chat/completions"),
        ("http://h/openai/v1", "/v1/models", "http://h/openai/v1/models"),
        ("http://h/openai/v1", "/openai/v1/models", "http://h/openai/v1/models"),
        ("http://h/a/b", "/b/c", "http://h/a/b/c"),
        ("http://h/a/b", "/a/c", "http://h/a/b/a/c"),
        ("http://h/v1", "/v1", "http://h/v1"),
        ("http://h/v1", "/v1/", "http://h/v1/"),
        ("http://h", "/", "http://h/"),
        ("http://h/v1", "/", "http://h/v1/"),
        ("http://h/v1", "/v1/x?a=%2F&b=/v1", "http://h/v1/x?a=%2F&b=/v1"),
        ("http://h/v1", "/v1?a=1", "http://h/v1?a=1"),
        ("http://h", "/a%2Fb//c/../d", "http://h/a%2Fb//c/../d"),
        ("http://h/v1", "http://tap:9090/v1/models?x=1", "http://h/v1/models?x=1"),
        ("http://h/v1", "*", "http://h/v1/"),
    ],
)
def test_join(base, target, url):
    assert join(base, target) == url


def test_upstreams():
    assert check_upstream("https://api.example.com/v1///") == "https://api.example.com/v1"
    for bad in (
        "ftp://h",
        "h:80",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://[::1",
        "http://h?x=1",
        "http://h#x",
    ):
        with pytest.raises(BadInput):
            check_upstream(bad)
    for bad in (
        "http://user:hunter2@h",
        "http://user:hunter2@[::1",
        "http://user:hunter2@h:99999",
        "ftp://h?key=hunter2",
    ):
        with pytest.raises(BadInput) as told:
            check_upstream(bad)
        assert "hunter2" not in str(told.value), bad


def test_loopback_names():
    for name in ("localhost", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"):
        assert is_loopback(name), name
    for name in ("", "localhost.evil.com", "127.0.0.1.nip.io", "10.0.0.1", "0.0.0.0", "2130706433", "::2"):
        assert not is_loopback(name), name


def asks(gate: AccessCheck, **headers: str) -> bool:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return gate.refusal(make_mocked_request("GET", "/v1/models", headers=given)) is None


def test_on_loopback_only_loopback_names_get_in():
    gate = AccessCheck("127.0.0.1")
    for host in ("127.0.0.1:9090", "localhost", "[::1]:80", "LocalHost:1"):
        assert asks(gate, Host=host)
    for host in ("evil.example:9090", "10.0.0.7:9090", "localhost.evil.example", "[::1", "", "a b"):
        assert not asks(gate, Host=host), host


def test_a_tap_that_listens_wider_still_refuses_rebound_names():
    gate = AccessCheck("0.0.0.0", names=["bench.internal"])
    for host in ("10.0.0.7:9090", "host.docker.internal:9090", "BENCH.internal", "localhost"):
        assert asks(gate, Host=host), host
    assert not asks(gate, Host="evil.example:9090")


def test_web_pages_stay_out():
    gate = AccessCheck("127.0.0.1")
    for origin in ("https://evil.example", "null", "file://", "http://localhost.evil.example", ""):
        assert not asks(gate, Host="localhost", Origin=origin), origin
    assert asks(gate, Host="localhost", Origin="http://localhost:3000")
    assert asks(gate, Host="localhost")
