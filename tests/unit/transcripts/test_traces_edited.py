"""Files read again after the agent's own edits, in lines of the commit it started from."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from context_bench.transcripts.traces import trace_of
from context_bench.transcripts.traces.edited import EditedText, Edits, split
from context_bench.transcripts.transcript import ToolCall, Transcript

BASE = [f"line {n}" for n in range(1, 31)]


class Repo:
    """One file of thirty lines, and another."""

    files = {"src/a.py": "\n".join(BASE) + "\n", "src/b.py": "b1\nb2\nb3\n"}

    def blob(self, path):
        text = self.files.get(path)
        return None if text is None else text.encode()

    def paths(self):
        return list(self.files)


def events(*calls):
    """The events of calls (tool, arguments, output or failed)."""
    made = [
        ToolCall(tool, arguments, ident=str(n), output=output, answered=True)
        for n, (tool, arguments, output) in enumerate(calls)
    ]
    return trace_of(Transcript("i", cwd="/w", calls=made), repo=Repo())


def numbered(lines, first=1):
    return "".join(f"{n}\t{line}\n" for n, line in enumerate(lines, first))


def read(lines, first, path="/w/src/a.py"):
    """A read of the file as it then was, from line `first` on."""
    return ("Read", {"file_path": path, "offset": first, "limit": len(lines)}, numbered(lines, first))


def last(trace):
    event = trace.events[-1]
    return event.path, event.ranges


EDITS = {
    "insertion before": (
        "Edit",
        {"file_path": "src/a.py", "old_string": "line 2\n", "new_string": "line 2\nnew\nnew\n"},
        "ok",
    ),
    "editor": (
        "str_replace_editor",
        {"command": "insert", "path": "src/a.py", "insert_line": 2, "new_str": "new\nnew"},
        "ok",
    ),
    "several": (
        "MultiEdit",
        {
            "file_path": "src/a.py",
            "edits": [
                {"old_string": "line 2\n", "new_string": "line 2\nnew\n"},
                {"old_string": "line 4\n", "new_string": "line 4\nnew\n"},
            ],
        },
        "ok",
    ),
    "whole file": ("Write", {"file_path": "src/a.py", "content": "\n".join(["new", "new", *BASE]) + "\n"}, "ok"),
    "patch": (
        "apply_patch",
        {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n line 2\n+new\n+new\n line 3\n*** End Patch"},
        "Done!",
    ),
    "diff": (
        "apply_diff",
        {"path": "src/a.py", "diff": "--- a/src/a.py\n+++ b/src/a.py\n@@ -2,2 +2,4 @@\n line 2\n+new\n+new\n line 3\n"},
        "ok",
    ),
    "shell": (
        "Bash",
        {
            "command": "apply_patch <<'E'\n*** Begin Patch\n*** Update File: src/a.py\n@@\n line 2\n+new\n+new\n line "
            "3\n*** End Patch\nE"
        },
        "ok",
    ),
}


@pytest.mark.parametrize("kind", EDITS)
def test_lines_after_an_edit_are_those_of_the_base(kind):
    trace = events(EDITS[kind], read(BASE[9:20], 12))
    assert last(trace) == ("src/a.py", ((10, 20),)), trace.events
    by_shell = events(EDITS[kind], ("Bash", {"command": "sed -n 12,14p src/a.py"}, "line 10\nline 11\nline 12\n"))
    assert last(by_shell) == ("src/a.py", ((10, 12),))
    plain = events(EDITS[kind], ("read_file", {"path": "src/a.py", "offset": 12, "limit": 2}, "line 10\nline 11"))
    assert last(plain) == ("src/a.py", ((10, 11),))


def test_lines_that_the_agent_wrote_are_nobodys():
    change = ("Edit", {"file_path": "src/a.py", "old_string": "line 5", "new_string": "mine\nmine too"}, "ok")
    after = [*BASE[:4], "mine", "mine too", *BASE[5:]]
    assert last(events(change, read(after[3:8], 4))) == ("src/a.py", ((4, 4), (6, 7)))
    assert last(events(change, read(after[4:6], 5))) == ("src/a.py", ())
    deleted = ("Edit", {"file_path": "src/a.py", "old_string": "line 1\nline 2\nline 3\n", "new_string": ""}, "ok")
    assert last(events(deleted, ("Read", {"file_path": "src/a.py"}, numbered(BASE[3:])))) == ("src/a.py", ((4, 30),))
    assert last(events(deleted, ("Read", {"file_path": "src/a.py"}, None)))[1] == ((4, 30),)


def test_failed_edits_change_nothing_and_undone_ones_are_forgotten():
    change = {"file_path": "src/a.py", "old_string": "line 1\n", "new_string": "x\ny\nline 1\n"}
    failed = events(
        ("Edit", change, "<tool_use_error>String to replace not found in file.</tool_use_error>"), read(BASE[:3], 1)
    )
    assert last(failed)[1] == ((1, 3),)
    insert = ("str_replace_editor", {"command": "insert", "path": "src/a.py", "insert_line": 0, "new_str": "x"}, "ok")
    undo = ("str_replace_editor", {"command": "undo_edit", "path": "src/a.py"}, "ok")
    assert last(events(insert, undo, read(BASE[:3], 1)))[1] == ((1, 3),)


@pytest.mark.parametrize(
    "move",
    [
        ("Bash", {"command": "git mv src/a.py src/c.py"}, ""),
        ("Bash", {"command": "cd src && mv a.py c.py"}, ""),
        (
            "apply_patch",
            {"input": "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/c.py\n@@\n-line 1\n*** End Patch"},
            "Done!",
        ),
        (
            "apply_patch",
            {"input": "diff --git a/src/a.py b/src/c.py\nrename from src/a.py\nrename to src/c.py\n"},
            "Done!",
        ),
    ],
)
def test_a_renamed_file_is_the_one_of_the_base(move):
    gone = 1 if "-line 1" in json.dumps(move[1]) else 0
    trace = events(move, read(BASE[4:8], 5 - gone, "/w/src/c.py"))
    assert last(trace) == ("src/a.py", ((5, 8),))


def test_after_a_change_that_nobody_can_follow_lines_are_found_by_text():
    lost = ("Bash", {"command": "sed -i '1i # new\\n# new' src/a.py"}, "")
    trace = events(lost, read(["# new", "# new", *BASE[:9]], 1))
    assert last(trace) == ("src/a.py", ((1, 9),))
    other = events(lost, read([f"other {n}" for n in range(9)], 1))
    assert last(other) == ("src/a.py", ((1, 9),))  # kept as it was said, and marked
    assert "reads of edited files whose lines could not be followed: 1" in other.notes
    assert not [note for note in trace.notes if "could not be followed" in note]


def test_old_versions_and_restored_files_are_the_base():
    change = EDITS["insertion before"]
    shown = events(change, ("Bash", {"command": "git show HEAD:src/a.py | sed -n 5,6p"}, "line 5\nline 6\n"))
    assert last(shown) == ("src/a.py", ((5, 6),))
    restored = events(change, ("Bash", {"command": "git checkout -- src/a.py"}, ""), read(BASE[4:8], 5))
    assert last(restored) == ("src/a.py", ((5, 8),))


def test_a_file_that_the_agent_made_is_no_file_of_the_base():
    trace = events(
        ("Write", {"file_path": "/w/new.py", "content": "line 1\nline 2\n"}, "ok"),
        read(["line 1", "line 2"], 1, "/w/new.py"),
    )
    assert last(trace) == ("new.py", ())


lines = st.lists(st.sampled_from(["a", "b", "c", "", "d e"]), max_size=12)


@given(lines, lines, st.integers(0, 12), st.integers(0, 12))
def test_lines_that_stay_keep_their_numbers(old, new, start, end):
    start, end = sorted((min(start, len(old)), min(end, len(old))))
    text = EditedText.of("".join(line + "\n" for line in old).encode())
    text.put(start, end, new)
    assert text.lines == [*old[:start], *new, *old[end:]]
    kept = [number for number in text.numbers if number]
    assert kept == sorted(set(kept))
    assert all(old[number - 1] == line for number, line in zip(text.numbers, text.lines, strict=True) if number)
    assert set(text.numbers[:start]) <= set(range(1, start + 1))
    assert text.numbers[len(text.numbers) - (len(old) - end) :] == list(range(end + 1, len(old) + 1))


@given(lines, st.text("ab\n", min_size=1, max_size=3), st.text("ab\n", max_size=3), st.booleans())
def test_a_replacement_is_what_text_replacement_gives(old, wanted, given_, everywhere):
    whole = "".join(line + "\n" for line in old) or "\n"
    text = EditedText(split(whole), list(range(1, len(split(whole)) + 1)))
    done = text.replace(wanted, given_, everywhere)
    assert done == (whole.count(wanted) == 1 or (everywhere and wanted in whole))
    assert text.lines == split(whole.replace(wanted, given_) if done else whole)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Edit", "Write", "apply_patch", "str_replace_editor", "MultiEdit", "Bash"]),
            st.dictionaries(
                st.sampled_from(
                    [
                        "file_path",
                        "path",
                        "old_string",
                        "new_string",
                        "content",
                        "command",
                        "input",
                        "edits",
                        "insert_line",
                        "new_str",
                        "diff",
                    ]
                ),
                st.sampled_from(
                    [
                        "src/a.py",
                        "line 2",
                        "x\ny",
                        "insert",
                        "undo_edit",
                        "mv src/a.py src/b.py",
                        "sed -i 1d src/a.py",
                        "",
                        None,
                        3,
                        [{}],
                    ]
                )
                | st.text("+-@ *\nab/", max_size=20).map(
                    lambda t: "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n" + t
                ),
                max_size=5,
            ),
            st.sampled_from(["ok", "", None, "1\tline 1\n"]),
        ),
        max_size=6,
    )
)
def test_any_edits_leave_lines_of_the_base(calls):
    trace = events(*calls, ("Read", {"file_path": "src/a.py"}, numbered(BASE)))
    event = trace.events[-1]
    assert isinstance(event.ranges, tuple)
    assert all(1 <= first <= end <= 30 for first, end in event.ranges)
    assert isinstance(trace.skipped, Counter)


def test_no_edit_leaves_the_repository_as_it_is():
    edits = Edits(Repo())
    assert not edits
    assert edits.blob("src/b.py") == b"b1\nb2\nb3\n"
    edits.move("src/b.py", "src/c.py")
    assert (edits.blob("src/b.py"), edits.blob("src/c.py"), edits.origin("src/c.py")) == (
        None,
        b"b1\nb2\nb3\n",
        "src/b.py",
    )
    assert sorted(edits.paths()) == ["src/a.py", "src/c.py"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {"command": "rm src/b.py" + "\nmv " + " " * 100_000 + "\n" * 100_000}),
        ("Bash", {"command": "git " * 20_000 + "; rm src/b.py"}),
        ("apply_patch", {"input": "*** Update File: src/b.py" + " " * 100_000 + "x\n" + "@@\n" * 20_000}),
        (
            "apply_patch",
            {"input": "--- a/src/b.py\n+++ b/src/b.py" + " " * 100_000 + "x\n" + "@@ -1,9 +1,9 @@\n" * 20_000},
        ),
        ("Write", {"file_path": "src/b.py", "content": "b1\nb2\n" * 20_000}),
    ],
)
def test_very_long_edits_are_no_obstacle(tool, arguments):
    trace = events((tool, arguments, "ok"), read(BASE[4:8], 5))
    assert last(trace) == ("src/a.py", ((5, 8),))
