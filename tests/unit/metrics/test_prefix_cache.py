"""Cache metrics and bills of sessions, against the pure functions of core and against sums by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from context_bench.metrics.cache_pricing import CacheFigures, Costs, SessionCache, SessionCost, session_cost
from context_bench.wire.cache import CacheProfile, Prompts, segments, session_cache
from context_bench.wire.request import Part, WireMessage, WireRequest


class Letters:
    """Counts letters, so that sums can be done in the head."""

    name, exact = "letters", True

    def count(self, text):
        return len(text)


def request(*texts, marked=()):
    parts = [
        Part("text", text, cache_control={"type": "ephemeral"} if place in marked else None)
        for place, text in enumerate(texts)
    ]
    return WireRequest("anthropic", "m", [WireMessage("user", [part]) for part in parts])


SESSIONS = st.lists(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5), min_size=1, max_size=6)


@given(
    SESSIONS, st.sampled_from(["block", "unit"]), st.integers(1, 6), st.integers(1, 3), st.sampled_from([None, 1.25])
)
def test_request_by_request_is_what_the_whole_session_gives(texts, mode, m, b, w):
    profile = CacheProfile(mode=mode, m=m, b=b, w=w)
    found = SessionCache(profile, Letters())
    prompts = Prompts(len)
    for each in texts:
        found.add(request(*each))
        prompts.add(segments(request(*each)))
    whole = session_cache(prompts.lengths, prompts.shared, [0] * len(texts), profile)
    figures = found.figures
    assert (figures.read, figures.write, figures.uncached) == (whole.read, whole.write, whole.uncached)
    assert found.read_per_request == whole.cached_per_request
    assert (figures.prefix_breaks, figures.rewritten_tokens) == (whole.prefix_breaks, whole.rewritten_tokens)
    assert figures.prompt_cost(profile) == pytest.approx(whole.cost_usd)
    for name in ("prefix_stability", "cacheable_prefix_share"):
        assert getattr(figures, name) == (pytest.approx(value) if (value := getattr(whole, name)) is not None else None)


def test_only_marked_prefixes_are_stored_where_the_rules_say_so():
    profile = CacheProfile(mode="unit", m=4, w=1.25)
    turns = [(("aaaa", "bbbb"), (0,)), (("aaaa", "bbbb", "cccc"), (0,)), (("aaaa", "bbbb", "cccc", "d"), ())]
    marked, plain = SessionCache(profile, Letters(), marked=True), SessionCache(profile, Letters())
    for texts, marks in turns:
        marked.add(request(*texts, marked=marks))
        plain.add(request(*texts))
    assert marked.read_per_request == [0, 4, 0]
    assert plain.read_per_request == [0, 8, 12]
    assert (marked.figures.read, marked.figures.write, marked.figures.uncached) == (4, 4, 8 + 12 + 13 - 8)


def test_entries_die_by_the_recordings_own_clock():
    profile = CacheProfile(m=1, b=1, ttl=300)
    for timed, expected in ((True, [0, 4, 0]), (False, [0, 4, 8])):
        found = SessionCache(profile, Letters(), timed=timed)
        for texts, at in ((("aaaa",), 0.0), (("aaaa", "bbbb"), 200.0), (("aaaa", "bbbb", "c"), 900.0)):
            found.add(request(*texts), at)
        assert found.read_per_request == expected


def test_sessions_add_up():
    one, two = CacheFigures(2, 30, 10, 5, 20, 1, 0.5, 1, 3), CacheFigures(3, 60, 20, 0, 40, 2, 2.0, 0, 0)
    both = one + two
    assert (both.requests, both.tokens, both.uncached) == (5, 90, 55)
    assert both.prefix_stability == pytest.approx(2.5 / 3)
    assert both.cacheable_prefix_share == pytest.approx(0.5)
    assert "prefix_stability" not in CacheFigures(requests=1, tokens=4).as_dict()


def test_a_bill_by_hand():
    profile = CacheProfile(p_in=2.0, p_out=10.0, r=0.1, w=1.25)
    sent = CacheFigures(requests=2, tokens=1_000_000, read=400_000, write=100_000)
    forwarded = CacheFigures(requests=2, tokens=500_000)
    cost = session_cost(sent, forwarded, 20_000, profile, extra_tokens=10_000, extra_output=1_000)
    assert cost.alone == pytest.approx(2 * (0.5 + 0.04 + 0.125) + 0.2)
    assert cost.extra == pytest.approx(0.02 + 0.01)
    assert cost.through == pytest.approx(1.0 + 0.2 + 0.03)
    assert cost.token_saving == pytest.approx(0.49)


def test_ratios_of_sums_and_means_of_ratios_are_told_apart():
    found = Costs([SessionCost(1000, 500, 10.0, 20.0), SessionCost(100, 100, 1.0, 1.0)]).as_dict()
    assert found["net_cost_ratio"] == pytest.approx(21 / 11)
    assert found["net_cost_ratio_mean"] == pytest.approx(1.5)
    assert found["token_saving"] == pytest.approx(500 / 1100)
    assert found["token_saving_mean"] == pytest.approx(0.25)
    assert found["cache_penalty"] == pytest.approx(21 / 11 - 600 / 1100)
    assert found["cache_penalty_mean"] == pytest.approx(0.75)
    assert Costs().as_dict() == {"alone_usd": 0, "through_usd": 0, "extra_calls_usd": 0, "sessions": 0}
