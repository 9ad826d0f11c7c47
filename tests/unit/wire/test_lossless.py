"""JSON rewritten without loss: what comes out can be read back, and everything else stays as it is."""

import csv
import io
import json
import re

import pytest
from hypothesis import given, strategies as st

from context_bench.wire.fidelity import fidelity
from context_bench.wire.lossless import REWRITINGS, rewritten

ROWS = [{"id": 1, "name": "a, b", "ok": True}, {"id": 2, "name": "true", "ok": False}]

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
tables = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, plain)), min_size=2, max_size=5)
)
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def literal(cell: str) -> object:
    if cell[:1] == '"' or cell in ("true", "false", "null") or re.fullmatch(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", cell):
        return json.loads(cell)
    return cell


def from_csv(text: str) -> list[dict[str, object]]:
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    return [dict(zip(head, map(literal, row), strict=True)) for row in rows]


_TOON_CELL = re.compile(r'"(?:[^"\\]|\\.)*"|[^,]*')


def from_toon(text: str) -> list[dict[str, object]]:
    found = re.match(r"\[(\d+)\]\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}:\n", text)
    assert found is not None

    def cells(line: str) -> list[object]:
        made, at = [], 0
        while at <= len(line):
            cell = _TOON_CELL.match(line, at)
            assert cell is not None
            made.append(literal(cell[0]))
            at = cell.end() + 1
        return made

    rows = [cells(line.removeprefix("  ")) for line in text[found.end() :].split("\n")]
    names = [json.loads(name) if name[:1] == '"' else name for name in re.findall(_TOON_CELL, found[2]) if name]
    assert len(rows) == int(found[1])
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_three_forms_of_a_table():
    text = json.dumps(ROWS, indent=2)
    assert rewritten(text, "minify") == '[{"id":1,"name":"a, b","ok":true},{"id":2,"name":"true","ok":false}]'
    assert rewritten(text, "csv") == 'id,name,ok\n1,"a, b",true\n2,"""true""",false'
    assert rewritten(json.dumps({"items": ROWS}, indent=2), "toon") == (
        'items[2]{id,name,ok}:\n  1,"a, b",true\n  2,"true",false'
    )
    assert rewritten(json.dumps({"items": ROWS}, indent=2), "csv").startswith("items:\nid,name,ok\n")


@given(values, st.sampled_from([None, 1, 4]))
def test_without_spaces_it_is_the_same_value(value, indent):
    shorter = rewritten(json.dumps(value, indent=indent), "minify")
    assert json.loads(shorter) == value
    assert shorter == json.dumps(value, separators=(",", ":")) or not isinstance(value, dict | list)


@given(tables, st.sampled_from(["csv", "toon"]))
def test_a_table_can_be_read_back(rows, form):
    text = json.dumps(rows, indent=8)
    shorter = rewritten(text, form)
    read = text if shorter == text else json.dumps((from_csv if form == "csv" else from_toon)(shorter))
    assert json.loads(read) == rows


@given(st.text() | st.lists(st.sampled_from(["[", "{", "\n", '"a"', ":", "1", ",", "]", "}", " "])).map("".join))
def test_any_text_is_taken_and_only_what_is_shorter_is_given(text):
    for name in REWRITINGS:
        assert len(rewritten(text, name)) <= len(text)


def test_numbers_keep_their_spelling():
    text = "[ 1.0, 1e5, 100000000000000000000.10, -0 ]"
    assert rewritten(text, "minify") == "[1.0,1e5,100000000000000000000.10,-0]"
    rows = '[{"price of it": 1.50},  {"price of it": 2.00}]'
    assert rewritten(rows, "csv") == "price of it\n1.50\n2.00"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1,  "a": 2}',  # one key twice
        "[NaN,   1]",
        "[1,   2",
        "see [ 1 ] there",  # no lines of its own
        '[{"a": {"b": 1}},  {"a": {"b": 2}}]',
        '[{"a": "\\ud800 of a pair"},   {"a": "x"}]',
    ],
)
@pytest.mark.parametrize("name", ["csv", "toon"])
def test_what_cannot_be_read_back_stays(text, name):
    assert rewritten(text, name) == text


def test_json_among_other_lines_is_found():
    text = f"Here are the rows:\n\n{json.dumps(ROWS, indent=1)}\n\nand {{this}} is none.\n"
    assert rewritten(text, "minify") == (
        "Here are the rows:\n\n" + json.dumps(ROWS, separators=(",", ":")) + "\n\nand {this} is none.\n"
    )


@pytest.mark.parametrize("line", ["[\n", '{"a":\n', "[" * 5_000 + "\n", '["a", \n', "[1, 2] x\n"])
def test_lines_that_open_and_never_close_cost_no_more_than_their_length(line, monkeypatch):
    from context_bench.wire import lossless

    read = []
    decoder = lossless._DECODER

    class Counting:
        def raw_decode(self, text, at):
            read.append(at)
            return decoder.raw_decode(text, at)

    monkeypatch.setattr(lossless, "_DECODER", Counting())
    text = line * 2_000
    assert rewritten(text, "minify") == text or len(line) > 6
    assert len(read) <= 4_001


@pytest.mark.parametrize(
    ("opening", "end"),
    [
        ("[\n", "[" * 3_000),
        ('{"a":\n', "[" * 3_000),
        ("[\n", '{"a":' * 3_000),
        ("[\n", '{"a": 1, "a": 2}'),
        ("[\n", "NaN"),
    ],
)
def test_what_is_wide_before_it_fails_is_read_a_few_times_at_most(opening, end, monkeypatch):
    """Nesting that is too deep stands behind much that is not: each line that opens something would read all of it."""
    from context_bench.wire import lossless

    text = opening * 400 + "[" + "1," * 300_000 + end + "\n"
    read, decoder = [], lossless._DECODER

    class Counting:
        def raw_decode(self, text, at):
            read.append(len(text) - at)
            return decoder.raw_decode(text, at)

    monkeypatch.setattr(lossless, "_DECODER", Counting())
    assert rewritten(text, "minify") == text
    assert sum(read) <= 4 * len(text)


def test_json_behind_what_is_too_deep_is_found():
    assert rewritten("[" * 5_000 + "\n[1,   2]\n", "minify") == "[" * 5_000 + "\n[1,2]\n"


def test_a_table_as_csv_has_lost_no_number():
    rows = [{"id": n, "tons": n * 10.5, "name": f"ship {n}"} for n in range(12)]
    text = json.dumps(rows, indent=2)
    for name in REWRITINGS:
        assert not fidelity(text, rewritten(text, name)).lost
