"""What `score()` gives when it is called directly: names, keys, the documented fallbacks, and examples of our own."""

import socket

import pytest

from context_bench.evaluators import (
    AnswerQuality,
    CodeExecution,
    FalseMemoryRate,
    IFEvalChecker,
    LLMJudge,
    MathEquivalence,
    MemoryJudge,
    MultipleChoiceAccuracy,
    NLILabelMatch,
    SummarizationQuality,
)
from context_bench.evaluators.rouge import rouge_l


@pytest.fixture
def nobody():
    """A URL at which nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}"


def one(evaluator, example, response):
    (value, *_) = evaluator.score(example, {**example, "response": response}).values()
    return value


def test_names():
    kinds = (
        AnswerQuality,
        SummarizationQuality,
        MultipleChoiceAccuracy,
        CodeExecution,
        IFEvalChecker,
        MathEquivalence,
        NLILabelMatch,
    )
    assert [kind().name for kind in kinds] == [
        "answer_quality",
        "summarization_quality",
        "multiple_choice",
        "code_execution",
        "ifeval",
        "math_equivalence",
        "nli_label_match",
    ]
    judges = [LLMJudge(base_url="http://h"), MemoryJudge(base_url="http://h"), FalseMemoryRate(base_url="http://h")]
    assert [judge.name for judge in judges] == ["llm_judge", "memory_judge", "false_memory_rate"]


def test_answers():
    scores = AnswerQuality().score({"answer": "Oslo"}, {"response": "It was in Oslo."})
    assert scores == {"f1": pytest.approx(0.4), "exact_match": 0.0, "recall": 1.0, "contains": 1.0}
    assert AnswerQuality().score({"answer": "Paris"}, {"response": "The capital is Paris."})["f1"] == pytest.approx(0.5)
    assert set(AnswerQuality().score({"answer": ""}, {"response": ""}).values()) == {1.0}
    assert set(AnswerQuality().score({"answer": "Oslo"}, {"response": ""}).values()) == {0.0}


def test_summaries():
    assert rouge_l("a red fox ran far away", "a fox ran away") == {
        "rouge_l_precision": pytest.approx(4 / 6),
        "rouge_l_recall": 1.0,
        "rouge_l_f1": pytest.approx(0.8),
    }
    assert rouge_l("A RED fox", "a red FOX")["rouge_l_f1"] == 1.0
    for pair in (("", "x y"), ("x y", ""), ("x y", "z")):
        assert set(rouge_l(*pair).values()) == {0.0}
    assert SummarizationQuality().score({"answer": "a fox ran"}, {"response": "a fox ran"})["rouge_l_f1"] == 1.0
    assert set(SummarizationQuality().score({"answer": ""}, {"response": "x"}).values()) == {1.0}
    assert set(SummarizationQuality().score({"answer": "x"}, {"response": ""}).values()) == {0.0}


@pytest.mark.parametrize(
    ("right", "reply", "score"),
    [
        ("C", "C", 1.0),
        ("C", "c", 1.0),
        ("B", "The answer is B since bones heal.", 1.0),
        ("A", "My choice: A", 1.0),
        ("G", "Of all these I take (G) here.", 1.0),
        ("I", "The answer is I.", 1.0),
        ("F", "F", 1.0),
        ("F", "E", 0.0),
        ("B", "", 0.0),
        ("B", "I cannot tell.", 0.0),
    ],
)
def test_choices(right, reply, score):
    assert one(MultipleChoiceAccuracy(), {"correct_letter": right}, reply) == score


def test_a_choice_without_a_right_letter_scores_nothing():
    assert MultipleChoiceAccuracy().score({}, {"response": "B"}) == {"mc_accuracy": 0.0}


@pytest.mark.parametrize(
    ("gold", "reply", "score"),
    [
        ("12", "12", 1.0),
        (" 12 ", "12", 1.0),
        ("12", "13", 0.0),
        ("12", "", 0.0),
        ("", "12", 1.0),
        ("12,500", "12500", 1.0),
        ("0.75", r"\frac{3}{4}", 1.0),
        (r"\frac{3}{4}", "0.75", 1.0),
        (r"\frac{6}{8}", r"\frac{3}{4}", 1.0),
        ("0.4", "40%", 1.0),
        (r"4\cdot 5", "4*5", 1.0),
        ("9", r"Adding both gives $\boxed{9}$, as was asked.", 1.0),
        (r"\text{blue}", "blue", 1.0),
    ],
)
def test_mathematics(gold, reply, score):
    assert one(MathEquivalence(), {"answer": gold}, reply) == score


@pytest.mark.parametrize(
    ("gold", "reply", "score"),
    [
        ("Contradiction", "contradiction", 1.0),
        ("Entailment", "Entailed: yes", 1.0),
        ("Entailment", "True", 1.0),
        ("REFUTES", "refute", 1.0),
        ("SUPPORTS", "The verdict is: supports", 1.0),
        ("Not mentioned", "unknown", 1.0),
        ("Not mentioned", "Label: Not mentioned.", 1.0),
        ("Entailment", "Having read all clauses I find this to be an entailment.", 1.0),
        ("Entailment", "Not mentioned", 0.0),
        ("REFUTES", "supports", 0.0),
        ("REFUTES", "", 0.0),
        ("", "anything", 1.0),
    ],
)
def test_inference(gold, reply, score):
    assert one(NLILabelMatch(), {"answer": gold}, reply) == score


HALF = {
    "context": "def half(n):\n",
    "test": "def check(candidate):\n    assert candidate(8) == 4\n",
    "entry_point": "half",
}


@pytest.mark.parametrize(
    ("example", "reply", "score"),
    [
        (HALF, "    return n // 2\n", 1.0),
        (HALF, "    return n // 3\n", 0.0),
        (HALF, "def half(n):\n    return n // 2\n", 1.0),
        (HALF, "", 0.0),
        ({"context": "", "test_list": ["assert twice(3) == 6"]}, "def twice(n):\n    return 2 * n", 1.0),
        ({"context": "", "test_list": ["assert limit == 7"], "test_setup_code": "limit = 7"}, "pass", 1.0),
        ({"context": "", "test_list": ["while True: pass"]}, "pass", 0.0),
        ({"context": ""}, "x = 1", 0.0),
    ],
)
def test_code(example, reply, score):
    assert one(CodeExecution(timeout=2.0), example, reply) == score


@pytest.mark.parametrize(
    ("instruction", "kwargs", "reply", "passed"),
    [
        ("keywords:existence", {"keywords": ["tide", "moon"]}, "The Moon pulls the TIDE.", True),
        ("keywords:existence", {"keywords": ["tide", "sun"]}, "The Moon pulls the tide.", False),
        ("keywords:forbidden_words", {"forbidden_words": ["sun"]}, "The moon.", True),
        ("keywords:forbidden_words", {"forbidden_words": ["moon"]}, "The moon.", False),
        ("keywords:frequency", {"keyword": "tide", "frequency": 2, "relation": "at least"}, "tide on tide", True),
        ("punctuation:no_comma", {}, "Ebb and flow.", True),
        ("punctuation:no_comma", {}, "Ebb, then flow.", False),
        ("detectable_format:json_format", {}, '["ebb", 1]', True),
        ("detectable_format:json_format", {}, "ebb: 1", False),
        ("detectable_format:title", {}, "<<Ebb>>\nIt goes.", True),
        ("detectable_format:number_bullet_points", {"num_bullets": 2}, "* ebb\n* flow", True),
        ("length_constraints:number_words", {"num_words": 5, "relation": "at least"}, "ebb comes and then flow", True),
        (
            "length_constraints:number_words",
            {"num_words": 5, "relation": "less than"},
            "ebb comes and then flow",
            False,
        ),
        ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [name]", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Ebb.\n\nP.S. Flow.", True),
        ("change_case:english_lowercase", {}, "the tide goes out and it comes back again.", True),
        ("change_case:english_capital", {}, "THE TIDE GOES OUT AND IT COMES BACK AGAIN.", True),
        ("startend:end_checker", {"end_phrase": "So it goes."}, "Ebb and flow. So it goes.", True),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Say ebb."}, "Say ebb. Ebb it is.", True),
        ("combination:two_responses", {}, "Ebb it is.\n******\nFlow it was.", True),
        ("some_day:something", {}, "whatever", True),
    ],
)
def test_instructions(instruction, kwargs, reply, passed):
    scores = IFEvalChecker().score({"instruction_id_list": [instruction], "kwargs": [kwargs]}, {"response": reply})
    assert (scores["ifeval_strict"], scores["ifeval_loose"]) == (float(passed), float(passed))


def test_of_two_instructions_one_kept_is_half():
    example = {
        "instruction_id_list": ["punctuation:no_comma", "keywords:existence"],
        "kwargs": [{}, {"keywords": ["ebb"]}],
    }
    scores = IFEvalChecker().score(example, {"response": "ebb, flow"})
    assert (scores["ifeval_strict"], scores["ifeval_loose"]) == (0.0, 0.5)
    none = IFEvalChecker().score({"instruction_id_list": [], "kwargs": []}, {"response": "x"})
    assert (none["ifeval_strict"], none["ifeval_loose"]) == (1.0, 1.0)
    assert (
        IFEvalChecker().score({"instruction_id_list": ["punctuation:no_comma"]}, {"response": "x"})["ifeval_strict"]
        == 1.0
    )


def test_a_judge_that_cannot_be_asked_never_raises_from_score(nobody):
    example = {"question": "Where?", "answer": "Oslo", "context": "They met in Oslo."}
    for judge, key in ((LLMJudge, "judge_score"), (MemoryJudge, "memory_judge"), (FalseMemoryRate, "false_memory")):
        asked = judge(base_url=nobody, timeout=1.0, **({} if judge is LLMJudge else {"max_retries": 0}))
        assert asked.score(example, {"response": ""})[key] == 0.0
        assert asked.score(example, {"response": "In Oslo."})[key] == 0.0
    assert MemoryJudge(base_url=nobody).score({"question": "q", "answer": ""}, {"response": "x"})["memory_judge"] == 0.5
