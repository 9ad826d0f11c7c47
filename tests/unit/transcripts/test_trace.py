from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from context_bench.core.records import Usage
from context_bench.transcripts.trace import (
    KINDS,
    PROVENANCES,
    STRENGTHS,
    Event,
    Trace,
    dump_traces,
    parse_traces,
)

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
ranges = (
    st.none() | st.just("all") | st.lists(st.tuples(st.integers(-5, 99), st.integers(-5, 99)), max_size=3).map(tuple)
)
events = st.builds(
    Event,
    step=st.integers(1, 9),
    call_id=st.none() | text,
    kind=st.sampled_from(KINDS),
    tool=text,
    path=st.none() | text,
    ranges=ranges,
    provenance=st.sampled_from(PROVENANCES),
    strength=st.sampled_from(STRENGTHS),
    ok=st.booleans(),
    truncated=st.booleans(),
    sidechain=st.booleans(),
    t=st.none() | st.floats(0, 1e9),
    tokens_before=st.none() | st.integers(0, 10**6),
    raw_ref=st.none() | text,
    symbols=st.lists(text, max_size=2).map(tuple),
    turn=st.none() | st.integers(1, 9),
)
traces = st.builds(
    Trace,
    instance_id=text,
    agent=text,
    model=st.none() | text,
    events=st.lists(events, max_size=4),
    patch=st.none() | text,
    final=st.none() | st.lists(events, max_size=2),
    usage=st.none() | st.builds(Usage, st.integers(0, 99), st.none() | st.integers(0, 99)),
    cost=st.none() | st.floats(0, 99),
    cwd=st.none() | text,
    skipped=st.dictionaries(text, st.integers(1, 9), max_size=2).map(Counter),
    notes=st.lists(text, max_size=2),
    steps=st.none() | st.integers(0, 20),
)


@given(st.lists(traces, max_size=3))
def test_a_trace_written_and_read_again_is_the_same(written):
    lines = list(dump_traces(written))
    assert all(line.count(b"\n") == 1 for line in lines)
    assert list(parse_traces(lines)) == written


def test_what_is_no_trace_is_counted_or_refused():
    good = next(dump_traces([Trace("a")]))
    bad = [b"{", b"[1]", b'{"instance_id": "x"}', b'{"instance_id": "x", "events": [{"step": 1}]}', b"\xff"]
    skipped: Counter[str] = Counter()
    assert [trace.instance_id for trace in parse_traces([*bad, b"\n", good], skipped)] == ["a"]
    assert sum(skipped.values()) == len(bad)
    with pytest.raises(ValueError, match="not an event"):
        list(parse_traces([bad[3]]))


@pytest.mark.parametrize(
    "change", [{"kind": "guess"}, {"ranges": [[1]]}, {"ranges": [["a", 2]]}, {"ranges": 3}, {"strength": 1}]
)
def test_an_event_with_values_of_its_own_is_refused(change):
    with pytest.raises(ValueError, match="expected"):
        Event.from_json(Event(1, None, "read", "Read", "a", ((1, 2),)).to_json() | change)


def test_a_lone_surrogate_of_a_log_does_not_stop_the_writing():
    (line,) = dump_traces([Trace("a", notes=["\ud800"])])
    assert next(parse_traces([line])).notes == ["?"]


def test_steps_are_those_seen_or_those_said():
    assert Trace("a").step_count == 0
    assert Trace("a", events=[Event(3, None, "exec", "Bash")]).step_count == 3
    assert Trace("a", events=[Event(3, None, "exec", "Bash")], steps=7).step_count == 7
