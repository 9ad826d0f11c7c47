"""One shell line in a log may neither take for ever nor fill memory: the time grows with the length of the line, and no
faster.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.shell import Budget, read_shell
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces import load_traces

HERE = Path(__file__).parent
_SPEC = importlib.util.spec_from_file_location("shell_bombs", HERE / "shell_bombs.py")
bombs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bombs)
FILES, SHAPES, OUTPUTS = bombs.FILES, bombs.SHAPES, bombs.OUTPUTS
SMALL, LARGE = 40, 320
#: Each shape in two sizes, in a process that may not have much memory: seconds of processor, and whether it was too
#: large.
CHILD = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1])
from shell_bombs import FILES, OUTPUTS, SHAPES
from context_bench.shell import read_shell
import pyarrow.compute
class Repo:
    def blob(self, path): return FILES.get(path)
    def paths(self): return list(FILES)
repo = Repo()
read_shell("cat one.txt | grep -E '(a|aa)+b'", "", repo)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for name, shape in {**SHAPES, **OUTPUTS}.items():
    for size in map(int, sys.argv[2:]):
        made = shape(size)
        command, output = made if isinstance(made, tuple) else (made, None)
        began = time.process_time()
        found = read_shell(command, "", repo, output)
        print(json.dumps([name, size, time.process_time() - began, found.too_large]), flush=True)
"""


class Repo:
    def blob(self, path: str) -> bytes | None:
        return FILES.get(path)

    def paths(self) -> list[str]:
        return list(FILES)


def test_the_time_grows_with_the_length_and_memory_does_not():
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(HERE), str(SMALL), str(LARGE)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-300:], done.stderr[-2000:])
    taken = {
        (name, size): (seconds, too_large)
        for name, size, seconds, too_large in map(json.loads, done.stdout.splitlines())
    }
    assert len(SHAPES) >= 60
    assert len(taken) == 2 * (len(SHAPES) + len(OUTPUTS))
    slow = {key: seconds for key, (seconds, _) in taken.items() if seconds > 5}
    assert not slow
    times = LARGE / SMALL
    worse = {
        name: (taken[name, SMALL][0], taken[name, LARGE][0])
        for name in {**SHAPES, **OUTPUTS}
        if taken[name, LARGE][0] > 3 * times * max(taken[name, SMALL][0], 0.01)
    }
    assert not worse


@pytest.mark.parametrize(
    "command",
    [
        "cat " + "{a,b}" * 30,
        "cat {1..1000}{1..1000}{1..1000}",
        "A=x; " + 'A="$A$A"; ' * 33,
        "cat " + "a" * 2_000_000,
        "cat one.txt" + " | sed 's/a/aaaaaaaa/g'" * 20,
        "cat many.txt" + " | cat - -" * 40,
        "echo " + "a" * 50_000 + " | xargs -I a echo " + "a" * 50_000,
        "<a>" * 60_000,  # the grammar's own parser takes the square
        "case a in a) b;;\n" * 10_000,
        "cat many.txt" + " | sed 'a more'" * 16,  # each doubles the lines, or goes through all of them
        "cat many.txt" + " | cat - - | sed p" * 9,
    ],
)
def test_what_is_too_large_is_unknown_and_counted(command):
    assert read_shell(command, "", Repo()).too_large
    assert read_shell(command, "", None).too_large or ".txt |" in command  # of files that nobody has, nothing is made


def test_what_is_beside_a_word_that_is_too_large_is_read():
    found = read_shell("head -2 one.txt; cat " + "{a,b}" * 30 + "; cat long.txt", "", Repo())
    assert found.too_large
    assert found.reads == {"one.txt": ((1, 2),), "long.txt": ((1, 1),)}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo {a,{b,c}d}{1..3}e", "a1e a2e a3e bd1e bd2e bd3e cd1e cd2e cd3e"),
        ("echo {a,{a,{a,b}}} x{}y {a} {a{b,c}} {a,b", "a a a b x{}y {a} {ab} {ac} {a,b"),
        (
            "echo {1..2}{01..03} {3..1} a\\{b,c\\} '{a,b}' {,x}y {a,b}}",
            "101 102 103 201 202 203 3 2 1 a{b,c} {a,b} y xy a} b}",
        ),
        ("echo " + "{a," * 60 + "b" + "}" * 60, "a " * 60 + "b"),
        ("A=$((12*3-4)); echo $A", "32"),
    ],
)
def test_braces_and_sums_as_bash_has_them(command, shown):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.strip() == shown
    made = read_shell(command.replace("echo", "touch"), "", None).edits
    assert sorted(made) == sorted(dict.fromkeys(shown.split()))


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*a*a*a*b", "xaayab", True),
        ("*a*a*a*b", "xaayb", False),
        ("a*b/c*d", "axb/cyd", True),
        ("a*b/c*d", "ax/b/cyd", False),
        ("**/a*b", "a/xx/a1b", True),
        ("*a**/b", "xaab", True),
        ("*aa*ab", "aaab", True),
        ("*.p?[xy]*", "a.b.pax1", True),
    ],
)
def test_globs_are_linear_and_the_same(pattern, name, fits):
    from context_bench.shell.patterns import glob

    assert (glob(pattern).match(name) is not None) == fits


def test_a_log_goes_on_after_what_is_too_large_and_says_how_many_commands_it_was(tmp_path):
    def turn(number, command):
        line = {"sessionId": "s", "cwd": "/w", "parentUuid": f"u{number}" if number else None}
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
        said = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "x"}
        return [
            {**line, "type": "assistant", "uuid": f"a{number}", "message": {"role": "assistant", "content": [call]}},
            {
                **line,
                "type": "user",
                "uuid": f"u{number + 1}",
                "parentUuid": f"a{number}",
                "message": {"role": "user", "content": [said]},
            },
        ]

    commands = ["cat a.py", "cat " + "{a,b}" * 30, "A=x; " + 'A="$A$A"; ' * 33, "cat b.py"]
    lines = [line for number, command in enumerate(commands) for line in turn(number, command)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    (trace,) = load_traces(path)
    assert isinstance(trace, Trace)
    assert "commands too large to read: 2" in trace.notes
    assert {"a.py", "b.py"} <= {event.path for event in trace.events if event.kind == "read"}


def test_all_commands_of_a_log_share_one_budget():
    budget = Budget(made=400_000, steps=10_000_000)
    command = 'A="' + "a" * 30_000 + '"; echo $A'
    told = [read_shell(command, "", None, budget=budget).too_large for _ in range(8)]
    assert told == sorted(told)
    assert set(told) == {False, True}
    assert read_shell(command, "", None).too_large is False
