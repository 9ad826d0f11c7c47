"""What the tap remembers of the baseline's replies, within its limits."""

import asyncio
import gc
import random
import tracemalloc

import pytest

from context_bench.core.ledger import BaselinePairing, Mark
from context_bench.tap.exchange import Exchange, MarkMatch, MarkWindow
from context_bench.tap.untouched import BaselineReplies

JSON = ("content-type", "application/json")


def exchange(
    pairing,
    body,
    *,
    headers=(JSON,),
    reply=b"{}",
    status=200,
    reply_headers=(JSON,),
    owner="",
    late=False,
    token="cb-0",
):
    window = MarkWindow(1, Mark("key", token), owner, pairing)
    match = MarkMatch(window, "key", "cb-0", late=late)
    made = Exchange(1, "x", "POST", "/v1/chat/completions", list(headers), match, 0.0, 0.0)
    made.body.add(0.0, body)
    made.reply.add(0.1, reply)
    made.status, made.reply_headers, made.answered = status, list(reply_headers), 0.1
    window.arrivals.append(made)
    return made


def incompressible(size):
    return random.Random(size).randbytes(size)


def arm(name="a", number=1, *, arms=2, body=b'{"a":1}', **more):
    """A request of an arm that is compared with the baseline, in a window of its own."""
    return exchange(BaselinePairing(name, arms=arms), body, token=f"cb-{number}", **more)


def first(name="a", **more):
    return BaselinePairing(name, first=True, **more)


def asked(replies, made):
    return asyncio.run(replies.answering(made))


def remembered(replies, name="a", body=b'{"a":1}', *, arms=None, **more):
    made = exchange(first(name, arms=arms), body, **more)
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
        remembered(replies, str(number), reply=incompressible(400))
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
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    ours = [
        tracemalloc.Filter(True, name) for name in ("*/context_bench/*", __file__)
    ]  # not what Python keeps of names
    held = sum(trace.size for trace in snapshot.filter_traces(ours).traces)
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


STREAM = [f'data: {{"choices":[{{"delta":{{"content":"word {n}"}},"index":0}}]}}\n\n'.encode() for n in range(200)]
MANY = [("x-odd", "caf\udce9 \n"), *((f"x-header-{n}", f"value {n}") for n in range(8)), JSON]


def test_a_reply_comes_back_piece_by_piece_as_it_was():
    replies = BaselineReplies(plain=True)
    made = exchange(first(), b'{"a":1}', reply=STREAM[0], reply_headers=MANY)
    for number, piece in enumerate([*STREAM[1:], b"\n", b"", bytes(range(256))]):
        made.reply.add(0.2 + number, piece)
    asked(replies, made)
    replies.remember(made)
    found = asked(replies, arm())
    assert found.pieces == tuple(piece for _, piece in made.reply.pieces)
    assert (found.status, found.headers) == (200, MANY)


def test_a_stream_is_kept_packed():
    replies = BaselineReplies(plain=True)
    made = exchange(first(), b'{"a":1}', reply=b"", reply_headers=MANY)
    for piece in STREAM:
        made.reply.add(0.2, piece)
    asked(replies, made)
    replies.remember(made)
    assert 0 < replies.held < made.reply.size / 4


@pytest.mark.parametrize("size", [0, 1, 128 * 1024 - 200, 128 * 1024, 128 * 1024 + 1, 300_000])
def test_a_reply_of_any_size_comes_back(size):
    replies = BaselineReplies(plain=True)
    remembered(replies, reply=incompressible(size))
    assert b"".join(asked(replies, arm()).pieces) == incompressible(size)


def test_a_reply_that_is_more_than_the_room_drives_no_other_out():
    replies = BaselineReplies(plain=True, most=4_000)
    remembered(replies, "kept")
    remembered(replies, "large", reply=incompressible(5_000))
    remembered(replies, "zeros", reply=bytes(5_000))
    assert asked(replies, arm("kept")) is not None
    assert asked(replies, arm("large")) is None


def test_a_reply_is_forgotten_once_every_arm_has_asked():
    replies = BaselineReplies(plain=True)
    for number in range(3_000):
        remembered(replies, str(number), arms=2)
        for other in (1, 2):
            made = arm(str(number), other)
            assert asked(replies, made) is not None
            replies.close(made.window)
            assert (replies.held == 0) == (other == 2)
    remembered(replies, "again", arms=2)
    assert asked(replies, arm("again")) is not None


@pytest.mark.parametrize(
    "ends",
    [
        lambda: arm(number=1),  # the same piece of work twice
        lambda: arm(number=2, status=503),
        lambda: arm(number=2, owner="somebody else"),
        lambda: arm("b", number=2),
        lambda: exchange(first(), b'{"a":1}'),
        lambda: exchange(None, b'{"a":1}'),
        lambda: arm(number=2, arms=None),  # from a program that tells no number
    ],
)
def test_no_other_end_of_a_window_forgets_it(replies, ends):
    remembered(replies)
    replies.close(arm(number=1).window)
    held = replies.held
    replies.close(ends().window)
    assert replies.held == held > 0
    replies.close(arm(number=3).window)
    assert replies.held == 0


def test_an_arm_whose_requests_never_arrive_keeps_nothing(replies):
    remembered(replies)
    for number in (1, 2):
        window = arm(number=number).window
        window.arrivals.clear()
        replies.close(window)
    assert replies.held == 0


def test_an_arm_that_fails_first_and_is_answered_then_has_asked(replies):
    remembered(replies)
    made = arm(arms=1, status=503)
    made.window.arrivals.append(arm())
    replies.close(made.window)
    assert replies.held == 0


def test_where_no_other_arm_takes_the_example_nothing_is_kept(replies):
    remembered(replies, arms=0)
    assert replies.held == 0


def test_what_is_held_is_counted_whatever_comes_in_which_order(replies):
    drawn, names = random.Random(5), [str(number) for number in range(12)]
    for _ in range(2_000):
        name = drawn.choice(names)
        if drawn.random() < 0.5:
            body = b'{"a":%d}' % drawn.randrange(3)
            remembered(replies, name, body, reply=drawn.randbytes(drawn.randrange(300)))
        else:
            replies.close(arm(name, drawn.randrange(4), arms=3).window)
    for name in names:
        for number in range(4):
            replies.close(arm(name, number, arms=3).window)
    assert replies.held == 0
