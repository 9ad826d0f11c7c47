"""A mathematical answer against the gold answers.

Algebra runs in a child process: its formulas come from models, and `10^(10^10)` must not hang or fill us.

The child loads math-verify once and answers questions one by one. It gets so many seconds of processor time for each
(and a wall limit, and a memory limit); whatever exceeds them ends the child, the answer is "not equal", and the next
question starts a new one. It sees neither our environment nor our keys.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from context_bench.core.errors import EvaluatorFailed, need
from context_bench.core.records import Example
from context_bench.evaluators import _mathtext
from context_bench.evaluators.answer_quality import golds

EVALUATORS = {"math": "MathEquivalence"}
MEASURES = {
    "math_equiv": {"unit": "score", "better": "higher", "place": "quality"},
    "math_from_prose": {"unit": "score", "place": "quality"},
}

_CHILD = Path(__file__).with_name("_symbols_child.py")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT", "TMPDIR")


class Symbols:
    """`equal(wanted, given)` for formulas in LaTeX. Safe to call from several threads; they take turns.

    `seconds`: processor time for one question; `wall`: real seconds after which it is given up on any machine.
    """

    def __init__(self, seconds: float = 3.0, wall: float = 60.0) -> None:
        self.seconds, self.wall = seconds, wall
        self._child: subprocess.Popen[str] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def equal(self, wanted: str, given: str) -> bool:
        """Compare both by algebra; `False` too if that takes too long. Raises `EvaluatorFailed`
        without math-verify.
        """
        with self._turn:
            child = self._running()
            assert child.stdin is not None
            assert child.stdout is not None
            clock = threading.Timer(self.wall, child.kill)
            clock.start()
            try:
                child.stdin.write(json.dumps([wanted, given]) + "\n")
                child.stdin.flush()
                said = child.stdout.readline()
            except (BrokenPipeError, ValueError):
                said = ""
            finally:
                clock.cancel()
            if not said:
                self._end()
            return said.strip() == "1"

    def close(self) -> None:
        """End the child, if there is one."""
        with self._turn:
            self._end()

    def _running(self) -> subprocess.Popen[str]:
        if self._child is not None and self._owner == os.getpid() and self._child.poll() is None:
            return self._child
        if self._owner == os.getpid():
            self._end()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._child, self._owner = child, os.getpid()
        assert child.stdout is not None
        if child.stdout.readline().strip() != "ready":
            self._end()
            raise EvaluatorFailed("the child process that compares formulas did not start; is math-verify installed?")
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        child.wait()


#: The one that all evaluators of a process share.
SHARED = Symbols()
atexit.register(SHARED.close)


_NAMES = ("math_equiv", "math_from_prose")


class MathEquivalence:
    """`math_equiv`: 1 if the reply's final answer equals a gold answer; `math_from_prose`: 1 if that answer had to be
    picked out of prose.

    How the answer is found and compared is told in `_mathtext`; algebra is done by math-verify in a child process with
    a time limit (`_symbols`). Gold is `answer` with `answers`, whole solutions with a box or `####` included; with
    several, any counts. Called directly, a missing gold answer scores 1.0 and an empty response 0.0, as documented; in
    a run an example without gold is not scored.
    """

    name = "math_equivalence"
    version = "1"
    needs = ("answer",)
    fields = _NAMES

    def __init__(self) -> None:
        need(["math_verify"], "the evaluator math", "tasks")

    def applies(self, example: Example, output: Example) -> bool:
        """There is a gold answer, and an answer was given."""
        return bool(golds(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        try:
            return _judged(original, processed, SHARED.equal)
        except EvaluatorFailed:
            return dict.fromkeys(_NAMES, 0.0)

    async def ascore(self, original: Example, processed: Example) -> dict[str, float]:
        """The same; algebra runs in a thread. Raises `EvaluatorFailed` if it is needed and cannot be done at all."""
        try:
            return _judged(original, processed, _later)
        except _AlgebraNeeded:
            return await asyncio.to_thread(_judged, original, processed, SHARED.equal)


class _AlgebraNeeded(Exception):
    pass


def _later(wanted: str, given: str) -> bool:
    raise _AlgebraNeeded


def _judged(original: Example, processed: Example, ask: _mathtext.Ask) -> dict[str, float]:
    wanted = [_mathtext.gold_answer(gold) for gold in golds(original)]
    if not wanted:
        return {"math_equiv": 1.0, "math_from_prose": 0.0}
    said = processed.get("response")
    reply = "" if said is None else str(said)
    if not reply.strip():
        return dict.fromkeys(_NAMES, 0.0)
    if _as_text(reply) in {_as_text(text) for text in (*golds(original), *wanted)}:
        return {"math_equiv": 1.0, "math_from_prose": 0.0}
    prose, same = False, False
    for gold in wanted:
        found = _mathtext.final_answer(reply, gold)
        same = _mathtext.equal(gold, found.text, ask)
        prose = found.prose
        if same:
            break
    return {"math_equiv": float(same), "math_from_prose": float(prose)}


def _as_text(answer: object) -> str:
    """Text without case and spaces, for answers equal whatever they mean."""
    return " ".join(str(answer).lower().split())
