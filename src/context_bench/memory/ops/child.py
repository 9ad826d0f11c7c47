"""Processes that store items in a memory until they kill themselves: `python -m context_bench.memory.ops.child`.

Reads orders from standard input, one JSON object a line: `spec`, `namespace` (or null), `items` [{id, text}],
`die_after` (acknowledgement, from 1; 0: not at all), `delay` (seconds between that acknowledgement and the kill, in
which it goes on storing; 0: in the very next instruction). Each order is carried out by a process of its own, forked
from this one, which has opened nothing; it is the leader of its own group and ends by SIGKILL of that group, or closes
the memory and ends well. Writes JSON lines: {"pid"} when it starts, {"id", "memory_id"} for each acknowledged item
before anything else can happen, {"error"} if it ends otherwise, {"status"} when it is over.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from context_bench.core.calling import call, method
from context_bench.core.errors import describe
from context_bench.memory.protocol import Item


def _say(told: dict[str, Any]) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


def _die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _die_soon(seconds: float) -> None:
    def wait() -> None:
        time.sleep(seconds)
        _die()

    threading.Thread(target=wait, daemon=True).start()


async def _store(order: dict[str, Any]) -> None:
    from context_bench.memory.systems.memory_specs import make_memory

    memory = make_memory(order["spec"])
    if order["namespace"] is not None:
        memory = await call(getattr(memory, "namespace"), order["namespace"])  # noqa: B009 - optional in the protocol
    acknowledged = 0
    for told in order["items"]:
        receipts = await call(memory.add, [Item(told["id"], told["text"])])
        if not receipts or receipts[0].error is not None:
            continue
        acknowledged += 1
        _say({"id": told["id"], "memory_id": receipts[0].memory_id})
        if acknowledged == order["die_after"]:
            if order["delay"] <= 0:
                _die()
            _die_soon(order["delay"])
    if order["die_after"]:  # everything was stored before the kill came, or less was acknowledged than asked for
        _die()
    close = method(memory, "aclose", "close")
    if close is not None:
        await call(close)


def _carry_out(order: dict[str, Any]) -> None:
    """In the forked process; never comes back."""
    os.setsid()
    _say({"pid": os.getpid()})
    status = 1
    try:
        asyncio.run(_store(order))
        status = 0
    except BaseException as error:  # this process has nobody else to tell
        _say({"error": describe(error)})
    os._exit(status)


def main() -> None:
    """Until standard input ends."""
    import context_bench.memory.systems.bm25
    import context_bench.memory.systems.memory_specs  # noqa: F401 - once, and not in every child

    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _carry_out(order)
        _, status = os.waitpid(pid, 0)
        _say({"status": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
