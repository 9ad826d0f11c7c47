"""Evaluators of memories: what applies where, and what they say."""

from typing import Any

import pytest

from context_bench.core.errors import BadInput
from context_bench.evaluators import BUILTINS, Abstention, AnswerVariants, LocomoOfficial, MemoryUse, Retrieval, Updates
from context_bench.memory.evaluators.retrieval import declines, why_not
from context_bench.memory.protocol import Item, conversation, packed

ITEMS = [Item(f"D{s}:{t}", f"turn {t} of sitting {s}", session=f"s{s}") for s in (1, 2, 3) for t in (1, 2, 3)]


def example(**more: Any) -> dict[str, Any]:
    made = {
        "id": 1,
        "question": "Where does Ana work?",
        "items": packed(ITEMS),
        "context": conversation(ITEMS),
        "evidence": ["D1:1", "D2:2"],
    }
    return {name: value for name, value in {**made, **more}.items() if value is not None}


def output(*sources: list[str] | str, tokens: int | None = 10, **more: Any) -> dict[str, Any]:
    hits = [
        {"text": f"hit {n}", "source_ids": one if isinstance(one, list) else [one] if one else [], "tokens": tokens}
        for n, one in enumerate(sources)
    ]
    return {"hits": hits, "provenance": "ids", **more}


def test_fields_are_exactly_what_is_scored() -> None:
    own = Retrieval(ks=(1, 3), budgets=(15,))
    found = own.score(example(), output("D3:1", "D1:1", "D1:1"))
    assert set(found) == set(own.fields)
    assert own.fields[0] == "recall_at_3"
    assert len(own.fields) == len(set(own.fields))


def test_items_and_sessions_in_columns_of_their_own() -> None:
    found = Retrieval(ks=(1, 3), budgets=(15, 30)).score(example(), output("D2:1", "D1:1", "D1:2"))
    assert (found["recall_at_1"], found["recall_at_3"], found["all_at_3"], found["mrr"], found["map"]) == (
        0,
        0.5,
        0,
        0.5,
        0.25,
    )
    assert (found["session_recall_at_1"], found["session_all_at_3"], found["session_mrr"]) == (0.5, 1, 1)
    assert (found["recall_at_15_tokens"], found["recall_at_30_tokens"], found["session_recall_at_15_tokens"]) == (
        0,
        0.5,
        0.5,
    )
    assert (found["precision_at_3"], found["evidence_items"], found["evidence_found"]) == (pytest.approx(1 / 3), 2, 1)


def test_whole_sessions_are_scored_as_sessions_only() -> None:
    found = Retrieval(ks=(1,)).score(example(), output(["D1:1", "D1:2", "D1:3"]))
    assert found == {
        "session_hit_at_1": 1,
        "session_recall_at_1": 0.5,
        "session_all_at_1": 0,
        "session_ndcg_at_1": 1,
        "session_mrr": 1,
        "session_evidence_recall": 0.5,
    }
    told = Retrieval(ks=(1,)).score(example(), output("D1:1", granularity="session"))
    assert "recall_at_1" not in told
    assert "recall_at_1" in Retrieval(ks=(1,)).score(example(), output(["D1:1", "D1:2", "D1:3"], granularity="turn"))


def test_only_sessions_known() -> None:
    found = Retrieval(ks=(1, 2)).score(example(evidence=None, evidence_sessions=["s2"]), output("D1:1", "D2:3"))
    assert (found["session_recall_at_1"], found["session_recall_at_2"]) == (0, 1)
    assert not any(name.startswith(("recall", "mrr", "map")) for name in found)
    by_id = Retrieval(ks=(1,)).score(example(evidence=None, evidence_sessions=["s2"], items=None), output("s2"))
    assert by_id["session_recall_at_1"] == 1  # sources that are session ids themselves


