"""One arm as a system: a fresh copy of the task's repository, the agent in it, then the task's own tests.

The agent's program is found on this machine and shown inside the sandbox. The requests that the tap kept tell which
files the agent read, whatever program it is, with or without a log of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.agents.systems import arm_specs
from context_bench.agents.systems.arm_specs import AbortRules, ArmSpec
from context_bench.core.errors import BadInput, Refused, SandboxFailed, ServerFailed
from context_bench.core.ledger import Mark, current_ledger
from context_bench.core.machine import home_folder
from context_bench.core.protocols import Prices
from context_bench.core.records import Example, Forwarded
from context_bench.llm.background import run_sync
from context_bench.llm.redact import plugin_secrets, redact, without_pieces
from context_bench.sandbox.backends import PATH
from context_bench.transcripts.trace import Rereads, rereads
from context_bench.transcripts.traces import load_traces
from context_bench.wire.turns import Quotas

if TYPE_CHECKING:
    from context_bench.sandbox import Bounds, Finished, Verdict, Workspace

#: Folders that every sandbox shows.
_SHOWN = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/nix/store/")
#: Shown of a program outside of these: so many folders up, if they belong to an installation.
_INSTALLATIONS = ("bin", "sbin")


def found_here(command: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The command with programs and scripts as absolute paths, and what has to be readable for it. Raises `BadInput`.

    The first word is looked up on PATH, unless the sandbox has a program of that name itself (`python`, `bash`, `node`
    …). Of the words after it, up to the first option, files that are here are taken for scripts.
    """
    if not command:
        raise BadInput("there is no command: give the agent's after --, such as -- my-agent --task {instruction}")
    program = shutil.which(command[0]) or shutil.which(command[0], path=PATH)
    if program is None:
        raise BadInput(f"{command[0]!r} is no program on this machine: neither a path to one nor found on PATH")
    words, readable = [command[0]], list[Path]()
    if shutil.which(command[0], path=PATH) is None or "/" in command[0]:
        place = Path(os.path.abspath(program))  # noqa: PTH100 (links stay links)
        words, readable = [str(place)], _needed(place)
    taking = True
    for word in command[1:]:
        taking = taking and not word.startswith("-") and "{" not in word
        if taking and Path(word).is_file():
            words.append(str(Path(word).absolute()))
            readable.append(Path(word).absolute())
        else:
            words.append(word)
    return words, list(dict.fromkeys(readable))


def _needed(program: Path) -> list[Path]:
    """The installations that a program belongs to: its own, and those behind links, scripts' first lines and virtual
    environments.
    """
    found: list[Path] = []
    waiting, seen = [program], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        home = _installation(path)
        if not str(home).startswith(_SHOWN) and not str(home).startswith(str(Path(sys.base_prefix).resolve())):
            found.append(home)
        if path.is_symlink():
            target = path.readlink()
            waiting.append(target if target.is_absolute() else path.parent / target)
        waiting += [*_interpreter(path), *_base(home)]
    return found


def _installation(path: Path) -> Path:
    """The folder that goes with a program (of `X/bin/program` it is `X`), else the program alone."""
    above = path.parent.parent
    own = path.parent.name in _INSTALLATIONS and above not in (
        Path("/"),
        home_folder(),
        (home_folder() or Path("/")) / ".local",
    )
    return above if own else path


def _interpreter(path: Path) -> list[Path]:
    """The programs that the first line of a script names."""
    try:
        with path.open("rb") as file:
            start = file.readline(512)
    except OSError:
        return []
    words = start[2:].split() if start.startswith(b"#!") else []
    named = words[1:2] if words and words[0].endswith(b"/env") else words[:1]
    known = [shutil.which(word.decode("utf-8", "replace")) for word in named]
    return [Path(name) for name in known if name]


