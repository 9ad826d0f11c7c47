"""The walls against what gets through the names of namespaces: a table of attempts, in every kind of sandbox that is
here.

Each is really made: by a program and by an agent's command; as root and as another user; with control groups and where
there are none.
"""

import asyncio
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import SandboxFailed
from context_bench.sandbox import (
    Bounds,
    Bubblewrap,
    Container,
    Limits,
    Unit,
    find_agent_sandbox,
    find_sandbox,
    run,
    seccomp,
    workspace,
)
from context_bench.sandbox.cgroups import Caps, ControlGroups, _candidates as candidates, find_groups
from context_bench.sandbox.launch import image_here

PROBES = Path(__file__).with_name("inside_probes.py")
NOBODY = 65534
ROOT = os.geteuid() == 0
MIB = 2**20

REFUSED, ABSENT, FOREIGN, DONE = ("EPERM",), ("ENOSYS",), ("EAFNOSUPPORT",), ("done",)
#: Attempt → what may come of it.
ALWAYS = {
    "nested user namespace with a tmpfs": REFUSED,
    **{f"unshare {flag:#x}": REFUSED for flag in (0x80, *(1 << n for n in (17, 25, 26, 27, 28, 29, 30)))},
    **{f"clone {flag:#x}": REFUSED for flag in (1 << n for n in (17, 25, 26, 27, 28, 29, 30))},
    "unshare with a dirty upper half": REFUSED,
    "clone3": ABSENT,
    "setns": REFUSED,
    "mount": REFUSED,
    "open_tree": REFUSED,
    "fsopen": REFUSED,
    "vsock": FOREIGN,
    "vsock with a dirty upper half": FOREIGN,
    "other families of sockets": DONE,
    "io_uring": ABSENT,
    "bpf": REFUSED,
    "perf": REFUSED,
    "keyctl": REFUSED,
    "add_key": REFUSED,
    "userfaultfd": REFUSED,
    "memfd_secret": ABSENT,
    "typing": REFUSED,
    "typing with a dirty upper half": REFUSED,
    "x32": ABSENT,
    "i386": ("ENOSYS", "killed"),  # killed: this kernel runs no 32-bit programs at all
    "another ioctl": ("EBADF",),
    "interfaces and names": DONE,
    "pool with semaphores": DONE,
    "threads and a subprocess": DONE,
    "a fork": DONE,
    "files of its own": DONE,
    "a small SysV segment": DONE,
}
COUNTED = {"memfd_create": DONE, "large buffers": DONE}
UNCOUNTED = {
    "memfd_create": ABSENT,
    "large buffers": REFUSED,
    "a large SysV segment": REFUSED,
    "a huge SysV segment": REFUSED,
    "messages": REFUSED,
}
BESIDE_TESTS, ALONE = {"trace me": REFUSED}, {"trace me": DONE}
FILES = {"kind": "files", "files": {"a.txt": "x\n"}}


def promised(sandbox, more):
    return {**ALWAYS, **(COUNTED if sandbox.counts_memory else UNCOUNTED), **more}


async def program_finds(sandbox):
    """What a program in it finds otherwise than promised; a wider limit than usual, for all attempts are one
    program.
    """
    outcome = await run(sandbox, Unit(PROBES), promised(sandbox, BESIDE_TESTS), Limits(timeout=60.0))
    return "" if outcome.passed else outcome.reason


def agent_finds(sandbox, wanted=None):
    """The same with an agent's command."""
    with workspace(FILES, house=sandbox, readable=[PROBES]) as copy:
        asked = json.dumps(wanted or promised(sandbox, ALONE)).encode()
        done = copy.run(["python", "-S", str(PROBES)], stdin=asked, timeout=60.0)
        return "" if done.ok else done.stderr_tail[-600:] + done.killed


