"""Which session a request belongs to: told by the client, or by its key and what it continues."""

import json

import pytest

from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.traffic.watch.session_context import Sessions, session_in_headers
from context_bench.wire.apis import parse_request, wire_of

SYSTEM = {"role": "system", "content": "You are helpful."}


def made(body, headers=(), path="/v1/chat/completions", status=200):
    exchange = Exchange(
        1, "1", "POST", path, [("Authorization", "Bearer sk-one-0123456789"), *headers], UNMATCHED, 0.0, 0.0
    )
    exchange.status, exchange.digest = status, json.dumps(body).encode()
    return exchange, parse_request(wire_of("POST", path), body)


def chat(*texts, first="user"):
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return {
        "model": "m",
        "messages": [SYSTEM, *({"role": roles[i % 2], "content": text} for i, text in enumerate(texts))],
    }


def place(sessions, body, *args, reply=b"", **more):
    exchange, request = made(body, *args, **more)
    found = sessions.place(exchange, request, reply)
    return found.session.label, found.turn, found.repeat


@pytest.mark.parametrize(
    ("headers", "body", "told"),
    [
        ([("X-Claude-Code-Session-Id", "abc")], {}, "x-claude-code-session-id=abc"),
        ([("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1")], {}, "x-session-id=ses_1"),
        ([("session_id", "s-1"), ("conversation_id", "c-1")], {"prompt_cache_key": "k"}, "session_id=s-1"),
        ([], {"prompt_cache_key": "k"}, "k"),
        ([], {"conversation": {"id": "conv_1"}}, "conv_1"),
        ([], {"conversation": "conv_2"}, "conv_2"),
        ([], {"metadata": {"user_id": "user_1a_account_2b_session_3c-4d"}}, "3c-4d"),
        ([], {"metadata": {"user_id": '{"device_id":"d","session_id":"5e"}'}}, "5e"),
        ([], {"metadata": {"session_id": "6f"}}, "6f"),
        ([], {"metadata": {"user_id": "somebody"}}, None),
        ([], {"metadata": {"user_id": "{broken"}}, None),
        ([], {"metadata": "odd", "conversation": 7, "prompt_cache_key": ["x"]}, None),
        ([], {"user": "somebody"}, None),
    ],
)
def test_what_clients_call_their_session(headers, body, told):
    exchange, request = made({"messages": [], **body}, headers)
    assert session_in_headers(exchange, request.params) == told


def test_a_told_session_stays_one_whatever_is_sent():
    sessions = Sessions()
    head = [("session_id", "one")]
    assert place(sessions, chat("a"), head)[1:] == (1, False)
    assert place(sessions, chat("x", "y", "z"), head)[1:] == (2, False)
    assert place(sessions, chat("a"), [("session_id", "two")])[1:] == (1, False)


def test_without_a_name_a_session_is_what_continues():
    sessions = Sessions()
    one, other = place(sessions, chat("a")), place(sessions, chat("b"))
    assert one[0] != other[0]
    assert place(sessions, chat("a", "fine", "c")) == (one[0], 2, False)
    assert place(sessions, chat("b", "fine", "c")) == (other[0], 2, False)
    assert place(sessions, chat("a", "fine", "c", "so", "d")) == (one[0], 3, False)


def test_two_conversations_that_begin_alike_are_two_and_go_on_as_two():
    sessions = Sessions()
    one, other = place(sessions, chat("a")), place(sessions, chat("a"))
    assert one[0] != other[0]
    first = place(sessions, chat("a", "fine", "c"))
    second = place(sessions, chat("a", "well", "c"))
    assert {first[0], second[0]} == {one[0], other[0]}
    assert place(sessions, chat("a", "well", "c", "so", "d"))[0] == second[0]


def test_a_client_that_rewrites_its_history_stays_in_its_session():
    sessions = Sessions()
    one = place(sessions, chat("a"))
    place(sessions, chat("a", "fine", "c", "so", "d"))
    assert place(sessions, chat("a", "[summary]", "e")) == (one[0], 3, False)


def test_another_key_is_another_session():
    sessions = Sessions()
    one = place(sessions, chat("a"))
    exchange, request = made(chat("a", "fine", "c"))
    exchange.headers = [("Authorization", "Bearer sk-two-0123456789")]
    assert sessions.place(exchange, request).session.label != one[0]


def test_a_second_try_is_a_repeat_and_keeps_its_turn():
    sessions = Sessions()
    one = place(sessions, chat("a"), status=500)
    assert place(sessions, chat("a")) == (one[0], 1, True)
    assert place(sessions, chat("a", "b", "c")) == (one[0], 2, False)
    assert place(sessions, chat("a", "b", "c")) == (one[0], 2, True)


def test_a_repeat_is_known_by_what_it_means_and_tells_how_the_one_before_failed():
    sessions = Sessions()
    exchange, request = made(chat("a"), status=404)
    exchange.meaning = b"the same"
    assert sessions.place(exchange, request).after is None
    for status, after in ((429, "404"), (200, "429")):
        again, request = made(chat("a"), status=status)
        again.digest, again.meaning = str(status).encode(), b"the same"
        found = sessions.place(again, request)
        assert (found.turn, found.repeat, found.after) == (1, True, after)


def test_responses_that_refer_to_earlier_ones_stay_together():
    sessions = Sessions()
    one = place(sessions, {"input": "a"}, path="/v1/responses", reply=b'{"id": "resp_1", "object": "response"}')
    other = place(sessions, {"input": "b"}, path="/v1/responses")
    assert other[0] != one[0]
    assert place(sessions, {"input": "c", "previous_response_id": "resp_1"}, path="/v1/responses") == (one[0], 2, False)


def test_labels_say_nothing_of_names_and_keys():
    sessions = Sessions()
    label = place(sessions, chat("a"), [("session_id", "secret-name")])[0]
    assert label.startswith("s1-")
    assert len(label) == 9
    assert (
        Sessions().place(*made(chat("a"), [("session_id", "secret-name")])).session.label != label
    )  # keyed anew by every watch


def test_old_sessions_are_forgotten():
    sessions = Sessions(most=2)
    first = place(sessions, chat("a"))
    for text in ("b", "c"):
        place(sessions, chat(text))
    assert place(sessions, chat("a", "fine", "c"))[0] != first[0]
