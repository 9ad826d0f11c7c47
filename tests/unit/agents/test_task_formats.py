"""Tasks from folders of ours and of Harbor's, and from rows like SWE-bench's: what is read, what is refused, and
why.
"""

import base64
import json
import os
import subprocess

import pytest
from hypothesis import given, strategies as st

from context_bench.agents.datasets import BUNDLED, load_tasks
from context_bench.core.errors import BadInput, BadSpec, UnknownName
from context_bench.sandbox import find_agent_sandbox, verify, workspace

OURS = """
instruction = "Make it 2."
timeout = 60
cluster = "ones"
[verify]
command = "grep -q 2 a.txt"
tests = "tests"
"""


def files(place, **texts):
    for name, text in texts.items():
        path = place / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


def ours(place, toml=OURS):
    return files(place, task_DOT_toml=toml, repo__a_DOT_txt="1\n", tests__test_a_DOT_py="x = 1\n")


# --- our own form
# ------------------------------------------------------------------------


def test_a_folder_of_ours(tmp_path):
    ours(tmp_path / "one")
    [task] = load_tasks(tmp_path / "one")
    assert task == {
        "id": "one",
        "instruction": "Make it 2.",
        "question": "Make it 2.",
        "context": "",
        "repo": {"kind": "folder", "path": str((tmp_path / "one" / "repo").resolve())},
        "verify": {
            "files": {"tests/test_a.py": base64.b64encode(b"x = 1\n").decode()},
            "command": "grep -q 2 a.txt",
            "timeout": 600.0,
        },
        "task_source": "folder",
        "timeout": 60.0,
        "cluster": "ones",
    }
    json.dumps(task)  # an example can be stored


def test_many_folders_in_order_and_at_most_n(tmp_path):
    for name in ("b", "a", "c"):
        ours(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert [task["id"] for task in load_tasks(tmp_path)] == ["a", "b", "c"]
    assert [task["id"] for task in load_tasks(str(tmp_path), n=2)] == ["a", "b"]
    assert load_tasks(tmp_path, n=0) == []


def test_everything_in_one_file_with_a_commit_or_with_files(tmp_path):
    verify_part = (
        '[verify]\ncommand = "true"\nfail_to_pass = ["a"]\n[gold]\npatch = "p"\ninit = [{ file = "a", '
        "first = 1, last = 2 }]\n"
    )
    file = tmp_path / "named.toml"
    file.write_text(
        f'instruction = "x"\nsetup = "make"\nrepo = {{ path = "clone.git", commit = "abc" }}\n{verify_part}'
    )
    [task] = load_tasks(file)
    assert task["id"] == "named"
    assert task["repo"] == {"kind": "git", "path": str(tmp_path / "clone.git"), "commit": "abc"}
    assert (task["gold_patch"], task["gold"], task["setup"]) == (
        "p",
        {"init": [{"file": "a", "first": 1, "last": 2}]},
        "make",
    )
    file.write_text(f'id = "other"\ninstruction = "x"\n[files]\n"a/b" = "text"\n{verify_part}')
    [task] = load_tasks(file)
    assert (task["id"], task["repo"]) == ("other", {"kind": "files", "files": {"a/b": "text"}})


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[verify]\ncommand = "true"', "there is no instruction"),
        ('instruction = "x"', r"no \[verify\] with a `command`"),
        (
            'instruction = "x"\ntimeout = -1\nspeed = 2\n[verify]\ncommand = "true"',
            r"(?s)unknown key 'speed'.*timeout is -1",
        ),
        ('instruction = "x"\n[verify]\ncommand = "true"\ntests = "nope"', "no such folder"),
        ('instruction = "x"\nrepo = "nope"\n[verify]\ncommand = "true"', "no folder 'nope'"),
        (
            'instruction = "x"\nrepo = { path = "a" }\n[verify]\ncommand = "true"',
            "expected a folder or { path, commit }",
        ),
        (
            'instruction = "x"\n[verify]\ncommand = "true"\nfail_to_pass = "a"\nretries = 1',
            r"(?s)verify.retries.*fail_to_pass is 'a'",
        ),
        ('instruction = "x"\n[files]\na = 1\n[verify]\ncommand = "true"', "files is no table"),
    ],
)
def test_faults_of_our_form_are_named_at_once(tmp_path, toml, said):
    ours(tmp_path / "one", toml)
    with pytest.raises(BadSpec, match=said):
        load_tasks(tmp_path / "one")


