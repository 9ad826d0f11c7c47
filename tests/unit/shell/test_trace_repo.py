from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile
import zipfile

import pytest

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Snapshot, open_repo

FILES = {"a.py": b"x = 1\n", "src/b c.py": b"\xff\r\n", "src/empty.py": b"", ".github/w.yml": b"on: push\n"}


def write(folder, files=FILES):
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def git(folder, *words):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.invalid",
        "-c",
        "core.autocrlf=false",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True, env=env
    ).stdout.strip()


@pytest.fixture
def clone(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    write(work)
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "one")
    first = git(work, "rev-parse", "HEAD")
    (work / "a.py").write_bytes(b"x = 2\n")
    git(work, "commit", "-qam", "two")
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(work), str(bare))
    return work, bare, first


def folder(tmp_path):
    write(tmp_path / "f")
    return tmp_path / "f"


def zipped(tmp_path):
    with zipfile.ZipFile(tmp_path / "r.zip", "w") as archive:
        for path, data in FILES.items():
            archive.writestr(f"repo-1/{path}", data)
    return tmp_path / "r.zip"


def tarred(tmp_path):
    with tarfile.open(tmp_path / "r.tar.gz", "w:gz") as archive:
        for path, data in [*FILES.items(), ("../out.py", b"no")]:
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("./link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return tmp_path / "r.tar.gz"


def snapshot(tmp_path):
    rows = {path: {"base64": base64.b64encode(data).decode()} for path, data in FILES.items()}
    rows["a.py"] = "x = 1\n"
    rows["src/empty.py"] = {"text": ""}
    (tmp_path / "s.json").write_text(json.dumps(rows))
    return tmp_path / "s.json"


@pytest.mark.parametrize("make", [folder, zipped, tarred, snapshot])
def test_every_kind_of_repository_gives_the_same_files(tmp_path, make):
    with open_repo(make(tmp_path)) as repo:
        assert set(repo.paths()) == set(FILES)
        assert {path: repo.blob(path) for path in FILES} == FILES
        for path in ("gone.py", "../out.py", "/etc/passwd", "src", "link.py", "src/../a.py", ""):
            assert repo.blob(path) is None


def test_a_clone_is_read_at_its_commit(clone):
    work, bare, first = clone
    for spec, commit, wanted in [
        (f"{bare}@{first}", None, b"x = 1\n"),
        (bare, "main", b"x = 2\n"),
        (bare, None, b"x = 2\n"),
        (work, first, b"x = 1\n"),
    ]:
        with open_repo(spec, commit) as repo:
            assert set(repo.paths()) == set(FILES)
            assert {path: repo.blob(path) for path in FILES} == {**FILES, "a.py": wanted}
            assert repo.blob("gone.py") is None
    with open_repo(work) as repo:
        assert repo.blob("a.py") == b"x = 2\n"
        assert not any(path.startswith(".git/") for path in repo.paths())


def test_a_partial_clone_is_read_without_fetching_what_it_lacks(clone, tmp_path):
    work, _, _ = clone
    git(work, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial.git"
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{work}", str(partial))
    with open_repo(partial) as repo:
        assert set(repo.paths()) == set(FILES)
        for _ in range(10):  # git ends at each
            assert repo.blob("a.py") is None


def test_links_in_a_folder_are_not_followed(tmp_path):
    write(tmp_path / "f")
    (tmp_path / "secret").write_text("s")
    (tmp_path / "f" / "link.py").symlink_to(tmp_path / "secret")
    (tmp_path / "f" / "up").symlink_to(tmp_path)
    with open_repo(tmp_path / "f") as repo:
        assert set(repo.paths()) == set(FILES)
        assert repo.blob("link.py") is None
        assert repo.blob("up/secret") is None


def test_what_is_no_repository_is_refused(tmp_path, clone):
    _, bare, _ = clone
    (tmp_path / "text").write_text("hello")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "odd.json").write_text('{"a": 3}')
    (tmp_path / "plain").mkdir()
    for spec, commit in [("nowhere", None), ("text", None), ("list.json", None), ("odd.json", None), ("plain", "main")]:
        with pytest.raises(BadInput):
            open_repo(tmp_path / spec, commit)
    for commit in ("0" * 40, "--upload-pack=x", "main\nx"):
        with pytest.raises(BadInput):
            open_repo(bare, commit)
    with pytest.raises(BadInput):
        Snapshot.from_json({"a": {"base64": "???"}})
