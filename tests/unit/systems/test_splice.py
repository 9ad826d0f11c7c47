"""Texts inside a JSON document are replaced; every other byte stays."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.systems import context

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def replace_strings(document, texts):
    return context.replace_strings(document.encode(), texts).decode()


def paths_of(value, path=()):
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from paths_of(item, (*path, i))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, (*path, key))


def put(value, path, text):
    if not path:
        return text
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[path[0]] = put(value[path[0]], path[1:], text)
    return copy


@given(values, st.sampled_from([None, 1, "\t", "plain"]), st.booleans(), st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_replacing_equals_replacing_in_the_value_and_other_bytes_stay(value, indent, ascii_only, data):
    layout = {"separators": (",", ":")} if indent == "plain" else {"indent": indent}
    document = json.dumps(value, ensure_ascii=ascii_only, **layout)
    assert replace_strings(document, {}) == document
    paths = list(paths_of(value))
    if not paths:
        return
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True, max_size=3))
    texts = {path: data.draw(st.text(max_size=8)) for path in chosen}
    changed = replace_strings(document, texts)
    for path, text in texts.items():
        value = put(value, path, text)
    assert json.loads(changed) == value


def test_numbers_escapes_spaces_and_key_order_stay_as_they_were_written():
    document = (
        '{ "z":1.10,"a" :1E400, "m":[{"content" : "old\\u00e9\\"","x":"\\ud83d\\ude00"} '
        '],"n":123456789012345678901234567890}'
    )
    assert replace_strings(document, {("m", 0, "content"): "new ✓"}) == document.replace('"old\\u00e9\\""', '"new ✓"')


def test_of_equal_keys_the_last_counts_as_for_every_reader():
    assert replace_strings('{"a":"1","a":"2"}', {("a",): "x"}) == '{"a":"1","a":"x"}'


def test_keys_are_found_by_meaning_not_by_spelling():
    assert replace_strings('{"\\u0061":"1"}', {("a",): "x"}) == '{"\\u0061":"x"}'


def test_lone_surrogates_are_written_as_escapes():
    changed = replace_strings('["a"]', {(0,): "b\ud800"})
    assert json.loads(changed.encode("utf-8")) == ["b\ud800"]


def test_depth_is_no_problem():
    depth = 20_000
    document = "[" * depth + '"deep"' + "]" * depth
    assert replace_strings(document, {(0,) * depth: "x"}) == document.replace("deep", "x")


def test_a_path_that_is_no_text_is_an_error():
    with pytest.raises(KeyError, match="content"):
        replace_strings('{"content":null}', {("content",): "x"})


def test_a_long_text_is_replaced_without_copies_of_it():
    document = b'{"a":"' + b"line \\n" * 600_000 + b'","b":"x"}'
    tracemalloc.start()
    changed = context.replace_strings(document, {("b",): "y"})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert changed == document[:-4] + b'"y"}'
    assert most <= 2.5 * len(document)