@pytest.mark.parametrize(
    ("asked", "said", "why"),
    [
        (example(evidence=[]), output("D1:1"), "no evidence is known"),
        (example(evidence=None), output("D1:1"), "no evidence is known"),
        (example(), {"response": "x"}, "the system searches nothing that could be seen"),
        (example(), {**output(""), "provenance": "none"}, "hits do not say what they come from"),
        (example(), output("", ""), "hits do not say what they come from"),
        (example(), {"hits": ["text"]}, "hits without sources"),
        (
            example(items=None),
            output("D1:1", granularity="session"),
            "hits are whole sessions, and the evidence's sessions are not known",
        ),
    ],
)
def test_not_applicable_is_never_a_number(asked: dict[str, Any], said: dict[str, Any], why: str) -> None:
    own = Retrieval()
    assert why_not(asked, said) == why
    assert not own.applies(asked, said)
    assert own.score(asked, said) == {}


def test_nothing_found_is_zero() -> None:
    found = Retrieval(budgets=(5,)).score(example(), output())
    assert found["recall_at_10"] == found["mrr"] == found["recall_at_5_tokens"] == found["evidence_found"] == 0
    assert Retrieval().score(example(), output("", "D1:1"))["mrr"] == 0.5  # a hit without sources is a miss


def test_an_unanswerable_question_with_evidence_is_scored() -> None:
    assert Retrieval().score(example(answerable=False), output("D1:1"))["recall_at_1"] == 0.5


def test_hits_without_token_counts_have_no_budgets() -> None:
    assert "recall_at_5_tokens" not in Retrieval(budgets=(5,)).score(example(), output("D1:1", tokens=None))


@pytest.mark.parametrize("wrong", [{"ks": ()}, {"ks": (0,)}, {"ks": (1,), "budgets": (0,)}])
def test_ks_and_budgets_count_from_one(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Retrieval(**wrong)


def test_locomo() -> None:
    own = LocomoOfficial()
    assert (
        own.score({"category": "1", "answer": "run, swim"}, {"response": "She went running and swimming"})["locomo_f1"]
        == 0.4
    )
    assert own.score({"qa_type": "temporal", "answer": 2022}, {"response": "in 2022"})["locomo_f1"] == pytest.approx(
        2 / 3
    )
    assert own.score({"category": 5}, {"response": "That is Not Mentioned anywhere"}) == {"locomo_f1": 1.0}
    assert not own.applies({"category": 4}, {"response": "x"})
    assert not own.applies({"qa_type": "knowledge-update", "answer": "x"}, {"response": "x"})
    assert not own.applies({"category": 4, "answer": "x"}, {"hits": []})


def test_variants_differ_where_they_should() -> None:
    own = AnswerVariants()
    found = own.score({"answer": "Go", "answers": ["the Go language"]}, {"response": "It is a category. It is."})
    assert found == {"f1_cortex": 0, "f1_mem0_set": 0, "contains_text": 1}
    twice = own.score({"answer": "tea tea"}, {"response": "tea"})
    assert (twice["f1_cortex"], twice["f1_mem0_set"]) == (pytest.approx(2 / 3), 1)
    assert own.score({"answer": "x"}, {"response": None}) == dict.fromkeys(own.fields, 0)


@pytest.mark.parametrize(
    "answer",
    [
        "Not mentioned.",
        "I don't know.",
        "Sorry, but I do not know that",
        "No information available in the conversation.",
        "The conversation does not mention where Ana works.",
        "It cannot be determined from the memories.",
        "Unknown",
        "Based on the memories, there is no information about this.",
        "Sorry, I can't answer",
        "I cannot determine this from the conversation",
        "I couldn't find anything about that.",
        "I am unable to answer",
        "I have no information about that",
        "I haven't been told",
        "You never mentioned a dog.",
        "It's not specified",
        "It isn't mentioned.",
        "That information is not available",
        "No relevant information found.",
        "There isn't any information about his job.",
        "There's no mention of that.",
        "None of the memories mention it.",
        "It is unknown",
        "N/A",
    ],
)
def test_refusals(answer: str) -> None:
    assert declines(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Known to all as Ana",
        "In Lisbon. The user does not say which street.",
        "Notting Hill",
        "No",
        "She said no.",
        "The Unknown Soldier",
        "I can't eat gluten",
        "I don't have any pets",
        "There is nothing in the box",
        "He is unable to walk",
        "It was not the red one but the blue",
        "In memory of Ann",
        "Nairobi",
    ],
)
def test_answers(answer: str) -> None:
    assert not declines(answer)


