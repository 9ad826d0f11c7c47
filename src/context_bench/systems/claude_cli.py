"""The `claude` command-line program as a system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from typing import Any

from context_bench.core.errors import BadReply, Refused, TimedOut, Unreachable
from context_bench.core.ledger import Ledger, current_ledger
from context_bench.core.machine import SYSTEM_CLOCK, started
from context_bench.core.protocols import function_identity
from context_bench.core.records import Call, Example
from context_bench.core.tokens import utf8_safe
from context_bench.llm.background import run_sync
from context_bench.llm.redact import redact
from context_bench.sandbox.vendors import time_left


class ClaudeCLI:
    """Asks `claude -p --print` with the prompt on standard input; `response` is what it writes to standard output,
    stripped.

    `allowed_tools`: a list or one text. `timeout` in seconds. `build_prompt(example)` replaces the prompt (context,
    empty line, `Question: …`, empty line, a request to answer concisely). Failures are `RuntimeError`s: `Unreachable`
    (no such program), `TimedOut` (the program and all it started are killed), `Refused` (exit status ≠ 0, with what it
    wrote to standard error), `BadReply` (no text). When a tap marks the calls and `ANTHROPIC_BASE_URL` is set, the mark
    is handed on as the program's key or header.
    """

    def __init__(
        self,
        name: str = "claude",
        model: str | None = None,
        max_turns: int | None = None,
        allowed_tools: Sequence[str] | str | None = None,
        system_prompt: str | None = None,
        timeout: float = 120.0,
        build_prompt: Callable[[Example], str] | None = None,
    ) -> None:
        self.name, self.model, self.max_turns, self.timeout = name, model, max_turns, timeout
        self.system_prompt, self.allowed_tools, self.build_prompt = system_prompt, allowed_tools, build_prompt

    def process(self, example: Example) -> Example:
        """The example with `response`."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """The same, async."""
        prompt = self.build_prompt(example) if self.build_prompt else default_prompt(example)
        return {**example, "response": await self._ask(prompt)}

    def fingerprint(self) -> dict[str, Any]:
        """Everything here that can change an answer."""
        return {
            "class": "ClaudeCLI",
            "model": self.model,
            "max_turns": self.max_turns,
            "allowed_tools": self.allowed_tools
            if isinstance(self.allowed_tools, str | None)
            else list(self.allowed_tools),
            "system_prompt": self.system_prompt,
            "build_prompt": function_identity(self.build_prompt),
        }

    def command(self) -> list[str]:
        """The program's arguments."""
        tools = self.allowed_tools if isinstance(self.allowed_tools, str | None) else ",".join(self.allowed_tools)
        options = {
            "--model": self.model,
            "--system-prompt": self.system_prompt,
            "--allowedTools": tools,
            "--max-turns": None if self.max_turns is None else str(self.max_turns),
        }
        return [
            "claude",
            "-p",
            "--print",
            *(word for name, value in options.items() if value is not None for word in (name, value)),
        ]

    async def _ask(self, prompt: str) -> str:
        ledger = current_ledger()
        call = Call(ledger.account if ledger else "system", self.model or "claude", "cli:claude", SYSTEM_CLOCK.now())
        begun = SYSTEM_CLOCK.monotonic()
        try:
            text = await self._run(prompt, ledger)
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            call.seconds = SYSTEM_CLOCK.monotonic() - begun
            if ledger:
                ledger.record(call)
        return text

    async def _run(self, prompt: str, ledger: Ledger | None) -> str:
        if shutil.which("claude") is None:
            raise Unreachable(
                "the claude CLI was not found: install it, and check that `claude` runs in this shell (PATH)"
            )
        pipe = asyncio.subprocess.PIPE
        program = await started(*self.command(), stdin=pipe, stdout=pipe, stderr=pipe, env=_environment(ledger))
        try:
            async with asyncio.timeout(max(0.0, time_left(self.timeout))):
                out, err = await program.communicate(utf8_safe(prompt).encode())
        except TimeoutError:
            await _end(program)
            raise TimedOut(
                f"the claude CLI gave no answer in {self.timeout:g} s (or before the example's deadline)"
            ) from None
        except BaseException:
            await _end(program)
            raise
        if program.returncode != 0:
            words = redact((err or out).decode("utf-8", "replace").strip())[-1000:] or "it said nothing"
            raise Refused(f"the claude CLI ended with exit status {program.returncode}: {words}")
        try:
            text = out.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise BadReply(f"the claude CLI wrote something that is not UTF-8 text: {error}") from None
        if not text:
            raise BadReply("the claude CLI ended well but wrote no answer")
        return text


def default_prompt(example: Example) -> str:
    """Context, question and a request for a short answer; the context alone where there is no question."""
    if example.get("question") is None:
        return str(example["context"])
    return (
        f"{example['context']}\n\nQuestion: {example['question']}\n\nAnswer the question concisely, with "
        "nothing but the answer."
    )


def _environment(ledger: Ledger | None) -> dict[str, str]:
    environment = dict(os.environ)
    mark = ledger.mark if ledger else None
    if mark is not None and environment.get("ANTHROPIC_BASE_URL"):
        if mark.mode == "key":
            environment["ANTHROPIC_API_KEY"] = mark.token
        elif mark.mode == "header":
            environment["ANTHROPIC_CUSTOM_HEADERS"] = f"x-context-bench: {mark.token}"
    return environment


async def _end(program: asyncio.subprocess.Process) -> None:
    """Kill the program and everything it started in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    await program.wait()
