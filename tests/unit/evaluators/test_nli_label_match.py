"""NLILabelMatch: labels of every scheme, and the class that a reply decides for."""

import pytest
from hypothesis import given, strategies as st

from context_bench.evaluators import NLILabelMatch
from context_bench.evaluators.nli_label_match import (
    CONTRADICTION as C,
    ENTAILMENT as E,
    NEUTRAL as N,
    label_of,
    read_label,
)

NLI = NLILabelMatch()


def scored(gold, reply):
    return NLI.score({"answer": gold}, {"response": reply})["nli_accuracy"]


@pytest.mark.parametrize(
    ("golds", "label"),
    [
        (["Entailment", "entailment", "ENTAIL", "SUPPORTS", "SUPPORT", "supported", "true", "True", "yes"], E),
        (["Contradiction", "contradict", "CONTRADICT", "REFUTES", "REFUTE", "Refuted", "false", "no"], C),
        (
            [
                "Not mentioned",
                "not_mentioned",
                "NotMentioned",
                "NOT_ENOUGH_INFO",
                "NOT ENOUGH INFO",
                "NEI",
                "not enough information",
                "neutral",
            ],
            N,
        ),
        (["unknown", "neither"], N),
    ],
)
def test_labels_of_every_scheme_fall_into_three_classes(golds, label):
    for gold in golds:
        assert label_of(gold) == label
        assert read_label(gold) == label
        assert NLI.applies({"answer": gold}, {"response": ""})


REPLIES = {
    # the label
    "Entailment": E,
    "entailment.": E,
    "**Contradiction**": C,
    "NOT_ENOUGH_INFO": N,
    "Not mentioned.": N,
    '"SUPPORTS"': E,
    "True": E,
    "yes": E,
    "Refuted": C,
    "CONTRADICT": C,
    "\\boxed{\\text{Contradiction}}": C,
    # the label and why
    "Entailment: the contract says no party may disclose.": E,
    "Entailment. No other clause limits it.": E,
    "Contradiction - section 4 permits exactly that, which entails disclosure.": C,
    "Not mentioned: the contract does not say whether copies are returned.": N,
    "Yes, the abstract shows this.": E,
    "No, the trial found no effect.": C,
    "No. The abstract refutes it.": C,
    "Yes, the contract contradicts the hypothesis.": C,
    "True. No trial says otherwise.": E,
    # stated
    "The answer is entailment.": E,
    "Label: REFUTES": C,
    "**Verdict:** SUPPORTS": E,
    "Verdict:\n\nNot enough info": N,
    "My classification is: not mentioned.": N,
    "The relationship between the two is one of contradiction.": C,
    "The abstract could be read as support. Final answer: contradiction": C,
    "Answer: No": C,
    "Answer: the claim is not mentioned anywhere.": N,
    "First the label seems to be entailment. On reflection the label is neutral.": N,
    "Therefore, the claim is supported.": E,
    "So the hypothesis is contradicted by section 2.": C,
    "Clause 3 forbids it.\n\nContradiction": C,
    "<think>Entailment? The answer is entailment.</think>Contradiction": C,
    # told in a sentence
    "The claim is true, the abstract supports it. No doubt.": E,
    "The contract does not mention this.": N,
    "The contract doesn't explicitly address residual knowledge.": N,
    "There is no evidence for this in the abstract.": N,
    "The abstract neither supports nor refutes the claim.": N,
    "The text does not support or contradict the claim.": N,
    "It cannot be determined from the contract.": N,
    "The contract is silent on this.": N,
    "The contract makes no mention of it.": N,
    "The evidence is insufficient.": N,
    "The hypothesis is entailed by section 3.": E,
    "This claim is refuted by the second study.": C,
    "The claim is not true.": C,
    "It does not contradict the contract; it is entailed by it.": E,
    "The abstract supports the claim and does not refute it.": E,
    "This is incorrect.": C,
    "The contract contradicts it, because no information may be copied.": C,
    "The claim is supported: there is no evidence against it.": E,
    "While section 3 seems to support it, section 5 contradicts it.": C,
    "The abstract does not provide enough information to support or refute the claim.": N,
    "No, it does not mention that.": N,
    "True or false? False.": C,
    '{"label": "CONTRADICT"}': C,
    "The claim is not supported by the evidence.": "",
    # nothing decided
    "": "",
    "I would have to read it.": "",
    "The options are entailment, contradiction, or not mentioned.": "",
    "No party may disclose.": "",
    "Noted.": "",
}


@pytest.mark.parametrize(("reply", "label"), REPLIES.items())
def test_the_class_a_reply_decides_for(reply, label):
    assert read_label(reply) == label


@pytest.mark.parametrize(("reply", "label"), [item for item in REPLIES.items() if item[1]])
@pytest.mark.parametrize(
    "scheme", [("Entailment", "Contradiction", "Not mentioned"), ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO")]
)
def test_equal_classes_match_across_schemes(reply, label, scheme):
    names = dict(zip((E, C, N), scheme, strict=True))
    assert {gold for gold in scheme if scored(gold, reply) == 1.0} == {names[label]}


@pytest.mark.parametrize("original", [{}, {"answer": ""}, {"answer": None}])
def test_without_gold_a_direct_call_gives_one_but_a_run_gives_nothing(original):
    assert NLI.score(original, {"response": "x"}) == {"nli_accuracy": 1.0}
    assert not NLI.applies(original, {"response": "x"})


@pytest.mark.parametrize("processed", [{"response": ""}, {"response": None}, {}, {"response": " "}])
def test_no_answer_scores_zero(processed):
    assert NLI.score({"answer": "Entailment"}, processed) == {"nli_accuracy": 0.0}


def test_it_applies_to_labels_that_were_answered():
    assert not NLI.applies({"answer": "Paris"}, {"response": "true"})
    assert not NLI.applies({"answer": "Entailment"}, {"context": "shorter"})
    assert NLI.applies({"answer": ["Paris", "Entailment"]}, {"response": None})


def test_a_label_of_no_known_scheme_is_compared_as_it_is():
    assert scored("Partially", "partially.") == 1.0
    assert scored("Partially", "fully") == 0.0


def test_any_of_several_golds_counts():
    assert NLI.score({"answer": ["SUPPORTS", "NOT_ENOUGH_INFO"]}, {"response": "neutral"}) == {"nli_accuracy": 1.0}


@given(st.text(max_size=300))
def test_any_text_is_read(reply):
    assert read_label(reply) in {E, C, N, ""}


@pytest.mark.parametrize(
    "piece", ["not ", "does not ", "neither supports ", "the answer is ", "entail ", "so ", "no ", "relation "]
)
def test_long_hostile_replies_are_read_in_linear_time(piece):
    assert read_label(piece * (20_000 // len(piece))) in {E, C, N, ""}
