from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from context_bench.core.ledger import LineTable
from context_bench.traces.coverage import (
    LEVELS,
    STRICT,
    UPSTREAM,
    Definition,
    Definitions,
    Resolver,
    Selection,
    prediction,
    score,
    selections,
    step_statistics,
)
from context_bench.traces.gold import Gold, GoldItem
from context_bench.transcripts.trace import Event, Trace

NAMES = ("a.py", "src/b.py", "src/deep/c.py")


class Files:
    """Three files of 30 lines; a definition every ten lines, one around the first two."""

    text = b"".join(b"line %d\n" % n for n in range(1, 31))

    def __init__(self, blind=False):
        self.blind = blind

    def paths(self):
        return NAMES

    def table(self, path):
        return LineTable.of(self.text) if path in NAMES else None

    def definitions(self, path, profile):
        if self.blind:
            return None
        starts = LineTable.of(self.text).starts
        return Definitions(
            [
                *(Definition("f", (f"f{n}",), starts[n], starts[n + 9] - 1) for n in (0, 10, 20)),
                Definition("c", ("c",), 0, starts[19]),
            ]
        )


ranges = st.lists(st.tuples(st.integers(-2, 40), st.integers(-2, 40)), min_size=1, max_size=3)
selection = st.builds(
    Selection,
    files=st.lists(st.sampled_from([*NAMES, "gone.py", "../a.py"]), max_size=2),
    spans=st.lists(st.tuples(st.sampled_from([*NAMES, "gone.py"]), ranges | st.just("all") | st.none()), max_size=3),
)
items = st.lists(
    st.builds(GoldItem, st.sampled_from(NAMES), st.integers(1, 15), st.integers(15, 35)), min_size=1, max_size=3
)
golds = st.builds(
    Gold,
    st.just("i"),
    items,
    st.lists(st.builds(GoldItem, st.sampled_from(NAMES), st.integers(1, 9), st.integers(9, 12)), max_size=2),
)


@given(golds, st.lists(selection, max_size=5), st.sampled_from([STRICT, UPSTREAM]))
def test_shares_are_shares(gold, steps, policy):
    if policy.upstream:  # its sizes may be below zero where a range is reversed
        steps = [
            Selection(
                s.files, [(p, [(min(r), max(r)) for r in rs] if isinstance(rs, list) else rs) for p, rs in s.spans]
            )
            for s in steps
        ]
    result = score(gold, steps, Files(), policy=policy)
    if result.error:
        return
    for level in result.final.values():
        assert all(value is None or 0 <= value <= 1 for value in (level.coverage, level.precision, level.f1))
        assert level.intersection <= min(level.gold_size, level.pred_size)
    for name in LEVELS:
        auc, red, final = result.auc[name], result.redundancy[name], result.final[name].coverage
        assert auc is None or final is None or auc <= final + 1e-12
        assert red is None or 0 <= red < 1
        less = result.redundancy_excluding_after_edit[name]
        assert less is None or red is None or less <= red + 1e-12


@given(golds, st.lists(selection, max_size=4), selection)
def test_reading_more_never_lowers_coverage(gold, steps, extra):
    before, after = (score(gold, some, Files()).final for some in (steps, [*steps, extra]))
    for name in LEVELS:
        assert (before[name].coverage or 0) <= (after[name].coverage or 0)


