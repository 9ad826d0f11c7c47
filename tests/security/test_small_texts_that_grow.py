"""TOML, YAML and JSON that are small and become deep, large or endless, wherever the program reads them: one clear
error, in a moment.
"""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.agents.datasets import load_tasks
from context_bench.core.errors import BadInput, BadSpec, ContextBenchError
from context_bench.core.plugins import parse_spec
from context_bench.core.templates import load_toml, load_yaml
from context_bench.datasets import spec
from context_bench.judge import judge_replies as _ratings
from context_bench.judge.rubric_judge import rubric_of
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.scripted import Scripted
from context_bench.memory.systems import http_memory as http, mcp
from context_bench.sandbox.workspace_files import put
from context_bench.session.flags import read_options
from context_bench.session.options import RunOptions
from context_bench.transcripts.harness_results import read_answers
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.vocabulary import Vocabulary

DEEP, LONG = "[" * 2000, "9" * 5000
TOML = {
    "deep": f"a = {DEEP}",
    "a long number": f"a = {LONG}",
    "a long key": "a." * 100_000 + "a = 1",
    "a long key of texts": "'a'.\"b\" . " * 50_000 + "a = 1",
    "a long header": "[" + "a." * 100_000 + "a]",
    "behind a text that ends with a quote of its own": 'x = {a = """"b"""", ' + "a." * 100_000 + "a = 1}",
    "quotes that nothing closes": '\\"' * 200_000 + DEEP,
    "texts that nothing closes": 'x = """\\"""\\"""' * 50_000,
    "in a table": "x = {" + "a." * 100_000 + "a = 1}",
}
LAUGHS = "a0: &x0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
YAML = {
    "deep": DEEP,
    "deep lists": "- " * 2000,
    "laughs": LAUGHS,
    "itself": "&a [*a]",
    "twice": "a: 1\nb: 2\na: 3",
    "python": "!!python/object/apply:os.system [true]",
    "a long number": f"a: {LONG}",
    "a key that is a list": "? [a]\n: b",
    "large": "a: b\n" * 2**18,
    "two documents": "a: 1\n---\nb: 2",
    "unknown alias": "*a",
    "no text": "a: \0",
}
READERS = {
    ".toml": [
        rubric_of,
        Scripted,
        load_tasks,
        Vocabulary.load,
        lambda path: read_options({}, path, RunOptions),
        lambda path: spec.read(path),
        lambda path: http.from_spec(str(path)),
        lambda path: mcp.from_spec(str(path)),
    ],
    ".yaml": [rubric_of, lambda path: http.from_spec(str(path)), lambda path: mcp.from_spec(str(path))],
    ".json": [rubric_of, Scripted],
}


@pytest.mark.parametrize(
    ("ending", "bombs"), [(".toml", TOML), (".yaml", YAML), (".json", {"deep": DEEP, "a long number": f"[{LONG}]"})]
)
def test_every_reader_refuses_every_bomb(tmp_path, ending, bombs):
    path = tmp_path / f"it{ending}"
    began = time.process_time()
    for text in (*bombs.values(), "\udc80"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        for reader in READERS[ending]:
            with pytest.raises((BadInput, BadSpec)):
                reader(path)
    assert time.process_time() - began < 20  # the square of a length of 200,000 takes hours


def test_yaml_is_what_json_would_have():
    text = "a: 2026-01-02\nb: &x [1, 2.5, null, true, 'yes']\nc: *x\nd: {<<: {e: 1}, f: 2}\n"
    assert load_yaml(text) == {
        "a": "2026-01-02",
        "b": [1, 2.5, None, True, "yes"],
        "c": [1, 2.5, None, True, "yes"],
        "d": {"e": 1, "f": 2},
    }
    assert load_yaml("") is None


def test_toml_with_dots_in_its_texts_is_toml():
    text = "a = '" + "x." * 500 + "'\nb.c = '''\n" + "One. " * 500 + "\n'''\n'a.b' = 1.5 # " + "." * 500
    assert load_toml(text)["b"]["c"].count(".") == 500


PLAIN = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_categories=["C"]))


@settings(max_examples=25)
@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=10))
def test_json_is_yaml(value):
    assert load_yaml(json.dumps(value, ensure_ascii=False)) == value


@pytest.mark.parametrize("event", [0, "-1", None, [], [1]])
def test_events_that_are_no_objects_are_no_events(event):
    with pytest.raises(ValueError, match="an event is"):
        Trace.from_json({"instance_id": "a", "events": [event]})


@pytest.mark.parametrize("price", [0, None, "1", [1], {1: 2}])
def test_prices_that_are_none_are_told(price):
    with pytest.raises(BadInput, match="price of 'm'"):
        GenaiPrices({"m": price})


def test_an_option_may_be_any_text():
    assert parse_spec(f"py:a.b:C:k={DEEP}").options == {"k": DEEP}


@pytest.mark.parametrize(
    "told", [0.5, "x", {"a": 1}, [1, None, {"logprob": "1"}], [{"logprob": -(10**400)}], [{"logprob": float("nan")}]]
)
def test_probabilities_that_are_none_are_told_by_nobody(told):
    content = [{"token": "4", "logprob": -0.1, "top_logprobs": told}]
    assert _ratings.weighted({"content": content}) is None or not isinstance(told, list)


def test_a_rating_in_brackets_without_end_is_none():
    assert _ratings.first_rating('{"rating": ' + DEEP + "}") is None


@pytest.mark.parametrize("name", ["a" * 256, "ä" * 128, "a/" * 2000 + "b", "\ud800", "../a", "/a", ""])
def test_names_that_no_file_can_have_are_refused(tmp_path, name):
    with pytest.raises(BadInput, match="no path within"):
        put(tmp_path, name, b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_task_may_name_any_repository(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {
        "instance_id": "a" * 500,
        "repo": "b" * 500 + "/c",
        "base_commit": "1",
        "problem_statement": "p",
        "FAIL_TO_PASS": DEEP,
    }
    for tests in (DEEP, "[]"):
        path.write_text(json.dumps(row | {"FAIL_TO_PASS": tests}))
        with pytest.raises((BadInput, BadSpec)):
            load_tasks(path, repos=tmp_path)


def test_an_archive_of_a_version_to_come(tmp_path):
    import zipfile

    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 99
    path.write_bytes(data)
    with pytest.raises(ContextBenchError):
        list(read_answers(path).answers)
