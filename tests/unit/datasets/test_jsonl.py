from __future__ import annotations

import json
import string
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.tokens import count_tokens
from context_bench.datasets import load, load_jsonl
from context_bench.datasets.examples import JsonlExamples


@pytest.fixture
def write(tmp_path):
    def made(data: bytes | str, name: str = "d.jsonl"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
        return path

    return made


def line(**values) -> str:
    return json.dumps({"context": "c", **values})


def test_blank_lines_do_not_count_and_ids_are_line_indexes(write):
    path = write(f"\n   \n{line(question='a')}\n\n{line(question='b')}\n{line(question='c')}")
    assert [(e["id"], e["question"]) for e in load_jsonl(path, n=2)] == [(2, "a"), (4, "b")]
    assert len(load_jsonl(path)) == 3
    assert load_jsonl(path, n=0) == []


def test_byte_order_mark_and_crlf(write):
    found = load_jsonl(write(b"\xef\xbb\xbf" + f"{line(id='x')}\r\n{line(id='y')}\r\n".encode()))
    assert [e["id"] for e in found] == ["x", "y"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (f"{line()}\n{{'a': 1}}\n", r"d\.jsonl:2: not JSON \(.* at column 2\): \"\{'a': 1\}\""),
        ("[\n{}\n]", r"d\.jsonl:1: not JSON .* Write one object per line"),
        ("[1, 2]", r"d\.jsonl:1: expected one JSON object per line, found list"),
        (
            '{"question": null, "context": ""}',
            r"d\.jsonl:1: nothing to send: needs a \"context\", a \"question\" or \"turns\"",
        ),
        ('{"text": "x"}', r"its keys are \['text'\]"),
        (line(question=["a"]), r'd\.jsonl:1: "question" is a list; expected text'),
        ('{"context": {"a": 1}}', r'"context" is an object; expected text'),
        (line(id=[1]), r"id \[1\] is neither text nor a whole number"),
        (line(id=True), r"id True is neither"),
        (line(answer={"a": 1}), r"an answer is an object"),
        (line(turns="hello"), r'"turns" is \'hello\'; expected a list'),
        (f"{line(id=7)}\n\n{line(id=7)}", r"d\.jsonl:3: id 7 was used on line 1 already"),
        (f"{line(id=7)}\n{line(id='7')}", r"d\.jsonl:2: id '7' was used on line 1 already"),
        ("[" * 100_000, r"d\.jsonl:1: not JSON \(nested too deeply\)"),
        ('{"context": ' + "9" * 5000 + "}", r"d\.jsonl:1: not JSON"),
    ],
)
def test_a_bad_line_is_named(write, data, words):
    with pytest.raises(BadInput, match=words):
        load_jsonl(write(data))


def test_an_id_of_long_ago_is_known(write):
    many = [line(id=number) for number in range(5_000)]
    with pytest.raises(BadInput, match=r"d\.jsonl:5001: id '17' was used on line 18 already"):
        load_jsonl(write("\n".join([*many, line(id="17")])))


def test_invalid_utf8_names_line_and_byte(write):
    with pytest.raises(BadInput, match=r"d\.jsonl:2: byte 14 of the line is not UTF-8"):
        load_jsonl(write(f"{line()}\n".encode() + b'{"context": "\xff"}'))
    with pytest.raises(BadInput, match="UTF-16"):
        load_jsonl(write(line().encode("utf-16")))


def test_a_file_that_is_not_there_or_empty(write, tmp_path):
    with pytest.raises(BadInput, match=r"cannot read .*none\.jsonl: No such file"):
        load(str(tmp_path / "none.jsonl"))
    with pytest.raises(BadInput, match="holds no examples"):
        load(str(write("\n\n")))


def test_lone_surrogates_special_tokens_and_nan_survive(write):
    (found,) = load_jsonl(write(r'{"context": "a \ud800 b <|endoftext|>", "score": NaN, "question": "q"}'))
    assert found["context"] == "a \ud800 b <|endoftext|>"
    assert "score" not in found
    assert count_tokens(found["context"]) > 5


def test_a_huge_line(write):
    text = "word " * 1_000_000
    assert load_jsonl(write(line(context=text)))[0]["context"] == text


def test_reading_stops_at_n(write):
    path = write(f"{line()}\nthis is not JSON")
    assert len(load_jsonl(path, n=1)) == 1


def test_answers_of_every_kind(write):
    rows = [
        line(answer=["a", "b", None], id=1),
        line(answers=["x", 2], id=2),
        line(answer=7, answers=["7", "seven"], id=3),
        line(answer=None, id=4),
        line(answer=[], id=5),
        line(answers="only", id=6),
    ]
    found = [(e.get("answer"), e.get("answers")) for e in load_jsonl(write("\n".join(rows)))]
    assert found == [
        ("a", ["a", "b"]),
        ("x", ["x", "2"]),
        ("7", ["7", "seven"]),
        (None, None),
        (None, None),
        ("only", ["only"]),
    ]


