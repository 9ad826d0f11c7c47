"""Run hidden tests over the files that an agent left, and read from the runner's output which of them passed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import score, scores
from context_bench.sandbox.supervision import Finished
from context_bench.sandbox.workspace import Workspace
from context_bench.sandbox.workspace_files import decoded, left_by_agent, put

PASSED, FAILED = "passed", "failed"
_WORDS = {
    **dict.fromkeys(("PASSED", "XFAIL", "ok", "expected failure"), PASSED),
    **dict.fromkeys(("FAILED", "ERROR", "XPASS", "FAIL", "E", "F", "unexpected success"), FAILED),
    "SKIPPED": "skipped",
}
#: pytest -rA: "PASSED tests/a.py::test_x", "FAILED tests/a.py::test_x - AssertionError: …"
_PYTEST_PASSED = re.compile(r"^(PASSED) +(\S+::.*)$")
_PYTEST_SUMMARY = re.compile(r"^(FAILED|ERROR|SKIPPED|XFAIL|XPASS) +(\S+::.*?|\S+?)(?: - .*)?$")
#: pytest -v: "tests/a.py::test_x PASSED   [ 10%]"
_PYTEST_VERBOSE = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: +\[ *\d+%\])?(?: \(.*\))?$")
#: unittest -v (and Django's runner): "test_x (tests.test_a.T.test_x) ... ok"
_UNITTEST = re.compile(r"^(?P<test>\w+ \([\w.]+\)).*?\.\.\. ?(?P<rest>.*)$")
_UNITTEST_NAME = re.compile(r"^(\w+ \([\w.]+\))$")
_DOCUMENTED = re.compile(r"^.*? \.\.\. (?P<rest>.*)$")
#: sympy's own: "test_x ok", "test_y F"
_BARE = re.compile(r"^(test_\w+) (ok|F|E|f|X|w)\b")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the hidden tests. `solved`: the verifier's own condition holds (see `verify`).

    `passed`, `failed`: of the tests that were named beforehand; those that were not seen in the output are in `failed`
    too. `reward`: the number that a Harbor verifier wrote. `undone`: files with power over tests that the agent had
    changed and that were put back or taken away (`conftest.py`, a planted `unittest.py` …). `reason`: why it is not
    solved, in words; "" if it is.
    """

    solved: bool
    finished: Finished
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    reward: float | None = None
    undone: tuple[str, ...] = ()
    reason: str = ""


def results(output: str) -> dict[str, str]:
    """Test → "passed", "failed" or "skipped", each test under `plain_name`; what fails once has failed."""
    outcomes: dict[str, str] = {}

    def take(test: str, word: str) -> None:
        name = plain_name(test)
        if outcomes.get(name) != FAILED:
            outcomes[name] = _WORDS.get(word, FAILED)

    waiting = None
    for line in output.splitlines():
        text = line.rstrip()
        if seen := _PYTEST_PASSED.match(text) or _PYTEST_SUMMARY.match(text):
            take(seen[2], seen[1])
        elif seen := _PYTEST_VERBOSE.match(text):
            take(seen[1], seen[2])
        elif seen := _UNITTEST.match(text):
            take(seen["test"], _ending(seen["rest"]))
        elif seen := _UNITTEST_NAME.match(text):
            waiting = seen[1]  # the first line of its docstring comes next
            continue
        elif waiting and (seen := _DOCUMENTED.match(text)):
            take(waiting, _ending(seen["rest"]))
        elif seen := _BARE.match(text):
            take(seen[1], "ok" if seen[2] in ("ok", "f", "X", "w") else seen[2])
        waiting = None
    return outcomes


def _ending(rest: str) -> str:
    """The word at the end of a unittest line; what a test prints may stand before it."""
    for word in ("ok", "FAIL", "ERROR", "expected failure", "unexpected success"):
        if rest == word or rest.endswith(f" {word}"):
            return word
    return "SKIPPED" if rest.startswith("skipped") else "ERROR"


def plain_name(test: str) -> str:
    """One spelling for the ways a test is named: `test_x (a.T)`, `test_x (a.T.test_x)` and `a.T.test_x` are the
    same.
    """
    text = test.strip()
    if seen := re.fullmatch(r"(\w+) \(([\w.]+)\)", text):
        name, home = seen[1], seen[2]
        return home if home.endswith(f".{name}") else f"{home}.{name}"
    return text


_KEEP = 8 * 2**20
_SECONDS = 600.0


