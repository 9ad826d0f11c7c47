"""Every instruction of IFEval: a reply that follows it, one that does not, the edges; and what the benchmark's own
checker says.

`recorded_ifeval.json`: replies and parameters made at random, judged by the benchmark's published rules (as carried by
the PyPI package if-verifiable 0.1.2, with NLTK 3.10.4, its English Punkt model, and langdetect 1.0.9 seeded with 0).
"""

import json
from pathlib import Path

import pytest

from context_bench.evaluators.ifeval_checker import RULES, CannotJudge, checker, loose_variants

RECORDED = json.loads(Path(__file__).with_name("recorded_ifeval.json").read_text(encoding="utf-8"))
ENGLISH = "this is a sentence in english and there are some more words in it"
BENCHMARK = 25

# id, parameters, replies that follow, replies that do not
CASES = [
    (
        "keywords:existence",
        {"keywords": ["Hello", "world"]},
        ["hello, WORLD!", "Othellohello worldly"],
        ["hello", "", "h e l l o world"],
    ),
    ("keywords:existence", {"keywords": ["C++ (11)", "a.b"]}, ["c++ (11) a.b"], ["C++ (11) axb", "C 11 a.b"]),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "at least"},
        ["cat Cat", "concatenate cats"],
        ["cat", "c a t"],
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "less than"},
        ["cat", "dog"],
        ["cat cat", "cats cat cat"],
    ),
    ("keywords:frequency", {"keyword": " aa ", "frequency": 2}, ["aaaa"], ["aaa"]),
    ("keywords:frequency", {"keyword": "x", "frequency": 1, "relation": "at most"}, ["x", "y"], ["xx"]),
    ("keywords:frequency", {"keyword": "x", "frequency": 1, "relation": "exactly"}, ["x"], ["xx", "y"]),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["bad", "C++"]},
        ["a badge", "not_bad", "C+"],
        ["This is BAD.", "bad", "in C++."],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_frequency": 3, "let_relation": "at least"},
        ["Eee", "eleven e's"],
        ["ee", "aaa"],
    ),
    ("keywords:letter_frequency", {"letter": "Q", "let_frequency": 1, "let_relation": "less than"}, ["abc"], ["a q"]),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 1, "let_relation": "at least"}, ["a!"], ["a"]),
    ("language:response_language", {"language": "de"}, ["Der Hund schläft heute den ganzen Tag im Haus."], [ENGLISH]),
    ("language:response_language", {"language": "hi"}, ["मैं आज घर जा रहा हूँ और कल वापस आऊँगा"], [ENGLISH]),
    (
        "language:response_language",
        {"language": "en"},
        [ENGLISH, "12345"],
        ["Le chat est sur la table et il dort toute la journée."],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        ["one two three", "don't go"],
        ["one two", "— … !"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 100, "relation": "less than"},
        ["just these five words here"],
        ["word " * 100],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        ["जाता घर", "می‌خواهم رفت"],
        ["वह घर जाता है"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["One here. Two there.", "Really? Yes! Good."],
        ["Dr. Smith paid $3.50 to the U.S. embassy.", "no stop"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["Only Mr. Jones.", "Wow!!"],
        ["One. Two."],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n\n***\n\nb", "a *** b", "***\na\n***\nb\n***"],
        ["a\n\nb", "a\n***\nb\n***\nc", "a\n***\n***\nb", "a"],
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, ["a"], ["***"]),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Dear"},
        ["Hi\n\ndear you", "Hi\n\n'\"Dear.me you", "Hi\n\n  DEAR, you\n\n"],
        ["Hi\n\nDearest you", "Dear you\n\nHi", "Hi\n\nYou dear", "Hi\n\nDear\n\nX", "Hi", "\n\n\n\na\n\ndear"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] [b c]", "[][x]", "[a [b] c] [d]"],
        ["[a]", "[a\nb] [c]", "]["],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye.\n\nP.S. more", "x p. s. y"],
        ["PS more", "P.S more"],
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["P.P.S more", "p. p. s"], ["P.S. more"]),
    ("detectable_content:postscript", {"postscript_marker": "Note*"}, ["note* well"], ["note well"]),
    ("detectable_content:postscript", {}, ["P.S. x"], ["x"]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n  - b", "text\n\n * a\nmore\n-b"],
        ["* a", "* a\n* b\n* c", "** a\n** b", "1. a\n2. b", "• a\n• b"],
    ),
    ("detectable_format:number_bullet_points", {"num_bullets": 2}, ["• a\n• b", "* a\n- b\n- c"], ["* a", "-a\n-b"]),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "Well. My answer is maybe. Truly."],
        ["Yes", "my answer is no."],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and *b c*", "**a** x **b**", "*a* **b**"],
        ["*a*", "* * *b*", "*a\nb* *c*", "****"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        ["SECTION 1\na\nSECTION 2\nb", "SECTION1 SECTION 2 SECTION 3"],
        ["SECTION 1", "Section 1\nSection 2", "SECTION A SECTION B"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1]}', '```json\n{"a": 1}\n```', "```\n[]\n```", " 3 ", '```JSON\n{"a": 1}```'],
        ["not json", 'Here: {"a": 1}', "```python\n{}\n```", "{'a': 1}", "[" * 100_000],
    ),
    (
        "detectable_format:title",
        {},
        ["<<My Title>>\nx", "a <<b>> c", "<<a>b>>"],
        ["<<>>", "<< >>", "<a>", "<<a\nb>>", ">>a<<", "<<>>>>"],
    ),
    (
        "combination:two_responses",
        {},
        ["a\n******\nb", "******a******b******"],
        ["a ****** a", "******", "a******b******c", "a", "a************b"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say it. "},
        ["say it. Yes.", "  Say it."],
        ["Well: Say it.", "Say"],
    ),
    (
        "startend:end_checker",
        {"end_phrase": "The end. "},
        ["x THE END.", '"x the end."', "the end.\n"],
        ["The end. Bye", "the end"],
    ),
    ("startend:quotation", {}, ['"a"', ' "a "b" c" \n', '""'], ['"a', 'a"', '"', "'a'", "“a”"]),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["NASA and I", "DON'T", "CANNOT", "3D-TV A", "A,B"],
        ["NASA", "STATE-OF-THE-ART", "Nasa Usa", "1 2 3", "A,1"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        ["one NASA"],
        ["NASA ESA"],
    ),
    (
        "change_case:english_capital",
        {},
        [ENGLISH.upper()],
        [ENGLISH, "Hello World", "DER HUND SCHLÄFT HEUTE IM HAUS UND DIE KATZE AUCH", "123"],
    ),
    (
        "change_case:english_lowercase",
        {},
        [ENGLISH, "all lowercase here"],
        ["Hello there you", "der hund schläft heute im haus", "123"],
    ),
    ("punctuation:no_comma", {}, ["none here", "full-width ， only"], ["a, b"]),
]


