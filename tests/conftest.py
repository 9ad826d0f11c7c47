"""Rules for the whole suite: programs that a test needs are named, and what did not run is said aloud."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from postgres_server import PostgresServer

# The same cases in every run, and no deadline: how long one takes on a busy machine says nothing. They are the same
# every time, so fifty for each property that asks for no other number; others are drawn by `pytest --hypothesis-profile
# thorough`, and by benchmarks/fuzz.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("suite")

#: program → Debian package that brings it
PACKAGES = {"bwrap": "bubblewrap", "chromium": "chromium", "initdb": "postgresql", "npm": "npm", "tmux": "tmux"}
#: What not every machine has that the suite must pass on: these tests are listed where they did not run, under CI too.
OPTIONAL = {
    "docker": "install docker, and: docker pull python:3-slim",
    "podman": "install podman, and: podman pull python:3-slim",
}
OPTIONAL["another user"] = "run the suite as root, from folders that others may read"
VENDORS = Path(__file__).parents[1] / ".vendors"
CLIENTS = Path(__file__).parent / "fixtures" / "clients"
_missing = pytest.StashKey[list[tuple[str, str, str]]]()


#: What a test takes time for: programs, servers, stores, bundled sets and models, simulations, many drawn cases, whole
#: runs, charts.
SLOW = re.compile(
    r"subprocess|multiprocessing|Popen|bwrap|postgres|playwright|sleep\(|__main__|open_store|Server\b|MiniHub|bundled:|gguf|embedded"
    r"|vl_convert|statsmodels|default_rng|@given|recall_lab|sys\.executable|evaluate_compression|to_html|\"html\"|svg\("
)


def pytest_configure() -> None:
    """Take Ctrl-C where a shell started these tests in the background and so had it ignored: many tests send it to the
    programs that they start, which inherit what is ignored.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`: for `make check`. `--refresh-golden`: for a change that users see."""
    parser.addoption("--refresh-golden", action="store_true", help="write the golden files (tests/golden) anew")
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out files of tests that name anything slow (SLOW in tests/conftest.py)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `--quick`, files that take time are not even loaded; those with real clients only where they are named
    (make clients).
    """
    if collection_path == Path(__file__).parent / "clients":
        return True
    if config.getoption("--quick") and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return SLOW.search(collection_path.read_text("utf-8")) is not None or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays to the end: nothing of it is looked through for garbage, now or between the tests. What
    tests make is seldom looked through: that was a quarter of their own time.
    """
    gc.disable()
    with _translated_once(session.config):
        found = yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    return found


@contextmanager
def _translated_once(config: pytest.Config) -> Iterator[None]:
    """In a fresh checkout, one process translates the files of tests and keeps what it made; those beside it wait, and
    read that. Each for itself takes twice as long.
    """
    last = max(Path(__file__).parent.rglob("test_*.py"))
    kept = any(last.parent.glob(f"__pycache__/{last.stem}.*-pytest-*.pyc"))
    if not hasattr(config, "workerinput") or sys.dont_write_bytecode or kept:
        yield
        return
    with (Path(config.option.basetemp).parent / "translating").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def hub_client() -> Callable[..., None]:
    """(patch, home, hub's URL) → the hub's client is signed in nowhere and sees no cache but that of its own home."""

    def patched(patch: pytest.MonkeyPatch, home: Path, url: str | None = None) -> None:
        for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"):
            patch.delenv(name, raising=False)
        patch.setenv("HF_HOME", str(home))
        patch.setenv("HF_TOKEN_PATH", str(home / "no-token"))
        if url:
            patch.setenv("HF_ENDPOINT", url)

    return patched


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server on loopback; whoever asks for it carries the mark `program("initdb")`."""
    from postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def certificate() -> Callable[..., Path]:
    """(folder, name, days=) → a file with a certificate for `name` that nobody vouches for, and its key; it began ten
    days ago.
    """
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def made(folder: Path, name: str, *, days: int) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=10)
        ends = begins + datetime.timedelta(days=days)
        signed = (
            x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), begins, ends)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = folder / f"{name}-{days}.pem"
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
        return file

    return made


@pytest.fixture(scope="session")
def client_session(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """(name of a fixture in tests/fixtures/clients) → a folder with its files: records, log, usage; unpacked once a
    session.
    """
    unpacked: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = _unpacked(CLIENTS / f"{name}.jsonl.xz", tmp_path_factory.mktemp(name))
        return unpacked[name]

    return folder


def _unpacked(packed: Path, folder: Path) -> Path:
    """Each line of a fixture is {"file", "value"}: a line of a `.jsonl`, the whole of a `.json`, or the tables of a
    `.db`.
    """
    import json
    import lzma

    texts: dict[Path, list[str]] = {}
    for line in lzma.decompress(packed.read_bytes()).decode().split("\n"):
        part = json.loads(line)
        file = folder / part["file"]
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".db":
            _database(file, part["value"])
        else:
            texts.setdefault(file, []).append(json.dumps(part["value"], ensure_ascii=False))
    for file, lines in texts.items():
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def _database(file: Path, tables: dict[str, list[dict[str, object]]]) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(file)) as database, database:
        for table, rows in tables.items():
            database.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
            database.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", [tuple(row.values()) for row in rows]
            )


@cache
def _there(program: str) -> bool:
    """Debian keeps the programs of a PostgreSQL server off the path; a container needs a daemon and an image as
    well.
    """
    if program in ("docker", "podman"):
        from context_bench.sandbox.launch import image_here

        path = shutil.which(program)
        return path is not None and image_here(path) is not None
    if program == "another user":
        return os.geteuid() == 0 and _readable_python() is not None
    return bool(
        shutil.which(program) or (program == "initdb" and list(Path("/usr/lib/postgresql").glob("*/bin/initdb")))
    )


@pytest.fixture
def as_another_user() -> Callable[..., subprocess.CompletedProcess[str]]:
    """(program text, *arguments) → how a Python ended that ran it as a user without rights; mark:
    `program("another user")`.
    """
    return _as_another_user


def _as_another_user(code: str, *arguments: str, python: str = "") -> subprocess.CompletedProcess[str]:
    places = [place for place in sys.path if place.endswith(("site-packages", "/src"))]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(places),
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [python or _readable_python() or sys.executable, "-c", code, *arguments]
    who = {"user": 65534, "group": 65534, "extra_groups": []}
    return subprocess.run(
        command, **who, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False
    )


@cache
def _readable_python() -> str | None:
    """One of this version that another user may run, with the packages of this one."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            done = _as_another_user(
                "import sys, context_bench, pytest; open(sys.argv[1]).close()", __file__, python=python
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None


@cache
def _installed(vendor: str) -> bool:
    """Whether a program's environment holds what `scripts/vendors.txt` (or the clients' lock file) asks for now."""
    wanted = dict(
        line.split(" ", 1)
        for line in (VENDORS.parent / "scripts/vendors.txt").read_text().splitlines()
        if line[:1] not in "#"
    )
    wanted["clients"] = (VENDORS.parent / "tests/clients/package-lock.json").read_text()
    ready = VENDORS / vendor / ".ready"
    return ready.exists() and ready.read_text().strip() == wanted.get(vendor, "").strip()


def _absent(item: pytest.Item) -> list[tuple[str, str]]:
    """What a test needs and is not there: (name, the command that brings it)."""
    programs = [name for mark in item.iter_markers("program") for name in mark.args if not _there(name)]
    vendors = [name for mark in item.iter_markers("vendor") for name in mark.args if not _installed(name)]
    bring = [(name, OPTIONAL.get(name) or f"apt-get install {PACKAGES.get(name, name)}") for name in programs]
    return bring + [(name, "make vendors") for name in vendors]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out tests whose program is missing; under CI they stay in and fail."""
    missing: list[tuple[str, str, str]] = []
    kept: list[pytest.Item] = []
    for item in items:
        absent = _absent(item)
        if absent and (not os.environ.get("CI") or any(name in OPTIONAL for name, _ in absent)):
            missing += [(item.nodeid, name, command) for name, command in absent]
        else:
            kept.append(item)
    items[:] = kept
    config.stash[_missing] = missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Under CI a missing program is a failure."""
    for name, command in _absent(item):
        pytest.fail(f"needs {name!r}: {command}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List what did not run, and the command that would change that."""
    missing = config.stash.get(_missing, [])
    if not missing:
        return
    terminalreporter.section("did not run")
    for test, name, _ in missing:
        terminalreporter.write_line(f"{test}: needs {name}")
    for command in sorted({command for _, _, command in missing}):
        terminalreporter.write_line(f"to run them: {command}")
