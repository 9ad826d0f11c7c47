"""Agents that leave a copy which is hard to read, to verify or to remove: the run scores 0 for it, and nothing stays
behind.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from context_bench.agents.systems import Agent
from context_bench.core.errors import CopyUnusable, SandboxFailed
from context_bench.sandbox import find_agent_sandbox, workspace, workspace_files as placing
from context_bench.sandbox.supervision import size_of
from context_bench.sandbox.workspace_files import fresh_folder, left_by_agent, remove_tree

workspaces = sys.modules["context_bench.sandbox.workspace"]  # the name of the module is that of a function too
pytestmark = pytest.mark.program("bwrap")
DEEP = (
    f"python -c \"import os\nfor _ in range(400): os.mkdir('{'a' * 32}'); os.chdir('{'a' * 32}')\nopen('end', "
    "'w')\n%s\""
)
SMALL = 2**20  # bytes that a patch may have here
#: What an agent may do, and words of the reason; "" where the hidden tests decide as ever.
MISCHIEF = {
    "folders without end": (DEEP % "", "nested more than"),
    "folders without end in its home": (f"cd ~; {DEEP}" % "", ""),
    "folders without end and without rights": (DEEP % "os.chmod('.', 0)", "nested more than"),
    "a folder of its own that is closed": ("mkdir -p a/b; echo 1 > a/b/c; chmod 000 a/b/c a/b a .", ""),
    "a hole of gigabytes": ("truncate -s 3G hole", "3,221,225,472 bytes"),
    "a hole that git ignores": ("echo hole > .gitignore; truncate -s 3G hole", ""),
    "more than a patch holds": ("head -c 1500000 /dev/urandom > big", "1,500,000 bytes"),
    "many files that together are too much": (
        "for i in 1 2 3 4; do head -c 600000 /dev/urandom > big$i; done",
        "patch of what the agent changed could not be made",
    ),
    "names that are no text": (r"mkdir $(printf 'a\377b'); echo 1 > $(printf 'a\377b/\376'); echo 1 > $(printf "
        r"'c\nd')", ""),
    "pipes and sockets": (
        "mkfifo p conftest.py; python -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"",
        "",
    ),
    "links in circles": ("ln -s . here; ln -s b a; ln -s a b; mkdir d; ln -s ../d d/d; ln -s /dev/zero zero", ""),
    "no history": ("rm -rf .git", ""),
    "another history": ("rm -rf .git; git init -q; git commit -q --allow-empty -m x", ""),
    "a broken history": ("echo junk > .git/HEAD; rm -rf .git/objects; echo x > .git/config", ""),
    "a file for a history": ("rm -rf .git; echo 'gitdir: /nowhere' > .git", ""),
    "locks": ("touch .git/index.lock .git/HEAD.lock .git/config.lock", ""),
    "a head elsewhere": ("git checkout -q --orphan other; git rm -rfq --cached .; git commit -q --allow-empty -m "
        "x", ""),
    "repositories within": (
        "mkdir in; cd in; git init -q; git commit -q --allow-empty -m x; cd ..; "
        "printf '[submodule \"in\"]\\npath=in\\n' > .gitmodules",
        "",
    ),
    "attributes that run programs": ("printf '* filter=x diff=x\\n' > .gitattributes; git config filter.x.clean 'sh "
        "-c \"exit 9\"'", ""),
    "folders where tests go": ("rm -rf tests; ln -s /etc tests; mkdir -p checks.sh/x/y; chmod 000 checks.sh/x", ""),
}  # fmt: skip
TASK = {
    "id": "t",
    "instruction": "Make it 2.",
    "repo": {"kind": "files", "files": {"a.txt": "1\n", "tests/test_it.py": "", "sub/__init__.py": ""}},
    "verify": {"command": "sh checks.sh", "files": {"checks.sh": b"grep -q 2 a.txt\n", "tests/hidden.py": b""}},
}


@pytest.fixture
def own_tmp(tmp_path, monkeypatch):
    """A temporary folder of its own, which is empty afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("script", "said"), MISCHIEF.values(), ids=MISCHIEF)
def test_the_run_is_scored_and_nothing_stays(script, said, own_tmp, monkeypatch):
    for module in (placing, workspaces):
        monkeypatch.setattr(module, "LARGE", SMALL)
    agent = Agent("a", ["sh", "-c", f"echo 2 > a.txt; ({script}); exit 0"])
    output = agent.process(TASK)
    assert output["solved"] is not bool(said)
    if said:
        assert output["abort"] == "agent error"
        assert said in output["reason"]
        assert "the agent left" in output["reason"]
    else:
        assert "+2" in output["response"]


