from __future__ import annotations

import pytest

from context_bench.datasets.prepare import lettered
from context_bench.datasets.spec import FieldFault, compile_field

ROW = {
    "a": {"b": [10, {"c": "deep"}]},
    "text": "one #### two #### three ",
    "options": ["red", "green", "blue"],
    "label": 2,
    "word": "B",
    "none": None,
    "paragraphs": [{"title": "T1", "text": "x"}, {"title": "T2", "text": "y"}],
    "titles": ["A", "B"],
    "sentences": [["a1.", " a2."], ["b1."]],
}


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("a.b.0", 10),
        ("a.b.1.c", "deep"),
        ("a.b.-1.c", "deep"),
        ("a.b.7", None),
        ("a.nothing.c", None),
        ("text.0", None),
        ("{word}: {a.b.0}!", "B: 10!"),
        ("{word}{none}.", "B."),
        ("{word}\n\n{options:letters}", "B\n\nA) red  B) green  C) blue"),
        (["word", "a.b.0"], ["B", 10]),
        ({"const": ["x", 1]}, ["x", 1]),
        ({"pick": "options", "at": "label"}, "blue"),
        ({"pick": "options", "at": "label", "base": 1}, "green"),
        ({"pick": "options", "at": "word"}, "green"),
        ({"pick": "options", "at": {"const": "0"}}, "red"),
        ({"pick": "options", "at": {"const": 3}}, None),
        ({"pick": "options", "at": {"const": -1}}, None),
        ({"pick": "options", "at": "none"}, None),
        ({"pick": {"const": "XYZ"}, "at": "label"}, "Z"),
        ({"column": "title", "of": "paragraphs"}, ["T1", "T2"]),
        ({"column": "title", "of": "none"}, []),
        ({"before": "####", "of": "text"}, "one #### two"),
        ({"after": "####", "of": "text"}, "three"),
        ({"before": "@@", "of": "text"}, "one #### two #### three"),
        ({"after": "@@", "of": "text"}, None),
        ({"after": "####", "of": "label"}, None),
        ({"join": "\n", "each": ["titles", "sentences"], "sep": ": "}, "A: a1. a2.\nB: b1."),
        ({"join": " ", "each": "titles"}, "A B"),
        (
            {
                "join": "|",
                "each": [{"column": "title", "of": "paragraphs"}, {"column": "text", "of": "paragraphs"}],
                "sep": "=",
            },
            "T1=x|T2=y",
        ),
    ],
)
def test_each_form(definition, value):
    assert compile_field(definition, "f")(ROW) == value


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (3, r"f: 3 is neither a path"),
        ("", r"f: '' is not a path"),
        ("a..b", r"is not a path"),
        ("{word", r"brace"),
        ("{word:upper}", r"'upper' is not a way to render"),
        ({"pick": "a"}, r"keys \['pick'\] make no form; expected one of: const \| pick at base\?"),
        ({"const": 1, "of": "a"}, r"make no form"),
        ({"pick": "a", "at": "b", "base": "1"}, r"f\.base: '1' is not a whole number"),
        ({"before": "", "of": "a"}, r"f\.before: '' is not a piece of text"),
        ({"join": "\n", "each": ["a", 7]}, r"f\.each\[1\]: 7 is neither"),
        ({"column": "x", "of": {"column": "y"}}, r"f\.of: keys"),
    ],
)
def test_faults_say_where(definition, words):
    with pytest.raises(FieldFault, match=words):
        compile_field(definition, "f")


def test_letters_stop_at_ten():
    assert lettered(list(range(12))).endswith("I) 8  J) 9")
    assert lettered("abc") == ""
