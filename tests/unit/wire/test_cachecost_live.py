"""Caches request by request agree with the whole session's arithmetic, and know marked prefixes."""

from hypothesis import given, strategies as st

from context_bench.wire.cache import CacheProfile, LiveCache, common_prefix, prefix_cache

prompts = st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=8)
profiles = st.builds(
    CacheProfile,
    mode=st.sampled_from(["block", "unit"]),
    m=st.integers(1, 5),
    b=st.integers(1, 4),
    w=st.sampled_from([None, 1.25]),
    ttl=st.sampled_from([None, 1.5]),
)


@given(prompts, profiles)
def test_request_by_request_is_the_same_as_the_whole_session(session, profile):
    live = LiveCache(profile)
    found = [live.add(len(p), lambda s, p=p: common_prefix(session[s], p), at=float(t)) for t, p in enumerate(session)]
    whole = prefix_cache(session, [0] * len(session), profile, times=[float(t) for t in range(len(session))])
    assert [read for read, _ in found] == whole.cached_per_request
    assert [written for _, written in found] == whole.written_per_request


def test_a_marked_head_is_read_although_the_history_after_it_was_rewritten():
    live = LiveCache(CacheProfile("unit", m=10, b=1, w=1.25))
    assert live.add(100, lambda s: 0, stops=(40, 100)) == (0, 100)
    assert live.add(80, lambda s: 55, stops=(40, 80)) == (40, 40)


def test_what_no_mark_covers_is_neither_stored_nor_read():
    live = LiveCache(CacheProfile("unit", m=10, b=1, w=1.25))
    assert live.add(100, lambda s: 0, stops=()) == (0, 0)
    assert live.add(120, lambda s: 100, stops=(60,)) == (0, 60)
    assert live.add(140, lambda s: 120 if s else 100, stops=()) == (0, 0)
    assert live.add(160, lambda s: [100, 120, 140][s], stops=(60, 150)) == (60, 90)


def test_a_warm_start_serves_the_first_prompt_only_and_no_further_than_its_marks():
    marked = LiveCache(CacheProfile("unit", m=10, b=1, w=1.25))
    assert marked.add(100, lambda s: 0, stops=(40, 100), warm=41) == (40, 60)
    assert marked.add(120, lambda s: 100, stops=(40, 120)) == (100, 20)
    assert LiveCache(CacheProfile("unit", m=10, b=1, w=1.25)).add(100, lambda s: 0, stops=(), warm=41) == (0, 0)
    block = LiveCache(CacheProfile("block", m=10, b=8, w=None))
    assert block.add(100, lambda s: 0, warm=41) == (40, 0)
    assert LiveCache(CacheProfile("block", m=64, b=8)).add(100, lambda s: 0, warm=41) == (0, 0)
