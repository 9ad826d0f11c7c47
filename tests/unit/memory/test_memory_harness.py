"""Cortex's harness: which calls are made in which order, and what becomes of those that fail."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, CostCapReached
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.memory.cortex.containment import Client, recall_at_k, summarize
from context_bench.memory.cortex.harness import BenchmarkAborted, Pair, random_floor, read_pairs, run_harness

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))["harness"]


class Stub:
    """A store that writes down every call; `kind` says what it gives back."""

    def __init__(self, kind="firstk", fail_reset=(), fail_store=(), fail_recall=()):
        self.kind, self.fails = kind, {"reset": fail_reset, "store": fail_store, "recall": fail_recall}
        self.calls, self.items, self.counts = [], [], dict.fromkeys(("reset", "store", "recall"), 0)

    def note(self, *call):
        self.calls.append(list(call))
        self.counts[call[0]] += 1
        if self.counts[call[0]] in self.fails[call[0]]:
            raise RuntimeError(f"boom-{call[0]}")

    def reset(self):
        self.note("reset")
        self.items = []

    def store(self, content):
        self.note("store", content)
        self.items.append(content)

    def recall(self, query, limit):
        self.note("recall", query, str(limit))
        given = {"firstk": self.items[:limit], "lastk": self.items[::-1][:limit], "all": list(self.items), "none": None}
        return given[self.kind]


class Slow(Stub):
    """The same, awaited."""

    async def reset(self):
        super().reset()

    async def store(self, content):
        super().store(content)

    async def recall(self, query, limit):
        return super().recall(query, limit)


@pytest.mark.parametrize("kind", [Stub, Slow])
@pytest.mark.parametrize("case", VECTORS, ids=[case["id"] for case in VECTORS])
def test_recorded_runs(case, kind):
    stub = kind(case["client"], case["fail_reset_calls"], case["fail_store_calls"], case["fail_recall_calls"])
    warnings = []

    def run(**more):
        return run_harness(
            stub,
            read_pairs(case["dataset"], case["benchmark"]),
            benchmark=case["benchmark"],
            k=case["k"],
            accumulate=case["accumulate"],
            cancelled=lambda: case["cancelled_before_start"],
            on_warning=warnings.append,
            **more,
        )

    if case.get("aborted"):
        with pytest.raises(BenchmarkAborted):
            run()
        assert stub.calls == (case["calls"] or [])
        return
    found = run()
    assert json.loads(found.to_json()) == rounded(case["summary"])
    assert len(warnings) == found.recall_failures
    if "reference_defect" in case:  # the shared conversation is stored once
        stores = [call for call in case["calls"] if call[0] == "store"]
        assert [call for call in stub.calls if call[0] == "store"] == stores[: len(stores) // len(found.results)]
        stub.calls = []
        assert json.loads(run(repeat_shared=True).to_json()) == rounded(case["summary"])
    assert stub.calls == case["calls"]


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, abs=1e-12, rel=0) if isinstance(value, float) else value


PAIRS = [
    Pair("a", "q a", "gold a", ("x", "gold a", "y"), "one"),
    Pair("b", "q b", "gold b", ("z", "w", "gold b"), "two"),
]


def test_a_stub_is_a_client():
    assert isinstance(Stub(), Client)


def test_an_empty_dataset_has_a_summary_and_no_error():
    for accumulate, mode in ((False, "per-pair-reset"), (True, "accumulate")):
        found = run_harness(Stub(), [], benchmark="dmr", accumulate=accumulate)
        assert (found.name, found.total_questions, found.results, found.recall_failures, found.mode) == (
            "DMR",
            0,
            [],
            0,
            mode,
        )


def test_recall_at_a_second_depth_is_measured_and_leaves_the_first_as_it_was():
    stub = Stub()
    found = run_harness(stub, PAIRS, benchmark="mine", k=2, k2=3)
    plain = run_harness(Stub(), PAIRS, benchmark="mine", k=2)
    assert [call for call in stub.calls if call[0] == "recall"] == [["recall", "q a", "3"], ["recall", "q b", "3"]]
    assert (found.recall_at_k, found.recall_at_k2, found.k2) == (0.5, 1.0, 3)
    assert found.results == plain.results
    assert summarize("mine", plain.results, 2, k2=3).recall_at_k2 == 0.5  # without ranks it can only be copied


def test_a_smaller_second_depth_is_ignored():
    stub = Stub()
    found = run_harness(stub, PAIRS, benchmark="mine", k=2, k2=1)
    assert (found.k2, found.recall_at_k2, stub.calls[4]) == (0, 0.0, ["recall", "q a", "2"])


def test_time_over_in_a_failed_recall_aborts_and_is_no_miss(monkeypatch):
    now = 100.0
    monkeypatch.setattr(SYSTEM_CLOCK, "monotonic", lambda: now, raising=False)

    class Late(Stub):
        def recall(self, query, limit):
            nonlocal now
            assert current_ledger().deadline == 110.0
            now += 50
            raise TimeoutError("too late")

    with pytest.raises(
        BenchmarkAborted, match=r"recall for a failed \(the time allowed for the run was over\): TimeoutError: too late"
    ):
        run_harness(Late(), PAIRS, benchmark="mine", deadline=110.0)
    assert current_ledger() is None


@pytest.mark.parametrize("accumulate", [False, True])
def test_time_over_between_two_calls_ends_the_run_at_the_next(accumulate):
    stub = Stub()
    with pytest.raises(BenchmarkAborted, match="cancelled before all questions"):
        run_harness(stub, PAIRS, benchmark="mine", accumulate=accumulate, cancelled=lambda: len(stub.calls) >= 3)
    assert [call[0] for call in stub.calls] == ["reset", "store", "store"]


def test_what_is_no_list_of_texts_is_a_failed_recall():
    class Odd(Stub):
        def recall(self, query, limit):
            return [{"memory": 1}] if query == "q a" else ["gold b"]

    warnings = []
    found = run_harness(Odd(), PAIRS, benchmark="mine", on_warning=warnings.append)
    assert (found.recall_failures, found.recall_at_k) == (1, 0.5)
    assert "found a dict in it" in warnings[0]


@pytest.mark.parametrize("call", ["reset", "store", "recall"])
def test_an_order_to_stop_goes_through(call):
    stub = Stub()

    def stop(*_):
        raise CostCapReached("enough")

    setattr(stub, call, stop)
    with pytest.raises(CostCapReached):
        run_harness(stub, PAIRS, benchmark="mine")


def test_failures_are_said_on_standard_error_by_default(capsys):
    run_harness(Stub(fail_recall=(1,)), PAIRS, benchmark="mine")
    assert "mine: recall failed for a, scored as empty: RuntimeError: boom-recall" in capsys.readouterr().err


def test_progress_is_told_after_each_question():
    told = []
    run_harness(Stub(), PAIRS, benchmark="mine", on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("k", [0, -2])
def test_k_has_to_be_above_zero(k):
    with pytest.raises(BadInput, match="k is expected"):
        run_harness(Stub(), PAIRS, benchmark="mine", k=k)


def test_one_haystack_has_one_set_of_items():
    with pytest.raises(BadInput, match="'h' has other items"):
        run_harness(
            Stub(),
            [
                Pair("a", "q", "g", ("x",), conversation="h"),
                Pair("b", "q", "g", ("y",), conversation="h"),
            ],
            benchmark="mine",
        )


def test_pairs_without_a_haystack_each_bring_their_items_even_under_one_id():
    stub = Stub()
    run_harness(
        stub,
        [Pair("a", "q", "g", ("x",)), Pair("a", "q", "g", ("y",))],
        benchmark="mine",
        accumulate=True,
    )
    assert [call[1] for call in stub.calls if call[0] == "store"] == ["x", "y"]


# The floor
# ------------------------------------------------------------------------


def test_the_floor_is_one_where_everything_fits():
    assert random_floor(PAIRS, 5).recall == 1.0
    assert random_floor(PAIRS, 5).everything == 1.0
    assert random_floor(PAIRS, 1).recall == pytest.approx(1 / 3)
    assert random_floor(PAIRS, 1, accumulate=True).recall == pytest.approx(1 / 6)
    assert random_floor(PAIRS, 2).everything == 0.0
    assert random_floor([], 5).recall == 0.0
    assert random_floor([Pair("a", "q", "", ("x",))], 1).recall == 0.0


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 7))
def test_the_floor_is_the_mean_over_all_draws(hits, k):
    from itertools import combinations

    items = tuple("gold" if hit else "other" for hit in hits)
    draws = list(combinations(items, min(k, len(items))))
    expected = sum(recall_at_k(draw, "gold", k) for draw in draws) / len(draws)
    assert random_floor([Pair("a", "q", "gold", items)], k).recall == pytest.approx(expected)
