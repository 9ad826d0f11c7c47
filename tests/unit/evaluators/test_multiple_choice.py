"""MultipleChoiceAccuracy: a corpus of replies as models write them, and where the evaluator does not apply."""

import pytest
from hypothesis import given, strategies as st

from context_bench.evaluators import MultipleChoiceAccuracy
from context_bench.evaluators.multiple_choice import LETTERS, chosen_letter

CITIES = {"A": "Paris", "B": "Berlin", "C": "Rome", "D": "Madrid"}
BLOOD = {"A": "Vitamin A", "B": "Vitamin C", "C": "Vitamin D", "D": "Vitamin K"}
NUMBERS = {"A": "4", "B": "14", "C": "40", "D": "4.5"}
FOUR = dict.fromkeys("ABCD", "words that no reply holds")


def scored(gold, reply, choices=None):
    example = {"correct_letter": gold} | ({"choices": list(choices.values())} if choices else {})
    return MultipleChoiceAccuracy().score(example, {"response": reply})["mc_accuracy"]


#: reply → the letter it chooses ("" = none), with options A to D whose words play no part
LETTER_REPLIES = {
    # one letter
    "B": "B",
    "b": "B",
    "a": "A",
    " C.\n": "C",
    "(C)": "C",
    "[D]": "D",
    "**C**": "C",
    "**C.**": "C",
    "`B`": "B",
    '"B"': "B",
    "C)": "C",
    "$\\boxed{C}$": "C",
    "\\boxed{\\text{(B)}}": "B",
    "（Ｃ）": "C",
    # label and words
    "C) Rome": "C",
    "C. Rome is the capital of Italy.": "C",
    "C: Rome": "C",
    "C - Rome": "C",
    "**B) Berlin**": "B",
    "**B.** Berlin": "B",
    "(D) Madrid": "D",
    "Option B": "B",
    "option b": "B",
    "Choice (A)": "A",
    "C, because it is the capital.": "C",
    # said outright
    "The answer is B": "B",
    "The answer is B.": "B",
    "the answer is b": "B",
    "The answer is (C).": "C",
    "Answer: D": "D",
    "answer:d": "D",
    "ANSWER: A": "A",
    "Answer: **A**": "A",
    "**Answer:** B": "B",
    "**Answer: C**": "C",
    "Answer - C": "C",
    "Answer:\n\nC": "C",
    "### Answer\n\nC": "C",
    "Final answer: B": "B",
    "The correct choice is A": "A",
    "The correct answer is option C.": "C",
    "The correct answer to this question is therefore option (C), Rome.": "C",
    "The answer is A because the others are younger.": "A",
    "the answer is a, since the others are younger": "A",
    "I think B is correct.": "B",
    "I believe (D) is right because (A) is wrong.": "D",
    "C is the best answer here.": "C",
    "Of these, D seems the most likely.": "D",
    "So the final answer is $\\boxed{D}$.": "D",
    "The best option would be B.": "B",
    "My answer would be: C": "C",
    "It must be D.": "D",
    "Therefore, C.": "C",
    "I'd go with A.": "A",
    "I'll pick B": "B",
    "I am going with option D": "D",
    "Looking at the options, B fits.": "B",
    # misreadings of the original
    "I would choose C.": "C",
    "A good choice would be D": "D",
    "The answer is actually B": "B",
    "the answer is definitely C": "C",
    "Answer: Choice B": "B",
    "The answer is not A. It is B.": "B",
    "It is a matter of fact that B": "B",
    "The answer is Berlin": "",
    "The answer is Chile.": "",
    # denial
    "Not A. The answer is D.": "D",
    "The answer is not A but B.": "B",
    "It's not C, it's A.": "A",
    "B, not A": "B",
    "The answer cannot be A, so it is D.": "D",
    "I don't think it is A. I think it is C.": "C",
    "A is wrong. B is wrong. D is wrong.": "",
    "A is incorrect and B is incorrect, which leaves C.": "C",
    "We can rule out A and B. D is not possible either, so C.": "C",
    "The statement that is not correct is C.": "C",
    "I'm not sure, but the answer is B.": "B",
    "If I'm not mistaken, the answer is B.": "B",
    # thinking aloud: the last statement wins
    "The answer is A. Wait, that was the older one. The answer is B.": "B",
    "At first A seems right. But the date rules it out. The correct answer is C.": "C",
    "A student might choose B, but the answer is D.": "D",
    "It would be a mistake to choose B. The answer is A.": "A",
    "<think>The answer is A. Or B?</think>C": "C",
    "<think>Probably A.</think>\n\nThe answer is D.": "D",
    "\\boxed{A} no, I misread: \\boxed{B}": "B",
    "Let us look at each option.\nA) Paris is in France.\nB) Berlin is not.\nC) Rome is in Italy.\nD) Madrid.\n\nThe "
    "answer is C.": "C",
    "A) no\nB) no\nC) yes\nD) no\n\nC": "C",
    "C) Rome\n\nExplanation:\n- A) is wrong because it is in France.\n- B) is wrong as well.\n- D) is wrong.": "C",
    "C\n\nA. Paris is French. B. Berlin is German.": "C",
    "Answer: B\n\nQuestion: What is next?\nA) x\nB) y\nAnswer: D": "B",
    # several letters, letters that no option has, no letter
    "A and C": "",
    "A, B": "",
    "A or B": "",
    "Both A and C are correct.": "",
    "The answer is A or B.": "",
    "B/C": "",
    "A, B, C, D": "",
    "E": "",
    "The answer is E.": "",
    "The answer is I": "",
    "I am not able to answer that.": "",
    "I do not know.": "",
    "A difficult question!": "",
    "None of the above.": "",
    "It depends on a number of things, e.g. the weather.": "",
    "": "",
    "...": "",
    # as they come
    "I would eliminate A and B right away. Between C and D, C is better supported.": "C",
    "Hmm, A? No. B? No. C? Yes, C.": "C",
    "Neither A nor B. C!": "C",
    '{"answer": "C"}': "C",
    "{'answer': 'c'}": "C",
    "<answer>\nB\n</answer>": "B",
    "The answer is $\\mathbf{(C)}$": "C",
    "The correct answer is \\( \\boxed{D} \\).": "D",
    "A is a city. Correct: B": "B",
    "答案是B": "B",
    "答案：C": "C",
    "La respuesta es C.": "C",
    "N/A": "",
    # letters that are words or parts of words
    "I think a cat is an animal, and I like D": "D",
    "In C++ one would write that, so: B": "B",
    "It boils at 100 °C, hence the answer is B": "B",
    "John F. Kennedy was president, so D is right.": "D",
}


