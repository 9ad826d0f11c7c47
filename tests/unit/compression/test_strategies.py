"""The table of the 40-turn session to the last printed digit, and the same six strategies on recorded ones."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from context_bench.compression.cache_strategies import (
    PROFILES,
    made_up,
    passthrough,
    simulate_strategies,
    strategies_for,
    summary,
    turns_of,
    window,
)
from context_bench.core.errors import BadInput
from context_bench.datasets import sessions
from context_bench.transcripts.session import Session, conversation
from context_bench.wire.cache import CacheProfile

#: Strategy, token saving, CPS, PS, breaks, and cost ratios under the three billings, as published with the
#: specification.
TABLE = """
passthrough | 0 | .954 | 1.000 | 0 | 1.00 | 1.00 | 1.00
window of last 10 turns | 52 | .278 | .360 | 30 | 2.20 | 2.63 | 3.09
summary at 16k, keep 3 turns | 54 | .870 | .933 | 3 | 0.77 | 0.79 | 0.82
clip each tool result one turn later | 52 | .902 | .926 | 39 | 0.71 | 0.71 | 3.52
clip tool result before first send | 41 | .955 | 1.000 | 0 | 0.67 | 0.64 | 0.63
query-aware half of history each turn | 44 | .851 | .218 | 39 | 0.95 | 1.00 | 4.14
"""
ROWS = [line.split(" | ") for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("position", range(6), ids=[row[0] for row in ROWS])
def test_the_published_table(position):
    found = [simulate_strategies(None, profile)[position] for profile in PROFILES.values()]
    row = found[0]
    printed = (
        row.token_saving * 100,
        row.cacheable_prefix_share,
        row.prefix_stability,
        row.prefix_breaks,
        *(one.cost_ratio for one in found),
    )
    name, *expected = ROWS[position]
    assert row.strategy == name
    digits = (0, 3, 3, 0, 2, 2, 2)
    assert [round(value, places) for value, places in zip(printed, digits, strict=True)] == [
        float(text) for text in expected
    ]


def test_passthrough_is_the_measure():
    row = simulate_strategies()[0]
    assert (row.token_saving, row.cost_ratio, row.cache_penalty, row.break_even) == (0, 1, 0, None)
    assert row.tokens == 896_000


def test_break_even_of_the_first_summary():
    """At the first rewrite 16,900 tokens of history, 2,000 unchanged: one summary of 1,000 tokens for eleven turns of
    1,000.
    """
    row = simulate_strategies(None, PROFILES["+ write 1.25"])[2]
    assert row.break_even == pytest.approx((1.25 - 0.1) / 0.1 * (16_900 - 2_000 - 10_000) / 10_000 - 1)


@pytest.mark.parametrize("name", sessions.bundled())
def test_recorded_sessions(name):
    session = sessions.load_session(name)
    turns = turns_of(session)
    prompts = passthrough(turns)
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))
    rows = simulate_strategies(session, PROFILES["automatic"])
    assert [row.prefix_breaks for row in rows][0::4] == [0, 0]  # left alone, and clipped before it is first sent
    assert rows[0].cost_ratio == 1
    assert all(row.token_saving > 0.1 for row in rows[1:])
    assert rows == simulate_strategies(session, PROFILES["automatic"])


@given(st.integers(1, 12), st.integers(1, 5))
def test_a_window_holds_the_head_and_the_last_turns(count, last):
    session = made_up(count, head=100, given=100, answered=50)
    for t, prompt in enumerate(window(session, last)):
        assert prompt[:2] == session.head
        assert session.tokens(prompt) == 100 + min(t, last - 1) * 150 + 100


def test_a_summary_keeps_under_its_limit_where_it_can():
    session = made_up(30, head=100, given=100, answered=50)
    assert max(map(session.tokens, summary(session, limit=1000, keep=2, size=50))) <= 1000


def test_short_sessions_have_strategies_too():
    session = Session(
        "s",
        "s",
        "openai-chat",
        conversation(
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"},
                {"role": "user", "content": "Bye"},
            ]
        ),
    )
    assert len(simulate_strategies(session, CacheProfile(m=1, b=1))) == len(strategies_for(turns_of(session))) == 6
    with pytest.raises(BadInput, match="no turn"):
        turns_of(Session("empty", "s", "openai-chat"))
