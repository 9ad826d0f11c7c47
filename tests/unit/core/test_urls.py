"""Base URLs that the user gives: what can be called is taken, whatever else is refused by name, value and what was
expected.
"""

import pytest
from hypothesis import given, strategies as st

from context_bench.core.addresses import base_url, fault_of
from context_bench.core.errors import BadInput
from context_bench.llm.transport import address_of

GOOD = [
    *(
        "http://localhost",
        "http://localhost:1",
        "https://h:65535/v1",
        "http://[::1]:8080/x",
        "http://[::1]",
        "https://h/v1?key=x#f",
    ),
    *(
        "http://u:p@h:80/",
        "http://bücher.example/v1",
        "http://h:/v1",
        "http://127.0.0.1:8080//",
        "HTTP://H:80",
        "http://[fe80::1%25eth0]:80/",
    ),
]
BAD = {
    "http://127.0.0.1:99999": "port '99999'",
    "http://127.0.0.1:65536/v1": "port '65536'",
    "http://127.0.0.1:0": "port '0'",
    "http://127.0.0.1:-1": "port '-1'",
    "http://127.0.0.1:80a": "port '80a'",
    "http://127.0.0.1:١٢": "port",
    "http://h:" + "9" * 5000: "port",
    "http://[::1/b": "IPv6",
    "http://12[7": "IPv6",
    "http://[zz]/": "IPv6",
    "http://[127.0.0.1]/": "IPv6",
    "http://[::1]80": "port",
    "http://::1:8080/": "IPv6 address stands in brackets",
    "http://": "no host",
    "http:///v1": "no host",
    "localhost:8080": "http://",
    "h": "http://",
    "": "http://",
    "ftp://h": "http://",
    "http://a b/": "blank",
    "http://h\n/x": "blank",
    "http://h/v1\r\nx-a: b": "blank",
    "http://h/v\t1": "blank",
    "ht\ntp://h/v1": "blank",
    "http://h/a b": "blank",
    "http://h/v1?key=a b": "blank",
    "http://h/v1\x7f": "blank",
    "http://h/\x00": "blank",
    "http://a..b/": "no name",
    "http://" + "a" * 70 + ".example": "no name",
    "http://\u2100/": "",
}


@pytest.mark.parametrize("url", GOOD)
def test_what_can_be_called_is_taken(url):
    assert base_url(f" {url}\n", "--proxy") == url
    assert address_of(url.replace("u:p@", "").replace("HTTP", "http")).port


@pytest.mark.parametrize("url", BAD)
def test_what_cannot_be_called_is_refused_by_its_name(url):
    with pytest.raises(BadInput) as refused:
        base_url(url, "--proxy")
    said = str(refused.value)
    assert said.startswith("--proxy ")
    assert BAD[url] in said
    assert "expected http://HOST[:PORT][/PATH]" in said
    assert len(said) < 600


@pytest.mark.parametrize(
    "url",
    [
        "http://user:PLANTED@[::1/b",
        "http://user:PLANTED@h:99999",
        "http://h:0/v1?key=PLANTED",
        "http://u:a/PLANTED@h:0",
    ],
)
def test_a_refused_url_keeps_its_login_to_itself(url):
    with pytest.raises(BadInput) as refused:
        base_url(url, "--proxy")
    assert "PLANTED" not in str(refused.value)


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["http", "://", "[", "]", ":", "::1", "@", "99", "/", "h", "%", "?", "#", " "])).map(
        "".join
    )
)
def test_any_text_is_taken_or_refused_and_what_is_taken_can_be_called(url):
    if fault_of(url) is None:
        address = address_of(url)
        assert 1 <= address.port <= 65535
