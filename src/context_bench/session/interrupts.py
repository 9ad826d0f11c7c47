"""Ctrl-C and SIGTERM in every command: the message names what is safe, and the command that resumes. Leftover programs
are ended.

The first asks a command to end: what is finished is stored, servers and sandboxes are taken down. The second ends the
process at once; nothing is lost by that either, since a row counts as finished only when it is durable.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from context_bench.core import machine as allocator
from context_bench.core.machine import quoted
from context_bench.session.output_files import say

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
CODE = 130
_SERVERS = {"tap", "serve", "view", "watch", "model"}  # Ctrl-C is how they end
_KEEPERS = {
    "run",
    "demo",
    "replay",
    "agent",
    "memory",
    "compress",
    "rescore",
    "judge",
    "import",
    "copy",
}  # what they did is stored as they go
_SECRET = ("--api-key",)
_PATIENCE = 1.0  # seconds until a command that is still ending says so
_TIDY = 30.0  # seconds after which free memory is given back, again and again
_typed: list[str] = []  # the command line of this process, as it was typed
_explained: list[bool] = []  # not empty: it was said how to go on


@contextmanager
def noticed(argv: Sequence[str]) -> Iterator[None]:
    """For as long as a command runs: its command line is known, and SIGTERM is the same as Ctrl-C."""
    _typed[:] = argv
    _note_keys(argv)
    _explained.clear()
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in an event loop of its own. Ctrl-C or SIGTERM cancels it and raises `KeyboardInterrupt`; a second
    ends the process.
    """
    import asyncio

    asked: list[int] = []

    async def guarded() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        patience: list[asyncio.TimerHandle] = []

        def cancel() -> None:
            if task is not None and task.cancel():
                patience.append(loop.call_later(_PATIENCE, _still_ending))

        def ask(number: int, _: Any) -> None:
            if asked:
                end_at_once()
            asked.append(number)
            loop.call_soon_threadsafe(cancel)

        before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            return await main
        finally:
            for timer in patience:
                timer.cancel()
            for each, handler in before.items():
                signal.signal(each, handler)

    if threading.current_thread() is not threading.main_thread():
        return looped(main)
    try:
        return looped(guarded())
    except asyncio.CancelledError:
        if asked:
            raise KeyboardInterrupt from None
        raise


