"""What rows and set-ups of memories come to, and what is said above them."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.core.records import EvalRow, SetupRecord
from context_bench.core.roles import CANDIDATE, roles_of_old_names
from context_bench.memory.figures import harm, memory_notes, setup_figures
from context_bench.memory.ranking import echoes, near_duplicates, repeats_question
from context_bench.metrics import BUILTINS, AbstentionRates, MemoryCost
from context_bench.stats.intervals import Scored, scored


def row(
    system: str = "m",
    example: int = 0,
    group: str = "h0",
    kind: str = "single",
    cost: float | None = None,
    **scores: float,
) -> EvalRow:
    usage = {} if cost is None else {"cost": cost}
    return EvalRow(
        system, example, scores, group=group, cluster=group, metadata={"qa_type": kind}, usage=usage, dataset="d"
    )


def run(values: dict[str, list[dict[str, float]]]) -> dict[str, list[EvalRow]]:
    """Two questions a haystack."""
    return {
        system: [row(system, n, f"h{n // 2}", **one) for n, one in enumerate(all_of)]
        for system, all_of in values.items()
    }


def test_latency_keeps_each_first_search_apart() -> None:
    rows = [
        row(example=n, group=f"h{n // 5}", search_seconds=9.0 if n % 5 == 0 else n / 100, answer_seconds=1.0)
        for n in range(10)
    ]
    found = MemoryCost("f1", 0.7).compute(rows)
    assert (found["search_n"], found["search_first_n"], found["search_first_p99"]) == (8, 2, 9)
    assert [found[f"search_{name}"] for name in ("p50", "p95", "p99")] == pytest.approx([0.05, 0.0865, 0.0893])
    assert found["answer_n"] == 10


def test_cost_of_facts_that_were_used() -> None:
    rows = [
        row(example=1, cost=0.01, f1=1.0, evidence_found=2, retrieved_tokens=100, context_share=0.5),
        row(example=2, cost=0.01, f1=0.2, evidence_found=2, retrieved_tokens=100, context_share=0.1),
        row(example=3, cost=0.02, f1=0.7, evidence_found=0, retrieved_tokens=100),
    ]
    found = MemoryCost().compute(rows)
    assert found["facts_used"] == 2
    assert found["tokens_per_fact_used"] == 150
    assert found["query_usd_per_fact_used"] == pytest.approx(0.02)
    assert (found["retrieved_tokens"], found["context_share"]) == (100, pytest.approx(0.3))
    assert "query_usd_per_fact_used" not in MemoryCost().compute(
        [*rows, row(example=4, f1=1.0)]
    )  # an answered row without a price
    assert MemoryCost().compute([row(f1=1.0)]) == {}
    assert "tokens_per_fact_used" not in MemoryCost(threshold=1.1).compute(rows)


def test_abstention_as_a_decision() -> None:
    rows = [row(example=n, abstention_recall=float(n < 3)) for n in range(4)]
    rows += [row(example=n, needless_abstention=float(n < 6), f1=0.5) for n in range(5, 15)]
    found = AbstentionRates().compute(rows)
    precision, recall = 3 / 4, 3 / 4
    assert (found["abstention_precision"], found["abstention_recall"]) == (precision, recall)
    assert found["abstention_f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["coverage"] == 0.9
    assert found["answered_accuracy"] == 0.5
    always = [row(example=n, abstention_recall=1.0) for n in range(4)] + [
        row(example=n, needless_abstention=1.0) for n in range(5, 15)
    ]
    declining = AbstentionRates().compute(always)
    assert (
        declining["abstention_f1"] == declining["abstention_f1_always"] == pytest.approx(found["abstention_f1_always"])
    )
    assert "answered_accuracy" not in declining
    assert AbstentionRates().compute([row(f1=1.0)]) == {}
    assert "abstention_recall" not in AbstentionRates("f1").compute([row(needless_abstention=0.0)])


def test_the_metrics_can_be_named() -> None:
    assert {"memory_cost", "abstention"} <= BUILTINS.keys()


def setup(group: str, *, system: str = "m", attempt: int = 1, error: str | None = None, **output: Any) -> SetupRecord:
    return SetupRecord(system, group, 0, int(group[1:]), attempt, 1.0, output, cost=0.5, calls=2, error=error)


def test_set_ups_count_the_attempt_that_holds_and_pay_for_all() -> None:
    records = [
        setup("h1", error="SetupFailed: x"),
        setup(
            "h1",
            attempt=2,
            items=10,
            parts=10,
            failed=1,
            bytes=1000,
            stored=9,
            probed=9,
            probe_found=6,
            seconds_add=2.0,
            seconds_flush=1.0,
        ),
        setup(
            "h2",
            items=20,
            parts=10,
            failed=0,
            bytes=3000,
            stored=10,
            probed=10,
            probe_found=9,
            seconds_add=3.0,
            seconds_flush=None,
        ),
    ]
    found = setup_figures(records)
    assert (found["items"], found["items_lost"], found["bytes"], found["stored"]) == (30, 1 / 20, 4000, 19)
    assert found["write_loss"] == pytest.approx(1 - 15 / 19)
    assert found["ingest_seconds_per_item"] == pytest.approx(6 / 30)
    assert found["bytes_per_item"] == pytest.approx(4000 / 30)
    assert (found["setup_cost"], found["setup_calls"]) == (1.5, 6)
    part = setup_figures([setup("h1", items=10), setup("h2")])
    assert "items" not in part  # one of them does not say
    assert setup_figures([]) == {}


def test_questions_are_averaged_over_trials_and_drawn_by_haystack() -> None:
    rows = [row(example=n, group=f"h{n // 2}", kind="ab"[n % 2], f1=float(n % 2)) for n in range(16) for _ in range(3)]
    (own,) = scored(rows, ["f1", "absent"]).values()
    mean = own.mean()
    assert mean is not None
    assert (mean.value, mean.n, mean.clusters) == (0.5, 16, 8)
    assert mean.low is not None
    assert mean.low < 0.5
    part = own.mean("b")
    assert part is not None
    assert (part.value, part.n) == (1, 8)
    assert own.mean("c") is None
    few = scored(rows[:12], ["f1"])["f1"].mean()
    assert few is not None
    assert few.low is None  # two haystacks
    assert own.against(Scored()) is None


def test_harm_and_help_are_paired() -> None:
    answers = ([0, 0, 1, 1, 1, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 0, 0, 0, 0, 1])
    mine, none = (
        scored([row(example=n, group=f"h{n}", f1=value) for n, value in enumerate(own)], ["f1"])["f1"]
        for own in answers
    )
    change = harm("m", mine, "none", none, 0.7)
    assert change is not None
    assert (change.harmed.value, change.helped.value, change.right_without) == (0.1, 0.5, 3)
    assert change.harmed.low is not None
    assert change.harmed.low < 0.1 < (change.harmed.high or 0)
    assert "50 %" in change.sentence
    assert "10 %" in change.sentence
    assert harm("m", Scored(), "none", none, 0.7) is None


ABOUT = {"k": [1, 5], "reader": True, "floors": ["none", "random", "full_context", "oracle"]}


def notes(values: dict[str, list[dict[str, float]]], about: dict[str, Any] = ABOUT, **more: Any) -> list[str]:
    roles = roles_of_old_names(values, None, about.get("floors"))
    return memory_notes(run(values), about, score_field="f1", roles=roles, **more)


def test_k_that_empties_the_store_comes_first() -> None:
    setups = [setup("h1", parts=5), setup("h2", parts=4), setup("h3", parts=50), setup("h1", system="random", parts=1)]
    said = notes({"m": [{"recall_at_5": 1.0}], "random": [{"recall_at_5": 1.0}]}, setups=setups)
    assert said[0].startswith("Not a headline: k = 5 returns everything in 2 of 3 haystacks (they hold 4 to 50 items)")
    assert "(m)" in said[0]
    assert "k = 1 " not in said[0]
    assert not notes({"m": [{"recall_at_5": 1.0}]}, setups=[setup("h1", parts=50)])


def test_random_picks_that_reach_everything_or_are_not_beaten() -> None:
    good = [{"recall_at_5": 1.0}] * 24
    poor = [{"recall_at_5": float(n % 3 == 0)} for n in range(24)]
    said = notes({"good": good, "poor": poor, "random": poor})
    assert len(said) == 1
    assert said[0].startswith("Not shown to be better than random picks (0.333 ")
    assert said[0].split(": ")[1].startswith("poor 0.333")
    assert "good" not in said[0]
    assert notes({"good": good, "random": good})[0].startswith("Random picks reach recall_at_5 = 1.00")


def test_sessions_where_there_are_no_items() -> None:
    same = [{"session_recall_at_5": 0.9}] * 24
    assert "session_recall_at_5 = 0.900" in notes({"m": same, "random": same})[0]


def test_a_reader_that_shows_nothing() -> None:
    weak = [{"f1": float(n % 5 == 0)} for n in range(24)]
    said = notes({"m": weak, "oracle": weak, "none": weak})
    assert "f1 = 0.208" in said[0]
    assert any("answer better with the evidence than without" in one for one in said)
    strong = [{"f1": 1.0}] * 24
    assert not notes({"m": strong, "oracle": strong, "none": [{"f1": 0.0}] * 24})
    assert not notes({"m": weak, "oracle": weak, "none": weak}, ABOUT | {"reader": False})


def test_a_whole_conversation_of_which_the_reader_makes_nothing_is_no_ceiling():
    of = {"m": [{"f1": 0.3}] * 4, "none": [{"f1": 0.1}] * 4}
    (said,) = (note for note in notes({**of, "full_context": [{"f1": 0.1}] * 4}) if "whole conversation" in note)
    assert "f1 = 0.100, without any 0.100" in said
    assert "no ceiling" in said
    assert not any("no ceiling" in note for note in notes({**of, "full_context": [{"f1": 0.2}] * 4}))


def test_a_whole_conversation_that_does_no_worse() -> None:
    said = notes(
        {"m": [{"f1": 0.5}] * 4, "n": [{"f1": 0.9}] * 4, "full_context": [{"f1": 0.5, "retrieved_tokens": 1234}] * 4}
    )
    assert len(said) == 1
    assert "1,234 tokens a question" in said[0]
    assert "m 0.500" in said[0]
    assert "n 0.900" not in said[0]


def test_harm_is_said() -> None:
    said = notes({"m": [{"f1": 0.0}, {"f1": 1.0}], "none": [{"f1": 1.0}, {"f1": 0.0}]})
    assert said == ["m: of 2 questions 50 % are right with it and wrong without any memory, 50 % the other way round."]
    assert not notes({"m": [{"f1": 1.0}, {"f1": 1.0}], "none": [{"f1": 1.0}, {"f1": 0.0}]})


def test_what_could_not_be_scored_is_counted() -> None:
    whole = {"mrr": 1.0, "session_mrr": 1.0, "hit_count": 5.0}
    said = notes(
        {
            "good": [whole] * 3,
            "sessions": [{"session_mrr": 1.0, "hit_count": 5.0}] * 3,
            "mute": [{"hit_count": 5.0}, {"hit_count": 5.0}, whole],
            "failed": [{}, {}, whole],
        }
    )
    assert len(said) == 2
    assert said[0].startswith("sessions: hits are whole sessions on 3 question(s)")
    assert said[1].startswith("mute: hits do not say what they come from on 2 question(s)")


def test_odd_input_says_nothing() -> None:
    assert memory_notes({}, {}, roles={}) == []
    assert memory_notes({"m": []}, {"k": None}, setups=[setup("h1", parts="many")], roles={"m": CANDIDATE}) == []


@given(st.lists(st.text(max_size=30), max_size=8), st.text(max_size=20))
def test_junk_is_a_share(texts: list[str], question: str) -> None:
    for share in (near_duplicates(texts), echoes(texts), repeats_question(texts, question)):
        assert 0 <= share <= 1
    assert near_duplicates([*texts, *texts]) <= 1
    assert near_duplicates(["one two three"] * 4) == 0.75
