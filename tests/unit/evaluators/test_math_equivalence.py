"""MathEquivalence: where an answer is found, what counts as equal, and formulas that must not hang."""

import asyncio
import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import EvaluatorFailed
from context_bench.evaluators import MathEquivalence, math_equivalence as _symbols
from context_bench.evaluators._mathtext import equal, final_answer, last_box, number_of, tidy
from context_bench.evaluators.math_equivalence import Symbols

MATH = MathEquivalence()


def scored(gold, reply):
    return MATH.score({"answer": gold}, {"response": reply})["math_equiv"]


def without_algebra(wanted, given):
    raise AssertionError(f"algebra is not needed for {wanted!r} and {given!r}")


RIGHT = [
    # where the answer is found
    ("42", "42"),
    ("42", "42."),
    ("42", "The answer is 42."),
    ("42", "**42**"),
    ("42", "#### 42"),
    ("42", "6 * 7 = 42\n#### 42"),
    ("42", "So it is 42"),
    ("18", "**18**"),
    ("18", "She makes $18 every day at the market."),
    ("18", "She makes **$18** every day."),
    ("18", "The answer is $18$."),
    ("18", "The answer is \\(18\\)."),
    ("18", "Final Answer: The final answer is $18$. I hope it is correct."),
    ("18", "**Answer:** 18 dollars"),
    ("18", "Answer:\n\n18"),
    ("18", "The final answer is: $\\boxed{18}$"),
    ("18", "16 - 3 - 4 = 9 eggs, 9 * 2 = 18 dollars a day."),
    ("7", "\\boxed{3} is a first try; \\boxed{7}"),
    ("7", "<think>\\boxed{3}</think> \\boxed{7}"),
    ("7", "\\boxed{7} and an open one \\boxed{8"),
    ("7", "\\boxed 7"),
    ("7", "\\fbox{7}"),
    ("12", "The answer is 3 * 4 = 12."),
    ("#### 42", "42"),
    ("long way \\boxed{42}", "42"),
    ("3", "答案是3。"),
    ("3", "答えは3です"),
    ("3", "Ответ: 3"),
    ("3", "La respuesta es 3: tres manzanas."),
    ("42", "\u09ea\u09e8"),
    # how it is written
    ("1/2", "\\dfrac{1}{2}"),
    ("\\frac{1}{2}", "1/2"),
    ("\\frac12", "\\tfrac{1}{2}"),
    ("\\frac{1}{2}", "0.5"),
    ("\\frac{1}{2}", "\\frac{2}{4}"),
    ("1/2", "50%"),
    ("1/2", "½"),
    ("3\\frac{1}{2}", "3.5"),
    ("3 1/2", "7/2"),
    ("-\\frac{3}{4}", "\\frac{-3}{4}"),
    ("1/3", "0.33333333"),
    ("1000", "1,000"),
    ("1,000", "1000"),
    ("1000", "1{,}000"),
    ("10000", "10\\,000"),
    ("1234567", "1,234,567"),
    ("1000", "1e3"),
    ("1500", "1.5 \\times 10^{3}"),
    ("1500", "1.5 × 10³"),
    ("50\\%", "50%"),
    ("50\\%", "50"),
    ("50", "50\\%"),
    ("0.5", "50%"),
    ("\\$18", "18"),
    ("18", "$18.00"),
    ("-5", "−5"),
    ("5", "x=5"),
    ("x=5", "5"),
    ("5", "x = 5"),
    ("5", "$x = 5$"),
    ("5", "2 + 3 = 5"),
    ("90", "90^\\circ"),
    ("90^{\\circ}", "90°"),
    ("5", "5\\text{ cm}"),
    ("5 \\text{ cm}", "5"),
    ("5", "\\boxed{5 \\text{ cm}^2}"),
    ("42", "\\boxed{42 apples}"),
    ("2\\pi", "2π"),
    ("\\text{Evelyn}", "Evelyn"),
    ("\\text{Evelyn}", "The answer is Evelyn."),
    ("\\text{(B)}", "B"),
    ("even", "\\boxed{\\text{even}}"),
    ("(3,4)", "(3, 4)"),
    ("(3,4)", "The point is $(3, 4)$."),
    ("(3,4)", "The answer is (3, 4)."),
    ("(3,4)", "\\left( 3, 4 \\right)"),
    ("(\\frac{1}{2}, 4)", "(0.5, 4)"),
    ("[0,1)", "[0, 1)"),
    ("1,2", "2, 1"),
    ("1,2", "1 and 2"),
    ("1, 2", "x = 1 \\text{ or } x = 2"),
    ("\\{1,2\\}", "\\{2, 1\\}"),
    ("\\{1,2\\}", "1, 2"),
    ("1,000, 2,000", "1000, 2000"),
    ("1011_2", "1011_{2}"),
    ("nan", "nan"),
    # as they come
    ("70000", "The value rose by 80,000*1.5=$120,000. So the profit is $70,000."),
    ("260", "Carla's total: 40 + 60 + 120 + 40 = **260** minutes."),
    ("694", "The total is $694.00."),
    ("0.18", "The answer is .18"),
    ("32348", "\\$32{,}348"),
    ("15\\mbox{ cm}^2", "\\boxed{15}"),
    ("10\\text{ cm}", "\\boxed{10\\,\\mathrm{cm}}"),
    ("\\text{Monday}", "It will be a Monday."),
    ("even", "The function is even."),
    ("1,2,3", "The solutions are $x=1$, $x=2$ and $x=3$."),
    ("18", '{"answer": 18}'),
    ("18", "<answer>18</answer>"),
    ("18", "The answer is eighteen (18)."),
    ("100", "≈100"),
    ("3.14", "\\approx 3.14"),
    ("\\begin{pmatrix} -18 \\\\ -49 \\end{pmatrix}", "\\boxed{\\begin{pmatrix}-18\\\\-49\\end{pmatrix}}"),
]

