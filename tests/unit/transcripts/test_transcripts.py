"""Formats that are read once, as transcripts: what the session says and what the trace says come from the same
record.
"""

import json
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.records import Usage
from context_bench.shell.repo import Snapshot
from context_bench.transcripts import read_sessions
from context_bench.transcripts.session import Session
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import load_traces

from . import transcript_cases as cases

REPO = Snapshot.from_json(cases.REPO)


def sessions(path: Path) -> list[Session]:
    return list(read_sessions(path))


def trace(path: Path, **more: Any) -> Trace:
    (one,) = load_traces(path, **more)
    return one


def brief(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.step, event.kind, event.path, event.ranges, event.ok) for event in events if event.kind != "exec"]


def spoken(session: Session) -> list[tuple[str, str]]:
    return [(message["role"], str(message.get("content"))) for message in session.messages]


def dump(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -- opencode
# ------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(cases.export(cases.MAIN, cases.MAIN_MESSAGES))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    cases.database(path, (cases.MAIN, cases.MAIN_MESSAGES), (cases.HELPER, cases.HELPER_MESSAGES)).close()
    return path


def test_an_export_of_opencode_is_a_session(exported: Path) -> None:
    (session,) = sessions(exported)
    assert (session.id, session.wire, len(session.requests)) == ("ses_main", "anthropic", 4)
    meta = {name: session.meta[name] for name in ("format", "reconstructed", "version", "cwd", "assumed", "skipped")}
    told = {"format": "opencode", "reconstructed": True, "version": "1.18.33", "cwd": "/ws/demo"}
    assert meta == {**told, "assumed": ["system", "tools"], "skipped": {}}
    first, second, third, _ = session.requests
    reply = first.recorded_reply
    assert reply is not None
    # `input` leaves the cached tokens out, `output` the thoughts, as `total` shows
    assert reply.usage == Usage(1000, 75, 400, 100, 25)
    assert (reply.model, reply.text, reply.finish_reason, first.at) == (
        "claude-sonnet-4-5",
        "I look.",
        "tool-calls",
        0.0,
    )
    assert (second.at, third.at) == (1.0, 5.0)
    assert "system" not in first.body
    assert "tools" not in first.body
    thought = {"type": "thinking", "thinking": "First look.", "signature": "c2lnbmVk"}
    assert second.body["messages"][1]["content"][0] == thought
    assert [(use.name, use.output) for use in session.tool_uses()][1:3] == [
        ("bash", "cat: nowhere.py: No such file or directory\n"),
        ("task", "Seen."),
    ]
    assert spoken(session)[-1] == ("assistant", "Done.")


def test_an_export_of_opencode_is_a_trace(exported: Path) -> None:
    one = trace(exported, repo=REPO)
    assert (one.instance_id, one.agent, one.model, one.cwd) == ("ses_main", "opencode", "claude-sonnet-4-5", "/ws/demo")
    assert (one.usage, one.cost, one.skipped) == (Usage(4000, 300, 1600, 400, 100), 0.04, {})
    assert brief(one.events) == [
        (1, "read", "src/calc.py", ((4, 5),), True),
        (2, "read", "nowhere.py", None, False),
        (3, "other", None, None, True),
        (4, "edit", "src/calc.py", ((5, 5),), True),
        (5, "read", "gone.py", None, False),
    ]
    assert [event.turn for event in one.events] == [1, 2, 2, 2, 3, 3]
    assert [event.tokens_before for event in one.events][:2] == [None, 1075]


def test_opencodes_database_holds_every_session(base: Path) -> None:
    main, helper = sessions(base)
    assert (main.id, helper.id, helper.meta["parent"], helper.meta["sidechain"]) == (
        "ses_main",
        "ses_helper",
        "ses_main",
        True,
    )
    (exported,) = sessions(_exported(base))
    assert [request.body for request in main.requests] == [request.body for request in exported.requests]
    one = trace(base, repo=REPO)
    aside = [(event.path, event.sidechain) for event in one.events if event.kind == "read"]
    assert aside == [("src/calc.py", False), ("nowhere.py", False), ("src/util.py", True), ("gone.py", False)]
    assert [event.turn for event in one.events] == sorted(event.turn or 0 for event in one.events)
    assert one.usage is not None
    assert one.usage.input_tokens == 6000


def _exported(base: Path) -> Path:
    path = base.parent / "same.json"
    path.write_text(cases.export(cases.MAIN, cases.MAIN_MESSAGES))
    return path


def test_the_database_is_read_while_opencode_writes_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    writer = cases.database(path, (cases.MAIN, cases.MAIN_MESSAGES))
    before = path.read_bytes()
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM message")
    assert len(sessions(path)[0].requests) == 4  # what is committed, in the write-ahead log
    writer.rollback()
    assert path.read_bytes() == before
    writer.close()


def test_a_folder_finds_the_database(base: Path) -> None:
    (base.parent / "notes.db").write_bytes(b"SQLite format 3\0")
    assert {session.id for session in read_sessions(base.parent)} == {"ses_main", "ses_helper"}
    assert [one.instance_id for one in load_traces(base.parent)] == ["ses_main"]


def test_compaction_starts_a_context_whose_prompt_nobody_recorded(tmp_path: Path) -> None:
    kept = [cases.said(10, {"type": "text", "text": "And now?"}), cases.step(11, {"type": "text", "text": "Fine."})]
    asked = cases.said(12, {"type": "compaction", "auto": True, "tail_start_id": "msg_10"})
    summary = cases.step(
        13, {"type": "text", "text": "So far: a look."}, parent="msg_12", summary=True, mode="compaction"
    )
    more = [cases.said(14, {"type": "text", "text": "Go on."}), cases.step(15, cases.THOUGHT)]
    messages = [*cases.MAIN_MESSAGES, *kept, asked, summary, *more]
    path = tmp_path / "session.json"
    path.write_text(cases.export(cases.MAIN, messages))
    (session,) = sessions(path)
    assert len(session.requests) == 7
    assert [m["content"] for m in session.requests[5].messages] == ["(The prompt was not recorded.)"]
    after = [(m["role"], m["content"]) for m in session.requests[6].messages]
    carried = [
        ("user", "What did we do so far?"),
        ("assistant", "So far: a look."),
        ("user", "And now?"),
        ("assistant", "Fine."),
    ]
    assert after == [*carried, ("user", "Go on.")]
    assert session.meta["assumed"] == ["system", "tools", "prompt"]
    usage = trace(path).usage
    assert usage is not None
    assert usage.input_tokens == 7000  # what is carried over is counted once


def test_an_output_that_was_dropped_later_is_sent_until_then(tmp_path: Path) -> None:
    dropped = {"time": {"compacted": cases.BEGAN + 4500}}
    read = cases.tool("t1", "read", {"filePath": "/ws/demo/src/calc.py"}, 2, cases.NUMBERED, **dropped)
    messages = [
        *cases.MAIN_MESSAGES[:1],
        cases.step(2, read),
        cases.step(3, cases.THOUGHT),
        cases.step(5, cases.THOUGHT),
    ]
    path = tmp_path / "session.json"
    path.write_text(cases.export(cases.MAIN, messages))
    (session,) = sessions(path)
    outputs = [[m["content"] for m in request.messages if m["role"] == "tool"] for request in session.requests]
    assert outputs == [[], [cases.NUMBERED], ["[Old tool result content cleared]"]]
    assert brief(trace(path, repo=REPO).events) == [(1, "read", "src/calc.py", ((4, 5),), True)]


def test_what_failed_or_never_ended_is_told(tmp_path: Path) -> None:
    open_ = cases.tool("t1", "bash", {"command": "sleep 9"}, 2, status="running")
    failed = cases.step(3, error={"name": "APIError", "data": {"message": "overloaded"}})
    odd = cases.step(4, {"type": "hologram"}, {"type": "text", "text": "Well."})
    path = tmp_path / "session.json"
    path.write_text(
        cases.export(cases.MAIN, [*cases.MAIN_MESSAGES[:1], cases.step(2, open_), {**failed, "parts": []}, odd])
    )
    (session,) = sessions(path)
    assert [use.output for use in session.tool_uses()] == ["[Tool execution was interrupted]"]
    assert session.meta["skipped"] == {"an answer that failed": 1, "part hologram": 1}


def test_exports_in_one_file_are_joined_and_hostile_circles_are_none(tmp_path: Path) -> None:
    def row(name: str, parent: str | None) -> dict[str, Any]:
        return {"info": {**cases.MAIN, "id": name, "parentID": parent}, "messages": cases.HELPER_MESSAGES}

    chain = [row(f"s{number}", f"s{number - 1}" if number else None) for number in range(500)]
    path = dump(tmp_path / "many.jsonl", *chain[::-1])
    assert len(sessions(path)) == 500
    assert trace(path).instance_id == "s0"
    circle = dump(tmp_path / "circle.jsonl", row("a", "b"), row("b", "a"), row("c", "c"), row("d", "nobody"))
    assert {session.id for session in read_sessions(circle)} == {"a", "b", "c", "d"}
    assert len(list(load_traces(circle))) == 3


def test_a_long_log_of_dropped_outputs_takes_no_longer_for_it(tmp_path: Path) -> None:
    steps = []
    for number in range(1000):
        dropped = {"time": {"compacted": cases.BEGAN + (number + 2) * 1000}}
        steps.append(cases.step(number, cases.tool(f"t{number}", "bash", {"command": "ls"}, number, "x", **dropped)))
    path = tmp_path / "session.json"
    path.write_text(cases.export(cases.MAIN, [*cases.MAIN_MESSAGES[:1], *steps]))
    (session,) = sessions(path)
    assert (len(session.requests), session.meta["contexts"]) == (1000, 200)


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE session (id text); CREATE TABLE message (id text, session_id text)",
        "CREATE VIEW session AS SELECT 1 id; CREATE TABLE message (id, session_id, data); "
        "CREATE TABLE part (id, message_id, session_id, data)",
    ],
)
def test_another_programs_database_is_refused_plainly(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "opencode.db"
    base = sqlite3.connect(path)
    base.executescript(schema)
    base.close()
    with pytest.raises(BadInput, match="not a log that can be read"):
        sessions(path)


def test_a_damaged_database_is_refused_plainly(base: Path) -> None:
    whole = base.read_bytes()
    base.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(BadInput, match=r"cannot read|no reply|not a log"):
        sessions(base)


def test_the_database_may_lie_where_nothing_can_be_written(base: Path) -> None:
    base.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(sessions(base)) == 2
    finally:
        base.parent.chmod(stat.S_IRWXU)


# -- Codex
# ------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_a_rollout_without_envelopes(tmp_path: Path, whole: bool) -> None:
    document = {"session": cases.CODEX_HEAD, "items": cases.CODEX_ITEMS}
    path = dump(tmp_path / "rollout.jsonl", *([document] if whole else cases.CODEX_BARE))
    (session,) = sessions(path)
    assert (session.id, session.wire, session.meta["format"]) == (
        cases.CODEX_HEAD["id"],
        "openai-responses",
        "codex-rollout",
    )
    assert (session.meta["cwd"], session.meta["skipped"], len(session.requests)) == ("/ws/demo", {}, 2)
    last = session.requests[-1]
    assert last.body["input"] == cases.CODEX_ITEMS[:5]  # as they stood on the wire, sealed thoughts too
    assert last.body["instructions"] == "Be brief."
    assert last.recorded_reply is not None
    assert last.recorded_reply.text == "Done."
    assert [(use.name, use.output) for use in session.tool_uses()] == [("shell", cases.SHOWN)]
    one = trace(path, repo=REPO)
    assert (one.cwd, one.repo, one.commit) == (
        "/ws/demo",
        "https://example.org/demo.git",
        cases.CODEX_HEAD["git"]["commit_hash"],
    )
    assert brief(one.events) == [(1, "read", "src/calc.py", ((4, 5),), True)]


def test_instructions_that_are_told_again_are_sent_once(tmp_path: Path) -> None:
    again = cases.codex_said("user", "<user_instructions>\n\nBe brief.\n\n</user_instructions>")
    (session,) = sessions(dump(tmp_path / "rollout.jsonl", cases.CODEX_HEAD, again, *cases.CODEX_ITEMS))
    assert "instructions" not in session.requests[0].body


# -- Aider
# ------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(cases.AIDER)
    return path


def test_aiders_history_is_a_session_for_each_start_that_said_something(history: Path) -> None:
    first, second = read_sessions(history.parent)
    assert (first.id, second.id) == ("aider-2026-01-02T03:04:05", "aider-2026-01-02T05:00:00")
    assert first.meta["version"] == "0.86.2"
    assert first.meta["usage_rounded"] is True
    roles = [(role, text.split("\n")[0]) for role, text in spoken(first)]
    assert roles == [
        ("user", "Make the total whole."),
        ("assistant", "It starts as a float."),
        ("user", "# 1 SEARCH/REPLACE block failed to match!"),
        ("assistant", "src/new.py"),
    ]
    assert "> a quotation, which is no word of the program" in spoken(first)[1][1]
    replies = [request.recorded_reply for request in first.requests]
    assert [reply.usage for reply in replies if reply] == [Usage(2500, 62, 300, 1200), Usage(3100, 20)]
    assert [reply.model for reply in replies if reply] == ["openai/gpt-4.1"] * 2
    assert second.wire == "anthropic"
    assert "prompt" in second.meta["assumed"]  # the program asked by itself once a file was added


def test_aiders_history_is_a_trace_of_files_shown_and_edits_made(history: Path) -> None:
    first, second = load_traces(history, repo=REPO)
    assert (first.instance_id, first.agent, first.model, first.cost) == (
        history.parent.name,
        "aider",
        "openai/gpt-4.1",
        0.0116,
    )
    assert [event.tool for event in first.events if event.kind == "exec"] == ["bash"]
    assert [event for event in brief(first.events) if event[1] != "list"] == [
        (1, "read", "src/calc.py", "all", True),
        (2, "read", "src/util.py", "all", True),
        (4, "edit", "src/calc.py", ((5, 5),), True),
        (5, "edit", "src/calc.py", None, False),
        (6, "edit", "src/new.py", None, True),
    ]
    assert brief(second.events) == [(1, "read", "src/util.py", "all", True)]


# -- SWE-agent
# ------------------------------------------------------------------------


def test_a_trajectory_is_a_session_with_prompt_task_and_thoughts(tmp_path: Path) -> None:
    path = dump(tmp_path / "demo__demo-1.traj", cases.SWE_AGENT)
    (session,) = sessions(path)
    assert (session.id, session.meta["format"], len(session.requests)) == ("demo__demo-1", "swe-agent", 2)
    assert [(role, text) for role, text in spoken(session) if role != "tool"] == [
        ("system", "You work in a shell."),
        ("user", "An example: open a file."),
        ("user", "Fix subtotal."),
        ("assistant", "I open it."),
        ("assistant", "I mend it."),
    ]
    assert session.meta["assumed"] == ["tools", "what was shown below each observation"]
    assert [use.name for use in session.tool_uses()] == ["open_file", "edit"]


def test_a_file_of_messages_alone_and_steps_that_hold_what_was_asked(tmp_path: Path) -> None:
    said = []
    for step in cases.TRAJECTORY:
        said.append(
            {
                "role": "assistant",
                "content": step["response"],
                "thought": step["thought"],
                "action": step["action"],
                "agent": "main",
            }
        )
        said.append({"role": "user", "content": step["observation"], "agent": "main"})
    alone = dump(tmp_path / "alone.traj", {"history": [*cases.HISTORY, *said]})
    steps = [{**step, "query": cases.HISTORY} for step in cases.TRAJECTORY]
    asked = dump(tmp_path / "asked.traj", {"trajectory": steps, "info": {}})
    for path in (alone, asked):
        (session,) = sessions(path)
        assert spoken(session)[:3] == [
            ("system", "You work in a shell."),
            ("user", "An example: open a file."),
            ("user", "Fix subtotal."),
        ]
        assert brief(trace(path, repo=REPO).events)[1][:3] == (2, "edit", "src/calc.py")
    bare = dump(tmp_path / "bare.traj", {"trajectory": cases.TRAJECTORY, "info": {}})
    assert sessions(bare)[0].meta["assumed"][-2:] == ["system", "prompt"]


def test_attempts_are_contexts_of_one_session_and_steps_of_one_trace(tmp_path: Path) -> None:
    attempt = {"trajectory": cases.TRAJECTORY, "history": cases.HISTORY, "info": {}}
    path = dump(tmp_path / "a.traj", {"attempts": [attempt, attempt], "info": {"model_stats": {"instance_cost": 0.5}}})
    (session,) = sessions(path)
    assert [len(request.messages) for request in session.requests] == [3, 5, 3, 5]
    assert (trace(path).step_count, trace(path).cost) == (4, 0.5)


LINT = (
    "Your proposed edit has introduced new syntax error(s).\n\nERRORS:\n- E999\n\nThis is how your edit would "
    "have looked if applied\n"
)
RULE = "-" * 48 + "\n"
KEPT = ((4, 4), (6, 8))  # lines shown after the edit that were there before it
SHOWN = cases.window(1, *cases.LINES[:6])
CURSORS = (("5:", "<<<<< START CURSOR >>>>>\n5:"), ("6:", "<<<<< END CURSOR >>>>>\n6:"))
BETWEEN = cases.window(4, *cases.LINES[3:6]).replace(*CURSORS[0]).replace(*CURSORS[1])
MENDED = cases.window(4, cases.LINES[3], "    total = 0", *cases.LINES[5:8])


REFUSED = (
    f"{LINT}{RULE}{MENDED}\n{RULE}\nThis is the original code before your "
    f"edit\n{RULE}{cases.window(4, *cases.LINES[3:7])}\n{RULE}"
    "Your changes have NOT been applied. Please fix your edit command and try again.\n"
)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [
                ("open src/calc.py", SHOWN),
                ("edit 5:5\n    total = 0\nend_of_edit", "File updated. Please review\n" + MENDED),
            ],
            [(2, "edit", "src/calc.py", ((5, 5),), True), (2, "read", "src/calc.py", KEPT, True)],
            id="lines",
        ),
        pytest.param(
            [
                ("open src/calc.py", SHOWN),
                ("edit 'total = 0.0' 'total = 0'", "Text replaced. Please review\n" + MENDED.replace("\n", "\r\n")),
            ],
            [(2, "edit", "src/calc.py", ((5, 5),), True), (2, "read", "src/calc.py", KEPT, True)],
            id="text in the window",
        ),
        pytest.param(
            [
                ("open src/calc.py", SHOWN),
                ("edit 'total' 'sum' True", "Replaced 3 occurrences. Please review\n" + MENDED),
            ],
            [(2, "edit", "src/calc.py", ((4, 5), (7, 8)), True), (2, "read", "src/calc.py", ((6, 6),), True)],
            id="text everywhere",
        ),
        pytest.param(
            [("open src/calc.py", SHOWN), ("edit 'pass'", "Edit successful.")],
            [(2, "edit", "src/calc.py", ((1, 6),), True)],
            id="the window itself",
        ),
        pytest.param(
            [
                ("open src/calc.py", SHOWN),
                ("set_cursors 5 5", BETWEEN),
                ("edit\n    total = 0\nend_of_edit", "File updated.\n" + MENDED),
            ],
            [
                (2, "read", "src/calc.py", ((4, 6),), True),
                (3, "edit", "src/calc.py", ((5, 5),), True),
                (3, "read", "src/calc.py", KEPT, True),
            ],
            id="between cursors",
        ),
        pytest.param(
            [("open src/calc.py", SHOWN), ("edit 5:5\n total = (\nend_of_edit", REFUSED)],
            [(2, "edit", "src/calc.py", ((5, 5),), False), (2, "read", "src/calc.py", ((4, 7),), True)],
            id="refused, with the original shown",
        ),
        pytest.param(
            [("edit 5:5\nx\nend_of_edit", "No file opened. Use the `open` command first.")],
            [],
            id="no file open",
        ),
        pytest.param(
            [
                ("create tests/new.py", cases.window(1, "", path="tests/new.py", total=1)),
                ("insert 'X = 1\n'", cases.window(1, "", "X = 1", path="/testbed/tests/new.py", total=2)),
            ],
            [
                (1, "edit", "tests/new.py", None, True),
                (2, "edit", "tests/new.py", None, True),
                (2, "read", "tests/new.py", (), True),
            ],
            id="create and insert",
        ),
    ],
)
def test_the_windowed_editor_edits_and_shows(tmp_path: Path, steps: list[tuple[str, str]], expected: list[Any]) -> None:
    rows = [cases.swe_step(action, observation) for action, observation in steps]
    events = trace(dump(tmp_path / "a.traj", {"trajectory": rows, "info": {}}), repo=REPO).events
    assert all(event.tool != "bash" for event in events)
    found = brief(events)
    if steps[0][0].startswith("open"):
        assert found.pop(0) == (1, "read", "src/calc.py", ((1, 6),), True)
    assert [event for event in found if event[1] != "other"] == expected