def test_more_files_than_git_can_take(own_tmp, monkeypatch):
    monkeypatch.setattr(workspaces, "_MOST_NEW", 500)
    output = Agent("a", ["sh", "-c", "mkdir d; cd d; seq 1000 | xargs touch"]).process(TASK)
    assert (output["solved"], output["abort"]) == (False, "agent error")
    assert "files and folders in it" in output["reason"]


def test_no_room_is_nobodys_doing_unless_the_agent_took_it(own_tmp, monkeypatch):
    class Full:
        free = 0

    with workspace(TASK["repo"], house=find_agent_sandbox()) as made:
        monkeypatch.setattr(workspaces, "_DIFF", "--no-such-option")
        with pytest.raises(CopyUnusable):
            made.patch()
        monkeypatch.setattr(workspaces.shutil, "disk_usage", lambda _: Full)
        with pytest.raises(SandboxFailed) as raised:
            made.patch()
        assert not isinstance(raised.value, CopyUnusable)
        monkeypatch.setattr(workspaces, "size_of", lambda *_: 4 * 2**30)
        with pytest.raises(CopyUnusable):
            made.patch()


@pytest.mark.parametrize(
    ("number", "whose"),
    [
        (errno.ENAMETOOLONG, "agent"),
        (errno.ELOOP, "agent"),
        (errno.EACCES, "agent"),
        (errno.ENOSPC, "ours"),
        (errno.EMFILE, "ours"),
    ],
)
def test_one_rule_says_whose_an_error_is(number, whose):
    with pytest.raises(CopyUnusable if whose == "agent" else OSError) as raised, left_by_agent("it cannot be read"):
        raise OSError(number, os.strerror(number), "a/b")
    assert whose == "ours" or "it cannot be read" in str(raised.value)


def test_without_an_agent_nothing_is_the_agents(own_tmp):
    """The arm that does nothing: a copy that cannot be verified says nothing of anybody."""
    task = {**TASK, "setup": f"cd tests; {DEEP}" % ""}
    with pytest.raises(SandboxFailed):
        Agent("nothing", None).process(task)


def tree(root: Path, depth: int) -> None:
    """Folders within folders, a file in each, some closed, some with many files, links out."""
    back = os.open(".", os.O_RDONLY)
    os.chdir(root)
    for level in range(depth):
        Path("b" * 60).mkdir()
        os.chdir("b" * 60)
        if level % 20 == 0:
            Path("file").write_text("x")
            Path("link").symlink_to("/etc")
            os.mkfifo("pipe")
    for number in range(50):
        Path(str(number)).touch()
    Path("closed").mkdir(mode=0)
    os.fchdir(back)
    os.close(back)


def test_a_tree_is_removed_however_deep_and_its_links_are_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "_AT_ONCE", 20)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "out").symlink_to(outside)
    tree(tmp_path / "made", 1_500)
    remove_tree(tmp_path / "made")
    assert [each.name for each in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()
    (tmp_path / "link").symlink_to(outside)
    remove_tree(tmp_path / "link")
    assert (outside / "kept").exists()


def test_what_a_killed_process_left_is_removed_however_deep(own_tmp):
    code = (
        "import sys, time\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\nfrom test_mischief import tree\n"
    )
    code += "from context_bench.sandbox.workspace_files import fresh_folder\n"
    code += "with fresh_folder() as root:\n    tree(root, 200)\n    print(root, flush=True)\n    time.sleep(1000)\n"
    line = [sys.executable, "-c", code, str(Path(__file__).parent)]
    other = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(own_tmp)})
    assert other.stdout is not None
    left = Path(other.stdout.readline().strip())
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    unlocked, young = own_tmp / "context-bench-copy-abcd1234", own_tmp / "context-bench-copy-abcd5678"
    for folder in (unlocked, young):
        (folder / "repo").mkdir(parents=True)
    os.utime(unlocked, (time.time() - 3600, time.time() - 3600))
    with fresh_folder():
        assert not left.exists()
        assert not unlocked.exists()
        assert young.exists(), "may be in the making"
    remove_tree(young)


def test_what_no_path_reaches_is_counted(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(150):
            os.mkdir("a" * 32, dir_fd=here)
            inner = os.open("a" * 32, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        with os.fdopen(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:
            file.write(bytes(4 * 2**20))
    finally:
        os.close(here)
    assert size_of(tmp_path, 2**40) > 4 * 2**20
    remove_tree(tmp_path / ("a" * 32))
    assert size_of(tmp_path, 2**40) == 0
