"""Re-reads by hand, and against a count line by line."""

from hypothesis import given, strategies as st

from context_bench.transcripts.trace import Event, Rereads, rereads


def read(path, ranges, **more):
    return Event(1, None, "read", "Read", path, ranges, **more)


def edit(path):
    return Event(1, None, "edit", "Edit", path, ((1, 1),), "edit", "claimed")


def test_what_was_shown_before_and_not_edited_since_is_read_again():
    events = [
        read("a", ((1, 10),)),
        read("a", ((3, 5),)),
        read("a", ((8, 12),)),
        edit("a"),
        read("a", ((3, 5),)),
        read("b", ((3, 5),)),
    ]
    assert rereads(events) == Rereads(reads=5, again=1, lines=10 + 3 + 5 + 3 + 3, lines_again=3 + 3)


def test_whole_files_count_as_reads_and_hold_every_line():
    events = [read("a", "all"), read("a", "all"), read("a", ((1, 4),)), edit("a"), read("a", "all")]
    assert rereads(events) == Rereads(reads=4, again=2, lines=4, lines_again=4)


def test_what_was_not_shown_does_not_count():
    events = [
        read("a", ((1, 4),), ok=False),
        read("a", ((1, 4),), strength="listed"),
        read("a", None),
        read(None, ((1, 2),)),
        read("a", ((1, 4),)),
    ]
    assert rereads(events) == Rereads(1, 0, 4, 0)
    assert rereads([]).redundancy is None


SPAN = st.tuples(st.integers(1, 30), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
STEP = st.one_of(
    st.tuples(st.sampled_from("ab"), st.lists(SPAN, min_size=1, max_size=3).map(tuple)), st.sampled_from("ab")
)


@given(st.lists(STEP, max_size=20))
def test_line_by_line(steps):
    known, reads, again, lines, repeated = {"a": set(), "b": set()}, 0, 0, 0, 0
    events = []
    for step in steps:
        if isinstance(step, str):
            known[step] = set()
            events.append(edit(step))
            continue
        path, spans = step
        shown = {line for first, last in spans for line in range(first, last + 1)}
        reads, again = reads + 1, again + (shown <= known[path])
        lines, repeated = lines + len(shown), repeated + len(shown & known[path])
        known[path] |= shown
        events.append(read(path, spans))
    assert rereads(events) == Rereads(reads, again, lines, repeated)
