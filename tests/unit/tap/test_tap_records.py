"""What is written down of an exchange, by policy; no key in any; no body too odd."""

import gzip
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.ledger import Mark
from context_bench.core.numbers import forwarded_of
from context_bench.core.records import Forwarded, Usage
from context_bench.core.tokens import counter_for
from context_bench.tap.control_api import as_json, record_file
from context_bench.tap.exchange import UNMATCHED, Body, BodyBudget, Exchange, MarkMatch, MarkWindow
from context_bench.tap.forwarded import POLICIES, RecordWriter
from context_bench.wire.apis import Reply, parse_request, render_stream
from context_bench.wire.request import changes, facts

PLANTED = {
    "header": "sk-planted-in-header-0001",
    "x-api-key": "plainkey-in-x-api-key-0002",
    "query": "plainkey-in-query-0003",
    "user": "sk-user-04",
    "upstream": "the-upstream-key-0005",
    "reply": "sk-planted-in-reply-00006",
    "path": "sk-planted-in-path-000007",
    "cookie": "cookie-value-0000008",
}
CHAT = {
    "model": "gpt-4o",
    "user": PLANTED["user"],
    "temperature": 0,
    "messages": [
        {"role": "system", "content": "Answer briefly."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Who is jane.doe@example.org?"},
                {"type": "image_url", "image_url": {"url": "data:,"}},
            ],
        },
    ],
    "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}],
}
ANSWER = {
    "choices": [
        {
            "message": {"role": "assistant", "content": f"Use {PLANTED['reply']} of {PLANTED['upstream']}"},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 40, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}},
}


def exchange(body: object = CHAT, reply: object = ANSWER, **changed: object) -> Exchange:
    made = Exchange(
        1,
        "id",
        "POST",
        f"/{PLANTED['path']}/v1/chat/completions?api_key={PLANTED['query']}",
        [
            ("Authorization", f"Bearer {PLANTED['header']}"),
            ("x-api-key", PLANTED["x-api-key"]),
            ("Cookie", f"sid={PLANTED['cookie']}"),
            ("Content-Type", "application/json"),
        ],
        UNMATCHED,
        1_700_000_000.0,
        100.0,
        finished=102.5,
        status=200,
        reply_headers=[("Content-Type", "application/json")],
    )
    for target, value in ((made.body, body), (made.reply, reply)):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        if data:
            target.add(101.0, data)
    return replace(made, **changed)  # type: ignore[arg-type]


def write(policy: str, seen: Exchange) -> Forwarded:
    return RecordWriter(policy, secrets_known=[PLANTED["upstream"]]).write(seen)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_planted_key_is_in_any_record(policy):
    body = json.loads(json.dumps(CHAT))
    body["messages"][0]["content"] += (
        f" Keys: {PLANTED['header']} {PLANTED['x-api-key']} {PLANTED['query']} {PLANTED['cookie']}"
    )
    body[PLANTED["header"]] = "a key as a name"
    for seen in (
        exchange(body),
        exchange(body, reply={"error": {"message": f"bad key {PLANTED['header']}"}}, status=401),
        exchange(b"not json " + json.dumps(PLANTED).encode(), reply=json.dumps(PLANTED).encode()),
        exchange(
            body,
            reply=b"data: " + json.dumps({"error": {"message": f"bad {PLANTED['reply']}"}}).encode() + b"\n\n",
            reply_headers=[("content-type", "text/event-stream")],
        ),
        exchange(body, method="PUT", target=f"/unknown/{PLANTED['path']}?x=1&token={PLANTED['query']}"),
    ):
        written = json.dumps(as_json(write(policy, seen)))
        for place, key in PLANTED.items():
            if key == PLANTED["user"] and b"not json" in seen.body.data:
                continue  # a short word in plain text is no key
            assert key not in written, place


def test_meta_keeps_no_text():
    record = write("meta", exchange())
    written = json.dumps(as_json(record))
    for text in ("Answer", "jane", "look_up", "Use ", "stop"):
        assert text not in written
    assert (record.request, record.reply) == (None, None)
    assert record.facts["roles"] == ["system", "user"]
    assert record.facts["parts"] == [["text"], ["text", "image_url"]]
    assert record.facts["params"] == {"user": "", "temperature": 0}
    assert len(record.facts["tools"]) == 1
    assert record.tokens is not None
    assert record.usage == Usage(40, 5, cache_read=8)


