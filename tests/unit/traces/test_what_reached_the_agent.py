"""Which files and lines count as read where the tool or command does not say so plainly."""

from __future__ import annotations

import json

import pytest

from context_bench.shell import read_shell
from context_bench.shell.repo import Snapshot
from context_bench.traces import load_traces
from context_bench.traces.repositories import convert_traces

UTIL = "def clamp(value):\n    if value < 0:\n        return 0\n    return value\n\n\ndef helper(v):\n    return v\n"
FILES = {"util.py": b"def root():\n    pass\n", "src/util.py": UTIL.encode(), "src/calc.py": b"import util\n"}


def logged(path, *calls, cwd="/ws/demo"):
    """A stream of Claude Code with these calls: (tool, arguments, result, failed)."""
    lines = [{"type": "system", "subtype": "init", "cwd": cwd, "session_id": "s", "tools": ["Bash"], "model": "m"}]
    for number, (tool, given, result, failed) in enumerate(calls):
        use = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": given}
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": result, "is_error": failed}
        lines += [
            {"type": "assistant", "message": {"id": f"m{number}", "role": "assistant", "content": [use]}, "uuid": "a"},
            {"type": "user", "message": {"role": "user", "content": [back]}, "uuid": f"u{number}"},
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def events(tmp_path, tool, given, result, failed=False):
    (trace,) = load_traces(logged(tmp_path / "log.jsonl", (tool, given, result, failed)), repo=Snapshot(FILES))
    return [(event.kind, event.path, event.ranges, event.strength) for event in trace.events if event.path]


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest -q", "src/util.py:3: AssertionError\n"),
        ("flake8", "src/util.py:3:1: E302 expected 2 blank lines\n"),
        ("make", "src/util.py:3:5: error: no such name\n"),
    ],
)
def test_a_message_about_a_place_is_no_read_of_it(tmp_path, command, output):
    assert events(tmp_path, "Bash", {"command": command}, output, failed=True) == []


def test_counts_of_a_search_are_no_numbers_of_lines(tmp_path):
    found = events(tmp_path, "Grep", {"pattern": "def", "output_mode": "count"}, "src/util.py:2\nsrc/calc.py:6")
    assert found == [("search", "src/util.py", None, "listed"), ("search", "src/calc.py", None, "listed")]


def test_lines_shown_without_numbers_are_a_read_of_the_file(tmp_path):
    given = {"pattern": "def", "output_mode": "content", "-n": False}
    assert events(tmp_path, "Grep", given, "src/util.py:def helper(value):\nnote: done") == [
        ("search", "src/util.py", None, "shown")
    ]


@pytest.mark.parametrize(
    ("tool", "given", "result"),
    [
        ("Bash", {"command": "ls src"}, "calc.py\nutil.py\n"),
        ("Bash", {"command": "ls -R src"}, "src:\ncalc.py\nutil.py\n"),
        ("list_dir", {"path": "src"}, "calc.py\nutil.py"),
        ("Glob", {"pattern": "*.py", "path": "/ws/demo/src"}, "/ws/demo/src/calc.py\n/ws/demo/src/util.py"),
        ("Glob", {"pattern": "src/*.py", "path": "/ws/demo"}, "src/calc.py\nsrc/util.py"),
    ],
)
def test_a_listing_names_the_files_of_the_folder_listed(tmp_path, tool, given, result):
    found = [path for kind, path, _, _ in events(tmp_path, tool, given, result) if path.endswith(".py")]
    assert found == ["src/calc.py", "src/util.py"]


def test_a_search_names_files_of_the_folder_searched(tmp_path):
    found = events(tmp_path, "grep", {"pattern": "x", "path": "src"}, "util.py:7:def helper(value):")
    assert found == [("search", "src/util.py", ((7, 7),), "shown")]


@pytest.mark.parametrize("start", [2**31, 10**12])
def test_a_line_that_no_file_reaches_is_not_another_one(tmp_path, start):
    ((_, _, ranges, _),) = events(
        tmp_path, "Read", {"file_path": "/ws/demo/src/util.py", "offset": start, "limit": 9}, ""
    )
    assert ranges[0][0] > 10**9


