"""What the tap remembers of the baseline's replies, within its limits."""

import asyncio
import tracemalloc

import pytest

from context_bench.core.ledger import BaselinePairing, Mark
from context_bench.tap.exchange import Exchange, MarkMatch, MarkWindow
from context_bench.tap.untouched import BaselineReplies

JSON = ("content-type", "application/json")


def exchange(pairing, body, *, headers=(JSON,), reply=b"{}", status=200, reply_headers=(JSON,), owner="", late=False):
    window = MarkWindow(1, Mark("key", "cb-0"), owner, pairing)
    match = MarkMatch(window, "key", "cb-0", late=late)
    made = Exchange(1, "x", "POST", "/v1/chat/completions", list(headers), match, 0.0, 0.0)
    made.body.add(0.0, body)
    made.reply.add(0.1, reply)
    made.status, made.reply_headers, made.answered = status, list(reply_headers), 0.1
    return made


def first(name="a", **more):
    return BaselinePairing(name, first=True, **more)


def asked(replies, made):
    return asyncio.run(replies.answering(made))


def remembered(replies, name="a", body=b'{"a":1}', **more):
    made = exchange(first(name), body, **more)
    assert asked(replies, made) is None  # the baseline itself is always asked
    replies.remember(made)
    return made


@pytest.fixture
def replies():
    return BaselineReplies(plain=True)


def test_the_same_request_gets_the_reply_as_often_as_it_comes(replies):
    remembered(replies, reply=b'{"answer":1}')
    for _ in range(2):
        made = exchange(BaselinePairing("a"), b'{ "a" : 1 }')
        found = asked(replies, made)
        assert (found.status, found.pieces, made.copied) == (200, (b'{"answer":1}',), True)


@pytest.mark.parametrize(
    ("name", "body", "more"),
    [
        ("b", b'{"a":1}', {}),
        ("a", b'{"a":2}', {}),
        ("a", b'{"a":1.0}', {}),
        ("a", b'{"a":1}', {"headers": (JSON, ("anthropic-beta", "context-1m"))}),
        ("a", b'{"a":1}', {"owner": "somebody else"}),
        ("a", b'{"a":1}', {"late": True}),
    ],
)
def test_another_request_does_not(replies, name, body, more):
    remembered(replies)
    made = exchange(BaselinePairing(name), body, **more)
    assert asked(replies, made) is None
    assert not made.copied


def test_who_is_to_be_asked_anyway_is_only_taken_down(replies):
    before = remembered(replies)
    made = exchange(BaselinePairing("a", copies=False), b'{"a":1}')
    assert asked(replies, made) is None
    assert made.arrived_as == before.arrived_as != ""


@pytest.mark.parametrize("more", [{"status": 500}, {"status": 429}, {"status": 302}])
def test_errors_are_not_remembered(replies, more):
    remembered(replies, **more)
    assert asked(replies, exchange(BaselinePairing("a"), b'{"a":1}')) is None


def test_a_reply_that_broke_off_is_not_remembered(replies):
    made = exchange(first(), b'{"a":1}')
    asyncio.run(replies.answering(made))
    made.error = "cut off"
    replies.remember(made)
    assert asked(replies, exchange(BaselinePairing("a"), b'{"a":1}')) is None


def test_a_packed_reply_is_for_clients_that_can_read_it(replies):
    remembered(replies, reply_headers=(JSON, ("content-encoding", "gzip")))
    assert asked(replies, exchange(BaselinePairing("a"), b'{"a":1}')) is None
    packed = exchange(BaselinePairing("a"), b'{"a":1}', headers=(JSON, ("accept-encoding", "br, gzip")))
    assert asked(replies, packed) is not None


def test_of_too_many_replies_the_oldest_examples_go():
    replies = BaselineReplies(plain=True, most=4_000)
    for number in range(5):
        remembered(replies, str(number), reply=b"x" * 400)
    kept = [asked(replies, exchange(BaselinePairing(str(n)), b'{"a":1}')) is not None for n in range(5)]
    assert kept == [False, False, False, True, True]


def test_short_replies_take_no_more_than_their_room():
    """Each of ten bytes: what Python needs beside them is counted, and measured here."""
    replies = BaselineReplies(plain=True, most=400_000)
    many = (JSON, *((f"x-header-{n}", f"value {n}") for n in range(8)))
    tracemalloc.start()
    try:
        for number in range(2_000):
            remembered(replies, f"example {number}", reply=b"0123456789", reply_headers=tuple(many))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.2 * 400_000 < held < 1.5 * 400_000


def test_our_own_first_line_is_left_out_once(replies):
    mine, other = "[arm 123]\n", "[arm 456]\n"
    before = exchange(first(aside=mine), b'{"m":"[arm 123]\\n[arm 123]\\ntext"}')
    asyncio.run(replies.answering(before))
    replies.remember(before)
    same = exchange(BaselinePairing("a", aside=other), b'{"m":"[arm 456]\\n[arm 123]\\ntext"}')
    assert asked(replies, same) is not None
    assert asked(replies, exchange(BaselinePairing("a", aside=other), b'{"m":"[arm 456]\\n[arm 456]\\ntext"}')) is None


def test_keyed_digests_tell_nothing_outside_of_one_tap():
    one, two = (BaselineReplies(plain=False) for _ in range(2))
    digests = [remembered(each).arrived_as for each in (one, one, two)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("body", [b"", b"no json", b"[" * 5000, b'{"a":"\xff"}', b'{"a":NaN}'])
def test_odd_bodies_are_compared_as_they_are(replies, body):
    remembered(replies, body=body)
    assert asked(replies, exchange(BaselinePairing("a"), body)) is not None
    assert asked(replies, exchange(BaselinePairing("a"), body + b" x")) is None
