"""Standard output and errors that cannot be written: one sentence, exit code 2, never a traceback; a pipe that nobody reads: silence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_STARTED = [sys.executable, str(Path(__file__).with_name("forked_commands.py"))]
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
        self.program = subprocess.Popen(_STARTED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)

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
    "argv", [["--help"], ["datasets"], ["runs", "--store", "s.db"], ["export", "r", "--store", "s.db", "--format", "jsonl"]]
)
def test_a_pipe_that_nobody_reads_is_left_in_silence(argv, commands):
    assert commands.run(argv, "unread") == (0, "")


def test_errors_that_cannot_be_written_change_nothing_else(commands):
    for argv, code in ((["runs", "--store", "s.db"], 0), (["runs", "--store", "none.db"], 2), (["nothing"], 2), (_run("third"), 0)):
        for stream in ("full", "unread"):
            assert commands.run(argv, "/dev/null", stream)[0] in (code, 2 if stream == "full" else 0)


def test_a_report_to_a_full_device_is_said(commands):
    for argv in (["show", "r"], ["export", "r", "--format", "jsonl"], ["export", "r", "--format", "parquet"]):
        code, said = commands.run([*argv, "--store", "s.db", "--out", "/dev/full"], "/dev/null")
        assert code == 2, said
        assert "/dev/full" in said
        assert "No space left on device" in said
        assert len(said.splitlines()) == 1


_CLOSED = {">&-": (2, "standard output cannot be written: Bad file descriptor"), "2>&-": (0, ""), "<&- >&- 2>&-": (2, "")}


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
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=commands.folder, env=environment, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "context-bench: standard output cannot be written: File too large\n"
