"""Packages in environments of their own: find the Python that has them, and run a program of that Python.

A program runs to its end or to a deadline, with whatever it starts: no shell, no endless output.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from context_bench.core.errors import BadReply, MissingProgram, Refused, TimedOut, Unreachable
from context_bench.core.keys import load_json
from context_bench.core.ledger import current_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.secrets import names_a_secret
from context_bench.core.tokens import utf8_safe
from context_bench.llm.redact import redact

DRAIN = (
    0.5  # seconds in which output may still arrive when the program has ended and something it started holds the pipe
)
LARGEST = 64 * 1024 * 1024  # bytes of standard output
_KEPT = 64 * 1024  # bytes of standard error, the last ones
_LOOK = 0.02  # how often, in seconds, a silent program is asked whether it has ended


@dataclass(slots=True)
class FinishedProgram:
    """The end of a program, with its output."""

    status: int
    out: bytes
    err: bytes


def run_program(
    argv: Sequence[str], timeout: float, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> FinishedProgram:
    """Start `argv` in a process group of its own and wait for it, at most `timeout` seconds. `env`: its environment, by
    default ours.

    When time is up, the whole group is killed and `TimedOut` raised. When the program itself ends well but something it
    started keeps its output open, what was written until `DRAIN` seconds later counts, and that other program is left
    alone. `Unreachable`: it cannot be started; `Refused`: an argument cannot be handed over (a NUL character, too
    long); `BadReply`: more output than `LARGEST`.
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
            raise Refused(
                f"{argv[0]}: an argument of {longest:,} characters is longer than this machine allows"
            ) from None
        raise Unreachable(f"{argv[0]} cannot be started: {error.strerror}") from None
    watched = _Watched(program, argv[0], begun + timeout, memoryview(utf8_safe(stdin or "").encode()))
    try:
        watched.wait()
    except (TimeoutError, subprocess.TimeoutExpired):
        raise TimedOut(
            f"{argv[0]} had not ended after {timeout:g} s; it was killed, with all that it had started"
        ) from None
    finally:
        watched.close()
    return FinishedProgram(program.returncode, bytes(watched.out), bytes(watched.err))


@dataclass(slots=True)
class _Watched:
    """A running program, its pipes, and the moment at which it has to be over."""

    program: subprocess.Popen[bytes]
    name: str
    end: float
    unsent: memoryview
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    over: bool = False

    def wait(self) -> None:
        """Wait until the program has ended and its output is complete.

        Raises `TimeoutError` or `subprocess.TimeoutExpired` if that is not so in time.
        """
        with selectors.DefaultSelector() as pipes:
            for pipe in filter(None, (self.program.stdin, self.program.stdout, self.program.stderr)):
                os.set_blocking(pipe.fileno(), False)
                way = selectors.EVENT_WRITE if pipe is self.program.stdin else selectors.EVENT_READ
                pipes.register(pipe, way)
            self._pump(pipes)
        self.program.wait(max(0.0, self.end - SYSTEM_CLOCK.monotonic()))
        self.over = True

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
            self.unsent = _written(pipe.fileno(), self.unsent)
            if not self.unsent:
                pipe.close()
            return bool(self.unsent)
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
        if not self.over:
            _end_group(self.program)
        for pipe in filter(None, (self.program.stdin, self.program.stdout, self.program.stderr)):
            with contextlib.suppress(OSError):
                pipe.close()


