"""Limits of a command: declared on its line, counted on in its store, and what follows an alarm."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from context_bench.core.errors import BadInput, LimitCrossed, StoreUnusable, UnknownName
from context_bench.core.keys import stable_hash
from context_bench.core.machine import SYSTEM_CLOCK, Clock, started
from context_bench.session.flags import flag, own
from context_bench.session.offers import Many
from context_bench.session.options import ReplayOptions, WatchOptions

if TYPE_CHECKING:
    from context_bench.engine.store import Store
    from context_bench.traffic.session_limits import SessionCounts
    from context_bench.wire.turns import Turn

#: Seconds that a command of `--notify` may take.
NOTIFY_SECONDS = 10.0
_LOOK_SECONDS = 30.0  # between two looks for sessions that nothing comes of any more


class LimitedReplay(ReplayOptions):
    """The options of `context-bench replay`, with limits. These are about no run: its manifest has none of them."""

    limit: Many = flag(
        "Alarm when sessions go over this limit: bill=0.9, typical=0.9, violations=0, needles=0.01, or a kind of "
        "violation, stream_broken=0; repeatable. However often it looks, false alarms stay rare.",
        [],
        unit="CHANNEL=X",
        secret=True,
    )
    fail_fast: bool = flag("An alarm of --limit ends it, with exit code 6.", False, secret=True)
    notify: str | None = flag(
        "Run this at an alarm, without a shell; the alarm is on its stdin as JSON.", unit="CMD", secret=True
    )
    anew: bool = flag(
        "Forget what --limit has counted so far and start counting again, after an alarm that was dealt with.",
        False,
        secret=True,
    )


class LimitedWatch(WatchOptions):
    """The options of `context-bench watch`, with limits, and with what people call it."""

    title: str | None = own()
    tag: list[str] | None = own(default=None)
    limit: list[str] | None = own(default=None)
    fail_fast: bool = own()
    notify: str | None = own()
    anew: bool = own()


def checked_limits(by: str, options: LimitedReplay | LimitedWatch) -> dict[str, float]:
    """The limits that are declared, by channel. Raises `BadInput` for what cannot be meant; `by` names the command."""
    from context_bench.traffic.session_limits import declared_limits

    limits = declared_limits(options.limit or [])
    given = [("--notify", options.notify), ("--fail-fast", options.fail_fast), ("--anew", options.anew)]
    if not limits and (lone := [name for name, value in given if value]):
        raise BadInput(f"{by}: {lone[0]} is about alarms; declare a limit with --limit, such as --limit bill=0.9")
    if options.notify is not None:
        _program(by, options.notify)
    return limits


def _program(by: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"{by}: --notify {command!r} cannot be read as a command line: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise BadInput(
            f"{by}: --notify {command!r} names no program that can be run; expected one on the PATH, or its path, with "
            "its arguments (no shell reads them)"
        )
    return words


class LimitGuard:
    """A certificate as a command keeps it: its state in a store, sessions counted in, alarms told.

    `about`: what is watched; together with the limits it says whose state this is. Raises `StoreUnusable` while
    another process counts on the same.
    """

    def __init__(
        self,
        store: Store,
        limits: Mapping[str, float],
        about: Mapping[str, Any],
        options: LimitedReplay | LimitedWatch,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        from context_bench.engine.store.watches import CertificateLog
        from context_bench.traffic.session_limits import Certificate, OpenSessions

        self._store, self._clock, self.options = store, clock, options
        self.log = CertificateLog(store, bytes.fromhex(stable_hash({**about, "limits": dict(limits)})), clock)
        stored = self.log.state
        begun = stored["certificate"]["begun"] if stored else 0
        self.certificate = (
            Certificate.new(limits, begun + 1)
            if stored is None or options.anew
            else Certificate.of(stored["certificate"])
        )
        self.fresh: list[dict[str, Any]] = []  # alarms that nobody was told of
        self.changed = options.anew
        self._watch, self._seen, self._open = "", 0, OpenSessions()
        if stored is not None and not options.anew and (watch := stored.get("watch")):
            self._take_up(watch)

    def _take_up(self, watch: Mapping[str, Any]) -> None:
        """Count in what a watch that was killed had seen and not counted: its sessions are over."""
        from context_bench.engine import watched
        from context_bench.traffic.session_limits import OpenSessions, SessionCounts

        self._open = OpenSessions({each["session"]: SessionCounts(**each) for each in watch["open"]})
        try:
            for turn in watched(self._store, watch["name"], after=watch["seen"]):
                self.see(turn)
        except UnknownName:  # its records were purged
            pass
        self.close()

    def begin(self, watch: str) -> None:
        """From now on a watch of this name is counted in."""
        self._watch, self._seen = watch, 0
        self.changed = True

    def see(self, turn: Turn) -> None:
        """Take in a turn; sessions that are finished by then are counted."""
        from context_bench.traffic.session_limits import violations_of

        self._seen = turn.number
        for counts in self._open.add(turn):
            self.count(counts)
        if turn.arm == "main" and turn.kind == "turn" and (kinds := violations_of(turn)):
            self._raise(self.certificate.violated(turn.session or "no session", self._clock.now(), kinds))

    def look(self) -> None:
        """Count the sessions that are finished by now."""
        for counts in self._open.finished(self._clock.now()):
            self.count(counts)

    def close(self) -> None:
        """Count the sessions that are open: nothing more comes."""
        for counts in self._open.close():
            self.count(counts)

    def count(self, counts: SessionCounts) -> None:
        """Count in a finished session."""
        self.changed = True
        self._raise(self.certificate.add(counts, self._clock.now()))

    def _raise(self, alarms: list[dict[str, Any]]) -> None:
        self.fresh += alarms
        self.changed = self.changed or bool(alarms)

    def count_new(self, sessions: Iterable[SessionCounts]) -> tuple[int, int]:
        """Count in those sessions of a folder that were not counted before, by their names, and keep the state.

        Returns how many were counted now, and how many have grown since they were.
        """
        before = {} if self.options.anew else self.log.counted()
        counted: dict[bytes, int] = {}
        grown = 0
        for counts in sessions:
            digest = bytes.fromhex(stable_hash(counts.session))
            if digest in counted:  # another trial of it
                continue
            if digest not in before:
                counted[digest] = counts.requests
                self.count(counts)
            else:
                grown += counts.requests > before[digest]
        self.log.write(self.state(), counted, release=True)
        return len(counted), grown

    def state(self) -> dict[str, Any]:
        """State to be kept now. After it no change is left."""
        self.changed = False
        opened = [asdict(counts) for counts in self._open.sessions.values()]
        watch = {"name": self._watch, "seen": self._seen, "open": opened} if self._watch else None
        return {"certificate": self.certificate.state(), "watch": watch}

    @property
    def crossed(self) -> bool:
        """An alarm stands, and is to end the command."""
        return self.options.fail_fast and bool(self.certificate.alarms)

    def refuse_alarms(self) -> None:
        """Raise `LimitCrossed` if an alarm stands from before and is to end the command."""
        from context_bench.traffic.session_limits import alarm_sentence

        if self.crossed:
            raise LimitCrossed(
                "; ".join(alarm_sentence(alarm) for alarm in self.certificate.alarms)
                + ". When that is dealt with, --anew begins anew"
            )

    async def tell(self) -> tuple[list[str], list[str]]:
        """Hand the alarms that nobody was told of to `--notify`; returns their sentences, and warnings."""
        from context_bench.traffic.session_limits import alarm_sentence

        alarms, self.fresh = self.fresh, []
        warnings = []
        for alarm in alarms if self.options.notify is not None else []:
            told = {"schema": 1, "alarm": alarm, "limits": self.certificate.as_dict()}
            if (warning := await _notified(str(self.options.notify), told)) is not None:
                warnings.append(warning)
        return [alarm_sentence(alarm) for alarm in alarms], warnings

    def sentences(self) -> list[str]:
        """The state of the limits, a line each."""
        begun = self.certificate.begun
        head = f"Limits{f', begun anew {begun - 1} times' if begun > 1 else ''}:"
        return [f"{head} {text}" for text in self.certificate.sentences()]


async def taken_up(
    store: Store, limits: Mapping[str, float], about: Mapping[str, Any], options: LimitedWatch, notes: list[str]
) -> LimitGuard | None:
    """The limits of a watch with their state, if any are declared; warnings go to `notes`. Raises `LimitCrossed` where
    an alarm stands and is to end the watch.
    """
    if not limits:
        return None
    guard = LimitGuard(store, limits, about, options)
    notes += (await guard.tell())[1]
    if guard.crossed:
        guard.log.write(guard.state(), release=True)
        guard.refuse_alarms()
    return guard


class WatchedLimits:
    """Limits while a watch runs: turns go in, and beside them the state is kept and alarms are told.

    `keep` writes a state down, `show` is told of alarms. `crossed` is set when an alarm is to end the watch; `notes`
    are warnings. Use as `async with`, around the watch: at the end all sessions are counted.
    """

    def __init__(
        self, guard: LimitGuard, keep: Callable[[dict[str, Any]], Awaitable[None]], show: Callable[[str], None]
    ) -> None:
        import asyncio

        self._guard, self._keep, self._show = guard, keep, show
        self.crossed, self._moved, self._over = asyncio.Event(), asyncio.Event(), False
        self.notes: list[str] = []

    def see(self, turn: Turn) -> None:
        """Take in a turn that is kept."""
        self._guard.see(turn)
        if self._guard.changed:
            self._moved.set()

    async def __aenter__(self) -> Self:
        import asyncio

        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._guard.close()
        self._over = True
        self._moved.set()
        await self._working

    async def _work(self) -> None:
        import asyncio
        import contextlib

        while not self._over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._moved.wait()
            self._moved.clear()
            self._guard.look()
            await self._follow_up()

    async def _follow_up(self) -> None:
        if self._guard.changed:
            try:
                await self._keep(self._guard.state())
            except StoreUnusable as full:
                self.notes.append(f"The state of the limits could not be kept: {full}")
        if self._guard.crossed:
            self.crossed.set()
        sentences, warnings = await self._guard.tell()
        for sentence in sentences:
            self._show(sentence)
        self.notes += warnings


async def _notified(command: str, told: Mapping[str, Any]) -> str | None:
    """Run a command with an alarm on its stdin; returns a warning if it did not go well."""
    import asyncio
    import contextlib
    import os
    import signal

    try:
        process = await started(
            *shlex.split(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (OSError, ValueError) as error:
        return f"--notify {command!r} could not be started: {error}"
    try:
        async with asyncio.timeout(NOTIFY_SECONDS):
            await process.communicate(json.dumps(told).encode() + b"\n")
    except TimeoutError:
        return f"--notify {command!r} took more than {NOTIFY_SECONDS:g} s and was ended"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it left behind
        await process.wait()
    return None if process.returncode == 0 else f"--notify {command!r} ended with code {process.returncode}"