@pytest.mark.parametrize("folder", ["src", "./src"])
@pytest.mark.parametrize("repo", [Snapshot(FILES), None])
def test_a_relative_folder_in_a_log_without_one_is_below_the_root(tmp_path, folder, repo):
    call = {
        "id": "t1",
        "name": "run_shell_command",
        "args": {"command": "cat calc.py", "dir_path": folder},
        "result": [
            {"functionResponse": {"id": "t1", "name": "run_shell_command", "response": {"output": "import util"}}}
        ],
        "status": "success",
    }
    head = {
        "sessionId": "S",
        "projectHash": "h",
        "startTime": "2026-01-02T03:04:05Z",
        "lastUpdated": "x",
        "kind": "main",
    }
    path = tmp_path / "session.jsonl"
    said = {"id": "2", "type": "gemini", "content": "", "toolCalls": [call]}
    path.write_text(json.dumps(head) + "\n" + json.dumps(said) + "\n")
    (trace,) = load_traces(path, repo=repo)
    assert [event.path for event in trace.events if event.kind == "read"] == ["src/calc.py"]


PATCH = """*** Begin Patch
*** Update File: src/util.py
@@
-    if value < 0:
-        return 0
+    value = max(0, value)
     return value
*** End Patch
"""


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        (
            "Edit",
            {
                "file_path": "/ws/demo/src/util.py",
                "old_string": "if value < 0:\n        return 0",
                "new_string": "pass",
            },
        ),
        ("apply_patch", {"input": PATCH}),
        ("Bash", {"command": f"apply_patch <<'EOF'\n{PATCH}EOF"}),
    ],
)
def test_an_edit_is_of_the_lines_that_it_replaced(tmp_path, tool, given):
    found = [event for event in events(tmp_path, tool, given, "ok") if event[0] == "edit"]
    assert found == [("edit", "src/util.py", ((2, 3),), "claimed")]


def test_the_folder_of_a_log_names_its_task_when_it_is_converted(tmp_path):
    logged(tmp_path / "logs" / "demo__demo-1" / "s.jsonl", ("Bash", {"command": "cat util.py"}, "def root():", False))
    gold = {"instance_id": "demo__demo-1", "repo": "demo/demo", "commit": "x"}
    gold["init_ctx"] = [{"file": "util.py", "start_line": 1, "end_line": 1}]
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold))
    for place in (tmp_path / "logs", tmp_path / "logs" / "demo__demo-1" / "s.jsonl"):
        (line,) = convert_traces([place], to="contextbench", gold=tmp_path / "gold.jsonl")
        assert json.loads(line)["instance_id"] == "demo__demo-1"


def test_a_project_beside_the_agents_is_not_its_own():
    assert read_shell("cat /home/u/other/util.py", "/home/u/demo", Snapshot(FILES)).reads == {}
    assert read_shell("cat /testbed/src/util.py", "/home/u/demo", Snapshot(FILES)).reads == {"src/util.py": ((1, 8),)}


@pytest.mark.parametrize(
    ("command", "output", "lines"),
    [
        (
            'while read -r line; do echo "$line"; done < src/util.py',
            "".join(line.strip() + "\n" for line in UTIL.splitlines()),
            ((1, 8),),
        ),
        ("awk '/def helper/{exit} {print}' src/util.py", UTIL.partition("def helper")[0], ((1, 6),)),
        ("sed -n '5,6p' src/util.py", "\n\n", ((5, 6),)),
        ("sed -n '5,6p' src/util.py", "", None),
        ("python3 show.py src/util.py", None, None),
        ('cd "$(git rev-parse --show-toplevel)" && sed -n 5,6p "$(pwd)/src/util.py"', None, ((5, 6),)),
        ('cd $(dirname src/util.py) && head -3 "$(basename src/util.py)"', None, ((1, 3),)),
        ("cp src/util.py kept/ && head -2 kept/util.py", None, ((1, 2),)),
    ],
)
def test_lines_by_what_the_command_printed(command, output, lines):
    found = read_shell(command, "", Snapshot(FILES), output=output, exit_code=0).reads
    assert found == ({} if lines is None else {"src/util.py": lines})


@pytest.mark.parametrize("form", ["{}: {}", "{} {}", "{:>5} | {}", "{}\t{}", "{:>6}  {}", "{:>4} │ {}"])
def test_lines_that_a_script_numbered(form):
    command = "python3 -c \"print(open('src/util.py').read())\""
    output = "".join(form.format(number, line).rstrip() + "\n" for number, line in enumerate(UTIL.splitlines(), 1))
    assert read_shell(command, "", Snapshot(FILES), output=output, exit_code=0).reads == {"src/util.py": ((1, 8),)}
