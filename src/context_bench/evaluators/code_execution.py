"""Tests of the program that a model wrote."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from context_bench.core.errors import BadInput
from context_bench.core.records import Example
from context_bench.llm.background import run_sync
from context_bench.sandbox import Limits, Outcome, Sandbox, Unit, find_sandbox, run

EVALUATORS = {"code_execution": "CodeExecution"}
MEASURES = {"pass_at_1": {"unit": "score", "better": "higher", "place": "quality"}}

_PARTS = ("code_packing.py", "code_sides.py", "code_program.py")
_PROGRAM = Unit(*map(Path(__file__).with_name, _PARTS), apart=("tests",))


class CodeExecution:
    """`pass_at_1`: 1.0 if the response, run with the example's tests in a sandbox, gets to the end of them, else 0.0.

    HumanEval's form: `context` (the function's beginning), `test` (which defines `check`) and `entry_point`. MBPP's
    form: `test_list`, with `test_setup_code` and `test_imports` if there are any. Called directly, a blank response and
    an example of neither form give 0.0; in a run an example of neither form is not scored. `timeout`: seconds for the
    program and its tests; `memory`: MiB for everything it holds; `at_once`: sandboxes at one time (default: one per
    core).

    Program and tests are two processes: what the program returns is compared as plain data. Objects of its own classes
    can be called, and have attributes and items, but equal no plain value, whatever their `==` says; it is lost on them
    what else is done to a list that is one of their attributes. Tests that derive classes from the program's, look at
    its source or seed its random numbers fail.

    The program has no network, environment, home or files but an empty /tmp (see `context_bench.sandbox`). The kernel
    keeps the limits where this system lets us make control groups; a note of the run says which walls stood. Whatever
    the program breaks is its own score of 0.0. Raises `BadInput` for a limit that is no number above 0,
    `MissingProgram` where there is no sandbox, `SandboxFailed` if one does not start: none of them is the program's
    fault.
    """

    name = "code_execution"
    version = "2"  # 1: tests and program shared a process
    fields = ("pass_at_1",)

    def __init__(self, timeout: float = 10.0, *, memory: int = 1024, at_once: int | None = None) -> None:
        for option, value in (("timeout", timeout), ("memory", memory), ("at_once", at_once)):
            if value is not None and not 0 < value < inf:  # no program could be run so
                raise BadInput(f"code_execution: {option} is {value!r}; expected a number above 0")
        self.timeout, self.memory = timeout, memory
        self._limits = Limits(timeout, memory * 2**20)
        self._asked, self._at_once = at_once, at_once or os.cpu_count() or 1
        self._sandbox: Sandbox | None = None
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the sandbox that was found: another machine has its own."""
        return partial(type(self), self.timeout, memory=self.memory, at_once=self._asked), ()

    def fingerprint(self) -> dict[str, Any]:
        """Facts that determine the scores."""
        python = platform.python_version()
        return {
            "class": "CodeExecution",
            "version": self.version,
            "timeout": self.timeout,
            "memory": self.memory,
            "python": python,
        }

    def applies(self, example: Example, output: Example) -> bool:
        """There are tests, and an answer was given."""
        return job_for(example, "") is not None and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        return run_sync(self.ascore(original, processed))

    async def ascore(self, original: Example, processed: Example) -> dict[str, float]:
        """As `score`, without blocking."""
        outcome = await self.outcome(original, processed)
        return {"pass_at_1": float(outcome.passed)}

    async def outcome(self, original: Example, processed: Example) -> Outcome:
        """The score with the reason for it, for looking into a single case."""
        response = processed.get("response")
        job = job_for(original, "" if response is None else str(response))
        if job is None or not job["response"].strip():
            return Outcome(False, "no tests" if job is None else "blank response")
        async with self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._at_once)):
            if self._sandbox is None:
                self._sandbox = await find_sandbox()
            return await run(self._sandbox, _PROGRAM, job, self._limits)

    def walls(self) -> str:
        """A sentence for the run's notes: which limits of the kernel stood around the programs; "" before the first of
        them.
        """
        return self._sandbox.description() if self._sandbox is not None else ""

    async def preflight(self) -> None:
        """Raises `MissingProgram` where no sandbox works, before anything is spent."""
        self._sandbox = await find_sandbox()


def job_for(example: Example, response: str) -> dict[str, Any] | None:
    """Input of `code_program.main`; `None` for an example without tests."""
    job = {"response": response, "context": "", "entry_point": "", "setup": [], "tests": []}
    if test := str(example.get("test") or "").strip("\n"):
        entry = str(example.get("entry_point") or "").strip()
        context = example.get("context")
        return job | {
            "context": "" if context is None else str(context),
            "entry_point": entry,
            "tests": [test, *([f"check({entry})"] if entry else [])],
        }
    if tests := _texts(example.get("test_list")):
        return job | {
            "setup": [*_texts(example.get("test_imports")), *_texts(example.get("test_setup_code"))],
            "tests": tests,
        }
    return None


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    many = (
        value
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value.tolist()
        if hasattr(value, "tolist")
        else [value]
    )
    return [str(text) for text in many if text is not None and str(text).strip()]
