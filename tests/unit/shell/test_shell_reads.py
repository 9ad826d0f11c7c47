# ruff: noqa: E501
"""What shell commands let an agent read, from the command and the repository, and with the output."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.shell import read_shell

_HERE = Path(__file__).parent
_VECTORS = json.loads((_HERE.parents[1] / "vectors" / "traces.json").read_text(encoding="utf-8"))
_spec = importlib.util.spec_from_file_location("shell_cases", _HERE / "shell_cases.py")
assert _spec is not None
assert _spec.loader is not None
_cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cases)


class Snapshot:
    """A repository in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def blob(self, path: str) -> bytes | None:
        return self.files.get(path)

    def paths(self) -> list[str]:
        return list(self.files)


REPO = Snapshot(
    {
        path: one["text"].encode() if "text" in one else base64.b64decode(one["base64"])
        for path, one in _VECTORS["fixture_repo"].items()
    }
)


def ranges(ideal: Any) -> dict[str, Any]:
    return {path: tuple(tuple(pair) for pair in pairs) for path, pairs in ideal.items()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fixture")
    for path, blob in REPO.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(blob)
    git = [
        "git",
        "-c",
        "core.autocrlf=false",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-qm", "base"]):
        subprocess.run([*git, *command], cwd=root, check=True, capture_output=True)
    return root


def really(command: str, checkout: Path, tmp_path: Path) -> tuple[str, int]:
    """Run a command in a fresh copy of the repository."""
    root = tmp_path / "copy"
    shutil.copytree(checkout, root)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "GIT_PAGER": "cat", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    return done.stdout.decode("utf-8", "replace"), done.returncode


@pytest.mark.parametrize("case", _VECTORS["shell_commands"], ids=lambda case: case["id"])
def test_vectors(case: dict[str, Any]) -> None:
    ideal = ranges(case["ideal_reads"])
    assert read_shell(case["command"], "", REPO).reads == ideal
    assert read_shell(case["command"], "", REPO, case["output"], case["exit_code"]).reads == ideal


@pytest.mark.parametrize(
    ("command", "ideal"), _cases.SURE, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_own_commands(command: str, ideal: Any, checkout: Path, tmp_path: Path) -> None:
    output, code = really(command, checkout, tmp_path)
    alone = read_shell(command, "", REPO)
    told = read_shell(command, "", REPO, output, code)
    assert alone.reads == ranges(ideal)
    assert told.reads == ranges(ideal)
    assert not told.mismatch
    # the container's own path for the repository changes nothing
    assert read_shell(command, "/testbed", REPO, output, code).reads == ranges(ideal)


@pytest.mark.parametrize(
    ("command", "ideal"), _cases.FROM_OUTPUT, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_only_the_output_tells(command: str, ideal: Any, checkout: Path, tmp_path: Path) -> None:
    output, code = really(command, checkout, tmp_path)
    alone = read_shell(command, "", REPO).reads
    assert all(value in ("unknown", ranges(ideal).get(path)) for path, value in alone.items())
    assert read_shell(command, "", REPO, output, code).reads == ranges(ideal)


def reads(command: str, output: str | None = None, exit_code: int | None = None, cwd: str = "") -> dict[str, Any]:
    return dict(read_shell(command, cwd, REPO, output, exit_code).reads)


UTIL = REPO.files["src/util.py"].decode()


def test_failed_and_empty() -> None:
    assert reads("cat src/util.py", "", 1) == {}
    assert reads("cat src/util.py", "cat: src/util.py: Permission denied\n", 1) == {}
    assert not read_shell("cat src/util.py", "", REPO, "", 1).ok


def test_truncated_outputs_count_what_was_shown() -> None:
    cut = read_shell("cat src/util.py", "", REPO, "".join(UTIL.splitlines(True)[:3]) + "    if va")
    assert cut.truncated
    assert cut.reads == {"src/util.py": ((1, 4),)}
    lines = UTIL.splitlines()
    middle = read_shell("cat src/util.py", "", REPO, "\n".join([*lines[:2], "[... 6 lines truncated ...]", *lines[8:]]))
    assert middle.truncated
    assert middle.reads == {"src/util.py": ((1, 2), (9, 10))}


def test_an_edited_file_is_mapped_back() -> None:
    lines = UTIL.splitlines()
    edited = ["import this", *lines]
    shifted = read_shell("sed -n 2,5p src/util.py", "", REPO, "\n".join(edited[1:5]) + "\n")
    assert shifted.mismatch
    assert shifted.reads == {"src/util.py": ((1, 4),)}
    numbered = read_shell("grep -n 'def ' src/util.py", "", REPO, f"2:{lines[0]}\n10:{lines[8]}\n")
    assert numbered.reads == {"src/util.py": ((1, 1), (9, 9))}
    assert numbered.provenance == "output_numbered"
    assert reads("sed -n 2,5p src/util.py", "quite\nother\ntext\n") == {"src/util.py": "unknown"}


def test_ripgrep_over_the_tree() -> None:
    output = "src/util.py:9:def helper(value):\npkg/sub/util.py:1:def helper(value):\npkg/sub/util.py:6:    def helper(self):\n"
    ideal = {"src/util.py": ((9, 9),), "pkg/sub/util.py": ((1, 1), (6, 6))}
    assert reads("rg -n 'def helper' -g '*.py'", output) == ideal
    assert reads("rg -n 'def helper' -t py") == ideal
    assert reads("rg -n 'def \\p{L}' src/util.py", "1:def clamp(value, low, high):\n") == {"src/util.py": ((1, 1),)}


def test_bat_lines() -> None:
    assert reads("bat -p -r 2:4 src/util.py") == {"src/util.py": ((2, 4),)}
    assert reads("bat --line-range=9: src/util.py") == {"src/util.py": ((9, 10),)}


def test_places() -> None:
    assert reads("cat /testbed/src/util.py", cwd="/testbed") == {"src/util.py": ((1, 10),)}
    assert reads("cat util.py", cwd="src") == {"src/util.py": ((1, 10),)}
    assert reads("cat util.py", cwd="/elsewhere") == {"util.py": ((1, 2),)}
    assert read_shell("cat util.py", "/x/src", REPO, root="/x").reads == {"src/util.py": ((1, 10),)}
    assert read_shell("cd src", "/x", REPO).new_cwd == "/x/src"
    assert read_shell("cd src && cd ..", "", REPO).new_cwd == ""
    assert read_shell('cat "C:\\\\work\\\\repo\\\\src\\\\util.py"', "C:\\work\\repo", REPO).reads == {
        "src/util.py": ((1, 10),)
    }
    assert read_shell("cat /c/work/repo/util.py", "C:\\work\\repo", REPO).reads == {"util.py": ((1, 2),)}
    assert reads("cat /usr/lib/src/util.py") == {}
    assert read_shell("cat ../util.py nowhere.py", "", REPO).unresolved == ("../util.py", "nowhere.py")


def test_without_a_repository() -> None:
    def alone(command: str) -> dict[str, Any]:
        return dict(read_shell(command, "", None).reads)

    assert alone("cat a.py") == {"a.py": "all"}
    assert alone("sed -n 8,12p a.py") == {"a.py": ((8, 12),)}
    assert alone("head -n 5 a.py | tail -n +3") == {"a.py": ((3, 5),)}
    assert alone("cat a.py | tail -n 5") == {"a.py": "unknown"}
    assert alone("grep x a.py") == {"a.py": "unknown"}
    assert alone("cat a.py > b.py") == {}


def test_edits_and_lists() -> None:
    assert read_shell("sed -i s/a/b/ src/util.py && rm util.py", "", REPO).edits == ("src/util.py", "util.py")
    assert read_shell("echo x >> src/util.py", "", REPO).kind == "edit"
    assert read_shell("git apply <<'E'\n--- a/util.py\n+++ b/util.py\n@@ -1 +1 @@\n-x\n+y\nE", "", REPO).edits == (
        "util.py",
    )
    assert read_shell("rg -l helper src", "", REPO, "src/util.py\n").listed == ("src/util.py",)
    assert read_shell("grep -n x util.py", "", REPO).kind == "search"


def test_a_diff_shows_the_old_side() -> None:
    output = 'diff --git a/util.py b/util.py\n--- a/util.py\n+++ b/util.py\n@@ -1,2 +1,2 @@\n def root_helper():\n-    return "root"\n+    return 1\n'
    assert reads("git diff util.py", output) == {"util.py": ((1, 2),)}


def test_what_may_not_have_run_is_unknown() -> None:
    assert reads("make && cat util.py") == {"util.py": "unknown"}
    assert reads('sed -n "$LINE,+3p" util.py') == {"util.py": "unknown"}
    assert reads("cat util.py (") == {"util.py": "unknown"}


@pytest.mark.parametrize(
    "command",
    ["diff a.py b.py", "diff -u a.py b.py", "sdiff a.py b.py", "join a.py b.py", "paste a.py b.py", "comm a.py b.py"],
)
def test_both_files_are_read_where_nobody_knows_the_files(command: str) -> None:
    for output in (None, "1c1\n< x\n---\n> y\n"):
        assert read_shell(command, "", None, output).reads == {"a.py": "unknown", "b.py": "unknown"}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("jq .scripts.test package.json", {"package.json": "unknown"}),
        ("xxd -l 64 bin/a.dat | head -3", {"bin/a.dat": "unknown"}),
        ("fold -w 80 README.md", {"README.md": "all"}),
        ("column -t -s , data.csv", {"data.csv": "all"}),
    ],
)
def test_programs_that_show_a_file_in_another_form_where_nobody_knows_the_files(
    command: str, found: dict[str, str]
) -> None:
    assert read_shell(command, "", None).reads == found


def test_a_diff_of_files_that_have_changed_since_is_unknown_and_never_wrong() -> None:
    changed = "1,2c1\n< def root_helper():\n<     return 'other'\n---\n> y\n"
    assert reads("diff util.py src/util.py", changed, 1) == {"util.py": "unknown", "src/util.py": "unknown"}
    git = 'diff --git a/util.py b/util.py\n--- a/util.py\n+++ b/util.py\n@@ -1,2 +1,2 @@\n def root_helper():\n-    return "root"\n+    return 1\n'
    assert reads("git diff util.py src/util.py", git) == {"util.py": ((1, 2),)}


@pytest.mark.parametrize(
    ("command", "output", "absent", "found"),
    [
        ("cd src && cat gone.py", "cat: gone.py: No such file or directory\n", ("src/gone.py",), {}),
        (
            "cd src; cat gone.py util.py",
            "cat: gone.py: No such file or directory\nx\n",
            ("src/gone.py",),
            {"src/util.py": "all"},
        ),
        (
            "(cd src; cat gone.py); cat util.py",
            "cat: gone.py: No such file or directory\nx\n",
            ("src/gone.py",),
            {"util.py": "all"},
        ),
        (
            "pushd src; cat gone.py; popd; cat util.py",
            "/w/src /w\ncat: gone.py: No such file or directory\n/w\nx\n",
            ("src/gone.py",),
            {"util.py": "all"},
        ),
        (
            "head -5 a/gone.py && tail -5 b.py",
            "head: cannot open 'a/gone.py' for reading: No such file or directory\n",
            ("a/gone.py",),
            {},
        ),
        ("cd src && sed -n 1,3p gone.py", "sed: can't read gone.py: No such file or directory\n", ("src/gone.py",), {}),
        ("cat < gone.py", "bash: line 1: gone.py: No such file or directory\n", ("gone.py",), {}),
        ("cd gone && cat util.py", "bash: cd: gone: No such file or directory\n", (), {}),
        ("cd gone; cat util.py", "bash: line 1: cd: gone: No such file or directory\nx\n", (), {"util.py": "all"}),
        (
            "rg foo gone.py",
            "rg: gone.py: IO error for operation on gone.py: No such file or directory (os error 2)\n",
            ("gone.py",),
            {},
        ),
        ("cat secret.py", "cat: secret.py: Permission denied\n", ("secret.py",), {}),
        (
            "cat gone.py || cat util.py",
            "cat: gone.py: No such file or directory\nx\n",
            ("gone.py",),
            {"util.py": "all"},
        ),
    ],
)
def test_what_is_not_there_is_told_by_complaints_where_nobody_knows_the_files(
    command: str, output: str, absent: tuple[str, ...], found: dict[str, str]
) -> None:
    told = read_shell(command, "", None, output)
    assert (told.absent, told.reads) == (absent, found)


def test_where_files_that_are_not_there_were_looked_for() -> None:
    told = read_shell("cd pkg && cat util.py; cd sub && cat gone.py; cat /etc/none ../../x.py", "", REPO, "", 1)
    assert told.absent == ("pkg/util.py", "pkg/sub/gone.py", "/etc/none", "x.py")
    assert told.unresolved == ("util.py", "gone.py", "/etc/none", "../../x.py")


def test_hostile_patterns_do_not_hang() -> None:
    long = Snapshot({"a": b"a" * 100_000, "b": b"b" + b"a" * 100_000})
    for pattern in ("(a+)+c", "a*a*a*a*a*b", "(a|aa)+c", "(a|aa)+c$", "a?a?a?a?a?a?a?a?c"):
        assert read_shell(f"grep -E '{pattern}' a", "", long).reads == {}  # a match needs a letter that is not there
    assert read_shell("sed -n 's/a*a*a*a*b//p' a", "", long).reads == {}
    # what is needed is there, at the wrong place: seen without backtracking
    assert read_shell("grep -E '(a+)+(a|aa)+b' b", "", long).reads == {}
    assert read_shell("grep -wE '(a|aa)+ab' b", "", long).reads == {}
    assert read_shell("grep -E '(b|bb)(a|aa)+$' b", "", long).reads == {"b": ((1, 1),)}
    # nobody knows, or would take too long to tell
    assert read_shell("grep -P '(?:a+)+(?!c)b' b", "", long).reads == {"b": "unknown"}
    assert read_shell("grep '\\(a*\\)*\\1b' b", "", long).reads == {"b": "unknown"}
    assert read_shell("sed -n 's/a*a*a*a*b$//p' b", "", long).reads == {"b": "unknown"}
    assert read_shell(":(){ :|:& };:", "", REPO).reads == {}
    assert read_shell("(" * 5000, "", REPO).reads == {}
    assert read_shell("$(" * 300 + ")" * 300, "", REPO).reads == {}


@pytest.mark.parametrize("tool", ["grep -E '{}'", "rg '{}'", "sed -n -E '/{}/p'", "awk '/{}/'"])
@pytest.mark.parametrize("pattern", ["a*a*a*a*b", "(a|aa)+b", "(c|a*a*a*a*)b", "a*a*a*a*[bc]$"])
def test_the_care_for_a_long_file_stands_after_a_short_one(tool: str, pattern: str) -> None:
    files = Snapshot({"short": b"aaa\n", "long": b"a" * 3000 + b"\n"})
    began = time.process_time()
    for names in ("short long", "long short", "short long short long"):
        read_shell(f"{tool.format(pattern)} {names}", "", files)
    assert time.process_time() - began < 5.0  # 600 letters took more than 40 s


_WORDS = st.sampled_from(
    [
        "cat",
        "head",
        "tail",
        "sed",
        "awk",
        "grep",
        "rg",
        "nl",
        "find",
        "xargs",
        "git",
        "show",
        "blame",
        "diff",
        "-n",
        "-rn",
        "-C2",
        "-e",
        "1,3p",
        "'/def/,$p'",
        "5q",
        "'s/a/b/g'",
        "$d",
        "'NR>3'",
        "'{print",
        "$1}'",
        "src/util.py",
        "util.py",
        "src",
        "*.py",
        "{a,b}",
        "$x",
        '"$x"',
        "$(cat",
        "util.py)",
        "<(cat",
        "util.py)",
        "<",
        ">",
        ">>",
        "2>&1",
        "|",
        "||",
        "&&",
        ";",
        "&",
        "(",
        ")",
        "{",
        "}",
        "for",
        "f",
        "in",
        "do",
        "done",
        "if",
        "then",
        "fi",
        "while",
        "read",
        "case",
        "esac",
        "cd",
        "..",
        "-exec",
        "{}",
        "\\;",
        "+",
        "<<EOF",
        "\nEOF\n",
        "`ls`",
        "$((1+2))",
        "!",
        "[",
        "-f",
        "]",
        "bash",
        "-c",
        "'cat",
        "util.py'",
        "env",
        "A=1",
        "timeout",
        "5",
        "sort",
        "uniq",
        "cut",
        "-d:",
        "-f1",
        "tee",
        "wc",
        "-l",
        "\\",
        "'",
        '"',
    ]
)
_OUTPUTS = st.one_of(
    st.none(),
    st.text(max_size=80),
    st.lists(st.sampled_from([*UTIL.splitlines(), "", "--", "util.py:1:def root_helper():", "3:x"])).map("\n".join),
)


def check(command: str, output: str | None, code: int | None) -> None:
    found = read_shell(command, "", REPO, output, code)
    for path, value in found.reads.items():
        assert path in REPO.files
        assert value != "all"
        length = REPO.files[path].count(b"\n") + 1
        if value != "unknown":
            assert value
            assert all(1 <= low <= high <= length for low, high in value)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(_WORDS, max_size=14).map(" ".join), _OUTPUTS, st.sampled_from([None, 0, 1]))
def test_random_shell_never_raises(command: str, output: str | None, code: int | None) -> None:
    check(command, output, code)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=200), _OUTPUTS)
def test_any_text_never_raises(command: str, output: str | None) -> None:
    check(command, output, None)


def test_files_of_unknown_lines_come_in_an_order_of_their_own_in_every_process() -> None:
    names = [f"{letter}.py" for letter in "hbgadecf"]
    told = read_shell(f"sed -n 9,3p {' '.join(names)}", "", None, output="some line")
    assert list(told.reads) == names
    repo = Snapshot(dict.fromkeys(names, b"one\ntwo\n"))
    shown = read_shell(f"cat {' '.join(names)}", "", repo, output="none of these lines\n")
    assert list(shown.reads) == sorted(names)


def test_a_longer_output_than_the_command_prints_is_no_part_of_it() -> None:
    assert reads("true", "... truncated ...\nx") == {}
