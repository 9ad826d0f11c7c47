"""One memory through the operational suites."""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput, UnknownName
from context_bench.memory.ops._room import Room, check_empty
from context_bench.memory.ops.report import Sheet, SuiteResult
from context_bench.memory.systems.adapting import as_memory
from context_bench.memory.systems.making import make_memory

#: What is run when nothing else is said, in this order.
DEFAULT = ("isolation", "delete", "update", "concurrency", "crash", "growth")
SUITES = (*DEFAULT, "poison", "robust")

#: In a spec: a folder of our own, new for the run and removed after it.
FOLDER = "{dir}"


async def run_suites(
    make: str | Callable[[], Any],
    suites: Sequence[str] = DEFAULT,
    *,
    spec: str | None = None,
    seed: int = 0,
    scale: float = 1.0,
    deadline: float = 60.0,
    k: int = 10,
    reader: Any = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[SuiteResult]:
    """What the memory does under each of `suites`.

    `make`: a spec (`bm25:path={dir}/store.db`; `{dir}` becomes a folder of ours, removed afterwards), or a function that opens the memory,
    the same place each time it is called (a memory that says "persistent" is closed and opened again). `spec`: how a child process can make
    it, for the crash suite, if `make` is a function. `scale` multiplies the number of things stored and asked (1: some seconds on a local
    store). A call that outlives `deadline` seconds is a failure. `reader`: a system; with it "poison" also asks whether it obeys.

    Only namespaces of our own are written to and emptied; a memory without namespaces must be empty, else `BadInput`. `UnknownName` for a
    suite that does not exist; errors in making the memory are raised.
    """
    for name in suites:
        if name not in SUITES:
            raise UnknownName("operational suite", name, SUITES)
    if not suites:
        raise BadInput(f"no operational suite is named; there are {', '.join(SUITES)}")
    for what, number in (("scale", scale), ("deadline", deadline)):
        if not 0 < number < math.inf:
            raise BadInput(f"{what} is {number:g}; expected a number above 0")
    if k < 1:
        raise BadInput(f"k is {k}; expected a number of hits, 1 or more")
    with tempfile.TemporaryDirectory(prefix="context-bench-ops-", ignore_cleanup_errors=True) as folder:
        opened, child, own = _opened(make, spec, Path(folder))
        results = []
        for number, name in enumerate(suites):
            room = Room(opened, name, seed, scale, deadline, k, child, own, reader, clock)
            results.append(await _one(room, first=number == 0))
        return results


def _opened(make: str | Callable[[], Any], spec: str | None, folder: Path) -> tuple[Callable[[], Any], str | None, Path | None]:
    """How to open the memory here, how in a child process, and our folder if it lies there."""
    text = make if isinstance(make, str) else spec
    child = None if text is None else text.replace(FOLDER, str(folder))
    own = folder if text is not None and FOLDER in text else None
    if isinstance(make, str):
        assert child is not None
        return (lambda: make_memory(child)), child, own
    return (lambda: as_memory(make())), child, own


async def _one(room: Room, *, first: bool) -> SuiteResult:
    suite = importlib.import_module(f"{__package__}.{room.suite}")
    sheet = Sheet(room.suite)
    begun = room.clock.monotonic()
    await room.enter()
    name = room.base.name
    try:
        if first:
            await check_empty(room)
        async with sheet.guard(room.suite):
            await suite.probe(room, sheet)
    finally:
        await room.leave()
    return SuiteResult(room.suite, name, tuple(sheet.probes), room.clock.monotonic() - begun, room.seed, room.scale)
