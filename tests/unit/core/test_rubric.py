"""Rubrics: the recorded replies and sums, and what must never count as a score."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.rubric import aggregate_rubric, default_rubric, parse_rubric_reply, read_rubric

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text("utf-8"))
ASKED = ["accuracy_factual", "completeness_coverage"]


def result(criterion: str, score: Any) -> dict[str, Any]:
    return {"criterionId": criterion, "score": score, "reasoning": "r"}


def reply(*results: dict[str, Any]) -> str:
    return json.dumps({"criterionResults": list(results)})


def test_the_built_in_weights_are_the_recorded_ones() -> None:
    assert default_rubric().weights == VECTORS["rubric_default_weights"]


@pytest.mark.parametrize("case", VECTORS["rubric_sets"], ids=lambda case: case["id"])
def test_recorded_sums(case: dict[str, Any]) -> None:
    found = aggregate_rubric(case["scores"])
    assert found.dimensions == pytest.approx(case["expected_dimensions"], abs=1e-9)
    assert found.overall == pytest.approx(case["expected_overall"], abs=1e-9)


@pytest.mark.parametrize("case", VECTORS["rubric_judge_replies"], ids=lambda case: case["id"])
def test_recorded_replies(case: dict[str, Any]) -> None:
    found = parse_rubric_reply(case["reply"], case["requested"])
    assert (found.scores, found.missing, found.status) == (
        case["expected_scores"],
        case["expected_missing"],
        case["expected_status"],
    )


def test_the_judges_own_sums_are_not_used() -> None:
    text = json.dumps(
        {
            "criterionResults": [result(ASKED[0], 1), result(ASKED[1], 1)],
            "aggregateScore": 5,
            "dimensionScores": {"accuracy": 5},
        }
    )
    assert aggregate_rubric(parse_rubric_reply(text, ASKED).scores).overall == 1.0


@pytest.mark.parametrize("score", [True, None, 5.1, -1, "5/5", "", "nan", "٤", [4], {"a": 1}, 1e999, "1e0"])
def test_what_is_no_score(score: Any) -> None:
    found = parse_rubric_reply(reply(result(ASKED[0], score), result(ASKED[1], 2)), ASKED)
    assert (found.scores, found.status) == ({ASKED[1]: 2.0}, "partial")


@pytest.mark.parametrize(("score", "number"), [("4", 4.0), (" 3.5 ", 3.5), (0, 0.0), (5.0, 5.0)])
def test_numbers_as_text(score: Any, number: float) -> None:
    assert parse_rubric_reply(reply(result(ASKED[0], score), result(ASKED[1], 2)), ASKED).scores[ASKED[0]] == number


def test_the_same_score_twice_is_no_conflict() -> None:
    assert parse_rubric_reply(reply(result(ASKED[0], 4), result(ASKED[0], 4)), ASKED[:1]).status == "ok"


def test_an_object_in_prose_is_found() -> None:
    text = f"Set {{a, b}} was asked. Here: {reply(result(ASKED[0], 4), result(ASKED[1], 2))} Done }}."
    assert parse_rubric_reply(text, ASKED).status == "ok"


def test_a_cut_reply_with_a_whole_one_quoted_in_it_is_a_failure() -> None:
    fake = reply(result(ASKED[0], 5), result(ASKED[1], 5))
    cut = (
        '{"criterionResults":[{"criterionId":"accuracy_factual","score":1,"reasoning":"it says\n```json\n'
        + fake
        + "\n```\n"
    )
    assert parse_rubric_reply(cut, ASKED).status == "failed"
    assert parse_rubric_reply("The score is 5 of 5.", ASKED).status == "failed"


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    found = parse_rubric_reply(text, ASKED)
    assert set(found.scores) | set(found.missing) == set(ASKED)


@given(st.dictionaries(st.sampled_from([c.id for c in default_rubric().criteria]), st.floats(0, 5)))
def test_means_lie_between_their_parts(scores: dict[str, float]) -> None:
    found = aggregate_rubric(scores)
    assert (found.overall is None) == (not scores)
    if found.overall is not None:
        assert min(scores.values()) - 1e-9 <= found.overall <= max(scores.values()) + 1e-9
        assert not math.isnan(found.overall)


def test_weights_of_ones_own() -> None:
    assert aggregate_rubric({"a": 4, "b": 1, "z": 0}, {"d": {"a": 3, "b": 1}}).dimensions == {"d": 3.25}


def test_criteria_by_probe_and_all() -> None:
    rubric = default_rubric()
    assert len(rubric.asked_of("recall", "all")) == 14
    assert {c.dimension for c in rubric.asked_of("artifact")} == {
        "accuracy",
        "artifact_trail",
        "completeness",
        "instruction_following",
    }
    assert {c.dimension for c in rubric.asked_of("decision")} == {d.id for d in rubric.dimensions} - {"artifact_trail"}


def test_faults_of_a_rubric_file_are_named() -> None:
    whole = {"id": "c", "question": "?", "weight": 1, "anchors": {"0": "bad", "5": "good"}}
    assert read_rubric({"dimension": [{"id": "d", "criterion": [whole]}]}, "mine").weights == {"d": {"c": 1.0}}
    for broken, named in (({"weight": "x"}, "weight"), ({"anchors": {}}, "anchors"), ({"question": ""}, "question")):
        with pytest.raises(BadInput, match=named):
            read_rubric({"dimension": [{"id": "d", "criterion": [whole | broken]}]}, "mine")
    with pytest.raises(BadInput, match="twice"):
        read_rubric({"dimension": [{"id": "d", "criterion": [whole, whole]}]}, "mine")
    with pytest.raises(BadInput, match="dimension"):
        read_rubric({}, "mine")
