"""Evidence is counted word for word, in what went on to the model."""

import pytest

from context_bench.evaluators.answer_quality import EvidenceArrived
from context_bench.wire.words import evidence_of

CONTEXT = "Lane 3 is old.\n\nAda *lives* in house 3, says Bo.  Rain fell in 1,204 places."


@pytest.mark.parametrize(
    ("evidence", "pieces"),
    [
        ("Ada lives in house 3", ["Ada lives in house 3"]),
        (["Lane 3 is old.", "rain fell"], ["Lane 3 is old.", "rain fell"]),
        ([[0, 14], [16, 38]], ["Lane 3 is old.", "Ada *lives* in house 3"]),
        (["t1", "Cleo lives in house 3"], []),  # ids of turns, and what the context does not say
        ([[41, 16], [True, 3], [0, 1, 2], None, 7], []),
        (["", "…"], []),
        (None, []),
        ({"title": ["Lane"]}, []),
    ],
)
def test_pieces_of_evidence_are_those_that_the_context_holds(evidence, pieces):
    assert evidence_of({"context": CONTEXT, "evidence": evidence}) == pieces
    assert evidence_of({"context": None, "evidence": evidence}) == []


@pytest.mark.parametrize(
    ("arrived", "scores"),
    [
        ([CONTEXT], (1, 1)),
        (["LANE 3 is\nold … Ada lives in house 3"], (1, 1)),
        (["Lane 3 is old."], (0, 0.5)),
        (["Lane 3 is old.", "Ada lives in house 3"], (1, 1)),  # in two requests
        (["Ada lives in house", "3, Lane 3 is very old"], (0, 0)),  # not one after the other in one text
        (["Ada lives in house 31. Lane 3 is older"], (0, 0)),
        ([""], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_a_piece_arrived_if_its_words_stand_in_one_text_one_after_the_other(arrived, scores):
    example = {"context": CONTEXT, "evidence": ["Lane 3 is old.", "Ada lives in house 3"]}
    evaluator = EvidenceArrived()
    assert evaluator.applies(example, {"arrived": arrived})
    assert tuple(evaluator.score(example, {"arrived": arrived}).values()) == scores


def test_where_it_is_not_known_what_arrived_there_is_no_score():
    example = {"context": CONTEXT, "evidence": "Ada lives in house 3"}
    assert not EvidenceArrived().applies(example, {"response": "Ada"})
    assert not EvidenceArrived().applies({"context": CONTEXT}, {"arrived": [CONTEXT]})
