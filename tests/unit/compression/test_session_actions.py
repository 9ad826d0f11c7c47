"""Tool calls as moves, and how recorded sessions go on: a file read again is a refetch, a changed one is not."""

from __future__ import annotations

import json

import pytest

from context_bench.compression.session_rules.artifacts import actions, resumed_at
from context_bench.datasets import sessions


def call(name, number, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }
    return [asked, {"role": "tool", "tool_call_id": f"c{number}", "content": "1\tx = 1\n"}]


def test_reading_again_is_told_from_reading_after_a_change():
    messages = [
        *call("Read", 1, file_path="/w/a.py"),
        *call("Read", 2, file_path="/w/b.py"),
        *call("Edit", 3, file_path="/w/b.py", old_string="x = 1", new_string="x = 2"),
        *call("Read", 4, file_path="/w/a.py"),
        *call("Read", 5, file_path="/w/b.py"),
        *call("Read", 6, file_path="/w/c.py"),
    ]
    assert [(move.round, move.reads, move.changes) for move in actions(messages)][:3] == [
        (0, ("/w/a.py",), ()),
        (2, ("/w/b.py",), ()),
        (4, (), ("/w/b.py",)),
    ]
    told = resumed_at(messages, 6)
    assert (told.refetches, told.calls, told.rounds_to_resume) == (1, 3, 1)


@pytest.mark.parametrize("name", sessions.bundled()[:3])
def test_recorded_sessions_go_on(name):
    session = sessions.load_session(name)
    told = resumed_at(session.messages, len(session.messages) // 2, cwd=session.meta["cwd"])
    assert told.calls > 0
    assert 0 <= told.refetch_rate < 1
    assert told.rounds_to_resume is not None
