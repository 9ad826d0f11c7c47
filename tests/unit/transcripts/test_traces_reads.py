"""One call as events: the output before the arguments, failures, cuts, searches, tables of tools, and paths."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Snapshot
from context_bench.transcripts.trace import Event
from context_bench.transcripts.traces import RunWorkspace, ToolCall, Vocabulary, events_of_call, trace_of
from context_bench.transcripts.traces.tool_calls import located, root_of
from context_bench.transcripts.traces.vocabulary import unwrapped
from context_bench.transcripts.transcript import run

FILE = [f"line {number}" for number in range(1, 41)]
REPO = Snapshot({"src/a.py": ("\n".join(FILE) + "\n").encode(), "src/sub/b.py": b"x\n", "b.py": b"y\n"})


def events(
    tool: str, arguments: Any, output: str | None = "", place: RunWorkspace | None = None, **more: Any
) -> list[Event]:
    call = ToolCall(tool, arguments, "c", output, **more)
    return events_of_call(call, 1, place or RunWorkspace("/w", cwd="/w"))


def ranges(tool: str, arguments: Any, output: str | None = "", place: RunWorkspace | None = None, **more: Any) -> Any:
    (event,) = events(tool, arguments, output, place, **more)
    assert event.path == "src/a.py"
    return event.ranges


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("Read", {"file_path": "/w/src/a.py", "offset": 8, "limit": 5}, ((8, 12),)),
        ("Read", {"file_path": "src/a.py"}, "all"),
        ("Read", {"file_path": "src/a.py", "limit": 5}, ((1, 5),)),
        ("read_file", {"path": "src/a.py", "start_line": 12, "end_line": 8}, ((8, 12),)),
        ("read_file", {"target_file": "src/a.py", "start_line": 3, "should_read_entire_file": True}, "all"),
        ("read", {"path": "src/a.py", "start": 0, "end": -1}, "all"),
        ("read", {"path": "src/a.py", "start": 4, "end": 9}, ((5, 9),)),
        ("str_replace_editor", {"command": "view", "path": "/w/src/a.py", "view_range": [40, -1]}, ((40, 2**31 - 1),)),
        ("str_replace_editor", {"command": "view", "path": "/w/src/a.py", "view_range": ["x", 3]}, "all"),
        ("Read", {"file_path": "src/a.py", "offset": "8", "limit": "2"}, ((8, 9),)),
        ("Read", {"file_path": "src/a.py", "offset": -4, "limit": 2}, ((1, 2),)),
    ],
)
def test_lines_asked_for(tool: str, arguments: Any, expected: Any) -> None:
    assert ranges(tool, arguments, "some text\n") == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("     8→a\n     9→\tb\n", ((8, 9),)),
        ("8\ta\n9\t\tb", ((8, 9),)),
        ("8\ta\n9\tb\n\n<system-reminder>\nBe kind.\n</system-reminder>\n", ((8, 9),)),
        ("<file>\n00008| a\n00009| b\n\n(File has more lines.)\n</file>", ((8, 9),)),
        ("8: a\n9: b\n</content>", ((8, 9),)),
        ("8\ta\n9\tb\n[... 30 lines truncated ...]\n40\tc\n", ((8, 9), (40, 40))),
        ("Status: Showing lines 3-7 of 45 total lines.\n--- FILE CONTENT (truncated) ---\na\n", ((3, 7),)),
        ("key: value\n8: no\nother: text\n" * 20, "all"),
        ("1\ta\n1\tb\nplain\n" * 20, "all"),
    ],
)
def test_numbers_in_the_output(output: str, expected: Any) -> None:
    assert ranges("Read", {"file_path": "src/a.py"}, output) == expected


def test_the_output_beats_the_arguments_and_the_difference_is_counted() -> None:
    place = RunWorkspace("/w")
    (event,) = events("Read", {"file_path": "src/a.py", "offset": 1, "limit": 100}, "5\ta\n6\tb\n", place)
    assert (event.ranges, event.provenance) == (((5, 6),), "output_numbered")
    assert not place.counts
    (event,) = events("Read", {"file_path": "src/a.py", "offset": 1, "limit": 3}, "5\ta\n6\tb\n", place)
    assert event.ranges == ((5, 6),)
    assert place.counts == {"output differs from arguments": 1}


def test_text_without_numbers_is_found_in_the_file() -> None:
    place = RunWorkspace("/w", REPO)
    (event,) = events("Read", {"file_path": "src/a.py", "offset": 1, "limit": 9}, "line 7\nline 8\n", place)
    assert (event.ranges, event.provenance) == (((7, 8),), "output_matched")
    (event,) = events("Read", {"file_path": "src/a.py"}, "\n".join(FILE), place)
    assert event.ranges == ((1, 40),)
    (event,) = events("Read", {"file_path": "src/a.py", "offset": 3, "limit": 2}, "edited\nsince\n", place)
    assert (event.ranges, event.provenance) == (((3, 4),), "args")
    assert place.counts == {"output not found in the file": 1}


def test_a_cut_output_counts_what_came_before_the_cut() -> None:
    (event,) = events(
        "read_file", {"path": "src/a.py", "offset": 11, "limit": 500}, "a\nb\nc\n[... output truncated ...]\n"
    )
    assert (event.ranges, event.truncated) == (((11, 13),), True)


@pytest.mark.parametrize(
    ("output", "more"),
    [
        ("", {"failed": True}),
        ("File does not exist.", {}),
        ("<tool_use_error>no</tool_use_error>", {}),
        ("", {"exit_code": 1}),
    ],
)
def test_failed_reads_are_kept_and_show_nothing(output: str, more: dict[str, Any]) -> None:
    (event,) = events("Read", {"file_path": "src/a.py"}, output, **more)
    assert (event.kind, event.path, event.ok, event.ranges) == ("read", "src/a.py", False, None)


def test_a_file_that_speaks_of_errors_did_not_fail() -> None:
    (event,) = events("Read", {"file_path": "src/a.py"}, '8\traise IOError("No such file or directory")\n')
    assert event.ok
    assert event.ranges == ((8, 8),)


def test_a_call_without_a_result_is_a_claim() -> None:
    (event,) = events("Read", {"file_path": "src/a.py"}, None)
    assert event.strength == "claimed"
    (event,) = events("Read", {"file_path": "src/a.py"}, None, RunWorkspace("/w", outputs=False))
    assert event.strength == "shown"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "src/a.py:9:x\nsrc/a.py-10-y\nsrc/a.py:12:z\n--\nsrc/sub/b.py:1:q\n",
            {"src/a.py": ((9, 10), (12, 12)), "src/sub/b.py": ((1, 1),)},
        ),
        ("src/a.py\n9:x\n10-y\n\nsrc/sub/b.py\n1:q\n", {"src/a.py": ((9, 10),), "src/sub/b.py": ((1, 1),)}),
        ("Found 1 matches\n/w/src/a.py:\n  Line 9: x\n  Line 11: x", {"src/a.py": ((9, 9), (11, 11))}),
        ("Found 3 files\nsrc/a.py\nsrc/sub/b.py\n", {"src/a.py": None, "src/sub/b.py": None}),
        ("/w/src/a.py:9:12:x\n", {"src/a.py": ((9, 9),)}),
    ],
)
def test_what_a_search_shows(output: str, expected: dict[str, Any]) -> None:
    found = events("Grep", {"pattern": "x"}, output)
    assert {event.path: event.ranges for event in found} == expected
    assert all((event.strength == "listed") == (event.ranges is None) for event in found)


def test_a_search_in_one_file_prints_no_names() -> None:
    assert ranges("Grep", {"pattern": "x", "path": "src/a.py"}, "9:x\n12:y\n") == ((9, 9), (12, 12))


def test_gemini_names_files_from_the_folder_searched() -> None:
    (event,) = events(
        "grep_search", {"pattern": "x", "dir_path": "src/sub"}, "Found 1 match\n---\nFile: b.py\nL1: x\n---"
    )
    assert (event.path, event.ranges) == ("src/sub/b.py", ((1, 1),))


def test_lists_and_folders_are_listed() -> None:
    found = events("Glob", {"pattern": "**/*.py"}, "/w/src/a.py\n/w/src/sub/b.py\n")
    assert [(event.kind, event.path, event.strength) for event in found] == [
        ("list", "src/a.py", "listed"),
        ("list", "src/sub/b.py", "listed"),
    ]
    (event,) = events(
        "str_replace_editor", {"command": "view", "path": "/w/src"}, "/w/src\n/w/src/a.py\n", RunWorkspace("/w", REPO)
    )
    assert (event.kind, event.path) == ("list", "src")


def test_patches_name_their_files() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/c.py\n@@\n-x\n+y\n*** Add File: "
        "d.py\n+z\n*** End Patch\n"
    )
    assert [(event.kind, event.path) for event in events("apply_patch", patch)] == [
        ("edit", "src/a.py"),
        ("edit", "src/c.py"),
        ("edit", "d.py"),
    ]


def test_commands_go_through_the_shell() -> None:
    output = "Exit code: 0\nWall time: 0 seconds\nOutput:\nline 3\nline 4\n"
    found = events(
        "shell", {"command": ["bash", "-lc", "sed -n 3,4p a.py"], "workdir": "/w/src"}, output, RunWorkspace("/w", REPO)
    )
    assert [(e.kind, e.path, e.ranges) for e in found] == [("exec", None, None), ("read", "src/a.py", ((3, 4),))]
    failed = events(
        "bash",
        {"command": "cat src/none.py"},
        "cat: src/none.py: No such file or directory\n",
        RunWorkspace("/w", REPO),
    )
    assert [(e.kind, e.path, e.ok) for e in failed if e.kind == "read"] == [("read", "src/none.py", False)]
    lasting = RunWorkspace("/w", REPO, lasting_shell=True, cwd="/w")
    events("Bash", {"command": "cd src"}, "", lasting)
    (_, event) = events("Bash", {"command": "sed -n 2p a.py"}, "line 2\n", lasting)
    assert (event.path, event.ranges) == ("src/a.py", ((2, 2),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"output": "x", "metadata": {"exit_code": 3}}', ("x", 3, False)),
        ("Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nx\n", ("x\n", 2, False)),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nWarning: truncated output (original token count: 9)\nx", None),
        ("Exit code 7\nx", ("x", 7, False)),
        ("Output: x\nExit Code: 4", ("x", 4, False)),
        ("<returncode>5</returncode>\n<output>\nx\n</output>", ("x\n", 5, False)),
        ("x\n[The command completed with exit code 6.]\nmore", ("x", 6, False)),
        ("plain {", ("plain {", None, False)),
    ],
)
def test_what_programs_put_around_an_output(text: str, expected: Any) -> None:
    found = unwrapped(text)
    if expected is None:
        assert found[2]
    else:
        assert found == expected


def test_tools_of_the_users_come_first(tmp_path: Path) -> None:
    table = tmp_path / "tools.toml"
    rule = (
        '[[tools]]\nkind = "read"\nnames = ["peek", "Grep"]\npaths = ["where"]\nranges = [{ start = "from", '
        'end = "to", base = 0 }]\n'
    )
    table.write_text(rule)
    place = RunWorkspace("/w", vocabulary=Vocabulary.load(table))
    assert ranges("peek", {"where": "src/a.py", "from": 2, "to": 5}, "text", place) == ((3, 5),)
    assert ranges("Grep", {"where": "src/a.py"}, "text", place) == "all"
    assert ranges("Read", {"file_path": "src/a.py"}, "text", place) == "all"
    (event,) = events("poke", {"where": "src/a.py"}, "text", place)
    assert (event.kind, event.path) == ("other", None)
    assert place.counts == {"unknown tool poke": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "no rows"),
        ('[[tools]]\nkind = "peek"\nnames = ["a"]', "kind is 'peek'"),
        ('[[tools]]\nkind = "read"\nnames = []', "`names` is empty"),
        ('[[tools]]\nkind = "read"\nnames = ["a"]\npath = "p"', "unknown key 'path'"),
        ('[[tools]]\nkind = "read"\nnames = ["a"]\nranges = [{ begin = "p" }]', "a range is"),
        ("[", "cannot read"),
    ],
)
def test_a_wrong_table_of_tools_says_what_is_wrong(text: str, why: str, tmp_path: Path) -> None:
    table = tmp_path / "tools.toml"
    table.write_text(text)
    with pytest.raises(BadInput, match=why):
        Vocabulary.load(table)


KNOWN = frozenset(REPO.paths())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/w/src/a.py", "src/a.py"),
        ("src/./a.py", "src/a.py"),
        ("/testbed/src/a.py", "src/a.py"),
        ("/home/me/clone/src/a.py", "src/a.py"),
        ("/home/me/a.py", "/home/me/a.py"),
        ("/home/me/b.py", "/home/me/b.py"),
        ("/elsewhere/sub/b.py", "/elsewhere/sub/b.py"),
        ("../b.py", "/b.py"),
        ("/w", "."),
        ("C:\\w\\src\\a.py", "src/a.py"),
        ("C:\\w\\a.py", "C:/w/a.py"),
        ("../w2/src/a.py", "/w2/src/a.py"),
        ("", None),
        ("a\0b", None),
        ("a\nb", None),
    ],
)
def test_paths(path: str, expected: str | None) -> None:
    assert located(path, "/w", "/w", KNOWN) == expected


@given(st.text(st.sampled_from("ab./\\w"), max_size=20))
def test_a_path_is_never_told_by_its_last_part_alone(path: str) -> None:
    found = located(path, "/w", "/w", KNOWN)
    if found in KNOWN and found is not None:
        named = path.replace("\\", "/")
        inside = named.startswith("/w/") or not named.startswith("/")
        assert inside or (named.rstrip("/.").endswith(found) and "/" in found)
    assert located(path, "/w", "/w") is None or ".." not in str(located(path, "/w", "/w")).split("/")


def test_the_root_is_told_by_paths_written_in_both_ways() -> None:
    assert root_of(["/x/y/src/a.py", "/x/y/b.py"], ["src/a.py"]) == "/x/y"
    assert root_of(["/x/src/a.py", "/y/src/a.py"], ["src/a.py"]) is None
    assert root_of(["/x/a.py"], ["c.py"]) is None


@pytest.mark.parametrize(
    ("command", "tests"),
    [
        ("cd src && python -m pytest -q tests/test_a.py 2>&1 | tail -3", True),
        ("npm run test", True),
        ("go test ./...", True),
        ("./manage.py test app", True),
        ("cat tests/pytest.ini", False),
        ("pip install pytest-cov", False),
        ("make testing-notes", False),
    ],
)
def test_the_first_command_that_runs_tests_is_kept(command, tests):
    recording = run("agent", "task")
    for text in ("ls", command, "pytest later"):
        recording.call("Bash", {"command": text}).answer("ok")
    assert trace_of(recording).first_test_command == (command if tests else "pytest later")
