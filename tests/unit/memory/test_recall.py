"""Cortex's recall measures against what its own code was seen to give, and what holds for any input."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.memory.cortex.containment import (
    BenchmarkResult,
    BenchmarkSummary,
    best_candidate,
    compared,
    exact_match,
    format_category_table,
    format_markdown_table,
    format_other_categories,
    recall_at_k,
    score_question,
    simple_lower,
    summaries_json,
    summarize,
    token_f1,
    tokenize,
    word_match,
)
from context_bench.memory.cortex.harness import Pair, read_pairs, shape_of

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))


def cases(section):
    return [pytest.param(case, id=case["id"]) for case in VECTORS[section]]


def near(value):
    return pytest.approx(value, abs=1e-12, rel=0)


def same(found, expected):
    """Equal, key order included, numbers to 1e-12."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float | int) and not isinstance(expected, bool):
        assert found == near(expected)
    else:
        assert found == expected


# As recorded
# ------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("token_f1_and_exact_match"))
def test_token_f1_and_exact_match(case):
    assert token_f1(case["retrieved"], case["ground_truth"]) == near(case["token_f1"])
    assert exact_match(case["retrieved"], case["ground_truth"]) is case["exact_match"]


@pytest.mark.parametrize("case", cases("best_candidate"))
def test_best_candidate(case):
    assert best_candidate(case["memories"], case["ground_truth"]) == case["best"]


@pytest.mark.parametrize("case", cases("recall_at_k"))
def test_recall_at_k(case):
    assert recall_at_k(case["memories"], case["ground_truth"], case["k"]) is case["recalled"]


@pytest.mark.parametrize("case", cases("score_one_question"))
def test_score_one_question(case):
    found = score_question("q", "?", case["ground_truth"], case["memories"], case["k"]).as_dict()
    for name in ("retrieved", "exact_match", "recalled_at_k"):
        assert found[name] == case[name]
    assert found["f1_score"] == near(case["f1_score"])


@pytest.mark.parametrize("case", cases("summarize"))
def test_summarize(case):
    results = [BenchmarkResult.from_dict(result) for result in case["results"]]
    found = summarize(case["name"], results, case["k"], case["recall_failures"], case["k2"])
    same(found.as_dict(), case["summary"])
    assert BenchmarkSummary.from_dict(case["summary"]) == found


@pytest.mark.parametrize("case", cases("markdown_table"))
def test_markdown_table(case):
    assert (
        format_markdown_table([BenchmarkSummary.from_dict(one) for one in case["summaries"]], case["k"])
        == case["markdown"]
    )


@pytest.mark.parametrize("case", [one for one in cases("harness") if "category_table" in one.values[0]])
def test_category_table(case):
    assert (
        format_category_table(case["benchmark"], BenchmarkSummary.from_dict(case["summary"])) == case["category_table"]
    )


@pytest.mark.parametrize("case", cases("compare"))
def test_compare(case):
    if case["exit"]:
        with pytest.raises(ValueError):
            json.loads(case["current_text"])
        return
    found = compared(case["baseline"], json.loads(case["current_text"]))
    assert found.markdown() == case["markdown"]
    same(found.as_dict(), case["comparison_json"])


@pytest.mark.parametrize("case", cases("loaders"))
def test_loaders(case):
    if case.get("error"):
        with pytest.raises(ValueError):
            json.loads(case["file_text"])
        return
    expected = []
    for pair in case["pairs"]:
        turns = pair["Conversation"]
        items = [
            f"User: {t['User']}\nAssistant: {t['Assistant']}" if "User" in t else f"{t['Speaker']}: {t['Content']}"
            for t in turns
        ]
        expected.append(
            (pair["ID"], pair["Question"], pair.get("GroundTruth", pair.get("Answer")), tuple(items), pair["Category"])
        )
    found = read_pairs(json.loads(case["file_text"]), case["benchmark"])
    assert [(pair.id, pair.question, pair.answer, pair.items, pair.category) for pair in found] == expected


# Texts
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" \t\n", []),
        ("Blue-green, v1.1_a/b", ["blue", "green", "v1", "1", "a", "b"]),
        ("don't 'quote' ' don’t", ["don't", "'quote'", "'", "don", "t"]),
        ("naïve 北京 ٣ İstanbul", ["na", "ve", "istanbul"]),
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "low"), [("İ", "i"), ("ΟΔΟΣ", "οδοσ"), ("K", "k"), ("ẞ", "ß"), ("Dž", "dž"), ("ABC", "abc")]
)
def test_lower_case_is_one_for_one(text, low):
    assert simple_lower(text) == low


