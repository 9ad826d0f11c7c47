"""Whose call it was: tokens, windows, late calls, conflicts, and how marks leave a request."""

import re

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.ledger import Mark
from context_bench.core.machine import ManualClock
from context_bench.tap.exchange import UNMATCHED, FoundMark, Windows, find_marks, unmarked_target, without_marks

REAL = "sk-real-upstream-key"


def found(*keys: str, named: tuple[str, ...] = ()) -> FoundMark:
    return FoundMark(frozenset(keys), frozenset(named))


def test_a_conversation_keeps_its_token_and_others_get_their_own():
    windows = Windows()
    first, _ = windows.begin("a")
    windows.close(first)
    again, _ = windows.begin("a")
    other, _ = windows.begin("b")
    elsewhere, _ = windows.begin("a", owner="another run")
    assert first == again
    assert len({first.token, other.token, elsewhere.token}) == 3
    assert re.fullmatch(r"cb-[0-9a-f]{40}", first.token)


def test_two_taps_never_make_the_same_token():
    assert Windows().begin("a")[0] != Windows().begin("a")[0]


def test_owner_and_conversation_are_not_mixed_up():
    windows = Windows()
    assert windows.begin("c", owner="ab")[0] != windows.begin("bc", owner="a")[0]


def test_each_begin_opens_a_new_window():
    windows = Windows()
    mark, _ = windows.begin("a")
    first = windows.match(found(mark.token)).window
    windows.close(mark)
    windows.begin("a")
    second = windows.match(found(mark.token)).window
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (1, 2)


def test_key_wins_over_header_and_says_that_authorization_came_through():
    windows = Windows()
    mark, _ = windows.begin("a")
    by_key = windows.match(found(mark.token, named=(mark.token,)))
    by_header = windows.match(found(named=(mark.token,)))
    assert (by_key.by, by_key.authorization) == ("key", True)
    assert (by_header.by, by_header.authorization) == ("header", False)


def test_a_mark_sent_as_header_says_nothing_about_authorization():
    windows = Windows("header")
    mark, _ = windows.begin("a")
    assert mark.mode == "header"
    match = windows.match(found(named=(mark.token,)))
    assert (match.by, match.authorization) == ("header", None)


def test_without_a_mark_the_only_open_window_gets_the_request():
    windows = Windows()
    mark, _ = windows.begin("a")
    match = windows.match(found())
    assert (match.by, match.authorization, match.token) == ("serial", False, mark.token)
    windows.begin("b")
    assert windows.match(found()) is UNMATCHED


def test_nothing_is_guessed_without_a_window():
    assert Windows("serial").match(found()) is UNMATCHED


@pytest.mark.parametrize("named", [("unknown",), ("cb-" + "0" * 40,), ("",)])
def test_a_foreign_mark_is_never_taken_for_the_open_window(named):
    windows = Windows()
    windows.begin("a")
    match = windows.match(found(named=named))
    assert (match.window, match.by, match.ours) == (None, "none", False)


def test_contradicting_marks_are_unmatched():
    windows = Windows()
    a, _ = windows.begin("a")
    b, _ = windows.begin("b")
    match = windows.match(found(a.token, named=(b.token,)))
    assert (match.window, match.by) == (None, "none")


def test_late_calls_join_for_five_seconds():
    clock = ManualClock()
    windows = Windows(clock=clock)
    mark, _ = windows.begin("a")
    assert not windows.match(found(mark.token)).late
    windows.close(mark)
    clock.time += 5.0
    late = windows.match(found(mark.token))
    assert late.late
    assert late.window is not None
    clock.time += 0.001
    gone = windows.match(found(mark.token))
    assert (gone.window, gone.by, gone.token, gone.ours) == (None, "none", mark.token, True)


def test_a_late_call_goes_to_the_window_that_is_open_now():
    windows = Windows()
    mark, _ = windows.begin("a")
    windows.close(mark)
    windows.begin("a")
    match = windows.match(found(mark.token))
    assert not match.late
    assert match.window is not None
    assert match.window.number == 2


def test_late_serial_calls_join_only_if_one_window_can_be_meant():
    clock = ManualClock()
    windows = Windows("serial", clock=clock)
    first, _ = windows.begin("a")
    windows.close(first)
    late = windows.match(found())
    assert (late.by, late.late, late.token) == ("serial", True, first.token)
    second, _ = windows.begin("b")
    windows.close(second)
    assert windows.match(found()) is UNMATCHED
    clock.time += 6
    assert windows.match(found()) is UNMATCHED