WRONG = [
    ("12", "1,2"),
    ("1,2", "12"),
    ("42", "43"),
    ("42", "The answer is 43, not 42."),
    ("42", "42 is a first guess. The answer is 43."),
    ("7", "\\boxed{7} is wrong, so \\boxed{3}"),
    ("42", "4.2"),
    ("42", "-42"),
    ("1", "10"),
    ("10", "10.1"),
    ("1000001", "1000002"),
    ("123456789", "123456790"),
    ("0.5", "0.5%"),
    ("1/2", "1/3"),
    ("1/3", "0.33"),
    ("50\\%", "5%"),
    ("(3,4)", "(4,3)"),
    ("(0,1)", "[0,1]"),
    ("[0,1)", "[0,1]"),
    ("3", "1, 2, 3"),
    ("3", "(3, 4)"),
    ("1,2", "1"),
    ("\\{1,2\\}", "\\{1,2,3\\}"),
    ("Evelyn", "Carla"),
    ("even", "odd"),
    ("Evelyn", "nlyevE"),
    ("42", "I do not know."),
    ("42", "?"),
    ("42", "forty"),
    ("42", "nan"),
    ("nan", "42"),
    ("5", "y=6"),
    ("0", "1e-9"),
]

ALGEBRA_RIGHT = [
    ("x+1", "1+x"),
    ("(x+1)^2", "x^2+2x+1"),
    ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"),
    ("\\sqrt{12}", "2\\sqrt3"),
    ("1024", "2^{10}"),
    ("y=2x+3", "2x+3"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{bmatrix}1\\\\2\\end{bmatrix}"),
    ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}, 1-\\sqrt{19}"),
    ("(1,2]", "x \\in (1,2]"),
    ("(\\sqrt{8}, 1)", "(2\\sqrt{2}, 1)"),
    ("x^2-1", "The answer is $(x-1)(x+1)$."),
]
ALGEBRA_WRONG = [("x+1", "x+2"), ("\\sqrt{12}", "2\\sqrt5"), ("(x+1)^2", "x^2+1"), ("2\\pi", "6.28"), ("3", "x")]


