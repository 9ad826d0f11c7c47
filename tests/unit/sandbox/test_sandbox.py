"""The sandbox against programs that try to get out, stay, or take everything. Each one is really run."""

import asyncio
import os
import shutil
import socket
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from context_bench.core.errors import MissingExtra, MissingProgram, SandboxFailed
from context_bench.sandbox import Bubblewrap, Container, Limits, Unit, find_sandbox, run

pytestmark = pytest.mark.program("bwrap")
SHORT = Limits(timeout=1.0, memory=256 * 2**20, processes=16)
AMPLE = Limits(timeout=60.0)
PYTHON = os.path.realpath(sys.executable)
HERE = Path(__file__).resolve()


@pytest.fixture
async def sandbox():
    return await find_sandbox()


@pytest.fixture
def unit(tmp_path):
    """A unit whose `main` has this body."""

    def made(body):
        path = tmp_path / f"{uuid.uuid4().hex}.py"
        path.write_text("def main(data):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
        return Unit(path)

    return made


def running(name):
    """How many processes of this machine were started under this name."""
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                count += (folder / "cmdline").read_bytes().startswith(name.encode())
            except OSError:
                continue
    return count


async def becomes(count, name):
    for _ in range(500):
        if running(name) == count:
            return True
        await asyncio.sleep(0.01)
    return False


#: Starts a process that would live for a minute, under a name that can be looked for, detached twice over.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [data["name"], "-S", "-c", "import time; time.sleep(60)"])
    os._exit(0)
os.wait()
"""


async def test_runs_to_the_end_and_sees_its_data(sandbox, unit):
    assert (await run(sandbox, unit("assert data == {'a': [1, 'é']}"), {"a": [1, "é"]}, AMPLE)).passed


@pytest.mark.parametrize(
    "body",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import ctypes; ctypes.string_at(0)",
        "import sys; sys.setrecursionlimit(10**9)\nf = lambda: f()\nf()",
        # what the program says on any descriptor is no proof, whatever it says
        "import os\nfor n in range(300):\n    try: os.write(n, b'passed')\n    except OSError: pass\nos._exit(0)",
        "import os\nfor n in range(300):\n    try: os.write(n, b'1passed')\n    except OSError: pass\nos._exit(0)",
        "import os\nos.write = os._exit = lambda *_: None\nraise ValueError",
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        # a fork that gets to the end is not the program
        "import os\nif os.fork():\n    os.wait()\n    os._exit(0)",
        "import os\nif os.fork():\n    os._exit(0)",
        "import os\nos.closerange(0, 300)",
    ],
)
async def test_only_the_end_counts(sandbox, unit, body):
    assert not (await run(sandbox, unit(body), {}, SHORT)).passed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while True: pass", "timed out"),
        ("import time; time.sleep(60)", "timed out"),
        (
            "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: "
            "pass\nwhile True: pass",
            "timed out",
        ),
        ("while True: print('x' * 100_000)", "timed out"),
        ("import sys\nwhile True: sys.stderr.write('x' * 100_000)", "timed out"),
        ("hog = [bytes(2**20) for _ in range(10**6)]", "MemoryError"),
        (
            "import os\nkids = [os.fork() for _ in range(3)]\nhog = bytearray(150 * 2**20)\nwhile True: pass",
            "too much memory",
        ),
        ("import os\nfor n in range(99): open(f'/tmp/{n}', 'wb').write(bytes(16 * 2**20))", "too much memory"),
        ("import os\nwhile True: os.fork()", ("BlockingIOError", "too many processes")),
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timed out", "too many processes")),
        (
            "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
            ("RuntimeError", "MemoryError", "too m"),
        ),
    ],
)
async def test_limits_hold(sandbox, unit, body, reason):
    in_time = reason != "too much memory"  # which a busy machine may take more than a second to fill
    outcome = await run(sandbox, unit(body), {}, SHORT if in_time else replace(SHORT, timeout=30.0))
    assert not outcome.passed
    assert outcome.reason.startswith(reason), outcome


async def test_large_output_of_a_good_program_is_let_go(sandbox, unit):
    assert (await run(sandbox, unit("for _ in range(20): print('x' * 10**6)"), {}, AMPLE)).passed


@pytest.mark.parametrize("ending", ["", "os._exit(0)", "raise ValueError", "time.sleep(60)"])
async def test_daemons_are_seen_and_gone_afterwards(sandbox, unit, ending):
    name = f"cb-{uuid.uuid4().hex}"
    wait = "\ntime.sleep(0.3)\n"
    task = asyncio.create_task(run(sandbox, unit(DAEMON + wait + ending), {"name": name}, Limits(timeout=2.0)))
    assert await becomes(1, name)
    assert (await task).passed == (ending == "")
    assert running(name) == 0


async def test_a_cancelled_run_leaves_nothing(sandbox, unit):
    name = f"cb-{uuid.uuid4().hex}"
    task = asyncio.create_task(run(sandbox, unit(DAEMON + "\ntime.sleep(60)"), {"name": name}, Limits(timeout=60)))
    assert await becomes(1, name)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await becomes(0, name)


async def test_nothing_of_this_machine_is_to_be_seen(sandbox, unit, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    seen = unit(
        """import os
assert "OPENAI_API_KEY" not in os.environ and "sk-secret" not in str(os.environ), "environment"
for path in data["paths"]:
    assert not os.path.exists(path), path
for folder, below, files in os.walk("/"):
    if folder.endswith(("/proc", "/dev", "lib", "/lib64", "/zoneinfo", "/store")):
        below.clear()
        continue
    assert len(files) <= 2, (folder, files)  # the interpreter, the library cache
assert os.listdir("/tmp") == []
assert os.listdir(os.path.expanduser("~")) == []
for process in filter(str.isdigit, os.listdir("/proc")):
    assert int(process) < 5, process"""
    )
    paths = [
        str(secret),
        str(HERE),
        "/etc/passwd",
        "/etc/hostname",
        "/root/.bashrc",
        "/home",
        "/var",
        sys.prefix + "/pyvenv.cfg",
    ]
    assert (await run(sandbox, seen, {"paths": paths}, AMPLE)).reason == "passed"


async def test_only_its_own_tmp_can_be_written(sandbox, unit):
    writes = unit(
        """import os, sys
for folder in ("/", "/usr", "/dev", "/proc", "/lib", os.path.dirname(os.__file__), os.path.dirname(sys.executable)):
    try: open(os.path.join(folder, "x"), "w")
    except OSError: continue
    raise AssertionError(folder)
open("/tmp/left", "w").write("x")"""
    )
    for _ in range(2):  # the second finds nothing of the first
        assert (await run(sandbox, writes, {}, AMPLE)).reason == "passed"
    assert (await run(sandbox, unit("import os; assert not os.listdir('/tmp')"), {}, AMPLE)).passed
    assert "left" not in os.listdir("/tmp")  # noqa: PTH208 (no loop is kept waiting)


async def test_there_is_no_network(sandbox, unit):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(0)
        assert socket.create_connection(("127.0.0.1", port)).close() is None  # it can be reached from here
        server.accept()[0].close()
        body = "import socket\nsocket.create_connection(('127.0.0.1', data['port']), timeout=0.5)"
        outcome = await run(sandbox, unit(body), {"port": port}, SHORT)
        assert outcome.reason.startswith(("ConnectionRefusedError", "OSError"))
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_the_standard_library_is_whole(sandbox, unit):
    wanted = (
        "import bisect, collections, ctypes, dataclasses, decimal, fractions, hashlib, itertools, json, re, "
        "statistics, typing, zlib"
    )
    assert (await run(sandbox, unit(wanted + "\nassert hash('a') == hash('a')"), {}, AMPLE)).reason == "passed"
    assert not (await run(sandbox, unit("import pytest"), {}, SHORT)).passed


# --- which sandbox
# ------------------------------------------------------------------------


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only(tmp_path, monkeypatch):
    """A PATH with nothing on it but what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


async def test_without_a_sandbox_it_refuses_and_says_what_to_install(only):
    with pytest.raises(MissingProgram, match=r"apt-get install bubblewrap.*docker pull python:3") as refused:
        await find_sandbox()
    assert isinstance(refused.value, MissingExtra)  # ends a run before more is spent
    assert refused.value.exit_code == 2


async def test_a_machine_that_forbids_namespaces_is_told_apart(only):
    program(only, "bwrap", "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1")
    with pytest.raises(MissingProgram, match="user namespaces are not allowed here"):
        await find_sandbox()


async def test_a_sandbox_that_does_not_contain_is_refused(only):
    """A "docker" that runs the program right here."""
    program(
        only,
        "docker",
        f'[ "$1" = image ] && exit 0\nwhile [ "$1" != --entrypoint ]; do shift; done; shift 3\nexec {sys.executable} '
        '"$@"',
    )
    with pytest.raises(MissingProgram, match="docker starts, but does not contain"):
        await find_sandbox()


async def test_docker_is_used_where_bubblewrap_is_not(only, tmp_path, unit):
    """A stand-in for docker that notes its arguments and really confines."""
    noted = tmp_path / "noted"
    bwrap = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    confined = (
        f"{bwrap} --unshare-all --clearenv --setenv HOME /tmp --ro-bind / / --proc /proc --dev /dev "
        "--tmpfs /tmp --as-pid-1"
    )
    program(
        only,
        "docker",
        f'[ "$1" = image ] && {{ [ "$3" = python:3-slim ]; exit $?; }}\necho "$@" > {noted}\n'
        f'while [ "$1" != --entrypoint ]; do shift; done; shift 3\nexec {confined} {PYTHON} "$@"',
    )
    found = await find_sandbox()
    assert isinstance(found, Container)
    assert found.image == "python:3-slim"
    assert (await run(found, unit("pass"), {}, AMPLE)).passed
    assert not (await run(found, unit("raise ValueError"), {}, SHORT)).passed
    told = noted.read_text()
    for needed in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--pids-limit",
        "--memory",
        "--pull never",
        "--user 65534",
    ):
        assert needed in told


async def test_no_daemon_is_no_sandbox(only):
    program(only, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(MissingProgram, match="docker has no daemon that answers"):
        await find_sandbox()


@pytest.mark.parametrize("broken", ["exit 1", "kill -9 $$", "exec /nowhere"])
async def test_one_that_does_not_start_is_a_failure_of_the_sandbox(tmp_path, unit, broken):
    bad = Bubblewrap(str(program(tmp_path, "bwrap", broken)))
    with pytest.raises(SandboxFailed, match="did not start"):
        await run(bad, unit("pass"), {}, SHORT)
    with pytest.raises(SandboxFailed, match="did not start"):
        await run(Bubblewrap(str(tmp_path / "absent")), unit("pass"), {}, SHORT)
