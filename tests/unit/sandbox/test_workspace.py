"""A copy of a repository with an agent in it: what it sees, what it can reach, what is left of it. Every attack is
really run.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from context_bench.core.errors import BadInput, MissingProgram, SandboxFailed, SetupFailed
from context_bench.sandbox import Bounds, Bubblewrap, Container, NoSandbox, find_agent_sandbox, workspace

pytestmark = pytest.mark.program("bwrap")
SMALL = Bounds(memory=256 * 2**20, disk=32 * 2**20, processes=40)
AT = {"GIT_AUTHOR_DATE": "2021-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2021-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def house():
    return find_agent_sandbox()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "original"
    (made / "pkg").mkdir(parents=True)
    (made / "pkg" / "a.py").write_text("x = 1\n")
    (made / "notes.txt").write_text("old\n")
    return made


@pytest.fixture
def copy(folder, house):
    with workspace({"kind": "folder", "path": str(folder)}, house=house, bounds=SMALL) as made:
        yield made


def named(name):
    """Processes of this machine with this word on their command line."""
    count = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                count += name.encode() in (place / "cmdline").read_bytes()
            except OSError:
                continue
    return count


# --- what comes along
# ------------------------------------------------------------------------


def test_a_folder_becomes_a_repository_of_one_commit(copy, folder):
    done = copy.run("git log --oneline | wc -l; git status --short; cat pkg/a.py; pwd; echo ~")
    assert done.ok
    assert done.stdout_tail.split("\n") == ["1", "x = 1", "/workspace/repo", "/home/agent", ""]
    assert not (folder / ".git").exists()


def git(*argv, cwd):
    environment = {**os.environ, **AT, "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture(params=["files", "bare"])
def clone(request, tmp_path):
    """A repository whose main branch goes on after the commit that the task begins with, with a tag and a branch that
    know more.
    """
    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    commits = []
    for text in ("one", "two", "SOLUTION"):
        (work / "f.txt").write_text(text)
        git("add", "-A", cwd=work)
        git("commit", "-q", "-m", text, cwd=work)
        commits.append(git("rev-parse", "HEAD", cwd=work))
    git("tag", "v3", cwd=work)
    git("branch", "fix", cwd=work)
    git("reset", "-q", "--hard", commits[1], cwd=work)
    if request.param == "files":
        return work, commits
    git("clone", "-q", "--mirror", str(work), str(tmp_path / "bare.git"), cwd=tmp_path)
    return tmp_path / "bare.git", commits


def test_of_a_repository_come_the_past_and_nothing_else(clone, house):
    source, (_, second, solution) = clone
    before = sorted(str(path) for path in source.rglob("*"))
    with workspace({"kind": "git", "path": str(source), "commit": second}, house=house) as copy:
        seen = copy.run(
            "git log --all --format=%s; git for-each-ref --format='%(refname)'; git reflog --all; git status --short; "
            "cat f.txt"
        )
        assert seen.stdout_tail == "two\none\nrefs/heads/main\ntwo"
        assert not copy.run(["git", "cat-file", "-e", solution]).ok
        assert (
            copy.run("git fsck --lost-found; git remote -v; cat .git/FETCH_HEAD .git/ORIG_HEAD 2>/dev/null").stdout_tail
            == ""
        )
        assert "SOLUTION" not in copy.run("git cat-file --batch-all-objects --batch").stdout_tail
        assert str(source) not in copy.run("cat .git/config; grep -r original .git").stdout_tail
    assert sorted(str(path) for path in source.rglob("*")) == before


def test_a_shallow_past_where_asked_for(clone, house):
    source, (_, second, _) = clone
    with workspace({"kind": "git", "path": str(source), "commit": second[:12], "depth": 1}, house=house) as copy:
        assert copy.run("git log --format=%s").stdout_tail == "two\n"


@pytest.mark.parametrize(
    ("repo", "said"),
    [
        ({"kind": "folder", "path": "/nowhere"}, "/nowhere is no folder"),
        ({"kind": "git", "path": "/nowhere", "commit": "a"}, "/nowhere is no folder"),
        ({"kind": "git", "path": "/tmp", "commit": "--output=x"}, "expected the name of one"),
        ({"kind": "zip", "path": "a"}, "'zip'; expected"),
        ({"kind": "files", "files": {"../a": "x"}}, "no path within the repository"),
        ({"kind": "files", "files": {"/etc/a": "x"}}, "no path within the repository"),
        ({"kind": "files", "files": {"a": {"base64": "?"}}}, "not base64"),
    ],
)
def test_what_is_no_repository_is_refused(repo, said, house):
    with pytest.raises(BadInput, match=said), workspace(repo, house=house):
        pass


def test_set_up_is_part_of_the_start(house):
    repo = {"kind": "files", "files": {"a.txt": "a\n"}}
    with workspace(repo, house=house, setup="echo made > made.txt") as copy:
        assert copy.read("made.txt") == b"made\n"
        assert copy.patch() == ""
    with (
        pytest.raises(SetupFailed, match="ended with 3: no such thing"),
        workspace(repo, house=house, setup="echo no such thing >&2; exit 3"),
    ):
        pass


# --- what is seen and reached
# ------------------------------------------------------------------------


def test_nothing_of_this_machine_is_seen(copy, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (tmp_path / "secret").write_text("x")
    done = copy.run("env", env={"GIVEN": "yes"})
    assert "GIVEN=yes" in done.stdout_tail
    assert "sk-secret" not in done.stdout_tail
    assert "sk-secret" not in copy.run("cat /proc/*/environ").stdout_tail
    hidden = [
        tmp_path / "secret",
        folder,
        copy.home.parent,
        Path(__file__),
        Path("/etc/shadow"),
        Path("/root/.bashrc"),
        Path("/var/log"),
        Path("/home"),
    ]
    for place in hidden:
        if place != Path("/home"):
            assert not copy.run(["test", "-e", str(place)]).ok, place
    assert copy.run("ls /home").stdout_tail == "agent\n"
    processes = copy.run("ls /proc | grep -c '^[0-9]'")
    assert int(processes.stdout_tail) < 8


def test_what_is_given_to_read_can_be_read_and_not_written(folder, house, tmp_path):
    tool = tmp_path / "tool.sh"
    tool.write_text("echo tool\n")
    with workspace({"kind": "folder", "path": str(folder)}, house=house, readable=[tool]) as copy:
        assert copy.run(["sh", str(tool)]).stdout_tail == "tool\n"
        assert not copy.run(f"echo x > {tool}").ok
    with (
        pytest.raises(BadInput, match="no such file"),
        workspace({"kind": "folder", "path": str(folder)}, house=house, readable=["/nowhere"]),
    ):
        pass


def test_nothing_outside_is_written(copy, folder):
    places = [
        "/x",
        "/usr/x",
        "/etc/x",
        "/dev/x",
        "/opt/x",
        f"{folder}/x",
        f"{os.path.realpath(sys.base_prefix)}/x",
        "/start.git/x",
        "/run/../x",
    ]
    for place in places:
        assert not copy.run(f"echo x > {place}").ok, place
        assert not Path(place).exists()
    assert copy.run("echo x > here && echo x > ~/there && echo x > /tmp/too").ok
    assert (folder / "pkg" / "a.py").read_text() == "x = 1\n"
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "pkg"]


def test_links_out_of_the_copy_are_not_followed(copy, folder, tmp_path):
    aim, place = tmp_path / "aim", tmp_path / "place"
    aim.write_text("secret")
    place.mkdir()
    copy.run(f"ln -s {aim} leak; rm -r pkg; ln -s {place} pkg; ln -s {aim} ~/leak; ln -s {aim} notes2.txt; mkfifo pipe")
    assert copy.read("leak") is None
    assert copy.read("leak", home=True) is None
    assert copy.read("pkg/a.py") is None
    assert copy.read("pipe") is None
    copy.write("pkg/a.py", b"ours\n")
    copy.write("notes2.txt", b"ours\n")
    copy.remove("leak")
    assert copy.read("pkg/a.py") == b"ours\n"
    assert aim.read_text() == "secret"
    assert list(place.iterdir()) == []
    assert "secret" not in copy.patch()


def test_python_is_there_under_this_name(copy, folder):
    assert (
        copy.run("PATH=/workspace-bin; python -c 'import sys; print(sys.version_info[:2])'").stdout_tail
        == f"{sys.version_info[:2]}\n"
    )
    with unsafe(folder) as bare:
        assert bare.run(["sh", "-c", "PATH=${PATH##*:}; python -c 'print(1)'"]).stdout_tail == "1\n"


def test_network_only_where_it_is_allowed(copy):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        connect = [
            "python",
            "-c",
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)",
        ]
        assert not copy.run(connect).ok
        with pytest.raises(BlockingIOError):
            server.accept()
        assert copy.run(connect, network=True).ok
        server.accept()[0].close()


# --- how it ends
# ------------------------------------------------------------------------


def test_ends_and_outputs_are_told(copy):
    done = copy.run("echo out; echo err >&2; exit 7")
    assert (done.exit, done.stdout_tail, done.stderr_tail, done.ok) == (7, "out\n", "err\n", False)
    assert copy.run(["cat"], stdin=b"in").stdout_tail == "in"
    assert copy.run(["no-such-program"]).exit == 127
    tail = copy.run("yes | head -c 300000; echo end", keep=1000)
    assert len(tail.stdout_tail) == 1000
    assert tail.stdout_tail.endswith("y\nend\n")
    assert tail.dropped == 300000 + 4 - 1000
    assert copy.run(r"printf '\377'").stdout_tail == "\ufffd"
    with pytest.raises(BadInput, match="no command"):
        copy.run([])


@pytest.mark.parametrize("ending", ["true", "sleep 60", "kill -9 -1", "kill -9 $$"])
def test_daemons_end_with_the_command(copy, ending):
    name = f"cb-{uuid.uuid4().hex}"
    python = f"setsid python -c 'import time; time.sleep(60)  # {name}' &"
    daemon = f"setsid bash -c 'exec -a {name} sleep 60' >/dev/null 2>&1 & {python} sleep 0.2; {ending}"
    done = copy.run(["bash", "-c", daemon], timeout=1.0)
    assert done.timed_out == (ending == "sleep 60")
    assert named(name) == 0


def test_signals_stay_inside(copy):
    done = copy.run(f"kill -9 {os.getpid()}; kill -9 -1")
    assert not done.ok
    assert copy.run("echo still here").stdout_tail == "still here\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("python -c 'a = bytearray(10**9); import time; time.sleep(60)'", "memory"),
        ("i=0; while true; do head -c 4000000 /dev/zero > f$i; i=$((i+1)); done", "disk"),
        ("while true; do head -c 4000000 /dev/zero >> ~/f; done", "disk"),
        ("for i in $(seq 90); do sleep 60 & done; wait", "processes"),
        (
            "f() { sleep 0.05; f | f & }; f; sleep 60",
            "processes",
        ),  # doubles slowly enough not to choke the tests beside it
    ],
)
def test_bounds_hold(copy, command, why):
    done = copy.run(["bash", "-c", command], timeout=60)
    # one file alone is stopped by the kernel; whoever goes on writing then does so elsewhere
    assert done.killed == why or (why == "disk" and not done.ok)
    assert not done.timed_out
    assert done.exit is None or why == "disk"


def test_stopped_from_another_thread(copy):
    ready = threading.Timer(0.3, copy.stop)
    ready.start()
    assert copy.run("sleep 60").killed == "stopped"
    assert copy.run("echo no more").killed == "stopped"


def test_nothing_is_left_on_the_disk(folder, house):
    with workspace({"kind": "folder", "path": str(folder)}, house=house) as copy:
        copy.run("mkdir -p a/b && touch a/b/c && chmod 000 a/b a && mkdir ~/x && chmod 0 ~/x")
        root = copy.path.parent
    assert not root.exists()


# --- the patch
# ------------------------------------------------------------------------


def applied(patch, folder):
    """The files of the original after `git apply`."""
    subprocess.run(["git", "apply", "--binary", "-"], input=patch.encode(), cwd=folder, check=True, capture_output=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_patch_makes_the_original_what_the_copy_is(copy, folder):
    done = copy.run(
        r"echo 'x = 2' > pkg/a.py; rm notes.txt; mkdir new; printf '\0\1\2' > new/b.bin; echo é > 'new/a b.txt'; "
        r"printf 'no end' > new/c;"
        "echo skip > skip.log; echo '*.log' > .gitignore; python -c 'import pkg.a'; git add -A; git commit -qm mine; "
        "echo y >> pkg/a.py"
    )
    assert done.ok, done
    assert applied(copy.patch(), folder) == {
        "pkg/a.py": b"x = 2\ny\n",
        "new/b.bin": b"\0\1\2",
        "new/a b.txt": "é\n".encode(),
        "new/c": b"no end",
        ".gitignore": b"*.log\n",
    }


@pytest.mark.parametrize(
    "attack",
    [
        "rm -rf .git",
        "echo broken > .git/HEAD; rm -rf .git/objects",
        "git config core.fsmonitor ./evil.sh; git config filter.e.clean ./evil.sh; git config core.hooksPath .; cp "
        "evil.sh pre-commit; "
        "git config diff.external ./evil.sh; git config core.worktree /tmp; echo '* filter=e diff=e' > .gitattributes",
        "mkdir sub; cd sub; git init -q; echo inner > inner.txt; git config core.fsmonitor ../evil.sh",
        "git init -q sub; cd sub; echo inner > inner.txt; git add .; git -c user.name=a -c user.email=a@b commit -qm x",
        "mkdir sub; echo 'gitdir: /nowhere' > sub/.git; echo inner > sub/inner.txt",
        "mkdir sub; echo inner > sub/inner.txt; chmod 000 sub/inner.txt pkg/a.py pkg sub .git",
    ],
)
def test_the_patch_does_not_depend_on_the_agents_git(copy, attack):
    assert copy.run(
        "printf '#!/bin/sh\\necho ran >> /workspace/repo/ran\\ncat\\n' > evil.sh; chmod +x evil.sh; echo 'x = 2' > "
        "pkg/a.py"
    ).ok
    copy.run(attack)
    patch = copy.patch()
    assert "+x = 2" in patch
    assert ("inner.txt" in patch) == ("inner.txt" in attack)
    assert copy.read("ran") is None
    assert copy.patch() == patch  # and can be made again


# --- which walls
# ------------------------------------------------------------------------


def program(place, name, text):
    path = place / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def only(tmp_path, monkeypatch):
    """A PATH with git and nothing else but what a test puts there."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "git").symlink_to("/usr/bin/git")
    monkeypatch.setenv("PATH", str(place))
    return place


