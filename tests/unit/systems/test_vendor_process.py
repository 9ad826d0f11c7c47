"""The process of a vendor's package: its deadline, its bounds, its environment, and what is left of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from context_bench.core.errors import BadReply, Refused, TimedOut, Unreachable
from context_bench.systems import _vendors
from context_bench.systems._vendors import VendorProcess

ECHO = "import sys\nfor line in sys.stdin: print('{\"result\": %d}' % len(line), flush=True)"
KEY = "sk-planted-5521-for-the-vendor"


@contextmanager
def process(folder: Path, code: str) -> Iterator[VendorProcess]:
    program = folder / "program.py"
    program.write_text(code)
    started = VendorProcess("acme", sys.executable, program, {"RELAY": KEY})
    try:
        yield started
    finally:
        started.close()


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def test_each_line_has_an_answer_and_the_process_goes_on(tmp_path: Path) -> None:
    with process(tmp_path, ECHO) as acme:
        assert acme.ask("add", {"text": "a"}, soon()) == 14
        assert acme.ask("add", {"text": "a" * 3_000_000}, soon()) == 3_000_013


def test_a_refusal_is_told_without_the_key_and_is_not_the_end(tmp_path: Path) -> None:
    code = "import json, os, sys\nfor line in sys.stdin: print(json.dumps({'error': {'kind': 'LLMError', 'message': "
    code += "'no access with ' + os.environ['CONTEXT_BENCH_WORKER_RELAY_KEY']}}), flush=True)"
    with process(tmp_path, code) as acme:
        for _ in range(2):
            with pytest.raises(Refused, match="acme: LLMError: no access with ") as refused:
                acme.ask("add", {}, soon())
            assert KEY not in str(refused.value)


def test_a_program_that_does_not_read_is_ended_in_time(tmp_path: Path) -> None:
    with process(tmp_path, "import time; time.sleep(60)") as acme:
        with pytest.raises(TimedOut, match="add had not ended in time"):
            acme.ask("add", {"text": "a" * 3_000_000}, soon(0.5))
        assert acme.program.returncode is not None


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    code += "print('{\"result\": %d}' % child.pid, flush=True); time.sleep(60)"
    with process(tmp_path, code) as acme:
        child = acme.ask("start", {}, soon())
        with pytest.raises(TimedOut):
            acme.ask("add", {}, soon(0.2))
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"process {child} still runs")


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("import sys; sys.stderr.write('no license\\n'); sys.exit(3)", Unreachable, "ended during add: no license"),
        ("print('ready')", BadReply, "cannot be read"),
        ("print('[1]')", BadReply, "an object with `result` or `error`"),
        ("print('{\"error\": 5}')", BadReply, "an object with `result` or `error`"),
        ("print('[' * 100_000)", BadReply, "cannot be read"),
        ("import sys\nwhile True: sys.stdout.write('a' * 65536)", BadReply, "a line of more than 1,000,000 bytes"),
    ],
)
def test_a_fault_is_one_error_and_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(_vendors, "LARGEST", 1_000_000)
    with process(tmp_path, code) as acme:
        with pytest.raises(error, match=words):
            acme.ask("add", {}, soon())
        assert acme.program.returncode is not None


def test_it_gets_no_key_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "planted-in-the-environment")
    code = "import json, os\nprint(json.dumps({'result': dict(os.environ)}), flush=True)"
    with process(tmp_path, code) as acme:
        seen = acme.ask("environment", {}, soon())
    assert "planted-in-the-environment" not in seen.values()
    assert seen["CONTEXT_BENCH_WORKER_RELAY_KEY"] == KEY
    assert seen["PATH"] == os.environ["PATH"]


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="cannot be started"):
        VendorProcess("acme", str(tmp_path / "none"), tmp_path / "program.py", {})
