"""Keys out of texts."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from context_bench.llm.redact import MASK, bare_url, redact, secrets_in, without_secrets
from context_bench.wire.apis.shared import Reply

KEY = "cb-9f3kQ7w1ZpL0xVb2"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        f"key {KEY[:10]}…",
        f"ends in {KEY[-9:]}",
        f'{{"Authorization": "Bearer {KEY}"}}',
        f"{KEY}{KEY}",
    ],
)
def test_a_known_key_goes_whole_or_in_part(text: str) -> None:
    shown = redact(text, [KEY])
    assert MASK in shown
    assert not any(KEY[i : i + 8] in shown for i in range(len(KEY) - 7))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Incorrect API key provided: sk-proj-********wxyz.", f"Incorrect API key provided: {MASK}"),
        ("bad sk-ant-api03-abcdefghijk", f"bad {MASK}"),
        ("to http://a@b@pw@host:9/x and you@there", f"to http://{MASK}@host:9/x and you@there"),
        ("GET http://me:pw@host/v1?api_key=abc&x=1", f"GET http://{MASK}@host/v1?api_key={MASK}&x=1"),
        ("Authorization: Bearer abcdefghijklmnop1234", f"Authorization: {MASK}"),
        ("needs a bearer token in the header", "needs a bearer token in the header"),
        ("maximum context length is 8192 tokens", "maximum context length is 8192 tokens"),
    ],
)
def test_what_looks_like_a_key(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(st.text(), st.text(alphabet="abcdefgh0123", min_size=8, max_size=30), st.text())
def test_a_key_is_never_left(before: str, key: str, after: str) -> None:
    assert key not in redact(before + key + after, [key])


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(redact(text, ["", "short", KEY]), str)


def test_urls_and_headers() -> None:
    assert bare_url("https://user:pw@host:8/v1/x?key=1#f") == "https://host:8/v1/x"
    assert bare_url("http://[::1") == "(no URL)"
    found = secrets_in(
        {"authorization": "Bearer abcdef", "X-Api-Key": "zyxw", "accept": "json", "anthropic-version": "2023"}
    )
    assert set(found) == {"Bearer abcdef", "abcdef", "zyxw"}


@pytest.mark.parametrize("piece", ["[", "a-", "a.", "://", "&key", "eyJ-", "a*", "x@"])
def test_large_texts_that_nearly_look_like_keys_are_left_as_they_are(piece):
    """Patterns that start anew at every place would need minutes here."""
    text = piece * (200_000 // len(piece))
    assert redact(text) == text


@pytest.mark.parametrize("piece", ["*", "sk-", "a***"])
def test_large_texts_that_are_one_key_are_masked_whole(piece):
    assert redact(piece * 50_000) == MASK


def test_a_reply_that_quotes_the_taps_mark_reads_alike_in_every_run() -> None:
    texts = set()
    for mark in (f"cb-{'1f' * 20}", f"cb-{'a0' * 20}"):
        headers = {"authorization": f"Bearer {mark}", "x-goog-api-key": KEY}
        quoted = f"You sent Bearer {mark}, or {mark}, and {KEY}."
        reply = without_secrets(Reply(quoted, tool_calls=[{"arguments": quoted}]), secrets_in(headers))
        texts |= {reply.text, reply.tool_calls[0]["arguments"]}
    assert texts == {f"You sent {MASK}, or {MASK}, and {MASK}."}