@given(golds, st.lists(selection, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_steps_does_not_change_the_end(gold, steps, order):
    mixed = list(steps)
    order.shuffle(mixed)
    one, other = score(gold, steps, Files()), score(gold, mixed, Files())
    assert one.final == other.final
    assert one.redundancy == other.redundancy
    curve = [step["line"] for step in one.steps]
    assert curve == sorted(curve)


@given(golds)
def test_steps_that_share_nothing_are_not_redundant(gold):
    steps = [Selection(spans=[(name, [(1, 30)])]) for name in NAMES]
    assert set(score(gold, steps, Files()).redundancy.values()) == {0.0}


def plain(gold_lines, reads):
    """Line figures by counting, without ranges."""
    seen, total, curve = set(), 0, []
    for read in reads:
        total += len(read)
        seen |= read
        curve.append(len(seen & gold_lines) / len(gold_lines))
    return curve, (1 - len(seen) / total) if total else None


def test_a_curve_is_what_counting_line_by_line_gives():
    rng = random.Random(5)
    for _ in range(60):
        gold = Gold("i", [GoldItem("a.py", n, n + rng.randrange(4)) for n in rng.sample(range(1, 27), 3)])
        gold_lines = {n for item in gold.items for n in range(item.first, item.last + 1)}
        pairs = [
            [(n, min(30, n + rng.randrange(9))) for n in rng.sample(range(1, 31), rng.randrange(1, 4))]
            for _ in range(rng.randrange(1, 7))
        ]
        reads = [{n for first, last in some for n in range(first, last + 1)} for some in pairs]
        result = score(gold, [Selection(spans=[("a.py", some)]) for some in pairs], Files())
        curve, redundancy = plain(gold_lines, reads)
        assert [step["line"] for step in result.steps] == pytest.approx(curve)
        assert result.auc["line"] == pytest.approx(sum(curve) / len(curve))
        assert result.redundancy["line"] == pytest.approx(redundancy)


def test_reading_a_file_again_after_an_edit_is_no_waste():
    gold = Gold("i", [GoldItem("a.py", 1, 10)])
    steps = [Selection(spans=[("a.py", [(1, 10)])]), Selection(spans=[("a.py", [(1, 10)])], edited={"a.py"})]
    result = score(gold, steps, Files())
    assert result.redundancy["line"] == 0.5
    assert result.redundancy_excluding_after_edit["line"] == 0.0


def test_curves_over_tokens_and_time():
    gold = Gold("i", [GoldItem("a.py", 1, 10)])
    steps = [
        Selection(spans=[("a.py", [(1, 5)])], tokens=100, t=10.0),
        Selection(spans=[("a.py", [(6, 10)])], tokens=300, t=30.0),
    ]
    result = score(gold, steps, Files(), started=0.0, ended=40.0, tokens=400)
    assert result.auc_tokens["line"] == pytest.approx((200 * 0.5 + 100 * 1.0) / 400)
    assert result.auc_seconds["line"] == pytest.approx((20 * 0.5 + 10 * 1.0) / 40)
    assert result.first_gold == {"step": 1, "tokens": 100, "seconds": 10.0}
    unknown = score(gold, [Selection(spans=[("a.py", [(1, 5)])])], Files())
    assert unknown.auc_tokens is None
    assert unknown.auc_seconds is None


def test_usage_drop_is_what_was_seen_and_not_kept():
    gold = Gold("i", [GoldItem("a.py", 1, 10)])
    steps = [Selection(spans=[("a.py", [(1, 8)])]), Selection(spans=[("src/b.py", [(1, 2)])])]
    drop = score(gold, steps, Files(), final=Selection(spans=[("a.py", [(1, 2)])])).usage_drop
    assert drop["seen"]["line"] == 0.75
    assert drop["seen"]["file"] == 0.0
    assert drop["last_step"]["line"] is None
    assert score(gold, steps, Files()).usage_drop is None
    assert (
        score(gold, steps, Files(), final=Selection(files=["a.py"]), policy=UPSTREAM).usage_drop["last_step"]["line"]
        == 1.0
    )


def test_paths_that_are_nobodys_are_counted_once_a_step():
    step = Selection(files=["gone.py"], spans=[("gone.py", [(1, 2)]), ("a.py", [(1, 2)])])
    assert score(Gold("i", [GoldItem("a.py", 1, 10)]), [step, step], Files()).unresolved == {"gone.py": 2}


def test_without_grammars_symbols_are_unknown_not_full():
    gold = Gold("i", [GoldItem("a.py", 1, 10)])
    result = score(gold, [Selection(spans=[("a.py", "all")])], Files(blind=True))
    assert result.final["symbol"].coverage is None
    assert (result.auc["symbol"], result.redundancy["symbol"], result.steps[0]["symbol"]) == (None, None, None)
    assert result.final["line"].coverage == 1.0
    assert any("extra" in note for note in result.notes)


def test_gold_regions_are_scored_apart():
    gold = Gold("i", [GoldItem("a.py", 1, 10)], [GoldItem("src/b.py", 1, 10)])
    regions = score(gold, [Selection(spans=[("a.py", [(1, 5)])])], Files()).regions
    assert regions["init"]["line"].coverage == 0.5
    assert regions["add"]["line"].coverage == 0.0


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.py", "a.py"),
        ("./src/../src/b.py", "src/b.py"),
        ("/testbed/a.py", "a.py"),
        ("/workspace/o__r/a.py", "a.py"),
        ("/home/me/repo/a.py", "a.py"),
        ("/home/me/other/a.py", None),
        ("/somewhere/src/b.py", "src/b.py"),
        ("lib/a.py", None),
        ("../a.py", None),
        ("/home/me/repo/../a.py", None),
        ("src\\b.py", "src/b.py"),
        ("a.py\0", None),
        ("", None),
        ("/", None),
    ],
)
def test_paths_in_logs(path, found):
    assert Resolver(NAMES, "/home/me/repo").resolve(path) == found


