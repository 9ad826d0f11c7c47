"""The sessions that come with the package: long enough, varied, whole, the same everywhere, and true to themselves."""

import gzip
import hashlib
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import context_bench.datasets.sessions as package
from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.keys import stable_hash
from context_bench.core.tokens import counter_for
from context_bench.datasets.sessions import bundled, load_session
from context_bench.wire.apis import parse_request
from context_bench.wire.cache import common_prefix
from context_bench.wire.request import count_request

NAMES = bundled()
SCRIPTS = {"en": r"[A-Za-z]", "de": r"[äöüßÄÖÜ]", "zh": r"[\u4e00-\u9fff]", "ar": r"[\u0600-\u06ff]"}


#: Texts, times and ground truth of each session: results that were published of one must stay comparable.
HASHES = {
    "bundled:sessions/invoice-service-en": "f8c4bf9b6088269a58438535646ca5a0",
    "bundled:sessions/lagerverwaltung-de": "bf26df18f69e3664bb4838a052011414",
    "bundled:sessions/rate-limiter-en": "f3b04a78a9352f55a3daff504d6197cd",
    "bundled:sessions/upload-traversal-en": "08c423fc4f0918fa41a0353c0e6cb1a6",
    "bundled:sessions/search-latency-en": "3d8e3236a6d7bde1e7bb8d19191e40cc",
    "bundled:sessions/address-migration-en": "ea951bf889c22e6290e90633d70bb6af",
    "bundled:sessions/react-upgrade-en": "502b49fa836725decf7e4374d64257d9",
    "bundled:sessions/cluster-move-en": "990f47420f8b9ec61247c948ee2c811f",
    "bundled:sessions/statement-import-en": "4fe77bc174a7076d5ae67cd929e150eb",
    "bundled:sessions/notice-refactor-en": "82571428eb760d421d828bc0dfb03379",
    "bundled:sessions/order-sync-zh": "0dfa31f988ad2aade48f7bdc6b9703c9",
    "bundled:sessions/clinic-booking-ar": "c3b6cba01e47f78400addf6d152d885e",
}


def test_no_session_changes() -> None:
    for name, expected in HASHES.items():
        session = load_session(name)
        content = [session.meta, [request.at for request in session.requests], session.requests[-1].body]
        assert hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()[:32] == expected, name
    assert list(HASHES) == NAMES


def text(name: str) -> str:
    return "\n".join(json.dumps(message, ensure_ascii=False) for message in load_session(name).messages)


def test_a_dozen_in_four_languages_and_a_long_one() -> None:
    languages, tokens = set(), []
    for name in NAMES:
        session = load_session(name)
        languages.add(session.meta["language"])
        assert re.search(SCRIPTS[session.meta["language"]], session.requests[0].messages[1]["content"])
        tokens.append(count_request(parse_request("openai-chat", session.requests[-1].body), counter_for()).total)
    assert languages == {"en", "de", "zh", "ar"}
    assert len(NAMES) >= 12
    assert tokens[0] >= 60_000
    assert all(4_000 <= count <= 12_000 for count in tokens[1:])


