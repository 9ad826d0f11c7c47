from __future__ import annotations

import pytest

from context_bench.core.errors import BadInput
from context_bench.datasets.spec import compile_field
from context_bench.datasets.undescribed import any_context, choose_files, guess_fields


def made(row, *more):
    """What the guess for these rows makes of the first."""
    fields = guess_fields([row, *more], "x")
    return {
        name: value
        for name, definition in fields.items()
        if (value := compile_field(definition, name)(row)) is not None
    }


@pytest.mark.parametrize(
    ("row", "example"),
    [
        ({"article": "A", "highlights": "S"}, {"context": "A", "answer": "S"}),
        (
            {"context": ["one", "two"], "Question": "Q", "answer": "x"},
            {"context": "one\ntwo", "question": "Q", "answer": "x"},
        ),
        ({"instruction": "Do", "output": "done"}, {"context": "Do", "question": "Do", "answer": "done"}),
        ({"question": "Q", "answers": ["a", "b"]}, {"context": "Q", "question": "Q", "answers": ["a", "b"]}),
        ({"text": "T", "label": 3}, {"context": "T"}),
        ({"text": "T", "answer": 3}, {"context": "T", "answer": 3}),
        ({"uid": 5, "text": "T", "question": None}, {"id": 5, "context": "T"}),
        (
            {"passage": "P", "question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
            {
                "context": "P",
                "question": "Q\n\nA) a  B) b",
                "choices": ["a", "b"],
                "answer": "b",
                "correct_letter": "B",
            },
        ),
        (
            {"question": "Q", "options": ["a", "b", "c"], "answer_index": 2},
            {
                "context": "Q\n\nA) a  B) b  C) c",
                "question": "Q",
                "choices": ["a", "b", "c"],
                "answer": "c",
                "correct_letter": "C",
            },
        ),
        (
            {"question": "Q", "options": ["a", "b", "c"], "answer": "b"},
            {"context": "Q\n\nA) a  B) b  C) c", "question": "Q", "choices": ["a", "b", "c"], "answer": "b"},
        ),
    ],
)
def test_usual_columns(row, example):
    assert made(row) == example


def test_positions_count_from_one_where_they_must():
    rows = [{"question": "Q", "choices": ["a", "b"], "label": label} for label in (2, 1)]
    assert [made(row, *rows)["answer"] for row in rows] == ["b", "a"]


def test_nothing_to_send():
    with pytest.raises(BadInput, match=r"x: no column .* Columns: foo \(text\), bar \(number\), baz \(empty\)\."):
        guess_fields([{"foo": "x", "bar": 1, "baz": None}], "x")
    with pytest.raises(BadInput, match="Columns: none"):
        guess_fields([{}], "x")


def test_is_there_a_context():
    assert any_context([{"context": "c", "question": "q"}])
    assert any_context([{"context": "c"}])
    assert not any_context(
        [{"context": "q", "question": "q"}, {"context": "q\n\nA) x", "question": "q"}, {"context": "", "question": ""}]
    )


@pytest.mark.parametrize(
    ("paths", "words", "chosen"),
    [
        (["README.md", "test.csv", "train.csv"], [], ["test.csv"]),
        (["data/train-0.parquet", "data/dev-0.parquet"], [], ["data/dev-0.parquet"]),
        (["a.jsonl", "a.parquet"], [], ["a.parquet"]),
        (
            ["default/train/0000.parquet", "other/test/0000.parquet", "default/test/0000.parquet"],
            [],
            ["default/test/0000.parquet"],
        ),
        (["en/test.jsonl", "de/test.jsonl"], ["de"], ["de/test.jsonl"]),
        (["data/squad_v2_train.jsonl", "data/squad_v2_test.jsonl"], ["train"], ["data/squad_v2_train.jsonl"]),
        (["dataset_infos.json", ".gitattributes", "set.py"], [], []),
        (
            ["data/test-00000-of-00002-0123456789abcdef.parquet", "data/test-00001-of-00002-fedcba9876543210.parquet"],
            [],
            None,
        ),
    ],
)
def test_which_files(paths, words, chosen):
    assert choose_files(paths, words) == (paths if chosen is None else chosen)


def test_which_configuration_is_the_users_to_say():
    with pytest.raises(BadInput, match=r"several configurations \(de, en\)"):
        choose_files(["en/test.jsonl", "de/test.jsonl"], [])
    with pytest.raises(BadInput, match=r"several configurations \(a, b\)"):
        choose_files(["a_test.jsonl", "b_test.jsonl"], [])
    with pytest.raises(BadInput, match=r"no data file matches 'fr'; there are: en/test\.jsonl"):
        choose_files(["en/test.jsonl"], ["fr"])
