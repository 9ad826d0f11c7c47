"""The process of a vendor's package: its deadline, its bounds, its environment, and what is left of it."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from context_bench.compression.compressors import vendor_process as compressors
from context_bench.compression.compressors.vendor_process import VendorCompressor
from context_bench.core.errors import BadReply, Refused, TimedOut, Unreachable
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.memory.systems import vendor_memory as memories
from context_bench.memory.systems.vendor_memory import VendorMemory
from context_bench.sandbox import vendors as _vendors
from context_bench.sandbox.vendors import Vendor, VendorProcess

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


def test_an_answer_given_before_the_request_was_read_counts(tmp_path: Path) -> None:
    code = "import os, time\nos.close(0)\nprint('{\"result\": 5}', flush=True)\ntime.sleep(60)"
    with process(tmp_path, code) as acme:
        assert acme.program.stdout is not None
        select.select([acme.program.stdout], [], [], 20)
        assert acme.ask("add", {"text": "a" * 3_000_000}, soon()) == 5


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
    code = (
        "import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', 'import time; "
        "time.sleep(60)'])\n"
    )
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


SCRIPT = (
    "import sys\nfor line in sys.stdin: print({reply!r} if {asked!r} in line else '{{\"result\": null}}', flush=True)"
)


def answering(folder: Path, owner: Any, asked: str, reply: Any, patch: pytest.MonkeyPatch) -> None:
    """Have the vendor's process be one that answers a call with `reply`."""
    program = folder / "answers.py"
    program.write_text(SCRIPT.format(reply=json.dumps({"result": reply}), asked=f'"{asked}"'))
    patch.setattr(owner, "_PROGRAM", program)


class Packed(VendorMemory):
    vendor, kind, capabilities = Vendor("pytest", "pytest", "1"), "packed", frozenset()


GOOD = {"id": "m1", "text": "tea", "score": 0.5, "source_id": "i1", "time": "2024"}
BAD_HITS = [
    7,
    {"a": 1},
    [7],
    [{}],
    *([{**GOOD, name: odd}] for name in ("id", "text", "source_id", "time") for odd in (7, ["x"], {})),
]
BAD_HITS += [[{**GOOD, "score": odd}] for odd in ("high", "0.5", [1], 10**400, 1e300)]


@pytest.mark.parametrize(
    "reply",
    [[GOOD], [{**GOOD, "score": None, "source_id": None, "time": None}], *BAD_HITS],
    ids=lambda one: str(one)[:60],
)
def test_hits_are_read_or_refused(reply: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(tmp_path, memories, "search", reply, monkeypatch)
    memory = Packed({}, relay="http://127.0.0.1:9", api_key=None, embedder="relay", python=sys.executable, timeout=20.0)
    try:
        if reply in BAD_HITS:
            with pytest.raises(BadReply, match="packed: its process"):
                memory.search("q", 1)
        else:
            (hit,) = memory.search("q", 1)
            assert (hit.text, hit.memory_id, hit.score) == ("tea", "m1", reply[0]["score"])
    finally:
        memory.close()


class Pressed(VendorCompressor):
    vendor, name = Vendor("pytest", "pytest", "1"), "pressed"


CALL = {
    "request": {"model": "m"},
    "started": 1_700_000_000.0,
    "seconds": 2.5,
    "usage": {"prompt_tokens": 7, "completion_tokens": 1},
}
ODD_CALLS = [{**CALL, name: odd} for name in ("started", "seconds") for odd in (None, "soon", -1, [1], 1e300)]
ODD_CALLS += [
    {name: value for name, value in CALL.items() if name != gone} for gone in ("started", "seconds", "request")
]


@pytest.mark.parametrize("call", [CALL, *ODD_CALLS], ids=str)
def test_a_call_with_odd_times_is_booked_with_its_tokens(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [{"role": "user", "content": "a"}]
    answering(tmp_path, compressors, "messages", {"messages": messages, "calls": [call]}, monkeypatch)
    ledger = Ledger(account="compressor")
    before = time.time()
    with open_ledger(ledger):
        Pressed({}, python=sys.executable, timeout=20.0).compress(messages, [])
    (booked,) = ledger.calls
    assert booked.usage is not None
    assert booked.usage.input_tokens == 7
    assert booked.seconds == (2.5 if call.get("seconds") == 2.5 else 0.0)
    assert (
        booked.started == CALL["started"]
        if call.get("started") == CALL["started"]
        else before <= booked.started <= time.time()
    )


@pytest.mark.parametrize("calls", [7, "x", {"a": 1}, [7], [CALL, None]], ids=str)
def test_calls_that_are_none_are_a_bad_reply(calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(tmp_path, compressors, "messages", {"messages": [], "calls": calls}, monkeypatch)
    with pytest.raises(BadReply, match="pressed: its process did not tell of its calls"):
        Pressed({}, python=sys.executable, timeout=20.0).compress([{"role": "user", "content": "a"}], [])