def test_a_window_is_closed_once():
    windows = Windows()
    mark, _ = windows.begin("a")
    windows.close(mark)
    with pytest.raises(BadInput, match="restarted"):
        windows.close(mark)
    with pytest.raises(BadInput):
        windows.close(Mark("key", "cb-" + "1" * 40))
    assert windows.open == 0


def test_an_abandoned_window_is_closed_by_the_next_begin():
    windows = Windows()
    mark, nothing = windows.begin("a")
    window = windows.match(found(mark.token)).window
    _, abandoned = windows.begin("a")
    assert nothing is None
    assert abandoned is window
    assert windows.open == 1


def test_many_conversations_leave_nothing_behind():
    clock = ManualClock()
    windows = Windows(clock=clock)
    for number in range(2_000):
        mark, _ = windows.begin(str(number))
        windows.close(mark)
        clock.time += 1.0
        windows.match(found())
    assert len(windows._latest) <= 7
    assert len(windows._closing) <= 7


def test_unknown_marker():
    with pytest.raises(BadInput, match="key, header, serial"):
        Windows("body")


def test_tokens_are_signed():
    windows = Windows()
    token = windows.begin("a")[0].token
    forged = token[:-1] + ("0" if token[-1] != "0" else "1")
    assert windows.made(token)
    assert not windows.made(forged)
    assert not windows.made("cb-" + "a" * 40)
    assert not Windows().made(token)


TOKEN = "cb-" + "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("name", "value", "swapped"),
    [
        ("Authorization", f"Bearer {TOKEN}", f"Bearer {REAL}"),
        ("authorization", TOKEN, REAL),
        ("X-API-Key", TOKEN, REAL),
        ("api-key", TOKEN, REAL),
        ("x-goog-api-key", TOKEN, REAL),
    ],
)
def test_a_marked_key_is_swapped_or_goes(name, value, swapped):
    headers = [("Accept", "*/*"), (name, value), ("X-Other", "1")]
    assert find_marks(headers) == found(TOKEN)
    assert without_marks(headers, REAL) == [("Accept", "*/*"), (name, swapped), ("X-Other", "1")]
    assert without_marks(headers, None) == [("Accept", "*/*"), ("X-Other", "1")]


def test_our_header_and_moved_keys_always_go():
    headers = [("X-Context-Bench", "anything"), ("X-Forwarded-Authorization", f"Bearer {TOKEN}"), ("A", "b")]
    assert find_marks(headers) == found(TOKEN, named=("anything",))
    for key in (REAL, None):
        assert without_marks(headers, key) == [("A", "b")]


def test_a_key_of_the_proxy_itself_gives_way_only_to_a_given_key():
    headers = [("Authorization", "Bearer proxy-own")]
    assert without_marks(headers, REAL) == [("Authorization", f"Bearer {REAL}")]
    assert without_marks(headers, None) == headers
    assert without_marks([], REAL) == []


def test_marks_in_the_query():
    target = f"/v1beta/models/g:generateContent?key={TOKEN}&alt=sse"
    assert find_marks([], target) == found(TOKEN)
    assert unmarked_target(target, "a key&") == "/v1beta/models/g:generateContent?key=a%20key%26&alt=sse"
    assert unmarked_target(target, None) == "/v1beta/models/g:generateContent?alt=sse"
    assert unmarked_target(f"/x?key={TOKEN}", None) == "/x"
    assert unmarked_target("/x?b=%20&a", REAL) == "/x?b=%20&a"


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Authorization", "x-api-key", "API-Key", "X-Context-Bench", "cookie", "X-A", "x-b"]),
        st.sampled_from(["", "a", TOKEN, f"Bearer {TOKEN}", f"x{TOKEN},{TOKEN}", "Bearer other"]),
    ),
    max_size=6,
)


@given(HEADERS, st.sampled_from([None, REAL]))
def test_no_mark_ever_stays_and_nothing_is_added(headers, key):
    left = without_marks(headers, key)
    assert find_marks(left) == found()
    names = [name for name, _ in headers]
    assert [name for name, _ in left] == [name for name in names if name in {n for n, _ in left}] or len(left) < len(
        headers
    )
    untouched = [pair for pair in headers if pair[0] in ("X-A", "x-b", "cookie") and TOKEN not in pair[1]]
    assert [pair for pair in left if pair[0] in ("X-A", "x-b", "cookie")] == untouched
