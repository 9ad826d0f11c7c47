"""IFEvalChecker: the four accuracies, documented values of direct calls, errors in a run."""

import asyncio
import json

import pytest
from hypothesis import example, given, strategies as st

from context_bench import evaluate
from context_bench.core.errors import EvaluatorFailed
from context_bench.evaluators import IFEvalChecker
from context_bench.evaluators.ifeval_checker import RULES, loose_variants

CHECKER = IFEvalChecker()
ONES = dict.fromkeys(("ifeval_strict", "ifeval_loose", "ifeval_prompt_loose", "ifeval_instruction_strict"), 1.0)
ZEROS = dict.fromkeys(ONES, 0.0)
NO_COMMA, JSON, QUOTATION = "punctuation:no_comma", "detectable_format:json_format", "startend:quotation"


def prompt(*instructions):
    return {"instruction_id_list": [name for name, _ in instructions], "kwargs": [wanted for _, wanted in instructions]}


def scores(reply, *instructions):
    return CHECKER.score(prompt(*instructions), {"response": reply})


def test_all_followed_none_followed():
    assert scores("no commas here", (NO_COMMA, {})) == ONES
    assert scores("a, b", (NO_COMMA, {})) == ZEROS


def test_a_share_of_the_instructions():
    found = scores("hello, world", (NO_COMMA, {}), ("keywords:existence", {"keywords": ["hello"]}))
    assert found == {
        "ifeval_strict": 0.0,
        "ifeval_loose": 0.5,
        "ifeval_prompt_loose": 0.0,
        "ifeval_instruction_strict": 0.5,
    }


def test_loosely_is_without_first_line_last_line_and_asterisks():
    strictly_not = {
        "ifeval_strict": 0.0,
        "ifeval_loose": 1.0,
        "ifeval_prompt_loose": 1.0,
        "ifeval_instruction_strict": 0.0,
    }
    assert scores('Sure, here it is:\n"quoted"', (QUOTATION, {})) == strictly_not
    assert scores('"quoted"\nAnything else?', (QUOTATION, {})) == strictly_not
    assert scores('Sure:\n**"quoted"**\nBye', (QUOTATION, {})) == strictly_not
    assert scores('Sure:\nwell:\n"quoted"', (QUOTATION, {})) == ZEROS


def test_each_instruction_may_be_followed_by_another_reading():
    found = scores("Sure, here:\n*the end*", (NO_COMMA, {}), ("startend:end_checker", {"end_phrase": "the end"}))
    assert (found["ifeval_strict"], found["ifeval_prompt_loose"], found["ifeval_instruction_strict"]) == (0.0, 1.0, 0.0)


def test_the_eight_readings():
    assert loose_variants("*a\nb\nc*") == ["*a\nb\nc*", "b\nc*", "*a\nb", "b", "a\nb\nc", "b\nc", "a\nb"]
    assert loose_variants("a*") == ["a*", "", "a"]
    assert len(loose_variants("*1*\n*2*\n*3*")) == 8


@pytest.mark.parametrize("reply", ["", "  \n", None])
def test_an_empty_reply_follows_nothing(reply):
    assert (
        scores(reply, (NO_COMMA, {}), ("length_constraints:number_words", {"num_words": 5, "relation": "less than"}))
        == ZEROS
    )


@pytest.mark.parametrize(
    "original",
    [{}, {"instruction_id_list": []}, {"instruction_id_list": None, "kwargs": None}, {"instruction_id_list": 3}],
)
def test_without_instructions_a_direct_call_gives_ones_but_a_run_gives_nothing(original):
    assert CHECKER.score(original, {"response": "anything"}) == ONES
    assert not CHECKER.applies(original, {"response": "anything"})


def test_applies_to_an_answer_only():
    assert CHECKER.applies(prompt((NO_COMMA, {})), {"response": None})
    assert not CHECKER.applies(prompt((NO_COMMA, {})), {"context": "shorter"})


def test_direct_calls_never_fail():
    assert scores("anything", ("unknown:future_instruction", {})) == ONES
    assert scores("anything", ("keywords:existence", {})) == ZEROS
    assert CHECKER.score({"instruction_id_list": [NO_COMMA, NO_COMMA], "kwargs": [None]}, {"response": "x"}) == ONES
    assert CHECKER.score({"instruction_id_list": [NO_COMMA]}, {"response": "x"}) == ONES


def test_parameters_that_are_none_are_not_there():
    every = dict.fromkeys(("keywords", "num_words", "relation", "letter", "postscript_marker", "language"), None)
    assert scores("one two three", ("length_constraints:number_words", {**every, "num_words": 3})) == ONES
    assert scores("Bye. P.S. more", ("detectable_content:postscript", every)) == ONES


# --- what the tool before got wrong
# ------------------------------------------------------------------------


