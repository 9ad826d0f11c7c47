"""Tokens and wire facts from calls and records, case by case."""

from dataclasses import replace

import pytest

from context_bench.core.records import Call, Forwarded, Usage
from context_bench.engine.observe import (
    added_calls,
    billed_tokens,
    forwarded_tokens,
    observed,
    sent_tokens,
    usage_of,
    with_late,
)
from context_bench.wire.apis import parse_request
from context_bench.wire.request import facts

BODY = {
    "model": "gpt-4o",
    "temperature": 0.5,
    "messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": "long text"}],
}


def call(**more):
    return Call("system", "gpt-4o", "http://p/v1/chat/completions", 1.0, **{"request": BODY, "sent_tokens": 10, **more})


def record(body=BODY, wire="openai-chat", policy="full", **more):
    found = {**facts(parse_request(wire, body)), "policy": policy}
    given = {
        "tokens": 10,
        "exact": True,
        "status": 200,
        "model": body["model"],
        "facts": found,
        "usage": Usage(10, 2),
        **more,
    }
    return Forwarded("1", "m", "key", wire, "POST", "/v1/chat/completions", 1.0, **given)


@pytest.mark.parametrize(
    ("calls", "tokens"),
    [
        ([call()], 10),
        ([call(error="RateLimited", status=429), call(attempt=2)], 10),
        ([call(), call(sent_tokens=5)], 15),
        ([call(error="Unreachable"), call(attempt=2, error="Unreachable")], 10),
        ([call(), call(sent_tokens=None)], None),
        ([call(), Call("judge", "j", "u", 1.0, sent_tokens=99)], 10),
        ([], None),
    ],
)
def test_sent_tokens_count_each_request_once(calls, tokens):
    assert sent_tokens(calls) == tokens


def test_billed_tokens_are_known_only_if_every_reply_tells():
    assert billed_tokens([call(usage=Usage(7)), call(usage=Usage(8))]) == 15
    assert billed_tokens([call(usage=Usage(7)), call()]) is None
    assert billed_tokens([call(error="BadReply", usage=Usage(7))]) is None


@pytest.mark.parametrize(
    ("records", "tokens"),
    [
        ([record()], 10),
        ([record(status=500, tokens=10), record(tokens=10)], 10),
        ([record(error="reset"), record(tokens=4)], 4),
        ([record(status=500)], 10),
        ([record(), record(tokens=None)], None),
        ([record(wire="anthropic-count")], None),
        ([], None),
    ],
)
def test_forwarded_tokens_are_those_the_provider_answered(records, tokens):
    assert forwarded_tokens(records) == tokens


def test_usage_is_absent_where_nobody_told():
    assert usage_of([]) == {}
    assert usage_of([call()]) == {"calls": 1}
    assert usage_of([call(ttft=0.5, usage=Usage(3, 4), cost=0.1), call(ttft=0.9, usage=Usage(1))]) == {
        "input_tokens": 4,
        "output_tokens": 4,
        "cost": 0.1,
        "ttft": 0.5,
        "calls": 2,
    }


def test_a_clients_retry_is_not_an_extra_call_of_the_proxy():
    wire = observed([call(error="RateLimited", status=429), call(attempt=2)], [record(status=429), record()])
    assert (wire["calls"], wire["client_calls"], wire["extra_calls"]) == (2, 2, 0)
    assert wire["forwarded"] == 10


def test_an_attempt_whose_reply_was_no_answer_is_not_forwarded_twice_nor_the_proxys_own():
    summary = {**BODY, "messages": [{"role": "user", "content": "summarise"}]}
    calls = [
        call(error="ServerFailed: an error in a reply with HTTP 200", status=200, cost=0.5),
        call(attempt=2, status=200),
    ]
    records = [record(usage=None), record()]  # the tap takes both for answered
    assert forwarded_tokens(records, calls) == 10
    assert added_calls(calls, records, None) == []
    wire = observed(calls, records)
    assert (wire["forwarded"], wire["billed"], wire["calls"], wire["extra_calls"]) == (10, 10, 2, 0)
    with_own = [record(summary, tokens=3), *records]  # the proxy asked for a summary before, on its own account
    assert forwarded_tokens(with_own, calls) == 13
    assert [own.sent_tokens for own in added_calls(calls, with_own, None)] == [3]
    never_arrived = [call(error="Unreachable: Could not connect", status=None), call(attempt=2)]
    assert forwarded_tokens([record()], never_arrived) == 10
    assert forwarded_tokens([record(), record(summary, tokens=3)], never_arrived) == 13
    refused = [call(error="RateLimited", status=429), call(attempt=2)]
    assert forwarded_tokens([record(status=429), record(), record(summary, tokens=3)], refused) == 13
    both = [call(error="ServerFailed: an error in a reply", status=200), *refused]
    assert forwarded_tokens([record(usage=None), record(status=429), record()], both) == 10
    assert added_calls(both, [record(usage=None), record(status=429), record()], None) == []