def bubblewraps():
    """Every kind of it that is used somewhere: what the first of them has is not what makes the others hold."""
    path = shutil.which("bwrap") or "bwrap"
    options = ("--disable-userns",)
    return [
        *([Bubblewrap(path, as_root=True), Bubblewrap(path, as_root=True, groups=None)] if ROOT else []),
        Bubblewrap(path, options=options),
        Bubblewrap(path),
        Bubblewrap(path, groups=None),
    ]


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("kind", range(len(bubblewraps())))
async def test_what_programs_try_in_bubblewrap(kind):
    assert not await program_finds(bubblewraps()[kind])


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("kind", range(len(bubblewraps())))
def test_what_agents_try_in_bubblewrap(kind):
    assert not agent_finds(bubblewraps()[kind])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("docker", marks=pytest.mark.program("docker")),
        pytest.param("podman", marks=pytest.mark.program("podman")),
    ],
)
async def test_what_both_try_in_a_container(name):
    path = shutil.which(name)
    sandbox = Container(path, image_here(path), name=name)
    assert not await program_finds(sandbox)
    assert not await asyncio.to_thread(agent_finds, sandbox)


@pytest.mark.program("bwrap")
async def test_without_the_filter_the_same_attempts_succeed():
    """Else the table would show nothing."""
    open_to_all = Bubblewrap(shutil.which("bwrap"), filtered=False)
    attempts = ("nested user namespace with a tmpfs", "unshare 0x10000000", "vsock", "io_uring", "memfd_secret")
    assert not agent_finds(open_to_all, dict.fromkeys(attempts, DONE))
    assert "nested user namespaces possible" in open_to_all.description()


# --- what is held together
# ------------------------------------------------------------------------