def _base(home: Path) -> list[Path]:
    """The Python that a virtual environment stands on."""
    try:
        lines = (home / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    told = dict(line.partition("=")[::2] for line in lines)
    place = next((value.strip() for name, value in told.items() if name.strip() == "home"), "")
    return [Path(place, "python3")] if place else []


def reading_of(records: Sequence[Forwarded]) -> dict[str, Any]:
    """`reads`, `again`, `redundancy` (see `transcripts.trace`) and `tool_calls`; empty where no body was kept or
    nothing can be made of them.

    Blocking.
    """
    if not records:
        return {}
    with tempfile.TemporaryDirectory(prefix="context-bench-") as folder:
        path = Path(folder, "records.jsonl")
        with path.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(json.dumps(_plain(record), ensure_ascii=True, default=str) + "\n" for record in records)
        try:
            traces = list(load_traces(path))
        except BadInput:  # nothing that could be read, or no body at all
            return {}
    total = Rereads()
    for trace in traces:
        total += rereads(trace.events)
    told = {
        "reads": total.reads,
        "again": total.again,
        "redundancy": total.redundancy,
        "tool_calls": sum(one.step_count for one in traces),
    }
    return {name: value for name, value in told.items() if value is not None}


def quotas_in_replies(records: Iterable[Forwarded]) -> dict[str, Any]:
    """`quotas`: what the replies of a run tell of the account's quotas, in the order in which they ended (see
    `wire.turns.Quotas`); empty where none tells any.
    """
    found = Quotas()
    for record in sorted(records, key=lambda one: one.started + (one.seconds or 0.0)):
        found.take(record.facts)
    return {"quotas": found.as_dict()} if found.shares else {}


def _plain(record: Forwarded) -> dict[str, Any]:
    values = {one.name: getattr(record, one.name) for one in fields(Forwarded)}
    return {**values, "usage": None if record.usage is None else asdict(record.usage)}


#: Looks into the open window of a mark: what was answered in it so far.
Look = Callable[[Mark], Awaitable[Sequence[Forwarded]]]
#: Seconds between two looks at the traffic of a running agent.
_LOOK_EVERY = 0.2
_INSTRUCTION = "instruction.md"
_TAIL = 4000
#: Stands for a place that only `sh` in the sandbox knows.
_PLACE = re.compile("\0(PWD|HOME)")


class Agent:
    """Runs `command` for one task in a sandbox and says whether the task's tests pass afterwards. `command=None`:
    nothing is done at all.

    `spec`: what the arm sets and runs beforehand. `tap`: URL of the tap in front of the model; `look`: the tap's
    `seen`. The agent gets the tap as `OPENAI_BASE_URL` (with `/v1`), `OPENAI_API_BASE` and `ANTHROPIC_BASE_URL` and the
    one-time key of this run as its API keys, unless the arm sets them itself. In the words of `command` stand
    `{instruction}`, `{instruction_file}`, `{workspace}`. `stdin`: give the instruction there, too. `environment`:
    further variables for every arm. `readable`: paths that the agent may read. `identity`: what stands behind the tap.
    `unsafe`: do without a sandbox where none works.

    The output has `response` (the patch), `solved`, `abort` (a class of `arm_specs.CLASSES`), `reason`, `agent` (how it
    ended, its last words) and `facts`. A run that was ended by a rule is not verified: it is not solved. A sandbox that
    does not start, a set-up that fails and a model that never answers are failures, which a resumed run tries again. An
    agent that leaves a copy which nobody can read scores 0.
    """

    calls_elsewhere = True

    def __init__(
        self,
        name: str,
        command: Sequence[str] | None,
        spec: ArmSpec | None = None,
        *,
        limits: AbortRules | None = None,
        tap: str | None = None,
        look: Look | None = None,
        prices: Prices | None = None,
        stdin: bool = False,
        environment: Mapping[str, str] | None = None,
        readable: Iterable[str | Path] = (),
        identity: str | None = None,
        unsafe: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self.name = name
        self.spec = spec or ArmSpec(name)
        self.limits = limits or AbortRules()
        self.prices = prices
        self._typed = None if command is None else list(command)
        self.command: list[str] | None = None
        own: list[Path] = []
        if command is not None:
            self.command, own = found_here(command)
        self._readable = [*own, *readable, *self.spec.scripts]
        self._tap, self._look = tap, look
        self._stdin, self._environment = stdin, dict(environment or {})
        self._identity, self._unsafe, self._bounds = identity, unsafe, bounds
        self._houses: dict[str | None, Any] = {}
        for number, value in enumerate(self.spec.secrets.values()):
            setattr(self, f"secret_{number}", value)  # by these names the store knows what must not be kept

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which the arm's results depend; its name is not one of them."""
        if self._typed is None:
            return {"class": "Agent", "command": None}
        arm, environment = self.spec.told(), ArmSpec("", self._environment).told()["variables"]
        return {
            "class": "Agent",
            "command": self._typed,
            "stdin": self._stdin,
            "model": self._identity,
            "environment": environment,
            **arm,
            "limits": self.limits.told(),
        }

    def process(self, example: Example) -> Example:
        """`aprocess`, waited for."""
        return run_sync(self.aprocess(example))

    async def aprocess(self, example: Example) -> Example:
        """Copy, set up, run, verify; what is left behind is removed. See the class for what comes back."""
        ledger = current_ledger()
        mark = ledger.mark if ledger is not None else None
        if self.command is not None and ledger is not None and ledger.spend is not None:
            ticket = await ledger.spend.reserve(self.limits.max_cost or 0.0)
            ledger.spend.settle(ticket, 0.0)  # what it really cost is charged when the tap has told it
        async with self._workspace(example, mark) as made:
            return await self._work(example, made, mark)

    async def _work(self, example: Example, made: Workspace, mark: Mark | None) -> Example:
        facts: dict[str, Any] = {"sandbox": made.sandbox, "walls": made.description}
        if self.command is None:
            return await self._verified(example, made, facts, {})
        finished, broken = await self._agent(example, made, mark)
        finished = self._without_pieces(finished)
        records = list(await self._look(mark)) if self._look is not None and mark is not None else []
        broken = broken or self.limits.broken(records, self.prices)
        _require_answers(records)
        facts |= quotas_in_replies(records)
        facts["agent_seconds"] = round(finished.seconds, 3)
        facts |= await _in_thread(reading_of, records)
        told = {
            "exit": finished.exit,
            "killed": finished.killed,
            "said": (finished.stdout_tail + finished.stderr_tail)[-_TAIL:],
        }
        output = {"agent": {key: value for key, value in told.items() if value not in (None, "")}}
        abort = broken or _abort_of(finished, records)
        if abort is not None:
            return _aborted(output, facts, abort, _reason(abort, finished))
        try:
            output["response"] = await _in_thread(made.patch)
            return await self._verified(example, made, facts, output)
        except SandboxFailed as error:
            if not arm_specs.is_agents(error):
                raise
            return _aborted(output, facts, arm_specs.AGENT, f"the agent left a copy that cannot be used: {error}")

    def _without_pieces(self, finished: Finished) -> Finished:
        """Without a key that the events of a stream, which some agents print, spell in pieces."""
        clean = partial(redact, secrets=list(plugin_secrets([self.spec], [])))
        return replace(
            finished,
            stdout_tail=without_pieces(finished.stdout_tail, clean),
            stderr_tail=without_pieces(finished.stderr_tail, clean),
        )

    async def _verified(
        self, example: Example, made: Workspace, facts: dict[str, Any], output: dict[str, Any]
    ) -> Example:
        from context_bench.sandbox import verify

        verdict: Verdict = await _in_thread(verify, made, example.get("verify") or {})
        if verdict.finished.timed_out or verdict.finished.killed:
            facts["abort"] = output["abort"] = arm_specs.VERIFY
            facts["why"] = verdict.reason
        if wanted := len(verdict.passed) + len(verdict.failed):
            facts |= {"tests_passed": len(verdict.passed), "tests": wanted}
        if verdict.undone:
            facts["undone"] = list(verdict.undone)[:20]
        facts["verify_seconds"] = round(verdict.finished.seconds, 3)
        told = {"solved": verdict.solved, "reason": verdict.reason, "facts": facts}
        return {"response": "", **output, **told, "tests_said": verdict.finished.stdout_tail[-_TAIL:]}

    @asynccontextmanager
    async def _workspace(self, example: Example, mark: Mark | None) -> AsyncIterator[Workspace]:
        """The copy, made and removed in threads; what runs in it is ended first if this is cancelled."""
        from context_bench.sandbox import find_agent_sandbox, workspace

        image = example.get("image")
        if image not in self._houses:
            self._houses[image] = await _in_thread(lambda: find_agent_sandbox(unsafe=self._unsafe, image=image))
        setup = self._setup(example, mark)
        opened = workspace(
            example["repo"], house=self._houses[image], bounds=self._bounds, readable=self._readable, setup=setup
        )
        made = await _in_thread(opened.__enter__)
        try:
            yield made
        finally:
            made.stop()
            await asyncio.shield(_in_thread(opened.__exit__, None, None, None))

    def _setup(self, example: Example, mark: Mark | None) -> str:
        """The task's own set-up, then the arm's scripts under the arm's variables, as one text for `sh`."""
        own = [str(example["setup"])] if example.get("setup") else []
        if self.command is not None and self.spec.scripts:
            variables = self.spec.values(self._places(mark, "\0PWD", "\0HOME"))
            own += [f"export {name}={_quoted(value)}" for name, value in variables.items()]
            own += [f"sh {shlex.quote(str(script))}" for script in self.spec.scripts]
        return "set -e\n" + "\n".join(own) if own else ""

    def _places(self, mark: Mark | None, workspace: str, home: str) -> dict[str, str | None]:
        from context_bench.sandbox.backends import PATH

        key = mark.token if mark is not None and mark.mode == "key" else "no-key-needed"
        return {"tap": self._tap, "key": key, "workspace": workspace, "home": home, "path": PATH}

    async def _agent(self, example: Example, made: Workspace, mark: Mark | None) -> tuple[Finished, str | None]:
        """Run the agent, and look at its traffic meanwhile; gives how it ended and the limit for which it was ended."""
        places = self._places(mark, made.inside, made.home_inside)
        instruction = str(example.get("instruction") or example.get("question") or "")
        made.write(_INSTRUCTION, instruction.encode(), home=True)
        words = self._words(instruction, made)
        environment = {
            **(example.get("env") or {}),
            **self._model(places),
            **self._environment,
            **self.spec.values(places),
        }
        running = asyncio.ensure_future(
            _in_thread(
                lambda: made.run(
                    words,
                    env=environment,
                    timeout=self.limits.seconds(example),
                    network=True,
                    stdin=instruction.encode() if self._stdin else b"",
                )
            )
        )
        try:
            broken = await self._watch(running, made, mark) if self.limits.watching else None
            return await asyncio.shield(running), broken
        except asyncio.CancelledError:
            made.stop()
            with contextlib.suppress(Exception):
                await running
            raise

    async def _watch(self, running: asyncio.Future[Finished], made: Workspace, mark: Mark | None) -> str | None:
        if self._look is None or mark is None:
            return None
        while not (await asyncio.wait([running], timeout=_LOOK_EVERY))[0]:
            if broken := self.limits.broken(await self._look(mark), self.prices):
                made.stop()
                return broken
        return None

    def _words(self, instruction: str, made: Workspace) -> list[str]:
        places = {
            "{instruction}": instruction,
            "{instruction_file}": f"{made.home_inside}/{_INSTRUCTION}",
            "{workspace}": made.inside,
        }
        return [_filled(word, places) for word in self.command or ()]

    def _model(self, places: Mapping[str, str | None]) -> dict[str, str]:
        """The model's address and key, in the variables that agents read."""
        if self._tap is None:
            return {}
        key = str(places["key"])
        there = {
            "OPENAI_BASE_URL": f"{self._tap}/v1",
            "OPENAI_API_BASE": f"{self._tap}/v1",
            "ANTHROPIC_BASE_URL": self._tap,
        }
        return {**there, "OPENAI_API_KEY": key, "ANTHROPIC_API_KEY": key, "NO_PROXY": "127.0.0.1,localhost"}


def _filled(word: str, places: Mapping[str, str]) -> str:
    """The word with its places filled in, in one pass: what an instruction says is never taken for a place."""
    parts: list[str] = []
    at = 0
    while at < len(word):
        name = next((name for name in places if word.startswith(name, at)), None)
        parts.append(word[at] if name is None else places[name])
        at += 1 if name is None else len(name)
    return "".join(parts)


def _quoted(value: str) -> str:
    """For `sh`, where only the places of workspace and home are filled in."""
    parts = _PLACE.split(value)
    return (
        "".join(f'"${part}"' if number % 2 else shlex.quote(part) for number, part in enumerate(parts) if part) or "''"
    )


def _require_answers(records: Sequence[Forwarded]) -> None:
    """A model that answered nothing at all is no fault of the arm: it is a failure, and tried again by whoever
    resumes.
    """
    calls = arm_specs.calls_of(records)
    if not calls or arm_specs.answered(calls) or arm_specs.overflowed(calls):
        return
    last = calls[-1]
    said = f"none of the agent's {len(calls)} call(s) was answered; the last: {last.error or f'HTTP {last.status}'}"
    if last.status is not None and 400 <= last.status < 500:
        raise Refused(said)
    raise ServerFailed(said)


def _aborted(output: dict[str, Any], facts: dict[str, Any], abort: str, why: str) -> Example:
    """The output of a run that scores 0 without being verified."""
    told = {
        "response": "",
        "solved": False,
        "abort": abort,
        "reason": why,
        "facts": {**facts, "abort": abort, "why": why},
    }
    return {**output, **told}


def _abort_of(finished: Finished, records: Sequence[Forwarded]) -> str | None:
    if finished.timed_out:
        return arm_specs.TIME
    if arm_specs.overflowed(records):
        return arm_specs.OVERFLOW
    return None if finished.ok else arm_specs.AGENT


def _reason(abort: str, finished: Finished) -> str:
    if abort != arm_specs.AGENT:
        return f"ended: {abort}"
    if finished.killed:
        return f"the agent was ended: {finished.killed}"
    said = " ".join((finished.stderr_tail or finished.stdout_tail).split())[-300:]
    return f"the agent ended with status {finished.exit}" + (f": {said}" if said else "")


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """In a thread of its own; what is not an error of ours is one of the sandbox."""
    try:
        return await asyncio.to_thread(function, *args)
    except OSError as error:
        raise SandboxFailed(f"the sandbox could not be used: {error}") from error