def test_every_instruction_of_the_benchmark_is_here():
    assert len(RULES) == BENCHMARK + 1
    assert {case[0] for case in CASES} == set(RULES)


@pytest.mark.parametrize(("name", "wanted", "good", "bad"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES])
def test_rule(name, wanted, good, bad):
    check = checker(name, wanted)
    assert [reply for reply in good if not check(reply)] == []
    assert [reply for reply in bad if check(reply)] == []


@pytest.mark.parametrize("name", RULES)
def test_a_blank_reply_follows_nothing(name):
    wanted = next(case[1] for case in CASES if case[0] == name)
    assert not any(map(checker(name, wanted), ("", " \n\t")))


@pytest.mark.parametrize("name", sorted({case["id"] for case in RECORDED}))
def test_same_verdicts_as_the_benchmarks_checker(name):
    cases = [case for case in RECORDED if case["id"] == name]
    assert len(cases) >= 5
    for case in cases:
        check = checker(name, case["kwargs"])
        assert (check(case["reply"]), any(map(check, loose_variants(case["reply"])))) == (
            case["strict"],
            case["loose"],
        ), case


@pytest.mark.parametrize(
    ("name", "wanted", "said"),
    [
        ("keywords:existance", {}, "unknown instruction"),
        ("keywords:existence", {}, "keywords"),
        ("keywords:existence", {"keywords": []}, "keywords"),
        ("keywords:existence", {"keywords": "cat"}, "keywords"),
        ("keywords:existence", {"keywords": ["a", 3]}, "keywords"),
        ("keywords:frequency", {"keyword": " ", "frequency": 1}, "keyword"),
        ("keywords:frequency", {"keyword": "a", "frequency": "many"}, "frequency"),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "more or less"}, "less than"),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": ["at least"]}, "less than"),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1}, "single character"),
        ("length_constraints:number_words", {"relation": "at least"}, "num_words"),
        ("length_constraints:number_words", {"num_words": True}, "num_words"),
        ("length_constraints:number_words", {"num_words": float("nan")}, "num_words"),
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 1, "nth_paragraph": 0, "first_word": "a"},
            "from 1",
        ),
        ("language:response_language", {"language": None}, "language"),
        ("combination:repeat_prompt", {"prompt_to_repeat": ""}, "prompt_to_repeat"),
    ],
)
def test_what_cannot_be_judged_says_why(name, wanted, said):
    with pytest.raises(CannotJudge, match=said):
        checker(name, wanted)


@pytest.mark.parametrize(
    ("name", "wanted", "reply"),
    [
        ("detectable_content:number_placeholders", {"num_placeholders": 9}, "[" * 200_000),
        ("detectable_format:title", {}, "<" * 200_000),
        ("detectable_format:number_bullet_lists", {"num_bullets": 9}, "\n" * 200_000 + "x"),
        ("detectable_format:number_bullet_lists", {"num_bullets": 9}, " \t" * 100_000 + "x"),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 10**9}, "* " * 100_000),
        ("detectable_content:postscript", {"postscript_marker": "(a+)+$"}, "a" * 200_000),
        ("keywords:existence", {"keywords": ["(a|a)*b"]}, "a" * 200_000),
        ("change_case:capital_word_frequency", {"capital_frequency": 10**9}, "A'" * 100_000),
        ("length_constraints:number_sentences", {"num_sentences": 10**9}, "." * 20_000),
    ],
)
def test_hostile_replies_and_parameters_do_not_hang(name, wanted, reply):
    assert not checker(name, wanted)(reply)