def test_an_ending_that_two_files_share_is_nobodys():
    paths = ["x/y/a.py", "y/a.py"]
    assert Resolver(paths).resolve("/root/x/y/a.py") is None
    assert Resolver(["x/y/a.py"]).resolve("/root/x/y/a.py") == "x/y/a.py"


def test_steps_of_a_trace():
    events = [
        Event(1, "1", "read", "Read", "a.py", ((1, 5),), turn=1),
        Event(2, "2", "search", "Grep", "src/b.py", None, "structured", "listed", turn=1),
        Event(3, "3", "edit", "Edit", "a.py", ((2, 2),), "edit", turn=2),
        Event(4, "4", "read", "Read", "a.py", ((1, 9),), ok=False, turn=3),
        Event(5, "5", "other", "TodoWrite", turn=3),
        Event(6, "6", "read", "Read", "a.py", "all", t=5.0, tokens_before=70, turn=4),
    ]
    trace = Trace("i", events=events)
    steps, final = selections(trace)
    assert [(step.files, step.edited) for step in steps] == [
        (["a.py"], set()),
        ([], set()),
        ([], {"a.py"}),
        (["a.py"], set()),
    ]
    assert (steps[3].t, steps[3].tokens, final) == (5.0, 70, None)
    assert [step.files for step in selections(trace, count=("shown", "listed"))[0]][1] == ["src/b.py"]
    assert [step.files for step in selections(trace, by="turn")[0]] == [["a.py"], [], ["a.py"]]
    assert [step.spans for step in selections(trace, count=("shown", "edits"))[0]][2] == [("a.py", ((2, 2),))]
    numbers = step_statistics(trace)
    assert numbers["calls"] == {"edit": 1, "other": 1, "read": 3, "search": 1}
    assert (numbers["steps"], numbers["failed_reads"], numbers["files_edited"]) == (6, 1, 1)
    result = score(Gold("i", [GoldItem("a.py", 1, 10)]), steps, Files(), patch="what is this")
    assert result.lines_per_step == (5 + 30) / 2
    assert "patch_unreadable" in result.notes
    assert not result.unresolved


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["files", "spans", "pred_steps", "pred_files", "pred_spans", "pred_symbols", "start", "end", "a.py"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_prediction_is_read(value):
    steps, final = prediction(value if isinstance(value, dict) else {"pred_steps": value})
    score(Gold("i", [GoldItem("a.py", 1, 2)]), steps, Files(), final=final)


pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


@given(pairs, pairs)
def test_touched_definitions_are_those_that_looking_at_each_finds(places, spans):
    found = Definitions(Definition("f", (), start, end) for start, end in places)
    wanted = {(s, e) for s, e in places if any(first <= e and last >= s for first, last in spans)}
    assert {(one.start, one.end) for one in found.touched(spans)} == wanted
