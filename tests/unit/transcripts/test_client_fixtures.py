"""The sessions of real clients that tests read: nothing of a client's text is in them, and everything that figures hang
on is.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path

import pytest

from context_bench.core.keys import canonical_json
from context_bench.core.tokens import counter_for
from context_bench.transcripts import read_sessions
from context_bench.wire.apis import parse_request
from context_bench.wire.request import count_request

ROOT = Path(__file__).parents[3]
NAMES = sorted(file.name.removesuffix(".jsonl.xz") for file in (ROOT / "tests" / "fixtures" / "clients").glob("*.xz"))
COUNT = counter_for(None).count


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("client_fixtures", ROOT / "scripts" / "client_fixtures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def texts(value, field=""):
    """Strings of a request that a model reads as text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, field)
    elif isinstance(value, str) and field in ("text", "content", "description", "output", "thinking", "name"):
        yield value


@pytest.mark.parametrize("name", NAMES)
def test_bodies_hold_made_words_only_and_as_many_tokens_as_were_counted_live(client_session, script, name):
    words = frozenset(script.WORDS)
    for record in lines(client_session(name) / "records.jsonl"):
        body = record["request"]
        spoken = {word.lower() for text in texts(body) for word in re.findall(r"[A-Z]?[a-z]+", text)}
        assert spoken <= words
        counted = count_request(parse_request(record["wire"], body), counter_for(body["model"])).total
        assert abs(counted - record["tokens"]) <= 2


@pytest.mark.parametrize("name", NAMES)
def test_provider_and_watch_state_one_usage(client_session, name):
    folder = client_session(name)
    told = [row["usage"] for row in lines(folder / "usage.jsonl") if row["kind"] == "prompt"]
    seen = [record["usage"] for record in lines(folder / "records.jsonl")]
    assert sorted(usage["output_tokens"] for usage in told) == sorted(usage["output_tokens"] for usage in seen)
    read = [
        usage.get("cache_read_input_tokens", usage.get("input_tokens_details", {}).get("cached_tokens"))
        for usage in told
    ]
    assert sum(read) == sum(usage["cache_read"] for usage in seen) > 0


def test_logs_and_bodies_share_what_the_tools_returned_and_the_names_of_tools(client_session):
    folder = client_session("claude-long")
    body = lines(folder / "records.jsonl")[-1]["request"]
    (log,) = folder.glob("log/projects/*/*.jsonl")
    blocks = [block for message in body["messages"] for block in message["content"]]
    logged = [
        block
        for row in lines(log)
        if isinstance(row.get("message", {}).get("content"), list)
        for block in row["message"]["content"]
    ]
    for kind, field in (("tool_result", "content"), ("tool_use", "name"), ("tool_use", "input")):
        sent, kept = ([block[field] for block in where if block["type"] == kind] for where in (blocks, logged))
        assert sent
        # (this client adds a reminder to a result now and then: it is in the body alone, after the text without its
        # last white space)
        assert [
            text
            for text in sent
            if text not in kept and not (kind == "tool_result" and text.startswith(tuple(k.rstrip() for k in kept)))
        ] == []
    assert {block["name"] for block in blocks if block["type"] == "tool_use"} <= {
        tool["name"] for tool in body["tools"]
    }


def test_prefixes_stay_prefixes_and_marks_stay_where_they_were(client_session):
    bodies = [record["request"] for record in lines(client_session("claude-long") / "records.jsonl")]
    for before, after in itertools.pairwise(bodies):
        assert before["tools"] == after["tools"]
        assert before["system"] == after["system"]
        bare = [[{**block, "cache_control": None} for block in message["content"]] for message in before["messages"]]
        assert bare == [[{**b, "cache_control": None} for b in m["content"]] for m in after["messages"][: len(bare)]]
    marks = [[("cache_control" in block) for block in message["content"]] for message in bodies[-1]["messages"]]
    assert marks[-1][-1]
    assert not any(mark for message in marks[:-1] for mark in message)


def test_a_text_becomes_one_of_as_many_tokens_line_by_line(script):
    maker = script.Maker()
    text = (
        "# A heading\n\n  * an item, *marked*;\n\tif x == 12.5: return {'a': [1, 2]}\r\n\n---\nthe end, without a break"
    )
    made = maker.text(text)
    assert COUNT(made) == COUNT(text)
    assert made.count("\n") == text.count("\n")
    assert not {"heading", "item", "marked", "return", "without"} & set(re.findall(r"\w+", made))
    assert maker.text("> " + text).splitlines()[1:] == made.splitlines()[1:]
    assert script.Maker().text(text) == made != script.Maker("another").text(text)


def test_definitions_of_tools_get_made_names_and_keep_their_size(script):
    schema = {
        "type": "object",
        "properties": {"file_path": {"type": "string", "description": "Where it is."}},
        "required": ["file_path"],
    }
    tools = [{"name": "ReadFile", "description": "Reads a file: `cat`, with numbers.", "input_schema": schema}]
    redactor = script.Redactor()
    made = redactor.value(
        {
            "tools": tools,
            "content": [{"type": "tool_use", "id": "t1", "name": "ReadFile", "input": {"file_path": "/a/b.py"}}],
        }
    )
    (tool,), (call,) = made["tools"], made["content"]
    assert COUNT(canonical_json(made["tools"])) == COUNT(canonical_json(tools))
    assert call["name"] == tool["name"] != "ReadFile"
    assert (
        list(call["input"])
        == tool["input_schema"]["required"]
        == list(tool["input_schema"]["properties"])
        != ["file_path"]
    )
    assert "b.py" not in json.dumps(made)


def test_folders_and_installations_are_named_nowhere(script):
    told = {"user_id": '{"device_id":"49332d18","account_uuid":"","session_id":"5f0c"}'}
    made = script.Redactor().value(
        {"cwd": "/home/somebody/work", "metadata": told, "workspaces": {"/home/somebody/work": {"model": "gpt-4.1"}}}
    )
    assert "somebody" not in json.dumps(made)
    assert "49332d18" not in json.dumps(made)
    assert json.loads(made["metadata"]["user_id"])["session_id"] == "5f0c"
    assert made["workspaces"]["/work/repo"] == {"model": "gpt-4.1"}


def test_an_export_beside_the_database_is_the_same_session(client_session):
    folder = client_session("opencode-lookaround") / "log"
    found = [session.id for session in read_sessions(folder)]
    assert found
    assert len(found) == len(set(found))
    assert found == [session.id for session in read_sessions(next(folder.glob("export-*.json")))]