def verify(workspace: Workspace, task: Mapping[str, Any]) -> Verdict:
    """Run a task's hidden tests in its workspace, once the agent has ended.

    `task` is the example's `verify`. `files` (path in the repository → base64) are copied over whatever is there,
    `remove` names paths that go, `outside` (absolute path → base64; only in a sandbox) is shown beside the repository.
    Then `command` (for `sh -c`) runs without network, in a new HOME and /tmp, for at most `timeout` seconds. Before
    that, files with power over tests are put back (see `guarded`).

    It is solved if all of `fail_to_pass` and `pass_to_pass` are seen to pass in the output; with neither, if `reward`
    (the path of a file that the command writes) says 1 or more; with neither, if the command ends with status 0. What
    is *not* prevented: code under test that runs in the process of its tests can print what a passing test prints.
    Raises `CopyUnusable` where the tests cannot be put into what the agent left, `SandboxFailed` if the sandbox
    does not come up.
    """
    files = {name: decoded(name, data) for name, data in (task.get("files") or {}).items()}
    with left_by_agent("the hidden tests cannot be put into what the agent left"):
        workspace.leave_agent()
        undone = workspace.undo_power_over_tests(files)
        for name in task.get("remove") or ():
            workspace.remove(name)
        for name, data in files.items():
            workspace.write(name, data, executable=data.startswith(b"#!"))
    wanted = [*(task.get("fail_to_pass") or ()), *(task.get("pass_to_pass") or ())]
    binds, rewards = _outside(workspace, task)
    timeout = float(task.get("timeout") or _SECONDS)
    # one stream, as a terminal shows it: runners write to both
    done = workspace.run(
        f"{{ {task['command']}\n}} 2>&1", env=task.get("env"), timeout=timeout, keep=_KEEP, binds=binds
    )
    reward = _reward(rewards)
    seen = results(done.stdout_tail) if wanted else {}
    passed = tuple(test for test in wanted if seen.get(plain_name(test)) == PASSED)
    failed = tuple(test for test in wanted if test not in passed)
    reason = _why_not(done, timeout, wanted, failed, seen, "reward" in task, reward)
    return Verdict(not reason, _short(done), passed, failed, reward, undone, reason)


def _outside(workspace: Workspace, task: Mapping[str, Any]) -> tuple[list[tuple[Path, str, bool]], Path | None]:
    """Folders to show for this command: hidden files at absolute places, and where a reward is written."""
    binds: list[tuple[Path, str, bool]] = []
    given, reward = task.get("outside") or {}, task.get("reward")
    if (given or reward) and not workspace.contained:
        raise BadInput(
            "this task's tests belong at absolute places (/tests, /logs), which needs a sandbox; without one it "
            "cannot be verified"
        )
    tops = {Path(name).parts[1] for name in given}
    for top in sorted(tops):
        binds.append((workspace.folder(f"outside-{top}"), f"/{top}", True))
    for name, data in given.items():
        raw = decoded(name, data)
        inside = Path(name).parts[1:]
        put(workspace.folder(f"outside-{inside[0]}"), "/".join(inside[1:]), raw, executable=raw.startswith(b"#!"))
    if not reward:
        return binds, None
    folder = workspace.folder("reward")
    binds.append((folder, str(Path(reward).parent), True))
    return binds, folder


def _reward(folder: Path | None) -> float | None:
    """The number in reward.txt or reward.json (its `reward`, or the mean of its numbers)."""
    if folder is None:
        return None
    try:
        for name in ("reward.txt", "reward.json"):
            file = folder / name
            if file.is_symlink() or not file.is_file() or file.stat().st_size > 2**16:
                continue
            value = json.loads(file.read_text("utf-8", "replace"))
            if isinstance(value, dict):
                numbers = list(scores(value).values())
                value = value.get("reward", sum(numbers) / len(numbers) if numbers else None)
            if (reward := score(value)) is not None:
                return reward
    except (
        OSError,
        ValueError,
        RecursionError,
        OverflowError,
    ):  # the verifier ran beside what it verifies: this is text from outside
        return None
    return None


def _why_not(
    done: Finished,
    timeout: float,
    wanted: list[str],
    failed: tuple[str, ...],
    seen: Mapping[str, str],
    by_reward: bool,
    reward: float | None,
) -> str:
    """The reason for which it is not solved; "" if it is."""
    if done.timed_out:
        return f"the tests did not end within {timeout:g} s"
    if done.killed:
        return f"the tests were ended: {done.killed}"
    if wanted:
        if not failed:
            return ""
        unseen = sum(plain_name(test) not in seen for test in failed)
        more = f", {unseen} of them never seen to run" if unseen else ""
        return (
            f"{len(failed)} of {len(wanted)} tests did not pass{more}: "
            f"{', '.join(failed[:3])}{' …' if len(failed) > 3 else ''}"
        )
    if by_reward:
        if reward is None:
            return f"the verifier wrote no reward (status {done.exit})"
        return "" if reward >= 1 else f"reward {reward:g}"
    return "" if done.ok else f"the tests ended with status {done.exit}"


def _short(done: Finished) -> Finished:
    """For keeping: the last 16 KiB."""
    tail = done.stdout_tail[-16384:]
    return replace(done, stdout_tail=tail, dropped=done.dropped + len(done.stdout_tail) - len(tail))