def test_what_is_no_task_at_all(tmp_path):
    files(tmp_path, a_DOT_py="x", b_DOT_toml="= broken")
    for spec, said in [
        (tmp_path, "has no task.toml"),
        (tmp_path / "a.py", "unknown kind"),
        (tmp_path / "b.toml", "cannot be read as TOML"),
        (tmp_path / "nowhere", "is no folder or file; expected bundled:repo-tasks"),
    ]:
        with pytest.raises(BadInput, match=said):
            load_tasks(spec)
    with pytest.raises(UnknownName, match="Did you mean pager-last-page"):
        load_tasks(f"{BUNDLED}:pager-last-pages")
    with pytest.raises(BadInput, match="n is -1"):
        load_tasks(BUNDLED, n=-1)
    ours(tmp_path / "t" / "one", 'id = "same"\n' + OURS)
    ours(tmp_path / "t" / "two", 'id = "same"\n' + OURS)
    with pytest.raises(BadInput, match="'same' is there twice"):
        load_tasks(tmp_path / "t")


# --- Harbor
# ------------------------------------------------------------------------

HARBOR = """
schema_version = "1.1"
[task]
name = "org/hello"
[metadata]
category = "files"
[verifier]
timeout_sec = 30.0
[agent]
timeout_sec = 90.0
[environment]
build_timeout_sec = 600.0
"""
TEST_SH = """#!/bin/bash
mkdir -p /logs/verifier
if grep -q hello greeting.txt && test -f /tests/expected.txt && test "$MODE" = strict; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
DOCKERFILE = """# the base
FROM python:3.12-slim
ENV MODE=strict
WORKDIR /app
COPY data \\
  ./data/