def test_less_than_is_less_than():
    fewer = ("length_constraints:number_words", {"num_words": 100, "relation": "less than"})
    assert scores("just these five words here", fewer) == ONES
    assert scores("word " * 200, fewer)["ifeval_strict"] == 0.0


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("language:response_language", {"language": "fr"}),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "x"}),
        ("detectable_format:number_bullet_lists", {"num_bullets": 3}),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1}),
        ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}),
        (QUOTATION, {}),
        ("change_case:capital_word_frequency", {"capital_frequency": 3, "capital_relation": "at least"}),
        ("change_case:english_capital", {}),
        ("detectable_format:constrained_response", {}),
    ],
)
def test_no_instruction_is_followed_by_any_reply(name, wanted):
    assert scores("Hello World, this is just an ordinary answer in English.", (name, wanted)) == ZEROS


def test_the_other_wrong_verdicts():
    assert scores("My answer is no.", ("detectable_format:constrained_response", {})) == ONES
    assert scores("Hello World", ("change_case:english_capital", {})) == ZEROS
    assert scores("a badge", ("keywords:forbidden_words", {"forbidden_words": ["bad"]})) == ONES
    assert scores('```json\n{"a": 1}\n```', (JSON, {})) == ONES
    five = "\n***\n".join("abcde")
    assert scores(five, ("length_constraints:number_paragraphs", {"num_paragraphs": 2}))["ifeval_strict"] == 0.0


# --- in a run
# ------------------------------------------------------------------------


async def test_in_a_run_an_unknown_instruction_is_an_error_that_names_it():
    unknown = prompt((NO_COMMA, {}), ("new:thing", {}), ("keywords:existence", {"keywords": None}))
    with pytest.raises(EvaluatorFailed, match=r"new:thing: unknown instruction; keywords:existence: needs keywords"):
        await CHECKER.ascore(unknown, {"response": ""})
    assert await CHECKER.ascore(prompt((NO_COMMA, {})), {"response": "a"}) == ONES


class Says:
    name = "says"

    def process(self, example):
        return {**example, "response": example["says"]}


def test_rows_of_a_run():
    rows = [
        {"id": "good", "question": "q", "says": "fine", **prompt((NO_COMMA, {}))},
        {"id": "empty", "question": "q", "says": "", **prompt((NO_COMMA, {}))},
        {"id": "unknown", "question": "q", "says": "fine", **prompt(("new:thing", {}))},
        {"id": "other", "question": "q", "says": "fine", "answer": "fine"},
    ]
    found = {
        row.example_id: row for row in evaluate([Says()], rows, [IFEvalChecker()], score_field="ifeval_strict").rows
    }
    assert found["good"].scores == ONES
    assert found["empty"].scores == ZEROS
    assert found["unknown"].scores == {}
    assert "new:thing" in json.dumps(found["unknown"].errors)
    assert found["other"].scores == {}
    assert not found["other"].errors


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=3,
)
COUNTS = [
    "num_words",
    "num_sentences",
    "num_paragraphs",
    "nth_paragraph",
    "num_placeholders",
    "num_bullets",
    "num_highlights",
    "num_sections",
]
FREQUENCIES = ["frequency", "let_frequency", "capital_frequency"]
RELATIONS = ["relation", "let_relation", "capital_relation"]
LISTS = ["keywords", "forbidden_words"]
TEXTS = ["keyword", "letter", "first_word", "section_spliter", "prompt_to_repeat", "end_phrase", "postscript_marker"]
SENSIBLE = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(COUNTS + FREQUENCIES, st.integers(0, 4)),
        **dict.fromkeys(RELATIONS, st.sampled_from(["at least", "less than"])),
        **dict.fromkeys(LISTS, st.lists(st.sampled_from("abc."), min_size=1, max_size=2)),
        **dict.fromkeys(TEXTS, st.sampled_from("abc.")),
    },
)
REPLIES = st.text(max_size=80) | st.text(alphabet='aB.,*-[]<>"\n !?1', max_size=60)
# Telling a language takes milliseconds; its rules have tests of their own.
INSTRUCTIONS = st.sampled_from(sorted(set(RULES) - {"language:response_language"})) | st.text(max_size=10)


@given(
    st.lists(
        st.tuples(
            INSTRUCTIONS,
            st.dictionaries(st.sampled_from(COUNTS + FREQUENCIES + RELATIONS + LISTS + TEXTS), ANY, max_size=4)
            | SENSIBLE
            | ANY,
        ),
        max_size=4,
    ),
    REPLIES,
)
@example([("keywords:letter_frequency", {"letter": "İ", "let_frequency": 1})], "x")
@example([("length_constraints:number_sentences", {"num_sentences": float("inf")})], "x.")
def test_never_fails_and_strict_implies_loose(instructions, reply):
    found = scores(reply, *instructions)
    assert set(found) == set(ONES)
    assert all(0 <= value <= 1 for value in found.values())
    assert found["ifeval_strict"] <= found["ifeval_prompt_loose"] <= found["ifeval_loose"]
    assert found["ifeval_strict"] <= found["ifeval_instruction_strict"] <= found["ifeval_loose"]
    assert found["ifeval_strict"] == (found["ifeval_instruction_strict"] == 1)
    assert _in_a_run(instructions, reply) in (found, None)


def _in_a_run(instructions, reply):
    try:
        return asyncio.run(CHECKER.ascore(prompt(*instructions), {"response": reply}))
    except EvaluatorFailed:
        return None
