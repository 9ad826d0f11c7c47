from __future__ import annotations

import csv
import gzip
import io
import json

import pytest
import zstandard
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.datasets import load, readers
from context_bench.datasets.readers import rows_from, rows_of
from minihub import zip_bytes


def read(content, name="x.json"):
    return list(rows_from(io.BytesIO(content), name))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
objects = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=3) | st.none(), max_size=4)


@given(st.lists(objects, max_size=6), st.sampled_from([None, 1, 4]), st.integers(1, 40), st.booleans())
def test_a_json_list_is_read_whole_however_it_is_cut(rows, indent, chunk, ascii_only):
    content = json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode()
    before, readers._CHUNK = readers._CHUNK, chunk
    try:
        assert read(content) == rows
        assert read(b"\xef\xbb\xbf\n " + content + b"\n") == rows
    finally:
        readers._CHUNK = before


@given(st.lists(objects, min_size=2, max_size=6), st.integers(1, 40))
def test_lines_in_a_json_file(rows, chunk):
    content = "\r\n\n".join(json.dumps(row) for row in rows).encode()
    before, readers._CHUNK = readers._CHUNK, chunk
    try:
        assert read(content) == rows
    finally:
        readers._CHUNK = before


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_tables_keep_what_was_written(cells):
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("a", "b"), *cells])
    assert [(row["a"], row["b"]) for row in read(out.getvalue().encode(), "x.csv")] == cells


def test_one_document_is_a_row_or_holds_the_rows():
    assert read(b'{"a": 1}') == [{"a": 1}]
    assert read(b'{\n"a": 1}') == [{"a": 1}]
    assert read(b'{"id": 1, "truth": [{"f": 2}]}\n') == [{"id": 1, "truth": [{"f": 2}]}]
    assert read(b'{"version": "1", "data": [{"x": 1}, {"x": 2}]}') == [{"x": 1}, {"x": 2}]
    assert read(b'[{"x": NaN}]') == [{"x": None}]


def test_other_kinds():
    row = {"a": "x"}
    line = b'{"a": "x"}\n'
    assert (
        read(gzip.compress(line), "x.jsonl.gz")
        == read(zstandard.ZstdCompressor().compress(line), "x.ndjson.zst")
        == [row]
    )
    assert read(zip_bytes({"d/1.jsonl": line, "d/2.json": b"[" + line + b"]", "e/3.jsonl": line}), "x.zip!d/*") == [
        row,
        row,
    ]
    assert read("é\nb".encode(), "x.txt") == [{"text": "é\nb"}]
    assert read("é\r\nb\n".encode(), "test.src.cleaned") == [{"text": "é"}, {"text": "b"}]
    assert read(b"a\tb\n1\t2\n", "x.tsv") == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", b'[{"a": 1}', "item 2 of the list"),
        ("x.json", b'[{"a": 1} {"b": 2}]', "after item 1 of the list"),
        ("x.json", b"[1]", "item 1 of the list is int"),
        ("x.json", b'[{"a": "\xff"}]', "not UTF-8"),
        ("x.json", b"3", "found int"),
        ("x.json", b"", "not JSON"),
        ("x.json", b'{"a": 1}\n{', "x.json:2: not JSON"),
        ("x.jsonl.gz", b"junk", "damaged"),
        ("x.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 900, mtime=0)[:30], "damaged"),
        ("x.jsonl.zst", b"junk", "damaged"),
        ("x.zip!a.jsonl", b"junk", "not a readable zip archive"),
        ("x.zip!b.jsonl", zip_bytes({"a.jsonl": b""}), "holds no 'b.jsonl'; there are: a.jsonl"),
        ("x.csv", b"a,a\n1,2\n", "must name the columns, each once"),
        ("x.csv", b"", "must name the columns"),
        ("x.csv", b"a,b\n1\n", "x.csv:2: this row has not the 2 values"),
        ("x.csv", b"a,b\n1,2,3\n", "x.csv:2: this row has not the 2 values"),
        ("x.csv", b'a,b\n1,"2', "not CSV"),
        ("x.csv", b"a\n\xff\n", "not UTF-8"),
        ("x.pickle", b"", r"data files end in .parquet, .jsonl.*not .pickle"),
        ("noname", b"", "not nothing"),
    ],
)
def test_what_is_not_what_its_name_says(name, content, words):
    with pytest.raises(BadInput, match=words):
        read(content, name)


