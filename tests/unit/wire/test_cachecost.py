"""Prefix metrics, cache models and the break-even of a rewrite, against the recorded vectors and by property."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.wire.cache import CacheProfile, break_even_turns, common_prefix, prefix_cache

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text())
prompts = st.lists(st.lists(st.integers(0, 3), max_size=30), min_size=1, max_size=6)


@pytest.mark.parametrize("case", VECTORS["prefix_cache"], ids=lambda case: case["id"])
def test_recorded_sessions(case):
    found = prefix_cache(case["prompts"], case["output_tokens"], case["profile"]).as_dict()
    for key, value in case["expected"].items():
        assert found[key] == (value if isinstance(value, list) else pytest.approx(value, abs=1e-9)), key


@pytest.mark.parametrize("case", VECTORS["rewrite_break_even"])
def test_recorded_break_even(case):
    expected = case["expected_break_even_turns"]
    arguments = {key: value for key, value in case.items() if key != "expected_break_even_turns"}
    assert break_even_turns(**arguments) == pytest.approx(expected, abs=1e-9)


def test_break_even_at_half_price_reads_and_free_writes_is_at_once():
    assert break_even_turns(100, 0, 50, 0.5, None) == pytest.approx(0.0)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix_is_the_plain_definition(a, b):
    plain = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == plain


@given(prompts, st.sampled_from(["block", "unit"]), st.integers(1, 8), st.integers(1, 4), st.sampled_from([None, 1.25]))
def test_every_token_is_billed_exactly_once(session, mode, m, b, w):
    found = prefix_cache(session, [1] * len(session), CacheProfile(mode=mode, m=m, b=b, w=w))
    assert found.read + found.write + found.uncached == sum(map(len, session))
    assert found.uncached >= 0
    assert found.cached_per_request[0] == 0
    assert all(cached <= len(prompt) for cached, prompt in zip(found.cached_per_request, session, strict=True))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=2, max_size=6))
def test_a_session_that_only_grows_is_stable(chunks):
    session = [[token for chunk in chunks[: i + 1] for token in chunk] for i in range(len(chunks))]
    found = prefix_cache(session, [0] * len(session), CacheProfile(m=1, b=1))
    assert found.prefix_stability == pytest.approx(1.0)
    assert (found.prefix_breaks, found.rewritten_tokens) == (0, 0)


def test_an_entry_dies_with_its_lifetime_and_lives_on_with_each_use():
    same = [list(range(10))] * 4
    rules = CacheProfile(mode="unit", m=1, ttl=60.0)
    assert prefix_cache(same, [0] * 4, rules, times=[0, 50, 100, 200]).cached_per_request == [0, 10, 10, 0]


def test_faults_are_named():
    with pytest.raises(BadInput, match="no field 'price'"):
        prefix_cache([[1]], [0], {"price": 3})
    with pytest.raises(BadInput, match="2 prompts but 1"):
        prefix_cache([[1], [1]], [0], CacheProfile())
    with pytest.raises(BadInput, match="removes nothing"):
        break_even_turns(10, 0, 0, 0.1, 1.25)