@pytest.mark.parametrize(
    ("retrieved", "gold", "found"),
    [
        ("Alva works at Mongoose Labs", "Go", False),
        ("let it go, Mongoose", "Go", True),
        ("flight 1789 landed", "89", False),
        ("built on .NET 8", ".NET", True),
        ("she writes C++ and C", "C++", True),
        ("她住在上海市", "上海", True),
        ("la caféteria", "café", False),
        ("anything", "", False),
        ("anything", " ", False),
    ],
)
def test_whole_words(retrieved, gold, found):
    assert word_match(retrieved, gold) is found


texts = st.text(alphabet=st.one_of(st.sampled_from("abcAB' -.’éİΣ北1"), st.characters()), max_size=20)


@given(texts, texts)
def test_f1_is_a_share_and_the_same_both_ways(one, other):
    assert 0.0 <= token_f1(one, other) <= 1.0
    assert token_f1(one, other) == near(token_f1(other, one))


@given(texts, texts)
def test_a_whole_word_is_also_contained(text, gold):
    if word_match(text, gold.strip()):
        assert exact_match(text, gold.strip())


@given(texts, texts, texts)
def test_containment_survives_more_text_around(before, gold, after):
    assert exact_match(before + gold + after, gold) is (gold != "")


@given(st.lists(texts, max_size=6), texts, st.integers(-2, 8))
def test_recall_grows_with_k_and_the_best_is_one_of_them(memories, gold, k):
    assert recall_at_k(memories, gold, k) <= recall_at_k(memories, gold, k + 1)
    best = best_candidate(memories, gold)
    scores = [token_f1(memory, gold) for memory in memories]
    assert (memories.index(best) == scores.index(max(scores))) if memories else best == ""


@given(st.lists(texts, max_size=6), texts)
def test_an_exact_match_is_always_recalled_at_full_depth(memories, gold):
    found = score_question("q", "?", gold, memories, len(memories))
    assert found.exact_match <= found.recalled_at_k


def test_null_lists_are_empty_ones():
    assert best_candidate(None, "x") == ""
    assert recall_at_k(None, "x", 5) is False
    assert summarize("n", None, 5).as_dict()["results"] is None


# Records and tables
# ------------------------------------------------------------------------


def result(ident, category="", hit=True):
    return BenchmarkResult(ident, "q", "g", "r", hit, 0.5, hit, category)


def test_results_without_a_category_are_named_once_any_has_one():
    found = summarize("n", [result("a", "temporal"), result("b", hit=False)], 5)
    assert {name: part.exact_match_accuracy for name, part in found.category_breakdowns.items()} == {
        "temporal": 1.0,
        "uncategorized": 0.0,
    }


def test_json_is_indented_by_two_without_a_last_newline_and_keeps_letters():
    text = summaries_json([summarize("Café", [result("a")], 5), summarize("none", [], 5)])
    assert text.startswith('[\n  {\n    "name": "Café",')
    assert not text.endswith("\n")
    assert json.loads(text)[1]["results"] is None


@pytest.mark.parametrize("given", [{"name": "x", "results": [3]}, {"name": "x", "category_breakdowns": {"a": 3}}])
def test_what_is_no_summary_is_refused(given):
    with pytest.raises(BadInput, match="not a summary"):
        BenchmarkSummary.from_dict(given)


@given(st.lists(st.builds(result, texts, texts, st.booleans()), max_size=8), st.integers(1, 200))
def test_tables_stay_tables_whatever_the_names(results, k):
    summary = summarize("a|b\nc\x1b[31m", results, k)
    table = format_markdown_table([summary, None], k)
    assert table.count("\n") == 3
    assert "\x1b" not in table
    printed = format_category_table("dmr", summary) + format_other_categories("dmr", summary)
    for line in printed.splitlines():
        assert line.startswith("|")
        assert line.replace("\\|", "").count("|") == 6


def test_categories_that_the_original_drops_are_shown():
    summary = summarize("DMR", [result("a", "1-hop"), result("b", "6-hop"), result("c", "unknown")], 5)
    assert "6-hop" not in format_category_table("dmr", summary)
    assert [line.split()[1] for line in format_other_categories("dmr", summary).splitlines()[2:]] == [
        "6-hop",
        "unknown",
    ]
    locomo = summarize("LoCoMo", [result("a", "adversarial")], 5)
    assert "| adversarial |      100.0% |" in format_other_categories("locomo", locomo)
    assert format_category_table("locomo", summarize("LoCoMo", [result("a")], 5)) == ""