def test_reads_after_an_edit_of_lines_are_told_in_the_lines_of_the_start(tmp_path: Path) -> None:
    longer = ["    total = 0", "    count = 0", "    # both", *cases.LINES[5:8]]
    rows = [
        cases.swe_step("open src/calc.py", SHOWN),
        cases.swe_step(
            "edit 5:5\n    total = 0\n    count = 0\n    # both\nend_of_edit",
            "File updated.\n" + cases.window(5, *longer, total=10),
        ),
        cases.swe_step("goto 8", cases.window(8, *cases.LINES[5:8], total=10)),
    ]
    events = trace(dump(tmp_path / "a.traj", {"trajectory": rows, "info": {}}), repo=REPO).events
    assert brief(events)[1:] == [
        (2, "edit", "src/calc.py", ((5, 5),), True),
        (2, "read", "src/calc.py", ((6, 8),), True),
        (3, "read", "src/calc.py", ((6, 8),), True),
    ]


def test_options_of_the_other_editor_are_kept(tmp_path: Path) -> None:
    action = (
        "str_replace_editor str_replace /testbed/src/calc.py --old_str '    total = 0.0' --new_str '    "
        "total = 0\n    n = 0'"
    )
    rows = [
        cases.swe_step(action, "The file has been edited."),
        cases.swe_step("open src/calc.py", cases.window(7, *cases.LINES[5:8], total=9)),
    ]
    events = trace(dump(tmp_path / "a.traj", {"trajectory": rows, "info": {}}), repo=REPO).events
    assert brief(events)[1] == (2, "read", "src/calc.py", ((6, 8),), True)
