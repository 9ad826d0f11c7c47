"""Standard output and errors that cannot be written: one sentence, exit code 2, never a traceback; a pipe that nobody
reads: silence.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

_STARTED = [sys.executable, str(Path(__file__).with_name("forked_commands.py"))]
HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egpj\x7f"
_SYSTEMS = """
class Says:
    name = "says"

    def process(self, example):
        return {**example, "response": "Paris"}


class Twin(Says):
    name = "twin"
"""


class Commands:
    """Carries commands out in forks of one program."""

    def __init__(self, folder):
        self.folder, self.errors = folder, folder / "errors"
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
        self.program = subprocess.Popen(
            _STARTED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        )

    def run(self, argv, stdout, stderr=None):
        """Exit code and what was said on standard error."""
        self.errors.write_text("")
        self.program.stdin.write(json.dumps([argv, stdout, stderr or str(self.errors)]) + "\n")
        self.program.stdin.flush()
        code, _ = json.loads(self.program.stdout.readline())
        return code, self.errors.read_text()

    def close(self):
        self.program.stdin.close()
        self.program.stdout.close()
        self.program.wait(30)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    (folder / "systems.py").write_text(_SYSTEMS)
    rows = [{"id": i, "context": "c " * 200, "question": "q?", "answer": "Paris"} for i in range(3)]
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = Commands(folder)
    code, said = made.run(_run("r"), "/dev/null")
    assert code == 0, said
    yield made
    made.close()


def _run(name):
    systems = ("--system", "py:systems:Says", "--system", "py:systems:Twin")
    return ["run", *systems, "--dataset", "d.jsonl", "--store", "s.db", "--run", name]


_PRINTING = [
    ["--help"],
    ["--help-all"],
    ["--version"],
    ["version"],
    ["run", "--help"],
    ["memory", "--help"],
    ["--show-completion", "bash"],
    ["datasets"],
    ["runs", "--store", "s.db"],
    ["runs", "--store", "s.db", "--json"],
    *(["show", "last", "--store", "s.db", "--output", each] for each in ("table", "json", "csv")),
    *(["export", "last", "--store", "s.db", "--format", each] for each in ("jsonl", "parquet")),
    ["export", "last", "--store", "s.db", "--format", "inspect", "--system", "says"],
    ["compare", "r", "r", "--store", "s.db"],
    ["diff", "r", "0", "--store", "s.db"],
    ["rescore", "r", "--store", "s.db"],
    _run("again"),
]


@pytest.mark.parametrize("argv", _PRINTING, ids=" ".join)
def test_a_full_device(argv, commands):
    code, said = commands.run(argv, "full")
    assert code == 2, said
    assert said.endswith("context-bench: standard output cannot be written: No space left on device\n")
    for word in ("Traceback", "Exception ignored", "fault"):
        assert word not in said


@pytest.mark.parametrize(
    "argv",
    [["--help"], ["datasets"], ["runs", "--store", "s.db"], ["export", "r", "--store", "s.db", "--format", "jsonl"]],
)
def test_a_pipe_that_nobody_reads_is_left_in_silence(argv, commands):
    assert commands.run(argv, "unread") == (0, "")


def test_errors_that_cannot_be_written_change_nothing_else(commands):
    for argv, code in (
        (["runs", "--store", "s.db"], 0),
        (["runs", "--store", "none.db"], 2),
        (["nothing"], 2),
        (_run("third"), 0),
    ):
        for stream in ("full", "unread"):
            assert commands.run(argv, "/dev/null", stream)[0] in (code, 2 if stream == "full" else 0)


def test_a_report_to_a_full_device_is_said(commands):
    for argv in (["show", "r"], ["export", "r", "--format", "jsonl"], ["export", "r", "--format", "parquet"]):
        code, said = commands.run([*argv, "--store", "s.db", "--out", "/dev/full"], "/dev/null")
        assert code == 2, said
        assert "/dev/full" in said
        assert "No space left on device" in said
        assert len(said.splitlines()) == 1


_CLOSED = {
    ">&-": (2, "standard output cannot be written: Bad file descriptor"),
    "2>&-": (0, ""),
    "<&- >&- 2>&-": (2, ""),
}


@pytest.mark.parametrize("closed", _CLOSED)
def test_a_closed_stream_does_not_get_what_is_meant_for_a_file(closed, commands):
    line = f'exec "{sys.executable}" -m context_bench runs --store s.db {closed}'
    before = (commands.folder / "s.db").read_bytes()
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=commands.folder, timeout=60)
    code, said = _CLOSED[closed]
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)
    assert (commands.folder / "s.db").read_bytes() == before


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_file_that_may_not_grow_is_said(unbuffered, commands):
    line = f'ulimit -f 1; exec "{sys.executable}" -m context_bench run --help-all > long.txt'
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=commands.folder, env=environment, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "context-bench: standard output cannot be written: File too large\n"


# --- on a terminal
# ------------------------------------------------------------------------


def _on_a_terminal(commands, argv):
    """Exit code of a command whose output and errors are one terminal, and all that came there."""
    master, slave = os.openpty()
    seen = bytearray()

    def read():
        with contextlib.suppress(OSError):  # how a terminal ends
            while data := os.read(master, 65536):
                seen.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    place = os.ttyname(slave)
    code, _ = commands.run(argv, place, place)
    os.close(slave)
    reading.join(10)
    os.close(master)
    return code, seen.decode("utf-8", "replace").replace("\r\n", "\n")


_COLOUR = re.compile(
    "\x1b\\[[0-9;]*m|\x1b\\[K|\x1b\\[[0-9]*A|\x1b\\[J|\x1b\\[\\?25[hl]"
)  # what the program itself writes
_STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def hostile(commands):
    """A run whose names, ids, answers and errors would steer a terminal."""
    rows = [
        {
            "system": f"s{HOSTILE}",
            "id": f"{i}{HOSTILE}",
            "question": HOSTILE,
            "answer": f"a{HOSTILE}",
            "response": f"b{HOSTILE}",
        }
        | ({"error": f"Odd: {HOSTILE}"} if i else {})
        for i in range(2)
    ]
    (commands.folder / "hostile.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["import", "hostile.jsonl", "--name", f"n{HOSTILE}", "--dataset", f"d{HOSTILE}", "--store", "h.db"]
    code, seen = _on_a_terminal(commands, argv)
    assert code in (0, 1), seen
    return seen


def test_what_a_terminal_is_sent_does_not_steer_it(hostile, commands):
    seen = {"import": hostile}
    store = ["--store", "h.db"]
    for argv in (
        *(["show", "last", "--output", each] for each in ("table", "csv", "json", "markdown")),
        *(["export", "last", "--format", each] for each in ("jsonl", "csv")),
        ["runs"],
        ["runs", "--json"],
        ["diff", "last", f"0{HOSTILE}"],
        ["show", HOSTILE],
        ["compare", "last", "last"],
        ["purge", "--older-than", "0s"],
    ):
        code, seen[" ".join(argv)] = _on_a_terminal(commands, [*argv, *store])
        assert code in (0, 1, 2, 3)
    for name, text in seen.items():
        assert text, name
        rest = _COLOUR.sub("", text)
        assert not _STEERING.search(rest), (name, rest)
    assert "\\x1b" in seen["show last --output csv"]


def test_what_is_no_terminal_gets_the_very_bytes(commands):
    rows = [{"system": "s", "id": f"0{HOSTILE}", "question": "q", "answer": "a", "response": "b"}]
    (commands.folder / "one.jsonl").write_text(json.dumps(rows[0]) + "\n")
    assert commands.run(["import", "one.jsonl", "--name", "one", "--store", "one.db"], "/dev/null")[0] == 0
    assert commands.run(["show", "one", "--store", "one.db", "--output", "csv"], "plain.csv") == (0, "")
    assert HOSTILE in (commands.folder / "plain.csv").read_text()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "ascii:backslashreplace"])
def test_every_character_can_be_printed_whatever_the_encoding(encoding, commands):
    odd = "\u2265 \U0001f600 \u00e9"
    row = {"system": odd, "id": 1, "question": "q", "answer": odd, "response": odd}
    (commands.folder / "odd.jsonl").write_text(json.dumps(row) + "\n")
    store = ["--store", f"{encoding.replace(':', '-')}.db"]
    assert commands.run(["import", "odd.jsonl", "--name", "r", *store], "/dev/null")[0] == 0
    said = []
    for line in (["show", "r", "--full"], ["export", "r", "--format", "jsonl"]):
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "XDG_CACHE_HOME": str(commands.folder)}
        argv = [sys.executable, "-m", "context_bench", *line, *store]
        done = subprocess.run(argv, env=environment, cwd=commands.folder, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout)
    if ":" in encoding:  # a way that was asked for is kept
        assert said[0].isascii()
    else:
        assert odd in said[0].decode()
        assert all(json.loads(each) for each in said[1].splitlines())