def test_abstention_goes_to_the_side_it_belongs_to() -> None:
    own = Abstention()
    assert own.score({"answerable": False}, {"response": "Not mentioned"}) == {"abstained": 1, "abstention_recall": 1}
    assert own.score({"answerable": True}, {"response": "Not mentioned"}) == {"abstained": 1, "needless_abstention": 1}
    assert own.score({"answerable": True}, {"response": "Lisbon", "abstained": False}) == {
        "abstained": 0,
        "needless_abstention": 0,
    }
    assert own.score({"answerable": False}, {"response": "-", "abstained": True})["abstention_recall"] == 1
    assert not own.applies({}, {"response": "x"})
    assert not own.applies({"answerable": True}, {"hits": []})


VERSIONS = [
    {"value": "Lisbon", "source": "D1:1", "current": False},
    {"value": "Porto", "source": ["D2:1", "D2:2"], "current": True},
]


@pytest.mark.parametrize(
    ("sources", "at_1", "stale", "above"),
    [
        (["D2:1", "D1:1"], 1, 1, 1),
        (["D1:1", "D2:1"], 0, 1, 0),
        (["D3:1", "D2:2"], 0, 0, 1),
        (["D3:1", "D1:1"], 0, 1, 0),
        ([["D1:1", "D2:1"]], 1, 0, 1),
        (["D3:1"], 0, 0, None),
        ([], 0, 0, None),
    ],
)
def test_updates_by_source(sources: list[Any], at_1: float, stale: float, above: float | None) -> None:
    found = Updates().score(example(versions=VERSIONS), output(*sources))
    assert (found["current_at_1"], found["stale_in_top_k"], found.get("current_above_stale")) == (at_1, stale, above)
    assert found.get("stale_over_current") == (None if above is None else 1 - above)


def test_updates_by_words_history_and_answers() -> None:
    hits = {"hits": [{"text": "Ana moved to Porto, no longer Lisbon"}, {"text": "Ana lives in Lisbon."}]}
    found = Updates().score(example(versions=VERSIONS, as_of="2020-01-01"), {**hits, "response": "Lisbon"})
    assert (found["as_of_at_1"], found["stale_in_top_k"], found["answer_stale"], found["answer_current"]) == (
        1,
        1,
        1,
        0,
    )
    assert "current_at_1" not in found
    assert Updates().score(example(versions=VERSIONS), {"response": "Porto; before that Lisbon"}) == {
        "answer_current": 1,
        "answer_stale": 0,
    }
    assert not Updates().applies(example(versions=VERSIONS[:1]), hits)
    assert not Updates().applies(example(versions="x"), hits)


def test_memory_use_sees_junk() -> None:
    texts = [
        "Ana works at the harbour office",
        "Ana works at the harbour office.",
        "Recalled: Ana works at the harbour office",
        "Where does Ana work",
    ]
    said = {
        "hits": [{"text": text, "source_ids": ["D1:1"]} for text in texts],
        "retrieved_tokens": 5,
        "search_seconds": 0.25,
    }
    found = MemoryUse().score(example(), said)
    assert (found["hit_count"], found["near_duplicate_share"], found["duplicate_source_share"]) == (4, 0.25, 0.75)
    assert (found["recall_loop_share"], found["query_echo_share"], found["search_seconds"]) == (0.25, 0.25, 0.25)
    assert 0 < found["context_share"] < 1
    assert MemoryUse().score(example(), output())["hit_count"] == 0
    assert not MemoryUse().applies(example(), {"response": "x"})
    assert MemoryUse().score(example(), {"hits": ["odd", {"text": None, "source_ids": None}]})["hit_count"] == 2


@pytest.mark.parametrize("name", ["abstention", "answer_variants", "locomo", "memory_use", "retrieval", "updates"])
def test_they_can_be_named(name: str) -> None:
    from importlib import import_module

    module, _, attribute = BUILTINS[name].partition(":")
    made = getattr(import_module(module), attribute)()
    assert made.name == name
    assert made.fields
