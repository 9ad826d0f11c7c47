"""No error ends a command with a traceback: a sentence on the terminal, the traceback in a file, the exit code that it
had.
"""

import asyncio
import base64
import gc
import logging
import os
import stat
import subprocess
import sys
import threading

import pytest

from context_bench.__main__ import main
from context_bench.cli import app, faults
from context_bench.core import machine
from context_bench.core.errors import BadInput
from context_bench.llm import redact
from context_bench.session import runs

KEY = "planted-7f3a91c2d4"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    return tmp_path / "cache" / "context-bench" / "faults"


def ours(error):
    """A command with a fault in the package's own code: `quoted` is given what is no text."""

    def command() -> int:
        class Odd:
            def isascii(self):
                raise error

        machine.quoted(Odd())
        return 0

    return command


def endless():
    return endless()


ERRORS = [
    KeyError("a\x1b[31mb\u202e"),
    ValueError(f"{KEY} and sk-abcdefghijklmnopqrst and http://u:p4ssw0rd@h/"),
    MemoryError(),
    RecursionError("x" * 100_000),
    asyncio.CancelledError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    OverflowError("too\nmany\nlines"),
    BrokenPipeError(32, "not of standard output"),
    EOFError("marshal data too short"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_nobody_foresaw_is_a_sentence_and_a_file(error, cache, monkeypatch, capsys):
    monkeypatch.setattr(runs, "version", ours(error))
    before = sys.excepthook, threading.excepthook, sys.unraisablehook, logging.lastResort
    assert main(["version"]) == faults.CODE
    assert (sys.excepthook, threading.excepthook, sys.unraisablehook, logging.lastResort) == before
    said = capsys.readouterr().err
    assert type(error).__name__ in said
    assert "Traceback" not in said
    assert all(char.isprintable() or char == "\n" for char in said)
    assert len(said) < 3_000
    (file,) = cache.glob("context-bench-fault-*.txt")
    assert str(file) in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback" in text
    assert "isascii" in text
    for secret in (KEY, "sk-abcdefghijklmnopqrst", "p4ssw0rd"):
        assert secret not in said + text


def test_whose_fault_it_is(cache, monkeypatch, capsys):
    def text_is_none() -> int:
        machine.quoted(None)
        return 0

    monkeypatch.setattr(runs, "version", text_is_none)
    assert main(["version"]) == 1
    assert "this is a fault of context-bench: AttributeError" in capsys.readouterr().err
    monkeypatch.setattr(runs, "version", endless)
    assert main(["version"]) == 1
    said = capsys.readouterr().err
    assert f"the plug-in {__file__}:" in said
    assert "RecursionError" in said


def test_a_command_that_keeps_what_it_did_says_how_to_go_on(cache, monkeypatch, capsys):
    monkeypatch.setattr(runs, "rescore", ours(KeyError("x")))
    assert main(["rescore"]) == 1
    assert "What was finished is stored; when the fault is mended, go on with\n  " in capsys.readouterr().err


@pytest.mark.parametrize("said", [str, str.upper, lambda key: base64.b64encode(key.encode()).decode()])
def test_a_sentence_that_quotes_what_a_model_said_holds_no_key(said, monkeypatch, capsys):
    key = "planted-9f8e7d6c5b4a39281706"
    monkeypatch.setenv("SERVICE_KEY_2", key)

    error = BadInput(f"the judge cannot be used: no verdict in {said(key)!r}")
    monkeypatch.setattr(runs, "version", ours(error))
    assert main(["version"]) == 2
    told = capsys.readouterr().err
    assert "the judge cannot be used: no verdict in '[redacted]" in told
    assert said(key)[:12] not in told


def test_few_files_are_kept_and_a_fault_is_told_once(cache, monkeypatch, capsys):
    for number in range(faults.MOST_FILES + 5):
        monkeypatch.setattr(runs, "version", ours(KeyError(number)))
        assert main(["version"]) == 1
    assert len(list(cache.iterdir())) == faults.MOST_FILES
    assert max(file.stat().st_size for file in cache.iterdir()) <= faults.MOST_BYTES
    capsys.readouterr()
    with faults.noticed():
        for _ in range(1_000):
            faults.report(_raised(ValueError("again")))
    assert capsys.readouterr().err.count("ValueError") == 1


def test_the_fault_that_ends_the_command_is_said_whatever_was_said_before(cache, monkeypatch, capsys):
    def command() -> int:
        for number in range(50):
            error = _raised(type(f"Beside{number}", (Exception,), {})("x"))
            faults.report(error, where="in a thread")
            faults.report(error, where="in a thread")
        raise error

    monkeypatch.setattr(runs, "version", command)
    assert main(["version"]) == faults.CODE
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 11
    assert "Beside49: x" in said[-1]
    again = _raised(ValueError("the same"))
    with faults.noticed():
        faults.report(again)
        assert faults.exit_code_of(again) == faults.CODE
    assert capsys.readouterr().err.count("the same") == 2


@pytest.mark.parametrize("typed", [["--api-key", "horse battery"], ["--api-key=horse battery"]])
def test_a_key_that_was_typed_is_masked_though_it_looks_like_none_and_is_in_no_variable(
    typed, cache, monkeypatch, capsys
):
    monkeypatch.setattr(redact, "_GIVEN", {})
    monkeypatch.setattr(
        app, "_run_line", lambda args: (_ for _ in ()).throw(ValueError("the peer quotes horse battery"))
    )
    assert main(["memory", *typed]) == faults.CODE
    said = capsys.readouterr().err
    (file,) = cache.iterdir()
    assert "the peer quotes" in said
    assert "horse battery" not in said + file.read_text()
    assert "horse battery" in redact.environment_values()


def _raised(error):
    try:
        raise error
    except type(error) as raised:
        return raised


def test_where_no_file_can_be_written_the_sentence_stands(tmp_path, monkeypatch, capsys):
    plain = tmp_path / "plain"
    plain.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(plain))
    monkeypatch.setattr("tempfile.tempdir", str(plain / "none"))
    monkeypatch.setattr(runs, "version", ours(KeyError("x")))
    assert main(["version"]) == 1
    said = capsys.readouterr().err
    assert "KeyError" in said
    assert "traceback is in" not in said


def test_what_happens_beside_the_command_is_a_sentence_too(cache, monkeypatch, capsys):
    class Untidy:
        def __del__(self):
            raise ValueError("in a finalizer")

    async def forgotten() -> None:
        async def failing() -> None:
            raise LookupError("a task of nobody")

        task = asyncio.get_running_loop().create_task(failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    def busy() -> int:
        thread = threading.Thread(target=lambda: 1 / 0, name="counting")
        thread.start()
        thread.join()
        asyncio.run(forgotten())
        Untidy()
        gc.collect()
        try:
            raise ArithmeticError("logged \x1b[2J")
        except ArithmeticError:
            logging.getLogger("some.library").exception("went wrong \x1b[31m")
        logging.getLogger("some.library").warning("only a warning \x1b[31m")
        print("done")
        return 0

    monkeypatch.setattr(runs, "version", busy)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    assert main(["version"]) == 0
    out, said = capsys.readouterr()
    assert out == "done\n"
    for part in (
        "ZeroDivisionError",
        "in thread counting",
        "LookupError: a task of nobody",
        "ValueError: in a finalizer",
        "ArithmeticError",
    ):
        assert part in said
    assert "only a warning \\x1b[31m" in said
    assert "Traceback" not in said
    assert "\x1b" not in said


AT_EXIT = """
import atexit, sys, threading
from context_bench.__main__ import main
sys.argv = ["context-bench", "version"]
code = main()
atexit.register(lambda: {}["at exit"])
sys.exit(code)
"""


def test_a_fault_at_the_end_of_the_process_is_a_sentence(cache):
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, env={**os.environ}, timeout=60
    )
    assert done.returncode == 0
    assert "KeyError" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("context-bench ")