def test_rows_of_different_protocols_are_not_one_table():
    judged, exact = (
        {"name": "A", "dmr_em": 0.9, "protocol": "LLM judge"},
        {"name": "B", "dmr_em": 0.5, "protocol": "substring"},
    )
    with pytest.raises(BadInput, match="A: LLM judge; B: substring"):
        compared({"systems": [judged, exact]}, [])
    with pytest.raises(BadInput, match="different protocols"):
        compared({"systems": [judged]}, {"name": "DMR", "exact_match_accuracy": 0.4, "protocol": "substring"})
    assert compared({"systems": [judged, {"name": "C"}]}, []).unstated == ["C"]


@pytest.mark.parametrize(
    ("baseline", "current"),
    [
        ([], []),
        ({"systems": {}}, []),
        ({"systems": [{"locomo_em": 1}]}, []),
        ({"systems": [{"name": "A", "locomo_em": "0.5"}]}, []),
        ({"systems": [{"name": "A", "locomo_em": 58}]}, []),
        ({"systems": [{"name": "A", "locomo_em": True}]}, []),
        ({"systems": [], "sources": []}, [{"name": "x"}, 3]),
        ({"systems": [], "sources": ["x"]}, []),
        ({"systems": []}, {"systems": []}),
        ({"systems": []}, [{"name": "LoCoMo", "exact_match_accuracy": 80}]),
        ({"systems": []}, None),
    ],
)
def test_what_cannot_be_compared_is_refused(baseline, current):
    with pytest.raises(BadInput):
        compared(baseline, current)


# Files
# ------------------------------------------------------------------------

LOCOMO = {
    "zoe": {
        "session_10": [{"human_turn": "tenth", "blenderbot_message": ""}],
        "session_2": [{"human_turn": "second", "blenderbot_message": "b"}],
        "session_1": [{"human_turn": " ", "blenderbot_message": ""}, {"human_turn": "", "blenderbot_message": "first"}],
        "question_answer_pairs": [
            {"question": "q0", "answer": 7, "category": "Temporal reasoning"},
            {"question": "q1", "answer": "a", "category": "Single-hop"},
            {"question": "q2", "answer": "a"},
        ],
    },
    "adam": {
        "session_1": [{"human_turn": "x", "blenderbot_message": "y"}],
        "question_answer_pairs": [{"question": "q", "answer": "a"}],
    },
}


def test_sessions_come_by_number_and_conversations_in_the_order_of_the_file():
    pairs = read_pairs(LOCOMO)
    assert [pair.id for pair in pairs] == ["zoe-q0", "zoe-q1", "zoe-q2", "adam-q0"]
    assert pairs[0].items == ("User: \nAssistant: first", "User: second\nAssistant: b", "User: tenth\nAssistant: ")
    assert [pair.category for pair in pairs[:3]] == ["temporal", "single-hop", ""]
    assert (pairs[0].answer, pairs[0].conversation, pairs[3].conversation) == ("7", "zoe", "adam")


def test_longmemeval_types_are_spelled_one_way():
    base = {"question": "q", "answer": 3, "sessions": [[{"role": "user", "content": "c"}, {"content": "d"}]]}
    kinds = [
        "Temporal Reasoning",
        " temporal-reasoning ",
        "multi_hop",
        "MultiHop",
        "knowledge update",
        "multi-session",
        "single_hop",
    ]
    pairs = read_pairs([{**base, "question_type": kind} for kind in kinds])
    assert [pair.category for pair in pairs] == [
        *("temporal", "temporal-reasoning", "multi-hop", "multi-hop", "knowledge-update", "multi-session", "single_hop")
    ]
    assert pairs[1] == Pair("lme-full-1", "q", "3", ("user: c", "user: d"), "temporal-reasoning")