SMALL = Limits(timeout=20.0, memory=256 * MIB, processes=16)
#: Each would hold more than the limit, in a place that is part of no process.
HOLDS = {
    "memfds": """import os
held = []
for _ in range(16):
    held.append(os.memfd_create('x'))
    for _ in range(60): os.write(held[-1], bytes(2**20))""",
    "memfds of several processes": """import os, time
for _ in range(4):
    if os.fork() == 0:
        try:
            held = [os.memfd_create('x') for _ in range(2)]
            for one in held:
                for _ in range(60): os.write(one, bytes(2**20))
            time.sleep(60)
        finally:
            os._exit(1)
if any(os.wait()[1] for _ in range(4)): raise MemoryError""",
    "buffers of sockets": """import socket
held = []
for _ in range(110):
    a, b = socket.socketpair()
    for one in (a, b):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
        one.setblocking(False)
        try:
            while True: one.send(bytes(2**16))
        except BlockingIOError: pass
    held += [a, b]""",
    "files without a name": """import os
held = []
for n in range(20):
    held.append(os.open(f'/tmp/{n}', os.O_CREAT | os.O_RDWR))
    os.unlink(f'/tmp/{n}')
    for _ in range(20): os.write(held[-1], bytes(2**20))""",
    "both folders in memory": """for folder in ('/tmp', '/dev/shm'):
    for n in range(12):
        with open(f'{folder}/{n}', 'wb') as file: file.write(bytes(16 * 2**20))""",
    "shared memory of SysV": """import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(20):
    made = libc.shmget(0, 16 * 2**20, 0o1600)
    assert made >= 0, 'refused'
    at = libc.shmat(made, None, 0)
    ctypes.memset(at, 1, 16 * 2**20)
    libc.shmdt(ctypes.c_void_p(at))""",
    "a deep stack": """import threading
threading.stack_size(400 * 2**20)
import ctypes
thread = threading.Thread(target=lambda: ctypes.memset(ctypes.create_string_buffer(300 * 2**20), 1, 300 * 2**20))
thread.start()
thread.join()
raise MemoryError""",
}


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("groups", [True, False], ids=["control groups", "no control groups"])
@pytest.mark.parametrize("body", HOLDS.values(), ids=HOLDS)
async def test_no_program_holds_more_than_its_limit(tmp_path, body, groups):
    unit = tmp_path / "unit.py"
    unit.write_text("def main(data):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    found = await find_sandbox()
    outcome = await run(found if groups else replace(found, groups=None), Unit(unit), {}, SMALL)
    refused = (
        "too much memory",
        "MemoryError",
        "OSError",
        "PermissionError",
        "AssertionError: refused",
        "RuntimeError",
        "killed by signal",
    )
    assert not outcome.passed
    assert outcome.reason.startswith(refused), outcome


def marked(word):
    """Processes of this machine with `word` in their environment."""
    count = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                count += word.encode() in (place / "environ").read_bytes()
            except OSError:
                continue
    return count


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("kind", [0, 1], ids=["as found", "no control groups"])
def test_a_fork_bomb_is_over_at_its_limit(kind):
    word = f"cb{uuid.uuid4().hex}"
    with workspace(FILES, house=agents_kinds()[kind], bounds=Bounds(processes=60)) as copy:
        quiet = copy.run("true").seconds
        began = time.monotonic()
        done = copy.run(["bash", "-c", "f() { f | f & }; f; sleep 30"], env={"MARK": word}, timeout=30.0)
        took = time.monotonic() - began
    assert done.killed == "processes"
    assert took - quiet < 3.0, "bounded by the kernel, ended at the next look"
    assert marked(word) == 0


@pytest.mark.program("bwrap")
def test_the_run_says_which_walls_stood():
    path = shutil.which("bwrap")
    said = Bubblewrap(
        path, as_root=ROOT, groups=ControlGroups(2, {"memory": Path("/x"), "pids": Path("/x")})
    ).description()
    assert said == (
        "Sandbox: bubblewrap; system calls filtered by seccomp; no nested user namespaces; memory and processes "
        "limited by cgroup v2."
    )
    weak = Bubblewrap(path, filtered=False, groups=None).description()
    for missing in (
        "NOT filtered",
        "nested user namespaces possible",
        "memory and processes limited by resource limits",
    ):
        assert missing in weak
    assert (
        "memory limited by resource limits"
        in Bubblewrap(path, groups=ControlGroups(1, {"pids": Path("/x")})).description()
    )


# --- honest programs
# ------------------------------------------------------------------------

PACKAGES = str(Path(numpy.__file__).parents[1])
NODE = """const { Worker } = require('worker_threads'), http = require('http'), { execSync } = require('child_process');
require('os').networkInterfaces();
if (execSync('echo 7').toString() !== '7\\n') process.exit(3);
const server = http.createServer((_, answer) => answer.end('seven')).listen(0, '127.0.0.1', () =>
  http.get(server.address(), reply => reply.on('data', data => {
    new Worker('require("worker_threads").parentPort.postMessage(1)', { eval: true }).on('message', () => {
      console.log(String(data)); server.close(); }); })));
"""
#: Command in an agent's copy → its last line.
HONEST = {
    "numpy": ("python -c 'import numpy; print(int((numpy.ones((200, 200)) @ numpy.ones((200, 200))).sum()))'", "8000000"),  # noqa: E501
    "git": ("git commit -q --allow-empty -m x && git gc -q && git clone -q . c && git -C c log -1 --format=%s", "x"),
    "pytest": ("python -m pytest -q -p no:cacheprovider test_a.py 2>&1 | tail -1 | cut -d' ' -f1,2", "1 passed"),
    "processes": (
        "python -c 'from multiprocessing import Pool, Queue, shared_memory as s\nimport concurrent.futures as f\n"
        "if __name__ == \"__main__\":\n m = s.SharedMemory(create=True, size=4096); m.close(); m.unlink(); Queue()\n"
        " print(sum(Pool(2).map(abs, [-3, -4])) + sum(f.ThreadPoolExecutor(8).map(abs, range(3))))'",
        "10",
    ),
    "asyncio": ("python -c 'import asyncio, subprocess\nasync def f():\n p = await "
        "asyncio.create_subprocess_exec(\"true\")\n"
                " print(await p.wait())\nasyncio.run(f())'", "0"),
    "shell": ("seq 5 | sort -r | head -1; ls /proc/self/fd >/dev/null; f=$(mktemp); echo 3 >$f; cat $f", "3"),
}  # fmt: skip


def agents_kinds():
    """Those that agents are put into: as root and not, with control groups and without."""
    found = find_agent_sandbox()
    return [found, replace(found, groups=None)]


@pytest.mark.program("bwrap")
@pytest.mark.parametrize("kind", [0, 1], ids=["as found", "no control groups"])
@pytest.mark.parametrize(("command", "last"), HONEST.values(), ids=HONEST)
def test_honest_programs_work(command, last, kind):
    files = {
        **FILES,
        "files": {"test_a.py": "import threading\n\ndef test_a(tmp_path):\n    (tmp_path / 'x').write_text('y')\n"},
    }
    with workspace(files, house=agents_kinds()[kind], readable=[PACKAGES]) as copy:
        done = copy.run(
            ["sh", "-c", command.replace("\\n", "\n")],
            env={"PYTHONPATH": PACKAGES, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            timeout=60.0,
        )
        assert (done.stdout_tail.strip().split("\n")[-1], done.killed) == (last, ""), done


@pytest.mark.program("bwrap", "npm")
@pytest.mark.parametrize("kind", [0, 1], ids=["as found", "no control groups"])
def test_node_works(kind):
    with workspace({**FILES, "files": {"a.js": NODE}}, house=agents_kinds()[kind]) as copy:
        done = copy.run(["node", "a.js"], timeout=60.0)
        assert (done.stdout_tail, done.exit) == ("seven\n", 0), done


@pytest.mark.program("bwrap")
def test_root_becomes_a_user_of_no_rights(tmp_path):
    """Where the suite runs as root; for everybody else the walls say nothing of it."""
    for name, mode in (("open", 0o755), ("closed", 0o700)):
        (tmp_path / name).mkdir(mode=mode)
        (tmp_path / name / "secret").write_text("x")
        (tmp_path / name / "secret").chmod(0o600)
    with workspace(FILES, house=find_agent_sandbox(), readable=[tmp_path / "open"]) as copy:
        copy.write("later.txt", b"x")
        done = copy.run(
            ["sh", "-c", f"id -u; whoami; echo y >> later.txt && cat later.txt; cat {tmp_path}/open/secret || echo no"]
        )
        user, name, *rest = done.stdout_tail.split()
        assert (name, rest) == ("agent", ["xy", "no"] if ROOT else ["xy", "x"])
        assert int(user) >= 1_900_000_000 if ROOT else int(user) == 1000
        assert "+y" not in copy.patch()
        assert "xy" in copy.patch()
        assert "as root" not in copy.description
    with workspace(FILES, house=find_agent_sandbox(), readable=[tmp_path / "closed"]) as copy:
        assert copy.run(["cat", f"{tmp_path}/closed/secret"]).stdout_tail == "x", "what it was given to read, it reads"
        assert ("as root without capabilities" in copy.description) == ROOT


# --- as another user
# ------------------------------------------------------------------------

AS_USER = """
import asyncio, sys
sys.path[:0] = sys.argv[1:2]
import test_walls as t
from context_bench.sandbox import Bounds, find_agent_sandbox, find_sandbox, workspace
house = find_agent_sandbox()
assert t.os.geteuid() == t.NOBODY
found = asyncio.run(t.program_finds(asyncio.run(find_sandbox())))
assert not found, found
assert not (found := t.agent_finds(house)), found
with workspace(t.FILES, house=house, bounds=Bounds(processes=60)) as copy:
    done = copy.run(["bash", "-c", "f() { f | f & }; f; sleep 30"], timeout=30.0)
    assert done.killed == "processes" or not done.ok, done
    assert done.seconds < 20, done
print(house.description())
"""


@pytest.mark.program("bwrap", "another user")
def test_the_same_holds_for_a_user_who_is_not_root(as_another_user):
    done = as_another_user(AS_USER, str(PROBES.parent))
    assert done.returncode == 0, done.stderr
    assert "no nested user namespaces" in done.stdout


# --- the filter, for machines that are not here either
# ------------------------------------------------------------------------------------

CALLS = (*seccomp._ALWAYS, *seccomp._LOOKING, *seccomp._UNCOUNTED)
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def kernel_says(code, architecture, number, arguments):
    """What the kernel makes of a filter: the error of a call, 0 if it is allowed."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments)
    steps = list(struct.iter_unpack("<HBBI", code))
    at, value = 0, 0
    while True:
        kind, yes, no, operand = steps[at]
        at += 1
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif kind == 0x06:
            return 0 if operand == 0x7FFF0000 else operand & 0xFFFF
        else:
            holds = {
                0x15: value == operand,
                0x25: value > operand,
                0x35: value >= operand,
                0x45: bool(value & operand),
            }[kind]
            at += yes if holds else no


def table_says(calls, number, arguments, column):
    for call in calls:
        if call.numbers[column] == number:
            for conditions in call.when or ((),):
                if all(holds(each, arguments[each.argument]) for each in conditions):
                    return call.error
    return 0


def holds(condition, value):
    low = value % 2**32
    return {
        "==": low == condition.value,
        ">": low > condition.value,
        "&": low & condition.value,
        ">>": value > condition.value,
    }[condition.sign]


WORDS = st.one_of(
    st.sampled_from(
        [0, 1, 2, 7, 8, 10, 16, 32, 33, 38, 40, 45, 46, 2**16, 2**16 + 1, 0x5412, 0x541C, *(1 << n for n in range(64))]
    ),
    st.integers(0, 2**64 - 1),
)


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("counted", "tracing"), [(True, True), (True, False), (False, True), (False, False)])
@given(data=st.data())
def test_the_filter_says_what_the_table_says(machine, counted, tracing, data):
    architecture, column = ARCHITECTURES[machine]
    calls = (*seccomp._ALWAYS, *(() if tracing else seccomp._LOOKING), *(() if counted else seccomp._UNCOUNTED))
    code = seccomp.program(counted, tracing, machine)
    number = data.draw(st.one_of(st.sampled_from([call.numbers[column] for call in CALLS]), st.integers(0, 600)))
    arguments = data.draw(st.tuples(*[WORDS] * 6))
    assert kernel_says(code, architecture, number, arguments) == table_says(calls, number, arguments, column)
    assert kernel_says(code, 0x40000003, number, arguments) == 38, "another architecture"
    if machine == "x86_64":
        assert kernel_says(code, architecture, number | 0x40000000, arguments) == 38, "x32"


def test_there_is_no_filter_for_a_machine_whose_calls_are_not_known():
    assert seccomp.program(True, True, "riscv64") is None
    assert len({call.name for call in CALLS}) == len(CALLS)
    for column in (0, 1):
        assert len({call.numbers[column] for call in CALLS}) == len(CALLS)
    assert all(len(seccomp.program(False, False, machine)) < 8 * 4096 for machine in ARCHITECTURES)


def test_the_profile_of_containers_refuses_the_same():
    rules = json.loads(seccomp.profile(False, False))
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    assert {name for rule in rules["syscalls"] for name in rule["names"]} == {call.name for call in CALLS}
    vsock = {"index": 0, "value": 2**32 - 1, "valueTwo": 40, "op": "SCMP_CMP_MASKED_EQ"}
    assert any(rule["names"] == ["socket"] and rule["args"] == [vsock] for rule in rules["syscalls"])
    assert "memfd_create" not in seccomp.profile(True, True)


# --- control groups
# ------------------------------------------------------------------------


def left():
    """Control groups of ours that are there."""
    groups = find_groups()
    return (
        []
        if groups is None
        else sorted(str(folder) for root in set(groups.roots.values()) for folder in root.glob("context-bench-*"))
    )


@pytest.mark.program("bwrap")
async def test_no_control_group_is_left(tmp_path):
    unit = tmp_path / "unit.py"
    unit.write_text("def main(data):\n    import os, time\n    os.fork()\n    time.sleep(60)\n")
    mine = f"-{os.getpid()}-"
    await run(await find_sandbox(), Unit(unit), {}, Limits(timeout=0.3))
    task = asyncio.create_task(run(await find_sandbox(), Unit(unit), {}, Limits(timeout=60)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with workspace(FILES, house=find_agent_sandbox()) as copy:
        copy.run("sleep 60 & sleep 60", timeout=0.3)
    assert not [name for name in left() if mine in name]


OWNER = """
import subprocess, sys, time
from context_bench.sandbox.cgroups import Caps, find_groups
groups = find_groups()
group = groups.make(Caps(64 * 2**20, 16)) if groups else None
started = subprocess.Popen(group.entering(["sleep", "60"]) if group else ["true"], stdout=subprocess.DEVNULL)
time.sleep(0.3)
print(started.pid, flush=True)
time.sleep(60)
"""


def test_groups_of_a_process_that_was_killed_are_ended_by_the_next():
    groups = find_groups()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    pid = int(owner.stdout.readline())
    there = [name for name in left() if f"-{owner.pid}-" in name]
    assert bool(there) == (groups is not None)
    if groups is not None:
        groups.clear()
        assert [name for name in left() if f"-{owner.pid}-" in name] == there, "its owner lives"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    if groups is not None:
        groups.clear()
        assert not [name for name in left() if f"-{owner.pid}-" in name]
        assert ended(pid)


def ended(pid):
    """It is dead; whoever inherited it fetches it a moment later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


RUNNER = """
import sys
from context_bench.sandbox import find_agent_sandbox, workspace
with workspace({"kind": "files", "files": {"a": "x"}}, house=find_agent_sandbox()) as copy:
    print("begun", flush=True)
    copy.run("setsid sleep 60 & sleep 60", env={"MARK": sys.argv[1]})
"""


@pytest.mark.program("bwrap")
def test_nothing_runs_on_when_we_are_killed():
    word = f"cb{uuid.uuid4().hex}"
    owner = subprocess.Popen([sys.executable, "-c", RUNNER, word], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "begun\n"
    assert becomes(lambda: marked(word) >= 3)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert becomes(lambda: marked(word) == 0)
    with workspace(FILES, house=find_agent_sandbox()):  # takes away what was left on the disk
        find_groups.__wrapped__()
    assert not [name for name in left() if f"-{owner.pid}-" in name]


def becomes(true):
    for _ in range(1000):
        if true():
            return True
        time.sleep(0.01)
    return False


def test_the_second_version_is_found_where_controllers_are_passed_on(tmp_path):
    place = tmp_path / "cgroup"
    scope = place / "user.slice" / "app.slice" / "run.scope"
    scope.mkdir(parents=True)
    (place / "cgroup.subtree_control").write_text("cpu io memory pids\n")
    (scope.parent / "cgroup.subtree_control").write_text("memory pids\n")
    (scope / "cgroup.subtree_control").write_text("\n")
    mounts = f"31 23 0:28 / {place} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    found = list(candidates(mounts, "0::/user.slice/app.slice/run.scope\n"))
    assert found == [
        ControlGroups(2, {"memory": scope.parent, "pids": scope.parent}),
        ControlGroups(2, {"memory": place, "pids": place, "cpu": place}),
    ]
    made = found[1].make(Caps(10**9, 50))
    folder = made.folders["memory"]
    assert (folder / "memory.max").read_text() == str(10**9)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "50"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 0\n")
    (folder / "pids.events").write_text("max 0\n")
    assert made.exceeded() == ""
    (folder / "pids.events").write_text("max 4\n")
    assert made.exceeded() == "processes"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    assert made.exceeded() == "memory"
    assert [word for word in made.entering(["true"]) if word.endswith("cgroup.procs")] == [str(folder / "cgroup.procs")]


@given(st.text(), st.text())
def test_any_text_is_mounts_or_none(mounts, own):
    list(candidates(mounts, own))


def test_a_group_that_cannot_be_made_is_a_failure_of_the_sandbox(tmp_path):
    gone = Bubblewrap("bwrap", groups=ControlGroups(1, {"memory": tmp_path / "nowhere"}))
    with pytest.raises(SandboxFailed, match="no control group could be made"):
        gone.program("pass", Limits())
