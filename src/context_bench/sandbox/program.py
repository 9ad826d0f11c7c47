"""Run a program to its end or to a deadline, whatever it started meanwhile: no shell, no longer than allowed, no endless output."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadReply, Refused, TimedOut, Unreachable
from context_bench.core.tokens import utf8_safe

DRAIN = 0.5  # seconds in which output may still arrive when the program has ended and something it started holds the pipe
LARGEST = 64 * 1024 * 1024  # bytes of standard output
_KEPT = 64 * 1024  # bytes of standard error, the last ones
_LOOK = 0.02  # how often, in seconds, a silent program is asked whether it has ended


@dataclass(slots=True)
class Finished:
    """How a program ended and what it wrote."""

    status: int
    out: bytes
    err: bytes


def run_program(argv: Sequence[str], timeout: float, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Finished:
    """Start `argv` in a process group of its own and wait for it, at most `timeout` seconds. `env`: its environment, by default ours.

    When time is up, the whole group is killed and `TimedOut` raised. When the program itself ends well but something it started keeps its
    output open, what was written until `DRAIN` seconds later counts, and that other program is left alone. `Unreachable`: it cannot be
    started; `Refused`: an argument cannot be handed over (a NUL character, too long); `BadReply`: more output than `LARGEST`.
    """
    if timeout <= 0:
        raise TimedOut(f"{argv[0]} was not started: no time was left")
    begun = SYSTEM_CLOCK.monotonic()
    try:
        program = subprocess.Popen(
            [utf8_safe(word).encode() for word in argv],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
    except ValueError as error:  # a NUL character
        raise Refused(f"{argv[0]}: cannot be given these arguments: {error}") from None
    except OSError as error:
        if error.errno == errno.E2BIG:
            longest = max(len(word) for word in argv)
            raise Refused(f"{argv[0]}: an argument of {longest:,} characters is longer than this machine allows") from None
        raise Unreachable(f"{argv[0]} cannot be started: {error.strerror}") from None
    watched = _Watched(program, argv[0], begun + timeout, utf8_safe(stdin or "").encode())
    try:
        watched.wait()
    except TimeoutError:
        raise TimedOut(f"{argv[0]} had not ended after {timeout:g} s; it was killed, with all that it had started") from None
    finally:
        watched.close()
    return Finished(program.returncode, bytes(watched.out), bytes(watched.err))


@dataclass(slots=True)
class _Watched:
    """A running program, its pipes, and the moment at which it has to be over."""

    program: subprocess.Popen[bytes]
    name: str
    end: float
    unsent: bytes
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    ended: bool = False

    def wait(self) -> None:
        """Until the program has ended and its output is complete; `TimeoutError` if that is not so in time."""
        with selectors.DefaultSelector() as pipes:
            for pipe in (self.program.stdout, self.program.stderr):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                pipes.register(pipe, selectors.EVENT_READ)
            if self.program.stdin is not None:
                os.set_blocking(self.program.stdin.fileno(), False)
                pipes.register(self.program.stdin, selectors.EVENT_WRITE)
            self._pump(pipes)
        left = self.end - SYSTEM_CLOCK.monotonic()
        try:
            self.program.wait(max(0.0, left))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        self.ended = True

    def _pump(self, pipes: selectors.BaseSelector) -> None:
        """Move bytes until both outputs are closed, or the program has been over for `DRAIN` seconds."""
        give_up = self.end
        while pipes.get_map() and any(key.events == selectors.EVENT_READ for key in pipes.get_map().values()):
            now = SYSTEM_CLOCK.monotonic()
            if now >= give_up:
                if self.program.poll() is None:
                    raise TimeoutError
                return
            for key, _ in pipes.select(min(_LOOK, give_up - now)):
                if not self._move(key.fileobj):  # type: ignore[arg-type]  # what was registered are pipes
                    pipes.unregister(key.fileobj)
            if give_up == self.end and self.program.poll() is not None:
                give_up = min(self.end, SYSTEM_CLOCK.monotonic() + DRAIN)

    def _move(self, pipe: IO[bytes]) -> bool:
        """Read or write once; whether there can be more."""
        if pipe is self.program.stdin:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self.unsent = self.unsent[os.write(pipe.fileno(), self.unsent[:65536]) :]
                if self.unsent:
                    return True
            pipe.close()
            return False
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return True
        if pipe is self.program.stdout:
            self.out += data
            if len(self.out) > LARGEST:
                raise BadReply(f"{self.name} wrote more than {LARGEST:,} bytes; it was killed")
        else:
            self.err += data
            del self.err[:-_KEPT]
        return bool(data)

    def close(self) -> None:
        """Close the pipes; kill the whole group unless the program had ended by itself."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.program.pid, signal.SIGKILL)
            self.program.wait()
        for pipe in (self.program.stdin, self.program.stdout, self.program.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