def test_clusters(write):
    rows = [
        line(id=1, context="same"),
        line(id=2, context="same"),
        line(id=3, context="other"),
        line(id=4, group="g"),
        line(id=5, group="g", cluster=9),
        json.dumps({"id": 6, "question": "no text"}),
        json.dumps({"id": 7, "turns": [{"role": "user", "content": "hi"}]}),
    ]
    found = {e["id"]: e["cluster"] for e in load_jsonl(write("\n".join(rows)))}
    assert found[1] == found[2] != found[3]
    assert (found[4], found[5], found[6], found[7]) == ("g", "9", "6", "7")


def test_a_question_alone_is_the_text_and_turns_need_neither(write):
    alone, turns = load_jsonl(write('{"question": "q"}\n{"turns": [{"role": "user", "content": "hi"}]}'))
    assert (alone["context"], alone["question"]) == ("q", "q")
    assert turns["context"] == ""
    assert "question" not in turns


def test_what_load_says_of_a_file(write):
    path = write(f"{line(question='q', answer='a')}\n{line(question='r', dataset='mine')}")
    loaded = load(str(path), n=5)
    assert (loaded.name, loaded.base, loaded.evaluators, loaded.has_context) == (str(path), str(path), ["answer"], True)
    assert [e["dataset"] for e in loaded.examples()] == [str(path), "mine"]
    assert loaded.manifest()["bytes"] == path.stat().st_size
    assert len(loaded.manifest()["sha256"]) == 64
    bare = load(str(write('{"question": "q"}', "bare.jsonl")))
    assert (bare.evaluators, bare.has_context) == ([], False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    rows=st.lists(st.fixed_dictionaries({"context": st.text(min_size=1), "extra": json_values}), max_size=6),
    gaps=st.lists(st.sampled_from(["", " ", "\r", "\t"]), max_size=6),
    ends=st.sampled_from(["\n", "\r\n"]),
    ascii_only=st.booleans(),
    mark=st.booleans(),
)
def test_whatever_json_writes_is_read_back(tmp_path_factory, rows, gaps, ends, ascii_only, mark):
    lines = [json.dumps(row, ensure_ascii=ascii_only).encode("utf-8") for row in rows]
    for i, gap in enumerate(gaps):
        lines.insert(2 * i, gap.encode())
    path = tmp_path_factory.mktemp("h") / "d.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" * mark + ends.encode().join(lines))
    found = load_jsonl(path)
    assert [e["context"] for e in found] == [row["context"] for row in rows]
    assert [e.get("extra") for e in found] == [row["extra"] for row in rows]


@given(data=st.binary(max_size=60) | st.text(string.printable, max_size=60).map(str.encode))
def test_any_bytes_give_examples_or_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("h") / "d.jsonl"
    path.write_bytes(data)
    outcome = None
    try:
        found = load_jsonl(path)
    except BadInput as error:
        outcome, found = str(error), []
    assert outcome is None or str(path) in outcome
    assert all(e["context"] or e["turns"] for e in found)


ODD = [
    line(id="b"),
    line(id=10**30),
    line(id=7.0),
    line(id=None),
    line(id="\ud800"),
    line(text=10**25),
    line(id="x", score=float("nan")),
]


@pytest.mark.parametrize("passed", range(10))
def test_examples_that_are_passed_over_count_like_those_that_are_read(write, passed):
    path = write("\ufeff" + "\n \n".join([line(), *ODD[:3], "", *ODD[3:]]) + "\r\n\u00a0\n")
    for most in (None, 3):
        whole = load_jsonl(path, n=most)
        examples = load(str(path), n=most).examples()
        assert examples.skip(passed) == min(passed, len(whole))
        assert [*examples] == [{**each, "dataset": str(path)} for each in whole[passed:]]


def test_an_id_that_was_passed_over_is_still_taken(write):
    examples = JsonlExamples(write("\n".join([line(id="a"), line(id=10**30), line(id="c"), line(id=str(10**30))])), "d")
    assert examples.skip(3) == 3
    with pytest.raises(BadInput, match=r"d\.jsonl:4: id '10+' was used on line 2 already"):
        next(examples)
    examples = JsonlExamples(write("\n".join([line(id="a"), line(id="a")])), "d")
    with pytest.raises(BadInput, match=r"d\.jsonl:2: id 'a' was used on line 1 already"):
        examples.skip(2)


def test_the_origin_of_a_file_is_its_content_and_how_much_of_it_is_read(write, tmp_path):
    def facts(path, n=None):
        return load(str(path), n=n).origin().facts

    path = write(line(id=1))
    assert facts(path) == facts(write(line(id=1), "other.jsonl")) != facts(path, n=1)
    before = load(str(path))
    assert before.origin().unchanged()
    write(line(id=1))
    assert not before.origin().unchanged()
    write(line(id=2))
    assert facts(path) != before.origin().facts
    assert replace(before, _read=lambda: iter([])).origin() is None