@pytest.mark.parametrize(("gold", "reply"), RIGHT)
def test_right_answers_by_arithmetic_alone(gold, reply):
    found = final_answer(reply, gold)
    assert scored(gold, reply) == 1.0, found
    assert equal(last_box(gold) or gold.removeprefix("#### "), found.text, without_algebra)


@pytest.mark.parametrize(("gold", "reply"), WRONG)
def test_wrong_answers_by_arithmetic_alone(gold, reply):
    assert not equal(gold, final_answer(reply, gold).text, without_algebra)
    assert scored(gold, reply) == 0.0


@pytest.mark.parametrize(("gold", "reply"), ALGEBRA_RIGHT)
def test_right_answers_by_algebra(gold, reply):
    assert scored(gold, reply) == 1.0


@pytest.mark.parametrize(("gold", "reply"), ALGEBRA_WRONG)
def test_wrong_answers_by_algebra(gold, reply):
    assert scored(gold, reply) == 0.0


@pytest.mark.parametrize(
    ("reply", "prose"),
    [
        ("42", 0.0),
        ("\\boxed{42}", 0.0),
        ("#### 42", 0.0),
        ("The answer is 42.", 0.0),
        ("There are 42 apples.", 1.0),
        ("6 boxes of 7 make 42", 1.0),
        ("no number at all", 1.0),
        ("", 0.0),
    ],
)
def test_an_answer_picked_out_of_prose_is_flagged(reply, prose):
    assert MATH.score({"answer": "42"}, {"response": reply})["math_from_prose"] == prose


@pytest.mark.parametrize("original", [{}, {"answer": ""}, {"answer": None}, {"answer": []}])
def test_without_gold_a_direct_call_gives_one_but_a_run_gives_nothing(original):
    assert MATH.score(original, {"response": "anything"})["math_equiv"] == 1.0
    assert not MATH.applies(original, {"response": "anything"})


@pytest.mark.parametrize("processed", [{"response": ""}, {"response": None}, {}, {"response": " \n"}])
def test_no_answer_scores_zero(processed):
    assert MATH.score({"answer": "42"}, processed)["math_equiv"] == 0.0


def test_it_applies_where_an_answer_was_wanted_and_given():
    assert MATH.applies({"answer": 42}, {"response": None})
    assert not MATH.applies({"answer": 42}, {"context": "shorter"})


def test_any_of_several_golds_counts():
    assert (
        MATH.score({"answer": ["41", "42"], "answers": ["43"]}, {"response": "The answer is 43"})["math_equiv"] == 1.0
    )
    assert MATH.score({"answer": ["41", "42"]}, {"response": "The answer is 43"})["math_equiv"] == 0.0
    assert MATH.score({"answer": 42}, {"response": 42})["math_equiv"] == 1.0


# --- algebra in the child
# ------------------------------------------------------------------------


async def test_algebra_in_a_run_is_done_off_the_loop_and_agrees_with_direct_calls():
    pairs = [("x+1", "1+x"), ("x+1", "x+2"), ("42", "42"), ("42", "43")]
    found = await asyncio.gather(*(MATH.ascore({"answer": gold}, {"response": reply}) for gold, reply in pairs))
    assert [each["math_equiv"] for each in found] == [1.0, 0.0, 1.0, 0.0]
    assert found == [MATH.score({"answer": gold}, {"response": reply}) for gold, reply in pairs]


@pytest.mark.parametrize("reply", ["10^{10^{10}}", "9^{9^{9^{9}}}", "(10^9)!", "\\sum_{n=1}^{10^{12}} \\frac{1}{n!!}"])
def test_hostile_formulas_end_and_are_wrong(hasty, reply):
    assert not equal("x", reply, hasty.equal)