@pytest.mark.parametrize("blank", ["", " \n", None])
def test_a_blank_turn_is_left_out_and_counted(blank):
    seen = []
    said = {"role": "user", "content": "c"}
    asked = {"question": "q", "answer": "a"}
    (pair,) = read_pairs(
        [{**asked, "sessions": [[said, {"role": "assistant", "content": blank}], [said]]}], on_blank=seen.append
    )
    assert (pair.items, seen) == (("user: c", "user: c"), ["entry 0"])
    (pair,) = read_pairs(
        [{**asked, "turns": [{"speaker": "a", "content": blank, "text": "t"}, {"text": blank}]}], on_blank=seen.append
    )
    assert (pair.items, seen) == (("a: t",), ["entry 0"] * 2)
    turns = [{"human_turn": blank, "blenderbot_message": blank}, {"human_turn": "x", "blenderbot_message": blank}]
    (pair,) = read_pairs({"c": {"session_1": turns, "question_answer_pairs": [asked]}}, on_blank=seen.append)
    assert (pair.items, seen[2:]) == ((f"User: x\nAssistant: {blank or ''}",), ["conversation 'c'"])


TURNS = [{"speaker": "a", "content": "b"}]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([{"sample_id": "conv-26", "qa": [], "conversation": {}}], "published LoCoMo"),
        ([{"question_id": "x", "question": "q", "answer": "a", "haystack_sessions": []}], "published LongMemEval"),
        ([{"previous_dialogs": [], "dialog": []}], "published MSC"),
        ([], "none of the shapes"),
        ({}, "none of the shapes"),
        (None, "none of the shapes"),
        ([3], "none of the shapes"),
        ("text", "none of the shapes"),
        ({"c": {"question_answer_pairs": [{"question": "q", "answer": "a"}]}}, "no session_1"),
        ({"c": {"session_1": [], "question_answer_pairs": []}}, "no questions"),
        ({"c": {"session_1": [], "question_answer_pairs": [{"question": "q", "answer": "a"}]}}, "nothing to remember"),
        ({"c": {"session_1": "x", "question_answer_pairs": []}}, "session_1: expected a list, found text"),
        ({"c": {"session_1": [3], "question_answer_pairs": []}}, "entry 0 is expected to be an object"),
        (
            {"c": {"session_1": [], "question_answer_pairs": [{"question": "q"}]}},
            "answer is expected to be text, found nothing",
        ),
        ({**LOCOMO, "d": 3}, "conversation 'd': expected an object"),
        ([{"question": "q", "answer": "a", "sessions": None}], "sessions: expected a list, found nothing"),
        ([{"question": "q", "answer": True, "sessions": []}], "answer is expected to be text"),
        ([{"question": "q", "answer": "a", "sessions": [[{"role": "user"}]]}], "content is expected to be text"),
        (
            [{"query": "q", "answer": "a", "turns": TURNS}, {"query": "q", "answer": "a"}],
            "entry 1, turns: expected a list",
        ),
        ([{"query": "q", "answer": "a", "turns": TURNS, "hop_count": "2"}], "hop_count"),
    ],
)
def test_files_are_never_silently_empty(document, said):
    with pytest.raises(BadInput, match=said):
        read_pairs(document)


@pytest.mark.parametrize(("benchmark", "empty"), [("locomo", {}), ("longmemeval", []), ("dmr", [])])
def test_an_empty_set_of_a_named_benchmark_is_one(benchmark, empty):
    assert read_pairs(empty, benchmark) == []
    with pytest.raises(BadInput, match="none of the shapes"):
        read_pairs([] if empty == {} else {}, benchmark)


def test_any_entry_tells_the_shape_and_an_empty_list_gives_way_to_the_other_name():
    asked = {"question": "q", "answer": "a"}
    first = {**asked, "conversation": [], "turns": TURNS}
    assert shape_of([asked, first]) == "dmr"
    assert [pair.items for pair in read_pairs([first, {**asked, "conversation": []}], "dmr")] == [("a: b",), ()]


@pytest.mark.parametrize("other", ["locomo", "dmr"])
def test_the_shape_that_was_asked_for_is_the_shape_that_is_read(other):
    document = [{"question": "q", "answer": "a", "sessions": [[{"role": "user", "content": "c"}]]}]
    assert shape_of(document) == "longmemeval"
    with pytest.raises(BadInput, match="shape of 'longmemeval'"):
        read_pairs(document, other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["session_1", "question_answer_pairs", "question", "answer", "sessions", "turns", "hop_count", "c"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_read_or_refused(document):
    try:
        pairs = read_pairs(document)
    except BadInput:
        return
    assert any(pair.items for pair in pairs)


def test_f1_is_evaluated_in_the_documented_order():
    assert token_f1("Lena keeps goats", "Lena keeps bees") == 2 * (2 / 3) * (2 / 3) / (2 / 3 + 2 / 3)
    assert math.isclose(token_f1("a b c", "a"), 0.5)