@pytest.mark.parametrize(("reply", "letter"), LETTER_REPLIES.items())
def test_the_letter_that_a_reply_chooses(reply, letter):
    assert chosen_letter(reply, FOUR) == letter


@pytest.mark.parametrize(("reply", "letter"), [(reply, letter) for reply, letter in LETTER_REPLIES.items() if letter])
def test_only_the_chosen_letter_scores(reply, letter):
    assert [gold for gold in "ABCD" if scored(gold, reply, FOUR)] == [letter]


@pytest.mark.parametrize(
    ("reply", "letter", "options"),
    [
        ("The answer is Berlin", "B", CITIES),
        ("Berlin", "B", CITIES),
        ("berlin.", "B", CITIES),
        ("It is Rome, not Paris.", "C", CITIES),
        ("Many think of Paris, but the capital is Madrid, so the answer is Madrid.", "D", CITIES),
        ("The capital of Germany, Berlin.", "B", CITIES),
        ("Paris or Berlin", "", CITIES),
        ("The answer is D (Berlin)", "D", CITIES),
        ("Vitamin C", "B", BLOOD),
        ("The answer is Vitamin C.", "B", BLOOD),
        ("It lacks Vitamin C.", "B", BLOOD),
        ("C. Vitamin D", "C", BLOOD),
        ("The answer is 4.", "A", NUMBERS),
        ("14", "B", NUMBERS),
        ("The result is 4.5", "D", NUMBERS),
        ("I get 40 in the end.", "C", NUMBERS),
        ("I'd say C since 4 of them are round", "C", NUMBERS),
        ("New York", "B", {"A": "York", "B": "New York"}),
        ("He went to New York.", "B", {"A": "York", "B": "New York"}),
    ],
)
def test_the_words_of_an_option_choose_it(reply, letter, options):
    assert chosen_letter(reply, options) == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("J", "J"),
        ("The answer is I.", "I"),
        ("(I)", "I"),
        ("I would choose H", "H"),
        ("K", ""),
        ("I", "I"),
        ("I'd go with (j)", "J"),
    ],
)
def test_up_to_ten_options(reply, letter):
    assert chosen_letter(reply) == letter
    assert chosen_letter(reply, dict.fromkeys(LETTERS, "x y z")) == letter


@pytest.mark.parametrize(
    "choices", [["x", "y"], {"text": ["x", "y"], "label": ["1", "2"]}, {"A": "x", "B": "y"}, ("x", "y")]
)
def test_choices_as_datasets_have_them(choices):
    example = {"correct_letter": "b ", "choices": choices}
    judge = MultipleChoiceAccuracy()
    assert judge.score(example, {"response": "y"}) == {"mc_accuracy": 1.0}
    assert judge.score(example, {"response": "C"}) == {"mc_accuracy": 0.0}


@pytest.mark.parametrize("choices", [None, [], "x", 3, {"k": "x"}, {}])
def test_choices_that_say_nothing_leave_the_letters(choices):
    assert MultipleChoiceAccuracy().score(
        {"correct_letter": "J", "choices": choices}, {"response": "The answer is J"}
    ) == {"mc_accuracy": 1.0}


@pytest.mark.parametrize(
    ("example", "output"),
    [
        ({}, {"response": "A"}),
        ({"correct_letter": ""}, {"response": "A"}),
        ({"correct_letter": None}, {"response": "A"}),
        ({"correct_letter": "A"}, {}),
    ],
)
def test_where_it_does_not_apply_a_direct_call_scores_zero(example, output):
    judge = MultipleChoiceAccuracy()
    assert not judge.applies(example, output)
    assert judge.score(example, output) == {"mc_accuracy": 0.0}


@pytest.mark.parametrize("response", ["", None, "  "])
def test_an_empty_reply_is_wrong_and_counts(response):
    judge = MultipleChoiceAccuracy()
    assert judge.applies({"correct_letter": "A"}, {"response": response})
    assert judge.score({"correct_letter": "A"}, {"response": response}) == {"mc_accuracy": 0.0}


@given(st.text(max_size=300))
def test_any_text_is_read_as_one_allowed_letter_or_none(reply):
    assert chosen_letter(reply, CITIES) in {"", *CITIES}


@given(st.sampled_from("ABCD"), st.text(alphabet="xyz \n.,", max_size=60))
def test_what_stands_before_the_last_statement_plays_no_part(letter, before):
    assert chosen_letter(f"{before}\nThe answer is {letter}.", FOUR) == letter


@pytest.mark.parametrize(
    "piece", ["the answer ", "A ", "(A", "is not ", "**", "a, ", "the answer is the ", "option definitely ", "\\boxed{"]
)
def test_long_hostile_replies_are_read_in_linear_time(piece):
    assert chosen_letter(piece * (20_000 // len(piece)), CITIES) in {"", *CITIES}
