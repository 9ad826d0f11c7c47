"""Formats of agents' logs that the shared session does not come in: what each tells comes out as it went in."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Snapshot, open_repo
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import load_traces
from context_bench.transcripts.transcript import root_among

from . import transcript_cases as cases

NUMBERED = "     8\tdef subtotal(items):\n     9\t    total = 0.0\n    10\t    for item in items:\n"


def one(path: Path, **more: Any) -> Trace:
    (trace,) = load_traces(path, **more)
    return trace


def dump(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def brief(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.step, event.kind, event.path, event.ranges, event.ok) for event in events if event.kind != "exec"]


def test_mini_swe_agent_v1_and_what_the_agent_says_of_itself(tmp_path: Path) -> None:
    said = "Look.\n<explore_context>\nFile: src/a.py\nLines: 3-9\n</explore_context>\n```bash\ncat src/a.py\n```"
    final = (
        "<PATCH_CONTEXT>\nFile: a.py\nLines: 4-5\nFile: b.py\nLines: 1-2\n</PATCH_CONTEXT>\n```sh\necho "
        "MINI_SWE_AGENT_FINAL_OUTPUT\n```"
    )
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": said},
        {
            "role": "user",
            "content": "<returncode>1</returncode>\n<output>\ncat: src/a.py: No such file or directory\n</output>",
        },
        {"role": "assistant", "content": final},
    ]
    info = {
        "submission": "diff --git a/b.py b/b.py\n",
        "model_stats": {"instance_cost": 0.5},
        "config": {"environment": {"cwd": "/testbed"}},
    }
    path = dump(
        tmp_path / "x__y-1.traj.json", {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1"}
    )
    trace = one(path)
    assert (trace.instance_id, trace.cwd, trace.cost, trace.step_count) == ("x__y-1", "/testbed", 0.5, 2)
    claims = [event for event in trace.events if event.provenance == "self_report"]
    assert [(e.step, e.path, e.ranges, e.strength) for e in claims] == [(1, "src/a.py", ((3, 9),), "claimed")]
    assert trace.final is not None
    assert [(e.path, e.ranges) for e in trace.final] == [("a.py", ((4, 5),)), ("b.py", ((1, 2),))]
    assert [event.ok for event in trace.events if event.kind == "exec"] == [False]
    assert trace.events[-1].tool == "submit"


def test_mini_swe_agent_over_the_responses_wire(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "bash", "call_id": "c1", "arguments": json.dumps({"command": "ls"})}
    messages = [
        {"output": [call], "extra": {"actions": [{"command": "ls", "tool_call_id": "c1"}], "timestamp": 1767323040.0}},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": json.dumps({"returncode": 0, "output_head": "a", "elided_chars": 9}),
        },
    ]
    trace = one(
        dump(tmp_path / "a.traj.json", {"info": {}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"})
    )
    assert [(event.tool, event.truncated, event.turn) for event in trace.events if event.kind == "exec"] == [
        ("bash", True, 1)
    ]
    assert trace.started == 1767323040.0


def test_atif_with_sub_agents_and_copied_steps(tmp_path: Path) -> None:
    read = {
        "tool_call_id": "t1",
        "function_name": "Read",
        "arguments": {"file_path": "/ws/demo/src/calc.py", "offset": 8, "limit": 3},
    }
    results = [{"source_call_id": "t1", "content": [{"type": "text", "text": NUMBERED}]}]
    step = {"step_id": 1, "source": "agent", "message": "", "tool_calls": [read], "observation": {"results": results}}
    step["metrics"] = {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 2}
    inner = {"schema_version": "ATIF-v1.5", "agent": {"name": "sub"}, "steps": [{**step, "step_id": 1}]}
    document = {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "claude-code", "model_name": "m"},
        "steps": [{**step, "is_copied_context": True}, step],
        "subagent_trajectories": [inner],
        "extra": {"cwd": "/ws/demo"},
    }
    trace = one(dump(tmp_path / "trajectory.json", document))
    assert brief(trace.events) == [
        (1, "read", "src/calc.py", ((8, 10),), True),
        (2, "read", "src/calc.py", ((8, 10),), True),
    ]
    assert [event.sidechain for event in trace.events] == [False, True]
    assert trace.skipped == {"a step copied from another run": 1}
    assert trace.usage is not None
    assert trace.usage.input_tokens == 10


def test_otel_spans_one_per_line_in_order_of_time(tmp_path: Path) -> None:
    def span(name: str, began: str, **more: Any) -> dict[str, Any]:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **more}
        return {
            "name": f"execute_tool {name}",
            "context": {"trace_id": "t"},
            "start_time": began,
            "attributes": attributes,
        }

    arguments = json.dumps({"path": "a.py", "start_line": 2, "end_line": 4})
    late = span(
        "read_file",
        "2026-01-02T03:04:06Z",
        **{"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": "x\ny\nz\n"},
    )
    early = span("list_dir", "2026-01-02T03:04:05Z", **{"gen_ai.tool.call.arguments": json.dumps({"path": "src"})})
    trace = one(dump(tmp_path / "spans.jsonl", late, early, {"name": "GET /", "attributes": {"http.method": "GET"}}))
    assert brief(trace.events) == [(1, "list", "src", None, True), (2, "read", "a.py", ((2, 4),), True)]
    assert trace.skipped == {"a span of something else": 1}
    bare = one(dump(tmp_path / "bare.jsonl", span("read_file", "2026-01-02T03:04:05Z")))
    assert any("nothing can be scored" in note for note in bare.notes)


def test_swe_agents_window_is_told_by_its_numbers(tmp_path: Path) -> None:
    window = (
        "[File: /testbed/src/calc.py (45 lines total)]\n(7 more lines above)\n8:def f(items):\n9:    n = "
        "0\n(36 more lines below)"
    )
    found = (
        'Found 2 matches for "def" in /testbed/src/util.py:\nLine 1:def clamp(v):\nLine 9:def '
        'helper(value):\nEnd of matches for "def"'
    )
    steps = [
        {
            "action": "open src/calc.py 12",
            "observation": window,
            "state": json.dumps({"working_dir": "/testbed", "open_file": "n/a"}),
        },
        {
            "action": "scroll_down",
            "observation": "No file open. Use the open command first.",
            "state": {"open_file": "/testbed/src/calc.py"},
        },
        {"action": "search_file def src/util.py", "observation": found, "state": {}},
        {
            "action": "str_replace_editor view /testbed/src/calc.py --view_range 8 10",
            "observation": NUMBERED,
            "state": {},
        },
        {
            "action": "str_replace_editor str_replace /testbed/src/calc.py --old_str 'a b' --new_str c",
            "observation": "done",
            "state": {},
        },
        {"action": "submit", "observation": "", "state": {}},
    ]
    info = {"submission": "p", "model_stats": {"tokens_sent": 9, "tokens_received": 4, "instance_cost": 0.1}}
    trace = one(dump(tmp_path / "i__1" / "i__1.traj", {"trajectory": steps, "history": [], "info": info}))
    assert (
        brief(trace.events)
        == [
            (1, "read", "src/calc.py", ((8, 9),), True),
            (2, "read", "src/calc.py", None, False),
            (3, "search", "src/util.py", ((1, 1), (9, 9)), True),
            (4, "read", "src/calc.py", ((8, 10),), True),
            (5, "edit", "src/calc.py", None, True),
            (6, "other", None, None, True),
        ]
        or brief(trace.events)[1][4] is False
    )
    assert (trace.instance_id, trace.cwd, trace.patch) == ("i__1", "/testbed", "p")


def test_openhands_rows(tmp_path: Path) -> None:
    history = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}},
        {
            "id": 1,
            "source": "agent",
            "action": "read",
            "args": {"path": "/workspace/demo/src/a.py", "view_range": None, "start": 4, "end": 9},
        },
        {"id": 2, "source": "agent", "observation": "read", "cause": 1, "content": "text"},
        {
            "id": 3,
            "source": "agent",
            "action": "read",
            "args": {"path": "/workspace/demo/src/a.py", "view_range": [8, 10]},
        },
        {"id": 4, "source": "agent", "observation": "read", "cause": 3, "content": NUMBERED},
        {"id": 5, "source": "agent", "action": "read", "args": {"path": "/workspace/demo/src/none.py"}},
        {"id": 6, "source": "agent", "observation": "error", "cause": 5, "content": "File not found"},
        {"id": 7, "source": "agent", "action": "run", "args": {"command": "true"}},
        {
            "id": 8,
            "source": "agent",
            "observation": "run",
            "cause": 7,
            "content": "",
            "extras": {"metadata": {"exit_code": 0, "working_dir": "/workspace/demo"}},
        },
        {"id": 9, "source": "agent", "action": "frobnicate", "args": {}},
    ]
    tokens = {"prompt_tokens": 100, "completion_tokens": 10, "cache_read_tokens": 40, "cache_write_tokens": 0}
    metrics = {"accumulated_cost": 0.2, "accumulated_token_usage": tokens}
    row = {"instance_id": "d-1", "history": history, "test_result": {"git_patch": "p"}, "metrics": metrics}
    first, second = load_traces(
        dump(tmp_path / "output.jsonl", row, {"instance_id": "d-2", "history": None, "test_result": {}})
    )
    assert brief(first.events) == [
        (1, "read", "src/a.py", ((5, 9),), True),
        (2, "read", "src/a.py", ((8, 10),), True),
        (3, "read", "src/none.py", None, False),
        (5, "other", None, None, True),
    ]
    assert first.skipped == {"unknown tool frobnicate": 1}
    assert first.usage is not None
    assert first.usage.cache_read == 40
    assert (second.instance_id, second.events) == ("d-2", [])


def test_openhands_event_folders_of_both_versions(tmp_path: Path) -> None:
    action = {"kind": "FileEditorAction", "command": "view", "path": "/w/src/a.py", "view_range": [8, 10]}
    rows = [
        {
            "id": "a",
            "source": "agent",
            "kind": "ActionEvent",
            "tool_name": "file_editor",
            "tool_call_id": "c1",
            "action": action,
        },
        {
            "id": "b",
            "source": "environment",
            "kind": "ObservationEvent",
            "tool_call_id": "c1",
            "observation": {"content": [{"type": "text", "text": NUMBERED}]},
        },
        {
            "id": "c",
            "source": "agent",
            "kind": "ActionEvent",
            "tool_name": "file_editor",
            "tool_call_id": "c2",
            "action": {**action, "command": "str_replace"},
        },
        {
            "id": "d",
            "source": "environment",
            "kind": "ObservationEvent",
            "tool_call_id": "c2",
            "observation": {"content": [], "is_error": True},
        },
        {"id": "e", "source": "agent", "kind": "MessageEvent", "llm_message": {}},
    ]
    for number, row in enumerate(rows):
        dump(tmp_path / "task-7" / "events" / f"event-{number:05d}-{row['id']}.json", row)
    old = [
        {"id": 0, "source": "agent", "action": "read", "args": {"path": "src/b.py", "start": 0, "end": -1}},
        {"id": 1, "source": "agent", "observation": "read", "cause": 0, "content": "x = 1"},
    ]
    for number, row in enumerate(old):
        dump(tmp_path / "task-8" / "events" / f"{number}.json", row)
    first, second = load_traces(tmp_path)
    assert (first.instance_id, second.instance_id) == ("task-7", "task-8")
    assert brief(first.events) == [
        (1, "read", "/w/src/a.py", ((8, 10),), True),
        (2, "edit", "/w/src/a.py", None, False),
    ]
    assert brief(second.events) == [(1, "read", "src/b.py", "all", True)]


def test_gemini_lines_repeat_rewind_and_patch(tmp_path: Path) -> None:
    def answer(ident: str, first: int, output: str) -> dict[str, Any]:
        response = [{"functionResponse": {"id": ident, "name": "read_file", "response": {"output": output}}}]
        arguments = {"file_path": "a.py", "start_line": first, "end_line": first + 1}
        call = {"id": f"call-{ident}", "name": "read_file", "args": arguments, "result": response, "status": "success"}
        return {
            "id": ident,
            "type": "gemini",
            "content": "",
            "toolCalls": [call],
            "tokens": {"input": 5, "output": 1, "cached": 0},
        }

    head = {
        "sessionId": "s",
        "projectHash": "p",
        "startTime": "2026-01-02T03:04:00Z",
        "lastUpdated": "x",
        "kind": "main",
    }
    rows = [
        head,
        answer("m1", 1, "a\nb"),
        answer("m1", 3, "a\nb"),
        answer("m2", 9, "a\nb"),
        {"$set": {"lastUpdated": "y"}},
        {"$rewindTo": "m1"},
    ]
    trace = one(dump(tmp_path / "session.jsonl", *rows, answer("m3", 5, "a\nb")))
    assert [event.ranges for event in trace.events] == [((3, 4),), ((5, 6),)]
    assert trace.usage is not None
    assert trace.usage.input_tokens == 10


def test_gemini_stream(tmp_path: Path) -> None:
    rows = [
        {"type": "init", "session_id": "s", "model": "g"},
        {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {"file_path": "a.py"}},
        {"type": "tool_result", "tool_id": "1", "status": "error", "error": {"type": "x", "message": "File not found"}},
        {"type": "result", "status": "success", "stats": {"input_tokens": 9, "output_tokens": 2, "cached": 3}},
    ]
    trace = one(dump(tmp_path / "out.jsonl", *rows))
    assert brief(trace.events) == [(1, "read", "a.py", None, False)]
    assert trace.usage is not None
    assert trace.usage.cache_read == 3


def test_claude_structured_results_and_sub_agents(tmp_path: Path) -> None:
    def use(ident: str, name: str, given: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
        content = [{"type": "tool_use", "id": ident, "name": name, "input": given}]
        return {
            "type": "assistant",
            "message": {"id": f"m{ident}", "content": content},
            "session_id": "s",
            "parent_tool_use_id": parent,
        }

    def result(ident: str, text: str, told: Any = None) -> dict[str, Any]:
        message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": text}]}
        return {
            "type": "user",
            "message": message,
            "session_id": "s",
            "parent_tool_use_id": None,
            "tool_use_result": told,
        }

    hunk = {"oldStart": 9, "oldLines": 1, "newStart": 9, "newLines": 2, "lines": []}
    rows = [
        {"type": "system", "subtype": "init", "cwd": "/w", "session_id": "s", "tools": ["Read"], "model": "m"},
        {"type": "system", "subtype": "compact_boundary", "session_id": "s"},
        use("1", "Read", {"file_path": "/w/a.py"}),
        result(
            "1",
            "whatever",
            {"type": "text", "file": {"filePath": "/w/a.py", "startLine": 5, "numLines": 3, "totalLines": 90}},
        ),
        use("2", "Edit", {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"}),
        result("2", "ok", {"filePath": "/w/a.py", "structuredPatch": [hunk]}),
        use("3", "Grep", {"pattern": "x"}, "agent-1"),
        result(
            "3",
            "Found 2 files\na.py\nsub/b.py",
            {"mode": "files_with_matches", "numFiles": 2, "filenames": ["a.py", "sub/b.py"]},
        ),
        use("4", "mcp__files__read_file", {"path": "/w/c.py", "offset": 2, "limit": 2}),
        result("4", "1\tnot\n2\tnumbers"),
        use("5", "Read", {"file_path": "/w/d.py"}),
    ]
    trace = one(dump(tmp_path / "stream.jsonl", *rows))
    assert [(e.step, e.kind, e.path, e.ranges, e.provenance, e.strength, e.sidechain) for e in trace.events] == [
        (1, "read", "a.py", ((5, 7),), "structured", "shown", False),
        (2, "edit", "a.py", ((9, 9),), "edit", "claimed", False),
        (3, "search", "a.py", None, "output_numbered", "listed", True),
        (3, "search", "sub/b.py", None, "output_numbered", "listed", True),
        (4, "read", "c.py", ((2, 3),), "args", "shown", False),
        (5, "read", "d.py", "all", "args", "claimed", False),
    ]
    assert trace.skipped == {"type system/compact_boundary": 1}


def test_sub_agents_of_a_transcript_are_part_of_its_run(tmp_path: Path) -> None:
    def line(number: int, path: str, side: bool) -> dict[str, Any]:
        content = [{"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": path}}]
        head = {"uuid": f"u{number}", "parentUuid": None, "sessionId": "S", "cwd": "/w", "isSidechain": side}
        return {
            "type": "assistant",
            **head,
            "timestamp": f"2026-01-02T03:04:{number:02d}Z",
            "message": {"id": f"m{number}", "content": content},
        }

    dump(tmp_path / "S.jsonl", line(1, "/w/a.py", False), line(5, "/w/c.py", False))
    dump(tmp_path / "S" / "subagents" / "agent-1.jsonl", line(3, "/w/b.py", True))
    for place in (tmp_path, tmp_path / "S.jsonl"):
        trace = one(place)
        assert [(event.path, event.sidechain) for event in trace.events] == [
            ("a.py", False),
            ("b.py", True),
            ("c.py", False),
        ]
    assert one(tmp_path / "S" / "subagents" / "agent-1.jsonl").step_count == 1


def test_cline_sessions(tmp_path: Path) -> None:
    given = {"path": "src/a.py"}
    messages = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "read_file", "input": given}],
            "ts": 1767323040000,
            "metrics": {"inputTokens": 5, "cacheReadTokens": 2, "outputTokens": 1, "cost": 0.25},
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x = 1\n"}]},
    ]
    session = one(dump(tmp_path / "a.messages.json", {"sessionId": "a", "messages": messages}))
    bare = one(dump(tmp_path / "api_conversation_history.json", messages))
    assert brief(session.events) == brief(bare.events) == [(1, "read", "src/a.py", "all", True)]
    assert (session.usage, session.cost) == (bare.usage, 0.25)
    assert session.usage is not None
    assert session.usage.input_tokens == 7


def test_inspect_archives_and_a_broken_sample(tmp_path: Path) -> None:
    view = {"command": "view", "path": "/w/a.py", "view_range": [8, -1]}
    event = {
        "event": "tool",
        "id": "1",
        "function": "text_editor",
        "arguments": view,
        "result": NUMBERED,
        "error": None,
    }
    wrong = {
        "event": "tool",
        "id": "2",
        "function": "text_editor",
        "arguments": view,
        "result": "",
        "error": {"type": "x", "message": "no"},
    }
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {"model": "m"}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps({"id": 1, "events": [event, wrong], "model_usage": {}}))
        archive.writestr("samples/2_epoch_1.json", "{")
    trace = one(path)
    assert (trace.instance_id, trace.model) == ("1", "m")
    assert brief(trace.events) == [(1, "read", "/w/a.py", ((8, 10),), True), (2, "read", "/w/a.py", None, False)]
    assert trace.skipped == {"an entry that cannot be read": 1}


def test_unified_predictions_are_taken_as_given(tmp_path: Path) -> None:
    step = {
        "files": ["a.py"],
        "spans": {"b.py": [{"type": "line", "start": 3, "end": 4}, {"start": 9, "end": 1}]},
        "symbols": {"b.py": ["f"]},
    }
    told = {"pred_steps": [{"files": []}, step], "pred_files": ["a.py"], "pred_spans": {}}
    trace = one(
        dump(tmp_path / "pred.jsonl", {"instance_id": "i", "traj_data": told, "model_patch": "p", "commit": "c"})
    )
    found = [(e.step, e.path, e.ranges, e.symbols) for e in trace.events]
    assert found == [(1, None, None, ()), (2, "a.py", None, ()), (2, "b.py", ((3, 4), (9, 1)), ("f",))]
    assert trace.final is not None
    assert [event.path for event in trace.final] == ["a.py"]
    assert (trace.step_count, trace.patch, trace.commit) == (2, "p", "c")


def test_agentless_stages(tmp_path: Path) -> None:
    row = {
        "instance_id": "i",
        "3_final_combined_files": ["src/a.py", "src/b.py"],
        "4_related_elements": {"src/a.py": ["class: A\nfunction: A.f"]},
        "5_sampled_edit_locs_and_patches": [
            {"sample_index": 0, "edit_locs": {"src/a.py": ["line: 10\nfunction: A.f"]}, "patches": ["x/y.py"]}
        ],
        "6_final_selected_patch": "p",
    }
    trace = one(dump(tmp_path / "i_traj.json", row))
    assert trace.patch == "p"
    assert trace.final is not None
    assert [(e.path, e.ranges, e.symbols) for e in trace.final] == [
        ("src/a.py", ((10, 10),), ("A", "A.f")),
        ("src/b.py", None, ()),
    ]
    assert all(event.strength != "shown" for event in trace.events)


def test_agentless_lines_are_those_of_the_first_sample_that_names_any(tmp_path: Path) -> None:
    samples = [
        {"edit_locs": {"a.py": ["function: f"], "b.py": []}, "patches": ["diff --git a/c.py b/c.py\nline: 7"]},
        {
            "edit_locs": {
                "a.py": ["class: A\nlines: 9-12\nline: 3"],
                "b.py": ["lines: 8 - 5", "lines: 20–22", " line: 30 "],
            }
        },
        {"edit_locs": {"a.py": ["line: 99"]}},
    ]
    related = {"a.py": ["class: A\nfunction: A.f", "variable: LIMIT", "method: g"], "b.py": ["newline: 4"]}
    row = {
        "2_embedding_selected_files": ["a.py", "b.py"],
        "4_related_elements": related,
        "5_sampled_edit_locs_and_patches": samples,
    }
    trace = one(dump(tmp_path / "i_traj.json", row))
    assert trace.final is not None
    assert [(e.path, e.ranges, e.symbols) for e in trace.final] == [
        ("a.py", ((9, 12), (3, 3)), ("A", "A.f", "LIMIT", "g")),
        ("b.py", ((5, 8), (20, 22), (30, 30)), ()),
    ]


CONTEXT, AGGREGATED = (
    ("--- BEGIN CONTEXT ---", "--- END CONTEXT ---"),
    ("--- BEGIN AGGREGATED CONTEXT ---", "--- END AGGREGATED CONTEXT ---"),
)


def prometheus(tmp_path: Path, *blocks: tuple[tuple[str, str], list[str]], after: str = "") -> Trace:
    text = "".join(f"{begin}\n{chr(10).join(lines)}\n{end}\nDEBUG: thinking\n" for (begin, end), lines in blocks)
    path = tmp_path / "x__y-1.log"
    path.write_text(
        "INFO: start\n--- BEGIN FILE TREE ---\nFile: tree.py\nLine number range: 1 - 2\n--- END FILE TREE "
        f"---\n{text}{after}"
    )
    return one(path)


def test_the_last_aggregated_context_is_what_prometheus_ends_with(tmp_path: Path) -> None:
    trace = prometheus(
        tmp_path,
        (
            CONTEXT,
            [
                "File: a.py",
                "Line number range: 8 - 12",
                "Content:",
                "x = 1",
                "",
                "File: b.py",
                "line Number Range: 6-3",
            ],
        ),
        (CONTEXT, ["File: no_range.md", "Content:", "text"]),
        (AGGREGATED, ["File: a.py", "Line number range: 8 - 12"]),
        (CONTEXT, ["File: c.py", "Line number range: 1 - 2"]),
        (AGGREGATED, ["File: a.py", "Line number range: 9 - 10", "File: c.py", "Line number range: 1 - 2"]),
        after="--- BEGIN AGGREGATED CONTEXT ---\nFile: cut.py\nLine number range: 1 - 9\n",
    )
    assert [(e.step, e.path, e.ranges, e.strength) for e in trace.events] == [
        (1, "a.py", ((8, 12),), "shown"),
        (1, "b.py", ((3, 6),), "shown"),
        (2, "c.py", ((1, 2),), "shown"),
    ]
    assert [(e.path, e.ranges) for e in trace.final or ()] == [("a.py", ((9, 10),)), ("c.py", ((1, 2),))]
    assert trace.step_count == 2


def test_prometheus_with_one_kind_of_block_only(tmp_path: Path) -> None:
    whole = prometheus(tmp_path, (AGGREGATED, ["File: a.py", "Line number range: 8 - 12"]))
    assert [(e.step, e.path, e.ranges, e.strength) for e in whole.events] == [(1, "a.py", ((8, 12),), "shown")]
    assert [(e.path, e.ranges) for e in whole.final or ()] == [("a.py", ((8, 12),))]
    emptied = prometheus(
        tmp_path,
        (CONTEXT, ["File: a.py", "Line number range: 8 - 12"]),
        (AGGREGATED, ["File: a.py", "Line number range: 1 - 2"]),
        (AGGREGATED, []),
    )
    assert emptied.final is None


def test_raw_invocations_fill_gaps_of_curated_ones(tmp_path: Path) -> None:
    curated = [
        {"tool": "Read", "path": "/testbed/a.py", "call_index": 0},
        {"tool": "Edit", "filePath": "/testbed/a.py", "tool_use_id": "t"},
    ]
    patch = {"raw_event": {"state": {"metadata": {"filediff": {"patch": "@@ -4,2 +4,1 @@\n"}}}}}
    raw = [
        {"tool": "Read", "call_index": 0, "raw_input_json": json.dumps({"offset": 8, "limit": 5})},
        {"tool_use_id": "t", **patch},
    ]
    trace = one(
        dump(
            tmp_path / "trace.jsonl",
            {"instance_id": "i", "metadata": {"tool_invocations_curated": curated, "tool_invocations_raw": raw}},
        )
    )
    assert brief(trace.events) == [(1, "read", "a.py", ((8, 12),), True), (2, "edit", "a.py", ((4, 5),), True)]


def test_an_unknown_format_names_what_is_there_and_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"first keys are 'foo'.*codex_rollout"):
        list(load_traces(dump(tmp_path / "x.jsonl", {"foo": 1})))
    with pytest.raises(BadInput, match="no traces in the folder"):
        list(load_traces(tmp_path))
    skipped: list[BadInput] = []
    dump(tmp_path / "pred.jsonl", {"instance_id": "i", "traj_data": {"pred_files": ["a.py"]}})
    assert [trace.instance_id for trace in load_traces(tmp_path, on_skip=skipped.append)] == ["i"]
    assert len(skipped) == 1


# OpenHands: where a command ended, and what was not there
# -----------------------------------------------------------------------------


SHELL = [
    # command, output, exit code, the folder afterwards
    ("cd /workspace/demo/src && cat util.py | head -1", "def clamp(value):", 0, "/workspace/demo/src"),
    ("cat gone.py", "cat: gone.py: No such file or directory", 1, "/workspace/demo/src"),
    (
        "cd .. && cat util.py; cd pkg && cat util.py",
        "def root_helper():\ncat: util.py: No such file or directory",
        1,
        "/workspace/demo/pkg",
    ),
    (
        "cd sub && sed -n '1,2p' gone.py",
        "sed: can't read gone.py: No such file or directory",
        2,
        "/workspace/demo/pkg/sub",
    ),
    ("cat util.py", "def helper():", 0, "/workspace/demo/pkg/sub"),
    ("cd nothere && cat util.py", "bash: cd: nothere: No such file or directory", 1, "/workspace/demo/pkg/sub"),
]
DEMO = Snapshot(
    {
        "src/util.py": b"def clamp(value):\n    pass\n",
        "util.py": b"def root_helper():\n",
        "pkg/sub/util.py": b"def helper():\n",
    }
)


def v0(folder: Path) -> Path:
    history: list[dict[str, Any]] = []
    for number, (command, output, code, after) in enumerate(SHELL):
        history.append({"id": 2 * number, "source": "agent", "action": "run", "args": {"command": command}})
        extras = {"metadata": {"exit_code": code, "working_dir": after}}
        history.append(
            {
                "id": 2 * number + 1,
                "source": "agent",
                "observation": "run",
                "cause": 2 * number,
                "content": output,
                "extras": extras,
            }
        )
    return dump(folder / "output.jsonl", {"instance_id": "demo__demo-1", "history": history, "test_result": {}})


def v1(folder: Path) -> Path:
    events: list[dict[str, Any]] = []
    for number, (command, output, code, after) in enumerate(SHELL):
        action = {"kind": "TerminalAction", "command": command}
        events.append(
            {
                "kind": "ActionEvent",
                "id": f"a{number}",
                "source": "agent",
                "tool_call_id": f"c{number}",
                "tool_name": "terminal",
                "action": action,
            }
        )
        seen = {
            "kind": "TerminalObservation",
            "content": [{"type": "text", "text": output}],
            "metadata": {"exit_code": code, "working_dir": after},
        }
        events.append(
            {
                "kind": "ObservationEvent",
                "id": f"o{number}",
                "source": "environment",
                "tool_call_id": f"c{number}",
                "observation": seen,
            }
        )
    return dump(folder / "events.jsonl", *events)


def completions(folder: Path) -> Path:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Mend it."}]
    for number, (command, output, code, after) in enumerate(SHELL):
        function = {"name": "execute_bash", "arguments": json.dumps({"command": command})}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
            }
        )
        told = f"{output}\n[The command completed with exit code {code}.]\n[Current working directory: {after}]\n"
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": told})
    tools = [{"type": "function", "function": {"name": "execute_bash"}}]
    response = {"choices": [{"message": {"role": "assistant", "content": "done"}}]}
    dump(
        folder / "demo__demo-1" / "m-1700000000.1.json",
        {"messages": messages, "kwargs": {"tools": tools}, "response": response},
    )
    return folder / "demo__demo-1"


@pytest.mark.parametrize("layout", [v0, v1, completions])
@pytest.mark.parametrize("repo", [DEMO, None], ids=["with-its-files", "without"])
def test_openhands_files_that_are_not_there_were_looked_for_where_the_shell_was(
    layout: Any, repo: Any, tmp_path: Path
) -> None:
    trace = one(layout(tmp_path), repo=repo)
    assert trace.cwd == "/workspace/demo"
    reads = [(event.step, event.path, event.ok) for event in trace.events if event.kind == "read"]
    sure = [
        (1, "src/util.py", True),
        (2, "src/gone.py", False),
        (3, "pkg/util.py", False),
        (4, "pkg/sub/gone.py", False),
        (5, "pkg/sub/util.py", True),
    ]
    assert [read for read in reads if read != (3, "util.py", repo is not None)] == sure
    # of two files of one name, one of which is there, the log alone does not tell which
    assert (3, "util.py", repo is not None) in reads


@pytest.mark.parametrize(
    ("folders", "begun", "root", "alone"),
    [
        (["/srv/app"], True, "/srv/app", "/srv/app"),
        (["/srv/app/src"], False, "/srv/app", None),
        (["/srv/app/src", "/srv/app/pkg/sub"], False, "/srv/app", "/srv/app"),
        (["/workspace", "/workspace/demo/src"], True, "/workspace/demo", "/workspace/demo"),
        (["/testbed/src"], False, "/testbed", "/testbed"),
        (["/", "relative"], True, None, None),
        ([], False, None, None),
    ],
)
def test_the_folder_of_the_repository_by_where_the_shell_was(
    folders: list[str], begun: bool, root: str | None, alone: str | None
) -> None:
    assert root_among(folders, DEMO, begun=begun) == root
    assert root_among(folders, None, begun=begun) == alone


def test_clines_tools_do_several_things_in_one_call(tmp_path: Path) -> None:
    def use(ident: str, name: str, given: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": ident, "name": name, "input": given}]}

    def result(ident: str, *parts: dict[str, Any], text: bool = False) -> dict[str, Any]:
        content = [{"type": "text", "text": json.dumps(parts)}] if text else list(parts)
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": content}]}

    read = {"files": [{"path": "/ws/demo/src/calc.py", "start_line": 4, "end_line": 5}, {"path": "/ws/demo/gone.py"}]}
    shown = {
        "query": "/ws/demo/src/calc.py:4-5",
        "result": " 4 | def subtotal(items):\n 5 |     total = 0.0",
        "success": True,
    }
    gone = {"query": "/ws/demo/gone.py", "result": "", "error": "Error reading file: ENOENT", "success": False}
    ran = {"query": "sed -n '1,2p' src/util.py", "result": "def helper(value):\n    return value\n", "success": True}
    failed = {
        "query": "cat nowhere.py",
        "result": "",
        "error": "cat: nowhere.py: No such file or directory",
        "success": False,
    }
    mended = {
        "path": "/ws/demo/src/calc.py",
        "start_line": 5,
        "end_line": 5,
        "new_text": "    total = 0\n    count = 0",
    }
    found = {"query": "return", "result": "Found 1 result\n\nsrc/util.py:2:5\n> 2:     return value", "success": True}
    messages = [
        use("t1", "read_files", read),
        result("t1", shown, gone),
        use("t2", "run_commands", {"commands": [ran["query"], {"command": "cat", "args": ["nowhere.py"]}]}),
        result("t2", ran, failed, text=True),
        use("t3", "editor", mended),
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "Edited /ws/demo/src/calc.py"}],
        },
        use("t4", "read_files", {"files": [{"path": "/ws/demo/src/calc.py", "start_line": 7, "end_line": 7}]}),
        result("t4", {"query": "/ws/demo/src/calc.py:7-7", "result": "7 |     for item in items:", "success": True}),
        use("t5", "editor", {"path": "/ws/demo/src/new.py", "new_text": "X = 1\n"}),
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t5", "content": "File created successfully"}],
        },
        use("t6", "search_codebase", {"queries": ["return"]}),
        result("t6", found),
    ]
    trace = one(
        dump(tmp_path / "s.json", {"sessionId": "s", "cwd": "/ws/demo", "messages": messages}),
        repo=Snapshot.from_json(cases.REPO),
    )
    assert brief(trace.events) == [
        (1, "read", "src/calc.py", ((4, 5),), True),
        (1, "read", "gone.py", None, False),
        (2, "read", "src/util.py", ((1, 2),), True),
        (2, "read", "nowhere.py", None, False),
        (3, "edit", "src/calc.py", ((5, 5),), True),
        (4, "read", "src/calc.py", ((6, 6),), True),
        (5, "edit", "src/new.py", None, True),
        (6, "search", "src/util.py", ((2, 2),), True),
    ]
    assert [event.ok for event in trace.events if event.kind == "exec"] == [True, False]
    assert (trace.step_count, trace.skipped) == (6, {})


def test_commands_that_name_the_folder_of_the_repository(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    for name, told in cases.REPO.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(told["text"])
    (place / "README.md").write_text("# Demo\n")

    def ran(ident: str, command: str, output: str) -> dict[str, Any]:
        item = {
            "id": ident,
            "type": "command_execution",
            "command": command,
            "aggregated_output": output,
            "exit_code": 0,
        }
        return {"type": "item.completed", "item": {**item, "status": "completed"}}

    rows = [
        {"type": "thread.started", "thread_id": "t"},
        ran("i1", "bash -lc 'cat README.md'", "# Demo\n"),
        ran("i2", f"bash -lc 'cat {place}/README.md'", "# Demo\n"),
        ran("i3", f"bash -lc \"sed -n '1,2p' {place}/src/util.py\"", "def helper(value):\n    return value\n"),
        ran("i4", f"bash -lc 'cat {place}-other/README.md'", "# Demo\n"),
    ]
    with open_repo(place) as repo:
        trace = one(dump(tmp_path / "exec.jsonl", *rows), repo=repo)
    assert trace.cwd == str(place)
    assert brief(trace.events) == [
        (1, "read", "README.md", ((1, 1),), True),
        (2, "read", "README.md", ((1, 1),), True),
        (3, "read", "src/util.py", ((1, 2),), True),
    ]


def test_samples_of_an_inspect_archive_are_read_in_its_own_order_with_their_pieces(tmp_path: Path) -> None:
    tool = {
        "event": "tool",
        "id": "c",
        "function": "bash",
        "arguments": {"cmd": "cat a.py"},
        "result": "attachment://0",
    }
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": {"model": "org/m"}}))
        archive.writestr("samples/10_epoch_1.json", json.dumps({"id": 10}))
        archive.writestr("samples/9_epoch_1/sample.json", json.dumps({"id": 9, "events": [tool]}))
        archive.writestr("samples/9_epoch_1/attachments/0.json", json.dumps(["1\tx\n2\ty"]))
    first, second = load_traces(tmp_path / "log.eval")
    assert (first.instance_id, second.instance_id, first.step_count) == ("9", "10", 1)
    assert not first.skipped