COPY readme.txt .
CMD ["bash"]
"""


def harbor(place, dockerfile=DOCKERFILE, toml=HARBOR):
    files(
        place,
        task_DOT_toml=toml,
        instruction_DOT_md="Write hello.",
        tests__test_DOT_sh=TEST_SH,
        tests__expected_DOT_txt="hello\n",
    )
    files(
        place,
        environment__data__one_DOT_csv="1\n",
        environment__readme_DOT_txt="r\n",
        solution__solve_DOT_sh="echo hello > greeting.txt\n",
    )
    if dockerfile:
        files(place, environment__Dockerfile=dockerfile)
    return place


@pytest.mark.program("bwrap")
def test_a_harbor_task_of_plain_files_runs_as_it_says(tmp_path):
    harbor(tmp_path / "hello")
    [task] = load_tasks(tmp_path / "hello")
    assert (task["id"], task["instruction"], task["task_source"]) == ("org/hello", "Write hello.", "harbor")
    assert (task["timeout"], task["verify"]["timeout"], task["kind"], task["env"]) == (
        90.0,
        30.0,
        "files",
        {"MODE": "strict"},
    )
    with workspace(task["repo"], house=find_agent_sandbox()) as copy:
        assert copy.run("pwd; cat data/one.csv readme.txt; ls; ls /tests 2>&1").stdout_tail.startswith(
            "/app\n1\nr\ndata\nreadme.txt\nls: "
        )
        assert verify(copy, task["verify"]).reason == "reward 0"
        assert copy.run(base64.b64decode(task["solution"]).decode()).ok
        assert verify(copy, task["verify"]).solved


def test_without_a_dockerfile_all_of_environment_is_there(tmp_path):
    harbor(tmp_path / "hello", dockerfile="")
    [task] = load_tasks(tmp_path)
    assert task["repo"]["at"] == "/app"
    assert sorted(task["repo"]["files"]) == ["data/one.csv", "readme.txt"]


@pytest.mark.parametrize(
    ("dockerfile", "toml", "said"),
    [
        (
            "FROM python:3.12\nWORKDIR /app\nRUN pip install numpy",
            HARBOR,
            r"its image has to be built \(RUN pip install numpy\)",
        ),
        ("FROM nvidia/cuda:12\nWORKDIR /app", HARBOR, r"has to be built \(FROM nvidia/cuda:12\)"),
        ("FROM python:3.12", HARBOR, "it works in /"),
        ("FROM python:3.12\nWORKDIR /usr/src", HARBOR, "this machine's own"),
        ("FROM python:3.12\nWORKDIR /app\nCOPY data /data", HARBOR, "goes outside /app"),
        ("FROM python:3.12\nWORKDIR /app\nCOPY ../../secret .", HARBOR, "goes outside"),
        ("FROM python:3.12\nWORKDIR /app\nCOPY nope .", HARBOR, "not in environment/"),
        ("FROM python:3.12\nWORKDIR /app\nCOPY --from=x a .", HARBOR, "has to be built"),
        ("FROM python:3.12\nWORKDIR $HOME", HARBOR, "has to be built"),
        ("", HARBOR + 'docker_image = "org/special:1"', "needs the image org/special:1"),
    ],
)
def test_harbor_tasks_that_need_an_image_are_refused_and_counted(tmp_path, dockerfile, toml, said):
    harbor(tmp_path / "bad", dockerfile, toml)
    with pytest.raises(BadSpec, match=said):
        load_tasks(tmp_path)
    harbor(tmp_path / "good")
    tasks = load_tasks(tmp_path)
    assert [task["id"] for task in tasks] == ["org/hello"]
    assert [refused.id for refused in tasks.refused] == ["bad"]


WORDS = [
    "FROM",
    "WORKDIR",
    "COPY",
    "ENV",
    "RUN",
    "python:3",
    "/app",
    "/",
    "..",
    "data",
    ".",
    "A=b",
    "\n",
    " ",
    "\\\n",
    "'",
    "$X",
    "#",
    "/usr/x",
    "--chown=a",
]


@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_dockerfile_is_plain_or_refused(tmp_path_factory, parts):
    place = tmp_path_factory.getbasetemp() / "any"
    if not place.exists():
        harbor(place)
    (place / "environment" / "Dockerfile").write_text(" ".join(parts))
    try:
        [task] = load_tasks(place)
    except BadSpec:
        return
    assert "RUN" not in [line.split()[0] for line in " ".join(parts).replace("\\\n", " ").splitlines() if line.split()]
    assert task["repo"]["at"].startswith("/")
    assert task["repo"]["at"].split("/")[1] not in ("", "usr", "tests")
    assert not any(".." in name or name.startswith("/") for name in task["repo"]["files"])


def test_a_harbor_task_without_tests_is_none(tmp_path):
    harbor(tmp_path / "hello")
    (tmp_path / "hello" / "tests" / "test.sh").unlink()
    with pytest.raises(BadSpec, match=r"there is no tests/test\.sh"):
        load_tasks(tmp_path / "hello")


# --- rows like SWE-bench's
# ------------------------------------------------------------------------


def git(*argv, cwd):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, env=environment).stdout


TEST_BEFORE = (
    "import unittest\nfrom m import f\nclass T(unittest.TestCase):\n    def test_old(self):\n        "
    "self.assertEqual(f(), 1)\n"
)
TEST_AFTER = TEST_BEFORE.replace("f(), 1", "f(0), 1") + "    def test_new(self):\n        self.assertEqual(f(1), 2)\n"


@pytest.fixture
def swe(tmp_path):
    """(folder of clones, row) of a small repository whose fix and test patch come from real commits."""
    work = tmp_path / "repos" / "own__proj"
    files(
        work,
        m_DOT_py="def f(n=0):\n    return 1\n",
        t__test_m_DOT_py=TEST_BEFORE,
        t____init___DOT_py="",
        t__old_DOT_py="x\n",
    )
    (work / "t" / "__init__.py").write_text("")
    git("init", "-q", "-b", "main", cwd=work)
    git("add", "-A", cwd=work)
    git("commit", "-q", "-m", "base", cwd=work)
    base = git("rev-parse", "HEAD", cwd=work).strip()
    (work / "m.py").write_text("def f(n=0):\n    return 1 + n\n")
    patch = git("diff", cwd=work)
    git("checkout", "-q", ".", cwd=work)
    (work / "t" / "test_m.py").write_text(TEST_AFTER)
    (work / "t" / "old.py").unlink()
    git("add", "-A", cwd=work)
    test_patch = git("diff", "--cached", cwd=work)
    git("reset", "-q", "--hard", cwd=work)
    row = {
        "instance_id": "own__proj-1",
        "repo": "own/proj",
        "base_commit": base,
        "problem_statement": "f ignores n",
        "patch": patch,
        "test_patch": test_patch,
        "FAIL_TO_PASS": json.dumps(["test_new (t.test_m.T)"]),
        "PASS_TO_PASS": ["test_old (t.test_m.T)"],
    }
    return tmp_path / "repos", row


def lines(place, *rows):
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.mark.program("bwrap")
def test_an_instance_fails_before_and_passes_after_its_patch(swe, tmp_path):
    repos, row = swe
    clone = repos / "own__proj"
    before = sorted(str(path) for path in clone.rglob("*"))
    [task] = load_tasks(lines(tmp_path / "rows.jsonl", row), repos=repos)
    assert (task["id"], task["cluster"], task["gold_patch"], task["task_source"]) == (
        "own__proj-1",
        "own/proj",
        row["patch"],
        "swe-bench",
    )
    assert task["verify"]["command"] == "python -m unittest -v t.test_m"
    assert list(task["verify"]["files"]) == ["t/test_m.py"]
    assert task["verify"]["remove"] == ["t/old.py"]
    with workspace(task["repo"], house=find_agent_sandbox()) as copy:
        verdict = verify(copy, task["verify"])
        assert (verdict.passed, verdict.failed) == (("test_old (t.test_m.T)",), ("test_new (t.test_m.T)",))
        assert copy.run(["git", "apply", "-"], stdin=row["patch"].encode()).ok
        assert verify(copy, task["verify"]).solved
    assert sorted(str(path) for path in clone.rglob("*")) == before


def test_rows_in_parquet_and_a_bare_clone(swe, tmp_path):
    import pyarrow
    from pyarrow import parquet

    repos, row = swe
    git("clone", "-q", "--mirror", str(repos / "own__proj"), str(tmp_path / "bare" / "proj.git"), cwd=tmp_path)
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows.parquet")
    [task] = load_tasks(tmp_path / "rows.parquet", repos=tmp_path / "bare")
    assert task["repo"] == {"kind": "git", "path": str(tmp_path / "bare" / "proj.git"), "commit": row["base_commit"]}
    assert list(task["verify"]["files"]) == ["t/test_m.py"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repo": "own/absent"}, "no clone of own/absent"),
        ({"repo": "../../etc"}, "no clone of"),
        ({"base_commit": "0" * 40}, "does not have the commit 0000"),
        ({"test_patch": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}, "test patch does not apply"),
        ({"FAIL_TO_PASS": [], "PASS_TO_PASS": []}, "names no tests"),
        ({"FAIL_TO_PASS": ["what is this"]}, "cannot be seen from their names"),
    ],
)
def test_instances_that_cannot_be_run_are_refused_and_counted(swe, tmp_path, change, said):
    repos, row = swe
    tasks = load_tasks(lines(tmp_path / "rows.jsonl", row, {**row, "instance_id": "two", **change}), repos=repos)
    assert [task["id"] for task in tasks] == ["own__proj-1"]
    [refused] = tasks.refused
    assert refused.id == "two"
    assert said in refused.reason


def test_rows_without_clones_or_that_are_none(swe, tmp_path):
    _, row = swe
    with pytest.raises(BadSpec, match=r"(?s)no task of 1 can be run here.*say where the clones are \(--repos DIR\)"):
        load_tasks(lines(tmp_path / "rows.jsonl", row))
    with pytest.raises(
        BadInput, match=r"rows.jsonl:1 is no SWE-bench-like instance: it has no repo, base_commit, problem_statement"
    ):
        load_tasks(lines(tmp_path / "rows.jsonl", {"instance_id": "x"}))
    with pytest.raises(BadInput, match="FAIL_TO_PASS is 'nope'"):
        load_tasks(lines(tmp_path / "rows.jsonl", {**row, "FAIL_TO_PASS": "nope"}), repos=tmp_path / "repos")


def test_how_tests_are_run(swe, tmp_path):
    repos, row = swe
    by_path = {**row, "FAIL_TO_PASS": ["t/test_m.py::T::test_new"], "PASS_TO_PASS": ["t/b c.py::x"]}
    [task] = load_tasks(lines(tmp_path / "rows.jsonl", by_path), repos=repos)
    assert task["verify"]["command"] == "python -m pytest -rA -p no:cacheprovider t/test_m.py 't/b c.py'"
    [task] = load_tasks(lines(tmp_path / "rows.jsonl", {**row, "test_cmd": "make test"}), repos=repos)
    assert task["verify"]["command"] == "make test"
    [task] = load_tasks(
        lines(tmp_path / "rows.jsonl", {**row, "FAIL_TO_PASS": ["odd"]}), repos=repos, test_command="tox"
    )
    assert task["verify"]["command"] == "tox"
