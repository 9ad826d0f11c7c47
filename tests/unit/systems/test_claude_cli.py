"""ClaudeCLI against a stand-in program named `claude` on PATH: its arguments, its input, and every way it can fail."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from context_bench.core.errors import BadReply, Refused, TimedOut, Unreachable
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.systems.claude_cli import ClaudeCLI

EXAMPLE = {"id": 1, "context": "The sky is green.", "question": "What colour is it?"}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Writes a shell script as `claude`, first on PATH; files it makes land in the folder returned."""

    def write(script):
        path = tmp_path / "claude"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
        return tmp_path

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return write


def test_the_prompt_goes_to_standard_input_and_the_answer_is_stripped(program):
    folder = program('cat > prompt; printf "%s\\n" "$@" > arguments; printf "\\n  green \\n"')
    output = ClaudeCLI().process(EXAMPLE)
    assert output == {**EXAMPLE, "response": "green"}
    assert (folder / "prompt").read_text().startswith("The sky is green.\n\nQuestion: What colour is it?\n\n")
    assert (folder / "arguments").read_text().split() == ["-p", "--print"]


def test_every_option_reaches_the_program(program):
    folder = program('cat > /dev/null; printf "%s\\n" "$@" > arguments; echo ok')
    ClaudeCLI(model="m", max_turns=3, allowed_tools=["Read", "Grep"], system_prompt="be brief; rm -rf $HOME").process(
        EXAMPLE
    )
    given = (folder / "arguments").read_text().splitlines()[2:]
    assert given == [
        "--model",
        "m",
        "--system-prompt",
        "be brief; rm -rf $HOME",
        "--allowedTools",
        "Read,Grep",
        "--max-turns",
        "3",
    ]
    assert ClaudeCLI(allowed_tools="Read").command()[-2:] == ["--allowedTools", "Read"]


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (
            {"id": 1, "context": "$(touch pwned); `touch pwned`\n--model x\x00"},
            "$(touch pwned); `touch pwned`\n--model x\x00",
        ),
        ({"id": 1, "context": "lone \ud800 half"}, "lone ? half"),
        ({"id": 1, "context": "long " * 100_000}, "long " * 100_000),
    ],
)
def test_hostile_and_large_prompts_are_only_text(program, example, expected):
    folder = program("cat > prompt; echo ok")
    assert ClaudeCLI().process(example)["response"] == "ok"
    assert (folder / "prompt").read_bytes() == expected.encode()
    assert not (folder / "pwned").exists()


def test_a_prompt_of_ones_own(program):
    folder = program("cat > prompt; echo ok")
    ClaudeCLI(build_prompt=lambda example: f"<{example['question']}>").process(EXAMPLE)
    assert (folder / "prompt").read_text() == "<What colour is it?>"


def test_a_program_that_does_not_read_is_no_problem(program):
    program("echo ok")
    assert ClaudeCLI().process({"id": 1, "context": "x" * 500_000})["response"] == "ok"


def test_an_exit_status_is_a_failure_with_its_reason_and_without_keys(program):
    program('echo "Invalid API key: sk-ant-0123456789abcdef" >&2; exit 3')
    with pytest.raises(Refused, match="exit status 3: Invalid API key") as caught:
        ClaudeCLI().process(EXAMPLE)
    assert "0123456789" not in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


def test_a_missing_program_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="claude CLI was not found") as caught:
        ClaudeCLI().process(EXAMPLE)
    assert isinstance(caught.value, Unreachable)


@pytest.mark.parametrize(("output", "reason"), [("\\377\\376", "not UTF-8"), (" \\n ", "no answer")])
def test_what_is_not_text_is_no_answer(program, output, reason):
    program(f"cat > /dev/null; printf '{output}'")
    with pytest.raises(BadReply, match=reason):
        ClaudeCLI().process(EXAMPLE)


def _written(path):
    for _ in range(500):
        if path.exists() and path.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"{path.name} was never written")


def _gone(pid):
    for _ in range(200):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("script", ["sleep 300 & echo $! > child; wait", "sleep 300 & echo $! > child; exit 0"])
def test_a_timeout_is_a_failure_and_kills_all_it_started(program, script):
    folder = program(script)
    with pytest.raises(TimedOut, match="in 1 s"):
        ClaudeCLI(timeout=1.0).process(EXAMPLE)
    assert _gone(int((folder / "child").read_text()))


def test_the_examples_deadline_is_kept(program):
    program("sleep 300")
    with open_ledger(Ledger(deadline=SYSTEM_CLOCK.monotonic() + 0.2)) as ledger, pytest.raises(TimedOut):
        ClaudeCLI().process(EXAMPLE)
    assert ledger.calls[0].error == "TimedOut"


async def test_cancelling_kills_it(program):
    folder = program("echo $$ > child; sleep 300")
    task = asyncio.create_task(ClaudeCLI().aprocess(EXAMPLE))
    await asyncio.to_thread(_written, folder / "child")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _gone(int((folder / "child").read_text()))


async def test_cancelled_while_it_starts_it_is_killed_with_all_that_it_started(program, monkeypatch):
    start, opened = asyncio.create_subprocess_exec, asyncio.Event()

    async def slow(*command, **settings):
        process = await start(*command, **settings)
        await opened.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    folder = program("sleep 300 & echo $! > child; wait")
    task = asyncio.create_task(ClaudeCLI().aprocess(EXAMPLE))
    await asyncio.to_thread(_written, folder / "child")
    task.cancel()
    await asyncio.sleep(0)
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _gone(int((folder / "child").read_text()))


async def test_several_at_once_keep_apart(program):
    program("cat")
    outputs = await asyncio.gather(*(ClaudeCLI().aprocess({"id": i, "context": f"text {i}"}) for i in range(8)))
    assert [output["response"] for output in outputs] == [f"text {i}" for i in range(8)]


def test_calls_are_written_down_and_marks_handed_on_only_with_a_base_url(program, monkeypatch):
    folder = program('echo "$ANTHROPIC_API_KEY|$ANTHROPIC_CUSTOM_HEADERS" >> seen; echo ok')
    monkeypatch.setenv("ANTHROPIC_API_KEY", "own")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with open_ledger(Ledger(mark=Mark("key", "tok"))) as ledger:
        ClaudeCLI(model="opus").process(EXAMPLE)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
        ClaudeCLI().process(EXAMPLE)
    with open_ledger(Ledger(mark=Mark("header", "tok"))):
        ClaudeCLI().process(EXAMPLE)
    assert (folder / "seen").read_text().splitlines() == ["own|", "tok|", "own|x-context-bench: tok"]
    assert [(call.model, call.url, call.error) for call in ledger.calls] == [
        ("opus", "cli:claude", None),
        ("claude", "cli:claude", None),
    ]


def test_the_fingerprint_changes_with_everything_that_changes_answers():
    variants = [
        ClaudeCLI(),
        ClaudeCLI(model="m"),
        ClaudeCLI(max_turns=2),
        ClaudeCLI(allowed_tools=["Read"]),
        ClaudeCLI(system_prompt="s"),
        ClaudeCLI(build_prompt=lambda example: "a"),
        ClaudeCLI(build_prompt=lambda example: "b" + ""),
    ]
    assert len({repr(variant.fingerprint()) for variant in variants}) == len(variants)
    assert ClaudeCLI(name="x").fingerprint() == ClaudeCLI(name="y").fingerprint()