def test_the_child_works_again_after_it_was_ended(hasty):
    assert not hasty.equal("1", "10^{10^{10}}")
    assert hasty.equal("x+1", "1+x")


def test_the_child_sees_none_of_our_secrets(hasty, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-test")
    hasty.close()
    assert hasty.equal("x+1", "1+x")
    environment = Path(f"/proc/{hasty._child.pid}/environ").read_bytes()
    assert b"sk-secret-of-the-test" not in environment


def test_a_child_that_cannot_start_is_a_failure_in_a_run_and_zero_in_a_direct_call(tmp_path, monkeypatch):
    broken = tmp_path / "child.py"
    broken.write_text("raise ImportError")
    monkeypatch.setattr(_symbols, "_CHILD", broken)
    lame = Symbols()
    with pytest.raises(EvaluatorFailed, match="math-verify"):
        lame.equal("x", "y")
    monkeypatch.setattr("context_bench.evaluators.math_equivalence.SHARED", lame)
    assert MATH.score({"answer": "x+1"}, {"response": "1+x"})["math_equiv"] == 0.0
    with pytest.raises(EvaluatorFailed):
        asyncio.run(MATH.ascore({"answer": "x+1"}, {"response": "1+x"}))


@pytest.fixture(scope="module")
def hasty():
    symbols = Symbols(seconds=0.5)
    yield symbols
    symbols.close()


def test_closing_twice_does_no_harm():
    symbols = Symbols()
    symbols.close()
    symbols.close()
    assert symbols._child is None


# --- properties
# ------------------------------------------------------------------------


@given(st.integers(-(10**9), 10**9))
def test_every_integer_equals_itself_however_written(number):
    for written in (
        str(number),
        f"{number:,}",
        f"${number}$",
        f"\\boxed{{{number}}}",
        f"x = {number}",
        f"The answer is {number:,}.",
        f"#### {number}",
    ):
        found = final_answer(written, str(number))
        assert equal(str(number), found.text, without_algebra), written
        assert not equal(str(number + 1), found.text, without_algebra), written


@given(st.fractions(max_denominator=999))
def test_every_fraction_equals_itself_however_written(value):
    above, below = value.numerator, value.denominator
    for written in (
        f"{above}/{below}",
        f"\\frac{{{above}}}{{{below}}}",
        f"\\dfrac{{{2 * above}}}{{{2 * below}}}",
        f"({above})/({below})",
    ):
        assert number_of(tidy(written)).value == value
        assert equal(str(value), written, without_algebra)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_decimals_are_read_exactly(number):
    found = number_of(tidy(f"{number:.8f}"))
    assert found.value == Fraction(f"{number:.8f}")
    assert math.isclose(float(found.value), number, abs_tol=1e-8)


@given(st.text(max_size=200), st.text(min_size=1, max_size=40))
def test_any_text_is_judged(reply, gold):
    found = final_answer(reply, gold)
    assert isinstance(equal(gold, found.text, lambda *_: False), bool)


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "{", "$", "answer is ", "1,", "(", "\\frac{", "####", "1 + ", "\\text{", "1/", "-", "=1"]
)
def test_long_hostile_replies_are_read_in_linear_time(piece):
    reply = piece * (20_000 // len(piece))
    assert equal("42", final_answer(reply, "42").text, lambda *_: False) is False


@pytest.mark.parametrize(
    ("gold", "reply"), [("Paris3", "paris3 "), ("foo bar1 baz", "Foo  bar1\nbaz"), ("\\frac{1}{2", "\\frac{1}{2")]
)
def test_the_gold_answer_word_for_word_is_right_whatever_it_means(gold, reply):
    assert MathEquivalence().score({"answer": gold}, {"response": reply}) == {"math_equiv": 1.0, "math_from_prose": 0.0}
    assert MathEquivalence().score({"answer": gold}, {"response": "something else 4"})["math_equiv"] == 0.0