def test_of_attempts_that_all_broke_at_the_tap_the_one_that_was_answered_counts():
    calls = [call(error="StreamBroken: ended early", status=200), call(attempt=2, status=200)]
    broken = [record(error="the client went away", tokens=10, usage=None) for _ in range(2)]
    assert forwarded_tokens(broken, calls) == 10
    assert added_calls(calls, broken, None) == []
    summary = {**BODY, "messages": [{"role": "user", "content": "summarise"}]}
    own = record(summary, error="the upstream closed the connection", tokens=3)
    assert forwarded_tokens([own, *broken], calls) == 13
    assert forwarded_tokens(broken, [replace(each, error="StreamBroken: ended early") for each in calls]) == 20
    assert forwarded_tokens(broken) == 20  # nobody knows whose they were


def test_other_routes_are_counted_apart():
    wire = observed([call()], [record(wire="anthropic-count"), record(wire="embeddings"), record()])
    assert (wire["calls"], wire["other_calls"], wire["extra_calls"]) == (1, 2, 0)


def test_what_was_sent_is_compared_with_what_is_most_like_it():
    other = {"model": "small", "messages": [{"role": "user", "content": "summarise"}]}
    wire = observed([call()], [record(other), record()])
    assert wire["changes"] == []
    assert wire["extra_calls"] == 1


def test_of_two_requests_of_one_build_the_one_with_our_text_is_ours():
    plain = {"model": "gpt-4o", "messages": [{"role": "user", "content": "long text"}]}
    other = {"model": "gpt-4o", "messages": [{"role": "user", "content": "summarise"}]}
    wire = observed([call(request=plain)], [record(other), record(plain)])
    assert wire["text_changed"] is False


class Cents:
    """A cent per prompt token on the small model; no price for others."""

    def cost(self, usage, model):
        return usage.input_tokens / 100 if model == "small" else None


def test_what_a_proxy_asks_on_its_own_account_is_on_the_bill():
    other = {"model": "small", "messages": [{"role": "user", "content": "summarise"}]}
    extra = record(other, usage=Usage(7, 3))
    (own,) = added_calls([call(usage=Usage(10, 2), cost=0.5)], [extra, record(), record(status=500)], Cents())
    assert (own.account, own.model, own.usage, own.cost) == ("compressor", "small", Usage(7, 3), 0.07)
    assert usage_of([call(usage=Usage(10, 2), cost=0.5), own]) == {
        "input_tokens": 17,
        "output_tokens": 5,
        "cost": pytest.approx(0.57),
        "calls": 2,
    }
    assert added_calls([call()], [record()], Cents()) == []
    assert added_calls([call(), call()], [record()], Cents()) == []
    assert [own.cost for own in added_calls([call()], [record(), record()], Cents())] == [None]  # no price is known


@pytest.mark.parametrize(
    ("policy", "params", "text_changed"),
    [("full", 1, True), ("redacted", 0, True), ("meta", 0, True)],
)
def test_hashes_that_cannot_be_compared_are_not(policy, params, text_changed):
    changed = {**BODY, "messages": [BODY["messages"][0], {"role": "user", "content": "short"}], "user": "x"}
    sent = {**BODY, "user": "y"}
    seen = record(changed, policy=policy, tokens=8)
    if policy != "full":
        seen.facts["params"] = {**seen.facts["params"], "user": "keyed"}
        seen.facts["texts"] = []
    wire = observed([call(request=sent)], [seen])
    assert wire["param_changes"] == params
    assert wire["role_changes"] == 0
    assert wire["text_changed"] is text_changed


def test_another_wire_is_one_change_not_twenty():
    body = {
        "model": "claude",
        "max_tokens": 5,
        "system": "brief",
        "messages": [{"role": "user", "content": "long text"}],
    }
    wire = observed([call()], [record(body, wire="anthropic")])
    assert wire["changes"] == [{"kind": "wire", "detail": "openai-chat → anthropic"}]
    assert wire["param_changes"] == 0


def test_records_without_anatomy_are_not_compared():
    seen = record()
    seen.facts = {"unread": "the body is not a JSON object"}
    assert observed([call()], [seen])["changes"] == []
    assert "changes" not in observed([call(request=None)], [record()])


def test_truncation_needs_an_exact_count_and_a_provider_that_tells():
    assert observed([call()], [record(tokens=100, usage=Usage(79))])["truncated"]
    assert not observed([call()], [record(tokens=100, usage=Usage(80))])["truncated"]
    assert not observed([call()], [record(tokens=100, usage=Usage(10), exact=False)])["truncated"]
    assert not observed([call()], [record(tokens=100, usage=None)])["truncated"]


def test_late_requests_are_added_to_a_closed_row():
    wire = observed([call()], [record(bytes_in=100)])
    joined, tokens = with_late(wire, 10, [record(tokens=5, bytes_in=50, late=True), record(wire="models")])
    assert tokens == joined["forwarded"] == 15
    assert (joined["calls"], joined["extra_calls"], joined["late"], joined["other_calls"], joined["bytes"]) == (
        2,
        1,
        2,
        1,
        150,
    )


def test_a_late_request_is_the_first_that_was_seen_of_a_row():
    wire = {**observed([call()], []), "source": "usage"}
    joined, tokens = with_late(wire, 77, [record(tokens=5)])
    assert (tokens, joined["source"], joined["calls"], joined["extra_calls"]) == (5, "tap", 1, 0)
    same, tokens = with_late(wire, 77, [record(wire="models")])
    assert (tokens, same["source"]) == (77, "usage")