def test_meta_takes_no_text_from_names_of_things_either():
    secret_words = "the patient has a secret illness"
    body = {
        "model": "m",
        secret_words: 1,
        "messages": [{"role": secret_words, "content": [{"type": secret_words, "x": 1}]}],
    }
    assert secret_words not in json.dumps(as_json(write("meta", exchange(body))))


def test_hashes_are_keyed_and_tell_equal_blocks():
    scribe, other = RecordWriter("hashes"), RecordWriter("hashes")
    first, again, elsewhere = scribe.write(exchange()), scribe.write(exchange()), other.write(exchange())
    assert first.request == again.request
    assert first.facts["texts"] == again.facts["texts"]
    assert first.request != elsewhere.request
    assert first.facts["texts"] != elsewhere.facts["texts"]
    assert facts(parse_request("openai-chat", CHAT))["texts"][0] not in json.dumps(as_json(first))
    assert "Answer briefly" not in json.dumps(as_json(first))
    assert [block[0] for block in first.request["messages"][1]["blocks"]] == ["text", "image_url"]


def test_redacted_keeps_bodies_without_addresses():
    record = write("redacted", exchange())
    assert record.request["messages"][0]["content"] == "Answer briefly."
    assert record.request["messages"][1]["content"][0]["text"] == "Who is [masked]?"


def test_full_keeps_bodies():
    record = write("full", exchange({**CHAT, "user": "u-17"}, reply={**ANSWER, "x": None}))
    assert record.request == {**CHAT, "user": "u-17"}
    assert record.reply["x"] is None
    assert record.reply["usage"] == ANSWER["usage"]


@pytest.mark.parametrize("policy", ["full", "redacted"])
def test_facts_can_be_compared_with_what_was_sent(policy):
    body = {**CHAT, "reasoning_effort": "low"}
    del body["user"]
    received = write(policy, exchange(body)).facts
    assert changes(facts(parse_request("openai-chat", body)), received) == []


def test_tokens_are_counted_by_the_rule():
    record = write("full", exchange())
    count = counter_for("gpt-4o").count
    tools = '[{"function":{"name":"look_up","parameters":{"type":"object"}},"type":"function"}]'
    assert record.tokens == count("Answer briefly.") + count("Who is jane.doe@example.org?") + count(tools)
    assert (record.exact, record.uncounted_parts) == (True, 1)
    assert not write("full", exchange({**CHAT, "model": "claude-x"})).exact
    assert RecordWriter("full", counter_model="gpt-4").write(exchange({**CHAT, "model": "my-alias"})).exact


def test_outline():
    window = MarkWindow(7, Mark("key", "cb-" + "0" * 40), "")
    record = write(
        "full",
        exchange(match=MarkMatch(window, "key", window.mark.token, True, True, True), error="the client went away"),
    )
    assert (record.wire, record.model, record.stream, record.status) == ("openai-chat", "gpt-4o", False, 200)
    assert (record.mark, record.matched_by, record.window, record.late, record.authorization) == (
        window.mark.token,
        "key",
        7,
        True,
        True,
    )
    assert (record.seconds, record.ttft, record.error) == (2.5, None, "the client went away")
    assert record.bytes_in == len(json.dumps(CHAT))
    assert "?" not in record.path


def test_a_stream_is_read_with_its_times():
    request = parse_request("openai-chat", {**CHAT, "stream_options": {"include_usage": True}, "stream": True})
    events = list(render_stream("openai-chat", Reply("forty-two", finish_reason="stop", usage=Usage(9, 3)), request, 3))
    seen = exchange(
        {**CHAT, "stream": True}, reply=b"", reply_headers=[("Content-Type", "text/event-stream; charset=utf-8")]
    )
    for number, event in enumerate(events):
        seen.reply.add(100.5 + number, event)
    record = write("full", seen)
    assert record.ttft == 1.5  # the first event holds no content, only a role
    assert record.usage == Usage(9, 3)
    assert record.facts["reply_complete"] is True
    assert record.reply["choices"][0]["message"]["content"] == "forty-two"


