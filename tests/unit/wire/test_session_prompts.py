"""The prompts of a session: their lengths, and what each pair shares at its start, against the plain definition."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from context_bench.wire.cache import Prompts, common

SEGMENTS = st.lists(st.tuples(st.sampled_from(["user", "tool"]), st.text("abc ", max_size=6)), max_size=6)


@given(st.lists(SEGMENTS, min_size=2, max_size=5), st.booleans())
def test_pairs_share_what_their_texts_share(session, again):
    prompts = Prompts(len, again=again)
    assert [prompts.add(each) for each in session] == [sum(len(text) for _, text in each) for each in session]
    for s, one in enumerate(session):
        for t, other in enumerate(session):
            whole, partial = common(one, other)
            assert prompts.shared(s, t) == sum(len(text) for _, text in one[:whole]) + partial


@pytest.mark.parametrize("again", [False, True])
def test_each_text_is_counted_once(again):
    counted = []
    prompts = Prompts(lambda text: counted.append(text) or 3, again=again)
    for turns in range(1, 30):
        prompts.add([("user", f"message {number}") for number in range(turns)])
    assert len(counted) == 29
    assert prompts.lengths == [3 * turns for turns in range(1, 30)]
    assert prompts.shared(4, 20) == 15


def test_the_same_text_in_another_role_is_no_prefix():
    prompts = Prompts(len)
    prompts.add([("system", "be brief"), ("user", "hi")])
    prompts.add([("user", "be brief"), ("user", "hi")])
    assert prompts.shared(0, 1) == 0