def looped(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in an event loop of its own that gives free memory back now and then, since a command may run for
    days. SIGTERM cancels it, as Ctrl-C does in every loop: an exception in the midst of the loop's own work would lose
    a step of a task, which then could not even be cancelled.
    """
    import asyncio

    asked: list[int] = []

    async def tidied() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def end(number: int, frame: Any) -> None:
            asked.append(number)
            if len(asked) > 1 or task is None:
                signal.default_int_handler(number, frame)
            loop.call_soon_threadsafe(task.cancel)

        raises = signal.getsignal(signal.SIGTERM) is signal.default_int_handler  # as `noticed` leaves it
        if raises and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, end)
        gc.freeze()  # what a command has loaded stays, and need not be looked through
        tidying = asyncio.create_task(_tidying())
        try:
            return await main
        finally:
            tidying.cancel()
            gc.unfreeze()
            if signal.getsignal(signal.SIGTERM) is end:
                signal.signal(signal.SIGTERM, signal.default_int_handler)

    try:
        return asyncio.run(tidied())
    except asyncio.CancelledError:
        if asked:
            raise KeyboardInterrupt from None
        raise


async def _tidying() -> None:
    import asyncio

    while True:
        await asyncio.sleep(_TIDY)
        if gc.get_freeze_count():  # what failed leaves circles, and commands look for them seldom of themselves
            gc.collect()
        allocator.give_back()


def _still_ending() -> None:
    print("context-bench: ending; what is finished is being stored. Ctrl-C again ends at once.", file=sys.stderr)


def end_at_once() -> NoReturn:
    """Say how to go on, end the programs that were started, and leave without waiting for anything."""
    with suppress(OSError):
        os.write(2, f"\n{outcome()}\n".encode(errors="replace"))
    for child in children():
        with suppress(OSError):
            leads = os.getpgid(child) == child
            (os.killpg if leads else os.kill)(child, signal.SIGKILL)
    os._exit(CODE)


def children() -> list[int]:
    """The processes that this one started, as far as the system tells."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, ValueError):  # a thread may end between being listed and being read
            found += map(int, thread.read_text().split())
    return found


def was_explained() -> bool:
    """Was it said already what an interrupted command leaves?"""
    return bool(_explained)


def outcome() -> str:
    """The sentence for a command that was interrupted somewhere."""
    _explained.append(True)
    command = _typed[0] if _typed and not _typed[0].startswith("-") else "run"
    if command in _SERVERS:
        return "context-bench: stopped"
    if command in _KEEPERS:
        return f"context-bench: interrupted; what was finished is stored. Go on with\n  {again()}"
    return f"context-bench: interrupted before the end; nothing was changed. Begin again with\n  {again()}"


def left_behind() -> str:
    """Advice after a fault of ours ended a command: the rows that are safe, and the command that goes on; else ""."""
    command = _typed[0] if _typed and not _typed[0].startswith("-") else "run"
    if command in _KEEPERS and _typed:
        return f"What was finished is stored; when the fault is mended, go on with\n  {again()}"
    return ""


def kept(run: str, store: object, rows: int | None, owed: int | None) -> str:
    """Advice after an interrupted run whose rows are in `store`: how many, and the command that goes on with it."""
    from context_bench.llm.redact import redact
    from context_bench.reports.visible_text import visible

    _explained.append(True)
    many = (
        "what was finished is stored"
        if rows is None
        else f"{rows:,} {'' if owed is None else f'of {owed:,} '}rows are stored"
    )
    place = f" in {visible(redact(str(store)), 300)}" if store else ""
    return f"context-bench: interrupted; {many}{place} (run {visible(run)}). Go on with\n  {again(run)}"


def again(run: str | None = None) -> str:
    """The command line as it was typed, for a shell, with `--run` of the run that it made. What looks like a key is
    left out.
    """
    argv = list(_typed)
    if run is not None:
        argv = _with_run(argv, run)
    told = [_without_key(argv, at) for at in range(len(argv))]
    line = " ".join([*_program(), *(quoted(each) for each in told)])
    return line if told == argv else f"{line}   (with your key in place of [key])"


def _with_run(argv: list[str], run: str) -> list[str]:
    end = argv.index("--") if "--" in argv else len(argv)  # what follows is another program's
    own: list[str] = []
    skip = False
    for at, each in enumerate(argv[:end]):
        name, given, _ = each.partition("=")
        if skip:
            skip = False
        elif name in ("--run", "--resume"):
            skip = not given and at + 1 < end and not argv[at + 1].startswith("-")
        else:
            own.append(each)
    return [*own, "--run", run, *argv[end:]]


def _without_key(argv: list[str], at: int) -> str:
    from context_bench.llm.redact import MASK, redact

    name, given, value = argv[at].partition("=")
    if name in _SECRET and given:
        return f"{name}={MASK}" if value else argv[at]
    return MASK if at and argv[at - 1] in _SECRET else redact(argv[at])


def _note_keys(argv: Sequence[str]) -> None:
    """Let whatever masks keys know those that were typed: they need not look like keys, nor be in any variable."""
    for at, word in enumerate(argv):
        name, mark, value = word.partition("=")
        if name in _SECRET:
            from context_bench.llm.redact import given

            given(name, value if mark else "".join(argv[at + 1 : at + 2]))


def _program() -> list[str]:
    return ["python", "-m", "context_bench"] if Path(sys.argv[0]).name == "__main__.py" else ["context-bench"]


_GRACE = 1.0  # seconds from SIGTERM to SIGKILL
_PYTHONS_OWN = "multiprocessing.resource_tracker"  # ends when this process does


@contextmanager
def without_leftovers() -> Iterator[None]:
    """End the programs that something within the block started and left running.

    One that still writes to the command's own output keeps it open: a pipeline would wait for it, and its text would
    land in a prompt. So it is ended with the command, and a message names it. One in a session of its own
    (`start_new_session=True`), or with an output of its own, was meant to stay, and does; so does any program that it
    started in turn. Without /proc nothing is done.
    """
    before = set(children())
    try:
        yield
    finally:
        for pid in set(children()) - before:
            with suppress(OSError):
                if (
                    os.getsid(pid) == os.getsid(0)
                    and _writes_here(pid)
                    and _PYTHONS_OWN not in (line := _command_line(pid))
                ):
                    _end(pid, line)


def _writes_here(pid: int) -> bool:
    """Has the process a standard stream that is one of ours? A place that everybody may write to, such as /dev/null, is
    nobody's.
    """
    ours = {_output(os.getpid(), number) for number in (1, 2)} - {None, os.devnull}
    return any(_output(pid, number) in ours for number in (1, 2))


def _output(pid: int, number: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/fd/{number}").readlink())
    except OSError:
        return None


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _end(pid: int, line: str) -> None:
    from context_bench.llm.redact import redact

    handle = os.pidfd_open(pid)
    try:
        _signal(pid, signal.SIGTERM)
        ending = select.poll()  # `select.select` takes no descriptor above 1,023
        ending.register(handle, select.POLLIN)
        if not ending.poll(_GRACE * 1000):
            _signal(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    say(f"ended a program that was left running: {redact(line)[:200]} (process {pid})")


def _signal(pid: int, number: int) -> None:
    """To the process, and to its group if it leads one."""
    (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, number)
