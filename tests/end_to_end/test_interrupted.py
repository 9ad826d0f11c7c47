"""Ctrl-C on a real terminal: the lines that were drawn, what is safe, and the command that goes on, typed as it is
printed.
"""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from struct import pack

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer

ROWS = 100
# The terminal must be the controlling one, or Ctrl-C on it would be a letter like any other.
OWNING = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, "
    "[sys.executable, *sys.argv[1:]])"
)
BENCH = [sys.executable, "-c", OWNING, "-m", "context_bench"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    lines = [
        {"id": i, "context": f"Box {i} holds word{i}.", "question": f"What is in box {i}?", "answer": f"word{i}"}
        for i in range(ROWS)
    ]
    (tmp_path / "my boxes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


@pytest.fixture
def slow():
    server = ModelServer(
        Scripted({"rules": [{"when": {"text": "box"}, "text": "word", "delay": 0.03}, {"text": "ok"}]})
    )
    run_sync(server.start())
    yield server
    run_sync(server.stop())


class Terminal:
    """A program on a terminal of its own, and what it wrote there."""

    def __init__(self, *argv, columns=80, lines=24):
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            [*BENCH, *argv], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def resize(self, columns, lines=24):
        ioctl(self.master, termios.TIOCSWINSZ, pack("HHHH", lines, columns, 0, 0))

    def read_until(self, wanted, seconds=60):
        """Read until `wanted` (a pattern) was seen; `None`: until the program is gone."""
        deadline = time.monotonic() + seconds
        while wanted is None or not re.search(wanted, self.seen):
            assert time.monotonic() < deadline, f"never saw {wanted} in {self.seen[-2000:]!r}"
            if not select.select([self.master], [], [], 0.2)[0]:
                continue
            try:
                self.seen += os.read(self.master, 65_536).decode()
            except OSError:  # the other side is closed
                assert wanted is None, f"ended before {wanted}: {self.seen[-2000:]!r}"
                return
            time.sleep(0)

    def ended(self):
        self.read_until(None)
        code = self.process.wait(timeout=20)
        os.close(self.master)
        return code


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n")


def command_in(text):
    line = re.search(r"Go on with\s+python -m context_bench (.*)", plain(text))[1]
    return shlex.split(line)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_what_is_safe_is_told_with_the_command_that_goes_on(place, slow, how):
    argv = [
        "--proxy",
        slow.url,
        "--name",
        "it's p",
        "--dataset",
        "my boxes.jsonl",
        "--model",
        "m",
        "--out",
        "r.json",
        "--output",
        "json",
    ]
    terminal = Terminal(*argv)
    terminal.read_until(r"[1-9]\d*/100")
    terminal.resize(40)
    os.kill(terminal.process.pid, how)
    assert terminal.ended() == 130
    said = plain(terminal.seen)
    stored, run = re.search(r"interrupted; (\d+) of 100 rows are stored in \S*store\.db\s\(run (\S+)\)", said).groups()
    assert 0 < int(stored) < ROWS
    again = command_in(terminal.seen)
    assert again == [*argv, "--run", run]
    before = slow.seen
    assert main([*again, "--quiet"]) == 0
    assert len(json.loads((place / "r.json").read_text())["rows"]) == ROWS
    assert slow.seen - before <= ROWS - int(stored) + 2


def test_a_second_ctrl_c_ends_at_once_and_what_was_durable_stays(place):
    (place / "hold.py").write_text(
        "import asyncio\n"
        "class Holds:\n"
        "    name = 'holds'\n"
        "    async def aprocess(self, example):\n"
        "        if example['id'] != 7:\n"
        "            return {'response': 'word'}\n"
        "        print('HOLDING', flush=True)\n"
        "        while True:\n"
        "            try:\n"
        "                await asyncio.sleep(60)\n"
        "            except asyncio.CancelledError:\n"
        "                print('WILL NOT', flush=True)\n"
    )
    terminal = Terminal("--system", "py:hold:Holds", "--dataset", "my boxes.jsonl", "--run", "held")
    terminal.read_until("HOLDING")
    os.write(terminal.master, b"\x03")
    terminal.read_until("WILL NOT")
    os.write(terminal.master, b"\x03")
    assert terminal.ended() == 130
    assert command_in(terminal.seen) == ["--system", "py:hold:Holds", "--dataset", "my boxes.jsonl", "--run", "held"]
    assert main(["export", "held", "--format", "json", "--out", "held.json"]) == 0
    assert [row["example_id"] for row in json.loads((place / "held.json").read_text())["rows"]] == list(range(7))