def test_a_broken_stream_says_so():
    request = parse_request("openai-chat", CHAT)
    events = list(render_stream("openai-chat", Reply("forty-two", finish_reason="stop"), request, 3))
    record = write("full", exchange(reply=b"".join(events[:2]), reply_headers=[("content-type", "text/event-stream")]))
    assert record.facts["reply_complete"] is False
    assert record.reply["choices"][0]["message"]["content"] == "for"


def test_coded_bodies_are_decoded_for_the_record():
    seen = exchange(gzip.compress(json.dumps(CHAT).encode()), reply=gzip.compress(json.dumps(ANSWER).encode()))
    seen.headers.append(("Content-Encoding", "gzip"))
    seen.reply_headers.append(("Content-Encoding", "gzip"))
    record = write("full", seen)
    assert record.tokens == write("full", exchange()).tokens
    assert record.usage == Usage(40, 5, cache_read=8)
    assert record.bytes_in < len(json.dumps(CHAT))


def test_prefix_of_a_session():
    scribe = RecordWriter("meta")
    turns = [{"role": "user", "content": f"turn {n} " * 50} for n in range(3)]
    counts = [scribe.write(exchange({**CHAT, "messages": turns[: n + 1]})) for n in range(3)]
    assert counts[0].prefix_tokens is None
    assert [record.prefix_tokens for record in counts[1:]] == [record.tokens for record in counts[:2]]
    changed = [{"role": "user", "content": "turn 0 " * 25 + "changed"}, *turns[1:]]
    again = scribe.write(exchange({**CHAT, "messages": changed}))
    assert again.prefix_tokens is not None
    assert counts[0].tokens is not None
    assert 0 < again.prefix_tokens < counts[0].tokens
    elsewhere = scribe.write(exchange({**CHAT, "user": "another", "messages": turns}))
    assert elsewhere.prefix_tokens is None


@pytest.mark.parametrize("headers", [[("session_id", "s")], [("X-Session-Id", "s")]])
def test_a_session_may_be_named_by_a_header(headers):
    scribe = RecordWriter("meta")
    for key, expected in (("one", None), ("another", True)):
        record = scribe.write(exchange(headers=[("authorization", key), *headers]))
        assert record.prefix_tokens == record.tokens if expected else record.prefix_tokens is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe\x00", "neither JSON nor text"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"messages":' + b"[" * 400 + b"]" * 400 + b"}", "nested too deeply"),
    ],
)
def test_odd_bodies_are_recorded_as_odd(body, why):
    record = write("full", exchange(body))
    assert why in record.facts["unread"]
    assert record.tokens is None
    assert record.bytes_in == len(body)


def test_a_body_that_does_not_decode():
    seen = exchange(b"plain text")
    seen.headers.append(("content-encoding", "gzip"))
    record = write("full", seen)
    assert "not readable as gzip" in record.facts["unread"]
    assert record.tokens is None


def test_lone_surrogates_survive():
    record = write("full", exchange(b'{"model":"m","messages":[{"role":"user","content":"a\\ud800b"}]}'))
    assert record.request["messages"][0]["content"] == "a\ud800b"
    assert record.tokens
    assert forwarded_of(json.loads(json.dumps(as_json(record)))) == record


def test_a_body_beyond_the_limit_is_counted_as_bytes(monkeypatch):
    monkeypatch.setattr("context_bench.tap.exchange.BODY_LIMIT", 10)
    body = Body()
    for _ in range(3):
        body.add(0.0, b"12345")
    assert (body.size, body.data, body.whole) == (15, b"", False)
    record = write("full", exchange(body=b"x" * 11))
    assert (record.bytes_in, record.tokens, record.request) == (11, None, None)
    assert "too large: more than" in record.facts["unread"]
    assert record.oversized == 2  # its reply is longer, too