def test_a_huge_cell_is_read(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("context,question\n" + "x" * 400_000 + ",?\n")
    assert len(next(rows_of(path))["context"]) == 400_000


def test_only_the_rows_taken_are_read():
    class Counted(io.BytesIO):
        given = 0

        def read(self, size=-1, /):
            data = super().read(size)
            self.given += len(data)
            return data

    file = Counted(json.dumps([{"text": "x" * 1000, "i": i} for i in range(3000)]).encode())
    rows = rows_from(file, "x.json")
    assert [next(rows)["i"] for _ in range(5)] == [0, 1, 2, 3, 4]
    assert file.given < 200_000


def test_files_of_the_users_that_are_not_lines(tmp_path):
    (tmp_path / "a.csv").write_text('﻿id,passage,query,answer,level\n1,"long\ntext",why?,because,3\n2,other,how?,,4\n')
    loaded = load(str(tmp_path / "a.csv"))
    first, second = loaded.examples()
    assert (first["id"], first["context"], first["question"], first["answer"], first["level"]) == (
        "1",
        "long\ntext",
        "why?",
        "because",
        "3",
    )
    assert "passage" not in first
    assert "answer" not in second
    assert loaded.manifest()["fields"] == {"id": "id", "context": "passage", "question": "query", "answer": "answer"}
    assert len(list(load(str(tmp_path / "a.csv"), n=1).examples())) == 1

    (tmp_path / "b.csv").write_text('question,choices,correct_letter\nWho?,"[""x"", ""y""]",B\n')
    loaded = load(str(tmp_path / "b.csv"))
    (example,) = loaded.examples()
    assert (example["choices"], example["answer"], example["correct_letter"]) == (["x", "y"], "y", "B")
    assert (loaded.evaluators, loaded.has_context) == (["answer", "multiple_choice"], False)

    (tmp_path / "c.csv").write_text("question,choices\nWho?,[x\n")
    with pytest.raises(BadInput, match="column 'choices': a list in a table is written as JSON"):
        load(str(tmp_path / "c.csv"))
    (tmp_path / "d.csv").write_text("id,question\n1,a\n1,b\n")
    with pytest.raises(BadInput, match="row 2: id '1' was used before"):
        load(str(tmp_path / "d.csv"))
    (tmp_path / "e.csv").write_text("id,question\n")
    with pytest.raises(BadInput, match="holds no rows"):
        load(str(tmp_path / "e.csv"))
    with pytest.raises(BadInput, match="cannot read"):
        load(str(tmp_path / "none.csv"))
    (tmp_path / "f.parquet").write_bytes(b"junk")
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        load(str(tmp_path / "f.parquet"))


@pytest.mark.parametrize(
    ("row", "evaluators"),
    [
        ({"context": "c", "question": "q", "answer": "a"}, ["answer"]),
        ({"question": "q", "answer": "a", "choices": ["a", "b"], "correct_letter": "A"}, ["answer", "multiple_choice"]),
        ({"question": "q", "test": "def check(f): ...", "entry_point": "f"}, ["code_execution"]),
        ({"question": "q", "test_list": ["assert f(1)"]}, ["code_execution"]),
        ({"question": "q", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, ["ifeval"]),
        ({"question": "q", "tools": [], "expected_calls": [{"name": "f", "arguments": {}}]}, ["tool_call"]),
        ({"context": "c"}, []),
    ],
)
def test_evaluators_are_picked_by_what_rows_carry(tmp_path, row, evaluators):
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "x.json").write_text(json.dumps([row]))
    assert load(str(tmp_path / "x.jsonl")).evaluators == load(str(tmp_path / "x.json")).evaluators == evaluators
    assert (
        load(str(tmp_path / "x.jsonl")).has_context == load(str(tmp_path / "x.json")).has_context == ("context" in row)
    )
