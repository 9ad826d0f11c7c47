"""Test that acknowledged items survive kill -9.

A child process stores items one by one and kills itself in the instruction after the n-th acknowledgement, for many n;
then the memory is opened here and all that was acknowledged is looked up by its exact text. Kills at random moments
find little: what acknowledges before it commits is mostly caught up by then. Some more kills come a little later, while
the next item is being written: what is there then has to be whole. Positive control: a child that closes the memory
properly loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import SystemFailed, TimedOut, describe
from context_bench.core.protocols import call, method
from context_bench.memory.ops import SuiteReport, share
from context_bench.memory.ops.suite_workspace import SuiteWorkspace, whole
from context_bench.memory.protocol import Item, Memory, NotSupported
from context_bench.memory.systems.adapting import make_memory

SUITES = {"crash": "crash"}

_KILLS, _LATER = 12, 4  # right after an acknowledgement; a moment after one
_ITEMS = 16
_START = 30.0  # seconds in which a child gets going, beside the deadline of its calls


@dataclass(slots=True)
class _ChildExit:
    """The end of a child, and the items that were acknowledged to it."""

    status: int
    acknowledged: list[str]
    errors: str
    memory_ids: list[str | None]


@dataclass(slots=True)
class _Lost:
    """Items missing or broken after some kills."""

    kills: int = 0
    acknowledged: int = 0
    missing: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


async def crash(workspace: SuiteWorkspace, report: SuiteReport) -> None:
    """One child that ends well, many that are killed."""
    workspace.needs("search", "persistent")
    if not hasattr(os, "fork"):
        raise NotSupported("this system cannot fork processes")
    if workspace.spec is None:
        raise NotSupported(
            "a child process needs a spec to make the memory from, and this memory was given as an object"
        )
    pick = random.Random(f"crash/{workspace.seed}")
    await workspace.close()  # the children have the store for themselves; some stores allow but one process
    async with _Nursery(workspace) as nursery:
        control, intact = await _clean_exit(workspace, nursery)
        for name, kills, delays in (
            ("killed after an acknowledgement", workspace.times(_KILLS), (0.0,)),
            ("killed while writing", workspace.times(_LATER, 1), (0.001, 0.003, 0.006, 0.01)),
        ):
            async with report.guard(name):
                lost = _Lost()
                for _ in range(kills):
                    items = _items(workspace)
                    await _killed(workspace, nursery, items, pick.randint(1, len(items) - 2), pick.choice(delays), lost)
                _judged(report, name, lost, control, intact)
    await workspace.enter()


def _items(workspace: SuiteWorkspace) -> list[Item]:
    return [
        workspace.handed(
            Item(workspace.facts.word(), workspace.facts.long(600, workspace.facts.word(), workspace.facts.word()))
        )
        for _ in range(max(4, workspace.times(_ITEMS)))
    ]


async def _clean_exit(workspace: SuiteWorkspace, nursery: _Nursery) -> tuple[str, bool | None]:
    """Examine what a child that is not killed leaves behind: what is wrong with it ("" = nothing), and whether texts
    come back whole.
    """
    items, lost = _items(workspace)[:4], _Lost()
    ended = await nursery.run(items, 0, 0.0, "well")
    if ended.status != 0:
        return f"a child that is not killed ended with status {ended.status}: {ended.errors or 'no message'}", None
    if not ended.acknowledged:
        return "a child that is not killed got nothing acknowledged", None
    await _looked_up(workspace, items, ended, "well", lost)
    return "; ".join(lost.missing[:1]), not lost.torn


async def _killed(
    workspace: SuiteWorkspace, nursery: _Nursery, items: Sequence[Item], after: int, delay: float, lost: _Lost
) -> None:
    label = f"kill{workspace.facts.word()}"
    ended = await nursery.run(items, after, delay, label)
    if ended.status != -signal.SIGKILL:
        raise RuntimeError(
            f"the child ended with status {ended.status} before it could be killed: {ended.errors or 'no message'}"
        )
    lost.kills += 1
    lost.acknowledged += len(ended.acknowledged)
    await _looked_up(workspace, items, ended, label, lost)


async def _looked_up(
    workspace: SuiteWorkspace, items: Sequence[Item], end: _ChildExit, label: str, lost: _Lost
) -> None:
    await workspace.enter()
    try:
        memory: Memory = await workspace.place(label)
        workspace.note(end.memory_ids)
        for item in items[: len(end.acknowledged) + 2]:  # more cannot have been begun
            head, tail = _ends(item)
            hits = [hit for hit in await workspace.search(memory, item.text) if head in hit.text or tail in hit.text]
            workspace.note(hit.memory_id for hit in hits)
            if not hits and item.id in end.acknowledged:
                lost.missing.append(f"item {items.index(item) + 1} of {len(end.acknowledged)} acknowledged is gone")
            elif hits and not whole(item.text, hits):
                lost.torn.append(f"item {items.index(item) + 1} came back as {hits[0].text!r}")
    finally:
        await workspace.close()


def _ends(item: Item) -> tuple[str, str]:
    """The first and the last word that only this item has."""
    first, last = item.text.split(".")[0], item.text.rstrip(".").rsplit(".", 1)[1]
    return first.split()[-1], last.split()[-1]


def _judged(report: SuiteReport, name: str, lost: _Lost, control: str, intact: bool | None) -> None:
    proof = control or "a child that closes the memory loses nothing"
    report.test(
        name,
        not lost.missing,
        f"{len(lost.missing)} of {lost.acknowledged} acknowledged things are gone after {lost.kills} kills",
        {
            "kills": lost.kills,
            "acknowledged": lost.acknowledged,
            "missing": len(lost.missing),
            "share": share(len(lost.missing), lost.acknowledged),
        },
        lost.missing,
        control=not control and lost.acknowledged > 0,
        proof=proof,
    )
    if intact is False:
        report.without(f"{name}: torn", "texts do not come back whole without a kill either")
        return
    report.test(
        f"{name}: torn",
        not lost.torn,
        f"{len(lost.torn)} things are there in part",
        {"torn": len(lost.torn)},
        lost.torn,
        control=not control,
        proof=proof,
    )


# --- the child ---
class _Nursery:
    """A process that starts a child for each order and tells how it ended. It opens nothing itself."""

    def __init__(self, workspace: SuiteWorkspace) -> None:
        self._workspace = workspace
        self._process: asyncio.subprocess.Process | None = None
        self._child: int | None = None

    async def __aenter__(self) -> _Nursery:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{__package__}.crash"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },  # what can be imported here can be there
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        process = self._process
        assert process is not None
        for group in (self._child, process.pid if process.returncode is None else None):
            if group is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    async def run(self, items: Sequence[Item], after: int, delay: float, label: str) -> _ChildExit:
        """Have a child store the items; `TimedOut` if it does not end."""
        workspace, process = self._workspace, self._process
        assert process is not None
        assert process.stdin is not None
        order = {
            "spec": workspace.spec,
            "namespace": workspace.name_of(label) if workspace.has("namespaces") else None,
            "items": [{"id": item.id, "text": item.text} for item in items],
            "die_after": after,
            "delay": delay,
        }
        process.stdin.write(json.dumps(order).encode() + b"\n")
        limit = _START + workspace.deadline
        try:
            async with asyncio.timeout(limit):
                return await self._exit_of(process)
        except TimeoutError:
            raise TimedOut(f"storing {len(items)} items in a child process had not ended after {limit:g} s") from None

    async def _exit_of(self, process: asyncio.subprocess.Process) -> _ChildExit:
        acknowledged: list[str] = []
        memory_ids: list[str | None] = []
        errors = ""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError:  # the memory itself wrote something
                continue
            if "pid" in event:
                self._child = int(event["pid"])
            elif "id" in event:
                acknowledged.append(str(event["id"]))
                memory_ids.append(event.get("memory_id"))
            elif "error" in event:
                errors = str(event["error"])[:300]
            elif "status" in event:
                self._child = None
                return _ChildExit(int(event["status"]), acknowledged, errors, memory_ids)
        raise SystemFailed("the process that starts the children ended")


# --- in the child process ---


def _report(event: dict[str, Any]) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def _die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


async def _store(order: dict[str, Any]) -> None:
    memory = make_memory(order["spec"])
    if order["namespace"] is not None:
        memory = await call(getattr(memory, "namespace"), order["namespace"])  # noqa: B009 - optional in the protocol
    acknowledged = 0
    for fields in order["items"]:
        receipts = await call(memory.add, [Item(fields["id"], fields["text"])])
        if not receipts or receipts[0].error is not None:
            continue
        acknowledged += 1
        _report({"id": fields["id"], "memory_id": receipts[0].memory_id})
        if acknowledged == order["die_after"]:
            if order["delay"] <= 0:
                _die()
            timer = threading.Timer(order["delay"], _die)
            timer.daemon = True
            timer.start()
    if order["die_after"]:  # everything was stored before the kill came, or less was acknowledged than asked for
        _die()
    close = method(memory, "aclose", "close")
    if close is not None:
        await call(close)


def _carry_out(order: dict[str, Any]) -> None:
    """In the forked process; never comes back."""
    os.setsid()
    _report({"pid": os.getpid()})
    status = 1
    try:
        asyncio.run(_store(order))
        status = 0
    except BaseException as error:  # this process has nobody else to tell
        _report({"error": describe(error)})
    os._exit(status)


def main() -> None:
    """Carry out orders from standard input, one JSON object a line, until it ends.

    `spec`, `namespace` (or null), `items` [{id, text}], `die_after` (acknowledgement, from 1; 0: not at all), `delay`
    (seconds between that acknowledgement and the kill, in which it goes on storing; 0: in the very next instruction).
    Each order is carried out by a process of its own, forked from this one, which has opened nothing; it is the leader
    of its own group and ends by SIGKILL of that group, or closes the memory and ends well. Writes JSON lines: {"pid"}
    when it starts, {"id", "memory_id"} for each acknowledged item before anything else can happen, {"error"} if it
    ends otherwise, {"status"} when it is over.
    """
    import context_bench.memory.systems.bm25_memory  # noqa: F401 - once, and not in every child

    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _carry_out(order)
        _, status = os.waitpid(pid, 0)
        _report({"status": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