def test_when_too_much_waits_only_sizes_are_recorded():
    budget, data = BodyBudget(most=100, held=90), json.dumps(CHAT).encode()
    body = Body(budget=budget)
    body.add(0.0, data)
    record = write("full", replace(exchange(), body=body))
    assert record.facts["unread"] == "too much was waiting to be read"
    assert (record.tokens, record.request, record.bytes_in, record.oversized) == (None, None, len(data), 1)
    assert (budget.held, body.kept) == (90, 0)
    small = Body(budget=budget)
    small.add(0.0, b"0123456789")
    assert (budget.held, small.data) == (100, b"0123456789")
    small.drop()
    assert budget.held == 90


def test_errors_are_told_in_the_providers_words_where_text_may_be_kept():
    reply = {"error": {"message": "context too\nlong", "code": "context_length_exceeded"}}
    assert write("full", exchange(reply=reply, status=400)).error == "HTTP 400: context too long"
    assert write("meta", exchange(reply=reply, status=400)).error == "HTTP 400"
    assert write("full", exchange(reply=b"<html>bad gateway", status=502)).error == "HTTP 502: <html>bad gateway"


def test_unknown_routes_are_counted_as_bytes():
    record = write("full", exchange(method="PATCH", target="/v1/fine_tuning/x"))
    assert (record.wire, record.tokens) == ("other", None)
    assert record.bytes_in > 0


def test_unknown_policy():
    with pytest.raises(BadInput, match="meta, hashes, redacted, full"):
        RecordWriter("some")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    body=JSON,
    messages=JSON,
    reply=JSON,
    policy=st.sampled_from(POLICIES),
    path=st.sampled_from(["chat/completions", "messages", "responses", "x"]),
)
def test_any_json_gives_a_record_that_survives_its_json_form(body, messages, reply, policy, path):
    whole = {**body, "messages": messages, "input": messages} if isinstance(body, dict) else body
    record = write(policy, exchange(whole, reply, target=f"/v1/{path}"))
    assert forwarded_of(json.loads(json.dumps(as_json(record)))) == record


def test_records_of_a_newer_tap_can_be_read():
    values = as_json(write("full", exchange()))
    assert forwarded_of({**values, "invented_later": 1}).tokens == values["tokens"]
    with pytest.raises(BadInput, match="not a record"):
        forwarded_of({"id": "x"})


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {
                "anthropic-ratelimit-unified-5h-utilization": "0.25",
                "anthropic-ratelimit-unified-7d-utilization": "1.02",
            },
            {"five hours": 0.25, "week": 1.02},
        ),
        (
            {
                "x-codex-primary-used-percent": "12.5",
                "x-codex-primary-window-minutes": "300",
                "x-codex-secondary-used-percent": "40",
                "x-codex-secondary-window-minutes": "10080",
            },
            {"five hours": 0.125, "week": 0.4},
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-limit": "1000",
                "anthropic-ratelimit-input-tokens-remaining": "750",
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "45",
            },
            {"input tokens": 0.25, "requests": 0.25},
        ),
        (
            {
                "anthropic-ratelimit-unified-5h-utilization": "nan",
                "anthropic-ratelimit-unified-7d-utilization": "9e99",
                "anthropic-ratelimit-unified-sk-planted-utilization": "0.5",
                "x-codex-primary-used-percent": "-3",
                "x-ratelimit-remaining-tokens": "5",
                "x-ratelimit-limit-tokens": "0",
            },
            {},
        ),
    ],
)
def test_quotas_that_replies_tell_are_kept_by_every_policy(headers, expected):
    told = [("Content-Type", "application/json"), *((name.title(), value) for name, value in headers.items())]
    for policy in POLICIES:
        assert write(policy, exchange(reply_headers=told)).facts.get("quotas", {}) == pytest.approx(expected)
    assert write("meta", exchange(reply_headers=told, status=429)).facts.get("quotas", {}) == pytest.approx(expected)


def test_a_device_for_records_stays_everybodys(tmp_path: Path) -> None:
    """`--out /dev/null` of root took the device from all other users."""
    terminal, other = os.openpty()
    try:
        os.fchmod(other, 0o622)
        link = tmp_path / "records"
        link.symlink_to(os.ttyname(other))
        with record_file(link):
            assert stat.S_IMODE(os.fstat(other).st_mode) == 0o622
    finally:
        os.close(terminal)
        os.close(other)
