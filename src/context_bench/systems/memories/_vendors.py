"""Memories whose packages live in environments of their own: which Python has them, and a process of that Python that serves one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, BadReply, MissingProgram, Refused, TimedOut, Unreachable
from context_bench.core.ledger import current_ledger
from context_bench.core.memory import Capability, Hit, Item, Receipt
from context_bench.core.tokens import utf8_safe
from context_bench.core.wire import WireRequest
from context_bench.llm.background import run_sync
from context_bench.llm.embedder import DIMENSIONS
from context_bench.llm.redact import redact
from context_bench.llm.servers import ModelServer, ResponderError
from context_bench.llm.wires.shared import Reply
from context_bench.systems.memories._listed import spoken
from context_bench.systems.memories.embedding import bundled

_PROGRAM = Path(__file__).parent / "worker" / "program.py"
_CHECKOUT = Path(__file__).parents[4]
#: Settings of packages that would send a vendor's program to other places than it is told to, or have it tell others of its work.
_UNSET = ("OPENROUTER_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "PYTHONPATH", "PYTHONHOME")
_SET = {"MEM0_TELEMETRY": "False", "LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false", "DO_NOT_TRACK": "1"}


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
        """The Python that has the package: the one given, the variable's, this one, the one of `make vendors`; else `MissingProgram`."""
        named = given or os.environ.get(self.variable)
        if named:
            return named
        with contextlib.suppress(PackageNotFoundError):
            version(self.package)
            return sys.executable
        for place in (Path.cwd(), _CHECKOUT):
            if (found := place / ".vendors" / self.home / "bin" / "python").exists():
                return str(found)
        raise MissingProgram(
            f"{self.home!r} needs the package {self.package} ({self.tried} is the one tried here) in an environment of its own: "
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
        raise MissingProgram(f"{python} cannot be run ({error}); it was to be the Python that has {package}: see {variable}") from None
    if done.returncode != 0:
        raise MissingProgram(f"{python} has no package {package}: run `make vendors`, or set {variable} to a Python that has it")
    return done.stdout.strip()


class _Embedder:
    """The bundled embedder behind an OpenAI-compatible endpoint; it answers nothing else."""

    name = "all-minilm-l6-v2"

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        raise ResponderError(404, "this endpoint offers embeddings only; a memory that asks a model needs a relay")

    async def embed(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(bundled().embed, texts)


class Worker:
    """A vendor's process: started at the first call, one call at a time, ended by `close`. It ends by itself when we do.

    A call that takes longer than `timeout` seconds, or than the run or example has left, ends the process (what it held is lost, and said
    so) with `TimedOut`. What the package raises is `Refused`, under the package's own name for it.
    """

    def __init__(self, kind: str, python: str, settings: Mapping[str, Any], keys: Mapping[str, str | None], timeout: float) -> None:
        self.kind, self._python, self._settings, self._timeout = kind, python, dict(settings), timeout
        self._keys = {name: key for name, key in keys.items() if key}
        self._lock = threading.Lock()
        self._program: subprocess.Popen[bytes] | None = None
        self._server: ModelServer | None = None
        self._errors: IO[bytes] | None = None
        self._unread = b""
        self._lost: str | None = None
        self._folder: str | None = None  # ours to take away; the process does it where we cannot, because we were killed

    def call(self, what: str, **args: Any) -> Any:
        """What the vendor's method gives."""
        end = self._end()
        if not self._lock.acquire(timeout=max(0.0, end - SYSTEM_CLOCK.monotonic())):
            raise TimedOut(f"{self.kind}: {what} had to wait for other calls until no time was left")
        try:
            self._start(end)
            return self._asked(what, {"call": what, "args": args}, end)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process and what it was given."""
        with self._lock:
            self._stop()

    def _end(self) -> float:
        ledger, now = current_ledger(), SYSTEM_CLOCK.monotonic()
        end = now + self._timeout
        return end if ledger is None or ledger.deadline is None else min(end, ledger.deadline)

    def _start(self, end: float) -> None:
        if self._lost is not None:
            raise Unreachable(f"{self.kind}: its process has ended, and so has what it held: {self._lost}")
        if self._program is not None:
            return
        settings = dict(self._settings)
        if settings["embeddings"] is None:
            self._server = ModelServer(_Embedder(), keep=1)
            run_sync(self._server.start())
            settings["embeddings"] = f"{self._server.url}/v1"
        if not settings.get("folder"):
            self._folder = settings["folder"] = tempfile.mkdtemp(prefix="context-bench-memory-")
        settings["keep"] = self._folder is None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._program = subprocess.Popen(
            [self._python, str(_PROGRAM), self.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._environment(),
            start_new_session=True,
        )
        settings["relay"] = settings["relay"] or settings["embeddings"]  # the package wants some address
        try:
            self._asked("its start", settings, end)
        except Refused as error:
            self._stop(str(error))
            raise Unreachable(f"{self.kind} could not be started: {error}") from None

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
        for name in ("NO_PROXY", "no_proxy"):
            kept[name] = ",".join(filter(None, (kept.get(name), "127.0.0.1,localhost")))
        return kept | _SET | {f"CONTEXT_BENCH_WORKER_{name}_KEY": key for name, key in self._keys.items()}

    def _asked(self, what: str, line: Mapping[str, Any], end: float) -> Any:
        assert self._program is not None
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(json.dumps(line).encode() + b"\n")
            self._program.stdin.flush()
            told = json.loads(self._line(end))
        except TimeoutError:
            self._stop(f"{what} took too long")
            raise TimedOut(f"{self.kind}: {what} had not ended in time; its process was killed, and what it held is lost") from None
        except (OSError, EOFError):
            said = self._said()
            self._stop(said)
            raise Unreachable(f"{self.kind}: its process ended during {what}: {said}") from None
        except (ValueError, RecursionError) as error:
            raise BadReply(f"{self.kind}: what its process wrote cannot be read: {error}") from None
        if "error" in told:
            raise Refused(f"{self.kind}: {told['error']['kind']}: {redact(told['error']['message'], self._keys.values())}")
        return told["result"]

    def _line(self, end: float) -> bytes:
        """The next line of the process; `EOFError` if it ends, `TimeoutError` if none comes in time."""
        assert self._program is not None
        assert self._program.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._program.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not waiting.select(max(0.0, end - SYSTEM_CLOCK.monotonic())):
                    raise TimeoutError
                data = os.read(self._program.stdout.fileno(), 1 << 20)
                if not data:
                    raise EOFError
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _said(self) -> str:
        """The last line of its standard error."""
        assert self._errors is not None
        self._errors.seek(0)
        lines = [line for line in redact(self._errors.read()[-4000:].decode("utf-8", "replace"), self._keys.values()).splitlines() if line]
        return lines[-1][:500] if lines else "it said nothing"

    def _stop(self, lost: str | None = None) -> None:
        """`lost`: why, when it was not to end."""
        program, self._program, self._unread = self._program, None, b""
        if program is not None:
            self._lost = lost
            if program.stdin is not None:
                with contextlib.suppress(OSError):
                    program.stdin.close()
            if lost is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(5)  # it takes its store away
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if program.stdout is not None:
                program.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._server is not None:
            server, self._server = self._server, None
            run_sync(server.stop())


class VendorMemory:
    """A memory in a vendor's process. Namespaces share the process; the vendor keeps them apart by its own means. One call at a time.

    `embedder`: "minilm" (the bundled one, free and offline) or "relay" (the relay's `/v1/embeddings`, with `embedding_model` of
    `dimensions`). `python`: a Python that has the package.
    """

    vendor: Vendor
    kind: str
    capabilities: frozenset[Capability]
    batch: int | None = 1
    granularity = "turn"

    def __init__(
        self, settings: Mapping[str, Any], *, relay: str | None, api_key: str | None, embedder: str, python: str | None, timeout: float
    ) -> None:
        if embedder not in ("minilm", "relay"):
            raise BadInput(f"{self.kind}: embedder is minilm (bundled) or relay, not {embedder!r}")
        if embedder == "relay" and not relay:
            raise BadInput(f"{self.kind}: embedder=relay needs a relay: give relay=URL, or --relay")
        base = None if relay is None else _versioned(relay)
        own = {"embedding_model": _Embedder.name, "dimensions": DIMENSIONS} if embedder == "minilm" else {}
        self.name = self.kind
        self._embedder = embedder
        self._settings = {**settings, **own, "relay": base, "embeddings": base if embedder == "relay" else None}
        found = self.vendor.python(python)
        self.version = self.vendor.version_in(found)
        keys = {"RELAY": api_key, "EMBEDDINGS": api_key if embedder == "relay" else None}
        self._worker = Worker(self.kind, found, self._settings, keys, timeout)
        self._space, self._twin = "root", False

    def fingerprint(self) -> dict[str, Any]:
        """What its hits depend on: the package's version among it, the address of the relay not."""
        told = {name: value for name, value in self._settings.items() if name not in ("relay", "embeddings", "folder")}
        return {"class": type(self).__name__, "package": self.vendor.package, "version": self.version, "embedder": self._embedder, **told}

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Remember the items, one call each; what the package refuses is on the receipt."""
        return [self._add(item) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The best `k` hits, best first. The package cannot be told when a question is asked. A blank question finds nothing."""
        if not query.strip() or k < 1:
            return []
        return [_hit(found) for found in self._call("search", query=_clean(query), k=k)]

    def delete(self, memory_id: str) -> bool:
        """Forget one memory; whether there was one."""
        return bool(self._call("delete", ident=memory_id))

    def update(self, memory_id: str, text: str) -> bool:
        """Other text for one memory; whether there was one."""
        return bool(self._call("update", ident=memory_id, text=_clean(text)))

    def delete_all(self) -> None:
        """Forget everything of this namespace."""
        self._call("delete_all")

    def reset(self) -> None:
        """The same as `delete_all`."""
        self.delete_all()

    def stats(self) -> dict[str, int]:
        """`items` held, and the `bytes` of their texts."""
        return dict(self._call("stats"))

    def close(self) -> None:
        """End the process, unless this is a twin of one that lives on."""
        if not self._twin:
            self._worker.close()

    def _text(self, item: Item) -> str:
        """What is remembered of an item."""
        return spoken(item)

    def _add(self, item: Item) -> Receipt:
        told = {"text": _clean(self._text(item)), "role": item.role, "source_id": item.id, "time": item.time, "session": item.session}
        try:
            ids = self._call("add", item=told)
        except Refused as error:
            return Receipt(item.id, error=str(error))
        return Receipt(item.id, ids[0] if ids else None)

    def _call(self, what: str, **args: Any) -> Any:
        return self._worker.call(what, space=self._space, **args)

    def _renamed(self, name: str) -> None:
        """Be the namespace `name`; a hash, because a vendor may refuse what is in a name."""
        self._space, self._twin = "n" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32], True


def _hit(found: Mapping[str, Any]) -> Hit:
    source, score = found.get("source_id"), found.get("score")
    return Hit(found["text"], None if score is None else float(score), () if source is None else (source,), found["id"], found.get("time"))


def _clean(text: str) -> str:
    return utf8_safe(text)


def _versioned(relay: str) -> str:
    base = relay.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"
