"""The longest common prefix with what a session has sent before, against the slow way of finding it."""

import random
from itertools import takewhile

from hypothesis import given, strategies as st

from context_bench.core.keys import digest_of, packed, unpacked
from context_bench.tap.prefix import Prefixes
from context_bench.wire.cache import common, common_characters, segments
from context_bench.wire.request import Part, WireMessage, WireRequest

TEXT = st.text("ab", max_size=6)
SEGMENTS = st.lists(st.tuples(st.sampled_from(["system", "user"]), TEXT), max_size=5)


def slowly(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@given(st.text("ab\ud800é", max_size=40), st.text("ab\ud800é", max_size=40), st.text("ab", max_size=40))
def test_common_characters(head, a, b):
    assert common_characters(head + a, head + b) == slowly(head + a, head + b)


@given(SEGMENTS, SEGMENTS)
def test_common_is_the_longest(a, b):
    whole, partial = common(a, b)
    assert a[:whole] == b[:whole]
    if whole < min(len(a), len(b)):
        assert a[whole] != b[whole]
        same_kind = a[whole][0] == b[whole][0]
        assert partial == (slowly(a[whole][1], b[whole][1]) if same_kind else 0)
    else:
        assert partial == 0


@given(st.lists(SEGMENTS, min_size=1, max_size=8))
def test_shared_equals_the_best_of_all_earlier_requests(requests):
    prefixes = Prefixes()
    for number, request in enumerate(requests):
        best = None
        for other in requests[:number]:
            whole, partial = common(request, other)
            size = sum(len(text) for _, text in request[:whole]) + partial
            best = size if best is None else max(best, size)
        assert prefixes.shared("s", request, len) == best


def test_sessions_do_not_mix_and_the_first_request_has_no_answer():
    prefixes = Prefixes()
    assert prefixes.shared("a", [("user", "abc")], len) is None
    assert prefixes.shared("b", [("user", "abc")], len) is None
    assert prefixes.shared("a", [("user", "abd")], len) == 2


def noise(seed, size):
    return random.Random(seed).randbytes(size // 2).hex()


def test_memory_is_bounded_and_the_sessions_longest_unused_go_first():
    prefixes = Prefixes(20_000, each=3)
    for number in range(100):
        prefixes.shared(f"session {number % 20}", [("user", noise(number, 2_000))], len)
        assert prefixes.held <= 20_000
    assert prefixes.held > 10_000
    assert prefixes.shared(f"session {99 % 20}", [("user", noise(99, 2_000))], len) == 2_000
    assert prefixes.shared(f"session {(99 - 18) % 20}", [("user", "x")], len) is None


def test_so_many_sessions_and_so_many_requests_of_each_are_remembered():
    prefixes = Prefixes(sessions=10, each=2)
    for number in range(50):
        for text in ("aa", "bb", "cc"):
            prefixes.shared(f"s{number}", [("user", "hello"), ("user", text)], len)
    assert [prefixes.shared("s49", [("user", "hello"), ("user", text)], len) for text in ("bb", "cc")] == [7, 7]
    assert (
        prefixes.shared("s49", [("user", "hello"), ("user", "aa")], len) == 5
    )  # forgotten but for what the others share with it
    assert prefixes.shared("s40", [("user", "hello")], len) == 5
    assert prefixes.shared("s39", [("user", "hello")], len) is None


def test_what_is_sent_in_many_sessions_and_what_is_continued_is_held_once():
    one, many = Prefixes(), Prefixes()
    one.shared("s", [("system", noise(1, 100_000)), ("user", "0")], len)
    for number in range(50):
        many.shared(f"s{number}", [("system", noise(1, 100_000)), ("user", "0")], len)
        many.shared(
            f"s{number}", [("system", noise(1, 100_000)), ("user", "0"), ("assistant", "1"), ("user", "2")], len
        )
    assert many.held < 3 * one.held


@given(st.text("ab\ud800é\n", max_size=400))
def test_packed_texts_come_back(text):
    assert unpacked(packed(text)) == text


def test_digests_tell_kinds_and_texts_apart():
    assert len({digest_of(*each) for each in [("a", "b"), ("ab", ""), ("", "ab"), ("1:a", "b"), ("a\0", "b")]}) == 5


def test_a_request_larger_than_the_memory_is_answered_all_the_same():
    prefixes = Prefixes(1_500)
    assert prefixes.shared("a", [("user", noise(1, 5_000))], len) is None
    assert prefixes.shared("a", [("user", noise(1, 5_000))], len) is None
    assert prefixes.shared("a", [("user", "x")], len) is None


def test_the_order_is_tools_then_messages_and_parts_that_are_no_text_count_nothing():
    image = Part("image", raw={"data": "QUJD"})
    call = {"id": "1", "name": "f", "arguments": "{}"}
    message = WireMessage("user", [Part("text", "look"), image], [call])
    found = segments(WireRequest("openai-chat", "m", [message], tools=[{"name": "f"}]))
    assert [kind.split()[0] for kind, _ in found] == ["tools", "user", "user", "user"]
    assert found[1] == ("user", "look")
    assert found[2][1] == ""
    other = segments(
        WireRequest(
            "openai-chat", "m", [WireMessage("user", [Part("text", "look"), Part("image", raw={"data": "WFla"})])]
        )
    )
    assert other[-1] != found[2]
