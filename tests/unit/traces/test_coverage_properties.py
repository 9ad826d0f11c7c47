"""What must hold of scored traces, whatever the trace: from events to figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from context_bench.core.ledger import LineTable, merged
from context_bench.traces.coverage import (
    LEVELS,
    Definition,
    Definitions,
    Level,
    Score,
    Selection,
    score,
    selections,
)
from context_bench.traces.figures import means, means_by
from context_bench.traces.gold import Gold, GoldItem
from context_bench.traces.trace_rows import score_from_json, score_to_json
from context_bench.transcripts.trace import Event, Trace

NAMES = ("a.py", "src/b.py")
TEXT = b"".join(b"\n" if n % 5 == 0 else b"  \t\n" if n % 7 == 0 else b"line %d\n" % n for n in range(1, 41))
BLANK = {n for n in range(1, 41) if n % 5 == 0 or n % 7 == 0}


class Tree:
    """Two files of forty lines, twelve of them blank; a definition every eight lines."""

    def paths(self):
        return NAMES

    def table(self, path):
        return LineTable.of(TEXT) if path in NAMES else None

    def definitions(self, path, profile):
        starts = LineTable.of(TEXT).starts
        return Definitions(Definition("f", (f"f{n}",), starts[n], starts[n + 7]) for n in range(0, 40, 8))


reads = st.builds(
    Event,
    step=st.integers(1, 6),
    call_id=st.none(),
    kind=st.sampled_from(["read", "search", "list", "exec", "edit"]),
    tool=st.just("t"),
    path=st.sampled_from([*NAMES, "gone.py", "../a.py"]),
    ranges=st.none()
    | st.just("all")
    | st.lists(st.tuples(st.integers(-2, 45), st.integers(-2, 45)), max_size=2).map(tuple),
    strength=st.sampled_from(["shown", "listed", "claimed"]),
    ok=st.booleans(),
    turn=st.none() | st.integers(1, 3),
)
runs = st.lists(reads, max_size=6).map(lambda events: Trace("i", events=sorted(events, key=lambda one: one.step)))
golds = st.lists(
    st.builds(GoldItem, st.sampled_from(NAMES), st.integers(1, 20), st.integers(20, 44)), min_size=1, max_size=2
).map(lambda items: Gold("i", items))


def scored(gold, trace, **options):
    steps, final = selections(trace)
    return score(gold, steps, Tree(), final=final, **options)


@given(golds, runs)
def test_every_figure_of_a_trace_is_a_share(gold, trace):
    found = scored(gold, trace)
    for level in (*found.final.values(), found.nonblank):
        assert all(value is None or 0 <= value <= 1 for value in (level.coverage, level.precision, level.f1))
    for figures in (found.auc, found.auc_turns or {}):
        for name, auc in figures.items():
            assert auc is None or auc <= (found.final[name].coverage or 0) + 1e-12
    for figures in (found.redundancy, found.redundancy_turns or {}):
        assert all(value is None or 0 <= value < 1 for value in figures.values())


@given(golds, runs, reads)
def test_an_event_more_never_lowers_coverage(gold, trace, extra):
    more = replace(trace, events=[*trace.events, replace(extra, step=9)])
    before, after = scored(gold, trace), scored(gold, more)
    for name in LEVELS:
        assert (before.final[name].coverage or 0) <= (after.final[name].coverage or 0)
    assert (before.nonblank.coverage or 0) <= (after.nonblank.coverage or 0)


@given(golds, runs, st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_change_final_figures(gold, trace, order):
    steps = list(range(1, 7))
    order.shuffle(steps)
    events = [replace(event, step=steps[event.step - 1]) for event in trace.events if event.kind != "edit"]
    mixed = replace(trace, events=sorted(events, key=lambda one: one.step))
    one = scored(gold, replace(trace, events=[event for event in trace.events if event.kind != "edit"]))
    other = scored(gold, mixed)
    assert (one.final, one.nonblank, one.redundancy) == (other.final, other.nonblank, other.redundancy)


@given(golds, runs)
def test_how_calls_are_batched_does_not_change_the_curve_by_turn(gold, trace):
    looked = [
        replace(event, turn=event.turn or 4) for event in trace.events if event.kind in ("read", "search", "list")
    ]
    batched = replace(
        trace, events=[replace(event, step=event.turn) for event in sorted(looked, key=lambda one: one.turn)]
    )
    single = replace(batched, events=[replace(event, step=n) for n, event in enumerate(batched.events, 1)])
    one, other = scored(gold, batched), scored(gold, single)
    assert (one.auc_turns, one.redundancy_turns, one.num_turns) == (
        other.auc_turns,
        other.redundancy_turns,
        other.num_turns,
    )
    if one.num_turns is not None:
        assert one.auc == one.auc_turns  # every turn is one call there


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 40)), unique=True, max_size=8), golds)
def test_reads_that_share_nothing_have_no_redundancy(places, gold):
    trace = Trace(
        "i", events=[Event(n, None, "read", "t", path, ((line, line),)) for n, (path, line) in enumerate(places, 1)]
    )
    found = scored(gold, trace).redundancy
    assert found["line"] == found["span"] == (0.0 if places else None)


@given(golds, runs)
def test_blank_lines_weigh_nothing(gold, trace):
    found = scored(gold, trace)
    wanted = {(item.file, n) for item in gold.items for n in range(item.first, min(item.last, 40) + 1)}
    table = LineTable.of(TEXT)
    read = set()
    for event in trace.events:
        if (
            event.ok
            and event.strength == "shown"
            and event.kind != "edit"
            and event.path in NAMES
            and event.ranges is not None
        ):
            pairs = table.everything() if event.ranges == "all" else table.clamp(event.ranges)
            read |= {(event.path, n) for first, last in pairs for n in range(first, last + 1)}
    full = {place for place in wanted if place[1] not in BLANK}
    seen = {place for place in read if place[1] not in BLANK}
    level = found.nonblank
    assert (level.gold_size, level.pred_size, level.intersection) == (len(full), len(seen), len(full & seen))
    assert found.final["line"].intersection == len(wanted & read)


@given(golds, runs, st.integers(1, 40), st.integers(0, 10))
def test_a_longer_cap_never_lowers_coverage(gold, trace, longest, more):
    short, long, free = (scored(gold, trace, longest=cap).final for cap in (longest, longest + more, None))
    for name in ("span", "line"):
        assert (short[name].coverage or 0) <= (long[name].coverage or 0) <= (free[name].coverage or 0)
    assert short["file"] == free["file"]


def test_a_read_above_the_cap_is_one_of_the_file_alone():
    gold = Gold("i", [GoldItem("a.py", 1, 10)])
    steps = [Selection(spans=[("a.py", "all")]), Selection(spans=[("a.py", [(1, 5), (8, 9)])])]
    found = score(gold, steps, Tree(), longest=5)
    assert found.final["line"].pred_size == 7
    assert found.steps[0] == {"file": 1.0, "symbol": 0.0, "span": 0.0, "line": 0.0}
    assert "reads of more than 5 lines, counted as reads of the file alone: 1" in found.notes
    with pytest.raises(ValueError, match="longest is 0"):
        score(gold, steps, Tree(), longest=0)


def test_turns_and_steps_without_one_are_never_taken_for_each_other():
    events = [
        Event(1, None, "read", "t", "a.py", ((1, 1),), turn=2),
        Event(2, None, "read", "t", "a.py", ((2, 2),)),
        Event(3, None, "read", "t"),
    ]
    trace = Trace("i", events=events)
    assert len(selections(trace, by="turn")[0]) == 3
    found = scored(Gold("i", [GoldItem("a.py", 1, 2)]), trace)
    assert (found.num_turns, found.num_steps) == (3, 3)
    assert scored(Gold("i", [GoldItem("a.py", 1, 2)]), Trace("i", events=events[1:])).auc_turns is None


@given(st.binary(max_size=30) | st.text("a \t\r\n\x0c", max_size=30).map(str.encode))
def test_blank_lines_are_those_without_anything(data):
    lines = data.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    table = LineTable.of(data)
    blank = {n for first, last in table.blank for n in range(first, last + 1)}
    assert blank == {n for n, line in enumerate(lines, 1) if not line.strip()}
    assert merged(table.blank) == list(table.blank)


@given(golds, runs)
def test_a_score_written_and_read_again_is_the_same(gold, trace):
    found = scored(gold, trace)
    assert score_from_json(score_to_json(found)) == found


def test_means_by_language():
    def row(name, coverage):
        level = Level(coverage, coverage, 1, 2, 2)
        return Score(
            name,
            "strict",
            final=dict.fromkeys(LEVELS, level),
            nonblank=level,
            auc_turns=dict.fromkeys(LEVELS, coverage),
        )

    rows = [row("a", 1.0), row("b", 0.5), row("c", 0.0), Score("d", "strict", error="no_gold")]
    found = means_by(["go", "python", "go", None], rows, ["r1", "r2", "r1", "r3"])
    assert {name: one.rows for name, one in found.items()} == {"": 1, "go": 2, "python": 1}
    assert found["go"].figures["macro.coverage.line"].value == 0.5
    assert found["go"].figures["macro.coverage.line_nonblank"].value == 0.5
    assert found["python"].figures["macro.auc_turns.line"].value == 0.5
    assert found[""].errors == {"no_gold": 1}
    assert found["go"].figures == means([rows[0], rows[2]], ["r1", "r1"]).figures
    with pytest.raises(ValueError, match="1 groups for 4 scores"):
        means_by(["go"], rows)
    with pytest.raises(ValueError, match="1 repositories for 4 scores"):
        means_by(["go"] * 4, rows, ["r"])