def test_little_is_shipped() -> None:
    folder = Path(package.__file__).parent
    assert (
        sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        < 150_000
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_history_is_only_appended_to(name: str, wire: str) -> None:
    texts = [
        "".join(
            part.text or json.dumps(message.tool_calls)
            for message in parse_request(wire, r.body).messages
            for part in message.parts or [_EMPTY]
        )
        for r in load_session(name, wire=wire).requests
    ]
    for earlier, later in pairwise(texts):
        assert common_prefix(earlier, later) == len(earlier)
        assert len(later) > len(earlier)


class _EMPTY:
    text = None


@pytest.mark.parametrize("name", NAMES)
def test_every_call_is_answered_and_every_answer_was_called_for(name: str) -> None:
    session = load_session(name)
    uses = list(session.tool_uses())
    assert len({use.id for use in uses}) == len(uses) >= 15
    assert all(use.output for use in uses)
    results = [message["tool_call_id"] for message in session.messages if message["role"] == "tool"]
    assert results == [use.id for use in uses]
    assert {"Read", "Bash", "Edit", "Write", "TodoWrite"} <= {use.name for use in uses}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_to_be_true_is_in_the_session(name: str) -> None:
    session = load_session(name)
    truth, told = session.meta["truth"], text(name)
    uses = list(session.tool_uses())
    changed = {json.loads(use.arguments)["file_path"] for use in uses if use.name in ("Edit", "Write")}
    ran = "\n".join(json.loads(use.arguments)["command"] for use in uses if use.name == "Bash")
    touched = {*truth["files_created"], *truth["files_modified"]}
    gone = set(truth.get("files_deleted", ()))
    by_tool = {path.removeprefix(session.meta["cwd"] + "/") for path in changed}
    assert all(path in touched or f"git mv {path} " in ran for path in by_tool - gone)
    assert all(path in ran or "npm install" in ran for path in {*(touched - by_tool), *gone})
    read = {
        json.loads(use.arguments)["file_path"].removeprefix(session.meta["cwd"] + "/")
        for use in uses
        if use.name == "Read"
    }
    by_command = {path for path in set(truth["files_only_read"]) - read if path in ran}
    assert set(truth["files_only_read"]) == (read | by_command) - touched - gone
    assert truth["open"]
    assert truth["decisions"]
    assert len(truth["facts"]) >= 4
    plain = told.replace('\\"', '"').replace("\\\\", "\\").replace('\\"', '"')
    for fact in [*truth["facts"].values(), *truth["open"], *truth["errors"]]:
        assert fact in plain
    for decision in truth["decisions"]:
        assert decision.keys() == {"chosen", "rejected"}


@pytest.mark.parametrize("name", NAMES)
def test_tests_fail_before_they_pass(name: str) -> None:
    outputs = [use.output or "" for use in load_session(name).tool_uses() if use.name == "Bash"]
    failed = [number for number, output in enumerate(outputs) if re.search(r"\b[1-9]\d* failed", output)]
    passed = [
        number for number, output in enumerate(outputs) if re.search(r"\d+ passed", output) and "failed" not in output
    ]
    assert failed
    assert max(passed) > min(failed)


@pytest.mark.parametrize("name", NAMES)
def test_edits_fit_the_file_as_it_was_read(name: str) -> None:
    """What an edit replaces was shown to the agent, or written by it, before."""
    shown = ""
    for message in load_session(name).messages:
        if message["role"] == "tool":
            shown += re.sub(r"(?m)^\d+\t", "", message["content"]) + "\n"
        for call in message.get("tool_calls", []):
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "Edit":
                unseen = [line for line in arguments["old_string"].split("\n") if line not in shown]
                assert unseen == []
                shown += arguments["new_string"] + "\n"
            elif call["function"]["name"] == "Write":
                shown += arguments["content"]
            elif call["function"]["name"] == "Bash":
                shown += re.sub(r"(?m)^[+ -]", "", arguments["command"]) + arguments["command"]


def test_the_same_bytes_in_every_process() -> None:
    code = (
        "from context_bench.datasets.sessions import bundled, load_session; from context_bench.core.keys import "
        "stable_hash; "
        "print([stable_hash(load_session(name).messages) for name in bundled()])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    ).stdout
    assert told.strip() == str([stable_hash(load_session(name).messages) for name in NAMES])


def test_an_agents_cache_marks_on_the_anthropic_wire() -> None:
    body = load_session(NAMES[1], wire="anthropic").requests[-1].body
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    marked = [message for message in body["messages"] for block in message["content"] if "cache_control" in block]
    assert [message["role"] for message in marked] == ["user", "user"]
    assert marked[-1] is [message for message in body["messages"] if message["role"] == "user"][-1]
    assert "cache_control" not in json.dumps(load_session(NAMES[1]).requests[-1].body)


def test_names_times_and_models() -> None:
    assert all(name.startswith("bundled:sessions/") for name in NAMES)
    session = load_session("lagerverwaltung-de", model="some-model")
    assert session.id == "bundled:sessions/lagerverwaltung-de"
    assert {request.body["model"] for request in session.requests} == {"some-model"}
    times = [request.at for request in session.requests]
    assert times[0] == 0.0
    assert all(later is not None and earlier is not None and later > earlier for earlier, later in pairwise(times))
    with pytest.raises(UnknownName, match="order-sync-zh"):
        load_session("order-sync-cn")
    with pytest.raises(BadInput, match="wire"):
        load_session(NAMES[0], wire="models")


def test_a_new_session_is_told_in_a_script_and_packed(tmp_path: Path) -> None:
    teller, packed = tmp_path / "greeting.py", tmp_path / "greeting.jsonl.gz"
    teller.write_text(
        "from __main__ import Story\nLANGUAGE = 'en'\ndef tell():\n"
        "    story = Story('greeting', '/w', 'Be brief.', {'a.py': 'print(1)\\n'})\n"
        "    story.user('Greet me.')\n    story.act('I look.', story.read('a.py'), story.edit('a.py', '1', "
        "'\"hello\"'))\n"
        "    story.say('Done.')\n    return story\n"
    )
    script = Path(__file__).parents[3] / "scripts" / "story.py"
    for _ in range(2):
        subprocess.run([sys.executable, script, teller, packed], check=True, timeout=60)
    header, *messages = [json.loads(line) for line in gzip.decompress(packed.read_bytes()).splitlines()]
    assert header["truth"]["files_modified"] == ["a.py"]
    assert [line["message"]["role"] for line in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert messages[3]["message"]["content"] == "1\tprint(1)\n2\t"
    assert [line["at"] for line in messages] == sorted(line["at"] for line in messages)