def _end_group(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def _written(pipe: int, rest: memoryview) -> memoryview:
    """Write a part; returns what is left to write.

    Nothing is left where the program reads no more: its answer, if it gave one, is still to be read.
    """
    try:
        return rest[os.write(pipe, rest[:65536]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


_CHECKOUT = Path(__file__).parents[3]
#: Variables that would lead a package elsewhere than it is sent.
_LEFT_OUT = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "PYTHONPATH", "PYTHONHOME")
_QUIET = {
    "DO_NOT_TRACK": "1",
    "HEADROOM_TELEMETRY": "0",
    "HF_HUB_OFFLINE": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "MEM0_TELEMETRY": "False",
}


@dataclass(frozen=True, slots=True)
class Vendor:
    """A package: its name on the index, its environment's name in scripts/vendors.txt, the version tried here."""

    package: str
    home: str
    tried: str

    @property
    def variable(self) -> str:
        """The environment variable that names a Python which has it."""
        return f"CONTEXT_BENCH_{self.home.upper()}_PYTHON"

    def python(self, given: str | None = None) -> str:
        """The Python that has the package: the one given, the variable's, this one, the one of `make vendors`; else
        `MissingProgram`.
        """
        named = given or os.environ.get(self.variable)
        if named:
            return named
        with contextlib.suppress(PackageNotFoundError):
            version(self.package)
            return sys.executable
        for place in (Path.cwd(), _CHECKOUT):
            if (program := place / ".vendors" / self.home / "bin" / "python").exists():
                return str(program)
        raise MissingProgram(
            f"{self.home!r} needs the package {self.package} ({self.tried} is the one tried here) in an environment "
            "of its own: "
            f"`make vendors` in a checkout of context-bench makes it; or set {self.variable} to a Python that has it"
        )

    def version_in(self, python: str) -> str:
        """The version that `python` has; `MissingProgram` if it has none or is no Python."""
        return _version(self.package, python, self.variable)


@cache
def _version(package: str, python: str, variable: str) -> str:
    command = [python, "-c", "import sys; from importlib.metadata import version; print(version(sys.argv[1]))", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingProgram(
            f"{python} cannot be run ({error}); it was to be the Python that has {package}: see {variable}"
        ) from None
    if done.returncode != 0:
        raise MissingProgram(
            f"{python} has no package {package}: run `make vendors`, or set {variable} to a Python that has it"
        )
    return done.stdout.strip()


def deadline(timeout: float) -> float:
    """The end of a call that may take `timeout` seconds, or what its run or example has left; on the monotonic
    clock.
    """
    return SYSTEM_CLOCK.monotonic() + time_left(timeout)


def time_left(timeout: float) -> float:
    """The seconds of a call that may take `timeout` of them, or what its run or example has left."""
    ledger = current_ledger()
    if ledger is None or ledger.deadline is None:
        return timeout
    return min(timeout, ledger.deadline - SYSTEM_CLOCK.monotonic())


def versioned(relay: str) -> str:
    """The base URL of an OpenAI-compatible endpoint, with its `/v1`."""
    base = relay.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


class VendorProcess:
    """A program run by a vendor's Python: one line of JSON in, one line `{"result": …}` or `{"error": …}` out, one at a
    time.

    It gets an environment without the user's keys but `keys` (name → key, as `CONTEXT_BENCH_WORKER_<name>_KEY`), in a
    process group of its own. A failure, more than `LARGEST` bytes in a line or a missed deadline ends it.
    Not for several threads at once. Raises `Unreachable` if it cannot be started.
    """

    def __init__(self, kind: str, python: str, program: Path, keys: Mapping[str, str | None]) -> None:
        self.kind = kind
        self._keys = {name: key for name, key in keys.items() if key}
        self._unread = bytearray()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        try:
            self.program = subprocess.Popen(
                [python, str(program), kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise Unreachable(f"{kind}: {python} cannot be started: {error.strerror}") from None
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self._stdin, self._stdout = self.program.stdin, self.program.stdout
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)

    def ask(self, what: str, asked: Mapping[str, Any], end: float) -> Any:
        """The result of one line, `asked`, before `end` on the monotonic clock; `what` names it in errors.

        Raises `Refused` for what the package raises, under its own name for it. Then the process goes on; after any
        other error it is over: `TimedOut`, `Unreachable` (it ended), `BadReply` (no JSON, too long).
        """
        try:
            line = self._exchange(json.dumps(asked).encode() + b"\n", end)
            answer = load_json(line.decode("utf-8", "replace"))
            if not isinstance(answer, dict) or not ("result" in answer or isinstance(answer.get("error"), dict)):
                raise ValueError("expected an object with `result` or `error`")
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self.kind}: {what} had not ended in time; its process was killed") from None
        except (OSError, EOFError):
            words = self._last_words()
            self.close()
            raise Unreachable(f"{self.kind}: its process ended during {what}: {words}") from None
        except (ValueError, RecursionError) as error:
            self.close()
            raise BadReply(f"{self.kind}: the answer of its process to {what} cannot be read: {error}") from None
        if "result" not in answer:
            kind, message = (utf8_safe(str(answer["error"].get(name)))[:2000] for name in ("kind", "message"))
            raise Refused(f"{self.kind}: {kind}: {redact(message, self._keys.values())}")
        return answer["result"]

    def close(self, grace: float = 0.0) -> None:
        """End the process and all that it started; `grace`: seconds in which it may end by itself when its input
        ends.
        """
        with contextlib.suppress(OSError):
            self._stdin.close()
        if grace and self.program.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(grace)
        _end_group(self.program)
        self._stdout.close()
        self._errors.close()

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT and not names_a_secret(name)}
        for name in ("NO_PROXY", "no_proxy"):
            kept[name] = ",".join(filter(None, (kept.get(name), "127.0.0.1,localhost")))
        return kept | _QUIET | {f"CONTEXT_BENCH_WORKER_{name}_KEY": key for name, key in self._keys.items()}

    def _exchange(self, unsent: bytes, end: float) -> bytes:
        """Write `unsent` and read a line; `EOFError` if the process ends before, `TimeoutError` if time does."""
        rest = memoryview(unsent)
        searched = 0
        with selectors.DefaultSelector() as pipes:
            pipes.register(self._stdout, selectors.EVENT_READ)
            pipes.register(self._stdin, selectors.EVENT_WRITE)
            while (place := self._unread.find(b"\n", searched)) < 0:
                searched = len(self._unread)
                if searched > LARGEST:
                    raise ValueError(f"a line of more than {LARGEST:,} bytes")
                ready = pipes.select(max(0.0, end - SYSTEM_CLOCK.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if key.fileobj is self._stdin:
                        rest = _written(key.fd, rest)
                        if not rest:
                            pipes.unregister(self._stdin)
                    elif data := os.read(key.fd, 1 << 20):
                        self._unread += data
                    else:
                        raise EOFError
        line = bytes(self._unread[:place])
        del self._unread[: place + 1]
        return line

    def _last_words(self) -> str:
        """The last line of its standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4000))
        words = redact(self._errors.read().decode("utf-8", "replace"), self._keys.values())
        lines = [line for line in words.splitlines() if line]
        return lines[-1][:500] if lines else "it said nothing"