def test_without_walls_it_refuses_unless_asked_not_to(only):
    with pytest.raises(
        MissingProgram, match=r"only in a sandbox.*apt-get install bubblewrap.*Tried: bwrap is not installed"
    ):
        find_agent_sandbox()
    house = find_agent_sandbox(unsafe=True)
    assert isinstance(house, NoSandbox)
    assert not house.contained


def test_walls_that_do_not_stand_are_not_used(only):
    program(only, "bwrap", "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    with pytest.raises(MissingProgram, match="No permissions to create"):
        find_agent_sandbox()
    program(only, "bwrap", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    with pytest.raises(MissingProgram, match="bubblewrap: "):
        find_agent_sandbox()


def test_walls_that_fall_are_no_fault_of_the_agent(folder, tmp_path):
    broken = Bubblewrap(str(program(tmp_path, "bwrap", "#!/bin/sh\necho 'bwrap: Out of luck' >&2; exit 1\n")))
    with (
        workspace({"kind": "folder", "path": str(folder)}, house=broken) as copy,
        pytest.raises(SandboxFailed, match="Out of luck"),
    ):
        copy.run("true")
    absent = Bubblewrap("/nonexistent/bwrap")
    with (
        workspace({"kind": "folder", "path": str(folder)}, house=absent) as copy,
        pytest.raises(SandboxFailed, match="did not start"),
    ):
        copy.run("true")


def test_an_agent_that_speaks_like_bwrap_has_run(copy):
    assert copy.run("echo 'bwrap: Out of luck' >&2; exit 1").exit == 1


#: A stand-in for docker: notes its arguments, and really puts walls up.
DOCKER = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
if words[0] == "image":
    sys.exit(words[2] != "python:3-slim")
open(os.path.join(os.path.dirname(sys.argv[0]), "noted"), "a").write(repr(words) + chr(10))
take = lambda name: [words[n + 1] for n, word in enumerate(words) if word == name]
at = words.index("--entrypoint")
argv = [words[at + 1], *words[at + 3:]]
order = ["/usr/bin/bwrap", "--die-with-parent", "--unshare-user", "--unshare-pid", "--clearenv", "--proc", "/proc", "--dev", "/dev"]
for system in ("/usr", "/bin", "/lib", "/lib64", {os.path.realpath(sys.base_prefix)!r}):
    order += ["--ro-bind", os.path.realpath(system), system]
order += ["--unshare-net"] if take("--network") == ["none"] else []
for volume in take("--volume"):
    host, inside, way = volume.split(":")
    order += ["--bind" if way == "rw" else "--ro-bind", host, inside]
for given in take("--env"):
    name, sign, value = given.partition("=")
    order += ["--setenv", name, value if sign else os.environ[name]]
os.execv(order[0], [*order, "--remount-ro", "/", "--chdir", take("--workdir")[0], *argv])
"""  # noqa: E501


def test_docker_where_bubblewrap_is_not(only, folder, monkeypatch):
    program(only, "docker", DOCKER)
    house = find_agent_sandbox()
    assert isinstance(house, Container)
    assert (house.name, house.image) == ("docker", "python:3-slim")
    with workspace({"kind": "folder", "path": str(folder)}, house=house) as copy:
        done = copy.run("pwd; echo $KEY; echo new > new.txt; test ! -e " + str(folder), env={"KEY": "sk-secret"})
        assert (done.exit, done.stdout_tail) == (0, "/workspace/repo\nsk-secret\n")
        assert "+new" in copy.patch()
    noted = (only / "noted").read_text()
    assert "sk-secret" not in noted  # every user of the machine can read command lines
    for needed in (
        "'--network', 'none'",
        "--read-only",
        "'--cap-drop', 'ALL'",
        "no-new-privileges",
        "--pids-limit",
        "--memory",
        "'--pull', 'never'",
    ):
        assert needed in noted


@contextmanager
def unsafe(folder):
    with workspace({"kind": "folder", "path": str(folder)}, house=NoSandbox(), bounds=SMALL) as made:
        yield made


def test_without_walls_it_still_works_in_a_copy_and_ends_what_it_leaves(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    name = f"cb-{uuid.uuid4().hex}"
    with unsafe(folder) as copy:
        assert (copy.sandbox, copy.contained, copy.inside) == ("none", False, str(copy.path))
        done = copy.run("pwd; echo ~; echo x >> notes.txt; env")
        assert done.stdout_tail.startswith(f"{copy.path}\n{copy.home}\n")
        assert "sk-secret" not in done.stdout_tail
        daemon = f"setsid python -c 'import time; time.sleep(60)  # {name}' >/dev/null 2>&1 & sleep 0.2"
        assert copy.run(daemon).exit == 0
        assert named(name) == 0
        assert copy.run(f"{daemon}; sleep 60", timeout=1.0).timed_out
        assert named(name) == 0
        assert copy.run("kill -TERM $$").exit == 128 + signal.SIGTERM
        assert copy.run("python -c 'a = bytearray(10**9); import time; time.sleep(60)'", timeout=60).killed == "memory"
        assert "+x" in copy.patch()
    assert (folder / "notes.txt").read_text() == "old\n"


def test_what_a_killed_process_left_is_removed_by_the_next(folder, house, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "context-bench-copy-of-somebody").mkdir()
    code = "import sys, time\nfrom context_bench.sandbox.workspace_files import fresh_folder\n"
    code += (
        "with fresh_folder() as root:\n    (root / 'repo').mkdir(mode=0o500)\n    print(root, flush=True)\n   "
        " time.sleep(1000)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )
    left = Path(other.stdout.readline().strip())
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with workspace({"kind": "folder", "path": str(folder)}, house=house):
        assert left.exists(), "in use by a process that lives"
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert left.exists()
    with workspace({"kind": "folder", "path": str(folder)}, house=house):
        assert not left.exists()
    assert [each.name for each in temporary.iterdir()] == ["context-bench-copy-of-somebody"]
